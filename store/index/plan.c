/* SPDX-License-Identifier: Apache-2.0 */
/* What kv says a flush and a compaction take is a number of memtables. To that comes a third: so
 * much may be on its way into tables when growth ends, and still a compaction has its room. */
#include "store/index/plan.h"

#include "base/assert.h"
#include "store/index/kv.h"
#include "store/log/limits.h"

#define BUFFER_MIN   (UINT64_C(64) << 10)
#define BUFFER_MAX   (UINT64_C(64) << 20)
#define BUFFER_ALIGN (UINT64_C(64) << 10)
#define MEMORY_SHARE 12u /* five memtables, at most: two fifths of the budget */
/* A memtable is full when it is beyond its size: by one batch, at most. */
#define BATCH_MAX (LP_STORE_FRAME_BLOCKS / 4 * LP_BLOCK_BYTES)

static uint64_t reserve_of(uint64_t buffer_bytes)
{
	const struct lp_kv_options options = {.write_buffer_bytes = buffer_bytes + BATCH_MAX};
	return lp_kv_reserve_bytes(&options) / 3 * 4;
}

/* The largest buffer whose reserve is within the share: it is proportional to buffer and batch. */
static uint64_t buffer_for(uint64_t share_bytes)
{
	uint64_t all = share_bytes / (reserve_of(0) / BATCH_MAX + 1);
	return all > BATCH_MAX ? all - BATCH_MAX : 0;
}

void lp_index_make_plan(const struct lp_index_wish *wish, struct lp_index_plan *ret_plan)
{
	LP_ASSERT(wish->shard_cnt > 0);
	uint64_t memory = wish->memory_bytes != 0 ? wish->memory_bytes : LP_INDEX_MEMORY_DEFAULT;
	uint64_t share = wish->device_bytes / wish->shard_cnt / LP_INDEX_RESERVE_SHARE;
	uint64_t buffer = wish->buffer_bytes;
	if (buffer == 0) {
		buffer = LP_MIN(LP_MIN(buffer_for(share), memory / MEMORY_SHARE), BUFFER_MAX);
		buffer = LP_MAX(buffer & ~(BUFFER_ALIGN - 1), BUFFER_MIN);
	}
	uint64_t reserve = wish->reserve_bytes != 0 ? wish->reserve_bytes : reserve_of(buffer);
	*ret_plan = (struct lp_index_plan){.buffer_bytes = buffer,
					   .reserve_bytes = reserve,
					   .grow_bytes = reserve / 4 * 3,
					   .rewrite_bytes = reserve / 8 * 3};
}
