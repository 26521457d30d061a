/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a device that does one thing wrong and says nothing (it loses a write, puts it elsewhere,
 * flips bits, gives back what was there before, can no longer read a place) never makes a store
 * give back wrong data, or end: what was hit is an error, all else is served; also after a close,
 * when it is opened again, if it can be (P4; rules L1, L8, W2).
 * Method: a store on a simulated device with files beside plain arrays, written inline, deferred
 * and direct; the n-th transfer is damaged, n = 1, 2, ... in steps, with each of the kinds of
 * damage; all is read while it runs and when it was opened again. */
#include "base/testing/test_long.h"
#include "store/block/block_sim_test.h"

#define FILES      5u
#define FILE_BYTES 40000u
#define STEPS      30u
#define RUNS       (LP_ASSERT_SLOW_ON ? 6u : 20u) /* of each kind */
#define SMALL      1500u                          /* inline */

static const enum lp_sim_fault kinds[] = {LP_SIM_LOST, LP_SIM_MISDIRECT, LP_SIM_ROT, LP_SIM_LATENT,
					  LP_SIM_STALE};

struct scene {
	struct lpi_store_rig rig;
	struct lp_prng prng;
	uint8_t bytes[FILES][FILE_BYTES];
	bool is_in_doubt[FILES][FILE_BYTES]; /* it was to be written, and that failed */
};

struct outcome {
	uint32_t struck;
	uint32_t read_errors;
	uint32_t not_opened;
};

static struct scene scene;

static struct lp_ino ino_of(uint32_t file)
{
	return (struct lp_ino){100 + file};
}

static uint64_t size_of(uint32_t file)
{
	return file == 0 ? SMALL : FILE_BYTES;
}

/* --- What is done ----------------------------------------------------------------------------- */

static void write_some(struct scene *s, uint32_t file, uint64_t offset, uint64_t length)
{
	uint8_t *at = s->bytes[file] + offset;
	lp_prng_fill(&s->prng, at, length);
	lp_store_set_write_path(s->rig.hand.store,
				(enum lp_write_path)lp_prng_below(&s->prng, LP_PATH_CNT));
	int err = lpi_hand_write(&s->rig.hand, ino_of(file), offset, at, length);
	memset(s->is_in_doubt[file] + offset, err < 0, length);
}

static void write_anywhere(struct scene *s)
{
	uint32_t file = (uint32_t)lp_prng_below(&s->prng, FILES);
	uint64_t offset = lp_prng_below(&s->prng, size_of(file));
	uint64_t length = 1 + lp_prng_below(&s->prng, size_of(file) - offset);
	if (lp_prng_chance(&s->prng, 1, 2)) { /* whole blocks, or the end */
		offset &= ~(LP_BLOCK_BYTES - 1);
		length = LP_MIN(lp_align_up(length, LP_BLOCK_BYTES), size_of(file) - offset);
	}
	write_some(s, file, offset, length);
}

/* Right, or an error. */
static void read_one(struct scene *s, uint32_t file, uint64_t offset, uint64_t length,
		     struct outcome *outcome)
{
	static uint8_t got[FILE_BYTES];
	int64_t n = lpi_hand_read(&s->rig.hand, ino_of(file), offset, length, got);
	if (n < 0) {
		assert_true(n == -EBADMSG || n == -EUCLEAN || n == -EIO);
		outcome->read_errors++;
		return;
	}
	assert_int_equal(n, length);
	for (uint64_t i = 0; i < length; i++) {
		if (!s->is_in_doubt[file][offset + i])
			assert_int_equal(got[i], s->bytes[file][offset + i]);
	}
}

static void read_all(struct scene *s, struct outcome *outcome)
{
	for (uint32_t file = 0; file < FILES; file++) {
		for (uint64_t at = 0; at < size_of(file); at += LP_BLOCK_BYTES)
			read_one(s, file, at, LP_MIN(LP_BLOCK_BYTES, size_of(file) - at), outcome);
		read_one(s, file, 0, size_of(file), outcome);
	}
}

static void make_files(struct scene *s)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0600, .nlink = 1};
	for (uint32_t file = 0; file < FILES; file++) {
		const struct lp_change create = {
			.type = LP_CHANGE_CREATE, .ino = ino_of(file), .inode = {.attrs = &attrs}};
		lp_test_ok(lpi_hand_change(&s->rig.hand, create));
		write_some(s, file, 0, size_of(file));
		assert_false(s->is_in_doubt[file][0]);
	}
}

/* --- One run ---------------------------------------------------------------------------------- */

static uint32_t add_damage(struct scene *s, enum lp_sim_fault kind, uint32_t skip)
{
	struct lp_sim_rule rule = {.fault = kind, .skip_cnt = skip, .fire_cnt = 1};
	if (kind == LP_SIM_MISDIRECT)
		rule.arg = lp_prng_below(&s->prng, LPI_STORE_RIG_BYTES / 2 / LP_BLOCK_BYTES) *
			   LP_BLOCK_BYTES;
	if (kind == LP_SIM_ROT)
		rule.arg = 1 + lp_prng_below(&s->prng, 8);
	return lp_sim_rule_add(lp_sim_of(s->rig.bdev), &rule);
}

/* The device may have been hit where a start looks: then the store says so, and stays as it is. */
static bool open_again(struct scene *s)
{
	int err = lpi_store_rig_close(&s->rig, false);
	assert_true(err == 0 || err == -EIO || err == -EROFS || err == -EBADMSG || err == -EUCLEAN);
	const struct lp_devices_options devices = {.bdev = {s->rig.bdev}};
	struct lp_label_why why;
	err = lp_devices_open(&devices, &s->rig.devices, &why);
	if (err < 0)
		return false;
	struct lp_store_options options;
	lpi_store_rig_options(&s->rig, &options);
	err = lp_store_open(&options, &s->rig.hand.store);
	if (err < 0)
		lp_devices_close(&s->rig.devices);
	return err == 0;
}

static void run(uint64_t seed, enum lp_sim_fault kind, uint32_t skip, struct outcome *outcome)
{
	struct scene *s = &scene;
	memset(s, 0, sizeof(*s));
	lp_prng_init(&s->prng, seed);
	lpi_store_rig_start(&s->rig, seed);
	make_files(s);
	uint32_t rule = add_damage(s, kind, skip);
	for (uint32_t i = 0; i < STEPS; i++) {
		write_anywhere(s);
		if (i % 5 == 4)
			read_all(s, outcome);
	}
	bool is_open = open_again(s);
	outcome->not_opened += !is_open;
	if (is_open)
		read_all(s, outcome);
	outcome->struck += lp_sim_rule_fired(lp_sim_of(s->rig.bdev), rule) > 0;
	if (is_open) {
		int err = lpi_store_rig_close(&s->rig, true);
		(void)err; /* of a damaged store it does not matter */
	}
	lpi_store_rig_fini(&s->rig);
}

static void test_damage(void **state)
{
	uint32_t runs = RUNS * (uint32_t)lp_test_factor();
	struct outcome all = {0};
	(void)state;
	for (uint32_t k = 0; k < LP_ARRAY_SIZE(kinds); k++) {
		struct outcome outcome = {0};
		for (uint32_t i = 0; i < runs; i++) {
			uint64_t seed = 1 + i + lp_test_seed_shift();
			run(seed, kinds[k], i * 7, &outcome);
		}
		/* How many transfers there are depends on the seed. */
		assert_true(outcome.struck > runs / 4);
		all.struck += outcome.struck;
		all.read_errors += outcome.read_errors;
		all.not_opened += outcome.not_opened;
	}
	print_message("%u struck, %u read errors, %u not opened\n", all.struck, all.read_errors,
		      all.not_opened);
	assert_true(all.read_errors > 0);
	/* Most damage is of one object's data, or of what has a second copy. */
	assert_true(all.not_opened < all.struck / 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_damage),
	};
	return lp_test_main(tests, "store/block/write/damage");
}
