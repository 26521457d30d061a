/* SPDX-License-Identifier: Apache-2.0 */
/* Data, names and sessions through a socket, on stores in memory. */
#include "native/door_test.h"

#define BUFS (UINT64_C(96) << 20)

static void the_states_are_a_sound_machine(void **state)
{
	char why[128] = "";
	(void)state;
	lp_test_ok(lp_sm_table_check(&lpi_request_table, why, sizeof(why)));
	assert_string_equal(why, "");
}

static void a_hello_agrees_on_what_holds(void **state)
{
	const struct lp_door_options options = {.credits_max = 64, .crc_min = LP_WIRE_CRC_HEADER};
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, &options);
	struct lpi_client *client = lpi_client_new(rig, 0);
	struct lp_wire_welcome welcome = {.version = 0};
	(void)state;
	lpi_client_put_hello(client, LP_WIRE_CRC_OFF, LP_WIRE_ANY_SHARD);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_HELLO, NULL, 0, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_welcome, &welcome));
	assert_int_equal(welcome.version, 1);
	assert_int_equal(welcome.crc_mode, LP_WIRE_CRC_HEADER); /* the daemon insists */
	assert_int_equal(welcome.credits, 64);
	assert_int_equal(welcome.shard_cnt, 2);
	assert_int_equal(welcome.shard, 0);
	assert_int_equal(welcome.uuid_low, UINT64_C(0x5a5a5a5a5a5a5a5a));
	assert_true(lpi_client_says(client, "a test"));
	/* Once only; and the connection lives on. */
	lpi_client_put_hello(client, LP_WIRE_CRC_OFF, LP_WIRE_ANY_SHARD);
	lp_test_err(-EISCONN, lpi_client_do(client, LP_WIRE_OP_HELLO, NULL, 0, 0));
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_PING, NULL, 0, 0));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void new_credits_are_for_who_comes_next(void **state)
{
	const struct lp_door_options options = {.credits_max = 64};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *clients[2] = {NULL};
	static const struct {
		uint32_t credits;
		uint64_t bytes;
	} given[] = {{64, UINT64_C(32) << 20}, {5, UINT64_C(64) << 20}};
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(clients); i++) {
		struct lp_wire_welcome welcome = {.version = 0};
		lp_door_set_credits(rig->door[0], given[i].credits, given[i].bytes);
		clients[i] = lpi_client_new(rig, 0);
		lpi_client_put_hello(clients[i], LP_WIRE_CRC_HEADER, LP_WIRE_ANY_SHARD);
		lp_test_ok(lpi_client_do(clients[i], LP_WIRE_OP_HELLO, NULL, 0, 0));
		assert_true(lp_wire_part(&clients[i]->answer, lp_wire_welcome, &welcome));
		assert_int_equal(welcome.credits, given[i].credits);
		assert_int_equal(welcome.credit_bytes, given[i].bytes);
	}
	/* What the first one was told still holds. */
	const struct lpi_conn *first = lpi_conn_list_first(&rig->door[0]->conns);
	assert_true(first != NULL && first->credits == given[0].credits);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(clients); i++)
		lpi_client_free(clients[i]);
	lpi_door_rig_free(rig);
}

static void a_connection_goes_to_the_shard_it_wants(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(3, BUFS, NULL);
	struct lpi_client *client = lpi_client_new(rig, 0);
	struct lp_wire_welcome welcome = {.version = 0};
	struct lp_door_stats stats;
	(void)state;
	/* With a request behind the hello already. */
	lpi_client_put_hello(client, LP_WIRE_CRC_HEADER, 2);
	uint64_t hello = lpi_client_send(client, LP_WIRE_OP_HELLO, 0, NULL, 0, 0);
	uint64_t ping = lpi_client_send(client, LP_WIRE_OP_PING, 0, NULL, 0, 0);
	lp_test_ok(lpi_client_result(client, hello));
	assert_true(lp_wire_part(&client->answer, lp_wire_welcome, &welcome));
	assert_int_equal(welcome.shard, 2);
	lp_test_ok(lpi_client_result(client, ping));
	assert_int_equal(rig->handed_cnt, 1);
	lp_door_read_stats(rig->door[0], &stats);
	assert_int_equal(stats.conns, 0);
	lp_door_read_stats(rig->door[2], &stats);
	assert_int_equal(stats.conns, 1);
	assert_int_equal(stats.requests[LP_WIRE_OP_PING], 1);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* Writes and reads of all alignments in one mode of checksums; crcs of what comes back are checked
 * by the client (rule W2). */
static void write_and_read(enum lp_wire_crc mode)
{
	static const struct {
		uint32_t len;
		uint64_t offset;
	} cases[] = {{1, 0},          {4096, 4096},       {5000, 4000},    {65536, 1},
		     {100000, 70000}, {1048576, 1048576}, {4194304, 4097}, {4194304, 8388608}};
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, mode);
	uint8_t *data = malloc(LP_WIRE_DATA_MAX);
	uint8_t *back = malloc(LP_WIRE_DATA_MAX);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		lpi_client_fill(data, cases[i].len, i);
		uint64_t id =
			lpi_client_send_write(client, ino, "", data, cases[i].len, cases[i].offset);
		struct lp_wire_written written = {.offset = 0};
		lp_test_ok(lpi_client_result(client, id));
		assert_true(lp_wire_part(&client->answer, lp_wire_written, &written));
		assert_int_equal(written.offset, cases[i].offset);
		/* By number, and by path. */
		for (int by_path = 0; by_path < 2; by_path++) {
			id = lpi_client_send_get(client, by_path ? 0 : ino, by_path ? "file" : "",
						 cases[i].offset, cases[i].len);
			assert_int_equal(lpi_client_recv_get(client, id, cases[i].offset, back,
							     LP_WIRE_DATA_MAX),
					 cases[i].len);
			assert_memory_equal(data, back, cases[i].len);
		}
	}
	free(data);
	free(back);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void data_comes_back_with_all_checksums(void **state)
{
	(void)state;
	write_and_read(LP_WIRE_CRC_ALL);
}

static void data_comes_back_with_checksums_of_headers(void **state)
{
	(void)state;
	write_and_read(LP_WIRE_CRC_HEADER);
}

static void data_comes_back_without_checksums(void **state)
{
	(void)state;
	write_and_read(LP_WIRE_CRC_OFF);
}

/* A write of which one byte is not what it was when the checksums were made. */
static void send_damaged(struct lpi_client *client, uint64_t ino, uint64_t offset, uint32_t bytes,
			 uint32_t damaged)
{
	const uint32_t cnt = lp_wire_piece_cnt(offset, bytes);
	const struct lp_wire_header header = {.kind = LP_WIRE_KIND_REQUEST,
					      .opcode = LP_WIRE_OP_WRITE,
					      .request_id = 99,
					      .meta_bytes = LP_WIRE_WRITE_SIZE,
					      .data_bytes = bytes,
					      .offset = offset,
					      .crc_cnt = cnt};
	uint8_t *data = malloc(bytes);
	uint32_t *crcs = malloc(cnt * sizeof(*crcs));
	uint8_t *message = malloc(LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE + 4 * (size_t)cnt);
	uint8_t *rest = message + LP_WIRE_HEADER_SIZE;
	struct lp_wire_write write = {.append = 0};
	lpi_client_fill(data, bytes, 1);
	lp_wire_crcs_make(data, offset, bytes, crcs);
	data[damaged] ^= 1;
	LPI_CLIENT_REF(write.ref, ino, "");
	lp_wire_write_encode(&write, rest);
	lp_wire_crcs_encode(crcs, cnt, rest + LP_WIRE_WRITE_SIZE);
	lp_wire_header_seal(&header, LP_WIRE_CRC_ALL, rest, message);
	lpi_client_send_bytes(client, message,
			      LP_WIRE_HEADER_SIZE + LP_WIRE_WRITE_SIZE + 4 * (size_t)cnt);
	lpi_client_send_bytes(client, data, bytes);
	free(data);
	free(crcs);
	free(message);
}

/* Rule W2: what was damaged on its way is not stored, and the piece is named; also when it is
 * noticed long before the message's end. */
static void a_damaged_piece_is_refused(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t bytes, damaged;
		const char *piece;
	} cases[] = {
		{0, 12288, 4096 + 17, "piece 1 "},
		{0, LP_WIRE_DATA_MAX, 0, "piece 0 "},
		{0, LP_WIRE_DATA_MAX, (2u << 20) + 5, "piece 512 "},
		{0, LP_WIRE_DATA_MAX, LP_WIRE_DATA_MAX - 1, "piece 1023 "},
		{4000, 3u << 20, 95, "piece 0 "},
		{4000, 3u << 20, 96, "piece 1 "},
		{4000, 3u << 20, (3u << 20) - 1, "piece 768 "},
	};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		send_damaged(client, ino, cases[i].offset, cases[i].bytes, cases[i].damaged);
		lp_test_err(-EBADMSG, lpi_client_result(client, 99));
		assert_true(lpi_client_says(client, cases[i].piece));
		/* Nothing of it was stored, and the connection lives on. */
		uint64_t id = lpi_client_send_get(client, ino, "", 0, 100000);
		assert_int_equal(lpi_client_recv_get(client, id, 0, client->data, 100000), 0);
	}
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* A get of many pieces is of one object, whatever becomes of its name meanwhile. */
static void a_long_get_holds_its_object(void **state)
{
	const uint32_t part = 4u << 20;
	const uint32_t parts = 5;
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lpi_client *other = lpi_client_open(rig, LP_WIRE_CRC_OFF);
	uint8_t *data = malloc((size_t)part * parts);
	uint8_t *back = malloc((size_t)part * parts);
	uint64_t ino = lpi_client_make(client, "big", LP_INODE_TYPE_FILE);
	struct lp_wire_remove remove = {.is_dir = 0};
	struct lp_ns_stats stats;
	(void)state;
	lpi_client_fill(data, (size_t)part * parts, 3);
	for (uint32_t i = 0; i < parts; i++)
		lp_test_ok(lpi_client_result(
			client, lpi_client_send_write(client, ino, "", data + (size_t)part * i,
						      part, (uint64_t)part * i)));
	uint64_t id = lpi_client_send_get(client, 0, "big", 0, UINT64_MAX);
	assert_true(lpi_client_recv(client)); /* the first piece */
	assert_true((client->reply.flags & LP_WIRE_FLAG_MORE) != 0);
	memcpy(back, client->data, client->reply.data_bytes);
	uint32_t got = client->reply.data_bytes;
	LPI_CLIENT_REF(remove.ref, 0, "big");
	lp_wire_put_part(&other->meta, lp_wire_remove, &remove);
	lpi_client_put_text(other, "big");
	lp_test_ok(lpi_client_do(other, LP_WIRE_OP_REMOVE, NULL, 0, 0));
	int64_t rest = lpi_client_recv_get(client, id, got, back + got, (size_t)part * parts - got);
	assert_int_equal(rest + got, (int64_t)part * parts);
	assert_memory_equal(data, back, (size_t)part * parts);
	/* And gives it back. */
	lp_ns_read_stats(rig->ns[lp_ino_shard((struct lp_ino){ino})], &stats);
	LPI_DOOR_UNTIL(rig, (lp_ns_read_stats(rig->ns[lp_ino_shard((struct lp_ino){ino})], &stats),
			     stats.opens == 0));
	lp_test_err(-ESTALE,
		    (int)lpi_client_recv_get(client, lpi_client_send_get(client, ino, "", 0, 10), 0,
					     back, 10));
	free(data);
	free(back);
	lpi_client_free(client);
	lpi_client_free(other);
	lpi_door_rig_free(rig);
}

static void a_get_is_of_the_version_that_was_asked_for(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	struct lp_wire_get get = {.length = 100};
	struct lp_wire_written written = {.offset = 0};
	(void)state;
	lp_test_ok(
		lpi_client_result(client, lpi_client_send_write(client, ino, "", "hello", 5, 0)));
	assert_true(lp_wire_part(&client->answer, lp_wire_written, &written));
	for (uint64_t i = 0; i < 2; i++) {
		get.version_nr = written.version_nr + i;
		LPI_CLIENT_REF(get.ref, ino, "");
		lp_wire_put_part(&client->meta, lp_wire_get, &get);
		lp_test_err(i == 0 ? 0 : -ECANCELED,
			    lpi_client_do(client, LP_WIRE_OP_GET, NULL, 0, 0));
	}
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* What a client sends without waiting takes effect in its order, by path too. */
static void requests_on_one_path_keep_their_order(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(3, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint64_t ids[40];
	uint8_t back[64];
	uint32_t puts = 0;
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ids); i += 2) {
		char text[16];
		(void)snprintf(text, sizeof(text), "value %02u", i);
		ids[i] = lpi_client_send_put(client, "a/b/c", text, 8);
		ids[i + 1] = lpi_client_send_get(client, 0, "a/b/c", 0, 100);
	}
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ids); i++) {
		char text[16];
		assert_true(lpi_client_recv(client));
		assert_int_equal(client->reply.status, 0);
		if (client->reply.opcode == LP_WIRE_OP_PUT) {
			puts++;
			continue;
		}
		(void)snprintf(text, sizeof(text), "value %02u",
			       (uint32_t)(client->reply.request_id - ids[0]) - 1);
		memcpy(back, client->data, 8);
		assert_int_equal(client->reply.data_bytes, 8);
		assert_memory_equal(back, text, 8);
	}
	assert_int_equal(puts, LP_ARRAY_SIZE(ids) / 2);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void set_named(struct lpi_client *client, uint16_t opcode, uint64_t ino, const char *name,
		      const char *value, uint32_t condition)
{
	struct lp_wire_named named = {.name_bytes = (uint16_t)strlen(name),
				      .value_bytes = (uint32_t)strlen(value),
				      .condition = condition};
	(void)opcode;
	LPI_CLIENT_REF(named.ref, ino, "");
	lp_wire_put_part(&client->meta, lp_wire_named, &named);
	lpi_client_put_text(client, name);
	lpi_client_put_text(client, value);
}

static int do_named(struct lpi_client *client, uint16_t opcode, uint64_t ino, const char *name,
		    const char *value, uint32_t condition)
{
	set_named(client, opcode, ino, name, value, condition);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static void assert_value(struct lpi_client *client, const char *want)
{
	struct lp_wire_value value = {.value_bytes = 0};
	assert_true(lp_wire_part(&client->answer, lp_wire_value, &value));
	assert_int_equal(value.value_bytes, strlen(want));
	assert_memory_equal(lp_wire_bytes(&client->answer, value.value_bytes), want, strlen(want));
	lp_test_ok(lp_wire_end(&client->answer));
}

static void small_things_are_kept(void **state)
{
	static const struct {
		uint16_t set;
		uint16_t get;
		uint16_t remove;
		uint16_t list;
	} kinds[] = {{LP_WIRE_OP_XATTR_SET, LP_WIRE_OP_XATTR_GET, LP_WIRE_OP_XATTR_REMOVE,
		      LP_WIRE_OP_XATTR_LIST},
		     {LP_WIRE_OP_OMAP_SET, LP_WIRE_OP_OMAP_GET, LP_WIRE_OP_OMAP_REMOVE,
		      LP_WIRE_OP_OMAP_LIST}};
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(kinds); i++) {
		struct lp_wire_range range = {.with_values = 1, .prefix_bytes = 5};
		struct lp_wire_listed listed = {.item_cnt = 0};
		lp_test_ok(do_named(client, kinds[i].set, ino, "user.one", "1", 0));
		lp_test_ok(do_named(client, kinds[i].set, ino, "user.two", "22", 0));
		lp_test_ok(do_named(client, kinds[i].get, ino, "user.two", "", 0));
		assert_value(client, "22");
		lp_test_err(-ENODATA, do_named(client, kinds[i].get, ino, "user.no", "", 0));
		LPI_CLIENT_REF(range.ref, ino, "");
		lp_wire_put_part(&client->meta, lp_wire_range, &range);
		lpi_client_put_text(client, "user.");
		lp_test_ok(lpi_client_do(client, kinds[i].list, NULL, 0, 0));
		assert_true(lp_wire_part(&client->answer, lp_wire_listed, &listed));
		assert_int_equal(listed.item_cnt, 2);
		assert_int_equal(listed.more, 0);
		for (int j = 0; j < 2; j++) {
			struct lp_wire_pair pair = {.name_bytes = 0};
			assert_true(lp_wire_part(&client->answer, lp_wire_pair, &pair));
			assert_int_equal(pair.value_bytes, j + 1);
			assert_memory_equal(lp_wire_bytes(&client->answer, pair.name_bytes),
					    j == 0 ? "user.one" : "user.two", 8);
			assert_memory_equal(lp_wire_bytes(&client->answer, pair.value_bytes),
					    j == 0 ? "1" : "22", (size_t)j + 1);
		}
		lp_test_ok(lp_wire_end(&client->answer));
		lp_test_ok(do_named(client, kinds[i].remove, ino, "user.one", "", 0));
		lp_test_err(-ENODATA, do_named(client, kinds[i].get, ino, "user.one", "", 0));
	}
	/* Conditions. */
	lp_test_err(-EEXIST, do_named(client, LP_WIRE_OP_XATTR_SET, ino, "user.two", "3",
				      LP_WIRE_IF_ABSENT));
	lp_test_err(-ENODATA, do_named(client, LP_WIRE_OP_XATTR_SET, ino, "user.four", "3",
				       LP_WIRE_IF_EXISTS));
	lp_test_ok(do_named(client, LP_WIRE_OP_XATTR_SET, ino, "user.two", "3", LP_WIRE_IF_EXISTS));
	lp_test_err(-EINVAL,
		    do_named(client, LP_WIRE_OP_OMAP_SET, ino, "k", "3", LP_WIRE_IF_EXISTS));
	lp_test_err(-ESTALE, do_named(client, LP_WIRE_OP_XATTR_SET, 77777, "user.two", "3", 0));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void put_change(struct lpi_client *client, uint32_t kind, const char *name,
		       const char *value, uint64_t offset, uint64_t length)
{
	const struct lp_wire_change change = {.kind = kind,
					      .name_bytes = (uint16_t)strlen(name),
					      .value_bytes = (uint32_t)strlen(value),
					      .offset = offset,
					      .length = length};
	lp_wire_put_part(&client->meta, lp_wire_change, &change);
	lpi_client_put_text(client, name);
	lpi_client_put_text(client, value);
}

static void put_compound(struct lpi_client *client, uint64_t ino, uint32_t cnt)
{
	struct lp_wire_compound compound = {.change_cnt = cnt};
	LPI_CLIENT_REF(compound.ref, ino, "");
	lp_wire_put_part(&client->meta, lp_wire_compound, &compound);
}

static void a_compound_happens_wholly_or_not_at_all(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(2, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	struct lp_wire_written written = {.offset = 0};
	uint8_t back[32];
	(void)state;
	put_compound(client, ino, 4);
	put_change(client, LP_WIRE_CHANGE_KIND_GUARD_NO_XATTR, "user.a", "", 0, 0);
	put_change(client, LP_WIRE_CHANGE_KIND_WRITE, "", "", 10, 5);
	put_change(client, LP_WIRE_CHANGE_KIND_XATTR_SET, "user.a", "x", 0, 0);
	put_change(client, LP_WIRE_CHANGE_KIND_OMAP_SET, "key", "value", 0, 0);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_COMPOUND, "hello", 5, 10));
	assert_true(lp_wire_part(&client->answer, lp_wire_written, &written));
	assert_int_equal(written.offset, 10);
	/* The second guard does not hold. */
	put_compound(client, ino, 3);
	put_change(client, LP_WIRE_CHANGE_KIND_GUARD_VERSION, "", "", written.version_nr, 0);
	put_change(client, LP_WIRE_CHANGE_KIND_GUARD_XATTR, "user.a", "y", 0, 0);
	put_change(client, LP_WIRE_CHANGE_KIND_WRITE, "", "", 0, 5);
	lp_test_err(-ECANCELED, lpi_client_do(client, LP_WIRE_OP_COMPOUND, "HELLO", 5, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_written, &written));
	assert_int_equal(written.failed_idx, 1);
	uint64_t id = lpi_client_send_get(client, ino, "", 0, UINT64_MAX);
	assert_int_equal(lpi_client_recv_get(client, id, 0, back, sizeof(back)), 15);
	assert_memory_equal(back, "\0\0\0\0\0\0\0\0\0\0hello", 15);
	/* What cannot be. */
	put_compound(client, ino, 2);
	put_change(client, LP_WIRE_CHANGE_KIND_OMAP_SET, "key", "value", 0, 0);
	put_change(client, LP_WIRE_CHANGE_KIND_GUARD_XATTR, "user.a", "", 0, 0);
	lp_test_err(-EINVAL, lpi_client_do(client, LP_WIRE_OP_COMPOUND, NULL, 0, 0));
	assert_true(lpi_client_says(client, "guards come first"));
	put_compound(client, ino, 1);
	put_change(client, 15, "", "", 0, 0);
	lp_test_err(-EINVAL, lpi_client_do(client, LP_WIRE_OP_COMPOUND, NULL, 0, 0));
	put_compound(client, ino, 31);
	lp_test_err(-EINVAL, lpi_client_do(client, LP_WIRE_OP_COMPOUND, NULL, 0, 0));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static int do_space(struct lpi_client *client, uint16_t opcode, uint64_t ino, uint64_t offset,
		    uint64_t length)
{
	struct lp_wire_space space = {.offset = offset, .length = length};
	LPI_CLIENT_REF(space.ref, ino, "");
	lp_wire_put_part(&client->meta, lp_wire_space, &space);
	return lpi_client_do(client, opcode, NULL, 0, 0);
}

static void space_is_cut_punched_and_sought(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint64_t ino = lpi_client_make(client, "file", LP_INODE_TYPE_FILE);
	uint64_t copy = lpi_client_make(client, "copy", LP_INODE_TYPE_FILE);
	uint8_t data[12288];
	struct lp_wire_seek seek = {.hole = 1};
	struct lp_wire_clone clone = {.src_ino = ino, .length = 4096};
	struct lp_wire_write write = {.append = 1};
	struct lp_wire_found found = {.offset = 0};
	struct lp_wire_written written = {.offset = 0};
	(void)state;
	lpi_client_fill(data, sizeof(data), 5);
	lp_test_ok(lpi_client_result(
		client, lpi_client_send_write(client, ino, "", data, sizeof(data), 0)));
	lp_test_ok(do_space(client, LP_WIRE_OP_PUNCH, ino, 4096, 4096));
	LPI_CLIENT_REF(seek.ref, ino, "");
	lp_wire_put_part(&client->meta, lp_wire_seek, &seek);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_SEEK, NULL, 0, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_found, &found));
	assert_int_equal(found.offset, 4096);
	lp_test_ok(do_space(client, LP_WIRE_OP_TRUNCATE, ino, 8292, 0));
	lp_test_ok(do_space(client, LP_WIRE_OP_PREALLOC, ino, 0, 8192));
	lp_test_err(-EINVAL, do_space(client, LP_WIRE_OP_PUNCH, ino, 0, UINT64_C(17) << 20));
	LPI_CLIENT_REF(write.ref, ino, "");
	lp_wire_put_part(&client->meta, lp_wire_write, &write);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_WRITE, data, 5000, 0));
	assert_true(lp_wire_part(&client->answer, lp_wire_written, &written));
	assert_int_equal(written.offset, 8292);
	LPI_CLIENT_REF(clone.ref, copy, "");
	lp_wire_put_part(&client->meta, lp_wire_clone, &clone);
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_CLONE, NULL, 0, 0));
	uint64_t id = lpi_client_send_get(client, copy, "", 0, UINT64_MAX);
	assert_int_equal(lpi_client_recv_get(client, id, 0, client->data, 8192), 4096);
	assert_memory_equal(client->data, data, 4096);
	clone.src_ino = (UINT64_C(3) << 56) + 5;
	LPI_CLIENT_REF(clone.ref, copy, "");
	lp_wire_put_part(&client->meta, lp_wire_clone, &clone);
	lp_test_err(-EXDEV, lpi_client_do(client, LP_WIRE_OP_CLONE, NULL, 0, 0));
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

static void the_administration_is_asked(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	const struct lp_wire_text text = {.text_bytes = 4};
	const size_t len = 150000;
	char *long_text = malloc(len);
	size_t got = 0;
	(void)state;
	memset(long_text, 'x', len);
	lp_wire_put_part(&client->meta, lp_wire_text, &text);
	lpi_client_put_text(client, "json");
	uint64_t id = lpi_client_send(client, LP_WIRE_OP_STATS, 0, NULL, 0, 0);
	LPI_DOOR_UNTIL(rig, rig->admin != NULL);
	assert_int_equal(rig->admin->opcode, LP_WIRE_OP_STATS);
	assert_memory_equal(rig->admin->text.data, "json", 4);
	lp_door_answer_admin(rig->door[0], rig->admin, 0, long_text, len);
	/* In several replies. */
	do {
		struct lp_wire_value value = {.value_bytes = 0};
		lp_test_ok(lpi_client_result(client, id));
		assert_true(lp_wire_part(&client->answer, lp_wire_value, &value));
		got += value.value_bytes;
	} while ((client->reply.flags & LP_WIRE_FLAG_MORE) != 0);
	assert_int_equal(got, len);
	rig->admin = NULL;
	id = lpi_client_send(client, LP_WIRE_OP_STATUS, 0, NULL, 0, 0);
	LPI_DOOR_UNTIL(rig, rig->admin != NULL);
	lp_door_answer_admin(rig->door[0], rig->admin, -EPERM, "not you", 7);
	lp_test_err(-EPERM, lpi_client_result(client, id));
	assert_true(lpi_client_says(client, "not you"));
	/* One that goes before its answer. */
	rig->admin = NULL;
	(void)lpi_client_send(client, LP_WIRE_OP_SLOW, 0, NULL, 0, 0);
	LPI_DOOR_UNTIL(rig, rig->admin != NULL);
	lpi_client_free(client);
	for (int i = 0; i < 10; i++)
		lpi_door_rig_turn(rig);
	lp_door_answer_admin(rig->door[0], rig->admin, 0, long_text, len);
	free(long_text);
	lpi_door_rig_free(rig);
}

static void latencies_and_slow_requests_are_kept(void **state)
{
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, NULL);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	struct lp_slow_request slow[LP_SLOW_MAX];
	bool is_named = false;
	(void)state;
	assert_null(lp_door_latency(rig->door[0], LP_WIRE_OP_STAT));
	lpi_client_put_ref(client, 0, "not/there");
	lp_test_err(-ENOENT, lpi_client_do(client, LP_WIRE_OP_STAT, NULL, 0, 0));
	assert_non_null(lp_door_latency(rig->door[0], LP_WIRE_OP_STAT));
	assert_int_equal(lp_door_latency(rig->door[0], LP_WIRE_OP_STAT)->count, 1);
	uint32_t cnt = lp_door_slow(rig->door[0], slow, LP_SLOW_MAX);
	for (uint32_t i = 0; i < cnt; i++) {
		assert_true(i == 0 || slow[i].took_ns <= slow[i - 1].took_ns);
		is_named |= slow[i].opcode == LP_WIRE_OP_STAT && slow[i].status == -ENOENT &&
			    strcmp(slow[i].object, "not/there") == 0;
	}
	assert_true(is_named);
	/* Of a long one the end is told, also when its meta has been given back. */
	char path[LPI_META_INLINE + 300] = "";
	while (strlen(path) <= LPI_META_INLINE)
		(void)snprintf(path + strlen(path), sizeof(slow[0].object), "a directory of many/");
	(void)snprintf(path + strlen(path), sizeof(slow[0].object), "the end");
	lpi_client_put_ref(client, 0, path);
	lp_test_err(-ENOENT, lpi_client_do(client, LP_WIRE_OP_STAT, NULL, 0, 0));
	cnt = lp_door_slow(rig->door[0], slow, LP_SLOW_MAX);
	is_named = false;
	for (uint32_t i = 0; i < cnt; i++)
		is_named |=
			strlen(slow[i].object) + 1 == sizeof(slow[i].object) &&
			strcmp(slow[i].object, path + strlen(path) - strlen(slow[i].object)) == 0;
	assert_true(is_named);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_states_are_a_sound_machine),
		cmocka_unit_test(a_hello_agrees_on_what_holds),
		cmocka_unit_test(new_credits_are_for_who_comes_next),
		cmocka_unit_test(a_connection_goes_to_the_shard_it_wants),
		cmocka_unit_test(data_comes_back_with_all_checksums),
		cmocka_unit_test(data_comes_back_with_checksums_of_headers),
		cmocka_unit_test(data_comes_back_without_checksums),
		cmocka_unit_test(a_damaged_piece_is_refused),
		cmocka_unit_test(a_long_get_holds_its_object),
		cmocka_unit_test(a_get_is_of_the_version_that_was_asked_for),
		cmocka_unit_test(requests_on_one_path_keep_their_order),
		cmocka_unit_test(small_things_are_kept),
		cmocka_unit_test(a_compound_happens_wholly_or_not_at_all),
		cmocka_unit_test(space_is_cut_punched_and_sought),
		cmocka_unit_test(the_administration_is_asked),
		cmocka_unit_test(latencies_and_slow_requests_are_kept),
	};
	return lp_test_main(tests, "door");
}
