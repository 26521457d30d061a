/* SPDX-License-Identifier: Apache-2.0 */
/* Judge of a store after a crash: may a run of the model have left what it holds?
 *
 * Only *_test.c files and their headers include this.
 *
 * A crash leaves some of the submitted transactions, and no part of the others. All that were
 * acknowledged as durable are among them. With each also those before it survive that touch the
 * same (P3, rule L1). Between transactions that touch nothing in common there is no order. So
 * each object (inode, entry, fragment, record) is as some prefix of its own transactions has made
 * it:
 *
 * 1. One pass replays all into a fresh store in memory. Whenever a transaction has touched an
 *    object, that is held against the survivor: this tells which of its prefixes it may be.
 * 2. For each object the shortest prefix is taken that has all of its acknowledged transactions.
 *    Longer ones are taken until every transaction is in the prefixes of all its objects, or of
 *    none. Also, a transaction that needs a directory empty (or sealed) comes together with the
 *    earlier changes of its entries, and the other way round. This finds an answer if there is
 *    one: of two answers the shorter prefixes are one too.
 * 3. The answer is replayed once more, and all is compared.
 */
#ifndef LP_STORE_MODEL_CRASH_TEST_H
#define LP_STORE_MODEL_CRASH_TEST_H

#include "store/model/model_test.h"

struct lpi_crash_object {
	struct lpi_touch touch;
	uint32_t cnt;            /* transactions that touch it */
	uint32_t max;            /* room for so many */
	uint32_t low;            /* so many of them are there in any case */
	uint32_t rank;           /* so many were replayed; in the end: so many are there */
	uint64_t *txns;          /* their places in the history */
	bool *may_be;            /* by rank, from low on: cnt + 1 */
	struct lpi_diff why_not; /* the last rank */
};

/* A transaction that touches the entries of a directory as a whole: in order with the other, if one
 * of the two is strong. */
struct lpi_crash_entries {
	uint64_t idx;
	uint64_t dir;
	bool strong;
};

struct lpi_crash {
	struct lpi_model *model;
	struct lpi_hand survivor;
	uint64_t at;
	struct lpi_crash_object *objects;
	uint32_t object_cnt;
	uint32_t object_max; /* room for so many */
	bool *is_in;         /* by place in the history: it has happened */
	struct lpi_crash_entries *entries;
	uint32_t entries_cnt;
	struct lpi_diff diff;
};

/* --- Replaying -------------------------------------------------------------------------------- */

/* Whether it was submitted by then and may have happened. */
static inline bool lpi_crash_may_have(const struct lpi_crash *crash, uint64_t idx)
{
	const struct lpi_model_txn *txn = &crash->model->history[idx];
	return !txn->not_done && txn->submit_time <= crash->at;
}

static inline bool lpi_crash_must_have(const struct lpi_crash *crash, uint64_t idx)
{
	uint64_t durable_time = crash->model->history[idx].durable_time;
	return durable_time != LPI_MODEL_NEVER && durable_time <= crash->at;
}

static inline int lpi_replay(const struct lpi_hand *hand, const struct lpi_plan *plan)
{
	struct lpi_plan_op *op = malloc(sizeof(*op));
	assert_non_null(op);
	assert_true(lpi_plan_op_init(op, plan, hand->bufs));
	int err = lpi_hand_do(hand, &op->op);
	lpi_plan_op_fini(op);
	free(op);
	return err;
}

/* Those that the model refuses did not happen in any case. */
static inline void lpi_crash_find_in(struct lpi_crash *crash)
{
	struct lpi_mem_rig rig;
	lpi_mem_rig_init(&rig, lpi_model_bufs_bytes(&crash->model->gen));
	for (uint64_t i = 0; i < crash->model->history_cnt; i++)
		crash->is_in[i] = lpi_crash_may_have(crash, i) &&
				  lpi_replay(&rig.hand, &crash->model->history[i].plan) == 0;
	lpi_mem_rig_fini(&rig);
}

/* --- Objects ---------------------------------------------------------------------------------- */

static inline struct lpi_crash_object *lpi_crash_object(struct lpi_crash *crash,
							const struct lpi_touch *touch)
{
	for (uint32_t i = crash->object_cnt; i-- > 0;) {
		const struct lpi_touch *other = &crash->objects[i].touch;
		if (other->kind == touch->kind && other->nr == touch->nr &&
		    other->name_idx == touch->name_idx)
			return &crash->objects[i];
	}
	if (crash->object_cnt == crash->object_max) {
		crash->object_max = LP_MAX(64, crash->object_max * 2);
		crash->objects =
			realloc(crash->objects, crash->object_max * sizeof(*crash->objects));
		assert_non_null(crash->objects);
	}
	struct lpi_crash_object *object = &crash->objects[crash->object_cnt++];
	*object = (struct lpi_crash_object){.touch = *touch};
	return object;
}

static inline void lpi_crash_note(struct lpi_crash *crash, struct lpi_crash_object *object,
				  uint64_t idx)
{
	if (object->cnt == object->max) {
		object->max = LP_MAX(8, object->max * 2);
		object->txns = realloc(object->txns, object->max * sizeof(*object->txns));
		assert_non_null(object->txns);
	}
	object->txns[object->cnt++] = idx;
	if (lpi_crash_must_have(crash, idx))
		object->low = object->cnt;
}

/* Calls for each object of a transaction. */
static inline void lpi_crash_each(struct lpi_crash *crash, uint64_t idx,
				  void (*call)(struct lpi_crash *crash,
					       struct lpi_crash_object *object, uint64_t idx))
{
	struct lpi_touches touches;
	lpi_touches_of(&touches, &crash->model->history[idx].plan);
	for (uint32_t i = 0; i < touches.cnt; i++)
		if (touches.items[i].kind != LPI_TOUCH_ENTRIES)
			call(crash, lpi_crash_object(crash, &touches.items[i]), idx);
}

static inline bool lpi_same_entry(const struct lpi_hand *a, const struct lpi_hand *b,
				  const struct lpi_touch *touch, struct lpi_diff *diff)
{
	struct lp_store_op op_a = {
		.opcode = LP_STORE_LOOKUP,
		.lookup = {.dir = {touch->nr}, .name = lpi_plan_entry_name(touch->name_idx)}};
	struct lp_store_op op_b = op_a;
	(void)lpi_hand_do(a, &op_a); /* the results are compared */
	(void)lpi_hand_do(b, &op_b);
	return lpi_same_result(op_a.result, op_b.result, "lookup", diff) &&
	       lpi_same_number(op_a.lookup.ino.nr, op_b.lookup.ino.nr, "ino of an entry", diff) &&
	       lpi_same_number(op_a.lookup.type, op_b.lookup.type, "type of an entry", diff);
}

/* How many entries there are is another matter. */
static inline bool lpi_same_fragment(const struct lpi_hand *a, const struct lpi_hand *b,
				     uint64_t nr, struct lpi_diff *diff)
{
	struct lp_store_op op_a = {.opcode = LP_STORE_DIR, .dir = {.ino = {nr}}};
	struct lp_store_op op_b = op_a;
	(void)lpi_hand_do(a, &op_a); /* the results are compared */
	(void)lpi_hand_do(b, &op_b);
	op_b.dir.entries_cnt = op_a.dir.entries_cnt;
	op_b.dir.name_bytes = op_a.dir.name_bytes;
	return lpi_same_op(&op_a, &op_b, diff);
}

static inline bool lpi_same_object(const struct lpi_hand *a, const struct lpi_hand *b,
				   const struct lpi_touch *touch, struct lpi_diff *diff)
{
	diff->found = false;
	if (touch->kind == LPI_TOUCH_INODE)
		return lpi_same_inode(a, b, touch->nr, diff);
	if (touch->kind == LPI_TOUCH_ENTRY)
		return lpi_same_entry(a, b, touch, diff);
	if (touch->kind == LPI_TOUCH_FRAGMENT)
		return lpi_same_fragment(a, b, touch->nr, diff);
	assert_int_equal(touch->kind, LPI_TOUCH_RECORD);
	return lpi_same_record(a, b, touch->name_idx, diff);
}

static inline int lpi_touch_to_text(const struct lpi_touch *touch, char *buf, size_t len)
{
	static const char *const kinds[] = {"inode", "entry", "fragment", "record"};
	return snprintf(buf, len, "%s %#llx (name %u)", kinds[touch->kind],
			(unsigned long long)touch->nr, touch->name_idx);
}

/* --- The passes ------------------------------------------------------------------------------- */

static inline void lpi_crash_note_entries(struct lpi_crash *crash, uint64_t idx)
{
	struct lpi_touches touches;
	lpi_touches_of(&touches, &crash->model->history[idx].plan);
	for (uint32_t i = 0; i < touches.cnt; i++) {
		if (touches.items[i].kind != LPI_TOUCH_ENTRIES)
			continue;
		crash->entries =
			realloc(crash->entries, (crash->entries_cnt + 1) * sizeof(*crash->entries));
		assert_non_null(crash->entries);
		crash->entries[crash->entries_cnt++] = (struct lpi_crash_entries){
			.idx = idx, .dir = touches.items[i].nr, .strong = touches.items[i].strong};
	}
}

static inline void lpi_crash_collect(struct lpi_crash *crash)
{
	for (uint64_t i = 0; i < crash->model->history_cnt; i++) {
		if (!crash->is_in[i])
			continue;
		lpi_crash_each(crash, i, lpi_crash_note);
		lpi_crash_note_entries(crash, i);
	}
	for (uint32_t i = 0; i < crash->object_cnt; i++) {
		struct lpi_crash_object *object = &crash->objects[i];
		object->may_be = calloc(object->cnt + 1U, sizeof(*object->may_be));
		assert_non_null(object->may_be);
	}
}

static struct lpi_hand lpi_crash_hand; /* what is being replayed into */

static inline void lpi_crash_look(struct lpi_crash *crash, struct lpi_crash_object *object,
				  uint64_t idx)
{
	(void)idx;
	object->rank++;
	if (object->rank >= object->low)
		object->may_be[object->rank] = lpi_same_object(&crash->survivor, &lpi_crash_hand,
							       &object->touch, &object->why_not);
}

static inline void lpi_crash_replay(struct lpi_crash *crash)
{
	struct lpi_mem_rig rig;
	lpi_mem_rig_init(&rig, lpi_model_bufs_bytes(&crash->model->gen));
	lpi_crash_hand = rig.hand;
	for (uint32_t i = 0; i < crash->object_cnt; i++) {
		struct lpi_crash_object *object = &crash->objects[i];
		if (object->low == 0)
			object->may_be[0] = lpi_same_object(&crash->survivor, &rig.hand,
							    &object->touch, &object->why_not);
	}
	for (uint64_t i = 0; i < crash->model->history_cnt; i++) {
		if (!crash->is_in[i])
			continue;
		assert_int_equal(lpi_replay(&rig.hand, &crash->model->history[i].plan), 0);
		lpi_crash_each(crash, i, lpi_crash_look);
	}
	lpi_mem_rig_fini(&rig);
}

/* The shortest prefix it may be, of this length or longer. */
static inline bool lpi_crash_raise(struct lpi_crash *crash, struct lpi_crash_object *object,
				   uint32_t rank)
{
	char text[100];
	for (uint32_t i = rank; i <= object->cnt; i++) {
		if (object->may_be[i]) {
			object->rank = i;
			return true;
		}
	}
	(void)lpi_touch_to_text(&object->touch, text, sizeof(text)); /* it fits */
	return lpi_diff_say(&crash->diff,
			    "%s is in no state after %u or more of its %u transactions; %u are "
			    "acknowledged; with all of them: %s",
			    text, rank, object->cnt, object->low, object->why_not.text);
}

/* The number of this transaction among those of the object, from 1 on. */
static inline uint32_t lpi_crash_rank_of(const struct lpi_crash_object *object, uint64_t idx)
{
	uint32_t rank = object->cnt;
	while (rank > 0 && object->txns[rank - 1] != idx)
		rank--;
	assert_true(rank > 0);
	return rank;
}

static inline void lpi_crash_ask(struct lpi_crash *crash, struct lpi_crash_object *object,
				 uint64_t idx)
{
	crash->is_in[idx] |= lpi_crash_rank_of(object, idx) <= object->rank;
}

static bool lpi_crash_moved;

static inline void lpi_crash_pull(struct lpi_crash *crash, struct lpi_crash_object *object,
				  uint64_t idx)
{
	uint32_t rank = lpi_crash_rank_of(object, idx);
	if (crash->diff.found || rank <= object->rank)
		return;
	lpi_crash_moved |= lpi_crash_raise(crash, object, rank);
}

/* With each that is in, those before it that touched the same entries. */
static inline void lpi_crash_pull_entries(struct lpi_crash *crash)
{
	const struct lpi_crash_entries *all = crash->entries;
	for (uint32_t i = 0; i < crash->entries_cnt; i++) {
		if (!crash->is_in[all[i].idx])
			continue;
		for (uint32_t j = 0; j < i; j++)
			if (!crash->is_in[all[j].idx] && all[j].dir == all[i].dir &&
			    (all[j].strong || all[i].strong))
				lpi_crash_each(crash, all[j].idx, lpi_crash_pull);
	}
}

/* Transactions are in the prefixes of all their objects or of none. is_in becomes the answer; on
 * entry it says which may be. */
static inline bool lpi_crash_choose(struct lpi_crash *crash)
{
	uint64_t cnt = crash->model->history_cnt;
	bool *may = malloc(cnt + 1);
	assert_non_null(may);
	memcpy(may, crash->is_in, cnt);
	memset(crash->is_in, 0, cnt);
	for (uint32_t i = 0; i < crash->object_cnt && !crash->diff.found; i++)
		(void)lpi_crash_raise(crash, &crash->objects[i], crash->objects[i].low);
	for (lpi_crash_moved = true; lpi_crash_moved && !crash->diff.found;) {
		lpi_crash_moved = false;
		for (uint64_t i = 0; i < cnt; i++) {
			if (!may[i])
				continue;
			lpi_crash_each(crash, i, lpi_crash_ask);
			if (crash->is_in[i])
				lpi_crash_each(crash, i, lpi_crash_pull);
		}
		lpi_crash_pull_entries(crash);
	}
	free(may);
	return !crash->diff.found;
}

/* Makes what was found, and compares all of it. */
static inline bool lpi_crash_compare(struct lpi_crash *crash, struct lpi_mem_rig *rig,
				     struct lpi_gen *gen)
{
	gen->inode_cnt = 0;
	gen->model = &rig->hand;
	for (uint64_t i = 0; i < crash->model->history_cnt; i++) {
		const struct lpi_plan *plan = &crash->model->history[i].plan;
		if (!crash->is_in[i])
			continue;
		int err = lpi_replay(&rig->hand, plan);
		if (err < 0)
			return lpi_diff_say(&crash->diff, "transaction %llu without one before it",
					    (unsigned long long)i);
		lpi_gen_note(gen, plan);
	}
	return lpi_same_all(&crash->survivor, gen, &crash->diff);
}

/* The model goes on from what was found. */
static inline void lpi_crash_adopt(struct lpi_crash *crash, struct lpi_mem_rig *rig,
				   const struct lpi_gen *gen)
{
	struct lpi_model *model = crash->model;
	uint64_t cnt = 0;
	for (uint64_t i = 0; i < model->history_cnt; i++) {
		if (!crash->is_in[i])
			continue;
		model->history[cnt] = model->history[i];
		model->history[cnt].is_complete = true;
		model->history[cnt].submit_time = 0;
		model->history[cnt].durable_time = 0;
		cnt++;
	}
	model->history_cnt = cnt;
	model->settled = cnt;
	model->is_lost = false;
	lpi_mem_rig_free(model->rig);
	model->rig = rig;
	model->gen = *gen;
	lpi_model_attach(model, &crash->survivor);
}

static inline bool lpi_crash_find(struct lpi_crash *crash, bool adopt)
{
	struct lpi_gen gen = crash->model->gen;
	lpi_crash_find_in(crash);
	lpi_crash_collect(crash);
	lpi_crash_replay(crash);
	if (!lpi_crash_choose(crash))
		return false;
	struct lpi_mem_rig *rig = lpi_mem_rig_new(lpi_model_bufs_bytes(&crash->model->gen));
	bool is_right = lpi_crash_compare(crash, rig, &gen);
	if (is_right && adopt)
		lpi_crash_adopt(crash, rig, &gen);
	else
		lpi_mem_rig_free(rig);
	return is_right;
}

/* Whether the survivor, a store opened from what was left at that time, holds what it may. To
 * adopt is to go on with it as the store under test: then nothing may be under way, and times
 * begin again at 0. The number of transactions that were found is told, if wanted. */
static inline bool lpi_model_crash_check(struct lpi_model *model, const struct lpi_hand *survivor,
					 uint64_t at, bool adopt, uint64_t *ret_found)
{
	struct lpi_crash crash = {.model = model, .survivor = *survivor, .at = at};
	assert_true(!adopt || lpi_model_busy_cnt(model) == 0);
	crash.is_in = calloc(model->history_cnt + 1, sizeof(*crash.is_in));
	if (crash.is_in == NULL)
		abort();                   /* an assert would not tell the analyzer */
	uint64_t cnt = model->history_cnt; /* adopting changes it */
	uint64_t found = 0;
	bool is_right = lpi_crash_find(&crash, adopt);
	if (!is_right)
		(void)lpi_diff_say(&model->diff, "after a crash: %s", crash.diff.text);
	for (uint64_t i = 0; i < cnt; i++)
		found += crash.is_in[i];
	if (ret_found != NULL)
		*ret_found = found;
	for (uint32_t i = 0; i < crash.object_cnt; i++) {
		free(crash.objects[i].txns);
		free(crash.objects[i].may_be);
	}
	free(crash.objects);
	free(crash.entries);
	free(crash.is_in);
	return is_right;
}

#endif
