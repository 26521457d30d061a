/* SPDX-License-Identifier: Apache-2.0 */
/* Places of the blocks of a written range that do not all go to new space.
 *
 * A file has blocks with content that are its own, preallocated blocks without content, blocks
 * shared with clones, and holes. On a store with space the whole range goes to new space, which is
 * one write of the device and frees the old blocks. There are two exceptions: all blocks are of the
 * first kind and the write is deferred, or all are of the second. On a full store each block stays
 * if its space is only the file's own. Only the other blocks need new space (P6). So a file that
 * was preallocated, or written, can be written.
 *
 * It is still one commit, and so the write happens wholly or not at all (P2):
 *   own content    the new one goes into the frame, and to its block when that is durable (S4)
 *   preallocated   as new space: written before the frame, which says that it has content now
 *   shared, holes  new space
 * All overwritten blocks must fit into one frame.
 *
 * A damaged map may name blocks that are free, or outside of the shard's space. These are not
 * written (P7): the range goes to new space, after which the map is sound again. */
#include "base/error.h"
#include "store/block/write/edit.h"

struct kinds {
	uint64_t own;
	uint64_t set_aside;
	uint64_t others;
	bool is_damaged; /* some blocks are not the file's; they count among the others */
};

static enum lpi_place_kind kind_of(const struct lp_extmap_segment *segment)
{
	if (segment->kind == LP_EXTMAP_UNWRITTEN)
		return LPI_PLACE_SET_ASIDE;
	return segment->kind == LP_EXTMAP_DATA && !segment->is_shared ? LPI_PLACE_OWN
								      : LPI_PLACE_NEW;
}

static void add(const struct lp_space *space, struct kinds *kinds,
		const struct lp_extmap_segment *segment)
{
	const struct lp_extent extent = {segment->block, segment->range.cnt};
	enum lpi_place_kind kind = kind_of(segment);
	if (kind != LPI_PLACE_NEW && LP_UNLIKELY(!lp_space_is_taken(space, extent))) {
		kinds->is_damaged = true;
		kind = LPI_PLACE_NEW;
	}
	switch (kind) {
	case LPI_PLACE_OWN:
		kinds->own += segment->range.cnt;
		break;
	case LPI_PLACE_SET_ASIDE:
		kinds->set_aside += segment->range.cnt;
		break;
	case LPI_PLACE_NEW:
		kinds->others += segment->range.cnt;
		break;
	}
}

/* Counts the blocks of the range by kind. Without `all` it stops at the first that must move. */
static int count(struct lpi_txn *txn, bool all, struct kinds *ret)
{
	struct lpi_edit *edit = &txn->edit;
	struct lp_extmap_range left = edit->range;
	bool is_direct = edit->path == LP_PATH_DIRECT;
	struct lpi_found found;
	*ret = (struct kinds){0};
	while (left.cnt > 0 && (all || (ret->others == 0 && !(is_direct && ret->own > 0)))) {
		int err = lpi_edit_lookup(txn, edit->inode, left, &found);
		if (err != 0)
			return err;
		for (int i = 0; i < found.cnt; i++) {
			add(txn->block->space, ret, &found.segments[i]);
			left.first += found.segments[i].range.cnt;
			left.cnt -= found.segments[i].range.cnt;
		}
	}
	return 0;
}

int lpi_edit_look_at_range(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	bool is_deferred = edit->path == LP_PATH_DEFERRED;
	uint64_t cnt = edit->range.cnt;
	struct kinds kinds;
	if (edit->change->type != LP_CHANGE_WRITE || edit->extent_cnt > 0 || cnt == 0)
		return 0;
	int err = count(txn, false, &kinds);
	if (err != 0)
		return err;
	edit->is_in_place = is_deferred && kinds.own == cnt;
	edit->is_unwritten = kinds.set_aside == cnt;
	edit->is_mixed = is_deferred && !edit->is_in_place && !edit->is_unwritten &&
			 kinds.own + kinds.set_aside == cnt;
	edit->own_cnt = kinds.own;
	edit->new_cnt = 0;
	return 0;
}

/* --- Check against the map ---------------------------------------------------------------------
 */

static int check_part(struct lpi_txn *txn, uint64_t first, uint64_t end)
{
	struct lp_extmap_range left = {first, end - first};
	struct lpi_found found;
	while (left.cnt > 0) {
		int err = lpi_edit_lookup(txn, txn->edit.inode, left, &found);
		if (err != 0)
			return err;
		for (int i = 0; i < found.cnt; i++) {
			const struct lp_extmap_segment *segment = &found.segments[i];
			const struct lp_extent extent = {segment->block, segment->range.cnt};
			if (segment->kind != LP_EXTMAP_HOLE && lpi_edit_is_given(txn, extent))
				return LP_CORRUPT(
					segment->block << LP_BLOCK_SHIFT,
					"inode %llu, offset %llu: some of its blocks count as free",
					(unsigned long long)txn->edit.inode->rec.ino.nr,
					(unsigned long long)(segment->range.first
							     << LP_BLOCK_SHIFT));
			left.first += segment->range.cnt;
			left.cnt -= segment->range.cnt;
		}
	}
	return 0;
}

static int check_beside(struct lpi_txn *txn, struct lp_extmap_range range)
{
	uint64_t end = range.first + range.cnt;
	int err = check_part(txn, lp_align_down(range.first, LP_EXTMAP_LEAF_BLOCKS), range.first);
	return err == 0 ? check_part(txn, end, lp_align_up(end, LP_EXTMAP_LEAF_BLOCKS)) : err;
}

int lpi_edit_check_given(struct lpi_txn *txn)
{
	const struct lpi_edit *edit = &txn->edit;
	int err = edit->extent_cnt > 0 ? check_beside(txn, edit->range) : 0;
	for (uint32_t i = 0; i < edit->solo_cnt && err == 0; i++) {
		const struct lp_extmap_range range = {edit->solos[i].block, 1};
		if (edit->solos[i].has_new_block)
			err = check_beside(txn, range);
	}
	return err;
}

/* --- On a full store -------------------------------------------------------------------------- */

/* The payloads of own blocks fit into one frame, and into the limit of deferred payloads. */
static bool frame_takes(const struct lpi_txn *txn, uint64_t deferred, const struct kinds *kinds)
{
	const struct lpi_edit *edit = &txn->edit;
	uint64_t changes = kinds->others == 0 ? 0 : edit->range.cnt + kinds->others;
	const struct lp_commit_need need = {
		.batch_bytes = 8192 + edit->need_leaves * LPI_LEAF_NEED,
		.change_cnt = (uint32_t)changes,
		.data_cnt = (uint32_t)deferred + 1, /* content that moves is one more */
	};
	return deferred + 1 <= lp_shard_defer_max(txn->block->shard) &&
	       lp_commit_need_is_possible(txn->block->commit, &need);
}

bool lpi_edit_was_refused(struct lpi_edit *edit)
{
	bool is_news = edit->change != NULL && edit->change->type == LP_CHANGE_WRITE &&
		       edit->range.cnt > 0 && !edit->is_refused;
	edit->is_refused |= is_news;
	return is_news;
}

int lpi_edit_keep_places(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct kinds kinds;
	bool is_small = edit->path == LP_PATH_DIRECT && lpi_edit_may_defer(txn);
	if (edit->change->type != LP_CHANGE_WRITE || edit->range.cnt == 0 || edit->extent_cnt > 0 ||
	    edit->is_mixed || edit->is_in_place || !(edit->is_refused || is_small))
		return -ENOSPC;
	int err = count(txn, true, &kinds);
	if (err != 0)
		return err;
	bool all_own = kinds.own == edit->range.cnt;
	bool all_ride = all_own || edit->path == LP_PATH_DEFERRED;
	if (kinds.is_damaged || kinds.own + kinds.set_aside == 0 ||
	    (!all_own && !edit->is_refused) ||
	    !frame_takes(txn, all_ride ? edit->range.cnt : kinds.own, &kinds))
		return -ENOSPC;
	edit->seen.contest = NULL; /* as in other writes of its path */
	if (all_own)
		edit->path = LP_PATH_DEFERRED;
	edit->is_in_place = all_own;
	edit->is_mixed = !all_own;
	edit->own_cnt = kinds.own;
	edit->new_cnt = kinds.others;
	return 0;
}

void lpi_edit_leave_places(struct lpi_edit *edit)
{
	if (!edit->is_mixed || edit->new_cnt == 0 || edit->extent_cnt > 0)
		return;
	edit->is_mixed = false;
	edit->new_cnt = 0;
}

/* --- One place after the other ---------------------------------------------------------------- */

struct lpi_places_at lpi_places_begin(const struct lpi_edit *edit)
{
	return (struct lpi_places_at){.edit = edit, .left = edit->range};
}

bool lpi_places_next(struct lpi_places_at *at, struct lpi_range_place *ret_place)
{
	const struct lpi_edit *edit = at->edit;
	struct lp_extmap_segment segment;
	if (at->left.cnt == 0)
		return false;
	int cnt = lp_extmap_lookup(&edit->inode->map, at->left, &segment, 1, NULL);
	LP_ASSERT(cnt == 1); /* its leaves are in memory */
	*ret_place = (struct lpi_range_place){
		.range = segment.range, .block = segment.block, .kind = kind_of(&segment)};
	if (ret_place->kind == LPI_PLACE_NEW) {
		LP_ASSERT(at->extent_idx < edit->extent_cnt);
		struct lp_extent extent = edit->extents[at->extent_idx];
		uint64_t rest = extent.cnt - at->extent_used;
		ret_place->block = extent.block + at->extent_used;
		ret_place->range.cnt = LP_MIN(ret_place->range.cnt, rest);
		at->extent_used += ret_place->range.cnt;
		if (at->extent_used == extent.cnt) {
			at->extent_used = 0;
			at->extent_idx++;
		}
	}
	at->left.first += ret_place->range.cnt;
	at->left.cnt -= ret_place->range.cnt;
	return true;
}
