/* SPDX-License-Identifier: Apache-2.0 */
/* Salvage: takes out of a store what verifies, also where its shards do not open.
 *
 * Threads: one.
 * Blocking: all of it. Nothing is written to the devices.
 * Memory: a table of the index at a time (64 MiB as a rule), both halves of a shard's journal of
 * files, and 32 MiB.
 * Errors: those of the scratch files and of the sinks, and -ENOMEM. Damage is no error.
 *
 * For `lapis salvage`. It collects records in an index of its own, in files that the caller
 * provides: from the tables of each shard's index, block by block, then from the frames of its
 * log. Of several records with one key the newest counts. Each inode, entry and piece of a map
 * has a checksum of its own and is held against it. Data is held against the checksum in its map.
 * Damaged records and data are left out, and told.
 *
 * Names come from the entries of directories. Where these are lost, an inode still knows its
 * directory and its name there. An inode with neither goes below LP_SALVAGE_LOST.
 *
 * Objects that were removed or never finished are left out, as far as records tell. Where the
 * list of an index's files is damaged, all of its space is read, and removed objects may show
 * again. Changes over several shards that were under way when the daemon was killed are not
 * finished; they are counted.
 */
#ifndef LP_STORE_SALVAGE_SALVAGE_H
#define LP_STORE_SALVAGE_SALVAGE_H

#include "store/index/kv.h"
#include "store/kvfs/kvfs.h"
#include "store/record/inode.h"
#include "store/setup/mkfs.h"

#define LP_SALVAGE_OBJECTS "objects"
#define LP_SALVAGE_LOST    "lost+found"

struct lp_salvage;

struct lp_salvage_shard_report {
	uint64_t tables;
	uint64_t table_blocks;      /* of tables, that could be read */
	uint64_t records;           /* in these */
	uint64_t bad_blocks;        /* of 4 KiB, of files with tables */
	uint64_t mended_bits;       /* that had flipped: nothing is lost by them */
	uint64_t bad_records;       /* that are not what their checksum says */
	uint64_t journal_lost;      /* frames of the journal of files */
	uint64_t log_frames;        /* that were used */
	uint64_t log_lost;          /* missing between the first and the last that is there */
	uint64_t changes_under_way; /* over several shards */
	bool has_files;             /* some superblock of the journal of files could be read */
	bool has_log;               /* the same of the log */
};

struct lp_salvage_options {
	struct lp_bdev *bdev[LP_ROLES]; /* data; db and wal may be NULL */
	struct lp_kvfs *scratch;        /* empty; stays the caller's */
	/* Only shard_idx, and of it all records that an index is made of again. */
	bool for_index;
	uint32_t shard_idx;
	/* After each shard; may be NULL. */
	void (*collected)(void *arg, uint32_t shard_idx,
			  const struct lp_salvage_shard_report *report);
	void *arg;
};

int lp_salvage_open(const struct lp_salvage_options *options, struct lp_salvage **ret_salvage,
		    struct lp_label_why *why) LP_MUST_CHECK;
/* Accepts NULL. */
void lp_salvage_close(struct lp_salvage *salvage);

/* --- What there is --------------------------------------------------------------------------- */

struct lp_salvage_object {
	const char *path;       /* below the target: LP_SALVAGE_OBJECTS or _LOST, then names */
	const char *first_path; /* another name of it that was told before, or NULL */
	struct lp_ino ino;
	const struct lp_inode *inode; /* NULL: a directory, or a name, whose inode is lost */
	bool is_dir;
	bool is_guessed; /* no entry says the name: the inode itself does, or nobody */
};

struct lp_salvage_walker {
	/* A directory comes before what is in it. A negative return ends the walk. */
	int (*object)(struct lp_salvage_walker *walker, const struct lp_salvage_object *object);
};

/* Everything, each name once. */
int lp_salvage_walk(struct lp_salvage *salvage, struct lp_salvage_walker *walker) LP_MUST_CHECK;

/* --- Content --------------------------------------------------------------------------------- */

struct lp_salvage_reader {
	/* Bytes that verify. A negative return of either ends the reading. */
	int (*data)(struct lp_salvage_reader *reader, uint64_t offset_bytes, const void *bytes,
		    size_t len);
	/* What does not. */
	int (*damage)(struct lp_salvage_reader *reader, uint64_t offset_bytes, uint64_t len);
};

/* Of a file. 1: pieces of its map are lost, nobody knows which bytes they had. */
int lp_salvage_read(struct lp_salvage *salvage, const struct lp_inode *inode,
		    struct lp_salvage_reader *reader) LP_MUST_CHECK;

/* Large attributes and entries of ordered maps: space XATTR or OMAP. A negative return of `each`
 * ends it. */
int lp_salvage_each_key(struct lp_salvage *salvage, struct lp_ino ino, enum lp_key_space space,
			int (*each)(void *arg, struct lp_kv_bytes name, struct lp_kv_bytes value),
			void *arg) LP_MUST_CHECK;

/* --- For an index ------------------------------------------------------------------------------
 */

/* Each record that counts, in the order of the keys, but for what only says how far a log or the
 * space is written down. A negative return of `each` ends it. */
int lp_salvage_each_record(struct lp_salvage *salvage,
			   int (*each)(void *arg, struct lp_kv_bytes key, struct lp_kv_bytes value),
			   void *arg) LP_MUST_CHECK;
/* Blocks of the data device whose content may wait in a log or an index. */
int lp_salvage_each_payload(struct lp_salvage *salvage, int (*each)(void *arg, uint64_t block),
			    void *arg) LP_MUST_CHECK;
/* Into buf, a block: 1 if there is such a payload, and it is right. */
int lp_salvage_find_payload(struct lp_salvage *salvage, uint64_t block, uint32_t crc,
			    uint8_t *buf) LP_MUST_CHECK;

#endif
