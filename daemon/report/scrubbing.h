/* SPDX-License-Identifier: Apache-2.0 */
/* Background check of all data of a shard: when it runs, how far it is, what it found.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: allocated at the beginning.
 * Errors: -ENOMEM, -EINVAL.
 *
 * A check begins when it is asked for, and by itself some time after the last one. What it finds is
 * counted, shown and logged. The store keeps when the last check was, and each minute how far the
 * present one is. After a stop of the daemon it goes on there.
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
	struct lpi_damage *damage; /* is told of what was read; NULL: nobody is */
	struct lp_reactor *reactor;
	uint32_t shard_idx;
	uint64_t interval_ns;    /* 0: never by itself */
	uint64_t not_before_ns;  /* of the reactor's clock: a check has failed */
	int64_t since_ns;        /* of the day: when that began to count */
	int64_t whole_ns;        /* when the last whole check ended; 0: none has */
	bool goes_on;            /* a check that has not come to its end is gone on with, */
	struct lp_ino behind;    /* behind this inode */
	uint64_t damaged;        /* in all up to there, or by the last one */
	uint64_t damaged_before; /* what that was when the check under way began, or went on */
	/* What the store knows of it. */
	struct lp_store *store;
	struct lp_store_op op;
	bool is_asking; /* the op is under way */
	bool is_known;  /* it has been read */
	bool has_changed;
	uint64_t saved_ns;
	struct lp_change change;
	struct lp_key key;
	uint8_t value[LP_SCRUB_VALUE_SIZE];
	bool is_stopping;
	bool is_cut_short; /* by the stop of the daemon, not because somebody wants it */
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
	uint64_t damaged; /* also before it was cut short by a stop */
	int64_t whole_ns; /* when the last whole check ended; 0: none has */
};

void lpi_scrubbing_report(const struct lpi_scrubbing *scrubbing, struct lpi_scrub_report *ret);
void lpi_scrub_json(struct lpi_text *text, uint32_t shard_idx,
		    const struct lpi_scrub_report *report);

#endif
