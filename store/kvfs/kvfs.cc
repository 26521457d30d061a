/* SPDX-License-Identifier: Apache-2.0 */
/* A file is a name after LP_KVFS_DIR "/"; everything else (the directory itself, "archive" below
 * it) is answered here without asking.
 *
 * Direct I/O is denied even when the file layer uses it: with it RocksDB would pad its writes and
 * rewrite the last page (PositionedAppend), where all we want are appends. The file layer bounces.
 *
 * An I/O error is marked retryable, which for RocksDB means: not fatal, DB::Resume may be tried.
 * ENOSPC is told apart by its subcode. Automatic recovery is off (kv.cc), so the marks only decide
 * what a resume by hand is allowed to do.
 *
 * The simulated environment keeps the jobs in three queues, as RocksDB's pools would. Everything
 * that could differ from run to run is taken away: threads, the clock, sleeping. */
#include "store/kvfs/kvfs.h"

#include <errno.h>
#include <rocksdb/env.h>
#include <rocksdb/file_system.h>
#include <rocksdb/system_clock.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/error.h"
#include "store/kvfs/kvfs_cxx.h"

using rocksdb::Env;
using rocksdb::IODebugContext;
using rocksdb::IOOptions;
using rocksdb::IOStatus;
using rocksdb::Slice;
using rocksdb::Status;

/* --- Errors ------------------------------------------------------------------------------------
 */

/* Of this thread; for who gets a status that does not say. */
static thread_local int last_error;

int lpi_kvfs_take_error()
{
	const int err = last_error;
	last_error = 0;
	return err;
}

static IOStatus io_status(int err, const std::string &name)
{
	if (err >= 0)
		return IOStatus::OK();
	IOStatus status;
	last_error = err;
	switch (-err) {
	case ENOENT:
		return IOStatus::PathNotFound(name);
	case ENOSPC:
		return IOStatus::NoSpace(name);
	case EROFS:
		return IOStatus::IOFenced(name);
	case EBADMSG:
	case EUCLEAN:
		return IOStatus::Corruption(name, lp_strerror(err));
	case ENOMEM:
		status = IOStatus::IOError(Status::SubCode::kMemoryLimit);
		status.SetRetryable(true);
		return status;
	default:
		status = IOStatus::IOError(name, lp_strerror(err));
		status.SetRetryable(true);
		return status;
	}
}

static int corruption(const Status &status)
{
	return LP_CORRUPT(LP_OFFSET_NONE, "RocksDB: %s", status.ToString().c_str());
}

static int io_error_errno(const Status &status)
{
	switch (status.subcode()) {
	case Status::SubCode::kNoSpace:
	case Status::SubCode::kSpaceLimit:
		return -ENOSPC;
	case Status::SubCode::kPathNotFound:
		/* A table that the index names is missing. Never -ENOENT, which is a key's. */
		return corruption(status);
	case Status::SubCode::kIOFenced:
		return -EROFS;
	case Status::SubCode::kMemoryLimit:
		return -ENOMEM;
	default:
		return -EIO;
	}
}

int lpi_kvfs_errno(const Status &status)
{
	switch (status.code()) {
	case Status::Code::kOk:
		return 0;
	case Status::Code::kNotFound:
		return -ENOENT;
	case Status::Code::kCorruption:
		return corruption(status);
	case Status::Code::kIncomplete:
	case Status::Code::kTryAgain:
		return -EAGAIN;
	case Status::Code::kBusy:
		return -EBUSY;
	case Status::Code::kTimedOut:
		return -ETIMEDOUT;
	case Status::Code::kAborted:
		return status.IsMemoryLimit() ? -ENOMEM : -ECANCELED;
	case Status::Code::kShutdownInProgress:
		return -ESHUTDOWN;
	case Status::Code::kNotSupported:
		return -EOPNOTSUPP;
	case Status::Code::kInvalidArgument:
		return -EINVAL;
	case Status::Code::kIOError:
		return io_error_errno(status);
	default:
		return -EIO;
	}
}

/* --- Names -------------------------------------------------------------------------------------
 */

static const char dir_slash[] = LP_KVFS_DIR "/";

static bool is_dir(const std::string &path)
{
	return path == LP_KVFS_DIR || path == dir_slash;
}

/* NULL if the path cannot be one of our files. */
static const char *name_in(const std::string &path)
{
	const size_t prefix_len = sizeof(dir_slash) - 1;
	if (path.compare(0, prefix_len, dir_slash) != 0)
		return nullptr;
	/* RocksDB joins a directory that ends with a slash with another. */
	const size_t begin = path.find_first_not_of('/', prefix_len);
	if (begin == std::string::npos || path.find('/', begin) != std::string::npos)
		return nullptr;
	return path.size() - begin <= LP_KVFS_NAME_MAX ? path.c_str() + begin : nullptr;
}

static bool ends_with(const char *name, const char *suffix)
{
	const size_t len = std::strlen(name);
	const size_t suffix_len = std::strlen(suffix);
	return len >= suffix_len && std::strcmp(name + len - suffix_len, suffix) == 0;
}

extern "C" enum lp_kvfs_kind lp_kvfs_kind_of(const char *name)
{
	if (std::strncmp(name, "MANIFEST-", 9) == 0)
		return LP_KVFS_MANIFEST;
	if (ends_with(name, ".sst"))
		return LP_KVFS_TABLE;
	return ends_with(name, ".log") ? LP_KVFS_WAL : LP_KVFS_OTHER;
}

/* RocksDB would write down all its options at each opening, read them back, parse and compare them:
 * half of what opening an index takes of the CPU, and several writes and flushes. Nobody reads
 * them: kv.cc says what they are. It goes on without this file when it cannot make it. */
static bool is_of_options(const char *name)
{
	return std::strncmp(name, "OPTIONS-", 8) == 0;
}

/* --- Files -------------------------------------------------------------------------------------
 */

/* Of this thread: a call into RocksDB is under way that must not wait for a device. */
static thread_local struct lp_fetch *fetching;

lpi_kvfs_fetching::lpi_kvfs_fetching(struct lp_fetch *fetch)
{
	LP_ASSERT(fetching == nullptr);
	fetch->was_put_off = false;
	if (fetch->data == nullptr)
		fetch->block_cnt = 0;
	fetching = fetch;
}

lpi_kvfs_fetching::~lpi_kvfs_fetching()
{
	fetching = nullptr;
}

/* An open file of the C side; closed with the object. */
class Handle
{
      public:
	Handle(struct lp_kvfs_file *file, std::string name) : file_(file), name_(std::move(name))
	{
	}
	Handle(const Handle &) = delete;
	Handle &operator=(const Handle &) = delete;
	~Handle()
	{
		(void)close(); /* RocksDB closes what it wrote; for a reader nothing depends on it.
				*/
	}
	IOStatus pread(uint64_t offset, size_t len, Slice *result, char *scratch) const
	{
		const int64_t got = file_->fs->ops->pread(file_, scratch, len, offset);
		if (got < 0)
			return status(static_cast<int>(got));
		LP_ASSERT(static_cast<uint64_t>(got) <= len);
		*result = Slice(scratch, static_cast<size_t>(got));
		return IOStatus::OK();
	}
	IOStatus pread_fetched(uint64_t offset, size_t len, Slice *result, char *scratch) const
	{
		const auto call = file_->fs->ops->pread_fetched;
		if (call == nullptr) {
			fetching->was_put_off = true;
			return IOStatus::Busy();
		}
		const int err = call(file_, scratch, len, offset, fetching);
		if (err < 0)
			return err == -EAGAIN ? IOStatus::Busy() : status(err);
		*result = Slice(scratch, len);
		return IOStatus::OK();
	}
	int append(const Slice &data)
	{
		return file_->fs->ops->append(file_, data.data(), data.size());
	}
	int sync()
	{
		return file_->fs->ops->sync(file_);
	}
	int close()
	{
		struct lp_kvfs_file *file = std::exchange(file_, nullptr);
		return file == nullptr ? 0 : file->fs->ops->close(file);
	}
	IOStatus status(int err) const
	{
		return io_status(err, name_);
	}
	const char *name() const
	{
		return name_.c_str();
	}

      private:
	struct lp_kvfs_file *file_;
	const std::string name_;
};

class SequentialFile : public rocksdb::FSSequentialFile
{
      public:
	SequentialFile(struct lp_kvfs_file *file, const std::string &name) : handle_(file, name)
	{
	}
	IOStatus Read(size_t n, const IOOptions &, Slice *result, char *scratch,
		      IODebugContext *) override
	{
		IOStatus status = handle_.pread(offset_, n, result, scratch);
		if (status.ok())
			offset_ += result->size();
		return status;
	}
	IOStatus Skip(uint64_t n) override
	{
		offset_ += n;
		return IOStatus::OK();
	}

      private:
	Handle handle_;
	uint64_t offset_ = 0;
};

class RandomFile : public rocksdb::FSRandomAccessFile
{
      public:
	RandomFile(struct lp_kvfs_file *file, const std::string &name) : handle_(file, name)
	{
	}
	IOStatus Read(uint64_t offset, size_t n, const IOOptions &, Slice *result, char *scratch,
		      IODebugContext *) const override
	{
		return fetching == nullptr ? handle_.pread(offset, n, result, scratch)
					   : handle_.pread_fetched(offset, n, result, scratch);
	}

      private:
	const Handle handle_;
};

class WritableFile : public rocksdb::FSWritableFile
{
      public:
	WritableFile(struct lp_kvfs *fs, struct lp_kvfs_file *file, const std::string &name)
	    : fs_(fs), handle_(file, name), kind_(lp_kvfs_kind_of(name.c_str()))
	{
	}
	using rocksdb::FSWritableFile::Append;
	IOStatus Append(const Slice &data, const IOOptions &, IODebugContext *) override
	{
		int err = 0;
		if (kind_ == LP_KVFS_MANIFEST && fs_->ops->manifest_barrier != nullptr)
			err = fs_->ops->manifest_barrier(fs_, handle_.name());
		if (err == 0)
			err = handle_.append(data);
		if (err == 0)
			size_ += data.size();
		return handle_.status(err);
	}
	/* Appends are not held back here. */
	IOStatus Flush(const IOOptions &, IODebugContext *) override
	{
		return IOStatus::OK();
	}
	IOStatus Sync(const IOOptions &, IODebugContext *) override
	{
		return handle_.status(handle_.sync());
	}
	IOStatus Close(const IOOptions &, IODebugContext *) override
	{
		return handle_.status(handle_.close());
	}
	uint64_t GetFileSize(const IOOptions &, IODebugContext *) override
	{
		return size_;
	}

      private:
	struct lp_kvfs *fs_;
	Handle handle_;
	const enum lp_kvfs_kind kind_;
	uint64_t size_ = 0;
};

/* Names are durable when create, rename and remove return. */
class Directory : public rocksdb::FSDirectory
{
	IOStatus Fsync(const IOOptions &, IODebugContext *) override
	{
		return IOStatus::OK();
	}
	IOStatus Close(const IOOptions &, IODebugContext *) override
	{
		return IOStatus::OK();
	}
};

/* Nobody else can open our device: that lock is the label's. */
class Lock : public rocksdb::FileLock
{
};

/* --- The file system ---------------------------------------------------------------------------
 */

static int add_name(const char *name, void *arg)
{
	return lpi_guarded([=] {
		static_cast<std::vector<std::string> *>(arg)->emplace_back(name);
		return 0;
	});
}

class FileSystem : public rocksdb::FileSystem
{
      public:
	explicit FileSystem(struct lp_kvfs *fs) : fs_(fs)
	{
	}
	const char *Name() const override
	{
		return "lapis";
	}

	IOStatus NewSequentialFile(const std::string &path, const rocksdb::FileOptions &,
				   std::unique_ptr<rocksdb::FSSequentialFile> *result,
				   IODebugContext *) override
	{
		return open<SequentialFile>(path, result);
	}
	IOStatus NewRandomAccessFile(const std::string &path, const rocksdb::FileOptions &,
				     std::unique_ptr<rocksdb::FSRandomAccessFile> *result,
				     IODebugContext *) override
	{
		return open<RandomFile>(path, result);
	}
	IOStatus NewWritableFile(const std::string &path, const rocksdb::FileOptions &,
				 std::unique_ptr<rocksdb::FSWritableFile> *result,
				 IODebugContext *) override
	{
		const char *name = name_in(path);
		if (name == nullptr)
			return IOStatus::PathNotFound(path);
		if (is_of_options(name))
			return IOStatus::NotSupported(path);
		struct lp_kvfs_file *file = nullptr;
		const int err = fs_->ops->create(fs_, name, &file);
		if (err < 0)
			return io_status(err, path);
		LP_ASSERT(file != nullptr && file->fs == fs_);
		result->reset(new WritableFile(fs_, file, name));
		return IOStatus::OK();
	}
	IOStatus NewDirectory(const std::string &, const IOOptions &,
			      std::unique_ptr<rocksdb::FSDirectory> *result,
			      IODebugContext *) override
	{
		result->reset(new Directory);
		return IOStatus::OK();
	}
	IOStatus FileExists(const std::string &path, const IOOptions &, IODebugContext *) override
	{
		struct lp_kvfs_stat stat;
		if (is_dir(path))
			return IOStatus::OK();
		const int err = this->stat(path, &stat);
		return err == -ENOENT ? IOStatus::NotFound(path) : io_status(err, path);
	}
	IOStatus GetChildren(const std::string &dir, const IOOptions &,
			     std::vector<std::string> *result, IODebugContext *) override
	{
		result->clear();
		if (!is_dir(dir))
			return IOStatus::NotFound(dir);
		return io_status(fs_->ops->list(fs_, add_name, result), dir);
	}
	IOStatus DeleteFile(const std::string &path, const IOOptions &, IODebugContext *) override
	{
		const char *name = name_in(path);
		return io_status(name == nullptr ? -ENOENT : fs_->ops->remove(fs_, name), path);
	}
	IOStatus CreateDir(const std::string &, const IOOptions &, IODebugContext *) override
	{
		return IOStatus::OK();
	}
	IOStatus CreateDirIfMissing(const std::string &, const IOOptions &,
				    IODebugContext *) override
	{
		return IOStatus::OK();
	}
	IOStatus DeleteDir(const std::string &, const IOOptions &, IODebugContext *) override
	{
		return IOStatus::OK();
	}
	IOStatus GetFileSize(const std::string &path, const IOOptions &, uint64_t *size,
			     IODebugContext *) override
	{
		struct lp_kvfs_stat stat = {};
		const int err = this->stat(path, &stat);
		*size = stat.size_bytes;
		return io_status(err, path);
	}
	IOStatus GetFileModificationTime(const std::string &path, const IOOptions &, uint64_t *time,
					 IODebugContext *) override
	{
		struct lp_kvfs_stat stat = {};
		const int err = this->stat(path, &stat);
		*time = stat.mtime_s < 0 ? 0 : static_cast<uint64_t>(stat.mtime_s);
		return io_status(err, path);
	}
	IOStatus RenameFile(const std::string &from, const std::string &to, const IOOptions &,
			    IODebugContext *) override
	{
		const char *old_name = name_in(from);
		const char *new_name = name_in(to);
		if (old_name == nullptr || new_name == nullptr)
			return IOStatus::PathNotFound(from);
		return io_status(fs_->ops->rename(fs_, old_name, new_name), from);
	}
	IOStatus LockFile(const std::string &, const IOOptions &, rocksdb::FileLock **lock,
			  IODebugContext *) override
	{
		*lock = new Lock;
		return IOStatus::OK();
	}
	IOStatus UnlockFile(rocksdb::FileLock *lock, const IOOptions &, IODebugContext *) override
	{
		delete lock;
		return IOStatus::OK();
	}
	IOStatus GetTestDirectory(const IOOptions &, std::string *path, IODebugContext *) override
	{
		*path = LP_KVFS_DIR;
		return IOStatus::OK();
	}
	IOStatus GetAbsolutePath(const std::string &path, const IOOptions &, std::string *result,
				 IODebugContext *) override
	{
		*result = path;
		return IOStatus::OK();
	}
	IOStatus IsDirectory(const std::string &path, const IOOptions &, bool *result,
			     IODebugContext *) override
	{
		*result = is_dir(path);
		return IOStatus::OK();
	}
	IOStatus GetFreeSpace(const std::string &path, const IOOptions &, uint64_t *bytes,
			      IODebugContext *) override
	{
		if (fs_->ops->free_space == nullptr)
			return IOStatus::NotSupported("free space is not known");
		return io_status(fs_->ops->free_space(fs_, bytes), path);
	}

      private:
	template <class File, class Base>
	IOStatus open(const std::string &path, std::unique_ptr<Base> *result)
	{
		const char *name = name_in(path);
		struct lp_kvfs_file *file = nullptr;
		const int err = name == nullptr ? -ENOENT : fs_->ops->open(fs_, name, &file);
		if (err < 0)
			return io_status(err, path);
		LP_ASSERT(file != nullptr && file->fs == fs_);
		result->reset(new File(file, name));
		return IOStatus::OK();
	}
	int stat(const std::string &path, struct lp_kvfs_stat *ret_stat)
	{
		const char *name = name_in(path);
		return name == nullptr ? -ENOENT : fs_->ops->stat(fs_, name, ret_stat);
	}

	struct lp_kvfs *const fs_;
};

/* --- The simulated environment -----------------------------------------------------------------
 */

class SimClock : public rocksdb::SystemClock
{
      public:
	explicit SimClock(const struct lp_clock *clock) : clock_(clock)
	{
	}
	const char *Name() const override
	{
		return "lapis-sim";
	}
	uint64_t NowMicros() override
	{
		return static_cast<uint64_t>(lp_clock_wall_ns(clock_)) / LP_NS_PER_US;
	}
	uint64_t NowNanos() override
	{
		return lp_clock_mono_ns(clock_);
	}
	/* RocksDB sleeps to slow itself down (for a second after a failed compaction). Simulated
	 * time is moved by whoever owns it, so here it takes no time at all. */
	void SleepForMicroseconds(int) override
	{
	}
	Status GetCurrentTime(int64_t *unix_time) override
	{
		*unix_time = lp_clock_wall_ns(clock_) / static_cast<int64_t>(LP_NS_PER_S);
		return Status::OK();
	}
	std::string TimeToString(uint64_t time) override
	{
		return std::to_string(time);
	}

      private:
	const struct lp_clock *const clock_;
};

class SimEnv : public rocksdb::EnvWrapper
{
      public:
	SimEnv(const std::shared_ptr<rocksdb::FileSystem> &fs, const struct lp_clock *clock)
	    : EnvWrapper(rocksdb::NewCompositeEnv(fs))
	{
		file_system_ = fs;
		system_clock_ = std::make_shared<SimClock>(clock);
	}
	~SimEnv() override
	{
		LP_ASSERT(queued() == 0);
	}
	const char *Name() const override
	{
		return "lapis-sim";
	}

	void Schedule(void (*fn)(void *arg), void *arg, Priority pri, void *tag,
		      void (*unscheduled)(void *arg)) override
	{
		const std::lock_guard<std::mutex> hold(lock_);
		queues_[pri].push_back({fn, arg, tag, unscheduled});
		changed_.notify_all();
	}
	int UnSchedule(void *tag, Priority pri) override
	{
		std::vector<Job> taken;
		{
			const std::lock_guard<std::mutex> hold(lock_);
			auto &queue = queues_[pri];
			for (size_t i = queue.size(); i-- > 0;) {
				if (queue[i].tag != tag)
					continue;
				taken.push_back(queue[i]);
				queue.erase(queue.begin() + static_cast<std::ptrdiff_t>(i));
			}
		}
		std::reverse(taken.begin(), taken.end());
		for (const Job &job : taken)
			if (job.unscheduled != nullptr)
				job.unscheduled(job.arg);
		return static_cast<int>(taken.size());
	}
	void StartThread(void (*fn)(void *arg), void *arg) override
	{
		Schedule(fn, arg, USER, nullptr, nullptr);
	}
	void WaitForJoin() override
	{
		while (run_one())
			continue;
	}
	unsigned GetThreadPoolQueueLen(Priority pri) const override
	{
		const std::lock_guard<std::mutex> hold(lock_);
		return static_cast<unsigned>(queues_[pri].size());
	}
	/* One of each kind, as far as RocksDB can see: flushes never go among the compactions. */
	void SetBackgroundThreads(int, Priority) override
	{
	}
	int GetBackgroundThreads(Priority) override
	{
		return 1;
	}
	void IncBackgroundThreadsIfNeeded(int, Priority) override
	{
	}
	int ReserveThreads(int, Priority) override
	{
		return 0;
	}
	int ReleaseThreads(int, Priority) override
	{
		return 0;
	}
	uint64_t NowMicros() override
	{
		return system_clock_->NowMicros();
	}
	uint64_t NowNanos() override
	{
		return system_clock_->NowNanos();
	}
	uint64_t NowCPUNanos() override
	{
		return 0;
	}
	void SleepForMicroseconds(int) override
	{
	}
	Status GetCurrentTime(int64_t *unix_time) override
	{
		return system_clock_->GetCurrentTime(unix_time);
	}

	bool is_running() const
	{
		return running_cnt_ > 0;
	}
	bool run_one()
	{
		Job job;
		{
			const std::lock_guard<std::mutex> hold(lock_);
			if (!pop(false, &job))
				return false;
		}
		running_cnt_++;
		job.fn(job.arg);
		running_cnt_--;
		return true;
	}
	size_t queued() const
	{
		const std::lock_guard<std::mutex> hold(lock_);
		size_t cnt = 0;
		for (const auto &queue : queues_)
			cnt += queue.size();
		return cnt;
	}
	int call(bool flushes_only, int (*fn)(void *arg), void *arg)
	{
		int result = 0;
		bool ended = false;
		std::thread caller([&] {
			result = fn(arg);
			const std::lock_guard<std::mutex> hold(lock_);
			ended = true;
			changed_.notify_all();
		});
		std::unique_lock<std::mutex> hold(lock_);
		while (!ended) {
			Job job;
			if (!pop(flushes_only, &job)) {
				changed_.wait(hold);
				continue;
			}
			hold.unlock();
			running_cnt_++;
			job.fn(job.arg);
			running_cnt_--;
			hold.lock();
		}
		hold.unlock();
		caller.join();
		return result;
	}

      private:
	struct Job {
		void (*fn)(void *arg);
		void *arg;
		void *tag;
		void (*unscheduled)(void *arg);
	};

	/* Under the lock. */
	bool pop(bool flushes_only, Job *ret_job)
	{
		static const Priority order[] = {HIGH, USER, LOW, BOTTOM};
		for (const Priority pri : order) {
			if (queues_[pri].empty() || (flushes_only && pri != HIGH))
				continue;
			*ret_job = queues_[pri].front();
			queues_[pri].pop_front();
			return true;
		}
		return false;
	}

	mutable std::mutex lock_;
	std::condition_variable changed_; /* a job was queued, or the call has ended */
	std::deque<Job> queues_[TOTAL];
	uint32_t running_cnt_ = 0; /* jobs; by the thread that runs them */
};

/* --- The face ----------------------------------------------------------------------------------
 */

struct lp_kvfs_env {
	std::unique_ptr<Env> rep;
	SimEnv *sim; /* rep, if it is simulated */
};

Env *lpi_kvfs_env_rep(struct lp_kvfs_env *env)
{
	return env->rep.get();
}

extern "C" int lp_kvfs_env_new(struct lp_kvfs *fs, const struct lp_clock *sim_clock,
			       struct lp_kvfs_env **ret_env)
{
	return lpi_guarded([=] {
		auto env = std::make_unique<lp_kvfs_env>();
		auto file_system = std::make_shared<FileSystem>(fs);
		if (sim_clock != nullptr) {
			env->sim = new SimEnv(file_system, sim_clock);
			env->rep.reset(env->sim);
		} else {
			env->rep = rocksdb::NewCompositeEnv(file_system);
		}
		*ret_env = env.release();
		return 0;
	});
}

extern "C" void lp_kvfs_env_free(struct lp_kvfs_env *env)
{
	delete env;
}

extern "C" bool lp_kvfs_sim_run_one(struct lp_kvfs_env *env)
{
	LP_ASSERT(env->sim != nullptr);
	return env->sim->run_one();
}

extern "C" bool lp_kvfs_sim_is_running(const struct lp_kvfs_env *env)
{
	LP_ASSERT(env->sim != nullptr);
	return env->sim->is_running();
}

extern "C" int lp_kvfs_sim_call(struct lp_kvfs_env *env, bool flushes_only, int (*fn)(void *arg),
				void *arg)
{
	LP_ASSERT(env->sim != nullptr);
	return lpi_guarded([=] { return env->sim->call(flushes_only, fn, arg); });
}
