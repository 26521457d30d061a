/* SPDX-License-Identifier: Apache-2.0 */
/* Limits that a store gives its log, by the size of its ring.
 *
 * Threads: any.
 * Blocking, allocation, errors: none.
 */
#ifndef LP_STORE_LOG_LIMITS_H
#define LP_STORE_LOG_LIMITS_H

#include "store/log/log.h"

/* A frame of 1 MiB holds the work of a busy turn; a quarter of it may be metadata. More frames in
 * flight than four gain nothing on any device we know, and widen the window in which a lost frame
 * cannot be told from a torn one (docs/format/log.md). */
#define LP_STORE_FRAME_BLOCKS  256u
#define LP_STORE_FLIGHT_FRAMES 4u
/* A start puts so many into the index again, at most (rule L6). Each takes two to five
 * microseconds, so they take a second or so; and half of them, at which the index is asked to
 * flush, are about what fills its largest memtable. */
#define LP_STORE_LOG_RECORDS (UINT32_C(1) << 19)

static inline struct lp_log_limits lp_log_limits_for(uint64_t ring_blocks)
{
	uint32_t frame_blocks = (uint32_t)LP_MIN(ring_blocks / 8, (uint64_t)LP_STORE_FRAME_BLOCKS);
	return (struct lp_log_limits){
		.flight_frames = LP_STORE_FLIGHT_FRAMES,
		.flight_blocks = LP_STORE_FLIGHT_FRAMES * frame_blocks,
		.frame_blocks = frame_blocks,
		.meta_blocks = frame_blocks / 4,
		.records_max = LP_STORE_LOG_RECORDS,
	};
}

#endif
