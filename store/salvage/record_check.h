/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a record of an index can be believed by itself: its key is one of ours, and its value is
 * what the checksum in it says, for the values that have one. For who has records from where an
 * index does not vouch for them (a damaged table, a frame of the log that was mended).
 *
 * Attributes (`A`, `O`), references of transactions (`T`) and what is kept for a whole store (`S`)
 * have no checksum that the store could check: of these only the key is checked, and the length.
 *
 * Threads: any. Blocking, allocation: none. Damage is recorded by lp_corrupt(), as decoders do.
 */
#ifndef LP_STORE_SALVAGE_RECORD_CHECK_H
#define LP_STORE_SALVAGE_RECORD_CHECK_H

#include "store/index/kv.h"
#include "store/record/keys.h"

/* The longest value of any record. */
#define LPI_RECORD_VALUE_MAX (UINT32_C(1) << 20)

bool lpi_record_is_right(struct lp_kv_bytes key, struct lp_kv_bytes value);

#endif
