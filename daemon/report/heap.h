/* SPDX-License-Identifier: Apache-2.0 */
/* Figures of the memory allocator that the program was linked with, and of the process.
 *
 * Threads: any.
 * Blocking: the allocator's own locks; the process's numbers are read from /proc.
 */
#ifndef LP_DAEMON_REPORT_HEAP_H
#define LP_DAEMON_REPORT_HEAP_H

#include "daemon/report/text.h"

struct lpi_heap_stats {
	uint64_t used_bytes; /* handed out; 0: this allocator does not say */
	uint64_t held_bytes; /* from the system, for that; 0: the same */
	uint64_t rss_bytes;  /* of the whole process */
	uint64_t file_bytes; /* of it: the program, its libraries, and memory that is shared */
};

void lpi_heap_read_stats(struct lpi_heap_stats *ret_stats);
uint64_t lpi_heap_rss_bytes(void);
/* Gives free memory back to the system. False: this allocator cannot be asked to. */
bool lpi_heap_release(void);
/* All that it tells of itself, in its own form: XML, JSON or lines. Nothing is added if it tells
 * nothing. */
void lpi_heap_dump(struct lpi_text *text);
/* "glibc", "jemalloc", ... */
const char *lpi_heap_name(void);

#endif
