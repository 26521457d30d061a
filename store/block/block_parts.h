/* SPDX-License-Identifier: Apache-2.0 */
/* Internal calls between the files of this room: opening again after a failure, views, reports of
 * operations under way. */
#ifndef LP_STORE_BLOCK_BLOCK_PARTS_H
#define LP_STORE_BLOCK_BLOCK_PARTS_H

#include "store/block/core/block.h"
#include "store/view.h"

void lpi_reopen_init(struct lpi_block *block);
/* 0, or the result with which the operation ends at once. */
int lpi_reopen_admit(const struct lpi_block *block, const struct lp_store_op *op) LP_MUST_CHECK;
/* True: the operation must not begin now, and is kept until it can. */
bool lpi_reopen_holds(struct lpi_block *block, struct lp_store_op *op);
/* The same for an operation that ended because of the failure, and holds nothing any more. */
bool lpi_reopen_takes_back(struct lpi_block *block, struct lp_store_op *op, int result);
/* For closing: the reopening goes no further. */
void lpi_reopen_end(struct lpi_block *block);
void lpi_reopen_read_health(const struct lpi_block *block, struct lp_store_health *ret_health);

/* Options for opening the shard; then sets the block's pointers to its parts. */
void lpi_block_shard_options(struct lpi_block *block, struct lp_shard_options *ret_options);
void lpi_block_set_shard(struct lpi_block *block, struct lp_shard *shard);
/* Adds the device statistics of the present shard to block->past. */
void lpi_block_keep_stats(struct lpi_block *block);

/* Calls of store/view.h (block/view.c). */
int lpi_view_pause(struct lp_store *store, struct lp_pause *pause) LP_MUST_CHECK;
void lpi_view_resume(struct lp_store *store, struct lp_pause *pause);
int lpi_view_take(struct lp_store *store, struct lp_view **ret_view) LP_MUST_CHECK;
void lpi_view_end(struct lp_store *store, struct lp_view *view);
/* Asks the reader of a view, if there is one, to end. */
void lpi_view_is_over(struct lpi_block *block);

/* Transactions and reads at work (block/under_way.c). */
void lpi_begun_show(struct lp_store *store, struct lp_under_way_list *list);

#endif
