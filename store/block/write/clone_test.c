/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a clone whose blocks are scattered over many groups of counts can be overwritten, punched,
 * cut and removed like any other file, each wholly or not at all, also when the power fails; and
 * nothing of it is lost or freed twice (rule S6).
 * Method: a file of single blocks with much space between them on a simulated device, and a clone
 * of it; each change beside a plain array; the power cut at many events of each; the checker. */
#include "store/block/block_sim_test.h"
#include "store/block/write/txn.h"

#define GROUPS     600u /* one block in each */
#define GAP_BLOCKS 64u
#define FILE_BYTES (GROUPS * LP_BLOCK_BYTES)
#define CLONE_STEP 200u
#define CUTS       (LP_ASSERT_SLOW_ON ? 6u : 30u)

static const struct lp_ino source = {100};
static const struct lp_ino filler = {101};
static const struct lp_ino cloned = {102};

static uint8_t old_bytes[FILE_BYTES];
static uint8_t new_bytes[FILE_BYTES];
static uint8_t got[FILE_BYTES];

static void create(struct lpi_store_rig *rig, struct lp_ino ino)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
	lp_test_ok(lpi_hand_change(&rig->hand, (struct lp_change){.type = LP_CHANGE_CREATE,
								  .ino = ino,
								  .inode = {.attrs = &attrs}}));
}

static struct lp_change range_change(enum lp_change_type type, struct lp_ino ino, uint64_t offset,
				     uint64_t length)
{
	return (struct lp_change){
		.type = type, .ino = ino, .data = {.offset = offset, .length = length}};
}

static void make_files(struct lpi_store_rig *rig)
{
	for (uint32_t i = 0; i < FILE_BYTES; i++) {
		old_bytes[i] = (uint8_t)(i / LP_BLOCK_BYTES * 7 + i);
		new_bytes[i] = (uint8_t)(i / LP_BLOCK_BYTES * 5 + UINT64_C(3) * i + 1);
	}
	create(rig, source);
	create(rig, filler);
	create(rig, cloned);
	for (uint64_t i = 0; i < GROUPS; i++) {
		uint64_t at = i * LP_BLOCK_BYTES;
		lp_test_ok(lpi_hand_write(&rig->hand, source, at, old_bytes + at, LP_BLOCK_BYTES));
		lp_test_ok(lpi_hand_change(&rig->hand,
					   range_change(LP_CHANGE_PREALLOC, filler, at * GAP_BLOCKS,
							GAP_BLOCKS * LP_BLOCK_BYTES)));
	}
	lp_test_ok(lpi_hand_change(&rig->hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = filler}));
	for (uint64_t i = 0; i < GROUPS; i += CLONE_STEP) {
		const struct lp_change share = {.type = LP_CHANGE_CLONE,
						.ino = cloned,
						.clone = {.src = source,
							  .src_offset = i * LP_BLOCK_BYTES,
							  .offset = i * LP_BLOCK_BYTES,
							  .length = CLONE_STEP * LP_BLOCK_BYTES}};
		lp_test_ok(lpi_hand_change(&rig->hand, share));
	}
}

static void wait_used(struct lpi_store_rig *rig, uint64_t blocks)
{
	for (int i = 0; i < 50000 && lpi_store_rig_used_blocks(rig) != blocks; i++)
		lpi_hand_turn(&rig->hand);
	assert_int_equal(lpi_store_rig_used_blocks(rig), blocks);
}

static bool holds(struct lpi_store_rig *rig, struct lp_ino ino, const uint8_t *bytes)
{
	static const uint8_t zeros[FILE_BYTES];
	uint64_t at = 0;
	while (at < FILE_BYTES) {
		int64_t n = lpi_hand_read(&rig->hand, ino, at,
					  LP_MIN(FILE_BYTES - at, LP_STORE_READ_MAX), got + at);
		assert_true(n > 0);
		at += (uint64_t)n;
	}
	return memcmp(got, bytes != NULL ? bytes : zeros, FILE_BYTES) == 0;
}

/* --- The changes ------------------------------------------------------------------------------ */

enum what { OVERWRITE, PUNCH, CLONE_OVER, CUT, REMOVE, WHATS };

static const char *const names[WHATS] = {"overwrite", "punch", "clone over", "cut", "remove"};

static void change(struct lpi_store_rig *rig, enum what what)
{
	struct lp_change todo = range_change(LP_CHANGE_PUNCH, cloned, 0, FILE_BYTES);
	if (what == OVERWRITE) {
		lp_test_ok(lpi_hand_write(&rig->hand, cloned, 0, new_bytes, FILE_BYTES));
		return;
	}
	if (what == CLONE_OVER) {
		/* Of another file, which is not fragmented. */
		todo = (struct lp_change){.type = LP_CHANGE_CLONE,
					  .ino = cloned,
					  .clone = {.src = filler, .length = FILE_BYTES}};
		create(rig, (struct lp_ino){103});
		todo.clone.src.nr = 103;
		lp_test_ok(lpi_hand_write(&rig->hand, todo.clone.src, 0, new_bytes, FILE_BYTES));
	}
	if (what == CUT)
		todo = range_change(LP_CHANGE_TRUNCATE, cloned, 0, 0);
	if (what == REMOVE)
		todo = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = cloned};
	lp_test_ok(lpi_hand_change(&rig->hand, todo));
}

/* The clone is as before or as after. */
static bool is_changed(struct lpi_store_rig *rig, enum what what)
{
	struct lp_attrs attrs = {.size_bytes = 0};
	int err = lpi_hand_stat(&rig->hand, cloned, &attrs);
	assert_true(err == 0 || what == REMOVE);
	if (err == -ENOENT || attrs.size_bytes == 0)
		return true;
	if (holds(rig, cloned, old_bytes))
		return false;
	assert_true(holds(rig, cloned, what == PUNCH ? NULL : new_bytes));
	return true;
}

static void judge(struct lp_bdev *left, enum what what, bool is_acknowledged)
{
	struct lpi_store_rig rig;
	lpi_store_rig_init(&rig, left, 1);
	lp_test_ok(lpi_store_rig_open(&rig));
	bool is_done = is_changed(&rig, what);
	assert_true(is_done || !is_acknowledged);
	assert_true(holds(&rig, source, old_bytes));
	if (is_done && what == OVERWRITE)
		wait_used(&rig, UINT64_C(2) * GROUPS); /* what was shared has one owner */
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

static void change_at_cuts(enum what what)
{
	struct lpi_store_rig rig;
	struct lp_sim_cutter *cutter = NULL;
	print_message("%s\n", names[what]);
	lpi_store_rig_start(&rig, 1);
	make_files(&rig);
	wait_used(&rig, GROUPS);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lp_sim_trim_log(lp_sim_of(rig.bdev));
	lp_test_ok(lpi_store_rig_open(&rig));
	change(&rig, what);
	uint64_t acknowledged = lp_sim_event_count(lp_sim_of(rig.bdev));
	assert_true(is_changed(&rig, what));
	wait_used(&rig, what == OVERWRITE || what == CLONE_OVER ? 2 * GROUPS : GROUPS);
	for (int i = 0; i < 200; i++)
		lpi_hand_turn(&rig.hand);
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
	uint64_t step = 1 + lp_sim_event_count(lp_sim_of(rig.bdev)) / CUTS;
	for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
		if (n % step == 0)
			judge(lp_sim_cutter_cut(cutter, n), what,
			      lp_sim_cutter_event(cutter) >= acknowledged);
	}
	lp_sim_cutter_free(cutter);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

/* What is released step by step belongs to a new inode meanwhile. That somebody has asked for its
 * number before it was given, and was told that there is none, is no obstacle (P7). */
static void test_asked_for_early(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_attrs attrs;
	lpi_store_rig_start(&rig, 1);
	make_files(&rig);
	wait_used(&rig, GROUPS);
	uint64_t last_nr = lp_store_new_ino(rig.hand.store).nr;
	for (uint64_t nr = last_nr + 1; nr < last_nr + 20; nr++)
		lp_test_err(-ENOENT, lpi_hand_stat(&rig.hand, (struct lp_ino){nr}, &attrs));
	change(&rig, OVERWRITE);
	assert_true(lp_store_new_ino(rig.hand.store).nr > last_nr + 1); /* one was needed */
	assert_true(is_changed(&rig, OVERWRITE));
	wait_used(&rig, UINT64_C(2) * GROUPS);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

static void test_overwritten(void **state)
{
	(void)state;
	change_at_cuts(OVERWRITE);
}

static void test_punched(void **state)
{
	(void)state;
	change_at_cuts(PUNCH);
}

static void test_cloned_over(void **state)
{
	(void)state;
	change_at_cuts(CLONE_OVER);
}

static void test_cut(void **state)
{
	(void)state;
	change_at_cuts(CUT);
}

static void test_removed(void **state)
{
	(void)state;
	change_at_cuts(REMOVE);
}

/* Many small ones in one transaction, each scattered over 40 groups. */
static void test_removed_together(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_change changes[LP_STORE_TOUCHED_MAX - 1];
	lpi_store_rig_start(&rig, 1);
	make_files(&rig);
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(changes); i++) {
		const struct lp_ino ino = {200 + i};
		create(&rig, ino);
		const struct lp_change share = {.type = LP_CHANGE_CLONE,
						.ino = ino,
						.clone = {.src = source,
							  .src_offset = i * 40 * LP_BLOCK_BYTES,
							  .length = 40 * LP_BLOCK_BYTES}};
		lp_test_ok(lpi_hand_change(&rig.hand, share));
		changes[i] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
	}
	lp_test_ok(lpi_hand_txn(&rig.hand, changes, LP_ARRAY_SIZE(changes)));
	wait_used(&rig, GROUPS);
	assert_true(holds(&rig, cloned, old_bytes));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

#define SPARSE 64u /* blocks, each so far from the next as a clone may be long */

/* A clone sets aside what it changes, not a leaf for each that its range could have: so many of
 * ranges that are mostly holes share a frame, and a copy of them waits for no device in between. */
static void test_holes_are_not_set_aside(void **state)
{
	(void)state;
	const struct lp_ino sparse = {300};
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	create(&rig, sparse);
	create(&rig, cloned);
	for (uint64_t i = 0; i < SPARSE; i++)
		lp_test_ok(lpi_hand_write(&rig.hand, sparse, i * LP_STORE_RANGE_MAX, new_bytes,
					  LP_BLOCK_BYTES));
	lp_test_ok(lpi_hand_change(&rig.hand, range_change(LP_CHANGE_TRUNCATE, sparse,
							   SPARSE * LP_STORE_RANGE_MAX, 0)));
	const struct lpi_block *block = lpi_block_of(rig.hand.store);
	uint64_t before = block->txn_times.states[LPI_TXN_ROOM].cnt;
	for (uint64_t i = 0; i < SPARSE; i++) {
		const struct lp_change share = {.type = LP_CHANGE_CLONE,
						.ino = cloned,
						.clone = {.src = sparse,
							  .src_offset = i * LP_STORE_RANGE_MAX,
							  .offset = i * LP_STORE_RANGE_MAX,
							  .length = LP_STORE_RANGE_MAX}};
		struct lp_store_op op = lpi_txn_op(&share, 1);
		op.txn.ack = LP_ACK_ORDERED;
		lp_test_ok(lpi_hand_do(&rig.hand, &op));
	}
	assert_true(block->txn_times.states[LPI_TXN_ROOM].cnt - before <= SPARSE / 8);
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_stat(&rig.hand, cloned, &attrs));
	assert_int_equal(attrs.blocks, SPARSE);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

/* A count of blocks that were leaked, and are free since: whoever is given such a block has a count
 * that his map does not know of. Who clones him is told; all others are served (P7). */
static void leak_counts(struct lpi_store_rig *rig, uint32_t cnt)
{
	struct lp_commit *commit = lpi_block_of(rig->hand.store)->commit;
	const struct lp_space_config *config =
		lp_space_config(lpi_block_of(rig->hand.store)->space);
	uint64_t group = config->base_block >> LP_REFS_SHIFT;
	for (uint64_t end = group + 64; group < end; group++) {
		const struct lp_commit_need need = {.batch_bytes = 4096};
		uint8_t bytes[LP_REFS_BYTES_MAX];
		struct lp_refs refs;
		struct lp_key key;
		lp_refs_init(&refs, group);
		for (uint32_t i = 0; i < LP_REFS_BLOCKS; i++)
			refs.cnt[i] = cnt;
		lp_refs_key(&key, group);
		while (!lp_commit_reserve(commit, &need))
			lpi_hand_turn(&rig->hand);
		lp_commit_put(commit, (struct lp_kv_bytes){key.bytes, key.len},
			      (struct lp_kv_bytes){bytes, lp_refs_encode(&refs, bytes)});
	}
	while (!lp_commit_is_idle(commit))
		lpi_hand_turn(&rig->hand);
}

static void test_leaked_counts(void **state)
{
	(void)state;
	const uint64_t length = 4 * LP_BLOCK_BYTES;
	struct lpi_store_rig rig;
	struct lp_store_health health;
	const struct lp_change share = {
		.type = LP_CHANGE_CLONE, .ino = cloned, .clone = {.src = source, .length = length}};
	lpi_store_rig_start(&rig, 1);
	create(&rig, source);
	create(&rig, cloned);
	lp_test_ok(lpi_hand_write(&rig.hand, source, 0, new_bytes, length));
	leak_counts(&rig, 3);
	for (int round = 0; round < 2; round++) {
		lp_test_err(-EUCLEAN, lpi_hand_change(&rig.hand, share));
		lp_test_ok(lpi_hand_write(&rig.hand, cloned, 0, old_bytes, length));
		lp_store_read_health(rig.hand.store, &health);
		assert_int_equal(health.state, LP_STORE_OK);
		lp_test_ok(lpi_store_rig_close(&rig, false));
		lp_test_ok(lpi_store_rig_open(&rig));
	}
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_asked_for_early),
		cmocka_unit_test(test_overwritten),
		cmocka_unit_test(test_punched),
		cmocka_unit_test(test_cloned_over),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_removed),
		cmocka_unit_test(test_removed_together),
		cmocka_unit_test(test_holes_are_not_set_aside),
		cmocka_unit_test(test_leaked_counts),
	};
	return lp_test_main(tests, "store/block/write/clone");
}
