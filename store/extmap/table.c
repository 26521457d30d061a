/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing, at most three quarters full. A map of one leaf has no
 * table. */
#include "store/extmap/table.h"

#include <errno.h>
#include <stdlib.h>

#define TABLE_BITS_MIN 2u
#define TABLE_BITS_MAX 27u

static void *malloc_alloc(void *arg, size_t bytes)
{
	(void)arg;
	return malloc(bytes);
}

static void malloc_free(void *arg, void *memory, size_t bytes)
{
	(void)arg;
	(void)bytes;
	free(memory);
}

const struct lp_extmap_mem lpi_extmap_malloc = {malloc_alloc, malloc_free, NULL};

void *lpi_extmap_alloc(struct lp_extmap *map, size_t bytes)
{
	void *memory = map->mem->alloc(map->mem->arg, bytes);
	if (memory != NULL)
		map->bytes += bytes;
	return memory;
}

void lpi_extmap_free(struct lp_extmap *map, void *memory, size_t bytes)
{
	LP_ASSERT(map->bytes >= bytes);
	map->bytes -= bytes;
	map->mem->free(map->mem->arg, memory, bytes);
}

static uint32_t slot_of(const struct lp_extmap *map, uint32_t idx)
{
	/* Fibonacci hashing: files are often mapped at some power-of-two stride. */
	return map->table_bits == 0 ? 0 : (idx * UINT32_C(0x9e3779b1)) >> (32 - map->table_bits);
}

uint32_t lpi_extmap_probe(struct lp_extmap *map, uint32_t idx)
{
	struct lpi_leaf **slots = lpi_extmap_slots(map);
	uint32_t mask = lpi_extmap_slots_cnt(map) - 1;
	uint32_t at = slot_of(map, idx);
	for (uint32_t n = 0; n <= mask; n++, at = (at + 1) & mask) {
		if (slots[at] == NULL || slots[at]->idx == idx)
			return at;
	}
	return LPI_NO_SLOT;
}

struct lpi_leaf *lpi_extmap_find(struct lp_extmap *map, uint32_t idx)
{
	uint32_t at = lpi_extmap_probe(map, idx);
	struct lpi_leaf *leaf = at == LPI_NO_SLOT ? NULL : lpi_extmap_slots(map)[at];
	if (leaf != NULL)
		leaf->is_used = true;
	return leaf;
}

static int table_resize(struct lp_extmap *map, uint32_t bits)
{
	struct lpi_leaf **old = lpi_extmap_slots(map);
	struct lpi_leaf *old_one = map->one;
	uint32_t old_cnt = lpi_extmap_slots_cnt(map);
	size_t old_bytes = map->table_bits == 0 ? 0 : old_cnt * sizeof(struct lpi_leaf *);
	size_t new_bytes = bits == 0 ? 0 : (sizeof(struct lpi_leaf *) << bits);
	struct lpi_leaf **table = bits == 0 ? NULL : lpi_extmap_alloc(map, new_bytes);
	if (bits != 0 && table == NULL)
		return -ENOMEM;
	if (bits != 0)
		memset(table, 0, new_bytes);
	if (old_bytes == 0)
		old = &old_one;
	map->table = table;
	map->table_bits = bits;
	map->one = NULL;
	map->hand = 0;
	for (uint32_t i = 0; i < old_cnt; i++) {
		if (old[i] == NULL)
			continue;
		uint32_t at = lpi_extmap_probe(map, old[i]->idx);
		LP_ASSERT(at != LPI_NO_SLOT);
		lpi_extmap_slots(map)[at] = old[i];
	}
	if (old_bytes != 0)
		lpi_extmap_free(map, old, old_bytes);
	return 0;
}

/* Room for one leaf more. */
static int table_grow(struct lp_extmap *map)
{
	uint64_t cnt = (uint64_t)map->objects_cnt + 1;
	if (cnt == 1 || (map->table_bits > 0 && cnt * 4 <= (uint64_t)lpi_extmap_slots_cnt(map) * 3))
		return 0;
	LP_ASSERT(map->table_bits < TABLE_BITS_MAX);
	return table_resize(map, map->table_bits == 0 ? TABLE_BITS_MIN : map->table_bits + 1);
}

void lpi_extmap_table_shrink(struct lp_extmap *map)
{
	uint32_t bits = map->table_bits;
	if (bits == 0)
		return;
	while (bits > TABLE_BITS_MIN && ((uint64_t)map->objects_cnt * 4) < (UINT64_C(1) << bits))
		bits--;
	if (map->objects_cnt == 0)
		bits = 0;
	if (bits == 0 || bits + 1 < map->table_bits)
		(void)table_resize(map, bits); /* -ENOMEM */
}

/* Leaves behind the hole that had been displaced over it move up, so that no probe stops early. */
void lpi_extmap_remove(struct lp_extmap *map, uint32_t slot)
{
	struct lpi_leaf **slots = lpi_extmap_slots(map);
	struct lpi_leaf *leaf = slots[slot];
	uint32_t mask = lpi_extmap_slots_cnt(map) - 1;
	uint32_t hole = slot;
	LP_ASSERT(leaf != NULL && !lpi_leaf_list_is_linked(leaf) && !leaf->is_owed);
	slots[hole] = NULL;
	for (uint32_t at = (hole + 1) & mask; slots[at] != NULL; at = (at + 1) & mask) {
		uint32_t distance = (at - slot_of(map, slots[at]->idx)) & mask;
		if (distance >= ((at - hole) & mask)) {
			slots[hole] = slots[at];
			slots[at] = NULL;
			hole = at;
		}
	}
	map->objects_cnt--;
	lpi_extmap_free(map, leaf, lpi_leaf_size(leaf));
}

/* 1, 2, 4, ..., 64: few sizes, and room for the next change. */
static uint32_t round_size(uint32_t cnt)
{
	uint32_t size = 1;
	while (size < cnt)
		size *= 2;
	LP_ASSERT(size <= LP_EXTMAP_LEAF_BLOCKS);
	return size;
}

static struct lpi_leaf *leaf_alloc(struct lp_extmap *map, uint32_t idx, uint32_t words_cnt,
				   uint32_t crcs_cnt)
{
	uint32_t words_max = round_size(words_cnt);
	uint32_t crcs_max = round_size(crcs_cnt);
	struct lpi_leaf *leaf = lpi_extmap_alloc(map, lpi_leaf_bytes(words_max, crcs_max));
	if (leaf != NULL)
		lpi_leaf_init(leaf, idx, words_max, crcs_max);
	return leaf;
}

struct lpi_leaf *lpi_extmap_leaf_new(struct lp_extmap *map, uint32_t idx, uint32_t words_cnt,
				     uint32_t crcs_cnt)
{
	if (table_grow(map) != 0)
		return NULL;
	struct lpi_leaf *leaf = leaf_alloc(map, idx, words_cnt, crcs_cnt);
	if (leaf == NULL)
		return NULL;
	uint32_t at = lpi_extmap_probe(map, idx);
	LP_ASSERT(at != LPI_NO_SLOT && lpi_extmap_slots(map)[at] == NULL);
	lpi_extmap_slots(map)[at] = leaf;
	map->objects_cnt++;
	leaf->is_used = true;
	return leaf;
}

int lpi_extmap_leaf_resize(struct lp_extmap *map, struct lpi_leaf *old, uint32_t words_cnt,
			   uint32_t crcs_cnt)
{
	struct lpi_leaf *leaf = leaf_alloc(map, old->idx, words_cnt, crcs_cnt);
	if (leaf == NULL)
		return -ENOMEM;
	lpi_leaf_copy(leaf, old);
	lpi_extmap_slots(map)[lpi_extmap_probe(map, old->idx)] = leaf;
	if (lpi_leaf_list_is_linked(old)) {
		lpi_leaf_list_insert_after(old, leaf);
		lpi_leaf_list_remove(old);
	}
	lpi_extmap_free(map, old, lpi_leaf_size(old));
	return 0;
}
