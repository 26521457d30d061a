/* SPDX-License-Identifier: Apache-2.0 */
#include "store/device/fetch.h"

#include "base/crc32c.h"
#include "store/record/types.h"

bool lp_fetch_is_whole(const struct lp_fetch *fetch, const uint8_t *blocks)
{
	for (uint32_t i = 0; i < fetch->block_cnt; i++) {
		if (lp_crc32c(0, blocks + (size_t)i * LP_BLOCK_BYTES, LP_BLOCK_BYTES) !=
		    fetch->crcs[i])
			return false;
	}
	return true;
}
