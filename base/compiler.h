/* SPDX-License-Identifier: Apache-2.0 */
/* Short names for features of the compiler, and arithmetic that every module needs.
 *
 * Threads: everything here is a macro or a pure inline function.
 */
#ifndef LP_BASE_COMPILER_H
#define LP_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LP_MUST_CHECK      __attribute__((warn_unused_result))
#define LP_PRINTF(fmt, va) __attribute__((format(printf, fmt, va)))
#define LP_NORETURN        __attribute__((noreturn))
#define LP_PUBLIC          __attribute__((visibility("default")))
#define LP_LIKELY(x)       __builtin_expect(!!(x), 1)
#define LP_UNLIKELY(x)     __builtin_expect(!!(x), 0)

/* Two cores never share a line of this size, also where the prefetcher takes pairs of lines. */
#define LP_CACHE_LINE    128
#define LP_CACHE_ALIGNED __attribute__((aligned(LP_CACHE_LINE)))

#define LP_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define LP_MIN(a, b)     ((a) < (b) ? (a) : (b))
#define LP_MAX(a, b)     ((a) > (b) ? (a) : (b))

/* The struct that embeds `member` at `ptr`. The comparison costs nothing and makes a pointer of
 * the wrong type a compile error. */
#define LP_CONTAINER_OF(ptr, type, member)                                                         \
	((type *)(void *)((char *)(1 ? (ptr) : &((type *)0)->member) - offsetof(type, member)))

/* Tells the core that this is a spin loop. */
static inline void lp_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* align is a power of two. */
static inline uint64_t lp_align_down(uint64_t value, uint64_t align)
{
	return value & ~(align - 1);
}

/* align is a power of two; the caller knows that value + align does not overflow. */
static inline uint64_t lp_align_up(uint64_t value, uint64_t align)
{
	return (value + align - 1) & ~(align - 1);
}

static inline bool lp_is_aligned(uint64_t value, uint64_t align)
{
	return (value & (align - 1)) == 0;
}

static inline bool lp_is_power_of_two(uint64_t value)
{
	return value != 0 && (value & (value - 1)) == 0;
}

/* True, and *ret_sum untouched, when a + b does not fit. */
static inline bool lp_add_overflows(uint64_t a, uint64_t b, uint64_t *ret_sum)
{
	uint64_t sum;
	if (__builtin_add_overflow(a, b, &sum))
		return true;
	*ret_sum = sum;
	return false;
}

/* True when [offset, offset + length) does not lie within [0, limit). */
static inline bool lp_range_outside(uint64_t offset, uint64_t length, uint64_t limit)
{
	return offset > limit || length > limit - offset;
}

#endif
