/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: a kv over files in memory, listeners, and short ways to say key and value.
 *
 * Only *_test.c files include this.
 */
#ifndef LP_STORE_INDEX_KV_RIG_TEST_H
#define LP_STORE_INDEX_KV_RIG_TEST_H

#include "base/testing/test.h"

#include <stdatomic.h>

#include "store/index/kv.h"
#include "store/kvfs/memory.h"

struct lp_test_kv {
	struct lp_kv_events events;
	struct lp_kvfs_mem *mem;
	struct lp_kv *kv;
	struct lp_kv_batch *batch;
	struct lp_clock_sim clock;
	struct lp_kv_options options;
	_Atomic int flushed_cnt;
	_Atomic int failed_cnt;
	_Atomic int failed_err;
	_Atomic bool failed_final;
	_Atomic int compact_failed_cnt;
	_Atomic int stalled_cnt;
	_Atomic int log_cnt;
};

static inline struct lp_kv_bytes lp_test_text(const char *text)
{
	return (struct lp_kv_bytes){.data = text, .len = text == NULL ? 0 : strlen(text)};
}

static inline struct lp_test_kv *lp_test_kv_of(struct lp_kv_events *events)
{
	return LP_CONTAINER_OF(events, struct lp_test_kv, events);
}

static inline void lp_test_kv_flushed(struct lp_kv_events *events)
{
	lp_test_kv_of(events)->flushed_cnt++;
}

static inline void lp_test_kv_failed(struct lp_kv_events *events, int err, bool final,
				     const char *reason)
{
	struct lp_test_kv *test = lp_test_kv_of(events);
	assert_true(err < 0 && reason != NULL);
	test->failed_err = err;
	test->failed_final = final;
	test->failed_cnt++;
}

static inline void lp_test_kv_compact_failed(struct lp_kv_events *events, int err)
{
	assert_true(err < 0);
	lp_test_kv_of(events)->compact_failed_cnt++;
}

static inline void lp_test_kv_stalled(struct lp_kv_events *events, bool stalled)
{
	if (stalled)
		lp_test_kv_of(events)->stalled_cnt++;
}

static inline void lp_test_kv_log(struct lp_kv_events *events, enum lp_kv_log_level level,
				  const char *line)
{
	assert_true(level <= LP_KV_LOG_FATAL && line[0] != '\0');
	lp_test_kv_of(events)->log_cnt++;
}

/* Options may be changed between this and lp_test_kv_open(). */
static inline void lp_test_kv_init(struct lp_test_kv *test, bool sim, uint64_t seed)
{
	memset(test, 0, sizeof(*test));
	lp_test_ok(lp_kvfs_mem_new(seed, &test->mem));
	lp_test_ok(lp_kv_batch_new(1024, &test->batch));
	lp_clock_sim_init(&test->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	test->events = (struct lp_kv_events){.flushed = lp_test_kv_flushed,
					     .failed = lp_test_kv_failed,
					     .compact_failed = lp_test_kv_compact_failed,
					     .stalled = lp_test_kv_stalled,
					     .log = lp_test_kv_log};
	test->options = (struct lp_kv_options){.fs = lp_kvfs_mem_fs(test->mem),
					       .sim_clock = sim ? &test->clock.clock : NULL,
					       .events = &test->events,
					       .cache_bytes = UINT64_C(1) << 20,
					       .write_buffer_bytes = UINT64_C(64) << 10,
					       .create = true};
}

static inline void lp_test_kv_open(struct lp_test_kv *test)
{
	lp_test_ok(lp_kv_open(&test->options, &test->kv));
}

static inline void lp_test_kv_close(struct lp_test_kv *test)
{
	/* After an injected failure closing fails too; what counts is what the files hold. */
	int err = lp_kv_close(test->kv);
	assert_true(err == 0 || lp_kvfs_mem_is_cut(test->mem) || test->failed_cnt > 0);
	test->kv = NULL;
}

static inline void lp_test_kv_fini(struct lp_test_kv *test)
{
	lp_test_kv_close(test);
	lp_kv_batch_free(test->batch);
	lp_kvfs_mem_free(test->mem);
}

static inline void lp_test_kv_crash(struct lp_test_kv *test, bool torn)
{
	lp_test_kv_close(test);
	lp_kvfs_mem_restart(test->mem, torn);
	test->options.create = true;
	lp_test_kv_open(test);
}

static inline int lp_test_kv_put(struct lp_test_kv *test, const char *key, const char *value)
{
	lp_kv_batch_clear(test->batch);
	lp_test_ok(lp_kv_batch_put(test->batch, lp_test_text(key), lp_test_text(value)));
	return lp_kv_write(test->kv, test->batch);
}

static inline void lp_test_kv_expect(struct lp_test_kv *test, const char *key, const char *value)
{
	struct lp_kv_value got;
	if (value == NULL) {
		lp_test_err(-ENOENT, lp_kv_get(test->kv, lp_test_text(key), &got));
		return;
	}
	lp_test_ok(lp_kv_get(test->kv, lp_test_text(key), &got));
	assert_int_equal(got.bytes.len, strlen(value));
	assert_memory_equal(got.bytes.data, value, got.bytes.len);
	lp_kv_value_release(&got);
}

static inline void lp_test_kv_run_all(struct lp_test_kv *test)
{
	while (lp_kv_sim_run_one(test->kv))
		continue;
}

#endif
