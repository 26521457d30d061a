/* SPDX-License-Identifier: Apache-2.0 */
#include "fuse/room.h"

#include <errno.h>

#include "base/assert.h"
#include "fuse/channel_state.h"

#define RETRY_NS LP_NS_PER_MS
/* All holders of buffers give some back long before, even on a slow device. */
#define PATIENCE_NS (30 * LP_NS_PER_S)

static void start_retry(struct lp_fuse_channel *channel)
{
	struct lp_reactor *reactor = channel->options.reactor;
	if (!lp_timer_is_armed(&channel->rooms.retry))
		lp_timer_start(reactor, &channel->rooms.retry,
			       lp_reactor_now_ns(reactor) + RETRY_NS);
}

static void begin_again(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	uint64_t now_ns = lp_clock_mono_ns(lp_reactor_clock(channel->options.reactor));
	if (channel->is_stopping || channel->is_gone)
		lpi_fuse_answer(request, -ENOTCONN);
	else if (now_ns - LP_MIN(request->began_ns, now_ns) > PATIENCE_NS)
		lpi_fuse_answer(request, -ENOMEM);
	else
		request->with_room(request);
}

/* Tries the requests in their order. One that finds no room waits again. */
static void retry(struct lp_timer *timer)
{
	struct lpi_fuse_rooms *rooms = LP_CONTAINER_OF(timer, struct lpi_fuse_rooms, retry);
	struct lpi_fuse_list now;
	struct lpi_fuse_request *request = NULL;
	lpi_fuse_list_init(&now);
	lpi_fuse_list_splice_back(&now, &rooms->waiting);
	while ((request = lpi_fuse_list_pop_front(&now)) != NULL)
		begin_again(request);
}

void lpi_fuse_rooms_init(struct lpi_fuse_rooms *rooms)
{
	lpi_fuse_list_init(&rooms->waiting);
	rooms->retry.fire = retry;
}

bool lpi_fuse_rooms_are_wanted(const struct lpi_fuse_rooms *rooms)
{
	return !lpi_fuse_list_is_empty(&rooms->waiting);
}

struct lp_buf *lpi_fuse_room(struct lpi_fuse_request *request, uint32_t bytes,
			     lpi_fuse_step_fn *again)
{
	LP_ASSERT(request->room == NULL && bytes <= LP_BUF_LARGE);
	request->room = lp_buf_new_ranked(request->channel->options.bufs, bytes, LP_BUF_ANSWER);
	if (request->room == NULL)
		lpi_fuse_wait_for_room(request, again);
	return request->room;
}

void lpi_fuse_wait_for_room(struct lpi_fuse_request *request, lpi_fuse_step_fn *again)
{
	struct lp_fuse_channel *channel = request->channel;
	lp_buf_put(request->room);
	request->room = NULL;
	request->with_room = again;
	channel->stats.roomless++;
	lpi_fuse_list_push_back(&channel->rooms.waiting, request);
	start_retry(channel);
}
