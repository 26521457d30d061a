/* SPDX-License-Identifier: Apache-2.0 */
/* Decoded records of the index in memory: inodes with maps, fragments, counts.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: nodes and leaves lie in slabs.
 * Errors: -ENOMEM. -EBADMSG, -EUCLEAN for damaged records.
 * Limits: the budget may be exceeded by nodes that are pinned, or not yet in the index and durable.
 *
 * A node in memory is the truth. Changes are made to the node, and its record is written once per
 * commit group, however often it changed. A node may leave memory only when its newest record is in
 * the index, and durable. So for nodes not in memory the index has the truth (rule W1), no crash
 * takes it back (P3), and no reader needs to look for a node's record in the overlay. A node also
 * stands for a record that does not exist.
 *
 * The index write of a record that replaces one in the index is deferred (commit/owed_records.h).
 * The record goes into the group's frame, and into the index when the log must be trimmed, or when
 * too many are deferred (node_owed.c). New records enter with their group, because deferring them
 * would only fill the memory. So do deletions.
 *
 * Eviction is scan-resistant: a new node waits in a small queue and is evicted unless it was used
 * meanwhile. A used one moves to the main queue and gets second chances there (S3-FIFO without
 * ghosts). Leaves of large extent maps are evicted first.
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

/* Fields are for reading, except exists, which the caller that changes the node sets. */
struct lpi_node {
	struct lpi_node *next_in_bucket;
	struct lp_list_node queue_node;
	struct lp_commit_dirty dirty;
	struct lpi_nodes *home;
	uint64_t id;    /* number of the inode, or of the group of blocks */
	uint64_t group; /* the commit group of its newest state, for a fragment also that of its
			   entries; 0: as it was loaded */
	/* The group with which its newest record or leaf enters the index, not counting deferred
	 * ones; 0: all were there before. */
	uint64_t index_group;
	uint64_t bytes;    /* as accounted */
	uint32_t owed_cnt; /* owed records, as accounted: its own, and leaves */
	uint32_t pins;
	uint8_t kind;
	uint8_t used;
	bool in_main;
	bool exists;
	bool is_stored; /* the index has a record, or will by a batch under way */
	bool is_owed;   /* the index write of its own record is deferred */
};

struct lpi_inode {
	struct lpi_node node;
	/* name, target, content, xattrs are this node's own memory; map is unused. */
	struct lp_inode rec;
	struct lp_extmap map;
	/* The store is freeing its blocks from some number on in the background; until that has
	 * ended its data may not be changed. NULL: no. */
	struct lpi_trim *trim;
	uint32_t name_max; /* bytes allocated */
	uint32_t target_max;
	uint32_t content_max;
	uint32_t xattrs_max;
};

struct lpi_fragment {
	struct lpi_node node;
	struct lp_fragment_value value;
	struct lp_names *names; /* NULL: its names are not known */
};

struct lpi_refs {
	struct lpi_node node;
	struct lp_refs refs;
};

/* NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
LP_LIST_DEFINE(lpi_node_queue, struct lpi_node, queue_node);

#define LPI_OWED_RUNS 16u

struct lpi_owed_record;

/* A sorted part of the owed records that are being written. */
struct lpi_owed_run {
	const struct lpi_owed_record *next;
	const struct lpi_owed_record *end;
};

/* Owed records of all nodes. */
struct lpi_owing {
	struct lp_owed owed;
	uint32_t max;                    /* records in either of these, */
	uint32_t run_max;                /* and in a run */
	struct lpi_owed_record *records; /* deferred since the payment began, in sorted runs */
	struct lpi_owed_record *paying;
	uint32_t cnt;   /* of records */
	uint64_t bytes; /* memory kept for these records */
	uint32_t run_cnt;
	struct lpi_owed_run runs[LPI_OWED_RUNS]; /* records being paid, run_cnt runs */
};

struct lpi_nodes {
	struct lp_commit *commit; /* NULL: read-only, nothing ever changes */
	struct lp_slabs *slabs;   /* of nodes, their parts and leaves */
	struct lp_extmap_mem map_mem;
	struct lpi_node **buckets; /* roughly as many as nodes fit into the budget, so that chains
				      stay short */
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
/* Memory of the table, beside the nodes. */
uint64_t lpi_nodes_table_bytes(uint64_t limit_bytes);
/* Nodes that were not written are lost. None may be pinned. */
void lpi_nodes_fini(struct lpi_nodes *nodes);
/* Evicts until the budget is kept, as far as possible; a bounded part at a time. */
void lpi_nodes_shrink(struct lpi_nodes *nodes);
/* The same for the map of an inode that only the caller has pinned. The caller has gone past the
 * map's leaves, reads none of them from the index now, and may have to read any again. */
void lpi_node_shrink_map(struct lpi_node *node);

/* The node, if it is in memory. */
struct lpi_node *lpi_node_find(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id);
/* Makes it from the index's record; data NULL: there is none. It must not be in memory yet. */
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
/* After a change, or before; room for its record must be reserved. */
void lpi_node_changed(struct lpi_node *node);
/* The same for a change that is not in its record: an entry of the fragment leads elsewhere. */
void lpi_node_noted(struct lpi_node *node);
/* Its present state is durable. */
bool lpi_node_is_durable(const struct lpi_node *node);
/* Its record will be written with the collecting group. */
static inline bool lpi_node_is_dirty(const struct lpi_node *node)
{
	return lp_commit_is_dirty(&node->dirty);
}

/* --- Owed records (node_owed.c) --------------------------------------------------------------- */

/* Memory for owed records, besides the nodes. */
uint64_t lpi_owing_bytes(uint64_t limit_bytes);
/* -ENOMEM. */
int lpi_owing_init(struct lpi_nodes *nodes) LP_MUST_CHECK;
void lpi_owing_fini(struct lpi_nodes *nodes);
/* Whether the index write of a record of the group that is being sealed may be deferred. */
bool lpi_owing_is_open(struct lpi_nodes *nodes);
/* The index write of the node's record in this key space is deferred from now on; leaf: which one
 * of its map. */
void lpi_owing_add(struct lpi_node *node, uint8_t space, uint32_t leaf, size_t len);
/* The number of owed records of the node has changed. */
void lpi_owing_account(struct lpi_node *node);
/* In memory; does not count as a use. */
struct lpi_node *lpi_node_peek(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id);
/* The record, which is in nodes->scratch then; returns its length, 0: there is none. */
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

/* Readers see it: it exists, and is not one that only waits for its space to be freed. */
static inline bool lpi_inode_is_there(const struct lpi_inode *inode)
{
	return inode->node.exists && (inode->rec.flags & LP_INODE_FLAG_REMOVED) == 0;
}

/* The inode is removed. A caller that makes a new one with its number checks this node first. */
static inline void lpi_inode_end(struct lpi_inode *inode)
{
	inode->node.exists = false;
	inode->rec.size_bytes = 0;
	inode->rec.content.len = 0;
}

/* The byte parts of an inode that change: room is made first, then the change cannot fail. */
enum lpi_inode_part { LPI_PART_NAME, LPI_PART_TARGET, LPI_PART_CONTENT, LPI_PART_XATTRS };

/* For an inode that was removed, and is made again while this node is in memory: clears all former
 * parts. Its map must be empty. */
void lpi_inode_clear(struct lpi_inode *inode);
int lpi_inode_make_room(struct lpi_inode *inode, enum lpi_inode_part which,
			uint32_t bytes) LP_MUST_CHECK;
/* There must be room. len 0: none. bytes may be the part's own memory. */
void lpi_inode_set_part(struct lpi_inode *inode, enum lpi_inode_part which, const void *bytes,
			uint32_t len);
uint8_t *lpi_inode_part_memory(struct lpi_inode *inode, enum lpi_inode_part which);

/* The fragment is being made, and has no names. From now on it remembers them, unless an earlier
 * fragment of its directory may have an end that is not durable. Called before it changes. */
void lpi_fragment_begin_names(struct lpi_fragment *fragment);
void lpi_fragment_add_name(struct lpi_fragment *fragment, const void *name, size_t len);
/* The fragment is in memory, has no such name, and never had it. */
bool lpi_fragment_lacks(struct lpi_nodes *nodes, uint64_t dir_nr, const void *name, size_t len);

/* Bytes that the collecting group must reserve for the node's record as it is. 0 when the node is
 * dirty, because then they are reserved already. */
uint32_t lpi_node_need(const struct lpi_node *node);

void lpi_inode_attrs(const struct lpi_inode *inode, struct lp_attrs *ret_attrs);

#endif
