/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a number that an inode had, also a removed one, is never given again: not by the same
 * store, nor after a restart, nor after a power cut at any moment (rule N5).
 * Method: inodes made of given numbers and of chosen ones, and removed, on a simulated device; the
 * power is cut at every n-th event, and what the store gives then is beyond all that an
 * acknowledged transaction had made until that event. */
#include "store/block/block_sim_test.h"

#define ROUNDS 12u
#define CUTS   (LP_ASSERT_SLOW_ON ? 20u : 80u)

struct made {
	uint64_t event; /* the acknowledgement */
	struct lp_ino ino;
};

static const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};

static void make(struct lpi_store_rig *rig, struct lp_ino ino)
{
	lp_test_ok(lpi_hand_change(&rig->hand, (struct lp_change){.type = LP_CHANGE_CREATE,
								  .ino = ino,
								  .inode = {.attrs = &attrs}}));
}

static void make_and_remove(struct lpi_store_rig *rig, struct lp_ino ino)
{
	make(rig, ino);
	lp_test_ok(lpi_hand_change(&rig->hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino}));
}

static void test_restarts(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_ino last = {0};
	lpi_store_rig_start(&rig, 1);
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < 3; i++) {
			struct lp_ino ino = lp_store_new_ino(rig.hand.store);
			assert_true(ino.nr > last.nr);
			make_and_remove(&rig, ino);
			last = ino;
		}
		/* Nor is one that was taken without asking, near or far. */
		last.nr += round % 2 == 0 ? 5 : 200000;
		make_and_remove(&rig, last);
		assert_true(lp_store_new_ino(rig.hand.store).nr > last.nr);
		if (round % 3 == 2)
			continue;
		int err = lpi_store_rig_close(&rig, round % 3 == 1);
		assert_true(err == 0 || round % 3 == 1);
		lp_test_ok(lpi_store_rig_open(&rig));
	}
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

static void judge(struct lp_bdev *left, const struct made *made, unsigned cnt, uint64_t event)
{
	struct lpi_store_rig rig;
	lpi_store_rig_init(&rig, left, 1);
	lp_test_ok(lpi_store_rig_open(&rig));
	struct lp_ino next = lp_store_new_ino(rig.hand.store);
	for (unsigned i = 0; i < cnt; i++)
		assert_true(made[i].event > event || made[i].ino.nr < next.nr);
	make(&rig, next);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

static void test_cuts(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_sim_cutter *cutter = NULL;
	struct made made[ROUNDS];
	lpi_store_rig_start(&rig, 1);
	for (unsigned i = 0; i < ROUNDS; i++) {
		made[i].ino = lp_store_new_ino(rig.hand.store);
		made[i].ino.nr += i * UINT64_C(30000); /* beyond the bound now and then */
		make_and_remove(&rig, made[i].ino);
		made[i].event = lp_sim_event_count(lp_sim_of(rig.bdev));
	}
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(rig.bdev), NULL, &cutter));
	uint64_t step = 1 + lp_sim_event_count(lp_sim_of(rig.bdev)) / CUTS;
	for (uint64_t n = 0; lp_sim_cutter_next(cutter); n++) {
		if (n % step == 0)
			judge(lp_sim_cutter_cut(cutter, n), made, ROUNDS,
			      lp_sim_cutter_event(cutter));
	}
	lp_sim_cutter_free(cutter);
	(void)lpi_store_rig_close(&rig, true); /* abandoned: has no result */
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_restarts),
		cmocka_unit_test(test_cuts),
	};
	return lp_test_main(tests, "store/block/core/ino_reuse");
}
