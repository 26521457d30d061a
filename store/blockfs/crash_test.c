/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever instant the power fails or the process dies, in format, create, append, sync,
 * rename, delete and snapshots, what was acknowledged is there and right, an unfinished change is
 * whole or absent, and no block is lost (rules L8, S1, S5, S7).
 * Method: random operations on the simulated device with a model that remembers the state after
 * each; cuts at every event, several outcomes each, then recovery, comparison, further use, and a
 * second cut; a failing write or flush at every place. All seeded. */
#include "store/blockfs/blockfs_rig_test.h"

#define NAME_CNT   6u
#define STEP_CNT   110u
#define HALF       16u
#define CHUNK_CNT  6u
#define OPEN_MAX   3u
#define SIZE_LIMIT UINT64_C(100000)

/* --- The model -------------------------------------------------------------------------------- */

/* What a name leads to. */
struct model_file {
	bool exists;
	uint64_t seed;
	uint64_t published; /* readable and durable */
};

struct model_state {
	struct model_file files[NAME_CNT];
};

struct model_writer {
	struct lp_blockfs_writer *writer;
	uint64_t seed;
	uint64_t appended;
	int name_idx; /* -1: deleted or replaced since */
};

struct model {
	struct model_state after[STEP_CNT + 1];
	uint64_t event[STEP_CNT + 1]; /* of the device, when the step had returned */
	struct model_writer writers[OPEN_MAX];
	uint64_t next_seed;
	struct lp_prng prng;
	struct lpi_fs_bench bench;
	uint64_t old_cnt;
	uint64_t new_cnt;
};

static const char *const names[NAME_CNT] = {"CURRENT", "MANIFEST-1", "1.sst",
					    "2.sst",   "3.sst",      "OPTIONS"};

static void model_forget(struct model *model, unsigned name_idx)
{
	for (unsigned i = 0; i < OPEN_MAX; i++)
		if (model->writers[i].name_idx == (int)name_idx)
			model->writers[i].name_idx = -1;
}

static void step_create(struct model *model, struct model_state *now, unsigned name_idx)
{
	unsigned slot = 0;
	while (slot < OPEN_MAX && model->writers[slot].writer != NULL)
		slot++;
	if (slot == OPEN_MAX)
		return;
	struct model_writer *writer = &model->writers[slot];
	lp_test_ok(lp_blockfs_create(model->bench.fs, names[name_idx], false, &writer->writer));
	model_forget(model, name_idx);
	writer->seed = ++model->next_seed;
	writer->appended = 0;
	writer->name_idx = (int)name_idx;
	now->files[name_idx] = (struct model_file){.exists = true, .seed = writer->seed};
}

static void step_append(struct model *model, struct model_writer *writer)
{
	uint64_t len =
		lp_prng_below(&model->prng, UINT64_C(1) << lp_prng_between(&model->prng, 2, 18));
	if (writer->writer == NULL || writer->appended + len > SIZE_LIMIT)
		return;
	lp_test_ok(lpi_fs_append(writer->writer, writer->seed, len));
	writer->appended += len;
}

static void step_sync(struct model *model, struct model_state *now, struct model_writer *writer,
		      bool finish)
{
	(void)model;
	if (writer->writer == NULL)
		return;
	lp_test_ok(finish ? lp_blockfs_finish(writer->writer) : lp_blockfs_sync(writer->writer));
	if (finish)
		writer->writer = NULL;
	if (writer->name_idx >= 0)
		now->files[writer->name_idx].published = writer->appended;
}

static void step_rename(struct model *model, struct model_state *now, unsigned from, unsigned to)
{
	int err = lp_blockfs_rename(model->bench.fs, names[from], names[to]);
	assert_int_equal(err, now->files[from].exists ? 0 : -ENOENT);
	if (err < 0 || from == to)
		return;
	model_forget(model, to);
	for (unsigned i = 0; i < OPEN_MAX; i++)
		if (model->writers[i].name_idx == (int)from)
			model->writers[i].name_idx = (int)to;
	now->files[to] = now->files[from];
	now->files[from] = (struct model_file){.exists = false};
}

static void step_delete(struct model *model, struct model_state *now, unsigned name_idx)
{
	int err = lp_blockfs_delete(model->bench.fs, names[name_idx]);
	assert_int_equal(err, now->files[name_idx].exists ? 0 : -ENOENT);
	model_forget(model, name_idx);
	now->files[name_idx] = (struct model_file){.exists = false};
}

static void model_step(struct model *model, struct model_state *now)
{
	unsigned name_idx = (unsigned)lp_prng_below(&model->prng, NAME_CNT);
	struct model_writer *writer = &model->writers[lp_prng_below(&model->prng, OPEN_MAX)];
	switch (lp_prng_below(&model->prng, 10)) {
	case 0:
	case 1:
		step_create(model, now, name_idx);
		break;
	case 2:
	case 3:
	case 4:
		step_append(model, writer);
		break;
	case 5:
	case 6:
		step_sync(model, now, writer, false);
		break;
	case 7:
		step_sync(model, now, writer, true);
		break;
	case 8:
		step_rename(model, now, name_idx, (unsigned)lp_prng_below(&model->prng, NAME_CNT));
		break;
	default:
		step_delete(model, now, name_idx);
		break;
	}
}

/* Whether the file system is in that state, every byte compared. */
static bool model_holds(struct lp_blockfs *fs, const struct model_state *want)
{
	for (unsigned i = 0; i < NAME_CNT; i++) {
		const struct model_file *file = &want->files[i];
		uint64_t size = 0;
		int err = lp_blockfs_stat(fs, names[i], &size, NULL);
		if (file->exists != (err == 0) || (err == 0 && size != file->published))
			return false;
	}
	for (unsigned i = 0; i < NAME_CNT; i++) {
		if (want->files[i].exists)
			assert_int_equal(lpi_fs_get(fs, names[i], want->files[i].seed),
					 want->files[i].published);
	}
	return true;
}

static void model_run(struct model *model)
{
	for (unsigned i = 0; i < OPEN_MAX; i++)
		model->writers[i].name_idx = -1;
	model->event[0] = lp_sim_event_count(lp_sim_of(model->bench.data));
	for (unsigned i = 1; i <= STEP_CNT; i++) {
		model->after[i] = model->after[i - 1];
		model_step(model, &model->after[i]);
		model->event[i] = lp_sim_event_count(lp_sim_of(model->bench.data));
		if (i % 8 == 0)
			assert_true(model_holds(model->bench.fs, &model->after[i]));
		lp_test_ok(lp_blockfs_check(model->bench.fs));
	}
	for (unsigned i = 0; i < OPEN_MAX; i++)
		lp_blockfs_abandon(model->writers[i].writer);
}

/* --- Cuts ------------------------------------------------------------------------------------ */

/* The bench with another device below, opened. */
static struct lpi_fs_bench bench_on(const struct lpi_fs_bench *bench, struct lp_bdev *bdev)
{
	struct lpi_fs_bench other = *bench;
	other.data = bdev;
	lp_test_ok(lpi_fs_try_open(&other));
	return other;
}

static void model_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	struct model *model = opaque;
	unsigned step = 0;
	while (step < STEP_CNT && model->event[step + 1] <= event)
		step++;
	struct lpi_fs_bench bench = bench_on(&model->bench, left);
	lp_test_ok(lp_blockfs_check(bench.fs));
	bool is_old = model_holds(bench.fs, &model->after[step]);
	bool is_new = step < STEP_CNT && model_holds(bench.fs, &model->after[step + 1]);
	assert_true(is_old || is_new);
	*(is_old ? &model->old_cnt : &model->new_cnt) += 1;
	/* It can be used, and what recovery found outlives a second cut. */
	lp_test_ok(lpi_fs_put(bench.fs, "after", 99, 9000));
	lp_test_ok(lp_blockfs_delete(bench.fs, "after"));
	lp_test_ok(lpi_fs_put(bench.fs, "after", 98, 700));
	lpi_fs_close(&bench);
	struct lp_bdev *again = lp_sim_power_cut(lp_sim_of(left), event + 1);
	bench = bench_on(&model->bench, again);
	assert_true(model_holds(bench.fs, &model->after[is_old ? step : step + 1]));
	assert_int_equal(lpi_fs_get(bench.fs, "after", 98), 700);
	lp_test_ok(lp_blockfs_check(bench.fs));
	lpi_fs_close(&bench);
	lp_bdev_close(again);
}

/* Rules L8, S1: random operations, cut at every event. The small journal makes for snapshots. */
static void test_model_cuts(void **state)
{
	(void)state;
	uint64_t snapshot_cnt = 0;
	for (uint64_t seed = 0; seed < 4; seed++) {
		static struct model model;
		memset(&model, 0, sizeof(model));
		lp_prng_init(&model.prng, seed);
		lpi_fs_setup(&model.bench,
			     lpi_disk_sim(LP_FS_BLOCKS(CHUNK_CNT) * LP_BLOCK_BYTES,
					  (enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT), seed),
			     NULL, HALF);
		model_run(&model);
		snapshot_cnt += lpi_fs_stats(model.bench.fs).snapshot_cnt;
		lp_test_ok(lp_blockfs_check(model.bench.fs));
		lpi_fs_close(&model.bench);
		(void)lpi_disk_cut_everywhere(model.bench.data, model.event[0], 2, model_check,
					      &model);
		assert_true(model.old_cnt > 0 && model.new_cnt > 0);
		lp_bdev_close(model.bench.data);
	}
	assert_true(snapshot_cnt >= 4);
}

/* Long runs without cutting at each event, but with a cut now and then, going on after it. */
static void test_model_long(void **state)
{
	(void)state;
	for (uint64_t seed = 100; seed < 104; seed++) {
		static struct model model;
		memset(&model, 0, sizeof(model));
		lp_prng_init(&model.prng, seed);
		lpi_fs_setup(&model.bench,
			     lpi_disk_sim(LP_FS_BLOCKS(CHUNK_CNT) * LP_BLOCK_BYTES,
					  (enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT), seed),
			     NULL, HALF);
		for (unsigned round = 0; round < 12; round++) {
			model_run(&model);
			memset(model.writers, 0, sizeof(model.writers));
			model.after[0] = model.after[STEP_CNT];
			lpi_fs_close(&model.bench);
			struct lp_bdev *left =
				round % 3 == 2
					? lp_sim_process_crash(lp_sim_of(model.bench.data), round)
					: lp_sim_power_cut(lp_sim_of(model.bench.data), round);
			lp_bdev_close(model.bench.data);
			model.bench.data = left;
			lp_test_ok(lpi_fs_try_open(&model.bench));
			assert_true(model_holds(model.bench.fs, &model.after[0]));
		}
		lpi_fs_teardown(&model.bench);
	}
}

static void format_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	(void)event;
	struct lpi_fs_bench *bench = opaque;
	struct lpi_fs_bench other = *bench;
	other.data = left;
	int err = lpi_fs_try_open(&other);
	if (err == 0) {
		assert_int_equal(lpi_fs_stats(other.fs).file_cnt, 0);
		lp_test_ok(lpi_fs_put(other.fs, "a", 1, 5000));
	}
	lpi_fs_close(&other);
	/* Whatever was left, it can be formatted. */
	other.options.journal_bdev = left;
	lp_test_ok(lp_chunks_format(left, &other.label));
	lp_test_ok(lp_blockfs_format(&other.options));
	lp_test_ok(lpi_fs_try_open(&other));
	assert_int_equal(lpi_fs_stats(other.fs).file_cnt, 0);
	lpi_fs_close(&other);
}

static void test_format_cuts(void **state)
{
	(void)state;
	struct lpi_fs_bench bench;
	lpi_fs_setup(&bench, lpi_disk_sim(LP_FS_BLOCKS(4) * LP_BLOCK_BYTES, LP_SIM_HOSTILE, 1),
		     NULL, HALF);
	lpi_fs_close(&bench);
	(void)lpi_disk_cut_everywhere(bench.data, 0, 5, format_check, &bench);
	lp_bdev_close(bench.data);
}

#define BIG_HALF 110u

/* What an unfinished snapshot of many frames left does not trouble the next one, of few. */
static void unfinished_check(struct lp_bdev *left, uint64_t event, void *opaque)
{
	(void)event;
	char name[16];
	struct lpi_fs_bench bench = bench_on(opaque, left);
	lp_test_ok(lp_blockfs_delete(bench.fs, "f3"));
	for (unsigned i = 4; lpi_fs_stats(bench.fs).snapshot_cnt == 0; i++) {
		(void)snprintf(name, sizeof(name), "f%u", i);
		lp_test_ok(lp_blockfs_rename(bench.fs, name, "y"));
	}
	lpi_fs_close(&bench);
	bench = bench_on(opaque, left);
	assert_int_equal(lpi_fs_get(bench.fs, "f2", 2), 1000);
	assert_int_equal(lpi_fs_get(bench.fs, "f1", 1), 1000);
	lpi_fs_close(&bench);
}

/* phase: so many blocks are written before, that in one phase the record that needs the snapshot
 * has two blocks, and the delete of f3 after the cut still fits into the one that is left. */
static void unfinished_snapshot(unsigned phase)
{
	struct lpi_fs_bench bench;
	char name[16];
	lpi_fs_setup(&bench, lpi_disk_sim(LP_FS_BLOCKS(2) * LP_BLOCK_BYTES, LP_SIM_CONSUMER, 1),
		     NULL, BIG_HALF);
	/* A snapshot's first frame ends with the file that makes it 256 KiB. One more file makes a
	 * second frame; without f3, whose record is longer than a block, there is none, and the
	 * first is shorter. What an unfinished snapshot left of the second is then beyond the end.
	 */
	bool over = false;
	for (unsigned i = 0; !over; i++) {
		over = lpi_fs_stats(bench.fs).journal_live_bytes >= 256 * LP_KIB;
		(void)snprintf(name, sizeof(name), "f%u", i);
		if (i == 3) {
			struct lp_blockfs_writer *writer = NULL;
			lp_test_ok(lp_blockfs_create(bench.fs, name, true, &writer));
			lp_test_ok(lpi_fs_append(writer, i, LP_MIB - 100));
			lp_test_ok(lp_blockfs_sync(writer));
			lp_blockfs_abandon(writer);
		} else {
			lp_test_ok(lpi_fs_put(bench.fs, name, i, over ? 10 : 1000));
		}
	}
	for (unsigned i = 0; i < phase; i++)
		lp_test_ok(lp_blockfs_rename(bench.fs, i % 2 == 0 ? "f0" : "x",
					     i % 2 == 0 ? "x" : "f0"));
	struct lp_blockfs_writer *writer = NULL;
	lp_test_ok(lp_blockfs_create(bench.fs, "w", true, &writer));
	lp_test_ok(lpi_fs_append(writer, 9, 4040)); /* its tail makes records of two blocks */
	lp_test_ok(lp_blockfs_sync(writer));
	uint64_t before = lpi_fs_stats(bench.fs).snapshot_cnt;
	uint64_t from = 0;
	for (unsigned i = 0; lpi_fs_stats(bench.fs).snapshot_cnt == before; i++) {
		from = lp_sim_event_count(lp_sim_of(bench.data));
		lp_test_ok(lpi_fs_append(writer, 9, 1));
		lp_test_ok(lp_blockfs_sync(writer));
		assert_true(i < 55);
	}
	lp_blockfs_abandon(writer);
	lpi_fs_close(&bench);
	(void)lpi_disk_cut_everywhere(bench.data, from, 4, unfinished_check, &bench);
	lp_bdev_close(bench.data);
}

static void test_unfinished_snapshot(void **state)
{
	(void)state;
	for (unsigned phase = 0; phase < 2; phase++)
		unfinished_snapshot(phase);
}

/* A write or flush that fails, at every place in turn: the state is then old or new. */
static void test_fault_everywhere(void **state)
{
	(void)state;
	bool untouched = false;
	for (uint32_t skip = 0; !untouched; skip++) {
		static struct model model;
		memset(&model, 0, sizeof(model));
		lpi_fs_setup(&model.bench,
			     lpi_disk_sim(LP_FS_BLOCKS(CHUNK_CNT) * LP_BLOCK_BYTES, LP_SIM_HOSTILE,
					  skip),
			     NULL, HALF);
		struct lp_blockfs *fs = model.bench.fs;
		lp_test_ok(lpi_fs_put(fs, "CURRENT", 1, 16));
		lp_test_ok(lpi_fs_put(fs, "1.sst", 2, 300000));
		struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					   .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							  LP_SIM_OP(LP_BDEV_WRITE_THROUGH) |
							  LP_SIM_OP(LP_BDEV_FLUSH),
					   .skip_cnt = skip,
					   .fire_cnt = 1};
		uint32_t rule_idx = lp_sim_rule_add(lp_sim_of(model.bench.data), &rule);
		int put = lpi_fs_put(fs, "2.sst", 3, 600000);
		int tmp = 0;
		/* Enough records for a snapshot or two. */
		for (int i = 0; i < 20 && tmp == 0; i++)
			tmp = lpi_fs_put(fs, "tmp", 10, 17);
		int rename = lp_blockfs_rename(fs, "tmp", "CURRENT");
		int unlink = lp_blockfs_delete(fs, "1.sst");
		untouched = lp_sim_rule_fired(lp_sim_of(model.bench.data), rule_idx) == 0;
		if (untouched)
			assert_true(put == 0 && tmp == 0 && rename == 0 && unlink == 0);
		lpi_fs_close(&model.bench);
		lp_sim_rules_clear(lp_sim_of(model.bench.data));
		lp_test_ok(lpi_fs_try_open(&model.bench));
		fs = model.bench.fs;
		lp_test_ok(lp_blockfs_check(fs));
		int64_t size = lpi_fs_get(fs, "2.sst", 3);
		assert_true(size == 600000 || (put < 0 && (size == 0 || size == -ENOENT)));
		size = lpi_fs_get(fs, "1.sst", 2);
		assert_true(size == -ENOENT ? unlink != -ENOENT : unlink < 0 && size == 300000);
		/* Rename over: the old or the new, never none. */
		uint64_t got = 0;
		lp_test_ok(lp_blockfs_stat(fs, "CURRENT", &got, NULL));
		if (rename == 0)
			lp_test_err(-ENOENT, lp_blockfs_stat(fs, "tmp", NULL, NULL));
		else
			assert_true(got == 16 || got == 17);
		if (got == 16)
			assert_true(rename < 0);
		assert_int_equal(lpi_fs_get(fs, "CURRENT", got == 16 ? 1 : 10), got);
		lpi_fs_teardown(&model.bench);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model_cuts),       cmocka_unit_test(test_model_long),
		cmocka_unit_test(test_format_cuts),      cmocka_unit_test(test_unfinished_snapshot),
		cmocka_unit_test(test_fault_everywhere),
	};
	return lp_test_main(tests, "blockfs_crash");
}
