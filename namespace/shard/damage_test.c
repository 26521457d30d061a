/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a damaged record is an error only of operations that ask for it. A change over several
 * shards that meets one is refused before it is decided (rule N1), and a start leaves an unreadable
 * record to a check. Method: shards on a simulated device, with one wrong record in the index at a
 * time. */
#include "namespace/shard/ns_sim_test.h"
#include "store/block/write/txn.h"

#define DIR_SHARD 1u

static const struct lp_ino root = {1};

struct world {
	struct lpi_ns_sim *sim;
	struct lp_ino dir;  /* /a, on its shard */
	struct lp_ino sub;  /* /d, on another one, empty */
	struct lp_ino file; /* /f, on shard 0 */
};

/* --- The world -------------------------------------------------------------------------------- */

static int make(struct world *world, struct lp_ino dir, const char *name, uint8_t type,
		struct lp_ino *ret_ino)
{
	struct lp_ns_op op = {.opcode = LP_NS_MAKE};
	op.make.dir = dir;
	op.make.name = lpi_ns_sim_bytes(name);
	op.make.type = type;
	op.make.mode = 0755;
	int r = lpi_ns_sim_do(world->sim, &op);
	if (ret_ino != NULL)
		*ret_ino = op.make.found.ino;
	return r;
}

static int rename_to(struct world *world, const char *name, struct lp_ino to_dir)
{
	struct lp_ns_op op = {.opcode = LP_NS_RENAME};
	op.rename.dir = root;
	op.rename.name = lpi_ns_sim_bytes(name);
	op.rename.to_dir = to_dir;
	op.rename.to_name = lpi_ns_sim_bytes("new");
	return lpi_ns_sim_do(world->sim, &op);
}

/* Directories go round the shards. */
static void make_dir_on(struct world *world, const char *name, bool is_there, struct lp_ino *ret)
{
	for (uint32_t i = 0; i <= LPI_NS_SIM_SHARDS; i++) {
		struct lp_ns_op op = {.opcode = LP_NS_REMOVE};
		lp_test_ok(make(world, root, name, LP_INODE_TYPE_DIR, ret));
		uint32_t shard_idx = lp_ino_shard(*ret);
		if (is_there ? shard_idx == DIR_SHARD : shard_idx > DIR_SHARD)
			return;
		op.remove.dir = root;
		op.remove.name = lpi_ns_sim_bytes(name);
		op.remove.is_dir = true;
		lp_test_ok(lpi_ns_sim_do(world->sim, &op));
	}
	fail();
}

static void world_begin(struct world *world)
{
	*world = (struct world){.sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(31))};
	lp_test_ok(lpi_ns_sim_start(world->sim));
	make_dir_on(world, "a", true, &world->dir);
	make_dir_on(world, "d", false, &world->sub);
	lp_test_ok(make(world, root, "f", LP_INODE_TYPE_FILE, &world->file));
	lp_test_ok(make(world, world->dir, "g", LP_INODE_TYPE_FILE, NULL));
}

static void world_close(struct world *world)
{
	lpi_ns_sim_stop(world->sim);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
}

static void world_end(struct world *world)
{
	world_close(world);
	lpi_ns_sim_fini(world->sim);
	free(world->sim);
}

/* The namespace is closed and nothing is in memory. */
static void put_record(struct world *world, uint32_t shard_idx, const struct lp_key *key,
		       struct lp_kv_bytes value)
{
	const struct lpi_hand *hand = &world->sim->hand[shard_idx];
	const struct lp_commit_need need = {.batch_bytes = 1000 + (uint32_t)value.len};
	lpi_ns_sim_open(world->sim);
	struct lp_commit *commit = lpi_block_of(hand->store)->commit;
	while (!lp_commit_reserve(commit, &need))
		lpi_hand_turn(hand);
	lp_commit_put_owned(commit, (struct lp_kv_bytes){key->bytes, key->len}, value);
	while (!lp_commit_is_idle(commit))
		lpi_hand_turn(hand);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
}

static void spoil(struct world *world, uint32_t shard_idx, enum lp_key_space space,
		  struct lp_ino ino)
{
	struct lp_key key;
	lp_key_of_ino(&key, space, ino);
	put_record(world, shard_idx, &key, (struct lp_kv_bytes){"spoilt", 6});
}

static void world_spoil(struct world *world, uint32_t shard_idx, enum lp_key_space space,
			struct lp_ino ino)
{
	world_close(world);
	spoil(world, shard_idx, space, ino);
	lpi_ns_sim_open(world->sim);
}

/* --- Changes over several shards -------------------------------------------------------------- */

static void check_not_stuck(struct world *world)
{
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(world->sim->ns[i], &stats);
		assert_int_equal(stats.stuck, 0);
	}
}

static void check_refused(struct world *world, int r)
{
	assert_true(r == -EBADMSG || r == -EUCLEAN);
	check_not_stuck(world);
}

/* All is as it was, and nothing is left that a start could not end. */
static void check_goes_on(struct world *world)
{
	lp_test_ok(make(world, world->sub, "other", LP_INODE_TYPE_FILE, NULL));
	world_close(world);
	lpi_ns_sim_open(world->sim);
	lp_test_ok(lpi_ns_sim_start(world->sim));
	lp_test_ok(make(world, world->sub, "another", LP_INODE_TYPE_FILE, NULL));
	world_end(world);
}

/* The directory takes part, and the new one's shard decides. */
static void test_make_over_damage(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	world_spoil(&world, DIR_SHARD, LP_KEY_SPACE_FRAGMENT, world.dir);
	lp_test_ok(lpi_ns_sim_start(world.sim));
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		check_refused(&world, make(&world, world.dir, "x", LP_INODE_TYPE_DIR, NULL));
	check_goes_on(&world);
}

/* What it is taken out of takes part. */
static void test_rename_over_damage(void **state)
{
	(void)state;
	for (int of_dir = 0; of_dir < 2; of_dir++) {
		struct world world;
		world_begin(&world);
		world_spoil(&world, 0, LP_KEY_SPACE_FRAGMENT, root);
		lp_test_ok(lpi_ns_sim_start(world.sim));
		for (uint32_t i = 0; i < 2; i++)
			check_refused(&world,
				      rename_to(&world, of_dir != 0 ? "d" : "f", world.dir));
		check_goes_on(&world);
	}
}

/* --- A link count that is too low ------------------------------------------------------------- */

#define CLOSE_TURNS 80u /* more than a removal over two shards takes */

static void fill_remove(struct lp_ns_op *op, struct lp_ino dir, const char *name)
{
	*op = (struct lp_ns_op){.opcode = LP_NS_REMOVE};
	op->remove.dir = dir;
	op->remove.name = lpi_ns_sim_bytes(name);
}

static int open_or_close(struct world *world, enum lp_ns_opcode opcode, struct lp_ino ino)
{
	struct lp_ns_op op = {.opcode = opcode};
	op.open.ino = ino;
	op.open.count = opcode == LP_NS_CLOSE ? 1 : 0;
	return lpi_ns_sim_do(world->sim, &op);
}

/* A file of two names, one in the root and one in the directory on another shard, which is open,
 * and whose record knows of one. */
static struct lp_ino make_miscounted(struct world *world, const char *name)
{
	struct lp_ino ino = {0};
	lp_test_ok(make(world, root, name, LP_INODE_TYPE_FILE, &ino));
	struct lp_ns_op op = {.opcode = LP_NS_LINK};
	op.link.ino = ino;
	op.link.dir = world->dir;
	op.link.name = lpi_ns_sim_bytes(name);
	lp_test_ok(lpi_ns_sim_do(world->sim, &op));
	const struct lp_attrs one = {.nlink = 1};
	const struct lp_change set = {
		.type = LP_CHANGE_SET, .ino = ino, .inode = {.attrs = &one, .mask = LP_ATTR_NLINK}};
	assert_int_equal(lp_ino_shard(ino), 0);
	lp_test_ok(lpi_hand_change(&world->sim->hand[0], set));
	lp_test_ok(open_or_close(world, LP_NS_OPEN, ino));
	return ino;
}

static void wait_for_orphans(struct world *world)
{
	for (uint32_t i = 0; lpi_opens_orphans(world->sim->ns[0]->opens) > 0; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(world->sim);
	}
}

/* It becomes an orphan when its first name is removed, and has another name. That is removed, too,
 * and reported. */
static void test_low_link_count(void **state)
{
	(void)state;
	struct world world;
	struct lp_ns_op op;
	world_begin(&world);
	struct lp_ino ino = make_miscounted(&world, "x");
	fill_remove(&op, root, "x");
	lp_test_ok(lpi_ns_sim_do(world.sim, &op));
	uint64_t found_cnt = lp_corruption_count();
	fill_remove(&op, world.dir, "x");
	lp_test_ok(lpi_ns_sim_do(world.sim, &op));
	assert_int_equal(lp_corruption_count(), found_cnt + 1);
	assert_int_equal(lpi_opens_orphans(world.sim->ns[0]->opens), 1);
	lp_test_ok(open_or_close(&world, LP_NS_CLOSE, ino));
	wait_for_orphans(&world);
	world_close(&world);
	lpi_ns_sim_fsck(world.sim);
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

/* It is closed at any moment of that: then it goes, and with it what was prepared about it could
 * not be ended. */
static void test_low_link_count_closed(void **state)
{
	(void)state;
	struct world world;
	struct lp_ns_op op;
	world_begin(&world);
	for (uint32_t turns = 0; turns < CLOSE_TURNS; turns++) {
		struct lpi_ns_sim_asked asked;
		char name[16];
		(void)snprintf(name, sizeof(name), "x%u", turns);
		struct lp_ino ino = make_miscounted(&world, name);
		fill_remove(&op, root, name);
		lp_test_ok(lpi_ns_sim_do(world.sim, &op));
		asked.is_done = false;
		fill_remove(&asked.op, world.dir, name);
		asked.op.complete = lpi_ns_sim_answered;
		lp_ns_submit(world.sim->ns[0], &asked.op);
		for (uint32_t i = 0; i < turns; i++)
			(void)lpi_ns_sim_turn(world.sim);
		lp_test_ok(open_or_close(&world, LP_NS_CLOSE, ino));
		for (uint32_t i = 0; !asked.is_done; i++) {
			assert_true(i < LPI_NS_SIM_TURNS_MAX);
			(void)lpi_ns_sim_turn(world.sim);
		}
		/* Or it has gone before anything was promised: then the name leads nowhere. */
		if (asked.op.result != -EUCLEAN && asked.op.result != -ENOENT)
			lp_test_ok(asked.op.result);
	}
	wait_for_orphans(&world);
	check_not_stuck(&world);
	check_goes_on(&world);
}

/* --- What a start finds ----------------------------------------------------------------------- */

struct findings {
	struct lp_fsck_events events;
	uint32_t cnt;
	uint32_t of_kind[LP_FSCK_KIND_CNT];
};

static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	struct findings *findings = LP_CONTAINER_OF(events, struct findings, events);
	findings->cnt++;
	findings->of_kind[finding->kind]++;
}

/* The store is closed. */
static void check_device(struct world *world, bool repair, struct findings *findings)
{
	*findings = (struct findings){.events = {.found = found}};
	const struct lp_fsck_options options = {.reactor = world->sim->reactor,
						.workers = world->sim->workers,
						.bufs = world->sim->bufs,
						.bdev = {world->sim->bdev},
						.events = &findings->events,
						.sim_clock = &world->sim->clock.clock,
						.index_buffer_bytes = UINT64_C(1) << 16,
						.files_reserve_bytes = UINT64_C(1) << 20,
						.repair = repair};
	struct lp_fsck_report report;
	struct lp_label_why why;
	lp_test_ok(lp_fsck_run(&options, &report, &why));
}

/* A mark that says nothing keeps no shard from serving: the store opens over it, and a check tells
 * of it. */
static void test_bad_mark(void **state)
{
	(void)state;
	struct world world;
	struct findings findings;
	world_begin(&world);
	const struct lp_ino nobody = {world.dir.nr + 1000};
	world_spoil(&world, DIR_SHARD, LP_KEY_SPACE_UNFINISHED, nobody);
	lp_test_ok(lpi_ns_sim_start(world.sim));
	lp_test_ok(make(&world, world.dir, "other", LP_INODE_TYPE_FILE, NULL));
	world_close(&world);
	check_device(&world, true, &findings);
	assert_int_equal(findings.cnt, 1);
	lpi_ns_sim_open(world.sim);
	lp_test_ok(lpi_ns_sim_start(world.sim));
	world_close(&world);
	lpi_ns_sim_fsck(world.sim);
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

static void put_orphan(struct world *world, struct lp_ino ino)
{
	const struct lp_unfinished_value value = {.kind = LP_UNFINISHED_KIND_ORPHAN, .since_ns = 1};
	uint8_t bytes[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	lp_unfinished_write(&value, &key, bytes);
	put_record(world, lp_ino_shard(ino), &key, (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

/* An orphan that cannot be read stays, and those behind it go; it is found by a check. */
static void test_damaged_orphan(void **state)
{
	(void)state;
	struct world world;
	struct findings findings;
	struct lp_ino other = {0};
	struct lp_attrs attrs;
	world_begin(&world);
	lp_test_ok(make(&world, root, "other", LP_INODE_TYPE_FILE, &other));
	assert_true(lp_ino_shard(other) == 0 && other.nr > world.file.nr);
	world_close(&world);
	put_orphan(&world, world.file);
	put_orphan(&world, other);
	spoil(&world, 0, LP_KEY_SPACE_INODE, world.file);
	lpi_ns_sim_open(world.sim);
	lp_test_ok(lpi_ns_sim_start(world.sim));
	assert_int_equal(lpi_hand_stat(&world.sim->hand[0], other, &attrs), -ENOENT);
	world_close(&world);
	check_device(&world, false, &findings);
	assert_int_equal(findings.of_kind[LP_FSCK_RECORD], 1);
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

static uint64_t bad_marks(const struct world *world, uint32_t shard_idx)
{
	struct lp_store_stats stats;
	lp_store_read_stats(world->sim->hand[shard_idx].store, &stats);
	return stats.bad_marks;
}

/* One of more than a page's bytes, so that a start must go on behind it. */
static const uint8_t long_value[100000];

/* Keys of marks that name no inode: it is unknown what they were about. So each is skipped and
 * counted, and a check reports it. The mark between them is not skipped. */
static void test_bad_mark_key(void **state)
{
	static const struct lp_key keys[] = {{.len = 1, .bytes = "U"},
					     {.len = 9, .bytes = "U\0\0\0\0\0\0\0\0"},
					     {.len = 9 + 1, .bytes = "U\0\0\0\0\0\0\0\1\0"},
					     {.len = 3, .bytes = "U\377\377"}};
	(void)state;
	struct world world;
	struct findings findings;
	struct lp_attrs attrs;
	world_begin(&world);
	world_close(&world);
	put_orphan(&world, world.file);
	for (size_t i = 0; i < LP_ARRAY_SIZE(keys); i++)
		put_record(&world, 0, &keys[i],
			   (struct lp_kv_bytes){long_value, sizeof(long_value)});
	lpi_ns_sim_open(world.sim);
	assert_int_equal(bad_marks(&world, 0), LP_ARRAY_SIZE(keys));
	lp_test_ok(lpi_ns_sim_start(world.sim));
	assert_int_equal(lpi_hand_stat(&world.sim->hand[0], world.file, &attrs), -ENOENT);
	world_close(&world);
	check_device(&world, true, &findings);
	assert_int_equal(findings.of_kind[LP_FSCK_KEY], LP_ARRAY_SIZE(keys));
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

/* --- Half done ---------------------------------------------------------------------------------
 */

#define TXID ((UINT64_C(2) << 56) + 77)

static void put_pact(struct world *world, uint32_t shard_idx, const struct lpi_pact_record *content)
{
	uint8_t bytes[LPI_PACT_RECORD_BYTES_MAX];
	struct lp_key key = {.len = LPI_PACT_KEY_BYTES};
	lpi_pact_key(TXID, key.bytes);
	size_t len = lpi_pact_record_encode(content, TXID, bytes);
	put_record(world, shard_idx, &key, (struct lp_kv_bytes){bytes, len});
}

/* Another name of the file, decided, and half done. */
static void put_half_done(struct world *world)
{
	const struct lp_change change = {.type = LP_CHANGE_ENTRY_SET,
					 .ino = world->dir,
					 .named = {.name = lpi_ns_sim_bytes("half"),
						   .target = world->file,
						   .target_type = LP_INODE_TYPE_FILE}};
	const struct lpi_pact_record prepared = {
		.kind = LP_PACT_KIND_PREPARED, .since_ns = 1, .change_cnt = 1, .changes = &change};
	const struct lpi_pact_record decided = {.kind = LP_PACT_KIND_DECIDED,
						.participants = UINT64_C(1) << DIR_SHARD,
						.since_ns = 1};
	put_pact(world, DIR_SHARD, &prepared);
	put_pact(world, 0, &decided);
}

/* A record was damaged after it had been promised: no start can end it, and none forgets it. Once a
 * check has mended the record, the next start ends it. */
static void test_half_done(void **state)
{
	(void)state;
	struct world world;
	struct findings findings;
	world_begin(&world);
	world_close(&world);
	put_half_done(&world);
	spoil(&world, DIR_SHARD, LP_KEY_SPACE_FRAGMENT, world.dir);
	for (uint32_t i = 0; i < 2; i++) {
		lpi_ns_sim_open(world.sim);
		int r = lpi_ns_sim_start(world.sim);
		assert_true(r == -EBADMSG || r == -EUCLEAN);
		for (uint32_t j = 0; j < LPI_NS_SIM_SHARDS; j++)
			lp_ns_close(world.sim->ns[j]);
		lp_test_ok(lpi_ns_sim_close(world.sim, false));
	}
	check_device(&world, true, &findings);
	assert_int_equal(findings.of_kind[LP_FSCK_FRAGMENT], 1);
	assert_int_equal(findings.of_kind[LP_FSCK_TXN], 2);
	lpi_ns_sim_open(world.sim);
	lp_test_ok(lpi_ns_sim_start(world.sim));
	struct lp_ns_op op = {.opcode = LP_NS_LOOKUP};
	op.lookup.dir = world.dir;
	op.lookup.name = lpi_ns_sim_bytes("half");
	lp_test_ok(lpi_ns_sim_do(world.sim, &op));
	assert_int_equal(op.lookup.found.ino.nr, world.file.nr);
	world_end(&world);
}

/* A record of a change over several shards may be a half of one: it is not passed by. */
static void test_bad_pact_key(void **state)
{
	const struct lp_key key = {.len = 3, .bytes = "T12"};
	(void)state;
	struct world world;
	world_begin(&world);
	world_close(&world);
	put_record(&world, 0, &key, (struct lp_kv_bytes){"x", 1});
	lpi_ns_sim_open(world.sim);
	assert_int_equal(lpi_ns_sim_start(world.sim), -EUCLEAN);
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++)
		lp_ns_close(world.sim->ns[i]);
	lp_test_ok(lpi_ns_sim_close(world.sim, false));
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_make_over_damage),
		cmocka_unit_test(test_rename_over_damage),
		cmocka_unit_test(test_bad_mark),
		cmocka_unit_test(test_damaged_orphan),
		cmocka_unit_test(test_bad_mark_key),
		cmocka_unit_test(test_half_done),
		cmocka_unit_test(test_bad_pact_key),
		cmocka_unit_test(test_low_link_count),
		cmocka_unit_test(test_low_link_count_closed),
	};
	return lp_test_main(tests, "namespace/shard/damage");
}
