/* SPDX-License-Identifier: Apache-2.0 */
/* The store's benchmark: drives one store through struct lp_store_op, keeping a number of
 * operations under way, and counts what happens. `lapis store-bench` is its command.
 *
 * The phases are called one after the other, each of which turns the reactor until it is done:
 * prepare (the objects the operation needs, unless a former run left them), measure, check (with
 * verify: reads back all that was written), clean (removes what it made). Between two phases the
 * store may be closed and opened again: lpi_bench_use() hands the new one in.
 *
 * What it makes in a store: a directory whose number is in the record "store-bench", and in it
 * objects whose names say their size and index. Objects of a run with verify have names of
 * their own, for their bytes say what they are (cli/storebench/data.h).
 *
 * Threads: the reactor's. Errors: the first one ends the phase; lpi_bench_why() has the sentence.
 */
#ifndef LP_CLI_STOREBENCH_STORE_BENCH_H
#define LP_CLI_STOREBENCH_STORE_BENCH_H

#include "base/struct/hist.h"
#include "store/store.h"

enum lpi_bench_kind {
	LPI_BENCH_OVERWRITE, /* random and aligned, of existing objects */
	LPI_BENCH_CREATE,    /* object and entry in one transaction */
	LPI_BENCH_READ,      /* random */
	LPI_BENCH_SEQWRITE,  /* overwrites from the first object's beginning on, round and round */
	LPI_BENCH_SEQREAD,
	LPI_BENCH_DELETE, /* object and entry in one transaction */
	LPI_BENCH_STAT,
	LPI_BENCH_MIXED, /* 70 % reads, 30 % overwrites, at random */
	LPI_BENCH_KIND_CNT
};

#define LPI_BENCH_DEPTH_MAX   1024u
#define LPI_BENCH_OBJECTS_MAX (UINT64_C(1) << 28)

struct lpi_bench_options {
	enum lpi_bench_kind kind;
	uint64_t size_bytes; /* of one operation: multiple of 4 KiB, or a power of two from 64 */
	uint32_t depth;
	uint64_t objects_cnt;
	uint64_t object_bytes; /* a multiple of size_bytes; of 4 KiB too when above that */
	uint64_t ops_max;      /* 0: no limit but the time */
	uint64_t run_ns;       /* 0: no limit but the number */
	uint64_t warmup_ns;    /* the same operations before, not counted */
	uint64_t seed;
	uint64_t run_nr; /* other than that of any other run in this store */
	bool verify;
};

/* What the measured phase did. */
struct lpi_bench_result {
	uint64_t ops;
	uint64_t writes; /* of those: transactions */
	uint64_t bytes;
	uint64_t errors;
	uint64_t took_ns;
	uint64_t thread_cpu_ns;
	uint64_t process_cpu_ns;
	struct lp_hist latency_ns;
};

struct lpi_benchmark;

/* The sentence for a person when the options make no sense, else NULL. */
const char *lpi_bench_fault(const struct lpi_bench_options *options);
/* -1 for an unknown name. */
int lpi_bench_kind_parse(const char *name);
const char *lpi_bench_kind_name(enum lpi_bench_kind kind);
/* How much the buffers must hold for the benchmark's own sake. */
uint64_t lpi_bench_bufs_bytes(const struct lpi_bench_options *options);

/* The options have no fault. -ENOMEM, -ENOBUFS. */
int lpi_bench_new(const struct lpi_bench_options *options, struct lp_reactor *reactor,
		  struct lp_bufs *bufs, struct lpi_benchmark **ret_bench) LP_MUST_CHECK;
/* The store it was used with is closed. Accepts NULL. */
void lpi_bench_free(struct lpi_benchmark *bench);

void lpi_bench_use(struct lpi_benchmark *bench, struct lp_store *store);
/* *ret_made: objects had to be made. */
int lpi_bench_prepare(struct lpi_benchmark *bench, bool *ret_made) LP_MUST_CHECK;
/* Each object's inode is looked at once, and the operation is run for warmup_ns. */
int lpi_bench_warm(struct lpi_benchmark *bench) LP_MUST_CHECK;
/* The result counts up to the error too. */
int lpi_bench_measure(struct lpi_benchmark *bench,
		      struct lpi_bench_result *ret_result) LP_MUST_CHECK;
/* Reads back what prepare and measure left. Without verify nothing. */
int lpi_bench_check(struct lpi_benchmark *bench) LP_MUST_CHECK;
int lpi_bench_clean(struct lpi_benchmark *bench) LP_MUST_CHECK;
/* What went wrong first, or "". */
const char *lpi_bench_why(const struct lpi_benchmark *bench);

#endif
