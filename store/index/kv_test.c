/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: batches, reads by tier, iterators, what is persisted, refused writes, failures and resume
 * do what store/index/kv.h says, over RocksDB's own threads.
 * Method: a kv over files in memory with small memtables; injected errors; a barrier that holds. */
#include "store/index/kv_rig_test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/prng.h"

static struct lp_test_kv test;

static int set_up(void **state)
{
	(void)state;
	lp_test_kv_init(&test, false, 1);
	lp_test_kv_open(&test);
	return 0;
}

static void set_gate(bool closed, int err);

static int tear_down(void **state)
{
	(void)state;
	set_gate(false, 0); /* of a test that failed: what waits there ends */
	lp_test_kv_fini(&test);
	return 0;
}

static struct lp_kv_bytes key_of(uint32_t number, char (*buf)[16])
{
	int len = snprintf(*buf, sizeof(*buf), "k%08u", number);
	return (struct lp_kv_bytes){.data = *buf, .len = (size_t)len};
}

/* --- Batches -----------------------------------------------------------------------------------
 */

struct counter {
	struct lp_kv_batch_visitor visitor;
	int puts;
	int dels;
	int stop_after;
};

static int count_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		     struct lp_kv_bytes value)
{
	struct counter *counter = LP_CONTAINER_OF(visitor, struct counter, visitor);
	assert_true(key.len > 0 && value.data != NULL);
	return ++counter->puts == counter->stop_after ? -ECANCELED : 0;
}

static int count_del(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	struct counter *counter = LP_CONTAINER_OF(visitor, struct counter, visitor);
	assert_true(key.len > 0);
	counter->dels++;
	return 0;
}

static void fill_batch(struct lp_kv_batch *batch)
{
	lp_kv_batch_clear(batch);
	lp_test_ok(lp_kv_batch_put(batch, lp_test_text("a"), lp_test_text("1")));
	lp_test_ok(lp_kv_batch_put(batch, lp_test_text("b"), lp_test_text("")));
	lp_test_ok(lp_kv_batch_delete(batch, lp_test_text("c")));
	lp_test_ok(lp_kv_batch_put(batch, lp_test_text("d"), lp_test_text("4")));
}

static void test_batch_is_walked_and_loaded(void **state)
{
	(void)state;
	struct counter counter = {.visitor = {.put = count_put, .del = count_del}};
	struct lp_kv_batch *copy;
	fill_batch(test.batch);
	assert_int_equal(lp_kv_batch_cnt(test.batch), 4);
	lp_test_ok(lp_kv_walk(lp_kv_batch_data(test.batch), &counter.visitor));
	assert_int_equal(counter.puts, 3);
	assert_int_equal(counter.dels, 1);
	lp_test_ok(lp_kv_batch_new(0, &copy));
	lp_test_ok(lp_kv_batch_load(copy, lp_kv_batch_data(test.batch)));
	assert_int_equal(lp_kv_batch_cnt(copy), 4);
	lp_test_ok(lp_test_kv_put(&test, "c", "3"));
	lp_test_ok(lp_kv_write(test.kv, copy));
	lp_test_kv_expect(&test, "a", "1");
	lp_test_kv_expect(&test, "b", "");
	lp_test_kv_expect(&test, "c", NULL);
	lp_kv_batch_free(copy);
	counter = (struct counter){.visitor = counter.visitor, .stop_after = 2};
	fill_batch(test.batch);
	lp_test_err(-ECANCELED, lp_kv_walk(lp_kv_batch_data(test.batch), &counter.visitor));
	assert_int_equal(counter.puts, 2);
	assert_int_equal(counter.dels, 0);
	lp_kv_batch_free(NULL);
}

/* The bytes are in the logs of all stores there are. */
static void test_batch_bytes(void **state)
{
	(void)state;
	static const uint8_t head[] = {0,   0, 0,   0,   0, 0, 0,   0,   3, 0, 0,   0,    1, 1,
				       'a', 2, 'x', 'y', 0, 2, 'b', 'c', 1, 1, 'd', 0xc8, 1};
	char value[200];
	memset(value, 'v', sizeof(value));
	lp_kv_batch_clear(test.batch);
	lp_test_ok(lp_kv_batch_put(test.batch, lp_test_text("a"), lp_test_text("xy")));
	lp_test_ok(lp_kv_batch_delete(test.batch, lp_test_text("bc")));
	lp_test_ok(lp_kv_batch_put(test.batch, lp_test_text("d"),
				   (struct lp_kv_bytes){value, sizeof(value)}));
	for (int written = 0; written < 2; written++) {
		struct lp_kv_bytes data = lp_kv_batch_data(test.batch);
		assert_int_equal(data.len, sizeof(head) + sizeof(value));
		/* RocksDB puts its sequence number in front. */
		assert_memory_equal((const uint8_t *)data.data + 8, head + 8, sizeof(head) - 8);
		assert_memory_equal((const uint8_t *)data.data + sizeof(head), value,
				    sizeof(value));
		lp_test_ok(lp_kv_write(test.kv, test.batch));
	}
	lp_test_kv_expect(&test, "a", "xy");
}

/* RocksDB takes nothing while it has too many tables to write: on a slow machine that happens to
 * whoever writes a lot at once. */
static void write_when_it_takes_it(void)
{
	int err;
	while ((err = lp_kv_write(test.kv, test.batch)) == -EAGAIN)
		(void)usleep(100);
	lp_test_ok(err);
}

/* No bytes crash it; what loads is exactly a batch that can be written. */
static void test_bad_bytes_are_no_batch(void **state)
{
	(void)state;
	struct lp_prng prng;
	uint8_t good[128];
	uint8_t bad[128];
	fill_batch(test.batch);
	struct lp_kv_bytes data = lp_kv_batch_data(test.batch);
	size_t len = data.len;
	assert_true(len <= sizeof(good));
	memcpy(good, data.data, len);
	for (size_t cut = 0; cut < len; cut++) {
		lp_test_err(-EUCLEAN,
			    lp_kv_batch_load(test.batch, (struct lp_kv_bytes){good, cut}));
		assert_int_equal(lp_kv_batch_cnt(test.batch), 0);
	}
	lp_prng_init(&prng, 7);
	for (int round = 0; round < 20000; round++) {
		memcpy(bad, good, len);
		for (uint64_t flips = lp_prng_between(&prng, 1, 3); flips > 0; flips--)
			bad[lp_prng_below(&prng, len)] = (uint8_t)lp_prng_u64(&prng);
		if (lp_kv_batch_load(test.batch, (struct lp_kv_bytes){bad, len}) == 0)
			write_when_it_takes_it();
	}
}

/* --- Reading -----------------------------------------------------------------------------------
 */

/* Of what is in memory. */
static int get_cached(struct lp_kv_bytes key, struct lp_kv_value *ret_value)
{
	struct lp_fetch fetch = {.block_cnt = 0};
	return lp_kv_get_cached(test.kv, key, &fetch, ret_value);
}

static void test_tiers(void **state)
{
	(void)state;
	struct lp_kv_value value;
	struct lp_kv_bytes key = lp_test_text("key");
	lp_test_err(-ENOENT, get_cached(key, &value));
	lp_test_ok(lp_test_kv_put(&test, "key", "value"));
	lp_test_ok(get_cached(key, &value)); /* the memtable */
	assert_memory_equal(value.bytes.data, "value", 5);
	lp_kv_value_release(&value);
	lp_test_err(-ENOENT, lp_kv_get_persisted(test.kv, key, &value));

	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_ok(lp_kv_get_persisted(test.kv, key, &value));
	lp_kv_value_release(&value);
	lp_kv_set_cache_bytes(test.kv, 0); /* evicts the block again */
	lp_test_err(-EAGAIN, get_cached(key, &value));
	lp_test_err(-ENOENT, get_cached(lp_test_text("no"), &value)); /* bloom */
	lp_kv_set_cache_bytes(test.kv, UINT64_C(1) << 20);
	lp_test_ok(lp_kv_get(test.kv, key, &value));
	lp_kv_value_release(&value);
	lp_test_ok(get_cached(key, &value));
	/* A pinned value outlives its deletion, and its table. */
	lp_kv_batch_clear(test.batch);
	lp_test_ok(lp_kv_batch_delete(test.batch, key));
	lp_test_ok(lp_kv_write(test.kv, test.batch));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_ok(lp_kv_compact(test.kv, lp_test_text(NULL), lp_test_text(NULL)));
	lp_test_kv_expect(&test, "key", NULL);
	assert_memory_equal(value.bytes.data, "value", 5);
	lp_kv_value_release(&value);

	struct lp_kv_stats stats;
	lp_kv_read_stats(test.kv, &stats);
	assert_int_equal(stats.cached_missed_cnt, 1);
	assert_int_equal(stats.cached_hit_cnt, 4);
	assert_int_equal(stats.flush_cnt, 2);
	assert_int_equal(stats.flush_cnt, (uint64_t)test.flushed_cnt);
}

/* An overwritten value that is persisted is the old one until the next flush. */
static void test_persisted_is_what_a_crash_leaves(void **state)
{
	(void)state;
	struct lp_kv_value value;
	lp_test_ok(lp_test_kv_put(&test, "applied", "1"));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_ok(lp_test_kv_put(&test, "applied", "2"));
	lp_test_ok(lp_kv_get_persisted(test.kv, lp_test_text("applied"), &value));
	assert_memory_equal(value.bytes.data, "1", 1);
	lp_kv_value_release(&value);
	lp_test_kv_expect(&test, "applied", "2");
	lp_test_kv_crash(&test, false);
	lp_test_kv_expect(&test, "applied", "1");
}

static void write_many(uint32_t cnt, uint32_t value_len)
{
	char buf[16];
	uint8_t bytes[512];
	assert_true(value_len <= sizeof(bytes));
	memset(bytes, 'v', sizeof(bytes));
	for (uint32_t i = 0; i < cnt; i++) {
		lp_kv_batch_clear(test.batch);
		lp_test_ok(lp_kv_batch_put(test.batch, key_of(i, &buf),
					   (struct lp_kv_bytes){bytes, value_len}));
		write_when_it_takes_it();
	}
}

static void test_multi_get(void **state)
{
	(void)state;
	char bufs[LP_KV_MULTI_MAX][16];
	struct lp_kv_bytes keys[LP_KV_MULTI_MAX];
	struct lp_kv_value values[LP_KV_MULTI_MAX];
	int results[LP_KV_MULTI_MAX];
	write_many(100, 50);
	lp_test_ok(lp_kv_flush_wait(test.kv));
	for (uint32_t i = 0; i < LP_KV_MULTI_MAX; i++)
		keys[i] = key_of(i * 3, &bufs[i]);
	lp_kv_multi_get(test.kv, LP_KV_MULTI_MAX, keys, values, results);
	for (uint32_t i = 0; i < LP_KV_MULTI_MAX; i++) {
		assert_int_equal(results[i], i * 3 < 100 ? 0 : -ENOENT);
		if (results[i] < 0)
			continue;
		assert_int_equal(values[i].bytes.len, 50);
		assert_memory_equal(values[i].bytes.data, "vvvv", 4);
		lp_kv_value_release(&values[i]);
	}
	lp_kv_multi_get(test.kv, 0, NULL, NULL, NULL);
}

static void test_iterator_sees_a_snapshot_within_bounds(void **state)
{
	(void)state;
	struct lp_kv_iter *iter;
	char low[16];
	char high[16];
	char at[16];
	write_many(500, 100);
	lp_test_ok(lp_kv_iter_open(test.kv, key_of(10, &low), key_of(20, &high), false, &iter));
	memset(low, 'x', sizeof(low)); /* the bounds were copied */
	lp_test_ok(lp_test_kv_put(&test, "k00000015x", "later"));
	lp_test_ok(lp_kv_iter_seek_first(iter));
	for (uint32_t i = 10; i < 20; i++) {
		struct lp_kv_bytes want = key_of(i, &at);
		struct lp_kv_bytes got = lp_kv_iter_key(iter);
		assert_int_equal(got.len, want.len);
		assert_memory_equal(got.data, want.data, want.len);
		assert_int_equal(lp_kv_iter_value(iter).len, 100);
		lp_test_err(i == 19 ? -ENOENT : 0, lp_kv_iter_next(iter));
	}
	lp_test_ok(lp_kv_iter_seek_last(iter));
	assert_memory_equal(lp_kv_iter_key(iter).data, "k00000019", 9);
	lp_test_ok(lp_kv_iter_seek(iter, key_of(11, &at)));
	lp_test_ok(lp_kv_iter_prev(iter));
	lp_test_err(-ENOENT, lp_kv_iter_prev(iter));
	lp_test_err(-ENOENT, lp_kv_iter_seek(iter, key_of(20, &at)));
	lp_kv_iter_close(iter);
	lp_kv_iter_close(NULL);
}

/* An iterator over the cache says "ask a helper" where it would have to read, never "the end". */
static void test_cached_iterator_does_not_end_early(void **state)
{
	(void)state;
	struct lp_kv_iter *iter;
	struct lp_kv_value value;
	struct lp_kv_bytes none = lp_test_text(NULL);
	char at[16];
	write_many(1000, 100);
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_ok(lp_kv_compact(test.kv, none, none));
	lp_kv_set_cache_bytes(test.kv, 0);
	lp_test_ok(lp_kv_iter_open(test.kv, none, none, true, &iter));
	lp_test_err(-EAGAIN, lp_kv_iter_seek_first(iter));
	lp_kv_iter_close(iter);

	lp_kv_set_cache_bytes(test.kv, UINT64_C(1) << 20);
	lp_test_ok(lp_kv_get(test.kv, key_of(5, &at), &value)); /* one block, in the middle */
	lp_kv_value_release(&value);
	lp_test_ok(lp_kv_iter_open(test.kv, none, none, true, &iter));
	int err = lp_kv_iter_seek(iter, key_of(5, &at));
	int steps = 0;
	while (err == 0 && steps++ < 1000)
		err = lp_kv_iter_next(iter);
	assert_int_equal(err, -EAGAIN);
	assert_true(steps > 5 && steps < 100);
	lp_kv_iter_close(iter);
}

/* --- Tables one after the other ----------------------------------------------------------------
 */

#define LEVEL_KEYS 240u

/* Many tables of a few blocks each, in one level, and a newer record behind them all. */
static void open_with_tables(bool sim)
{
	const struct lp_kv_bytes none = lp_test_text(NULL);
	struct lp_kv_stats stats;
	lp_test_kv_fini(&test);
	lp_test_kv_init(&test, sim, 1);
	test.options.table_bytes = UINT64_C(8) << 10;
	test.options.write_buffer_bytes = UINT64_C(1) << 20;
	lp_test_kv_open(&test);
	write_many(LEVEL_KEYS, 400);
	lp_test_ok(lp_kv_flush_wait(test.kv));
	write_many(LEVEL_KEYS, 400); /* overlaps: tables cannot just be moved down */
	lp_test_ok(lp_kv_compact(test.kv, none, none));
	lp_kv_read_stats(test.kv, &stats);
	assert_int_equal(stats.l0_files, 0);
	lp_test_ok(lp_test_kv_put(&test, "z", "newer"));
}

static void empty_cache(void)
{
	lp_kv_set_cache_bytes(test.kv, 0);
	lp_kv_set_cache_bytes(test.kv, UINT64_C(1) << 20);
}

/* Goes through all records from the first one on; how that ended. They come without a gap, and the
 * end only after the last one. */
static int walk_all(bool cached, uint32_t *ret_seen)
{
	const struct lp_kv_bytes none = lp_test_text(NULL);
	struct lp_kv_iter *iter;
	char at[16];
	uint32_t seen = 0;
	bool is_right = true;
	lp_test_ok(lp_kv_iter_open(test.kv, none, none, cached, &iter));
	int err = lp_kv_iter_seek_first(iter);
	for (; err == 0; err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes want = seen < LEVEL_KEYS ? key_of(seen, &at) : lp_test_text("z");
		struct lp_kv_bytes got = lp_kv_iter_key(iter);
		is_right &= got.len == want.len && memcmp(got.data, want.data, want.len) == 0;
		seen++;
	}
	lp_kv_iter_close(iter);
	assert_true(is_right);
	assert_true(err != -ENOENT || seen == LEVEL_KEYS + 1);
	*ret_seen = seen;
	return err;
}

/* Rule L8: RocksDB 7.8.3 goes past a table whose first block it cannot read, without a word, unless
 * it is told that there are no deletions of ranges. So a list of inodes had one less. Here the
 * cache holds all up to some record, which is the last one of a table now and then. */
static void test_cached_iterator_skips_no_table(void **state)
{
	(void)state;
	open_with_tables(false);
	empty_cache();
	uint32_t ends = 0;
	uint32_t last = 0;
	for (uint32_t i = 0; i < LEVEL_KEYS; i++) {
		struct lp_kv_value value;
		char at[16];
		uint32_t seen = 0;
		lp_test_ok(lp_kv_get(test.kv, key_of(i, &at), &value));
		lp_kv_value_release(&value);
		int err = walk_all(true, &seen);
		assert_int_equal(err, seen == LEVEL_KEYS + 1 ? -ENOENT : -EAGAIN);
		assert_true(seen > i);
		ends += seen != last;
		last = seen;
	}
	assert_int_equal(last, LEVEL_KEYS + 1);
	assert_true(ends > 20); /* more places than there are tables */
}

/* The same of a read that fails (rule L8): an error, not a list that lacks some. */
static void test_failed_read_skips_no_table(void **state)
{
	(void)state;
	struct lp_kvfs_mem_stats stats;
	uint64_t failed = 1;
	uint64_t skip = 0;
	open_with_tables(false);
	for (; failed > 0; skip++) {
		uint32_t seen = 0;
		empty_cache();
		lp_kvfs_mem_read_stats(test.mem, &stats);
		failed = stats.failed;
		const struct lp_kvfs_mem_fault fault = {
			.ops = LP_KVFS_MEM_PREAD, .skip = skip, .times = 1, .err = -EIO};
		lp_kvfs_mem_set_fault(test.mem, &fault);
		int err = walk_all(false, &seen);
		lp_kvfs_mem_read_stats(test.mem, &stats);
		failed = stats.failed - failed;
		lp_kvfs_mem_set_fault(test.mem, &(struct lp_kvfs_mem_fault){0});
		assert_true(err == -EIO || (err == -ENOENT && seen == LEVEL_KEYS + 1));
		assert_int_equal(err == -EIO, failed > 0);
	}
	assert_true(skip > 20);
}

/* Nor does a compaction leave out what it could not read (rule L8). */
static void test_failed_read_loses_nothing_in_compaction(void **state)
{
	(void)state;
	const struct lp_kv_bytes none = lp_test_text(NULL);
	struct lp_kvfs_mem_stats stats;
	uint64_t failed = 1;
	uint64_t skip = 0;
	uint32_t seen = 0;
	open_with_tables(true); /* else it waits a second after each failure */
	for (; failed > 0; skip++) {
		lp_test_ok(lp_test_kv_put(&test, "k00000000", "newer"));
		lp_test_ok(lp_test_kv_put(&test, "z", "newer"));
		lp_test_ok(lp_kv_flush_wait(test.kv));
		empty_cache();
		lp_kvfs_mem_read_stats(test.mem, &stats);
		failed = stats.failed;
		const struct lp_kvfs_mem_fault fault = {
			.ops = LP_KVFS_MEM_PREAD, .skip = skip, .times = 1, .err = -EIO};
		lp_kvfs_mem_set_fault(test.mem, &fault);
		int err = lp_kv_compact(test.kv, none, none);
		lp_kvfs_mem_read_stats(test.mem, &stats);
		failed = stats.failed - failed;
		lp_kvfs_mem_set_fault(test.mem, &(struct lp_kvfs_mem_fault){0});
		assert_true(err == 0 || (err == -EIO && failed > 0));
		lp_test_err(-ENOENT, walk_all(false, &seen));
		lp_test_ok(lp_kv_compact(test.kv, none, none));
		lp_test_err(-ENOENT, walk_all(false, &seen));
	}
	assert_true(skip > 10); /* more reads than there are tables */
}

/* --- Writing under pressure --------------------------------------------------------------------
 */

static struct {
	pthread_mutex_t lock;
	pthread_cond_t changed;
	bool closed;
	int err;
	int calls;
	char name[LP_KVFS_NAME_MAX + 1];
} gate = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int barrier(const char *name, void *arg)
{
	(void)arg;
	(void)pthread_mutex_lock(&gate.lock);
	gate.calls++;
	(void)snprintf(gate.name, sizeof(gate.name), "%s", name);
	while (gate.closed)
		(void)pthread_cond_wait(&gate.changed, &gate.lock);
	int err = gate.err;
	(void)pthread_mutex_unlock(&gate.lock);
	return err;
}

static void set_gate(bool closed, int err)
{
	(void)pthread_mutex_lock(&gate.lock);
	gate.closed = closed;
	gate.err = err;
	(void)pthread_cond_broadcast(&gate.changed);
	(void)pthread_mutex_unlock(&gate.lock);
}

/* While no flush can end (the log is not durable), writing fills the memtables and is then refused,
 * at once; nothing of it reaches the files from the writing thread. */
static void test_refused_not_slept(void **state)
{
	(void)state;
	struct lp_kv_stats stats;
	char buf[16];
	char value[400] = {0};
	set_gate(true, 0);
	lp_kvfs_mem_set_barrier(test.mem, barrier, NULL);
	int err = 0;
	uint32_t done = 0;
	uint32_t refused = 0;
	/* Before it takes nothing at all RocksDB takes a little now and then: so twice. */
	while (refused < 2 && done < 100000) {
		bool is_near = lp_kv_is_near_stall(test.kv);
		lp_kv_batch_clear(test.batch);
		lp_test_ok(lp_kv_batch_put(test.batch, key_of(done, &buf),
					   (struct lp_kv_bytes){value, sizeof(value)}));
		err = lp_kv_write(test.kv, test.batch);
		assert_true(err == 0 || err == -EAGAIN);
		assert_true(err == 0 || is_near); /* admission was warned before */
		done += err == 0;
		refused += err != 0;
	}
	assert_int_equal(err, -EAGAIN);
	assert_true(done > 300);
	lp_test_err(-ENOENT, lp_kv_get(test.kv, key_of(done, &buf),
				       &(struct lp_kv_value){0})); /* nothing of it */
	lp_kv_read_stats(test.kv, &stats);
	assert_int_equal(stats.refused_cnt, 2);
	assert_true(stats.stall_cnt >= 1);
	assert_true(stats.stalled_ns > 0); /* also while it is under way */
	assert_true(stats.waiting_cnt >= 1);
	assert_int_equal(lp_kv_error(test.kv), 0);
	set_gate(false, 0);
	for (int i = 0; (err = lp_kv_write(test.kv, test.batch)) == -EAGAIN && i < 10000; i++)
		(void)usleep(1000);
	lp_test_ok(err);
	lp_test_ok(lp_kv_flush_wait(test.kv)); /* the gate's fields are ours again */
	lp_kvfs_mem_set_barrier(test.mem, NULL, NULL);
	(void)pthread_mutex_lock(&gate.lock);
	assert_true(gate.calls > 0);
	assert_int_equal(lp_kvfs_kind_of(gate.name), LP_KVFS_MANIFEST);
	(void)pthread_mutex_unlock(&gate.lock);
	assert_true(test.stalled_cnt >= 1);
	struct lp_kv_stats once;
	struct lp_kv_stats again;
	lp_kv_read_stats(test.kv, &again);
	assert_true(again.stalled_ns >= stats.stalled_ns);
	/* Nothing is refused any more, which RocksDB's thread says a little later. */
	for (int i = 0; i < 5000; i++) {
		once = again;
		(void)usleep(2000);
		lp_kv_read_stats(test.kv, &again);
		if (again.stalled_ns == once.stalled_ns)
			break;
	}
	assert_int_equal(again.stalled_ns, once.stalled_ns);
}

/* The thread that writes makes no file operation, also not when it switches memtables. */
static void test_writing_touches_no_file(void **state)
{
	(void)state;
	struct lp_kvfs_mem_stats before;
	struct lp_kvfs_mem_stats after;
	struct lp_kv_stats stats;
	set_gate(true, 0);
	lp_kvfs_mem_set_barrier(test.mem, barrier, NULL);
	lp_test_ok(lp_test_kv_put(&test, "a", "b"));
	lp_test_ok(lp_kv_flush(test.kv));
	/* The only flush thread now waits at the gate: from here on files are ours alone. */
	(void)pthread_mutex_lock(&gate.lock);
	int calls = gate.calls;
	(void)pthread_mutex_unlock(&gate.lock);
	for (int i = 0; i < 10000; i++) {
		(void)pthread_mutex_lock(&gate.lock);
		bool waits = gate.calls > calls;
		(void)pthread_mutex_unlock(&gate.lock);
		if (waits)
			break;
		(void)usleep(100);
	}
	lp_kvfs_mem_read_stats(test.mem, &before);
	write_many(220, 400); /* more than one memtable of 64 KiB */
	lp_kv_read_stats(test.kv, &stats);
	assert_true(stats.waiting_cnt >= 2);
	lp_kvfs_mem_read_stats(test.mem, &after);
	assert_int_equal(after.changes, before.changes);
	assert_int_equal(after.reads, before.reads);
	set_gate(false, 0);
	lp_test_ok(lp_kv_flush_wait(test.kv));
}

/* --- Failures ----------------------------------------------------------------------------------
 */

static void wait_for_failure(int cnt)
{
	for (int i = 0; i < 20000 && test.failed_cnt < cnt; i++)
		(void)usleep(100);
	assert_true(test.failed_cnt >= cnt);
}

static int slow_barrier(const char *name, void *arg)
{
	(void)name;
	(void)arg;
	(void)usleep(20000);
	return 0;
}

/* A flush that is waited for has happened: also behind a resume, where RocksDB's own waiting no
 * longer waits. */
static void check_flush_is_waited_for(void)
{
	struct lp_kv_value value;
	lp_kvfs_mem_set_barrier(test.mem, slow_barrier, NULL);
	lp_test_ok(lp_test_kv_put(&test, "waited", "for"));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_ok(lp_kv_get_persisted(test.kv, lp_test_text("waited"), &value));
	lp_kv_value_release(&value);
	lp_kvfs_mem_set_barrier(test.mem, NULL, NULL);
}

static void test_full_and_resumed(void **state)
{
	(void)state;
	lp_kvfs_mem_set_fault(test.mem, &(struct lp_kvfs_mem_fault){.ops = LP_KVFS_MEM_APPEND,
								    .times = UINT64_MAX,
								    .err = -ENOSPC});
	lp_test_ok(lp_test_kv_put(&test, "a", "1"));
	lp_test_err(-ENOSPC, lp_kv_flush_wait(test.kv));
	wait_for_failure(1);
	assert_int_equal(test.failed_err, -ENOSPC);
	assert_false(test.failed_final);
	assert_int_equal(lp_kv_error(test.kv), -ENOSPC);
	lp_test_err(-ENOSPC, lp_test_kv_put(&test, "b", "2")); /* and nothing of it is there */
	lp_test_kv_expect(&test, "a", "1");
	lp_test_kv_expect(&test, "b", NULL);
	lp_test_err(-ENOSPC, lp_kv_resume(test.kv)); /* still full */
	assert_int_equal(lp_kv_error(test.kv), -ENOSPC);
	lp_kvfs_mem_set_fault(test.mem, &(struct lp_kvfs_mem_fault){0});
	lp_test_ok(lp_kv_resume(test.kv));
	assert_int_equal(lp_kv_error(test.kv), 0);
	check_flush_is_waited_for();
	lp_test_ok(lp_test_kv_put(&test, "b", "2"));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_kv_crash(&test, false);
	lp_test_kv_expect(&test, "a", "1");
	lp_test_kv_expect(&test, "b", "2");
}

static void test_io_error_and_resumed(void **state)
{
	(void)state;
	lp_kvfs_mem_set_fault(test.mem, &(struct lp_kvfs_mem_fault){
						.ops = LP_KVFS_MEM_SYNC, .times = 1, .err = -EIO});
	lp_test_ok(lp_test_kv_put(&test, "a", "1"));
	lp_test_err(-EIO, lp_kv_flush_wait(test.kv));
	wait_for_failure(1);
	assert_false(test.failed_final);
	assert_int_equal(lp_kv_error(test.kv), -EIO);
	lp_test_ok(lp_test_kv_put(&test, "b", "2")); /* memory is left */
	lp_test_ok(lp_kv_resume(test.kv));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_kv_crash(&test, false);
	lp_test_kv_expect(&test, "a", "1");
	lp_test_kv_expect(&test, "b", "2");
}

/* Rule L4: what the log does not have is not published. */
static void test_failed_barrier_publishes_nothing(void **state)
{
	(void)state;
	struct lp_kv_value value;
	lp_test_ok(lp_test_kv_put(&test, "applied", "1"));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	set_gate(false, -EIO);
	lp_kvfs_mem_set_barrier(test.mem, barrier, NULL);
	lp_test_ok(lp_test_kv_put(&test, "applied", "2"));
	lp_test_err(-EIO, lp_kv_flush_wait(test.kv));
	wait_for_failure(1);
	assert_false(test.failed_final);
	lp_test_ok(lp_kv_get_persisted(test.kv, lp_test_text("applied"), &value));
	assert_memory_equal(value.bytes.data, "1", 1);
	lp_kv_value_release(&value);
	lp_kvfs_mem_set_barrier(test.mem, NULL, NULL);
	lp_test_kv_crash(&test, true);
	lp_test_kv_expect(&test, "applied", "1");
}

static void test_fenced_for_good(void **state)
{
	(void)state;
	set_gate(false, -EROFS);
	lp_kvfs_mem_set_barrier(test.mem, barrier, NULL);
	lp_test_ok(lp_test_kv_put(&test, "a", "1"));
	lp_test_err(-EROFS, lp_kv_flush_wait(test.kv));
	wait_for_failure(1);
	assert_true(test.failed_final);
	lp_test_err(-EROFS, lp_test_kv_put(&test, "b", "2"));
	set_gate(false, 0);
	lp_test_err(-EROFS, lp_kv_resume(test.kv));
	lp_test_err(-EROFS, lp_test_kv_put(&test, "b", "2"));
}

/* A table that cannot be read, or is gone, is an error, never "not found". */
static int remove_tables(const char *name, void *arg)
{
	char *victim = arg;
	if (lp_kvfs_kind_of(name) == LP_KVFS_TABLE)
		(void)snprintf(victim, LP_KVFS_NAME_MAX + 1, "%s", name);
	return 0;
}

static void test_unreadable_is_not_absent(void **state)
{
	(void)state;
	struct lp_kvfs *fs = lp_kvfs_mem_fs(test.mem);
	struct lp_kv_value value;
	char victim[LP_KVFS_NAME_MAX + 1] = "";
	lp_test_ok(lp_test_kv_put(&test, "a", "1"));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_kv_set_cache_bytes(test.kv, 0);
	lp_kvfs_mem_set_fault(
		test.mem,
		&(struct lp_kvfs_mem_fault){.ops = LP_KVFS_MEM_PREAD, .times = 2, .err = -EBADMSG});
	lp_test_err(-EUCLEAN, lp_kv_get(test.kv, lp_test_text("a"), &value));
	struct lp_kv_iter *iter;
	lp_test_ok(lp_kv_iter_open(test.kv, lp_test_text(NULL), lp_test_text(NULL), false, &iter));
	lp_test_err(-EUCLEAN, lp_kv_iter_seek_first(iter));
	lp_kv_iter_close(iter);
	lp_kvfs_mem_set_fault(
		test.mem,
		&(struct lp_kvfs_mem_fault){.ops = LP_KVFS_MEM_PREAD, .times = 1, .err = -ENOENT});
	lp_test_err(-EUCLEAN, lp_kv_get(test.kv, lp_test_text("a"), &value));
	lp_test_kv_expect(&test, "a", "1");
	lp_test_kv_close(&test);
	lp_test_ok(fs->ops->list(fs, remove_tables, victim));
	lp_test_ok(fs->ops->remove(fs, victim));
	lp_test_err(-EUCLEAN, lp_kv_open(&test.options, &test.kv));
}

/* --- Opening -----------------------------------------------------------------------------------
 */

static void test_opening(void **state)
{
	(void)state;
	struct lp_kv *kv = NULL;
	struct lp_test_kv empty;
	lp_test_kv_init(&empty, false, 2);
	empty.options.create = false;
	lp_test_err(-ENOENT, lp_kv_open(&empty.options, &kv));
	empty.options.create = true;
	empty.options.write_buffer_cnt = 1;
	lp_test_err(-EINVAL, lp_kv_open(&empty.options, &kv));
	assert_null(kv);
	lp_test_ok(lp_kv_close(NULL));
	lp_test_kv_fini(&empty);
	assert_true(lp_kv_reserve_bytes(&test.options) >= 17 * (UINT64_C(64) << 10));
}

static int expect_no_options(const char *name, void *arg)
{
	uint32_t *cnt = arg;
	(*cnt)++;
	assert_null(strstr(name, "OPTIONS"));
	return 0;
}

/* Nobody reads what RocksDB would write down of its options at each opening, and check: it is not
 * written, and nobody is warned of that. */
static void test_opening_writes_no_options(void **state)
{
	(void)state;
	struct lp_test_kv empty;
	struct lp_kvfs *fs;
	uint32_t cnt = 0;
	lp_test_kv_init(&empty, false, 3);
	fs = lp_kvfs_mem_fs(empty.mem);
	for (int i = 0; i < 2; i++) {
		lp_test_kv_open(&empty);
		assert_int_equal(fs->ops->list(fs, expect_no_options, &cnt), 0);
		assert_true(cnt > 1);
		assert_int_equal(empty.log_cnt, 0);
		if (i == 0)
			lp_test_kv_close(&empty);
	}
	lp_test_kv_fini(&empty);
}

/* Opening an empty directory fails at change number 0, 1, 2, ... and always in order: the next
 * opening finds nothing, or an index, never something broken. */
static void test_opening_fails_at_every_change(void **state)
{
	(void)state;
	uint64_t failed = 1;
	for (uint64_t skip = 0; failed > 0; skip++) {
		struct lp_test_kv empty;
		struct lp_kvfs_mem_stats stats;
		struct lp_kv *kv = NULL;
		assert_true(skip < 100);
		lp_test_kv_init(&empty, false, skip);
		const struct lp_kvfs_mem_fault fault = {
			.ops = LP_KVFS_MEM_CHANGES, .skip = skip, .times = 1, .err = -ENOSPC};
		lp_kvfs_mem_set_fault(empty.mem, &fault);
		int err = lp_kv_open(&empty.options, &kv);
		assert_true(err == 0 || err == -ENOSPC);
		lp_kvfs_mem_read_stats(empty.mem, &stats);
		failed = stats.failed;
		err = lp_kv_close(kv);
		assert_true(err == 0 || err == -ENOSPC);
		lp_kvfs_mem_set_fault(empty.mem, &(struct lp_kvfs_mem_fault){0});
		lp_test_kv_open(&empty);
		lp_test_ok(lp_test_kv_put(&empty, "a", "1"));
		lp_test_ok(lp_kv_flush_wait(empty.kv));
		lp_test_kv_fini(&empty);
	}
}

static void test_sizes_and_gauges(void **state)
{
	(void)state;
	struct lp_kv_stats stats;
	char low[16];
	char high[16];
	uint64_t all = 0;
	uint64_t half = 0;
	write_many(2000, 200);
	write_many(2000, 200); /* overlaps: tables cannot just be moved down */
	lp_test_ok(lp_kv_compact(test.kv, lp_test_text(NULL), lp_test_text(NULL)));
	lp_test_ok(lp_kv_size_of(test.kv, key_of(0, &low), key_of(2000, &high), &all));
	lp_test_ok(lp_kv_size_of(test.kv, key_of(0, &low), key_of(1000, &high), &half));
	assert_true(all > 380000 && all < 600000);
	assert_true(half > all / 3 && half < all * 2 / 3);
	lp_kv_read_stats(test.kv, &stats);
	const uint64_t values_bytes = 400000;
	assert_true(stats.written_bytes > 2 * values_bytes);
	assert_true(stats.flushed_bytes > values_bytes);
	assert_true(stats.compacted_bytes > 0 && stats.compact_cnt > 0);
	assert_true(stats.table_bytes > values_bytes);
	assert_true(stats.records >= 1500);
	assert_true(stats.index_bytes > 0);
	assert_int_equal(stats.l0_files, 0);
	assert_int_equal(stats.waiting_cnt, 0);
	assert_false(lp_kv_is_near_stall(test.kv));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* The threads of one index are not those of another: what waits in a barrier for a thread that is
 * busy with the other one would wait for ever, if that waits for a flush behind it. */
static void test_a_flush_waits_for_no_other_index(void **state)
{
	(void)state;
	enum { WRITES = 2000, RETRIES_MAX = 5000 };
	static struct lp_test_kv other;
	char buf[16];
	char value[400] = {0};
	lp_test_kv_init(&other, false, 2);
	lp_test_kv_open(&other);
	(void)pthread_mutex_lock(&gate.lock);
	gate.calls = 0;
	(void)pthread_mutex_unlock(&gate.lock);
	set_gate(true, 0);
	lp_kvfs_mem_set_barrier(test.mem, barrier, NULL);
	lp_test_ok(lp_test_kv_put(&test, "a", "1"));
	lp_test_ok(lp_kv_flush(test.kv));
	for (int calls = 0; calls == 0; (void)usleep(1000)) {
		(void)pthread_mutex_lock(&gate.lock);
		calls = gate.calls;
		(void)pthread_mutex_unlock(&gate.lock);
	}
	int err = 0;
	for (uint32_t done = 0, tries = 0; done < WRITES && tries < RETRIES_MAX; done += err == 0) {
		lp_kv_batch_clear(other.batch);
		lp_test_ok(lp_kv_batch_put(other.batch, key_of(done, &buf),
					   (struct lp_kv_bytes){value, sizeof(value)}));
		err = lp_kv_write(other.kv, other.batch);
		assert_true(err == 0 || err == -EAGAIN);
		tries += err != 0;
		if (err != 0)
			(void)usleep(1000);
	}
	set_gate(false, 0);
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_kvfs_mem_set_barrier(test.mem, NULL, NULL);
	lp_test_kv_fini(&other);
	lp_test_ok(err);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_batch_is_walked_and_loaded),
		TEST(test_batch_bytes),
		TEST(test_bad_bytes_are_no_batch),
		TEST(test_tiers),
		TEST(test_persisted_is_what_a_crash_leaves),
		TEST(test_multi_get),
		TEST(test_iterator_sees_a_snapshot_within_bounds),
		TEST(test_cached_iterator_does_not_end_early),
		TEST(test_cached_iterator_skips_no_table),
		TEST(test_failed_read_skips_no_table),
		TEST(test_failed_read_loses_nothing_in_compaction),
		TEST(test_refused_not_slept),
		TEST(test_writing_touches_no_file),
		TEST(test_full_and_resumed),
		TEST(test_io_error_and_resumed),
		TEST(test_failed_barrier_publishes_nothing),
		TEST(test_fenced_for_good),
		TEST(test_unreadable_is_not_absent),
		TEST(test_opening),
		TEST(test_opening_writes_no_options),
		TEST(test_opening_fails_at_every_change),
		TEST(test_sizes_and_gauges),
		TEST(test_a_flush_waits_for_no_other_index),
	};
	return lp_test_main(tests, "kv");
}
