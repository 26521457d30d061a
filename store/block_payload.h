/* SPDX-License-Identifier: Apache-2.0 */
/* The data that came with a write, block by block.
 *
 * Threads: the store's. Blocking, allocation: none.
 */
#ifndef LP_STORE_BLOCK_PAYLOAD_H
#define LP_STORE_BLOCK_PAYLOAD_H

#include "store/store_impl.h"

void lpi_payload_skip(struct lpi_seg_cursor *cursor, uint64_t bytes);
/* The next block, if it lies in one piece and aligned, as devices want it; moves on. False, and not
 * moved, if not. */
bool lpi_payload_block(struct lpi_seg_cursor *cursor, struct lp_seg *ret_seg);

#endif
