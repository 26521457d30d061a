/* SPDX-License-Identifier: Apache-2.0 */
/* A record is a head, room for attributes if there may be some, and the name; nothing is aligned.
 * Sorting moves offsets only, and is a heap's: no memory, no recursion, no bad case. */
#include "namespace/change/packed_items.h"

#include <string.h>

struct head {
	uint64_t ino;
	uint64_t cookie;
	uint32_t bytes; /* of the record */
	uint16_t name_len;
	uint8_t type;
	uint8_t has_room : 1;
	uint8_t has_attrs : 1;
};

void lpi_items_init(struct lpi_items *items, void *buf, uint32_t len)
{
	*items = (struct lpi_items){.buf = buf, .len = len};
}

static uint32_t record_bytes(uint32_t name_len, bool has_room)
{
	return (uint32_t)sizeof(struct head) + (has_room ? (uint32_t)sizeof(struct lp_attrs) : 0) +
	       name_len;
}

uint32_t lpi_items_bytes(uint32_t name_len, bool has_room)
{
	return record_bytes(name_len, has_room) + (uint32_t)sizeof(uint32_t);
}

/* --- Offsets ---------------------------------------------------------------------------------- */

static uint8_t *offset_at(const struct lpi_items *items, uint32_t idx)
{
	return items->buf + items->len - (size_t)(idx + 1) * sizeof(uint32_t);
}

static uint32_t get_offset(const struct lpi_items *items, uint32_t idx)
{
	uint32_t offset = 0;
	memcpy(&offset, offset_at(items, idx), sizeof(offset));
	return offset;
}

static void set_offset(struct lpi_items *items, uint32_t idx, uint32_t offset)
{
	memcpy(offset_at(items, idx), &offset, sizeof(offset));
}

static struct head get_head(const struct lpi_items *items, uint32_t offset)
{
	struct head head;
	memcpy(&head, items->buf + offset, sizeof(head));
	return head;
}

/* --- Items ------------------------------------------------------------------------------------ */

bool lpi_items_add(struct lpi_items *items, const struct lp_ns_item *item, bool has_room)
{
	return lpi_items_add_below(items, (struct lp_bytes){NULL, 0}, item, has_room);
}

bool lpi_items_add_below(struct lpi_items *items, struct lp_bytes dir,
			 const struct lp_ns_item *item, bool has_room)
{
	const uint32_t name_len = dir.len + item->name.len;
	const struct head head = {.ino = item->ino.nr,
				  .cookie = item->cookie,
				  .bytes = record_bytes(name_len, has_room),
				  .name_len = (uint16_t)name_len,
				  .type = item->type,
				  .has_room = has_room,
				  .has_attrs = has_room && item->has_attrs};
	LP_ASSERT(name_len <= UINT16_MAX);
	uint64_t needed =
		(uint64_t)items->used + head.bytes + ((uint64_t)items->cnt + 1) * sizeof(uint32_t);
	if (needed > items->len)
		return false;
	uint8_t *at = items->buf + items->used;
	memcpy(at, &head, sizeof(head));
	at += sizeof(head);
	if (has_room) {
		memcpy(at, &item->attrs, sizeof(item->attrs));
		at += sizeof(item->attrs);
	}
	if (dir.len > 0)
		memcpy(at, dir.data, dir.len);
	if (item->name.len > 0)
		memcpy(at + dir.len, item->name.data, item->name.len);
	set_offset(items, items->cnt++, items->used);
	items->used += head.bytes;
	return true;
}

void lpi_items_get(const struct lpi_items *items, uint32_t idx, struct lp_ns_item *ret)
{
	LP_ASSERT(idx < items->cnt);
	uint32_t offset = get_offset(items, idx);
	const struct head head = get_head(items, offset);
	const uint8_t *at = items->buf + offset + sizeof(head);
	/* Field by field: without attributes, most of the struct stays as it is. */
	ret->ino = (struct lp_ino){head.ino};
	ret->cookie = head.cookie;
	ret->type = head.type;
	ret->has_attrs = head.has_attrs;
	if (head.has_room) {
		if (head.has_attrs)
			memcpy(&ret->attrs, at, sizeof(ret->attrs));
		at += sizeof(ret->attrs);
	}
	ret->name = (struct lp_bytes){at, head.name_len};
}

void lpi_items_set_attrs(struct lpi_items *items, uint32_t idx, const struct lp_attrs *attrs)
{
	LP_ASSERT(idx < items->cnt);
	uint8_t *at = items->buf + get_offset(items, idx);
	struct head head;
	memcpy(&head, at, sizeof(head));
	LP_ASSERT(head.has_room);
	head.has_attrs = 1;
	memcpy(at, &head, sizeof(head));
	memcpy(at + sizeof(head), attrs, sizeof(*attrs));
}

uint32_t lpi_items_finish(struct lpi_items *items)
{
	uint32_t bytes = items->cnt * (uint32_t)sizeof(uint32_t);
	memmove(items->buf + items->used, items->buf + items->len - bytes, bytes);
	items->used += bytes;
	return items->used;
}

bool lp_ns_next(const struct lp_ns_op *op, uint32_t *pos, struct lp_ns_item *ret)
{
	bool is_readdir = op->opcode == LP_NS_READDIR;
	LP_ASSERT(is_readdir || op->opcode == LP_NS_LIST);
	const struct lpi_items items = {.buf = is_readdir ? op->readdir.buf : op->list.buf,
					.len = is_readdir ? op->readdir.used : op->list.used,
					.cnt = is_readdir ? op->readdir.items : op->list.items};
	if (*pos >= items.cnt)
		return false;
	lpi_items_get(&items, (*pos)++, ret);
	return true;
}

/* --- Order ------------------------------------------------------------------------------------ */

static uint64_t cookie_of(const struct lpi_items *items, uint32_t idx)
{
	return get_head(items, get_offset(items, idx)).cookie;
}

uint64_t lpi_items_last_cookie(const struct lpi_items *items)
{
	return items->cnt == 0 ? 0 : cookie_of(items, items->cnt - 1);
}

static void swap(struct lpi_items *items, uint32_t a, uint32_t b)
{
	uint32_t offset = get_offset(items, a);
	set_offset(items, a, get_offset(items, b));
	set_offset(items, b, offset);
}

/* Restores the heap of the first cnt items, greatest on top, where only the one at idx is out of
 * place. */
static void sift_down(struct lpi_items *items, uint32_t idx, uint32_t cnt)
{
	for (;;) {
		uint32_t greatest = idx;
		for (uint32_t child = 2 * idx + 1; child <= 2 * idx + 2; child++) {
			if (child < cnt && cookie_of(items, child) > cookie_of(items, greatest))
				greatest = child;
		}
		if (greatest == idx)
			return;
		swap(items, idx, greatest);
		idx = greatest;
	}
}

void lpi_items_sort(struct lpi_items *items)
{
	for (uint32_t i = items->cnt / 2; i-- > 0;)
		sift_down(items, i, items->cnt);
	for (uint32_t cnt = items->cnt; cnt > 1; cnt--) {
		swap(items, 0, cnt - 1);
		sift_down(items, 0, cnt - 1);
	}
}

/* Marks the records to be dropped, and moves the others together. */
uint64_t lpi_items_halve(struct lpi_items *items)
{
	LP_ASSERT(items->cnt > 0);
	lpi_items_sort(items);
	uint32_t keep = items->cnt / 2;
	uint64_t lowest = cookie_of(items, keep);
	for (uint32_t i = keep; i < items->cnt; i++) {
		const uint64_t gone = 0;
		memcpy(items->buf + get_offset(items, i) + offsetof(struct head, cookie), &gone,
		       sizeof(gone));
	}
	uint32_t to = 0;
	uint32_t cnt = 0;
	for (uint32_t from = 0; from < items->used;) {
		const struct head head = get_head(items, from);
		if (head.cookie != 0) {
			memmove(items->buf + to, items->buf + from, head.bytes);
			set_offset(items, cnt++, to);
			to += head.bytes;
		}
		from += head.bytes;
	}
	LP_ASSERT(cnt == keep);
	items->used = to;
	items->cnt = keep;
	lpi_items_sort(items);
	return lowest;
}
