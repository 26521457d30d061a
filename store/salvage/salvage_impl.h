/* SPDX-License-Identifier: Apache-2.0 */
/* Internals that the parts of the salvage share.
 *
 * Threads, blocking, errors: as store/salvage/salvage.h says.
 *
 *   salvage.c         open, close, content
 *   salvage/index.c   the index of its own: which record counts
 *   salvage/log.c     records out of a log
 *   salvage/names.c   which names there are
 *   salvage/table.c   records out of a table
 *
 * The index of its own has the keys of the store (docs/format/keys.md), each with its value
 * behind a struct that says where it is from. It has two kinds of keys more, whose first byte no
 * key of a store has.
 */
#ifndef LP_STORE_SALVAGE_SALVAGE_IMPL_H
#define LP_STORE_SALVAGE_SALVAGE_IMPL_H

#include "store/salvage/record_check.h"
#include "store/salvage/salvage.h"

/* `p` block, crc: the content of that block, or where on the log's device it is. */
#define LPI_SALVAGE_PAYLOAD 0x70u
/* `v` ino: the first path that was told of it. */
#define LPI_SALVAGE_VISITED 0x76u

/* A record of a log is newer than all of tables. */
#define LPI_SALVAGE_LOG_ORDER (UINT64_C(1) << 60)

struct lp_salvage {
	struct lp_salvage_options options;
	struct lp_disk_label label[LP_ROLES];
	struct lp_bdev *log_bdev;
	struct lp_bdev *files_bdev;
	struct lp_kv *kv;
	struct lp_kv_batch *batch;
	uint8_t *blocks; /* LPI_SALVAGE_BLOCKS, for data */
	uint8_t *value;  /* LPI_SALVAGE_VALUE_MAX, of a record that is written */
	/* Of the shard that is being collected. */
	uint32_t shard_idx;
	uint64_t applied_order; /* of the record that says so; 0: none was seen */
	uint64_t whole_seq;     /* the index lacks nothing of frames up to this one */
	struct lp_salvage_shard_report report;
};

#define LPI_SALVAGE_BLOCKS    64u
#define LPI_SALVAGE_VALUE_MAX (LPI_RECORD_VALUE_MAX + 64)

/* A record of the shard that is being collected. order: the higher one is the newer. value.data
 * NULL: it is deleted. */
int lpi_salvage_add(struct lp_salvage *salvage, struct lp_kv_bytes key, struct lp_kv_bytes value,
		    uint64_t order) LP_MUST_CHECK;
/* A payload that lies on the log's device. */
int lpi_salvage_add_payload(struct lp_salvage *salvage, uint64_t device_block, uint32_t crc,
			    uint64_t offset_bytes) LP_MUST_CHECK;
/* Into buf, a block: whether there is such a payload and it is right. Negative: an error. */
int lpi_salvage_find_payload(struct lp_salvage *salvage, uint64_t device_block, uint32_t crc,
			     uint8_t *buf) LP_MUST_CHECK;
/* The value of a key as the store has it; -ENOENT. To be released. */
int lpi_salvage_get(struct lp_salvage *salvage, const struct lp_key *key,
		    struct lp_kv_value *ret_value, struct lp_kv_bytes *ret_bytes) LP_MUST_CHECK;
/* What of a stored value is the store's; data NULL: it is deleted. */
struct lp_kv_bytes lpi_salvage_strip(struct lp_kv_bytes stored);
/* Writes one record of our own. */
int lpi_salvage_put(struct lp_salvage *salvage, struct lp_kv_bytes key,
		    struct lp_kv_bytes value) LP_MUST_CHECK;

/* Frames of the log, after the tables of the shard. */
int lpi_salvage_log(struct lp_salvage *salvage, uint8_t *frame_bytes) LP_MUST_CHECK;

/* Reads; zeros for blocks that cannot be read or are not there. */
void lpi_salvage_read_blocks(struct lp_bdev *bdev, uint8_t *bytes, uint64_t block, uint64_t cnt);

#endif
