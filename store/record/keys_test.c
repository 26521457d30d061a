/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: keys are the bytes the page says, for ever; their order as bytes is that of their numbers
 * and names; what no builder makes is refused; ranges hold exactly the keys they promise.
 * Method: golden bytes for each space; random pairs of keys ordered by their parts and by memcmp;
 * mutated keys either are refused or build to the same bytes again; ranges against all keys of a
 * small world. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "base/testing/test_death.h"
#include "store/record/keys.h"

static const struct lp_ino ino1 = {UINT64_C(0x0102030405060708)};

static void check_bytes(const struct lp_key *key, const char *want, size_t len)
{
	assert_int_equal(key->len, len);
	assert_memory_equal(key->bytes, want, len);
}
#define CHECK_BYTES(key, text) check_bytes((key), (text), sizeof(text) - 1)

static void test_golden(void **state)
{
	(void)state;
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino1);
	CHECK_BYTES(&key, "I\x01\x02\x03\x04\x05\x06\x07\x08");
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, ino1);
	CHECK_BYTES(&key, "F\x01\x02\x03\x04\x05\x06\x07\x08");
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino1);
	CHECK_BYTES(&key, "U\x01\x02\x03\x04\x05\x06\x07\x08");
	lp_key_of_map(&key, ino1, 0x80);
	CHECK_BYTES(&key, "X\x01\x02\x03\x04\x05\x06\x07\x08\0\0\0\0\0\0\0\x80");
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, ino1, "name", 4);
	CHECK_BYTES(&key, "D\x01\x02\x03\x04\x05\x06\x07\x08name");
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, ino1, "user.x/y", 8);
	CHECK_BYTES(&key, "A\x01\x02\x03\x04\x05\x06\x07\x08user.x/y");
	lp_key_of_name(&key, LP_KEY_SPACE_OMAP, ino1, "\0\xff", 2);
	CHECK_BYTES(&key, "O\x01\x02\x03\x04\x05\x06\x07\x08\0\xff");
	lp_key_of_number(&key, LP_KEY_SPACE_DEFERRED, 258);
	CHECK_BYTES(&key, "L\0\0\0\0\0\0\x01\x02");
	lp_key_of_number(&key, LP_KEY_SPACE_REFS, 258);
	CHECK_BYTES(&key, "R\0\0\0\0\0\0\x01\x02");
	lp_key_of_number(&key, LP_KEY_SPACE_TXN, UINT64_MAX);
	CHECK_BYTES(&key, "T\xff\xff\xff\xff\xff\xff\xff\xff");
	lp_key_of_store(&key, "applied");
	CHECK_BYTES(&key, "Sapplied");
	lp_key_of_store_number(&key, "alloc", 7);
	CHECK_BYTES(&key, "Salloc\0\0\0\0\0\0\0\0\x07");
}

/* A random key of parts from small sets, so that pairs often agree in the first parts. */
static void random_key(struct lp_prng *prng, struct lp_key *ret)
{
	static const enum lp_key_space spaces[] = {
		LP_KEY_SPACE_XATTR, LP_KEY_SPACE_DIRENT,     LP_KEY_SPACE_FRAGMENT,
		LP_KEY_SPACE_INODE, LP_KEY_SPACE_DEFERRED,   LP_KEY_SPACE_OMAP,
		LP_KEY_SPACE_REFS,  LP_KEY_SPACE_STORE,      LP_KEY_SPACE_TXN,
		LP_KEY_SPACE_MAP,   LP_KEY_SPACE_UNFINISHED,
	};
	static const uint64_t numbers[] = {1, 2, 255, 256, UINT32_MAX, UINT64_MAX};
	static const char *const names[] = {"a",   "ab",   "b",    "a b",
					    "...", "\x7f", "\x80", "\xff\xff"};
	enum lp_key_space space = spaces[lp_prng_below(prng, LP_ARRAY_SIZE(spaces))];
	uint64_t number = numbers[lp_prng_below(prng, LP_ARRAY_SIZE(numbers))];
	struct lp_ino ino = {numbers[lp_prng_below(prng, LP_ARRAY_SIZE(numbers))]};
	const char *name = names[lp_prng_below(prng, LP_ARRAY_SIZE(names))];
	switch (space) {
	case LP_KEY_SPACE_XATTR:
	case LP_KEY_SPACE_DIRENT:
	case LP_KEY_SPACE_OMAP:
		lp_key_of_name(ret, space, ino, name, strlen(name));
		break;
	case LP_KEY_SPACE_FRAGMENT:
	case LP_KEY_SPACE_INODE:
	case LP_KEY_SPACE_UNFINISHED:
		lp_key_of_ino(ret, space, ino);
		break;
	case LP_KEY_SPACE_DEFERRED:
	case LP_KEY_SPACE_REFS:
	case LP_KEY_SPACE_TXN:
		lp_key_of_number(ret, space, number);
		break;
	case LP_KEY_SPACE_MAP:
		lp_key_of_map(ret, ino, number & UINT32_MAX);
		break;
	case LP_KEY_SPACE_STORE:
		if (lp_prng_chance(prng, 1, 2))
			lp_key_of_store(ret, name);
		else
			lp_key_of_store_number(ret, name, number);
		break;
	}
}

static void rebuild(const struct lp_key_view *view, struct lp_key *ret)
{
	char name[LP_KEY_STORE_NAME_MAX + 1] = {0};
	if (view->space == LP_KEY_SPACE_STORE) {
		memcpy(name, view->name, view->name_len);
		if (view->has_number)
			lp_key_of_store_number(ret, name, view->number);
		else
			lp_key_of_store(ret, name);
	} else if (view->name != NULL) {
		lp_key_of_name(ret, view->space, view->ino, view->name, view->name_len);
	} else if (view->space == LP_KEY_SPACE_MAP) {
		lp_key_of_map(ret, view->ino, view->number);
	} else if (view->ino.nr != 0) {
		lp_key_of_ino(ret, view->space, view->ino);
	} else {
		lp_key_of_number(ret, view->space, view->number);
	}
}

/* What a string of bytes orders as, when compared part by part. */
static int order_by_parts(const struct lp_key_view *a, const struct lp_key_view *b)
{
	if (a->space != b->space)
		return a->space < b->space ? -1 : 1;
	bool is_store = a->space == LP_KEY_SPACE_STORE;
	if (!is_store && a->ino.nr != b->ino.nr)
		return a->ino.nr < b->ino.nr ? -1 : 1;
	if (a->name != NULL) {
		size_t len = LP_MIN(a->name_len, b->name_len);
		int order = memcmp(a->name, b->name, len);
		if (order != 0)
			return order;
		if (a->name_len != b->name_len)
			return a->name_len < b->name_len ? -1 : 1;
	}
	if (a->has_number != b->has_number)
		return a->has_number ? 1 : -1;
	return (a->number > b->number) - (a->number < b->number);
}

static void test_order(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 1);
	for (int n = 0; n < 20000; n++) {
		struct lp_key a, b;
		struct lp_key_view va, vb;
		random_key(&prng, &a);
		random_key(&prng, &b);
		lp_test_ok(lp_key_parse(a.bytes, a.len, &va));
		lp_test_ok(lp_key_parse(b.bytes, b.len, &vb));
		int got = lp_key_compare(a.bytes, a.len, b.bytes, b.len);
		int want = order_by_parts(&va, &vb);
		assert_int_equal((got > 0) - (got < 0), (want > 0) - (want < 0));
	}
}

static void test_round_trip_and_mutations(void **state)
{
	(void)state;
	struct lp_prng prng;
	lp_prng_init(&prng, 2);
	int taken = 0;
	for (int n = 0; n < 20000; n++) {
		struct lp_key key, again;
		struct lp_key_view view;
		random_key(&prng, &key);
		lp_test_ok(lp_key_parse(key.bytes, key.len, &view));
		rebuild(&view, &again);
		check_bytes(&again, (const char *)key.bytes, key.len);

		size_t len = lp_prng_chance(&prng, 1, 2) ? key.len : lp_prng_below(&prng, key.len);
		uint8_t *exact = malloc(LP_MAX(len, 1));
		assert_non_null(exact);
		memcpy(exact, key.bytes, len);
		for (int flips = 0; flips < 2 && len > 0; flips++)
			exact[lp_prng_below(&prng, len)] ^=
				(uint8_t)(1U << lp_prng_below(&prng, 8));
		if (lp_key_parse(exact, len, &view) == 0) {
			rebuild(&view, &again); /* asserts that the parts are valid */
			check_bytes(&again, (const char *)exact, len);
			taken++;
		}
		free(exact);
	}
	assert_true(taken > 1000 && taken < 19000);
}

static void check_refused(const char *bytes, size_t len)
{
	struct lp_key_view view = {.number = 77};
	lp_test_err(-EUCLEAN, lp_key_parse(bytes, len, &view));
	assert_int_equal(view.number, 77);
}
#define CHECK_REFUSED(text) check_refused((text), sizeof(text) - 1)

static void test_refused(void **state)
{
	(void)state;
	static char longest[1 + 8 + LP_KEY_OMAP_MAX + 1] = "O1234567";
	CHECK_REFUSED("");
	CHECK_REFUSED("I");
	CHECK_REFUSED("\0");
	CHECK_REFUSED("Z12345678");
	CHECK_REFUSED("\xff");
	CHECK_REFUSED("I1234567");
	CHECK_REFUSED("I123456789");
	CHECK_REFUSED("I\0\0\0\0\0\0\0\0");
	CHECK_REFUSED("L123456789");
	CHECK_REFUSED("X12345678");
	CHECK_REFUSED("X12345678\0\0\0\x01\0\0\0\0"); /* block 2^32 */
	CHECK_REFUSED("D12345678");
	CHECK_REFUSED("D12345678.");
	CHECK_REFUSED("D12345678..");
	CHECK_REFUSED("D12345678a/b");
	CHECK_REFUSED("D12345678a\0b");
	CHECK_REFUSED("A12345678a\0b");
	CHECK_REFUSED("O12345678");
	CHECK_REFUSED("S");
	CHECK_REFUSED("S\0");
	CHECK_REFUSED("Sab\0"
		      "1234567");
	CHECK_REFUSED("Sab\0"
		      "123456789");
	memset(longest + 8, 'x', sizeof(longest) - 8);
	check_refused(longest, sizeof(longest));
	longest[0] = 'D';
	check_refused(longest, 1 + 8 + 256);
	longest[0] = 'A';
	check_refused(longest, 1 + 8 + 256);
	longest[0] = 'S';
	check_refused(longest, 1 + 65);
}

static void test_longest(void **state)
{
	(void)state;
	static uint8_t name[LP_KEY_OMAP_MAX];
	struct lp_key key;
	struct lp_key_view view;
	memset(name, 0xff, sizeof(name));
	lp_key_of_name(&key, LP_KEY_SPACE_OMAP, ino1, name, sizeof(name));
	assert_int_equal(key.len, LP_KEY_BYTES_MAX);
	lp_test_ok(lp_key_parse(key.bytes, key.len, &view));
	assert_int_equal(view.name_len, LP_KEY_OMAP_MAX);
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, ino1, name, LP_KEY_NAME_MAX);
	lp_test_ok(lp_key_parse(key.bytes, key.len, &view));
	assert_int_equal(view.name_len, LP_KEY_NAME_MAX);
	assert_true(lp_key_name_is_valid("...", 3));
	assert_true(lp_key_name_is_valid("a", 1));
	assert_false(lp_key_name_is_valid("", 0));
	assert_false(lp_key_omap_key_is_valid(name, LP_KEY_OMAP_MAX + 1));
}

/* What no name has in it is found wherever it is, in short names and in long ones. */
static void test_names(void **state)
{
	(void)state;
	char name[LP_KEY_NAME_MAX];
	memset(name, 'n', sizeof(name));
	for (size_t len = 1; len <= LP_KEY_NAME_MAX; len++) {
		assert_true(lp_key_name_is_valid(name, len));
		for (size_t at = 0; at < len; at++) {
			name[at] = '/';
			assert_false(lp_key_name_is_valid(name, len));
			name[at] = '\0';
			assert_false(lp_key_name_is_valid(name, len));
			name[at] = 'n';
		}
	}
	assert_false(lp_key_name_is_valid(".", 1));
	assert_false(lp_key_name_is_valid("..", 2));
	assert_true(lp_key_name_is_valid(".n", 2));
}

static void test_after(void **state)
{
	(void)state;
	struct lp_key key;
	assert_true(lp_key_after("ab", 2, &key));
	CHECK_BYTES(&key, "ac");
	assert_true(lp_key_after("a\xff\xff", 3, &key));
	CHECK_BYTES(&key, "b");
	assert_false(lp_key_after("\xff\xff", 2, &key));
	assert_false(lp_key_after("", 0, &key));
}

static bool is_in(const struct lp_key_range *range, const struct lp_key *key)
{
	return lp_key_compare(range->first.bytes, range->first.len, key->bytes, key->len) <= 0 &&
	       lp_key_compare(key->bytes, key->len, range->end.bytes, range->end.len) < 0;
}

static bool name_is_from(const struct lp_key_view *view, const char *from, size_t len, bool after)
{
	int order = lp_key_compare(view->name, view->name_len, from, len);
	return after ? order > 0 : order >= 0;
}

static void check_ranges(const struct lp_key *key, const struct lp_key_view *view,
			 enum lp_key_space space, struct lp_ino ino, const char *from)
{
	struct lp_key_range range;
	bool same_ino = view->space == space && view->ino.nr == ino.nr;
	lp_key_range_of_space(&range, space);
	assert_int_equal(is_in(&range, key), view->space == space);
	lp_key_range_of_ino(&range, space, ino);
	assert_int_equal(is_in(&range, key), same_ino);
	size_t len = strlen(from);
	lp_key_range_from(&range, space, ino, from, len);
	assert_int_equal(is_in(&range, key), same_ino && name_is_from(view, from, len, false));
	lp_key_range_after(&range, space, ino, from, len);
	assert_int_equal(is_in(&range, key), same_ino && name_is_from(view, from, len, true));
	lp_key_range_of_map(&range, ino, 2, 255);
	same_ino = view->space == LP_KEY_SPACE_MAP && view->ino.nr == ino.nr;
	assert_int_equal(is_in(&range, key), same_ino && view->number >= 2 && view->number <= 255);
	lp_key_range_of_store(&range, "a");
	assert_int_equal(is_in(&range, key), view->space == LP_KEY_SPACE_STORE &&
						     view->has_number && view->name_len == 1 &&
						     view->name[0] == 'a');
}

static void test_ranges(void **state)
{
	(void)state;
	static const enum lp_key_space spaces[] = {LP_KEY_SPACE_DIRENT, LP_KEY_SPACE_XATTR,
						   LP_KEY_SPACE_OMAP};
	static const uint64_t inos[] = {1, 255, UINT64_MAX};
	static const char *const froms[] = {"", "a", "a/", "ab", "\xff\xff", "zz"};
	struct lp_prng prng;
	lp_prng_init(&prng, 3);
	for (int n = 0; n < 20000; n++) {
		struct lp_key key;
		struct lp_key_view view;
		random_key(&prng, &key);
		lp_test_ok(lp_key_parse(key.bytes, key.len, &view));
		struct lp_ino ino = {inos[lp_prng_below(&prng, LP_ARRAY_SIZE(inos))]};
		check_ranges(&key, &view, spaces[lp_prng_below(&prng, LP_ARRAY_SIZE(spaces))], ino,
			     froms[lp_prng_below(&prng, LP_ARRAY_SIZE(froms))]);
	}
}

/* A start longer than any name falls between the longest names, as it should. */
static void test_range_from_overlong(void **state)
{
	(void)state;
	static char from[2 * LP_KEY_OMAP_MAX];
	struct lp_key_range range;
	struct lp_key key;
	memset(from, 'x', sizeof(from));
	for (size_t len = LP_KEY_OMAP_MAX - 1; len < LP_KEY_OMAP_MAX + 3; len++) {
		lp_key_of_name(&key, LP_KEY_SPACE_OMAP, ino1, from, LP_KEY_OMAP_MAX);
		lp_key_range_from(&range, LP_KEY_SPACE_OMAP, ino1, from, len);
		assert_int_equal(is_in(&range, &key), len <= LP_KEY_OMAP_MAX);
		lp_key_range_after(&range, LP_KEY_SPACE_OMAP, ino1, from, len);
		assert_int_equal(is_in(&range, &key), len < LP_KEY_OMAP_MAX);
		key.bytes[key.len - 1] = 'y';
		assert_true(is_in(&range, &key));
	}
}

static void build_bad(void *arg)
{
	struct lp_key key;
	switch (*(int *)arg) {
	case 0:
		lp_key_of_ino(&key, LP_KEY_SPACE_DIRENT, ino1);
		break;
	case 1:
		lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, ino1, "a/b", 3);
		break;
	case 2:
		lp_key_of_ino(&key, LP_KEY_SPACE_INODE, (struct lp_ino){0});
		break;
	case 3:
		lp_key_of_map(&key, ino1, LP_KEY_MAP_BLOCKS_MAX);
		break;
	default:
		lp_key_of_number(&key, LP_KEY_SPACE_STORE, 1);
		break;
	}
}

static void test_builders_assert(void **state)
{
	(void)state;
	for (int which = 0; which < 5; which++)
		lp_test_dies(build_bad, &which);
}

/* Exactly what the parser takes, of three spaces: by cutting and bending keys of all kinds. */
static void test_records(void **state)
{
	(void)state;
	static const char *const keys[] = {
		"Sname",          "Sname\0..number", "S\0..number",
		"T..number",      "U..number",       "U\0\0\0\0\0\0\0\0",
		"Saa\0bbbb\0ccc", "I..number",       "X..number..number"};
	static const size_t lens[] = {5, 14, 10, 9, 9, 9, 12, 9, 17};
	uint8_t bytes[96] = {0};
	for (size_t i = 0; i < LP_ARRAY_SIZE(keys); i++) {
		for (size_t len = 1; len <= sizeof(bytes); len++) {
			struct lp_key_view view;
			memset(bytes, 'x', sizeof(bytes));
			memcpy(bytes, keys[i], lens[i]);
			bool is_open = strchr("STU", keys[i][0]) != NULL;
			bool is_valid = is_open && lp_key_parse(bytes, len, &view) == 0;
			assert_int_equal(lp_key_record_is_valid(bytes, len), is_valid);
		}
	}
	assert_false(lp_key_record_is_valid(bytes, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_round_trip_and_mutations),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_longest),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_after),
		cmocka_unit_test(test_ranges),
		cmocka_unit_test(test_range_from_overlong),
		cmocka_unit_test(test_builders_assert),
		cmocka_unit_test(test_records),
	};
	return lp_test_main(tests, "store/record/keys");
}
