/* SPDX-License-Identifier: Apache-2.0 */
/* Batches are the bytes that RocksDB's own would have (index/batch_walk.c), put together here: its
 * Put() takes four times as long, for it is ready for much that we do not have. A batch becomes one
 * of RocksDB's for the time of a write, without a copy. */
#include <array>
#include <memory>

#include "base/assert.h"
#include "base/endian.h"
#include "store/index/kv.h"
#include "store/kvfs/kvfs_cxx.h"

static const size_t CNT_OFF = 8;
static const size_t PART_HEAD_MAX = 5; /* a varint of 32 bits */

static void begin_batch(struct lp_kv_batch *batch)
{
	batch->bytes.assign(LP_KV_BATCH_HEAD_BYTES, '\0');
	batch->cnt = 0;
}

static void append_part(std::string *bytes, struct lp_kv_bytes part)
{
	std::array<char, PART_HEAD_MAX> head;
	size_t used = 0;
	size_t len = part.len;
	LP_ASSERT(len <= UINT32_MAX);
	for (; len >= 0x80; len >>= 7)
		head[used++] = static_cast<char>(len | 0x80);
	head[used++] = static_cast<char>(len);
	bytes->append(head.data(), used);
	bytes->append(static_cast<const char *>(part.data), part.len);
}

/* All its memory is there before anything is changed: half a record is never seen. */
static int append_record(struct lp_kv_batch *batch, char tag, struct lp_kv_bytes key,
			 const struct lp_kv_bytes *value)
{
	std::string *bytes = &batch->bytes;
	const size_t most = bytes->size() + 1 + 2 * PART_HEAD_MAX + key.len +
			    (value != nullptr ? value->len : 0);
	if (bytes->capacity() < most)
		bytes->reserve(LP_MAX(most, 2 * bytes->capacity()));
	bytes->push_back(tag);
	append_part(bytes, key);
	if (value != nullptr)
		append_part(bytes, *value);
	lp_put_le32(&(*bytes)[CNT_OFF], ++batch->cnt);
	return 0;
}

extern "C" int lp_kv_batch_new(size_t reserve_bytes, struct lp_kv_batch **ret_batch)
{
	return lpi_guarded([=] {
		auto batch = std::make_unique<lp_kv_batch>();
		batch->bytes.reserve(reserve_bytes);
		begin_batch(batch.get());
		*ret_batch = batch.release();
		return 0;
	});
}

extern "C" void lp_kv_batch_free(struct lp_kv_batch *batch)
{
	delete batch;
}

extern "C" int lp_kv_batch_put(struct lp_kv_batch *batch, struct lp_kv_bytes key,
			       struct lp_kv_bytes value)
{
	return lpi_guarded([=] { return append_record(batch, 1, key, &value); });
}

extern "C" int lp_kv_batch_delete(struct lp_kv_batch *batch, struct lp_kv_bytes key)
{
	return lpi_guarded([=] { return append_record(batch, 0, key, nullptr); });
}

extern "C" void lp_kv_batch_clear(struct lp_kv_batch *batch)
{
	begin_batch(batch);
}

extern "C" uint32_t lp_kv_batch_cnt(const struct lp_kv_batch *batch)
{
	return batch->cnt;
}

extern "C" struct lp_kv_bytes lp_kv_batch_data(const struct lp_kv_batch *batch)
{
	return {batch->bytes.data(), batch->bytes.size()};
}

/* RocksDB's own walk asserts that there is no record of a kind that its caller does not handle, so
 * bytes from outside must never come to it unseen. */
extern "C" int lp_kv_batch_load(struct lp_kv_batch *batch, struct lp_kv_bytes data)
{
	return lpi_guarded([=] {
		begin_batch(batch);
		const int err = lp_kv_walk(data, nullptr);
		if (err < 0)
			return err;
		batch->bytes.assign(static_cast<const char *>(data.data), data.len);
		batch->cnt = lp_get_le32(&batch->bytes[CNT_OFF]);
		return 0;
	});
}
