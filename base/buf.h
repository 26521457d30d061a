/* SPDX-License-Identifier: Apache-2.0 */
/* Reference-counted I/O buffers of one thread, out of one region.
 *
 * A payload is received from a socket into a struct lp_buf, waits in it for its place on the
 * device, is written from it, and may be served to readers from it: passed on by reference, never
 * copied. Three sizes (4 KiB, 64 KiB, 1 MiB) are cut from slabs of 1 MiB; a slab that is wholly
 * free may serve any size again. The region is one mapping, so that it can be registered with the
 * kernel once, and asks for huge pages; its size is the limit: an empty region is the throttle.
 *
 * Threads: all buffers of a struct lp_bufs belong to its thread.
 * Blocking, allocation: none after lp_bufs_new(). Errors: NULL when nothing of the size is left.
 */
#ifndef LP_BASE_BUF_H
#define LP_BASE_BUF_H

#include <errno.h>

#include "base/list.h"

#define LP_BUF_SMALL  UINT32_C(4096)
#define LP_BUF_MEDIUM UINT32_C(65536)
#define LP_BUF_LARGE  UINT32_C(1048576)

struct lp_bufs;

struct lp_buf {
	uint8_t *data;  /* aligned to its size class */
	uint32_t bytes; /* the class; 0 while free */
	uint32_t refs;
	struct lp_bufs *home;
	struct lp_list_node node; /* the free list's; while out, for the holder of the first
				   * reference to use */
};

/* A part of a buffer. */
struct lp_seg {
	struct lp_buf *buf;
	uint32_t offset;
	uint32_t len;
};

struct lp_bufs_stats {
	uint64_t region_bytes;
	uint64_t used_bytes; /* by class size */
	uint64_t used_max_bytes;
	uint64_t failed_cnt;
};

/* region_bytes is rounded down to 1 MiB; at least that. -ENOMEM. */
int lp_bufs_new(uint64_t region_bytes, struct lp_bufs **ret_bufs) LP_MUST_CHECK;
/* The same in memory that another process may be shown: *ret_fd is what that one maps to read it,
 * the caller's to close. By it nothing can be written (unless by who could anyway: root, or the
 * same user), nor the size be changed; when this is freed all that is read there is zeros. -ENOMEM,
 * -EMFILE, or why /proc is not there. */
int lp_bufs_new_shared(uint64_t region_bytes, struct lp_bufs **ret_bufs, int *ret_fd) LP_MUST_CHECK;
/* Asserts that all buffers are back. Accepts NULL. */
void lp_bufs_free(struct lp_bufs *bufs);

/* The whole mapping, for registration. */
void *lp_bufs_region(const struct lp_bufs *bufs, uint64_t *ret_bytes);

/* A buffer of the smallest class of at least `bytes` (at most LP_BUF_LARGE), with one reference;
 * NULL when none is left. */
struct lp_buf *lp_buf_new(struct lp_bufs *bufs, uint32_t bytes) LP_MUST_CHECK;
struct lp_buf *lp_buf_get(struct lp_buf *buf);
/* Accepts NULL. */
void lp_buf_put(struct lp_buf *buf);

void lp_bufs_read_stats(const struct lp_bufs *bufs, struct lp_bufs_stats *ret_stats);

#endif
