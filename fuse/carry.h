/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait for another operation while they have what they have read.
 *
 * A read that has completed holds a call of the namespace's until lp_ns_end(), and who finds no
 * call waits in order. If all calls were with such as need another operation before they give
 * theirs back, none would ever come back. So of these there are LPI_FUSE_CARRIES at a time at most
 * on each channel, which are a part of all calls. Who is one too many has nothing in hand: a read
 * whose access time is to be looked at is answered before that, and a copy waits until it may read.
 *
 * Threads: the channel's. Blocking, allocation: none.
 */
#ifndef LP_FUSE_CARRY_H
#define LP_FUSE_CARRY_H

#include "fuse/request.h"

#define LPI_FUSE_CARRIES (LP_NS_OPS_MAX / 4)

struct lpi_fuse_carries {
	uint32_t max;
	uint32_t cnt;
	struct lpi_fuse_list waiting;
};

void lpi_fuse_carries_init(struct lpi_fuse_carries *carries);
/* The request may wait with what it has read; lpi_fuse_carry_end() when it has given that back.
 * False: there are too many. */
bool lpi_fuse_carry_try(const struct lpi_fuse_request *request) LP_MUST_CHECK;
/* The same for one that has not read yet: next() is called when it may, which can be at once. */
void lpi_fuse_carry_begin(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);
/* One that might has given it back: who waits goes on. */
void lpi_fuse_carry_end(struct lp_fuse_channel *channel);

#endif
