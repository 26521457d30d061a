/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a copy whose daemon dies, or whose machine loses its power, at any moment is there whole or
 * not at all, and what it was to replace is as it was until then (rule W3); the source stays as it
 * is; nothing is left of what was half done, and the checker finds no fault.
 * Method: a source in many pieces, with short and long holes, is copied to a new name and over
 * another object; the device is cut at many events of that, each time the other way. */
#include "base/testing/test_long.h"
#include "namespace/shard/ns_sim_test.h"

#define PIECES     40u
#define OLD_PIECES 3u
#define OLD_TAG    200u
#define SHORT      (UINT64_C(1) << 20)
#define LONG       (UINT64_C(9) << 20)
#define END_BYTES  1234u /* behind the last piece: a hole */

static uint64_t state_cnt;

struct content {
	uint64_t size_bytes;
	uint32_t cnt;
	uint64_t offsets[PIECES];
	uint8_t tags[PIECES];
};

static struct content source;
static struct content old;

/* --- Files ------------------------------------------------------------------------------------ */

static void fill_contents(void)
{
	uint64_t at = 0;
	source.cnt = PIECES;
	for (uint32_t i = 0; i < PIECES; i++) {
		source.offsets[i] = at;
		source.tags[i] = (uint8_t)(i + 1);
		at += i % 4 == 0 ? LP_BLOCK_BYTES : i % 4 == 3 ? LONG : SHORT;
	}
	source.size_bytes = at + END_BYTES;
	old = (struct content){.size_bytes = OLD_PIECES * LP_BLOCK_BYTES, .cnt = OLD_PIECES};
	for (uint32_t i = 0; i < OLD_PIECES; i++) {
		old.offsets[i] = i * LP_BLOCK_BYTES;
		old.tags[i] = OLD_TAG;
	}
}

static struct lpi_hand *hand_of(struct lpi_ns_sim *sim, struct lp_ino ino)
{
	return &sim->hand[lp_ino_shard(ino)];
}

static void make_file(struct lpi_ns_sim *sim, const char *name, const struct content *content)
{
	static uint8_t bytes[LP_BLOCK_BYTES];
	struct lp_ns_op op = {.opcode = LP_NS_MAKE};
	op.make.dir = LP_INO_ROOT;
	op.make.name = lpi_ns_sim_bytes(name);
	op.make.type = LP_INODE_TYPE_FILE;
	op.make.mode = 0644;
	lp_test_ok(lpi_ns_sim_do(sim, &op));
	struct lp_ino ino = op.make.found.ino;
	for (uint32_t i = 0; i < content->cnt; i++) {
		memset(bytes, content->tags[i], sizeof(bytes));
		lp_test_ok(lpi_hand_write(hand_of(sim, ino), ino, content->offsets[i], bytes,
					  sizeof(bytes)));
	}
	lp_test_ok(lpi_hand_change(hand_of(sim, ino),
				   (struct lp_change){.type = LP_CHANGE_TRUNCATE,
						      .ino = ino,
						      .data = {.offset = content->size_bytes}}));
}

/* nr 0: there is none. */
static struct lp_ino find(struct lpi_ns_sim *sim, const char *name)
{
	struct lp_ns_op op = {.opcode = LP_NS_WALK};
	op.walk.path = lpi_ns_sim_bytes(name);
	int r = lpi_ns_sim_do(sim, &op);
	if (r == -ENOENT)
		return (struct lp_ino){0};
	lp_test_ok(r);
	return op.walk.found.ino;
}

/* All of it, or it is another one: a mixture fails. */
static bool holds(struct lpi_ns_sim *sim, struct lp_ino ino, const struct content *content)
{
	static uint8_t bytes[LP_BLOCK_BYTES];
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_stat(hand_of(sim, ino), ino, &attrs));
	if (attrs.size_bytes != content->size_bytes)
		return false;
	assert_int_equal(attrs.blocks, content->cnt);
	for (uint32_t i = 0; i < content->cnt; i++) {
		assert_int_equal(lpi_hand_read(hand_of(sim, ino), ino, content->offsets[i],
					       sizeof(bytes), bytes),
				 sizeof(bytes));
		assert_int_equal(lpi_bench_tag_of(bytes, sizeof(bytes)), content->tags[i]);
	}
	return true;
}

static uint64_t used_blocks(struct lpi_ns_sim *sim)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < sim->shard_cnt; i++)
		cnt += lp_space_used_blocks(lpi_block_of(sim->hand[i].store)->space);
	return cnt;
}

static uint64_t frames(struct lpi_ns_sim *sim)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < sim->shard_cnt; i++)
		cnt += lp_commit_stats(lpi_block_of(sim->hand[i].store)->commit)->groups;
	return cnt;
}

static void expect_used(struct lpi_ns_sim *sim, uint64_t blocks)
{
	for (uint32_t i = 0; used_blocks(sim) != blocks; i++) {
		assert_true(i < 50000);
		(void)lpi_ns_sim_turn(sim);
	}
}

static void end(struct lpi_ns_sim *sim)
{
	lpi_ns_sim_fini(sim);
	free(sim);
}

/* --- Cuts ------------------------------------------------------------------------------------- */

static bool is_copied(struct lpi_ns_sim *sim, bool replaces)
{
	struct lp_ino ino = find(sim, "copy");
	if (ino.nr == 0) {
		assert_false(replaces);
		return false;
	}
	if (holds(sim, ino, &source))
		return true;
	assert_true(replaces && holds(sim, ino, &old));
	return false;
}

static bool judge(struct lp_bdev *left, bool replaces, bool is_acknowledged)
{
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(left);
	lp_test_ok(lpi_ns_sim_start(sim));
	assert_true(holds(sim, find(sim, "source"), &source));
	bool is_done = is_copied(sim, replaces);
	assert_true(is_done || !is_acknowledged);
	expect_used(sim, source.cnt + (replaces && !is_done ? old.cnt : 0));
	lpi_ns_sim_stop(sim);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	if (state_cnt++ % 4 == 0)
		lpi_ns_sim_fsck(sim);
	end(sim);
	return is_done;
}

static void copy_at_cuts(uint64_t seed, bool replaces)
{
	struct lpi_ns_sim *sim = lpi_ns_sim_boot(lpi_ns_sim_mkfs(seed));
	struct lp_sim_cutter *cutter = NULL;
	uint32_t done_cnt = 0;
	uint32_t undone_cnt = 0;
	lp_test_ok(lpi_ns_sim_start(sim));
	make_file(sim, "source", &source);
	if (replaces)
		make_file(sim, "copy", &old);
	lp_sim_trim_log(lp_sim_of(sim->bdev));
	struct lp_ns_op op = {.opcode = LP_NS_COPY};
	op.copy.path = lpi_ns_sim_bytes("source");
	op.copy.to_path = lpi_ns_sim_bytes("copy");
	uint64_t before = frames(sim);
	lp_test_ok(lpi_ns_sim_do(sim, &op));
	/* So it was under way at several cuts. */
	assert_true(frames(sim) - before >= 4);
	uint64_t told_event = lp_sim_event_count(lp_sim_of(sim->bdev));
	/* A step over each long hole, and a few more. */
	assert_true(op.copy.steps >= PIECES / 4 && op.copy.steps < PIECES);
	assert_true(is_copied(sim, replaces));
	lpi_ns_sim_stop(sim);
	lp_test_ok(lp_sim_cutter_new(lp_sim_of(sim->bdev), NULL, &cutter));
	uint64_t events =
		lp_sim_event_count(lp_sim_of(sim->bdev)) - lp_sim_event_first(lp_sim_of(sim->bdev));
	uint64_t step = 1 + events / (LP_ASSERT_SLOW_ON ? 8 : 80);
	bool was_acknowledged = false;
	for (uint64_t n = seed; lp_sim_cutter_next(cutter); n++) {
		bool is_acknowledged = lp_sim_cutter_event(cutter) >= told_event;
		/* However few they are: the first event is among them, when nothing was done, and
		 * the first at which the copy was acknowledged. */
		bool is_first = n == seed || is_acknowledged != was_acknowledged;
		was_acknowledged = is_acknowledged;
		if (n % step != 0 && !is_first)
			continue;
		struct lp_bdev *left = n / step % 3 == 0 ? lp_sim_cutter_crash(cutter, n)
							 : lp_sim_cutter_cut(cutter, n);
		if (judge(left, replaces, is_acknowledged))
			done_cnt++;
		else
			undone_cnt++;
	}
	assert_true(done_cnt > 0 && undone_cnt > 0);
	lp_sim_cutter_free(cutter);
	lp_test_ok(lpi_ns_sim_close(sim, false));
	end(sim);
}

static void test_new_name(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 2 * lp_test_factor(); i++)
		copy_at_cuts(100 + i + lp_test_seed_shift(), false);
}

static void test_over_another(void **state)
{
	(void)state;
	for (uint64_t i = 0; i < 2 * lp_test_factor(); i++)
		copy_at_cuts(200 + i + lp_test_seed_shift(), true);
}

static void test_tell(void **state)
{
	(void)state;
	lp_test_tell_crash_states(state_cnt);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_new_name),
		cmocka_unit_test(test_over_another),
		cmocka_unit_test(test_tell),
	};
	fill_contents();
	return lp_test_main(tests, "namespace/ops/copy_crash");
}
