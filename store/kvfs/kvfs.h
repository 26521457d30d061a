/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB's file system and environment, forwarded to a table of C functions.
 *
 * Threads: RocksDB's threads and callers of RocksDB call the operations, at the same time. Those
 * on one file are called by one thread at a time, except pread.
 * Blocking: operations may block, because the shard thread never comes there. It calls RocksDB
 * for memtable inserts, reads of the block cache, and reads with a fetch, which come to
 * pread_fetched only. An operation must not wait for a thread that may be inside RocksDB (rule
 * S1).
 * Memory: the file system embeds struct lp_kvfs, and each open file struct lp_kvfs_file.
 * Errors: negative errno. How RocksDB takes them:
 *   -ENOENT             no such file
 *   -ENOSPC             full: writes stop at once; resume when there is room
 *   -EBADMSG, -EUCLEAN  corruption: final, but for reads, which only fail
 *   -EROFS              fenced: final, until RocksDB is opened again (the log has failed, rule L4)
 *   others              an I/O error: writes go on until the memtables are full; resume may help
 *
 * RocksDB sees one directory, LP_KVFS_DIR, of flat, append-only files. Its calls arrive at a
 * struct lp_kvfs: blockfs for a device, kvfs_mem for memory. kvfs.cc only splits the path,
 * forwards, and maps the error.
 *
 * The environment takes RocksDB's threads and clock. The ordinary one uses RocksDB's own threads,
 * which all databases of the process share. The simulated one has none: RocksDB's jobs are
 * queued, in order, until lp_kvfs_sim_run_one() runs them on the caller's thread.
 *
 * RULE for the driver of a simulated environment: a call into RocksDB that waits for a job would
 * wait for ever, because nobody runs the job. Such calls (a flush with waiting, DB::Resume, a
 * manual compaction) go through lp_kvfs_sim_call(), which runs the jobs meanwhile. Before
 * DB::Close the queue is run empty. kv.h does all of this by itself. A write never waits
 * (no_slowdown).
 */
#ifndef LP_STORE_KVFS_KVFS_H
#define LP_STORE_KVFS_KVFS_H

#include "base/clock.h"
#include "base/compiler.h"
#include "store/device/fetch.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LP_KVFS_DIR      "/kv"
#define LP_KVFS_NAME_MAX 63u /* bytes of a file's name: RocksDB's are shorter */

struct lp_kvfs_ops;

/* Embedded by the file system. */
struct lp_kvfs {
	const struct lp_kvfs_ops *ops;
};

/* Embedded by each of its open files. */
struct lp_kvfs_file {
	struct lp_kvfs *fs;
};

struct lp_kvfs_stat {
	uint64_t size_bytes; /* as a reader sees it */
	int64_t mtime_s;     /* since 1970 */
};

/* Returns 0 to go on; anything else ends the listing and is returned. */
typedef int lp_kvfs_list_fn(const char *name, void *arg);

struct lp_kvfs_ops {
	/* A new, empty file to append to; one of that name is replaced. */
	int (*create)(struct lp_kvfs *fs, const char *name, struct lp_kvfs_file **ret_file);
	int (*append)(struct lp_kvfs_file *file, const void *data, size_t len);
	/* All that was appended is durable, and published, when this returns 0. */
	int (*sync)(struct lp_kvfs_file *file);
	/* Of create or open. The file is gone also after an error. */
	int (*close)(struct lp_kvfs_file *file);

	int (*open)(struct lp_kvfs *fs, const char *name, struct lp_kvfs_file **ret_file);
	/* Bytes read: fewer than len only at the end of the file. */
	int64_t (*pread)(struct lp_kvfs_file *file, void *buf, size_t len, uint64_t offset);
	/* The same without waiting for a device: all of it, or -EAGAIN (store/device/fetch.h).
	 * NULL: there is no such way. */
	int (*pread_fetched)(struct lp_kvfs_file *file, void *buf, size_t len, uint64_t offset,
			     struct lp_fetch *fetch);

	/* Open files stay readable. Durable when they return 0; rename replaces atomically. */
	int (*remove)(struct lp_kvfs *fs, const char *name);
	int (*rename)(struct lp_kvfs *fs, const char *from, const char *to);
	int (*list)(struct lp_kvfs *fs, lp_kvfs_list_fn *each, void *arg);
	int (*stat)(struct lp_kvfs *fs, const char *name, struct lp_kvfs_stat *ret_stat);

	/* Before each append to a MANIFEST: returns when the log is durable up to what was applied
	 * when it was called (rule L4, store I3), or with an error, which fails the append. NULL:
	 * there is no log, or the file system waits by itself, as blockfs does
	 * (lp_blockfs_set_manifest_barrier(): it must also wait before it publishes). */
	int (*manifest_barrier)(struct lp_kvfs *fs, const char *name);
	/* What is left for files. NULL: not known. */
	int (*free_space)(struct lp_kvfs *fs, uint64_t *ret_bytes);
};

/* What a name stands for. */
enum lp_kvfs_kind {
	LP_KVFS_TABLE,    /* 000123.sst */
	LP_KVFS_MANIFEST, /* MANIFEST-000001 */
	LP_KVFS_WAL,      /* 000004.log: RocksDB makes one, but nothing is ever written to it */
	LP_KVFS_OTHER     /* CURRENT, IDENTITY, 000006.dbtmp; of former versions OPTIONS-000005 */
};
#define LP_KVFS_KIND_CNT (LP_KVFS_OTHER + 1)

enum lp_kvfs_kind lp_kvfs_kind_of(const char *name);

/* --- The environment ---------------------------------------------------------------------------
 */

struct lp_kvfs_env;

/* fs stays the caller's and valid. sim_clock NULL: RocksDB's threads and the system's clock; else
 * a simulated environment with this clock. -ENOMEM. */
int lp_kvfs_env_new(struct lp_kvfs *fs, const struct lp_clock *sim_clock,
		    struct lp_kvfs_env **ret_env) LP_MUST_CHECK;
/* Accepts NULL. No database may use it any longer, no job may be queued (asserted). */
void lp_kvfs_env_free(struct lp_kvfs_env *env);

/* --- Simulated environments only ---------------------------------------------------------------
 */

/* Runs the oldest job of the most urgent kind (flushes before compactions). False: there is none.
 */
bool lp_kvfs_sim_run_one(struct lp_kvfs_env *env);
/* The caller is inside of a job. What waits for jobs must not be called there. */
bool lp_kvfs_sim_is_running(const struct lp_kvfs_env *env);
/* Calls fn(arg), which may wait for jobs, on a thread of its own, and runs jobs on this one until
 * it has returned; with flushes_only compactions stay queued. Reproducible if the queue was empty
 * before, and fn touches no file while a job may run. */
int lp_kvfs_sim_call(struct lp_kvfs_env *env, bool flushes_only, int (*fn)(void *arg),
		     void *arg) LP_MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
