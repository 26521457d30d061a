/* SPDX-License-Identifier: Apache-2.0 */
/* Calls between shards: data there and back, no buffers, many at once, several shards on one
 * reactor; and two shards on two threads. */
#include <pthread.h>
#include <stdatomic.h>

#include "base/crc32c.h"
#include "namespace/shard/ns_rig_test.h"
#include "store/model/store_test.h"

#define BYTES (LP_BUF_LARGE + 2 * LP_BUF_SMALL + 77)

static uint8_t pattern[BYTES];
static uint8_t got[BYTES];

static void fill(uint8_t seed)
{
	for (uint32_t i = 0; i < BYTES; i++)
		pattern[i] = (uint8_t)(i * 7 + i / 251 + seed);
}

/* --- One thread ------------------------------------------------------------------------------- */

struct trip {
	struct lpi_call call;
	struct lp_store_op op;
	struct lp_change change;
	uint32_t done;
};

static void arrived(struct lpi_call *call)
{
	LP_CONTAINER_OF(call, struct trip, call)->done++;
}

static void go(struct lpi_ns_rig *rig, uint32_t from, uint32_t to, struct trip *trip)
{
	trip->done = 0;
	trip->call.done = arrived;
	lpi_call_store(rig->ns[from], to, &trip->call, &trip->op, true);
	assert_int_equal(trip->done, 0);
}

static int wait_for(struct lpi_ns_rig *rig, const struct trip *trip)
{
	for (uint32_t i = 0; trip->done == 0; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(rig);
	}
	assert_int_equal(trip->done, 1);
	assert_true(lpi_call_is_idle(&trip->call));
	return trip->call.result;
}

static struct lp_ino make_file(struct lpi_ns_rig *rig, uint32_t shard)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .nlink = 1, .mode = 0644};
	struct lp_ino ino = lp_store_new_ino(rig->store[shard]);
	struct trip trip = {
		.change = {.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &attrs}}};
	trip.op = lpi_txn_op(&trip.change, 1);
	go(rig, 0, shard, &trip);
	lp_test_ok(wait_for(rig, &trip));
	return ino;
}

static void begin_write(struct lpi_ns_rig *rig, uint32_t from, struct lp_ino ino, uint64_t length,
			struct lpi_pay *pay, struct trip *trip)
{
	*trip = (struct trip){.done = 0};
	assert_true(lpi_pay_make(pay, rig->bufs[from], pattern, 0, length, LP_BUF_LARGE));
	trip->change = lpi_write_change(ino, 0, length, pay);
	trip->op = lpi_txn_op(&trip->change, 1);
	go(rig, from, lp_ino_shard(ino), trip);
}

static void check_read(struct lpi_ns_rig *rig, uint32_t from, struct lp_ino ino, uint64_t offset,
		       uint64_t length)
{
	struct trip trip = {.op = {.opcode = LP_STORE_READ,
				   .read = {.ino = ino, .offset = offset, .length = length}}};
	go(rig, from, lp_ino_shard(ino), &trip);
	lp_test_ok(wait_for(rig, &trip));
	lpi_read_take(&trip.op, got);
	assert_memory_equal(got, pattern + offset, trip.op.read.bytes);
	assert_int_equal(trip.op.read.bytes, LP_MIN(length, BYTES - offset));
	lpi_call_end_read(&trip.call);
}

/* Buffers are of the thread that works with them: freeing those of the rig asserts that all came
 * back to where they belong. */
static void test_data(void **state)
{
	(void)state;
	struct lpi_ns_rig *rig = lpi_ns_rig_new(2);
	for (uint32_t i = 0; i < 4; i++) {
		struct lp_ino ino = make_file(rig, i / 2);
		struct lpi_pay pay;
		struct trip trip;
		fill((uint8_t)i);
		begin_write(rig, i % 2, ino, BYTES, &pay, &trip);
		lp_test_ok(wait_for(rig, &trip));
		assert_ptr_equal(trip.op.txn.changes, &trip.change);
		lpi_pay_drop(&pay);
		for (uint32_t from = 0; from < 2; from++) {
			check_read(rig, from, ino, 0, LP_STORE_READ_MAX);
			check_read(rig, from, ino, LP_STORE_READ_MAX - 5, LP_STORE_READ_MAX);
			check_read(rig, from, ino, 4095, LP_STORE_READ_MAX);
			check_read(rig, from, ino, BYTES, 10);
			check_read(rig, from, ino, 17, 3);
		}
	}
	assert_int_equal(lp_pool_free_cnt(rig->ns[0]->transfers), LPI_TRANSFERS);
	lpi_ns_rig_free(rig);
}

static void test_errors(void **state)
{
	(void)state;
	struct lpi_ns_rig *rig = lpi_ns_rig_new(2);
	struct trip trip = {
		.op = {.opcode = LP_STORE_READ, .read = {.ino = lp_ino_make(1, 99), .length = 5}}};
	go(rig, 0, 1, &trip);
	assert_int_equal(wait_for(rig, &trip), -ENOENT);
	trip.op = (struct lp_store_op){.opcode = LP_STORE_STAT, .stat = {.ino = {99}}};
	go(rig, 0, 0, &trip);
	assert_int_equal(wait_for(rig, &trip), -ENOENT);
	lpi_ns_rig_free(rig);
}

/* A call that finds no buffer, on either shard, waits for one. Then it looks again, because a
 * change may have begun to be decided meanwhile. */
static void test_no_buffers(void **state)
{
	(void)state;
	struct lpi_ns_rig *rig = lpi_ns_rig_new(2);
	struct lp_ino ino = make_file(rig, 1);
	struct lp_buf *all[64];
	struct lpi_lock lock = {.kind = LPI_LOCK_INODE, .ino = ino};
	struct lpi_pay pay;
	struct trip trip;
	uint32_t cnt = 0;
	lock.granted = (void (*)(struct lpi_lock *))1;
	fill(9);
	while (cnt < 64 && (all[cnt] = lp_buf_new(rig->bufs[1], LP_BUF_LARGE)) != NULL)
		cnt++;
	assert_true(cnt > 0 && cnt < 64);
	begin_write(rig, 0, ino, BYTES, &pay, &trip);
	for (uint32_t i = 0; i < 100; i++)
		(void)lpi_ns_rig_turn(rig);
	assert_int_equal(trip.done, 0);
	assert_true(lpi_lock_acquire(rig->ns[1]->locks, &lock));
	lpi_lock_harden(rig->ns[1]->locks, &lock);
	while (cnt > 0)
		lp_buf_put(all[--cnt]);
	for (uint32_t i = 0; i < 100; i++)
		(void)lpi_ns_rig_turn(rig);
	assert_int_equal(trip.done, 0);
	lpi_lock_release(rig->ns[1]->locks, &lock);
	lp_test_ok(wait_for(rig, &trip));
	lpi_pay_drop(&pay);
	/* And back. */
	while (cnt < 64 && (all[cnt] = lp_buf_new(rig->bufs[0], LP_BUF_LARGE)) != NULL)
		cnt++;
	trip = (struct trip){
		.op = {.opcode = LP_STORE_READ, .read = {.ino = ino, .length = LP_STORE_READ_MAX}}};
	go(rig, 0, 1, &trip);
	for (uint32_t i = 0; i < 100; i++)
		(void)lpi_ns_rig_turn(rig);
	assert_int_equal(trip.done, 0);
	while (cnt > 0)
		lp_buf_put(all[--cnt]);
	lp_test_ok(wait_for(rig, &trip));
	lpi_read_take(&trip.op, got);
	assert_memory_equal(got, pattern, trip.op.read.bytes);
	lpi_call_end_read(&trip.call);
	lpi_ns_rig_free(rig);
}

/* Rule B1: requests on both shards have all the buffers that requests may have, and each waits for
 * the other shard. They go on with the buffers that are reserved for copies. */
static void test_no_circle(void **state)
{
	(void)state;
	enum { EACH = 10, SLABS_MAX = 64 };
	static struct trip trips[2 * EACH];
	static struct lpi_pay pays[2 * EACH];
	struct lpi_ns_rig *rig = lpi_ns_rig_new(2);
	struct lp_ino ino[2] = {make_file(rig, 0), make_file(rig, 1)};
	struct lp_buf *all[2][SLABS_MAX];
	uint32_t cnt[2] = {0, 0};
	uint32_t trip_cnt = 0;
	fill(5);
	for (uint32_t i = 0; i < 2; i++) {
		lp_bufs_reserve(rig->bufs[i], LP_BUF_ANSWER, 2);
		lp_bufs_reserve(rig->bufs[i], LP_BUF_CARRY, 2);
	}
	for (; trip_cnt < 2 * EACH; trip_cnt++)
		begin_write(rig, trip_cnt % 2, ino[1 - trip_cnt % 2], LP_BUF_MEDIUM,
			    &pays[trip_cnt], &trips[trip_cnt]);
	for (uint32_t i = 0; i < 2; i++) {
		while (cnt[i] < SLABS_MAX &&
		       (all[i][cnt[i]] = lp_buf_new(rig->bufs[i], LP_BUF_LARGE)) != NULL)
			cnt[i]++;
		assert_true(cnt[i] < SLABS_MAX);
	}
	for (uint32_t i = 0; i < trip_cnt; i++)
		lp_test_ok(wait_for(rig, &trips[i]));
	for (uint32_t i = 0; i < 2; i++)
		check_read(rig, 1 - i, ino[i], 0, LP_BUF_MEDIUM);
	for (uint32_t i = 0; i < trip_cnt; i++)
		lpi_pay_drop(&pays[i]);
	for (uint32_t i = 0; i < 2; i++) {
		while (cnt[i] > 0)
			lp_buf_put(all[i][--cnt[i]]);
	}
	lpi_ns_rig_free(rig);
}

/* Waiting calls can be seen: what they wait for, and since when. */
static void test_under_way(void **state)
{
	(void)state;
	struct lpi_ns_rig *rig = lpi_ns_rig_new(2);
	struct lp_ino ino = make_file(rig, 1);
	struct lp_under_way rows[2];
	struct lp_under_way_list list = {.rows = rows, .max = 2};
	struct lp_buf *all[64];
	struct lpi_pay pay;
	struct trip trip;
	uint32_t cnt = 0;
	fill(3);
	while (cnt < 64 && (all[cnt] = lp_buf_new(rig->bufs[1], LP_BUF_LARGE)) != NULL)
		cnt++;
	begin_write(rig, 0, ino, BYTES, &pay, &trip);
	for (uint32_t i = 0; i < 100; i++)
		(void)lpi_ns_rig_turn(rig);
	lp_ns_under_way(rig->ns[0], &list);
	assert_int_equal(list.all, 0);
	lp_ns_under_way(rig->ns[1], &list);
	assert_int_equal(list.all, 1);
	assert_string_equal(rows[0].part, "names");
	assert_string_equal(rows[0].waits_for, "buffers for data of another shard");
	assert_int_equal(rows[0].ino_nr, ino.nr);
	assert_true(rows[0].age_ns > 0);
	while (cnt > 0)
		lp_buf_put(all[--cnt]);
	lp_test_ok(wait_for(rig, &trip));
	list = (struct lp_under_way_list){.rows = rows, .max = 2};
	lp_ns_under_way(rig->ns[1], &list);
	assert_int_equal(list.all, 0);
	lpi_pay_drop(&pay);
	lpi_ns_rig_free(rig);
}

/* More writes than there are transfers: in the end all are made. */
static void test_many(void **state)
{
	(void)state;
	enum { MANY = 3 * LPI_TRANSFERS };
	static struct trip trips[MANY];
	static struct lpi_pay pays[MANY];
	struct lpi_ns_rig *rig = lpi_ns_rig_new(2);
	struct lp_ino ino = make_file(rig, 1);
	fill(3);
	for (uint32_t i = 0; i < MANY; i++)
		begin_write(rig, 0, ino, 5000, &pays[i], &trips[i]);
	for (uint32_t i = 0; i < MANY; i++) {
		lp_test_ok(wait_for(rig, &trips[i]));
		lpi_pay_drop(&pays[i]);
	}
	assert_int_equal(lp_pool_free_cnt(rig->ns[1]->transfers), LPI_TRANSFERS);
	lpi_ns_rig_free(rig);
}

/* --- Two threads ------------------------------------------------------------------------------ */

#define ROUNDS 300u

struct shard {
	pthread_t thread;
	uint32_t idx;
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store;
	struct lp_ns *ns;
	struct trip trip;
	struct lpi_pay pay;
	uint32_t rounds;
	struct lp_ino ino; /* on the other shard */
	struct lp_attrs attrs;
	uint8_t bytes[20000];
	uint8_t back[20000];
};

static struct shard shards[2];
static struct lp_ns *both[2];
static atomic_uint opened;

static void next_round(struct shard *shard);

static void read_back(struct lpi_call *call)
{
	struct shard *shard = LP_CONTAINER_OF(call, struct shard, trip.call);
	lp_test_ok(call->result);
	lpi_read_take(&shard->trip.op, shard->back);
	assert_memory_equal(shard->back, shard->bytes, sizeof(shard->bytes));
	lpi_call_end_read(call);
	next_round(shard);
}

static void written(struct lpi_call *call)
{
	struct shard *shard = LP_CONTAINER_OF(call, struct shard, trip.call);
	lp_test_ok(call->result);
	lpi_pay_drop(&shard->pay);
	shard->trip.op =
		(struct lp_store_op){.opcode = LP_STORE_READ,
				     .read = {.ino = shard->ino, .length = sizeof(shard->bytes)}};
	call->done = read_back;
	lpi_call_store(shard->ns, 1 - shard->idx, call, &shard->trip.op, true);
}

static void stopped(struct lp_ns *ns, void *arg)
{
	(void)ns;
	lp_reactor_stop(((struct shard *)arg)->reactor);
}

static void next_round(struct shard *shard)
{
	if (shard->rounds++ == ROUNDS) {
		lp_ns_stop(shard->ns, stopped, shard);
		return;
	}
	for (uint32_t i = 0; i < sizeof(shard->bytes); i++)
		shard->bytes[i] = (uint8_t)(i * shard->rounds + shard->idx);
	assert_true(lpi_pay_make(&shard->pay, shard->bufs, shard->bytes, 0, sizeof(shard->bytes),
				 LP_BUF_SMALL));
	shard->trip.change = lpi_write_change(shard->ino, 0, sizeof(shard->bytes), &shard->pay);
	shard->trip.op = lpi_txn_op(&shard->trip.change, 1);
	shard->trip.call.done = written;
	lpi_call_store(shard->ns, 1 - shard->idx, &shard->trip.call, &shard->trip.op, true);
}

static void made(struct lpi_call *call)
{
	lp_test_ok(call->result);
	next_round(LP_CONTAINER_OF(call, struct shard, trip.call));
}

static void ready(struct lp_ns *ns, int result, void *arg)
{
	struct shard *shard = arg;
	(void)ns;
	lp_test_ok(result);
	shard->ino = lp_ino_make(1 - shard->idx, 1000);
	shard->attrs = (struct lp_attrs){.type = LP_INODE_TYPE_FILE, .nlink = 1};
	shard->trip.change = (struct lp_change){
		.type = LP_CHANGE_CREATE, .ino = shard->ino, .inode = {.attrs = &shard->attrs}};
	shard->trip.op = lpi_txn_op(&shard->trip.change, 1);
	shard->trip.call.done = made;
	lpi_call_store(shard->ns, 1 - shard->idx, &shard->trip.call, &shard->trip.op, true);
}

static void *run_shard(void *arg)
{
	struct shard *shard = arg;
	const struct lp_reactor_options reactor = {.name = "shard", .ring = true};
	lp_test_ok(lp_reactor_new(&reactor, &shard->reactor));
	lp_test_ok(lp_reactor_start(shard->reactor));
	lp_test_ok(lp_bufs_new(UINT64_C(4) << 20, &shard->bufs));
	const struct lp_store_options store = {
		.reactor = shard->reactor, .bufs = shard->bufs, .shard_idx = shard->idx};
	lp_test_ok(lp_store_open_mem(&store, &shard->store));
	const struct lp_ns_options options = {.reactor = shard->reactor,
					      .store = shard->store,
					      .bufs = shard->bufs,
					      .shard_idx = shard->idx,
					      .shard_cnt = 2,
					      .ops_max = 16};
	lp_test_ok(lp_ns_open(&options, &shard->ns));
	both[shard->idx] = shard->ns;
	atomic_fetch_add(&opened, 1);
	while (atomic_load(&opened) < 2)
		;
	lp_ns_start(shard->ns, both, ready, shard);
	lp_reactor_run(shard->reactor);
	lp_ns_close(shard->ns);
	lp_test_ok(lp_store_close(shard->store, false));
	lp_bufs_free(shard->bufs);
	/* The other one's last message may be on its way from here. */
	atomic_fetch_add(&opened, 1);
	while (atomic_load(&opened) < 4)
		(void)lp_reactor_turn(shard->reactor, false);
	return NULL;
}

static void test_threads(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < 2; i++) {
		shards[i].idx = i;
		assert_int_equal(pthread_create(&shards[i].thread, NULL, run_shard, &shards[i]), 0);
	}
	for (uint32_t i = 0; i < 2; i++)
		assert_int_equal(pthread_join(shards[i].thread, NULL), 0);
	for (uint32_t i = 0; i < 2; i++) {
		assert_int_equal(shards[i].rounds, ROUNDS + 1);
		lp_reactor_free(shards[i].reactor);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_data),       cmocka_unit_test(test_errors),
		cmocka_unit_test(test_no_buffers), cmocka_unit_test(test_no_circle),
		cmocka_unit_test(test_under_way),  cmocka_unit_test(test_many),
		cmocka_unit_test(test_threads),
	};
	return lp_test_main(tests, "namespace/change/shard_call");
}
