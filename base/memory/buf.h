/* SPDX-License-Identifier: Apache-2.0 */
/* Reference-counted I/O buffers of one thread, out of one region.
 *
 * Threads: all buffers of a struct lp_bufs belong to its thread.
 * Blocking: none.
 * Memory: none after lp_bufs_new(). The region is one mapping, so that it can be registered with
 *   the kernel once. It asks for huge pages.
 * Errors: NULL when nothing of the size is left.
 * Limits: the region's size; an empty region is the throttle.
 *
 * A payload is received from a socket into a struct lp_buf, waits in it for its place on the
 * device, is written from it, and may be served to readers from it. It is passed on by reference
 * and never copied. A buffer is a power of two long, from 4 KiB to 1 MiB. The region consists of
 * slabs of 1 MiB, which are halved until the wanted size is there. Two free halves become one
 * again.
 *
 * Memory is touched as buffers are used, and the lowest free slab is used first. So the region has
 * memory from its beginning to where its use has come. What lies behind can be given back.
 *
 * Ranks keep requests from waiting for each other in a circle (rule B1):
 *   - Each buffer is asked for with a rank. A request that waits for a buffer holds only buffers of
 *     lower ranks.
 *   - For each rank some slabs can be set aside, which lower ranks never get.
 *   - So the holders of the highest rank need nothing more: they finish, and give back. Then those
 *     of the next lower rank can go on, and so down to the lowest.
 */
#ifndef LP_BASE_MEMORY_BUF_H
#define LP_BASE_MEMORY_BUF_H

#include <errno.h>

#include "base/struct/list.h"

#define LP_BUF_SMALL  UINT32_C(4096)
#define LP_BUF_MEDIUM UINT32_C(65536)
#define LP_BUF_LARGE  UINT32_C(1048576)

struct lp_bufs;

/* Use of a buffer, in the order in which a request takes them. */
enum lp_buf_rank {
	LP_BUF_REQUEST, /* a client's request: data that lands, data read for it */
	LP_BUF_MOUNT,   /* the same for the kernel's requests, which a client's request may wait for
			 */
	LP_BUF_ANSWER,  /* copies of data that another shard has read; room for an answer */
	LP_BUF_CARRY,   /* copies of data that another shard shall write */
	LP_BUF_EDGE,    /* blocks that a write covers in part */
	LP_BUF_COPY,    /* data that must be moved onto whole blocks */
	LP_BUF_RANKS
};

struct lp_buf {
	uint8_t *data;  /* aligned to its size */
	uint32_t bytes; /* a power of two; 0 while free */
	uint32_t refs;
	struct lp_bufs *home;
	struct lp_list_node node; /* the free list's; while the buffer is out, for the holder of the
				     first reference */
};

/* A part of a buffer. */
struct lp_seg {
	struct lp_buf *buf;
	uint32_t offset;
	uint32_t len;
};

struct lp_bufs_stats {
	uint64_t region_bytes;
	uint64_t used_bytes; /* whole buffers */
	uint64_t used_max_bytes;
	uint64_t failed_cnt;
	uint64_t reserved_bytes; /* set aside for ranks above the lowest */
};

/* region_bytes is rounded down to 1 MiB; at least that. -ENOMEM. */
int lp_bufs_new(uint64_t region_bytes, struct lp_bufs **ret_bufs) LP_MUST_CHECK;
/* The same in memory that another process may be shown. That process maps *ret_fd to read it; the
 * caller must close it. *ret_fd allows neither writes nor changes of the size (except to root and
 * to the same user, which could do that anyway). After lp_bufs_free() all reads give zeros.
 * -ENOMEM, -EMFILE, or the reason why /proc is missing. */
int lp_bufs_new_shared(uint64_t region_bytes, struct lp_bufs **ret_bufs, int *ret_fd) LP_MUST_CHECK;
/* Asserts that all buffers have been given back. Accepts NULL. */
void lp_bufs_free(struct lp_bufs *bufs);

/* The whole mapping, for registration. */
void *lp_bufs_region(const struct lp_bufs *bufs, uint64_t *ret_bytes);

/* Sets slabs (of LP_BUF_LARGE) aside for a rank above the lowest. Buffers that lower ranks have
 * already stay with them until they give them back. Asserts that some slabs are left for the
 * lowest. */
void lp_bufs_reserve(struct lp_bufs *bufs, enum lp_buf_rank rank, uint32_t slabs);

/* The size of the buffer for so many bytes (1 to LP_BUF_LARGE). */
static inline uint32_t lp_buf_size(uint32_t bytes)
{
	LP_ASSERT(bytes > 0 && bytes <= LP_BUF_LARGE);
	if (bytes <= LP_BUF_SMALL)
		return LP_BUF_SMALL;
	return UINT32_C(1) << (32 - __builtin_clz(bytes - 1));
}

/* A buffer of lp_buf_size(bytes), with one reference; NULL when none is left for this rank. */
struct lp_buf *lp_buf_new_ranked(struct lp_bufs *bufs, uint32_t bytes,
				 enum lp_buf_rank rank) LP_MUST_CHECK;
/* The same with the lowest rank. */
static inline LP_MUST_CHECK struct lp_buf *lp_buf_new(struct lp_bufs *bufs, uint32_t bytes)
{
	return lp_buf_new_ranked(bufs, bytes, LP_BUF_REQUEST);
}

/* Buffers for all of `bytes`, of which the first `skip` bytes stay empty. Takes as few buffers as
 * possible without wasting more than an eighth, and smaller ones if large ones lack. Returns their
 * number, at most `max`; 0, with none taken, if there are too few. */
uint32_t lp_bufs_take(struct lp_bufs *bufs, uint32_t bytes, uint32_t skip, enum lp_buf_rank rank,
		      struct lp_seg *segs, uint32_t max) LP_MUST_CHECK;
struct lp_buf *lp_buf_get(struct lp_buf *buf);
/* Accepts NULL. */
void lp_buf_put(struct lp_buf *buf);

/* The distance from the region's beginning to the end of the last buffer that was out at any time
 * since the last call: bytes, a multiple of LP_BUF_LARGE. */
uint64_t lp_bufs_reach(struct lp_bufs *bufs);
/* Gives memory of free slabs beyond the first keep_bytes back to the system, in whole huge pages.
 * None of it may be registered with the kernel, because I/O would go on with the old pages. */
void lp_bufs_trim(struct lp_bufs *bufs, uint64_t keep_bytes);
/* From the region's beginning to the last slab that may have memory. */
uint64_t lp_bufs_resident_bytes(const struct lp_bufs *bufs);

void lp_bufs_read_stats(const struct lp_bufs *bufs, struct lp_bufs_stats *ret_stats);

#endif
