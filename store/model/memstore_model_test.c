/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the model driver finds nothing wrong with a store that is right, and something with every
 * store that is wrong in one small way; its crash check takes what a crash may leave, and nothing
 * else.
 * Method: the store in memory under test against itself as the model, with many seeds and depths;
 * the same behind a wrapper that spoils one operation; survivors of crashes made by replaying
 * chosen transactions of a run. */
#include "store/model/crash_test.h"
#include "store/model/model_test.h"

#define SEEDS       LPI_MODEL_DEPTH_MAX
#define STEPS       400
#define WRONG_SEEDS 2
#define WRONG_STEPS 4000
#define SHARD       3
#define BUFS_BYTES  (UINT64_C(16) << 20)

static struct lpi_model_options options_of(uint64_t seed, uint32_t depth, bool ordered)
{
	return (struct lpi_model_options){.gen = {.seed = seed,
						  .shard_idx = SHARD,
						  .ordered = ordered,
						  .data_bytes_max = UINT64_C(8) << 20},
					  .depth = depth};
}

/* --- A store that is right -------------------------------------------------------------------- */

static void test_right(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct lpi_model_options options =
			options_of(seed, 1 + (uint32_t)(seed % LPI_MODEL_DEPTH_MAX), seed % 2 == 1);
		struct lpi_mem_rig *rig = lpi_mem_rig_new(BUFS_BYTES);
		struct lpi_model *model = lpi_model_new(&options);
		struct lp_store_stats stats;
		lpi_model_attach(model, &rig->hand);
		for (unsigned i = 0; i < STEPS; i++)
			assert_true(lpi_model_step(model) || !lpi_model_is_right(model));
		(void)lpi_model_check_all(model); /* looked at next */
		lpi_model_ok(model);
		/* All is used, and most transactions succeed. */
		lp_store_read_stats(rig->hand.store, &stats);
		for (unsigned i = 0; i < LP_STORE_OPCODE_CNT; i++)
			assert_true(stats.ops[i] > 0);
		assert_true(stats.errors[LP_STORE_TXN] > 0);
		assert_true(stats.errors[LP_STORE_TXN] < stats.ops[LP_STORE_TXN] / 2);
		lpi_model_free(model);
		lpi_mem_rig_free(rig);
	}
}

/* Buffers for little: changes that find no room are no fault, and the two go on as one. */
static void test_full(void **state)
{
	(void)state;
	struct lpi_model_options options = options_of(5, 1, false);
	struct lpi_mem_rig *rig = lpi_mem_rig_new(UINT64_C(1) << 20);
	struct lpi_hand hand = rig->hand;
	options.may_be_full = true;
	options.gen.data_bytes_max = UINT64_C(40) << 20;
	options.gen.length_max = UINT64_C(1) << 20;
	struct lpi_model *model = lpi_model_new(&options);
	/* Payloads come from elsewhere: they would have to wait for room for ever. */
	lp_test_ok(lp_bufs_new(BUFS_BYTES, &hand.bufs));
	lpi_model_attach(model, &hand);
	for (unsigned i = 0; i < 4 * STEPS; i++)
		(void)lpi_model_step(model); /* looked at below */
	(void)lpi_model_check_all(model);
	lpi_model_ok(model);
	assert_true(model->fulls > 0);
	assert_true(model->fulls < model->steps / 2);
	lpi_model_free(model);
	struct lp_bufs *payloads = hand.bufs;
	lp_test_ok(lp_store_close(rig->hand.store, false));
	lp_bufs_free(payloads);
	lpi_mem_rig_open(rig);
	lpi_mem_rig_free(rig);
}

/* --- Stores that are wrong -------------------------------------------------------------------- */

/* Spoils one operation on its way to a store that is right. */
struct wrong {
	struct lp_store store;
	struct lp_store *inner;
	/* Before: may change the operation, or its changes, which are a copy. True: done. */
	bool (*before)(struct lp_store_op *op, struct lp_change *changes);
	/* After it has completed: may change the results. */
	bool (*after)(struct lp_store_op *op);
	uint32_t wait; /* so many operations before the first that may be spoiled */
	bool is_done;
	void (*complete)(struct lp_store_op *op);
};

static struct wrong wrong;

static void wrong_complete(struct lp_store_op *op)
{
	if (!wrong.is_done && op->result == 0 && wrong.wait == 0)
		wrong.is_done = wrong.after(op);
	op->complete = wrong.complete;
	op->complete(op);
}

/* The store in memory is done with the changes when its submit returns. */
static void wrong_submit(struct lp_store *store, struct lp_store_op *op)
{
	static struct lp_change changes[LP_STORE_CHANGES_MAX];
	const struct lp_change *real = op->txn.changes;
	uint32_t real_cnt = op->txn.change_cnt;
	assert_ptr_equal(store, &wrong.store);
	wrong.wait -= wrong.wait > 0;
	if (wrong.after != NULL) {
		wrong.complete = op->complete;
		op->complete = wrong_complete;
	}
	if (wrong.before == NULL || wrong.is_done || wrong.wait > 0 || op->opcode != LP_STORE_TXN) {
		lp_store_submit(wrong.inner, op);
		return;
	}
	memcpy(changes, real, real_cnt * sizeof(*changes));
	op->txn.changes = changes;
	wrong.is_done = wrong.before(op, changes);
	lp_store_submit(wrong.inner, op);
	if (op->result < 0)
		wrong.is_done = false; /* had no effect */
	else
		op->txn.failed_idx = real_cnt;
	op->txn.changes = real;
	op->txn.change_cnt = real_cnt;
}

static void wrong_end(struct lp_store *store, struct lp_store_op *op)
{
	(void)store;
	lp_store_end(wrong.inner, op);
}

static bool wrong_sim_run_one(struct lp_store *store)
{
	(void)store;
	return false;
}

static const struct lpi_store_calls wrong_calls = {
	.submit = wrong_submit, .end = wrong_end, .sim_run_one = wrong_sim_run_one};

static struct lp_change *last_of(const struct lp_store_op *op, struct lp_change *changes,
				 enum lp_change_type type)
{
	struct lp_change *last = &changes[op->txn.change_cnt - 1];
	return last->type == type ? last : NULL;
}

/* The last change is lost: a value that was not there before, in all likelihood. */
static bool drop_change(struct lp_store_op *op, struct lp_change *changes)
{
	const struct lp_change *change = last_of(op, changes, LP_CHANGE_OMAP_SET);
	if (op->txn.change_cnt < 2 || change == NULL || change->named.value.len < 8)
		return false;
	op->txn.change_cnt--;
	return true;
}

static bool shift_write(struct lp_store_op *op, struct lp_change *changes)
{
	struct lp_change *change = last_of(op, changes, LP_CHANGE_WRITE);
	if (change == NULL || change->data.offset >= LP_STORE_FILE_MAX / 2)
		return false;
	/* Zeros may come to lie on zeros. */
	const struct lp_seg *seg = change->data.payload.segs;
	if (seg->buf->data[seg->offset] == 0)
		return false;
	change->data.offset += LP_BLOCK_BYTES;
	return true;
}

static bool shorten_value(struct lp_store_op *op, struct lp_change *changes)
{
	struct lp_change *change = last_of(op, changes, LP_CHANGE_XATTR_SET);
	if (change == NULL || change->named.value.len == 0)
		return false;
	change->named.value.len--;
	return true;
}

static bool other_target(struct lp_store_op *op, struct lp_change *changes)
{
	struct lp_change *change = last_of(op, changes, LP_CHANGE_ENTRY_SET);
	if (change != NULL)
		change->named.target.nr++;
	return change != NULL;
}

static bool cut_one_more(struct lp_store_op *op, struct lp_change *changes)
{
	struct lp_change *change = last_of(op, changes, LP_CHANGE_TRUNCATE);
	if (change == NULL || change->data.offset == 0)
		return false;
	change->data.offset--;
	return true;
}

static bool wrong_crc(struct lp_store_op *op, struct lp_change *changes)
{
	static uint32_t crcs[LP_STORE_WRITE_MAX / LP_BLOCK_BYTES + 1];
	struct lp_change *change = last_of(op, changes, LP_CHANGE_WRITE);
	if (change == NULL || change->data.offset == LP_STORE_APPEND)
		return false;
	memcpy(crcs, change->data.payload.crcs, change->data.payload.crc_cnt * sizeof(*crcs));
	crcs[change->data.payload.crc_cnt - 1] ^= 1;
	change->data.payload.crcs = crcs;
	return true;
}

/* Guards hold that do not: all of them, for most hold anyway. */
static bool forget_guards(struct lp_store_op *op, struct lp_change *changes)
{
	if (op->txn.change_cnt > 0 && changes[0].type == LP_GUARD_INODE) {
		changes[0].guard.version_nr = 0;
		changes[0].guard.mode_mask = 0;
		changes[0].guard.has_owner = false;
	}
	return false;
}

static bool seek_too_far(struct lp_store_op *op)
{
	if (op->opcode != LP_STORE_SEEK)
		return false;
	op->seek.found += LP_STORE_FILE_MAX;
	return true;
}

static bool list_too_little(struct lp_store_op *op)
{
	if (op->opcode != LP_STORE_LIST || op->list.items == 0)
		return false;
	op->list.items--;
	return true;
}

static bool other_attrs(struct lp_store_op *op)
{
	if (op->opcode != LP_STORE_STAT)
		return false;
	op->stat.attrs.version_nr++;
	return true;
}

static bool read_less(struct lp_store_op *op)
{
	if (op->opcode != LP_STORE_READ || op->read.bytes == 0)
		return false;
	op->read.bytes--;
	return true;
}

/* Whether the model notices, at the latest when all is compared just after it. */
static bool is_noticed(uint64_t seed, uint32_t depth)
{
	struct lpi_model_options options = options_of(seed, depth, false);
	struct lpi_mem_rig *rig = lpi_mem_rig_new(BUFS_BYTES);
	struct lpi_model *model = lpi_model_new(&options);
	struct lpi_hand hand = rig->hand;
	wrong.store.calls = &wrong_calls;
	wrong.inner = rig->hand.store;
	wrong.is_done = false;
	wrong.wait = 100 + (uint32_t)(seed % 8) * 50;
	hand.store = &wrong.store;
	lpi_model_attach(model, &hand);
	for (unsigned i = 0; i < WRONG_STEPS && !wrong.is_done; i++)
		if (!lpi_model_step(model))
			break;
	assert_true(wrong.is_done || !lpi_model_is_right(model));
	(void)lpi_model_check_all(model);
	(void)lpi_model_drain(model);
	bool is_found = !lpi_model_is_right(model);
	lpi_model_free(model);
	lpi_mem_rig_free(rig);
	return is_found;
}

static void test_wrong(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		bool (*before)(struct lp_store_op *op, struct lp_change *changes);
		bool (*after)(struct lp_store_op *op);
	} cases[] = {
		{"drop_change", drop_change, NULL},
		{"shift_write", shift_write, NULL},
		{"shorten_value", shorten_value, NULL},
		{"other_target", other_target, NULL},
		{"cut_one_more", cut_one_more, NULL},
		{"forget_guards", forget_guards, NULL},
		{"wrong_crc", wrong_crc, NULL},
		{"seek_too_far", NULL, seek_too_far},
		{"list_too_little", NULL, list_too_little},
		{"other_attrs", NULL, other_attrs},
		{"read_less", NULL, read_less},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		for (uint64_t seed = 0; seed < WRONG_SEEDS; seed++) {
			wrong = (struct wrong){.before = cases[i].before, .after = cases[i].after};
			/* One operation at a time, where the wrapper remembers only one. */
			uint32_t depth = cases[i].after != NULL || seed % 2 == 0 ? 1 : 8;
			if (is_noticed(seed, depth))
				continue;
			print_error("%s, seed %llu: not noticed\n", cases[i].name,
				    (unsigned long long)seed);
			fail();
		}
	}
}

/* Any answer that passes over no data is right, and no other. */
static void test_seeks(void **state)
{
	(void)state;
	static const struct {
		bool is_right;
		int result;
		bool hole;
		uint64_t offset;
		uint64_t found;
	} cases[] = {
		{true, 0, false, 0, 4096},       {true, 0, false, 0, 0},
		{true, 0, false, 0, 100},        {false, 0, false, 0, 4097},
		{false, 0, false, 0, 8192},      {false, -ENXIO, false, 0, 0},
		{false, 0, false, 5000, 4096},   {true, 0, false, 5000, 5000},
		{true, -ENXIO, false, 8192, 0},  {true, 0, false, 8192, 9000},
		{true, 0, true, 4096, 8192},     {false, 0, true, 4096, 4096},
		{true, 0, true, 4096, 16000},    {false, 0, true, 4096, 16001},
		{false, -ENXIO, true, 4096, 0},  {true, 0, true, 0, 0},
		{true, -ENXIO, true, 16000, 0},  {false, 0, true, 16000, 16000},
		{false, 0, false, 16000, 16000}, {false, -EIO, false, 0, 0},
	};
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE};
	const struct lp_ino ino = {9};
	struct lpi_mem_rig *rig = lpi_mem_rig_new(UINT64_C(4) << 20);
	uint8_t bytes[LP_BLOCK_BYTES];
	memset(bytes, 'x', sizeof(bytes));
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &attrs}};
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = 16000}};
	lp_test_ok(lpi_hand_change(&rig->hand, create));
	lp_test_ok(lpi_hand_write(&rig->hand, ino, LP_BLOCK_BYTES, bytes, sizeof(bytes)));
	lp_test_ok(lpi_hand_change(&rig->hand, cut));
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_diff diff = {.found = false};
		struct lp_store_op real = {
			.opcode = LP_STORE_SEEK,
			.seek = {.ino = ino, .offset = cases[i].offset, .hole = cases[i].hole}};
		struct lp_store_op op = real;
		(void)lpi_hand_do(&rig->hand, &real); /* what is right in any case */
		op.result = cases[i].result;
		op.seek.found = cases[i].found;
		if (lpi_seek_is_right(&op, &real, &rig->hand, &diff) != cases[i].is_right)
			print_error("case %zu\n", i);
		assert_int_equal(!diff.found, cases[i].is_right);
	}
	lpi_mem_rig_free(rig);
}

/* --- Crashes ---------------------------------------------------------------------------------- */

struct crash_run {
	struct lpi_mem_rig *rig;
	struct lpi_model *model;
};

static void crash_run_init(struct crash_run *run, uint64_t seed, uint32_t depth)
{
	struct lpi_model_options options = options_of(seed, depth, true);
	run->rig = lpi_mem_rig_new(BUFS_BYTES);
	run->model = lpi_model_new(&options);
	lpi_model_attach(run->model, &run->rig->hand);
}

static void crash_run_steps(struct crash_run *run, unsigned steps)
{
	for (unsigned i = 0; i < steps; i++)
		(void)lpi_model_step(run->model); /* looked at next */
	(void)lpi_model_drain(run->model);
	lpi_model_ok(run->model);
}

static void crash_run_fini(struct crash_run *run)
{
	lpi_model_free(run->model);
	lpi_mem_rig_free(run->rig);
}

/* A store that holds what these transactions have made, and no others. */
static struct lpi_mem_rig *survivor_of(const struct lpi_model *model, const bool *is_in)
{
	struct lpi_mem_rig *rig = lpi_mem_rig_new(BUFS_BYTES);
	for (uint64_t i = 0; i < model->history_cnt; i++)
		if (is_in[i])
			(void)lpi_replay(&rig->hand, &model->history[i].plan); /* or refused */
	return rig;
}

static bool is_durable(const struct lpi_model *model, uint64_t idx)
{
	return model->history[idx].durable_time != LPI_MODEL_NEVER;
}

static bool do_meet(const struct lpi_model *model, uint64_t a, uint64_t b)
{
	struct lpi_touches touches_a;
	struct lpi_touches touches_b;
	lpi_touches_of(&touches_a, &model->history[a].plan);
	lpi_touches_of(&touches_b, &model->history[b].plan);
	return lpi_touches_meet(&touches_a, &touches_b);
}

/* All that must be there, others by chance, and what those need: a crash may leave it. Not what was
 * refused: it might be made where something before it is missing. */
static void draw_survivors(const struct lpi_model *model, struct lp_prng *prng, bool *ret_is_in)
{
	for (uint64_t i = model->history_cnt; i-- > 0;) {
		bool is_drawn = is_durable(model, i) || lp_prng_chance(prng, 1, 3);
		ret_is_in[i] = is_drawn && !model->history[i].not_done;
		for (uint64_t j = i + 1; j < model->history_cnt && !ret_is_in[i]; j++)
			ret_is_in[i] =
				ret_is_in[j] && !model->history[j].not_done && do_meet(model, i, j);
	}
}

static bool check_crash(struct crash_run *run, const bool *is_in, bool adopt, uint64_t *ret_found)
{
	struct lpi_mem_rig *rig = survivor_of(run->model, is_in);
	bool is_right =
		lpi_model_crash_check(run->model, &rig->hand, run->model->steps, adopt, ret_found);
	if (!is_right || !adopt) {
		lpi_mem_rig_free(rig);
		return is_right;
	}
	lpi_mem_rig_free(run->rig);
	run->rig = rig;
	return true;
}

/* What is left is accepted, and the run goes on from it, several times over. */
static void test_crashes(void **state)
{
	(void)state;
	uint64_t lost = 0;
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct crash_run run;
		struct lp_prng prng;
		bool is_in[4000];
		lp_prng_init(&prng, seed);
		crash_run_init(&run, seed, seed == 0 ? 1 : 8);
		for (unsigned i = 0; i < 6; i++) {
			uint64_t found = 0;
			crash_run_steps(&run, 60 + 40 * i);
			uint64_t cnt = run.model->history_cnt;
			assert_true(cnt < LP_ARRAY_SIZE(is_in));
			draw_survivors(run.model, &prng, is_in);
			(void)check_crash(&run, is_in, i % 2 == 0, &found); /* looked at next */
			lpi_model_ok(run.model);
			for (uint64_t j = 0; j < cnt; j++)
				lost += !is_in[j];
			assert_true(found <= cnt);
		}
		(void)lpi_model_check_all(run.model);
		lpi_model_ok(run.model);
		crash_run_fini(&run);
	}
	assert_in_range(lost, 30, 100000);
}

/* What comes later may hide what was done to it. */
static bool is_changed_after(const struct lpi_model *model, uint64_t idx, uint64_t ino)
{
	for (uint64_t i = idx + 1; i < model->history_cnt; i++) {
		const struct lpi_model_txn *txn = &model->history[i];
		for (uint32_t j = 0; j < txn->plan.change_cnt && !txn->not_done; j++) {
			const struct lpi_plan_change *change = &txn->plan.changes[j];
			if (!lpi_change_is_guard(change->type) && change->ino == ino)
				return true;
		}
	}
	return false;
}

/* A transaction that changes something and succeeded; history_cnt: there is none. */
static uint64_t find_txn(const struct lpi_model *model, bool durable, enum lp_change_type last)
{
	for (uint64_t i = model->history_cnt; i-- > 0;) {
		const struct lpi_model_txn *txn = &model->history[i];
		const struct lpi_plan_change *change = &txn->plan.changes[txn->plan.change_cnt - 1];
		if (!txn->not_done && is_durable(model, i) == durable && change->type == last &&
		    !is_changed_after(model, i, change->ino))
			return i;
	}
	return model->history_cnt;
}

/* What was acknowledged as durable is gone: the newest change to a record or inode. */
static void test_lost(void **state)
{
	(void)state;
	static const enum lp_change_type types[] = {LP_CHANGE_WRITE, LP_CHANGE_SET,
						    LP_CHANGE_OMAP_SET, LP_CHANGE_CREATE};
	uint64_t lost_cnt = 0;
	for (uint64_t seed = 0; seed < 16; seed++) {
		struct crash_run run;
		bool is_in[1000];
		crash_run_init(&run, seed, 4);
		crash_run_steps(&run, 200);
		memset(is_in, 1, sizeof(is_in));
		(void)check_crash(&run, is_in, false, NULL);
		lpi_model_ok(run.model);
		uint64_t idx = find_txn(run.model, true, types[seed % LP_ARRAY_SIZE(types)]);
		if (idx < run.model->history_cnt) {
			is_in[idx] = false;
			assert_false(check_crash(&run, is_in, false, NULL));
			assert_false(lpi_model_is_right(run.model));
			lost_cnt++;
		}
		crash_run_fini(&run);
	}
	assert_in_range(lost_cnt, 6, 16);
}

/* Half of a transaction: the other half is in no store that a crash may leave. */
static void test_half(void **state)
{
	(void)state;
	struct crash_run run;
	bool is_in[1000];
	crash_run_init(&run, 1, 4);
	crash_run_steps(&run, 50);
	struct lpi_plan plan = {.opcode = LP_STORE_TXN, .change_cnt = 2, .ack = LP_ACK_ORDERED};
	plan.changes[0] = (struct lpi_plan_change){.type = LP_CHANGE_CREATE,
						   .ino = run.model->gen.next_nr++,
						   .ino_type = LP_INODE_TYPE_FILE,
						   .value_len = LPI_PLAN_ABSENT};
	plan.changes[1] = (struct lpi_plan_change){
		.type = LP_CHANGE_RECORD, .name_idx = 1, .value_len = 7, .seed = 77};
	assert_true(lpi_model_do(run.model, &plan));
	assert_true(lpi_model_drain(run.model));
	uint64_t last = run.model->history_cnt - 1;
	memset(is_in, 1, sizeof(is_in));
	/* Without it, and with it. */
	is_in[last] = false;
	assert_true(check_crash(&run, is_in, false, NULL));
	is_in[last] = true;
	assert_true(check_crash(&run, is_in, false, NULL));
	run.model->history[last].plan.change_cnt = 1;
	struct lpi_mem_rig *rig = survivor_of(run.model, is_in);
	run.model->history[last].plan.change_cnt = 2;
	assert_false(lpi_model_crash_check(run.model, &rig->hand, run.model->steps, false, NULL));
	assert_false(lpi_model_is_right(run.model));
	lpi_mem_rig_free(rig);
	crash_run_fini(&run);
}

/* Of two writes to the same file the older one is lost. */
static void test_gap(void **state)
{
	(void)state;
	struct crash_run run;
	bool is_in[1000];
	crash_run_init(&run, 2, 1);
	crash_run_steps(&run, 50);
	struct lpi_plan plan = {.opcode = LP_STORE_TXN, .change_cnt = 1, .ack = LP_ACK_ORDERED};
	plan.changes[0] = (struct lpi_plan_change){.type = LP_CHANGE_LINK,
						   .ino = run.model->gen.inodes[0].nr,
						   .delta = 1,
						   .value_len = LPI_PLAN_ABSENT};
	for (unsigned i = 0; i < 2; i++) {
		assert_true(lpi_model_do(run.model, &plan));
		plan.changes[0].type = LP_CHANGE_SET; /* of nothing: only the version */
	}
	memset(is_in, 1, sizeof(is_in));
	is_in[run.model->history_cnt - 1] = false;
	assert_true(check_crash(&run, is_in, false, NULL));
	is_in[run.model->history_cnt - 1] = true;
	is_in[run.model->history_cnt - 2] = false;
	assert_false(check_crash(&run, is_in, false, NULL));
	crash_run_fini(&run);
}

static void do_one(struct lpi_model *model, enum lp_store_ack ack,
		   const struct lpi_plan_change *changes, uint32_t cnt)
{
	struct lpi_plan plan = {.opcode = LP_STORE_TXN, .change_cnt = cnt, .ack = ack};
	for (uint32_t i = 0; i < cnt; i++) {
		plan.changes[i] = changes[i];
		plan.changes[i].value_len = changes[i].type == LP_CHANGE_RECORD ? 7 : 0;
	}
	assert_true(lpi_model_do(model, &plan) && lpi_model_drain(model));
	assert_false(model->history[model->history_cnt - 1].not_done);
}

/* A name comes, goes and comes again, and in between a transaction needs the directory empty: what
 * is there looks like what was there at first, and yet all of it must have happened. */
static void test_empty_between(void **state)
{
	(void)state;
	struct crash_run run;
	bool is_in[1000];
	crash_run_init(&run, 4, 1);
	struct lpi_model *model = run.model;
	const struct lpi_plan_change made = {.type = LP_CHANGE_ENTRY_SET,
					     .ino = UINT64_C(0x123456),
					     .other = UINT64_C(0x123457),
					     .ino_type = LP_INODE_TYPE_FILE};
	struct lpi_plan_change gone = made;
	gone.type = LP_CHANGE_ENTRY_REMOVE;
	const struct lpi_plan_change empty[] = {{.type = LP_GUARD_EMPTY, .ino = made.ino},
						{.type = LP_CHANGE_RECORD, .name_idx = 1}};
	do_one(model, LP_ACK_ORDERED, &made, 1);
	do_one(model, LP_ACK_ORDERED, &gone, 1);
	do_one(model, LP_ACK_ORDERED, empty, 2);
	do_one(model, LP_ACK_ORDERED, &made, 1);
	assert_int_equal(model->history_cnt, 4);
	memset(is_in, 1, sizeof(is_in));
	assert_true(check_crash(&run, is_in, false, NULL));
	is_in[3] = false;
	assert_true(check_crash(&run, is_in, false, NULL));
	/* The record without the removal that it needed. */
	struct lpi_mem_rig *rig = lpi_mem_rig_new(BUFS_BYTES);
	struct lpi_plan record = {.opcode = LP_STORE_TXN, .change_cnt = 1};
	record.changes[0] = model->history[2].plan.changes[1];
	assert_int_equal(lpi_replay(&rig->hand, &record), 0);
	assert_true(lpi_model_crash_check(model, &rig->hand, model->steps, false, NULL));
	assert_int_equal(lpi_replay(&rig->hand, &model->history[0].plan), 0);
	assert_true(lpi_model_crash_check(model, &rig->hand, model->steps, false, NULL));
	model->history[0].durable_time = 0;
	model->history_cnt = 3;
	assert_false(lpi_model_crash_check(model, &rig->hand, model->steps, false, NULL));
	assert_false(lpi_model_is_right(model));
	lpi_mem_rig_free(rig);
	crash_run_fini(&run);
}

/* A sync makes durable what was ordered before it, and a read what it has seen. */
static void test_learning(void **state)
{
	(void)state;
	struct crash_run run;
	crash_run_init(&run, 3, 4);
	struct lpi_plan plan = {.opcode = LP_STORE_TXN, .change_cnt = 1, .ack = LP_ACK_ORDERED};
	struct lpi_plan query = {.opcode = LP_STORE_STAT};
	struct lpi_model *model = run.model;
	for (unsigned i = 0; i < 3; i++) {
		plan.changes[0] = (struct lpi_plan_change){.type = LP_CHANGE_CREATE,
							   .ino = model->gen.next_nr++,
							   .ino_type = LP_INODE_TYPE_FILE,
							   .value_len = LPI_PLAN_ABSENT};
		assert_true(lpi_model_do(model, &plan));
	}
	assert_true(lpi_model_drain(model));
	assert_false(is_durable(model, 0) || is_durable(model, 1) || is_durable(model, 2));
	query.ino = model->history[1].plan.changes[0].ino;
	assert_true(lpi_model_do(model, &query) && lpi_model_drain(model));
	assert_true(!is_durable(model, 0) && is_durable(model, 1) && !is_durable(model, 2));
	query.opcode = LP_STORE_SYNC;
	assert_true(lpi_model_do(model, &query));
	plan.changes[0].type = LP_CHANGE_SET;
	assert_true(lpi_model_do(model, &plan) && lpi_model_drain(model));
	assert_true(is_durable(model, 0) && is_durable(model, 2) && !is_durable(model, 3));
	crash_run_fini(&run);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),    cmocka_unit_test(test_full),
		cmocka_unit_test(test_wrong),    cmocka_unit_test(test_seeks),
		cmocka_unit_test(test_crashes),  cmocka_unit_test(test_lost),
		cmocka_unit_test(test_half),     cmocka_unit_test(test_gap),
		cmocka_unit_test(test_learning), cmocka_unit_test(test_empty_between),
	};
	return lp_test_main(tests, "store/model/memstore_model");
}
