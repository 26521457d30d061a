/* SPDX-License-Identifier: Apache-2.0 */
/* Users who hold all they get and are silent: others, and above all root, get what they ask for,
 * and who is refused is told why (door D12). */
#include "native/door_test.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#define BUFS       (UINT64_C(32) << 20)
#define CONNS_MAX  32u
#define GREEDY_UID 7u
#define OTHER_UID  8u

static struct lp_door_stats stats_of(const struct lpi_door_rig *rig)
{
	struct lp_door_stats stats;
	lp_door_read_stats(rig->door[0], &stats);
	return stats;
}

static void let_pass(struct lpi_door_rig *rig, uint64_t ns)
{
	uint64_t until_ns = lp_clock_mono_ns(lp_clock_system()) + ns;
	LPI_DOOR_UNTIL(rig, lp_clock_mono_ns(lp_clock_system()) >= until_ns);
}

static struct lpi_client *open_as(struct lpi_door_rig *rig, uint32_t uid)
{
	rig->peer_uid = uid;
	return lpi_client_open(rig, LP_WIRE_CRC_HEADER);
}

/* NULL: it was turned away; then it has been told so. */
static struct lpi_client *try_connect(struct lpi_door_rig *rig, uint32_t uid, bool greets)
{
	int fd;
	rig->peer_uid = uid;
	struct lpi_client *client = lpi_client_pair(rig, &fd);
	int err = lpi_client_adopt(rig, 0, fd);
	if (greets || err < 0)
		lpi_client_put_hello(client, LP_WIRE_CRC_HEADER, LP_WIRE_ANY_SHARD);
	if (err == 0 && greets)
		lp_test_ok(lpi_client_do(client, LP_WIRE_OP_HELLO, NULL, 0, 0));
	if (err == 0)
		return client;
	lp_test_err(-EMFILE, err);
	/* He finds out when he says hello, and his socket is still there. */
	(void)lpi_client_send(client, LP_WIRE_OP_HELLO, 0, NULL, 0, 0);
	assert_true(lpi_client_recv(client));
	assert_int_equal(client->reply.opcode, 0);
	assert_int_equal(client->reply.status, EUSERS);
	assert_true(lpi_client_says(client, "(connections-max, user-share)"));
	assert_false(lpi_client_recv(client));
	lpi_client_free(client);
	return NULL;
}

static uint32_t connect_all(struct lpi_door_rig *rig, uint32_t uid, bool greets,
			    struct lpi_client **ret)
{
	uint32_t cnt = 0;
	while ((ret[cnt] = try_connect(rig, uid, greets)) != NULL) {
		cnt++;
		assert_true(cnt < CONNS_MAX);
	}
	return cnt;
}

static void free_all(struct lpi_client **clients, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		lpi_client_free(clients[i]);
}

static void ask_status(struct lpi_client *root)
{
	struct lpi_door_rig *rig = root->rig;
	rig->admin = NULL;
	uint64_t id = lpi_client_send(root, LP_WIRE_OP_STATUS, 0, NULL, 0, 0);
	LPI_DOOR_UNTIL(rig, rig->admin != NULL);
	lp_door_answer_admin(rig->door[0], rig->admin, 0, "{}", 2);
	lp_test_ok(lpi_client_result(root, id));
}

/* With a hello or without one: the next of his own takes the place of his oldest. */
static void places(bool greets)
{
	const struct lp_door_options options = {.conns_max = CONNS_MAX,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *greedy[CONNS_MAX];
	uint32_t cnt = connect_all(rig, GREEDY_UID, greets, greedy);
	/* 30 are not kept for root, and he is alone. */
	assert_int_equal(cnt, 27);
	struct lpi_client *root = open_as(rig, 0);
	struct lpi_client *other = open_as(rig, OTHER_UID);
	ask_status(root);
	assert_int_equal(stats_of(rig).conns_refused, 1);
	assert_int_equal(stats_of(rig).conns_gave_way, 0);
	assert_int_equal(stats_of(rig).users, 3);
	let_pass(rig, greets ? LPI_IDLE_NS : LPI_PATIENCE_NS);
	lp_test_ok(lpi_client_do(root, LP_WIRE_OP_PING, NULL, 0, 0));
	lp_test_ok(lpi_client_do(other, LP_WIRE_OP_PING, NULL, 0, 0));
	/* He has more than his share of 15 now that others are there: that ends. */
	greedy[cnt] = try_connect(rig, GREEDY_UID, greets);
	assert_non_null(greedy[cnt++]);
	assert_int_equal(stats_of(rig).conns_gave_way, 13);
	assert_true(lpi_client_recv(greedy[0]));
	assert_int_equal(greedy[0]->reply.status, EUSERS);
	assert_true(lpi_client_says(greedy[0], "idle, and user 7 has 27 of this shard's 32"));
	assert_false(lpi_client_recv(greedy[0]));
	/* The others' next connections have places at once. */
	for (uint32_t i = 0; i < 8; i++) {
		struct lpi_client *more = try_connect(rig, OTHER_UID, true);
		assert_non_null(more);
		lpi_client_free(more);
	}
	lp_test_ok(lpi_client_do(root, LP_WIRE_OP_PING, NULL, 0, 0));
	lp_test_ok(lpi_client_do(other, LP_WIRE_OP_PING, NULL, 0, 0));
	free_all(greedy, cnt);
	lpi_client_free(other);
	lpi_client_free(root);
	lpi_door_rig_free(rig);
}

static void idle_connections_give_way(void **state)
{
	(void)state;
	places(true);
}

static void connections_without_hello_give_way(void **state)
{
	(void)state;
	places(false);
}

static int upload(struct lpi_client *client)
{
	lpi_client_put_ref(client, 0, "upload");
	return lpi_client_do(client, LP_WIRE_OP_UPLOAD, NULL, 0, 0);
}

/* Who has something open does not give way; and of open uploads all find some. */
static void open_uploads_leave_some(void **state)
{
	const struct lp_door_options options = {.conns_max = CONNS_MAX, .opens_max = 128};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *other = open_as(rig, OTHER_UID);
	struct lpi_client *root = open_as(rig, 0);
	struct lpi_client *greedy[CONNS_MAX];
	uint32_t opens = 0;
	(void)state;
	uint32_t cnt = connect_all(rig, GREEDY_UID, true, greedy);
	assert_int_equal(cnt, 15);
	for (; opens < cnt; opens++)
		lp_test_ok(upload(greedy[opens]));
	for (uint32_t i = 0; i < cnt; i++) {
		int err = 0;
		for (uint32_t k = 0; err == 0 && k < 64; k++) {
			err = upload(greedy[i]);
			opens += err == 0;
		}
		lp_test_err(-EMFILE, err);
		assert_true(lpi_client_says(greedy[i], "user 7 has "));
		assert_true(lpi_client_says(greedy[i], " of this shard's 128 open objects, its "
						       "limit (opens-max, user-share)"));
	}
	/* Half of the 120 that are not kept for root. */
	assert_int_equal(opens, 60);
	assert_int_equal(stats_of(rig).limits_opens, cnt);
	for (uint32_t i = 0; i < 25; i++) {
		lp_test_ok(upload(other));
		lp_test_ok(upload(root));
	}
	let_pass(rig, LPI_IDLE_NS);
	assert_null(try_connect(rig, GREEDY_UID, true));
	assert_int_equal(stats_of(rig).conns_gave_way, 0);
	free_all(greedy, cnt);
	lpi_client_free(other);
	/* What they had is back. */
	LPI_DOOR_UNTIL(rig, stats_of(rig).conns == 1);
	for (uint32_t i = 0; i < 60; i++)
		lp_test_ok(upload(root));
	lpi_client_free(root);
	lpi_door_rig_free(rig);
}

#define HEADERS 40u

/* A header alone has a request: those beyond his share wait for his own, and go on with these. */
static void headers_alone_leave_requests(void **state)
{
	const struct lp_door_options options = {.requests_max = 32,
						.send_timeout_ns = 300 * LP_NS_PER_S};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *other = open_as(rig, OTHER_UID);
	struct lpi_client *root = open_as(rig, 0);
	struct lpi_client *slow = open_as(rig, OTHER_UID);
	struct lpi_client *greedy[HEADERS];
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_STAT);
	uint8_t message[LP_WIRE_HEADER_SIZE + LP_WIRE_REF_SIZE];
	const struct lp_wire_ref ref = {.ino = 0};
	(void)state;
	header.meta_bytes = LP_WIRE_REF_SIZE;
	lp_wire_ref_encode(&ref, message + LP_WIRE_HEADER_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_HEADER, message + LP_WIRE_HEADER_SIZE, message);
	lpi_client_send_bytes(slow, message, LP_WIRE_HEADER_SIZE);
	for (uint32_t i = 0; i < HEADERS; i++)
		greedy[i] = open_as(rig, GREEDY_UID);
	for (uint32_t i = 0; i < HEADERS; i++)
		lpi_client_send_bytes(greedy[i], message, LP_WIRE_HEADER_SIZE);
	/* Half of the 30 that are not kept for root. */
	LPI_DOOR_UNTIL(rig, stats_of(rig).limits_requests == HEADERS - 15);
	assert_int_equal(rig->door[0]->under_way, 16);
	for (uint32_t i = 0; i < 20; i++) {
		lp_test_ok(lpi_client_do(other, LP_WIRE_OP_PING, NULL, 0, 0));
		ask_status(root);
	}
	/* Those that waited go on as others of his end. */
	for (uint32_t i = 0; i < HEADERS; i++) {
		lpi_client_send_bytes(greedy[i], message + LP_WIRE_HEADER_SIZE, LP_WIRE_REF_SIZE);
		lp_test_ok(lpi_client_result(greedy[i], 7));
	}
	assert_int_equal(stats_of(rig).timeouts, 0);
	/* Silence that only keeps himself waiting costs only himself. */
	for (uint32_t i = 0; i < HEADERS; i++)
		lpi_client_send_bytes(greedy[i], message, LP_WIRE_HEADER_SIZE);
	LPI_DOOR_UNTIL(rig, stats_of(rig).timeouts >= 15);
	lpi_client_send_bytes(slow, message + LP_WIRE_HEADER_SIZE, LP_WIRE_REF_SIZE);
	lp_test_ok(lpi_client_result(slow, 7));
	free_all(greedy, HEADERS);
	lpi_client_free(slow);
	lpi_client_free(root);
	lpi_client_free(other);
	lpi_door_rig_free(rig);
}

static int share(struct lpi_client *client, uint64_t bytes, uint64_t *ret_bytes)
{
	struct lp_wire_share share = {.bytes = bytes};
	lp_wire_put_part(&client->meta, lp_wire_share, &share);
	int err = lpi_client_do(client, LP_WIRE_OP_SHARE, NULL, 0, 0);
	if (err == 0) {
		assert_true(lp_wire_part(&client->answer, lp_wire_share, &share));
		*ret_bytes += share.bytes;
	}
	return err;
}

static void shared_memory_is_left(void **state)
{
	const struct lp_door_options options = {.share_bytes = UINT64_C(32) << 20};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *clients[6];
	uint64_t greedy_bytes = 0;
	uint64_t other_bytes = 0;
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(clients); i++) {
		rig->peer_uid = i == 5 ? OTHER_UID : GREEDY_UID;
		clients[i] = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	}
	for (uint32_t i = 0; i < 4; i++)
		(void)share(clients[i], UINT64_C(16) << 20, &greedy_bytes);
	lp_test_err(-ENOMEM, share(clients[4], UINT64_C(16) << 20, &greedy_bytes));
	assert_true(lpi_client_says(clients[4], "user-share"));
	lp_test_ok(share(clients[5], UINT64_C(16) << 20, &other_bytes));
	assert_in_range(greedy_bytes, UINT64_C(14) << 20, UINT64_C(15) << 20);
	assert_in_range(other_bytes, UINT64_C(14) << 20, UINT64_C(15) << 20);
	assert_true(stats_of(rig).limits_shared > 0);
	free_all(clients, LP_ARRAY_SIZE(clients));
	LPI_DOOR_UNTIL(rig, stats_of(rig).conns == 0);
	assert_int_equal(stats_of(rig).share_bytes, 0);
	lpi_door_rig_free(rig);
}

/* By TCP all of this machine are one user, and root is not known there. */
static void by_tcp_all_are_one_user(void **state)
{
	const struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(0x7f000001)}};
	const struct lp_door_options options = {.conns_max = CONNS_MAX};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *root = open_as(rig, 0);
	struct lpi_client *clients[CONNS_MAX];
	uint32_t cnt = 0;
	int err = 0;
	(void)state;
	while (err == 0 && cnt < CONNS_MAX) {
		int fd;
		const struct lp_peer peer = {.uid = 0, .who = lp_who_address(&in)};
		clients[cnt] = lpi_client_pair(rig, &fd);
		err = lp_door_adopt(rig->door[0], fd, &peer, NULL, 0);
		cnt++;
	}
	lp_test_err(-EMFILE, err);
	assert_int_equal(cnt, 16);
	assert_true(lpi_client_recv(clients[15]));
	assert_int_equal(clients[15]->reply.status, EUSERS);
	assert_true(lpi_client_says(clients[15], "TCP from this machine has 15 of"));
	/* Who never speaks does not linger. */
	assert_false(lpi_client_recv(clients[15]));
	ask_status(root);
	free_all(clients, cnt);
	lpi_client_free(root);
	lpi_door_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(idle_connections_give_way),
		cmocka_unit_test(connections_without_hello_give_way),
		cmocka_unit_test(open_uploads_leave_some),
		cmocka_unit_test(headers_alone_leave_requests),
		cmocka_unit_test(shared_memory_is_left),
		cmocka_unit_test(by_tcp_all_are_one_user),
	};
	return lp_test_main(tests, "native/lockout");
}
