/* SPDX-License-Identifier: Apache-2.0 */
/* Look-ahead over an extent map's leaves in memory: which mapped leaf comes next.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: the map's, and counted there. Without memory each question is a look through the whole
 * table.
 * Errors: none.
 * Limits: LPI_AHEAD_MAX leaves are remembered.
 *
 * The table of leaves is a hash, so finding the next leaf takes a look through all of it. A very
 * sparse file can have some hundred thousand leaves that no run names. A seek in it, or a trim,
 * asks for the next leaf again and again. So one look through the table remembers the next
 * LPI_AHEAD_MAX leaves, in order.
 */
#ifndef LP_STORE_EXTMAP_AHEAD_H
#define LP_STORE_EXTMAP_AHEAD_H

#include "store/extmap/extmap.h"

/* A look takes some milliseconds where the table has several hundred thousand leaves: with 256,
 * looks were a third of all that a copy of such a file took. */
#define LPI_AHEAD_MAX 4096u

struct lpi_ahead {
	uint32_t first; /* leaves n, first <= n < end: each that maps something is remembered */
	uint32_t end;
	uint32_t cnt;
	uint32_t looks;                /* through the table, since there is this */
	uint32_t items[LPI_AHEAD_MAX]; /* sorted; some may have gone since */
};

/* The first leaf from idx on that is in memory and maps something; LP_EXTMAP_LEAVES_MAX: none. */
uint32_t lpi_ahead_next(struct lp_extmap *map, uint32_t idx);
/* A leaf that has come into memory, or now maps something. */
void lpi_ahead_came(struct lp_extmap *map, uint32_t idx);
void lpi_ahead_free(struct lp_extmap *map);

#endif
