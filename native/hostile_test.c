/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that misbehave: each is told, or closed, as the page of the wire says; none hurts others,
 * and what they hold is bounded (promises P5, P7). */
#include <malloc.h>
#include <sys/resource.h>

#include "base/crc32c.h"
#include "native/door_test.h"
#include "native/ops.h"

#define BUFS (UINT64_C(32) << 20)

/* A sealed header with one byte changed afterwards, its checksum made right again. */
static void send_bent(struct lpi_client *client, struct lp_wire_header header, uint32_t at,
		      uint8_t value, bool repair)
{
	uint8_t head[LP_WIRE_HEADER_SIZE];
	lp_wire_header_seal(&header, client->crc_mode, "", head);
	head[at] = value;
	if (repair)
		lp_put_le32(head + LP_WIRE_HEADER_HEADER_CRC_OFF,
			    lp_crc32c(0, head, LP_WIRE_HEADER_HEADER_CRC_OFF));
	lpi_client_send_bytes(client, head, sizeof(head));
}

/* One reply with opcode 0, and then the end. */
static void assert_parted(struct lpi_client *client, int err)
{
	assert_true(lpi_client_recv(client));
	assert_int_equal(client->reply.opcode, 0);
	assert_int_equal(client->reply.request_id, 0);
	assert_int_equal(client->reply.status, -err);
	assert_true(client->reply.meta_bytes > 0);
	assert_false(lpi_client_recv(client));
}

static void a_stream_that_cannot_be_read_is_closed(void **state)
{
	static const struct {
		uint32_t at;
		uint8_t value;
		bool repair;
		int err;
	} cases[] = {
		{LP_WIRE_HEADER_MAGIC_OFF, 0x11, true, -EPROTO},
		{LP_WIRE_HEADER_VERSION_OFF, 2, true, -EPROTONOSUPPORT},
		{LP_WIRE_HEADER_KIND_OFF, LP_WIRE_KIND_REPLY, true, -EPROTO},
		{LP_WIRE_HEADER_KIND_OFF, 9, true, -EPROTO},
		{LP_WIRE_HEADER_RESERVED_OFF, 1, true, -EPROTO},
		{LP_WIRE_HEADER_REQUEST_ID_OFF, 1, false, -EBADMSG},
		{LP_WIRE_HEADER_META_BYTES_OFF + 3, 0xff, true, -EMSGSIZE}, /* 4 GiB */
		{LP_WIRE_HEADER_DATA_BYTES_OFF + 3, 0xff, true, -EMSGSIZE},
		{LP_WIRE_HEADER_CRC_CNT_OFF + 3, 0xff, true, -EMSGSIZE},
	};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
		send_bent(client, lpi_client_header(LP_WIRE_OP_PING), cases[i].at, cases[i].value,
			  cases[i].repair);
		assert_parted(client, cases[i].err);
		lpi_client_free(client);
		lp_test_ok(lpi_client_do(good, LP_WIRE_OP_PING, NULL, 0, 0));
	}
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

static void a_damaged_meta_closes(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_STAT);
	uint8_t message[LP_WIRE_HEADER_SIZE + LP_WIRE_REF_SIZE] = {0};
	(void)state;
	header.meta_bytes = LP_WIRE_REF_SIZE;
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, message + LP_WIRE_HEADER_SIZE, message);
	message[LP_WIRE_HEADER_SIZE] = 1;
	lpi_client_send_bytes(client, message, sizeof(message));
	assert_parted(client, -EBADMSG);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void nothing_goes_before_hello(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_new(rig, 0);
	struct lp_wire_hello hello = {.version_min = 2, .version_max = 3, .shard = 0xffffffff};
	(void)state;
	(void)lpi_client_send(client, LP_WIRE_OP_PING, 0, NULL, 0, 0);
	assert_parted(client, -EPROTO);
	lpi_client_free(client);
	/* A hello that is refused is answered, and the end. */
	for (int i = 0; i < 3; i++) {
		client = lpi_client_new(rig, 0);
		lp_wire_put_part(&client->meta, lp_wire_hello, &hello);
		lp_test_err(i == 0   ? -EPROTONOSUPPORT
			    : i == 1 ? -EOPNOTSUPP
				     : -EINVAL,
			    lpi_client_do(client, LP_WIRE_OP_HELLO, NULL, 0, 0));
		assert_false(lpi_client_recv(client));
		lpi_client_free(client);
		hello.version_min = 1;
		hello.auth = i == 0 ? 1 : 0;
		hello.shard = 5;
	}
	lpi_door_rig_free(rig);
}

static int do_bent(struct lpi_client *client, struct lp_wire_header header, const void *data)
{
	uint8_t head[LP_WIRE_HEADER_SIZE];
	lp_wire_header_seal(&header, client->crc_mode, "", head);
	lpi_client_send_bytes(client, head, sizeof(head));
	lpi_client_send_bytes(client, data, header.data_bytes);
	return lpi_client_result(client, header.request_id);
}

/* So is one that is refused for what its header says. */
static void a_hello_with_a_wrong_header_is_the_end(void **state)
{
	const struct lp_wire_header right = lpi_client_header(LP_WIRE_OP_HELLO);
	const struct lp_wire_hello hello = {
		.version_min = 1, .version_max = 1, .shard = LP_WIRE_ANY_SHARD};
	struct lp_wire_header cases[] = {right, right, right, right, right};
	const int errs[] = {-EOPNOTSUPP, -EOPNOTSUPP, -EINVAL, -EINVAL, -EINVAL};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	uint8_t message[LP_WIRE_HEADER_SIZE + LP_WIRE_HELLO_SIZE];
	(void)state;
	cases[0].flags = 0x80000000;
	cases[1].flags = LP_WIRE_FLAG_MORE;
	cases[2].status = 1;
	cases[3].shard = 1;
	cases[4].offset = 1;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_client *client = lpi_client_new(rig, 0);
		cases[i].meta_bytes = LP_WIRE_HELLO_SIZE;
		lp_wire_hello_encode(&hello, message + LP_WIRE_HEADER_SIZE);
		lp_wire_header_seal(&cases[i], LP_WIRE_CRC_HEADER, message + LP_WIRE_HEADER_SIZE,
				    message);
		lpi_client_send_bytes(client, message, sizeof(message));
		lp_test_err(errs[i], lpi_client_result(client, cases[i].request_id));
		assert_false(lpi_client_recv(client));
		lpi_client_free(client);
	}
	/* One that is too late is no end. */
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	lpi_client_send_bytes(client, message, sizeof(message));
	lp_test_err(-EINVAL, lpi_client_result(client, right.request_id));
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_PING, NULL, 0, 0));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* What is wrong with one message alone is answered, and the connection lives on. */
static void a_wrong_request_is_answered(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint8_t *data = calloc(1, LP_WIRE_DATA_MAX);
	struct lp_wire_header header = lpi_client_header(4711);
	(void)state;
	lp_test_err(-ENOSYS, do_bent(client, header, NULL));
	/* With data, which is read to its end. */
	header.data_bytes = LP_WIRE_DATA_MAX;
	lp_test_err(-ENOSYS, do_bent(client, header, data));
	header = lpi_client_header(LP_WIRE_OP_AUTH);
	lp_test_err(-ENOSYS, do_bent(client, header, NULL));
	header = lpi_client_header(LP_WIRE_OP_PING);
	header.data_bytes = 100000;
	lp_test_err(-EINVAL, do_bent(client, header, data));
	header = lpi_client_header(LP_WIRE_OP_PING);
	header.flags = 0x80000000;
	lp_test_err(-EOPNOTSUPP, do_bent(client, header, NULL));
	header.flags = LP_WIRE_FLAG_MORE;
	lp_test_err(-EOPNOTSUPP, do_bent(client, header, NULL));
	header = lpi_client_header(LP_WIRE_OP_PING);
	header.status = 1;
	lp_test_err(-EINVAL, do_bent(client, header, NULL));
	header = lpi_client_header(LP_WIRE_OP_PING);
	header.offset = 1;
	lp_test_err(-EINVAL, do_bent(client, header, NULL));
	header = lpi_client_header(LP_WIRE_OP_WRITE);
	header.offset = UINT64_MAX - 10;
	header.data_bytes = 100;
	lp_test_err(-EFBIG, do_bent(client, header, data));
	/* Checksums that were agreed on are missing. */
	struct lpi_client *all = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	header = lpi_client_header(LP_WIRE_OP_WRITE);
	header.data_bytes = 100;
	lp_test_err(-EINVAL, do_bent(all, header, data));
	assert_true(lpi_client_says(all, "checksums"));
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_PING, NULL, 0, 0));
	lp_test_ok(lpi_client_do(all, LP_WIRE_OP_PING, NULL, 0, 0));
	free(data);
	lpi_client_free(all);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* Metas of every opcode that are too short, too long, or lie about the lengths in them. */
static void wrong_metas_are_refused(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	const struct lpi_opcode *opcode = NULL;
	uint8_t bytes[300];
	(void)state;
	for (uint32_t i = 0; (opcode = lpi_opcode_at(i)) != NULL; i++) {
		if (opcode->code == LP_WIRE_OP_HELLO)
			continue;
		for (uint32_t len = 1; len <= sizeof(bytes); len += 13) {
			memset(bytes, 0xff, sizeof(bytes));
			lp_writer_bytes(&client->meta, bytes, len);
			lp_test_err(-EINVAL, lpi_client_do(client, opcode->code, NULL, 0, 0));
			/* A path that would be longer than the meta. */
			memset(bytes, 0, sizeof(bytes));
			bytes[8] = 0xff;
			bytes[9] = 0x01;
			lp_writer_bytes(&client->meta, bytes, len);
			int r = lpi_client_do(client, opcode->code, NULL, 0, 0);
			assert_true(r < 0);
		}
	}
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_PING, NULL, 0, 0));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* A message in any pieces is one. */
static void a_message_may_come_byte_by_byte(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	struct lp_wire_write write = {.append = 0};
	uint8_t message[LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE + 5000];
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_WRITE);
	(void)state;
	header.meta_bytes = LP_WIRE_WRITE_SIZE;
	header.data_bytes = 5000;
	LPI_CLIENT_REF(write.ref, ino, "");
	lp_wire_write_encode(&write, message + LP_WIRE_HEADER_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, message + LP_WIRE_HEADER_SIZE, message);
	lpi_client_fill(message + LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE, 5000, 9);
	for (size_t i = 0; i < 300; i++) {
		lpi_client_send_bytes(client, message + i, 1);
		for (int j = 0; j < 3; j++)
			lpi_door_rig_turn(rig);
	}
	lpi_client_send_bytes(client, message + 300, sizeof(message) - 300);
	lp_test_ok(lpi_client_result(client, header.request_id));
	uint64_t id = lpi_client_send_get(client, ino, "", 0, 10000);
	assert_int_equal(lpi_client_recv_get(client, id, 0, client->data, 10000), 5000);
	assert_memory_equal(client->data, message + LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE, 5000);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* Half of something, and then silence: others are served, and it is closed after a time. */
static void half_a_message_hurts_nobody(void **state)
{
	const struct lp_door_options options = {.requests_max = 16,
						.send_timeout_ns = 300 * LP_NS_PER_MS};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *bad[24];
	uint8_t head[LP_WIRE_HEADER_SIZE];
	uint8_t message[LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE + 10] = {0};
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_WRITE);
	struct lp_door_stats stats;
	(void)state;
	header.meta_bytes = LP_WIRE_WRITE_SIZE;
	header.data_bytes = LP_WIRE_DATA_MAX;
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, message + LP_WIRE_HEADER_SIZE, message);
	memcpy(head, message, sizeof(head));
	/* More than there are requests: some say half a header, some hold 4 MiB each. */
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		bad[i] = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		if (i % 3 == 0)
			lpi_client_send_bytes(bad[i], head, 33);
		else
			lpi_client_send_bytes(bad[i], message, sizeof(message));
	}
	for (int i = 0; i < 20; i++)
		lp_test_ok(lpi_client_result(
			good, lpi_client_send_put(good, "k", "some data of a good client", 26)));
	LPI_DOOR_UNTIL(rig, (lp_door_read_stats(rig->door[0], &stats), stats.conns == 1));
	assert_true(stats.timeouts >= LP_ARRAY_SIZE(bad));
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		assert_parted(bad[i], -ETIMEDOUT);
		lpi_client_free(bad[i]);
	}
	lp_test_ok(lpi_client_do(good, LP_WIRE_OP_PING, NULL, 0, 0));
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

#define DRIP_NS   (100 * LP_NS_PER_MS)
#define DRIPS_MAX 200

/* A message of the longest data, of which a byte comes now and then. */
struct drip {
	struct lpi_client *client;
	uint8_t message[LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE + 1000];
	size_t at;
};

static void drip_begin(struct drip *drip, struct lpi_client *client, uint32_t data_bytes, size_t at)
{
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_WRITE);
	struct lp_wire_write write = {.append = 0};
	memset(drip, 0, sizeof(*drip));
	drip->client = client;
	header.meta_bytes = LP_WIRE_WRITE_SIZE;
	header.data_bytes = data_bytes;
	LPI_CLIENT_REF(write.ref, 0, "");
	lp_wire_write_encode(&write, drip->message + LP_WIRE_HEADER_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, drip->message + LP_WIRE_HEADER_SIZE,
			    drip->message);
	lpi_client_send_bytes(client, drip->message, at);
	drip->at = at;
}

/* It may have been closed. */
static void drip_on(struct drip *drip)
{
	if (drip->at < sizeof(drip->message) &&
	    send(drip->client->fd, drip->message + drip->at, 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1)
		drip->at++;
}

/* One byte more of each, and the door's turns until the next; false: the answer is there. */
static bool drip_all(struct drip *drips, size_t cnt, const struct lpi_client *good)
{
	struct pollfd fd = {.fd = good == NULL ? -1 : good->fd, .events = POLLIN};
	uint64_t until_ns = lp_clock_mono_ns(lp_clock_system()) + DRIP_NS;
	for (size_t i = 0; i < cnt; i++)
		drip_on(&drips[i]);
	while (lp_clock_mono_ns(lp_clock_system()) < until_ns) {
		lpi_door_rig_turn(drips[0].client->rig);
		if (good != NULL && poll(&fd, 1, 1) == 1)
			return false;
	}
	return true;
}

/* Who is never silent, but does not come to an end either, is in the way of others in the same
 * manner. */
static void a_byte_now_and_then_hurts_nobody(void **state)
{
	const struct lp_door_options options = {.requests_max = 16,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	static struct drip drips[24];
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lp_door_stats stats;
	int tries = 0;
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(drips); i++)
		drips[i].client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	for (size_t i = 0; i < LP_ARRAY_SIZE(drips); i++) {
		size_t in_data = LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE + 10;
		drip_begin(&drips[i], drips[i].client, LP_WIRE_DATA_MAX,
			   i % 3 == 0 ? LP_WIRE_HEADER_SIZE + 1 : in_data);
	}
	uint64_t id = lpi_client_send_put(good, "k", "some data of a good client", 26);
	while (tries < DRIPS_MAX && drip_all(drips, LP_ARRAY_SIZE(drips), good))
		tries++;
	assert_true(tries < DRIPS_MAX);
	lp_test_ok(lpi_client_result(good, id));
	lp_door_read_stats(rig->door[0], &stats);
	assert_true(stats.timeouts > 0);
	for (size_t i = 0; i < LP_ARRAY_SIZE(drips); i++)
		lpi_client_free(drips[i].client);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

/* Where nobody waits a client may be as slow as it likes, as long as it is not silent. */
static void a_slow_client_in_nobodys_way_is_served(void **state)
{
	const struct lp_door_options options = {.send_timeout_ns = 700 * LP_NS_PER_MS};
	static struct drip drip;
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lp_door_stats stats;
	(void)state;
	drip_begin(&drip, lpi_client_open(rig, LP_WIRE_CRC_HEADER), 1000, 3);
	for (int i = 0; i < 35; i++)
		(void)drip_all(&drip, 1, NULL);
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.timeouts, 0);
	lpi_client_send_bytes(drip.client, drip.message + drip.at, sizeof(drip.message) - drip.at);
	lp_test_err(-EISDIR, lpi_client_result(drip.client, 7));
	lpi_client_free(drip.client);
	lpi_door_rig_free(rig);
}

/* One that asks and asks and reads nothing is not read from, and closed after a time; what it has
 * in buffers is bounded, and others are served meanwhile. */
static void who_never_reads_is_closed(void **state)
{
	/* Long enough to be throttled first, also under a sanitizer on a machine that is busy. */
	const struct lp_door_options options = {.send_timeout_ns = 3 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lpi_client *bad = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint8_t *data = calloc(1, LP_WIRE_PIECE_MAX);
	uint8_t message[LPI_CLIENT_GET_BYTES];
	struct lp_door_stats stats;
	(void)state;
	uint64_t ino = lpi_client_make_large(good, 8);
	lpi_client_seal_get(ino, 7, message);
	/* As long as it can say more, and a bit. */
	for (int idle = 0; idle < 1000; idle++) {
		if (send(bad->fd, message, sizeof(message), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
			idle = 0;
		lpi_door_rig_turn(rig);
	}
	lp_door_read_stats(rig->door[0], &stats);
	assert_true(stats.requests_under_way <= 256);
	assert_true(rig->door[0]->reply_bytes <= rig->door[0]->reply_bytes_max);
	assert_true(stats.throttled > 0);
	for (int i = 0; i < 20; i++)
		lp_test_ok(lpi_client_do(good, LP_WIRE_OP_PING, NULL, 0, 0));
	LPI_DOOR_UNTIL(rig, (lp_door_read_stats(rig->door[0], &stats), stats.conns == 1));
	assert_int_equal(stats.timeouts, 1);
	assert_int_equal(rig->door[0]->reply_bytes, 0);
	uint64_t id = lpi_client_send_get(good, ino, "", 0, 4096);
	assert_int_equal(lpi_client_recv_get(good, id, 0, data, 4096), 4096);
	free(data);
	lpi_client_free(bad);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

/* However many read nothing: none of them is closed yet, and whoever comes next is answered. */
static void many_who_never_read_leave_room(void **state)
{
	const struct lp_door_options options = {.requests_max = 64,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lpi_client *bad[6];
	uint8_t *data = calloc(1, LP_WIRE_PIECE_MAX);
	uint8_t message[LPI_CLIENT_GET_BYTES];
	struct lp_door_stats stats;
	(void)state;
	uint64_t ino = lpi_client_make_large(good, 4);
	lpi_client_seal_get(ino, 7, message);
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		bad[i] = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	for (int idle = 0; idle < 1000; idle++) {
		for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
			if (send(bad[i]->fd, message, sizeof(message),
				 MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
				idle = 0;
		lpi_door_rig_turn(rig);
	}
	lp_door_read_stats(rig->door[0], &stats);
	assert_true(stats.requests_under_way < 64);
	assert_true(rig->door[0]->reply_bytes + LP_WIRE_PIECE_MAX <= rig->door[0]->reply_bytes_max);
	for (int i = 0; i < 20; i++) {
		lp_test_ok(lpi_client_do(good, LP_WIRE_OP_PING, NULL, 0, 0));
		uint64_t id = lpi_client_send_get(good, ino, "", 0, LP_WIRE_PIECE_MAX);
		assert_int_equal(lpi_client_recv_get(good, id, 0, data, LP_WIRE_PIECE_MAX),
				 LP_WIRE_PIECE_MAX);
	}
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.timeouts, 0);
	assert_int_equal(stats.conns, LP_ARRAY_SIZE(bad) + 1);
	free(data);
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		lpi_client_free(bad[i]);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

#define GREEDY_CNT  40u
#define GREEDY_GETS 8u

/* More of them than there is room for large replies, each with all the requests that it can get:
 * the next of them is greeted all the same, and a small get finds room. */
static void the_greedy_leave_room_for_the_modest(void **state)
{
	const struct lp_door_options options = {.requests_max = 256,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lpi_client *bad[GREEDY_CNT];
	uint8_t *data = calloc(1, LP_WIRE_PIECE_MAX);
	uint8_t messages[GREEDY_GETS * LPI_CLIENT_GET_BYTES];
	struct lp_door_stats stats;
	(void)state;
	uint64_t ino = lpi_client_make_large(good, 4);
	lp_test_ok(lpi_client_result(good, lpi_client_send_put(good, "small", data, 20000)));
	for (uint64_t i = 0; i < GREEDY_GETS; i++)
		lpi_client_seal_get(ino, i + 7, messages + i * LPI_CLIENT_GET_BYTES);
	for (uint32_t i = 0; i < GREEDY_CNT; i++) {
		bad[i] = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
		lpi_client_send_bytes(bad[i], messages, sizeof(messages));
		for (int turn = 0; turn < 10; turn++)
			lpi_door_rig_turn(rig);
	}
	/* On a slow machine some are closed by now: that makes more room. */
	lp_door_read_stats(rig->door[0], &stats);
	assert_true(stats.requests_under_way < 256);
	assert_true(rig->door[0]->reply_bytes + LPI_SMALL_BYTES <= rig->door[0]->reply_bytes_max);
	lp_test_ok(lpi_client_do(good, LP_WIRE_OP_PING, NULL, 0, 0));
	uint64_t id = lpi_client_send_get(good, 0, "small", 0, UINT64_MAX);
	assert_int_equal(lpi_client_recv_get(good, id, 0, data, LP_WIRE_PIECE_MAX), 20000);
	free(data);
	for (uint32_t i = 0; i < GREEDY_CNT; i++)
		lpi_client_free(bad[i]);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

#define SIP_BYTES 2048 /* what a socket holds */

/* Who reads all the time, but so slowly that it comes to the same, makes room as well. */
static void a_sip_now_and_then_hurts_nobody(void **state)
{
	const struct lp_door_options options = {.requests_max = 256,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	static struct drip none[GREEDY_CNT];
	uint8_t messages[GREEDY_GETS * LPI_CLIENT_GET_BYTES];
	uint8_t sip[SIP_BYTES];
	struct lp_door_stats stats;
	int tries = 0;
	(void)state;
	uint64_t ino = lpi_client_make_large(good, 4);
	rig->send_bytes = SIP_BYTES;
	for (uint64_t i = 0; i < GREEDY_GETS; i++)
		lpi_client_seal_get(ino, i + 7, messages + i * LPI_CLIENT_GET_BYTES);
	for (uint32_t i = 0; i < GREEDY_CNT; i++) {
		none[i] = (struct drip){.client = lpi_client_open(rig, LP_WIRE_CRC_HEADER),
					.at = sizeof(none[i].message)};
		lpi_client_send_bytes(none[i].client, messages, sizeof(messages));
		for (int turn = 0; turn < 10; turn++)
			lpi_door_rig_turn(rig);
	}
	uint64_t id = lpi_client_send_get(good, ino, "", 0, LP_WIRE_PIECE_MAX);
	for (; tries < DRIPS_MAX && drip_all(none, GREEDY_CNT, good); tries++)
		for (uint32_t i = 0; i < GREEDY_CNT; i++)
			(void)recv(none[i].client->fd, sip, sizeof(sip), MSG_DONTWAIT);
	assert_true(tries < DRIPS_MAX);
	uint8_t *data = calloc(1, LP_WIRE_PIECE_MAX);
	assert_int_equal(lpi_client_recv_get(good, id, 0, data, LP_WIRE_PIECE_MAX),
			 LP_WIRE_PIECE_MAX);
	lp_door_read_stats(rig->door[0], &stats);
	assert_true(stats.timeouts > 0);
	free(data);
	for (uint32_t i = 0; i < GREEDY_CNT; i++)
		lpi_client_free(none[i].client);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

/* A client that sends more than its credits is served, in its time; and so is the other one. */
static void credits_bound_what_is_under_way(void **state)
{
	const struct lp_door_options options = {.requests_max = 8, .credits_max = 4};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *one = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lpi_client *two = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint8_t data[8192];
	struct lp_door_stats stats;
	(void)state;
	lpi_client_fill(data, sizeof(data), 1);
	uint64_t ino = lpi_client_make(one, "file", LP_INODE_TYPE_FILE);
	/* All of it in the socket before the door looks. */
	uint64_t first = one->request_id + 1;
	for (int i = 0; i < 50; i++)
		(void)lpi_client_send_write(one, ino, "", data, sizeof(data), 0);
	for (int i = 0; i < 50; i++)
		lp_test_ok(lpi_client_result(two,
					     lpi_client_send_write(two, ino, "", data, 100, 9000)));
	for (int i = 0; i < 50; i++) {
		assert_true(lpi_client_recv(one));
		assert_int_equal(one->reply.status, 0);
		assert_true(one->reply.request_id >= first);
		lp_door_read_stats(rig->door[0], &stats);
		assert_true(stats.requests_under_way <= 8);
	}
	lp_test_ok(lp_door_set_requests_max(rig->door[0], 4));
	lp_test_err(-EINVAL, lp_door_set_requests_max(rig->door[0], 0));
	lp_test_ok(lpi_client_do(two, LP_WIRE_OP_PING, NULL, 0, 0));
	lpi_client_free(one);
	lpi_client_free(two);
	lpi_door_rig_free(rig);
}

/* As many pings as are asked for, in one write, each of which waits for the credit of the one
 * before it: all of them are answered, although no byte follows the last one. */
static void send_pings(struct lpi_client *client, uint64_t cnt)
{
	uint8_t message[8 * LP_WIRE_HEADER_SIZE];
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_PING);
	assert_true(cnt * LP_WIRE_HEADER_SIZE <= sizeof(message));
	for (uint64_t i = 0; i < cnt; i++) {
		header.request_id = i;
		lp_wire_header_seal(&header, client->crc_mode, "",
				    message + i * LP_WIRE_HEADER_SIZE);
	}
	lpi_client_send_bytes(client, message, cnt * LP_WIRE_HEADER_SIZE);
	for (uint64_t i = 0; i < cnt; i++)
		lp_test_ok(lpi_client_result(client, i));
}

static void a_header_alone_waits_for_its_credit(void **state)
{
	const struct lp_door_options options = {.credits_max = 1,
						.send_timeout_ns = 2 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lp_door_stats stats;
	(void)state;
	/* The last one has come whole, and is in no stash. */
	send_pings(client, 2);
	/* The last one is the end of a stash. */
	send_pings(client, 5);
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.throttled, 5);
	assert_int_equal(stats.timeouts, 0);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* The same of one who keeps his credits, while the requests of the door are others'. */
static void a_header_alone_waits_for_others_requests(void **state)
{
	const struct lp_door_options options = {.requests_max = 1,
						.send_timeout_ns = 2 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *one = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lpi_client *two = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lp_door_stats stats;
	(void)state;
	uint64_t first = lpi_client_send(one, LP_WIRE_OP_STATUS, 0, NULL, 0, 0);
	LPI_DOOR_UNTIL(rig, rig->admin != NULL);
	uint64_t second = lpi_client_send(two, LP_WIRE_OP_PING, 0, NULL, 0, 0);
	LPI_DOOR_UNTIL(rig, (lp_door_read_stats(rig->door[0], &stats), stats.throttled > 0));
	lp_door_answer_admin(rig->door[0], rig->admin, 0, "{}", 2);
	lp_test_ok(lpi_client_result(one, first));
	lp_test_ok(lpi_client_result(two, second));
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.timeouts, 0);
	lpi_client_free(one);
	lpi_client_free(two);
	lpi_door_rig_free(rig);
}

/* Idle connections cost little: they have no buffer (promise P5). */
static void idle_connections_cost_little(void **state)
{
	const uint32_t cnt = 1000;
	struct rlimit limit;
	(void)state;
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = LP_MIN(limit.rlim_max, (rlim_t)8192);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	if (limit.rlim_cur < 2200) {
		printf("skip: not so many files may be open\n");
		skip();
	}
	const struct lp_door_options options = {.conns_max = 1170};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	int *fds = calloc(cnt, sizeof(*fds));
	uint8_t head[LP_WIRE_HEADER_SIZE + LP_WIRE_HELLO_SIZE];
	uint8_t answer[512];
	const struct lp_wire_hello hello = {
		.version_min = 1, .version_max = 1, .shard = UINT32_MAX};
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_HELLO);
	header.meta_bytes = LP_WIRE_HELLO_SIZE;
	lp_wire_hello_encode(&hello, head + LP_WIRE_HEADER_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, head + LP_WIRE_HEADER_SIZE, head);
	size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (uint32_t i = 0; i < cnt; i++) {
		int pair[2];
		const struct lp_peer peer = {.is_unix = true, .who = lp_who_user(0, true)};
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		fds[i] = pair[0];
		lp_test_ok(lp_door_adopt(rig->door[0], pair[1], &peer, NULL, 0));
		assert_int_equal(send(fds[i], head, sizeof(head), 0), sizeof(head));
		LPI_DOOR_UNTIL(rig, recv(fds[i], answer, sizeof(answer), MSG_DONTWAIT) > 0);
	}
	size_t after = mallinfo2().uordblks + mallinfo2().hblkhd;
	print_message("an idle connection takes %zu bytes\n", (after - before) / cnt);
	assert_true(after - before < (size_t)cnt * 16384);
	assert_true(sizeof(struct lpi_conn) < 16384);
	/* Beyond seven eighths of conns_max, for one user who is alone, it is closed. */
	for (uint32_t i = 0; i < 24; i++) {
		int pair[2];
		const struct lp_peer peer = {.is_unix = true, .who = lp_who_user(0, true)};
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
		int r = lp_door_adopt(rig->door[0], pair[1], &peer, NULL, 0);
		lp_test_err(i < 23 ? 0 : -EMFILE, r);
		close(pair[0]);
	}
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_PING, NULL, 0, 0));
	for (uint32_t i = 0; i < cnt; i++)
		close(fds[i]);
	free(fds);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_stream_that_cannot_be_read_is_closed),
		cmocka_unit_test(a_damaged_meta_closes),
		cmocka_unit_test(nothing_goes_before_hello),
		cmocka_unit_test(a_hello_with_a_wrong_header_is_the_end),
		cmocka_unit_test(a_wrong_request_is_answered),
		cmocka_unit_test(wrong_metas_are_refused),
		cmocka_unit_test(a_message_may_come_byte_by_byte),
		cmocka_unit_test(half_a_message_hurts_nobody),
		cmocka_unit_test(a_byte_now_and_then_hurts_nobody),
		cmocka_unit_test(a_slow_client_in_nobodys_way_is_served),
		cmocka_unit_test(who_never_reads_is_closed),
		cmocka_unit_test(the_greedy_leave_room_for_the_modest),
		cmocka_unit_test(a_sip_now_and_then_hurts_nobody),
		cmocka_unit_test(many_who_never_read_leave_room),
		cmocka_unit_test(credits_bound_what_is_under_way),
		cmocka_unit_test(a_header_alone_waits_for_its_credit),
		cmocka_unit_test(a_header_alone_waits_for_others_requests),
		cmocka_unit_test(idle_connections_cost_little),
	};
	return lp_test_main(tests, "hostile clients");
}
