/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of the door's requests: how many ended and how, how long they took, which were the
 * slowest, and when one was refused for lack of buffers. */
#include <stdio.h>

#include "native/door_impl.h"

void lpi_door_note_refused(struct lp_door *door)
{
	door->refused_ns = lpi_door_now_ns(door);
}

void lpi_request_tell_object(const struct lpi_request *request, char *ret, size_t size)
{
	const struct lpi_ref *ref = &request->refs[0];
	size_t skip = ref->path.len >= size ? ref->path.len - size + 1 : 0;
	if (ref->kind == LPI_REF_NONE)
		ret[0] = '\0';
	else if (ref->path.len == 0)
		(void)snprintf(ret, size, "inode %llu", (unsigned long long)ref->ino.nr);
	else
		(void)snprintf(ret, size, "%.*s", (int)(ref->path.len - skip),
			       (const char *)ref->path.data + skip);
}

/* The current state is the last: the reply is about to be sent. */
static void note_states(const struct lpi_request *request, uint64_t now_ns, uint64_t *ret_ns)
{
	memcpy(ret_ns, request->state_ns, sizeof(request->state_ns));
	ret_ns[lp_sm_state(&request->sm)] += now_ns - LP_MIN(request->sm.entered_ns, now_ns);
}

static void note_slow(struct lpi_request *request, uint64_t now_ns, int status)
{
	uint64_t took_ns = now_ns - request->began_ns;
	struct lp_slow_request slow = {.began_ns = (uint64_t)lpi_request_wall_ns(request) - took_ns,
				       .took_ns = took_ns,
				       .opcode = request->header.opcode,
				       .status = status,
				       .bytes = request->header.data_bytes};
	note_states(request, now_ns, slow.state_ns);
	lpi_request_tell_object(request, slow.object, sizeof(slow.object));
	lp_slow_add(&request->door->slow, &slow);
}

/* A request that only reads may well ask for an object that does not exist. */
static bool is_absence(const struct lpi_request *request, int status)
{
	return !request->opcode->is_change &&
	       (status == -ENOENT || status == -ENODATA || status == -ENXIO);
}

void lpi_door_note_end(struct lpi_request *request, int status)
{
	struct lp_door *door = request->door;
	request->status = status;
	if (request->opcode == NULL)
		return;
	door->stats.requests[request->opcode->code]++;
	if (is_absence(request, status))
		door->stats.absent[request->opcode->code]++;
	else if (status < 0)
		door->stats.errors[request->opcode->code]++;
}

void lpi_door_note_time(struct lpi_request *request, uint64_t now_ns)
{
	struct lp_door *door = request->door;
	if (request->opcode == NULL)
		return;
	uint64_t took_ns = now_ns - request->began_ns;
	uint16_t code = request->opcode->code;
	lp_hist_record(&door->latencies[door->latency_idx[code]], took_ns);
	if (lp_slow_is(&door->slow, took_ns))
		note_slow(request, now_ns, request->status);
}
