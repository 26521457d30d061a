/* SPDX-License-Identifier: Apache-2.0 */
/* What a load with --verify writes, and what it remembers of it.
 *
 * Data is made of cells of one block, or less at the end. The head of a cell names the run, the
 * object, the place in it and the version, and all its bytes follow from the head: what is lost,
 * torn, stale or in the wrong place shows, also in a later run, which knows nothing but what it
 * reads.
 *
 * The book holds for each thing that is written as one (a cell of a file, or a whole object) which
 * version was acknowledged, and which was sent last. One write at a time is under way for each. A
 * read must show a version between the one that was acknowledged when it was sent, and the last one
 * sent when its answer came; something of an earlier run only if nothing had been acknowledged.
 * Once it is not known of a write whether it was done, or may be done yet, the lower bound stays
 * where it is.
 *
 * Threads: a book belongs to one. Blocking: none. Allocation: at the beginning.
 */
#ifndef LP_CLI_BENCH_LOAD_CELL_H
#define LP_CLI_BENCH_LOAD_CELL_H

#include "base/error.h"

#define LPI_LOAD_CELL_BYTES 4096u
#define LPI_LOAD_CELL_MIN   64u /* of a cell that can tell what it is: its head */

struct lpi_load_cell {
	uint64_t run;         /* wall time of its beginning: later runs have greater ones */
	uint64_t object;      /* its number */
	uint64_t place;       /* bytes from the object's beginning */
	uint64_t total_bytes; /* of the object, where it is written as a whole; else 0 */
	uint64_t seed;
	uint32_t version;
};

/* Any length: of less than LPI_LOAD_CELL_MIN it has no head, but still follows from it. */
void lpi_load_cell_fill(uint8_t *buf, size_t len, const struct lpi_load_cell *cell);
/* What the bytes say they are. -EBADMSG: they are no cell, or not all of one.
 * len >= LPI_LOAD_CELL_MIN. */
int lpi_load_cell_read(const uint8_t *buf, size_t len, struct lpi_load_cell *ret) LP_MUST_CHECK;
/* Whether they are this one. */
bool lpi_load_cell_matches(const uint8_t *buf, size_t len, const struct lpi_load_cell *cell);

/* --- The book --------------------------------------------------------------------------------- */

#define LPI_LOAD_BOOK_MAX (UINT64_C(1) << 27)

struct lpi_load_page {
	uint32_t acked : 31;
	uint32_t is_busy : 1; /* a write is under way */
	uint32_t issued : 31;
	uint32_t is_doubtful : 1;
};

struct lpi_load_book {
	struct lpi_load_page *pages;
	uint64_t cnt;
};

/* -ENOMEM. */
int lpi_load_book_init(struct lpi_load_book *book, uint64_t cnt) LP_MUST_CHECK;
/* Also one that is all zeros. */
void lpi_load_book_fini(struct lpi_load_book *book);
bool lpi_load_book_is_busy(const struct lpi_load_book *book, uint64_t first, uint64_t cnt);
/* A write begins, of which none may be under way: the version of page `first + i` is its `issued`
 * then. */
void lpi_load_book_begin(struct lpi_load_book *book, uint64_t first, uint64_t cnt);
/* It ended: acknowledged, or with an error. */
void lpi_load_book_end(struct lpi_load_book *book, uint64_t first, uint64_t cnt, bool is_acked);
/* The lower bound for a read that begins now. */
static inline uint32_t lpi_load_book_floor(const struct lpi_load_book *book, uint64_t at)
{
	return book->pages[at].acked;
}
/* NULL: a read that began with this lower bound may show this cell now; else what is wrong. */
const char *lpi_load_book_fault(const struct lpi_load_book *book, uint64_t at, uint32_t floor,
				const struct lpi_load_cell *cell, uint64_t run);

#endif
