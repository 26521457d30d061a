/* SPDX-License-Identifier: Apache-2.0 */
/* Space that is on its way: of what lost its last name here and is not freed yet.
 *
 * A removal is answered before its space can be used again: an inode that a mount holds becomes an
 * orphan, which goes when the kernel has forgotten it, which it says at once of what it removed; an
 * orphan's removal waits a moment for others; a change over several shards is finished on some of
 * them after its answer; and the store frees by commits. A full store is full only when all of this
 * has ended (P6): until then who finds no space waits, and tries again.
 *
 * What is held for longer than LPI_FREEING_HELD_NS is in use, by a descriptor of O_PATH perhaps,
 * and is not waited for.
 *
 * Threads: the shard's; lpi_freeing_is_coming() looks at other shards. Blocking, allocation,
 * errors: none.
 */
#ifndef LP_NAMESPACE_FREEING_H
#define LP_NAMESPACE_FREEING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

#define LPI_FREEING_HELD_NS (250 * LP_NS_PER_MS)

struct lp_ns;

/* Of one shard; zeroed memory is one that frees nothing. The first three are for all threads. */
struct lpi_freeing {
	_Atomic bool is_under_way;
	_Atomic uint64_t freed_ns; /* when that last ended; 0: never */
	_Atomic uint64_t
		held_ns;       /* when an orphan last was closed that is held; 0: there is none */
	uint32_t unnaming_cnt; /* changes under way that take an inode its last name */
};

/* Something has begun to go here. */
void lpi_freeing_begin(struct lp_ns *ns);
/* An orphan is only held from now on. */
void lpi_freeing_held(struct lp_ns *ns);
/* In each turn: whether all of it has ended. */
void lpi_freeing_look(struct lp_ns *ns);
/* Whether any shard will soon have more space, or got some just now. */
bool lpi_freeing_is_coming(const struct lp_ns *ns);

#endif
