/* SPDX-License-Identifier: Apache-2.0 */
/* The head that all small values of the index share: its crc binds a value to its key.
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: -EBADMSG, -EUCLEAN by lp_corrupt().
 *
 * docs/format/values.md has the bytes.
 */
#ifndef LP_STORE_RECORD_VALUE_HEAD_H
#define LP_STORE_RECORD_VALUE_HEAD_H

#include "format/values.h"
#include "store/record/keys.h"

#define LPI_VALUE_CRC_OFF   4u
#define LPI_VALUE_HEAD_SIZE 8u

/* Puts the crc into a value that is otherwise complete. The key is of this space. */
void lpi_value_seal(uint8_t *bytes, size_t len, const struct lp_key *key, enum lp_key_space space);
/* Checks crc and version. There is at least a head. */
int lpi_value_check(const uint8_t *bytes, size_t len, const struct lp_key *key,
		    enum lp_key_space space) LP_MUST_CHECK;
/* -EUCLEAN: the value under this key breaks the rule of that field. */
int lpi_value_bad(const struct lp_key *key, const char *fault) LP_MUST_CHECK;

#endif
