/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a put that came to nothing leaves no upload behind, however far it had come. Method: the
 * scripted daemon, which keeps what was not given up. */
#include "client/fake_test.h"

#define LARGE (6u << 20)

static int object_cnt(const struct lpi_fake *fake)
{
	int cnt = 0;
	for (int i = 0; i < LPI_FAKE_OBJECTS; i++)
		cnt += fake->objects[i].is_used ? 1 : 0;
	return cnt;
}

/* The daemon keeps the upload of a commit that it refused: it has to be told that nobody wants it.
 */
static void test_refused_commit(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	struct lapis_request put = lpi_fake_rig_put_of("b/large", data, LARGE);
	put.condition = LAPIS_IF_ABSENT;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	lp_test_err(-EEXIST, lpi_fake_rig_ask(&rig, put));
	lpi_fake_rig_turns(&rig, 5);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_COMMIT], 2);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_ABORT], 1);
	assert_int_equal(object_cnt(&rig.fake), 1);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* Holds all answers from this request on. */
static bool hold_from(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (fake->script == req->header.opcode)
		fake->holds = true;
	return false;
}

/* A put is given up while its pieces, or its commit, are under way, and the daemon has no credit to
 * give for longer than anybody waits for an answer: when it has, it is told that nobody wants the
 * upload. A commit that was done all the same has left none. */
static void give_up(int opcode, bool is_refused, uint32_t aborts)
{
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	struct lapis_request put = lpi_fake_rig_put_of("b/large", data, LARGE);
	lpi_fake_rig_init(&rig);
	lapis_close(rig.lapis);
	rig.fake.credits = 2;
	struct lapis_options options = lpi_fake_rig_options(&rig);
	options.timeout_ms = 40;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	put.timeout_ms = 60000;
	if (is_refused)
		lp_test_ok(lpi_fake_rig_ask(&rig, put));
	put.condition = LAPIS_IF_ABSENT;
	rig.fake.requests[opcode] = 0;
	rig.fake.hook = hold_from;
	rig.fake.script = opcode;
	lpi_fake_rig_submit(&rig, put, &ending);
	for (int i = 0; i < 10000 && !rig.fake.holds; i++)
		lpi_fake_rig_turn(&rig);
	assert_int_equal(rig.fake.requests[opcode], 1);
	lpi_fake_rig_turns(&rig, 5);
	lapis_cancel(rig.lapis, ending.id);
	lpi_fake_rig_wait_for(&rig, &ending);
	lp_test_err(opcode == LP_WIRE_OP_COMMIT ? -LAPIS_EUNKNOWN : -ECANCELED, ending.status);
	for (int i = 0; i < 10; i++) {
		(void)usleep(10000);
		lpi_fake_rig_turn(&rig);
	}
	rig.fake.script = 0;
	lpi_fake_release(&rig.fake);
	lpi_fake_rig_turns(&rig, 20);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_ABORT], aborts);
	assert_int_equal(object_cnt(&rig.fake), is_refused || aborts == 0 ? 1 : 0);
	free(data);
	lpi_fake_rig_fini(&rig);
}

static void test_given_up(void **state)
{
	(void)state;
	give_up(LP_WIRE_OP_UPLOAD, false, 1);
	give_up(LP_WIRE_OP_WRITE, false, 1);
	give_up(LP_WIRE_OP_COMMIT, true, 1);
	give_up(LP_WIRE_OP_COMMIT, false, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_commit),
		cmocka_unit_test(test_given_up),
	};
	return lp_test_main(tests, "client/upload");
}
