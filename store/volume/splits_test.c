/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a set of splits is what was added and removed; as bytes it is the same; and bytes that
 * break a rule of docs/format/disk.md are refused, whatever they are.
 * Method: a random run against a plain array; each rule broken by hand; random bytes. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "format/disk.h"
#include "format/space.h"
#include "store/volume/splits.h"

#define BLOCK_CNT 128u
#define CHUNK_CNT 6u
#define SHARD_CNT 4u
#define WORDS     (BLOCK_CNT / 64)
#define BYTES     8192u

/* Who has a block: 0 whoever leased the chunk, else shard + 1. */
struct model {
	uint8_t owner[CHUNK_CNT][BLOCK_CNT];
};

static void check_same(const struct lpi_splits *splits, const struct model *model)
{
	for (uint32_t chunk = 0; chunk < CHUNK_CNT; chunk++) {
		for (uint32_t shard = 0; shard < SHARD_CNT; shard++) {
			const struct lpi_split *split = lpi_splits_find(splits, chunk, shard);
			uint32_t cnt = 0;
			for (uint32_t i = 0; i < BLOCK_CNT; i++) {
				bool has = model->owner[chunk][i] == shard + 1;
				assert_int_equal(split != NULL && lp_bitmap_test(&split->blocks, i),
						 has);
				cnt += has;
			}
			assert_int_equal(split != NULL, cnt > 0);
		}
	}
}

static void change(struct lpi_splits *splits, struct model *model, struct lp_prng *prng)
{
	uint64_t words[WORDS] = {0};
	struct lp_bitmap blocks;
	uint32_t chunk = (uint32_t)lp_prng_below(prng, CHUNK_CNT);
	uint32_t shard = (uint32_t)lp_prng_below(prng, SHARD_CNT);
	bool adds = lp_prng_chance(prng, 1, 2);
	uint32_t cnt = 0;
	lp_bitmap_init(&blocks, words, BLOCK_CNT);
	for (uint32_t i = 0; i < BLOCK_CNT; i++) {
		uint8_t *owner = &model->owner[chunk][i];
		if (*owner != (adds ? 0 : shard + 1) || lp_prng_chance(prng, 1, 3))
			continue;
		*owner = (uint8_t)(adds ? shard + 1 : 0);
		lp_bitmap_set(&blocks, i, i + UINT64_C(1));
		cnt++;
	}
	if (cnt == 0)
		return;
	if (adds)
		lp_test_ok(lpi_splits_add(splits, chunk, shard, &blocks));
	else
		lpi_splits_remove(splits, chunk, shard, &blocks);
}

static void test_random(void **state)
{
	(void)state;
	static struct model model;
	static uint8_t bytes[BYTES];
	uint8_t scratch[256];
	struct lpi_splits splits;
	struct lpi_splits read;
	struct lpi_splits copy;
	struct lp_prng prng;
	lp_prng_init(&prng, 33);
	lpi_splits_init(&splits, BLOCK_CNT);
	assert_true(lpi_splits_one_max(BLOCK_CNT) <= sizeof(scratch));
	for (int i = 0; i < 2000; i++) {
		size_t len = 0;
		change(&splits, &model, &prng);
		check_same(&splits, &model);
		lp_test_ok(lpi_splits_encode(&splits, scratch, bytes, sizeof(bytes), &len));
		if (len > 0)
			lp_test_err(-ENOSPC,
				    lpi_splits_encode(&splits, scratch, bytes, len - 1, &len));
		lp_test_ok(lpi_splits_encode(&splits, scratch, bytes, len, &len));
		lp_test_ok(lpi_splits_decode(bytes, len, splits.cnt, BLOCK_CNT, &read));
		check_same(&read, &model);
		lp_test_ok(lpi_splits_copy(&splits, &copy));
		check_same(&copy, &model);
		lpi_splits_fini(&read);
		lpi_splits_fini(&copy);
	}
	lpi_splits_fini(&splits);
}

static void test_next(void **state)
{
	(void)state;
	uint64_t words[WORDS] = {1};
	struct lp_bitmap blocks;
	struct lpi_splits splits;
	lp_bitmap_init(&blocks, words, BLOCK_CNT);
	lpi_splits_init(&splits, BLOCK_CNT);
	assert_null(lpi_splits_next(&splits, 0));
	lp_test_ok(lpi_splits_add(&splits, 4, 2, &blocks));
	words[0] = 2;
	lp_test_ok(lpi_splits_add(&splits, 4, 1, &blocks));
	assert_int_equal(lpi_splits_next(&splits, 0)->shard_idx, 1);
	assert_int_equal(lpi_splits_next(&splits, 4)->shard_idx, 1);
	assert_null(lpi_splits_next(&splits, 5));
	lpi_splits_fini(&splits);
}

/* Two splits of three bytes each, and what may be wrong with them. */
static void test_rules(void **state)
{
	(void)state;
	static const struct {
		size_t at;
		uint8_t value;
	} bad[] = {{LP_DISK_SPLIT_SIZE + 2 + LP_DISK_SPLIT_CHUNK_OFF, 2}, /* not in order */
		   {LP_DISK_SPLIT_SIZE + 2 + LP_DISK_SPLIT_SHARD_OFF, 0}, /* the same once more */
		   {LP_DISK_SPLIT_SHARD_OFF, 64},
		   {LP_DISK_SPLIT_ENCODING_OFF, 3},
		   {LP_DISK_SPLIT_BODY_BYTES_OFF, 0},  /* nothing is set */
		   {LP_DISK_SPLIT_BODY_BYTES_OFF, 40}, /* beyond the end */
		   {LP_DISK_SPLIT_SIZE + 1, 129},      /* beyond the chunk */
		   {2 * LP_DISK_SPLIT_SIZE + 2, 3}};   /* a block that the other one has */
	for (size_t i = 0; i <= LP_ARRAY_SIZE(bad); i++) {
		const struct lp_disk_split header[2] = {{.chunk = 3,
							 .shard = 0,
							 .encoding = LP_SPACE_ENCODING_RUNS,
							 .body_bytes = 2},
							{.chunk = 3,
							 .shard = 1,
							 .encoding = LP_SPACE_ENCODING_RUNS,
							 .body_bytes = 2}};
		uint8_t bytes[2 * LP_DISK_SPLIT_SIZE + 4] = {0};
		size_t second = LP_DISK_SPLIT_SIZE + 2;
		struct lpi_splits splits;
		lp_disk_split_encode(&header[0], bytes);
		lp_disk_split_encode(&header[1], bytes + second);
		bytes[LP_DISK_SPLIT_SIZE] = 2; /* blocks 2 to 4 */
		bytes[LP_DISK_SPLIT_SIZE + 1] = 3;
		bytes[second + LP_DISK_SPLIT_SIZE] = 5; /* and 5 */
		bytes[second + LP_DISK_SPLIT_SIZE + 1] = 1;
		if (i < LP_ARRAY_SIZE(bad)) {
			bytes[bad[i].at] = bad[i].value;
			lp_test_err(-EUCLEAN,
				    lpi_splits_decode(bytes, sizeof(bytes), 2, BLOCK_CNT, &splits));
			continue;
		}
		lp_test_ok(lpi_splits_decode(bytes, sizeof(bytes), 2, BLOCK_CNT, &splits));
		lpi_splits_fini(&splits);
		lp_test_err(-EUCLEAN,
			    lpi_splits_decode(bytes, sizeof(bytes), 1, BLOCK_CNT, &splits));
		lp_test_err(-EUCLEAN,
			    lpi_splits_decode(bytes, sizeof(bytes), 3, BLOCK_CNT, &splits));
		lp_test_err(-EUCLEAN, lpi_splits_decode(bytes, sizeof(bytes), 2, 65, &splits));
		lp_test_err(-EUCLEAN, lpi_splits_decode(bytes, sizeof(bytes), 2, 0, &splits));
	}
}

static void test_any_bytes(void **state)
{
	(void)state;
	struct lp_prng prng;
	uint32_t good = 0;
	lp_prng_init(&prng, 1);
	for (int i = 0; i < 20000; i++) {
		uint8_t bytes[48];
		struct lpi_splits splits;
		size_t len = (size_t)lp_prng_below(&prng, sizeof(bytes) + 1);
		for (size_t k = 0; k < len; k++)
			bytes[k] = (uint8_t)lp_prng_below(&prng, k % 4 == 0 ? 256 : 3);
		int err = lpi_splits_decode(bytes, len, (uint32_t)lp_prng_below(&prng, 4),
					    BLOCK_CNT, &splits);
		if (err == 0) {
			good++;
			lpi_splits_fini(&splits);
		} else {
			assert_int_equal(err, -EUCLEAN);
		}
	}
	assert_true(good > 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_next),
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_any_bytes),
	};
	return lp_test_main(tests, "store/volume/splits");
}
