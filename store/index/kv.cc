/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB's own interface is used rather than rocksdb/c.h, which turns every error into a string:
 * "the cache does not have it", "writes are stalled" and "the device is full" must be told apart
 * on the data path. All policy is in fill_options(); the rest forwards.
 *
 * Why a write does not sleep: no_slowdown, and the points where RocksDB begins to slow down equal
 * those where it stops, so that refusing is the exception. Why it does no I/O: there is no WAL, so
 * a memtable switch makes no new file.
 *
 * Closing with anything scheduled waits for it. Without threads nobody would run it, so all work is
 * told to give up first (CancelAllBackgroundWork), and then run. */
#include "store/index/kv.h"

#include <rocksdb/convenience.h>
#include <rocksdb/filter_policy.h>
#include <rocksdb/listener.h>
#include <rocksdb/table.h>
#include <rocksdb/write_batch.h>

#include "store/index/kv_impl.h"
#include "store/kvfs/kvfs_cxx.h"

using rocksdb::Status;
using DB = rocksdb::DB;

static const uint64_t MIB = UINT64_C(1) << 20;
static const uint64_t MEMTABLE_FILTER_SHARE = 64; /* of a memtable's bytes, this part */

enum {
	L0_COMPACT_FILES = 4,  /* begin to compact L0 */
	COMPACT_TABLES_MAX = 8 /* inputs of a compaction below L0, in table sizes */
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
	options->level0_slowdown_writes_trigger = LPI_KV_L0_STALL_FILES;
	options->level0_stop_writes_trigger = LPI_KV_L0_STALL_FILES;
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
	options->info_log = lpi_kv_logger(kv->options.events);
	options->listeners.push_back(lpi_kv_listener(kv));
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
	const uint64_t upper = LPI_KV_L0_STALL_FILES * all.write_buffer_bytes + all.level_bytes;
	const uint64_t lower = (COMPACT_TABLES_MAX + 1) * all.table_bytes;
	return flush + LP_MAX(upper, lower);
}

/* --- Threads -----------------------------------------------------------------------------------
 */

/* RocksDB's threads are the process's, and it makes as many as one index may use. But a job of one
 * index may wait, in the manifest barrier, for a thread that opens another one and waits for a job
 * of that: so each that is open has its own. Those of one that was closed stay, asleep: there are
 * never more than were needed at once. */
static struct {
	std::mutex lock;
	int flush_cnt = 0;
	int compact_cnt = 0;
} threads;

static void count_threads(const struct lp_kv *kv, int sign)
{
	if (lpi_kv_is_sim(kv))
		return;
	const std::lock_guard<std::mutex> hold(threads.lock);
	threads.flush_cnt += sign * static_cast<int>(kv->options.flush_threads);
	threads.compact_cnt += sign * static_cast<int>(kv->options.compact_threads);
	if (sign < 0)
		return;
	rocksdb::Env *env = lpi_kvfs_env_rep(kv->env);
	env->IncBackgroundThreadsIfNeeded(threads.flush_cnt, rocksdb::Env::HIGH);
	env->IncBackgroundThreadsIfNeeded(threads.compact_cnt, rocksdb::Env::LOW);
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
	lpi_kv_refresh_gauges(kv);
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
	count_threads(kv.get(), 1);
	err = open_db(kv.get());
	if (err < 0) {
		count_threads(kv.get(), -1);
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

extern "C" int lp_kv_close(struct lp_kv *kv)
{
	if (kv == nullptr)
		return 0;
	if (lpi_kv_is_sim(kv)) {
		rocksdb::CancelAllBackgroundWork(kv->db.get(), false);
		lpi_kv_run_all(kv);
	}
	const Status status = kv->db->Close();
	kv->db.reset();
	count_threads(kv, -1);
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
		lpi_kv_set_error(kv_, -ENOMEM);
	}
	Lent(const Lent &) = delete;
	Lent &operator=(const Lent &) = delete;

	rocksdb::WriteBatch rep;
	bool is_ended = false;

      private:
	struct lp_kv *const kv_;
	struct lp_kv_batch *const batch_;
};

static void switch_when_full(struct lp_kv *kv, uint64_t bytes)
{
	kv->sim_memtable_bytes += bytes;
	if (kv->sim_memtable_bytes >= kv->options.write_buffer_bytes)
		(void)lpi_kv_start_flush(kv); /* -EAGAIN: the next write hears of it too */
}

static int write_batch(struct lp_kv *kv, struct lp_kv_batch *batch)
{
	lpi_kv_count_nothing();
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
		lpi_kv_bump(&kv->refused_cnt, 1);
	if (err < 0)
		return err;
	lpi_kv_bump(&kv->written_bytes, bytes);
	if (lpi_kv_is_sim(kv))
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
	 * LPI_KV_L0_STALL_FILES, at debt_bytes_max. Near is one memtable or a quarter before. */
	const uint64_t waiting_max = kv->options.write_buffer_cnt - 1;
	const auto relaxed = std::memory_order_relaxed;
	return kv->waiting_cnt.load(relaxed) + 1 >= waiting_max ||
	       kv->l0_files.load(relaxed) >= LPI_KV_L0_STALL_FILES * 3 / 4 ||
	       kv->debt_bytes.load(relaxed) >= kv->options.debt_bytes_max / 4 * 3;
}
