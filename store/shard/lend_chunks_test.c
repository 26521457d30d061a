/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is free on one shard another one can have to the last block, also in chunks that are
 * not empty (rule S5); it comes back; and a crash at any moment leaves each block with one owner,
 * who has what was acknowledged.
 * Method: two shards on one simulated device. One takes all of it and frees every other block. The
 * other one takes these, and some go back. The device is cut at many events, both shards are opened
 * on what is left, and their blocks are compared with an array that says what was acknowledged. */
#include "store/shard/shard_rig_test.h"

#include "store/setup/mkfs.h"
#include "store/shard/shard_impl.h"

#define CUTS        48u
#define SEED        UINT64_C(33)
#define BLOCKS_MAX  UINT64_C(24576)
#define EXTENTS_MAX 4096u
#define FRAME_MAX   64u

struct pair {
	struct lpi_shard_rig rigs[2]; /* the second is of the first's machine */
	uint64_t base;
	uint64_t block_cnt; /* of all chunks */
};

/* All but the second shard, which *ret says how to open. */
static void pair_open_first(struct pair *pair, struct lp_bdev *bdev, struct lp_shard_options *ret)
{
	struct lpi_shard_rig *first = &pair->rigs[0];
	lpi_shard_rig_init(first, bdev);
	lp_test_ok(lpi_shard_rig_open(first));
	pair->rigs[1] = *first;
	pair->rigs[1].shard = NULL;
	*ret = (struct lp_shard_options){.reactor = first->reactor,
					 .workers = first->workers,
					 .devices = &first->devices,
					 .bufs = first->bufs,
					 .shard_idx = 1,
					 .sim_clock = &first->clock.clock,
					 .index_cache_bytes = 1 << 20,
					 .index_buffer_bytes = 1 << 16,
					 .deferred_blocks_max = 64,
					 .files_reserve_bytes = 1 << 20};
	const struct lp_disk_label *label = &first->devices.label[LP_ROLE_DATA];
	pair->base = label->chunk_base;
	pair->block_cnt = (uint64_t)label->chunk_cnt * label->chunk_blocks;
	assert_true(pair->block_cnt <= BLOCKS_MAX);
}

static void pair_open(struct pair *pair, struct lp_bdev *bdev)
{
	struct lp_shard_options second;
	pair_open_first(pair, bdev, &second);
	lp_test_ok(lp_shard_open(&second, &pair->rigs[1].shard));
}

static void pair_new(struct pair *pair)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	struct lp_bdev *bdev = lpi_shard_rig_device(SEED, LP_RIG_SIZE_BYTES);
	const struct lp_mkfs_options mkfs = {
		.bdev = {bdev}, .shard_cnt = 2, .log_bytes = LP_RIG_LOG_BYTES, .seed = {1}};
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
	pair_open(pair, bdev);
}

/* abandon: as a crash would. The device stays with the first rig. */
static void pair_close(struct pair *pair, bool abandon)
{
	lp_test_ok(lp_shard_close(pair->rigs[1].shard, abandon));
	lp_test_ok(lpi_shard_rig_close(&pair->rigs[0], abandon));
}

static void pair_reopen(struct pair *pair, bool abandon)
{
	pair_close(pair, abandon);
	struct lp_bdev *bdev = pair->rigs[0].bdev;
	pair->rigs[0].bdev = NULL;
	lpi_shard_rig_fini(&pair->rigs[0]);
	pair_open(pair, bdev);
}

static void turn(struct pair *pair)
{
	(void)lp_shard_sim_run_one(pair->rigs[1].shard);
	lpi_shard_rig_turn(&pair->rigs[0]);
}

static void reserve(struct pair *pair, uint32_t shard, const struct lp_commit_need *need)
{
	int turns = 0;
	while (!lp_commit_reserve(lp_shard_commit(pair->rigs[shard].shard), need)) {
		turn(pair);
		assert_true(++turns < LP_RIG_TURNS_MAX);
	}
}

static void await(struct pair *pair, const struct lpi_shard_told *told)
{
	for (int i = 0; i < LP_RIG_TURNS_MAX && !told->done; i++)
		turn(pair);
	assert_true(told->done);
}

static void sync_one(struct pair *pair, uint32_t shard)
{
	struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
	lp_commit_wait(lp_shard_commit(pair->rigs[shard].shard), &told.waiter);
	await(pair, &told);
	lp_test_ok(told.result);
}

static void sync_both(struct pair *pair)
{
	sync_one(pair, 0);
	sync_one(pair, 1);
}

static const struct lp_space *space_of(const struct pair *pair, uint32_t shard)
{
	return lp_shard_space(pair->rigs[shard].shard);
}

static uint64_t free_of(const struct pair *pair, uint32_t shard)
{
	return lp_alloc_free_blocks(lp_space_alloc(space_of(pair, shard)));
}

/* Up to `max` blocks side by side, and their change is put; or -ENOSPC. */
static int take(struct pair *pair, uint32_t shard, uint64_t max, struct lp_extent *ret)
{
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	const struct lp_commit_need need = {.change_cnt = 1};
	uint64_t got;
	while (lp_space_take(lp_shard_space(pair->rigs[shard].shard), max, &options, ret, &got) <
	       0) {
		struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
		lp_shard_wait_space(pair->rigs[shard].shard, &told.waiter);
		await(pair, &told);
		if (told.result < 0)
			return told.result;
	}
	reserve(pair, shard, &need);
	lp_shard_taken(pair->rigs[shard].shard, *ret);
	return 0;
}

/* All that there is. Returns how many extents. */
static uint32_t take_all(struct pair *pair, uint32_t shard, struct lp_extent *ret,
			 uint64_t *ret_cnt)
{
	uint32_t cnt = 0;
	uint64_t blocks = 0;
	for (; cnt < EXTENTS_MAX; cnt++) {
		int err = take(pair, shard, 256, &ret[cnt]);
		if (err == -ENOSPC)
			break;
		lp_test_ok(err);
		blocks += ret[cnt].cnt;
		if (cnt % FRAME_MAX == 0)
			sync_both(pair);
	}
	assert_true(cnt < EXTENTS_MAX);
	sync_both(pair);
	*ret_cnt = blocks;
	return cnt;
}

static void free_block(struct pair *pair, uint32_t shard, struct lp_extent extent)
{
	const struct lp_commit_need need = {.change_cnt = 1};
	reserve(pair, shard, &need);
	lp_shard_freed(pair->rigs[shard].shard, extent);
}

static uint32_t split_cnt(const struct pair *pair)
{
	struct lp_chunks_stats stats;
	lp_chunks_stats(pair->rigs[0].devices.chunks[LP_ROLE_DATA], &stats);
	return stats.split_cnt;
}

/* Every other block of these extents, a few thousand at most. */
static uint64_t free_holes(struct pair *pair, uint32_t shard, const struct lp_extent *extents,
			   uint32_t cnt)
{
	uint64_t blocks = 0;
	for (uint32_t i = 0; i < cnt; i++) {
		for (uint64_t k = 0; k < extents[i].cnt; k += 2, blocks++)
			free_block(pair, shard, (struct lp_extent){extents[i].block + k, 1});
		sync_both(pair);
	}
	return blocks;
}

/* To the last block, but for those that each keeps; and back again. */
static void test_all_that_is_free(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	static struct lp_extent others[EXTENTS_MAX];
	struct pair pair;
	uint64_t blocks = 0;
	uint64_t got = 0;
	pair_new(&pair);
	uint32_t cnt = take_all(&pair, 1, mine, &blocks);
	assert_true(blocks > BLOCKS_MAX / 2);
	assert_int_equal(free_of(&pair, 1), 0);
	/* An idle shard that needs nothing has nothing. */
	assert_true(free_of(&pair, 0) <= LP_SHARD_CUT_BLOCKS);
	uint64_t freed = free_holes(&pair, 1, mine, 8) + free_of(&pair, 0);
	uint32_t other_cnt = take_all(&pair, 0, others, &got);
	assert_true(got + LP_SHARD_CUT_BLOCKS >= freed);
	assert_int_equal(got + free_of(&pair, 1), freed);
	assert_true(split_cnt(&pair) > 0);
	/* Each knows it at the next opening, too. */
	pair_reopen(&pair, false);
	for (uint32_t i = 0; i < other_cnt; i++) {
		assert_true(lp_space_is_taken(space_of(&pair, 0), others[i]));
		assert_false(lp_space_has(space_of(&pair, 1), others[i]));
	}
	/* They are lent back to whoever needs them. */
	for (uint32_t i = 0; i < other_cnt; i++) {
		free_block(&pair, 0, others[i]);
		if (i % FRAME_MAX == 0)
			sync_both(&pair);
	}
	sync_both(&pair);
	uint64_t again = 0;
	(void)take_all(&pair, 1, others, &again);
	assert_true(again + LP_SHARD_CUT_BLOCKS >= freed);
	(void)cnt;
	pair_close(&pair, false);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* Blocks that are not needed go home, until no chunk is split any more, and the chunks can be
 * returned as a whole. */
static void test_they_go_home(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	static struct lp_extent others[EXTENTS_MAX];
	struct pair pair;
	uint64_t blocks = 0;
	pair_new(&pair);
	uint32_t cnt = take_all(&pair, 1, mine, &blocks);
	(void)free_holes(&pair, 1, mine, 4);
	uint32_t other_cnt = take_all(&pair, 0, others, &blocks);
	assert_true(split_cnt(&pair) > 0);
	for (uint32_t i = 0; i < other_cnt; i++)
		free_block(&pair, 0, others[i]);
	for (uint32_t i = 0; i < cnt; i++) {
		for (uint64_t k = i < 4; k < mine[i].cnt; k += i < 4 ? 2 : mine[i].cnt)
			free_block(&pair, 1,
				   (struct lp_extent){mine[i].block + k, i < 4 ? 1 : mine[i].cnt});
		sync_both(&pair);
	}
	/* The one returns chunks, and then the other one can do without its pieces. */
	for (uint32_t i = 0; i < 4; i++) {
		struct lp_shard *shard = pair.rigs[1 - i % 2].shard;
		while (lpi_shard_checkpoint_some(shard))
			sync_both(&pair);
		sync_both(&pair);
		lpi_shard_flush_index(shard);
		for (int k = 0; k < 1000; k++)
			turn(&pair);
	}
	for (int i = 0; i < 100000 && split_cnt(&pair) > 0; i++)
		turn(&pair);
	assert_int_equal(split_cnt(&pair), 0);
	pair_close(&pair, false);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

static void free_all(struct pair *pair, uint32_t shard, const struct lp_extent *extents,
		     uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		free_block(pair, shard, extents[i]);
		if (i % FRAME_MAX == 0)
			sync_both(pair);
	}
	sync_both(pair);
}

/* Of how many chunks the shard has every block, though another one leased them. */
static uint32_t whole_guest_cnt(const struct pair *pair, uint32_t shard)
{
	const struct lp_space *space = space_of(pair, shard);
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < lp_space_config(space)->chunk_cnt_max; i++)
		cnt += lp_space_is_guest(space, i) && lp_space_mine_map(space, i) == NULL;
	return cnt;
}

/* A guest that has every block of a chunk is a guest all the same. It does not return the chunk,
 * which is not its own; it gives the blocks back. A start between changes nothing. */
static void guest_of_all(bool reopens)
{
	static struct lp_extent mine[EXTENTS_MAX];
	static struct lp_extent first[EXTENTS_MAX];
	static struct lp_extent second[EXTENTS_MAX];
	struct pair pair;
	uint64_t blocks = 0;
	pair_new(&pair);
	(void)take_all(&pair, 1, mine, &blocks);
	(void)free_holes(&pair, 1, mine, 8);
	uint32_t first_cnt = take_all(&pair, 0, first, &blocks);
	for (uint32_t i = 0; i < 8; i++) {
		for (uint64_t k = 1; k < mine[i].cnt; k += 2)
			free_block(&pair, 1, (struct lp_extent){mine[i].block + k, 1});
		sync_both(&pair);
	}
	uint32_t second_cnt = take_all(&pair, 0, second, &blocks);
	uint32_t whole_cnt = whole_guest_cnt(&pair, 0);
	assert_true(whole_cnt > 0);
	if (reopens)
		pair_reopen(&pair, false);
	assert_int_equal(whole_guest_cnt(&pair, 0), whole_cnt);
	free_all(&pair, 0, first, first_cnt);
	free_all(&pair, 0, second, second_cnt);
	uint64_t before = free_of(&pair, 0) + free_of(&pair, 1);
	(void)take_all(&pair, 1, first, &blocks);
	assert_int_equal(blocks + free_of(&pair, 0), before);
	assert_true(free_of(&pair, 0) <= LP_SHARD_CUT_BLOCKS);
	pair_reopen(&pair, false);
	pair_close(&pair, false);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

static void test_guest_of_all(void **state)
{
	(void)state;
	guest_of_all(false);
	guest_of_all(true);
}

/* The second shard has all of the device, with holes; the first one has nothing left. */
static void holes_of_one(struct pair *pair, struct lp_extent *mine, uint32_t hole_cnt)
{
	struct lp_extent got;
	uint64_t blocks = 0;
	pair_new(pair);
	(void)take_all(pair, 1, mine, &blocks);
	while (free_of(pair, 0) > 0)
		lp_test_ok(take(pair, 0, 256, &got));
	(void)free_holes(pair, 1, mine, hole_cnt);
}

/* The writes of the table's second slot fail so often, with that fault. */
static void fail_second_slot(const struct pair *pair, enum lp_sim_fault fault, uint32_t fire_cnt)
{
	const struct lp_disk_label *label = &pair->rigs[0].devices.label[LP_ROLE_DATA];
	const struct lp_sim_rule rule = {
		.fault = fault,
		.fire_cnt = fire_cnt,
		.offset_bytes = (label->table_block + label->table_slot_blocks) * LP_BLOCK_BYTES,
		.length_bytes = label->table_slot_blocks * LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(lp_sim_of(pair->rigs[0].bdev), &rule);
}

/* A gift is in the first slot when the second one finds no space on the host. Then the giver does
 * not have these blocks any more: the next start finds them with the receiver. */
static void test_half_written_gift(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	const struct lp_commit_need need = {.change_cnt = 1};
	struct lp_extent one;
	struct pair pair;
	uint64_t cnt;
	holes_of_one(&pair, mine, 1);
	uint64_t before = free_of(&pair, 1);
	fail_second_slot(&pair, LP_SIM_ENOSPC, 1);
	assert_true(take(&pair, 0, 1, &one) < 0);
	assert_true(free_of(&pair, 1) < before);
	struct lp_extent got[128];
	uint32_t got_cnt = 0;
	while (lp_space_take(lp_shard_space(pair.rigs[1].shard), 1, &options, &got[got_cnt], &cnt) >
	       0) {
		reserve(&pair, 1, &need);
		lp_shard_taken(pair.rigs[1].shard, got[got_cnt++]);
		assert_true(got_cnt < 128);
	}
	assert_true(got_cnt > 0);
	sync_one(&pair, 1);
	lp_sim_rules_clear(lp_sim_of(pair.rigs[0].bdev));
	pair_reopen(&pair, true);
	for (uint32_t i = 0; i < got_cnt; i++) {
		assert_true(lp_space_is_taken(space_of(&pair, 1), got[i]));
		assert_false(lp_space_has(space_of(&pair, 0), got[i]));
	}
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* Until the second shard has answered what was asked on behalf of the first one. */
static void ask_second(struct pair *pair)
{
	struct lp_chunks *chunks = pair->rigs[0].devices.chunks[LP_ROLE_DATA];
	assert_true(lp_chunks_ask(chunks, 0));
	for (int i = 0; i < LP_RIG_TURNS_MAX && lp_chunks_is_asking(chunks, 0); i++)
		turn(pair);
	assert_false(lp_chunks_is_asking(chunks, 0));
	assert_int_equal(lp_shard_error(pair->rigs[1].shard), 0);
}

/* Once the table has failed nothing is written, so nothing can have been given. */
static void test_gifts_of_a_failed_table(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	struct pair pair;
	holes_of_one(&pair, mine, 2);
	uint64_t before = free_of(&pair, 1);
	fail_second_slot(&pair, LP_SIM_EIO, 1);
	ask_second(&pair);
	uint64_t after = free_of(&pair, 1);
	assert_true(after < before && after > LP_SHARD_CUT_BLOCKS);
	ask_second(&pair);
	assert_int_equal(free_of(&pair, 1), after);
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* One block goes from here to there, as an overwrite does it. */
static void overwrite(struct pair *pair, uint32_t shard, struct lp_extent *at)
{
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 1};
	const struct lp_commit_need need = {.change_cnt = 2};
	struct lp_extent old = *at;
	uint64_t cnt;
	reserve(pair, shard, &need);
	if (lp_space_take(lp_shard_space(pair->rigs[shard].shard), 1, &options, at, &cnt) < 0) {
		*at = old;
		return;
	}
	lp_shard_taken(pair->rigs[shard].shard, *at);
	lp_shard_freed(pair->rigs[shard].shard, old);
	sync_one(pair, shard);
}

/* Wherever the power fails both shards can be opened, and no block has two owners. */
static void cut_and_open(struct pair *pair, uint32_t cut_cnt)
{
	struct lp_sim *sim = lp_sim_of(pair->rigs[0].bdev);
	struct lp_sim_cutter *cutter = NULL;
	uint64_t first = lp_sim_event_first(sim);
	uint64_t every = (lp_sim_event_count(sim) - first) / cut_cnt + 1;
	lp_test_ok(lp_sim_cutter_new(sim, NULL, &cutter));
	for (bool more = true; more; more = lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if ((event - first) % every != every - 1)
			continue;
		struct pair left;
		pair_open(&left, lp_sim_cutter_cut(cutter, event));
		for (uint64_t i = 0; i < left.block_cnt; i++) {
			struct lp_extent block = {left.base + i, 1};
			assert_false(lp_space_has(space_of(&left, 0), block) &&
				     lp_space_has(space_of(&left, 1), block));
		}
		pair_close(&left, true);
		lpi_shard_rig_fini(&left.rigs[0]);
	}
	lp_sim_cutter_free(cutter);
}

/* A shard that is busy when it is asked gives all the same. */
static void test_busy(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
	struct lp_extent got;
	struct pair pair;
	uint32_t cnt = 0;
	holes_of_one(&pair, mine, 1);
	lp_sim_trim_log(lp_sim_of(pair.rigs[0].bdev));
	struct lp_extent at = {mine[0].block + 1, 1};
	lp_shard_wait_space(pair.rigs[0].shard, &told.waiter);
	for (; cnt < LP_RIG_TURNS_MAX && !told.done; cnt++) {
		overwrite(&pair, 1, &at);
		turn(&pair);
	}
	assert_true(cnt > 1);
	lp_test_ok(told.result);
	lp_test_ok(take(&pair, 0, 1, &got));
	for (uint32_t i = 0; i < FRAME_MAX; i++)
		overwrite(&pair, 1, &at);
	sync_both(&pair);
	cut_and_open(&pair, CUTS);
	pair_reopen(&pair, true);
	assert_true(lp_space_is_used(space_of(&pair, 0), got));
	assert_true(lp_space_is_used(space_of(&pair, 1), at));
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* A shard that was busy when it was asked gives when it is asked again later, though it has as much
 * in use as then. */
static void test_busy_and_then_idle(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	struct lpi_shard_told told = {.waiter.told = lpi_shard_told};
	struct lp_extent got;
	struct pair pair;
	holes_of_one(&pair, mine, 1);
	struct lp_extent at = {mine[0].block + 1, 1};
	lp_shard_wait_space(pair.rigs[0].shard, &told.waiter);
	for (int i = 0; i < LP_RIG_TURNS_MAX && !told.done; i++) {
		overwrite(&pair, 1, &at);
		turn(&pair);
	}
	assert_true(told.done);
	sync_one(&pair, 1);
	lp_test_ok(take(&pair, 0, 1, &got));
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* --- One question for many -------------------------------------------------------------------- */

/* Neither shard has anything free. */
static void full_pair(struct pair *pair, struct lp_extent *mine)
{
	struct lp_extent got;
	holes_of_one(pair, mine, 0);
	for (uint32_t shard = 0; shard < 2; shard++) {
		while (take(pair, shard, 256, &got) == 0)
			sync_both(pair);
	}
	assert_int_equal(free_of(pair, 0) + free_of(pair, 1), 0);
}

static void wait_space(struct pair *pair, uint32_t shard, struct lpi_shard_told *told)
{
	*told = (struct lpi_shard_told){
		.waiter = {.told = lpi_shard_told,
			   .begun = lp_shard_questions(pair->rigs[shard].shard)}};
	lp_shard_wait_space(pair->rigs[shard].shard, &told->waiter);
}

/* Rule S5: a question that was in vain answers all who had begun before it was put. Who begins
 * later asks again, and gets what was freed since. Then what was said before holds no more. */
static void test_answers_all_who_had_begun(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	struct lpi_shard_told told;
	struct lp_extent got;
	struct pair pair;
	full_pair(&pair, mine);
	struct lp_shard *first = pair.rigs[0].shard;
	uint64_t begun = lp_shard_questions(first);
	assert_false(lp_shard_has_no_space(first, begun));
	wait_space(&pair, 0, &told);
	await(&pair, &told);
	lp_test_err(-ENOSPC, told.result);
	assert_int_equal(lp_shard_questions(first), begun + 1);
	for (int i = 0; i < 64; i++)
		assert_true(lp_shard_has_no_space(first, begun));
	assert_false(lp_shard_has_no_space(first, begun + 1));
	/* What is freed now is freed after he had begun. */
	(void)free_holes(&pair, 1, mine, 1);
	assert_true(lp_shard_has_no_space(first, begun));
	wait_space(&pair, 0, &told);
	await(&pair, &told);
	lp_test_ok(told.result);
	assert_int_equal(lp_shard_questions(first), begun + 2);
	assert_false(lp_shard_has_no_space(first, begun));
	lp_test_ok(take(&pair, 0, 1, &got));
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* Rule S5: whoever begins while a question is on its way is not answered by it: what was freed
 * before he began may have been freed after the others had looked. */
static void test_began_during_a_question(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	struct lpi_shard_told early;
	struct lpi_shard_told late;
	struct pair pair;
	full_pair(&pair, mine);
	struct lp_shard *first = pair.rigs[0].shard;
	uint64_t begun = lp_shard_questions(first);
	wait_space(&pair, 0, &early);
	wait_space(&pair, 0, &late);
	await(&pair, &early);
	lp_test_err(-ENOSPC, early.result);
	assert_false(late.done);
	await(&pair, &late);
	lp_test_err(-ENOSPC, late.result);
	assert_int_equal(lp_shard_questions(first), begun + 2);
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* Rule S5: who keeps what he has for waiters of his own has not said that there is nothing. */
static void test_own_waiters_are_no_answer(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	struct lpi_shard_told told[2];
	struct pair pair;
	full_pair(&pair, mine);
	for (uint64_t k = 0; k <= 2 * LP_SHARD_CUT_BLOCKS; k++)
		free_block(&pair, 1, (struct lp_extent){mine[0].block + 2 * k, 1});
	sync_both(&pair);
	assert_true(free_of(&pair, 1) > LP_SHARD_CUT_BLOCKS);
	wait_space(&pair, 1, &told[1]);
	wait_space(&pair, 0, &told[0]);
	for (int i = 0; i < LP_RIG_TURNS_MAX && !told[0].done; i++) {
		turn(&pair);
		if (told[1].done) /* somebody always wants more than there is */
			wait_space(&pair, 1, &told[1]);
	}
	lp_test_err(-ENOSPC, told[0].result);
	assert_false(lp_shard_has_no_space(pair.rigs[0].shard, told[0].waiter.begun));
	/* When they have been refused he gives what he has. */
	await(&pair, &told[1]);
	lp_test_err(-ENOSPC, told[1].result);
	assert_true(lp_shard_has_no_space(pair.rigs[1].shard, told[1].waiter.begun));
	wait_space(&pair, 0, &told[0]);
	await(&pair, &told[0]);
	lp_test_ok(told[0].result);
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

/* Nothing can be said while space is on its way from one to the other: neither has it then. */
static void test_on_its_way(void **state)
{
	(void)state;
	static struct lp_extent mine[EXTENTS_MAX];
	struct lpi_shard_told told;
	struct pair pair;
	full_pair(&pair, mine);
	struct lp_shard *first = pair.rigs[0].shard;
	struct lp_chunks *chunks = pair.rigs[0].devices.chunks[LP_ROLE_DATA];
	uint64_t begun = lp_shard_questions(first);
	wait_space(&pair, 0, &told);
	await(&pair, &told);
	assert_true(lp_shard_has_no_space(first, begun));
	/* A chunk is out of its space, and the table has it not yet. */
	first->reclaim.chunk_cnt = 1;
	assert_false(lp_shard_has_no_space(first, begun));
	first->reclaim.chunk_cnt = 0;
	assert_true(lp_shard_has_no_space(first, begun));
	/* Asked for nobody: the second gives, and nobody has taken it up yet. */
	(void)free_holes(&pair, 1, mine, 1);
	assert_true(lp_chunks_ask(chunks, 0));
	for (int i = 0; i < LP_RIG_TURNS_MAX && lp_chunks_gift_blocks(chunks, 0) == 0; i++)
		turn(&pair);
	assert_int_equal(free_of(&pair, 0), 0);
	assert_false(lp_shard_has_no_space(first, begun));
	/* A shard that has not taken up what it was given has not said that it has nothing. */
	uint64_t evasions = lp_chunks_evasions(chunks, 1);
	assert_true(lp_chunks_ask(chunks, 1));
	for (int i = 0; i < LP_RIG_TURNS_MAX && lp_chunks_is_asking(chunks, 1); i++)
		(void)lp_reactor_turn(pair.rigs[0].reactor, false);
	assert_true(lp_chunks_evasions(chunks, 1) > evasions);
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

static void ignore(void *arg)
{
	(void)arg;
}

/* The table says that the block is the first shard's; its owner is not asked. */
static void steal_from_second(struct lp_bdev *bdev, const struct lp_disk_label *label,
			      uint64_t block)
{
	const struct lp_chunks_options options = {.label = label};
	uint64_t words[LP_SPACE_CHUNK_BLOCKS_MAX / 64] = {0};
	struct lp_chunk_blocks one = {.shard_idx = 0};
	struct lp_chunks *chunks = NULL;
	lp_test_ok(lp_chunks_open(bdev, &options, &chunks));
	one.chunk_idx = lp_chunks_of_block(chunks, block);
	lp_bitmap_init(&one.blocks, words, label->chunk_blocks);
	uint64_t at = block - lp_chunks_extent(chunks, one.chunk_idx).block;
	lp_bitmap_set(&one.blocks, at, at + 1);
	lp_chunks_listen(chunks, 0, ignore, NULL);
	lp_test_ok(lp_chunks_give(chunks, 1, &one, 1));
	lp_chunks_close(chunks);
}

/* A payload in the log, or a record in the index, for a block that another shard has: refused. That
 * the rest of the chunk is the shard's own makes no difference. */
static void payload_of_a_stolen_block(enum lp_deferred_store kind)
{
	struct lp_shard_options second;
	struct lp_commit_need need = {.data_cnt = 0};
	struct lp_extent got;
	struct pair pair;
	pair_new(&pair);
	lp_test_ok(take(&pair, 1, 1, &got));
	sync_both(&pair);
	struct lp_extent stolen = {got.block + 1, 1};
	assert_true(lp_alloc_is_free(lp_space_alloc(space_of(&pair, 1)), stolen));
	lp_shard_set_deferred_store(pair.rigs[1].shard, kind);
	lp_shard_defer_need(pair.rigs[1].shard, 1, &need);
	reserve(&pair, 1, &need);
	lpi_shard_defer(&pair.rigs[1], stolen.block, 7);
	sync_both(&pair);
	const struct lp_disk_label label = pair.rigs[0].devices.label[LP_ROLE_DATA];
	pair_close(&pair, true);
	struct lp_bdev *bdev = pair.rigs[0].bdev;
	pair.rigs[0].bdev = NULL;
	lpi_shard_rig_fini(&pair.rigs[0]);
	steal_from_second(bdev, &label, stolen.block);
	pair_open_first(&pair, bdev, &second);
	lp_test_err(-EUCLEAN, lp_shard_open(&second, &pair.rigs[1].shard));
	lp_test_ok(lpi_shard_rig_close(&pair.rigs[0], true));
	lpi_shard_rig_fini(&pair.rigs[0]);
}

static void test_payload_of_a_stolen_block(void **state)
{
	(void)state;
	payload_of_a_stolen_block(LP_DEFERRED_LOG);
	payload_of_a_stolen_block(LP_DEFERRED_KV);
}

/* --- Cuts ------------------------------------------------------------------------------------- */

#define STEPS     16u
#define STEP_TAKE 12u
#define STEP_KEEP 3u

/* Of each block who has it, and what is in it: 0 nobody, else shard + 1 and a tag. */
struct history {
	uint8_t owner[STEPS + 1][BLOCKS_MAX];
	uint8_t tag[STEPS + 1][BLOCKS_MAX]; /* 0: nothing was written */
	uint64_t event[STEPS + 1];          /* the step is acknowledged from here on */
};

static struct history history;

static void note(const struct pair *pair, uint32_t step, struct lp_extent extent, uint32_t owner,
		 uint32_t tag)
{
	for (uint64_t i = 0; i < extent.cnt; i++) {
		history.owner[step][extent.block - pair->base + i] = (uint8_t)owner;
		history.tag[step][extent.block - pair->base + i] = (uint8_t)tag;
	}
}

static void write_block(struct pair *pair, uint32_t shard, uint64_t block, uint32_t tag)
{
	const struct lp_commit_need need = {.data_cnt = 1};
	reserve(pair, shard, &need);
	lpi_shard_defer(&pair->rigs[shard], block, (int)tag);
}

/* Takes and writes some blocks, and frees what was taken a few steps before: so blocks are given
 * away that the giver's log still speaks of. */
static void do_step(struct pair *pair, uint32_t step)
{
	static struct lp_extent taken[STEPS + 1][STEP_TAKE];
	uint32_t shard = step % 4 == 3 ? 1 : 0;
	memcpy(history.owner[step], history.owner[step - 1], BLOCKS_MAX);
	memcpy(history.tag[step], history.tag[step - 1], BLOCKS_MAX);
	for (uint32_t i = 0; i < STEP_TAKE; i++) {
		lp_test_ok(take(pair, shard, 1, &taken[step][i]));
		write_block(pair, shard, taken[step][i].block, step);
		note(pair, step, taken[step][i], shard + 1, step);
	}
	for (uint32_t i = 0; i < STEP_TAKE && step > STEP_KEEP; i++) {
		uint32_t whose = (step - STEP_KEEP) % 4 == 3 ? 1 : 0;
		free_block(pair, whose, taken[step - STEP_KEEP][i]);
		note(pair, step, taken[step - STEP_KEEP][i], 0, 0);
	}
	sync_both(pair);
	history.event[step] = lp_sim_event_count(lp_sim_of(pair->rigs[0].bdev));
}

static uint32_t owner_of(const struct pair *pair, struct lp_extent block)
{
	uint32_t owner = 0;
	for (uint32_t i = 0; i < 2; i++) {
		const struct lp_space *space = space_of(pair, i);
		if (!lp_space_has(space, block) || !lp_space_is_used(space, block))
			continue;
		assert_int_equal(owner, 0);
		owner = i + 1;
	}
	return owner;
}

/* Each block is as the last acknowledged step left it, or the one after that. */
static void judge(struct pair *pair, uint64_t event)
{
	uint32_t step = 0;
	while (step < STEPS && history.event[step + 1] <= event)
		step++;
	uint32_t next = LP_MIN(step + 1, STEPS);
	for (uint64_t i = 0; i < pair->block_cnt; i++) {
		struct lp_extent block = {pair->base + i, 1};
		uint32_t owner = owner_of(pair, block);
		assert_false(lp_space_has(space_of(pair, 0), block) &&
			     lp_space_has(space_of(pair, 1), block));
		bool is_old = owner == history.owner[step][i];
		bool is_new = owner == history.owner[next][i];
		if (!is_old && !is_new)
			print_error("event %llu, block %llu: owner %u, not %u or %u\n",
				    (unsigned long long)event, (unsigned long long)block.block,
				    owner, history.owner[step][i], history.owner[next][i]);
		assert_true(is_old || is_new);
		if (owner == 0)
			continue;
		uint32_t want = history.tag[is_new ? next : step][i];
		if (want == 0 || history.tag[step][i] != history.tag[next][i])
			continue;
		assert_int_equal(lpi_shard_rig_tag(&pair->rigs[owner - 1], block.block), want);
	}
}

/* The scene: all is the second shard's, and every other block of some of its chunks is free. */
static void set_scene(struct pair *pair)
{
	static struct lp_extent mine[EXTENTS_MAX];
	uint64_t blocks = 0;
	pair_new(pair);
	memset(&history, 0, sizeof(history));
	uint32_t cnt = take_all(pair, 1, mine, &blocks);
	for (uint32_t i = 0; i < cnt; i++)
		note(pair, 0, mine[i], 2, 0);
	while (free_of(pair, 0) > 0) {
		struct lp_extent extent;
		lp_test_ok(take(pair, 0, 256, &extent));
		note(pair, 0, extent, 1, 0);
	}
	/* What was in a block that goes away must not come back, over its next owner's. */
	for (uint32_t i = 0; i < 8; i++)
		write_block(pair, 1, mine[0].block + UINT64_C(2) * i, 99);
	sync_both(pair);
	(void)free_holes(pair, 1, mine, 1);
	for (uint64_t k = 0; k < mine[0].cnt; k += 2)
		note(pair, 0, (struct lp_extent){mine[0].block + k, 1}, 0, 0);
	lp_sim_trim_log(lp_sim_of(pair->rigs[0].bdev));
	history.event[0] = lp_sim_event_first(lp_sim_of(pair->rigs[0].bdev));
}

static void test_cuts(void **state)
{
	(void)state;
	struct pair pair;
	struct lp_sim_cutter *cutter = NULL;
	set_scene(&pair);
	for (uint32_t step = 1; step <= STEPS; step++)
		do_step(&pair, step);
	assert_true(split_cnt(&pair) > 0);
	struct lp_sim *sim = lp_sim_of(pair.rigs[0].bdev);
	uint64_t first = lp_sim_event_first(sim);
	uint64_t every = (history.event[STEPS] - first) / CUTS + 1;
	lp_test_ok(lp_sim_cutter_new(sim, NULL, &cutter));
	for (bool more = true; more; more = lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if ((event - first) % every != every - 1 || event > history.event[STEPS])
			continue;
		struct pair left;
		pair_open(&left, lp_sim_cutter_cut(cutter, event));
		judge(&left, event);
		pair_close(&left, true);
		lpi_shard_rig_fini(&left.rigs[0]);
	}
	lp_sim_cutter_free(cutter);
	pair_close(&pair, true);
	lpi_shard_rig_fini(&pair.rigs[0]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_all_that_is_free),
		cmocka_unit_test(test_they_go_home),
		cmocka_unit_test(test_guest_of_all),
		cmocka_unit_test(test_half_written_gift),
		cmocka_unit_test(test_gifts_of_a_failed_table),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_busy_and_then_idle),
		cmocka_unit_test(test_answers_all_who_had_begun),
		cmocka_unit_test(test_began_during_a_question),
		cmocka_unit_test(test_own_waiters_are_no_answer),
		cmocka_unit_test(test_on_its_way),
		cmocka_unit_test(test_payload_of_a_stolen_block),
		cmocka_unit_test(test_cuts),
	};
	return lp_test_main(tests, "store/shard/lend_chunks");
}
