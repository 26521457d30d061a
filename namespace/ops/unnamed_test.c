/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a file without a name that gets one is there from the moment at which that is answered
 * (P1, namespace NS1), whatever shards it and the name are on, also if it is closed at once, which
 * is the last that held it. Method: names that fall on all shards, for files of all shards; each is
 * closed in the same turn in which the link was answered. All are there, also for the next start,
 * and the checker finds no fault. */
#include "namespace/shard/ns_sim_test.h"

#define NAMES 12u

static struct lp_ino make(struct lpi_ns_sim *sim, bool is_dir, struct lp_ino dir)
{
	struct lp_ns_op op = {.opcode = LP_NS_MAKE};
	op.make.dir = dir;
	op.make.mode = 0700;
	op.make.type = is_dir ? LP_INODE_TYPE_DIR : LP_INODE_TYPE_FILE;
	op.make.spread = is_dir;
	op.make.unnamed = !is_dir;
	op.make.name = lpi_ns_sim_bytes("dir");
	lp_test_ok(lpi_ns_sim_do(sim, &op));
	return op.make.found.ino;
}

static void name_and_close(struct lpi_ns_sim *sim, struct lp_ino dir, uint32_t idx)
{
	char name[16];
	struct lp_ino ino = make(sim, false, dir);
	(void)snprintf(name, sizeof(name), "name%u", idx);
	struct lp_ns_op link = {.opcode = LP_NS_LINK,
				.ack = idx % 2 ? LP_ACK_ORDERED : LP_ACK_DURABLE};
	link.link.ino = ino;
	link.link.dir = dir;
	link.link.name = lpi_ns_sim_bytes(name);
	lp_test_ok(lpi_ns_sim_do(sim, &link));
	struct lp_ns_op close = {.opcode = LP_NS_CLOSE, .open = {.ino = ino, .count = 1}};
	lp_test_ok(lpi_ns_sim_do(sim, &close));
}

static void check_all(struct lpi_ns_sim *sim, struct lp_ino dir)
{
	for (uint32_t i = 0; i < NAMES; i++) {
		char name[16];
		(void)snprintf(name, sizeof(name), "name%u", i);
		struct lp_ns_op lookup = {.opcode = LP_NS_LOOKUP};
		lookup.lookup.dir = dir;
		lookup.lookup.name = lpi_ns_sim_bytes(name);
		lp_test_ok(lpi_ns_sim_do(sim, &lookup));
		assert_int_equal(lookup.lookup.found.attrs.nlink, 1);
	}
}

static void test_closed_at_once(void **state)
{
	(void)state;
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(3));
	lp_test_ok(lpi_ns_sim_start(sim));
	struct lp_ino dir = make(sim, true, LP_INO_ROOT);
	for (uint32_t i = 0; i < NAMES; i++)
		name_and_close(sim, dir, i);
	check_all(sim, dir);
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fsck(sim);
	lpi_ns_sim_open(sim);
	lp_test_ok(lpi_ns_sim_start(sim));
	check_all(sim, dir);
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	lpi_ns_sim_fini(sim);
	free(sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_closed_at_once),
	};
	return lp_test_main(tests, "namespace/ops/unnamed");
}
