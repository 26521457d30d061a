/* SPDX-License-Identifier: Apache-2.0 */
/* Readings: what the handle of an open directory remembers between calls (rule N4).
 *
 * Threads: a table belongs to one channel, which opens readings there. Any thread may take one
 *   while it serves a request, and close it. The kernel has one request at a time for each handle.
 *   A reading that is taken is not given to a second request.
 * Blocking: none.
 * Memory: names between ranges, up to limits; without memory the oldest are forgotten.
 * Limits: LPI_READINGS_MAX open at once in a table, LPI_READING_BYTES_MAX, LPI_READINGS_BYTES_MAX.
 *
 * With a reading, the cost of a call depends only on the entries that it returns. A call can go on
 * from any offset ever told, whatever entries were made or removed meanwhile.
 *   - As it goes along, a reading cuts the fragments of the directory into ranges of names, one
 *     answer long. A range keeps its place whatever happens to the names in it.
 *   - A range is told in the order of insertion, which for an entry never changes. So an offset is
 *     the number of a range and an insertion number.
 *   - Entries made after a fragment's reading began are not told. A name that is renamed ahead of
 *     the reader again and again would keep it busy for ever.
 *   - The names between ranges are kept up to a limit. Beyond it the oldest are dropped, and
 *     offsets in their ranges are unknown.
 */
#ifndef LP_FUSE_READING_H
#define LP_FUSE_READING_H

#include <stdatomic.h>

#include "store/store.h"

#define LPI_READINGS_MAX           4096u               /* open at once, of one table */
#define LPI_READING_BYTES_MAX      (UINT32_C(1) << 20) /* of names between ranges, of one reading */
#define LPI_READINGS_BYTES_MAX     (UINT64_C(16) << 20) /* the same of all of a table */
#define LPI_READING_OWN_BYTES      1024u                /* room for these names is always there */
#define LPI_READING_RANGES_MAX     ((UINT32_C(1) << 20) - 1)
#define LPI_READING_INSERTION_BITS 43u /* of an offset */

struct lpi_reading {
	/* The table's fields. */
	_Atomic uint64_t state;
	struct lpi_readings *table;
	struct lpi_reading *next_free;
	struct lp_ino dir;

	/* The beginnings of ranges. Each is a shard, the length of the name behind which the range
	 * begins, and that name. */
	uint8_t *bounds;
	uint32_t bounds_bytes; /* allocated bytes of bounds */
	uint32_t used;
	uint32_t first; /* the range whose beginning is the first in bounds */
	uint32_t cnt;   /* of ranges; unless is_whole, the last one has no end yet */
	bool is_whole;
	uint32_t seen_nr; /* a range whose place in bounds is known */
	uint32_t seen_at;
	uint64_t before[LP_SHARDS_MAX]; /* insertions from this one on are not told; 0: not known */
	uint64_t end_offset;            /* no entry is behind it; 0: not known */

	/* The position of the request that has taken the reading. */
	uint32_t nr;
	uint64_t behind;
	uint64_t told_offset; /* of the last entry */
	uint8_t own[LPI_READING_OWN_BYTES];
};

struct lpi_readings {
	struct lpi_reading *slots;
	uint32_t slots_used; /* slots before it have been open at least once */
	uint32_t owner_idx;
	struct lpi_reading *free;
	_Atomic(struct lpi_reading *) closed; /* closed by any thread; to be put on the free list */
	_Atomic uint64_t bytes;
};

/* -ENOMEM. The owner sets owner_idx, which is below 256, before the first open, because handles
 * contain it. */
int lpi_readings_init(struct lpi_readings *readings) LP_MUST_CHECK;
void lpi_readings_fini(struct lpi_readings *readings);

/* The handle of a directory that was opened; 0: no slot is free. On the table's thread. */
uint64_t lpi_readings_open(struct lpi_readings *readings, struct lp_ino dir);
/* The owner_idx that the handle contains. */
uint32_t lpi_reading_owner(uint64_t handle);
/* NULL: there is no such reading, or it is taken. */
struct lpi_reading *lpi_readings_take(struct lpi_readings *readings, uint64_t handle,
				      struct lp_ino dir);
void lpi_reading_give_back(struct lpi_reading *reading);
/* A reading that does not exist counts as closed. A reading that is taken stays for ever. */
void lpi_readings_close(struct lpi_readings *readings, uint64_t handle);

/* --- Calls for a reading that is taken ---------------------------------------------------------
 */

struct lpi_reading_range {
	uint32_t shard_idx;
	struct lp_bytes after; /* absent: from the beginning of the fragment */
	struct lp_bytes until; /* absent: to its end */
	bool is_open;          /* no entry of it has been told, and its end is not known */
};

/* Starts again with the entries that are there now. The ranges stay, and offsets in them stay
 * valid. */
void lpi_reading_rewind(struct lpi_reading *reading);
/* Sets nr and behind to an offset; 0 is the beginning. -ENOENT: the offset's place has been
 * forgotten. -EINVAL: it never was an offset. */
int lpi_reading_seek(struct lpi_reading *reading, uint64_t offset) LP_MUST_CHECK;
uint64_t lpi_reading_offset(const struct lpi_reading *reading, uint64_t insertion);
/* Range number nr. False: all ranges have been told. */
bool lpi_reading_range(struct lpi_reading *reading, struct lpi_reading_range *ret);
/* Sets the shard of the only fragment of a directory that is not spread. Only while there is one
 * range, which begins there. */
void lpi_reading_learn_shard(struct lpi_reading *reading, uint32_t shard_idx);
/* Ends the open range and begins another one, in a fragment of shard_idx behind the name. -EFBIG:
 * there are too many ranges. */
int lpi_reading_next_range(struct lpi_reading *reading, uint32_t shard_idx,
			   struct lp_bytes after) LP_MUST_CHECK;

#endif
