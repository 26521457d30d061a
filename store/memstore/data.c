/* SPDX-License-Identifier: Apache-2.0 */
/* A change of data is prepared first: every place for a page is made, every block that changes in
 * part gets its new crc (which verifies the old one), and buffers are set aside for the blocks that
 * cannot be written where they are. Then it is applied, and cannot fail.
 *
 * Blocks have data only below the file's end, and zeros from the end to the end of its block:
 * whoever cuts a block writes them. */
#include "store/memstore/memstore_impl.h"

/* --- Parts ------------------------------------------------------------------------------------ */

/* Nobody else looks at its buffer. */
static bool is_own(const struct lpi_mem_page *page)
{
	return page->buf != NULL && page->buf->refs == 1;
}

static int reserve(struct lpi_mem_store *store, uint64_t cnt)
{
	for (uint64_t i = 0; i < cnt; i++) {
		struct lp_buf *buf = lp_buf_new(store->bufs, LP_BLOCK_BYTES);
		if (buf == NULL)
			return -ENOSPC;
		lpi_mem_bufs_push_back(&store->reserved, buf);
	}
	return 0;
}

void lpi_mem_data_undo(struct lpi_mem_store *store)
{
	struct lp_buf *buf;
	while ((buf = lpi_mem_bufs_pop_front(&store->reserved)) != NULL)
		lp_buf_put(buf);
}

/* A buffer that may be written to. With keep it holds what the block did. */
static uint8_t *make_own(struct lpi_mem_store *store, struct lpi_mem_pages *pages,
			 struct lpi_mem_page *page, bool keep)
{
	bool is_data = lpi_mem_page_is_data(page);
	struct lp_buf *old = page->buf;
	if (!is_own(page)) {
		page->buf = lpi_mem_bufs_pop_front(&store->reserved);
		LP_ASSERT(page->buf != NULL);
		if (keep && is_data)
			memcpy(page->buf->data, old->data, LP_BLOCK_BYTES);
		pages->cnt += old == NULL;
		lp_buf_put(old);
	}
	if (keep && !is_data)
		memset(page->buf->data, 0, LP_BLOCK_BYTES);
	page->is_unwritten = false;
	return page->buf->data;
}

/* A block that the piece covers in part. Sets aside what make_own() will want. */
static int prepare_edge(struct lpi_mem_store *store, struct lpi_mem_page *page,
			const struct lp_csum_piece *piece, uint64_t block)
{
	struct lpi_mem_data *data = &store->data;
	struct lpi_mem_edge edge = {.page = page, .piece = *piece};
	int err = 0;
	if (lpi_mem_page_is_data(page))
		err = lp_csum_merge(page->buf->data, page->crc, block, piece, &edge.crc);
	else
		edge.crc = lp_csum_merge_zeros(piece);
	if (err == 0 && !is_own(page))
		err = reserve(store, 1);
	if (err < 0)
		return err;
	LP_ASSERT(data->edge_cnt < LP_ARRAY_SIZE(data->edges));
	data->edges[data->edge_cnt++] = edge;
	return 0;
}

/* Zeros [at, end), all of it in one block; nothing to do where there is no data. */
static int prepare_zeros(struct lpi_mem_store *store, uint64_t at, uint64_t end)
{
	uint64_t block = at >> LP_BLOCK_SHIFT;
	struct lpi_mem_page *page = lpi_mem_page_find(&store->data.inode->pages, block);
	struct lp_csum_piece piece = lpi_mem_piece_at(at, end, 0);
	if (!lpi_mem_page_is_data(page))
		return 0;
	piece = lp_csum_zero_piece(piece.offset_bytes, piece.len_bytes);
	return prepare_edge(store, page, &piece, block);
}

static void apply_zeros(struct lpi_mem_store *store)
{
	struct lpi_mem_data *data = &store->data;
	for (uint32_t i = 0; i < data->edge_cnt; i++) {
		struct lpi_mem_edge *edge = &data->edges[i];
		uint8_t *to = make_own(store, &data->inode->pages, edge->page, true);
		memset(to + edge->piece.offset_bytes, 0, edge->piece.len_bytes);
		edge->page->crc = edge->crc;
	}
}

/* --- Writing ---------------------------------------------------------------------------------- */

/* The buffer that is just the next block, which needs no copy. Larger buffers are copied from: a
 * block would keep all of one. So are those of another home: a full store would keep the sender
 * from receiving anything more. */
static struct lp_buf *whole_buf(const struct lpi_mem_store *store,
				const struct lpi_seg_cursor *cursor,
				const struct lp_csum_piece *piece)
{
	const struct lp_seg *seg = cursor->seg;
	bool is_it = lpi_mem_is_whole(piece) && cursor->offset == 0 && seg->len == LP_BLOCK_BYTES &&
		     seg->buf->bytes == LP_BLOCK_BYTES && seg->buf->home == store->bufs;
	return is_it ? seg->buf : NULL;
}

static void skip(struct lpi_seg_cursor *cursor, uint32_t len)
{
	while (len > 0) {
		uint32_t part = 0;
		(void)lpi_seg_cursor_next(cursor, len, &part); /* only moved */
		len -= part;
	}
}

/* Where it goes, and the crcs of pieces as the grid cuts them there. */
static int place_write(struct lpi_mem_store *store, const struct lp_change *change)
{
	struct lpi_mem_data *data = &store->data;
	data->offset = change->data.offset;
	data->crcs = change->data.payload.crcs;
	if (change->data.offset == LP_STORE_APPEND) {
		data->offset = data->inode->attrs.size_bytes;
		if (lp_range_outside(data->offset, change->data.length, LP_STORE_FILE_MAX))
			return -EFBIG;
		data->crcs = store->crcs;
		int err = lpi_payload_recut(&change->data.payload, data->offset,
					    change->data.length, store->crcs);
		if (err < 0)
			return err;
	}
	data->end = data->offset + change->data.length;
	return 0;
}

static int prepare_write(struct lpi_mem_store *store, const struct lp_change *change)
{
	struct lpi_mem_data *data = &store->data;
	struct lpi_seg_cursor cursor = lpi_seg_cursor_at(&change->data.payload);
	const uint32_t *crc;
	int err = place_write(store, change);
	if (err < 0)
		return err;
	crc = data->crcs;
	for (uint64_t at = data->offset; at < data->end;) {
		struct lp_csum_piece piece = lpi_mem_piece_at(at, data->end, *crc++);
		uint64_t block = at >> LP_BLOCK_SHIFT;
		struct lpi_mem_page *page = lpi_mem_page_make(&data->inode->pages, block);
		if (page == NULL)
			return -ENOSPC;
		if (!lpi_mem_is_whole(&piece))
			err = prepare_edge(store, page, &piece, block);
		else if (!is_own(page) && whole_buf(store, &cursor, &piece) == NULL)
			err = reserve(store, 1);
		if (err < 0)
			return err;
		skip(&cursor, piece.len_bytes);
		at += piece.len_bytes;
	}
	return 0;
}

static void take_buf(struct lpi_mem_pages *pages, struct lpi_mem_page *page, struct lp_buf *buf)
{
	struct lp_buf *old = page->buf;
	page->buf = lp_buf_get(buf);
	page->is_unwritten = false;
	pages->cnt += old == NULL;
	lp_buf_put(old);
}

static void apply_write(struct lpi_mem_store *store, const struct lp_change *change)
{
	struct lpi_mem_data *data = &store->data;
	struct lpi_mem_pages *pages = &data->inode->pages;
	struct lpi_seg_cursor cursor = lpi_seg_cursor_at(&change->data.payload);
	const struct lpi_mem_edge *edge = data->edges;
	const uint32_t *crc = data->crcs;
	for (uint64_t at = data->offset; at < data->end;) {
		struct lp_csum_piece piece = lpi_mem_piece_at(at, data->end, *crc++);
		struct lpi_mem_page *page = lpi_mem_page_find(pages, at >> LP_BLOCK_SHIFT);
		struct lp_buf *whole = whole_buf(store, &cursor, &piece);
		LP_ASSERT(page != NULL);
		if (whole != NULL) {
			take_buf(pages, page, whole);
			skip(&cursor, piece.len_bytes);
		} else {
			uint8_t *to = make_own(store, pages, page, !lpi_mem_is_whole(&piece));
			lpi_seg_cursor_copy(&cursor, to + piece.offset_bytes, piece.len_bytes);
		}
		page->crc = lpi_mem_is_whole(&piece) ? piece.crc : edge++->crc;
		at += piece.len_bytes;
	}
	data->inode->attrs.size_bytes = LP_MAX(data->inode->attrs.size_bytes, data->end);
	store->stats.written_bytes += change->data.length;
	store->stats.writes_by_path[LP_PATH_DIRECT]++;
}

/* --- Cutting, punching, preallocating --------------------------------------------------------- */

static int prepare_truncate(struct lpi_mem_store *store, const struct lp_change *change)
{
	uint64_t size = change->data.offset;
	store->data.end = size;
	if (lp_is_aligned(size, LP_BLOCK_BYTES))
		return 0;
	return prepare_zeros(store, size, lp_align_up(size, LP_BLOCK_BYTES));
}

static void apply_truncate(struct lpi_mem_store *store)
{
	struct lpi_mem_inode *inode = store->data.inode;
	apply_zeros(store);
	lpi_mem_pages_cut(&inode->pages, lp_bytes_to_blocks_up(store->data.end));
	inode->attrs.size_bytes = store->data.end;
}

static int prepare_punch(struct lpi_mem_store *store, const struct lp_change *change)
{
	struct lpi_mem_data *data = &store->data;
	data->offset = change->data.offset;
	data->end = change->data.offset + change->data.length;
	uint64_t head_end = lp_align_up(data->offset, LP_BLOCK_BYTES);
	uint64_t tail_begin = lp_align_down(data->end, LP_BLOCK_BYTES);
	int err = 0;
	if (head_end > data->offset)
		err = prepare_zeros(store, data->offset, LP_MIN(head_end, data->end));
	if (err == 0 && tail_begin < data->end && tail_begin >= head_end)
		err = prepare_zeros(store, tail_begin, data->end);
	return err;
}

static void apply_punch(struct lpi_mem_store *store)
{
	struct lpi_mem_pages *pages = &store->data.inode->pages;
	apply_zeros(store);
	uint64_t block = lp_bytes_to_blocks_up(store->data.offset);
	for (; block < store->data.end >> LP_BLOCK_SHIFT; block++) {
		struct lpi_mem_page *page = lpi_mem_page_find(pages, block);
		if (page != NULL)
			lpi_mem_page_drop(pages, page);
	}
}

static int prepare_prealloc(struct lpi_mem_store *store, const struct lp_change *change)
{
	struct lpi_mem_data *data = &store->data;
	uint64_t cnt = 0;
	data->offset = change->data.offset;
	data->end = change->data.offset + change->data.length;
	uint64_t block = data->offset >> LP_BLOCK_SHIFT;
	for (; block < lp_bytes_to_blocks_up(data->end); block++) {
		struct lpi_mem_page *page = lpi_mem_page_make(&data->inode->pages, block);
		if (page == NULL)
			return -ENOSPC;
		cnt += page->buf == NULL;
	}
	return reserve(store, cnt);
}

static void apply_prealloc(struct lpi_mem_store *store)
{
	struct lpi_mem_pages *pages = &store->data.inode->pages;
	uint64_t block = store->data.offset >> LP_BLOCK_SHIFT;
	for (; block < lp_bytes_to_blocks_up(store->data.end); block++) {
		struct lpi_mem_page *page = lpi_mem_page_find(pages, block);
		LP_ASSERT(page != NULL);
		if (page->buf != NULL)
			continue;
		page->buf = lpi_mem_bufs_pop_front(&store->reserved);
		LP_ASSERT(page->buf != NULL);
		page->is_unwritten = true;
		pages->cnt++;
	}
}

/* --- Cloning ---------------------------------------------------------------------------------- */

static int prepare_clone(struct lpi_mem_store *store, const struct lp_change *change)
{
	struct lpi_mem_data *data = &store->data;
	uint64_t src_size = data->src->attrs.size_bytes;
	uint64_t src_end = change->clone.src_offset + change->clone.length;
	int err = lpi_mem_file_err(data->src);
	if (err < 0)
		return err;
	data->offset = change->clone.offset;
	data->end = change->clone.offset + change->clone.length;
	bool fits_grid = lp_is_aligned(change->clone.length, LP_BLOCK_BYTES);
	bool ends_both = src_end == src_size && data->end >= data->inode->attrs.size_bytes;
	if (src_end > src_size || (!fits_grid && !ends_both))
		return -EINVAL;
	uint64_t from = change->clone.src_offset >> LP_BLOCK_SHIFT;
	uint64_t to = data->offset >> LP_BLOCK_SHIFT;
	for (; to < lp_bytes_to_blocks_up(data->end); to++, from++) {
		if (!lpi_mem_page_is_data(lpi_mem_page_find(&data->src->pages, from)))
			continue;
		if (lpi_mem_page_make(&data->inode->pages, to) == NULL)
			return -ENOSPC;
	}
	return 0;
}

static void apply_clone(struct lpi_mem_store *store, const struct lp_change *change)
{
	struct lpi_mem_data *data = &store->data;
	struct lpi_mem_pages *pages = &data->inode->pages;
	uint64_t from = change->clone.src_offset >> LP_BLOCK_SHIFT;
	uint64_t to = data->offset >> LP_BLOCK_SHIFT;
	for (; to < lp_bytes_to_blocks_up(data->end); to++, from++) {
		const struct lpi_mem_page *src = lpi_mem_page_find(&data->src->pages, from);
		struct lpi_mem_page *page = lpi_mem_page_find(pages, to);
		if (lpi_mem_page_is_data(src)) {
			LP_ASSERT(page != NULL);
			take_buf(pages, page, src->buf);
			page->crc = src->crc;
		} else if (page != NULL) {
			lpi_mem_page_drop(pages, page);
		}
	}
	data->inode->attrs.size_bytes = LP_MAX(data->inode->attrs.size_bytes, data->end);
}

/* --- All changes ------------------------------------------------------------------------------ */

int lpi_mem_data_prepare(struct lpi_mem_store *store, const struct lp_change *change,
			 struct lpi_mem_inode *inode, struct lpi_mem_inode *src)
{
	LP_ASSERT(lpi_change_is_data(change->type));
	LP_ASSERT(lpi_mem_bufs_is_empty(&store->reserved));
	store->data = (struct lpi_mem_data){.inode = inode, .src = src};
	int err = lpi_mem_file_err(inode);
	if (err < 0)
		return err;
	if (change->type == LP_CHANGE_WRITE)
		return prepare_write(store, change);
	if (change->type == LP_CHANGE_TRUNCATE)
		return prepare_truncate(store, change);
	if (change->type == LP_CHANGE_PUNCH)
		return prepare_punch(store, change);
	if (change->type == LP_CHANGE_PREALLOC)
		return prepare_prealloc(store, change);
	return prepare_clone(store, change);
}

void lpi_mem_data_apply(struct lpi_mem_store *store, const struct lp_change *change)
{
	if (change->type == LP_CHANGE_WRITE)
		apply_write(store, change);
	else if (change->type == LP_CHANGE_TRUNCATE)
		apply_truncate(store);
	else if (change->type == LP_CHANGE_PUNCH)
		apply_punch(store);
	else if (change->type == LP_CHANGE_PREALLOC)
		apply_prealloc(store);
	else
		apply_clone(store, change);
	/* Two blocks may have shared a buffer that only one has now. */
	lpi_mem_data_undo(store);
}
