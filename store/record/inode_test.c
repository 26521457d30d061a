/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an inode's record gives back what was put in, is the bytes the page says, and nothing that
 * breaks a rule is ever decoded, whatever was done to the bytes; parents and name hints (rule N3),
 * flags (rule N2).
 * Method: golden bytes; round trips of random inodes; each rule broken alone; mutations with the
 * checksums made right again, so that they reach the rules. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/prng.h"
#include "base/testing/test_death.h"
#include "store/extmap/extmap.h"
#include "store/record/inode.h"

static_assert(LP_INODE_MAP_MAX == LP_EXTMAP_ROOT_BYTES_MAX, "a root fits its section");

#define GOLDEN_FILE                                                                                \
	"4c50496e010160008f00000010000000887766554433221103000000000000000500000000000000"         \
	"0100000000000000feffffffffffffffffffffffffffff7f00000000000000809900000000000000"         \
	"e80300006400000001000000ed090000010008006e616d652e747874030009004cbb719a68656c6c"         \
	"6f04000e000101006131060000757365722e628854efc4"
#define GOLDEN_LINK                                                                                \
	"4c50496e010360007100000000000000020000000000000000000000000000000500000000000000"         \
	"00000000000000000000000000000000000000000000000000000000000000000000000000000000"         \
	"000000000000000001000000ff010000020009004cbb719a68656c6c6fb26fac0f"

static const struct lp_inode_bytes hello = {(const uint8_t *)"hello", 5};
static const struct lp_inode_bytes a_name = {(const uint8_t *)"name.txt", 8};
/* Two attributes: "a" = "1" and "user.b" = "". */
static const struct lp_inode_bytes two_xattrs = {(const uint8_t *)"\1\1\0a1\6\0\0user.b", 14};
static const struct lp_inode_bytes a_map = {(const uint8_t *)"map bytes, opaque", 17};

static struct lp_inode sample_file(void)
{
	return (struct lp_inode){
		.ino = {0x1122334455667788},
		.parent = {0x99},
		.version_nr = 3,
		.size_bytes = 5,
		.atime_ns = 1,
		.mtime_ns = -2,
		.ctime_ns = INT64_MAX,
		.btime_ns = INT64_MIN,
		.uid = 1000,
		.gid = 100,
		.nlink = 1,
		.flags = LP_INODE_FLAG_APPEND,
		.mode = 04755,
		.type = LP_INODE_TYPE_FILE,
		.content_crc = lp_crc32c(0, "hello", 5),
		.name = a_name,
		.content = hello,
		.xattrs = two_xattrs,
	};
}

static struct lp_inode sample_mapped(void)
{
	struct lp_inode inode = sample_file();
	inode.content = (struct lp_inode_bytes){NULL, 0};
	inode.content_crc = 0;
	inode.size_bytes = LP_INODE_SIZE_MAX;
	inode.map = a_map;
	return inode;
}

static struct lp_inode sample_link(void)
{
	struct lp_inode inode = {.ino = {2}, .size_bytes = 5, .mode = 0777, .nlink = 1};
	inode.type = LP_INODE_TYPE_SYMLINK;
	inode.target = hello;
	inode.content_crc = lp_crc32c(0, "hello", 5);
	return inode;
}

static struct lp_inode sample_dir(void)
{
	struct lp_inode inode = {.ino = {1}, .parent = {1}, .mode = 0755, .nlink = 2};
	inode.type = LP_INODE_TYPE_DIR;
	inode.flags = LP_INODE_FLAG_SPREAD | LP_INODE_FLAG_MADE_BY_PUT;
	return inode;
}

static struct lp_inode sample_device(void)
{
	struct lp_inode inode = {.ino = {3}, .mode = 0600, .rdev = 0x801};
	inode.type = LP_INODE_TYPE_BLOCKDEV;
	return inode;
}

static struct lp_inode (*const samples[])(void) = {sample_file, sample_mapped, sample_link,
						   sample_dir, sample_device};

static void check_bytes(struct lp_inode_bytes got, struct lp_inode_bytes want)
{
	assert_int_equal(got.len, want.len);
	if (want.len > 0)
		assert_memory_equal(got.at, want.at, want.len);
}

static void check_same(const struct lp_inode *got, const struct lp_inode *want)
{
	check_bytes(got->name, want->name);
	check_bytes(got->target, want->target);
	check_bytes(got->content, want->content);
	check_bytes(got->xattrs, want->xattrs);
	check_bytes(got->map, want->map);
	assert_true(got->ino.nr == want->ino.nr && got->parent.nr == want->parent.nr);
	assert_true(got->version_nr == want->version_nr && got->size_bytes == want->size_bytes);
	assert_true(got->atime_ns == want->atime_ns && got->mtime_ns == want->mtime_ns);
	assert_true(got->ctime_ns == want->ctime_ns && got->btime_ns == want->btime_ns);
	assert_true(got->uid == want->uid && got->gid == want->gid && got->nlink == want->nlink);
	assert_true(got->flags == want->flags && got->rdev == want->rdev);
	assert_true(got->mode == want->mode && got->type == want->type);
	assert_int_equal(got->content_crc, want->content_crc);
}

static void test_round_trip(void **state)
{
	(void)state;
	uint8_t buf[LP_INODE_BYTES_MAX];
	for (size_t i = 0; i < LP_ARRAY_SIZE(samples); i++) {
		struct lp_inode inode = samples[i]();
		struct lp_inode got;
		size_t len = lp_inode_encode(&inode, buf);
		lp_test_ok(lp_inode_decode(buf, len, inode.ino, &got));
		check_same(&got, &inode);
		/* Another inode's record is none. */
		lp_test_err(-EUCLEAN, lp_inode_decode(buf, len, (struct lp_ino){77}, &got));
	}
}

static void test_largest(void **state)
{
	(void)state;
	static uint8_t bytes[LP_INODE_TARGET_MAX];
	uint8_t buf[LP_INODE_BYTES_MAX];
	uint8_t xattrs[LP_INODE_XATTRS_MAX];
	memset(bytes, 'x', sizeof(bytes));
	struct lp_inode inode = sample_link();
	struct lp_inode got;
	struct lp_inode_bytes name = {bytes, 1};
	struct lp_inode_bytes value = {bytes, LP_INODE_XATTRS_MAX - 4};
	int xattrs_len = lp_xattrs_set((struct lp_inode_bytes){NULL, 0}, &name, &value, xattrs);
	assert_int_equal(xattrs_len, LP_INODE_XATTRS_MAX);
	inode.xattrs = (struct lp_inode_bytes){xattrs, LP_INODE_XATTRS_MAX};
	inode.target = (struct lp_inode_bytes){bytes, LP_INODE_TARGET_MAX};
	inode.size_bytes = LP_INODE_TARGET_MAX;
	inode.content_crc = lp_crc32c(0, bytes, LP_INODE_TARGET_MAX);
	inode.parent.nr = 1;
	inode.name = (struct lp_inode_bytes){bytes, LP_KEY_NAME_MAX};
	size_t len = lp_inode_encode(&inode, buf);
	assert_true(len <= LP_INODE_BYTES_MAX);
	lp_test_ok(lp_inode_decode(buf, len, inode.ino, &got));
	check_same(&got, &inode);
}

static void check_hex(const uint8_t *bytes, size_t len, const char *want)
{
	char hex[2 * 512 + 1] = "";
	assert_true(len <= 512);
	for (size_t i = 0; i < len; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, want);
}

static void test_golden(void **state)
{
	(void)state;
	uint8_t buf[LP_INODE_BYTES_MAX];
	struct lp_inode inode = sample_file();
	check_hex(buf, lp_inode_encode(&inode, buf), GOLDEN_FILE);
	inode = sample_link();
	check_hex(buf, lp_inode_encode(&inode, buf), GOLDEN_LINK);
}

/* --- rules ---------------------------------------------------------------------------------- */

static void expect_fault(const struct lp_inode *inode, const char *want)
{
	const char *fault = lp_inode_fault(inode);
	if (fault == NULL || strcmp(fault, want) != 0)
		print_error("got %s, not %s\n", fault == NULL ? "no fault" : fault, want);
	assert_true(fault != NULL && strcmp(fault, want) == 0);
}

#define BREAK(sample, want, ...)                                                                   \
	do {                                                                                       \
		struct lp_inode inode = sample();                                                  \
		assert_null(lp_inode_fault(&inode));                                               \
		__VA_ARGS__;                                                                       \
		expect_fault(&inode, want);                                                        \
	} while (0)

static void test_rules(void **state)
{
	(void)state;
	static uint8_t big[LP_INODE_TARGET_MAX + 1];
	memset(big, 'x', sizeof(big));
	BREAK(sample_file, "ino", inode.ino.nr = 0);
	BREAK(sample_file, "type", inode.type = 0);
	BREAK(sample_file, "type", inode.type = 8);
	BREAK(sample_file, "mode", inode.mode = 010000);
	BREAK(sample_file, "flags", inode.flags |= 0x80);
	BREAK(sample_file, "flags", inode.flags |= LP_INODE_FLAG_MADE_BY_PUT);
	BREAK(sample_file, "flags", inode.flags |= LP_INODE_FLAG_SEALED);
	BREAK(sample_file, "name without parent_ino", inode.parent.nr = 0);
	BREAK(sample_file, "parent_ino without name", inode.name.len = 0);
	BREAK(sample_dir, "parent_ino", inode.parent.nr = 0);
	BREAK(sample_file, "name", inode.name = (struct lp_inode_bytes){(const uint8_t *)"..", 2});
	BREAK(sample_file, "name", inode.name = (struct lp_inode_bytes){big, 256});
	BREAK(sample_file, "xattrs", inode.xattrs.len--);
	BREAK(sample_file, "size_bytes", inode.size_bytes = LP_INODE_SIZE_MAX + 1);
	BREAK(sample_file, "inline_data", inode.size_bytes = 4);
	BREAK(sample_file, "inline_data", inode.content.len = LP_INODE_INLINE_MAX + 1);
	BREAK(sample_file, "inline_data and map", inode.map = a_map);
	BREAK(sample_mapped, "map", inode.map.len = LP_INODE_MAP_MAX + 1);
	BREAK(sample_mapped, "content_crc", inode.content_crc = 1);
	BREAK(sample_file, "target of what is no symlink", inode.target = hello);
	BREAK(sample_file, "rdev of what is no device", inode.rdev = 1);
	BREAK(sample_link, "data of what is no file", inode.map = a_map);
	BREAK(sample_link, "data of what is no file", inode.content = hello);
	BREAK(sample_link, "size_bytes", inode.size_bytes = 6);
	BREAK(sample_link, "target", inode.target.len = LP_INODE_TARGET_MAX + 1);
	BREAK(sample_link, "target",
	      inode.target = (struct lp_inode_bytes){(const uint8_t *)"a\0b", 3});
	BREAK(sample_dir, "size_bytes", inode.size_bytes = 1);
}

static void encode_broken(void *arg)
{
	uint8_t buf[LP_INODE_BYTES_MAX];
	(void)lp_inode_encode(arg, buf);
}

static void test_encode_asserts(void **state)
{
	(void)state;
	struct lp_inode inode = sample_dir();
	inode.parent.nr = 0; /* rule N3 */
	lp_test_dies(encode_broken, &inode);
}

/* --- what is read is input ------------------------------------------------------------------ */

static void fix_crc(uint8_t *bytes, size_t len)
{
	if (len > 4)
		lp_put_le32(bytes + len - 4, lp_crc32c(0, bytes, len - 4));
}

static void test_content_crc(void **state)
{
	(void)state;
	uint8_t buf[LP_INODE_BYTES_MAX];
	struct lp_inode inode = sample_file();
	struct lp_inode got;
	inode.content_crc ^= 1; /* the client's crc is not that of the bytes: it stays visible */
	size_t len = lp_inode_encode(&inode, buf);
	lp_test_err(-EBADMSG, lp_inode_decode(buf, len, inode.ino, &got));
}

static void test_every_cut_and_flip(void **state)
{
	(void)state;
	uint8_t buf[LP_INODE_BYTES_MAX];
	struct lp_inode inode = sample_file();
	struct lp_inode got;
	size_t len = lp_inode_encode(&inode, buf);
	for (size_t cut = 0; cut < len; cut++) {
		uint8_t *exact = malloc(LP_MAX(cut, 1));
		assert_non_null(exact);
		memcpy(exact, buf, cut);
		assert_true(lp_inode_decode(exact, cut, inode.ino, &got) < 0);
		fix_crc(exact, cut);
		assert_true(lp_inode_decode(exact, cut, inode.ino, &got) < 0);
		free(exact);
	}
	for (size_t bit = 0; bit < len * 8; bit++) {
		buf[bit / 8] ^= (uint8_t)(1U << bit % 8);
		lp_test_err(-EBADMSG, lp_inode_decode(buf, len, inode.ino, &got));
		buf[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
}

static void mutate(struct lp_prng *prng, uint8_t *bytes, size_t len)
{
	for (uint64_t n = lp_prng_between(prng, 1, 3); n > 0; n--) {
		size_t at = lp_prng_below(prng, len);
		uint8_t flipped = (uint8_t)(bytes[at] ^ (1U << lp_prng_below(prng, 8)));
		uint8_t other = (uint8_t)lp_prng_below(prng, 256);
		bytes[at] = lp_prng_chance(prng, 1, 2) ? flipped : other;
	}
	fix_crc(bytes, len);
}

static void test_mutations(void **state)
{
	(void)state;
	struct lp_prng prng;
	unsigned taken = 0;
	lp_prng_init(&prng, 1);
	for (unsigned n = 0; n < 30000; n++) {
		uint8_t buf[LP_INODE_BYTES_MAX];
		uint8_t again[LP_INODE_BYTES_MAX];
		struct lp_inode inode = samples[n % LP_ARRAY_SIZE(samples)]();
		struct lp_inode got;
		size_t len = lp_inode_encode(&inode, buf);
		uint8_t *exact = malloc(len);
		assert_non_null(exact);
		memcpy(exact, buf, len);
		mutate(&prng, exact, len);
		int err = lp_inode_decode(exact, len, inode.ino, &got);
		assert_true(err == 0 || err == -EUCLEAN || err == -EBADMSG);
		if (err == 0) {
			assert_null(lp_inode_fault(&got));
			assert_int_equal(lp_inode_encode(&got, again), len);
			assert_memory_equal(again, exact, len);
			taken++;
		}
		free(exact);
	}
	assert_true(taken > 3000 && taken < 27000);
}

/* --- xattrs --------------------------------------------------------------------------------- */

#define NAMES 12u

/* Random sets and removals against an array of values. */
static void test_xattrs_model(void **state)
{
	(void)state;
	struct lp_prng prng;
	uint8_t model[NAMES][300];
	int lens[NAMES];
	uint8_t lists[2][LP_INODE_XATTRS_MAX];
	struct lp_inode_bytes list = {lists[1], 0};
	unsigned full = 0;
	lp_prng_init(&prng, 2);
	memset(lens, -1, sizeof(lens));
	for (unsigned n = 0; n < 5000; n++) {
		unsigned which = (unsigned)lp_prng_below(&prng, NAMES);
		uint8_t text[] = {(uint8_t)('a' + which % 4), (uint8_t)('a' + which)};
		struct lp_inode_bytes name = {text, which % 4 == which ? 1 : 2};
		uint8_t bytes[300];
		struct lp_inode_bytes value = {bytes, lp_prng_below(&prng, sizeof(bytes))};
		bool is_set = lp_prng_chance(&prng, 2, 3);
		lp_prng_fill(&prng, bytes, sizeof(bytes));
		int len = lp_xattrs_set(list, &name, is_set ? &value : NULL, lists[n % 2]);
		if (len < 0) {
			lp_test_err(-ENOSPC, len);
			full++;
			memcpy(lists[n % 2], list.at,
			       list.len); /* where the next turn expects it */
			list.at = lists[n % 2];
			continue;
		}
		list = (struct lp_inode_bytes){lists[n % 2], (size_t)len};
		lens[which] = is_set ? (int)value.len : -1;
		memcpy(model[which], bytes, sizeof(bytes));
		for (unsigned i = 0; i < NAMES; i++) {
			uint8_t look[] = {(uint8_t)('a' + i % 4), (uint8_t)('a' + i)};
			struct lp_xattr xattr;
			bool found = lp_xattrs_find(list, look, i < 4 ? 1 : 2, &xattr);
			assert_int_equal(found, lens[i] >= 0);
			if (found) {
				assert_int_equal(xattr.value.len, lens[i]);
				assert_memory_equal(xattr.value.at, model[i], xattr.value.len);
			}
		}
	}
	assert_true(full > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_largest),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_encode_asserts),
		cmocka_unit_test(test_content_crc),
		cmocka_unit_test(test_every_cut_and_flip),
		cmocka_unit_test(test_mutations),
		cmocka_unit_test(test_xattrs_model),
	};
	return lp_test_main(tests, "store/record/inode");
}
