/* SPDX-License-Identifier: Apache-2.0 */
/* The load generator behind `lapis bench`: what it is to do, what it did, and its phases.
 *
 * Phases, in this order: open (handles; the bucket), prepare (the objects that the operation needs,
 * unless a former run left them), warm up, measure, check (with verify: reads back all that was
 * written), clean (removes what it made), close. Each runs requests, a bounded number at once, on
 * the calling thread.
 *
 * What it makes: a bucket, and in it objects whose names begin with "file." and "obj." and their
 * number; "vfile." and "vobj." with verify, for their bytes say what they are
 * (cli/bench/load_cell.h); and "new." for what is put without --objects.
 *
 * Threads: the main thread only. Blocking: every phase. Errors of operations are counted, the first
 * of each kind is kept; a phase that cannot go on ends, and `why` says why.
 */
#ifndef LP_CLI_BENCH_LOAD_H
#define LP_CLI_BENCH_LOAD_H

#include "base/struct/hist.h"
#include "cli/bench/load_dist.h"
#include "cli/bench/load_pace.h"
#include "client/lapis.h"

#define LPI_LOAD_DEPTH_MAX   4096u
#define LPI_LOAD_CONNS_MAX   64u
#define LPI_LOAD_OBJECTS_MAX (UINT64_C(1) << 30)
#define LPI_LOAD_FILE_IO_MAX (UINT64_C(4) << 20)
#define LPI_LOAD_OBJECT_MAX  (UINT64_C(1) << 30) /* that is put and got as a whole */
#define LPI_LOAD_BUCKET_MAX  200u
#define LPI_LOAD_KEY_MAX     (LPI_LOAD_BUCKET_MAX + 56u)
#define LPI_LOAD_TEXT_MAX    400u
#define LPI_LOAD_KINDS_MAX   16u /* of errors that are told apart */

enum lpi_load_op {
	LPI_LOAD_WRITE, /* of files, from front to back, round and round */
	LPI_LOAD_READ,
	LPI_LOAD_RANDWRITE, /* of files, anywhere */
	LPI_LOAD_RANDREAD,
	LPI_LOAD_MIXED, /* randread and randwrite */
	LPI_LOAD_PUT,   /* of new objects, or again and again of the same ones */
	LPI_LOAD_GET,
	LPI_LOAD_STAT,
	LPI_LOAD_DELETE,
	LPI_LOAD_LIST,
	LPI_LOAD_PUTGET,
	LPI_LOAD_PING, /* nothing: the way there and back */
	LPI_LOAD_OP_CNT
};

/* What a request is, of which an operation may have two. */
enum lpi_load_kind {
	LPI_LOAD_KIND_READ,
	LPI_LOAD_KIND_WRITE,
	LPI_LOAD_KIND_GET,
	LPI_LOAD_KIND_PUT,
	LPI_LOAD_KIND_STAT,
	LPI_LOAD_KIND_DELETE,
	LPI_LOAD_KIND_LIST,
	LPI_LOAD_KIND_PING,
	LPI_LOAD_KIND_CNT
};

struct lpi_load_options {
	const char *address; /* NULL: the default */
	const char *bucket;
	enum lpi_load_op op;
	uint32_t reads_percent; /* mixed, putget */
	struct lpi_load_sizes sizes;
	uint64_t object_bytes; /* of files */
	uint64_t objects_cnt;  /* 0: put makes new ones; ping needs none */
	enum lpi_load_order order;
	double theta;
	uint32_t items_max; /* of one list */
	uint32_t depth;     /* requests under way, over all connections */
	uint32_t conns_cnt;
	uint64_t run_ns; /* 0: no limit but the number */
	uint64_t ops_max;
	uint64_t warmup_ns;
	double rate; /* 0: a closed loop */
	bool is_poisson;
	bool is_verified;
	bool is_kept;
	bool only_prepares;
	bool is_ready; /* the objects are there: nobody looks for them first */
	uint64_t seed;
	enum lapis_crc crc;
	uint8_t write_path;
	uint32_t timeout_ms;
	uint32_t reconnect_ms; /* 0: the run ends when the daemon goes away */
};

/* The options' sentence for a person when they make no sense, else NULL. */
const char *lpi_load_fault(const struct lpi_load_options *options);
bool lpi_load_uses_files(enum lpi_load_op op);
const char *lpi_load_op_name(enum lpi_load_op op);
/* -1 for an unknown name. */
int lpi_load_op_parse(const char *name);
const char *lpi_load_kind_name(enum lpi_load_kind kind);

/* --- What it did ------------------------------------------------------------------------------ */

struct lpi_load_part {
	uint64_t ops; /* without errors */
	uint64_t errors;
	uint64_t bytes;
	struct lp_hist latency_ns;
};

/* One kind of error: the first is kept. */
struct lpi_load_error {
	enum lpi_load_kind kind;
	int status;
	uint64_t cnt;
	char key[LPI_LOAD_KEY_MAX];
	char text[LPI_LOAD_TEXT_MAX];
};

/* What happened in a second. */
struct lpi_load_second {
	double from_s; /* since the measurement began */
	double until_s;
	uint64_t ops;
	uint64_t errors;
	uint64_t bytes;
	uint64_t p50_ns;
	uint64_t p99_ns;
	uint64_t max_ns;
};

struct lpi_load_result {
	struct lpi_load_part all;
	struct lpi_load_part kinds[LPI_LOAD_KIND_CNT];
	uint64_t took_ns;
	uint64_t user_ns; /* CPU time of this process */
	uint64_t system_ns;
	uint64_t late_cnt; /* open loop: begun more than a millisecond after they were due */
	uint64_t late_max_ns;
	uint64_t unsent_cnt; /* that were due and never begun */
	uint64_t items;      /* list: names that came */
	uint64_t mismatches; /* wrong answers, in all phases */
	uint64_t checked;    /* objects, or parts of files, that were read back at the end */
	uint64_t sends;      /* system calls of all handles */
	uint64_t receives;
	uint64_t retries;  /* messages that were sent again */
	uint64_t connects; /* connections that were made, since the beginning */
	uint64_t shard_misses;
};

/* --- A load ----------------------------------------------------------------------------------- */

struct lpi_load;

/* The options have no fault, and live as long. -ENOMEM. */
int lpi_load_new(const struct lpi_load_options *options, struct lpi_load **ret_load) LP_MUST_CHECK;
/* Closes the handles. Accepts NULL. */
void lpi_load_free(struct lpi_load *load);

/* Called about once a second of a phase: how far it is. */
typedef void lpi_load_tick_fn(void *arg, const struct lpi_load *load);
void lpi_load_set_tick(struct lpi_load *load, lpi_load_tick_fn *tick, void *arg);

/* A phase's errors: -EIO, why() says what happened; -EINTR, lpi_load_stop() was called. */
int lpi_load_open(struct lpi_load *load) LP_MUST_CHECK;
int lpi_load_prepare(struct lpi_load *load) LP_MUST_CHECK;
int lpi_load_warm(struct lpi_load *load) LP_MUST_CHECK;
int lpi_load_measure(struct lpi_load *load) LP_MUST_CHECK;
int lpi_load_check(struct lpi_load *load) LP_MUST_CHECK;
/* Also after lpi_load_stop(), and after a phase that failed. */
int lpi_load_clean(struct lpi_load *load) LP_MUST_CHECK;

/* The phase ends soon. From a signal handler, too. */
void lpi_load_stop(void);
bool lpi_load_is_stopped(void);

const struct lpi_load_result *lpi_load_result(const struct lpi_load *load);
const struct lpi_load_options *lpi_load_options(const struct lpi_load *load);
const char *lpi_load_why(const struct lpi_load *load);
/* *ret_cnt of them. */
const struct lpi_load_error *lpi_load_errors(const struct lpi_load *load, size_t *ret_cnt);
const struct lpi_load_second *lpi_load_seconds(const struct lpi_load *load, size_t *ret_cnt);
/* The phase that is running: its name, how much of it is done, of how much (0: not known). */
const char *lpi_load_phase(const struct lpi_load *load, uint64_t *ret_done, uint64_t *ret_all);
/* The daemon's own figures as it gives them, JSON, the caller's to free(); NULL: it did not. */
char *lpi_load_ask_stats(struct lpi_load *load);

#endif
