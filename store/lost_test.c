/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: in place of a store that does not open each operation is -EIO, told later in the turn, and
 * its health says why. Method: one of each kind of question and a change, on a reactor that is
 * turned. */
#include "base/testing/test.h"

#include "base/loop/reactor.h"
#include "store/store.h"

static int told_cnt;

static void told(struct lp_store_op *op)
{
	told_cnt++;
	assert_int_equal(op->result, -EIO);
}

static void submit(struct lp_reactor *reactor, struct lp_store *store, struct lp_store_op *op)
{
	int before = told_cnt;
	op->complete = told;
	lp_store_submit(store, op);
	assert_int_equal(told_cnt, before);
	while (told_cnt == before)
		(void)lp_reactor_turn(reactor, false);
}

static void test_refuses_all(void **state)
{
	const struct lp_reactor_options of_reactor = {.name = "test"};
	struct lp_reactor *reactor = NULL;
	struct lp_store *store = NULL;
	struct lp_store_health health;
	(void)state;
	lp_test_ok(lp_reactor_new(&of_reactor, &reactor));
	lp_test_ok(lp_reactor_start(reactor));
	const struct lp_store_options options = {.reactor = reactor, .shard_idx = 3};
	lp_test_ok(lp_store_open_lost(&options, -EBADMSG, "its log is gone", &store));
	lp_store_read_health(store, &health);
	assert_int_equal(health.state, LP_STORE_DEAD);
	assert_int_equal(health.error, -EBADMSG);
	assert_string_equal(health.reason, "its log is gone");
	struct lp_store_op stat = {.opcode = LP_STORE_STAT, .stat = {.ino = {7}}};
	submit(reactor, store, &stat);
	struct lp_store_op lookup = {.opcode = LP_STORE_LOOKUP,
				     .lookup = {.dir = {1}, .name = {"a", 1}}};
	submit(reactor, store, &lookup);
	struct lp_store_op read = {.opcode = LP_STORE_READ, .read = {.ino = {7}, .length = 4096}};
	submit(reactor, store, &read);
	const struct lp_change change = {.type = LP_CHANGE_REMOVE, .ino = {7}};
	struct lp_store_op txn = {.opcode = LP_STORE_TXN,
				  .txn = {.changes = &change, .change_cnt = 1}};
	submit(reactor, store, &txn);
	struct lp_store_op sync = {.opcode = LP_STORE_SYNC};
	submit(reactor, store, &sync);
	assert_int_equal(lp_ino_shard(lp_store_new_ino(store)), 3);
	lp_test_ok(lp_store_close(store, false));
	lp_reactor_free(reactor);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refuses_all),
	};
	return lp_test_main(tests, "store/lost");
}
