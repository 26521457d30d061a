/* SPDX-License-Identifier: Apache-2.0 */
/* A table of sets of four slots. A name is in the set that its hash chooses; a new one takes the
 * place of the one that came first. */
#include "namespace/state/dir_cache.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"

#define WAYS      4u
#define BYTES_MIN 4096u

struct slot {
	struct lp_ino dir; /* nr 0: nothing is here */
	struct lp_ino ino;
	uint8_t is_spread;
	uint8_t name_len;
	char name[LPI_DIRCACHE_NAME_MAX + 1];
};

struct set {
	struct slot slots[WAYS];
	uint32_t next; /* to be replaced */
};

struct lpi_dircache {
	struct set *sets;
	uint32_t mask;
	uint32_t frozen;
	uint64_t generation;
	uint64_t hits;
	uint64_t misses;
};

int lpi_dircache_new(uint64_t bytes, struct lpi_dircache **ret_cache)
{
	struct lpi_dircache *cache = calloc(1, sizeof(*cache));
	uint32_t sets = 1;
	if (cache == NULL)
		return -ENOMEM;
	bytes = LP_MAX(bytes, BYTES_MIN);
	while (sets < (UINT32_C(1) << 24) && 2 * (uint64_t)sets * sizeof(struct set) <= bytes)
		sets *= 2;
	cache->mask = sets - 1;
	cache->sets = calloc(sets, sizeof(*cache->sets));
	if (cache->sets == NULL) {
		free(cache);
		return -ENOMEM;
	}
	*ret_cache = cache;
	return 0;
}

void lpi_dircache_free(struct lpi_dircache *cache)
{
	if (cache == NULL)
		return;
	free(cache->sets);
	free(cache);
}

static struct set *set_of(struct lpi_dircache *cache, struct lp_ino dir, struct lp_bytes name)
{
	return &cache->sets[lp_hash_u64(name.data, name.len, dir.nr) & cache->mask];
}

static struct slot *find(struct lpi_dircache *cache, struct lp_ino dir, struct lp_bytes name)
{
	struct set *set = set_of(cache, dir, name);
	for (uint32_t i = 0; i < WAYS; i++) {
		struct slot *slot = &set->slots[i];
		if (slot->dir.nr == dir.nr && slot->name_len == name.len &&
		    memcmp(slot->name, name.data, name.len) == 0)
			return slot;
	}
	return NULL;
}

bool lpi_dircache_find(struct lpi_dircache *cache, struct lp_ino dir, struct lp_bytes name,
		       struct lpi_dirhit *ret)
{
	const struct slot *slot = find(cache, dir, name);
	if (slot == NULL) {
		cache->misses++;
		return false;
	}
	cache->hits++;
	*ret = (struct lpi_dirhit){.ino = slot->ino, .is_spread = slot->is_spread != 0};
	return true;
}

uint64_t lpi_dircache_generation(const struct lpi_dircache *cache)
{
	return cache->generation;
}

void lpi_dircache_add(struct lpi_dircache *cache, uint64_t generation, struct lp_ino dir,
		      struct lp_bytes name, struct lpi_dirhit hit)
{
	LP_ASSERT(dir.nr != 0 && hit.ino.nr != 0);
	if (name.len > LPI_DIRCACHE_NAME_MAX || generation != cache->generation ||
	    cache->frozen > 0)
		return;
	struct slot *slot = find(cache, dir, name);
	if (slot == NULL) {
		struct set *set = set_of(cache, dir, name);
		slot = &set->slots[set->next++ % WAYS];
	}
	*slot = (struct slot){.dir = dir,
			      .ino = hit.ino,
			      .is_spread = hit.is_spread,
			      .name_len = (uint8_t)name.len};
	memcpy(slot->name, name.data, name.len);
}

void lpi_dircache_forget(struct lpi_dircache *cache, struct lp_ino dir, struct lp_bytes name)
{
	struct slot *slot = find(cache, dir, name);
	if (slot != NULL)
		*slot = (struct slot){0};
}

void lpi_dircache_freeze(struct lpi_dircache *cache)
{
	cache->frozen++;
	cache->generation++;
}

void lpi_dircache_thaw(struct lpi_dircache *cache)
{
	LP_ASSERT(cache->frozen > 0);
	cache->frozen--;
	cache->generation++;
}

uint64_t lpi_dircache_hits(const struct lpi_dircache *cache)
{
	return cache->hits;
}

uint64_t lpi_dircache_misses(const struct lpi_dircache *cache)
{
	return cache->misses;
}
