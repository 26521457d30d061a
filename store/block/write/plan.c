/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of data, planned: which blocks, which of them in part, which path. */
#include "store/block/write/edit.h"

#define SEEKS_MAX  16u /* of the map, each of which looks at a bounded part */
#define CLONE_MAPS 2u

static const uint64_t block_mask = LP_BLOCK_BYTES - 1;

void lpi_edit_init(struct lpi_edit *edit)
{
	edit->stage = LPI_EDIT_PLAN;
	edit->inode = NULL;
	edit->offset = 0;
	edit->length = 0;
	edit->range = (struct lp_extmap_range){0, 0};
	edit->path = LP_PATH_AUTO;
	edit->seen.contest = NULL;
	edit->is_in_place = false;
	edit->is_unwritten = false;
	edit->is_mixed = false;
	edit->is_refused = false;
	edit->is_early = false;
	edit->is_last_step = true;
	edit->solo_cnt = 0;
	edit->copy_cnt = 0;
	edit->extent_cnt = 0;
	edit->extent_blocks = 0;
	edit->own_cnt = 0;
	edit->new_cnt = 0;
	edit->need_changes = 0;
	edit->need_leaves = 0;
	edit->trim = NULL;
	edit->grave = NULL;
	edit->grave_trim = NULL;
	edit->src = NULL;
	edit->piece_crcs = NULL;
	edit->crcs = NULL;
	edit->job = (struct lpi_block_job){0};
	lpi_io_list_init(&edit->job.ios);
}

/* --- Writes ----------------------------------------------------------------------------------- */

static enum lp_write_path wanted_path(const struct lpi_block *block, const struct lp_change *change)
{
	return change->data.path != LP_PATH_AUTO ? change->data.path : block->write_path;
}

/* A deferred write waits until there is room for all of it, so that must be possible. */
static bool can_defer(const struct lpi_block *block, uint64_t length)
{
	uint64_t blocks = length / LP_BLOCK_BYTES + 2;
	if (blocks + 1 > lp_shard_defer_max(block->shard)) /* content that moves is one more */
		return false;
	const struct lp_commit_need need = {
		.batch_bytes = 8192, .change_cnt = (uint32_t)blocks, .data_cnt = (uint32_t)blocks};
	return blocks <= LPI_DEFER_BLOCKS + 2 && lp_commit_need_is_possible(block->commit, &need);
}

enum lp_write_path lpi_edit_choose_path(struct lpi_txn *txn, uint64_t length)
{
	enum lp_write_path path = wanted_path(txn->block, txn->edit.change);
	if (!can_defer(txn->block, length))
		return LP_PATH_DIRECT;
	if (path == LP_PATH_DIRECT || path == LP_PATH_DEFERRED)
		return path;
	return lpi_policy_choose(txn->block, length, txn->op->txn.ack == LP_ACK_ORDERED,
				 &txn->edit.seen);
}

bool lpi_edit_may_defer(const struct lpi_txn *txn)
{
	const struct lpi_edit *edit = &txn->edit;
	return edit->change->type == LP_CHANGE_WRITE &&
	       wanted_path(txn->block, edit->change) != LP_PATH_DIRECT &&
	       can_defer(txn->block, edit->length);
}

static bool fits_inline(const struct lpi_txn *txn)
{
	const struct lpi_block *block = txn->block;
	const struct lpi_edit *edit = &txn->edit;
	enum lp_write_path path = wanted_path(block, edit->change);
	uint64_t end = edit->offset + edit->length;
	return (path == LP_PATH_AUTO || path == LP_PATH_INLINE) && end <= block->inline_max &&
	       edit->inode->rec.content.len <= block->inline_max &&
	       lp_extmap_blocks(&edit->inode->map) == 0;
}

/* Verifies inline content against its crc, before a new one is made from it. */
static int verify_content(const struct lpi_inode *inode)
{
	const struct lp_inode *rec = &inode->rec;
	if (rec->content.len == 0 ||
	    lp_crc32c(0, rec->content.at, rec->content.len) == rec->content_crc)
		return 0;
	return LP_CORRUPT_CRC(0, "inode %llu: its inline data is damaged",
			      (unsigned long long)rec->ino.nr);
}

/* Inline data moves to a block of its own, unless the range covers it. */
static void move_content(struct lpi_edit *edit)
{
	const struct lpi_inode *inode = edit->inode;
	bool is_covered = edit->range.cnt > 0 && edit->range.first == 0;
	if (inode->rec.content.len > 0 && !is_covered)
		lpi_edit_add_solo(edit, 0, false)->content = inode;
}

static void add_edge(struct lpi_edit *edit, uint64_t block, struct lp_csum_piece piece)
{
	struct lpi_solo *solo = lpi_edit_add_solo(edit, block, true);
	solo->piece = piece;
	if (block == 0 && edit->inode->rec.content.len > 0)
		solo->content = edit->inode;
}

static void plan_edges(struct lpi_edit *edit)
{
	uint64_t end = edit->offset + edit->length;
	uint32_t head = (uint32_t)(edit->offset & block_mask);
	uint32_t tail = (uint32_t)(end & block_mask);
	uint64_t last = edit->range.first + edit->range.cnt - 1;
	uint32_t last_crc = edit->piece_crcs[edit->range.cnt - 1];
	if (edit->range.cnt == 1 && (head != 0 || tail != 0)) {
		add_edge(edit, last,
			 (struct lp_csum_piece){head, (uint32_t)edit->length, last_crc});
		return;
	}
	if (head != 0)
		add_edge(edit, edit->range.first,
			 (struct lp_csum_piece){head, (uint32_t)LP_BLOCK_BYTES - head,
						edit->piece_crcs[0]});
	if (tail != 0)
		add_edge(edit, last, (struct lp_csum_piece){0, tail, last_crc});
}

static int find_place(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	const struct lp_change *change = edit->change;
	edit->length = change->data.length;
	edit->offset = change->data.offset;
	edit->piece_crcs = change->data.payload.crcs;
	if (edit->offset != LP_STORE_APPEND)
		return 0;
	edit->offset = edit->inode->rec.size_bytes;
	txn->op->txn.offset = edit->offset;
	if ((edit->offset & block_mask) == 0)
		return 0;
	edit->piece_crcs = edit->own_crcs;
	return lpi_payload_recut(&change->data.payload, edit->offset, edit->length, edit->own_crcs);
}

static int plan_write(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	int err = find_place(txn);
	if (err < 0)
		return err;
	txn->op->txn.offset = edit->offset;
	if (!edit->is_early && fits_inline(txn)) {
		edit->path = LP_PATH_INLINE;
		err = verify_content(edit->inode);
		return err < 0 ? err
			       : lpi_inode_make_room(edit->inode, LPI_PART_CONTENT,
						     LP_INODE_INLINE_MAX);
	}
	uint64_t first = edit->offset >> LP_BLOCK_SHIFT;
	edit->range = (struct lp_extmap_range){
		first, lp_bytes_to_blocks_up(edit->offset + edit->length) - first};
	if (edit->path == LP_PATH_AUTO)
		edit->path = lpi_edit_choose_path(txn, edit->length);
	plan_edges(edit);
	move_content(edit);
	edit->crcs = edit->piece_crcs;
	return 0;
}

/* --- Cutting and punching --------------------------------------------------------------------- */

static void add_zeros(struct lpi_edit *edit, uint64_t block, uint32_t from, uint32_t to)
{
	lpi_edit_add_solo(edit, block, false)->piece = lp_csum_zero_piece(from, to - from);
}

/* 0: blocks from `from` on have space, or may have. The root of a very sparse file does not say, or
 * many emptied leaves are in memory; then the trim finds out. -ENXIO: none has. */
static int look_for_space(struct lpi_txn *txn, uint64_t from)
{
	struct lpi_inode *inode = txn->edit.inode;
	for (uint32_t n = 0; n < SEEKS_MAX; n++) {
		uint64_t block = from;
		int err = lp_extmap_seek(&inode->map, from, LP_EXTMAP_SEEK_ALLOCATED, &block);
		if (err == 1)
			from = block;
		else if (err != -EAGAIN)
			return err;
		else if (lpi_leaves_are_unnamed(inode))
			return 0;
		else if ((err = lpi_leaves_get(&txn->warmer, inode, true)) != 0)
			return err == -EAGAIN ? lpi_txn_wait_index(txn) : err;
	}
	return 0;
}

static int plan_truncate(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_inode *inode = edit->inode;
	uint64_t size = edit->change->data.offset;
	uint64_t keep = lp_bytes_to_blocks_up(size);
	edit->path = LP_PATH_INLINE;
	if (lp_extmap_blocks(&inode->map) == 0)
		return verify_content(inode);
	edit->path = LP_PATH_DEFERRED;
	/* The size stays: blocks that were preallocated behind the end are freed, as when a file
	 * gets shorter. */
	if (size > inode->rec.size_bytes)
		return 0;
	if (keep < LP_EXTMAP_BLOCKS_MAX) {
		int err = look_for_space(txn, keep);
		if (err == 0 && lp_extmap_is_small(&inode->map))
			edit->range = (struct lp_extmap_range){keep, LP_EXTMAP_LEAF_BLOCKS - keep};
		else if (err == 0 && edit->trim == NULL && lpi_trims_are_many(txn->block))
			err = lpi_txn_wait_memory(txn);
		else if (err == 0 && edit->trim == NULL)
			err = lpi_trim_new(txn->block, &edit->trim);
		if (err != 0 && err != -ENXIO)
			return err;
	}
	if (size < inode->rec.size_bytes && (size & block_mask) != 0)
		add_zeros(edit, size >> LP_BLOCK_SHIFT, (uint32_t)(size & block_mask),
			  (uint32_t)LP_BLOCK_BYTES);
	return 0;
}

static int plan_punch(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_inode *inode = edit->inode;
	uint64_t from = edit->change->data.offset;
	uint64_t end = from + edit->change->data.length;
	edit->path = LP_PATH_INLINE;
	if (lp_extmap_blocks(&inode->map) == 0)
		return verify_content(inode);
	edit->path = LP_PATH_DEFERRED;
	if (end >= inode->rec.size_bytes) /* bytes behind the end read as zeros already */
		end = lp_bytes_to_blocks_up(end) << LP_BLOCK_SHIFT;
	uint64_t first = lp_bytes_to_blocks_up(from);
	uint64_t last = end >> LP_BLOCK_SHIFT; /* the block after the last whole one */
	if (first > last) {
		add_zeros(edit, last, (uint32_t)(from & block_mask), (uint32_t)(end & block_mask));
		return 0;
	}
	if ((from & block_mask) != 0)
		add_zeros(edit, first - 1, (uint32_t)(from & block_mask), (uint32_t)LP_BLOCK_BYTES);
	if ((end & block_mask) != 0)
		add_zeros(edit, last, 0, (uint32_t)(end & block_mask));
	edit->range = (struct lp_extmap_range){first, last - first};
	return 0;
}

/* --- Preallocation ---------------------------------------------------------------------------- */

/* The first hole at or behind `first`; cnt 0: none. */
static int find_hole(struct lpi_txn *txn, struct lp_extmap_range range)
{
	struct lpi_found found;
	while (range.cnt > 0) {
		int err = lpi_edit_lookup(txn, txn->edit.inode, range, &found);
		if (err != 0)
			return err;
		for (int i = 0; i < found.cnt; i++) {
			if (found.segments[i].kind == LP_EXTMAP_HOLE) {
				txn->edit.range = found.segments[i].range;
				return 0;
			}
			range.first += found.segments[i].range.cnt;
			range.cnt -= found.segments[i].range.cnt;
		}
	}
	return 0;
}

/* One hole, or the inline content, in each step; the last step finds nothing to do. */
static int plan_prealloc(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	uint64_t first = edit->change->data.offset >> LP_BLOCK_SHIFT;
	uint64_t end = lp_bytes_to_blocks_up(edit->change->data.offset + edit->change->data.length);
	int err = 0;
	edit->path = LP_PATH_DEFERRED;
	edit->range = (struct lp_extmap_range){0, 0};
	move_content(edit);
	if (edit->solo_cnt == 0)
		err = find_hole(txn, (struct lp_extmap_range){first, end - first});
	edit->is_last_step = edit->solo_cnt == 0 && edit->range.cnt == 0;
	return err;
}

/* --- Clones ----------------------------------------------------------------------------------- */

static int check_clone(const struct lp_change *change, const struct lpi_inode *dst,
		       const struct lpi_inode *src)
{
	uint64_t end = change->clone.offset + change->clone.length;
	uint64_t src_end = change->clone.src_offset + change->clone.length;
	bool is_whole = (change->clone.length & block_mask) == 0;
	if (src_end > src->rec.size_bytes)
		return -EINVAL;
	return !is_whole && (src_end != src->rec.size_bytes || end < dst->rec.size_bytes) ? -EINVAL
											  : 0;
}

int lpi_edit_check(const struct lp_change *change, const struct lpi_inode *inode,
		   const struct lpi_inode *src)
{
	if (change->type == LP_CHANGE_CLONE)
		return check_clone(change, inode, src);
	bool appends = change->type == LP_CHANGE_WRITE && change->data.offset == LP_STORE_APPEND;
	return appends && inode->rec.size_bytes + change->data.length > LP_STORE_FILE_MAX ? -EFBIG
											  : 0;
}

static int plan_clone(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	const struct lp_change *change = edit->change;
	edit->src = lpi_txn_touched(txn, change->clone.src)->inode;
	edit->path = LP_PATH_DEFERRED;
	edit->length = change->clone.length;
	edit->offset = change->clone.offset;
	edit->range = (struct lp_extmap_range){change->clone.offset >> LP_BLOCK_SHIFT,
					       lp_bytes_to_blocks_up(change->clone.length)};
	if (edit->src->rec.content.len > 0 && change->clone.src_offset == 0)
		lpi_edit_add_solo(edit, edit->range.first, false)->content = edit->src;
	move_content(edit);
	return 0;
}

struct lp_extmap_range lpi_edit_src_range(const struct lpi_edit *edit)
{
	return (struct lp_extmap_range){edit->change->clone.src_offset >> LP_BLOCK_SHIFT,
					edit->range.cnt};
}

/* Leaves of a map that contain ranges, which are passed in order. */
struct leaves {
	uint64_t next; /* earlier leaves are counted */
	uint64_t cnt;
};

static void count_leaves(struct leaves *leaves, struct lp_extmap_range range)
{
	uint64_t first = LP_MAX(range.first / LP_EXTMAP_LEAF_BLOCKS, leaves->next);
	uint64_t end = (range.first + range.cnt - 1) / LP_EXTMAP_LEAF_BLOCKS + 1;
	leaves->cnt += end > first ? end - first : 0;
	leaves->next = LP_MAX(end, leaves->next);
}

/* Leaves that a clone changes: with blocks that become shared, with new blocks, and with old ones.
 */
struct cloning {
	struct leaves marked;
	struct leaves added;
	struct leaves replaced;
};

static int plan_segment(struct lpi_txn *txn, const struct lp_extmap_segment *segment,
			struct cloning *cloning)
{
	const struct lpi_edit *edit = &txn->edit;
	if (segment->kind != LP_EXTMAP_DATA)
		return 0;
	uint64_t from = segment->range.first - lpi_edit_src_range(edit).first;
	if (!segment->is_shared)
		count_leaves(&cloning->marked, segment->range);
	count_leaves(&cloning->added,
		     (struct lp_extmap_range){edit->range.first + from, segment->range.cnt});
	return lpi_share_prepare(txn, segment);
}

static int plan_source(struct lpi_txn *txn, struct cloning *cloning)
{
	struct lpi_edit *edit = &txn->edit;
	struct lp_extmap_range range = lpi_edit_src_range(edit);
	struct lpi_found found;
	while (range.cnt > 0) {
		int err = lpi_edit_lookup(txn, edit->src, range, &found);
		for (int i = 0; err == 0 && i < found.cnt; i++) {
			err = plan_segment(txn, &found.segments[i], cloning);
			range.first += found.segments[i].range.cnt;
			range.cnt -= found.segments[i].range.cnt;
		}
		if (err != 0)
			return err;
	}
	return 0;
}

static int count_replaced(struct lpi_txn *txn, struct cloning *cloning)
{
	struct lpi_edit *edit = &txn->edit;
	struct lp_extmap_range range = edit->range;
	struct lpi_found found;
	while (range.cnt > 0) {
		int err = lpi_edit_lookup(txn, edit->inode, range, &found);
		if (err != 0)
			return err;
		for (int i = 0; i < found.cnt; i++) {
			if (found.segments[i].kind != LP_EXTMAP_HOLE)
				count_leaves(&cloning->replaced, found.segments[i].range);
			range.first += found.segments[i].range.cnt;
			range.cnt -= found.segments[i].range.cnt;
		}
	}
	return 0;
}

/* Most of a long range may be holes. If a leaf were reserved for each of them, two clones would
 * fill a group, and each clone of a copy would wait for the device. */
int lpi_edit_plan_shared(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct cloning cloning = {.marked = {.cnt = 0}};
	if (edit->change->type != LP_CHANGE_CLONE)
		return 0;
	int err = plan_source(txn, &cloning);
	if (err == 0)
		err = count_replaced(txn, &cloning);
	if (err == -EAGAIN)
		return lpi_txn_wait_index(txn);
	if (err != 0)
		return err;
	uint64_t added = cloning.added.cnt + cloning.replaced.cnt;
	uint64_t most = edit->range.cnt / LP_EXTMAP_LEAF_BLOCKS + 2;
	/* A map that was in its root may get a leaf for that. The blocks beside the range may, too.
	 */
	edit->need_leaves = (uint32_t)(LP_MIN(cloning.marked.cnt, most) + LP_MIN(added, most)) +
			    2 * CLONE_MAPS + edit->solo_cnt;
	return 0;
}

/* --- All of them ------------------------------------------------------------------------------ */

int lpi_edit_plan(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	int err = 0;
	LP_ASSERT(edit->solo_cnt == 0);
	switch (edit->change->type) {
	case LP_CHANGE_WRITE:
		err = plan_write(txn);
		break;
	case LP_CHANGE_TRUNCATE:
		err = plan_truncate(txn);
		break;
	case LP_CHANGE_PUNCH:
		err = plan_punch(txn);
		break;
	case LP_CHANGE_PREALLOC:
		err = plan_prealloc(txn);
		break;
	case LP_CHANGE_CLONE:
	default:
		err = plan_clone(txn);
		break;
	}
	uint32_t maps = edit->src != NULL ? 2 : 1;
	edit->need_leaves =
		(uint32_t)(edit->range.cnt / LP_EXTMAP_LEAF_BLOCKS + 2) * maps + edit->solo_cnt;
	if (err != 0)
		edit->solo_cnt = 0; /* none has a buffer yet */
	return err;
}
