/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that another thread than their own has read: any thread may get any request, but what a
 * request is about belongs to one of them. That one does all of it and answers, on the descriptor
 * the request came from; then the request goes back to the channel that read it, whose memory it
 * is.
 *
 * So a request takes one way through the threads before its answer, where operations of the
 * namespace for another thread's shard would take two, and four for a read.
 *
 * Threads: as said. Blocking, allocation, errors: none.
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
