/* SPDX-License-Identifier: Apache-2.0 */
/* What a removal leaves: a record `S gone` and the inode's number, by which its files are unlinked
 * and its records deleted, some at a time, when the index has it: then nothing durable names them.
 * The record goes with the last of them. Here are also the steps by which the map of a very large
 * file is cut. */
#include <string.h>

#include "base/error.h"
#include "store/filestore/filestore_impl.h"

/* At a time; the records of all inodes together, for a frame has to hold them. */
#define FREE_INODES 64u
#define FREE_BYTES  (UINT64_C(128) << 10)

/* Deletes records of the range as long as those deleted are less than max_bytes: 0 all, 1 there may
 * be more. */
static int delete_range(struct lpi_fstore_store *store, const struct lp_key_range *range,
			uint64_t max_bytes)
{
	struct lp_key from = range->first;
	while (store->open->overlay.batch_bytes < max_bytes) {
		struct lp_key key;
		int err = lpi_fstore_next(&store->eval->view, &from, &range->end, &key);
		if (err == 0)
			err = lpi_fstore_overlay_delete(&store->open->overlay, &key);
		if (err < 0)
			return err == -ENOENT ? 0 : err;
		from = key;
	}
	return 1;
}

/* The files of all parts that the map names, and those of the first, which may be there for a map
 * that names nothing. */
static int unlink_files(struct lpi_fstore_store *store, struct lp_ino ino)
{
	struct lp_key_range range;
	struct lp_key key;
	uint64_t part_blocks = UINT64_C(1) << LPI_PART_SHIFT;
	int err = lpi_objects_unlink(&store->objects, ino, 0);
	for (uint64_t block = part_blocks; err == 0 && block < LP_KEY_MAP_BLOCKS_MAX;) {
		struct lp_key_view at = {.number = 0};
		lp_key_range_of_map(&range, ino, block, LP_KEY_MAP_BLOCKS_MAX - 1);
		err = lpi_fstore_next(&store->eval->view, &range.first, &range.end, &key);
		if (err < 0)
			return err == -ENOENT ? 0 : err;
		err = lp_key_parse(key.bytes, key.len, &at);
		if (err == 0)
			err = lpi_objects_unlink(&store->objects, ino, at.number);
		block = lp_align_down(at.number, part_blocks) + part_blocks;
	}
	return err;
}

/* 0: all of it, 1: there may be more. */
static int free_ino(struct lpi_fstore_store *store, struct lp_ino ino, uint64_t max_bytes)
{
	static const enum lp_key_space spaces[] = {LP_KEY_SPACE_XATTR, LP_KEY_SPACE_OMAP,
						   LP_KEY_SPACE_MAP};
	struct lp_key key;
	int err = unlink_files(store, ino);
	for (size_t i = 0; i < LP_ARRAY_SIZE(spaces) && err == 0; i++) {
		struct lp_key_range range;
		lp_key_range_of_ino(&range, spaces[i], ino);
		err = delete_range(store, &range, max_bytes);
	}
	lp_key_of_store_number(&key, "gone", ino.nr);
	if (err == 0)
		err = lpi_fstore_overlay_delete(&store->open->overlay, &key);
	store->open->is_used = true;
	return err;
}

int lpi_fstore_free_ino(struct lpi_fstore_store *store, struct lp_ino ino)
{
	return free_ino(store, ino, UINT64_MAX);
}

static int is_in_index(const struct lpi_fstore_store *store, const struct lp_key *key)
{
	struct lp_kv_value value;
	int err = lp_kv_get(store->kv, lpi_kv_bytes_of(key), &value);
	if (err == 0)
		lp_kv_value_release(&value);
	return err == -ENOENT ? 0 : err < 0 ? err : 1;
}

static int free_gone(struct lpi_fstore_store *store)
{
	struct lpi_fstore_eval *eval = store->eval;
	struct lp_key_range range;
	struct lp_key key;
	bool is_left = false;
	lp_key_range_of_store(&range, "gone");
	for (uint32_t i = 0; i < FREE_INODES; i++) {
		struct lp_key_view at = {.number = 0};
		int err = lpi_fstore_next(&eval->view, &range.first, &range.end, &key);
		if (err == -ENOENT) {
			eval->gone_is_left = is_left;
			return 0;
		}
		if (err == 0)
			err = lp_key_parse(key.bytes, key.len, &at);
		if (err == 0)
			err = is_in_index(store, &key);
		if (err < 0)
			return err;
		if (err == 1)
			err = free_ino(store, (struct lp_ino){at.number}, FREE_BYTES);
		else
			is_left = true;
		if (err != 0)
			return err < 0 ? err : 0;
		range.first = key;
		range.first.bytes[range.first.len++] = 0;
	}
	return 0;
}

/* One step; the record goes with the last. */
static int trim(struct lpi_fstore_store *store)
{
	struct lpi_fstore_eval *eval = store->eval;
	struct lpi_fstore_inode *inode;
	struct lpi_fstore_value value;
	struct lp_key key;
	lp_key_of_store_number(&key, "trim", eval->trim_ino);
	int err = lpi_fstore_get(&eval->view, &key, &value);
	if (err < 0)
		return err;
	bool is_sound = value.bytes.len == sizeof(uint64_t);
	uint64_t block = is_sound ? lp_get_le64(value.bytes.data) : 0;
	lpi_fstore_value_release(&value);
	if (!is_sound || block % LPI_LEAF_BLOCKS != 0)
		return LP_CORRUPT(LP_OFFSET_NONE, "the record \"trim\" of inode %llu",
				  (unsigned long long)eval->trim_ino);
	eval->inode_cnt = 0;
	err = lpi_fstore_inode_find(eval, (struct lp_ino){eval->trim_ino}, &inode);
	if (err < 0)
		return err;
	uint8_t bytes[sizeof(uint64_t)];
	int more = lpi_fstore_cut(eval, inode, &block);
	lp_put_le64(bytes, block);
	if (more == 0)
		err = lpi_fstore_overlay_delete(&eval->txn, &key);
	else if (more == 1)
		err = lpi_fstore_overlay_put(&eval->txn, &key, bytes, sizeof(bytes));
	inode->is_dirty = true;
	if (err == 0 && more >= 0)
		err = lpi_fstore_inodes_encode(eval);
	if (err < 0 || more < 0) {
		lpi_fstore_overlay_clear(&eval->txn);
		return err < 0 ? err : more;
	}
	lpi_fstore_overlay_merge(&store->open->overlay, &eval->txn);
	store->open->is_used = true;
	if (more == 0)
		eval->trim_ino = 0;
	return 0;
}

int lpi_fstore_free_some(struct lpi_fstore_store *store)
{
	if (store->eval->trim_ino != 0)
		return trim(store);
	return store->eval->gone_is_left ? free_gone(store) : 0;
}
