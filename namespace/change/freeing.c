/* SPDX-License-Identifier: Apache-2.0 */
/* A counter is read after the flag that it belongs to. So a thread that sees the flag cleared also
 * sees the count of the end. */
#include "namespace/change/freeing.h"

#include <errno.h>
#include <stdlib.h>

#include "namespace/change/ns_state.h"

static uint64_t now_of(const struct lp_ns *ns)
{
	return lp_reactor_now_ns(ns->options.reactor);
}

static void happened(struct lpi_freeing *freeing)
{
	atomic_fetch_add_explicit(&freeing->event_cnt, 1, memory_order_release);
}

int lpi_freeing_init(struct lp_ns *ns)
{
	ns->freeing.round_calls = calloc(ns->options.shard_cnt, sizeof(struct lpi_call));
	return ns->freeing.round_calls == NULL ? -ENOMEM : 0;
}

void lpi_freeing_fini(struct lp_ns *ns)
{
	LP_ASSERT(ns->freeing.round_pending == 0);
	free(ns->freeing.round_calls);
}

/* --- Freeing on this shard -------------------------------------------------------------------- */

void lpi_freeing_begin(struct lp_ns *ns)
{
	ns->freeing.store = (struct lp_store_freeing){0};
	happened(&ns->freeing);
	atomic_store_explicit(&ns->freeing.is_under_way, true, memory_order_release);
}

void lpi_freeing_held(struct lp_ns *ns)
{
	happened(&ns->freeing);
	atomic_store_explicit(&ns->freeing.held_ns, now_of(ns), memory_order_release);
}

static void look_at_orphans(struct lp_ns *ns)
{
	struct lpi_freeing *freeing = &ns->freeing;
	bool has_orphans = lpi_opens_orphans(ns->opens) > 0;
	if (atomic_load_explicit(&freeing->has_orphans, memory_order_relaxed) != has_orphans)
		atomic_store_explicit(&freeing->has_orphans, has_orphans, memory_order_release);
	if (atomic_load_explicit(&freeing->held_ns, memory_order_relaxed) != 0 &&
	    lpi_opens_held_orphans(ns->opens) == 0)
		atomic_store_explicit(&freeing->held_ns, 0, memory_order_release);
}

void lpi_freeing_look(struct lp_ns *ns)
{
	struct lpi_freeing *freeing = &ns->freeing;
	uint64_t progress = freeing->store.progress;
	look_at_orphans(ns);
	if (!atomic_load_explicit(&freeing->is_under_way, memory_order_relaxed))
		return;
	if (freeing->unnaming_cnt > 0 || lpi_orphans_are_going(ns->orphans)) {
		freeing->store = (struct lp_store_freeing){0};
		return;
	}
	/* Does not wait for space that others have begun to free since then. */
	if (lp_store_is_freeing(ns->options.store, &freeing->store)) {
		if (freeing->store.progress != progress)
			happened(freeing);
		return;
	}
	atomic_fetch_add_explicit(&freeing->ended_cnt, 1, memory_order_relaxed);
	atomic_store_explicit(&freeing->is_under_way, false, memory_order_release);
}

/* --- Rounds ----------------------------------------------------------------------------------- */

static void run_round(struct lpi_call *call)
{
	lpi_call_end(call, 0);
}

static void round_done(struct lpi_call *call)
{
	struct lp_ns *ns = call->round_of;
	LP_ASSERT(ns->freeing.round_pending > 0);
	if (--ns->freeing.round_pending > 0)
		return;
	ns->freeing.round_cnt++;
	lpi_ns_left(ns);
}

static void begin_round(struct lp_ns *ns)
{
	struct lpi_freeing *freeing = &ns->freeing;
	if (freeing->round_pending > 0)
		return;
	ns->under_way++;
	freeing->round_pending = ns->options.shard_cnt;
	for (uint32_t i = 0; i < ns->options.shard_cnt; i++) {
		struct lpi_call *call = &freeing->round_calls[i];
		*call = (struct lpi_call){.run = run_round, .done = round_done, .round_of = ns};
		lpi_call_start(ns, i, call);
	}
}

/* --- Who waits -------------------------------------------------------------------------------- */

struct sight {
	uint64_t ended_cnt;
	uint64_t event_cnt;
	bool is_under_way;
	bool is_held; /* for a moment only */
	bool has_orphans;
};

static struct sight look_around(const struct lp_ns *ns)
{
	uint64_t now_ns = now_of(ns);
	struct sight sight = {0};
	for (uint32_t i = 0; i < ns->options.shard_cnt; i++) {
		const struct lpi_freeing *freeing = &ns->peers[i]->freeing;
		uint64_t held_ns = atomic_load_explicit(&freeing->held_ns, memory_order_acquire);
		sight.is_held |= held_ns != 0 && now_ns < held_ns + LPI_FREEING_HELD_NS;
		sight.has_orphans |=
			atomic_load_explicit(&freeing->has_orphans, memory_order_acquire);
		sight.is_under_way |=
			atomic_load_explicit(&freeing->is_under_way, memory_order_acquire);
		sight.ended_cnt += atomic_load_explicit(&freeing->ended_cnt, memory_order_acquire);
		sight.event_cnt += atomic_load_explicit(&freeing->event_cnt, memory_order_acquire);
	}
	return sight;
}

void lpi_freeing_tries(const struct lp_ns *ns, struct lpi_freeing_wait *wait)
{
	wait->ended_cnt = 0;
	for (uint32_t i = 0; i < ns->options.shard_cnt; i++)
		wait->ended_cnt += atomic_load_explicit(&ns->peers[i]->freeing.ended_cnt,
							memory_order_acquire);
}

/* An orphan may have been closed or forgotten without this shard knowing it yet. */
static bool has_more_rounds(struct lp_ns *ns, const struct lpi_freeing_wait *wait)
{
	if (ns->freeing.round_cnt >= wait->round_end)
		return false;
	begin_round(ns);
	return true;
}

static bool is_enough(const struct lpi_freeing_wait *wait, uint64_t now_ns)
{
	if (wait->idle_cnt > LPI_FREEING_IDLE_LOOKS || wait->cnt > LPI_FREEING_LOOKS_MAX)
		return true;
	bool is_long = now_ns - wait->since_ns >= LPI_FREEING_MAX_NS;
	return (wait->cnt > LPI_FREEING_LOOKS_MIN && is_long) ||
	       (wait->idle_cnt > LPI_FREEING_LOOKS_MIN &&
		now_ns - wait->idle_since_ns >= LPI_FREEING_IDLE_NS);
}

bool lpi_freeing_goes_on(struct lp_ns *ns, struct lpi_freeing_wait *wait)
{
	struct sight sight = look_around(ns);
	uint64_t now_ns = now_of(ns);
	if (wait->cnt == 0)
		wait->since_ns = now_ns;
	if (wait->cnt++ == 0 || sight.event_cnt != wait->event_cnt) {
		/* The round that is under way may be nearly over. */
		wait->round_end = ns->freeing.round_cnt + LPI_FREEING_ROUNDS + 1;
		wait->idle_cnt = 0;
		wait->idle_since_ns = now_ns;
	}
	wait->event_cnt = sight.event_cnt;
	wait->idle_cnt++;
	if (is_enough(wait, now_ns))
		return false;
	bool is_unheard = sight.has_orphans && has_more_rounds(ns, wait);
	return is_unheard || sight.is_under_way || sight.is_held ||
	       sight.ended_cnt != wait->ended_cnt;
}
