/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a shard that is being opened notices that a flush of its device has failed for somebody
 * else, who may be another shard that is opened at the same time: it trusts nothing that may be
 * lost with it (rule L7), and what was acknowledged is there when it is opened again.
 * Method: a log full of payloads and records, as a power cut left it, on devices that forget what a
 * failed flush was to cover; it is opened again and again, and each time another operation of the
 * opening has such a flush just before its end. And once two shards, of which one is opened within
 * the opening of the other. */
#include "store/shard/shard_rig_test.h"

#include "store/setup/mkfs.h"
#include "store/shard/shard_impl.h"

#define BLOCKS 24u
#define KEYS   40u
#define TURNS  300

static uint64_t blocks[BLOCKS];

static struct lp_bdev *new_device(bool through_flushes, uint32_t shard_cnt)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	profile.drops_on_failed_flush = true;
	profile.through_flushes = through_flushes;
	const struct lp_sim_options options = {
		.profile = &profile, .size_bytes = LP_RIG_SIZE_BYTES, .seed = 7};
	struct lp_bdev *bdev = NULL;
	struct lp_disk_label label;
	struct lp_label_why why;
	lp_test_ok(lp_bdev_open_sim(&options, &bdev));
	const struct lp_mkfs_options mkfs = {
		.bdev = {bdev}, .shard_cnt = shard_cnt, .log_bytes = LP_RIG_LOG_BYTES, .seed = {1}};
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
	lp_sim_trim_log(lp_sim_of(bdev));
	return bdev;
}

static int tag_of(uint32_t idx)
{
	return (int)(1 + idx);
}

/* All of it is durable, and none of it anywhere but in the log. */
static void fill(struct lpi_shard_rig *rig)
{
	for (uint32_t i = 0; i < BLOCKS; i++) {
		blocks[i] = lpi_shard_rig_take(rig);
		lpi_shard_rig_defer(rig, blocks[i], tag_of(i));
		if (i % 8 == 7)
			lpi_shard_rig_sync(rig);
	}
	for (uint64_t i = 1; i <= KEYS; i++)
		lpi_shard_rig_put(rig, i, i, 2000);
	lpi_shard_rig_sync(rig);
	assert_true(lp_pending_stats(lp_shard_pending(rig->shard))->versions > 0);
}

static void check(struct lpi_shard_rig *rig)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		assert_int_equal(lpi_shard_rig_tag(rig, blocks[i]), tag_of(i));
	for (uint64_t i = 1; i <= KEYS; i++)
		assert_true(lpi_shard_get(rig->shard, 'K', i) == i);
}

/* What a power cut after the last event leaves. */
static struct lp_bdev *cut(struct lp_bdev *bdev, uint64_t seed)
{
	const struct lp_sim *sim = lp_sim_of(bdev);
	struct lp_bdev *left = NULL;
	lp_test_ok(lp_sim_image_at(sim, lp_sim_event_count(sim) - 1, NULL, seed, &left));
	return left;
}

/* The power fails, and what is left is opened and looked at. */
static void check_after_cut(struct lp_bdev *bdev, uint64_t seed)
{
	struct lpi_shard_rig rig;
	lpi_shard_rig_init(&rig, cut(bdev, seed));
	lp_test_ok(lpi_shard_rig_open(&rig));
	check(&rig);
	lp_test_ok(lpi_shard_rig_close(&rig, false));
	lpi_shard_rig_fini(&rig);
}

/* False: there is no such operation. */
static bool disturb(struct lp_bdev *bdev, uint32_t skip, bool *ret_refused)
{
	struct lpi_shard_rig rig;
	const struct lp_sim_rule rule = {.fault = LP_SIM_FOREIGN, .skip_cnt = skip, .fire_cnt = 1};
	lpi_shard_rig_init(&rig, bdev);
	uint32_t number = lp_sim_rule_add(lp_sim_of(bdev), &rule);
	int err = lpi_shard_rig_open(&rig);
	bool is_struck = lp_sim_rule_fired(lp_sim_of(bdev), number) > 0;
	*ret_refused = err < 0;
	if (err == 0) {
		/* It does what it does of its own accord: the log is trimmed. */
		for (int i = 0; i < TURNS; i++)
			lpi_shard_rig_turn(&rig);
		check_after_cut(bdev, skip);
		/* As it goes on, or fails, when it is closed. */
		int ignored = lpi_shard_rig_close(&rig, false);
		(void)ignored;
	} else {
		assert_int_equal(err, -EIO);
		assert_true(is_struck);
		lp_sim_rules_clear(lp_sim_of(bdev));
		/* Nothing is wrong with the device when it is opened once more. */
		lp_test_ok(lpi_shard_rig_open(&rig));
		check(&rig);
		lp_test_ok(lpi_shard_rig_close(&rig, skip % 2 == 0));
	}
	check_after_cut(bdev, skip + 1);
	lpi_shard_rig_fini(&rig);
	return is_struck;
}

static void test_a_foreign_flush_fails(void **state)
{
	(void)state;
	for (int through = 0; through < 2; through++) {
		struct lpi_shard_rig rig;
		uint32_t refused_cnt = 0;
		uint32_t skip = 0;
		bool is_refused = false;
		lpi_shard_rig_init(&rig, new_device(through == 1, 1));
		lp_test_ok(lpi_shard_rig_open(&rig));
		fill(&rig);
		while (disturb(cut(rig.bdev, 1), skip, &is_refused)) {
			refused_cnt += is_refused ? 1 : 0;
			skip++;
		}
		assert_false(is_refused); /* an opening that nobody disturbed */
		assert_true(skip > 20);
		assert_true(refused_cnt > 5);
		lp_test_ok(lpi_shard_rig_close(&rig, true));
		lpi_shard_rig_fini(&rig);
	}
}

/* --- Two shards ------------------------------------------------------------------------------- */

/* Another shard of the device, which is opened in one of the turns of the first. */
struct other {
	struct lp_source source; /* of the first one's reactor */
	uint32_t turns;          /* until then */
	struct lpi_shard_rig *rig;
	struct lp_reactor *reactor;
	int result;
	bool is_done;
};

/* Its first flush fails. */
static uint32_t other_poll(struct lp_source *source, uint32_t budget)
{
	struct other *other = LP_CONTAINER_OF(source, struct other, source);
	struct lpi_shard_rig *rig = other->rig;
	struct lp_shard *shard = NULL;
	const struct lp_sim_rule rule = {
		.fault = LP_SIM_EIO, .opcode_mask = LP_SIM_OP(LP_BDEV_FLUSH), .fire_cnt = 1};
	const struct lp_shard_options options = {.reactor = other->reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->bufs,
						 .shard_idx = 1,
						 .sim_clock = &rig->clock.clock,
						 .index_cache_bytes = 1 << 20,
						 .index_buffer_bytes = 1 << 16,
						 .files_reserve_bytes = 1 << 20};
	(void)budget;
	if (other->is_done || other->turns-- > 0)
		return 0;
	other->is_done = true;
	(void)lp_sim_rule_add(lp_sim_of(rig->bdev), &rule);
	other->result = lp_shard_open(&options, &shard);
	return 1;
}

/* False: the first one has been opened in fewer turns. */
static bool open_two(struct lp_bdev *bdev, uint32_t turns, uint32_t *refused_cnt)
{
	struct lpi_shard_rig rig;
	struct other other = {.source = {.name = "other", .budget = 1, .poll = other_poll},
			      .turns = turns};
	lpi_shard_rig_init(&rig, bdev);
	const struct lp_reactor_options options = {.name = "other", .sim = &rig.clock};
	lp_test_ok(lp_reactor_new(&options, &other.reactor));
	lp_test_ok(lp_reactor_start(other.reactor));
	other.rig = &rig;
	lp_source_add(rig.reactor, &other.source);
	int err = lpi_shard_rig_open(&rig);
	lp_source_remove(rig.reactor, &other.source);
	assert_int_equal(other.result, other.is_done ? -EIO : 0);
	assert_true(err == 0 || (err == -EIO && other.is_done));
	*refused_cnt += err < 0 ? 1 : 0;
	if (err == 0) {
		for (int i = 0; i < TURNS; i++)
			lpi_shard_rig_turn(&rig);
		check_after_cut(bdev, turns);
		/* What it says follows from what it still had to do. */
		int ignored = lpi_shard_rig_close(&rig, false);
		(void)ignored;
	}
	check_after_cut(bdev, turns + 1);
	lp_reactor_free(other.reactor);
	lpi_shard_rig_fini(&rig);
	return other.is_done;
}

static void test_two_shards_at_once(void **state)
{
	(void)state;
	struct lpi_shard_rig rig;
	uint32_t refused_cnt = 0;
	uint32_t turns = 0;
	lpi_shard_rig_init(&rig, new_device(false, 2));
	lp_test_ok(lpi_shard_rig_open(&rig));
	fill(&rig);
	while (open_two(cut(rig.bdev, 1), turns, &refused_cnt))
		turns++;
	assert_true(turns > 10);
	assert_true(refused_cnt > 5);
	lp_test_ok(lpi_shard_rig_close(&rig, true));
	lpi_shard_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_foreign_flush_fails),
		cmocka_unit_test(test_two_shards_at_once),
	};
	return lp_test_main(tests, "store/shard/flush");
}
