/* SPDX-License-Identifier: Apache-2.0 */
/* What -o says, and what is so if it does not: the kernel may believe what it was told for long,
 * for it is told of changes (rule M2). */
#include "fuse/options.h"

#include <errno.h>
#include <string.h>

#include "base/test.h"

static struct lpi_fuse_options parse(const char *text)
{
	struct lpi_fuse_options options;
	char why[LP_FUSE_WHY_MAX] = "";
	lp_test_ok(lpi_fuse_options_parse(text, &options, why));
	assert_string_equal(why, "");
	return options;
}

static void test_times(void **state)
{
	(void)state;
	struct lpi_fuse_options options = parse("noatime");
	assert_int_equal(options.behaviour.entry_ns, 86400 * LP_NS_PER_S);
	assert_int_equal(options.behaviour.attr_ns, 86400 * LP_NS_PER_S);
	options = parse("entry_timeout=0,attr_timeout=1.5");
	assert_int_equal(options.behaviour.entry_ns, 0);
	assert_int_equal(options.behaviour.attr_ns, 3 * LP_NS_PER_S / 2);
}

static void test_meanings(void **state)
{
	(void)state;
	struct lpi_fuse_options options = parse("ro,nodev,,x-systemd.automount,uid=7,sync");
	assert_string_equal(options.kernel, "ro,nodev");
	assert_true(options.read_only && options.behaviour.no_atime && options.behaviour.sync);
	assert_int_equal(options.behaviour.squash_uid, 7);
	assert_int_equal(options.behaviour.squash_gid, UINT32_MAX);
	assert_int_equal(options.behaviour.inodes_max, 1000000);
	assert_int_equal(parse("max_inodes=0").behaviour.inodes_max, 0);
	assert_int_equal(parse("max_inodes=5000").behaviour.inodes_max, 5000);
	assert_false(options.behaviour.writeback || options.is_private);
	assert_false(options.behaviour.no_diratime);
	options = parse("nodiratime");
	assert_string_equal(options.kernel, "nodiratime");
	assert_true(options.behaviour.no_diratime && !options.behaviour.no_atime);
}

/* How requests come, and whether the daemon's rings have to be made for it. */
static void test_transport(void **state)
{
	(void)state;
	assert_int_equal(parse(NULL).transport, LPI_FUSE_TRANSPORT_AUTO);
	assert_int_equal(parse("transport=auto").transport, LPI_FUSE_TRANSPORT_AUTO);
	assert_int_equal(parse("transport=device").transport, LPI_FUSE_TRANSPORT_DEVICE);
	assert_int_equal(parse("ro,transport=io_uring").transport, LPI_FUSE_TRANSPORT_IO_URING);
	assert_true(lp_fuse_options_want_ring(NULL));
	assert_true(lp_fuse_options_want_ring("transport=io_uring"));
	assert_false(lp_fuse_options_want_ring("noatime,transport=device"));
	assert_false(lp_fuse_options_want_ring("nonsense"));
}

static void test_refused(void **state)
{
	static const char *const wrong[] = {"nonsense",
					    "uid",
					    "uid=x",
					    "ro=1",
					    "uid=-1",
					    "attr_timeout=-1",
					    "attr_timeout=9e9",
					    "gid=4294967295",
					    "max_inodes=many",
					    "transport",
					    "transport=pigeon"};
	char why[LP_FUSE_WHY_MAX];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(wrong); i++) {
		why[0] = '\0';
		lp_test_err(-EINVAL, lp_fuse_options_check(wrong[i], why));
		assert_non_null(strstr(why, wrong[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_meanings),
		cmocka_unit_test(test_transport),
		cmocka_unit_test(test_refused),
	};
	return lp_test_main(tests, "fuse/options");
}
