/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a search for data or a hole gives a true answer wherever the leaves of the map are: in
 * memory, in the index, one by one or many beside each other, named by the root or not.
 * Method: files mapped by hand beside a model; each search warm, and cold. */
#include "store/block/block_rig_test.h"

#include "base/crc32c.h"
#include "store/block/read/query.h"
#include "store/block/write/txn.h"

static int do_op(struct lpi_rig *rig, struct lpi_rig_op *op)
{
	int result = lpi_rig_do(rig, op);
	assert_int_equal(rig->block->running, 0);
	assert_int_equal(lp_claims_cnt(rig->block->claims), 0);
	return result;
}

static int64_t seek(struct lpi_rig *rig, uint64_t ino, uint64_t offset, bool hole)
{
	struct lpi_rig_op op = {.op = {.opcode = LP_STORE_SEEK,
				       .seek = {.ino = {ino}, .offset = offset, .hole = hole}}};
	int result = do_op(rig, &op);
	return result < 0 ? result : (int64_t)op.op.seek.found;
}

/* What a file whose written blocks are these must answer. */
static int64_t seek_in(const bool *is_data, uint64_t size_bytes, uint64_t offset, bool hole)
{
	if (offset >= size_bytes)
		return -ENXIO;
	uint64_t block = offset / LP_BLOCK_BYTES;
	uint64_t end = lp_bytes_to_blocks_up(size_bytes);
	while (block < end && is_data[block] == hole)
		block++;
	if (block == end)
		return hole ? (int64_t)size_bytes : -ENXIO;
	return (int64_t)LP_MAX(block * LP_BLOCK_BYTES, offset);
}

static void test_seek(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_file file;
	struct lp_prng prng;
	bool is_data[LPI_RIG_BLOCKS] = {false};
	lpi_rig_init(&rig);
	lpi_rig_file_init(&rig, &file, 5, 310 * LP_BLOCK_BYTES + 5);
	lp_prng_init(&prng, 1);
	for (uint64_t block = 3; block < 290;) {
		struct lp_extmap_range range = {block, lp_prng_between(&prng, 1, 40)};
		bool is_unwritten = lp_prng_chance(&prng, 1, 3);
		range.cnt = LP_MIN(range.cnt, 290 - block);
		lpi_rig_map(&rig, &file, range, is_unwritten ? LPI_RIG_UNWRITTEN : LPI_RIG_WRITTEN,
			    1);
		for (uint64_t i = 0; i < range.cnt; i++)
			is_data[block + i] = !is_unwritten;
		block += range.cnt + lp_prng_below(&prng, 3) * 20;
	}
	/* Warm; then cold now and then. */
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i * 4095 < file.size_bytes + 8192; i++) {
			uint64_t offset = i * 4095;
			assert_int_equal(seek(&rig, 5, offset, i % 2 == 0),
					 seek_in(is_data, file.size_bytes, offset, i % 2 == 0));
			if (round == 1 && i % 40 == 0)
				lpi_rig_reopen(&rig);
			assert_int_equal(seek(&rig, 5, offset, i % 2 != 0),
					 seek_in(is_data, file.size_bytes, offset, i % 2 != 0));
		}
	}
	assert_int_equal(seek(&rig, 6, 0, false), -ENOENT);
	lpi_rig_inode(&rig, 7, LP_INODE_TYPE_DIR);
	assert_int_equal(seek(&rig, 7, 0, false), -EISDIR);
	lpi_rig_inode(&rig, 8, LP_INODE_TYPE_FIFO);
	assert_int_equal(seek(&rig, 8, 0, false), -EINVAL);
	lpi_rig_close(&rig, false);
	lpi_rig_file_fini(&file);
	lpi_rig_fini(&rig);
}

/* Content in the inode: its end is told to the byte. */
static void test_seek_inline(void **state)
{
	static const uint8_t content[100] = {1};
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = 10000;
	assert_int_equal(seek(&rig, 5, 0, false), -ENXIO); /* all of it a hole */
	assert_int_equal(seek(&rig, 5, 77, true), 77);
	lpi_rig_reserve(&rig);
	lp_test_ok(lpi_inode_make_room(inode, LPI_PART_CONTENT, 100));
	lpi_inode_set_part(inode, LPI_PART_CONTENT, content, sizeof(content));
	inode->rec.content_crc = lp_crc32c(0, content, sizeof(content));
	lpi_node_changed(&inode->node);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(seek(&rig, 5, 0, false), 0);
		assert_int_equal(seek(&rig, 5, 99, false), 99);
		assert_int_equal(seek(&rig, 5, 100, false), -ENXIO);
		assert_int_equal(seek(&rig, 5, 0, true), 100);
		assert_int_equal(seek(&rig, 5, 100, true), 100);
		assert_int_equal(seek(&rig, 5, 9999, true), 9999);
		assert_int_equal(seek(&rig, 5, 10000, true), -ENXIO);
		lpi_rig_reopen(&rig);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* crc NULL: unwritten. */
static void map_one_as(struct lpi_rig *rig, struct lp_ino ino, uint64_t block, const uint32_t *crc)
{
	const struct lp_extent extent = lpi_rig_take(rig, 1);
	const struct lp_extmap_range range = {block, 1};
	const struct lp_extmap_new fresh = {.extents = &extent, .extents_cnt = 1, .crcs = crc};
	struct lp_extmap_released released = {.max = 0};
	struct lpi_inode *inode = lpi_rig_find(rig, ino);
	lpi_rig_reserve(rig);
	lp_shard_taken(rig->block->shard, extent);
	lp_test_ok(lp_extmap_reserve(&inode->map, range, 1));
	lp_extmap_replace(&inode->map, range, &fresh, &released);
	lpi_node_changed(&inode->node);
}

static void map_one(struct lpi_rig *rig, struct lp_ino ino, uint64_t block)
{
	const uint32_t crc = 1;
	map_one_as(rig, ino, block, &crc);
}

static void set_one_aside(struct lpi_rig *rig, struct lp_ino ino, uint64_t block)
{
	map_one_as(rig, ino, block, NULL);
}

/* More leaves than the root names, far apart; and many beside each other. */
static void test_seek_far(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	const uint64_t step = UINT64_C(64000);
	const uint64_t cnt = 150;
	const uint64_t dense = 300; /* leaves */
	lpi_rig_init(&rig);
	struct lpi_inode *sparse = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	struct lpi_inode *full = lpi_rig_inode(&rig, 6, LP_INODE_TYPE_FILE);
	sparse->rec.size_bytes = cnt * step * LP_BLOCK_BYTES;
	const uint64_t size_bytes = dense * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES;
	full->rec.size_bytes = size_bytes;
	for (uint64_t i = 0; i < cnt; i++)
		map_one(&rig, (struct lp_ino){5}, i * step + 7);
	for (uint64_t i = 0; i < dense * LP_EXTMAP_LEAF_BLOCKS; i++)
		if (i % 64 == 63 || i > 64 * (dense - 2))
			map_one(&rig, (struct lp_ino){6}, i);
	for (int round = 0; round < 2; round++) {
		for (uint64_t i = 0; i < cnt; i += 1 + i % 5) {
			uint64_t at = (i * step + 7) * LP_BLOCK_BYTES;
			assert_int_equal(seek(&rig, 5, at + 5, false), at + 5);
			assert_int_equal(seek(&rig, 5, at + 5, true), at + LP_BLOCK_BYTES);
			assert_int_equal(seek(&rig, 5, at + LP_BLOCK_BYTES, false),
					 i + 1 < cnt ? (int64_t)(at + step * LP_BLOCK_BYTES)
						     : -ENXIO);
			if (round == 1 && i % 7 == 0)
				lpi_rig_reopen(&rig);
		}
		/* What one scan did not get to is found by the next. */
		lpi_rig_reopen(&rig);
		for (uint64_t i = 0; i + 1 < cnt; i += 5)
			assert_int_equal(seek(&rig, 5, (i * step + 8) * LP_BLOCK_BYTES, false),
					 ((i + 1) * step + 7) * LP_BLOCK_BYTES);
		/* One leaf after the other has to be looked at. */
		uint64_t from = 64 * (dense - 2) * LP_BLOCK_BYTES + LP_BLOCK_BYTES;
		lpi_rig_reopen(&rig);
		assert_int_equal(seek(&rig, 6, from, true), size_bytes);
		assert_int_equal(seek(&rig, 6, 63 * LP_BLOCK_BYTES, true), 64 * LP_BLOCK_BYTES);
	}
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* Leaves without a hole. */
static void map_full(struct lpi_rig *rig, struct lpi_inode *inode, uint64_t leaves)
{
	static const uint32_t crcs[LP_EXTMAP_LEAF_BLOCKS];
	for (uint64_t i = 0; i < leaves; i++) {
		const struct lp_extent extent = lpi_rig_take(rig, LP_EXTMAP_LEAF_BLOCKS);
		const struct lp_extmap_range range = {i * LP_EXTMAP_LEAF_BLOCKS,
						      LP_EXTMAP_LEAF_BLOCKS};
		const struct lp_extmap_new fresh = {
			.extents = &extent, .extents_cnt = 1, .crcs = crcs};
		struct lp_extmap_released released = {.max = 0};
		lpi_rig_reserve(rig);
		lp_shard_taken(rig->block->shard, extent);
		lp_test_ok(lp_extmap_reserve(&inode->map, range, 1));
		lp_extmap_replace(&inode->map, range, &fresh, &released);
		lpi_node_changed(&inode->node);
	}
}

/* A hole behind many leaves without one: fetched many at a time. */
static void test_seek_scans(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	const uint64_t leaves = 40;
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = (leaves * LP_EXTMAP_LEAF_BLOCKS + 9) * LP_BLOCK_BYTES;
	map_full(&rig, inode, leaves);
	int64_t end = (int64_t)(leaves * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES);
	assert_int_equal(seek(&rig, 5, 0, true), end);
	lpi_rig_reopen(&rig);
	assert_int_equal(seek(&rig, 5, 0, true), end);
	assert_true(rig.block->stats.index_waits <= 3);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

/* --- Beside what is cut ----------------------------------------------------------------------- */

static int64_t seek_for(struct lpi_rig *rig, uint64_t offset, bool hole)
{
	struct lpi_rig_op op = {
		.op = {.opcode = LP_STORE_SEEK,
		       .seek = {.ino = {5}, .offset = offset, .space = true, .hole = hole}}};
	int result = do_op(rig, &op);
	return result < 0 ? result : (int64_t)op.op.seek.found;
}

static int64_t seek_space(struct lpi_rig *rig, uint64_t offset)
{
	return seek_for(rig, offset, false);
}

static int64_t seek_no_space(struct lpi_rig *rig, uint64_t offset)
{
	return seek_for(rig, offset, true);
}

/* Whatever has space, also what was set aside far behind the end of the file. */
static void test_seek_space(void **state)
{
	static const uint64_t at[] = {3, 700 * LP_EXTMAP_LEAF_BLOCKS + 5, LP_EXTMAP_BLOCKS_MAX - 1};
	struct lpi_rig rig = {.slots = 0};
	(void)state;
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = 10000;
	assert_int_equal(seek_space(&rig, 0), -ENXIO);
	assert_int_equal(seek_no_space(&rig, 77), 77);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(at); i++) {
		if (i == 0)
			map_one(&rig, (struct lp_ino){5}, at[i]);
		else
			set_one_aside(&rig, (struct lp_ino){5}, at[i]);
	}
	for (int round = 0; round < 2; round++) {
		uint64_t from = 7;
		for (uint32_t i = 0; i < LP_ARRAY_SIZE(at); i++) {
			uint64_t first = at[i] * LP_BLOCK_BYTES;
			assert_int_equal(seek_space(&rig, from), first);
			assert_int_equal(seek_space(&rig, first + 1), first + 1);
			assert_int_equal(seek_no_space(&rig, from), from);
			from = first + LP_BLOCK_BYTES;
			assert_int_equal(seek_no_space(&rig, first), from);
		}
		assert_int_equal(seek_space(&rig, from), -ENXIO);
		lpi_rig_reopen(&rig);
	}
	/* Leaves behind the end are a trim's, while there is one. */
	struct lpi_trim trim = {.block = rig.block};
	assert_int_equal(seek_space(&rig, 0), at[0] * LP_BLOCK_BYTES);
	inode = lpi_rig_find(&rig, (struct lp_ino){5});
	inode->trim = &trim;
	assert_int_equal(seek_space(&rig, 77), 77);
	inode->trim = NULL;
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

#define CUT_LEAVES UINT64_C(260)
#define CUT_BLOCK                                                                                  \
	(UINT64_C(220) * LP_EXTMAP_LEAF_BLOCKS + UINT64_C(10)) /* in the middle of a leaf */
/* Space that was set aside, some in each leaf, which a search for data looks at to the end: what it
 * has gone past does not stay in memory until it has come there (P5). */
static void test_seek_in_little_memory(void **state)
{
	(void)state;
	const uint64_t leaves = 6000;
	const uint64_t limit = 64 << 10;
	struct lpi_rig rig = {.slots = 0};
	struct lpi_rig_op op = {.op = {.opcode = LP_STORE_SEEK, .seek = {.ino = {5}}}};
	uint64_t bytes_max = 0;
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = leaves * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES;
	for (uint64_t i = 0; i < leaves; i++)
		set_one_aside(&rig, (struct lp_ino){5}, i * LP_EXTMAP_LEAF_BLOCKS);
	lpi_rig_reopen(&rig);
	rig.block->nodes.limit_bytes = limit;
	lpi_rig_submit(&rig, &op);
	for (int i = 0; i < LPI_RIG_TURNS && op.order == 0; i++) {
		lpi_rig_turn(&rig);
		bytes_max = LP_MAX(bytes_max, rig.block->nodes.bytes);
	}
	assert_int_equal(lpi_rig_wait(&rig, &op), -ENXIO);
	assert_in_range(bytes_max, limit / 2, 2 * limit);
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

#define SEEK_FROM                                                                                  \
	(UINT64_C(160) * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES) /* not beside it in the index */

/* What a helper has found is told when the test wants it. */
static struct {
	struct lp_kv_scan_op *scan;
	void (*done)(struct lp_kv_scan_op *scan);
	bool is_held; /* it has come */
} answer;

static void hold_back(struct lp_kv_scan_op *scan)
{
	answer.scan = scan;
	answer.is_held = true;
}

/* Of the first scan; before it is submitted. */
static void left_state(const struct lp_sm *sm, unsigned state, uint64_t ns, void *arg)
{
	struct lpi_query *query =
		LP_CONTAINER_OF((struct lp_sm *)(uintptr_t)sm, struct lpi_query, sm);
	(void)ns;
	(void)arg;
	if (state != LPI_QUERY_RESOLVE || answer.is_held)
		return;
	answer.done = query->scan.done;
	query->scan.done = hold_back;
}

/* All that is in memory and need not be leaves it. */
static void shrink_all(struct lpi_nodes *nodes)
{
	uint64_t limit = nodes->limit_bytes;
	nodes->limit_bytes = 1;
	for (int i = 0; i < 100; i++)
		lpi_nodes_shrink(nodes);
	nodes->limit_bytes = limit;
}

static void turn_until_cut(struct lpi_rig *rig)
{
	struct lp_store *store = &rig->block->base;
	for (int i = 0; i < LPI_RIG_TURNS && lp_store_is_freeing(store, NULL); i++)
		lpi_rig_turn(rig);
	assert_false(lp_store_is_freeing(store, NULL));
	lpi_rig_settle(rig);
	for (int i = 0; i < 10; i++) {
		lp_commit_pay(rig->block->commit);
		lpi_rig_turn(rig);
	}
	lpi_rig_settle(rig);
	shrink_all(&rig->block->nodes);
}

/* Behind the cut nothing is mapped. */
static void check_is_cut(struct lpi_rig *rig, uint64_t ino)
{
	const struct lp_extmap_range range = {CUT_BLOCK, LP_EXTMAP_LEAF_BLOCKS};
	struct lp_extmap_segment segment;
	struct lpi_inode *inode = lpi_rig_find(rig, (struct lp_ino){ino});
	int cnt = lp_extmap_lookup(&inode->map, range, &segment, 1, NULL);
	if (cnt == -EAGAIN)
		return; /* not in memory */
	assert_int_equal(cnt, 1);
	assert_int_equal(segment.kind, LP_EXTMAP_HOLE);
}

/* A file is cut while leaves that were there when the search began are on their way: what is old
 * is neither taken for damage nor for what is there. */
static void test_seek_while_cut(void **state)
{
	(void)state;
	struct lpi_rig rig = {.slots = 0};
	lpi_rig_init(&rig);
	struct lpi_inode *inode = lpi_rig_inode(&rig, 5, LP_INODE_TYPE_FILE);
	inode->rec.size_bytes = CUT_LEAVES * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES;
	map_full(&rig, inode, CUT_LEAVES);
	lpi_rig_reopen(&rig);
	struct lp_sm_observer observer = rig.block->query_times.observer;
	rig.block->query_times.observer.left = left_state;
	memset(&answer, 0, sizeof(answer));
	const struct lp_change change = {.type = LP_CHANGE_TRUNCATE,
					 .ino = {5},
					 .data = {.offset = CUT_BLOCK * LP_BLOCK_BYTES}};
	struct lpi_rig_op cut = {
		.op = {.opcode = LP_STORE_TXN,
		       .txn = {.changes = &change, .change_cnt = 1, .ack = LP_ACK_ORDERED}}};
	struct lpi_rig_op search = {
		.op = {.opcode = LP_STORE_SEEK,
		       .seek = {.ino = {5}, .offset = SEEK_FROM, .hole = true}}};
	lpi_rig_submit(&rig, &cut);
	lpi_rig_submit(&rig, &search);
	for (int i = 0; i < LPI_RIG_TURNS && !answer.is_held; i++)
		lpi_rig_turn(&rig);
	assert_true(answer.is_held);
	lp_test_ok(lpi_rig_wait(&rig, &cut));
	turn_until_cut(&rig);
	answer.done(answer.scan);
	lp_test_ok(lpi_rig_wait(&rig, &search));
	assert_int_equal(search.op.seek.found, CUT_BLOCK * LP_BLOCK_BYTES);
	check_is_cut(&rig, 5);
	rig.block->query_times.observer = observer;
	lpi_rig_close(&rig, false);
	lpi_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_seek),           cmocka_unit_test(test_seek_inline),
		cmocka_unit_test(test_seek_far),       cmocka_unit_test(test_seek_scans),
		cmocka_unit_test(test_seek_while_cut), cmocka_unit_test(test_seek_in_little_memory),
		cmocka_unit_test(test_seek_space),
	};
	return lp_test_main(tests, "store/block/read/seek");
}
