/* SPDX-License-Identifier: Apache-2.0 */
/* Space that is on its way: of what lost its last name here and is not freed yet.
 *
 * A removal is answered before its space can be used again: an inode that is open or that a mount
 * holds becomes an orphan, which goes when it was closed and the kernel has forgotten it; an
 * orphan's removal waits a moment for others; a change over several shards is finished on some of
 * them after its answer; and the store frees by commits. A full store is full only when all of this
 * has ended (P6): until then who finds no space waits, and tries again; once more also if some has
 * ended since he looked, for he may have looked before.
 *
 * Of an orphan nobody knows whether it goes. That a file was closed the kernel says before it
 * passes on what was asked after that, but perhaps to another thread; and it says at once that it
 * has forgotten what nobody has open. So all shards are asked, one round after the other, to answer
 * in a turn of theirs: after ROUNDS in which nothing has happened to any orphan, all that had been
 * said has been heard, however slow the threads are, and what still is needed is in use. An orphan
 * that is only held is given LPI_FREEING_HELD_NS besides.
 *
 * It is no clock that ends the wait for what does go, but that the thread has looked very often,
 * each time a millisecond after the last, and nothing has moved.
 *
 * Threads: the shard's; lpi_freeing_goes_on() looks at other shards. Blocking, errors: none.
 * Allocation: init.
 */
#ifndef LP_NAMESPACE_CHANGE_FREEING_H
#define LP_NAMESPACE_CHANGE_FREEING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/error.h"
#include "store/store.h"

#define LPI_FREEING_HELD_NS (250 * LP_NS_PER_MS)
/* From the kernel to whoever reads, to who works on it, to the inode's shard, and back, twice; a
 * message that was sent in one round has arrived in the next. */
#define LPI_FREEING_ROUNDS 16u
/* Looks, a millisecond apart at least: without any progress; and in all. */
#define LPI_FREEING_IDLE_LOOKS 10000u
#define LPI_FREEING_LOOKS_MAX  60000u
/* The store may have hoped as long for each look: then few are enough after this time. */
#define LPI_FREEING_LOOKS_MIN 3u
#define LPI_FREEING_IDLE_NS   (30 * LP_NS_PER_S)
#define LPI_FREEING_MAX_NS    (120 * LP_NS_PER_S)

struct lp_ns;
struct lpi_call;

/* Of one shard; zeroed memory is one that frees nothing. The atomic ones are for all threads. */
struct lpi_freeing {
	_Atomic bool is_under_way;
	_Atomic uint64_t ended_cnt; /* how often that has ended */
	_Atomic uint64_t event_cnt; /* what has happened to orphans, and to what goes */
	_Atomic uint64_t
		held_ns; /* when an orphan last was closed that is held; 0: there is none */
	_Atomic bool has_orphans;
	uint32_t unnaming_cnt; /* changes under way that take an inode its last name */
	struct lp_store_freeing store;

	/* Rounds that this shard asks for. */
	uint64_t round_cnt;     /* that have ended */
	uint32_t round_pending; /* shards that have not answered */
	struct lpi_call *round_calls;
};

/* Of who found no space; zeroed when he first asks for it. */
struct lpi_freeing_wait {
	uint64_t ended_cnt; /* of all shards, when he last tried */
	uint64_t event_cnt;
	uint64_t round_end;
	uint64_t since_ns; /* when he first found none */
	uint64_t idle_since_ns;
	uint32_t idle_cnt;
	uint32_t cnt;
};

/* -ENOMEM; fini accepts what was not made. */
int lpi_freeing_init(struct lp_ns *ns) LP_MUST_CHECK;
void lpi_freeing_fini(struct lp_ns *ns);

/* Something has begun to go here. */
void lpi_freeing_begin(struct lp_ns *ns);
/* An orphan is only held from now on. */
void lpi_freeing_held(struct lp_ns *ns);
/* In each turn: whether all of it has ended. */
void lpi_freeing_look(struct lp_ns *ns);

/* He is about to look for space. */
void lpi_freeing_tries(const struct lp_ns *ns, struct lpi_freeing_wait *wait);
/* He found none: whether any shard has more since then, or will soon. */
bool lpi_freeing_goes_on(struct lp_ns *ns, struct lpi_freeing_wait *wait);

#endif
