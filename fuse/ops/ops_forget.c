/* SPDX-License-Identifier: Apache-2.0 */
/* Forgets of the kernel. Each inode counts how often the kernel was told its number (rule N5). The
 * count is given back here, or when an answer did not reach the kernel.
 *
 * A batch may be as long as a write. Its items stay where they landed: two in the message's head
 * and the others in buffers, whose lengths are multiples of an item's. They are taken a few at a
 * time. */
#include <string.h>

#include "fuse/channel_state.h"
#include "fuse/ops/ops.h"

#define BATCH_HEAD (sizeof(struct fuse_in_header) + sizeof(struct fuse_batch_forget_in))
#define ITEM_BYTES ((uint32_t)sizeof(struct fuse_forget_one))
#define IN_HEAD    ((uint32_t)((LPI_FUSE_HEAD_BYTES - BATCH_HEAD) / sizeof(struct fuse_forget_one)))

static_assert((LPI_FUSE_HEAD_BYTES - BATCH_HEAD) % sizeof(struct fuse_forget_one) == 0 &&
		      LP_BUF_SMALL % sizeof(struct fuse_forget_one) == 0 &&
		      LP_BUF_MEDIUM % sizeof(struct fuse_forget_one) == 0,
	      "no item lies in two pieces");

static struct fuse_forget_one item_at(const struct lpi_fuse_request *request, uint32_t idx)
{
	struct fuse_forget_one item;
	if (idx < IN_HEAD) {
		const uint8_t *head = (const uint8_t *)request->bytes + BATCH_HEAD;
		memcpy(&item, head + (size_t)idx * ITEM_BYTES, sizeof(item));
		return item;
	}
	uint32_t at = (idx - IN_HEAD) * ITEM_BYTES;
	uint32_t seg = 0;
	for (; at >= request->segs[seg].len; seg++)
		at -= request->segs[seg].len;
	LP_ASSERT(seg < request->seg_cnt);
	memcpy(&item, request->segs[seg].buf->data + at, sizeof(item));
	return item;
}

/* request->count items have been taken. */
static void forget_more(struct lpi_fuse_request *request)
{
	uint32_t left = request->message.in.batch_forget.count - request->count;
	uint32_t cnt = LP_MIN(left, LPI_FUSE_FORGOTTEN);
	if (cnt == 0) {
		lpi_fuse_end(request, 0);
		return;
	}
	for (uint32_t i = 0; i < cnt; i++) {
		struct fuse_forget_one item = item_at(request, request->count + i);
		request->forgotten[i] =
			(struct lp_ns_forgotten){.ino = {item.nodeid}, .count = item.nlookup};
	}
	request->count += cnt;
	lpi_fuse_forget_some(request, cnt, forget_more);
}

void lpi_fuse_forget(struct lpi_fuse_request *request)
{
	const struct lp_fuse_message *message = &request->message;
	if (message->header.opcode == FUSE_BATCH_FORGET) {
		forget_more(request);
		return;
	}
	request->forgotten[0] = (struct lp_ns_forgotten){.ino = {message->header.nodeid},
							 .count = message->in.forget.nlookup};
	lpi_fuse_forget_some(request, 1, lpi_fuse_ended);
}
