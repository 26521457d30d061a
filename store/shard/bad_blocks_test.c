/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a shard some of whose blocks cannot be written goes on: what belongs there is read, now and
 * after any crash, the log is trimmed, nobody else gets the blocks, and a block that can be written
 * again is used again; a device with many of them is not trusted (rule L6).
 * Method: a simulated device that refuses the writes to some blocks, for a time or for good. */
#include "store/shard/shard_rig_test.h"

#include "store/shard/shard_impl.h"

#define FEW 6u

/* The shard, and blocks of which the odd ones cannot be written. */
struct scene {
	struct lpi_shard_rig rig;
	uint64_t first;
	int tags[FEW];
};

/* Also of the device that a cut left. */
static void spoil(struct lpi_shard_rig *rig, uint64_t first, uint64_t cnt)
{
	for (uint64_t i = 1; i < cnt; i += 2) {
		const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
						 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE),
						 .offset_bytes = (first + i) * LP_BLOCK_BYTES,
						 .length_bytes = LP_BLOCK_BYTES};
		(void)lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
	}
}

static void start(struct scene *scene, uint64_t seed)
{
	lpi_shard_rig_init(&scene->rig, lpi_shard_rig_store(seed));
	lp_test_ok(lpi_shard_rig_open(&scene->rig));
	scene->first = lpi_shard_rig_take_run(&scene->rig, FEW);
	lpi_shard_rig_sync(&scene->rig);
	spoil(&scene->rig, scene->first, FEW);
}

static void write_all(struct scene *scene, int tag)
{
	for (uint32_t i = 0; i < FEW; i++) {
		scene->tags[i] = tag + (int)i;
		lpi_shard_rig_defer(&scene->rig, scene->first + i, scene->tags[i]);
	}
	lpi_shard_rig_sync(&scene->rig);
}

static void expect_all(struct scene *scene)
{
	for (uint32_t i = 0; i < FEW; i++)
		assert_int_equal(lpi_shard_rig_tag(&scene->rig, scene->first + i), scene->tags[i]);
}

static const struct lp_pending_stats *pending_of(const struct scene *scene)
{
	return lp_pending_stats(lp_shard_pending(scene->rig.shard));
}

static uint64_t records_of(const struct scene *scene)
{
	return lp_deferrals_stats(lp_shard_deferrals(scene->rig.shard))->records;
}

/* What can be written is in its place, and the rest is where it stays. */
static void wait_settled(struct scene *scene)
{
	const struct lp_pending_stats *stats = pending_of(scene);
	for (int i = 0; i < 100000 && stats->versions > stats->settled; i++)
		lpi_shard_rig_turn(&scene->rig);
	assert_int_equal(stats->versions, stats->settled);
	assert_int_equal(stats->stuck, 0);
}

static void reopen(struct scene *scene, bool abandon)
{
	lp_test_ok(lpi_shard_rig_close(&scene->rig, abandon));
	lp_test_ok(lpi_shard_rig_open(&scene->rig));
}

static void finish(struct scene *scene)
{
	lp_test_ok(lpi_shard_rig_close(&scene->rig, false));
	lpi_shard_rig_fini(&scene->rig);
}

/* It moves into the index; the shard closes, and opens, and the log has not to keep it. */
static void test_moves(void **state)
{
	(void)state;
	for (uint32_t abandon = 0; abandon < 2; abandon++) {
		struct scene scene;
		start(&scene, 1);
		write_all(&scene, 10);
		wait_settled(&scene);
		assert_int_equal(lp_shard_bad_blocks(scene.rig.shard), FEW / 2);
		assert_int_equal(pending_of(&scene)->settled, FEW / 2);
		assert_int_equal(lp_pending_oldest_seq(lp_shard_pending(scene.rig.shard)),
				 UINT64_MAX);
		expect_all(&scene);
		for (int i = 0; i < 3; i++) {
			reopen(&scene, abandon != 0);
			expect_all(&scene);
			assert_int_equal(lp_shard_bad_blocks(scene.rig.shard), FEW / 2);
			assert_int_equal(records_of(&scene), FEW / 2);
		}
		scene.rig.read_only = true;
		reopen(&scene, false);
		expect_all(&scene);
		scene.rig.read_only = false;
		reopen(&scene, false);
		/* The log goes round: nothing holds it. */
		for (uint64_t i = 1; i <= 300; i++) {
			lpi_shard_rig_put(&scene.rig, i % 10, i, 60000);
			lpi_shard_rig_sync(&scene.rig);
		}
		expect_all(&scene);
		lp_test_ok(lp_shard_error(scene.rig.shard));
		finish(&scene);
	}
}

/* Killed at the worst time: the payloads are in the log only, and the opening cannot take them to
 * their place. */
static void test_opening_cannot_write(void **state)
{
	(void)state;
	for (uint32_t kind = 0; kind < LP_DEFERRED_STORE_CNT; kind++) {
		struct scene scene;
		start(&scene, 2);
		lp_shard_set_deferred_store(scene.rig.shard, (enum lp_deferred_store)kind);
		write_all(&scene, 20);
		lp_test_ok(lpi_shard_rig_close(&scene.rig, true));
		lp_test_ok(lpi_shard_rig_open(&scene.rig));
		assert_int_equal(lp_shard_bad_blocks(scene.rig.shard), FEW / 2);
		expect_all(&scene);
		wait_settled(&scene);
		lpi_shard_rig_sync(&scene.rig);
		assert_int_equal(lp_pending_oldest_seq(lp_shard_pending(scene.rig.shard)),
				 UINT64_MAX);
		assert_int_equal(pending_of(&scene)->settled, FEW / 2);
		reopen(&scene, true);
		expect_all(&scene);
		finish(&scene);
	}
}

/* The device mends the block: the next opening writes it, and then it is one like others. */
static void test_mended(void **state)
{
	(void)state;
	struct scene scene;
	start(&scene, 3);
	write_all(&scene, 30);
	wait_settled(&scene);
	lp_sim_rules_clear(lp_sim_of(scene.rig.bdev));
	reopen(&scene, true);
	assert_int_equal(lp_shard_bad_blocks(scene.rig.shard), 0);
	assert_int_equal(pending_of(&scene)->versions, 0);
	for (uint32_t i = 0; i < FEW; i++)
		assert_int_equal(lpi_bench_peek(scene.rig.bdev, scene.first + i), 30 + (int)i);
	for (int i = 0; i < 1000 && records_of(&scene) > 0; i++)
		lpi_shard_rig_turn(&scene.rig);
	assert_int_equal(records_of(&scene), 0);
	finish(&scene);
}

/* Each overwrite of a bad block comes to its place, or into the index, in its turn; also while the
 * one before it is on its way there. */
static void test_overwritten(void **state)
{
	(void)state;
	struct scene scene;
	struct lp_prng prng;
	start(&scene, 4);
	lp_prng_init(&prng, 4);
	for (int round = 0; round < 60; round++) {
		write_all(&scene, 1 + round);
		for (uint64_t n = lp_prng_below(&prng, 40); n > 0; n--)
			lpi_shard_rig_turn(&scene.rig);
		expect_all(&scene);
		if (round % 7 == 6) {
			reopen(&scene, round % 2 == 0);
			expect_all(&scene);
		}
	}
	wait_settled(&scene);
	assert_int_equal(lp_shard_bad_blocks(scene.rig.shard), FEW / 2);
	assert_int_equal(records_of(&scene), FEW / 2);
	finish(&scene);
}

static void free_all(struct scene *scene)
{
	const struct lp_commit_need need = {.change_cnt = 1};
	lpi_shard_rig_reserve(&scene->rig, &need);
	lp_shard_freed(scene->rig.shard, (struct lp_extent){scene->first, FEW});
	lpi_shard_rig_sync(&scene->rig);
}

static bool takes_bad(struct scene *scene, uint64_t block)
{
	return block - scene->first < FEW && (block - scene->first) % 2 == 1;
}

/* Freed, a bad block gets no other owner, now and after openings; the others do. */
static void test_freed(void **state)
{
	(void)state;
	struct scene scene;
	start(&scene, 5);
	write_all(&scene, 50);
	wait_settled(&scene);
	free_all(&scene);
	assert_int_equal(pending_of(&scene)->versions, 0);
	for (int i = 0; i < 100; i++)
		lpi_shard_rig_turn(&scene.rig);
	for (int i = 0; i < 2; i++) {
		const struct lp_space *space = lp_shard_space(scene.rig.shard);
		assert_true(lp_space_is_unused(space, (struct lp_extent){scene.first, FEW}));
		assert_int_equal(lp_space_waiting_blocks(space), FEW / 2);
		assert_int_equal(records_of(&scene), FEW / 2);
		reopen(&scene, i == 0);
	}
	uint32_t good = 0;
	for (uint32_t i = 0; i < 3000; i++) {
		uint64_t block = lpi_shard_rig_take(&scene.rig);
		assert_false(takes_bad(&scene, block));
		good += block - scene.first < FEW;
	}
	assert_int_equal(good, FEW / 2);
	lpi_shard_rig_sync(&scene.rig);
	/* Mended, they are free again. */
	lp_sim_rules_clear(lp_sim_of(scene.rig.bdev));
	reopen(&scene, false);
	for (int i = 0; i < 1000 && records_of(&scene) > 0; i++)
		lpi_shard_rig_turn(&scene.rig);
	assert_int_equal(lp_space_waiting_blocks(lp_shard_space(scene.rig.shard)), 0);
	finish(&scene);
}

/* An overwrite has deleted the record, and is not known to be in a bad place yet, when the block is
 * freed: it gets no other owner all the same. */
static void test_freed_while_overwritten(void **state)
{
	(void)state;
	struct scene scene;
	start(&scene, 8);
	write_all(&scene, 80);
	wait_settled(&scene);
	write_all(&scene, 90);
	assert_true(pending_of(&scene)->settled == 0);
	free_all(&scene);
	for (int i = 0; i < 1000; i++)
		lpi_shard_rig_turn(&scene.rig);
	assert_int_equal(records_of(&scene), 0);
	assert_int_equal(lp_space_waiting_blocks(lp_shard_space(scene.rig.shard)), FEW / 2);
	finish(&scene);
}

/* The power fails at any event of all this; the device that is left refuses the same writes, or
 * none. */
static void test_any_cut(void **state)
{
	(void)state;
	struct scene scene;
	start(&scene, 6);
	uint64_t from = lp_sim_event_count(lp_sim_of(scene.rig.bdev));
	write_all(&scene, 60);
	uint64_t acknowledged = lp_sim_event_count(lp_sim_of(scene.rig.bdev));
	wait_settled(&scene);
	lp_test_ok(lp_kv_flush_wait(lp_shard_kv(scene.rig.shard)));
	for (int i = 0; i < 100; i++)
		lpi_shard_rig_turn(&scene.rig);
	uint64_t end = lp_sim_event_count(lp_sim_of(scene.rig.bdev));
	assert_true(end > acknowledged + 20);
	uint64_t step = LP_MAX((end - from) / (LP_ASSERT_SLOW_ON ? 12 : 60), 1);
	for (uint64_t at = acknowledged; at < end; at += step) {
		struct scene left = scene;
		struct lp_bdev *bdev = NULL;
		lp_test_ok(lp_sim_image_at(lp_sim_of(scene.rig.bdev), at - 1, NULL, at, &bdev));
		lpi_shard_rig_init(&left.rig, bdev);
		if (at % 3 != 0)
			spoil(&left.rig, scene.first, FEW);
		lp_test_ok(lpi_shard_rig_open(&left.rig));
		expect_all(&left);
		wait_settled(&left);
		expect_all(&left);
		reopen(&left, at % 2 == 0);
		expect_all(&left);
		finish(&left);
	}
	finish(&scene);
}

#define MANY 60u

/* So many blocks in a row, every other of which cannot be written, and payloads for all of them,
 * with tags from 100 on; bad_max 0: the default. */
static void begin_many(struct scene *scene, uint64_t seed, uint32_t bad_max)
{
	lpi_shard_rig_init(&scene->rig, lpi_shard_rig_store(seed));
	scene->rig.bad_max = bad_max;
	lp_test_ok(lpi_shard_rig_open(&scene->rig));
	scene->first = lpi_shard_rig_take_run(&scene->rig, MANY);
	lpi_shard_rig_sync(&scene->rig);
	spoil(&scene->rig, scene->first, MANY);
	for (uint32_t i = 0; i < MANY; i++)
		lpi_shard_rig_defer(&scene->rig, scene->first + i, 100 + (int)i);
	lpi_shard_rig_sync(&scene->rig);
}

static void expect_many(struct scene *scene, int tag)
{
	for (uint32_t i = 0; i < MANY; i++)
		assert_int_equal(lpi_shard_rig_tag(&scene->rig, scene->first + i), tag + (int)i);
}

/* Too many of them: read-only, and all is read. */
static void test_too_many(void **state)
{
	(void)state;
	struct scene scene;
	begin_many(&scene, 7, MANY / 4);
	for (int i = 0; i < 100000 && lp_shard_error(scene.rig.shard) == 0; i++)
		lpi_shard_rig_turn(&scene.rig);
	assert_int_equal(lp_shard_error(scene.rig.shard), -EIO);
	assert_non_null(
		strstr(lp_shard_reason(scene.rig.shard), "deferred data cannot be written"));
	lp_test_ok(lpi_shard_rig_close(&scene.rig, true));
	lp_test_err(-EIO, lpi_shard_rig_open(&scene.rig));
	scene.rig.read_only = true;
	lp_test_ok(lpi_shard_rig_open(&scene.rig));
	expect_many(&scene, 100);
	finish(&scene);
}

/* The memory is made smaller than what those take that there are: it opens, and all of it is read,
 * overwritten, and written elsewhere as ever; also when it dies before they are in the index. */
static void test_less_memory(void **state)
{
	(void)state;
	for (uint32_t abandon = 0; abandon < 2; abandon++) {
		struct scene scene;
		begin_many(&scene, 9, 0);
		if (abandon == 0)
			wait_settled(&scene);
		scene.rig.deferred_max = 8;
		for (int tag = 101; tag < 104; tag++) {
			reopen(&scene, abandon != 0);
			assert_int_equal(lp_shard_bad_blocks(scene.rig.shard), MANY / 2);
			expect_many(&scene, tag - 1);
			for (uint32_t i = 0; i < MANY; i++) {
				while (lp_shard_defer_room(scene.rig.shard) == 0)
					lpi_shard_rig_turn(&scene.rig);
				lpi_shard_rig_defer(&scene.rig, scene.first + i, tag + (int)i);
				lpi_shard_rig_sync(&scene.rig);
			}
		}
		lp_test_ok(lp_shard_error(scene.rig.shard));
		finish(&scene);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_moves),       cmocka_unit_test(test_opening_cannot_write),
		cmocka_unit_test(test_mended),      cmocka_unit_test(test_overwritten),
		cmocka_unit_test(test_freed),       cmocka_unit_test(test_any_cut),
		cmocka_unit_test(test_too_many),    cmocka_unit_test(test_freed_while_overwritten),
		cmocka_unit_test(test_less_memory),
	};
	return lp_test_main(tests, "store/shard/bad_blocks");
}
