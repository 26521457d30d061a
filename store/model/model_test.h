/* SPDX-License-Identifier: Apache-2.0 */
/* Model run: random operations on a store under test and a store in memory, compared.
 *
 * Only *_test.c files and their headers include this.
 *
 * Up to `depth` operations are under way at a time. Transactions go to the model when they are
 * submitted, so it is ahead of the store. The outcome is the same because the face promises the
 * order. A read may see transactions that were submitted after it: each state that it may see is
 * asked of the model as it comes about. Other queries wait until nothing that touches the same is
 * under way. At depth 1 the store goes first, and may say -ENOSPC.
 *
 *     model = lpi_model_new(&options);      lpi_model_attach(model, &hand);
 *     for (...) lpi_model_step(model);      lpi_model_check_all(model);      lpi_model_ok(model);
 *     lpi_model_free(model);
 *
 * Functions that answer bool say whether all is right so far. The first fault is in model->diff,
 * and nothing is done any more after it. The times of submissions and acknowledgements are kept
 * for model/crash_test.h.
 */
#ifndef LP_STORE_MODEL_MODEL_TEST_H
#define LP_STORE_MODEL_MODEL_TEST_H

#include "store/model/compare_test.h"
#include "store/model/draw_test.h"

#define LPI_MODEL_DEPTH_MAX 16u
#define LPI_MODEL_ALTS_MAX  8u
#define LPI_MODEL_NEVER     UINT64_MAX

struct lpi_model_options {
	struct lpi_gen_options gen;
	uint32_t depth;   /* 0: 1 */
	bool may_be_full; /* the store may say -ENOSPC; only at depth 1 */
	bool may_fail;    /* it may say -EIO and -EROFS: nothing is compared after that */
	/* The time by which crashes are told, such as the events of a device; NULL: the steps. */
	uint64_t (*now)(void *arg);
	void *now_arg;
};

struct lpi_model_txn {
	struct lpi_plan plan;
	bool not_done; /* the store says so: it is full, or the model refused as well */
	bool is_complete;
	uint64_t complete_tick; /* by the model's own count */
	uint64_t submit_time;
	uint64_t durable_time; /* LPI_MODEL_NEVER: nobody has said so yet */
};

/* An operation under way. */
struct lpi_flight {
	struct lpi_model *model;
	bool is_busy;
	bool is_done;
	uint64_t done_time;
	uint64_t submit_tick;
	uint64_t history_cnt; /* transactions that were submitted before */
	struct lpi_plan plan;
	struct lpi_touches touches;
	struct lpi_plan_op real;
	/* What the model says; of a read, at each state it may see. */
	struct lpi_plan_op *alts[LPI_MODEL_ALTS_MAX];
	uint32_t alt_cnt;
};

struct lpi_model {
	struct lpi_model_options options;
	struct lpi_mem_rig *rig; /* the model */
	struct lpi_gen gen;
	struct lpi_hand hand; /* the store under test */
	struct lpi_flight flights[LPI_MODEL_DEPTH_MAX];
	struct lpi_model_txn *history;
	uint64_t history_cnt;
	uint64_t history_max;
	uint64_t settled; /* what is before needs no more news */
	uint64_t tick;
	uint64_t steps;
	uint64_t fulls; /* how often it was full */
	bool is_lost;   /* it has failed */
	struct lpi_diff diff;
};

/* What a store in memory needs for the data, for what readers hold of older data, and for what one
 * transaction adds. */
static inline uint64_t lpi_model_bufs_bytes(const struct lpi_gen *gen)
{
	return 4 * gen->options.data_bytes_max + 3 * gen->options.length_max;
}

/* --- Birth and death -------------------------------------------------------------------------- */

static inline struct lpi_model *lpi_model_new(const struct lpi_model_options *options)
{
	struct lpi_model *model = calloc(1, sizeof(*model));
	assert_non_null(model);
	model->options = *options;
	model->options.depth = LP_MAX(options->depth, 1);
	assert_true(model->options.depth <= LPI_MODEL_DEPTH_MAX);
	assert_true(!options->may_be_full || model->options.depth == 1);
	lpi_gen_init(&model->gen, &options->gen);
	model->rig = lpi_mem_rig_new(lpi_model_bufs_bytes(&model->gen));
	model->gen.model = &model->rig->hand;
	for (size_t i = 0; i < LP_ARRAY_SIZE(model->flights); i++)
		model->flights[i].model = model;
	return model;
}

/* Nothing is under way. */
static inline void lpi_model_free(struct lpi_model *model)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(model->flights); i++)
		assert_false(model->flights[i].is_busy);
	lpi_mem_rig_free(model->rig);
	free(model->history);
	free(model);
}

/* The store under test, which is empty at first. */
static inline void lpi_model_attach(struct lpi_model *model, const struct lpi_hand *hand)
{
	model->hand = *hand;
}

static inline uint64_t lpi_model_now(const struct lpi_model *model)
{
	return model->options.now == NULL ? model->steps
					  : model->options.now(model->options.now_arg);
}

static inline bool lpi_model_is_right(const struct lpi_model *model)
{
	return !model->diff.found;
}

/* Fails the test with what was wrong, and how to see it again. */
static inline void lpi_model_ok(const struct lpi_model *model)
{
	if (lpi_model_is_right(model))
		return;
	print_error("model: seed %llu, step %llu: %s\n",
		    (unsigned long long)model->options.gen.seed, (unsigned long long)model->steps,
		    model->diff.text);
	fail();
}

/* --- The model's side ------------------------------------------------------------------------- */

static inline struct lpi_plan_op *lpi_model_run(struct lpi_model *model,
						const struct lpi_plan *plan)
{
	struct lpi_plan_op *op = malloc(sizeof(*op));
	assert_non_null(op);
	assert_true(lpi_plan_op_init(op, plan, model->rig->hand.bufs));
	(void)lpi_hand_do(&model->rig->hand, &op->op); /* the result is what is wanted */
	return op;
}

static inline void lpi_model_drop(struct lpi_model *model, struct lpi_plan_op *op)
{
	if (op->op.opcode == LP_STORE_READ && op->op.result >= 0)
		lp_store_end(model->rig->hand.store, &op->op);
	lpi_plan_op_fini(op);
	free(op);
}

static inline bool lpi_flight_is_txn(const struct lpi_flight *flight)
{
	return flight->plan.opcode == LP_STORE_TXN;
}

/* A query that may see what is submitted after it. */
static inline bool lpi_flight_is_read(const struct lpi_flight *flight)
{
	return flight->plan.opcode == LP_STORE_READ || flight->plan.opcode == LP_STORE_STAT;
}

static inline void lpi_flight_add_alt(struct lpi_flight *flight)
{
	assert_true(flight->alt_cnt < LPI_MODEL_ALTS_MAX);
	flight->alts[flight->alt_cnt++] = lpi_model_run(flight->model, &flight->plan);
}

/* The model does it; reads under way may see it from now on. */
static inline void lpi_model_advance(struct lpi_model *model, struct lpi_flight *flight)
{
	lpi_flight_add_alt(flight);
	if (!lpi_flight_is_txn(flight) || flight->alts[0]->op.result < 0)
		return;
	lpi_gen_note(&model->gen, &flight->plan);
	for (size_t i = 0; i < LP_ARRAY_SIZE(model->flights); i++) {
		struct lpi_flight *other = &model->flights[i];
		if (other->is_busy && lpi_flight_is_read(other) &&
		    lpi_touches_meet(&other->touches, &flight->touches))
			lpi_flight_add_alt(other);
	}
}

/* --- History ---------------------------------------------------------------------------------- */

static inline struct lpi_model_txn *lpi_model_record(struct lpi_model *model,
						     const struct lpi_plan *plan)
{
	if (model->history_cnt == model->history_max) {
		model->history_max = LP_MAX(1024, model->history_max * 2);
		model->history =
			realloc(model->history, model->history_max * sizeof(*model->history));
		assert_non_null(model->history);
	}
	struct lpi_model_txn *txn = &model->history[model->history_cnt++];
	*txn = (struct lpi_model_txn){.plan = *plan,
				      .submit_time = lpi_model_now(model),
				      .durable_time = LPI_MODEL_NEVER};
	return txn;
}

/* What a read sees is what the transaction has made, not what it has only looked at. */
static inline bool lpi_txn_changes(const struct lpi_model_txn *txn, uint64_t ino)
{
	struct lpi_touches touches;
	lpi_touches_of(&touches, &txn->plan);
	for (uint32_t i = 0; i < touches.cnt; i++) {
		const struct lpi_touch *touch = &touches.items[i];
		if (touch->kind == LPI_TOUCH_INODE && touch->nr == ino && touch->changes)
			return true;
	}
	return false;
}

static inline bool lpi_txn_is_settled(const struct lpi_model_txn *txn)
{
	return txn->not_done || (txn->is_complete && txn->durable_time != LPI_MODEL_NEVER);
}

/* What a sync or a read has said about the transactions before it: those that completed before
 * the sync began are durable, and so is what a read has seen (P3). */
static inline void lpi_model_learn(struct lpi_model *model, const struct lpi_flight *flight)
{
	bool is_sync = flight->plan.opcode == LP_STORE_SYNC;
	/* A read that a failure made begin once more has not seen what was lost. */
	if (model->is_lost && !is_sync)
		return;
	if (flight->real.op.result < 0 || (!is_sync && !lpi_flight_is_read(flight)))
		return;
	for (uint64_t i = model->settled; i < flight->history_cnt; i++) {
		struct lpi_model_txn *txn = &model->history[i];
		if (txn->not_done || txn->durable_time != LPI_MODEL_NEVER)
			continue;
		bool is_told =
			is_sync ? txn->is_complete && txn->complete_tick < flight->submit_tick
				: lpi_txn_changes(txn, flight->plan.ino);
		if (is_told)
			txn->durable_time = flight->done_time;
	}
	while (model->settled < model->history_cnt &&
	       lpi_txn_is_settled(&model->history[model->settled]))
		model->settled++;
}

static inline void lpi_model_learn_txn(struct lpi_model *model, const struct lpi_flight *flight)
{
	struct lpi_model_txn *txn = &model->history[flight->history_cnt];
	txn->is_complete = true;
	txn->complete_tick = ++model->tick;
	txn->not_done = flight->real.op.result < 0 && !flight->real.op.txn.is_unknown;
	if (flight->real.op.result == 0 && flight->plan.ack == LP_ACK_DURABLE &&
	    txn->durable_time == LPI_MODEL_NEVER)
		txn->durable_time = flight->done_time;
}

/* --- The store's side ------------------------------------------------------------------------- */

static inline void lpi_flight_complete(struct lp_store_op *op)
{
	struct lpi_plan_op *plan_op = LP_CONTAINER_OF(op, struct lpi_plan_op, op);
	struct lpi_flight *flight = LP_CONTAINER_OF(plan_op, struct lpi_flight, real);
	assert_true(flight->is_busy && !flight->is_done);
	flight->is_done = true;
	flight->done_time = lpi_model_now(flight->model);
}

static inline bool lpi_flight_has_failed(const struct lpi_flight *flight)
{
	int result = flight->real.op.result;
	return flight->model->options.may_fail && (result == -EIO || result == -EROFS);
}

/* Equal to what the model says in one of the states it may have seen. */
static inline bool lpi_flight_is_right(const struct lpi_flight *flight, struct lpi_diff *diff)
{
	const struct lp_store_op *real = &flight->real.op;
	struct lpi_diff last = {.found = false};
	if (flight->plan.opcode == LP_STORE_SEEK)
		return lpi_seek_is_right(real, &flight->alts[0]->op, &flight->model->rig->hand,
					 diff);
	for (uint32_t i = 0; i < flight->alt_cnt; i++) {
		last.found = false;
		if (lpi_same_op(real, &flight->alts[i]->op, &last))
			return true;
	}
	return lpi_diff_say(diff, "%s of inode %#llx, offset %llu, length %llu: %s",
			    lpi_opcode_name(flight->plan.opcode),
			    (unsigned long long)flight->plan.ino,
			    (unsigned long long)flight->plan.offset,
			    (unsigned long long)flight->plan.length, last.text);
}

static inline bool lpi_append_is_right(const struct lpi_flight *flight, struct lpi_diff *diff)
{
	for (uint32_t i = 0; i < flight->plan.change_cnt; i++) {
		const struct lpi_plan_change *change = &flight->plan.changes[i];
		if (change->type == LP_CHANGE_WRITE && change->offset == LP_STORE_APPEND)
			return lpi_same_number(flight->real.op.txn.offset,
					       flight->alts[0]->op.txn.offset,
					       "offset of an append", diff);
	}
	return true;
}

static inline void lpi_flight_judge(struct lpi_flight *flight)
{
	struct lpi_model *model = flight->model;
	struct lpi_diff diff = {.found = false};
	if (lpi_flight_is_txn(flight))
		lpi_model_learn_txn(model, flight);
	lpi_model_learn(model, flight);
	if (model->is_lost || !lpi_model_is_right(model) || flight->alt_cnt == 0)
		return;
	bool is_right = lpi_flight_is_right(flight, &diff);
	if (is_right && lpi_flight_is_txn(flight) && flight->real.op.result == 0)
		is_right = lpi_append_is_right(flight, &diff);
	if (!is_right)
		(void)lpi_diff_say(&model->diff, "%s", diff.text); /* kept there */
}

static inline void lpi_flight_end(struct lpi_flight *flight)
{
	struct lpi_model *model = flight->model;
	if (flight->plan.opcode == LP_STORE_READ && flight->real.op.result >= 0)
		lp_store_end(model->hand.store, &flight->real.op);
	lpi_plan_op_fini(&flight->real);
	for (uint32_t i = 0; i < flight->alt_cnt; i++)
		lpi_model_drop(model, flight->alts[i]);
	flight->is_busy = false;
}

/* Before anything is judged: what came later may have seen that something failed. */
static inline void lpi_model_look_for_failure(struct lpi_model *model)
{
	if (!model->options.may_fail || model->is_lost)
		return;
	model->is_lost = lp_store_error(model->hand.store) != 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(model->flights); i++) {
		const struct lpi_flight *flight = &model->flights[i];
		if (flight->is_busy && flight->is_done)
			model->is_lost |= lpi_flight_has_failed(flight);
	}
}

static inline void lpi_model_reap(struct lpi_model *model)
{
	lpi_model_look_for_failure(model);
	for (size_t i = 0; i < LP_ARRAY_SIZE(model->flights); i++) {
		struct lpi_flight *flight = &model->flights[i];
		if (!flight->is_busy || !flight->is_done)
			continue;
		bool is_full = model->options.may_be_full && lpi_flight_is_txn(flight) &&
			       flight->real.op.result == -ENOSPC;
		model->fulls += is_full;
		/* At depth 1 it is the model's turn now. */
		if (flight->alt_cnt == 0 && !is_full && !model->is_lost)
			lpi_model_advance(model, flight);
		lpi_flight_judge(flight);
		lpi_flight_end(flight);
	}
}

static inline void lpi_model_turn(struct lpi_model *model)
{
	lpi_hand_turn(&model->hand);
	lpi_model_reap(model);
}

static inline uint32_t lpi_model_busy_cnt(const struct lpi_model *model)
{
	uint32_t cnt = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(model->flights); i++)
		cnt += model->flights[i].is_busy;
	return cnt;
}

/* Until nothing is under way. */
static inline bool lpi_model_drain(struct lpi_model *model)
{
	for (uint32_t i = 0; lpi_model_busy_cnt(model) > 0; i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_model_turn(model);
	}
	return lpi_model_is_right(model);
}

/* --- Steps ------------------------------------------------------------------------------------ */

/* Only through what is written of all entries at once. */
static inline bool lpi_touches_meet_entries(const struct lpi_touches *a,
					    const struct lpi_touches *b)
{
	for (uint32_t i = 0; i < a->cnt; i++)
		for (uint32_t j = 0; j < b->cnt; j++)
			if (a->items[i].kind == LPI_TOUCH_ENTRIES &&
			    lpi_touch_meets(&a->items[i], &b->items[j]))
				return true;
	return false;
}

/* Whether what is under way must complete before the other can be submitted, so that it is known
 * what they will say. */
static inline bool lpi_flight_is_in_the_way(const struct lpi_flight *flight,
					    const struct lpi_plan *plan,
					    const struct lpi_touches *touches)
{
	bool is_txn = plan->opcode == LP_STORE_TXN;
	bool is_read = plan->opcode == LP_STORE_READ || plan->opcode == LP_STORE_STAT;
	if (!flight->is_busy || !lpi_touches_meet(&flight->touches, touches))
		return false;
	if (lpi_flight_is_txn(flight) && is_txn)
		return lpi_touches_meet_entries(&flight->touches, touches);
	if (lpi_flight_is_txn(flight))
		return !is_read;
	if (!is_txn)
		return false;
	return !lpi_flight_is_read(flight) || flight->alt_cnt == LPI_MODEL_ALTS_MAX;
}

static inline struct lpi_flight *lpi_model_find_room(struct lpi_model *model,
						     const struct lpi_plan *plan,
						     const struct lpi_touches *touches)
{
	struct lpi_flight *room = NULL;
	for (uint32_t i = 0; i < model->options.depth; i++) {
		struct lpi_flight *flight = &model->flights[i];
		if (lpi_flight_is_in_the_way(flight, plan, touches))
			return NULL;
		if (!flight->is_busy)
			room = flight;
	}
	return room;
}

static inline void lpi_model_submit(struct lpi_model *model, struct lpi_flight *flight)
{
	flight->history_cnt = model->history_cnt;
	flight->submit_tick = ++model->tick;
	flight->alt_cnt = 0;
	flight->is_done = false;
	flight->is_busy = true;
	if (lpi_flight_is_txn(flight))
		(void)lpi_model_record(model, &flight->plan); /* its place is history_cnt */
	if (model->options.depth > 1 && !model->is_lost)
		lpi_model_advance(model, flight);
	flight->real.op.complete = lpi_flight_complete;
	lp_store_submit(model->hand.store, &flight->real.op);
	if (flight->is_done)
		(void)lpi_diff_say(&model->diff, "completed inside of its submit");
}

/* Submits one plan, as soon as it may be. */
static inline bool lpi_model_do(struct lpi_model *model, const struct lpi_plan *plan)
{
	struct lpi_touches touches;
	struct lpi_flight *flight = NULL;
	lpi_touches_of(&touches, plan);
	for (uint32_t i = 0; flight == NULL; i++) {
		assert_true(i < LPI_TURNS_MAX);
		flight = lpi_model_find_room(model, plan, &touches);
		if (flight == NULL)
			lpi_model_turn(model);
	}
	flight->plan = *plan;
	flight->touches = touches;
	/* Others may hold the buffers for a while. */
	for (uint32_t i = 0; !lpi_plan_op_init(&flight->real, plan, model->hand.bufs); i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_model_turn(model);
	}
	lpi_model_submit(model, flight);
	if (model->options.depth == 1)
		return lpi_model_drain(model);
	return lpi_model_is_right(model);
}

/* One more operation; some more turns. */
static inline bool lpi_model_step(struct lpi_model *model)
{
	struct lpi_plan plan;
	if (!lpi_model_is_right(model))
		return false;
	model->steps++;
	lpi_gen_next(&model->gen, &plan);
	bool is_right = lpi_model_do(model, &plan);
	uint64_t turns = model->options.depth > 1 ? lpi_gen_below(&model->gen, 3) : 0;
	for (uint64_t i = 0; i < turns; i++)
		lpi_model_turn(model);
	return is_right && lpi_model_is_right(model);
}

/* --- All of it -------------------------------------------------------------------------------- */

static inline bool lpi_same_all(const struct lpi_hand *a, const struct lpi_gen *gen,
				struct lpi_diff *diff)
{
	const struct lpi_hand *b = gen->model;
	const struct lp_bytes none = {NULL, 0};
	if (!lpi_same_space(a, b, LP_STORE_INODES, 0, none, diff))
		return false;
	for (uint32_t i = 0; i < gen->inode_cnt; i++)
		if (!lpi_same_inode(a, b, gen->inodes[i].nr, diff) ||
		    !lpi_same_dir(a, b, gen->inodes[i].nr, diff))
			return false;
	for (unsigned i = 0; i < 2 * LPI_GEN_DIRS; i++)
		if (!lpi_same_dir(a, b, lpi_gen_dir_nr(gen, i), diff))
			return false;
	for (unsigned i = 0; i < LPI_PLAN_RECORD_NAMES; i++)
		if (!lpi_same_record(a, b, i, diff))
			return false;
	return lpi_same_space(a, b, LP_STORE_RECORDS, 0, LPI_TEST_BYTES("T"), diff) &&
	       lpi_same_space(a, b, LP_STORE_RECORDS, 0, LPI_TEST_BYTES("Smodel"), diff);
}

/* Waits, then compares all that the two hold. */
static inline bool lpi_model_check_all(struct lpi_model *model)
{
	if (!lpi_model_drain(model) || model->is_lost)
		return lpi_model_is_right(model);
	return lpi_same_all(&model->hand, &model->gen, &model->diff);
}

#endif
