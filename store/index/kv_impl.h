/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of the open index, shared by the C++ files behind kv.h.
 *
 * Threads: as kv.h says of each call.
 * Blocking: none of its own.
 * Errors: none.
 *
 * kv.cc opens it and writes, index/read.cc reads, index/upkeep.cc flushes, compacts and counts,
 * index/events.cc hears what RocksDB tells.
 *
 * The gauges behind lp_kv_is_near_stall() are read from RocksDB whenever one of them can have
 * changed: a memtable was sealed, a flush or a compaction ended. So the data path only loads
 * three words.
 */
#ifndef LP_STORE_INDEX_KV_IMPL_H
#define LP_STORE_INDEX_KV_IMPL_H

#include "store/index/kv.h"
#include "store/kvfs/kvfs.h"

#ifdef __cplusplus
#include <rocksdb/cache.h>
#include <rocksdb/db.h>
#include <rocksdb/memtablerep.h>
#include <rocksdb/perf_level.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>

enum { LPI_KV_L0_STALL_FILES = 12 }; /* then writes are refused */

struct lp_kv {
	struct lp_kv_options options; /* defaults filled in */
	struct lp_kvfs_env *env = nullptr;
	std::shared_ptr<rocksdb::Cache> cache;
	std::shared_ptr<rocksdb::MemTableRepFactory> tables; /* in memory */
	std::unique_ptr<rocksdb::DB> db;
	rocksdb::WriteOptions write;
	rocksdb::ReadOptions read_cached;
	rocksdb::ReadOptions read_all;
	rocksdb::ReadOptions read_persisted;
	uint64_t sim_memtable_bytes = 0;    /* shard thread: since the last switch */
	std::atomic<bool> is_broken{false}; /* RocksDB waits for a write that was cut short */

	std::mutex gauge_lock; /* orders reading a gauge and storing it */
	std::atomic<uint64_t> waiting_cnt{0};
	std::atomic<uint64_t> l0_files{0};
	std::atomic<uint64_t> debt_bytes{0};

	std::mutex flush_lock;
	std::condition_variable flush_changed; /* something below, or error */
	uint64_t flushed_seq = 0;              /* by flush_lock: newest that is in a table */

	std::atomic<int> error{0};
	std::atomic<bool> was_hard{false};     /* an error, once: it leaves traces in RocksDB */
	std::atomic<bool> resume_waits{false}; /* for the jobs: not for a soft error's sake */
	std::atomic<bool> is_resuming{false};
	std::atomic<int> compact_error{0};
	std::atomic<uint64_t> written_bytes{0};
	std::atomic<uint64_t> refused_cnt{0};
	std::atomic<uint64_t> cached_hit_cnt{0};
	std::atomic<uint64_t> cached_missed_cnt{0};
	std::atomic<uint64_t> flushed_bytes{0};
	std::atomic<uint64_t> flush_cnt{0};
	std::atomic<uint64_t> compacted_read_bytes{0};
	std::atomic<uint64_t> compacted_bytes{0};
	std::atomic<uint64_t> compact_cnt{0};
	std::atomic<uint64_t> stall_cnt{0};
	std::atomic<uint64_t> stop_cnt{0};
	std::atomic<uint64_t> stalled_ns{0};
	std::atomic<uint64_t> stalled_since_ns{0}; /* 0: it is not stalled */
};

static inline rocksdb::Slice lpi_kv_slice_of(struct lp_kv_bytes bytes)
{
	return rocksdb::Slice(static_cast<const char *>(bytes.data), bytes.len);
}

static inline struct lp_kv_bytes lpi_kv_bytes_of(const rocksdb::Slice &slice)
{
	return {slice.data(), slice.size()};
}

/* For counters with one writer: no locked instruction on the shard thread. */
static inline void lpi_kv_bump(std::atomic<uint64_t> *counter, uint64_t by)
{
	counter->store(counter->load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

/* RocksDB counts each comparison of keys for whoever may ask this thread, which nobody does: a
 * fifth of an insert. */
inline void lpi_kv_count_nothing()
{
	static thread_local bool is_told = false;
	if (is_told)
		return;
	is_told = true;
	rocksdb::SetPerfLevel(rocksdb::PerfLevel::kDisable);
}

static inline bool lpi_kv_is_sim(const struct lp_kv *kv)
{
	return kv->options.sim_clock != nullptr;
}

/* Simulated: RocksDB's jobs, until there is none. */
static inline void lpi_kv_run_all(struct lp_kv *kv)
{
	while (lp_kvfs_sim_run_one(kv->env))
		continue;
}

/* --- index/events.cc --- */

/* A property that is not there reads as 0; the tests look at each. */
uint64_t lpi_kv_int_property(const struct lp_kv *kv, const std::string &name);
uint64_t lpi_kv_l0_files(const struct lp_kv *kv);
void lpi_kv_refresh_gauges(struct lp_kv *kv);
void lpi_kv_set_error(struct lp_kv *kv, int err);
/* The time that is under way counts. */
uint64_t lpi_kv_stalled_ns(const struct lp_kv *kv);
std::shared_ptr<rocksdb::EventListener> lpi_kv_listener(struct lp_kv *kv);
/* RocksDB fails without a logger: its own would want a file. */
std::shared_ptr<rocksdb::Logger> lpi_kv_logger(struct lp_kv_events *events);

/* --- index/upkeep.cc --- */

/* Does not wait for it. -EAGAIN, errors. */
int lpi_kv_start_flush(struct lp_kv *kv);
#endif

#endif
