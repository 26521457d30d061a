/* SPDX-License-Identifier: Apache-2.0 */
#include "base/memory/huge.h"

#include <sys/mman.h>

size_t lp_huge_advise(void *memory, size_t bytes)
{
	uintptr_t begin = (uintptr_t)memory;
	uintptr_t first = (uintptr_t)lp_align_up(begin, LP_HUGE_BYTES);
	uintptr_t end = (begin + bytes) & ~(uintptr_t)(LP_HUGE_BYTES - 1);
	if (memory == NULL || end <= first)
		return 0;
	/* Only advice: huge pages are optional. */
	(void)madvise((uint8_t *)memory + (first - begin), end - first, MADV_HUGEPAGE);
	return end - first;
}
