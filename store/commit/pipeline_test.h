/* SPDX-License-Identifier: Apache-2.0 */
/* Test rig: the commit pipeline on real parts, taken down and recovered as a store would.
 *
 * Only *_test.c files include this. The parts are log, index, pending payloads and write-back.
 * Log and blocks are on a simulated device, the index is over files in memory, time and jobs are
 * simulated. Transactions put keys, payloads, and records of an owner in memory, who owes some of
 * them. The rig remembers what each of them changed.
 */
#ifndef LP_STORE_COMMIT_PIPELINE_TEST_H
#define LP_STORE_COMMIT_PIPELINE_TEST_H

#include "store/device/sim/sim_test.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "store/commit/commit.h"
#include "store/commit/deferred_payloads.h"
#include "store/commit/writeback.h"
#include "store/index/kv_rig_test.h"
#include "store/record/keys.h"

#define LPI_PIPE_KEYS        12u
#define LPI_PIPE_KEY_LAST    LPI_PIPE_KEYS /* the number of the last transaction, put by itself */
#define LPI_PIPE_KEY_DIRTY   (LPI_PIPE_KEYS + 1) /* the same, put once per group */
#define LPI_PIPE_OWNED       8u /* records of an owner in memory, who owes some of them */
#define LPI_PIPE_BLOCKS      24u
#define LPI_PIPE_TXNS_MAX    400u
#define LPI_PIPE_RING_BLOCKS 64u
#define LPI_PIPE_AREA_BLOCK  8u
#define LPI_PIPE_FIRST_BLOCK 160u /* of the blocks that payloads are for */

struct lpi_pipe_txn {
	struct lp_commit_waiter waiter;
	bool acked;
	uint64_t keys[LPI_PIPE_KEYS]; /* value put; 0: not touched */
	bool owned[LPI_PIPE_OWNED];   /* has this transaction's number */
	int blocks[LPI_PIPE_BLOCKS];  /* tag written; 0: not touched */
};

struct lpi_pipe_owned {
	uint64_t value;
	bool is_dirty;
	bool is_stored;
	bool is_owed;
};

struct lpi_pipe {
	struct lpi_bench sim;
	struct lp_test_kv kv;
	struct lp_log *log;
	struct lp_overlay *overlay;
	struct lp_commit *commit;
	struct lp_commit_events events;
	struct lp_commit_dirty dirty;
	struct lp_owed owed;
	struct lpi_pipe_owned owned[LPI_PIPE_OWNED];
	uint32_t pay_at;
	bool owes; /* anything */
	uint64_t encode_cnt;
	uint64_t numbered_cnt;
	struct lp_bufs *bufs;
	struct lp_pending *pending;
	struct lp_writeback *writeback;
	struct lp_writeback_events writeback_events;
	struct lp_prng prng;
	uint64_t persisted; /* `applied` as the index has flushed it, */
	uint64_t whole;     /* and up to where it was whole */
	int failed;
	bool is_cut; /* the power is gone: what is told now was never heard */
	uint32_t txn_cnt;
	struct lpi_pipe_txn txns[LPI_PIPE_TXNS_MAX]; /* from 1 */
};

static struct lpi_pipe lpi_pipe;

static const struct lp_log_limits lpi_pipe_limits = {
	.flight_frames = 3, .flight_blocks = 16, .frame_blocks = 8, .meta_blocks = 4};

static inline struct lp_log_area lpi_pipe_area(void)
{
	struct lp_log_area where = {
		.block = LPI_PIPE_AREA_BLOCK, .ring_blocks = LPI_PIPE_RING_BLOCKS, .shard = 3};
	memset(where.store_uuid, 7, sizeof(where.store_uuid));
	return where;
}

/* --- What a store would do with events -------------------------------------------------------- */

static inline void lpi_pipe_trim(void)
{
	uint64_t oldest = LP_MIN(lp_pending_oldest_seq(lpi_pipe.pending), lpi_pipe.whole + 1);
	lp_log_trim(lpi_pipe.log, LP_MIN(oldest, lp_log_durable_seq(lpi_pipe.log) + 1));
}

static inline void lpi_pipe_on_durable(struct lp_commit_events *events, uint64_t seq,
				       const struct lp_log_change *changes, uint32_t change_cnt)
{
	(void)events;
	(void)changes;
	assert_int_equal(change_cnt, 0);
	lp_pending_frame_durable(lpi_pipe.pending, seq);
	lp_writeback_look(lpi_pipe.writeback);
	lpi_pipe_trim();
}

static inline void lpi_pipe_on_numbered(struct lp_commit_events *events, uint64_t from, uint64_t to)
{
	(void)events;
	lpi_pipe.numbered_cnt++;
	lp_pending_renumber(lpi_pipe.pending, from, to);
}

static inline void lpi_pipe_on_inserted(struct lp_commit_events *events, uint64_t seq)
{
	(void)events;
	assert_true(seq < lp_log_next_seq(lpi_pipe.log)); /* submitted before (store I2) */
}

static inline void lpi_pipe_on_failed(struct lp_commit_events *events, int err)
{
	(void)events;
	assert_true(lpi_pipe.failed == 0 && (lpi_pipe.is_cut || err == -EIO));
	lpi_pipe.failed = err;
}

static inline bool lpi_pipe_may_write(struct lp_writeback_events *events, uint64_t block)
{
	(void)events;
	return block >= LPI_PIPE_FIRST_BLOCK;
}

static inline void lpi_pipe_on_extent(struct lp_writeback_events *events, struct lp_extent extent)
{
	(void)events;
	assert_true(extent.block >= LPI_PIPE_FIRST_BLOCK);
}

static inline void lpi_pipe_on_settled(struct lp_writeback_events *events)
{
	(void)events;
	lpi_pipe_trim();
}

static inline void lpi_pipe_on_writeback_failed(struct lp_writeback_events *events, int err)
{
	(void)events;
	assert_true(lpi_pipe.is_cut && err < 0);
}

/* --- Recovery --------------------------------------------------------------------------------- */

struct lpi_pipe_replay {
	struct lp_log_recovery recovery;
	bool done;
	struct {
		uint64_t seq;
		int tag;
	} blocks[LPI_PIPE_BLOCKS];
};

static inline struct lp_kv_bytes lpi_pipe_applied_key(struct lp_key *key)
{
	lp_key_of_store(key, "applied");
	return (struct lp_kv_bytes){key->bytes, key->len};
}

static inline uint64_t lpi_pipe_read_u64(struct lp_kv_bytes key)
{
	struct lp_kv_value value;
	int err = lp_kv_get(lpi_pipe.kv.kv, key, &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	assert_int_equal(value.bytes.len, 8);
	uint64_t number = lp_get_le64(value.bytes.data);
	lp_kv_value_release(&value);
	return number;
}

static inline uint64_t lpi_pipe_read_applied(bool persisted, uint64_t *ret_whole)
{
	struct lp_key key;
	struct lp_kv_value value;
	uint64_t seq = 0;
	*ret_whole = 0;
	int err = persisted
			  ? lp_kv_get_persisted(lpi_pipe.kv.kv, lpi_pipe_applied_key(&key), &value)
			  : lp_kv_get(lpi_pipe.kv.kv, lpi_pipe_applied_key(&key), &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	lp_test_ok(lp_applied_decode(value.bytes, &seq, ret_whole));
	lp_kv_value_release(&value);
	return seq;
}

static inline int lpi_pipe_owed_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
				    struct lp_kv_bytes value)
{
	(void)visitor;
	return lp_key_may_be_owed(key) ? lp_kv_batch_put(lpi_pipe.kv.batch, key, value) : 0;
}

static inline int lpi_pipe_owed_del(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	(void)visitor;
	assert_false(lp_key_may_be_owed(key));
	return 0;
}

/* As a shard does it: of what the index has applied only what may have been owed. */
static inline void lpi_pipe_replay_batch(const struct lpi_pipe_replay *replay, uint64_t seq,
					 struct lp_kv_bytes data)
{
	struct lp_kv_batch_visitor visitor = {.put = lpi_pipe_owed_put, .del = lpi_pipe_owed_del};
	if (seq <= lpi_pipe.whole || data.len == 0)
		return;
	lp_kv_batch_clear(lpi_pipe.kv.batch);
	if (seq <= replay->recovery.applied)
		lp_test_ok(lp_kv_walk(data, &visitor));
	else
		lp_test_ok(lp_kv_batch_load(lpi_pipe.kv.batch, data));
	lp_test_ok(lp_kv_write(lpi_pipe.kv.kv, lpi_pipe.kv.batch));
}

static inline int lpi_pipe_replay_frame(struct lp_log_recovery *recovery,
					const struct lp_log_view *view)
{
	struct lpi_pipe_replay *replay =
		LP_CONTAINER_OF(recovery, struct lpi_pipe_replay, recovery);
	lpi_pipe_replay_batch(replay, view->head.seq,
			      (struct lp_kv_bytes){view->batch, view->head.batch_bytes});
	for (uint32_t i = 0; i < view->head.payload_cnt; i++) {
		struct lp_log_payload about;
		const uint8_t *block = lp_log_view_payload(view, i, &about);
		uint64_t idx = about.device_block - LPI_PIPE_FIRST_BLOCK;
		assert_true(idx < LPI_PIPE_BLOCKS);
		replay->blocks[idx].seq = view->head.seq;
		replay->blocks[idx].tag = lpi_bench_tag_of(block, 4096);
	}
	return 0;
}

static inline void lpi_pipe_replay_complete(struct lp_log_recovery *recovery)
{
	LP_CONTAINER_OF(recovery, struct lpi_pipe_replay, recovery)->done = true;
}

static inline void lpi_pipe_recover(struct lpi_pipe_replay *replay)
{
	const struct lp_log_options options = {.reactor = lpi_pipe.sim.reactor,
					       .chan = lpi_pipe.sim.chan,
					       .area = lpi_pipe_area(),
					       .limits = lpi_pipe_limits};
	*replay = (struct lpi_pipe_replay){
		.recovery = {.frame = lpi_pipe_replay_frame, .complete = lpi_pipe_replay_complete}};
	replay->recovery.applied = lpi_pipe_read_applied(false, &lpi_pipe.whole);
	lp_test_ok(lp_log_new(&options, &lpi_pipe.log));
	lp_log_recover(lpi_pipe.log, &replay->recovery);
	while (!replay->done)
		assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
	lp_test_ok(replay->recovery.result);
}

/* --- The pipeline ----------------------------------------------------------------------------- */

static inline int lpi_pipe_barrier(const char *name, void *arg)
{
	(void)name;
	(void)arg;
	return lpi_pipe.commit != NULL ? lp_commit_barrier(lpi_pipe.commit) : 0;
}

static inline void lpi_pipe_put_u64(uint64_t key, uint64_t value);

static inline struct lp_kv_bytes lpi_pipe_owned_key(struct lp_key *key, uint32_t idx)
{
	lp_key_of_ino(key, LP_KEY_SPACE_INODE, (struct lp_ino){idx + 1});
	return (struct lp_kv_bytes){key->bytes, key->len};
}

static inline void lpi_pipe_encode_owned(uint32_t idx)
{
	struct lpi_pipe_owned *owned = &lpi_pipe.owned[idx];
	struct lp_key key;
	uint8_t value[8];
	lp_put_le64(value, owned->value);
	const struct lp_kv_bytes bytes = {value, sizeof(value)};
	lpi_pipe.owed.cnt -= owned->is_owed;
	owned->is_owed = lpi_pipe.owes && owned->is_stored && lp_commit_may_owe(lpi_pipe.commit) &&
			 lp_prng_chance(&lpi_pipe.prng, 3, 4);
	lpi_pipe.owed.cnt += owned->is_owed;
	if (owned->is_owed)
		lp_commit_owe(lpi_pipe.commit, lpi_pipe_owned_key(&key, idx), bytes);
	else
		lp_commit_put_owned(lpi_pipe.commit, lpi_pipe_owned_key(&key, idx), bytes);
	owned->is_stored = true;
	owned->is_dirty = false;
}

static inline int lpi_pipe_encode_dirty(struct lp_commit_dirty *dirty, struct lp_commit *commit)
{
	assert_ptr_equal(dirty, &lpi_pipe.dirty);
	assert_ptr_equal(commit, lpi_pipe.commit);
	lpi_pipe.encode_cnt++;
	lpi_pipe_put_u64(LPI_PIPE_KEY_DIRTY, lpi_pipe.txn_cnt);
	for (uint32_t i = 0; i < LPI_PIPE_OWNED; i++) {
		if (lpi_pipe.owned[i].is_dirty)
			lpi_pipe_encode_owned(i);
	}
	return 0;
}

static inline void lpi_pipe_pay_begin(struct lp_owed *owed)
{
	assert_ptr_equal(owed, &lpi_pipe.owed);
	lpi_pipe.pay_at = 0;
}

/* Two at a time. */
static inline bool lpi_pipe_pay(struct lp_owed *owed, struct lp_payments *payments)
{
	assert_ptr_equal(owed, &lpi_pipe.owed);
	for (uint32_t end = lpi_pipe.pay_at + 2; lpi_pipe.pay_at < end; lpi_pipe.pay_at++) {
		struct lpi_pipe_owned *owned = &lpi_pipe.owned[lpi_pipe.pay_at];
		struct lp_key key;
		uint8_t value[8];
		if (!owned->is_owed || owned->is_dirty)
			continue;
		lp_put_le64(value, owned->value);
		lp_payments_put(payments, lpi_pipe_owned_key(&key, lpi_pipe.pay_at),
				(struct lp_kv_bytes){value, sizeof(value)});
		owned->is_owed = false;
		lpi_pipe.owed.cnt--;
	}
	return lpi_pipe.pay_at == LPI_PIPE_OWNED;
}

/* The owner forgets, and reads what the index has. */
static inline void lpi_pipe_load_owned(void)
{
	lpi_pipe.owed = (struct lp_owed){.begin = lpi_pipe_pay_begin, .pay = lpi_pipe_pay};
	for (uint32_t i = 0; i < LPI_PIPE_OWNED; i++) {
		struct lp_key key;
		uint64_t value = lpi_pipe_read_u64(lpi_pipe_owned_key(&key, i));
		lpi_pipe.owned[i] =
			(struct lpi_pipe_owned){.value = value, .is_stored = value != 0};
	}
}

/* Of the pipelines that are started. */
static uint64_t lpi_pipe_hold_ns;

static inline void lpi_pipe_start(void)
{
	lpi_pipe.dirty = (struct lp_commit_dirty){.encode = lpi_pipe_encode_dirty};
	uint64_t whole;
	lpi_pipe.persisted = lpi_pipe_read_applied(true, &lpi_pipe.whole);
	lpi_pipe_load_owned();
	lpi_pipe.events = (struct lp_commit_events){.durable = lpi_pipe_on_durable,
						    .numbered = lpi_pipe_on_numbered,
						    .inserted = lpi_pipe_on_inserted,
						    .failed = lpi_pipe_on_failed};
	lpi_pipe.writeback_events =
		(struct lp_writeback_events){.may_write = lpi_pipe_may_write,
					     .begins = lpi_pipe_on_extent,
					     .ended = lpi_pipe_on_extent,
					     .settled = lpi_pipe_on_settled,
					     .failed = lpi_pipe_on_writeback_failed};
	lp_test_ok(lp_overlay_new(64, 1, &lpi_pipe.overlay));
	lp_test_ok(lp_pending_new(500, &lpi_pipe.pending));
	const struct lp_writeback_options writeback = {.reactor = lpi_pipe.sim.reactor,
						       .chan = lpi_pipe.sim.chan,
						       .pending = lpi_pipe.pending,
						       .events = &lpi_pipe.writeback_events,
						       .start_versions = 20,
						       .wait_ns = 50 * LP_NS_PER_US,
						       .old_ns = LP_NS_PER_MS};
	const struct lp_commit_options commit = {.reactor = lpi_pipe.sim.reactor,
						 .log = lpi_pipe.log,
						 .kv = lpi_pipe.kv.kv,
						 .overlay = lpi_pipe.overlay,
						 .events = &lpi_pipe.events,
						 .limits = lpi_pipe_limits,
						 .hold_ns = lpi_pipe_hold_ns,
						 .applied = lpi_pipe_read_applied(false, &whole)};
	lp_test_ok(lp_writeback_new(&writeback, &lpi_pipe.writeback));
	lp_test_ok(lp_commit_new(&commit, &lpi_pipe.commit));
	lp_commit_set_inline_barrier(lpi_pipe.commit, true);
	lp_commit_set_owed(lpi_pipe.commit, &lpi_pipe.owed);
}

static inline void lpi_pipe_init(uint64_t seed, uint32_t sector_bytes)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(sector_bytes);
	struct lpi_pipe_replay replay;
	memset(&lpi_pipe, 0, sizeof(lpi_pipe));
	lp_prng_init(&lpi_pipe.prng, seed);
	lpi_bench_init(&lpi_pipe.sim, &profile, seed);
	const struct lp_log_area where = lpi_pipe_area();
	lp_test_ok(lp_log_format(lpi_pipe.sim.bdev, &where, &lpi_pipe_limits, seed));
	lp_sim_trim_log(lpi_pipe.sim.sim);
	lp_test_kv_init(&lpi_pipe.kv, true, seed);
	lp_kvfs_mem_set_barrier(lpi_pipe.kv.mem, lpi_pipe_barrier, NULL);
	lp_test_kv_open(&lpi_pipe.kv);
	lp_test_ok(lp_bufs_new(UINT64_C(8) << 20, &lpi_pipe.bufs));
	lpi_pipe_recover(&replay);
	assert_int_equal(replay.recovery.frame_cnt, 0);
	lpi_pipe_start();
}

static inline void lpi_pipe_flush_index(void)
{
	int err = lp_kv_flush(lpi_pipe.kv.kv);
	assert_true(err == 0 || err == -EAGAIN);
}

static inline void lpi_pipe_run_index_jobs(void)
{
	while (lp_kv_sim_run_one(lpi_pipe.kv.kv))
		continue;
	if (lpi_pipe.failed == 0) {
		lpi_pipe.persisted = lpi_pipe_read_applied(true, &lpi_pipe.whole);
		/* The index has persisted nothing that the log has not (store I3). */
		assert_true(lpi_pipe.persisted <= lp_log_durable_seq(lpi_pipe.log));
		lpi_pipe_trim();
	}
}

/* What the log needs to get room again. */
static inline void lpi_pipe_make_room(void)
{
	lp_commit_pay(lpi_pipe.commit);
	lpi_pipe_flush_index();
	lpi_pipe_run_index_jobs();
	lp_writeback_hurry(lpi_pipe.writeback, UINT64_MAX);
}

static inline void lpi_pipe_stop(void)
{
	if (lpi_pipe.is_cut)
		lp_commit_abort(lpi_pipe.commit);
	/* Not in each turn: simulated time only moves when there is nothing else to do. */
	for (uint32_t i = 0; !lp_commit_is_idle(lpi_pipe.commit); i++) {
		if (i % 16 == 0 && !lpi_pipe.is_cut && lpi_pipe.failed == 0)
			lpi_pipe_make_room();
		assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
	}
	lp_writeback_stop(lpi_pipe.writeback);
	while (!lp_writeback_is_idle(lpi_pipe.writeback) || !lp_log_is_idle(lpi_pipe.log))
		assert_int_not_equal(lp_reactor_turn(lpi_pipe.sim.reactor, true), 0);
	lp_writeback_free(lpi_pipe.writeback);
	lp_commit_free(lpi_pipe.commit);
	lpi_pipe.commit = NULL;
	lp_log_free(lpi_pipe.log);
	lp_pending_free(lpi_pipe.pending);
	lp_overlay_free(lpi_pipe.overlay);
}

static inline void lpi_pipe_fini(void)
{
	lpi_pipe_stop();
	lp_test_kv_fini(&lpi_pipe.kv);
	lp_bufs_free(lpi_pipe.bufs);
	lpi_bench_fini(&lpi_pipe.sim);
}

/* --- Transactions ----------------------------------------------------------------------------- */

static inline void lpi_pipe_txn_told(struct lp_commit_waiter *waiter, int result)
{
	struct lpi_pipe_txn *txn = LP_CONTAINER_OF(waiter, struct lpi_pipe_txn, waiter);
	if (result < 0 || lpi_pipe.is_cut)
		return;
	assert_false(txn->acked);
	assert_int_equal(lpi_pipe.failed, 0); /* rule L7 */
	txn->acked = true;
	/* In order: all before it are acknowledged (store I5). */
	if (txn > &lpi_pipe.txns[1])
		assert_true(txn[-1].acked);
}

static inline void lpi_pipe_put_u64(uint64_t key, uint64_t value)
{
	uint8_t key_bytes[9] = {'K'};
	uint8_t value_bytes[8];
	lp_put_be64(key_bytes + 1, key);
	lp_put_le64(value_bytes, value);
	lp_commit_put(lpi_pipe.commit, (struct lp_kv_bytes){key_bytes, sizeof(key_bytes)},
		      (struct lp_kv_bytes){value_bytes, sizeof(value_bytes)});
}

static inline void lpi_pipe_write_block(uint32_t idx, int tag)
{
	struct lp_seg seg = {.buf = lp_buf_new(lpi_pipe.bufs, 4096), .len = 4096};
	assert_non_null(seg.buf);
	memset(seg.buf->data, tag, 4096);
	const struct lp_log_payload about = {.ino = 1,
					     .file_block = idx,
					     .device_block = LPI_PIPE_FIRST_BLOCK + idx,
					     .crc = lp_crc32c(0, seg.buf->data, 4096)};
	/* The first change of a group numbers it. */
	lpi_pipe_put_u64(LPI_PIPE_KEY_LAST, lpi_pipe.txn_cnt);
	lp_test_ok(lp_pending_add(lpi_pipe.pending, lp_commit_seq(lpi_pipe.commit),
				  LPI_PIPE_FIRST_BLOCK + idx, seg, about.crc));
	lp_commit_data(lpi_pipe.commit, &about, seg);
	lp_buf_put(seg.buf);
}

/* False when there is no room at the moment. */
static inline bool lpi_pipe_begin_txn(void)
{
	uint32_t data_cnt = (uint32_t)lp_prng_below(&lpi_pipe.prng, 4);
	uint32_t key_cnt = (uint32_t)lp_prng_below(&lpi_pipe.prng, 4);
	const struct lp_commit_need need = {.batch_bytes =
						    (key_cnt + data_cnt + 1 + LPI_PIPE_OWNED) * 60,
					    .data_cnt = data_cnt};
	if (lpi_pipe.txn_cnt + 1 == LPI_PIPE_TXNS_MAX ||
	    lp_pending_room(lpi_pipe.pending) < data_cnt ||
	    (lpi_pipe.owes && lp_log_is_tight(lpi_pipe.log)) ||
	    !lp_commit_reserve(lpi_pipe.commit, &need))
		return false;
	struct lpi_pipe_txn *txn = &lpi_pipe.txns[++lpi_pipe.txn_cnt];
	memset(txn, 0, sizeof(*txn));
	lpi_pipe_put_u64(LPI_PIPE_KEY_LAST, lpi_pipe.txn_cnt);
	lp_commit_dirty(lpi_pipe.commit, &lpi_pipe.dirty);
	for (uint32_t i = 0; i < key_cnt; i++) {
		uint64_t key = lp_prng_below(&lpi_pipe.prng, LPI_PIPE_KEYS);
		txn->keys[key] = lp_prng_u64(&lpi_pipe.prng) | 1;
		lpi_pipe_put_u64(key, txn->keys[key]);
	}
	if (lp_prng_chance(&lpi_pipe.prng, 1, 2)) {
		uint64_t idx = lp_prng_below(&lpi_pipe.prng, LPI_PIPE_OWNED);
		txn->owned[idx] = true;
		lpi_pipe.owned[idx].value = lpi_pipe.txn_cnt;
		lpi_pipe.owned[idx].is_dirty = true;
	}
	for (uint32_t i = 0; i < data_cnt; i++) {
		uint32_t idx = (uint32_t)lp_prng_below(&lpi_pipe.prng, LPI_PIPE_BLOCKS);
		txn->blocks[idx] = (int)lp_prng_between(&lpi_pipe.prng, 1, 250);
		lpi_pipe_write_block(idx, txn->blocks[idx]);
	}
	txn->waiter.told = lpi_pipe_txn_told;
	lp_commit_wait(lpi_pipe.commit, &txn->waiter);
	return true;
}

static inline uint64_t lpi_pipe_read_key(uint64_t key)
{
	uint8_t bytes[9] = {'K'};
	lp_put_be64(bytes + 1, key);
	return lpi_pipe_read_u64((struct lp_kv_bytes){bytes, sizeof(bytes)});
}

#endif
