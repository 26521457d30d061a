/* SPDX-License-Identifier: Apache-2.0 */
/* One line on a terminal's standard error that says how far a long transfer is: bytes, rate, and
 * how long it will take. Elsewhere, and for what takes less than a second, nothing.
 *
 * Threads: the main thread only. Errors: none.
 */
#ifndef LP_CLI_PROGRESS_H
#define LP_CLI_PROGRESS_H

#include <pthread.h>

#include "cli/cli.h"

struct lpi_progress {
	bool is_shown;
	bool is_drawn;        /* there is a line to take away */
	uint64_t total_bytes; /* 0: not known */
	uint64_t done_bytes;
	uint64_t items;
	uint64_t began_ns;
	uint64_t drawn_ns;
};

/* A command has begun: its first second counts from here, whatever it does first. With
 * --no-progress nothing is shown from then on. */
void lpi_progress_command(bool is_quiet);
void lpi_progress_start(struct lpi_progress *progress, uint64_t total_bytes);
void lpi_progress_add(struct lpi_progress *progress, uint64_t bytes, uint64_t items);
/* Takes the line away. */
void lpi_progress_stop(struct lpi_progress *progress);
/* What the line says at a time; for tests. */
int lpi_progress_format(const struct lpi_progress *progress, uint64_t now_ns, char *buf,
			size_t len);

/* The same for what is one call that does not say how far it is: the line has what it is, and for
 * how long. A thread of its own draws it, so nothing else is to be printed meanwhile. */
struct lpi_waiting {
	bool has_thread;
	bool is_over; /* under the lock */
	const char *what;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t ended;
};

void lpi_waiting_start(struct lpi_waiting *waiting, const char *what);
/* Takes the line away. */
void lpi_waiting_stop(struct lpi_waiting *waiting);

#endif
