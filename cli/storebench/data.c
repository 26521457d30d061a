/* SPDX-License-Identifier: Apache-2.0 */
/* A cell is eight words of head (a mark, the four numbers, its length, and a hash of these), then
 * words that follow from the hash by a simple generator. */
#include "cli/storebench/data.h"

#include <string.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/hash.h"
#include "base/prng.h"

#define CELL_MARK      UINT64_C(0x6c6c6563706c6562)
#define CELL_HEAD_SIZE 56u

static_assert(CELL_HEAD_SIZE <= LPI_BENCH_CELL_MIN, "the head fits into the smallest cell");

static uint64_t next_word(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t word = *state;
	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return word ^ word >> 27;
}

void lpi_bench_cell_fill(uint8_t *buf, size_t len, const struct lpi_bench_cell *cell)
{
	LP_ASSERT(len >= LPI_BENCH_CELL_MIN && len % 8 == 0);
	lp_put_le64(buf, CELL_MARK);
	lp_put_le64(buf + 8, cell->run);
	lp_put_le64(buf + 16, cell->object);
	lp_put_le64(buf + 24, cell->place);
	lp_put_le64(buf + 32, cell->generation);
	lp_put_le64(buf + 40, len);
	uint64_t state = lp_hash_u64(buf, 48, 0);
	lp_put_le64(buf + 48, state);
	for (size_t at = CELL_HEAD_SIZE; at < len; at += 8)
		lp_put_le64(buf + at, next_word(&state));
}

int lpi_bench_cell_read(const uint8_t *buf, size_t len, struct lpi_bench_cell *ret)
{
	LP_ASSERT(len >= LPI_BENCH_CELL_MIN && len % 8 == 0);
	uint64_t state = lp_get_le64(buf + 48);
	if (lp_get_le64(buf) != CELL_MARK || lp_get_le64(buf + 40) != len ||
	    state != lp_hash_u64(buf, 48, 0))
		return -EBADMSG;
	for (size_t at = CELL_HEAD_SIZE; at < len; at += 8) {
		if (lp_get_le64(buf + at) != next_word(&state))
			return -EBADMSG;
	}
	*ret = (struct lpi_bench_cell){
		.run = lp_get_le64(buf + 8),
		.object = lp_get_le64(buf + 16),
		.place = lp_get_le64(buf + 24),
		.generation = lp_get_le64(buf + 32),
	};
	return 0;
}

void lpi_bench_gather(const struct lp_seg *segs, uint64_t offset, uint8_t *buf, size_t len)
{
	while (offset >= segs->len) {
		offset -= segs->len;
		segs++;
	}
	while (len > 0) {
		size_t some = LP_MIN(len, (size_t)(segs->len - offset));
		memcpy(buf, segs->buf->data + segs->offset + offset, some);
		buf += some;
		len -= some;
		offset = 0;
		segs++;
	}
}

/* --- Patterns --------------------------------------------------------------------------------- */

#define BLOCKS_PER_BUF ((uint32_t)(LP_BUF_LARGE >> LP_BLOCK_SHIFT))

static const uint8_t *block_of(const struct lpi_bench_pattern *pattern, uint32_t block)
{
	return pattern->bufs[block / BLOCKS_PER_BUF]->data +
	       block % BLOCKS_PER_BUF * LP_BLOCK_BYTES;
}

int lpi_bench_pattern_init(struct lpi_bench_pattern *pattern, struct lp_bufs *bufs,
			   uint32_t short_bytes, uint64_t seed)
{
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	pattern->next = 0;
	pattern->short_bytes = short_bytes;
	for (uint32_t i = 0; i < LPI_BENCH_PATTERN_BUFS; i++) {
		pattern->bufs[i] = lp_buf_new(bufs, LP_BUF_LARGE);
		if (pattern->bufs[i] == NULL)
			return -ENOBUFS;
		lp_prng_fill(&prng, pattern->bufs[i]->data, LP_BUF_LARGE);
	}
	for (uint32_t i = 0; i < LPI_BENCH_PATTERN_BLOCKS; i++) {
		pattern->crcs[i] = lp_crc32c(0, block_of(pattern, i), LP_BLOCK_BYTES);
		pattern->short_crcs[i] = lp_crc32c(0, block_of(pattern, i), short_bytes);
	}
	return 0;
}

void lpi_bench_pattern_fini(struct lpi_bench_pattern *pattern)
{
	for (uint32_t i = 0; i < LPI_BENCH_PATTERN_BUFS; i++) {
		lp_buf_put(pattern->bufs[i]);
		pattern->bufs[i] = NULL;
	}
}

/* Where a payload of so many blocks begins: it never runs over the end. */
static uint32_t take_blocks(struct lpi_bench_pattern *pattern, uint32_t blocks)
{
	uint32_t first = pattern->next;
	if (first + blocks > LPI_BENCH_PATTERN_BLOCKS)
		first = 0;
	pattern->next = first + blocks;
	return first;
}

void lpi_bench_pattern_take(struct lpi_bench_pattern *pattern, uint64_t length, struct lp_seg *segs,
			    uint32_t *one_crc, struct lp_payload *ret_payload)
{
	uint32_t blocks = (uint32_t)lp_bytes_to_blocks_up(length);
	LP_ASSERT(blocks > 0 && blocks <= LPI_BENCH_PATTERN_BLOCKS);
	LP_ASSERT(length % LP_BLOCK_BYTES == 0 || length < LP_BLOCK_BYTES);
	uint32_t first = take_blocks(pattern, blocks);
	uint32_t cnt = 0;
	uint64_t at = (uint64_t)first * LP_BLOCK_BYTES;
	for (uint64_t left = length; left > 0; cnt++) {
		uint32_t offset = (uint32_t)(at % LP_BUF_LARGE);
		uint32_t some = (uint32_t)LP_MIN(left, (uint64_t)(LP_BUF_LARGE - offset));
		segs[cnt] = (struct lp_seg){pattern->bufs[at / LP_BUF_LARGE], offset, some};
		at += some;
		left -= some;
	}
	const uint32_t *crcs = &pattern->crcs[first];
	if (length == pattern->short_bytes) {
		crcs = &pattern->short_crcs[first];
	} else if (length < LP_BLOCK_BYTES) {
		*one_crc = lp_crc32c(0, block_of(pattern, first), length);
		crcs = one_crc;
	}
	*ret_payload =
		(struct lp_payload){.segs = segs, .crcs = crcs, .seg_cnt = cnt, .crc_cnt = blocks};
}
