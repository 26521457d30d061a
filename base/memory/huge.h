/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages for large tables that are looked into at random.
 *
 * Threads: any.
 * Blocking, errors: none.
 *
 * The processor keeps few translations of addresses of small pages. Each access to another page
 * costs a walk through page tables, which takes long in a virtual machine. Memory that was asked
 * for in this way is in pages of 2 MiB, where the kernel has some to spare. It takes no more of
 * them than are touched, so it costs at most the last page of a table that is half empty.
 */
#ifndef LP_BASE_MEMORY_HUGE_H
#define LP_BASE_MEMORY_HUGE_H

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LP_HUGE_BYTES (UINT64_C(2) << 20)

/* Before it is touched: the whole huge pages inside of [memory, memory + bytes). Returns how many
 * bytes these are; 0: it is too small. NULL is nothing. The content stays as it is. */
size_t lp_huge_advise(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
