/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/progress.h"

#include "base/clock.h"
#include "cli/remote.h"

#define BEGIN_NS  (LP_NS_PER_S / 2)
#define REDRAW_NS (LP_NS_PER_S / 5)

static uint64_t now(void)
{
	return lp_clock_mono_ns(lp_clock_system());
}

void lpi_progress_start(struct lpi_progress *progress, uint64_t total_bytes)
{
	*progress = (struct lpi_progress){
		.is_shown = lpi_is_terminal(stderr), .total_bytes = total_bytes, .began_ns = now()};
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
	uint64_t since =
		progress->is_drawn ? progress->drawn_ns + REDRAW_NS : progress->began_ns + BEGIN_NS;
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
