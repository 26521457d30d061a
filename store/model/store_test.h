/* SPDX-License-Identifier: Apache-2.0 */
/* A store in the hand of a test: single operations, payloads and reads with checksums.
 *
 * Only *_test.c files and their headers include this. Operations are done one at a time, and the
 * checksums of reads are verified. Any fault except the operation's own result fails the test.
 */
#ifndef LP_STORE_MODEL_STORE_TEST_H
#define LP_STORE_MODEL_STORE_TEST_H

#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/prng.h"
#include "store/store_kinds.h"

#define LPI_TURNS_MAX     10000000u /* a test that needs more hangs */
#define LPI_TEST_BYTES(s) ((struct lp_bytes){(s), sizeof(s) - 1})

/* --- The hand --------------------------------------------------------------------------------- */

struct lpi_hand {
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_store *store;
	/* Makes something happen, where a turn of the reactor is not enough; NULL: it is. */
	void (*turn)(const struct lpi_hand *hand);
	void *arg; /* turn's */
};

/* A reactor in simulated time, buffers, and a store in memory. */
struct lpi_mem_rig {
	struct lp_clock_sim clock;
	struct lpi_hand hand;
};

static inline void lpi_mem_rig_open(struct lpi_mem_rig *rig)
{
	const struct lp_store_options options = {
		.reactor = rig->hand.reactor, .bufs = rig->hand.bufs, .shard_idx = 3};
	lp_test_ok(lp_store_open_mem(&options, &rig->hand.store));
}

static inline void lpi_mem_rig_init(struct lpi_mem_rig *rig, uint64_t bufs_bytes)
{
	rig->hand = (struct lpi_hand){.turn = NULL};
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, 0);
	const struct lp_reactor_options options = {
		.name = "mem", .clock = &rig->clock.clock, .sim = &rig->clock};
	lp_test_ok(lp_reactor_new(&options, &rig->hand.reactor));
	lp_test_ok(lp_reactor_start(rig->hand.reactor));
	lp_test_ok(lp_bufs_new(bufs_bytes, &rig->hand.bufs));
	lpi_mem_rig_open(rig);
}

/* Freeing the buffers asserts that the store gave back all of them. */
static inline void lpi_mem_rig_fini(struct lpi_mem_rig *rig)
{
	lp_test_ok(lp_store_close(rig->hand.store, false));
	lp_bufs_free(rig->hand.bufs);
	lp_reactor_free(rig->hand.reactor);
}

static inline struct lpi_mem_rig *lpi_mem_rig_new(uint64_t bufs_bytes)
{
	struct lpi_mem_rig *rig = malloc(sizeof(*rig));
	assert_non_null(rig);
	lpi_mem_rig_init(rig, bufs_bytes);
	return rig;
}

static inline void lpi_mem_rig_free(struct lpi_mem_rig *rig)
{
	lpi_mem_rig_fini(rig);
	free(rig);
}

/* Something happens: in a simulation also a job of the index. */
static inline void lpi_hand_turn(const struct lpi_hand *hand)
{
	if (hand->turn != NULL) {
		hand->turn(hand);
		return;
	}
	/* Time goes on meanwhile: what waits for the device must not wait for all jobs. */
	(void)lp_store_sim_run_one(hand->store);
	(void)lp_reactor_turn(hand->reactor, true);
}

/* The one that completed last. */
static struct lp_store_op *lpi_hand_done;

static inline void lpi_hand_complete(struct lp_store_op *op)
{
	lpi_hand_done = op;
}

/* Submits, waits, returns the result. */
static inline int lpi_hand_do(const struct lpi_hand *hand, struct lp_store_op *op)
{
	op->complete = lpi_hand_complete;
	lpi_hand_done = NULL;
	lp_store_submit(hand->store, op);
	assert_null(lpi_hand_done); /* never from inside a submit */
	for (uint32_t i = 0; lpi_hand_done == NULL; i++) {
		assert_true(i < LPI_TURNS_MAX);
		lpi_hand_turn(hand);
	}
	assert_ptr_equal(lpi_hand_done, op);
	return op->result;
}

static inline struct lp_store_op lpi_txn_op(const struct lp_change *changes, uint32_t cnt)
{
	return (struct lp_store_op){.opcode = LP_STORE_TXN,
				    .txn = {.changes = changes, .change_cnt = cnt}};
}

static inline int lpi_hand_txn(const struct lpi_hand *hand, const struct lp_change *changes,
			       uint32_t cnt)
{
	struct lp_store_op op = lpi_txn_op(changes, cnt);
	return lpi_hand_do(hand, &op);
}

static inline int lpi_hand_change(const struct lpi_hand *hand, struct lp_change change)
{
	return lpi_hand_txn(hand, &change, 1);
}

/* --- Payloads --------------------------------------------------------------------------------- */

struct lpi_pay {
	struct lp_payload payload;
	struct lp_seg *segs;
	uint32_t *crcs; /* how many; wrong ones, until they are asked for; and right ones */
};

/* As a mount's: a store that looks at a checksum before it has it made finds a wrong one. */
static inline void lpi_pay_sum(void *arg)
{
	uint32_t *crcs = arg;
	memcpy(crcs + 1, crcs + 1 + crcs[0], crcs[0] * sizeof(*crcs));
}

/* Also of one that is zeroed memory. */
static inline void lpi_pay_drop(struct lpi_pay *pay)
{
	for (uint32_t i = 0; i < pay->payload.seg_cnt; i++)
		lp_buf_put(pay->segs[i].buf);
	free(pay->segs);
	free(pay->crcs);
	*pay = (struct lpi_pay){.segs = NULL};
}

/* How many crcs; those that the grid cuts at `offset`. */
static inline uint32_t lpi_cut_crcs(const uint8_t *bytes, uint64_t offset, uint64_t length,
				    uint32_t *ret_crcs)
{
	uint32_t cnt = 0;
	for (uint64_t at = 0; at < length; cnt++) {
		uint64_t room = LP_BLOCK_BYTES - ((offset + at) & (LP_BLOCK_BYTES - 1));
		uint64_t len = LP_MIN(room, length - at);
		ret_crcs[cnt] = lp_crc32c(0, bytes + at, len);
		at += len;
	}
	return cnt;
}

/* Copies the bytes into buffers, so that segments end where the file's grid of seg_bytes does.
 * False, and nothing held: no buffer left. */
static inline bool lpi_pay_make(struct lpi_pay *pay, struct lp_bufs *bufs, const uint8_t *bytes,
				uint64_t offset, uint64_t length, uint32_t seg_bytes)
{
	uint64_t begin = offset == LP_STORE_APPEND ? 0 : offset;
	uint32_t cnt = lpi_piece_cnt(begin, length);
	*pay = (struct lpi_pay){.segs = malloc((length / seg_bytes + 2) * sizeof(*pay->segs)),
				.crcs = malloc((2 * (size_t)cnt + 1) * sizeof(*pay->crcs))};
	if (pay->segs == NULL || pay->crcs == NULL)
		abort(); /* an assert would not tell the analyzer */
	for (uint64_t at = 0; at < length;) {
		uint64_t len = LP_MIN(seg_bytes - (begin + at) % seg_bytes, length - at);
		struct lp_buf *buf = lp_buf_new(bufs, (uint32_t)len);
		if (buf == NULL) {
			lpi_pay_drop(pay);
			return false;
		}
		/* At the buffer's end: an offset that is not 0 is the harder case. */
		uint32_t in_buf = buf->bytes - (uint32_t)len;
		memcpy(buf->data + in_buf, bytes + at, len);
		pay->segs[pay->payload.seg_cnt++] = (struct lp_seg){buf, in_buf, (uint32_t)len};
		at += len;
	}
	pay->payload.segs = pay->segs;
	pay->crcs[0] = lpi_cut_crcs(bytes, begin, length, pay->crcs + 1 + cnt);
	for (uint32_t i = 1; i <= cnt; i++)
		pay->crcs[i] = ~pay->crcs[i + cnt];
	pay->payload.crcs = pay->crcs + 1;
	pay->payload.crc_cnt = cnt;
	pay->payload.sum = lpi_pay_sum;
	pay->payload.sum_arg = pay->crcs;
	return true;
}

static inline struct lp_change lpi_write_change(struct lp_ino ino, uint64_t offset, uint64_t length,
						const struct lpi_pay *pay)
{
	return (struct lp_change){
		.type = LP_CHANGE_WRITE,
		.ino = ino,
		.data = {.offset = offset, .length = length, .payload = pay->payload}};
}

/* One write by itself; *op has the results. */
static inline int lpi_hand_write_op(const struct lpi_hand *hand, struct lp_ino ino, uint64_t offset,
				    const void *bytes, uint64_t length, struct lp_store_op *op)
{
	struct lpi_pay pay;
	assert_true(lpi_pay_make(&pay, hand->bufs, bytes, offset, length, LP_BUF_SMALL));
	const struct lp_change change = lpi_write_change(ino, offset, length, &pay);
	*op = lpi_txn_op(&change, 1);
	int err = lpi_hand_do(hand, op);
	op->txn.changes = NULL; /* it ends here */
	lpi_pay_drop(&pay);
	return err;
}

static inline int lpi_hand_write(const struct lpi_hand *hand, struct lp_ino ino, uint64_t offset,
				 const void *bytes, uint64_t length)
{
	struct lp_store_op op;
	return lpi_hand_write_op(hand, ino, offset, bytes, length, &op);
}

/* --- Reading ---------------------------------------------------------------------------------- */

/* Copies out what a completed read has, and holds each piece against its crc. */
static inline void lpi_read_take(const struct lp_store_op *op, uint8_t *ret_bytes)
{
	struct lpi_seg_cursor cursor = {.seg = op->read.segs};
	uint64_t total = 0;
	assert_int_equal(op->read.crc_cnt, lpi_piece_cnt(op->read.offset, op->read.bytes));
	for (uint32_t i = 0; i < op->read.seg_cnt; i++)
		total += op->read.segs[i].len;
	assert_int_equal(total, op->read.bytes);
	uint32_t idx = 0;
	for (uint64_t at = 0; at < op->read.bytes; idx++) {
		uint64_t room = LP_BLOCK_BYTES - ((op->read.offset + at) & (LP_BLOCK_BYTES - 1));
		uint32_t len = (uint32_t)LP_MIN(room, op->read.bytes - at);
		lpi_seg_cursor_copy(&cursor, ret_bytes + at, len);
		assert_int_equal(op->read.crcs[idx], lp_crc32c(0, ret_bytes + at, len));
		at += len;
	}
}

/* At most LP_STORE_READ_MAX; how many bytes, or the error. */
static inline int64_t lpi_hand_read(const struct lpi_hand *hand, struct lp_ino ino, uint64_t offset,
				    uint64_t length, uint8_t *ret_bytes)
{
	struct lp_store_op op = {.opcode = LP_STORE_READ,
				 .read = {.ino = ino, .offset = offset, .length = length}};
	int err = lpi_hand_do(hand, &op);
	if (err < 0)
		return err;
	lpi_read_take(&op, ret_bytes);
	lp_store_end(hand->store, &op);
	return (int64_t)op.read.bytes;
}

/* No attributes after an error. */
static inline int lpi_hand_stat(const struct lpi_hand *hand, struct lp_ino ino,
				struct lp_attrs *ret_attrs)
{
	struct lp_store_op op = {.opcode = LP_STORE_STAT, .stat = {.ino = ino}};
	int err = lpi_hand_do(hand, &op);
	*ret_attrs = op.stat.attrs;
	return err;
}

/* The name of the first attribute in which two differ, but for the blocks; NULL: in none. */
static inline const char *lpi_attrs_difference(const struct lp_attrs *a, const struct lp_attrs *b)
{
	const struct {
		const char *name;
		bool differs;
	} fields[] = {
		{"size_bytes", a->size_bytes != b->size_bytes},
		{"version_nr", a->version_nr != b->version_nr},
		{"atime_ns", a->atime_ns != b->atime_ns},
		{"mtime_ns", a->mtime_ns != b->mtime_ns},
		{"ctime_ns", a->ctime_ns != b->ctime_ns},
		{"btime_ns", a->btime_ns != b->btime_ns},
		{"parent", a->parent.nr != b->parent.nr},
		{"uid", a->uid != b->uid},
		{"gid", a->gid != b->gid},
		{"nlink", a->nlink != b->nlink},
		{"flags", a->flags != b->flags},
		{"rdev", a->rdev != b->rdev},
		{"mode", a->mode != b->mode},
		{"type", a->type != b->type},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(fields); i++)
		if (fields[i].differs)
			return fields[i].name;
	return NULL;
}

/* The value's length, or the error. */
static inline int64_t lpi_hand_get(const struct lpi_hand *hand, enum lp_store_space space,
				   struct lp_ino ino, struct lp_bytes name, void *buf,
				   uint32_t buf_len)
{
	struct lp_store_op op = {
		.opcode = LP_STORE_GET,
		.get = {.space = space, .ino = ino, .name = name, .buf = buf, .buf_len = buf_len}};
	int err = lpi_hand_do(hand, &op);
	return err < 0 ? err : (int64_t)op.get.value_len;
}

#endif
