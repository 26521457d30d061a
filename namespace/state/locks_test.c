/* SPDX-License-Identifier: Apache-2.0 */
/* Locks, one by one, and in random runs against a model that looks at everything anew each time. */
#include "namespace/state/locks.h"

#include "base/prng.h"
#include "base/testing/test.h"

/* --- Hands ------------------------------------------------------------------------------------ */

struct hand {
	struct lpi_lock lock;
	uint32_t granted; /* how often */
	uint32_t order;
};

static uint32_t order;

static void granted(struct lpi_lock *lock)
{
	struct hand *hand = LP_CONTAINER_OF(lock, struct hand, lock);
	hand->granted++;
	hand->order = ++order;
}

static struct hand hand_of(enum lpi_lock_kind kind, uint64_t ino, uint64_t hash)
{
	return (struct hand){
		.lock = {.kind = kind, .ino = {ino}, .hash = hash, .granted = granted}};
}

static struct lpi_locks *locks_new(void)
{
	struct lpi_locks *locks = NULL;
	lp_test_ok(lpi_locks_new(100, &locks));
	order = 0;
	return locks;
}

static void locks_end(struct lpi_locks *locks)
{
	assert_int_equal(lpi_locks_cnt(locks), 0);
	lpi_locks_free(locks);
}

/* --- One by one ------------------------------------------------------------------------------- */

static void test_order(void **state)
{
	(void)state;
	static const enum lpi_lock_kind kinds[] = {LPI_LOCK_TOKEN, LPI_LOCK_NAME, LPI_LOCK_INODE,
						   LPI_LOCK_FRAGMENT};
	for (size_t k = 0; k < LP_ARRAY_SIZE(kinds); k++) {
		struct lpi_locks *locks = locks_new();
		struct hand hands[5];
		for (uint32_t i = 0; i < 5; i++) {
			hands[i] = hand_of(kinds[k], 7, 9);
			assert_true(lpi_lock_acquire(locks, &hands[i].lock) == (i == 0));
		}
		assert_int_equal(lpi_locks_waits(locks), 4);
		for (uint32_t i = 0; i < 5; i++) {
			assert_true(lpi_lock_is_held(&hands[i].lock));
			assert_int_equal(hands[i].granted, i > 0);
			assert_int_equal(hands[i].order, i);
			lpi_lock_release(locks, &hands[i].lock);
		}
		locks_end(locks);
	}
}

/* Names of a directory share it; who wants all of it comes between those before and behind him. */
static void test_fragment(void **state)
{
	(void)state;
	struct lpi_locks *locks = locks_new();
	struct hand a = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand b = hand_of(LPI_LOCK_NAME, 7, 2);
	struct hand all = hand_of(LPI_LOCK_FRAGMENT, 7, 0);
	struct hand late = hand_of(LPI_LOCK_NAME, 7, 3);
	struct hand later = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand other = hand_of(LPI_LOCK_NAME, 8, 1);
	struct hand inode = hand_of(LPI_LOCK_INODE, 7, 0);
	assert_true(lpi_lock_acquire(locks, &a.lock));
	assert_true(lpi_lock_acquire(locks, &b.lock));
	assert_false(lpi_lock_acquire(locks, &all.lock));
	assert_false(lpi_lock_acquire(locks, &late.lock));
	assert_false(lpi_lock_acquire(locks, &later.lock));
	assert_true(lpi_lock_acquire(locks, &other.lock));
	assert_true(lpi_lock_acquire(locks, &inode.lock));
	lpi_lock_release(locks, &a.lock);
	assert_int_equal(order, 0);
	lpi_lock_release(locks, &b.lock);
	assert_true(lpi_lock_is_held(&all.lock));
	assert_false(lpi_lock_is_held(&late.lock));
	lpi_lock_release(locks, &all.lock);
	assert_true(lpi_lock_is_held(&late.lock) && lpi_lock_is_held(&later.lock));
	assert_true(late.order < later.order);
	lpi_lock_release(locks, &late.lock);
	lpi_lock_release(locks, &later.lock);
	lpi_lock_release(locks, &other.lock);
	lpi_lock_release(locks, &inode.lock);
	locks_end(locks);
}

/* Who holds a name of a directory gets another one of it before those who wait for him. */
static void test_sibling(void **state)
{
	(void)state;
	struct lpi_locks *locks = locks_new();
	struct hand a = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand b = hand_of(LPI_LOCK_NAME, 7, 2);
	struct hand all = hand_of(LPI_LOCK_FRAGMENT, 7, 0);
	assert_true(lpi_lock_acquire(locks, &a.lock));
	assert_false(lpi_lock_acquire(locks, &all.lock));
	b.lock.sibling = &a.lock;
	assert_true(lpi_lock_acquire(locks, &b.lock));
	lpi_lock_release(locks, &a.lock);
	assert_false(lpi_lock_is_held(&all.lock));
	lpi_lock_release(locks, &b.lock);
	assert_true(lpi_lock_is_held(&all.lock));
	lpi_lock_release(locks, &all.lock);
	locks_end(locks);
}

/* A look waits for those that are hard when it comes, of the name and of the whole directory, and
 * for nobody else. */
static void test_looks(void **state)
{
	(void)state;
	struct lpi_locks *locks = locks_new();
	struct hand a = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand b = hand_of(LPI_LOCK_NAME, 7, 2);
	struct hand next = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand at_name = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand at_all = hand_of(LPI_LOCK_FRAGMENT, 7, 0);
	struct hand elsewhere = hand_of(LPI_LOCK_NAME, 7, 3);
	assert_true(lpi_lock_look(locks, &at_name.lock));
	assert_true(lpi_lock_acquire(locks, &a.lock));
	assert_true(lpi_lock_acquire(locks, &b.lock));
	assert_false(lpi_lock_acquire(locks, &next.lock));
	assert_true(lpi_lock_look(locks, &at_name.lock));
	lpi_lock_harden(locks, &a.lock);
	lpi_lock_harden(locks, &a.lock);
	assert_true(lpi_lock_look(locks, &elsewhere.lock));
	assert_false(lpi_lock_look(locks, &at_name.lock));
	assert_false(lpi_lock_look(locks, &at_all.lock));
	/* Too late to be waited for. */
	lpi_lock_harden(locks, &b.lock);
	lpi_lock_release(locks, &a.lock);
	assert_int_equal(at_name.granted, 1);
	assert_int_equal(at_all.granted, 1);
	assert_true(lpi_lock_is_held(&next.lock));
	assert_true(lpi_lock_look(locks, &at_name.lock));
	assert_false(lpi_lock_look(locks, &at_all.lock));
	lpi_lock_release(locks, &next.lock);
	assert_int_equal(at_all.granted, 1);
	lpi_lock_release(locks, &b.lock);
	assert_int_equal(at_all.granted, 2);
	locks_end(locks);
}

/* More than there was memory for at first. */
static void test_many(void **state)
{
	(void)state;
	struct lpi_locks *locks = NULL;
	const uint32_t cnt = 3000;
	struct hand *hands = calloc(cnt, sizeof(*hands));
	assert_non_null(hands);
	lp_test_ok(lpi_locks_new(cnt - 1000, &locks));
	for (uint32_t i = 0; i < cnt; i++) {
		hands[i] = hand_of(LPI_LOCK_INODE, i + 1, 0);
		assert_true(lpi_lock_acquire(locks, &hands[i].lock));
	}
	assert_int_equal(lpi_locks_cnt(locks), cnt);
	for (uint32_t i = 0; i < cnt; i++)
		lpi_lock_release(locks, &hands[i].lock);
	locks_end(locks);
	free(hands);
}

/* --- Random runs ------------------------------------------------------------------------------ */

#define HANDS 24u

enum stage { IDLE, AT_FRAGMENT, AT_OWN, HELD, LOOKING };

/* The same, written down: who stands where since when. */
struct model {
	struct hand hands[HANDS];
	enum stage stage[HANDS];
	uint64_t since[HANDS]; /* in the queue that the stage says */
	uint64_t hard[HANDS];  /* when it became so; 0: it is not */
	uint64_t waits[HANDS]; /* a look: a bit for each it waits for */
	uint32_t granted[HANDS];
	uint64_t now;
};

static bool is_same_own(const struct lpi_lock *a, const struct lpi_lock *b)
{
	return a->kind == b->kind && a->ino.nr == b->ino.nr &&
	       (a->kind != LPI_LOCK_NAME || a->hash == b->hash);
}

static bool is_whole_of(const struct lpi_lock *whole, const struct lpi_lock *name)
{
	return whole->kind == LPI_LOCK_FRAGMENT && name->kind == LPI_LOCK_NAME &&
	       whole->ino.nr == name->ino.nr;
}

/* Whether something keeps hand i where it is. */
static bool is_kept(const struct model *model, uint32_t i)
{
	const struct lpi_lock *lock = &model->hands[i].lock;
	bool is_kept = false;
	for (uint32_t k = 0; k < HANDS; k++) {
		const struct lpi_lock *other = &model->hands[k].lock;
		enum stage at = model->stage[k];
		bool is_before = model->since[k] < model->since[i];
		if (k == i || at == IDLE || at == LOOKING)
			continue;
		if (model->stage[i] == AT_FRAGMENT)
			is_kept |= is_whole_of(other, lock) && (at == HELD || is_before);
		else if (is_same_own(other, lock))
			is_kept |= at == HELD || (at == AT_OWN && is_before);
		else if (is_whole_of(lock, other))
			is_kept |= at == HELD || at == AT_OWN || (at == AT_FRAGMENT && is_before);
	}
	return is_kept;
}

static bool is_moved(struct model *model, uint32_t i)
{
	if ((model->stage[i] != AT_FRAGMENT && model->stage[i] != AT_OWN) || is_kept(model, i))
		return false;
	if (model->stage[i] == AT_FRAGMENT) {
		model->stage[i] = AT_OWN;
		model->since[i] = ++model->now;
	} else {
		model->stage[i] = HELD;
		model->hard[i] = 0;
	}
	return true;
}

/* The one that came first goes on first. */
static void settle(struct model *model)
{
	for (;;) {
		uint32_t best = HANDS;
		for (uint32_t i = 0; i < HANDS; i++) {
			bool may = (model->stage[i] == AT_FRAGMENT || model->stage[i] == AT_OWN) &&
				   !is_kept(model, i);
			if (may && (best == HANDS || model->since[i] < model->since[best]))
				best = i;
		}
		if (best == HANDS)
			return;
		bool moved = is_moved(model, best);
		assert_true(moved);
	}
}

static void check_model(struct model *model, struct lpi_locks *locks)
{
	bool any = false;
	for (uint32_t i = 0; i < HANDS; i++) {
		assert_true(lpi_lock_is_held(&model->hands[i].lock) == (model->stage[i] == HELD));
		if (model->stage[i] == LOOKING) {
			bool is_over = model->waits[i] == 0;
			assert_int_equal(model->hands[i].granted, is_over);
			if (is_over)
				model->stage[i] = IDLE;
		}
		any |= model->stage[i] != IDLE;
	}
	assert_true(any == (lpi_locks_cnt(locks) > 0));
}

/* Those that a look of hand i has to wait for. */
static uint64_t looks_for(const struct model *model, uint32_t i)
{
	const struct lpi_lock *lock = &model->hands[i].lock;
	uint64_t hands = 0;
	for (uint32_t k = 0; k < HANDS; k++)
		if (k != i && model->stage[k] == HELD && model->hard[k] > 0 &&
		    (is_same_own(&model->hands[k].lock, lock) ||
		     is_whole_of(lock, &model->hands[k].lock)))
			hands |= UINT64_C(1) << k;
	return hands;
}

static void step_idle(struct model *model, struct lpi_locks *locks, struct lp_prng *prng,
		      uint32_t i)
{
	static const enum lpi_lock_kind kinds[] = {LPI_LOCK_NAME, LPI_LOCK_NAME, LPI_LOCK_NAME,
						   LPI_LOCK_FRAGMENT, LPI_LOCK_INODE};
	struct hand *hand = &model->hands[i];
	*hand = hand_of(kinds[lp_prng_below(prng, LP_ARRAY_SIZE(kinds))],
			1 + lp_prng_below(prng, 2), lp_prng_below(prng, 3));
	model->since[i] = ++model->now;
	if (lp_prng_below(prng, 4) == 0) {
		model->waits[i] = looks_for(model, i);
		bool is_free = lpi_lock_look(locks, &hand->lock);
		assert_true(is_free == (model->waits[i] == 0));
		model->stage[i] = is_free ? IDLE : LOOKING;
		return;
	}
	model->stage[i] = hand->lock.kind == LPI_LOCK_NAME ? AT_FRAGMENT : AT_OWN;
	settle(model);
	bool is_held = lpi_lock_acquire(locks, &hand->lock);
	assert_true(is_held == (model->stage[i] == HELD));
}

static void step(struct model *model, struct lpi_locks *locks, struct lp_prng *prng, uint32_t i)
{
	if (model->stage[i] == IDLE) {
		step_idle(model, locks, prng, i);
	} else if (model->stage[i] == HELD && lp_prng_below(prng, 3) == 0) {
		lpi_lock_harden(locks, &model->hands[i].lock);
		model->hard[i] = ++model->now;
	} else if (model->stage[i] == HELD) {
		model->stage[i] = IDLE;
		for (uint32_t k = 0; k < HANDS; k++)
			model->waits[k] &= ~(UINT64_C(1) << i);
		settle(model);
		lpi_lock_release(locks, &model->hands[i].lock);
	}
	check_model(model, locks);
}

static bool step_all_busy(struct model *model, struct lpi_locks *locks, struct lp_prng *prng)
{
	bool any = false;
	for (uint32_t i = 0; i < HANDS; i++) {
		if (model->stage[i] == IDLE)
			continue;
		step(model, locks, prng, i);
		any = true;
	}
	return any;
}

static void test_model(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct lpi_locks *locks = locks_new();
		struct model model = {.now = 0};
		struct lp_prng prng;
		lp_prng_init(&prng, seed);
		for (uint32_t i = 0; i < 3000; i++)
			step(&model, locks, &prng, (uint32_t)lp_prng_below(&prng, HANDS));
		while (step_all_busy(&model, locks, &prng))
			;
		locks_end(locks);
	}
}

/* Who never lets go refuses those who wait and those who come, and is in nobody else's way: other
 * names of the directory are free. */
static void test_stuck(void **state)
{
	(void)state;
	struct lpi_locks *locks = locks_new();
	struct hand stuck = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand same = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand all = hand_of(LPI_LOCK_FRAGMENT, 7, 0);
	struct hand behind = hand_of(LPI_LOCK_NAME, 7, 2);
	struct hand late = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand late_all = hand_of(LPI_LOCK_FRAGMENT, 7, 0);
	struct hand look = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand look_all = hand_of(LPI_LOCK_FRAGMENT, 7, 0);
	assert_true(lpi_lock_acquire(locks, &stuck.lock));
	lpi_lock_harden(locks, &stuck.lock);
	assert_false(lpi_lock_acquire(locks, &same.lock));
	assert_false(lpi_lock_acquire(locks, &all.lock));
	assert_false(lpi_lock_acquire(locks, &behind.lock));
	assert_false(lpi_lock_look(locks, &look.lock));
	assert_false(lpi_lock_look(locks, &look_all.lock));
	lpi_lock_fail(locks, &stuck.lock);
	struct hand *const refused[] = {&same, &all, &look, &look_all};
	for (size_t i = 0; i < LP_ARRAY_SIZE(refused); i++) {
		assert_int_equal(refused[i]->granted, 1);
		assert_int_equal(refused[i]->lock.result, -EIO);
		assert_false(lpi_lock_is_held(&refused[i]->lock));
	}
	assert_true(lpi_lock_is_held(&behind.lock) && behind.lock.result == 0);
	assert_true(lpi_lock_acquire(locks, &late.lock));
	assert_true(lpi_lock_acquire(locks, &late_all.lock));
	assert_int_equal(late.lock.result, -EIO);
	assert_int_equal(late_all.lock.result, -EIO);
	assert_true(lpi_lock_look(locks, &look.lock));
	assert_int_equal(look.lock.result, -EIO);
	lpi_lock_release(locks, &behind.lock);
	/* Its own entry and its directory's. */
	assert_int_equal(lpi_locks_cnt(locks), 2);
	lpi_locks_free(locks);
}

/* The same with all of a directory. */
static void test_stuck_whole(void **state)
{
	(void)state;
	struct lpi_locks *locks = locks_new();
	struct hand stuck = hand_of(LPI_LOCK_FRAGMENT, 7, 0);
	struct hand name = hand_of(LPI_LOCK_NAME, 7, 1);
	struct hand late = hand_of(LPI_LOCK_NAME, 7, 2);
	struct hand other = hand_of(LPI_LOCK_NAME, 8, 1);
	assert_true(lpi_lock_acquire(locks, &stuck.lock));
	assert_false(lpi_lock_acquire(locks, &name.lock));
	lpi_lock_fail(locks, &stuck.lock);
	assert_int_equal(name.granted, 1);
	assert_int_equal(name.lock.result, -EIO);
	assert_true(lpi_lock_acquire(locks, &late.lock));
	assert_int_equal(late.lock.result, -EIO);
	assert_true(lpi_lock_acquire(locks, &other.lock));
	assert_int_equal(other.lock.result, 0);
	lpi_lock_release(locks, &other.lock);
	assert_int_equal(lpi_locks_cnt(locks), 1);
	lpi_locks_free(locks);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),   cmocka_unit_test(test_fragment),
		cmocka_unit_test(test_sibling), cmocka_unit_test(test_looks),
		cmocka_unit_test(test_many),    cmocka_unit_test(test_model),
		cmocka_unit_test(test_stuck),   cmocka_unit_test(test_stuck_whole),
	};
	return lp_test_main(tests, "namespace/state/locks");
}
