/* SPDX-License-Identifier: Apache-2.0 */
/* What has gone is left among those remembered, and passed by; what comes is put among them. */
#include "store/extmap/ahead.h"

#include "store/extmap/table.h"

#define NO_LEAF   ((uint32_t)LP_EXTMAP_LEAVES_MAX)
#define SLOTS_FEW 64u /* to look through each time */

static bool maps_something(const struct lpi_leaf *leaf)
{
	return leaf != NULL && leaf->words_cnt > 0;
}

static uint32_t look_through(struct lp_extmap *map, uint32_t idx)
{
	uint32_t best = NO_LEAF;
	for (uint32_t i = 0; i < lpi_extmap_slots_cnt(map); i++) {
		const struct lpi_leaf *leaf = lpi_extmap_slots(map)[i];
		if (maps_something(leaf) && leaf->idx >= idx)
			best = LP_MIN(best, leaf->idx);
	}
	return best;
}

/* The place of the first that is not less. */
static uint32_t place_of(const struct lpi_ahead *ahead, uint32_t idx)
{
	uint32_t low = 0;
	uint32_t high = ahead->cnt;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (ahead->items[middle] < idx)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void remember(struct lpi_ahead *ahead, uint32_t idx)
{
	if (idx < ahead->first || idx >= ahead->end)
		return;
	uint32_t at = place_of(ahead, idx);
	if (at < ahead->cnt && ahead->items[at] == idx)
		return;
	/* One too many: the last is known no more, nor what lies behind it. */
	if (ahead->cnt == LPI_AHEAD_MAX) {
		ahead->end = at == LPI_AHEAD_MAX ? idx : ahead->items[--ahead->cnt];
		if (at == LPI_AHEAD_MAX)
			return;
	}
	memmove(&ahead->items[at + 1], &ahead->items[at],
		(ahead->cnt - at) * sizeof(ahead->items[0]));
	ahead->items[at] = idx;
	ahead->cnt++;
}

static void look_ahead(struct lp_extmap *map, uint32_t idx)
{
	struct lpi_ahead *ahead = map->ahead;
	ahead->first = idx;
	ahead->end = NO_LEAF;
	ahead->cnt = 0;
	ahead->looks++;
	for (uint32_t i = 0; i < lpi_extmap_slots_cnt(map); i++) {
		const struct lpi_leaf *leaf = lpi_extmap_slots(map)[i];
		if (maps_something(leaf))
			remember(ahead, leaf->idx);
	}
}

static bool has_memory(struct lp_extmap *map)
{
	if (map->ahead != NULL)
		return true;
	map->ahead = lpi_extmap_alloc(map, sizeof(*map->ahead));
	if (map->ahead == NULL)
		return false;
	*map->ahead = (struct lpi_ahead){.first = NO_LEAF, .end = NO_LEAF};
	return true;
}

uint32_t lpi_ahead_next(struct lp_extmap *map, uint32_t idx)
{
	if (lpi_extmap_slots_cnt(map) <= SLOTS_FEW || !has_memory(map))
		return look_through(map, idx);
	struct lpi_ahead *ahead = map->ahead;
	for (uint32_t from = idx; from < NO_LEAF; from = ahead->end) {
		if (from < ahead->first || from >= ahead->end)
			look_ahead(map, from);
		ahead->first = LP_MIN(ahead->first, idx); /* in between nothing is left */
		for (uint32_t at = place_of(ahead, from); at < ahead->cnt; at++) {
			if (maps_something(lpi_extmap_find(map, ahead->items[at])))
				return ahead->items[at];
		}
	}
	return NO_LEAF;
}

void lpi_ahead_came(struct lp_extmap *map, uint32_t idx)
{
	if (map->ahead != NULL)
		remember(map->ahead, idx);
}

void lpi_ahead_free(struct lp_extmap *map)
{
	if (map->ahead != NULL)
		lpi_extmap_free(map, map->ahead, sizeof(*map->ahead));
	map->ahead = NULL;
}
