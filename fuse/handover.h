/* SPDX-License-Identifier: Apache-2.0 */
/* Handover of a request to the thread that has its inode, and back.
 *
 * Threads: as the functions say.
 * Blocking, memory, errors: none.
 *
 * Any thread may read any request, but what it is about belongs to one of them. That one does all
 * of it and answers, on the descriptor the request came from. Then the request goes back to the
 * channel that read it, because its memory belongs to that channel. So a request makes one way
 * between threads before its answer. Operations of the namespace for another thread's shard would
 * make two, and four for a read.
 */
#ifndef LP_FUSE_HANDOVER_H
#define LP_FUSE_HANDOVER_H

#include "fuse/request.h"

/* The channel on whose thread the request's work should be done: perhaps its own; NULL: any. On the
 * thread that read it. */
struct lp_fuse_channel *lpi_fuse_place_of(struct lpi_fuse_request *request);

/* It is to be begun there: begin() is called on that thread, where request->channel is the channel
 * `to` from then on. */
void lpi_fuse_hand_over(struct lpi_fuse_request *request, struct lp_fuse_channel *to,
			void (*begin)(struct lpi_fuse_request *request));
/* It was answered: ended() is called on the thread that read it. */
void lpi_fuse_give_back(struct lpi_fuse_request *request,
			void (*ended)(struct lpi_fuse_request *request));

/* A write's data in buffers of this thread, for the store here keeps them; false: there are none,
 * and the request has to be begun where it was read. */
bool lpi_fuse_adopt_data(struct lpi_fuse_request *request) LP_MUST_CHECK;

#endif
