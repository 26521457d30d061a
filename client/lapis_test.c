/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what the client says is the protocol, and what it gets is what the daemon said: functions
 * that wait and requests that do not, large objects, shards, callers that err.
 * Method: a daemon of a few objects (fake_test.h) on a unix socket, run by the test itself in
 * between turns of the client, so that each order of events is one that the test chose; for
 * functions that wait, by a thread. Rules W2 (checksums from end to end), W3 (a put is a whole).
 */
#include <signal.h>

#include "base/clock.h"
#include "client/fake_test.h"

/* --- What works ------------------------------------------------------------------------------- */

static void check_blocking(struct lapis *lapis)
{
	struct lapis_attrs attrs;
	uint8_t *data = lpi_fake_rig_pattern(10000);
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
		struct lpi_fake_rig rig;
		lpi_fake_init(&rig.fake);
		lpi_fake_start(&rig.fake);
		struct lapis_options options = lpi_fake_rig_options(&rig);
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
	struct lpi_fake_rig rig;
	pthread_t threads[4];
	lpi_fake_init(&rig.fake);
	lpi_fake_start(&rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&rig);
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

static void note_mask(void *arg, const struct lapis_result *result)
{
	(void)result;
	(void)pthread_sigmask(SIG_SETMASK, NULL, arg);
}

/* The library's thread takes none of the process's signals, and hides none that it brings on
 * itself. */
static void test_signals(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	sigset_t term;
	sigset_t after;
	sigset_t mask;
	(void)sigemptyset(&mask);
	(void)sigemptyset(&term);
	(void)sigaddset(&term, SIGTERM);
	(void)pthread_sigmask(SIG_UNBLOCK, &term, NULL);
	lpi_fake_init(&rig.fake);
	lpi_fake_start(&rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&rig);
	options.flags = LAPIS_THREAD;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	(void)pthread_sigmask(SIG_SETMASK, NULL, &after);
	const struct lapis_request ping = {
		.size = sizeof(ping), .op = LAPIS_PING, .done = note_mask, .arg = &mask};
	lp_test_ok(lapis_submit(rig.lapis, &ping, NULL));
	/* Which is answered after it. */
	lp_test_ok(lapis_ping(rig.lapis));
	lapis_close(rig.lapis);
	lpi_fake_stop(&rig.fake);
	lpi_fake_fini(&rig.fake);
	assert_int_equal(sigismember(&mask, SIGTERM) + sigismember(&mask, SIGALRM), 2);
	assert_int_equal(sigismember(&mask, SIGSEGV) + sigismember(&mask, SIGPIPE), 0);
	assert_int_equal(sigismember(&after, SIGTERM), 0);
}

/* A close that meets the thread anywhere in its turn ends it; it once waited for ever when the
 * thread took the wake before it looked whether to stop.
 */
static void test_close_at_any_time(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	lpi_fake_init(&rig.fake);
	lpi_fake_start(&rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&rig);
	options.flags = LAPIS_THREAD;
	for (uint32_t i = 0; i < 500; i++) {
		lp_test_ok(lapis_open(&options, &rig.lapis));
		if (i % 2 == 0)
			lp_test_ok(lapis_ping(rig.lapis));
		for (volatile uint32_t spin = 0; spin < i * 64; spin++)
			;
		lapis_close(rig.lapis);
	}
	lpi_fake_stop(&rig.fake);
	lpi_fake_fini(&rig.fake);
}

static void test_every_byte(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(9000);
	uint8_t back[9000];
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", data, 9000)));
	rig.fake.step_bytes = 1;
	rig.fake.piece_max = 4000;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/a", back, 9000)));
	assert_memory_equal(back, data, 9000);
	lp_test_err(-ENOENT, lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/none", back, 9000)));
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* Pieces of two versions: whoever puts back what he read must not pass for one who has read the
 * later one. */
static void test_version_of_pieces(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(9000);
	uint8_t back[9000];
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", data, 9000)));
	rig.fake.piece_max = 4000;
	rig.fake.is_changing = true;
	struct lpi_fake_ending ending;
	lpi_fake_rig_submit(&rig, lpi_fake_rig_get_of("b/a", back, 9000), &ending);
	lpi_fake_rig_wait_for(&rig, &ending);
	lp_test_ok(ending.status);
	assert_int_equal(ending.version, rig.fake.objects[0].version);
	free(data);
	lpi_fake_rig_fini(&rig);
}

static void test_batches_out_of_order(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending endings[32];
	uint8_t back[32][8];
	lpi_fake_rig_init(&rig);
	for (int i = 0; i < 32; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%02d", i);
		lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of(key, key, 4)));
	}
	struct lapis_stats before = lpi_fake_rig_stats_of(&rig);
	rig.fake.holds = true;
	for (int i = 0; i < 32; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%02d", i);
		lpi_fake_rig_submit(&rig, lpi_fake_rig_get_of(key, back[i], 8), &endings[i]);
	}
	lpi_fake_rig_turns(&rig, 3);
	lpi_fake_release(&rig.fake);
	lpi_fake_rig_wait_for(&rig, &endings[0]);
	for (int i = 0; i < 32; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%02d", i);
		assert_int_equal(endings[i].ended, 1);
		lp_test_ok(endings[i].status);
		assert_int_equal(endings[i].data_bytes, 4);
		assert_memory_equal(back[i], key, 4);
	}
	struct lapis_stats after = lpi_fake_rig_stats_of(&rig);
	assert_int_equal(after.messages_sent - before.messages_sent, 32);
	assert_int_equal(after.sends - before.sends, 1);
	assert_int_equal(after.receives - before.receives, 1);
	lpi_fake_rig_fini(&rig);
}

static void test_credits(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending endings[10];
	uint8_t *data = lpi_fake_rig_pattern(1000);
	lpi_fake_rig_init(&rig);
	rig.fake.credits = 3;
	rig.fake.credit_bytes = 2000;
	rig.fake.holds = true;
	for (int i = 0; i < 10; i++)
		lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &endings[i]);
	lpi_fake_rig_turns(&rig, 6);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PING], 3);
	lpi_fake_release(&rig.fake);
	for (int i = 0; i < 10; i++)
		lpi_fake_rig_wait_for(&rig, &endings[i]);
	rig.fake.holds = true;
	for (int i = 0; i < 3; i++)
		lpi_fake_rig_submit(&rig, lpi_fake_rig_put_of("b/a", data, 1000), &endings[i]);
	lpi_fake_rig_turns(&rig, 4);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 2);
	lpi_fake_release(&rig.fake);
	lpi_fake_rig_wait_for(&rig, &endings[2]);
	/* One that is larger than all of them goes alone. */
	uint8_t *large = lpi_fake_rig_pattern(5000);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/a", large, 5000)));
	free(large);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* b/0 to b/6. */
static void put_seven(struct lpi_fake_rig *rig)
{
	for (int i = 0; i < 7; i++) {
		char key[16];
		(void)snprintf(key, sizeof(key), "b/%d", i);
		lp_test_ok(lpi_fake_rig_ask(rig, lpi_fake_rig_put_of(key, key, 3)));
	}
}

static void test_list(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis_list *list = NULL;
	struct lapis_item item;
	int cnt = 0;
	lpi_fake_rig_init(&rig);
	put_seven(&rig);
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
	lpi_fake_rig_fini(&rig);
}

/* The reply behind the one that is walked is under way already; who closes the list need not wait
 * for it. */
static void test_list_ahead(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis_list *list = NULL;
	struct lapis_item item;
	lpi_fake_rig_init(&rig);
	put_seven(&rig);
	lpi_fake_start(&rig.fake);
	lp_test_ok(lapis_list_open(rig.lapis, NULL, "b/0", 0, &list));
	assert_int_equal(lapis_list_next(list, &item), 1);
	assert_memory_equal(item.name, "b/1", 3);
	lapis_list_close(list);
	lp_test_ok(lapis_ping(rig.lapis));
	/* One that is left with the handle. */
	lp_test_ok(lapis_list_open(rig.lapis, NULL, NULL, 0, &list));
	assert_int_equal(lapis_list_next(list, &item), 1);
	assert_memory_equal(item.name, "b/0", 3);
	lpi_fake_stop(&rig.fake);
	lapis_list_close(list);
	assert_true(rig.fake.requests[LP_WIRE_OP_LIST] >= 3);
	lpi_fake_rig_fini(&rig);
}

/* --- Large puts (rule W3: nothing is seen before the commit) ---------------------------------- */

#define LARGE ((9u << 20) + 123u)

static void check_large(struct lpi_fake_rig *rig, const uint8_t *data)
{
	uint8_t *back = malloc(LARGE);
	assert_non_null(back);
	lp_test_ok(lpi_fake_rig_ask(rig, lpi_fake_rig_get_of("b/large", back, LARGE)));
	assert_memory_equal(back, data, LARGE);
	free(back);
}

static void test_large_put(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/large", data, LARGE)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_UPLOAD], 1);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_WRITE], 10);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_COMMIT], 1);
	check_large(&rig, data);
	free(data);
	lpi_fake_rig_fini(&rig);
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
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	struct source source = {.data = data, .len = LARGE};
	struct lapis_request put = {
		.op = LAPIS_PUT, .path = "b/large", .source = give, .source_arg = &source};
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	check_large(&rig, data);
	source = (struct source){.data = data, .len = 5000};
	put.path = "b/small";
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 1);
	/* A source that fails: nothing is stored, and the upload is given up. */
	source = (struct source){.data = data, .len = LARGE, .err = -EIO};
	put.path = "b/none";
	lp_test_err(-EIO, lpi_fake_rig_ask(&rig, put));
	lpi_fake_rig_turns(&rig, 5);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_ABORT], 1);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_COMMIT], 1);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* A hole of two pieces before each piece of data, and one at the end. */
static int64_t next_hole(void *arg)
{
	struct source *source = arg;
	bool is_due = source->pos % LP_WIRE_PIECE_MAX == 0 && source->err == 0;
	source->err = is_due ? 1 : 0;
	return is_due ? 2 * (int64_t)LP_WIRE_PIECE_MAX : 0;
}

static int64_t give_between_holes(void *arg, void *buf, size_t len)
{
	struct source *source = arg;
	assert_int_equal(len, LP_WIRE_PIECE_MAX);
	source->err = 0;
	len = LP_MIN(len, source->len - source->pos);
	memcpy(buf, source->data + source->pos, len);
	source->pos += len;
	return (int64_t)len;
}

static bool set_length(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	uint8_t meta[LP_WIRE_WRITTEN_SIZE] = {0};
	struct lp_wire_space space;
	if (req->header.opcode != LP_WIRE_OP_TRUNCATE)
		return false;
	lp_wire_space_decode(req->meta, &space);
	/* Behind all that was written, and before it is to be seen. */
	assert_int_equal(space.offset, 8 * (uint64_t)LP_WIRE_PIECE_MAX);
	assert_int_equal(fake->requests[LP_WIRE_OP_COMMIT], 0);
	lpi_fake_plain(fake, req, meta, sizeof(meta));
	return true;
}

static void test_put_with_holes(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	const size_t piece = LP_WIRE_PIECE_MAX;
	uint8_t *data = lpi_fake_rig_pattern(2 * piece);
	uint8_t *back = calloc(6, piece);
	struct source source = {.data = data, .len = 2 * piece};
	const struct lapis_request put = {.op = LAPIS_PUT,
					  .path = "b/sparse",
					  .source = give_between_holes,
					  .source_arg = &source,
					  .hole = next_hole};
	assert_non_null(back);
	lpi_fake_rig_init(&rig);
	rig.fake.hook = set_length;
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_WRITE], 2);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_TRUNCATE], 1);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_get_of("b/sparse", back, 6 * piece)));
	assert_memory_equal(back + 2 * piece, data, piece);
	assert_memory_equal(back + 5 * piece, data + piece, piece);
	assert_int_equal(back[0] | back[2 * piece - 1] | back[3 * piece] | back[5 * piece - 1], 0);
	free(back);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* Walks extents: a short read at the end of each, then the hole to the next one. Takes care that it
 * is asked for the hole before each read. */
#define EXTENT_BYTES ((size_t)100000)
struct extents {
	const uint8_t *data;
	size_t pos; /* in data: two extents */
	int asked;
};

static int64_t hole_to_extent(void *arg)
{
	struct extents *extents = arg;
	assert_int_equal(extents->asked++, 0);
	return extents->pos == EXTENT_BYTES ? LP_WIRE_PIECE_MAX : 0;
}

static int64_t give_extent(void *arg, void *buf, size_t len)
{
	struct extents *extents = arg;
	assert_int_equal(extents->asked--, 1);
	size_t left =
		extents->pos < 2 * EXTENT_BYTES ? EXTENT_BYTES - extents->pos % EXTENT_BYTES : 0;
	len = LP_MIN(LP_MIN(len, left), (size_t)30000);
	memcpy(buf, extents->data + extents->pos, len);
	extents->pos += len;
	return (int64_t)len;
}

static void test_put_of_extents(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	const size_t second = EXTENT_BYTES + LP_WIRE_PIECE_MAX;
	const size_t whole = second + EXTENT_BYTES;
	uint8_t *data = lpi_fake_rig_pattern(2 * EXTENT_BYTES);
	uint8_t *want = calloc(1, whole);
	uint8_t *back = malloc(whole + 1);
	struct extents extents = {.data = data};
	struct lpi_fake_ending ending;
	const struct lapis_request put = {.op = LAPIS_PUT,
					  .path = "b/extents",
					  .source = give_extent,
					  .source_arg = &extents,
					  .hole = hole_to_extent};
	assert_non_null(want);
	assert_non_null(back);
	memcpy(want, data, EXTENT_BYTES);
	memcpy(want + second, data + EXTENT_BYTES, EXTENT_BYTES);
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_WRITE], 2);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_get_of("b/extents", back, whole + 1), &ending);
	lpi_fake_rig_wait_for(&rig, &ending);
	lp_test_ok(ending.status);
	assert_int_equal(ending.data_bytes, whole);
	assert_memory_equal(back, want, whole);
	free(back);
	free(want);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* Takes longer for what fits into the window than the daemon may take for an answer. */
static int64_t give_slowly(void *arg, void *buf, size_t len)
{
	struct source *source = arg;
	const struct timespec pause = {.tv_nsec = 60 * (long)LP_NS_PER_MS};
	(void)nanosleep(&pause, NULL);
	len = LP_MIN(len, source->len - source->pos);
	memcpy(buf, source->data + source->pos, len);
	source->pos += len;
	return (int64_t)len;
}

static int64_t no_hole(void *arg)
{
	(void)arg;
	return 0;
}

/* What the source takes is not held against the daemon; also not when it pauses with a message on
 * its way, for which the daemon would not wait. */
static void test_put_from_slow_source(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	struct source source = {.data = data, .len = LARGE};
	struct lapis_request put = {.op = LAPIS_PUT,
				    .path = "b/large",
				    .source = give_slowly,
				    .source_arg = &source,
				    .hole = no_hole,
				    .timeout_ms = 250};
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	check_large(&rig, data);
	/* A daemon that does not answer is still found out. */
	rig.fake.holds = true;
	source.pos = 0;
	lp_test_err(-ETIMEDOUT, lpi_fake_rig_ask(&rig, put));
	lpi_fake_release(&rig.fake);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* A source is not asked while a part of a message is on its way, for whose rest the daemon would
 * wait in vain. */
struct watched_source {
	struct source source;
	struct lpi_fake *fake;
	uint32_t amid_cnt;
};

static int64_t give_watched(void *arg, void *buf, size_t len)
{
	struct watched_source *watched = arg;
	struct lpi_fake *fake = watched->fake;
	/* All that was sent is here, and then it is whole messages. */
	for (int i = 0; i < 4; i++)
		lpi_fake_step(fake, 0);
	for (int i = 0; i < LPI_FAKE_CONNS; i++)
		watched->amid_cnt += fake->conns[i].fd >= 0 && fake->conns[i].in_len > 0;
	return give(&watched->source, buf, len);
}

static void test_nothing_half_sent(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	struct watched_source watched = {.source = {.data = data, .len = LARGE}, .fake = &rig.fake};
	const struct lapis_request put = {.op = LAPIS_PUT,
					  .path = "b/large",
					  .source = give_watched,
					  .source_arg = &watched,
					  .hole = no_hole};
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, put));
	check_large(&rig, data);
	assert_int_equal(watched.amid_cnt, 0);
	free(data);
	lpi_fake_rig_fini(&rig);
}

/* Nothing is under way but the caller's own source. */
static void test_cancel_hungry_put(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending ending;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	struct source source = {.data = data, .len = LARGE};
	const struct lapis_request put = {.op = LAPIS_PUT,
					  .path = "b/large",
					  .source = give,
					  .source_arg = &source,
					  .hole = no_hole};
	lpi_fake_rig_init(&rig);
	for (int turns = 0; turns < 8; turns++) {
		source.pos = 0;
		lpi_fake_rig_submit(&rig, put, &ending);
		lpi_fake_rig_turns(&rig, turns);
		lapis_cancel(rig.lapis, ending.id);
		lpi_fake_rig_wait_for(&rig, &ending);
		lp_test_err(-ECANCELED, ending.status);
	}
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	free(data);
	lpi_fake_rig_fini(&rig);
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
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	lpi_fake_rig_init(&rig);
	rig.fake.hook = hang_up_in_upload;
	rig.fake.script = 1;
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/large", data, LARGE)));
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_UPLOAD], 2);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_COMMIT], 1);
	check_large(&rig, data);
	/* A source cannot begin again: surely not done. */
	struct source source = {.data = data, .len = LARGE};
	const struct lapis_request put = {
		.op = LAPIS_PUT, .path = "b/none", .source = give, .source_arg = &source};
	rig.fake.requests[LP_WIRE_OP_WRITE] = 0;
	rig.fake.script = 1;
	lp_test_err(-ENOTCONN, lpi_fake_rig_ask(&rig, put));
	rig.fake.script = 2;
	lp_test_err(-LAPIS_EUNKNOWN,
		    lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/large", data, LARGE)));
	free(data);
	lpi_fake_rig_fini(&rig);
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
	struct lpi_fake_rig rig;
	uint8_t *data = lpi_fake_rig_pattern(LARGE);
	struct source sink = {.data = data};
	const struct lapis_request get = {.op = LAPIS_GET,
					  .path = "b/large",
					  .length = LAPIS_TO_END,
					  .sink = take_all,
					  .sink_arg = &sink};
	lpi_fake_rig_init(&rig);
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_put_of("b/large", data, LARGE)));
	lp_test_ok(lpi_fake_rig_ask(&rig, get));
	assert_int_equal(sink.pos, LARGE);
	sink = (struct source){.data = data, .err = -EPIPE};
	lp_test_err(-EPIPE, lpi_fake_rig_ask(&rig, get));
	lp_test_ok(lpi_fake_rig_ask(&rig, lpi_fake_rig_ping));
	assert_int_equal(rig.fake.conns_ever, 1);
	free(data);
	lpi_fake_rig_fini(&rig);
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
	struct lpi_fake_rig rig;
	static const char *const keys[] = {"b/0", "b/1", "b/2", "b/3"};
	lpi_fake_rig_init(&rig);
	rig.fake.shard_cnt = 4;
	rig.fake.hook = answer_by_shard;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 4; i++)
			lp_test_ok(lpi_fake_rig_ask(
				&rig, (struct lapis_request){.op = LAPIS_STAT, .path = keys[i]}));
	}
	assert_int_equal(rig.fake.conns_ever, 4);
	/* Of the first round only the first was at home; from then on all are. */
	assert_int_equal(rig.fake.script, 9);
	assert_int_equal(lpi_fake_rig_stats_of(&rig).shard_hits, 9);
	/* One connection's end is not that of the others. */
	lpi_fake_drop(&rig.fake.conns[2]);
	lp_test_ok(lpi_fake_rig_ask(&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/3"}));
	lp_test_ok(lpi_fake_rig_ask(&rig, (struct lapis_request){.op = LAPIS_STAT, .path = "b/2"}));
	lpi_fake_rig_fini(&rig);
}

/* --- Callers ---------------------------------------------------------------------------------- */

struct nested {
	struct lpi_fake_rig *rig;
	struct lpi_fake_ending second;
	int blocking;
};

static void submit_another(void *arg, const struct lapis_result *result)
{
	struct nested *nested = arg;
	lp_test_ok(result->status);
	nested->blocking = lapis_ping(nested->rig->lapis);
	lpi_fake_rig_submit(nested->rig, lpi_fake_rig_ping, &nested->second);
}

static void test_callbacks(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct nested nested = {.rig = &rig};
	lpi_fake_rig_init(&rig);
	struct lapis_request request = lpi_fake_rig_ping;
	request.size = sizeof(request);
	request.done = submit_another;
	request.arg = &nested;
	lp_test_ok(lapis_submit(rig.lapis, &request, NULL));
	struct pollfd fd = {.fd = lapis_fd(rig.lapis), .events = POLLIN};
	/* There is something to do, and later nothing. */
	assert_int_equal(poll(&fd, 1, 0), 1);
	lpi_fake_rig_turns(&rig, 5);
	lpi_fake_rig_wait_for(&rig, &nested.second);
	lp_test_ok(nested.second.status);
	assert_int_equal(nested.blocking, -EDEADLK);
	lpi_fake_rig_turns(&rig, 3);
	assert_int_equal(poll(&fd, 1, 0), 0);
	lpi_fake_rig_fini(&rig);
}

#define CHAIN_LINKS 600

/* Puts and gets, each pair submitted by the callback of the pair before. */
struct chain {
	struct lpi_fake_rig *rig;
	int links;
	char written[80000];
	char read[80000];
};

static void submit_link(struct chain *chain);

static void link_ended(void *arg, const struct lapis_result *result)
{
	struct chain *chain = arg;
	lp_test_ok(result->status);
	assert_string_equal(result->text, "");
	if (result->op != LAPIS_GET)
		return;
	assert_string_equal(chain->read, chain->written);
	if (++chain->links < CHAIN_LINKS)
		submit_link(chain);
}

/* A long one has more checksums than there is room for beside the operation. */
static void submit_link(struct chain *chain)
{
	size_t len = chain->links % 3 == 0 ? sizeof(chain->written) : 16;
	struct lapis_request put = lpi_fake_rig_put_of("b/a", chain->written, len);
	struct lapis_request get = lpi_fake_rig_get_of("b/a", chain->read, len);
	uint64_t ids[2];
	(void)snprintf(chain->written, sizeof(chain->written), "%d", chain->links);
	put.size = sizeof(put);
	put.done = link_ended;
	put.arg = chain;
	get.size = sizeof(get);
	get.done = link_ended;
	get.arg = chain;
	lp_test_ok(lapis_submit(chain->rig->lapis, &put, &ids[0]));
	lp_test_ok(lapis_submit(chain->rig->lapis, &get, &ids[1]));
	assert_true(ids[0] != 0 && ids[1] > ids[0]);
}

/* What callbacks submit goes in its order, and the memory of what has ended serves what comes,
 * whether its message is short or long; each of them has the usual time or its own. */
static void test_chain(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct chain *chain = calloc(1, sizeof(*chain));
	assert_non_null(chain);
	chain->rig = &rig;
	lpi_fake_rig_init(&rig);
	submit_link(chain);
	for (int i = 0; i < 100 * CHAIN_LINKS && chain->links < CHAIN_LINKS; i++)
		lpi_fake_rig_turn(&rig);
	assert_int_equal(chain->links, CHAIN_LINKS);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], CHAIN_LINKS);
	assert_int_equal(rig.fake.conns_ever, 1);
	lpi_fake_rig_fini(&rig);
	free(chain);
}

struct at_close {
	struct lapis *lapis;
	int status;
	int again;
};

static void submit_at_close(void *arg, const struct lapis_result *result)
{
	struct at_close *at_close = arg;
	struct lapis_request request = lpi_fake_rig_ping;
	request.size = sizeof(request);
	at_close->status = result->status;
	at_close->again = lapis_submit(at_close->lapis, &request, NULL);
}

/* A callback that begins something new while its handle is closed keeps nobody from closing it. */
static void test_callback_at_close(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lapis_request request = lpi_fake_rig_ping;
	lpi_fake_rig_init(&rig);
	struct at_close at_close = {.lapis = rig.lapis};
	request.size = sizeof(request);
	request.done = submit_at_close;
	request.arg = &at_close;
	lp_test_ok(lapis_submit(rig.lapis, &request, NULL));
	lpi_fake_rig_fini(&rig);
	assert_int_equal(at_close.status, -ECANCELED);
	assert_int_equal(at_close.again, -ECANCELED);
}

static void test_bad_requests(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	char path[5000];
	uint8_t large[74000] = {0};
	const struct lapis_pair no_value = {.name = "n", .value_bytes = 9};
	const struct lapis_change no_change = {
		.kind = LAPIS_CHANGE_XATTR_SET, .name = "n", .value_bytes = 9};
	lpi_fake_rig_init(&rig);
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
		{{.op = LAPIS_OMAP_SET, .name = "n", .value = large, .value_bytes = 74000}, -E2BIG},
		{{.op = LAPIS_PUT, .path = "a", .xattr_cnt = 17}, -EINVAL},
		{{.op = LAPIS_PUT, .path = "a", .xattr_cnt = 1, .xattrs = &no_value}, -EINVAL},
		{{.op = LAPIS_COMPOUND, .change_cnt = 1, .changes = &no_change}, -EINVAL},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lapis_request request = cases[i].request;
		request.size = sizeof(request);
		lp_test_err(cases[i].err, lapis_submit(rig.lapis, &request, NULL));
	}
	assert_int_equal(rig.fake.conns_ever, 0);
	lpi_fake_rig_fini(&rig);
}

static void test_too_many(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct lpi_fake_ending endings[3];
	lpi_fake_init(&rig.fake);
	struct lapis_options options = lpi_fake_rig_options(&rig);
	options.requests_max = 2;
	lp_test_ok(lapis_open(&options, &rig.lapis));
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &endings[0]);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &endings[1]);
	struct lapis_request third = lpi_fake_rig_ping;
	third.size = sizeof(third);
	lp_test_err(-EAGAIN, lapis_submit(rig.lapis, &third, NULL));
	lpi_fake_rig_wait_for(&rig, &endings[1]);
	lpi_fake_rig_submit(&rig, lpi_fake_rig_ping, &endings[2]);
	lpi_fake_rig_wait_for(&rig, &endings[2]);
	lpi_fake_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocking),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_close_at_any_time),
		cmocka_unit_test(test_every_byte),
		cmocka_unit_test(test_version_of_pieces),
		cmocka_unit_test(test_batches_out_of_order),
		cmocka_unit_test(test_credits),
		cmocka_unit_test(test_list),
		cmocka_unit_test(test_list_ahead),
		cmocka_unit_test(test_large_put),
		cmocka_unit_test(test_put_from_source),
		cmocka_unit_test(test_put_with_holes),
		cmocka_unit_test(test_put_of_extents),
		cmocka_unit_test(test_put_from_slow_source),
		cmocka_unit_test(test_nothing_half_sent),
		cmocka_unit_test(test_cancel_hungry_put),
		cmocka_unit_test(test_interrupted_put),
		cmocka_unit_test(test_get_to_sink),
		cmocka_unit_test(test_shards),
		cmocka_unit_test(test_callbacks),
		cmocka_unit_test(test_chain),
		cmocka_unit_test(test_callback_at_close),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_too_many),
	};
	return lp_test_main(tests, "client/lapis");
}
