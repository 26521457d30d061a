/* SPDX-License-Identifier: Apache-2.0 */
/* Wait for buffers of an answer.
 *
 * Threads: the channel's.
 * Blocking, memory: none.
 *
 * Writes may have taken all buffers, and give them back when they are done. A request that finds no
 * buffer waits in its channel. The channel reads no more requests meanwhile.
 */
#ifndef LP_FUSE_ROOM_H
#define LP_FUSE_ROOM_H

#include "fuse/request.h"

struct lpi_fuse_rooms {
	struct lpi_fuse_list waiting;
	struct lp_timer retry;
};

void lpi_fuse_rooms_init(struct lpi_fuse_rooms *rooms);
bool lpi_fuse_rooms_are_wanted(const struct lpi_fuse_rooms *rooms);

/* The request's room of so many bytes, at most LP_BUF_LARGE. NULL: there is none now, and `again`
 * is called when there may be. If that takes too long, the request is answered -ENOMEM. */
struct lp_buf *lpi_fuse_room(struct lpi_fuse_request *request, uint32_t bytes,
			     lpi_fuse_step_fn *again);
/* The same where the request lacked something other than the room: gives back the room that it has.
 */
void lpi_fuse_wait_for_room(struct lpi_fuse_request *request, lpi_fuse_step_fn *again);

#endif
