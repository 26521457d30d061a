/* SPDX-License-Identifier: Apache-2.0 */
/* A scan's buffer holds for each record the two lengths and the bytes of key and value, without
 * gaps: it is read by the same program, so the lengths are size_t as they come. */
#include "store/index/async.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/record/types.h"

/* The tables may change between two looks, and one may name several blocks: after so many reads a
 * helper goes on. */
#define GET_READS_MAX 8u

struct record_head {
	size_t key_len;
	size_t value_len;
};

/* --- Get ---------------------------------------------------------------------------------------
 */

/* An error is found again by who asks for the record. */
static void warm(struct lp_kv_get_op *op)
{
	struct lp_kv_iter *iter = NULL;
	if (lp_kv_iter_open(op->kv, op->key, op->warm_end, false, &iter) < 0)
		return;
	int err = lp_kv_iter_seek_first(iter);
	for (uint32_t i = 0; i < LP_KV_WARM_MAX && err == 0; i++)
		err = lp_kv_iter_next(iter);
	lp_kv_iter_close(iter);
}

static void get_run(struct lp_work *work)
{
	struct lp_kv_get_op *op = LP_CONTAINER_OF(work, struct lp_kv_get_op, work);
	op->result = op->persisted ? lp_kv_get_persisted(op->kv, op->key, &op->value)
				   : lp_kv_get(op->kv, op->key, &op->value);
	if (op->warm_end.data != NULL)
		warm(op);
}

static void get_done(struct lp_work *work)
{
	struct lp_kv_get_op *op = LP_CONTAINER_OF(work, struct lp_kv_get_op, work);
	op->done(op);
}

static void ask_helper(struct lp_kv_get_op *op)
{
	op->is_of_now = false;
	op->work = (struct lp_work){.run = get_run, .done = get_done};
	lp_workers_submit(op->workers, op->reactor, &op->work);
}

static struct lp_bdev_chan *chan_of(const struct lp_kv_get_op *op)
{
	if (op->chans == NULL || op->fetch.block_cnt == 0 || op->persisted ||
	    op->warm_end.data != NULL || op->reads == GET_READS_MAX)
		return NULL;
	for (uint32_t i = 0; i < LP_KV_CHANS_MAX; i++) {
		struct lp_bdev_chan *chan = op->chans->chans[i];
		if (chan != NULL && lp_bdev_of(chan) == op->fetch.bdev)
			return chan;
	}
	return NULL;
}

/* --- Reads that are shared -------------------------------------------------------------------- */

static struct lp_kv_get_op **bucket_of(const struct lp_kv_get_op *op)
{
	uint64_t hash =
		(op->fetch.file_id ^ op->fetch.file_block << 32) * UINT64_C(0x9e3779b97f4a7c15);
	static_assert(LP_KV_READING_BUCKETS == 64, "six bits");
	return &op->chans->reading[hash >> 58];
}

/* Whoever reads the same blocks; NULL: nobody, or enough wait for him already. */
static struct lp_kv_get_op *find_reader(const struct lp_kv_get_op *op)
{
	struct lp_kv_get_op *reader = *bucket_of(op);
	for (; reader != NULL; reader = reader->next_reading) {
		const struct lp_fetch *fetch = &reader->fetch;
		if (fetch->file_id == op->fetch.file_id &&
		    fetch->file_block == op->fetch.file_block &&
		    fetch->block_cnt == op->fetch.block_cnt &&
		    reader->sharer_cnt < LP_KV_SHARERS_MAX)
			return reader;
	}
	return NULL;
}

static void begin_reading(struct lp_kv_get_op *op)
{
	struct lp_kv_get_op **bucket = bucket_of(op);
	op->sharers = NULL;
	op->sharer_cnt = 0;
	op->next_reading = *bucket;
	*bucket = op;
}

static void end_reading(struct lp_kv_get_op *op)
{
	struct lp_kv_get_op **at = bucket_of(op);
	while (*at != op) {
		LP_ASSERT(*at != NULL);
		at = &(*at)->next_reading;
	}
	*at = op->next_reading;
}

/* The last of them will be the first; nobody minds. */
static void share(struct lp_kv_get_op *op, struct lp_kv_get_op *reader)
{
	op->next_sharer = reader->sharers;
	reader->sharers = op;
	reader->sharer_cnt++;
}

/* --- What was put off ------------------------------------------------------------------------- */

static void was_read(struct lp_bdev_op *read);

static void read_or_ask(struct lp_kv_get_op *op)
{
	struct lp_bdev_chan *chan = chan_of(op);
	struct lp_kv_get_op *reader = chan != NULL ? find_reader(op) : NULL;
	size_t len = (size_t)op->fetch.block_cnt * LP_BLOCK_BYTES;
	if (reader != NULL) {
		op->reads++;
		share(op, reader);
		return;
	}
	if (chan != NULL)
		op->blocks = aligned_alloc(LP_BLOCK_BYTES, len);
	if (op->blocks == NULL) {
		ask_helper(op);
		return;
	}
	op->reads++;
	begin_reading(op);
	lp_bdev_op_prep(&op->read, LP_BDEV_READ, op->blocks, len, op->fetch.device_bytes);
	op->read.complete = was_read;
	lp_bdev_submit(chan, &op->read);
}

/* NULL: the blocks could not be read, or are damaged. */
static void look_again(struct lp_kv_get_op *op, const void *blocks)
{
	if (blocks == NULL) {
		ask_helper(op);
		return;
	}
	op->fetch.data = blocks;
	op->result = lp_kv_get_cached(op->kv, op->key, &op->fetch, &op->value);
	op->fetch.data = NULL;
	if (op->result == -EAGAIN)
		read_or_ask(op);
	else
		op->done(op);
}

/* Whoever is done may be gone, so all that is needed of him is taken before. */
static void was_read(struct lp_bdev_op *read)
{
	struct lp_kv_get_op *op = LP_CONTAINER_OF(read, struct lp_kv_get_op, read);
	void *blocks = op->blocks;
	struct lp_kv_get_op *sharer = op->sharers;
	bool is_good = read->result == 0 && lp_fetch_is_whole(&op->fetch, blocks);
	end_reading(op);
	op->blocks = NULL;
	look_again(op, is_good ? blocks : NULL);
	while (sharer != NULL) {
		struct lp_kv_get_op *next = sharer->next_sharer;
		look_again(sharer, is_good ? blocks : NULL);
		sharer = next;
	}
	free(blocks);
}

void lp_kv_get_submit(struct lp_workers *workers, struct lp_reactor *reactor,
		      struct lp_kv_get_op *op)
{
	LP_ASSERT(op->kv != NULL && op->done != NULL);
	op->work = (struct lp_work){.run = NULL};
	memset(&op->read, 0, sizeof(op->read)); /* of whoever had the memory before */
	op->workers = workers;
	op->reactor = reactor;
	op->blocks = NULL;
	op->reads = 0;
	op->is_of_now = true;
	read_or_ask(op);
}

/* --- Scan --------------------------------------------------------------------------------------
 */

static void put_bytes(struct lp_kv_scan_op *op, const void *data, size_t len)
{
	if (len > 0)
		memcpy((uint8_t *)op->buf + op->used, data, len);
	op->used += len;
}

/* False: the buffer is full. */
static bool put_record(struct lp_kv_scan_op *op, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	struct record_head head = {.key_len = key.len, .value_len = value.len};
	if (key.len + value.len + sizeof(head) > op->buf_len - op->used)
		return false;
	put_bytes(op, &head, sizeof(head));
	put_bytes(op, key.data, key.len);
	put_bytes(op, value.data, value.len);
	op->records++;
	return true;
}

static int scan(struct lp_kv_scan_op *op, struct lp_kv_iter *iter)
{
	int err = lp_kv_iter_seek_first(iter);
	while (err == 0) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		struct lp_kv_bytes value = lp_kv_iter_value(iter);
		op->more = true;
		if (op->records_max != 0 && op->records == op->records_max)
			return 0;
		if (!put_record(op, key, value)) {
			if (op->records > 0)
				return 0;
			op->used = key.len + value.len + sizeof(struct record_head);
			return -ENOBUFS;
		}
		err = lp_kv_iter_next(iter);
	}
	op->more = false;
	return err == -ENOENT ? 0 : err;
}

static void scan_run(struct lp_work *work)
{
	struct lp_kv_scan_op *op = LP_CONTAINER_OF(work, struct lp_kv_scan_op, work);
	struct lp_kv_iter *iter;
	op->records = 0;
	op->used = 0;
	op->more = false;
	op->result = lp_kv_iter_open(op->kv, op->lower, op->upper, false, &iter);
	if (op->result < 0)
		return;
	op->result = scan(op, iter);
	lp_kv_iter_close(iter);
}

static void scan_done(struct lp_work *work)
{
	struct lp_kv_scan_op *op = LP_CONTAINER_OF(work, struct lp_kv_scan_op, work);
	op->done(op);
}

void lp_kv_scan_submit(struct lp_workers *workers, struct lp_reactor *reactor,
		       struct lp_kv_scan_op *op)
{
	LP_ASSERT(op->kv != NULL && op->done != NULL);
	LP_ASSERT(op->buf != NULL && op->buf_len > 0);
	op->work = (struct lp_work){.run = scan_run, .done = scan_done};
	lp_workers_submit(workers, reactor, &op->work);
}

bool lp_kv_scan_next(const struct lp_kv_scan_op *op, size_t *pos, struct lp_kv_bytes *ret_key,
		     struct lp_kv_bytes *ret_value)
{
	if (op->records == 0 || *pos == op->used)
		return false;
	struct record_head head;
	const uint8_t *at = (const uint8_t *)op->buf + *pos;
	memcpy(&head, at, sizeof(head));
	at += sizeof(head);
	*ret_key = (struct lp_kv_bytes){.data = at, .len = head.key_len};
	*ret_value = (struct lp_kv_bytes){.data = at + head.key_len, .len = head.value_len};
	*pos += sizeof(head) + head.key_len + head.value_len;
	LP_ASSERT(*pos <= op->used);
	return true;
}

/* --- Call --------------------------------------------------------------------------------------
 */

static void call_run(struct lp_work *work)
{
	struct lp_kv_call_op *op = LP_CONTAINER_OF(work, struct lp_kv_call_op, work);
	op->result = op->call(op->kv);
}

static void call_done(struct lp_work *work)
{
	struct lp_kv_call_op *op = LP_CONTAINER_OF(work, struct lp_kv_call_op, work);
	op->done(op);
}

void lp_kv_call_submit(struct lp_workers *workers, struct lp_reactor *reactor,
		       struct lp_kv_call_op *op)
{
	LP_ASSERT(op->kv != NULL && op->call != NULL && op->done != NULL);
	op->work = (struct lp_work){.run = call_run, .done = call_done};
	lp_workers_submit(workers, reactor, &op->work);
}
