/* SPDX-License-Identifier: Apache-2.0 */
/* A read gives out references to the blocks' buffers, which are copied when they are written to
 * before it ends; holes are read from one block of zeros. */
#include "store/memstore/memstore_impl.h"

#include <stdlib.h>

static struct lpi_mem_read *take_read(struct lpi_mem_store *store)
{
	struct lpi_mem_read *read = store->free_reads;
	if (read != NULL)
		store->free_reads = read->next;
	else
		read = malloc(sizeof(*read));
	store->reads_cnt += read != NULL;
	return read;
}

static void give_read(struct lpi_mem_store *store, struct lpi_mem_read *read, uint32_t seg_cnt)
{
	for (uint32_t i = 0; i < seg_cnt; i++)
		lp_buf_put(read->segs[i].buf);
	read->next = store->free_reads;
	store->free_reads = read;
	LP_ASSERT(store->reads_cnt > 0);
	store->reads_cnt--;
}

/* The crc of a part is new, so it may only be made of a block that is what its own crc says. */
static int crc_of_piece(const struct lpi_mem_page *page, uint64_t block,
			const struct lp_csum_piece *piece, uint32_t *ret_crc)
{
	if (!lpi_mem_page_is_data(page)) {
		*ret_crc = lp_csum_zeros(piece->len_bytes);
		return 0;
	}
	if (lpi_mem_is_whole(piece)) {
		*ret_crc = page->crc;
		return 0;
	}
	int err = lp_csum_verify(page->buf->data, page->crc, block);
	if (err == 0)
		*ret_crc = lp_crc32c(0, page->buf->data + piece->offset_bytes, piece->len_bytes);
	return err;
}

static int fill_read(struct lpi_mem_store *store, const struct lpi_mem_inode *inode,
		     struct lp_store_op *op, struct lpi_mem_read *read)
{
	uint64_t end = op->read.offset + op->read.bytes;
	for (uint64_t at = op->read.offset; at < end;) {
		struct lp_csum_piece piece = lpi_mem_piece_at(at, end, 0);
		uint64_t block = at >> LP_BLOCK_SHIFT;
		const struct lpi_mem_page *page = lpi_mem_page_find(&inode->pages, block);
		struct lp_buf *buf = lpi_mem_page_is_data(page) ? page->buf : store->zeros;
		uint32_t idx = op->read.seg_cnt;
		LP_ASSERT(idx < LPI_MEM_READ_PIECES);
		int err = crc_of_piece(page, block, &piece, &read->crcs[idx]);
		if (err < 0)
			return err;
		read->segs[idx] =
			(struct lp_seg){lp_buf_get(buf), piece.offset_bytes, piece.len_bytes};
		op->read.seg_cnt++;
		at += piece.len_bytes;
	}
	op->read.crc_cnt = op->read.seg_cnt;
	op->read.segs = read->segs;
	op->read.crcs = read->crcs;
	return 0;
}

int lpi_mem_read(struct lpi_mem_store *store, struct lp_store_op *op)
{
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, op->read.ino);
	if (inode == NULL)
		return -ENOENT;
	int err = lpi_mem_file_err(inode);
	if (err < 0)
		return err;
	struct lpi_mem_read *read = take_read(store);
	if (read == NULL)
		return -ENOMEM;
	uint64_t size = inode->attrs.size_bytes;
	op->read.size_bytes = size;
	op->read.version_nr = inode->attrs.version_nr;
	if (op->read.offset < size)
		op->read.bytes = LP_MIN(op->read.length, size - op->read.offset);
	op->work = read;
	err = fill_read(store, inode, op, read);
	if (err < 0) {
		give_read(store, read, op->read.seg_cnt);
		op->read.seg_cnt = 0;
		op->read.bytes = 0;
		op->work = NULL;
		return err;
	}
	store->stats.read_bytes += op->read.bytes;
	return 0;
}

void lpi_mem_read_end(struct lpi_mem_store *store, struct lp_store_op *op)
{
	struct lpi_mem_read *read = op->work;
	LP_ASSERT(read != NULL);
	op->work = NULL;
	give_read(store, read, op->read.seg_cnt);
}

int lpi_mem_seek(struct lpi_mem_store *store, struct lp_store_op *op)
{
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, op->seek.ino);
	if (inode == NULL)
		return -ENOENT;
	int err = lpi_mem_file_err(inode);
	if (err < 0)
		return err;
	uint64_t size = inode->attrs.size_bytes;
	uint64_t block = op->seek.offset >> LP_BLOCK_SHIFT;
	if (op->seek.space) {
		op->seek.found = op->seek.offset;
		return 0;
	}
	if (op->seek.offset >= size)
		return -ENXIO;
	if (op->seek.hole) {
		while (lpi_mem_page_is_data(lpi_mem_page_find(&inode->pages, block)))
			block++;
	} else {
		block = lpi_mem_pages_next_data(&inode->pages, block);
		if (block >= lp_bytes_to_blocks_up(size))
			return -ENXIO;
	}
	op->seek.found = LP_MIN(LP_MAX(op->seek.offset, block << LP_BLOCK_SHIFT), size);
	return 0;
}
