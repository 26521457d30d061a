/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the memory allocator that the program was linked with, and of the process.
 *
 * Threads: any.
 * Blocking: the allocator's own locks; the numbers of the process are read from /proc.
 */
#ifndef LP_DAEMON_REPORT_HEAP_H
#define LP_DAEMON_REPORT_HEAP_H

#include "daemon/report/text.h"

struct lpi_heap_stats {
	uint64_t used_bytes; /* handed out; 0: the allocator does not report it */
	uint64_t held_bytes; /* taken from the system for that; 0: not reported */
	uint64_t rss_bytes;  /* of the whole process */
	uint64_t file_bytes; /* of it: the program, its libraries, and memory that is shared */
};

void lpi_heap_read_stats(struct lpi_heap_stats *ret_stats);
uint64_t lpi_heap_rss_bytes(void);
/* Gives free memory back to the system. False: this allocator cannot do that. */
bool lpi_heap_release(void);
/* Adds the allocator's own report in its own form: XML, JSON or lines. Adds nothing if it has none.
 */
void lpi_heap_dump(struct lpi_text *text);
/* "glibc", "jemalloc", ... */
const char *lpi_heap_name(void);

#endif
