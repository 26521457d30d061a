/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: no bytes whatever decode to a leaf that breaks a rule, and what decodes is encoded the same
 * again; each rule of the page refuses what breaks it alone.
 * Method: leaves put together by hand, right and wrong; random leaves mutated, with the crc made
 * right again so that the mutations reach the rules. Edits are tested through extmap_test.c. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/prng.h"
#include "store/extmap/leaf.h"

static const struct lp_ino ino9 = {9};
#define IDX 5u

/* Memory for the largest leaf. */
struct room {
	_Alignas(struct lpi_leaf)
		uint8_t bytes[sizeof(struct lpi_leaf) +
			      LPI_LEAF_BLOCKS * (sizeof(uint64_t) + sizeof(uint32_t))];
};

static struct lpi_leaf *leaf_in(struct room *room)
{
	struct lpi_leaf *leaf = (struct lpi_leaf *)(void *)room->bytes;
	lpi_leaf_init(leaf, IDX, LPI_LEAF_BLOCKS, LPI_LEAF_BLOCKS);
	return leaf;
}

static void fix_crc(uint8_t *bytes, size_t len)
{
	uint8_t place[16];
	if (len < LP_EXTMAP_LEAF_HEAD_SIZE)
		return;
	lp_put_le64(place, ino9.nr);
	lp_put_le64(place + 8, UINT64_C(64) * IDX);
	uint32_t crc = lp_crc32c(lp_crc32c(0, place, sizeof(place)), bytes, 4);
	lp_put_le32(bytes + 4, lp_crc32c(crc, bytes + 8, len - 8));
}

/* A leaf of these words, with as many crcs as asked for. */
static int check_words(const uint64_t *words, uint32_t words_cnt, uint32_t crcs_cnt)
{
	uint8_t bytes[LPI_LEAF_BYTES_MAX + 8] = {1, (uint8_t)words_cnt};
	size_t len = LP_EXTMAP_LEAF_HEAD_SIZE;
	uint32_t got_words, got_crcs;
	for (uint32_t i = 0; i < words_cnt; i++, len += 8)
		lp_put_le64(bytes + len, words[i]);
	len += crcs_cnt * sizeof(uint32_t);
	fix_crc(bytes, len);
	return lpi_leaf_check(bytes, len, ino9, IDX, &got_words, &got_crcs);
}

static void test_rules(void **state)
{
	(void)state;
	const uint64_t shared = LP_EXTMAP_FLAG_SHARED;
	const uint64_t unwritten = LP_EXTMAP_FLAG_UNWRITTEN;
	const uint64_t end = (UINT64_C(1) << 48) - 1;
	const uint64_t plain[] = {lpi_word(100, 0, 4, 0), lpi_word(200, 4, 60, 0)};
	lp_test_ok(check_words(plain, 2, 64));
	lp_test_err(-EUCLEAN, check_words(plain, 2, 63));
	lp_test_err(-EUCLEAN, check_words(plain, 2, 65));
	lp_test_err(-EUCLEAN, check_words(plain, 0, 0));
	lp_test_err(-EUCLEAN, check_words(plain, 0, 64));
	lp_test_ok(check_words((uint64_t[]){lpi_word(100, 0, 64, unwritten)}, 1, 0));
	lp_test_err(-EUCLEAN, check_words((uint64_t[]){lpi_word(100, 0, 64, unwritten)}, 1, 64));
	/* Flags. */
	lp_test_ok(check_words((uint64_t[]){lpi_word(1, 0, 1, shared)}, 1, 1));
	lp_test_err(-EUCLEAN,
		    check_words((uint64_t[]){lpi_word(1, 0, 1, shared | unwritten)}, 1, 0));
	lp_test_err(-EUCLEAN,
		    check_words((uint64_t[]){lpi_word(1, 0, 1, UINT64_C(1) << 62)}, 1, 1));
	lp_test_err(-EUCLEAN,
		    check_words((uint64_t[]){lpi_word(1, 0, 1, UINT64_C(1) << 63)}, 1, 1));
	/* The ends of the leaf and of a device: 2 blocks, from the last one. */
	const uint64_t two = UINT64_C(1) << 54;
	lp_test_err(-EUCLEAN, check_words((uint64_t[]){lpi_word(1, 63, 1, 0) | two}, 1, 2));
	lp_test_ok(check_words((uint64_t[]){lpi_word(end, 0, 1, 0)}, 1, 1));
	lp_test_err(-EUCLEAN, check_words((uint64_t[]){lpi_word(end, 0, 1, 0) | two}, 1, 2));
	/* Order, neighbours. */
	const uint64_t overlap[] = {lpi_word(100, 0, 4, 0), lpi_word(200, 3, 4, 0)};
	const uint64_t back[] = {lpi_word(100, 8, 4, 0), lpi_word(200, 0, 4, 0)};
	const uint64_t joined[] = {lpi_word(100, 0, 4, 0), lpi_word(104, 4, 4, 0)};
	const uint64_t flagged[] = {lpi_word(100, 0, 4, 0), lpi_word(104, 4, 4, shared)};
	lp_test_err(-EUCLEAN, check_words(overlap, 2, 8));
	lp_test_err(-EUCLEAN, check_words(back, 2, 8));
	lp_test_err(-EUCLEAN, check_words(joined, 2, 8));
	lp_test_ok(check_words(flagged, 2, 8));
	/* A block belongs to one place, unless clones share it (rule S4). */
	const uint64_t twice[] = {lpi_word(100, 0, 4, shared), lpi_word(103, 8, 4, 0)};
	const uint64_t cloned[] = {lpi_word(100, 0, 4, shared), lpi_word(103, 8, 4, shared)};
	lp_test_err(-EUCLEAN, check_words(twice, 2, 8));
	lp_test_ok(check_words(cloned, 2, 8));
}

static void random_leaf(struct lp_prng *prng, struct lpi_leaf *leaf)
{
	uint64_t device = 1000;
	for (uint64_t n = lp_prng_between(prng, 1, 6); n > 0; n--) {
		uint32_t first = (uint32_t)lp_prng_below(prng, LPI_LEAF_BLOCKS);
		uint32_t cnt = (uint32_t)lp_prng_between(prng, 1, LPI_LEAF_BLOCKS - first);
		uint64_t flags = lp_prng_chance(prng, 1, 4) ? LP_EXTMAP_FLAG_UNWRITTEN : 0;
		uint64_t word = lpi_word(device, first, cnt, flags);
		uint32_t crcs[LPI_LEAF_BLOCKS];
		struct lp_extmap_release items[LPI_LEAF_BLOCKS];
		struct lp_extmap_released released = {items, 0, LP_ARRAY_SIZE(items)};
		struct lpi_leaf_edit edit = {.action = LPI_LEAF_REPLACE,
					     .first = first,
					     .end = first + cnt,
					     .insert = &word,
					     .insert_cnt = 1,
					     .crcs = flags == 0 ? crcs : NULL,
					     .released = &released};
		lp_prng_fill(prng, crcs, sizeof(crcs));
		lpi_leaf_edit(leaf, &edit);
		device += 100;
	}
}

static void check_decodes(const uint8_t *bytes, size_t len, unsigned *taken)
{
	struct room room;
	uint8_t again[LPI_LEAF_BYTES_MAX];
	uint32_t words_cnt, crcs_end;
	int err = lpi_leaf_check(bytes, len, ino9, IDX, &words_cnt, &crcs_end);
	assert_true(err == 0 || err == -EUCLEAN || err == -EBADMSG);
	if (err != 0)
		return;
	struct lpi_leaf *leaf = leaf_in(&room);
	lpi_leaf_decode(leaf, bytes, len);
	assert_true(lpi_leaf_is_sound(leaf));
	assert_int_equal(leaf->words_cnt, words_cnt);
	assert_int_equal(lpi_leaf_crcs_end(leaf), crcs_end);
	assert_int_equal(lpi_leaf_encode(leaf, ino9, again), len);
	assert_memory_equal(again, bytes, len);
	(*taken)++;
}

static void test_mutations(void **state)
{
	(void)state;
	struct lp_prng prng;
	unsigned taken = 0;
	lp_prng_init(&prng, 1);
	for (int n = 0; n < 20000; n++) {
		struct room room;
		struct lpi_leaf *leaf = leaf_in(&room);
		uint8_t buf[LPI_LEAF_BYTES_MAX];
		random_leaf(&prng, leaf);
		size_t len = lpi_leaf_encode(leaf, ino9, buf);
		if (lp_prng_chance(&prng, 1, 10))
			len = lp_prng_below(&prng, len);
		uint8_t *exact = malloc(LP_MAX(len, 1));
		assert_non_null(exact);
		memcpy(exact, buf, len);
		for (uint64_t flips = lp_prng_below(&prng, 3); flips > 0 && len > 0; flips--) {
			/* Mostly where the extents are. */
			size_t limit = lp_prng_chance(&prng, 3, 4) ? LP_MIN(len, 32U) : len;
			exact[lp_prng_below(&prng, limit)] ^=
				(uint8_t)(1U << lp_prng_below(&prng, 8));
		}
		if (lp_prng_chance(&prng, 9, 10))
			fix_crc(exact, len);
		check_decodes(exact, len, &taken);
		free(exact);
	}
	assert_true(taken > 5000 && taken < 18000);
}

/* Each bit counts, and so do the inode and the place. */
static void test_every_bit(void **state)
{
	(void)state;
	struct room room;
	struct lpi_leaf *leaf = leaf_in(&room);
	struct lp_prng prng;
	uint8_t buf[LPI_LEAF_BYTES_MAX];
	uint32_t words_cnt, crcs_end;
	lp_prng_init(&prng, 2);
	random_leaf(&prng, leaf);
	size_t len = lpi_leaf_encode(leaf, ino9, buf);
	for (size_t bit = 0; bit < len * 8; bit++) {
		buf[bit / 8] ^= (uint8_t)(1U << bit % 8);
		lp_test_err(-EBADMSG, lpi_leaf_check(buf, len, ino9, IDX, &words_cnt, &crcs_end));
		buf[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
	lp_test_ok(lpi_leaf_check(buf, len, ino9, IDX, &words_cnt, &crcs_end));
	lp_test_err(-EBADMSG, lpi_leaf_check(buf, len, ino9, IDX + 1, &words_cnt, &crcs_end));
	lp_test_err(-EBADMSG,
		    lpi_leaf_check(buf, len, (struct lp_ino){8}, IDX, &words_cnt, &crcs_end));
}

/* 64 extents of one block each: the most a leaf can say. */
static void test_largest(void **state)
{
	(void)state;
	struct room room;
	struct lpi_leaf *leaf = leaf_in(&room);
	uint8_t buf[LPI_LEAF_BYTES_MAX];
	unsigned taken = 0;
	for (uint32_t b = 0; b < LPI_LEAF_BLOCKS; b++)
		leaf->words[b] = lpi_word(1000 - 2 * b, b, 1, 0);
	leaf->words_cnt = LPI_LEAF_BLOCKS;
	assert_int_equal(lpi_leaf_encode(leaf, ino9, buf), LPI_LEAF_BYTES_MAX);
	check_decodes(buf, LPI_LEAF_BYTES_MAX, &taken);
	assert_int_equal(taken, 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_mutations),
		cmocka_unit_test(test_every_bit),
		cmocka_unit_test(test_largest),
	};
	return lp_test_main(tests, "store/extmap/leaf");
}
