/* SPDX-License-Identifier: Apache-2.0 */
/* What waits stands in a tree by place, where neighbours become one, and in a list by age. Ten
 * times a second a tenth of the rate may be spent, from the oldest on; what was saved up is at most
 * that of one tick and the last operation. A long extent is discarded piece by piece, and is free
 * when all of it is done. */
#include "store/space/discards.h"

#include <stdlib.h>

#include "base/memory/pool.h"
#include "base/struct/tree.h"

#define TICK_NS     (LP_NS_PER_S / 10)
#define TICKS_PER_S 10u
#define WAIT_TICKS  (LP_DISCARD_WAIT_NS / TICK_NS)

struct item {
	struct lp_space_pin hold;
	struct lp_tree_node by_place; /* while it waits */
	struct lp_list_node by_age;
	uint64_t done_cnt; /* blocks, from its beginning on */
	uint64_t tick;     /* it begins then, at the earliest */
};

struct op {
	struct lp_bdev_op op;
	struct lp_discards *discards;
	struct item *item; /* NULL: not in use */
	uint64_t cnt;
};

static bool item_is_before(const struct item *a, const struct item *b)
{
	return a->hold.extent.block < b->hold.extent.block;
}

LP_TREE_DEFINE(items_by_place, struct item, by_place, item_is_before);
LP_LIST_DEFINE(item_list, struct item, by_age);

struct lp_discards {
	struct lp_discards_options options;
	struct lp_pool *items;
	struct items_by_place by_place;
	struct item_list by_age;
	struct lp_timer timer;
	uint64_t tick;
	int64_t budget_blocks;
	uint32_t flight;
	bool is_stopped;
	struct op ops[LP_DISCARD_FLIGHT];
	struct lp_discards_stats stats;
};

static void tick_later(struct lp_discards *discards)
{
	if (!lp_timer_is_armed(&discards->timer))
		lp_timer_start(discards->options.reactor, &discards->timer,
			       lp_reactor_now_ns(discards->options.reactor) + TICK_NS);
}

/* --- What waits ------------------------------------------------------------------------------- */

static void put_in(struct lp_discards *discards, struct item *item)
{
	items_by_place_insert(&discards->by_place, item);
	item_list_push_back(&discards->by_age, item);
}

static void take_out(struct lp_discards *discards, struct item *item)
{
	items_by_place_remove(&discards->by_place, item);
	item_list_remove(item);
}

static void end(struct lp_discards *discards, struct item *item)
{
	lp_space_unpin(discards->options.space, &item->hold);
	lp_pool_put(discards->items, item);
}

static void let_go(struct lp_discards *discards, struct item *item)
{
	discards->stats.let_go_blocks += item->hold.extent.cnt - item->done_cnt;
	take_out(discards, item);
	end(discards, item);
}

/* The one that ends where the extent begins, or begins where it ends; not one that has begun. */
static struct item *find_neighbour(struct lp_discards *discards, struct lp_extent extent)
{
	const struct item key = {.hold.extent = extent};
	struct item *before = items_by_place_find_lt(&discards->by_place, &key);
	struct item *after = before == NULL ? items_by_place_first(&discards->by_place)
					    : items_by_place_next(before);
	if (before != NULL && before->done_cnt == 0 &&
	    lp_extent_end(before->hold.extent) == extent.block)
		return before;
	bool is_next = after != NULL && after->done_cnt == 0 &&
		       lp_extent_end(extent) == after->hold.extent.block;
	return is_next ? after : NULL;
}

void lp_discards_add(struct lp_discards *discards, struct lp_extent extent)
{
	struct item *item = discards->is_stopped ? NULL : lp_pool_get(discards->items);
	if (item == NULL) {
		discards->stats.let_go_blocks += extent.cnt;
		return;
	}
	*item = (struct item){.tick = discards->tick + WAIT_TICKS};
	lp_space_hold(discards->options.space, &item->hold, extent);
	struct item *other;
	while ((other = find_neighbour(discards, item->hold.extent)) != NULL) {
		/* Held twice for a moment, and never not at all. */
		struct item *both = lp_pool_get(discards->items);
		if (both == NULL)
			break;
		*both = (struct item){.tick = other->tick};
		take_out(discards, other);
		const struct lp_extent sum = {
			LP_MIN(item->hold.extent.block, other->hold.extent.block),
			item->hold.extent.cnt + other->hold.extent.cnt};
		lp_space_hold(discards->options.space, &both->hold, sum);
		end(discards, item);
		end(discards, other);
		item = both;
	}
	put_in(discards, item);
	tick_later(discards);
}

uint64_t lp_discards_give_way(struct lp_discards *discards)
{
	uint64_t blocks = 0;
	struct item *item;
	while ((item = item_list_first(&discards->by_age)) != NULL) {
		blocks += item->hold.extent.cnt;
		let_go(discards, item);
	}
	return blocks;
}

/* --- Discarding ------------------------------------------------------------------------------- */

static void op_complete(struct lp_bdev_op *base)
{
	struct op *op = LP_CONTAINER_OF(base, struct op, op);
	struct lp_discards *discards = op->discards;
	struct item *item = op->item;
	op->item = NULL;
	discards->flight--;
	item->done_cnt += op->cnt;
	if (base->result == 0)
		discards->stats.blocks += op->cnt;
	else
		discards->stats.failed++;
	if (base->result == -EOPNOTSUPP)
		lp_discards_stop(discards);
	bool is_done = item->done_cnt == item->hold.extent.cnt || base->result < 0;
	if (is_done || discards->is_stopped)
		end(discards, item);
	else
		put_in(discards, item);
}

static void submit(struct lp_discards *discards, struct item *item)
{
	struct op *op = &discards->ops[0];
	while (op->item != NULL)
		op++;
	LP_ASSERT(op < discards->ops + LP_DISCARD_FLIGHT);
	take_out(discards, item);
	uint64_t left = item->hold.extent.cnt - item->done_cnt;
	op->item = item;
	op->discards = discards;
	op->cnt = LP_MIN(left, LP_DISCARD_OP_BLOCKS_MAX);
	op->op = (struct lp_bdev_op){
		.opcode = LP_BDEV_DISCARD,
		.offset_bytes = (item->hold.extent.block + item->done_cnt) * LP_BLOCK_BYTES,
		.length_bytes = op->cnt * LP_BLOCK_BYTES,
		.complete = op_complete,
	};
	discards->budget_blocks -= (int64_t)op->cnt;
	discards->flight++;
	discards->stats.ops++;
	lp_bdev_submit(discards->options.chan, &op->op);
}

/* The oldest that may begin; what is too short to be worth it is let go on the way. */
static struct item *choose(struct lp_discards *discards)
{
	struct item *item = item_list_first(&discards->by_age);
	while (item != NULL && item->tick <= discards->tick) {
		struct item *next = item_list_next(&discards->by_age, item);
		if (item->hold.extent.cnt < LP_DISCARD_MIN_BLOCKS)
			let_go(discards, item);
		else if (!lp_space_is_pinned(discards->options.space, item->hold.extent))
			return item;
		item = next;
	}
	return NULL;
}

static void timer_fire(struct lp_timer *timer)
{
	struct lp_discards *discards = LP_CONTAINER_OF(timer, struct lp_discards, timer);
	int64_t share = (int64_t)(discards->options.bytes_per_s / LP_BLOCK_BYTES / TICKS_PER_S);
	discards->tick++;
	discards->budget_blocks = LP_MIN(discards->budget_blocks + share, share);
	while (discards->budget_blocks > 0 && discards->flight < LP_DISCARD_FLIGHT) {
		struct item *item = choose(discards);
		if (item == NULL)
			break;
		submit(discards, item);
	}
	if (!item_list_is_empty(&discards->by_age) || discards->flight > 0)
		tick_later(discards);
}

/* --- Birth and death -------------------------------------------------------------------------- */

int lp_discards_new(const struct lp_discards_options *options, struct lp_discards **ret_discards)
{
	const struct lp_pool_config items = {.name = "discards",
					     .object_bytes = sizeof(struct item),
					     .limit = LP_DISCARD_EXTENTS};
	struct lp_discards *discards = calloc(1, sizeof(*discards));
	if (discards == NULL)
		return -ENOMEM;
	discards->options = *options;
	if (discards->options.bytes_per_s == 0)
		discards->options.bytes_per_s = LP_DISCARD_BYTES_PER_S;
	discards->options.bytes_per_s =
		LP_MAX(discards->options.bytes_per_s, TICKS_PER_S * LP_BLOCK_BYTES);
	discards->timer.fire = timer_fire;
	items_by_place_init(&discards->by_place);
	item_list_init(&discards->by_age);
	int err = lp_pool_new(&items, &discards->items);
	if (err < 0) {
		free(discards);
		return err;
	}
	*ret_discards = discards;
	return 0;
}

void lp_discards_stop(struct lp_discards *discards)
{
	discards->is_stopped = true;
	(void)lp_discards_give_way(discards);
	if (lp_timer_is_armed(&discards->timer))
		lp_timer_stop(discards->options.reactor, &discards->timer);
}

void lp_discards_free(struct lp_discards *discards)
{
	if (discards == NULL)
		return;
	LP_ASSERT(discards->flight == 0 && item_list_is_empty(&discards->by_age));
	LP_ASSERT(!lp_timer_is_armed(&discards->timer));
	lp_pool_free(discards->items);
	free(discards);
}

bool lp_discards_is_idle(const struct lp_discards *discards)
{
	return discards->flight == 0;
}

const struct lp_discards_stats *lp_discards_stats(const struct lp_discards *discards)
{
	return &discards->stats;
}
