/* SPDX-License-Identifier: Apache-2.0 */
/* The engine: units, phases, and what is counted. */
#include "cli/storebench/store_bench_impl.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/error.h"

/* One buffer more per unit than its data takes, for what a store reads to merge. */
#define SPARE_BYTES     ((uint64_t)LPI_BENCH_PATTERN_BUFS * LP_BUF_LARGE)
#define GENERATIONS_MAX (UINT64_C(1) << 30)

static const char *const kind_names[LPI_BENCH_KIND_CNT] = {
	[LPI_BENCH_OVERWRITE] = "overwrite", [LPI_BENCH_CREATE] = "create",
	[LPI_BENCH_READ] = "read",           [LPI_BENCH_SEQWRITE] = "seqwrite",
	[LPI_BENCH_SEQREAD] = "seqread",     [LPI_BENCH_DELETE] = "delete",
	[LPI_BENCH_STAT] = "stat",           [LPI_BENCH_MIXED] = "mixed",
};

int lpi_bench_kind_parse(const char *name)
{
	for (int i = 0; i < LPI_BENCH_KIND_CNT; i++) {
		if (strcmp(name, kind_names[i]) == 0)
			return i;
	}
	return -1;
}

const char *lpi_bench_kind_name(enum lpi_bench_kind kind)
{
	LP_ASSERT(kind < LPI_BENCH_KIND_CNT);
	return kind_names[kind];
}

static bool is_whole(uint64_t bytes)
{
	return bytes % LP_BLOCK_BYTES == 0;
}

const char *lpi_bench_fault(const struct lpi_bench_options *options)
{
	uint64_t size = options->size_bytes;
	uint64_t object = options->object_bytes;
	if (size < LPI_BENCH_CELL_MIN || size > LP_STORE_WRITE_MAX)
		return "--size must be from 64 bytes to 4 MiB";
	if (!is_whole(size) && (size > LP_BLOCK_BYTES || !lp_is_power_of_two(size)))
		return "--size must be a multiple of 4 KiB, or a smaller power of two";
	if (object < size || object > LP_STORE_FILE_MAX || object % size != 0)
		return "--object-size must be a multiple of --size, at most 16 TiB";
	if (!is_whole(object) && object > LP_BLOCK_BYTES)
		return "--object-size must be a multiple of 4 KiB, or less than 4 KiB";
	if (options->depth == 0 || options->depth > LPI_BENCH_DEPTH_MAX)
		return "--depth must be from 1 to 1024";
	if (options->objects_cnt == 0 || options->objects_cnt > LPI_BENCH_OBJECTS_MAX)
		return "--objects must be from 1 to 268435456";
	if (options->verify &&
	    object / LP_MIN(size, LP_BLOCK_BYTES) * options->objects_cnt > GENERATIONS_MAX)
		return "too much data to verify: use fewer or smaller objects";
	return NULL;
}

uint64_t lpi_bench_bufs_bytes(const struct lpi_bench_options *options)
{
	/* What a chunk of preparation, a write or a read takes, in slabs of the largest class. */
	uint64_t each = lp_align_up(options->size_bytes, LP_BLOCK_BYTES) * 2;
	return SPARE_BYTES + LP_MAX(options->depth * each, 32 * LPI_BENCH_CHUNK) + SPARE_BYTES;
}

int lpi_bench_fail(struct lpi_benchmark *bench, int err, const char *fmt, ...)
{
	va_list ap;
	if (bench->why[0] != '\0')
		return err;
	va_start(ap, fmt);
	(void)vsnprintf(bench->why, sizeof(bench->why), fmt, ap); /* a longer one is cut */
	va_end(ap);
	return err;
}

const char *lpi_bench_why(const struct lpi_benchmark *bench)
{
	return bench->why;
}

/* --- Units ------------------------------------------------------------------------------------ */

static void unit_go(struct lpi_bench_unit *unit);

static uint64_t now_ns(const struct lpi_benchmark *bench)
{
	return lp_reactor_now_ns(bench->reactor);
}

/* Gives back what the operation held. */
static void unit_release(struct lpi_bench_unit *unit)
{
	for (uint32_t i = 0; i < unit->part_cnt; i++) {
		struct lp_store_op *op = &unit->parts[i].op;
		if (op->opcode == LP_STORE_READ && op->result == 0)
			lp_store_end(unit->bench->store, op);
	}
	for (uint32_t i = 0; i < LPI_BENCH_PATTERN_BUFS; i++) {
		lp_buf_put(unit->bufs[i]);
		unit->bufs[i] = NULL;
	}
}

int lpi_bench_parts_result(struct lpi_bench_unit *unit)
{
	for (uint32_t i = 0; i < unit->part_cnt; i++) {
		int result = unit->parts[i].op.result;
		if (result < 0)
			return lpi_bench_fail(unit->bench, result, "%s of object %llu at %llu: %s",
					      unit->is_write ? "change" : "read",
					      (unsigned long long)unit->object,
					      (unsigned long long)unit->offset,
					      lp_strerror(result));
	}
	return 0;
}

static void unit_done(struct lpi_bench_unit *unit)
{
	struct lpi_benchmark *bench = unit->bench;
	struct lpi_bench_result *result = &bench->result;
	int err = bench->step->done != NULL ? bench->step->done(bench, unit)
					    : lpi_bench_parts_result(unit);
	unit_release(unit);
	if (err < 0) {
		result->errors++;
		if (bench->error == 0)
			bench->error = err;
	} else {
		result->ops++;
		result->writes += unit->is_write;
		result->bytes += unit->length;
		lp_hist_record(&result->latency_ns, now_ns(bench) - unit->started_ns);
	}
	unit_go(unit);
}

static void part_complete(struct lp_store_op *op)
{
	struct lpi_bench_part *part = LP_CONTAINER_OF(op, struct lpi_bench_part, op);
	struct lpi_bench_unit *unit = part->unit;
	LP_ASSERT(unit->pending > 0);
	if (--unit->pending == 0)
		unit_done(unit);
}

static void unit_go(struct lpi_bench_unit *unit)
{
	struct lpi_benchmark *bench = unit->bench;
	enum lpi_bench_next next =
		bench->error == 0 ? bench->step->next(bench, unit) : LPI_BENCH_END;
	if (next == LPI_BENCH_END) {
		bench->active_cnt--;
	} else if (next == LPI_BENCH_LATER) {
		lpi_bench_units_push_back(&bench->parked, unit);
	} else {
		LP_ASSERT(unit->part_cnt > 0 && unit->part_cnt <= LPI_BENCH_PARTS);
		unit->pending = unit->part_cnt;
		unit->started_ns = now_ns(bench);
		for (uint32_t i = 0; i < unit->part_cnt; i++) {
			unit->parts[i].op.complete = part_complete;
			lp_store_submit(bench->store, &unit->parts[i].op);
		}
	}
}

/* Those that wait try again, once each. */
static void unpark(struct lpi_benchmark *bench)
{
	struct lpi_bench_units waiting;
	lpi_bench_units_init(&waiting);
	lpi_bench_units_splice_back(&waiting, &bench->parked);
	struct lpi_bench_unit *unit;
	while ((unit = lpi_bench_units_pop_front(&waiting)) != NULL)
		unit_go(unit);
}

int lpi_bench_run(struct lpi_benchmark *bench, const struct lpi_bench_step *step, uint32_t depth)
{
	LP_ASSERT(bench->active_cnt == 0 && bench->store != NULL);
	LP_ASSERT(depth > 0 && depth <= bench->options.depth);
	bench->step = step;
	bench->cursor = 0;
	bench->started = 0;
	bench->error = 0;
	bench->result = (struct lpi_bench_result){0};
	lp_hist_reset(&bench->result.latency_ns);
	bench->active_cnt = depth;
	for (uint32_t i = 0; i < depth; i++)
		unit_go(&bench->units[i]);
	while (bench->active_cnt > 0) {
		/* Who is parked must not sleep: that buffers came back is not told. */
		(void)lp_reactor_turn(bench->reactor, lpi_bench_units_is_empty(&bench->parked));
		unpark(bench);
	}
	return bench->error;
}

static void call_complete(struct lp_store_op *op)
{
	LP_CONTAINER_OF(op, struct lpi_bench_call, op)->done = true;
}

int lpi_bench_call(struct lpi_benchmark *bench, struct lpi_bench_call *call)
{
	call->done = false;
	call->op.complete = call_complete;
	lp_store_submit(bench->store, &call->op);
	while (!call->done)
		(void)lp_reactor_turn(bench->reactor, true);
	return call->op.result;
}

/* --- Measuring -------------------------------------------------------------------------------- */

static uint64_t cpu_ns(clockid_t clock)
{
	struct timespec now;
	if (clock_gettime(clock, &now) != 0)
		return 0; /* cannot be: the clocks exist */
	return (uint64_t)now.tv_sec * LP_NS_PER_S + (uint64_t)now.tv_nsec;
}

static int run_measured(struct lpi_benchmark *bench, uint64_t ops_max, uint64_t run_ns)
{
	const struct lp_clock *clock = lp_reactor_clock(bench->reactor);
	uint64_t thread_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t process_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID);
	uint64_t start_ns = lp_clock_mono_ns(clock);
	bench->ops_max = ops_max != 0 ? ops_max : UINT64_MAX;
	bench->end_ns = run_ns != 0 ? start_ns + run_ns : UINT64_MAX;
	int err = lpi_bench_run(bench, &lpi_bench_steps[bench->options.kind], bench->options.depth);
	bench->result.took_ns = lp_clock_mono_ns(clock) - start_ns;
	bench->result.thread_cpu_ns = cpu_ns(CLOCK_THREAD_CPUTIME_ID) - thread_ns;
	bench->result.process_cpu_ns = cpu_ns(CLOCK_PROCESS_CPUTIME_ID) - process_ns;
	return err;
}

int lpi_bench_measure(struct lpi_benchmark *bench, struct lpi_bench_result *ret_result)
{
	int err = run_measured(bench, bench->options.ops_max, bench->options.run_ns);
	*ret_result = bench->result;
	return err;
}

static enum lpi_bench_next touch_next(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	if (bench->cursor >= bench->options.objects_cnt)
		return LPI_BENCH_END;
	unit->object = bench->cursor++;
	unit->offset = 0;
	unit->length = 0;
	unit->is_write = false;
	unit->part_cnt = 1;
	unit->parts[0].op.opcode = LP_STORE_STAT;
	unit->parts[0].op.stat.ino = lpi_bench_object_ino(bench, unit->object);
	return LPI_BENCH_SUBMIT;
}

int lpi_bench_warm(struct lpi_benchmark *bench)
{
	static const struct lpi_bench_step touch = {.next = touch_next};
	int err = 0;
	if (bench->objects != NULL)
		err = lpi_bench_run(bench, &touch, bench->options.depth);
	/* Deleting would use up what is to be measured. */
	if (err == 0 && bench->options.warmup_ns > 0 && bench->options.kind != LPI_BENCH_DELETE)
		err = run_measured(bench, 0, bench->options.warmup_ns);
	return err;
}

/* --- Birth and death -------------------------------------------------------------------------- */

static int new_units(struct lpi_benchmark *bench)
{
	const struct lpi_bench_options *options = &bench->options;
	bench->units = calloc(options->depth, sizeof(*bench->units));
	if (bench->units == NULL)
		return -ENOMEM;
	size_t blocks = lp_bytes_to_blocks_up(LP_MAX(options->size_bytes, LPI_BENCH_CHUNK));
	size_t cells = LP_MAX(options->size_bytes / bench->cell_bytes, 1);
	for (uint32_t i = 0; i < options->depth; i++) {
		struct lpi_bench_unit *unit = &bench->units[i];
		unit->bench = bench;
		for (uint32_t j = 0; j < LPI_BENCH_PARTS; j++)
			unit->parts[j].unit = unit;
		if (!options->verify)
			continue;
		unit->crcs = calloc(blocks, sizeof(*unit->crcs));
		unit->seen = calloc(cells, sizeof(*unit->seen));
		if (unit->crcs == NULL || unit->seen == NULL)
			return -ENOMEM;
	}
	return 0;
}

static int new_objects(struct lpi_benchmark *bench)
{
	const struct lpi_bench_options *options = &bench->options;
	if (options->kind == LPI_BENCH_CREATE)
		return 0;
	bench->objects = calloc(options->objects_cnt, sizeof(*bench->objects));
	if (bench->objects == NULL)
		return -ENOMEM;
	if (!options->verify)
		return 0;
	bench->generations =
		calloc(options->objects_cnt * bench->cells_per_object, sizeof(*bench->generations));
	return bench->generations != NULL ? 0 : -ENOMEM;
}

int lpi_bench_new(const struct lpi_bench_options *options, struct lp_reactor *reactor,
		  struct lp_bufs *bufs, struct lpi_benchmark **ret_bench)
{
	LP_ASSERT(lpi_bench_fault(options) == NULL);
	LP_ASSERT(options->ops_max > 0 || options->run_ns > 0);
	struct lpi_benchmark *bench = calloc(1, sizeof(*bench));
	if (bench == NULL)
		return -ENOMEM;
	bench->options = *options;
	bench->reactor = reactor;
	bench->bufs = bufs;
	bench->cell_bytes = (uint32_t)LP_MIN(options->size_bytes, LP_BLOCK_BYTES);
	bench->cells_per_object = options->object_bytes / bench->cell_bytes;
	lpi_bench_units_init(&bench->parked);
	lp_prng_init(&bench->prng, options->seed);
	const struct lp_clock *clock = lp_reactor_clock(reactor);
	bench->wall_base_ns = lp_clock_wall_ns(clock) - (int64_t)lp_clock_mono_ns(clock);
	int err = new_units(bench);
	if (err == 0)
		err = new_objects(bench);
	if (err == 0 && !options->verify)
		err = lpi_bench_pattern_init(
			&bench->pattern, bufs,
			options->size_bytes < LP_BLOCK_BYTES ? bench->cell_bytes : 0,
			options->seed);
	if (err < 0) {
		lpi_bench_free(bench);
		return err;
	}
	*ret_bench = bench;
	return 0;
}

void lpi_bench_free(struct lpi_benchmark *bench)
{
	if (bench == NULL)
		return;
	lpi_bench_pattern_fini(&bench->pattern);
	for (uint32_t i = 0; bench->units != NULL && i < bench->options.depth; i++) {
		free(bench->units[i].crcs);
		free(bench->units[i].seen);
	}
	for (size_t i = 0; i < LPI_BENCH_PIECES; i++)
		free(bench->created[i]);
	free(bench->units);
	free(bench->objects);
	free(bench->generations);
	free(bench);
}

void lpi_bench_use(struct lpi_benchmark *bench, struct lp_store *store)
{
	bench->store = store;
}
