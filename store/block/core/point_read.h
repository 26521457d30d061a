/* SPDX-License-Identifier: Apache-2.0 */
/* Point reads of the index, and nodes and leaves that are brought into memory.
 *
 * A read that the index's cache cannot answer returns -EAGAIN. Its operation starts a warmer, which
 * fetches the record, and begins again when the warmer is ready. */
#ifndef LP_STORE_BLOCK_CORE_POINT_READ_H
#define LP_STORE_BLOCK_CORE_POINT_READ_H

#include "store/index/async.h"
#include "store/nodes/node.h"
#include "store/shard/shard.h"

struct lpi_block;

/* A value, and the owner of its memory: the overlay, RocksDB, or a warmer. Must not be moved. */
struct lpi_point {
	struct lp_kv_bytes bytes; /* data NULL: there is no record */
	struct lp_kv_value pinned;
	bool is_pinned;
	uint64_t group; /* the group, maybe not durable yet, that has put this value, or deleted it;
			   0: none */
};

/* Fetches one key that is not in the index's cache, for an operation that tries again afterwards.
 */
struct lpi_warmer {
	struct lpi_block *block;
	struct lp_kv_get_op get;
	void (*ready)(struct lpi_warmer *warmer);
	struct lp_key key;
	struct lp_key end;     /* len 0; or keys up to here are wanted as well */
	uint64_t inserted_seq; /* of the index at the request */
	bool is_wanted;        /* a key was not in the cache */
	bool is_running;
	bool has_result; /* get.result is valid, and get.value if that is 0 */
};

/* 0, also when there is no such record. -EAGAIN: lpi_warmer_start(), then begin again. owned: the
 * record of a node or leaf, which is never in the overlay. claimed: no other operation may change
 * it while the warmer runs. */
int lpi_point_get(struct lpi_warmer *warmer, const struct lp_key *key, bool owned, bool claimed,
		  struct lpi_point *ret_point) LP_MUST_CHECK;
void lpi_point_end(struct lpi_point *point);

void lpi_warmer_init(struct lpi_warmer *warmer, struct lpi_block *block,
		     void (*ready)(struct lpi_warmer *warmer));
/* After -EAGAIN; ready() is called later. */
void lpi_warmer_start(struct lpi_warmer *warmer);
/* Gives back what the warmer holds; it must not be running. */
void lpi_warmer_fini(struct lpi_warmer *warmer);

/* The node, from memory or the index; not pinned. 0, -EAGAIN as above, or an error. claimed: as
 * above. */
int lpi_node_get(struct lpi_warmer *warmer, enum lpi_node_kind kind, uint64_t id, bool claimed,
		 struct lpi_node **ret_node) LP_MUST_CHECK;
/* An inode that readers see: -ENOENT. */
int lpi_inode_get(struct lpi_warmer *warmer, struct lp_ino ino, bool claimed,
		  struct lpi_inode **ret_inode) LP_MUST_CHECK;
/* Gets the leaves that the map reported missing (its call returned -EAGAIN). 0: call the map again.
 */
int lpi_leaves_get(struct lpi_warmer *warmer, struct lpi_inode *inode, bool claimed) LP_MUST_CHECK;
/* The root names none of these leaves, and there may be any number, so a scan finds them. */
static inline bool lpi_leaves_are_unnamed(const struct lpi_inode *inode)
{
	struct lp_extmap_leaves missing = lp_extmap_missing(&inode->map);
	return missing.first < missing.last;
}
/* Loads the leaves that a scan of their keys has found into the map. */
int lpi_leaves_load(struct lpi_inode *inode, const struct lp_kv_scan_op *found,
		    struct lp_extmap_leaves leaves) LP_MUST_CHECK;

#endif
