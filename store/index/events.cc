/* SPDX-License-Identifier: Apache-2.0 */
/* What RocksDB tells: events, on its threads, and lines for the log; and the gauges and the error
 * that follow from them. */
#include <rocksdb/listener.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "store/index/kv_impl.h"
#include "store/kvfs/kvfs_cxx.h"

using rocksdb::Status;
using DB = rocksdb::DB;

/* Of what RocksDB warns of when it could not write its options down. */
static const char *const NO_OPTIONS_FILE = "nable to persist options --";

enum { LOG_LINE_MAX = 512 };

uint64_t lpi_kv_int_property(const struct lp_kv *kv, const std::string &name)
{
	uint64_t value = 0;
	(void)kv->db->GetIntProperty(name, &value);
	return value;
}

uint64_t lpi_kv_l0_files(const struct lp_kv *kv)
{
	std::string text;
	if (!kv->db->GetProperty(DB::Properties::kNumFilesAtLevelPrefix + "0", &text))
		return 0;
	return std::strtoull(text.c_str(), nullptr, 10);
}

void lpi_kv_refresh_gauges(struct lp_kv *kv)
{
	const std::lock_guard<std::mutex> hold(kv->gauge_lock);
	if (kv->db == nullptr)
		return; /* still opening */
	kv->waiting_cnt = lpi_kv_int_property(kv, DB::Properties::kNumImmutableMemTable);
	kv->l0_files = lpi_kv_l0_files(kv);
	kv->debt_bytes = lpi_kv_int_property(kv, DB::Properties::kEstimatePendingCompactionBytes);
}

static void note_flushed(struct lp_kv *kv, uint64_t seq)
{
	const std::lock_guard<std::mutex> hold(kv->flush_lock);
	kv->flushed_seq = LP_MAX(kv->flushed_seq, seq);
	kv->flush_changed.notify_all();
}

void lpi_kv_set_error(struct lp_kv *kv, int err)
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

/* A failed compaction that RocksDB will try again by itself. */
static bool is_tried_again(rocksdb::BackgroundErrorReason reason, const Status &status)
{
	if (reason != rocksdb::BackgroundErrorReason::kCompaction || !status.IsIOError() ||
	    status.severity() >= Status::Severity::kHardError)
		return false;
	const int err = lpi_kvfs_errno(status);
	return err == -EIO || err == -ENOSPC;
}

/* What is tried again stops nothing, and a resume would wait until it no longer fails. But after a
 * hard error a soft one (no space) stops all writes, is not over when the compaction succeeds, and
 * is resumed without waiting (7.8.3: what a hard error stopped says no ever after, of whatever
 * error there is). Of what may be tried again at once RocksDB makes no error at all. */
static bool stops_writes(const struct lp_kv *kv, const Status &status)
{
	return kv->was_hard && status.severity() == Status::Severity::kSoftError;
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

uint64_t lpi_kv_stalled_ns(const struct lp_kv *kv)
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
		lpi_kv_refresh_gauges(kv_);
	}
	void OnFlushBegin(DB *, const rocksdb::FlushJobInfo &) override
	{
		lpi_kv_count_nothing();
	}
	void OnCompactionBegin(DB *, const rocksdb::CompactionJobInfo &) override
	{
		lpi_kv_count_nothing();
	}
	void OnFlushCompleted(DB *, const rocksdb::FlushJobInfo &info) override
	{
		const auto &table = info.table_properties;
		kv_->flushed_bytes += table.data_size + table.index_size + table.filter_size;
		kv_->flush_cnt++;
		lpi_kv_refresh_gauges(kv_);
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
		lpi_kv_refresh_gauges(kv_);
	}
	void OnBackgroundError(rocksdb::BackgroundErrorReason reason, Status *status) override
	{
		const int err = lpi_kvfs_errno(*status);
		const bool is_soft = is_tried_again(reason, *status);
		if (status->severity() >= Status::Severity::kHardError)
			kv_->was_hard = true;
		if (is_soft) {
			kv_->compact_error = err;
			if (events_ != nullptr && events_->compact_failed != nullptr)
				events_->compact_failed(events_, err);
			if (!stops_writes(kv_, *status))
				return;
		} else {
			kv_->resume_waits = true;
		}
		lpi_kv_set_error(kv_, err);
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

std::shared_ptr<rocksdb::EventListener> lpi_kv_listener(struct lp_kv *kv)
{
	return std::make_shared<Listener>(kv);
}

std::shared_ptr<rocksdb::Logger> lpi_kv_logger(struct lp_kv_events *events)
{
	return std::make_shared<Logger>(events);
}
