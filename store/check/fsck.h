/* SPDX-License-Identifier: Apache-2.0 */
/* fsck: checks a whole store, mends what needs no loss and no guess (design 5.10).
 *
 * Threads: the reactor's, which is turned while it runs.
 * Blocking: all of it. Nobody else has the store open, or views are looked at.
 * Memory: 2 bits for each block that shards have for objects, names_bytes_max, and some 24 MiB.
 * The index is read again where one table is too small for all inodes.
 * Errors: a store that cannot be opened at all is an error of lp_fsck_run(), with the sentence in
 * *why. Everything else is found and told, also a shard that does not open.
 *
 * Held against each other are:
 * - both copies of the labels, of the chunk tables, and of superblocks; bits that flipped in
 *   journals, logs and the files of indices
 * - every record of every shard's index and its own rules
 * - pieces of extent maps and the inodes they belong to
 * - extents and the chunks of the shard, and each other
 * - counts of shared blocks and the extents that share them
 * - mapped blocks and the space that is in use
 * - fragments and entries; entries and inodes, over all shards
 * - if deep, every written block and its checksum
 *
 * Repair only rewrites what follows from the rest. Space that nobody names is freed, and named
 * space is taken. Counts of links, entries and references are made true. Marks of unfinished work
 * are taken away or put where they must be. It never removes data, an entry, an inode or a piece
 * of a map. Where damaged records hide the truth, nothing is derived from them: blocks that a
 * damaged map may name stay taken. store/check/doubt.md has a table of that.
 *
 * In a copy of the store an index can be made anew. Then names, maps and attributes may be
 * missing that nobody has any longer, and the rest is put in order. Never in the store itself.
 */
#ifndef LP_STORE_CHECK_FSCK_H
#define LP_STORE_CHECK_FSCK_H

#include "base/loop/workers.h"
#include "base/memory/buf.h"
#include "store/space/alloc.h"
#include "store/view.h"
#include "store/volume/devices.h"

enum lp_fsck_kind {
	LP_FSCK_LABEL_COPY,  /* one copy of a device's label is damaged or older */
	LP_FSCK_CHUNK_SLOT,  /* one slot of a chunk table is */
	LP_FSCK_SUPER_COPY,  /* one superblock of a shard's log or journal is, or both are */
	LP_FSCK_BIT,         /* one bit has flipped in an index's file, its journal, or the log */
	LP_FSCK_SHARD,       /* a shard does not open: nothing of it could be checked */
	LP_FSCK_INDEX,       /* a part of an index cannot be read */
	LP_FSCK_KEY,         /* not a key of ours */
	LP_FSCK_RECORD,      /* a value that is damaged or breaks its rules */
	LP_FSCK_VALUE,       /* an attribute that not every door can live with: store/attrs.h */
	LP_FSCK_PLACE,       /* an inode on a shard that its number does not name */
	LP_FSCK_MAP,         /* an extent map whose parts do not agree */
	LP_FSCK_STRAY,       /* records of an inode that is not there, or has no such */
	LP_FSCK_SIZE,        /* data beyond the end of a file */
	LP_FSCK_OUTSIDE,     /* an extent outside the space of its shard */
	LP_FSCK_TWICE,       /* blocks that two extents name and that are not shared */
	LP_FSCK_REFS,        /* a wrong count of references */
	LP_FSCK_LEAK,        /* blocks in use that nobody names */
	LP_FSCK_UNTAKEN,     /* blocks that somebody names and that count as free */
	LP_FSCK_FRAGMENT,    /* counts of a directory's entries */
	LP_FSCK_ENTRY,       /* an entry, or a fragment, whose inode or directory is not there */
	LP_FSCK_ENTRY_TYPE,  /* an entry with another type than its inode */
	LP_FSCK_PARENT,      /* a directory that does not know where it is, or has several names */
	LP_FSCK_LOOP,        /* a directory inside itself */
	LP_FSCK_NLINK,       /* a wrong count of links */
	LP_FSCK_UNREACHABLE, /* an inode with links and without a name */
	LP_FSCK_ORPHAN,      /* an inode without links that nothing will remove */
	LP_FSCK_UNFINISHED,  /* a mark of unfinished work that is wrong */
	LP_FSCK_TXN,         /* an unfinished transaction: the next start resolves it */
	LP_FSCK_DATA,        /* deep: a block that is not what its checksum says */
	LP_FSCK_DATA_READ,   /* deep: a block that the device cannot read */
	LP_FSCK_DEFERRED,    /* a deferred payload in the index that is not that of its block */
	LP_FSCK_BAD_BLOCK,   /* a block that could not be written: its content is in the index */
	LP_FSCK_KIND_CNT
};

/* "label-copy" and so on: stable, for programs. */
const char *lp_fsck_kind_name(enum lp_fsck_kind kind);

enum lp_fsck_severity {
	LP_FSCK_WARNING, /* may be in order: what would tell is not final or could not be read */
	LP_FSCK_ERROR,
};

#define LP_FSCK_NO_SHARD UINT32_MAX

struct lp_fsck_finding {
	enum lp_fsck_kind kind;
	enum lp_fsck_severity severity;
	bool is_repaired;
	uint32_t shard_idx;      /* LP_FSCK_NO_SHARD: of the store */
	struct lp_ino ino;       /* nr 0: none */
	struct lp_extent extent; /* on the data device; cnt 0: none */
	uint64_t offset_bytes;   /* in the file; LP_OFFSET_NONE */
	const char *object;      /* "/a/b (inode 7)", "inode 7", "shard 0", "store"; raw bytes */
	const char *text;        /* what is wrong with it */
};

/* Embedded by who listens. What a finding points to is valid during the call. */
struct lp_fsck_report;
struct lp_fsck_events {
	void (*found)(struct lp_fsck_events *events, const struct lp_fsck_finding *finding);
	/* It has gone on: often, so this is quick. NULL: nobody wants to know. */
	void (*moved)(struct lp_fsck_events *events, const struct lp_fsck_report *report);
};

struct lp_kvfs;

/* The devices that are checked are a copy of these, which stay as they are. A shard that does not
 * open gets a new index, of the records that its old one and its log still have. */
struct lp_fsck_rebuild {
	struct lp_bdev *bdev[LP_ROLES];
	struct lp_kvfs *scratch; /* empty, then and afterwards: for what is collected */
	uint64_t salt;           /* random: of new logs */
};

struct lp_fsck_options {
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs; /* as large as the deferred payloads of one shard's log */
	struct lp_bdev *bdev[LP_ROLES];
	struct lp_fsck_events *events;
	const struct lp_clock *sim_clock; /* as of struct lp_shard_options */
	uint64_t index_cache_bytes;
	uint64_t index_buffer_bytes;
	uint64_t files_reserve_bytes;
	uint64_t names_bytes_max; /* table of inodes; 0: 256 MiB */
	uint32_t refs_groups_max; /* groups of shared blocks counted at once; 0: 65536 */
	bool deep;
	bool repair;
	const struct lp_fsck_rebuild *rebuild; /* NULL: it is no copy. With repair only */
};

struct lp_fsck_report {
	uint64_t problems; /* errors that remain */
	uint64_t repaired;
	uint64_t warnings;
	uint64_t inodes;
	uint64_t entries;
	uint64_t blocks;      /* named by extents, each once for each extent */
	uint64_t read_blocks; /* deep */
	uint32_t shards;
};

int lp_fsck_run(const struct lp_fsck_options *options, struct lp_fsck_report *ret_report,
		struct lp_label_why *why) LP_MUST_CHECK;

struct lp_fsck_look {
	struct lp_view *const *views; /* of all shards in their order, of one moment */
	uint32_t view_cnt;
	struct lp_fsck_events *events;
	uint64_t names_bytes_max; /* this and the next one as above */
	uint32_t refs_groups_max;
};

/* The same for a store that is served: nothing is mended, and blocks' checksums, labels and chunk
 * tables are not looked at. [any] thread, which may block. -ECANCELED: a view was over before the
 * end; what was found until then is so. */
int lp_fsck_look(const struct lp_fsck_look *look, struct lp_fsck_report *ret_report) LP_MUST_CHECK;

#endif
