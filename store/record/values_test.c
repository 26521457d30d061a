/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the small values give back what was put in, are the bytes the page says, and one that is
 * damaged, breaks a rule, or lies under another key is refused (rules N2, N4, S6).
 * Method: golden bytes; every bit flipped; every rule broken with the crc made right again. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/testing/test_death.h"
#include "format/inode.h"
#include "store/record/values.h"

#define GOLDEN_DIRENT "01020000e73e916c3412000000000000ffffffffffffff00"
#define GOLDEN_FRAGMENT                                                                            \
	"010000004a0fcd160300000000000000fd02000000000000fbffffffffffffff0700000000000000"         \
	"0400000000000000"
#define GOLDEN_UNFINISHED "01030000cf7f9599e8030000000000006300000000000000"

#define GOLDEN_DEFERRED                                                                            \
	"01000000bc7945ae34120000000000000500000000000000cdab8900000000008d015e9500000000"

#define GOLDEN_SCRUB                                                                               \
	"0101000041a5947f6300000000000000341200000000000002000000000000005800000000000000"
#define GOLDEN_DAMAGED "010300004b52976263000000000000000030120000000000"
#define BYTES_MAX      LP_FRAGMENT_VALUE_SIZE

/* The five kinds behind one face. */
struct kind {
	size_t size;
	const char *golden;
	void (*make_key)(struct lp_key *key, uint64_t nr);
	void (*write)(const struct lp_key *key, uint8_t *bytes);
	int (*read)(const void *bytes, size_t len, const struct lp_key *key);
};

static void dirent_key(struct lp_key *key, uint64_t nr)
{
	lp_key_of_name(key, LP_KEY_SPACE_DIRENT, (struct lp_ino){nr}, "name", 4);
}

static void fragment_key(struct lp_key *key, uint64_t nr)
{
	lp_key_of_ino(key, LP_KEY_SPACE_FRAGMENT, (struct lp_ino){nr});
}

static void unfinished_key(struct lp_key *key, uint64_t nr)
{
	lp_key_of_ino(key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino){nr});
}

static void scrub_key(struct lp_key *key, uint64_t nr)
{
	lp_key_of_store(key, nr % 2 == 0 ? "scrub" : "other");
}

static void scrub_write(const struct lp_key *key, uint8_t *bytes)
{
	struct lp_scrub_value value = {
		.is_under_way = 1, .since_ns = 99, .behind = 0x1234, .damaged = 2, .whole_ns = 88};
	lp_scrub_write(&value, key, bytes);
}

static int scrub_read(const void *bytes, size_t len, const struct lp_key *key)
{
	struct lp_scrub_value value;
	return lp_scrub_read(bytes, len, key, &value);
}

static void damaged_key(struct lp_key *key, uint64_t nr)
{
	lp_key_of_store_number(key, "damaged", nr);
}

static void damaged_write(const struct lp_key *key, uint8_t *bytes)
{
	struct lp_damaged_value value = {
		.kind = LP_DAMAGED_KIND_UNREADABLE, .since_ns = 99, .offset = 0x123000};
	lp_damaged_write(&value, key, bytes);
}

static int damaged_read(const void *bytes, size_t len, const struct lp_key *key)
{
	struct lp_damaged_value value;
	return lp_damaged_read(bytes, len, key, &value);
}

static void dirent_write(const struct lp_key *key, uint8_t *bytes)
{
	struct lp_dirent_value value = {
		.type = LP_INODE_TYPE_DIR, .ino = 0x1234, .insertion = LP_INSERTION_MAX - 1};
	lp_dirent_write(&value, key, bytes);
}

static void fragment_write(const struct lp_key *key, uint8_t *bytes)
{
	struct lp_fragment_value value = {.entries_cnt = 3,
					  .name_bytes = 765,
					  .mtime_ns = -5,
					  .ctime_ns = 7,
					  .next_insertion = 4};
	lp_fragment_write(&value, key, bytes);
}

static void unfinished_write(const struct lp_key *key, uint8_t *bytes)
{
	struct lp_unfinished_value value = {
		.kind = LP_UNFINISHED_KIND_TRIM, .from_block = 1000, .since_ns = 99};
	lp_unfinished_write(&value, key, bytes);
}

static int dirent_read(const void *bytes, size_t len, const struct lp_key *key)
{
	struct lp_dirent_value value = {.ino = 77};
	int err = lp_dirent_read(bytes, len, key, &value);
	if (err != 0)
		assert_int_equal(value.ino, 77);
	return err;
}

static int fragment_read(const void *bytes, size_t len, const struct lp_key *key)
{
	struct lp_fragment_value value;
	return lp_fragment_read(bytes, len, key, &value);
}

static int unfinished_read(const void *bytes, size_t len, const struct lp_key *key)
{
	struct lp_unfinished_value value;
	return lp_unfinished_read(bytes, len, key, &value);
}

static const struct kind dirent = {LP_DIRENT_VALUE_SIZE, GOLDEN_DIRENT, dirent_key, dirent_write,
				   dirent_read};
static const struct kind fragment = {LP_FRAGMENT_VALUE_SIZE, GOLDEN_FRAGMENT, fragment_key,
				     fragment_write, fragment_read};
static const struct kind unfinished = {LP_UNFINISHED_VALUE_SIZE, GOLDEN_UNFINISHED, unfinished_key,
				       unfinished_write, unfinished_read};
static const struct kind scrub = {LP_SCRUB_VALUE_SIZE, GOLDEN_SCRUB, scrub_key, scrub_write,
				  scrub_read};
static const struct kind damaged = {LP_DAMAGED_VALUE_SIZE, GOLDEN_DAMAGED, damaged_key,
				    damaged_write, damaged_read};
static const struct kind *const kinds[] = {&dirent, &fragment, &unfinished, &scrub, &damaged};

static void check_hex(const uint8_t *bytes, size_t len, const char *want)
{
	char hex[2 * BYTES_MAX + 1] = "";
	for (size_t i = 0; i < len; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, want);
}

static void test_golden(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(kinds); i++) {
		uint8_t bytes[BYTES_MAX];
		struct lp_key key;
		kinds[i]->make_key(&key, 0x0102);
		kinds[i]->write(&key, bytes);
		check_hex(bytes, kinds[i]->size, kinds[i]->golden);
		lp_test_ok(kinds[i]->read(bytes, kinds[i]->size, &key));
	}
}

static void test_damaged(void **state)
{
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(kinds); i++) {
		uint8_t bytes[BYTES_MAX];
		struct lp_key key, other;
		kinds[i]->make_key(&key, 0x0102);
		kinds[i]->make_key(&other, 0x0103);
		kinds[i]->write(&key, bytes);
		lp_test_err(-EBADMSG, kinds[i]->read(bytes, kinds[i]->size, &other));
		for (size_t len = 0; len < kinds[i]->size; len++)
			lp_test_err(-EUCLEAN, kinds[i]->read(bytes, len, &key));
		for (size_t bit = 0; bit < kinds[i]->size * 8; bit++) {
			bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
			lp_test_err(-EBADMSG, kinds[i]->read(bytes, kinds[i]->size, &key));
			bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
		}
	}
}

/* Puts a number over some bytes, makes the crc right, and reads. */
static int read_changed(const struct kind *kind, uint64_t nr, size_t offset, size_t size,
			uint64_t value)
{
	uint8_t bytes[BYTES_MAX];
	uint8_t number[8];
	struct lp_key key;
	kind->make_key(&key, nr);
	kind->write(&key, bytes);
	lp_put_le64(number, value);
	memcpy(bytes + offset, number, size);
	uint32_t crc = lp_crc32c(0, key.bytes, key.len);
	crc = lp_crc32c(crc, bytes, 4);
	lp_put_le32(bytes + 4, lp_crc32c(crc, bytes + 8, kind->size - 8));
	return kind->read(bytes, kind->size, &key);
}

static void test_rules(void **state)
{
	(void)state;
	static const struct {
		const struct kind *kind;
		size_t offset;
		size_t size;
		uint64_t bad;
		uint64_t good;
	} rules[] = {
		{&dirent, 0, 1, 2, 1},  /* version */
		{&dirent, 1, 1, 0, 1},  /* type */
		{&dirent, 1, 1, 8, 7},  /* */
		{&dirent, 2, 2, 1, 0},  /* reserved */
		{&dirent, 8, 8, 0, 1},  /* ino */
		{&dirent, 16, 8, 0, 1}, /* insertion: rule N4 */
		{&dirent, 16, 8, LP_INSERTION_MAX, LP_INSERTION_MAX - 1},
		{&fragment, 0, 1, 0, 1},          /* version */
		{&fragment, 1, 1, 1, 0},          /* sealed with entries: rule N2 */
		{&fragment, 2, 2, 0x100, 0},      /* reserved */
		{&fragment, 8, 8, 4, 3},          /* entries_cnt */
		{&fragment, 8, 8, UINT64_MAX, 3}, /* */
		{&fragment, 16, 8, 2, 3},         /* name_bytes */
		{&fragment, 16, 8, 766, 765},     /* */
		{&fragment, 40, 8, 3, 4},         /* next_insertion */
		{&fragment, 40, 8, LP_INSERTION_MAX + 1, LP_INSERTION_MAX},
		{&unfinished, 0, 1, 9, 1}, /* version */
		{&unfinished, 1, 1, 4, 3}, /* kind */
		{&unfinished, 1, 1, 1, 3}, /* an orphan with from_block */
		{&unfinished, 3, 1, 1, 0}, /* reserved */
		{&unfinished, 8, 8, (UINT64_C(1) << 32) + 1, UINT64_C(1) << 32},
		{&scrub, 0, 1, 0, 1}, /* version */
		{&scrub, 1, 1, 2, 1}, /* is_under_way */
		{&scrub, 1, 1, 0, 1}, /* behind an inode, but none is */
		{&scrub, 2, 2, 1, 0}, /* reserved */
		{&scrub, 8, 8, UINT64_MAX, 0},
		{&scrub, 32, 8, UINT64_MAX, 0},
		{&damaged, 0, 1, 0, 1}, /* version */
		{&damaged, 1, 1, 4, 1}, /* kind */
		{&damaged, 1, 1, 0, 2},
		{&damaged, 2, 2, 1, 0}, /* reserved */
		{&damaged, 8, 8, UINT64_MAX, 0},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(rules); i++) {
		lp_test_err(-EUCLEAN, read_changed(rules[i].kind, 5, rules[i].offset, rules[i].size,
						   rules[i].bad));
		lp_test_ok(read_changed(rules[i].kind, 5, rules[i].offset, rules[i].size,
					rules[i].good));
	}
}

/* --- Deferred payloads: a head, and a block behind it ---------------------------------------- */

static void make_deferred(uint8_t *bytes, const struct lp_key *key,
			  const struct lp_deferred_value *about)
{
	struct lp_deferred_value value = *about;
	for (size_t i = 0; i < LP_BLOCK_BYTES; i++)
		bytes[LP_DEFERRED_VALUE_SIZE + i] = (uint8_t)(i * 31 + i / 256);
	value.block_crc = lp_crc32c(0, bytes + LP_DEFERRED_VALUE_SIZE, LP_BLOCK_BYTES);
	lp_deferred_write(&value, key, bytes);
}

static void seal_deferred(uint8_t *bytes, const struct lp_key *key)
{
	uint32_t crc = lp_crc32c(0, key->bytes, key->len);
	crc = lp_crc32c(crc, bytes, 4);
	lp_put_le32(bytes + 4, lp_crc32c(crc, bytes + 8, LP_DEFERRED_VALUE_SIZE - 8));
}

static const struct lp_deferred_value about_deferred = {
	.ino = 0x1234, .file_block = 5, .device_block = 0x89abcd};

static void test_deferred(void **state)
{
	static uint8_t bytes[LP_DEFERRED_RECORD_BYTES + 1];
	struct lp_deferred_value value = {.ino = 77};
	struct lp_key key;
	struct lp_key other;
	(void)state;
	lp_key_of_number(&key, LP_KEY_SPACE_DEFERRED, 0x0102);
	lp_key_of_number(&other, LP_KEY_SPACE_DEFERRED, 0x0103);
	make_deferred(bytes, &key, &about_deferred);
	check_hex(bytes, LP_DEFERRED_VALUE_SIZE, GOLDEN_DEFERRED);
	lp_test_err(-EBADMSG, lp_deferred_read(bytes, LP_DEFERRED_RECORD_BYTES, &other, &value));
	for (size_t len = 0; len <= sizeof(bytes); len += len < 64 ? 1 : 4072 - 64) {
		if (len != LP_DEFERRED_RECORD_BYTES)
			lp_test_err(-EUCLEAN, lp_deferred_read(bytes, len, &key, &value));
	}
	lp_test_err(-EUCLEAN, lp_deferred_read(bytes, sizeof(bytes), &key, &value));
	/* All bits of the head, some of the block. */
	for (size_t bit = 0; bit < LP_DEFERRED_RECORD_BYTES * 8;
	     bit += bit < UINT64_C(8) * LP_DEFERRED_VALUE_SIZE ? 1 : 1001) {
		bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
		lp_test_err(-EBADMSG,
			    lp_deferred_read(bytes, LP_DEFERRED_RECORD_BYTES, &key, &value));
		bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	assert_int_equal(value.ino, 77); /* nothing was given out so far */
	lp_test_ok(lp_deferred_read(bytes, LP_DEFERRED_RECORD_BYTES, &key, &value));
	assert_int_equal(value.ino, about_deferred.ino);
	assert_int_equal(value.file_block, about_deferred.file_block);
	assert_int_equal(value.device_block, about_deferred.device_block);
}

static void test_deferred_rules(void **state)
{
	static uint8_t bytes[LP_DEFERRED_RECORD_BYTES];
	static const struct {
		size_t at;
		uint8_t byte;
	} wrong[] = {
		{LP_DEFERRED_VALUE_VERSION_OFF, 2},
		{LP_DEFERRED_VALUE_RESERVED_A_OFF, 1},
		{LP_DEFERRED_VALUE_RESERVED_B_OFF + 1, 1},
		{LP_DEFERRED_VALUE_RESERVED_C_OFF + 3, 1},
		{LP_DEFERRED_VALUE_FILE_BLOCK_OFF + 4, 1},
		{LP_DEFERRED_VALUE_DEVICE_BLOCK_OFF + 6, 1},
	};
	struct lp_deferred_value value;
	struct lp_key key;
	(void)state;
	lp_key_of_number(&key, LP_KEY_SPACE_DEFERRED, 1);
	for (size_t i = 0; i < LP_ARRAY_SIZE(wrong); i++) {
		make_deferred(bytes, &key, &about_deferred);
		bytes[wrong[i].at] = wrong[i].byte;
		seal_deferred(bytes, &key);
		lp_test_err(-EUCLEAN, lp_deferred_read(bytes, sizeof(bytes), &key, &value));
	}
	make_deferred(bytes, &key, &about_deferred);
	memset(bytes + LP_DEFERRED_VALUE_INO_OFF, 0, 8);
	seal_deferred(bytes, &key);
	lp_test_err(-EUCLEAN, lp_deferred_read(bytes, sizeof(bytes), &key, &value));
	/* One that stays names nothing. */
	memset(bytes + LP_DEFERRED_VALUE_FILE_BLOCK_OFF, 0, 8);
	seal_deferred(bytes, &key);
	lp_test_ok(lp_deferred_read(bytes, sizeof(bytes), &key, &value));
	assert_int_equal(value.ino, 0);
}

static void write_bad(void *arg)
{
	uint8_t bytes[BYTES_MAX];
	struct lp_key key;
	(void)arg;
	dirent_key(&key, 1);
	lp_dirent_write(&(struct lp_dirent_value){.ino = 1, .insertion = 1}, &key, bytes);
}

static void write_wrong_key(void *arg)
{
	uint8_t bytes[BYTES_MAX];
	struct lp_key key;
	(void)arg;
	fragment_key(&key, 1);
	dirent_write(&key, bytes);
}

static void test_writers_assert(void **state)
{
	(void)state;
	lp_test_dies(write_bad, NULL);
	lp_test_dies(write_wrong_key, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),         cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_rules),          cmocka_unit_test(test_deferred),
		cmocka_unit_test(test_deferred_rules), cmocka_unit_test(test_writers_assert),
	};
	return lp_test_main(tests, "store/record/values");
}
