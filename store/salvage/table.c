/* SPDX-License-Identifier: Apache-2.0 */
/* How a block is found: its entries are walked from its first byte on. Behind each entry the list
 * of restart points may begin, whose length follows from the number of entries. Where the last
 * number of such a list is right, the checksum behind it decides. What is no block at a byte is
 * tried at the next one; a first entry shares nothing with one before it, so most bytes fail at
 * once. Bytes can be made so that none does. So a block has a most length, and once the walks have
 * gone over each byte many times, what a walk without success went over is left out.
 */
#include "store/salvage/table.h"

#include <string.h>

#include "base/endian.h"
#include "base/error.h"
#include "base/hash.h"
#include "store/record/keys.h"

#define RESTART_EVERY   16u
#define TRAILER_BYTES   5u /* kind of compression, checksum */
#define NOT_COMPRESSED  0u
#define KEY_TAIL_BYTES  8u /* behind a key: sequence number and type */
#define TYPE_DELETION   0u
#define TYPE_VALUE      1u
#define TYPE_ONE_GONE   7u
#define SEQUENCE_MAX    ((UINT64_C(1) << 56) - 1)
#define LAST_BYTE_PRIME UINT32_C(0x6b9083d9)
#define INNER_KEY_MAX   (LP_KEY_BYTES_MAX + KEY_TAIL_BYTES)
#define VALUE_MAX       (UINT32_C(2) << 20)
/* Of the index of a table of 64 MiB it is half of that; a value is at most 1 MiB. */
#define BLOCK_BYTES_MAX ((size_t)4 << 20)
/* An intact table takes one or two. */
#define WALKS_OF_A_BYTE UINT64_C(64)

struct entry {
	uint32_t shared;
	uint32_t unshared;
	const uint8_t *key_rest;
	struct lp_kv_bytes value;
	const uint8_t *end;
};

/* NULL: there is no number. */
static const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, uint32_t *ret)
{
	uint64_t number = 0;
	for (unsigned shift = 0; shift <= 28 && at < end; shift += 7) {
		uint8_t byte = *at++;
		number |= (uint64_t)(byte & 0x7f) << shift;
		if ((byte & 0x80) == 0) {
			*ret = (uint32_t)number;
			return number <= UINT32_MAX ? at : NULL;
		}
	}
	return NULL;
}

static bool read_entry(const uint8_t *at, const uint8_t *end, uint32_t key_len, struct entry *ret)
{
	uint32_t value_len = 0;
	at = read_varint(at, end, &ret->shared);
	if (at != NULL)
		at = read_varint(at, end, &ret->unshared);
	if (at != NULL)
		at = read_varint(at, end, &value_len);
	if (at == NULL || ret->shared > key_len || value_len > VALUE_MAX ||
	    ret->unshared > INNER_KEY_MAX || ret->shared + ret->unshared > INNER_KEY_MAX ||
	    ret->shared + ret->unshared <= KEY_TAIL_BYTES ||
	    (size_t)(end - at) < (size_t)ret->unshared + value_len)
		return false;
	ret->key_rest = at;
	ret->value = (struct lp_kv_bytes){at + ret->unshared, value_len};
	ret->end = at + ret->unshared + value_len;
	return true;
}

/* As the library sums a block up: of all but the byte that says how it is compressed. */
static bool is_right(const uint8_t *first, const uint8_t *trailer)
{
	uint32_t sum = (uint32_t)lp_hash_u64(first, (size_t)(trailer - first), 0);
	return trailer[0] == NOT_COMPRESSED &&
	       (sum ^ (trailer[0] * LAST_BYTE_PRIME)) == lp_get_le32(trailer + 1);
}

/* Where the block ends, trailer included, if its entries end at `at`; else NULL. */
static const uint8_t *end_of_block(const uint8_t *first, const uint8_t *at, const uint8_t *end,
				   uint32_t entry_cnt)
{
	uint32_t restart_cnt = (entry_cnt + RESTART_EVERY - 1) / RESTART_EVERY;
	size_t list_bytes = (restart_cnt + (size_t)1) * sizeof(uint32_t);
	if ((size_t)(end - at) < list_bytes + TRAILER_BYTES || lp_get_le32(at) != 0)
		return NULL;
	const uint8_t *trailer = at + list_bytes;
	if (lp_get_le32(trailer - sizeof(uint32_t)) != restart_cnt || !is_right(first, trailer))
		return NULL;
	return trailer + TRAILER_BYTES;
}

/* The end of the block that begins here; NULL: there is none. *ret_entries_end: how far its entries
 * go. */
static const uint8_t *find_block(const uint8_t *first, const uint8_t *end,
				 const uint8_t **ret_entries_end)
{
	const uint8_t *at = first;
	uint32_t key_len = 0;
	end = first + LP_MIN((size_t)(end - first), BLOCK_BYTES_MAX);
	for (uint32_t cnt = 0;; cnt++) {
		struct entry entry;
		const uint8_t *block_end = cnt > 0 ? end_of_block(first, at, end, cnt) : NULL;
		*ret_entries_end = at;
		if (block_end != NULL)
			return block_end;
		if (!read_entry(at, end, key_len, &entry) ||
		    (cnt % RESTART_EVERY == 0 && entry.shared != 0))
			return NULL;
		key_len = entry.shared + entry.unshared;
		at = entry.end;
	}
}

static int pass_on(const uint8_t *inner_key, uint32_t len, const struct entry *entry,
		   struct lp_salvage_visitor *visitor, struct lp_salvage_table_report *report)
{
	uint64_t tail = lp_get_le64(inner_key + len - KEY_TAIL_BYTES);
	uint64_t type = tail & 0xff;
	const struct lp_salvage_record record = {.key = {inner_key, len - KEY_TAIL_BYTES},
						 .value = entry->value,
						 .sequence = tail >> 8,
						 .is_deletion = type != TYPE_VALUE};
	bool is_known = type == TYPE_VALUE || type == TYPE_DELETION || type == TYPE_ONE_GONE;
	if (!is_known || record.sequence == SEQUENCE_MAX)
		return 0;
	report->records++;
	return visitor->record(visitor, &record);
}

static int pass_block(const uint8_t *at, const uint8_t *end, struct lp_salvage_visitor *visitor,
		      struct lp_salvage_table_report *report)
{
	uint8_t key[INNER_KEY_MAX];
	uint32_t key_len = 0;
	int err = 0;
	report->blocks++;
	while (at < end && err == 0) {
		struct entry entry;
		bool is_there = read_entry(at, end, key_len, &entry);
		LP_ASSERT(is_there); /* it was walked before */
		memcpy(key + entry.shared, entry.key_rest, entry.unshared);
		key_len = entry.shared + entry.unshared;
		err = pass_on(key, key_len, &entry, visitor, report);
		at = entry.end;
	}
	return err;
}

int lp_salvage_table_scan(const void *bytes, size_t len, struct lp_salvage_visitor *visitor,
			  struct lp_salvage_table_report *report)
{
	const uint8_t *at = bytes;
	const uint8_t *end = at + len;
	uint64_t room = WALKS_OF_A_BYTE * len + BLOCK_BYTES_MAX;
	int err = 0;
	while (at < end && err == 0) {
		const uint8_t *entries_end = at;
		const uint8_t *next = find_block(at, end, &entries_end);
		room -= LP_MIN(room, (uint64_t)(entries_end - at));
		if (next != NULL) {
			err = pass_block(at, entries_end, visitor, report);
		} else {
			next = room > 0 ? at + 1 : LP_MAX(entries_end, at + 1);
			report->skipped_bytes += (uint64_t)(next - at);
		}
		at = next;
	}
	return err;
}
