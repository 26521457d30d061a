/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a batch are RocksDB's, and part of what its logs have always held:
 *
 *   8 bytes  sequence number (RocksDB's own; not looked at)
 *   4 bytes  number of records, little-endian
 *   records  1, varint length, key, varint length, value      a put
 *            0, varint length, key                            a delete
 *
 * with varints of at most 32 bits, 7 at a time, the lowest first. Other kinds of records exist;
 * none of ours are of them. */
#include "base/cursor.h"
#include "base/endian.h"
#include "base/error.h"
#include "store/index/kv.h"

enum { TAG_DELETE = 0, TAG_PUT = 1 };

static struct lp_kv_bytes records_of(const struct lp_kv_batch *batch)
{
	struct lp_kv_bytes data = lp_kv_batch_data(batch);
	return (struct lp_kv_bytes){(const uint8_t *)data.data + LP_KV_BATCH_HEAD_BYTES,
				    data.len - LP_KV_BATCH_HEAD_BYTES};
}

void lp_kv_batch_join(const struct lp_kv_batch *first, const struct lp_kv_batch *second,
		      struct lp_kv_joined *ret_joined)
{
	memset(ret_joined->head, 0, 8); /* the sequence number */
	lp_put_le32(ret_joined->head + 8, lp_kv_batch_cnt(first) + lp_kv_batch_cnt(second));
	ret_joined->pieces[0] = (struct lp_kv_bytes){ret_joined->head, LP_KV_BATCH_HEAD_BYTES};
	ret_joined->pieces[1] = records_of(first);
	ret_joined->pieces[2] = records_of(second);
}

static struct lp_kv_bytes read_string(struct lp_reader *reader)
{
	uint64_t len = lp_reader_varint(reader);
	if (len > UINT32_MAX)
		lp_reader_fail(reader);
	return (struct lp_kv_bytes){.data = lp_reader_bytes(reader, len), .len = (size_t)len};
}

static int visit(struct lp_reader *reader, struct lp_kv_batch_visitor *visitor)
{
	uint8_t tag = lp_reader_u8(reader);
	if (tag != TAG_PUT && tag != TAG_DELETE)
		lp_reader_fail(reader);
	struct lp_kv_bytes key = read_string(reader);
	struct lp_kv_bytes value = {0};
	if (tag == TAG_PUT)
		value = read_string(reader);
	if (visitor == NULL || lp_reader_failed(reader))
		return 0;
	return tag == TAG_PUT ? visitor->put(visitor, key, value) : visitor->del(visitor, key);
}

int lp_kv_walk(struct lp_kv_bytes data, struct lp_kv_batch_visitor *visitor)
{
	struct lp_reader reader;
	lp_reader_init(&reader, data.data, data.len);
	(void)lp_reader_u64(&reader); /* the sequence number */
	uint32_t cnt = lp_reader_u32(&reader);
	for (uint32_t i = 0; i < cnt && !lp_reader_failed(&reader); i++) {
		int err = visit(&reader, visitor);
		if (err < 0)
			return err;
	}
	if (!lp_reader_finish(&reader))
		return LP_CORRUPT(lp_reader_offset(&reader), "batch of %u records, %zu bytes", cnt,
				  data.len);
	return 0;
}
