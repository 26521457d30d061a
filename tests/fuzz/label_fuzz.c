/* SPDX-License-Identifier: Apache-2.0 */
/* One copy of a device's label, from bytes that may be anything.
 *
 *   byte 0: 1 repair the crc, 2 it lies in the last block; then u64 blocks of the device, label
 *
 * A label that is accepted is what its encoder makes of it, but for chunks a store was grown beyond
 * and cannot open, which it no longer counts; the areas it names lie on the device. One that is
 * refused leaves the caller's untouched. */
#include "store/volume/label_impl.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR 1u
#define FLAG_LAST   2u
#define HEAD_BYTES  9u

static void check_area(const struct lp_disk_label *label, struct lp_extent area)
{
	LP_ASSERT(area.cnt == 0 || area.block > 0);
	LP_ASSERT(!lp_range_outside(area.block, area.cnt, label->size_blocks - 1));
}

static void check_accepted(const struct lp_disk_label *label, uint64_t block_idx,
			   const uint8_t *bytes)
{
	static uint8_t again[LP_DISK_LABEL_SIZE];
	static struct lp_disk_label written;
	struct lp_disk_label put_back = *label;
	lp_disk_label_decode(bytes, &written);
	if (written.chunk_cnt != label->chunk_cnt) {
		LP_ASSERT(written.chunk_cnt > label->chunk_cnt);
		LP_ASSERT(label->chunk_cnt == lpi_label_chunks_max(label));
		put_back.chunk_cnt = written.chunk_cnt;
	}
	lp_label_encode(&put_back, block_idx, again);
	LP_ASSERT(memcmp(again, bytes, sizeof(again)) == 0);
	for (uint32_t i = 0; i < label->shard_cnt; i++) {
		check_area(label, lp_label_log_area(label, i));
		check_area(label, lp_label_files_area(label, i));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static uint8_t block[LP_DISK_LABEL_SIZE];
	static struct lp_disk_label label;
	static const struct lp_disk_label untouched = {.role = 0};
	struct lp_label_why why = {.text = ""};
	if (len < HEAD_BYTES)
		return 0;
	uint64_t device_blocks = LP_MAX(lp_get_le64(bytes + 1), UINT64_C(2));
	uint64_t block_idx = (bytes[0] & FLAG_LAST) != 0 ? device_blocks - 1 : 0;
	memset(block, 0, sizeof(block));
	memcpy(block, bytes + HEAD_BYTES, LP_MIN(len - HEAD_BYTES, sizeof(block)));
	if ((bytes[0] & FLAG_REPAIR) != 0)
		lpi_fuzz_repair_crc(block, sizeof(block), LP_DISK_LABEL_CRC_OFF);
	label = untouched;
	uint8_t *exact = lpi_fuzz_copy(block, sizeof(block));
	int err = lp_label_decode(exact, block_idx, device_blocks, &label, &why);
	if (err == 0)
		check_accepted(&label, block_idx, block);
	else
		LP_ASSERT(memcmp(&label, &untouched, sizeof(label)) == 0);
	free(exact);
	return 0;
}
