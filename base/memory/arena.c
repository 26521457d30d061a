/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk:  head | piece | piece | ... free ... | end guard
 *
 * Chunks are chained from the newest to the oldest. In slow builds each piece is followed by a
 * trailer, which holds a guard and the offset of the trailer before; checking walks from the newest
 * trailer backwards. The guard comes first in the trailer, so that a write beyond the piece
 * destroys it before it destroys the link. Trailers stand right behind the last requested byte,
 * without alignment, so even one byte too many is noticed. */
#include "base/memory/arena.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define POISON(at, len)   ASAN_POISON_MEMORY_REGION(at, len)
#define UNPOISON(at, len) ASAN_UNPOISON_MEMORY_REGION(at, len)
#else
#define POISON(at, len)   ((void)(at), (void)(len))
#define UNPOISON(at, len) ((void)(at), (void)(len))
#endif

#define GUARD UINT64_C(0x6c61706973217e5a)

struct lp_arena_chunk {
	struct lp_arena_chunk *older;
	size_t size; /* of data */
	size_t used; /* bytes of data */
	size_t last; /* offset of the newest trailer, or NO_TRAILER */
	unsigned char data[];
};

struct trailer {
	uint64_t guard;
	size_t older;
};

#define NO_TRAILER    SIZE_MAX
#define TRAILER_BYTES (LP_ASSERT_SLOW_ON ? sizeof(struct trailer) : 0)
#define FRAME_BYTES   (sizeof(struct lp_arena_chunk) + sizeof(uint64_t))

static_assert(LP_ARENA_CHUNK_BYTES_MIN > FRAME_BYTES + LP_ARENA_ALIGN_MAX + sizeof(struct trailer),
	      "a chunk has room");

static size_t total_bytes(const struct lp_arena_chunk *chunk)
{
	return FRAME_BYTES + chunk->size;
}

/* total: at least FRAME_BYTES. */
static struct lp_arena_chunk *chunk_new(struct lp_arena_chunk *older, size_t total)
{
	struct lp_arena_chunk *chunk = malloc(total);
	if (chunk == NULL)
		return NULL;
	*chunk = (struct lp_arena_chunk){
		.older = older, .size = total - FRAME_BYTES, .last = NO_TRAILER};
	const uint64_t guard = GUARD;
	memcpy(chunk->data + chunk->size, &guard, sizeof(guard));
	POISON(chunk->data, chunk->size + sizeof(guard));
	return chunk;
}

static void check_end(const struct lp_arena_chunk *chunk)
{
	uint64_t guard;
	UNPOISON(chunk->data + chunk->size, sizeof(guard));
	memcpy(&guard, chunk->data + chunk->size, sizeof(guard));
	POISON(chunk->data + chunk->size, sizeof(guard));
	LP_ASSERT(guard == GUARD); /* otherwise the owner of a piece wrote beyond it */
}

/* False if an owner wrote beyond its piece; checks the pieces that end beyond `used`. Slow builds
 * only. */
__attribute__((unused)) static bool trailers_are_whole(const struct lp_arena_chunk *chunk,
						       size_t used)
{
	size_t at = chunk->last;
	while (at != NO_TRAILER && at >= used) {
		struct trailer trailer;
		memcpy(&trailer, chunk->data + at, sizeof(trailer));
		if (trailer.guard != GUARD)
			return false;
		LP_ASSERT(trailer.older == NO_TRAILER || trailer.older < at);
		at = trailer.older;
	}
	return true;
}

/* Forgets the pieces beyond `used`. */
static void chunk_cut(struct lp_arena_chunk *chunk, size_t used, size_t last)
{
	LP_ASSERT(used <= chunk->used);
	check_end(chunk);
	LP_ASSERT_SLOW(trailers_are_whole(chunk, used));
	chunk->used = used;
	chunk->last = last;
	POISON(chunk->data + used, chunk->size - used);
}

static void chunk_free(struct lp_arena_chunk *chunk)
{
	check_end(chunk);
	LP_ASSERT_SLOW(trailers_are_whole(chunk, 0));
	UNPOISON(chunk->data, chunk->size + sizeof(uint64_t));
	free(chunk);
}

int lp_arena_init(struct lp_arena *arena, size_t chunk_bytes, size_t bytes_max)
{
	LP_ASSERT(chunk_bytes >= LP_ARENA_CHUNK_BYTES_MIN);
	LP_ASSERT(chunk_bytes <= bytes_max);
	struct lp_arena_chunk *first = chunk_new(NULL, chunk_bytes);
	if (first == NULL)
		return -ENOMEM;
	*arena = (struct lp_arena){.first = first,
				   .current = first,
				   .chunk_bytes = chunk_bytes,
				   .bytes_max = bytes_max,
				   .bytes = chunk_bytes};
	return 0;
}

void lp_arena_fini(struct lp_arena *arena)
{
	while (arena->current != NULL) {
		struct lp_arena_chunk *chunk = arena->current;
		arena->current = chunk->older;
		chunk_free(chunk);
	}
	*arena = (struct lp_arena){0};
}

/* Aligns the address, because malloc promises less than LP_ARENA_ALIGN_MAX. */
static void *chunk_take(struct lp_arena_chunk *chunk, size_t size, size_t align)
{
	uintptr_t base = (uintptr_t)chunk->data;
	size_t start = (size_t)(lp_align_up(base + chunk->used, align) - base);
	uint64_t need;
	if (lp_add_overflows(size, TRAILER_BYTES, &need) ||
	    lp_range_outside(start, need, chunk->size))
		return NULL;
	unsigned char *piece = chunk->data + start;
	UNPOISON(piece, need);
	chunk->used = start + need;
	if (LP_ASSERT_SLOW_ON) {
		struct trailer trailer = {.guard = GUARD, .older = chunk->last};
		memcpy(piece + size, &trailer, sizeof(trailer));
		chunk->last = start + size;
	}
	return piece;
}

/* Adds a chunk in which the piece will fit. */
static bool arena_grow(struct lp_arena *arena, size_t size, size_t align)
{
	const size_t extra = FRAME_BYTES + TRAILER_BYTES + align;
	if (size > SIZE_MAX - extra)
		return false;
	size_t total = LP_MAX(arena->chunk_bytes, size + extra);
	if (total > arena->bytes_max - arena->bytes)
		return false;
	struct lp_arena_chunk *chunk = chunk_new(arena->current, total);
	if (chunk == NULL)
		return false;
	arena->current = chunk;
	arena->bytes += total;
	return true;
}

void *lp_arena_alloc(struct lp_arena *arena, size_t size, size_t align)
{
	LP_ASSERT(lp_is_power_of_two(align) && align <= LP_ARENA_ALIGN_MAX);
	void *piece = chunk_take(arena->current, size, align);
	if (LP_LIKELY(piece != NULL))
		return piece;
	if (!arena_grow(arena, size, align))
		return NULL;
	piece = chunk_take(arena->current, size, align);
	LP_ASSERT(piece != NULL);
	return piece;
}

void *lp_arena_zalloc(struct lp_arena *arena, size_t size, size_t align)
{
	void *piece = lp_arena_alloc(arena, size, align);
	if (piece != NULL)
		memset(piece, 0, size);
	return piece;
}

void *lp_arena_array(struct lp_arena *arena, uint64_t cnt, size_t item_bytes)
{
	size_t size;
	if (__builtin_mul_overflow(cnt, item_bytes, &size))
		return NULL;
	return lp_arena_alloc(arena, size, LP_ARENA_ALIGN);
}

char *lp_arena_strndup(struct lp_arena *arena, const void *bytes, size_t len)
{
	if (len == SIZE_MAX)
		return NULL;
	char *text = lp_arena_alloc(arena, len + 1, 1);
	if (text == NULL)
		return NULL;
	if (len > 0)
		memcpy(text, bytes, len);
	text[len] = '\0';
	return text;
}

struct lp_arena_snapshot lp_arena_snapshot(const struct lp_arena *arena)
{
	return (struct lp_arena_snapshot){.chunk = arena->current,
					  .used = arena->current->used,
					  .last = arena->current->last};
}

void lp_arena_rollback(struct lp_arena *arena, const struct lp_arena_snapshot *snapshot)
{
	while (arena->current != snapshot->chunk) {
		struct lp_arena_chunk *chunk = arena->current;
		LP_ASSERT(chunk !=
			  arena->first); /* otherwise the snapshot is stale, or another arena's */
		arena->current = chunk->older;
		arena->bytes -= total_bytes(chunk);
		chunk_free(chunk);
	}
	chunk_cut(arena->current, snapshot->used, snapshot->last);
}

void lp_arena_reset(struct lp_arena *arena)
{
	const struct lp_arena_snapshot empty = {.chunk = arena->first, .last = NO_TRAILER};
	lp_arena_rollback(arena, &empty);
	LP_ASSERT(arena->bytes == arena->chunk_bytes);
}
