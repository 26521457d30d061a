/* SPDX-License-Identifier: Apache-2.0 */
/* What the index costs the shard thread. Question answered: how many records and gets does an
 * operation's budget of CPU allow, and what do batching and RocksDB's background work change?
 *
 *   kv_bench [memtable MiB]
 *
 * Values of 200 bytes under random keys of 17 bytes, over files in memory. Printed are nanoseconds
 * of CPU: `thread` is the calling thread, `others` is what the process used besides (flushes,
 * compactions). Debian's RocksDB is built with its assertions on; they are in the figures. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "base/prng.h"
#include "store/index/kv.h"
#include "store/kvfs/memory.h"

enum { KEY_LEN = 17, VALUE_LEN = 200, RECORDS = 400000, GETS = 200000, MEM_RECORDS = 100000 };

static struct lp_kvfs_mem *mem;
static struct lp_kv *kv;
static struct lp_kv_batch *batch;
static uint64_t memtable_mib = 64;

static void must(int err, const char *what)
{
	if (err >= 0)
		return;
	(void)fprintf(stderr, "kv_bench: %s: %s\n", what, lp_strerror(err));
	exit(1); /* NOLINT(concurrency-mt-unsafe): nothing to clean up */
}

static uint64_t cpu_ns(clockid_t clock)
{
	struct timespec now;
	must(clock_gettime(clock, &now), "clock_gettime");
	return (uint64_t)now.tv_sec * LP_NS_PER_S + (uint64_t)now.tv_nsec;
}

/* --- One measurement ---------------------------------------------------------------------------
 */

struct span {
	uint64_t thread_ns;
	uint64_t process_ns;
};

static struct span span_begin(void)
{
	return (struct span){.thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID),
			     .process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID)};
}

static void span_print(const struct span *begin, const char *what, uint64_t cnt)
{
	uint64_t thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - begin->thread_ns;
	uint64_t process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - begin->process_ns;
	uint64_t others_ns = process_ns > thread_ns ? process_ns - thread_ns : 0;
	printf("%-34s %8.0f ns thread %8.0f ns others\n", what, (double)thread_ns / (double)cnt,
	       (double)others_ns / (double)cnt);
}

/* --- Keys --------------------------------------------------------------------------------------
 */

/* As an inode's: a prefix and big-endian numbers. Spread by a mix that has no collisions. */
static struct lp_kv_bytes key_of(uint64_t number, uint8_t (*buf)[KEY_LEN])
{
	uint64_t mixed = number * UINT64_C(0x9e3779b97f4a7c15);
	(*buf)[0] = 'I';
	for (unsigned i = 0; i < 8; i++)
		(*buf)[1 + i] = (uint8_t)(mixed >> (56 - 8 * i));
	memset(*buf + 9, 0, KEY_LEN - 9);
	return (struct lp_kv_bytes){.data = *buf, .len = KEY_LEN};
}

static void open_kv(void)
{
	must(lp_kvfs_mem_new(1, &mem), "new");
	const struct lp_kv_options options = {.fs = lp_kvfs_mem_fs(mem),
					      .cache_bytes = UINT64_C(512) << 20,
					      .write_buffer_bytes = memtable_mib << 20,
					      .create = true};
	must(lp_kv_open(&options, &kv), "open");
	must(lp_kv_batch_new(65536, &batch), "batch");
}

static void close_kv(void)
{
	must(lp_kv_close(kv), "close");
	lp_kv_batch_free(batch);
	lp_kvfs_mem_free(mem);
}

static void write_records(uint64_t first, uint64_t cnt, uint64_t per_batch)
{
	uint8_t key[KEY_LEN];
	uint8_t value[VALUE_LEN];
	memset(value, 'v', sizeof(value));
	for (uint64_t i = 0; i < cnt; i += per_batch) {
		lp_kv_batch_clear(batch);
		for (uint64_t j = i; j < i + per_batch && j < cnt; j++)
			must(lp_kv_batch_put(batch, key_of(first + j, &key),
					     (struct lp_kv_bytes){value, sizeof(value)}),
			     "put");
		int err;
		while ((err = lp_kv_write(kv, batch)) == -EAGAIN)
			(void)usleep(1000); /* not CPU */
		must(err, "write");
	}
}

/* --- Cases -------------------------------------------------------------------------------------
 */

static void bench_writes(uint64_t per_batch)
{
	char what[48];
	struct lp_kv_stats stats;
	(void)snprintf(what, sizeof(what), "write, %llu a batch, per record",
		       (unsigned long long)per_batch);
	open_kv();
	struct span span = span_begin();
	write_records(0, RECORDS, per_batch);
	must(lp_kv_flush_wait(kv), "flush");
	span_print(&span, what, RECORDS);
	lp_kv_read_stats(kv, &stats);
	printf("    bytes written %.1f MiB, flushed %.1f, compacted %.1f, refused %llu times\n",
	       (double)stats.written_bytes / 1048576, (double)stats.flushed_bytes / 1048576,
	       (double)stats.compacted_bytes / 1048576, (unsigned long long)stats.refused_cnt);
	close_kv();
}

typedef int get_fn(struct lp_kv *index, struct lp_kv_bytes key, struct lp_kv_value *ret_value);

static void bench_gets(const char *what, get_fn *get, uint64_t first, uint64_t cnt, int want)
{
	struct lp_prng prng;
	struct lp_kv_value value;
	uint8_t key[KEY_LEN];
	lp_prng_init(&prng, 1);
	struct span span = span_begin();
	for (uint64_t i = 0; i < GETS; i++) {
		int err = get(kv, key_of(first + lp_prng_below(&prng, cnt), &key), &value);
		if (err != want)
			must(err < 0 ? err : -EINVAL, what);
		if (err == 0)
			lp_kv_value_release(&value);
	}
	span_print(&span, what, GETS);
}

static void scan_all(struct lp_kv_iter *iter)
{
	int err = lp_kv_iter_seek_first(iter);
	while (err == 0)
		err = lp_kv_iter_next(iter);
	if (err != -ENOENT)
		must(err, "scan");
}

static void bench_iterators(void)
{
	const struct lp_kv_bytes none = {0};
	struct lp_kv_iter *iter;
	struct lp_prng prng;
	uint8_t key[KEY_LEN];
	lp_prng_init(&prng, 2);
	struct span span = span_begin();
	for (uint64_t i = 0; i < GETS / 4; i++) {
		must(lp_kv_iter_open(kv, none, none, true, &iter), "iterator");
		must(lp_kv_iter_seek(iter, key_of(lp_prng_below(&prng, RECORDS), &key)), "seek");
		lp_kv_iter_close(iter);
	}
	span_print(&span, "iterator, open and seek", GETS / 4);
	must(lp_kv_iter_open(kv, none, none, true, &iter), "iterator");
	span = span_begin();
	for (uint64_t i = 0; i < GETS / 4; i++)
		must(lp_kv_iter_seek(iter, key_of(lp_prng_below(&prng, RECORDS), &key)), "seek");
	span_print(&span, "iterator, seek again", GETS / 4);
	span = span_begin();
	scan_all(iter);
	span_print(&span, "iterator, next", RECORDS);
	lp_kv_iter_close(iter);
}

static int get_cached(struct lp_kv *from, struct lp_kv_bytes key, struct lp_kv_value *ret_value)
{
	struct lp_fetch fetch = {.block_cnt = 0};
	return lp_kv_get_cached(from, key, &fetch, ret_value);
}

static void bench_reads(void)
{
	const struct lp_kv_bytes none = {0};
	struct lp_kv_iter *iter;
	open_kv();
	write_records(0, MEM_RECORDS, 64);
	bench_gets("get, in the memtable", get_cached, 0, MEM_RECORDS, 0);
	write_records(MEM_RECORDS, RECORDS - MEM_RECORDS, 64);
	must(lp_kv_compact(kv, none, none), "compact");
	must(lp_kv_iter_open(kv, none, none, false, &iter), "iterator");
	scan_all(iter); /* fills the cache */
	lp_kv_iter_close(iter);
	bench_gets("get, in the block cache", get_cached, 0, RECORDS, 0);
	bench_gets("get, absent", get_cached, RECORDS, RECORDS, -ENOENT);
	bench_iterators();
	close_kv();
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		char *end;
		memtable_mib = strtoull(argv[1], &end, 10);
		if (*end != '\0' || memtable_mib == 0 || memtable_mib > 1024) {
			(void)fprintf(stderr, "usage: kv_bench [memtable MiB, 1 to 1024]\n");
			return 2;
		}
	}
	printf("memtables of %llu MiB, values of %d bytes\n", (unsigned long long)memtable_mib,
	       VALUE_LEN);
	bench_writes(1);
	bench_writes(8);
	bench_writes(64);
	bench_reads();
	return 0;
}
