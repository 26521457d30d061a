/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a damaged object is on the list, and in the store, once, also after the next start, until
 * it is removed or whole. If the list is full it says that there may be more. A check of all data
 * adds and removes objects. Method: a store on a simulated device; blocks are found by their
 * content and flipped. */
#include "store/block/block_sim_test.h"

#include <stdalign.h>

#include "daemon/report/damage.h"

#define BLOCK    LP_BLOCK_BYTES
#define FIRST_NR 100u
#define INODES   3u

static uint8_t bytes[INODES][4 * LP_BLOCK_BYTES];

struct scene {
	struct lpi_store_rig rig;
	struct lpi_damage damage;
	bool has_stopped;
};

static struct lp_ino ino_of(uint64_t nr)
{
	return (struct lp_ino){nr};
}

static void begin(struct scene *s)
{
	lp_test_ok(lpi_damage_begin(&s->damage, s->rig.hand.reactor, s->rig.hand.store, NULL, 0));
	while (!s->damage.is_loaded)
		lpi_hand_turn(&s->rig.hand);
}

static void stopped(void *arg)
{
	((struct scene *)arg)->has_stopped = true;
}

static void end(struct scene *s)
{
	s->has_stopped = false;
	lpi_damage_quiet(&s->damage, stopped, s);
	assert_true(s->has_stopped);
	s->has_stopped = false;
	lpi_damage_stop(&s->damage, stopped, s);
	while (!s->has_stopped)
		lpi_hand_turn(&s->rig.hand);
	lpi_damage_fini(&s->damage);
}

static void setup(struct scene *s)
{
	struct lp_prng prng;
	*s = (struct scene){.has_stopped = false};
	lp_prng_init(&prng, 11);
	lp_prng_fill(&prng, bytes, sizeof(bytes));
	lpi_store_rig_start(&s->rig, 7);
	for (uint64_t i = 0; i < INODES; i++) {
		const struct lp_attrs attrs = {
			.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
		const struct lp_change create = {.type = LP_CHANGE_CREATE,
						 .ino = ino_of(FIRST_NR + i),
						 .inode = {.attrs = &attrs}};
		lp_test_ok(lpi_hand_change(&s->rig.hand, create));
		lp_test_ok(lpi_hand_write(&s->rig.hand, create.ino, 0, bytes[i], sizeof(bytes[i])));
	}
	struct lp_store_stats stats;
	do {
		lpi_hand_turn(&s->rig.hand);
		lp_store_read_stats(s->rig.hand.store, &stats);
	} while (stats.pending_bytes > 0);
	begin(s);
}

static void teardown(struct scene *s)
{
	end(s);
	lp_test_ok(lpi_store_rig_close(&s->rig, false));
	lpi_store_rig_fini(&s->rig);
}

/* Turns until there is no more work to be done at once. */
static void rest(struct scene *s)
{
	do
		lpi_hand_turn(&s->rig.hand);
	while (s->damage.is_asking || !lp_scrub_is_idle(s->damage.scrub));
}

static void look(struct scene *s, uint32_t times)
{
	for (uint32_t i = 0; i < times; i++) {
		lpi_damage_look(&s->damage);
		rest(s);
	}
}

static uint64_t txns(const struct scene *s)
{
	struct lp_store_stats stats;
	lp_store_read_stats(s->rig.hand.store, &stats);
	return stats.ops[LP_STORE_TXN];
}

/* Flips the block with these bytes on the device. */
static void flip(const struct scene *s, const uint8_t *block)
{
	static alignas(LP_BLOCK_BYTES) uint8_t found[LP_BLOCK_BYTES];
	uint32_t cnt = 0;
	for (uint64_t at = 0; at < LPI_STORE_RIG_BYTES; at += BLOCK) {
		lp_test_ok(lp_bdev_read_sync(s->rig.bdev, found, BLOCK, at));
		if (memcmp(found, block, BLOCK) != 0)
			continue;
		lp_sim_rot(lp_sim_of(s->rig.bdev), BLOCK, at, 3);
		cnt++;
	}
	assert_true(cnt > 0);
}

/* However often the object is read, its record is written once. The next start knows it. */
static void test_once(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	flip(&s, bytes[1] + 2 * BLOCK);
	uint64_t before = txns(&s);
	for (int i = 0; i < 20; i++) {
		lpi_damage_note(&s.damage, ino_of(FIRST_NR + 1), 2 * BLOCK, -EBADMSG);
		rest(&s);
	}
	assert_int_equal(txns(&s), before + 1);
	assert_int_equal(lpi_damage_cnt(&s.damage), 1);
	assert_int_equal(s.damage.found, 1);
	for (int round = 0; round < 3; round++) {
		look(&s, 3);
		assert_int_equal(lpi_damage_cnt(&s.damage), 1);
		assert_int_equal(s.damage.items[0].ino.nr, FIRST_NR + 1);
		assert_int_equal(s.damage.items[0].offset, 2 * BLOCK);
		assert_int_equal(s.damage.items[0].kind, LP_DAMAGED_KIND_CHECKSUM);
		end(&s);
		begin(&s);
	}
	assert_int_equal(s.damage.found, 0);
	assert_int_equal(txns(&s), before + 1);
	teardown(&s);
}

/* A change beside the damaged place mends nothing. A change of it does, and so does a removal. */
static void test_mended(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	for (uint64_t i = 0; i < 2; i++) {
		flip(&s, bytes[i] + BLOCK);
		lpi_damage_note(&s.damage, ino_of(FIRST_NR + i), BLOCK, -EBADMSG);
	}
	rest(&s);
	lp_test_ok(lpi_hand_write(&s.rig.hand, ino_of(FIRST_NR), 0, bytes[2], BLOCK));
	look(&s, 3);
	assert_int_equal(lpi_damage_cnt(&s.damage), 2);
	lp_test_ok(lpi_hand_write(&s.rig.hand, ino_of(FIRST_NR), BLOCK, bytes[2], BLOCK));
	look(&s, 3);
	assert_int_equal(lpi_damage_cnt(&s.damage), 1);
	assert_int_equal(s.damage.items[0].ino.nr, FIRST_NR + 1);
	const struct lp_change removal = {.type = LP_CHANGE_REMOVE, .ino = ino_of(FIRST_NR + 1)};
	lp_test_ok(lpi_hand_change(&s.rig.hand, removal));
	look(&s, 3);
	assert_int_equal(lpi_damage_cnt(&s.damage), 0);
	end(&s);
	begin(&s);
	assert_int_equal(s.damage.cnt, 0);
	teardown(&s);
}

/* A wrong report by a reader, or an object that was mended while no daemon ran, is found to be
 * whole. */
static void test_whole(void **state)
{
	(void)state;
	struct scene s;
	setup(&s);
	lpi_damage_note(&s.damage, ino_of(FIRST_NR), 0, -EBADMSG);
	rest(&s);
	end(&s);
	begin(&s);
	assert_int_equal(lpi_damage_cnt(&s.damage), 1);
	look(&s, 3);
	assert_int_equal(lpi_damage_cnt(&s.damage), 0);
	teardown(&s);
}

static void test_checks(void **state)
{
	(void)state;
	struct scene s;
	struct lp_scrub_verdict verdict = {
		.ino = ino_of(FIRST_NR), .places = 2, .offset = BLOCK, .error = -EIO};
	setup(&s);
	lpi_damage_passed(&s.damage, &verdict);
	assert_int_equal(lpi_damage_cnt(&s.damage), 1);
	assert_int_equal(s.damage.items[0].kind, LP_DAMAGED_KIND_UNREADABLE);
	/* A check that did not read the whole object has no verdict. */
	verdict = (struct lp_scrub_verdict){.ino = ino_of(FIRST_NR), .is_unsure = true};
	lpi_damage_passed(&s.damage, &verdict);
	assert_int_equal(lpi_damage_cnt(&s.damage), 1);
	verdict.is_unsure = false;
	lpi_damage_passed(&s.damage, &verdict);
	assert_int_equal(lpi_damage_cnt(&s.damage), 0);
	rest(&s);
	assert_int_equal(s.damage.cnt, 0);
	teardown(&s);
}

static void test_limit(void **state)
{
	(void)state;
	struct scene s;
	struct lpi_text text = {.bytes = NULL};
	setup(&s);
	for (uint32_t i = 0; i < LPI_DAMAGE_MAX + 5; i++)
		lpi_damage_note(&s.damage, ino_of(1000 + (i * 7919) % 2000), 0, -EUCLEAN);
	assert_int_equal(lpi_damage_cnt(&s.damage), LPI_DAMAGE_MAX);
	assert_true(lpi_damage_is_full(&s.damage));
	assert_int_equal(s.damage.beyond, 5);
	for (uint32_t i = 1; i < LPI_DAMAGE_MAX; i++)
		assert_true(s.damage.items[i - 1].ino.nr < s.damage.items[i].ino.nr);
	lpi_json_open(&text, NULL, '{');
	lpi_damage_json(&s.damage, ino_of(0), &text);
	assert_non_null(strstr(text.bytes, "\"more\": true"));
	assert_non_null(strstr(text.bytes, "\"full\": true"));
	lpi_text_fini(&text);
	rest(&s);
	end(&s);
	begin(&s);
	assert_int_equal(lpi_damage_cnt(&s.damage), LPI_DAMAGE_MAX);
	/* There are no such inodes. */
	look(&s, LPI_DAMAGE_MAX / 16 + 2);
	assert_int_equal(lpi_damage_cnt(&s.damage), 0);
	teardown(&s);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_once),  cmocka_unit_test(test_mended),
		cmocka_unit_test(test_whole), cmocka_unit_test(test_checks),
		cmocka_unit_test(test_limit),
	};
	return lp_test_main(tests, "daemon/report/damage");
}
