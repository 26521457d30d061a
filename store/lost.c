/* SPDX-License-Identifier: Apache-2.0 */
/* In place of a store that cannot be opened, so that those of other shards can be served: it has
 * nothing, and says -EIO to whoever asks, later in the turn. Its health says why. */
#include <stdio.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/loop/reactor.h"
#include "store/store_kinds.h"

LP_LIST_DEFINE(lost_ops, struct lp_store_op, node);

struct lost {
	struct lp_store base;
	struct lp_reactor *reactor;
	struct lp_task deliver;
	struct lost_ops done;
	struct lp_store_health health;
	struct lp_ino next_ino;
	uint32_t shard_idx;
	uint64_t op_cnt[LP_STORE_OPCODE_CNT];
};

/* base is its first member. */
static const struct lost *lost_of(const struct lp_store *base)
{
	return (const struct lost *)(const void *)base;
}

static void lost_submit(struct lp_store *base, struct lp_store_op *op)
{
	struct lost *lost = LP_CONTAINER_OF(base, struct lost, base);
	LP_ASSERT(lp_reactor_is_mine(lost->reactor));
	op->result = lpi_store_check(op); /* clears the results */
	if (op->result == 0)
		op->result = -EIO;
	if (op->opcode < LP_STORE_OPCODE_CNT)
		lost->op_cnt[op->opcode]++;
	lost_ops_push_back(&lost->done, op);
	if (!lp_task_is_queued(&lost->deliver))
		lp_task_queue(lost->reactor, &lost->deliver);
}

static void deliver(struct lp_task *task)
{
	struct lost *lost = LP_CONTAINER_OF(task, struct lost, deliver);
	struct lost_ops ready;
	struct lp_store_op *op;
	lost_ops_init(&ready);
	lost_ops_splice_back(&ready, &lost->done);
	while ((op = lost_ops_pop_front(&ready)) != NULL)
		op->complete(op);
}

static void lost_end(struct lp_store *base, struct lp_store_op *op)
{
	(void)base; /* it gave nothing */
	(void)op;
}

/* What is to have it is refused. */
static struct lp_ino lost_new_ino(struct lp_store *base)
{
	struct lost *lost = LP_CONTAINER_OF(base, struct lost, base);
	return (struct lp_ino){lost->next_ino.nr++};
}

static int lost_close(struct lp_store *base, bool abandon)
{
	struct lost *lost = LP_CONTAINER_OF(base, struct lost, base);
	(void)abandon; /* nothing is written either way */
	LP_ASSERT(lost_ops_is_empty(&lost->done));
	if (lp_task_is_queued(&lost->deliver))
		lp_task_cancel(&lost->deliver);
	free(lost);
	return 0;
}

static int lost_error(const struct lp_store *base)
{
	return lost_of(base)->health.error;
}

static bool lost_is_settled(const struct lp_store *base)
{
	(void)base;
	return true; /* nothing was ever changed */
}

static bool lost_is_freeing(const struct lp_store *base, struct lp_store_freeing *since)
{
	(void)base;
	(void)since;
	return false;
}

static void lost_read_health(const struct lp_store *base, struct lp_store_health *ret_health)
{
	*ret_health = lost_of(base)->health;
}

static void lost_set_write_path(struct lp_store *base, enum lp_write_path path)
{
	(void)base; /* there are no writes */
	(void)path;
}

static void lost_set_deferred_store(struct lp_store *base, enum lp_deferred_store kind)
{
	(void)base; /* nor what they defer */
	(void)kind;
}

static void lost_read_stats(struct lp_store *base, struct lp_store_stats *ret_stats)
{
	const struct lost *lost = lost_of(base);
	*ret_stats = (struct lp_store_stats){.shard_idx = lost->shard_idx};
	for (uint32_t i = 0; i < LP_STORE_OPCODE_CNT; i++) {
		ret_stats->ops[i] = lost->op_cnt[i];
		ret_stats->errors[i] = lost->op_cnt[i];
	}
}

static void lost_read_usage(struct lp_store *base, struct lp_store_usage *ret_usage)
{
	(void)base;
	*ret_usage = (struct lp_store_usage){.free_blocks = 0}; /* nobody knows */
}

static int lost_explain(const struct lp_store *base, uint64_t bytes, char *buf, size_t len)
{
	return snprintf(buf, len, "%llu bytes: refused, for the shard is not open: %s",
			(unsigned long long)bytes, lost_of(base)->health.reason);
}

static double lost_alloc_score(const struct lp_store *base)
{
	(void)base;
	return 0;
}

static size_t lost_read_times(const struct lp_store *base, struct lp_store_time *ret_rows,
			      size_t max)
{
	(void)base;
	(void)ret_rows;
	(void)max;
	return 0;
}

static bool lost_sim_run_one(struct lp_store *base)
{
	(void)base;
	return false;
}

static const struct lpi_store_calls lost_calls = {
	.submit = lost_submit,
	.end = lost_end,
	.new_ino = lost_new_ino,
	.close = lost_close,
	.error = lost_error,
	.is_settled = lost_is_settled,
	.is_freeing = lost_is_freeing,
	.read_health = lost_read_health,
	.set_write_path = lost_set_write_path,
	.set_deferred_store = lost_set_deferred_store,
	.read_stats = lost_read_stats,
	.read_usage = lost_read_usage,
	.explain = lost_explain,
	.alloc_score = lost_alloc_score,
	.read_times = lost_read_times,
	.sim_run_one = lost_sim_run_one,
};

int lp_store_open_lost(const struct lp_store_options *options, int why, const char *reason,
		       struct lp_store **ret_store)
{
	LP_ASSERT(why < 0 && options->shard_idx < LP_SHARDS_MAX);
	struct lost *lost = calloc(1, sizeof(*lost));
	if (lost == NULL)
		return -ENOMEM;
	lost->base.calls = &lost_calls;
	lost->reactor = options->reactor;
	lost->shard_idx = options->shard_idx;
	lost->next_ino = lp_ino_make(options->shard_idx, LP_INO_FIRST);
	lost->deliver.run = deliver;
	lost_ops_init(&lost->done);
	lost->health = (struct lp_store_health){.state = LP_STORE_DEAD, .error = why};
	(void)snprintf(lost->health.reason, sizeof(lost->health.reason), "%s", reason);
	*ret_store = &lost->base;
	return 0;
}
