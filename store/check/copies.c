/* SPDX-License-Identifier: Apache-2.0 */
/* The copies of what stands on a device twice. Opening takes the better one and, unless read-only,
 * mends the other without a word; so they are looked at before. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/check/fsck_impl.h"

static const char *const device_names[LP_ROLES] = {
	[LP_ROLE_DATA] = "data", [LP_ROLE_DB] = "db", [LP_ROLE_WAL] = "wal"};

/* A copy may name chunks that reading leaves out (store/volume/label.c). */
static bool is_same(const uint8_t *copy, const struct lp_disk_label *label, uint64_t block)
{
	uint8_t want[LP_DISK_LABEL_SIZE];
	uint8_t bytes[LP_DISK_LABEL_SIZE];
	struct lp_disk_label got;
	lp_label_encode(label, block, want);
	if (memcmp(copy, want, sizeof(want)) == 0)
		return true;
	if (lp_label_decode(copy, block, label->size_blocks, &got, NULL) < 0)
		return false;
	lp_label_encode(&got, block, bytes);
	return memcmp(bytes, want, sizeof(want)) == 0;
}

/* One copy against what the label is; *buf is a block. */
static void check_copy(struct lpi_fsck *fsck, int device, const struct lp_disk_label *label,
		       uint64_t block, uint8_t *buf)
{
	struct lp_bdev *bdev = fsck->options->bdev[device];
	const struct lpi_fsck_at at = {.kind = LP_FSCK_LABEL_COPY, .is_repaired = !fsck->read_only};
	const char *which = block == 0 ? "first" : "last";
	if (lp_bdev_read_sync(bdev, buf, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES) < 0)
		lpi_fsck_found(fsck, &at, "the %s copy of the %s device's label cannot be read",
			       which, device_names[device]);
	else if (!is_same(buf, label, block))
		lpi_fsck_found(fsck, &at,
			       "the %s copy of the %s device's label is damaged or not the newest",
			       which, device_names[device]);
}

/* A label that cannot be read at all is what opening says. */
int lpi_fsck_labels(struct lpi_fsck *fsck)
{
	uint8_t *buf = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	if (buf == NULL)
		return -ENOMEM;
	for (int i = 0; i < LP_ROLES; i++) {
		struct lp_disk_label label;
		struct lp_bdev *bdev = fsck->options->bdev[i];
		if (bdev == NULL || lp_label_read(bdev, false, &label, NULL) < 0)
			continue;
		check_copy(fsck, i, &label, 0, buf);
		check_copy(fsck, i, &label, label.size_blocks - 1, buf);
	}
	free(buf);
	return 0;
}

/* Reads both slots of one device's table. -ENOMEM. */
static int check_slots(struct lpi_fsck *fsck, int device, const struct lp_disk_label *label)
{
	struct lp_disk_chunks header[2] = {{.sequence = 0}, {.sequence = 0}};
	int err[2];
	size_t len = label->table_slot_blocks * LP_BLOCK_BYTES;
	uint8_t *buf = aligned_alloc(LP_BLOCK_BYTES, len);
	if (buf == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < 2; i++) {
		err[i] = lp_bdev_read_sync(fsck->options->bdev[device], buf, len,
					   label->table_block * LP_BLOCK_BYTES + i * len);
		if (err[i] == 0)
			err[i] = lp_chunks_decode(buf, len, i, label->device_uuid, &header[i]);
	}
	free(buf);
	for (uint32_t i = 0; i < 2; i++) {
		bool is_older = err[i] == 0 && header[i].sequence < header[1 - i].sequence;
		/* Both are written at each change, one after the other: a crash comes between. */
		bool is_left_so = is_older && header[i].sequence + 1 == header[1 - i].sequence;
		const struct lpi_fsck_at at = {.kind = LP_FSCK_CHUNK_SLOT,
					       .is_warning = is_left_so,
					       .is_repaired = !fsck->read_only};
		if (err[1 - i] == 0 && (err[i] < 0 || is_older))
			lpi_fsck_found(fsck, &at, "slot %u of the %s device's chunk table is %s", i,
				       device_names[device],
				       is_older ? "not the newest"
						: "damaged, or a write of it was cut");
	}
	return 0;
}

int lpi_fsck_tables(struct lpi_fsck *fsck)
{
	int err = 0;
	for (int i = 0; i < LP_ROLES && err == 0; i++) {
		struct lp_disk_label label;
		struct lp_bdev *bdev = fsck->options->bdev[i];
		if (bdev == NULL || lp_label_read(bdev, false, &label, NULL) < 0)
			continue;
		if (label.chunk_cnt > 0)
			err = check_slots(fsck, i, &label);
	}
	return err;
}
