/* SPDX-License-Identifier: Apache-2.0 */
/* Changes over several shards on stores that fail, or are full: each transaction of each shard in
 * turn. Stores are in memory, so that "opening again" is to start other namespaces on them. */
#include "base/testing/scarce_test.h"
#include "namespace/change/pact_trial_test.h"
#include "namespace/shard/ns_rig_test.h"
#include "namespace/shard/ns_text_test.h"

#define SHARDS 3u
#define TXNS   3u /* of one change on one shard, at most */

/* --- Stores that fail ------------------------------------------------------------------------- */

enum fault {
	FAULT_NONE,
	FAULT_FULL,       /* this one transaction finds no space */
	FAULT_DIES,       /* -EIO, and nothing was done; from then on nothing can be changed */
	FAULT_DIES_AFTER, /* the same, but it was done */
	FAULT_CNT,        /* so far: they strike once */
	/* From this transaction on. */
	FAULT_TIGHT,   /* nothing may grow, except into the kept space (rule L8) */
	FAULT_RESERVE, /* there is only the kept space */
	FAULT_HOST     /* there is no space at all, as on an image in a full file system */
};

struct faulty {
	struct lp_store store;
	struct lp_store *inner;
	struct lp_reactor *reactor;
	enum fault fault;
	uint32_t skip; /* transactions that pass before the one */
	uint32_t txns; /* seen */
	bool is_dead;
	bool has_struck;
	struct lp_task task;
	struct lp_store_op *failing;
	void (*complete)(struct lp_store_op *op);
	int result;
};

static struct faulty faulty[SHARDS];

static void say_failed(struct lp_task *task)
{
	struct faulty *one = LP_CONTAINER_OF(task, struct faulty, task);
	struct lp_store_op *op = one->failing;
	one->failing = NULL;
	op->result = one->result;
	op->txn.is_unknown = op->result == -EIO; /* nobody but we knows better */
	op->complete(op);
}

static void fail_later(struct faulty *one, struct lp_store_op *op, int result)
{
	assert_null(one->failing);
	one->failing = op;
	one->result = result;
	one->task.run = say_failed;
	lp_task_queue(one->reactor, &one->task);
}

/* The transaction was done, but its result is lost. */
static void done_after(struct lp_store_op *op)
{
	for (uint32_t i = 0; i < SHARDS; i++) {
		if (faulty[i].is_dead && faulty[i].complete != NULL) {
			op->complete = faulty[i].complete;
			faulty[i].complete = NULL;
			op->result = -EIO;
			op->txn.is_unknown = true;
			op->complete(op);
			return;
		}
	}
}

static bool does_grow(const struct lp_store_op *op)
{
	bool grows = op->txn.room == LP_ROOM_GROWS;
	for (uint32_t i = 0; op->txn.room == LP_ROOM_OWN && i < op->txn.change_cnt; i++) {
		enum lp_change_type type = op->txn.changes[i].type;
		grows |= type == LP_CHANGE_CREATE || type == LP_CHANGE_ENTRY_SET;
	}
	return grows;
}

static bool is_refused(enum fault fault, const struct lp_store_op *op)
{
	if (fault == FAULT_TIGHT)
		return does_grow(op);
	return fault == FAULT_HOST ||
	       (op->txn.room != LP_ROOM_FREES && op->txn.room != LP_ROOM_ENDS);
}

static void submit_to_full(struct faulty *one, struct lp_store_op *op)
{
	if (one->txns++ < one->skip || !is_refused(one->fault, op)) {
		lp_store_submit(one->inner, op);
		return;
	}
	one->has_struck = true;
	fail_later(one, op, -ENOSPC);
}

static void faulty_submit(struct lp_store *store, struct lp_store_op *op)
{
	struct faulty *one = LP_CONTAINER_OF(store, struct faulty, store);
	bool is_txn = op->opcode == LP_STORE_TXN;
	if (is_txn && one->fault > FAULT_CNT) {
		submit_to_full(one, op);
		return;
	}
	if (!is_txn || (!one->is_dead &&
			(one->fault == FAULT_NONE || one->has_struck || one->txns++ < one->skip))) {
		lp_store_submit(one->inner, op);
		return;
	}
	if (one->is_dead) {
		fail_later(one, op, -EIO);
		return;
	}
	one->has_struck = true;
	one->is_dead = one->fault != FAULT_FULL;
	if (one->fault == FAULT_DIES_AFTER) {
		one->complete = op->complete;
		op->complete = done_after;
		lp_store_submit(one->inner, op);
		return;
	}
	fail_later(one, op, one->is_dead ? -EIO : -ENOSPC);
}

static void faulty_end(struct lp_store *store, struct lp_store_op *op)
{
	lp_store_end(LP_CONTAINER_OF(store, struct faulty, store)->inner, op);
}

static struct lp_ino faulty_new_ino(struct lp_store *store)
{
	return lp_store_new_ino(LP_CONTAINER_OF(store, struct faulty, store)->inner);
}

static int faulty_error(const struct lp_store *store)
{
	for (uint32_t i = 0; i < SHARDS; i++)
		if (store == &faulty[i].store && faulty[i].is_dead)
			return -EIO;
	return 0;
}

static bool faulty_is_settled(const struct lp_store *store)
{
	(void)store;
	return false;
}

static bool faulty_is_freeing(const struct lp_store *store, struct lp_store_freeing *since)
{
	(void)store;
	(void)since;
	return false;
}

static bool faulty_sim_run_one(struct lp_store *store)
{
	(void)store;
	return false;
}

static const struct lpi_store_calls faulty_calls = {.submit = faulty_submit,
						    .end = faulty_end,
						    .new_ino = faulty_new_ino,
						    .error = faulty_error,
						    .is_settled = faulty_is_settled,
						    .is_freeing = faulty_is_freeing,
						    .sim_run_one = faulty_sim_run_one};

/* --- The rig ---------------------------------------------------------------------------------- */

struct bench {
	struct lpi_ns_rig *rig;
	struct lpi_hand hand[SHARDS];
	struct lpi_trial_world world;
	struct lp_store *real[SHARDS];
};

static void bench_turn(const struct lpi_hand *hand)
{
	(void)lpi_ns_rig_turn(hand->arg);
}

static void bench_init(struct bench *bench)
{
	bench->rig = lpi_ns_rig_new(SHARDS);
	lpi_ns_rig_stop(bench->rig);
	for (uint32_t i = 0; i < SHARDS; i++) {
		bench->real[i] = bench->rig->store[i];
		faulty[i] = (struct faulty){.store = {&faulty_calls},
					    .inner = bench->real[i],
					    .reactor = bench->rig->reactor[i]};
		bench->rig->store[i] = &faulty[i].store;
		bench->hand[i] = (struct lpi_hand){.reactor = bench->rig->reactor[i],
						   .bufs = bench->rig->bufs[i],
						   .store = &faulty[i].store,
						   .turn = bench_turn,
						   .arg = bench->rig};
	}
	lp_test_ok(lpi_ns_rig_start(bench->rig));
	bench->world = lpi_world_make(bench->hand, bench->rig->ns);
}

/* Nothing is held, and nothing is left in anybody's hands. */
static void check_idle(const struct bench *bench)
{
	for (uint32_t i = 0; i < SHARDS; i++) {
		const struct lp_ns *ns = bench->rig->ns[i];
		assert_int_equal(ns->under_way, 0);
		assert_int_equal(lpi_locks_cnt(ns->locks), 0);
		assert_int_equal(lp_pool_free_cnt(ns->rooms), LPI_ROOMS);
		assert_int_equal(lp_pool_free_cnt(ns->transfers), LPI_TRANSFERS);
		assert_non_null(ns->wides);
		assert_non_null(ns->wides->next);
	}
}

static bool is_busy(const struct bench *bench)
{
	uint32_t busy = 0;
	for (uint32_t i = 0; i < SHARDS; i++)
		busy += bench->rig->ns[i]->under_way - (uint32_t)bench->rig->ns[i]->stats.stuck;
	return busy > 0;
}

static uint64_t stuck_cnt(const struct bench *bench)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < SHARDS; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(bench->rig->ns[i], &stats);
		cnt += stats.stuck;
	}
	return cnt;
}

/* Until it was answered and nothing more happens of it. */
static int finish(struct bench *bench, struct lpi_trial *trial)
{
	for (uint32_t i = 0; !trial->is_done || is_busy(bench); i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(bench->rig);
	}
	return trial->op.result;
}

static int run(struct bench *bench, struct lpi_trial *trial, uint32_t home,
	       const struct lpi_trial_kind *kind)
{
	*trial = (struct lpi_trial){.world = bench->world};
	lpi_trial_begin(trial, home, kind);
	return finish(bench, trial);
}

static void describe(struct bench *bench, struct lpi_ns_text *ret_text)
{
	const struct lpi_ns_hands hands = {SHARDS, bench->hand};
	lpi_ns_describe(&hands, ret_text);
}

/* Rule N2: a seal goes with its fragment, also one on a shard that never had the directory's inode,
 * where nobody lists it any more. */
static void check_no_seal(struct bench *bench)
{
	const struct lpi_trial_world *w = &bench->world;
	const struct lp_ino dirs[] = {w->d1, w->d2, w->e, w->s, w->t};
	for (uint32_t shard = 0; shard < SHARDS; shard++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(dirs); i++) {
			struct lp_store_op op = {.opcode = LP_STORE_DIR, .dir = {.ino = dirs[i]}};
			lp_test_ok(lpi_hand_do(&bench->hand[shard], &op));
			assert_false(op.dir.is_sealed);
		}
	}
}

/* As after a crash: what was in memory is gone. */
static void reopen(struct bench *bench)
{
	lpi_ns_rig_stop(bench->rig);
	for (uint32_t i = 0; i < SHARDS; i++) {
		faulty[i].fault = FAULT_NONE;
		faulty[i].is_dead = false;
	}
	lp_test_ok(lpi_ns_rig_start(bench->rig));
	bench->world.ns = bench->rig->ns;
}

static void bench_fini(struct bench *bench)
{
	lpi_ns_rig_stop(bench->rig);
	for (uint32_t i = 0; i < SHARDS; i++)
		bench->rig->store[i] = bench->real[i];
	lp_test_ok(lpi_ns_rig_start(bench->rig));
	lpi_ns_rig_free(bench->rig);
}

/* --- Every transaction fails once ------------------------------------------------------------- */

static void test_right(void **state)
{
	(void)state;
	for (size_t i = 0; i < LPI_TRIAL_KINDS; i++) {
		for (uint32_t home = 0; home < SHARDS; home++) {
			struct bench bench;
			struct lpi_trial trial;
			struct lpi_ns_text before;
			struct lpi_ns_text after;
			bench_init(&bench);
			describe(&bench, &before);
			assert_int_equal(run(&bench, &trial, home, &lpi_trial_kinds[i]),
					 lpi_trial_kinds[i].result);
			assert_true(trial.was_told);
			check_idle(&bench);
			check_no_seal(&bench);
			describe(&bench, &after);
			assert_null(memchr(after.bytes, 'T', after.len));
			assert_true(lpi_ns_text_is_same(&before, &after) ==
				    (lpi_trial_kinds[i].result < 0));
			bench_fini(&bench);
		}
	}
}

struct outcome {
	struct lpi_ns_text before;
	struct lpi_ns_text after;
};

static void learn(const struct lpi_trial_kind *kind, struct outcome *ret)
{
	struct bench bench;
	struct lpi_trial trial;
	bench_init(&bench);
	describe(&bench, &ret->before);
	assert_int_equal(run(&bench, &trial, 1, kind), kind->result);
	describe(&bench, &ret->after);
	bench_fini(&bench);
}

static void check_found(const struct lpi_trial_kind *kind, const struct outcome *outcome,
			const struct lpi_ns_text *found, bool may_be_before, bool may_be_after)
{
	if (may_be_before && lpi_ns_text_is_same(found, &outcome->before))
		return;
	if (may_be_after && lpi_ns_text_is_same(found, &outcome->after))
		return;
	print_error("%s:\n%.*s\nbefore:\n%.*s\nafter:\n%.*s\n", kind->name, (int)found->len,
		    found->bytes, (int)outcome->before.len, outcome->before.bytes,
		    (int)outcome->after.len, outcome->after.bytes);
	fail();
}

/* One transaction of one shard. Returns whether there was such a one. */
static bool fail_one(const struct lpi_trial_kind *kind, const struct outcome *outcome,
		     uint32_t shard, enum fault fault, uint32_t skip)
{
	struct bench bench;
	struct lpi_trial trial;
	struct lpi_ns_text found;
	bench_init(&bench);
	faulty[shard].fault = fault;
	faulty[shard].skip = skip;
	int r = run(&bench, &trial, 1, kind);
	bool has_struck = faulty[shard].has_struck;
	assert_true(r == kind->result || (has_struck && (r == -EIO || r == -ENOSPC)));
	assert_true(fault != FAULT_FULL || r != -EIO);
	if (stuck_cnt(&bench) == 0)
		check_idle(&bench);
	else
		assert_true(fault != FAULT_FULL);
	/* If the caller was told of success it finds the change, at once or later. */
	bool is_known = r == kind->result || r == -ENOSPC;
	if (stuck_cnt(&bench) == 0 && fault <= FAULT_FULL) {
		describe(&bench, &found);
		check_found(kind, outcome, &found, r < 0, r == 0);
	}
	reopen(&bench);
	describe(&bench, &found);
	check_found(kind, outcome, &found, r < 0, !is_known || r == 0);
	check_idle(&bench);
	bench_fini(&bench);
	return has_struck;
}

/* Rule N1, namespace NS3 and NS4. */
static void test_failures(void **state)
{
	(void)state;
	uint32_t total = 0;
	for (size_t i = 0; i < LPI_TRIAL_KINDS; i++) {
		const struct lpi_trial_kind *kind = &lpi_trial_kinds[i];
		struct outcome outcome;
		uint32_t struck = 0;
		learn(kind, &outcome);
		/* With a sanitizer some of them, and others for each kind. */
		uint32_t step = LP_ASSERT_SLOW_ON ? 5 : 1;
		for (uint32_t at = (uint32_t)i % step; at < SHARDS * TXNS * FAULT_CNT; at += step)
			struck += fail_one(kind, &outcome, at / TXNS % SHARDS,
					   (enum fault)(at / TXNS / SHARDS), at % TXNS);
		total += struck;
		assert_true(struck >= 3 || step > 1);
	}
	assert_true(total >= LPI_TRIAL_KINDS);
}

/* --- Full stores ------------------------------------------------------------------------------ */

/* With a sanitizer some of them, and others for each kind. */
#define FULL_STEP (LP_ASSERT_SLOW_ON ? 5u : 1u)

static uint64_t retries_cnt(const struct bench *bench)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < SHARDS; i++)
		cnt += bench->rig->ns[i]->stats.finish_retries;
	return cnt;
}

/* One shard is nearly full from one of its transactions on. */
static bool fill_one(const struct lpi_trial_kind *kind, const struct outcome *outcome,
		     uint32_t shard, enum fault fault, uint32_t skip)
{
	struct bench bench;
	struct lpi_trial trial;
	struct lpi_ns_text found;
	bench_init(&bench);
	faulty[shard].fault = fault;
	faulty[shard].skip = skip;
	int r = run(&bench, &trial, 1, kind);
	bool has_struck = faulty[shard].has_struck;
	assert_true(r == kind->result || (r == -ENOSPC && has_struck));
	assert_true(!has_struck || !lpi_trial_is_removal(kind));
	assert_int_equal(retries_cnt(&bench), 0);
	check_idle(&bench);
	describe(&bench, &found);
	check_found(kind, outcome, &found, r < 0, r == 0);
	bench_fini(&bench);
	return has_struck;
}

/* Rules L8 and N1: a shard that may lack room for all of the change promises nothing; a promised
 * change ends with the kept space, as a removal does. */
static void test_nearly_full(void **state)
{
	(void)state;
	uint32_t struck = 0;
	for (size_t i = 0; i < LPI_TRIAL_KINDS; i++) {
		const struct lpi_trial_kind *kind = &lpi_trial_kinds[i];
		struct outcome outcome;
		learn(kind, &outcome);
		for (uint32_t at = (uint32_t)i % FULL_STEP; at < SHARDS * TXNS; at += FULL_STEP) {
			struck += fill_one(kind, &outcome, at / TXNS, FAULT_TIGHT, at % TXNS);
			struck += fill_one(kind, &outcome, at / TXNS, FAULT_RESERVE, at % TXNS);
		}
	}
	assert_true(struck > LPI_TRIAL_KINDS / FULL_STEP);
}

/* Nothing can be ended, and then it is to stop: the next start ends it. */
static uint64_t stop_full(const struct lpi_trial_kind *kind, const struct outcome *outcome,
			  uint32_t shard, uint32_t skip)
{
	struct bench bench;
	struct lpi_trial trial;
	struct lpi_ns_text found;
	bench_init(&bench);
	faulty[shard].fault = FAULT_HOST;
	faulty[shard].skip = skip;
	trial = (struct lpi_trial){.world = bench.world};
	lpi_trial_begin(&trial, 1, kind);
	for (uint32_t i = 0; is_busy(&bench) && retries_cnt(&bench) == 0; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(bench.rig);
	}
	uint64_t retries = retries_cnt(&bench);
	reopen(&bench);
	assert_true(trial.is_done);
	assert_true(trial.op.result == kind->result || trial.op.result == -ENOSPC);
	check_idle(&bench);
	check_no_seal(&bench);
	describe(&bench, &found);
	check_found(kind, outcome, &found, trial.op.result < 0, trial.op.result == 0);
	bench_fini(&bench);
	return retries;
}

/* Rule N1: a stop does not wait for room. */
static void test_stop_full(void **state)
{
	(void)state;
	uint64_t retries = 0;
	for (size_t i = 0; i < LPI_TRIAL_KINDS; i++) {
		struct outcome outcome;
		learn(&lpi_trial_kinds[i], &outcome);
		for (uint32_t at = (uint32_t)i % FULL_STEP; at < SHARDS * TXNS; at += FULL_STEP)
			retries += stop_full(&lpi_trial_kinds[i], &outcome, at / TXNS, at % TXNS);
	}
	assert_true(retries > LPI_TRIAL_KINDS / FULL_STEP);
}

static void lock_in_t(struct lpi_job *job)
{
	lpi_trial_lock(job, lpi_trial_of(job)->world.t, LPI_TRIAL_NAME("y"));
	lpi_job_lock(job, lpi_trial_committed);
}

static const struct lpi_trial_kind lock_kind = {"a lock in t", lock_in_t, 0};

/* Whether it came to that: a directory on shard 1 was sealed, and cannot be opened again for want
 * of space. */
static bool stop_sealed(const struct lpi_trial_kind *kind, uint32_t skip)
{
	struct bench bench;
	struct lpi_trial trial;
	struct lpi_trial waiting;
	struct lpi_ns_text before;
	struct lpi_ns_text found;
	bench_init(&bench);
	describe(&bench, &before);
	faulty[1].fault = FAULT_HOST;
	faulty[1].skip = skip;
	trial = (struct lpi_trial){.world = bench.world};
	waiting = (struct lpi_trial){.world = bench.world};
	lpi_trial_begin(&trial, 0, kind);
	while (is_busy(&bench) && retries_cnt(&bench) == 0)
		(void)lpi_ns_rig_turn(bench.rig);
	bool is_sealed = is_busy(&bench);
	lpi_trial_begin(&waiting, 1, &lock_kind);
	for (uint32_t i = 0; i < 100; i++)
		(void)lpi_ns_rig_turn(bench.rig);
	assert_true(waiting.is_done == !is_sealed);
	reopen(&bench);
	assert_true(trial.is_done);
	assert_int_equal(waiting.op.result, is_sealed ? -EIO : 0);
	check_idle(&bench);
	check_no_seal(&bench);
	describe(&bench, &found);
	assert_true(lpi_ns_text_is_same(&before, &found));
	bench_fini(&bench);
	return is_sealed;
}

/* Rule N2: an operation that waits meanwhile does not take the directory for a removed one. */
static void test_stop_sealed(void **state)
{
	(void)state;
	const struct lpi_trial_kind *kind = &lpi_trial_kinds[LPI_TRIAL_KINDS - 1];
	assert_true(kind->begin == lpi_trial_rmdir_full);
	uint32_t sealed = 0;
	for (uint32_t skip = 0; skip < TXNS; skip++)
		sealed += stop_sealed(kind, skip);
	assert_true(sealed > 0);
}

/* --- Changes in doubt ------------------------------------------------------------------------- */

static void lookup_done(struct lpi_call *call)
{
	call->store_op->user = NULL;
}

/* Waits until the change of the name is decided, as each reader does. */
static int lookup(struct bench *bench, uint32_t shard_idx, struct lp_bytes name)
{
	struct lpi_call call = {.done = lookup_done};
	struct lp_store_op op = {.opcode = LP_STORE_LOOKUP,
				 .lookup = {.dir = LP_INO_ROOT, .name = name}};
	op.user = &call;
	lpi_call_store(bench->rig->ns[shard_idx], 0, &call, &op, true);
	for (uint32_t i = 0; op.user != NULL; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(bench->rig);
	}
	assert_int_equal(op.result, call.result);
	return call.result;
}

/* The decision is in doubt: all inodes and names of the change are locked until the next opening.
 * Operations that wait for them, or come later, get an error. The namespace can stop all the same,
 * and reports the number of such changes. */
static void test_stuck(void **state)
{
	(void)state;
	struct bench bench;
	struct lpi_trial trial;
	struct lpi_trial waiting;
	bench_init(&bench);
	faulty[0].fault = FAULT_DIES_AFTER;
	trial = (struct lpi_trial){.world = bench.world};
	waiting = (struct lpi_trial){.world = bench.world};
	lpi_trial_begin(&trial, 1, &lpi_trial_kinds[0]);
	while (lpi_locks_cnt(bench.rig->ns[0]->locks) == 0)
		(void)lpi_ns_rig_turn(bench.rig);
	lpi_trial_begin(&waiting, 2, &lpi_trial_kinds[0]);
	assert_int_equal(finish(&bench, &trial), -EIO);
	assert_int_equal(finish(&bench, &waiting), -EIO);
	assert_true(lpi_locks_waits(bench.rig->ns[0]->locks) > 0);
	assert_int_equal(run(&bench, &waiting, 1, &lpi_trial_kinds[0]), -EIO);
	for (uint32_t i = 0; i < SHARDS; i++)
		assert_int_equal(lookup(&bench, i, LPI_TRIAL_NAME("new")), -EIO);
	assert_int_equal(lpi_pact_list_count(&bench.rig->ns[1]->pacts_stuck), 1);
	assert_int_equal(lp_pool_free_cnt(bench.rig->ns[1]->rooms), LPI_ROOMS);
	assert_int_equal(stuck_cnt(&bench), 1);
	assert_true(lpi_locks_cnt(bench.rig->ns[0]->locks) > 0);
	assert_true(lpi_locks_cnt(bench.rig->ns[1]->locks) > 0);
	/* An operation that asks now is refused for good, and nothing more is locked. */
	assert_int_equal(run(&bench, &trial, 1, &lpi_trial_kinds[8]), -EIO);
	assert_int_equal(stuck_cnt(&bench), 1);
	reopen(&bench);
	check_idle(&bench);
	/* It had been decided: its name is taken. */
	assert_int_equal(run(&bench, &trial, 2, &lpi_trial_kinds[0]), -EEXIST);
	bench_fini(&bench);
}

struct asked {
	struct lp_ns_op op;
	bool is_done;
};

static void made(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct asked, op)->is_done = true;
}

static int make_dir(struct bench *bench, uint32_t nr)
{
	char name[12];
	struct asked asked = {.op = {.opcode = LP_NS_MAKE, .complete = made}};
	(void)snprintf(name, sizeof(name), "n%u", nr);
	asked.op.make.dir = LP_INO_ROOT;
	asked.op.make.name = (struct lp_bytes){name, (uint32_t)strlen(name)};
	asked.op.make.type = LP_INODE_TYPE_DIR;
	lp_ns_submit(bench->rig->ns[1], &asked.op);
	assert_false(asked.is_done);
	for (uint32_t i = 0; !asked.is_done; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(bench->rig);
	}
	return asked.op.result;
}

/* As many changes are stuck, and answered, as there may be operations. An operation that comes
 * then, or waits already, is refused, because none of these will be over. */
static void test_all_stuck(void **state)
{
	(void)state;
	struct bench bench;
	struct lpi_job *jobs[64];
	uint32_t cnt = 0;
	bench_init(&bench);
	struct lp_ns *ns = bench.rig->ns[1];
	assert_int_equal(ns->options.ops_max, LP_ARRAY_SIZE(jobs));
	assert_int_equal(make_dir(&bench, 0), 0);
	for (; cnt < LP_ARRAY_SIZE(jobs); cnt++) {
		jobs[cnt] = lp_pool_get(ns->jobs);
		assert_non_null(jobs[cnt]);
		ns->under_way++;
		lpi_ns_stranded(ns);
	}
	for (uint32_t nr = 1; nr < 4; nr++)
		assert_int_equal(make_dir(&bench, nr), -EIO);
	while (cnt-- > 0)
		lp_pool_put(ns->jobs, jobs[cnt]);
	ns->under_way -= (uint32_t)LP_ARRAY_SIZE(jobs);
	ns->stranded_cnt = 0;
	assert_int_equal(make_dir(&bench, 1), 0);
	bench_fini(&bench);
}

/* --- Many at once ----------------------------------------------------------------------------- */

/* Suppose /d2/sub were the directory d1. A rename of sub/x to sub holds sub/x, on a lower shard,
 * and waits for the name of sub. A removal of sub has the name, and waits for all of sub. Namespace
 * NS2. */
static void rename_into_parent(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_lock(job, w->d1, LPI_TRIAL_NAME("x"));
	lpi_trial_lock(job, w->d2, LPI_TRIAL_NAME("sub"));
	lpi_job_lock(job, lpi_trial_committed);
}

static void remove_sub(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_lock(job, w->d2, LPI_TRIAL_NAME("sub"));
	lpi_job_lock_fragment(job, 1, w->d1);
	lpi_job_lock(job, lpi_trial_committed);
}

static const struct lpi_trial_kind removal = {"removal", remove_sub, 0};
static const struct lpi_trial_kind only_locks = {"locks", rename_into_parent, 0};

static void test_no_circle(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < 12; turns += LP_ASSERT_SLOW_ON ? 5 : 1) {
		for (uint32_t first = 0; first < 2; first++) {
			struct bench bench;
			struct lpi_trial rename;
			struct lpi_trial remove;
			bench_init(&bench);
			rename = (struct lpi_trial){.world = bench.world};
			remove = (struct lpi_trial){.world = bench.world};
			lpi_trial_begin(first == 0 ? &rename : &remove, 1,
					first == 0 ? &only_locks : &removal);
			for (uint32_t i = 0; i < turns; i++)
				(void)lpi_ns_rig_turn(bench.rig);
			lpi_trial_begin(first == 0 ? &remove : &rename, 0,
					first == 0 ? &removal : &only_locks);
			assert_int_equal(finish(&bench, &rename), 0);
			assert_int_equal(finish(&bench, &remove), 0);
			check_idle(&bench);
			bench_fini(&bench);
		}
	}
}

/* More changes than there are rooms for: all of them are made, one after the other. */
static void test_few_rooms(void **state)
{
	(void)state;
	struct bench bench;
	struct lpi_trial trials[8];
	struct lpi_part_room *rooms[LPI_ROOMS];
	bench_init(&bench);
	struct lp_ns *ns = bench.rig->ns[1];
	for (uint32_t i = 0; i < LPI_ROOMS; i++)
		rooms[i] = lp_pool_get(ns->rooms);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(trials); i++) {
		trials[i] = (struct lpi_trial){.world = bench.world};
		/* Those that do not touch the same. */
		static const uint32_t kinds[] = {0, 4, 5, 8};
		lpi_trial_begin(&trials[i], 1, &lpi_trial_kinds[kinds[i % 4]]);
	}
	for (uint32_t i = 0; i < 200; i++)
		(void)lpi_ns_rig_turn(bench.rig);
	assert_int_equal(lpi_pact_list_count(&ns->pacts_waiting), 4);
	/* Rooms for one of them. */
	for (uint32_t i = 0; i < LPI_ROOMS; i++)
		lp_pool_put(ns->rooms, rooms[i]);
	rooms[0] = lp_pool_get(ns->rooms);
	lp_pool_put(ns->rooms, rooms[0]);
	lpi_pact_begin_waiting(ns);
	assert_int_equal(lpi_pact_list_count(&ns->pacts_waiting), 0);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(trials); i++)
		(void)finish(&bench, &trials[i]);
	for (uint32_t i = 0; i < 4; i++)
		assert_int_equal(trials[i].op.result, 0);
	check_idle(&bench);
	bench_fini(&bench);
}

/* Those of the kinds that take nothing from each other, which the trials do not look for. */
static const uint32_t together[] = {0, 2, 5, 6, 7, 8, 9, 10};

/* Many from all shards at once, while shards stop: everything that began ends, as it should. */
static void test_stop(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < 40; turns += LP_ASSERT_SLOW_ON ? 13 : 1) {
		struct bench bench;
		struct lpi_trial trials[LP_ARRAY_SIZE(together)];
		bench_init(&bench);
		for (uint32_t i = 0; i < LP_ARRAY_SIZE(together); i++) {
			trials[i] = (struct lpi_trial){.world = bench.world};
			lpi_trial_begin(&trials[i], (i + turns) % SHARDS,
					&lpi_trial_kinds[together[i]]);
		}
		for (uint32_t i = 0; i < turns; i++)
			(void)lpi_ns_rig_turn(bench.rig);
		reopen(&bench);
		for (uint32_t i = 0; i < LP_ARRAY_SIZE(together); i++) {
			assert_true(trials[i].is_done);
			assert_int_equal(trials[i].op.result, lpi_trial_kinds[together[i]].result);
		}
		check_idle(&bench);
		bench_fini(&bench);
	}
}

/* --- Names that go while the inode is open ---------------------------------------------------- */

/* Namespace NS5: an open inode becomes an orphan, which its last close removes. */
static void test_open(void **state)
{
	(void)state;
	for (uint32_t kind = 4; kind <= 9; kind += 5) { /* a file; a spread directory */
		struct bench bench;
		struct lpi_trial trial;
		struct lp_attrs attrs;
		bench_init(&bench);
		struct lp_ino ino = kind == 4 ? bench.world.h : bench.world.s;
		struct lp_ns *ns = bench.rig->ns[1];
		lp_test_ok(lpi_opens_add(ns->opens, ino, 2));
		assert_int_equal(run(&bench, &trial, 0, &lpi_trial_kinds[kind]), 0);
		lp_test_ok(lpi_hand_stat(&bench.hand[1], ino, &attrs));
		assert_int_equal(attrs.nlink, 0);
		assert_int_equal(lpi_opens_orphans(ns->opens), 1);
		lpi_opens_drop(ns->opens, ino, 1);
		lp_test_ok(lpi_hand_stat(&bench.hand[1], ino, &attrs));
		lpi_opens_drop(ns->opens, ino, 1);
		(void)finish(&bench, &trial);
		assert_int_equal(lpi_hand_stat(&bench.hand[1], ino, &attrs), -ENOENT);
		check_idle(&bench);
		/* Left open: the next start removes it, with its mark. */
		bench_fini(&bench);
	}
}

static void test_left_open(void **state)
{
	(void)state;
	struct bench bench;
	struct lpi_trial trial;
	struct outcome outcome;
	struct lpi_ns_text found;
	learn(&lpi_trial_kinds[4], &outcome);
	bench_init(&bench);
	lp_test_ok(lpi_opens_add(bench.rig->ns[1]->opens, bench.world.h, 1));
	assert_int_equal(run(&bench, &trial, 0, &lpi_trial_kinds[4]), 0);
	reopen(&bench);
	describe(&bench, &found);
	check_found(&lpi_trial_kinds[4], &outcome, &found, false, true);
	bench_fini(&bench);
}

/* It finds no space, so it is for the start after that; everything else is served. */
static void test_left_open_full(void **state)
{
	(void)state;
	struct bench bench;
	struct lpi_trial trial;
	struct lp_attrs attrs;
	bench_init(&bench);
	lp_test_ok(lpi_opens_add(bench.rig->ns[1]->opens, bench.world.h, 1));
	assert_int_equal(run(&bench, &trial, 0, &lpi_trial_kinds[4]), 0);
	lpi_ns_rig_stop(bench.rig);
	faulty[1].fault = FAULT_HOST;
	lp_test_ok(lpi_ns_rig_start(bench.rig));
	bench.world.ns = bench.rig->ns;
	assert_true(faulty[1].has_struck);
	lp_test_ok(lpi_hand_stat(&bench.hand[1], bench.world.h, &attrs));
	reopen(&bench);
	assert_int_equal(lpi_hand_stat(&bench.hand[1], bench.world.h, &attrs), -ENOENT);
	bench_fini(&bench);
}

/* --- Wide sets -------------------------------------------------------------------------------- */

static void keep_wide(struct lpi_job *job)
{
	(void)job;
}

static void take_wide(struct lpi_job *job)
{
	lpi_job_take_wide(job, keep_wide);
}

static const struct lpi_trial_kind wide_holder = {"a wide set", take_wide, 0};

/* Changes that hold all sets will never be over, and there is no memory for other sets. An
 * operation that waits for one is refused; later, with memory, another is served. */
static void test_no_wide(void **state)
{
	(void)state;
	struct bench bench;
	struct lpi_trial holders[LPI_WIDES];
	struct lpi_trial waiting;
	bench_init(&bench);
	struct lp_ns *ns = bench.rig->ns[0];
	for (uint32_t i = 0; i < LPI_WIDES; i++) {
		holders[i] = (struct lpi_trial){.world = bench.world};
		lpi_trial_begin(&holders[i], 0, &wide_holder);
	}
	waiting = (struct lpi_trial){.world = bench.world};
	lpi_trial_begin(&waiting, 0, &lpi_trial_kinds[9]);
	for (uint32_t i = 0; i < LPI_WIDES; i++) {
		assert_int_equal(lpi_job_list_count(&ns->wide_waiting), 1);
		lp_scarce_again(0);
		lpi_job_renew_wide(holders[i].job);
	}
	for (uint32_t i = 0; !waiting.is_done; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(bench.rig);
	}
	assert_int_equal(waiting.op.result, -ENOMEM);
	lpi_trial_begin(&waiting, 0, &lpi_trial_kinds[9]);
	for (uint32_t i = 0; !waiting.is_done; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(bench.rig);
	}
	assert_int_equal(waiting.op.result, 0);
	for (uint32_t i = 0; i < LPI_WIDES; i++) {
		lpi_wide_free(holders[i].job->wide);
		holders[i].job->wide = NULL;
		lpi_job_end(holders[i].job, 0);
	}
	bench_fini(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right),       cmocka_unit_test(test_failures),
		cmocka_unit_test(test_stuck),       cmocka_unit_test(test_no_circle),
		cmocka_unit_test(test_few_rooms),   cmocka_unit_test(test_stop),
		cmocka_unit_test(test_open),        cmocka_unit_test(test_left_open),
		cmocka_unit_test(test_nearly_full), cmocka_unit_test(test_stop_full),
		cmocka_unit_test(test_stop_sealed), cmocka_unit_test(test_left_open_full),
		cmocka_unit_test(test_no_wide),     cmocka_unit_test(test_all_stuck),
	};
	return lp_test_main(tests, "namespace/change/pact");
}
