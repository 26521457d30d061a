/* SPDX-License-Identifier: Apache-2.0 */
/* What label.c and label_plan.c share.
 *
 * Threads: any. Blocking, allocation, errors: none.
 */
#ifndef LP_STORE_LABEL_IMPL_H
#define LP_STORE_LABEL_IMPL_H

#include "store/label.h"

#define LPI_CHUNK_BLOCKS_MIN 256u    /* 1 MiB */
#define LPI_CHUNK_BLOCKS_MAX 262144u /* 1 GiB */

/* How many chunks a slot of the table can hold. */
static inline uint64_t lpi_label_table_room(uint32_t slot_blocks)
{
	uint64_t bytes = slot_blocks * LP_BLOCK_BYTES;
	return bytes < LP_DISK_CHUNKS_SIZE ? 0 : (bytes - LP_DISK_CHUNKS_SIZE) / LP_DISK_CHUNK_SIZE;
}

/* why may be NULL. */
void lpi_label_say(struct lp_label_why *why, const char *fmt, ...) LP_PRINTF(2, 3);

#endif
