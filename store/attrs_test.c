/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each attribute with a value that not every door can live with is named, and only those that
 * the mask asks for; a record is mended to values that are possible, and nothing else of it
 * changes. Method: each attribute by itself, at its last possible value and one beyond. */
#include "base/testing/test.h"
#include "store/attrs.h"

static const struct {
	const char *name;
	uint32_t mask;
	int64_t right;
	int64_t wrong;
} cases[] = {
	{"uid", LP_ATTR_UID, UINT32_MAX - 1, UINT32_MAX},
	{"gid", LP_ATTR_GID, UINT32_MAX - 1, UINT32_MAX},
	{"atime_ns", LP_ATTR_ATIME, LP_TIME_NS_MAX, LP_TIME_NS_MAX + 1},
	{"mtime_ns", LP_ATTR_MTIME, LP_TIME_NS_MIN, LP_TIME_NS_MIN - 1},
	{"ctime_ns", LP_ATTR_CTIME, LP_TIME_NS_MAX, INT64_MAX},
	{"btime_ns", LP_ATTR_BTIME, LP_TIME_NS_MIN, INT64_MIN},
};

static struct lp_inode inode_with(uint32_t mask, int64_t value)
{
	struct lp_inode inode = {
		.ino = {9}, .type = LP_INODE_TYPE_FILE, .nlink = 1, .version_nr = 1, .mode = 06755};
	inode.uid = mask == LP_ATTR_UID ? (uint32_t)value : 7;
	inode.gid = mask == LP_ATTR_GID ? (uint32_t)value : 8;
	inode.atime_ns = mask == LP_ATTR_ATIME ? value : 1;
	inode.mtime_ns = mask == LP_ATTR_MTIME ? value : 2;
	inode.ctime_ns = mask == LP_ATTR_CTIME ? value : 3;
	inode.btime_ns = mask == LP_ATTR_BTIME ? value : 4;
	return inode;
}

static void test_faults(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		uint32_t mask = cases[i].mask;
		struct lp_inode inode = inode_with(mask, cases[i].wrong);
		struct lp_attrs attrs = {.uid = inode.uid,
					 .gid = inode.gid,
					 .atime_ns = inode.atime_ns,
					 .mtime_ns = inode.mtime_ns,
					 .ctime_ns = inode.ctime_ns,
					 .btime_ns = inode.btime_ns};
		assert_string_equal(lp_attrs_fault(&attrs, mask), cases[i].name);
		assert_string_equal(lp_attrs_fault(&attrs, LP_ATTRS_ALL), cases[i].name);
		assert_null(lp_attrs_fault(&attrs, LP_ATTRS_ALL & ~mask));
		assert_string_equal(lp_inode_impossible(&inode), cases[i].name);
		inode = inode_with(mask, cases[i].right);
		assert_null(lp_inode_impossible(&inode));
		assert_false(lp_inode_make_possible(&inode));
	}
}

static void test_mending(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		uint32_t mask = cases[i].mask;
		bool is_owner = (mask & (LP_ATTR_UID | LP_ATTR_GID)) != 0;
		int64_t nearest = cases[i].wrong < 0 ? LP_TIME_NS_MIN : LP_TIME_NS_MAX;
		struct lp_inode inode = inode_with(mask, cases[i].wrong);
		struct lp_inode want = inode_with(mask, is_owner ? 0 : nearest);
		want.mode = is_owner ? 0755 : 06755;
		assert_true(lp_inode_make_possible(&inode));
		assert_memory_equal(&inode, &want, sizeof(want));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_faults),
		cmocka_unit_test(test_mending),
	};
	return lp_test_main(tests, "store/attrs");
}
