/* SPDX-License-Identifier: Apache-2.0 */
/* Reading directories.
 *
 * The kernel's offsets: 0 is the beginning, 1 is behind ".", 2 behind "..". An entry's offset is 2
 * plus the offset of the handle's reading (fuse/reading.h). An answer has one range of names after
 * the other, each in the order of insertion, until it is full. The open range is listed by name, up
 * to the room of the answer, and ends there. Earlier ranges are read in the order of the cookies.
 *
 * The number of readings is limited. A handle without one is read in the order of the cookies from
 * beginning to end, so an offset is 2 plus a cookie (rule N4). That needs no memory, but one walk
 * through the directory for each answer. */
#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "base/error.h"
#include "fuse/channel_state.h"
#include "fuse/ops/ops.h"
#include "store/record/keys.h"

#define DOTS      2u
#define ROOM      LP_BUF_MEDIUM
#define REPLY_MAX LP_BUF_MEDIUM
/* Room of an answer. Less is too little for an entry with attributes and the longest name. */
#define ANSWER_MIN 512u

static struct lp_buf *answer_of(const struct lpi_fuse_request *request)
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

static uint32_t entry_head(bool is_plus)
{
	return is_plus ? (uint32_t)FUSE_NAME_OFFSET_DIRENTPLUS : (uint32_t)FUSE_NAME_OFFSET;
}

/* False: no more room. */
static bool add(struct page *page, const struct lp_ns_item *item, uint64_t offset)
{
	struct fuse_direntplus plus = {.entry_out = {.nodeid = 0}};
	struct fuse_dirent dirent = {.ino = item->ino.nr,
				     .off = offset,
				     .namelen = item->name.len,
				     .type = dirent_type(item->type)};
	uint32_t head = entry_head(page->is_plus);
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

static struct page page_of(const struct lpi_fuse_request *request)
{
	return (struct page){.request = request,
			     .at = answer_of(request)->data,
			     .used = request->count,
			     .size = LP_MIN(request->message.in.read.size, REPLY_MAX),
			     .is_plus = request->message.header.opcode == FUSE_READDIRPLUS};
}

/* The next inode that was held for the answer, but is not in it. */
static bool next_untold(struct lpi_fuse_request *request, struct lp_ino *ret_ino)
{
	struct fuse_direntplus plus;
	struct lp_ns_item item;
	while (request->at < request->count) {
		memcpy(&plus, answer_of(request)->data + request->at, FUSE_NAME_OFFSET_DIRENTPLUS);
		request->at += FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + plus.dirent.namelen);
		ret_ino->nr = plus.entry_out.nodeid;
		if (ret_ino->nr != 0)
			return true;
	}
	while (request->source.hold && lp_ns_next(&request->source, &request->rest_pos, &item)) {
		*ret_ino = item.ino;
		if (item.has_attrs)
			return true;
	}
	return false;
}

static void let_go_untold(struct lpi_fuse_request *request)
{
	struct lp_ns_forgotten *forgotten = request->forgotten;
	uint32_t cnt = 0;
	while (cnt < LPI_FUSE_FORGOTTEN && next_untold(request, &forgotten[cnt].ino))
		forgotten[cnt++].count = 1;
	if (cnt > 0)
		lpi_fuse_forget_some(request, cnt, let_go_untold);
	else if (request->failure < 0)
		lpi_fuse_answer(request, request->failure);
	else
		lpi_fuse_end(request, 0);
}

static void end_page(struct lpi_fuse_request *request, bool is_told)
{
	const struct lp_ns_op *op = &request->op;
	bool is_plus = request->message.header.opcode == FUSE_READDIRPLUS;
	request->at = is_told || !is_plus ? request->count : 0;
	request->source = *op;
	request->source.hold = op->opcode == LP_NS_READDIR && op->result >= 0 && op->hold;
	let_go_untold(request);
}

static void answer_page(struct lpi_fuse_request *request)
{
	end_page(request, lpi_fuse_tell(request, answer_of(request)->data, request->count));
}

/* Whether the read sets the access time: with a reading the first answer does, with strictatime
 * each one. */
static bool counts(const struct lpi_fuse_request *request)
{
	uint32_t atimes = lpi_fuse_atimes(request->channel);
	return atimes == LPI_FUSE_KEEP_EACH_ATIME ||
	       (atimes == LPI_FUSE_KEEP_ATIMES && request->message.in.read.offset == 0);
}

static void finish(struct lpi_fuse_request *request, int err)
{
	if (request->reading != NULL)
		lpi_reading_give_back(request->reading);
	request->reading = NULL;
	if (err < 0) {
		request->failure = err == -ESTALE ? -ENOENT : err;
		end_page(request, false);
	} else if (counts(request)) {
		lpi_fuse_touch(request, answer_page);
	} else {
		answer_page(request);
	}
}

static struct lp_ns_op *list_op(struct lpi_fuse_request *request)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_READDIR);
	op->readdir.dir = lpi_fuse_own(request);
	op->readdir.buf = request->room->data;
	op->readdir.buf_len = request->room->bytes;
	op->readdir.with_attrs = request->message.header.opcode == FUSE_READDIRPLUS;
	op->hold = op->readdir.with_attrs;
	return op;
}

/* --- By cookies ------------------------------------------------------------------------------- */

static void listed(struct lpi_fuse_request *request)
{
	struct page page = page_of(request);
	struct lp_ns_item item;
	uint32_t pos = 0;
	bool has_room = request->op.result >= 0;
	while (has_room) {
		request->rest_pos = pos;
		has_room = lp_ns_next(&request->op, &pos, &item) &&
			   add(&page, &item, item.cookie + DOTS);
	}
	request->count = page.used;
	finish(request, request->op.result);
}

static void list(struct lpi_fuse_request *request)
{
	uint64_t offset = request->message.in.read.offset;
	list_op(request)->readdir.cookie = offset < DOTS ? 0 : offset - DOTS;
	lpi_fuse_submit(request, listed);
}

/* --- By ranges -------------------------------------------------------------------------------- */

static void read_on(struct lpi_fuse_request *request);

static uint64_t insertion_of(const struct lp_ns_item *item)
{
	return item->cookie & ((UINT64_C(1) << LP_INO_SHARD_SHIFT) - 1);
}

/* Adds listed entries. The reading's position moves to the last one added. False: there was no room
 * for all of them. */
static bool add_listed(struct lpi_fuse_request *request, struct lp_bytes *ret_highest)
{
	struct lpi_reading *reading = request->reading;
	struct page page = page_of(request);
	struct lp_ns_item item;
	uint32_t pos = 0;
	bool has_room = true;
	request->rest_pos = 0;
	while (lp_ns_next(&request->op, &pos, &item)) {
		uint64_t offset = lpi_reading_offset(reading, insertion_of(&item));
		has_room = add(&page, &item, offset + DOTS);
		if (!has_room)
			break;
		request->rest_pos = pos;
		reading->behind = insertion_of(&item);
		reading->told_offset = offset + DOTS;
		if (ret_highest->len == 0 ||
		    lp_key_compare(item.name.data, item.name.len, ret_highest->data,
				   ret_highest->len) > 0)
			*ret_highest = item.name;
	}
	request->count = page.used;
	return has_room;
}

static void next_range(struct lpi_reading *reading)
{
	reading->nr++;
	reading->behind = 0;
}

/* Ends the open range with the last listed name. */
static int end_open_range(struct lpi_reading *reading, const struct lp_ns_op *op,
			  struct lp_bytes highest)
{
	uint32_t shard_idx = op->readdir.shard_idx;
	if (op->readdir.more)
		return lpi_reading_next_range(reading, shard_idx, highest);
	if (!op->readdir.is_last)
		return lpi_reading_next_range(reading, shard_idx + 1, (struct lp_bytes){0});
	reading->is_whole = true;
	return 0;
}

static void open_range_listed(struct lpi_fuse_request *request)
{
	struct lpi_reading *reading = request->reading;
	const struct lp_ns_op *op = &request->op;
	struct lp_bytes highest = {0};
	bool has_room = add_listed(request, &highest);
	LP_ASSERT(has_room); /* the namespace was told how much room there is */
	if (highest.len == 0 && op->readdir.more) {
		finish(request, request->count > 0 ? 0 : -EINVAL);
	} else if (end_open_range(reading, op, highest) < 0) {
		finish(request, -EOVERFLOW);
	} else {
		next_range(reading);
		read_on(request);
	}
}

static void range_listed(struct lpi_fuse_request *request)
{
	struct lp_bytes highest = {0};
	if (!add_listed(request, &highest) || request->op.readdir.more) {
		finish(request, request->count > 0 ? 0 : -EINVAL);
	} else {
		next_range(request->reading);
		read_on(request);
	}
}

static void ranges_listed(struct lpi_fuse_request *request)
{
	struct lpi_reading *reading = request->reading;
	const struct lp_ns_op *op = &request->op;
	if (op->result < 0) {
		finish(request, op->result);
		return;
	}
	/* So many entries have been made in the directory that insertion numbers do not fit into an
	 * offset. */
	if (op->readdir.before >> LPI_READING_INSERTION_BITS != 0) {
		finish(request, -EOVERFLOW);
		return;
	}
	if (reading->nr == 0)
		lpi_reading_learn_shard(reading, op->readdir.shard_idx);
	reading->before[op->readdir.shard_idx] = op->readdir.before;
	if (op->readdir.by_name)
		open_range_listed(request);
	else
		range_listed(request);
}

static void read_on(struct lpi_fuse_request *request)
{
	struct lpi_reading *reading = request->reading;
	struct page page = page_of(request);
	struct lpi_reading_range range;
	if (!lpi_reading_range(reading, &range)) {
		reading->end_offset = reading->told_offset;
		finish(request, 0);
		return;
	}
	if (page.size - page.used < LP_MAX(page.size / 4, ANSWER_MIN) && page.used > 0) {
		finish(request, 0);
		return;
	}
	struct lp_ns_op *op = list_op(request);
	op->readdir.in_fragment = true;
	op->readdir.by_name = range.is_open;
	op->readdir.cookie = (uint64_t)range.shard_idx << LP_INO_SHARD_SHIFT | reading->behind;
	op->readdir.after = range.after;
	op->readdir.until = range.until;
	op->readdir.before = reading->before[range.shard_idx];
	if (range.is_open) {
		op->readdir.answer_bytes = page.size - page.used;
		op->readdir.item_bytes = entry_head(page.is_plus);
	}
	lpi_fuse_submit(request, ranges_listed);
}

static void begin_ranges(struct lpi_fuse_request *request)
{
	struct lpi_reading *reading = request->reading;
	uint64_t offset = request->message.in.read.offset;
	if (offset == 0)
		lpi_reading_rewind(reading);
	reading->told_offset = LP_MAX(offset, (uint64_t)DOTS);
	if (offset == reading->end_offset && offset != 0) {
		finish(request, 0);
		return;
	}
	int err = lpi_reading_seek(reading, offset < DOTS ? 0 : offset - DOTS);
	if (err < 0)
		finish(request, err);
	else
		read_on(request);
}

/* --- Opcodes ---------------------------------------------------------------------------------- */

static void begin_list(struct lpi_fuse_request *request)
{
	struct page page = page_of(request);
	(void)add_dots(&page, request->message.in.read.offset); /* there is room */
	request->count = page.used;
	if (request->reading != NULL)
		begin_ranges(request);
	else
		list(request);
}

static void parent_known(struct lpi_fuse_request *request)
{
	struct lp_ino parent = request->op.stat.found.attrs.parent;
	if (request->op.result < 0) {
		finish(request, request->op.result);
		return;
	}
	request->parent = parent.nr == 0 ? LP_INO_ROOT : parent;
	begin_list(request);
}

void lpi_fuse_opendir(struct lpi_fuse_request *request)
{
	lpi_fuse_open(request);
}

uint64_t lpi_fuse_begin_reading(struct lpi_fuse_request *request)
{
	return lpi_readings_open(&request->channel->readings, lpi_fuse_own(request));
}

/* The table of the channel that opened the directory. */
static struct lpi_readings *readings_of(const struct lpi_fuse_request *request, uint64_t handle)
{
	struct lp_fuse_channel *channel = request->channel;
	uint32_t owner = lpi_reading_owner(handle);
	return owner < channel->peer_cnt ? &channel->peers[owner]->readings : NULL;
}

void lpi_fuse_end_reading(struct lpi_fuse_request *request, uint64_t handle)
{
	struct lpi_readings *readings = readings_of(request, handle);
	if (handle != 0 && readings != NULL)
		lpi_readings_close(readings, handle);
}

void lpi_fuse_releasedir(struct lpi_fuse_request *request)
{
	lpi_fuse_end_reading(request, request->message.in.release.fh);
	lpi_fuse_release(request);
}

/* -EBADF: there is no such handle, or another request reads with it. */
static int take_reading(struct lpi_fuse_request *request)
{
	uint64_t handle = request->message.in.read.fh;
	struct lpi_readings *readings = readings_of(request, handle);
	if (handle == 0)
		return 0;
	if (readings != NULL)
		request->reading = lpi_readings_take(readings, handle, lpi_fuse_own(request));
	return request->reading == NULL ? -EBADF : 0;
}

void lpi_fuse_readdir(struct lpi_fuse_request *request)
{
	const struct fuse_read_in *in = &request->message.in.read;
	if (in->size < ANSWER_MIN) {
		lpi_fuse_answer(request, -EINVAL);
		return;
	}
	if (lpi_fuse_room(request, ROOM, lpi_fuse_readdir) == NULL)
		return;
	struct lp_buf *answer =
		lp_buf_new_ranked(request->channel->options.bufs, REPLY_MAX, LP_BUF_ANSWER);
	if (answer == NULL) {
		lpi_fuse_wait_for_room(request, lpi_fuse_readdir);
		return;
	}
	request->segs[0] = (struct lp_seg){.buf = answer};
	request->seg_cnt = 1;
	int err = take_reading(request);
	if (err < 0) {
		lpi_fuse_answer(request, err);
	} else if (in->offset >= DOTS) {
		begin_list(request);
	} else {
		/* ".." may have to be listed. */
		lpi_fuse_op(request, LP_NS_STAT)->stat.ino = lpi_fuse_own(request);
		lpi_fuse_submit(request, parent_known);
	}
}
