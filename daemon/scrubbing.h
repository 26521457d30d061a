/* SPDX-License-Identifier: Apache-2.0 */
/* When a shard's data is checked in the background: when somebody asks for it, and by itself some
 * time after the last check, or after the start. What is found is counted, shown and logged.
 *
 * Threads: the shard's. Blocking: none. Allocation: at the beginning. Errors: -ENOMEM, -EALREADY.
 */
#ifndef LP_DAEMON_SCRUBBING_H
#define LP_DAEMON_SCRUBBING_H

#include "daemon/config.h"
#include "daemon/text.h"
#include "store/scrub.h"

struct lpi_scrubbing {
	struct lp_scrub *scrub; /* NULL: not begun */
	struct lp_reactor *reactor;
	uint32_t shard_idx;
	uint64_t interval_ns; /* 0: never by itself */
	uint64_t waits_since_ns;
	bool is_stopping;
	void (*stopped)(void *arg);
	void *arg;
};

/* The rate is shared by all shards. */
int lpi_scrubbing_begin(struct lpi_scrubbing *scrubbing, struct lp_reactor *reactor,
			struct lp_store *store, uint32_t shard_idx) LP_MUST_CHECK;
void lpi_scrubbing_configure(struct lpi_scrubbing *scrubbing, const struct lp_config *config,
			     uint32_t shard_cnt);
/* Now and then: begins what is due. */
void lpi_scrubbing_look(struct lpi_scrubbing *scrubbing);
/* Begins nothing any more; stopped(arg) when nothing is under way, perhaps at once. */
void lpi_scrubbing_stop(struct lpi_scrubbing *scrubbing, void (*stopped)(void *arg), void *arg);
/* Stopped, or never begun. */
void lpi_scrubbing_fini(struct lpi_scrubbing *scrubbing);

/* "status", "start" or "stop"; -EINVAL: none of them. */
int lpi_scrubbing_ask(struct lpi_scrubbing *scrubbing, const char *what) LP_MUST_CHECK;

/* As seen on the shard's thread, for others. */
struct lpi_scrub_report {
	struct lp_scrub_stats stats;
	uint64_t next_ns; /* until it begins by itself; UINT64_MAX: never */
};

void lpi_scrubbing_report(const struct lpi_scrubbing *scrubbing, struct lpi_scrub_report *ret);
void lpi_scrub_json(struct lpi_text *text, uint32_t shard_idx,
		    const struct lpi_scrub_report *report);

#endif
