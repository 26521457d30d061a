/* SPDX-License-Identifier: Apache-2.0 */
/* Open addressing, never more than three quarters full. */
#include "store/check/inode_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PLACES_MIN   UINT64_C(8)
#define PLACES_FIRST UINT64_C(1024)

static uint64_t hash_of(struct lp_ino ino)
{
	uint64_t hash = ino.nr * UINT64_C(0x9e3779b97f4a7c15);
	hash ^= hash >> 32;
	hash *= UINT64_C(0xd6e8feb86659fd93);
	return hash ^ hash >> 32;
}

static bool is_of_round(struct lpi_fsck_round round, struct lp_ino ino)
{
	return (hash_of(ino) & ((UINT64_C(1) << round.bits) - 1)) == round.pattern;
}

int lpi_fsck_names_init(struct lpi_fsck_names *names, uint64_t bytes_max)
{
	uint64_t places = PLACES_MIN;
	while (2 * places * sizeof(struct lpi_fsck_node) <= bytes_max)
		places *= 2;
	*names = (struct lpi_fsck_names){.places = LP_MIN(places, PLACES_FIRST),
					 .places_max = places};
	names->nodes = calloc(names->places, sizeof(*names->nodes));
	return names->nodes != NULL ? 0 : -ENOMEM;
}

void lpi_fsck_names_fini(struct lpi_fsck_names *names)
{
	free(names->nodes);
	names->nodes = NULL;
}

bool lpi_fsck_names_has_turn(const struct lpi_fsck_names *names, struct lp_ino ino)
{
	return is_of_round(names->now, ino);
}

/* Where it is, or where it would go. The low bits are the round's: the high ones choose. */
static struct lpi_fsck_node *probe(struct lpi_fsck_names *names, struct lp_ino ino)
{
	uint64_t at = hash_of(ino) >> LPI_FSCK_ROUND_BITS_MAX;
	struct lpi_fsck_node *node;
	LP_ASSERT(ino.nr != 0);
	for (;; at++) {
		node = &names->nodes[at & (names->places - 1)];
		if (node->ino == 0 || node->ino == ino.nr)
			return node;
	}
}

struct lpi_fsck_node *lpi_fsck_names_find(struct lpi_fsck_names *names, struct lp_ino ino)
{
	struct lpi_fsck_node *node = probe(names, ino);
	return node->ino == ino.nr ? node : NULL;
}

/* Puts every node of a run of places in again: some have come free before them. */
static void settle_from(struct lpi_fsck_names *names, uint64_t at)
{
	for (; names->nodes[at & (names->places - 1)].ino != 0; at++) {
		struct lpi_fsck_node *node = &names->nodes[at & (names->places - 1)];
		struct lpi_fsck_node copy = *node;
		node->ino = 0;
		*probe(names, (struct lp_ino){copy.ino}) = copy;
	}
}

/* Half of this round's inodes wait for a later one. */
static void halve(struct lpi_fsck_names *names)
{
	LP_ASSERT(names->now.bits < LPI_FSCK_ROUND_BITS_MAX);
	names->later[names->later_cnt++] = (struct lpi_fsck_round){
		names->now.pattern | UINT32_C(1) << names->now.bits, names->now.bits + 1};
	names->now.bits++;
	for (uint64_t i = 0; i < names->places; i++) {
		while (names->nodes[i].ino != 0 &&
		       !is_of_round(names->now, (struct lp_ino){names->nodes[i].ino})) {
			names->nodes[i] = (struct lpi_fsck_node){.ino = 0};
			names->cnt--;
			settle_from(names, i + 1);
		}
	}
}

/* Twice as many places, if there may be and there is memory. */
static bool grow(struct lpi_fsck_names *names)
{
	struct lpi_fsck_node *old = names->nodes;
	uint64_t places = names->places;
	if (places == names->places_max)
		return false;
	names->nodes = calloc(2 * places, sizeof(*old));
	if (names->nodes == NULL) {
		names->nodes = old;
		names->places_max = places;
		return false;
	}
	names->places = 2 * places;
	for (uint64_t i = 0; i < places; i++) {
		if (old[i].ino != 0)
			*probe(names, (struct lp_ino){old[i].ino}) = old[i];
	}
	free(old);
	return true;
}

struct lpi_fsck_node *lpi_fsck_names_add(struct lpi_fsck_names *names, struct lp_ino ino)
{
	LP_ASSERT(is_of_round(names->now, ino));
	struct lpi_fsck_node *node = probe(names, ino);
	if (node->ino == ino.nr)
		return node;
	while (4 * (names->cnt + 1) > 3 * names->places) {
		if (!grow(names))
			halve(names);
	}
	if (!is_of_round(names->now, ino))
		return NULL;
	node = probe(names, ino);
	*node = (struct lpi_fsck_node){.ino = ino.nr};
	names->cnt++;
	return node;
}

bool lpi_fsck_names_next_round(struct lpi_fsck_names *names)
{
	if (names->later_cnt == 0)
		return false;
	names->now = names->later[--names->later_cnt];
	memset(names->nodes, 0, names->places * sizeof(*names->nodes));
	names->cnt = 0;
	return true;
}
