/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/carry.h"

#include "base/assert.h"
#include "fuse/channel_state.h"

void lpi_fuse_carries_init(struct lpi_fuse_carries *carries)
{
	carries->max = LPI_FUSE_CARRIES;
	carries->cnt = 0;
	lpi_fuse_list_init(&carries->waiting);
}

bool lpi_fuse_carry_try(const struct lpi_fuse_request *request)
{
	struct lpi_fuse_carries *carries = &request->channel->carries;
	if (carries->cnt >= carries->max)
		return false;
	carries->cnt++;
	return true;
}

void lpi_fuse_carry_begin(struct lpi_fuse_request *request, lpi_fuse_step_fn *next)
{
	if (lpi_fuse_carry_try(request)) {
		next(request);
		return;
	}
	request->next = next;
	lpi_fuse_list_push_back(&request->channel->carries.waiting, request);
}

void lpi_fuse_carry_end(struct lp_fuse_channel *channel)
{
	struct lpi_fuse_carries *carries = &channel->carries;
	LP_ASSERT(carries->cnt > 0);
	struct lpi_fuse_request *request = lpi_fuse_list_pop_front(&carries->waiting);
	/* The place goes to the first waiting request. */
	if (request != NULL)
		request->next(request);
	else
		carries->cnt--;
}
