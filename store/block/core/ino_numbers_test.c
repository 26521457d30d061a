/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a number of an inode is given once, and never again after a crash (rule N5); and "fresh" is
 * said of a number only if no record of it can be in the index, for then nobody looks there.
 * Method: numbers given, used in and out of order, used without being given, and given while the
 * ring of fresh ones goes round; a store abandoned and opened again. */
#include "store/block/block_rig_test.h"

#define LAPS 3u

static void use(struct lpi_rig *rig, struct lp_ino ino)
{
	lpi_rig_reserve(rig);
	lpi_ino_use(rig->block, ino);
	lpi_ino_set_aside(rig->block, ino);
}

/* The rig does not open what the store does. */
static void open_inos(struct lpi_rig *rig)
{
	lp_test_ok(lpi_ino_open(rig->block));
}

static void init(struct lpi_rig *rig)
{
	lpi_rig_init(rig);
	open_inos(rig);
}

static void fini(struct lpi_rig *rig)
{
	lpi_rig_close(rig, false);
	lpi_rig_fini(rig);
}

static void test_fresh_until_used(void **state)
{
	(void)state;
	struct lpi_rig rig = {0};
	init(&rig);
	struct lp_ino first = lpi_ino_new(rig.block);
	struct lp_ino second = lpi_ino_new(rig.block);
	assert_true(second.nr > first.nr);
	assert_true(lpi_ino_is_fresh(rig.block, first));
	assert_true(lpi_ino_is_fresh(rig.block, second));
	/* Not given: the root, one to come, one of another shard. */
	assert_false(lpi_ino_is_fresh(rig.block, (struct lp_ino){1}));
	assert_false(lpi_ino_is_fresh(rig.block, (struct lp_ino){second.nr + 1}));
	assert_false(lpi_ino_is_fresh(rig.block, lp_ino_make(1, first.nr)));
	use(&rig, second);
	assert_true(lpi_ino_is_fresh(rig.block, first));
	assert_false(lpi_ino_is_fresh(rig.block, second));
	use(&rig, first);
	assert_false(lpi_ino_is_fresh(rig.block, first));
	fini(&rig);
}

/* The bits are used again and again; numbers of former laps are not fresh. */
static void test_ring(void **state)
{
	(void)state;
	struct lpi_rig rig = {0};
	init(&rig);
	struct lp_ino first = lpi_ino_new(rig.block);
	struct lp_ino last = first;
	for (uint32_t i = 0; i < LAPS * LPI_FRESH_INOS; i++) {
		struct lp_ino ino = lpi_ino_new(rig.block);
		assert_int_equal(ino.nr, last.nr + 1);
		assert_true(lpi_ino_is_fresh(rig.block, ino));
		if (i % 3 == 0)
			use(&rig, ino);
		assert_int_equal(lpi_ino_is_fresh(rig.block, ino), i % 3 != 0);
		last = ino;
	}
	assert_false(lpi_ino_is_fresh(rig.block, first));
	assert_false(lpi_ino_is_fresh(rig.block, (struct lp_ino){last.nr - LPI_FRESH_INOS - 1}));
	/* Long forgotten: it may be used all the same, and changes nothing of the ring. */
	struct lp_ino old = {last.nr - 2 * (uint64_t)LPI_FRESH_INOS};
	struct lp_ino same_bit = {last.nr - (last.nr - old.nr) % LPI_FRESH_INOS};
	bool before = lpi_ino_is_fresh(rig.block, same_bit);
	use(&rig, old);
	assert_int_equal(lpi_ino_is_fresh(rig.block, same_bit), before);
	fini(&rig);
}

/* A number that a caller chose itself is not given afterwards, nor is one below it fresh. */
static void test_used_without_being_given(void **state)
{
	(void)state;
	static const uint64_t ahead[] = {0,
					 1,
					 63,
					 64,
					 1000,
					 LPI_FRESH_INOS - 1,
					 LPI_FRESH_INOS,
					 UINT64_C(3) * LPI_FRESH_INOS,
					 200000};
	struct lpi_rig rig = {0};
	init(&rig);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ahead); i++) {
		/* A lap of numbers that are given and never used. */
		struct lp_ino last = {0};
		for (uint32_t k = 0; k < LPI_FRESH_INOS; k++)
			last = lpi_ino_new(rig.block);
		struct lp_ino chosen = {last.nr + 1 + ahead[i]};
		use(&rig, chosen);
		for (uint64_t nr = last.nr + 1; nr <= chosen.nr; nr++)
			assert_false(lpi_ino_is_fresh(rig.block, (struct lp_ino){nr}));
		assert_int_equal(lpi_ino_is_fresh(rig.block, last), ahead[i] + 1 < LPI_FRESH_INOS);
		assert_int_equal(lpi_ino_new(rig.block).nr, chosen.nr + 1);
	}
	fini(&rig);
}

/* Rule N5: whatever was used is below what is given after a crash, and nothing is fresh then. */
static void test_reopened(void **state)
{
	(void)state;
	struct lpi_rig rig = {0};
	uint64_t used_max = 0;
	init(&rig);
	for (uint32_t round = 0; round < 4; round++) {
		struct lp_ino ino = lpi_ino_new(rig.block);
		assert_true(ino.nr > used_max);
		for (uint64_t nr = 1; nr <= used_max && nr < 64; nr++)
			assert_false(lpi_ino_is_fresh(rig.block, (struct lp_ino){nr}));
		use(&rig, ino);
		used_max = ino.nr + (round == 2 ? 100000 : 0);
		if (round == 2)
			use(&rig, (struct lp_ino){used_max});
		lpi_rig_settle(&rig);
		lpi_rig_close(&rig, true);
		lpi_rig_open(&rig);
		open_inos(&rig);
		assert_false(lpi_ino_is_fresh(rig.block, ino));
	}
	fini(&rig);
}

static void test_damaged_bound(void **state)
{
	(void)state;
	struct lpi_rig rig = {0};
	struct lp_key key;
	init(&rig);
	lp_key_of_store(&key, "inodes");
	lpi_rig_put(&rig, &key, "short", 5);
	lpi_rig_settle(&rig);
	assert_int_equal(lpi_ino_open(rig.block), -EUCLEAN);
	fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fresh_until_used),
		cmocka_unit_test(test_ring),
		cmocka_unit_test(test_used_without_being_given),
		cmocka_unit_test(test_reopened),
		cmocka_unit_test(test_damaged_bound),
	};
	return lp_test_main(tests, "store/block/core/ino_numbers");
}
