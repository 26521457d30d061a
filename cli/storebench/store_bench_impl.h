/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of the store's benchmark.
 *
 * A phase is a struct lpi_bench_step: next() says what a unit does next, done() judges what came of
 * it. A unit is one of the `depth` places for an operation under way, which may be made of several
 * operations of the store that run side by side (a read longer than the store's limit).
 *
 *   unit_go --next()--> submit ... all parts complete --done()--> counted --> unit_go
 *             |  |
 *             |  +-- LATER: parked until buffers are back
 *             +-- END: the unit rests; the phase ends when all do
 */
#ifndef LP_CLI_STOREBENCH_STORE_BENCH_IMPL_H
#define LP_CLI_STOREBENCH_STORE_BENCH_IMPL_H

#include "base/prng.h"
#include "base/struct/list.h"
#include "cli/storebench/data.h"
#include "cli/storebench/store_bench.h"

#define LPI_BENCH_PARTS   4u
#define LPI_BENCH_CHUNK   UINT64_C(1048576) /* bytes per write while preparing */
#define LPI_BENCH_CHANGES 4u
/* Created objects are told from prepared ones in cells. */
#define LPI_BENCH_CREATED (UINT64_C(1) << 63)

static_assert(LPI_BENCH_PARTS * LP_STORE_READ_MAX >= LP_STORE_WRITE_MAX,
	      "whatever can be written can be read");

struct lpi_bench_part {
	struct lp_store_op op;
	struct lpi_bench_unit *unit;
};

struct lpi_bench_unit {
	struct lpi_benchmark *bench;
	struct lpi_bench_part parts[LPI_BENCH_PARTS];
	uint32_t part_cnt;
	uint32_t pending;
	uint64_t started_ns;

	uint64_t object; /* index; LPI_BENCH_CREATED: of those created */
	uint64_t offset;
	uint64_t length;
	bool is_write;

	struct lp_change changes[LPI_BENCH_CHANGES];
	struct lp_attrs attrs;
	char name[64];
	struct lp_buf *bufs[LPI_BENCH_PATTERN_BUFS]; /* with verify */
	struct lp_seg segs[LPI_BENCH_PATTERN_BUFS];
	uint32_t *crcs; /* one per block of the longest write, when verifying */
	uint32_t one_crc;
	uint32_t *seen; /* generations when the read was submitted, when verifying */
	struct lp_list_node node;
};

LP_LIST_DEFINE(lpi_bench_units, struct lpi_bench_unit, node);

enum lpi_bench_next { LPI_BENCH_SUBMIT, LPI_BENCH_LATER, LPI_BENCH_END };

struct lpi_bench_step {
	enum lpi_bench_next (*next)(struct lpi_benchmark *bench, struct lpi_bench_unit *unit);
	/* 0 or what is wrong. NULL: nothing, if all parts succeeded. */
	int (*done)(struct lpi_benchmark *bench, struct lpi_bench_unit *unit);
};

struct lpi_bench_object {
	struct lp_ino ino;   /* nr 0: not there */
	uint64_t have_bytes; /* up to here it is filled */
};

/* The numbers of created objects, in pieces so that none is ever moved. */
#define LPI_BENCH_PIECE  UINT64_C(65536)
#define LPI_BENCH_PIECES (LPI_BENCH_OBJECTS_MAX / LPI_BENCH_PIECE)

struct lpi_benchmark {
	struct lpi_bench_options options;
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store;
	struct lp_prng prng;
	struct lpi_bench_pattern pattern;
	uint32_t cell_bytes;
	uint64_t cells_per_object;
	int64_t wall_base_ns; /* wall time when the reactor's time was 0 */

	struct lp_ino dir;
	struct lpi_bench_object *objects;
	uint32_t *generations; /* with verify: of each cell; 0: of a former run */
	struct lp_ino *created[LPI_BENCH_PIECES];
	uint64_t created_cnt;
	uint64_t deleted_cnt; /* objects before this index are gone */

	/* The phase. */
	const struct lpi_bench_step *step;
	struct lpi_bench_unit *units;
	struct lpi_bench_units parked;
	uint32_t active_cnt;
	uint64_t cursor; /* the step's */
	uint64_t started;
	uint64_t ops_max; /* UINT64_MAX: none */
	uint64_t end_ns;
	int error;
	char why[200];
	struct lpi_bench_result result;
};

struct lpi_bench_call {
	struct lp_store_op op;
	bool done;
};

/* --- store_bench.c ---------------------------------------------------------------------------- */

/* Runs the step with up to `depth` units until it ends or fails. */
int lpi_bench_run(struct lpi_benchmark *bench, const struct lpi_bench_step *step,
		  uint32_t depth) LP_MUST_CHECK;
/* Submits one operation and turns until it completes; returns its result. */
int lpi_bench_call(struct lpi_benchmark *bench, struct lpi_bench_call *call) LP_MUST_CHECK;
/* 0, or the error of the first part that failed, with the sentence recorded. */
int lpi_bench_parts_result(struct lpi_bench_unit *unit) LP_MUST_CHECK;
/* Records the sentence, unless there is one already, and returns err. */
int lpi_bench_fail(struct lpi_benchmark *bench, int err, const char *fmt, ...) LP_PRINTF(3, 4);

/* --- storebench/ops.c ------------------------------------------------------------------------ */

extern const struct lpi_bench_step lpi_bench_steps[LPI_BENCH_KIND_CNT];

#define LPI_BENCH_NAME_BYTES sizeof(((struct lpi_bench_unit *)0)->name)

/* The name of an object; index may carry LPI_BENCH_CREATED. */
void lpi_bench_object_name(const struct lpi_benchmark *bench, uint64_t index, char *ret_name);
/* What the names of all prepared objects of this kind begin with. */
void lpi_bench_object_prefix(const struct lpi_benchmark *bench, char *ret_prefix);
/* The index of a name that has the prefix, or UINT64_MAX. */
uint64_t lpi_bench_object_index(const struct lpi_benchmark *bench, struct lp_bytes name);
struct lp_ino lpi_bench_object_ino(const struct lpi_benchmark *bench, uint64_t index);

struct lp_change lpi_bench_named(enum lp_change_type type, struct lp_ino ino, struct lp_bytes name,
				 struct lp_ino target);
/* The attributes of a new object, in unit->attrs. */
void lpi_bench_attrs(struct lpi_bench_unit *unit, enum lp_inode_type type);
/* Fills unit->segs and the payload for [unit->offset, + length) of unit->object. False: no
 * buffers now. */
bool lpi_bench_payload(struct lpi_bench_unit *unit, struct lp_payload *ret_payload) LP_MUST_CHECK;
struct lp_change lpi_bench_write(const struct lpi_bench_unit *unit, struct lp_ino ino,
				 const struct lp_payload *payload);
/* The unit's first part becomes a transaction of its first `cnt` changes. */
void lpi_bench_txn(struct lpi_bench_unit *unit, uint32_t cnt);
/* One transaction: the object, what it holds, its entry. */
void lpi_bench_create(struct lpi_bench_unit *unit, uint64_t index, struct lp_ino ino,
		      const struct lp_payload *payload);
/* One more part: the entry of that object. */
void lpi_bench_lookup(struct lpi_bench_unit *unit, uint64_t index);
/* One transaction: the object goes with its entry. */
void lpi_bench_delete(struct lpi_bench_unit *unit, uint64_t index);

/* --- storebench/read.c ----------------------------------------------------------------------- */

/* With verify: the newest generation of the cell of a prepared object; 0: a former run's. */
uint32_t *lpi_bench_generation(struct lpi_benchmark *bench, uint64_t object, uint64_t offset);
/* The unit's parts read [offset, + length) of its object. */
void lpi_bench_read(struct lpi_bench_unit *unit, struct lp_ino ino);
/* With verify: every byte that the parts read. */
int lpi_bench_check_read(struct lpi_benchmark *bench, struct lpi_bench_unit *unit) LP_MUST_CHECK;
/* The attributes of a prepared object. */
int lpi_bench_check_stat(struct lpi_benchmark *bench, struct lpi_bench_unit *unit) LP_MUST_CHECK;

#endif
