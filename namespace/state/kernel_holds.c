/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing with linear probing, in pieces chosen by the hash, so no growth keeps the thread
 * for long. A removed entry's place is filled by the entries behind it, so there are no tombstones.
 *
 * For other threads there are marks: how many of the inodes that are counted fall on each of them.
 * They need no memory order of their own: adding and asking are ordered by the messages between the
 * threads, as the header says. */
#include "namespace/state/kernel_holds.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define PIECES      256u
#define PIECE_SHIFT 56u /* of the hash: the rest finds the slot */
#define SLOTS_MIN   8u

struct slot {
	uint64_t nr; /* of the inode; 0: empty */
	uint64_t count;
};

struct piece {
	struct slot *slots; /* NULL: none yet */
	uint32_t slot_cnt;  /* a power of two */
	uint32_t used;
};

struct lpi_held {
	struct piece pieces[PIECES];
	/* Where lpi_held_some() goes on. */
	uint32_t hand_piece;
	uint32_t hand_slot;
	struct lpi_held_stats stats;
	_Atomic bool has_missed; /* an inode was not counted: since then the table is incomplete */
	_Atomic uint32_t marks[LPI_HELD_MARKS];
};

int lpi_held_new(struct lpi_held **ret_held)
{
	struct lpi_held *held = calloc(1, sizeof(*held));
	if (held == NULL)
		return -ENOMEM;
	*ret_held = held;
	return 0;
}

void lpi_held_free(struct lpi_held *held)
{
	if (held == NULL)
		return;
	lpi_held_clear(held);
	free(held);
}

static uint64_t hash_of(uint64_t nr)
{
	uint64_t hash = nr * UINT64_C(0x9e3779b97f4a7c15);
	return hash ^ (hash >> 32);
}

static uint32_t mark_of(uint64_t nr)
{
	return (uint32_t)(hash_of(nr) >> 24) & (LPI_HELD_MARKS - 1);
}

static struct piece *piece_of(struct lpi_held *held, uint64_t hash)
{
	return &held->pieces[hash >> PIECE_SHIFT];
}

/* The inode's slot, or the empty one where it would be. The piece has an empty one. */
static struct slot *find(const struct piece *piece, uint64_t nr)
{
	uint32_t mask = piece->slot_cnt - 1;
	uint32_t at = (uint32_t)hash_of(nr) & mask;
	while (piece->slots[at].nr != 0 && piece->slots[at].nr != nr)
		at = (at + 1) & mask;
	return &piece->slots[at];
}

/* False: there is no memory, and nothing has changed. */
static bool resize(struct lpi_held *held, struct piece *piece, uint32_t slot_cnt)
{
	struct piece bigger = {.slot_cnt = slot_cnt, .used = piece->used};
	LP_ASSERT(piece->used < slot_cnt);
	bigger.slots = calloc(slot_cnt, sizeof(struct slot));
	if (bigger.slots == NULL)
		return false;
	for (uint32_t i = 0; i < piece->slot_cnt; i++) {
		if (piece->slots[i].nr != 0)
			*find(&bigger, piece->slots[i].nr) = piece->slots[i];
	}
	held->stats.bytes += ((uint64_t)slot_cnt - piece->slot_cnt) * sizeof(struct slot);
	free(piece->slots);
	*piece = bigger;
	return true;
}

/* At most three quarters are used, so that a search is short. */
static bool has_room(struct lpi_held *held, struct piece *piece)
{
	if (piece->slot_cnt == 0)
		return resize(held, piece, SLOTS_MIN);
	if (piece->used < piece->slot_cnt - piece->slot_cnt / 4)
		return true;
	return resize(held, piece, 2 * piece->slot_cnt) || piece->used < piece->slot_cnt - 1;
}

void lpi_held_miss(struct lpi_held *held)
{
	held->stats.uncounted++;
	atomic_store_explicit(&held->has_missed, true, memory_order_relaxed);
}

void lpi_held_add(struct lpi_held *held, struct lp_ino ino)
{
	struct piece *piece = piece_of(held, hash_of(ino.nr));
	LP_ASSERT(ino.nr != 0);
	if (!has_room(held, piece)) {
		lpi_held_miss(held);
		return;
	}
	struct slot *slot = find(piece, ino.nr);
	if (slot->nr == 0) {
		piece->used++;
		held->stats.inodes++;
		slot->nr = ino.nr;
		(void)atomic_fetch_add_explicit(&held->marks[mark_of(ino.nr)], 1,
						memory_order_relaxed);
	}
	slot->count++;
}

/* Moves the entries behind it, up to the next empty slot, closer to their own slots. */
static void take_out(struct piece *piece, struct slot *slot)
{
	uint32_t mask = piece->slot_cnt - 1;
	uint32_t hole = (uint32_t)(slot - piece->slots);
	for (uint32_t at = (hole + 1) & mask; piece->slots[at].nr != 0; at = (at + 1) & mask) {
		uint32_t wanted = (uint32_t)hash_of(piece->slots[at].nr) & mask;
		if (((at - wanted) & mask) < ((at - hole) & mask))
			continue;
		piece->slots[hole] = piece->slots[at];
		hole = at;
	}
	piece->slots[hole] = (struct slot){0};
	piece->used--;
}

bool lpi_held_drop(struct lpi_held *held, struct lp_ino ino, uint64_t count)
{
	struct piece *piece = piece_of(held, hash_of(ino.nr));
	struct slot *slot = piece->slot_cnt == 0 ? NULL : find(piece, ino.nr);
	if (slot == NULL || slot->nr == 0 || slot->count < count)
		held->stats.unbalanced++;
	if (slot == NULL || slot->nr == 0)
		return false;
	if (slot->count > count) {
		slot->count -= count;
		return false;
	}
	take_out(piece, slot);
	held->stats.inodes--;
	(void)atomic_fetch_sub_explicit(&held->marks[mark_of(ino.nr)], 1, memory_order_relaxed);
	/* Without memory for a smaller table it stays as it is. */
	if (piece->slot_cnt > SLOTS_MIN && piece->used < piece->slot_cnt / 8)
		(void)resize(held, piece, piece->slot_cnt / 4);
	return true;
}

uint64_t lpi_held_cnt(const struct lpi_held *held, struct lp_ino ino)
{
	const struct piece *piece = &held->pieces[hash_of(ino.nr) >> PIECE_SHIFT];
	return piece->slot_cnt == 0 ? 0 : find(piece, ino.nr)->count;
}

bool lpi_held_is(const struct lpi_held *held, struct lp_ino ino)
{
	return lpi_held_cnt(held, ino) > 0 ||
	       atomic_load_explicit(&held->has_missed, memory_order_relaxed);
}

bool lpi_held_may(const struct lpi_held *held, struct lp_ino ino)
{
	return atomic_load_explicit(&held->marks[mark_of(ino.nr)], memory_order_relaxed) > 0 ||
	       atomic_load_explicit(&held->has_missed, memory_order_relaxed);
}

uint32_t lpi_held_some(struct lpi_held *held, struct lp_ino *ret_inos, uint32_t inos_max)
{
	uint32_t cnt = 0;
	/* At most once around, and one piece's beginning again. */
	for (uint32_t pieces = 0; pieces <= PIECES && cnt < inos_max; pieces++) {
		const struct piece *piece = &held->pieces[held->hand_piece];
		for (; held->hand_slot < piece->slot_cnt && cnt < inos_max; held->hand_slot++) {
			if (piece->slots[held->hand_slot].nr != 0)
				ret_inos[cnt++].nr = piece->slots[held->hand_slot].nr;
		}
		if (held->hand_slot >= piece->slot_cnt) {
			held->hand_piece = (held->hand_piece + 1) % PIECES;
			held->hand_slot = 0;
		}
	}
	return cnt;
}

void lpi_held_clear(struct lpi_held *held)
{
	for (uint32_t i = 0; i < PIECES; i++)
		free(held->pieces[i].slots);
	memset(held->pieces, 0, sizeof(held->pieces));
	for (uint32_t i = 0; i < LPI_HELD_MARKS && held->stats.inodes > 0; i++)
		atomic_store_explicit(&held->marks[i], 0, memory_order_relaxed);
	atomic_store_explicit(&held->has_missed, false, memory_order_relaxed);
	held->stats.inodes = 0;
	held->stats.bytes = 0;
}

void lpi_held_read_stats(const struct lpi_held *held, struct lpi_held_stats *ret_stats)
{
	*ret_stats = held->stats;
	ret_stats->bytes += sizeof(*held);
}
