/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: any write between begin and the question is noticed, also one right after the former write,
 * and one whose time is set back. Reads are not. Method: files in the scratch directory, changed in
 * each way, again and again. */
#include "base/testing/test.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/unchanged.h"

#define ROUNDS 30

static int file;

static int setup(void **state)
{
	char path[] = "unchanged-XXXXXX";
	(void)state;
	file = mkstemp(path);
	assert_true(file >= 0);
	assert_int_equal(unlink(path), 0);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	return close(file);
}

static void append(void)
{
	struct stat st;
	assert_int_equal(fstat(file, &st), 0);
	assert_int_equal(pwrite(file, "x", 1, st.st_size), 1);
}

static void shorten(void)
{
	assert_int_equal(ftruncate(file, 1), 0);
}

static void overwrite(void)
{
	assert_int_equal(pwrite(file, "y", 1, 0), 1);
}

static void overwrite_and_set_back(void)
{
	struct stat st;
	assert_int_equal(fstat(file, &st), 0);
	overwrite();
	const struct timespec times[2] = {st.st_atim, st.st_mtim};
	assert_int_equal(futimens(file, times), 0);
}

static void test_changes(void **state)
{
	static void (*const changes[])(void) = {append, shorten, overwrite, overwrite_and_set_back};
	struct stat st;
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(changes) * ROUNDS; i++) {
		/* A write at this moment: the next change is in the same tick, unless begin() waits
		 * for its end. */
		assert_int_equal(pwrite(file, "abc", 3, 0), 3);
		lp_test_ok(lp_unchanged_begin(file, &st));
		assert_true(lp_unchanged_is(file, &st));
		changes[i % LP_ARRAY_SIZE(changes)]();
		assert_false(lp_unchanged_is(file, &st));
	}
}

static void test_reading(void **state)
{
	struct stat st;
	char buf[8];
	(void)state;
	assert_int_equal(pwrite(file, "abc", 3, 0), 3);
	lp_test_ok(lp_unchanged_begin(file, &st));
	assert_int_equal(st.st_size, 3);
	for (int i = 0; i < ROUNDS; i++) {
		assert_int_equal(pread(file, buf, sizeof(buf), 0), 3);
		assert_true(lp_unchanged_is(file, &st));
	}
}

/* A time in the future delays begin() by at most a tick; otherwise the test would not end. */
static void test_future(void **state)
{
	const struct timespec times[2] = {{.tv_sec = 4000000000}, {.tv_sec = 4000000000}};
	struct stat st;
	(void)state;
	assert_int_equal(futimens(file, times), 0);
	lp_test_ok(lp_unchanged_begin(file, &st));
	assert_true(lp_unchanged_is(file, &st));
}

static void test_no_file(void **state)
{
	struct stat st;
	int fds[2];
	(void)state;
	assert_int_equal(pipe(fds), 0);
	lp_test_ok(lp_unchanged_begin(fds[0], &st));
	assert_int_equal(write(fds[1], "x", 1), 1);
	assert_true(lp_unchanged_is(fds[0], &st));
	assert_int_equal(close(fds[0]), 0);
	assert_int_equal(close(fds[1]), 0);
	assert_int_equal(lp_unchanged_begin(fds[0], &st), -EBADF);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reading, setup, teardown),
		cmocka_unit_test_setup_teardown(test_future, setup, teardown),
		cmocka_unit_test(test_no_file),
	};
	return lp_test_main(tests, "base/unchanged");
}
