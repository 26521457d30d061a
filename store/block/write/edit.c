/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of data, applied: payloads into the frame, new extents into the map, old ones out of it,
 * in one piece of one turn. */
#include <string.h>

#include "base/error.h"
#include "store/block/core/data_cache.h"
#include "store/block/write/edit.h"

/* --- The blocks of a range -------------------------------------------------------------------- */

/* The first solo in the range at or behind the block, or NULL. */
static const struct lpi_solo *next_solo(const struct lpi_edit *edit, uint64_t block)
{
	const struct lpi_solo *next = NULL;
	for (uint32_t i = 0; i < edit->solo_cnt; i++) {
		const struct lpi_solo *solo = &edit->solos[i];
		if (solo->is_in_range && solo->block >= block &&
		    (next == NULL || solo->block < next->block))
			next = solo;
	}
	return next;
}

struct lpi_range_at lpi_range_begin(const struct lpi_edit *edit)
{
	return (struct lpi_range_at){
		.edit = edit,
		.payload = lpi_seg_cursor_at(&edit->change->data.payload),
		.block = edit->range.first,
	};
}

static uint64_t copied_run(struct lpi_range_at *at, uint64_t max, struct lp_seg *ret_seg)
{
	const struct lpi_edit *edit = at->edit;
	uint64_t offset = at->copied % edit->copy_bytes;
	uint64_t bytes = LP_MIN(max << LP_BLOCK_SHIFT, edit->copy_bytes - offset);
	*ret_seg = (struct lp_seg){edit->copies[at->copied / edit->copy_bytes], (uint32_t)offset,
				   (uint32_t)bytes};
	at->copied += bytes;
	return bytes >> LP_BLOCK_SHIFT;
}

uint64_t lpi_range_run(struct lpi_range_at *at, uint64_t max, struct lp_seg *ret_seg)
{
	const struct lpi_edit *edit = at->edit;
	const struct lpi_solo *solo = next_solo(edit, at->block);
	uint64_t blocks = 1;
	LP_ASSERT(max > 0);
	if (solo != NULL && solo->block > at->block)
		max = LP_MIN(max, solo->block - at->block);
	if (solo != NULL && solo->block == at->block) {
		lpi_payload_skip(&at->payload, solo->piece.len_bytes);
		*ret_seg = (struct lp_seg){solo->buf, 0, LP_BLOCK_BYTES};
	} else if (edit->copy_cnt > 0) {
		blocks = copied_run(at, max, ret_seg);
	} else {
		blocks = lpi_payload_run(&at->payload, max, ret_seg);
	}
	at->block += blocks;
	return blocks;
}

void lpi_range_skip(struct lpi_range_at *at, uint64_t blocks)
{
	while (blocks > 0) {
		struct lp_seg seg;
		uint64_t got = lpi_range_run(at, blocks, &seg);
		LP_ASSERT(got > 0); /* otherwise it was copied */
		blocks -= got;
	}
}

static bool continues(const struct lp_seg *run, const struct lp_seg *seg)
{
	return run->buf == seg->buf && run->offset + run->len == seg->offset;
}

uint64_t lpi_range_fill(struct lpi_range_at *at, struct lpi_io *io, uint64_t max)
{
	struct lp_seg run = {0};
	uint64_t done = 0;
	while (done < max) {
		struct lpi_range_at before = *at;
		struct lp_seg seg;
		uint64_t blocks = lpi_range_run(at, max - done, &seg);
		LP_ASSERT(blocks > 0); /* otherwise it was copied */
		if (run.len > 0 && continues(&run, &seg)) {
			run.len += seg.len;
			done += blocks;
			continue;
		}
		if (run.len > 0) {
			bool fits = lpi_io_add(io, run);
			LP_ASSERT(fits);
			run.len = 0;
		}
		if (io->iov_cnt == LPI_IO_IOVS) {
			*at = before;
			break;
		}
		run = seg;
		done += blocks;
	}
	if (run.len > 0) {
		bool fits = lpi_io_add(io, run);
		LP_ASSERT(fits);
	}
	LP_ASSERT(done > 0);
	return done;
}

void lpi_edit_collect_crcs(struct lpi_edit *edit)
{
	uint32_t in_range = 0;
	for (uint32_t i = 0; i < edit->solo_cnt; i++)
		in_range += edit->solos[i].is_in_range;
	if (in_range == 0)
		return;
	if (edit->piece_crcs != edit->own_crcs)
		memcpy(edit->own_crcs, edit->piece_crcs, edit->range.cnt * sizeof(uint32_t));
	for (uint32_t i = 0; i < edit->solo_cnt; i++) {
		const struct lpi_solo *solo = &edit->solos[i];
		if (solo->is_in_range)
			edit->own_crcs[solo->block - edit->range.first] = solo->crc;
	}
	edit->crcs = edit->own_crcs;
}

enum lp_bdev_opcode lpi_block_data_opcode(const struct lpi_block *block)
{
	/* Rule L3: on stable media before the frame that points to it. */
	return lp_bdev_caps(lp_bdev_of(block->data))->volatile_cache ? LP_BDEV_WRITE_THROUGH
								     : LP_BDEV_WRITE;
}

/* --- Needs of the group ----------------------------------------------------------------------- */

uint64_t lpi_edit_deferred(const struct lpi_edit *edit)
{
	uint64_t blocks = 0;
	if (edit->change->type == LP_CHANGE_WRITE && edit->path == LP_PATH_DEFERRED)
		blocks = edit->range.cnt;
	else if (edit->is_mixed)
		blocks = edit->own_cnt;
	for (uint32_t i = 0; i < edit->solo_cnt; i++)
		blocks += !edit->solos[i].is_in_range;
	return blocks;
}

void lpi_edit_need(const struct lpi_txn *txn, struct lp_commit_need *need)
{
	const struct lpi_edit *edit = &txn->edit;
	if (edit->change == NULL)
		return;
	if (edit->path == LP_PATH_INLINE) {
		need->batch_bytes += LP_INODE_INLINE_MAX + 8;
		return;
	}
	need->batch_bytes += (uint32_t)LP_EXTMAP_ROOT_BYTES_MAX;
	need->batch_bytes += edit->need_leaves * LPI_LEAF_NEED;
	need->batch_bytes += edit->trim != NULL ? LPI_TRIM_NEED : 0u;
	if (edit->grave != NULL)
		need->batch_bytes +=
			LPI_TRIM_NEED + (uint32_t)LP_EXTMAP_ROOT_BYTES_MAX +
			(uint32_t)(edit->range.cnt / LP_EXTMAP_LEAF_BLOCKS + 1) * LPI_LEAF_NEED;
	need->change_cnt += edit->need_changes + edit->extent_cnt;
	for (uint32_t i = 0; i < edit->solo_cnt; i++)
		need->change_cnt += edit->solos[i].has_new_block;
	lp_shard_defer_need(txn->block->shard, (uint32_t)lpi_edit_deferred(edit), need);
}

/* --- Maps ------------------------------------------------------------------------------------- */

/* Memory was short between two changes that belong together: neither may become durable. */
static bool reserve(struct lpi_block *block, struct lpi_inode *inode, struct lp_extmap_range range,
		    size_t extents_max)
{
	int released = lp_extmap_reserve(&inode->map, range, extents_max);
	if (released >= 0)
		return true;
	LP_ASSERT(released == -ENOMEM);
	lp_commit_give_up(block->commit, released);
	return false;
}

static bool overlap(struct lp_extent a, struct lp_extent b)
{
	return a.block < lp_extent_end(b) && b.block < lp_extent_end(a);
}

/* A block that is durably in use is not given to a new owner. */
bool lpi_edit_is_given(const struct lpi_txn *txn, struct lp_extent extent)
{
	const struct lpi_edit *edit = &txn->edit;
	const struct lp_space *space = txn->block->space;
	bool is = false;
	if (!lp_space_has(space, extent) || LP_LIKELY(lp_space_is_used(space, extent)))
		return false;
	for (uint32_t i = 0; i < edit->extent_cnt && !is; i++)
		is = overlap(extent, edit->extents[i]);
	for (uint32_t i = 0; i < edit->solo_cnt && !is; i++)
		is = edit->solos[i].has_new_block &&
		     overlap(extent, (struct lp_extent){edit->solos[i].device, 1});
	return is;
}

static void note_given(const struct lpi_txn *txn, struct lp_extent extent)
{
	int err = LP_CORRUPT(extent.block << LP_BLOCK_SHIFT,
			     "inode %llu named blocks %llu to %llu, which were not all taken",
			     (unsigned long long)txn->edit.inode->rec.ino.nr,
			     (unsigned long long)extent.block,
			     (unsigned long long)lp_extent_end(extent) - 1);
	(void)err; /* it has been recorded */
}

/* Extents of the edit's range that become free; the edges of an edit lie outside. */
static void release(struct lpi_txn *txn, struct lp_extmap_range range,
		    struct lp_extmap_released *released)
{
	const struct lpi_edit *edit = &txn->edit;
	size_t cnt = 0;
	bool is_moved = edit->grave != NULL && range.first >= edit->range.first &&
			range.first < edit->range.first + edit->range.cnt;
	for (size_t i = 0; i < released->cnt; i++) {
		const struct lp_extmap_release item = released->items[i];
		if (is_moved && item.is_shared)
			continue;
		/* The map named a block that counted as free; this edit was given it and keeps it.
		 */
		if (lpi_edit_is_given(txn, item.extent))
			note_given(txn, item.extent);
		else
			released->items[cnt++] = item;
	}
	released->cnt = cnt;
	lpi_release_apply(txn->block, released);
}

static void replace(struct lpi_txn *txn, struct lp_extmap_range range,
		    const struct lp_extmap_new *fresh)
{
	struct lpi_inode *inode = txn->edit.inode;
	struct lp_extmap_released released = {.items = txn->block->scratch.releases,
					      .max = LPI_SCRATCH_BLOCKS};
	if (!reserve(txn->block, inode, range, fresh->extents_cnt))
		return;
	lp_extmap_replace(&inode->map, range, fresh, &released);
	release(txn, range, &released);
}

static void punch(struct lpi_txn *txn, struct lp_extmap_range range)
{
	struct lpi_inode *inode = txn->edit.inode;
	struct lp_extmap_released released = {.items = txn->block->scratch.releases,
					      .max = LPI_SCRATCH_BLOCKS};
	if (!reserve(txn->block, inode, range, 0))
		return;
	lp_extmap_punch(&inode->map, range, &released);
	release(txn, range, &released);
}

/* --- Graves ----------------------------------------------------------------------------------- */

/* The extent gets one owner instead of another, so the counts stay. */
static void bury_segment(struct lpi_txn *txn, const struct lp_extmap_segment *segment,
			 const uint32_t *crcs, uint64_t *at)
{
	struct lpi_inode *grave = txn->edit.grave;
	const struct lp_extmap_range to = {*at, segment->range.cnt};
	const struct lp_extent extent = {segment->block, segment->range.cnt};
	const struct lp_extmap_new fresh = {
		.extents = &extent, .extents_cnt = 1, .crcs = crcs, .is_shared = true};
	struct lp_extmap_released none = {.items = txn->block->scratch.releases,
					  .max = LPI_SCRATCH_BLOCKS};
	if (!reserve(txn->block, grave, to, 1))
		return;
	lp_extmap_replace(&grave->map, to, &fresh, &none);
	*at += to.cnt;
}

/* Moves the shared blocks of the range to the grave, before the range changes. */
static void bury(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_block *block = txn->block;
	struct lpi_trim *trim = edit->grave_trim;
	uint64_t at = 0;
	int cnt = lp_extmap_lookup(&edit->inode->map, edit->range, block->scratch.segments,
				   (int)LPI_SCRATCH_BLOCKS, block->scratch.crcs);
	LP_ASSERT(cnt > 0); /* its leaves are in memory */
	for (int i = 0; i < cnt; i++) {
		const struct lp_extmap_segment *segment = &block->scratch.segments[i];
		if (segment->is_shared)
			bury_segment(txn, segment,
				     block->scratch.crcs +
					     (segment->range.first - edit->range.first),
				     &at);
	}
	edit->grave->node.exists = true;
	edit->grave->rec.type = LP_INODE_TYPE_FILE;
	edit->grave->rec.version_nr = 1;
	edit->grave->rec.size_bytes = at << LP_BLOCK_SHIFT;
	edit->grave_trim = NULL;
	lpi_trim_begin(trim, edit->grave, 0, true);
	lpi_node_changed(&edit->grave->node);
}

static void mark_written(struct lpi_block *block, struct lpi_inode *inode,
			 struct lp_extmap_range range, const uint32_t *crcs)
{
	if (reserve(block, inode, range, 0))
		lp_extmap_mark_written(&inode->map, range, crcs);
}

/* --- Solos ------------------------------------------------------------------------------------ */

static void defer(struct lpi_txn *txn, uint64_t file_block, uint64_t device_block, uint32_t crc,
		  struct lp_seg seg)
{
	const struct lp_log_payload about = {.ino = txn->edit.inode->rec.ino.nr,
					     .file_block = file_block,
					     .device_block = device_block,
					     .crc = crc};
	lpi_block_defer(txn->block, &about, seg);
}

static void apply_solo(struct lpi_txn *txn, const struct lpi_solo *solo)
{
	struct lpi_block *block = txn->block;
	struct lpi_inode *inode = txn->edit.inode;
	const struct lp_extmap_range range = {solo->block, 1};
	const struct lp_extent extent = {solo->device, 1};
	if (solo->is_in_range)
		return;
	defer(txn, solo->block, solo->device, solo->crc,
	      (struct lp_seg){solo->buf, 0, LP_BLOCK_BYTES});
	if (solo->has_new_block) {
		lp_shard_taken(block->shard, extent);
		replace(txn, range,
			&(struct lp_extmap_new){
				.extents = &extent, .extents_cnt = 1, .crcs = &solo->crc});
	} else if (solo->is_unwritten) {
		mark_written(block, inode, range, &solo->crc);
	} else {
		lp_extmap_update_crcs(&inode->map, range, &solo->crc);
	}
}

static void apply_solos(struct lpi_txn *txn)
{
	for (uint32_t i = 0; i < txn->edit.solo_cnt; i++)
		apply_solo(txn, &txn->edit.solos[i]);
}

/* Inline data that has a block now, or is removed. */
static void drop_content(struct lpi_inode *inode)
{
	lpi_inode_set_part(inode, LPI_PART_CONTENT, NULL, 0);
	inode->rec.content_crc = 0;
}

/* --- Writes ----------------------------------------------------------------------------------- */

static void write_inline(struct lpi_edit *edit)
{
	struct lpi_inode *inode = edit->inode;
	uint8_t *memory = lpi_inode_part_memory(inode, LPI_PART_CONTENT);
	uint32_t old_len = (uint32_t)inode->rec.content.len;
	uint32_t offset = (uint32_t)edit->offset;
	uint32_t length = (uint32_t)edit->length;
	uint32_t end = offset + length;
	uint32_t crc = 0;
	if (offset > old_len) {
		memset(memory + old_len, 0, offset - old_len);
		crc = lp_crc32c_combine(inode->rec.content_crc, lp_csum_zeros(offset - old_len),
					offset - old_len);
		if (old_len == 0)
			crc = lp_csum_zeros(offset);
	} else {
		crc = lp_crc32c(0, memory, offset);
	}
	crc = lp_crc32c_combine(crc, edit->piece_crcs[0], length);
	if (end < old_len)
		crc = lp_crc32c_combine(crc, lp_crc32c(0, memory + end, old_len - end),
					old_len - end);
	struct lpi_seg_cursor at = lpi_seg_cursor_at(&edit->change->data.payload);
	lpi_seg_cursor_copy(&at, memory + offset, length);
	lpi_inode_set_part(inode, LPI_PART_CONTENT, memory, LP_MAX(end, old_len));
	inode->rec.content_crc = crc;
}

/* Each block of the range goes to its block in the map. */
static void defer_in_place(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lp_extmap_segment *segments = txn->block->scratch.segments;
	struct lpi_range_at at = lpi_range_begin(edit);
	const uint32_t *crc = edit->crcs;
	int cnt = lp_extmap_lookup(&edit->inode->map, edit->range, segments,
				   (int)LPI_SCRATCH_BLOCKS, NULL);
	LP_ASSERT(cnt > 0); /* the leaves are in memory */
	for (int i = 0; i < cnt; i++) {
		for (uint64_t k = 0; k < segments[i].range.cnt; k++) {
			struct lp_seg seg;
			uint64_t got = lpi_range_run(&at, 1, &seg);
			LP_ASSERT(got == 1);
			defer(txn, segments[i].range.first + k, segments[i].block + k, *crc++, seg);
		}
	}
}

static void defer_new(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_range_at at = lpi_range_begin(edit);
	uint64_t done = 0;
	for (uint32_t i = 0; i < edit->extent_cnt; i++) {
		for (uint64_t k = 0; k < edit->extents[i].cnt; k++, done++) {
			struct lp_seg seg;
			uint64_t got = lpi_range_run(&at, 1, &seg);
			LP_ASSERT(got == 1);
			defer(txn, edit->range.first + done, edit->extents[i].block + k,
			      edit->crcs[done], seg);
		}
	}
}

static void take_extents(struct lpi_txn *txn)
{
	for (uint32_t i = 0; i < txn->edit.extent_cnt; i++)
		lp_shard_taken(txn->block->shard, txn->edit.extents[i]);
}

static void defer_run(struct lpi_txn *txn, const struct lpi_range_place *place,
		      struct lpi_range_at *at)
{
	const struct lpi_edit *edit = &txn->edit;
	for (uint64_t k = 0; k < place->range.cnt; k++) {
		struct lp_seg seg;
		uint64_t block = place->range.first + k;
		uint64_t got = lpi_range_run(at, 1, &seg);
		LP_ASSERT(got == 1);
		defer(txn, block, place->block + k, edit->crcs[block - edit->range.first], seg);
	}
}

static void map_run(struct lpi_txn *txn, const struct lpi_range_place *place)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_inode *inode = edit->inode;
	const uint32_t *crcs = edit->crcs + (place->range.first - edit->range.first);
	const struct lp_extent extent = {place->block, place->range.cnt};
	switch (place->kind) {
	case LPI_PLACE_OWN:
		lp_extmap_update_crcs(&inode->map, place->range, crcs);
		break;
	case LPI_PLACE_SET_ASIDE:
		mark_written(txn->block, inode, place->range, crcs);
		break;
	case LPI_PLACE_NEW:
		replace(txn, place->range,
			&(struct lp_extmap_new){
				.extents = &extent, .extents_cnt = 1, .crcs = crcs});
		break;
	}
}

/* Each run goes to its place: overwritten blocks go into the frame, others take the write's path.
 */
static void write_mixed(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_places_at places = lpi_places_begin(edit);
	struct lpi_range_at at = lpi_range_begin(edit);
	struct lpi_range_place place;
	take_extents(txn);
	while (lpi_places_next(&places, &place)) {
		if (place.kind == LPI_PLACE_OWN || edit->path == LP_PATH_DEFERRED)
			defer_run(txn, &place, &at);
		else
			lpi_range_skip(&at, place.range.cnt);
		map_run(txn, &place);
	}
}

static void write_range(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_inode *inode = edit->inode;
	bool is_deferred = edit->path == LP_PATH_DEFERRED;
	if (edit->is_mixed) {
		write_mixed(txn);
		return;
	}
	if (edit->is_in_place || edit->is_unwritten) {
		if (is_deferred)
			defer_in_place(txn);
		if (edit->is_unwritten)
			mark_written(txn->block, inode, edit->range, edit->crcs);
		else
			lp_extmap_update_crcs(&inode->map, edit->range, edit->crcs);
		return;
	}
	take_extents(txn);
	if (is_deferred)
		defer_new(txn);
	replace(txn, edit->range,
		&(struct lp_extmap_new){.extents = edit->extents,
					.extents_cnt = edit->extent_cnt,
					.crcs = edit->crcs});
}

static void apply_write(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lp_inode *rec = &edit->inode->rec;
	if (edit->path == LP_PATH_INLINE) {
		write_inline(edit);
	} else {
		drop_content(edit->inode);
		write_range(txn);
		apply_solos(txn);
	}
	rec->size_bytes = LP_MAX(rec->size_bytes, edit->offset + edit->length);
	txn->op->txn.path = edit->path;
	txn->block->stats.writes_by_path[edit->path]++;
	txn->block->stats.written_bytes += edit->length;
}

/* --- Cutting and punching --------------------------------------------------------------------- */

static void cut_content(struct lpi_inode *inode, uint64_t size)
{
	if (size >= inode->rec.content.len)
		return;
	const uint8_t *memory = inode->rec.content.at;
	inode->rec.content_crc = lp_crc32c(0, memory, size);
	lpi_inode_set_part(inode, LPI_PART_CONTENT, memory, (uint32_t)size);
}

static void apply_truncate(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_inode *inode = edit->inode;
	uint64_t size = edit->change->data.offset;
	cut_content(inode, size);
	if (edit->range.cnt > 0)
		punch(txn, edit->range);
	apply_solos(txn);
	inode->rec.size_bytes = size;
	if (edit->trim == NULL)
		return;
	struct lpi_trim *trim = edit->trim;
	edit->trim = NULL;
	lpi_trim_begin(trim, inode, lp_bytes_to_blocks_up(size), false);
}

static void punch_content(struct lpi_edit *edit)
{
	struct lpi_inode *inode = edit->inode;
	uint8_t *memory = lpi_inode_part_memory(inode, LPI_PART_CONTENT);
	uint64_t len = inode->rec.content.len;
	uint64_t from = LP_MIN(edit->change->data.offset, len);
	uint64_t end = LP_MIN(edit->change->data.offset + edit->change->data.length, len);
	if (from == end)
		return;
	uint32_t crc = lp_crc32c(0, memory, from);
	crc = lp_crc32c_combine(crc, lp_csum_zeros(end - from), end - from);
	crc = lp_crc32c_combine(crc, lp_crc32c(0, memory + end, len - end), len - end);
	memset(memory + from, 0, end - from);
	inode->rec.content_crc = crc;
}

static void apply_punch(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	punch_content(edit);
	if (edit->range.cnt > 0)
		punch(txn, edit->range);
	apply_solos(txn);
}

static void apply_prealloc(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	if (edit->solo_cnt > 0)
		drop_content(edit->inode);
	apply_solos(txn);
	if (edit->range.cnt == 0)
		return;
	take_extents(txn);
	replace(txn, edit->range,
		&(struct lp_extmap_new){.extents = edit->extents, .extents_cnt = edit->extent_cnt});
}

/* --- Clones ----------------------------------------------------------------------------------- */

/* One run of the source, extent by extent while they are contiguous in the file. */
static void clone_segment(struct lpi_txn *txn, const struct lp_extmap_segment *segment,
			  const uint32_t *crcs)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_block *block = txn->block;
	uint64_t src_first = lpi_edit_src_range(edit).first;
	const struct lp_extent extent = {segment->block, segment->range.cnt};
	const struct lp_extmap_range to = {edit->range.first + segment->range.first - src_first,
					   segment->range.cnt};
	if (segment->kind != LP_EXTMAP_DATA)
		return;
	/* This comes first, because both may be in one file: a block is in a map twice only if it
	 * is shared. */
	if (!segment->is_shared && reserve(block, edit->src, segment->range, 0))
		lp_extmap_mark_shared(&edit->src->map, segment->range);
	lpi_share_apply(block, extent, segment->is_shared);
	replace(txn, to,
		&(struct lp_extmap_new){
			.extents = &extent, .extents_cnt = 1, .crcs = crcs, .is_shared = true});
}

static void apply_clone(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_block *block = txn->block;
	struct lp_inode *rec = &edit->inode->rec;
	struct lp_extmap_range src = lpi_edit_src_range(edit);
	drop_content(edit->inode);
	punch(txn, edit->range);
	int cnt = lp_extmap_lookup(&edit->src->map, src, block->scratch.segments,
				   (int)LPI_SCRATCH_BLOCKS, block->scratch.crcs);
	LP_ASSERT(cnt > 0);
	for (int i = 0; i < cnt; i++) {
		const struct lp_extmap_segment *segment = &block->scratch.segments[i];
		clone_segment(txn, segment,
			      block->scratch.crcs + (segment->range.first - src.first));
	}
	apply_solos(txn);
	lpi_node_changed(&edit->src->node);
	rec->size_bytes = LP_MAX(rec->size_bytes, edit->offset + edit->length);
}

/* --- All of them ------------------------------------------------------------------------------ */

void lpi_edit_apply(struct lpi_txn *txn)
{
	if (txn->edit.grave != NULL)
		bury(txn);
	switch (txn->edit.change->type) {
	case LP_CHANGE_WRITE:
		apply_write(txn);
		break;
	case LP_CHANGE_TRUNCATE:
		apply_truncate(txn);
		break;
	case LP_CHANGE_PUNCH:
		apply_punch(txn);
		break;
	case LP_CHANGE_PREALLOC:
		apply_prealloc(txn);
		break;
	case LP_CHANGE_CLONE:
	default:
		apply_clone(txn);
		break;
	}
}

void lpi_edit_next_step(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	for (uint32_t i = 0; i < edit->solo_cnt; i++)
		lp_buf_put(edit->solos[i].buf);
	edit->solo_cnt = 0;
	edit->extent_cnt = 0;
	edit->extent_blocks = 0;
	edit->stage = LPI_EDIT_PLAN;
}
