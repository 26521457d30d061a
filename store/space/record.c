/* SPDX-License-Identifier: Apache-2.0 */
/* The runs are written into the room the raw bits would take: when they do not fit they are not
 * shorter, and the raw bits are written instead. */
#include "store/space/record.h"

#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/error.h"
#include "format/space.h"

#define RECORD_MAGIC   UINT32_C(0x4353504c)
#define RECORD_VERSION 1u

static uint32_t crc_of(const uint8_t *bytes, size_t len)
{
	uint32_t crc = lp_crc32c(0, bytes, LP_SPACE_RECORD_CRC_OFF);
	return lp_crc32c(crc, bytes + LP_SPACE_RECORD_SIZE, len - LP_SPACE_RECORD_SIZE);
}

/* False when the runs are no shorter than the bits. */
static bool encode_runs(const struct lp_bitmap *used, struct lp_writer *writer)
{
	uint64_t pos = 0;
	while (!lp_writer_overflowed(writer)) {
		uint64_t start = lp_bitmap_find_set(used, pos, used->bit_cnt);
		if (start == used->bit_cnt)
			break;
		uint64_t end = lp_bitmap_find_clear(used, start, used->bit_cnt);
		lp_writer_varint(writer, start - pos);
		lp_writer_varint(writer, end - start);
		pos = end;
	}
	return !lp_writer_overflowed(writer) && lp_writer_remaining(writer) > 0;
}

static void encode_raw(const struct lp_bitmap *used, struct lp_writer *writer)
{
	for (uint64_t i = 0; i < lp_bitmap_word_cnt(used->bit_cnt); i++)
		lp_writer_u64(writer, used->words[i]);
}

size_t lpi_space_bits_encode(const struct lp_bitmap *bits, void *buf, uint8_t *ret_encoding)
{
	struct lp_writer body;
	size_t len = 0;
	LP_ASSERT(bits->bit_cnt % LP_BITMAP_WORD_BITS == 0);
	*ret_encoding = LP_SPACE_ENCODING_RUNS;
	lp_writer_init(&body, buf, bits->bit_cnt / 8);
	if (!encode_runs(bits, &body)) {
		*ret_encoding = LP_SPACE_ENCODING_RAW;
		lp_writer_init(&body, buf, bits->bit_cnt / 8);
		encode_raw(bits, &body);
	}
	bool fits = lp_writer_finish(&body, &len);
	LP_ASSERT(fits);
	return len;
}

size_t lpi_space_record_encode(const struct lpi_space_record *record, void *buf)
{
	const struct lp_bitmap *used = &record->used;
	uint8_t *bytes = buf;
	uint8_t encoding;
	size_t body_bytes = lpi_space_bits_encode(used, bytes + LP_SPACE_RECORD_SIZE, &encoding);
	struct lp_space_record header = {
		.magic = RECORD_MAGIC,
		.version = RECORD_VERSION,
		.encoding = encoding,
		.chunk = record->chunk,
		.block_cnt = (uint32_t)used->bit_cnt,
		.as_of = record->as_of,
		.used_cnt = (uint32_t)lp_bitmap_count(used, 0, used->bit_cnt),
		.body_bytes = (uint32_t)body_bytes,
	};
	lp_space_record_encode(&header, bytes);
	size_t len = LP_SPACE_RECORD_SIZE + body_bytes;
	header.crc = crc_of(bytes, len);
	lp_space_record_encode(&header, bytes);
	return len;
}

/* False when the numbers do not describe runs in order within the chunk. */
static bool decode_runs(struct lp_reader *body, struct lp_bitmap *used)
{
	uint64_t pos = 0;
	while (lp_reader_remaining(body) > 0) {
		uint64_t gap = lp_reader_varint(body);
		uint64_t cnt = lp_reader_varint(body);
		if (lp_reader_failed(body) || cnt == 0 || (gap == 0 && pos > 0) ||
		    gap > used->bit_cnt - pos || cnt > used->bit_cnt - pos - gap)
			return false;
		lp_bitmap_set(used, pos + gap, pos + gap + cnt);
		pos += gap + cnt;
	}
	return lp_reader_finish(body);
}

static bool decode_raw(struct lp_reader *body, struct lp_bitmap *used)
{
	for (uint64_t i = 0; i < lp_bitmap_word_cnt(used->bit_cnt); i++)
		used->words[i] = lp_reader_u64(body);
	return lp_reader_finish(body);
}

bool lpi_space_bits_decode(uint8_t encoding, const void *bytes, size_t len, struct lp_bitmap *bits)
{
	struct lp_reader body;
	lp_reader_init(&body, bytes, len);
	switch (encoding) {
	case LP_SPACE_ENCODING_RAW:
		return decode_raw(&body, bits);
	case LP_SPACE_ENCODING_RUNS:
		return decode_runs(&body, bits);
	default:
		return false;
	}
}

int lpi_space_record_decode(const void *buf, size_t len, struct lpi_space_record *record)
{
	const uint8_t *bytes = buf;
	struct lp_space_record header;
	if (len < LP_SPACE_RECORD_SIZE)
		return LP_CORRUPT(LP_OFFSET_NONE, "space record of chunk %u is %zu bytes short",
				  record->chunk, LP_SPACE_RECORD_SIZE - len);
	lp_space_record_decode(bytes, &header);
	if (header.crc != crc_of(bytes, len))
		return LP_CORRUPT_CRC(LP_OFFSET_NONE, "space record of chunk %u", record->chunk);
	if (header.magic != RECORD_MAGIC || header.version != RECORD_VERSION ||
	    !lp_space_record_reserved_is_zero(&header))
		return LP_CORRUPT(LP_OFFSET_NONE, "space record of chunk %u: header",
				  record->chunk);
	if (header.chunk != record->chunk || header.block_cnt != record->used.bit_cnt ||
	    header.body_bytes != len - LP_SPACE_RECORD_SIZE)
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "space record of chunk %u is for chunk %u of %u blocks",
				  record->chunk, header.chunk, header.block_cnt);
	if (!lpi_space_bits_decode(header.encoding, bytes + LP_SPACE_RECORD_SIZE, header.body_bytes,
				   &record->used) ||
	    lp_bitmap_count(&record->used, 0, record->used.bit_cnt) != header.used_cnt)
		return LP_CORRUPT(LP_OFFSET_NONE, "space record of chunk %u: bitmap",
				  record->chunk);
	record->as_of = header.as_of;
	return 0;
}
