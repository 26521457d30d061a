/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: pieces are aligned, disjoint and keep their contents; the limit holds; snapshots and
 * resets give back exactly what came later; a write beyond a piece is noticed.
 * Method: random allocations filled with a pattern and looked at again; the limit approached from
 * below; a child process that does wrong must die. */
#include "base/testing/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/memory/arena.h"
#include "base/prng.h"

static void test_alignment_and_sizes(void **state)
{
	(void)state;
	struct lp_arena arena;
	lp_test_ok(lp_arena_init(&arena, 1024, SIZE_MAX));
	for (size_t align = 1; align <= LP_ARENA_ALIGN_MAX; align *= 2) {
		for (size_t size = 0; size < 100; size++) {
			char *piece = lp_arena_alloc(&arena, size, align);
			assert_non_null(piece);
			assert_true(lp_is_aligned((uintptr_t)piece, align));
			memset(piece, 0xff, size);
		}
	}
	char *zeros = lp_arena_zalloc(&arena, 300, 8);
	assert_non_null(zeros);
	for (int i = 0; i < 300; i++)
		assert_int_equal(zeros[i], 0);
	char *name = lp_arena_strndup(&arena, "a\0bcd", 4);
	assert_non_null(name);
	assert_memory_equal(name, "a\0bc", 5);
	name = lp_arena_strndup(&arena, NULL, 0);
	assert_non_null(name);
	assert_string_equal(name, "");
	lp_arena_fini(&arena);
	lp_arena_fini(&arena); /* zeroed now, which is allowed */
}

struct piece {
	unsigned char *at;
	size_t size;
	unsigned char fill;
};

static void check_pieces(const struct piece *pieces, size_t cnt)
{
	for (size_t i = 0; i < cnt; i++) {
		for (size_t n = 0; n < pieces[i].size; n++)
			assert_int_equal(pieces[i].at[n], pieces[i].fill);
	}
}

static size_t fill_pieces(struct lp_arena *arena, struct lp_prng *prng, struct piece *pieces,
			  size_t from, size_t to)
{
	for (size_t i = from; i < to; i++) {
		struct piece *p = &pieces[i];
		p->size = lp_prng_below(prng, lp_prng_chance(prng, 1, 10) ? 3000 : 100);
		p->fill = (unsigned char)i;
		p->at = lp_arena_alloc(arena, p->size, (size_t)1 << lp_prng_below(prng, 7));
		assert_non_null(p->at);
		memset(p->at, p->fill, p->size);
	}
	return to;
}

static void test_random_pieces_and_rollbacks(void **state)
{
	(void)state;
	struct piece pieces[200];
	struct lp_prng prng;
	struct lp_arena arena;
	lp_prng_init(&prng, 1);
	lp_test_ok(lp_arena_init(&arena, 1024, SIZE_MAX));
	for (int round = 0; round < 50; round++) {
		size_t keep = fill_pieces(&arena, &prng, pieces, 0, lp_prng_below(&prng, 100));
		struct lp_arena_snapshot snapshot = lp_arena_snapshot(&arena);
		size_t bytes = arena.bytes;
		for (int again = 0; again < 3; again++) {
			size_t more = keep + lp_prng_below(&prng, 100);
			(void)fill_pieces(&arena, &prng, pieces, keep, more);
			check_pieces(pieces, more);
			lp_arena_rollback(&arena, &snapshot);
			check_pieces(pieces, keep);
			assert_int_equal(arena.bytes, bytes);
		}
		lp_arena_reset(&arena);
		assert_int_equal(arena.bytes, 1024);
	}
	lp_arena_fini(&arena);
}

static void test_reset_keeps_the_first_chunk(void **state)
{
	(void)state;
	struct lp_arena arena;
	lp_test_ok(lp_arena_init(&arena, 1024, 100000));
	void *before = lp_arena_alloc(&arena, 100, 16);
	assert_non_null(lp_arena_alloc(&arena, 5000, 16));
	assert_non_null(lp_arena_alloc(&arena, 900, 16));
	assert_true(arena.bytes > 6000);
	lp_arena_reset(&arena);
	assert_int_equal(arena.bytes, 1024);
	assert_ptr_equal(lp_arena_alloc(&arena, 100, 16), before);
	lp_arena_fini(&arena);
}

static void test_rollback_reuses_the_same_place(void **state)
{
	(void)state;
	struct lp_arena arena;
	lp_test_ok(lp_arena_init(&arena, 1024, 4096));
	assert_non_null(lp_arena_alloc(&arena, 10, 1));
	struct lp_arena_snapshot outer = lp_arena_snapshot(&arena);
	void *a = lp_arena_alloc(&arena, 10, 1);
	struct lp_arena_snapshot inner = lp_arena_snapshot(&arena);
	void *b = lp_arena_alloc(&arena, 10, 1);
	lp_arena_rollback(&arena, &inner);
	lp_arena_rollback(&arena, &inner); /* nothing left to undo */
	assert_ptr_equal(lp_arena_alloc(&arena, 10, 1), b);
	lp_arena_rollback(&arena, &outer);
	assert_ptr_equal(lp_arena_alloc(&arena, 10, 1), a);
	lp_arena_fini(&arena);
}

static void test_limit(void **state)
{
	(void)state;
	struct lp_arena arena;
	lp_test_ok(lp_arena_init(&arena, 1024, 4096));
	size_t cnt = 0;
	while (lp_arena_alloc(&arena, 64, 8) != NULL) {
		cnt++;
		assert_true(arena.bytes <= 4096);
	}
	assert_int_equal(arena.bytes, 4096);
	assert_in_range(cnt, 40, 64);
	/* What still fits into the last chunk is given; the arena works on after a refusal. */
	while (lp_arena_alloc(&arena, 1, 1) != NULL)
		cnt++;
	lp_arena_reset(&arena);
	assert_non_null(lp_arena_alloc(&arena, 64, 8));
	assert_null(lp_arena_alloc(&arena, 4096, 8));
	assert_null(lp_arena_alloc(&arena, 4096 - 1024 - 16, 8));
	assert_non_null(lp_arena_alloc(&arena, 2500, 8));
	lp_arena_fini(&arena);

	lp_test_ok(lp_arena_init(&arena, 256, 256));
	assert_non_null(lp_arena_alloc(&arena, 64, 64));
	assert_null(lp_arena_alloc(&arena, 256, 1));
	lp_arena_fini(&arena);
}

static void test_absurd_sizes(void **state)
{
	(void)state;
	struct lp_arena arena;
	lp_test_ok(lp_arena_init(&arena, 1024, SIZE_MAX / 4));
	size_t bytes = arena.bytes;
	for (size_t n = 0; n < 200; n++) {
		assert_null(lp_arena_alloc(&arena, SIZE_MAX - n, LP_ARENA_ALIGN_MAX));
		assert_null(lp_arena_alloc(&arena, SIZE_MAX / 2 - n, 1));
		assert_null(lp_arena_zalloc(&arena, SIZE_MAX - n, 1));
		assert_null(lp_arena_strndup(&arena, "", SIZE_MAX - n));
	}
	assert_null(lp_arena_array(&arena, UINT64_MAX, 1));
	assert_null(lp_arena_array(&arena, UINT64_C(1) << 61, 8));  /* wraps to 0 */
	assert_null(lp_arena_array(&arena, UINT64_MAX / 8 + 2, 8)); /* wraps to 8 */
	assert_non_null(lp_arena_array(&arena, 10, 8));
	assert_non_null(lp_arena_array(&arena, 0, 8));
	assert_int_equal(arena.bytes, bytes);
	lp_arena_fini(&arena);
}

static void overrun_piece(struct lp_arena *arena)
{
	char *piece = lp_arena_alloc(arena, 13, 1);
	assert_non_null(lp_arena_alloc(arena, 50, 1));
	piece[13] = 0;
	lp_arena_reset(arena);
}

static void overrun_before_rollback(struct lp_arena *arena)
{
	struct lp_arena_snapshot snapshot = lp_arena_snapshot(arena);
	char *piece = lp_arena_alloc(arena, 2000, 1);
	piece[2000] = 0;
	lp_arena_rollback(arena, &snapshot);
}

static void overrun_before_fini(struct lp_arena *arena)
{
	char *piece = lp_arena_alloc(arena, 13, 8);
	piece[14] = 0;
	lp_arena_fini(arena);
}

static void overrun_chunk(struct lp_arena *arena)
{
	/* Reaches the end guard in any build: 1024 bytes, less the head, do not hold as many. */
	char *piece = lp_arena_alloc(arena, 900, 1);
	memset(piece, 0, 1024 - 32);
	lp_arena_reset(arena);
}

static void use_stale_snapshot(struct lp_arena *arena)
{
	assert_non_null(lp_arena_alloc(arena, 2000, 1));
	struct lp_arena_snapshot snapshot = lp_arena_snapshot(arena);
	lp_arena_reset(arena);
	lp_arena_rollback(arena, &snapshot);
}

#if defined(__SANITIZE_ADDRESS__)
static void use_after_reset(struct lp_arena *arena)
{
	volatile char *piece = lp_arena_alloc(arena, 100, 16);
	lp_arena_reset(arena);
	piece[50] = 1;
}

static void use_before_alloc(struct lp_arena *arena)
{
	volatile char *piece = lp_arena_alloc(arena, 100, 16);
	piece[200] = 1;
}
#endif

/* True when fn was stopped, by an assert of ours or by the address sanitizer. */
static bool dies(void (*fn)(struct lp_arena *arena))
{
	pid_t pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		struct lp_arena arena;
		(void)signal(SIGABRT, SIG_DFL);
		(void)close(STDERR_FILENO);
		if (lp_arena_init(&arena, 1024, 10000) == 0)
			fn(&arena);
		_exit(0);
	}
	int status = 0;
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

static void test_overruns_are_noticed(void **state)
{
	(void)state;
	assert_true(dies(overrun_chunk));
	assert_true(dies(use_stale_snapshot));
	if (LP_ASSERT_SLOW_ON) {
		assert_true(dies(overrun_piece));
		assert_true(dies(overrun_before_rollback));
		assert_true(dies(overrun_before_fini));
	}
#if defined(__SANITIZE_ADDRESS__)
	assert_true(dies(use_after_reset));
	assert_true(dies(use_before_alloc));
#endif
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alignment_and_sizes),
		cmocka_unit_test(test_random_pieces_and_rollbacks),
		cmocka_unit_test(test_reset_keeps_the_first_chunk),
		cmocka_unit_test(test_rollback_reuses_the_same_place),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_absurd_sizes),
		cmocka_unit_test(test_overruns_are_noticed),
	};
	return lp_test_main(tests, "base/memory/arena");
}
