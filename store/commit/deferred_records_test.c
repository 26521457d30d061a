/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: deferred payloads that the index keeps (deferred_store=kv) are acknowledged after one
 * device write, are found at an opening whatever it is told, win over older payloads in the log and
 * lose to newer ones, are never written over another owner's data, and are gone when they are in
 * their place (rules L3, S3, S4, S6; design 5.7). Method: a block store on a simulated device. One
 * block after the other of a file is written, each with a number of its own; the power is cut at
 * many events, and each block must then have the number that was acknowledged last, or a later one.
 */
#include "store/block/block_sim_test.h"

#include "store/block/core/block.h"

#define BLOCKS     24u
#define WRITES_MAX 400u
#define CUTS       (LP_ASSERT_SLOW_ON ? 16u : 60u)

struct written {
	uint32_t block;
	uint64_t submitted; /* events of the device by then */
	uint64_t acknowledged;
};

struct scene {
	struct lpi_store_rig rig;
	struct lp_ino ino;
	uint32_t cnt;
	struct written writes[WRITES_MAX]; /* [n]: what wrote number n + 1 */
};

static uint64_t events_of(const struct scene *scene)
{
	return lp_sim_event_count(lp_sim_of(scene->rig.bdev));
}

static struct lpi_block *block_of(const struct scene *scene)
{
	return lpi_block_of(scene->rig.hand.store);
}

static uint64_t records_of(const struct scene *scene)
{
	return lp_deferrals_stats(lp_shard_deferrals(block_of(scene)->shard))->records;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static void write_number(struct scene *scene, uint32_t block)
{
	static uint8_t bytes[LP_BLOCK_BYTES];
	assert_true(scene->cnt < WRITES_MAX);
	struct written *written = &scene->writes[scene->cnt++];
	written->block = block;
	written->submitted = events_of(scene);
	memset(bytes, 0, sizeof(bytes));
	lp_put_le32(bytes + 8, scene->cnt);
	lp_put_le32(bytes + 4000, scene->cnt);
	lp_test_ok(lpi_hand_write(&scene->rig.hand, scene->ino, block * LP_BLOCK_BYTES, bytes,
				  sizeof(bytes)));
	written->acknowledged = events_of(scene);
}

static void defer_by(struct scene *scene, enum lp_deferred_store kind)
{
	lp_store_set_write_path(scene->rig.hand.store, LP_PATH_DEFERRED);
	lp_store_set_deferred_store(scene->rig.hand.store, kind);
}

static void turn_until_settled(struct scene *scene)
{
	const struct lpi_block *block = block_of(scene);
	for (uint32_t i = 0; lp_pending_stats(block->pending)->versions > 0 ||
			     records_of(scene) > 0 || !lp_commit_is_idle(block->commit);
	     i++) {
		assert_true(i < 100000);
		lpi_hand_turn(&scene->rig.hand);
	}
}

/* A file whose blocks are all in their place. */
static void scene_init(struct scene *scene, uint64_t seed)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0644, .nlink = 1};
	memset(scene, 0, sizeof(*scene));
	lpi_store_rig_start(&scene->rig, seed);
	scene->ino = lp_store_new_ino(scene->rig.hand.store);
	const struct lp_change create = {
		.type = LP_CHANGE_CREATE, .ino = scene->ino, .inode = {.attrs = &attrs}};
	lp_test_ok(lpi_hand_change(&scene->rig.hand, create));
	lp_store_set_write_path(scene->rig.hand.store, LP_PATH_DIRECT);
	for (uint32_t i = 0; i < BLOCKS; i++)
		write_number(scene, i);
	turn_until_settled(scene);
}

static void scene_fini(struct scene *scene)
{
	lp_test_ok(lpi_store_rig_close(&scene->rig, false));
	lpi_store_rig_fini(&scene->rig);
}

static void reopen(struct scene *scene, bool abandon, enum lp_deferred_store kind)
{
	int err = lpi_store_rig_close(&scene->rig, abandon);
	assert_true(err == 0 || abandon);
	scene->rig.deferred_store = kind;
	lp_test_ok(lpi_store_rig_open(&scene->rig));
}

/* --- Judging ---------------------------------------------------------------------------------- */

/* 0: zeros. */
static uint32_t number_in(const struct lpi_hand *hand, struct lp_ino ino, uint32_t block)
{
	static uint8_t bytes[LP_BLOCK_BYTES];
	int64_t len = lpi_hand_read(hand, ino, block * LP_BLOCK_BYTES, sizeof(bytes), bytes);
	if (len < 0 && lp_corruption_find(0) != NULL)
		print_error("%s\n", lp_corruption_find(0)->what);
	assert_true(len == LP_BLOCK_BYTES || len == 0);
	uint32_t number = len == 0 ? 0 : lp_get_le32(bytes + 8);
	assert_int_equal(number, len == 0 ? 0 : lp_get_le32(bytes + 4000));
	return number;
}

static void judge_block(const struct scene *scene, const struct lpi_hand *hand, uint32_t block,
			uint64_t at)
{
	uint32_t number = number_in(hand, scene->ino, block);
	uint32_t least = 0;
	for (uint32_t i = 0; i < scene->cnt; i++) {
		if (scene->writes[i].block == block && scene->writes[i].acknowledged <= at)
			least = i + 1;
	}
	if (number < least)
		print_error("cut after event %llu: block %u has number %u, not %u\n",
			    (unsigned long long)at, block, number, least);
	assert_true(number >= least && number <= scene->cnt);
	assert_true(number == 0 || (scene->writes[number - 1].block == block &&
				    scene->writes[number - 1].submitted <= at));
}

static void judge_all(const struct scene *scene, const struct lpi_hand *hand, uint64_t at)
{
	for (uint32_t i = 0; i < BLOCKS; i++)
		judge_block(scene, hand, i, at);
}

/* A store from what was left: right, checked, and right again when it is opened once more. Returns
 * how many records the first opening wrote to their place. */
static uint64_t judge_cut(const struct scene *scene, struct lp_bdev *left, uint64_t at,
			  uint64_t seed)
{
	struct lpi_store_rig rig;
	lpi_store_rig_init(&rig, left, seed);
	lpi_store_rig_check(&rig); /* read-only */
	lp_test_ok(lpi_store_rig_open(&rig));
	const struct lp_shard_recovery *recovery =
		lp_shard_recovery(lpi_block_of(rig.hand.store)->shard);
	uint64_t records = recovery->records;
	judge_all(scene, &rig.hand, at);
	int err = lpi_store_rig_close(&rig, seed % 3 != 0);
	assert_true(err == 0 || seed % 3 != 0);
	lpi_store_rig_check(&rig);
	rig.deferred_store = LP_DEFERRED_STORE_CNT - 1 - (int)rig.deferred_store;
	lp_test_ok(lpi_store_rig_open(&rig));
	judge_all(scene, &rig.hand, at);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
	return records;
}

/* At many events from `from` on. Returns how many cuts left records to be written. */
static uint64_t cut_everywhere(struct scene *scene, uint64_t from, uint64_t cuts)
{
	struct lp_sim_cutter *cutter = NULL;
	uint64_t step = 1 + (events_of(scene) - from) / cuts;
	uint64_t with_records = 0;
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(scene->rig.bdev), NULL, &cutter));
	while (lp_sim_cutter_next(cutter)) {
		uint64_t at = lp_sim_cutter_event(cutter);
		if (at >= from && (at - from) % step == 0)
			with_records += judge_cut(scene, lp_sim_cutter_cut(cutter, at), at, at) > 0;
	}
	lp_sim_cutter_free(cutter);
	return with_records;
}

/* --- Tests ------------------------------------------------------------------------------------ */

static void test_one_write_each_and_then_gone(void **state)
{
	(void)state;
	static struct scene scene;
	struct lp_store_stats before;
	struct lp_store_stats after;
	scene_init(&scene, 1);
	defer_by(&scene, LP_DEFERRED_KV);
	lp_store_read_stats(scene.rig.hand.store, &before);
	for (uint32_t i = 0; i < 8; i++)
		write_number(&scene, i % 4);
	lp_store_read_stats(scene.rig.hand.store, &after);
	assert_int_equal(after.log_writes - before.log_writes, 8);
	assert_int_equal(after.data_writes - before.data_writes, 0);
	assert_int_equal(after.deferred_records - before.deferred_records, 8);
	/* Readers see them; rewritten blocks are one record. */
	judge_all(&scene, &scene.rig.hand, events_of(&scene));
	assert_int_equal(records_of(&scene), 4);
	turn_until_settled(&scene);
	lp_store_read_stats(scene.rig.hand.store, &after);
	assert_int_equal(after.data_bytes - before.data_bytes, 4 * LP_BLOCK_BYTES);
	reopen(&scene, true, LP_DEFERRED_LOG); /* nothing comes back */
	assert_int_equal(lp_shard_recovery(block_of(&scene)->shard)->records, 0);
	judge_all(&scene, &scene.rig.hand, events_of(&scene));
	/* A clean end leaves none, though it does not wait by itself. */
	defer_by(&scene, LP_DEFERRED_KV);
	write_number(&scene, 5);
	assert_int_equal(records_of(&scene), 1);
	reopen(&scene, false, LP_DEFERRED_KV);
	assert_int_equal(lp_deferrals_stats(lp_shard_deferrals(block_of(&scene)->shard))->found, 0);
	judge_all(&scene, &scene.rig.hand, events_of(&scene));
	scene_fini(&scene);
}

/* Both kinds wait at once, each newer than the other somewhere, and some in turn. */
static void test_cuts_with_both_kinds(void **state)
{
	(void)state;
	static struct scene scene;
	struct lp_prng prng;
	scene_init(&scene, 2);
	lp_prng_init(&prng, 7);
	uint64_t from = events_of(&scene);
	for (uint32_t i = 0; i < 120; i++) {
		if (i % 5 == 0)
			defer_by(&scene, (enum lp_deferred_store)lp_prng_below(&prng, 2));
		write_number(&scene, (uint32_t)lp_prng_below(&prng, 8));
		if (i % 40 == 39)
			turn_until_settled(&scene);
		for (uint32_t n = 0; i % 10 == 9 && n < 30; n++)
			lpi_hand_turn(&scene.rig.hand);
	}
	assert_true(cut_everywhere(&scene, from, CUTS) > CUTS / 4);
	scene_fini(&scene);
}

/* A record goes when its block is in its place and flushed, not before: blocks that are no
 * neighbours take their time each (rule L3). */
static void test_deleted_after_the_flush(void **state)
{
	(void)state;
	static struct scene scene;
	scene_init(&scene, 4);
	defer_by(&scene, LP_DEFERRED_KV);
	for (uint32_t i = 0; i < BLOCKS; i += 2)
		write_number(&scene, i);
	uint64_t from = events_of(&scene);
	turn_until_settled(&scene);
	assert_true(cut_everywhere(&scene, from, UINT64_C(2) * CUTS) > 0);
	scene_fini(&scene);
}

/* The log still has the older payload when the newer one's record is gone. */
static void test_record_outlived_by_an_older_payload(void **state)
{
	(void)state;
	static struct scene scene;
	scene_init(&scene, 3);
	for (uint32_t i = 0; i < 2; i++) {
		defer_by(&scene, LP_DEFERRED_LOG);
		write_number(&scene, 3);
		defer_by(&scene, LP_DEFERRED_KV);
		write_number(&scene, 3);
		turn_until_settled(&scene);
		if (i == 0) /* and the other way round: the record is the older one */
			defer_by(&scene, LP_DEFERRED_LOG);
		if (i == 0)
			write_number(&scene, 3);
		reopen(&scene, true, LP_DEFERRED_KV);
		judge_all(&scene, &scene.rig.hand, events_of(&scene));
	}
	scene_fini(&scene);
}

/* The blocks of records are freed and taken again by what writes to them directly. */
static void test_freed_blocks_have_no_record(void **state)
{
	(void)state;
	static struct scene scene;
	scene_init(&scene, 4);
	uint64_t from = events_of(&scene);
	const struct lp_space *space = block_of(&scene)->space;
	for (uint32_t round = 0; round < 6; round++) {
		defer_by(&scene, LP_DEFERRED_KV);
		for (uint32_t i = 0; i < 6; i++)
			write_number(&scene, i);
		/* Each of these frees the block of the one before. */
		lp_store_set_write_path(scene.rig.hand.store, LP_PATH_DIRECT);
		for (uint32_t i = 0; i < 6; i++)
			write_number(&scene, i);
		for (uint32_t n = 0; lp_space_waiting_blocks(space) > 0; n++) {
			assert_true(n < 10000);
			lpi_hand_turn(&scene.rig.hand);
		}
		for (uint32_t i = 0; i < 6; i++)
			write_number(&scene, 5 - i);
	}
	(void)cut_everywhere(&scene, from, CUTS);
	scene_fini(&scene);
}

/* More than the table is made for, when the limit is lowered; both kinds of opening bear it. */
static void test_many_records_at_an_opening(void **state)
{
	(void)state;
	static struct scene scene;
	static uint8_t bytes[40 * LP_BLOCK_BYTES];
	scene_init(&scene, 2);
	lp_store_set_write_path(scene.rig.hand.store, LP_PATH_DIRECT);
	const uint64_t at = UINT64_C(1) << 20;
	for (uint32_t i = 0; i < 6; i++)
		lp_test_ok(lpi_hand_write(&scene.rig.hand, scene.ino, at + i * sizeof(bytes), bytes,
					  sizeof(bytes)));
	defer_by(&scene, LP_DEFERRED_KV);
	memset(bytes, 7, sizeof(bytes));
	for (uint32_t i = 0; i < 240; i++)
		lp_test_ok(lpi_hand_write(&scene.rig.hand, scene.ino, at + i * LP_BLOCK_BYTES,
					  bytes, LP_BLOCK_BYTES));
	lp_test_ok(lpi_store_rig_close(&scene.rig, true));
	lpi_store_rig_check(&scene.rig);
	scene.rig.deferred_blocks_max = 8;
	lp_test_ok(lpi_store_rig_open(&scene.rig));
	assert_true(lp_shard_recovery(block_of(&scene)->shard)->records > 8);
	for (uint32_t i = 0; i < 240; i++) {
		memset(bytes, 0, LP_BLOCK_BYTES);
		assert_int_equal(lpi_hand_read(&scene.rig.hand, scene.ino, at + i * LP_BLOCK_BYTES,
					       LP_BLOCK_BYTES, bytes),
				 LP_BLOCK_BYTES);
		assert_int_equal(bytes[i], 7);
	}
	turn_until_settled(&scene);
	scene_fini(&scene);
}

/* A record that is damaged is no less than a damaged frame: the store is not opened for writing,
 * and still read. */
static void test_damaged_record(void **state)
{
	(void)state;
	static struct scene scene;
	struct lp_key key;
	scene_init(&scene, 2);
	struct lp_commit *commit = block_of(&scene)->commit;
	const struct lp_commit_need need = {.batch_bytes = 1000};
	lp_key_of_number(&key, LP_KEY_SPACE_DEFERRED, 77);
	assert_true(lp_commit_reserve(commit, &need));
	lp_commit_put_owned(commit, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){"spoilt", 6});
	while (!lp_commit_is_idle(commit))
		lpi_hand_turn(&scene.rig.hand);
	lp_test_ok(lpi_store_rig_close(&scene.rig, false));
	assert_int_equal(lpi_store_rig_open(&scene.rig), -EUCLEAN);
	lp_devices_close(&scene.rig.devices);
	lpi_store_rig_fini(&scene.rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_write_each_and_then_gone),
		cmocka_unit_test(test_cuts_with_both_kinds),
		cmocka_unit_test(test_deleted_after_the_flush),
		cmocka_unit_test(test_record_outlived_by_an_older_payload),
		cmocka_unit_test(test_freed_blocks_have_no_record),
		cmocka_unit_test(test_many_records_at_an_opening),
		cmocka_unit_test(test_damaged_record),
	};
	return lp_test_main(tests, "store/commit/deferred_records");
}
