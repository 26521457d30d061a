/* SPDX-License-Identifier: Apache-2.0 */
/* Records slow requests when they are answered, because after the answer the kernel may reuse the
 * memory of the name. */
#include <stdio.h>
#include <string.h>

#include "fuse/channel_state.h"

static void name_object(const struct lp_fuse_message *message, char *ret, size_t size)
{
	struct lp_bytes name = message->names[0];
	int used = snprintf(ret, size, "inode %llu%s", (unsigned long long)message->header.nodeid,
			    name.len > 0 ? ": " : "");
	uint32_t room = (uint32_t)size - 1 - (uint32_t)used;
	uint32_t skip = name.len > room ? name.len - room : 0;
	if (name.len > 0)
		(void)snprintf(ret + used, size - (size_t)used, "%.*s", (int)(name.len - skip),
			       (const char *)name.data + skip); /* it was cut to fit */
}

static uint64_t bytes_of(const struct lp_fuse_message *message)
{
	if (message->header.opcode == FUSE_WRITE)
		return message->in.write.size;
	return message->header.opcode == FUSE_READ ? message->in.read.size : 0;
}

void lpi_fuse_look_slow(const struct lpi_fuse_request *request, int err)
{
	struct lp_fuse_channel *channel = request->channel;
	const struct lp_fuse_message *message = &request->message;
	const struct lp_clock *clock = lp_reactor_clock(channel->options.reactor);
	/* The time of the turn's beginning is enough for most requests, which were not slow. */
	uint64_t turn_ns = lp_reactor_now_ns(channel->options.reactor);
	if (message->opcode == NULL ||
	    !lp_slow_is(&channel->slow, turn_ns - LP_MIN(request->began_ns, turn_ns)))
		return;
	uint64_t took_ns = lp_clock_mono_ns(clock) - request->began_ns;
	uint64_t work_ns = LP_MAX(request->sm.entered_ns, request->began_ns);
	struct lp_slow_request slow = {.began_ns = (uint64_t)lp_clock_wall_ns(clock) - took_ns,
				       .took_ns = took_ns,
				       .is_mounts = true,
				       .opcode = (uint16_t)message->header.opcode,
				       .status = err,
				       .bytes = bytes_of(message)};
	slow.state_ns[LPI_FUSE_LANDED] = LP_MIN(work_ns - request->began_ns, took_ns);
	slow.state_ns[LPI_FUSE_WORK] = took_ns - slow.state_ns[LPI_FUSE_LANDED];
	name_object(message, slow.object, sizeof(slow.object));
	lp_slow_add(&channel->slow, &slow);
}

const char *lp_fuse_state_name(uint32_t state)
{
	return state <= LPI_FUSE_WORK ? lpi_fuse_request_table.states[state].name : NULL;
}

uint32_t lp_fuse_channel_slow(struct lp_fuse_channel *channel, struct lp_slow_request *ret,
			      uint32_t max)
{
	const struct lp_clock *clock = lp_reactor_clock(channel->options.reactor);
	lp_slow_forget(&channel->slow, (uint64_t)lp_clock_wall_ns(clock));
	return lp_slow_read(&channel->slow, ret, max);
}

/* --- Requests under way ----------------------------------------------------------------------- */

static void fill_row(struct lp_under_way *row, const struct lpi_fuse_request *request,
		     uint64_t now_ns)
{
	const struct lp_fuse_opcode *opcode = lp_fuse_opcode_find(request->message.header.opcode);
	row->part = "mount";
	row->operation = opcode != NULL ? opcode->name : "unknown";
	row->age_ns = now_ns - LP_MIN(request->began_ns, now_ns);
	row->ino_nr = request->message.header.nodeid;
	/* The thread that works on the request may change its other fields. */
	if (request->is_away) {
		row->state = "WORK";
		row->waits_for = "another thread";
		return;
	}
	row->state = lp_sm_state_name(&request->sm);
	for (uint32_t i = 0; i < request->seg_cnt; i++)
		row->held_bytes += request->segs[i].buf->bytes;
	if (request->message_buf != NULL)
		row->held_bytes += request->message_buf->bytes;
	if (request->room != NULL)
		row->held_bytes += request->room->bytes;
}

void lp_fuse_channel_under_way(struct lp_fuse_channel *channel, struct lp_under_way_list *list)
{
	const struct lp_clock *clock = lp_reactor_clock(channel->options.reactor);
	uint64_t now_ns = lp_clock_mono_ns(clock);
	struct lpi_fuse_request *request = NULL;
	LP_LIST_FOREACH (lpi_fuse_home_list, &channel->at_home, request) {
		struct lp_under_way *row = lp_under_way_add(list);
		if (row != NULL)
			fill_row(row, request, now_ns);
	}
}
