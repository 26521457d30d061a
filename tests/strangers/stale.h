/* SPDX-License-Identifier: Apache-2.0 */
/* Small programs that have found old data where new data had been acknowledged: what they have in
 * common. Each case changes a file in one way, and looks at it in others, beside processes that
 * keep the file's pages coming and going.
 *
 * Processes of a case share the struct below. What fails in a way that nobody expects ends the
 * process with a line on standard error, and the case with it.
 */
#ifndef LP_TESTS_STRANGERS_STALE_H
#define LP_TESTS_STRANGERS_STALE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LPI_STALE_BLOCK    4096u
#define LPI_STALE_BLOCKS   256u
#define LPI_STALE_HELPERS  16u
#define LPI_STALE_EXAMPLES 5u
#define LPI_STALE_DEPTH    16u

struct lapis_file;

/* In memory that all processes have. */
struct lpi_stale {
	_Atomic uint64_t acked[LPI_STALE_BLOCKS]; /* the version of each block */
	_Atomic uint64_t end;   /* of what was acknowledged of a file that grows */
	_Atomic uint64_t round; /* of a file that is cut off; odd: just now */
	_Atomic uint64_t looks;
	_Atomic uint64_t stale;
	_Atomic bool is_over;
};

struct lpi_stale_run {
	struct lpi_stale *shared;
	const char *path;
	const char *address; /* of the socket; NULL: only the mount */
	const char *key;     /* of the file, there */
	uint64_t until_ns;
	int helpers[LPI_STALE_HELPERS];
	unsigned helper_cnt;
};

struct lpi_stale_case {
	const char *name;
	void (*run)(struct lpi_stale_run *run);
	bool needs_socket;
	bool is_for_one_kernel; /* buffered and direct writes to one block: ext4 does not promise it
				 */
};

extern const struct lpi_stale_case lpi_stale_cases[];
extern const unsigned lpi_stale_case_cnt;

/* --- stale_tools.c ---------------------------------------------------------------------------- */

/* A random number; a process of its own has others than those before. */
uint64_t lpi_stale_below(uint64_t limit);
_Noreturn void lpi_stale_fail(const char *what);
bool lpi_stale_is_over(const struct lpi_stale_run *run);
/* A process that calls what() again and again until the case is over. */
void lpi_stale_help(struct lpi_stale_run *run, void (*what)(struct lpi_stale_run *run, void *arg),
		    void *arg);
/* The case is over: all helpers have ended. */
void lpi_stale_end(struct lpi_stale_run *run);
/* Something old was seen. */
void lpi_stale_found(struct lpi_stale_run *run, const char *how, uint64_t block, uint64_t seen,
		     uint64_t acked);
int lpi_stale_open(const struct lpi_stale_run *run, int flags);
void *lpi_stale_map(int fd, size_t bytes);
void *lpi_stale_buf(size_t bytes);
void lpi_stale_fill(void *to, uint64_t word, size_t bytes);
void lpi_stale_write(int fd, const void *from, size_t bytes, uint64_t offset);

/* One write of a batch. */
struct lpi_stale_piece {
	const void *from;
	size_t bytes;
	uint64_t offset;
};
enum lpi_stale_engine { LPI_STALE_AIO, LPI_STALE_URING };
/* All at once; done() when one of them has been acknowledged. */
void lpi_stale_submit(enum lpi_stale_engine engine, int fd, const struct lpi_stale_piece *pieces,
		      unsigned cnt, void (*done)(void *arg, unsigned idx), void *arg);

#endif
