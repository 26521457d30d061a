/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a client that waits for a long copy hears that it goes on, if it wants to; its other
 * requests are answered meanwhile; and it may go at any moment.
 * Method: a source in many places, so that its copy takes many turns, each of which takes long. */
#include "native/door_test.h"

#define BUFS     (UINT64_C(64) << 20)
#define PLACES   400u
#define APART    (UINT64_C(64) << 20)
#define TURN_NS  (4 * LP_NS_PER_MS)
#define SIGN_MAX 100u

static void take_long(bool begins)
{
	const struct timespec pause = {.tv_nsec = (long)TURN_NS};
	if (begins)
		(void)nanosleep(&pause, NULL);
}

static struct lpi_client *open_hearing(struct lpi_door_rig *rig, uint64_t features)
{
	const struct lp_wire_hello hello = {.version_min = 1,
					    .version_max = 1,
					    .features = features,
					    .shard = LP_WIRE_ANY_SHARD};
	struct lp_wire_welcome welcome = {.features = 0};
	struct lpi_client *client = lpi_client_new(rig, 0);
	lp_wire_put_part(&client->meta, lp_wire_hello, &hello);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_HELLO, NULL, 0, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_welcome, &welcome));
	assert_int_equal(welcome.features, features);
	client->crc_mode = LP_WIRE_CRC_OFF;
	return client;
}

static void make_source(struct lpi_client *client)
{
	static const uint8_t data[LP_WIRE_BLOCK_BYTES] = {1};
	uint64_t ino = lpi_client_make(client, "from", LP_INODE_TYPE_FILE);
	for (uint64_t i = 0; i < PLACES; i++)
		lp_test_ok(
			lpi_client_result(client, lpi_client_send_write(client, ino, "", data,
									sizeof(data), i * APART)));
}

static uint64_t send_copy(struct lpi_client *client)
{
	struct lp_wire_two two = {.condition = LP_WIRE_IF_ANY};
	LPI_CLIENT_REF(two.ref, 0, "from");
	LPI_CLIENT_REF(two.to, 0, "to");
	lp_wire_put_part(&client->meta, lp_wire_two, &two);
	lpi_client_put_text(client, "from");
	lpi_client_put_text(client, "to");
	return lpi_client_send(client, LP_WIRE_OP_COPY, 0, NULL, 0, 0);
}

/* The copy goes on while others are answered: how many of them, and how many signs of it. */
static void copy_beside(uint64_t features, uint32_t *ret_signs, uint32_t *ret_others)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = open_hearing(rig, features);
	make_source(client);
	*ret_signs = 0;
	*ret_others = 0;
	rig->around = take_long;
	uint64_t copy = send_copy(client);
	uint64_t other = lpi_client_send(client, LP_WIRE_OP_PING, 0, NULL, 0, 0);
	for (;;) {
		assert_true(lpi_client_recv(client));
		assert_int_equal(client->reply.status, 0);
		bool is_sign = (client->reply.flags & LP_WIRE_FLAG_MORE) != 0;
		if (client->reply.request_id == other) {
			assert_false(is_sign);
			(*ret_others)++;
			other = lpi_client_send(client, LP_WIRE_OP_PING, 0, NULL, 0, 0);
			continue;
		}
		assert_int_equal(client->reply.request_id, copy);
		if (!is_sign)
			break;
		assert_int_equal(client->reply.meta_bytes, 0);
		assert_true(++(*ret_signs) < SIGN_MAX);
	}
	struct lp_wire_attrs attrs = lpi_client_attrs(client);
	assert_int_equal(attrs.size_bytes, (PLACES - 1) * APART + LP_WIRE_BLOCK_BYTES);
	assert_int_equal(attrs.blocks, PLACES);
	rig->around = NULL;
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void test_signs(void **state)
{
	uint32_t signs = 0;
	uint32_t others = 0;
	(void)state;
	copy_beside(LP_WIRE_FEATURE_GOES_ON, &signs, &others);
	assert_true(signs > 0);
	assert_true(others > 10);
}

/* Who did not ask for signs would take one for the answer. */
static void test_no_signs(void **state)
{
	uint32_t signs = 0;
	uint32_t others = 0;
	(void)state;
	copy_beside(0, &signs, &others);
	assert_int_equal(signs, 0);
	assert_true(others > 10);
}

/* The client goes when a sign is on its way that nobody will read: at each moment until then, and
 * behind it. All is given back. */
static void test_gone(void **state)
{
	(void)state;
	for (uint32_t signs = 0; signs < 2; signs++) {
		struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
		struct lpi_client *client = open_hearing(rig, LP_WIRE_FEATURE_GOES_ON);
		make_source(client);
		rig->around = take_long;
		uint64_t copy = send_copy(client);
		for (uint32_t i = 0; i < signs; i++) {
			lp_test_ok(lpi_client_result(client, copy));
			assert_true((client->reply.flags & LP_WIRE_FLAG_MORE) != 0);
		}
		rig->around = NULL;
		lpi_client_free(client);
		lpi_door_rig_free(rig);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_signs),
		cmocka_unit_test(test_no_signs),
		cmocka_unit_test(test_gone),
	};
	return lp_test_main(tests, "native/conn_send");
}
