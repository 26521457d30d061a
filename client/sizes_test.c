/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a struct that the caller fills in is understood as a whole or refused, whichever function
 * it is given to: none without a size, and none of a later version that says what is not known
 * here; and a value that is too long for an older daemon is not sent. Method: the
 * scripted daemon, which sees what was asked.
 */
#include "client/fake_test.h"

struct longer_request {
	struct lapis_request request;
	uint64_t later;
};

static int submit(struct lapis *lapis, const struct lapis_request *request)
{
	return lapis_submit(lapis, request, NULL);
}

static int call(struct lapis *lapis, const struct lapis_request *request)
{
	struct lapis_result result = {.size = sizeof(result)};
	int err = lapis_call(lapis, request, &result);
	/* Also of what was not begun: nobody takes it for a success. */
	assert_int_equal(result.status, err);
	assert_non_null(result.text);
	lapis_result_fini(&result);
	return err;
}

static void check_request(struct lpi_fake_rig *rig,
			  int (*ask)(struct lapis *lapis, const struct lapis_request *request))
{
	struct longer_request longer = {.request = {.size = sizeof(longer), .op = LAPIS_PING}};
	uint32_t pings = rig->fake.requests[LP_WIRE_OP_PING];
	lp_test_ok(ask(rig->lapis, &longer.request));
	lp_test_ok(lapis_ping(rig->lapis));
	longer.later = 1;
	lp_test_err(-EINVAL, ask(rig->lapis, &longer.request));
	longer.request.size = sizeof(size_t);
	lp_test_err(-EINVAL, ask(rig->lapis, &longer.request));
	longer.request.size = 0;
	lp_test_err(-EINVAL, ask(rig->lapis, &longer.request));
	longer.request.size = sizeof(longer.request);
	longer.request.op = 99;
	lp_test_err(-EINVAL, ask(rig->lapis, &longer.request));
	lp_test_ok(lapis_ping(rig->lapis));
	assert_int_equal(rig->fake.requests[LP_WIRE_OP_PING], pings + 3);
}

static void test_request(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	lpi_fake_rig_init(&rig);
	lpi_fake_start(&rig.fake);
	check_request(&rig, submit);
	check_request(&rig, call);
	lpi_fake_stop(&rig.fake);
	lpi_fake_rig_fini(&rig);
}

static int64_t give_nothing(void *arg, void *buf, size_t len)
{
	(void)arg;
	(void)buf;
	(void)len;
	return 0;
}

/* A put that was to be the first of its name does not overwrite. */
static void test_put_options(void **state)
{
	(void)state;
	struct lpi_fake_rig rig;
	struct {
		struct lapis_put_options options;
		uint64_t later;
	} longer = {.options = {.size = sizeof(longer), .condition = LAPIS_IF_ABSENT}};
	const struct lapis_put_options *options = &longer.options;
	lpi_fake_rig_init(&rig);
	lpi_fake_start(&rig.fake);
	lp_test_ok(lapis_put(rig.lapis, "b/a", "first", 5, options, NULL));
	lp_test_err(-EEXIST, lapis_put(rig.lapis, "b/a", "x", 1, options, NULL));
	longer.later = 1;
	lp_test_err(-EINVAL, lapis_put(rig.lapis, "b/a", "x", 1, options, NULL));
	longer.options.size = 0;
	lp_test_err(-EINVAL, lapis_put(rig.lapis, "b/a", "x", 1, options, NULL));
	assert_non_null(strstr(lapis_error_text(), "size"));
	lp_test_err(-EINVAL, lapis_put_from(rig.lapis, "b/a", give_nothing, NULL, options, NULL));
	lpi_fake_stop(&rig.fake);
	assert_int_equal(rig.fake.objects[0].len, 5);
	assert_int_equal(rig.fake.requests[LP_WIRE_OP_PUT], 2);
	lpi_fake_rig_fini(&rig);
}

static void test_options(void **state)
{
	(void)state;
	struct lapis *lapis = NULL;
	struct {
		struct lapis_options options;
		uint64_t later;
	} longer = {.options = {.size = sizeof(longer), .address = "unix:x"}};
	lp_test_ok(lapis_open(&longer.options, &lapis));
	lapis_close(lapis);
	longer.later = 1;
	lp_test_err(-EINVAL, lapis_open(&longer.options, &lapis));
	longer.options.size = 0;
	lp_test_err(-EINVAL, lapis_open(&longer.options, &lapis));
}

/* A value that only a newer daemon takes. */
static bool take_value(struct lpi_fake *fake, struct lpi_fake_request *req)
{
	struct lp_wire_named named;
	if (req->header.opcode != LP_WIRE_OP_XATTR_SET)
		return false;
	lp_wire_named_decode(req->meta, &named);
	assert_true(fake->features != 0 || req->header.meta_bytes <= LP_WIRE_META_MAX);
	assert_int_equal(named.value_bytes,
			 req->header.meta_bytes - LP_WIRE_NAMED_SIZE - 1 - named.name_bytes);
	lpi_fake_plain(fake, req, NULL, 0);
	return true;
}

static int set_value(struct lpi_fake_rig *rig, size_t bytes)
{
	static const uint8_t value[LP_WIRE_VALUE_MAX];
	return lpi_fake_rig_ask(rig, (struct lapis_request){.op = LAPIS_XATTR_SET,
							    .path = "o",
							    .name = "user.x",
							    .value = value,
							    .value_bytes = bytes});
}

static void test_long_values(void **state)
{
	(void)state;
	for (uint64_t features = 0; features <= LP_WIRE_FEATURE_LONG_META; features++) {
		struct lpi_fake_rig rig;
		lpi_fake_rig_init(&rig);
		rig.fake.features = features;
		rig.fake.hook = take_value;
		lp_test_ok(set_value(&rig, 60000));
		assert_int_equal(set_value(&rig, LP_WIRE_VALUE_MAX), features == 0 ? -EMSGSIZE : 0);
		/* The connection lives on. */
		lp_test_ok(set_value(&rig, 60000));
		assert_int_equal(rig.fake.conns_ever, 1);
		assert_int_equal(rig.fake.requests[LP_WIRE_OP_XATTR_SET], features == 0 ? 2 : 3);
		lpi_fake_rig_fini(&rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_long_values),
		cmocka_unit_test(test_request),
		cmocka_unit_test(test_put_options),
		cmocka_unit_test(test_options),
	};
	return lp_test_main(tests, "client/sizes");
}
