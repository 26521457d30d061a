/* SPDX-License-Identifier: Apache-2.0 */
/* Reading directories.
 *
 * The kernel's offsets: 0 is the beginning, 1 is behind ".", 2 behind "..", and an entry's is its
 * cookie (rule N4) and 2. So any offset can be gone on from at any time, by any descriptor, and
 * nothing is remembered. */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "fuse/channel_impl.h"
#include "fuse/ops.h"

#define DOTS      2u
#define ROOM      LP_BUF_MEDIUM
#define REPLY_MAX LP_BUF_MEDIUM

static struct lp_buf *answer_of(struct lpi_fuse_request *request)
{
	return request->segs[0].buf;
}

/* --- The answer ------------------------------------------------------------------------------- */

struct page {
	const struct lpi_fuse_request *request;
	uint8_t *at;
	uint32_t used;
	uint32_t size;
	bool is_plus;
};

static unsigned char dirent_type(uint8_t type)
{
	return (unsigned char)IFTODT(lpi_fuse_mode(type, 0));
}

/* False: no more room. */
static bool add(struct page *page, const struct lp_ns_item *item, uint64_t offset)
{
	struct fuse_direntplus plus = {.entry_out = {.nodeid = 0}};
	struct fuse_dirent dirent = {.ino = item->ino.nr,
				     .off = offset,
				     .namelen = item->name.len,
				     .type = dirent_type(item->type)};
	uint32_t head =
		page->is_plus ? (uint32_t)FUSE_NAME_OFFSET_DIRENTPLUS : (uint32_t)FUSE_NAME_OFFSET;
	uint32_t bytes = (uint32_t)FUSE_DIRENT_ALIGN(head + item->name.len);
	if (bytes > page->size - page->used)
		return false;
	uint8_t *to = page->at + page->used;
	memset(to + head + item->name.len, 0, bytes - head - item->name.len);
	if (page->is_plus) {
		struct lp_ns_found found = {.ino = item->ino, .attrs = item->attrs};
		if (item->has_attrs)
			lpi_fuse_fill_entry(page->request, &found, &plus.entry_out);
		memcpy(to, &plus.entry_out, sizeof(plus.entry_out));
		to += sizeof(plus.entry_out);
		head -= (uint32_t)sizeof(plus.entry_out);
	}
	memcpy(to, &dirent, head);
	memcpy(to + head, item->name.data, item->name.len);
	page->used += bytes;
	return true;
}

static bool add_dots(struct page *page, uint64_t offset)
{
	struct lp_ns_item item = {.type = LP_INODE_TYPE_DIR};
	for (uint32_t i = (uint32_t)LP_MIN(offset, DOTS); i < DOTS; i++) {
		item.ino = i == 0 ? lpi_fuse_own(page->request) : page->request->parent;
		item.name = (struct lp_bytes){"..", i + 1};
		if (!add(page, &item, i + 1))
			return false;
	}
	return true;
}

/* What was held for the answer, and found no room in it. */
static void let_go_rest(struct lpi_fuse_request *request)
{
	struct lp_ns_item item;
	uint32_t cnt = 0;
	while (cnt < LPI_FUSE_FORGOTTEN && request->source.hold &&
	       lp_ns_next(&request->source, &request->count, &item)) {
		if (item.has_attrs)
			request->forgotten[cnt++] =
				(struct lp_ns_forgotten){.ino = item.ino, .count = 1};
	}
	if (cnt == 0)
		lpi_fuse_end(request, 0);
	else
		lpi_fuse_forget_some(request, cnt, let_go_rest);
}

static void answer_page(struct lpi_fuse_request *request)
{
	const struct lp_ns_op *op = &request->op;
	const struct fuse_read_in *in = &request->message.in.read;
	struct page page = {.request = request,
			    .at = answer_of(request)->data,
			    .size = LP_MIN(in->size, REPLY_MAX),
			    .is_plus = request->message.header.opcode == FUSE_READDIRPLUS};
	struct lp_ns_item item;
	uint32_t pos = 0;
	bool has_room = add_dots(&page, in->offset);
	uint32_t told_pos = 0;
	while (has_room && lp_ns_next(op, &pos, &item)) {
		has_room = add(&page, &item, item.cookie + DOTS);
		if (has_room)
			told_pos = pos;
	}
	bool is_told = lpi_fuse_tell(request, page.at, page.used);
	request->source = *op;
	request->count = is_told ? told_pos : 0;
	let_go_rest(request);
}

static void listed(struct lpi_fuse_request *request)
{
	int r = request->op.result;
	if (r < 0)
		lpi_fuse_answer(request, r == -ESTALE ? -ENOENT : r);
	else if (request->message.in.read.offset == 0)
		lpi_fuse_touch(request, answer_page);
	else
		answer_page(request);
}

static void list(struct lpi_fuse_request *request)
{
	const struct fuse_read_in *in = &request->message.in.read;
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_READDIR);
	op->readdir.dir = lpi_fuse_own(request);
	op->readdir.cookie = in->offset < DOTS ? 0 : in->offset - DOTS;
	op->readdir.buf = request->room->data;
	op->readdir.buf_len = request->room->bytes;
	op->readdir.with_attrs = request->message.header.opcode == FUSE_READDIRPLUS;
	op->hold = op->readdir.with_attrs;
	lpi_fuse_submit(request, listed);
}

static void parent_known(struct lpi_fuse_request *request)
{
	struct lp_ino parent = request->op.stat.found.attrs.parent;
	if (request->op.result < 0) {
		lpi_fuse_answer(request,
				request->op.result == -ENOENT ? -ESTALE : request->op.result);
		return;
	}
	request->parent = parent.nr == 0 ? LP_INO_ROOT : parent;
	list(request);
}

/* --- Opcodes ---------------------------------------------------------------------------------- */

void lpi_fuse_opendir(struct lpi_fuse_request *request)
{
	lpi_fuse_open(request);
}

void lpi_fuse_readdir(struct lpi_fuse_request *request)
{
	if (lpi_fuse_room(request, ROOM) == NULL)
		return;
	struct lp_buf *answer = lp_buf_new(request->channel->options.bufs, REPLY_MAX);
	if (answer == NULL) {
		lpi_fuse_answer(request, -ENOMEM);
		return;
	}
	request->segs[0] = (struct lp_seg){.buf = answer};
	request->seg_cnt = 1;
	if (request->message.in.read.offset >= DOTS) {
		list(request);
		return;
	}
	/* ".." is one of the first. */
	lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_own(request);
	lpi_fuse_submit(request, parent_known);
}
