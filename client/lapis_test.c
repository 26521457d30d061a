/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the client says is the protocol, what it gets is what the daemon said, and whatever a
 * daemon, a network or a caller does, each request ends once, with an answer that is true.
 * Method: a daemon of a few objects (fake_test.h) on a unix socket, run by the test itself in
 * between turns of the client, so that each order of events is one that the test chose; for
 * functions that wait, by a thread. Rules W2 (checksums from end to end), W3 (a put is a whole).
 */
#include "client/fake_test.h"

struct rig {
	struct lpi_fake fake;
	struct lapis *lapis;
};

static struct lapis_options rig_options(const struct rig *rig)
{
	return (struct lapis_options){.size = sizeof(struct lapis_options),
				      .address = rig->fake.address,
				      .name = "test",
				      .timeout_ms = 5000,
				      .reconnect_ms = 2000};
}

static void rig_init(struct rig *rig)
{
	lpi_fake_init(&rig->fake);
	const struct lapis_options options = rig_options(rig);
	lp_test_ok(lapis_open(&options, &rig->lapis));
}

static void rig_fini(struct rig *rig)
{
	lapis_close(rig->lapis);
	lpi_fake_fini(&rig->fake);
}

/* What is known of one request. */
struct ending {
	int ended; /* how often */
	int status;
	uint64_t id;
	uint64_t data_bytes;
	uint64_t offset;
	char text[320];
};

static void note_ending(void *arg, const struct lapis_result *result)
{
	struct ending *ending = arg;
	ending->ended++;
	ending->status = result->status;
	ending->data_bytes = result->data_bytes;
	ending->offset = result->offset;
	(void)snprintf(ending->text, sizeof(ending->text), "%s", result->text);
}

static void submit(struct rig *rig, struct lapis_request request, struct ending *ending)
{
	*ending = (struct ending){0};
	request.size = sizeof(request);
	request.done = note_ending;
	request.arg = ending;
	lp_test_ok(lapis_submit(rig->lapis, &request, &ending->id));
}

static void turn(struct rig *rig)
{
	(void)lapis_turn(rig->lapis, 0);
	lpi_fake_step(&rig->fake, 0);
	(void)lapis_turn(rig->lapis, 0);
}

static void turns(struct rig *rig, int cnt)
{
	for (int i = 0; i < cnt; i++)
		turn(rig);
}

/* Both go on until it has ended. */
static void wait_for(struct rig *rig, const struct ending *ending)
{
	for (int i = 0; i < 200000 && ending->ended == 0; i++) {
		(void)lapis_turn(rig->lapis, 0);
		lpi_fake_step(&rig->fake, i > 1000 ? 1 : 0);
	}
	assert_int_equal(ending->ended, 1);
}

static int ask(struct rig *rig, struct lapis_request request)
{
	struct ending ending;
	submit(rig, request, &ending);
	wait_for(rig, &ending);
	return ending.status;
}

static struct lapis_request put_of(const char *key, const void *data, size_t len)
{
	return (struct lapis_request){
		.op = LAPIS_PUT, .path = key, .data = data, .data_bytes = len};
}

static struct lapis_request get_of(const char *key, void *buf, size_t len)
{
	return (struct lapis_request){
		.op = LAPIS_GET, .path = key, .length = len, .buf = buf, .buf_bytes = len};
}

static const struct lapis_request ping = {.op = LAPIS_PING};

static uint8_t *pattern(size_t len)
{
	uint8_t *data = malloc(len);
	assert_non_null(data);
	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(i * 31 + (i >> 12) * 7 + (i >> 20));
	return data;
}

static struct lapis_stats stats_of(const struct rig *rig)
{
	struct lapis_stats stats = {.size = sizeof(stats)};
	lapis_read_stats(rig->lapis, &stats);
	return stats;
}

/* --- What works ------------------------------------------------------------------------------- */

static void check_blocking(struct lapis *lapis)
{
	struct lapis_attrs attrs;
	uint8_t *data = pattern(10000);
	uint8_t back[10001];
	size_t len = 0;
	char *text = NULL;
	struct lapis_file *file = NULL;
	uint64_t offset = 0;
	lp_test_ok(lapis_ping(lapis));
	lp_test_ok(lapis_put(lapis, "b/a", data, 10000, NULL, &attrs));
	assert_int_equal(attrs.size_bytes, 10000);
	lp_test_ok(lapis_get(lapis, "b/a", 0, back, sizeof(back), &len));
	assert_int_equal(len, 10000);
	assert_memory_equal(back, data, 10000);
	lp_test_ok(lapis_get(lapis, "b/a", 4095, back, 2, &len));
	assert_memory_equal(back, data + 4095, 2);
	const struct lapis_put_options options = {.size = sizeof(options),
						  .condition = LAPIS_IF_ABSENT};
	lp_test_err(-EEXIST, lapis_put(lapis, "b/a", data, 1, &options, NULL));
	assert_string_equal(lapis_error_text(), "there is one already");
	lp_test_err(-ENOENT, lapis_stat(lapis, "b/none", &attrs));
	lp_test_ok(lapis_open_file(lapis, "b/a", &file));
	lp_test_ok(lapis_append(file, "xyz", 3, &offset));
	assert_int_equal(offset, 10000);
	assert_int_equal(lapis_pread(file, back, 4, 9999), 4);
	lp_test_ok(lapis_pwrite(file, data, 5000, 4000, 0));
	assert_int_equal(lapis_pread(file, back, 5000, 4000), 5000);
	assert_memory_equal(back, data, 5000);
	lp_test_ok(lapis_close_file(file));
	assert_int_equal(lapis_xattr_get(lapis, "b/a", "user.x", back, 0), 5);
	lp_test_err(-ERANGE, lapis_xattr_get(lapis, "b/a", "user.x", back, 4));
	assert_int_equal(lapis_xattr_get(lapis, "b/a", "user.x", back, 5), 5);
	assert_memory_equal(back, "value", 5);
	lp_test_ok(lapis_admin(lapis, LAPIS_STATUS, NULL, &text));
	assert_string_equal(text, "{\"a\":1}");
	free(text);
	lp_test_err(-ENOSYS, lapis_symlink(lapis, "to", "b/link"));
	assert_string_equal(lapis_error_text(), "not here");
	lp_test_ok(lapis_delete(lapis, "b/a"));
	lp_test_ok(lapis_sync(lapis));
	free(data);
}

static void test_blocking(void **state)
{
	(void)state;
	for (uint32_t flags = 0; flags <= LAPIS_THREAD; flags++) {
		struct rig rig;
		lpi_fake_init(&rig.fake);
		lpi_fake_start(&rig.fake);
		struct lapis_options options = rig_options(&rig);
		options.flags = flags;
		lp_test_ok(lapis_open(&options, &rig.lapis));
		check_blocking(rig.lapis);
		lapis_close(rig.lapis);
		lpi_fake_stop(&rig.fake);
		lpi_fake_fini(&rig.fake);
	}
}

static void *many_calls(void *arg)
{
	struct lapis *lapis = arg;
	for (int i = 0; i < 50; i++) {
		if (lapis_ping(lapis) < 0)
			return lapis;
	}
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	struct rig rig;
	pthread_t threads[4];
	lpi_fake_init(&rig.fake);
	lpi_fake_start(&rig.fake);
	struct lapis_options options = rig_options(&rig);
	options.flags = LAPIS_THREAD;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	for (size_t i = 0; i < LP_ARRAY_SIZE(threads); i++)
		assert_int_equal(pthread_create(&threads[i], NULL, many_calls, rig.lapis), 0);
	for (size_t i = 0; i < LP_ARRAY_SIZE(threads); i++) {
		void *failed = NULL;
		assert_int_equal(pthread_join(threads[i], &failed), 0);
		assert_null(failed);
	}
	lp_test_err(-EBUSY, lapis_turn(rig.lapis, 0));
	lapis_close(rig.lapis);
	lpi_fake_stop(&rig.fake);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PING], 200);
	lpi_fake_fini(&rig.fake);
}

static void test_every_byte(void **state)
{
	(void)state;
	struct rig rig;
	uint8_t *data = pattern(9000);
	uint8_t back[9000];
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/a", data, 9000)));
	rig.fake.step_bytes = 1;
	rig.fake.piece_max = 4000;
	lp_test_ok(ask(&rig, get_of("b/a", back, 9000)));
	assert_memory_equal(back, data, 9000);
	lp_test_err(-ENOENT, ask(&rig, get_of("b/none", back, 9000)));
	free(data);
	rig_fini(&rig);
}

static void test_batches_out_of_order(void **state)
{
	(void)state;
	struct rig rig;
	struct ending endings[32];
	uint8_t back[32][8];
	rig_init(&rig);
	for (int i = 0; i < 32; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%02d", i);
		lp_test_ok(ask(&rig, put_of(key, key, 4)));
	}
	struct lapis_stats before = stats_of(&rig);
	rig.fake.holds = true;
	for (int i = 0; i < 32; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%02d", i);
		submit(&rig, get_of(key, back[i], 8), &endings[i]);
	}
	turns(&rig, 3);
	lpi_fake_release(&rig.fake);
	wait_for(&rig, &endings[0]);
	for (int i = 0; i < 32; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%02d", i);
		assert_int_equal(endings[i].ended, 1);
		lp_test_ok(endings[i].status);
		assert_int_equal(endings[i].data_bytes, 4);
		assert_memory_equal(back[i], key, 4);
	}
	struct lapis_stats after = stats_of(&rig);
	assert_int_equal(after.messages_sent - before.messages_sent, 32);
	assert_int_equal(after.sends - before.sends, 1);
	assert_int_equal(after.receives - before.receives, 1);
	rig_fini(&rig);
}

static void test_credits(void **state)
{
	(void)state;
	struct rig rig;
	struct ending endings[10];
	uint8_t *data = pattern(1000);
	rig_init(&rig);
	rig.fake.credits = 3;
	rig.fake.credit_bytes = 2000;
	rig.fake.holds = true;
	for (int i = 0; i < 10; i++)
		submit(&rig, ping, &endings[i]);
	turns(&rig, 6);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PING], 3);
	lpi_fake_release(&rig.fake);
	for (int i = 0; i < 10; i++)
		wait_for(&rig, &endings[i]);
	rig.fake.holds = true;
	for (int i = 0; i < 3; i++)
		submit(&rig, put_of("b/a", data, 1000), &endings[i]);
	turns(&rig, 4);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 2);
	lpi_fake_release(&rig.fake);
	wait_for(&rig, &endings[2]);
	/* One that is larger than all of them goes alone. */
	uint8_t *large = pattern(5000);
	lp_test_ok(ask(&rig, put_of("b/a", large, 5000)));
	free(large);
	free(data);
	rig_fini(&rig);
}

static void test_list(void **state)
{
	(void)state;
	struct rig rig;
	struct lapis_list *list = NULL;
	struct lapis_item item;
	int cnt = 0;
	rig_init(&rig);
	for (int i = 0; i < 7; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%d", i);
		lp_test_ok(ask(&rig, put_of(key, key, 3)));
	}
	lpi_fake_start(&rig.fake);
	lp_test_ok(lapis_list_open(rig.lapis, NULL, "b/0", 0, &list));
	while (lapis_list_next(list, &item) > 0) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%d", ++cnt);
		assert_int_equal(item.name_bytes, 3);
		assert_memory_equal(item.name, key, 3);
	}
	lapis_list_close(list);
	lpi_fake_stop(&rig.fake);
	assert_int_equal(cnt, 6);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_LIST], 2);
	rig_fini(&rig);
}

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
	struct rig rig;
	uint8_t back[5000];
	uint8_t *data = pattern(5000);
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/a", data, 5000)));
	rig.fake.spoil = spoil_byte;
	rig.fake.script = -1;
	lp_test_err(-EBADMSG, ask(&rig, get_of("b/a", back, 5000)));
	/* The stream goes on. */
	lp_test_ok(ask(&rig, get_of("b/a", back, 5000)));
	assert_memory_equal(back, data, 5000);
	assert_int_equal(rig.fake.conns_ever, 1);
	free(data);
	rig_fini(&rig);
}

/* Every byte of header and meta: the connection is given up, the question asked again. */
static void test_damaged_stream(void **state)
{
	(void)state;
	struct rig rig;
	struct lapis_attrs attrs = {0};
	(void)attrs;
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/a", "x", 1)));
	rig.fake.spoil = spoil_byte;
	for (int at = 1; at <= LP_WIRE_HEADER_SIZE + LP_WIRE_ATTRS_SIZE; at += 7) {
		uint32_t conns = rig.fake.conns_ever;
		rig.fake.script = at;
		lp_test_ok(ask(&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/a"}));
		assert_int_equal(rig.fake.conns_ever, conns + 1);
	}
	/* Of a change nobody can say it. */
	rig.fake.script = 1;
	lp_test_err(-LAPIS_EUNKNOWN, ask(&rig, put_of("b/a", "y", 1)));
	rig_fini(&rig);
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
	struct rig rig;
	uint8_t back[10];
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/a", "sense", 5)));
	rig.fake.hook = answer_nonsense;
	for (int script = 1; script <= 7; script++) {
		uint32_t conns = rig.fake.conns_ever;
		rig.fake.script = script;
		lp_test_ok(ask(&rig, get_of("b/a", back, 10)));
		assert_memory_equal(back, "sense", 5);
		assert_int_equal(rig.fake.conns_ever, conns + 1);
	}
	rig_fini(&rig);
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
	struct rig rig;
	uint8_t back[10];
	rig_init(&rig);
	rig.fake.hook = answer_short;
	lp_test_err(-EPROTO, ask(&rig, get_of("b/a", back, 10)));
	lp_test_ok(ask(&rig, get_of("b/a", back, 4)));
	rig_fini(&rig);
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
	struct rig rig;
	struct ending ending;
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/a", "x", 1)));
	rig.fake.hook = hang_up;
	rig.fake.script = 2;
	lp_test_ok(ask(&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/a"}));
	assert_int_equal(rig.fake.conns_ever, 3);
	/* Not for ever. */
	rig.fake.script = 1000;
	lp_test_err(-ENOTCONN, ask(&rig, ping));
	/* A change is never asked for again. */
	rig.fake.script = 1;
	uint32_t puts = rig.fake.requests[LP_WIRE_OP_PUT];
	submit(&rig, put_of("b/a", "y", 1), &ending);
	wait_for(&rig, &ending);
	assert_int_equal(ending.status, -LAPIS_EUNKNOWN);
	assert_non_null(strstr(ending.text, "not known"));
	turns(&rig, 20);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], puts + 1);
	lp_test_ok(ask(&rig, ping));
	rig_fini(&rig);
}

/* What had not been sent is done by the next connection, also changes. */
static void test_unsent(void **state)
{
	(void)state;
	struct rig rig;
	struct ending first;
	struct ending second;
	rig_init(&rig);
	rig.fake.credits = 1;
	lp_test_ok(ask(&rig, ping));
	rig.fake.hook = hang_up;
	rig.fake.script = 1;
	submit(&rig, put_of("b/a", "x", 1), &first);
	submit(&rig, put_of("b/b", "x", 1), &second);
	wait_for(&rig, &first);
	wait_for(&rig, &second);
	assert_int_equal(first.status, -LAPIS_EUNKNOWN);
	lp_test_ok(second.status);
	rig_fini(&rig);
}

static void test_no_daemon(void **state)
{
	(void)state;
	struct rig rig;
	struct lapis *lapis = NULL;
	rig_init(&rig);
	lp_test_ok(ask(&rig, ping));
	/* It goes away for good. */
	lpi_fake_drop_all(&rig.fake);
	(void)close(rig.fake.listen_fd);
	lp_test_ok(unlink(rig.fake.address + 5));
	struct ending ending;
	submit(&rig, ping, &ending);
	while (ending.ended == 0)
		(void)lapis_turn(rig.lapis, 1000);
	assert_int_equal(ending.status, -ENOTCONN);
	assert_non_null(strstr(ending.text, "is lapisd running there?"));
	lapis_close(rig.lapis);
	/* It never was there: at once, and as the system says it. */
	const struct lapis_options options = rig_options(&rig);
	lp_test_ok(lapis_open(&options, &lapis));
	lp_test_err(-ENOENT, lapis_ping(lapis));
	lapis_close(lapis);
	/* It comes. */
	struct lapis_options waits = options;
	waits.flags = LAPIS_WAIT;
	lp_test_ok(lapis_open(&waits, &rig.lapis));
	submit(&rig, ping, &ending);
	for (int i = 0; i < 10; i++)
		(void)lapis_turn(rig.lapis, 1);
	assert_int_equal(ending.ended, 0);
	lpi_fake_listen(&rig.fake);
	wait_for(&rig, &ending);
	lp_test_ok(ending.status);
	rig_fini(&rig);
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
	struct rig rig;
	rig_init(&rig);
	lp_test_ok(ask(&rig, ping));
	lpi_fake_drop_all(&rig.fake);
	rig.fake.uuid = 8;
	struct ending ending;
	submit(&rig, ping, &ending);
	wait_for(&rig, &ending);
	assert_int_equal(ending.status, -ENOTCONN);
	assert_string_equal(ending.text, "another store answers there now");
	rig_fini(&rig);
}

/* A get that is interrupted goes on where it was, and only with the same object. */
static bool hang_up_in_get(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	if (req->header.opcode != LP_WIRE_OP_GET || fake->script == 0)
		return false;
	fake->script--;
	struct lp_wire_get get;
	lp_wire_get_decode(req->meta, &get);
	const struct lp_wire_got got = {.size_bytes = 3000, .version_nr = 2};
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

static void test_interrupted_get(void **state)
{
	(void)state;
	struct rig rig;
	uint8_t *data = pattern(3000);
	uint8_t back[3000];
	struct ending ending;
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/a", data, 3000)));
	rig.fake.hook = hang_up_in_get;
	rig.fake.script = 2;
	assert_int_equal(rig.fake.objects[0].version, 2);
	lp_test_ok(ask(&rig, get_of("b/a", back, 3000)));
	assert_memory_equal(back, data, 3000);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_GET], 3);
	/* Another object took its name meanwhile: pieces of two are never put together. */
	rig.fake.script = 1;
	submit(&rig, get_of("b/a", back, 3000), &ending);
	for (int i = 0; i < 100 && rig.fake.script > 0; i++)
		turn(&rig);
	rig.fake.objects[0].version = 9;
	wait_for(&rig, &ending);
	assert_int_equal(ending.status, -ECANCELED);
	assert_non_null(strstr(ending.text, "changed"));
	free(data);
	rig_fini(&rig);
}

/* What was acknowledged before it was durable may be lost with the daemon: sync says so, once. */
static void test_lost_ordered(void **state)
{
	(void)state;
	struct rig rig;
	struct lapis_request put = put_of("b/a", "x", 1);
	const struct lapis_request sync = {.op = LAPIS_SYNC};
	put.flags = LAPIS_ORDERED;
	rig_init(&rig);
	lp_test_ok(ask(&rig, put));
	lp_test_ok(ask(&rig, sync));
	lpi_fake_drop_all(&rig.fake);
	turns(&rig, 3);
	lp_test_ok(ask(&rig, sync));
	lp_test_ok(ask(&rig, put));
	lpi_fake_drop_all(&rig.fake);
	turns(&rig, 3);
	lp_test_err(-LAPIS_EUNKNOWN, ask(&rig, sync));
	lp_test_ok(ask(&rig, sync));
	rig_fini(&rig);
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
	struct rig rig;
	rig_init(&rig);
	rig.fake.hook = say_busy;
	rig.fake.script = 2;
	lp_test_ok(ask(&rig, put_of("b/a", "x", 1)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 3);
	rig.fake.script = 1000;
	struct lapis_request put = put_of("b/a", "x", 1);
	put.timeout_ms = 50;
	lp_test_err(-EAGAIN, ask(&rig, put));
	rig_fini(&rig);
}

static void test_time_limit(void **state)
{
	(void)state;
	struct rig rig;
	struct lapis_request slow_ping = ping;
	struct lapis_request put = put_of("b/a", "x", 1);
	slow_ping.timeout_ms = 30;
	put.timeout_ms = 30;
	rig_init(&rig);
	rig.fake.credits = 2;
	lp_test_ok(ask(&rig, ping));
	rig.fake.holds = true;
	lp_test_err(-ETIMEDOUT, ask(&rig, slow_ping));
	lp_test_err(-LAPIS_EUNKNOWN, ask(&rig, put));
	/* No credit is left, so this one is not sent. */
	lp_test_err(-ETIMEDOUT, ask(&rig, put));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 1);
	/* The replies that come at last belong to nobody. */
	lpi_fake_release(&rig.fake);
	lp_test_ok(ask(&rig, ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	rig_fini(&rig);
}

static void test_cancel(void **state)
{
	(void)state;
	struct rig rig;
	struct ending endings[4];
	uint8_t back[100];
	rig_init(&rig);
	rig.fake.credits = 3;
	lp_test_ok(ask(&rig, put_of("b/a", "x", 1)));
	rig.fake.holds = true;
	submit(&rig, put_of("b/b", "x", 1), &endings[0]);
	submit(&rig, get_of("b/a", back, 100), &endings[1]);
	submit(&rig, (struct lapis_request){.op = LAPIS_OPEN, .path = "b/a"}, &endings[2]);
	submit(&rig, put_of("b/c", "x", 1), &endings[3]);
	turns(&rig, 3);
	for (int i = 0; i < 4; i++)
		lapis_cancel(rig.lapis, endings[i].id);
	lapis_cancel(rig.lapis, 12345);
	turns(&rig, 2);
	static const int want[] = {-LAPIS_EUNKNOWN, -ECANCELED, -ECANCELED, -ECANCELED};
	for (int i = 0; i < 4; i++) {
		assert_int_equal(endings[i].ended, 1);
		assert_int_equal(endings[i].status, want[i]);
	}
	lpi_fake_release(&rig.fake);
	turns(&rig, 10);
	/* What was opened for nobody is closed. */
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_CLOSE], 1);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 2);
	lp_test_ok(ask(&rig, ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	rig_fini(&rig);
}

/* In the middle of a reply's data: the caller's buffer is his again, the stream goes on. */
static void test_cancel_in_data(void **state)
{
	(void)state;
	struct rig rig;
	struct ending ending;
	uint8_t *data = pattern(300000);
	uint8_t *back = calloc(1, 300000);
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/a", data, 300000)));
	rig.fake.step_bytes = 1000;
	submit(&rig, get_of("b/a", back, 300000), &ending);
	turns(&rig, 20);
	lapis_cancel(rig.lapis, ending.id);
	(void)lapis_turn(rig.lapis, 0);
	assert_int_equal(ending.ended, 1);
	assert_int_equal(ending.status, -ECANCELED);
	free(back);
	lp_test_ok(ask(&rig, ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	free(data);
	rig_fini(&rig);
}

/* In the middle of being sent: the rest is sent from memory of the library. The fake checks the
 * checksums of what comes. */
static void test_cancel_in_sending(void **state)
{
	(void)state;
	struct rig rig;
	struct ending ending;
	uint8_t *data = pattern(LP_WIRE_DATA_MAX);
	rig_init(&rig);
	lp_test_ok(ask(&rig, ping));
	rig.fake.is_deaf = true;
	submit(&rig, put_of("b/a", data, LP_WIRE_DATA_MAX), &ending);
	turns(&rig, 3);
	lapis_cancel(rig.lapis, ending.id);
	(void)lapis_turn(rig.lapis, 0);
	assert_int_equal(ending.ended, 1);
	assert_int_equal(ending.status, -LAPIS_EUNKNOWN);
	memset(data, 0, LP_WIRE_DATA_MAX);
	free(data);
	rig.fake.is_deaf = false;
	lp_test_ok(ask(&rig, ping));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 1);
	assert_int_equal(rig.fake.conns_ever, 1);
	rig_fini(&rig);
}

static void test_close_ends_all(void **state)
{
	(void)state;
	struct rig rig;
	struct ending endings[3];
	uint8_t *data = pattern(5u << 20);
	rig_init(&rig);
	lp_test_ok(ask(&rig, ping));
	rig.fake.holds = true;
	submit(&rig, ping, &endings[0]);
	submit(&rig, put_of("b/a", "x", 1), &endings[1]);
	submit(&rig, put_of("b/b", data, 5u << 20), &endings[2]);
	turns(&rig, 2);
	rig_fini(&rig);
	assert_int_equal(endings[0].ended + endings[1].ended + endings[2].ended, 3);
	assert_int_equal(endings[0].status, -ECANCELED);
	assert_int_equal(endings[1].status, -LAPIS_EUNKNOWN);
	assert_int_equal(endings[2].status, -ECANCELED);
	free(data);
}

/* --- Large puts (rule W3: nothing is seen before the commit) ---------------------------------- */

#define LARGE ((9u << 20) + 123u)

static void check_large(struct rig *rig, const uint8_t *data)
{
	uint8_t *back = malloc(LARGE);
	assert_non_null(back);
	lp_test_ok(ask(rig, get_of("b/large", back, LARGE)));
	assert_memory_equal(back, data, LARGE);
	free(back);
}

static void test_large_put(void **state)
{
	(void)state;
	struct rig rig;
	uint8_t *data = pattern(LARGE);
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/large", data, LARGE)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_UPLOAD], 1);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_WRITE], 10);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_COMMIT], 1);
	check_large(&rig, data);
	free(data);
	rig_fini(&rig);
}

struct source {
	const uint8_t *data;
	size_t len;
	size_t pos;
	int err;
};

static int64_t give(void *arg, void *buf, size_t len)
{
	struct source *source = arg;
	size_t n = LP_MIN(LP_MIN(len, (size_t)100000), source->len - source->pos);
	if (n == 0 && source->err < 0)
		return source->err;
	memcpy(buf, source->data + source->pos, n);
	source->pos += n;
	return (int64_t)n;
}

static void test_put_from_source(void **state)
{
	(void)state;
	struct rig rig;
	uint8_t *data = pattern(LARGE);
	struct source source = {.data = data, .len = LARGE};
	struct lapis_request put = {
		.op = LAPIS_PUT, .path = "b/large", .source = give, .source_arg = &source};
	rig_init(&rig);
	lp_test_ok(ask(&rig, put));
	check_large(&rig, data);
	source = (struct source){.data = data, .len = 5000};
	put.path = "b/small";
	lp_test_ok(ask(&rig, put));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 1);
	/* A source that fails: nothing is stored, and the upload is given up. */
	source = (struct source){.data = data, .len = LARGE, .err = -EIO};
	put.path = "b/none";
	lp_test_err(-EIO, ask(&rig, put));
	turns(&rig, 5);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_ABORT], 1);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_COMMIT], 1);
	free(data);
	rig_fini(&rig);
}

/* script 1: at the third write; 2: at the commit. */
static bool hang_up_in_upload(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	bool now = (fake->script == 1 && fake->requests[LP_WIRE_OP_WRITE] == 3) ||
		   (fake->script == 2 && req->header.opcode == LP_WIRE_OP_COMMIT);
	if (!now)
		return false;
	fake->script = 0;
	lpi_fake_drop(req->conn);
	return true;
}

static void test_interrupted_put(void **state)
{
	(void)state;
	struct rig rig;
	uint8_t *data = pattern(LARGE);
	rig_init(&rig);
	rig.fake.hook = hang_up_in_upload;
	rig.fake.script = 1;
	lp_test_ok(ask(&rig, put_of("b/large", data, LARGE)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_UPLOAD], 2);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_COMMIT], 1);
	check_large(&rig, data);
	/* A source cannot begin again: surely not done. */
	struct source source = {.data = data, .len = LARGE};
	const struct lapis_request put = {
		.op = LAPIS_PUT, .path = "b/none", .source = give, .source_arg = &source};
	rig.fake.requests[LP_WIRE_OP_WRITE] = 0;
	rig.fake.script = 1;
	lp_test_err(-ENOTCONN, ask(&rig, put));
	rig.fake.script = 2;
	lp_test_err(-LAPIS_EUNKNOWN, ask(&rig, put_of("b/large", data, LARGE)));
	free(data);
	rig_fini(&rig);
}

static int take_all(void *arg, uint64_t offset, const void *data, size_t len)
{
	struct source *source = arg;
	if (source->err < 0 && offset > 0)
		return source->err;
	assert_int_equal(offset, source->pos);
	assert_memory_equal(data, source->data + offset, len);
	source->pos += len;
	return 0;
}

static void test_get_to_sink(void **state)
{
	(void)state;
	struct rig rig;
	uint8_t *data = pattern(LARGE);
	struct source sink = {.data = data};
	const struct lapis_request get = {.op = LAPIS_GET,
					  .path = "b/large",
					  .length = LAPIS_TO_END,
					  .sink = take_all,
					  .sink_arg = &sink};
	rig_init(&rig);
	lp_test_ok(ask(&rig, put_of("b/large", data, LARGE)));
	lp_test_ok(ask(&rig, get));
	assert_int_equal(sink.pos, LARGE);
	sink = (struct source){.data = data, .err = -EPIPE};
	lp_test_err(-EPIPE, ask(&rig, get));
	lp_test_ok(ask(&rig, ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	free(data);
	rig_fini(&rig);
}

/* --- Shards ----------------------------------------------------------------------------------- */

/* "b/N" is on shard N, wherever it is asked for. */
static bool answer_by_shard(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	uint8_t meta[LP_WIRE_ATTRS_SIZE] = {0};
	if (req->header.opcode != LP_WIRE_OP_STAT)
		return false;
	uint32_t shard = (uint32_t)(req->meta[LP_WIRE_REF_SIZE + 2] - '0');
	fake->script += req->conn->shard == shard;
	lpi_fake_send(fake, req,
		      (struct lp_wire_header){.shard = shard, .meta_bytes = sizeof(meta)}, meta,
		      NULL);
	return true;
}

static void test_shards(void **state)
{
	(void)state;
	struct rig rig;
	static const char *const keys[] = {"b/0", "b/1", "b/2", "b/3"};
	rig_init(&rig);
	rig.fake.shard_cnt = 4;
	rig.fake.hook = answer_by_shard;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 4; i++)
			lp_test_ok(ask(&rig,
				       (struct lapis_request){.op = LAPIS_STAT, .path = keys[i]}));
	}
	assert_int_equal(rig.fake.conns_ever, 4);
	/* Of the first round only the first was at home; from then on all are. */
	assert_int_equal(rig.fake.script, 9);
	assert_int_equal(stats_of(&rig).shard_hits, 9);
	/* One connection's end is not that of the others. */
	lpi_fake_drop(&rig.fake.conns[2]);
	lp_test_ok(ask(&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/3"}));
	lp_test_ok(ask(&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/2"}));
	rig_fini(&rig);
}

/* --- Callers ---------------------------------------------------------------------------------- */

struct nested {
	struct rig *rig;
	struct ending second;
	int blocking;
};

static void submit_another(void *arg, const struct lapis_result *result)
{
	struct nested *nested = arg;
	lp_test_ok(result->status);
	nested->blocking = lapis_ping(nested->rig->lapis);
	submit(nested->rig, ping, &nested->second);
}

static void test_callbacks(void **state)
{
	(void)state;
	struct rig rig;
	struct nested nested = {.rig = &rig};
	rig_init(&rig);
	struct lapis_request request = ping;
	request.size = sizeof(request);
	request.done = submit_another;
	request.arg = &nested;
	lp_test_ok(lapis_submit(rig.lapis, &request, NULL));
	struct pollfd fd = {.fd = lapis_fd(rig.lapis), .events = POLLIN};
	/* There is something to do, and later nothing. */
	assert_int_equal(poll(&fd, 1, 0), 1);
	turns(&rig, 5);
	wait_for(&rig, &nested.second);
	lp_test_ok(nested.second.status);
	assert_int_equal(nested.blocking, -EDEADLK);
	turns(&rig, 3);
	assert_int_equal(poll(&fd, 1, 0), 0);
	rig_fini(&rig);
}

static void test_bad_requests(void **state)
{
	(void)state;
	struct rig rig;
	char path[5000];
	uint8_t large[70000] = {0};
	rig_init(&rig);
	memset(path, 'a', sizeof(path) - 1);
	path[sizeof(path) - 1] = '\0';
	const struct {
		struct lapis_request request;
		int err;
	} cases[] = {
		{{.op = 1}, -EINVAL},
		{{.op = 99}, -EINVAL},
		{{.op = LAPIS_STAT, .path = path}, -ENAMETOOLONG},
		{{.op = LAPIS_GET, .path = "a", .length = 5}, -EINVAL},
		{{.op = LAPIS_PUT, .path = "a", .data_bytes = 5}, -EINVAL},
		{{.op = LAPIS_STAT, .path = "a", .data = "x", .data_bytes = 1}, -EINVAL},
		{{.op = LAPIS_SET, .path = "a"}, -EINVAL},
		{{.op = LAPIS_WRITE, .data = large, .data_bytes = LP_WIRE_DATA_MAX + 1}, -E2BIG},
		{{.op = LAPIS_OMAP_SET, .name = "n", .value = large, .value_bytes = 70000}, -E2BIG},
		{{.op = LAPIS_PUT, .path = "a", .xattr_cnt = 17}, -EINVAL},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lapis_request request = cases[i].request;
		request.size = sizeof(request);
		lp_test_err(cases[i].err, lapis_submit(rig.lapis, &request, NULL));
	}
	struct lapis_request unsized = ping;
	lp_test_err(-EINVAL, lapis_submit(rig.lapis, &unsized, NULL));
	assert_int_equal(rig.fake.conns_ever, 0);
	rig_fini(&rig);
}

/* A request of a later version: what is new in it must be zero. */
static void test_longer_request(void **state)
{
	(void)state;
	struct rig rig;
	struct {
		struct lapis_request request;
		uint64_t later;
	} longer = {.request = {.size = sizeof(longer), .op = LAPIS_PING}};
	rig_init(&rig);
	lp_test_ok(lapis_submit(rig.lapis, &longer.request, NULL));
	longer.later = 1;
	lp_test_err(-EINVAL, lapis_submit(rig.lapis, &longer.request, NULL));
	rig_fini(&rig);
}

static void test_too_many(void **state)
{
	(void)state;
	struct rig rig;
	struct ending endings[3];
	lpi_fake_init(&rig.fake);
	struct lapis_options options = rig_options(&rig);
	options.requests_max = 2;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	submit(&rig, ping, &endings[0]);
	submit(&rig, ping, &endings[1]);
	struct lapis_request third = ping;
	third.size = sizeof(third);
	lp_test_err(-EAGAIN, lapis_submit(rig.lapis, &third, NULL));
	wait_for(&rig, &endings[1]);
	submit(&rig, ping, &endings[2]);
	wait_for(&rig, &endings[2]);
	rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocking),        cmocka_unit_test(test_threads),
		cmocka_unit_test(test_every_byte),      cmocka_unit_test(test_batches_out_of_order),
		cmocka_unit_test(test_credits),         cmocka_unit_test(test_list),
		cmocka_unit_test(test_damaged_data),    cmocka_unit_test(test_damaged_stream),
		cmocka_unit_test(test_nonsense),        cmocka_unit_test(test_short_answer),
		cmocka_unit_test(test_retries),         cmocka_unit_test(test_unsent),
		cmocka_unit_test(test_no_daemon),       cmocka_unit_test(test_bad_addresses),
		cmocka_unit_test(test_another_store),   cmocka_unit_test(test_interrupted_get),
		cmocka_unit_test(test_lost_ordered),    cmocka_unit_test(test_busy),
		cmocka_unit_test(test_time_limit),      cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_cancel_in_data),  cmocka_unit_test(test_cancel_in_sending),
		cmocka_unit_test(test_close_ends_all),  cmocka_unit_test(test_large_put),
		cmocka_unit_test(test_put_from_source), cmocka_unit_test(test_interrupted_put),
		cmocka_unit_test(test_get_to_sink),     cmocka_unit_test(test_shards),
		cmocka_unit_test(test_callbacks),       cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_longer_request),  cmocka_unit_test(test_too_many),
	};
	return lp_test_main(tests, "client/lapis");
}
