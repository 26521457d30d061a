/* SPDX-License-Identifier: Apache-2.0 */
/* Limit on requests that wait for another operation while they hold data that they have read.
 *
 * Threads: the channel's.
 * Blocking, memory: none.
 * Limits: LPI_FUSE_CARRIES of a channel at a time, a part of all calls of the namespace.
 *
 * A read that has completed holds a call of the namespace until lp_ns_end(), and operations that
 * find no call wait in order. If all calls were held by requests that need another operation first,
 * none would ever come back. So only a part of the calls may be held in this way. A request beyond
 * that part holds nothing: a read whose access time is to be looked at is answered before the look,
 * and a copy waits until it may read.
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
/* The request may wait and hold what it has read. lpi_fuse_carry_end() is called when it has given
 * that back. False: too many do so already. */
bool lpi_fuse_carry_try(const struct lpi_fuse_request *request) LP_MUST_CHECK;
/* The same for a request that has not read yet. next() is called when it may read, which can be at
 * once. */
void lpi_fuse_carry_begin(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);
/* A request that held a carry has given back what it read. The first waiting request goes on. */
void lpi_fuse_carry_end(struct lp_fuse_channel *channel);

#endif
