/* SPDX-License-Identifier: Apache-2.0 */
/* Lists, and where data begins or ends: walks through the index, while no group is under way, so
 * that it has all there is. */
#include <string.h>

#include "base/error.h"
#include "store/filestore/filestore_impl.h"

/* --- Lists ------------------------------------------------------------------------------------ */

/* What all keys of the list begin with, and its names do not have. */
static void base_of(const struct lp_store_op *op, struct lp_key *ret)
{
	static const uint8_t spaces[LP_STORE_SPACE_CNT] = {
		[LP_STORE_XATTRS] = LP_KEY_SPACE_XATTR,
		[LP_STORE_OMAP] = LP_KEY_SPACE_OMAP,
		[LP_STORE_ENTRIES] = LP_KEY_SPACE_DIRENT,
		[LP_STORE_INODES] = LP_KEY_SPACE_INODE,
	};
	ret->len = 0;
	if (op->list.space == LP_STORE_RECORDS)
		return;
	ret->bytes[ret->len++] = spaces[op->list.space];
	if (op->list.space == LP_STORE_INODES)
		return;
	lp_put_be64(ret->bytes + ret->len, op->list.ino.nr);
	ret->len += sizeof(uint64_t);
}

/* A bound is longer than any name there is only where it is cut: behind what it was then. */
static void append(struct lp_key *key, struct lp_bytes bytes)
{
	size_t len = LP_MIN(bytes.len, sizeof(key->bytes) - key->len);
	if (len > 0)
		memcpy(key->bytes + key->len, bytes.data, len);
	key->len += len;
}

static int compare(struct lp_bytes a, struct lp_bytes b)
{
	return lp_key_compare(a.data, a.len, b.data, b.len);
}

static bool has_prefix(const struct lp_store_op *op, struct lp_bytes name)
{
	struct lp_bytes prefix = op->list.prefix;
	if (prefix.data == NULL || prefix.len == 0)
		return true;
	return name.len >= prefix.len && memcmp(name.data, prefix.data, prefix.len) == 0;
}

static bool is_behind_bounds(const struct lp_store_op *op, struct lp_bytes name)
{
	if (op->list.after.data != NULL && compare(name, op->list.after) <= 0)
		return false;
	return op->list.from.data == NULL || compare(name, op->list.from) >= 0;
}

/* The greatest of the bounds: no name below it is wanted. */
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

/* An empty value is there, too. */
static struct lp_bytes bytes_of(const void *data, size_t len)
{
	return (struct lp_bytes){len > 0 ? data : "", (uint32_t)len};
}

static int put_one(struct lp_store_op *op, size_t base_len, struct lp_kv_bytes key,
		   struct lp_kv_bytes value)
{
	struct lp_list_item item = {
		.name = bytes_of((const uint8_t *)key.data + base_len, key.len - base_len),
		.value = bytes_of(value.data, value.len)};
	if (!is_behind_bounds(op, item.name))
		return 0;
	if (op->list.space == LP_STORE_ENTRIES) {
		struct lp_dirent_value entry;
		struct lp_key own = {.len = 0};
		append(&own, bytes_of(key.data, key.len));
		int err = lp_dirent_read(value.data, value.len, &own, &entry);
		if (err < 0)
			return err;
		item.value = (struct lp_bytes){NULL, 0};
		item.ino.nr = entry.ino;
		item.insertion = entry.insertion;
		item.type = entry.type;
	}
	if (op->list.space == LP_STORE_INODES)
		item.value = (struct lp_bytes){NULL, 0};
	return lpi_list_put(op, &item);
}

/* -ENOBUFS: the page is full, -ENOENT: there is no more. */
static int walk(struct lp_store_op *op, struct lp_kv_iter *iter, size_t base_len)
{
	int err = lp_kv_iter_seek_first(iter);
	while (err == 0) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		LP_ASSERT(key.len >= base_len);
		if (!has_prefix(op,
				bytes_of((const uint8_t *)key.data + base_len, key.len - base_len)))
			return -ENOENT;
		err = put_one(op, base_len, key, lp_kv_iter_value(iter));
		if (err == 0)
			err = lp_kv_iter_next(iter);
	}
	return err;
}

static int check_inode(struct lpi_fstore_store *store, const struct lp_store_op *op)
{
	const struct lpi_fstore_view view = {.layer_cnt = 0, .kv = store->kv};
	struct lpi_fstore_inode inode;
	if (op->list.space != LP_STORE_XATTRS && op->list.space != LP_STORE_OMAP)
		return 0;
	int err = lpi_fstore_inode_read(&view, op->list.ino, &inode);
	if (err < 0)
		return err;
	return inode.exists ? 0 : -ENOENT;
}

int lpi_fstore_list(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	struct lp_kv_iter *iter = NULL;
	struct lp_key lower;
	struct lp_key upper;
	int err = check_inode(store, op);
	if (err < 0)
		return err;
	base_of(op, &lower);
	size_t base_len = lower.len;
	append(&lower, first_bound(op));
	/* Of records the prefix is not empty: all keys have what they are listed by in front. */
	bool has_end = base_len > 0
			       ? lp_key_after(lower.bytes, base_len, &upper)
			       : lp_key_after(op->list.prefix.data, op->list.prefix.len, &upper);
	err = lp_kv_iter_open(store->kv, lpi_kv_bytes_of(&lower),
			      has_end ? lpi_kv_bytes_of(&upper) : (struct lp_kv_bytes){NULL, 0},
			      false, &iter);
	if (err < 0)
		return err;
	err = walk(op, iter, base_len);
	lp_kv_iter_close(iter);
	return err == -ENOENT || err == -ENOBUFS ? lpi_list_end(op) : err;
}

/* --- Where data begins and ends --------------------------------------------------------------- */

/* The first block from this one on that has data; UINT64_MAX: none. */
static int next_data(const struct lpi_fstore_view *view, struct lp_ino ino, uint64_t block,
		     uint64_t *ret_block)
{
	while (block < LP_KEY_MAP_BLOCKS_MAX) {
		uint64_t first = lp_align_down(block, LPI_LEAF_BLOCKS);
		struct lp_key_range range;
		struct lp_key_view at = {.number = 0};
		struct lpi_mapleaf leaf = {.data = 0};
		struct lp_key key;
		lp_key_range_of_map(&range, ino, first, LP_KEY_MAP_BLOCKS_MAX - 1);
		int err = lpi_fstore_next(view, &range.first, &range.end, &key);
		if (err == -ENOENT)
			break;
		if (err == 0)
			err = lp_key_parse(key.bytes, key.len, &at);
		if (err == 0)
			err = lpi_mapleaf_get(view, ino, at.number, &leaf);
		if (err < 0)
			return err;
		block = LP_MAX(block, at.number);
		uint64_t data = leaf.data & ~(lpi_mapleaf_bit(block) - 1);
		first = lp_align_down(at.number, LPI_LEAF_BLOCKS);
		if (data != 0) {
			*ret_block = first + (uint64_t)__builtin_ctzll(data);
			return 0;
		}
		block = first + LPI_LEAF_BLOCKS;
	}
	*ret_block = UINT64_MAX;
	return 0;
}

/* The first block from this one on that has none. */
static int next_hole(const struct lpi_fstore_view *view, struct lp_ino ino, uint64_t block,
		     uint64_t *ret_block)
{
	for (;;) {
		uint64_t leaf_end = lp_align_down(block, LPI_LEAF_BLOCKS) + LPI_LEAF_BLOCKS;
		struct lpi_mapleaf leaf = {.data = 0};
		int err = lpi_mapleaf_get(view, ino, block, &leaf);
		if (err < 0)
			return err;
		while (block < leaf_end && (leaf.data & lpi_mapleaf_bit(block)) != 0)
			block++;
		if (block < leaf_end) {
			*ret_block = block;
			return 0;
		}
	}
}

int lpi_fstore_seek(struct lpi_fstore_store *store, struct lp_store_op *op)
{
	const struct lpi_fstore_view view = {.layer_cnt = 0, .kv = store->kv};
	struct lpi_fstore_inode inode;
	uint64_t block = op->seek.offset >> LP_BLOCK_SHIFT;
	int err = lpi_fstore_inode_read(&view, op->seek.ino, &inode);
	if (err < 0)
		return err;
	if (!inode.exists)
		return -ENOENT;
	err = lpi_fstore_data_err(&inode);
	if (err < 0)
		return err;
	uint64_t size = inode.rec.size_bytes;
	if (op->seek.space) {
		op->seek.found = op->seek.offset;
		return 0;
	}
	if (op->seek.offset >= size)
		return -ENXIO;
	if (op->seek.hole)
		err = next_hole(&view, op->seek.ino, block, &block);
	else
		err = next_data(&view, op->seek.ino, block, &block);
	if (err < 0)
		return err;
	if (!op->seek.hole && block >= lp_bytes_to_blocks_up(size))
		return -ENXIO;
	op->seek.found = LP_MIN(LP_MAX(op->seek.offset, block << LP_BLOCK_SHIFT), size);
	return 0;
}
