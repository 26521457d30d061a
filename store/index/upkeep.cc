/* SPDX-License-Identifier: Apache-2.0 */
/* What keeps the index in order: flushes, resuming after an error, compactions, sizes, counts. */
#include <chrono>

#include <rocksdb/convenience.h>

#include "base/assert.h"
#include "store/index/kv_impl.h"
#include "store/kvfs/kvfs_cxx.h"

using rocksdb::Slice;
using DB = rocksdb::DB;

/* A refused flush is tried again when a flush ends; this is for the stall that compaction ends. */
static const std::chrono::milliseconds FLUSH_RECHECK(10);

int lpi_kv_start_flush(struct lp_kv *kv)
{
	if (kv->is_broken)
		return -ENOMEM;
	rocksdb::FlushOptions options;
	options.wait = false;
	options.allow_write_stall = true; /* else it would wait until there is no stall */
	if (lpi_kv_is_sim(kv))
		kv->sim_memtable_bytes = 0;
	return lpi_kvfs_errno(kv->db->Flush(options));
}

extern "C" int lp_kv_flush(struct lp_kv *kv)
{
	return lpi_guarded([=] {
		const int err = lpi_kv_start_flush(kv);
		lpi_kv_refresh_gauges(kv);
		return err;
	});
}

extern "C" bool lp_kv_is_flushing(const struct lp_kv *kv)
{
	return kv->waiting_cnt > 0;
}

/* Without threads: the flush is queued here, and then runs among the other jobs in their order. */
static int sim_flush_wait(struct lp_kv *kv)
{
	int err = lpi_kv_start_flush(kv);
	/* Stalled: the jobs that are queued end that, or nothing does. */
	while (err == -EAGAIN && lp_kvfs_sim_run_one(kv->env))
		err = lpi_kv_start_flush(kv);
	if (err < 0)
		return err;
	while (lpi_kv_int_property(kv, DB::Properties::kNumImmutableMemTable) > 0)
		if (!lp_kvfs_sim_run_one(kv->env))
			return kv->error.load() < 0 ? kv->error.load() : -EIO;
	return 0;
}

static bool is_all_flushed(const struct lp_kv *kv)
{
	return lpi_kv_int_property(kv, DB::Properties::kNumEntriesActiveMemTable) == 0 &&
	       lpi_kv_int_property(kv, DB::Properties::kNumImmutableMemTable) == 0;
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
			const int err = lpi_kv_start_flush(kv);
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
	return lpi_kv_is_sim(kv) ? sim_flush_wait(kv) : threads_flush_wait(kv);
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

/* RocksDB lets go of its lock to tell of a failure (7.8.3: ErrorHandler::HandleKnownErrors). By
 * then it has set what ends the resume in which that was, so it may be told when the next one has
 * begun; and it has not yet set what a resume resumes from, so that would do nothing, and all
 * stop after it. */
static int wait_until_told(struct lp_kv *kv)
{
	const int err = lpi_kvfs_errno(kv->db->PauseBackgroundWork());
	return err < 0 ? err : lpi_kvfs_errno(kv->db->ContinueBackgroundWork());
}

static int threads_resume(struct lp_kv *kv, bool waits)
{
	if (waits && !kv->is_broken) {
		const int err = lpi_guarded([=] { return wait_until_told(kv); });
		if (err < 0)
			return err;
	}
	return resume(kv);
}

extern "C" int lp_kv_resume(struct lp_kv *kv)
{
	int err;
	const bool waits = kv->resume_waits.exchange(false);
	kv->is_resuming = true;
	if (lpi_kv_is_sim(kv)) {
		/* It begins by waiting for all jobs, and ends with deleting files: only the flush
		 * that it asks for may run meanwhile. For a soft error it only forgets that; the
		 * compaction behind it may go on failing. */
		if (waits)
			lpi_kv_run_all(kv);
		err = lp_kvfs_sim_call(kv->env, true, resume, kv);
	} else {
		err = threads_resume(kv, waits);
	}
	if (err < 0 && waits)
		kv->resume_waits = true;
	kv->is_resuming = false;
	lpi_kv_refresh_gauges(kv);
	return err;
}

extern "C" int lp_kv_error(const struct lp_kv *kv)
{
	return kv->error.load();
}

extern "C" bool lp_kv_is_stopped(const struct lp_kv *kv)
{
	return kv->error.load() < 0 || kv->is_resuming;
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
		const Slice lower = lpi_kv_slice_of(call->lower);
		const Slice upper = lpi_kv_slice_of(call->upper);
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
	if (lpi_kv_is_sim(kv) && lp_kvfs_sim_is_running(kv->env))
		return -EAGAIN;
	const int err = lp_kv_flush_wait(kv);
	if (err < 0)
		return err;
	if (!lpi_kv_is_sim(kv))
		return compact(&call);
	lpi_kv_run_all(kv);
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
		const rocksdb::Range range(lpi_kv_slice_of(lower), lpi_kv_slice_of(upper));
		return lpi_kvfs_errno(kv->db->GetApproximateSizes(
			options, kv->db->DefaultColumnFamily(), &range, 1, ret_bytes));
	});
}

extern "C" uint64_t lp_kv_drop_kept(struct lp_kv *kv)
{
	return lpi_kv_table_drop_kept(*kv->tables);
}

extern "C" void lp_kv_set_cache_bytes(struct lp_kv *kv, uint64_t bytes)
{
	kv->cache->SetCapacity(bytes);
}

static void read_gauges(const struct lp_kv *kv, struct lp_kv_stats *stats)
{
	using Properties = DB::Properties;
	stats->memtable_bytes = lpi_kv_int_property(kv, Properties::kCurSizeAllMemTables) +
				lpi_kv_table_kept_bytes(*kv->tables);
	stats->waiting_cnt = lpi_kv_int_property(kv, Properties::kNumImmutableMemTable);
	stats->flushing = lpi_kv_int_property(kv, Properties::kNumRunningFlushes);
	stats->compacting = lpi_kv_int_property(kv, Properties::kNumRunningCompactions);
	stats->l0_files = lpi_kv_l0_files(kv);
	stats->debt_bytes = lpi_kv_int_property(kv, Properties::kEstimatePendingCompactionBytes);
	stats->table_bytes = lpi_kv_int_property(kv, Properties::kLiveSstFilesSize);
	stats->index_bytes = lpi_kv_int_property(kv, Properties::kEstimateTableReadersMem);
	stats->records = lpi_kv_int_property(kv, Properties::kEstimateNumKeys);
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
	ret_stats->stalled_ns = lpi_kv_stalled_ns(kv);
	ret_stats->refused_cnt = kv->refused_cnt;
	ret_stats->cached_hit_cnt = kv->cached_hit_cnt;
	ret_stats->cached_missed_cnt = kv->cached_missed_cnt;
}

extern "C" bool lp_kv_sim_run_one(struct lp_kv *kv)
{
	LP_ASSERT(lpi_kv_is_sim(kv));
	return lp_kvfs_sim_run_one(kv->env);
}

static int check_table(struct lp_kvfs *fs, const char *name)
{
	struct lp_kvfs_env *env = nullptr;
	const int err = lp_kvfs_env_new(fs, nullptr, &env);
	if (err < 0)
		return err;
	int result;
	{
		rocksdb::Options options;
		options.env = lpi_kvfs_env_rep(env);
		result = lpi_kvfs_errno(rocksdb::VerifySstFileChecksum(
			options, rocksdb::EnvOptions(), std::string(LP_KVFS_DIR "/") + name));
	}
	lp_kvfs_env_free(env);
	return result;
}

extern "C" int lp_kv_check_table(struct lp_kvfs *fs, const char *name)
{
	return lpi_guarded([=] { return check_table(fs, name); });
}
