/* SPDX-License-Identifier: Apache-2.0 */
/* The changes of a transaction, in one piece of one turn: nothing here waits or fails. Room in the
 * group was reserved, and the needed nodes are in memory and pinned. */
#include <string.h>

#include "store/block/write/txn.h"

static struct lp_kv_bytes key_bytes(const struct lp_key *key)
{
	return (struct lp_kv_bytes){key->bytes, key->len};
}

static struct lp_kv_bytes value_bytes(const struct lp_bytes *bytes)
{
	return (struct lp_kv_bytes){bytes->len > 0 ? bytes->data : "", bytes->len};
}

/* --- Inodes ----------------------------------------------------------------------------------- */

/* Uses the numbers of all inodes that are made. The bound is raised once; room for that was
 * reserved. */
static void use_numbers(const struct lpi_txn *txn)
{
	struct lpi_block *block = txn->block;
	const struct lp_store_op *op = txn->op;
	struct lp_ino highest = {0};
	if (txn->edit.change != NULL && txn->edit.grave != NULL) {
		highest = txn->edit.grave->rec.ino;
		lpi_ino_use(block, highest);
	}
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		const struct lp_change *change = &op->txn.changes[i];
		if (change->type != LP_CHANGE_CREATE)
			continue;
		lpi_ino_use(block, change->ino);
		highest.nr = LP_MAX(highest.nr, change->ino.nr);
	}
	if (highest.nr != 0)
		lpi_ino_set_aside(block, highest);
}

static void set_name(struct lpi_inode *inode, struct lp_ino parent, const struct lp_bytes *name)
{
	inode->rec.parent = parent;
	lpi_inode_set_part(inode, LPI_PART_NAME, name->data, name->len);
}

static void create(const struct lp_change *change, struct lpi_inode *inode)
{
	const struct lp_attrs *attrs = change->inode.attrs;
	struct lp_inode *rec = &inode->rec;
	LP_ASSERT(!inode->node.exists);
	lpi_inode_clear(inode);
	inode->node.exists = true;
	rec->version_nr = lpi_change_version(change) - 1; /* goes up with this transaction */
	rec->size_bytes = change->inode.target.len;
	rec->atime_ns = attrs->atime_ns;
	rec->mtime_ns = attrs->mtime_ns;
	rec->ctime_ns = attrs->ctime_ns;
	rec->btime_ns = attrs->btime_ns;
	rec->uid = attrs->uid;
	rec->gid = attrs->gid;
	rec->nlink = attrs->nlink;
	rec->flags = attrs->flags;
	rec->rdev = attrs->rdev;
	rec->mode = attrs->mode;
	rec->type = attrs->type;
	set_name(inode, attrs->parent, &change->inode.name);
	if (change->inode.target.len > 0) {
		lpi_inode_set_part(inode, LPI_PART_TARGET, change->inode.target.data,
				   change->inode.target.len);
		rec->content_crc =
			lp_crc32c(0, change->inode.target.data, change->inode.target.len);
	}
}

static void set_attrs(const struct lp_change *change, struct lpi_inode *inode)
{
	const struct lp_attrs *attrs = change->inode.attrs;
	struct lp_inode *rec = &inode->rec;
	uint32_t mask = change->inode.mask;
	if ((mask & LP_ATTR_MODE) != 0)
		rec->mode = attrs->mode;
	if ((mask & LP_ATTR_UID) != 0)
		rec->uid = attrs->uid;
	if ((mask & LP_ATTR_GID) != 0)
		rec->gid = attrs->gid;
	if ((mask & LP_ATTR_NLINK) != 0)
		rec->nlink = attrs->nlink;
	if ((mask & LP_ATTR_ATIME) != 0)
		rec->atime_ns = attrs->atime_ns;
	if ((mask & LP_ATTR_MTIME) != 0)
		rec->mtime_ns = attrs->mtime_ns;
	if ((mask & LP_ATTR_CTIME) != 0)
		rec->ctime_ns = attrs->ctime_ns;
	if ((mask & LP_ATTR_BTIME) != 0)
		rec->btime_ns = attrs->btime_ns;
	if ((mask & LP_ATTR_FLAGS) != 0)
		rec->flags = (rec->flags & LP_INODE_FLAG_HAS_KEYS) | attrs->flags;
	if ((mask & LP_ATTR_PARENT) != 0)
		set_name(inode, attrs->parent, &change->inode.name);
	rec->version_nr = LP_MAX(rec->version_nr, lpi_change_version(change) - 1);
}

/* The map is in its root: one leaf, in memory. */
static void punch_all(struct lpi_block *block, struct lpi_inode *inode)
{
	const struct lp_extmap_range range = {0, LP_EXTMAP_LEAF_BLOCKS};
	struct lp_extmap_released released = {.items = block->scratch.releases,
					      .max = LPI_SCRATCH_BLOCKS};
	if (lp_extmap_reserve(&inode->map, range, 0) < 0) {
		lp_commit_give_up(block->commit, -ENOMEM);
		return;
	}
	lp_extmap_punch(&inode->map, range, &released);
	lpi_release_apply(block, &released);
}

/* The fragment has no entries. */
static void drop_fragment(struct lpi_fragment *fragment)
{
	if (!fragment->node.exists)
		return;
	fragment->node.exists = false;
	fragment->value = (struct lp_fragment_value){0};
	lpi_node_changed(&fragment->node);
}

static void remove_inode(struct lpi_txn *txn, struct lpi_inode *inode, struct lpi_slot *slot)
{
	struct lpi_block *block = txn->block;
	struct lp_key key;
	if (slot->fragment != NULL)
		drop_fragment(slot->fragment);
	if (slot->trim != NULL) {
		struct lpi_trim *trim = slot->trim;
		slot->trim = NULL;
		lpi_trim_begin(trim, inode, 0, true);
		return;
	}
	if (inode->trim != NULL) {
		lpi_trim_remove(inode->trim);
		return;
	}
	if (inode->rec.nlink == 0) {
		lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, inode->rec.ino);
		lp_commit_delete(block->commit, key_bytes(&key));
	}
	if (lp_extmap_blocks(&inode->map) > 0)
		punch_all(block, inode);
	lpi_inode_end(inode);
}

/* --- Entries ---------------------------------------------------------------------------------- */

static void make_fragment(struct lpi_fragment *fragment)
{
	if (fragment->node.exists)
		return;
	fragment->node.exists = true;
	fragment->value = (struct lp_fragment_value){.next_insertion = 1};
}

static void set_entry(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lp_fragment_value *fragment = &slot->fragment->value;
	struct lp_dirent_value value = {.type = change->named.target_type,
					.ino = change->named.target.nr,
					.insertion = slot->insertion};
	uint8_t bytes[LP_DIRENT_VALUE_SIZE];
	struct lp_key key;
	/* If the entry exists already, the fragment's record was lost, and its other names are
	 * unknown.
	 */
	if (!slot->existed && !slot->fragment->node.exists)
		lpi_fragment_begin_names(slot->fragment);
	make_fragment(slot->fragment);
	if (!slot->existed) {
		value.insertion = fragment->next_insertion++;
		fragment->entries_cnt++;
		fragment->name_bytes += change->named.name.len;
		lpi_fragment_add_name(slot->fragment, change->named.name.data,
				      change->named.name.len);
		lpi_node_changed(&slot->fragment->node);
	} else {
		lpi_node_noted(&slot->fragment->node); /* no record of the fragment changes */
	}
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, change->ino, change->named.name.data,
		       change->named.name.len);
	lp_dirent_write(&value, &key, bytes);
	lp_commit_put(txn->block->commit, key_bytes(&key),
		      (struct lp_kv_bytes){bytes, sizeof(bytes)});
}

static void remove_entry(struct lpi_txn *txn, const struct lp_change *change,
			 const struct lpi_slot *slot)
{
	struct lp_fragment_value *fragment = &slot->fragment->value;
	struct lp_key key;
	/* A fragment that counts fewer entries than exist is damaged; this must not make it worse.
	 */
	if (fragment->entries_cnt > 0)
		fragment->entries_cnt--;
	fragment->name_bytes -= LP_MIN(fragment->name_bytes, (uint64_t)change->named.name.len);
	lpi_node_changed(&slot->fragment->node);
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, change->ino, change->named.name.data,
		       change->named.name.len);
	lp_commit_delete(txn->block->commit, key_bytes(&key));
}

static void change_dir(const struct lp_change *change, struct lpi_fragment *fragment)
{
	if (change->dir.drop) {
		drop_fragment(fragment);
		return;
	}
	make_fragment(fragment);
	fragment->value.mtime_ns = lpi_dir_time(fragment->value.mtime_ns, change->dir.mtime_ns);
	fragment->value.ctime_ns = lpi_dir_time(fragment->value.ctime_ns, change->dir.ctime_ns);
	if (change->dir.seal)
		fragment->value.is_sealed = 1;
	if (change->dir.unseal)
		fragment->value.is_sealed = 0;
	/* If the seal had made the fragment, its directory may never have existed. */
	if (change->dir.unseal && lp_fragment_says_nothing(&fragment->value))
		drop_fragment(fragment);
	else
		lpi_node_changed(&fragment->node);
}

/* --- Xattrs, omap, records -------------------------------------------------------------------- */

static void xattr_key(const struct lp_change *change, struct lp_key *ret_key)
{
	lp_key_of_name(ret_key, LP_KEY_SPACE_XATTR, change->ino, change->named.name.data,
		       change->named.name.len);
}

/* Changes the inode's list. -ENOSPC: the value does not fit. */
static int change_list(struct lpi_inode *inode, const struct lp_bytes *name,
		       const struct lp_inode_bytes *value)
{
	uint8_t list[LP_INODE_XATTRS_MAX];
	const struct lp_inode_bytes name_bytes = {name->data, name->len};
	int len = lp_xattrs_set(inode->rec.xattrs, &name_bytes, value, list);
	if (len < 0)
		return len;
	lpi_inode_set_part(inode, LPI_PART_XATTRS, list, (uint32_t)len);
	return 0;
}

static void set_xattr(struct lpi_txn *txn, const struct lp_change *change, struct lpi_inode *inode)
{
	struct lp_commit *commit = txn->block->commit;
	const struct lp_bytes *value = &change->named.value;
	const struct lp_inode_bytes small = {value->len > 0 ? value->data : (const uint8_t *)"",
					     value->len};
	struct lp_key key;
	xattr_key(change, &key);
	if (value->len <= UINT16_MAX && change_list(inode, &change->named.name, &small) == 0) {
		if ((inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) != 0)
			lp_commit_delete(commit, key_bytes(&key));
		return;
	}
	int err = change_list(inode, &change->named.name, NULL);
	LP_ASSERT(err == 0); /* the list became no longer */
	inode->rec.flags |= LP_INODE_FLAG_HAS_KEYS;
	lp_commit_put(commit, key_bytes(&key), value_bytes(value));
}

static void remove_xattr(struct lpi_txn *txn, const struct lp_change *change,
			 struct lpi_inode *inode)
{
	struct lp_key key;
	int err = change_list(inode, &change->named.name, NULL);
	LP_ASSERT(err == 0);
	if ((inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) == 0)
		return;
	xattr_key(change, &key);
	lp_commit_delete(txn->block->commit, key_bytes(&key));
}

static void change_omap(struct lpi_txn *txn, const struct lp_change *change,
			struct lpi_inode *inode)
{
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_OMAP, change->ino, change->named.name.data,
		       change->named.name.len);
	if (change->type == LP_CHANGE_OMAP_REMOVE) {
		lp_commit_delete(txn->block->commit, key_bytes(&key));
		return;
	}
	inode->rec.flags |= LP_INODE_FLAG_HAS_KEYS;
	lp_commit_put(txn->block->commit, key_bytes(&key), value_bytes(&change->named.value));
}

static void change_record(struct lpi_txn *txn, const struct lp_change *change)
{
	struct lp_kv_bytes key = {change->named.name.data, change->named.name.len};
	if (change->named.value.data == NULL)
		lp_commit_delete(txn->block->commit, key);
	else
		lp_commit_put(txn->block->commit, key, value_bytes(&change->named.value));
}

/* --- All of them ------------------------------------------------------------------------------ */

static void apply_one(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	switch (change->type) {
	case LP_CHANGE_CREATE:
		create(change, slot->inode);
		break;
	case LP_CHANGE_SET:
		set_attrs(change, slot->inode);
		break;
	case LP_CHANGE_LINK:
		slot->inode->rec.nlink =
			(uint32_t)((int64_t)slot->inode->rec.nlink + change->inode.delta);
		break;
	case LP_CHANGE_REMOVE:
		remove_inode(txn, slot->inode, slot);
		break;
	case LP_CHANGE_WRITE:
	case LP_CHANGE_TRUNCATE:
	case LP_CHANGE_PUNCH:
	case LP_CHANGE_PREALLOC:
	case LP_CHANGE_CLONE:
		lpi_edit_apply(txn);
		break;
	case LP_CHANGE_XATTR_SET:
		set_xattr(txn, change, slot->inode);
		break;
	case LP_CHANGE_XATTR_REMOVE:
		remove_xattr(txn, change, slot->inode);
		break;
	case LP_CHANGE_OMAP_SET:
	case LP_CHANGE_OMAP_REMOVE:
		change_omap(txn, change, slot->inode);
		break;
	case LP_CHANGE_ENTRY_SET:
		set_entry(txn, change, slot);
		break;
	case LP_CHANGE_ENTRY_REMOVE:
		remove_entry(txn, change, slot);
		break;
	case LP_CHANGE_DIR:
		change_dir(change, slot->fragment);
		break;
	case LP_CHANGE_RECORD:
		change_record(txn, change);
		break;
	default:
		break; /* guards */
	}
}

/* Returns the version of the data change's inode, or of the first inode that a change is about. */
static void tell_version(struct lpi_txn *txn)
{
	struct lp_store_op *op = txn->op;
	uint32_t idx = 0;
	while (idx < op->txn.change_cnt && !lpi_change_is_inode(op->txn.changes[idx].type))
		idx++;
	if (txn->edit.change != NULL)
		idx = txn->edit.change_idx;
	if (idx < op->txn.change_cnt && lpi_inode_is_there(txn->slots[idx].inode))
		op->txn.version_nr = txn->slots[idx].inode->rec.version_nr;
}

void lpi_txn_apply(struct lpi_txn *txn)
{
	struct lp_store_op *op = txn->op;
	if (!txn->edit.is_last_step) {
		lpi_edit_apply(txn);
		lpi_node_changed(&txn->edit.inode->node);
		return;
	}
	use_numbers(txn);
	for (uint32_t i = 0; i < op->txn.change_cnt; i++)
		apply_one(txn, &op->txn.changes[i], &txn->slots[i]);
	for (uint32_t i = 0; i < txn->touched_cnt; i++) {
		struct lpi_inode *inode = txn->touched[i].inode;
		if (!txn->touched[i].is_changed)
			continue;
		inode->rec.version_nr += txn->touched[i].is_newer ? 1 : 0;
		lpi_node_changed(&inode->node);
	}
	tell_version(txn);
}
