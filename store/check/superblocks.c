/* SPDX-License-Identifier: Apache-2.0 */
/* The superblocks of a shard's log, and of the journal of its index's files. Each exists twice, and
 * opening takes the better one without a word. So they are looked at before.
 *
 * One bit that flipped is flipped back, for which of two is the better one may hang on it. A copy
 * that is damaged otherwise is written anew by opening, from the other one, unless that is
 * read-only or fails. So what became of it is told after that.
 */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "store/blockfs/blockfs.h"
#include "store/check/fsck_impl.h"
#include "store/log/format.h"
#include "store/salvage/flipped_bit.h"

/* Of each of both structures. */
#define SLOT_CNT 2u

/* What one slot holds. */
struct slot {
	bool is_right;
	uint64_t sequence; /* if it is */
};

struct kind {
	const char *name;
	size_t crc_off;
	bool is_newest_twice; /* both slots have the newest one, unless a write of them was cut */
	bool (*read)(const struct lpi_fsck_shard *shard, const uint8_t *block, uint32_t slot_idx,
		     uint64_t *ret_sequence);
	enum lp_device_role (*device)(const struct lp_devices *devices);
	struct lp_extent (*area)(const struct lp_disk_label *label, uint32_t shard_idx);
};

/* --- Of the log ------------------------------------------------------------------------------- */

static bool read_of_log(const struct lpi_fsck_shard *shard, const uint8_t *block, uint32_t slot_idx,
			uint64_t *ret_sequence)
{
	const struct lp_devices *devices = &shard->fsck->devices;
	const struct lp_disk_label *label = &devices->label[lp_devices_of_log(devices)];
	struct lp_extent area = lp_label_log_area(label, shard->idx);
	struct lp_log_super super;
	if (lp_log_super_read(block, &super) != LP_LOG_FOUND)
		return false;
	*ret_sequence = super.slot_seq;
	return super.slot_seq % LP_LOG_SLOT_CNT == slot_idx && super.shard == shard->idx &&
	       super.area_block == area.block && super.ring_blocks + LP_LOG_SLOT_CNT == area.cnt &&
	       memcmp(super.store_uuid, label->store_uuid, sizeof(super.store_uuid)) == 0;
}

/* --- Of the journal of files ------------------------------------------------------------------ */

static bool read_of_files(const struct lpi_fsck_shard *shard, const uint8_t *block,
			  uint32_t slot_idx, uint64_t *ret_sequence)
{
	const struct lp_disk_label *label = &shard->fsck->devices.label[LP_ROLE_DATA];
	struct lp_blockfs_super super;
	if (lp_blockfs_decode_super(block, slot_idx, &super) < 0)
		return false;
	*ret_sequence = super.sequence;
	return super.shard == shard->idx &&
	       memcmp(super.store_uuid, label->store_uuid, sizeof(super.store_uuid)) == 0;
}

static const struct kind kinds[LPI_FSCK_SUPER_CNT] = {
	[LPI_FSCK_SUPER_LOG] = {.name = "its log",
				.crc_off = LP_LOG_SUPER_CRC_OFF,
				.read = read_of_log,
				.device = lp_devices_of_log,
				.area = lp_label_log_area},
	[LPI_FSCK_SUPER_FILES] = {.name = "the journal of its index's files",
				  .crc_off = LP_BLOCKFS_SUPER_CRC_OFF,
				  .is_newest_twice = true,
				  .read = read_of_files,
				  .device = lp_devices_of_files,
				  .area = lp_label_files_area},
};

/* --- One slot --------------------------------------------------------------------------------- */

static uint32_t crc_of(const uint8_t *block, size_t crc_off)
{
	static const uint8_t zeros[sizeof(uint32_t)];
	uint32_t crc = lp_crc32c(0, block, crc_off);
	crc = lp_crc32c(crc, zeros, sizeof(zeros));
	return lp_crc32c(crc, block + crc_off + sizeof(zeros),
			 LP_BLOCK_BYTES - crc_off - sizeof(zeros));
}

/* Whether a single bit of it flipped, which is right then. What it says must fit to this shard. */
static bool mend(const struct lpi_fsck_shard *shard, const struct kind *kind, uint8_t *block,
		 uint32_t slot_idx, uint64_t *ret_sequence)
{
	uint32_t stored = lp_get_le32(block + kind->crc_off);
	uint32_t crc = crc_of(block, kind->crc_off);
	uint64_t bit = lp_mend_find(LP_BLOCK_BYTES, crc, stored);
	uint32_t change = crc ^ stored;
	if (bit == LP_MEND_NONE && change != 0 && (change & (change - 1)) == 0)
		bit = kind->crc_off * 8 + (uint64_t)__builtin_ctz(change);
	if (bit == LP_MEND_NONE)
		return false;
	lp_mend_flip(block, bit);
	return kind->read(shard, block, slot_idx, ret_sequence);
}

static int look_at_slot(struct lpi_fsck_shard *shard, const struct kind *kind, uint32_t slot_idx,
			uint8_t *block, struct slot *ret)
{
	struct lpi_fsck *fsck = shard->fsck;
	enum lp_device_role device = kind->device(&fsck->devices);
	struct lp_bdev *bdev = fsck->devices.bdev[device];
	uint64_t at = kind->area(&fsck->devices.label[device], shard->idx).block + slot_idx;
	const struct lpi_fsck_at finding = {
		.kind = LP_FSCK_BIT, .shard = shard, .is_repaired = !fsck->read_only};
	*ret = (struct slot){.is_right = false};
	if (lp_bdev_read_sync(bdev, block, LP_BLOCK_BYTES, at * LP_BLOCK_BYTES) < 0)
		return 0;
	ret->is_right = kind->read(shard, block, slot_idx, &ret->sequence);
	if (ret->is_right || !mend(shard, kind, block, slot_idx, &ret->sequence))
		return 0;
	int err = fsck->read_only ? 0
				  : lp_bdev_write_sync(bdev, block, LP_BLOCK_BYTES,
						       at * LP_BLOCK_BYTES, true);
	if (err < 0)
		return err;
	ret->is_right = true;
	lpi_fsck_found(fsck, &finding,
		       "one bit has flipped in a superblock of %s: block %llu of %s", kind->name,
		       (unsigned long long)at, lp_bdev_name(bdev));
	return 0;
}

/* --- Both ------------------------------------------------------------------------------------- */

int lpi_fsck_supers_look(struct lpi_fsck_shard *shard)
{
	uint8_t *block = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	int err = block == NULL ? -ENOMEM : 0;
	for (unsigned i = 0; i < LPI_FSCK_SUPER_CNT && err == 0; i++) {
		struct lpi_fsck_super *super = &shard->supers[i];
		struct slot slots[SLOT_CNT] = {{.is_right = false}};
		for (uint32_t j = 0; j < SLOT_CNT && err == 0; j++)
			err = look_at_slot(shard, &kinds[i], j, block, &slots[j]);
		super->is_damaged[0] = !slots[0].is_right;
		super->is_damaged[1] = !slots[1].is_right;
		super->is_old = kinds[i].is_newest_twice && slots[0].is_right &&
				slots[1].is_right && slots[0].sequence != slots[1].sequence;
	}
	free(block);
	return err;
}

void lpi_fsck_supers_tell(struct lpi_fsck_shard *shard)
{
	struct lpi_fsck *fsck = shard->fsck;
	bool is_repaired = !fsck->read_only && shard->shard != NULL;
	for (unsigned i = 0; i < LPI_FSCK_SUPER_CNT; i++) {
		const struct lpi_fsck_super *super = &shard->supers[i];
		const struct lp_bdev *bdev = fsck->devices.bdev[kinds[i].device(&fsck->devices)];
		struct lpi_fsck_at at = {
			.kind = LP_FSCK_SUPER_COPY, .shard = shard, .is_repaired = is_repaired};
		if (super->is_damaged[0] && super->is_damaged[1])
			lpi_fsck_found(fsck, &at, "both superblocks of %s are damaged, on %s",
				       kinds[i].name, lp_bdev_name(bdev));
		else if (super->is_damaged[0] || super->is_damaged[1])
			lpi_fsck_found(fsck, &at,
				       "superblock %u of %s is damaged, or a write of it was cut, "
				       "on %s",
				       super->is_damaged[1], kinds[i].name, lp_bdev_name(bdev));
		at.is_warning = true; /* a crash comes between two writes */
		if (super->is_old)
			lpi_fsck_found(fsck, &at,
				       "the superblocks of %s are not the same, on %s: one is not "
				       "the newest",
				       kinds[i].name, lp_bdev_name(bdev));
	}
}
