/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a message is one line, at its level, whatever bytes it holds; messages of a chattering site
 * are suppressed and counted; a reader that does not read loses lines but never blocks the log.
 * Method: the log writes into a pipe that the test reads, with a simulated clock. */
#include "base/testing/test.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

static struct lp_clock_sim sim;
static int pipe_fds[2];

/* 2026-11-21T03:04:25.123Z */
#define WALL_NS (INT64_C(1795230265123) * (int64_t)LP_NS_PER_MS)

static int setup(void **state)
{
	(void)state;
	lp_clock_sim_init(&sim, 0, WALL_NS);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	/* Only the reading end: the log must not count on a descriptor that does not block. */
	assert_int_equal(fcntl(pipe_fds[0], F_SETFL, O_NONBLOCK), 0);
	lp_log_init(&sim.clock, pipe_fds[1], NULL);
	lp_log_set_level(LP_LEVEL_INFO);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lp_log_init(lp_clock_system(), STDERR_FILENO, NULL);
	(void)close(pipe_fds[0]);
	(void)close(pipe_fds[1]);
	return 0;
}

/* The lines logged since the last call. */
static const char *logged(void)
{
	static char text[8192];
	ssize_t got = read(pipe_fds[0], text, sizeof(text) - 1);
	text[got > 0 ? got : 0] = '\0';
	return text;
}

static void test_lines_and_levels(void **state)
{
	(void)state;
	LP_LOG_ERROR("disk %d is on fire", 7);
	assert_string_equal(logged(), "2026-11-21T03:04:25.123Z error: disk 7 is on fire\n");
	lp_clock_sim_advance_to(&sim, 877 * LP_NS_PER_MS);
	LP_LOG_WARN("w");
	LP_LOG_NOTICE("n");
	LP_LOG_INFO("i");
	LP_LOG_DEBUG("d");
	assert_string_equal(logged(), "2026-11-21T03:04:26.000Z warn: w\n"
				      "2026-11-21T03:04:26.000Z notice: n\n"
				      "2026-11-21T03:04:26.000Z info: i\n");
	lp_log_set_level(LP_LEVEL_ERROR);
	assert_int_equal(lp_log_level(), LP_LEVEL_ERROR);
	int evaluated = 0;
	LP_LOG_WARN("%d", ++evaluated);
	assert_string_equal(logged(), "");
	assert_int_equal(evaluated, 0);
	lp_log_set_level(LP_LEVEL_DEBUG);
	LP_LOG_DEBUG("%s", "");
	assert_string_equal(logged(), "2026-11-21T03:04:26.000Z debug: \n");
}

static void test_level_names(void **state)
{
	(void)state;
	for (int i = 0; i < LP_LEVEL_CNT; i++) {
		enum lp_log_level level = LP_LEVEL_CNT;
		lp_test_ok(lp_log_parse_level(lp_log_level_name((enum lp_log_level)i), &level));
		assert_int_equal(level, i);
	}
	enum lp_log_level level = LP_LEVEL_CNT;
	lp_test_ok(lp_log_parse_level("Warning", &level));
	assert_int_equal(level, LP_LEVEL_WARN);
	level = LP_LEVEL_CNT;
	lp_test_err(-EINVAL, lp_log_parse_level("", &level));
	lp_test_err(-EINVAL, lp_log_parse_level("errors", &level));
	lp_test_err(-EINVAL, lp_log_parse_level("3", &level));
	assert_int_equal(level, LP_LEVEL_CNT);
}

static void log_at_wall_ns(int64_t wall_ns)
{
	static struct lp_log_site site;
	site = (struct lp_log_site){0};
	lp_clock_sim_init(&sim, 0, wall_ns);
	lp_log_at(&site, LP_LEVEL_INFO, "x");
}

static void test_calendar(void **state)
{
	(void)state;
	static const struct {
		int64_t s;
		const char *text;
	} days[] = {
		{0, "1970-01-01T00:00:00"},          {951782399, "2000-02-28T23:59:59"},
		{951782400, "2000-02-29T00:00:00"},  {951868800, "2000-03-01T00:00:00"},
		{1709251199, "2024-02-29T23:59:59"}, {1735689599, "2024-12-31T23:59:59"},
		{1735689600, "2025-01-01T00:00:00"}, {4107542400, "2100-03-01T00:00:00"},
		{-1, "1969-12-31T23:59:59"},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(days); i++) {
		char want[64];
		log_at_wall_ns(days[i].s * (int64_t)LP_NS_PER_S);
		(void)snprintf(want, sizeof(want), "%s.000Z info: x\n", days[i].text);
		assert_string_equal(logged(), want);
	}
	log_at_wall_ns(-1);
	assert_string_equal(logged(), "1970-01-01T00:00:00.000Z info: x\n");
}

static void escapes_to(const char *bytes, size_t len, const char *want)
{
	char buf[64];
	assert_int_equal(lp_log_escape(bytes, len, buf, sizeof(buf)), strlen(want));
	assert_string_equal(buf, want);
}
#define ESCAPES_TO(literal, want) escapes_to((literal), sizeof(literal) - 1, (want))

static void test_escapes(void **state)
{
	(void)state;
	ESCAPES_TO("plain ~text", "plain ~text");
	ESCAPES_TO("a\nb\tc\rd\\e", "a\\nb\\tc\\rd\\\\e");
	ESCAPES_TO("\x1b[31m\x7f\x01\0z", "\\x1b[31m\\x7f\\x01\\x00z");
	/* Valid UTF-8 of two, three and four bytes stays. */
	ESCAPES_TO("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
	/* A lone or cut sequence, an overlong one, a surrogate, beyond the last: byte by byte. */
	ESCAPES_TO("\x80", "\\x80");
	ESCAPES_TO("\xe2\x82", "\\xe2\\x82");
	ESCAPES_TO("\xc3(", "\\xc3(");
	ESCAPES_TO("\xc0\xaf", "\\xc0\\xaf");
	ESCAPES_TO("\xe0\x80\xaf", "\\xe0\\x80\\xaf");
	ESCAPES_TO("\xf0\x80\x80\xaf", "\\xf0\\x80\\x80\\xaf");
	ESCAPES_TO("\xed\xa0\x80", "\\xed\\xa0\\x80");
	ESCAPES_TO("\xf4\x90\x80\x80", "\\xf4\\x90\\x80\\x80");
	ESCAPES_TO("\xff\xfe", "\\xff\\xfe");
	/* Valid, but not in a log: C1 control, line separator, right-to-left override. */
	ESCAPES_TO("\xc2\x9b", "\\xc2\\x9b");
	ESCAPES_TO("\xe2\x80\xa8", "\\xe2\\x80\\xa8");
	ESCAPES_TO("\xe2\x80\xae", "\\xe2\\x80\\xae");
	ESCAPES_TO("\xc2\xa0", "\xc2\xa0");

	/* A small buffer cuts before a character that does not fit. */
	char buf[4];
	assert_int_equal(lp_log_escape("abcd", 4, buf, 4), 3);
	assert_string_equal(buf, "abc");
	assert_int_equal(lp_log_escape("ab\n", 3, buf, 4), 2);
	assert_string_equal(buf, "ab");
	assert_int_equal(lp_log_escape("x", 1, buf, 1), 0);
	assert_string_equal(buf, "");
}

static void test_hostile_name_is_one_line(void **state)
{
	(void)state;
	LP_LOG_INFO("no such key '%s'", "x'\n2026-11-21T00:00:00.000Z error: all is lost");
	assert_string_equal(logged(), "2026-11-21T03:04:25.123Z info: no such key 'x'\\n"
				      "2026-11-21T00:00:00.000Z error: all is lost'\n");
}

/* A message too long in itself, and one that becomes too long by its escapes. */
static void test_long_lines_are_cut(void **state)
{
	(void)state;
	static const char fills[] = {'a', '\n', '\1'};
	for (size_t i = 0; i < LP_ARRAY_SIZE(fills); i++) {
		char name[LP_LOG_TEXT_MAX + 2];
		memset(name, fills[i], sizeof(name) - 1);
		name[sizeof(name) - 1] = '\0';
		LP_LOG_INFO("%s", name);
		const char *line = logged();
		size_t len = strlen(line);
		assert_true(len > LP_LOG_TEXT_MAX && len <= LP_LOG_LINE_MAX);
		assert_ptr_equal(strchr(line, '\n'), line + len - 1);
		assert_string_equal(line + len - 4, "...\n");
		/* One byte less is whole. */
		name[LP_LOG_TEXT_MAX] = '\0';
		LP_LOG_INFO("%s", name);
		line = logged();
		bool is_cut = strstr(line, "...") != NULL;
		assert_int_equal(is_cut, fills[i] == '\1');
	}
}

static void chatter(unsigned cnt)
{
	for (unsigned i = 0; i < cnt; i++)
		LP_LOG_INFO("again %u", i);
}

static unsigned lines_in(const char *text)
{
	unsigned cnt = 0;
	for (; *text != '\0'; text++)
		cnt += *text == '\n';
	return cnt;
}

static void test_rate_limit(void **state)
{
	(void)state;
	struct lp_log_stats before;
	struct lp_log_stats after;
	lp_log_read_stats(&before);
	/* An odd start shows that windows begin with a message, not with the clock's tick. */
	lp_clock_sim_advance_to(&sim, 4999 * LP_NS_PER_MS);
	chatter(LP_LOG_BURST + 32);
	assert_int_equal(lines_in(logged()), LP_LOG_BURST);
	lp_clock_sim_advance_to(&sim, (4999 + LP_LOG_INTERVAL_MS - 1) * LP_NS_PER_MS);
	chatter(1);
	assert_string_equal(logged(), "");
	/* Other places go on. */
	LP_LOG_INFO("elsewhere");
	assert_int_equal(lines_in(logged()), 1);

	lp_clock_sim_advance_to(&sim, (4999 + LP_LOG_INTERVAL_MS) * LP_NS_PER_MS);
	chatter(1);
	assert_string_equal(
		logged(),
		"2026-11-21T03:04:35.122Z info: log: suppressed 33 messages like the next\n"
		"2026-11-21T03:04:35.122Z info: again 0\n");
	/* The new window counts its first message. */
	chatter(LP_LOG_BURST);
	assert_int_equal(lines_in(logged()), LP_LOG_BURST - 1);
	lp_log_read_stats(&after);
	assert_int_equal(after.suppressed - before.suppressed, 34);
	assert_int_equal(after.lines - before.lines, 2 * LP_LOG_BURST + 2);
	assert_int_equal(after.dropped, before.dropped);

	/* No more than a burst: no line about suppressed messages. */
	lp_clock_sim_advance_to(&sim, (5000 + 3 * LP_LOG_INTERVAL_MS) * LP_NS_PER_MS);
	chatter(1);
	assert_non_null(strstr(logged(), "suppressed 1 messages"));
	lp_clock_sim_advance_to(&sim, (5000 + 4 * LP_LOG_INTERVAL_MS) * LP_NS_PER_MS);
	chatter(1);
	assert_null(strstr(logged(), "suppressed"));
	/* Where 32 bits of milliseconds wrap the site goes on as ever. */
	lp_clock_sim_advance_to(&sim, ((UINT64_C(1) << 32) - 5) * LP_NS_PER_MS);
	chatter(LP_LOG_BURST);
	assert_int_equal(lines_in(logged()), LP_LOG_BURST);
	lp_clock_sim_advance_to(&sim, ((UINT64_C(1) << 32) + 5) * LP_NS_PER_MS);
	chatter(1);
	assert_string_equal(logged(), "");
}

static void log_line(void)
{
	static struct lp_log_site site;
	site = (struct lp_log_site){0};
	lp_log_at(&site, LP_LEVEL_INFO, "%0100d", 1);
}

static void test_full_pipe_drops(void **state)
{
	(void)state;
	struct lp_log_stats before;
	struct lp_log_stats after;
	assert_int_equal(fcntl(pipe_fds[1], F_SETPIPE_SZ, 8192), 8192);
	lp_log_read_stats(&before);
	/* A test that blocks here for good has found the bug. */
	for (int i = 0; i < 200; i++)
		log_line();
	lp_log_read_stats(&after);
	uint64_t written = after.lines - before.lines;
	uint64_t dropped = after.dropped - before.dropped;
	assert_int_equal(written + dropped, 200);
	assert_true(written > 0 && dropped > 0);
	assert_int_equal(lines_in(logged()), written);

	/* When there is room again the loss is reported, once. */
	char want[128];
	log_line();
	(void)snprintf(want, sizeof(want), "warn: log: %llu lines lost for want of room\n",
		       (unsigned long long)dropped);
	const char *text = logged();
	assert_non_null(strstr(text, want));
	assert_int_equal(lines_in(text), 2);
	log_line();
	assert_int_equal(lines_in(logged()), 1);
}

static void test_reader_gone(void **state)
{
	(void)state;
	struct lp_log_stats before;
	struct lp_log_stats after;
	lp_log_read_stats(&before);
	(void)close(pipe_fds[0]);
	LP_LOG_INFO("no SIGPIPE, please");
	lp_log_init(&sim.clock, -1, NULL);
	LP_LOG_INFO("no descriptor at all");
	lp_log_read_stats(&after);
	assert_int_equal(after.dropped - before.dropped, 2);
	/* The loss is reported to the next reader. */
	(void)close(pipe_fds[1]);
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	lp_log_init(&sim.clock, pipe_fds[1], NULL);
	LP_LOG_INFO("back");
	assert_non_null(strstr(logged(), "2 lines lost"));
}

static void test_journal(void **state)
{
	(void)state;
	struct stat st;
	char stream[64];
	assert_int_equal(fstat(pipe_fds[1], &st), 0);
	(void)snprintf(stream, sizeof(stream), "%llu:%llu", (unsigned long long)st.st_dev,
		       (unsigned long long)st.st_ino);
	lp_log_init(&sim.clock, pipe_fds[1], stream);
	lp_log_set_level(LP_LEVEL_DEBUG);
	LP_LOG_ERROR("e");
	LP_LOG_WARN("w\n<0>p");
	LP_LOG_DEBUG("d");
	assert_string_equal(logged(), "<3>e\n<4>w\\n<0>p\n<7>d\n");
	/* The journal is somewhere else, or the variable is nonsense: plain lines. */
	static const char *const others[] = {"1:2", "", "x", NULL};
	for (size_t i = 0; i < LP_ARRAY_SIZE(others); i++) {
		lp_log_init(&sim.clock, pipe_fds[1], others[i]);
		LP_LOG_ERROR("e");
		assert_string_equal(logged(), "2026-11-21T03:04:25.123Z error: e\n");
	}
}

static void test_errno_survives(void **state)
{
	(void)state;
	errno = ENOSPC;
	LP_LOG_INFO("found");
	assert_int_equal(errno, ENOSPC);
	lp_log_init(&sim.clock, -1, NULL);
	errno = ENOSPC;
	LP_LOG_INFO("lost");
	assert_int_equal(errno, ENOSPC);
	lp_log_init(&sim.clock, pipe_fds[1], NULL);
	LP_LOG_INFO("the loss is told here, not in the next test");
}

enum { THREADS = 4, MESSAGES = 500 };

static void *log_much(void *arg)
{
	(void)arg;
	chatter(MESSAGES);
	return NULL;
}

/* All threads log from one site within one window: the burst is exact, and so is the rest. */
static void test_threads(void **state)
{
	(void)state;
	pthread_t threads[THREADS];
	lp_clock_sim_advance_to(&sim, UINT64_C(1000000) * LP_NS_PER_S);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, log_much, NULL), 0);
	for (int i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	/* The site may first report the messages suppressed in the test before. */
	const char *text = logged();
	unsigned notes = strstr(text, "suppressed") != NULL;
	assert_int_equal(lines_in(text), LP_LOG_BURST + notes);
	lp_clock_sim_advance_to(&sim, UINT64_C(1000010) * LP_NS_PER_S);
	chatter(1);
	char want[64];
	(void)snprintf(want, sizeof(want), "suppressed %u messages",
		       THREADS * MESSAGES - LP_LOG_BURST);
	assert_non_null(strstr(logged(), want));
}

/* The file holds this text, and no more. */
static void check_file(const char *path, const char *want)
{
	char text[512];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	ssize_t got = read(fd, text, sizeof(text) - 1);
	assert_true(got >= 0);
	text[got] = '\0';
	assert_string_equal(text, want);
	assert_int_equal(close(fd), 0);
}

/* After a move and a new open no line is lost, and none is in the wrong file. A file that cannot be
 * opened changes nothing. */
static void test_file(void **state)
{
	(void)state;
	assert_int_equal(lp_log_open_file("no-such-directory/log"), -ENOENT);
	LP_LOG_NOTICE("to the pipe");
	assert_string_equal(logged(), "2026-11-21T03:04:25.123Z notice: to the pipe\n");
	assert_int_equal(lp_log_open_file("a.log"), 0);
	LP_LOG_NOTICE("one");
	assert_int_equal(rename("a.log", "b.log"), 0);
	LP_LOG_NOTICE("two");
	assert_int_equal(lp_log_open_file("a.log"), 0);
	LP_LOG_NOTICE("three");
	assert_int_equal(lp_log_open_file("no-such-directory/log"), -ENOENT);
	LP_LOG_NOTICE("four");
	check_file("b.log", "2026-11-21T03:04:25.123Z notice: one\n"
			    "2026-11-21T03:04:25.123Z notice: two\n");
	check_file("a.log", "2026-11-21T03:04:25.123Z notice: three\n"
			    "2026-11-21T03:04:25.123Z notice: four\n");
	assert_string_equal(logged(), "");
	assert_int_equal(unlink("a.log"), 0);
	assert_int_equal(unlink("b.log"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_lines_and_levels, setup, teardown),
		cmocka_unit_test(test_level_names),
		cmocka_unit_test_setup_teardown(test_calendar, setup, teardown),
		cmocka_unit_test(test_escapes),
		cmocka_unit_test_setup_teardown(test_hostile_name_is_one_line, setup, teardown),
		cmocka_unit_test_setup_teardown(test_long_lines_are_cut, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rate_limit, setup, teardown),
		cmocka_unit_test_setup_teardown(test_full_pipe_drops, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reader_gone, setup, teardown),
		cmocka_unit_test_setup_teardown(test_journal, setup, teardown),
		cmocka_unit_test_setup_teardown(test_errno_survives, setup, teardown),
		cmocka_unit_test_setup_teardown(test_threads, setup, teardown),
		cmocka_unit_test_setup_teardown(test_file, setup, teardown),
	};
	return lp_test_main(tests, "base/log");
}
