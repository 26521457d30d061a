/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded records of the index in memory: inodes with maps, fragments, counts.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: nodes and leaves lie in slabs.
 * Errors: -ENOMEM. -EBADMSG, -EUCLEAN of what is decoded.
 * Limits: the budget may be exceeded by nodes that are pinned, or not yet in the index and
 * durable.
 *
 * A node in memory is the truth. Changes are made to it, and its record is written once per
 * commit group, however often it changed. It may leave memory only when its newest record is in
 * the index, and durable. So the index has the truth of all that is not in memory (rule W1), no
 * crash takes it back (P3), and no one needs to look for its record in the overlay. A node also
 * stands for a record that does not exist.
 *
 * A record that replaces one in the index is owed to it (commit/owed_records.h). It goes into the
 * group's frame, and into the index when the log is to be trimmed, or when too much is owed
 * (node_owed.c). New records enter with their group, because owing them would only fill the
 * memory. So do deletions.
 *
 * Eviction is scan-resistant: a new node waits in a small queue and leaves again unless it was
 * used meanwhile. A used one moves to the main queue and gets second chances there (S3-FIFO
 * without ghosts). Of large extent maps leaves go first.
 */
#ifndef LP_STORE_NODES_NODE_H
#define LP_STORE_NODES_NODE_H

#include "base/memory/slabs.h"
#include "store/commit/commit.h"
#include "store/extmap/extmap.h"
#include "store/nodes/name_filter.h"
#include "store/record/inode.h"
#include "store/record/ref_counts.h"
#include "store/record/values.h"
#include "store/store.h"

enum lpi_node_kind { LPI_NODE_INODE, LPI_NODE_FRAGMENT, LPI_NODE_REFS, LPI_NODE_KINDS };

struct lpi_nodes;
struct lpi_trim;

/* Fields are for reading; but exists, which who changes the node sets. */
struct lpi_node {
	struct lpi_node *next_in_bucket;
	struct lp_list_node queue_node;
	struct lp_commit_dirty dirty;
	struct lpi_nodes *home;
	uint64_t id;    /* number of the inode, or of the group of blocks */
	uint64_t group; /* of the commit that carries its newest state, with a fragment also that of
			   its entries; 0: as it was loaded */
	/* The group with which the newest of its records, or leaves, enters the index that is not
	 * owed; 0: it was there before. */
	uint64_t index_group;
	uint64_t bytes;    /* as accounted */
	uint32_t owed_cnt; /* records, as accounted: its own, and leaves */
	uint32_t pins;
	uint8_t kind;
	uint8_t used;
	bool in_main;
	bool exists;
	bool is_stored; /* the index has a record, or will by a batch under way */
	bool is_owed;   /* its own record is */
};

struct lpi_inode {
	struct lpi_node node;
	/* name, target, content, xattrs are this node's own memory; map is unused. */
	struct lp_inode rec;
	struct lp_extmap map;
	/* Its blocks from some number on are being freed in the background; its data may not be
	 * changed until that has ended. NULL: no. */
	struct lpi_trim *trim;
	uint32_t name_max; /* bytes allocated */
	uint32_t target_max;
	uint32_t content_max;
	uint32_t xattrs_max;
};

struct lpi_fragment {
	struct lpi_node node;
	struct lp_fragment_value value;
	struct lp_names *names; /* NULL: it is not known which names it has */
};

struct lpi_refs {
	struct lpi_node node;
	struct lp_refs refs;
};

/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
LP_LIST_DEFINE(lpi_node_queue, struct lpi_node, queue_node);

#define LPI_OWED_RUNS 16u

struct lpi_owed_record;

/* A sorted part of the records that are being paid. */
struct lpi_owed_run {
	const struct lpi_owed_record *next;
	const struct lpi_owed_record *end;
};

/* What is owed of all nodes. */
struct lpi_owing {
	struct lp_owed owed;
	uint32_t max;                    /* of records in either of these, */
	uint32_t run_max;                /* and in a run */
	struct lpi_owed_record *records; /* owed since the payment began, in sorted runs */
	struct lpi_owed_record *paying;
	uint32_t cnt;   /* of records */
	uint64_t bytes; /* of memory that these keep */
	uint32_t run_cnt;
	struct lpi_owed_run runs[LPI_OWED_RUNS]; /* of what is being paid, run_cnt of them */
};

struct lpi_nodes {
	struct lp_commit *commit; /* NULL: read-only, nothing ever changes */
	struct lp_slabs *slabs;   /* of nodes, their parts and leaves */
	struct lp_extmap_mem map_mem;
	struct lpi_node **buckets; /* as many as the budget has nodes, roughly: chains stay short */
	uint32_t bucket_bits;
	uint64_t cnt;
	struct lpi_node_queue small;
	struct lpi_node_queue main;
	uint64_t small_bytes;
	uint64_t bytes; /* of all nodes */
	uint64_t limit_bytes;
	uint64_t hits;
	uint64_t misses;
	uint64_t evictions;
	uint8_t *scratch; /* for encoding */
	uint64_t names_seed;
	uint64_t names_bytes; /* of all fragments */
	struct lpi_owing owing;
};

int lpi_nodes_init(struct lpi_nodes *nodes, struct lp_commit *commit,
		   uint64_t limit_bytes) LP_MUST_CHECK;
/* What the table takes, beside the nodes. */
uint64_t lpi_nodes_table_bytes(uint64_t limit_bytes);
/* Also with nodes that were not written, which are lost. Nothing may be pinned. */
void lpi_nodes_fini(struct lpi_nodes *nodes);
/* Evicts until the budget is kept, as far as possible; a bounded part at a time. */
void lpi_nodes_shrink(struct lpi_nodes *nodes);
/* The same with the map of an inode that the caller has pinned, and nobody else: he has gone past
 * its leaves, reads none of them from the index now, and may have to ask for any again. */
void lpi_node_shrink_map(struct lpi_node *node);

/* The node, if it is in memory. */
struct lpi_node *lpi_node_find(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id);
/* Makes it from the index's record; data NULL: there is none. Not in memory yet. */
int lpi_node_load(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id,
		  struct lp_kv_bytes value, struct lpi_node **ret_node) LP_MUST_CHECK;
/* The key of its record. */
void lpi_node_key(enum lpi_node_kind kind, uint64_t id, struct lp_key *ret_key);

static inline void lpi_node_pin(struct lpi_node *node)
{
	node->pins++;
}

static inline void lpi_node_unpin(struct lpi_node *node)
{
	LP_ASSERT(node->pins > 0);
	node->pins--;
}

/* Leaves were loaded: it takes more memory than before. */
void lpi_node_account(struct lpi_node *node);
/* After a change, or before; room for its record was reserved. */
void lpi_node_changed(struct lpi_node *node);
/* The same for what is not in its record: an entry of the fragment leads elsewhere. */
void lpi_node_noted(struct lpi_node *node);
/* What it says now is durable. */
bool lpi_node_is_durable(const struct lpi_node *node);
/* Its record will be written with the group that collects. */
static inline bool lpi_node_is_dirty(const struct lpi_node *node)
{
	return lp_commit_is_dirty(&node->dirty);
}

/* --- What is owed (node_owed.c) --------------------------------------------------------------- */

/* Of memory, besides the nodes. */
uint64_t lpi_owing_bytes(uint64_t limit_bytes);
/* -ENOMEM. */
int lpi_owing_init(struct lpi_nodes *nodes) LP_MUST_CHECK;
void lpi_owing_fini(struct lpi_nodes *nodes);
/* A record of the group that is being sealed may be owed. */
bool lpi_owing_is_open(struct lpi_nodes *nodes);
/* The record of the node in this space of keys is owed from now on; leaf: which one of its map. */
void lpi_owing_add(struct lpi_node *node, uint8_t space, uint32_t leaf, size_t len);
/* More or less of the node is owed than before. */
void lpi_owing_account(struct lpi_node *node);
/* In memory, without counting as a use. */
struct lpi_node *lpi_node_peek(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id);
/* The record, as nodes->scratch has it then; returns its length, 0: there is none. */
size_t lpi_node_encode(struct lpi_node *node);

static inline struct lpi_inode *lpi_inode_of(struct lpi_node *node)
{
	LP_ASSERT(node->kind == LPI_NODE_INODE);
	return LP_CONTAINER_OF(node, struct lpi_inode, node);
}

static inline struct lpi_fragment *lpi_fragment_of(struct lpi_node *node)
{
	LP_ASSERT(node->kind == LPI_NODE_FRAGMENT);
	return LP_CONTAINER_OF(node, struct lpi_fragment, node);
}

static inline struct lpi_refs *lpi_refs_of(struct lpi_node *node)
{
	LP_ASSERT(node->kind == LPI_NODE_REFS);
	return LP_CONTAINER_OF(node, struct lpi_refs, node);
}

/* It is there for readers: not absent, and not one that only waits for its space to be freed. */
static inline bool lpi_inode_is_there(const struct lpi_inode *inode)
{
	return inode->node.exists && (inode->rec.flags & LP_INODE_FLAG_REMOVED) == 0;
}

/* It is removed. Who makes one of its number looks at what is here before it is made. */
static inline void lpi_inode_end(struct lpi_inode *inode)
{
	inode->node.exists = false;
	inode->rec.size_bytes = 0;
	inode->rec.content.len = 0;
}

/* The byte pieces of an inode that change: memory is made sure of first, then the change cannot
 * fail. */
enum lpi_inode_part { LPI_PART_NAME, LPI_PART_TARGET, LPI_PART_CONTENT, LPI_PART_XATTRS };

/* Of one that was removed, and is made again while this node is in memory: nothing of what it had
 * is left. Its map is empty. */
void lpi_inode_clear(struct lpi_inode *inode);
int lpi_inode_make_room(struct lpi_inode *inode, enum lpi_inode_part which,
			uint32_t bytes) LP_MUST_CHECK;
/* There is room. len 0: none. bytes may be the part's own memory. */
void lpi_inode_set_part(struct lpi_inode *inode, enum lpi_inode_part which, const void *bytes,
			uint32_t len);
uint8_t *lpi_inode_part_memory(struct lpi_inode *inode, enum lpi_inode_part which);

/* The fragment is being made, and has no names; from now on it knows them, if there never was one
 * of its directory whose end may not be durable. Before it changes. */
void lpi_fragment_begin_names(struct lpi_fragment *fragment);
void lpi_fragment_add_name(struct lpi_fragment *fragment, const void *name, size_t len);
/* It is in memory, and has no such name, nor had it ever. */
bool lpi_fragment_lacks(struct lpi_nodes *nodes, uint64_t dir_nr, const void *name, size_t len);

/* What the group that collects must set aside for the node's record as it is: 0 when it is dirty,
 * for then that was done. */
uint32_t lpi_node_need(const struct lpi_node *node);

void lpi_inode_attrs(const struct lpi_inode *inode, struct lp_attrs *ret_attrs);

#endif
