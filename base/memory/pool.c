/* SPDX-License-Identifier: Apache-2.0 */
/* The free list is a stack of object numbers and a bitmap of the numbers on it, both apart from the
 * objects. So a stale pointer can spoil an object, but not the pool, and a second put is caught by
 * its bit at once. Stack and bitmap are sized for limit_max at start. Objects are numbered through
 * the slabs; a slab added later is never smaller than a part of limit_max, which bounds their
 * number, and with it the search for an object's slab. Nearly always there is one slab.
 *
 * Invariant: an object is either on the stack with its bit set or out with its bit clear; free_cnt
 * + in_use == capacity. */
#include "base/memory/pool.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory/huge.h"
#include "base/sanitize.h"

#define POOL_MAGIC UINT32_C(0x4c4f4f50)
/* A slab added later has at least limit_max / GROWTH_PARTS objects. */
#define GROWTH_PARTS 16u
#define SLABS_MAX    (GROWTH_PARTS + 1)
/* Bytes at the front of a free object that carry the pattern in the slow builds. */
#define FILL_BYTES   256u
#define FILL_PATTERN 0xa5
#define PAGE_BYTES   ((uintptr_t)4096)

struct slab {
	char *objects;
	uint32_t first; /* number of its first object */
	uint32_t cnt;
};

struct lp_pool {
	uint32_t magic;
	uint32_t limit;
	uint32_t limit_max;
	uint32_t capacity;
	uint32_t in_use;
	uint32_t high_water;        /* since the last trim */
	uint32_t high_water_before; /* the same before the last trim */
	uint32_t out_end;           /* one past the highest number that was out at the last trim */
	uint32_t free_cnt;
	uint32_t slab_cnt;
	uint32_t *stack;  /* numbers of the free objects; free_cnt of limit_max */
	uint64_t *bitmap; /* one bit per object, set while free */
	size_t stride;    /* bytes from one object to the next */
	size_t align;
	size_t object_bytes;
	uint64_t gets_failed;
	uint64_t ops_cnt; /* only the slow builds count */
	const char *name;
	pthread_t owner;
	bool is_bound;
	struct slab slabs[SLABS_MAX];
};

static bool is_owner(struct lp_pool *pool)
{
	if (!pool->is_bound) {
		pool->owner = pthread_self();
		pool->is_bound = true;
	}
	return pthread_equal(pool->owner, pthread_self()) != 0;
}

static bool bit_is_set(const struct lp_pool *pool, uint32_t number)
{
	return (pool->bitmap[number / 64] >> (number % 64) & 1) != 0;
}

static void bit_flip(struct lp_pool *pool, uint32_t number)
{
	pool->bitmap[number / 64] ^= UINT64_C(1) << (number % 64);
}

static char *object_at(const struct lp_pool *pool, uint32_t number)
{
	const struct slab *slab = pool->slabs;
	while (LP_UNLIKELY(number - slab->first >= slab->cnt)) {
		slab++;
		LP_ASSERT(slab < pool->slabs + pool->slab_cnt);
	}
	return slab->objects + (size_t)(number - slab->first) * pool->stride;
}

/* Dies if the object is not of this pool. */
static uint32_t number_of(const struct lp_pool *pool, const void *object)
{
	for (uint32_t i = 0; i < pool->slab_cnt; i++) {
		const struct slab *slab = &pool->slabs[i];
		size_t offset = (size_t)((uintptr_t)object - (uintptr_t)slab->objects);
		if (offset >= slab->cnt * pool->stride)
			continue;
		LP_ASSERT(offset % pool->stride == 0);
		return slab->first + (uint32_t)(offset / pool->stride);
	}
	lp_assert_failed("the object belongs to the pool", __FILE__, __LINE__, __func__,
			 pool->name);
}

/* The padding behind the object stays poisoned for good. */
static void seal(const struct lp_pool *pool, char *object)
{
#if LP_ASSERT_SLOW_ON
	memset(object, FILL_PATTERN, LP_MIN(pool->object_bytes, (size_t)FILL_BYTES));
#endif
	lp_san_poison(object, pool->stride);
}

static bool fill_is_intact(const struct lp_pool *pool, const char *object)
{
	for (size_t i = 0; i < LP_MIN(pool->object_bytes, (size_t)FILL_BYTES); i++) {
		if ((unsigned char)object[i] != FILL_PATTERN)
			return false;
	}
	return true;
}

static void unseal(const struct lp_pool *pool, char *object)
{
	lp_san_unpoison(object, pool->object_bytes);
	LP_ASSERT_SLOW(fill_is_intact(pool, object));
}

/* The walk costs as much as there are objects, so it is made only once in that many operations. */
static bool is_sound_now_and_then(struct lp_pool *pool)
{
	return ++pool->ops_cnt % (pool->capacity + 1) != 0 || lp_pool_is_sound(pool);
}

static int add_slab(struct lp_pool *pool, uint32_t cnt)
{
	LP_ASSERT(pool->slab_cnt < SLABS_MAX);
	LP_ASSERT(cnt > 0 && cnt <= pool->limit_max - pool->capacity);
	size_t bytes;
	if (__builtin_mul_overflow(pool->stride, (size_t)cnt, &bytes) || bytes > PTRDIFF_MAX)
		return -ENOMEM;
	/* Large slabs have random access, so huge pages help. */
	size_t align = bytes >= LP_HUGE_BYTES ? LP_MAX(pool->align, LP_HUGE_BYTES) : pool->align;
	size_t padded = lp_align_up(bytes, align);
	char *objects = aligned_alloc(align, padded);
	if (objects == NULL)
		return -ENOMEM;
	/* Not for its beginning: one touch takes a whole huge page, so each pool that is hardly
	 * used would have one. */
	if (padded > LP_HUGE_BYTES)
		(void)lp_huge_advise(objects + LP_HUGE_BYTES, padded - LP_HUGE_BYTES);
	pool->slabs[pool->slab_cnt++] =
		(struct slab){.objects = objects, .first = pool->capacity, .cnt = cnt};
	/* Objects of a later slab go out before free ones of the others. */
	pool->out_end = pool->slab_cnt > 1 ? pool->capacity + cnt : 0;
	/* From the last to the first, so that the lowest address goes out first. */
	uint32_t end = pool->capacity + cnt;
	pool->capacity = end;
	for (uint32_t i = 1; i <= cnt; i++) {
		pool->stack[pool->free_cnt++] = end - i;
		bit_flip(pool, end - i);
		seal(pool, object_at(pool, end - i));
	}
	return 0;
}

int lp_pool_new(const struct lp_pool_config *config, struct lp_pool **ret_pool)
{
	size_t align = config->align == 0 ? LP_CACHE_LINE : config->align;
	uint32_t limit_max = config->limit_max == 0 ? config->limit : config->limit_max;
	LP_ASSERT(lp_is_power_of_two(align) && align <= LP_POOL_ALIGN_MAX);
	LP_ASSERT(config->object_bytes > 0);
	LP_ASSERT(config->limit > 0 && config->limit <= limit_max);
	LP_ASSERT(limit_max <= LP_POOL_OBJECTS_MAX);
	if (config->object_bytes > PTRDIFF_MAX)
		return -ENOMEM;
	struct lp_pool *pool = calloc(1, sizeof(*pool));
	if (pool == NULL)
		return -ENOMEM;
	pool->magic = POOL_MAGIC;
	pool->name = config->name;
	pool->limit = config->limit;
	pool->limit_max = limit_max;
	pool->align = LP_MAX(align, sizeof(void *));
	pool->object_bytes = config->object_bytes;
	pool->stride = lp_align_up(config->object_bytes, pool->align);
	pool->stack = malloc(limit_max * sizeof(*pool->stack));
	pool->bitmap = calloc((limit_max + 63) / 64, sizeof(*pool->bitmap));
	if (pool->stack == NULL || pool->bitmap == NULL || add_slab(pool, config->limit) != 0) {
		lp_pool_free(pool);
		return -ENOMEM;
	}
	*ret_pool = pool;
	return 0;
}

void lp_pool_free(struct lp_pool *pool)
{
	if (pool == NULL)
		return;
	LP_ASSERT(pool->magic == POOL_MAGIC);
	LP_ASSERT(pool->in_use == 0);
	/* A half-built pool has no slab yet. */
	LP_ASSERT_SLOW(pool->slab_cnt == 0 || lp_pool_is_sound(pool));
	for (uint32_t i = 0; i < pool->slab_cnt; i++) {
		lp_san_unpoison(pool->slabs[i].objects, pool->slabs[i].cnt * pool->stride);
		free(pool->slabs[i].objects);
	}
	free(pool->stack);
	free(pool->bitmap);
	pool->magic = 0;
	free(pool);
}

int lp_bufpool_new(const char *name, size_t buf_bytes, uint32_t limit, uint32_t limit_max,
		   struct lp_pool **ret_pool)
{
	struct lp_pool_config config = {.name = name,
					.object_bytes = buf_bytes,
					.align = LP_POOL_BUF_ALIGN,
					.limit = limit,
					.limit_max = limit_max};
	return lp_pool_new(&config, ret_pool);
}

void *lp_pool_get(struct lp_pool *pool)
{
	LP_ASSERT(pool->magic == POOL_MAGIC);
	LP_ASSERT_SLOW(is_owner(pool));
	LP_ASSERT_SLOW(is_sound_now_and_then(pool));
	if (LP_UNLIKELY(pool->in_use >= pool->limit)) {
		pool->gets_failed++;
		return NULL;
	}
	LP_ASSERT(pool->free_cnt > 0); /* as in_use < limit <= capacity */
	uint32_t number = pool->stack[--pool->free_cnt];
	LP_ASSERT(bit_is_set(pool, number));
	bit_flip(pool, number);
	pool->in_use++;
	pool->high_water = LP_MAX(pool->high_water, pool->in_use);
	char *object = object_at(pool, number);
	unseal(pool, object);
	return object;
}

void lp_pool_put(struct lp_pool *pool, void *object)
{
	LP_ASSERT(pool->magic == POOL_MAGIC);
	LP_ASSERT_SLOW(is_owner(pool));
	uint32_t number = number_of(pool, object);
	LP_ASSERT(!bit_is_set(pool, number)); /* else it was put before */
	LP_ASSERT(pool->in_use > 0);
	bit_flip(pool, number);
	pool->stack[pool->free_cnt++] = number;
	pool->in_use--;
	seal(pool, object);
	LP_ASSERT_SLOW(is_sound_now_and_then(pool));
}

int lp_pool_resize(struct lp_pool *pool, uint32_t limit)
{
	LP_ASSERT(pool->magic == POOL_MAGIC);
	LP_ASSERT_SLOW(is_owner(pool));
	LP_ASSERT(limit > 0 && limit <= pool->limit_max);
	if (limit > pool->capacity) {
		uint32_t at_least = (pool->limit_max + GROWTH_PARTS - 1) / GROWTH_PARTS;
		uint32_t cnt = LP_MAX(limit - pool->capacity, at_least);
		int rc = add_slab(pool, LP_MIN(cnt, pool->limit_max - pool->capacity));
		if (rc != 0)
			return rc;
	}
	pool->limit = limit;
	return 0;
}

/* --- Giving back ------------------------------------------------------------------------------ */

/* Restores the first order: the lowest number goes out first. */
static void sort_stack(struct lp_pool *pool)
{
	uint32_t cnt = 0;
	for (uint32_t word = (pool->capacity + 63) / 64; word-- > 0;) {
		for (uint64_t bits = pool->bitmap[word]; bits != 0;) {
			uint32_t bit = 63 - (uint32_t)__builtin_clzll(bits);
			pool->stack[cnt++] = word * 64 + bit;
			bits ^= UINT64_C(1) << bit;
		}
	}
	LP_ASSERT(cnt == pool->free_cnt);
}

/* Objects [from, to) of the slab are free: gives the whole pages in them back. */
static size_t drop_pages(const struct lp_pool *pool, const struct slab *slab, uint32_t from,
			 uint32_t to)
{
	uintptr_t objects = (uintptr_t)slab->objects;
	uintptr_t begin = lp_align_up(objects + (from - slab->first) * pool->stride, PAGE_BYTES);
	uintptr_t end = lp_align_down(objects + (to - slab->first) * pool->stride, PAGE_BYTES);
	if (begin >= end)
		return 0;
	/* Only advice: if it fails the memory stays. */
	(void)madvise(slab->objects + (begin - objects), end - begin, MADV_DONTNEED);
#if LP_ASSERT_SLOW_ON
	for (uint32_t i = from; i < to; i++) {
		lp_san_unpoison(object_at(pool, i), pool->object_bytes);
		seal(pool, object_at(pool, i));
	}
#endif
	return end - begin;
}

/* Objects from `end` on were never out, but may have memory by huge pages. */
static size_t trim_slab(const struct lp_pool *pool, const struct slab *slab, uint32_t end)
{
	size_t bytes = 0;
	uint32_t slab_end = slab->first + slab->cnt;
	uint32_t from = slab->first;
	while (from < slab_end && from < end) {
		uint32_t to = from;
		while (to < slab_end && to < end && bit_is_set(pool, to))
			to++;
		if (to == end)
			to = slab_end;
		bytes += drop_pages(pool, slab, from, to);
		from = to + 1;
	}
	return bytes;
}

size_t lp_pool_trim(struct lp_pool *pool)
{
	/* Objects go out from the lowest number on, so none beyond this has been touched. One touch
	 * takes a whole huge page, so even few bytes are worth a trim. */
	uint32_t end = LP_MAX(pool->out_end, pool->high_water);
	size_t bytes = 0;
	LP_ASSERT(pool->magic == POOL_MAGIC);
	LP_ASSERT_SLOW(is_owner(pool));
	if (pool->high_water <= pool->in_use)
		return 0; /* only objects that are out were touched */
	for (uint32_t i = 0; i < pool->slab_cnt; i++)
		bytes += trim_slab(pool, &pool->slabs[i], end);
	sort_stack(pool);
	pool->out_end = end;
	while (pool->out_end > 0 && bit_is_set(pool, pool->out_end - 1))
		pool->out_end--;
	pool->high_water_before = LP_MAX(pool->high_water_before, pool->high_water);
	pool->high_water = pool->in_use;
	return bytes;
}

void lp_pool_rebind(struct lp_pool *pool)
{
	pool->is_bound = false;
}

uint32_t lp_pool_free_cnt(const struct lp_pool *pool)
{
	return pool->in_use < pool->limit ? pool->limit - pool->in_use : 0;
}

void lp_pool_read_stats(const struct lp_pool *pool, struct lp_pool_stats *ret_stats)
{
	*ret_stats = (struct lp_pool_stats){
		.name = pool->name,
		.object_bytes = pool->object_bytes,
		.limit = pool->limit,
		.capacity = pool->capacity,
		.in_use = pool->in_use,
		.high_water = LP_MAX(pool->high_water_before, pool->high_water),
		.gets_failed = pool->gets_failed};
}

uint32_t lp_pool_index(const struct lp_pool *pool, const void *object)
{
	return number_of(pool, object);
}

bool lp_pool_is_sound(const struct lp_pool *pool)
{
	if (pool->free_cnt + pool->in_use != pool->capacity || pool->limit > pool->capacity ||
	    pool->high_water < pool->in_use)
		return false;
	/* There are as many bits as entries, and each entry's bit is set. If an entry were there
	 * twice, its bit would be clear after the first get. */
	uint32_t bits_cnt = 0;
	for (uint32_t i = 0; i < (pool->limit_max + 63) / 64; i++)
		bits_cnt += (uint32_t)__builtin_popcountll(pool->bitmap[i]);
	if (bits_cnt != pool->free_cnt)
		return false;
	for (uint32_t i = 0; i < pool->free_cnt; i++) {
		if (pool->stack[i] >= pool->capacity || !bit_is_set(pool, pool->stack[i]))
			return false;
	}
	return true;
}
