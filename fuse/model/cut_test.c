/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whenever the power fails under the mount, all promises to programs hold (rule M1). Synced
 * data is there, with its entry and the directories above it. Of the rest, each file and each
 * directory is in the order of its changes, at most 100 ms short. A name that replaced another
 * leads to the old or the new content as a whole.
 * Method: the kernel's requests, as bytes, go through channel, namespace and store to a simulated
 * device. The run is then cut at every event of the device. A machine boots with the data that is
 * left, is read through its mount, and checked. Fixed sequences, as programs do them, and random
 * ones. */
#include "base/testing/test_long.h"
#include "fuse/model/cut_model_test.h"

#define DIRS       3u
#define RANDOM_OPS 24u

static uint64_t state_cnt;

/* A run and where it may work: directories on all shards, in each a file "old". */
struct bench {
	struct lpi_cut_run run;
	uint32_t dirs[DIRS];
	uint32_t old[DIRS];
	uint64_t seed;
};

static struct bench *bench_new(uint64_t seed)
{
	static const char *const names[DIRS] = {"a", "b", "c"};
	struct bench *bench = calloc(1, sizeof(*bench));
	assert_non_null(bench);
	struct lpi_cut_run *run = &bench->run;
	bench->seed = seed;
	/* Half of them by io_uring. */
	run->machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(seed),
					   seed % 4 < 2 ? LPI_MACHINE_CHANNELS : 0, 0);
	run->kernel_idx = (uint32_t)(seed % LPI_MACHINE_CHANNELS);
	(void)lpi_cut_begin(run, "start");
	lpi_cut_end(run);
	(void)lpi_cut_object_new(run, 1, true, 0);
	for (uint32_t i = 0; i < DIRS; i++) {
		bench->dirs[i] = lpi_cut_mkdir(run, 0, names[i]);
		bench->old[i] = lpi_cut_create(run, bench->dirs[i], "old");
		lpi_cut_write(run, bench->old[i], 0, 9000);
		lpi_cut_fsync(run, bench->old[i]);
	}
	lp_sim_trim_log(lpi_machine_device(run->machine));
	return bench;
}

static void bench_free(struct bench *bench)
{
	lp_test_ok(lpi_machine_stop(bench->run.machine));
	lpi_machine_free(bench->run.machine);
	free(bench);
}

/* Cuts at each of so many events, and after a time without requests. */
static void cut_everywhere(struct bench *bench, uint64_t stride)
{
	struct lpi_cut_run *run = &bench->run;
	struct lp_sim *sim = lpi_machine_device(run->machine);
	struct lp_sim_cutter *cutter = NULL;
	struct lp_sim_event event = {.time_ns = 0};
	lpi_machine_idle(run->machine, LPI_CUT_LOST_NS);
	lp_test_ok(lp_sim_cutter_new(sim, NULL, &cutter));
	while (lp_sim_cutter_next(cutter)) {
		uint64_t at = lp_sim_cutter_event(cutter);
		lp_sim_event_get(sim, at - 1, &event);
		if (at % stride != bench->seed % stride)
			continue;
		lpi_cut_judge(run, lp_sim_cutter_cut(cutter, bench->seed * 1000 + at), at,
			      event.time_ns, at % 8 == 0);
		state_cnt++;
	}
	lpi_cut_judge(run, lp_sim_cutter_cut(cutter, bench->seed), lp_sim_event_count(sim),
		      run->machine->sim->clock.now_ns, true);
	lp_sim_cutter_free(cutter);
}

/* --- Sequences -------------------------------------------------------------------------------- */

static const uint32_t sizes[] = {100, 5000, 70000};

static void create_write_fsync(struct bench *bench)
{
	char name[8];
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		(void)snprintf(name, sizeof(name), "new%u", i);
		uint32_t file = lpi_cut_create(&bench->run, bench->dirs[0], name);
		lpi_cut_write(&bench->run, file, 0, sizes[i]);
		lpi_cut_fsync(&bench->run, file);
	}
}

/* As an editor that does not sync: in one directory, then from one to another. */
static void rename_over(struct bench *bench)
{
	for (uint32_t to = 0; to < DIRS; to++) {
		uint32_t file = lpi_cut_create(&bench->run, bench->dirs[0], "tmp");
		lpi_cut_write(&bench->run, file, 0, sizes[to]);
		lpi_cut_rename(&bench->run, bench->dirs[0], "tmp", bench->dirs[to], "old");
	}
}

/* The content is on a shard that has none of the names and not the old file. It is written at the
 * same time as the name, once the first rename has ended. */
static void rename_far(struct bench *bench)
{
	for (uint32_t to = 1; to < DIRS; to++) {
		uint32_t file = lpi_cut_create(&bench->run, bench->dirs[0], "tmp");
		lpi_cut_rename(&bench->run, bench->dirs[0], "tmp", bench->dirs[to], "tmp");
		lpi_machine_idle(bench->run.machine, LP_NS_PER_MS);
		lpi_cut_write(&bench->run, file, 0, sizes[to]);
		lpi_cut_rename(&bench->run, bench->dirs[to], "tmp", bench->dirs[to], "old");
	}
}

static void append_fsync(struct bench *bench)
{
	uint32_t at = 9000;
	for (uint32_t i = 0; i < 4; i++) {
		lpi_cut_write(&bench->run, bench->old[1], at, 700 * (i + 1));
		at += 700 * (i + 1);
		lpi_cut_write(&bench->run, bench->old[2], at, 3000);
		lpi_cut_fsync(&bench->run, bench->old[1]);
	}
}

/* Nothing is synced; a new file's name is as durable as its data. */
static void write_durable(struct bench *bench)
{
	char name[8];
	for (uint32_t i = 0; i < DIRS; i++) {
		(void)snprintf(name, sizeof(name), "new%u", i);
		uint32_t file = lpi_cut_create(&bench->run, bench->dirs[i], name);
		lpi_cut_write_durable(&bench->run, file, 0, sizes[i]);
		lpi_cut_write(&bench->run, bench->old[i], 4096, 700);
		lpi_cut_write_durable(&bench->run, bench->old[i], 0, 4096);
	}
}

static void mkdir_fsync(struct bench *bench)
{
	for (uint32_t i = 0; i < DIRS; i++) {
		uint32_t dir = lpi_cut_mkdir(&bench->run, bench->dirs[i], "dir");
		(void)lpi_cut_create(&bench->run, dir, "one");
		(void)lpi_cut_create(&bench->run, dir, "two");
		lpi_cut_fsync(&bench->run, dir);
	}
}

/* Only the file is synced, in directories that are all new. */
static void fresh_tree(struct bench *bench)
{
	uint32_t dir = bench->dirs[0];
	for (uint32_t i = 0; i < 4; i++)
		dir = lpi_cut_mkdir(&bench->run, dir, "deeper");
	uint32_t file = lpi_cut_create(&bench->run, dir, "file");
	lpi_cut_write(&bench->run, file, 0, 4096);
	lpi_cut_fsync(&bench->run, file);
}

static void unlink_fsync(struct bench *bench)
{
	for (uint32_t i = 0; i < DIRS; i++) {
		lpi_cut_remove(&bench->run, FUSE_UNLINK, bench->dirs[i], "old");
		lpi_cut_fsync(&bench->run, bench->dirs[i]);
		uint32_t again = lpi_cut_create(&bench->run, bench->dirs[i], "old");
		lpi_cut_write(&bench->run, again, 0, 50);
		lpi_cut_fsync(&bench->run, bench->dirs[i]);
	}
}

/* As the kernel writes back the pages of a mapping: in any order. */
static void pages_fsync(struct bench *bench)
{
	static const uint32_t pages[] = {7, 2, 5, 0, 11, 3, 2, 7};
	uint32_t file = bench->old[0];
	lpi_cut_truncate(&bench->run, file, 12 * 4096);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(pages); i++) {
		lpi_cut_write(&bench->run, file, pages[i] * 4096, 4096);
		if (i % 4 == 3)
			lpi_cut_fsync(&bench->run, file);
	}
}

static void tmpfile_link(struct bench *bench)
{
	for (uint32_t i = 0; i < DIRS; i++) {
		uint32_t file = lpi_cut_tmpfile(&bench->run, bench->dirs[0]);
		lpi_cut_write(&bench->run, file, 0, sizes[i]);
		if (i == 1)
			lpi_cut_fsync(&bench->run, file);
		lpi_cut_link(&bench->run, file, bench->dirs[i], "named");
		bench->run.objects[file].parent = bench->dirs[i];
		lpi_cut_fsync(&bench->run, file);
	}
}

static void cut_and_grow(struct bench *bench)
{
	uint32_t file = bench->old[2];
	lpi_cut_truncate(&bench->run, file, 5000);
	lpi_cut_write(&bench->run, file, 20000, 100);
	lpi_cut_fsync(&bench->run, file);
	lpi_cut_truncate(&bench->run, file, 0);
	lpi_cut_write(&bench->run, file, 0, 60000);
	lpi_cut_truncate(&bench->run, file, 30001);
}

/* Changes ordered long ago are there, although there was no sync. */
static void pauses(struct bench *bench)
{
	lpi_cut_write(&bench->run, bench->old[0], 0, 100);
	lpi_machine_idle(bench->run.machine, 2 * LPI_CUT_LOST_NS);
	uint32_t file = lpi_cut_create(&bench->run, bench->dirs[1], "late");
	lpi_machine_idle(bench->run.machine, 2 * LPI_CUT_LOST_NS);
	lpi_cut_write(&bench->run, file, 0, 70000);
	lpi_cut_remove(&bench->run, FUSE_UNLINK, bench->dirs[2], "old");
	lpi_machine_idle(bench->run.machine, 2 * LPI_CUT_LOST_NS);
	lpi_cut_write(&bench->run, bench->old[0], 0, 20);
}

/* At one event of so many, unless it is the long target. With a sanitizer a cut takes a hundred
 * times as long, and finds another kind of fault. */
static const struct {
	void (*run)(struct bench *bench);
	uint64_t stride;
	uint64_t slow_stride;
} sequences[] = {
	{create_write_fsync, 3, 40}, {rename_over, 3, 40}, {rename_far, 1, 10},
	{append_fsync, 3, 40},       {mkdir_fsync, 3, 40}, {fresh_tree, 3, 40},
	{unlink_fsync, 3, 40},       {pages_fsync, 3, 40}, {tmpfile_link, 3, 40},
	{cut_and_grow, 3, 40},       {pauses, 3, 40},      {write_durable, 3, 40},
};

/* Rule M1. */
static void test_sequences(void **state)
{
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(sequences); i++) {
		struct bench *bench = bench_new(i + 1 + lp_test_seed_shift());
		uint64_t usual = LP_ASSERT_SLOW_ON ? sequences[i].slow_stride : sequences[i].stride;
		sequences[i].run(bench);
		cut_everywhere(bench, lp_test_factor() == 1 ? usual : 1);
		bench_free(bench);
	}
}

/* --- Anything --------------------------------------------------------------------------------- */

static bool has_name(struct bench *bench, uint32_t dir, const char *name)
{
	return lpi_cut_find_name(lpi_cut_now(&bench->run.objects[dir]), name) != NULL;
}

static uint32_t file_at(struct bench *bench, uint32_t dir, const char *name)
{
	uint64_t node = lpi_cut_the_name(lpi_cut_now(&bench->run.objects[dir]), name)->node;
	return (uint32_t)(lpi_cut_find(&bench->run, node) - bench->run.objects);
}

static void change_file(struct bench *bench, struct lp_prng *dice, uint32_t file)
{
	uint32_t at = (uint32_t)lp_prng_below(dice, 20000);
	switch (lp_prng_below(dice, 6)) {
	case 0:
		lpi_cut_truncate(&bench->run, file, at);
		break;
	case 1:
	case 2:
		lpi_cut_fsync(&bench->run, file);
		break;
	default:
		lpi_cut_write(&bench->run, file, at, 1 + (uint32_t)lp_prng_below(dice, 40000));
		break;
	}
}

static void change_anything(struct bench *bench, struct lp_prng *dice)
{
	static const char *const names[] = {"old", "x", "y"};
	const char *name = names[lp_prng_below(dice, LP_ARRAY_SIZE(names))];
	const char *to_name = names[lp_prng_below(dice, LP_ARRAY_SIZE(names))];
	uint32_t dir = bench->dirs[lp_prng_below(dice, DIRS)];
	uint32_t to_dir = bench->dirs[lp_prng_below(dice, DIRS)];
	struct lpi_cut_run *run = &bench->run;
	run->kernel_idx = (uint32_t)lp_prng_below(dice, LPI_MACHINE_CHANNELS);
	if (lp_prng_below(dice, 8) == 0)
		lpi_machine_idle(run->machine, lp_prng_below(dice, 2 * LPI_CUT_LOST_NS));
	if (!has_name(bench, dir, name))
		(void)lpi_cut_create(run, dir, name);
	else if (lp_prng_below(dice, 3) != 0)
		change_file(bench, dice, file_at(bench, dir, name));
	else if (lp_prng_below(dice, 4) == 0)
		lpi_cut_remove(run, FUSE_UNLINK, dir, name);
	else if (dir != to_dir || name != to_name)
		lpi_cut_rename(run, dir, name, to_dir, to_name);
	else
		lpi_cut_fsync(run, dir);
}

/* Rule M1. */
static void test_anything(void **state)
{
	(void)state;
	uint64_t runs = (LP_ASSERT_SLOW_ON ? 1 : 3) * lp_test_factor();
	uint64_t first = 100 + lp_test_seed_shift();
	for (uint64_t seed = first; seed < first + runs; seed++) {
		struct bench *bench = bench_new(seed);
		struct lp_prng dice;
		lp_prng_init(&dice, seed);
		for (uint32_t i = 0; i < RANDOM_OPS; i++)
			change_anything(bench, &dice);
		cut_everywhere(bench, LP_ASSERT_SLOW_ON ? 60 : 11);
		bench_free(bench);
	}
}

static void test_tell(void **state)
{
	(void)state;
	lp_test_tell_crash_states(state_cnt);
	assert_true(state_cnt > 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sequences),
		cmocka_unit_test(test_anything),
		cmocka_unit_test(test_tell),
	};
	return lp_test_main(tests, "fuse/model/cut");
}
