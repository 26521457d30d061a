/* SPDX-License-Identifier: Apache-2.0 */
/*       head_seen <= head <= tail_seen <= tail <= staged <= head_seen + capacity
 *
 * The producer writes tail, staged and head_seen, the consumer head and tail_seen. Publishing is
 * a release store of tail that the consumer's acquire load pairs with: it sees the slots, and
 * what they point to. Popping is a release store of head that the producer's acquire load pairs
 * with: the slots are read before they are overwritten. */
#include "base/loop/spsc.h"

#include <stdlib.h>

int lp_spsc_init(struct lp_spsc *ring, uint32_t capacity)
{
	LP_ASSERT(lp_is_aligned((uintptr_t)ring, LP_CACHE_LINE));
	LP_ASSERT(lp_is_power_of_two(capacity));
	LP_ASSERT(capacity <= LP_SPSC_CAPACITY_MAX);
	/* Rounded up to whole lines, so that a small ring shares no line with other memory. */
	size_t bytes = lp_align_up(capacity * sizeof(void *), LP_CACHE_LINE);
	void **slots = aligned_alloc(LP_CACHE_LINE, bytes);
	if (slots == NULL)
		return -ENOMEM;
	*ring = (struct lp_spsc){.slots = slots, .mask = capacity - 1};
	return 0;
}

void lp_spsc_fini(struct lp_spsc *ring)
{
	free(ring->slots);
	ring->slots = NULL;
}

void lp_spsc_rebind_producer(struct lp_spsc *ring)
{
	ring->producer.is_bound = false;
}

void lp_spsc_rebind_consumer(struct lp_spsc *ring)
{
	ring->consumer.is_bound = false;
}

uint32_t lp_spsc_count(const struct lp_spsc *ring)
{
	/* Head first: it cannot pass the tail that is read after it. The producer may have moved on
	 * in between by more than the ring's capacity. */
	uint64_t head = atomic_load_explicit(&ring->head, memory_order_acquire);
	uint64_t tail = atomic_load_explicit(&ring->tail, memory_order_acquire);
	return (uint32_t)LP_MIN(tail - head, ring->mask + 1);
}
