/* SPDX-License-Identifier: Apache-2.0 */
/* Annotations for AddressSanitizer and ThreadSanitizer, and which of them is in use.
 *
 * Threads: any.
 * Blocking, memory: none.
 *
 * Without that sanitizer the functions do nothing. They tell AddressSanitizer about memory that our
 * own allocators have taken back. They tell ThreadSanitizer which accesses to ignore, and an order
 * that it cannot see.
 */
#ifndef LP_BASE_SANITIZE_H
#define LP_BASE_SANITIZE_H

#include "base/compiler.h"

/* GCC defines macros; clang has __has_feature(). */
#if defined(__SANITIZE_ADDRESS__)
#define LP_SAN_ADDRESS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define LP_SAN_ADDRESS 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define LP_SAN_THREAD 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define LP_SAN_THREAD 1
#endif
#endif

#ifndef LP_SAN_ADDRESS
#define LP_SAN_ADDRESS 0
#endif
#ifndef LP_SAN_THREAD
#define LP_SAN_THREAD 0
#endif

#if LP_SAN_ADDRESS
#include <sanitizer/asan_interface.h>
#endif
#if LP_SAN_THREAD
/* Exported by the runtime; the first two are in no header. */
#ifdef __cplusplus
extern "C" {
#endif
void __tsan_ignore_thread_begin(void);
void __tsan_ignore_thread_end(void);
void __tsan_acquire(const void *order);
void __tsan_release(const void *order);
#ifdef __cplusplus
}
#endif
#endif

/* From here on an access to [mem, mem + bytes) is reported. */
static inline void lp_san_poison(const void *mem, size_t bytes)
{
#if LP_SAN_ADDRESS
	ASAN_POISON_MEMORY_REGION(mem, bytes);
#else
	(void)mem;
	(void)bytes;
#endif
}

static inline void lp_san_unpoison(const void *mem, size_t bytes)
{
#if LP_SAN_ADDRESS
	ASAN_UNPOISON_MEMORY_REGION(mem, bytes);
#else
	(void)mem;
	(void)bytes;
#endif
}

/* Until the end ThreadSanitizer sees none of this thread's accesses. For code that stands for
 * hardware, whose many accesses it would not see either. The calls nest. */
static inline void lp_san_hide_begin(void)
{
#if LP_SAN_THREAD
	__tsan_ignore_thread_begin();
#endif
}

static inline void lp_san_hide_end(void)
{
#if LP_SAN_THREAD
	__tsan_ignore_thread_end();
#endif
}

/* A thread's accesses before it left `order` come before another thread's accesses after it joined
 * there. For a library that keeps this order and is not instrumented. */
static inline void lp_san_leave(const void *order)
{
#if LP_SAN_THREAD
	__tsan_release(order);
#else
	(void)order;
#endif
}

static inline void lp_san_join(const void *order)
{
#if LP_SAN_THREAD
	__tsan_acquire(order);
#else
	(void)order;
#endif
}

#endif
