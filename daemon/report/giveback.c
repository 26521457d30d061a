/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/report/giveback.h"

#include "daemon/report/heap.h"

#define SHARE         16u /* the process may have one part in SHARE more than the memory */
#define RESTS         8u  /* checks at which stores gave memory back, before the system gets it */
#define FIRST_WAIT_NS LP_NS_PER_S
#define STEP_SHARE    64u  /* lost_bytes grows by at most one such part of the memory at a look */
#define BACK_SHARE    512u /* and shrinks by one such part */

static struct lpi_giveback *of_work(struct lp_work *work)
{
	return LP_CONTAINER_OF(work, struct lpi_giveback, work);
}

static void release(struct lp_work *work)
{
	(void)work;
	(void)lpi_heap_release(); /* an allocator that cannot do it is rarely asked */
}

static void released(struct lp_work *work)
{
	struct lpi_giveback *giveback = of_work(work);
	/* While the caches shrink, new holes appear. */
	bool has_helped = lpi_heap_rss_bytes() <= giveback->limit_bytes ||
			  giveback->lost_bytes < giveback->memory_bytes / LPI_GIVEBACK_LOST_SHARE;
	giveback->is_busy = false;
	giveback->cnt++;
	giveback->wait_ns = has_helped ? FIRST_WAIT_NS
				       : LP_MIN(giveback->wait_ns * 2, LPI_GIVEBACK_BACKOFF_MAX_NS);
}

void lpi_giveback_init(struct lpi_giveback *giveback, uint64_t memory_bytes)
{
	*giveback = (struct lpi_giveback){.work = {.run = release, .done = released},
					  .memory_bytes = memory_bytes,
					  .limit_bytes = memory_bytes + memory_bytes / SHARE,
					  .wait_ns = FIRST_WAIT_NS};
}

/* Counts only after a try to give memory back, because other holes are not lost. */
static void reckon(struct lpi_giveback *giveback, uint64_t rss_bytes)
{
	uint64_t lost = giveback->lost_bytes;
	if (rss_bytes > giveback->limit_bytes && giveback->cnt > 0)
		lost += LP_MIN(rss_bytes - giveback->limit_bytes,
			       giveback->memory_bytes / STEP_SHARE);
	else if (rss_bytes < giveback->memory_bytes)
		lost -= LP_MIN(lost, giveback->memory_bytes / BACK_SHARE);
	giveback->lost_bytes = LP_MIN(lost, giveback->memory_bytes / LPI_GIVEBACK_LOST_SHARE);
}

void lpi_giveback_look(struct lpi_giveback *giveback, struct lp_workers *workers,
		       struct lp_reactor *reactor)
{
	uint64_t now_ns = lp_reactor_now_ns(reactor);
	uint64_t rss_bytes = lpi_heap_rss_bytes();
	giveback->is_short = rss_bytes > giveback->limit_bytes;
	if (giveback->is_busy)
		return;
	reckon(giveback, rss_bytes);
	if (now_ns < giveback->next_ns || rss_bytes <= giveback->limit_bytes)
		return;
	giveback->is_busy = true;
	giveback->next_ns = now_ns + giveback->wait_ns;
	lp_workers_submit(workers, reactor, &giveback->work);
}

/* Gives memory back when the stores give no more, and after every RESTS looks while they do,
 * because each release costs a walk over all free memory. */
void lpi_giveback_rest(struct lpi_giveback *giveback, bool has_given, struct lp_workers *workers,
		       struct lp_reactor *reactor)
{
	bool is_wanted = has_given ? giveback->rest_cnt >= RESTS : giveback->rest_cnt > 0;
	giveback->rest_cnt += has_given;
	if (!is_wanted || giveback->is_busy)
		return;
	giveback->rest_cnt = 0;
	giveback->is_busy = true;
	lp_workers_submit(workers, reactor, &giveback->work);
}

bool lpi_giveback_is_short(const struct lpi_giveback *giveback)
{
	return giveback->is_short;
}

bool lpi_giveback_is_idle(const struct lpi_giveback *giveback)
{
	return !giveback->is_busy;
}
