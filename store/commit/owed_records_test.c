/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: up to where the index is said to be whole is never further than it is (rule L9), and comes
 * to be as far as it is; `applied` is read as it was written, and nothing else is taken for it.
 * Method: an owner who says when he has paid all, and an index over files in memory. */
#include "store/index/kv_rig_test.h"

#include "store/commit/owed_records.h"
#include "store/record/keys.h"

static struct {
	struct lp_test_kv kv;
	struct lp_payments payments;
	struct lp_owed owed;
	uint32_t begin_cnt;
	uint32_t pays_left;
} t;

static void begin(struct lp_owed *owed)
{
	assert_ptr_equal(owed, &t.owed);
	t.begin_cnt++;
}

static bool pay(struct lp_owed *owed, struct lp_payments *payments)
{
	assert_ptr_equal(owed, &t.owed);
	assert_true(t.pays_left > 0);
	lp_payments_put(payments, lp_test_text("I"), lp_test_text("paid"));
	return --t.pays_left == 0;
}

static void setup(uint32_t pays)
{
	memset(&t, 0, sizeof(t));
	lp_test_kv_init(&t.kv, true, 1);
	lp_test_kv_open(&t.kv);
	lp_test_ok(lp_payments_init(&t.payments, 4));
	t.owed = (struct lp_owed){.begin = begin, .pay = pay};
	t.payments.owed = &t.owed;
	t.pays_left = pays;
}

static void teardown(void)
{
	lp_payments_fini(&t.payments);
	lp_test_kv_fini(&t.kv);
}

/* What the index says; 0: nothing. */
static uint64_t whole_of_index(void)
{
	struct lp_kv_value value;
	struct lp_key key;
	uint64_t seq = 0;
	uint64_t whole_seq = 0;
	lp_key_of_store(&key, "applied");
	int err = lp_kv_get(t.kv.kv, (struct lp_kv_bytes){key.bytes, key.len}, &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	lp_test_ok(lp_applied_decode(value.bytes, &seq, &whole_seq));
	lp_kv_value_release(&value);
	return whole_seq;
}

static void step(uint64_t inserted_seq, bool is_idle)
{
	lp_test_ok(lp_payments_build(&t.payments, inserted_seq, is_idle));
	if (t.payments.is_built)
		lp_test_ok(lp_payments_write(&t.payments, t.kv.kv));
}

static void test_nothing_is_owed(void **state)
{
	(void)state;
	setup(0);
	assert_int_equal(lp_payments_seal(&t.payments, 5), 5);
	lp_payments_group_inserted(&t.payments, 5);
	assert_false(lp_payments_are_busy(&t.payments));
	t.payments.owed = NULL;
	assert_int_equal(lp_payments_seal(&t.payments, 6), 6);
	lp_payments_want(&t.payments); /* by nobody */
	assert_false(lp_payments_are_busy(&t.payments));
	teardown();
}

/* Rule L9: neither while something of it is owed, nor while a group collects, in which there may be
 * what is newer than all that has been paid. */
static void test_whole_when_paid(void **state)
{
	(void)state;
	setup(2);
	t.owed.cnt = 1;
	assert_int_equal(lp_payments_seal(&t.payments, 5), 4);
	lp_payments_group_inserted(&t.payments, 4);
	lp_payments_want(&t.payments);
	assert_true(lp_payments_are_busy(&t.payments));
	step(5, true);
	assert_int_equal(t.begin_cnt, 1);
	assert_int_equal(t.payments.whole_seq, 4);
	assert_int_equal(whole_of_index(), 0);
	assert_int_equal(lp_payments_seal(&t.payments, 6), 4);
	lp_payments_group_inserted(&t.payments, 4);
	step(6, false);
	assert_false(lp_payments_are_busy(&t.payments));
	assert_int_equal(t.payments.whole_seq, 4);
	assert_int_equal(whole_of_index(), 0);
	/* With the group that collected: up to where it was when the payment began. */
	assert_int_equal(lp_payments_seal(&t.payments, 7), 5);
	lp_payments_group_inserted(&t.payments, 5);
	assert_int_equal(t.payments.whole_seq, 5);
	lp_test_kv_expect(&t.kv, "I", "paid");
	teardown();
}

static void test_declared_while_idle(void **state)
{
	(void)state;
	setup(1);
	t.owed.cnt = 1;
	lp_payments_want(&t.payments);
	step(9, false);
	assert_int_equal(whole_of_index(), 0);
	lp_payments_want(&t.payments); /* that is on its way */
	assert_false(lp_payments_are_busy(&t.payments));
	step(9, true);
	assert_int_equal(whole_of_index(), 9);
	assert_int_equal(t.payments.whole_seq, 9);
	step(9, true); /* nothing more to say */
	assert_int_equal(t.begin_cnt, 1);
	teardown();
}

static void test_applied(void **state)
{
	(void)state;
	uint8_t bytes[LP_APPLIED_BYTES_MAX + 1] = {0};
	uint64_t seq = 0;
	uint64_t whole_seq = 0;
	assert_int_equal(lp_applied_encode(77, 77, bytes), 8); /* as it always was */
	lp_test_ok(lp_applied_decode((struct lp_kv_bytes){bytes, 8}, &seq, &whole_seq));
	assert_true(seq == 77 && whole_seq == 77);
	assert_int_equal(lp_applied_encode(77, 5, bytes), 16);
	lp_test_ok(lp_applied_decode((struct lp_kv_bytes){bytes, 16}, &seq, &whole_seq));
	assert_true(seq == 77 && whole_seq == 5);
	for (size_t len = 0; len <= sizeof(bytes); len++) {
		if (len == 8 || len == 16)
			continue;
		lp_test_err(-EUCLEAN,
			    lp_applied_decode((struct lp_kv_bytes){bytes, len}, &seq, &whole_seq));
	}
	bytes[8] = 78; /* more than there is */
	lp_test_err(-EUCLEAN, lp_applied_decode((struct lp_kv_bytes){bytes, 16}, &seq, &whole_seq));
}

static void test_what_may_be_owed(void **state)
{
	(void)state;
	assert_false(lp_key_may_be_owed(lp_test_text("")));
	for (const char *key = "FIRX"; *key != 0; key++)
		assert_true(lp_key_may_be_owed((struct lp_kv_bytes){key, 1}));
	for (const char *key = "ADLOSTU"; *key != 0; key++)
		assert_false(lp_key_may_be_owed((struct lp_kv_bytes){key, 1}));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_owed),     cmocka_unit_test(test_whole_when_paid),
		cmocka_unit_test(test_declared_while_idle), cmocka_unit_test(test_applied),
		cmocka_unit_test(test_what_may_be_owed),
	};
	return lp_test_main(tests, "store/commit/owed_records");
}
