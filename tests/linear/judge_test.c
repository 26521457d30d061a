/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the judge lets pass what may be, and nothing else. Method: histories by hand, good ones and
 * bad ones that differ in one thing; and histories that threads make of an object behind a lock,
 * which are good, and bad when one read of them is altered. */
#include <errno.h>
#include <pthread.h>

#include "base/clock.h"
#include "base/prng.h"
#include "base/testing/test.h"
#include "tests/linear/judge.h"
#include "tests/linear/model.h"

/* --- By hand ---------------------------------------------------------------------------------- */

struct line {
	uint64_t from;
	uint64_t to; /* 0: never */
	struct lpi_act act;
};

/* The last argument of each is a number, behind which other fields may be set. */
#define OK(from, to, ...)                                                                          \
	{                                                                                          \
		from, to,                                                                          \
		{                                                                                  \
			__VA_ARGS__                                                                \
		}                                                                                  \
	}
#define DEED(from, to, k, ...) OK(from, to, .kind = (k), .name = __VA_ARGS__)
#define PUT(from, to, n, ...)                                                                      \
	OK(from, to, .kind = LPI_PUT, .name = (n), .count = 1, .value = __VA_ARGS__)
#define WRITE(from, to, at, ...)                                                                   \
	OK(from, to, .kind = LPI_WRITE, .first = (at), .count = 1, .value = __VA_ARGS__)
#define SEE(from, to, n, ...)                                                                      \
	OK(from, to, .kind = LPI_READ, .name = (n), .count = LPI_CELLS, .got = 1,                  \
	   .cells[0] = UINT64_C(16) * __VA_ARGS__)
#define BOTH(from, to, a, ...)                                                                     \
	OK(from, to, .kind = LPI_READ, .count = LPI_CELLS, .got = 2,                               \
	   .cells[0] = UINT64_C(16) * (a), .cells[1] = UINT64_C(16) * __VA_ARGS__)
#define GONE(from, to, n)                                                                          \
	OK(from, to, .kind = LPI_READ, .name = (n), .count = LPI_CELLS, .status = -ENOENT)
#define START(from, to) OK(from, to, .kind = LPI_START)

static bool is_good(const struct line *lines, size_t cnt, enum lpi_view view)
{
	struct lpi_acts acts = {0};
	struct lpi_verdict verdict;
	for (size_t i = 0; i < cnt; i++) {
		struct lpi_act act = lines[i].act;
		act.invoke_ns = lines[i].from;
		act.return_ns = lines[i].to == 0 ? LPI_NEVER : lines[i].to;
		if (lines[i].to == 0)
			act.flags |= LPI_UNKNOWN;
		lp_test_ok(lpi_acts_add(&acts, &act));
	}
	lp_test_ok(lpi_judge(&acts, 0, view, NULL, &verdict));
	lpi_acts_fini(&acts);
	return verdict.is_good;
}

#define CHECK(good, ...)                                                                           \
	do {                                                                                       \
		const struct line lines[] = {__VA_ARGS__};                                         \
		assert_int_equal(is_good(lines, LP_ARRAY_SIZE(lines), LPI_VIEW_SOCKETS), (good));  \
	} while (0)

static void test_order_of_time(void **state)
{
	(void)state;
	CHECK(true, PUT(1, 2, 0, 1), SEE(3, 4, 0, 1));
	CHECK(true, PUT(1, 2, 0, 1), PUT(3, 6, 0, 2), SEE(4, 5, 0, 1), SEE(4, 5, 0, 2));
	/* A stale read. */
	CHECK(false, PUT(1, 2, 0, 1), PUT(3, 4, 0, 2), SEE(5, 6, 0, 1));
	/* New, then old again, by two readers. */
	CHECK(false, PUT(1, 2, 0, 1), PUT(3, 9, 0, 2), SEE(4, 5, 0, 2), SEE(6, 7, 0, 1));
	/* A value that nobody wrote. */
	CHECK(false, PUT(1, 2, 0, 1), SEE(3, 4, 0, 7));
	/* A put that is not all there. */
	CHECK(false, DEED(1, 2, LPI_PUT, 0, .count = 2, .value = 1), SEE(3, 4, 0, 1));
}

static void test_lost_update(void **state)
{
	(void)state;
	CHECK(true, PUT(1, 2, 0, 1), WRITE(3, 8, 1, 2), WRITE(4, 7, 0, 3), BOTH(9, 10, 3, 2));
	CHECK(false, PUT(1, 2, 0, 1), WRITE(3, 8, 1, 2), WRITE(4, 7, 0, 3), BOTH(9, 10, 1, 2));
	/* Two appends at one place. */
	CHECK(false, PUT(1, 2, 0, 1),
	      DEED(3, 6, LPI_APPEND, 0, .count = 1, .value = 2, .first = 1, .flags = LPI_TOLD),
	      DEED(4, 5, LPI_APPEND, 0, .count = 1, .value = 3, .first = 1, .flags = LPI_TOLD));
	/* One that is not told where it is must be somewhere. */
	CHECK(false, PUT(1, 2, 0, 1), DEED(3, 6, LPI_APPEND, 0, .count = 1, .value = 2),
	      DEED(4, 5, LPI_APPEND, 0, .count = 1, .value = 3), BOTH(7, 8, 1, 3));
	/* Two of the same version that both pass. */
#define IF_FIVE .condition = LPI_IF_VERSION, .if_version = 5
	CHECK(true, PUT(1, 2, 0, 1, .version = 5), PUT(3, 6, 0, 2, .version = 6, IF_FIVE),
	      PUT(4, 5, 0, 3, .status = -ECANCELED, IF_FIVE), SEE(7, 8, 0, 2, .version = 6));
	CHECK(false, PUT(1, 2, 0, 1, .version = 5), PUT(3, 6, 0, 2, .version = 6, IF_FIVE),
	      PUT(4, 5, 0, 3, .version = 7, IF_FIVE));
	CHECK(false, PUT(1, 2, 0, 1, .version = 5), PUT(3, 4, 0, 3, .status = -ECANCELED, IF_FIVE));
	CHECK(false, PUT(1, 2, 0, 1, .version = 5), SEE(3, 4, 0, 1, .version = 6));
	CHECK(false, PUT(1, 2, 0, 1, .version = 5), WRITE(3, 4, 0, 2, .version = 5));
	/* Rule W3: another object with the version of the one that it replaces, or an older one. */
	CHECK(false, PUT(1, 2, 0, 1, .version = 5), PUT(3, 4, 0, 2, .version = 5));
	CHECK(false, PUT(1, 2, 0, 1, .version = 5), PUT(3, 4, 0, 2, .version = 4));
}

static void test_names(void **state)
{
	(void)state;
#define MOVE(from, to) DEED(from, to, LPI_RENAME, 0, .to_name = 1)
	CHECK(true, PUT(1, 2, 0, 1), MOVE(3, 6), SEE(4, 5, 0, 1), SEE(4, 5, 1, 1), GONE(7, 8, 0));
	/* Half of a rename: at both names, or at none. */
	CHECK(false, PUT(1, 2, 0, 1), MOVE(3, 4), SEE(5, 6, 0, 1), SEE(5, 6, 1, 1));
	CHECK(false, PUT(1, 2, 0, 1), MOVE(3, 9), GONE(4, 5, 0), GONE(6, 7, 1));
	CHECK(false, PUT(1, 2, 0, 1), PUT(1, 2, 1, 2),
	      DEED(3, 4, LPI_RENAME, 0, .to_name = 1, .condition = LPI_IF_ABSENT));
	CHECK(true, PUT(1, 2, 0, 1), PUT(1, 2, 1, 2), DEED(3, 4, LPI_EXCHANGE, 0, .to_name = 1),
	      SEE(5, 6, 0, 2), SEE(5, 6, 1, 1));
	/* What was removed comes back. */
	CHECK(true, PUT(1, 2, 0, 1), DEED(3, 6, LPI_REMOVE, 0), SEE(4, 5, 0, 1), GONE(7, 8, 0));
	CHECK(false, PUT(1, 2, 0, 1), DEED(3, 4, LPI_REMOVE, 0), SEE(5, 6, 0, 1));
	/* Two who make one name, and two who remove it. */
	CHECK(false, PUT(1, 4, 0, 1, .condition = LPI_IF_ABSENT),
	      PUT(2, 3, 0, 2, .condition = LPI_IF_ABSENT));
	CHECK(false, PUT(1, 2, 0, 1), DEED(3, 6, LPI_REMOVE, 0), DEED(4, 5, LPI_REMOVE, 0));
	/* Hard links are one object, until a put gives a name another one (rule W3). */
#define LINK DEED(3, 4, LPI_LINK, 0, .to_name = 1)
	CHECK(true, PUT(1, 2, 0, 1), LINK, WRITE(5, 6, 0, 2), SEE(7, 8, 1, 2));
	CHECK(false, PUT(1, 2, 0, 1), LINK, WRITE(5, 6, 0, 2), SEE(7, 8, 1, 1));
	CHECK(false, PUT(1, 2, 0, 1), LINK, PUT(5, 6, 0, 2), SEE(7, 8, 1, 2));
	CHECK(true, PUT(1, 2, 0, 1), LINK, DEED(5, 6, LPI_RENAME, 0, .to_name = 1), SEE(7, 8, 0, 1),
	      SEE(7, 8, 1, 1));
	CHECK(false, PUT(1, 2, 0, 1), LINK, DEED(5, 6, LPI_STAT, 0, .got = 1, .nlink = 1));
	/* A copy is of one moment, and lands at a later one. */
	CHECK(true, PUT(1, 2, 0, 1), DEED(3, 8, LPI_COPY, 0, .to_name = 1), PUT(4, 5, 0, 2),
	      GONE(6, 7, 1), SEE(9, 10, 1, 1));
	CHECK(false, PUT(1, 2, 0, 1), PUT(3, 4, 0, 2), DEED(5, 6, LPI_COPY, 0, .to_name = 1),
	      SEE(7, 8, 1, 1));
	/* It is another object. */
	CHECK(false, PUT(1, 2, 0, 1), DEED(3, 4, LPI_COPY, 0, .to_name = 1), WRITE(5, 6, 0, 2),
	      SEE(7, 8, 1, 2));
}

static void test_handles(void **state)
{
	(void)state;
#define OPEN   DEED(3, 4, LPI_OPEN, 0)
#define HANDLE .flags = LPI_BY_HANDLE
	/* What is open is the old object (rule W3), as long as it is open. */
	CHECK(true, PUT(1, 2, 0, 1), OPEN, PUT(5, 6, 0, 2), SEE(7, 8, 0, 1, HANDLE),
	      SEE(7, 8, 0, 2));
	CHECK(false, PUT(1, 2, 0, 1), OPEN, PUT(5, 6, 0, 2), SEE(7, 8, 0, 2, HANDLE));
	CHECK(true, PUT(1, 2, 0, 1), OPEN, DEED(5, 6, LPI_REMOVE, 0),
	      DEED(7, 8, LPI_STAT, 0, HANDLE, .got = 1));
	CHECK(false, PUT(1, 2, 0, 1), OPEN, DEED(5, 6, LPI_REMOVE, 0), WRITE(7, 8, 0, 2, HANDLE),
	      SEE(9, 10, 0, 2));
	CHECK(false, PUT(1, 2, 0, 1), OPEN, DEED(5, 6, LPI_REMOVE, 0),
	      DEED(7, 8, LPI_LINK, 0, HANDLE, .to_name = 1));
}

static void test_unknown(void **state)
{
	(void)state;
	/* It has happened, or not, or happens late; but not twice, and not after the daemon's end.
	 */
	CHECK(true, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), SEE(4, 5, 0, 1), SEE(6, 7, 0, 2));
	CHECK(true, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), SEE(4, 5, 0, 1), SEE(6, 7, 0, 1));
	CHECK(false, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), SEE(4, 5, 0, 2), SEE(6, 7, 0, 1));
	CHECK(true, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), START(5, 6), SEE(7, 8, 0, 2));
	CHECK(true, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), START(5, 6), SEE(7, 8, 0, 1));
	CHECK(false, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), START(5, 6), SEE(7, 8, 0, 1),
	      SEE(9, 10, 0, 2));
	/* Acknowledged and lost; read and taken back (promises P1 and P3). */
	CHECK(false, PUT(1, 2, 0, 1), PUT(3, 4, 0, 2), START(5, 6), SEE(7, 8, 0, 1));
	CHECK(false, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), SEE(4, 5, 0, 2), START(6, 7),
	      SEE(8, 9, 0, 1));
	/* What a mount was shown a crash may take back; and what was shown long before may not. */
	CHECK(true, PUT(1, 2, 0, 1), PUT(3, 0, 0, 2), SEE(4, 5, 0, 2, .flags = LPI_MOUNT),
	      START(6, 7), SEE(8, 9, 0, 1));
	CHECK(false, PUT(1, 4, 0, 1), SEE(2, 3, 0, 2, .flags = LPI_MOUNT), PUT(5, 0, 0, 2),
	      START(6, 7), SEE(8, 9, 0, 2));
	/* Half of a rename, after a crash. */
	CHECK(false, PUT(1, 2, 0, 1), MOVE(3, 0), START(4, 5), SEE(6, 7, 0, 1), SEE(6, 7, 1, 1));
	CHECK(false, PUT(1, 2, 0, 1), MOVE(3, 0), START(4, 5), GONE(6, 7, 0), GONE(6, 7, 1));
}

static void test_what_may_be_lost(void **state)
{
	(void)state;
#define LOSSY      OK(1, 2, .kind = LPI_START, .flags = LPI_LOSSY)
#define FIRST      PUT(3, 4, 0, 1, .flags = LPI_DURABLE)
#define AFTER(a)   START(20, 21), SEE(22, 23, 0, a, .flags = LPI_DURABLE)
#define SYNC(a, b) OK(a, b, .kind = LPI_SYNC)
	CHECK(true, LOSSY, FIRST, WRITE(5, 6, 0, 2), WRITE(7, 8, 0, 3), AFTER(3));
	CHECK(true, LOSSY, FIRST, WRITE(5, 6, 0, 2), WRITE(7, 8, 0, 3), AFTER(2));
	CHECK(true, LOSSY, FIRST, WRITE(5, 6, 0, 2), WRITE(7, 8, 0, 3), AFTER(1));
	CHECK(true, LOSSY, FIRST, WRITE(5, 6, 0, 2), SYNC(7, 8), WRITE(9, 10, 0, 3), AFTER(2));
	/* Synced, and lost. */
	CHECK(false, LOSSY, FIRST, WRITE(5, 6, 0, 2), SYNC(7, 8), WRITE(9, 10, 0, 3), AFTER(1));
	/* Read through a socket, and lost (P3). */
	CHECK(true, LOSSY, FIRST, WRITE(5, 6, 0, 2), SEE(7, 8, 0, 2), AFTER(1));
	CHECK(false, LOSSY, FIRST, WRITE(5, 6, 0, 2), SEE(7, 8, 0, 2, .flags = LPI_DURABLE),
	      AFTER(1));
	/* Lost, and what was written later is there: not in order (rule M1). */
	CHECK(false, LOSSY, FIRST, WRITE(5, 6, 1, 2), WRITE(7, 8, 0, 3), AFTER(3));
	/* Nor was the later one, of which nobody knows, ordered before it. */
	CHECK(false, LOSSY, FIRST, WRITE(5, 6, 1, 2), WRITE(7, 0, 0, 3), AFTER(3));
	CHECK(true, LOSSY, FIRST, WRITE(5, 6, 0, 2), WRITE(7, 0, 0, 3), AFTER(3));
	/* Back after a crash that had lost it. */
	CHECK(false, LOSSY, FIRST, WRITE(5, 6, 0, 2), AFTER(1), START(30, 31), SEE(32, 33, 0, 2));
}

static void test_sizes(void **state)
{
	(void)state;
	CHECK(true, PUT(1, 2, 0, 1), OPEN, DEED(5, 8, LPI_TRUNCATE, 0, .count = 0),
	      SEE(6, 7, 0, 0, .flags = LPI_MOUNT | LPI_BY_HANDLE));
	CHECK(false, PUT(1, 2, 0, 1), OPEN, DEED(5, 6, LPI_TRUNCATE, 0, .count = 0),
	      SEE(7, 8, 0, 0, .flags = LPI_MOUNT | LPI_BY_HANDLE));
	/* What was under way when the daemon was killed is not so any more; and who writes in front
	 * of what is read changes no size there. */
	CHECK(false, PUT(1, 2, 0, 1), DEED(3, 0, LPI_WRITE, 1, .count = 1, .value = 2),
	      START(10, 11), SEE(12, 13, 0, 0, .flags = LPI_MOUNT));
	CHECK(false, OK(1, 2, .kind = LPI_PUT, .name = 0, .count = 2, .value = 1), OPEN,
	      DEED(5, 8, LPI_WRITE, 0, .count = 1, .value = 2),
	      OK(6, 7, .kind = LPI_READ, .name = 0, .first = 1, .count = 1, .got = 1, .cells[0] = 0,
		 .flags = LPI_MOUNT | LPI_BY_HANDLE));
	/* But through the mount: then the kernel may keep the size that it had. */
	CHECK(true, OK(1, 2, .kind = LPI_PUT, .name = 0, .count = 2, .value = 1), OPEN,
	      DEED(5, 8, LPI_WRITE, 0, .count = 1, .value = 2, .flags = LPI_MOUNT),
	      OK(6, 7, .kind = LPI_READ, .name = 0, .first = 1, .count = 1, .got = 1, .cells[0] = 0,
		 .flags = LPI_MOUNT | LPI_BY_HANDLE));
}

static void test_views(void **state)
{
	(void)state;
	/* Seen through a socket before it is answered, and not yet in the kernel's memory. */
	const struct line lines[] = {PUT(1, 2, 0, 1), PUT(3, 9, 0, 2),
				     SEE(4, 5, 0, 2, .flags = LPI_SHARP),
				     SEE(6, 7, 0, 1, .flags = LPI_MOUNT | LPI_CACHED)};
	assert_true(is_good(lines, LP_ARRAY_SIZE(lines), LPI_VIEW_SOCKETS));
	assert_true(is_good(lines, LP_ARRAY_SIZE(lines), LPI_VIEW_CELLS));
	/* Stale when the change had been answered (rule M2). */
	const struct line stale[] = {PUT(1, 2, 0, 1), PUT(3, 4, 0, 2),
				     SEE(5, 6, 0, 1, .flags = LPI_MOUNT | LPI_CACHED)};
	assert_true(is_good(stale, LP_ARRAY_SIZE(stale), LPI_VIEW_SOCKETS));
	assert_false(is_good(stale, LP_ARRAY_SIZE(stale), LPI_VIEW_CELLS));
	assert_true(is_good(stale, LP_ARRAY_SIZE(stale), LPI_VIEW_SIZES));
}

#define KERNEL   .flags = LPI_MOUNT | LPI_CACHED
#define IN(v, l) is_good(l, LP_ARRAY_SIZE(l), (v))

/* Before a change is answered the mount may show its size, and not yet its data. */
static void test_parts_of_a_change(void **state)
{
	(void)state;
	const struct line both[] = {
		PUT(1, 2, 0, 1, .version = 5), DEED(3, 9, LPI_APPEND, 0, .count = 1, .value = 2),
		DEED(4, 5, LPI_STAT, 0, .got = 2, KERNEL),
		OK(6, 7, .kind = LPI_READ, .first = 1, .count = 1, .got = 0, KERNEL)};
	assert_true(IN(LPI_VIEW_SIZES, both));
	assert_true(IN(LPI_VIEW_CELLS + 1, both));
	const struct line late[] = {PUT(1, 2, 0, 1),
				    DEED(3, 4, LPI_APPEND, 0, .count = 1, .value = 2),
				    DEED(5, 6, LPI_STAT, 0, .got = 1, KERNEL)};
	assert_false(IN(LPI_VIEW_SIZES, late));
	assert_true(IN(LPI_VIEW_CELLS, late));
	/* Back to what was: of one part that may not be. */
	const struct line back[] = {PUT(1, 2, 0, 1), WRITE(3, 9, 0, 2), SEE(4, 5, 0, 2, KERNEL),
				    SEE(6, 7, 0, 1, KERNEL)};
	assert_false(IN(LPI_VIEW_CELLS, back));
	/* The version says that the first write came first. */
	const struct line numbers[] = {PUT(1, 2, 0, 1, .version = 5),
				       WRITE(3, 9, 0, 2, .version = 6),
				       WRITE(4, 5, 1, 3, .version = 7), SEE(6, 7, 0, 1, KERNEL)};
	assert_true(IN(LPI_VIEW_SOCKETS, numbers));
	assert_false(IN(LPI_VIEW_CELLS, numbers)); /* it is of one cell, and there are two */
	const struct line older[] = {
		PUT(1, 2, 0, 1, .version = 5), WRITE(3, 9, 0, 2, .version = 6),
		WRITE(4, 5, 1, 3, .version = 7),
		OK(6, 7, .kind = LPI_READ, .count = 1, .got = 1, .cells[0] = 16, KERNEL)};
	assert_true(IN(LPI_VIEW_CELLS, older));
}

static void test_links_beside_names(void **state)
{
	(void)state;
	/* The removal is not answered, and somebody has used the name already. */
	const struct line lines[] = {
		PUT(1, 2, 0, 1), OK(3, 4, .kind = LPI_OPEN, .client = 1, KERNEL),
		DEED(5, 12, LPI_REMOVE, 0), PUT(6, 7, 0, 2, .condition = LPI_IF_ABSENT),
		DEED(8, 9, LPI_STAT, 0, .client = 1, .got = 1, .nlink = 1,
		     .flags = LPI_MOUNT | LPI_CACHED | LPI_BY_HANDLE)};
	assert_true(IN(LPI_VIEW_SIZES, lines));
	const struct line late[] = {PUT(1, 2, 0, 1),
				    OK(3, 4, .kind = LPI_OPEN, .client = 1, KERNEL),
				    DEED(5, 6, LPI_REMOVE, 0),
				    DEED(8, 9, LPI_STAT, 0, .client = 1, .got = 1, .nlink = 1,
					 .flags = LPI_MOUNT | LPI_CACHED | LPI_BY_HANDLE)};
	assert_false(IN(LPI_VIEW_SIZES, late));
}

static void test_torn(void **state)
{
	(void)state;
#define TORN(from, to)                                                                             \
	OK(from, to, .kind = LPI_READ, .count = 1, .got = 1, .cells[0] = LPI_TORN, KERNEL)
	const struct line beside[] = {PUT(1, 2, 0, 1), WRITE(3, 6, 0, 2), TORN(4, 5)};
	assert_true(IN(LPI_VIEW_CELLS, beside));
	const struct line behind[] = {PUT(1, 2, 0, 1), WRITE(3, 4, 0, 2), TORN(5, 6)};
	assert_false(IN(LPI_VIEW_CELLS, behind));
	const struct line native[] = {
		PUT(1, 2, 0, 1), WRITE(3, 6, 0, 2),
		OK(4, 5, .kind = LPI_READ, .count = 1, .got = 1, .cells[0] = LPI_TORN)};
	assert_false(IN(LPI_VIEW_SOCKETS, native));
}

/* --- By threads ------------------------------------------------------------------------------- */

#define THREADS  3u
#define OPS      300u
#define LIFE_OPS (THREADS * OPS)

struct bench {
	pthread_mutex_t mutex;
	struct lpi_group_state state;
	struct lpi_act acts[THREADS][OPS];
};

struct hand {
	struct bench *bench;
	uint32_t idx;
};

static void draw(struct lp_prng *prng, uint32_t client, uint64_t value, struct lpi_act *act)
{
	static const uint8_t kinds[] = {LPI_PUT,    LPI_READ,     LPI_READ,     LPI_READ,
					LPI_REMOVE, LPI_LINK,     LPI_EXCHANGE, LPI_RENAME,
					LPI_WRITE,  LPI_TRUNCATE, LPI_OPEN,     LPI_WRITE};
	*act = (struct lpi_act){
		.client = (uint8_t)client,
		.kind = kinds[lp_prng_below(prng, sizeof(kinds))],
		.name = (uint8_t)lp_prng_below(prng, LPI_NAMES),
		.first = (uint8_t)lp_prng_below(prng, 4),
		.count = (uint8_t)lp_prng_between(prng, 1, 4),
		.value = value,
	};
	act->to_name = (uint8_t)((act->name + 1) % LPI_NAMES);
	if (act->kind == LPI_READ) {
		act->first = 0;
		act->count = LPI_CELLS;
	}
}

/* What the act returns in this state: the one that the model allows. */
static void fill_in(const struct lpi_group_state *state, struct lpi_act *act)
{
	static const int32_t outcomes[] = {0, -ENOENT, -EEXIST};
	struct lpi_group_state next;
	const int16_t idx = state->names[act->name];
	if (act->kind == LPI_READ && idx >= 0) {
		const struct lpi_content *content = &state->inodes[idx].content;
		act->got = (uint8_t)content->cell_cnt;
		memcpy(act->cells, content->cells, sizeof(act->cells));
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(outcomes); i++) {
		act->status = outcomes[i];
		if (lpi_state_step(state, act, 0, &next) == LPI_STEP_YES)
			return;
	}
	fail_msg("no outcome of an act is possible");
}

static void *work(void *arg)
{
	struct hand *hand = arg;
	struct bench *bench = hand->bench;
	struct lp_prng prng;
	lp_prng_init(&prng, hand->idx + 1);
	for (uint32_t i = 0; i < OPS; i++) {
		struct lpi_act *act = &bench->acts[hand->idx][i];
		struct lpi_group_state next;
		draw(&prng, hand->idx, (uint64_t)hand->idx * OPS + i + 1, act);
		act->invoke_ns = lp_clock_mono_ns(lp_clock_system());
		(void)sched_yield();
		(void)pthread_mutex_lock(&bench->mutex);
		fill_in(&bench->state, act);
		(void)lpi_state_step(&bench->state, act, 0, &next);
		bench->state = next;
		(void)pthread_mutex_unlock(&bench->mutex);
		(void)sched_yield();
		act->return_ns = lp_clock_mono_ns(lp_clock_system());
	}
	return NULL;
}

static void make_history(struct bench *bench, struct lpi_acts *acts)
{
	struct hand hands[THREADS];
	pthread_t threads[THREADS];
	lpi_state_init(&bench->state);
	(void)pthread_mutex_init(&bench->mutex, NULL);
	for (uint32_t i = 0; i < THREADS; i++) {
		hands[i] = (struct hand){bench, i};
		assert_int_equal(pthread_create(&threads[i], NULL, work, &hands[i]), 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(threads[i], NULL), 0);
	(void)pthread_mutex_destroy(&bench->mutex);
	for (uint32_t i = 0; i < THREADS; i++) {
		for (uint32_t k = 0; k < OPS; k++)
			lp_test_ok(lpi_acts_add(acts, &bench->acts[i][k]));
	}
}

static void test_threads(void **state)
{
	(void)state;
	struct bench *bench = calloc(1, sizeof(*bench));
	struct lpi_acts acts = {0};
	struct lpi_verdict verdict;
	assert_non_null(bench);
	make_history(bench, &acts);
	assert_int_equal(acts.cnt, LIFE_OPS);
	lp_test_ok(lpi_judge(&acts, 0, LPI_VIEW_SOCKETS, stderr, &verdict));
	assert_true(verdict.is_good);
	assert_int_equal(verdict.left_out, 0);

	/* A read of something that was, long ago. */
	struct lpi_act *last = NULL;
	const struct lpi_act *first = NULL;
	for (size_t i = 0; i < acts.cnt; i++) {
		struct lpi_act *act = &acts.list[i];
		if (act->kind != LPI_READ || act->status != 0 || act->got == 0)
			continue;
		first = first == NULL || act->return_ns < first->return_ns ? act : first;
		last = last == NULL || act->return_ns > last->return_ns ? act : last;
	}
	assert_true(last != NULL && first != NULL && first != last);
	if (last == NULL || first == NULL)
		return; /* the compiler does not know what an assert does */
	memcpy(last->cells, first->cells, sizeof(last->cells));
	last->got = first->got;
	lp_test_ok(lpi_judge(&acts, 0, LPI_VIEW_SOCKETS, NULL, &verdict));
	assert_false(verdict.is_good);
	assert_false(verdict.has_given_up);
	lpi_acts_fini(&acts);
	free(bench);
}

static void test_file(void **state)
{
	(void)state;
	struct lpi_acts acts = {0};
	struct lpi_acts again = {0};
	const struct lpi_act act = {.kind = LPI_WRITE, .invoke_ns = 1, .return_ns = 2, .count = 3};
	const char *path = "judge_test.acts";
	lp_test_ok(lpi_acts_add(&acts, &act));
	lp_test_ok(lpi_acts_save(&acts, path));
	lp_test_ok(lpi_acts_load(&again, path));
	lp_test_ok(lpi_acts_load(&again, path));
	assert_int_equal(again.cnt, 2);
	assert_memory_equal(&again.list[1], &act, sizeof(act));
	acts.list[0].kind = LPI_KINDS;
	lp_test_ok(lpi_acts_save(&acts, path));
	lp_test_err(-EUCLEAN, lpi_acts_load(&again, path));
	lp_test_err(-ENOENT, lpi_acts_load(&again, "judge_test.none"));
	assert_int_equal(remove(path), 0);
	lpi_acts_fini(&acts);
	lpi_acts_fini(&again);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order_of_time),
		cmocka_unit_test(test_lost_update),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_handles),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_what_may_be_lost),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_views),
		cmocka_unit_test(test_parts_of_a_change),
		cmocka_unit_test(test_links_beside_names),
		cmocka_unit_test(test_torn),
		cmocka_unit_test(test_threads),
		cmocka_unit_test(test_file),
	};
	return lp_test_main(tests, "tests/linear/judge");
}
