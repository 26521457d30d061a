/* SPDX-License-Identifier: Apache-2.0 */
/* A chained hash table whose entries belong to groups. Only the newest entry of a key is in the
 * table. A newer entry takes its place in the chain, so a look-up compares each key once. When the
 * newer entry's group goes first, the older entry is not brought back. This does not happen,
 * because groups are dropped in order, except in a shard that gives everything up. */
#include "store/commit/overlay.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

struct lp_overlay {
	uint64_t seed;
	uint64_t mask;
	uint64_t cnt; /* entries of all groups */
	struct lp_overlay_entry *buckets[];
};

int lp_overlay_new(uint32_t buckets, uint64_t seed, struct lp_overlay **ret_overlay)
{
	LP_ASSERT(lp_is_power_of_two(buckets));
	struct lp_overlay *overlay =
		calloc(1, sizeof(*overlay) + (size_t)buckets * sizeof(struct lp_overlay_entry *));
	if (overlay == NULL)
		return -ENOMEM;
	overlay->seed = seed;
	overlay->mask = buckets - 1;
	*ret_overlay = overlay;
	return 0;
}

void lp_overlay_free(struct lp_overlay *overlay)
{
	if (overlay == NULL)
		return;
	LP_ASSERT(overlay->cnt == 0);
	free(overlay);
}

/* The link that points to the key's entry, or to the NULL at the end of its chain. */
static struct lp_overlay_entry **find_link(struct lp_overlay *overlay, uint64_t hash,
					   const void *key, uint32_t key_len)
{
	struct lp_overlay_entry **link = &overlay->buckets[hash & overlay->mask];
	while (*link != NULL) {
		const struct lp_overlay_entry *entry = *link;
		if (entry->hash == hash && entry->key_len == key_len &&
		    memcmp(entry->key, key, key_len) == 0)
			break;
		link = &(*link)->next_in_bucket;
	}
	return link;
}

static void *copy_in(struct lp_arena *arena, const uint8_t *bytes, uint32_t len)
{
	void *copy = lp_arena_alloc(arena, len, 1);
	if (copy != NULL && len > 0)
		memcpy(copy, bytes, len);
	return copy;
}

int lp_overlay_put(struct lp_overlay *overlay, struct lp_overlay_group *group,
		   struct lp_arena *arena, const struct lp_overlay_entry *entry)
{
	struct lp_overlay_entry *copy = lp_arena_alloc(arena, sizeof(*copy), LP_ARENA_ALIGN);
	if (copy == NULL)
		return -ENOMEM;
	*copy = *entry;
	copy->key = copy_in(arena, entry->key, entry->key_len);
	if (entry->value != NULL)
		copy->value = copy_in(arena, entry->value, entry->value_len);
	if (copy->key == NULL || (entry->value != NULL && copy->value == NULL))
		return -ENOMEM;
	copy->hash = lp_hash_u64(entry->key, entry->key_len, overlay->seed);
	copy->is_newest = true;

	struct lp_overlay_entry **link = find_link(overlay, copy->hash, copy->key, copy->key_len);
	copy->next_in_bucket = NULL;
	if (*link != NULL) {
		copy->next_in_bucket = (*link)->next_in_bucket;
		(*link)->is_newest = false;
	}
	*link = copy;
	copy->next_in_group = group->entries;
	group->entries = copy;
	group->cnt++;
	overlay->cnt++;
	return 0;
}

enum lp_overlay_result lp_overlay_find(const struct lp_overlay *overlay, const void *key,
				       uint32_t key_len, const struct lp_overlay_entry **ret_entry)
{
	uint64_t hash = lp_hash_u64(key, key_len, overlay->seed);
	const struct lp_overlay_entry *entry = overlay->buckets[hash & overlay->mask];
	while (entry != NULL && (entry->hash != hash || entry->key_len != key_len ||
				 memcmp(entry->key, key, key_len) != 0))
		entry = entry->next_in_bucket;
	if (entry == NULL)
		return LP_OVERLAY_NONE;
	*ret_entry = entry;
	return entry->value == NULL ? LP_OVERLAY_DELETED : LP_OVERLAY_FOUND;
}

void lp_overlay_drop(struct lp_overlay *overlay, struct lp_overlay_group *group)
{
	struct lp_overlay_entry *entry = group->entries;
	while (entry != NULL) {
		if (entry->is_newest) {
			struct lp_overlay_entry **link =
				find_link(overlay, entry->hash, entry->key, entry->key_len);
			LP_ASSERT(*link == entry);
			*link = entry->next_in_bucket;
		}
		entry = entry->next_in_group;
	}
	LP_ASSERT(overlay->cnt >= group->cnt);
	overlay->cnt -= group->cnt;
	*group = (struct lp_overlay_group){0};
}

uint64_t lp_overlay_cnt(const struct lp_overlay *overlay)
{
	return overlay->cnt;
}
