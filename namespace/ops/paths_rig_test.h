/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on paths, one line each, for tests. Only *_test.c files include this.
 *
 * An object's data is made of one byte, and its length says which: so a reader sees whether what he
 * has is whole.
 */
#ifndef LP_NAMESPACE_OPS_PATHS_RIG_TEST_H
#define LP_NAMESPACE_OPS_PATHS_RIG_TEST_H

#include <stdio.h>

#include "base/crc32c.h"
#include "base/prng.h"
#include "namespace/ops/names_rig_test.h"

#define LPI_TP_BYTES_MAX 65536u

/* A text into memory that must have room for it; returns its length. */
static inline size_t lpi_tp_copy(char *to, size_t to_size, const char *text)
{
	size_t len = strlen(text);
	assert_true(len < to_size);
	memcpy(to, text, len + 1);
	return len;
}

/* Data to be written, in one buffer, at an offset on the grid of blocks. */
struct lpi_tp_data {
	struct lp_seg seg; /* buf NULL: none */
	uint32_t crcs[LPI_TP_BYTES_MAX >> LP_BLOCK_SHIFT];
	struct lp_payload payload;
};

static inline void lpi_tp_data_fill(struct lpi_tp_data *data, struct lp_bufs *bufs, uint32_t length,
				    uint8_t byte)
{
	struct lp_buf *buf = lp_buf_new(bufs, length);
	uint32_t cnt = 0;
	assert_true(length > 0 && length <= LPI_TP_BYTES_MAX);
	assert_non_null(buf);
	if (buf == NULL)
		abort(); /* an assert would not tell the analyzer */
	memset(buf->data, byte, length);
	for (uint32_t at = 0; at < length; at += LP_BLOCK_BYTES)
		data->crcs[cnt++] =
			lp_crc32c(0, buf->data + at, LP_MIN(LP_BLOCK_BYTES, length - at));
	data->seg = (struct lp_seg){.buf = buf, .len = length};
	data->payload = (struct lp_payload){
		.segs = &data->seg, .crcs = data->crcs, .seg_cnt = 1, .crc_cnt = cnt};
}

static inline void lpi_tp_data_drop(struct lpi_tp_data *data)
{
	lp_buf_put(data->seg.buf);
	data->seg.buf = NULL;
}

/* Writes it, without waiting for more than its order. */
static inline void lpi_tp_write(struct lpi_t *t, struct lp_ino ino, uint64_t offset,
				uint32_t length, uint8_t byte)
{
	struct lpi_tp_data data;
	t->home = (t->home + 1) % t->rig->shard_cnt;
	lpi_tp_data_fill(&data, t->rig->bufs[t->home], length, byte);
	const struct lp_change change = {
		.type = LP_CHANGE_WRITE,
		.ino = ino,
		.data = {.offset = offset, .length = length, .payload = data.payload}};
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = &change, .change_cnt = 1, .ack = LP_ACK_ORDERED}};
	lp_test_ok(lpi_ns_rig_do(t->rig, t->home, &t->hand));
	t->op->store.op.txn.changes = NULL; /* it ends here */
	lpi_tp_data_drop(&data);
}

/* A put under way, with its payload: of `length` bytes. */
struct lpi_tp_put {
	struct lpi_ns_hand hand;
	struct lpi_tp_data data;
};

static inline void lpi_tp_put_fill(struct lpi_tp_put *put, struct lpi_t *t, uint32_t home,
				   const char *path, uint32_t length)
{
	*put = (struct lpi_tp_put){.hand = {.op = {.opcode = LP_NS_PUT}}};
	struct lp_ns_op *op = &put->hand.op;
	op->put.path = lpi_t_bytes(path);
	op->put.mode = 0640;
	op->put.length = length;
	op->who = (struct lp_ns_who){.uid = 7, .gid = 8};
	if (length == 0)
		return;
	lpi_tp_data_fill(&put->data, t->rig->bufs[home], length, (uint8_t)length);
	op->put.payload = put->data.payload;
}

static inline void lpi_tp_put_drop(struct lpi_tp_put *put)
{
	lpi_tp_data_drop(&put->data);
}

static inline int lpi_tp_put_if(struct lpi_t *t, const char *path, uint32_t length,
				enum lp_ns_if condition, uint64_t version_nr)
{
	struct lpi_tp_put put;
	t->home = (t->home + 1) % t->rig->shard_cnt;
	lpi_tp_put_fill(&put, t, t->home, path, length);
	put.hand.op.put.condition = condition;
	put.hand.op.put.version_nr = version_nr;
	int r = lpi_ns_rig_do(t->rig, t->home, &put.hand);
	t->hand = put.hand;
	t->op = &t->hand.op;
	lpi_tp_put_drop(&put);
	return r;
}

static inline int lpi_tp_put(struct lpi_t *t, const char *path, uint32_t length)
{
	return lpi_tp_put_if(t, path, length, LP_NS_IF_ANY, 0);
}

static inline int lpi_tp_walk(struct lpi_t *t, const char *path)
{
	lpi_t_op(t, LP_NS_WALK);
	t->op->walk.path = lpi_t_bytes(path);
	return lpi_t_do(t);
}

/* nr 0: there is none. */
static inline struct lp_ino lpi_tp_find(struct lpi_t *t, const char *path)
{
	int r = lpi_tp_walk(t, path);
	if (r == -ENOENT)
		return (struct lp_ino){0};
	lp_test_ok(r);
	return t->op->walk.found.ino;
}

static inline int lpi_tp_delete_as(struct lpi_t *t, const char *path, bool or_dir,
				   enum lp_ns_if condition, uint64_t version_nr)
{
	lpi_t_op(t, LP_NS_DELETE);
	t->op->delete.path = lpi_t_bytes(path);
	t->op->delete.or_dir = or_dir;
	t->op->delete.condition = condition;
	t->op->delete.version_nr = version_nr;
	return lpi_t_do(t);
}

static inline int lpi_tp_delete(struct lpi_t *t, const char *path)
{
	return lpi_tp_delete_as(t, path, false, LP_NS_IF_ANY, 0);
}

/* The bytes of an object; each is what its length says. */
static inline uint64_t lpi_tp_length_of(struct lpi_t *t, struct lp_ino ino)
{
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_READ,
					       .read = {.ino = ino, .length = LPI_TP_BYTES_MAX}};
	lp_test_ok(lpi_t_do(t));
	const struct lp_store_op *read = &t->op->store.op;
	uint64_t bytes = read->read.bytes;
	for (uint32_t i = 0; i < read->read.seg_cnt; i++) {
		const struct lp_seg *seg = &read->read.segs[i];
		for (uint32_t at = 0; at < seg->len; at++)
			assert_int_equal(seg->buf->data[seg->offset + at], bytes & 0xff);
	}
	lp_ns_end(t->rig->ns[t->home], t->op);
	return bytes;
}

/* The length of the object at a path, or -1. */
static inline int64_t lpi_tp_length(struct lpi_t *t, const char *path)
{
	struct lp_ino ino = lpi_tp_find(t, path);
	return ino.nr == 0 ? -1 : (int64_t)lpi_tp_length_of(t, ino);
}

static inline void lpi_tp_set_xattr(struct lpi_t *t, struct lp_ino ino, const char *name,
				    const char *value)
{
	const struct lp_change change = {
		.type = LP_CHANGE_XATTR_SET,
		.ino = ino,
		.named = {.name = lpi_t_bytes(name), .value = lpi_t_bytes(value)}};
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					       .txn = {.changes = &change, .change_cnt = 1}};
	lp_test_ok(lpi_t_do(t));
}

/* Whether an xattr has this value; NULL: is not there. */
static inline bool lpi_tp_has_xattr(struct lpi_t *t, struct lp_ino ino, const char *name,
				    const char *value)
{
	char buf[256];
	lpi_t_op(t, LP_NS_STORE);
	t->op->store.ino = ino;
	t->op->store.op = (struct lp_store_op){.opcode = LP_STORE_GET,
					       .get = {.space = LP_STORE_XATTRS,
						       .ino = ino,
						       .name = lpi_t_bytes(name),
						       .buf = buf,
						       .buf_len = sizeof(buf)}};
	int r = lpi_t_do(t);
	if (r == -ENODATA)
		return value == NULL;
	lp_test_ok(r);
	return value != NULL && t->op->store.op.get.value_len == strlen(value) &&
	       memcmp(buf, value, strlen(value)) == 0;
}

/* Transactions of all shards so far: each is a device write of its own when nothing else is under
 * way. */
static inline uint64_t lpi_tp_txns(struct lpi_t *t)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		struct lp_store_stats stats;
		lp_store_read_stats(t->rig->store[i], &stats);
		sum += stats.ops[LP_STORE_TXN];
	}
	return sum;
}

/* Inodes of all shards, the root too. */
static inline uint32_t lpi_tp_inodes(struct lpi_t *t)
{
	static uint8_t page[65536];
	uint32_t sum = 0;
	for (uint32_t i = 0; i < t->rig->shard_cnt; i++) {
		struct lp_store_op op = {
			.opcode = LP_STORE_LIST,
			.list = {.space = LP_STORE_INODES, .buf = page, .buf_len = sizeof(page)}};
		lpi_t_store(t, i, &op);
		assert_false(op.list.more);
		sum += op.list.items;
	}
	return sum;
}

/* Everything ends, and only so many inodes are left. */
static inline void lpi_tp_end(struct lpi_t *t, uint32_t inodes)
{
	lpi_t_idle(t);
	assert_int_equal(lpi_tp_inodes(t), inodes);
	lpi_t_end(t);
}

#endif
