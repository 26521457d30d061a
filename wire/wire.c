/* SPDX-License-Identifier: Apache-2.0 */
/* A header is checked from the outside in: magic and version say whether the rest means anything,
 * the crc whether it is what was sent, the limits whether it may be acted on. */
#include "wire/wire.h"

#include "base/crc32c.h"

void lp_wire_crcs_make(const void *data, uint64_t offset, uint32_t len, uint32_t *ret_crcs)
{
	const uint8_t *at = data;
	for (uint32_t i = 0; len > 0; i++) {
		uint32_t piece = lp_wire_piece_len(offset, len);
		ret_crcs[i] = lp_crc32c(0, at, piece);
		at += piece;
		offset += piece;
		len -= piece;
	}
}

uint32_t lp_wire_crcs_check(const void *data, uint64_t offset, uint32_t len, const uint32_t *crcs)
{
	const uint8_t *at = data;
	uint32_t i = 0;
	while (len > 0) {
		uint32_t piece = lp_wire_piece_len(offset, len);
		if (crcs[i] != lp_crc32c(0, at, piece))
			break;
		i++;
		at += piece;
		offset += piece;
		len -= piece;
	}
	return i;
}

void lp_wire_crcs_encode(const uint32_t *crcs, uint32_t cnt, void *ret_bytes)
{
	uint8_t *bytes = ret_bytes;
	for (uint32_t i = 0; i < cnt; i++)
		lp_put_le32(bytes + (size_t)i * 4, crcs[i]);
}

void lp_wire_crcs_decode(const void *bytes, uint32_t cnt, uint32_t *ret_crcs)
{
	const uint8_t *at = bytes;
	for (uint32_t i = 0; i < cnt; i++)
		ret_crcs[i] = lp_get_le32(at + (size_t)i * 4);
}

static uint32_t header_crc(const uint8_t *bytes)
{
	return lp_crc32c(0, bytes, LP_WIRE_HEADER_HEADER_CRC_OFF);
}

void lp_wire_header_seal(const struct lp_wire_header *header, enum lp_wire_crc mode,
			 const void *rest, void *ret_bytes)
{
	struct lp_wire_header out = *header;
	uint8_t *bytes = ret_bytes;
	uint32_t rest_bytes = lp_wire_rest_bytes(header);
	out.magic = LP_WIRE_MAGIC;
	out.version = LP_WIRE_VERSION;
	out.meta_crc = 0;
	out.header_crc = 0;
	if (mode != LP_WIRE_CRC_OFF && rest_bytes > 0)
		out.meta_crc = lp_crc32c(0, rest, rest_bytes);
	lp_wire_header_encode(&out, bytes);
	if (mode != LP_WIRE_CRC_OFF)
		lp_put_le32(bytes + LP_WIRE_HEADER_HEADER_CRC_OFF, header_crc(bytes));
}

static const char *lengths_fault(const struct lp_wire_header *header, uint32_t meta_max)
{
	if (header->meta_bytes > meta_max)
		return "more meta than a message may have";
	if (header->data_bytes > LP_WIRE_DATA_MAX)
		return "more data than a message may have";
	if (header->crc_cnt != 0 &&
	    header->crc_cnt != lp_wire_piece_cnt(header->offset, header->data_bytes))
		return "another number of checksums than pieces of data";
	return NULL;
}

int lp_wire_header_read(const void *bytes, enum lp_wire_crc mode, uint32_t meta_max,
			struct lp_wire_header *ret, const char **ret_why)
{
	struct lp_wire_header header;
	lp_wire_header_decode(bytes, &header);
	if (header.magic != LP_WIRE_MAGIC) {
		*ret_why = "this is not the protocol of Lapis";
		return -EPROTO;
	}
	if (header.version != LP_WIRE_VERSION) {
		*ret_why = "this version of the protocol is not spoken here";
		return -EPROTONOSUPPORT;
	}
	uint32_t want = mode == LP_WIRE_CRC_OFF ? 0 : header_crc(bytes);
	if (header.header_crc != want) {
		*ret_why = "the header's checksum does not match";
		return -EBADMSG;
	}
	*ret_why = lengths_fault(&header, meta_max);
	if (*ret_why != NULL)
		return -EMSGSIZE;
	if (!lp_wire_header_reserved_is_zero(&header) || header.kind < LP_WIRE_KIND_REQUEST ||
	    header.kind > LP_WIRE_KIND_NOTICE) {
		*ret_why = "the header's fields make no sense";
		return -EPROTO;
	}
	*ret = header;
	return 0;
}

int lp_wire_rest_check(const struct lp_wire_header *header, enum lp_wire_crc mode, const void *rest)
{
	uint32_t rest_bytes = lp_wire_rest_bytes(header);
	uint32_t want = 0;
	if (mode != LP_WIRE_CRC_OFF && rest_bytes > 0)
		want = lp_crc32c(0, rest, rest_bytes);
	return header->meta_crc == want ? 0 : -EBADMSG;
}
