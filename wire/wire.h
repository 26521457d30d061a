/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of the native protocol (docs/format/wire.md), for the daemon and for clients: headers,
 * checksums, and the parts of a meta.
 *
 * Reading takes any bytes. A header that is accepted has lengths within the page's limits, and a
 * number of checksums that fits its data; what the meta says is not looked at. Metas are read by
 * lp_wire_part() for each struct and lp_wire_bytes() for each string, then lp_wire_end(): the first
 * that does not fit makes all that follow fail, so that only the end has to be asked.
 *
 * Threads: any. Blocking, allocation: none.
 */
#ifndef LP_WIRE_WIRE_H
#define LP_WIRE_WIRE_H

#include <errno.h>

#include "base/cursor.h"
#include "format/wire.h"

#define LP_WIRE_MAGIC     UINT32_C(0x5257504c)
#define LP_WIRE_TEXT_MAX  255u /* bytes of an error's text, of a name for logs */
#define LP_WIRE_PATH_MAX  4096u
#define LP_WIRE_VALUE_MAX 65536u /* bytes of an xattr or omap value */
#define LP_WIRE_PART_MAX  60000u /* bytes of a text that is answered in several parts */
#define LP_WIRE_NO_OWNER  UINT32_MAX
#define LP_WIRE_NO_MODE   UINT16_MAX
#define LP_WIRE_ANY_SHARD UINT32_MAX
#define LP_WIRE_CRCS_MAX  (LP_WIRE_DATA_MAX / LP_WIRE_BLOCK_BYTES + 1)
#define LP_WIRE_SHARE_MAX (UINT64_C(16) << 20) /* bytes of shared memory of a connection */
#define LP_WIRE_PARTS_MAX 16u                  /* of data that is there */

/* --- Pieces ----------------------------------------------------------------------------------- */

/* How many pieces the grid cuts from data at an offset. */
static inline uint32_t lp_wire_piece_cnt(uint64_t offset, uint64_t len)
{
	if (len == 0)
		return 0;
	return (uint32_t)((offset % LP_WIRE_BLOCK_BYTES + len - 1) / LP_WIRE_BLOCK_BYTES) + 1;
}

/* The length of the piece that begins at an offset, of data that has so many bytes left. */
static inline uint32_t lp_wire_piece_len(uint64_t offset, uint64_t left)
{
	uint64_t len = LP_WIRE_BLOCK_BYTES - offset % LP_WIRE_BLOCK_BYTES;
	return (uint32_t)LP_MIN(len, left);
}

/* One crc for each piece, lp_wire_piece_cnt() many. */
void lp_wire_crcs_make(const void *data, uint64_t offset, uint32_t len, uint32_t *ret_crcs);
/* The index of the first piece that does not match, or lp_wire_piece_cnt(). */
uint32_t lp_wire_crcs_check(const void *data, uint64_t offset, uint32_t len, const uint32_t *crcs);
/* As they are in a message. */
void lp_wire_crcs_encode(const uint32_t *crcs, uint32_t cnt, void *ret_bytes);
void lp_wire_crcs_decode(const void *bytes, uint32_t cnt, uint32_t *ret_crcs);

/* --- Headers ---------------------------------------------------------------------------------- */

/* Writes LP_WIRE_HEADER_SIZE bytes. magic, version and the two crcs are this function's; rest is
 * what follows the header up to the data: meta_bytes and the checksums. */
void lp_wire_header_seal(const struct lp_wire_header *header, enum lp_wire_crc mode,
			 const void *rest, void *ret_bytes);
/* -EPROTO, -EBADMSG, -EMSGSIZE, -EPROTONOSUPPORT: the stream cannot be read on; *ret_why is a
 * sentence then. Reserved fields must be zero, too. meta_max is what was agreed on. */
int lp_wire_header_read(const void *bytes, enum lp_wire_crc mode, uint32_t meta_max,
			struct lp_wire_header *ret, const char **ret_why) LP_MUST_CHECK;
/* The same for what follows the header, when it is there: -EBADMSG. */
int lp_wire_rest_check(const struct lp_wire_header *header, enum lp_wire_crc mode,
		       const void *rest) LP_MUST_CHECK;

/* Bytes between header and data. */
static inline uint32_t lp_wire_rest_bytes(const struct lp_wire_header *header)
{
	return header->meta_bytes + header->crc_cnt * 4;
}

/* --- Metas ------------------------------------------------------------------------------------ */

/* The fixed part of the generated struct NAME: lp_wire_part(&reader, lp_wire_get, &get). False
 * when there are not so many bytes, or a reserved field is not zero. */
#define lp_wire_part(reader, name, ret)                                                            \
	__extension__({                                                                            \
		const uint8_t *part_bytes_ = lp_reader_bytes((reader), sizeof(*(ret)));            \
		if (part_bytes_ != NULL)                                                           \
			name##_decode(part_bytes_, (ret));                                         \
		if (part_bytes_ == NULL || !name##_reserved_is_zero(ret))                          \
			lp_reader_fail(reader);                                                    \
		!lp_reader_failed(reader);                                                         \
	})

/* A path or other string: NULL only when there are not so many bytes. */
static inline const char *lp_wire_bytes(struct lp_reader *reader, uint64_t len)
{
	return (const char *)lp_reader_bytes(reader, len);
}

/* 0, or -EINVAL: something did not fit, or is left over. */
LP_MUST_CHECK static inline int lp_wire_end(const struct lp_reader *reader)
{
	return lp_reader_finish(reader) ? 0 : -EINVAL;
}

/* Appends the fixed part of a struct. */
#define lp_wire_put_part(writer, name, in)                                                         \
	do {                                                                                       \
		uint8_t *part_at_ = lp_writer_reserve((writer), sizeof(*(in)));                    \
		if (part_at_ != NULL)                                                              \
			name##_encode((in), part_at_);                                             \
	} while (0)

#endif
