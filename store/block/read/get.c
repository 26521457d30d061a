/* SPDX-License-Identifier: Apache-2.0 */
/* Short answers: one inode, one name, one value.
 *
 * The value of a name or a record that a helper fetched is used even if the index has moved on: it
 * was valid at a moment after the question came, and newer values are in the overlay, which is read
 * first. This does not hold for an xattr, which may have moved between the inode and a key of its
 * own. So both places are read as of one moment. */
#include <string.h>

#include "store/block/read/query.h"

int lpi_query_stat(struct lpi_query *query)
{
	struct lpi_inode *inode;
	int err = lpi_query_inode(query, &inode);
	if (err == 0)
		lpi_inode_attrs(inode, &query->op->stat.attrs);
	return err;
}

static int lookup_attrs(struct lpi_query *query)
{
	struct lpi_inode *inode;
	int err = lpi_query_inode(query, &inode);
	if (err == 0) {
		lpi_inode_attrs(inode, &query->op->lookup.attrs);
		query->op->lookup.has_attrs = true;
	}
	/* An entry may outlive its inode; fsck handles that. */
	return err == -ENOENT ? 0 : err;
}

static int read_entry(struct lpi_query *query, const struct lpi_point *point,
		      const struct lp_key *key)
{
	struct lp_store_op *op = query->op;
	struct lp_dirent_value value;
	if (point->bytes.data == NULL)
		return -ENOENT;
	int err = lp_dirent_read(point->bytes.data, point->bytes.len, key, &value);
	if (err < 0)
		return err;
	op->lookup.ino.nr = value.ino;
	op->lookup.insertion = value.insertion;
	op->lookup.type = value.type;
	return 0;
}

int lpi_query_lookup(struct lpi_query *query)
{
	struct lpi_block *block = lpi_query_block(query);
	struct lp_store_op *op = query->op;
	struct lpi_point point;
	struct lp_key key;
	if (lpi_fragment_lacks(&block->nodes, op->lookup.dir.nr, op->lookup.name.data,
			       op->lookup.name.len))
		return -ENOENT;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, op->lookup.dir, op->lookup.name.data,
		       op->lookup.name.len);
	int err = lpi_point_get(&query->hold.warmer, &key, false, true, &point);
	if (err < 0)
		return err;
	lpi_query_saw_group(query, point.group);
	err = read_entry(query, &point, &key);
	lpi_point_end(&point);
	if (err < 0 || lp_ino_shard(op->lookup.ino) != block->options.shard_idx)
		return err;
	query->ino = op->lookup.ino;
	if (lpi_node_find(&block->nodes, LPI_NODE_INODE, query->ino.nr) != NULL)
		return lookup_attrs(query); /* as it is now: no wait for durability */
	query->go_on = lookup_attrs;
	return LPI_WAIT_CLAIM;
}

static int give_value(struct lp_store_op *op, const void *bytes, size_t len)
{
	op->get.value_len = (uint32_t)len;
	if (len > op->get.buf_len)
		return -ERANGE;
	if (len > 0)
		memcpy(op->get.buf, bytes, len);
	return 0;
}

static int get_key(struct lpi_query *query, const struct lp_key *key, bool claimed, int absent)
{
	struct lpi_point point;
	int err = lpi_point_get(&query->hold.warmer, key, false, claimed, &point);
	if (err < 0)
		return err;
	lpi_query_saw_group(query, point.group);
	err = point.bytes.data == NULL ? absent
				       : give_value(query->op, point.bytes.data, point.bytes.len);
	lpi_point_end(&point);
	return err;
}

static int get_target(struct lpi_query *query, const struct lpi_inode *inode)
{
	const struct lp_inode *rec = &inode->rec;
	if (rec->type != LP_INODE_TYPE_SYMLINK)
		return -EINVAL;
	return give_value(query->op, rec->target.at, rec->target.len);
}

int lpi_query_get_record(struct lpi_query *query)
{
	const struct lp_bytes *name = &query->op->get.name;
	struct lp_key key;
	LP_ASSERT(name->len <= LP_KEY_BYTES_MAX);
	key.len = name->len;
	memcpy(key.bytes, name->data, name->len);
	return get_key(query, &key, true, -ENOENT);
}

/* Small things of an inode. When the inode is gone, so are they, though some may not be deleted
 * yet. */
int lpi_query_get(struct lpi_query *query)
{
	struct lp_store_op *op = query->op;
	bool is_xattr = op->get.space == LP_STORE_XATTRS;
	struct lpi_inode *inode;
	struct lp_xattr xattr;
	struct lp_key key;
	int err = lpi_query_inode(query, &inode);
	if (err < 0)
		return err;
	if (op->get.space == LP_STORE_TARGET)
		return get_target(query, inode);
	if (op->get.space == LP_STORE_NAME)
		return inode->rec.name.len == 0
			       ? -ENODATA
			       : give_value(op, inode->rec.name.at, inode->rec.name.len);
	if (is_xattr &&
	    lp_xattrs_find(inode->rec.xattrs, op->get.name.data, op->get.name.len, &xattr))
		return give_value(op, xattr.value.at, xattr.value.len);
	if ((inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) == 0)
		return -ENODATA;
	lp_key_of_name(&key, is_xattr ? LP_KEY_SPACE_XATTR : LP_KEY_SPACE_OMAP, op->get.ino,
		       op->get.name.data, op->get.name.len);
	return get_key(query, &key, query->hold.is_kept, -ENODATA);
}

/* Operations that change a fragment do not claim it. So a record that a helper fetched may be too
 * old to become a node, and is then fetched again. */
int lpi_query_dir(struct lpi_query *query)
{
	struct lp_store_op *op = query->op;
	struct lpi_node *node;
	int err =
		lpi_node_get(&query->hold.warmer, LPI_NODE_FRAGMENT, op->dir.ino.nr, false, &node);
	if (err < 0)
		return err;
	lpi_query_saw_group(query, node->group);
	if (!node->exists)
		return 0;
	const struct lp_fragment_value *value = &lpi_fragment_of(node)->value;
	op->dir.entries_cnt = value->entries_cnt;
	op->dir.name_bytes = value->name_bytes;
	op->dir.next_insertion = value->next_insertion;
	op->dir.mtime_ns = value->mtime_ns;
	op->dir.ctime_ns = value->ctime_ns;
	op->dir.is_sealed = value->is_sealed != 0;
	return 0;
}

int lpi_query_sync(struct lpi_query *query)
{
	query->saw_all = true;
	return 0;
}
