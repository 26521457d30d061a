/* SPDX-License-Identifier: Apache-2.0 */
/* What the store's benchmark writes: cells that say of themselves what they are, so that each byte
 * read can be held against what must be there; or patterns made beforehand, which cost the measured
 * thread nothing.
 *
 * A cell is a block, or the whole write where that is shorter. Its head names the run, the object,
 * the place and the generation, and all of its bytes follow from the head: a lost, torn, stale or
 * misdirected write shows.
 *
 * Threads: any; a pattern belongs to the thread of its buffers. Blocking: none.
 */
#ifndef LP_CLI_STOREBENCH_DATA_H
#define LP_CLI_STOREBENCH_DATA_H

#include "base/memory/buf.h"
#include "store/store.h"

#define LPI_BENCH_CELL_MIN UINT32_C(64)

struct lpi_bench_cell {
	uint64_t run;    /* which run wrote it */
	uint64_t object; /* number of the object within the benchmark */
	uint64_t place;  /* bytes from the object's beginning */
	uint64_t generation;
};

/* len is a multiple of 8, at least LPI_BENCH_CELL_MIN. */
void lpi_bench_cell_fill(uint8_t *buf, size_t len, const struct lpi_bench_cell *cell);
/* What the bytes say they are. -EBADMSG: they are no cell, or not all of one. */
int lpi_bench_cell_read(const uint8_t *buf, size_t len, struct lpi_bench_cell *ret) LP_MUST_CHECK;

/* Copies len bytes from `offset` of a row of segments that is long enough. */
void lpi_bench_gather(const struct lp_seg *segs, uint64_t offset, uint8_t *buf, size_t len);

/* --- Patterns --------------------------------------------------------------------------------- */

#define LPI_BENCH_PATTERN_BUFS 4u
#define LPI_BENCH_PATTERN_BLOCKS                                                                   \
	(LPI_BENCH_PATTERN_BUFS * (uint32_t)(LP_BUF_LARGE >> LP_BLOCK_SHIFT))

/* 4 MiB of noise in four buffers, and the checksum of each block: any write takes as many
 * of them as it needs. */
struct lpi_bench_pattern {
	struct lp_buf *bufs[LPI_BENCH_PATTERN_BUFS];
	uint32_t short_bytes; /* of the writes shorter than a block; 0: there are none */
	uint32_t crcs[LPI_BENCH_PATTERN_BLOCKS];
	uint32_t short_crcs[LPI_BENCH_PATTERN_BLOCKS];
	uint32_t next;
};

/* -ENOBUFS: the region is too small. */
int lpi_bench_pattern_init(struct lpi_bench_pattern *pattern, struct lp_bufs *bufs,
			   uint32_t short_bytes, uint64_t seed) LP_MUST_CHECK;
/* All that was written with it must be done. Also for one that was never made. */
void lpi_bench_pattern_fini(struct lpi_bench_pattern *pattern);
/* The next `length` bytes, at most 4 MiB, beginning on a block. segs has room for
 * LPI_BENCH_PATTERN_BUFS; *one_crc is used where the length is not that of whole blocks. */
void lpi_bench_pattern_take(struct lpi_bench_pattern *pattern, uint64_t length, struct lp_seg *segs,
			    uint32_t *one_crc, struct lp_payload *ret_payload);

#endif
