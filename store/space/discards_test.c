/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: freed space is discarded when it was asked for, durably freed and used by nobody any more;
 * neighbours at once, at a bounded rate; who needs the space does not wait for it; and what is
 * discarded is never anybody's data, whenever the power goes (rule S3).
 * Method: a space on a simulated device for what is decided, a block store for the whole. */
#include "store/block/block_sim_test.h"

#include "store/block/core/block.h"

#define EVENTS_MAX (LP_ASSERT_SLOW_ON ? 20u : 60u)
#define FILE_BYTES (UINT64_C(1) << 20)

static struct lpi_store_rig rig;
static uint8_t bytes[FILE_BYTES];

static struct lpi_block *block_of(void)
{
	return lpi_block_of(rig.hand.store);
}

static const struct lp_discards_stats *stats_of(void)
{
	return lp_discards_stats(lp_shard_discards(block_of()->shard));
}

static uint64_t events_of(void)
{
	return lp_sim_event_count(lp_sim_of(rig.bdev));
}

static void start(bool discard)
{
	lpi_store_rig_start(&rig, 3);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	rig.discard = discard;
	lp_test_ok(lpi_store_rig_open(&rig));
	lp_store_set_write_path(rig.hand.store, LP_PATH_DIRECT);
}

static void finish(void)
{
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

static struct lp_ino make_file(int tag)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0644, .nlink = 1};
	struct lp_ino ino = lp_store_new_ino(rig.hand.store);
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &attrs}};
	lp_test_ok(lpi_hand_change(&rig.hand, create));
	memset(bytes, tag, sizeof(bytes));
	lp_test_ok(lpi_hand_write(&rig.hand, ino, 0, bytes, sizeof(bytes)));
	return ino;
}

static void remove_file(struct lp_ino ino)
{
	lp_test_ok(lpi_hand_change(&rig.hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino}));
}

/* Time that nobody waits for passes only if it is told to. */
static void turn_for(uint64_t ns)
{
	uint64_t now_ns = lp_reactor_now_ns(rig.hand.reactor);
	for (uint64_t until_ns = now_ns + ns; now_ns < until_ns;) {
		now_ns = LP_MAX(now_ns + 10 * LP_NS_PER_MS, lp_clock_mono_ns(&rig.clock.clock));
		lp_clock_sim_advance_to(&rig.clock, now_ns);
		for (uint32_t i = 0; i < 20; i++) {
			(void)lp_store_sim_run_one(rig.hand.store);
			(void)lp_reactor_turn(rig.hand.reactor, false);
		}
	}
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void test_only_when_asked_for(void **state)
{
	(void)state;
	start(false);
	assert_null(lp_shard_discards(block_of()->shard));
	remove_file(make_file(1));
	turn_for(3 * LP_NS_PER_S);
	assert_int_equal(lp_bdev_stats(block_of()->data)->ops[LP_BDEV_DISCARD], 0);
	finish();
}

static void test_discards_what_was_freed(void **state)
{
	(void)state;
	start(true);
	struct lp_ino ino = make_file(1);
	remove_file(ino);
	turn_for(LP_NS_PER_S / 2);
	/* It waits, for neighbours, and nobody has it meanwhile. */
	assert_int_equal(stats_of()->ops, 0);
	assert_int_equal(lp_space_waiting_blocks(block_of()->space), FILE_BYTES / LP_BLOCK_BYTES);
	turn_for(3 * LP_NS_PER_S);
	const struct lp_bdev_stats *device = lp_bdev_stats(block_of()->data);
	assert_int_equal(stats_of()->blocks, FILE_BYTES / LP_BLOCK_BYTES);
	assert_int_equal(device->bytes[LP_BDEV_DISCARD], FILE_BYTES);
	assert_true(device->ops[LP_BDEV_DISCARD] <= 4);
	assert_int_equal(lp_space_waiting_blocks(block_of()->space), 0);
	finish();
}

/* A read is on it: not now. */
static void test_waits_for_io(void **state)
{
	(void)state;
	struct lp_space_pin read = {.is_hold = false};
	struct lp_extmap_segment segment;
	struct lpi_inode *inode = NULL;
	struct lpi_warmer warmer;
	start(true);
	struct lp_ino ino = make_file(1);
	lpi_warmer_init(&warmer, block_of(), NULL);
	lp_test_ok(lpi_inode_get(&warmer, ino, false, &inode));
	assert_true(lp_extmap_lookup(&inode->map, (struct lp_extmap_range){0, 1}, &segment, 1,
				     NULL) == 1);
	lpi_warmer_fini(&warmer);
	lp_space_pin(block_of()->space, &read, (struct lp_extent){segment.block, 1});
	remove_file(ino);
	turn_for(4 * LP_NS_PER_S);
	uint64_t before = stats_of()->blocks;
	assert_true(before < FILE_BYTES / LP_BLOCK_BYTES);
	lp_space_unpin(block_of()->space, &read);
	turn_for(LP_NS_PER_S);
	assert_int_equal(stats_of()->blocks, FILE_BYTES / LP_BLOCK_BYTES);
	finish();
}

/* The device is full but for what waits: it is given to who needs it, at once. */
static void test_gives_way(void **state)
{
	static struct lp_ino inos[256];
	uint32_t cnt = 0;
	(void)state;
	start(true);
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0644, .nlink = 1};
	for (int err = 0; err == 0;) {
		assert_true(cnt < LP_ARRAY_SIZE(inos));
		inos[cnt] = lp_store_new_ino(rig.hand.store);
		const struct lp_change create = {
			.type = LP_CHANGE_CREATE, .ino = inos[cnt], .inode = {.attrs = &attrs}};
		err = lpi_hand_change(&rig.hand, create);
		if (err == 0)
			err = lpi_hand_write(&rig.hand, inos[cnt], 0, bytes, sizeof(bytes));
		cnt++;
		assert_true(err == 0 || err == -ENOSPC);
	}
	/* What is left is less than such a file. */
	uint64_t end_bytes = FILE_BYTES;
	while (lpi_hand_write(&rig.hand, inos[1], end_bytes, bytes, LP_BLOCK_BYTES) == 0)
		end_bytes += LP_BLOCK_BYTES;
	remove_file(inos[0]);
	turn_for(LP_NS_PER_MS * 20);
	assert_int_equal(stats_of()->blocks, 0);
	lp_test_ok(lpi_hand_write(&rig.hand, inos[1], end_bytes, bytes, sizeof(bytes) / 2));
	assert_true(stats_of()->let_go_blocks > 0);
	finish();
}

/* Files come and go on a small part of the device, so that what was discarded is used again. */
static void test_power_cuts(void **state)
{
	static struct {
		struct lp_ino ino;
		uint64_t made, removed, gone; /* events */
	} files[24];
	struct lp_sim_cutter *cutter = NULL;
	(void)state;
	start(true);
	uint64_t from = events_of();
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(files); i++) {
		files[i].ino = make_file((int)i + 1);
		files[i].made = events_of();
		files[i].removed = UINT64_MAX;
		if (i >= 2) {
			files[i - 2].removed = events_of();
			remove_file(files[i - 2].ino);
		}
		turn_for(i % 3 * LP_NS_PER_S);
	}
	assert_true(stats_of()->ops > 5);
	uint64_t step = 1 + (events_of() - from) / EVENTS_MAX;
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
	while (lp_sim_cutter_next(cutter)) {
		uint64_t at = lp_sim_cutter_event(cutter);
		if (at < from || (at - from) % step != 0)
			continue;
		struct lpi_store_rig left;
		lpi_store_rig_init(&left, lp_sim_cutter_cut(cutter, at), at);
		lp_test_ok(lpi_store_rig_open(&left));
		for (uint32_t i = 0; i < LP_ARRAY_SIZE(files); i++) {
			if (files[i].made > at || files[i].removed < at)
				continue;
			assert_int_equal(
				lpi_hand_read(&left.hand, files[i].ino, 0, FILE_BYTES, bytes),
				FILE_BYTES);
			for (uint64_t n = 0; n < FILE_BYTES; n += 512)
				assert_int_equal(bytes[n], i + 1);
		}
		lp_test_ok(lpi_store_rig_close(&left, false));
		lpi_store_rig_check(&left);
		lpi_store_rig_fini(&left);
	}
	lp_sim_cutter_free(cutter);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_when_asked_for),
		cmocka_unit_test(test_discards_what_was_freed),
		cmocka_unit_test(test_waits_for_io),
		cmocka_unit_test(test_gives_way),
		cmocka_unit_test(test_power_cuts),
	};
	return lp_test_main(tests, "store/space/discards");
}
