/* SPDX-License-Identifier: Apache-2.0 */
/* Readings: what an open directory's handle remembers of how it was read (rule N4).
 *
 * Threads: a table belongs to one channel, which opens readings there. Any thread may take one
 *   while it serves a request, and close it. The kernel has one request at a time for each handle.
 *   A reading that is taken is not given to a second request.
 * Blocking: none.
 * Memory: names between ranges, up to limits; without memory the oldest are forgotten.
 * Limits: LPI_READINGS_MAX open at once in a table, LPI_READING_BYTES_MAX, LPI_READINGS_BYTES_MAX.
 *
 * With a reading, a call costs what it returns, and can go on from any offset ever told, whatever
 * was made or removed meanwhile.
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
#define LPI_READING_OWN_BYTES      1024u                /* of those there is always room */
#define LPI_READING_RANGES_MAX     ((UINT32_C(1) << 20) - 1)
#define LPI_READING_INSERTION_BITS 43u /* of an offset */

struct lpi_reading {
	/* The table's. */
	_Atomic uint64_t state;
	struct lpi_readings *table;
	struct lpi_reading *next_free;
	struct lp_ino dir;

	/* The beginnings of ranges, each: shard, length of the name behind which it begins, that
	 * name. */
	uint8_t *bounds;
	uint32_t bounds_bytes; /* that there is room for */
	uint32_t used;
	uint32_t first; /* range whose beginning is the first in bounds */
	uint32_t cnt;   /* of ranges; but for a whole reading the last has no end yet */
	bool is_whole;
	uint32_t seen_nr; /* a range whose place in bounds is known */
	uint32_t seen_at;
	uint64_t before[LP_SHARDS_MAX]; /* insertions from this one on are not told; 0: not known */
	uint64_t end_offset;            /* nothing is behind it; 0: not known */

	/* Where the request that has taken it is. */
	uint32_t nr;
	uint64_t behind;
	uint64_t told_offset; /* of the last entry */
	uint8_t own[LPI_READING_OWN_BYTES];
};

struct lpi_readings {
	struct lpi_reading *slots;
	uint32_t slots_used; /* those before it have been open once */
	uint32_t owner_idx;
	struct lpi_reading *free;
	_Atomic(struct lpi_reading *) closed; /* by any thread: to become free */
	_Atomic uint64_t bytes;
};

/* -ENOMEM. Its owner sets owner_idx, which is below 256, before the first open: handles say it. */
int lpi_readings_init(struct lpi_readings *readings) LP_MUST_CHECK;
void lpi_readings_fini(struct lpi_readings *readings);

/* The handle of a directory that was opened; 0: there is none left. On the table's thread. */
uint64_t lpi_readings_open(struct lpi_readings *readings, struct lp_ino dir);
/* Whose table a handle says that it is of. */
uint32_t lpi_reading_owner(uint64_t handle);
/* NULL: there is no such, or it is taken. */
struct lpi_reading *lpi_readings_take(struct lpi_readings *readings, uint64_t handle,
				      struct lp_ino dir);
void lpi_reading_give_back(struct lpi_reading *reading);
/* One that does not exist is as good as closed; one that is taken stays for ever. */
void lpi_readings_close(struct lpi_readings *readings, uint64_t handle);

/* --- Of one that is taken --------------------------------------------------------------------- */

struct lpi_reading_range {
	uint32_t shard_idx;
	struct lp_bytes after; /* absent: from the beginning of the fragment */
	struct lp_bytes until; /* absent: to its end */
	bool is_open;          /* nothing of it has been told, nor is its end known */
};

/* From the beginning: what is there now. The ranges stay, and so do offsets in them. */
void lpi_reading_rewind(struct lpi_reading *reading);
/* Sets nr and behind to an offset, of 0 the beginning. -ENOENT: its place has been forgotten;
 * -EINVAL: it never was one. */
int lpi_reading_seek(struct lpi_reading *reading, uint64_t offset) LP_MUST_CHECK;
uint64_t lpi_reading_offset(const struct lpi_reading *reading, uint64_t insertion);
/* The range nr. False: all have been told. */
bool lpi_reading_range(struct lpi_reading *reading, struct lpi_reading_range *ret);
/* Which shard the only fragment of a directory is on that is not spread: while there is one range
 * only, which begins there. */
void lpi_reading_learn_shard(struct lpi_reading *reading, uint32_t shard_idx);
/* The open range ends here: another one begins, in a fragment of shard_idx behind the name. -EFBIG:
 * there are too many. */
int lpi_reading_next_range(struct lpi_reading *reading, uint32_t shard_idx,
			   struct lp_bytes after) LP_MUST_CHECK;

#endif
