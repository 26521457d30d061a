/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of data, prepared: old content is read and merged, space is taken, and the direct path
 * writes. block/write/edit.c then applies the change. */
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/block/core/data_cache.h"
#include "store/block/write/edit.h"

/* From this size on a call of its own costs less than a device that waits for the sums. */
#define SUM_BESIDE_BYTES UINT64_C(131072)

/* --- Small steps ------------------------------------------------------------------------------ */

/* After the map returned -EAGAIN: 0 to call it again. */
static int get_leaves(struct lpi_txn *txn, struct lpi_inode *inode)
{
	int err = lpi_leaves_get(&txn->warmer, inode, true);
	return err == -EAGAIN ? lpi_txn_wait_index(txn) : err;
}

int lpi_edit_lookup(struct lpi_txn *txn, struct lpi_inode *inode, struct lp_extmap_range range,
		    struct lpi_found *ret_found)
{
	for (;;) {
		int cnt = lp_extmap_lookup(&inode->map, range, ret_found->segments, LPI_FOUND_MAX,
					   NULL);
		if (cnt >= 0) {
			ret_found->cnt = cnt;
			return 0;
		}
		int err = cnt == -EAGAIN ? get_leaves(txn, inode) : cnt;
		if (err != 0)
			return err;
	}
}

struct lpi_solo *lpi_edit_add_solo(struct lpi_edit *edit, uint64_t block, bool is_in_range)
{
	LP_ASSERT(edit->solo_cnt < LPI_SOLOS_MAX);
	struct lpi_solo *solo = &edit->solos[edit->solo_cnt++];
	*solo = (struct lpi_solo){.block = block, .is_in_range = is_in_range};
	return solo;
}

static void drop_solo(struct lpi_edit *edit, uint32_t idx)
{
	lp_buf_put(edit->solos[idx].buf);
	edit->solos[idx] = edit->solos[--edit->solo_cnt];
}

/* --- Present content of a block -----------------------------------------------------------------
 */

static void take_content(struct lpi_solo *solo, const struct lpi_inode *from)
{
	uint32_t len = (uint32_t)from->rec.content.len;
	uint32_t rest = (uint32_t)LP_BLOCK_BYTES - len;
	memcpy(solo->buf->data, from->rec.content.at, len);
	memset(solo->buf->data + len, 0, rest);
	solo->old_crc = lp_crc32c_combine(from->rec.content_crc, lp_csum_zeros(rest), rest);
}

/* The old content is in the cache, and is copied; a block that is bad in memory counts as missing.
 */
static bool copy_cached(const struct lpi_txn *txn, const struct lpi_solo *solo)
{
	struct lpi_cached *cached = txn->block->cached;
	const struct lp_seg *seg =
		cached == NULL ? NULL
			       : lpi_cached_find(cached, solo->old_device, solo->old_crc, false);
	if (seg == NULL)
		return false;
	memcpy(solo->buf->data, seg->buf->data + seg->offset, LP_BLOCK_BYTES);
	if (LP_LIKELY(lp_crc32c(0, solo->buf->data, LP_BLOCK_BYTES) == solo->old_crc))
		return true;
	lpi_cached_drop(cached, solo->old_device);
	return false;
}

static int outside(const struct lpi_txn *txn, const struct lpi_solo *solo)
{
	return LP_CORRUPT(solo->old_device << LP_BLOCK_SHIFT,
			  "inode %llu, offset %llu: block %llu is not in the space of the shard",
			  (unsigned long long)txn->edit.inode->rec.ino.nr,
			  (unsigned long long)(solo->block << LP_BLOCK_SHIFT),
			  (unsigned long long)solo->old_device);
}

static int take_mapped(struct lpi_txn *txn, struct lpi_solo *solo)
{
	const struct lp_extmap_range range = {solo->block, 1};
	struct lp_extmap_segment segment;
	struct lpi_found found;
	struct lp_seg seg;
	uint32_t crc = 0;
	int err = lpi_edit_lookup(txn, txn->edit.inode, range, &found);
	if (err != 0)
		return err;
	/* The leaf is in memory now. */
	int cnt = lp_extmap_lookup(&txn->edit.inode->map, range, &segment, 1, &solo->old_crc);
	LP_ASSERT(cnt == 1);
	solo->is_zero = segment.kind != LP_EXTMAP_DATA;
	solo->is_unwritten = segment.kind == LP_EXTMAP_UNWRITTEN;
	/* A map is input until it is verified: no block of another owner may be written. */
	const struct lp_extent old = {segment.block, 1};
	solo->is_in_place = segment.kind != LP_EXTMAP_HOLE && !segment.is_shared &&
			    lp_space_is_taken(txn->block->space, old);
	solo->old_device = segment.block;
	solo->device = segment.block;
	if (solo->is_zero)
		return 0;
	if (!lp_space_has(txn->block->space, old))
		return outside(txn, solo);
	if (lp_pending_find(txn->block->pending, segment.block, &seg, &crc))
		memcpy(solo->buf->data, seg.buf->data + seg.offset, LP_BLOCK_BYTES);
	else
		solo->is_read = !copy_cached(txn, solo);
	return 0;
}

static int find_source(struct lpi_txn *txn, struct lpi_solo *solo)
{
	if (solo->content != NULL) {
		take_content(solo, solo->content);
		return 0;
	}
	return take_mapped(txn, solo);
}

/* Buffers for all solos, or for none: no operation waits for a buffer while it holds others (rule
 * B1). */
static bool take_solo_bufs(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lp_bufs *bufs = txn->block->options.bufs;
	for (uint32_t i = 0; i < edit->solo_cnt; i++) {
		struct lpi_solo *solo = &edit->solos[i];
		if (solo->buf == NULL)
			solo->buf = lp_buf_new_ranked(bufs, LP_BUF_SMALL, LP_BUF_EDGE);
		if (solo->buf != NULL)
			continue;
		for (; i > 0; i--) {
			lp_buf_put(edit->solos[i - 1].buf);
			edit->solos[i - 1].buf = NULL;
		}
		return false;
	}
	return true;
}

static int find_sources(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	if (!take_solo_bufs(txn))
		return lpi_txn_wait_memory(txn);
	for (uint32_t i = 0; i < edit->solo_cnt;) {
		int err = find_source(txn, &edit->solos[i]);
		if (err != 0)
			return err;
		/* Zeros over a block that reads as zeros: nothing to do. */
		if (edit->solos[i].is_zero && !edit->solos[i].is_in_range)
			drop_solo(edit, i);
		else
			i++;
	}
	return 0;
}

static void job_ended(struct lpi_block_job *job)
{
	struct lpi_edit *edit = LP_CONTAINER_OF(job, struct lpi_edit, job);
	lpi_txn_io_ended(LP_CONTAINER_OF(edit, struct lpi_txn, edit));
}

static int read_sources(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	bool any = false;
	if (edit->is_early) { /* whole blocks: nothing is merged, and the job is in use */
		edit->stage = LPI_EDIT_MERGE;
		return 0;
	}
	lpi_block_job_init(&edit->job, txn->block, job_ended);
	for (uint32_t i = 0; i < edit->solo_cnt; i++) {
		struct lpi_solo *solo = &edit->solos[i];
		if (!solo->is_read)
			continue;
		struct lpi_io *io = lpi_block_job_add(&edit->job, LP_BDEV_READ,
						      (struct lp_extent){solo->old_device, 1});
		if (io == NULL) {
			lpi_block_job_fini(&edit->job);
			return lpi_txn_wait_memory(txn);
		}
		bool fits = lpi_io_add(io, (struct lp_seg){solo->buf, 0, LP_BLOCK_BYTES});
		LP_ASSERT(fits);
		any = true;
	}
	edit->stage = LPI_EDIT_MERGE;
	if (!any)
		return 0;
	lpi_txn_move(txn, LPI_TXN_READ);
	lpi_block_job_run(&edit->job);
	return LPI_WAIT;
}

/* Puts the piece into the block, and its crc into the block's (rule W2). */
static int merge_one(struct lpi_edit *edit, struct lpi_solo *solo)
{
	uint8_t *data = solo->buf->data;
	const struct lp_csum_piece *piece = &solo->piece;
	int err = 0;
	if (piece->len_bytes == 0) {
		solo->crc = solo->old_crc;
		return 0;
	}
	if (solo->is_zero) {
		memset(data, 0, LP_BLOCK_BYTES);
		solo->crc = lp_csum_merge_zeros(piece);
	} else {
		err = lp_csum_merge(data, solo->old_crc, solo->old_device, piece, &solo->crc);
	}
	if (err < 0)
		return err;
	if (!solo->is_in_range) {
		memset(data + piece->offset_bytes, 0, piece->len_bytes);
		return 0;
	}
	struct lpi_seg_cursor at = lpi_seg_cursor_at(&edit->change->data.payload);
	lpi_payload_skip(&at, solo->block * LP_BLOCK_BYTES + piece->offset_bytes - edit->offset);
	lpi_seg_cursor_copy(&at, data + piece->offset_bytes, piece->len_bytes);
	return 0;
}

static int damaged(const struct lpi_txn *txn, const struct lpi_solo *solo, int err)
{
	uint64_t offset = solo->block * LP_BLOCK_BYTES;
	if (err == -EBADMSG)
		return LP_CORRUPT_CRC(offset, "inode %llu: the block at %llu is damaged",
				      (unsigned long long)txn->edit.inode->rec.ino.nr,
				      (unsigned long long)offset);
	return err;
}

static int merge(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	int err = 0;
	if (!edit->is_early) {
		err = edit->job.result < 0 ? -EIO : 0;
		lpi_block_job_fini(&edit->job);
	}
	for (uint32_t i = 0; i < edit->solo_cnt && err == 0; i++)
		err = damaged(txn, &edit->solos[i], merge_one(edit, &edit->solos[i]));
	if (err < 0)
		return err;
	if (edit->change->type == LP_CHANGE_WRITE && edit->range.cnt > 0)
		lpi_edit_collect_crcs(edit);
	edit->stage = LPI_EDIT_COPY;
	return 0;
}

/* --- Copies for unaligned memory -------------------------------------------------------------- */

static bool needs_copy(const struct lpi_edit *edit)
{
	struct lpi_range_at at = lpi_range_begin(edit);
	struct lp_seg seg;
	for (uint64_t left = edit->range.cnt; left > 0;) {
		uint64_t blocks = lpi_range_run(&at, left, &seg);
		if (blocks == 0)
			return true;
		left -= blocks;
	}
	return false;
}

static int copy_payload(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	if (edit->copy_cnt == 0 && !needs_copy(edit))
		return 0;
	struct lpi_seg_cursor at = lpi_seg_cursor_at(&edit->change->data.payload);
	uint64_t skip = (LP_BLOCK_BYTES - edit->offset % LP_BLOCK_BYTES) % LP_BLOCK_BYTES;
	uint64_t left = (edit->length - skip) & ~(LP_BLOCK_BYTES - 1);
	lpi_payload_skip(&at, skip);
	edit->copy_bytes = lp_buf_size((uint32_t)LP_MIN(left, (uint64_t)LP_BUF_LARGE));
	while (left > 0) {
		struct lp_buf *buf =
			lp_buf_new_ranked(txn->block->options.bufs, edit->copy_bytes, LP_BUF_COPY);
		uint64_t bytes = LP_MIN(left, (uint64_t)edit->copy_bytes);
		if (buf == NULL) {
			lpi_edit_drop_copies(edit);
			return lpi_txn_wait_memory(txn);
		}
		LP_ASSERT(edit->copy_cnt < LPI_COPIES_MAX);
		lpi_seg_cursor_copy(&at, buf->data, (uint32_t)bytes);
		edit->copies[edit->copy_cnt++] = buf;
		left -= bytes;
	}
	return 0;
}

/* --- Space ------------------------------------------------------------------------------------ */

int lpi_txn_wait_space(struct lpi_txn *txn)
{
	lpi_txn_move(txn, LPI_TXN_SPACE);
	txn->block->stats.space_waits++;
	lp_shard_wait_space(txn->block->shard, &txn->waiter);
	return LPI_WAIT;
}

bool lpi_txn_may_hope_for_space(struct lpi_txn *txn)
{
	if (!lpi_hope_goes_on(&txn->hope, txn->block))
		return false;
	lpi_txn_move(txn, LPI_TXN_RESOLVE);
	(void)lpi_txn_wait_memory(txn); /* for a short time */
	return true;
}

bool lpi_txn_hope_for_index(struct lpi_txn *txn, bool is_busy)
{
	bool is_coming = is_busy || lpi_trims_are_freeing(txn->block);
	txn->index_tries += lpi_hope_counts(&txn->index_counted_ns, txn->block);
	if (!is_coming || txn->index_tries > LPI_HOPES_IDLE)
		return false;
	(void)lpi_txn_wait_memory(txn);
	return true;
}

/* A cut of a file inside a shared block needs a new block, and is a removal all the same. Some
 * blocks are reserved for cuts, and only cuts may take the last ones (P6). */
static uint64_t room_for(const struct lpi_txn *txn)
{
	const struct lp_change *change = txn->edit.change;
	uint64_t free = lp_alloc_free_blocks(lp_space_alloc(txn->block->space));
	if (change->type == LP_CHANGE_TRUNCATE || change->type == LP_CHANGE_PUNCH)
		return free;
	return free - LP_MIN(free, LPI_CUT_BLOCKS);
}

static int take(struct lpi_txn *txn, uint64_t want, struct lp_extent *ret_extents,
		uint32_t extents_max, uint32_t *ret_cnt, uint64_t *ret_blocks)
{
	const struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT,
						 .extents_max = extents_max};
	uint64_t blocks = 0;
	uint64_t room = room_for(txn);
	if (room == 0)
		return -ENOSPC;
	want = LP_MIN(want, room);
	int cnt = lp_space_take(txn->block->space, want, &options, ret_extents, &blocks);
	if (cnt < 0)
		return cnt;
	*ret_cnt = (uint32_t)cnt;
	*ret_blocks = blocks;
	return 0;
}

static void untake_range(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	for (uint32_t i = 0; i < edit->extent_cnt; i++)
		lp_space_untake(txn->block->space, edit->extents[i]);
	edit->extent_cnt = 0;
	edit->extent_blocks = 0;
}

/* Takes space for all blocks of the range that need it, or returns -ENOSPC. A preallocation is
 * content with less.
 */
static int take_range(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	uint64_t want = edit->is_mixed ? edit->new_cnt : edit->range.cnt;
	if (edit->extent_cnt > 0)
		return 0;
	int err = take(txn, want, edit->extents, LPI_EDIT_BLOCKS, &edit->extent_cnt,
		       &edit->extent_blocks);
	if (err < 0 || edit->extent_blocks == want)
		return err;
	if (edit->change->type == LP_CHANGE_PREALLOC) {
		edit->range.cnt = edit->extent_blocks;
		edit->is_last_step = false;
		return 0;
	}
	untake_range(txn);
	/* Blocks that the transaction has just given back itself do not count as newly free. */
	lpi_hope_tries(&txn->hope, txn->block);
	return -ENOSPC;
}

static int take_solo(struct lpi_txn *txn, struct lpi_solo *solo)
{
	struct lp_extent extent;
	uint32_t cnt = 0;
	uint64_t blocks = 0;
	if (solo->is_in_range || solo->is_in_place || solo->has_new_block)
		return 0;
	int err = take(txn, 1, &extent, 1, &cnt, &blocks);
	if (err < 0)
		return err;
	solo->device = extent.block;
	solo->has_new_block = true;
	return 0;
}

static bool range_needs_space(const struct lpi_edit *edit)
{
	if (edit->range.cnt == 0 || edit->is_in_place || edit->is_unwritten)
		return false;
	if (edit->is_mixed)
		return edit->new_cnt > 0;
	return edit->change->type == LP_CHANGE_WRITE || edit->change->type == LP_CHANGE_PREALLOC;
}

/* The write adds blocks where there were none, so the index will grow. */
static bool write_grows(const struct lpi_edit *edit)
{
	if (edit->change->type != LP_CHANGE_WRITE)
		return false;
	if (edit->path == LP_PATH_INLINE)
		return edit->offset + edit->length > edit->inode->rec.content.len;
	bool grows = range_needs_space(edit);
	for (uint32_t i = 0; i < edit->solo_cnt; i++)
		grows |= !edit->solos[i].is_in_place;
	return grows;
}

static int take_all(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	int err = write_grows(edit) ? lpi_txn_admit(txn, LP_SHARD_GROWS) : 0;
	if (err == 0 && range_needs_space(edit))
		err = take_range(txn);
	for (uint32_t i = 0; i < edit->solo_cnt && err == 0; i++)
		err = take_solo(txn, &edit->solos[i]);
	return err;
}

/* If there is no space for a copy of the overwritten blocks, and for content that moves with it, a
 * write uses the file's own blocks (P6). */
static int try_space(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	bool plays_full = txn->block->plays_full && lpi_edit_was_refused(edit);
	lpi_hope_tries(&txn->hope, txn->block);
	int err = plays_full ? -ENOSPC : take_all(txn);
	if (err == -ENOSPC) {
		int kept = lpi_edit_keep_places(txn);
		if (kept == 0 || (kept == -ENOSPC && plays_full))
			err = take_all(txn);
		else if (kept != -ENOSPC)
			return kept;
	}
	if (err == -ENOSPC)
		lpi_edit_leave_places(edit);
	return err;
}

/* Other shards are asked for space, unless they have been since the transaction began (rule S5). */
static int take_space(struct lpi_txn *txn)
{
	int err = try_space(txn);
	if (err != -ENOSPC)
		return err;
	if (!lp_shard_has_no_space(txn->block->shard, txn->waiter.begun))
		return lpi_txn_wait_space(txn);
	if (lpi_edit_was_refused(&txn->edit)) {
		err = try_space(txn);
		if (err != -ENOSPC)
			return err;
	}
	return lpi_txn_may_hope_for_space(txn) ? LPI_WAIT : -ENOSPC;
}

/* --- Direct writes ---------------------------------------------------------------------------- */

/* Blocks of one extent, in as many ios as their memory needs. */
static bool add_extent(struct lpi_txn *txn, struct lp_extent extent, struct lpi_range_at *at)
{
	struct lpi_block_job *job = &txn->edit.job;
	enum lp_bdev_opcode opcode = lpi_block_data_opcode(txn->block);
	while (extent.cnt > 0) {
		struct lpi_io *io = lpi_block_job_add(job, opcode, extent);
		if (io == NULL)
			return false;
		uint64_t blocks = lpi_range_fill(at, io, extent.cnt);
		io->extent.cnt = blocks;
		extent.block += blocks;
		extent.cnt -= blocks;
	}
	return true;
}

/* The range has its blocks already, which are unwritten. */
static bool add_unwritten(struct lpi_txn *txn, struct lpi_range_at *at)
{
	struct lpi_edit *edit = &txn->edit;
	struct lp_extmap_range range = edit->range;
	while (range.cnt > 0) {
		struct lp_extmap_segment segment;
		int cnt = lp_extmap_lookup(&edit->inode->map, range, &segment, 1, NULL);
		LP_ASSERT(cnt == 1); /* its leaves are in memory */
		if (!add_extent(txn, (struct lp_extent){segment.block, segment.range.cnt}, at))
			return false;
		range.first += segment.range.cnt;
		range.cnt -= segment.range.cnt;
	}
	return true;
}

/* All blocks except overwritten ones, which go into the frame. */
static bool add_mixed(struct lpi_txn *txn, struct lpi_range_at *at)
{
	struct lpi_places_at places = lpi_places_begin(&txn->edit);
	struct lpi_range_place place;
	while (lpi_places_next(&places, &place)) {
		if (place.kind == LPI_PLACE_OWN)
			lpi_range_skip(at, place.range.cnt);
		else if (!add_extent(txn, (struct lp_extent){place.block, place.range.cnt}, at))
			return false;
	}
	return true;
}

static bool add_new(struct lpi_txn *txn, struct lpi_range_at *at)
{
	const struct lpi_edit *edit = &txn->edit;
	bool all = true;
	for (uint32_t i = 0; i < edit->extent_cnt && all; i++)
		all = add_extent(txn, edit->extents[i], at);
	return all;
}

/* A write that begins early keeps its ios until its claim is held. The holder of the claim may need
 * ios first, so some are left for it (rule B1). */
static bool leaves_ios(struct lpi_txn *txn)
{
	return lp_pool_free_cnt(txn->block->ios) >= LPI_EDIT_BLOCKS;
}

static bool begin_writing(struct lpi_txn *txn, bool is_early)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_range_at at = lpi_range_begin(edit);
	bool all = true;
	lpi_block_job_init(&edit->job, txn->block, job_ended);
	if (edit->is_mixed)
		all = add_mixed(txn, &at);
	else if (edit->is_unwritten)
		all = add_unwritten(txn, &at);
	else
		all = add_new(txn, &at);
	if (!all || (is_early && !leaves_ios(txn))) {
		lpi_block_job_fini(&edit->job);
		return false;
	}
	lpi_block_job_run(&edit->job);
	return true;
}

static int write_direct(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	if (!edit->is_early && !begin_writing(txn, false))
		return lpi_txn_wait_memory(txn);
	edit->is_early = false;
	edit->stage = LPI_EDIT_WRITTEN;
	if (edit->job.running == 0)
		return 0;
	lpi_txn_move(txn, LPI_TXN_DATA_IO);
	return LPI_WAIT;
}

static int written(struct lpi_edit *edit)
{
	int err = edit->job.result;
	if (edit->job.running > 0)
		return LPI_WAIT;
	lpi_block_job_fini(&edit->job);
	if (err == -ENOSPC)
		return err; /* from the host of a sparse image: the store's (rule S7) */
	return err < 0 ? -EIO : 0;
}

static void begin_early(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	const struct lp_change *change = edit->change;
	if (change->type != LP_CHANGE_WRITE || change->data.offset == LP_STORE_APPEND ||
	    change->data.offset % LP_BLOCK_BYTES != 0 || change->data.length % LP_BLOCK_BYTES != 0)
		return;
	/* The edit keeps the path. It is used unless the write turns out to be inline. */
	edit->path = lpi_edit_choose_path(txn, change->data.length);
	if (edit->path != LP_PATH_DIRECT)
		return;
	edit->offset = change->data.offset;
	edit->length = change->data.length;
	edit->range = (struct lp_extmap_range){edit->offset / LP_BLOCK_BYTES,
					       edit->length / LP_BLOCK_BYTES};
	if (txn->block->plays_full || needs_copy(edit) || take_range(txn) != 0)
		return;
	edit->is_early = begin_writing(txn, true);
	if (!edit->is_early)
		untake_range(txn);
}

/* Summing reads each byte, and takes about as long as the device for a large part of the data. So
 * the device begins first. Its completions are not handled before the sums are there. */
void lpi_edit_begin(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	const struct lp_payload *payload = &edit->change->data.payload;
	lpi_edit_init(edit);
	begin_early(txn);
	if (edit->change->type != LP_CHANGE_WRITE || payload->sum == NULL)
		return;
	if (edit->is_early && edit->length >= SUM_BESIDE_BYTES)
		lp_reactor_submit(txn->block->options.reactor);
	payload->sum(payload->sum_arg);
}

bool lpi_edit_is_writing(const struct lpi_edit *edit)
{
	return edit->change != NULL && edit->job.running > 0;
}

/* --- The stages ------------------------------------------------------------------------------- */

static int pin(void *arg, struct lpi_node *node)
{
	return lpi_txn_pin(arg, node);
}

/* A new inode: it exists from the turn that applies on, as a removed one. */
static int dig_grave(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_block *block = txn->block;
	struct lpi_node *node = NULL;
	if (lpi_trims_are_many(block))
		return lpi_txn_wait_memory(txn);
	int err = edit->grave_trim == NULL ? lpi_trim_new(block, &edit->grave_trim) : 0;
	uint64_t nr = lp_store_new_ino(&block->base).nr;
	/* The number may have been looked up before it was given: then it is known not to exist. */
	node = lpi_node_find(&block->nodes, LPI_NODE_INODE, nr);
	if (err == 0 && node == NULL)
		err = lpi_node_load(&block->nodes, LPI_NODE_INODE, nr,
				    (struct lp_kv_bytes){NULL, 0}, &node);
	if (err == 0)
		err = lpi_txn_pin(txn, node);
	if (err == 0)
		edit->grave = lpi_inode_of(node);
	return err;
}

/* Shared blocks may be scattered over so many count groups that one commit cannot hold them, for
 * example those of a clone of a fragmented file. Such blocks are not released at once. The same
 * commit moves them to an inode that is being removed, the grave, and its trim releases them step
 * by step (rule S6). */
static int plan_grave(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_release_plan plan = {.warmer = &txn->warmer};
	if (edit->grave != NULL)
		return 0;
	int err = lpi_release_count(&plan, edit->inode, edit->range, true);
	if (err == 0 && plan.refs_cnt > LPI_GROUPS_MAX)
		err = dig_grave(txn);
	return err;
}

/* Bounds the room that the group must reserve. */
static int plan_release(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	struct lpi_release_plan plan = {.warmer = &txn->warmer, .pin = pin, .arg = txn};
	bool stays =
		edit->is_in_place || edit->is_unwritten || (edit->is_mixed && edit->new_cnt == 0);
	bool releases = edit->range.cnt > 0 && !stays;
	int err = releases ? plan_grave(txn) : 0;
	plan.spares_shared = edit->grave != NULL;
	if (err == 0 && releases)
		err = lpi_release_prepare(&plan, edit->inode, edit->range, true);
	plan.spares_shared = false;
	for (uint32_t i = 0; i < edit->solo_cnt && err == 0; i++) {
		const struct lp_extmap_range range = {edit->solos[i].block, 1};
		if (edit->solos[i].has_new_block)
			err = lpi_release_prepare(&plan, edit->inode, range, true);
	}
	edit->need_changes = plan.changes;
	return err == -EAGAIN ? lpi_txn_wait_index(txn) : err;
}

static int run_stage(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	int err = 0;
	switch (edit->stage) {
	case LPI_EDIT_PLAN:
		err = lpi_edit_plan(txn);
		break;
	case LPI_EDIT_SOLOS:
		err = lpi_edit_look_at_range(txn);
		if (err == 0)
			err = find_sources(txn);
		break;
	case LPI_EDIT_READ:
		return read_sources(txn); /* it sets the next state itself */
	case LPI_EDIT_MERGE:
		return merge(txn);
	case LPI_EDIT_COPY:
		if (edit->change->type == LP_CHANGE_WRITE && edit->range.cnt > 0)
			err = copy_payload(txn);
		break;
	case LPI_EDIT_ALLOC:
		err = take_space(txn);
		break;
	case LPI_EDIT_WRITE:
		if (edit->path == LP_PATH_DIRECT && edit->change->type == LP_CHANGE_WRITE)
			return write_direct(txn);
		edit->stage = LPI_EDIT_RESERVE;
		return 0;
	case LPI_EDIT_WRITTEN:
		err = written(edit);
		break;
	case LPI_EDIT_RESERVE:
		err = plan_release(txn);
		if (err == 0)
			err = lpi_edit_check_given(txn);
		if (err == 0)
			err = lpi_edit_plan_shared(txn);
		break;
	case LPI_EDIT_READY:
	default:
		return 0;
	}
	if (err == 0)
		edit->stage++;
	return err;
}

/* Blocks that are new to the file, for which the host of an image may have no space. */
static bool is_to_new_place(const struct lpi_edit *edit)
{
	bool is_new = edit->is_mixed || edit->is_unwritten ||
		      (edit->extent_cnt > 0 && edit->path == LP_PATH_DEFERRED);
	for (uint32_t i = 0; i < edit->solo_cnt; i++)
		is_new |= edit->solos[i].has_new_block;
	return is_new;
}

int lpi_edit_prepare(struct lpi_txn *txn)
{
	struct lpi_edit *edit = &txn->edit;
	while (edit->stage != LPI_EDIT_READY) {
		int err = run_stage(txn);
		if (err != 0)
			return err;
	}
	/* Checked each time, because others may have used the room meanwhile (rule L6). */
	if (!lp_shard_may_defer(txn->block->shard, lpi_edit_deferred(edit), is_to_new_place(edit)))
		return lp_shard_cannot_write_back(txn->block->shard) ? -ENOSPC
								     : lpi_txn_wait_memory(txn);
	return 0;
}

void lpi_edit_drop_copies(struct lpi_edit *edit)
{
	while (edit->copy_cnt > 0)
		lp_buf_put(edit->copies[--edit->copy_cnt]);
}

void lpi_edit_fini(struct lpi_txn *txn, bool is_applied)
{
	struct lpi_edit *edit = &txn->edit;
	if (edit->change == NULL)
		return;
	lpi_block_job_fini(&edit->job);
	if (!is_applied)
		untake_range(txn);
	for (uint32_t i = 0; i < edit->solo_cnt; i++) {
		struct lpi_solo *solo = &edit->solos[i];
		lp_buf_put(solo->buf);
		if (!is_applied && solo->has_new_block)
			lp_space_untake(txn->block->space, (struct lp_extent){solo->device, 1});
	}
	edit->solo_cnt = 0;
	edit->extent_cnt = 0;
	lpi_edit_drop_copies(edit);
	if (edit->trim != NULL)
		lpi_trim_free(edit->trim);
	edit->trim = NULL;
	if (edit->grave_trim != NULL)
		lpi_trim_free(edit->grave_trim);
	edit->grave_trim = NULL;
	lpi_block_memory_freed(txn->block);
}
