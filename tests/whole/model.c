/* SPDX-License-Identifier: Apache-2.0 */
/* The state: nodes, entries, and what nodes hold. A body that other copies share is copied before
 * it is changed; a page is never changed, but replaced. */
#include "tests/whole/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/hash.h"

static void *grown(void *array, uint32_t cnt, uint32_t *max, size_t each)
{
	if (cnt < *max)
		return array;
	*max = LP_MAX(16, *max * 2);
	array = realloc(array, *max * each);
	LP_ASSERT(array != NULL);
	return array;
}

/* --- Bodies ----------------------------------------------------------------------------------- */

static void page_put(struct lpi_whole_page *page)
{
	if (--page->refs == 0)
		free(page);
}

static struct lpi_whole_body *body_new(void)
{
	struct lpi_whole_body *body = calloc(1, sizeof(*body));
	LP_ASSERT(body != NULL);
	body->refs = 1;
	return body;
}

static void body_put(struct lpi_whole_body *body)
{
	if (--body->refs > 0)
		return;
	for (uint32_t i = 0; i < body->block_cnt; i++)
		page_put(body->blocks[i].page);
	free(body->blocks);
	free(body->items);
	free(body);
}

static struct lpi_whole_body *body_copy(const struct lpi_whole_body *from)
{
	struct lpi_whole_body *body = body_new();
	for (uint32_t i = 0; i < from->block_cnt; i++) {
		body->blocks =
			grown(body->blocks, i, &body->block_max, sizeof(struct lpi_whole_block));
		body->blocks[i] = from->blocks[i];
		body->blocks[i].page->refs++;
		body->block_cnt++;
	}
	for (uint32_t i = 0; i < from->item_cnt; i++) {
		body->items = grown(body->items, i, &body->item_max, sizeof(struct lpi_whole_item));
		body->items[i] = from->items[i];
		body->item_cnt++;
	}
	return body;
}

/* The node's alone, to be changed. */
static struct lpi_whole_body *own_body(struct lpi_whole_node *node)
{
	if (node->body->refs > 1) {
		struct lpi_whole_body *body = body_copy(node->body);
		body_put(node->body);
		node->body = body;
	}
	node->body->is_hashed = false;
	return node->body;
}

void lpi_whole_share_body(struct lpi_whole_node *node, const struct lpi_whole_node *from)
{
	from->body->refs++;
	body_put(node->body);
	node->body = from->body;
}

/* --- Blocks ----------------------------------------------------------------------------------- */

/* The place of the first block from idx on. */
static uint32_t block_at(const struct lpi_whole_body *body, uint64_t idx)
{
	uint32_t low = 0;
	uint32_t high = body->block_cnt;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if (body->blocks[middle].idx < idx)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static const struct lpi_whole_page *page_find(const struct lpi_whole_body *body, uint64_t idx)
{
	uint32_t at = block_at(body, idx);
	bool is_there = at < body->block_cnt && body->blocks[at].idx == idx;
	return is_there ? body->blocks[at].page : NULL;
}

/* Takes the page; NULL: it is all zeros. */
static void page_set(struct lpi_whole_body *body, uint64_t idx, struct lpi_whole_page *page)
{
	uint32_t at = block_at(body, idx);
	if (at < body->block_cnt && body->blocks[at].idx == idx) {
		page_put(body->blocks[at].page);
		if (page != NULL) {
			body->blocks[at].page = page;
			return;
		}
		body->block_cnt--;
		memmove(&body->blocks[at], &body->blocks[at + 1],
			(body->block_cnt - at) * sizeof(struct lpi_whole_block));
		return;
	}
	if (page == NULL)
		return;
	body->blocks = grown(body->blocks, body->block_cnt, &body->block_max,
			     sizeof(struct lpi_whole_block));
	memmove(&body->blocks[at + 1], &body->blocks[at],
		(body->block_cnt - at) * sizeof(struct lpi_whole_block));
	body->blocks[at] = (struct lpi_whole_block){.idx = idx, .page = page};
	body->block_cnt++;
}

static bool is_zero(const uint8_t *bytes, size_t len)
{
	return len == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0);
}

/* Part of a block; bytes NULL: zeros. */
static void put_piece(struct lpi_whole_body *body, uint64_t offset, const uint8_t *bytes,
		      uint64_t len)
{
	uint64_t idx = offset >> LP_BLOCK_SHIFT;
	uint64_t in_block = offset & (LP_BLOCK_BYTES - 1);
	const struct lpi_whole_page *old = page_find(body, idx);
	if (old == NULL && bytes == NULL)
		return;
	struct lpi_whole_page *page = calloc(1, sizeof(*page));
	LP_ASSERT(page != NULL);
	page->refs = 1;
	if (old != NULL)
		memcpy(page->bytes, old->bytes, sizeof(page->bytes));
	if (bytes != NULL)
		memcpy(page->bytes + in_block, bytes, len);
	else
		memset(page->bytes + in_block, 0, len);
	if (is_zero(page->bytes, sizeof(page->bytes))) {
		page_put(page);
		page = NULL;
	} else {
		page->crc = lp_crc32c(0, page->bytes, sizeof(page->bytes));
	}
	page_set(body, idx, page);
}

void lpi_whole_write(struct lpi_whole_node *node, uint64_t offset, const uint8_t *bytes,
		     uint64_t length)
{
	struct lpi_whole_body *body = own_body(node);
	for (uint64_t at = 0; at < length;) {
		uint64_t room = LP_BLOCK_BYTES - ((offset + at) & (LP_BLOCK_BYTES - 1));
		uint64_t len = LP_MIN(room, length - at);
		put_piece(body, offset + at, bytes + at, len);
		at += len;
	}
	node->size_bytes = LP_MAX(node->size_bytes, offset + length);
}

void lpi_whole_punch(struct lpi_whole_node *node, uint64_t offset, uint64_t length)
{
	struct lpi_whole_body *body = own_body(node);
	uint64_t end = offset + length;
	uint32_t at = block_at(body, offset >> LP_BLOCK_SHIFT);
	while (at < body->block_cnt && body->blocks[at].idx << LP_BLOCK_SHIFT < end) {
		uint64_t begin = body->blocks[at].idx << LP_BLOCK_SHIFT;
		uint64_t from = LP_MAX(begin, offset);
		uint32_t cnt = body->block_cnt;
		put_piece(body, from, NULL, LP_MIN(end, begin + LP_BLOCK_BYTES) - from);
		at += body->block_cnt == cnt ? 1 : 0;
	}
}

void lpi_whole_truncate(struct lpi_whole_node *node, uint64_t size)
{
	if (size < node->size_bytes)
		lpi_whole_punch(node, size, node->size_bytes - size);
	node->size_bytes = size;
}

void lpi_whole_clone(struct lpi_whole_node *node, const struct lpi_whole_node *from,
		     uint64_t src_offset, uint64_t offset, uint64_t length)
{
	/* The source's as it was, if it is the same node. */
	struct lpi_whole_body *src = from->body;
	src->refs++;
	struct lpi_whole_body *body = own_body(node);
	uint64_t cnt = lp_bytes_to_blocks_up(length);
	for (uint64_t i = 0; i < cnt; i++) {
		uint32_t at = block_at(src, (src_offset >> LP_BLOCK_SHIFT) + i);
		bool is_there = at < src->block_cnt &&
				src->blocks[at].idx == (src_offset >> LP_BLOCK_SHIFT) + i;
		struct lpi_whole_page *page = is_there ? src->blocks[at].page : NULL;
		if (page != NULL)
			page->refs++;
		page_set(body, (offset >> LP_BLOCK_SHIFT) + i, page);
	}
	body_put(src);
	node->size_bytes = LP_MAX(node->size_bytes, offset + length);
}

void lpi_whole_read(const struct lpi_whole_node *node, uint64_t offset, uint64_t length,
		    uint8_t *ret_bytes)
{
	for (uint64_t at = 0; at < length;) {
		uint64_t in_block = (offset + at) & (LP_BLOCK_BYTES - 1);
		uint64_t len = LP_MIN(LP_BLOCK_BYTES - in_block, length - at);
		const struct lpi_whole_page *page =
			page_find(node->body, (offset + at) >> LP_BLOCK_SHIFT);
		if (page != NULL)
			memcpy(ret_bytes + at, page->bytes + in_block, len);
		else
			memset(ret_bytes + at, 0, len);
		at += len;
	}
}

uint64_t lpi_whole_next_data(const struct lpi_whole_node *node, uint64_t offset)
{
	const struct lpi_whole_body *body = node->body;
	uint32_t at = block_at(body, offset >> LP_BLOCK_SHIFT);
	for (; at < body->block_cnt; at++) {
		uint64_t begin = body->blocks[at].idx << LP_BLOCK_SHIFT;
		uint64_t from = LP_MAX(begin, offset) - begin;
		for (; from < LP_BLOCK_BYTES; from++)
			if (body->blocks[at].page->bytes[from] != 0)
				return begin + from;
	}
	return UINT64_MAX;
}

/* --- Small things ----------------------------------------------------------------------------- */

const struct lpi_whole_item *lpi_whole_item_find(const struct lpi_whole_node *node, bool is_omap,
						 uint32_t name)
{
	const struct lpi_whole_body *body = node->body;
	for (uint32_t i = 0; i < body->item_cnt; i++)
		if (body->items[i].is_omap == is_omap && body->items[i].name == name)
			return &body->items[i];
	return NULL;
}

void lpi_whole_item_remove(struct lpi_whole_node *node, bool is_omap, uint32_t name)
{
	const struct lpi_whole_item *item = lpi_whole_item_find(node, is_omap, name);
	if (item == NULL)
		return;
	size_t at = (size_t)(item - node->body->items);
	struct lpi_whole_body *body = own_body(node);
	body->items[at] = body->items[--body->item_cnt];
}

void lpi_whole_item_set(struct lpi_whole_node *node, const struct lpi_whole_item *item)
{
	lpi_whole_item_remove(node, item->is_omap, item->name);
	struct lpi_whole_body *body = own_body(node);
	body->items =
		grown(body->items, body->item_cnt, &body->item_max, sizeof(struct lpi_whole_item));
	body->items[body->item_cnt++] = *item;
}

void lpi_whole_item_value(const struct lpi_whole_item *item, uint8_t *ret_value)
{
	if (item->is_omap)
		lpi_whole_fill(item->seed, ret_value, item->len);
	else
		lpi_whole_fill_xattr(item->name, item->seed, ret_value, item->len);
	if (item->has_perms)
		lpi_whole_acl_set_perms(ret_value, item->perms);
}

uint32_t lpi_whole_item_perms(const struct lpi_whole_item *item)
{
	uint8_t acl[LPI_WHOLE_ACL_BYTES];
	LP_ASSERT(item->name == LPI_WHOLE_XATTR_ACL && item->len == LPI_WHOLE_ACL_BYTES);
	lpi_whole_item_value(item, acl);
	return lpi_whole_acl_perms(acl);
}

/* --- Nodes ------------------------------------------------------------------------------------ */

bool lpi_whole_is_dir(const struct lpi_whole_node *node)
{
	return node != NULL && node->type == LP_INODE_TYPE_DIR;
}

struct lpi_whole_node *lpi_whole_find(const struct lpi_whole *whole, uint32_t slot)
{
	for (uint32_t i = 0; i < whole->node_cnt; i++)
		if (whole->nodes[i].slot == slot)
			return &whole->nodes[i];
	return NULL;
}

struct lpi_whole_node *lpi_whole_node_add(struct lpi_whole *whole, uint32_t slot, uint32_t type)
{
	LP_ASSERT(lpi_whole_find(whole, slot) == NULL);
	whole->nodes = grown(whole->nodes, whole->node_cnt, &whole->node_max,
			     sizeof(struct lpi_whole_node));
	struct lpi_whole_node *node = &whole->nodes[whole->node_cnt++];
	*node = (struct lpi_whole_node){.slot = slot, .type = type, .body = body_new()};
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_INODE, slot, true);
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_BEING, slot, true);
	whole->has_changed = true;
	return node;
}

void lpi_whole_node_drop(struct lpi_whole *whole, uint32_t slot)
{
	struct lpi_whole_node *node = lpi_whole_find(whole, slot);
	if (node == NULL || node->names > 0 || node->opens > 0)
		return;
	body_put(node->body);
	*node = whole->nodes[--whole->node_cnt];
}

uint32_t lpi_whole_entries_in(const struct lpi_whole *whole, uint32_t dir)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < whole->entry_cnt; i++)
		cnt += whole->entries[i].dir == dir ? 1 : 0;
	return cnt;
}

uint32_t lpi_whole_nlink(const struct lpi_whole *whole, const struct lpi_whole_node *node)
{
	uint32_t cnt = 2;
	if (node->type != LP_INODE_TYPE_DIR || node->names == 0)
		return node->names;
	if ((node->flags & LP_INODE_FLAG_SPREAD) != 0)
		return 1;
	for (uint32_t i = 0; i < whole->entry_cnt; i++) {
		const struct lpi_whole_entry *entry = &whole->entries[i];
		if (entry->dir == node->slot &&
		    lpi_whole_is_dir(lpi_whole_find(whole, entry->node)))
			cnt++;
	}
	return cnt;
}

uint32_t lpi_whole_parent(const struct lpi_whole *whole, uint32_t slot)
{
	for (uint32_t i = 0; i < whole->entry_cnt; i++)
		if (whole->entries[i].node == slot)
			return whole->entries[i].dir;
	return LPI_WHOLE_ROOT;
}

uint32_t lpi_whole_pages(const struct lpi_whole *whole)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < whole->node_cnt; i++)
		cnt += whole->nodes[i].body->block_cnt;
	return cnt;
}

/* --- Entries ---------------------------------------------------------------------------------- */

struct lpi_whole_entry *lpi_whole_entry_find(const struct lpi_whole *whole, uint32_t dir,
					     uint32_t name)
{
	for (uint32_t i = 0; i < whole->entry_cnt; i++)
		if (whole->entries[i].dir == dir && whole->entries[i].name == name)
			return &whole->entries[i];
	return NULL;
}

struct lpi_whole_node *lpi_whole_walk(const struct lpi_whole *whole, const uint32_t *names,
				      uint32_t depth)
{
	struct lpi_whole_node *node = lpi_whole_find(whole, LPI_WHOLE_ROOT);
	for (uint32_t i = 0; i < depth && node != NULL; i++) {
		const struct lpi_whole_entry *entry =
			lpi_whole_is_dir(node) ? lpi_whole_entry_find(whole, node->slot, names[i])
					       : NULL;
		node = entry == NULL ? NULL : lpi_whole_find(whole, entry->node);
	}
	return node;
}

/* Which fragment has the name, as the namespace decides it. */
static void touch_name(struct lpi_whole *whole, uint32_t dir, uint32_t name)
{
	const struct lpi_whole_node *node = lpi_whole_find(whole, dir);
	struct lpi_whole_touches *touches = whole->touches;
	struct lpi_whole_bytes bytes;
	if (touches == NULL || node == NULL)
		return;
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_FRAGMENT, dir, true);
	lpi_whole_name(name, &bytes);
	if ((node->flags & LP_INODE_FLAG_SPREAD) != 0)
		touches->items[touches->cnt - 1].shard_idx =
			(uint32_t)(lp_hash_u64(bytes.bytes, bytes.len, lpi_whole_ino(whole, dir)) %
				   whole->shard_cnt);
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_BEING, dir, false);
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_NAME, dir, true);
	touches->items[touches->cnt - 1].name = name;
}

/* A directory counts those in it, but one that is spread, whose entries may be on other shards than
 * it is. */
static void touch_count(struct lpi_whole *whole, uint32_t dir, const struct lpi_whole_node *child)
{
	const struct lpi_whole_node *node = lpi_whole_find(whole, dir);
	if (lpi_whole_is_dir(child) && node != NULL && (node->flags & LP_INODE_FLAG_SPREAD) == 0)
		lpi_whole_touch(whole, LPI_WHOLE_TOUCH_INODE, dir, true);
}

void lpi_whole_entry_remove(struct lpi_whole *whole, uint32_t dir, uint32_t name)
{
	struct lpi_whole_entry *entry = lpi_whole_entry_find(whole, dir, name);
	if (entry == NULL)
		return;
	struct lpi_whole_node *node = lpi_whole_find(whole, entry->node);
	LP_ASSERT(node != NULL && node->names > 0);
	node->names--;
	touch_name(whole, dir, name);
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_INODE, node->slot, true);
	touch_count(whole, dir, node);
	*entry = whole->entries[--whole->entry_cnt];
	whole->has_changed = true;
}

void lpi_whole_entry_set(struct lpi_whole *whole, uint32_t dir, uint32_t name, uint32_t node_slot)
{
	struct lpi_whole_node *node = lpi_whole_find(whole, node_slot);
	LP_ASSERT(node != NULL && lpi_whole_entry_find(whole, dir, name) == NULL);
	whole->entries = grown(whole->entries, whole->entry_cnt, &whole->entry_max,
			       sizeof(struct lpi_whole_entry));
	whole->entries[whole->entry_cnt++] =
		(struct lpi_whole_entry){.dir = dir, .name = name, .node = node_slot};
	node->names++;
	touch_name(whole, dir, name);
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_INODE, node_slot, true);
	touch_count(whole, dir, node);
	whole->has_changed = true;
}

/* --- Touches ---------------------------------------------------------------------------------- */

void lpi_whole_touch(struct lpi_whole *whole, enum lpi_whole_touch_kind kind, uint32_t slot,
		     bool changes)
{
	struct lpi_whole_touches *touches = whole->touches;
	if (touches == NULL)
		return;
	LP_ASSERT(touches->cnt < LPI_WHOLE_TOUCHES_MAX);
	touches->items[touches->cnt++] =
		(struct lpi_whole_touch){.kind = kind, .slot = slot, .changes = changes};
}

bool lpi_whole_touch_is_same(const struct lpi_whole_touch *a, const struct lpi_whole_touch *b)
{
	return a->kind == b->kind && a->slot == b->slot && a->shard_idx == b->shard_idx &&
	       a->name == b->name;
}

bool lpi_whole_touches_meet(const struct lpi_whole_touches *a, const struct lpi_whole_touches *b)
{
	for (uint32_t i = 0; i < a->cnt; i++) {
		for (uint32_t j = 0; j < b->cnt; j++) {
			const struct lpi_whole_touch *one = &a->items[i];
			const struct lpi_whole_touch *two = &b->items[j];
			if (lpi_whole_touch_is_same(one, two) && (one->changes || two->changes))
				return true;
		}
	}
	return false;
}

/* --- Inodes' numbers -------------------------------------------------------------------------- */

uint64_t lpi_whole_ino(const struct lpi_whole *whole, uint32_t slot)
{
	if (slot == LPI_WHOLE_ROOT)
		return LP_INO_ROOT.nr;
	return slot < whole->inos->max ? whole->inos->nrs[slot] : 0;
}

void lpi_whole_inos_set(struct lpi_whole_inos *inos, uint32_t slot, uint64_t nr)
{
	if (slot >= inos->max) {
		uint32_t max = LP_MAX(slot + 1, inos->max * 2);
		inos->nrs = realloc(inos->nrs, max * sizeof(*inos->nrs));
		LP_ASSERT(inos->nrs != NULL);
		memset(&inos->nrs[inos->max], 0, (max - inos->max) * sizeof(*inos->nrs));
		inos->max = max;
	}
	inos->nrs[slot] = nr;
}

void lpi_whole_inos_fini(struct lpi_whole_inos *inos)
{
	free(inos->nrs);
	*inos = (struct lpi_whole_inos){.max = 0};
}

/* --- Birth and death -------------------------------------------------------------------------- */

void lpi_whole_init(struct lpi_whole *whole, uint32_t shard_cnt, struct lpi_whole_inos *inos)
{
	*whole = (struct lpi_whole){.shard_cnt = shard_cnt, .mode_mask = 07777, .inos = inos};
	struct lpi_whole_node *root = lpi_whole_node_add(whole, LPI_WHOLE_ROOT, LP_INODE_TYPE_DIR);
	root->names = 1;
	root->mode = 0755;
}

void lpi_whole_fini(struct lpi_whole *whole)
{
	for (uint32_t i = 0; i < whole->node_cnt; i++)
		body_put(whole->nodes[i].body);
	free(whole->nodes);
	free(whole->entries);
	*whole = (struct lpi_whole){.node_cnt = 0};
}

void lpi_whole_copy(const struct lpi_whole *from, struct lpi_whole *ret_whole)
{
	*ret_whole = *from;
	ret_whole->touches = NULL;
	ret_whole->nodes = malloc(LP_MAX(from->node_max, 1) * sizeof(*from->nodes));
	ret_whole->entries = malloc(LP_MAX(from->entry_max, 1) * sizeof(*from->entries));
	LP_ASSERT(ret_whole->nodes != NULL && ret_whole->entries != NULL);
	for (uint32_t i = 0; i < from->node_cnt; i++) {
		ret_whole->nodes[i] = from->nodes[i];
		ret_whole->nodes[i].body->refs++;
	}
	for (uint32_t i = 0; i < from->entry_cnt; i++)
		ret_whole->entries[i] = from->entries[i];
}
