/* SPDX-License-Identifier: Apache-2.0 */
/* On devices the store is opened up to three times: to prepare, to measure, and to read back and
 * clean up; and what warming up deferred is waited for. So the measured phase begins with nothing
 * left to be written back, what it wrote until all was in its place is known to the byte, as is the
 * time that took, and what is read back comes from the device. */
#include "cli/storebench/run.h"

#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/storebench/report.h"
#include "store/commit/deferred_records.h"

/* In memory, when only the time limits what is created; and at most of anything. */
#define CREATED_BYTES  (UINT64_C(4) << 30)
#define KEPT_BYTES_MAX (UINT64_C(64) << 30)
/* How often it is looked whether all is in its place, and for how long. */
#define SETTLE_LOOK_NS (10 * LP_NS_PER_MS)
#define SETTLE_NS_MAX  (300 * LP_NS_PER_S)

struct bench_run {
	const struct lpi_bench_run_options *options;
	struct lpi_session session;
	struct lpi_benchmark *bench;
	bool measured;
	struct lpi_bench_report report;
};

static const char *const path_names[LP_PATH_CNT] = {
	[LP_PATH_AUTO] = "auto",
	[LP_PATH_INLINE] = "inline",
	[LP_PATH_DEFERRED] = "deferred",
	[LP_PATH_DIRECT] = "direct",
};

const char *lpi_bench_path_name(enum lp_write_path path)
{
	LP_ASSERT(path < LP_PATH_CNT);
	return path_names[path];
}

int lpi_bench_path_parse(const char *name)
{
	for (int i = 0; i < LP_PATH_CNT; i++) {
		if (strcmp(name, path_names[i]) == 0)
			return i;
	}
	return -1;
}

static int failed(const struct bench_run *run, const char *phase, int err)
{
	const char *why = lpi_bench_why(run->bench);
	if (err < 0)
		(void)lpi_cli_fail("store-bench", "%s: %s", phase,
				   why[0] != '\0' ? why : lp_strerror(err));
	return err;
}

static int reopen(struct bench_run *run)
{
	if (lpi_session_is_mem(&run->session))
		return 0;
	int err = 0;
	if (run->session.store != NULL)
		err = lpi_session_close(&run->session, false);
	if (err == 0)
		err = lpi_session_open(&run->session);
	if (err == 0)
		lpi_bench_use(run->bench, run->session.store);
	return err;
}

static const char *longest_phase(const struct lp_reactor_stats *stats)
{
	for (int i = 0; i < LP_PHASE_CNT; i++) {
		if (stats->absence_own_max_ns > 0 &&
		    stats->absence_own_max_by_phase_ns[i] == stats->absence_own_max_ns)
			return lp_reactor_phase_name((enum lp_reactor_phase)i);
	}
	return "none";
}

static void count(struct bench_run *run, struct lpi_bench_counts *ret)
{
	struct lp_store_stats store;
	struct lp_bdev_stats sync;
	const struct lp_reactor_stats *reactor = lp_reactor_stats(run->session.reactor);
	lp_store_read_stats(run->session.store, &store);
	lpi_session_sync_stats(&run->session, &sync);
	*ret = (struct lpi_bench_counts){
		.log_writes = store.log_writes,
		.log_bytes = store.log_bytes,
		.data_writes = store.data_writes,
		.data_bytes = store.data_bytes,
		.data_reads = store.data_reads,
		.data_read_bytes = store.data_read_bytes,
		.flushes = store.flushes,
		.background_reads = sync.ops[LP_BDEV_READ],
		.background_read_bytes = sync.bytes[LP_BDEV_READ],
		.background_writes = sync.ops[LP_BDEV_WRITE] + sync.ops[LP_BDEV_WRITE_THROUGH],
		.background_bytes = sync.bytes[LP_BDEV_WRITE] + sync.bytes[LP_BDEV_WRITE_THROUGH],
		.background_flushes = sync.ops[LP_BDEV_FLUSH],
		.commits = store.commits,
		.inode_misses = store.inode_misses,
		.index_waits = store.index_waits,
		.space_waits = store.space_waits,
		.data_hits = store.data_hits,
		.data_misses = store.data_misses,
		.ahead_reads = store.ahead_reads,
		.ahead_blocks = store.ahead_blocks,
		.ahead_used = store.ahead_used,
		.ahead_wasted = store.ahead_wasted,
		.ahead_waits = store.ahead_waits,
		.turns = reactor->turns,
		.enters = reactor->enters,
		.absences = reactor->absences,
		.absences_preempted = reactor->absences_preempted,
		.absences_blocked = reactor->absences_blocked,
		.absence_max_ns = reactor->absence_max_ns,
		.absence_own_max_ns = reactor->absence_own_max_ns,
		.absence_phase = longest_phase(reactor),
	};
	for (int i = 0; i < LP_PATH_CNT; i++)
		ret->paths[i] = store.writes_by_path[i];
}

/* All but the longest absence, which was forgotten before, and what is settled later. */
static void subtract(struct lpi_bench_counts *from, const struct lpi_bench_counts *earlier)
{
	from->log_writes -= earlier->log_writes;
	from->log_bytes -= earlier->log_bytes;
	from->data_writes -= earlier->data_writes;
	from->data_bytes -= earlier->data_bytes;
	from->data_reads -= earlier->data_reads;
	from->data_read_bytes -= earlier->data_read_bytes;
	from->flushes -= earlier->flushes;
	from->background_reads -= earlier->background_reads;
	from->background_read_bytes -= earlier->background_read_bytes;
	from->background_writes -= earlier->background_writes;
	from->background_bytes -= earlier->background_bytes;
	from->background_flushes -= earlier->background_flushes;
	from->commits -= earlier->commits;
	from->inode_misses -= earlier->inode_misses;
	from->index_waits -= earlier->index_waits;
	from->space_waits -= earlier->space_waits;
	from->data_hits -= earlier->data_hits;
	from->data_misses -= earlier->data_misses;
	from->ahead_reads -= earlier->ahead_reads;
	from->ahead_blocks -= earlier->ahead_blocks;
	from->ahead_used -= earlier->ahead_used;
	from->ahead_wasted -= earlier->ahead_wasted;
	from->ahead_waits -= earlier->ahead_waits;
	from->turns -= earlier->turns;
	from->enters -= earlier->enters;
	from->absences -= earlier->absences;
	from->absences_preempted -= earlier->absences_preempted;
	from->absences_blocked -= earlier->absences_blocked;
	for (int i = 0; i < LP_PATH_CNT; i++)
		from->paths[i] -= earlier->paths[i];
}

static uint64_t written_bytes(const struct lp_bdev_stats *stats)
{
	return stats->bytes[LP_BDEV_WRITE] + stats->bytes[LP_BDEV_WRITE_THROUGH];
}

/* Everything written by channels and blocking calls up to now; complete when the store is closed.
 */
static uint64_t written_in_all(const struct bench_run *run)
{
	struct lp_bdev_stats past;
	struct lp_bdev_stats sync;
	lpi_session_past_stats(&run->session, &past);
	lpi_session_sync_stats(&run->session, &sync);
	return written_bytes(&past) + written_bytes(&sync);
}

static void begin_times(struct bench_run *run)
{
	struct lpi_bench_report *report = &run->report;
	report->times_cnt = 0;
	if (run->options->states)
		report->times_cnt =
			lp_store_read_times(run->session.store, report->times, LP_STORE_TIMES_MAX);
	LP_ASSERT(report->times_cnt <= LP_STORE_TIMES_MAX);
}

/* What the store only knows while it is open. */
static void ask_store(struct bench_run *run)
{
	struct lpi_bench_report *report = &run->report;
	struct lp_store_time now[LP_STORE_TIMES_MAX];
	(void)lp_store_read_times(run->session.store, now, report->times_cnt);
	for (size_t i = 0; i < report->times_cnt; i++) {
		report->times[i].cnt = now[i].cnt - report->times[i].cnt;
		report->times[i].ns = now[i].ns - report->times[i].ns;
	}
	lp_store_read_usage(run->session.store, &report->usage);
	bool is_chosen = run->options->session.write_path == LP_PATH_AUTO &&
			 report->result.writes > 0 && !lpi_session_is_mem(&run->session);
	if (run->options->explain || is_chosen)
		(void)lp_store_explain(run->session.store, run->options->bench.size_bytes,
				       report->explain, sizeof(report->explain));
}

static void look_again(struct lp_timer *timer)
{
	(void)timer; /* the turn is over */
}

/* Until all that was deferred is in its place. */
static void settle(struct bench_run *run)
{
	struct lp_reactor *reactor = run->session.reactor;
	struct lp_timer timer = {.fire = look_again};
	uint64_t end_ns = lp_reactor_now_ns(reactor) + SETTLE_NS_MAX;
	struct lp_store_stats stats;
	lp_store_read_stats(run->session.store, &stats);
	while (stats.pending_bytes > 0 && lp_reactor_now_ns(reactor) < end_ns) {
		lp_timer_start(reactor, &timer, lp_reactor_now_ns(reactor) + SETTLE_LOOK_NS);
		while (lp_timer_is_armed(&timer))
			(void)lp_reactor_turn(reactor, true);
		lp_store_read_stats(run->session.store, &stats);
	}
}

static int close_measured(struct bench_run *run)
{
	const struct lp_clock *clock = lp_reactor_clock(run->session.reactor);
	uint64_t begun_ns = lp_clock_mono_ns(clock);
	int err = lpi_session_close(&run->session, run->options->abandon);
	run->report.close_ns = lp_clock_mono_ns(clock) - begun_ns;
	return err;
}

/* Of what was done by channels that are detached now and were not before. */
static void count_late(struct bench_run *run, const struct lp_bdev_stats *before)
{
	struct lpi_bench_counts *counts = &run->report.counts;
	struct lp_bdev_stats past;
	lpi_session_past_stats(&run->session, &past);
	counts->late_ops = past.late - before->late;
	for (int i = 0; i < LP_BDEV_OPCODE_CNT; i++)
		counts->device_ops += past.ops[i] - before->ops[i];
}

/* Measures, and closes the store unless it would be lost. */
static int measure(struct bench_run *run)
{
	struct lpi_bench_counts before;
	struct lpi_bench_counts *counts = &run->report.counts;
	bool is_mem = lpi_session_is_mem(&run->session);
	run->report.open_ns = run->session.open_ns;
	int err = failed(run, "warming up", lpi_bench_warm(run->bench));
	if (err < 0)
		return err;
	settle(run);
	lp_reactor_forget_absences(run->session.reactor);
	count(run, &before);
	/* What the open store has written so far is in no detached channel yet. */
	uint64_t so_far = written_in_all(run) + before.log_bytes + before.data_bytes;
	begin_times(run);
	err = failed(run, "measuring", lpi_bench_measure(run->bench, &run->report.result));
	run->measured = true;
	count(run, counts);
	subtract(counts, &before);
	ask_store(run);
	if (is_mem)
		return err;
	struct lp_bdev_stats past;
	lpi_session_past_stats(&run->session, &past);
	int close_err = close_measured(run);
	count_late(run, &past);
	if (close_err == 0 && !run->options->abandon)
		counts->settled_bytes = written_in_all(run) - so_far;
	return err == 0 ? close_err : err;
}

static int check_and_clean(struct bench_run *run)
{
	const struct lpi_bench_run_options *options = run->options;
	if (!options->bench.verify && options->keep)
		return 0;
	int err = reopen(run);
	if (err == 0)
		err = failed(run, "reading back", lpi_bench_check(run->bench));
	if (err == 0 && !options->keep)
		err = failed(run, "cleaning up", lpi_bench_clean(run->bench));
	return err;
}

static int run_phases(struct bench_run *run)
{
	bool made = false;
	int err = lpi_session_open(&run->session);
	if (err < 0)
		return err;
	lpi_bench_use(run->bench, run->session.store);
	err = failed(run, "preparing", lpi_bench_prepare(run->bench, &made));
	if (err == 0 && made)
		err = reopen(run);
	if (err == 0)
		err = measure(run);
	if (run->measured && run->options->json)
		lpi_bench_report_json(&run->report);
	else if (run->measured)
		lpi_bench_report_text(&run->report);
	if (err == 0 && !run->options->abandon)
		err = check_and_clean(run);
	return err;
}

static int run_session(struct bench_run *run)
{
	struct lpi_session *session = &run->session;
	int err = lpi_bench_new(&run->options->bench, session->reactor, session->bufs, &run->bench);
	if (err < 0) {
		(void)lpi_cli_fail("store-bench", "%s", lp_strerror(err));
		return err;
	}
	err = run_phases(run);
	if (session->store != NULL) {
		int close_err = lpi_session_close(session, err < 0);
		err = err < 0 ? err : close_err;
	}
	lpi_bench_free(run->bench);
	return err;
}

/* A store in memory keeps everything in the buffers: what is prepared, and what may be created.
 * Only what is used of them takes memory. */
static uint64_t kept_bytes(const struct lpi_bench_run_options *options)
{
	const struct lpi_bench_options *bench = &options->bench;
	uint64_t cnt = bench->objects_cnt;
	uint64_t each = lp_align_up(bench->object_bytes, LP_BLOCK_BYTES);
	if (options->session.path[LP_ROLE_DATA] != NULL)
		return 0;
	if (options->session.memory_bytes != 0)
		return options->session.memory_bytes;
	if (bench->kind == LPI_BENCH_CREATE) {
		cnt = bench->ops_max != 0 ? bench->ops_max : CREATED_BYTES / each;
		each = lp_align_up(bench->size_bytes, LP_BLOCK_BYTES);
	}
	/* An eighth more: buffers of several sizes do not share slabs. */
	return cnt > KEPT_BYTES_MAX / (each * 2) ? KEPT_BYTES_MAX : cnt * each / 8 * 9;
}

int lpi_bench_run_all(const struct lpi_bench_run_options *options)
{
	static struct bench_run run; /* too large for a stack */
	struct lpi_session_options session = options->session;
	run = (struct bench_run){.options = options};
	run.report = (struct lpi_bench_report){
		.options = &options->bench,
		.store = lpi_session_kind(&session),
		.write_path = lpi_bench_path_name(session.write_path),
		.deferred_store = lp_deferred_store_name(session.deferred_store),
		.allocator = lp_alloc_kind_name(session.alloc_kind),
		.delay = options->delay,
	};
	session.bufs_bytes = lpi_bench_bufs_bytes(&options->bench) + kept_bytes(options);
	int err = lpi_session_start(&session, &run.session);
	if (err < 0)
		return LP_EXIT_FAILED;
	err = run_session(&run);
	lpi_session_stop(&run.session);
	return err < 0 ? LP_EXIT_FAILED : LP_EXIT_OK;
}
