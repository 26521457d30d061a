/* SPDX-License-Identifier: Apache-2.0 */
/* What label.c and label_plan.c share.
 *
 * Threads: any. Blocking, allocation, errors: none.
 */
#ifndef LP_STORE_VOLUME_LABEL_IMPL_H
#define LP_STORE_VOLUME_LABEL_IMPL_H

#include "store/space/space.h"
#include "store/volume/label.h"

#define LPI_CHUNK_BLOCKS_MIN 256u    /* 1 MiB */
#define LPI_CHUNK_BLOCKS_MAX 262144u /* 1 GiB */

/* How many chunks a slot of the table can hold. */
static inline uint64_t lpi_label_table_room(uint32_t slot_blocks)
{
	uint64_t bytes = slot_blocks * LP_BLOCK_BYTES;
	return bytes < LP_DISK_CHUNKS_SIZE ? 0 : (bytes - LP_DISK_CHUNKS_SIZE) / LP_DISK_CHUNK_SIZE;
}

/* How many chunks the device can have, however large it is: those of the data device are one
 * shard's at worst, which has a limit for what it can open (store/space/space.h). */
static inline uint64_t lpi_label_chunks_max(const struct lp_disk_label *label)
{
	uint64_t room = lpi_label_table_room(label->table_slot_blocks);
	if (label->role != LP_DISK_ROLE_DATA)
		return room;
	uint64_t blocks = LP_ALLOC_BLOCKS_MAX - LP_MIN(label->chunk_base, LP_ALLOC_BLOCKS_MAX);
	room = LP_MIN(room, (uint64_t)LP_SPACE_CHUNKS_MAX);
	return LP_MIN(room, blocks / label->chunk_blocks);
}

/* why may be NULL. */
void lpi_label_say(struct lp_label_why *why, const char *fmt, ...) LP_PRINTF(2, 3);

#endif
