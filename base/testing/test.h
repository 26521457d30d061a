/* SPDX-License-Identifier: Apache-2.0 */
/* Head of every cmocka program: cmocka, the headers it forgets, and an assert of results.
 *
 * The assert checks "0 or the errno's name" in one line. Only *_test.c files include this.
 */
#ifndef LP_BASE_TESTING_TEST_H
#define LP_BASE_TESTING_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/error.h"

/* cmocka's own calls longjmp out; leaks of a failed test are of no interest. */
#define lp_test_ok(expr)       lp_test_result((expr), 0, #expr, __FILE__, __LINE__)
#define lp_test_err(err, expr) lp_test_result((expr), (err), #expr, __FILE__, __LINE__)

/* Runs all tests of an array; main() returns its result. The setup before the first test and the
 * teardown after the last, or NULL, may set no state. */
#define lp_test_main(tests, name) lp_test_main_with((tests), (name), NULL, NULL)
#define lp_test_main_with(tests, name, setup, teardown)                                            \
	lp_test_group((name), (tests), sizeof(tests) / sizeof((tests)[0]), (setup), (teardown))

static inline void lp_test_result(int got, int want, const char *expr, const char *file, int line)
{
	/* Any positive value is success too. */
	if (got == want || (want == 0 && got > 0))
		return;
	print_error("%s returned %d (%s), not %d (%s)\n", expr, got, lp_strerror(got), want,
		    want == 0 ? "success" : lp_strerror(want));
	_fail(file, line);
}

/* cmocka names a test when it has ended. This line names a test that hangs or dies (tests/run reads
 * it), and gives the time of the tests before it. */
static inline int lp_test_begin(void **state)
{
	const struct CMUnitTest *test = *state;
	print_message("# begin %s, after %.1f s of CPU\n", test->name,
		      (double)clock() / CLOCKS_PER_SEC);
	*state = test->initial_state;
	return test->setup_func != NULL ? test->setup_func(state) : 0;
}

/* LAPIS_TEST_ONLY names the tests to run, with commas between; unset: all. */
static inline bool lp_test_is_wanted(const char *name)
{
	/* No test changes its environment. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *only = getenv("LAPIS_TEST_ONLY");
	size_t len = strlen(name);
	if (only == NULL || only[0] == '\0')
		return true;
	for (const char *at = only; at != NULL; at = strchr(at, ',')) {
		at += *at == ',' ? 1 : 0;
		if (strncmp(at, name, len) == 0 && (at[len] == ',' || at[len] == '\0'))
			return true;
	}
	return false;
}

static inline int lp_test_group(const char *name, const struct CMUnitTest *tests, size_t cnt,
				CMFixtureFunction setup, CMFixtureFunction teardown)
{
	struct CMUnitTest *announced = calloc(cnt, sizeof(*announced));
	if (announced == NULL)
		abort();
	size_t wanted = 0;
	for (size_t i = 0; i < cnt; i++) {
		if (!lp_test_is_wanted(tests[i].name))
			continue;
		announced[wanted] = tests[i];
		announced[wanted].setup_func = lp_test_begin;
		/* It is only read. */
		announced[wanted++].initial_state = (void *)(uintptr_t)&tests[i];
	}
	int failed = _cmocka_run_group_tests(name, announced, wanted, setup, teardown);
	free(announced);
	return failed;
}

#endif
