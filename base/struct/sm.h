/* SPDX-License-Identifier: Apache-2.0 */
/* State machines as tables.
 *
 * A table has the states of one kind of operation, their names, the allowed moves, and a function
 * that checks the invariant. Each operation embeds a struct lp_sm. Every change of state goes
 * through lp_sm_move(). It dies on a move that the table does not have, and on a broken invariant.
 * It tells an observer how long the former state had lasted. Logs, counters and documents use the
 * names. A test per table calls lp_sm_table_check().
 *
 * Threads: a struct lp_sm belongs to its operation's owner; tables are constant. The observer is
 * called on the owner's thread.
 * Blocking, allocation: none. Errors: only of lp_sm_table_check; a wrong move is an assert.
 */
#ifndef LP_BASE_STRUCT_SM_H
#define LP_BASE_STRUCT_SM_H

#include <errno.h>

#include "base/assert.h"

#define LP_SM_STATES_MAX 64u

/* Flags of a state. */
#define LP_SM_INITIAL (1u << 0) /* where a machine may start: exactly one state */
#define LP_SM_FAILURE (1u << 1) /* the operation has failed */
#define LP_SM_FINAL   (1u << 2) /* nothing follows */

/* For lp_sm_state.allowed: LP_SM_TO(READ) | LP_SM_TO(DONE). */
#define LP_SM_TO(state) (UINT64_C(1) << (state))

/* The operation that embeds a machine, for invariants and observers, which must not change it. */
#define LP_SM_OWNER(sm, type, member)                                                              \
	((const type *)(const void *)((const char *)(1 ? (sm) : &((const type *)0)->member) -      \
				      offsetof(type, member)))

struct lp_sm;

struct lp_sm_state {
	const char *name;
	unsigned flags;
	uint64_t allowed; /* the states that may follow, one bit each */
};

struct lp_sm_table {
	const char *name; /* of the operation: "write" */
	const struct lp_sm_state *states;
	unsigned state_cnt; /* at most LP_SM_STATES_MAX */
	/* Checks the state that the machine is in now; prev is the state before (the same at init).
	 * Finds its operation by LP_SM_OWNER. May be NULL. */
	bool (*invariant)(const struct lp_sm *sm, unsigned prev);
};

/* Shared by many machines; called for each state that a move leaves. */
struct lp_sm_observer {
	void (*left)(const struct lp_sm *sm, unsigned state, uint64_t ns, void *arg);
	void *arg;
};

struct lp_sm {
	const struct lp_sm_table *table;
	const struct lp_sm_observer *observer; /* or NULL */
	uint64_t entered_ns;                   /* monotonic: when the state was entered */
	unsigned state;
};

/* Starts in the initial state of the table. observer may be NULL; it outlives the machine. */
void lp_sm_init(struct lp_sm *sm, const struct lp_sm_table *table,
		const struct lp_sm_observer *observer, uint64_t now_ns);

static inline unsigned lp_sm_state(const struct lp_sm *sm)
{
	return sm->state;
}

static inline const char *lp_sm_state_name(const struct lp_sm *sm)
{
	return sm->table->states[sm->state].name;
}

static inline bool lp_sm_is_final(const struct lp_sm *sm)
{
	return (sm->table->states[sm->state].flags & LP_SM_FINAL) != 0;
}

static inline bool lp_sm_has_failed(const struct lp_sm *sm)
{
	return (sm->table->states[sm->state].flags & LP_SM_FAILURE) != 0;
}

static inline bool lp_sm_may_move(const struct lp_sm *sm, unsigned next)
{
	return next < sm->table->state_cnt &&
	       (sm->table->states[sm->state].allowed >> next & 1) != 0;
}

/* "write: LOG_IO since 1234 ns", as snprintf, for asserts. The time is when the state was entered.
 */
int lp_sm_to_text(const struct lp_sm *sm, char *buf, size_t len);

/* Report and abort: the move to next is not in the table; the invariant of the state fails. */
LP_NORETURN void lpi_sm_bad_edge(const struct lp_sm *sm, unsigned next);
LP_NORETURN void lpi_sm_bad_state(const struct lp_sm *sm, unsigned prev);

/* now_ns is monotonic time, not before the last move. The observer is called before the state
 * changes, the invariant after. */
static inline void lp_sm_move(struct lp_sm *sm, unsigned next, uint64_t now_ns)
{
	unsigned prev = sm->state;
	if (LP_UNLIKELY(!lp_sm_may_move(sm, next)))
		lpi_sm_bad_edge(sm, next);
	LP_ASSERT(now_ns >= sm->entered_ns);
	if (sm->observer != NULL)
		sm->observer->left(sm, prev, now_ns - sm->entered_ns, sm->observer->arg);
	sm->state = next;
	sm->entered_ns = now_ns;
	if (sm->table->invariant != NULL && LP_UNLIKELY(!sm->table->invariant(sm, prev)))
		lpi_sm_bad_state(sm, prev);
}

/* For tests: 0 if the table is well-formed. It has 1 to LP_SM_STATES_MAX states, each with a name
 * of its own, and one is initial. Edges lead to states that exist, and none leads out of a final
 * state. Each state can be reached from the initial one. Each state that is not final can reach a
 * failure and a final state. Otherwise -EINVAL, with the reason in why. */
int lp_sm_table_check(const struct lp_sm_table *table, char *why, size_t len) LP_MUST_CHECK;

#endif
