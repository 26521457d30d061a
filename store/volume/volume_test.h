/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: devices, labels and power cuts for tests of label, chunks and blockfs.
 *
 * Only *_test.c files include this.
 */
#ifndef LP_STORE_VOLUME_VOLUME_TEST_H
#define LP_STORE_VOLUME_VOLUME_TEST_H

#include "base/testing/test.h"

#include "base/prng.h"
#include "store/device/sim/bdev_sim.h"
#include "store/volume/chunks.h"
#include "store/volume/label.h"

#define LP_KIB UINT64_C(1024)
#define LP_MIB (1024 * LP_KIB)
#define LP_GIB (1024 * LP_MIB)

static inline struct lp_bdev *lpi_disk_sim(uint64_t size_bytes, enum lp_sim_preset preset,
					   uint64_t seed)
{
	struct lp_bdev *bdev = NULL;
	struct lp_sim_options options = {
		.profile = lp_sim_preset(preset), .size_bytes = size_bytes, .seed = seed};
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	return bdev;
}

/* A small data device: 1 shard, smallest areas, 1 MiB chunks. */
static inline struct lp_label_wish lpi_disk_wish(uint64_t data_bytes, uint32_t shard_cnt)
{
	struct lp_label_wish wish = {.data_bytes = data_bytes,
				     .shard_cnt = shard_cnt,
				     .created_ns = 12345,
				     .store_uuid = "store",
				     .device_uuid = {"data", "db", "wal"}};
	return wish;
}

/* One that is made by hand, with a log too small for use, so that formatting is cheap. */
static inline struct lp_disk_label lpi_disk_tiny_label(uint64_t size_blocks, uint32_t chunk_cnt)
{
	struct lp_disk_label label = {.version = LP_DISK_VERSION,
				      .sequence = 1,
				      .role = LP_DISK_ROLE_DATA,
				      .block_bytes = (uint32_t)LP_BLOCK_BYTES,
				      .size_blocks = size_blocks,
				      .chunk_base = 256,
				      .chunk_blocks = 256,
				      .chunk_cnt = chunk_cnt,
				      .table_block = 1,
				      .table_slot_blocks = 1,
				      .shard_cnt = 2,
				      .device_uuid = "tiny",
				      .store_uuid = "store"};
	label.region_block[0] = 8;
	label.log_blocks[0] = 1;
	label.files_blocks[0] = 34;
	label.region_block[1] = 64;
	label.log_blocks[1] = 1;
	label.files_blocks[1] = 34;
	return label;
}

/* Calls check() with a device for every event of the sim at which the power can fail, some seeds
 * each, and at the end. Returns how many devices it made. */
static inline uint64_t
lpi_disk_cut_everywhere(struct lp_bdev *bdev, uint64_t from_event, unsigned seed_cnt,
			void (*check)(struct lp_bdev *left, uint64_t event, void *arg), void *arg)
{
	uint64_t made = 0;
	bool more = true;
	struct lp_sim_cutter *cutter = NULL;
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(bdev), NULL, &cutter));
	while (more && lp_sim_cutter_event(cutter) < from_event)
		more = lp_sim_cutter_next(cutter);
	for (; more; more = lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		for (unsigned seed = 0; seed < seed_cnt; seed++, made++) {
			struct lp_bdev *left =
				(event + seed) % 4 == 3
					? lp_sim_cutter_crash(cutter, event)
					: lp_sim_cutter_cut(cutter, event * 64 + seed);
			check(left, event, arg);
			lp_bdev_close(left);
		}
	}
	lp_sim_cutter_free(cutter);
	return made;
}

#endif
