/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: operations ask for what they should, verify takes what a right store answers and nothing
 * else, and the report says what happened. Method: the load's steps are called by hand, and each
 * request is carried out on memory, some time between when it was made and when it ends; then that
 * memory is changed behind its back. */
#include "base/testing/test.h"

#include "base/assert.h"
#include "cli/bench/load_impl.h"
#include "cli/bench/load_report.h"
#include "cli/json.h"

#define OBJECTS      3u
#define OBJECT_BYTES 65536u
#define SLOTS        8u
#define FIRST_INO    100u

/* What is stored: as a whole, or by ranges. */
static struct {
	uint8_t bytes[OBJECTS][OBJECT_BYTES];
	uint64_t len[OBJECTS];
} store;

static struct {
	struct lapis_request request;
	char key[LPI_LOAD_KEY_MAX];
	bool is_done; /* on memory */
	struct lapis_result result;
} asked[SLOTS];

static struct lpi_load_options options_of(enum lpi_load_op op, const char *sizes)
{
	struct lpi_load_options options = {.bucket = "b",
					   .op = op,
					   .reads_percent = 50,
					   .object_bytes = OBJECT_BYTES,
					   .objects_cnt = OBJECTS,
					   .order = LPI_LOAD_UNIFORM,
					   .theta = 1,
					   .items_max = 10,
					   .depth = SLOTS,
					   .conns_cnt = 1,
					   .ops_max = 1,
					   .is_verified = true,
					   .seed = 11};
	lp_test_ok(lpi_load_sizes_parse(sizes, &options.sizes));
	return options;
}

static struct lpi_load *new_load(const struct lpi_load_options *options)
{
	struct lpi_load *load = NULL;
	assert_null(lpi_load_fault(options));
	lp_test_ok(lpi_load_new(options, &load));
	for (uint32_t i = 0; load->inos != NULL && i < OBJECTS; i++)
		load->inos[i] = FIRST_INO + i;
	memset(&store, 0, sizeof(store));
	return load;
}

/* --- A store ---------------------------------------------------------------------------------- */

static void carry_out(const struct lpi_load_slot *slot, size_t at)
{
	const struct lapis_request *request = &asked[at].request;
	struct lapis_result *result = &asked[at].result;
	uint64_t object = slot->object;
	asked[at].is_done = true;
	assert_true(object < OBJECTS);
	assert_true(request->path != NULL || request->ino == FIRST_INO + object);
	uint64_t offset = request->offset;
	switch (request->op) {
	case LAPIS_WRITE:
		assert_true(offset + request->data_bytes <= OBJECT_BYTES);
		memcpy(store.bytes[object] + offset, request->data, request->data_bytes);
		break;
	case LAPIS_PUT:
		assert_true(request->data_bytes <= OBJECT_BYTES);
		memcpy(store.bytes[object], request->data, request->data_bytes);
		store.len[object] = request->data_bytes;
		break;
	case LAPIS_GET:
		result->object_bytes = request->path == NULL ? OBJECT_BYTES : store.len[object];
		assert_true(offset <= result->object_bytes);
		result->data_bytes = LP_MIN(request->length, result->object_bytes - offset);
		assert_true(result->data_bytes <= request->buf_bytes);
		memcpy(request->buf, store.bytes[object] + offset, result->data_bytes);
		break;
	default:
		fail();
	}
}

/* False: nothing can begin now. */
static bool begin(struct lpi_load *load, size_t at)
{
	struct lpi_load_slot *slot = &load->slots[at];
	asked[at].request = (struct lapis_request){.path = asked[at].key};
	asked[at].result = (struct lapis_result){.status = 0, .text = ""};
	asked[at].is_done = false;
	*slot = (struct lpi_load_slot){.load = load, .buf = slot->buf, .floors = slot->floors};
	slot->is_under_way = load->step->next(load, slot, &asked[at].request) == LPI_LOAD_GO;
	return slot->is_under_way;
}

static int end(struct lpi_load *load, size_t at)
{
	struct lpi_load_slot *slot = &load->slots[at];
	if (!asked[at].is_done)
		carry_out(slot, at);
	slot->is_under_way = false;
	return load->step->done(load, slot, &asked[at].result);
}

/* So many steps, each of which begins, carries out or ends one. Returns how many began. */
static uint32_t run_some(struct lpi_load *load, uint32_t steps)
{
	struct lp_prng prng;
	uint32_t begun = 0;
	lp_prng_init(&prng, 99);
	load->step = &lpi_load_measured;
	for (uint32_t i = 0; i < steps; i++) {
		size_t at = lp_prng_below(&prng, SLOTS);
		if (!load->slots[at].is_under_way)
			begun += begin(load, at);
		else if (!asked[at].is_done && lp_prng_chance(&prng, 1, 2))
			carry_out(&load->slots[at], at);
		else
			assert_int_equal(end(load, at), 0);
	}
	for (size_t at = 0; at < SLOTS; at++) {
		if (load->slots[at].is_under_way)
			assert_int_equal(end(load, at), 0);
	}
	return begun;
}

/* All is written once, as preparation does. */
static void write_all(struct lpi_load *load)
{
	struct lpi_load_slot *slot = &load->slots[0];
	for (uint32_t i = 0; i < OBJECTS; i++) {
		asked[0].request = (struct lapis_request){.path = asked[0].key};
		asked[0].result = (struct lapis_result){.status = 0, .text = ""};
		slot->kind = load->inos != NULL ? LPI_LOAD_KIND_WRITE : LPI_LOAD_KIND_PUT;
		slot->is_new = false;
		slot->object = i;
		slot->offset = 0;
		slot->length = lpi_load_size_of(load, i, false);
		lpi_load_make_write(load, slot, &asked[0].request);
		carry_out(slot, 0);
		lp_test_ok(lpi_load_end_write(load, slot, &asked[0].result));
	}
}

/* --- A right store ---------------------------------------------------------------------------- */

static void test_right_answers(void **state)
{
	(void)state;
	static const struct {
		enum lpi_load_op op;
		const char *sizes;
		enum lpi_load_order order;
	} cases[] = {
		{LPI_LOAD_MIXED, "4K", LPI_LOAD_UNIFORM},
		{LPI_LOAD_MIXED, "64K", LPI_LOAD_UNIFORM},
		{LPI_LOAD_MIXED, "512-8K", LPI_LOAD_ZIPF},
		{LPI_LOAD_MIXED, "64:1,4K~16K:2", LPI_LOAD_SEQUENTIAL},
		{LPI_LOAD_PUTGET, "4K", LPI_LOAD_UNIFORM},
		{LPI_LOAD_PUTGET, "64-65536", LPI_LOAD_ZIPF},
		{LPI_LOAD_PUTGET, "64~10000", LPI_LOAD_SEQUENTIAL},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_load_options options = options_of(cases[i].op, cases[i].sizes);
		options.order = cases[i].order;
		struct lpi_load *load = new_load(&options);
		write_all(load);
		assert_true(run_some(load, 20000) > 2000);
		assert_int_equal(lpi_load_error_sum(load), 0);
		lpi_load_free(load);
	}
}

/* From front to back: each place once in a round, one file after the other. */
static void test_in_order(void **state)
{
	(void)state;
	struct lpi_load_options options = options_of(LPI_LOAD_READ, "12K");
	options.order = LPI_LOAD_SEQUENTIAL;
	struct lpi_load *load = new_load(&options);
	load->step = &lpi_load_measured;
	for (uint32_t i = 0; i < 32; i++) {
		assert_true(begin(load, 0));
		assert_int_equal(load->slots[0].object, i / 5 % OBJECTS);
		assert_int_equal(load->slots[0].offset, i % 5 * 12288);
	}
	lpi_load_free(load);
}

static void test_new_objects(void **state)
{
	(void)state;
	char key[LPI_LOAD_KEY_MAX];
	char other[LPI_LOAD_KEY_MAX];
	struct lpi_load_options options = options_of(LPI_LOAD_PUT, "64-8K");
	options.objects_cnt = 0;
	struct lpi_load *load = new_load(&options);
	load->step = &lpi_load_measured;
	for (uint32_t i = 0; i < OBJECTS; i++) {
		assert_true(begin(load, 0));
		assert_true(load->slots[0].is_new && load->slots[0].object == i);
		assert_int_equal(end(load, 0), 0);
	}
	lpi_load_key(load, 1, true, key);
	lpi_load_key(load, 2, true, other);
	assert_true(strncmp(key, "b/new.", 6) == 0 && strcmp(key, other) != 0);
	/* They are read back as what they are. */
	struct lpi_load_slot *slot = &load->slots[0];
	for (uint32_t i = 0; i < OBJECTS; i++) {
		asked[0].request = (struct lapis_request){.path = key};
		*slot = (struct lpi_load_slot){.load = load,
					       .kind = LPI_LOAD_KIND_GET,
					       .object = i,
					       .is_new = true,
					       .buf = slot->buf,
					       .floors = slot->floors};
		lpi_load_make_read(load, slot, &asked[0].request);
		carry_out(slot, 0);
		lp_test_ok(lpi_load_end_read(load, slot, &asked[0].result));
	}
	store.bytes[1][70] ^= 1;
	slot->object = 1;
	lpi_load_make_read(load, slot, &asked[0].request);
	carry_out(slot, 0);
	lp_test_err(-EBADMSG, lpi_load_end_read(load, slot, &asked[0].result));
	lpi_load_free(load);
}

/* --- A wrong one ------------------------------------------------------------------------------ */

/* Reads the whole of object 1. */
static int read_one(struct lpi_load *load)
{
	struct lpi_load_slot *slot = &load->slots[0];
	asked[0].request = (struct lapis_request){.path = asked[0].key};
	asked[0].result = (struct lapis_result){.status = 0, .text = ""};
	slot->kind = load->inos != NULL ? LPI_LOAD_KIND_READ : LPI_LOAD_KIND_GET;
	slot->is_new = false;
	slot->object = 1;
	slot->offset = 0;
	slot->length = OBJECT_BYTES;
	lpi_load_make_read(load, slot, &asked[0].request);
	carry_out(slot, 0);
	return lpi_load_end_read(load, slot, &asked[0].result);
}

static void expect_wrong(struct lpi_load *load, const char *key, const char *text)
{
	size_t cnt = 0;
	lp_test_err(-EBADMSG, read_one(load));
	const struct lpi_load_error *errors = lpi_load_errors(load, &cnt);
	assert_int_equal(cnt, 1);
	assert_int_equal(errors[0].cnt, 1);
	assert_string_equal(errors[0].key, key);
	if (strstr(errors[0].text, text) == NULL)
		fail_msg("no \"%s\" in: %s", text, errors[0].text);
	assert_int_equal(lpi_load_result(load)->mismatches, 1);
	lpi_load_free(load);
}

static struct lpi_load *written(const struct lpi_load_options *options)
{
	struct lpi_load *load = new_load(options);
	write_all(load);
	lp_test_ok(read_one(load));
	return load;
}

static void test_wrong_files(void **state)
{
	(void)state;
	static const char key[] = "b/vfile.0000000001";
	static uint8_t old[4096];
	struct lpi_load_options options = options_of(LPI_LOAD_MIXED, "4K");
	/* Torn. */
	struct lpi_load *load = written(&options);
	store.bytes[1][3 * 4096 + 2000] ^= 4;
	expect_wrong(load, key, "offset 12288: no data of this");
	/* Lost, that is old. */
	load = written(&options);
	memcpy(old, store.bytes[1] + 8192, sizeof(old));
	write_all(load);
	memcpy(store.bytes[1] + 8192, old, sizeof(old));
	expect_wrong(load, key, "offset 8192: an older version");
	/* In the wrong place, and of the wrong file. */
	load = written(&options);
	memcpy(store.bytes[1], store.bytes[1] + 4096, 4096);
	expect_wrong(load, key, "offset 0: data of another place");
	load = written(&options);
	memcpy(store.bytes[1] + 4096, store.bytes[2] + 4096, 4096);
	expect_wrong(load, key, "offset 4096: data of another object");
	/* Of an earlier run, where this one's write was acknowledged. */
	load = written(&options);
	load->run++;
	expect_wrong(load, key, "offset 0: data of an earlier run");
}

static void test_wrong_objects(void **state)
{
	(void)state;
	static const char key[] = "b/vobj.0000000001";
	struct lpi_load_options options = options_of(LPI_LOAD_PUTGET, "10000");
	struct lpi_load *load = written(&options);
	store.len[1] = 9999;
	expect_wrong(load, key, "offset 0: an object of another length");
	load = written(&options);
	store.len[1] = 40;
	expect_wrong(load, key, "offset 0: no data of this");
	/* Two versions in one. */
	static uint8_t old[10000];
	load = written(&options);
	memcpy(old, store.bytes[1], sizeof(old));
	write_all(load);
	memcpy(store.bytes[1] + 8192, old + 8192, sizeof(old) - 8192);
	expect_wrong(load, key, "offset 8192: not what belongs");
	/* All of it old. */
	load = written(&options);
	memcpy(old, store.bytes[1], sizeof(old));
	write_all(load);
	memcpy(store.bytes[1], old, sizeof(old));
	expect_wrong(load, key, "offset 0: an older version");
}

/* Reads without verify look at lengths, too. */
static void test_short_reads(void **state)
{
	(void)state;
	struct lpi_load_options options = options_of(LPI_LOAD_RANDREAD, "4K");
	options.is_verified = false;
	struct lpi_load *load = new_load(&options);
	struct lapis_result result = {.data_bytes = 4096, .object_bytes = OBJECT_BYTES, .text = ""};
	load->step = &lpi_load_measured;
	assert_true(begin(load, 0));
	assert_non_null(asked[0].request.sink);
	lp_test_ok(lpi_load_end_read(load, &load->slots[0], &result));
	result.data_bytes = 4000;
	assert_true(begin(load, 0));
	lp_test_err(-EBADMSG, lpi_load_end_read(load, &load->slots[0], &result));
	lpi_load_free(load);
}

/* --- The report ------------------------------------------------------------------------------- */

static void test_errors_are_kept(void **state)
{
	(void)state;
	size_t cnt = 0;
	struct lpi_load_options options = options_of(LPI_LOAD_PUTGET, "4K");
	struct lpi_load *load = new_load(&options);
	struct lpi_load_slot *slot = &load->slots[0];
	for (uint32_t i = 0; i < 3; i++) {
		slot->object = i;
		slot->kind = LPI_LOAD_KIND_PUT;
		assert_int_equal(lpi_load_note(load, slot, -ENOSPC, "full %u", i), -ENOSPC);
		slot->kind = LPI_LOAD_KIND_GET;
		(void)lpi_load_note(load, slot, -ENOSPC, "odd");
	}
	/* More kinds than there is room for. */
	for (int i = 1; i < 100; i++)
		(void)lpi_load_note(load, slot, -1000 - i, "strange");
	const struct lpi_load_error *errors = lpi_load_errors(load, &cnt);
	assert_int_equal(cnt, LPI_LOAD_KINDS_MAX);
	assert_string_equal(errors[0].text, "full 0");
	assert_string_equal(errors[0].key, "b/vobj.0000000000");
	assert_int_equal(errors[0].cnt, 3);
	assert_int_equal(lpi_load_error_sum(load), 6 + 99);
	lpi_load_free(load);
}

static double number(const char *text, const char *path)
{
	return lpi_cli_json_number(text, path);
}

static void test_json(void **state)
{
	(void)state;
	static const char stats[] =
		"{\"server\": \"lapisd 1\", \"allocator\": \"glibc\", \"store\": \"mem\","
		" \"shards_cnt\": 2, \"shards\": [{\"store\": {\"commits\": 3}},"
		" {\"store\": {\"commits\": 4}}], \"process\": {\"rss_bytes\": 5}}";
	char *text = NULL;
	size_t len = 0;
	char word[64];
	struct lpi_load_options options = options_of(LPI_LOAD_MIXED, "4K:1,8K-64K:2");
	struct lpi_load *load = new_load(&options);
	struct lpi_load_result *result = &load->result;
	for (uint64_t i = 1; i <= 1000; i++) {
		lp_hist_record(&result->all.latency_ns, i * 1000);
		lp_hist_record(&result->kinds[LPI_LOAD_KIND_READ].latency_ns, i * 1000);
	}
	result->all.ops = 1000;
	result->all.bytes = 4096000;
	result->kinds[LPI_LOAD_KIND_READ].ops = 1000;
	result->took_ns = UINT64_C(2000000000);
	result->user_ns = 3000000;
	result->system_ns = 1000000;
	(void)lpi_load_note(load, &load->slots[0], -EIO, "bad \"thing\"");
	FILE *to = open_memstream(&text, &len);
	assert_non_null(to);
	const struct lpi_load_report report = {.load = load, .stats_before = stats};
	lpi_load_report_json(to, &report);
	assert_int_equal(fclose(to), 0);
	assert_true(number(text, "ops") == 1000 && number(text, "errors") == 1);
	assert_true(number(text, "seconds") == 2 && number(text, "iops") == 500);
	assert_true(number(text, "bytes_per_s") == 2048000);
	assert_true(number(text, "latency_us.mean") == 500.5);
	assert_true(number(text, "latency_us.max") == 1000);
	assert_true(number(text, "latency_us.p50") >= 500 && number(text, "latency_us.p50") < 516);
	assert_true(number(text, "by_operation.read.ops") == 1000);
	assert_true(number(text, "client.cpu_us_per_op") == 4);
	assert_true(number(text, "server.before.commits") == 7);
	assert_string_equal(lpi_cli_json_text(text, "parameters.size", word, sizeof(word)),
			    "4096:1,8192-65536:2");
	assert_string_equal(lpi_cli_json_text(text, "error_kinds.0.first", word, sizeof(word)),
			    "bad \"thing\"");
	assert_string_equal(lpi_cli_json_text(text, "server.allocator", word, sizeof(word)),
			    "glibc");
	free(text);
	lpi_load_free(load);
}

static void test_second(void **state)
{
	(void)state;
	char line[200];
	const struct lpi_load_second second = {.from_s = 1,
					       .until_s = 3,
					       .ops = 2000,
					       .bytes = 8 << 20,
					       .p50_ns = 100000,
					       .p99_ns = 200000,
					       .max_ns = 3000000};
	lpi_load_report_second(line, sizeof(line), &second, 4);
	assert_string_equal(line, "     3 s       1000 /s       4.0 MiB/s   p50      100 us  p99   "
				  "   200 us  max     3000 us   errors 4");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_right_answers),   cmocka_unit_test(test_in_order),
		cmocka_unit_test(test_new_objects),     cmocka_unit_test(test_wrong_files),
		cmocka_unit_test(test_wrong_objects),   cmocka_unit_test(test_short_reads),
		cmocka_unit_test(test_errors_are_kept), cmocka_unit_test(test_json),
		cmocka_unit_test(test_second),
	};
	return lp_test_main(tests, "cli/bench/load");
}
