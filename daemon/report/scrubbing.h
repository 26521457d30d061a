/* SPDX-License-Identifier: Apache-2.0 */
/* Background check of all data of a shard: schedule, progress and findings.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: allocated at the beginning.
 * Errors: -ENOMEM, -EINVAL.
 *
 * A check begins on request, and by itself interval_ns after the last one. Its findings are
 * counted, shown and logged. The store keeps the time of the last check and, updated each minute,
 * the progress of the present one. After a restart of the daemon the check goes on there.
 */
#ifndef LP_DAEMON_REPORT_SCRUBBING_H
#define LP_DAEMON_REPORT_SCRUBBING_H

#include "daemon/config/config.h"
#include "daemon/report/damage.h"
#include "daemon/report/text.h"
#include "store/check/scrub.h"
#include "store/record/values.h"

struct lpi_scrubbing {
	struct lp_scrub *scrub;    /* NULL: not begun */
	struct lpi_damage *damage; /* gets the result of each read; NULL: not used */
	struct lp_reactor *reactor;
	uint32_t shard_idx;
	uint64_t interval_ns;    /* 0: never by itself */
	uint64_t not_before_ns;  /* of the reactor's clock: when a failed check may be repeated */
	int64_t since_ns;        /* time of day from which the interval counts */
	int64_t whole_ns;        /* when the last whole check ended; 0: none has */
	bool goes_on;            /* an unfinished check will be continued */
	struct lp_ino behind;    /* the last inode that it has checked */
	uint64_t damaged;        /* found by it so far, or by the last whole check */
	uint64_t damaged_before; /* value of `damaged` when the check under way began, or was
				    continued */
	/* The store's record of the check. */
	struct lp_store *store;
	struct lp_store_op op;
	bool is_asking; /* op is under way */
	bool is_known;  /* the record has been read */
	bool has_changed;
	uint64_t saved_ns;
	struct lp_change change;
	struct lp_key key;
	uint8_t value[LP_SCRUB_VALUE_SIZE];
	bool is_stopping;
	bool is_cut_short; /* by the stop of the daemon, not by a request */
	void (*stopped)(void *arg);
	void *arg;
};

/* All shards share the rate. */
int lpi_scrubbing_begin(struct lpi_scrubbing *scrubbing, struct lp_reactor *reactor,
			struct lp_store *store, uint32_t shard_idx) LP_MUST_CHECK;
void lpi_scrubbing_configure(struct lpi_scrubbing *scrubbing, const struct lp_config *config,
			     uint32_t shard_cnt);
/* Called at intervals: begins a check that is due. */
void lpi_scrubbing_look(struct lpi_scrubbing *scrubbing);
/* Begins no more checks. Calls stopped(arg) when none is under way, perhaps at once. */
void lpi_scrubbing_stop(struct lpi_scrubbing *scrubbing, void (*stopped)(void *arg), void *arg);
/* It has stopped, or never begun. */
void lpi_scrubbing_fini(struct lpi_scrubbing *scrubbing);

/* "status", "start" or "stop"; -EINVAL: another word. */
int lpi_scrubbing_ask(struct lpi_scrubbing *scrubbing, const char *what) LP_MUST_CHECK;

/* A copy made on the shard's thread, for others. */
struct lpi_scrub_report {
	struct lp_scrub_stats stats;
	uint64_t next_ns; /* until it begins by itself; UINT64_MAX: never */
	uint64_t damaged; /* including findings before a restart of the daemon */
	int64_t whole_ns; /* when the last whole check ended; 0: none has */
};

void lpi_scrubbing_report(const struct lpi_scrubbing *scrubbing, struct lpi_scrub_report *ret);
void lpi_scrub_json(struct lpi_text *text, uint32_t shard_idx,
		    const struct lpi_scrub_report *report);

#endif
