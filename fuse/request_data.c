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

/* Whether requests come in order, so that an append goes to the end that the store knows. The
 * kernel's end may be old, because others may have appended. A kernel that writes back, or writes
 * directly, cuts its data into requests that come in any order, so the kernel's offset counts then.
 * Where the kernel writes back at all, the end is the kernel's, because it may hold data that it
 * has not handed over (mount F6). Requests by a handle of FOPEN_DIRECT_IO come in order only if the
 * mount asked for that at its start. If it began to bypass the cache later, because the kernel
 * could not be told of changes, they do not. */
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

/* Checksums of an append are made for pieces as if the end were on the grid. */
uint64_t lpi_fuse_write_grid(const struct lpi_fuse_request *request)
{
	uint64_t offset = lpi_fuse_write_offset(request);
	return offset == LP_STORE_APPEND ? 0 : offset;
}

bool lpi_fuse_is_uncached(const struct lpi_fuse_request *request)
{
	const union lp_fuse_in *in = &request->message.in;
	/* The kernel names a lock owner only for a read or write of a program's buffer. */
	if (request->message.header.opcode == FUSE_READ)
		return (in->read.read_flags & FUSE_READ_LOCKOWNER) != 0;
	return (in->write.write_flags & FUSE_WRITE_LOCKOWNER) != 0 &&
	       (in->write.write_flags & FUSE_WRITE_CACHE) == 0;
}
