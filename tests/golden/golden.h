/* SPDX-License-Identifier: Apache-2.0 */
/* Golden images: small stores of one format version that are kept in the tree (tests/golden), so
 * that later code is held to reading them. Here: a machine of simulated time and memory that makes
 * such images and looks into them.
 *
 * Threads: the main thread. Errors: none come back; whatever goes wrong ends the program with 1
 * and a line on standard error.
 */
#ifndef LP_TESTS_GOLDEN_GOLDEN_H
#define LP_TESTS_GOLDEN_GOLDEN_H

#include "store/shard/shard.h"
#include "store/store.h"
#include "store/volume/devices.h"

#define LPI_GOLDEN_SHARDS_MAX 2u

#define LPI_GOLDEN_OK(err) lpi_golden_ok((err), __FILE__, __LINE__, #err)
#define LPI_GOLDEN_CHECK(cond)                                                                     \
	do {                                                                                       \
		if (!(cond))                                                                       \
			lpi_golden_fail(__FILE__, __LINE__, #cond);                                \
	} while (0)

_Noreturn void lpi_golden_fail(const char *file, int line, const char *what);
/* A negative errno ends the program. */
void lpi_golden_ok(int err, const char *file, int line, const char *what);

struct lpi_golden {
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev[LP_ROLES]; /* in memory; NULL: there is none */
	struct lp_devices devices;
	uint32_t shard_cnt;
	struct lp_store *stores[LPI_GOLDEN_SHARDS_MAX]; /* open ones, or these: */
	struct lp_shard *shards[LPI_GOLDEN_SHARDS_MAX];
};

/* --- The machine ------------------------------------------------------------------------------ */

/* With an empty store on devices of memory. */
void lpi_golden_new(struct lpi_golden *golden, uint32_t shard_cnt, bool has_fast_devices);
/* With the store from an image: `path`, and where they exist `path`.db and `path`.wal. */
void lpi_golden_load(struct lpi_golden *golden, const char *path);
/* Closed again; the image's files are sparse. */
void lpi_golden_save(const struct lpi_golden *golden, const char *path);
void lpi_golden_end(struct lpi_golden *golden);

void lpi_golden_open(struct lpi_golden *golden);
void lpi_golden_close(struct lpi_golden *golden, bool abandon);
/* The shards alone, read-only: for looking at the index. */
void lpi_golden_open_shards(struct lpi_golden *golden);
void lpi_golden_close_shards(struct lpi_golden *golden);

/* Something happens. */
void lpi_golden_turn(struct lpi_golden *golden);
/* Submits, waits; the result. */
int lpi_golden_do(struct lpi_golden *golden, uint32_t shard, struct lp_store_op *op);

/* --- The stores that are kept ----------------------------------------------------------------- */

/* Makes the store `name`, closed or cut off. */
void lpi_golden_make(struct lpi_golden *golden, const char *name);
/* Their names, ended by NULL. */
extern const char *const lpi_golden_names[];

/* --- Looking into one ------------------------------------------------------------------------- */

/* What users see, as text on standard output; the stores are open. */
void lpi_golden_print_contents(struct lpi_golden *golden);
/* Label, chunk tables, and every record of the index; the shards are open. */
void lpi_golden_print_records(struct lpi_golden *golden);

#endif
