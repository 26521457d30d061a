/* SPDX-License-Identifier: Apache-2.0 */
/* Extents with several owners. Their counts are records of their own, per 64 blocks of the device,
 * and nodes in memory while they change. */
#include "base/error.h"
#include "store/block/core/data_cache.h"
#include "store/block/write/txn.h"

#define LOOK_SEGMENTS 8

/* One extent, cut at the borders of the count groups. */
struct group_part {
	uint64_t group;
	uint32_t first;
	uint32_t cnt;
};

static struct group_part part_at(struct lp_extent extent, uint64_t block)
{
	uint64_t end = LP_MIN(lp_extent_end(extent), (block | (LP_REFS_BLOCKS - 1)) + 1);
	return (struct group_part){
		.group = block >> LP_REFS_SHIFT,
		.first = (uint32_t)(block & (LP_REFS_BLOCKS - 1)),
		.cnt = (uint32_t)(end - block),
	};
}

static struct lpi_refs *pinned_refs(struct lpi_block *block, uint64_t group)
{
	struct lpi_node *node = lpi_node_find(&block->nodes, LPI_NODE_REFS, group);
	LP_ASSERT(node != NULL && node->pins > 0);
	return lpi_refs_of(node);
}

/* --- Releasing -------------------------------------------------------------------------------- */

static int pin_counts(struct lpi_release_plan *plan, struct lp_extent extent)
{
	for (uint64_t at = extent.block; at < lp_extent_end(extent);) {
		struct group_part part = part_at(extent, at);
		struct lpi_node *node = NULL;
		int err = 0;
		if (!plan->counts_only)
			err = lpi_node_get(plan->warmer, LPI_NODE_REFS, part.group, false, &node);
		if (err == 0 && !plan->counts_only)
			err = plan->pin(plan->arg, node);
		if (err < 0)
			return err;
		plan->refs_cnt++;
		at += part.cnt;
	}
	return 0;
}

static int prepare_segment(struct lpi_release_plan *plan, const struct lp_extmap_segment *segment)
{
	if (segment->kind == LP_EXTMAP_HOLE || (segment->is_shared && plan->spares_shared))
		return 0;
	/* In the worst case every second shared block becomes free. */
	plan->changes += segment->is_shared ? (uint32_t)segment->range.cnt : 1;
	if (!segment->is_shared)
		return 0;
	return pin_counts(plan, (struct lp_extent){segment->block, segment->range.cnt});
}

int lpi_release_prepare(struct lpi_release_plan *plan, struct lpi_inode *inode,
			struct lp_extmap_range range, bool claimed)
{
	struct lp_extmap_segment segments[LOOK_SEGMENTS];
	while (range.cnt > 0) {
		int cnt = lp_extmap_lookup(&inode->map, range, segments, LOOK_SEGMENTS, NULL);
		int err = cnt == -EAGAIN ? lpi_leaves_get(plan->warmer, inode, claimed) : 0;
		for (int i = 0; i < cnt && err == 0; i++) {
			err = prepare_segment(plan, &segments[i]);
			range.first += segments[i].range.cnt;
			range.cnt -= segments[i].range.cnt;
		}
		if (err < 0)
			return err;
	}
	return 0;
}

int lpi_release_count(struct lpi_release_plan *plan, struct lpi_inode *inode,
		      struct lp_extmap_range range, bool claimed)
{
	plan->counts_only = true;
	int err = lpi_release_prepare(plan, inode, range, claimed);
	plan->counts_only = false;
	return err;
}

/* Frees runs of blocks that have no owner any more. */
static void free_bits(struct lpi_block *block, uint64_t first_block, uint64_t bits)
{
	while (bits != 0) {
		uint32_t first = (uint32_t)__builtin_ctzll(bits);
		uint64_t rest = ~(bits >> first);
		uint32_t cnt = rest == 0 ? LP_REFS_BLOCKS : (uint32_t)__builtin_ctzll(rest);
		lpi_block_freed(block, (struct lp_extent){first_block + first, cnt});
		bits = first + cnt >= LP_REFS_BLOCKS ? 0 : bits >> (first + cnt) << (first + cnt);
	}
}

static void release_shared(struct lpi_block *block, struct lp_extent extent)
{
	for (uint64_t at = extent.block; at < lp_extent_end(extent);) {
		struct group_part part = part_at(extent, at);
		struct lpi_refs *refs = pinned_refs(block, part.group);
		uint64_t freed = 0;
		/* Counts that contradict the map are damage, and recorded. The blocks stay taken,
		 * because their other owners are unknown. */
		if (lp_refs_release(&refs->refs, part.first, part.cnt, &freed) == 0) {
			free_bits(block, part.group << LP_REFS_SHIFT, freed);
			refs->node.exists = true;
			lpi_node_changed(&refs->node);
		}
		at += part.cnt;
	}
}

void lpi_release_apply(struct lpi_block *block, const struct lp_extmap_released *released)
{
	for (size_t i = 0; i < released->cnt; i++) {
		const struct lp_extmap_release *item = &released->items[i];
		if (item->is_shared)
			release_shared(block, item->extent);
		else
			lpi_block_freed(block, item->extent);
	}
}

/* --- Sharing ---------------------------------------------------------------------------------- */

static int pin_one(void *arg, struct lpi_node *node)
{
	return lpi_txn_pin(arg, node);
}

static int not_taken(const struct lpi_txn *txn, const struct lp_extmap_segment *segment)
{
	return LP_CORRUPT(segment->block << LP_BLOCK_SHIFT,
			  "inode %llu, offset %llu: %llu blocks from %llu on are not all taken",
			  (unsigned long long)txn->edit.src->rec.ino.nr,
			  (unsigned long long)(segment->range.first << LP_BLOCK_SHIFT),
			  (unsigned long long)segment->range.cnt,
			  (unsigned long long)segment->block);
}

/* Checks the counts, and the space, against the map before any decision. Only the transaction that
 * finds damage gets the error. */
int lpi_share_prepare(struct lpi_txn *txn, const struct lp_extmap_segment *segment)
{
	struct lpi_release_plan plan = {.warmer = &txn->warmer, .pin = pin_one, .arg = txn};
	const struct lp_extent extent = {segment->block, segment->range.cnt};
	if (!lp_space_is_taken(txn->block->space, extent))
		return not_taken(txn, segment);
	int err = pin_counts(&plan, extent);
	for (uint64_t at = extent.block; at < lp_extent_end(extent) && err == 0;) {
		struct group_part part = part_at(extent, at);
		const struct lp_refs *refs = &pinned_refs(txn->block, part.group)->refs;
		err = lp_refs_check(refs, part.first, part.cnt, segment->is_shared);
		if (err == 0 && lp_refs_max(refs, part.first, part.cnt) >= LP_REFS_MAX - 1)
			err = -EMLINK;
		at += part.cnt;
	}
	return err;
}

void lpi_share_apply(struct lpi_block *block, struct lp_extent extent, bool already_shared)
{
	for (uint64_t at = extent.block; at < lp_extent_end(extent);) {
		struct group_part part = part_at(extent, at);
		struct lpi_refs *refs = pinned_refs(block, part.group);
		if (lp_refs_share(&refs->refs, part.first, part.cnt, already_shared) < 0)
			lp_commit_give_up(block->commit, -EUCLEAN); /* two must be counted */
		refs->node.exists = true;
		lpi_node_changed(&refs->node);
		at += part.cnt;
	}
}
