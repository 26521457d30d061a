/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a map that contradicts the space (its blocks are free, another file's as well, or no space
 * of the shard at all) is damage of that file: it is read as what it was, or an error; it can be
 * overwritten, cut and removed; nothing else is touched, and the store serves on and opens again
 * (P4, P7).
 * Method: files written through a store, one of them damaged by a commit, in memory or by a new
 * start; each operation on it; then new files, which are given whatever counts as free; a stop or a
 * crash; all is read beside plain arrays, and the checker run. */
#include "store/block/block_sim_test.h"
#include "store/block/core/data_cache.h"

#define SMALL        8u
#define ELSEWHERE_AT 6u
#define LARGE        80u /* two leaves: removed step by step */
#define NEWS         8u

enum damage { UNTAKEN, TWICE, OUTSIDE, DAMAGES };

enum act {
	READ,
	SCRUB,
	DIRECT,
	DEFERRED,
	ELSEWHERE,
	PATCH,
	PUNCH,
	CUT,
	CUT_INSIDE,
	CLONE,
	REMOVE,
	REMOVE_BOTH,
	REMOVE_OTHER_FIRST,
	ACTS,
};

static const char *const damage_names[] = {"untaken", "twice", "outside"};
static const char *const act_names[] = {"read",
					"scrub",
					"direct",
					"deferred",
					"elsewhere",
					"patch",
					"punch",
					"cut",
					"cut inside",
					"clone",
					"remove",
					"remove both",
					"remove the other first"};

static const struct lp_ino damaged = {100};
static const struct lp_ino other = {101}; /* names blocks of the damaged one as well, if TWICE */
static const struct lp_ino sound = {102};
static const struct lp_ino cloned = {103};

struct scene {
	struct lpi_store_rig rig;
	uint32_t blocks;    /* of each file */
	bool is_set_aside;  /* the damaged one has space, and no content */
	uint8_t *old_bytes; /* of all three */
	uint8_t *new_bytes;
};

static struct lpi_block *block_of(const struct scene *s)
{
	return lpi_block_of(s->rig.hand.store);
}

/* --- Files ------------------------------------------------------------------------------------ */

static void create(struct scene *s, struct lp_ino ino)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
	lp_test_ok(lpi_hand_change(&s->rig.hand, (struct lp_change){.type = LP_CHANGE_CREATE,
								    .ino = ino,
								    .inode = {.attrs = &attrs}}));
}

static void write_file(struct scene *s, struct lp_ino ino, const uint8_t *bytes, uint64_t blocks)
{
	create(s, ino);
	lp_test_ok(lpi_hand_write(&s->rig.hand, ino, 0, bytes, blocks * LP_BLOCK_BYTES));
}

static int change_range(struct scene *s, enum lp_change_type type, uint64_t offset, uint64_t length)
{
	return lpi_hand_change(&s->rig.hand,
			       (struct lp_change){.type = type,
						  .ino = damaged,
						  .data = {.offset = offset, .length = length}});
}

static int64_t read_block(struct scene *s, struct lp_ino ino, uint64_t block, bool from_device,
			  uint8_t *got)
{
	struct lp_store_op op = {.opcode = LP_STORE_READ,
				 .read = {.ino = ino,
					  .offset = block * LP_BLOCK_BYTES,
					  .length = LP_BLOCK_BYTES,
					  .from_device = from_device}};
	int err = lpi_hand_do(&s->rig.hand, &op);
	if (err < 0)
		return err;
	lpi_read_take(&op, got);
	lp_store_end(s->rig.hand.store, &op);
	return (int64_t)op.read.bytes;
}

static void assert_is(struct scene *s, struct lp_ino ino, const uint8_t *bytes, uint64_t blocks)
{
	uint8_t got[LP_BLOCK_BYTES];
	for (uint64_t i = 0; i < blocks; i++) {
		assert_int_equal(read_block(s, ino, i, false, got), LP_BLOCK_BYTES);
		assert_memory_equal(got, bytes + i * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	}
}

/* What it was, or an error that says damage; how many errors. */
static uint64_t judge(struct scene *s, struct lp_ino ino, bool from_device)
{
	uint8_t got[LP_BLOCK_BYTES];
	uint64_t errors = 0;
	for (uint64_t i = 0; i < s->blocks; i++) {
		int64_t n = read_block(s, ino, i, from_device, got);
		errors += n < 0;
		if (n < 0)
			assert_true(n == -EUCLEAN || n == -EBADMSG);
		else
			assert_memory_equal(got, s->old_bytes + i * LP_BLOCK_BYTES, (size_t)n);
	}
	return errors;
}

/* --- Damage ----------------------------------------------------------------------------------- */

static void reserve(struct scene *s)
{
	const struct lp_commit_need need = {.batch_bytes = 24000, .change_cnt = 64};
	while (!lp_commit_reserve(block_of(s)->commit, &need))
		lpi_hand_turn(&s->rig.hand);
}

static void settle(struct scene *s)
{
	while (!lp_commit_is_idle(block_of(s)->commit))
		lpi_hand_turn(&s->rig.hand);
}

static struct lpi_inode *inode_of(struct scene *s, struct lp_ino ino)
{
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_stat(&s->rig.hand, ino, &attrs));
	struct lpi_node *node = lpi_node_find(&block_of(s)->nodes, LPI_NODE_INODE, ino.nr);
	assert_non_null(node);
	return lpi_inode_of(node);
}

static struct lp_extmap_segment look_up(struct scene *s, struct lp_ino ino, uint64_t first,
					uint64_t cnt, uint32_t *crcs)
{
	struct lp_extmap_segment segment;
	int found = lp_extmap_lookup(&inode_of(s, ino)->map, (struct lp_extmap_range){first, cnt},
				     &segment, 1, crcs);
	assert_int_equal(found, 1);
	assert_int_equal(segment.range.cnt, cnt);
	return segment;
}

/* From now on the file names these blocks there, whoever has them. */
static void name_blocks(struct scene *s, struct lp_ino ino, uint64_t first, struct lp_extent extent,
			const uint32_t *crcs)
{
	struct lp_extmap_release items[LARGE];
	struct lp_extmap_released released = {.items = items, .max = LARGE};
	const struct lp_extmap_new fresh = {.extents = &extent, .extents_cnt = 1, .crcs = crcs};
	const struct lp_extmap_range range = {first, extent.cnt};
	struct lpi_inode *inode = inode_of(s, ino);
	reserve(s);
	assert_true(lp_extmap_reserve(&inode->map, range, 1) >= 0);
	lp_extmap_replace(&inode->map, range, &fresh, &released);
	for (size_t i = 0; i < released.cnt; i++)
		lpi_block_freed(block_of(s), items[i].extent);
	lpi_node_changed(&inode->node);
}

static uint64_t block_not_owned(struct scene *s)
{
	const struct lp_space_config *config = lp_space_config(block_of(s)->space);
	uint32_t idx = config->chunk_cnt_max - 1;
	while (lp_space_owns(block_of(s)->space, idx))
		idx--;
	return config->base_block + (uint64_t)idx * config->chunk_blocks + 1;
}

static void do_damage(struct scene *s, enum damage damage)
{
	uint32_t crcs[2];
	struct lp_extmap_segment segment = look_up(s, damaged, 1, 2, crcs);
	const uint32_t *written = s->is_set_aside ? NULL : crcs;
	if (damage == UNTAKEN) {
		reserve(s);
		lp_shard_freed(block_of(s)->shard, (struct lp_extent){segment.block, 2});
	} else if (damage == TWICE) {
		name_blocks(s, other, 1, (struct lp_extent){segment.block, 2}, written);
	} else { /* in the log, beyond the device, and in a chunk of nobody, or of the index */
		const uint64_t where[] = {2, UINT64_C(1) << 40, block_not_owned(s)};
		for (uint64_t i = 0; i < LP_ARRAY_SIZE(where); i++)
			name_blocks(s, damaged, 1 + 2 * i, (struct lp_extent){where[i], 1},
				    written);
	}
	settle(s);
}

/* --- What is done to it ----------------------------------------------------------------------- */

static void overwrite(struct scene *s, enum lp_write_path path)
{
	lp_store_set_write_path(s->rig.hand.store, path);
	lp_test_ok(
		lpi_hand_write(&s->rig.hand, damaged, 0, s->new_bytes, s->blocks * LP_BLOCK_BYTES));
	assert_is(s, damaged, s->new_bytes, s->blocks);
}

/* The write may be given what the map names beside it: a leaf that has it twice nobody could read.
 */
static void overwrite_elsewhere(struct scene *s, enum damage damage)
{
	const uint64_t at = ELSEWHERE_AT * LP_BLOCK_BYTES;
	int err = lpi_hand_write(&s->rig.hand, damaged, at, s->old_bytes + at, 2 * LP_BLOCK_BYTES);
	assert_true(err == 0 || (damage == UNTAKEN && err == -EUCLEAN));
}

/* A part of a block: what else is in it must be known. */
static void patch(struct scene *s, enum damage damage)
{
	uint8_t got[LP_BLOCK_BYTES];
	uint8_t want[LP_BLOCK_BYTES];
	memcpy(want, s->old_bytes + LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	memcpy(want + 10, s->new_bytes, 7);
	int err = lpi_hand_write(&s->rig.hand, damaged, LP_BLOCK_BYTES + 10, s->new_bytes, 7);
	if (damage == OUTSIDE && !s->is_set_aside) {
		lp_test_err(-EUCLEAN, err);
		return;
	}
	lp_test_ok(err);
	assert_int_equal(read_block(s, damaged, 1, false, got), LP_BLOCK_BYTES);
	assert_memory_equal(got, want, LP_BLOCK_BYTES);
}

static void assert_is_cut(struct scene *s)
{
	uint8_t got[LP_BLOCK_BYTES];
	assert_int_equal(read_block(s, damaged, 1, false, got), LP_BLOCK_BYTES);
	assert_memory_equal(got, s->old_bytes + LP_BLOCK_BYTES, 100);
	assert_int_equal(got[100], 0);
}

/* The rest of the block becomes zeros. */
static void cut_inside(struct scene *s, enum damage damage)
{
	int err = change_range(s, LP_CHANGE_TRUNCATE, LP_BLOCK_BYTES + 100, 0);
	if (damage == OUTSIDE && !s->is_set_aside) {
		lp_test_err(-EUCLEAN, err);
		return;
	}
	lp_test_ok(err);
	lp_test_ok(change_range(s, LP_CHANGE_TRUNCATE, 2 * LP_BLOCK_BYTES, 0));
	assert_is_cut(s);
}

static void share(struct scene *s, enum damage damage)
{
	const struct lp_change change = {
		.type = LP_CHANGE_CLONE,
		.ino = cloned,
		.clone = {.src = damaged, .length = s->blocks * LP_BLOCK_BYTES}};
	create(s, cloned);
	int err = lpi_hand_change(&s->rig.hand, change);
	/* What has no content is not shared. */
	lp_test_err(damage == TWICE || s->is_set_aside ? 0 : -EUCLEAN, err);
}

static struct lp_change removal(struct lp_ino ino)
{
	return (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
}

static void look(struct scene *s, enum damage damage, bool from_device)
{
	uint64_t errors = judge(s, damaged, from_device);
	uint64_t want = damage == OUTSIDE ? 3 : damage == UNTAKEN && from_device ? 2 : 0;
	assert_int_equal(errors, s->is_set_aside ? 0 : want);
	assert_int_equal(judge(s, other, from_device), 0);
}

static void do_act(struct scene *s, enum damage damage, enum act act)
{
	struct lp_attrs attrs;
	const struct lp_change both[] = {removal(damaged), removal(other)};
	switch (act) {
	case READ:
	case SCRUB:
		look(s, damage, act == SCRUB);
		break;
	case DIRECT:
		overwrite(s, LP_PATH_DIRECT);
		break;
	case DEFERRED:
		overwrite(s, LP_PATH_DEFERRED);
		break;
	case ELSEWHERE:
		overwrite_elsewhere(s, damage);
		break;
	case PATCH:
		patch(s, damage);
		break;
	case PUNCH:
		lp_test_ok(change_range(s, LP_CHANGE_PUNCH, 0, s->blocks * LP_BLOCK_BYTES));
		break;
	case CUT:
		lp_test_ok(change_range(s, LP_CHANGE_TRUNCATE, 0, 0));
		break;
	case CUT_INSIDE:
		cut_inside(s, damage);
		break;
	case CLONE:
		share(s, damage);
		break;
	case REMOVE_BOTH: /* by one frame: it frees some blocks twice */
		lp_test_ok(lpi_hand_txn(&s->rig.hand, both, 2));
		break;
	case REMOVE_OTHER_FIRST:
	case REMOVE:
	case ACTS:
		if (act == REMOVE_OTHER_FIRST)
			lp_test_ok(lpi_hand_change(&s->rig.hand, removal(other)));
		settle(s);
		lp_test_ok(lpi_hand_change(&s->rig.hand, removal(damaged)));
		lp_test_err(-ENOENT, lpi_hand_stat(&s->rig.hand, damaged, &attrs));
		break;
	}
}

/* --- The whole -------------------------------------------------------------------------------- */

static void reopen(struct scene *s, bool is_crash)
{
	int err = lpi_store_rig_close(&s->rig, is_crash);
	assert_true(err == 0 || is_crash);
	lp_test_ok(lpi_store_rig_open(&s->rig));
}

static struct lp_ino new_ino(uint64_t nr)
{
	return (struct lp_ino){200 + nr};
}

/* Some fit just where blocks were lost. */
static uint64_t new_cnt(uint64_t nr)
{
	return nr % 2 == 0 ? 2 : 40;
}

static void write_news(struct scene *s)
{
	for (uint64_t i = 0; i < NEWS; i++)
		write_file(s, new_ino(i), s->new_bytes + i * LP_BLOCK_BYTES, new_cnt(i));
}

static void assert_rest(struct scene *s, enum damage damage, enum act act)
{
	uint8_t got[LP_BLOCK_BYTES];
	if (act == ELSEWHERE && !s->is_set_aside) {
		assert_is(s, damaged, s->old_bytes, 1);
		assert_int_equal(read_block(s, damaged, ELSEWHERE_AT, false, got), LP_BLOCK_BYTES);
	}
	if (act == CUT_INSIDE && damage != OUTSIDE)
		assert_is_cut(s);
	if (act == DIRECT || act == DEFERRED)
		assert_is(s, damaged, s->new_bytes, s->blocks);
	assert_is(s, sound, s->old_bytes, s->blocks);
	for (uint64_t i = 0; i < NEWS; i++)
		assert_is(s, new_ino(i), s->new_bytes + i * LP_BLOCK_BYTES, new_cnt(i));
}

/* The damaged blocks, and what was left taken because of them. */
static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	(void)events;
	switch (finding->kind) {
	case LP_FSCK_UNTAKEN:
	case LP_FSCK_TWICE:
	case LP_FSCK_OUTSIDE:
	case LP_FSCK_LEAK:
	case LP_FSCK_DATA:
		return;
	default:
		break;
	}
	if (lpi_store_rig_is_serious(finding->kind)) {
		print_error("fsck: %s: %s: %s\n", lp_fsck_kind_name(finding->kind), finding->object,
			    finding->text);
		fail();
	}
}

static void start(struct scene *s, uint64_t seed)
{
	uint64_t bytes = (LARGE + NEWS) * LP_BLOCK_BYTES;
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	s->old_bytes = calloc(2, bytes);
	assert_non_null(s->old_bytes);
	s->new_bytes = s->old_bytes + bytes;
	lpi_store_rig_start(&s->rig, seed);
	/* What is deferred goes with its block when that is freed. */
	lp_store_set_write_path(s->rig.hand.store, LP_PATH_DIRECT);
	if (!s->is_set_aside)
		lp_prng_fill(&prng, s->old_bytes, bytes);
	lp_prng_fill(&prng, s->new_bytes, bytes);
	write_file(s, other, s->old_bytes, s->blocks);
	write_file(s, sound, s->old_bytes, s->blocks);
	if (!s->is_set_aside) {
		write_file(s, damaged, s->old_bytes, s->blocks);
		return;
	}
	create(s, damaged);
	lp_test_ok(change_range(s, LP_CHANGE_PREALLOC, 0, s->blocks * LP_BLOCK_BYTES));
	lp_test_ok(change_range(s, LP_CHANGE_TRUNCATE, s->blocks * LP_BLOCK_BYTES, 0));
}

static void run(uint64_t seed, uint32_t blocks, bool is_set_aside, enum damage damage, enum act act)
{
	struct scene s = {.blocks = blocks, .is_set_aside = is_set_aside};
	start(&s, seed);
	print_message("%s, %s, %u blocks%s, seed %llu\n", damage_names[damage], act_names[act],
		      blocks, is_set_aside ? " set aside" : "", (unsigned long long)seed);
	do_damage(&s, damage);
	if (seed % 2 == 0)
		reopen(&s, false);
	do_act(&s, damage, act);
	if (act == REMOVE_BOTH)
		reopen(&s, true); /* a replay frees them as often */
	write_news(&s);
	assert_rest(&s, damage, act);
	reopen(&s, seed % 2 == 1);
	assert_rest(&s, damage, act);
	if (act == READ || act == SCRUB)
		(void)judge(&s, damaged, act == SCRUB); /* no more than that it ends */
	lp_test_ok(lpi_store_rig_close(&s.rig, false));
	lpi_store_rig_check_all(&s.rig, found);
	lpi_store_rig_fini(&s.rig);
	free(s.old_bytes);
}

/* Two of each size; where all is slow one. */
#define SEED_FIRST (LP_ASSERT_SLOW_ON ? 2u : 1u)
#define SEED_END   (LP_ASSERT_SLOW_ON ? 4u : 5u)

static void run_all(enum damage damage)
{
	for (enum act act = READ; act < ACTS; act++) {
		for (uint64_t seed = SEED_FIRST; seed < SEED_END; seed++) {
			run(seed, seed < 3 ? SMALL : LARGE, false, damage, act);
			run(seed, seed < 3 ? LARGE : SMALL, true, damage, act);
		}
	}
}

static void test_untaken(void **state)
{
	(void)state;
	run_all(UNTAKEN);
}

static void test_twice(void **state)
{
	(void)state;
	run_all(TWICE);
}

static void test_outside(void **state)
{
	(void)state;
	run_all(OUTSIDE);
}

/* What the damaged map names is given away in the very frame that would free it. */
static void test_given_away_at_once(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < (LP_ASSERT_SLOW_ON ? 3 : 7); seed++) {
		struct scene s = {.blocks = SMALL};
		struct lpi_pay pay;
		start(&s, seed);
		do_damage(&s, UNTAKEN);
		reopen(&s, false);
		create(&s, cloned);
		lp_store_set_write_path(s.rig.hand.store, LP_PATH_DEFERRED);
		const uint64_t length = 2 * LP_BLOCK_BYTES;
		assert_true(
			lpi_pay_make(&pay, s.rig.hand.bufs, s.new_bytes, 0, length, LP_BUF_SMALL));
		const struct lp_change change = lpi_write_change(cloned, 0, length, &pay);
		const struct lp_change gone = removal(damaged);
		struct lp_store_op write = lpi_txn_op(&change, 1);
		struct lp_store_op remove = lpi_txn_op(&gone, 1);
		remove.complete = lpi_hand_complete;
		lp_store_submit(s.rig.hand.store, &remove);
		write.complete = lpi_hand_complete;
		lp_store_submit(s.rig.hand.store, &write);
		settle(&s);
		for (int i = 0; i < 1000; i++)
			lpi_hand_turn(&s.rig.hand);
		lp_test_ok(write.result);
		lp_test_ok(remove.result);
		lpi_pay_drop(&pay);
		assert_is(&s, cloned, s.new_bytes, 2);
		reopen(&s, true);
		assert_is(&s, cloned, s.new_bytes, 2);
		assert_is(&s, sound, s.old_bytes, SMALL);
		lp_test_ok(lpi_store_rig_close(&s.rig, false));
		lpi_store_rig_check_all(&s.rig, found);
		lpi_store_rig_fini(&s.rig);
		free(s.old_bytes);
	}
}

/* Not even the file's own map, in another leaf: each of its extents is counted when it is cloned,
 * so nothing is given away while one is left (rule S4). */
static void test_twice_in_one_file(void **state)
{
	(void)state;
	struct scene s = {.blocks = LARGE};
	struct lp_store_health health;
	uint32_t crcs[2];
	start(&s, 1);
	struct lp_extmap_segment segment = look_up(&s, damaged, 1, 2, crcs);
	name_blocks(&s, damaged, LARGE - 2, (struct lp_extent){segment.block, 2}, crcs);
	memcpy(s.new_bytes, s.old_bytes, LARGE * LP_BLOCK_BYTES);
	memcpy(s.new_bytes + (LARGE - 2) * LP_BLOCK_BYTES, s.old_bytes + LP_BLOCK_BYTES,
	       2 * LP_BLOCK_BYTES);
	share(&s, TWICE);
	assert_is(&s, cloned, s.new_bytes, LARGE);
	lp_test_ok(lpi_hand_change(&s.rig.hand, removal(damaged)));
	write_news(&s);
	assert_is(&s, cloned, s.new_bytes, LARGE);
	assert_rest(&s, TWICE, REMOVE);
	lp_store_read_health(s.rig.hand.store, &health);
	assert_int_equal(health.state, LP_STORE_OK);
	lp_test_ok(lpi_store_rig_close(&s.rig, false));
	lpi_store_rig_check(&s.rig); /* shared it is no damage any more */
	lpi_store_rig_fini(&s.rig);
	free(s.old_bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_untaken),           cmocka_unit_test(test_twice),
		cmocka_unit_test(test_outside),           cmocka_unit_test(test_given_away_at_once),
		cmocka_unit_test(test_twice_in_one_file),
	};
	return lp_test_main(tests, "store/block/write/bad_map");
}
