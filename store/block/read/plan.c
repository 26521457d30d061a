/* SPDX-License-Identifier: Apache-2.0 */
/* Sources of each block of a read, and verification of the blocks.
 *
 * A piece of a block gets a crc of its own, made together with that of the rest of the block: the
 * two must give the block's crc (rule W2). So a piece of a block that went bad in memory, which no
 * code verified since it came, gets no crc either. */
#include <string.h>

#include "base/error.h"
#include "store/block/core/data_cache.h"
#include "store/block/read/read.h"

#define AHEAD_WAITS_MAX 4u /* after that the read reads the blocks itself */

/* --- Lookup ----------------------------------------------------------------------------------- */

static uint64_t first_block(const struct lpi_read *read)
{
	return read->op->read.offset >> LP_BLOCK_SHIFT;
}

static int look_up(struct lpi_read *read, struct lpi_inode *inode)
{
	const struct lp_extmap_range range = {first_block(read), read->block_cnt};
	/* Each round adds one more leaf. */
	for (;;) {
		int cnt = lp_extmap_lookup(&inode->map, range, read->segments,
					   (int)LPI_READ_BLOCKS_MAX, read->crcs);
		if (cnt != -EAGAIN) {
			LP_ASSERT(cnt > 0);
			read->segment_cnt = (uint32_t)cnt;
			return 0;
		}
		int err = lpi_hold_leaves(&read->hold, inode);
		if (err < 0)
			return err;
	}
}

int lpi_read_look(struct lpi_read *read, struct lpi_inode **ret_inode)
{
	struct lp_store_op *op = read->op;
	read->block_cnt = 0;
	read->segment_cnt = 0;
	if (lp_shard_error(lpi_read_block(read)->shard) != 0)
		return -EIO;
	int err = lpi_inode_get(&read->hold.warmer, op->read.ino, read->hold.is_kept, ret_inode);
	if (err < 0)
		return err;
	const struct lp_inode *rec = &(*ret_inode)->rec;
	if (rec->type != LP_INODE_TYPE_FILE)
		return rec->type == LP_INODE_TYPE_DIR ? -EISDIR : -EINVAL;
	uint64_t offset = op->read.offset;
	uint64_t left = offset < rec->size_bytes ? rec->size_bytes - offset : 0;
	op->read.size_bytes = rec->size_bytes;
	op->read.version_nr = rec->version_nr;
	read->bytes = LP_MIN(op->read.length, left);
	read->block_cnt = lpi_piece_cnt(offset, read->bytes);
	LP_ASSERT(read->block_cnt <= LPI_READ_BLOCKS_MAX);
	return read->block_cnt > 0 ? look_up(read, *ret_inode) : 0;
}

bool lpi_read_awaits_ahead(struct lpi_read *read)
{
	struct lpi_cached *cached = lpi_read_block(read)->cached;
	bool waits = false;
	if (read->is_second || read->ahead_waits == AHEAD_WAITS_MAX)
		return false;
	for (uint32_t i = 0; i < read->segment_cnt && !waits; i++) {
		const struct lp_extmap_segment *segment = &read->segments[i];
		const struct lp_extent extent = {segment->block, segment->range.cnt};
		waits = segment->kind == LP_EXTMAP_DATA &&
			lpi_ahead_wait(cached, extent, &read->waiter);
	}
	return waits;
}

/* --- The plan --------------------------------------------------------------------------------- */

/* The next blocks of the file are these bytes; the read takes over the reference. */
static void add_part(struct lpi_read *read, struct lp_seg seg, uint64_t device_block)
{
	for (uint32_t at = 0; at < seg.len; at += (uint32_t)LP_BLOCK_BYTES) {
		LP_ASSERT(read->planned < read->block_cnt);
		read->sources[read->planned++] = (struct lpi_source){
			.buf = seg.buf, .offset = seg.offset + at, .device_block = device_block};
		device_block += device_block != 0;
	}
	struct lp_seg *last = read->seg_cnt > 0 ? &read->segs[read->seg_cnt - 1] : NULL;
	if (last != NULL && last->buf == seg.buf && last->offset + last->len == seg.offset) {
		last->len += seg.len;
		lp_buf_put(seg.buf);
		return;
	}
	read->segs[read->seg_cnt++] = seg;
}

static void add_zeros(struct lpi_read *read, uint64_t cnt)
{
	struct lp_buf *zeros = lpi_read_block(read)->zeros;
	while (cnt > 0) {
		const struct lp_seg *last =
			read->seg_cnt > 0 ? &read->segs[read->seg_cnt - 1] : NULL;
		bool goes_on = last != NULL && last->buf == zeros &&
			       last->offset + last->len < zeros->bytes;
		uint32_t offset = goes_on ? last->offset + last->len : 0;
		uint64_t room = (zeros->bytes - offset) >> LP_BLOCK_SHIFT;
		uint64_t part = LP_MIN(cnt, room);
		add_part(read,
			 (struct lp_seg){.buf = lp_buf_get(zeros),
					 .offset = offset,
					 .len = (uint32_t)(part << LP_BLOCK_SHIFT)},
			 0);
		cnt -= part;
	}
}

/* The content of the first block is in the inode. It is copied, because it may change there. */
static int add_inline(struct lpi_read *read, const struct lp_inode *rec)
{
	struct lp_buf *buf = lp_buf_new_ranked(lpi_read_block(read)->options.bufs, LP_BUF_SMALL,
					       read->op->read.rank);
	size_t len = rec->content.len;
	if (buf == NULL)
		return -ENOBUFS;
	LP_ASSERT(len <= LP_BLOCK_BYTES);
	memcpy(buf->data, rec->content.at, len);
	memset(buf->data + len, 0, LP_BLOCK_BYTES - len);
	read->crcs[0] = lp_crc32c_zeros(rec->content_crc, LP_BLOCK_BYTES - len);
	add_part(read, (struct lp_seg){.buf = buf, .len = (uint32_t)LP_BLOCK_BYTES}, 0);
	return 0;
}

/* 1 or 0. A read that begins once more may do so because the cached block is bad. */
static int find_in_cache(const struct lpi_read *read, uint64_t device_block, uint32_t idx,
			 struct lp_seg *ret_seg)
{
	struct lpi_cached *cached = lpi_read_block(read)->cached;
	if (!read->is_cached)
		return 0;
	if (read->is_second) {
		lpi_cached_drop(cached, device_block);
		return 0;
	}
	const struct lp_seg *seg =
		lpi_cached_find(cached, device_block, read->crcs[idx], read->goes_on && idx == 0);
	if (seg == NULL)
		return 0;
	*ret_seg = *seg;
	return 1;
}

/* Whether a written block is in memory: 1, and *ret_seg is borrowed; 0: it is on the device. */
static int find_in_memory(const struct lpi_read *read, uint64_t device_block, uint32_t idx,
			  struct lp_seg *ret_seg)
{
	const struct lp_pending *pending = lpi_read_block(read)->pending;
	uint32_t crc = 0;
	if (lp_pending_stats(pending)->versions == 0 ||
	    !lp_pending_find(pending, device_block, ret_seg, &crc))
		return find_in_cache(read, device_block, idx, ret_seg);
	if (crc == read->crcs[idx])
		return 1;
	return LP_CORRUPT(device_block << LP_BLOCK_SHIFT,
			  "inode %llu, offset %llu, block %llu: pending crc %08x, map's %08x",
			  (unsigned long long)read->op->read.ino.nr,
			  (unsigned long long)((first_block(read) + idx) << LP_BLOCK_SHIFT),
			  (unsigned long long)device_block, crc, read->crcs[idx]);
}

/* A buffer for all the bytes, or half of that size if it would waste more than a quarter. When
 * these are used up a smaller one, down to `min`. NULL: there is none. */
static struct lp_buf *take_large(struct lp_bufs *bufs, uint64_t bytes, uint32_t min,
				 enum lp_buf_rank rank)
{
	uint32_t size = lp_buf_size((uint32_t)LP_MIN(bytes, (uint64_t)LP_BUF_LARGE));
	struct lp_buf *buf = NULL;
	if (size > bytes && size - bytes > size / 4)
		size /= 2;
	for (size = LP_MAX(size, min); buf == NULL && size >= min; size /= 2)
		buf = lp_buf_new_ranked(bufs, size, rank);
	return buf;
}

static struct lp_buf *take_buf(const struct lpi_read *read, uint64_t bytes)
{
	const struct lpi_block *block = lpi_read_block(read);
	struct lp_buf *buf = NULL;
	/* Blocks that will be kept lie in the cache's own buffers, as long as there are any. */
	if (read->is_cached)
		buf = lpi_cached_buf(block->cached);
	else if (read->into != NULL)
		/* Few pieces, because their number is limited. */
		buf = take_large(read->into,
				 lp_buf_size((uint32_t)LP_MIN(bytes, (uint64_t)LP_BUF_LARGE)),
				 LP_BUF_MEDIUM, LP_BUF_REQUEST);
	if (buf != NULL)
		return buf;
	return take_large(block->options.bufs, bytes, LP_BUF_SMALL, read->op->read.rank);
}

/* Fills the io with as many blocks as it has places for buffers. -ENOBUFS. */
static int fill_io(struct lpi_read *read, struct lpi_io *io)
{
	uint64_t done = 0;
	while (done < io->extent.cnt && io->iov_cnt < LPI_IO_IOVS) {
		uint64_t left_bytes = (io->extent.cnt - done) << LP_BLOCK_SHIFT;
		struct lp_buf *buf = take_buf(read, left_bytes);
		if (buf == NULL)
			return -ENOBUFS;
		struct lp_seg seg = {.buf = buf, .len = (uint32_t)LP_MIN(left_bytes, buf->bytes)};
		bool fits = lpi_io_add(io, seg);
		LP_ASSERT(fits);
		add_part(read, seg, io->extent.block + done);
		done += seg.len >> LP_BLOCK_SHIFT;
	}
	io->extent.cnt = done;
	return 0;
}

static int add_device(struct lpi_read *read, struct lp_extent extent)
{
	while (extent.cnt > 0) {
		struct lpi_io *io = lpi_block_job_add(&read->job, LP_BDEV_READ, extent);
		int err = io == NULL ? -ENOBUFS : fill_io(read, io);
		if (err < 0)
			return err;
		extent.block += io->extent.cnt;
		extent.cnt -= io->extent.cnt;
	}
	return 0;
}

/* Written blocks, contiguous on the device. */
static int add_data(struct lpi_read *read, uint64_t device_block, uint64_t cnt)
{
	while (cnt > 0) {
		uint32_t idx = read->planned;
		uint64_t run = 0;
		struct lp_seg seg;
		int found = 0;
		while (run < cnt && found == 0) {
			found = find_in_memory(read, device_block + run, idx + (uint32_t)run, &seg);
			run += found == 0;
		}
		int err =
			found < 0 ? found : add_device(read, (struct lp_extent){device_block, run});
		if (err < 0)
			return err;
		if (found > 0) {
			seg.buf = lp_buf_get(seg.buf);
			add_part(read, seg, 0);
			run++;
		}
		device_block += run;
		cnt -= run;
	}
	return 0;
}

/* A map is input until it is verified: it may name any block. */
static int check_place(const struct lpi_read *read, struct lp_extent extent, uint64_t file_block)
{
	if (LP_LIKELY(lp_space_has(lpi_read_block(read)->space, extent)))
		return 0;
	return LP_CORRUPT(
		extent.block << LP_BLOCK_SHIFT,
		"inode %llu, offset %llu: blocks %llu to %llu are not in the space of the shard",
		(unsigned long long)read->op->read.ino.nr,
		(unsigned long long)(file_block << LP_BLOCK_SHIFT),
		(unsigned long long)extent.block, (unsigned long long)lp_extent_end(extent) - 1);
}

/* A mapped block that counts as free may be given to another owner at any time. Until then its
 * content fits its crc, so a reader that only wants the data gets it. */
static int check_taken(const struct lpi_read *read, struct lp_extent extent, uint64_t file_block)
{
	const struct lp_space *space = lpi_read_block(read)->space;
	struct lp_extent run;
	uint64_t block = extent.block;
	if (lp_alloc_next_free(lp_space_alloc(space), block, &run) &&
	    run.block < lp_extent_end(extent))
		block = run.block;
	else if (LP_LIKELY(lp_space_is_taken(space, extent)))
		return 0;
	else /* its freeing is not finished */
		while (lp_space_is_taken(space, (struct lp_extent){block, 1}))
			block++;
	return LP_CORRUPT(
		block << LP_BLOCK_SHIFT, "inode %llu, offset %llu, block %llu counts as free",
		(unsigned long long)read->op->read.ino.nr,
		(unsigned long long)((file_block + block - extent.block) << LP_BLOCK_SHIFT),
		(unsigned long long)block);
}

static int plan_data(struct lpi_read *read, struct lp_extent extent, uint64_t file_block)
{
	int err = check_place(read, extent, file_block);
	if (err == 0 && read->op->read.from_device)
		err = check_taken(read, extent, file_block);
	return err < 0 ? err : add_data(read, extent.block, extent.cnt);
}

/* A read in many pieces, or with blocks in memory, does not use the caller's buffers. */
static struct lp_bufs *choose_into(const struct lpi_read *read, const struct lpi_inode *inode)
{
	bool has_inline = inode->rec.content.len > 0 && first_block(read) == 0;
	if (read->is_cached || has_inline || read->segment_cnt > LP_STORE_INTO_EXTENTS)
		return NULL;
	for (uint32_t i = 0; i < read->segment_cnt; i++) {
		if (read->segments[i].kind != LP_EXTMAP_DATA)
			return NULL;
	}
	return read->op->read.into;
}

int lpi_read_plan(struct lpi_read *read, const struct lpi_inode *inode)
{
	int err = 0;
	read->into = choose_into(read, inode);
	lpi_block_job_init(&read->job, lpi_read_block(read), read->job.ended);
	if (read->is_cached)
		read->since = lpi_cached_now(lpi_read_block(read)->cached);
	if (inode->rec.content.len > 0 && first_block(read) == 0 && read->block_cnt > 0)
		err = add_inline(read, &inode->rec);
	for (uint32_t i = 0; i < read->segment_cnt && err == 0; i++) {
		const struct lp_extmap_segment *segment = &read->segments[i];
		uint64_t at = first_block(read) + read->planned;
		uint64_t skip = at - segment->range.first; /* blocks with inline content */
		uint64_t cnt = segment->range.cnt - skip;
		if (segment->kind == LP_EXTMAP_DATA)
			err = plan_data(read, (struct lp_extent){segment->block + skip, cnt}, at);
		else
			add_zeros(read, cnt);
	}
	LP_ASSERT(err < 0 || read->planned == read->block_cnt);
	return err;
}

/* --- Verification ----------------------------------------------------------------------------- */

/* The crc of a block from those of its three parts, and that of the middle part. */
static uint32_t crc_of_parts(const uint8_t *at, uint32_t begin, uint32_t end, uint32_t *ret_piece)
{
	uint32_t piece = lp_crc32c(0, at + begin, end - begin);
	uint32_t tail = lp_crc32c(0, at + end, LP_BLOCK_BYTES - end);
	uint32_t crc = lp_crc32c_combine(lp_crc32c(0, at, begin), piece, end - begin);
	*ret_piece = piece;
	return lp_crc32c_combine(crc, tail, LP_BLOCK_BYTES - end);
}

static int bad_block(const struct lpi_read *read, uint32_t idx, uint32_t got)
{
	uint64_t offset = (first_block(read) + idx) << LP_BLOCK_SHIFT;
	uint64_t device_block = read->sources[idx].device_block;
	if (!read->is_second)
		return -EBADMSG;
	read->op->read.bad_offset = offset;
	return LP_CORRUPT_CRC(
		device_block << LP_BLOCK_SHIFT,
		"inode %llu, offset %llu, block %llu: its crc is %08x, stored is %08x",
		(unsigned long long)read->op->read.ino.nr, (unsigned long long)offset,
		(unsigned long long)device_block, got, read->crcs[idx]);
}

/* Keeps a block that was verified against the map's crc. */
static void keep(const struct lpi_read *read, uint32_t idx)
{
	const struct lpi_source *source = &read->sources[idx];
	const struct lp_block_cache_item item = {
		.block = source->device_block,
		.since = read->since,
		.seg = {source->buf, source->offset, (uint32_t)LP_BLOCK_BYTES},
		.crc = read->crcs[idx],
	};
	if (read->is_cached && source->device_block != 0)
		(void)lpi_cached_keep(lpi_read_block(read)->cached,
				      &item); /* if it is not kept, the read still has it */
}

/* The block after this one, if it will be verified as well, for prefetching. */
static const uint8_t *next_from_device(const struct lpi_read *read, uint32_t idx)
{
	const struct lpi_source *next = &read->sources[idx + 1];
	return idx + 1 < read->block_cnt && next->device_block != 0 ? next->buf->data + next->offset
								    : NULL;
}

static int check_block(struct lpi_read *read, uint32_t idx)
{
	const struct lpi_source *source = &read->sources[idx];
	const uint8_t *at = source->buf->data + source->offset;
	uint64_t block_at = (first_block(read) + idx) << LP_BLOCK_SHIFT;
	uint64_t read_end = read->op->read.offset + read->bytes;
	uint64_t begin = LP_MAX(read->op->read.offset, block_at) - block_at;
	uint64_t end = LP_MIN(read_end, block_at + LP_BLOCK_BYTES) - block_at;
	uint32_t crc = read->crcs[idx];
	if (begin == 0 && end == LP_BLOCK_BYTES) {
		/* A block from memory was verified when it came, and its receiver verifies it
		 * again. */
		if (source->device_block == 0)
			return 0;
		const uint8_t *next = next_from_device(read, idx);
		uint32_t got = lp_crc32c_ahead(0, at, LP_BLOCK_BYTES, next);
		if (LP_UNLIKELY(got != crc))
			return bad_block(read, idx, got);
		keep(read, idx);
		return 0;
	}
	uint32_t piece = 0;
	uint32_t got = crc_of_parts(at, (uint32_t)begin, (uint32_t)end, &piece);
	if (LP_UNLIKELY(got != crc))
		return bad_block(read, idx, got);
	keep(read, idx);
	read->crcs[idx] = piece;
	return 0;
}

int lpi_read_check(struct lpi_read *read)
{
	LP_ASSERT(read->job.running == 0);
	if (LP_UNLIKELY(read->job.result < 0)) {
		lpi_read_block(read)->read_errors += read->is_second;
		return -EIO;
	}
	for (uint32_t i = 0; i < read->block_cnt; i++) {
		int err = check_block(read, i);
		if (LP_UNLIKELY(err < 0))
			return err;
	}
	return 0;
}

/* --- The end -------------------------------------------------------------------------------------
 */

void lpi_read_give_back(struct lpi_read *read)
{
	for (uint32_t i = 0; i < read->seg_cnt; i++)
		lp_buf_put(read->segs[i].buf);
	read->seg_cnt = 0;
	read->planned = 0;
	lpi_block_job_fini(&read->job);
}
