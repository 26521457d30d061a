/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every way to a crc gives the one crc of the definition, and none ever changes.
 * Method: the definition bit by bit against the table, the table against the fast ways over
 * random lengths, alignments and cuts; published vectors; combining against the crc of the whole
 * for short lengths, and against algebra that the definition implies for huge ones. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/prng.h"

#define BUF_BYTES 70000

static unsigned char buf[BUF_BYTES + 16];

static uint32_t crc_by_bits(const unsigned char *p, size_t len)
{
	uint32_t state = UINT32_MAX;
	for (size_t i = 0; i < len; i++) {
		state ^= p[i];
		for (int bit = 0; bit < 8; bit++)
			state = (state >> 1) ^ ((state & 1) != 0 ? 0x82f63b78U : 0);
	}
	return ~state;
}

static void check_vector(const void *data, size_t len, uint32_t want)
{
	assert_int_equal(lp_crc32c(0, data, len), want);
	assert_int_equal(lp_crc32c_table(0, data, len), want);
	assert_int_equal(lpi_crc32c_short_portable(0, data, len), want);
	assert_int_equal(crc_by_bits(data, len), want);
}

static void test_known_vectors(void **state)
{
	(void)state;
	/* RFC 3720, B.4. */
	static const unsigned char read10[48] = {
		0x01, 0xc0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x00, 0x00, 0x04, 0x00,
		0x00, 0x00, 0x00, 0x14, 0x00, 0x00, 0x00, 0x18, 0x28, 0x00, 0x00, 0x00,
		0x00, 0x00, 0x00, 0x00, 0x02, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00};
	unsigned char v[32];
	memset(v, 0, sizeof(v));
	check_vector(v, sizeof(v), 0x8a9136aa);
	memset(v, 0xff, sizeof(v));
	check_vector(v, sizeof(v), 0x62a8ab43);
	for (unsigned i = 0; i < sizeof(v); i++)
		v[i] = (unsigned char)i;
	check_vector(v, sizeof(v), 0x46dd794e);
	for (unsigned i = 0; i < sizeof(v); i++)
		v[i] = (unsigned char)(31 - i);
	check_vector(v, sizeof(v), 0x113fdb5c);
	check_vector(read10, sizeof(read10), 0xd9963a56);
	check_vector("123456789", 9, 0xe3069283);
	check_vector("", 0, 0);
	assert_int_equal(lp_crc32c(0x12345678, NULL, 0), 0x12345678);
}

static void test_table_is_the_definition(void **state)
{
	(void)state;
	/* The four byte values of each word run through all of 0..255 in every place. */
	for (unsigned n = 0; n < 256; n++) {
		unsigned char v[7];
		for (unsigned i = 0; i < sizeof(v); i++)
			v[i] = (unsigned char)(n * (2 * i + 1) + i);
		assert_int_equal(lp_crc32c_table(0, v, sizeof(v)), crc_by_bits(v, sizeof(v)));
		assert_int_equal(lpi_crc32c_short_portable(0, v, sizeof(v)),
				 crc_by_bits(v, sizeof(v)));
	}
}

static void test_every_short_length_and_alignment(void **state)
{
	(void)state;
	for (size_t align = 0; align < 16; align++) {
		for (size_t len = 0; len < 600; len += 1 + len / 300) {
			const unsigned char *p = buf + align;
			uint32_t want = lp_crc32c_table(0xdeadbeef, p, len);
			assert_int_equal(lp_crc32c(0xdeadbeef, p, len), want);
			assert_int_equal(lpi_crc32c_short_portable(0xdeadbeef, p, len), want);
		}
	}
}

static void test_random_lengths(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 2);
	for (int n = 0; n < 200; n++) {
		size_t align = lp_prng_below(&prng, 16);
		size_t len = lp_prng_below(&prng, UINT64_C(1) << lp_prng_between(&prng, 1, 16));
		uint32_t crc = (uint32_t)lp_prng_u64(&prng);
		assert_int_equal(lp_crc32c(crc, buf + align, len),
				 lp_crc32c_table(crc, buf + align, len));
	}
}

static void test_random_chunks(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 3);
	uint32_t want = lp_crc32c_table(0, buf, BUF_BYTES);
	for (int n = 0; n < 50; n++) {
		uint32_t chained = 0;
		uint32_t combined = 0;
		size_t pos = 0;
		while (pos < BUF_BYTES) {
			size_t most = (size_t)1 << lp_prng_between(&prng, 0, 16);
			size_t part = lp_prng_between(&prng, 0, LP_MIN(most, BUF_BYTES - pos));
			uint32_t piece = lp_crc32c(0, buf + pos, part);
			chained = lp_crc32c(chained, buf + pos, part);
			combined = lp_crc32c_combine(combined, piece, part);
			pos += part;
		}
		assert_int_equal(chained, want);
		assert_int_equal(combined, want);
	}
}

static void test_ahead_is_the_same(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 6);
	/* The memory to fetch ahead may be at any address, also one that cannot be read. */
	const void *nexts[] = {NULL, buf, buf + BUF_BYTES, (const void *)(uintptr_t)4096};
	for (int n = 0; n < 400; n++) {
		size_t align = lp_prng_below(&prng, 16);
		size_t len = lp_prng_below(&prng, UINT64_C(1) << lp_prng_between(&prng, 1, 16));
		uint32_t crc = (uint32_t)lp_prng_u64(&prng);
		const void *next = nexts[(size_t)n % LP_ARRAY_SIZE(nexts)];
		assert_int_equal(lp_crc32c_ahead(crc, buf + align, len, next),
				 lp_crc32c_table(crc, buf + align, len));
	}
	assert_int_equal(lp_crc32c_ahead(7, NULL, 0, NULL), 7);
}

static void test_combine_at_every_split(void **state)
{
	(void)state;
	const size_t len = 5000;
	uint32_t want = lp_crc32c(0, buf, len);
	for (size_t cut = 0; cut <= len; cut++) {
		uint32_t a = lp_crc32c(0, buf, cut);
		uint32_t b = lp_crc32c(0, buf + cut, len - cut);
		assert_int_equal(lp_crc32c_combine(a, b, len - cut), want);
		assert_int_equal(lp_crc32c_combine_portable(a, b, len - cut), want);
	}
	assert_int_equal(lp_crc32c_combine(0x12345678, 0, 0), 0x12345678);
}

static void test_zeros_against_real_zeros(void **state)
{
	(void)state;
	static const unsigned char zeros[BUF_BYTES];
	struct lp_prng prng;
	lp_prng_init(&prng, 4);
	for (int n = 0; n < 200; n++) {
		size_t len = lp_prng_below(&prng, UINT64_C(1) << lp_prng_between(&prng, 0, 16));
		uint32_t crc = (uint32_t)lp_prng_u64(&prng);
		assert_int_equal(lp_crc32c_zeros(crc, len), lp_crc32c_table(crc, zeros, len));
	}
	assert_int_equal(lp_crc32c_zeros(0x12345678, 0), 0x12345678);
}

/* Every entry of the power table is used once alone: its length has one digit that is not 0. */
static void test_every_power(void **state)
{
	(void)state;
	for (unsigned j = 0; j < 8; j++) {
		uint64_t unit = UINT64_C(1) << (4 * j);
		uint32_t crc = 0x9e3779b9;
		for (unsigned d = 1; d < 16; d++) {
			/* One more unit, a byte at a time at first and by sixteenths later. */
			for (unsigned s = 0; s < (j == 0 ? 1U : 16U); s++)
				crc = lp_crc32c_zeros(crc, j == 0 ? 1 : unit / 16);
			assert_int_equal(lp_crc32c_zeros(0x9e3779b9, d * unit), crc);
			assert_int_equal(lp_crc32c_combine_portable(~0x9e3779b9U, 0, d * unit),
					 ~crc);
		}
	}
}

static void test_huge_lengths(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 5);
	/* Doubling: 2^k zero bytes twice are 2^(k+1). Starts from lengths tested against data. */
	for (unsigned k = 0; k < 63; k++) {
		uint32_t half = lp_crc32c_zeros(0xabcdef01, UINT64_C(1) << k);
		uint32_t full = lp_crc32c_zeros(half, UINT64_C(1) << k);
		assert_int_equal(lp_crc32c_zeros(0xabcdef01, UINT64_C(2) << k), full);
	}
	for (int n = 0; n < 2000; n++) {
		uint64_t sum = lp_prng_u64(&prng) >> lp_prng_below(&prng, 40);
		uint64_t part = lp_prng_below(&prng, sum);
		uint32_t crc = (uint32_t)lp_prng_u64(&prng);
		uint32_t tail = (uint32_t)lp_prng_u64(&prng);
		uint32_t once = lp_crc32c_zeros(crc, sum);
		assert_int_equal(lp_crc32c_zeros(lp_crc32c_zeros(crc, part), sum - part), once);
		assert_int_equal(lp_crc32c_combine(crc, lp_crc32c_zeros(0, sum), sum), once);
		assert_int_equal(lp_crc32c_combine_portable(crc, tail, sum),
				 lp_crc32c_combine(crc, tail, sum));
	}
	/* The order of x: a length may be reduced modulo 2^31 - 1, around its multiples too. */
	const uint64_t order = 0x7fffffff;
	for (uint64_t n = 0; n <= UINT64_MAX % order; n++) {
		uint32_t want = lp_crc32c_zeros(7, n);
		assert_int_equal(lp_crc32c_zeros(7, order + n), want);
		assert_int_equal(lp_crc32c_zeros(7, UINT64_MAX / order * order + n), want);
	}
}

static int fill(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	lp_prng_fill(&prng, buf, sizeof(buf));
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_vectors),
		cmocka_unit_test(test_table_is_the_definition),
		cmocka_unit_test_setup(test_every_short_length_and_alignment, fill),
		cmocka_unit_test_setup(test_random_lengths, fill),
		cmocka_unit_test_setup(test_random_chunks, fill),
		cmocka_unit_test_setup(test_ahead_is_the_same, fill),
		cmocka_unit_test_setup(test_combine_at_every_split, fill),
		cmocka_unit_test(test_zeros_against_real_zeros),
		cmocka_unit_test(test_every_power),
		cmocka_unit_test(test_huge_lengths),
	};
	return lp_test_main(tests, "base/crc32c");
}
