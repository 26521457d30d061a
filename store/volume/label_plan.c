/* SPDX-License-Identifier: Apache-2.0 */
/* How mkfs divides the devices of a store. From the sizes alone: each device is label, chunk table,
 * regions in the order of shards, chunks, label. Sizes that were not asked for follow from the
 * device's, between fixed limits. */
#include "base/error.h"
#include "store/volume/label_impl.h"

#define KIB                  UINT64_C(1024)
#define MIB                  (1024 * KIB)
#define GIB                  (1024 * MIB)
#define CHUNKS_WANTED        UINT64_C(4096)
#define LOG_DIVISOR          16u
#define LOG_STORE_MIN        (16 * MIB)
#define LOG_STORE_MAX        GIB
#define LOG_SHARD_MIN        (8 * MIB)
#define HALF_DIVISOR         2048u
#define HALF_MIN             (256 * KIB)
#define HALF_MAX             (32 * MIB)
#define LOG_SHARD_MAX        (32 * GIB)          /* of whose blocks a shard can keep account */
#define JOURNAL_MAX          (UINT64_C(1) << 40) /* so that nothing overflows */
#define SUPER_BLOCKS         2u
#define CHUNK_ALIGN          256u /* chunks begin at 1 MiB */
#define CHUNKS_MIN           16u
#define CHUNKS_PER_SHARD_MIN 8u

static uint64_t clamp(uint64_t value, uint64_t low, uint64_t high)
{
	return LP_MIN(LP_MAX(value, low), high);
}

static int check_wish(const struct lp_label_wish *wish, struct lp_label_why *why)
{
	uint64_t chunk = wish->chunk_bytes;
	if (wish->shard_cnt < 1 || wish->shard_cnt > LP_SHARDS_MAX) {
		lpi_label_say(why, "a store has 1 to %u shards, not %u", LP_SHARDS_MAX,
			      wish->shard_cnt);
		return -EINVAL;
	}
	if (chunk != 0 && (!lp_is_power_of_two(chunk) || chunk < MIB || chunk > GIB)) {
		lpi_label_say(why, "the chunk size must be a power of two from 1 MiB to 1 GiB");
		return -EINVAL;
	}
	if (wish->log_bytes > LOG_SHARD_MAX || wish->journal_bytes > JOURNAL_MAX) {
		lpi_label_say(why,
			      "the log of a shard may have 32 GiB at most, half its file journal "
			      "1 TiB");
		return -EINVAL;
	}
	size_t path_max = LP_DISK_LABEL_DB_PATH_SIZE;
	if ((wish->db_path != NULL && strlen(wish->db_path) >= path_max) ||
	    (wish->wal_path != NULL && strlen(wish->wal_path) >= path_max)) {
		lpi_label_say(why, "the path of a device may have 255 bytes at most");
		return -EINVAL;
	}
	return 0;
}

static uint64_t log_blocks(const struct lp_label_wish *wish, uint64_t device_bytes)
{
	uint64_t bytes = wish->log_bytes;
	if (bytes == 0) {
		bytes = clamp(device_bytes / LOG_DIVISOR, LOG_STORE_MIN, LOG_STORE_MAX);
		bytes = LP_MAX(bytes / wish->shard_cnt, LOG_SHARD_MIN);
	}
	return lp_bytes_to_blocks_up(LP_MAX(bytes, LOG_SHARD_MIN));
}

static uint64_t files_blocks(const struct lp_label_wish *wish, uint64_t device_bytes)
{
	uint64_t bytes = wish->journal_bytes;
	if (bytes == 0)
		bytes = clamp(device_bytes / HALF_DIVISOR / wish->shard_cnt, HALF_MIN, HALF_MAX);
	return SUPER_BLOCKS + 2 * lp_bytes_to_blocks_up(LP_MAX(bytes, HALF_MIN));
}

static void plan_common(const struct lp_label_wish *wish, uint64_t bytes, unsigned device_idx,
			struct lp_disk_label *label)
{
	*label = (struct lp_disk_label){.version = LP_DISK_VERSION,
					.sequence = 1,
					.role = LP_DISK_ROLE_DATA + device_idx,
					.block_bytes = (uint32_t)LP_BLOCK_BYTES,
					.size_blocks = bytes >> LP_BLOCK_SHIFT,
					.shard_cnt = wish->shard_cnt,
					.created_ns = wish->created_ns};
	memcpy(label->device_uuid, wish->device_uuid[device_idx], LP_UUID_BYTES);
	memcpy(label->store_uuid, wish->store_uuid, LP_UUID_BYTES);
}

static uint32_t chunk_blocks(const struct lp_label_wish *wish, uint64_t size_blocks)
{
	if (wish->chunk_bytes != 0)
		return (uint32_t)(wish->chunk_bytes >> LP_BLOCK_SHIFT);
	uint32_t blocks = LPI_CHUNK_BLOCKS_MIN;
	while (blocks < LPI_CHUNK_BLOCKS_MAX && size_blocks / blocks >= 2 * CHUNKS_WANTED)
		blocks *= 2;
	return blocks;
}

static_assert(LP_DISK_CHUNKS_SIZE + LP_SPACE_CHUNKS_MAX * LP_DISK_CHUNK_SIZE + LP_BLOCK_BYTES <=
		      LP_BDEV_IO_MAX,
	      "a slot is read in one");

/* Where the regions begin, after the chunk table, whose place is settled here. */
static uint64_t plan_table(const struct lp_label_wish *wish, struct lp_disk_label *label)
{
	label->chunk_blocks = chunk_blocks(wish, label->size_blocks);
	uint64_t room = LP_MAX(label->size_blocks / label->chunk_blocks, 1) * LP_LABEL_GROWTH_MAX;
	room = LP_MIN(room, (uint64_t)LP_SPACE_CHUNKS_MAX);
	label->table_block = 1;
	label->table_slot_blocks =
		(uint32_t)lp_bytes_to_blocks_up(LP_DISK_CHUNKS_SIZE + room * LP_DISK_CHUNK_SIZE);
	return label->table_block + 2 * (uint64_t)label->table_slot_blocks;
}

static uint64_t plan_regions(struct lp_disk_label *label, uint64_t block, uint64_t log_cnt,
			     uint64_t files_cnt)
{
	for (uint32_t i = 0; i < label->shard_cnt && log_cnt + files_cnt != 0; i++) {
		label->region_block[i] = block;
		label->log_blocks[i] = (uint32_t)log_cnt;
		label->files_blocks[i] = (uint32_t)files_cnt;
		block += log_cnt + files_cnt;
	}
	return block;
}

static int too_small(const struct lp_disk_label *label, uint64_t min_blocks,
		     struct lp_label_why *why)
{
	uint64_t min_bytes = min_blocks * LP_BLOCK_BYTES;
	uint64_t min_mib = min_bytes / MIB + 1;
	lpi_label_say(why, "the %s device must have %llu bytes (%llu MiB) at least for %u shards",
		      lp_disk_role_name(label->role), (unsigned long long)min_bytes,
		      (unsigned long long)min_mib, label->shard_cnt);
	if (why != NULL)
		why->min_bytes = min_bytes;
	return -ENOSPC;
}

/* fixed_end: the first block behind the regions. */
static int plan_chunks(struct lp_disk_label *label, uint64_t fixed_end, struct lp_label_why *why)
{
	uint64_t base = lp_align_up(fixed_end, CHUNK_ALIGN);
	uint64_t least = LP_MAX(CHUNKS_MIN, CHUNKS_PER_SHARD_MIN * label->shard_cnt);
	uint64_t min_blocks = base + least * label->chunk_blocks + 1;
	if (label->size_blocks < min_blocks)
		return too_small(label, min_blocks, why);
	uint64_t cnt = (label->size_blocks - 1 - base) / label->chunk_blocks;
	label->chunk_base = base;
	label->chunk_cnt = (uint32_t)LP_MIN(cnt, lpi_label_chunks_max(label));
	return 0;
}

static int plan_data(const struct lp_label_wish *wish, struct lp_disk_label *label,
		     struct lp_label_why *why)
{
	plan_common(wish, wish->data_bytes, 0, label);
	uint64_t log_cnt = wish->wal_bytes == 0 ? log_blocks(wish, wish->data_bytes) : 0;
	uint64_t files_cnt = wish->db_bytes == 0 ? files_blocks(wish, wish->data_bytes) : 0;
	uint64_t end = plan_regions(label, plan_table(wish, label), log_cnt, files_cnt);
	if (wish->db_bytes != 0) {
		memcpy(label->db_uuid, wish->device_uuid[1], LP_UUID_BYTES);
		if (wish->db_path != NULL)
			memcpy(label->db_path, wish->db_path, strlen(wish->db_path));
	}
	if (wish->wal_bytes != 0) {
		memcpy(label->wal_uuid, wish->device_uuid[2], LP_UUID_BYTES);
		if (wish->wal_path != NULL)
			memcpy(label->wal_path, wish->wal_path, strlen(wish->wal_path));
	}
	return plan_chunks(label, end, why);
}

static int plan_db(const struct lp_label_wish *wish, struct lp_disk_label *label,
		   struct lp_label_why *why)
{
	plan_common(wish, wish->db_bytes, 1, label);
	uint64_t files_cnt = files_blocks(wish, wish->db_bytes);
	return plan_chunks(label, plan_regions(label, plan_table(wish, label), 0, files_cnt), why);
}

/* The logs have the default share of it, or what was asked for. */
static int plan_wal(const struct lp_label_wish *wish, struct lp_disk_label *label,
		    struct lp_label_why *why)
{
	plan_common(wish, wish->wal_bytes, 2, label);
	uint64_t log_cnt = log_blocks(wish, wish->wal_bytes);
	uint64_t end = plan_regions(label, 1, log_cnt, 0);
	return label->size_blocks < end + 1 ? too_small(label, end + 1, why) : 0;
}

int lp_label_make_plan(const struct lp_label_wish *wish, struct lp_label_plan *ret_plan,
		       struct lp_label_why *why)
{
	if (why != NULL)
		*why = (struct lp_label_why){.text = ""};
	struct lp_label_plan plan = {.data.role = 0};
	int err = check_wish(wish, why);
	if (err == 0)
		err = plan_data(wish, &plan.data, why);
	if (err == 0 && wish->db_bytes != 0)
		err = plan_db(wish, &plan.db, why);
	if (err == 0 && wish->wal_bytes != 0)
		err = plan_wal(wish, &plan.wal, why);
	if (err == 0)
		*ret_plan = plan;
	return err;
}
