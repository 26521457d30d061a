/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: counts of shared blocks come back as they were put in, each state in one form only, and
 * whatever is damaged or contradicts an extent map is refused without a change (rule S4).
 * Method: golden bytes; every bit flipped; every rule broken with the crc made right again; random
 * clones and releases beside a plain array of counts. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/prng.h"
#include "base/testing/test_death.h"
#include "store/record/ref_counts.h"

#define GROUP  UINT64_C(0x0102)
#define GOLDEN "010000002e5a7bb30002000002000000020100000300000014010000010000003f010000ffffffff"

static struct lp_refs refs_of(uint64_t group)
{
	struct lp_refs refs;
	lp_refs_init(&refs, group);
	return refs;
}

static struct lp_refs some(void)
{
	struct lp_refs refs = refs_of(GROUP);
	refs.cnt[0] = refs.cnt[1] = 2;
	refs.cnt[2] = 3;
	refs.cnt[20] = 1;
	refs.cnt[63] = LP_REFS_MAX;
	return refs;
}

/* Refused, and the result untouched. */
static int decode(const uint8_t *bytes, size_t len, uint64_t group)
{
	struct lp_key key;
	struct lp_refs refs = {.group = 77};
	lp_key_of_number(&key, LP_KEY_SPACE_REFS, group);
	int err = lp_refs_decode(bytes, len, &key, &refs);
	assert_int_equal(refs.group, err == 0 ? group : 77);
	return err;
}

static void check_same(const struct lp_refs *a, const struct lp_refs *b)
{
	assert_int_equal(a->group, b->group);
	assert_memory_equal(a->cnt, b->cnt, sizeof(a->cnt));
}

/* What is encoded reads the same. Returns its length. */
static size_t check_round(const struct lp_refs *refs)
{
	uint8_t bytes[LP_REFS_BYTES_MAX];
	struct lp_refs again;
	struct lp_key key;
	size_t len = lp_refs_encode(refs, bytes);
	if (len == 0) {
		assert_int_equal(lp_refs_max(refs, 0, LP_REFS_BLOCKS), 0);
		return 0;
	}
	lp_refs_key(&key, refs->group);
	lp_test_ok(lp_refs_decode(bytes, len, &key, &again));
	check_same(refs, &again);
	return len;
}

static void test_golden(void **state)
{
	(void)state;
	uint8_t bytes[LP_REFS_BYTES_MAX];
	char hex[2 * LP_REFS_BYTES_MAX + 1] = "";
	struct lp_refs refs = some();
	size_t len = lp_refs_encode(&refs, bytes);
	for (size_t i = 0; i < len; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", bytes[i]);
	assert_string_equal(hex, GOLDEN);
	(void)check_round(&refs);
}

static void test_sizes(void **state)
{
	(void)state;
	struct lp_refs refs = refs_of(LP_REFS_GROUPS - 1);
	assert_int_equal(check_round(&refs), 0);
	for (uint32_t i = 0; i < LP_REFS_BLOCKS; i++)
		refs.cnt[i] = 5;
	assert_int_equal(check_round(&refs), LP_REFS_HEAD_SIZE + LP_REFS_RUN_SIZE);
	for (uint32_t i = 0; i < LP_REFS_BLOCKS; i++)
		refs.cnt[i] = i + 1;
	assert_int_equal(check_round(&refs), LP_REFS_BYTES_MAX);
	for (uint32_t i = 0; i < LP_REFS_BLOCKS; i += 2)
		refs.cnt[i] = 0;
	assert_int_equal(check_round(&refs),
			 LP_REFS_HEAD_SIZE + LP_REFS_BLOCKS / 2 * LP_REFS_RUN_SIZE);
}

static void test_damaged(void **state)
{
	(void)state;
	uint8_t bytes[LP_REFS_BYTES_MAX + LP_REFS_RUN_SIZE] = {0};
	struct lp_refs refs = some();
	size_t len = lp_refs_encode(&refs, bytes);
	lp_test_ok(decode(bytes, len, GROUP));
	lp_test_err(-EBADMSG, decode(bytes, len, GROUP + 1));
	for (size_t cut = 0; cut < len; cut++) {
		bool is_length = cut > LP_REFS_HEAD_SIZE && cut % LP_REFS_RUN_SIZE == 0;
		lp_test_err(is_length ? -EBADMSG : -EUCLEAN, decode(bytes, cut, GROUP));
	}
	lp_test_err(-EUCLEAN, decode(bytes, sizeof(bytes), GROUP));
	for (size_t bit = 0; bit < len * 8; bit++) {
		bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
		lp_test_err(-EBADMSG, decode(bytes, len, GROUP));
		bytes[bit / 8] ^= (uint8_t)(1U << bit % 8);
	}
}

/* A record of raw runs, with a right crc. */
static int decode_runs(uint64_t group, const struct lp_refs_run *runs, size_t cnt,
		       const struct lp_refs_head *head)
{
	uint8_t bytes[LP_REFS_HEAD_SIZE + 4 * LP_REFS_RUN_SIZE];
	size_t len = LP_REFS_HEAD_SIZE + cnt * LP_REFS_RUN_SIZE;
	struct lp_key key;
	assert_true(cnt <= 4);
	lp_refs_head_encode(head, bytes);
	for (size_t i = 0; i < cnt; i++)
		lp_refs_run_encode(&runs[i], bytes + LP_REFS_HEAD_SIZE + i * LP_REFS_RUN_SIZE);
	lp_key_of_number(&key, LP_KEY_SPACE_REFS, group);
	uint32_t crc = lp_crc32c(0, key.bytes, key.len);
	crc = lp_crc32c(crc, bytes, 4);
	lp_put_le32(bytes + 4, lp_crc32c(crc, bytes + 8, len - 8));
	return decode(bytes, len, group);
}

static void test_rules(void **state)
{
	(void)state;
	static const struct lp_refs_head head = {.version = 1};
	static const struct lp_refs_run bad[][2] = {
		{{.first = 0, .cnt = 1, .refs = 0}, {.first = 8, .cnt = 1, .refs = 1}},
		{{.first = 0, .cnt = 0, .refs = 1}, {.first = 8, .cnt = 1, .refs = 1}},
		{{.first = 0, .cnt = 9, .refs = 1}, {.first = 8, .cnt = 1, .refs = 1}},
		{{.first = 0, .cnt = 8, .refs = 1}, {.first = 8, .cnt = 1, .refs = 1}},
		{{.first = 9, .cnt = 1, .refs = 1}, {.first = 8, .cnt = 1, .refs = 2}},
		{{.first = 0, .cnt = 1, .refs = 1}, {.first = 64, .cnt = 1, .refs = 1}},
		{{.first = 0, .cnt = 1, .refs = 1}, {.first = 8, .cnt = 57, .refs = 1}},
		{{.first = 0, .cnt = 1, .refs = 1}, {.first = 255, .cnt = 255, .refs = 1}},
		{{.first = 0, .cnt = 1, .refs = 1},
		 {.first = 8, .cnt = 1, .reserved = 1, .refs = 1}},
	};
	static const struct lp_refs_run good[][2] = {
		{{.first = 0, .cnt = 8, .refs = 1}, {.first = 8, .cnt = 56, .refs = 2}},
		{{.first = 0, .cnt = 7, .refs = 1}, {.first = 8, .cnt = 1, .refs = 1}},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		lp_test_err(-EUCLEAN, decode_runs(5, bad[i], 2, &head));
	for (size_t i = 0; i < LP_ARRAY_SIZE(good); i++)
		lp_test_ok(decode_runs(5, good[i], 2, &head));
	lp_test_ok(decode_runs(LP_REFS_GROUPS - 1, good[0], 2, &head));
	lp_test_err(-EUCLEAN, decode_runs(LP_REFS_GROUPS, good[0], 2, &head));
	lp_test_err(-EUCLEAN, decode_runs(5, good[0], 0, &head));
	lp_test_err(-EUCLEAN, decode_runs(5, good[0], 2, &(struct lp_refs_head){.version = 2}));
	lp_test_err(-EUCLEAN, decode_runs(5, good[0], 2,
					  &(struct lp_refs_head){.version = 1, .reserved_a = 1}));
	lp_test_err(-EUCLEAN, decode_runs(5, good[0], 2,
					  &(struct lp_refs_head){.version = 1, .reserved_b = 1}));
}

static void test_life_of_a_block(void **state)
{
	(void)state;
	struct lp_refs refs = refs_of(1);
	uint64_t freed = 1;
	lp_test_ok(lp_refs_share(&refs, 10, 4, false));
	assert_int_equal(refs.cnt[9], 0);
	assert_int_equal(refs.cnt[10], 2);
	assert_int_equal(refs.cnt[13], 2);
	assert_int_equal(refs.cnt[14], 0);
	lp_test_ok(lp_refs_share(&refs, 12, 1, true));
	assert_int_equal(lp_refs_max(&refs, 0, 64), 3);
	assert_int_equal(lp_refs_max(&refs, 10, 2), 2);
	lp_test_ok(lp_refs_release(&refs, 10, 4, &freed));
	assert_int_equal(freed, 0);
	lp_test_ok(lp_refs_release(&refs, 10, 4, &freed));
	assert_int_equal(freed, UINT64_C(0xb) << 10);
	lp_test_ok(lp_refs_release(&refs, 12, 1, &freed));
	assert_int_equal(freed, UINT64_C(1) << 12);
	assert_int_equal(check_round(&refs), 0);
	lp_test_ok(lp_refs_share(&refs, 0, 64, false));
	lp_test_ok(lp_refs_release(&refs, 0, 64, &freed));
	lp_test_ok(lp_refs_release(&refs, 0, 64, &freed));
	assert_int_equal(freed, UINT64_MAX);
}

static void test_contradictions(void **state)
{
	(void)state;
	struct lp_refs refs = some();
	struct lp_refs before = refs;
	uint64_t freed = 99;
	lp_test_err(-EUCLEAN, lp_refs_share(&refs, 2, 2, true));
	lp_test_err(-EUCLEAN, lp_refs_check(&refs, 2, 2, true));
	lp_test_err(-EUCLEAN, lp_refs_check(&refs, 19, 2, false));
	lp_test_err(-EUCLEAN, lp_refs_release(&refs, 0, 4, &freed));
	lp_test_err(-EUCLEAN, lp_refs_release(&refs, 40, 1, &freed));
	assert_int_equal(freed, 99);
	check_same(&refs, &before);
}

static void test_random(void **state)
{
	(void)state;
	struct lp_prng prng;
	struct lp_refs refs = refs_of(3);
	lp_prng_init(&prng, 4711);
	for (int round = 0; round < 5000; round++) {
		struct lp_refs want = refs;
		uint64_t freed = 0, want_freed = 0;
		uint32_t first = (uint32_t)lp_prng_below(&prng, 64);
		uint32_t cnt = 1 + (uint32_t)lp_prng_below(&prng, 64 - first);
		uint64_t what = lp_prng_below(&prng, 3);
		bool fits = true;
		for (uint32_t i = first; i < first + cnt; i++) {
			fits = fits && (what == 0 || refs.cnt[i] > 0);
			want.cnt[i] += what == 0 ? 2 : what == 1 ? 1 : UINT32_MAX;
			want_freed |= (uint64_t)(want.cnt[i] == 0) << i;
		}
		int err = what == 2 ? lp_refs_release(&refs, first, cnt, &freed)
				    : lp_refs_share(&refs, first, cnt, what == 1);
		lp_test_err(fits ? 0 : -EUCLEAN, err);
		if (!fits)
			continue;
		check_same(&refs, &want);
		assert_int_equal(freed, what == 2 ? want_freed : 0);
		(void)check_round(&refs);
	}
}

static void share_too_often(void *arg)
{
	struct lp_refs refs = some();
	(void)arg;
	lp_test_ok(lp_refs_share(&refs, 63, 1, true));
}

static void share_beyond(void *arg)
{
	struct lp_refs refs = some();
	(void)arg;
	lp_test_ok(lp_refs_share(&refs, 60, 5, false));
}

static void test_asserts(void **state)
{
	(void)state;
	lp_test_dies(share_too_often, NULL);
	lp_test_dies(share_beyond, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),          cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_damaged),         cmocka_unit_test(test_rules),
		cmocka_unit_test(test_life_of_a_block), cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_random),          cmocka_unit_test(test_asserts),
	};
	return lp_test_main(tests, "store/record/ref_counts");
}
