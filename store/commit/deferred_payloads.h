/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred payloads: blocks whose newest content is in the log and not yet in its place.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: payloads are references to buffers. Versions are allocated at new; only the list of
 * freed extents that are not durable yet may grow.
 * Errors: -ENOMEM at new. -EAGAIN when the limit of payloads is reached (rule L6): the caller
 * writes back and waits.
 *
 * This module decides and accounts. The caller does the I/O: it takes one run of neighbouring
 * blocks after the other, writes them, and reports back.
 *
 * Payloads are indexed by device block, so that clones and every reader see them (rule S4). A
 * block may have several versions at once. Readers get the newest. An older one is kept until the
 * frame of a newer one is durable, because until then a crash would bring it back. Only the
 * newest durable version goes to its place, one write per block at a time. A version is done when
 * its write and a later flush of the device are, or when a newer version or the freeing of the
 * block is durable.
 *
 * Each version counts for the frame that carries it. lp_pending_oldest_seq() is the oldest frame
 * that still has an undone version: the log must keep it and all after it (rule S2). A version
 * that the index keeps in a record (store/commit/deferred_records.h) does not need its frame.
 * When it is done the owner is told.
 *
 * A version whose block cannot be written is *stuck*: write-back no longer selects it. The owner
 * stores its content in the index as a *settled* version, which write-back does not select
 * either. The settled version lives until a newer version, or the freeing of the block, is
 * durable (rule L6).
 */
#ifndef LP_STORE_COMMIT_DEFERRED_PAYLOADS_H
#define LP_STORE_COMMIT_DEFERRED_PAYLOADS_H

#include <errno.h>

#include "base/memory/buf.h"
#include "store/record/types.h"

struct lp_pending;
struct lp_pending_version;

struct lp_pending_block {
	uint64_t block;
	uint64_t seq;        /* the frame that carries this version */
	const uint8_t *data; /* one block */
	uint32_t crc;
	uint32_t failures;                  /* of a chosen version: its failed writes */
	struct lp_pending_version *version; /* of a chosen version: to be reported */
};

struct lp_pending_events {
	/* A version that has a record is done. Not called from lp_pending_free(). */
	void (*done)(struct lp_pending_events *events, uint64_t record);
};

struct lp_pending_stats {
	uint64_t versions; /* held now; each holds one block of memory */
	uint64_t versions_max;
	uint64_t in_log;  /* of these: not in the index; */
	uint64_t stuck;   /* of these: not selected, to be stored elsewhere; */
	uint64_t settled; /* not selected, stored in the index */
	uint64_t added;
	uint64_t superseded; /* done because a newer version became durable: a write saved */
	uint64_t freed;      /* done because the block was freed: a write saved */
	uint64_t written;    /* done by a write */
};

/* limit: versions held at most. */
int lp_pending_new(uint64_t limit, struct lp_pending **ret_pending) LP_MUST_CHECK;
/* Drops all versions. Accepts NULL. */
void lp_pending_free(struct lp_pending *pending);

/* events outlive pending, or NULL. */
void lp_pending_set_events(struct lp_pending *pending, struct lp_pending_events *events);

/* How many more versions fit. */
uint64_t lp_pending_room(const struct lp_pending *pending);

/* A new version of a block, carried by frame seq, which is not durable yet; takes a reference on
 * the buffer of seg (4096 bytes long). seq never decreases from call to call. The same block may
 * come several times in one frame: the last one counts. */
int lp_pending_add(struct lp_pending *pending, uint64_t seq, uint64_t block, struct lp_seg seg,
		   uint32_t crc) LP_MUST_CHECK;
/* The same for a payload that the index keeps: record is its number, not 0. */
int lp_pending_add_kept(struct lp_pending *pending, uint64_t seq,
			const struct lp_pending_block *about, struct lp_seg seg,
			uint64_t record) LP_MUST_CHECK;

/* The same for a payload whose block is known not to be writable: it is stuck, or settled, when its
 * frame is durable. record: 0 if the log has it. */
int lp_pending_add_stuck(struct lp_pending *pending, uint64_t seq,
			 const struct lp_pending_block *about, struct lp_seg seg, uint64_t record,
			 bool is_settled) LP_MUST_CHECK;

/* The newest version of a block, durable or not. False if the block has none; then its content is
 * on the device. The seg is borrowed. */
bool lp_pending_find(const struct lp_pending *pending, uint64_t block, struct lp_seg *ret_seg,
		     uint32_t *ret_crc);

/* Frame seq frees these blocks; takes effect when it is durable. Called before
 * lp_pending_frame_durable(seq), after the adds of the same frame. -ENOMEM leaves things as they
 * were. */
int lp_pending_freed(struct lp_pending *pending, uint64_t seq,
		     struct lp_extent extent) LP_MUST_CHECK;

/* Frame `from`, the newest and not yet submitted, is number `to` instead. */
void lp_pending_renumber(struct lp_pending *pending, uint64_t from, uint64_t to);

/* Frame seq and all before it are durable. */
void lp_pending_frame_durable(struct lp_pending *pending, uint64_t seq);

/* Chooses the blocks of one write: the oldest waiting version, or one near it in device order, and
 * its neighbours as far as they wait, too. At most `max` blocks, each the next of the one before. A
 * version that has failed comes alone. may_write (or NULL) says no for blocks with other I/O in
 * flight. 0: no version waits, or none may be written. The version of each chosen block must be
 * reported by _written() or _failed(), once; it and its data stay valid until then. */
uint32_t lp_pending_choose(struct lp_pending *pending, struct lp_pending_block *ret_blocks,
			   uint32_t max, bool (*may_write)(uint64_t block, void *arg), void *arg);
/* How many durable versions wait to be chosen. */
uint64_t lp_pending_ready(const struct lp_pending *pending);
/* Whether any of them came with this frame or before. */
bool lp_pending_has_ready(const struct lp_pending *pending, uint64_t seq);
/* Whether some of the last sorted batch are not chosen yet: they are best written together. */
bool lp_pending_is_choosing(const struct lp_pending *pending);
/* The write of a chosen block has completed. The version is done with the next flush. */
void lp_pending_written(struct lp_pending *pending, struct lp_pending_version *version);
/* The write failed: the version stays pending and may be chosen again. With `counts` this is one
 * more of its failures. False: the version is not needed any more, and is gone. */
bool lp_pending_failed(struct lp_pending *pending, struct lp_pending_version *version, bool counts);
/* A version that has just failed, and is still pending, becomes stuck. */
void lp_pending_stick(struct lp_pending *pending, struct lp_pending_version *version);
/* A stuck version that is the newest of its block, and whose block no frame frees. Other stuck
 * versions will be done without help. seg is borrowed. False: there is none. */
bool lp_pending_find_stuck(const struct lp_pending *pending, struct lp_pending_block *ret_block,
			   struct lp_seg *ret_seg);
/* The next durable version after ret_block->version in the order of frames, or the oldest one if
 * that is NULL, that only the log has, of frame `seq` or before. It is the newest of its block, no
 * frame frees the block, and it waits to be written or is being written, but is not stuck. A newer
 * frame may carry it instead, by _add(). seg is borrowed. False: there is none. */
bool lp_pending_find_old(const struct lp_pending *pending, uint64_t seq,
			 struct lp_pending_block *ret_block, struct lp_seg *ret_seg);
/* Versions that are not stuck or settled. */
uint64_t lp_pending_writable(const struct lp_pending *pending);

/* A flush of the device: begin when it is submitted, end when it has completed. Versions written
 * before begin are done then. One flush at a time. */
void lp_pending_flush_begin(struct lp_pending *pending);
void lp_pending_flush_end(struct lp_pending *pending, bool ok);
/* Blocks that are written and wait for a flush. */
uint64_t lp_pending_unflushed(const struct lp_pending *pending);

/* Another thread takes pending over; the caller has ordered the two threads. */
void lp_pending_rebind(struct lp_pending *pending);

/* The newest frame that was reported durable. */
uint64_t lp_pending_durable_seq(const struct lp_pending *pending);
/* UINT64_MAX when no version is held except those that the index keeps. */
uint64_t lp_pending_oldest_seq(const struct lp_pending *pending);
/* Memory of versions that are done goes back to the system. */
void lp_pending_rest(struct lp_pending *pending);
const struct lp_pending_stats *lp_pending_stats(const struct lp_pending *pending);

#endif
