/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is written is read back; no get reads and no put writes past the end, whatever
 * lengths it is told; errors stick; only the one right encoding of a varint is taken.
 * Method: round trips, every cut of a record, in memory that ends exactly at the record (so that
 * a sanitizer sees a byte too many), lengths at the edges, random operations on random bytes. */
#include "base/testing/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cursor.h"
#include "base/prng.h"

#define RECORD_BYTES (1 + 2 + 4 + 3 * 4 + 8 + 8 + 4 + 8 + 2 + 3 + 4)

static const uint32_t some_u32s[] = {0x88000008, 0, 0xffffffff};

static void put_record(struct lp_writer *w)
{
	lp_writer_u8(w, 0x81);
	lp_writer_u16(w, 0x8202);
	lp_writer_u32(w, 0x83000003);
	lp_writer_u32s(w, some_u32s, LP_ARRAY_SIZE(some_u32s));
	lp_writer_u64(w, UINT64_C(0x8400000000000004));
	lp_writer_i64(w, INT64_MIN + 5);
	lp_writer_be32(w, 0x86000006);
	lp_writer_be64(w, UINT64_C(0x8700000000000007));
	lp_writer_varint(w, 300);
	lp_writer_bytes(w, "abc", 3);
	lp_writer_zeros(w, 4);
}

static bool get_record(struct lp_reader *r)
{
	char text[3];
	bool same = lp_reader_u8(r) == 0x81;
	same &= lp_reader_u16(r) == 0x8202;
	same &= lp_reader_u32(r) == 0x83000003;
	for (size_t i = 0; i < LP_ARRAY_SIZE(some_u32s); i++)
		same &= lp_reader_u32(r) == some_u32s[i];
	same &= lp_reader_u64(r) == UINT64_C(0x8400000000000004);
	same &= lp_reader_i64(r) == INT64_MIN + 5;
	same &= lp_reader_be32(r) == 0x86000006;
	same &= lp_reader_be64(r) == UINT64_C(0x8700000000000007);
	same &= lp_reader_varint(r) == 300;
	lp_reader_copy(r, text, sizeof(text));
	same &= memcmp(text, "abc", 3) == 0;
	lp_reader_zeros(r, 4);
	return same;
}

static void test_round_trip(void **state)
{
	(void)state;
	uint8_t buf[RECORD_BYTES];
	struct lp_writer w;
	size_t len = 0;
	lp_writer_init(&w, buf, sizeof(buf));
	put_record(&w);
	assert_true(lp_writer_finish(&w, &len));
	assert_int_equal(len, RECORD_BYTES);
	assert_int_equal(lp_writer_remaining(&w), 0);

	struct lp_reader r;
	lp_reader_init(&r, buf, len);
	assert_false(lp_reader_finish(&r)); /* nothing read yet */
	assert_true(get_record(&r));
	assert_true(lp_reader_finish(&r));
	assert_int_equal(lp_reader_offset(&r), RECORD_BYTES);
}

static void test_bytes_on_the_wire(void **state)
{
	(void)state;
	static const uint8_t want[] = {0x34, 0x12, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff,
				       0xff, 0xff, 0x12, 0x34, 0x56, 0x78, 0xac, 0x02};
	uint8_t buf[sizeof(want)];
	struct lp_writer w;
	size_t len;
	lp_writer_init(&w, buf, sizeof(buf));
	lp_writer_u16(&w, 0x1234);
	lp_writer_i64(&w, -2);
	lp_writer_be32(&w, 0x12345678);
	lp_writer_varint(&w, 300);
	assert_true(lp_writer_finish(&w, &len));
	assert_memory_equal(buf, want, sizeof(want));
}

/* A record cut anywhere is noticed, and a buffer too short by any number of bytes. */
static void test_every_cut(void **state)
{
	(void)state;
	uint8_t whole[RECORD_BYTES];
	struct lp_writer w;
	lp_writer_init(&w, whole, sizeof(whole));
	put_record(&w);
	for (size_t cut = 0; cut < RECORD_BYTES; cut++) {
		uint8_t *exact = malloc(LP_MAX(cut, 1));
		size_t len = 77;
		assert_non_null(exact);
		lp_writer_init(&w, cut == 0 ? NULL : exact, cut);
		put_record(&w);
		assert_true(lp_writer_overflowed(&w));
		assert_false(lp_writer_finish(&w, &len));
		assert_int_equal(len, 77);
		/* No hole, and no smaller item behind the one that did not fit. */
		assert_memory_equal(exact, whole, lp_writer_offset(&w));

		memcpy(exact, whole, cut);
		struct lp_reader r;
		lp_reader_init(&r, cut == 0 ? NULL : exact, cut);
		(void)get_record(&r);
		assert_true(lp_reader_failed(&r));
		assert_false(lp_reader_finish(&r));
		assert_int_equal(lp_reader_remaining(&r), 0);
		assert_true(lp_reader_offset(&r) <= cut);
		free(exact);
	}
}

static void test_failure_sticks(void **state)
{
	(void)state;
	static const uint8_t buf[4] = {1, 2, 3, 4};
	struct lp_reader r;
	uint8_t to[2] = {9, 9};
	lp_reader_init(&r, buf, sizeof(buf));
	assert_int_equal(lp_reader_u8(&r), 1);
	assert_int_equal(lp_reader_u32(&r), 0);
	/* A smaller get would fit; it must fail too, and a length of 0 as well. */
	assert_int_equal(lp_reader_u8(&r), 0);
	assert_null(lp_reader_bytes(&r, 0));
	assert_int_equal(lp_reader_varint(&r), 0);
	lp_reader_copy(&r, to, sizeof(to));
	assert_int_equal(to[0] | to[1], 0);
	assert_false(lp_reader_expect(&r, 0, 1));
	assert_false(lp_reader_finish(&r));
	assert_int_equal(lp_reader_offset(&r), 1); /* where the failed get began */

	uint8_t room[4] = {0};
	struct lp_writer w;
	lp_writer_init(&w, room, sizeof(room));
	lp_writer_u8(&w, 7);
	lp_writer_u32(&w, 7);
	lp_writer_u8(&w, 7);
	lp_writer_patch_u32(&w, 0, 7); /* nothing is written, nothing asserted */
	assert_null(lp_writer_reserve(&w, 0));
	assert_int_equal(lp_writer_offset(&w), 1);
	assert_int_equal(lp_writer_remaining(&w), 0);
	assert_int_equal(room[1] | room[2] | room[3], 0);
}

static void test_absurd_lengths(void **state)
{
	(void)state;
	static const uint8_t buf[16] = {0};
	static const uint64_t lens[] = {
		17,         UINT32_MAX,    INT64_MAX,         SIZE_MAX,         UINT64_MAX - 7,
		UINT64_MAX, SIZE_MAX - 15, UINT64_C(1) << 32, UINT64_C(1) << 63};
	for (size_t i = 0; i < LP_ARRAY_SIZE(lens); i++) {
		struct lp_reader r;
		struct lp_reader sub;
		for (size_t skip = 0; skip <= 16; skip += 8) {
			lp_reader_init(&r, buf, sizeof(buf));
			(void)lp_reader_bytes(&r, skip);
			assert_null(lp_reader_bytes(&r, lens[i]));
			assert_true(lp_reader_failed(&r));
		}
		lp_reader_init(&r, buf, sizeof(buf));
		lp_reader_zeros(&r, lens[i]);
		assert_true(lp_reader_failed(&r));
		lp_reader_init(&r, buf, sizeof(buf));
		lp_reader_sub(&r, lens[i], &sub);
		assert_true(lp_reader_failed(&r) && lp_reader_failed(&sub));
		assert_int_equal(lp_reader_u8(&sub), 0);
		lp_reader_init(&r, buf, sizeof(buf));
		assert_false(lp_reader_expect(&r, lens[i], 1));
		lp_reader_init(&r, buf, sizeof(buf));
		assert_false(lp_reader_expect(&r, lens[i], 16)); /* products that wrap */
	}
}

static void test_expect(void **state)
{
	(void)state;
	static const uint8_t buf[16] = {0};
	struct lp_reader r;
	lp_reader_init(&r, buf, sizeof(buf));
	assert_true(lp_reader_expect(&r, 2, 8));
	assert_true(lp_reader_expect(&r, 1, 9));
	assert_true(lp_reader_expect(&r, 0, 100));
	assert_int_equal(lp_reader_remaining(&r), 16);
	assert_false(lp_reader_expect(&r, 2, 9));
	assert_true(lp_reader_failed(&r));
}

static void test_reserved_zeros(void **state)
{
	(void)state;
	static const uint8_t buf[4] = {0, 0, 0, 1};
	struct lp_reader r;
	lp_reader_init(&r, buf, sizeof(buf));
	lp_reader_zeros(&r, 3);
	assert_false(lp_reader_failed(&r));
	lp_reader_zeros(&r, 0);
	assert_int_equal(lp_reader_u8(&r), 1);
	assert_true(lp_reader_finish(&r));
	lp_reader_init(&r, buf, sizeof(buf));
	lp_reader_zeros(&r, 4);
	assert_true(lp_reader_failed(&r));
	assert_int_equal(lp_reader_offset(&r), 0);
}

static void test_sub_readers(void **state)
{
	(void)state;
	static const uint8_t buf[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct lp_reader r;
	struct lp_reader sub;
	struct lp_reader inner;
	lp_reader_init(&r, buf, sizeof(buf));
	(void)lp_reader_u8(&r);
	lp_reader_sub(&r, 4, &sub);
	assert_int_equal(lp_reader_offset(&sub), 1);
	assert_int_equal(lp_reader_u8(&sub), 2);
	lp_reader_sub(&sub, 2, &inner);
	assert_int_equal(lp_reader_u16(&inner), 0x0403);
	assert_int_equal(lp_reader_offset(&inner), 4);
	assert_true(lp_reader_sub_finish(&sub, &inner));
	assert_int_equal(lp_reader_u8(&sub), 5);
	/* The end of the part is an end, though the whole goes on. */
	struct lp_reader copy = sub;
	assert_int_equal(lp_reader_u8(&copy), 0);
	assert_true(lp_reader_failed(&copy));
	assert_true(lp_reader_sub_finish(&r, &sub));
	assert_int_equal(lp_reader_u8(&r), 6);

	/* A part not read to its end makes the whole fail; so does a failed part. */
	lp_reader_sub(&r, 2, &sub);
	(void)lp_reader_u8(&sub);
	copy = r;
	assert_false(lp_reader_sub_finish(&copy, &sub));
	assert_false(lp_reader_finish(&copy));
	(void)lp_reader_u16(&sub);
	assert_false(lp_reader_sub_finish(&r, &sub));
	assert_true(lp_reader_failed(&r));

	lp_reader_init(&r, NULL, 0);
	lp_reader_sub(&r, 0, &sub);
	assert_true(lp_reader_sub_finish(&r, &sub));
	assert_true(lp_reader_finish(&r));
}

static void test_varint_round_trip(void **state)
{
	(void)state;
	uint8_t buf[LP_VARINT_BYTES_MAX];
	struct lp_writer w;
	struct lp_reader r;
	size_t len = 0;
	for (unsigned bit = 0; bit < 64; bit++) {
		for (int d = -1; d <= 1; d++) {
			uint64_t value = (UINT64_C(1) << bit) + (uint64_t)(int64_t)d;
			lp_writer_init(&w, buf, sizeof(buf));
			lp_writer_varint(&w, value);
			assert_true(lp_writer_finish(&w, &len));
			assert_int_equal(len, lp_varint_bytes(value));
			lp_reader_init(&r, buf, len);
			assert_true(lp_reader_varint(&r) == value);
			assert_true(lp_reader_finish(&r));
		}
	}
	assert_int_equal(lp_varint_bytes(0), 1);
	assert_int_equal(lp_varint_bytes(127), 1);
	assert_int_equal(lp_varint_bytes(128), 2);
	assert_int_equal(lp_varint_bytes(UINT64_MAX), LP_VARINT_BYTES_MAX);
}

static void test_varint_refused(void **state)
{
	(void)state;
	static const struct {
		uint8_t len;
		uint8_t bytes[11];
	} bad[] = {
		{2, {0x80, 0x00}},       /* 0, overlong */
		{2, {0xff, 0x00}},       /* 127, overlong */
		{3, {0x80, 0x80, 0x00}}, /* 0, more so */
		{1, {0x80}},             /* cut */
		{9, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		{10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}}, /* 2^64 .. */
		{10, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x7f}},
		{11, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x81, 0x00}},
		{11, {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x01}},
		{0, {0}},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		struct lp_reader r;
		lp_reader_init(&r, bad[i].bytes, bad[i].len);
		assert_int_equal(lp_reader_varint(&r), 0);
		assert_true(lp_reader_failed(&r));
		assert_int_equal(lp_reader_offset(&r), 0);
	}
}

static void test_patch(void **state)
{
	(void)state;
	uint8_t buf[14];
	struct lp_writer w;
	struct lp_reader r;
	lp_writer_init(&w, buf, sizeof(buf));
	lp_writer_zeros(&w, 14);
	lp_writer_patch_u16(&w, 0, 0x1122);
	lp_writer_patch_u32(&w, 2, 0x33445566);
	lp_writer_patch_u64(&w, 6, UINT64_C(0x778899aabbccddee));
	lp_reader_init(&r, buf, sizeof(buf));
	assert_int_equal(lp_reader_u16(&r), 0x1122);
	assert_int_equal(lp_reader_u32(&r), 0x33445566);
	assert_true(lp_reader_u64(&r) == UINT64_C(0x778899aabbccddee));
	assert_true(lp_reader_finish(&r));
}

/* Patching bytes that were not written is a bug of ours: it must abort. */
static void test_patch_outside_asserts(void **state)
{
	(void)state;
	static const size_t offsets[] = {1, 4, 16, SIZE_MAX};
	for (size_t i = 0; i < LP_ARRAY_SIZE(offsets); i++) {
		pid_t pid = fork();
		assert_true(pid >= 0);
		if (pid == 0) {
			(void)signal(SIGABRT, SIG_DFL);
			(void)close(STDERR_FILENO);
			uint8_t buf[16];
			struct lp_writer w;
			lp_writer_init(&w, buf, sizeof(buf));
			lp_writer_u32(&w, 0);
			lp_writer_patch_u32(&w, offsets[i], 1);
			_exit(0);
		}
		int status = 0;
		assert_int_equal(waitpid(pid, &status, 0), pid);
		assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
	}
}

static void random_get(struct lp_prng *prng, struct lp_reader *r)
{
	uint8_t to[8];
	struct lp_reader sub;
	uint64_t len = lp_prng_chance(prng, 1, 8) ? lp_prng_u64(prng) : lp_prng_below(prng, 9);
	switch (lp_prng_below(prng, 9)) {
	case 0:
		(void)lp_reader_u8(r);
		break;
	case 1:
		(void)lp_reader_u16(r);
		break;
	case 2:
		(void)lp_reader_u32(r);
		break;
	case 3:
		(void)lp_reader_be64(r);
		break;
	case 4:
		(void)lp_reader_varint(r);
		break;
	case 5:
		lp_reader_copy(r, to, len & 7);
		break;
	case 6:
		lp_reader_zeros(r, len);
		break;
	case 7:
		lp_reader_sub(r, len, &sub);
		lp_reader_copy(&sub, to, sizeof(to));
		(void)lp_reader_sub_finish(r, &sub);
		break;
	default:
		assert_true(lp_reader_expect(r, len, 1 + (len & 3)) || lp_reader_failed(r));
		break;
	}
}

static void test_random_gets_on_random_bytes(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (int n = 0; n < 5000; n++) {
		size_t len = lp_prng_between(&prng, 1, 64);
		uint8_t *exact = malloc(len);
		assert_non_null(exact);
		lp_prng_fill(&prng, exact, len);
		struct lp_reader r;
		lp_reader_init(&r, exact, len);
		for (int step = 0; step < 20; step++) {
			size_t before = lp_reader_offset(&r);
			bool had_failed = lp_reader_failed(&r);
			random_get(&prng, &r);
			assert_true(lp_reader_offset(&r) >= before);
			assert_true(lp_reader_offset(&r) + lp_reader_remaining(&r) <= len);
			assert_true(!had_failed || lp_reader_failed(&r));
			assert_true(!had_failed || lp_reader_offset(&r) == before);
		}
		free(exact);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_bytes_on_the_wire),
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_failure_sticks),
		cmocka_unit_test(test_absurd_lengths),
		cmocka_unit_test(test_expect),
		cmocka_unit_test(test_reserved_zeros),
		cmocka_unit_test(test_sub_readers),
		cmocka_unit_test(test_varint_round_trip),
		cmocka_unit_test(test_varint_refused),
		cmocka_unit_test(test_patch),
		cmocka_unit_test(test_patch_outside_asserts),
		cmocka_unit_test(test_random_gets_on_random_bytes),
	};
	return lp_test_main(tests, "base/cursor");
}
