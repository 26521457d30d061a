/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a pass reads all data that there is, from the device and no faster than it may; it names
 * each damaged block of each inode, and nothing else, whatever else is done meanwhile; it can be
 * ended, and gone on with, and leaves a cache of data as it is (P4).
 * Method: a store on a simulated device, in simulated time, with an inode of each kind; blocks
 * found on the device by what is in them, and flipped. */
#include "store/block/block_sim_test.h"

#include <stdalign.h>

#include "store/block/core/block.h"
#include "store/check/scrub.h"

#define BLOCK     LP_BLOCK_BYTES
#define BIG_BYTES (UINT64_C(700) << 10)
#define FAR       (UINT64_C(1) << 40)
#define BIG_NR    100u
#define CLONE_NR  101u
#define SPARSE_NR 102u
#define INLINE_NR 103u
#define DIR_NR    104u
#define LATE_NR   105u
#define INODES    6u

static uint8_t big[BIG_BYTES];

struct scene {
	struct lpi_store_rig rig;
	struct lp_scrub *scrub;
	uint32_t ended;
	uint32_t passed;
	struct lp_scrub_verdict bad; /* the last one */
};

static void has_ended(void *arg)
{
	((struct scene *)arg)->ended++;
}

static void has_passed(void *arg, const struct lp_scrub_verdict *verdict)
{
	struct scene *s = arg;
	s->passed++;
	if (verdict->error != 0)
		s->bad = *verdict;
}

static struct lp_ino ino_of(uint64_t nr)
{
	return (struct lp_ino){nr};
}

static void create(const struct scene *s, uint64_t nr, uint8_t type)
{
	const struct lp_attrs attrs = {.type = type,
				       .mode = 0600,
				       .nlink = 1,
				       .parent = ino_of(type == LP_INODE_TYPE_DIR ? nr : 0)};
	const struct lp_change change = {
		.type = LP_CHANGE_CREATE, .ino = ino_of(nr), .inode = {.attrs = &attrs}};
	lp_test_ok(lpi_hand_change(&s->rig.hand, change));
}

/* seed: how the store is; see lpi_store_rig_init(). */
static void setup(struct scene *s, uint64_t seed)
{
	struct lp_prng prng;
	*s = (struct scene){.ended = 0};
	lp_prng_init(&prng, seed);
	lp_prng_fill(&prng, big, sizeof(big));
	lpi_store_rig_start(&s->rig, seed);
	const struct lpi_hand *hand = &s->rig.hand;
	for (uint64_t nr = BIG_NR; nr < BIG_NR + INODES; nr++)
		create(s, nr, nr == DIR_NR ? LP_INODE_TYPE_DIR : LP_INODE_TYPE_FILE);
	lp_test_ok(lpi_hand_write(hand, ino_of(BIG_NR), 0, big, BIG_BYTES));
	lp_test_ok(lpi_hand_write(hand, ino_of(SPARSE_NR), 0, big + 77, BLOCK));
	lp_test_ok(lpi_hand_write(hand, ino_of(SPARSE_NR), FAR, big + 99, 3 * BLOCK));
	lp_test_ok(lpi_hand_write(hand, ino_of(INLINE_NR), 0, big, 100));
	lp_test_ok(lpi_hand_write(hand, ino_of(LATE_NR), 0, big + 55, 2 * BLOCK));
	const struct lp_change clone = {.type = LP_CHANGE_CLONE,
					.ino = ino_of(CLONE_NR),
					.clone = {.src = ino_of(BIG_NR), .length = BIG_BYTES}};
	lp_test_ok(lpi_hand_change(hand, clone));
	const struct lp_scrub_options options = {.reactor = hand->reactor,
						 .store = hand->store,
						 .ended = has_ended,
						 .passed = has_passed,
						 .ended_arg = s};
	lp_test_ok(lp_scrub_new(&options, &s->scrub));
}

static void teardown(struct scene *s)
{
	lp_scrub_free(s->scrub);
	lp_test_ok(lpi_store_rig_close(&s->rig, false));
	lpi_store_rig_fini(&s->rig);
}

/* Until no payload waits for its place. */
static void settle(const struct scene *s)
{
	struct lp_store_stats stats;
	do {
		lpi_hand_turn(&s->rig.hand);
		lp_store_read_stats(s->rig.hand.store, &stats);
	} while (stats.pending_bytes > 0);
}

static const struct lp_scrub_stats *pass(struct scene *s)
{
	uint32_t ended = s->ended;
	lp_test_ok(lp_scrub_start(s->scrub, ino_of(0)));
	lp_test_err(-EALREADY, lp_scrub_start(s->scrub, ino_of(0)));
	while (!lp_scrub_is_idle(s->scrub))
		lpi_hand_turn(&s->rig.hand);
	assert_int_equal(s->ended, ended + 1);
	return lp_scrub_stats(s->scrub);
}

/* Where the device has these bytes, all places. */
static uint32_t flip(const struct scene *s, const uint8_t *bytes)
{
	static alignas(LP_BLOCK_BYTES) uint8_t chunk[UINT64_C(1) << 20];
	uint32_t cnt = 0;
	for (uint64_t at = 0; at < LPI_STORE_RIG_BYTES; at += sizeof(chunk)) {
		lp_test_ok(lp_bdev_read_sync(s->rig.bdev, chunk, sizeof(chunk), at));
		for (uint64_t in = 0; in < sizeof(chunk); in += BLOCK) {
			if (memcmp(chunk + in, bytes, BLOCK) != 0)
				continue;
			lp_sim_rot(lp_sim_of(s->rig.bdev), BLOCK, at + in, 3);
			cnt++;
		}
	}
	return cnt;
}

/* Where they lie anywhere in a block. */
static uint32_t flip_part(const struct scene *s, const uint8_t *bytes, size_t len)
{
	static alignas(LP_BLOCK_BYTES) uint8_t block[LP_BLOCK_BYTES];
	uint32_t cnt = 0;
	for (uint64_t at = 0; at < LPI_STORE_RIG_BYTES; at += BLOCK) {
		lp_test_ok(lp_bdev_read_sync(s->rig.bdev, block, BLOCK, at));
		/* It may lie across two. */
		if (memmem(block, BLOCK, bytes, len / 2) == NULL &&
		    memmem(block, BLOCK, bytes + len / 2, len / 2) == NULL)
			continue;
		lp_sim_rot(lp_sim_of(s->rig.bdev), BLOCK, at, 3);
		cnt++;
	}
	return cnt;
}

/* --- What it finds ---------------------------------------------------------------------------- */

static void test_sound(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 12; seed++) {
		struct scene s;
		struct lp_store_stats before;
		struct lp_store_stats after;
		setup(&s, seed);
		lp_store_read_stats(s.rig.hand.store, &before);
		const struct lp_scrub_stats *stats = pass(&s);
		assert_true(stats->is_whole && !stats->is_running);
		assert_int_equal(stats->error, 0);
		assert_int_equal(stats->objects, INODES);
		assert_int_equal(stats->bytes, 2 * BIG_BYTES + (1 + 3 + 2) * BLOCK + 100);
		assert_int_equal(stats->damaged, 0);
		assert_int_equal(stats->at.nr, LATE_NR);
		assert_int_equal(stats->sum.passes, 1);
		assert_true(stats->ended_ns >= stats->began_ns && stats->began_ns > 0);
		lp_store_read_stats(s.rig.hand.store, &after);
		assert_int_equal(after.data_cache_bytes, before.data_cache_bytes);
		/* A second time all is read again. */
		assert_int_equal(pass(&s)->bytes, 2 * BIG_BYTES + (1 + 3 + 2) * BLOCK + 100);
		lp_store_read_stats(s.rig.hand.store, &after);
		assert_int_equal(after.data_cache_bytes, before.data_cache_bytes);
		assert_int_equal(stats->sum.passes, 2);
		assert_int_equal(stats->sum.objects, 2 * INODES);
		assert_int_equal(stats->sum.bytes, 2 * stats->bytes);
		teardown(&s);
	}
}

static bool is_named(const struct lp_scrub_stats *stats, uint64_t nr, uint64_t offset)
{
	for (uint32_t i = 0; i < stats->named_cnt; i++) {
		const struct lp_scrub_place *place = &stats->named[i];
		if (place->ino.nr == nr && place->offset == offset)
			return place->error == -EBADMSG;
	}
	return false;
}

static void test_damaged(void **state)
{
	(void)state;
	/* In the first piece and the second, at the end, and far behind a hole. */
	static const uint64_t offsets[] = {0, 5 * BLOCK, LP_SCRUB_READ_BYTES, BIG_BYTES - BLOCK};
	for (uint64_t seed = 0; seed < 12; seed++) {
		struct scene s;
		setup(&s, seed);
		settle(&s);
		/* A reader has them all in its cache: what counts is on the device. */
		uint8_t got[BLOCK];
		for (int round = 0; round < 2; round++) {
			for (uint64_t at = 0; at < BIG_BYTES; at += BLOCK)
				assert_int_equal(
					lpi_hand_read(&s.rig.hand, ino_of(BIG_NR), at, BLOCK, got),
					BLOCK);
		}
		for (size_t i = 0; i < LP_ARRAY_SIZE(offsets); i++)
			assert_true(flip(&s, big + offsets[i]) >= 1);
		assert_true(flip(&s, big + 99 + BLOCK) >= 1);
		const struct lp_scrub_stats *stats = pass(&s);
		assert_true(stats->is_whole);
		assert_int_equal(stats->objects, INODES);
		for (size_t i = 0; i < LP_ARRAY_SIZE(offsets); i++) {
			assert_true(is_named(stats, BIG_NR, offsets[i]));
			assert_true(is_named(stats, CLONE_NR, offsets[i]));
		}
		assert_true(is_named(stats, SPARSE_NR, FAR + BLOCK));
		assert_int_equal(stats->damaged, 2 * LP_ARRAY_SIZE(offsets) + 1);
		assert_int_equal(stats->named_cnt, stats->damaged);
		teardown(&s);
	}
}

/* What the index has of an inode becomes nonsense. */
static void spoil(const struct scene *s, uint64_t nr)
{
	struct lpi_block *block = lpi_block_of(s->rig.hand.store);
	struct lp_kv_batch *batch = NULL;
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino_of(nr));
	lp_test_ok(lp_kv_batch_new(0, &batch));
	lp_test_ok(lp_kv_batch_put(batch, (struct lp_kv_bytes){key.bytes, key.len},
				   (struct lp_kv_bytes){"nonsense", 8}));
	lp_test_ok(lp_kv_write(block->kv, batch));
	lp_kv_batch_free(batch);
}

static void reopen(struct scene *s)
{
	lp_scrub_free(s->scrub);
	lp_test_ok(lpi_store_rig_close(&s->rig, false));
	lp_test_ok(lpi_store_rig_open(&s->rig));
	const struct lp_scrub_options options = {.reactor = s->rig.hand.reactor,
						 .store = s->rig.hand.store,
						 .ended = has_ended,
						 .ended_arg = s};
	lp_test_ok(lp_scrub_new(&options, &s->scrub));
}

/* Whether it is named as one whose inode is lost. */
static bool is_lost(const struct lp_scrub_stats *stats, uint64_t nr)
{
	for (uint32_t i = 0; i < stats->named_cnt; i++)
		if (stats->named[i].ino.nr == nr && stats->named[i].offset == 0)
			return stats->named[i].error == -EUCLEAN ||
			       stats->named[i].error == -EBADMSG;
	return false;
}

/* Inodes that cannot be listed, first, last, side by side, do not hide the others. */
static void pass_one(struct scene *s, uint64_t nr)
{
	s->passed = 0;
	s->bad = (struct lp_scrub_verdict){.error = 0};
	lp_test_ok(lp_scrub_start_one(s->scrub, ino_of(nr)));
	lp_test_err(-EALREADY, lp_scrub_start_one(s->scrub, ino_of(nr)));
	while (!lp_scrub_is_idle(s->scrub))
		lpi_hand_turn(&s->rig.hand);
	assert_int_equal(1, s->passed);
	assert_true(lp_scrub_stats(s->scrub)->is_whole);
	assert_int_equal(1, lp_scrub_stats(s->scrub)->objects);
}

/* Of one inode nothing else is read; each pass says of each inode how it is. */
static void test_one(void **state)
{
	(void)state;
	struct scene s;
	setup(&s, 3);
	settle(&s);
	assert_true(flip(&s, big + 99 + BLOCK) >= 1);
	assert_true(flip(&s, big + 99 + 2 * BLOCK) >= 1);
	pass_one(&s, SPARSE_NR);
	assert_int_equal(SPARSE_NR, s.bad.ino.nr);
	assert_int_equal(FAR + BLOCK, s.bad.offset);
	assert_int_equal(2, s.bad.places);
	assert_int_equal(-EBADMSG, s.bad.error);
	pass_one(&s, BIG_NR);
	assert_int_equal(0, s.bad.error);
	pass_one(&s, 999); /* there is none */
	assert_int_equal(0, s.bad.error);
	s.passed = 0;
	(void)pass(&s);
	assert_int_equal(INODES, s.passed);
	assert_int_equal(SPARSE_NR, s.bad.ino.nr);
	teardown(&s);
}

static void test_lost_inodes(void **state)
{
	(void)state;
	static const uint64_t lost[][3] = {
		{BIG_NR},          {SPARSE_NR},           {LATE_NR},
		{BIG_NR, LATE_NR}, {CLONE_NR, INLINE_NR}, {BIG_NR, SPARSE_NR, DIR_NR}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(lost); i++) {
		struct scene s;
		uint32_t cnt = 0;
		setup(&s, i);
		settle(&s);
		reopen(&s); /* nothing of it is in memory, or still to be written */
		for (; cnt < 3 && lost[i][cnt] != 0; cnt++)
			spoil(&s, lost[i][cnt]);
		for (int round = 0; round < 2; round++) {
			const struct lp_scrub_stats *stats = pass(&s);
			assert_true(stats->is_whole);
			assert_int_equal(stats->error, 0);
			assert_int_equal(stats->objects, INODES - cnt);
			assert_int_equal(stats->damaged, cnt);
			for (uint32_t k = 0; k < cnt; k++)
				assert_true(is_lost(stats, lost[i][k]));
			assert_int_equal(stats->at.nr, LATE_NR);
		}
		lp_scrub_free(s.scrub);
		(void)lpi_store_rig_close(&s.rig, true);
		lpi_store_rig_fini(&s.rig);
	}
}

/* Nor does a part of the index that cannot be read: in the middle, or where all the rest is. */
static void test_lost_table_block(void **state)
{
	(void)state;
	enum { MANY = 3000 };
	static const uint64_t lost[] = {1000 + MANY / 2, 1000 + MANY - 1};
	static uint8_t mark[64];
	struct lp_prng prng;
	lp_prng_init(&prng, 77);
	lp_prng_fill(&prng, mark, sizeof(mark));
	for (size_t i = 0; i < LP_ARRAY_SIZE(lost); i++) {
		struct scene s;
		setup(&s, 5 + i);
		for (uint64_t nr = 1000; nr < 1000 + MANY; nr++)
			create(&s, nr, LP_INODE_TYPE_FILE);
		const struct lp_change set = {
			.type = LP_CHANGE_XATTR_SET,
			.ino = ino_of(lost[i]),
			.named = {.name = {"user.x", 6}, .value = {mark, sizeof(mark)}}};
		lp_test_ok(lpi_hand_change(&s.rig.hand, set));
		settle(&s);
		reopen(&s); /* so all of it is in tables, and of these there is then one */
		struct lp_kv *kv = lpi_block_of(s.rig.hand.store)->kv;
		const struct lp_kv_bytes open_end = {NULL, 0};
		lp_test_ok(lp_kv_compact(kv, open_end, open_end));
		lp_kv_set_cache_bytes(kv, 0);
		assert_true(flip_part(&s, mark, sizeof(mark)) >= 1);
		const struct lp_scrub_stats *stats = pass(&s);
		assert_true(stats->is_whole);
		/* Maps of the first may lie beside the last. */
		const struct lp_scrub_place *last = &stats->named[stats->damaged - 1];
		assert_in_range(stats->damaged, 1, i == 0 ? 1 : INODES);
		assert_in_range(last->ino.nr, lost[i], i == 0 ? lost[i] + 200 : UINT64_MAX);
		assert_in_range(stats->objects, INODES + MANY - 200, INODES + MANY - 1);
		lp_scrub_free(s.scrub);
		(void)lpi_store_rig_close(&s.rig, true);
		lpi_store_rig_fini(&s.rig);
	}
}

/* A block that somebody has, and that anybody may be given next. */
static void test_counts_as_free(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < LP_ALLOC_KIND_CNT; seed++) {
		struct scene s;
		setup(&s, seed);
		settle(&s);
		struct lpi_block *block = lpi_block_of(s.rig.hand.store);
		struct lp_alloc *alloc = (struct lp_alloc *)(uintptr_t)lp_space_alloc(block->space);
		uint8_t got[BLOCK];
		assert_int_equal(
			lpi_hand_read(&s.rig.hand, ino_of(SPARSE_NR), FAR + BLOCK, BLOCK, got),
			BLOCK);
		struct lpi_node *node = lpi_node_find(&block->nodes, LPI_NODE_INODE, SPARSE_NR);
		struct lp_extmap_segment segment;
		assert_int_equal(lp_extmap_lookup(&lpi_inode_of(node)->map,
						  (struct lp_extmap_range){FAR / BLOCK + 1, 1},
						  &segment, 1, NULL),
				 1);
		const struct lp_extent lost = {segment.block, 1};
		lp_test_ok(lp_alloc_release(alloc, lost));
		const struct lp_scrub_stats *stats = pass(&s);
		assert_int_equal(stats->damaged, 1);
		assert_int_equal(stats->named[0].ino.nr, SPARSE_NR);
		assert_int_equal(stats->named[0].offset, FAR + BLOCK);
		assert_int_equal(stats->named[0].error, -EUCLEAN);
		const struct lp_alloc_options options = {.hint = lost.block, .extents_max = 1};
		struct lp_extent again;
		uint64_t blocks = 0;
		assert_int_equal(lp_alloc_take(alloc, 1, &options, &again, &blocks), 1);
		assert_int_equal(again.block, lost.block);
		assert_int_equal(pass(&s)->damaged, 0);
		teardown(&s);
	}
}

/* --- How it goes ------------------------------------------------------------------------------ */

static void test_rate(void **state)
{
	(void)state;
	static const uint64_t rates[] = {UINT64_C(1) << 20, UINT64_C(10) << 20};
	struct scene s;
	setup(&s, 1);
	for (size_t i = 0; i < LP_ARRAY_SIZE(rates); i++) {
		uint64_t began_ns = s.rig.clock.now_ns;
		lp_scrub_set_rate(s.scrub, rates[i]);
		const struct lp_scrub_stats *stats = pass(&s);
		uint64_t want_ns = (stats->bytes + stats->objects * BLOCK) * LP_NS_PER_S / rates[i];
		uint64_t took_ns = s.rig.clock.now_ns - began_ns;
		/* What was read last is not waited for. */
		assert_in_range(took_ns + LP_SCRUB_READ_BYTES * LP_NS_PER_S / rates[i], want_ns,
				want_ns * 5 / 4 + LP_SCRUB_READ_BYTES * LP_NS_PER_S / rates[i]);
	}
	teardown(&s);
}

/* What a device that was slow has cost is not made up for at once. */
static void test_no_burst(void **state)
{
	(void)state;
	const uint64_t rate = UINT64_C(1) << 20;
	const uint64_t late_ns = 10 * (uint64_t)LP_NS_PER_S;
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_READ),
					 .fire_cnt = 1,
					 .arg = late_ns};
	struct scene s;
	setup(&s, 2);
	settle(&s);
	uint64_t began_ns = s.rig.clock.now_ns;
	lp_scrub_set_rate(s.scrub, rate);
	uint32_t rule = lp_sim_rule_add(lp_sim_of(s.rig.bdev), &slow);
	uint64_t bytes = pass(&s)->bytes;
	assert_int_equal(lp_sim_rule_fired(lp_sim_of(s.rig.bdev), rule), 1);
	uint64_t rest_ns = (bytes - 2 * LP_SCRUB_READ_BYTES) * LP_NS_PER_S / rate;
	assert_true(s.rig.clock.now_ns - began_ns > late_ns + rest_ns - LP_NS_PER_S / 5);
	teardown(&s);
}

/* A store that has failed, and cannot be opened again, has no damage for that. */
static void test_store_fails(void **state)
{
	(void)state;
	const struct lp_sim_rule gone = {.fault = LP_SIM_VANISH};
	struct scene s;
	setup(&s, 3);
	settle(&s);
	lp_scrub_set_rate(s.scrub, UINT64_C(64) << 10);
	lp_test_ok(lp_scrub_start(s.scrub, ino_of(0)));
	while (lp_scrub_stats(s.scrub)->bytes == 0)
		lpi_hand_turn(&s.rig.hand);
	(void)lp_sim_rule_add(lp_sim_of(s.rig.bdev), &gone);
	const struct lp_change change = {.type = LP_CHANGE_TRUNCATE, .ino = ino_of(LATE_NR)};
	lp_test_err(-EIO, lpi_hand_change(&s.rig.hand, change));
	while (!lp_scrub_is_idle(s.scrub))
		lpi_hand_turn(&s.rig.hand);
	assert_int_equal(lp_scrub_stats(s.scrub)->error, -EIO);
	assert_int_equal(lp_scrub_stats(s.scrub)->damaged, 0);
	lp_scrub_free(s.scrub);
	(void)lpi_store_rig_close(&s.rig, true);
	lpi_store_rig_fini(&s.rig);
}

static void test_stop_and_go_on(void **state)
{
	(void)state;
	struct scene s;
	setup(&s, 2);
	uint64_t all_bytes = pass(&s)->bytes;
	for (uint32_t turns = 1; turns < 40; turns++) {
		uint64_t objects = 0;
		uint64_t bytes = 0;
		struct lp_ino at = {0};
		bool is_whole = false;
		/* Each time it comes a little further, by an inode at least. */
		for (uint32_t i = 0; i < 2 * INODES && !is_whole; i++) {
			lp_test_ok(lp_scrub_start(s.scrub, at));
			const struct lp_scrub_stats *stats = lp_scrub_stats(s.scrub);
			for (uint32_t k = 0; k < turns && !lp_scrub_is_idle(s.scrub); k++)
				lpi_hand_turn(&s.rig.hand);
			while (stats->objects == 0 && !lp_scrub_is_idle(s.scrub))
				lpi_hand_turn(&s.rig.hand);
			lp_scrub_stop(s.scrub);
			lp_scrub_stop(s.scrub);
			while (!lp_scrub_is_idle(s.scrub))
				lpi_hand_turn(&s.rig.hand);
			objects += stats->objects;
			bytes += stats->bytes;
			at = stats->at;
			is_whole = stats->is_whole;
		}
		assert_true(is_whole);
		assert_int_equal(objects, INODES);
		assert_true(bytes >= all_bytes); /* what was cut off begins again */
	}
	teardown(&s);
}

/* Also while it waits for what the rate allows. */
static void test_stops_at_once(void **state)
{
	(void)state;
	const uint64_t rate = 4096;
	for (uint64_t pieces = 1; pieces < 4; pieces++) {
		struct scene s;
		setup(&s, 3);
		lp_scrub_set_rate(s.scrub, rate);
		lp_test_ok(lp_scrub_start(s.scrub, ino_of(0)));
		while (lp_scrub_stats(s.scrub)->bytes <= (pieces - 1) * LP_SCRUB_READ_BYTES)
			lpi_hand_turn(&s.rig.hand);
		uint64_t began_ns = s.rig.clock.now_ns;
		lp_scrub_stop(s.scrub);
		while (!lp_scrub_is_idle(s.scrub))
			lpi_hand_turn(&s.rig.hand);
		assert_true(s.rig.clock.now_ns - began_ns < LP_NS_PER_S);
		assert_false(lp_scrub_stats(s.scrub)->is_whole);
		assert_int_equal(s.ended, 1);
		teardown(&s);
	}
}

/* More than one page of a list holds; those with nothing in them, too. */
static void test_many(void **state)
{
	(void)state;
	enum { MANY = 3000 };
	struct scene s;
	setup(&s, 5);
	for (uint64_t nr = 1000; nr < 1000 + MANY; nr++)
		create(&s, nr, LP_INODE_TYPE_FILE);
	lp_test_ok(lpi_hand_write(&s.rig.hand, ino_of(1000 + MANY - 1), 0, big + 33, BLOCK));
	settle(&s);
	assert_true(flip(&s, big + 33) >= 1);
	/* The rate holds for them, too. */
	const uint64_t rate = UINT64_C(8) << 20;
	uint64_t began_ns = s.rig.clock.now_ns;
	lp_scrub_set_rate(s.scrub, rate);
	const struct lp_scrub_stats *stats = pass(&s);
	assert_true(s.rig.clock.now_ns - began_ns > MANY * BLOCK * LP_NS_PER_S / rate);
	assert_int_equal(stats->objects, INODES + MANY);
	assert_int_equal(stats->damaged, 1);
	assert_true(is_named(stats, 1000 + MANY - 1, 0));
	teardown(&s);
}

/* An object that grows as fast as it is read does not hold up the others for ever. */
static void test_growing(void **state)
{
	(void)state;
	struct scene s;
	setup(&s, 6);
	const struct lpi_hand *hand = &s.rig.hand;
	uint64_t size_bytes = BIG_BYTES;
	uint64_t seen = 0;
	lp_scrub_set_rate(s.scrub, UINT64_C(1) << 20); /* so that who writes keeps up */
	lp_test_ok(lp_scrub_start(s.scrub, ino_of(0)));
	while (!lp_scrub_is_idle(s.scrub)) {
		uint64_t bytes = lp_scrub_stats(s.scrub)->bytes;
		if (bytes > seen) {
			/* Over and over the same bytes, for ever longer. */
			uint64_t more = LP_MIN(bytes - seen + BLOCK, BIG_BYTES);
			lp_test_ok(lpi_hand_write(hand, ino_of(BIG_NR), size_bytes, big, more));
			size_bytes += more;
			seen = bytes;
		}
		assert_true(size_bytes < 8 * BIG_BYTES);
		lpi_hand_turn(hand);
	}
	assert_true(lp_scrub_stats(s.scrub)->is_whole);
	assert_int_equal(lp_scrub_stats(s.scrub)->objects, INODES);
	teardown(&s);
}

/* What is removed, and made anew in its place, while it is read. */
static void test_removed(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < 60; turns++) {
		struct scene s;
		setup(&s, turns % 12);
		const struct lpi_hand *hand = &s.rig.hand;
		lp_test_ok(lp_scrub_start(s.scrub, ino_of(0)));
		for (uint32_t i = 0; i < turns && !lp_scrub_is_idle(s.scrub); i++)
			lpi_hand_turn(hand);
		for (uint64_t nr = BIG_NR; nr <= SPARSE_NR; nr++) {
			const struct lp_change gone = {.type = LP_CHANGE_REMOVE, .ino = ino_of(nr)};
			lp_test_ok(lpi_hand_change(hand, gone));
		}
		create(&s, BIG_NR, LP_INODE_TYPE_FILE);
		lp_test_ok(lpi_hand_write(hand, ino_of(BIG_NR), 0, big + 5, 3 * BLOCK));
		while (!lp_scrub_is_idle(s.scrub))
			lpi_hand_turn(hand);
		assert_true(lp_scrub_stats(s.scrub)->is_whole);
		assert_int_equal(lp_scrub_stats(s.scrub)->damaged, 0);
		teardown(&s);
	}
}

/* Whatever is written, cut off, cloned and removed meanwhile. */
static void test_changes_are_no_damage(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 12; seed++) {
		struct scene s;
		struct lp_prng prng;
		setup(&s, seed);
		const struct lpi_hand *hand = &s.rig.hand;
		lp_prng_init(&prng, seed);
		lp_test_ok(lp_scrub_start(s.scrub, ino_of(0)));
		uint32_t passes = 0;
		for (uint32_t i = 0; i < 300; i++) {
			uint64_t nr = lp_prng_between(&prng, BIG_NR, CLONE_NR);
			uint64_t at = lp_prng_below(&prng, BIG_BYTES - BLOCK);
			uint64_t length = 1 + lp_prng_below(&prng, BIG_BYTES - at);
			int err = 0;
			if (lp_prng_chance(&prng, 1, 4)) {
				const struct lp_change cut = {.type = LP_CHANGE_TRUNCATE,
							      .ino = ino_of(nr),
							      .data = {.offset = at}};
				err = lpi_hand_change(hand, cut);
			} else {
				length = LP_MIN(length, 20 * BLOCK);
				err = lpi_hand_write(hand, ino_of(nr), at, big, length);
			}
			lp_test_ok(err);
			if (!lp_scrub_is_idle(s.scrub))
				continue;
			passes++;
			assert_true(lp_scrub_stats(s.scrub)->is_whole);
			assert_int_equal(lp_scrub_stats(s.scrub)->damaged, 0);
			lp_test_ok(lp_scrub_start(s.scrub, ino_of(0)));
		}
		while (!lp_scrub_is_idle(s.scrub))
			lpi_hand_turn(hand);
		assert_int_equal(lp_scrub_stats(s.scrub)->damaged, 0);
		assert_true(passes > 0);
		teardown(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sound),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_one),
		cmocka_unit_test(test_lost_inodes),
		cmocka_unit_test(test_lost_table_block),
		cmocka_unit_test(test_counts_as_free),
		cmocka_unit_test(test_rate),
		cmocka_unit_test(test_no_burst),
		cmocka_unit_test(test_store_fails),
		cmocka_unit_test(test_stop_and_go_on),
		cmocka_unit_test(test_stops_at_once),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_growing),
		cmocka_unit_test(test_removed),
		cmocka_unit_test(test_changes_are_no_damage),
	};
	return lp_test_main(tests, "store/check/scrub");
}
