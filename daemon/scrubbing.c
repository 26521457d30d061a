/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/scrubbing.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#define NS_PER_HOUR (3600 * (uint64_t)LP_NS_PER_S)
#define RATE_MIN    UINT64_C(4096)

static void log_end(const struct lpi_scrubbing *scrubbing)
{
	const struct lp_scrub_stats *stats = lp_scrub_stats(scrubbing->scrub);
	unsigned long long objects = stats->objects;
	unsigned long long mib = stats->bytes >> 20;
	if (stats->error != 0)
		LP_LOG_ERROR("shard %u: the check of all data ended after %llu objects: %s",
			     scrubbing->shard_idx, objects, lp_strerror(stats->error));
	else if (stats->damaged > 0)
		LP_LOG_ERROR("shard %u: %llu objects checked, %llu MiB: %llu damaged places (lapis "
			     "scrub names them)",
			     scrubbing->shard_idx, objects, mib,
			     (unsigned long long)stats->damaged);
	else if (stats->is_whole)
		LP_LOG_NOTICE("shard %u: %llu objects checked, %llu MiB: nothing is damaged",
			      scrubbing->shard_idx, objects, mib);
}

static void ended(void *arg)
{
	struct lpi_scrubbing *scrubbing = arg;
	scrubbing->waits_since_ns = lp_reactor_now_ns(scrubbing->reactor);
	log_end(scrubbing);
	if (scrubbing->is_stopping)
		scrubbing->stopped(scrubbing->arg);
}

int lpi_scrubbing_begin(struct lpi_scrubbing *scrubbing, struct lp_reactor *reactor,
			struct lp_store *store, uint32_t shard_idx)
{
	const struct lp_scrub_options options = {
		.reactor = reactor, .store = store, .ended = ended, .ended_arg = scrubbing};
	*scrubbing = (struct lpi_scrubbing){.reactor = reactor,
					    .shard_idx = shard_idx,
					    .waits_since_ns = lp_reactor_now_ns(reactor)};
	return lp_scrub_new(&options, &scrubbing->scrub);
}

void lpi_scrubbing_configure(struct lpi_scrubbing *scrubbing, const struct lp_config *config,
			     uint32_t shard_cnt)
{
	uint64_t rate = lp_config_number(config, LP_OPT_SCRUB_RATE);
	scrubbing->interval_ns = lp_config_number(config, LP_OPT_SCRUB_INTERVAL) * NS_PER_HOUR;
	lp_scrub_set_rate(scrubbing->scrub,
			  rate == 0 ? LP_SCRUB_RATE_NOLIMIT : LP_MAX(rate / shard_cnt, RATE_MIN));
}

static uint64_t next_ns(const struct lpi_scrubbing *scrubbing)
{
	uint64_t waited_ns = lp_reactor_now_ns(scrubbing->reactor) - scrubbing->waits_since_ns;
	if (scrubbing->interval_ns == 0 || scrubbing->is_stopping)
		return UINT64_MAX;
	return waited_ns < scrubbing->interval_ns ? scrubbing->interval_ns - waited_ns : 0;
}

void lpi_scrubbing_look(struct lpi_scrubbing *scrubbing)
{
	if (!lp_scrub_is_idle(scrubbing->scrub) || next_ns(scrubbing) > 0)
		return;
	int err = lp_scrub_start(scrubbing->scrub, (struct lp_ino){0});
	LP_ASSERT(err == 0); /* it is idle */
}

void lpi_scrubbing_stop(struct lpi_scrubbing *scrubbing, void (*stopped)(void *arg), void *arg)
{
	bool is_idle = scrubbing->scrub == NULL || lp_scrub_is_idle(scrubbing->scrub);
	scrubbing->is_stopping = true;
	scrubbing->stopped = stopped;
	scrubbing->arg = arg;
	if (is_idle)
		stopped(arg);
	else
		lp_scrub_stop(scrubbing->scrub);
}

void lpi_scrubbing_fini(struct lpi_scrubbing *scrubbing)
{
	lp_scrub_free(scrubbing->scrub);
	scrubbing->scrub = NULL;
}

int lpi_scrubbing_ask(struct lpi_scrubbing *scrubbing, const char *what)
{
	if (strcmp(what, "start") == 0) {
		int err = scrubbing->is_stopping
				  ? 0
				  : lp_scrub_start(scrubbing->scrub, (struct lp_ino){0});
		return err == -EALREADY ? 0 : err;
	}
	if (strcmp(what, "stop") == 0) {
		lp_scrub_stop(scrubbing->scrub);
		return 0;
	}
	return strcmp(what, "status") == 0 ? 0 : -EINVAL;
}

/* --- What is shown ---------------------------------------------------------------------------- */

void lpi_scrubbing_report(const struct lpi_scrubbing *scrubbing, struct lpi_scrub_report *ret)
{
	ret->stats = *lp_scrub_stats(scrubbing->scrub);
	ret->next_ns = next_ns(scrubbing);
}

static const char *state_of(const struct lp_scrub_stats *stats)
{
	if (stats->is_running)
		return "running";
	if (stats->began_ns == 0)
		return "never";
	if (stats->error != 0)
		return "failed";
	return stats->is_whole ? "done" : "stopped";
}

void lpi_scrub_json(struct lpi_text *text, uint32_t shard_idx,
		    const struct lpi_scrub_report *report)
{
	const struct lp_scrub_stats *stats = &report->stats;
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "shard", shard_idx);
	lpi_json_string(text, "state", state_of(stats));
	if (stats->error != 0)
		lpi_json_string(text, "error", lp_strerror(stats->error));
	lpi_json_number(text, "began_ns", (uint64_t)stats->began_ns);
	lpi_json_number(text, "ended_ns", (uint64_t)stats->ended_ns);
	lpi_json_number(text, "objects", stats->objects);
	lpi_json_number(text, "bytes", stats->bytes);
	lpi_json_number(text, "damaged", stats->damaged);
	if (report->next_ns != UINT64_MAX)
		lpi_json_number(text, "next_s", report->next_ns / LP_NS_PER_S);
	lpi_json_open(text, "places", '[');
	for (uint32_t i = 0; i < stats->named_cnt; i++) {
		const struct lp_scrub_place *place = &stats->named[i];
		lpi_json_open(text, NULL, '{');
		lpi_json_number(text, "ino", place->ino.nr);
		lpi_json_number(text, "offset", place->offset);
		lpi_json_string(text, "error",
				place->error == -EIO ? "cannot be read" : "checksum mismatch");
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, ']');
	lpi_json_close(text, '}');
}
