/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: memory runs out in a client: each allocation fails once, in a life of its own. Whatever
 * comes of it, nothing dies, each request ends once, and the handle serves on (C1). Method: as in
 * faults_test.c; what the daemon of the test asks for does not fail.
 */
#include "base/testing/scarce_test.h"
#include "client/fake_test.h"

#define LARGE     ((5u << 20) + 1u)
#define BYTES     300000u
#define TURNS_MAX 100000
#define LIVES_MIN 20

struct life {
	struct lpi_fake_rig rig;
	uint8_t *data; /* LARGE bytes */
	uint8_t *back;
};

static void turn(struct life *life)
{
	(void)lapis_turn(life->rig.lapis, 0);
	long left = lp_scarce_pause();
	lpi_fake_step(&life->rig.fake, 0);
	lp_scarce_again(left);
}

/* True when it was taken: then it will end. */
static bool submit(struct life *life, struct lapis_request request, struct lpi_fake_ending *ending)
{
	*ending = (struct lpi_fake_ending){0};
	request.size = sizeof(request);
	request.done = lpi_fake_rig_note_ending;
	request.arg = ending;
	int err = lapis_submit(life->rig.lapis, &request, &ending->id);
	if (err < 0)
		lp_test_err(-ENOMEM, err);
	return err == 0;
}

static int ask(struct life *life, struct lapis_request request)
{
	struct lpi_fake_ending ending;
	if (!submit(life, request, &ending))
		return -ENOMEM;
	for (int i = 0; i < TURNS_MAX && ending.ended == 0; i++)
		turn(life);
	assert_int_equal(ending.ended, 1);
	return ending.status;
}

/* Given up after some turns, when it is not known how far it has come. */
static void give_up(struct life *life, struct lapis_request request, int turns)
{
	struct lpi_fake_ending ending;
	if (!submit(life, request, &ending))
		return;
	for (int i = 0; i < turns; i++)
		turn(life);
	lapis_cancel(life->rig.lapis, ending.id);
	(void)lapis_turn(life->rig.lapis, 0);
	life->rig.fake.is_deaf = false;
	/* To cancel takes memory, too. */
	for (int i = 0; i < TURNS_MAX && ending.ended == 0; i++)
		turn(life);
	assert_int_equal(ending.ended, 1);
}

static int swallow(void *arg, uint64_t offset, const void *data, size_t len)
{
	const struct life *life = arg;
	assert_memory_equal(data, life->data + offset, len);
	return 0;
}

static void live(struct life *life)
{
	struct lpi_fake *fake = &life->rig.fake;
	struct lapis_request into = lpi_fake_rig_get_of("b/a", NULL, BYTES);
	into.sink = swallow;
	into.sink_arg = life;
	/* The first connection. */
	(void)ask(life, lpi_fake_rig_ping);
	int err = ask(life, lpi_fake_rig_put_of("b/a", life->data, BYTES));
	/* In the middle of what it receives, which then needs a place of its own. */
	fake->step_bytes = 1000;
	give_up(life, lpi_fake_rig_get_of("b/a", life->back, BYTES), 20);
	fake->step_bytes = 0;
	if (err == 0 && ask(life, into) == 0 &&
	    ask(life, lpi_fake_rig_get_of("b/a", life->back, BYTES)) == 0)
		assert_memory_equal(life->back, life->data, BYTES);
	(void)ask(life, (struct lapis_request){.op = LAPIS_STATUS});
	(void)ask(life, (struct lapis_request){.op = LAPIS_LIST});
	/* In the middle of what it sends, then of an upload. */
	fake->is_deaf = true;
	give_up(life, lpi_fake_rig_put_of("b/b", life->data, LP_WIRE_DATA_MAX), 3);
	give_up(life, lpi_fake_rig_put_of("b/c", life->data, LARGE), 5);
	(void)ask(life, lpi_fake_rig_put_of("b/c", life->data, LARGE));
}

/* True when the allocation failed. */
static bool live_with(struct life *life, long failing)
{
	lpi_fake_init(&life->rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&life->rig);
	/* Or what failed when there was no connection yet is the answer to what comes next, too. */
	options.flags = LAPIS_WAIT;
	lp_scarce_again(failing);
	life->rig.lapis = NULL;
	if (lapis_open(&options, &life->rig.lapis) == 0)
		live(life);
	bool has_failed = lp_scarce_pause() < 0;
	if (life->rig.lapis != NULL)
		lp_test_ok(ask(life, lpi_fake_rig_ping));
	lpi_fake_rig_fini(&life->rig);
	return has_failed;
}

static void test_each_allocation(void **state)
{
	(void)state;
	struct life life = {.data = lpi_fake_rig_pattern(LARGE), .back = malloc(BYTES)};
	long lives = 0;
	assert_non_null(life.back);
	while (live_with(&life, lives))
		lives++;
	assert_true(lives >= LIVES_MIN);
	free(life.back);
	free(life.data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_each_allocation),
	};
	return lp_test_main(tests, "client/memory");
}
