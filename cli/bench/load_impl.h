/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the load generator share: slots, steps, the load itself.
 *
 * A phase runs one step. A slot is a request that may be under way; it belongs to a handle. When it
 * is free the step's next() makes its request; when the answer has come done() judges it. Nothing
 * is allocated in between.
 *
 * Threads: the main thread only.
 */
#ifndef LP_CLI_BENCH_LOAD_IMPL_H
#define LP_CLI_BENCH_LOAD_IMPL_H

#include "cli/bench/load.h"
#include "cli/bench/load_cell.h"

#define LPI_LOAD_PREFIX_MAX (LPI_LOAD_KEY_MAX - 16u)
#define LPI_LOAD_CHUNK      (UINT64_C(1) << 20) /* of files that are filled and read back */
#define LPI_LOAD_PREP_DEPTH 32u
#define LPI_LOAD_STARTS     64u /* where in the pattern data may begin: each on a cell */
#define LPI_LOAD_TRIES      64u /* to find a place that is not being written */

enum lpi_load_next {
	LPI_LOAD_GO,
	LPI_LOAD_LATER, /* nothing can begin before something ends */
	LPI_LOAD_END
};

struct lpi_load_slot {
	struct lpi_load *load;
	struct lapis *lapis;
	bool is_under_way;
	uint64_t id; /* of the request */
	enum lpi_load_kind kind;
	uint64_t object;
	bool is_new; /* object counts what was put without --objects */
	uint64_t offset;
	uint64_t length;
	uint64_t begin_ns; /* sent, or due */
	/* With verify. */
	uint64_t first_page;
	uint64_t page_cnt; /* of a write: in the book */
	uint8_t *buf;
	uint32_t *floors; /* of a read: one for each cell, or one for the object */
};

struct lpi_load_step {
	const char *name;
	enum lpi_load_next (*next)(struct lpi_load *load, struct lpi_load_slot *slot,
				   struct lapis_request *request);
	/* 0, or a negative error, which lpi_load_note() was told. */
	int (*done)(struct lpi_load *load, struct lpi_load_slot *slot,
		    const struct lapis_result *result);
	bool is_measured;
	bool ignores_stop;
};

enum lpi_load_flag {
	LPI_LOAD_FOUND = 0x1, /* it is there, as it has to be */
	LPI_LOAD_OURS = 0x2,  /* this run made it */
	LPI_LOAD_GONE = 0x4,  /* this run deleted it */
	LPI_LOAD_DOUBT = 0x8, /* this run tried to */
};

struct lpi_load {
	const struct lpi_load_options *options;
	const struct lp_clock *clock;
	struct lapis *handles[LPI_LOAD_CONNS_MAX];
	struct lpi_load_slot *slots;
	uint32_t slots_cnt;
	struct lpi_load_slot **free_slots; /* a stack */
	uint32_t free_cnt;
	uint32_t under_way;

	/* The phase. */
	const struct lpi_load_step *step;
	bool has_ended; /* nothing more begins */
	uint64_t begin_ns;
	uint64_t run_ns;  /* how long; 0: no limit */
	uint64_t end_ns;  /* 0: none */
	uint64_t ops_max; /* 0: none */
	uint64_t begun;
	uint64_t ended;
	uint64_t all;    /* how many there will be; 0: not known */
	uint64_t cursor; /* of steps that walk */
	uint64_t tick_ns;
	uint64_t cancel_ns; /* after lpi_load_stop(): nobody waits longer; 0: not yet */
	struct lpi_load_pace pace;
	bool is_paced;
	uint64_t row_of_errors;
	int error;    /* ends the phase */
	bool is_lost; /* the daemon has gone */
	char why[LPI_LOAD_TEXT_MAX + LPI_LOAD_KEY_MAX];
	lpi_load_tick_fn *tick;
	void *tick_arg;

	/* What is drawn. */
	struct lp_prng prng;
	struct lpi_load_places places;
	uint64_t unit_bytes;  /* divides sizes and offsets in files */
	uint64_t grain_bytes; /* of places in files */
	uint64_t at_object;   /* sequential, files */
	uint64_t at_offset;
	uint64_t new_cnt;
	uint64_t left_cnt; /* that could not be removed */

	/* The objects. */
	bool is_bucket_ours;
	char prefix[LPI_LOAD_PREFIX_MAX]; /* of the keys of the set */
	char new_prefix[LPI_LOAD_PREFIX_MAX];
	uint8_t *flags;       /* lpi_load_flag */
	uint64_t *inos;       /* files */
	uint64_t fill_chunks; /* of one file, without the last chunk */
	bool fills_last;

	/* Data. */
	uint8_t *pattern;
	uint64_t start; /* counts */
	struct lpi_load_book book;
	uint64_t pages_per_object;
	uint64_t run;
	uint64_t check_cursor;
	uint64_t *failed_new; /* puts of new objects that failed */
	uint32_t failed_new_cnt;

	/* What happened. */
	struct lpi_load_result result;
	struct lpi_load_error errors[LPI_LOAD_KINDS_MAX];
	size_t errors_cnt;
	struct lpi_load_second *seconds;
	size_t seconds_cnt;
	struct lpi_load_part then; /* at the last second */
	uint64_t then_ns;
};

#define LPI_LOAD_FAILED_NEW_MAX 4096u

/* load.c */
uint64_t lpi_load_now(const struct lpi_load *load);
/* -EIO with why, -EINTR. */
int lpi_load_run(struct lpi_load *load, const struct lpi_load_step *step,
		 uint32_t depth) LP_MUST_CHECK;
/* An operation went wrong: counted, the first of its kind kept. Returns status. */
int lpi_load_note(struct lpi_load *load, const struct lpi_load_slot *slot, int status,
		  const char *fmt, ...) LP_PRINTF(4, 5);
/* The phase cannot go on. */
void lpi_load_give_up(struct lpi_load *load, const char *fmt, ...) LP_PRINTF(2, 3);

/* load_ops.c: what is measured. */
extern const struct lpi_load_step lpi_load_measured;
/* The daemon's answer as such: 0, or its error, noted. */
int lpi_load_status(struct lpi_load *load, const struct lpi_load_slot *slot,
		    const struct lapis_result *result);
bool lpi_load_writes(enum lpi_load_op op);
/* Pages of a range of a file, or of an object. */
uint64_t lpi_load_page_of(const struct lpi_load *load, uint64_t object, uint64_t offset);
uint64_t lpi_load_pages_in(const struct lpi_load *load, uint64_t length);

/* load_io.c: requests that carry data, and how it is made and checked. */
void lpi_load_make_write(struct lpi_load *load, struct lpi_load_slot *slot,
			 struct lapis_request *request);
void lpi_load_make_read(struct lpi_load *load, struct lpi_load_slot *slot,
			struct lapis_request *request);
int lpi_load_end_write(struct lpi_load *load, struct lpi_load_slot *slot,
		       const struct lapis_result *result);
int lpi_load_end_read(struct lpi_load *load, struct lpi_load_slot *slot,
		      const struct lapis_result *result);

/* load_set.c: the objects. */
void lpi_load_key(const struct lpi_load *load, uint64_t object, bool is_new, char *ret_key);
/* What keys begin with; when the options and the run are known. */
void lpi_load_name(struct lpi_load *load);
/* Of an object of the set, or a new one, as it was made. */
uint64_t lpi_load_size_of(const struct lpi_load *load, uint64_t object, bool is_new);

#endif
