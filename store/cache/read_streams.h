/* SPDX-License-Identifier: Apache-2.0 */
/* Detection of sequential reads, and how far ahead of them to read.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: none is allocated: a table of fixed size.
 * Errors: none.
 * Limits: LP_STREAMS_SETS sets of LP_STREAMS_WAYS streams.
 *
 * There are no file handles here, and no caller announces a sequential read. Streams are detected
 * from the reads. A table remembers some recent reads by inode and end. A read that starts where
 * a remembered one ended continues its stream. From the second continuation on the stream counts
 * as sequential, and blocks in front of it are to be read. Their number begins with
 * LP_STREAMS_WINDOW_MIN and doubles each time the reader has used up half of them, up to
 * LP_STREAMS_WINDOW_MAX. So a short run costs little, and a long one soon waits for nothing.
 *
 * Several reads of one stream may be under way and come a little out of order: of a sequential
 * stream all reads near its end are part of it.
 *
 * A random reader leaves its reads in the table, and nothing else happens. It cannot evict a
 * sequential stream that was read from lately (LP_STREAMS_LONG). Several streams in one file are
 * told apart, LP_STREAMS_WAYS at most.
 */
#ifndef LP_STORE_CACHE_READ_STREAMS_H
#define LP_STORE_CACHE_READ_STREAMS_H

#include "store/record/types.h"

#define LP_STREAMS_WINDOW_MIN 32u  /* blocks */
#define LP_STREAMS_WINDOW_MAX 256u /* 1 MiB */
#define LP_STREAMS_SETS       64u
#define LP_STREAMS_WAYS       8u
#define LP_STREAMS_NEAR       UINT64_C(65536) /* bytes */
#define LP_STREAMS_LONG       4096u           /* reads: a stream that has been silent for so many */

struct lp_stream {
	struct lp_ino ino; /* 0: none */
	uint64_t next;     /* where the last read ended */
	uint64_t ahead;    /* blocks of the file before this one were asked for */
	uint64_t used_at;  /* reads, when it was last gone on with */
	uint32_t window;   /* blocks: of what is asked for next */
	uint32_t mark;     /* blocks: when no more than so many are ahead, more are asked for */
	uint32_t streak;   /* reads that went on with it; no more are counted than matter */
};

/* Zeros are an empty one. */
struct lp_streams {
	struct lp_stream sets[LP_STREAMS_SETS][LP_STREAMS_WAYS];
	uint64_t reads;
};

/* A read of some bytes: the stream that it goes on with, if that is sequential; else NULL. It is
 * valid until the next call. */
struct lp_stream *lp_streams_read(struct lp_streams *streams, struct lp_ino ino, uint64_t offset,
				  uint64_t length);
/* Blocks of the file, from *ret_first on, that are to be read ahead now: their number, or 0. Not
 * beyond end_block. */
uint64_t lp_stream_want(const struct lp_stream *stream, uint64_t end_block, uint64_t *ret_first);
/* So many of them will be read, beginning with the first. */
void lp_stream_asked(struct lp_stream *stream, uint64_t first, uint64_t cnt);

#endif
