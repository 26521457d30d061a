/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of a failed store that is opened again, read-only (block/reopen.c, rule L7). */
#ifndef LP_STORE_BLOCK_CORE_REOPEN_STATE_H
#define LP_STORE_BLOCK_CORE_REOPEN_STATE_H

#include "base/loop/reactor.h"
#include "base/loop/workers.h"
#include "store/shard/shard.h"
#include "store/store.h"

enum lpi_reopen_phase {
	LPI_REOPEN_NONE,    /* it has not failed, or the reopening is finished */
	LPI_REOPEN_DRAIN,   /* until no operation is under way */
	LPI_REOPEN_INDEX,   /* a helper closes the index */
	LPI_REOPEN_SETTLE,  /* until the index's last events have come */
	LPI_REOPEN_OPENING, /* a helper opens the shard read-only; block->shard is NULL */
};

struct lpi_reopen {
	enum lpi_reopen_phase phase;
	bool has_failed;
	struct lp_store_health health; /* except DEGRADED, which is read from the shard */
	struct lp_shard_events shard_events;
	struct lp_task task;
	struct lp_timer timer;
	struct lp_work work;
	int result;             /* of the opening */
	struct lp_shard *shard; /* the opened shard */
	uint64_t seq_end;
};

#endif
