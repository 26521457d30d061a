/* SPDX-License-Identifier: Apache-2.0 */
/* Allocator for very many small objects of a few sizes, which come and go one by one.
 *
 * Threads: one.
 * Blocking: none, except for memory.
 * Errors: NULL.
 * Limits: the caller's. Objects of more than LP_SLABS_OBJECT_MAX come from malloc().
 *
 * It differs from malloc() in three ways:
 *   - Memory is taken in large pieces, in huge pages where there are any. So a thread that makes
 *     objects all the time does not ask the kernel for every page. (In a thread's own arena glibc
 *     asks twice for each: to be allowed to touch it, and by touching it.)
 *   - The processor knows the pages of objects, even if there are very many objects.
 *   - When all of a piece has been given back, the piece goes back to the system.
 *
 * A slab is SLAB bytes of objects of one class. There is a class for each 32 bytes up to
 * LP_SLABS_OBJECT_MAX. A slab that is wholly free may serve another class, and a piece that is
 * wholly free is given back. The object that came back last goes out first. Built with
 * AddressSanitizer, objects that are not out are poisoned.
 */
#ifndef LP_BASE_MEMORY_SLABS_H
#define LP_BASE_MEMORY_SLABS_H

#include <errno.h>

#include "base/struct/list.h"

#define LP_SLABS_OBJECT_MAX 1024u

struct lp_slabs;

/* expected_bytes: the expected size of all objects; pieces are large if it is large. Takes no
 * memory for objects yet. -ENOMEM. */
int lp_slabs_new(uint64_t expected_bytes, struct lp_slabs **ret_slabs) LP_MUST_CHECK;
/* Asserts that all objects are back. Accepts NULL. */
void lp_slabs_free(struct lp_slabs *slabs);

/* Aligned to 16 bytes; undefined content; NULL: no memory. bytes > 0. */
void *lp_slabs_get(struct lp_slabs *slabs, size_t bytes) LP_MUST_CHECK;
/* bytes: the size that was requested. Accepts NULL. */
void lp_slabs_put(struct lp_slabs *slabs, void *object, size_t bytes);

/* Bytes of all pieces. */
uint64_t lp_slabs_bytes(const struct lp_slabs *slabs);

#endif
