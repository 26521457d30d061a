/* SPDX-License-Identifier: Apache-2.0 */
/* Asserts that stay on.
 *
 * Threads: any.
 *
 * LP_ASSERT states what *our* code guarantees and is never compiled out. Data from a disk, a
 * socket, the kernel, a user or an allocator is input: it gets an error, not an assert.
 * LP_ASSERT_OBJ also prints the object, by its _to_text(). LP_ASSERT_SLOW is for checks of whole
 * structures: it runs in the debug, sanitizer and coverage builds only.
 *
 * A failed assert writes expression, place and object to standard error, then aborts.
 */
#ifndef LP_BASE_ASSERT_H
#define LP_BASE_ASSERT_H

#include "base/compiler.h"

#ifndef LP_ASSERT_SLOW_ON
#define LP_ASSERT_SLOW_ON 0
#endif

/* Most bytes of object text that a failed assert prints. */
#define LP_ASSERT_TEXT_MAX 1024

#define LP_ASSERT(cond)                                                                            \
	(LP_LIKELY(cond) ? (void)0 : lp_assert_failed(#cond, __FILE__, __LINE__, __func__, NULL))

/* to_text: int (*)(const T *obj, char *buf, size_t len), as snprintf. */
#define LP_ASSERT_OBJ(cond, to_text, obj)                                                          \
	do {                                                                                       \
		if (LP_UNLIKELY(!(cond))) {                                                        \
			char lp_text_[LP_ASSERT_TEXT_MAX];                                         \
			(void)to_text((obj), lp_text_, sizeof(lp_text_));                          \
			lp_assert_failed(#cond, __FILE__, __LINE__, __func__, lp_text_);           \
		}                                                                                  \
	} while (0)

#if LP_ASSERT_SLOW_ON
#define LP_ASSERT_SLOW(cond) LP_ASSERT(cond)
#else
#define LP_ASSERT_SLOW(cond) ((void)sizeof(!!(cond)))
#endif

/* A switch over our own enum came to a value that does not exist. */
#define LP_UNREACHABLE() lp_assert_failed("unreachable", __FILE__, __LINE__, __func__, NULL)

#ifdef __cplusplus
extern "C" {
#endif
/* object may be NULL. Does not return. */
LP_NORETURN void lp_assert_failed(const char *expr, const char *file, int line, const char *func,
				  const char *object);
#ifdef __cplusplus
}
#endif

#endif
