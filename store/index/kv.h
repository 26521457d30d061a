/* SPDX-License-Identifier: Apache-2.0 */
/* Ordered index of a shard: RocksDB without a log of its own, behind a C face.
 *
 * Threads: each call says [shard], the one thread that writes, [helper], which may block, or
 * [any]. Events come on RocksDB's threads.
 * Blocking: [shard] calls do no I/O and never wait for it. They return -EAGAIN instead. They take
 * RocksDB's mutex for moments only; no I/O is done under it.
 * Memory: a batch, iterator or value is the caller's until it is freed or released, and none may
 * outlive the kv (asserted by RocksDB).
 * Errors: -ENOENT not found (or the end). -EAGAIN see each call. -EUCLEAN corruption (checksums
 * of RocksDB's blocks included). -ENOSPC, -EIO from the file layer. -EROFS fenced. -ENOMEM.
 * Limits: memory is (write_buffer_cnt + 1) x write_buffer_bytes, cache_bytes, and the tables'
 * indexes and filters (about 2.5 bytes per key, see lp_kv_stats.index_bytes).
 *
 * Keys and values are opaque bytes, keys ordered bytewise. Written records are in memory until a
 * flush has made a table of them. Each flush installs a whole number of batches, in the order of
 * their writing, so the persisted part is always an exact prefix of what was written. A key that
 * every batch sets to its own sequence number (`S applied`) therefore tells where the log's
 * replay begins.
 *
 * Simulation: with sim_clock there are no threads. RocksDB's jobs run when lp_kv_sim_run_one() is
 * called, and [helper] calls that wait for jobs run them themselves. A memtable is full when
 * write_buffer_bytes of batches went into it, because RocksDB's own measure depends on random
 * numbers. The same calls then make the same file operations.
 */
#ifndef LP_STORE_INDEX_KV_H
#define LP_STORE_INDEX_KV_H

#include "base/clock.h"
#include "base/compiler.h"
#include "store/device/fetch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct lp_kvfs;
struct lp_kv;
struct lp_kv_batch;
struct lp_kv_iter;
struct lp_kv_snapshot;

/* Most keys of one lp_kv_multi_get(). */
#define LP_KV_MULTI_MAX 64u

struct lp_kv_bytes {
	const void *data;
	size_t len;
};

/* A value where RocksDB keeps it (memtable or block), pinned until lp_kv_value_release(). Not to be
 * moved or copied while it is held: it points into itself. */
struct lp_kv_value {
	struct lp_kv_bytes bytes;
	uint64_t pin[16]; /* RocksDB's */
};

/* --- Events ------------------------------------------------------------------------------------
 */

enum lp_kv_log_level { LP_KV_LOG_WARN, LP_KV_LOG_ERROR, LP_KV_LOG_FATAL };

/* Embedded by who listens; any may be NULL. Called on RocksDB's threads, or on that of the call
 * that caused the event, `stalled` with RocksDB's mutex released but in the middle of its work:
 * they must be short and must not call back, but for lp_kv_get_persisted() in flushed(). */
struct lp_kv_events {
	/* Memtables were made a table, and that is durable. */
	void (*flushed)(struct lp_kv_events *events);
	/* Background work has stopped. final: only reopening helps; else lp_kv_resume() may be
	 * called once the cause is gone. Writes succeed until the memtables are full, or fail with
	 * this error. */
	void (*failed)(struct lp_kv_events *events, int err, bool final, const char *reason);
	/* A compaction has failed, and is tried again by itself in a second. Nothing has stopped
	 * (unless failed() says so, too), but as long as it fails writes may come to be refused. */
	void (*compact_failed)(struct lp_kv_events *events, int err);
	/* Writes are refused (lp_kv_write() says -EAGAIN), or no longer. Two of these may overtake
	 * each other: who was refused tries again after stalled(false), after flushed(), and after
	 * some time. */
	void (*stalled)(struct lp_kv_events *events, bool stalled);
	/* A line for the daemon's log: RocksDB's warnings and worse. */
	void (*log)(struct lp_kv_events *events, enum lp_kv_log_level level, const char *line);
};

/* --- Opening -----------------------------------------------------------------------------------
 */

struct lp_kv_options {
	struct lp_kvfs *fs;               /* where the files are; with the manifest barrier */
	const struct lp_clock *sim_clock; /* NULL: RocksDB's threads and the system's clock */
	struct lp_kv_events *events;      /* NULL: nobody listens */
	uint64_t cache_bytes;             /* block cache; 0: 32 MiB */
	uint64_t write_buffer_bytes;      /* one memtable; 0: 64 MiB */
	uint32_t write_buffer_cnt;        /* 2 to 16 waiting for their flush; 0: 4 */
	uint64_t table_bytes;             /* a table file; 0: as one memtable */
	uint64_t level_bytes;             /* the first level below L0; 0: four memtables */
	uint64_t debt_bytes_max;          /* of compaction, before writes stall; 0: 16 GiB */
	uint32_t flush_threads;           /* 0: 1. Each open kv has its own */
	uint32_t compact_threads;         /* 0: 1 */
	bool create;                      /* an empty index if there is none; else -ENOENT */
	bool no_compaction; /* flushes only: nothing is rewritten, nor stalls writes */
};

/* [helper] */
int lp_kv_open(const struct lp_kv_options *options, struct lp_kv **ret_kv) LP_MUST_CHECK;
/* [helper] Does not flush: what is not persisted is in the log (lp_kv_flush_wait() before, for a
 * short start). Accepts NULL. The kv is gone also after an error. */
int lp_kv_close(struct lp_kv *kv) LP_MUST_CHECK;
/* [any, blocks] Every block of a table, by the checksums that the library keeps in it; no index
 * need be open. -EBADMSG: one is not right, or it is no table. */
int lp_kv_check_table(struct lp_kvfs *fs, const char *name) LP_MUST_CHECK;

/* What may be taken beyond the live files by one flush plus the largest compaction: the reserve of
 * rule L8. */
uint64_t lp_kv_reserve_bytes(const struct lp_kv_options *options);

/* --- Batches -----------------------------------------------------------------------------------
 */

/* Applied together or not at all. [any], one thread at a time. */
int lp_kv_batch_new(size_t reserve_bytes, struct lp_kv_batch **ret_batch) LP_MUST_CHECK;
void lp_kv_batch_free(struct lp_kv_batch *batch); /* accepts NULL */
int lp_kv_batch_put(struct lp_kv_batch *batch, struct lp_kv_bytes key,
		    struct lp_kv_bytes value) LP_MUST_CHECK;
int lp_kv_batch_delete(struct lp_kv_batch *batch, struct lp_kv_bytes key) LP_MUST_CHECK;
/* Empty again; keeps its memory. */
void lp_kv_batch_clear(struct lp_kv_batch *batch);
uint32_t lp_kv_batch_cnt(const struct lp_kv_batch *batch);
/* What goes into the log. Valid until the next call on the batch; writing changes the first 8
 * bytes. */
struct lp_kv_bytes lp_kv_batch_data(const struct lp_kv_batch *batch);
/* Replaces the contents by such bytes, after looking at every record: -EUCLEAN if they are not a
 * batch of puts and deletes. The batch is empty after an error. */
int lp_kv_batch_load(struct lp_kv_batch *batch, struct lp_kv_bytes data) LP_MUST_CHECK;

/* Two batches as the bytes of one: the records of the first, then those of the second. The pieces
 * point into it, and are valid until the next call on either batch. */
#define LP_KV_BATCH_HEAD_BYTES 12u
struct lp_kv_joined {
	uint8_t head[LP_KV_BATCH_HEAD_BYTES];
	struct lp_kv_bytes pieces[3];
};
void lp_kv_batch_join(const struct lp_kv_batch *first, const struct lp_kv_batch *second,
		      struct lp_kv_joined *ret_joined);

/* Looks at the records of a batch's bytes. A negative return ends the walk and is returned. */
struct lp_kv_batch_visitor {
	int (*put)(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		   struct lp_kv_bytes value);
	int (*del)(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key);
};
/* In order. visitor NULL only checks. -EUCLEAN as lp_kv_batch_load() (the visitor may have seen the
 * records before the wrong one). */
int lp_kv_walk(struct lp_kv_bytes data, struct lp_kv_batch_visitor *visitor) LP_MUST_CHECK;

/* --- Writing -----------------------------------------------------------------------------------
 */

/* [shard] 0: all of it is in the memtable. -EAGAIN: writes are stalled, nothing was written; try
 * again after stalled(false). Others: background work has failed (-ENOSPC, -EIO: after a resume
 * the same batch may be written again; rule L5: nothing later before it). -ENOMEM is final: a part
 * of it may be there, and nothing can be written or flushed any more, only read and closed. The
 * batch has its records in any case. */
int lp_kv_write(struct lp_kv *kv, struct lp_kv_batch *batch) LP_MUST_CHECK;

/* [any], two loads. Writes would be refused soon: let no more requests in (design 5.4). */
bool lp_kv_is_near_stall(const struct lp_kv *kv);
/* [any], one load. What compactions will have to rewrite, roughly. */
uint64_t lp_kv_debt_bytes(const struct lp_kv *kv);

/* --- Reading -----------------------------------------------------------------------------------
 */

/* [shard] From memtables, the block cache and what was fetched. -EAGAIN: it takes a read; if
 * fetch->block_cnt is not 0, of these: set fetch->data to them and ask again; else, and at any
 * time, ask lp_kv_get(). fetch: zeroed at first. */
int lp_kv_get_cached(struct lp_kv *kv, struct lp_kv_bytes key, struct lp_fetch *fetch,
		     struct lp_kv_value *ret_value) LP_MUST_CHECK;
/* [helper] */
int lp_kv_get(struct lp_kv *kv, struct lp_kv_bytes key,
	      struct lp_kv_value *ret_value) LP_MUST_CHECK;
/* [helper] Only what has been flushed: the value that a crash at this moment would leave. */
int lp_kv_get_persisted(struct lp_kv *kv, struct lp_kv_bytes key,
			struct lp_kv_value *ret_value) LP_MUST_CHECK;
/* [helper] cnt at most LP_KV_MULTI_MAX. ret_results[i] is 0 or an error, as of lp_kv_get(). */
void lp_kv_multi_get(struct lp_kv *kv, size_t cnt, const struct lp_kv_bytes *keys,
		     struct lp_kv_value *ret_values, int *ret_results);
/* After a successful get, once. */
void lp_kv_value_release(struct lp_kv_value *value);

/* The state as of the opening. Bounds with data NULL are open; they are copied. cached: [shard],
 * and positioning returns -EAGAIN when it would take a read (the iterator is then to be freed, and
 * the scan to be done by a helper). Else [helper]. One thread at a time. */
int lp_kv_iter_open(struct lp_kv *kv, struct lp_kv_bytes lower, struct lp_kv_bytes upper,
		    bool cached, struct lp_kv_iter **ret_iter) LP_MUST_CHECK;
void lp_kv_iter_close(struct lp_kv_iter *iter); /* accepts NULL */
/* 0: on a record. -ENOENT: there is none (left). Others: an error, not the end. */
int lp_kv_iter_seek(struct lp_kv_iter *iter, struct lp_kv_bytes key) LP_MUST_CHECK;
int lp_kv_iter_seek_first(struct lp_kv_iter *iter) LP_MUST_CHECK;
int lp_kv_iter_seek_last(struct lp_kv_iter *iter) LP_MUST_CHECK;
/* Only after one of these calls returned 0 (asserted). */
int lp_kv_iter_next(struct lp_kv_iter *iter) LP_MUST_CHECK;
int lp_kv_iter_prev(struct lp_kv_iter *iter) LP_MUST_CHECK;
/* Valid until the iterator moves. */
struct lp_kv_bytes lp_kv_iter_key(const struct lp_kv_iter *iter);
struct lp_kv_bytes lp_kv_iter_value(const struct lp_kv_iter *iter);

/* The state of this moment, kept for reading until it is freed. What is overwritten or deleted
 * meanwhile keeps its place on the device. -ENOMEM. [shard] */
int lp_kv_snapshot_new(struct lp_kv *kv, struct lp_kv_snapshot **ret_snapshot) LP_MUST_CHECK;
/* [any] Before the kv is closed. Accepts NULL. */
void lp_kv_snapshot_free(struct lp_kv *kv, struct lp_kv_snapshot *snapshot);
/* [helper] As lp_kv_get() and lp_kv_iter_open(), of the snapshot; NULL: of now. For who reads all
 * there is: what they read from the device is not cached. */
int lp_kv_get_at(struct lp_kv *kv, const struct lp_kv_snapshot *snapshot, struct lp_kv_bytes key,
		 struct lp_kv_value *ret_value) LP_MUST_CHECK;
int lp_kv_iter_open_at(struct lp_kv *kv, const struct lp_kv_snapshot *snapshot,
		       struct lp_kv_bytes lower, struct lp_kv_bytes upper,
		       struct lp_kv_iter **ret_iter) LP_MUST_CHECK;

/* --- Maintenance -------------------------------------------------------------------------------
 */

/* [helper] Asks for a flush of what is in memory; does not wait for it. -EAGAIN while writes are
 * stalled (flushes are under way then). */
int lp_kv_flush(struct lp_kv *kv) LP_MUST_CHECK;
/* Some of what was in memory is being flushed, or about to be: asked for or not. */
bool lp_kv_is_flushing(const struct lp_kv *kv);
/* [helper] The same and waits until it is installed, or has failed. */
int lp_kv_flush_wait(struct lp_kv *kv) LP_MUST_CHECK;
/* [helper] After failed(final = false), once the cause is gone: flushes what is in memory, then
 * takes up background work again. */
int lp_kv_resume(struct lp_kv *kv) LP_MUST_CHECK;
/* [any] 0, or why background work has stopped. */
int lp_kv_error(const struct lp_kv *kv);
/* [any] It has, or a resume has not come to its end. A write that fails meanwhile may succeed
 * later. */
bool lp_kv_is_stopped(const struct lp_kv *kv);
/* [any] 0, or why the last compaction failed, which is tried again by itself. */
int lp_kv_compact_error(const struct lp_kv *kv);
/* [helper] Flushes, then compacts. Bounds with data NULL are open. -EAGAIN: simulated, and called
 * inside of a job (whose manifest barrier turns the reactor). */
int lp_kv_compact(struct lp_kv *kv, struct lp_kv_bytes lower,
		  struct lp_kv_bytes upper) LP_MUST_CHECK;
/* [helper] Bytes of [lower, upper) in tables and memtables, roughly. */
int lp_kv_size_of(struct lp_kv *kv, struct lp_kv_bytes lower, struct lp_kv_bytes upper,
		  uint64_t *ret_bytes) LP_MUST_CHECK;
/* [shard] What memtables that are gone have left for the next ones is freed. How much that was. */
uint64_t lp_kv_drop_kept(struct lp_kv *kv);
/* [any] Evicts when it shrinks. */
void lp_kv_set_cache_bytes(struct lp_kv *kv, uint64_t bytes);

struct lp_kv_stats {
	uint64_t memtable_bytes; /* active and waiting, and what is kept for the next ones */
	uint64_t waiting_cnt;    /* memtables waiting for their flush */
	uint64_t flushing;       /* flushes running */
	uint64_t compacting;
	uint64_t l0_files;
	uint64_t debt_bytes;  /* of compaction */
	uint64_t table_bytes; /* all live tables */
	uint64_t index_bytes; /* indexes and filters in memory, outside the cache */
	uint64_t cache_bytes;
	uint64_t cache_pinned_bytes;
	uint64_t records; /* estimate */
	/* Since opening: */
	uint64_t written_bytes; /* of batches */
	uint64_t flushed_bytes;
	uint64_t compacted_read_bytes;
	uint64_t compacted_bytes;
	uint64_t flush_cnt;
	uint64_t compact_cnt;
	uint64_t stall_cnt;         /* how often writes began to be refused */
	uint64_t stop_cnt;          /* how often RocksDB wanted no write at all, not only fewer */
	uint64_t stalled_ns;        /* for how long they were refused */
	uint64_t refused_cnt;       /* writes that got -EAGAIN */
	uint64_t cached_hit_cnt;    /* lp_kv_get_cached() that knew the answer */
	uint64_t cached_missed_cnt; /* that did not */
};
/* [any] Takes RocksDB's mutex some times: for reports, not for each operation. */
void lp_kv_read_stats(struct lp_kv *kv, struct lp_kv_stats *ret_stats);

/* [shard] Simulated kv only: runs one of RocksDB's jobs. False: there is none. */
bool lp_kv_sim_run_one(struct lp_kv *kv);

#ifdef __cplusplus
}
#endif

#endif
