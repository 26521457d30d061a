/* SPDX-License-Identifier: Apache-2.0 */
/* One message of the native protocol. The first byte of the input says in which mode of checksums
 * it is read, and by bit 2 whether those of header and meta are to be repaired before.
 *
 * A header that is accepted keeps the page's limits and is written again to the same bytes; a meta
 * that is walked as all structs of the page never leaves its bytes; the pieces that the grid cuts
 * are as many as the header says, and add up to the data. */
#include <stdlib.h>

#include "base/crc32c.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"
#include "wire/wire.h"

#define MODE_MASK 3u
#define REPAIR    4u

static void check_pieces(const struct lp_wire_header *header)
{
	uint64_t offset = header->offset;
	uint64_t left = header->data_bytes;
	uint32_t cnt = 0;
	while (left > 0) {
		uint32_t len = lp_wire_piece_len(offset, left);
		LP_ASSERT(len > 0 && len <= LP_WIRE_BLOCK_BYTES && len <= left);
		offset += len;
		left -= len;
		cnt++;
	}
	LP_ASSERT(cnt == lp_wire_piece_cnt(header->offset, header->data_bytes));
	LP_ASSERT(header->crc_cnt == 0 || header->crc_cnt == cnt);
}

/* A list of pairs, as the meta of a listing is one: nothing is believed that is not there. */
static void walk_pairs(const uint8_t *meta, uint32_t len)
{
	struct lp_reader reader;
	struct lp_wire_listed listed = {.item_cnt = 0};
	lp_reader_init(&reader, meta, len);
	if (!lp_wire_part(&reader, lp_wire_listed, &listed))
		return;
	for (uint32_t i = 0; i < listed.item_cnt; i++) {
		struct lp_wire_pair pair;
		if (!lp_wire_part(&reader, lp_wire_pair, &pair))
			break;
		const char *name = lp_wire_bytes(&reader, pair.name_bytes);
		const char *value = lp_wire_bytes(&reader, pair.value_bytes);
		if (value == NULL)
			break;
		LP_ASSERT(name != NULL && (const uint8_t *)value + pair.value_bytes <= meta + len);
	}
	if (lp_wire_end(&reader) == 0)
		LP_ASSERT(!lp_reader_failed(&reader));
}

static void walk_put(const uint8_t *meta, uint32_t len)
{
	struct lp_reader reader;
	struct lp_wire_put put;
	struct lp_wire_ref ref;
	uint8_t again[LP_WIRE_PUT_SIZE];
	lp_reader_init(&reader, meta, len);
	if (!lp_wire_part(&reader, lp_wire_put, &put))
		return;
	lp_wire_put_encode(&put, again);
	LP_ASSERT(memcmp(again, meta, sizeof(again)) == 0);
	lp_wire_ref_decode(put.ref, &ref);
	const char *path = lp_wire_bytes(&reader, ref.path_bytes);
	LP_ASSERT(path == NULL || (const uint8_t *)path + ref.path_bytes <= meta + len);
}

static void read_rest(const struct lp_wire_header *header, enum lp_wire_crc mode,
		      const uint8_t *rest, size_t len)
{
	uint32_t *crcs = NULL;
	if (len < lp_wire_rest_bytes(header) || lp_wire_rest_check(header, mode, rest) < 0)
		return;
	walk_pairs(rest, header->meta_bytes);
	walk_put(rest, header->meta_bytes);
	if (header->crc_cnt == 0)
		return;
	crcs = malloc((size_t)header->crc_cnt * sizeof(*crcs));
	LP_ASSERT(crcs != NULL);
	lp_wire_crcs_decode(rest + header->meta_bytes, header->crc_cnt, crcs);
	if (len - lp_wire_rest_bytes(header) >= header->data_bytes)
		LP_ASSERT(lp_wire_crcs_check(rest + lp_wire_rest_bytes(header), header->offset,
					     header->data_bytes, crcs) <= header->crc_cnt);
	free(crcs);
}

static void repair(uint8_t *message, size_t len)
{
	struct lp_wire_header header;
	lp_wire_header_decode(message, &header);
	uint64_t rest = (uint64_t)header.meta_bytes + (uint64_t)header.crc_cnt * 4;
	if (rest > 0 && rest <= len - LP_WIRE_HEADER_SIZE)
		lp_put_le32(message + LP_WIRE_HEADER_META_CRC_OFF,
			    lp_crc32c(0, message + LP_WIRE_HEADER_SIZE, rest));
	lp_put_le32(message + LP_WIRE_HEADER_HEADER_CRC_OFF,
		    lp_crc32c(0, message, LP_WIRE_HEADER_HEADER_CRC_OFF));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lp_wire_header header = {.magic = 0};
	uint8_t again[LP_WIRE_HEADER_SIZE];
	const char *why = NULL;
	if (len < 1 + LP_WIRE_HEADER_SIZE)
		return 0;
	enum lp_wire_crc mode = (enum lp_wire_crc)((bytes[0] & MODE_MASK) % 3);
	uint8_t *message = lpi_fuzz_copy(bytes + 1, len - 1);
	if ((bytes[0] & REPAIR) != 0)
		repair(message, len - 1);
	if (lp_wire_header_read(message, mode, LP_WIRE_LONG_META_MAX, &header, &why) < 0) {
		LP_ASSERT(why != NULL && header.magic == 0);
	} else {
		LP_ASSERT(header.meta_bytes <= LP_WIRE_LONG_META_MAX);
		LP_ASSERT(header.data_bytes <= LP_WIRE_DATA_MAX);
		check_pieces(&header);
		lp_wire_header_encode(&header, again);
		LP_ASSERT(memcmp(again, message, sizeof(again)) == 0);
		read_rest(&header, mode, message + LP_WIRE_HEADER_SIZE,
			  len - 1 - LP_WIRE_HEADER_SIZE);
	}
	free(message);
	return 0;
}
