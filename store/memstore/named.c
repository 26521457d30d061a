/* SPDX-License-Identifier: Apache-2.0 */
/* Entries, xattrs, omap values and records are items in ordered trees. A list walks its tree from
 * the greatest of its bounds until the buffer is full or the prefix ends. */
#include "base/endian.h"
#include "store/memstore/memstore_impl.h"

#include <stdlib.h>

/* --- Items ------------------------------------------------------------------------------------ */

static struct lp_bytes copy_bytes(uint8_t *to, struct lp_bytes from)
{
	if (from.data == NULL)
		return from;
	if (from.len > 0)
		memcpy(to, from.data, from.len);
	return (struct lp_bytes){to, from.len};
}

struct lpi_mem_item *lpi_mem_item_new(const struct lp_change *change)
{
	struct lp_bytes name = change->named.name;
	struct lp_bytes value = change->named.value;
	if (change->type == LP_CHANGE_ENTRY_SET)
		value = (struct lp_bytes){NULL, 0};
	struct lpi_mem_item *item = calloc(1, sizeof(*item) + name.len + value.len);
	if (item == NULL)
		return NULL;
	uint8_t *bytes = (uint8_t *)(item + 1);
	item->name = copy_bytes(bytes, name);
	item->value = copy_bytes(bytes + name.len, value);
	item->ino = change->named.target;
	item->type = change->named.target_type;
	return item;
}

struct lpi_mem_item *lpi_mem_item_find(const struct lpi_mem_items *items, struct lp_bytes name)
{
	const struct lpi_mem_item key = {.name = name};
	struct lpi_mem_item *item = lpi_mem_items_find_ge(items, &key);
	return item == NULL || lpi_mem_item_less(&key, item) ? NULL : item;
}

bool lpi_mem_item_put(struct lpi_mem_items *items, struct lpi_mem_item *item)
{
	struct lpi_mem_item *old = lpi_mem_item_find(items, item->name);
	if (old != NULL) {
		item->insertion = old->insertion;
		lpi_mem_items_remove(items, old);
		free(old);
	}
	lpi_mem_items_insert(items, item);
	return old == NULL;
}

void lpi_mem_item_remove(struct lpi_mem_items *items, struct lp_bytes name)
{
	struct lpi_mem_item *item = lpi_mem_item_find(items, name);
	LP_ASSERT(item != NULL);
	lpi_mem_items_remove(items, item);
	free(item);
}

void lpi_mem_items_clear(struct lpi_mem_items *items)
{
	struct lpi_mem_item *item;
	while ((item = lpi_mem_items_first(items)) != NULL) {
		lpi_mem_items_remove(items, item);
		free(item);
	}
}

/* --- Single ones ------------------------------------------------------------------------------ */

int lpi_mem_lookup(struct lpi_mem_store *store, struct lp_store_op *op)
{
	const struct lpi_mem_dir *dir = lpi_mem_dir_find(store, op->lookup.dir);
	const struct lpi_mem_item *item =
		dir == NULL ? NULL : lpi_mem_item_find(&dir->entries, op->lookup.name);
	if (item == NULL)
		return -ENOENT;
	op->lookup.ino = item->ino;
	op->lookup.insertion = item->insertion;
	op->lookup.type = item->type;
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, item->ino);
	op->lookup.has_attrs = inode != NULL;
	if (inode != NULL)
		lpi_mem_inode_attrs(inode, &op->lookup.attrs);
	return 0;
}

static int give(struct lp_store_op *op, struct lp_bytes value)
{
	op->get.value_len = value.len;
	if (value.len > op->get.buf_len)
		return -ERANGE;
	if (value.len > 0)
		memcpy(op->get.buf, value.data, value.len);
	return 0;
}

static int give_item(struct lp_store_op *op, const struct lpi_mem_items *items, int absent)
{
	const struct lpi_mem_item *item = lpi_mem_item_find(items, op->get.name);
	return item == NULL ? absent : give(op, item->value);
}

int lpi_mem_get(struct lpi_mem_store *store, struct lp_store_op *op)
{
	if (op->get.space == LP_STORE_RECORDS)
		return give_item(op, &store->records, -ENOENT);
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, op->get.ino);
	if (inode == NULL)
		return -ENOENT;
	if (op->get.space == LP_STORE_XATTRS)
		return give_item(op, &inode->xattrs, -ENODATA);
	if (op->get.space == LP_STORE_OMAP)
		return give_item(op, &inode->omap, -ENODATA);
	if (op->get.space == LP_STORE_NAME)
		return -ENODATA;
	LP_ASSERT(op->get.space == LP_STORE_TARGET);
	if (inode->attrs.type != LP_INODE_TYPE_SYMLINK)
		return -EINVAL;
	return give(op, (struct lp_bytes){inode->target, (uint32_t)inode->attrs.size_bytes});
}

/* --- Lists ------------------------------------------------------------------------------------ */

static int compare(struct lp_bytes a, struct lp_bytes b)
{
	return lp_key_compare(a.data, a.len, b.data, b.len);
}

/* The bound to look for first: no name below it is wanted. */
static struct lp_bytes first_bound(const struct lp_store_op *op)
{
	struct lp_bytes bound = {"", 0};
	if (op->list.prefix.data != NULL)
		bound = op->list.prefix;
	if (op->list.from.data != NULL && compare(op->list.from, bound) > 0)
		bound = op->list.from;
	if (op->list.after.data != NULL && compare(op->list.after, bound) > 0)
		bound = op->list.after;
	return bound;
}

static bool is_behind_bounds(const struct lp_store_op *op, struct lp_bytes name)
{
	if (op->list.after.data != NULL && compare(name, op->list.after) <= 0)
		return false;
	return op->list.from.data == NULL || compare(name, op->list.from) >= 0;
}

static bool has_prefix(const struct lp_store_op *op, struct lp_bytes name)
{
	struct lp_bytes prefix = op->list.prefix;
	if (prefix.data == NULL || prefix.len == 0)
		return true;
	return name.len >= prefix.len && memcmp(name.data, prefix.data, prefix.len) == 0;
}

static int list_items(struct lp_store_op *op, const struct lpi_mem_items *items)
{
	const struct lpi_mem_item key = {.name = first_bound(op)};
	struct lpi_mem_item *item = lpi_mem_items_find_ge(items, &key);
	for (; item != NULL && has_prefix(op, item->name); item = lpi_mem_items_next(item)) {
		if (!is_behind_bounds(op, item->name))
			continue;
		const struct lp_list_item record = {.name = item->name,
						    .value = item->value,
						    .ino = item->ino,
						    .insertion = item->insertion,
						    .type = item->type};
		if (lpi_list_put(op, &record) < 0)
			break;
	}
	return lpi_list_end(op);
}

static int list_inodes(struct lpi_mem_store *store, struct lp_store_op *op)
{
	uint8_t first[sizeof(uint64_t)] = {0};
	struct lp_bytes bound = first_bound(op);
	memcpy(first, bound.data, LP_MIN(bound.len, sizeof(first)));
	const struct lpi_mem_inode key = {.id = {.nr = lp_get_be64(first)}};
	struct lpi_mem_inode *inode = lpi_mem_inodes_find_ge(&store->inodes_by_nr, &key);
	for (; inode != NULL; inode = lpi_mem_inodes_next(inode)) {
		uint8_t name[sizeof(uint64_t)];
		lp_put_be64(name, inode->id.nr);
		const struct lp_list_item record = {.name = {name, sizeof(name)}};
		if (!has_prefix(op, record.name) && compare(record.name, op->list.prefix) > 0)
			break;
		if (!has_prefix(op, record.name) || !is_behind_bounds(op, record.name))
			continue;
		if (lpi_list_put(op, &record) < 0)
			break;
	}
	return lpi_list_end(op);
}

int lpi_mem_list(struct lpi_mem_store *store, struct lp_store_op *op)
{
	if (op->list.space == LP_STORE_INODES)
		return list_inodes(store, op);
	if (op->list.space == LP_STORE_RECORDS)
		return list_items(op, &store->records);
	if (op->list.space == LP_STORE_ENTRIES) {
		const struct lpi_mem_dir *dir = lpi_mem_dir_find(store, op->list.ino);
		return dir == NULL ? 0 : list_items(op, &dir->entries);
	}
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, op->list.ino);
	if (inode == NULL)
		return -ENOENT;
	return list_items(op, op->list.space == LP_STORE_OMAP ? &inode->omap : &inode->xattrs);
}
