/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever a daemon, a network or a caller does, each request ends once, with an answer that
 * is true: nothing wrong is returned, nothing that may have been done is done again.
 * Method: as in lapis_test.c; the daemon damages, withholds, hangs up. Rule W2.
 */
#include "base/clock.h"
#include "client/fake_test.h"

/* --- What is damaged -------------------------------------------------------------------------- */

/* script: which byte of the next reply is turned round, counted from 1; -1: the last one. */
static void spoil_byte(struct lpi_fake *fake, uint8_t *reply, size_t len)
{
	if (fake->script != 0)
		reply[fake->script > 0 ? (size_t)fake->script - 1 : len - 1] ^= 0x40;
	fake->script = 0;
}

static void test_damaged_data(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t back[5000];
	uint8_t *data = lpi_fake_rig_pattern(5000);
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", data, 5000)));
	rig.fake.spoil = spoil_byte;
	rig.fake.script = -1;
	lp_test_err(-EBADMSG, lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 5000)));
	/* The stream goes on. */
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 5000)));
	assert_memory_equal(back, data, 5000);
	assert_int_equal(rig.fake.conns_ever, 1);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* Every byte of header and meta: the connection is given up, the question asked again. */
static void test_damaged_stream(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis_attrs attrs = {0};
	(void)attrs;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "x", 1)));
	rig.fake.spoil = spoil_byte;
	for (int at = 1; at <= LP_WIRE_HEADER_SIZE + LP_WIRE_ATTRS_SIZE; at += 7) {
		uint32_t conns = rig.fake.conns_ever;
		rig.fake.script = at;
		lp_test_ok(lpi_fake_rig_ask(
			&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/a"}));
		assert_int_equal(rig.fake.conns_ever, conns + 1);
	}
	/* Of a change nobody can say it. */
	rig.fake.script = 1;
	lp_test_err(-LAPIS_EUNKNOWN, lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "y", 1)));
	lpi_fake_rig_fini(&rig);
}

/* Replies that are well sealed and make no sense. script: which. */
static bool answer_nonsense(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	uint8_t meta[LP_WIRE_GOT_SIZE] = {0};
	const struct lp_wire_got got = {.size_bytes = 9, .version_nr = 1};
	struct lpi_fake_request other = *req;
	if (req->header.opcode != LP_WIRE_OP_GET || fake->script == 0)
		return false;
	lp_wire_got_encode(&got, meta);
	struct lp_wire_header header = {.meta_bytes = sizeof(meta), .data_bytes = 9};
	switch (fake->script) {
	case 1: /* a flag of a later version */
		header.flags = 0x80;
		break;
	case 2: /* data that was not asked for */
		header.offset = 4096;
		break;
	case 3: /* more than was asked for */
		header.data_bytes = 11;
		break;
	case 4: /* an answer to nothing */
		other.header.request_id += LP_WIRE_DATA_MAX;
		break;
	case 5: /* an answer to something else */
		other.header.opcode = LP_WIRE_OP_STAT;
		break;
	case 6: /* a meta that is too long */
		header.meta_bytes = sizeof(meta) - 1;
		break;
	default: /* data with an error */
		header.status = EIO;
		break;
	}
	lpi_fake_send(fake, &other, header, meta, (const uint8_t *)"nonsense!!!");
	fake->script = 0;
	return true;
}

static void test_nonsense(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t back[10];
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "sense", 5)));
	rig.fake.hook = answer_nonsense;
	for (int script = 1; script <= 7; script++) {
		uint32_t conns = rig.fake.conns_ever;
		rig.fake.script = script;
		lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 10)));
		assert_memory_equal(back, "sense", 5);
		assert_int_equal(rig.fake.conns_ever, conns + 1);
	}
	lpi_fake_rig_fini(&rig);
}

/* Less than there is, with no checksum that says so. */
static bool answer_short(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	uint8_t meta[LP_WIRE_GOT_SIZE];
	const struct lp_wire_got got = {.size_bytes = 5, .version_nr = 1};
	if (req->header.opcode != LP_WIRE_OP_GET)
		return false;
	lp_wire_got_encode(&got, meta);
	lpi_fake_send(fake, req,
		      (struct lp_wire_header){.meta_bytes = sizeof(meta), .data_bytes = 4}, meta,
		      (const uint8_t *)"sens");
	return true;
}

static void test_short_answer(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t back[10];
	lpi_fake_rig_init(&rig);
	rig.fake.hook = answer_short;
	lp_test_err(-EPROTO, lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 10)));
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 4)));
	lpi_fake_rig_fini(&rig);
}

/* --- Connections that break ------------------------------------------------------------------- */

/* script: how many requests other than hello are answered by closing the connection. */
static bool hang_up(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (fake->script == 0)
		return false;
	fake->script--;
	lpi_fake_drop(req->conn);
	return true;
}

static void test_retries(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "x", 1)));
	rig.fake.hook = hang_up;
	rig.fake.script = 2;
	lp_test_ok(lpi_fake_rig_ask(&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/a"}));
	assert_int_equal(rig.fake.conns_ever, 3);
	/* Not for ever. */
	rig.fake.script = 1000;
	lp_test_err(-ENOTCONN, lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	/* A change is never asked for again. */
	rig.fake.script = 1;
	uint32_t puts = rig.fake.requests[LP_WIRE_OP_PUT];
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/a", "y", 1), &ending);
	lpi_fake_rig_wait_for(&rig, &ending);
	assert_int_equal(ending.status, -LAPIS_EUNKNOWN);
	assert_non_null(strstr(ending.text, "not known"));
	lpi_fake_rig_turns(&rig, 20);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], puts + 1);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	lpi_fake_rig_fini(&rig);
}

/* What had not been sent is done by the next connection, also changes. */
static void test_unsent(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending first;
	struct lpi_fake_ending second;
	lpi_fake_rig_init(&rig);
	rig.fake.credits = 1;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	rig.fake.hook = hang_up;
	rig.fake.script = 1;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/a", "x", 1), &first);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/b", "x", 1), &second);
	lpi_fake_rig_wait_for(&rig, &first);
	lpi_fake_rig_wait_for(&rig, &second);
	assert_int_equal(first.status, -LAPIS_EUNKNOWN);
	lp_test_ok(second.status);
	lpi_fake_rig_fini(&rig);
}

/* The daemon has answered and hung up, and that is noticed when more is to be sent: what it had
 * said counts, and what could not be sent is done by the next connection. */
static void test_answered_before_it_hung_up(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending first;
	struct lpi_fake_ending second;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/a", "x", 1), &first);
	(void)lapis_turn(rig.lapis, 0);
	lpi_fake_step(&rig.fake, 0);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 1);
	assert_int_equal(first.ended, 0);
	lpi_fake_drop_all(&rig.fake);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/b", "x", 1), &second);
	lpi_fake_rig_wait_for(&rig, &first);
	lpi_fake_rig_wait_for(&rig, &second);
	lp_test_ok(first.status);
	lp_test_ok(second.status);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 2);
	assert_int_equal(rig.fake.conns_ever, 2);
	lpi_fake_rig_fini(&rig);
}

/* script: how many requests find that their connection has given way to another one. */
static bool give_way(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (fake->script == 0)
		return false;
	fake->script--;
	req->header.opcode = 0;
	req->header.request_id = 0;
	lpi_fake_error(fake, req, EUSERS, "idle, and user 7 has too many");
	return true;
}

/* What a daemon has not read, since it had ended the connection for want of places, it has not
 * done: it is asked for again, also a change. Not for ever. */
static void test_gave_way(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	rig.fake.hook = give_way;
	rig.fake.script = 2;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "x", 1)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 3);
	assert_int_equal(rig.fake.conns_ever, 3);
	rig.fake.script = 1000000;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/a", "y", 1), &ending);
	lpi_fake_rig_wait_for(&rig, &ending);
	assert_int_equal(ending.status, -EUSERS);
	assert_non_null(strstr(ending.text, "idle, and user 7 has too many"));
	rig.fake.script = 0;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	lpi_fake_rig_fini(&rig);
}

static void go_away(struct lpi_fake *fake)
{
	lpi_fake_drop_all(fake);
	(void)close(fake->listen_fd);
	lp_test_ok(unlink(fake->address + 5));
}

/* Not before there is a daemon. */
static void come_and_answer(struct lpi_fake_rig *rig, struct lpi_fake_ending *ending)
{
	assert_int_equal(ending->ended, 0);
	lpi_fake_listen(&rig->fake);
	lpi_fake_rig_wait_for(rig, ending);
	lp_test_ok(ending->status);
}

static void test_no_daemon(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis *lapis = NULL;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	/* It goes away for good. */
	go_away(&rig.fake);
	struct lpi_fake_ending ending;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &ending);
	while (ending.ended == 0)
		(void)lapis_turn(rig.lapis, 1000);
	assert_int_equal(ending.status, -ENOTCONN);
	assert_non_null(strstr(ending.text, "is lapisd running there?"));
	lapis_close(rig.lapis);
	/* It never was there: at once, and nobody takes it for an object that is not. */
	const struct lapis_options options = lpi_fake_rig_options(&rig);
	lp_test_ok(lapis_open(&options, &lapis));
	lp_test_err(-ENOTCONN, lapis_ping(lapis));
	lapis_close(lapis);
	/* It comes. */
	struct lapis_options waits = options;
	waits.flags = LAPIS_WAIT;
	lp_test_ok(lapis_open(&waits, &rig.lapis));
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &ending);
	for (int i = 0; i < 10; i++)
		(void)lapis_turn(rig.lapis, 1);
	come_and_answer(&rig, &ending);
	lpi_fake_rig_fini(&rig);
}

/* A handle at rest has lost its connection long ago: who asks then has all the time there is for a
 * daemon to come back, also when the last that was asked broke with it. */
static void lose_at_rest(bool with_change)
{
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	lpi_fake_init(&rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&rig);
	options.reconnect_ms = 1000;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	if (with_change) {
		rig.fake.hook = hang_up;
		rig.fake.script = 1;
		lp_test_err(-LAPIS_EUNKNOWN,
			    lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "x", 1)));
	}
	go_away(&rig.fake);
	(void)lapis_turn(rig.lapis, 0);
	const struct timespec pause = {.tv_sec = 1, .tv_nsec = 100 * (long)LP_NS_PER_MS};
	(void)nanosleep(&pause, NULL);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &ending);
	for (int i = 0; i < 5; i++)
		(void)lapis_turn(rig.lapis, 1);
	come_and_answer(&rig, &ending);
	lpi_fake_rig_fini(&rig);
}

static void test_lost_at_rest(void **state)
{
	(void)state;
	lose_at_rest(false);
	lose_at_rest(true);
}

/* Nor is who asks now answered with what another one waited for in vain, long ago. */
static void test_lost_for_long(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	lpi_fake_init(&rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&rig);
	options.reconnect_ms = 1000;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	go_away(&rig.fake);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &ending);
	while (ending.ended == 0)
		(void)lapis_turn(rig.lapis, 1000);
	assert_int_equal(ending.status, -ENOTCONN);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &ending);
	for (int i = 0; i < 5; i++)
		(void)lapis_turn(rig.lapis, 1);
	come_and_answer(&rig, &ending);
	lpi_fake_rig_fini(&rig);
}

static void test_bad_addresses(void **state)
{
	(void)state;
	struct lapis *lapis = NULL;
	static const char *const bad[] = {"x", "unix:", "tcp:", "tcp:host", "tcp::1", "http://a"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		const struct lapis_options options = {.size = sizeof(options), .address = bad[i]};
		lp_test_err(-EINVAL, lapis_open(&options, &lapis));
		assert_non_null(strstr(lapis_error_text(), "unix:PATH"));
	}
	const struct lapis_options flags = {
		.size = sizeof(flags), .address = "unix:x", .flags = 64};
	lp_test_err(-EINVAL, lapis_open(&flags, &lapis));
	assert_null(lapis);
}

static void test_another_store(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	lpi_fake_drop_all(&rig.fake);
	rig.fake.uuid = 8;
	struct lpi_fake_ending ending;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &ending);
	lpi_fake_rig_wait_for(&rig, &ending);
	assert_int_equal(ending.status, -ENOTCONN);
	assert_string_equal(ending.text, "another store answers there now");
	lpi_fake_rig_fini(&rig);
}

/* A get that is interrupted goes on where it was if that is the same object, or begins again. */
static bool hang_up_in_get(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (req->header.opcode != LP_WIRE_OP_GET || fake->script == 0)
		return false;
	fake->script--;
	struct lp_wire_get get;
	lp_wire_get_decode(req->meta, &get);
	const struct lp_wire_got got = {.size_bytes = fake->objects[0].len, .version_nr = 2};
	uint8_t meta[LP_WIRE_GOT_SIZE];
	lp_wire_got_encode(&got, meta);
	lpi_fake_send(fake, req,
		      (struct lp_wire_header){.meta_bytes = sizeof(meta),
					      .data_bytes = 1000,
					      .offset = get.offset,
					      .flags = LP_WIRE_FLAG_MORE},
		      meta, fake->objects[0].data + get.offset);
	lpi_fake_flush(fake, req->conn);
	lpi_fake_drop(req->conn);
	return true;
}

/* Counts what is of the object that was there first. */
static int count_old(void *arg, uint64_t offset, const void *data, size_t len)
{
	size_t *cnt = arg;
	const uint8_t *bytes = data;
	assert_int_equal(offset, *cnt);
	for (size_t i = 0; i < len; i++)
		assert_int_equal(bytes[i], 'n');
	*cnt += len;
	return 0;
}

static void test_interrupted_get(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(3000);
	uint8_t back[3000];
	struct lpi_fake_ending ending;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", data, 3000)));
	rig.fake.hook = hang_up_in_get;
	rig.fake.script = 2;
	assert_int_equal(rig.fake.objects[0].version, 2);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 3000)));
	assert_memory_equal(back, data, 3000);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_GET], 3);
	/* Another object took its name meanwhile, also one whose version is the same: pieces of two
	 * are never put together. */
	rig.fake.script = 1;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_get_of("b/a", back, 3000), &ending);
	for (int i = 0; i < 100 && rig.fake.script > 0; i++)
		lpi_fake_rig_turn(&rig);
	memset(rig.fake.objects[0].data, 'n', 3000);
	lpi_fake_rig_wait_for(&rig, &ending);
	lp_test_ok(ending.status);
	for (int i = 0; i < 3000; i++)
		assert_int_equal(back[i], 'n');
	/* What a sink was given cannot be taken back, and another object of the same size has
	 * another version (rule W3). */
	size_t old_cnt = 0;
	struct lapis_request into = lpi_fake_rig_get_of("b/a", NULL, 3000);
	into.sink = count_old;
	into.sink_arg = &old_cnt;
	rig.fake.script = 1;
	lpi_fake_rig_submit(&rig, into, &ending);
	for (int i = 0; i < 100 && rig.fake.script > 0; i++)
		lpi_fake_rig_turn(&rig);
	memset(rig.fake.objects[0].data, 'm', 3000);
	rig.fake.objects[0].version = 9;
	lpi_fake_rig_wait_for(&rig, &ending);
	assert_int_equal(ending.status, -ECANCELED);
	assert_int_equal(old_cnt, 1000);
	assert_non_null(strstr(ending.text, "changed"));
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* The connection may break at every piece of a long object: what counts is that it goes on. */
static void test_get_in_many_lives(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(10000);
	uint8_t back[10000];
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", data, 10000)));
	rig.fake.hook = hang_up_in_get;
	rig.fake.script = 7;
	struct lapis_request by_number = lpi_fake_rig_get_of(NULL, back, 10000);
	by_number.ino = LPI_FAKE_INO;
	lp_test_ok(lpi_fake_rig_ask(&rig, by_number));
	assert_memory_equal(back, data, 10000);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_GET], 8);
	/* But not for ever without anything new. */
	rig.fake.hook = hang_up;
	rig.fake.script = 1000;
	lp_test_err(-ENOTCONN, lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 10000)));
	/* What begins again, because its name may lead to another object, and comes to the same
	 * piece each time, gets nothing new. */
	uint32_t gets = rig.fake.requests[LP_WIRE_OP_GET];
	rig.fake.hook = hang_up_in_get;
	rig.fake.script = 20;
	lp_test_err(-ENOTCONN, lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 10000)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_GET], gets + 6);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* What was acknowledged before it was durable may be lost with the daemon: sync says so, once. */
static void test_lost_ordered(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis_request put = lpi_fake_rig_put_of("b/a", "x", 1);
	const struct lapis_request sync = {.op = LAPIS_SYNC};
	put.flags = LAPIS_ORDERED;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	lp_test_ok(lpi_fake_rig_ask(&rig, sync));
	lpi_fake_drop_all(&rig.fake);
	lpi_fake_rig_turns(&rig, 3);
	lp_test_ok(lpi_fake_rig_ask(&rig, sync));
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	lpi_fake_drop_all(&rig.fake);
	lpi_fake_rig_turns(&rig, 3);
	lp_test_err(-LAPIS_EUNKNOWN, lpi_fake_rig_ask(&rig, sync));
	lp_test_ok(lpi_fake_rig_ask(&rig, sync));
	lpi_fake_rig_fini(&rig);
}

/* --- Time and cancellation -------------------------------------------------------------------- */

static bool say_busy(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (fake->script == 0)
		return false;
	fake->script--;
	lpi_fake_error(fake, req, EAGAIN, "no room");
	return true;
}

static void test_busy(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	lpi_fake_rig_init(&rig);
	rig.fake.hook = say_busy;
	rig.fake.script = 2;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "x", 1)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 3);
	rig.fake.script = 1000;
	struct lapis_request put = lpi_fake_rig_put_of("b/a", "x", 1);
	put.timeout_ms = 50;
	lp_test_err(-EAGAIN, lpi_fake_rig_ask(&rig, put));
	lpi_fake_rig_fini(&rig);
}

/* script: how often the daemon has no room when it has sent the first part of an answer. */
static bool say_busy_in_answer(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (fake->script > 0)
		lpi_fake_value(fake, req, "{\"a\":", LP_WIRE_FLAG_MORE);
	return say_busy(fake, req);
}

/* An answer is what came since it was asked for last. */
static void test_busy_in_answer(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	char *text = NULL;
	lpi_fake_rig_init(&rig);
	rig.fake.hook = say_busy_in_answer;
	rig.fake.script = 2;
	lpi_fake_start(&rig.fake);
	lp_test_ok(lapis_admin(rig.lapis, LAPIS_STATUS, NULL, &text));
	lpi_fake_stop(&rig.fake);
	assert_string_equal(text, "{\"a\":1}");
	free(text);
	lpi_fake_rig_fini(&rig);
}

/* script: as many times there is no room, then the connection breaks, once. */
static bool say_busy_then_hang_up(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (fake->script != 1)
		return say_busy(fake, req);
	return hang_up(fake, req);
}

/* To have no room is not to break. */
static void test_busy_then_broken(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	lpi_fake_rig_init(&rig);
	rig.fake.hook = say_busy_then_hang_up;
	rig.fake.script = 6;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PING], 7);
	lpi_fake_rig_fini(&rig);
}

static void test_time_limit(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis_request slow_ping = lpi_fake_rig_ping;
	struct lapis_request put = lpi_fake_rig_put_of("b/a", "x", 1);
	slow_ping.timeout_ms = 30;
	put.timeout_ms = 30;
	lpi_fake_rig_init(&rig);
	rig.fake.credits = 2;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	rig.fake.holds = true;
	lp_test_err(-ETIMEDOUT, lpi_fake_rig_ask(&rig, slow_ping));
	lp_test_err(-LAPIS_EUNKNOWN, lpi_fake_rig_ask(&rig, put));
	/* No credit is left, so this one is not sent. */
	lp_test_err(-ETIMEDOUT, lpi_fake_rig_ask(&rig, put));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 1);
	/* The replies that come at last belong to nobody. */
	lpi_fake_release(&rig.fake);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	lpi_fake_rig_fini(&rig);
}

static void sleep_ms(long ms)
{
	const struct timespec pause = {.tv_nsec = ms * (long)LP_NS_PER_MS};
	(void)nanosleep(&pause, NULL);
}

/* script: how often the daemon says that a copy goes on. All of it takes longer than the client
 * waits for an answer. */
static bool copy_slowly(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	const struct lp_wire_attrs attrs = {.ino = 7, .type = 1};
	uint8_t meta[LP_WIRE_ATTRS_SIZE];
	if (req->header.opcode != LP_WIRE_OP_COPY)
		return false;
	for (int i = 0; i < fake->script; i++) {
		sleep_ms(250);
		lpi_fake_send(fake, req, (struct lp_wire_header){.flags = LP_WIRE_FLAG_MORE}, NULL,
			      NULL);
		lpi_fake_flush(fake, req->conn);
	}
	lp_wire_attrs_encode(&attrs, meta);
	lpi_fake_plain(fake, req, meta, sizeof(meta));
	return true;
}

static void test_goes_on(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis_request copy = {
		.op = LAPIS_COPY, .path = "b/a", .to_path = "b/b", .timeout_ms = 1500};
	struct lapis_result result = {.size = sizeof(result)};
	copy.size = sizeof(copy);
	lpi_fake_rig_init(&rig);
	rig.fake.hook = copy_slowly;
	rig.fake.script = 8;
	lpi_fake_start(&rig.fake);
	lp_test_ok(lapis_call(rig.lapis, &copy, &result));
	assert_int_equal(result.attrs.ino, 7);
	lapis_result_fini(&result);
	lpi_fake_stop(&rig.fake);
	lpi_fake_rig_fini(&rig);
}

/* What came while nobody ran the handle was in time. */
static void test_late_caller(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	struct lapis_request put = lpi_fake_rig_put_of("b/a", "x", 1);
	put.timeout_ms = 50;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	lpi_fake_rig_submit(&rig, put, &ending);
	(void)lapis_turn(rig.lapis, 0);
	lpi_fake_step(&rig.fake, 0);
	sleep_ms(100);
	(void)lapis_turn(rig.lapis, 0);
	assert_int_equal(ending.ended, 1);
	lp_test_ok(ending.status);
	lpi_fake_rig_fini(&rig);
}

static int64_t give_nothing_much(void *arg, void *buf, size_t len)
{
	(void)arg;
	memset(buf, 1, LP_MIN(len, (size_t)100));
	return (int64_t)LP_MIN(len, (size_t)100);
}

/* It has stopped reading in the middle of a message: a put whose source waits for the rest of that
 * ends, too. */
static void test_deaf_daemon(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LP_WIRE_DATA_MAX);
	struct lapis_request put = lpi_fake_rig_put_of("b/a", data, LP_WIRE_DATA_MAX);
	struct lapis_request from_source = {
		.op = LAPIS_PUT, .path = "b/b", .source = give_nothing_much, .timeout_ms = 50};
	put.timeout_ms = 50;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	rig.fake.is_deaf = true;
	lp_test_err(-LAPIS_EUNKNOWN, lpi_fake_rig_ask(&rig, put));
	lp_test_err(-ETIMEDOUT, lpi_fake_rig_ask(&rig, from_source));
	rig.fake.is_deaf = false;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	free(data);
	lpi_fake_rig_fini(&rig);
}

static void sleep_in_callback(void *arg, const struct lapis_result *result)
{
	(void)arg;
	(void)result;
	sleep_ms(100);
}

/* What a callback takes is not the daemon's, either: what was sent in the same turn has its time.
 */
static void test_slow_callback(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	struct lapis_request put = lpi_fake_rig_put_of("b/a", "x", 1);
	put.timeout_ms = 50;
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	const struct lapis_request slow = {
		.size = sizeof(slow), .op = LAPIS_PING, .done = sleep_in_callback};
	lp_test_ok(lapis_submit(rig.lapis, &slow, NULL));
	(void)lapis_turn(rig.lapis, 0);
	lpi_fake_step(&rig.fake, 0);
	lpi_fake_rig_submit(&rig, put, &ending);
	(void)lapis_turn(rig.lapis, 0);
	(void)lapis_turn(rig.lapis, 0);
	assert_int_equal(ending.ended, 0);
	lpi_fake_rig_wait_for(&rig, &ending);
	lp_test_ok(ending.status);
	lpi_fake_rig_fini(&rig);
}

/* Each has its own: those with the handle's, and others with more or less of it. */
static void test_time_limits(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending usual[2];
	struct lpi_fake_ending less;
	struct lpi_fake_ending more;
	struct lapis_request hasty = lpi_fake_rig_ping;
	struct lapis_request patient = lpi_fake_rig_ping;
	lpi_fake_init(&rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&rig);
	options.timeout_ms = 60;
	hasty.timeout_ms = 20;
	patient.timeout_ms = 60000;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	lp_test_ok(lpi_fake_rig_ask(&rig, patient));
	rig.fake.holds = true;
	lpi_fake_rig_submit(&rig, patient, &more);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &usual[0]);
	lpi_fake_rig_submit(&rig, hasty, &less);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &usual[1]);
	lpi_fake_rig_wait_for(&rig, &less);
	lp_test_err(-ETIMEDOUT, less.status);
	lpi_fake_rig_wait_for(&rig, &usual[0]);
	lpi_fake_rig_wait_for(&rig, &usual[1]);
	lp_test_err(-ETIMEDOUT, usual[0].status);
	lp_test_err(-ETIMEDOUT, usual[1].status);
	assert_int_equal(more.ended, 0);
	lpi_fake_release(&rig.fake);
	lpi_fake_rig_wait_for(&rig, &more);
	lp_test_ok(more.status);
	lpi_fake_rig_fini(&rig);
}

static void test_cancel(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending endings[4];
	uint8_t back[100];
	lpi_fake_rig_init(&rig);
	rig.fake.credits = 3;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", "x", 1)));
	rig.fake.holds = true;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/b", "x", 1), &endings[0]);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_get_of("b/a", back, 100), &endings[1]);
	lpi_fake_rig_submit(&rig, (struct lapis_request){.op = LAPIS_OPEN, .path = "b/a"},
			    &endings[2]);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/c", "x", 1), &endings[3]);
	lpi_fake_rig_turns(&rig, 3);
	for (int i = 0; i < 4; i++)
		lapis_cancel(rig.lapis, endings[i].id);
	lapis_cancel(rig.lapis, 12345);
	lpi_fake_rig_turns(&rig, 2);
	static const int want[] = {-LAPIS_EUNKNOWN, -ECANCELED, -ECANCELED, -ECANCELED};
	for (int i = 0; i < 4; i++) {
		assert_int_equal(endings[i].ended, 1);
		assert_int_equal(endings[i].status, want[i]);
	}
	lpi_fake_release(&rig.fake);
	lpi_fake_rig_turns(&rig, 10);
	/* What was opened for nobody is closed. */
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_CLOSE], 1);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 2);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	lpi_fake_rig_fini(&rig);
}

/* In the middle of a reply's data: the caller's buffer is his again, the stream goes on. */
static void test_cancel_in_data(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	uint8_t *data = lpi_fake_rig_pattern(300000);
	uint8_t *back = calloc(1, 300000);
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", data, 300000)));
	rig.fake.step_bytes = 1000;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_get_of("b/a", back, 300000), &ending);
	lpi_fake_rig_turns(&rig, 20);
	lapis_cancel(rig.lapis, ending.id);
	(void)lapis_turn(rig.lapis, 0);
	assert_int_equal(ending.ended, 1);
	assert_int_equal(ending.status, -ECANCELED);
	free(back);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* In the middle of being sent: the rest is sent from memory of the library. The fake checks the
 * checksums of what comes. */
static void test_cancel_in_sending(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	uint8_t *data = lpi_fake_rig_pattern(LP_WIRE_DATA_MAX);
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	rig.fake.is_deaf = true;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/a", data, LP_WIRE_DATA_MAX), &ending);
	lpi_fake_rig_turns(&rig, 3);
	lapis_cancel(rig.lapis, ending.id);
	(void)lapis_turn(rig.lapis, 0);
	assert_int_equal(ending.ended, 1);
	assert_int_equal(ending.status, -LAPIS_EUNKNOWN);
	memset(data, 0, LP_WIRE_DATA_MAX);
	free(data);
	rig.fake.is_deaf = false;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 1);
	assert_int_equal(rig.fake.conns_ever, 1);
	lpi_fake_rig_fini(&rig);
}

static void test_close_ends_all(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending endings[3];
	uint8_t *data = lpi_fake_rig_pattern(5u << 20);
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	rig.fake.holds = true;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &endings[0]);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/a", "x", 1), &endings[1]);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/b", data, 5u << 20), &endings[2]);
	lpi_fake_rig_turns(&rig, 2);
	lpi_fake_rig_fini(&rig);
	assert_int_equal(endings[0].ended + endings[1].ended + endings[2].ended, 3);
	assert_int_equal(endings[0].status, -ECANCELED);
	assert_int_equal(endings[1].status, -LAPIS_EUNKNOWN);
	assert_int_equal(endings[2].status, -ECANCELED);
	free(data);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damaged_data),
		cmocka_unit_test(test_damaged_stream),
		cmocka_unit_test(test_nonsense),
		cmocka_unit_test(test_short_answer),
		cmocka_unit_test(test_retries),
		cmocka_unit_test(test_unsent),
		cmocka_unit_test(test_answered_before_it_hung_up),
		cmocka_unit_test(test_gave_way),
		cmocka_unit_test(test_no_daemon),
		cmocka_unit_test(test_lost_at_rest),
		cmocka_unit_test(test_lost_for_long),
		cmocka_unit_test(test_bad_addresses),
		cmocka_unit_test(test_another_store),
		cmocka_unit_test(test_interrupted_get),
		cmocka_unit_test(test_get_in_many_lives),
		cmocka_unit_test(test_lost_ordered),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_busy_in_answer),
		cmocka_unit_test(test_busy_then_broken),
		cmocka_unit_test(test_deaf_daemon),
		cmocka_unit_test(test_time_limit),
		cmocka_unit_test(test_goes_on),
		cmocka_unit_test(test_late_caller),
		cmocka_unit_test(test_slow_callback),
		cmocka_unit_test(test_time_limits),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_cancel_in_data),
		cmocka_unit_test(test_cancel_in_sending),
		cmocka_unit_test(test_close_ends_all),
	};
	return lp_test_main(tests, "client/faults");
}
