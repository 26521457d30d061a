/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include <time.h>

#include "base/clock.h"

#define BEGIN_NS  LP_NS_PER_S
#define REDRAW_NS (LP_NS_PER_S / 5)

static bool is_off;
static uint64_t command_ns; /* when the command began; 0: it has not said so */

static uint64_t now(void)
{
	return lp_clock_mono_ns(lp_clock_system());
}

void lpi_progress_command(bool is_quiet)
{
	is_off = is_quiet;
	command_ns = now();
}

void lpi_progress_start(struct lpi_progress *progress, uint64_t total_bytes)
{
	*progress = (struct lpi_progress){.is_shown = !is_off && lpi_is_terminal(stderr),
					  .total_bytes = total_bytes,
					  .began_ns = now()};
}

int lpi_progress_format(const struct lpi_progress *progress, uint64_t now_ns, char *buf, size_t len)
{
	char done[32];
	char rate[32];
	char total[48] = "";
	char eta[48] = "";
	double seconds = (double)(now_ns - progress->began_ns) / (double)LP_NS_PER_S;
	double speed = seconds > 0 ? (double)progress->done_bytes / seconds : 0;
	(void)lpi_cli_format_size(progress->done_bytes, done, sizeof(done));
	(void)lpi_cli_format_size((uint64_t)speed, rate, sizeof(rate));
	if (progress->total_bytes > progress->done_bytes && speed >= 1) {
		char all[32];
		double left = (double)(progress->total_bytes - progress->done_bytes) / speed;
		unsigned long s = (unsigned long)LP_MIN(left, 359999.0);
		(void)lpi_cli_format_size(progress->total_bytes, all, sizeof(all));
		(void)snprintf(total, sizeof(total), " of %s", all);
		(void)snprintf(eta, sizeof(eta), ", %lu:%02lu:%02lu left", s / 3600, s / 60 % 60,
			       s % 60);
	}
	if (progress->items > 0)
		return snprintf(buf, len, "%llu done, %s%s, %s/s%s",
				(unsigned long long)progress->items, done, total, rate, eta);
	return snprintf(buf, len, "%s%s, %s/s%s", done, total, rate, eta);
}

void lpi_progress_add(struct lpi_progress *progress, uint64_t bytes, uint64_t items)
{
	char line[200];
	progress->done_bytes += bytes;
	progress->items += items;
	if (!progress->is_shown)
		return;
	uint64_t now_ns = now();
	uint64_t begin_ns = command_ns != 0 ? command_ns : progress->began_ns;
	uint64_t since = progress->is_drawn ? progress->drawn_ns + REDRAW_NS : begin_ns + BEGIN_NS;
	if (now_ns < since)
		return;
	(void)lpi_progress_format(progress, now_ns, line, sizeof(line));
	(void)fprintf(stderr, "\r%s\033[K", line);
	(void)fflush(stderr);
	progress->is_drawn = true;
	progress->drawn_ns = now_ns;
}

void lpi_progress_stop(struct lpi_progress *progress)
{
	if (progress->is_drawn)
		(void)fputs("\r\033[K", stderr);
	progress->is_drawn = false;
}

/* --- One call --------------------------------------------------------------------------------- */

static void add_ns(struct timespec *at, uint64_t ns)
{
	uint64_t sum = (uint64_t)at->tv_nsec + ns;
	at->tv_sec += (time_t)(sum / LP_NS_PER_S);
	at->tv_nsec = (long)(sum % LP_NS_PER_S);
}

static void *draw_waiting(void *arg)
{
	struct lpi_waiting *waiting = arg;
	uint64_t began_ns = now();
	bool is_drawn = false;
	struct timespec at;
	(void)clock_gettime(CLOCK_MONOTONIC, &at); /* cannot fail for this clock */
	add_ns(&at, BEGIN_NS);
	(void)pthread_mutex_lock(&waiting->lock);
	while (!waiting->is_over) {
		if (pthread_cond_timedwait(&waiting->ended, &waiting->lock, &at) == 0)
			continue;
		(void)fprintf(stderr, "\r%s: %llu s\033[K", waiting->what,
			      (unsigned long long)((now() - began_ns) / LP_NS_PER_S));
		(void)fflush(stderr);
		is_drawn = true;
		add_ns(&at, REDRAW_NS);
	}
	(void)pthread_mutex_unlock(&waiting->lock);
	if (is_drawn)
		(void)fputs("\r\033[K", stderr);
	return NULL;
}

void lpi_waiting_start(struct lpi_waiting *waiting, const char *what)
{
	pthread_condattr_t attr;
	*waiting = (struct lpi_waiting){.what = what};
	if (is_off || !lpi_is_terminal(stderr) || pthread_condattr_init(&attr) != 0)
		return;
	bool is_ready = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0 &&
			pthread_cond_init(&waiting->ended, &attr) == 0;
	(void)pthread_condattr_destroy(&attr);
	if (!is_ready)
		return;
	(void)pthread_mutex_init(&waiting->lock, NULL); /* one without attributes always can be */
	/* Without a thread nothing is drawn. */
	waiting->has_thread = pthread_create(&waiting->thread, NULL, draw_waiting, waiting) == 0;
}

void lpi_waiting_stop(struct lpi_waiting *waiting)
{
	if (!waiting->has_thread)
		return;
	(void)pthread_mutex_lock(&waiting->lock);
	waiting->is_over = true;
	(void)pthread_cond_signal(&waiting->ended);
	(void)pthread_mutex_unlock(&waiting->lock);
	(void)pthread_join(waiting->thread, NULL);
	(void)pthread_mutex_destroy(&waiting->lock);
	(void)pthread_cond_destroy(&waiting->ended);
	waiting->has_thread = false;
}
