/* SPDX-License-Identifier: Apache-2.0 */
/* Reachability is computed with sets of states as bit masks, grown until they stay the same:
 * at most as many rounds as there are states. */
#include "base/struct/sm.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static uint64_t states_with(const struct lp_sm_table *table, unsigned flag)
{
	uint64_t set = 0;
	for (unsigned i = 0; i < table->state_cnt; i++) {
		if ((table->states[i].flags & flag) != 0)
			set |= LP_SM_TO(i);
	}
	return set;
}

void lp_sm_init(struct lp_sm *sm, const struct lp_sm_table *table,
		const struct lp_sm_observer *observer, uint64_t now_ns)
{
	LP_ASSERT(table->state_cnt > 0 && table->state_cnt <= LP_SM_STATES_MAX);
	unsigned state = 0;
	while (state < table->state_cnt && (table->states[state].flags & LP_SM_INITIAL) == 0)
		state++;
	LP_ASSERT(state < table->state_cnt);
	*sm = (struct lp_sm){
		.table = table, .observer = observer, .entered_ns = now_ns, .state = state};
	if (table->invariant != NULL && !table->invariant(sm, state))
		lpi_sm_bad_state(sm, state);
}

int lp_sm_to_text(const struct lp_sm *sm, char *buf, size_t len)
{
	return snprintf(buf, len, "%s: %s since %" PRIu64 " ns", sm->table->name,
			lp_sm_state_name(sm), sm->entered_ns);
}

/* A number from broken memory has no name. */
static const char *name_of(const struct lp_sm_table *table, unsigned state)
{
	return state < table->state_cnt ? table->states[state].name : "(no such state)";
}

void lpi_sm_bad_edge(const struct lp_sm *sm, unsigned next)
{
	char text[LP_ASSERT_TEXT_MAX];
	(void)snprintf(text, sizeof(text), "%s: %s -> %s (%u)", sm->table->name,
		       name_of(sm->table, sm->state), name_of(sm->table, next), next);
	lp_assert_failed("the table allows the move", __FILE__, __LINE__, __func__, text);
}

void lpi_sm_bad_state(const struct lp_sm *sm, unsigned prev)
{
	char text[LP_ASSERT_TEXT_MAX];
	(void)snprintf(text, sizeof(text), "%s: %s, coming from %s", sm->table->name,
		       name_of(sm->table, sm->state), name_of(sm->table, prev));
	lp_assert_failed("the invariant of the state holds", __FILE__, __LINE__, __func__, text);
}

LP_PRINTF(4, 5)
static int complain(const struct lp_sm_table *table, char *why, size_t len, const char *fmt, ...)
{
	char text[200];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	(void)snprintf(why, len, "table %s: %s", table->name == NULL ? "?" : table->name, text);
	return -EINVAL;
}

static int check_names(const struct lp_sm_table *table, char *why, size_t len)
{
	if (table->name == NULL || table->name[0] == '\0')
		return complain(table, why, len, "it has no name");
	if (table->state_cnt == 0 || table->state_cnt > LP_SM_STATES_MAX)
		return complain(table, why, len, "it has %u states", table->state_cnt);
	for (unsigned i = 0; i < table->state_cnt; i++) {
		const char *name = table->states[i].name;
		if (name == NULL || name[0] == '\0')
			return complain(table, why, len, "state %u has no name", i);
		for (unsigned j = 0; j < i; j++) {
			if (strcmp(name, table->states[j].name) == 0)
				return complain(table, why, len, "two states are called %s", name);
		}
	}
	return 0;
}

static int check_edges(const struct lp_sm_table *table, char *why, size_t len)
{
	uint64_t known = UINT64_MAX >> (LP_SM_STATES_MAX - table->state_cnt);
	int initials = __builtin_popcountll(states_with(table, LP_SM_INITIAL));
	if (initials != 1)
		return complain(table, why, len, "%d states are initial", initials);
	for (unsigned i = 0; i < table->state_cnt; i++) {
		const struct lp_sm_state *state = &table->states[i];
		if ((state->flags & ~(LP_SM_INITIAL | LP_SM_FAILURE | LP_SM_FINAL)) != 0)
			return complain(table, why, len, "%s has unknown flags", state->name);
		if ((state->allowed & ~known) != 0)
			return complain(table, why, len, "%s leads out of the table", state->name);
		if ((state->flags & LP_SM_FINAL) != 0 && state->allowed != 0)
			return complain(table, why, len, "%s is final and leads on", state->name);
	}
	return 0;
}

/* All states that a state of `from` leads to, themselves included. */
static uint64_t reachable_from(const struct lp_sm_table *table, uint64_t from)
{
	uint64_t before = 0;
	while (from != before) {
		before = from;
		for (unsigned i = 0; i < table->state_cnt; i++) {
			if ((before >> i & 1) != 0)
				from |= table->states[i].allowed;
		}
	}
	return from;
}

int lp_sm_table_check(const struct lp_sm_table *table, char *why, size_t len)
{
	int rc = check_names(table, why, len);
	if (rc == 0)
		rc = check_edges(table, why, len);
	if (rc != 0)
		return rc;
	uint64_t failures = states_with(table, LP_SM_FAILURE);
	uint64_t finals = states_with(table, LP_SM_FINAL);
	uint64_t live = reachable_from(table, states_with(table, LP_SM_INITIAL));
	for (unsigned i = 0; i < table->state_cnt; i++) {
		const char *name = table->states[i].name;
		uint64_t ahead = reachable_from(table, LP_SM_TO(i));
		if ((live >> i & 1) == 0)
			return complain(table, why, len, "%s cannot be reached", name);
		if ((finals >> i & 1) != 0)
			continue;
		if ((ahead & failures) == 0)
			return complain(table, why, len, "%s can never fail", name);
		if ((ahead & finals) == 0)
			return complain(table, why, len, "%s can never end", name);
	}
	return 0;
}
