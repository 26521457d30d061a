/* SPDX-License-Identifier: Apache-2.0 */
/* The small values of the index, from bytes that may be anything.
 *
 *   byte 0: 1 repair the crc, bits 1 to 3: D, F, U, R, L, S scrub
 *   then:   u64 ino or number of the key, value
 *
 * A value that is accepted is written to the same bytes, and is refused under another key. */
#include <errno.h>

#include "store/record/ref_counts.h"
#include "store/record/values.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR 1u
#define HEAD_BYTES  9u
#define BYTES_MAX   LP_DEFERRED_RECORD_BYTES
#define CRC_OFF     LP_DIRENT_VALUE_CRC_OFF
#define CRC_SIZE    LP_DIRENT_VALUE_CRC_SIZE

static_assert(LP_DIRENT_VALUE_SIZE <= BYTES_MAX, "room for each");
static_assert(LP_FRAGMENT_VALUE_SIZE <= BYTES_MAX, "room for each");
static_assert(LP_UNFINISHED_VALUE_SIZE <= BYTES_MAX, "room for each");
static_assert(LP_REFS_BYTES_MAX <= BYTES_MAX, "room for each");

enum kind { DIRENT, FRAGMENT, UNFINISHED, REFS, DEFERRED, SCRUB, KINDS };

static void make_key(struct lp_key *ret, enum kind kind, uint64_t number)
{
	struct lp_ino ino = {LP_MAX(number, UINT64_C(1))};
	switch (kind) {
	case DIRENT:
		lp_key_of_name(ret, LP_KEY_SPACE_DIRENT, ino, "name", 4);
		break;
	case FRAGMENT:
		lp_key_of_ino(ret, LP_KEY_SPACE_FRAGMENT, ino);
		break;
	case UNFINISHED:
		lp_key_of_ino(ret, LP_KEY_SPACE_UNFINISHED, ino);
		break;
	case REFS:
		lp_key_of_number(ret, LP_KEY_SPACE_REFS, number);
		break;
	case SCRUB:
		lp_key_of_store(ret, "scrub");
		break;
	case DEFERRED:
	case KINDS:
		lp_key_of_number(ret, LP_KEY_SPACE_DEFERRED, number);
		break;
	}
}

/* Of a deferred payload: the block's too, and that of the head alone. */
static void repair(enum kind kind, uint8_t *value, size_t len, const struct lp_key *key)
{
	if (kind == DEFERRED && len == LP_DEFERRED_RECORD_BYTES) {
		lp_put_le32(value + LP_DEFERRED_VALUE_BLOCK_CRC_OFF,
			    lp_crc32c(0, value + LP_DEFERRED_VALUE_SIZE, LP_BLOCK_BYTES));
		len = LP_DEFERRED_VALUE_SIZE;
	}
	if (len < CRC_OFF + CRC_SIZE)
		return;
	size_t rest = CRC_OFF + CRC_SIZE;
	uint32_t crc = lp_crc32c(0, key->bytes, key->len);
	crc = lp_crc32c(crc, value, CRC_OFF);
	lp_put_le32(value + CRC_OFF, lp_crc32c(crc, value + rest, len - rest));
}

/* Reads the value and, if it is sound, writes it to ret_again. */
static int read_write(enum kind kind, const uint8_t *value, size_t len, const struct lp_key *key,
		      uint8_t *ret_again)
{
	union {
		struct lp_dirent_value dirent;
		struct lp_fragment_value fragment;
		struct lp_unfinished_value unfinished;
		struct lp_refs refs;
		struct lp_scrub_value scrub;
		struct lp_deferred_value deferred;
	} is;
	int err = 0;
	switch (kind) {
	case DIRENT:
		err = lp_dirent_read(value, len, key, &is.dirent);
		if (err == 0)
			lp_dirent_write(&is.dirent, key, ret_again);
		break;
	case FRAGMENT:
		err = lp_fragment_read(value, len, key, &is.fragment);
		if (err == 0)
			lp_fragment_write(&is.fragment, key, ret_again);
		break;
	case UNFINISHED:
		err = lp_unfinished_read(value, len, key, &is.unfinished);
		if (err == 0)
			lp_unfinished_write(&is.unfinished, key, ret_again);
		break;
	case REFS:
		err = lp_refs_decode(value, len, key, &is.refs);
		if (err == 0)
			LP_ASSERT(lp_refs_encode(&is.refs, ret_again) == len);
		break;
	case SCRUB:
		err = lp_scrub_read(value, len, key, &is.scrub);
		if (err == 0)
			lp_scrub_write(&is.scrub, key, ret_again);
		break;
	case DEFERRED:
	case KINDS:
		err = lp_deferred_read(value, len, key, &is.deferred);
		if (err == 0) {
			memcpy(ret_again, value, len);
			lp_deferred_write(&is.deferred, key, ret_again);
		}
		break;
	}
	return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lp_key key = {.len = 0};
	uint8_t again[BYTES_MAX];
	if (len < HEAD_BYTES)
		return 0;
	enum kind kind = (enum kind)((bytes[0] >> 1 & 7) % KINDS);
	size_t value_len = len - HEAD_BYTES;
	uint8_t *value = lpi_fuzz_copy(bytes + HEAD_BYTES, value_len);
	make_key(&key, kind, lp_get_le64(bytes + 1));
	if ((bytes[0] & FLAG_REPAIR) != 0)
		repair(kind, value, value_len, &key);
	if (read_write(kind, value, value_len, &key, again) == 0) {
		LP_ASSERT(memcmp(again, value, value_len) == 0);
		/* One bit: no crc is the same. */
		key.bytes[key.len - 1] ^= 1;
		LP_ASSERT(read_write(kind, value, value_len, &key, again) == -EBADMSG);
	}
	free(value);
	return 0;
}
