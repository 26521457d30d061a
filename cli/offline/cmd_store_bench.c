/* SPDX-License-Identifier: Apache-2.0 */
/* lapis store-bench: the call of the store's benchmark. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/storebench/run.h"
#include "store/commit/deferred_records.h"

#define OBJECT_BYTES   (UINT64_C(256) << 20)
#define STAT_OBJECTS   UINT64_C(10000)
#define DELETE_OBJECTS UINT64_C(100000)
#define RUN_NS         (5 * LP_NS_PER_S)

struct call {
	const struct lpi_cli_command *self;
	struct lpi_bench_run_options options;
	uint64_t depth;
	uint64_t shard_idx;
	uint64_t spin_us;
	bool has_warmup;
	bool mem;
};

enum {
	OPT_OP = 256,
	OPT_SIZE,
	OPT_DEPTH,
	OPT_OBJECTS,
	OPT_OBJECT_SIZE,
	OPT_SECONDS,
	OPT_OPS,
	OPT_WARMUP,
	OPT_PATH,
	OPT_DEFERRED_STORE,
	OPT_ALLOCATOR,
	OPT_STORE,
	OPT_DELAY,
	OPT_DB,
	OPT_WAL,
	OPT_MEMORY,
	OPT_DATA_CACHE,
	OPT_SHARD,
	OPT_SEED,
	OPT_SPIN,
	OPT_VERIFY,
	OPT_JSON,
	OPT_KEEP,
	OPT_EXPLAIN,
	OPT_STATES,
	OPT_ABANDON,
};

static int parse_seconds(const char *text, uint64_t *ret_ns)
{
	char *end;
	double value = strtod(text, &end);
	if (end == text || *end != '\0' || !(value >= 0))
		return -EINVAL;
	if (!(value <= 1e6))
		return -ERANGE;
	*ret_ns = (uint64_t)(value * (double)LP_NS_PER_S);
	return 0;
}

/* 0, -EINVAL, -ERANGE; -ENOENT for none of these. */
static int take_number(struct call *call, int c, const char *text)
{
	struct lpi_bench_options *bench = &call->options.bench;
	switch (c) {
	case OPT_SIZE:
		return lpi_cli_parse_size(text, &bench->size_bytes);
	case OPT_OBJECT_SIZE:
		return lpi_cli_parse_size(text, &bench->object_bytes);
	case OPT_MEMORY:
		return lpi_cli_parse_size(text, &call->options.session.memory_bytes);
	case OPT_DATA_CACHE:
		return lpi_cli_parse_size(text, &call->options.session.data_cache_bytes);
	case OPT_DEPTH:
		return lpi_cli_parse_number(text, 1, LPI_BENCH_DEPTH_MAX, &call->depth);
	case OPT_OBJECTS:
		return lpi_cli_parse_number(text, 1, LPI_BENCH_OBJECTS_MAX, &bench->objects_cnt);
	case OPT_OPS:
		return lpi_cli_parse_number(text, 1, LPI_BENCH_OBJECTS_MAX, &bench->ops_max);
	case OPT_SHARD:
		return lpi_cli_parse_number(text, 0, LP_SHARDS_MAX - 1, &call->shard_idx);
	case OPT_SEED:
		return lpi_cli_parse_number(text, 0, UINT64_MAX, &bench->seed);
	case OPT_SPIN:
		return lpi_cli_parse_number(text, 0, 1000000, &call->spin_us);
	case OPT_SECONDS:
		return parse_seconds(text, &bench->run_ns);
	case OPT_WARMUP:
		call->has_warmup = true;
		return parse_seconds(text, &bench->warmup_ns);
	default:
		return -ENOENT;
	}
}

/* The index of a name, or -EINVAL. */
static int find_name(const char *const *names, int cnt, const char *text)
{
	for (int i = 0; i < cnt; i++) {
		if (strcmp(names[i], text) == 0)
			return i;
	}
	return -EINVAL;
}

static int take_word(struct call *call, int c, const char *text)
{
	static const char *const stores[] = {"block", "mem", "file"};
	const char *allocators[LP_ALLOC_KIND_CNT];
	const char *deferred[LP_DEFERRED_STORE_CNT] = {lp_deferred_store_name(LP_DEFERRED_LOG),
						       lp_deferred_store_name(LP_DEFERRED_KV)};
	int found = 0;
	for (int i = 0; i < LP_ALLOC_KIND_CNT; i++)
		allocators[i] = lp_alloc_kind_name((enum lp_alloc_kind)i);
	switch (c) {
	case OPT_OP:
		found = lpi_bench_kind_parse(text);
		call->options.bench.kind = found < 0 ? LPI_BENCH_READ : (enum lpi_bench_kind)found;
		break;
	case OPT_PATH:
		found = lpi_bench_path_parse(text);
		call->options.session.write_path =
			found < 0 ? LP_PATH_AUTO : (enum lp_write_path)found;
		break;
	case OPT_DEFERRED_STORE:
		found = find_name(deferred, LP_DEFERRED_STORE_CNT, text);
		call->options.session.deferred_store =
			found < 0 ? LP_DEFERRED_LOG : (enum lp_deferred_store)found;
		break;
	case OPT_ALLOCATOR:
		found = find_name(allocators, LP_ALLOC_KIND_CNT, text);
		call->options.session.alloc_kind =
			found < 0 ? LP_ALLOC_HYBRID : (enum lp_alloc_kind)found;
		break;
	case OPT_STORE:
		found = find_name(stores, LP_ARRAY_SIZE(stores), text);
		call->mem = found == 1;
		call->options.session.is_file = found == 2;
		break;
	case OPT_DELAY:
		call->options.session.delay = lp_bdev_delay_profile(text);
		call->options.delay = text;
		found = call->options.session.delay == NULL ? -EINVAL : 0;
		break;
	default:
		return -ENOENT;
	}
	return found < 0 ? -EINVAL : 0;
}

static void take_flag(struct call *call, int c, const char *text)
{
	switch (c) {
	case OPT_DB:
		call->options.session.path[LP_ROLE_DB] = text;
		break;
	case OPT_WAL:
		call->options.session.path[LP_ROLE_WAL] = text;
		break;
	case OPT_VERIFY:
		call->options.bench.verify = true;
		break;
	case OPT_JSON:
		call->options.json = true;
		break;
	case OPT_KEEP:
		call->options.keep = true;
		break;
	case OPT_EXPLAIN:
		call->options.explain = true;
		break;
	case OPT_STATES:
		call->options.states = true;
		break;
	default:
		call->options.abandon = true;
		break;
	}
}

static int take_option(struct call *call, int c, const char *text)
{
	int err = take_number(call, c, text);
	if (err == -ERANGE)
		return lpi_cli_usage(call->self, "%s is out of range", text);
	if (err == -EINVAL)
		return lpi_cli_usage(call->self, "%s is not a number or size", text);
	if (err == 0)
		return LP_EXIT_OK;
	err = take_word(call, c, text);
	if (err == -EINVAL)
		return lpi_cli_usage(call->self, "%s is not a known name", text);
	if (err == -ENOENT)
		take_flag(call, c, text);
	return LP_EXIT_OK;
}

/* --- What was not given ----------------------------------------------------------------------- */

static void set_defaults(struct call *call)
{
	struct lpi_bench_options *bench = &call->options.bench;
	bool small = bench->kind == LPI_BENCH_CREATE || bench->kind == LPI_BENCH_DELETE ||
		     bench->kind == LPI_BENCH_STAT;
	if (bench->object_bytes == 0 && small)
		bench->object_bytes = bench->size_bytes;
	if (bench->object_bytes == 0 && bench->size_bytes > 0)
		bench->object_bytes = OBJECT_BYTES - OBJECT_BYTES % bench->size_bytes;
	if (bench->objects_cnt == 0 && bench->kind == LPI_BENCH_DELETE)
		bench->objects_cnt = bench->ops_max != 0 ? bench->ops_max : DELETE_OBJECTS;
	if (bench->objects_cnt == 0)
		bench->objects_cnt = bench->kind == LPI_BENCH_STAT ? STAT_OBJECTS : 1;
	if (bench->ops_max == 0 && bench->run_ns == 0)
		bench->run_ns = RUN_NS;
	if (!call->has_warmup && bench->ops_max == 0)
		bench->warmup_ns = LP_MIN(bench->run_ns / 10, LP_NS_PER_S);
	bench->depth = (uint32_t)call->depth;
	bench->run_nr = (uint64_t)lp_clock_wall_ns(lp_clock_system());
	call->options.session.shard_idx = (uint32_t)call->shard_idx;
	call->options.session.spin_ns = call->spin_us * LP_NS_PER_US;
}

/* LP_EXIT_OK, or the status of a wrong call. */
static int take_device(struct call *call, int cnt, char **paths)
{
	struct lpi_session_options *session = &call->options.session;
	if (!call->mem) {
		if (cnt != 1)
			return lpi_cli_usage(call->self, "exactly one %s is needed",
					     session->is_file ? "DIRECTORY" : "DEVICE");
		if (session->is_file &&
		    (session->path[LP_ROLE_DB] != NULL || session->path[LP_ROLE_WAL] != NULL ||
		     session->delay != NULL))
			return lpi_cli_usage(call->self,
					     "--store file takes no --db, --wal or --delay");
		session->path[LP_ROLE_DATA] = paths[0];
		return LP_EXIT_OK;
	}
	if (cnt != 0 || session->path[LP_ROLE_DB] != NULL || session->path[LP_ROLE_WAL] != NULL ||
	    session->delay != NULL)
		return lpi_cli_usage(call->self,
				     "--store mem takes no DEVICE, --db, --wal or --delay");
	return LP_EXIT_OK;
}

static int run_call(struct call *call, int cnt, char **paths)
{
	int status = take_device(call, cnt, paths);
	if (status != LP_EXIT_OK)
		return status;
	set_defaults(call);
	const char *fault = lpi_bench_fault(&call->options.bench);
	if (fault != NULL)
		return lpi_cli_usage(call->self, "%s", fault);
	return lpi_bench_run_all(&call->options);
}

static int run(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"op", required_argument, NULL, OPT_OP},
		{"size", required_argument, NULL, OPT_SIZE},
		{"depth", required_argument, NULL, OPT_DEPTH},
		{"objects", required_argument, NULL, OPT_OBJECTS},
		{"object-size", required_argument, NULL, OPT_OBJECT_SIZE},
		{"seconds", required_argument, NULL, OPT_SECONDS},
		{"ops", required_argument, NULL, OPT_OPS},
		{"warmup", required_argument, NULL, OPT_WARMUP},
		{"write-path", required_argument, NULL, OPT_PATH},
		{"deferred-store", required_argument, NULL, OPT_DEFERRED_STORE},
		{"allocator", required_argument, NULL, OPT_ALLOCATOR},
		{"store", required_argument, NULL, OPT_STORE},
		{"delay", required_argument, NULL, OPT_DELAY},
		{"db", required_argument, NULL, OPT_DB},
		{"wal", required_argument, NULL, OPT_WAL},
		{"memory", required_argument, NULL, OPT_MEMORY},
		{"data-cache", required_argument, NULL, OPT_DATA_CACHE},
		{"shard", required_argument, NULL, OPT_SHARD},
		{"seed", required_argument, NULL, OPT_SEED},
		{"spin-us", required_argument, NULL, OPT_SPIN},
		{"verify", no_argument, NULL, OPT_VERIFY},
		{"json", no_argument, NULL, OPT_JSON},
		{"keep", no_argument, NULL, OPT_KEEP},
		{"explain", no_argument, NULL, OPT_EXPLAIN},
		{"states", no_argument, NULL, OPT_STATES},
		{"abandon", no_argument, NULL, OPT_ABANDON},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	struct call call = {.self = self, .depth = 1, .spin_us = 100, .options.delay = "none"};
	call.options.bench.size_bytes = LP_BLOCK_BYTES;
	call.options.bench.seed = 1;
	int status = LP_EXIT_OK;
	int c;
	while ((c = lpi_cli_next_option(self, argc, argv, options, &status)) > 0) {
		status = take_option(&call, c, optarg);
		if (status != LP_EXIT_OK)
			return status;
	}
	if (c == 0)
		return status;
	return run_call(&call, argc - optind, argv + optind);
}

const struct lpi_cli_command lpi_cli_store_bench = {
	.name = "store-bench",
	.synopsis = "[--op OP] [--size BYTES] [--depth N] [--seconds N | --ops N] [OPTION]... "
		    "DEVICE",
	.summary = "Measure one shard's store, without a daemon",
	.help = "  --op OP            overwrite (default), create, read, seqwrite, seqread, "
		"delete,\n"
		"                     stat, mixed (70 % reads, 30 % overwrites)\n"
		"  --size BYTES       size of one operation (default: 4K)\n"
		"  --depth N          operations under way at once, 1 to 1024 (default: 1)\n"
		"  --objects N        how many objects to work on\n"
		"  --object-size BYTES  size of each (default: 256M; for stat and delete: --size)\n"
		"  --seconds N        how long to run (default: 5)\n"
		"  --ops N            how many operations to run\n"
		"  --warmup N         seconds that do not count (default: a tenth; with --ops: "
		"none)\n"
		"  --write-path PATH  auto (default), inline, deferred, direct\n"
		"  --deferred-store KIND  where deferred writes wait: log (default), kv\n"
		"  --allocator KIND   hybrid (default), bitmap, extent\n"
		"  --store KIND       block (default), mem (without DEVICE), file (a directory)\n"
		"  --delay PROFILE    imitate a slower device: none, nvme, target, sata-ssd, hdd\n"
		"  --db DEV           the store's device for the index\n"
		"  --wal DEV          the store's device for the commit log\n"
		"  --memory BYTES     for caches and the index (default: 256M); mem: for objects\n"
		"  --data-cache BYTES  how much of this is for data, at most half (default: 0)\n"
		"  --shard N          which shard (default: 0)\n"
		"  --seed N           seed of all random choices (default: 1)\n"
		"  --spin-us N        microseconds to look for completions before sleeping\n"
		"                     (default: 100)\n"
		"  --verify           check every byte read, and at the end all that was written\n"
		"  --explain          say why writes of this size take their path\n"
		"  --states           print how long operations stayed in each state\n"
		"  --json             one JSON object instead of a table\n"
		"  --keep             leave the objects for the next run\n"
		"  --abandon          end as a kill would: nothing is written back or removed\n"
		"  --help             this text\n"
		"\n"
		"The objects are in a directory of their own; nothing else in the store is "
		"touched.\n",
	.run = run,
};
