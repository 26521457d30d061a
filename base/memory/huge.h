/* SPDX-License-Identifier: Apache-2.0 */
/* Huge pages for large tables with random access.
 *
 * Threads: any.
 * Blocking, errors: none.
 *
 * The processor keeps few translations of addresses of small pages. Each access to another page
 * costs a walk through page tables, which takes long in a virtual machine. Memory for which this
 * module asks is in pages of 2 MiB, if the kernel has some to spare. Only touched pages are taken,
 * so it costs at most the last page of a table that is half empty.
 */
#ifndef LP_BASE_MEMORY_HUGE_H
#define LP_BASE_MEMORY_HUGE_H

#include "base/compiler.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LP_HUGE_BYTES (UINT64_C(2) << 20)

/* Called before the memory is touched. Asks for huge pages for the whole huge pages inside of
 * [memory, memory + bytes). Returns their bytes; 0: the memory is too small. Accepts NULL. The
 * content stays as it is. */
size_t lp_huge_advise(void *memory, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
