/* SPDX-License-Identifier: Apache-2.0 */
/* Small values of the index, encoded and decoded (docs/format/values.md).
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: encoding asserts what decoding checks. Decoding takes any bytes: -EBADMSG, -EUCLEAN by
 * lp_corrupt(), and *ret is untouched then.
 *
 * These are directory entries, fragments of directories, marks of unfinished work, the progress
 * of the check of all data, and the heads of deferred payloads. Counts of shared blocks are in
 * record/ref_counts.h. The structs are those of the format page. The functions set version,
 * reserved fields and crc; the caller leaves them 0. The crc binds a value to its key.
 */
#ifndef LP_STORE_RECORD_VALUES_H
#define LP_STORE_RECORD_VALUES_H

#include "format/values.h"
#include "store/record/keys.h"

#define LP_INSERTION_MAX (UINT64_C(1) << 56) /* numbers of insertions are below */

void lp_dirent_write(const struct lp_dirent_value *value, const struct lp_key *key,
		     uint8_t ret_bytes[LP_DIRENT_VALUE_SIZE]);
int lp_dirent_read(const void *bytes, size_t len, const struct lp_key *key,
		   struct lp_dirent_value *ret) LP_MUST_CHECK;

void lp_fragment_write(const struct lp_fragment_value *value, const struct lp_key *key,
		       uint8_t ret_bytes[LP_FRAGMENT_VALUE_SIZE]);
int lp_fragment_read(const void *bytes, size_t len, const struct lp_key *key,
		     struct lp_fragment_value *ret) LP_MUST_CHECK;
/* It is as good as none: it never had an entry or a time, and is not sealed. */
bool lp_fragment_says_nothing(const struct lp_fragment_value *value);

void lp_unfinished_write(const struct lp_unfinished_value *value, const struct lp_key *key,
			 uint8_t ret_bytes[LP_UNFINISHED_VALUE_SIZE]);
int lp_unfinished_read(const void *bytes, size_t len, const struct lp_key *key,
		       struct lp_unfinished_value *ret) LP_MUST_CHECK;
/* A good value of a kind that others than the store itself put: orphan, upload. Of bytes that are
 * no damage if it is none: nothing is recorded. */
bool lp_unfinished_is_mark(const void *bytes, size_t len, const struct lp_key *key);

void lp_scrub_write(const struct lp_scrub_value *value, const struct lp_key *key,
		    uint8_t ret_bytes[LP_SCRUB_VALUE_SIZE]);
int lp_scrub_read(const void *bytes, size_t len, const struct lp_key *key,
		  struct lp_scrub_value *ret) LP_MUST_CHECK;

/* An object that was found damaged; the key is `S damaged` with the inode's number. */
void lp_damaged_write(const struct lp_damaged_value *value, const struct lp_key *key,
		      uint8_t ret_bytes[LP_DAMAGED_VALUE_SIZE]);
int lp_damaged_read(const void *bytes, size_t len, const struct lp_key *key,
		    struct lp_damaged_value *ret) LP_MUST_CHECK;

#define LP_DEFERRED_RECORD_BYTES (LP_DEFERRED_VALUE_SIZE + LP_BLOCK_BYTES)
#define LP_DEVICE_BLOCKS_MAX     (UINT64_C(1) << 48) /* device blocks are below */

/* The head. The block, whose crc is the caller's to know, follows it. */
void lp_deferred_write(const struct lp_deferred_value *value, const struct lp_key *key,
		       uint8_t ret_bytes[LP_DEFERRED_VALUE_SIZE]);
/* Of a whole record; the block, too, is what its crc says. It begins behind the head. */
int lp_deferred_read(const void *bytes, size_t len, const struct lp_key *key,
		     struct lp_deferred_value *ret) LP_MUST_CHECK;

#endif
