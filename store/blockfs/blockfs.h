/* SPDX-License-Identifier: Apache-2.0 */
/* File system below RocksDB: flat, append-only files of one shard (rules L4, L8, S1).
 *
 * Threads: any, at any time, but one per handle. A handle is a writer or a reader.
 * Blocking: all calls but lp_blockfs_pread_fetched(). No lock is held over I/O except the one
 * that orders metadata changes. Readers take none for longer than a lookup.
 * Memory: handles are the caller's until closed; all of them before lp_blockfs_close().
 * Errors:
 *   -EBADMSG  a checksum is wrong: lp_corruption_find(0) names file and offset
 *   -EUCLEAN  the metadata breaks its rules
 *   -ENOSPC   device or journal full: nothing changed, delete still works
 *   -EIO      the device said no. After a failed flush or journal write every change gets -EIO
 *             until reopened; reads go on (as rule L7). A writer that failed once stays failed.
 * Limits: names have at most LP_BLOCKFS_NAME_MAX bytes. Half of the journal must hold what
 * describes all files.
 *
 * One writer makes a file, from create to finish, and it is not appended to afterwards. Appended
 * bytes become readable, for everybody, and durable at the next lp_blockfs_sync() or _finish()
 * that returns 0. Before that nobody sees them, nor after a crash. There are no directories: a
 * name is a string of at least one byte, which may have slashes.
 *
 * Create, delete and rename are durable, and atomic, when they return. A file that is deleted or
 * replaced while open stays readable until its last handle is closed.
 */
#ifndef LP_STORE_BLOCKFS_BLOCKFS_H
#define LP_STORE_BLOCKFS_BLOCKFS_H

#include "base/clock.h"
#include "format/blockfs.h"
#include "store/device/fetch.h"
#include "store/volume/chunks.h"

#define LP_BLOCKFS_NAME_MAX 255u

struct lp_blockfs;
struct lp_blockfs_writer;
struct lp_blockfs_reader;

/* A device with chunks for files. bdev NULL: there is none. */
struct lp_blockfs_device {
	struct lp_bdev *bdev;
	struct lp_chunks *chunks;
};

/* Everything pointed to must outlive the file system. */
struct lp_blockfs_options {
	struct lp_blockfs_device data;
	struct lp_blockfs_device db;  /* used first, if there is one */
	struct lp_bdev *journal_bdev; /* where `area` is */
	struct lp_extent area;        /* superblocks and journal: lp_label_files_area() */
	uint8_t store_uuid[16];
	uint32_t shard_idx;
	uint64_t reserve_bytes;       /* leased ahead, when there are chunks (store/index/plan.h);
					 0: none */
	const struct lp_clock *clock; /* for mtimes; NULL: the system's */
	bool read_only;
};

enum lp_blockfs_kind {
	LP_BLOCKFS_SST,      /* *.sst */
	LP_BLOCKFS_LOG,      /* *.log */
	LP_BLOCKFS_MANIFEST, /* MANIFEST* */
	LP_BLOCKFS_OTHER,
	LP_BLOCKFS_KIND_CNT
};

struct lp_blockfs_stats {
	uint64_t file_cnt;
	uint64_t bytes[LP_BLOCKFS_KIND_CNT]; /* lengths of named files */
	uint64_t used_bytes;    /* blocks in use, crc tables and open writers included */
	uint64_t free_bytes;    /* free in leased chunks */
	uint64_t reserve_bytes; /* as asked for; free_bytes is below it when short */
	uint64_t spilled_bytes; /* in use on data though there is a db device */
	uint64_t spill_cnt;     /* allocations that db was too full for */
	uint64_t read_cnt;      /* device reads of file data, and their bytes */
	uint64_t read_bytes;
	uint64_t write_cnt; /* device writes of file data, and their bytes */
	uint64_t write_bytes;
	uint64_t flush_cnt;
	uint64_t frame_cnt; /* journal writes, and their bytes, snapshots included */
	uint64_t journal_bytes;
	uint64_t snapshot_cnt;
	uint64_t journal_live_bytes; /* what a snapshot takes now, and the most it may */
	uint64_t journal_live_max_bytes;
	bool failed;
};

/* An empty file system, durable on return. Leases no chunks. -EINVAL: the area is too small. */
int lp_blockfs_format(const struct lp_blockfs_options *options) LP_MUST_CHECK;
int lp_blockfs_open(const struct lp_blockfs_options *options,
		    struct lp_blockfs **ret_fs) LP_MUST_CHECK;
/* Accepts NULL. Nothing is left to be written. */
void lp_blockfs_close(struct lp_blockfs *fs);

/* wait is called on the appending thread before anything of a file whose name (behind its last
 * slash) begins with MANIFEST is taken, written or published; its error becomes that call's (rule
 * L4). Set before the first writer; NULL: none. */
void lp_blockfs_set_manifest_barrier(struct lp_blockfs *fs, int (*wait)(void *arg), void *arg);

/* --- Writing --------------------------------------------------------------------------------- */

/* exclusive: -EEXIST if the name is taken; else a new, empty file takes its place. */
int lp_blockfs_create(struct lp_blockfs *fs, const char *name, bool exclusive,
		      struct lp_blockfs_writer **ret_writer) LP_MUST_CHECK;
int lp_blockfs_append(struct lp_blockfs_writer *writer, const void *buf,
		      uint64_t length_bytes) LP_MUST_CHECK;
int lp_blockfs_sync(struct lp_blockfs_writer *writer) LP_MUST_CHECK;
/* All that was appended, published or not. */
uint64_t lp_blockfs_written(const struct lp_blockfs_writer *writer);
/* Syncs and frees the writer, also on failure: then the file keeps what was published before. */
int lp_blockfs_finish(struct lp_blockfs_writer *writer) LP_MUST_CHECK;
/* Frees the writer; the file keeps what was published. Accepts NULL. */
void lp_blockfs_abandon(struct lp_blockfs_writer *writer);

/* --- Reading --------------------------------------------------------------------------------- */

int lp_blockfs_open_reader(struct lp_blockfs *fs, const char *name,
			   struct lp_blockfs_reader **ret_reader) LP_MUST_CHECK;
/* *ret_bytes is less than asked for only at the end of what is published. On failure the content
 * of buf is undefined. */
int lp_blockfs_pread(struct lp_blockfs_reader *reader, void *buf, uint64_t length_bytes,
		     uint64_t offset_bytes, uint64_t *ret_bytes) LP_MUST_CHECK;
/* Blocks on nothing: all of length_bytes, which lie before the end, from what was fetched. -EAGAIN:
 * they are not there, and the fetch says what is to be read, if anything can be. */
int lp_blockfs_pread_fetched(struct lp_blockfs_reader *reader, void *buf, uint64_t length_bytes,
			     uint64_t offset_bytes, struct lp_fetch *fetch) LP_MUST_CHECK;
uint64_t lp_blockfs_size(struct lp_blockfs_reader *reader);
/* Accepts NULL. */
void lp_blockfs_close_reader(struct lp_blockfs_reader *reader);

/* --- Names ----------------------------------------------------------------------------------- */

/* -ENOENT; the rets may be NULL. */
int lp_blockfs_stat(struct lp_blockfs *fs, const char *name, uint64_t *ret_size_bytes,
		    int64_t *ret_mtime_ns) LP_MUST_CHECK;
int lp_blockfs_delete(struct lp_blockfs *fs, const char *name) LP_MUST_CHECK;
/* A file named `to` is replaced, in one record. */
int lp_blockfs_rename(struct lp_blockfs *fs, const char *from, const char *to) LP_MUST_CHECK;
/* Calls each() with the rest of every name that begins with prefix, sorted; stops when it returns
 * other than 0, and returns that. each() must not call into the file system. */
int lp_blockfs_list(struct lp_blockfs *fs, const char *prefix,
		    int (*each)(const char *rest, void *arg), void *arg) LP_MUST_CHECK;

/* RocksDB's lock files: names taken in memory, by nobody else than this process. -EAGAIN when
 * taken. unlock: -ENOENT. */
int lp_blockfs_lock(struct lp_blockfs *fs, const char *name) LP_MUST_CHECK;
int lp_blockfs_unlock(struct lp_blockfs *fs, const char *name) LP_MUST_CHECK;

/* --- Watching -------------------------------------------------------------------------------- */

void lp_blockfs_stats(struct lp_blockfs *fs, struct lp_blockfs_stats *ret_stats);
/* What files can still get: what is free in leased chunks, and all chunks nobody has. Less than the
 * reserve also when the journal is nearly as full as it may be. No lock: for shard threads. */
uint64_t lp_blockfs_room_bytes(const struct lp_blockfs *fs);
/* Leases ahead what the reserve lacks, so that nobody else does. What fails is tried again with
 * the next allocation. */
void lp_blockfs_settle(struct lp_blockfs *fs);
/* Blocks in use are those of the files, open handles and writers, no more and no less; -EUCLEAN.
 * No other call may run meanwhile. */
int lp_blockfs_check(struct lp_blockfs *fs) LP_MUST_CHECK;
/* Reads and checks every block of a file. */
int lp_blockfs_verify(struct lp_blockfs *fs, const char *name) LP_MUST_CHECK;

/* --- Bytes that may be anything ----------------------------------------------------------------
 */

/* A superblock from a block of LP_BLOCK_BYTES. */
int lp_blockfs_decode_super(const void *bytes, uint32_t slot_idx,
			    struct lp_blockfs_super *ret_super) LP_MUST_CHECK;
/* Replays a half of the journal, len bytes, under a superblock that was decoded, and forgets what
 * it found: 0 when it is sound. For fuzzing. */
int lp_blockfs_decode_half(const void *bytes, size_t len,
			   const struct lp_blockfs_super *super) LP_MUST_CHECK;

#endif
