/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/report/scrubbing.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#define NS_PER_HOUR (3600 * (uint64_t)LP_NS_PER_S)
#define RATE_MIN    UINT64_C(4096)
#define KEEP_NS     (60 * (uint64_t)LP_NS_PER_S)
#define AGAIN_NS    NS_PER_HOUR /* after a check that has failed */

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
			     "scrub --list names the objects)",
			     scrubbing->shard_idx, objects, mib,
			     (unsigned long long)stats->damaged);
	else if (stats->is_whole)
		LP_LOG_NOTICE("shard %u: %llu objects checked, %llu MiB: nothing is damaged",
			      scrubbing->shard_idx, objects, mib);
}

/* --- Record in the store ---------------------------------------------------------------------- */

static void end_if_idle(struct lpi_scrubbing *scrubbing);

static uint64_t damaged_of(const struct lpi_scrubbing *scrubbing)
{
	const struct lp_scrub_stats *stats = lp_scrub_stats(scrubbing->scrub);
	return stats->began_ns == 0 ? scrubbing->damaged
				    : scrubbing->damaged_before + stats->damaged;
}

static void kept(struct lp_store_op *op)
{
	struct lpi_scrubbing *scrubbing = LP_CONTAINER_OF(op, struct lpi_scrubbing, op);
	scrubbing->is_asking = false;
	if (op->result < 0) /* the store is full, or read-only */
		LP_LOG_DEBUG("shard %u: how far the check of all data is cannot be kept: %s",
			     scrubbing->shard_idx, lp_strerror(op->result));
	end_if_idle(scrubbing);
}

static void keep(struct lpi_scrubbing *scrubbing)
{
	const struct lp_scrub_value value = {.since_ns = LP_MAX(scrubbing->since_ns, INT64_C(0)),
					     .is_under_way = scrubbing->goes_on,
					     .behind = scrubbing->behind.nr,
					     .damaged = scrubbing->damaged,
					     .whole_ns = LP_MAX(scrubbing->whole_ns, INT64_C(0))};
	if (scrubbing->is_asking || !scrubbing->is_known)
		return;
	scrubbing->has_changed = false;
	scrubbing->is_asking = true;
	scrubbing->saved_ns = lp_reactor_now_ns(scrubbing->reactor);
	lp_scrub_write(&value, &scrubbing->key, scrubbing->value);
	scrubbing->change = (struct lp_change){.type = LP_CHANGE_RECORD};
	scrubbing->change.named.name =
		(struct lp_bytes){scrubbing->key.bytes, (uint32_t)scrubbing->key.len};
	scrubbing->change.named.value = (struct lp_bytes){scrubbing->value, LP_SCRUB_VALUE_SIZE};
	scrubbing->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.complete = kept,
		.txn = {.changes = &scrubbing->change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	lp_store_submit(scrubbing->store, &scrubbing->op);
}

static int64_t day_ns(const struct lpi_scrubbing *scrubbing)
{
	return lp_clock_wall_ns(lp_reactor_clock(scrubbing->reactor));
}

/* Takes over the record, unless a check was requested meanwhile and may have ended, because it is
 * newer. */
static void take_up(struct lpi_scrubbing *scrubbing, const struct lp_scrub_value *value)
{
	bool has_begun = lp_scrub_stats(scrubbing->scrub)->began_ns != 0;
	if (scrubbing->since_ns == 0)
		scrubbing->since_ns = value->since_ns;
	if (scrubbing->whole_ns == 0)
		scrubbing->whole_ns = value->whole_ns;
	if (has_begun)
		return;
	scrubbing->goes_on = value->is_under_way != 0;
	scrubbing->behind.nr = value->behind;
	scrubbing->damaged = value->damaged;
}

/* If there is no record, or it is damaged, which has been recorded, the interval begins now. */
static void known(struct lp_store_op *op)
{
	struct lpi_scrubbing *scrubbing = LP_CONTAINER_OF(op, struct lpi_scrubbing, op);
	struct lp_scrub_value value;
	scrubbing->is_asking = false;
	scrubbing->is_known = true;
	if (op->result == 0 &&
	    lp_scrub_read(scrubbing->value, op->get.value_len, &scrubbing->key, &value) == 0) {
		take_up(scrubbing, &value);
	} else {
		scrubbing->since_ns = day_ns(scrubbing);
		scrubbing->has_changed = true;
	}
	end_if_idle(scrubbing);
}

static void look_up(struct lpi_scrubbing *scrubbing)
{
	scrubbing->is_asking = true;
	scrubbing->op = (struct lp_store_op){
		.opcode = LP_STORE_GET,
		.complete = known,
		.get = {.space = LP_STORE_RECORDS,
			.name = {scrubbing->key.bytes, (uint32_t)scrubbing->key.len},
			.buf = scrubbing->value,
			.buf_len = LP_SCRUB_VALUE_SIZE}};
	lp_store_submit(scrubbing->store, &scrubbing->op);
}

/* --- When it begins and ends ------------------------------------------------------------------ */

/* A caller waits for the stop. */
static void end_if_idle(struct lpi_scrubbing *scrubbing)
{
	if (!scrubbing->is_stopping || scrubbing->is_asking || !lp_scrub_is_idle(scrubbing->scrub))
		return;
	if (scrubbing->has_changed && scrubbing->is_known)
		keep(scrubbing);
	else
		scrubbing->stopped(scrubbing->arg);
}

/* Notes the progress to be kept. An inode that was not read to its end does not count. */
static void note_progress(struct lpi_scrubbing *scrubbing, bool goes_on)
{
	const struct lp_scrub_stats *stats = lp_scrub_stats(scrubbing->scrub);
	scrubbing->goes_on = goes_on;
	scrubbing->behind = goes_on ? stats->at : (struct lp_ino){0};
	scrubbing->damaged =
		scrubbing->damaged_before + (goes_on ? stats->at_damaged : stats->damaged);
	scrubbing->has_changed = true;
}

/* A failed check is repeated after AGAIN_NS. */
static void ended(void *arg)
{
	struct lpi_scrubbing *scrubbing = arg;
	const struct lp_scrub_stats *stats = lp_scrub_stats(scrubbing->scrub);
	log_end(scrubbing);
	if (stats->error != 0)
		scrubbing->not_before_ns = lp_reactor_now_ns(scrubbing->reactor) + AGAIN_NS;
	else if (!scrubbing->is_cut_short)
		scrubbing->since_ns = day_ns(scrubbing);
	if (stats->is_whole)
		scrubbing->whole_ns = day_ns(scrubbing);
	note_progress(scrubbing, scrubbing->is_cut_short && !stats->is_whole);
	if (scrubbing->is_stopping)
		end_if_idle(scrubbing);
	else
		keep(scrubbing);
}

static void passed(void *arg, const struct lp_scrub_verdict *verdict)
{
	const struct lpi_scrubbing *scrubbing = arg;
	if (scrubbing->damage != NULL)
		lpi_damage_passed(scrubbing->damage, verdict);
}

int lpi_scrubbing_begin(struct lpi_scrubbing *scrubbing, struct lp_reactor *reactor,
			struct lp_store *store, uint32_t shard_idx)
{
	const struct lp_scrub_options options = {.reactor = reactor,
						 .store = store,
						 .ended = ended,
						 .passed = passed,
						 .ended_arg = scrubbing};
	*scrubbing =
		(struct lpi_scrubbing){.reactor = reactor, .store = store, .shard_idx = shard_idx};
	lp_key_of_store(&scrubbing->key, "scrub");
	int err = lp_scrub_new(&options, &scrubbing->scrub);
	if (err == 0)
		look_up(scrubbing);
	return err;
}

void lpi_scrubbing_configure(struct lpi_scrubbing *scrubbing, const struct lp_config *config,
			     uint32_t shard_cnt)
{
	uint64_t rate = lp_config_number(config, LP_OPT_SCRUB_RATE);
	scrubbing->interval_ns = lp_config_number(config, LP_OPT_SCRUB_INTERVAL) * NS_PER_HOUR;
	uint64_t own = rate == 0 ? LP_SCRUB_RATE_NOLIMIT : LP_MAX(rate / shard_cnt, RATE_MIN);
	lp_scrub_set_rate(scrubbing->scrub, own);
	if (scrubbing->damage != NULL)
		lpi_damage_set_rate(scrubbing->damage, own);
}

/* If the clock was set back, the wait begins again. */
static uint64_t next_ns(const struct lpi_scrubbing *scrubbing)
{
	int64_t day = day_ns(scrubbing);
	uint64_t now_ns = lp_reactor_now_ns(scrubbing->reactor);
	uint64_t waited_ns = day > scrubbing->since_ns ? (uint64_t)(day - scrubbing->since_ns) : 0;
	uint64_t off_ns = scrubbing->not_before_ns;
	uint64_t left_ns = off_ns > now_ns ? off_ns - now_ns : 0;
	if (scrubbing->interval_ns == 0 || scrubbing->is_stopping || !scrubbing->is_known)
		return UINT64_MAX;
	if (waited_ns < scrubbing->interval_ns)
		left_ns = LP_MAX(left_ns, scrubbing->interval_ns - waited_ns);
	return left_ns;
}

static void start(struct lpi_scrubbing *scrubbing, struct lp_ino behind, uint64_t damaged_before)
{
	scrubbing->damaged_before = damaged_before;
	scrubbing->goes_on = true;
	scrubbing->is_cut_short = false;
	int err = lp_scrub_start(scrubbing->scrub, behind);
	LP_ASSERT(err == 0); /* it is idle */
}

void lpi_scrubbing_look(struct lpi_scrubbing *scrubbing)
{
	uint64_t now_ns = lp_reactor_now_ns(scrubbing->reactor);
	bool is_idle = lp_scrub_is_idle(scrubbing->scrub);
	if (scrubbing->is_stopping || !scrubbing->is_known)
		return;
	if (!is_idle && now_ns - scrubbing->saved_ns >= KEEP_NS)
		note_progress(scrubbing, true);
	if (scrubbing->has_changed)
		keep(scrubbing);
	if (is_idle && scrubbing->goes_on)
		start(scrubbing, scrubbing->behind, scrubbing->damaged);
	else if (is_idle && next_ns(scrubbing) == 0)
		start(scrubbing, (struct lp_ino){0}, 0);
}

void lpi_scrubbing_stop(struct lpi_scrubbing *scrubbing, void (*stopped)(void *arg), void *arg)
{
	if (scrubbing->scrub == NULL) {
		stopped(arg);
		return;
	}
	scrubbing->is_stopping = true;
	scrubbing->stopped = stopped;
	scrubbing->arg = arg;
	if (!lp_scrub_is_idle(scrubbing->scrub)) {
		scrubbing->is_cut_short = true;
		lp_scrub_stop(scrubbing->scrub);
	}
	end_if_idle(scrubbing);
}

void lpi_scrubbing_fini(struct lpi_scrubbing *scrubbing)
{
	lp_scrub_free(scrubbing->scrub);
	scrubbing->scrub = NULL;
}

int lpi_scrubbing_ask(struct lpi_scrubbing *scrubbing, const char *what)
{
	bool is_idle = lp_scrub_is_idle(scrubbing->scrub);
	if (strcmp(what, "start") == 0) {
		if (is_idle && !scrubbing->is_stopping)
			start(scrubbing, (struct lp_ino){0}, 0);
		return 0;
	}
	if (strcmp(what, "stop") == 0) {
		lp_scrub_stop(scrubbing->scrub);
		return 0;
	}
	return strcmp(what, "status") == 0 ? 0 : -EINVAL;
}

/* --- Report ----------------------------------------------------------------------------------- */

void lpi_scrubbing_report(const struct lpi_scrubbing *scrubbing, struct lpi_scrub_report *ret)
{
	ret->stats = *lp_scrub_stats(scrubbing->scrub);
	ret->next_ns = next_ns(scrubbing);
	ret->damaged = damaged_of(scrubbing);
	ret->whole_ns = scrubbing->whole_ns;
}

static const char *state_of(const struct lpi_scrub_report *report)
{
	const struct lp_scrub_stats *stats = &report->stats;
	if (stats->is_running)
		return "running";
	if (stats->began_ns == 0)
		return report->whole_ns == 0 ? "never" : "idle";
	if (stats->error != 0)
		return "failed";
	return stats->is_whole ? "done" : "stopped";
}

static const char *what_of(int error)
{
	if (error == -EIO)
		return "cannot be read";
	return error == -EUCLEAN ? "the index is damaged, or counts it as free"
				 : "checksum mismatch";
}

void lpi_scrub_json(struct lpi_text *text, uint32_t shard_idx,
		    const struct lpi_scrub_report *report)
{
	const struct lp_scrub_stats *stats = &report->stats;
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "shard", shard_idx);
	lpi_json_string(text, "state", state_of(report));
	if (stats->error != 0)
		lpi_json_string(text, "error", lp_strerror(stats->error));
	lpi_json_number(text, "began_ns", (uint64_t)stats->began_ns);
	lpi_json_number(text, "ended_ns", (uint64_t)stats->ended_ns);
	lpi_json_number(text, "whole_ns", (uint64_t)report->whole_ns);
	lpi_json_number(text, "objects", stats->objects);
	lpi_json_number(text, "bytes", stats->bytes);
	lpi_json_number(text, "damaged", report->damaged);
	if (report->next_ns != UINT64_MAX)
		lpi_json_number(text, "next_s", report->next_ns / LP_NS_PER_S);
	lpi_json_open(text, "places", '[');
	for (uint32_t i = 0; i < stats->named_cnt; i++) {
		const struct lp_scrub_place *place = &stats->named[i];
		lpi_json_open(text, NULL, '{');
		lpi_json_number(text, "ino", place->ino.nr);
		lpi_json_number(text, "offset", place->offset);
		lpi_json_string(text, "error", what_of(place->error));
		lpi_json_close(text, '}');
	}
	lpi_json_close(text, ']');
	lpi_json_close(text, '}');
}
