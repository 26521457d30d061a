/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a file keeps the space that it has: what was set aside for it, and what it has written, can
 * be written and written again on a store that is full, each write wholly or not at all, also when
 * the power fails (P2, P6, rule S4). What has no space of its own says ENOSPC, and nothing changed.
 * Method: a file is preallocated, and all the rest of a simulated device by another; then writes of
 * every path, at odd places, beside a plain array; the power cut at the events of one of them. */
#include "store/block/block_sim_test.h"

#define FILE_BYTES  (UINT64_C(4) << 20)
#define PART_BYTES  (UINT64_C(1) << 20)
#define PIECE_BYTES (UINT64_C(256) << 10) /* which a frame of the log takes */
#define ODD         UINT64_C(1717)
#define WRITES      (LP_ASSERT_SLOW_ON ? 60u : 300u)
#define CUTS        (LP_ASSERT_SLOW_ON ? 15u : 120u)

static const struct lp_ino ino = {100};
static const struct lp_ino filler = {101};
static const struct lp_ino cloned = {102};
static const struct lp_ino other = {103};

/* What the file should hold, and what is written next: it differs in each byte. */
static uint8_t should[FILE_BYTES];
static uint8_t fresh[FILE_BYTES];
static uint8_t got[FILE_BYTES];

static void create(struct lpi_store_rig *rig, struct lp_ino of)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
	lp_test_ok(lpi_hand_change(&rig->hand, (struct lp_change){.type = LP_CHANGE_CREATE,
								  .ino = of,
								  .inode = {.attrs = &attrs}}));
}

static int change(struct lpi_store_rig *rig, enum lp_change_type type, struct lp_ino of,
		  uint64_t offset, uint64_t length)
{
	return lpi_hand_change(&rig->hand, (struct lp_change){
						   .type = type,
						   .ino = of,
						   .data = {.offset = offset, .length = length},
					   });
}

static int prealloc(struct lpi_store_rig *rig, struct lp_ino of, uint64_t offset, uint64_t length)
{
	return change(rig, LP_CHANGE_PREALLOC, of, offset, length);
}

/* Also nothing of what could be freed is on its way. */
static void expect_full(struct lpi_store_rig *rig)
{
	lp_test_err(-ENOSPC, prealloc(rig, other, 0, LP_BLOCK_BYTES));
}

static void wait_used(struct lpi_store_rig *rig, uint64_t blocks)
{
	for (int i = 0; i < 50000 && lpi_store_rig_used_blocks(rig) != blocks; i++)
		lpi_hand_turn(&rig->hand);
	assert_int_equal(lpi_store_rig_used_blocks(rig), blocks);
}

/* So many blocks are left, and no more. */
static void fill(struct lpi_store_rig *rig, uint64_t left)
{
	const struct lp_ino spare = {104};
	create(rig, filler);
	create(rig, other);
	create(rig, spare);
	if (left > 0)
		lp_test_ok(prealloc(rig, spare, 0, left * LP_BLOCK_BYTES));
	int err = 0;
	for (uint64_t at = 0; err == 0; at += LP_STORE_RANGE_MAX)
		err = prealloc(rig, filler, at, LP_STORE_RANGE_MAX);
	lp_test_err(-ENOSPC, err);
	expect_full(rig);
	/* What there was for the last step was taken, though nobody waited for that. */
	struct lp_store_op sync = {.opcode = LP_STORE_SYNC};
	lp_test_ok(lpi_hand_do(&rig->hand, &sync));
	uint64_t used = lpi_store_rig_used_blocks(rig);
	lp_test_ok(lpi_hand_change(&rig->hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = spare}));
	wait_used(rig, used - left);
}

static void start(struct lpi_store_rig *rig, enum lp_write_path path)
{
	lpi_store_rig_start(rig, 4); /* one that does not discard */
	rig->path = path;
	lp_store_set_write_path(rig->hand.store, path);
	memset(should, 0, sizeof(should));
	create(rig, ino);
}

static void finish(struct lpi_store_rig *rig)
{
	lp_test_ok(lpi_store_rig_close(rig, false));
	lpi_store_rig_check(rig);
	lpi_store_rig_fini(rig);
}

static int try_write(struct lpi_store_rig *rig, uint64_t offset, uint64_t length)
{
	static uint8_t round;
	round++;
	for (uint64_t i = offset; i < offset + length; i++)
		fresh[i] = (uint8_t)(should[i] + 1 + round % 100);
	return lpi_hand_write(&rig->hand, ino, offset, fresh + offset, length);
}

static void write_some(struct lpi_store_rig *rig, uint64_t offset, uint64_t length)
{
	lp_test_ok(try_write(rig, offset, length));
	memcpy(should + offset, fresh + offset, length);
}

static void expect_content(struct lpi_store_rig *rig, struct lp_ino of, uint64_t length)
{
	for (uint64_t at = 0; at < length; at += PART_BYTES) {
		uint64_t part = LP_MIN(PART_BYTES, length - at);
		assert_int_equal(lpi_hand_read(&rig->hand, of, at, part, got), part);
		assert_memory_equal(got, should + at, part);
	}
}

/* --- What a file has ------------------------------------------------------------------------- */

/* By halves, and once more by pieces, at odd places. */
static void test_written_by_halves(void **state)
{
	(void)state;
	for (int path = 0; path < (int)LP_PATH_CNT; path++) {
		struct lpi_store_rig rig;
		uint64_t half = PART_BYTES / 2 + ODD;
		start(&rig, (enum lp_write_path)path);
		lp_test_ok(prealloc(&rig, ino, 0, PART_BYTES));
		fill(&rig, 0);
		uint64_t used = lpi_store_rig_used_blocks(&rig);
		write_some(&rig, 0, half);
		write_some(&rig, half, PART_BYTES - half);
		expect_content(&rig, ino, PART_BYTES);
		for (uint64_t at = 0; at < PART_BYTES; at += PIECE_BYTES - ODD)
			write_some(&rig, at, LP_MIN(PIECE_BYTES - ODD, PART_BYTES - at));
		expect_content(&rig, ino, PART_BYTES);
		assert_int_equal(lpi_store_rig_used_blocks(&rig), used);
		expect_full(&rig);
		lp_test_ok(lpi_store_rig_close(&rig, path % 2 == 0));
		lp_test_ok(lpi_store_rig_open(&rig));
		expect_content(&rig, ino, PART_BYTES);
		finish(&rig);
	}
}

/* Anywhere, by any length that a frame takes; set aside again where a hole was made. */
static void test_written_at_random(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_prng prng;
	lp_prng_init(&prng, 7);
	start(&rig, LP_PATH_AUTO);
	lp_test_ok(prealloc(&rig, ino, 0, PART_BYTES));
	lp_test_ok(change(&rig, LP_CHANGE_TRUNCATE, ino, PART_BYTES - ODD, 0));
	lp_test_ok(prealloc(&rig, ino, 0, PART_BYTES));
	fill(&rig, 0);
	uint64_t used = lpi_store_rig_used_blocks(&rig);
	for (uint32_t i = 0; i < WRITES; i++) {
		static const enum lp_write_path paths[] = {LP_PATH_AUTO, LP_PATH_DIRECT,
							   LP_PATH_DEFERRED};
		uint64_t offset = lp_prng_below(&prng, PART_BYTES - ODD);
		uint64_t most = lp_prng_below(&prng, 2) == 0 ? 3 * LP_BLOCK_BYTES : PIECE_BYTES;
		uint64_t length = 1 + lp_prng_below(&prng, most);
		lp_store_set_write_path(rig.hand.store, paths[i % LP_ARRAY_SIZE(paths)]);
		write_some(&rig, offset, LP_MIN(length, PART_BYTES - ODD - offset));
		if (i % 30 != 0)
			continue;
		/* What had content is set aside once more. */
		offset = lp_prng_below(&prng, PART_BYTES / LP_BLOCK_BYTES - 64) * LP_BLOCK_BYTES;
		memset(should + offset, 0, 32 * LP_BLOCK_BYTES);
		lp_test_ok(change(&rig, LP_CHANGE_PUNCH, ino, offset, 32 * LP_BLOCK_BYTES));
		lp_test_ok(prealloc(&rig, ino, offset, 32 * LP_BLOCK_BYTES));
	}
	expect_content(&rig, ino, PART_BYTES - ODD);
	wait_used(&rig, used);
	finish(&rig);
}

/* The largest write there is, over blocks of which some have content. */
static void test_largest_write(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	start(&rig, LP_PATH_AUTO);
	lp_test_ok(prealloc(&rig, ino, 0, FILE_BYTES));
	fill(&rig, 0);
	for (uint64_t at = ODD; at < FILE_BYTES; at += FILE_BYTES / 50)
		write_some(&rig, at, 100);
	uint64_t used = lpi_store_rig_used_blocks(&rig);
	write_some(&rig, 0, FILE_BYTES);
	expect_content(&rig, ino, FILE_BYTES);
	/* Now all of it has: that is more than a frame takes, and nothing happens. */
	lp_test_err(-ENOSPC, try_write(&rig, 0, FILE_BYTES));
	expect_content(&rig, ino, FILE_BYTES);
	assert_int_equal(lpi_store_rig_used_blocks(&rig), used);
	finish(&rig);
}

/* Space behind the end is used by what is appended. */
static void test_appended(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lpi_pay pay;
	start(&rig, LP_PATH_AUTO);
	write_some(&rig, 0, ODD);
	lp_test_ok(prealloc(&rig, ino, 0, PART_BYTES));
	fill(&rig, 0);
	for (uint64_t at = ODD; at < PART_BYTES;) {
		uint64_t length = LP_MIN(3 * PIECE_BYTES / 2, PART_BYTES - at);
		memset(fresh, (int)(at / ODD), length);
		assert_true(lpi_pay_make(&pay, rig.hand.bufs, fresh, LP_STORE_APPEND, length,
					 LP_BUF_SMALL));
		const struct lp_change append =
			lpi_write_change(ino, LP_STORE_APPEND, length, &pay);
		lp_test_ok(lpi_hand_change(&rig.hand, append));
		lpi_pay_drop(&pay);
		memcpy(should + at, fresh, length);
		at += length;
	}
	expect_content(&rig, ino, PART_BYTES);
	assert_int_equal(change(&rig, LP_CHANGE_TRUNCATE, ino, ODD, 0), 0);
	finish(&rig);
}

/* --- What it has not ------------------------------------------------------------------------- */

#define SHARED_BYTES (UINT64_C(8) * LP_BLOCK_BYTES)

/* 8 blocks that are shared, as many of its own, as many set aside, 3 that are holes, and one. */
static void make_motley(struct lpi_store_rig *rig)
{
	const struct lp_change share = {.type = LP_CHANGE_CLONE,
					.ino = cloned,
					.clone = {.src = ino, .length = SHARED_BYTES}};
	write_some(rig, 0, 16 * LP_BLOCK_BYTES);
	create(rig, cloned);
	lp_test_ok(lpi_hand_change(&rig->hand, share));
	lp_test_ok(prealloc(rig, ino, 16 * LP_BLOCK_BYTES, 8 * LP_BLOCK_BYTES));
	lp_test_ok(prealloc(rig, ino, 27 * LP_BLOCK_BYTES, LP_BLOCK_BYTES));
}

/* Blocks with other owners, and holes, need space. It is not there, and nothing has happened; or as
 * many blocks as they are, and it is done. */
static void test_shared_and_holes(void **state)
{
	(void)state;
	static uint8_t before[SHARED_BYTES];
	for (int i = 0; i < 2 * (int)LP_PATH_CNT; i++) {
		struct lpi_store_rig rig;
		uint64_t left = i % 2 == 0 ? 10 : 11;
		uint64_t length = 28 * LP_BLOCK_BYTES - 2 * ODD;
		start(&rig, (enum lp_write_path)(i / 2));
		make_motley(&rig);
		fill(&rig, left);
		uint64_t used = lpi_store_rig_used_blocks(&rig);
		memcpy(before, should, sizeof(before));
		if (i % 2 == 0) {
			lp_test_err(-ENOSPC, try_write(&rig, ODD, length));
			expect_content(&rig, ino, 16 * LP_BLOCK_BYTES);
		} else {
			write_some(&rig, ODD, length);
			expect_content(&rig, ino, ODD + length);
		}
		assert_int_equal(lpi_store_rig_used_blocks(&rig), i % 2 == 0 ? used : used + left);
		assert_int_equal(lpi_hand_read(&rig.hand, cloned, 0, sizeof(before), got),
				 sizeof(before));
		assert_memory_equal(got, before, sizeof(before));
		finish(&rig);
	}
}

/* --- The power fails ------------------------------------------------------------------------- */

#define CUT_BLOCKS UINT64_C(120)
#define CUT_BYTES  (CUT_BLOCKS * LP_BLOCK_BYTES)

static uint8_t old[CUT_BYTES];

static void judge(struct lp_bdev *left, bool is_acknowledged)
{
	struct lpi_store_rig rig;
	lpi_store_rig_init(&rig, left, 4);
	lp_test_ok(lpi_store_rig_open(&rig));
	assert_int_equal(lpi_hand_read(&rig.hand, ino, 0, CUT_BYTES, got), CUT_BYTES);
	bool is_new = memcmp(got, should, CUT_BYTES) == 0;
	assert_true(is_new || (!is_acknowledged && memcmp(got, old, CUT_BYTES) == 0));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

/* One write over blocks of all kinds: what is there afterwards is as before, or as after. */
static void test_whole_at_a_cut(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_sim_cutter *cutter = NULL;
	start(&rig, LP_PATH_AUTO);
	lp_test_ok(prealloc(&rig, ino, 0, CUT_BYTES));
	lp_test_ok(change(&rig, LP_CHANGE_TRUNCATE, ino, CUT_BYTES + 1, 0));
	for (uint64_t at = 0; at < CUT_BYTES; at += 6 * LP_BLOCK_BYTES)
		write_some(&rig, at, LP_BLOCK_BYTES + ODD);
	lp_test_ok(change(&rig, LP_CHANGE_PUNCH, ino, 9 * LP_BLOCK_BYTES, LP_BLOCK_BYTES));
	fill(&rig, 1);
	memcpy(old, should, CUT_BYTES);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lp_sim_trim_log(lp_sim_of(rig.bdev));
	lp_test_ok(lpi_store_rig_open(&rig));
	write_some(&rig, ODD, CUT_BYTES - 2 * ODD);
	uint64_t acknowledged = lp_sim_event_count(lp_sim_of(rig.bdev));
	expect_full(&rig);
	for (int i = 0; i < 2000; i++) /* write-back */
		lpi_hand_turn(&rig.hand);
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
	uint64_t step = 1 + lp_sim_event_count(lp_sim_of(rig.bdev)) / CUTS;
	for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
		if (n % step == 0)
			judge(lp_sim_cutter_cut(cutter, n),
			      lp_sim_cutter_event(cutter) >= acknowledged);
	}
	lp_sim_cutter_free(cutter);
	lp_test_ok(lpi_store_rig_close(&rig, true));
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_written_by_halves), cmocka_unit_test(test_written_at_random),
		cmocka_unit_test(test_largest_write),     cmocka_unit_test(test_appended),
		cmocka_unit_test(test_shared_and_holes),  cmocka_unit_test(test_whole_at_a_cut),
	};
	return lp_test_main(tests, "store/block/write/set_aside");
}
