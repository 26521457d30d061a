/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a full store and changes over several shards (P6, rules L8 and N1). A change that would
 * grow is refused before anything is promised. A promised change ends, at once, at a stop and at a
 * start, and no operation waits for it. Removals go on, and afterwards there is room again. Method:
 * shards on a simulated device. One is filled, its data and then its index; or the stores are
 * opened again with a reserve larger than the device, so that all of them are as full as possible.
 * There each kind of change is tried, and each is cut at events of the device. The start after that
 * has no more than the reserve. */
#include <stdio.h>

#include "namespace/change/pact_trial_test.h"
#include "namespace/shard/ns_sim_test.h"
#include "namespace/shard/ns_text_test.h"

#define RESERVE_ALL (UINT64_C(512) << 20) /* larger than the device */
#define STEP_BYTES  (UINT64_C(8) << 20)
#define NAMES_MAX   4096u
#define DIRS        6u
#define REFUSALS    5u
#define NAME_BYTES  240u

static const struct lp_ino root = {1};

/* --- One operation after the other ------------------------------------------------------------ */

static struct lp_ns_op begin(enum lp_ns_opcode opcode)
{
	return (struct lp_ns_op){.opcode = opcode};
}

static int make(struct lpi_ns_sim *sim, struct lp_ino dir, const char *name, uint8_t type,
		struct lp_ino *ret_ino)
{
	struct lp_ns_op op = begin(LP_NS_MAKE);
	op.make.dir = dir;
	op.make.name = lpi_ns_sim_bytes(name);
	op.make.type = type;
	op.make.mode = 0755;
	int r = lpi_ns_sim_do(sim, &op);
	if (r >= 0)
		*ret_ino = op.make.found.ino;
	return r;
}

static int take_away(struct lpi_ns_sim *sim, struct lp_ino dir, const char *name, bool is_dir)
{
	struct lp_ns_op op = begin(LP_NS_REMOVE);
	op.remove.dir = dir;
	op.remove.name = lpi_ns_sim_bytes(name);
	op.remove.is_dir = is_dir;
	return lpi_ns_sim_do(sim, &op);
}

static int look_up(struct lpi_ns_sim *sim, struct lp_ino dir, const char *name)
{
	struct lp_ns_op op = begin(LP_NS_LOOKUP);
	op.lookup.dir = dir;
	op.lookup.name = lpi_ns_sim_bytes(name);
	return lpi_ns_sim_do(sim, &op);
}

static int allocate(struct lpi_ns_sim *sim, struct lp_ino ino, uint64_t offset, uint64_t length)
{
	const struct lp_change change = {.type = LP_CHANGE_PREALLOC,
					 .ino = ino,
					 .data = {.offset = offset, .length = length}};
	struct lp_ns_op op = begin(LP_NS_STORE);
	op.store.ino = ino;
	op.store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					   .txn = {.changes = &change, .change_cnt = 1}};
	return lpi_ns_sim_do(sim, &op);
}

static uint64_t retries(const struct lpi_ns_sim *sim)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(sim->ns[i], &stats);
		cnt += stats.finish_retries;
	}
	return cnt;
}

static void describe(const struct lpi_ns_sim *sim, struct lpi_ns_text *ret_text)
{
	const struct lpi_ns_hands hands = {sim->shard_cnt, sim->hand};
	lpi_ns_describe(&hands, ret_text);
}

static void end(struct lpi_ns_sim *sim)
{
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fsck(sim);
	lpi_ns_sim_fini(sim);
	free(sim);
}

/* --- A shard that was filled ------------------------------------------------------------------ */

struct filled {
	struct lpi_ns_sim *sim;
	struct lp_ino near; /* a directory on shard 1, which is full */
	struct lp_ino far;  /* one on shard 0, which has room for its index */
	struct lp_ino file; /* in that */
	uint32_t name_cnt;  /* of files in the near one */
	uint32_t dir_cnt;   /* of directories in the near one, made before it was full */
	char name[NAME_BYTES + 1];
};

static const char *name_of(struct filled *filled, uint32_t idx)
{
	(void)snprintf(filled->name, sizeof(filled->name), "%0*u", (int)NAME_BYTES, (unsigned)idx);
	return filled->name;
}

static struct lp_ino make_dir_on(struct lpi_ns_sim *sim, uint32_t shard_idx, const char *name)
{
	struct lp_ino ino = {0};
	for (;;) {
		lp_test_ok(make(sim, root, name, LP_INODE_TYPE_DIR, &ino));
		if (lp_ino_shard(ino) == shard_idx)
			return ino;
		lp_test_ok(take_away(sim, root, name, true));
	}
}

/* All chunks are objects', but for what each index has set aside. */
static void fill_data(struct filled *filled)
{
	struct lp_ino file = {0};
	uint64_t offset = 0;
	lp_test_ok(make(filled->sim, filled->near, "data", LP_INODE_TYPE_FILE, &file));
	while (allocate(filled->sim, file, offset, STEP_BYTES) >= 0)
		offset += STEP_BYTES;
}

static void fill_index(struct filled *filled)
{
	struct lp_ino ino = {0};
	/* What is refused makes it look for room, and it may find some. */
	for (uint32_t refused = 0; refused < REFUSALS;) {
		int r = make(filled->sim, filled->near, name_of(filled, filled->name_cnt),
			     LP_INODE_TYPE_FILE, &ino);
		assert_true(r == -ENOSPC || r >= 0);
		refused = r < 0 ? refused + 1 : 0;
		filled->name_cnt += r < 0 ? 0 : 1;
		assert_true(filled->name_cnt < NAMES_MAX);
	}
}

static void filled_begin(struct filled *filled)
{
	struct lp_ino ino = {0};
	char name[8];
	*filled = (struct filled){.sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(7))};
	lp_test_ok(lpi_ns_sim_start(filled->sim));
	filled->near = make_dir_on(filled->sim, 1, "near");
	filled->far = make_dir_on(filled->sim, 0, "far");
	lp_test_ok(make(filled->sim, filled->far, "file", LP_INODE_TYPE_FILE, &filled->file));
	for (; filled->dir_cnt < DIRS; filled->dir_cnt++) {
		(void)snprintf(name, sizeof(name), "d%u", (unsigned)filled->dir_cnt);
		lp_test_ok(make(filled->sim, filled->near, name, LP_INODE_TYPE_DIR, &ino));
	}
	fill_data(filled);
	fill_index(filled);
}

/* The full shard has only the entry, the others decide about the inode. */
static void check_no_mkdir(struct filled *filled)
{
	for (uint32_t i = 0; i < DIRS; i++) {
		struct lp_ino ino = {0};
		assert_int_equal(make(filled->sim, filled->near, "new", LP_INODE_TYPE_DIR, &ino),
				 -ENOSPC);
		assert_int_equal(look_up(filled->sim, filled->near, "new"), -ENOENT);
	}
	lp_test_ok(look_up(filled->sim, filled->near, "d0"));
	assert_int_equal(retries(filled->sim), 0);
}

static void check_no_link(struct filled *filled)
{
	struct lp_ns_op op = begin(LP_NS_LINK);
	op.link.ino = filled->file;
	op.link.dir = filled->near;
	op.link.name = lpi_ns_sim_bytes("link");
	assert_int_equal(lpi_ns_sim_do(filled->sim, &op), -ENOSPC);
	assert_int_equal(look_up(filled->sim, filled->near, "link"), -ENOENT);
}

static int move(struct filled *filled, struct lp_ino dir, struct lp_ino to_dir, const char *name)
{
	struct lp_ns_op op = begin(LP_NS_RENAME);
	op.rename.dir = dir;
	op.rename.name = lpi_ns_sim_bytes(name);
	op.rename.to_dir = to_dir;
	op.rename.to_name = op.rename.name;
	return lpi_ns_sim_do(filled->sim, &op);
}

static void check_list(struct filled *filled)
{
	static uint8_t buf[1 << 20];
	struct lp_ns_op op = begin(LP_NS_READDIR);
	struct lp_ns_item item;
	uint32_t pos = 0;
	uint32_t cnt = 0;
	op.readdir.dir = filled->near;
	op.readdir.buf = buf;
	op.readdir.buf_len = sizeof(buf);
	lp_test_ok(lpi_ns_sim_do(filled->sim, &op));
	while (lp_ns_next(&op, &pos, &item))
		cnt++;
	assert_false(op.readdir.more);
	assert_int_equal(cnt, filled->name_cnt + filled->dir_cnt + 1);
}

/* P6: what was full takes again when some of it was removed. */
static void empty_half(struct filled *filled)
{
	struct lp_ino ino = {0};
	for (uint32_t i = 0; i < filled->name_cnt / 2; i++)
		lp_test_ok(take_away(filled->sim, filled->near, name_of(filled, i), false));
	lp_test_ok(take_away(filled->sim, filled->near, "data", false));
	for (uint32_t i = 0; i < DIRS; i++) {
		char name[8];
		(void)snprintf(name, sizeof(name), "d%u", (unsigned)i);
		lp_test_ok(take_away(filled->sim, filled->near, name, true));
		lp_test_ok(make(filled->sim, filled->near, name, LP_INODE_TYPE_DIR, &ino));
	}
}

static void test_full_shard(void **state)
{
	(void)state;
	struct filled filled;
	filled_begin(&filled);
	check_no_mkdir(&filled);
	check_no_link(&filled);
	assert_int_equal(move(&filled, filled.far, filled.near, "file"), -ENOSPC);
	/* What goes leaves a full shard for one that has room. */
	lp_test_ok(move(&filled, filled.near, filled.far, "d0"));
	lp_test_ok(take_away(filled.sim, filled.far, "d0", true));
	filled.dir_cnt--;
	check_list(&filled);
	struct lp_ino ino = {0};
	assert_int_equal(make(filled.sim, filled.near, "d0", LP_INODE_TYPE_DIR, &ino), -ENOSPC);
	lp_test_ok(make(filled.sim, filled.far, "d0", LP_INODE_TYPE_DIR, &ino));
	lp_test_ok(take_away(filled.sim, filled.far, "d0", true));
	lp_test_ok(take_away(filled.sim, filled.near, "data", false));
	for (uint32_t i = 1; i < DIRS; i++) {
		char name[8];
		(void)snprintf(name, sizeof(name), "d%u", (unsigned)i);
		lp_test_ok(take_away(filled.sim, filled.near, name, true));
	}
	end(filled.sim);
}

static void test_room_again(void **state)
{
	(void)state;
	struct filled filled;
	filled_begin(&filled);
	check_no_mkdir(&filled);
	empty_half(&filled);
	assert_int_equal(retries(filled.sim), 0);
	end(filled.sim);
}

/* --- Stores that have no more than their reserve ---------------------------------------------- */

static void reopen(struct lpi_ns_sim *sim, uint64_t files_reserve_bytes)
{
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	sim->config.files_reserve_bytes = files_reserve_bytes;
	lpi_ns_sim_open(sim);
	lp_test_ok(lpi_ns_sim_start(sim));
}

static void run_trial(struct lpi_ns_sim *sim, struct lpi_trial *trial, uint32_t home,
		      const struct lpi_trial_kind *kind)
{
	lpi_trial_begin(trial, home, kind);
	for (uint32_t i = 0; !trial->is_done || sim->ns[home]->under_way > 0; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(sim);
	}
}

/* Removals go on, over several shards too; all else is refused, and nothing of it is left. */
static void check_kind(const struct lpi_trial_kind *kind, uint32_t home)
{
	struct lpi_ns_text before;
	struct lpi_ns_text after;
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(home + 1));
	lp_test_ok(lpi_ns_sim_start(sim));
	struct lpi_trial trial = {.world = lpi_world_make(sim->hand, sim->ns)};
	reopen(sim, RESERVE_ALL);
	describe(sim, &before);
	run_trial(sim, &trial, home, kind);
	describe(sim, &after);
	if (lpi_trial_is_removal(kind) || trial.op.result != -ENOSPC)
		assert_int_equal(trial.op.result, kind->result);
	assert_true(trial.op.result < 0 || lpi_trial_is_removal(kind));
	assert_true(lpi_ns_text_is_same(&before, &after) == (trial.op.result < 0));
	assert_int_equal(retries(sim), 0);
	reopen(sim, 0);
	trial.world.ns = sim->ns;
	if (trial.op.result < 0) {
		run_trial(sim, &trial, home, kind);
		assert_int_equal(trial.op.result, kind->result);
	}
	end(sim);
}

static void test_nothing_but_the_reserve(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < LPI_TRIAL_KINDS; i++)
		check_kind(&lpi_trial_kinds[i], i % LPI_NS_SIM_SHARDS);
}

/* --- What a start finds ----------------------------------------------------------------------- */

/* Nothing but the log and the journals can be written, as on an image whose host is full. */
static void take_host(struct lp_bdev *bdev)
{
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_label_read(bdev, false, &label, &why));
	const struct lp_sim_rule rule = {.fault = LP_SIM_ENOSPC,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = label.chunk_base * LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(lp_sim_of(bdev), &rule);
}

/* A machine that is as full as can be. It starts, or a later one does, and the same is there. The
 * device is gone afterwards. */
static void recover(struct lp_bdev *bdev, bool host_is_full, struct lpi_ns_text *ret_text)
{
	struct lpi_ns_text again;
	struct lpi_ns_sim_config config = {.files_reserve_bytes = RESERVE_ALL};
	if (host_is_full) {
		config.files_reserve_bytes = 0;
		take_host(bdev);
	}
	struct lpi_ns_sim *sim = lpi_ns_sim_boot_as(bdev, &config);
	lp_test_ok(lpi_ns_sim_start(sim));
	describe(sim, ret_text);
	lpi_ns_sim_stop(sim);
	int r = lpi_ns_sim_close(sim, false);
	assert_true(r == 0 || (host_is_full && r == -ENOSPC));
	lp_sim_rules_clear(lp_sim_of(bdev));
	lpi_ns_sim_open(sim);
	lp_test_ok(lpi_ns_sim_start(sim));
	describe(sim, &again);
	assert_true(lpi_ns_text_is_same(ret_text, &again));
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fini(sim);
	free(sim);
}

static void cut(const struct lpi_trial_kind *kind, bool host_is_full, uint32_t every)
{
	struct lpi_ns_text before;
	struct lpi_ns_text after;
	struct lpi_ns_text found;
	struct lp_sim_cutter *cutter = NULL;
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(3));
	lp_test_ok(lpi_ns_sim_start(sim));
	struct lpi_trial trial = {.world = lpi_world_make(sim->hand, sim->ns)};
	lp_sim_trim_log(lp_sim_of(sim->bdev));
	describe(sim, &before);
	run_trial(sim, &trial, 0, kind);
	lp_test_ok(trial.op.result);
	describe(sim, &after);
	lpi_ns_sim_stop(sim);
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(sim->bdev), NULL, &cutter));
	while (lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if (event % every != 0)
			continue;
		recover(lp_sim_cutter_cut(cutter, event), host_is_full, &found);
		assert_true(lpi_ns_text_is_same(&found, &before) ||
			    lpi_ns_text_is_same(&found, &after));
	}
	lp_sim_cutter_free(cutter);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fini(sim);
	free(sim);
}

static void test_start(void **state)
{
	(void)state;
	uint32_t every = LP_ASSERT_SLOW_ON ? 13 : 2;
	for (uint32_t i = 0; i < LPI_TRIAL_KINDS; i++) {
		if (lpi_trial_kinds[i].result != 0)
			continue;
		cut(&lpi_trial_kinds[i], false, every);
		cut(&lpi_trial_kinds[i], true, 4 * every);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_full_shard),
		cmocka_unit_test(test_room_again),
		cmocka_unit_test(test_nothing_but_the_reserve),
		cmocka_unit_test(test_start),
	};
	return lp_test_main(tests, "namespace/shard/full");
}
