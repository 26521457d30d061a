/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: lists are what they would be if keys were in one sorted table. Method: on one to three
 * shards in simulated time; fixed cases for what is hard about the order, random trees whose lists,
 * with random prefixes and pages, are held against a sorted array. */
#include <stdlib.h>

#include "namespace/ops/paths_rig_test.h"

#define KEYS_MAX 400u
#define KEY_MAX  64u

static char page[262144];

struct keys {
	uint32_t cnt;
	char key[KEYS_MAX][KEY_MAX];
};

static int list(struct lpi_t *t, const char *prefix, const char *after, bool delimit,
		uint32_t items_max, uint32_t buf_len)
{
	lpi_t_op(t, LP_NS_LIST);
	t->op->list.prefix = lpi_t_bytes(prefix);
	if (after != NULL)
		t->op->list.after = lpi_t_bytes(after);
	t->op->list.delimit = delimit;
	t->op->list.items_max = items_max;
	t->op->list.buf = page;
	t->op->list.buf_len = buf_len;
	return lpi_t_do(t);
}

static void take(const struct lpi_t *t, struct keys *keys)
{
	struct lp_ns_item item;
	uint32_t pos = 0;
	keys->cnt = 0;
	while (lp_ns_next(t->op, &pos, &item)) {
		assert_true(item.name.len < KEY_MAX && keys->cnt < KEYS_MAX);
		memcpy(keys->key[keys->cnt], item.name.data, item.name.len);
		keys->key[keys->cnt][item.name.len] = '\0';
		assert_int_equal(item.ino.nr == 0, keys->key[keys->cnt][item.name.len - 1] == '/');
		assert_int_equal(item.ino.nr == 0, item.type == 0);
		keys->cnt++;
	}
	assert_int_equal(keys->cnt, t->op->list.items);
}

/* One line, for fixed cases: all keys with a blank behind each, and a '+' if there are more. */
static const char *show(struct lpi_t *t, const char *prefix, const char *after, bool delimit,
			uint32_t items_max)
{
	static char text[4096];
	static struct keys keys;
	size_t len = 0;
	lp_test_ok(list(t, prefix, after, delimit, items_max, sizeof(page)));
	take(t, &keys);
	text[0] = '\0';
	for (uint32_t i = 0; i < keys.cnt; i++)
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s ", keys.key[i]);
	if (t->op->list.more)
		(void)snprintf(text + len, sizeof(text) - len, "+");
	return text;
}

static void fixed_on(uint32_t shard_cnt)
{
	struct lpi_t t;
	lpi_t_begin(&t, shard_cnt);
	assert_string_equal(show(&t, "", NULL, false, 0), "");
	static const char *const puts[] = {"b/a/x",  "b/a-b",   "b/a/-", "b/a.d/e", "b/a0",
					   "b/a-/z", "b/a--/y", "b/c",   "top",     "b-/q"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(puts); i++)
		lp_test_ok(lpi_tp_put(&t, puts[i], 1));
	/* A directory "a" is where "a/" is: behind "a-b" and "a.d". */
	assert_string_equal(show(&t, "", NULL, false, 0),
			    "b-/q b/a--/y b/a-/z b/a-b b/a.d/e b/a/- b/a/x b/a0 b/c top ");
	assert_string_equal(show(&t, "", NULL, true, 0), "b-/ b/ top ");
	assert_string_equal(show(&t, "b/", NULL, true, 0),
			    "b/a--/ b/a-/ b/a-b b/a.d/ b/a/ b/a0 b/c ");
	assert_string_equal(show(&t, "b", NULL, true, 0), "b-/ b/ ");
	assert_string_equal(show(&t, "b/a-", NULL, false, 0), "b/a--/y b/a-/z b/a-b ");
	assert_string_equal(show(&t, "b/a/", NULL, false, 0), "b/a/- b/a/x ");
	assert_string_equal(show(&t, "b/a/x", NULL, false, 0), "b/a/x ");
	assert_string_equal(show(&t, "b/a/xx", NULL, false, 0), "");
	assert_string_equal(show(&t, "b/c/", NULL, false, 0), "");
	assert_string_equal(show(&t, "b/zzz/y", NULL, false, 0), "");
	assert_string_equal(show(&t, "b//", NULL, false, 0), "");
	assert_string_equal(show(&t, "/", NULL, false, 0), "");
	assert_string_equal(show(&t, "b/.", NULL, false, 0), "");
	assert_string_equal(show(&t, "b/../b", NULL, false, 0), "");
	/* Behind a key, whether it is there or not. */
	assert_string_equal(show(&t, "", "b/a-b", false, 0), "b/a.d/e b/a/- b/a/x b/a0 b/c top ");
	assert_string_equal(show(&t, "", "b/a-b0", false, 3), "b/a.d/e b/a/- b/a/x +");
	assert_string_equal(show(&t, "b/", "b/a/-", false, 1), "b/a/x +");
	assert_string_equal(show(&t, "b/", "b/a/", false, 1), "b/a/- +");
	assert_string_equal(show(&t, "b/", "b/a", false, 1), "b/a--/y +");
	assert_string_equal(show(&t, "b/", "b/a--/y/z/z", false, 1), "b/a-/z +");
	assert_string_equal(show(&t, "b/", "a", false, 1), "b/a--/y +");
	assert_string_equal(show(&t, "b/", "c", false, 1), "");
	assert_string_equal(show(&t, "b/", "b/c", false, 1), "");
	assert_string_equal(show(&t, "", "b/c", false, 1), "top ");
	assert_string_equal(show(&t, "", "top", false, 1), "");
	/* A common prefix is behind another by itself, not by its keys. */
	assert_string_equal(show(&t, "b/", "b/a--/", true, 2), "b/a-/ b/a-b +");
	assert_string_equal(show(&t, "b/", "b/a--/y", true, 2), "b/a-/ b/a-b +");
	assert_string_equal(show(&t, "b/", "b/a", true, 1), "b/a--/ +");
	assert_string_equal(show(&t, "b/", "b/a/", true, 0), "b/a0 b/c ");
	/* Names that cannot be. */
	assert_string_equal(show(&t, "b/", "b/a/./x", false, 0), "b/a/x b/a0 b/c ");
	assert_string_equal(show(&t, "b/", "b/../x", false, 1), "b/a--/y +");
	assert_string_equal(show(&t, "b/", "b/c//", false, 1), "");
	/* Directories without keys are none, but where they are asked for. */
	(void)lpi_t_dir(&t, lpi_t_dir(&t, LP_INO_ROOT, "e"), "f");
	assert_string_equal(show(&t, "e", NULL, false, 0), "");
	assert_string_equal(show(&t, "", "b/c", true, 0), "e/ top ");
	assert_int_equal(list(&t, "b/", NULL, false, 0, 16), -ERANGE);
	lpi_t_end(&t);
}

static void test_fixed(void **state)
{
	(void)state;
	for (uint32_t i = 1; i <= 3; i++)
		fixed_on(i);
}

/* With attributes; those of other shards too. */
static void test_attrs(void **state)
{
	(void)state;
	struct lpi_t t;
	struct lp_ns_item item;
	uint32_t pos = 0;
	uint32_t cnt = 0;
	char path[16];
	lpi_t_begin(&t, 3);
	for (uint32_t i = 0; i < 40; i++) {
		(void)snprintf(path, sizeof(path), "a/%02u", i);
		lp_test_ok(lpi_tp_put(&t, path, 100 + i));
	}
	struct lp_ino plain = lpi_t_dir(&t, LP_INO_ROOT, "b");
	for (uint32_t i = 0; i < 40; i += 2) {
		char name[8];
		(void)snprintf(path, sizeof(path), "a/%02u", i);
		(void)snprintf(name, sizeof(name), "%02u", i);
		lp_test_ok(lpi_t_link(&t, lpi_tp_find(&t, path), plain, name));
		lp_test_ok(lpi_tp_delete(&t, path));
	}
	lpi_t_op(&t, LP_NS_LIST);
	t.op->list.buf = page;
	t.op->list.buf_len = sizeof(page);
	t.op->list.with_attrs = true;
	lp_test_ok(lpi_t_do(&t));
	while (lp_ns_next(t.op, &pos, &item)) {
		uint32_t i = cnt < 20 ? 2 * cnt + 1 : 2 * (cnt - 20);
		assert_true(item.has_attrs);
		assert_int_equal(item.attrs.size_bytes, 100 + i);
		cnt++;
	}
	assert_int_equal(cnt, 40);
	lpi_t_end(&t);
}

/* --- Random trees ----------------------------------------------------------------------------- */

static int compare_keys(const void *a, const void *b)
{
	return strcmp(a, b);
}

/* Names of few letters around '/', so that they are beginnings of each other. */
static void random_name(struct lp_prng *prng, char *name)
{
	static const char letters[] = "ab-.0!";
	uint32_t len = 1 + (uint32_t)lp_prng_below(prng, 3);
	do {
		for (uint32_t i = 0; i < len; i++)
			name[i] = letters[lp_prng_below(prng, sizeof(letters) - 1)];
		name[len] = '\0';
	} while (!lp_key_name_is_valid(name, len));
}

static void random_key(struct lp_prng *prng, char key[KEY_MAX])
{
	uint32_t depth = 1 + (uint32_t)lp_prng_below(prng, 6);
	size_t len = 0;
	for (uint32_t i = 0; i < depth; i++) {
		char name[8];
		random_name(prng, name);
		if (i > 0)
			key[len++] = '/';
		len += lpi_tp_copy(key + len, KEY_MAX - len, name);
	}
}

/* What a list should be, without a limit. */
static void expect(const struct keys *all, const char *prefix, const char *after, bool delimit,
		   struct keys *ret)
{
	size_t prefix_len = strlen(prefix);
	ret->cnt = 0;
	for (uint32_t i = 0; i < all->cnt; i++) {
		char *to = ret->key[ret->cnt];
		if (strncmp(all->key[i], prefix, prefix_len) != 0)
			continue;
		lpi_tp_copy(to, KEY_MAX, all->key[i]);
		char *slash = strchr(to + prefix_len, '/');
		if (delimit && slash != NULL)
			slash[1] = '\0';
		if (after != NULL && strcmp(to, after) <= 0)
			continue;
		if (ret->cnt > 0 && strcmp(ret->key[ret->cnt - 1], to) == 0)
			continue;
		ret->cnt++;
	}
}

static void check_pages(struct lpi_t *t, const struct keys *all, const char *prefix,
			const char *after, bool delimit, uint32_t items_max)
{
	static struct keys expected;
	static struct keys found;
	char last[KEY_MAX];
	uint32_t at = 0;
	expect(all, prefix, after, delimit, &expected);
	do {
		lp_test_ok(list(t, prefix, after, delimit, items_max, 4096));
		take(t, &found);
		for (uint32_t i = 0; i < found.cnt; i++, at++) {
			assert_true(at < expected.cnt);
			assert_string_equal(found.key[i], expected.key[at]);
		}
		assert_int_equal(t->op->list.more, at < expected.cnt);
		assert_true(found.cnt > 0 || !t->op->list.more);
		assert_true(found.cnt <= items_max);
		if (found.cnt > 0)
			lpi_tp_copy(last, sizeof(last), found.key[found.cnt - 1]);
		after = last;
	} while (t->op->list.more);
	assert_int_equal(at, expected.cnt);
}

static void random_on(uint32_t shard_cnt, uint64_t seed)
{
	struct lpi_t t;
	struct lp_prng prng;
	static struct keys all;
	lp_prng_init(&prng, seed);
	lpi_t_begin(&t, shard_cnt);
	all.cnt = 0;
	/* Some of the first directories are not spread. */
	(void)lpi_t_dir(&t, LP_INO_ROOT, "a");
	for (uint32_t i = 0; i < 120; i++) {
		random_key(&prng, all.key[all.cnt]);
		int r = lpi_tp_put(&t, all.key[all.cnt], 0);
		bool is_new = true;
		for (uint32_t n = 0; n < all.cnt; n++)
			is_new = is_new && strcmp(all.key[n], all.key[all.cnt]) != 0;
		if (r == 0 && is_new)
			all.cnt++;
		else
			assert_true(r == 0 || r == -EISDIR || r == -ENOTDIR);
	}
	qsort(all.key, all.cnt, KEY_MAX, compare_keys);
	if (all.cnt == 0 || strncmp(all.key[0], "a/", 2) != 0)
		(void)lpi_t_remove(&t, LP_INO_ROOT, "a", true); /* -ENOTEMPTY: it is in use */
	for (uint32_t i = 0; i < 60; i++) {
		char prefix[KEY_MAX];
		char after[KEY_MAX];
		random_key(&prng, prefix);
		prefix[lp_prng_below(&prng, strlen(prefix) + 1)] = '\0';
		if (lp_prng_chance(&prng, 1, 2))
			prefix[LP_MIN(strlen(prefix), lp_prng_below(&prng, 3))] = '\0';
		(void)snprintf(after, sizeof(after), "%s", all.key[lp_prng_below(&prng, all.cnt)]);
		if (lp_prng_chance(&prng, 1, 2))
			after[lp_prng_below(&prng, strlen(after) + 1)] = '\0';
		if (lp_prng_chance(&prng, 1, 4))
			random_key(&prng, after);
		check_pages(&t, &all, prefix, lp_prng_chance(&prng, 1, 2) ? after : NULL,
			    lp_prng_chance(&prng, 1, 3), 1 + (uint32_t)lp_prng_below(&prng, 40));
	}
	lpi_t_end(&t);
}

static void test_random(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= (LP_ASSERT_SLOW_ON ? 3 : 30); seed++)
		random_on(1 + (uint32_t)(seed % 3), seed);
}

/* Deeper than there are sets of pages, and more in each than a page takes. */
static void test_deep(void **state)
{
	(void)state;
	struct lpi_t t;
	char key[KEY_MAX];
	static struct keys found;
	static char keys[12][LP_NS_PATH_MAX];
	lpi_t_begin(&t, 3);
	size_t len = 0;
	for (uint32_t depth = 0; depth < 12; depth++) {
		len += lpi_tp_copy(key + len, KEY_MAX - len, "d");
		(void)snprintf(keys[depth], sizeof(keys[depth]), "%s-", key);
		lp_test_ok(lpi_tp_put(&t, keys[depth], 0));
		(void)snprintf(keys[depth], sizeof(keys[depth]), "%s0", key);
		lp_test_ok(lpi_tp_put(&t, keys[depth], 0));
		len += lpi_tp_copy(key + len, KEY_MAX - len, "/");
	}
	lp_test_ok(list(&t, "", NULL, false, 0, sizeof(page)));
	take(&t, &found);
	assert_int_equal(found.cnt, 24);
	for (uint32_t i = 0; i < 12; i++)
		assert_string_equal(found.key[12 + i], keys[11 - i]);
	lpi_t_end(&t);
}

/* More lists than there is memory for wait for each other. */
static void test_many(void **state)
{
	(void)state;
	struct lpi_t t;
	static struct lpi_ns_hand hands[3 * LPI_NS_RIG_SHARDS_MAX * 8];
	static char bufs[LP_ARRAY_SIZE(hands)][512];
	lpi_t_begin(&t, 2);
	lp_test_ok(lpi_tp_put(&t, "a/b", 0));
	lp_test_ok(lpi_tp_put(&t, "a/c", 0));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(hands); i++) {
		hands[i] = (struct lpi_ns_hand){.op = {.opcode = LP_NS_LIST}};
		hands[i].op.list.buf = bufs[i];
		hands[i].op.list.buf_len = sizeof(bufs[i]);
		hands[i].op.list.prefix = lpi_t_bytes(i % 3 == 0 ? "x/" : "a/");
		lpi_ns_rig_submit(t.rig, i % 2, &hands[i]);
	}
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(hands); i++) {
		lp_test_ok(lpi_ns_rig_wait(t.rig, &hands[i]));
		assert_int_equal(hands[i].op.list.items, i % 3 == 0 ? 0 : 2);
	}
	lpi_t_end(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fixed),  cmocka_unit_test(test_attrs),
		cmocka_unit_test(test_random), cmocka_unit_test(test_deep),
		cmocka_unit_test(test_many),
	};
	return lp_test_main(tests, "namespace/ops/list");
}
