/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/checking.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/log.h"
#include "daemon/service_impl.h"
#include "store/check/fsck.h"

#define HOLD_LOOK_NS LP_NS_PER_MS
/* Changes over several shards wait up to this time. */
#define HOLD_NS  (2 * LP_NS_PER_S)
#define TOLD_MAX 64u /* findings that are kept and logged */
#define NICE     10  /* requests have priority */
/* A check's memory beside bits for blocks: one part in NAMES_SHARE of --memory for its table of
 * inodes, and 2 MiB for counts of shared blocks. If that is too little it reads the index again. */
#define NAMES_SHARE 16u
#define REFS_GROUPS 8192u
#define OBJECT_KEPT 512u
#define TEXT_KEPT   256u

enum state { IDLE, HOLD, PAUSE, TAKE, LOOK, CLEAN };

struct told {
	enum lp_fsck_kind kind;
	enum lp_fsck_severity severity;
	char object[OBJECT_KEPT];
	char text[TEXT_KEPT];
};

struct lpi_checking {
	struct lp_service *service;
	enum state state;
	bool is_stopping;                            /* the daemon is stopping */
	bool is_unwanted;                            /* its end was requested */
	void (*stopped)(struct lp_service *service); /* while it is stopping */
	uint64_t hold_until_ns;
	struct lp_timer timer;
	/* Errands for the threads. */
	struct lpi_errand errands[LPI_THREADS_MAX];
	uint32_t left;
	int result;
	bool is_busy; /* in HOLD: a change over several shards is under way */
	void (*next)(struct lpi_checking *checking);
	/* A thread of its own for as long as the check takes, so other work keeps its helpers. In
	 * LOOK the following fields belong to it. */
	struct lp_workers *worker;
	struct lp_work work;
	uint64_t names_bytes; /* size of its table of inodes */
	struct lp_view *views[LPI_SERVICE_SHARDS_MAX];
	struct lp_fsck_events events;
	struct lp_fsck_report report;
	struct told told[TOLD_MAX];
	uint32_t told_cnt;
	/* Results of the last check. */
	int error;
	int64_t began_ns; /* of the day; 0: never */
	int64_t ended_ns;
	uint64_t paused_ns; /* how long changes waited for the check */
	uint64_t pause_began_ns;
};

static const char *why_of(int error)
{
	if (error == -ENOTSUP)
		return "a store of this kind has no such check";
	if (error == -EROFS)
		return "a shard has failed, or is read-only: stop the daemon, and see lapis fsck";
	if (error == -EAGAIN)
		return "the shards did not come to rest together: try again";
	if (error == -ECANCELED)
		return "a shard has failed, or needs the space that the check keeps";
	return lp_strerror(error);
}

static uint64_t now_ns(const struct lpi_checking *checking)
{
	return lp_reactor_now_ns(checking->service->reactor);
}

static int64_t day_ns(const struct lpi_checking *checking)
{
	return lp_clock_wall_ns(lp_reactor_clock(checking->service->reactor));
}

/* --- On the threads ----------------------------------------------------------------------------
 */

/* 1: changes over several shards are under way on this thread. */
static void hold_there(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	int result = 0;
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		lp_ns_hold_shared(s->ns, true);
		result |= lp_ns_has_shared(s->ns);
	}
	lpi_errand_end(errand, result);
}

static void shard_rests(struct lpi_shard *shard, int result)
{
	struct lpi_shard_check *check = &shard->check;
	struct lpi_errand *errand = check->errand;
	struct lpi_thread *thread = errand->thread;
	check->is_paused = result == 0;
	check->errand = NULL;
	if (thread->check_result == 0)
		thread->check_result = result;
	if (--thread->check_left == 0)
		lpi_errand_end(errand, thread->check_result);
}

static void rested(struct lp_pause *pause, int result)
{
	shard_rests(LP_CONTAINER_OF(pause, struct lpi_shard, check.pause), result);
}

static void pause_there(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	struct lpi_shard *shard = lpi_thread_next(thread, NULL);
	thread->check_left = 0;
	thread->check_result = 0;
	for (struct lpi_shard *s = shard; s; s = lpi_thread_next(thread, s)) {
		s->check.errand = errand;
		thread->check_left++;
	}
	while (shard != NULL) {
		struct lpi_shard *next = lpi_thread_next(thread, shard);
		shard->check.pause = (struct lp_pause){.rested = rested};
		int err = lp_store_pause(shard->store, &shard->check.pause);
		if (err < 0)
			shard_rests(shard, err);
		shard = next;
	}
}

static void go_on(struct lpi_shard *shard)
{
	if (shard->check.is_paused)
		lp_store_resume(shard->store, &shard->check.pause);
	shard->check.is_paused = false;
	lp_ns_hold_shared(shard->ns, false);
}

/* All shards are at rest. So a shard that goes on cannot make changes that are in the view of
 * another. */
static void take_there(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	int result = 0;
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		int err = lp_store_view_take(s->store, &s->check.view);
		result = result == 0 ? err : result;
		go_on(s);
	}
	lpi_errand_end(errand, result);
}

static void clean_there(struct lpi_errand *errand)
{
	struct lpi_thread *thread = errand->thread;
	for (struct lpi_shard *s = lpi_thread_next(thread, NULL); s;
	     s = lpi_thread_next(thread, s)) {
		go_on(s);
		if (s->check.view != NULL)
			lp_store_view_end(s->store, s->check.view);
		s->check.view = NULL;
	}
	lpi_errand_end(errand, 0);
}

/* --- On all of them ----------------------------------------------------------------------------
 */

static void errand_done(struct lpi_errand *errand)
{
	struct lpi_checking *checking = errand->arg;
	checking->is_busy |= errand->result > 0;
	if (checking->result == 0 && errand->result < 0)
		checking->result = errand->result;
	if (--checking->left == 0)
		checking->next(checking);
}

static void ask_all(struct lpi_checking *checking, void (*run)(struct lpi_errand *errand),
		    void (*next)(struct lpi_checking *checking))
{
	struct lp_service *service = checking->service;
	checking->left = service->thread_cnt;
	checking->result = 0;
	checking->is_busy = false;
	checking->next = next;
	for (uint32_t i = 0; i < service->thread_cnt; i++) {
		struct lpi_errand *errand = &checking->errands[i];
		errand->run = run;
		errand->done = errand_done;
		errand->arg = checking;
		lpi_errand_start(&service->threads[i], errand);
	}
}

/* --- The end -----------------------------------------------------------------------------------
 */

static void log_end(const struct lpi_checking *checking)
{
	const struct lp_fsck_report *report = &checking->report;
	for (uint32_t i = 0; i < checking->told_cnt; i++) {
		const struct told *told = &checking->told[i];
		LP_LOG_ERROR("check: %s: %s: %s", lp_fsck_kind_name(told->kind), told->object,
			     told->text);
	}
	if (checking->error == -ECANCELED && checking->is_unwanted)
		LP_LOG_NOTICE("the check of the structure was stopped");
	else if (checking->error < 0)
		LP_LOG_WARN("the check of the structure has not been done: %s",
			    why_of(checking->error));
	else
		LP_LOG_NOTICE(
			"the structure was checked: %llu inodes, %llu entries, %llu blocks: "
			"%llu problems, %llu warnings",
			(unsigned long long)report->inodes, (unsigned long long)report->entries,
			(unsigned long long)report->blocks, (unsigned long long)report->problems,
			(unsigned long long)report->warnings);
}

static void cleaned(struct lpi_checking *checking)
{
	lp_workers_free(checking->worker);
	checking->worker = NULL;
	checking->ended_ns = day_ns(checking);
	log_end(checking);
	checking->state = IDLE;
	if (checking->is_stopping)
		checking->stopped(checking->service);
}

static void clean(struct lpi_checking *checking, int error)
{
	checking->error = error;
	checking->state = CLEAN;
	if (checking->paused_ns == 0 && checking->pause_began_ns != 0)
		checking->paused_ns = now_ns(checking) - checking->pause_began_ns;
	ask_all(checking, clean_there, cleaned);
}

/* --- Looking -----------------------------------------------------------------------------------
 */

/* On the worker's thread. */
static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	struct lpi_checking *checking = LP_CONTAINER_OF(events, struct lpi_checking, events);
	if (checking->told_cnt == TOLD_MAX)
		return;
	struct told *told = &checking->told[checking->told_cnt++];
	told->kind = finding->kind;
	told->severity = finding->severity;
	(void)snprintf(told->object, sizeof(told->object), "%s", finding->object);
	(void)snprintf(told->text, sizeof(told->text), "%s", finding->text);
}

static void look_run(struct lp_work *work)
{
	struct lpi_checking *checking = LP_CONTAINER_OF(work, struct lpi_checking, work);
	const struct lp_fsck_look look = {.views = checking->views,
					  .view_cnt = checking->service->shard_cnt,
					  .events = &checking->events,
					  .names_bytes_max = checking->names_bytes,
					  .refs_groups_max = REFS_GROUPS};
	(void)setpriority(PRIO_PROCESS, 0,
			  NICE); /* for this thread; the check runs without it, too */
	checking->error = lp_fsck_look(&look, &checking->report);
}

static void look_done(struct lp_work *work)
{
	struct lpi_checking *checking = LP_CONTAINER_OF(work, struct lpi_checking, work);
	clean(checking, checking->error);
}

static void end_views(struct lpi_checking *checking)
{
	for (uint32_t i = 0; i < checking->service->shard_cnt; i++)
		atomic_store_explicit(&checking->views[i]->is_over, true, memory_order_relaxed);
}

static void taken(struct lpi_checking *checking)
{
	struct lp_service *service = checking->service;
	int err = checking->result;
	checking->paused_ns = now_ns(checking) - checking->pause_began_ns;
	if (err == 0)
		err = lp_workers_new(1, &checking->worker);
	if (err < 0) {
		clean(checking, err);
		return;
	}
	checking->state = LOOK;
	checking->names_bytes = lp_config_number(&service->config, LP_OPT_MEMORY) / NAMES_SHARE;
	for (uint32_t i = 0; i < service->shard_cnt; i++)
		checking->views[i] = service->shards[i].check.view;
	if (checking->is_unwanted)
		end_views(checking);
	checking->work = (struct lp_work){.run = look_run, .done = look_done};
	lp_workers_submit(checking->worker, service->reactor, &checking->work);
}

/* --- Coming to rest ----------------------------------------------------------------------------
 */

static void paused(struct lpi_checking *checking)
{
	int result = checking->is_unwanted ? -ECANCELED : checking->result;
	if (result < 0) {
		clean(checking, result);
		return;
	}
	checking->state = TAKE;
	ask_all(checking, take_there, taken);
}

static void hold(struct lp_timer *timer);

static void held(struct lpi_checking *checking)
{
	if (checking->is_unwanted) {
		clean(checking, -ECANCELED);
	} else if (!checking->is_busy) {
		checking->state = PAUSE;
		checking->pause_began_ns = now_ns(checking);
		ask_all(checking, pause_there, paused);
	} else if (now_ns(checking) >= checking->hold_until_ns) {
		clean(checking, -EAGAIN);
	} else {
		lp_timer_start(checking->service->reactor, &checking->timer,
			       now_ns(checking) + HOLD_LOOK_NS);
	}
}

static void hold(struct lp_timer *timer)
{
	ask_all(LP_CONTAINER_OF(timer, struct lpi_checking, timer), hold_there, held);
}

static void start(struct lpi_checking *checking)
{
	checking->state = HOLD;
	checking->is_unwanted = false;
	checking->error = 0;
	checking->told_cnt = 0;
	checking->report = (struct lp_fsck_report){.problems = 0};
	checking->began_ns = day_ns(checking);
	checking->ended_ns = 0;
	checking->pause_began_ns = 0;
	checking->paused_ns = 0;
	checking->hold_until_ns = now_ns(checking) + HOLD_NS;
	hold(&checking->timer);
}

static void stop(struct lpi_checking *checking)
{
	if (checking->state == IDLE || checking->state == CLEAN)
		return;
	checking->is_unwanted = true;
	if (checking->state == LOOK)
		end_views(checking);
}

/* --- Asking ------------------------------------------------------------------------------------
 */

int lpi_checking_ask(struct lpi_checking *checking, const char *what)
{
	if (strcmp(what, "start") == 0) {
		if (checking->state == IDLE && !checking->is_stopping)
			start(checking);
		return 0;
	}
	if (strcmp(what, "stop") == 0) {
		stop(checking);
		return 0;
	}
	return strcmp(what, "status") == 0 ? 0 : -EINVAL;
}

void lpi_checking_stop(struct lpi_checking *checking, void (*stopped)(struct lp_service *service))
{
	checking->is_stopping = true;
	checking->stopped = stopped;
	if (checking->state == IDLE)
		stopped(checking->service);
	else
		stop(checking);
}

/* --- Report ----------------------------------------------------------------------------------- */

static const char *state_of(const struct lpi_checking *checking)
{
	if (checking->state != IDLE)
		return "running";
	if (checking->began_ns == 0)
		return "never";
	if (checking->error == -ECANCELED && checking->is_unwanted)
		return "stopped";
	return checking->error < 0 ? "failed" : "done";
}

static void json_told(const struct told *told, struct lpi_text *text)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_string(text, "severity", told->severity == LP_FSCK_ERROR ? "error" : "warning");
	lpi_json_string(text, "kind", lp_fsck_kind_name(told->kind));
	lpi_json_string(text, "object", told->object);
	lpi_json_string(text, "text", told->text);
	lpi_json_close(text, '}');
}

void lpi_checking_json(const struct lpi_checking *checking, struct lpi_text *text)
{
	/* In LOOK, findings and counts belong to the worker. */
	bool is_over = checking->state == IDLE;
	const struct lp_fsck_report none = {.problems = 0};
	const struct lp_fsck_report *report = is_over ? &checking->report : &none;
	lpi_json_open(text, NULL, '{');
	lpi_json_string(text, "state", state_of(checking));
	if (is_over && checking->error < 0)
		lpi_json_string(text, "error", why_of(checking->error));
	lpi_json_number(text, "began_ns", (uint64_t)checking->began_ns);
	lpi_json_number(text, "ended_ns", (uint64_t)checking->ended_ns);
	lpi_json_number(text, "paused_us", checking->paused_ns / LP_NS_PER_US);
	lpi_json_number(text, "shards", report->shards);
	lpi_json_number(text, "inodes", report->inodes);
	lpi_json_number(text, "entries", report->entries);
	lpi_json_number(text, "blocks", report->blocks);
	lpi_json_number(text, "problems", report->problems);
	lpi_json_number(text, "warnings", report->warnings);
	lpi_json_open(text, "findings", '[');
	for (uint32_t i = 0; is_over && i < checking->told_cnt; i++)
		json_told(&checking->told[i], text);
	lpi_json_close(text, ']');
	lpi_json_close(text, '}');
}

/* --- Birth and death ---------------------------------------------------------------------------
 */

int lpi_checking_new(struct lp_service *service, struct lpi_checking **ret_checking)
{
	struct lpi_checking *checking = calloc(1, sizeof(*checking));
	if (checking == NULL)
		return -ENOMEM;
	checking->service = service;
	checking->timer.fire = hold;
	checking->events.found = found;
	*ret_checking = checking;
	return 0;
}

void lpi_checking_free(struct lpi_checking *checking)
{
	LP_ASSERT(checking == NULL || checking->state == IDLE);
	free(checking);
}
