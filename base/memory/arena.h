/* SPDX-License-Identifier: Apache-2.0 */
/* A bump allocator: many small pieces that die together, such as all of one request's parsing.
 *
 * Threads: an arena belongs to one.
 * Blocking: none, except for malloc when a chunk is added.
 *
 * Memory comes in chunks; a piece larger than a chunk gets one of its own size. The first chunk is
 * allocated at init and stays until fini, so an arena that is reset for the next request allocates
 * nothing in the steady state. The sum of all chunks never exceeds bytes_max: beyond it, as when
 * malloc fails, an allocation gives NULL, the arena stays as it was, and the caller returns
 * -ENOMEM.
 *
 * A word behind the last byte of each chunk is checked whenever the chunk is reset or freed. In the
 * LP_ASSERT_SLOW builds each piece has such a word of its own, and under the address sanitizer
 * memory that is not handed out cannot be touched.
 */
#ifndef LP_BASE_MEMORY_ARENA_H
#define LP_BASE_MEMORY_ARENA_H

#include "base/compiler.h"

/* The greatest alignment, and the one to use when in doubt. */
#define LP_ARENA_ALIGN_MAX 64
#define LP_ARENA_ALIGN     16

/* The minimum size of a chunk; its own head is part of chunk_bytes. */
#define LP_ARENA_CHUNK_BYTES_MIN 256

struct lp_arena_chunk;

struct lp_arena {
	struct lp_arena_chunk *first;   /* the oldest; never freed before fini */
	struct lp_arena_chunk *current; /* the newest: pieces come from here */
	size_t chunk_bytes;
	size_t bytes_max;
	size_t bytes; /* in all chunks: taken from the system */
};

/* Valid until the arena is reset, or rolled back to an older one. */
struct lp_arena_snapshot {
	struct lp_arena_chunk *chunk;
	size_t used;
	size_t last;
};

/* chunk_bytes: LP_ARENA_CHUNK_BYTES_MIN or more, and at most bytes_max. -ENOMEM. */
LP_MUST_CHECK int lp_arena_init(struct lp_arena *arena, size_t chunk_bytes, size_t bytes_max);
/* All pieces become invalid. Zeroed memory may be given too. */
void lp_arena_fini(struct lp_arena *arena);

/* NULL: over the limit or out of memory. align: a power of two, LP_ARENA_ALIGN_MAX at most. The
 * contents are undefined, size may be 0. */
LP_MUST_CHECK void *lp_arena_alloc(struct lp_arena *arena, size_t size, size_t align);
/* The same, filled with zeros. */
LP_MUST_CHECK void *lp_arena_zalloc(struct lp_arena *arena, size_t size, size_t align);
/* An array of cnt items at LP_ARENA_ALIGN, uninitialised. cnt may come from outside: a product
 * that overflows gives NULL. */
LP_MUST_CHECK void *lp_arena_array(struct lp_arena *arena, uint64_t cnt, size_t item_bytes);
/* A copy of len bytes and a final '\0', for the names in a request. */
LP_MUST_CHECK char *lp_arena_strndup(struct lp_arena *arena, const void *bytes, size_t len);

/* Everything allocated after the snapshot is freed at once, so a failed attempt leaves nothing. */
struct lp_arena_snapshot lp_arena_snapshot(const struct lp_arena *arena);
void lp_arena_rollback(struct lp_arena *arena, const struct lp_arena_snapshot *snapshot);
/* Frees all pieces; the first chunk is kept. */
void lp_arena_reset(struct lp_arena *arena);

#endif
