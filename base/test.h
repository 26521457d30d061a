/* SPDX-License-Identifier: Apache-2.0 */
/* What every cmocka program includes: cmocka with the headers it forgets, and an assert that
 * checks "0 or the errno's name" in one line. Only *_test.c files include this.
 */
#ifndef LP_BASE_TEST_H
#define LP_BASE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/error.h"

/* cmocka's own calls longjmp out; leaks of a failed test are of no interest. */
#define lp_test_ok(expr)          lp_test_result((expr), 0, #expr, __FILE__, __LINE__)
#define lp_test_err(err, expr)    lp_test_result((expr), (err), #expr, __FILE__, __LINE__)
#define lp_test_main(tests, name) cmocka_run_group_tests_name((name), (tests), NULL, NULL)

static inline void lp_test_result(int got, int want, const char *expr, const char *file, int line)
{
	/* Any positive value is success too. */
	if (got == want || (want == 0 && got > 0))
		return;
	print_error("%s returned %d (%s), not %d (%s)\n", expr, got, lp_strerror(got), want,
		    want == 0 ? "success" : lp_strerror(want));
	_fail(file, line);
}

#endif
