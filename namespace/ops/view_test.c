/* SPDX-License-Identifier: Apache-2.0 */
/* A check of the structure of a store that is being changed meanwhile (store/view.h,
 * store/check/fsck.h): at whatever moment the views are taken, nothing is wrong or unfinished in
 * them. */
#include "namespace/shard/ns_sim_test.h"

#include "base/prng.h"

#define ACTORS     8u
#define CHECKS     40u
#define DATA_BYTES (UINT32_C(40) << 10)
#define PIECES     (DATA_BYTES / LP_BLOCK_BYTES)

struct world;

/* Who does one thing after the other, whatever comes of it. */
struct actor {
	struct world *world;
	struct lp_ns_op op;
	char path[48];
	char to_path[48];
	struct lp_seg seg;
	bool is_busy;
};

/* A shard that is to come to rest. */
struct rest {
	struct lp_pause pause;
	bool is_over;
	int result;
	struct lp_view *view;
};

struct world {
	struct lpi_ns_sim *sim;
	struct lp_prng rng;
	struct lp_buf *data;
	uint32_t crcs[PIECES];
	struct actor actors[ACTORS];
	bool is_ending;
	uint64_t done_cnt;
	uint64_t ok_cnt;
	struct rest rests[LPI_NS_SIM_SHARDS];
	uint32_t found_cnt; /* by the last check */
	struct lp_fsck_events events;
};

/* --- What happens ------------------------------------------------------------------------------
 */

static struct lp_bytes some_path(struct world *world, char *buf, size_t size)
{
	unsigned bucket = (unsigned)lp_prng_below(&world->rng, 3);
	unsigned dir = (unsigned)lp_prng_below(&world->rng, 3);
	unsigned file = (unsigned)lp_prng_below(&world->rng, 3);
	if (dir == 0)
		(void)snprintf(buf, size, "b%u/f%u", bucket, file);
	else
		(void)snprintf(buf, size, "b%u/d%u/f%u", bucket, dir, file);
	return lpi_ns_sim_bytes(buf);
}

static void next(struct actor *actor);

static void answered(struct lp_ns_op *op)
{
	struct actor *actor = LP_CONTAINER_OF(op, struct actor, op);
	struct world *world = actor->world;
	actor->is_busy = false;
	world->done_cnt++;
	world->ok_cnt += op->result == 0;
	assert_true(op->result == 0 || op->result == -ENOENT || op->result == -EAGAIN);
	if (!world->is_ending)
		next(actor);
}

static void fill_put(struct actor *actor)
{
	struct world *world = actor->world;
	struct lp_ns_op *op = &actor->op;
	op->opcode = LP_NS_PUT;
	op->put.path = some_path(world, actor->path, sizeof(actor->path));
	op->put.mode = 0644;
	op->put.length = lp_prng_below(&world->rng, 2) == 0 ? LP_BLOCK_BYTES : DATA_BYTES;
	actor->seg = (struct lp_seg){.buf = world->data, .len = (uint32_t)op->put.length};
	op->put.payload =
		(struct lp_payload){.segs = &actor->seg,
				    .crcs = world->crcs,
				    .seg_cnt = 1,
				    .crc_cnt = (uint32_t)(op->put.length / LP_BLOCK_BYTES)};
}

static void next(struct actor *actor)
{
	struct world *world = actor->world;
	actor->op = (struct lp_ns_op){.complete = answered};
	uint64_t what = lp_prng_below(&world->rng, 10);
	if (what < 4) {
		fill_put(actor);
	} else if (what < 7) {
		actor->op.opcode = LP_NS_DELETE;
		actor->op.delete.path = some_path(world, actor->path, sizeof(actor->path));
	} else {
		actor->op.opcode = what == 7 ? LP_NS_COPY : LP_NS_MOVE;
		actor->op.copy.path = some_path(world, actor->path, sizeof(actor->path));
		actor->op.copy.to_path = some_path(world, actor->to_path, sizeof(actor->to_path));
	}
	actor->is_busy = true;
	lp_ns_submit(world->sim->ns[lp_prng_below(&world->rng, world->sim->shard_cnt)], &actor->op);
}

/* --- Looking -----------------------------------------------------------------------------------
 */

static void turns(struct world *world, uint64_t cnt)
{
	for (uint64_t i = 0; i < cnt; i++)
		(void)lpi_ns_sim_turn(world->sim);
}

static void rested(struct lp_pause *pause, int result)
{
	struct rest *rest = LP_CONTAINER_OF(pause, struct rest, pause);
	assert_false(rest->is_over);
	rest->is_over = true;
	rest->result = result;
}

/* Until no change over several shards is under way. */
static void hold_shared(struct world *world)
{
	struct lpi_ns_sim *sim = world->sim;
	bool has_some = true;
	for (uint32_t i = 0; i < sim->shard_cnt; i++)
		lp_ns_hold_shared(sim->ns[i], true);
	for (uint32_t n = 0; has_some; n++) {
		assert_true(n < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(sim);
		has_some = false;
		for (uint32_t i = 0; i < sim->shard_cnt; i++)
			has_some |= lp_ns_has_shared(sim->ns[i]);
	}
}

static void pause_all(struct world *world)
{
	struct lpi_ns_sim *sim = world->sim;
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		world->rests[i] = (struct rest){.pause.rested = rested};
		lp_test_ok(lp_store_pause(sim->hand[i].store, &world->rests[i].pause));
		turns(world, lp_prng_below(&world->rng, 3));
	}
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		while (!world->rests[i].is_over)
			(void)lpi_ns_sim_turn(sim);
		lp_test_ok(world->rests[i].result);
	}
}

/* Each shard goes on when its own has been taken. */
static void take_all(struct world *world)
{
	struct lpi_ns_sim *sim = world->sim;
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		struct rest *rest = &world->rests[i];
		lp_test_ok(lp_store_view_take(sim->hand[i].store, &rest->view));
		lp_store_resume(sim->hand[i].store, &rest->pause);
		lp_ns_hold_shared(sim->ns[i], false);
		turns(world, lp_prng_below(&world->rng, 3));
	}
}

static void end_all(struct world *world)
{
	for (uint32_t i = 0; i < world->sim->shard_cnt; i++)
		lp_store_view_end(world->sim->hand[i].store, world->rests[i].view);
}

static int look(struct world *world, struct lp_fsck_report *ret_report)
{
	struct lp_view *views[LPI_NS_SIM_SHARDS];
	for (uint32_t i = 0; i < world->sim->shard_cnt; i++)
		views[i] = world->rests[i].view;
	const struct lp_fsck_look options = {
		.views = views, .view_cnt = world->sim->shard_cnt, .events = &world->events};
	world->found_cnt = 0;
	return lp_fsck_look(&options, ret_report);
}

static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	struct world *world = LP_CONTAINER_OF(events, struct world, events);
	world->found_cnt++;
	print_message("fsck: %s: %s: %s\n", lp_fsck_kind_name(finding->kind), finding->object,
		      finding->text);
}

/* --- The world ---------------------------------------------------------------------------------
 */

static void world_begin(struct world *world, uint64_t seed, uint64_t hold_ns)
{
	const struct lpi_ns_sim_config config = {.hold_ns = hold_ns};
	*world = (struct world){.events.found = found};
	lp_prng_init(&world->rng, seed);
	world->sim = lpi_ns_sim_boot_as(lpi_ns_sim_mkfs(seed), &config);
	lp_test_ok(lpi_ns_sim_start(world->sim));
	world->data = lp_buf_new(world->sim->bufs, LP_BUF_MEDIUM);
	assert_non_null(world->data);
	lp_prng_fill(&world->rng, world->data->data, DATA_BYTES);
	for (uint32_t i = 0; i < PIECES; i++)
		world->crcs[i] = lp_crc32c(0, world->data->data + (size_t)i * LP_BLOCK_BYTES,
					   LP_BLOCK_BYTES);
	for (uint32_t i = 0; i < ACTORS; i++) {
		world->actors[i].world = world;
		next(&world->actors[i]);
	}
}

static void world_settle(struct world *world)
{
	bool is_busy = true;
	world->is_ending = true;
	for (uint32_t n = 0; is_busy; n++) {
		assert_true(n < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(world->sim);
		is_busy = false;
		for (uint32_t i = 0; i < ACTORS; i++)
			is_busy |= world->actors[i].is_busy;
	}
}

static void world_end(struct world *world)
{
	if (!world->is_ending)
		world_settle(world);
	lp_buf_put(world->data);
	lpi_ns_sim_stop(world->sim);
	lp_test_ok(lpi_ns_sim_close(world->sim, false));
	lpi_ns_sim_fsck(world->sim);
	lpi_ns_sim_fini(world->sim);
	free(world->sim);
}

/* --- Tests -------------------------------------------------------------------------------------
 */

/* What is changed while the views are looked at is not in them. */
static void check_sound(struct world *world)
{
	struct lp_fsck_report report;
	uint64_t inodes = 0;
	for (uint32_t n = 0; n < CHECKS; n++) {
		turns(world, lp_prng_below(&world->rng, 400));
		hold_shared(world);
		pause_all(world);
		take_all(world);
		turns(world, lp_prng_below(&world->rng, 400));
		lp_test_ok(look(world, &report));
		end_all(world);
		assert_int_equal(world->found_cnt, 0);
		assert_int_equal(report.problems + report.warnings + report.repaired, 0);
		inodes += report.inodes;
	}
	assert_true(inodes > CHECKS);
	assert_true(world->ok_cnt > CHECKS);
}

static void test_sound(void **state)
{
	struct world world;
	(void)state;
	for (uint64_t seed = 1; seed <= 3; seed++) {
		world_begin(&world, seed, seed == 3 ? LP_NS_PER_MS : 0);
		check_sound(&world);
		world_end(&world);
	}
}

/* Views are of one moment: nothing that happens afterwards is seen by any of them. */
static void test_one_moment(void **state)
{
	struct world world;
	struct lp_fsck_report first;
	struct lp_fsck_report again;
	(void)state;
	world_begin(&world, 4, 0);
	turns(&world, 2000);
	hold_shared(&world);
	pause_all(&world);
	take_all(&world);
	lp_test_ok(look(&world, &first));
	uint64_t done = world.done_cnt;
	turns(&world, 20000);
	assert_true(world.done_cnt > done + 100);
	lp_test_ok(look(&world, &again));
	assert_memory_equal(&first, &again, sizeof(first));
	end_all(&world);
	world_end(&world);
}

/* Nothing is acknowledged while a store is at rest, and all goes on afterwards. */
static void test_rest(void **state)
{
	struct world world;
	(void)state;
	world_begin(&world, 5, 0);
	turns(&world, 1000);
	pause_all(&world);
	turns(&world, 100); /* what was durable is answered */
	uint64_t ok = world.ok_cnt;
	turns(&world, 2000);
	assert_int_equal(world.ok_cnt, ok);
	for (uint32_t i = 0; i < world.sim->shard_cnt; i++) {
		struct lp_pause second = {.rested = rested};
		assert_int_equal(lp_store_pause(world.sim->hand[i].store, &second), -EBUSY);
		lp_store_resume(world.sim->hand[i].store, &world.rests[i].pause);
	}
	turns(&world, 20000);
	assert_true(world.ok_cnt > ok + 100);
	world_end(&world);
}

/* Who looks is told to end, and nothing that he missed is called a fault. */
static void test_over(void **state)
{
	struct world world;
	struct lp_fsck_report report;
	(void)state;
	world_begin(&world, 6, 0);
	turns(&world, 2000);
	hold_shared(&world);
	pause_all(&world);
	take_all(&world);
	atomic_store(&world.rests[1].view->is_over, true);
	assert_int_equal(look(&world, &report), -ECANCELED);
	assert_int_equal(world.found_cnt, 0);
	end_all(&world);
	world_end(&world);
}

/* A shard whose log fails is not opened again while somebody reads its index. */
static void test_failure(void **state)
{
	struct world world;
	struct lp_fsck_report report;
	(void)state;
	world_begin(&world, 7, 0);
	turns(&world, 2000);
	world_settle(&world);
	hold_shared(&world);
	pause_all(&world);
	take_all(&world);
	lpi_ns_sim_break_log(world.sim, 1);
	for (uint32_t i = 0; lpi_ns_sim_state(world.sim, 1) == LP_STORE_OK; i++) {
		struct lp_ns_op op = {.opcode = LP_NS_SET, .ack = LP_ACK_DURABLE};
		char path[48];
		assert_true(i < 1000);
		op.opcode = LP_NS_PUT;
		op.put.path = some_path(&world, path, sizeof(path));
		op.put.mode = 0644;
		(void)lpi_ns_sim_do(world.sim, &op); /* some fail */
	}
	turns(&world, 1000);
	assert_int_equal(lpi_ns_sim_state(world.sim, 1), LP_STORE_REOPENING);
	assert_true(atomic_load(&world.rests[1].view->is_over));
	assert_int_equal(look(&world, &report), -ECANCELED);
	assert_int_equal(world.found_cnt, 0);
	end_all(&world);
	lpi_ns_sim_wait_read_only(world.sim, 1);
	struct lp_pause pause = {.rested = rested};
	assert_int_equal(lp_store_pause(world.sim->hand[1].store, &pause), -EROFS);
	lp_buf_put(world.data);
	lpi_ns_sim_end_failed(world.sim);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sound),   cmocka_unit_test(test_one_moment),
		cmocka_unit_test(test_rest),    cmocka_unit_test(test_over),
		cmocka_unit_test(test_failure),
	};
	return lp_test_main(tests, "namespace/ops/view");
}
