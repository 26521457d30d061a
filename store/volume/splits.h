/* SPDX-License-Identifier: Apache-2.0 */
/* Splits: single blocks of a chunk that belong to another shard than its leaseholder.
 *
 * Threads: one owner.
 * Blocking: none.
 * Memory: a set of splits is a value in memory. Its owner reads, changes and encodes it.
 * Errors: -ENOMEM; what each function says.
 *
 * Private to store/. Splits are the part of the chunk table that is about single blocks
 * (docs/format/disk.md, "Splits").
 */
#ifndef LP_STORE_VOLUME_SPLITS_H
#define LP_STORE_VOLUME_SPLITS_H

#include "base/error.h"
#include "base/struct/bitmap.h"

/* The encoded set is never longer: each change of the table writes all of it. */
#define LPI_SPLITS_BYTES_MAX (UINT64_C(1) << 20)
/* Nor are the bits of all of them in memory. */
#define LPI_SPLITS_MEMORY_MAX (UINT64_C(64) << 20)

struct lpi_split {
	uint32_t chunk_idx;
	uint32_t shard_idx;
	struct lp_bitmap blocks; /* at least one is set */
};

struct lpi_splits {
	uint32_t block_cnt; /* of a chunk: a multiple of 64 */
	uint32_t cnt;
	uint32_t room;
	struct lpi_split *at; /* in the order of chunk, then shard */
};

void lpi_splits_init(struct lpi_splits *splits, uint32_t block_cnt);
void lpi_splits_fini(struct lpi_splits *splits);
/* ret_copy is not initialised. After an error there is nothing to undo. */
int lpi_splits_copy(const struct lpi_splits *splits, struct lpi_splits *ret_copy) LP_MUST_CHECK;

/* NULL: the shard has no split of the chunk. */
const struct lpi_split *lpi_splits_find(const struct lpi_splits *splits, uint32_t chunk_idx,
					uint32_t shard_idx);
/* The first split at or behind that chunk, of whatever shard; or NULL. */
const struct lpi_split *lpi_splits_next(const struct lpi_splits *splits, uint32_t chunk_idx);

/* The shard gets these blocks, which no split has. -ENOSPC: there are too many splits. */
int lpi_splits_add(struct lpi_splits *splits, uint32_t chunk_idx, uint32_t shard_idx,
		   const struct lp_bitmap *blocks) LP_MUST_CHECK;
/* It has them no more. They were all its own (asserted). */
void lpi_splits_remove(struct lpi_splits *splits, uint32_t chunk_idx, uint32_t shard_idx,
		       const struct lp_bitmap *blocks);

/* No split is longer. */
size_t lpi_splits_one_max(uint32_t block_cnt);
/* The set as bytes; -ENOSPC when it has more than `room`. scratch has room for one split. */
int lpi_splits_encode(const struct lpi_splits *splits, void *scratch, void *buf, size_t room,
		      size_t *ret_len) LP_MUST_CHECK;
/* From bytes that may be anything: all of them must be `cnt` splits that keep the rules of their
 * page, but for what the chunks' entries say. -EUCLEAN without a record of it, which is the
 * caller's. ret_splits is not initialised. */
int lpi_splits_decode(const void *bytes, size_t len, uint32_t cnt, uint32_t block_cnt,
		      struct lpi_splits *ret_splits) LP_MUST_CHECK;

#endif
