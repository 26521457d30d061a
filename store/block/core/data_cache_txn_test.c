/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever a transaction frees or rewrites, the cache of data does not keep what was there
 * before, for the crc alone does not tell old content from new; what is rewritten in its place
 * stays, with its new content; the cache's part of the memory moves to where misses hurt.
 * Method: one block of a file is brought into the cache; then every kind of transaction that takes
 * the block from it, and a look into the cache. */
#include "store/block/block_sim_test.h"

#include "base/error.h"

#include "store/block/core/data_cache.h"
#include "store/block/write/txn.h"

#define BLOCKS 400u

static const struct lp_ino one = {100};
static const struct lp_ino other = {101};
static uint8_t bytes[BLOCKS * LP_BLOCK_BYTES];

static struct lpi_block *block_of(const struct lpi_store_rig *rig)
{
	return lpi_block_of(rig->hand.store);
}

static void start(struct lpi_store_rig *rig, uint64_t data_cache_bytes)
{
	lpi_store_rig_start(rig, 1);
	lp_test_ok(lpi_store_rig_close(rig, false));
	rig->data_cache_bytes = data_cache_bytes;
	rig->memory_bytes = UINT64_C(64) << 20;
	rig->path = LP_PATH_DIRECT;
	lp_test_ok(lpi_store_rig_open(rig));
}

static void create(struct lpi_store_rig *rig, struct lp_ino ino)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
	lp_test_ok(lpi_hand_change(&rig->hand, (struct lp_change){.type = LP_CHANGE_CREATE,
								  .ino = ino,
								  .inode = {.attrs = &attrs}}));
}

static void write_at(struct lpi_store_rig *rig, struct lp_ino ino, uint64_t offset, uint64_t length,
		     uint8_t with)
{
	for (uint64_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)(with + i / 1000);
	for (uint64_t at = 0; at < length; at += LP_MIN(length - at, LP_STORE_WRITE_MAX))
		lp_test_ok(lpi_hand_write(&rig->hand, ino, offset + at, bytes + at,
					  LP_MIN(length - at, LP_STORE_WRITE_MAX)));
}

static uint64_t device_block(struct lpi_store_rig *rig, struct lp_ino ino, uint64_t block)
{
	struct lpi_node *node = lpi_node_find(&block_of(rig)->nodes, LPI_NODE_INODE, ino.nr);
	struct lp_extmap_segment segment;
	assert_non_null(node);
	assert_int_equal(lp_extmap_lookup(&lpi_inode_of(node)->map,
					  (struct lp_extmap_range){block, 1}, &segment, 1, NULL),
			 1);
	assert_int_equal(segment.kind, LP_EXTMAP_DATA);
	return segment.block;
}

static int64_t read_at(struct lpi_store_rig *rig, struct lp_ino ino, uint64_t offset)
{
	static uint8_t out[LP_BLOCK_BYTES];
	return lpi_hand_read(&rig->hand, ino, offset, LP_BLOCK_BYTES, out);
}

/* A file whose block 2 is in the cache: its place. */
static uint64_t prepare(struct lpi_store_rig *rig, uint64_t blocks)
{
	create(rig, one);
	write_at(rig, one, 0, blocks * LP_BLOCK_BYTES, 1);
	assert_int_equal(read_at(rig, one, 2 * LP_BLOCK_BYTES), LP_BLOCK_BYTES);
	uint64_t place = device_block(rig, one, 2);
	assert_true(lpi_cached_has(block_of(rig)->cached, place));
	return place;
}

static void settle(struct lpi_store_rig *rig)
{
	struct lpi_block *block = block_of(rig);
	for (int i = 0; i < 20000 && !lpi_trims_are_idle(block); i++)
		lpi_hand_turn(&rig->hand);
	assert_true(lpi_trims_are_idle(block));
}

static void remove_file(struct lpi_store_rig *rig, struct lp_ino ino)
{
	lp_test_ok(lpi_hand_change(&rig->hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino}));
	settle(rig);
}

static void test_freed(void **state)
{
	(void)state;
	for (int how = 0; how < 6; how++) {
		struct lpi_store_rig rig;
		start(&rig, UINT64_C(16) << 20);
		uint64_t place = prepare(&rig, how == 3 ? BLOCKS : 8);
		struct lp_change change = {.ino = one};
		switch (how) {
		case 0: /* new content in another place */
			write_at(&rig, one, 0, 8 * LP_BLOCK_BYTES, 2);
			assert_int_not_equal(device_block(&rig, one, 2), place);
			break;
		case 1:
			change.type = LP_CHANGE_TRUNCATE;
			change.data.offset = 100;
			lp_test_ok(lpi_hand_change(&rig.hand, change));
			break;
		case 2:
			change.type = LP_CHANGE_PUNCH;
			change.data.offset = LP_BLOCK_BYTES;
			change.data.length = 3 * LP_BLOCK_BYTES;
			lp_test_ok(lpi_hand_change(&rig.hand, change));
			break;
		case 3: /* in steps */
		case 4:
			remove_file(&rig, one);
			break;
		default: /* something else is cloned over it */
			create(&rig, other);
			write_at(&rig, other, 0, 8 * LP_BLOCK_BYTES, 9);
			change.type = LP_CHANGE_CLONE;
			change.clone.src = other;
			change.clone.length = 8 * LP_BLOCK_BYTES;
			lp_test_ok(lpi_hand_change(&rig.hand, change));
			break;
		}
		assert_false(lpi_cached_has(block_of(&rig)->cached, place));
		lp_test_ok(lpi_store_rig_close(&rig, false));
		lpi_store_rig_fini(&rig);
	}
}

/* A block of two owners goes with the last. */
static void test_shared(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	start(&rig, UINT64_C(16) << 20);
	uint64_t place = prepare(&rig, 8);
	create(&rig, other);
	struct lp_change change = {.type = LP_CHANGE_CLONE, .ino = other};
	change.clone.src = one;
	change.clone.length = 8 * LP_BLOCK_BYTES;
	lp_test_ok(lpi_hand_change(&rig.hand, change));
	remove_file(&rig, one);
	assert_true(lpi_cached_has(block_of(&rig)->cached, place));
	struct lp_store_stats before;
	struct lp_store_stats after;
	lp_store_read_stats(rig.hand.store, &before);
	assert_int_equal(read_at(&rig, other, 2 * LP_BLOCK_BYTES), LP_BLOCK_BYTES);
	lp_store_read_stats(rig.hand.store, &after);
	assert_int_equal(after.data_reads, before.data_reads);
	assert_int_equal(after.data_hits, before.data_hits + 1);
	remove_file(&rig, other);
	assert_false(lpi_cached_has(block_of(&rig)->cached, place));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

/* In its place, wholly or in part; the part's old content is not read from the device. */
static void test_rewritten(void **state)
{
	(void)state;
	static const uint64_t lengths[] = {LP_BLOCK_BYTES, 1000};
	for (size_t i = 0; i < LP_ARRAY_SIZE(lengths); i++) {
		struct lpi_store_rig rig;
		struct lp_store_stats before;
		struct lp_store_stats after;
		static uint8_t out[LP_BLOCK_BYTES];
		start(&rig, UINT64_C(16) << 20);
		uint64_t place = prepare(&rig, 8);
		lp_store_set_write_path(rig.hand.store, LP_PATH_DEFERRED);
		lp_store_read_stats(rig.hand.store, &before);
		write_at(&rig, one, 2 * LP_BLOCK_BYTES, lengths[i], 77);
		for (int n = 0;
		     n < 100000 && lp_pending_stats(block_of(&rig)->pending)->versions > 0; n++)
			lpi_hand_turn(&rig.hand);
		assert_int_equal(lp_pending_stats(block_of(&rig)->pending)->versions, 0);
		assert_true(lpi_cached_has(block_of(&rig)->cached, place));
		assert_int_equal(
			lpi_hand_read(&rig.hand, one, 2 * LP_BLOCK_BYTES, LP_BLOCK_BYTES, out),
			LP_BLOCK_BYTES);
		lp_store_read_stats(rig.hand.store, &after);
		assert_memory_equal(out, bytes, lengths[i]);
		assert_int_equal(after.data_reads, before.data_reads);
		assert_int_equal(after.data_misses, before.data_misses);
		lp_test_ok(lpi_store_rig_close(&rig, false));
		lpi_store_rig_fini(&rig);
	}
}

/* What went bad in memory is not merged, and is no damage: the device has it. */
static void test_rewritten_in_part_over_bad_memory(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	static uint8_t before[LP_BLOCK_BYTES];
	static uint8_t after[LP_BLOCK_BYTES];
	start(&rig, UINT64_C(16) << 20);
	uint64_t place = prepare(&rig, 8);
	assert_int_equal(lpi_hand_read(&rig.hand, one, 2 * LP_BLOCK_BYTES, LP_BLOCK_BYTES, before),
			 LP_BLOCK_BYTES);
	const struct lp_seg *seg = lpi_cached_find(block_of(&rig)->cached, place,
						   lp_crc32c(0, before, sizeof(before)), false);
	assert_non_null(seg);
	seg->buf->data[seg->offset + 3000] ^= 1;
	uint64_t found = lp_corruption_count();
	lp_store_set_write_path(rig.hand.store, LP_PATH_DEFERRED);
	write_at(&rig, one, 2 * LP_BLOCK_BYTES, 1000, 55);
	assert_int_equal(lpi_hand_read(&rig.hand, one, 2 * LP_BLOCK_BYTES, LP_BLOCK_BYTES, after),
			 LP_BLOCK_BYTES);
	assert_memory_equal(after, bytes, 1000);
	assert_memory_equal(after + 1000, before + 1000, LP_BLOCK_BYTES - 1000);
	assert_int_equal(lp_corruption_count(), found);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

/* Each second, as nobody asks for anything; then all is asked for again. */
static void test_rest(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_store_stats before;
	struct lp_store_stats after;
	start(&rig, UINT64_C(1) << 20);
	create(&rig, one);
	write_at(&rig, one, 0, sizeof(bytes), 1);
	for (uint64_t i = 0; i < BLOCKS / 4; i++)
		(void)read_at(&rig, one, i * 3 % BLOCKS * LP_BLOCK_BYTES);
	lp_store_read_stats(rig.hand.store, &before);
	assert_true(before.data_cache_bytes > 0);
	uint32_t seconds = 0;
	while (lp_store_rest(rig.hand.store)) {
		assert_true(++seconds < 20);
	}
	assert_true(seconds > 0);
	lp_store_read_stats(rig.hand.store, &after);
	assert_int_equal(after.data_cache_bytes, 0);
	assert_int_equal(after.data_cache_limit_bytes, before.data_cache_limit_bytes);
	assert_int_equal(after.nodes_limit_bytes, before.nodes_limit_bytes);
	assert_true(after.nodes_bytes <= LP_MAX(before.nodes_bytes, LPI_MEMORY_REST_LEAST));
	assert_false(lp_store_rest(rig.hand.store));
	for (uint64_t i = 0; i < BLOCKS; i++)
		(void)read_at(&rig, one, i * LP_BLOCK_BYTES);
	lp_store_read_stats(rig.hand.store, &after);
	assert_true(after.data_cache_bytes > 0);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

/* One look after another, as after each second; blocks that were put out come back all the time. */
static void test_part_of_memory(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_store_stats first;
	struct lp_store_stats stats;
	start(&rig, UINT64_C(1) << 20); /* 214 blocks */
	create(&rig, one);
	write_at(&rig, one, 0, sizeof(bytes), 1);
	lp_store_read_stats(rig.hand.store, &first);
	assert_int_equal(first.data_cache_limit_bytes, UINT64_C(1) << 20);
	for (uint64_t second = 0; second < 4; second++) {
		for (uint64_t i = 0; i < UINT64_C(3) * BLOCKS; i++)
			(void)read_at(&rig, one, i * 3 % BLOCKS * LP_BLOCK_BYTES);
		lpi_memory_look(block_of(&rig));
	}
	lp_store_read_stats(rig.hand.store, &stats);
	assert_true(stats.data_cache_limit_bytes > first.data_cache_limit_bytes);
	assert_true(stats.data_cache_bytes > UINT64_C(1) << 20);
	/* One may have what another has not, beside what is known of the space. */
	assert_int_equal(stats.data_cache_limit_bytes + stats.nodes_limit_bytes +
				 stats.index_cache_limit_bytes + stats.space_bytes,
			 first.data_cache_limit_bytes + first.nodes_limit_bytes +
				 first.index_cache_limit_bytes + first.space_bytes);
	/* All of it is there now. */
	for (uint64_t i = 0; i < BLOCKS; i++)
		(void)read_at(&rig, one, i * 3 % BLOCKS * LP_BLOCK_BYTES);
	lp_store_read_stats(rig.hand.store, &first);
	for (uint64_t i = 0; i < BLOCKS; i++)
		(void)read_at(&rig, one, i * 3 % BLOCKS * LP_BLOCK_BYTES);
	lp_store_read_stats(rig.hand.store, &stats);
	assert_int_equal(stats.data_reads, first.data_reads);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_freed),
		cmocka_unit_test(test_shared),
		cmocka_unit_test(test_rewritten),
		cmocka_unit_test(test_rewritten_in_part_over_bad_memory),
		cmocka_unit_test(test_rest),
		cmocka_unit_test(test_part_of_memory),
	};
	return lp_test_main(tests, "store/block/core/data_cache_txn");
}
