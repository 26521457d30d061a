/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who reads from front to back is seen, alone or among others, and what is asked for is in
 * front of it, once, and not more than the window; nobody else is taken for one.
 * Method: readers of every kind, by hand; what they ask for is counted block by block. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "store/cache/read_streams.h"

#define FILE_BLOCKS 4096u
#define FILE_BYTES  (FILE_BLOCKS * LP_BLOCK_BYTES)

static struct lp_streams streams;
static uint32_t asked[FILE_BLOCKS];
static uint64_t ask_cnt;
static uint64_t asked_cnt;

static void begin(void)
{
	memset(&streams, 0, sizeof(streams));
	memset(asked, 0, sizeof(asked));
	ask_cnt = 0;
	asked_cnt = 0;
}

static uint64_t read_and_ask(uint64_t nr, uint64_t offset, uint64_t length)
{
	uint64_t first = 0;
	struct lp_stream *stream = lp_streams_read(&streams, (struct lp_ino){nr}, offset, length);
	uint64_t cnt = stream == NULL ? 0 : lp_stream_want(stream, FILE_BLOCKS, &first);
	if (cnt == 0)
		return 0;
	assert_true(cnt <= LP_STREAMS_WINDOW_MAX && first + cnt <= FILE_BLOCKS);
	assert_true(first >= (offset + length) / LP_BLOCK_BYTES);
	lp_stream_asked(stream, first, cnt);
	for (uint64_t block = first; block < first + cnt; block++)
		asked[block]++;
	ask_cnt++;
	asked_cnt += cnt;
	return cnt;
}

static void test_one_reader(void **state)
{
	static const uint64_t lengths[] = {100, 4096, 5000, 16384, 65536};
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(lengths); i++) {
		begin();
		uint64_t end = 0;
		assert_int_equal(read_and_ask(7, 0, lengths[i]), 0);
		assert_int_equal(read_and_ask(7, lengths[i], lengths[i]), 0);
		for (end = 2 * lengths[i]; end + lengths[i] <= FILE_BYTES; end += lengths[i])
			(void)read_and_ask(7, end, lengths[i]);
		/* All that it did not read before it was known, and each block once. */
		uint64_t from = lp_bytes_to_blocks_up(3 * lengths[i]);
		for (uint64_t block = 0; block < FILE_BLOCKS; block++)
			assert_int_equal(asked[block], block >= from);
		/* In large pieces, soon. */
		assert_true(ask_cnt < FILE_BLOCKS / (LP_STREAMS_WINDOW_MAX / 2) + 8);
	}
}

/* A short run costs little. */
static void test_the_window_grows(void **state)
{
	(void)state;
	uint64_t block = 0;
	begin();
	while (read_and_ask(7, block * LP_BLOCK_BYTES, LP_BLOCK_BYTES) == 0)
		block++;
	assert_int_equal(block, 2);
	assert_int_equal(asked_cnt, LP_STREAMS_WINDOW_MIN);
	uint64_t before = asked_cnt;
	while (asked_cnt == before)
		(void)read_and_ask(7, ++block * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	assert_int_equal(block, 2 + LP_STREAMS_WINDOW_MIN / 2);
	assert_true(asked_cnt <= UINT64_C(3) * LP_STREAMS_WINDOW_MIN);
	/* It never has more in front of it than the window. */
	for (block++; block < FILE_BLOCKS; block++) {
		(void)read_and_ask(7, block * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		assert_true(asked_cnt + 3 <= block + 1 + LP_STREAMS_WINDOW_MAX);
	}
}

static void test_random_readers(void **state)
{
	struct lp_prng prng;
	(void)state;
	begin();
	lp_prng_init(&prng, 1);
	for (int i = 0; i < 100000; i++)
		(void)read_and_ask(1 + lp_prng_below(&prng, 5),
				   lp_prng_below(&prng, UINT64_C(1) << 24) * LP_BLOCK_BYTES,
				   LP_BLOCK_BYTES);
	assert_int_equal(asked_cnt, 0);
	/* Nor one that goes back, jumps, or reads the same again and again. */
	for (uint64_t i = 0; i < 1000; i++) {
		(void)read_and_ask(9, (1000 - i) * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		(void)read_and_ask(10, i * 2 * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		(void)read_and_ask(11, 0, LP_BLOCK_BYTES);
	}
	assert_int_equal(asked_cnt, 0);
}

/* Among random readers of the same file, and beside others like it. */
static void test_several(void **state)
{
	struct lp_prng prng;
	(void)state;
	begin();
	lp_prng_init(&prng, 2);
	for (uint64_t block = 0; block < 500; block++) {
		for (uint64_t stream = 0; stream < LP_STREAMS_WAYS; stream++)
			(void)read_and_ask(5, (stream * 500 + block) * LP_BLOCK_BYTES,
					   LP_BLOCK_BYTES);
		for (int i = 0; i < (block < 4 ? 0 : 100); i++)
			(void)read_and_ask(5,
					   (10000 + lp_prng_below(&prng, 1 << 30)) * LP_BLOCK_BYTES,
					   LP_BLOCK_BYTES);
	}
	for (uint64_t block = 0; block < UINT64_C(500) * LP_STREAMS_WAYS; block++)
		assert_true(asked[block] >= (block % 500 >= 3));
	/* All of them are known: one more finds no place, until they have been silent for long. */
	for (uint64_t block = 3000; block < 3008; block++)
		assert_null(lp_streams_read(&streams, (struct lp_ino){5}, block * 100000, 4096));
	for (uint64_t i = 0; i < LP_STREAMS_LONG; i++)
		(void)read_and_ask(1000 + i * 64, 0, LP_BLOCK_BYTES);
	for (uint64_t block = 100; block < 103; block++)
		assert_int_equal(lp_streams_read(&streams, (struct lp_ino){5},
						 block * LP_BLOCK_BYTES, 4096) != NULL,
				 block == 102);
}

/* Several reads under way come a little out of order. */
static void test_out_of_order(void **state)
{
	(void)state;
	begin();
	for (uint64_t block = 0; block < 4; block++)
		(void)read_and_ask(7, block * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	for (uint64_t block = 4; block + 8 <= FILE_BLOCKS; block += 8) {
		static const uint64_t order[] = {2, 0, 1, 5, 7, 3, 4, 6};
		for (size_t i = 0; i < LP_ARRAY_SIZE(order); i++)
			(void)lp_streams_read(&streams, (struct lp_ino){7},
					      (block + order[i]) * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		(void)read_and_ask(7, (block + 7) * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	}
	for (uint64_t block = 64; block < FILE_BLOCKS; block++)
		assert_int_equal(asked[block], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_reader),     cmocka_unit_test(test_the_window_grows),
		cmocka_unit_test(test_random_readers), cmocka_unit_test(test_several),
		cmocka_unit_test(test_out_of_order),
	};
	return lp_test_main(tests, "store/cache/read_streams");
}
