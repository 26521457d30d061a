/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB's own interface is used rather than rocksdb/c.h, which turns every error into a string:
 * "the cache does not have it", "writes are stalled" and "the device is full" must be told apart
 * on the data path. All policy is in fill_options(); the rest forwards.
 *
 * Why a write does not sleep: no_slowdown, and the points where RocksDB begins to slow down equal
 * those where it stops, so that refusing is the exception. Why it does no I/O: there is no WAL, so
 * a memtable switch makes no new file.
 *
 * The gauges behind lp_kv_is_near_stall() are read from RocksDB whenever one of them can have
 * changed (a memtable was sealed, a flush or a compaction ended), so that the data path only loads
 * three words.
 *
 * Closing with anything scheduled waits for it. Without threads nobody would run it, so all work is
 * told to give up first (CancelAllBackgroundWork), and then run.
 *
 * Long because it is the one place where the open database is seen. */
#include "store/kv.h"

#include <rocksdb/cache.h>
#include <rocksdb/convenience.h>
#include <rocksdb/db.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/perf_level.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include "base/assert.h"
#include "store/kvfs.h"
#include "store/kvfs_impl.h"

using rocksdb::PinnableSlice;
using rocksdb::Slice;
using rocksdb::Status;
using DB = rocksdb::DB;

static const uint64_t MIB = UINT64_C(1) << 20;
static const uint64_t MEMTABLE_FILTER_SHARE = 64; /* of a memtable's bytes, this part */
/* A refused flush is tried again when a flush ends; this is for the stall that compaction ends. */
static const std::chrono::milliseconds FLUSH_RECHECK(10);

/* Of what RocksDB warns of when it could not write its options down. */
static const char *const NO_OPTIONS_FILE = "nable to persist options --";

enum {
	L0_COMPACT_FILES = 4,   /* begin to compact L0 */
	L0_STALL_FILES = 12,    /* refuse writes */
	COMPACT_TABLES_MAX = 8, /* inputs of a compaction below L0, in table sizes */
	LOG_LINE_MAX = 512
};

struct lp_kv {
	struct lp_kv_options options; /* defaults filled in */
	struct lp_kvfs_env *env = nullptr;
	std::shared_ptr<rocksdb::Cache> cache;
	std::shared_ptr<rocksdb::MemTableRepFactory> tables; /* in memory */
	std::unique_ptr<DB> db;
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

static Slice slice_of(struct lp_kv_bytes bytes)
{
	return Slice(static_cast<const char *>(bytes.data), bytes.len);
}

static struct lp_kv_bytes bytes_of(const Slice &slice)
{
	return {slice.data(), slice.size()};
}

/* RocksDB counts each comparison of keys for whoever may ask this thread, which nobody does: a
 * fifth of an insert. */
static void count_nothing()
{
	static thread_local bool is_told = false;
	if (is_told)
		return;
	is_told = true;
	rocksdb::SetPerfLevel(rocksdb::PerfLevel::kDisable);
}

/* For counters with one writer: no locked instruction on the shard thread. */
static void bump(std::atomic<uint64_t> *counter, uint64_t by)
{
	counter->store(counter->load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
}

/* --- Events ------------------------------------------------------------------------------------
 */

static uint64_t int_property(const struct lp_kv *kv, const std::string &name)
{
	uint64_t value = 0;
	/* A property that is not there reads as 0; the tests look at each. */
	(void)kv->db->GetIntProperty(name, &value);
	return value;
}

static uint64_t l0_files(const struct lp_kv *kv)
{
	std::string text;
	if (!kv->db->GetProperty(DB::Properties::kNumFilesAtLevelPrefix + "0", &text))
		return 0;
	return std::strtoull(text.c_str(), nullptr, 10);
}

static void refresh_gauges(struct lp_kv *kv)
{
	const std::lock_guard<std::mutex> hold(kv->gauge_lock);
	if (kv->db == nullptr)
		return; /* still opening */
	kv->waiting_cnt = int_property(kv, DB::Properties::kNumImmutableMemTable);
	kv->l0_files = l0_files(kv);
	kv->debt_bytes = int_property(kv, DB::Properties::kEstimatePendingCompactionBytes);
}

static void note_flushed(struct lp_kv *kv, uint64_t seq)
{
	const std::lock_guard<std::mutex> hold(kv->flush_lock);
	kv->flushed_seq = LP_MAX(kv->flushed_seq, seq);
	kv->flush_changed.notify_all();
}

static void set_error(struct lp_kv *kv, int err)
{
	const std::lock_guard<std::mutex> hold(kv->flush_lock);
	kv->error = err;
	kv->flush_changed.notify_all();
}

static const char *reason_text(rocksdb::BackgroundErrorReason reason)
{
	using Reason = rocksdb::BackgroundErrorReason;
	switch (reason) {
	case Reason::kFlush:
	case Reason::kFlushNoWAL:
		return "flush";
	case Reason::kCompaction:
		return "compaction";
	case Reason::kManifestWrite:
	case Reason::kManifestWriteNoWAL:
		return "manifest";
	case Reason::kWriteCallback:
	case Reason::kMemTable:
		return "write";
	}
	return "unknown";
}

/* A failed compaction that RocksDB will try again by itself stops nothing. And a resume would wait
 * until it no longer fails. */
static bool stops_nothing(rocksdb::BackgroundErrorReason reason, const Status &status)
{
	if (reason != rocksdb::BackgroundErrorReason::kCompaction || !status.IsIOError() ||
	    status.severity() >= Status::Severity::kHardError)
		return false;
	const int err = lpi_kvfs_errno(status);
	return err == -EIO || err == -ENOSPC;
}

static uint64_t mono_ns(const struct lp_kv *kv)
{
	return lpi_kvfs_env_rep(kv->env)->NowNanos();
}

/* Two threads may tell of two changes at once: a time is counted by who ends it. */
static void note_stalled(struct lp_kv *kv)
{
	uint64_t none = 0;
	kv->stall_cnt++;
	(void)kv->stalled_since_ns.compare_exchange_strong(none, LP_MAX(mono_ns(kv), UINT64_C(1)));
}

static void note_flowing(struct lp_kv *kv)
{
	const uint64_t since = kv->stalled_since_ns.exchange(0);
	if (since != 0)
		kv->stalled_ns += mono_ns(kv) - since;
}

/* The time that is under way counts. */
static uint64_t stalled_ns(const struct lp_kv *kv)
{
	const uint64_t since = kv->stalled_since_ns;
	const uint64_t now = mono_ns(kv);
	return kv->stalled_ns + (since != 0 && now > since ? now - since : 0);
}

class Listener : public rocksdb::EventListener
{
      public:
	explicit Listener(struct lp_kv *kv) : kv_(kv), events_(kv->options.events)
	{
	}
	void OnMemTableSealed(const rocksdb::MemTableInfo &) override
	{
		refresh_gauges(kv_);
	}
	void OnFlushBegin(DB *, const rocksdb::FlushJobInfo &) override
	{
		count_nothing();
	}
	void OnCompactionBegin(DB *, const rocksdb::CompactionJobInfo &) override
	{
		count_nothing();
	}
	void OnFlushCompleted(DB *, const rocksdb::FlushJobInfo &info) override
	{
		const auto &table = info.table_properties;
		kv_->flushed_bytes += table.data_size + table.index_size + table.filter_size;
		kv_->flush_cnt++;
		refresh_gauges(kv_);
		/* Who waits for the flush finds that its event has been told. */
		if (events_ != nullptr && events_->flushed != nullptr)
			events_->flushed(events_);
		note_flushed(kv_, info.largest_seqno);
	}
	void OnCompactionCompleted(DB *, const rocksdb::CompactionJobInfo &info) override
	{
		kv_->compacted_read_bytes += info.stats.total_input_bytes;
		kv_->compacted_bytes += info.stats.total_output_bytes;
		kv_->compact_cnt++;
		if (info.status.ok())
			kv_->compact_error = 0;
		refresh_gauges(kv_);
	}
	void OnBackgroundError(rocksdb::BackgroundErrorReason reason, Status *status) override
	{
		const int err = lpi_kvfs_errno(*status);
		if (stops_nothing(reason, *status)) {
			kv_->compact_error = err;
			if (events_ != nullptr && events_->compact_failed != nullptr)
				events_->compact_failed(events_, err);
			return;
		}
		set_error(kv_, err);
		if (events_ == nullptr || events_->failed == nullptr)
			return;
		const bool final = status->severity() > Status::Severity::kHardError;
		events_->failed(events_, err, final, reason_text(reason));
	}
	/* RocksDB makes itself a file manager that, on a full device, waits in a thread of its own
	 * for a GiB to be free, and until then refuses a resume by hand. */
	void OnErrorRecoveryBegin(rocksdb::BackgroundErrorReason, Status,
				  bool *auto_recovery) override
	{
		*auto_recovery = false;
	}
	void OnStallConditionsChanged(const rocksdb::WriteStallInfo &info) override
	{
		const bool is = info.condition.cur != rocksdb::WriteStallCondition::kNormal;
		const bool was = info.condition.prev != rocksdb::WriteStallCondition::kNormal;
		if (info.condition.cur == rocksdb::WriteStallCondition::kStopped)
			kv_->stop_cnt++;
		if (is == was)
			return;
		if (is)
			note_stalled(kv_);
		else
			note_flowing(kv_);
		if (events_ != nullptr && events_->stalled != nullptr)
			events_->stalled(events_, is);
	}

      private:
	struct lp_kv *const kv_;
	struct lp_kv_events *const events_;
};

/* RocksDB fails without a logger: its own would want a file. */
class Logger : public rocksdb::Logger
{
      public:
	explicit Logger(struct lp_kv_events *events)
	    : rocksdb::Logger(rocksdb::WARN_LEVEL), events_(events)
	{
	}
	using rocksdb::Logger::Logv;
	void Logv(const char *, va_list) override
	{
		/* Headers, at open: every option, one line each. */
	}
	void Logv(const rocksdb::InfoLogLevel level, const char *format, va_list args) override
	{
		if (level < rocksdb::WARN_LEVEL || level >= rocksdb::HEADER_LEVEL)
			return;
		if (std::strstr(format, NO_OPTIONS_FILE) != nullptr)
			return; /* we refused it */
		if (events_ == nullptr || events_->log == nullptr)
			return;
		std::array<char, LOG_LINE_MAX> line;
		if (std::vsnprintf(line.data(), line.size(), format, args) < 0)
			return;
		events_->log(events_, level_of(level), line.data());
	}

      private:
	static enum lp_kv_log_level level_of(rocksdb::InfoLogLevel level)
	{
		if (level == rocksdb::WARN_LEVEL)
			return LP_KV_LOG_WARN;
		return level == rocksdb::ERROR_LEVEL ? LP_KV_LOG_ERROR : LP_KV_LOG_FATAL;
	}
	struct lp_kv_events *const events_;
};

/* --- Options -----------------------------------------------------------------------------------
 */

static struct lp_kv_options with_defaults(const struct lp_kv_options *options)
{
	struct lp_kv_options all = *options;
	const auto fill = [](auto *field, auto value) {
		if (*field == 0)
			*field = value;
	};
	fill(&all.cache_bytes, 32 * MIB);
	fill(&all.write_buffer_bytes, 64 * MIB);
	fill(&all.write_buffer_cnt, 4u);
	fill(&all.table_bytes, all.write_buffer_bytes);
	fill(&all.level_bytes, 4 * all.write_buffer_bytes);
	fill(&all.debt_bytes_max, UINT64_C(16384) * MIB);
	fill(&all.flush_threads, 1u);
	fill(&all.compact_threads, 1u);
	return all;
}

static void fill_table_options(const struct lp_kv *kv, rocksdb::Options *options)
{
	rocksdb::BlockBasedTableOptions table;
	table.block_cache = kv->cache;
	table.block_size = 4096;
	table.format_version = 5;
	/* A wrong "maybe" of any table costs a read by a helper, some twenty times a look-up that
	 * ends here; with 10 bits one of a hundred creates met one. */
	table.filter_policy.reset(rocksdb::NewBloomFilterPolicy(14));
	options->table_factory.reset(rocksdb::NewBlockBasedTableFactory(table));
	/* Values are small and the CPU is what we are short of. */
	options->compression = rocksdb::kNoCompression;
	options->bottommost_compression = rocksdb::kNoCompression;
}

static void fill_write_options(const struct lp_kv *kv, rocksdb::Options *options)
{
	const struct lp_kv_options *ours = &kv->options;
	/* In a simulation memtables are switched by counting, see switch_when_full(). */
	options->write_buffer_size =
		ours->sim_clock == nullptr ? ours->write_buffer_bytes : UINT64_C(1024) * MIB;
	/* Whoever creates looks first whether there is such a key: a filter says no for a tenth of
	 * what a search costs. At 128 bytes a record 16 bits each; small enough to stay in the
	 * CPU's cache. */
	options->memtable_prefix_bloom_size_ratio =
		static_cast<double>(ours->write_buffer_bytes) /
		static_cast<double>(MEMTABLE_FILTER_SHARE * options->write_buffer_size);
	options->memtable_whole_key_filtering = true;
	options->memtable_factory = kv->tables;
	options->max_write_buffer_number = static_cast<int>(ours->write_buffer_cnt);
	options->min_write_buffer_number_to_merge = 1;
	/* One thread writes: what makes several fast only costs here. */
	options->allow_concurrent_memtable_write = false;
	options->enable_write_thread_adaptive_yield = false;
	options->enable_pipelined_write = false;
	options->unordered_write = false;
	options->two_write_queues = false;
	options->avoid_unnecessary_blocking_io = true;
	/* What is not flushed is in our log. */
	options->avoid_flush_during_shutdown = true;
	options->avoid_flush_during_recovery = true;
	/* We resume, when the cause is gone. */
	options->max_bgerror_resume_count = 0;
}

static void fill_level_options(const struct lp_kv *kv, rocksdb::Options *options)
{
	const struct lp_kv_options *ours = &kv->options;
	options->compaction_style = rocksdb::kCompactionStyleLevel;
	options->level_compaction_dynamic_level_bytes = true;
	options->target_file_size_base = ours->table_bytes;
	options->max_bytes_for_level_base = ours->level_bytes;
	options->max_compaction_bytes = COMPACT_TABLES_MAX * ours->table_bytes;
	options->level0_file_num_compaction_trigger = L0_COMPACT_FILES;
	/* With no_slowdown a write fails where others are slowed down, so that is where we stop. */
	options->level0_slowdown_writes_trigger = L0_STALL_FILES;
	options->level0_stop_writes_trigger = L0_STALL_FILES;
	options->soft_pending_compaction_bytes_limit = ours->debt_bytes_max;
	options->hard_pending_compaction_bytes_limit = ours->debt_bytes_max;
	/* Else a compaction reads 4 KiB at a time. */
	options->compaction_readahead_size = 2 * MIB;
	/* Deprecated, and still the only way to say how many of which. */
	options->max_background_flushes = static_cast<int>(ours->flush_threads);
	options->max_background_compactions = static_cast<int>(ours->compact_threads);
	options->max_subcompactions = 1;
	options->disable_auto_compactions = ours->no_compaction;
}

static void fill_options(struct lp_kv *kv, rocksdb::Options *options)
{
	options->env = lpi_kvfs_env_rep(kv->env);
	options->info_log = std::make_shared<Logger>(kv->options.events);
	options->listeners.push_back(std::make_shared<Listener>(kv));
	options->create_if_missing = kv->options.create;
	options->paranoid_checks = true;
	options->fail_if_options_file_error = false; /* there is none: kvfs.cc */
	options->max_open_files = -1;
	if (kv->options.sim_clock != nullptr)
		options->max_file_opening_threads = 1;
	options->max_manifest_file_size = 64 * MIB;
	options->stats_dump_period_sec = 0;
	options->stats_persist_period_sec = 0;
	options->skip_stats_update_on_db_open = true;
	options->db_host_id = ""; /* no host's name in the tables */
	fill_table_options(kv, options);
	fill_write_options(kv, options);
	fill_level_options(kv, options);
}

static void fill_call_options(struct lp_kv *kv)
{
	kv->write.disableWAL = true;
	kv->write.no_slowdown = true;
	kv->read_cached.read_tier = rocksdb::kBlockCacheTier;
	kv->read_persisted.read_tier = rocksdb::kPersistedTier;
	/* There are none; and an iterator that looks for them goes on behind a table whose first
	 * block it could not read, or did not find in the cache, as if that were empty (rule L8).
	 */
	kv->read_cached.ignore_range_deletions = true;
	kv->read_all.ignore_range_deletions = true;
	kv->read_persisted.ignore_range_deletions = true;
}

extern "C" uint64_t lp_kv_reserve_bytes(const struct lp_kv_options *options)
{
	const struct lp_kv_options all = with_defaults(options);
	const uint64_t flush = (all.write_buffer_cnt + 1) * all.write_buffer_bytes;
	/* From L0 all its files go at once, with what they overlap in the next level. */
	const uint64_t upper = L0_STALL_FILES * all.write_buffer_bytes + all.level_bytes;
	const uint64_t lower = (COMPACT_TABLES_MAX + 1) * all.table_bytes;
	return flush + LP_MAX(upper, lower);
}

/* --- Opening -----------------------------------------------------------------------------------
 */

static int open_db(struct lp_kv *kv)
{
	rocksdb::Options options;
	fill_options(kv, &options);
	fill_call_options(kv);
	DB *db = nullptr;
	(void)lpi_kvfs_take_error(); /* of others */
	const Status status = DB::Open(options, LP_KVFS_DIR, &db);
	/* RocksDB takes a file that it cannot open for options that do not go with it. */
	const int err = status.IsInvalidArgument() ? lpi_kvfs_take_error() : 0;
	if (!status.ok())
		return err < 0 ? err : lpi_kvfs_errno(status);
	{
		const std::lock_guard<std::mutex> hold(kv->gauge_lock);
		kv->db.reset(db);
	}
	refresh_gauges(kv);
	return 0;
}

static int open_kv(const struct lp_kv_options *options, struct lp_kv **ret_kv)
{
	struct lp_kvfs_stat stat;
	int err = options->fs->ops->stat(options->fs, "CURRENT", &stat);
	if (err < 0 && (err != -ENOENT || !options->create))
		return err;
	auto kv = std::make_unique<lp_kv>();
	kv->options = with_defaults(options);
	if (kv->options.write_buffer_cnt < 2 || kv->options.write_buffer_cnt > 16)
		return -EINVAL;
	/* One shard of the cache when simulated: which block leaves must not depend on the hash of
	 * a random name. Else few, for few threads use it. */
	const int shard_bits = options->sim_clock != nullptr ? 0 : 2;
	kv->cache = rocksdb::NewLRUCache(kv->options.cache_bytes, shard_bits);
	kv->tables = lpi_kv_table_factory(kv->options.write_buffer_bytes);
	err = lp_kvfs_env_new(options->fs, options->sim_clock, &kv->env);
	if (err < 0)
		return err;
	err = open_db(kv.get());
	if (err < 0) {
		lp_kvfs_env_free(kv->env);
		return err;
	}
	*ret_kv = kv.release();
	return 0;
}

extern "C" int lp_kv_open(const struct lp_kv_options *options, struct lp_kv **ret_kv)
{
	return lpi_guarded([=] { return open_kv(options, ret_kv); });
}

static bool is_sim(const struct lp_kv *kv)
{
	return kv->options.sim_clock != nullptr;
}

static void run_all(struct lp_kv *kv)
{
	while (lp_kvfs_sim_run_one(kv->env))
		continue;
}

extern "C" int lp_kv_close(struct lp_kv *kv)
{
	if (kv == nullptr)
		return 0;
	if (is_sim(kv)) {
		rocksdb::CancelAllBackgroundWork(kv->db.get(), false);
		run_all(kv);
	}
	const Status status = kv->db->Close();
	kv->db.reset();
	lp_kvfs_env_free(kv->env);
	const int err = lpi_kvfs_errno(status);
	delete kv;
	return err;
}

/* --- Writing -----------------------------------------------------------------------------------
 */

/* A batch as one of RocksDB's own, for the time of a write. Its bytes are taken back in any case:
 * what is refused is written again, and the memory is used again. */
class Lent
{
      public:
	Lent(struct lp_kv *kv, struct lp_kv_batch *batch)
	    : rep(std::move(batch->bytes)), kv_(kv), batch_(batch)
	{
	}
	/* If it was not ended an exception has cut it short (memory), and RocksDB, which knows of
	 * none, has all that writes, or wants to flush, wait for its end: nothing may ask for that
	 * any more. Closing does not. */
	~Lent()
	{
		batch_->bytes = std::move(const_cast<std::string &>(rep.Data()));
		if (is_ended)
			return;
		kv_->is_broken = true;
		set_error(kv_, -ENOMEM);
	}
	Lent(const Lent &) = delete;
	Lent &operator=(const Lent &) = delete;

	rocksdb::WriteBatch rep;
	bool is_ended = false;

      private:
	struct lp_kv *const kv_;
	struct lp_kv_batch *const batch_;
};

static int start_flush(struct lp_kv *kv)
{
	if (kv->is_broken)
		return -ENOMEM;
	rocksdb::FlushOptions options;
	options.wait = false;
	options.allow_write_stall = true; /* else it would wait until there is no stall */
	if (is_sim(kv))
		kv->sim_memtable_bytes = 0;
	return lpi_kvfs_errno(kv->db->Flush(options));
}

static void switch_when_full(struct lp_kv *kv, uint64_t bytes)
{
	kv->sim_memtable_bytes += bytes;
	if (kv->sim_memtable_bytes >= kv->options.write_buffer_bytes)
		(void)start_flush(kv); /* -EAGAIN: the next write hears of it too */
}

static int write_batch(struct lp_kv *kv, struct lp_kv_batch *batch)
{
	count_nothing();
	if (kv->is_broken)
		return -ENOMEM;
	const uint64_t bytes = batch->bytes.size();
	int err = 0;
	{
		Lent lent(kv, batch);
		err = lpi_kvfs_errno(kv->db->Write(kv->write, &lent.rep));
		lent.is_ended = true;
	}
	if (err == -EAGAIN)
		bump(&kv->refused_cnt, 1);
	if (err < 0)
		return err;
	bump(&kv->written_bytes, bytes);
	if (is_sim(kv))
		switch_when_full(kv, bytes);
	return 0;
}

extern "C" int lp_kv_write(struct lp_kv *kv, struct lp_kv_batch *batch)
{
	return lpi_guarded([=] { return write_batch(kv, batch); });
}

extern "C" bool lp_kv_is_near_stall(const struct lp_kv *kv)
{
	/* Stalled at cnt - 1 waiting memtables (RocksDB begins to delay there above 3), at
	 * L0_STALL_FILES, at debt_bytes_max. Near is one memtable or a quarter before. */
	const uint64_t waiting_max = kv->options.write_buffer_cnt - 1;
	const auto relaxed = std::memory_order_relaxed;
	return kv->waiting_cnt.load(relaxed) + 1 >= waiting_max ||
	       kv->l0_files.load(relaxed) >= L0_STALL_FILES * 3 / 4 ||
	       kv->debt_bytes.load(relaxed) >= kv->options.debt_bytes_max / 4 * 3;
}

/* --- Reading -----------------------------------------------------------------------------------
 */

static_assert(sizeof(PinnableSlice) <= sizeof(lp_kv_value::pin), "RocksDB's slice has grown");
static_assert(alignof(PinnableSlice) <= alignof(uint64_t), "RocksDB's slice has grown");

static PinnableSlice *pin_of(struct lp_kv_value *value)
{
	return reinterpret_cast<PinnableSlice *>(value->pin);
}

static int get(struct lp_kv *kv, const rocksdb::ReadOptions &options, struct lp_kv_bytes key,
	       struct lp_kv_value *ret_value)
{
	count_nothing();
	auto *pin = new (ret_value->pin) PinnableSlice;
	const Status status =
		kv->db->Get(options, kv->db->DefaultColumnFamily(), slice_of(key), pin);
	if (status.ok()) {
		ret_value->bytes = bytes_of(*pin);
		return 0;
	}
	pin->~PinnableSlice();
	return lpi_kvfs_errno(status);
}

extern "C" int lp_kv_get_cached(struct lp_kv *kv, struct lp_kv_bytes key,
				struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] {
		const int err = get(kv, kv->read_cached, key, ret_value);
		bump(err == -EAGAIN ? &kv->cached_missed_cnt : &kv->cached_hit_cnt, 1);
		return err;
	});
}

extern "C" int lp_kv_get(struct lp_kv *kv, struct lp_kv_bytes key, struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] { return get(kv, kv->read_all, key, ret_value); });
}

extern "C" int lp_kv_get_persisted(struct lp_kv *kv, struct lp_kv_bytes key,
				   struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] { return get(kv, kv->read_persisted, key, ret_value); });
}

extern "C" void lp_kv_multi_get(struct lp_kv *kv, size_t cnt, const struct lp_kv_bytes *keys,
				struct lp_kv_value *ret_values, int *ret_results)
{
	LP_ASSERT(cnt <= LP_KV_MULTI_MAX);
	std::array<Slice, LP_KV_MULTI_MAX> slices;
	std::array<PinnableSlice, LP_KV_MULTI_MAX> pins;
	std::array<Status, LP_KV_MULTI_MAX> statuses;
	for (size_t i = 0; i < cnt; i++)
		slices[i] = slice_of(keys[i]);
	kv->db->MultiGet(kv->read_all, kv->db->DefaultColumnFamily(), cnt, slices.data(),
			 pins.data(), statuses.data());
	for (size_t i = 0; i < cnt; i++) {
		ret_results[i] = lpi_kvfs_errno(statuses[i]);
		if (ret_results[i] < 0)
			continue;
		auto *pin = new (ret_values[i].pin) PinnableSlice(std::move(pins[i]));
		ret_values[i].bytes = bytes_of(*pin);
	}
}

extern "C" void lp_kv_value_release(struct lp_kv_value *value)
{
	pin_of(value)->~PinnableSlice();
	value->bytes = {nullptr, 0};
}

/* --- Iterators ---------------------------------------------------------------------------------
 */

struct lp_kv_iter {
	std::string lower;
	std::string upper;
	Slice lower_slice; /* RocksDB keeps pointers to these */
	Slice upper_slice;
	std::unique_ptr<rocksdb::Iterator> rep;
};

static void set_bound(struct lp_kv_bytes bound, std::string *copy, Slice *slice,
		      const Slice **ret_option)
{
	if (bound.data == nullptr)
		return;
	copy->assign(static_cast<const char *>(bound.data), bound.len);
	*slice = *copy;
	*ret_option = slice;
}

static int open_iter(struct lp_kv *kv, rocksdb::ReadOptions options, struct lp_kv_bytes lower,
		     struct lp_kv_bytes upper, struct lp_kv_iter **ret_iter)
{
	auto iter = std::make_unique<lp_kv_iter>();
	set_bound(lower, &iter->lower, &iter->lower_slice, &options.iterate_lower_bound);
	set_bound(upper, &iter->upper, &iter->upper_slice, &options.iterate_upper_bound);
	iter->rep.reset(kv->db->NewIterator(options));
	const int err = lpi_kvfs_errno(iter->rep->status());
	if (err < 0)
		return err;
	*ret_iter = iter.release();
	return 0;
}

extern "C" int lp_kv_iter_open(struct lp_kv *kv, struct lp_kv_bytes lower, struct lp_kv_bytes upper,
			       bool cached, struct lp_kv_iter **ret_iter)
{
	return lpi_guarded([=] {
		return open_iter(kv, cached ? kv->read_cached : kv->read_all, lower, upper,
				 ret_iter);
	});
}

extern "C" void lp_kv_iter_close(struct lp_kv_iter *iter)
{
	delete iter;
}

/* An iterator that is not valid may have come to the end, or to a block that it could not read:
 * only its status tells. */
template <class Move> static int moved(struct lp_kv_iter *iter, Move move)
{
	return lpi_guarded([=] {
		move(iter->rep.get());
		if (iter->rep->Valid())
			return 0;
		const int err = lpi_kvfs_errno(iter->rep->status());
		return err < 0 ? err : -ENOENT;
	});
}

extern "C" int lp_kv_iter_seek(struct lp_kv_iter *iter, struct lp_kv_bytes key)
{
	return moved(iter, [=](rocksdb::Iterator *rep) { rep->Seek(slice_of(key)); });
}

extern "C" int lp_kv_iter_seek_first(struct lp_kv_iter *iter)
{
	return moved(iter, [](rocksdb::Iterator *rep) { rep->SeekToFirst(); });
}

extern "C" int lp_kv_iter_seek_last(struct lp_kv_iter *iter)
{
	return moved(iter, [](rocksdb::Iterator *rep) { rep->SeekToLast(); });
}

extern "C" int lp_kv_iter_next(struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return moved(iter, [](rocksdb::Iterator *rep) { rep->Next(); });
}

extern "C" int lp_kv_iter_prev(struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return moved(iter, [](rocksdb::Iterator *rep) { rep->Prev(); });
}

extern "C" struct lp_kv_bytes lp_kv_iter_key(const struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return bytes_of(iter->rep->key());
}

extern "C" struct lp_kv_bytes lp_kv_iter_value(const struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return bytes_of(iter->rep->value());
}

/* --- Snapshots ---------------------------------------------------------------------------------
 */

/* RocksDB's own, under a name of ours: there is nothing to be added. */
static const rocksdb::Snapshot *rep_of(const struct lp_kv_snapshot *snapshot)
{
	return reinterpret_cast<const rocksdb::Snapshot *>(snapshot);
}

static rocksdb::ReadOptions read_at(const struct lp_kv *kv, const struct lp_kv_snapshot *snapshot)
{
	rocksdb::ReadOptions options = kv->read_all;
	options.snapshot = rep_of(snapshot);
	options.fill_cache = false;
	return options;
}

extern "C" int lp_kv_snapshot_new(struct lp_kv *kv, struct lp_kv_snapshot **ret_snapshot)
{
	return lpi_guarded([=] {
		auto *rep = const_cast<rocksdb::Snapshot *>(kv->db->GetSnapshot());
		*ret_snapshot = reinterpret_cast<struct lp_kv_snapshot *>(rep);
		return rep != nullptr ? 0 : -ENOMEM;
	});
}

extern "C" void lp_kv_snapshot_free(struct lp_kv *kv, struct lp_kv_snapshot *snapshot)
{
	if (snapshot != nullptr)
		kv->db->ReleaseSnapshot(rep_of(snapshot));
}

extern "C" int lp_kv_get_at(struct lp_kv *kv, const struct lp_kv_snapshot *snapshot,
			    struct lp_kv_bytes key, struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] { return get(kv, read_at(kv, snapshot), key, ret_value); });
}

extern "C" int lp_kv_iter_open_at(struct lp_kv *kv, const struct lp_kv_snapshot *snapshot,
				  struct lp_kv_bytes lower, struct lp_kv_bytes upper,
				  struct lp_kv_iter **ret_iter)
{
	return lpi_guarded(
		[=] { return open_iter(kv, read_at(kv, snapshot), lower, upper, ret_iter); });
}

/* --- Maintenance -------------------------------------------------------------------------------
 */

extern "C" int lp_kv_flush(struct lp_kv *kv)
{
	return lpi_guarded([=] { return start_flush(kv); });
}

/* Without threads: the flush is queued here, and then runs among the other jobs in their order. */
static int sim_flush_wait(struct lp_kv *kv)
{
	int err = start_flush(kv);
	/* Stalled: the jobs that are queued end that, or nothing does. */
	while (err == -EAGAIN && lp_kvfs_sim_run_one(kv->env))
		err = start_flush(kv);
	if (err < 0)
		return err;
	while (int_property(kv, DB::Properties::kNumImmutableMemTable) > 0)
		if (!lp_kvfs_sim_run_one(kv->env))
			return kv->error.load() < 0 ? kv->error.load() : -EIO;
	return 0;
}

static bool is_all_flushed(const struct lp_kv *kv)
{
	return int_property(kv, DB::Properties::kNumEntriesActiveMemTable) == 0 &&
	       int_property(kv, DB::Properties::kNumImmutableMemTable) == 0;
}

/* RocksDB's own waiting is not to be had: once DB::Resume has cleared a hard error, a flush with
 * wait returns at once, and with success (7.8.3: ErrorHandler::ClearBGError leaves is_db_stopped_).
 * So we wait until the listener has seen a table with all that was written before. */
static int threads_flush_wait(struct lp_kv *kv)
{
	const uint64_t target = kv->db->GetLatestSequenceNumber();
	bool asked = false;
	std::unique_lock<std::mutex> hold(kv->flush_lock);
	for (;;) {
		const bool done = kv->flushed_seq >= target;
		const int error = kv->error.load();
		hold.unlock();
		if (done || is_all_flushed(kv))
			return 0;
		if (error < 0)
			return error;
		if (!asked) {
			const int err = start_flush(kv);
			if (err < 0 && err != -EAGAIN)
				return err;
			asked = err == 0;
		}
		hold.lock();
		if (kv->flushed_seq < target && kv->error.load() == 0)
			(void)kv->flush_changed.wait_for(hold, FLUSH_RECHECK);
	}
}

static int flush_wait(struct lp_kv *kv)
{
	return is_sim(kv) ? sim_flush_wait(kv) : threads_flush_wait(kv);
}

extern "C" int lp_kv_flush_wait(struct lp_kv *kv)
{
	return lpi_guarded([=] { return flush_wait(kv); });
}

static int resume(void *arg)
{
	struct lp_kv *kv = static_cast<struct lp_kv *>(arg);
	if (kv->is_broken)
		return -ENOMEM;
	return lpi_guarded([=] {
		/* First, for a new failure during the resume must stay. */
		const int before = kv->error.exchange(0);
		const int err = lpi_kvfs_errno(kv->db->Resume());
		int none = 0;
		if (err < 0)
			(void)kv->error.compare_exchange_strong(none, before);
		return err;
	});
}

extern "C" int lp_kv_resume(struct lp_kv *kv)
{
	int err;
	if (is_sim(kv)) {
		/* It begins by waiting for all jobs, and ends with deleting files: only the flush
		 * that it asks for may run meanwhile. */
		run_all(kv);
		err = lp_kvfs_sim_call(kv->env, true, resume, kv);
	} else {
		err = resume(kv);
	}
	refresh_gauges(kv);
	return err;
}

extern "C" int lp_kv_error(const struct lp_kv *kv)
{
	return kv->error.load();
}

extern "C" int lp_kv_compact_error(const struct lp_kv *kv)
{
	return kv->compact_error.load();
}

struct compact_call {
	struct lp_kv *kv;
	struct lp_kv_bytes lower;
	struct lp_kv_bytes upper;
};

static int compact(void *arg)
{
	const auto *call = static_cast<const struct compact_call *>(arg);
	return lpi_guarded([=] {
		const Slice lower = slice_of(call->lower);
		const Slice upper = slice_of(call->upper);
		rocksdb::CompactRangeOptions options;
		options.exclusive_manual_compaction = false;
		options.allow_write_stall = true;
		return lpi_kvfs_errno(call->kv->db->CompactRange(
			options, call->lower.data == nullptr ? nullptr : &lower,
			call->upper.data == nullptr ? nullptr : &upper));
	});
}

extern "C" int lp_kv_compact(struct lp_kv *kv, struct lp_kv_bytes lower, struct lp_kv_bytes upper)
{
	struct compact_call call = {kv, lower, upper};
	if (is_sim(kv) && lp_kvfs_sim_is_running(kv->env))
		return -EAGAIN;
	const int err = lp_kv_flush_wait(kv);
	if (err < 0)
		return err;
	if (!is_sim(kv))
		return compact(&call);
	run_all(kv);
	return lp_kvfs_sim_call(kv->env, false, compact, &call);
}

extern "C" uint64_t lp_kv_debt_bytes(const struct lp_kv *kv)
{
	return kv->debt_bytes.load(std::memory_order_relaxed);
}

extern "C" int lp_kv_size_of(struct lp_kv *kv, struct lp_kv_bytes lower, struct lp_kv_bytes upper,
			     uint64_t *ret_bytes)
{
	return lpi_guarded([=] {
		rocksdb::SizeApproximationOptions options;
		options.include_memtables = true;
		const rocksdb::Range range(slice_of(lower), slice_of(upper));
		return lpi_kvfs_errno(kv->db->GetApproximateSizes(
			options, kv->db->DefaultColumnFamily(), &range, 1, ret_bytes));
	});
}

extern "C" void lp_kv_set_cache_bytes(struct lp_kv *kv, uint64_t bytes)
{
	kv->cache->SetCapacity(bytes);
}

static void read_gauges(const struct lp_kv *kv, struct lp_kv_stats *stats)
{
	using Properties = DB::Properties;
	stats->memtable_bytes = int_property(kv, Properties::kCurSizeAllMemTables) +
				lpi_kv_table_kept_bytes(*kv->tables);
	stats->waiting_cnt = int_property(kv, Properties::kNumImmutableMemTable);
	stats->flushing = int_property(kv, Properties::kNumRunningFlushes);
	stats->compacting = int_property(kv, Properties::kNumRunningCompactions);
	stats->l0_files = l0_files(kv);
	stats->debt_bytes = int_property(kv, Properties::kEstimatePendingCompactionBytes);
	stats->table_bytes = int_property(kv, Properties::kLiveSstFilesSize);
	stats->index_bytes = int_property(kv, Properties::kEstimateTableReadersMem);
	stats->records = int_property(kv, Properties::kEstimateNumKeys);
	stats->cache_bytes = kv->cache->GetUsage();
	stats->cache_pinned_bytes = kv->cache->GetPinnedUsage();
}

extern "C" void lp_kv_read_stats(struct lp_kv *kv, struct lp_kv_stats *ret_stats)
{
	read_gauges(kv, ret_stats);
	ret_stats->written_bytes = kv->written_bytes;
	ret_stats->flushed_bytes = kv->flushed_bytes;
	ret_stats->compacted_read_bytes = kv->compacted_read_bytes;
	ret_stats->compacted_bytes = kv->compacted_bytes;
	ret_stats->flush_cnt = kv->flush_cnt;
	ret_stats->compact_cnt = kv->compact_cnt;
	ret_stats->stall_cnt = kv->stall_cnt;
	ret_stats->stop_cnt = kv->stop_cnt;
	ret_stats->stalled_ns = stalled_ns(kv);
	ret_stats->refused_cnt = kv->refused_cnt;
	ret_stats->cached_hit_cnt = kv->cached_hit_cnt;
	ret_stats->cached_missed_cnt = kv->cached_missed_cnt;
}

extern "C" bool lp_kv_sim_run_one(struct lp_kv *kv)
{
	LP_ASSERT(is_sim(kv));
	return lp_kvfs_sim_run_one(kv->env);
}
