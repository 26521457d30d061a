/* SPDX-License-Identifier: Apache-2.0 */
/* Point reads: the overlay first, then the index's memory, then a read of the device, by the
 * reactor or a helper.
 *
 * A value that a helper fetched may be older than the index's when it arrives. It is used when the
 * record cannot have changed meanwhile: the reader holds its claim, or nothing entered the index
 * since. Otherwise it has at least warmed the index's cache for the next try. An error is used in
 * any case, because a bad block that is read again and again would keep its reader for ever. */
#include <string.h>

#include "store/block/core/block.h"

static struct lp_kv_bytes bytes_of(const struct lp_key *key)
{
	return (struct lp_kv_bytes){key->bytes, key->len};
}

static bool is_of(const struct lpi_warmer *warmer, const struct lp_key *key)
{
	return warmer->key.len == key->len && memcmp(warmer->key.bytes, key->bytes, key->len) == 0;
}

static uint64_t inserted_seq(const struct lpi_block *block)
{
	return block->commit != NULL ? lp_commit_inserted_seq(block->commit) : 0;
}

static bool from_overlay(struct lpi_block *block, const struct lp_key *key,
			 struct lpi_point *ret_point)
{
	const struct lp_overlay_entry *entry = NULL;
	switch (lp_overlay_find(block->overlay, key->bytes, (uint32_t)key->len, &entry)) {
	case LP_OVERLAY_FOUND:
		ret_point->bytes = (struct lp_kv_bytes){entry->value, entry->value_len};
		ret_point->group = entry->group;
		return true;
	case LP_OVERLAY_DELETED:
		ret_point->group = entry->group;
		return true;
	case LP_OVERLAY_NONE:
	default:
		return false;
	}
}

static bool is_usable(const struct lpi_warmer *warmer, bool claimed)
{
	bool failed = warmer->get.result < 0 && warmer->get.result != -ENOENT;
	return claimed || failed || warmer->inserted_seq == inserted_seq(warmer->block);
}

/* The value stays the warmer's. */
static int from_warmer(const struct lpi_warmer *warmer, struct lpi_point *ret_point)
{
	if (warmer->get.result == 0)
		ret_point->bytes = warmer->get.value.bytes;
	return warmer->get.result == -ENOENT ? 0 : warmer->get.result;
}

int lpi_point_get(struct lpi_warmer *warmer, const struct lp_key *key, bool owned, bool claimed,
		  struct lpi_point *ret_point)
{
	struct lpi_block *block = warmer->block;
	*ret_point = (struct lpi_point){.bytes = {0}};
	if (!owned && from_overlay(block, key, ret_point))
		return 0;
	if (warmer->has_result && is_of(warmer, key) && is_usable(warmer, claimed))
		return from_warmer(warmer, ret_point);
	int err =
		lp_kv_get_cached(block->kv, bytes_of(key), &warmer->get.fetch, &ret_point->pinned);
	if (err == 0) {
		ret_point->is_pinned = true;
		ret_point->bytes = ret_point->pinned.bytes;
	} else if (err == -ENOENT) {
		err = 0;
	} else if (err == -EAGAIN) {
		warmer->is_wanted = true;
		lpi_warmer_fini(warmer);
		warmer->end.len = 0;
		warmer->key.len = key->len;
		memcpy(warmer->key.bytes, key->bytes, key->len);
	}
	return err;
}

void lpi_point_end(struct lpi_point *point)
{
	if (point->is_pinned)
		lp_kv_value_release(&point->pinned);
	point->is_pinned = false;
}

/* --- Warmers ---------------------------------------------------------------------------------- */

void lpi_warmer_init(struct lpi_warmer *warmer, struct lpi_block *block,
		     void (*ready)(struct lpi_warmer *warmer))
{
	warmer->block = block;
	warmer->ready = ready;
	warmer->end.len = 0;
	warmer->is_wanted = false;
	warmer->is_running = false;
	warmer->has_result = false;
	warmer->get.fetch = (struct lp_fetch){.block_cnt = 0};
}

static void get_done(struct lp_kv_get_op *get)
{
	struct lpi_warmer *warmer = LP_CONTAINER_OF(get, struct lpi_warmer, get);
	warmer->is_running = false;
	warmer->has_result = true;
	if (get->is_of_now)
		warmer->inserted_seq = inserted_seq(warmer->block);
	warmer->ready(warmer);
}

void lpi_warmer_start(struct lpi_warmer *warmer)
{
	struct lpi_block *block = warmer->block;
	LP_ASSERT(warmer->is_wanted && !warmer->is_running && !warmer->has_result);
	warmer->is_wanted = false;
	warmer->is_running = true;
	warmer->inserted_seq = inserted_seq(block);
	block->stats.index_waits++;
	warmer->get.kv = block->kv;
	warmer->get.chans = lp_shard_index_chans(block->shard);
	warmer->get.key = bytes_of(&warmer->key);
	warmer->get.warm_end =
		warmer->end.len > 0 ? bytes_of(&warmer->end) : (struct lp_kv_bytes){0};
	warmer->get.persisted = false;
	warmer->get.done = get_done;
	lp_kv_get_submit(block->options.workers, block->options.reactor, &warmer->get);
}

void lpi_warmer_fini(struct lpi_warmer *warmer)
{
	LP_ASSERT(!warmer->is_running);
	if (warmer->has_result && warmer->get.result == 0)
		lp_kv_value_release(&warmer->get.value);
	warmer->has_result = false;
}

/* --- Nodes and leaves ------------------------------------------------------------------------- */

int lpi_node_get(struct lpi_warmer *warmer, enum lpi_node_kind kind, uint64_t id, bool claimed,
		 struct lpi_node **ret_node)
{
	struct lpi_nodes *nodes = &warmer->block->nodes;
	struct lpi_point point;
	struct lp_key key;
	*ret_node = lpi_node_find(nodes, kind, id);
	if (*ret_node != NULL)
		return 0;
	lpi_node_key(kind, id, &key);
	int err = lpi_point_get(warmer, &key, true, claimed, &point);
	if (err < 0)
		return err;
	err = lpi_node_load(nodes, kind, id, point.bytes, ret_node);
	lpi_point_end(&point);
	return err;
}

int lpi_inode_get(struct lpi_warmer *warmer, struct lp_ino ino, bool claimed,
		  struct lpi_inode **ret_inode)
{
	struct lpi_node *node = NULL;
	int err = lpi_node_get(warmer, LPI_NODE_INODE, ino.nr, claimed, &node);
	if (err < 0)
		return err;
	*ret_inode = lpi_inode_of(node);
	return lpi_inode_is_there(*ret_inode) ? 0 : -ENOENT;
}

static int get_leaf(struct lpi_warmer *warmer, struct lpi_inode *inode, uint32_t idx, bool claimed)
{
	struct lpi_point point;
	struct lp_key key;
	lp_key_of_map(&key, inode->rec.ino, (uint64_t)idx * LP_EXTMAP_LEAF_BLOCKS);
	int err = lpi_point_get(warmer, &key, true, claimed, &point);
	if (err < 0)
		return err;
	if (point.bytes.data != NULL)
		err = lp_extmap_load(&inode->map, idx, point.bytes.data, point.bytes.len);
	lpi_point_end(&point);
	lpi_node_account(&inode->node);
	return err < 0 ? err : lp_extmap_loaded(&inode->map, (struct lp_extmap_leaves){idx, idx});
}

int lpi_leaves_get(struct lpi_warmer *warmer, struct lpi_inode *inode, bool claimed)
{
	/* Only the first leaf is needed. Those behind it will be needed later, and are in the
	 * index's cache then: one wait for all of them. */
	struct lp_extmap_leaves missing = lp_extmap_missing(&inode->map);
	int err = get_leaf(warmer, inode, missing.first, claimed);
	if (err == -EAGAIN && missing.last > missing.first)
		lp_key_of_map(&warmer->end, inode->rec.ino,
			      (uint64_t)missing.last * LP_EXTMAP_LEAF_BLOCKS);
	return err;
}

static int load_leaf(struct lpi_inode *inode, struct lp_kv_bytes key, struct lp_kv_bytes value,
		     uint32_t *ret_idx)
{
	struct lp_key_view view;
	int err = lp_key_parse(key.data, key.len, &view);
	if (err == 0)
		err = lp_extmap_leaf_of_key(&inode->map, view.number, ret_idx);
	if (err == 0)
		err = lp_extmap_load(&inode->map, *ret_idx, value.data, value.len);
	return err;
}

int lpi_leaves_load(struct lpi_inode *inode, const struct lp_kv_scan_op *found,
		    struct lp_extmap_leaves leaves)
{
	struct lp_kv_bytes key;
	struct lp_kv_bytes value;
	size_t pos = 0;
	uint32_t idx = leaves.first;
	int err = found->result;
	if (err == -ENOBUFS)
		return LP_CORRUPT(LP_OFFSET_NONE, "inode %llu: a leaf of %zu bytes",
				  (unsigned long long)inode->rec.ino.nr, found->used);
	while (err == 0 && lp_kv_scan_next(found, &pos, &key, &value))
		err = load_leaf(inode, key, value, &idx);
	lpi_node_account(&inode->node);
	if (err < 0)
		return err;
	if (found->more)
		leaves.last = idx;
	return lp_extmap_loaded(&inode->map, leaves);
}
