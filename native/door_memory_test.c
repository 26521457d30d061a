/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out in a door that serves: each allocation that follows from what clients do fails
 * once, in a life of its own. The request is refused, or its connection is closed; nothing dies or
 * hangs, others are served, what was acknowledged is there, and all that was taken is given back
 * (P5, P7). */
#include "base/testing/scarce_test.h"
#include "native/door_test.h"

#define BUFS      (UINT64_C(32) << 20)
#define SHARDS    2u
#define FILES     3u
#define BYTES     70000u
#define SMALL     100u
#define CLOSED    (-ENOTCONN)
#define LIVES_MIN 20
#define PIPELINED 8u

static long kept = -1; /* while the daemon is not at work */
static long failing;

/* What the clients of the test ask for does not fail. */
static void around(bool begins)
{
	if (begins)
		lp_scarce_again(kept);
	else
		kept = lp_scarce_pause();
}

/* What is known of a file: which of its contents was acknowledged last. */
struct known {
	uint32_t bytes; /* 0: nothing, or not known */
	uint64_t seed;
	bool is_sure;
};

struct life {
	struct lpi_door_rig *rig;
	struct lpi_client *client;
	struct known files[FILES];
	uint64_t seed;
	uint8_t data[BYTES];
};

static const char *const paths[FILES] = {"dir/a", "dir/b", "other/c"};

static void hang_up(struct life *life)
{
	if (life->client != NULL)
		lpi_client_free(life->client);
	life->client = NULL;
}

static int result_of(struct life *life, uint64_t request_id)
{
	if (lpi_client_recv(life->client)) {
		assert_int_equal(life->client->reply.request_id, request_id);
		return -(int)life->client->reply.status;
	}
	hang_up(life);
	return CLOSED;
}

/* A refusal, or what follows from one before. The space of a store in memory is memory. */
static void expect_refusal(int result)
{
	if (result != 0 && result != -ENOMEM && result != -ENOSPC && result != CLOSED &&
	    result != -ENOENT)
		fail_msg("allocation %ld: %s", failing, lp_strerror(result));
}

/* As a listener does it. False: there is no memory for it. */
static bool connect_to(struct life *life, uint32_t shard_idx)
{
	int fd;
	struct lpi_client *client = lpi_client_pair(life->rig, &fd);
	around(true);
	int err = lpi_client_adopt(life->rig, 0, fd);
	around(false);
	life->client = client;
	if (err < 0) {
		lp_test_err(-ENOMEM, err);
		hang_up(life);
		return false;
	}
	lpi_client_put_hello(client, LP_WIRE_CRC_ALL, shard_idx);
	int result = result_of(life, lpi_client_send(client, LP_WIRE_OP_HELLO, 0, NULL, 0, 0));
	expect_refusal(result);
	if (result == 0)
		client->crc_mode = LP_WIRE_CRC_ALL;
	else
		hang_up(life);
	return result == 0;
}

/* There is a client; once more, for only one allocation fails. */
static void need_client(struct life *life, uint32_t shard_idx)
{
	if (life->client == NULL && !connect_to(life, shard_idx))
		assert_true(connect_to(life, shard_idx));
}

static int ask_ref(struct life *life, uint16_t opcode, const char *path)
{
	lpi_client_put_ref(life->client, 0, path);
	return result_of(life, lpi_client_send(life->client, opcode, 0, NULL, 0, 0));
}

static void put(struct life *life, uint32_t file, uint32_t bytes)
{
	struct known *known = &life->files[file];
	lpi_client_fill(life->data, bytes, ++life->seed);
	int result =
		result_of(life, lpi_client_send_put(life->client, paths[file], life->data, bytes));
	expect_refusal(result);
	*known = (struct known){.bytes = bytes, .seed = life->seed, .is_sure = result == 0};
}

/* Whole, and as it was put, if that is known. */
static int get(struct life *life, uint32_t file)
{
	uint8_t back[BYTES];
	const struct known *known = &life->files[file];
	uint64_t id = lpi_client_send_get(life->client, 0, paths[file], 0, BYTES);
	size_t at = 0;
	do {
		int result = result_of(life, id);
		if (result != 0)
			return result;
		assert_true(at + life->client->reply.data_bytes <= sizeof(back));
		memcpy(back + at, life->client->data, life->client->reply.data_bytes);
		at += life->client->reply.data_bytes;
	} while ((life->client->reply.flags & LP_WIRE_FLAG_MORE) != 0);
	if (!known->is_sure)
		return 0;
	assert_int_equal(at, known->bytes);
	lpi_client_fill(life->data, known->bytes, known->seed);
	assert_memory_equal(back, life->data, at);
	return 0;
}

/* Many at once, of which nobody waits for the answers. */
static void leave_in_the_middle(struct life *life)
{
	for (uint32_t i = 0; i < PIPELINED; i++)
		(void)lpi_client_send_get(life->client, 0, paths[i % FILES], 0, BYTES);
	hang_up(life);
}

static void do_all(struct life *life)
{
	static const uint16_t refs[] = {LP_WIRE_OP_STAT, LP_WIRE_OP_OPEN, LP_WIRE_OP_OPEN};
	for (uint32_t shard = 0; shard < SHARDS; shard++) {
		for (uint32_t file = 0; file < FILES; file++) {
			need_client(life, shard);
			put(life, file, file == 1 ? BYTES : SMALL);
		}
		for (uint32_t i = 0; i < LP_ARRAY_SIZE(refs); i++) {
			need_client(life, shard);
			expect_refusal(ask_ref(life, refs[i], paths[i]));
		}
		for (uint32_t file = 0; file < FILES; file++) {
			need_client(life, shard);
			expect_refusal(get(life, file));
		}
		need_client(life, shard);
		leave_in_the_middle(life);
	}
}

/* False: fewer are made than this. */
static bool fail_at(long idx)
{
	struct life *life = calloc(1, sizeof(*life));
	assert_non_null(life);
	life->rig = lpi_door_rig_new(SHARDS, BUFS, NULL);
	life->rig->around = around;
	failing = idx;
	kept = idx;
	do_all(life);
	bool was_hit = kept < 0;
	kept = -1;
	for (uint32_t file = 0; file < FILES; file++) {
		need_client(life, 0);
		int result = get(life, file);
		assert_true(result == 0 || (result == -ENOENT && !life->files[file].is_sure));
	}
	hang_up(life);
	life->rig->around = NULL;
	lpi_door_rig_free(life->rig);
	free(life);
	return was_hit;
}

static void each_fails_once(void **state)
{
	long idx = 0;
	(void)state;
	while (fail_at(idx))
		idx++;
	print_message("%ld allocations in a life\n", idx);
	assert_true(idx > LIVES_MIN);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(each_fails_once)};
	return lp_test_main(tests, "native/door_memory");
}
