/* SPDX-License-Identifier: Apache-2.0 */
#include "store/setup/grow.h"

#include <errno.h>

#include "store/volume/chunks.h"
#include "store/volume/label_impl.h"

static uint64_t device_blocks(const struct lp_bdev *bdev)
{
	return lp_bdev_caps(bdev)->size_bytes >> LP_BLOCK_SHIFT;
}

/* Whole chunks between the last one and the last label. */
static uint64_t idle_blocks(const struct lp_disk_label *label)
{
	if (label->chunk_cnt == 0)
		return 0;
	uint64_t end = label->chunk_base + (uint64_t)label->chunk_cnt * label->chunk_blocks;
	uint64_t rest = label->size_blocks - 1 - end;
	return rest - rest % label->chunk_blocks;
}

static int check_room(const struct lp_bdev *bdev, const struct lp_disk_label *label,
		      struct lp_label_why *why)
{
	if (label->chunk_cnt == 0 || device_blocks(bdev) <= label->size_blocks ||
	    label->chunk_cnt < lpi_label_chunks_max(label))
		return 0;
	lpi_label_say(
		why,
		"the store has %u chunks of %llu MiB: it grows to %u times its first size, %u "
		"chunks or %llu TiB, and no further (make a new one)",
		label->chunk_cnt, (unsigned long long)label->chunk_blocks * LP_BLOCK_BYTES >> 20,
		LP_LABEL_GROWTH_MAX, LP_SPACE_CHUNKS_MAX,
		(unsigned long long)LP_ALLOC_BLOCKS_MAX * LP_BLOCK_BYTES >> 40);
	return -EFBIG;
}

/* Opening takes up the chunks that the label has and the table has not, as many as it has room
 * for. */
static int take_up_chunks(struct lp_bdev *bdev, const struct lp_disk_label *label,
			  uint64_t *ret_waiting_blocks)
{
	const struct lp_chunks_options options = {.label = label};
	struct lp_chunks *chunks = NULL;
	struct lp_chunks_stats stats;
	*ret_waiting_blocks = 0;
	if (label->chunk_cnt == 0)
		return 0;
	int err = lp_chunks_open(bdev, &options, &chunks);
	if (err < 0)
		return err;
	lp_chunks_stats(chunks, &stats);
	*ret_waiting_blocks = (uint64_t)(label->chunk_cnt - stats.total_cnt) * label->chunk_blocks;
	lp_chunks_close(chunks);
	return 0;
}

int lp_store_grow(struct lp_bdev *bdev, struct lp_grow_result *ret_result, struct lp_label_why *why)
{
	struct lp_disk_label label;
	*why = (struct lp_label_why){.text = ""};
	int err = lp_bdev_refresh_size(bdev);
	if (err == 0)
		err = lp_label_read(bdev, true, &label, why);
	if (err == 0)
		err = check_room(bdev, &label, why);
	if (err != 0)
		return err;
	/* Else it would look like rot of what is about to be made larger. */
	struct lp_grow_result result = {.old_blocks = label.size_blocks};
	err = take_up_chunks(bdev, &label, &result.waiting_blocks);
	if (err == 0)
		err = lp_label_grow(bdev, &label);
	if (err == 0)
		err = take_up_chunks(bdev, &label, &result.waiting_blocks);
	if (err < 0 && err != -EALREADY)
		return err;
	result.new_blocks = label.size_blocks;
	result.idle_blocks = idle_blocks(&label);
	*ret_result = result;
	return 0;
}
