/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: whatever happens between write-back, flush, overwrites and frees, a crash finds each
 * durable block either in a frame that the log still keeps, or in its place (rules S2, S4); only
 * durable payloads are written to their place (rule S4).
 * Method: random runs against a model of the log and of a device whose unflushed writes may be
 * there or not; after each step the crash is judged for every block at once: if a kept frame
 * carries the block, replay decides; else every content the device may have must be the right one.
 */
#include "base/testing/test.h"

#include "base/assert.h"
#include "base/prng.h"
#include "store/commit/deferred_payloads.h"

#define BLOCKS     48u
#define FRAMES_MAX 20000u
#define VALUES_MAX 8u
#define CHOICE_MAX 8u

/* What frame `seq` says of each block: 0 nothing, FREED, or the payload's value. */
#define FREED UINT64_MAX

struct model {
	struct lp_pending *pending;
	struct lp_bufs *bufs;
	struct lp_prng prng;
	uint64_t (*frames)[BLOCKS];
	uint64_t open_seq; /* the frame that collects */
	uint64_t durable_seq;
	uint64_t newest[BLOCKS];    /* FREED, or the value readers must get */
	uint64_t expected[BLOCKS];  /* the same as of the durable frames */
	uint64_t freed_seq[BLOCKS]; /* the frame that freed it last */
	/* The device: what may be found in a block after a crash. The last is the current one. */
	uint64_t values[BLOCKS][VALUES_MAX];
	uint32_t value_cnt[BLOCKS];
	bool writing[BLOCKS];
	uint64_t writing_value[BLOCKS];
	struct lp_pending_version *writing_version[BLOCKS];
	uint64_t flush_mark[BLOCKS]; /* value_cnt at flush begin; 0: nothing */
	bool flushing;
};

static void model_init(struct model *m, uint64_t seed)
{
	*m = (struct model){.open_seq = 1};
	lp_prng_init(&m->prng, seed);
	lp_test_ok(lp_pending_new(200, &m->pending));
	lp_test_ok(lp_bufs_new(UINT64_C(4) << 20, &m->bufs));
	m->frames = calloc(FRAMES_MAX, sizeof(*m->frames));
	assert_non_null(m->frames);
	for (uint32_t b = 0; b < BLOCKS; b++) {
		m->newest[b] = FREED;
		m->expected[b] = FREED;
		m->value_cnt[b] = 1; /* garbage: 0 */
	}
}

static void model_fini(struct model *m)
{
	lp_pending_free(m->pending);
	lp_bufs_free(m->bufs);
	free(m->frames);
}

/* A block that was freed is the allocator's again only when that is durable and nothing writes
 * it. */
static bool may_own(const struct model *m, uint32_t block)
{
	return m->newest[block] != FREED ||
	       (m->freed_seq[block] <= m->durable_seq && !m->writing[block]);
}

static void step_add(struct model *m)
{
	uint32_t block = (uint32_t)lp_prng_below(&m->prng, BLOCKS);
	if (!may_own(m, block))
		return;
	struct lp_seg seg = {.buf = lp_buf_new(m->bufs, 4096), .len = 4096};
	assert_non_null(seg.buf);
	uint64_t value = lp_prng_u64(&m->prng) >> 1 | 1;
	memcpy(seg.buf->data, &value, sizeof(value));
	int err = lp_pending_add(m->pending, m->open_seq, block, seg, (uint32_t)value);
	lp_buf_put(seg.buf);
	if (err == -EAGAIN) {
		assert_int_equal(lp_pending_room(m->pending), 0);
		return;
	}
	lp_test_ok(err);
	m->frames[m->open_seq][block] = value;
	m->newest[block] = value;
}

/* What waits rides once more, in the frame that collects. */
static void step_ride_again(struct model *m)
{
	struct lp_pending_block old = {.version = NULL};
	struct lp_seg seg;
	uint64_t until = lp_prng_between(&m->prng, 0, m->durable_seq + 1);
	uint64_t before = 0;
	while (lp_pending_room(m->pending) > 0 &&
	       lp_pending_find_old(m->pending, until, &old, &seg)) {
		uint64_t value;
		memcpy(&value, old.data, sizeof(value));
		assert_true(old.seq >= before && old.seq <= LP_MIN(until, m->durable_seq));
		assert_true(m->newest[old.block] == value && m->expected[old.block] == value);
		before = old.seq;
		lp_test_ok(
			lp_pending_add(m->pending, m->open_seq, old.block, seg, (uint32_t)value));
		m->frames[m->open_seq][old.block] = value;
	}
}

static void step_free(struct model *m)
{
	uint32_t from = (uint32_t)lp_prng_below(&m->prng, BLOCKS);
	uint32_t cnt = (uint32_t)lp_prng_between(&m->prng, 1, LP_MIN(4, BLOCKS - from));
	for (uint32_t b = from; b < from + cnt; b++) {
		if (m->newest[b] == FREED)
			return;
	}
	lp_test_ok(lp_pending_freed(m->pending, m->open_seq, (struct lp_extent){from, cnt}));
	for (uint32_t b = from; b < from + cnt; b++) {
		m->frames[m->open_seq][b] = FREED;
		m->freed_seq[b] = m->open_seq;
		m->newest[b] = FREED;
	}
}

static void step_durable(struct model *m)
{
	if (m->open_seq == m->durable_seq + 1)
		return;
	uint64_t to = lp_prng_between(&m->prng, m->durable_seq + 1, m->open_seq - 1);
	for (uint64_t seq = m->durable_seq + 1; seq <= to; seq++) {
		for (uint32_t b = 0; b < BLOCKS; b++) {
			if (m->frames[seq][b] != 0)
				m->expected[b] = m->frames[seq][b];
		}
	}
	m->durable_seq = to;
	lp_pending_frame_durable(m->pending, to);
}

static bool may_write(uint64_t block, void *arg)
{
	struct model *m = arg;
	return (block + m->durable_seq) % 5 != 0; /* as if a reader were on it */
}

static void step_write(struct model *m)
{
	struct lp_pending_block chosen[CHOICE_MAX];
	uint32_t cnt = lp_pending_choose(m->pending, chosen, CHOICE_MAX, may_write, m);
	for (uint32_t i = 0; i < cnt; i++) {
		uint64_t value;
		uint64_t b = chosen[i].block;
		memcpy(&value, chosen[i].data, sizeof(value));
		assert_true(chosen[i].seq <= m->durable_seq); /* rule S4 */
		assert_true(m->frames[chosen[i].seq][b] == value);
		assert_true(may_write(b, m));
		assert_true(i == 0 || chosen[i - 1].block < b || lp_pending_room(m->pending) == 0);
		assert_false(m->writing[b]);
		m->writing[b] = true;
		m->writing_value[b] = value;
		m->writing_version[b] = chosen[i].version;
	}
}

static void values_add(struct model *m, uint32_t block, uint64_t value)
{
	/* Full: forget one in the middle; it only weakens the judge a little. */
	if (m->value_cnt[block] == VALUES_MAX) {
		m->value_cnt[block]--;
		m->values[block][VALUES_MAX - 2] = m->values[block][VALUES_MAX - 1];
		m->flush_mark[block] = LP_MIN(m->flush_mark[block], VALUES_MAX - 2);
	}
	m->values[block][m->value_cnt[block]++] = value;
}

static void step_written(struct model *m)
{
	for (uint32_t b = 0; b < BLOCKS; b++) {
		if (!m->writing[b] || !lp_prng_chance(&m->prng, 1, 2))
			continue;
		m->writing[b] = false;
		if (lp_prng_chance(&m->prng, 1, 20)) {
			/* Gone or not is seen by the judges. */
			(void)lp_pending_failed(m->pending, m->writing_version[b], true);
		} else {
			values_add(m, b, m->writing_value[b]);
			lp_pending_written(m->pending, m->writing_version[b]);
		}
	}
}

static void step_flush(struct model *m)
{
	if (!m->flushing) {
		for (uint32_t b = 0; b < BLOCKS; b++)
			m->flush_mark[b] = m->value_cnt[b];
		lp_pending_flush_begin(m->pending);
		m->flushing = true;
		return;
	}
	bool ok = lp_prng_chance(&m->prng, 9, 10);
	for (uint32_t b = 0; ok && b < BLOCKS; b++) {
		/* What was current at begin is durable: what was before it is gone. */
		uint32_t gone = (uint32_t)LP_MAX(m->flush_mark[b], 1) - 1;
		m->value_cnt[b] -= gone;
		memmove(m->values[b], m->values[b] + gone,
			m->value_cnt[b] * sizeof(m->values[b][0]));
	}
	lp_pending_flush_end(m->pending, ok);
	m->flushing = false;
}

static void judge_reads(const struct model *m)
{
	for (uint32_t b = 0; b < BLOCKS; b++) {
		struct lp_seg seg;
		uint32_t crc;
		uint64_t value;
		bool found = lp_pending_find(m->pending, b, &seg, &crc);
		if (m->newest[b] == FREED)
			continue;
		if (found) {
			memcpy(&value, seg.buf->data + seg.offset, sizeof(value));
			assert_int_equal((uint32_t)value, crc);
		} else {
			value = m->values[b][m->value_cnt[b] - 1];
			assert_false(m->writing[b]);
		}
		assert_true(value == m->newest[b]);
	}
}

static void judge_crash(const struct model *m)
{
	uint64_t from = LP_MIN(lp_pending_oldest_seq(m->pending), m->durable_seq + 1);
	for (uint32_t b = 0; b < BLOCKS; b++) {
		if (m->expected[b] == FREED)
			continue;
		uint64_t replayed = 0;
		for (uint64_t seq = from; seq <= m->durable_seq; seq++) {
			if (m->frames[seq][b] != 0)
				replayed = m->frames[seq][b] == FREED ? 0 : m->frames[seq][b];
		}
		if (replayed != 0) {
			assert_true(replayed == m->expected[b]);
			continue;
		}
		assert_false(m->writing[b] && m->writing_value[b] != m->expected[b]);
		for (uint32_t i = 0; i < m->value_cnt[b]; i++)
			assert_true(m->values[b][i] == m->expected[b]);
	}
}

static void run(uint64_t seed, uint32_t steps, bool rides)
{
	static struct model m;
	model_init(&m, seed);
	for (uint32_t i = 0; i < steps; i++) {
		switch (lp_prng_below(&m.prng, rides ? 9 : 8)) {
		case 0:
			step_free(&m);
			break;
		case 1:
			if (m.open_seq + 1 < FRAMES_MAX)
				m.open_seq++;
			break;
		case 2:
			step_durable(&m);
			break;
		case 3:
			step_write(&m);
			break;
		case 4:
			step_written(&m);
			break;
		case 5:
			step_flush(&m);
			break;
		case 8:
			step_ride_again(&m);
			break;
		default:
			step_add(&m);
			break;
		}
		judge_reads(&m);
		judge_crash(&m);
	}
	model_fini(&m);
}

static void test_crash_at_any_time(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 40; seed++)
		run(seed, 1000, seed % 2 != 0);
}

static void test_settles(void **state)
{
	(void)state;
	static struct model m;
	model_init(&m, 77);
	for (int i = 0; i < 100; i++)
		step_add(&m);
	m.open_seq++;
	assert_int_equal(lp_pending_oldest_seq(m.pending), 1);
	/* Nothing may be written before its frame is durable (rule S4). */
	struct lp_pending_block block;
	assert_int_equal(lp_pending_choose(m.pending, &block, 1, NULL, NULL), 0);
	step_durable(&m);
	uint32_t cnt = 0;
	while (lp_pending_choose(m.pending, &block, 1, NULL, NULL) == 1) {
		lp_pending_written(m.pending, block.version);
		cnt++;
	}
	assert_true(cnt > 20 && cnt <= BLOCKS);
	assert_int_equal(lp_pending_unflushed(m.pending), cnt);
	assert_int_equal(lp_pending_oldest_seq(m.pending), 1);
	lp_pending_flush_begin(m.pending);
	lp_pending_flush_end(m.pending, true);
	assert_int_equal(lp_pending_oldest_seq(m.pending), UINT64_MAX);
	assert_int_equal(lp_pending_stats(m.pending)->versions, 0);
	/* 100 adds to 48 blocks: the rest was coalesced. */
	assert_int_equal(lp_pending_stats(m.pending)->superseded + cnt,
			 lp_pending_stats(m.pending)->added);
	model_fini(&m);
}

static void test_limit(void **state)
{
	(void)state;
	struct lp_pending *pending = NULL;
	struct lp_bufs *bufs = NULL;
	lp_test_ok(lp_pending_new(2, &pending));
	lp_test_ok(lp_bufs_new(UINT64_C(1) << 20, &bufs));
	struct lp_seg seg = {.buf = lp_buf_new(bufs, 4096), .len = 4096};
	lp_test_ok(lp_pending_add(pending, 1, 10, seg, 0));
	lp_test_ok(lp_pending_add(pending, 1, 11, seg, 0));
	lp_test_err(-EAGAIN, lp_pending_add(pending, 1, 12, seg, 0));
	lp_test_ok(lp_pending_freed(pending, 2, (struct lp_extent){0, UINT64_C(1) << 40}));
	lp_pending_frame_durable(pending, 2);
	assert_int_equal(lp_pending_room(pending), 2);
	lp_buf_put(seg.buf);
	lp_pending_free(pending);
	lp_bufs_free(bufs);
}

static bool is_not_13(uint64_t block, void *arg)
{
	(void)arg;
	return block != 13;
}

/* One write takes what waits side by side, whenever it came; but nothing that is not durable, on
 * which there is other I/O, or that has failed. */
static void test_neighbours(void **state)
{
	(void)state;
	static const uint64_t order[] = {20, 12, 9, 30, 10, 13, 11, 8};
	struct lp_pending_block blocks[8];
	struct lp_pending *pending = NULL;
	struct lp_bufs *bufs = NULL;
	lp_test_ok(lp_pending_new(16, &pending));
	lp_test_ok(lp_bufs_new(UINT64_C(1) << 20, &bufs));
	struct lp_seg seg = {.buf = lp_buf_new(bufs, 4096), .len = 4096};
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(order); i++)
		lp_test_ok(lp_pending_add(pending, i + 1, order[i], seg, (uint32_t)order[i]));
	lp_pending_frame_durable(pending, 7);
	assert_int_equal(lp_pending_ready(pending), 7);
	/* In the order of the device, from the lowest neighbour on. */
	assert_int_equal(lp_pending_choose(pending, blocks, 8, is_not_13, NULL), 4);
	for (uint32_t i = 0; i < 4; i++) {
		assert_int_equal(blocks[i].block, 9 + i);
		assert_int_equal(blocks[i].crc, 9 + i);
	}
	assert_int_equal(lp_pending_ready(pending), 3);
	assert_true(lp_pending_is_choosing(pending));
	/* 10 has failed, and comes alone; 8 and 9 would be its neighbours. */
	lp_pending_frame_durable(pending, 8);
	for (uint32_t i = 0; i < 4; i++)
		assert_true(lp_pending_failed(pending, blocks[i].version, i == 1));
	uint32_t cnt = 0;
	uint32_t alone = 0;
	for (uint32_t n = 0; n < 20 && lp_pending_has_ready(pending, 8); n++) {
		uint32_t got = lp_pending_choose(pending, blocks, 3, NULL, NULL);
		assert_true(got <= 3);
		for (uint32_t i = 1; i < got; i++)
			assert_int_equal(blocks[i].block, blocks[0].block + i);
		alone += got == 1 && blocks[0].block == 10;
		cnt += got;
		for (uint32_t i = 0; i < got; i++)
			lp_pending_written(pending, blocks[i].version);
	}
	assert_int_equal(alone, 1);
	assert_int_equal(cnt, LP_ARRAY_SIZE(order));
	assert_int_equal(lp_pending_ready(pending), 0);
	assert_false(lp_pending_is_choosing(pending));
	lp_buf_put(seg.buf);
	lp_pending_free(pending);
	lp_bufs_free(bufs);
}

struct told {
	struct lp_pending_events events;
	uint64_t record;
};

static void on_done(struct lp_pending_events *events, uint64_t record)
{
	LP_CONTAINER_OF(events, struct told, events)->record = record;
}

static void fail_until_stuck(struct lp_pending *pending, uint64_t number)
{
	struct lp_pending_block block;
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(lp_pending_choose(pending, &block, 1, NULL, NULL), 1);
		assert_int_equal(block.block, number);
		assert_int_equal(block.failures, i);
		assert_true(lp_pending_failed(pending, block.version, true));
	}
	lp_pending_stick(pending, block.version);
	assert_int_equal(lp_pending_choose(pending, &block, 1, NULL, NULL), 0);
}

/* A payload whose place cannot be written holds its frame until it is kept elsewhere; it is not
 * moved when a newer one or a free is on its way, for that would win over them (rule L6). */
static void test_stuck(void **state)
{
	(void)state;
	struct lp_pending *pending = NULL;
	struct lp_bufs *bufs = NULL;
	struct told told = {.events.done = on_done};
	struct lp_pending_block block = {.block = 10, .crc = 7};
	struct lp_seg seg;
	lp_test_ok(lp_pending_new(8, &pending));
	lp_pending_set_events(pending, &told.events);
	lp_test_ok(lp_bufs_new(UINT64_C(1) << 20, &bufs));
	struct lp_seg own = {.buf = lp_buf_new(bufs, 4096), .len = 4096};
	lp_test_ok(lp_pending_add(pending, 1, 10, own, 7));
	lp_pending_frame_durable(pending, 1);
	fail_until_stuck(pending, 10);
	assert_int_equal(lp_pending_stats(pending)->stuck, 1);
	assert_int_equal(lp_pending_writable(pending), 0);
	assert_int_equal(lp_pending_oldest_seq(pending), 1);
	/* Somebody frees it, who then fails: as far as is known here he does. */
	lp_test_ok(lp_pending_freed(pending, 2, (struct lp_extent){8, 4}));
	assert_false(lp_pending_find_stuck(pending, &block, &seg));
	/* Its next owner, if there was one. */
	lp_test_ok(lp_pending_add(pending, 3, 10, own, 8));
	lp_pending_frame_durable(pending, 3);
	assert_int_equal(lp_pending_stats(pending)->stuck, 0);
	fail_until_stuck(pending, 10);
	/* A newer payload is on its way: this one goes when that is durable. */
	lp_test_ok(lp_pending_add(pending, 4, 10, own, 9));
	assert_false(lp_pending_find_stuck(pending, &block, &seg));
	lp_pending_frame_durable(pending, 4);
	fail_until_stuck(pending, 10);
	assert_true(lp_pending_find_stuck(pending, &block, &seg));
	assert_true(block.block == 10 && block.crc == 9 && seg.buf == own.buf);
	/* It moves: both are there until that is durable. */
	lp_test_ok(lp_pending_add_stuck(pending, 5, &block, own, 77, true));
	assert_false(lp_pending_find_stuck(pending, &block, &seg));
	assert_int_equal(lp_pending_oldest_seq(pending), 4);
	lp_pending_frame_durable(pending, 5);
	assert_int_equal(lp_pending_oldest_seq(pending), UINT64_MAX);
	assert_int_equal(lp_pending_stats(pending)->stuck, 0);
	assert_int_equal(lp_pending_stats(pending)->settled, 1);
	assert_int_equal(lp_pending_stats(pending)->versions, 1);
	assert_int_equal(lp_pending_choose(pending, &block, 1, NULL, NULL), 0);
	assert_true(lp_pending_find(pending, 10, &seg, &block.crc));
	assert_int_equal(told.record, 0);
	lp_test_ok(lp_pending_freed(pending, 6, (struct lp_extent){10, 1}));
	lp_pending_frame_durable(pending, 6);
	assert_int_equal(told.record, 77);
	assert_int_equal(lp_pending_stats(pending)->versions, 0);
	assert_int_equal(lp_pending_stats(pending)->settled, 0);
	lp_buf_put(own.buf);
	lp_pending_free(pending);
	lp_bufs_free(bufs);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_crash_at_any_time),
		cmocka_unit_test(test_settles),
		cmocka_unit_test(test_limit),
		cmocka_unit_test(test_neighbours),
		cmocka_unit_test(test_stuck),
	};
	return lp_test_main(tests, "store/commit/deferred_payloads");
}
