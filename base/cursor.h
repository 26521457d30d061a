/* SPDX-License-Identifier: Apache-2.0 */
/* Bounded reader and writer of bytes, for every decoder and encoder.
 *
 * Threads: a cursor belongs to one.
 * Blocking, memory: none.
 * Errors: they stick: lp_reader_finish() and lp_writer_finish() tell them.
 * Ownership: both structs point into the caller's memory, which must outlive them. They own nothing
 *   and may be copied: a copy is a bookmark. Treat the fields as private.
 *
 * Reading: each get checks that the bytes are there, whatever length it was told. The first get
 * that fails makes the reader fail for good. From then on every get returns zeros (or NULL) and
 * consumes nothing. So a decoder may get all its fields and ask once at the end, by
 * lp_reader_finish(), which is also false when bytes are left over. Before that it must not act on
 * a value: loop over a count, allocate by a length. For such values it asks lp_reader_expect() or
 * lp_reader_failed() first.
 *
 * Writing: the first put that does not fit makes the writer overflow for good, and nothing more is
 * written. The encoder asks once at the end, by lp_writer_finish().
 *
 * Numbers are little-endian, except the _be ones, which are for keys.
 */
#ifndef LP_BASE_CURSOR_H
#define LP_BASE_CURSOR_H

#include "base/assert.h"
#include "base/endian.h"

/* The longest encoding of a varint. */
#define LP_VARINT_BYTES_MAX 10

struct lp_reader {
	const uint8_t *base;
	size_t pos;    /* <= end */
	size_t end;    /* == pos once failed, so that no get succeeds */
	size_t origin; /* where base lies in the outermost reader */
	bool failed;
};

/* buf may be NULL when len is 0. */
static inline void lp_reader_init(struct lp_reader *reader, const void *buf, size_t len)
{
	LP_ASSERT(buf != NULL || len == 0);
	*reader = (struct lp_reader){.base = buf, .end = len};
}

/* Makes the reader fail: for a decoder that refuses a value. Idempotent. */
static inline void lp_reader_fail(struct lp_reader *reader)
{
	reader->failed = true;
	reader->end = reader->pos;
}

static inline bool lp_reader_failed(const struct lp_reader *reader)
{
	return reader->failed;
}

/* Bytes not yet read; 0 once failed. */
static inline size_t lp_reader_remaining(const struct lp_reader *reader)
{
	return reader->end - reader->pos;
}

/* Where the next get begins, or where the failed one began, in bytes from the start of the
 * outermost reader: for messages about corruption. */
static inline size_t lp_reader_offset(const struct lp_reader *reader)
{
	return reader->origin + reader->pos;
}

/* True when every get succeeded and nothing is left over. */
LP_MUST_CHECK static inline bool lp_reader_finish(const struct lp_reader *reader)
{
	return !reader->failed && reader->pos == reader->end;
}

/* The next len bytes, in place, or NULL. All gets use this function. A success of length 0 is not
 * NULL, but must not be dereferenced. */
const uint8_t *lp_reader_bytes(struct lp_reader *reader, uint64_t len);

uint8_t lp_reader_u8(struct lp_reader *reader);
uint16_t lp_reader_u16(struct lp_reader *reader);
uint32_t lp_reader_u32(struct lp_reader *reader);
uint64_t lp_reader_u64(struct lp_reader *reader);
int64_t lp_reader_i64(struct lp_reader *reader); /* two's complement */
uint32_t lp_reader_be32(struct lp_reader *reader);
uint64_t lp_reader_be64(struct lp_reader *reader);

/* LEB128. Fails unless it is the shortest encoding of its value and the value fits. */
uint64_t lp_reader_varint(struct lp_reader *reader);

/* Copies len bytes, or fills the whole of `to` with zeros. */
void lp_reader_copy(struct lp_reader *reader, void *to, size_t len);

/* Reserved bytes: fails unless all are zero. */
void lp_reader_zeros(struct lp_reader *reader, uint64_t len);

/* Fails, and returns false, unless cnt items of item_bytes each can still follow; consumes nothing.
 * Call it before looping over, or allocating for, a count that was read. item_bytes is the least
 * that an item takes, at least 1. */
LP_MUST_CHECK bool lp_reader_expect(struct lp_reader *reader, uint64_t cnt, size_t item_bytes);

/* Makes *ret_sub a reader of the next len bytes, and skips them. If there are fewer, both fail.
 * Read it to its end, then give it back by lp_reader_sub_finish(). A failed or unfinished part
 * makes the whole fail, and returns false. */
void lp_reader_sub(struct lp_reader *reader, uint64_t len, struct lp_reader *ret_sub);
bool lp_reader_sub_finish(struct lp_reader *reader, const struct lp_reader *sub);

struct lp_writer {
	uint8_t *base;
	size_t pos; /* <= end */
	size_t end; /* == pos once overflowed */
	bool overflowed;
};

/* buf may be NULL when size is 0. */
static inline void lp_writer_init(struct lp_writer *writer, void *buf, size_t size)
{
	LP_ASSERT(buf != NULL || size == 0);
	*writer = (struct lp_writer){.base = buf, .end = size};
}

static inline bool lp_writer_overflowed(const struct lp_writer *writer)
{
	return writer->overflowed;
}

/* Bytes written so far: the offset of the next put. */
static inline size_t lp_writer_offset(const struct lp_writer *writer)
{
	return writer->pos;
}

static inline size_t lp_writer_remaining(const struct lp_writer *writer)
{
	return writer->end - writer->pos;
}

/* False, and *ret_len untouched, when a put did not fit. */
LP_MUST_CHECK static inline bool lp_writer_finish(const struct lp_writer *writer, size_t *ret_len)
{
	if (writer->overflowed)
		return false;
	*ret_len = writer->pos;
	return true;
}

/* Room for len bytes, which the caller fills at once, or NULL. */
uint8_t *lp_writer_reserve(struct lp_writer *writer, size_t len);

void lp_writer_u8(struct lp_writer *writer, uint8_t value);
void lp_writer_u16(struct lp_writer *writer, uint16_t value);
void lp_writer_u32(struct lp_writer *writer, uint32_t value);
void lp_writer_u64(struct lp_writer *writer, uint64_t value);
/* cnt numbers, all of them or none; one check for all. */
void lp_writer_u32s(struct lp_writer *writer, const uint32_t *values, size_t cnt);
void lp_writer_i64(struct lp_writer *writer, int64_t value);
void lp_writer_be32(struct lp_writer *writer, uint32_t value);
void lp_writer_be64(struct lp_writer *writer, uint64_t value);
void lp_writer_varint(struct lp_writer *writer, uint64_t value);
void lp_writer_bytes(struct lp_writer *writer, const void *buf, size_t len);
void lp_writer_zeros(struct lp_writer *writer, size_t len);

/* Overwrites a number at an offset that lp_writer_offset() gave before it was first put (a length
 * or a checksum that is known only later). After an overflow these do nothing. Otherwise the place
 * must lie within the written bytes, which is asserted. */
void lp_writer_patch_u16(struct lp_writer *writer, size_t offset, uint16_t value);
void lp_writer_patch_u32(struct lp_writer *writer, size_t offset, uint32_t value);
void lp_writer_patch_u64(struct lp_writer *writer, size_t offset, uint64_t value);

/* The bytes that lp_writer_varint() takes for it: 1 to LP_VARINT_BYTES_MAX. */
unsigned lp_varint_bytes(uint64_t value);

#endif
