/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the pipeline's promises on real parts: log, index, pending payloads and write-back.
 * What was acknowledged is there after a power cut, groups are there wholly or not at all and in
 * order (P1, P2, store I5), the index never persists what the log has not (store I3, rule L4),
 * one device write per group, and after a failed frame nothing is acknowledged (rule L7). What is
 * owed to the index is not lost with the frames that the log forgets (rule L9).
 * Method: a simulated device for log and blocks, the index over files in memory, simulated time
 * and jobs; random transactions; the power is cut at a random event, everything is recovered as a
 * store would, and compared with a model.
 * Long because all of it is judged by one model. */
#include "store/sim_test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "store/commit.h"
#include "store/keys.h"
#include "store/pending.h"
#include "store/test_kv.h"
#include "store/writeback.h"

#define KEYS        12u
#define KEY_LAST    KEYS       /* the number of the last transaction, put by itself */
#define KEY_DIRTY   (KEYS + 1) /* the same, put once per group */
#define OWNED       8u         /* records of an owner in memory, who owes some of them */
#define BLOCKS      24u
#define TXNS_MAX    400u
#define RING_BLOCKS 64u
#define AREA_BLOCK  8u
#define FIRST_BLOCK 160u /* of the blocks that payloads are for */

struct txn {
	struct lp_commit_waiter waiter;
	bool acked;
	uint64_t keys[KEYS]; /* value put; 0: not touched */
	bool owned[OWNED];   /* has this transaction's number */
	int blocks[BLOCKS];  /* tag written; 0: not touched */
};

struct owned {
	uint64_t value;
	bool is_dirty;
	bool is_stored;
	bool is_owed;
};

struct rig {
	struct lpi_bench sim;
	struct lp_test_kv kv;
	struct lp_log *log;
	struct lp_overlay *overlay;
	struct lp_commit *commit;
	struct lp_commit_events events;
	struct lp_commit_dirty dirty;
	struct lp_owed owed;
	struct owned owned[OWNED];
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
	struct txn txns[TXNS_MAX]; /* from 1 */
};

static struct rig r;

static const struct lp_log_limits limits = {
	.flight_frames = 3, .flight_blocks = 16, .frame_blocks = 8, .meta_blocks = 4};

static struct lp_log_area area(void)
{
	struct lp_log_area where = {.block = AREA_BLOCK, .ring_blocks = RING_BLOCKS, .shard = 3};
	memset(where.store_uuid, 7, sizeof(where.store_uuid));
	return where;
}

/* --- What a store would do with events -----------------------------------------------------------
 */

static void trim(void)
{
	uint64_t oldest = LP_MIN(lp_pending_oldest_seq(r.pending), r.whole + 1);
	lp_log_trim(r.log, LP_MIN(oldest, lp_log_durable_seq(r.log) + 1));
}

static void on_durable(struct lp_commit_events *events, uint64_t seq,
		       const struct lp_log_change *changes, uint32_t change_cnt)
{
	(void)events;
	(void)changes;
	assert_int_equal(change_cnt, 0);
	lp_pending_frame_durable(r.pending, seq);
	lp_writeback_look(r.writeback);
	trim();
}

static void on_numbered(struct lp_commit_events *events, uint64_t from, uint64_t to)
{
	(void)events;
	r.numbered_cnt++;
	lp_pending_renumber(r.pending, from, to);
}

static void on_inserted(struct lp_commit_events *events, uint64_t seq)
{
	(void)events;
	assert_true(seq < lp_log_next_seq(r.log)); /* submitted before (store I2) */
}

static void on_failed(struct lp_commit_events *events, int err)
{
	(void)events;
	assert_true(r.failed == 0 && (r.is_cut || err == -EIO));
	r.failed = err;
}

static bool may_write(struct lp_writeback_events *events, uint64_t block)
{
	(void)events;
	return block >= FIRST_BLOCK;
}

static void on_extent(struct lp_writeback_events *events, struct lp_extent extent)
{
	(void)events;
	assert_true(extent.block >= FIRST_BLOCK);
}

static void on_settled(struct lp_writeback_events *events)
{
	(void)events;
	trim();
}

static void on_writeback_failed(struct lp_writeback_events *events, int err)
{
	(void)events;
	assert_true(r.is_cut && err < 0);
}

/* --- Recovery --------------------------------------------------------------------------------- */

struct replay {
	struct lp_log_recovery recovery;
	bool done;
	struct {
		uint64_t seq;
		int tag;
	} blocks[BLOCKS];
};

static struct lp_kv_bytes applied_key(struct lp_key *key)
{
	lp_key_of_store(key, "applied");
	return (struct lp_kv_bytes){key->bytes, key->len};
}

static uint64_t read_u64(struct lp_kv_bytes key)
{
	struct lp_kv_value value;
	int err = lp_kv_get(r.kv.kv, key, &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	assert_int_equal(value.bytes.len, 8);
	uint64_t number = lp_get_le64(value.bytes.data);
	lp_kv_value_release(&value);
	return number;
}

static uint64_t read_applied(bool persisted, uint64_t *ret_whole)
{
	struct lp_key key;
	struct lp_kv_value value;
	uint64_t seq = 0;
	*ret_whole = 0;
	int err = persisted ? lp_kv_get_persisted(r.kv.kv, applied_key(&key), &value)
			    : lp_kv_get(r.kv.kv, applied_key(&key), &value);
	if (err == -ENOENT)
		return 0;
	lp_test_ok(err);
	lp_test_ok(lp_applied_decode(value.bytes, &seq, ret_whole));
	lp_kv_value_release(&value);
	return seq;
}

static int owed_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		    struct lp_kv_bytes value)
{
	(void)visitor;
	return lp_key_may_be_owed(key) ? lp_kv_batch_put(r.kv.batch, key, value) : 0;
}

static int owed_del(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	(void)visitor;
	assert_false(lp_key_may_be_owed(key));
	return 0;
}

/* As a shard does it: of what the index has applied only what may have been owed. */
static void replay_batch(const struct replay *replay, uint64_t seq, struct lp_kv_bytes data)
{
	struct lp_kv_batch_visitor visitor = {.put = owed_put, .del = owed_del};
	if (seq <= r.whole || data.len == 0)
		return;
	lp_kv_batch_clear(r.kv.batch);
	if (seq <= replay->recovery.applied)
		lp_test_ok(lp_kv_walk(data, &visitor));
	else
		lp_test_ok(lp_kv_batch_load(r.kv.batch, data));
	lp_test_ok(lp_kv_write(r.kv.kv, r.kv.batch));
}

static int replay_frame(struct lp_log_recovery *recovery, const struct lp_log_view *view)
{
	struct replay *replay = LP_CONTAINER_OF(recovery, struct replay, recovery);
	replay_batch(replay, view->head.seq,
		     (struct lp_kv_bytes){view->batch, view->head.batch_bytes});
	for (uint32_t i = 0; i < view->head.payload_cnt; i++) {
		struct lp_log_payload about;
		const uint8_t *block = lp_log_view_payload(view, i, &about);
		uint64_t idx = about.device_block - FIRST_BLOCK;
		assert_true(idx < BLOCKS);
		replay->blocks[idx].seq = view->head.seq;
		replay->blocks[idx].tag = lpi_bench_tag_of(block, 4096);
	}
	return 0;
}

static void replay_complete(struct lp_log_recovery *recovery)
{
	LP_CONTAINER_OF(recovery, struct replay, recovery)->done = true;
}

static void recover(struct replay *replay)
{
	const struct lp_log_options options = {
		.reactor = r.sim.reactor, .chan = r.sim.chan, .area = area(), .limits = limits};
	*replay = (struct replay){.recovery = {.frame = replay_frame, .complete = replay_complete}};
	replay->recovery.applied = read_applied(false, &r.whole);
	lp_test_ok(lp_log_new(&options, &r.log));
	lp_log_recover(r.log, &replay->recovery);
	while (!replay->done)
		assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
	lp_test_ok(replay->recovery.result);
}

/* --- The rig ---------------------------------------------------------------------------------- */

static int barrier(const char *name, void *arg)
{
	(void)name;
	(void)arg;
	return r.commit != NULL ? lp_commit_barrier(r.commit) : 0;
}

static void put_u64(uint64_t key, uint64_t value);

static struct lp_kv_bytes owned_key(struct lp_key *key, uint32_t idx)
{
	lp_key_of_ino(key, LP_KEY_SPACE_INODE, (struct lp_ino){idx + 1});
	return (struct lp_kv_bytes){key->bytes, key->len};
}

static void encode_owned(uint32_t idx)
{
	struct owned *owned = &r.owned[idx];
	struct lp_key key;
	uint8_t value[8];
	lp_put_le64(value, owned->value);
	const struct lp_kv_bytes bytes = {value, sizeof(value)};
	r.owed.cnt -= owned->is_owed;
	owned->is_owed = r.owes && owned->is_stored && lp_commit_may_owe(r.commit) &&
			 lp_prng_chance(&r.prng, 3, 4);
	r.owed.cnt += owned->is_owed;
	if (owned->is_owed)
		lp_commit_owe(r.commit, owned_key(&key, idx), bytes);
	else
		lp_commit_put_owned(r.commit, owned_key(&key, idx), bytes);
	owned->is_stored = true;
	owned->is_dirty = false;
}

static int encode_dirty(struct lp_commit_dirty *dirty, struct lp_commit *commit)
{
	assert_ptr_equal(dirty, &r.dirty);
	assert_ptr_equal(commit, r.commit);
	r.encode_cnt++;
	put_u64(KEY_DIRTY, r.txn_cnt);
	for (uint32_t i = 0; i < OWNED; i++) {
		if (r.owned[i].is_dirty)
			encode_owned(i);
	}
	return 0;
}

static void pay_begin(struct lp_owed *owed)
{
	assert_ptr_equal(owed, &r.owed);
	r.pay_at = 0;
}

/* Two at a time. */
static bool pay(struct lp_owed *owed, struct lp_payments *payments)
{
	assert_ptr_equal(owed, &r.owed);
	for (uint32_t end = r.pay_at + 2; r.pay_at < end; r.pay_at++) {
		struct owned *owned = &r.owned[r.pay_at];
		struct lp_key key;
		uint8_t value[8];
		if (!owned->is_owed || owned->is_dirty)
			continue;
		lp_put_le64(value, owned->value);
		lp_payments_put(payments, owned_key(&key, r.pay_at),
				(struct lp_kv_bytes){value, sizeof(value)});
		owned->is_owed = false;
		r.owed.cnt--;
	}
	return r.pay_at == OWNED;
}

/* The owner forgets, and reads what the index has. */
static void load_owned(void)
{
	r.owed = (struct lp_owed){.begin = pay_begin, .pay = pay};
	for (uint32_t i = 0; i < OWNED; i++) {
		struct lp_key key;
		uint64_t value = read_u64(owned_key(&key, i));
		r.owned[i] = (struct owned){.value = value, .is_stored = value != 0};
	}
}

/* Of the pipelines that are started. */
static uint64_t hold_ns;

static void start_pipeline(void)
{
	r.dirty = (struct lp_commit_dirty){.encode = encode_dirty};
	uint64_t whole;
	r.persisted = read_applied(true, &r.whole);
	load_owned();
	r.events = (struct lp_commit_events){.durable = on_durable,
					     .numbered = on_numbered,
					     .inserted = on_inserted,
					     .failed = on_failed};
	r.writeback_events = (struct lp_writeback_events){.may_write = may_write,
							  .begins = on_extent,
							  .ended = on_extent,
							  .settled = on_settled,
							  .failed = on_writeback_failed};
	lp_test_ok(lp_overlay_new(64, 1, &r.overlay));
	lp_test_ok(lp_pending_new(500, &r.pending));
	const struct lp_writeback_options writeback = {.reactor = r.sim.reactor,
						       .chan = r.sim.chan,
						       .pending = r.pending,
						       .events = &r.writeback_events,
						       .start_versions = 20,
						       .wait_ns = 50 * LP_NS_PER_US,
						       .old_ns = LP_NS_PER_MS};
	const struct lp_commit_options commit = {.reactor = r.sim.reactor,
						 .log = r.log,
						 .kv = r.kv.kv,
						 .overlay = r.overlay,
						 .events = &r.events,
						 .limits = limits,
						 .hold_ns = hold_ns,
						 .applied = read_applied(false, &whole)};
	lp_test_ok(lp_writeback_new(&writeback, &r.writeback));
	lp_test_ok(lp_commit_new(&commit, &r.commit));
	lp_commit_set_inline_barrier(r.commit, true);
	lp_commit_set_owed(r.commit, &r.owed);
}

static void rig_init(uint64_t seed, uint32_t sector_bytes)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(sector_bytes);
	struct replay replay;
	memset(&r, 0, sizeof(r));
	lp_prng_init(&r.prng, seed);
	lpi_bench_init(&r.sim, &profile, seed);
	const struct lp_log_area where = area();
	lp_test_ok(lp_log_format(r.sim.bdev, &where, &limits, seed));
	lp_sim_trim_log(r.sim.sim);
	lp_test_kv_init(&r.kv, true, seed);
	lp_kvfs_mem_set_barrier(r.kv.mem, barrier, NULL);
	lp_test_kv_open(&r.kv);
	lp_test_ok(lp_bufs_new(UINT64_C(8) << 20, &r.bufs));
	recover(&replay);
	assert_int_equal(replay.recovery.frame_cnt, 0);
	start_pipeline();
}

static void flush_index(void)
{
	int err = lp_kv_flush(r.kv.kv);
	assert_true(err == 0 || err == -EAGAIN);
}

static void run_index_jobs(void)
{
	while (lp_kv_sim_run_one(r.kv.kv))
		continue;
	if (r.failed == 0) {
		r.persisted = read_applied(true, &r.whole);
		/* The index has persisted nothing that the log has not (store I3). */
		assert_true(r.persisted <= lp_log_durable_seq(r.log));
		trim();
	}
}

/* What the log needs to get room again. */
static void make_room(void)
{
	lp_commit_pay(r.commit);
	flush_index();
	run_index_jobs();
	lp_writeback_hurry(r.writeback, UINT64_MAX);
}

static void stop_pipeline(void)
{
	if (r.is_cut)
		lp_commit_abort(r.commit);
	/* Not in each turn: simulated time only moves when there is nothing else to do. */
	for (uint32_t i = 0; !lp_commit_is_idle(r.commit); i++) {
		if (i % 16 == 0 && !r.is_cut && r.failed == 0)
			make_room();
		assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
	}
	lp_writeback_stop(r.writeback);
	while (!lp_writeback_is_idle(r.writeback) || !lp_log_is_idle(r.log))
		assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
	lp_writeback_free(r.writeback);
	lp_commit_free(r.commit);
	r.commit = NULL;
	lp_log_free(r.log);
	lp_pending_free(r.pending);
	lp_overlay_free(r.overlay);
}

static void rig_fini(void)
{
	stop_pipeline();
	lp_test_kv_fini(&r.kv);
	lp_bufs_free(r.bufs);
	lpi_bench_fini(&r.sim);
}

/* --- Transactions ----------------------------------------------------------------------------- */

static void txn_told(struct lp_commit_waiter *waiter, int result)
{
	struct txn *txn = LP_CONTAINER_OF(waiter, struct txn, waiter);
	if (result < 0 || r.is_cut)
		return;
	assert_false(txn->acked);
	assert_int_equal(r.failed, 0); /* rule L7 */
	txn->acked = true;
	/* In order: all before it are acknowledged (store I5). */
	if (txn > &r.txns[1])
		assert_true(txn[-1].acked);
}

static void put_u64(uint64_t key, uint64_t value)
{
	uint8_t key_bytes[9] = {'K'};
	uint8_t value_bytes[8];
	lp_put_be64(key_bytes + 1, key);
	lp_put_le64(value_bytes, value);
	lp_commit_put(r.commit, (struct lp_kv_bytes){key_bytes, sizeof(key_bytes)},
		      (struct lp_kv_bytes){value_bytes, sizeof(value_bytes)});
}

static void write_block(uint32_t idx, int tag)
{
	struct lp_seg seg = {.buf = lp_buf_new(r.bufs, 4096), .len = 4096};
	assert_non_null(seg.buf);
	memset(seg.buf->data, tag, 4096);
	const struct lp_log_payload about = {.ino = 1,
					     .file_block = idx,
					     .device_block = FIRST_BLOCK + idx,
					     .crc = lp_crc32c(0, seg.buf->data, 4096)};
	/* The first change of a group numbers it. */
	put_u64(KEY_LAST, r.txn_cnt);
	lp_test_ok(lp_pending_add(r.pending, lp_commit_seq(r.commit), FIRST_BLOCK + idx, seg,
				  about.crc));
	lp_commit_data(r.commit, &about, seg);
	lp_buf_put(seg.buf);
}

/* False when there is no room at the moment. */
static bool begin_txn(void)
{
	uint32_t data_cnt = (uint32_t)lp_prng_below(&r.prng, 4);
	uint32_t key_cnt = (uint32_t)lp_prng_below(&r.prng, 4);
	const struct lp_commit_need need = {.batch_bytes = (key_cnt + data_cnt + 1 + OWNED) * 60,
					    .data_cnt = data_cnt};
	if (r.txn_cnt + 1 == TXNS_MAX || lp_pending_room(r.pending) < data_cnt ||
	    (r.owes && lp_log_is_tight(r.log)) || !lp_commit_reserve(r.commit, &need))
		return false;
	struct txn *txn = &r.txns[++r.txn_cnt];
	memset(txn, 0, sizeof(*txn));
	put_u64(KEY_LAST, r.txn_cnt);
	lp_commit_dirty(r.commit, &r.dirty);
	for (uint32_t i = 0; i < key_cnt; i++) {
		uint64_t key = lp_prng_below(&r.prng, KEYS);
		txn->keys[key] = lp_prng_u64(&r.prng) | 1;
		put_u64(key, txn->keys[key]);
	}
	if (lp_prng_chance(&r.prng, 1, 2)) {
		uint64_t idx = lp_prng_below(&r.prng, OWNED);
		txn->owned[idx] = true;
		r.owned[idx].value = r.txn_cnt;
		r.owned[idx].is_dirty = true;
	}
	for (uint32_t i = 0; i < data_cnt; i++) {
		uint32_t idx = (uint32_t)lp_prng_below(&r.prng, BLOCKS);
		txn->blocks[idx] = (int)lp_prng_between(&r.prng, 1, 250);
		write_block(idx, txn->blocks[idx]);
	}
	txn->waiter.told = txn_told;
	lp_commit_wait(r.commit, &txn->waiter);
	return true;
}

/* A lazy run lets the log fill up and the index stall before it does anything about it: batches
 * wait then, and still enter in sequence, none left out (rule L5). Not where something is owed:
 * what is in the group that collects may have to be in a frame before the log can be trimmed. */
static void run_steps(uint32_t steps)
{
	bool lazy = !r.owes && lp_prng_chance(&r.prng, 1, 2);
	for (uint32_t i = 0; i < steps; i++) {
		uint64_t dice = lp_prng_below(&r.prng, 40);
		if (dice < 14)
			(void)begin_txn();
		else if (dice == 14 || (lazy && dice < 17))
			flush_index();
		else if (dice == 18 && lp_prng_chance(&r.prng, 1, 8))
			lp_commit_pay(r.commit);
		else if (dice == 17 && !lp_prng_chance(&r.prng, lazy ? 3 : 0, 4))
			run_index_jobs();
		else
			(void)lp_reactor_turn(r.sim.reactor, true);
		if (lazy ? lp_log_is_full(r.log) : lp_log_is_half(r.log)) {
			lp_commit_pay(r.commit);
			flush_index();
			if (!lazy || lp_prng_chance(&r.prng, 1, 10))
				run_index_jobs();
			lp_writeback_hurry(r.writeback, UINT64_MAX);
		}
	}
}

/* --- Judging ---------------------------------------------------------------------------------- */

static uint64_t read_key(uint64_t key)
{
	uint8_t bytes[9] = {'K'};
	lp_put_be64(bytes + 1, key);
	return read_u64((struct lp_kv_bytes){bytes, sizeof(bytes)});
}

/* The recovered state is that after transaction `last`, which is not before the last that was
 * acknowledged. */
static void judge(const struct replay *replay)
{
	uint64_t keys[KEYS] = {0};
	uint64_t owned[OWNED] = {0};
	int blocks[BLOCKS] = {0};
	struct lp_key key;
	uint64_t last = read_key(KEY_LAST);
	assert_true(read_key(KEY_DIRTY) == last);
	assert_true(last <= r.txn_cnt);
	for (uint32_t t = 1; t <= r.txn_cnt; t++) {
		assert_true(t <= last || !r.txns[t].acked);
		for (uint32_t i = 0; t <= last && i < KEYS; i++)
			keys[i] = r.txns[t].keys[i] != 0 ? r.txns[t].keys[i] : keys[i];
		for (uint32_t i = 0; t <= last && i < OWNED; i++)
			owned[i] = r.txns[t].owned[i] ? t : owned[i];
		for (uint32_t i = 0; t <= last && i < BLOCKS; i++)
			blocks[i] = r.txns[t].blocks[i] != 0 ? r.txns[t].blocks[i] : blocks[i];
	}
	for (uint32_t i = 0; i < KEYS; i++)
		assert_true(read_key(i) == keys[i]);
	for (uint32_t i = 0; i < OWNED; i++)
		assert_true(read_u64(owned_key(&key, i)) == owned[i]); /* rule L9 */
	uint64_t sectors = 4096 / lp_bdev_caps(r.sim.bdev)->block_bytes;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		if (blocks[i] == 0)
			continue;
		if (replay->blocks[i].seq >= replay->recovery.oldest_needed &&
		    replay->blocks[i].tag != 0) {
			assert_int_equal(replay->blocks[i].tag, blocks[i]);
			continue;
		}
		for (uint64_t s = 0; s < sectors; s++)
			assert_int_equal(
				lpi_bench_peek(r.sim.bdev, (FIRST_BLOCK + i) * sectors + s),
				blocks[i]);
	}
}

/* What a reader of the living store finds: first in the overlay, then in the index (rule W1). */
static void judge_live(void)
{
	for (uint64_t i = 0; i < KEYS; i++) {
		uint64_t want = 0;
		for (uint32_t t = 1; t <= r.txn_cnt; t++)
			want = r.txns[t].keys[i] != 0 ? r.txns[t].keys[i] : want;
		uint8_t key[9] = {'K'};
		const struct lp_overlay_entry *entry = NULL;
		lp_put_be64(key + 1, i);
		enum lp_overlay_result found = lp_overlay_find(r.overlay, key, sizeof(key), &entry);
		assert_true(found != LP_OVERLAY_DELETED);
		assert_true((found == LP_OVERLAY_FOUND ? lp_get_le64(entry->value) : read_key(i)) ==
			    want);
	}
}

/* The power goes now, for the device and for the files of the index. The old parts then see a
 * dead device, and are taken down in an orderly way: nothing of that is left. */
static void cut_and_recover(uint64_t seed, struct replay *replay)
{
	static const struct lp_sim_rule vanish = {.fault = LP_SIM_VANISH};
	struct lp_bdev *left = NULL;
	uint64_t events = lp_sim_event_count(r.sim.sim);
	if (events == lp_sim_event_first(r.sim.sim))
		return;
	lp_test_ok(lp_sim_image_at(r.sim.sim, events - 1, NULL, seed, &left));
	r.is_cut = true;
	lp_kvfs_mem_cut_after(r.kv.mem, 0);
	(void)lp_sim_rule_add(r.sim.sim, &vanish);
	while (lp_kv_sim_run_one(r.kv.kv))
		continue;
	stop_pipeline();
	lpi_bench_swap(&r.sim, left);
	lp_test_kv_crash(&r.kv, lp_prng_chance(&r.prng, 1, 2));
	recover(replay);
	judge(replay);
}

/* What a store does before it serves again: payloads go to their place. */
static void resume(const struct replay *replay)
{
	_Alignas(4096) static uint8_t block[4096];
	for (uint32_t i = 0; i < BLOCKS; i++) {
		if (replay->blocks[i].tag == 0 ||
		    replay->blocks[i].seq < replay->recovery.oldest_needed)
			continue;
		memset(block, replay->blocks[i].tag, sizeof(block));
		lp_test_ok(lp_bdev_write_sync(r.sim.bdev, block, sizeof(block),
					      (FIRST_BLOCK + i) * UINT64_C(4096), true));
	}
	r.txn_cnt = (uint32_t)read_key(KEY_LAST);
	for (uint32_t t = 1; t <= r.txn_cnt; t++)
		r.txns[t].acked = true;
	r.is_cut = false;
	r.failed = 0;
	start_pipeline();
}

static void test_power_cuts(void **state)
{
	(void)state;
	struct {
		uint64_t retries;
		uint64_t trims;
		uint64_t full;
		uint64_t numbered;
		uint64_t owed;
		uint64_t paid;
	} seen = {0};
	static struct replay replay;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		hold_ns = seed % 3 == 0 ? LP_NS_PER_MS : 0;
		rig_init(seed, seed % 2 == 0 ? 512 : 4096);
		r.owes = seed % 4 < 2;
		for (int round = 0; round < 4; round++) {
			run_steps((uint32_t)lp_prng_between(&r.prng, 20, 300));
			judge_live();
			seen.retries += lp_commit_stats(r.commit)->insert_retries;
			seen.numbered += r.numbered_cnt;
			seen.trims += lp_commit_stats(r.commit)->trims;
			seen.full += lp_log_is_full(r.log);
			seen.owed += lp_commit_stats(r.commit)->owed;
			seen.paid += lp_commit_stats(r.commit)->paid;
			cut_and_recover(seed * 10 + (uint64_t)round, &replay);
			resume(&replay);
		}
		run_steps(300);
		rig_fini(); /* an orderly stop: all of it comes to its end */
	}
	hold_ns = 0;
	/* The runs came where they were meant to come. */
	assert_true(seen.retries > 0 && seen.trims > 0 && seen.full > 0);
	assert_true(seen.numbered > 0);
	assert_true(seen.owed > 0 && seen.paid > 0);
}

static void test_settles_and_counts(void **state)
{
	(void)state;
	rig_init(1, 4096);
	/* One transaction at a time: one write-through each, nothing else before write-back. */
	for (int i = 0; i < 20; i++) {
		while (!begin_txn())
			(void)lp_reactor_turn(r.sim.reactor, true);
		while (!r.txns[r.txn_cnt].acked)
			assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
	}
	const struct lp_bdev_stats *stats = lp_bdev_stats(r.sim.chan);
	assert_int_equal(lp_commit_stats(r.commit)->groups, 20);
	assert_true(stats->ops[LP_BDEV_WRITE_THROUGH] <= 20 + 4 /* superblocks */);
	rig_fini();
}

/* Orders something, and gives the pipeline the turns in which it could write. */
static void order(uint64_t value)
{
	put_u64(5, value);
	for (int i = 0; i < 8; i++)
		(void)lp_reactor_turn(r.sim.reactor, false);
}

static void turn_until_idle(void)
{
	while (!lp_commit_is_idle(r.commit))
		assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
}

static void told_late(struct lp_commit_waiter *waiter, int result)
{
	assert_int_equal(result, 0);
	waiter->told = NULL;
}

/* What nobody waits for shares a frame with what comes within the time to hold (rule M1 allows far
 * more); who waits does not wait for that time, and neither do those after him. */
static void test_held(void **state)
{
	(void)state;
	struct lp_commit_waiter waiter = {.told = told_late};
	hold_ns = LP_NS_PER_MS;
	rig_init(1, 4096);
	hold_ns = 0;
	const struct lp_commit_stats *stats = lp_commit_stats(r.commit);
	for (uint64_t i = 1; i <= 4; i++) {
		order(i);
		assert_int_equal(stats->groups, i);
		turn_until_idle();
	}
	uint64_t began_ns = lp_reactor_now_ns(r.sim.reactor);
	for (uint64_t i = 1; i <= 10; i++) {
		order(i);
		assert_int_equal(stats->groups, 4);
	}
	turn_until_idle();
	assert_int_equal(stats->groups, 5);
	assert_true(lp_reactor_now_ns(r.sim.reactor) - began_ns >= LP_NS_PER_MS);
	order(1);
	assert_int_equal(stats->groups, 5);
	began_ns = lp_reactor_now_ns(r.sim.reactor);
	lp_commit_wait(r.commit, &waiter);
	while (waiter.told != NULL)
		assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
	assert_int_equal(stats->groups, 6);
	assert_true(lp_reactor_now_ns(r.sim.reactor) - began_ns < LP_NS_PER_MS);
	order(2);
	assert_int_equal(stats->groups, 7);
	rig_fini();
}

/* A frame that cannot be written: everything from it on is refused, and after a restart the state
 * is again one of those that may be (rule L7). */
static void test_failed_frame(void **state)
{
	(void)state;
	static struct replay replay;
	for (uint64_t seed = 1; seed <= 30; seed++) {
		const struct lp_sim_rule rule = {
			.fault = LP_SIM_EIO,
			.opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
			.skip_cnt = (uint32_t)(seed % 7),
			.fire_cnt = 1,
		};
		rig_init(seed, 4096);
		(void)lp_sim_rule_add(r.sim.sim, &rule);
		run_steps(200);
		assert_int_equal(r.failed, -EIO);
		assert_int_equal(lp_commit_error(r.commit), -EIO);
		/* RocksDB may not persist what the log does not have (rule L4). */
		uint64_t durable_seq = lp_log_durable_seq(r.log);
		flush_index();
		while (lp_kv_sim_run_one(r.kv.kv))
			continue;
		uint64_t whole = 0;
		assert_true(read_applied(true, &whole) <= durable_seq);
		cut_and_recover(seed, &replay);
		resume(&replay);
		rig_fini();
	}
}

/* Room that was set aside and not used does not stay taken. */
static void test_unused_reservations(void **state)
{
	(void)state;
	const struct lp_commit_need need = {.batch_bytes = 4000};
	rig_init(1, 4096);
	for (int round = 0; round < 50; round++) {
		while (lp_commit_reserve(r.commit, &need))
			continue;
		(void)lp_reactor_turn(r.sim.reactor, true);
		assert_true(lp_commit_reserve(r.commit, &need));
		(void)lp_reactor_turn(r.sim.reactor, true);
	}
	rig_fini();
}

static int told_result;

static void told_error(struct lp_commit_waiter *waiter, int result)
{
	(void)waiter;
	told_result = result;
}

static void test_nobody_waits_for_ever_after_an_error(void **state)
{
	(void)state;
	struct lp_commit_waiter waiter = {.told = told_error};
	rig_init(1, 4096);
	r.is_cut = true; /* the failure is wanted */
	lp_commit_abort(r.commit);
	lp_commit_wait_room(r.commit, &waiter);
	assert_int_equal(told_result, 0); /* never inside the call */
	(void)lp_reactor_turn(r.sim.reactor, true);
	assert_int_equal(told_result, -EIO);
	rig_fini();
}

static void told_inserted(struct lp_commit_waiter *waiter, int result)
{
	assert_int_equal(result, 0);
	waiter->told = NULL;
	assert_true(read_key(5) == 55);
}

static void test_iterators_start_after_the_insert(void **state)
{
	(void)state;
	rig_init(1, 4096);
	struct lp_commit_waiter waiter = {.told = told_inserted};
	put_u64(5, 55);
	lp_commit_wait_inserted(r.commit, &waiter); /* rule W1 */
	while (waiter.told != NULL)
		assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
	rig_fini();
}

static void put_group(uint32_t records)
{
	uint64_t groups = lp_commit_stats(r.commit)->groups;
	for (uint32_t i = 1; i <= records; i++)
		put_u64(5, i);
	while (lp_commit_stats(r.commit)->groups == groups)
		(void)lp_reactor_turn(r.sim.reactor, true);
}

/* What waited for the index enters it bit by bit, for the thread has other things to do, too. */
static void test_insertions_after_a_stall(void **state)
{
	(void)state;
	enum { STALLED = 6, RECORDS = 300 };
	rig_init(1, 4096);
	const struct lp_commit_stats *stats = lp_commit_stats(r.commit);
	while (stats->insert_retries == 0) {
		put_group(1);
		flush_index();
	}
	for (uint32_t i = 0; i < STALLED; i++)
		put_group(RECORDS);
	uint64_t last = lp_log_next_seq(r.log) - 1;
	assert_true(lp_commit_inserted_seq(r.commit) + STALLED <= last);
	run_index_jobs();
	while (lp_commit_inserted_seq(r.commit) < last) {
		uint64_t before = lp_commit_inserted_seq(r.commit);
		(void)lp_reactor_turn(r.sim.reactor, true);
		assert_true(lp_commit_inserted_seq(r.commit) < before + STALLED);
	}
	assert_true(read_key(5) == RECORDS);
	rig_fini();
}

/* A transaction that changes the owner's first record. */
static const struct txn *change_owned(void)
{
	struct txn *txn = &r.txns[++r.txn_cnt];
	assert_true(r.txn_cnt < TXNS_MAX);
	memset(txn, 0, sizeof(*txn));
	txn->owned[0] = true;
	r.owned[0].value = r.txn_cnt;
	r.owned[0].is_dirty = true;
	put_u64(KEY_LAST, r.txn_cnt);
	lp_commit_dirty(r.commit, &r.dirty);
	txn->waiter.told = txn_told;
	lp_commit_wait(r.commit, &txn->waiter);
	for (int i = 0; i < 16; i++)
		(void)lp_reactor_turn(r.sim.reactor, true);
	return txn;
}

/* What is owed stands before the rest of a frame. So of a group that has been sealed, and waits for
 * the log, nothing is owed any more: a replay would end with the older record (rule L9). */
static void test_changed_again_while_sealed(void **state)
{
	(void)state;
	static struct replay replay;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		uint64_t encoded = 0;
		rig_init(seed, 4096);
		do {
			encoded = r.encode_cnt;
		} while (change_owned()->acked);
		assert_true(r.encode_cnt > encoded); /* the log is full */
		r.owes = true;
		const struct txn *second = change_owned();
		assert_false(second->acked);
		make_room();
		while (!second->acked)
			assert_int_not_equal(lp_reactor_turn(r.sim.reactor, true), 0);
		cut_and_recover(seed, &replay);
		resume(&replay);
		rig_fini();
	}
}

/* Nor is anything of it paid: what it owes is in no frame, and not dirty any more (store I2). */
static void test_not_paid_while_sealed(void **state)
{
	(void)state;
	static struct replay replay;
	uint32_t owed_cnt = 0;
	for (uint64_t seed = 1; seed <= 8; seed++) {
		struct lp_key key;
		rig_init(seed, 4096);
		assert_true(change_owned()->acked); /* the index has it now */
		r.owes = true;
		while (change_owned()->acked)
			continue;
		owed_cnt += r.owned[0].is_owed;
		lp_commit_pay(r.commit);
		for (int i = 0; i < 16; i++)
			(void)lp_reactor_turn(r.sim.reactor, true);
		assert_true(read_u64(owned_key(&key, 0)) < r.txn_cnt);
		flush_index();
		run_index_jobs();
		cut_and_recover(seed, &replay);
		resume(&replay);
		rig_fini();
	}
	assert_true(owed_cnt > 0);
}

static void *barrier_main(void *arg)
{
	*(int *)arg = lp_commit_barrier(r.commit);
	return NULL;
}

/* RocksDB's thread waits for what had begun to enter the index, and is let go with an error when
 * the log fails (rule L4). */
static void test_barrier_of_a_thread(void **state)
{
	(void)state;
	for (int round = 0; round < 2; round++) {
		const struct lp_sim_rule rule = {.fault = LP_SIM_EIO, .fire_cnt = 1};
		pthread_t thread;
		int result = 1;
		rig_init(1, 4096);
		lp_commit_set_inline_barrier(r.commit, false);
		if (round == 1)
			(void)lp_sim_rule_add(r.sim.sim, &rule);
		put_u64(5, 55);
		/* Until the batch is in the index; the frame is in flight then. */
		while (lp_commit_inserted_seq(r.commit) == 0)
			(void)lp_reactor_turn(r.sim.reactor, false);
		assert_int_equal(lp_commit_durable_seq(r.commit), 0);
		assert_int_equal(pthread_create(&thread, NULL, barrier_main, &result), 0);
		(void)usleep(20000);
		assert_int_equal(result, 1); /* still waiting */
		while (lp_commit_durable_seq(r.commit) == 0 && r.failed == 0)
			(void)lp_reactor_turn(r.sim.reactor, true);
		assert_int_equal(pthread_join(thread, NULL), 0);
		assert_int_equal(result, round == 0 ? 0 : -EROFS);
		rig_fini();
	}
}

static void test_waiting_for_nothing(void **state)
{
	(void)state;
	rig_init(1, 4096);
	struct lp_commit_waiter waiters[2] = {{.told = told_late}, {.told = told_late}};
	lp_commit_wait(r.commit, &waiters[0]);
	lp_commit_wait_inserted(r.commit, &waiters[1]);
	assert_non_null(waiters[0].told); /* never inside the call */
	(void)lp_reactor_turn(r.sim.reactor, true);
	assert_true(waiters[0].told == NULL && waiters[1].told == NULL);
	rig_fini();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_settles_and_counts),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_power_cuts),
		cmocka_unit_test(test_changed_again_while_sealed),
		cmocka_unit_test(test_not_paid_while_sealed),
		cmocka_unit_test(test_failed_frame),
		cmocka_unit_test(test_waiting_for_nothing),
		cmocka_unit_test(test_unused_reservations),
		cmocka_unit_test(test_nobody_waits_for_ever_after_an_error),
		cmocka_unit_test(test_iterators_start_after_the_insert),
		cmocka_unit_test(test_insertions_after_a_stall),
		cmocka_unit_test(test_barrier_of_a_thread),
	};
	return lp_test_main(tests, "store/commit");
}
