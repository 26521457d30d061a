/* SPDX-License-Identifier: Apache-2.0 */
/* All reading goes through lp_reader_bytes() and all writing through lp_writer_reserve(). These two
 * have the only bounds checks, and their comparison with the remaining bytes cannot overflow. A
 * failed cursor has no remaining bytes, so the flag is only checked for lengths of 0. */
#include "base/cursor.h"

const uint8_t *lp_reader_bytes(struct lp_reader *reader, uint64_t len)
{
	/* The result for a success of length 0 in an empty buffer without an address. */
	static const uint8_t nothing[1];
	LP_ASSERT(reader->pos <= reader->end);
	if (reader->failed || len > reader->end - reader->pos) {
		lp_reader_fail(reader);
		return NULL;
	}
	if (len == 0)
		return nothing;
	const uint8_t *at = reader->base + reader->pos;
	reader->pos += (size_t)len;
	return at;
}

uint8_t lp_reader_u8(struct lp_reader *reader)
{
	const uint8_t *at = lp_reader_bytes(reader, 1);
	return at == NULL ? 0 : at[0];
}

uint16_t lp_reader_u16(struct lp_reader *reader)
{
	const uint8_t *at = lp_reader_bytes(reader, 2);
	return at == NULL ? 0 : lp_get_le16(at);
}

uint32_t lp_reader_u32(struct lp_reader *reader)
{
	const uint8_t *at = lp_reader_bytes(reader, 4);
	return at == NULL ? 0 : lp_get_le32(at);
}

uint64_t lp_reader_u64(struct lp_reader *reader)
{
	const uint8_t *at = lp_reader_bytes(reader, 8);
	return at == NULL ? 0 : lp_get_le64(at);
}

int64_t lp_reader_i64(struct lp_reader *reader)
{
	return (int64_t)lp_reader_u64(reader);
}

uint32_t lp_reader_be32(struct lp_reader *reader)
{
	const uint8_t *at = lp_reader_bytes(reader, 4);
	return at == NULL ? 0 : lp_get_be32(at);
}

uint64_t lp_reader_be64(struct lp_reader *reader)
{
	const uint8_t *at = lp_reader_bytes(reader, 8);
	return at == NULL ? 0 : lp_get_be64(at);
}

uint64_t lp_reader_varint(struct lp_reader *reader)
{
	/* Works on a copy, so that a failure points at the first byte of the number. */
	struct lp_reader ahead = *reader;
	uint64_t value = 0;
	for (unsigned i = 0; i < LP_VARINT_BYTES_MAX; i++) {
		uint8_t byte = lp_reader_u8(&ahead);
		bool too_big = i + 1 == LP_VARINT_BYTES_MAX && byte > 1;
		bool overlong = i > 0 && byte == 0;
		if (ahead.failed || too_big || overlong)
			break;
		value |= (uint64_t)(byte & 0x7f) << (7 * i);
		if ((byte & 0x80) == 0) {
			*reader = ahead;
			return value;
		}
	}
	lp_reader_fail(reader);
	return 0;
}

void lp_reader_copy(struct lp_reader *reader, void *to, size_t len)
{
	const uint8_t *from = lp_reader_bytes(reader, len);
	if (len == 0)
		return;
	if (from == NULL)
		memset(to, 0, len);
	else
		memcpy(to, from, len);
}

void lp_reader_zeros(struct lp_reader *reader, uint64_t len)
{
	struct lp_reader ahead = *reader;
	const uint8_t *at = lp_reader_bytes(&ahead, len);
	uint8_t seen = 0;
	for (uint64_t i = 0; at != NULL && i < len; i++)
		seen |= at[i];
	if (at == NULL || seen != 0)
		lp_reader_fail(reader);
	else
		*reader = ahead;
}

bool lp_reader_expect(struct lp_reader *reader, uint64_t cnt, size_t item_bytes)
{
	LP_ASSERT(item_bytes > 0);
	/* Divides, because a product of foreign numbers may wrap. */
	if (!reader->failed && cnt <= lp_reader_remaining(reader) / item_bytes)
		return true;
	lp_reader_fail(reader);
	return false;
}

void lp_reader_sub(struct lp_reader *reader, uint64_t len, struct lp_reader *ret_sub)
{
	size_t origin = lp_reader_offset(reader);
	const uint8_t *at = lp_reader_bytes(reader, len);
	*ret_sub = (struct lp_reader){.base = at, .origin = origin, .failed = at == NULL};
	if (at != NULL)
		ret_sub->end = (size_t)len;
}

bool lp_reader_sub_finish(struct lp_reader *reader, const struct lp_reader *sub)
{
	if (!lp_reader_finish(sub))
		lp_reader_fail(reader);
	return !reader->failed;
}

uint8_t *lp_writer_reserve(struct lp_writer *writer, size_t len)
{
	static uint8_t nothing[1]; /* as in lp_reader_bytes(); never written */
	LP_ASSERT(writer->pos <= writer->end);
	if (writer->overflowed || len > writer->end - writer->pos) {
		writer->overflowed = true;
		writer->end = writer->pos;
		return NULL;
	}
	if (len == 0)
		return nothing;
	uint8_t *at = writer->base + writer->pos;
	writer->pos += len;
	return at;
}

void lp_writer_u8(struct lp_writer *writer, uint8_t value)
{
	uint8_t *at = lp_writer_reserve(writer, 1);
	if (at != NULL)
		at[0] = value;
}

void lp_writer_u16(struct lp_writer *writer, uint16_t value)
{
	uint8_t *at = lp_writer_reserve(writer, 2);
	if (at != NULL)
		lp_put_le16(at, value);
}

void lp_writer_u32(struct lp_writer *writer, uint32_t value)
{
	uint8_t *at = lp_writer_reserve(writer, 4);
	if (at != NULL)
		lp_put_le32(at, value);
}

void lp_writer_u64(struct lp_writer *writer, uint64_t value)
{
	uint8_t *at = lp_writer_reserve(writer, 8);
	if (at != NULL)
		lp_put_le64(at, value);
}

void lp_writer_u32s(struct lp_writer *writer, const uint32_t *values, size_t cnt)
{
	size_t len;
	if (__builtin_mul_overflow(cnt, sizeof(*values), &len))
		len = SIZE_MAX; /* fits nowhere */
	uint8_t *at = lp_writer_reserve(writer, len);
	if (at != NULL)
		lp_put_le32s(at, values, cnt);
}

void lp_writer_i64(struct lp_writer *writer, int64_t value)
{
	lp_writer_u64(writer, (uint64_t)value);
}

void lp_writer_be32(struct lp_writer *writer, uint32_t value)
{
	uint8_t *at = lp_writer_reserve(writer, 4);
	if (at != NULL)
		lp_put_be32(at, value);
}

void lp_writer_be64(struct lp_writer *writer, uint64_t value)
{
	uint8_t *at = lp_writer_reserve(writer, 8);
	if (at != NULL)
		lp_put_be64(at, value);
}

void lp_writer_varint(struct lp_writer *writer, uint64_t value)
{
	uint8_t *at = lp_writer_reserve(writer, lp_varint_bytes(value));
	if (at == NULL)
		return;
	for (; value >= 0x80; value >>= 7)
		*at++ = (uint8_t)(value | 0x80);
	*at = (uint8_t)value;
}

void lp_writer_bytes(struct lp_writer *writer, const void *buf, size_t len)
{
	uint8_t *at = lp_writer_reserve(writer, len);
	if (at != NULL && len > 0)
		memcpy(at, buf, len);
}

void lp_writer_zeros(struct lp_writer *writer, size_t len)
{
	uint8_t *at = lp_writer_reserve(writer, len);
	if (at != NULL && len > 0)
		memset(at, 0, len);
}

static uint8_t *patch_at(struct lp_writer *writer, size_t offset, size_t len)
{
	if (writer->overflowed)
		return NULL;
	LP_ASSERT(!lp_range_outside(offset, len, writer->pos));
	return writer->base + offset;
}

void lp_writer_patch_u16(struct lp_writer *writer, size_t offset, uint16_t value)
{
	uint8_t *at = patch_at(writer, offset, 2);
	if (at != NULL)
		lp_put_le16(at, value);
}

void lp_writer_patch_u32(struct lp_writer *writer, size_t offset, uint32_t value)
{
	uint8_t *at = patch_at(writer, offset, 4);
	if (at != NULL)
		lp_put_le32(at, value);
}

void lp_writer_patch_u64(struct lp_writer *writer, size_t offset, uint64_t value)
{
	uint8_t *at = patch_at(writer, offset, 8);
	if (at != NULL)
		lp_put_le64(at, value);
}

unsigned lp_varint_bytes(uint64_t value)
{
	unsigned bits = 64U - (unsigned)__builtin_clzll(value | 1);
	return (bits + 6) / 7;
}
