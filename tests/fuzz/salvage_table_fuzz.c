/* SPDX-License-Identifier: Apache-2.0 */
/* Records out of a damaged table.
 *
 *   byte 0: 1 pieces are entries of a block each; else all that follows is the table
 *   pieces: u8 number of entries, u8 unused, u16 length, the entries
 *
 * Behind the entries of a piece come what makes them a block: the list of restart points, and a
 * right checksum. The scan of any bytes ends; it passes on only what lies in them, the same when
 * it is done again; each byte is in a block or was skipped. */
#include "base/endian.h"
#include "base/hash.h"
#include "store/salvage/table.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_PIECES   1u
#define PIECE_BYTES   4u
#define RESTART_EVERY 16u
#define TABLE_MAX     (UINT32_C(1) << 20)

static uint8_t table[TABLE_MAX];

struct sum {
	struct lp_salvage_visitor visitor;
	const uint8_t *first;
	const uint8_t *end;
	uint64_t records;
	uint64_t sum;
};

static int see(struct lp_salvage_visitor *visitor, const struct lp_salvage_record *record)
{
	struct sum *sum = LP_CONTAINER_OF(visitor, struct sum, visitor);
	const uint8_t *value = record->value.data;
	LP_ASSERT(record->key.len > 0 && value >= sum->first &&
		  record->value.len <= (size_t)(sum->end - value));
	sum->records++;
	sum->sum = lp_hash_u64(record->key.data, record->key.len, sum->sum);
	sum->sum = lp_hash_u64(value, record->value.len, sum->sum + record->is_deletion);
	return 0;
}

static size_t put_block(size_t at, const uint8_t *entries, size_t len, uint8_t cnt)
{
	size_t first = at;
	uint32_t restart_cnt = (cnt + RESTART_EVERY - 1u) / RESTART_EVERY;
	if (len + (restart_cnt + 1) * sizeof(uint32_t) + 5 > sizeof(table) - at)
		return at;
	memcpy(table + at, entries, len);
	at += len;
	for (uint32_t i = 0; i < restart_cnt; i++, at += sizeof(uint32_t))
		lp_put_le32(table + at, i);
	lp_put_le32(table + at, restart_cnt);
	at += sizeof(uint32_t);
	table[at] = 0;
	lp_put_le32(table + at + 1, (uint32_t)lp_hash_u64(table + first, at - first, 0));
	return at + 5;
}

static size_t make_table(const uint8_t *bytes, size_t len)
{
	size_t table_len = 0;
	if ((bytes[0] & FLAG_PIECES) == 0) {
		table_len = LP_MIN(len - 1, sizeof(table));
		memcpy(table, bytes + 1, table_len);
		return table_len;
	}
	for (size_t at = 1; at + PIECE_BYTES <= len;) {
		size_t piece = LP_MIN((size_t)lp_get_le16(bytes + at + 2), len - at - PIECE_BYTES);
		table_len = put_block(table_len, bytes + at + PIECE_BYTES, piece, bytes[at]);
		at += PIECE_BYTES + piece;
	}
	return table_len;
}

static struct sum scan(const uint8_t *bytes, size_t len)
{
	struct sum sum = {.visitor.record = see, .first = bytes, .end = bytes + len};
	struct lp_salvage_table_report report = {.blocks = 0};
	LP_ASSERT(lp_salvage_table_scan(bytes, len, &sum.visitor, &report) == 0);
	LP_ASSERT(report.records == sum.records && report.skipped_bytes <= len);
	LP_ASSERT(report.blocks > 0 || report.skipped_bytes == len);
	return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	if (len < 1)
		return 0;
	size_t table_len = make_table(bytes, len);
	uint8_t *exact = lpi_fuzz_copy(table, table_len);
	struct sum one = scan(exact, table_len);
	struct sum other = scan(exact, table_len);
	LP_ASSERT(one.records == other.records && one.sum == other.sum);
	LP_ASSERT(memcmp(exact, table, table_len) == 0);
	free(exact);
	return 0;
}
