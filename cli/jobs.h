/* SPDX-License-Identifier: Apache-2.0 */
/* Several requests under way at once: a bounded number; who submits one more waits for one to end.
 *
 * Threads: the main thread only; callbacks come from within these functions.
 */
#ifndef LP_CLI_JOBS_H
#define LP_CLI_JOBS_H

#include "cli/progress.h"
#include "client/lapis.h"

struct lpi_jobs {
	struct lapis *lapis;
	unsigned limit;
	unsigned under_way;
	unsigned failed; /* each has been printed */
	struct lpi_progress progress;
};

/* One of them. The caller's struct has it as a member, and lives until ended() is called, which is
 * exactly once, also when it could not be submitted. */
struct lpi_job {
	struct lpi_jobs *jobs;
	void (*ended)(struct lpi_job *job, int status, const struct lapis_result *result);
};

/* LP_EXIT_OK, or what the error means, which has been printed. */
int lpi_jobs_init(struct lpi_jobs *jobs, unsigned limit);
void lpi_jobs_submit(struct lpi_jobs *jobs, struct lpi_job *job, struct lapis_request *request);
/* Until all have ended. LP_EXIT_OK, or LP_EXIT_FAILED when any has failed. */
int lpi_jobs_finish(struct lpi_jobs *jobs);
/* Prints why a job failed, and counts it. */
void lpi_jobs_fail(struct lpi_jobs *jobs, const char *subject, int err, const char *text);

/* A request about one key of which nothing but its failure is of interest. `key` is copied;
 * -ENOENT is none when ignores_missing. */
struct lpi_key_job {
	const char *key;
	bool ignores_missing;
};
void lpi_jobs_submit_key(struct lpi_jobs *jobs, const struct lpi_key_job *about,
			 struct lapis_request *request);

#endif
