/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: without threads, RocksDB does only what it is told to, and the same each time; after a
 * power cut at any change of any file the index is an exact prefix of what was written, at least
 * as long as what it had said was persisted; after an error at any change it can be resumed, and
 * has lost nothing.
 * Method: a seeded workload of batches, flushes and jobs run by hand, against a model; cuts and
 * errors at change 0, 1, 2, ... until the workload gets through. */
#include "store/index/kv_rig_test.h"

#include "base/prng.h"

enum { KEYS = 40, BATCHES = 40, CHANGES_MAX = 2000 };

static struct lp_test_kv test;

/* --- The workload ------------------------------------------------------------------------------
 */

/* What the index must hold: values[0] is 0 for absent. */
struct model {
	uint32_t applied;
	uint32_t values[KEYS];
};

/* Batch number n of a seed touches the same keys whenever it is asked for. */
static void batch_rng(uint64_t seed, uint32_t n, struct lp_prng *ret_prng)
{
	lp_prng_init(ret_prng, seed * 1000 + n);
}

static void model_apply(struct model *model, uint64_t seed, uint32_t n)
{
	struct lp_prng prng;
	batch_rng(seed, n, &prng);
	for (uint64_t i = lp_prng_between(&prng, 1, 4); i > 0; i--) {
		uint32_t key = (uint32_t)lp_prng_below(&prng, KEYS);
		model->values[key] = lp_prng_chance(&prng, 1, 4) ? 0 : n;
	}
	model->applied = n;
}

static struct lp_kv_bytes bytes_of(const char *buf)
{
	return (struct lp_kv_bytes){.data = buf, .len = strlen(buf)};
}

static int write_number(const char *key, uint32_t number)
{
	char value[300];
	memset(value, '.', sizeof(value)); /* so that memtables fill */
	memcpy(value, &number, sizeof(number));
	return lp_kv_batch_put(test.batch, bytes_of(key),
			       (struct lp_kv_bytes){.data = value, .len = sizeof(value)});
}

static int write_batch(uint64_t seed, uint32_t n)
{
	struct lp_prng prng;
	char key[16];
	batch_rng(seed, n, &prng);
	lp_kv_batch_clear(test.batch);
	for (uint64_t i = lp_prng_between(&prng, 1, 4); i > 0; i--) {
		(void)snprintf(key, sizeof(key), "k%03u", (unsigned)lp_prng_below(&prng, KEYS));
		if (lp_prng_chance(&prng, 1, 4))
			lp_test_ok(lp_kv_batch_delete(test.batch, bytes_of(key)));
		else
			lp_test_ok(write_number(key, n));
	}
	lp_test_ok(write_number("applied", n));
	return lp_kv_write(test.kv, test.batch);
}

static uint32_t number_in(struct lp_kv_bytes bytes)
{
	uint32_t number;
	assert_int_equal(bytes.len, 300);
	memcpy(&number, bytes.data, sizeof(number));
	return number;
}

static uint32_t persisted(void)
{
	struct lp_kv_value value;
	int err = lp_kv_get_persisted(test.kv, lp_test_text("applied"), &value);
	if (err == -ENOENT)
		return 0;
	if (err < 0)
		return UINT32_MAX; /* the power is off */
	uint32_t number = number_in(value.bytes);
	lp_kv_value_release(&value);
	return number;
}

static uint32_t applied(void)
{
	struct lp_kv_value value;
	int err = lp_kv_get(test.kv, lp_test_text("applied"), &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	uint32_t number = number_in(value.bytes);
	lp_kv_value_release(&value);
	return number;
}

/* All keys, by an iterator. */
static void check_against(const struct model *model)
{
	struct lp_kv_iter *iter;
	uint32_t found[KEYS] = {0};
	uint32_t found_applied = 0;
	lp_test_ok(lp_kv_iter_open(test.kv, lp_test_text(NULL), lp_test_text(NULL), false, &iter));
	int err;
	for (err = lp_kv_iter_seek_first(iter); err == 0; err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		uint32_t number = number_in(lp_kv_iter_value(iter));
		if (key.len == 7) {
			found_applied = number;
			continue;
		}
		const char *text = key.data;
		assert_int_equal(key.len, 4);
		found[(text[1] - '0') * 100 + (text[2] - '0') * 10 + (text[3] - '0')] = number;
	}
	assert_int_equal(err, -ENOENT);
	lp_kv_iter_close(iter);
	assert_int_equal(found_applied, model->applied);
	assert_memory_equal(found, model->values, sizeof(found));
}

static void check_prefix(uint64_t seed, uint32_t n)
{
	struct model model = {0};
	for (uint32_t i = 1; i <= n; i++)
		model_apply(&model, seed, i);
	check_against(&model);
}

static void run_some(struct lp_prng *prng)
{
	for (uint64_t jobs = lp_prng_below(prng, 3); jobs > 0; jobs--)
		(void)lp_kv_sim_run_one(test.kv);
}

static void open_sim(uint64_t seed)
{
	lp_test_kv_init(&test, true, seed);
	test.options.write_buffer_bytes = UINT64_C(8) << 10;
	test.options.cache_bytes = UINT64_C(16) << 10;
	lp_test_kv_open(&test);
}

/* --- Jobs --------------------------------------------------------------------------------------
 */

static void test_nothing_happens_by_itself(void **state)
{
	(void)state;
	struct lp_kvfs_mem_stats before;
	struct lp_kvfs_mem_stats after;
	open_sim(1);
	lp_test_kv_run_all(&test);
	lp_kvfs_mem_read_stats(test.mem, &before);
	for (uint32_t n = 1; n <= 12; n++)
		lp_test_ok(write_batch(1, n));
	lp_test_ok(lp_kv_flush(test.kv));
	lp_kvfs_mem_read_stats(test.mem, &after);
	assert_int_equal(after.changes, before.changes);
	assert_int_equal(persisted(), 0);
	assert_int_equal(test.flushed_cnt, 0);
	assert_true(lp_kv_sim_run_one(test.kv));
	lp_kvfs_mem_read_stats(test.mem, &after);
	assert_true(after.changes > before.changes);
	lp_test_kv_run_all(&test);
	assert_true(test.flushed_cnt > 0);
	assert_int_equal(persisted(), 12);
	check_prefix(1, 12);
	lp_test_kv_fini(&test);
}

/* With jobs waiting, closing does not hang, and what had not been flushed is not there. */
static void test_closed_with_jobs_waiting(void **state)
{
	(void)state;
	open_sim(2);
	for (uint32_t n = 1; n <= 5; n++)
		lp_test_ok(write_batch(2, n));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	for (uint32_t n = 6; n <= 9; n++)
		lp_test_ok(write_batch(2, n));
	lp_test_ok(lp_kv_flush(test.kv));
	lp_test_ok(lp_kv_close(test.kv));
	lp_test_ok(lp_kv_open(&test.options, &test.kv));
	uint32_t n = applied();
	assert_true(n == 5 || n == 9);
	check_prefix(2, n);
	lp_test_kv_fini(&test);
}

/* Nobody runs the flushes: writes are refused, and go on when somebody has. */
static void test_stall_ends_with_a_job(void **state)
{
	(void)state;
	open_sim(3);
	uint32_t n = 0;
	int err = 0;
	while (err == 0 && n < 10000)
		err = write_batch(3, ++n);
	assert_int_equal(err, -EAGAIN);
	assert_true(lp_kv_is_near_stall(test.kv));
	assert_int_equal(applied(), n - 1);
	lp_test_err(-EAGAIN, write_batch(3, n));
	lp_test_kv_run_all(&test);
	lp_test_ok(write_batch(3, n));
	assert_false(lp_kv_is_near_stall(test.kv));
	check_prefix(3, n);
	lp_test_ok(lp_kv_flush_wait(test.kv));
	assert_int_equal(persisted(), n);
	lp_test_ok(lp_kv_compact(test.kv, lp_test_text(NULL), lp_test_text(NULL)));
	check_prefix(3, n);
	lp_test_kv_fini(&test);
}

/* --- The same each time ------------------------------------------------------------------------
 */

/* Writes, flushes, jobs, reads that miss, compactions, reopening. */
static uint64_t run_all_of(uint64_t seed)
{
	struct lp_prng prng;
	struct lp_kvfs_mem_stats stats;
	struct lp_kv_value value;
	lp_prng_init(&prng, seed);
	open_sim(seed);
	for (uint32_t n = 1; n <= 400; n++) {
		while (write_batch(seed, n) == -EAGAIN)
			assert_true(lp_kv_sim_run_one(test.kv));
		if (lp_prng_chance(&prng, 1, 30))
			lp_test_ok(lp_kv_flush_wait(test.kv));
		if (lp_prng_chance(&prng, 1, 5) &&
		    lp_kv_get(test.kv, lp_test_text("k007"), &value) == 0)
			lp_kv_value_release(&value);
		if (n == 200) {
			lp_test_ok(lp_kv_close(test.kv));
			lp_test_ok(lp_kv_open(&test.options, &test.kv));
		}
		lp_clock_sim_advance_to(&test.clock,
					test.clock.now_ns + lp_prng_below(&prng, LP_NS_PER_S));
		run_some(&prng);
	}
	lp_test_ok(lp_kv_compact(test.kv, lp_test_text(NULL), lp_test_text(NULL)));
	lp_kvfs_mem_read_stats(test.mem, &stats);
	assert_true(stats.changes > 100);
	lp_test_kv_fini(&test);
	return stats.hash;
}

static void test_same_seed_same_operations(void **state)
{
	(void)state;
	uint64_t hashes[3];
	for (uint64_t seed = 0; seed < 3; seed++) {
		hashes[seed] = run_all_of(seed);
		for (int again = 0; again < 2; again++)
			assert_int_equal(run_all_of(seed), hashes[seed]);
	}
	assert_int_not_equal(hashes[0], hashes[1]);
	assert_int_not_equal(hashes[1], hashes[2]);
}

/* --- Power cuts --------------------------------------------------------------------------------
 */

/* Returns what had been persisted for certain when the power went, or the workload ended. */
static uint32_t run_until_cut(uint64_t seed)
{
	struct lp_prng prng;
	uint32_t certain = 0;
	lp_prng_init(&prng, seed);
	for (uint32_t n = 1; n <= BATCHES && !lp_kvfs_mem_is_cut(test.mem); n++) {
		while (write_batch(seed, n) == -EAGAIN)
			if (!lp_kv_sim_run_one(test.kv))
				return certain;
		if (lp_prng_chance(&prng, 1, 6) && lp_kv_flush_wait(test.kv) == 0)
			assert_true(persisted() == n || lp_kvfs_mem_is_cut(test.mem));
		run_some(&prng);
		uint32_t now = persisted();
		if (now != UINT32_MAX)
			certain = now;
	}
	return certain;
}

static bool cut_once(uint64_t seed, uint64_t after, bool torn)
{
	open_sim(seed);
	lp_kvfs_mem_cut_after(test.mem, after);
	uint32_t certain = run_until_cut(seed);
	bool cut = lp_kvfs_mem_is_cut(test.mem);
	lp_test_kv_crash(&test, torn);
	uint32_t n = applied();
	if (n < certain)
		print_error("seed %u, cut after %u: %u of %u\n", (unsigned)seed, (unsigned)after, n,
			    certain);
	assert_true(n >= certain);
	check_prefix(seed, n);
	/* And it goes on from there, as a replay would. */
	for (uint32_t i = n + 1; i <= BATCHES; i++)
		while (write_batch(seed, i) == -EAGAIN)
			assert_true(lp_kv_sim_run_one(test.kv));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	assert_int_equal(persisted(), BATCHES);
	check_prefix(seed, BATCHES);
	lp_test_kv_fini(&test);
	return cut;
}

static void test_cut_at_every_change(void **state)
{
	(void)state;
	for (uint64_t seed = 10; seed < 12; seed++) {
		uint64_t after = 0;
		while (cut_once(seed, after, seed % 2 == 1)) {
			after++;
			assert_true(after < CHANGES_MAX);
		}
		assert_true(after > 40);
	}
}

/* --- Errors ------------------------------------------------------------------------------------
 */

/* One change fails; resumed as often as needed, nothing is lost. Returns whether one failed. */
static bool fail_once(uint64_t seed, uint64_t skip, int err)
{
	struct lp_prng prng;
	struct lp_kvfs_mem_stats stats;
	open_sim(seed);
	const struct lp_kvfs_mem_fault fault = {
		.ops = LP_KVFS_MEM_CHANGES, .skip = skip, .times = 1, .err = err};
	lp_kvfs_mem_set_fault(test.mem, &fault);
	lp_prng_init(&prng, seed);
	for (uint32_t n = 1; n <= BATCHES; n++) {
		while (write_batch(seed, n) < 0) {
			if (lp_kv_error(test.kv) < 0)
				lp_test_ok(lp_kv_resume(test.kv));
			else
				assert_true(lp_kv_sim_run_one(test.kv));
		}
		if (lp_prng_chance(&prng, 1, 6)) {
			int result = lp_kv_flush_wait(test.kv);
			assert_true(result == 0 || result == err);
		}
		run_some(&prng);
	}
	if (lp_kv_error(test.kv) < 0)
		lp_test_ok(lp_kv_resume(test.kv));
	int result = lp_kv_flush_wait(test.kv);
	if (result == err) { /* it failed only now */
		lp_test_ok(lp_kv_resume(test.kv));
		lp_test_ok(lp_kv_flush_wait(test.kv));
	}
	check_prefix(seed, BATCHES);
	assert_int_equal(persisted(), BATCHES);
	assert_false(test.failed_final);
	lp_kvfs_mem_read_stats(test.mem, &stats);
	lp_test_kv_crash(&test, false);
	check_prefix(seed, BATCHES);
	lp_test_kv_fini(&test);
	return stats.failed > 0;
}

static void test_error_at_every_change(void **state)
{
	(void)state;
	const int errs[] = {-ENOSPC, -EIO};
	for (size_t i = 0; i < LP_ARRAY_SIZE(errs); i++) {
		uint64_t skip = 0;
		while (fail_once(20 + i, skip, errs[i])) {
			skip++;
			assert_true(skip < CHANGES_MAX);
		}
		assert_true(skip > 40);
	}
}

static void fail_tables(int err, uint64_t times)
{
	lp_kvfs_mem_set_fault(test.mem, &(struct lp_kvfs_mem_fault){.ops = LP_KVFS_MEM_APPEND,
								    .kinds = 1u << LP_KVFS_TABLE,
								    .times = times,
								    .err = err});
}

/* A flush without space: a hard error, which is resumed when there is space again. */
static void fail_hard(uint32_t n)
{
	fail_tables(-ENOSPC, 1);
	lp_test_ok(write_batch(30, n));
	lp_test_err(-ENOSPC, lp_kv_flush_wait(test.kv));
	assert_int_equal(lp_kv_error(test.kv), -ENOSPC);
	lp_test_err(-ENOSPC, write_batch(30, n + 1));
	lp_test_ok(lp_kv_resume(test.kv));
	assert_int_equal(lp_kv_error(test.kv), 0);
}

/* Four tables, which are due for a compaction that fails twice. */
static void open_with_failing_compaction(bool hard_before, int err)
{
	open_sim(30);
	for (uint32_t n = 1; n <= 4; n++) {
		if (n == 1 && hard_before)
			fail_hard(n);
		else
			lp_test_ok(write_batch(30, n));
		lp_test_ok(lp_kv_flush_wait(test.kv));
	}
	test.failed_cnt = 0;
	fail_tables(err, 2);
	while (test.compact_failed_cnt == 0)
		assert_true(lp_kv_sim_run_one(test.kv));
	assert_int_equal(lp_kv_compact_error(test.kv), err);
}

/* A compaction that fails is tried again by itself, and stops nothing: a resume has nothing to do,
 * and writes go on. */
static void test_compaction_fails(void **state)
{
	(void)state;
	/* One that may be tried again never stops anything. */
	const struct {
		bool hard_before;
		int err;
	} cases[] = {{false, -ENOSPC}, {false, -EIO}, {true, -EIO}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lp_kv_stats stats;
		open_with_failing_compaction(cases[i].hard_before, cases[i].err);
		assert_int_equal(lp_kv_error(test.kv), 0);
		assert_int_equal(test.failed_cnt, 0);
		lp_test_ok(write_batch(30, 5));
		lp_test_kv_run_all(&test);
		assert_int_equal(test.compact_failed_cnt, 2);
		assert_int_equal(lp_kv_compact_error(test.kv), 0);
		lp_kv_read_stats(test.kv, &stats);
		assert_int_equal(stats.l0_files, 0);
		check_prefix(30, 5);
		lp_test_kv_fini(&test);
	}
}

/* But once there was a hard error, one that was resumed, it stops all writes, and its success does
 * not end that: so it is told as what it is, and resumed, which does not wait for it. */
static void test_compaction_stops_after_a_hard_error(void **state)
{
	(void)state;
	struct lp_kv_stats stats;
	struct lp_kvfs_mem_stats before;
	struct lp_kvfs_mem_stats after;
	open_with_failing_compaction(true, -ENOSPC);
	lp_test_err(-ENOSPC, write_batch(30, 5));
	assert_int_equal(lp_kv_error(test.kv), -ENOSPC);
	assert_int_equal(test.failed_cnt, 1);
	assert_false(test.failed_final);
	lp_kvfs_mem_read_stats(test.mem, &before);
	lp_test_ok(lp_kv_resume(test.kv));
	lp_kvfs_mem_read_stats(test.mem, &after);
	assert_int_equal(after.failed, before.failed);
	assert_int_equal(lp_kv_error(test.kv), 0);
	lp_test_ok(write_batch(30, 5));
	lp_test_kv_run_all(&test);
	assert_int_equal(test.compact_failed_cnt, 2);
	assert_int_equal(lp_kv_compact_error(test.kv), 0);
	lp_test_err(-ENOSPC, write_batch(30, 6));
	assert_int_equal(lp_kv_error(test.kv), -ENOSPC);
	lp_test_ok(lp_kv_resume(test.kv));
	lp_test_ok(write_batch(30, 6));
	lp_test_ok(lp_kv_flush_wait(test.kv));
	lp_test_kv_run_all(&test);
	lp_kv_read_stats(test.kv, &stats);
	assert_true(stats.l0_files <= 1);
	check_prefix(30, 6);
	lp_test_kv_fini(&test);
}

/* Nor does it a flush that fails and may be tried again: writes no longer go on until the memtables
 * are full. */
static void test_flush_stops_after_a_hard_error(void **state)
{
	(void)state;
	open_sim(31);
	fail_hard(1);
	fail_tables(-EIO, 1);
	lp_test_ok(write_batch(30, 2));
	lp_test_err(-EIO, lp_kv_flush_wait(test.kv));
	lp_test_err(-EIO, write_batch(30, 3));
	assert_int_equal(lp_kv_error(test.kv), -EIO);
	assert_true(lp_kv_is_stopped(test.kv));
	lp_test_ok(lp_kv_resume(test.kv));
	assert_false(lp_kv_is_stopped(test.kv));
	lp_test_ok(write_batch(30, 3));
	check_prefix(30, 3);
	lp_test_kv_fini(&test);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_happens_by_itself),
		cmocka_unit_test(test_closed_with_jobs_waiting),
		cmocka_unit_test(test_stall_ends_with_a_job),
		cmocka_unit_test(test_same_seed_same_operations),
		cmocka_unit_test(test_cut_at_every_change),
		cmocka_unit_test(test_error_at_every_change),
		cmocka_unit_test(test_compaction_fails),
		cmocka_unit_test(test_compaction_stops_after_a_hard_error),
		cmocka_unit_test(test_flush_stops_after_a_hard_error),
	};
	return lp_test_main(tests, "kv_sim");
}
