/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: who finds no space is refused only when nothing that had been freed by then is on its way
 * any more (P6): not for what came after he looked and before he was told, not for I/O that takes
 * long, and with no time of the clock in between; and at once for what cannot come.
 * Method: a store on a simulated device, full of what is preallocated; a shard beside that is asked
 * for chunks and answers when the test says so; I/O that ends when the test says so. */
#include "store/block/block_sim_test.h"
#include "store/block/write/txn.h"
#include "store/shard/shard_impl.h"

#define VICTIM_BYTES (UINT64_C(4) << 20)
#define STEP_BYTES   (UINT64_C(16) << 20)
#define OTHER_SHARD  1u
#define AT_ONCE_NS   (100 * LP_NS_PER_MS)
/* More than anything that is free takes to be found, and than any patience there was. */
#define LONG_NS (5 * LP_NS_PER_S)

static const struct lp_ino filler = {70};
static const struct lp_ino victim = {71};

struct world {
	struct lpi_store_rig rig;
	struct lpi_block *block;
	uint64_t filled_bytes;
	struct lp_change change;
	struct lp_store_op op;
	bool is_done;
	bool is_asked;
	struct lp_timer timer;
};

static struct lp_change allocate(struct lp_ino ino, uint64_t offset, uint64_t length)
{
	return (struct lp_change){.type = LP_CHANGE_PREALLOC,
				  .ino = ino,
				  .data = {.offset = offset, .length = length}};
}

static void create(struct world *world, struct lp_ino ino)
{
	const struct lp_attrs attrs = {.mode = 0644, .nlink = 1, .type = LP_INODE_TYPE_FILE};
	const struct lp_change change = {
		.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &attrs}};
	lp_test_ok(lpi_hand_change(&world->rig.hand, change));
}

static void nothing(struct lp_timer *timer)
{
	(void)timer;
}

static void fill(struct world *world)
{
	int r = 0;
	for (uint64_t at = 0; r == 0; at += STEP_BYTES) {
		r = lpi_hand_change(&world->rig.hand, allocate(filler, at, STEP_BYTES));
		world->filled_bytes = at + STEP_BYTES;
	}
	assert_int_equal(r, -ENOSPC);
}

static void start(struct world *world)
{
	*world = (struct world){.timer = {.fire = nothing}};
	lpi_store_rig_start(&world->rig, 4); /* without discards */
	assert_false(world->rig.discard);
	world->block = lpi_block_of(world->rig.hand.store);
	create(world, filler);
	create(world, victim);
}

static void world_begin(struct world *world)
{
	start(world);
	lp_test_ok(lpi_hand_change(&world->rig.hand, allocate(victim, 0, VICTIM_BYTES)));
	fill(world);
}

static void world_end(struct world *world)
{
	lp_timer_stop(world->rig.hand.reactor, &world->timer);
	lp_test_ok(lpi_store_rig_close(&world->rig, false));
	lpi_store_rig_check(&world->rig);
	lpi_store_rig_fini(&world->rig);
}

static void completed(struct lp_store_op *op)
{
	LP_CONTAINER_OF(op, struct world, op)->is_done = true;
}

/* As much as the victim has. */
static void submit(struct world *world)
{
	world->change = allocate(filler, world->filled_bytes, VICTIM_BYTES);
	world->op = lpi_txn_op(&world->change, 1);
	world->op.complete = completed;
	world->is_done = false;
	lp_store_submit(world->rig.hand.store, &world->op);
}

static void turn(struct world *world)
{
	lpi_hand_turn(&world->rig.hand);
}

static int finish(struct world *world)
{
	for (uint32_t i = 0; !world->is_done; i++) {
		assert_true(i < LPI_TURNS_MAX);
		turn(world);
	}
	return world->op.result;
}

static void idle(struct world *world, uint64_t ns)
{
	uint64_t end_ns = world->rig.clock.now_ns + ns;
	lp_timer_start(world->rig.hand.reactor, &world->timer, end_ns);
	while (world->rig.clock.now_ns < end_ns)
		turn(world);
}

static void remove_victim(struct world *world)
{
	const struct lp_change change = {.type = LP_CHANGE_REMOVE, .ino = victim};
	lp_test_ok(lpi_hand_change(&world->rig.hand, change));
}

/* --- Come before it was told ------------------------------------------------------------------ */

static void asked(void *arg)
{
	((struct world *)arg)->is_asked = true;
}

/* All of what is removed is free while another shard is asked whether it has anything: who looked
 * before is not refused for what he saw then. */
static void test_refused_late(void **state)
{
	(void)state;
	struct world world;
	world_begin(&world);
	struct lp_chunks *chunks = world.block->shard->chunks;
	lp_chunks_listen(chunks, OTHER_SHARD, asked, &world);
	submit(&world);
	while (!world.is_asked)
		turn(&world);
	remove_victim(&world);
	for (uint32_t i = 0; lp_store_is_freeing(world.rig.hand.store, NULL); i++) {
		assert_true(i < LPI_TURNS_MAX);
		turn(&world);
	}
	/* However long ago that was. */
	idle(&world, LP_NS_PER_S);
	assert_false(world.is_done);
	assert_true(lp_chunks_askers(chunks, OTHER_SHARD) != 0);
	assert_true(lp_chunks_answer(chunks, OTHER_SHARD));
	lp_chunks_listen(chunks, OTHER_SHARD, NULL, NULL);
	lp_test_ok(finish(&world));
	world_end(&world);
}

/* --- I/O that takes long ---------------------------------------------------------------------- */

static struct lp_extent a_used_block(const struct world *world)
{
	const struct lp_space_config *config = lp_space_config(world->block->space);
	for (uint32_t idx = 0; idx < config->chunk_cnt_max; idx++) {
		const struct lp_bitmap *used = lp_space_used_map(world->block->space, idx);
		for (uint64_t i = 0; used != NULL && i < config->chunk_blocks; i++) {
			struct lp_extent extent = {
				config->base_block + (uint64_t)idx * config->chunk_blocks + i, 1};
			if (lp_space_owns(world->block->space, idx) &&
			    lp_space_is_used(world->block->space, extent))
				return extent;
		}
	}
	fail();
	return (struct lp_extent){0};
}

/* The first block is the victim's, which was made first. */
static void begin_with_pin(struct world *world, struct lp_space_pin *pin, bool is_hold)
{
	world_begin(world);
	struct lp_extent extent = a_used_block(world);
	if (is_hold)
		lp_space_hold(world->block->space, pin, extent);
	else
		lp_space_pin(world->block->space, pin, extent);
	remove_victim(world);
	idle(world, LP_NS_PER_S);
	assert_int_equal(lp_space_waiting_blocks(world->block->space), 1);
}

/* What is freed is read or written still. */
static void test_slow_io(void **state)
{
	(void)state;
	struct world world;
	struct lp_space_pin pin;
	begin_with_pin(&world, &pin, false);
	submit(&world);
	idle(&world, LONG_NS);
	assert_false(world.is_done);
	lp_space_unpin(world.block->space, &pin);
	lp_test_ok(finish(&world));
	world_end(&world);
}

/* Others read all the while, and whoever waits looks each time when something of theirs comes back:
 * many times before any time has passed. */
static void test_slow_io_beside_reads(void **state)
{
	(void)state;
	static const struct lp_ino small = {72};
	static const uint8_t bytes[100] = {1};
	static uint8_t got[100];
	struct world world;
	struct lp_space_pin pin;
	begin_with_pin(&world, &pin, false);
	create(&world, small);
	lp_test_ok(lpi_hand_write(&world.rig.hand, small, 0, bytes, sizeof(bytes)));
	uint64_t from_ns = world.rig.clock.now_ns;
	submit(&world);
	for (uint32_t i = 0; i < 3 * LPI_HOPES_IDLE && !world.is_done; i++)
		assert_int_equal(lpi_hand_read(&world.rig.hand, small, 0, sizeof(got), got),
				 sizeof(got));
	assert_true(world.rig.clock.now_ns - from_ns < LONG_NS);
	assert_false(world.is_done);
	lp_space_unpin(world.block->space, &pin);
	lp_test_ok(finish(&world));
	world_end(&world);
}

/* What is only held may be so for ever; nor does I/O wait for ever. */
static void test_not_coming(void **state)
{
	for (int is_hold = 0; is_hold <= 1; is_hold++) {
		(void)state;
		struct world world;
		struct lp_space_pin pin;
		begin_with_pin(&world, &pin, is_hold != 0);
		uint64_t from_ns = world.rig.clock.now_ns;
		submit(&world);
		assert_int_equal(finish(&world), -ENOSPC);
		assert_int_equal(world.rig.clock.now_ns - from_ns < AT_ONCE_NS, is_hold);
		lp_space_unpin(world.block->space, &pin);
		world_end(&world);
	}
}

/* --- What removes a part ---------------------------------------------------------------------- */

#define SHARED_BLOCKS 8u

static int cut(struct world *world, enum lp_change_type type, uint64_t offset, uint64_t length)
{
	const struct lp_change change = {
		.type = type, .ino = victim, .data = {.offset = offset, .length = length}};
	return lpi_hand_change(&world->rig.hand, change);
}

static void expect_bytes(struct world *world, struct lp_ino ino, const uint8_t *bytes,
			 uint64_t length)
{
	static uint8_t read[SHARED_BLOCKS * LP_BLOCK_BYTES];
	assert_int_equal(lpi_hand_read(&world->rig.hand, ino, 0, sizeof(read), read), length);
	assert_memory_equal(read, bytes, length);
}

/* A file that shares its blocks is cut and punched inside of them, though each new end needs a
 * block and no file gets one. */
static void test_cut_what_is_shared(void **state)
{
	(void)state;
	static const struct lp_ino source = {72};
	static uint8_t bytes[SHARED_BLOCKS * LP_BLOCK_BYTES];
	struct world world;
	memset(bytes, 's', sizeof(bytes));
	start(&world);
	create(&world, source);
	lp_test_ok(lpi_hand_write(&world.rig.hand, source, 0, bytes, sizeof(bytes)));
	const struct lp_change clone = {.type = LP_CHANGE_CLONE,
					.ino = victim,
					.clone = {.src = source, .length = sizeof(bytes)}};
	lp_test_ok(lpi_hand_change(&world.rig.hand, clone));
	fill(&world);
	lp_test_ok(cut(&world, LP_CHANGE_PUNCH, LP_BLOCK_BYTES + 9, 2 * LP_BLOCK_BYTES));
	lp_test_ok(cut(&world, LP_CHANGE_TRUNCATE, 6 * LP_BLOCK_BYTES + 100, 0));
	expect_bytes(&world, source, bytes, sizeof(bytes));
	memset(bytes + LP_BLOCK_BYTES + 9, 0, 2 * LP_BLOCK_BYTES);
	expect_bytes(&world, victim, bytes, 6 * LP_BLOCK_BYTES + 100);
	/* What was kept for these was no room for anything else. */
	submit(&world);
	assert_int_equal(finish(&world), -ENOSPC);
	world_end(&world);
}

/* --- Of one moment ---------------------------------------------------------------------------- */

/* What others free later is not waited for, nor does it come to an end. */
static void test_since(void **state)
{
	(void)state;
	struct world world;
	struct lp_store_freeing since = {0};
	world_begin(&world);
	uint64_t cut_bytes = world.filled_bytes - STEP_BYTES;
	for (uint32_t i = 0; i == 0 || lp_store_is_freeing(world.rig.hand.store, &since); i++) {
		assert_true(i < 8);
		cut_bytes -= LP_BLOCK_BYTES;
		const struct lp_change cut = {
			.type = LP_CHANGE_TRUNCATE, .ino = filler, .data = {.offset = cut_bytes}};
		lp_test_ok(lpi_hand_change(&world.rig.hand, cut));
		if (i == 0)
			(void)lp_store_is_freeing(world.rig.hand.store, &since);
	}
	world_end(&world);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refused_late),         cmocka_unit_test(test_slow_io),
		cmocka_unit_test(test_slow_io_beside_reads), cmocka_unit_test(test_not_coming),
		cmocka_unit_test(test_cut_what_is_shared),   cmocka_unit_test(test_since),
	};
	return lp_test_main(tests, "store/block/write/freeing");
}
