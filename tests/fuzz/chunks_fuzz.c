/* SPDX-License-Identifier: Apache-2.0 */
/* One slot of a device's chunk table, from bytes that may be anything.
 *
 *   byte 0: 1 repair the crcs, 2 it is slot 1; then the slot
 *
 * Entries of a slot that is accepted lie within it, name a use and a shard, and are free of an
 * owner when free; one that is refused leaves the caller's header untouched. */
#include "store/volume/chunks.h"
#include "store/volume/label.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR 1u
#define FLAG_SECOND 2u

static void repair(uint8_t *slot, size_t len)
{
	if (len < LP_DISK_CHUNKS_SIZE)
		return;
	uint64_t chunk_cnt = lp_get_le32(slot + LP_DISK_CHUNKS_CHUNK_CNT_OFF);
	if (chunk_cnt > (len - LP_DISK_CHUNKS_SIZE) / LP_DISK_CHUNK_SIZE)
		return;
	size_t end = LP_DISK_CHUNKS_SIZE + chunk_cnt * LP_DISK_CHUNK_SIZE;
	uint32_t split_bytes = lp_get_le32(slot + LP_DISK_CHUNKS_SPLIT_BYTES_OFF);
	if (split_bytes <= len - end)
		lp_put_le32(slot + LP_DISK_CHUNKS_SPLIT_CRC_OFF,
			    lp_crc32c(0, slot + end, split_bytes));
	lpi_fuzz_repair_crc(slot, end, LP_DISK_CHUNKS_CRC_OFF);
}

static void check_accepted(const struct lp_disk_chunks *header, const uint8_t *slot, size_t len)
{
	uint8_t again[LP_DISK_CHUNKS_SIZE];
	lp_disk_chunks_encode(header, again);
	LP_ASSERT(memcmp(again, slot, sizeof(again)) == 0);
	LP_ASSERT(header->chunk_cnt <= (len - LP_DISK_CHUNKS_SIZE) / LP_DISK_CHUNK_SIZE);
	for (uint32_t i = 0; i < header->chunk_cnt; i++) {
		struct lp_disk_chunk entry;
		lp_disk_chunk_decode(slot + LP_DISK_CHUNKS_SIZE + i * (size_t)LP_DISK_CHUNK_SIZE,
				     &entry);
		LP_ASSERT(lp_chunk_use_name(entry.use) != NULL);
		LP_ASSERT(entry.shard < LP_SHARDS_MAX);
		LP_ASSERT(entry.use != LP_CHUNK_USE_FREE || entry.shard == 0);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static const struct lp_disk_chunks untouched = {.magic = 0};
	struct lp_disk_chunks header = untouched;
	uint8_t uuid[LP_UUID_BYTES];
	if (len < 1)
		return 0;
	memset(uuid, 0x22, sizeof(uuid));
	uint8_t *slot = lpi_fuzz_copy(bytes + 1, len - 1);
	if ((bytes[0] & FLAG_REPAIR) != 0)
		repair(slot, len - 1);
	int err = lp_chunks_decode(slot, len - 1, (bytes[0] & FLAG_SECOND) != 0, uuid, &header);
	if (err == 0)
		check_accepted(&header, slot, len - 1);
	else
		LP_ASSERT(memcmp(&header, &untouched, sizeof(header)) == 0);
	free(slot);
	return 0;
}
