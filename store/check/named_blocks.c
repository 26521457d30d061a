/* SPDX-License-Identifier: Apache-2.0 */
/* A word of the bitmaps is 64 blocks of the chunk, which need not be a group of lp_refs: chunk 0
 * begins anywhere on the device. */
#include "store/check/named_blocks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORD_BITS   64u
#define GROUP_SHIFT 6u /* lp_refs' */

struct place {
	uint32_t chunk;
	uint32_t bit;
};

static bool find_place(const struct lpi_fsck_blocks *blocks, uint64_t block, struct place *ret)
{
	if (block < blocks->base_block)
		return false;
	uint64_t offset = block - blocks->base_block;
	if (offset / blocks->chunk_blocks >= blocks->chunk_cnt)
		return false;
	ret->chunk = (uint32_t)(offset / blocks->chunk_blocks);
	ret->bit = (uint32_t)(offset % blocks->chunk_blocks);
	return blocks->owned[ret->chunk] != NULL;
}

static bool has_bit(const uint64_t *words, uint32_t bit)
{
	return words != NULL && (words[bit / WORD_BITS] >> bit % WORD_BITS & 1) != 0;
}

static uint64_t *new_words(const struct lpi_fsck_blocks *blocks)
{
	return calloc(blocks->chunk_blocks / WORD_BITS, sizeof(uint64_t));
}

int lpi_fsck_blocks_init(struct lpi_fsck_blocks *blocks, uint64_t base_block, uint32_t chunk_blocks,
			 uint32_t chunk_cnt)
{
	LP_ASSERT(chunk_blocks >= WORD_BITS && lp_is_power_of_two(chunk_blocks));
	LP_ASSERT(chunk_cnt > 0);
	*blocks = (struct lpi_fsck_blocks){
		.base_block = base_block, .chunk_blocks = chunk_blocks, .chunk_cnt = chunk_cnt};
	blocks->owned = calloc(chunk_cnt, sizeof(*blocks->owned));
	blocks->shared = calloc(chunk_cnt, sizeof(*blocks->shared));
	blocks->mine = calloc(chunk_cnt, sizeof(*blocks->mine));
	return blocks->owned != NULL && blocks->shared != NULL && blocks->mine != NULL ? 0
										       : -ENOMEM;
}

void lpi_fsck_blocks_fini(struct lpi_fsck_blocks *blocks)
{
	for (uint32_t i = 0; i < blocks->chunk_cnt; i++) {
		if (blocks->owned != NULL)
			free(blocks->owned[i]);
		if (blocks->shared != NULL)
			free(blocks->shared[i]);
		if (blocks->mine != NULL)
			free(blocks->mine[i]);
	}
	free(blocks->owned);
	free(blocks->shared);
	free(blocks->mine);
	*blocks = (struct lpi_fsck_blocks){.chunk_cnt = 0};
}

int lpi_fsck_blocks_add(struct lpi_fsck_blocks *blocks, uint32_t chunk,
			const struct lp_bitmap *mine)
{
	LP_ASSERT(chunk < blocks->chunk_cnt);
	LP_ASSERT(blocks->owned[chunk] == NULL);
	LP_ASSERT(mine == NULL || mine->bit_cnt == blocks->chunk_blocks);
	blocks->owned[chunk] = new_words(blocks);
	if (mine != NULL && blocks->owned[chunk] != NULL) {
		blocks->mine[chunk] = new_words(blocks);
		if (blocks->mine[chunk] == NULL)
			return -ENOMEM;
		memcpy(blocks->mine[chunk], mine->words, blocks->chunk_blocks / 8);
	}
	return blocks->owned[chunk] != NULL ? 0 : -ENOMEM;
}

/* The part of the extent that begins at block and lies in its chunk is the shard's. */
static bool is_mine(const struct lpi_fsck_blocks *blocks, struct place place, uint64_t cnt)
{
	if (blocks->mine[place.chunk] == NULL)
		return true;
	uint64_t end = LP_MIN(place.bit + cnt, (uint64_t)blocks->chunk_blocks);
	for (uint64_t bit = place.bit; bit < end; bit++) {
		if (!has_bit(blocks->mine[place.chunk], (uint32_t)bit))
			return false;
	}
	return true;
}

bool lpi_fsck_blocks_has(const struct lpi_fsck_blocks *blocks, struct lp_extent extent)
{
	struct place place;
	LP_ASSERT(extent.cnt > 0);
	for (uint64_t block = extent.block; block < lp_extent_end(extent);
	     block += blocks->chunk_blocks - place.bit) {
		if (!find_place(blocks, block, &place) ||
		    !is_mine(blocks, place, lp_extent_end(extent) - block))
			return false;
	}
	return true;
}

/* Returns 1 if the block had been named in a way that does not go with this one. */
static int name_block(struct lpi_fsck_blocks *blocks, struct place place, bool is_shared)
{
	uint64_t **maps = is_shared ? blocks->shared : blocks->owned;
	bool was_shared = has_bit(blocks->shared[place.chunk], place.bit);
	bool was_owned = has_bit(blocks->owned[place.chunk], place.bit);
	maps[place.chunk][place.bit / WORD_BITS] |= UINT64_C(1) << place.bit % WORD_BITS;
	return was_owned || (was_shared && !is_shared);
}

int lpi_fsck_blocks_name(struct lpi_fsck_blocks *blocks, struct lp_extent extent, bool is_shared,
			 uint64_t *ret_twice)
{
	uint64_t twice = 0;
	for (uint64_t block = extent.block; block < lp_extent_end(extent); block++) {
		struct place place;
		bool found = find_place(blocks, block, &place);
		LP_ASSERT(found);
		if (is_shared && blocks->shared[place.chunk] == NULL)
			blocks->shared[place.chunk] = new_words(blocks);
		if (is_shared && blocks->shared[place.chunk] == NULL)
			return -ENOMEM;
		twice += (uint64_t)name_block(blocks, place, is_shared);
	}
	*ret_twice = twice;
	return 0;
}

static bool is_named(const struct lpi_fsck_blocks *blocks, struct place place)
{
	return has_bit(blocks->owned[place.chunk], place.bit) ||
	       has_bit(blocks->shared[place.chunk], place.bit);
}

struct lp_extent lpi_fsck_blocks_run(const struct lpi_fsck_blocks *blocks, uint64_t block,
				     bool *ret_is_named)
{
	struct place place;
	bool found = find_place(blocks, block, &place);
	LP_ASSERT(found);
	bool first = is_named(blocks, place);
	uint64_t cnt = 0;
	while (place.bit < blocks->chunk_blocks && is_named(blocks, place) == first) {
		place.bit++;
		cnt++;
	}
	*ret_is_named = first;
	return (struct lp_extent){block, cnt};
}

/* The first shared block at or behind this one. */
static bool next_shared(const struct lpi_fsck_blocks *blocks, uint64_t from, uint64_t *ret)
{
	uint64_t offset = from > blocks->base_block ? from - blocks->base_block : 0;
	uint64_t bit = offset % blocks->chunk_blocks;
	for (uint64_t chunk = offset / blocks->chunk_blocks; chunk < blocks->chunk_cnt; chunk++) {
		const uint64_t *words = blocks->shared[chunk];
		for (; words != NULL && bit < blocks->chunk_blocks; bit++) {
			if (has_bit(words, (uint32_t)bit)) {
				*ret = blocks->base_block + chunk * blocks->chunk_blocks + bit;
				return true;
			}
		}
		bit = 0;
	}
	return false;
}

bool lpi_fsck_blocks_next_group(const struct lpi_fsck_blocks *blocks, uint64_t from_group,
				uint64_t *ret_group)
{
	uint64_t block;
	if (!next_shared(blocks, from_group << GROUP_SHIFT, &block))
		return false;
	*ret_group = block >> GROUP_SHIFT;
	return true;
}
