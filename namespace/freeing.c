/* SPDX-License-Identifier: Apache-2.0 */
/* What has ended counts for a moment longer, for who tried while it was under way may have looked
 * before it ended and say so after that. */
#include "namespace/freeing.h"

#include "namespace/ns_impl.h"

#define AFTER_NS (20 * LP_NS_PER_MS)

static uint64_t now_of(const struct lp_ns *ns)
{
	return lp_reactor_now_ns(ns->options.reactor);
}

void lpi_freeing_begin(struct lp_ns *ns)
{
	atomic_store_explicit(&ns->freeing.is_under_way, true, memory_order_release);
}

void lpi_freeing_held(struct lp_ns *ns)
{
	atomic_store_explicit(&ns->freeing.held_ns, now_of(ns), memory_order_release);
}

void lpi_freeing_look(struct lp_ns *ns)
{
	struct lpi_freeing *freeing = &ns->freeing;
	if (atomic_load_explicit(&freeing->held_ns, memory_order_relaxed) != 0 &&
	    lpi_opens_held_orphans(ns->opens) == 0)
		atomic_store_explicit(&freeing->held_ns, 0, memory_order_release);
	if (!atomic_load_explicit(&freeing->is_under_way, memory_order_relaxed) ||
	    freeing->unnaming_cnt > 0 || lpi_orphans_are_going(ns->orphans) ||
	    lp_store_is_freeing(ns->options.store))
		return;
	atomic_store_explicit(&freeing->freed_ns, now_of(ns), memory_order_relaxed);
	atomic_store_explicit(&freeing->is_under_way, false, memory_order_release);
}

static bool is_coming_on(const struct lpi_freeing *freeing, uint64_t now_ns)
{
	uint64_t held_ns = atomic_load_explicit(&freeing->held_ns, memory_order_acquire);
	if (atomic_load_explicit(&freeing->is_under_way, memory_order_acquire) ||
	    (held_ns != 0 && now_ns < held_ns + LPI_FREEING_HELD_NS))
		return true;
	uint64_t freed_ns = atomic_load_explicit(&freeing->freed_ns, memory_order_relaxed);
	return freed_ns != 0 && now_ns < freed_ns + AFTER_NS;
}

bool lpi_freeing_is_coming(const struct lp_ns *ns)
{
	uint64_t now_ns = now_of(ns);
	for (uint32_t i = 0; i < ns->options.shard_cnt; i++) {
		if (is_coming_on(&ns->peers[i]->freeing, now_ns))
			return true;
	}
	return false;
}
