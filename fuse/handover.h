/* SPDX-License-Identifier: Apache-2.0 */
/* Handover of a request to the thread that has its inode, and back.
 *
 * Threads: as the functions say.
 * Blocking, memory, errors: none.
 *
 * Any thread may read any request, but the request's inode belongs to one of them. That thread does
 * all of the work and answers, on the descriptor the request came from. Then the request goes back
 * to the channel that read it, because its memory belongs to that channel. So a request makes one
 * way between threads before its answer. Operations of the namespace for another thread's shard
 * would make two, and four for a read.
 */
#ifndef LP_FUSE_HANDOVER_H
#define LP_FUSE_HANDOVER_H

#include "fuse/request.h"

/* The channel on whose thread the request's work should be done, which may be its own. NULL: any
 * channel. Called on the thread that read the request. */
struct lp_fuse_channel *lpi_fuse_place_of(struct lpi_fuse_request *request);

/* Hands the request over: begin() is called on the other thread. From then on request->channel is
 * the channel `to`. */
void lpi_fuse_hand_over(struct lpi_fuse_request *request, struct lp_fuse_channel *to,
			void (*begin)(struct lpi_fuse_request *request));
/* The request was answered: ended() is called on the thread that read it. */
void lpi_fuse_give_back(struct lpi_fuse_request *request,
			void (*ended)(struct lpi_fuse_request *request));

/* Copies a write's data to buffers of this thread, because the store here keeps them. False: there
 * are no buffers, and the request must be begun on the thread that read it. */
bool lpi_fuse_adopt_data(struct lpi_fuse_request *request) LP_MUST_CHECK;

#endif
