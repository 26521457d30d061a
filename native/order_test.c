/* SPDX-License-Identifier: Apache-2.0 */
/* Requests by number on one connection take effect in the order in which they arrive (door D8),
 * also those that ask for something first. All that is to be in order is sent at once, so that the
 * door has taken the last of it before anything of the first has come back. */
#include "namespace/state/acl.h"
#include "native/door_test.h"

#define BUFS     (UINT64_C(64) << 20)
#define SHARDS   3u
#define ASKED    128u /* requests that are answered together */
#define MANY     100u /* more than a shard takes from others at a time */
#define USER     1000u
#define GROUP    100u
#define LONG_AGO (INT64_C(1000000000) * 1000000)

/* u::rwx g::r-x o::r-x. */
static const uint8_t list[] = {2,    0,    0, 0, 1,    0,    7,    0,    0xff, 0xff,
			       0xff, 0xff, 4, 0, 5,    0,    0xff, 0xff, 0xff, 0xff,
			       32,   0,    5, 0, 0xff, 0xff, 0xff, 0xff};

/* --- All at once ------------------------------------------------------------------------------ */

/* What came for a request; small things only. */
struct answer {
	uint64_t request_id; /* 0: none is waited for */
	int result;
	uint32_t meta_bytes;
	uint32_t data_bytes;
	uint8_t meta[256];
	uint8_t data[256];
};

struct asked {
	struct lpi_door_rig *rig;
	struct lpi_client *client;
	uint32_t cnt;
	struct answer answers[ASKED];
};

static void ask_begin(struct asked *asked, struct lpi_client *client)
{
	*asked = (struct asked){.rig = client->rig, .client = client};
	lpi_client_keep(client);
}

/* Sends what was written of it; its place among the answers. */
static uint32_t ask(struct asked *asked, uint16_t opcode, const void *data, uint32_t len,
		    uint64_t offset)
{
	assert_true(asked->cnt < ASKED);
	asked->answers[asked->cnt].request_id =
		lpi_client_send(asked->client, opcode, 0, data, len, offset);
	return asked->cnt++;
}

static void take_answer(struct asked *asked)
{
	struct lpi_client *client = asked->client;
	struct answer *answer = asked->answers;
	assert_true(lpi_client_recv(client));
	while (answer->request_id != client->reply.request_id)
		assert_true(++answer < asked->answers + asked->cnt);
	answer->result = -(int)client->reply.status;
	answer->meta_bytes = LP_MIN(client->reply.meta_bytes, (uint32_t)sizeof(answer->meta));
	answer->data_bytes = LP_MIN(client->reply.data_bytes, (uint32_t)sizeof(answer->data));
	memcpy(answer->meta, client->rest, answer->meta_bytes);
	memcpy(answer->data, client->data, answer->data_bytes);
}

static void take_answers(struct asked *asked)
{
	for (uint32_t i = 0; i < asked->cnt; i++)
		take_answer(asked);
}

static void ask_all(struct asked *asked)
{
	lpi_client_send_kept(asked->client);
	take_answers(asked);
}

static struct lp_wire_attrs attrs_of(const struct answer *answer)
{
	struct lp_wire_attrs attrs = {.ino = 0};
	struct lp_reader reader;
	lp_test_ok(answer->result);
	lp_reader_init(&reader, answer->meta, answer->meta_bytes);
	assert_true(lp_wire_part(&reader, lp_wire_attrs, &attrs));
	return attrs;
}

static struct lp_wire_written written_of(const struct answer *answer)
{
	struct lp_wire_written written = {.offset = 0};
	struct lp_reader reader;
	lp_test_ok(answer->result);
	lp_reader_init(&reader, answer->meta, answer->meta_bytes);
	assert_true(lp_wire_part(&reader, lp_wire_written, &written));
	return written;
}

static void assert_value(const struct answer *answer, const char *want)
{
	struct lp_wire_value value = {.value_bytes = 0};
	struct lp_reader reader;
	lp_test_ok(answer->result);
	lp_reader_init(&reader, answer->meta, answer->meta_bytes);
	assert_true(lp_wire_part(&reader, lp_wire_value, &value));
	assert_int_equal(value.value_bytes, strlen(want));
	assert_memory_equal(lp_wire_bytes(&reader, value.value_bytes), want, strlen(want));
}

static uint32_t items_of(const struct answer *answer)
{
	struct lp_wire_listed listed = {.item_cnt = 0};
	struct lp_reader reader;
	lp_test_ok(answer->result);
	lp_reader_init(&reader, answer->meta, answer->meta_bytes);
	assert_true(lp_wire_part(&reader, lp_wire_listed, &listed));
	return listed.item_cnt;
}

/* --- Requests --------------------------------------------------------------------------------- */

static uint32_t ask_named(struct asked *asked, uint16_t opcode, uint64_t ino, const char *name,
			  const void *value, uint32_t len)
{
	struct lp_writer *meta = &asked->client->meta;
	struct lp_wire_named named = {.name_bytes = (uint16_t)strlen(name), .value_bytes = len};
	LPI_CLIENT_REF(named.ref, ino, "");
	lp_wire_put_part(meta, lp_wire_named, &named);
	lpi_client_put_text(asked->client, name);
	lp_writer_bytes(meta, value, len);
	return ask(asked, opcode, NULL, 0, 0);
}

static uint32_t ask_text(struct asked *asked, uint16_t opcode, uint64_t ino, const char *value)
{
	return ask_named(asked, opcode, ino, "user.x", value, (uint32_t)strlen(value));
}

static uint32_t ask_range(struct asked *asked, uint16_t opcode, uint64_t ino)
{
	struct lp_wire_range range = {.prefix_bytes = 5};
	LPI_CLIENT_REF(range.ref, ino, "");
	lp_wire_put_part(&asked->client->meta, lp_wire_range, &range);
	lpi_client_put_text(asked->client, "user.");
	return ask(asked, opcode, NULL, 0, 0);
}

static uint32_t ask_ref(struct asked *asked, uint16_t opcode, uint64_t ino)
{
	lpi_client_put_ref(asked->client, ino, "");
	return ask(asked, opcode, NULL, 0, 0);
}

static uint32_t ask_write(struct asked *asked, uint64_t ino, const char *text)
{
	struct lp_wire_write write = {.write_path = 0};
	LPI_CLIENT_REF(write.ref, ino, "");
	lp_wire_put_part(&asked->client->meta, lp_wire_write, &write);
	return ask(asked, LP_WIRE_OP_WRITE, text, (uint32_t)strlen(text), 0);
}

static uint32_t ask_get(struct asked *asked, uint64_t ino, uint64_t length)
{
	struct lp_wire_get get = {.length = length};
	LPI_CLIENT_REF(get.ref, ino, "");
	lp_wire_put_part(&asked->client->meta, lp_wire_get, &get);
	return ask(asked, LP_WIRE_OP_GET, NULL, 0, 0);
}

static uint32_t ask_set(struct asked *asked, uint64_t ino, uint32_t mask,
			const struct lp_wire_attrs *attrs)
{
	struct lp_wire_set set = {.mask = mask};
	lp_wire_attrs_encode(attrs, set.attrs);
	LPI_CLIENT_REF(set.ref, ino, "");
	lp_wire_put_part(&asked->client->meta, lp_wire_set, &set);
	return ask(asked, LP_WIRE_OP_SET, NULL, 0, 0);
}

static uint32_t ask_clone(struct asked *asked, uint64_t ino, uint64_t from)
{
	struct lp_wire_clone clone = {.src_ino = from, .length = 4};
	LPI_CLIENT_REF(clone.ref, ino, "");
	lp_wire_put_part(&asked->client->meta, lp_wire_clone, &clone);
	return ask(asked, LP_WIRE_OP_CLONE, NULL, 0, 0);
}

/* A spread directory, in which files are on any shard. */
static void make_dir(struct lpi_client *client)
{
	struct lp_wire_make make = {.uid = LP_WIRE_NO_OWNER,
				    .gid = LP_WIRE_NO_OWNER,
				    .mode = 0755,
				    .type = LP_INODE_TYPE_DIR,
				    .spread = 1};
	LPI_CLIENT_REF(make.ref, 0, "dir");
	lp_wire_put_part(&client->meta, lp_wire_make, &make);
	lpi_client_put_text(client, "dir");
	lp_test_ok(lpi_client_do(client, LP_WIRE_OP_MAKE, NULL, 0, 0));
}

/* A new file on a shard. */
static uint64_t file_on(struct lpi_client *client, uint32_t shard_idx)
{
	static uint32_t nr;
	uint64_t ino = 0;
	for (uint32_t i = 0; i == 0 || ino >> 56 != shard_idx; i++) {
		char path[32];
		(void)snprintf(path, sizeof(path), "dir/%u", nr++);
		ino = lpi_client_make(client, path, LP_INODE_TYPE_FILE);
		assert_true(i < 1000);
	}
	return ino;
}

/* --- Up and down ------------------------------------------------------------------------------ */

struct world {
	struct lpi_door_rig *rig;
	struct lpi_client *root;
	struct lpi_client *user;
};

static struct lpi_client *user_of(struct lpi_door_rig *rig)
{
	rig->peer_uid = USER;
	rig->peer_gid = GROUP;
	return lpi_client_open(rig, LP_WIRE_CRC_ALL);
}

static struct world begin(void)
{
	struct world world = {.rig = lpi_door_rig_new(SHARDS, BUFS, NULL)};
	world.root = lpi_client_open(world.rig, LP_WIRE_CRC_ALL);
	world.user = user_of(world.rig);
	make_dir(world.root);
	return world;
}

static void end(const struct world *world)
{
	lpi_client_free(world->root);
	lpi_client_free(world->user);
	lpi_door_rig_free(world->rig);
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void what_was_set_is_there(void **state)
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
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t i = 0; i < 2 * SHARDS; i++) {
		uint64_t ino = file_on(world.root, i / 2);
		ask_begin(&asked, world.root);
		(void)ask_text(&asked, kinds[i % 2].set, ino, "one");
		(void)ask_text(&asked, kinds[i % 2].get, ino, "");
		(void)ask_text(&asked, kinds[i % 2].set, ino, "two");
		(void)ask_text(&asked, kinds[i % 2].get, ino, "");
		(void)ask_range(&asked, kinds[i % 2].list, ino);
		(void)ask_text(&asked, kinds[i % 2].remove, ino, "");
		(void)ask_text(&asked, kinds[i % 2].get, ino, "");
		(void)ask_range(&asked, kinds[i % 2].list, ino);
		(void)ask_text(&asked, kinds[i % 2].set, ino, "three");
		(void)ask_text(&asked, kinds[i % 2].get, ino, "");
		ask_all(&asked);
		assert_value(&asked.answers[1], "one");
		assert_value(&asked.answers[3], "two");
		assert_int_equal(items_of(&asked.answers[4]), 1);
		lp_test_ok(asked.answers[5].result);
		lp_test_err(-ENODATA, asked.answers[6].result);
		assert_int_equal(items_of(&asked.answers[7]), 0);
		assert_value(&asked.answers[9], "three");
	}
	end(&world);
}

/* Who finds the data after a crash finds the mark that was sent before it. */
static void a_mark_is_there_before_the_data(void **state)
{
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t i = 0; i < SHARDS; i++) {
		uint64_t ino = file_on(world.root, i);
		ask_begin(&asked, world.root);
		(void)ask_text(&asked, LP_WIRE_OP_OMAP_SET, ino, "mark");
		uint32_t write = ask_write(&asked, ino, "data");
		ask_all(&asked);
		uint64_t version_nr = written_of(&asked.answers[write]).version_nr;
		/* No change is later than the write. */
		ask_begin(&asked, world.root);
		uint32_t stat = ask_ref(&asked, LP_WIRE_OP_STAT, ino);
		ask_all(&asked);
		assert_int_equal(attrs_of(&asked.answers[stat]).version_nr, version_nr);
	}
	end(&world);
}

static void attributes_are_those_that_were_set(void **state)
{
	const struct world world = begin();
	const struct lp_wire_attrs mode = {.mode = 0640};
	const struct lp_wire_attrs mtime = {.mtime_ns = LONG_AGO};
	struct asked asked;
	(void)state;
	for (uint32_t i = 0; i < SHARDS; i++) {
		uint64_t ino = file_on(world.root, i);
		ask_begin(&asked, world.root);
		(void)ask_set(&asked, ino, LP_WIRE_SET_MODE, &mode);
		uint32_t first = ask_ref(&asked, LP_WIRE_OP_STAT, ino);
		(void)ask_write(&asked, ino, "early");
		uint32_t set = ask_set(&asked, ino, LP_WIRE_SET_MTIME, &mtime);
		uint32_t second = ask_ref(&asked, LP_WIRE_OP_STAT, ino);
		(void)ask_write(&asked, ino, "a later one");
		uint32_t third = ask_ref(&asked, LP_WIRE_OP_STAT, ino);
		ask_all(&asked);
		assert_int_equal(attrs_of(&asked.answers[first]).mode, 0640);
		assert_int_equal(attrs_of(&asked.answers[first]).size_bytes, 0);
		assert_int_equal(attrs_of(&asked.answers[set]).mtime_ns, LONG_AGO);
		assert_int_equal(attrs_of(&asked.answers[set]).size_bytes, 5);
		assert_int_equal(attrs_of(&asked.answers[second]).mtime_ns, LONG_AGO);
		assert_true(attrs_of(&asked.answers[third]).mtime_ns > LONG_AGO);
		assert_int_equal(attrs_of(&asked.answers[third]).size_bytes, 11);
	}
	end(&world);
}

static void a_list_that_was_taken_is_gone(void **state)
{
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t i = 0; i < SHARDS; i++) {
		uint64_t ino = file_on(world.root, i);
		ask_begin(&asked, world.root);
		(void)ask_named(&asked, LP_WIRE_OP_XATTR_SET, ino, LP_ACL_ACCESS, list,
				sizeof(list));
		(void)ask_named(&asked, LP_WIRE_OP_XATTR_REMOVE, ino, LP_ACL_ACCESS, NULL, 0);
		(void)ask_named(&asked, LP_WIRE_OP_XATTR_GET, ino, LP_ACL_ACCESS, NULL, 0);
		ask_all(&asked);
		lp_test_ok(asked.answers[0].result);
		lp_test_ok(asked.answers[1].result);
		lp_test_err(-ENODATA, asked.answers[2].result);
	}
	end(&world);
}

static void assert_nothing_open(const struct lpi_door_rig *rig)
{
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(rig->ns[i], &stats);
		assert_int_equal(stats.opens, 0);
	}
}

static void what_was_opened_is_closed(void **state)
{
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t i = 0; i < SHARDS; i++) {
		uint64_t ino = file_on(world.root, i);
		ask_begin(&asked, world.root);
		(void)ask_ref(&asked, LP_WIRE_OP_OPEN, ino);
		(void)ask_ref(&asked, LP_WIRE_OP_OPEN, ino);
		(void)ask_ref(&asked, LP_WIRE_OP_CLOSE, ino);
		(void)ask_ref(&asked, LP_WIRE_OP_CLOSE, ino);
		(void)ask_ref(&asked, LP_WIRE_OP_CLOSE, ino);
		ask_all(&asked);
		for (uint32_t j = 0; j < 4; j++)
			lp_test_ok(asked.answers[j].result);
		lp_test_err(-EBADF, asked.answers[4].result);
		assert_nothing_open(world.rig);
	}
	end(&world);
}

/* A write that goes to another thread's shard waits there for room, which the last of many does not
 * find: what comes behind it does not pass it. */
static void many_writes_keep_their_place(void **state)
{
	const struct world world = begin();
	struct asked asked;
	char text[8];
	(void)state;
	for (uint32_t i = 0; i < SHARDS; i++) {
		uint64_t ino = file_on(world.root, i);
		ask_begin(&asked, world.root);
		for (uint32_t j = 0; j < MANY; j++) {
			(void)snprintf(text, sizeof(text), "%03u", j);
			(void)ask_write(&asked, ino, text);
		}
		uint32_t get = ask_get(&asked, ino, 3);
		uint32_t set = ask_set(&asked, ino, LP_WIRE_SET_MTIME,
				       &(struct lp_wire_attrs){.mtime_ns = LONG_AGO});
		uint32_t stat = ask_ref(&asked, LP_WIRE_OP_STAT, ino);
		(void)ask_text(&asked, LP_WIRE_OP_OMAP_SET, ino, "mark");
		ask_all(&asked);
		assert_int_equal(asked.answers[get].data_bytes, 3);
		assert_memory_equal(asked.answers[get].data, text, 3);
		assert_int_equal(attrs_of(&asked.answers[set]).mtime_ns, LONG_AGO);
		assert_int_equal(attrs_of(&asked.answers[stat]).mtime_ns, LONG_AGO);
		/* And stays so: no write comes after it. */
		ask_begin(&asked, world.root);
		stat = ask_ref(&asked, LP_WIRE_OP_STAT, ino);
		ask_all(&asked);
		assert_int_equal(attrs_of(&asked.answers[stat]).mtime_ns, LONG_AGO);
	}
	end(&world);
}

/* --- Of who is not root ----------------------------------------------------------------------- */

static void give_bits(struct lpi_client *root, uint64_t ino)
{
	struct asked asked;
	ask_begin(&asked, root);
	(void)ask_set(&asked, ino, LP_WIRE_SET_MODE, &(struct lp_wire_attrs){.mode = 06755});
	ask_all(&asked);
	lp_test_ok(asked.answers[0].result);
}

static void assert_data(struct lpi_client *client, uint64_t ino, const char *want)
{
	struct asked asked;
	ask_begin(&asked, client);
	(void)ask_get(&asked, ino, 100);
	(void)ask_ref(&asked, LP_WIRE_OP_STAT, ino);
	ask_all(&asked);
	lp_test_ok(asked.answers[0].result);
	assert_int_equal(asked.answers[0].data_bytes, strlen(want));
	assert_memory_equal(asked.answers[0].data, want, strlen(want));
	assert_int_equal(attrs_of(&asked.answers[1]).mode, 0755);
}

/* Those that find the bits look at them, one after the other; one that comes when they are gone
 * would find its way before these. */
static void no_write_overtakes_those_that_look(void **state)
{
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t turns = 0; turns < 24; turns++) {
		uint64_t ino = file_on(world.root, turns % SHARDS);
		give_bits(world.root, ino);
		ask_begin(&asked, world.user);
		(void)ask_write(&asked, ino, "1111");
		(void)ask_write(&asked, ino, "2222");
		(void)ask_write(&asked, ino, "3333");
		lpi_client_send_kept(world.user);
		for (uint32_t i = 0; i < turns; i++)
			lpi_door_rig_turn(world.rig);
		lpi_client_keep(world.user);
		(void)ask_write(&asked, ino, "last");
		(void)ask_text(&asked, LP_WIRE_OP_OMAP_SET, ino, "mark");
		ask_all(&asked);
		for (uint32_t i = 0; i < asked.cnt; i++)
			lp_test_ok(asked.answers[i].result);
		assert_data(world.root, ino, "last");
	}
	end(&world);
}

/* A clone that looks is behind the write to its source, and before the next one. */
static void a_clone_has_its_place_among_writes(void **state)
{
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t i = 0; i < 2 * SHARDS; i++) {
		uint64_t from = file_on(world.root, i / 2);
		uint64_t to = file_on(world.root, i / 2);
		give_bits(world.root, from);
		if (i % 2 == 0)
			give_bits(world.root, to);
		ask_begin(&asked, world.user);
		(void)ask_write(&asked, from, "1111");
		(void)ask_clone(&asked, to, from);
		(void)ask_write(&asked, from, "2222");
		ask_all(&asked);
		for (uint32_t j = 0; j < asked.cnt; j++)
			lp_test_ok(asked.answers[j].result);
		assert_data(world.root, to, "1111");
		assert_data(world.root, from, "2222");
	}
	end(&world);
}

/* --- Who waits, and who does not -------------------------------------------------------------- */

static struct lpi_conn *last_conn(const struct lpi_door_rig *rig)
{
	struct lpi_conn *conn = lpi_conn_list_last(&rig->door[0]->conns);
	LP_ASSERT(conn != NULL);
	return conn;
}

/* For so many turns nobody waits and nobody looks. */
static void assert_nobody_waits(struct lpi_door_rig *rig)
{
	const struct lpi_conn *conn = NULL;
	for (uint32_t i = 0; i < 200; i++) {
		lpi_door_rig_turn(rig);
		LP_LIST_FOREACH (lpi_conn_list, &rig->door[0]->conns, conn) {
			assert_int_equal(conn->looking, 0);
			assert_true(lpi_wait_list_is_empty(&conn->waiting));
		}
	}
}

/* What is the store's at once, which keeps the order. */
static void plain_requests_run_beside_each_other(void **state)
{
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t i = 0; i < 2 * SHARDS; i++) {
		uint64_t ino = file_on(world.root, i / 2);
		ask_begin(&asked, i % 2 == 0 ? world.root : world.user);
		for (uint32_t j = 0; j < 8; j++) {
			(void)ask_write(&asked, ino, "plain");
			(void)ask_get(&asked, ino, 5);
			(void)ask_text(&asked, LP_WIRE_OP_OMAP_GET, ino, "");
			(void)ask_ref(&asked, LP_WIRE_OP_STAT, ino);
		}
		lpi_client_send_kept(asked.client);
		assert_nobody_waits(world.rig);
		take_answers(&asked);
		assert_int_equal(asked.answers[1].data_bytes, 5);
	}
	end(&world);
}

/* A get that finds no room for its answer has its place all the same. */
static void a_get_without_room_keeps_its_place(void **state)
{
	const struct lp_door_options options = {.credit_bytes_max = LP_WIRE_DATA_MAX};
	struct lpi_door_rig *rig = lpi_door_rig_new(1, BUFS, &options);
	struct lpi_client *client = lpi_client_open(rig, LP_WIRE_CRC_ALL);
	uint8_t *data = calloc(1, LP_WIRE_PIECE_MAX);
	struct asked asked;
	(void)state;
	make_dir(client);
	uint64_t ino = file_on(client, 0);
	uint64_t large = file_on(client, 0);
	lp_test_ok(lpi_client_result(
		client, lpi_client_send_write(client, large, "", data, LP_WIRE_PIECE_MAX, 0)));
	lp_test_ok(
		lpi_client_result(client, lpi_client_send_write(client, ino, "", "early", 5, 0)));
	ask_begin(&asked, client);
	for (uint32_t i = 0; i < LP_WIRE_DATA_MAX / LP_WIRE_PIECE_MAX; i++)
		(void)ask_get(&asked, large, LP_WIRE_PIECE_MAX);
	uint32_t get = ask_get(&asked, ino, 100);
	(void)ask_write(&asked, ino, "later");
	lpi_client_send_kept(client);
	for (uint32_t i = 0; i < 100; i++)
		lpi_door_rig_turn(rig);
	assert_int_equal(last_conn(rig)->looking, 1);
	take_answers(&asked);
	assert_int_equal(asked.answers[get].data_bytes, 5);
	assert_memory_equal(asked.answers[get].data, "early", 5);
	assert_int_equal(last_conn(rig)->looking, 0);
	free(data);
	lpi_client_free(client);
	lpi_door_rig_free(rig);
}

/* What waits when its client goes comes to its end with the others. */
static void who_goes_leaves_nobody_waiting(void **state)
{
	const struct world world = begin();
	struct asked asked;
	(void)state;
	for (uint32_t turns = 0; turns < 12; turns++) {
		struct lpi_client *user = user_of(world.rig);
		uint64_t ino = file_on(world.root, turns % SHARDS);
		give_bits(world.root, ino);
		ask_begin(&asked, user);
		for (uint32_t i = 0; i < 4; i++) {
			(void)ask_write(&asked, ino, "data");
			(void)ask_text(&asked, LP_WIRE_OP_OMAP_SET, ino, "mark");
			(void)ask_ref(&asked, LP_WIRE_OP_OPEN, ino);
			(void)ask_get(&asked, ino, 100);
		}
		lpi_client_send_kept(user);
		for (uint32_t i = 0; i < turns; i++)
			lpi_door_rig_turn(world.rig);
		lpi_client_free(user);
	}
	end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_set_is_there),
		cmocka_unit_test(a_mark_is_there_before_the_data),
		cmocka_unit_test(attributes_are_those_that_were_set),
		cmocka_unit_test(a_list_that_was_taken_is_gone),
		cmocka_unit_test(what_was_opened_is_closed),
		cmocka_unit_test(many_writes_keep_their_place),
		cmocka_unit_test(no_write_overtakes_those_that_look),
		cmocka_unit_test(a_clone_has_its_place_among_writes),
		cmocka_unit_test(plain_requests_run_beside_each_other),
		cmocka_unit_test(a_get_without_room_keeps_its_place),
		cmocka_unit_test(who_goes_leaves_nobody_waiting),
	};
	return lp_test_main(tests, "order by number");
}
