/* SPDX-License-Identifier: Apache-2.0 */
/* Failing allocations for tests: one allocation of our own code fails.
 *
 * The linker replaces the C library's functions by the ones below (TEST_LDFLAGS in a module.mk).
 * Allocations of RocksDB and the C++ library never fail. One *_test.c of a program includes this.
 */
#ifndef LP_BASE_TESTING_SCARCE_TEST_H
#define LP_BASE_TESTING_SCARCE_TEST_H

#include "base/testing/test.h"

#include <stdatomic.h>
#include <sys/mman.h>

/* Allocations until one fails; below 0: none fails. */
static _Atomic long lp_scarce_left = -1;
static _Atomic long lp_scarce_made;

/* A place for a debugger's breakpoint. */
static void __attribute__((noinline)) lp_scarce_refuse(void)
{
	errno = ENOMEM;
}

static bool lp_scarce_runs_out(void)
{
	atomic_fetch_add(&lp_scarce_made, 1);
	if (atomic_load(&lp_scarce_left) < 0 || atomic_fetch_sub(&lp_scarce_left, 1) > 0)
		return false;
	lp_scarce_refuse();
	return true;
}

/* From now on no allocation fails. Returns the former count, for lp_scarce_again(). */
static inline long lp_scarce_pause(void)
{
	return atomic_exchange(&lp_scarce_left, -1);
}

static inline void lp_scarce_again(long left)
{
	atomic_store(&lp_scarce_left, left);
}

/* The linker's names. NOLINTBEGIN(bugprone-reserved-identifier) */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t cnt, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t cnt, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t bytes)
{
	return lp_scarce_runs_out() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t cnt, size_t bytes)
{
	return lp_scarce_runs_out() ? NULL : __real_calloc(cnt, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
	return lp_scarce_runs_out() ? NULL : __real_realloc(old, bytes);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return lp_scarce_runs_out() ? NULL : __real_aligned_alloc(alignment, bytes);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	return lp_scarce_runs_out() ? MAP_FAILED
				    : __real_mmap(at, bytes, protection, flags, fd, offset);
}
/* NOLINTEND(bugprone-reserved-identifier) */

#endif
