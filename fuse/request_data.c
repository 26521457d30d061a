/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a request: its checksums by blocks, and where a write goes. */
#include <fcntl.h>
#include <string.h>

#include "base/crc32c.h"
#include "fuse/channel_state.h"

#define BLOCK_BYTES LP_BLOCK_BYTES

/* A piece may lie in two buffers. */
uint32_t lpi_fuse_copy_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			      uint8_t *to, uint32_t *ret_crcs)
{
	uint32_t left_in_block = BLOCK_BYTES - (uint32_t)(offset % BLOCK_BYTES);
	uint32_t cnt = 0;
	uint32_t crc = 0;
	bool is_begun = false;
	for (uint32_t i = 0; i < seg_cnt; i++) {
		const uint8_t *at = segs[i].buf->data + segs[i].offset;
		uint32_t left = segs[i].len;
		while (left > 0) {
			uint32_t len = LP_MIN(left, left_in_block);
			if (to != NULL)
				to = mempcpy(to, at, len);
			crc = lp_crc32c_ahead(crc, at, len, at + len);
			is_begun = true;
			at += len;
			left -= len;
			left_in_block -= len;
			if (left_in_block > 0)
				continue;
			ret_crcs[cnt++] = crc;
			crc = 0;
			is_begun = false;
			left_in_block = BLOCK_BYTES;
		}
	}
	if (is_begun)
		ret_crcs[cnt++] = crc;
	LP_ASSERT(cnt <= LPI_FUSE_CRCS);
	return cnt;
}

uint32_t lpi_fuse_sum_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			     uint32_t *ret_crcs)
{
	return lpi_fuse_copy_pieces(segs, seg_cnt, offset, NULL, ret_crcs);
}

/* Where the end is says the store, for its kernel may not have heard of what others appended. One
 * that writes back, or directly, cuts what it writes into requests that come in any order, so then
 * it is where the kernel says; and where it writes back at all the end is its own, for it may have
 * more than it has handed over (mount F6). Of a handle of FOPEN_DIRECT_IO requests come in order
 * only if that was to be so from the mount's start on, and not since the kernel cannot be told. */
static bool comes_in_order(const struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	return (in->flags & O_DIRECT) == 0 && ((in->fh & LPI_FUSE_HANDLE_DIRECT) == 0 ||
					       request->channel->options.behaviour.attr_ns == 0);
}

uint64_t lpi_fuse_write_offset(const struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	bool is_append = (in->flags & O_APPEND) != 0 && comes_in_order(request) &&
			 (in->write_flags & FUSE_WRITE_CACHE) == 0 &&
			 !request->channel->options.behaviour.writeback;
	return is_append ? LP_STORE_APPEND : in->offset;
}

/* Checksums of what is appended are of pieces as if the end were on the grid. */
uint64_t lpi_fuse_write_grid(const struct lpi_fuse_request *request)
{
	uint64_t offset = lpi_fuse_write_offset(request);
	return offset == LP_STORE_APPEND ? 0 : offset;
}

bool lpi_fuse_is_uncached(const struct lpi_fuse_request *request)
{
	const union lp_fuse_in *in = &request->message.in;
	/* The owner of locks is named only of what a program's buffer is read or written by. */
	if (request->message.header.opcode == FUSE_READ)
		return (in->read.read_flags & FUSE_READ_LOCKOWNER) != 0;
	return (in->write.write_flags & FUSE_WRITE_LOCKOWNER) != 0 &&
	       (in->write.write_flags & FUSE_WRITE_CACHE) == 0;
}
