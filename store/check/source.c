/* SPDX-License-Identifier: Apache-2.0 */
/* Where records and used space come from: of a shard that nobody else has open, or of a view. */
#include "base/error.h"
#include "store/check/fsck_impl.h"

int lpi_fsck_get(const struct lpi_fsck_shard *shard, const struct lp_key *key,
		 struct lp_kv_value *ret_value)
{
	const struct lp_kv_bytes bytes = {key->bytes, key->len};
	if (shard->view != NULL)
		return lp_kv_get_at(shard->view->kv, shard->view->snapshot, bytes, ret_value);
	return lp_kv_get(lp_shard_kv(shard->shard), bytes, ret_value);
}

int lpi_fsck_iter_open(const struct lpi_fsck_shard *shard, struct lp_kv_bytes lower,
		       struct lp_kv_bytes upper, struct lp_kv_iter **ret_iter)
{
	if (shard->view != NULL)
		return lp_kv_iter_open_at(shard->view->kv, shard->view->snapshot, lower, upper,
					  ret_iter);
	return lp_kv_iter_open(lp_shard_kv(shard->shard), lower, upper, false, ret_iter);
}

bool lpi_fsck_owns(const struct lpi_fsck_shard *shard, uint32_t chunk)
{
	return shard->view != NULL ? lp_view_owns(shard->view, chunk)
				   : lp_space_owns(lp_shard_space(shard->shard), chunk);
}

const struct lp_bitmap *lpi_fsck_mine(const struct lpi_fsck_shard *shard, uint32_t chunk)
{
	if (shard->view == NULL)
		return lp_space_mine_map(lp_shard_space(shard->shard), chunk);
	return shard->view->mine[chunk].words != NULL ? &shard->view->mine[chunk] : NULL;
}

bool lpi_fsck_is_used(const struct lpi_fsck_shard *shard, struct lp_extent extent)
{
	return shard->view != NULL ? lp_view_is_used(shard->view, extent)
				   : lp_space_is_used(lp_shard_space(shard->shard), extent);
}

bool lpi_fsck_is_unused(const struct lpi_fsck_shard *shard, struct lp_extent extent)
{
	return shard->view != NULL ? lp_view_is_unused(shard->view, extent)
				   : lp_space_is_unused(lp_shard_space(shard->shard), extent);
}

void lpi_fsck_doubt_all_maps(struct lpi_fsck *fsck)
{
	for (uint32_t i = 0; i < fsck->report->shards; i++)
		fsck->shards[i].maps_in_doubt = true;
}

bool lpi_fsck_is_over(const struct lpi_fsck_shard *shard)
{
	struct lpi_fsck *fsck = shard->fsck;
	if (shard->view != NULL &&
	    atomic_load_explicit(&shard->view->is_over, memory_order_relaxed))
		fsck->is_over = true;
	return fsck->is_over;
}
