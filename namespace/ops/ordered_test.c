/* SPDX-License-Identifier: Apache-2.0 */
/* What a mount asks for, which need only be ordered (rule M1): it waits for no log where it need
 * not, and yet no change is there after a crash without what it rests on. The stores are on a
 * simulated device: time goes on only while all wait for that. */
#include "namespace/shard/ns_sim_test.h"

#define CUT_RUNS 6u

static const struct lp_ino root = {1};

struct world {
	struct lpi_ns_sim *sim;
	struct lp_ns_op op;
	enum lp_store_ack ack;
};

static struct lp_ns_op *begin(struct world *world, enum lp_ns_opcode opcode)
{
	world->op = (struct lp_ns_op){.opcode = opcode, .ack = world->ack};
	return &world->op;
}

/* On shard 0: its own calls need no message, and others' none that waits. */
static int run(struct world *world)
{
	return lpi_ns_sim_do(world->sim, &world->op);
}

static struct lp_ino make(struct world *world, struct lp_ino dir, const char *name, uint8_t type)
{
	struct lp_ns_op *op = begin(world, LP_NS_MAKE);
	op->make.dir = dir;
	op->make.name = lpi_ns_sim_bytes(name);
	op->make.type = type;
	op->make.mode = 0755;
	lp_test_ok(run(world));
	return world->op.make.found.ino;
}

static int rename_to(struct world *world, struct lp_ino dir, const char *name, struct lp_ino to_dir,
		     const char *to_name)
{
	struct lp_ns_op *op = begin(world, LP_NS_RENAME);
	op->rename.dir = dir;
	op->rename.name = lpi_ns_sim_bytes(name);
	op->rename.to_dir = to_dir;
	op->rename.to_name = lpi_ns_sim_bytes(to_name);
	return run(world);
}

static int take_away(struct world *world, struct lp_ino dir, const char *name, bool is_dir)
{
	struct lp_ns_op *op = begin(world, LP_NS_REMOVE);
	op->remove.dir = dir;
	op->remove.name = lpi_ns_sim_bytes(name);
	op->remove.is_dir = is_dir;
	return run(world);
}

static int look_up(struct world *world, struct lp_ino dir, const char *name)
{
	struct lp_ns_op *op = begin(world, LP_NS_LOOKUP);
	op->lookup.dir = dir;
	op->lookup.name = lpi_ns_sim_bytes(name);
	return run(world);
}

/* One on the shard that is wanted: directories go round. */
static struct lp_ino make_dir_on(struct world *world, struct lp_ino dir, const char *name,
				 uint32_t shard_idx)
{
	for (uint32_t i = 0; i < 16; i++) {
		struct lp_ino ino = make(world, dir, name, LP_INODE_TYPE_DIR);
		if (lp_ino_shard(ino) == shard_idx)
			return ino;
		lp_test_ok(take_away(world, dir, name, true));
	}
	fail_msg("no directory on shard %u", shard_idx);
	return root;
}

static void sync_all(struct world *world)
{
	(void)begin(world, LP_NS_SYNC);
	lp_test_ok(run(world));
}

static void world_begin(struct world *world, uint64_t seed)
{
	*world = (struct world){.ack = LP_ACK_DURABLE};
	world->sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(seed));
	lp_test_ok(lpi_ns_sim_start(world->sim));
}

static void world_end(struct world *world)
{
	lpi_ns_sim_stop(world->sim);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
	lpi_ns_sim_fini(world->sim);
	free(world->sim);
}

/* --- No waiting ------------------------------------------------------------------------------- */

/* All on one shard: names are made, given twice, changed, moved and taken away, one after the
 * other. */
static void change_much(struct world *world, struct lp_ino dir)
{
	struct lp_ino file = make(world, dir, "a", LP_INODE_TYPE_FILE);
	struct lp_ns_op *op = begin(world, LP_NS_LINK);
	op->link.ino = file;
	op->link.dir = dir;
	op->link.name = lpi_ns_sim_bytes("b");
	lp_test_ok(run(world));
	op = begin(world, LP_NS_SET);
	op->set.ino = file;
	op->set.attrs.mode = 0600;
	op->set.mask = LP_ATTR_MODE;
	lp_test_ok(run(world));
	assert_int_equal(world->op.set.found.attrs.mode, 0600);
	assert_int_equal(world->op.set.found.attrs.nlink, 2);
	lp_test_ok(rename_to(world, dir, "a", dir, "c"));
	(void)make(world, dir, "d", LP_INODE_TYPE_FILE);
	lp_test_ok(rename_to(world, dir, "d", dir, "b"));
	lp_test_ok(take_away(world, dir, "b", false));
	lp_test_ok(take_away(world, dir, "c", false));
	lp_test_err(-ENOENT, take_away(world, dir, "c", false));
	lp_test_err(-ENOENT, look_up(world, dir, "c"));
}

/* Rule M1: without fsync nothing is waited for. */
static void test_no_wait(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world, 3);
	struct lp_ino dir = make_dir_on(&world, root, "dir", 0);
	sync_all(&world);
	uint64_t before_ns = world.sim->clock.now_ns;
	world.ack = LP_ACK_ORDERED;
	change_much(&world, dir);
	assert_int_equal(world.sim->clock.now_ns, before_ns);
	world.ack = LP_ACK_DURABLE;
	change_much(&world, dir);
	assert_true(world.sim->clock.now_ns > before_ns);
	world_end(&world);
}

/* --- What a change rests on ------------------------------------------------------------------- */

/* s and q are in the root, p in s, d in p, e in d; s and e, as the root, are on shard 0, the others
 * on 1. That d goes to q, so that it is below s no longer, is a change on shard 1 only; that s then
 * goes into e one on shard 0 only. The second without the first would be a circle out of reach. */
struct tree {
	struct lp_ino s, q, p, d, e;
};

static struct tree plant(struct world *world)
{
	struct tree tree;
	tree.s = make_dir_on(world, root, "s", 0);
	tree.q = make_dir_on(world, root, "q", 1);
	tree.p = make_dir_on(world, tree.s, "p", 1);
	tree.d = make_dir_on(world, tree.p, "d", 1);
	tree.e = make_dir_on(world, tree.d, "e", 0);
	return tree;
}

static void check_tree(struct lp_bdev *bdev, const struct tree *tree)
{
	struct world world = {.ack = LP_ACK_DURABLE, .sim = lpi_ns_sim_boot(bdev)};
	lp_test_ok(lpi_ns_sim_start(world.sim));
	bool has_moved_s = look_up(&world, tree->e, "s") == 0;
	bool has_moved_d = look_up(&world, tree->q, "d") == 0;
	assert_true(has_moved_d || !has_moved_s);
	assert_int_equal(look_up(&world, root, "s"), has_moved_s ? -ENOENT : 0);
	assert_int_equal(look_up(&world, tree->p, "d"), has_moved_d ? -ENOENT : 0);
	lpi_ns_sim_stop(world.sim);
	lp_test_ok(lpi_ns_sim_close(world.sim, false));
	lpi_ns_sim_fsck(world.sim);
	lpi_ns_sim_fini(world.sim);
	free(world.sim);
}

/* The power fails at each event after the first of the two began. */
static void cut_between(uint64_t seed)
{
	struct world world;
	struct lp_sim_cutter *cutter = NULL;
	world_begin(&world, seed);
	const struct tree tree = plant(&world);
	sync_all(&world);
	struct lp_sim *sim = lp_sim_of(world.sim->bdev);
	lp_sim_trim_log(sim);
	world.ack = LP_ACK_ORDERED;
	lp_test_ok(rename_to(&world, tree.p, "d", tree.q, "d"));
	lp_test_ok(rename_to(&world, root, "s", tree.e, "s"));
	sync_all(&world);
	lp_test_ok(lp_sim_cutter_new(sim, NULL, &cutter));
	/* A sanitizer needs many times as long for each. */
	uint64_t stride = LP_ASSERT_SLOW_ON ? 5 : 1;
	while (lp_sim_cutter_next(cutter)) {
		uint64_t event = lp_sim_cutter_event(cutter);
		if (event % stride == 0)
			check_tree(lp_sim_cutter_cut(cutter, seed + event), &tree);
	}
	lp_sim_cutter_free(cutter);
	world_end(&world);
}

static void test_rests_on(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= (LP_ASSERT_SLOW_ON ? 1 : CUT_RUNS); seed++)
		cut_between(seed);
}

/* --- A shard that has failed ------------------------------------------------------------------ */

/* Shard 1 has lost the last change to it, and is read-only since then. What moves below e, where
 * the way up passes it, changes shard 0 only. */
static struct tree lose_on_shard_1(struct world *world)
{
	world_begin(world, 11);
	const struct tree tree = plant(world);
	(void)make_dir_on(world, root, "w", 0);
	sync_all(world);
	world->ack = LP_ACK_ORDERED;
	lpi_ns_sim_break_log(world->sim, 1);
	lp_test_ok(rename_to(world, tree.p, "d", tree.q, "d"));
	return tree;
}

/* Rule L7: what a shard serves that has failed is durable, so changes elsewhere may rest on it. */
static void test_rests_on_read_only(void **state)
{
	(void)state;
	struct world world;
	const struct tree tree = lose_on_shard_1(&world);
	lpi_ns_sim_wait_read_only(world.sim, 1);
	for (uint32_t i = 0; i < 2; i++) {
		world.ack = i == 0 ? LP_ACK_ORDERED : LP_ACK_DURABLE;
		lp_test_ok(rename_to(&world, root, "w", tree.e, "w"));
		lp_test_err(-ENOENT, look_up(&world, root, "w"));
		lp_test_ok(rename_to(&world, tree.e, "w", root, "w"));
	}
	lp_test_err(-EINVAL, rename_to(&world, root, "s", tree.e, "s"));
	lp_test_err(-EROFS, rename_to(&world, tree.p, "d", tree.q, "d"));
	lpi_ns_sim_end_failed(world.sim);
}

/* Rule L7: what was seen before it failed may be lost, and no change may rest on that. */
static void test_rests_on_lost(void **state)
{
	(void)state;
	struct world world;
	const struct tree tree = lose_on_shard_1(&world);
	assert_int_equal(lpi_ns_sim_state(world.sim, 1), LP_STORE_OK);
	lp_test_err(-EIO, rename_to(&world, root, "s", tree.e, "s"));
	lpi_ns_sim_wait_read_only(world.sim, 1);
	lp_test_ok(look_up(&world, root, "s"));
	lp_test_ok(look_up(&world, tree.p, "d"));
	lp_test_err(-ENOENT, look_up(&world, tree.e, "s"));
	lpi_ns_sim_end_failed(world.sim);
}

/* --- What a refusal rests on ------------------------------------------------------------------ */

struct guarded {
	struct lp_ino file;
	uint64_t version_nr; /* it had this once */
	struct lp_change changes[2];
};

/* On a condition that a change has made untrue which was only ordered; and as a door does that,
 * straight to the store, or so that a directory would become one's own. */
static int run_guarded(struct world *world, struct guarded *guarded, enum lp_change_type type)
{
	struct lp_ns_op *op = begin(world, LP_NS_STORE);
	guarded->changes[0] = (struct lp_change){.type = LP_GUARD_INODE, .ino = guarded->file};
	guarded->changes[0].guard.version_nr = guarded->version_nr;
	guarded->changes[1] = (struct lp_change){.type = type, .ino = guarded->file};
	if (type == LP_CHANGE_XATTR_SET) {
		guarded->changes[1].named.name = lpi_ns_sim_bytes("user.name");
		guarded->changes[1].named.value = lpi_ns_sim_bytes("value");
	}
	op->store.ino = guarded->file;
	op->store.op.opcode = LP_STORE_TXN;
	op->store.op.txn.changes = guarded->changes;
	op->store.op.txn.change_cnt = 2;
	op->store.op.txn.ack = world->ack;
	return run(world);
}

static void change_ordered(struct world *world, const struct guarded *guarded)
{
	world->ack = LP_ACK_ORDERED;
	struct lp_ns_op *op = begin(world, LP_NS_SET);
	op->set.ino = guarded->file;
	op->set.attrs.mode = 0600;
	op->set.mask = LP_ATTR_MODE;
	lp_test_ok(run(world));
	world->ack = LP_ACK_DURABLE;
}

static void begin_guarded(struct world *world, struct guarded *guarded, uint32_t shard_idx)
{
	world_begin(world, 5);
	struct lp_ino dir = make_dir_on(world, root, "dir", shard_idx);
	*guarded = (struct guarded){.file = make(world, dir, "file", LP_INODE_TYPE_FILE)};
	assert_int_equal(lp_ino_shard(guarded->file), shard_idx);
	struct lp_ns_op *op = begin(world, LP_NS_STAT);
	op->stat.ino = guarded->file;
	lp_test_ok(run(world));
	guarded->version_nr = world->op.stat.found.attrs.version_nr;
	sync_all(world);
}

static void check_refusal(uint32_t shard_idx, enum lp_change_type type)
{
	struct world world;
	struct guarded guarded;
	begin_guarded(&world, &guarded, shard_idx);
	struct lp_store *store = world.sim->hand[shard_idx].store;
	change_ordered(&world, &guarded);
	assert_false(lp_store_is_settled(store));
	if (type == LP_CHANGE_TRUNCATE) {
		world.ack = LP_ACK_ORDERED;
		lp_test_err(-ECANCELED, run_guarded(&world, &guarded, type));
		assert_false(lp_store_is_settled(store));
		world.ack = LP_ACK_DURABLE;
	}
	lp_test_err(-ECANCELED, run_guarded(&world, &guarded, type));
	assert_true(lp_store_is_settled(store));
	lpi_ns_sim_break_log(world.sim, shard_idx);
	change_ordered(&world, &guarded);
	/* Its sync fails; who looks first whether it is a directory meets what is left. */
	lp_test_err(type == LP_CHANGE_TRUNCATE ? -EIO : -EROFS,
		    run_guarded(&world, &guarded, type));
	lpi_ns_sim_wait_read_only(world.sim, shard_idx);
	lpi_ns_sim_end_failed(world.sim);
}

/* What tells of another's change must not be taken back by a crash (P3), nor by the shard's
 * failure. */
static void test_refusal_rests_on(void **state)
{
	(void)state;
	for (uint32_t shard_idx = 0; shard_idx < 2; shard_idx++) {
		check_refusal(shard_idx, LP_CHANGE_TRUNCATE);
		check_refusal(shard_idx, LP_CHANGE_XATTR_SET);
	}
}

/* Nobody needs it any more, so its number leads nowhere; but that it lost its name is only ordered.
 */
static void test_refused_open_rests_on(void **state)
{
	(void)state;
	struct world world;
	const struct lp_ns_forgotten item = {.count = 1};
	struct lp_ns_forgotten items[] = {item};
	world_begin(&world, 6);
	struct lp_ino dir = make_dir_on(&world, root, "dir", 1);
	items[0].ino = make(&world, dir, "file", LP_INODE_TYPE_FILE);
	struct lp_ns_op *op = begin(&world, LP_NS_LOOKUP);
	op->hold = true;
	op->lookup.dir = dir;
	op->lookup.name = lpi_ns_sim_bytes("file");
	lp_test_ok(run(&world));
	sync_all(&world);
	world.ack = LP_ACK_ORDERED;
	lp_test_ok(take_away(&world, dir, "file", false));
	op = begin(&world, LP_NS_FORGET);
	op->forget.items = items;
	op->forget.cnt = 1;
	lp_test_ok(run(&world));
	assert_false(lp_store_is_settled(world.sim->hand[1].store));
	world.ack = LP_ACK_DURABLE;
	op = begin(&world, LP_NS_OPEN);
	op->open.ino = items[0].ino;
	lp_test_err(-ESTALE, run(&world));
	assert_true(lp_store_is_settled(world.sim->hand[1].store));
	world_end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_wait),
		cmocka_unit_test(test_rests_on),
		cmocka_unit_test(test_rests_on_read_only),
		cmocka_unit_test(test_rests_on_lost),
		cmocka_unit_test(test_refusal_rests_on),
		cmocka_unit_test(test_refused_open_rests_on),
	};
	return lp_test_main(tests, "namespace/ops/ordered");
}
