/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred payloads that the index keeps (store/commit/deferred_records.h): what an opening will
 * write to its place must be what the file that has the block says is there.
 *
 * There are few, for what waits is bounded: they are read into a table by block, before the maps go
 * by, and each extent of a map is held against those within it. A record whose block is free is in
 * order: the next opening deletes it, or it holds a bad block. One whose block is in use must be
 * that of an extent with the same checksum: of the inode it names, if it names one, unless the
 * block is shared, for then that inode may be gone.
 */
#include <stdlib.h>

#include "base/error.h"
#include "store/check/fsck_impl.h"

struct payload {
	struct lp_deferred_value about;
	uint64_t number;
	bool is_named;
};

struct lpi_fsck_deferred {
	struct lpi_fsck_shard *shard;
	struct payload *payloads; /* by block */
	uint64_t cnt;
	uint64_t max;
};

static void found(const struct lpi_fsck_deferred *deferred, const struct payload *payload,
		  const char *what)
{
	const struct lp_deferred_value *about = &payload->about;
	const struct lpi_fsck_at at = {.kind = LP_FSCK_DEFERRED,
				       .shard = deferred->shard,
				       .ino = {about->ino},
				       .extent = {about->device_block, 1},
				       .has_offset = true,
				       .offset_bytes = about->file_block << LP_BLOCK_SHIFT};
	lpi_fsck_found(deferred->shard->fsck, &at, "deferred payload %llu for block %llu %s",
		       (unsigned long long)payload->number, (unsigned long long)about->device_block,
		       what);
}

/* A record that stays (rule L6): nothing is lost, but the device should be looked after. */
static void found_bad(const struct lpi_fsck_deferred *deferred, const struct payload *payload,
		      struct lp_ino ino, uint64_t file_block)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_BAD_BLOCK,
				       .shard = deferred->shard,
				       .ino = ino,
				       .extent = {payload->about.device_block, 1},
				       .has_offset = ino.nr != 0,
				       .offset_bytes = file_block << LP_BLOCK_SHIFT,
				       .is_warning = true};
	lpi_fsck_found(deferred->shard->fsck, &at, "block %llu could not be written%s",
		       (unsigned long long)payload->about.device_block,
		       ino.nr != 0 ? ": what belongs there is kept in the index"
				   : ", and is not used any more");
}

/* --- Reading them ----------------------------------------------------------------------------- */

static int grow(struct lpi_fsck_deferred *deferred)
{
	uint64_t max = LP_MAX(2 * deferred->max, UINT64_C(64));
	struct payload *bigger = realloc(deferred->payloads, max * sizeof(*bigger));
	if (bigger == NULL)
		return -ENOMEM;
	deferred->payloads = bigger;
	deferred->max = max;
	return 0;
}

static int take(struct lpi_fsck_deferred *deferred, const struct lpi_fsck_cursor *cursor)
{
	struct payload payload = {.number = cursor->view.number};
	struct lp_key key;
	lpi_fsck_cursor_key(cursor, &key);
	if (lp_deferred_read(cursor->value.data, cursor->value.len, &key, &payload.about) < 0) {
		const struct lpi_fsck_at at = {.kind = LP_FSCK_RECORD, .shard = deferred->shard};
		lpi_fsck_found(deferred->shard->fsck, &at, "%s", lpi_fsck_last_corruption());
		return 0;
	}
	if (!lpi_fsck_blocks_has(&deferred->shard->blocks,
				 (struct lp_extent){payload.about.device_block, 1})) {
		found(deferred, &payload, "is not in the space of the shard");
		return 0;
	}
	int err = deferred->cnt == deferred->max ? grow(deferred) : 0;
	if (err == 0)
		deferred->payloads[deferred->cnt++] = payload;
	return err;
}

static int by_block(const void *a, const void *b)
{
	uint64_t x = ((const struct payload *)a)->about.device_block;
	uint64_t y = ((const struct payload *)b)->about.device_block;
	return (x > y) - (x < y);
}

int lpi_fsck_deferred_new(struct lpi_fsck_shard *shard, struct lpi_fsck_deferred **ret)
{
	struct lpi_fsck_deferred *deferred = calloc(1, sizeof(*deferred));
	struct lpi_fsck_cursor cursor;
	if (deferred == NULL)
		return -ENOMEM;
	deferred->shard = shard;
	int err = lpi_fsck_cursor_open(&cursor, shard, LP_KEY_SPACE_DEFERRED, false);
	for (; err == 0 && !cursor.is_at_end; lpi_fsck_cursor_next(&cursor))
		err = take(deferred, &cursor);
	lpi_fsck_cursor_close(&cursor);
	if (err < 0) {
		lpi_fsck_deferred_free(deferred);
		return err;
	}
	if (deferred->cnt > 0)
		qsort(deferred->payloads, deferred->cnt, sizeof(deferred->payloads[0]), by_block);
	for (uint64_t i = 1; i < deferred->cnt; i++) {
		if (by_block(&deferred->payloads[i - 1], &deferred->payloads[i]) == 0)
			found(deferred, &deferred->payloads[i], "is not the only one");
	}
	*ret = deferred;
	return 0;
}

void lpi_fsck_deferred_free(struct lpi_fsck_deferred *deferred)
{
	if (deferred == NULL)
		return;
	free(deferred->payloads);
	free(deferred);
}

/* --- Against the maps ------------------------------------------------------------------------- */

/* The first payload at or behind the block. */
static uint64_t find(const struct lpi_fsck_deferred *deferred, uint64_t block)
{
	uint64_t low = 0;
	uint64_t high = deferred->cnt;
	while (low < high) {
		uint64_t mid = low + (high - low) / 2;
		if (deferred->payloads[mid].about.device_block < block)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

void lpi_fsck_deferred_see(struct lpi_fsck_deferred *deferred, struct lp_ino ino, uint64_t logical,
			   struct lp_extent extent, const uint32_t *crcs, bool is_shared)
{
	for (uint64_t i = find(deferred, extent.block); i < deferred->cnt; i++) {
		struct payload *payload = &deferred->payloads[i];
		const struct lp_deferred_value *about = &payload->about;
		uint64_t idx = about->device_block - extent.block;
		if (idx >= extent.cnt)
			break;
		bool is_first = !payload->is_named;
		payload->is_named = true;
		if (!is_first)
			continue; /* one finding is enough */
		if (about->ino == 0)
			found_bad(deferred, payload, ino, logical + idx);
		if (crcs[idx] != about->block_crc)
			found(deferred, payload, "is not what the block should be");
		else if (!is_shared && about->ino != 0 &&
			 (about->ino != ino.nr || about->file_block != logical + idx))
			found(deferred, payload, "names another place than the block is in");
	}
}

void lpi_fsck_deferred_finish(struct lpi_fsck_deferred *deferred)
{
	for (uint64_t i = 0; i < deferred->cnt; i++) {
		const struct payload *payload = &deferred->payloads[i];
		const struct lp_extent extent = {payload->about.device_block, 1};
		if (payload->is_named || deferred->shard->maps_in_doubt)
			continue;
		if (lpi_fsck_is_used(deferred->shard, extent))
			found(deferred, payload, "is of a block that no file has");
		else if (payload->about.ino == 0)
			found_bad(deferred, payload, (struct lp_ino){0}, 0);
	}
}
