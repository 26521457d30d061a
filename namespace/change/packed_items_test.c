/* SPDX-License-Identifier: Apache-2.0 */
#include "base/testing/test.h"

#include "namespace/change/packed_items.h"

static struct lp_ns_item item_of(uint64_t cookie, char *name)
{
	int len = snprintf(name, 32, "name-%llu", (unsigned long long)cookie);
	return (struct lp_ns_item){.name = {name, (uint32_t)len},
				   .ino = {cookie * 3},
				   .cookie = cookie,
				   .type = LP_INODE_TYPE_FILE};
}

static void expect(const struct lp_ns_item *got, uint64_t cookie)
{
	char name[32];
	const struct lp_ns_item want = item_of(cookie, name);
	assert_int_equal(got->cookie, cookie);
	assert_int_equal(got->ino.nr, want.ino.nr);
	assert_int_equal(got->name.len, want.name.len);
	assert_memory_equal(got->name.data, want.name.data, want.name.len);
}

/* As a readdir gives them to its caller, wherever the buffer lies. */
static void test_walk(void **state)
{
	(void)state;
	uint8_t buf[1025];
	for (uint32_t odd = 0; odd < 2; odd++) {
		struct lpi_items items;
		char name[32];
		uint32_t cnt = 0;
		uint32_t used = 0;
		lpi_items_init(&items, buf + odd, 1024);
		for (;; cnt++) {
			const struct lp_ns_item item = item_of(1000 - cnt, name);
			uint32_t bytes = lpi_items_bytes(item.name.len, false);
			bool fits = used + bytes <= 1024;
			assert_int_equal(lpi_items_add(&items, &item, false), fits);
			if (!fits)
				break;
			used += bytes;
		}
		lpi_items_sort(&items);
		assert_int_equal(lpi_items_last_cookie(&items), 1000);
		struct lp_ns_op op = {.opcode = LP_NS_READDIR,
				      .readdir = {.buf = buf + odd, .buf_len = 1024}};
		op.readdir.items = items.cnt;
		op.readdir.used = lpi_items_finish(&items);
		assert_int_equal(op.readdir.used, used);
		uint32_t pos = 0;
		struct lp_ns_item got;
		for (uint32_t i = 0; i < cnt; i++) {
			assert_true(lp_ns_next(&op, &pos, &got));
			expect(&got, 1000 - cnt + 1 + i);
			assert_false(got.has_attrs);
		}
		assert_false(lp_ns_next(&op, &pos, &got));
	}
}

static void test_attrs(void **state)
{
	(void)state;
	uint8_t buf[1024];
	struct lpi_items items;
	struct lp_ns_item got;
	char name[32];
	const struct lp_attrs attrs = {.nlink = 77, .mtime_ns = -5};
	lpi_items_init(&items, buf, sizeof(buf));
	for (uint64_t i = 1; i < 4; i++) {
		const struct lp_ns_item item = item_of(i, name);
		assert_true(lpi_items_add(&items, &item, true));
	}
	lpi_items_set_attrs(&items, 1, &attrs);
	for (uint32_t i = 0; i < 3; i++) {
		lpi_items_get(&items, i, &got);
		expect(&got, i + 1);
		assert_int_equal(got.has_attrs, i == 1);
	}
	lpi_items_get(&items, 1, &got);
	assert_int_equal(got.attrs.nlink, 77);
	assert_int_equal(got.attrs.mtime_ns, -5);
}

/* Halving keeps the lowest, down to none, and makes room. */
static void test_halve(void **state)
{
	(void)state;
	uint8_t buf[4096];
	struct lpi_items items;
	struct lp_ns_item got;
	char name[32];
	lpi_items_init(&items, buf, sizeof(buf));
	for (uint64_t i = 0; i < 31; i++) {
		const struct lp_ns_item item = item_of(1 + i * 7 % 31, name);
		assert_true(lpi_items_add(&items, &item, i % 2 == 0));
	}
	uint32_t used = items.used;
	for (uint32_t cnt = 31; cnt > 0; cnt /= 2) {
		assert_int_equal(lpi_items_halve(&items), cnt / 2 + 1);
		assert_int_equal(items.cnt, cnt / 2);
		assert_true(items.used < used);
		used = items.used;
		for (uint32_t i = 0; i < items.cnt; i++) {
			lpi_items_get(&items, i, &got);
			expect(&got, i + 1);
		}
	}
	assert_int_equal(items.used, 0);
	assert_int_equal(lpi_items_last_cookie(&items), 0);
}

/* A name in two parts is one when it is read, and both count when it must fit. */
static void test_below(void **state)
{
	(void)state;
	uint8_t buf[256];
	struct lpi_items items;
	struct lp_ns_item got;
	char name[32];
	const struct lp_bytes dir = {"dir/sub/", 8};
	const struct lp_ns_item item = item_of(7, name);
	const uint32_t bytes = lpi_items_bytes(dir.len + item.name.len, false);
	lpi_items_init(&items, buf, bytes - 1);
	assert_false(lpi_items_add_below(&items, dir, &item, false));
	lpi_items_init(&items, buf, bytes);
	assert_true(lpi_items_add_below(&items, dir, &item, false));
	lpi_items_get(&items, 0, &got);
	assert_int_equal(got.name.len, 8 + item.name.len);
	assert_memory_equal(got.name.data, "dir/sub/", 8);
	assert_memory_equal((const char *)got.name.data + 8, item.name.data, item.name.len);
	assert_int_equal(got.ino.nr, item.ino.nr);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_walk),
		cmocka_unit_test(test_attrs),
		cmocka_unit_test(test_halve),
		cmocka_unit_test(test_below),
	};
	return lp_test_main(tests, "namespace/change/packed_items");
}
