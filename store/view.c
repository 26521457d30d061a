/* SPDX-License-Identifier: Apache-2.0 */
#include "store/view.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "store/space/space.h"

/* NULL: there is nothing to copy. */
static int copy_map(const struct lp_bitmap *map, struct lp_bitmap *ret_copy)
{
	if (map == NULL)
		return 0;
	size_t bytes = lp_bitmap_word_cnt(map->bit_cnt) * sizeof(*map->words);
	uint64_t *words = malloc(bytes);
	if (words == NULL)
		return -ENOMEM;
	memcpy(words, map->words, bytes);
	*ret_copy = (struct lp_bitmap){.words = words, .bit_cnt = map->bit_cnt};
	return 0;
}

static int copy_chunk(struct lp_view *view, const struct lp_space *space, uint32_t idx)
{
	int err = copy_map(lp_space_used_map(space, idx), &view->used[idx]);
	return err == 0 ? copy_map(lp_space_mine_map(space, idx), &view->mine[idx]) : err;
}

int lpi_view_new(uint32_t shard_idx, struct lp_kv *kv, const struct lp_space *space,
		 struct lp_view **ret_view)
{
	const struct lp_space_config *config = lp_space_config(space);
	struct lp_view *view = calloc(1, sizeof(*view));
	if (view == NULL)
		return -ENOMEM;
	view->shard_idx = shard_idx;
	view->kv = kv;
	view->base_block = config->base_block;
	view->chunk_blocks = config->chunk_blocks;
	view->chunk_cnt = config->chunk_cnt_max;
	view->used = calloc(view->chunk_cnt, sizeof(*view->used));
	view->mine = calloc(view->chunk_cnt, sizeof(*view->mine));
	int err = view->used != NULL && view->mine != NULL ? 0 : -ENOMEM;
	for (uint32_t i = 0; i < view->chunk_cnt && err == 0; i++)
		err = copy_chunk(view, space, i);
	if (err == 0)
		err = lp_kv_snapshot_new(kv, &view->snapshot);
	if (err < 0)
		lpi_view_free(view);
	else
		*ret_view = view;
	return err;
}

void lpi_view_free(struct lp_view *view)
{
	if (view == NULL)
		return;
	lp_kv_snapshot_free(view->kv, view->snapshot);
	for (uint32_t i = 0; i < view->chunk_cnt; i++) {
		if (view->used != NULL)
			free(view->used[i].words);
		if (view->mine != NULL)
			free(view->mine[i].words);
	}
	free(view->used);
	free(view->mine);
	free(view);
}

/* Cuts the next part of the extent that is in one chunk, in blocks of it; NULL at the end. */
static const struct lp_bitmap *next_part(const struct lp_view *view, struct lp_extent *extent,
					 uint64_t *ret_from, uint64_t *ret_to)
{
	if (extent->cnt == 0)
		return NULL;
	LP_ASSERT(extent->block >= view->base_block);
	uint64_t offset = extent->block - view->base_block;
	uint64_t chunk = offset / view->chunk_blocks;
	LP_ASSERT(chunk < view->chunk_cnt && view->used[chunk].words != NULL);
	*ret_from = offset % view->chunk_blocks;
	*ret_to = LP_MIN(*ret_from + extent->cnt, (uint64_t)view->chunk_blocks);
	extent->block += *ret_to - *ret_from;
	extent->cnt -= *ret_to - *ret_from;
	return &view->used[chunk];
}

bool lp_view_is_used(const struct lp_view *view, struct lp_extent extent)
{
	const struct lp_bitmap *used;
	uint64_t from;
	uint64_t to;
	while ((used = next_part(view, &extent, &from, &to)) != NULL) {
		if (!lp_bitmap_is_set(used, from, to))
			return false;
	}
	return true;
}

bool lp_view_is_unused(const struct lp_view *view, struct lp_extent extent)
{
	const struct lp_bitmap *used;
	uint64_t from;
	uint64_t to;
	while ((used = next_part(view, &extent, &from, &to)) != NULL) {
		if (!lp_bitmap_is_clear(used, from, to))
			return false;
	}
	return true;
}
