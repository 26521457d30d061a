/* SPDX-License-Identifier: Apache-2.0 */
/* CRC-32C (Castagnoli): the checksum of everything on a device and on the wire.
 *
 * Threads: any.
 * Blocking, memory, errors: none. All lengths are in bytes and unlimited.
 *
 * The usual convention: the crc of nothing is 0, a crc may be carried on from piece to piece, and
 * crc32c("123456789") is 0xe3069283. Results are persisted and may never change. Because the crc is
 * linear, the crc of a whole follows from those of its parts without touching the data again.
 * Partial blocks are merged in this way (rule W2).
 */
#ifndef LP_BASE_CRC32C_H
#define LP_BASE_CRC32C_H

#include "base/compiler.h"

/* Carries `crc` (0 at the start) on over len bytes: lp_crc32c(lp_crc32c(0, a), b) is the crc of
 * a followed by b. buf may be NULL when len is 0. */
uint32_t lp_crc32c(uint32_t crc, const void *buf, size_t len);

/* The same for long input that is in no cache and is followed by more. While it computes, it
 * fetches the len bytes at `next` ahead, which are the next input. So memory that a device has just
 * filled is summed as fast as it can be read. The processor's own prefetching stops at each page.
 * next may be NULL, or any address: it is not accessed. */
uint32_t lp_crc32c_ahead(uint32_t crc, const void *buf, size_t len, const void *next);

/* The crc of A followed by B from the crcs of both, where B is len_b bytes long. Both
 * crcs may come from outside: a wrong one gives a wrong crc, nothing worse. A few tens of
 * nanoseconds at most, for any length. */
uint32_t lp_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

/* The crc after another len zero bytes, at the same cost: holes are never read. */
uint32_t lp_crc32c_zeros(uint32_t crc, uint64_t len);

/* The same results byte by byte and without special instructions, for tests to compare with. */
uint32_t lp_crc32c_table(uint32_t crc, const void *buf, size_t len);

/* lp_crc32c() for short input, and lp_crc32c_combine(), in the variants for a processor without the
 * instructions. They are declared so that tests reach them on every machine. */
uint32_t lpi_crc32c_short_portable(uint32_t crc, const void *buf, size_t len);
uint32_t lp_crc32c_combine_portable(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

#endif
