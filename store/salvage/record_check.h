/* SPDX-License-Identifier: Apache-2.0 */
/* Check of one record of an index by itself: its key, and the checksum in its value.
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: damage is recorded by lp_corrupt(), as decoders do.
 *
 * It is for records from where an index does not vouch for them: a damaged table, a frame of the
 * log that was mended. The key must be one of ours, and the value must be what its checksum says,
 * if it has one.
 *
 * Attributes (`A`, `O`), references of transactions (`T`) and values of a whole store (`S`) have
 * no checksum that the store could check. Of these only the key is checked, and the length.
 */
#ifndef LP_STORE_SALVAGE_RECORD_CHECK_H
#define LP_STORE_SALVAGE_RECORD_CHECK_H

#include "store/index/kv.h"
#include "store/record/keys.h"

/* The longest value of any record. */
#define LPI_RECORD_VALUE_MAX (UINT32_C(1) << 20)

bool lpi_record_is_right(struct lp_kv_bytes key, struct lp_kv_bytes value);

#endif
