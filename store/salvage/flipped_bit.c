/* SPDX-License-Identifier: Apache-2.0 */
/* The crc is linear: what a flipped bit changes in it depends on the bit's place alone. From the
 * last byte backwards each place's change follows from the one behind it, by one more byte of
 * zeros. */
#include "store/salvage/flipped_bit.h"

#define POLYNOMIAL UINT32_C(0x82f63b78) /* reflected */

/* One byte of zeros behind it. */
static uint32_t advance(uint32_t change)
{
	for (unsigned i = 0; i < 8; i++)
		change = (change >> 1) ^ ((change & 1) != 0 ? POLYNOMIAL : 0);
	return change;
}

uint64_t lp_mend_find(size_t len, uint32_t found, uint32_t wanted)
{
	uint32_t advanced[256];
	uint32_t changes[8];
	if (found == wanted)
		return LP_MEND_NONE;
	for (uint32_t low = 0; low < LP_ARRAY_SIZE(advanced); low++)
		advanced[low] = advance(low);
	for (unsigned bit = 0; bit < 8; bit++)
		changes[bit] = advance(UINT32_C(1) << bit);
	for (size_t at = len; at > 0; at--) {
		for (unsigned bit = 0; bit < 8; bit++) {
			if ((found ^ changes[bit]) == wanted)
				return (at - 1) * UINT64_C(8) + bit;
			changes[bit] = changes[bit] >> 8 ^ advanced[changes[bit] & 0xff];
		}
	}
	return LP_MEND_NONE;
}
