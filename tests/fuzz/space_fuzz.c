/* SPDX-License-Identifier: Apache-2.0 */
/* What a shard's space reads when it starts: the records of chunks, then the changes of frames.
 *
 *   byte 0: 1 repair crcs of records; byte 1: bit i, chunk i is owned
 *   then pieces: u8 kind, u16 length, bytes
 *     kind below 128: the record of chunk (kind mod 8), where there are 4; one each, before frames
 *     kind from 128: a frame's changes, (kind - 127) after the one before
 *
 * A record that is accepted reads the same once it was encoded again. When all was accepted, what
 * is in use and what can be taken make up the owned chunks, and no block is both. */
#include "store/space/space.h"

#include "store/space/record.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#include "format/space.h"

#define FLAG_REPAIR  1u
#define CHUNK_BLOCKS 128u
#define CHUNK_CNT    4u
#define BASE_BLOCK   16u
#define PIECE_BYTES  3u
#define WORD_CNT     (CHUNK_BLOCKS / 64)
#define KIND_FRAME   128u

struct piece {
	uint8_t kind;
	size_t len;
	uint8_t *bytes; /* to be freed */
};

static void repair(uint8_t *record, size_t len)
{
	if (len < LP_SPACE_RECORD_SIZE)
		return;
	uint32_t crc = lp_crc32c(0, record, LP_SPACE_RECORD_CRC_OFF);
	crc = lp_crc32c(crc, record + LP_SPACE_RECORD_SIZE, len - LP_SPACE_RECORD_SIZE);
	lp_put_le32(record + LP_SPACE_RECORD_CRC_OFF, crc);
}

/* The same bytes by the record's own decoder, there and back. */
static int check_record(const struct piece *piece, uint32_t chunk)
{
	uint64_t words[2][WORD_CNT] = {{0}, {0}};
	uint8_t again[LP_SPACE_RECORD_SIZE + CHUNK_BLOCKS / 8];
	struct lpi_space_record record = {.chunk = chunk};
	struct lpi_space_record second = {.chunk = chunk};
	lp_bitmap_init(&record.used, words[0], CHUNK_BLOCKS);
	lp_bitmap_init(&second.used, words[1], CHUNK_BLOCKS);
	int err = lpi_space_record_decode(piece->bytes, piece->len, &record);
	if (err < 0)
		return err;
	size_t len = lpi_space_record_encode(&record, again);
	LP_ASSERT(len <= sizeof(again));
	LP_ASSERT(lpi_space_record_decode(again, len, &second) == 0);
	LP_ASSERT(second.as_of == record.as_of);
	LP_ASSERT(memcmp(words[0], words[1], sizeof(words[0])) == 0);
	return 0;
}

static int load(struct lp_space *space, const struct piece *piece, unsigned *loaded)
{
	uint32_t chunk = piece->kind % (2 * CHUNK_CNT);
	if ((*loaded >> chunk & 1) != 0)
		return 0;
	*loaded |= 1u << chunk;
	int err = check_record(piece, chunk);
	int load_err = lp_space_load_record(space, chunk, piece->bytes, piece->len);
	LP_ASSERT(err == 0 || load_err < 0);
	return load_err;
}

static int replay(struct lp_space *space, const uint8_t *bytes, size_t len, bool is_repaired)
{
	unsigned loaded = 0;
	uint64_t seq = 0;
	int err = 0;
	for (size_t at = 2; err == 0 && at + PIECE_BYTES <= len;) {
		size_t left = len - at - PIECE_BYTES;
		struct piece piece = {.kind = bytes[at],
				      .len = LP_MIN((size_t)lp_get_le16(bytes + at + 1), left)};
		piece.bytes = lpi_fuzz_copy(bytes + at + PIECE_BYTES, piece.len);
		if (piece.kind >= KIND_FRAME) {
			seq += piece.kind - KIND_FRAME + 1;
			err = lp_space_replay_frame(space, seq, piece.bytes, piece.len);
		} else if (seq == 0) {
			if (is_repaired)
				repair(piece.bytes, piece.len);
			err = load(space, &piece, &loaded);
		}
		free(piece.bytes);
		at += PIECE_BYTES + piece.len;
	}
	return err < 0 ? err : lp_space_recovered(space, seq);
}

static void check_recovered(struct lp_space *space, unsigned owned_cnt)
{
	struct lp_extent extents[8];
	struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 8};
	uint64_t blocks = 0;
	uint64_t taken = 0;
	for (;;) {
		int cnt = lp_space_take(space, CHUNK_BLOCKS, &options, extents, &blocks);
		if (cnt <= 0)
			break;
		for (int i = 0; i < cnt; i++)
			LP_ASSERT(lp_space_is_unused(space, extents[i]));
		taken += blocks;
	}
	LP_ASSERT(taken + lp_space_used_blocks(space) == owned_cnt * (uint64_t)CHUNK_BLOCKS);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lp_space_config config = {
		.base_block = BASE_BLOCK, .chunk_blocks = CHUNK_BLOCKS, .chunk_cnt_max = CHUNK_CNT};
	struct lp_space *space = NULL;
	unsigned owned_cnt = 0;
	if (len < 2)
		return 0;
	int err = lp_space_new(&config, &space);
	LP_ASSERT(err == 0);
	for (uint32_t i = 0; i < CHUNK_CNT; i++) {
		if ((bytes[1] >> i & 1) == 0)
			continue;
		err = lp_space_chunk_add(space, i);
		LP_ASSERT(err == 0);
		owned_cnt++;
	}
	if (replay(space, bytes, len, (bytes[0] & FLAG_REPAIR) != 0) == 0)
		check_recovered(space, owned_cnt);
	lp_space_free(space);
	return 0;
}
