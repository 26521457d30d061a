/* SPDX-License-Identifier: Apache-2.0 */
/* The upper bits of a hash are its slot, so a table can be doubled without the names. */
#include "store/nodes/name_filter.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"

#define BITS_MIN 4u
#define BITS_MAX 28u
#define MOVES                                                                                      \
	8u /* slots of the old table for each addition: it is empty long before the next growth */

struct table {
	uint32_t *slots; /* hashes; 0: free */
	uint32_t bits;
	uint32_t cnt;
};

struct lp_names {
	uint64_t seed;
	struct table table;
	struct table old; /* the table that hashes are moved out of; slots NULL: none */
	uint32_t moved;   /* slots of it that are done */
};

static uint32_t hash_of(const struct lp_names *names, const void *name, size_t len)
{
	uint32_t hash = (uint32_t)(lp_hash_u64(name, len, names->seed) >> 32);
	return hash != 0 ? hash : 1;
}

/* The slot of the hash, or a free slot where it would be. */
static uint32_t *find(const struct table *table, uint32_t hash)
{
	uint32_t mask = (UINT32_C(1) << table->bits) - 1;
	uint32_t at = hash >> (32 - table->bits);
	while (table->slots[at] != 0 && table->slots[at] != hash)
		at = (at + 1) & mask;
	return &table->slots[at];
}

static void put(struct table *table, uint32_t hash)
{
	uint32_t *slot = find(table, hash);
	table->cnt += *slot == 0;
	*slot = hash;
}

static bool make(struct table *table, uint32_t bits)
{
	*table = (struct table){
		.slots = calloc(UINT64_C(1) << bits, sizeof(*table->slots)),
		.bits = bits,
	};
	return table->slots != NULL;
}

struct lp_names *lp_names_new(uint64_t seed)
{
	struct lp_names *names = calloc(1, sizeof(*names));
	if (names == NULL)
		return NULL;
	names->seed = seed;
	if (make(&names->table, BITS_MIN))
		return names;
	free(names);
	return NULL;
}

void lp_names_free(struct lp_names *names)
{
	if (names == NULL)
		return;
	free(names->old.slots);
	free(names->table.slots);
	free(names);
}

static void move_some(struct lp_names *names)
{
	struct table *old = &names->old;
	if (old->slots == NULL)
		return;
	uint32_t end = UINT32_C(1) << old->bits;
	for (uint32_t i = 0; i < MOVES && names->moved < end; i++) {
		uint32_t hash = old->slots[names->moved++];
		if (hash != 0)
			put(&names->table, hash);
	}
	if (names->moved < end)
		return;
	free(old->slots);
	*old = (struct table){.slots = NULL};
}

static bool grow(struct lp_names *names)
{
	struct table larger;
	LP_ASSERT(names->old.slots == NULL);
	if (names->table.bits == BITS_MAX || !make(&larger, names->table.bits + 1))
		return false;
	names->old = names->table;
	names->table = larger;
	names->moved = 0;
	return true;
}

bool lp_names_add(struct lp_names *names, const void *name, size_t len)
{
	uint64_t slots = UINT64_C(1) << names->table.bits;
	if (names->table.cnt >= slots / 4 * 3 && !grow(names))
		return false;
	put(&names->table, hash_of(names, name, len));
	move_some(names);
	return true;
}

bool lp_names_may_have(const struct lp_names *names, const void *name, size_t len)
{
	uint32_t hash = hash_of(names, name, len);
	return *find(&names->table, hash) != 0 ||
	       (names->old.slots != NULL && *find(&names->old, hash) != 0);
}

uint64_t lp_names_bytes(const struct lp_names *names)
{
	uint64_t bytes = sizeof(*names) + (sizeof(uint32_t) << names->table.bits);
	return names->old.slots == NULL ? bytes : bytes + (sizeof(uint32_t) << names->old.bits);
}
