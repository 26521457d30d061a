/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a fragment that has been in memory since it was made need not ask the index for names that
 * it does not have, and answers as the index would; also one that was dropped and made again, one
 * that was loaded, and one with too many names (rule N1, promise P3).
 * Method: names made, removed, looked for and guarded in a store on a simulated device; looks into
 * the index are counted. */
#include "store/block/block_sim_test.h"

#include "store/block/core/block.h"

static const struct lp_ino dir = {100};
static const struct lp_ino target = {200};

static struct lpi_block *block_of(const struct lpi_store_rig *rig)
{
	return lpi_block_of(rig->hand.store);
}

static struct lp_change entry(enum lp_change_type type, const char *name)
{
	return (struct lp_change){.type = type,
				  .ino = dir,
				  .named = {.name = {name, (uint32_t)strlen(name)},
					    .target = target,
					    .target_type = LP_INODE_TYPE_FILE}};
}

static int make(struct lpi_store_rig *rig, const char *name)
{
	const struct lp_change changes[] = {entry(LP_GUARD_NO_ENTRY, name),
					    entry(LP_CHANGE_ENTRY_SET, name)};
	return lpi_hand_txn(&rig->hand, changes, LP_ARRAY_SIZE(changes));
}

static int gone(struct lpi_store_rig *rig, const char *name)
{
	return lpi_hand_change(&rig->hand, entry(LP_CHANGE_ENTRY_REMOVE, name));
}

static int look(struct lpi_store_rig *rig, const char *name)
{
	struct lp_store_op op = {
		.opcode = LP_STORE_LOOKUP,
		.lookup = {.dir = dir, .name = {name, (uint32_t)strlen(name)}},
	};
	return lpi_hand_do(&rig->hand, &op);
}

static uint64_t asked(const struct lpi_store_rig *rig)
{
	struct lp_kv_stats stats;
	lp_kv_read_stats(block_of(rig)->kv, &stats);
	return stats.cached_hit_cnt + stats.cached_missed_cnt;
}

static void reopen(struct lpi_store_rig *rig)
{
	lp_test_ok(lpi_store_rig_close(rig, false));
	lp_test_ok(lpi_store_rig_open(rig));
}

static void test_not_asked(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	char name[32];
	lpi_store_rig_start(&rig, 1);
	lp_test_ok(make(&rig, "first"));
	uint64_t before = asked(&rig);
	for (unsigned i = 0; i < 200; i++) {
		(void)snprintf(name, sizeof(name), "name %u", i); /* it fits */
		lp_test_err(-ENOENT, look(&rig, name));
		lp_test_ok(make(&rig, name));
	}
	assert_int_equal(asked(&rig), before);
	for (unsigned i = 0; i < 200; i++) {
		(void)snprintf(name, sizeof(name), "name %u", i); /* it fits */
		lp_test_err(-EEXIST, make(&rig, name));
		lp_test_ok(look(&rig, name));
	}
	lp_test_err(-EEXIST, make(&rig, "first"));
	/* Loaded, it does not know them. */
	reopen(&rig);
	lp_test_err(-EEXIST, make(&rig, "first"));
	lp_test_err(-EEXIST, make(&rig, "name 7"));
	before = asked(&rig);
	lp_test_ok(make(&rig, "another"));
	assert_true(asked(&rig) > before);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

/* A name that was removed is asked for: nobody here knows whether its end is durable. */
static void test_gone_and_made_again(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	lp_test_ok(make(&rig, "a"));
	lp_test_ok(gone(&rig, "a"));
	uint64_t before = asked(&rig);
	lp_test_err(-ENOENT, look(&rig, "a"));
	lp_test_ok(make(&rig, "a"));
	lp_test_err(-EEXIST, make(&rig, "a"));
	lp_test_ok(gone(&rig, "a"));
	assert_true(asked(&rig) > before);
	/* Dropped: what it had is still known to have been there. */
	lp_test_ok(lpi_hand_change(
		&rig.hand,
		(struct lp_change){.type = LP_CHANGE_DIR, .ino = dir, .dir = {.drop = true}}));
	lp_test_ok(make(&rig, "b"));
	before = asked(&rig);
	lp_test_err(-ENOENT, look(&rig, "a"));
	assert_true(asked(&rig) > before);
	before = asked(&rig);
	lp_test_err(-ENOENT, look(&rig, "c"));
	assert_int_equal(asked(&rig), before);
	lp_test_err(-EEXIST, make(&rig, "b"));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

/* More than a share of the memory: it asks again, and is right. */
static void test_too_many(void **state)
{
	(void)state;
	enum { CNT = 3000 };
	struct lpi_store_rig rig;
	char name[32];
	lpi_store_rig_start(&rig, 1);
	struct lpi_nodes *nodes = &block_of(&rig)->nodes;
	uint64_t limit = nodes->limit_bytes;
	nodes->limit_bytes = UINT64_C(64) * 1024;
	for (unsigned i = 0; i < CNT; i++) {
		(void)snprintf(name, sizeof(name), "name %u", i); /* it fits */
		lp_test_ok(make(&rig, name));
	}
	struct lpi_node *node = lpi_node_peek(nodes, LPI_NODE_FRAGMENT, dir.nr);
	assert_non_null(node);
	assert_null(lpi_fragment_of(node)->names);
	assert_int_equal(node->bytes, sizeof(struct lpi_fragment));
	for (unsigned i = 0; i < CNT; i += 100) {
		(void)snprintf(name, sizeof(name), "name %u", i); /* it fits */
		lp_test_err(-EEXIST, make(&rig, name));
	}
	assert_int_equal(nodes->names_bytes, 0);
	nodes->limit_bytes = limit;
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

/* Memory is short, and the fragment cannot go: its names do. */
static void test_shed(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	lp_test_ok(make(&rig, "a"));
	struct lpi_nodes *nodes = &block_of(&rig)->nodes;
	struct lpi_node *node = lpi_node_peek(nodes, LPI_NODE_FRAGMENT, dir.nr);
	assert_non_null(node);
	assert_int_equal(nodes->names_bytes, lp_names_bytes(lpi_fragment_of(node)->names));
	assert_int_equal(node->bytes, sizeof(struct lpi_fragment) + nodes->names_bytes);
	uint64_t limit = nodes->limit_bytes;
	lpi_node_pin(node);
	nodes->limit_bytes = 1;
	lpi_nodes_shrink(nodes);
	nodes->limit_bytes = limit;
	lpi_node_unpin(node);
	assert_null(lpi_fragment_of(node)->names);
	assert_int_equal(nodes->names_bytes, 0);
	lp_test_ok(make(&rig, "b"));
	lp_test_err(-EEXIST, make(&rig, "a"));
	lp_test_err(-EEXIST, make(&rig, "b"));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

static struct lpi_node *find(const struct lpi_store_rig *rig)
{
	return lpi_node_peek(&block_of(rig)->nodes, LPI_NODE_FRAGMENT, dir.nr);
}

static struct lpi_fragment *fragment_of(const struct lpi_store_rig *rig)
{
	struct lpi_node *node = find(rig);
	assert_non_null(node);
	if (node == NULL)
		abort(); /* an assert would not tell the compiler */
	return lpi_fragment_of(node);
}

/* Out of memory, as soon as the index has it, which nobody waits for to be durable. */
static void evict(struct lpi_store_rig *rig)
{
	struct lpi_nodes *nodes = &block_of(rig)->nodes;
	struct lp_commit *commit = block_of(rig)->commit;
	uint64_t limit = nodes->limit_bytes;
	const struct lpi_node *node = NULL;
	for (uint32_t i = 0; (node = find(rig)) != NULL; i++) {
		uint64_t group = LP_MAX(node->group, node->index_group);
		bool is_known = lp_commit_group_is_inserted(commit, group);
		assert_true(i < 1000);
		nodes->limit_bytes = is_known && node->owed_cnt == 0 ? 1 : limit;
		lp_commit_pay(commit);
		lpi_nodes_shrink(nodes);
		(void)lp_reactor_turn(rig->hand.reactor, false);
	}
	nodes->limit_bytes = limit;
}

/* One that was put out of memory takes its names along, and comes back without any. */
static void test_evicted(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	lp_test_ok(make(&rig, "a"));
	lp_test_ok(make(&rig, "b"));
	assert_non_null(fragment_of(&rig)->names);
	assert_true(block_of(&rig)->nodes.names_bytes > 0);
	evict(&rig);
	assert_int_equal(block_of(&rig)->nodes.names_bytes, 0);
	lp_test_ok(look(&rig, "a"));
	lp_test_err(-ENOENT, look(&rig, "c"));
	lp_test_err(-EEXIST, make(&rig, "a"));
	lp_test_ok(make(&rig, "c"));
	assert_null(fragment_of(&rig)->names);
	lp_test_err(-EEXIST, make(&rig, "b"));
	lp_test_err(-EEXIST, make(&rig, "c"));
	uint64_t before = asked(&rig);
	lp_test_err(-ENOENT, look(&rig, "d"));
	assert_true(asked(&rig) > before);
	assert_int_equal(block_of(&rig)->nodes.names_bytes, 0);
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

static void change_ordered(struct lpi_store_rig *rig, const struct lp_change *changes, uint32_t cnt)
{
	struct lp_store_op op = lpi_txn_op(changes, cnt);
	op.txn.ack = LP_ACK_ORDERED;
	lp_test_ok(lpi_hand_do(&rig->hand, &op));
}

/* Memory is short; but what is not durable does not leave it. */
static void press(struct lpi_store_rig *rig)
{
	struct lpi_nodes *nodes = &block_of(rig)->nodes;
	const struct lp_commit *commit = block_of(rig)->commit;
	const struct lpi_node *node = find(rig);
	uint64_t limit = nodes->limit_bytes;
	for (uint32_t i = 0; !lp_commit_group_is_inserted(commit, node->group); i++) {
		assert_true(i < 1000);
		(void)lp_reactor_turn(rig->hand.reactor, false);
	}
	nodes->limit_bytes = 1;
	for (uint32_t i = 0; i < 10; i++)
		lpi_nodes_shrink(nodes);
	nodes->limit_bytes = limit;
	assert_ptr_equal(find(rig), node);
}

/* Its directory's end is in the index, but its frame still on its way. Whoever is told that a name
 * of it has gone waits for that, also where memory is short (P3). */
static void check_held_frame(bool is_pressed)
{
	struct lpi_store_rig rig;
	lpi_store_rig_start(&rig, 1);
	lp_test_ok(make(&rig, "a"));
	struct lp_sim *sim = lp_sim_of(rig.bdev);
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW, .arg = LP_NS_PER_S};
	struct lp_commit *commit = block_of(&rig)->commit;
	const struct lp_change end[] = {
		entry(LP_CHANGE_ENTRY_REMOVE, "a"),
		{.type = LP_CHANGE_DIR, .ino = dir, .dir = {.drop = true}},
	};
	const struct lp_change again = entry(LP_CHANGE_ENTRY_SET, "b");
	lp_sim_rule_add(sim, &slow);
	uint64_t seq = lp_commit_seq(commit);
	change_ordered(&rig, end, LP_ARRAY_SIZE(end));
	if (is_pressed)
		press(&rig);
	change_ordered(&rig, &again, 1);
	assert_true(fragment_of(&rig)->node.group != 0);
	assert_true(lp_commit_durable_seq(commit) < seq);
	lp_test_err(-ENOENT, look(&rig, "a"));
	assert_true(lp_commit_durable_seq(commit) >= seq);
	lp_sim_rules_clear(sim);
	lp_test_ok(look(&rig, "b"));
	lp_test_ok(make(&rig, "a"));
	lp_test_err(-EEXIST, make(&rig, "a"));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_check(&rig);
	lpi_store_rig_fini(&rig);
}

static void test_held_frame(void **state)
{
	(void)state;
	check_held_frame(false);
	check_held_frame(true);
}

/* The record of a fragment is lost, its names are not: what is set among them shows that. Nobody
 * may take it for all there is. */
static void test_lost_record(void **state)
{
	(void)state;
	struct lpi_store_rig rig;
	struct lp_key key;
	lpi_store_rig_start(&rig, 1);
	lp_test_ok(make(&rig, "a"));
	lp_test_ok(make(&rig, "b"));
	evict(&rig);
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, dir);
	struct lp_commit *commit = block_of(&rig)->commit;
	const struct lp_commit_need need = {.batch_bytes = 256};
	assert_true(lp_commit_reserve(commit, &need));
	lp_commit_delete(commit, (struct lp_kv_bytes){key.bytes, key.len});
	while (!lp_commit_is_idle(commit))
		(void)lp_reactor_turn(rig.hand.reactor, true);
	lp_test_ok(lpi_hand_change(&rig.hand, entry(LP_CHANGE_ENTRY_SET, "a")));
	assert_null(fragment_of(&rig)->names);
	lp_test_err(-EEXIST, make(&rig, "b"));
	lp_test_ok(make(&rig, "c"));
	lp_test_ok(look(&rig, "b"));
	lp_test_ok(lpi_store_rig_close(&rig, false));
	lpi_store_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_not_asked),   cmocka_unit_test(test_gone_and_made_again),
		cmocka_unit_test(test_too_many),    cmocka_unit_test(test_shed),
		cmocka_unit_test(test_evicted),     cmocka_unit_test(test_held_frame),
		cmocka_unit_test(test_lost_record),
	};
	return lp_test_main(tests, "store/block/write/name_filter_use");
}
