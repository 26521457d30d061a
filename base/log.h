/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon's log: one line per message on standard error, by level.
 *
 *   2026-11-21T03:04:25.123Z warn: bdev: slow write of 4096 bytes, 1200 ms
 *   <4>bdev: slow write of 4096 bytes, 1200 ms           (to the journal, which adds the time)
 *
 * The level is checked before anything is formatted. Each place in the code that logs has its own
 * limit: LP_LOG_BURST messages in LP_LOG_INTERVAL_MS, counted from the first one. Further messages
 * are suppressed, and a line tells their number at the next message after the interval. Messages
 * may carry names from outside: control characters, invalid UTF-8, characters that turn the
 * direction of text around, and the backslash come out as escapes, so that a message is one line
 * and cannot pass for another. A message is text without a newline at its end, and is cut at
 * LP_LOG_TEXT_MAX bytes.
 *
 * The store does not log: it returns errors, and the daemon logs once, at the edge.
 *
 * Threads: any; init while there is only one. Not for signal handlers.
 * Blocking: a line is one write(2), made only when the descriptor is ready for it. Lines that do
 * not fit into a full pipe are dropped and counted; the count is logged when there is room again.
 * The write may wait only if another process fills the same blocking pipe at that very moment.
 * Allocation: none. errno is preserved. Errors: none that a caller could handle.
 */
#ifndef LP_BASE_LOG_H
#define LP_BASE_LOG_H

#include <stdatomic.h>

#include "base/clock.h"

#define LP_LOG_TEXT_MAX    1900u /* bytes of a message before escapes */
#define LP_LOG_LINE_MAX    4096u /* bytes of a line, newline included: a pipe takes it whole */
#define LP_LOG_BURST       10u
#define LP_LOG_INTERVAL_MS 5000u

/* From the most to the least important. */
enum lp_log_level {
	LP_LEVEL_ERROR, /* something failed; an operator should look */
	LP_LEVEL_WARN,  /* something may fail soon */
	LP_LEVEL_NOTICE,
	LP_LEVEL_INFO,
	LP_LEVEL_DEBUG
};
#define LP_LEVEL_CNT (LP_LEVEL_DEBUG + 1)

/* One for each place that logs, static and zero at first; made by the macros. */
struct lp_log_site {
	/* High half: when the burst began (low 32 bits of ms). Low half: messages since then;
	 * sticks at its maximum. */
	_Atomic uint64_t window;
};

struct lp_log_stats {
	uint64_t lines;      /* written */
	uint64_t suppressed; /* by the limits of their sites */
	uint64_t dropped;    /* for lack of room, or because the descriptor failed */
};

/* Before this is called, lines go to descriptor 2 with the system's time. clock and fd must stay
 * valid. journal_stream is the environment's JOURNAL_STREAM or NULL. If it names the stream that fd
 * is open on, lines are formatted for the journal. */
void lp_log_init(const struct lp_clock *clock, int fd, const char *journal_stream);
/* From now on lines go to this file, which is made if it is missing, and is only appended to. They
 * are not formatted for the journal then. The first call is made while there is only one thread.
 * Later calls may come at any time, on any thread: the file is opened anew, and each line goes
 * wholly to the former file or to the new one. On failure the log stays as it was. */
int lp_log_open_file(const char *path) LP_MUST_CHECK;
/* Any thread, at any time. The default is LP_LEVEL_INFO. */
void lp_log_set_level(enum lp_log_level level);
enum lp_log_level lp_log_level(void);

/* "error", "warn" (or "warning"), "notice", "info", "debug", in any case. -EINVAL for others. */
int lp_log_parse_level(const char *name, enum lp_log_level *ret_level) LP_MUST_CHECK;
const char *lp_log_level_name(enum lp_log_level level);

void lp_log_read_stats(struct lp_log_stats *ret_stats);

/* Escapes bytes as a log line would, into at most len bytes including the final NUL; cuts at a
 * whole character. Returns the length. For callers that show names from outside elsewhere. */
size_t lp_log_escape(const char *bytes, size_t bytes_len, char *buf, size_t len);

extern _Atomic int lpi_log_level;

static inline bool lp_log_is_on(enum lp_log_level level)
{
	return (int)level <= atomic_load_explicit(&lpi_log_level, memory_order_relaxed);
}

/* Called by the macros; the level is on. */
void lp_log_at(struct lp_log_site *site, enum lp_log_level level, const char *fmt, ...)
	LP_PRINTF(3, 4);

#define LP_LOG(level, ...)                                                                         \
	do {                                                                                       \
		static struct lp_log_site lp_site_;                                                \
		if (LP_UNLIKELY(lp_log_is_on(level)))                                              \
			lp_log_at(&lp_site_, (level), __VA_ARGS__);                                \
	} while (0)

#define LP_LOG_ERROR(...)  LP_LOG(LP_LEVEL_ERROR, __VA_ARGS__)
#define LP_LOG_WARN(...)   LP_LOG(LP_LEVEL_WARN, __VA_ARGS__)
#define LP_LOG_NOTICE(...) LP_LOG(LP_LEVEL_NOTICE, __VA_ARGS__)
#define LP_LOG_INFO(...)   LP_LOG(LP_LEVEL_INFO, __VA_ARGS__)
#define LP_LOG_DEBUG(...)  LP_LOG(LP_LEVEL_DEBUG, __VA_ARGS__)

#endif
