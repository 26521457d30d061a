/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a request that can never be is refused, each for its reason, and what is at a limit is
 * not, names of entries among them (rule N6: the store's part of it); a list gives back what was
 * packed into it; an append's crcs are cut anew where its end turned out to be, and damaged data is
 * noticed then.
 * Method: tables of single changes and operations; transactions built by count; lists packed with
 * buffers of every length; payloads recut at every kind of offset and compared with crcs made
 * there. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/prng.h"
#include "store/record/values.h"
#include "store/store_kinds.h"

#define INO                                                                                        \
	{                                                                                          \
		77                                                                                 \
	}
#define BYTES(s)                                                                                   \
	{                                                                                          \
		(s), sizeof(s) - 1                                                                 \
	}
#define BLOCK     4096u
#define CRC_MAX   1025u
#define BUF_BYTES (UINT32_C(4) << 20)

static char zeros[LP_KEY_OMAP_MAX + 1];
static char as[LP_INODE_TARGET_MAX + 1]; /* filled with 'a' */
static char big[LP_STORE_VALUE_MAX + 1];
static uint32_t crcs[CRC_MAX];
/* As if of a region: nothing here looks at more than these. */
static uint8_t buf_data[BUF_BYTES];
static struct lp_buf whole = {.data = buf_data, .bytes = BUF_BYTES, .refs = 1};

/* --- Changes ---------------------------------------------------------------------------------- */

static const struct lp_seg seg_block = {&whole, 0, BLOCK};
static const struct lp_seg seg_max = {&whole, 0, BUF_BYTES};
static const struct lp_seg seg_byte = {&whole, BUF_BYTES - 1, 1};
static const struct lp_seg seg_outside = {&whole, BUF_BYTES - 1, 2};
static const struct lp_seg segs_with_empty[] = {
	{&whole, 0, 1}, {&whole, 0, 0}, {&whole, 0, BLOCK - 1}};
static const struct lp_seg segs_three[] = {{&whole, 0, 1}, {&whole, 9, 1}, {&whole, 0, BLOCK - 2}};
static const struct lp_seg segs_null[] = {{NULL, 0, BLOCK}};

#define PAYLOAD(s, n, c)                                                                           \
	{                                                                                          \
		.segs = (s), .crcs = crcs, .seg_cnt = (n), .crc_cnt = (c)                          \
	}
#define WRITE(off, len, s, n, c)                                                                   \
	{                                                                                          \
		.type = LP_CHANGE_WRITE, .ino = INO, .data = {                                     \
			.offset = (off),                                                           \
			.length = (len),                                                           \
			.payload = PAYLOAD(s, n, c)                                                \
		}                                                                                  \
	}
#define RANGE(t, off, len)                                                                         \
	{                                                                                          \
		.type = (t), .ino = INO, .data = {.offset = (off), .length = (len) }               \
	}
#define CLONE(from, s_off, off, len)                                                               \
	{                                                                                          \
		.type = LP_CHANGE_CLONE, .ino = INO, .clone = {                                    \
			.src = {from},                                                             \
			.src_offset = (s_off),                                                     \
			.offset = (off),                                                           \
			.length = (len)                                                            \
		}                                                                                  \
	}
#define NAMED(t, ...)                                                                              \
	{                                                                                          \
		.type = (t), .ino = INO, .named = { __VA_ARGS__ }                                  \
	}
#define INODE(t, ...)                                                                              \
	{                                                                                          \
		.type = (t), .ino = INO, .inode = { __VA_ARGS__ }                                  \
	}

static const struct lp_attrs a_file = {.type = LP_INODE_TYPE_FILE, .mode = 07777};
static const struct lp_attrs a_mode = {.type = LP_INODE_TYPE_FILE, .mode = 010000};
static const struct lp_attrs a_type = {.type = 0};
static const struct lp_attrs a_type_high = {.type = LP_INODE_TYPE_BLOCKDEV + 1};
static const struct lp_attrs a_child = {.type = LP_INODE_TYPE_FILE, .parent = {2}};
static const struct lp_attrs a_dir = {.type = LP_INODE_TYPE_DIR, .parent = {2}};
static const struct lp_attrs a_dir_flags = {
	.type = LP_INODE_TYPE_DIR, .parent = {2}, .flags = LP_INODE_FLAGS_SETTABLE};
static const struct lp_attrs a_dir_orphan = {.type = LP_INODE_TYPE_DIR};
static const struct lp_attrs a_link = {.type = LP_INODE_TYPE_SYMLINK};
static const struct lp_attrs a_dev = {.type = LP_INODE_TYPE_CHARDEV, .rdev = 5};
static const struct lp_attrs a_file_rdev = {.type = LP_INODE_TYPE_FILE, .rdev = 5};
static const struct lp_attrs a_file_spread = {.type = LP_INODE_TYPE_FILE,
					      .flags = LP_INODE_FLAG_SPREAD};
static const struct lp_attrs a_file_keys = {.type = LP_INODE_TYPE_FILE,
					    .flags = LP_INODE_FLAG_HAS_KEYS};
static const struct lp_attrs a_file_removed = {.type = LP_INODE_TYPE_FILE,
					       .flags = LP_INODE_FLAG_REMOVED};
static const struct lp_attrs a_file_flags = {
	.type = LP_INODE_TYPE_FILE, .flags = LP_INODE_FLAG_IMMUTABLE | LP_INODE_FLAG_APPEND};

struct change_case {
	int err;
	struct lp_change change;
};

static const struct change_case inode_cases[] = {
	{0, {.type = LP_GUARD_INODE, .ino = INO}},
	{-EINVAL, {.type = LP_GUARD_INODE}},
	{-EINVAL, {.type = LP_CHANGE_CNT, .ino = INO}},
	{-EINVAL, {.type = (enum lp_change_type)1000, .ino = INO}},
	{0, {.type = LP_CHANGE_REMOVE, .ino = INO}},
	{0, INODE(LP_CHANGE_LINK, .delta = -1)},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_file)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = NULL)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_mode)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_type)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_type_high)},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_child, .name = BYTES("n"))},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_child, .name = {as, 255})},
	{-ENAMETOOLONG, INODE(LP_CHANGE_CREATE, .attrs = &a_child, .name = {as, 256})},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_child)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_child, .name = BYTES("a/b"))},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_child, .name = {NULL, 1})},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_file, .name = BYTES("n"))},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_dir)},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_dir, .name = BYTES("n"))},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_dir_flags)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_dir_orphan)},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_link, .target = BYTES("t"))},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_link, .target = {as, 4095})},
	{-ENAMETOOLONG, INODE(LP_CHANGE_CREATE, .attrs = &a_link, .target = {as, 4096})},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_link)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_link, .target = BYTES(""))},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_link, .target = BYTES("a\0b"))},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_file, .target = BYTES("t"))},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_dev)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_file_rdev)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_file_spread)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_file_keys)},
	{-EINVAL, INODE(LP_CHANGE_CREATE, .attrs = &a_file_removed)},
	{0, INODE(LP_CHANGE_CREATE, .attrs = &a_file_flags)},
	{0, INODE(LP_CHANGE_SET, .attrs = &a_file, .mask = 0)},
	{0, INODE(LP_CHANGE_SET, .attrs = &a_dir, .mask = LP_ATTRS_ALL)},
	{-EINVAL, INODE(LP_CHANGE_SET, .attrs = &a_file, .mask = LP_ATTRS_ALL + 1)},
	{-EINVAL, INODE(LP_CHANGE_SET, .attrs = NULL, .mask = LP_ATTR_MODE)},
	{-EINVAL, INODE(LP_CHANGE_SET, .attrs = &a_mode, .mask = LP_ATTR_MODE)},
	{0, INODE(LP_CHANGE_SET, .attrs = &a_mode, .mask = LP_ATTR_UID)},
	{-EINVAL, INODE(LP_CHANGE_SET, .attrs = &a_file_keys, .mask = LP_ATTR_FLAGS)},
	{0, INODE(LP_CHANGE_SET, .attrs = &a_file_keys, .mask = LP_ATTR_ATIME)},
	/* May be a directory. */
	{0, INODE(LP_CHANGE_SET, .attrs = &a_file_spread, .mask = LP_ATTR_FLAGS)},
	{0, INODE(LP_CHANGE_SET, .attrs = &a_child, .mask = LP_ATTR_PARENT)},
	/* May be a file. */
	{0, INODE(LP_CHANGE_SET, .attrs = &a_file, .mask = LP_ATTR_PARENT)},
	/* Is neither: spread, and without a parent. */
	{-EINVAL,
	 INODE(LP_CHANGE_SET, .attrs = &a_file_spread, .mask = LP_ATTR_PARENT | LP_ATTR_FLAGS)},
	{-EINVAL,
	 INODE(LP_CHANGE_SET, .attrs = &a_file, .mask = LP_ATTR_PARENT, .name = BYTES("n"))},
	{-ENAMETOOLONG,
	 INODE(LP_CHANGE_SET, .attrs = &a_child, .mask = LP_ATTR_PARENT, .name = {as, 256})},
};

static const struct change_case data_cases[] = {
	{0, WRITE(0, BLOCK, &seg_block, 1, 1)},
	{0, WRITE(1, BLOCK, &seg_block, 1, 2)},
	{0, WRITE(LP_STORE_APPEND, BLOCK, &seg_block, 1, 1)},
	{-EINVAL, WRITE(LP_STORE_APPEND, BLOCK, &seg_block, 1, 2)},
	{-EINVAL, WRITE(LP_STORE_APPEND - 1, 0, &seg_block, 1, 1)},
	{-EFBIG, WRITE(LP_STORE_APPEND - 1, BLOCK, &seg_block, 1, 2)},
	{-EINVAL, WRITE(0, BLOCK, &seg_block, 1, 0)},
	{-EINVAL, WRITE(0, BLOCK, &seg_block, 1, 2)},
	{-EINVAL, WRITE(1, BLOCK, &seg_block, 1, 1)},
	{-EINVAL, WRITE(0, 0, &seg_block, 0, 0)},
	{-EINVAL, WRITE(0, BLOCK - 1, &seg_block, 1, 1)},
	{-EINVAL, WRITE(0, BLOCK, &seg_block, 0, 1)},
	{-EINVAL, WRITE(0, BLOCK + 1, &seg_block, 1, 2)},
	{-EINVAL, WRITE(0, BLOCK, NULL, 1, 1)},
	{-EINVAL, WRITE(0, BLOCK, segs_null, 1, 1)},
	{-EINVAL, WRITE(0, BLOCK, segs_with_empty, 3, 1)},
	{0, WRITE(0, BLOCK, segs_three, 3, 1)},
	{-EINVAL, WRITE(0, BLOCK, segs_three, 2, 1)},
	{0, WRITE(0, 1, &seg_byte, 1, 1)},
	{-EINVAL, WRITE(0, 2, &seg_outside, 1, 1)},
	{0, WRITE(0, LP_STORE_WRITE_MAX, &seg_max, 1, 1024)},
	{0, WRITE(1, LP_STORE_WRITE_MAX, &seg_max, 1, 1025)},
	{-E2BIG, WRITE(0, LP_STORE_WRITE_MAX + 1, &seg_max, 1, 1025)},
	{0, WRITE(LP_STORE_FILE_MAX - BLOCK, BLOCK, &seg_block, 1, 1)},
	{-EFBIG, WRITE(LP_STORE_FILE_MAX - BLOCK + 1, BLOCK, &seg_block, 1, 2)},
	{-EFBIG, WRITE(LP_STORE_FILE_MAX, 1, &seg_byte, 1, 1)},
	{-EINVAL,
	 {.type = LP_CHANGE_WRITE,
	  .ino = INO,
	  .data = {.length = 1, .payload = {.segs = &seg_byte, .seg_cnt = 1, .crc_cnt = 1}}}},
	{-EINVAL,
	 {.type = LP_CHANGE_WRITE,
	  .ino = INO,
	  .data = {.length = 1,
		   .payload = PAYLOAD(&seg_byte, 1, 1),
		   .path = (enum lp_write_path)LP_PATH_CNT}}},
	{0, RANGE(LP_CHANGE_TRUNCATE, LP_STORE_FILE_MAX, 0)},
	{-EFBIG, RANGE(LP_CHANGE_TRUNCATE, LP_STORE_FILE_MAX + 1, 0)},
	{0, RANGE(LP_CHANGE_PUNCH, 3, 1)},
	{-EINVAL, RANGE(LP_CHANGE_PUNCH, 3, 0)},
	{0, RANGE(LP_CHANGE_PUNCH, 3, LP_STORE_RANGE_MAX)},
	{-E2BIG, RANGE(LP_CHANGE_PUNCH, 3, LP_STORE_RANGE_MAX + 1)},
	{0, RANGE(LP_CHANGE_PREALLOC, LP_STORE_FILE_MAX - 9, 9)},
	{-EFBIG, RANGE(LP_CHANGE_PREALLOC, LP_STORE_FILE_MAX - 9, 10)},
	{-EFBIG, RANGE(LP_CHANGE_PREALLOC, UINT64_MAX, 10)},
	{0, CLONE(78, 0, BLOCK, LP_STORE_RANGE_MAX)},
	{0, CLONE(78, BLOCK, BLOCK, 100)},
	{-E2BIG, CLONE(78, 0, BLOCK, LP_STORE_RANGE_MAX + 1)},
	{-EINVAL, CLONE(78, 0, 0, 0)},
	{-EINVAL, CLONE(78, 1, 0, BLOCK)},
	{-EINVAL, CLONE(78, 0, 512, BLOCK)},
	{-EINVAL, CLONE(0, 0, 0, BLOCK)},
	{0, CLONE(78, 0, LP_STORE_FILE_MAX - BLOCK, BLOCK)},
	{-EFBIG, CLONE(78, 0, LP_STORE_FILE_MAX - BLOCK, BLOCK + 1)},
	{-EFBIG, CLONE(78, LP_STORE_FILE_MAX, 0, BLOCK)},
	{0, CLONE(77, 0, BLOCK, BLOCK)},
	{0, CLONE(77, BLOCK, 0, BLOCK)},
	{-EINVAL, CLONE(77, 0, 0, BLOCK)},
	{-EINVAL, CLONE(77, 0, BLOCK, BLOCK + 1)},
	{-EINVAL, CLONE(77, BLOCK, 0, BLOCK + 1)},
};

static const struct change_case named_cases[] = {
	{0, NAMED(LP_GUARD_ENTRY, .name = BYTES("n"))},
	{0, NAMED(LP_GUARD_ENTRY, .name = {as, 255})},
	{-ENAMETOOLONG, NAMED(LP_GUARD_ENTRY, .name = {as, 256})},
	{-EINVAL, NAMED(LP_GUARD_ENTRY, .name = BYTES(""))},
	{-EINVAL, NAMED(LP_GUARD_ENTRY, .name = {NULL, 0})},
	{-EINVAL, NAMED(LP_GUARD_NO_ENTRY, .name = BYTES(".."))},
	{0, NAMED(LP_GUARD_DIR, .name = {NULL, 0})},
	{0, NAMED(LP_GUARD_DIR, .name = BYTES("n"))},
	{-EINVAL, NAMED(LP_GUARD_DIR, .name = BYTES(".."))},
	{-EINVAL, NAMED(LP_CHANGE_ENTRY_REMOVE, .name = BYTES("a/"))},
	{-EINVAL, NAMED(LP_CHANGE_ENTRY_SET, .name = BYTES("n"))},
	{-EINVAL, NAMED(LP_CHANGE_ENTRY_SET, .name = BYTES("n"), .target = {9})},
	{-EINVAL, NAMED(LP_CHANGE_ENTRY_SET, .name = BYTES("n"), .target_type = 1)},
	{0, NAMED(LP_CHANGE_ENTRY_SET, .name = BYTES("n"), .target = {9}, .target_type = 1)},
	{-EINVAL, NAMED(LP_CHANGE_ENTRY_SET, .name = BYTES("n"), .target = {9}, .target_type = 8)},
	{-EINVAL, NAMED(LP_CHANGE_ENTRY_SET, .name = BYTES("."), .target = {9}, .target_type = 1)},
	{0, NAMED(LP_GUARD_XATTR, .name = BYTES("a/b"))},
	{0, NAMED(LP_GUARD_XATTR, .name = BYTES("n"), .value = {big, LP_STORE_VALUE_MAX})},
	{-E2BIG, NAMED(LP_GUARD_XATTR, .name = BYTES("n"), .value = {big, LP_STORE_VALUE_MAX + 1})},
	{-EINVAL, NAMED(LP_GUARD_NO_XATTR, .name = BYTES("a\0b"))},
	{-EINVAL, NAMED(LP_CHANGE_XATTR_REMOVE, .name = BYTES(""))},
	{-EINVAL, NAMED(LP_CHANGE_XATTR_SET, .name = BYTES("n"))},
	{0, NAMED(LP_CHANGE_XATTR_SET, .name = BYTES("n"), .value = BYTES(""))},
	{-EINVAL, NAMED(LP_CHANGE_XATTR_SET, .name = BYTES("n"), .value = {NULL, 1})},
	{-ENAMETOOLONG, NAMED(LP_CHANGE_XATTR_SET, .name = {as, 256}, .value = BYTES("v"))},
	{0, NAMED(LP_CHANGE_XATTR_SET, .name = BYTES("n"), .value = {big, LP_STORE_VALUE_MAX})},
	{-E2BIG,
	 NAMED(LP_CHANGE_XATTR_SET, .name = BYTES("n"), .value = {big, LP_STORE_VALUE_MAX + 1})},
	{0, NAMED(LP_CHANGE_OMAP_SET, .name = {zeros, LP_KEY_OMAP_MAX}, .value = BYTES(""))},
	{-ENAMETOOLONG,
	 NAMED(LP_CHANGE_OMAP_SET, .name = {zeros, LP_KEY_OMAP_MAX + 1}, .value = BYTES(""))},
	{-EINVAL, NAMED(LP_CHANGE_OMAP_SET, .name = BYTES("k"))},
	{-E2BIG,
	 NAMED(LP_CHANGE_OMAP_SET, .name = BYTES("k"), .value = {big, LP_STORE_VALUE_MAX + 1})},
	{0, NAMED(LP_CHANGE_OMAP_REMOVE, .name = BYTES("\0"))},
	{-EINVAL, NAMED(LP_CHANGE_OMAP_REMOVE, .name = BYTES(""))},
	{0, {.type = LP_CHANGE_RECORD, .named = {.name = BYTES("Sname")}}},
	{0, {.type = LP_CHANGE_RECORD, .named = {.name = BYTES("Sname\00012345678")}}},
	{-EINVAL, {.type = LP_CHANGE_RECORD, .named = {.name = BYTES("Sname\0001234567")}}},
	{-EINVAL, {.type = LP_CHANGE_RECORD, .named = {.name = BYTES("S")}}},
	{-EINVAL, {.type = LP_CHANGE_RECORD, .named = {.name = BYTES("")}}},
	{-EINVAL, {.type = LP_CHANGE_RECORD, .named = {.name = {NULL, 0}}}},
	{0, {.type = LP_CHANGE_RECORD, .named = {.name = BYTES("T\0\0\0\0\0\0\0\0")}}},
	{-EINVAL, {.type = LP_CHANGE_RECORD, .named = {.name = BYTES("T\0\0\0\0\0\0\0")}}},
	{0, {.type = LP_GUARD_NO_RECORD, .named = {.name = BYTES("U\0\0\0\0\0\0\0\1")}}},
	{-EINVAL, {.type = LP_GUARD_RECORD, .named = {.name = BYTES("U\0\0\0\0\0\0\0\0")}}},
	{-EINVAL, {.type = LP_GUARD_RECORD, .named = {.name = BYTES("I\0\0\0\0\0\0\0\1")}}},
	{-E2BIG,
	 {.type = LP_CHANGE_RECORD,
	  .named = {.name = BYTES("Sname"), .value = {big, LP_STORE_VALUE_MAX + 1}}}},
	{0, {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.seal = true}}},
	{-EINVAL, {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.seal = true, .unseal = true}}},
	{-EINVAL, {.type = LP_CHANGE_DIR, .dir = {.seal = true}}},
	{0, {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.drop = true}}},
	{-EINVAL, {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.drop = true, .seal = true}}},
	{-EINVAL, {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.drop = true, .unseal = true}}},
	{-EINVAL, {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.drop = true, .mtime_ns = 1}}},
	{-EINVAL, {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.drop = true, .ctime_ns = 1}}},
};

static int check_changes(const struct lp_change *changes, uint32_t cnt, uint32_t *ret_failed_idx)
{
	struct lp_store_op op = {.opcode = LP_STORE_TXN,
				 .result = 1,
				 .txn = {.changes = changes,
					 .change_cnt = cnt,
					 .failed_idx = 99,
					 .offset = 99,
					 .version_nr = 99,
					 .path = LP_PATH_DIRECT}};
	int err = lpi_store_check(&op);
	assert_int_equal(op.result, 0);
	assert_int_equal(op.txn.offset, 0);
	assert_int_equal(op.txn.version_nr, 0);
	assert_int_equal(op.txn.path, LP_PATH_AUTO);
	*ret_failed_idx = op.txn.failed_idx;
	return err;
}

static void run_cases(const struct change_case *cases, size_t cnt, const char *what)
{
	for (size_t i = 0; i < cnt; i++) {
		uint32_t failed_idx = 0;
		int err = check_changes(&cases[i].change, 1, &failed_idx);
		if (err != cases[i].err)
			print_error("%s case %zu: %d, not %d\n", what, i, err, cases[i].err);
		assert_int_equal(err, cases[i].err);
		assert_int_equal(failed_idx, err < 0 ? 0 : 1);
	}
}

static void test_changes(void **state)
{
	(void)state;
	uint64_t corruptions = lp_corruption_count();
	memset(as, 'a', sizeof(as));
	run_cases(inode_cases, LP_ARRAY_SIZE(inode_cases), "inode");
	run_cases(data_cases, LP_ARRAY_SIZE(data_cases), "data");
	run_cases(named_cases, LP_ARRAY_SIZE(named_cases), "named");
	/* A bad request is no damage. */
	assert_int_equal(lp_corruption_count(), corruptions);
}

/* --- Transactions ----------------------------------------------------------------------------- */

static void expect_txn(int err, const struct lp_change *changes, uint32_t cnt, uint32_t failed_idx)
{
	uint32_t got_idx = 0;
	lp_test_err(err, check_changes(changes, cnt, &got_idx));
	assert_int_equal(got_idx, failed_idx);
}

static void test_order(void **state)
{
	(void)state;
	const struct lp_change guard = {.type = LP_GUARD_INODE, .ino = INO};
	const struct lp_change trunc = RANGE(LP_CHANGE_TRUNCATE, 0, 0);
	const struct lp_change punch = RANGE(LP_CHANGE_PUNCH, 0, 1);
	const struct lp_change link = INODE(LP_CHANGE_LINK, .delta = 1);
	const struct lp_change gone = {.type = LP_CHANGE_REMOVE, .ino = INO};
	const struct lp_change made = INODE(LP_CHANGE_CREATE, .attrs = &a_file);
	const struct lp_change bad = {.type = LP_GUARD_INODE};
	const struct lp_change right[] = {guard, guard, made, trunc, link};
	const struct lp_change late_guard[] = {guard, link, guard};
	const struct lp_change two_data[] = {trunc, link, punch};
	const struct lp_change again[] = {gone, link, made};
	const struct lp_change made_gone[] = {made, gone};
	const struct lp_change alloc = RANGE(LP_CHANGE_PREALLOC, 0, 1);
	const struct lp_change made_alloc[] = {made, link, alloc};
	const struct lp_change gone_cut[] = {gone, link, trunc};
	const struct lp_change set =
		NAMED(LP_CHANGE_XATTR_SET, .name = BYTES("x"), .value = BYTES("v"));
	const struct lp_change unset = NAMED(LP_CHANGE_XATTR_REMOVE, .name = BYTES("x"));
	const struct lp_change set_twice[] = {set, link, unset};
	const struct lp_change bad_last[] = {guard, guard, bad};
	expect_txn(0, right, 5, 5);
	expect_txn(0, &guard, 1, 1);
	expect_txn(-EINVAL, late_guard, 3, 2);
	expect_txn(-EINVAL, two_data, 3, 2);
	expect_txn(-EINVAL, again, 3, 2);
	expect_txn(0, again, 2, 2);
	expect_txn(-EINVAL, made_gone, 2, 1);
	/* Space in commits of its own, for an inode that is not there yet: a crash would leak it.
	 */
	expect_txn(-EINVAL, made_alloc, 3, 2);
	expect_txn(-EINVAL, gone_cut, 3, 2);
	expect_txn(0, gone_cut, 2, 2);
	expect_txn(-EINVAL, set_twice, 3, 2);
	expect_txn(0, set_twice, 2, 2);
	expect_txn(-EINVAL, bad_last, 3, 2);
	expect_txn(-EINVAL, right, 0, 0);
	expect_txn(-EINVAL, NULL, 1, 1);
}

static struct lp_change mark_change(const struct lp_key *key, const uint8_t *value, uint32_t len)
{
	return (struct lp_change){
		.type = LP_CHANGE_RECORD,
		.named = {.name = {key->bytes, (uint32_t)key->len}, .value = {value, len}}};
}

/* Marks of others than the store itself, readable, and not beside what makes the store put one
 * (rule S6). */
static void test_marks(void **state)
{
	(void)state;
	static const uint8_t kinds[] = {LP_UNFINISHED_KIND_ORPHAN, LP_UNFINISHED_KIND_UPLOAD,
					LP_UNFINISHED_KIND_TRIM, LP_UNFINISHED_KIND_REMOVAL};
	uint8_t value[LP_UNFINISHED_VALUE_SIZE] = {0};
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino)INO);
	uint64_t recorded = lp_corruption_count();
	const struct lp_change empty = mark_change(&key, value, sizeof(value));
	expect_txn(-EINVAL, &empty, 1, 0);
	for (size_t i = 0; i < LP_ARRAY_SIZE(kinds); i++) {
		const struct lp_unfinished_value what = {.kind = kinds[i]};
		lp_unfinished_write(&what, &key, value);
		const struct lp_change put = mark_change(&key, value, sizeof(value));
		expect_txn(i < 2 ? 0 : -EINVAL, &put, 1, i < 2 ? 1 : 0);
		const struct lp_change cut = mark_change(&key, value, sizeof(value) - 1);
		expect_txn(-EINVAL, &cut, 1, 0);
		value[sizeof(value) - 1] ^= 1;
		expect_txn(-EINVAL, &put, 1, 0);
	}
	assert_int_equal(lp_corruption_count(), recorded);
	const struct lp_change gone = {.type = LP_CHANGE_REMOVE, .ino = INO};
	const struct lp_change trunc = RANGE(LP_CHANGE_TRUNCATE, 0, 0);
	const struct lp_change punch = RANGE(LP_CHANGE_PUNCH, 0, 1);
	const struct lp_change unmark = mark_change(&key, NULL, 0);
	const struct lp_change *const with[] = {&gone, &trunc, &punch};
	for (size_t i = 0; i < LP_ARRAY_SIZE(with); i++) {
		const struct lp_change before[] = {unmark, *with[i]};
		const struct lp_change after[] = {*with[i], unmark};
		bool is_ok = with[i] == &punch;
		expect_txn(is_ok ? 0 : -EINVAL, before, 2, is_ok ? 2 : 1);
		expect_txn(is_ok ? 0 : -EINVAL, after, 2, is_ok ? 2 : 1);
	}
}

/* A fragment that was dropped is not made again by the same transaction. */
static void test_drop(void **state)
{
	(void)state;
	const struct lp_change drop = {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.drop = true}};
	const struct lp_change gone = {.type = LP_CHANGE_REMOVE, .ino = INO};
	const struct lp_change seal = {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.seal = true}};
	const struct lp_change times = {.type = LP_CHANGE_DIR, .ino = INO, .dir = {.mtime_ns = 1}};
	const struct lp_change set = NAMED(LP_CHANGE_ENTRY_SET, .name = BYTES("x"), .target = {9},
					   .target_type = LP_INODE_TYPE_FILE);
	const struct lp_change unset = NAMED(LP_CHANGE_ENTRY_REMOVE, .name = BYTES("x"));
	const struct lp_change *const drops[] = {&drop, &gone};
	for (size_t i = 0; i < LP_ARRAY_SIZE(drops); i++) {
		const struct lp_change first[] = {seal, unset, times, *drops[i], drop};
		const struct lp_change sealed[] = {*drops[i], seal};
		const struct lp_change timed[] = {*drops[i], times};
		const struct lp_change filled[] = {*drops[i], set};
		const struct lp_change cleared[] = {set, *drops[i], unset};
		expect_txn(0, first, 5, 5);
		expect_txn(-EINVAL, sealed, 2, 1);
		expect_txn(-EINVAL, timed, 2, 1);
		expect_txn(-EINVAL, filled, 2, 1);
		expect_txn(-EINVAL, cleared, 3, 2);
		expect_txn(0, cleared, 2, 2);
	}
	struct lp_change other[] = {drop, set};
	other[1].ino.nr++;
	expect_txn(0, other, 2, 2);
}

/* What the store keeps for itself may be looked at, and not be changed. */
static void test_own_records(void **state)
{
	(void)state;
	static const char *const own[] = {"Sapplied", "Sinodes", "Spolicy",
					  "Salloc\0\0\0\0\0\0\0\0\7"};
	static const uint32_t lens[] = {8, 7, 7, 15};
	for (size_t i = 0; i < LP_ARRAY_SIZE(own); i++) {
		struct lp_change change =
			NAMED(LP_CHANGE_RECORD, .name = {own[i], lens[i]}, .value = BYTES("v"));
		expect_txn(-EINVAL, &change, 1, 0);
		change.type = LP_GUARD_RECORD;
		expect_txn(0, &change, 1, 1);
	}
	struct lp_change other =
		NAMED(LP_CHANGE_RECORD, .name = BYTES("Sapplied2"), .value = BYTES("v"));
	expect_txn(0, &other, 1, 1);
}

static void test_counts(void **state)
{
	(void)state;
	struct lp_change changes[LP_STORE_CHANGES_MAX + 1];
	char names[LP_STORE_CHANGES_MAX + 1];
	/* One inode and fifteen keys is as much as there may be; a repeated one is none more. */
	for (uint32_t i = 0; i < LP_STORE_CHANGES_MAX + 1; i++) {
		names[i] = (char)('a' + i % (LP_STORE_TOUCHED_MAX - 1));
		changes[i] = (struct lp_change)NAMED(LP_CHANGE_OMAP_SET, .name = {&names[i], 1},
						     .value = BYTES("v"));
	}
	expect_txn(0, changes, LP_STORE_CHANGES_MAX, LP_STORE_CHANGES_MAX);
	expect_txn(-E2BIG, changes, LP_STORE_CHANGES_MAX + 1, LP_STORE_CHANGES_MAX + 1);
	names[20] = 'Z';
	expect_txn(-E2BIG, changes, LP_STORE_CHANGES_MAX, 20);
	expect_txn(0, changes, 20, 20);
	/* The same name elsewhere is another. */
	names[20] = 'a';
	changes[20].type = LP_CHANGE_XATTR_SET;
	expect_txn(-E2BIG, changes, LP_STORE_CHANGES_MAX, 20);
	changes[20].type = LP_CHANGE_OMAP_SET;
	changes[20].ino.nr++;
	expect_txn(-E2BIG, changes, LP_STORE_CHANGES_MAX, 20);
	changes[20] = (struct lp_change){.type = LP_CHANGE_RECORD, .named = {.name = BYTES("Sa")}};
	expect_txn(-E2BIG, changes, LP_STORE_CHANGES_MAX, 20);
	changes[20] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = INO};
	expect_txn(0, changes, LP_STORE_CHANGES_MAX, LP_STORE_CHANGES_MAX);
	changes[20] = (struct lp_change)CLONE(78, 0, 0, BLOCK);
	expect_txn(-E2BIG, changes, LP_STORE_CHANGES_MAX, 20);
}

static void test_ack(void **state)
{
	(void)state;
	const struct lp_change guard = {.type = LP_GUARD_INODE, .ino = INO};
	struct lp_store_op op = {.opcode = LP_STORE_TXN,
				 .txn = {.changes = &guard, .change_cnt = 1}};
	op.txn.ack = LP_ACK_ORDERED;
	lp_test_ok(lpi_store_check(&op));
	op.txn.ack = (enum lp_store_ack)2;
	lp_test_err(-EINVAL, lpi_store_check(&op));
	assert_int_equal(op.txn.failed_idx, 1);
}

/* A SET that a directory or a file may have, but not the other. */
static void test_set_by_type(void **state)
{
	(void)state;
	const struct lp_change spread =
		INODE(LP_CHANGE_SET, .attrs = &a_file_spread, .mask = LP_ATTR_FLAGS);
	const struct lp_change orphan =
		INODE(LP_CHANGE_SET, .attrs = &a_file, .mask = LP_ATTR_PARENT);
	const struct lp_change nameless =
		INODE(LP_CHANGE_SET, .attrs = &a_child, .mask = LP_ATTR_PARENT);
	for (unsigned type = LP_INODE_TYPE_FILE; type <= LP_INODE_TYPE_BLOCKDEV; type++) {
		bool is_dir = type == LP_INODE_TYPE_DIR;
		lp_test_err(is_dir ? 0 : -EINVAL, lpi_store_check_set(&spread, (uint8_t)type));
		lp_test_err(is_dir ? -EINVAL : 0, lpi_store_check_set(&orphan, (uint8_t)type));
		lp_test_err(is_dir ? 0 : -EINVAL, lpi_store_check_set(&nameless, (uint8_t)type));
	}
}

/* --- Other operations ------------------------------------------------------------------------- */

struct op_case {
	int err;
	struct lp_store_op op;
};

#define OP(code, member, ...)                                                                      \
	{                                                                                          \
		.opcode = (code), .member = { __VA_ARGS__ }                                        \
	}
#define GET(...)  OP(LP_STORE_GET, get, __VA_ARGS__)
#define LIST(...) OP(LP_STORE_LIST, list, __VA_ARGS__)

static const struct op_case op_cases[] = {
	{-EINVAL, {.opcode = LP_STORE_OPCODE_CNT}},
	{-EINVAL, {.opcode = (enum lp_store_opcode)1000}},
	{0, {.opcode = LP_STORE_SYNC}},
	{0, OP(LP_STORE_READ, read, .ino = INO, .offset = UINT64_MAX, .length = LP_STORE_READ_MAX)},
	{-E2BIG, OP(LP_STORE_READ, read, .ino = INO, .length = LP_STORE_READ_MAX + 1)},
	{-EINVAL, OP(LP_STORE_READ, read, .length = 1)},
	{0, OP(LP_STORE_STAT, stat, .ino = INO)},
	{-EINVAL, {.opcode = LP_STORE_STAT}},
	{0, OP(LP_STORE_LOOKUP, lookup, .dir = INO, .name = BYTES("n"))},
	{-EINVAL, OP(LP_STORE_LOOKUP, lookup, .name = BYTES("n"))},
	{-EINVAL, OP(LP_STORE_LOOKUP, lookup, .dir = INO)},
	{-EINVAL, OP(LP_STORE_LOOKUP, lookup, .dir = INO, .name = BYTES("a/b"))},
	{-ENAMETOOLONG, OP(LP_STORE_LOOKUP, lookup, .dir = INO, .name = {as, 256})},
	{0, OP(LP_STORE_SEEK, seek, .ino = INO)},
	{-EINVAL, {.opcode = LP_STORE_SEEK}},
	{0, OP(LP_STORE_DIR, dir, .ino = INO)},
	{-EINVAL, {.opcode = LP_STORE_DIR}},
	{0, GET(.space = LP_STORE_XATTRS, .ino = INO, .name = BYTES("n"))},
	{0,
	 GET(.space = LP_STORE_XATTRS, .ino = INO, .name = BYTES("n"), .buf = big, .buf_len = 9)},
	{-EINVAL, GET(.space = LP_STORE_XATTRS, .ino = INO, .name = BYTES("n"), .buf_len = 9)},
	{-EINVAL, GET(.space = LP_STORE_XATTRS, .name = BYTES("n"))},
	{-EINVAL, GET(.space = LP_STORE_XATTRS, .ino = INO, .name = BYTES("n\0"))},
	{0, GET(.space = LP_STORE_OMAP, .ino = INO, .name = BYTES("n\0"))},
	{-ENAMETOOLONG, GET(.space = LP_STORE_OMAP, .ino = INO, .name = {zeros, 1025})},
	{0, GET(.space = LP_STORE_TARGET, .ino = INO)},
	{-EINVAL, GET(.space = LP_STORE_TARGET)},
	{0, GET(.space = LP_STORE_RECORDS, .name = BYTES("Sn"))},
	{-EINVAL, GET(.space = LP_STORE_RECORDS, .name = BYTES("Xn"))},
	{-EINVAL, GET(.space = LP_STORE_ENTRIES, .ino = INO, .name = BYTES("n"))},
	{-EINVAL, GET(.space = LP_STORE_INODES, .ino = INO, .name = BYTES("n"))},
	{-EINVAL, GET(.space = LP_STORE_SPACE_CNT, .ino = INO, .name = BYTES("n"))},
	{0, LIST(.space = LP_STORE_XATTRS, .ino = INO)},
	{-EINVAL, LIST(.space = LP_STORE_XATTRS, .ino = INO, .buf_len = 1)},
	{-EINVAL, LIST(.space = LP_STORE_ENTRIES, .buf_len = 0)},
	{0, LIST(.space = LP_STORE_OMAP, .ino = INO, .after = BYTES(""))},
	{0,
	 LIST(.space = LP_STORE_ENTRIES, .ino = INO, .from = BYTES("a/b"), .prefix = BYTES("/"))},
	{-EINVAL,
	 LIST(.space = LP_STORE_OMAP, .ino = INO, .after = BYTES("a"), .from = BYTES("b"))},
	{-EINVAL, LIST(.space = LP_STORE_OMAP, .ino = INO, .after = {NULL, 1})},
	{-EINVAL, LIST(.space = LP_STORE_TARGET, .ino = INO)},
	{0, LIST(.space = LP_STORE_INODES)},
	{0, LIST(.space = LP_STORE_RECORDS, .prefix = BYTES("S"))},
	{0, LIST(.space = LP_STORE_RECORDS, .prefix = BYTES("U\0\0"))},
	{-EINVAL, LIST(.space = LP_STORE_RECORDS, .prefix = BYTES("I"))},
	{-EINVAL, LIST(.space = LP_STORE_RECORDS, .prefix = BYTES(""))},
	{-EINVAL, LIST(.space = LP_STORE_RECORDS)},
	{-EINVAL, LIST(.space = LP_STORE_SPACE_CNT, .ino = INO)},
};

static void test_operations(void **state)
{
	(void)state;
	memset(as, 'a', sizeof(as));
	for (size_t i = 0; i < LP_ARRAY_SIZE(op_cases); i++) {
		struct lp_store_op op = op_cases[i].op;
		int err = lpi_store_check(&op);
		if (err != op_cases[i].err)
			print_error("case %zu: %d, not %d\n", i, err, op_cases[i].err);
		assert_int_equal(err, op_cases[i].err);
	}
}

static void test_results_are_cleared(void **state)
{
	(void)state;
	/* Static, so that padding is zero too. */
	static const struct lp_store_op clean[] = {
		OP(LP_STORE_READ, read, .ino = INO, .length = 7),
		OP(LP_STORE_STAT, stat, .ino = INO),
		OP(LP_STORE_LOOKUP, lookup, .dir = INO, .name = BYTES("n")),
		OP(LP_STORE_GET, get, .space = LP_STORE_TARGET, .ino = INO),
		OP(LP_STORE_LIST, list, .space = LP_STORE_INODES, .items_max = 3),
		OP(LP_STORE_SEEK, seek, .ino = INO, .hole = true),
		OP(LP_STORE_DIR, dir, .ino = INO),
	};
	static struct lp_store_op dirty[] = {
		OP(LP_STORE_READ, read, .ino = INO, .length = 7, .segs = &seg_byte, .crcs = crcs,
		   .seg_cnt = 1, .crc_cnt = 1, .bytes = 1, .size_bytes = 1, .version_nr = 1),
		OP(LP_STORE_STAT, stat, .ino = INO, .attrs = {.uid = 1}),
		OP(LP_STORE_LOOKUP, lookup, .dir = INO, .name = BYTES("n"), .ino = INO,
		   .insertion = 1, .type = 1, .has_attrs = true, .attrs = {.uid = 1}),
		OP(LP_STORE_GET, get, .space = LP_STORE_TARGET, .ino = INO, .value_len = 1),
		OP(LP_STORE_LIST, list, .space = LP_STORE_INODES, .items_max = 3, .items = 1,
		   .used = 1, .more = true),
		OP(LP_STORE_SEEK, seek, .ino = INO, .hole = true, .found = 1),
		OP(LP_STORE_DIR, dir, .ino = INO, .entries_cnt = 1, .name_bytes = 1, .mtime_ns = 1,
		   .ctime_ns = 1, .is_sealed = true),
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(clean); i++) {
		dirty[i].result = -EIO;
		lp_test_ok(lpi_store_check(&dirty[i]));
		assert_memory_equal(&dirty[i], &clean[i], sizeof(clean[i]));
	}
}

/* --- Lists ------------------------------------------------------------------------------------ */

static const struct lp_list_item items[] = {
	{.name = BYTES("a"), .value = BYTES(""), .ino = {1}, .insertion = 2, .type = 3},
	{.name = BYTES("bb"), .value = BYTES("value"), .ino = {UINT64_MAX}, .insertion = 1},
	{.name = BYTES("c\0c"), .value = BYTES("v"), .ino = {3}, .insertion = 4, .type = 255},
};

#define ITEM_CNT ((uint32_t)LP_ARRAY_SIZE(items))

static void expect_bytes(struct lp_bytes got, struct lp_bytes want)
{
	assert_int_equal(got.data == NULL, want.data == NULL);
	assert_int_equal(got.len, want.len);
	if (want.len > 0)
		assert_memory_equal(got.data, want.data, want.len);
}

static void expect_items(const struct lp_store_op *op)
{
	struct lp_list_item item;
	uint32_t pos = 0;
	for (uint32_t i = 0; i < op->list.items; i++) {
		assert_true(lp_store_list_next(op, &pos, &item));
		expect_bytes(item.name, items[i].name);
		expect_bytes(item.value,
			     op->list.with_values ? items[i].value : (struct lp_bytes){NULL, 0});
		if (op->list.space == LP_STORE_ENTRIES) {
			assert_int_equal(item.ino.nr, items[i].ino.nr);
			assert_int_equal(item.insertion, items[i].insertion);
			assert_int_equal(item.type, items[i].type);
		}
	}
	assert_false(lp_store_list_next(op, &pos, &item));
}

/* Packs what fits into a buffer of that length and takes it out again; returns how many. */
static uint32_t pack(enum lp_store_space space, bool with_values, uint32_t len, uint32_t items_max)
{
	uint8_t *buf = malloc(len + 1); /* of its own, so that an overrun is noticed */
	struct lp_store_op op = OP(LP_STORE_LIST, list, .space = space, .buf = buf, .buf_len = len,
				   .with_values = with_values, .items_max = items_max);
	uint32_t i = 0;
	assert_non_null(buf);
	while (i < ITEM_CNT && lpi_list_put(&op, &items[i]) == 0)
		i++;
	assert_int_equal(op.list.items, i);
	assert_int_equal(op.list.more, i < ITEM_CNT);
	assert_true(op.list.used <= len);
	lp_test_err(i == 0 ? -ERANGE : 0, lpi_list_end(&op));
	expect_items(&op);
	free(buf);
	return i;
}

static void test_lists(void **state)
{
	(void)state;
	const enum lp_store_space spaces[] = {LP_STORE_OMAP, LP_STORE_ENTRIES};
	for (unsigned kind = 0; kind < 4; kind++) {
		uint32_t fitted = 0;
		for (uint32_t len = 0; len < 200; len++) {
			uint32_t cnt = pack(spaces[kind / 2], kind % 2 == 1, len, 0);
			assert_in_range(cnt, fitted, fitted + 1);
			fitted = cnt;
			assert_int_equal(pack(spaces[kind / 2], kind % 2 == 1, len, 2),
					 LP_MIN(cnt, 2));
		}
		assert_int_equal(fitted, ITEM_CNT);
	}
}

static void test_empty_list(void **state)
{
	(void)state;
	struct lp_store_op op = LIST(.space = LP_STORE_OMAP, .ino = INO);
	struct lp_list_item item;
	uint32_t pos = 0;
	lp_test_ok(lpi_list_end(&op));
	assert_false(lp_store_list_next(&op, &pos, &item));
}

/* --- Appends ---------------------------------------------------------------------------------- */

/* One crc for each piece that the grid cuts from `bytes` at the offset. */
static uint32_t cut_crcs(const uint8_t *bytes, uint64_t offset, uint32_t length, uint32_t *ret_crcs)
{
	uint32_t cnt = 0;
	for (uint32_t at = 0; at < length; cnt++) {
		uint32_t room = BLOCK - (uint32_t)((offset + at) % BLOCK);
		uint32_t len = LP_MIN(room, length - at);
		ret_crcs[cnt] = lp_crc32c(0, bytes + at, len);
		at += len;
	}
	return cnt;
}

/* Segments of odd lengths over the first bytes of the buffer. */
static uint32_t cut_segs(struct lp_prng *prng, uint32_t length, struct lp_seg *ret_segs,
			 uint32_t max)
{
	uint32_t cnt = 0;
	for (uint32_t at = 0; at < length; cnt++) {
		assert_true(cnt < max);
		uint32_t len = (uint32_t)lp_prng_between(prng, 1, UINT64_C(3) * BLOCK);
		len = cnt + 1 == max ? length - at : LP_MIN(len, length - at);
		ret_segs[cnt] = (struct lp_seg){&whole, at, len};
		at += len;
	}
	return cnt;
}

static void test_recut(void **state)
{
	(void)state;
	static const uint32_t offsets[] = {0, 1, 2048, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK - 7};
	static const uint32_t lengths[] = {1,         BLOCK - 1,     BLOCK,
					   BLOCK + 1, 3 * BLOCK + 9, 10 * BLOCK};
	struct lp_seg segs[16];
	uint32_t want[CRC_MAX];
	uint32_t got[CRC_MAX];
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	lp_prng_fill(&prng, buf_data, (size_t)16 * BLOCK);
	for (size_t i = 0; i < LP_ARRAY_SIZE(offsets) * LP_ARRAY_SIZE(lengths); i++) {
		uint64_t offset = offsets[i % LP_ARRAY_SIZE(offsets)];
		uint32_t length = lengths[i / LP_ARRAY_SIZE(offsets)];
		struct lp_payload payload = {.segs = segs, .crcs = crcs};
		payload.seg_cnt = cut_segs(&prng, length, segs, LP_ARRAY_SIZE(segs));
		payload.crc_cnt = cut_crcs(buf_data, 0, length, crcs);
		uint32_t cnt = cut_crcs(buf_data, offset, length, want);
		assert_int_equal(cnt, lpi_piece_cnt(offset, length));
		lp_test_ok(lpi_payload_recut(&payload, offset, length, got));
		assert_memory_equal(got, want, cnt * sizeof(*got));
		if (offset % BLOCK == 0)
			continue;
		crcs[payload.crc_cnt - 1] ^= 1;
		lp_test_err(-EBADMSG, lpi_payload_recut(&payload, offset, length, got));
	}
}

/* The later of both, but for what no change could be so late with. */
static void test_dir_time(void **state)
{
	const int64_t late = (int64_t)LPI_DIR_LATE_NS;
	const struct {
		int64_t old_ns;
		int64_t new_ns;
		int64_t result;
	} cases[] = {
		{0, 0, 0},
		{7, 0, 7},
		{7, 8, 8},
		{7, 6, 7},
		{7, -7, 7},
		{0, -7, -7}, /* the first one */
		{INT64_MIN, 7, 7},
		{INT64_MIN, -7, -7},
		{7, INT64_MIN, INT64_MIN},
		{INT64_MAX, INT64_MIN, INT64_MIN},
		{INT64_MAX, 7, 7},
		{2 * late, late + 1, 2 * late},
		{2 * late, late, late},
		{INT64_MIN + 1, INT64_MAX, INT64_MAX},
	};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++)
		assert_int_equal(lpi_dir_time(cases[i].old_ns, cases[i].new_ns), cases[i].result);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_changes),     cmocka_unit_test(test_order),
		cmocka_unit_test(test_own_records), cmocka_unit_test(test_counts),
		cmocka_unit_test(test_ack),         cmocka_unit_test(test_set_by_type),
		cmocka_unit_test(test_operations),  cmocka_unit_test(test_results_are_cleared),
		cmocka_unit_test(test_lists),       cmocka_unit_test(test_empty_list),
		cmocka_unit_test(test_recut),       cmocka_unit_test(test_drop),
		cmocka_unit_test(test_marks),       cmocka_unit_test(test_dir_time),
	};
	return lp_test_main(tests, "store/validate");
}
