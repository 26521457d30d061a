/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that misbehave: each is told, or closed, as the page of the wire says; none hurts others,
 * and what they hold is bounded (promises P5, P7). */
#include <malloc.h>
#include <sys/resource.h>

#include "base/crc32c.h"
#include "daemon/door_test.h"

#define BUFS (UINT64_C(32) << 20)

static struct lp_wire_header plain_header(uint16_t opcode)
{
	return (struct lp_wire_header){
		.kind = LP_WIRE_KIND_REQUEST, .opcode = opcode, .request_id = 7};
}

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
		send_bent(client, plain_header(LP_WIRE_OP_PING), cases[i].at, cases[i].value,
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
	struct lp_wire_header header = plain_header(LP_WIRE_OP_STAT);
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
	const struct lp_wire_header right = plain_header(LP_WIRE_OP_HELLO);
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
	struct lp_wire_header header = plain_header(4711);
	(void)state;
	lp_test_err(-ENOSYS, do_bent(client, header, NULL));
	/* With data, which is read to its end. */
	header.data_bytes = LP_WIRE_DATA_MAX;
	lp_test_err(-ENOSYS, do_bent(client, header, data));
	header = plain_header(LP_WIRE_OP_AUTH);
	lp_test_err(-ENOSYS, do_bent(client, header, NULL));
	header = plain_header(LP_WIRE_OP_PING);
	header.data_bytes = 100000;
	lp_test_err(-EINVAL, do_bent(client, header, data));
	header = plain_header(LP_WIRE_OP_PING);
	header.flags = 0x80000000;
	lp_test_err(-EOPNOTSUPP, do_bent(client, header, NULL));
	header.flags = LP_WIRE_FLAG_MORE;
	lp_test_err(-EOPNOTSUPP, do_bent(client, header, NULL));
	header = plain_header(LP_WIRE_OP_PING);
	header.status = 1;
	lp_test_err(-EINVAL, do_bent(client, header, NULL));
	header = plain_header(LP_WIRE_OP_PING);
	header.offset = 1;
	lp_test_err(-EINVAL, do_bent(client, header, NULL));
	header = plain_header(LP_WIRE_OP_WRITE);
	header.offset = UINT64_MAX - 10;
	header.data_bytes = 100;
	lp_test_err(-EFBIG, do_bent(client, header, data));
	/* Checksums that were agreed on are missing. */
	struct lpi_client *all = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	header = plain_header(LP_WIRE_OP_WRITE);
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
	struct lp_wire_header header = plain_header(LP_WIRE_OP_WRITE);
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
	struct lp_wire_header header = plain_header(LP_WIRE_OP_WRITE);
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
	struct lp_wire_header header = plain_header(LP_WIRE_OP_WRITE);
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

#define GET_BYTES (LP_WIRE_HEADER_SIZE + LP_WIRE_GET_SIZE)

/* A request for all of a file, as it is sent. */
static void seal_get(uint64_t ino, uint64_t request_id, uint8_t *ret_message)
{
	struct lp_wire_header header = plain_header(LP_WIRE_OP_GET);
	struct lp_wire_get get = {.length = UINT64_MAX};
	LPI_CLIENT_REF(get.ref, ino, "");
	header.request_id = request_id;
	header.meta_bytes = LP_WIRE_GET_SIZE;
	lp_wire_get_encode(&get, ret_message + LP_WIRE_HEADER_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, ret_message + LP_WIRE_HEADER_SIZE,
			    ret_message);
}

/* A file of so many of the longest writes. */
static uint64_t make_large(struct lpi_client *client, uint64_t pieces)
{
	uint8_t *data = calloc(1, LP_WIRE_PIECE_MAX);
	assert_non_null(data);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	for (uint64_t i = 0; i < pieces; i++)
		lp_test_ok(lpi_client_result(client, lpi_client_send_write(client, ino, "", data,
									   LP_WIRE_PIECE_MAX,
									   i * LP_WIRE_PIECE_MAX)));
	free(data);
	return ino;
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
	uint8_t message[GET_BYTES];
	struct lp_door_stats stats;
	(void)state;
	uint64_t ino = make_large(good, 8);
	seal_get(ino, 7, message);
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
	uint8_t message[GET_BYTES];
	struct lp_door_stats stats;
	(void)state;
	uint64_t ino = make_large(good, 4);
	seal_get(ino, 7, message);
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
	uint8_t messages[GREEDY_GETS * GET_BYTES];
	struct lp_door_stats stats;
	(void)state;
	uint64_t ino = make_large(good, 4);
	lp_test_ok(lpi_client_result(good, lpi_client_send_put(good, "small", data, 20000)));
	for (uint64_t i = 0; i < GREEDY_GETS; i++)
		seal_get(ino, i + 7, messages + i * GET_BYTES);
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

#define SIP_BYTES   2048  /* what a socket holds */
#define AFTER_BYTES 5000u /* a meta that takes a large buffer */
#define LIST_BYTES  (LP_WIRE_HEADER_SIZE + LP_WIRE_LIST_SIZE + AFTER_BYTES)
#define LISTED_CNT  50u

/* A list of everything, as it is sent: all names come behind what it begins after. */
static void seal_list(uint64_t request_id, uint8_t *ret_message)
{
	struct lp_wire_header header = plain_header(LP_WIRE_OP_LIST);
	const struct lp_wire_list list = {.after_bytes = AFTER_BYTES};
	header.request_id = request_id;
	header.meta_bytes = LP_WIRE_LIST_SIZE + AFTER_BYTES;
	lp_wire_list_encode(&list, ret_message + LP_WIRE_HEADER_SIZE);
	memset(ret_message + LP_WIRE_HEADER_SIZE + LP_WIRE_LIST_SIZE, '!', AFTER_BYTES);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, ret_message + LP_WIRE_HEADER_SIZE,
			    ret_message);
}

/* Objects whose names make an answer long. */
static void make_listed(struct lpi_client *client)
{
	char name[240];
	memset(name, 'n', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	for (uint32_t i = 0; i < LISTED_CNT; i++) {
		name[0] = (char)('A' + i);
		lp_test_ok(lpi_client_result(client, lpi_client_send_put(client, name, "", 0)));
	}
}

static void assert_listed(struct lpi_client *client)
{
	struct lp_wire_listed listed = {.item_cnt = 0};
	assert_true(lp_wire_part(&client->answer, lp_wire_listed, &listed));
	assert_int_equal(listed.item_cnt, LISTED_CNT);
}

/* The same message again and again, as long as it can say more, and a bit. */
static void say_all(struct lpi_door_rig *rig, struct lpi_client **clients, size_t cnt,
		    const uint8_t *message, size_t len)
{
	size_t *at = calloc(cnt, sizeof(*at));
	assert_non_null(at);
	for (int idle = 0; idle < 1000; idle++) {
		for (size_t i = 0; i < cnt; i++) {
			ssize_t n = send(clients[i]->fd, message + at[i], len - at[i],
					 MSG_DONTWAIT | MSG_NOSIGNAL);
			if (n > 0)
				at[i] = (at[i] + (size_t)n) % len;
			if (n > 0)
				idle = 0;
		}
		lpi_door_rig_turn(rig);
	}
	free(at);
}

/* At any time. */
static void assert_used_at_most(const struct lpi_door_rig *rig, uint64_t bytes)
{
	struct lp_bufs_stats stats;
	lp_bufs_read_stats(rig->bufs, &stats);
	assert_true(stats.used_max_bytes <= bytes);
	assert_int_equal(stats.failed_cnt, 0);
}

#define LISTERS 4u /* of each door */

/* Whoever lists and reads no answers has no more than a part of the buffers, and others' lists and
 * questions are answered at once. */
static void lists_leave_room(uint32_t door_cnt)
{
	const struct lp_door_options options = {.bufs_bytes = BUFS / door_cnt,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(door_cnt, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lpi_client *bad[LISTERS * LPI_DOOR_RIG_SHARDS_MAX];
	uint8_t message[LIST_BYTES];
	struct lp_door_stats stats;
	make_listed(good);
	seal_list(7, message);
	rig->send_bytes = SIP_BYTES;
	for (uint32_t i = 0; i < LISTERS * door_cnt; i++) {
		bad[i] = lpi_client_new(rig, i % door_cnt);
		lpi_client_put_hello(bad[i], LP_WIRE_CRC_HEADER, LP_WIRE_ANY_SHARD);
		lp_test_ok(lpi_client_do(bad[i], LP_WIRE_OP_HELLO, NULL, 0, 0));
	}
	say_all(rig, bad, LISTERS * (size_t)door_cnt, message, sizeof(message));
	assert_used_at_most(rig, BUFS / 4 + LP_BUF_LARGE);
	for (uint64_t i = 0; i < 20; i++) {
		seal_list(i, message);
		lpi_client_send_bytes(good, message, sizeof(message));
		lp_test_ok(lpi_client_result(good, i));
		assert_listed(good);
	}
	uint64_t id = lpi_client_send(good, LP_WIRE_OP_STATUS, 0, NULL, 0, 0);
	LPI_DOOR_UNTIL(rig, rig->admin != NULL);
	lp_door_answer_admin(rig->door[0], rig->admin, 0, "{}", 2);
	lp_test_ok(lpi_client_result(good, id));
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.errors[LP_WIRE_OP_LIST], 0);
	assert_int_equal(stats.timeouts, 0);
	for (uint32_t i = 0; i < LISTERS * door_cnt; i++)
		lpi_client_free(bad[i]);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

static void lists_that_nobody_reads_leave_room(void **state)
{
	(void)state;
	lists_leave_room(1);
}

/* The doors of one thread have its buffers together. */
static void each_door_has_its_part_of_the_buffers(void **state)
{
	(void)state;
	lists_leave_room(4);
}

#define UNREAD_WRITES 24u
#define UNREAD_BYTES  (1u << 20)

/* Nor does the data of writes stay, whose answers are not read. */
static void writes_whose_answers_nobody_reads_leave_room(void **state)
{
	const struct lp_door_options options = {.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint8_t *data = calloc(1, UNREAD_BYTES);
	uint8_t message[LIST_BYTES];
	struct lp_bufs_stats bufs;
	struct lp_door_stats stats;
	(void)state;
	make_listed(good);
	uint64_t ino = lpi_client_make(good, "file", LP_INODE_TYPE_FILE);
	rig->send_bytes = SIP_BYTES;
	struct lpi_client *bad = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	seal_list(7, message);
	for (int i = 0; i < 4; i++)
		lpi_client_send_bytes(bad, message, sizeof(message));
	for (uint64_t i = 0; i < UNREAD_WRITES; i++)
		(void)lpi_client_send_write(bad, ino, "", data, UNREAD_BYTES, 0);
	LPI_DOOR_UNTIL(rig, (lp_door_read_stats(rig->door[0], &stats),
			     stats.requests[LP_WIRE_OP_WRITE] == UNREAD_WRITES));
	lp_bufs_read_stats(rig->bufs, &bufs);
	assert_true(bufs.used_bytes < 4 * (uint64_t)UNREAD_BYTES);
	assert_true(stats.requests_under_way > UNREAD_WRITES / 2);
	free(data);
	lpi_client_free(bad);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

/* Nor has data that waits, because it is for the path of a get that is not read, more of the room
 * than data that is coming. */
static void writes_behind_what_nobody_reads_leave_room(void **state)
{
	const struct lp_door_options options = {.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint8_t *data = calloc(4, UNREAD_BYTES);
	struct lp_door_stats stats;
	(void)state;
	(void)make_large(good, 8);
	rig->send_bytes = SIP_BYTES;
	struct lpi_client *bad = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	(void)lpi_client_send_get(bad, 0, "file", 0, UINT64_MAX);
	for (uint32_t i = 0; i < 10; i++)
		(void)lpi_client_send_write(bad, 0, "file", data, UNREAD_BYTES, 0);
	for (int i = 0; i < 1000; i++)
		lpi_door_rig_turn(rig);
	assert_int_equal(rig->door[0]->receiving_bytes, 10 * (uint64_t)UNREAD_BYTES);
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.requests_under_way, 11);
	/* What is small finds room; when something large does not he is closed. */
	lp_test_ok(lpi_client_result(good, lpi_client_send_put(good, "small", data, 20000)));
	lp_test_ok(lpi_client_result(good,
				     lpi_client_send_put(good, "large", data, 4 * UNREAD_BYTES)));
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.timeouts, 1);
	LPI_DOOR_UNTIL(rig, rig->door[0]->under_way == 0);
	assert_int_equal(rig->door[0]->receiving_bytes, 0);
	free(data);
	lpi_client_free(bad);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

#define LISTS 48u

/* More lists at once than there is room for are answered one after the other, and none of them is
 * refused. */
static void lists_wait_for_their_room(void **state)
{
	const uint64_t bufs = UINT64_C(4) << 20;
	struct lpi_door_rig *rig = lpi_door_rig_new(1, bufs, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint8_t *messages = malloc((size_t)LISTS * LIST_BYTES);
	struct lp_door_stats stats;
	(void)state;
	assert_non_null(messages);
	make_listed(client);
	for (uint64_t i = 0; i < LISTS; i++)
		seal_list(i, messages + i * LIST_BYTES);
	lpi_client_send_bytes(client, messages, (size_t)LISTS * LIST_BYTES);
	for (uint64_t i = 0; i < LISTS; i++) {
		assert_true(lpi_client_recv(client));
		assert_int_equal(client->reply.status, 0);
		assert_listed(client);
	}
	assert_used_at_most(rig, bufs / 2);
	lp_door_read_stats(rig->door[0], &stats);
	assert_true(stats.throttled > 0);
	LPI_DOOR_UNTIL(rig, rig->door[0]->held_bytes == 0);
	free(messages);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* Who is refused for want of buffers does not wait, but others are in his way as well: who holds
 * something and is silent is closed. */
static void who_is_refused_is_starved(void **state)
{
	const struct lp_door_options options = {.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	struct lpi_client *bad = NULL;
	struct lp_buf *bufs[BUFS / LP_BUF_MEDIUM];
	uint8_t message[LIST_BYTES];
	struct lp_door_stats stats;
	size_t cnt = 0;
	(void)state;
	make_listed(good);
	rig->send_bytes = SIP_BYTES;
	bad = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	/* It does not wait for anything itself. */
	seal_list(7, message);
	for (int i = 0; i < 4; i++)
		lpi_client_send_bytes(bad, message, sizeof(message));
	LPI_DOOR_UNTIL(rig, (lp_door_read_stats(rig->door[0], &stats),
			     stats.requests[LP_WIRE_OP_LIST] == 4));
	while (cnt < LP_ARRAY_SIZE(bufs) &&
	       (bufs[cnt] = lp_buf_new(rig->bufs, LP_BUF_MEDIUM)) != NULL)
		cnt++;
	const struct lp_wire_list list = {.after_bytes = 0};
	lp_wire_put_part(&good->meta, lp_wire_list, &list);
	lp_test_err(-EAGAIN, lpi_client_do(good, LP_WIRE_OP_LIST, NULL, 0, 0));
	LPI_DOOR_UNTIL(rig, (lp_door_read_stats(rig->door[0], &stats), stats.conns == 1));
	assert_int_equal(stats.timeouts, 1);
	while (cnt > 0)
		lp_buf_put(bufs[--cnt]);
	lp_wire_put_part(&good->meta, lp_wire_list, &list);
	lp_test_ok(lpi_client_do(good, LP_WIRE_OP_LIST, NULL, 0, 0));
	lpi_client_free(bad);
	lpi_client_free(good);
	lpi_door_rig_free(rig);
}

/* Who reads all the time, but so slowly that it comes to the same, makes room as well. */
static void a_sip_now_and_then_hurts_nobody(void **state)
{
	const struct lp_door_options options = {.requests_max = 256,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *good = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	static struct drip none[GREEDY_CNT];
	uint8_t messages[GREEDY_GETS * GET_BYTES];
	uint8_t sip[SIP_BYTES];
	struct lp_door_stats stats;
	int tries = 0;
	(void)state;
	uint64_t ino = make_large(good, 4);
	rig->send_bytes = SIP_BYTES;
	for (uint64_t i = 0; i < GREEDY_GETS; i++)
		seal_get(ino, i + 7, messages + i * GET_BYTES);
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
	struct lp_wire_header header = plain_header(LP_WIRE_OP_PING);
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
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	int *fds = calloc(cnt, sizeof(*fds));
	uint8_t head[LP_WIRE_HEADER_SIZE + LP_WIRE_HELLO_SIZE];
	uint8_t answer[512];
	const struct lp_wire_hello hello = {
		.version_min = 1, .version_max = 1, .shard = UINT32_MAX};
	struct lp_wire_header header = plain_header(LP_WIRE_OP_HELLO);
	header.meta_bytes = LP_WIRE_HELLO_SIZE;
	lp_wire_hello_encode(&hello, head + LP_WIRE_HEADER_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, head + LP_WIRE_HEADER_SIZE, head);
	size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
	for (uint32_t i = 0; i < cnt; i++) {
		int pair[2];
		const struct lp_peer peer = {.is_unix = true};
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
	/* Beyond conns_max it is closed. */
	for (uint32_t i = 0; i < 24; i++) {
		int pair[2];
		const struct lp_peer peer = {.is_unix = true};
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
		cmocka_unit_test(lists_that_nobody_reads_leave_room),
		cmocka_unit_test(each_door_has_its_part_of_the_buffers),
		cmocka_unit_test(writes_whose_answers_nobody_reads_leave_room),
		cmocka_unit_test(writes_behind_what_nobody_reads_leave_room),
		cmocka_unit_test(lists_wait_for_their_room),
		cmocka_unit_test(who_is_refused_is_starved),
		cmocka_unit_test(credits_bound_what_is_under_way),
		cmocka_unit_test(a_header_alone_waits_for_its_credit),
		cmocka_unit_test(a_header_alone_waits_for_others_requests),
		cmocka_unit_test(idle_connections_cost_little),
	};
	return lp_test_main(tests, "hostile clients");
}
