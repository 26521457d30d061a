/* SPDX-License-Identifier: Apache-2.0 */
/* Pool of objects of one size, which is also a throttle: at most `limit` are out at once.
 *
 * Threads: one owner. The slow builds assert that it stays the thread that called get first.
 * Blocking: no system calls, except for memory in new, resize, trim and free.
 * Memory: all objects of the first limit are allocated at start, in one piece.
 * Errors: -ENOMEM; an empty pool is NULL.
 * Limits: they come from our own code, or from configuration that was checked against
 *   LP_POOL_OBJECTS_MAX.
 *
 *   - The limit can be changed while the pool runs. Raised beyond what is allocated, it adds a
 *     slab, up to the limit_max given at start. Lowered, it hands out no more until enough have
 *     come back, and the memory stays.
 *   - An object that was never out has no memory yet, where the allocator takes it from the system
 *     for this pool. After a time of rest lp_pool_trim() gives back what the pool has got since.
 *   - The object that came back last goes out first, because it is still in the cache. An object's
 *     content is undefined when it comes out of the pool.
 *   - put asserts that the object belongs to the pool and is out. Built with AddressSanitizer,
 *     objects in the pool are poisoned. In the slow builds they are filled with a pattern, so a
 *     write through a stale pointer is noticed at the next get.
 */
#ifndef LP_BASE_MEMORY_POOL_H
#define LP_BASE_MEMORY_POOL_H

#include <errno.h>

#include "base/assert.h"

#define LP_POOL_OBJECTS_MAX (UINT32_C(1) << 24) /* per pool */
#define LP_POOL_ALIGN_MAX   (UINT32_C(2) << 20) /* a huge page */
#define LP_POOL_BUF_ALIGN   4096u               /* alignment for direct I/O */

struct lp_pool;

struct lp_pool_config {
	const char *name;    /* static string: shown in counters */
	size_t object_bytes; /* of one object; > 0 */
	uint32_t align;      /* of each object: a power of two; 0 means a cache line */
	uint32_t limit;      /* objects that may be out at once; > 0 */
	uint32_t limit_max;  /* highest limit of resize; 0 means limit */
};

struct lp_pool_stats {
	const char *name;
	size_t object_bytes; /* as configured; the pool rounds it up to the alignment */
	uint32_t limit;
	uint32_t capacity;   /* objects there is memory for; >= limit */
	uint32_t in_use;     /* may exceed a limit that was lowered */
	uint32_t high_water; /* most that were ever in use */
	uint64_t gets_failed;
};

/* -ENOMEM, also for sizes no machine has. */
int lp_pool_new(const struct lp_pool_config *config, struct lp_pool **ret_pool) LP_MUST_CHECK;
/* Asserts that all objects are back. Accepts NULL. */
void lp_pool_free(struct lp_pool *pool);

/* A pool of page-aligned I/O buffers. */
int lp_bufpool_new(const char *name, size_t buf_bytes, uint32_t limit, uint32_t limit_max,
		   struct lp_pool **ret_pool) LP_MUST_CHECK;

/* NULL when `limit` objects are out; this is counted. */
void *lp_pool_get(struct lp_pool *pool) LP_MUST_CHECK;
void lp_pool_put(struct lp_pool *pool, void *object);

/* 0 < limit <= limit_max. -ENOMEM leaves the limit as it was. */
int lp_pool_resize(struct lp_pool *pool, uint32_t limit) LP_MUST_CHECK;

/* Gives memory of free objects back to the system, in whole pages, unless it is little. The objects
 * at the lowest addresses then go out first. Returns the most bytes that this may have been. */
size_t lp_pool_trim(struct lp_pool *pool);

/* Another thread takes the pool over; the caller has ordered the two. */
void lp_pool_rebind(struct lp_pool *pool);

/* Number of objects that get can still give. */
uint32_t lp_pool_free_cnt(const struct lp_pool *pool);
void lp_pool_read_stats(const struct lp_pool *pool, struct lp_pool_stats *ret_stats);

/* The number of an object of this pool: 0 <= number < capacity, the same for life. For arrays
 * beside the pool, such as registered buffers. */
uint32_t lp_pool_index(const struct lp_pool *pool, const void *object);

/* Walks all free objects and all slabs. For tests; the slow builds call it at intervals. */
bool lp_pool_is_sound(const struct lp_pool *pool);

#endif
