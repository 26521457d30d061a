/* SPDX-License-Identifier: Apache-2.0 */
/* `T` records of changes over several shards: encoding, decoding (docs/format/namespace.md).
 *
 * Threads: any.
 * Blocking, memory: none.
 * Errors: encoding asserts what decoding checks. Decoding takes any bytes: -EBADMSG, -EUCLEAN by
 *   lp_corrupt().
 * Ownership: decoded values point into the bytes and into *ret.
 */
#ifndef LP_NAMESPACE_STATE_PACT_RECORD_H
#define LP_NAMESPACE_STATE_PACT_RECORD_H

#include "format/namespace.h"
#include "store/store.h"

#define LPI_PACT_CHANGES_MAX 16u
#define LPI_PACT_KEY_BYTES   9u
/* A change has one name of 255 bytes at most. */
#define LPI_PACT_RECORD_BYTES_MAX                                                                  \
	(LP_PACT_HEAD_SIZE +                                                                       \
	 LPI_PACT_CHANGES_MAX * (LP_PACT_CHANGE_SIZE + LP_PACT_ATTRS_SIZE + 256))

struct lpi_pact_record {
	enum lp_pact_kind kind;
	uint32_t coordinator;
	uint64_t participants; /* DECIDED */
	int64_t since_ns;
	struct lp_ino sealed; /* PREPARED: nr 0: none */
	uint32_t change_cnt;
	const struct lp_change *changes; /* without guards; decoded: of decoded[] */
};

/* Memory for the decoded values. */
struct lpi_pact_decoded {
	struct lpi_pact_record record;
	struct lp_change changes[LPI_PACT_CHANGES_MAX];
	struct lp_attrs attrs[LPI_PACT_CHANGES_MAX];
};

void lpi_pact_key(uint64_t txid, uint8_t ret_key[LPI_PACT_KEY_BYTES]);
/* -EUCLEAN. */
int lpi_pact_key_parse(struct lp_bytes key, uint64_t *ret_txid) LP_MUST_CHECK;

/* Writes at most LPI_PACT_RECORD_BYTES_MAX bytes; returns how many. Guards are left out. */
size_t lpi_pact_record_encode(const struct lpi_pact_record *record, uint64_t txid, uint8_t *buf);
int lpi_pact_record_decode(struct lp_bytes value, uint64_t txid, uint32_t shard_cnt,
			   struct lpi_pact_decoded *ret) LP_MUST_CHECK;

#endif
