/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: large removals and truncations are cut up, and end also after a crash (rule S6); what was
 * cut off never comes back, not even where it cannot be freed.
 * Method: a file of several leaves on a simulated device. Removed, with the power cut at many
 * events: afterwards no block of it is taken, or all of it is there. Cut short while one leaf of
 * its map is damaged: it cannot grow again. */
#include "store/block/block_sim_test.h"
#include "store/record/values.h"

#include "store/block/write/txn.h"
#include "store/extmap/runs.h"
#include "store/extmap/table.h"

#define FILE_BYTES (UINT64_C(1) << 20)
#define CUTS       (LP_ASSERT_SLOW_ON ? 20u : 80u)

static const struct lp_ino ino = {100};
static uint8_t bytes[FILE_BYTES];
static const struct lp_attrs of_file = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};

static void reopen(struct lpi_store_rig *rig)
{
	lp_test_ok(lpi_store_rig_close(rig, false));
	lp_test_ok(lpi_store_rig_open(rig));
}

/* What is left is as it should be. */
static void end(struct lpi_store_rig *rig)
{
	lp_test_ok(lpi_store_rig_close(rig, false));
	lpi_store_rig_check(rig);
	lpi_store_rig_fini(rig);
}

static void make_empty(struct lpi_store_rig *rig, struct lp_ino of)
{
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = of, .inode = {.attrs = &of_file}};
	lp_test_ok(lpi_hand_change(&rig->hand, create));
}

/* With a block in each of its first leaves. */
static void make_leaves(struct lpi_store_rig *rig, struct lp_ino of, uint64_t leaves)
{
	make_empty(rig, of);
	for (uint64_t i = 0; i < leaves; i++)
		lp_test_ok(lpi_hand_write(&rig->hand, of,
					  i * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES, bytes,
					  LP_BLOCK_BYTES));
}

static void make_file(struct lpi_store_rig *rig)
{
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (uint8_t)(i / LP_BLOCK_BYTES + 1);
	make_empty(rig, ino);
	lp_test_ok(lpi_hand_write(&rig->hand, ino, 0, bytes, sizeof(bytes)));
	const struct lp_change set = {.type = LP_CHANGE_OMAP_SET,
				      .ino = ino,
				      .named = {.name = {"key", 3}, .value = {"value", 5}}};
	lp_test_ok(lpi_hand_change(&rig->hand, set));
}

/* Whole, or gone; and gone for sure once that was acknowledged. */
static void judge(struct lp_bdev *left, bool is_acknowledged)
{
	struct lpi_store_rig rig;
	struct lp_attrs attrs;
	lpi_store_rig_init(&rig, left, 1);
	lp_test_ok(lpi_store_rig_open(&rig));
	int err = lpi_hand_stat(&rig.hand, ino, &attrs);
	assert_true(err == -ENOENT || (err == 0 && !is_acknowledged));
	for (int i = 0; err == -ENOENT && i < 20000 && lpi_store_rig_used_blocks(&rig) > 0; i++)
		lpi_hand_turn(&rig.hand);
	assert_int_equal(lpi_store_rig_used_blocks(&rig),
			 err == 0 ? FILE_BYTES / LP_BLOCK_BYTES : 0);
	end(&rig);
}

static struct lp_change mark_change(const struct lp_key *key, const uint8_t *value)
{
	return (struct lp_change){
		.type = LP_CHANGE_RECORD,
		.named = {.name = {key->bytes, (uint32_t)key->len},
			  .value = {value, value == NULL ? 0 : LP_UNFINISHED_VALUE_SIZE}}};
}

static void mark(struct lpi_store_rig *rig, uint8_t kind)
{
	const struct lp_unfinished_value value = {.kind = kind};
	uint8_t buf[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	lp_unfinished_write(&value, &key, buf);
	lp_test_ok(lpi_hand_change(&rig->hand, mark_change(&key, buf)));
}

static void unmark(struct lpi_store_rig *rig)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	lp_test_ok(lpi_hand_change(&rig->hand, mark_change(&key, NULL)));
}

/* 0: there is none. */
static uint8_t mark_of(struct lpi_store_rig *rig)
{
	struct lp_unfinished_value value = {.kind = 0};
	uint8_t buf[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	const struct lp_bytes name = {key.bytes, (uint32_t)key.len};
	int64_t len = lpi_hand_get(&rig->hand, LP_STORE_RECORDS, ino, name, buf, sizeof(buf));
	if (len == -ENOENT)
		return 0;
	assert_int_equal(len, sizeof(buf));
	lp_test_ok(lp_unfinished_read(buf, sizeof(buf), &key, &value));
	return value.kind;
}

static void test_removed_at_a_cut(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_sim_cutter *cutter = NULL;
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	make_file(&rig);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lp_sim_trim_log(lp_sim_of(rig.bdev));
	lp_test_ok(lpi_store_rig_open(&rig));
	lp_test_ok(lpi_hand_change(&rig.hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino}));
	uint64_t acknowledged = lp_sim_event_count(lp_sim_of(rig.bdev));
	for (int i = 0; i < 20000 && lpi_store_rig_used_blocks(&rig) > 0; i++)
		lpi_hand_turn(&rig.hand);
	assert_int_equal(lpi_store_rig_used_blocks(&rig), 0);
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

/* Completes when it is ordered: what follows comes while space is being freed. */
static void change_early(struct lpi_store_rig *rig, const struct lp_change *change)
{
	struct lp_store_op op = {
		.opcode = LP_STORE_TXN,
		.txn = {.changes = change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	lp_test_ok(lpi_hand_do(&rig->hand, &op));
}

/* So much that freeing it takes many turns. */
static void make_large(struct lpi_store_rig *rig)
{
	make_file(rig);
	for (uint64_t i = 1; i <= 4; i++) {
		const struct lp_change prealloc = {
			.type = LP_CHANGE_PREALLOC,
			.ino = ino,
			.data = {.offset = i * LP_STORE_RANGE_MAX, .length = LP_STORE_RANGE_MAX}};
		lp_test_ok(lpi_hand_change(&rig->hand, prealloc));
	}
}

static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	(void)events;
	print_error("fsck: %s: %s: %s\n", lp_fsck_kind_name(finding->kind), finding->object,
		    finding->text);
	fail();
}

/* Whoever takes the mark of a removal away has to wait for its end: else a crash would leave the
 * rest for ever (rule S6). */
static void test_unmarked_while_removed(void **state)
{
	(void)state;
	const struct lp_change gone = {.type = LP_CHANGE_REMOVE, .ino = ino};
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	make_large(&rig);
	change_early(&rig, &gone);
	unmark(&rig);
	assert_int_equal(lpi_store_rig_used_blocks(&rig), 0);
	(void)lpi_store_rig_close(&rig, true); /* the power fails */
	lp_test_ok(lpi_store_rig_open(&rig));
	assert_int_equal(lpi_store_rig_used_blocks(&rig), 0);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check_all(&rig, found);
	lpi_store_rig_fini(&rig);
}

/* An orphan that is cut short is one all the time: with the store's mark, then with its own
 * again. */
static void test_cut_orphan(void **state)
{
	(void)state;
	const struct lp_change unlink = {
		.type = LP_CHANGE_LINK, .ino = ino, .inode = {.delta = -1}};
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = LP_BLOCK_BYTES}};
	for (int crash = 0; crash < 2; crash++) {
		struct lpi_store_rig rig;
		lpi_store_rig_start(&rig, 4); /* one that does not discard */
		make_large(&rig);
		lp_test_ok(lpi_hand_change(&rig.hand, unlink));
		mark(&rig, LP_UNFINISHED_KIND_ORPHAN);
		change_early(&rig, &cut);
		if (crash != 0) {
			(void)lpi_store_rig_close(&rig, true);
			lp_test_ok(lpi_store_rig_open(&rig));
		}
		for (int i = 0; i < 20000 && mark_of(&rig) == LP_UNFINISHED_KIND_TRIM; i++)
			lpi_hand_turn(&rig.hand);
		assert_int_equal(mark_of(&rig), LP_UNFINISHED_KIND_ORPHAN);
		assert_int_equal(lpi_store_rig_used_blocks(&rig), 1);
		/* The mark goes with it. */
		lp_test_ok(lpi_hand_change(
			&rig.hand, (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino}));
		for (int i = 0; i < 20000 && mark_of(&rig) != 0; i++)
			lpi_hand_turn(&rig.hand);
		assert_int_equal(mark_of(&rig), 0);
		end(&rig);
	}
}

/* What is told while the file is cut short is what its mark says afterwards. */
static void test_marked_while_cut(void **state)
{
	(void)state;
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = LP_BLOCK_BYTES}};
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	make_large(&rig);
	change_early(&rig, &cut);
	mark(&rig, LP_UNFINISHED_KIND_UPLOAD);
	assert_int_equal(lpi_store_rig_used_blocks(&rig), 1);
	assert_int_equal(mark_of(&rig), LP_UNFINISHED_KIND_UPLOAD);
	end(&rig);
}

/* The record of the mark becomes nonsense, and the power fails. */
static void spoil_mark(struct lpi_store_rig *rig, struct lp_ino of)
{
	struct lp_commit *commit = lpi_block_of(rig->hand.store)->commit;
	const struct lp_commit_need need = {.batch_bytes = 1000};
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, of);
	assert_true(lp_commit_reserve(commit, &need));
	lp_commit_put_owned(commit, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){"spoilt", 6});
	while (!lp_commit_is_idle(commit))
		lpi_hand_turn(&rig->hand);
	(void)lpi_store_rig_close(rig, true);
}

/* The store opens, says how many, and does what they must have been about (rule S6): nothing
 * that was cut off comes back, and no space is lost. */
static void test_spoilt_marks(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_store_stats stats;
	struct lp_attrs attrs = {.nlink = 0};
	const struct lp_ino missing = {4711};
	const struct lp_change unlink = {
		.type = LP_CHANGE_SET, .ino = ino, .inode = {&attrs, .mask = LP_ATTR_NLINK}};
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	make_large(&rig);             /* of which all but the beginning lies behind the end */
	lp_test_ok(lpi_hand_change(&rig.hand, unlink));
	spoil_mark(&rig, ino);
	lp_test_ok(lpi_store_rig_open(&rig));
	spoil_mark(&rig, missing);
	lp_test_ok(lpi_store_rig_open(&rig));
	lp_store_read_stats(rig.hand.store, &stats);
	assert_in_range(stats.bad_marks, 1, 2); /* the first may have been mended by then */
	for (int i = 0; i < 20000 && lpi_store_rig_used_blocks(&rig) > FILE_BYTES / LP_BLOCK_BYTES;
	     i++)
		lpi_hand_turn(&rig.hand);
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	assert_int_equal(attrs.size_bytes, FILE_BYTES);
	assert_int_equal(attrs.blocks, FILE_BYTES / LP_BLOCK_BYTES);
	assert_int_equal(lpi_store_rig_used_blocks(&rig), FILE_BYTES / LP_BLOCK_BYTES);
	assert_int_equal(mark_of(&rig), LP_UNFINISHED_KIND_ORPHAN);
	end(&rig);
}

static void spoil_record(struct lpi_store_rig *rig, const struct lp_key *key)
{
	struct lp_commit *commit = lpi_block_of(rig->hand.store)->commit;
	const struct lp_commit_need need = {.batch_bytes = 1000};
	while (!lp_commit_reserve(commit, &need))
		lpi_hand_turn(&rig->hand);
	lp_commit_put_owned(commit, (struct lp_kv_bytes){key->bytes, key->len},
			    (struct lp_kv_bytes){"spoilt", 6});
	while (!lp_commit_is_idle(commit))
		lpi_hand_turn(&rig->hand);
}

/* A leaf of the file's map is not what it should be. */
static void spoil_leaf(struct lpi_store_rig *rig, struct lp_ino of, uint64_t leaf)
{
	struct lp_key key;
	lp_key_of_map(&key, of, leaf * LP_EXTMAP_LEAF_BLOCKS);
	spoil_record(rig, &key);
}

static void make_spoilt_file(struct lpi_store_rig *rig)
{
	make_file(rig);
	reopen(rig);
	spoil_leaf(rig, ino, 2);
}

static void test_cut_over_damage(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_attrs attrs;
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	make_spoilt_file(&rig);
	struct lp_change cut = {.type = LP_CHANGE_TRUNCATE, .ino = ino};
	cut.data.offset = LP_BLOCK_BYTES;
	lp_test_ok(lpi_hand_change(&rig.hand, cut));
	for (int round = 0; round < 2; round++) {
		/* Neither grown nor written: what was cut off would be seen. */
		cut.data.offset = FILE_BYTES;
		int err = lpi_hand_change(&rig.hand, cut);
		assert_true(err == -EBADMSG || err == -EUCLEAN);
		err = lpi_hand_write(&rig.hand, ino, FILE_BYTES, bytes, 100);
		assert_true(err == -EBADMSG || err == -EUCLEAN);
		lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
		assert_int_equal(attrs.size_bytes, LP_BLOCK_BYTES);
		reopen(&rig);
	}
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

/* One that met damage frees nothing more: who finds no space is not kept waiting for it (P6). */
static void test_full_over_damage(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = LP_BLOCK_BYTES}};
	lpi_store_rig_start(&rig, 4);
	make_spoilt_file(&rig);
	lp_test_ok(lpi_hand_change(&rig.hand, cut));
	for (int i = 0; i < 20000 && lp_store_is_freeing(rig.hand.store, NULL); i++)
		lpi_hand_turn(&rig.hand);
	assert_false(lp_store_is_freeing(rig.hand.store, NULL));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

#define TRIMS_MAX 256u /* of block/write/trim.c */

static void turn_until_freed(struct lpi_store_rig *rig)
{
	for (uint32_t i = 0; lp_store_is_freeing(rig->hand.store, NULL); i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_hand_turn(&rig->hand);
	}
}

/* Those that met damage are not waited for, however many there are: also when they were tried once
 * more by an opening. */
static void test_removed_beside_damage(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_change removal = {.type = LP_CHANGE_REMOVE};
	lpi_store_rig_start(&rig, 4);
	for (uint64_t i = 0; i <= TRIMS_MAX + 1; i++)
		make_leaves(&rig, (struct lp_ino){ino.nr + i}, 3);
	reopen(&rig);
	for (uint64_t i = 0; i < TRIMS_MAX; i++)
		spoil_leaf(&rig, (struct lp_ino){ino.nr + i}, 2);
	for (uint64_t i = 0; i < TRIMS_MAX; i++) {
		removal.ino.nr = ino.nr + i;
		lp_test_ok(lpi_hand_change(&rig.hand, removal));
	}
	for (uint64_t round = 0; round < 2; round++) {
		turn_until_freed(&rig);
		uint64_t used = lpi_store_rig_used_blocks(&rig);
		removal.ino.nr = ino.nr + TRIMS_MAX + round;
		lp_test_ok(lpi_hand_change(&rig.hand, removal));
		turn_until_freed(&rig);
		assert_int_equal(lpi_store_rig_used_blocks(&rig), used - 3);
		reopen(&rig);
	}
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

static void remove_it(struct lpi_store_rig *rig)
{
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_change(&rig->hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino}));
	turn_until_freed(rig);
	for (int round = 0; round < 2; round++) {
		assert_int_equal(lpi_hand_stat(&rig->hand, ino, &attrs), -ENOENT);
		assert_int_equal(mark_of(rig), LP_UNFINISHED_KIND_REMOVAL);
		reopen(rig);
	}
}

/* A file that could not be cut to its end can be removed, also while somebody has it open: what was
 * promised to another shard has to be (rule N1). */
static void test_removed_after_damage(void **state)
{
	(void)state;
	const struct lp_change unlink = {
		.type = LP_CHANGE_LINK, .ino = ino, .inode = {.delta = -1}};
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = LP_BLOCK_BYTES}};
	for (int is_open = 0; is_open < 2; is_open++) {
		struct lpi_store_rig rig;
		lpi_store_rig_start(&rig, 4);
		make_spoilt_file(&rig);
		lp_test_ok(lpi_hand_change(&rig.hand, cut));
		turn_until_freed(&rig);
		if (is_open != 0) {
			lp_test_ok(lpi_hand_change(&rig.hand, unlink));
			mark(&rig, LP_UNFINISHED_KIND_ORPHAN);
		}
		remove_it(&rig);
		lp_test_ok(lpi_store_rig_close(&rig, false));
		lpi_store_rig_fini(&rig);
	}
}

/* So can one of which nobody can tell who else has its blocks. */
static void test_removed_without_counts(void **state)
{
	(void)state;
	const struct lp_ino copy = {ino.nr + 1};
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 4);
	for (uint64_t nr = ino.nr; nr <= copy.nr; nr++)
		make_empty(&rig, (struct lp_ino){nr});
	lp_test_ok(lpi_hand_write(&rig.hand, ino, 0, bytes, LP_BLOCK_BYTES * 4));
	lp_test_ok(lpi_hand_change(
		&rig.hand,
		(struct lp_change){.type = LP_CHANGE_CLONE,
				   .ino = copy,
				   .clone = {.src = ino, .length = LP_BLOCK_BYTES * 4}}));
	reopen(&rig);
	for (uint64_t at = 0; at < LPI_STORE_RIG_BYTES / LP_BLOCK_BYTES; at += LP_REFS_BLOCKS) {
		struct lp_key key;
		lpi_node_key(LPI_NODE_REFS, at >> LP_REFS_SHIFT, &key);
		spoil_record(&rig, &key);
	}
	remove_it(&rig);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

static uint64_t waits_of(const struct lpi_store_rig *rig)
{
	return lpi_block_of(rig->hand.store)->stats.index_waits;
}

/* What the device refuses to read for a moment leaves no space taken; what it refuses for ever ends
 * all the same. */
static void test_read_errors(void **state)
{
	(void)state;
	const struct lp_sim_rule eio = {.fault = LP_SIM_EIO,
					.opcode_mask = LP_SIM_OP(LP_BDEV_READ)};
	const uint64_t files = 200; /* so many that opening does not read the leaves of all */
	const struct lp_ino of = {ino.nr + files / 2};
	const struct lp_change removal = {.type = LP_CHANGE_REMOVE, .ino = of};
	for (int is_short = 0; is_short < 2; is_short++) {
		struct lpi_store_rig rig;
		struct lp_attrs attrs;
		lpi_store_rig_start(&rig, 4);
		for (uint64_t i = 0; i < files; i++)
			make_leaves(&rig, (struct lp_ino){ino.nr + i}, 3);
		reopen(&rig);
		lp_test_ok(lpi_hand_stat(&rig.hand, of, &attrs));
		uint64_t waits = waits_of(&rig);
		struct lp_sim *sim = lp_sim_of(rig.bdev);
		uint32_t rule = lp_sim_rule_add(sim, &eio);
		change_early(&rig, &removal);
		for (int i = 0; i < 1000 && lp_sim_rule_fired(sim, rule) < 2; i++)
			lpi_hand_turn(&rig.hand);
		if (is_short != 0)
			lp_sim_rules_clear(sim);
		turn_until_freed(&rig);
		assert_int_equal(lpi_store_rig_used_blocks(&rig),
				 3 * files - (is_short != 0 ? 3 : 0));
		assert_in_range(waits_of(&rig) - waits, 2, 100);
		lp_sim_rules_clear(sim);
		lp_test_ok(lpi_store_rig_close(&rig, false));
		/* And by the next opening anyway. */
		lp_test_ok(lpi_store_rig_open(&rig));
		turn_until_freed(&rig);
		assert_int_equal(lpi_store_rig_used_blocks(&rig), 3 * (files - 1));
		end(&rig);
	}
}

struct cut {
	struct lp_change change;
	struct lp_store_op op;
	bool is_done;
};

static void cut_completed(struct lp_store_op *op)
{
	LP_CONTAINER_OF(op, struct cut, op)->is_done = true;
}

/* Of as many removals as there may be at once, none gets on. */
static void begin_many(struct lpi_store_rig *rig, uint64_t files)
{
	const struct lp_sim_rule eio = {.fault = LP_SIM_EIO,
					.opcode_mask = LP_SIM_OP(LP_BDEV_READ)};
	const struct lpi_block *block = lpi_block_of(rig->hand.store);
	struct lp_change removal = {.type = LP_CHANGE_REMOVE};
	struct lp_attrs attrs;
	for (uint64_t i = 0; i < files; i++)
		lp_test_ok(lpi_hand_stat(&rig->hand, (struct lp_ino){ino.nr + i}, &attrs));
	(void)lp_sim_rule_add(lp_sim_of(rig->bdev), &eio);
	for (uint64_t i = 0; i < files && !lpi_trims_are_many(block); i++) {
		removal.ino.nr = ino.nr + i;
		change_early(rig, &removal);
	}
	assert_true(lpi_trims_are_many(block));
}

/* Cut-up work is bounded, and its memory with it (P5): also that of files that are cut. */
static void test_cut_beside_many(void **state)
{
	(void)state;
	const uint64_t files = UINT64_C(2) * TRIMS_MAX;
	const struct lp_ino of = {ino.nr + 10 * files}; /* not beside those in the index */
	struct lpi_store_rig rig;
	static uint8_t got[LP_BLOCK_BYTES];
	lpi_store_rig_start(&rig, 4);
	for (uint64_t i = 0; i < files; i++)
		make_leaves(&rig, (struct lp_ino){ino.nr + i}, 3);
	reopen(&rig);
	make_leaves(&rig, of, 3);
	begin_many(&rig, files);
	struct cut cut = {.change = {.type = LP_CHANGE_TRUNCATE, .ino = of}};
	cut.change.data.offset = LP_BLOCK_BYTES;
	cut.op = lpi_txn_op(&cut.change, 1);
	cut.op.complete = cut_completed;
	lp_store_submit(rig.hand.store, &cut.op);
	for (int i = 0; i < 200; i++)
		lpi_hand_turn(&rig.hand);
	assert_true(lpi_trims_are_many(lpi_block_of(rig.hand.store)));
	assert_false(cut.is_done);
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	for (uint32_t i = 0; !cut.is_done; i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_hand_turn(&rig.hand);
	}
	lp_test_ok(cut.op.result);
	turn_until_freed(&rig);
	assert_int_equal(lpi_hand_read(&rig.hand, of, 0, sizeof(got), got), LP_BLOCK_BYTES);
	end(&rig);
}

/* What was preallocated behind the end goes with a cut to the size that the file has: else a
 * refused allocation could not be undone but by a file that gets longer first. */
static void test_cut_to_its_size(void **state)
{
	(void)state;
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = FILE_BYTES}};
	struct lpi_store_rig rig;
	static uint8_t is[FILE_BYTES];
	struct lp_attrs attrs;
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	make_large(&rig);
	lp_test_ok(lpi_hand_change(&rig.hand, cut));
	for (int i = 0; i < 20000 && mark_of(&rig) != 0; i++)
		lpi_hand_turn(&rig.hand);
	assert_int_equal(lpi_store_rig_used_blocks(&rig), FILE_BYTES / LP_BLOCK_BYTES);
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	assert_int_equal(attrs.size_bytes, FILE_BYTES);
	assert_int_equal(lpi_hand_read(&rig.hand, ino, 0, FILE_BYTES, is), FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		assert_int_equal(is[i], (uint8_t)(i / LP_BLOCK_BYTES + 1));
	end(&rig);
}

/* --- Memory ----------------------------------------------------------------------------------- */

#define LEAVES 6000u /* of one block each */

/* How many leaves the map had in memory at most while it was freed. */
static uint32_t most_leaves(struct lpi_store_rig *rig, uint64_t kept)
{
	struct lpi_nodes *nodes = &lpi_block_of(rig->hand.store)->nodes;
	uint32_t most = 0;
	for (int i = 0; i < 100000 && lpi_store_rig_used_blocks(rig) > kept; i++) {
		lpi_hand_turn(&rig->hand);
		struct lpi_node *node = lpi_node_peek(nodes, LPI_NODE_INODE, ino.nr);
		if (node != NULL)
			most = LP_MAX(most, lpi_inode_of(node)->map.objects_cnt);
	}
	assert_int_equal(lpi_store_rig_used_blocks(rig), kept);
	return most;
}

/* What was emptied of a map does not stay in memory until all of it is (P5): neither of a file that
 * is removed, nor of one that is cut. */
static void test_emptied_leaves(void **state)
{
	(void)state;
	for (uint64_t keep = 0; keep < 2; keep++) {
		struct lpi_store_rig rig;
		struct lp_change change = {.type = LP_CHANGE_TRUNCATE, .ino = ino};
		lpi_store_rig_start(&rig, 4); /* one that does not discard */
		make_leaves(&rig, ino, LEAVES);
		assert_int_equal(lpi_store_rig_used_blocks(&rig), LEAVES);
		reopen(&rig);
		if (keep == 0)
			change.type = LP_CHANGE_REMOVE;
		else
			change.data.offset = keep * LP_BLOCK_BYTES;
		change_early(&rig, &change);
		assert_in_range(most_leaves(&rig, keep), 1,
				(LPI_TRIM_STEPS_MAX + 2) * LPI_TRIM_LEAVES);
		end(&rig);
	}
}

#define CUT_LEAVES UINT64_C(300)
#define CUT_LEAF   UINT64_C(100) /* in whose middle it is cut */
#define CUT_KEPT   UINT64_C(10)  /* blocks of it, */
#define CUT_BEFORE UINT64_C(20)  /* and so many were there */

static uint64_t cut_leaf_offset(uint64_t leaf)
{
	return leaf * LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES;
}

static void make_leaves_to_cut(struct lpi_store_rig *rig)
{
	make_empty(rig, ino);
	memset(bytes, 9, CUT_BEFORE * LP_BLOCK_BYTES);
	for (uint64_t i = 0; i < CUT_LEAVES; i++)
		lp_test_ok(lpi_hand_write(&rig->hand, ino, cut_leaf_offset(i), bytes,
					  (i == CUT_LEAF ? CUT_BEFORE : 1) * LP_BLOCK_BYTES));
}

/* The length of what the index has for the leaf that is cut: less when it is cut. */
static size_t cut_leaf_len(struct lpi_store_rig *rig)
{
	struct lp_kv_value value;
	struct lp_key key;
	lp_key_of_map(&key, ino, CUT_LEAF * LP_EXTMAP_LEAF_BLOCKS);
	lp_test_ok(lp_kv_get(lpi_block_of(rig->hand.store)->kv,
			     (struct lp_kv_bytes){key.bytes, key.len}, &value));
	size_t len = value.bytes.len;
	lp_kv_value_release(&value);
	return len;
}

/* Grown again it reads as zeros behind the cut. */
static void check_is_cut(struct lpi_store_rig *rig)
{
	static uint8_t got[CUT_BEFORE * LP_BLOCK_BYTES];
	const struct lp_change longer = {.type = LP_CHANGE_TRUNCATE,
					 .ino = ino,
					 .data = {.offset = cut_leaf_offset(CUT_LEAVES)}};
	lp_test_ok(lpi_hand_change(&rig->hand, longer));
	assert_int_equal(
		lpi_hand_read(&rig->hand, ino, cut_leaf_offset(CUT_LEAF), sizeof(got), got),
		sizeof(got));
	for (size_t i = 0; i < sizeof(got); i++)
		assert_int_equal(got[i], i < CUT_KEPT * LP_BLOCK_BYTES ? 9 : 0);
}

/* The trim goes on before anything else that is to be done in the next turn. */
static struct lpi_inode *step_first(struct lpi_block *block)
{
	struct lpi_node *node = lpi_node_peek(&block->nodes, LPI_NODE_INODE, ino.nr);
	struct lpi_inode *inode = node == NULL ? NULL : lpi_inode_of(node);
	if (inode != NULL && inode->trim != NULL && lp_task_is_queued(&inode->trim->task)) {
		lp_task_cancel(&inode->trim->task);
		inode->trim->task.run(&inode->trim->task);
	}
	return inode;
}

/* The leaf that is cut in its middle may be owed, and be paid by a payment that is built and not
 * written yet: it stays in memory until the index has it as it is (rules W1, L9). */
static void test_cut_leaf_is_paid(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_change cut = {.type = LP_CHANGE_TRUNCATE, .ino = ino};
	cut.data.offset = cut_leaf_offset(CUT_LEAF) + CUT_KEPT * LP_BLOCK_BYTES;
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	make_leaves_to_cut(&rig);
	reopen(&rig);
	struct lpi_block *block = lpi_block_of(rig.hand.store);
	size_t len = cut_leaf_len(&rig);
	const uint64_t kept = CUT_LEAF + CUT_KEPT;
	change_early(&rig, &cut);
	for (int i = 0; i < 20000 && lpi_store_rig_used_blocks(&rig) > kept; i++) {
		if (i % 5 == 0) /* in between time passes */
			lp_commit_pay(block->commit);
		lpi_hand_turn(&rig.hand);
		struct lpi_inode *inode = step_first(block);
		if (inode == NULL || lpi_extmap_find(&inode->map, (uint32_t)CUT_LEAF) == NULL)
			assert_true(cut_leaf_len(&rig) < len);
	}
	assert_int_equal(lpi_store_rig_used_blocks(&rig), kept);
	check_is_cut(&rig);
	end(&rig);
}

static void check_is_new(const struct lpi_hand *hand, struct lp_bytes xattr)
{
	uint8_t got[64] = {0};
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_stat(hand, ino, &attrs));
	assert_int_equal(attrs.size_bytes, 0);
	assert_int_equal(lpi_hand_get(hand, LP_STORE_XATTRS, ino, xattr, got, sizeof(got)),
			 -ENODATA);
	assert_int_equal(lpi_hand_read(hand, ino, 0, sizeof(got), got), 0);
	const struct lp_change longer = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = 16}};
	lp_test_ok(lpi_hand_change(hand, longer));
	assert_int_equal(lpi_hand_read(hand, ino, 0, sizeof(got), got), 16);
	for (int i = 0; i < 16; i++)
		assert_int_equal(got[i], 0);
}

/* --- Very sparse files ------------------------------------------------------------------------ */

#define SPARSE_CNT  150u
#define SPARSE_STEP UINT64_C(64000) /* blocks */

static uint64_t gets_of(const struct lpi_store_rig *rig)
{
	struct lp_kv_stats stats;
	lp_kv_read_stats(lpi_block_of(rig->hand.store)->kv, &stats);
	return stats.cached_hit_cnt + stats.cached_missed_cnt;
}

static void make_sparse(struct lpi_store_rig *rig)
{
	make_empty(rig, ino);
	for (uint64_t i = 0; i < SPARSE_CNT; i++)
		lp_test_ok(lpi_hand_write(&rig->hand, ino, i * SPARSE_STEP * LP_BLOCK_BYTES, bytes,
					  LP_BLOCK_BYTES));
	assert_int_equal(lpi_store_rig_used_blocks(rig), SPARSE_CNT);
	reopen(rig);
}

/* The root names some of the leaves, and not the others: these are found by scans, not by asking
 * for each that might be there. */
static void test_sparse(void **state)
{
	(void)state;
	for (uint32_t keep = 0; keep < SPARSE_CNT; keep += 70) {
		struct lpi_store_rig rig;
		struct lp_change change = {.type = LP_CHANGE_TRUNCATE, .ino = ino};
		change.data.offset = keep * SPARSE_STEP * LP_BLOCK_BYTES;
		if (keep == 0)
			change = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
		lpi_store_rig_start(&rig, 4); /* one that does not discard */
		make_sparse(&rig);
		uint64_t gets = gets_of(&rig);
		lp_test_ok(lpi_hand_change(&rig.hand, change));
		for (int i = 0; i < 20000 && lpi_store_rig_used_blocks(&rig) > keep; i++)
			lpi_hand_turn(&rig.hand);
		assert_int_equal(lpi_store_rig_used_blocks(&rig), keep);
		assert_true(gets_of(&rig) - gets < UINT64_C(32) * SPARSE_CNT);
		end(&rig);
	}
}

#define EMPTIED     UINT64_C(20000) /* leaves: more than one turn goes past */
#define NAMED       3u              /* leaves behind them, one after the other */
#define UNNAMED_MIN 10u

/* Leaves that were emptied, and are in memory yet; the one behind them is damaged, and not read. */
static void make_emptied(struct lpi_store_rig *rig)
{
	const uint64_t leaf_bytes = LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES;
	const uint64_t behind = EMPTIED + NAMED;
	make_empty(rig, ino);
	for (uint64_t i = 0; i < NAMED; i++)
		lp_test_ok(lpi_hand_write(&rig->hand, ino, (EMPTIED + i) * leaf_bytes, bytes,
					  LP_BLOCK_BYTES));
	for (uint64_t i = 1; i <= LPI_RUNS_MAX + UNNAMED_MIN; i++)
		lp_test_ok(lpi_hand_write(&rig->hand, ino, (behind + 2 * i) * leaf_bytes, bytes,
					  LP_BLOCK_BYTES));
	reopen(rig);
	spoil_leaf(rig, ino, EMPTIED);
}

static void empty_leaf(struct lp_extmap *map, uint32_t idx)
{
	const struct lp_extmap_range one = {(uint64_t)idx * LP_EXTMAP_LEAF_BLOCKS, 1};
	const struct lp_extent extent = {1, 1};
	const struct lp_extmap_new space = {&extent, 1, NULL, false};
	struct lp_extmap_release items[2];
	struct lp_extmap_released released = {items, 0, LP_ARRAY_SIZE(items)};
	struct lp_extmap_piece piece;
	uint8_t buf[LP_EXTMAP_LEAF_BYTES_MAX];
	lp_test_ok(lp_extmap_loaded(map, (struct lp_extmap_leaves){idx, idx}));
	lp_test_ok(lp_extmap_reserve(map, one, 1));
	lp_extmap_replace(map, one, &space, &released);
	lp_test_ok(lp_extmap_reserve(map, one, 0));
	lp_extmap_punch(map, one, &released);
	assert_false(lp_extmap_take_dirty(map, buf, &piece)); /* it never was stored */
}

/* How many leaves were emptied does not say how long a cut keeps others from their turn (P5): after
 * a while it leaves the search to the trim, which does it in steps. */
static void test_cut_before_emptied(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_attrs attrs;
	const struct lp_change cut = {.type = LP_CHANGE_TRUNCATE,
				      .ino = ino,
				      .data = {.offset = LP_EXTMAP_LEAF_BLOCKS * LP_BLOCK_BYTES}};
	lpi_store_rig_start(&rig, 4);
	make_emptied(&rig);
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	struct lpi_node *node =
		lpi_node_peek(&lpi_block_of(rig.hand.store)->nodes, LPI_NODE_INODE, ino.nr);
	struct lp_extmap *map = &lpi_inode_of(node)->map;
	for (uint32_t idx = 1; idx < EMPTIED; idx++)
		empty_leaf(map, idx);
	map->known_first = 0; /* as when another leaf has gone from memory since */
	map->known_end = 0;
	lpi_node_account(node);
	/* Who went to the end of them would meet the damage. */
	lp_test_ok(lpi_hand_change(&rig.hand, cut));
	turn_until_freed(&rig);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

/* --- Made again ------------------------------------------------------------------------------- */

/* The same, of one that is written in the transaction that makes it. */
static void test_made_again_at_once(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	static uint8_t got[LP_BLOCK_BYTES + 100];
	struct lp_attrs attrs;
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &of_file}};
	const struct lp_change removal = {.type = LP_CHANGE_REMOVE, .ino = ino};
	memset(bytes, 7, 100);
	for (int round = 0; round < 2; round++) {
		uint64_t offset = round == 0 ? LP_BLOCK_BYTES : LP_STORE_APPEND;
		uint64_t size = round == 0 ? LP_BLOCK_BYTES + 100 : 100;
		lpi_store_rig_start(&rig, 5);
		lp_test_ok(lpi_hand_change(&rig.hand, create));
		lp_test_ok(lpi_hand_write(&rig.hand, ino, 0, bytes, 100)); /* inline */
		lp_test_ok(lpi_hand_change(&rig.hand, removal));
		struct lpi_pay pay;
		assert_true(lpi_pay_make(&pay, rig.hand.bufs, bytes, offset, 100, LP_BUF_SMALL));
		const struct lp_change changes[] = {create,
						    lpi_write_change(ino, offset, 100, &pay)};
		struct lp_store_op op = lpi_txn_op(changes, 2);
		lp_test_ok(lpi_hand_do(&rig.hand, &op));
		op.txn.changes = NULL; /* it ends here */
		lpi_pay_drop(&pay);
		lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
		assert_int_equal(attrs.size_bytes, size);
		assert_int_equal(lpi_hand_read(&rig.hand, ino, 0, sizeof(got), got), size);
		for (uint64_t i = 0; i < size; i++)
			assert_int_equal(got[i], i < size - 100 ? 0 : 7);
		end(&rig);
	}
}

/* The number of one that was removed is not given again (rule N5), but nothing keeps a caller from
 * using it: nothing of the old one is in the new one, in memory or in its record. */
static void test_made_again(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	const struct lp_bytes name = {"user.a", 6};
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &of_file}};
	const struct lp_change set = {.type = LP_CHANGE_XATTR_SET,
				      .ino = ino,
				      .named = {.name = name, .value = {"old", 3}}};
	const struct lp_change removal = {.type = LP_CHANGE_REMOVE, .ino = ino};
	memset(bytes, 7, 100);
	for (int round = 0; round < 2; round++) {
		lpi_store_rig_start(&rig, 5);
		lp_test_ok(lpi_hand_change(&rig.hand, create));
		lp_test_ok(lpi_hand_write(&rig.hand, ino, 0, bytes, 100)); /* inline */
		lp_test_ok(lpi_hand_change(&rig.hand, set));
		lp_test_ok(lpi_hand_change(&rig.hand, removal));
		lp_test_ok(lpi_hand_change(&rig.hand, create));
		if (round == 1) {
			lp_test_ok(lpi_store_rig_close(&rig, true));
			lp_test_ok(lpi_store_rig_open(&rig));
		}
		check_is_new(&rig.hand, name);
		end(&rig);
	}
}

#define HUGE_CNT    4u   /* as many as are at work at once */
#define HUGE_LEAVES 600u /* many more than are freed before others have their turn */

static bool is_marked(struct lpi_store_rig *rig, struct lp_ino of)
{
	uint8_t buf[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, of);
	const struct lp_bytes name = {key.bytes, (uint32_t)key.len};
	return lpi_hand_get(&rig->hand, LP_STORE_RECORDS, of, name, buf, sizeof(buf)) != -ENOENT;
}

/* A small one does not wait for the end of the huge ones that came before, and all come to their
 * end. */
static void test_huge_give_way(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_change removal = {.type = LP_CHANGE_REMOVE};
	lpi_store_rig_start(&rig, 4); /* one that does not discard */
	for (uint64_t i = 0; i < HUGE_CNT; i++)
		make_leaves(&rig, (struct lp_ino){ino.nr + i}, HUGE_LEAVES);
	make_leaves(&rig, (struct lp_ino){ino.nr + HUGE_CNT}, 3);
	for (uint64_t i = 0; i <= HUGE_CNT; i++) {
		removal.ino.nr = ino.nr + i;
		change_early(&rig, &removal);
	}
	while (is_marked(&rig, removal.ino))
		lpi_hand_turn(&rig.hand);
	uint64_t left = lpi_store_rig_used_blocks(&rig);
	assert_true(left > HUGE_CNT * HUGE_LEAVES / 4);
	turn_until_freed(&rig);
	assert_int_equal(lpi_store_rig_used_blocks(&rig), 0);
	end(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_to_its_size),
		cmocka_unit_test(test_made_again),
		cmocka_unit_test(test_made_again_at_once),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_cut_before_emptied),
		cmocka_unit_test(test_removed_at_a_cut),
		cmocka_unit_test(test_unmarked_while_removed),
		cmocka_unit_test(test_cut_orphan),
		cmocka_unit_test(test_marked_while_cut),
		cmocka_unit_test(test_spoilt_marks),
		cmocka_unit_test(test_cut_over_damage),
		cmocka_unit_test(test_full_over_damage),
		cmocka_unit_test(test_removed_beside_damage),
		cmocka_unit_test(test_removed_after_damage),
		cmocka_unit_test(test_removed_without_counts),
		cmocka_unit_test(test_read_errors),
		cmocka_unit_test(test_cut_beside_many),
		cmocka_unit_test(test_emptied_leaves),
		cmocka_unit_test(test_cut_leaf_is_paid),
		cmocka_unit_test(test_huge_give_way),
	};
	return lp_test_main(tests, "store/block/write/trim");
}
