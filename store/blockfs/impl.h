/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that the parts of blockfs share, and the order of its locks.
 *
 * Threads, blocking, errors: as store/blockfs/blockfs.h says.
 *
 *   blockfs.c          open and close, names, stats
 *   blockfs/file.c     writers
 *   blockfs/read.c     readers
 *   blockfs/journal.c  superblock, frames, replay, snapshots
 *   blockfs/table.c    the files in memory, and records to and from them
 *   blockfs/space.c    blocks in leased chunks
 *
 * Locks, in their order: `meta` orders all changes of metadata and is held over journal writes.
 * `lock` guards the table and the published part of files, and is never held over I/O. The
 * space's own lock is the last. The published part of a file changes under both of the first two,
 * so either is enough to read it.
 */
#ifndef LP_STORE_BLOCKFS_IMPL_H
#define LP_STORE_BLOCKFS_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/struct/bitmap.h"
#include "base/struct/list.h"
#include "store/blockfs/blockfs.h"

#define LPI_TIER_MAX 2u
/* Where files of this many bytes at most keep all of them, in their last record. */
#define LPI_INLINE_MAX 1024u
/* A writer's buffer: the longest device write of file data. */
#define LPI_BUF_BLOCKS     256u
#define LPI_BUF_BYTES      (LPI_BUF_BLOCKS * LP_BLOCK_BYTES)
#define LPI_CRCS_PER_BLOCK (LP_BLOCK_BYTES / sizeof(uint32_t))

/* --- Space ----------------------------------------------------------------------------------- */

struct lpi_run {
	uint64_t block;
	uint32_t cnt;
	uint32_t tier; /* index into the space's tiers */
};

/* Runs in the order of a file's blocks. */
struct lpi_map {
	struct lpi_run *runs;
	size_t cnt;
	size_t room;
};

/* Room for extra_cnt more runs: appending them cannot fail then. */
int lpi_map_reserve(struct lpi_map *map, size_t extra_cnt) LP_MUST_CHECK;
/* There must be room. Joins neighbours. */
void lpi_map_append(struct lpi_map *map, struct lpi_run run);
uint64_t lpi_map_blocks(const struct lpi_map *map);
void lpi_map_fini(struct lpi_map *map);

struct lpi_chunk {
	uint32_t chunk_idx;
	uint32_t free_cnt; /* blocks */
	uint64_t first_block;
	struct lp_bitmap used;
};

struct lpi_tier {
	struct lp_bdev *bdev;
	struct lp_chunks *chunks;
	uint8_t role;
	struct lpi_chunk **leased; /* by chunk_idx */
	size_t leased_cnt;
	size_t leased_room;
	uint64_t free_blocks;
	uint64_t used_blocks;
	bool keeps_chunks; /* the table of chunks has failed */
};

/* Fastest tier first. */
struct lpi_space {
	struct lpi_tier tiers[LPI_TIER_MAX];
	uint32_t tier_cnt;
	uint32_t shard_idx;
	bool read_only;
	uint64_t reserve_blocks;
	pthread_mutex_t lock; /* the numbers and chunks of the tiers; held while leasing */
	uint64_t spill_cnt;
	/* Copies, for those who take no lock: a lease and a return write to a device under it. */
	_Atomic uint64_t free_blocks; /* of all tiers */
	_Atomic uint64_t used_blocks;
	_Atomic uint64_t spilled_blocks; /* of these, not on the fastest one */
	_Atomic uint64_t told_spill_cnt;
};

/* Finds the shard's leased chunks; all of them empty so far. */
int lpi_space_init(struct lpi_space *space, const struct lp_blockfs_options *options) LP_MUST_CHECK;
void lpi_space_fini(struct lpi_space *space);
/* At open, for what files have. -EUCLEAN: outside of the shard's chunks, or in use. */
int lpi_space_mark(struct lpi_space *space, struct lpi_run run) LP_MUST_CHECK;
/* Leases ahead, or gives back, until the reserve fits. What fails is tried again next time. */
void lpi_space_settle(struct lpi_space *space);
/* 1 to want_cnt blocks in one run. */
int lpi_space_alloc(struct lpi_space *space, uint32_t want_cnt,
		    struct lpi_run *ret_run) LP_MUST_CHECK;
void lpi_space_free(struct lpi_space *space, struct lpi_run run);
void lpi_space_free_map(struct lpi_space *space, const struct lpi_map *map);
/* The tier of that role, or LPI_TIER_MAX. */
uint32_t lpi_space_tier(const struct lpi_space *space, uint8_t role);

/* --- Files in memory ------------------------------------------------------------------------- */

struct lpi_file {
	uint64_t id;
	char *name;
	bool named; /* false once deleted or replaced */
	bool finished;
	uint32_t ref_cnt;    /* handles */
	uint32_t tail_bytes; /* valid in tail */
	uint64_t size_bytes;
	int64_t mtime_ns;
	uint64_t block_cnt;
	struct lpi_map map; /* block_cnt blocks */
	uint32_t *crcs;     /* of blocks from table_blocks on */
	size_t crc_room;
	uint64_t table_blocks; /* the first ones, whose crcs are in the crc table */
	uint32_t table_crc;
	struct lpi_map table_map;
	uint32_t *table_crcs; /* the table, or NULL: not loaded */
	uint8_t *tail;        /* LP_BLOCK_BYTES, or NULL */
	struct lp_list_node node;
};

LP_LIST_DEFINE(lpi_file_list, struct lpi_file, node);

struct lpi_index {
	struct lpi_file **files;
	size_t cnt;
	size_t room;
};

/* All files that have a name; replay works on one of these alone. */
struct lpi_table {
	struct lpi_index by_name;
	struct lpi_index by_id;
	uint64_t next_file_id;
	uint64_t live_bytes;           /* of the records that describe all */
	struct lpi_file_list unlinked; /* without a name, but open */
};

/* One publish, in memory. Borrows its arrays. */
struct lpi_publish {
	uint64_t size_bytes;
	int64_t mtime_ns;
	bool finished;
	bool has_table;
	uint32_t table_crc;
	struct lpi_map added;
	struct lpi_map table_map;
	const uint32_t *crcs; /* of the added blocks, or with a table of the last of them */
	size_t crc_cnt;
	const uint8_t *tail;
	uint32_t tail_bytes;
};

void lpi_table_init(struct lpi_table *table);
/* Frees all files; none may be open. */
void lpi_table_fini(struct lpi_table *table);
struct lpi_file *lpi_table_find(const struct lpi_table *table, const char *name);
struct lpi_file *lpi_table_find_id(const struct lpi_table *table, uint64_t file_id);
/* The index of the first name that is not less. */
size_t lpi_table_lower(const struct lpi_table *table, const char *name);
/* Room for one more file. */
int lpi_table_reserve(struct lpi_table *table) LP_MUST_CHECK;
/* These cannot fail. insert and rename take away the name from who has it, and return that file,
 * which is then on `unlinked`, or NULL. */
struct lpi_file *lpi_table_insert(struct lpi_table *table, struct lpi_file *file);
struct lpi_file *lpi_table_rename(struct lpi_table *table, struct lpi_file *file, char **take_name);
void lpi_table_unlink(struct lpi_table *table, struct lpi_file *file);

struct lpi_file *lpi_file_new(uint64_t file_id, const char *name, int64_t mtime_ns);
/* Accepts NULL. */
void lpi_file_free(struct lpi_file *file);
/* Room for what the publish adds. */
int lpi_file_reserve(struct lpi_file *file, const struct lpi_publish *publish) LP_MUST_CHECK;
/* Cannot fail after lpi_file_reserve(). *ret_old_table is the table that was replaced: the
 * caller's to free. Keeps table->live_bytes. */
void lpi_file_publish(struct lpi_table *table, struct lpi_file *file,
		      const struct lpi_publish *publish, struct lpi_map *ret_old_table);

/* --- Records --------------------------------------------------------------------------------- */

/* Bytes of a record with its header. */
size_t lpi_record_name_bytes(const char *name);
size_t lpi_record_publish_bytes(const struct lpi_publish *publish);
#define LPI_RECORD_DELETE_BYTES (LP_BLOCKFS_RECORD_SIZE + LP_BLOCKFS_DELETE_SIZE)
#define LPI_RECORD_STATE_BYTES  (LP_BLOCKFS_RECORD_SIZE + LP_BLOCKFS_STATE_SIZE)
/* All of a file, in a snapshot. */
size_t lpi_record_file_bytes(const struct lpi_file *file);

struct lp_writer;
/* type: CREATE or RENAME. roles: of the space's tiers. */
void lpi_record_put_name(struct lp_writer *out, enum lp_blockfs_type type, uint64_t file_id,
			 int64_t mtime_ns, const char *name);
void lpi_record_put_publish(struct lp_writer *out, const uint8_t *roles, uint64_t file_id,
			    const struct lpi_publish *publish);
void lpi_record_put_delete(struct lp_writer *out, uint64_t file_id);
void lpi_record_put_state(struct lp_writer *out, uint64_t next_file_id);
void lpi_record_put_file(struct lp_writer *out, const uint8_t *roles, const struct lpi_file *file);

/* Applies the records of a frame. tier_of: by role, LPI_TIER_MAX: no such device. -EUCLEAN,
 * -ENOMEM; the table is then of no use. offset_bytes is for the message. */
int lpi_records_apply(struct lpi_table *table, const uint8_t *tier_of, const void *bytes,
		      size_t len, uint64_t offset_bytes) LP_MUST_CHECK;

/* --- Writers --------------------------------------------------------------------------------- */

struct lp_blockfs_writer {
	struct lp_blockfs *fs;
	struct lpi_file *file;
	struct lp_list_node node;
	bool is_manifest;
	int err;          /* the first failure, for good */
	uint8_t *buf;     /* LPI_BUF_BYTES: what follows the written blocks; begins on a block */
	size_t buf_bytes; /* the published tail included */
	struct lpi_map pending; /* blocks written, not yet published */
	uint32_t *crcs;         /* theirs */
	size_t crc_cnt;
	size_t crc_room;
	struct lpi_run spare; /* allocated, not yet written */
	uint32_t dirty;       /* bits by tier: written since its last flush */
};

LP_LIST_DEFINE(lpi_writer_list, struct lp_blockfs_writer, node);

/* --- The journal ----------------------------------------------------------------------------- */

struct lpi_journal {
	struct lp_bdev *bdev;
	struct lp_extent area;
	struct lp_blockfs_super super; /* as in both slots */
	uint64_t pos_blocks;           /* of the next frame, in the active half */
	uint64_t sequence;             /* of the next frame */
	uint32_t prev_crc;
	uint8_t *super_block; /* a block to write superblocks from */
	uint8_t *frame;       /* grows; aligned */
	size_t frame_room;
};

struct lp_blockfs {
	struct lpi_space space;
	const struct lp_clock *clock;
	bool read_only;
	int (*barrier)(void *arg);
	void *barrier_arg;
	uint8_t roles[LPI_TIER_MAX];
	uint64_t live_max_bytes; /* what a snapshot may take */
	_Atomic bool failed;
	pthread_mutex_t meta;
	struct lpi_journal journal; /* under meta */
	pthread_mutex_t lock;
	struct lpi_table table;      /* changed under meta and lock */
	_Atomic uint64_t live_bytes; /* the table's; a copy, for those who take no lock */
	struct lpi_writer_list writers;
	char **locked_names; /* under lock */
	size_t locked_cnt;
	_Atomic uint64_t read_cnt;
	_Atomic uint64_t read_bytes;
	_Atomic uint64_t write_cnt;
	_Atomic uint64_t write_bytes;
	_Atomic uint64_t flush_cnt;
	_Atomic uint64_t frame_cnt;
	_Atomic uint64_t journal_bytes;
	_Atomic uint64_t snapshot_cnt;
};

/* Superblocks and an empty snapshot. */
int lpi_journal_format(const struct lp_blockfs_options *options) LP_MUST_CHECK;
/* Fills the table. */
int lpi_journal_open(struct lp_blockfs *fs, const struct lp_blockfs_options *options) LP_MUST_CHECK;
void lpi_journal_fini(struct lpi_journal *journal);
/* Under meta. Starts a frame of records_bytes, into which the caller writes exactly that by *ret.
 * grows: it may make the metadata larger, and so be refused (-ENOSPC). */
int lpi_journal_begin(struct lp_blockfs *fs, size_t records_bytes, bool grows,
		      struct lp_writer *ret) LP_MUST_CHECK;
/* Makes it durable. On failure the file system has failed. */
int lpi_journal_commit(struct lp_blockfs *fs, size_t records_bytes) LP_MUST_CHECK;

/* --- All of it ------------------------------------------------------------------------------- */

void lpi_blockfs_lock(pthread_mutex_t *mutex);
void lpi_unlock(pthread_mutex_t *mutex);
/* 0, or why nothing can be changed. */
int lpi_usable(struct lp_blockfs *fs);
void lpi_count(_Atomic uint64_t *counter, uint64_t value);
/* Drops a handle; a file without name and handles gives its blocks back. */
void lpi_file_put(struct lp_blockfs *fs, struct lpi_file *file);
/* Under lock: true when nobody can reach the file any more. It is the caller's then, to be given to
 * lpi_file_destroy() without locks. Accepts NULL: false. */
bool lpi_file_is_dead(struct lpi_file *file);
void lpi_file_destroy(struct lp_blockfs *fs, struct lpi_file *file);
bool lpi_name_is_valid(const char *name);

#endif
