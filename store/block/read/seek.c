/* SPDX-License-Identifier: Apache-2.0 */
/* Where data begins or ends. Holes and unwritten blocks are the same here.
 *
 * The map knows the numbers of its leaves, except in very sparse files. A scan fetches leaves that
 * are not in memory, many at a time, because a search often has to look at one after the other. The
 * claim is kept meanwhile, because leaves already passed must not change.
 *
 * A trim needs no claim. It frees leaves behind the end of the file, which are not searched. A
 * search for space does not go beyond its own offset while there is a trim, and no trim begins
 * while the search has the claim. Records that a trim, or a payment, puts into the index during a
 * scan were in memory by then, and the pin keeps them there. So a leaf found by a scan is new to
 * the map, or is not used. */
#include "base/error.h"
#include "store/block/read/query.h"

#define CALLS_PER_TURN 16u /* calls of the map, each of which looks at a bounded part */
#define SCAN_LEAVES    64u
#define SCAN_BYTES     LP_BUF_MEDIUM
static_assert(SCAN_LEAVES * (LP_EXTMAP_LEAF_BYTES_MAX + LP_KEY_BYTES_MAX) > SCAN_BYTES,
	      "the buffer is no larger than it need be");

static int seek_scanned(struct lpi_query *query);

/* --- Leaves ----------------------------------------------------------------------------------- */

/* `end` is the last leaf that counts. */
static int scan_leaves(struct lpi_query *query, struct lp_extmap_leaves missing, uint32_t end)
{
	uint32_t last = LP_MIN(missing.last, end);
	/* When only the first leaf is known to be missing, those behind it are likely to be, too.
	 */
	if (missing.first == missing.last)
		last = missing.first + LP_MIN(SCAN_LEAVES - 1, end - missing.first);
	query->go_on = seek_scanned;
	query->leaves = (struct lp_extmap_leaves){missing.first, last};
	lp_key_range_of_map(&query->range, query->ino,
			    (uint64_t)missing.first * LP_EXTMAP_LEAF_BLOCKS,
			    (uint64_t)last * LP_EXTMAP_LEAF_BLOCKS);
	return lpi_query_scan(query, SCAN_LEAVES, SCAN_BYTES);
}

/* The last leaf that may hold the answer. */
static uint32_t last_leaf(const struct lpi_query *query, const struct lpi_inode *inode)
{
	if (query->op->seek.space)
		return LP_EXTMAP_LEAVES_MAX - 1;
	LP_ASSERT(inode->rec.size_bytes > 0);
	return (uint32_t)(((inode->rec.size_bytes - 1) >> LP_BLOCK_SHIFT) / LP_EXTMAP_LEAF_BLOCKS);
}

/* -ENXIO: the search needs none of the missing leaves. */
static int get_leaves(struct lpi_query *query, struct lpi_inode *inode)
{
	struct lp_extmap_leaves missing = lp_extmap_missing(&inode->map);
	uint32_t last = last_leaf(query, inode);
	if (missing.first > last)
		return -ENXIO;
	/* A large file has millions of leaves, and the pin keeps them (P5). */
	lpi_node_shrink_map(&inode->node);
	if (missing.first == missing.last) {
		int err = lpi_leaves_get(&query->hold.warmer, inode, query->hold.is_kept);
		if (err != -EAGAIN)
			return err;
	}
	return scan_leaves(query, missing, last);
}

/* --- The search ------------------------------------------------------------------------------- */

static int give(struct lpi_query *query, uint64_t at, uint64_t size_bytes)
{
	struct lp_store_op *op = query->op;
	if (!op->seek.hole && at >= size_bytes)
		return -ENXIO;
	op->seek.found = LP_MIN(LP_MAX(at, op->seek.offset), size_bytes);
	return 0;
}

/* Also for a file that is only a hole: its content ends at 0. */
static int seek_inline(struct lpi_query *query, const struct lp_inode *rec)
{
	bool in_content = query->op->seek.offset < rec->content.len;
	uint64_t after = query->op->seek.hole ? query->op->seek.offset : rec->size_bytes;
	uint64_t within = query->op->seek.hole ? rec->content.len : query->op->seek.offset;
	return give(query, in_content ? within : after, rec->size_bytes);
}

static enum lp_extmap_seek wanted(const struct lpi_query *query)
{
	if (query->op->seek.space)
		return query->op->seek.hole ? LP_EXTMAP_SEEK_FREE : LP_EXTMAP_SEEK_ALLOCATED;
	return query->op->seek.hole ? LP_EXTMAP_SEEK_HOLE : LP_EXTMAP_SEEK_DATA;
}

static uint64_t end_of(const struct lpi_query *query, const struct lpi_inode *inode)
{
	return query->op->seek.space ? LP_STORE_FILE_MAX : inode->rec.size_bytes;
}

static int seek_map(struct lpi_query *query, struct lpi_inode *inode)
{
	uint64_t size_bytes = end_of(query, inode);
	uint64_t block = query->seek_block;
	for (uint32_t n = 0; n < CALLS_PER_TURN; n++) {
		int err = lp_extmap_seek(&inode->map, query->seek_block, wanted(query), &block);
		if (err == -EAGAIN)
			err = get_leaves(query, inode);
		else if (err == 0 || (err == 1 && block >= lp_bytes_to_blocks_up(size_bytes)))
			return give(query, block << LP_BLOCK_SHIFT, size_bytes);
		else if (err == 1)
			query->seek_block = block;
		if (err == -ENXIO) /* the answer lies behind the end */
			return give(query, size_bytes, size_bytes);
		if (err < 0 || err == LPI_WAIT_SCAN)
			return err;
	}
	return LPI_WAIT_TURN;
}

static int seek_space(struct lpi_query *query, struct lpi_inode *inode)
{
	if (lp_extmap_blocks(&inode->map) == 0) /* content in the inode has no blocks */
		return query->op->seek.hole ? give(query, query->op->seek.offset, LP_STORE_FILE_MAX)
					    : -ENXIO;
	if (inode->trim != NULL)
		return give(query, query->op->seek.offset, LP_STORE_FILE_MAX);
	return seek_map(query, inode);
}

static int seek(struct lpi_query *query);

static int seek_scanned(struct lpi_query *query)
{
	struct lpi_inode *inode;
	int err = lpi_query_inode(query, &inode);
	if (err == 0)
		err = lpi_leaves_load(inode, &query->scan, query->leaves);
	if (err < 0)
		return err;
	query->go_on = seek;
	return seek_map(query, inode);
}

static int seek(struct lpi_query *query)
{
	struct lpi_inode *inode;
	int err = lpi_query_inode(query, &inode);
	if (err < 0)
		return err;
	if (query->pinned == NULL)
		lpi_node_pin(&inode->node);
	query->pinned = inode;
	const struct lp_inode *rec = &inode->rec;
	if (rec->type != LP_INODE_TYPE_FILE)
		return rec->type == LP_INODE_TYPE_DIR ? -EISDIR : -EINVAL;
	if (query->op->seek.offset >= end_of(query, inode))
		return -ENXIO;
	if (query->op->seek.space)
		return seek_space(query, inode);
	if (lp_extmap_blocks(&inode->map) == 0)
		return seek_inline(query, rec);
	return seek_map(query, inode);
}

int lpi_query_seek(struct lpi_query *query)
{
	query->keeps_claim = true;
	query->seek_block = query->op->seek.offset >> LP_BLOCK_SHIFT;
	query->go_on = seek;
	return seek(query);
}
