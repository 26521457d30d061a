/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/tasks.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "cli/remote/remote.h"

int lpi_tasks_init(struct lpi_tasks *jobs, unsigned limit)
{
	*jobs = (struct lpi_tasks){.lapis = lpi_remote(), .limit = limit};
	lpi_progress_start(&jobs->progress, 0);
	return jobs->lapis != NULL ? LP_EXIT_OK : LP_EXIT_FAILED;
}

static void job_done(void *arg, const struct lapis_result *result)
{
	struct lpi_task *job = arg;
	job->jobs->under_way--;
	job->ended(job, result->status, result);
}

void lpi_tasks_submit(struct lpi_tasks *jobs, struct lpi_task *job, struct lapis_request *request)
{
	job->jobs = jobs;
	while (jobs->under_way >= jobs->limit)
		(void)lapis_turn(jobs->lapis, -1);
	request->size = sizeof(*request);
	request->done = job_done;
	request->arg = job;
	int err = jobs->is_away ? -ENOTCONN : lapis_submit(jobs->lapis, request, NULL);
	if (err < 0) {
		const struct lapis_result result = {
			.size = sizeof(result),
			.status = err,
			.text = jobs->is_away ? "not asked, for the daemon is away"
					      : lapis_error_text()};
		job->ended(job, err, &result);
		return;
	}
	jobs->under_way++;
}

int lpi_tasks_finish(struct lpi_tasks *jobs)
{
	while (jobs->under_way > 0)
		(void)lapis_turn(jobs->lapis, -1);
	lpi_progress_stop(&jobs->progress);
	return jobs->failed == 0 ? LP_EXIT_OK : LP_EXIT_FAILED;
}

void lpi_tasks_fail(struct lpi_tasks *jobs, const char *subject, int err, const char *text)
{
	lpi_progress_stop(&jobs->progress);
	(void)lpi_remote_fail_text(subject, err, text);
	jobs->failed++;
	jobs->is_hopeless |= err == -ENOSPC || err == -EROFS;
	jobs->is_away |= err == -ENOTCONN;
}

void lpi_tasks_fail_here(struct lpi_tasks *jobs, const char *subject, int err)
{
	lpi_tasks_fail(jobs, subject, 0, lp_strerror(err));
	jobs->is_hopeless |= err == -ENOSPC || err == -EROFS;
}

/* --- Of keys ---------------------------------------------------------------------------------- */

struct key_job {
	struct lpi_task job;
	bool ignores_missing;
	char key[];
};

static void key_ended(struct lpi_task *job, int status, const struct lapis_result *result)
{
	struct key_job *self = LP_CONTAINER_OF(job, struct key_job, job);
	if (status < 0 && !(status == -ENOENT && self->ignores_missing))
		lpi_tasks_fail(job->jobs, self->key, status, result->text);
	else
		lpi_progress_add(&job->jobs->progress, 0, 1);
	free(self);
}

void lpi_tasks_submit_key(struct lpi_tasks *jobs, const struct lpi_key_task *about,
			  struct lapis_request *request)
{
	size_t len = strlen(about->key) + 1;
	struct key_job *self = malloc(sizeof(*self) + len);
	if (self == NULL) {
		lpi_tasks_fail(jobs, about->key, -ENOMEM, lp_strerror(-ENOMEM));
		return;
	}
	*self = (struct key_job){.job.ended = key_ended, .ignores_missing = about->ignores_missing};
	memcpy(self->key, about->key, len);
	lpi_tasks_submit(jobs, &self->job, request);
}
