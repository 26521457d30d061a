/* SPDX-License-Identifier: Apache-2.0 */
/* An array in order. There are some thousand splits at most, and they change when a shard has run
 * out of space: so an insertion moves what is behind it. */
#include "store/volume/splits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "format/disk.h"
#include "format/space.h"
#include "store/record/types.h"
#include "store/space/record.h"

#define BLOCKS_MAX (UINT32_C(1) << 18) /* whose bits are no longer than body_bytes can say */

void lpi_splits_init(struct lpi_splits *splits, uint32_t block_cnt)
{
	LP_ASSERT(block_cnt % LP_BITMAP_WORD_BITS == 0);
	LP_ASSERT(block_cnt <= BLOCKS_MAX);
	*splits = (struct lpi_splits){.block_cnt = block_cnt};
}

void lpi_splits_fini(struct lpi_splits *splits)
{
	for (uint32_t i = 0; i < splits->cnt; i++)
		free(splits->at[i].blocks.words);
	free(splits->at);
	lpi_splits_init(splits, splits->block_cnt);
}

static bool is_before(const struct lpi_split *split, uint32_t chunk_idx, uint32_t shard_idx)
{
	return split->chunk_idx < chunk_idx ||
	       (split->chunk_idx == chunk_idx && split->shard_idx < shard_idx);
}

/* Where that split is, or would be. */
static uint32_t place_of(const struct lpi_splits *splits, uint32_t chunk_idx, uint32_t shard_idx)
{
	uint32_t from = 0;
	uint32_t to = splits->cnt;
	while (from < to) {
		uint32_t mid = from + (to - from) / 2;
		if (is_before(&splits->at[mid], chunk_idx, shard_idx))
			from = mid + 1;
		else
			to = mid;
	}
	return from;
}

static bool is_at(const struct lpi_splits *splits, uint32_t place, uint32_t chunk_idx,
		  uint32_t shard_idx)
{
	return place < splits->cnt && splits->at[place].chunk_idx == chunk_idx &&
	       splits->at[place].shard_idx == shard_idx;
}

const struct lpi_split *lpi_splits_find(const struct lpi_splits *splits, uint32_t chunk_idx,
					uint32_t shard_idx)
{
	uint32_t place = place_of(splits, chunk_idx, shard_idx);
	return is_at(splits, place, chunk_idx, shard_idx) ? &splits->at[place] : NULL;
}

const struct lpi_split *lpi_splits_next(const struct lpi_splits *splits, uint32_t chunk_idx)
{
	uint32_t place = place_of(splits, chunk_idx, 0);
	return place < splits->cnt ? &splits->at[place] : NULL;
}

static int make_room(struct lpi_splits *splits)
{
	if (splits->cnt < splits->room)
		return 0;
	uint32_t room = LP_MAX(2 * splits->room, 16u);
	struct lpi_split *at = realloc(splits->at, room * sizeof(*at));
	if (at == NULL)
		return -ENOMEM;
	splits->at = at;
	splits->room = room;
	return 0;
}

/* With no block yet. */
static int insert(struct lpi_splits *splits, uint32_t place, uint32_t chunk_idx, uint32_t shard_idx)
{
	uint64_t words = lp_bitmap_word_cnt(splits->block_cnt);
	if ((splits->cnt + UINT64_C(1)) * words * sizeof(uint64_t) > LPI_SPLITS_MEMORY_MAX)
		return -ENOSPC;
	int err = make_room(splits);
	uint64_t *bits = err == 0 ? calloc(words, sizeof(*bits)) : NULL;
	if (bits == NULL)
		return -ENOMEM;
	struct lpi_split *at = &splits->at[place];
	memmove(at + 1, at, (splits->cnt - place) * sizeof(*at));
	*at = (struct lpi_split){.chunk_idx = chunk_idx, .shard_idx = shard_idx};
	lp_bitmap_init(&at->blocks, bits, splits->block_cnt);
	splits->cnt++;
	return 0;
}

int lpi_splits_add(struct lpi_splits *splits, uint32_t chunk_idx, uint32_t shard_idx,
		   const struct lp_bitmap *blocks)
{
	uint32_t place = place_of(splits, chunk_idx, shard_idx);
	LP_ASSERT(blocks->bit_cnt == splits->block_cnt);
	if (!is_at(splits, place, chunk_idx, shard_idx)) {
		int err = insert(splits, place, chunk_idx, shard_idx);
		if (err < 0)
			return err;
	}
	for (uint64_t i = 0; i < lp_bitmap_word_cnt(splits->block_cnt); i++) {
		LP_ASSERT((splits->at[place].blocks.words[i] & blocks->words[i]) == 0);
		splits->at[place].blocks.words[i] |= blocks->words[i];
	}
	return 0;
}

void lpi_splits_remove(struct lpi_splits *splits, uint32_t chunk_idx, uint32_t shard_idx,
		       const struct lp_bitmap *blocks)
{
	uint32_t place = place_of(splits, chunk_idx, shard_idx);
	LP_ASSERT(is_at(splits, place, chunk_idx, shard_idx));
	struct lpi_split *split = &splits->at[place];
	uint64_t left = 0;
	for (uint64_t i = 0; i < lp_bitmap_word_cnt(splits->block_cnt); i++) {
		LP_ASSERT((blocks->words[i] & ~split->blocks.words[i]) == 0);
		split->blocks.words[i] &= ~blocks->words[i];
		left |= split->blocks.words[i];
	}
	if (left != 0)
		return;
	free(split->blocks.words);
	splits->cnt--;
	memmove(split, split + 1, (splits->cnt - place) * sizeof(*split));
}

int lpi_splits_copy(const struct lpi_splits *splits, struct lpi_splits *ret_copy)
{
	struct lpi_splits copy;
	int err = 0;
	lpi_splits_init(&copy, splits->block_cnt);
	for (uint32_t i = 0; i < splits->cnt && err == 0; i++)
		err = lpi_splits_add(&copy, splits->at[i].chunk_idx, splits->at[i].shard_idx,
				     &splits->at[i].blocks);
	if (err < 0)
		lpi_splits_fini(&copy);
	else
		*ret_copy = copy;
	return err;
}

/* --- As bytes --------------------------------------------------------------------------------- */

size_t lpi_splits_one_max(uint32_t block_cnt)
{
	return LP_DISK_SPLIT_SIZE + block_cnt / 8;
}

int lpi_splits_encode(const struct lpi_splits *splits, void *scratch, void *buf, size_t room,
		      size_t *ret_len)
{
	uint8_t *one = scratch;
	size_t len = 0;
	for (uint32_t i = 0; i < splits->cnt; i++) {
		const struct lpi_split *split = &splits->at[i];
		struct lp_disk_split header = {.chunk = split->chunk_idx,
					       .shard = (uint8_t)split->shard_idx};
		header.body_bytes = (uint16_t)lpi_space_bits_encode(
			&split->blocks, one + LP_DISK_SPLIT_SIZE, &header.encoding);
		size_t all = LP_DISK_SPLIT_SIZE + header.body_bytes;
		if (all > room - len)
			return -ENOSPC;
		lp_disk_split_encode(&header, one);
		memcpy((uint8_t *)buf + len, one, all);
		len += all;
	}
	*ret_len = len;
	return 0;
}

/* No block is named by two splits of one chunk. They stand side by side. */
static bool are_apart(const struct lpi_splits *splits)
{
	const struct lpi_split *last = &splits->at[splits->cnt - 1];
	for (const struct lpi_split *split = last; split-- > splits->at;) {
		if (split->chunk_idx != last->chunk_idx)
			return true;
		for (uint64_t i = 0; i < lp_bitmap_word_cnt(splits->block_cnt); i++) {
			if ((split->blocks.words[i] & last->blocks.words[i]) != 0)
				return false;
		}
	}
	return true;
}

/* One more, which stands at the beginning of the bytes. Returns its length. */
static int decode_one(struct lpi_splits *splits, const uint8_t *bytes, size_t len)
{
	struct lp_disk_split header;
	if (len < LP_DISK_SPLIT_SIZE)
		return -EUCLEAN;
	lp_disk_split_decode(bytes, &header);
	if (header.body_bytes > len - LP_DISK_SPLIT_SIZE || header.shard >= LP_SHARDS_MAX ||
	    (splits->cnt > 0 &&
	     !is_before(&splits->at[splits->cnt - 1], header.chunk, header.shard)))
		return -EUCLEAN;
	int err = insert(splits, splits->cnt, header.chunk, header.shard);
	if (err < 0)
		return err == -ENOSPC ? -EUCLEAN : err;
	struct lp_bitmap *blocks = &splits->at[splits->cnt - 1].blocks;
	if (!lpi_space_bits_decode(header.encoding, bytes + LP_DISK_SPLIT_SIZE, header.body_bytes,
				   blocks) ||
	    lp_bitmap_is_clear(blocks, 0, blocks->bit_cnt) || !are_apart(splits))
		return -EUCLEAN;
	return (int)(LP_DISK_SPLIT_SIZE + header.body_bytes);
}

int lpi_splits_decode(const void *bytes, size_t len, uint32_t cnt, uint32_t block_cnt,
		      struct lpi_splits *ret_splits)
{
	struct lpi_splits splits;
	size_t at = 0;
	int used = 0;
	if (len > LPI_SPLITS_BYTES_MAX || block_cnt == 0 || block_cnt > BLOCKS_MAX ||
	    block_cnt % LP_BITMAP_WORD_BITS != 0)
		return -EUCLEAN;
	lpi_splits_init(&splits, block_cnt);
	for (uint32_t i = 0; i < cnt && used >= 0; i++) {
		used = decode_one(&splits, (const uint8_t *)bytes + at, len - at);
		at += used > 0 ? (size_t)used : 0;
	}
	if (used >= 0 && at != len)
		used = -EUCLEAN;
	if (used < 0)
		lpi_splits_fini(&splits);
	else
		*ret_splits = splits;
	return used < 0 ? used : 0;
}
