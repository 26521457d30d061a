/* SPDX-License-Identifier: Apache-2.0 */
/* Several requests under way at once: a bounded number; who submits one more waits for one to end.
 *
 * Threads: the main thread only; callbacks come from within these functions.
 */
#ifndef LP_CLI_REMOTE_TASKS_H
#define LP_CLI_REMOTE_TASKS_H

#include <stdbool.h>

#include "cli/progress.h"
#include "client/lapis.h"

struct lpi_tasks {
	struct lapis *lapis;
	unsigned limit;
	unsigned under_way;
	unsigned failed;  /* each has been printed */
	bool is_hopeless; /* one has failed as all that follow would: no room, or nothing may be
			     written */
	bool is_away; /* nobody was there for one of them: the others do not wait for somebody, too
		       */
	struct lpi_progress progress;
};

/* One of them. The caller's struct has it as a member, and lives until ended() is called, which is
 * exactly once, also when it could not be submitted. */
struct lpi_task {
	struct lpi_tasks *jobs;
	void (*ended)(struct lpi_task *job, int status, const struct lapis_result *result);
};

/* LP_EXIT_OK, or what the error means, which has been printed. */
int lpi_tasks_init(struct lpi_tasks *jobs, unsigned limit);
void lpi_tasks_submit(struct lpi_tasks *jobs, struct lpi_task *job, struct lapis_request *request);
/* Until all have ended. LP_EXIT_OK, or LP_EXIT_FAILED when any has failed. */
int lpi_tasks_finish(struct lpi_tasks *jobs);
/* Prints why a job failed, and counts it. */
void lpi_tasks_fail(struct lpi_tasks *jobs, const char *subject, int err, const char *text);
/* The same of what failed on this machine: what can be done about the store is no help then. */
void lpi_tasks_fail_here(struct lpi_tasks *jobs, const char *subject, int err);

/* A request about one key of which nothing but its failure is of interest. `key` is copied;
 * -ENOENT is none when ignores_missing. */
struct lpi_key_task {
	const char *key;
	bool ignores_missing;
};
void lpi_tasks_submit_key(struct lpi_tasks *jobs, const struct lpi_key_task *about,
			  struct lapis_request *request);

#endif
