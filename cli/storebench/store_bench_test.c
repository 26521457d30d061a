/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: each operation is run as often as asked for, what verify looks at is looked at, and the
 * store is left as it was found.
 * Method: a store in memory on a reactor without ring; then the same with a block changed, an
 * object cut, removed or made again behind the benchmark's back, each of which must be noticed. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "cli/storebench/store_bench_impl.h"

#define BUFS_BYTES (UINT64_C(128) << 20)

struct rig {
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store;
	struct lpi_benchmark *bench;
	uint64_t empty_blocks; /* what the buffers of an empty store count as */
	struct lpi_bench_result result;
};

static struct rig the_rig;

static struct lpi_bench_options options_of(enum lpi_bench_kind kind, uint32_t size_bytes)
{
	return (struct lpi_bench_options){
		.kind = kind,
		.size_bytes = size_bytes,
		.depth = 8,
		.objects_cnt = 4,
		.object_bytes = 16 * (uint64_t)size_bytes,
		.ops_max = 300,
		.seed = 5,
		.run_nr = 99,
		.verify = true,
	};
}

static uint64_t used_blocks(struct rig *rig)
{
	struct lp_store_stats stats;
	lp_store_read_stats(rig->store, &stats);
	return stats.used_blocks;
}

static int set_up(void **state)
{
	const struct lp_reactor_options reactor = {.name = "test"};
	struct rig *rig = &the_rig;
	*rig = (struct rig){.bench = NULL};
	lp_test_ok(lp_reactor_new(&reactor, &rig->reactor));
	lp_test_ok(lp_reactor_start(rig->reactor));
	lp_test_ok(lp_bufs_new(BUFS_BYTES, &rig->bufs));
	const struct lp_store_options store = {.reactor = rig->reactor, .bufs = rig->bufs};
	lp_test_ok(lp_store_open_mem(&store, &rig->store));
	rig->empty_blocks = used_blocks(rig);
	*state = rig;
	return 0;
}

static int tear_down(void **state)
{
	struct rig *rig = *state;
	lp_test_ok(lp_store_close(rig->store, false));
	lpi_bench_free(rig->bench);
	lp_bufs_free(rig->bufs);
	lp_reactor_free(rig->reactor);
	return 0;
}

static bool make_bench(struct rig *rig, const struct lpi_bench_options *options)
{
	bool made = false;
	lpi_bench_free(rig->bench);
	rig->bench = NULL;
	assert_null(lpi_bench_fault(options));
	assert_true(lpi_bench_bufs_bytes(options) <= BUFS_BYTES);
	lp_test_ok(lpi_bench_new(options, rig->reactor, rig->bufs, &rig->bench));
	lpi_bench_use(rig->bench, rig->store);
	lp_test_ok(lpi_bench_prepare(rig->bench, &made));
	return made;
}

/* --- That it works ---------------------------------------------------------------------------- */

static void run_all(struct rig *rig, const struct lpi_bench_options *options)
{
	lp_test_ok(lpi_bench_warm(rig->bench));
	lp_test_ok(lpi_bench_measure(rig->bench, &rig->result));
	assert_int_equal(rig->result.errors, 0);
	assert_true(rig->result.ops ==
		    (options->kind == LPI_BENCH_DELETE ? options->objects_cnt : options->ops_max));
	assert_true(rig->result.latency_ns.count == rig->result.ops);
	lp_test_ok(lpi_bench_check(rig->bench));
}

static void test_all_kinds(void **state)
{
	struct rig *rig = *state;
	static const uint32_t sizes[] = {512, 4096, 12288};
	const size_t kind_cnt = LPI_BENCH_KIND_CNT;
	for (size_t i = 0; i < kind_cnt * 2 * LP_ARRAY_SIZE(sizes); i++) {
		enum lpi_bench_kind kind = (enum lpi_bench_kind)(i % kind_cnt);
		struct lpi_bench_options options = options_of(kind, sizes[i / kind_cnt / 2]);
		options.verify = i / kind_cnt % 2 == 0;
		assert_true(make_bench(rig, &options));
		run_all(rig, &options);
		assert_string_equal(lpi_bench_why(rig->bench), "");
		lp_test_ok(lpi_bench_clean(rig->bench));
		/* The store counts all buffers, those of the pattern too. */
		uint64_t pattern = options.verify ? 0 : LPI_BENCH_PATTERN_BLOCKS;
		assert_int_equal(used_blocks(rig), rig->empty_blocks + pattern);
	}
}

/* Reads longer than the store's limit are several at once; objects longer than a chunk are filled
 * by several writes. */
static void test_large(void **state)
{
	struct rig *rig = *state;
	struct lpi_bench_options options = options_of(LPI_BENCH_MIXED, 4 << 20);
	options.depth = 2;
	options.objects_cnt = 1;
	options.object_bytes = 8 << 20;
	options.ops_max = 8;
	assert_true(make_bench(rig, &options));
	run_all(rig, &options);
	assert_true(rig->result.writes > 0 && rig->result.writes < 8);
}

/* A former run's objects are found, taken as they are, and completed. */
static void test_objects_stay(void **state)
{
	struct rig *rig = *state;
	struct lpi_bench_options options = options_of(LPI_BENCH_MIXED, 4096);
	assert_true(make_bench(rig, &options));
	run_all(rig, &options);
	struct lp_ino first = lpi_bench_object_ino(rig->bench, 0);
	options.run_nr++;
	assert_false(make_bench(rig, &options));
	assert_true(lpi_bench_object_ino(rig->bench, 0).nr == first.nr);
	run_all(rig, &options);
	/* More are wanted: those missing are made. */
	options.run_nr++;
	options.objects_cnt = 9;
	assert_true(make_bench(rig, &options));
	assert_true(lpi_bench_object_ino(rig->bench, 0).nr == first.nr);
	run_all(rig, &options);
	/* Of another size: others. The directory is then not empty when these go. */
	struct lpi_bench_options others = options_of(LPI_BENCH_STAT, 512);
	assert_true(make_bench(rig, &others));
	run_all(rig, &others);
	lp_test_ok(lpi_bench_clean(rig->bench));
	assert_true(used_blocks(rig) > rig->empty_blocks);
	options.run_nr++;
	assert_false(make_bench(rig, &options));
	lp_test_ok(lpi_bench_clean(rig->bench));
	assert_int_equal(used_blocks(rig), rig->empty_blocks);
}

static void test_names(void **state)
{
	struct rig *rig = *state;
	struct lpi_bench_options options = options_of(LPI_BENCH_STAT, 4096);
	char name[LPI_BENCH_NAME_BYTES];
	(void)make_bench(rig, &options);
	for (uint64_t i = 0; i < 1000; i++) {
		uint64_t index = i * i * i;
		lpi_bench_object_name(rig->bench, index, name);
		struct lp_bytes bytes = {name, (uint32_t)strlen(name)};
		assert_true(lpi_bench_object_index(rig->bench, bytes) == index);
		bytes.len--;
		assert_true(lpi_bench_object_index(rig->bench, bytes) == UINT64_MAX);
		lpi_bench_object_name(rig->bench, index | LPI_BENCH_CREATED, name);
		bytes.len = (uint32_t)strlen(name);
		assert_true(lpi_bench_object_index(rig->bench, bytes) == UINT64_MAX);
	}
}

static void test_faults(void **state)
{
	(void)state;
	struct lpi_bench_options good = options_of(LPI_BENCH_READ, 4096);
	assert_null(lpi_bench_fault(&good));
	const struct {
		uint64_t size;
		uint64_t object;
		uint32_t depth;
		uint64_t objects;
		bool is_good;
	} cases[] = {
		{4096, 4096, 1, 1, true},        {64, 64, 1024, 1, true},
		{4 << 20, 4 << 20, 1, 1, true},  {32, 4096, 1, 1, false},
		{96, 96, 1, 1, false},           {4100, 4100, 1, 1, false},
		{8 << 20, 8 << 20, 1, 1, false}, {4096, 6144, 1, 1, false},
		{2048, 6144, 1, 1, false},       {2048, 8192, 1, 1, true},
		{4096, 4096, 0, 1, false},       {4096, 4096, 1025, 1, false},
		{4096, 4096, 1, 0, false},       {4096, 1ULL << 44, 1, 1, false},
		{4096, 1ULL << 41, 1, 1, true},  {4096, 0, 1, 1, false},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_bench_options options = good;
		options.size_bytes = cases[i].size;
		options.object_bytes = cases[i].object;
		options.depth = cases[i].depth;
		options.objects_cnt = cases[i].objects;
		assert_int_equal(lpi_bench_fault(&options) == NULL, cases[i].is_good);
	}
	assert_int_equal(lpi_bench_kind_parse("nothing"), -1);
	for (int i = 0; i < LPI_BENCH_KIND_CNT; i++) {
		enum lpi_bench_kind kind = (enum lpi_bench_kind)i;
		assert_int_equal(lpi_bench_kind_parse(lpi_bench_kind_name(kind)), i);
	}
}

/* --- That it notices -------------------------------------------------------------------------- */

enum harm {
	HARM_NONE,
	HARM_OTHER_BYTES, /* not a cell */
	HARM_OLD,         /* what was there before */
	HARM_OF_FUTURE,
	HARM_ELSEWHERE, /* a cell of another place */
	HARM_OTHER_RUN,
	HARM_CUT,
	HARM_REMOVED,
	HARM_CNT
};

static void change(struct rig *rig, const struct lp_change *what)
{
	struct lpi_bench_call call = {.op = {.opcode = LP_STORE_TXN}};
	call.op.txn.changes = what;
	call.op.txn.change_cnt = 1;
	lp_test_ok(lpi_bench_call(rig->bench, &call));
}

static void write_cell(struct rig *rig, struct lp_ino ino, const struct lpi_bench_cell *cell,
		       bool noise)
{
	struct lp_buf *buf = lp_buf_new(rig->bufs, 4096);
	assert_non_null(buf);
	lpi_bench_cell_fill(buf->data, 4096, cell);
	buf->data[1000] ^= noise;
	const struct lp_seg seg = {buf, 0, 4096};
	uint32_t crc = lp_crc32c(0, buf->data, 4096);
	const struct lp_change write = {
		.type = LP_CHANGE_WRITE,
		.ino = ino,
		.data = {.offset = 8192, .length = 4096, .payload = {&seg, &crc, 1, 1}},
	};
	change(rig, &write);
	lp_buf_put(buf);
}

static void do_harm(struct rig *rig, enum harm harm)
{
	struct lp_ino ino = lpi_bench_object_ino(rig->bench, 2);
	uint32_t newest = *lpi_bench_generation(rig->bench, 2, 8192);
	struct lpi_bench_cell cell = {.run = 99, .object = 2, .place = 8192, .generation = newest};
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = 65536 - 4096}};
	const struct lp_change removed = {.type = LP_CHANGE_REMOVE, .ino = ino};
	cell.generation -= harm == HARM_OLD;
	cell.generation += harm == HARM_OF_FUTURE;
	cell.place += harm == HARM_ELSEWHERE ? 4096 : 0;
	cell.run -= harm == HARM_OTHER_RUN;
	if (harm == HARM_CUT)
		change(rig, &cut);
	else if (harm == HARM_REMOVED)
		change(rig, &removed);
	else
		write_cell(rig, ino, &cell, harm == HARM_OTHER_BYTES);
}

static void test_harm_is_noticed(void **state)
{
	struct rig *rig = *state;
	for (int i = 0; i < HARM_CNT; i++) {
		enum harm harm = (enum harm)i;
		struct lpi_bench_options options = options_of(LPI_BENCH_MIXED, 4096);
		(void)make_bench(rig, &options);
		run_all(rig, &options);
		do_harm(rig, harm);
		int err = lpi_bench_check(rig->bench);
		lp_test_result(err,
			       harm == HARM_NONE      ? 0
			       : harm == HARM_REMOVED ? -ENOENT
						      : -EBADMSG,
			       "check", __FILE__, __LINE__);
		assert_int_equal(strlen(lpi_bench_why(rig->bench)) > 0, harm != HARM_NONE);
		if (harm == HARM_REMOVED)
			break;
		lp_test_ok(lpi_bench_clean(rig->bench));
	}
}

/* Measured reads look as well, not only the last phase; the first error ends the run. */
static void test_reads_look(void **state)
{
	struct rig *rig = *state;
	struct lpi_bench_options options = options_of(LPI_BENCH_SEQREAD, 4096);
	(void)make_bench(rig, &options);
	do_harm(rig, HARM_OTHER_BYTES);
	lp_test_err(-EBADMSG, lpi_bench_measure(rig->bench, &rig->result));
	assert_int_equal(rig->result.errors, 1);
	assert_true(rig->result.ops < options.ops_max);
}

static void test_created_and_deleted_are_checked(void **state)
{
	struct rig *rig = *state;
	struct lpi_bench_options options = options_of(LPI_BENCH_CREATE, 4096);
	(void)make_bench(rig, &options);
	run_all(rig, &options);
	const struct lp_change removed = {
		.type = LP_CHANGE_REMOVE,
		.ino = lpi_bench_object_ino(rig->bench, 17 | LPI_BENCH_CREATED)};
	change(rig, &removed);
	lp_test_err(-ENOENT, lpi_bench_check(rig->bench));

	options = options_of(LPI_BENCH_DELETE, 4096);
	(void)make_bench(rig, &options);
	run_all(rig, &options);
	/* As if the deletion of one had been lost. */
	struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .nlink = 1};
	const struct lp_change again = {.type = LP_CHANGE_CREATE,
					.ino = lpi_bench_object_ino(rig->bench, 3),
					.inode = {.attrs = &attrs}};
	change(rig, &again);
	lp_test_err(-EUCLEAN, lpi_bench_check(rig->bench));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_all_kinds, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_large, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_objects_stay, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_names, set_up, tear_down),
		cmocka_unit_test(test_faults),
		cmocka_unit_test_setup_teardown(test_harm_is_noticed, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_reads_look, set_up, tear_down),
		cmocka_unit_test_setup_teardown(test_created_and_deleted_are_checked, set_up,
						tear_down),
	};
	return lp_test_main(tests, "cli/storebench/store_bench");
}
