/* SPDX-License-Identifier: Apache-2.0 */
/* The records of changes over several shards, from bytes that may be anything.
 *
 *   byte 0: 1 repair the crc; u8 shards; u64 txid; then the value
 *
 * A record that is accepted is encoded to the same bytes. */
#include "base/crc32c.h"
#include "namespace/state/pact_record.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

#define FLAG_REPAIR 1u
#define HEAD_BYTES  10u

static void repair(uint8_t *value, size_t len, uint64_t txid)
{
	uint8_t key[LPI_PACT_KEY_BYTES];
	size_t rest = LP_PACT_HEAD_CRC_OFF + LP_PACT_HEAD_CRC_SIZE;
	if (len < rest)
		return;
	lpi_pact_key(txid, key);
	uint32_t crc = lp_crc32c(0, key, sizeof(key));
	crc = lp_crc32c(crc, value, LP_PACT_HEAD_CRC_OFF);
	lp_put_le32(value + LP_PACT_HEAD_CRC_OFF, lp_crc32c(crc, value + rest, len - rest));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	static uint8_t again[LPI_PACT_RECORD_BYTES_MAX];
	static struct lpi_pact_decoded is;
	if (len < HEAD_BYTES || len - HEAD_BYTES > LPI_PACT_RECORD_BYTES_MAX)
		return 0;
	size_t value_len = len - HEAD_BYTES;
	uint32_t shards = 1 + bytes[1] % LP_SHARDS_MAX;
	uint64_t txid = lp_get_le64(bytes + 2);
	uint8_t *value = lpi_fuzz_copy(bytes + HEAD_BYTES, value_len);
	if ((bytes[0] & FLAG_REPAIR) != 0)
		repair(value, value_len, txid);
	const struct lp_bytes in = {value, (uint32_t)value_len};
	if (lpi_pact_record_decode(in, txid, shards, &is) == 0) {
		size_t again_len = lpi_pact_record_encode(&is.record, txid, again);
		LP_ASSERT(again_len == value_len && memcmp(again, value, value_len) == 0);
	}
	free(value);
	return 0;
}
