/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the hashes never change, on any machine and with any version of the library.
 * Method: golden values on both sides of every length at which the algorithm takes another way;
 * made with xxHash 0.8.1, equal in its vector and scalar code. The first line is published. */
#include "base/testing/test.h"

#include "base/hash.h"

#define SEED UINT64_C(0x9e3779b97f4a7c15)

struct golden {
	size_t len;
	uint64_t seed;
	uint64_t u64;
	uint64_t low;
	uint64_t high;
};

/* clang-format off */
static const struct golden goldens[] = {
	{0, 0, UINT64_C(0x2d06800538d394c2), UINT64_C(0x6001c324468d497f), UINT64_C(0x99aa06d3014798d8)},
	{0, SEED, UINT64_C(0x602b0e2cd6662c8b), UINT64_C(0x4ca5176998171787), UINT64_C(0xd142977a2cca554b)},
	{1, 0, UINT64_C(0xc44bdff4074eecdb), UINT64_C(0xc44bdff4074eecdb), UINT64_C(0xa6cd5e9392000f6a)},
	{1, SEED, UINT64_C(0x062b185e4e01441a), UINT64_C(0x062b185e4e01441a), UINT64_C(0xe366b8c99a31df50)},
	{3, 0, UINT64_C(0x1729c78f56ec7369), UINT64_C(0x1729c78f56ec7369), UINT64_C(0x2012adb9c9d860b7)},
	{3, SEED, UINT64_C(0x56c3601e4220d2f8), UINT64_C(0x56c3601e4220d2f8), UINT64_C(0x558e742746b6e655)},
	{4, 0, UINT64_C(0xe5097d6d2a406dde), UINT64_C(0x2494ffbfb3959765), UINT64_C(0x845026b94ecb793b)},
	{4, SEED, UINT64_C(0x6ca2794aa8a01139), UINT64_C(0x4ab1d896698ae978), UINT64_C(0xf06c0012c774c39a)},
	{8, 0, UINT64_C(0x89b9b1111ecd5976), UINT64_C(0xce0ff5563c3393fc), UINT64_C(0x4132fb07c0432330)},
	{8, SEED, UINT64_C(0x1139fea9db045e7c), UINT64_C(0x0cb6fe7cb7cfd9f4), UINT64_C(0xcf9d589ce7eac8b3)},
	{9, 0, UINT64_C(0x4f8bd97d83c43f4a), UINT64_C(0x5bf53993618ef3c3), UINT64_C(0xc74d9d66508f0ed1)},
	{9, SEED, UINT64_C(0x1ef6111e0e1400a5), UINT64_C(0x6cedbb9dd43543fa), UINT64_C(0xa6602eae09dfd5f3)},
	{16, 0, UINT64_C(0x28c46b1ac7dd9199), UINT64_C(0x64aaf0f56394a48a), UINT64_C(0xc68069488459e284)},
	{16, SEED, UINT64_C(0xfc199b12eae1dc98), UINT64_C(0x5c0c1b97631f1335), UINT64_C(0x791711fff1a8001d)},
	{17, 0, UINT64_C(0xbc27ad52fefe0fc7), UINT64_C(0xcf133458d4cd050e), UINT64_C(0x9c94ffd5064490e4)},
	{17, SEED, UINT64_C(0x8f75d49399e7ccf6), UINT64_C(0x6c06be98fb459232), UINT64_C(0xc2c70ca5d84003ca)},
	{64, 0, UINT64_C(0xa148b5d46b6a962d), UINT64_C(0x830cf34b5aaf1ea0), UINT64_C(0x415039b8b1ed4939)},
	{64, SEED, UINT64_C(0xd4bf3e5511285b25), UINT64_C(0x7ef34d6c10cf4e24), UINT64_C(0xcee11d68100695a3)},
	{128, 0, UINT64_C(0xe0f015b7a5fce1a9), UINT64_C(0xe38f3defaeeaf31e), UINT64_C(0xe36bd4b67b5b67ff)},
	{128, SEED, UINT64_C(0x282f4b2708cc36a4), UINT64_C(0xa7da5e9945fbf20f), UINT64_C(0xdfbcce223b2de965)},
	{129, 0, UINT64_C(0x75f53e768feaca19), UINT64_C(0xd54a4c7d61efd85d), UINT64_C(0x1055c34cfecb5110)},
	{129, SEED, UINT64_C(0x079838848b926d68), UINT64_C(0x526af9659799c27a), UINT64_C(0xbfff67aaa802c312)},
	{240, 0, UINT64_C(0x25fd307fab8ae123), UINT64_C(0x7f1b44d189e4da64), UINT64_C(0x592fbb4cbcd96dc5)},
	{240, SEED, UINT64_C(0x1827ba8b7089a104), UINT64_C(0x8bd547f48166dc88), UINT64_C(0x619f294e0d3a8338)},
	{241, 0, UINT64_C(0x4ec0cf1426e2ccd9), UINT64_C(0x4ec0cf1426e2ccd9), UINT64_C(0xd26f5a1db0445e86)},
	{241, SEED, UINT64_C(0x871dd3c24879c2ed), UINT64_C(0x871dd3c24879c2ed), UINT64_C(0xb9446e72f1b9acc6)},
	{255, 0, UINT64_C(0xee40d16779a45a76), UINT64_C(0xee40d16779a45a76), UINT64_C(0x6c9bae4c16325072)},
	{255, SEED, UINT64_C(0x40bd0f99ed98292b), UINT64_C(0x40bd0f99ed98292b), UINT64_C(0x2a9893e0f59d6cdf)},
	{1024, 0, UINT64_C(0xc849db82ed726d1d), UINT64_C(0xc849db82ed726d1d), UINT64_C(0x9ea5a013d9242cb4)},
	{1024, SEED, UINT64_C(0x1bbf9f5d952663a2), UINT64_C(0x1bbf9f5d952663a2), UINT64_C(0x46dab056d8f0c7c8)},
	{1025, 0, UINT64_C(0x6a55ef7828c55abd), UINT64_C(0x6a55ef7828c55abd), UINT64_C(0xd29ad0c22de701e6)},
	{1025, SEED, UINT64_C(0x865741c51014b977), UINT64_C(0x865741c51014b977), UINT64_C(0xee90d14409fc79a5)},
	{4096, 0, UINT64_C(0x4948c5a457893d23), UINT64_C(0x4948c5a457893d23), UINT64_C(0x7b30189ce35b43b3)},
	{4096, SEED, UINT64_C(0x1f43a9d22b96d265), UINT64_C(0x1f43a9d22b96d265), UINT64_C(0x96a6fa075e49eb05)},
};
/* clang-format on */

static void test_values_are_frozen(void **state)
{
	(void)state;
	unsigned char buf[4096 + 1];
	for (unsigned i = 0; i + 1 < sizeof(buf); i++)
		buf[i + 1] = (unsigned char)(i * i * 31U + i * 7U + (i >> 3));
	for (size_t i = 0; i < LP_ARRAY_SIZE(goldens); i++) {
		const struct golden *want = &goldens[i];
		assert_true(lp_hash_u64(buf + 1, want->len, want->seed) == want->u64);
		struct lp_hash128 got = lp_hash_u128(buf + 1, want->len, want->seed);
		assert_true(got.low == want->low);
		assert_true(got.high == want->high);
	}
}

static void test_names(void **state)
{
	(void)state;
	/* What placement does: a directory's number as seed, a name as bytes. */
	assert_true(lp_hash_u64("a.jpg", 5, 1) == UINT64_C(0x24a0738226783d86));
	assert_true(lp_hash_u64("a.jpg", 5, 2) == UINT64_C(0xd79147771989c9dd));
	assert_true(lp_hash_u64(NULL, 0, 0) == lp_hash_u64("", 0, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_values_are_frozen),
		cmocka_unit_test(test_names),
	};
	return lp_test_main(tests, "base/hash");
}
