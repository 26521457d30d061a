/* SPDX-License-Identifier: Apache-2.0 */
/* A message: the site's limit -> format on the stack -> escape behind the prefix -> poll -> write.
 * No lock: lines of different threads are separate writes of at most a pipe's atomic size, and the
 * limit is one compare-and-swap on the site.
 *
 * A site's window is a pair (start, count) in one word. The message that finds the window older
 * than the interval starts a new one and learns from the old count how many were suppressed;
 * exactly one message does. The count sticks at its end, 2^32 - 1.
 *
 * The next line that gets through is preceded by a line about the lost ones. It takes the count
 * that was not reported yet, and gives it back if its own line is lost too. */
#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"

_Static_assert(LP_LOG_LINE_MAX <= PIPE_BUF, "a line is atomic in a pipe");

/* Attempts at a write that a signal interrupts. */
#define WRITE_TRIES 4
/* "2026-11-21T03:04:25.123Z notice: " and shorter. */
#define PREFIX_MAX 48

_Atomic int lpi_log_level = LP_LEVEL_INFO;

/* Set by init, before there are threads. */
static const struct lp_clock *log_clock;
static int log_fd = STDERR_FILENO;
static bool has_file; /* log_fd is ours */
static bool is_journal;

static _Atomic uint64_t lines_cnt;
static _Atomic uint64_t suppressed_cnt;
static _Atomic uint64_t dropped_cnt;
static _Atomic uint64_t dropped_untold;

/* In the order of enum lp_log_level, with the priorities of syslog(3). */
static const struct {
	const char *name;
	int priority;
} levels[LP_LEVEL_CNT] = {{"error", 3}, {"warn", 4}, {"notice", 5}, {"info", 6}, {"debug", 7}};

/* Whether "device:inode" in decimal, as systemd sets it, is the stream that fd is open on. */
static bool is_stream(int fd, const char *journal_stream)
{
	char ours[64];
	struct stat st;
	if (journal_stream == NULL || fstat(fd, &st) != 0)
		return false;
	(void)snprintf(ours, sizeof(ours), "%" PRIuMAX ":%" PRIuMAX, (uintmax_t)st.st_dev,
		       (uintmax_t)st.st_ino);
	return strcmp(ours, journal_stream) == 0;
}

void lp_log_init(const struct lp_clock *clock, int fd, const char *journal_stream)
{
	LP_ASSERT(clock != NULL);
	if (has_file)
		(void)close(log_fd); /* a caller that begins anew has finished with it */
	has_file = false;
	log_clock = clock;
	log_fd = fd;
	is_journal = is_stream(fd, journal_stream);
}

/* The descriptor keeps its number, so a thread that is about to write needs no lock. */
int lp_log_open_file(const char *path)
{
	/* A pipe without a reader is refused; the open does not wait for one. */
	int fd =
		open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0640);
	if (fd < 0)
		return -errno;
	if (!has_file) {
		log_fd = fd;
		has_file = true;
		is_journal = false;
		return 0;
	}
	int err = dup3(fd, log_fd, O_CLOEXEC) < 0 ? -errno : 0;
	(void)close(fd); /* nothing was written to this one */
	return err;
}

static const struct lp_clock *clock_now(void)
{
	return log_clock != NULL ? log_clock : lp_clock_system();
}

void lp_log_set_level(enum lp_log_level level)
{
	LP_ASSERT((unsigned)level < LP_LEVEL_CNT);
	atomic_store_explicit(&lpi_log_level, (int)level, memory_order_relaxed);
}

enum lp_log_level lp_log_level(void)
{
	return (enum lp_log_level)atomic_load_explicit(&lpi_log_level, memory_order_relaxed);
}

int lp_log_parse_level(const char *name, enum lp_log_level *ret_level)
{
	for (unsigned i = 0; i < LP_LEVEL_CNT; i++) {
		if (strcasecmp(name, levels[i].name) == 0) {
			*ret_level = (enum lp_log_level)i;
			return 0;
		}
	}
	if (strcasecmp(name, "warning") == 0) {
		*ret_level = LP_LEVEL_WARN;
		return 0;
	}
	return -EINVAL;
}

const char *lp_log_level_name(enum lp_log_level level)
{
	LP_ASSERT((unsigned)level < LP_LEVEL_CNT);
	return levels[level].name;
}

void lp_log_read_stats(struct lp_log_stats *ret_stats)
{
	*ret_stats = (struct lp_log_stats){.lines = atomic_load(&lines_cnt),
					   .suppressed = atomic_load(&suppressed_cnt),
					   .dropped = atomic_load(&dropped_cnt)};
}

/* Valid UTF-8 characters that would still spoil a line: C1 controls, line and paragraph separators,
 * marks that turn the direction of text, the byte order mark. */
static bool is_treacherous(uint32_t point)
{
	return (point >= 0x80 && point <= 0x9f) || point == 0x61c || point == 0x200e ||
	       point == 0x200f || (point >= 0x2028 && point <= 0x202e) ||
	       (point >= 0x2066 && point <= 0x2069) || point == 0xfeff;
}

/* The length of the multi-byte character that starts here, if it is valid UTF-8 in its shortest
 * form and may be shown; otherwise 0. */
static size_t utf8_len(const unsigned char *s, size_t left)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	size_t len = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
	if (s[0] < 0xc2 || s[0] > 0xf4 || left < len)
		return 0;
	uint32_t point = s[0] & (0x7fu >> len);
	for (size_t i = 1; i < len; i++) {
		if ((s[i] & 0xc0) != 0x80)
			return 0;
		point = point << 6 | (s[i] & 0x3fu);
	}
	bool is_surrogate = point >= 0xd800 && point <= 0xdfff;
	if (point < least[len] || point > 0x10ffff || is_surrogate || is_treacherous(point))
		return 0;
	return len;
}

/* Writes one character or the escape of one byte to out (4 bytes are enough), and its length to
 * ret_len. Returns the number of input bytes that it stands for. */
static size_t escape_one(const unsigned char *s, size_t left, char *out, size_t *ret_len)
{
	static const char hex[] = "0123456789abcdef";
	static const char named[] = "\n\t\r\\";
	static const char names[] = "ntr\\";
	size_t len = s[0] >= 0x80 ? utf8_len(s, left) : 0;
	const char *at = s[0] == '\0' ? NULL : strchr(named, s[0]);
	if (len > 0) {
		memcpy(out, s, len);
		*ret_len = len;
		return len;
	}
	if (at != NULL) {
		out[0] = '\\';
		out[1] = names[at - named];
		*ret_len = 2;
	} else if (s[0] < 0x20 || s[0] >= 0x7f) {
		out[0] = '\\';
		out[1] = 'x';
		out[2] = hex[s[0] >> 4];
		out[3] = hex[s[0] & 15];
		*ret_len = 4;
	} else {
		out[0] = (char)s[0];
		*ret_len = 1;
	}
	return 1;
}

/* ret_taken: the number of input bytes that fit. */
static size_t escape_into(const char *bytes, size_t bytes_len, char *buf, size_t len,
			  size_t *ret_taken)
{
	const unsigned char *s = (const unsigned char *)bytes;
	size_t pos = 0;
	size_t out_len = 0;
	LP_ASSERT(len > 0);
	while (pos < bytes_len) {
		char one[4];
		size_t one_len = 0;
		size_t taken = escape_one(s + pos, bytes_len - pos, one, &one_len);
		if (out_len + one_len >= len)
			break;
		memcpy(buf + out_len, one, one_len);
		out_len += one_len;
		pos += taken;
	}
	buf[out_len] = '\0';
	*ret_taken = pos;
	return out_len;
}

size_t lp_log_escape(const char *bytes, size_t bytes_len, char *buf, size_t len)
{
	size_t ignored;
	return escape_into(bytes, bytes_len, buf, len, &ignored);
}

/* gmtime_r() takes glibc's lock of the time zone; a calendar needs none. Days are counted from
 * the first of March of year 0, so that the leap day is the last of its year. */
static int format_time(int64_t wall_ns, char *buf, size_t len)
{
	int64_t ms = wall_ns / (int64_t)LP_NS_PER_MS;
	int64_t of_day = ms % 86400000;
	int64_t days = ms / 86400000;
	if (of_day < 0) {
		of_day += 86400000;
		days--;
	}
	days += 719468;
	int64_t era = days / 146097; /* of 400 years; the clock does not go back before year 0 */
	int64_t of_era = days % 146097;
	int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
	int64_t of_year = of_era - (365 * year + year / 4 - year / 100);
	int64_t month = (5 * of_year + 2) / 153; /* 0 is March */
	int64_t day = of_year - (153 * month + 2) / 5 + 1;
	year += era * 400 + (month >= 10 ? 1 : 0);
	month += month < 10 ? 3 : -9;
	return snprintf(buf, len, "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", (int)year, (int)month,
			(int)day, (int)(of_day / 3600000), (int)(of_day / 60000 % 60),
			(int)(of_day / 1000 % 60), (int)(of_day % 1000));
}

static size_t format_prefix(enum lp_log_level level, char *buf, size_t len)
{
	char when[64];
	int written;
	if (is_journal) {
		written = snprintf(buf, len, "<%d>", levels[level].priority);
	} else {
		(void)format_time(lp_clock_wall_ns(clock_now()), when, sizeof(when));
		written = snprintf(buf, len, "%s %s: ", when, levels[level].name);
	}
	LP_ASSERT(written > 0 && (size_t)written < len);
	return (size_t)written;
}

/* False when the line is lost, wholly or in part. Does not wait for room. */
static bool write_line(const char *line, size_t len)
{
	struct pollfd ready = {.fd = log_fd, .events = POLLOUT};
	for (int i = 0; i < WRITE_TRIES; i++) {
		int rc = poll(&ready, 1, 0);
		/* Any other event means no room, or a reader that has gone, where a write would
		 * cause SIGPIPE. */
		if (rc >= 0 && ready.revents != POLLOUT)
			return false;
		ssize_t put = rc > 0 ? write(log_fd, line, len) : -1;
		if (put >= 0)
			return (size_t)put == len;
		if (errno != EINTR)
			return false;
	}
	return false;
}

/* One line of text; is_cut: there was more of it. Returns false when the line is lost. */
static bool put_text(enum lp_log_level level, const char *text, size_t text_len, bool is_cut)
{
	static const char ending[4] = {'.', '.', '.', '\n'};
	char line[LP_LOG_LINE_MAX];
	size_t len = format_prefix(level, line, PREFIX_MAX);
	size_t taken = 0;
	len += escape_into(text, text_len, line + len, sizeof(line) - len - sizeof(ending), &taken);
	size_t end_len = is_cut || taken < text_len ? sizeof(ending) : 1;
	memcpy(line + len, ending + sizeof(ending) - end_len, end_len);
	if (!write_line(line, len + end_len))
		return false;
	atomic_fetch_add_explicit(&lines_cnt, 1, memory_order_relaxed);
	return true;
}

LP_PRINTF(2, 3)
static bool put_note(enum lp_log_level level, const char *fmt, ...)
{
	char text[128];
	va_list ap;
	va_start(ap, fmt);
	int len = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	LP_ASSERT(len > 0 && (size_t)len < sizeof(text));
	return put_text(level, text, (size_t)len, false);
}

/* Reports lines that were lost before this one. */
static void tell_dropped(void)
{
	/* In the usual case the load makes the exchange unnecessary. */
	if (atomic_load_explicit(&dropped_untold, memory_order_relaxed) == 0)
		return;
	uint64_t untold = atomic_exchange_explicit(&dropped_untold, 0, memory_order_relaxed);
	if (untold > 0 &&
	    !put_note(LP_LEVEL_WARN, "log: %" PRIu64 " lines lost for want of room", untold))
		atomic_fetch_add_explicit(&dropped_untold, untold, memory_order_relaxed);
}

/* True if the site may log now. *ret_suppressed: the number of messages suppressed in a window that
 * has just ended. */
static bool site_admits(struct lp_log_site *site, uint64_t *ret_suppressed)
{
	uint32_t now_ms = (uint32_t)(lp_clock_mono_ns(clock_now()) / LP_NS_PER_MS);
	uint64_t old = atomic_load_explicit(&site->window, memory_order_relaxed);
	uint64_t new;
	uint32_t cnt;
	bool is_over;
	do {
		cnt = (uint32_t)old;
		/* The difference is also right where the milliseconds wrap, after 49 days. */
		is_over = cnt == 0 || now_ms - (uint32_t)(old >> 32) >= LP_LOG_INTERVAL_MS;
		if (is_over)
			new = (uint64_t)now_ms << 32 | 1;
		else
			new = cnt == UINT32_MAX ? old : old + 1;
	} while (!atomic_compare_exchange_weak_explicit(
		&site->window, &old, new, memory_order_relaxed, memory_order_relaxed));
	*ret_suppressed = is_over && cnt > LP_LOG_BURST ? cnt - LP_LOG_BURST : 0;
	return is_over || cnt < LP_LOG_BURST;
}

static void count_lost(void)
{
	atomic_fetch_add_explicit(&dropped_cnt, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&dropped_untold, 1, memory_order_relaxed);
}

/* Logs the message of a site, behind the reports that come first. */
static void put_message(enum lp_log_level level, uint64_t suppressed, const char *fmt, va_list ap)
{
	char text[LP_LOG_TEXT_MAX + 1];
	int len = vsnprintf(text, sizeof(text), fmt, ap);
	/* A format that fails is a bug of ours, but no reason to abort here. */
	size_t text_len = len < 0 ? 0 : (size_t)len;
	bool is_cut = text_len > LP_LOG_TEXT_MAX;
	tell_dropped();
	if (suppressed > 0 &&
	    !put_note(level, "log: suppressed %" PRIu64 " messages like the next", suppressed))
		count_lost();
	if (!put_text(level, text, LP_MIN(text_len, (size_t)LP_LOG_TEXT_MAX), is_cut))
		count_lost();
}

void lp_log_at(struct lp_log_site *site, enum lp_log_level level, const char *fmt, ...)
{
	int saved_errno = errno;
	uint64_t suppressed = 0;
	if (site_admits(site, &suppressed)) {
		va_list ap;
		va_start(ap, fmt);
		put_message(level, suppressed, fmt, ap);
		va_end(ap);
	} else {
		atomic_fetch_add_explicit(&suppressed_cnt, 1, memory_order_relaxed);
	}
	errno = saved_errno;
}
