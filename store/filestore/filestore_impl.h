/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that the parts of the file store share.
 *
 * Threads: a call with [shard] is made by the store's thread and blocks on nothing. One with
 * [helper] may block. Of helpers at most one evaluates, or applies (never both at a time). Those
 * that read are beside the one that evaluates, but never beside the one that applies.
 * Blocking: [helper].
 *
 * filestore/filestore.c runs operations and groups, filestore/checkpoint.c lets the journal
 * forget, filestore/open.c opens, replays and closes. filestore/txn.c evaluates transactions,
 * filestore/data.c changes of data. filestore/read.c reads, filestore/list.c lists.
 * filestore/overlay.c keeps changes that are not in the index yet, and the records of maps.
 * filestore/apply.c takes a durable group to files and index. filestore/removal.c frees what was
 * removed. filestore/objects.c has objects' files.
 */
#ifndef LP_STORE_FILESTORE_FILESTORE_IMPL_H
#define LP_STORE_FILESTORE_FILESTORE_IMPL_H

#include <pthread.h>

#include "base/loop/workers.h"
#include "base/struct/tree.h"
#include "format/file_store.h"
#include "store/device/bdev.h"
#include "store/filestore/directory.h"
#include "store/filestore/filestore.h"
#include "store/index/kv.h"
#include "store/kvfs/posix.h"
#include "store/log/log.h"
#include "store/record/csum.h"
#include "store/record/values.h"
#include "store/store_kinds.h"

#define LPI_LEAF_BLOCKS 64u /* LP_FILE_LEAF_BLOCKS */
#define LPI_SIDE_CNT    2u
#define LPI_PART_SHIFT  28u /* blocks of one file: 1 TiB */

/* An operation that is to be evaluated again when no group is under way. */
#define LPI_FSTORE_LATER 1

struct lpi_fstore_store;

/* --- Objects' files --------------------------------------------------------------------------- */

#define LPI_OBJECT_SLOTS 128u
#define LPI_OBJECT_DIRS  256u

/* One block of an object, in one of its files. */
struct lpi_object_place {
	struct lp_ino ino;
	uint64_t block;
	uint32_t side;
};

/* An open file; fd -1: free. */
struct lpi_object_slot {
	uint64_t ino;
	uint32_t file; /* part and side */
	int fd;
	uint32_t refs;
	bool is_stale; /* removed meanwhile: to be closed by the last who uses it */
};

struct lpi_objects {
	int fd;                /* the directory objects/ */
	pthread_mutex_t mutex; /* over slots and dirs */
	struct lpi_object_slot slots[LPI_OBJECT_SLOTS];
	/* A file was made there, and its name may not be durable. */
	bool dir_is_dirty[LPI_OBJECT_DIRS];
};

/* All [helper]. 0 or the host's error. */
int lpi_objects_open(struct lpi_objects *objects, int shard_fd) LP_MUST_CHECK;
void lpi_objects_close(struct lpi_objects *objects);
/* iov_cnt at most IOV_MAX; all within one part. The array is changed. */
int lpi_objects_write(struct lpi_objects *objects, const struct lpi_object_place *place,
		      struct iovec *iov, int iov_cnt) LP_MUST_CHECK;
/* What is not there reads as zeros: that it should be there is for the checksum to find. */
int lpi_objects_read(struct lpi_objects *objects, const struct lpi_object_place *place, void *buf,
		     uint32_t blocks) LP_MUST_CHECK;
/* What was written to the place's file is durable, and so is its name. */
int lpi_objects_sync(struct lpi_objects *objects,
		     const struct lpi_object_place *place) LP_MUST_CHECK;
/* Space without data, where the host can do that. */
int lpi_objects_reserve(struct lpi_objects *objects, const struct lpi_object_place *place,
			uint32_t blocks) LP_MUST_CHECK;
/* The space of blocks that nobody reads is given back, where the host can do that. */
int lpi_objects_punch(struct lpi_objects *objects, const struct lpi_object_place *place,
		      uint32_t blocks) LP_MUST_CHECK;
/* Both files of the part that has the block, if they are there. */
int lpi_objects_unlink(struct lpi_objects *objects, struct lp_ino ino,
		       uint64_t block) LP_MUST_CHECK;
/* Everything is durable. */
int lpi_objects_sync_all(struct lpi_objects *objects) LP_MUST_CHECK;

/* --- What is changed and not in the index ----------------------------------------------------- */

/* The record of a key, or that there is none; or a block of data, under a key that no index has. */
struct lpi_fstore_rec {
	struct lp_tree_node node;
	uint8_t *value; /* NULL: there is none */
	uint32_t value_len;
	uint32_t key_len;
	const uint8_t *key; /* behind it */
};

static inline bool lpi_fstore_rec_less(const struct lpi_fstore_rec *a,
				       const struct lpi_fstore_rec *b)
{
	return lp_key_compare(a->key, a->key_len, b->key, b->key_len) < 0;
}

LP_TREE_DEFINE(lpi_fstore_recs, struct lpi_fstore_rec, node, lpi_fstore_rec_less);

struct lpi_fstore_overlay {
	struct lpi_fstore_recs recs;
	uint64_t batch_bytes; /* of keys and values that go into the index */
	uint32_t payload_cnt;
};

#define LPI_PAYLOAD_SPACE 'P' /* of the keys of blocks; in no index */
#define LPI_OVERLAYS_MAX  3u

/* Layers of changes, the newest first, over the index. */
struct lpi_fstore_view {
	const struct lpi_fstore_overlay *layers[LPI_OVERLAYS_MAX];
	uint32_t layer_cnt;
	struct lp_kv *kv; /* NULL: nothing is below the layers */
};

/* A value that was found: in an overlay, or pinned in the index. */
struct lpi_fstore_value {
	struct lp_kv_bytes bytes;
	bool is_pinned;
	struct lp_kv_value pin;
};

void lpi_fstore_overlay_init(struct lpi_fstore_overlay *overlay);
void lpi_fstore_overlay_clear(struct lpi_fstore_overlay *overlay);
/* -ENOMEM. A block's memory is aligned as the journal wants it. */
int lpi_fstore_overlay_put(struct lpi_fstore_overlay *overlay, const struct lp_key *key,
			   const void *value, uint32_t value_len) LP_MUST_CHECK;
int lpi_fstore_overlay_delete(struct lpi_fstore_overlay *overlay,
			      const struct lp_key *key) LP_MUST_CHECK;
/* NULL: it says nothing about the key. */
const struct lpi_fstore_rec *lpi_fstore_overlay_find(const struct lpi_fstore_overlay *overlay,
						     const struct lp_key *key);
/* All of `from` goes to `to`, over what is there. */
void lpi_fstore_overlay_merge(struct lpi_fstore_overlay *to, struct lpi_fstore_overlay *from);

/* [helper] -ENOENT. A value that was found is released once. */
int lpi_fstore_get(const struct lpi_fstore_view *view, const struct lp_key *key,
		   struct lpi_fstore_value *ret_value) LP_MUST_CHECK;
void lpi_fstore_value_release(struct lpi_fstore_value *value);
/* [helper] The first key of [from, end) that has a record: -ENOENT when there is none. */
int lpi_fstore_next(const struct lpi_fstore_view *view, const struct lp_key *from,
		    const struct lp_key *end, struct lp_key *ret_key) LP_MUST_CHECK;

static inline struct lp_kv_bytes lpi_kv_bytes_of(const struct lp_key *key)
{
	return (struct lp_kv_bytes){key->bytes, key->len};
}

void lpi_payload_key(struct lp_key *ret, const struct lpi_object_place *place);
void lpi_payload_place(const struct lpi_fstore_rec *rec, struct lpi_object_place *ret_place);
/* The first record that is of a block, or of what comes behind those. */
const struct lpi_fstore_rec *lpi_fstore_overlay_payloads(const struct lpi_fstore_overlay *overlay);
/* The first block from the place on whose content the overlay has; false: none of this inode. */
bool lpi_fstore_next_payload(const struct lpi_fstore_overlay *overlay,
			     struct lpi_object_place *place);

/* --- Maps ------------------------------------------------------------------------------------- */

/* The map of 64 blocks. */
struct lpi_mapleaf {
	uint64_t data;
	uint64_t unwritten;
	uint64_t side;
	uint32_t crcs[LPI_LEAF_BLOCKS]; /* of those with data */
};

static inline uint32_t lpi_mapleaf_slot(uint64_t block)
{
	return (uint32_t)(block % LPI_LEAF_BLOCKS);
}

static inline uint64_t lpi_mapleaf_bit(uint64_t block)
{
	return UINT64_C(1) << lpi_mapleaf_slot(block);
}

static inline uint32_t lpi_mapleaf_side(const struct lpi_mapleaf *leaf, uint64_t block)
{
	return (leaf->side & lpi_mapleaf_bit(block)) != 0;
}

/* By bit: which blocks have something on this side. */
static inline uint64_t lpi_mapleaf_uses(const struct lpi_mapleaf *leaf, uint32_t side)
{
	return side == 0 ? (leaf->data & ~leaf->side) | leaf->unwritten : leaf->side;
}

void lpi_mapleaf_key(struct lp_key *ret, struct lp_ino ino, uint64_t block);
/* [helper] Empty when there is no record. */
int lpi_mapleaf_get(const struct lpi_fstore_view *view, struct lp_ino ino, uint64_t block,
		    struct lpi_mapleaf *ret_leaf) LP_MUST_CHECK;
/* Of a record's bytes: -EBADMSG, -EUCLEAN. */
int lpi_mapleaf_decode(const struct lp_key *key, struct lp_kv_bytes bytes,
		       struct lpi_mapleaf *ret_leaf) LP_MUST_CHECK;
/* No record when it is empty. */
int lpi_mapleaf_put(struct lpi_fstore_overlay *overlay, struct lp_ino ino, uint64_t block,
		    const struct lpi_mapleaf *leaf) LP_MUST_CHECK;

/* --- Groups ----------------------------------------------------------------------------------- */

LP_LIST_DEFINE(lpi_fstore_ops, struct lp_store_op, node);

/* Transactions that become durable together, as one frame of the journal. */
struct lpi_fstore_group {
	struct lpi_fstore_overlay overlay;
	struct lpi_fstore_ops waiters; /* told when it is durable */
	struct lp_log_change *changes;
	uint32_t change_cnt;
	uint32_t change_max;
	bool is_wanted; /* somebody waits for it, or it is large enough */
	bool is_used;   /* something was put into it */

	/* While it is sealed. */
	struct lpi_fstore_store *store;
	struct lp_kv_batch *batch;
	struct lp_log_data *data;
	uint32_t data_cnt;
	struct iovec piece;
	struct lp_log_frame frame;
	uint64_t seq;
};

/* An inode that a transaction has looked at or changes. */
struct lpi_fstore_inode {
	struct lp_ino ino;
	bool exists;
	bool is_dirty;
	bool is_newer;      /* its version has gone up */
	uint32_t old_flags; /* before the transaction; of one that a transaction looks for */
	uint64_t blocks;
	uint8_t map[sizeof(uint64_t)];
	struct lp_inode rec;
	uint8_t bytes[LP_INODE_BYTES_MAX]; /* that rec borrows from */
};

/* A read, list or seek that a helper does beside others. */
struct lpi_fstore_read {
	struct lp_work work;
	struct lpi_fstore_store *store;
	struct lp_store_op *op;
	struct lpi_fstore_read *next; /* while free */
	uint32_t buf_cnt;
	struct lp_buf *bufs[LP_STORE_READ_MAX / LP_BLOCK_BYTES + 2]; /* of a read of data: from the
									block it begins in on */
	struct lp_seg segs[LP_STORE_READ_MAX / LP_BLOCK_BYTES + 2];
	uint32_t crcs[LP_STORE_READ_MAX / LP_BLOCK_BYTES + 2];
	struct lpi_fstore_inode inode;
};

#define LPI_FSTORE_INODES_MAX   (2 * LP_STORE_CHANGES_MAX)
#define LPI_FSTORE_SYNCS_MAX    256u
#define LPI_FSTORE_WRITE_PIECES (LP_STORE_WRITE_MAX / LP_BLOCK_BYTES + 1)

/* What evaluates; of the helper that does. */
struct lpi_fstore_eval {
	struct lp_work work;
	struct lpi_fstore_store *store;
	enum lp_write_path write_path; /* of writes that leave it open */
	bool is_read_only;
	struct lpi_fstore_ops todo; /* what is left is for later */
	struct lpi_fstore_ops done;
	bool is_later; /* the first of todo needs that no group is under way */
	bool is_full;  /* it needs another group */
	int fatal;     /* the store fails */

	struct lpi_fstore_view view;
	struct lpi_fstore_overlay txn;
	struct lpi_fstore_inode inodes[LPI_FSTORE_INODES_MAX];
	uint32_t inode_cnt;
	uint64_t ino_bound; /* numbers below may be in use after a crash */
	uint64_t ino_top;   /* greater than that of any inode that ever was */
	uint64_t offset;    /* of the transaction's write */
	struct lpi_object_place syncs[LPI_FSTORE_SYNCS_MAX]; /* files written directly */
	uint32_t sync_cnt;
	uint64_t room_bytes; /* that the host had when this began */
	uint64_t need_bytes; /* of it */
	uint64_t free_blocks;
	uint64_t used_blocks;
	uint64_t trim_ino;                      /* whose map is being cut, step by step; 0: none */
	uint64_t trim_wanted;                   /* by the transaction */
	bool gone_is_left;                      /* something was removed and is not freed */
	enum lp_write_path path;                /* of the transaction's write */
	uint32_t crcs[LPI_FSTORE_WRITE_PIECES]; /* of an append, cut anew */
	struct iovec iov[2 * LPI_LEAF_BLOCKS];
	uint8_t *bounce; /* LPI_LEAF_BLOCKS blocks */
};

struct lpi_fstore_store {
	struct lp_store base;
	struct lp_store_options options;
	struct lp_reactor *reactor;
	struct lpi_objects objects;
	struct lp_kvfs_posix kvfs;
	struct lp_kv *kv;
	uint32_t shard_cnt; /* of the directory */
	int shard_fd;
	int index_fd;
	struct lp_bdev *bdev; /* the journal's file */
	struct lp_bdev_chan *chan;
	struct lp_log *log;
	uint64_t next_ino;
	enum lp_write_path write_path;

	struct lpi_fstore_ops queue;
	struct lpi_fstore_group groups[2];
	struct lpi_fstore_group *open;
	struct lpi_fstore_group *sealed; /* NULL: none */
	bool is_durable;                 /* the sealed one is */
	bool is_writing;                 /* it is being written */
	bool is_evaluating;
	bool is_applying;
	bool is_freeing; /* of what was removed something is left */
	bool is_checkpointing;
	bool is_waiting_for_log;
	bool needs_quiet; /* the first of the queue waits until no group is under way */
	bool hold_is_over;
	bool is_trimming; /* a frame that only trims is under way */
	uint32_t readers;
	uint32_t reads_cnt; /* not yet ended */
	uint64_t applied_seq;
	uint64_t checkpoint_seq;
	uint64_t trimmed_seq;
	uint64_t start_frames;
	uint64_t start_payloads;
	uint64_t start_ns;
	struct lpi_fstore_eval *eval;
	struct lp_work apply_work;
	struct lp_work checkpoint_work;
	int apply_result;
	int checkpoint_result;
	struct lp_log_waiter log_waiter;
	struct lp_log_frame trim_frame;
	struct lp_timer hold_timer;
	struct lp_timer buf_timer;   /* a read waits for buffers */
	struct lp_timer retry_timer; /* a checkpoint found the host full */
	struct lp_task step_task;
	struct lp_task deliver_task;
	struct lpi_fstore_ops done;
	struct lpi_fstore_read *free_reads;

	int error;    /* 0, or why nothing is changed any more */
	bool is_dead; /* nor read */
	bool is_closing;
	bool is_health_due;
	struct lp_store_health health;
	struct lp_store_stats stats;
};

static inline struct lpi_fstore_store *lpi_fstore_store_of(struct lp_store *base)
{
	return LP_CONTAINER_OF(base, struct lpi_fstore_store, base);
}

/* [shard] What can be done is begun. */
void lpi_fstore_step(struct lpi_fstore_store *store);
/* Nothing is changed any more, and nothing read either if is_dead. */
void lpi_fstore_fail(struct lpi_fstore_store *store, int err, bool is_dead, const char *what);
void lpi_fstore_checkpoint_init(struct lpi_fstore_store *store);
void lpi_fstore_try_checkpoint(struct lpi_fstore_store *store);
void lpi_fstore_try_trim(struct lpi_fstore_store *store);
void lpi_fstore_step_soon(struct lpi_fstore_store *store);
/* No operation, job or frame is under way, and all is applied. */
bool lpi_fstore_is_idle(const struct lpi_fstore_store *store);
/* What was ordered becomes durable soon. */
void lpi_fstore_want_all(struct lpi_fstore_store *store);
/* A frame that says what the journal need not keep: under way while is_trimming. */
void lpi_fstore_trim(struct lpi_fstore_store *store);
/* Nothing more is written, and all is dropped. */
void lpi_fstore_abandon(struct lpi_fstore_store *store);
int lpi_fstore_calls_init(struct lpi_fstore_store *store) LP_MUST_CHECK;
/* Also of what is only half made. */
void lpi_fstore_calls_fini(struct lpi_fstore_store *store);
int lpi_fstore_close(struct lp_store *base, bool abandon) LP_MUST_CHECK;

/* [helper] Takes a group's blocks to their files, its records into the index, and gives back the
 * space that they no longer name. */
int lpi_fstore_apply(struct lpi_fstore_store *store,
		     const struct lpi_fstore_group *group) LP_MUST_CHECK;
/* [helper] All that was applied stays: then the journal need not keep it. */
int lpi_fstore_checkpoint(struct lpi_fstore_store *store) LP_MUST_CHECK;
/* [helper] A batch, waiting for an index that is busy. */
int lpi_fstore_write_batch(struct lp_kv *kv, struct lp_kv_batch *batch) LP_MUST_CHECK;

/* [helper] What the host has left, into store->eval. */
void lpi_fstore_read_room(struct lpi_fstore_store *store);
/* [helper] The operations of eval->todo, in their order. */
void lpi_fstore_evaluate(struct lpi_fstore_store *store);
/* 0, an error, or LPI_FSTORE_LATER. */
int lpi_fstore_txn(struct lpi_fstore_store *store, struct lp_store_op *op) LP_MUST_CHECK;
int lpi_fstore_inode_find(struct lpi_fstore_eval *eval, struct lp_ino ino,
			  struct lpi_fstore_inode **ret_inode) LP_MUST_CHECK;
int lpi_fstore_inode_read(const struct lpi_fstore_view *view, struct lp_ino ino,
			  struct lpi_fstore_inode *ret_inode) LP_MUST_CHECK;
void lpi_fstore_inode_attrs(const struct lpi_fstore_inode *inode, struct lp_attrs *ret_attrs);
/* -ENOENT when there is none. */
int lpi_fstore_fragment(const struct lpi_fstore_view *view, struct lp_ino ino,
			struct lp_fragment_value *ret_value) LP_MUST_CHECK;
int lpi_fstore_data(struct lpi_fstore_store *store, const struct lp_change *change,
		    struct lpi_fstore_inode *inode) LP_MUST_CHECK;
/* Content that waits for blocks from this one on is not wanted any more. */
int lpi_fstore_drop_payloads(struct lpi_fstore_store *store, struct lp_ino ino,
			     uint64_t block) LP_MUST_CHECK;
/* Removes leaves from the block on, a bounded number, and moves it behind them: 0 all, 1 there are
 * more. */
int lpi_fstore_cut(struct lpi_fstore_eval *eval, struct lpi_fstore_inode *inode,
		   uint64_t *block) LP_MUST_CHECK;
/* The inodes that were changed, into the transaction's overlay. */
int lpi_fstore_inodes_encode(struct lpi_fstore_eval *eval) LP_MUST_CHECK;
/* Frees some of what was removed, of what the index knows. */
int lpi_fstore_free_some(struct lpi_fstore_store *store) LP_MUST_CHECK;
/* All of one inode, now; the index knows of it. */
int lpi_fstore_free_ino(struct lpi_fstore_store *store, struct lp_ino ino) LP_MUST_CHECK;

/* [helper] Of a block with data: its content as of the view. Not verified. */
int lpi_fstore_block(struct lpi_fstore_store *store, const struct lpi_fstore_view *view,
		     const struct lpi_object_place *place, void *ret_block) LP_MUST_CHECK;

/* Questions that need one record or two: STAT, LOOKUP, GET, DIR. */
int lpi_fstore_ask(const struct lpi_fstore_view *view, struct lp_store_op *op) LP_MUST_CHECK;
int lpi_fstore_list(struct lpi_fstore_store *store, struct lp_store_op *op) LP_MUST_CHECK;
int lpi_fstore_seek(struct lpi_fstore_store *store, struct lp_store_op *op) LP_MUST_CHECK;
/* Into the buffers of op->work, a struct lpi_fstore_read. */
int lpi_fstore_read_data(struct lpi_fstore_store *store, const struct lpi_fstore_view *view,
			 struct lp_store_op *op) LP_MUST_CHECK;

static inline int lpi_fstore_data_err(const struct lpi_fstore_inode *inode)
{
	if (inode->rec.type == LP_INODE_TYPE_FILE)
		return 0;
	return inode->rec.type == LP_INODE_TYPE_DIR ? -EISDIR : -EINVAL;
}

#endif
