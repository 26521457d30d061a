/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: moves follow the table, the invariant and the observer are called with the right values,
 * wrong moves die naming both states, and the table check finds each kind of broken table.
 * Method: one machine embedded in a small operation; broken variants of its table. */
#include "base/testing/test.h"

#include "base/struct/sm.h"
#include "base/testing/test_death.h"

enum { QUEUED, READ, LOG_IO, DONE, FAILED, STATES };

static const struct lp_sm_state states[STATES] = {
	[QUEUED] = {"QUEUED", LP_SM_INITIAL, LP_SM_TO(READ) | LP_SM_TO(LOG_IO) | LP_SM_TO(FAILED)},
	[READ] = {"READ", 0, LP_SM_TO(READ) | LP_SM_TO(LOG_IO) | LP_SM_TO(FAILED)},
	[LOG_IO] = {"LOG_IO", 0, LP_SM_TO(DONE) | LP_SM_TO(FAILED)},
	[DONE] = {"DONE", LP_SM_FINAL, 0},
	[FAILED] = {"FAILED", LP_SM_FINAL | LP_SM_FAILURE, 0},
};

struct op {
	int result;
	struct lp_sm sm;
};

static int checked_cnt;
static unsigned last_prev;

static bool op_invariant(const struct lp_sm *sm, unsigned prev)
{
	const struct op *op = LP_SM_OWNER(sm, struct op, sm);
	checked_cnt++;
	last_prev = prev;
	return lp_sm_has_failed(sm) == (op->result < 0);
}

static const struct lp_sm_table table = {"write", states, STATES, op_invariant};

struct times {
	uint64_t ns[STATES];
	unsigned cnt[STATES];
	unsigned state_seen;
};

static void note_time(const struct lp_sm *sm, unsigned state, uint64_t ns, void *arg)
{
	struct times *times = arg;
	times->ns[state] += ns;
	times->cnt[state]++;
	times->state_seen = lp_sm_state(sm);
}

static void test_life(void **state)
{
	(void)state;
	struct times times = {.state_seen = 99};
	struct lp_sm_observer observer = {note_time, &times};
	struct op op = {0};
	lp_sm_init(&op.sm, &table, &observer, 100);
	assert_int_equal(checked_cnt, 1);
	assert_int_equal(last_prev, QUEUED);
	assert_string_equal(lp_sm_state_name(&op.sm), "QUEUED");
	assert_int_equal(times.state_seen, 99);
	assert_true(lp_sm_may_move(&op.sm, READ));
	assert_false(lp_sm_may_move(&op.sm, DONE));
	assert_false(lp_sm_may_move(&op.sm, STATES));
	assert_false(lp_sm_may_move(&op.sm, 64));

	lp_sm_move(&op.sm, READ, 150);
	assert_int_equal(times.ns[QUEUED], 50);
	/* The observer still saw the state that was left; the invariant where it came from. */
	assert_int_equal(times.state_seen, QUEUED);
	assert_int_equal(last_prev, QUEUED);
	lp_sm_move(&op.sm, READ, 160);
	lp_sm_move(&op.sm, LOG_IO, 160);
	assert_int_equal(times.ns[READ], 10);
	assert_int_equal(times.cnt[READ], 2);
	char text[64];
	assert_true(lp_sm_to_text(&op.sm, text, sizeof(text)) > 0);
	assert_string_equal(text, "write: LOG_IO since 160 ns");
	assert_false(lp_sm_is_final(&op.sm));
	lp_sm_move(&op.sm, DONE, UINT64_MAX);
	assert_true(times.ns[LOG_IO] == UINT64_MAX - 160);
	assert_true(lp_sm_is_final(&op.sm));
	assert_false(lp_sm_has_failed(&op.sm));
	assert_int_equal(times.cnt[DONE], 0);
	assert_int_equal(checked_cnt, 5);
}

static void test_failure_without_observer(void **state)
{
	(void)state;
	struct op op = {0};
	lp_sm_init(&op.sm, &table, NULL, 0);
	op.result = -5;
	lp_sm_move(&op.sm, FAILED, 0);
	assert_true(lp_sm_has_failed(&op.sm));
	assert_true(lp_sm_is_final(&op.sm));
}

static void take_missing_edge(void *arg)
{
	lp_sm_move(arg, DONE, 1);
}

static void take_impossible_state(void *arg)
{
	lp_sm_move(arg, 1000, 1);
}

static void break_invariant(void *arg)
{
	lp_sm_move(arg, FAILED, 1); /* with a result of 0 */
}

static void go_back_in_time(void *arg)
{
	lp_sm_move(arg, READ, 9);
}

static void test_misuse_dies(void **state)
{
	(void)state;
	struct op op = {0};
	lp_sm_init(&op.sm, &table, NULL, 10);
	lp_test_dies(take_missing_edge, &op.sm);
	lp_test_dies(take_impossible_state, &op.sm);
	lp_test_dies(break_invariant, &op.sm);
	lp_test_dies(go_back_in_time, &op.sm);
}

/* The table with one state replaced must be refused with a reason that says so. */
static void refuse(unsigned at, struct lp_sm_state with, const char *reason)
{
	struct lp_sm_state broken[STATES];
	memcpy(broken, states, sizeof(states));
	broken[at] = with;
	struct lp_sm_table bad = {"broken", broken, STATES, NULL};
	char why[128] = "";
	lp_test_err(-EINVAL, lp_sm_table_check(&bad, why, sizeof(why)));
	if (strstr(why, reason) == NULL)
		fail_msg("the reason is '%s', not '%s'", why, reason);
}

static void test_table_check(void **state)
{
	(void)state;
	char why[128] = "untouched";
	lp_test_ok(lp_sm_table_check(&table, why, sizeof(why)));
	assert_string_equal(why, "untouched");

	uint64_t on = LP_SM_TO(DONE) | LP_SM_TO(FAILED);
	refuse(READ, (struct lp_sm_state){NULL, 0, on}, "state 1 has no name");
	refuse(READ, (struct lp_sm_state){"", 0, on}, "state 1 has no name");
	refuse(READ, (struct lp_sm_state){"DONE", 0, on}, "two states are called DONE");
	refuse(QUEUED, (struct lp_sm_state){"QUEUED", 0, states[QUEUED].allowed}, "0 states are");
	refuse(READ, (struct lp_sm_state){"READ", LP_SM_INITIAL, on}, "2 states are initial");
	refuse(READ, (struct lp_sm_state){"READ", 1u << 3, on}, "READ has unknown flags");
	refuse(READ, (struct lp_sm_state){"READ", 0, LP_SM_TO(STATES)}, "READ leads out");
	refuse(DONE, (struct lp_sm_state){"DONE", LP_SM_FINAL, LP_SM_TO(READ)},
	       "DONE is final and");
	refuse(QUEUED, (struct lp_sm_state){"QUEUED", LP_SM_INITIAL, LP_SM_TO(LOG_IO)},
	       "READ cannot be reached");
	refuse(LOG_IO, (struct lp_sm_state){"LOG_IO", 0, LP_SM_TO(DONE)}, "LOG_IO can never fail");
	refuse(READ, (struct lp_sm_state){"READ", LP_SM_FAILURE, LP_SM_TO(READ)},
	       "READ can never end");

	struct lp_sm_table bad = {"none", states, 0, NULL};
	lp_test_err(-EINVAL, lp_sm_table_check(&bad, why, sizeof(why)));
	bad.state_cnt = 65;
	lp_test_err(-EINVAL, lp_sm_table_check(&bad, why, sizeof(why)));
	bad = (struct lp_sm_table){NULL, states, STATES, NULL};
	lp_test_err(-EINVAL, lp_sm_table_check(&bad, why, sizeof(why)));
	assert_non_null(strstr(why, "no name"));
}

/* All 64 states in a row: the masks hold at their upper end. */
static void test_largest_table(void **state)
{
	(void)state;
	static char names[64][8];
	static struct lp_sm_state row[64];
	for (unsigned i = 0; i < 64; i++) {
		(void)snprintf(names[i], sizeof(names[i]), "S%u", i);
		row[i] = (struct lp_sm_state){names[i], i == 0 ? LP_SM_INITIAL : 0, 0};
		if (i < 63)
			row[i].allowed = LP_SM_TO(i + 1);
	}
	row[63].flags = LP_SM_FINAL | LP_SM_FAILURE;
	struct lp_sm_table long_table = {"row", row, 64, NULL};
	char why[128];
	lp_test_ok(lp_sm_table_check(&long_table, why, sizeof(why)));
	struct lp_sm sm;
	lp_sm_init(&sm, &long_table, NULL, 0);
	for (unsigned i = 1; i < 64; i++)
		lp_sm_move(&sm, i, i);
	assert_string_equal(lp_sm_state_name(&sm), "S63");
	assert_true(lp_sm_has_failed(&sm));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_life),
		cmocka_unit_test(test_failure_without_observer),
		cmocka_unit_test(test_misuse_dies),
		cmocka_unit_test(test_table_check),
		cmocka_unit_test(test_largest_table),
	};
	return lp_test_main(tests, "base/struct/sm");
}
