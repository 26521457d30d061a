/* SPDX-License-Identifier: Apache-2.0 */
/* A pairing heap. The root is the minimum; each node has a list of children. meld() makes the
 * later of two roots the first child of the earlier; removing a node melds its children in pairs,
 * left to right, then the pairs from the right (which needs no recursion: the pairs are kept as a
 * stack through `next`). */
#include "base/loop/timer.h"

#include "base/assert.h"

static bool is_before(const struct lp_timer *a, const struct lp_timer *b)
{
	if (a->deadline_ns != b->deadline_ns)
		return a->deadline_ns < b->deadline_ns;
	return a->order < b->order;
}

/* Both are roots without siblings, or NULL. */
static struct lp_timer *meld(struct lp_timer *a, struct lp_timer *b)
{
	if (a == NULL || b == NULL)
		return a != NULL ? a : b;
	struct lp_timer *top = is_before(a, b) ? a : b;
	struct lp_timer *sub = top == a ? b : a;
	sub->next = top->child;
	sub->prev = top;
	if (top->child != NULL)
		top->child->prev = sub;
	top->child = sub;
	return top;
}

static struct lp_timer *meld_children(struct lp_timer *first)
{
	struct lp_timer *stack = NULL;
	while (first != NULL) {
		struct lp_timer *a = first;
		struct lp_timer *b = a->next;
		first = b != NULL ? b->next : NULL;
		a->next = NULL;
		if (b != NULL)
			b->next = NULL;
		struct lp_timer *pair = meld(a, b);
		pair->next = stack;
		stack = pair;
	}
	struct lp_timer *root = NULL;
	while (stack != NULL) {
		struct lp_timer *pair = stack;
		stack = pair->next;
		pair->next = NULL;
		root = meld(root, pair);
	}
	return root;
}

static void set_root(struct lp_timer_heap *heap, struct lp_timer *root)
{
	heap->root = root;
	if (root != NULL)
		root->prev = root;
}

void lp_timer_heap_insert(struct lp_timer_heap *heap, struct lp_timer *timer, uint64_t deadline_ns)
{
	LP_ASSERT(!lp_timer_is_armed(timer));
	LP_ASSERT(timer->fire != NULL);
	timer->deadline_ns = deadline_ns;
	timer->order = heap->insert_cnt++;
	timer->child = NULL;
	timer->next = NULL;
	set_root(heap, meld(heap->root, timer));
}

void lp_timer_heap_remove(struct lp_timer_heap *heap, struct lp_timer *timer)
{
	LP_ASSERT(lp_timer_is_armed(timer));
	LP_ASSERT(heap->root != NULL);
	struct lp_timer *orphans = meld_children(timer->child);
	if (timer == heap->root) {
		set_root(heap, orphans);
	} else {
		if (timer->prev->child == timer)
			timer->prev->child = timer->next;
		else
			timer->prev->next = timer->next;
		if (timer->next != NULL)
			timer->next->prev = timer->prev;
		set_root(heap, meld(heap->root, orphans));
	}
	timer->child = NULL;
	timer->next = NULL;
	timer->prev = NULL;
}

struct lp_timer *lp_timer_heap_pop_due(struct lp_timer_heap *heap, uint64_t now_ns)
{
	struct lp_timer *timer = heap->root;
	if (timer == NULL || timer->deadline_ns > now_ns)
		return NULL;
	lp_timer_heap_remove(heap, timer);
	return timer;
}

uint64_t lp_timer_heap_next_ns(const struct lp_timer_heap *heap)
{
	return heap->root != NULL ? heap->root->deadline_ns : UINT64_MAX;
}
