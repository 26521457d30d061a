/* SPDX-License-Identifier: Apache-2.0 */
/* Readers during a change over several shards. Until its end is known a reader may see the old
 * state, afterwards only the new one, on any shard (namespace NS1). Each turn is tried as the
 * moment at which the reading begins. */
#include "namespace/change/pact_trial_test.h"
#include "namespace/shard/ns_rig_test.h"

#define TURNS 60u

struct reading {
	struct lpi_call call;
	struct lp_store_op op;
	bool is_done;
};

static void read_done(struct lpi_call *call)
{
	LP_CONTAINER_OF(call, struct reading, call)->is_done = true;
}

/* From the shard itself: a message of the change's home would come behind its others. */
static void begin(struct lpi_ns_rig *rig, uint32_t shard, struct reading *reading)
{
	reading->is_done = false;
	reading->call.done = read_done;
	lpi_call_store(rig->ns[shard], shard, &reading->call, &reading->op, true);
}

static void wait_for(struct lpi_ns_rig *rig, const bool *is_done)
{
	for (uint32_t i = 0; !*is_done; i++) {
		assert_true(i < LPI_NS_RIG_TURNS_MAX);
		(void)lpi_ns_rig_turn(rig);
	}
}

static void hand_turn(const struct lpi_hand *hand)
{
	(void)lpi_ns_rig_turn(hand->arg);
}

struct scene {
	struct lpi_ns_rig *rig;
	struct lpi_hand hand[3];
	struct lpi_trial trial;
};

static void scene_init(struct scene *scene)
{
	*scene = (struct scene){.rig = lpi_ns_rig_new(3)};
	for (uint32_t i = 0; i < 3; i++)
		scene->hand[i] = (struct lpi_hand){.reactor = scene->rig->reactor[i],
						   .bufs = scene->rig->bufs[i],
						   .store = scene->rig->store[i],
						   .turn = hand_turn,
						   .arg = scene->rig};
	scene->trial.world = lpi_world_make(scene->hand, scene->rig->ns);
}

/* Both names of a rename: d1/g on shard 1, d2/h on shard 2. A reader that was told that the rename
 * is done, or has seen one name's change, sees the other. Returns whether the change was over when
 * it was looked for. */
static void look_at_turn(uint32_t turns, uint32_t first)
{
	struct scene scene;
	scene_init(&scene);
	const struct lpi_trial_world *w = &scene.trial.world;
	struct reading old = {.op = {.opcode = LP_STORE_LOOKUP,
				     .lookup = {.dir = w->d1, .name = LPI_TRIAL_NAME("g")}}};
	struct reading new = {.op = {.opcode = LP_STORE_LOOKUP,
				     .lookup = {.dir = w->d2, .name = LPI_TRIAL_NAME("h")}}};
	struct reading gone = {.op = {.opcode = LP_STORE_STAT, .stat = {.ino = w->h}}};
	lpi_trial_begin(&scene.trial, 0, &lpi_trial_kinds[6]);
	for (uint32_t i = 0; i < turns; i++)
		(void)lpi_ns_rig_turn(scene.rig);
	bool was_known = scene.trial.is_done;
	struct reading *one = first == 0 ? &old : &new;
	struct reading *other = first == 0 ? &new : &old;
	begin(scene.rig, first == 0 ? 1 : 2, one);
	wait_for(scene.rig, &one->is_done);
	begin(scene.rig, first == 0 ? 2 : 1, other);
	begin(scene.rig, 1, &gone);
	wait_for(scene.rig, &other->is_done);
	wait_for(scene.rig, &gone.is_done);
	bool sees_old = old.call.result == 0;
	bool sees_new = new.op.lookup.ino.nr == w->g.nr;
	lp_test_ok(new.call.result);
	assert_true(sees_old || old.call.result == -ENOENT);
	if (was_known)
		assert_true(!sees_old && sees_new && gone.call.result == -ENOENT);
	/* The second look is the later one: it never sees less of the change than the first. */
	if (first == 0)
		assert_true(sees_old || sees_new);
	else
		assert_true(!sees_new || !sees_old);
	wait_for(scene.rig, &scene.trial.is_done);
	assert_int_equal(scene.trial.op.result, 0);
	lpi_ns_rig_free(scene.rig);
}

static void test_rename(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < TURNS; turns += LP_ASSERT_SLOW_ON ? 5 : 1) {
		look_at_turn(turns, 0);
		look_at_turn(turns, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rename),
	};
	return lp_test_main(tests, "namespace/change/pact_reads");
}
