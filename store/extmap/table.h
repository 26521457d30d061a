/* SPDX-License-Identifier: Apache-2.0 */
/* Hash table of an extent map's leaves in memory: allocated, found by number, resized.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: of leaves and table; it keeps the account of both.
 * Errors: NULL or -ENOMEM when there is no memory, and nothing changed.
 *
 * extmap.c knows what a leaf means to the map: counts, runs, dirty or not.
 */
#ifndef LP_STORE_EXTMAP_TABLE_H
#define LP_STORE_EXTMAP_TABLE_H

#include "store/extmap/extmap.h"

#define LPI_NO_SLOT UINT32_MAX

extern const struct lp_extmap_mem lpi_extmap_malloc;

void *lpi_extmap_alloc(struct lp_extmap *map, size_t bytes);
void lpi_extmap_free(struct lp_extmap *map, void *memory, size_t bytes);

static inline size_t lpi_leaf_size(const struct lpi_leaf *leaf)
{
	return lpi_leaf_bytes(leaf->words_max, leaf->crcs_max);
}

/* The table, of which some slots are NULL. */
static inline struct lpi_leaf **lpi_extmap_slots(struct lp_extmap *map)
{
	return map->table_bits == 0 ? &map->one : map->table;
}

static inline uint32_t lpi_extmap_slots_cnt(const struct lp_extmap *map)
{
	return UINT32_C(1) << map->table_bits;
}

/* The slot of the leaf, or the empty one where it would go; LPI_NO_SLOT when all are taken. */
uint32_t lpi_extmap_probe(struct lp_extmap *map, uint32_t idx);
/* NULL when it is not in memory. Counts as a use. */
struct lpi_leaf *lpi_extmap_find(struct lp_extmap *map, uint32_t idx);

/* A leaf that maps nothing, put in the table. */
struct lpi_leaf *lpi_extmap_leaf_new(struct lp_extmap *map, uint32_t idx, uint32_t words_cnt,
				     uint32_t crcs_cnt);
/* The leaf moves to other memory, with room for at least so much, in table and dirty list. */
int lpi_extmap_leaf_resize(struct lp_extmap *map, struct lpi_leaf *old, uint32_t words_cnt,
			   uint32_t crcs_cnt);
/* Takes the leaf in a slot out of the table and frees it. It is not dirty. */
void lpi_extmap_remove(struct lp_extmap *map, uint32_t slot);
/* A table that has become far too large. When there is no memory it stays. */
void lpi_extmap_table_shrink(struct lp_extmap *map);

#endif
