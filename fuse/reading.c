/* SPDX-License-Identifier: Apache-2.0 */
/* A handle is the table's number, the slot's and the slot's generation; a slot's state says whether
 * that generation is open, and whether a request has taken it. Closed slots go to a stack. Any
 * thread may push to it, and only the table's thread takes from it, always the whole stack, so
 * there is no ABA.
 *
 * Callers mostly ask for ranges one after the other, so the place of the last one is remembered.
 * The search for any other range starts at the beginning. */
#include "fuse/reading.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define IS_OPEN   UINT64_C(1)
#define IS_TAKEN  UINT64_C(2)
#define GEN_SHIFT 2u

#define SLOT_BITS 24u
#define SLOT_MASK ((UINT64_C(1) << SLOT_BITS) - 1)
#define HEAD      2u /* shard and length of a name */

#define INSERTION_MASK ((UINT64_C(1) << LPI_READING_INSERTION_BITS) - 1)

static_assert(LPI_READINGS_MAX <= SLOT_MASK, "a slot's number fits into a handle");
static_assert(LP_SHARDS_MAX <= UINT8_MAX, "a shard's number fits before a name");
static_assert(LPI_READING_OWN_BYTES >= 4 * HEAD + 3 * 255, "half of it is one range at least");
static_assert(((uint64_t)LPI_READING_RANGES_MAX << LPI_READING_INSERTION_BITS) - 1 < INT64_MAX,
	      "an offset is no negative one for the kernel");

/* --- The table -------------------------------------------------------------------------------- */

int lpi_readings_init(struct lpi_readings *readings)
{
	*readings = (struct lpi_readings){.owner_idx = 0};
	/* Unused pages take no memory. */
	readings->slots = calloc(LPI_READINGS_MAX, sizeof(*readings->slots));
	return readings->slots == NULL ? -ENOMEM : 0;
}

static void free_bounds(struct lpi_reading *reading)
{
	if (reading->bounds == reading->own || reading->bounds == NULL)
		return;
	atomic_fetch_sub(&reading->table->bytes, reading->bounds_bytes);
	free(reading->bounds);
	reading->bounds = NULL;
}

void lpi_readings_fini(struct lpi_readings *readings)
{
	for (uint32_t i = 0; i < readings->slots_used; i++)
		free_bounds(&readings->slots[i]);
	free(readings->slots);
	readings->slots = NULL;
}

static struct lpi_reading *get_slot(struct lpi_readings *readings)
{
	if (readings->free == NULL)
		readings->free = atomic_exchange(&readings->closed, NULL);
	struct lpi_reading *reading = readings->free;
	if (reading != NULL)
		readings->free = reading->next_free;
	else if (readings->slots_used < LPI_READINGS_MAX)
		reading = &readings->slots[readings->slots_used++];
	return reading;
}

static void begin(struct lpi_reading *reading)
{
	/* One range, which begins in the first fragment. */
	reading->bounds[0] = 0;
	reading->bounds[1] = 0;
	reading->used = HEAD;
	reading->first = 0;
	reading->cnt = 1;
	reading->is_whole = false;
	reading->seen_nr = 0;
	reading->seen_at = 0;
}

uint64_t lpi_readings_open(struct lpi_readings *readings, struct lp_ino dir)
{
	struct lpi_reading *reading = get_slot(readings);
	if (reading == NULL)
		return 0;
	uint64_t generation = (atomic_load(&reading->state) >> GEN_SHIFT) + 1;
	if (generation > UINT32_MAX)
		generation = 1;
	reading->table = readings;
	reading->dir = dir;
	reading->bounds = reading->own;
	reading->bounds_bytes = LPI_READING_OWN_BYTES;
	begin(reading);
	lpi_reading_rewind(reading);
	atomic_store(&reading->state, generation << GEN_SHIFT | IS_OPEN);
	uint64_t slot = (uint64_t)(reading - readings->slots);
	return generation << 32 | (uint64_t)readings->owner_idx << SLOT_BITS | slot;
}

uint32_t lpi_reading_owner(uint64_t handle)
{
	return (uint32_t)handle >> SLOT_BITS;
}

/* The slot, and its state when the handle is open and not taken. */
static struct lpi_reading *find(struct lpi_readings *readings, uint64_t handle, uint64_t *ret_state)
{
	uint64_t slot = handle & SLOT_MASK;
	if (slot >= LPI_READINGS_MAX || handle >> 32 == 0)
		return NULL;
	*ret_state = (handle >> 32) << GEN_SHIFT | IS_OPEN;
	return &readings->slots[slot];
}

struct lpi_reading *lpi_readings_take(struct lpi_readings *readings, uint64_t handle,
				      struct lp_ino dir)
{
	uint64_t state = 0;
	struct lpi_reading *reading = find(readings, handle, &state);
	if (reading == NULL ||
	    !atomic_compare_exchange_strong(&reading->state, &state, state | IS_TAKEN))
		return NULL;
	if (reading->dir.nr == dir.nr)
		return reading;
	lpi_reading_give_back(reading);
	return NULL;
}

void lpi_reading_give_back(struct lpi_reading *reading)
{
	uint64_t before = atomic_fetch_and(&reading->state, ~IS_TAKEN);
	LP_ASSERT((before & (IS_OPEN | IS_TAKEN)) == (IS_OPEN | IS_TAKEN));
}

void lpi_readings_close(struct lpi_readings *readings, uint64_t handle)
{
	uint64_t state = 0;
	struct lpi_reading *reading = find(readings, handle, &state);
	if (reading == NULL ||
	    !atomic_compare_exchange_strong(&reading->state, &state, state & ~IS_OPEN))
		return;
	free_bounds(reading);
	struct lpi_reading *head = atomic_load(&readings->closed);
	do {
		reading->next_free = head;
	} while (!atomic_compare_exchange_weak(&readings->closed, &head, reading));
}

/* --- Offsets ---------------------------------------------------------------------------------- */

void lpi_reading_rewind(struct lpi_reading *reading)
{
	if (reading->first > 0)
		begin(reading);
	memset(reading->before, 0, sizeof(reading->before));
	reading->end_offset = 0;
	reading->nr = 0;
	reading->behind = 0;
}

uint64_t lpi_reading_offset(const struct lpi_reading *reading, uint64_t insertion)
{
	LP_ASSERT(insertion <= INSERTION_MASK);
	return (uint64_t)reading->nr << LPI_READING_INSERTION_BITS | insertion;
}

int lpi_reading_seek(struct lpi_reading *reading, uint64_t offset)
{
	uint64_t nr = offset >> LPI_READING_INSERTION_BITS;
	bool is_open = nr + 1 == reading->cnt && !reading->is_whole;
	if (nr >= reading->cnt || (is_open && offset != 0))
		return -EINVAL;
	if (nr < reading->first)
		return -ENOENT;
	reading->nr = (uint32_t)nr;
	reading->behind = offset & INSERTION_MASK;
	return 0;
}

/* --- Ranges ----------------------------------------------------------------------------------- */

static uint32_t bytes_at(const struct lpi_reading *reading, uint32_t at)
{
	return HEAD + reading->bounds[at + 1];
}

static struct lp_bytes name_at(const struct lpi_reading *reading, uint32_t at)
{
	return (struct lp_bytes){reading->bounds + at + HEAD, reading->bounds[at + 1]};
}

bool lpi_reading_range(struct lpi_reading *reading, struct lpi_reading_range *ret)
{
	if (reading->nr >= reading->cnt)
		return false;
	LP_ASSERT(reading->nr >= reading->first);
	if (reading->seen_nr > reading->nr || reading->seen_nr < reading->first) {
		reading->seen_nr = reading->first;
		reading->seen_at = 0;
	}
	for (; reading->seen_nr < reading->nr; reading->seen_nr++)
		reading->seen_at += bytes_at(reading, reading->seen_at);
	uint32_t at = reading->seen_at;
	uint32_t next = at + bytes_at(reading, at);
	*ret = (struct lpi_reading_range){.shard_idx = reading->bounds[at],
					  .after = name_at(reading, at)};
	if (reading->nr + 1 == reading->cnt)
		ret->is_open = !reading->is_whole;
	else if (reading->bounds[next] == reading->bounds[at])
		ret->until = name_at(reading, next);
	return true;
}

void lpi_reading_learn_shard(struct lpi_reading *reading, uint32_t shard_idx)
{
	LP_ASSERT(reading->first == 0 && shard_idx < LP_SHARDS_MAX);
	LP_ASSERT(reading->cnt == 1 || reading->bounds[0] == shard_idx);
	reading->bounds[0] = (uint8_t)shard_idx;
}

/* Allocates more room for bounds. False: not possible. */
static bool grow(struct lpi_reading *reading)
{
	struct lpi_readings *table = reading->table;
	bool is_own = reading->bounds == reading->own;
	uint32_t bytes = 2 * reading->bounds_bytes;
	uint32_t more = is_own ? bytes : bytes - reading->bounds_bytes;
	if (bytes > LPI_READING_BYTES_MAX)
		return false;
	bool is_allowed = atomic_fetch_add(&table->bytes, more) + more <= LPI_READINGS_BYTES_MAX;
	uint8_t *bounds = is_allowed ? realloc(is_own ? NULL : reading->bounds, bytes) : NULL;
	if (bounds == NULL) {
		atomic_fetch_sub(&table->bytes, more);
		return false;
	}
	if (is_own)
		memcpy(bounds, reading->own, reading->used);
	reading->bounds = bounds;
	reading->bounds_bytes = bytes;
	return true;
}

/* Forgets the older half of the ranges. */
static void forget_oldest(struct lpi_reading *reading)
{
	uint32_t at = 0;
	while (reading->used - at > reading->bounds_bytes / 2) {
		at += bytes_at(reading, at);
		reading->first++;
	}
	reading->used -= at;
	memmove(reading->bounds, reading->bounds + at, reading->used);
	reading->seen_nr = reading->first;
	reading->seen_at = 0;
}

int lpi_reading_next_range(struct lpi_reading *reading, uint32_t shard_idx, struct lp_bytes after)
{
	uint32_t bytes = HEAD + after.len;
	LP_ASSERT(!reading->is_whole && after.len <= UINT8_MAX && shard_idx < LP_SHARDS_MAX);
	if (reading->cnt == LPI_READING_RANGES_MAX)
		return -EFBIG;
	if (reading->used + bytes > reading->bounds_bytes && !grow(reading))
		forget_oldest(reading);
	LP_ASSERT(reading->used + bytes <= reading->bounds_bytes);
	uint8_t *at = reading->bounds + reading->used;
	at[0] = (uint8_t)shard_idx;
	at[1] = (uint8_t)after.len;
	if (after.len > 0)
		memcpy(at + HEAD, after.data, after.len);
	reading->used += bytes;
	reading->cnt++;
	return 0;
}
