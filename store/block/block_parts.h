/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this room say to each other: opening again after a failure, views, what is
 * under way. */
#ifndef LP_STORE_BLOCK_BLOCK_PARTS_H
#define LP_STORE_BLOCK_BLOCK_PARTS_H

#include "store/block/core/block.h"
#include "store/view.h"

void lpi_reopen_init(struct lpi_block *block);
/* 0, or with what the operation ends at once. */
int lpi_reopen_admit(const struct lpi_block *block, const struct lp_store_op *op) LP_MUST_CHECK;
/* It is not to be begun now, and is kept until it can be. */
bool lpi_reopen_holds(struct lpi_block *block, struct lp_store_op *op);
/* The same for one that ended because of the failure, and has nothing any more. */
bool lpi_reopen_takes_back(struct lpi_block *block, struct lp_store_op *op, int result);
/* For closing: nothing more comes of it. */
void lpi_reopen_end(struct lpi_block *block);
void lpi_reopen_read_health(const struct lpi_block *block, struct lp_store_health *ret_health);

/* Opens the shard; then the block's pointers to its parts are set. */
void lpi_block_shard_options(struct lpi_block *block, struct lp_shard_options *ret_options);
void lpi_block_set_shard(struct lpi_block *block, struct lp_shard *shard);
/* What was asked of the devices by the shard there is goes into block->past. */
void lpi_block_keep_stats(struct lpi_block *block);

/* Calls of store/view.h (block/view.c). */
int lpi_view_pause(struct lp_store *store, struct lp_pause *pause) LP_MUST_CHECK;
void lpi_view_resume(struct lp_store *store, struct lp_pause *pause);
int lpi_view_take(struct lp_store *store, struct lp_view **ret_view) LP_MUST_CHECK;
void lpi_view_end(struct lp_store *store, struct lp_view *view);
/* The reader of a view, if there is one, is to come to an end. */
void lpi_view_is_over(struct lpi_block *block);

/* Transactions and reads at work (block/under_way.c). */
void lpi_begun_show(struct lp_store *store, struct lp_under_way_list *list);

#endif
