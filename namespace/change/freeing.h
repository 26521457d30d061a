/* SPDX-License-Identifier: Apache-2.0 */
/* Space that will soon be free, and how long a transaction without space waits for it (P6).
 *
 * Threads: the shard's; lpi_freeing_goes_on() looks at other shards.
 * Blocking, errors: none.
 * Memory: allocated by init.
 * Limits: the wait for space that is on its way has no timeout. It ends after
 *   LPI_FREEING_IDLE_LOOKS looks without progress, a millisecond apart at least, or after
 *   LPI_FREEING_LOOKS_MAX in all. Looks may take longer; then LPI_FREEING_IDLE_NS and
 *   LPI_FREEING_MAX_NS end it after LPI_FREEING_LOOKS_MIN looks.
 *
 * A removal is answered before its space can be used again:
 *   - An inode that is open or held by a mount becomes an orphan. It is removed when it was closed
 *     and the kernel has forgotten it.
 *   - The removal of an orphan waits up to 20 ms for others.
 *   - A change over several shards is finished on some of them after its answer.
 *   - The store frees space by commits.
 *
 * A store is full only when all of this has ended. Until then a transaction that finds no space
 * waits and tries again. It tries once more if some of it has ended since it looked, because it may
 * have looked before.
 *
 * A shard cannot know whether an orphan is about to be removed. The kernel reports a close before
 * any later request, but perhaps to another thread, and it reports at once that it has forgotten
 * what is not open. So all shards are asked, in rounds, to answer from their own loop. After
 * LPI_FREEING_ROUNDS rounds in which nothing has happened to any orphan, every earlier message has
 * been handled, and the remaining orphans are in use. An orphan that is only held has
 * LPI_FREEING_HELD_NS besides.
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
/* A message goes from the kernel to the reading thread, to the thread that works on it, to the
 * inode's shard, and back, twice. A message that was sent in one round has arrived in the next. */
#define LPI_FREEING_ROUNDS 16u
/* Numbers of looks, at least a millisecond apart: without any progress, and in all. */
#define LPI_FREEING_IDLE_LOOKS 10000u
#define LPI_FREEING_LOOKS_MAX  60000u
/* The store may have waited as long in each look, so few looks are enough after this time. */
#define LPI_FREEING_LOOKS_MIN 3u
#define LPI_FREEING_IDLE_NS   (30 * LP_NS_PER_S)
#define LPI_FREEING_MAX_NS    (120 * LP_NS_PER_S)

struct lp_ns;
struct lpi_call;

/* State of one shard; in zeroed memory nothing is being freed. The atomic fields are for all
 * threads. */
struct lpi_freeing {
	_Atomic bool is_under_way;
	_Atomic uint64_t ended_cnt; /* how often freeing under way has ended */
	_Atomic uint64_t event_cnt; /* counts events of orphans and of inodes being removed */
	_Atomic uint64_t
		held_ns; /* when an orphan that is still held was last closed; 0: there is none */
	_Atomic bool has_orphans;
	uint32_t unnaming_cnt; /* changes under way that take an inode its last name */
	struct lp_store_freeing store;

	/* Rounds that this shard has started. */
	uint64_t round_cnt;     /* that have ended */
	uint32_t round_pending; /* shards that have not answered */
	struct lpi_call *round_calls;
};

/* One wait of a transaction that found no space; zeroed before its first try. */
struct lpi_freeing_wait {
	uint64_t ended_cnt; /* sum over all shards at the last try */
	uint64_t event_cnt;
	uint64_t round_end;
	uint64_t since_ns; /* when the transaction first found no space */
	uint64_t idle_since_ns;
	uint32_t idle_cnt;
	uint32_t cnt;
};

/* -ENOMEM; fini accepts a struct whose init failed. */
int lpi_freeing_init(struct lp_ns *ns) LP_MUST_CHECK;
void lpi_freeing_fini(struct lp_ns *ns);

/* An inode or its blocks have begun to be freed here. */
void lpi_freeing_begin(struct lp_ns *ns);
/* From now on an orphan is held but not open. */
void lpi_freeing_held(struct lp_ns *ns);
/* In each turn: looks whether all freeing has ended. */
void lpi_freeing_look(struct lp_ns *ns);

/* Call it before the transaction looks for space. */
void lpi_freeing_tries(const struct lp_ns *ns, struct lpi_freeing_wait *wait);
/* Call it when the transaction found no space. True if any shard has freed some since then, or will
 * soon. */
bool lpi_freeing_goes_on(struct lp_ns *ns, struct lpi_freeing_wait *wait);

#endif
