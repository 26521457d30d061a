/* SPDX-License-Identifier: Apache-2.0 */
/* Deferred payloads that a replay of the log still has to write to their place.
 *
 * Threads: one owner.
 * Blocking: none.
 * Memory: about 64 bytes for each piece that survives.
 * Errors: -ENOMEM leaves everything as it was.
 * Limits: the log bounds the pieces (rule L6).
 *
 * A payload is dropped when a later frame freed its blocks (rule S3), because a new owner may
 * since have written to them directly. Of two payloads for one block the later one counts. So all
 * frames are looked through before the first payload is written.
 *
 * Feed the frames in order. Of each give its payloads first, then the blocks that it freed. A
 * group may free a block that it has just written, but cannot write to a block that it frees:
 * that block is not reusable yet.
 */
#ifndef LP_STORE_COMMIT_REPLAY_PAYLOADS_H
#define LP_STORE_COMMIT_REPLAY_PAYLOADS_H

#include "store/record/types.h"

struct lp_replay_payloads;

/* Blocks to be written, and where their content is in the log. */
struct lp_replay_payload {
	struct lp_extent extent;
	uint64_t log_block; /* of the first; the others follow */
	uint64_t seq;       /* of the frame */
	uint32_t crc;       /* of the content, if it is one block; else the caller must know it */
};

int lp_replay_payloads_new(struct lp_replay_payloads **ret_payloads) LP_MUST_CHECK;
/* NULL is fine. */
void lp_replay_payloads_free(struct lp_replay_payloads *payloads);

/* A frame has a payload; seq is no lower than any before. -ENOMEM. */
int lp_replay_payloads_add(struct lp_replay_payloads *payloads,
			   const struct lp_replay_payload *payload) LP_MUST_CHECK;
/* A frame freed blocks: their pieces are dropped. -ENOMEM. */
int lp_replay_payloads_drop(struct lp_replay_payloads *payloads,
			    struct lp_extent extent) LP_MUST_CHECK;

/* The first piece at or after `block`, cut so that it does not begin earlier. Pieces come in device
 * order, in which they should be written. False when there is none. To walk all: go on at the end
 * of the piece before. */
bool lp_replay_payloads_next(const struct lp_replay_payloads *payloads, uint64_t block,
			     struct lp_replay_payload *ret_payload);
/* Blocks in all pieces. */
uint64_t lp_replay_payloads_blocks(const struct lp_replay_payloads *payloads);

#endif
