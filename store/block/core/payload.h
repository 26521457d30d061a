/* SPDX-License-Identifier: Apache-2.0 */
/* Data that came with a write, block by block.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: none is allocated.
 */
#ifndef LP_STORE_BLOCK_CORE_PAYLOAD_H
#define LP_STORE_BLOCK_CORE_PAYLOAD_H

#include "store/store_kinds.h"

void lpi_payload_skip(struct lpi_seg_cursor *cursor, uint64_t bytes);
/* The next blocks, up to `max`, as far as they are contiguous and aligned for devices; advances,
 * and returns how many. 0, without advancing, when the first block is not. */
uint64_t lpi_payload_run(struct lpi_seg_cursor *cursor, uint64_t max, struct lp_seg *ret_seg);

#endif
