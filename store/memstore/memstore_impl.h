/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that the parts of the store in memory share.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: allocated for new objects; none when a block is overwritten or read.
 *
 * memstore/memstore.c runs operations, memstore/txn.c transactions, memstore/data.c changes of
 * data, memstore/read.c reads, memstore/pages.c the pages of a file, memstore/named.c small
 * things.
 */
#ifndef LP_STORE_MEMSTORE_MEMSTORE_IMPL_H
#define LP_STORE_MEMSTORE_MEMSTORE_IMPL_H

#include "base/struct/tree.h"
#include "store/record/csum.h"
#include "store/store_kinds.h"

/* --- Pages of a file -------------------------------------------------------------------------- */

/* A block of a file. Its buffer may be shared with readers, other files, or who sent it: it is
 * written to only when this is the only reference. */
struct lpi_mem_page {
	struct lp_buf *buf; /* NULL: a hole */
	uint32_t crc;
	bool is_unwritten; /* has space, and reads as zeros */
};

struct lpi_mem_pages {
	void *root;      /* NULL, a leaf (height 0), or a node */
	uint32_t height; /* of nodes above the leaves */
	uint64_t cnt;    /* of pages with a buffer */
};

LP_LIST_DEFINE(lpi_mem_bufs, struct lp_buf, node);
LP_LIST_DEFINE(lpi_mem_ops, struct lp_store_op, node);

static inline bool lpi_mem_page_is_data(const struct lpi_mem_page *page)
{
	return page != NULL && page->buf != NULL && !page->is_unwritten;
}

/* NULL when there has never been one near. */
struct lpi_mem_page *lpi_mem_page_find(const struct lpi_mem_pages *pages, uint64_t block);
/* The place for one, which stays where it is; NULL: no memory. */
struct lpi_mem_page *lpi_mem_page_make(struct lpi_mem_pages *pages, uint64_t block);
/* The first block from this one on that has data; UINT64_MAX: none. */
uint64_t lpi_mem_pages_next_data(const struct lpi_mem_pages *pages, uint64_t block);
/* It becomes a hole. */
void lpi_mem_page_drop(struct lpi_mem_pages *pages, struct lpi_mem_page *page);
/* All from this block on, and their places. */
void lpi_mem_pages_cut(struct lpi_mem_pages *pages, uint64_t block);

/* The part of [at, end) that lies in at's block. */
static inline struct lp_csum_piece lpi_mem_piece_at(uint64_t at, uint64_t end, uint32_t crc)
{
	LP_ASSERT(at < end);
	uint32_t offset = (uint32_t)(at & (LP_BLOCK_BYTES - 1));
	uint64_t len = LP_MIN(end - at, LP_BLOCK_BYTES - offset);
	return (struct lp_csum_piece){offset, (uint32_t)len, crc};
}

static inline bool lpi_mem_is_whole(const struct lp_csum_piece *piece)
{
	return piece->len_bytes == LP_BLOCK_BYTES;
}

/* --- Small things ----------------------------------------------------------------------------- */

/* An entry, xattr, omap value or record, in one piece of memory with name and value. */
struct lpi_mem_item {
	struct lp_tree_node node;
	struct lp_bytes name;
	struct lp_bytes value;
	uint64_t insertion;
	struct lp_ino ino;
	uint8_t type;
};

static inline bool lpi_mem_item_less(const struct lpi_mem_item *a, const struct lpi_mem_item *b)
{
	return lp_key_compare(a->name.data, a->name.len, b->name.data, b->name.len) < 0;
}

LP_TREE_DEFINE(lpi_mem_items, struct lpi_mem_item, node, lpi_mem_item_less);

/* NULL: no memory. */
struct lpi_mem_item *lpi_mem_item_new(const struct lp_change *change);
struct lpi_mem_item *lpi_mem_item_find(const struct lpi_mem_items *items, struct lp_bytes name);
/* In place of one of that name, whose insertion it keeps; the old one is freed. True if there was
 * none. */
bool lpi_mem_item_put(struct lpi_mem_items *items, struct lpi_mem_item *item);
/* There is one. */
void lpi_mem_item_remove(struct lpi_mem_items *items, struct lp_bytes name);
void lpi_mem_items_clear(struct lpi_mem_items *items);

/* --- Inodes and directories ------------------------------------------------------------------- */

struct lpi_mem_id {
	struct lpi_mem_id *next_in_bucket;
	uint64_t nr;
};

struct lpi_mem_table {
	struct lpi_mem_id **buckets;
	uint64_t mask;
	uint64_t cnt;
};

int lpi_mem_table_init(struct lpi_mem_table *table) LP_MUST_CHECK;
void lpi_mem_table_insert(struct lpi_mem_table *table, struct lpi_mem_id *id);
void lpi_mem_table_remove(struct lpi_mem_table *table, struct lpi_mem_id *id);

static inline struct lpi_mem_id **lpi_mem_table_bucket(const struct lpi_mem_table *table,
						       uint64_t nr)
{
	/* Numbers are given one after the other: the multiplication spreads shard and counter. */
	return &table->buckets[(nr * UINT64_C(0x9e3779b97f4a7c15) >> 20) & table->mask];
}

static inline struct lpi_mem_id *lpi_mem_table_find(const struct lpi_mem_table *table, uint64_t nr)
{
	struct lpi_mem_id *id = *lpi_mem_table_bucket(table, nr);
	while (id != NULL && id->nr != nr)
		id = id->next_in_bucket;
	return id;
}

struct lpi_mem_inode {
	struct lpi_mem_id id;
	struct lp_tree_node node; /* in the order of numbers, for lists */
	struct lp_attrs attrs;    /* but for blocks */
	struct lpi_mem_pages pages;
	struct lpi_mem_items xattrs;
	struct lpi_mem_items omap;
	uint8_t *target;    /* of a symlink: attrs.size_bytes */
	uint64_t bumped_by; /* the transaction that its version counts last */
};

static inline bool lpi_mem_inode_less(const struct lpi_mem_inode *a, const struct lpi_mem_inode *b)
{
	return a->id.nr < b->id.nr;
}

LP_TREE_DEFINE(lpi_mem_inodes, struct lpi_mem_inode, node, lpi_mem_inode_less);

/* This shard's fragment of a directory. One that says nothing is as good as none. */
struct lpi_mem_dir {
	struct lpi_mem_id id;
	struct lpi_mem_items entries;
	uint64_t entries_cnt;
	uint64_t name_bytes;
	uint64_t last_insertion;
	int64_t mtime_ns;
	int64_t ctime_ns;
	bool is_sealed;
};

/* --- The store -------------------------------------------------------------------------------- */

#define LPI_MEM_READ_PIECES  (LP_STORE_READ_MAX / LP_BLOCK_BYTES + 1)
#define LPI_MEM_WRITE_PIECES (LP_STORE_WRITE_MAX / LP_BLOCK_BYTES + 1)

/* What a read has given out. */
struct lpi_mem_read {
	struct lpi_mem_read *next; /* while free */
	struct lp_seg segs[LPI_MEM_READ_PIECES];
	uint32_t crcs[LPI_MEM_READ_PIECES];
};

/* A block that a change covers in part, and its crc afterwards. */
struct lpi_mem_edge {
	struct lpi_mem_page *page;
	struct lp_csum_piece piece;
	uint32_t crc;
};

/* The one change of data that a transaction may have, when it is sure to succeed. */
struct lpi_mem_data {
	struct lpi_mem_inode *inode;
	struct lpi_mem_inode *src; /* of a clone */
	uint64_t offset;
	uint64_t end;
	const uint32_t *crcs;
	struct lpi_mem_edge edges[2]; /* in their order */
	uint32_t edge_cnt;
};

/* What was made for a change before anything is changed. */
struct lpi_mem_step {
	struct lpi_mem_inode *inode; /* that it is about */
	struct lpi_mem_dir *dir;
	struct lpi_mem_item *item;
	int delta; /* of the number of entries */
};

struct lpi_mem_store {
	struct lp_store store;
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	uint32_t shard_idx;
	uint64_t next_ino;
	uint64_t txn_nr;
	struct lpi_mem_table inodes;
	struct lpi_mem_table dirs;
	struct lpi_mem_inodes inodes_by_nr;
	struct lpi_mem_items records;

	struct lp_buf *zeros;         /* what holes are read from */
	struct lpi_mem_bufs reserved; /* for the transaction at work */
	struct lpi_mem_read *free_reads;
	uint64_t reads_cnt; /* not yet ended */
	struct lpi_mem_data data;
	struct lpi_mem_step steps[LP_STORE_CHANGES_MAX];
	uint32_t crcs[LPI_MEM_WRITE_PIECES]; /* of an append, cut anew */

	struct lp_task deliver;
	struct lpi_mem_ops done; /* wait for it */
	struct lp_store_stats stats;
};

static inline struct lpi_mem_store *lpi_mem_store_of(struct lp_store *store)
{
	return LP_CONTAINER_OF(store, struct lpi_mem_store, store);
}

struct lpi_mem_inode *lpi_mem_inode_find(const struct lpi_mem_store *store, struct lp_ino ino);
/* In no table yet. NULL: no memory. */
struct lpi_mem_inode *lpi_mem_inode_new(const struct lp_change *change);
/* Also all that belongs to it. Accepts NULL. */
void lpi_mem_inode_free(struct lpi_mem_inode *inode);
void lpi_mem_inode_attrs(const struct lpi_mem_inode *inode, struct lp_attrs *ret_attrs);
struct lpi_mem_dir *lpi_mem_dir_find(const struct lpi_mem_store *store, struct lp_ino ino);
/* Finds or makes. NULL: no memory. */
struct lpi_mem_dir *lpi_mem_dir_make(struct lpi_mem_store *store, struct lp_ino ino);
/* It has no entries; there may be none. */
void lpi_mem_dir_drop(struct lpi_mem_store *store, struct lp_ino ino);

int lpi_mem_txn(struct lpi_mem_store *store, struct lp_store_op *op) LP_MUST_CHECK;

/* Takes all that the change of data needs, or fails. */
int lpi_mem_data_prepare(struct lpi_mem_store *store, const struct lp_change *change,
			 struct lpi_mem_inode *inode, struct lpi_mem_inode *src) LP_MUST_CHECK;
void lpi_mem_data_apply(struct lpi_mem_store *store, const struct lp_change *change);
/* After a failure: gives back what was taken. */
void lpi_mem_data_undo(struct lpi_mem_store *store);

int lpi_mem_read(struct lpi_mem_store *store, struct lp_store_op *op) LP_MUST_CHECK;
void lpi_mem_read_end(struct lpi_mem_store *store, struct lp_store_op *op);
int lpi_mem_seek(struct lpi_mem_store *store, struct lp_store_op *op) LP_MUST_CHECK;
int lpi_mem_lookup(struct lpi_mem_store *store, struct lp_store_op *op) LP_MUST_CHECK;
int lpi_mem_get(struct lpi_mem_store *store, struct lp_store_op *op) LP_MUST_CHECK;
int lpi_mem_list(struct lpi_mem_store *store, struct lp_store_op *op) LP_MUST_CHECK;

/* Data of what is no file. */
static inline int lpi_mem_file_err(const struct lpi_mem_inode *inode)
{
	if (inode->attrs.type == LP_INODE_TYPE_FILE)
		return 0;
	return inode->attrs.type == LP_INODE_TYPE_DIR ? -EISDIR : -EINVAL;
}

#endif
