/* SPDX-License-Identifier: Apache-2.0 */
/* Reading of the index: single keys, in order, and as of a moment. */
#include <array>

#include "base/assert.h"
#include "store/index/kv_impl.h"
#include "store/kvfs/kvfs_cxx.h"

using rocksdb::PinnableSlice;
using rocksdb::Slice;
using rocksdb::Status;

/* --- Single keys -------------------------------------------------------------------------------
 */

static_assert(sizeof(PinnableSlice) <= sizeof(lp_kv_value::pin), "RocksDB's slice has grown");
static_assert(alignof(PinnableSlice) <= alignof(uint64_t), "RocksDB's slice has grown");

static PinnableSlice *pin_of(struct lp_kv_value *value)
{
	return reinterpret_cast<PinnableSlice *>(value->pin);
}

static int get(struct lp_kv *kv, const rocksdb::ReadOptions &options, struct lp_kv_bytes key,
	       struct lp_kv_value *ret_value, const struct lp_fetch *fetch = nullptr)
{
	lpi_kv_count_nothing();
	auto *pin = new (ret_value->pin) PinnableSlice;
	const Status status =
		kv->db->Get(options, kv->db->DefaultColumnFamily(), lpi_kv_slice_of(key), pin);
	/* RocksDB may take a read that failed for a table without the key: once one was put off its
	 * answer says nothing. */
	const bool is_put_off = fetch != nullptr && fetch->was_put_off;
	if (status.ok() && !is_put_off) {
		ret_value->bytes = lpi_kv_bytes_of(*pin);
		return 0;
	}
	pin->~PinnableSlice();
	return is_put_off ? -EAGAIN : lpi_kvfs_errno(status);
}

extern "C" int lp_kv_get_cached(struct lp_kv *kv, struct lp_kv_bytes key, struct lp_fetch *fetch,
				struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] {
		const bool is_first = fetch->data == nullptr;
		const lpi_kvfs_fetching here(fetch);
		const int err = get(kv, kv->read_all, key, ret_value, fetch);
		if (is_first)
			lpi_kv_bump(err == -EAGAIN ? &kv->cached_missed_cnt : &kv->cached_hit_cnt,
				    1);
		return err;
	});
}

extern "C" int lp_kv_get(struct lp_kv *kv, struct lp_kv_bytes key, struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] { return get(kv, kv->read_all, key, ret_value); });
}

extern "C" int lp_kv_get_persisted(struct lp_kv *kv, struct lp_kv_bytes key,
				   struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] { return get(kv, kv->read_persisted, key, ret_value); });
}

extern "C" void lp_kv_multi_get(struct lp_kv *kv, size_t cnt, const struct lp_kv_bytes *keys,
				struct lp_kv_value *ret_values, int *ret_results)
{
	LP_ASSERT(cnt <= LP_KV_MULTI_MAX);
	std::array<Slice, LP_KV_MULTI_MAX> slices;
	std::array<PinnableSlice, LP_KV_MULTI_MAX> pins;
	std::array<Status, LP_KV_MULTI_MAX> statuses;
	for (size_t i = 0; i < cnt; i++)
		slices[i] = lpi_kv_slice_of(keys[i]);
	kv->db->MultiGet(kv->read_all, kv->db->DefaultColumnFamily(), cnt, slices.data(),
			 pins.data(), statuses.data());
	for (size_t i = 0; i < cnt; i++) {
		ret_results[i] = lpi_kvfs_errno(statuses[i]);
		if (ret_results[i] < 0)
			continue;
		auto *pin = new (ret_values[i].pin) PinnableSlice(std::move(pins[i]));
		ret_values[i].bytes = lpi_kv_bytes_of(*pin);
	}
}

extern "C" void lp_kv_value_release(struct lp_kv_value *value)
{
	pin_of(value)->~PinnableSlice();
	value->bytes = {nullptr, 0};
}

/* --- Iterators ---------------------------------------------------------------------------------
 */

struct lp_kv_iter {
	std::string lower;
	std::string upper;
	Slice lower_slice; /* RocksDB keeps pointers to these */
	Slice upper_slice;
	std::unique_ptr<rocksdb::Iterator> rep;
};

static void set_bound(struct lp_kv_bytes bound, std::string *copy, Slice *slice,
		      const Slice **ret_option)
{
	if (bound.data == nullptr)
		return;
	copy->assign(static_cast<const char *>(bound.data), bound.len);
	*slice = *copy;
	*ret_option = slice;
}

static int open_iter(struct lp_kv *kv, rocksdb::ReadOptions options, struct lp_kv_bytes lower,
		     struct lp_kv_bytes upper, struct lp_kv_iter **ret_iter)
{
	auto iter = std::make_unique<lp_kv_iter>();
	set_bound(lower, &iter->lower, &iter->lower_slice, &options.iterate_lower_bound);
	set_bound(upper, &iter->upper, &iter->upper_slice, &options.iterate_upper_bound);
	iter->rep.reset(kv->db->NewIterator(options));
	const int err = lpi_kvfs_errno(iter->rep->status());
	if (err < 0)
		return err;
	*ret_iter = iter.release();
	return 0;
}

extern "C" int lp_kv_iter_open(struct lp_kv *kv, struct lp_kv_bytes lower, struct lp_kv_bytes upper,
			       bool cached, struct lp_kv_iter **ret_iter)
{
	return lpi_guarded([=] {
		return open_iter(kv, cached ? kv->read_cached : kv->read_all, lower, upper,
				 ret_iter);
	});
}

extern "C" void lp_kv_iter_close(struct lp_kv_iter *iter)
{
	delete iter;
}

/* An iterator that is not valid may have come to the end, or to a block that it could not read:
 * only its status tells. */
template <class Move> static int moved(struct lp_kv_iter *iter, Move move)
{
	return lpi_guarded([=] {
		move(iter->rep.get());
		if (iter->rep->Valid())
			return 0;
		const int err = lpi_kvfs_errno(iter->rep->status());
		return err < 0 ? err : -ENOENT;
	});
}

extern "C" int lp_kv_iter_seek(struct lp_kv_iter *iter, struct lp_kv_bytes key)
{
	return moved(iter, [=](rocksdb::Iterator *rep) { rep->Seek(lpi_kv_slice_of(key)); });
}

extern "C" int lp_kv_iter_seek_first(struct lp_kv_iter *iter)
{
	return moved(iter, [](rocksdb::Iterator *rep) { rep->SeekToFirst(); });
}

extern "C" int lp_kv_iter_seek_last(struct lp_kv_iter *iter)
{
	return moved(iter, [](rocksdb::Iterator *rep) { rep->SeekToLast(); });
}

extern "C" int lp_kv_iter_next(struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return moved(iter, [](rocksdb::Iterator *rep) { rep->Next(); });
}

extern "C" int lp_kv_iter_prev(struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return moved(iter, [](rocksdb::Iterator *rep) { rep->Prev(); });
}

extern "C" struct lp_kv_bytes lp_kv_iter_key(const struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return lpi_kv_bytes_of(iter->rep->key());
}

extern "C" struct lp_kv_bytes lp_kv_iter_value(const struct lp_kv_iter *iter)
{
	LP_ASSERT(iter->rep->Valid());
	return lpi_kv_bytes_of(iter->rep->value());
}

/* --- Snapshots ---------------------------------------------------------------------------------
 */

/* RocksDB's own, under a name of ours: there is nothing to be added. */
static const rocksdb::Snapshot *rep_of(const struct lp_kv_snapshot *snapshot)
{
	return reinterpret_cast<const rocksdb::Snapshot *>(snapshot);
}

static rocksdb::ReadOptions read_at(const struct lp_kv *kv, const struct lp_kv_snapshot *snapshot)
{
	rocksdb::ReadOptions options = kv->read_all;
	options.snapshot = rep_of(snapshot);
	options.fill_cache = false;
	return options;
}

extern "C" int lp_kv_snapshot_new(struct lp_kv *kv, struct lp_kv_snapshot **ret_snapshot)
{
	return lpi_guarded([=] {
		auto *rep = const_cast<rocksdb::Snapshot *>(kv->db->GetSnapshot());
		*ret_snapshot = reinterpret_cast<struct lp_kv_snapshot *>(rep);
		return rep != nullptr ? 0 : -ENOMEM;
	});
}

extern "C" void lp_kv_snapshot_free(struct lp_kv *kv, struct lp_kv_snapshot *snapshot)
{
	if (snapshot != nullptr)
		kv->db->ReleaseSnapshot(rep_of(snapshot));
}

extern "C" int lp_kv_get_at(struct lp_kv *kv, const struct lp_kv_snapshot *snapshot,
			    struct lp_kv_bytes key, struct lp_kv_value *ret_value)
{
	return lpi_guarded([=] { return get(kv, read_at(kv, snapshot), key, ret_value); });
}

extern "C" int lp_kv_iter_open_at(struct lp_kv *kv, const struct lp_kv_snapshot *snapshot,
				  struct lp_kv_bytes lower, struct lp_kv_bytes upper,
				  struct lp_kv_iter **ret_iter)
{
	return lpi_guarded(
		[=] { return open_iter(kv, read_at(kv, snapshot), lower, upper, ret_iter); });
}
