/* SPDX-License-Identifier: Apache-2.0 */
/* Who reads a file from front to back, and how far ahead of it to read.
 *
 * Nobody says so, and there are no handles: it is seen in what is read. A table remembers some
 * recent reads by inode and end; one that begins where another ended goes on with its stream. From
 * the second that goes on the stream counts as sequential, and blocks in front of it are to be
 * read. How many begins with LP_STREAMS_WINDOW_MIN and doubles each time the reader has
 * used up half of them, up to LP_STREAMS_WINDOW_MAX: so a short run costs little, and a long one
 * soon waits for nothing.
 *
 * Several reads of one stream may be under way and come a little out of order: of a stream that is
 * sequential all reads near its end are part of it.
 *
 * A random reader leaves its reads in the table, and nothing else happens. It cannot put
 * out a stream that is sequential and was read from lately; several streams in one file are told
 * apart, LP_STREAMS_WAYS at most.
 *
 * Threads: one. Blocking, allocation, errors: none.
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
