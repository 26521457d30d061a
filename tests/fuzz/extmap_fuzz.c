/* SPDX-License-Identifier: Apache-2.0 */
/* The root of an extent map and its leaves, from bytes that may be anything.
 *
 *   byte 0: 1 repair the crcs of leaves, also of one in the root; byte 1: what is truncated
 *   then u16 length of the root, root, and leaves: u32 number, u16 length, bytes
 *
 * A root that is accepted is encoded to the same bytes, and so is a leaf. What of the map is in
 * memory can be looked up and truncated, and what comes of that can be loaded again. */
#include <errno.h>

#include "store/extmap/extmap.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR  1u
#define ROOT_OFFSET  4u
#define LEAF_BYTES   6u
#define STEPS_MAX    8
#define SEGMENTS_MAX 16

static const struct lp_ino ino = {7};

static void repair_leaf(uint8_t *leaf, size_t len, uint32_t idx)
{
	uint8_t place[2 * sizeof(uint64_t)];
	if (len < LP_EXTMAP_LEAF_HEAD_SIZE)
		return;
	lp_put_le64(place, ino.nr);
	lp_put_le64(place + sizeof(uint64_t), (uint64_t)idx * LP_EXTMAP_LEAF_BLOCKS);
	uint32_t crc = lp_crc32c(0, place, sizeof(place));
	crc = lp_crc32c(crc, leaf, LP_EXTMAP_LEAF_HEAD_CRC_OFF);
	crc = lp_crc32c(crc, leaf + LP_EXTMAP_LEAF_HEAD_SIZE, len - LP_EXTMAP_LEAF_HEAD_SIZE);
	lp_put_le32(leaf + LP_EXTMAP_LEAF_HEAD_CRC_OFF, crc);
}

static void repair_root(uint8_t *root, size_t len)
{
	if (len > LP_EXTMAP_ROOT_SIZE && root[LP_EXTMAP_ROOT_KIND_OFF] == LP_EXTMAP_KIND_INLINE)
		repair_leaf(root + LP_EXTMAP_ROOT_SIZE, len - LP_EXTMAP_ROOT_SIZE, 0);
}

static int load_root(struct lp_extmap *map, const uint8_t *bytes, size_t len, bool is_repaired)
{
	uint8_t again[LP_EXTMAP_ROOT_BYTES_MAX];
	uint8_t *root = lpi_fuzz_copy(bytes, len);
	if (is_repaired)
		repair_root(root, len);
	int err = lp_extmap_load_root(map, root, len);
	LP_ASSERT(lpi_extmap_is_sound(map));
	if (err == 0) {
		LP_ASSERT(lp_extmap_encode_root(map, again) == len);
		LP_ASSERT(len == 0 || memcmp(again, root, len) == 0);
	} else {
		LP_ASSERT(lp_extmap_blocks(map) == 0);
	}
	free(root);
	return err;
}

/* A leaf that was accepted, by the leaf's own decoder, there and back. */
static void check_leaf(const uint8_t *bytes, size_t len, uint32_t idx)
{
	uint8_t again[LP_EXTMAP_LEAF_BYTES_MAX];
	uint32_t words_cnt = 0;
	uint32_t crcs_end = 0;
	int err = lpi_leaf_check(bytes, len, ino, idx, &words_cnt, &crcs_end);
	if (err < 0)
		return;
	crcs_end = LP_MAX(crcs_end, 1U);
	struct lpi_leaf *leaf = malloc(lpi_leaf_bytes(words_cnt, crcs_end));
	LP_ASSERT(leaf != NULL);
	lpi_leaf_init(leaf, idx, words_cnt, crcs_end);
	lpi_leaf_decode(leaf, bytes, len);
	LP_ASSERT(lpi_leaf_is_sound(leaf));
	LP_ASSERT(lpi_leaf_encode(leaf, ino, again) == len);
	LP_ASSERT(memcmp(again, bytes, len) == 0);
	free(leaf);
}

static void load_leaves(struct lp_extmap *map, const uint8_t *bytes, size_t len, bool is_repaired)
{
	for (size_t at = 0; at + LEAF_BYTES <= len;) {
		uint32_t idx = 0;
		uint64_t block = lp_get_le32(bytes + at) * (uint64_t)LP_EXTMAP_LEAF_BLOCKS;
		size_t left = len - at - LEAF_BYTES;
		size_t leaf_len = LP_MIN((size_t)lp_get_le16(bytes + at + 4), left);
		uint8_t *leaf = lpi_fuzz_copy(bytes + at + LEAF_BYTES, leaf_len);
		if (lp_extmap_leaf_of_key(map, block, &idx) == 0) {
			if (is_repaired)
				repair_leaf(leaf, leaf_len, idx);
			int err = lp_extmap_load(map, idx, leaf, leaf_len);
			LP_ASSERT(err == 0 || err == -EBADMSG || err == -EUCLEAN);
			LP_ASSERT(lpi_extmap_is_sound(map));
			check_leaf(leaf, leaf_len, idx);
		}
		free(leaf);
		at += LEAF_BYTES + leaf_len;
	}
}

/* All extents, as far as they are in memory. */
static void look_up_all(struct lp_extmap *map)
{
	static uint32_t crcs[LP_EXTMAP_LEAF_BLOCKS];
	struct lp_extmap_segment segments[SEGMENTS_MAX];
	uint64_t at = 0;
	for (int i = 0; i < STEPS_MAX; i++) {
		int err = lp_extmap_seek(map, at, LP_EXTMAP_SEEK_ALLOCATED, &at);
		if (err < 0)
			return;
		uint64_t cnt = LP_MIN((uint64_t)LP_EXTMAP_LEAF_BLOCKS, LP_EXTMAP_BLOCKS_MAX - at);
		struct lp_extmap_range range = {at, cnt};
		if (cnt == 0)
			return;
		int segment_cnt = lp_extmap_lookup(map, range, segments, SEGMENTS_MAX, crcs);
		if (segment_cnt < 0)
			return;
		LP_ASSERT(segment_cnt > 0 && segments[0].range.first == at);
		const struct lp_extmap_segment *last = &segments[segment_cnt - 1];
		at = last->range.first + last->range.cnt;
	}
}

/* A leaf that is asked for and was not in the input is not there. True when there may be more to
 * do. */
static bool truncate_step(struct lp_extmap *map, uint64_t first)
{
	static struct lp_extmap_release items[LP_EXTMAP_STEP_LEAVES_MAX * LP_EXTMAP_LEAF_BLOCKS];
	struct lp_extmap_released released = {.items = items, .max = LP_ARRAY_SIZE(items)};
	uint64_t blocks = 0;
	uint64_t before = lp_extmap_blocks(map);
	int err = lp_extmap_truncate_step(map, first, &released);
	for (size_t i = 0; i < released.cnt; i++)
		blocks += released.items[i].extent.cnt;
	LP_ASSERT(lp_extmap_blocks(map) + blocks == before);
	LP_ASSERT(lpi_extmap_is_sound(map));
	if (err == -EAGAIN)
		return lp_extmap_loaded(map, lp_extmap_missing(map)) == 0;
	return err == 1;
}

static void check_again(struct lp_extmap *map)
{
	static uint8_t buf[LP_EXTMAP_ROOT_BYTES_MAX];
	struct lp_extmap_piece piece;
	struct lp_extmap again;
	while (lp_extmap_take_dirty(map, buf, &piece)) {
		LP_ASSERT(piece.len <= LP_EXTMAP_LEAF_BYTES_MAX);
		if (piece.len > 0)
			check_leaf(buf, piece.len, (uint32_t)(piece.block / LP_EXTMAP_LEAF_BLOCKS));
	}
	size_t len = lp_extmap_encode_root(map, buf);
	lp_extmap_init(&again, ino, NULL);
	LP_ASSERT(lp_extmap_load_root(&again, buf, len) == 0);
	LP_ASSERT(lp_extmap_blocks(&again) == lp_extmap_blocks(map));
	lp_extmap_fini(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lp_extmap map;
	if (len < ROOT_OFFSET)
		return 0;
	bool is_repaired = (bytes[0] & FLAG_REPAIR) != 0;
	size_t root_len = LP_MIN((size_t)lp_get_le16(bytes + 2), len - ROOT_OFFSET);
	size_t leaves_at = ROOT_OFFSET + root_len;
	lp_extmap_init(&map, ino, NULL);
	if (load_root(&map, bytes + ROOT_OFFSET, root_len, is_repaired) == 0) {
		load_leaves(&map, bytes + leaves_at, len - leaves_at, is_repaired);
		look_up_all(&map);
		for (int i = 0; i < STEPS_MAX && truncate_step(&map, bytes[1]); i++)
			;
		check_again(&map);
	}
	lp_extmap_fini(&map);
	return 0;
}
