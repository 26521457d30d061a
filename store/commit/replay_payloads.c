/* SPDX-License-Identifier: Apache-2.0 */
/* A tree of pieces that do not overlap, in the order of their blocks. Adding a payload first drops
 * the former pieces there. A drop shortens pieces, removes them, or cuts one in two. Only the cut
 * needs memory, at most once per call. Its new piece is allocated first, so that nothing has
 * changed when that fails. */
#include "store/commit/replay_payloads.h"

#include <errno.h>
#include <stdlib.h>

#include "base/struct/tree.h"

struct piece {
	struct lp_tree_node node;
	struct lp_replay_payload payload;
};

static bool piece_is_before(const struct piece *a, const struct piece *b)
{
	return a->payload.extent.block < b->payload.extent.block;
}

LP_TREE_DEFINE(pieces, struct piece, node, piece_is_before);

struct lp_replay_payloads {
	struct pieces pieces;
	uint64_t blocks;
	uint64_t seq; /* of the last payload that was added */
};

int lp_replay_payloads_new(struct lp_replay_payloads **ret_payloads)
{
	struct lp_replay_payloads *payloads = calloc(1, sizeof(*payloads));
	if (payloads == NULL)
		return -ENOMEM;
	pieces_init(&payloads->pieces);
	*ret_payloads = payloads;
	return 0;
}

static void remove_piece(struct lp_replay_payloads *payloads, struct piece *piece)
{
	LP_ASSERT(payloads->blocks >= piece->payload.extent.cnt);
	payloads->blocks -= piece->payload.extent.cnt;
	pieces_remove(&payloads->pieces, piece);
	free(piece);
}

void lp_replay_payloads_free(struct lp_replay_payloads *payloads)
{
	if (payloads == NULL)
		return;
	while (!pieces_is_empty(&payloads->pieces))
		remove_piece(payloads, pieces_first(&payloads->pieces));
	LP_ASSERT(payloads->blocks == 0);
	free(payloads);
}

/* The first piece that ends after `block`. */
static struct piece *find_piece(const struct lp_replay_payloads *payloads, uint64_t block)
{
	struct piece key = {.payload.extent.block = block};
	struct piece *before = pieces_find_lt(&payloads->pieces, &key);
	if (before != NULL && lp_extent_end(before->payload.extent) > block)
		return before;
	return before == NULL ? pieces_first(&payloads->pieces) : pieces_next(before);
}

/* The part of a payload from `block` on. */
static struct lp_replay_payload tail_of(const struct lp_replay_payload *payload, uint64_t block)
{
	uint64_t skip = block - payload->extent.block;
	struct lp_replay_payload tail = *payload;
	LP_ASSERT(block >= payload->extent.block);
	LP_ASSERT(skip < payload->extent.cnt);
	tail.extent.block += skip;
	tail.extent.cnt -= skip;
	tail.log_block += skip;
	return tail;
}

static void insert_piece(struct lp_replay_payloads *payloads, struct piece *piece,
			 const struct lp_replay_payload *payload)
{
	*piece = (struct piece){.payload = *payload};
	pieces_insert(&payloads->pieces, piece);
	payloads->blocks += payload->extent.cnt;
}

static void shorten(struct lp_replay_payloads *payloads, struct piece *piece, uint64_t cnt)
{
	LP_ASSERT(cnt > 0 && cnt <= piece->payload.extent.cnt);
	payloads->blocks -= piece->payload.extent.cnt - cnt;
	piece->payload.extent.cnt = cnt;
}

int lp_replay_payloads_drop(struct lp_replay_payloads *payloads, struct lp_extent extent)
{
	LP_ASSERT(extent.cnt > 0);
	uint64_t end = lp_extent_end(extent);
	struct piece *piece = find_piece(payloads, extent.block);
	if (piece != NULL && piece->payload.extent.block < extent.block) {
		/* The piece stays up to the extent, and may go on behind it. */
		if (lp_extent_end(piece->payload.extent) > end) {
			struct piece *second = malloc(sizeof(*second));
			if (second == NULL)
				return -ENOMEM;
			struct lp_replay_payload tail = tail_of(&piece->payload, end);
			shorten(payloads, piece, extent.block - piece->payload.extent.block);
			insert_piece(payloads, second, &tail);
			return 0;
		}
		shorten(payloads, piece, extent.block - piece->payload.extent.block);
		piece = pieces_next(piece);
	}
	while (piece != NULL && piece->payload.extent.block < end) {
		struct piece *next = pieces_next(piece);
		if (lp_extent_end(piece->payload.extent) <= end) {
			remove_piece(payloads, piece);
		} else {
			/* The order of the pieces stays the same. */
			payloads->blocks -= end - piece->payload.extent.block;
			piece->payload = tail_of(&piece->payload, end);
		}
		piece = next;
	}
	return 0;
}

int lp_replay_payloads_add(struct lp_replay_payloads *payloads,
			   const struct lp_replay_payload *payload)
{
	LP_ASSERT(payload->extent.cnt > 0);
	LP_ASSERT(payload->seq >= payloads->seq);
	struct piece *piece = malloc(sizeof(*piece));
	if (piece == NULL)
		return -ENOMEM;
	int rc = lp_replay_payloads_drop(payloads, payload->extent);
	if (rc != 0) {
		free(piece);
		return rc;
	}
	insert_piece(payloads, piece, payload);
	payloads->seq = payload->seq;
	return 0;
}

bool lp_replay_payloads_next(const struct lp_replay_payloads *payloads, uint64_t block,
			     struct lp_replay_payload *ret_payload)
{
	const struct piece *piece = find_piece(payloads, block);
	if (piece == NULL)
		return false;
	*ret_payload = piece->payload.extent.block >= block ? piece->payload
							    : tail_of(&piece->payload, block);
	return true;
}

uint64_t lp_replay_payloads_blocks(const struct lp_replay_payloads *payloads)
{
	return payloads->blocks;
}
