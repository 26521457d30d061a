/* SPDX-License-Identifier: Apache-2.0 */
/* Clients that ask much and read nothing: what they hold is bounded, of every kind of buffer, and
 * others find room (door D3, D4). */
#include "native/door_test.h"

#define BUFS        (UINT64_C(32) << 20)
#define SIP_BYTES   2048  /* what a socket holds */
#define AFTER_BYTES 5000u /* a meta that takes a large buffer */
#define LIST_BYTES  (LP_WIRE_HEADER_SIZE + LP_WIRE_LIST_SIZE + AFTER_BYTES)
#define LISTED_CNT  50u

/* A list of everything, as it is sent: all names come behind what it begins after. */
static void seal_list(uint64_t request_id, uint8_t *ret_message)
{
	struct lp_wire_header header = lpi_client_header(LP_WIRE_OP_LIST);
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
	(void)lpi_client_make_large(good, 8);
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

#define LONG_GETS UINT64_C(8)
#define LONG_BUFS (UINT64_C(192) << 20)

/* What is read ahead for one connection is bounded by its bytes, and not by the number of its gets:
 * what waits for its turn in one socket would only leave the caches. One piece of each is there. */
static void many_gets_of_one_read_little_ahead(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, LONG_BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	uint8_t messages[LONG_GETS * LPI_CLIENT_GET_BYTES];
	uint8_t *data = calloc(LONG_GETS, LP_WIRE_PIECE_MAX);
	(void)state;
	uint64_t ino = lpi_client_make_large(client, LONG_GETS);
	for (uint64_t i = 0; i < LONG_GETS; i++)
		lpi_client_seal_get(ino, i + 7, messages + i * LPI_CLIENT_GET_BYTES);
	lpi_client_send_bytes(client, messages, sizeof(messages));
	for (int turn = 0; turn < 300; turn++)
		lpi_door_rig_turn(rig);
	/* The first ones have four, then one of each. */
	assert_in_range(rig->door[0]->reply_bytes, LPI_AHEAD_BYTES,
			LPI_AHEAD_BYTES + LONG_GETS * LP_WIRE_PIECE_MAX);
	lpi_client_free(client);
	client = lpi_client_open(rig, LP_WIRE_CRC_HEADER);
	LPI_DOOR_UNTIL(rig, rig->door[0]->reply_bytes == 0);
	uint64_t id = lpi_client_send_get(client, ino, "", 0, UINT64_MAX);
	for (int turn = 0; turn < 300; turn++)
		lpi_door_rig_turn(rig);
	assert_int_equal(rig->door[0]->reply_bytes, LPI_PIECES_AHEAD * LP_WIRE_PIECE_MAX);
	assert_int_equal(lpi_client_recv_get(client, id, 0, data, LONG_GETS * LP_WIRE_PIECE_MAX),
			 LONG_GETS * LP_WIRE_PIECE_MAX);
	free(data);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(lists_that_nobody_reads_leave_room),
		cmocka_unit_test(each_door_has_its_part_of_the_buffers),
		cmocka_unit_test(writes_whose_answers_nobody_reads_leave_room),
		cmocka_unit_test(writes_behind_what_nobody_reads_leave_room),
		cmocka_unit_test(lists_wait_for_their_room),
		cmocka_unit_test(who_is_refused_is_starved),
		cmocka_unit_test(many_gets_of_one_read_little_ahead),
	};
	return lp_test_main(tests, "native/greedy");
}
