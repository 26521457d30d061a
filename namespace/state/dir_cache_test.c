/* SPDX-License-Identifier: Apache-2.0 */
#include "namespace/state/dir_cache.h"

#include "base/testing/test.h"

#include <stdio.h>

static struct lp_bytes text(const char *s)
{
	return (struct lp_bytes){s, (uint32_t)strlen(s)};
}

static const struct lp_ino dir = {7};

static void test_find(void **state)
{
	(void)state;
	struct lpi_dircache *cache = NULL;
	struct lpi_dirhit hit = {{0}, false};
	lp_test_ok(lpi_dircache_new(0, &cache));
	assert_false(lpi_dircache_find(cache, dir, text("a"), &hit));
	lpi_dircache_add(cache, 0, dir, text("a"), (struct lpi_dirhit){{9}, true});
	assert_true(lpi_dircache_find(cache, dir, text("a"), &hit));
	assert_true(hit.ino.nr == 9 && hit.is_spread);
	assert_false(lpi_dircache_find(cache, (struct lp_ino){8}, text("a"), &hit));
	assert_false(lpi_dircache_find(cache, dir, text("aa"), &hit));
	lpi_dircache_forget(cache, dir, text("a"));
	assert_false(lpi_dircache_find(cache, dir, text("a"), &hit));
	assert_int_equal(lpi_dircache_hits(cache), 1);
	assert_int_equal(lpi_dircache_misses(cache), 4);
	lpi_dircache_free(cache);
}

/* What was being looked up while a name was changed is not remembered, whenever it began. */
static void test_freeze(void **state)
{
	(void)state;
	struct lpi_dircache *cache = NULL;
	struct lpi_dirhit hit = {{9}, false};
	lp_test_ok(lpi_dircache_new(0, &cache));
	uint64_t before = lpi_dircache_generation(cache);
	lpi_dircache_freeze(cache);
	uint64_t during = lpi_dircache_generation(cache);
	lpi_dircache_add(cache, during, dir, text("a"), hit);
	assert_false(lpi_dircache_find(cache, dir, text("a"), &hit));
	lpi_dircache_freeze(cache); /* by another one */
	lpi_dircache_thaw(cache);
	lpi_dircache_add(cache, lpi_dircache_generation(cache), dir, text("a"), hit);
	assert_false(lpi_dircache_find(cache, dir, text("a"), &hit));
	uint64_t late = lpi_dircache_generation(cache);
	lpi_dircache_thaw(cache);
	lpi_dircache_add(cache, late, dir, text("a"), hit);
	lpi_dircache_add(cache, before, dir, text("a"), hit);
	lpi_dircache_add(cache, during, dir, text("a"), hit);
	assert_false(lpi_dircache_find(cache, dir, text("a"), &hit));
	lpi_dircache_add(cache, lpi_dircache_generation(cache), dir, text("a"), hit);
	assert_true(lpi_dircache_find(cache, dir, text("a"), &hit));
	lpi_dircache_free(cache);
}

/* However many there are, what is found is right. */
static void test_full(void **state)
{
	(void)state;
	struct lpi_dircache *cache = NULL;
	char name[LPI_DIRCACHE_NAME_MAX + 2];
	uint32_t found = 0;
	lp_test_ok(lpi_dircache_new(0, &cache));
	for (uint64_t i = 1; i <= 1000; i++) {
		(void)snprintf(name, sizeof(name), "%u", (unsigned)i);
		lpi_dircache_add(cache, 0, dir, text(name), (struct lpi_dirhit){{i}, false});
	}
	for (uint64_t i = 1; i <= 1000; i++) {
		struct lpi_dirhit hit;
		(void)snprintf(name, sizeof(name), "%u", (unsigned)i);
		if (!lpi_dircache_find(cache, dir, text(name), &hit))
			continue;
		assert_int_equal(hit.ino.nr, i);
		found++;
	}
	assert_in_range(found, 4, 4096 / 96);
	memset(name, 'x', sizeof(name));
	struct lp_bytes too_long = {name, sizeof(name)};
	struct lpi_dirhit hit = {{1}, false};
	lpi_dircache_add(cache, 0, dir, too_long, hit);
	assert_false(lpi_dircache_find(cache, dir, too_long, &hit));
	lpi_dircache_free(cache);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_find),
		cmocka_unit_test(test_freeze),
		cmocka_unit_test(test_full),
	};
	return lp_test_main(tests, "namespace/state/dir_cache");
}
