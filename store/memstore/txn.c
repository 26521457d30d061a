/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction in three passes: all guards are checked against what is there; each change is
 * prepared, which allocates all it needs and may fail; then each is applied, which cannot. A change
 * is prepared while the earlier ones are not applied yet, so it asks them as well as the store:
 * that is what the functions of the form ..._before() do. They walk back over at most
 * LP_STORE_CHANGES_MAX changes; a transaction of one change walks nowhere. */
#include "store/memstore/memstore_impl.h"

#include <stdlib.h>

static bool is_same(struct lp_bytes a, struct lp_bytes b)
{
	return lp_key_compare(a.data, a.len, b.data, b.len) == 0;
}

/* --- Guards ----------------------------------------------------------------------------------- */

static int guard_inode(const struct lp_change *guard, const struct lpi_mem_inode *inode)
{
	if (inode == NULL)
		return -ENOENT;
	const struct lp_attrs *attrs = &inode->attrs;
	if (!lpi_guard_flags_hold(guard, attrs->flags))
		return -EPERM;
	return lpi_guard_inode_holds(guard, attrs->version_nr, attrs->size_bytes, attrs->uid,
				     attrs->gid, attrs->mode)
		       ? 0
		       : -ECANCELED;
}

static int guard_value(const struct lp_change *guard, const struct lpi_mem_item *item, int absent)
{
	if (item == NULL)
		return absent;
	struct lp_bytes wanted = guard->named.value;
	return wanted.data == NULL || is_same(wanted, item->value) ? 0 : -ECANCELED;
}

static int guard_xattr(const struct lp_change *guard, const struct lpi_mem_inode *inode)
{
	if (inode == NULL)
		return -ENOENT;
	const struct lpi_mem_item *item = lpi_mem_item_find(&inode->xattrs, guard->named.name);
	if (guard->type == LP_GUARD_NO_XATTR)
		return item == NULL ? 0 : -EEXIST;
	return guard_value(guard, item, -ENODATA);
}

static int guard_entry(const struct lp_change *guard, const struct lpi_mem_dir *dir)
{
	const struct lpi_mem_item *item =
		dir == NULL ? NULL : lpi_mem_item_find(&dir->entries, guard->named.name);
	if (guard->type == LP_GUARD_NO_ENTRY)
		return item == NULL ? 0 : -EEXIST;
	if (item == NULL)
		return -ENOENT;
	uint64_t wanted = guard->named.target.nr;
	return wanted == 0 || wanted == item->ino.nr ? 0 : -ECANCELED;
}

static int guard_record(const struct lpi_mem_store *store, const struct lp_change *guard)
{
	const struct lpi_mem_item *item = lpi_mem_item_find(&store->records, guard->named.name);
	if (guard->type == LP_GUARD_NO_RECORD)
		return item == NULL ? 0 : -EEXIST;
	return guard_value(guard, item, -ENOENT);
}

static int guard_empty(const struct lpi_mem_dir *dir)
{
	return dir == NULL || dir->entries_cnt == 0 ? 0 : -ENOTEMPTY;
}

static int check_guard(const struct lpi_mem_store *store, const struct lp_change *guard)
{
	enum lp_change_type type = guard->type;
	LP_ASSERT(lpi_change_is_guard(type));
	if (type == LP_GUARD_INODE)
		return guard_inode(guard, lpi_mem_inode_find(store, guard->ino));
	if (type == LP_GUARD_NO_INODE)
		return lpi_mem_inode_find(store, guard->ino) == NULL ? 0 : -EEXIST;
	if (type == LP_GUARD_ENTRY || type == LP_GUARD_NO_ENTRY)
		return guard_entry(guard, lpi_mem_dir_find(store, guard->ino));
	if (type == LP_GUARD_XATTR || type == LP_GUARD_NO_XATTR)
		return guard_xattr(guard, lpi_mem_inode_find(store, guard->ino));
	if (type == LP_GUARD_EMPTY)
		return guard_empty(lpi_mem_dir_find(store, guard->ino));
	if (type == LP_GUARD_DIR)
		return 0; /* memory is not damaged */
	return guard_record(store, guard);
}

/* --- What earlier changes will have made ------------------------------------------------------ */

static struct lpi_mem_inode *inode_before(const struct lpi_mem_store *store,
					  const struct lp_store_op *op, uint32_t idx,
					  struct lp_ino ino)
{
	const struct lp_change *changes = op->txn.changes;
	while (idx-- > 0) {
		if (changes[idx].ino.nr != ino.nr)
			continue;
		if (changes[idx].type == LP_CHANGE_CREATE)
			return store->steps[idx].inode;
		if (changes[idx].type == LP_CHANGE_REMOVE)
			return NULL;
	}
	return lpi_mem_inode_find(store, ino);
}

static uint64_t nlink_before(const struct lp_store_op *op, uint32_t idx,
			     const struct lpi_mem_inode *inode)
{
	const struct lp_change *changes = op->txn.changes;
	int64_t delta = 0;
	while (idx-- > 0) {
		const struct lp_change *change = &changes[idx];
		if (change->ino.nr != inode->id.nr)
			continue;
		if (change->type == LP_CHANGE_SET && (change->inode.mask & LP_ATTR_NLINK) != 0)
			return (uint64_t)((int64_t)change->inode.attrs->nlink + delta);
		if (change->type == LP_CHANGE_LINK)
			delta += change->inode.delta;
	}
	/* One that is being created has its attributes already. */
	return (uint64_t)((int64_t)inode->attrs.nlink + delta);
}

/* Whether there is a thing of that name; set and remove are the changes that decide it. */
static bool is_there_before(const struct lp_store_op *op, uint32_t idx, enum lp_change_type set,
			    enum lp_change_type remove, const struct lpi_mem_items *items)
{
	const struct lp_change *changes = op->txn.changes;
	const struct lp_change *about = &changes[idx];
	while (idx-- > 0) {
		const struct lp_change *change = &changes[idx];
		if (change->type != set && change->type != remove)
			continue;
		if (change->ino.nr == about->ino.nr &&
		    is_same(change->named.name, about->named.name))
			return change->type == set;
	}
	return lpi_mem_item_find(items, about->named.name) != NULL;
}

static bool is_sealed_before(const struct lp_store_op *op, uint32_t idx,
			     const struct lpi_mem_dir *dir)
{
	const struct lp_change *changes = op->txn.changes;
	while (idx-- > 0) {
		const struct lp_change *change = &changes[idx];
		if (change->type != LP_CHANGE_DIR || change->ino.nr != dir->id.nr)
			continue;
		if (change->dir.seal || change->dir.unseal)
			return change->dir.seal;
	}
	return dir->is_sealed;
}

static uint64_t entries_before(const struct lpi_mem_store *store, uint32_t idx,
			       const struct lpi_mem_dir *dir)
{
	int64_t cnt = (int64_t)dir->entries_cnt;
	while (idx-- > 0)
		if (store->steps[idx].dir == dir)
			cnt += store->steps[idx].delta;
	LP_ASSERT(cnt >= 0);
	return (uint64_t)cnt;
}

/* --- Preparing -------------------------------------------------------------------------------- */

static int prepare_create(struct lpi_mem_store *store, const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *change = &op->txn.changes[idx];
	if (inode_before(store, op, idx, change->ino) != NULL)
		return -EEXIST;
	store->steps[idx].inode = lpi_mem_inode_new(change);
	return store->steps[idx].inode == NULL ? -ENOSPC : 0;
}

static int prepare_link(const struct lp_store_op *op, uint32_t idx,
			const struct lpi_mem_inode *inode)
{
	/* The sum of all deltas so far lies far inside of 64 bits. */
	int64_t nlink = (int64_t)nlink_before(op, idx, inode);
	nlink += op->txn.changes[idx].inode.delta;
	return nlink < 0 || nlink > (int64_t)UINT32_MAX ? -EOVERFLOW : 0;
}

static int prepare_item(struct lpi_mem_store *store, const struct lp_change *change, uint32_t idx)
{
	store->steps[idx].item = lpi_mem_item_new(change);
	return store->steps[idx].item == NULL ? -ENOSPC : 0;
}

static int prepare_data(struct lpi_mem_store *store, const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *change = &op->txn.changes[idx];
	struct lpi_mem_inode *src = NULL;
	int err = lpi_mem_file_err(store->steps[idx].inode);
	if (err < 0)
		return err;
	if (change->type == LP_CHANGE_CLONE) {
		src = inode_before(store, op, idx, change->clone.src);
		if (src == NULL)
			return -ENOENT;
	}
	return lpi_mem_data_prepare(store, change, store->steps[idx].inode, src);
}

/* With what is left of its fragment here. */
static int prepare_remove(struct lpi_mem_store *store, uint32_t idx,
			  const struct lpi_mem_inode *inode)
{
	struct lpi_mem_dir *dir = lpi_mem_dir_find(store, (struct lp_ino){inode->id.nr});
	if (inode->attrs.type != LP_INODE_TYPE_DIR || dir == NULL)
		return 0;
	store->steps[idx].dir = dir;
	return entries_before(store, idx, dir) > 0 ? -ENOTEMPTY : 0;
}

/* Of what is there before the transaction. What is no file is refused data for that. */
static int heed_flags(const struct lpi_mem_store *store, const struct lp_store_op *op,
		      const struct lp_change *change)
{
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, change->ino);
	if (inode == NULL ||
	    (lpi_change_is_data(change->type) && inode->attrs.type != LP_INODE_TYPE_FILE))
		return 0;
	return lpi_store_heed_flags(op, change, inode->attrs.flags, inode->attrs.size_bytes);
}

/* A change to an inode that is there. */
static int prepare_inode(struct lpi_mem_store *store, const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *change = &op->txn.changes[idx];
	struct lpi_mem_inode *inode = inode_before(store, op, idx, change->ino);
	if (inode == NULL)
		return -ENOENT;
	store->steps[idx].inode = inode;
	int err = heed_flags(store, op, change);
	if (err < 0)
		return err;
	if (lpi_change_is_data(change->type))
		return prepare_data(store, op, idx);
	if (change->type == LP_CHANGE_SET)
		return lpi_store_check_set(change, inode->attrs.type);
	if (change->type == LP_CHANGE_LINK)
		return prepare_link(op, idx, inode);
	if (change->type == LP_CHANGE_REMOVE)
		return prepare_remove(store, idx, inode);
	if (change->type == LP_CHANGE_XATTR_SET || change->type == LP_CHANGE_OMAP_SET)
		return prepare_item(store, change, idx);
	if (change->type == LP_CHANGE_XATTR_REMOVE &&
	    !is_there_before(op, idx, LP_CHANGE_XATTR_SET, LP_CHANGE_XATTR_REMOVE, &inode->xattrs))
		return -ENODATA;
	return 0;
}

static int prepare_entry(struct lpi_mem_store *store, const struct lp_store_op *op, uint32_t idx,
			 struct lpi_mem_dir *dir)
{
	const struct lp_change *change = &op->txn.changes[idx];
	bool is_there = is_there_before(op, idx, LP_CHANGE_ENTRY_SET, LP_CHANGE_ENTRY_REMOVE,
					&dir->entries);
	if (change->type == LP_CHANGE_ENTRY_REMOVE) {
		store->steps[idx].delta = -1;
		return is_there ? 0 : -ENOENT;
	}
	if (is_sealed_before(op, idx, dir))
		return -ENOENT;
	store->steps[idx].delta = is_there ? 0 : 1;
	return prepare_item(store, change, idx);
}

static int prepare_dir(struct lpi_mem_store *store, const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *change = &op->txn.changes[idx];
	/* Also when the transaction fails: an empty one is as good as none. */
	struct lpi_mem_dir *dir = lpi_mem_dir_make(store, change->ino);
	if (dir == NULL)
		return -ENOSPC;
	store->steps[idx].dir = dir;
	if (change->type != LP_CHANGE_DIR)
		return prepare_entry(store, op, idx, dir);
	bool must_be_empty = change->dir.seal || change->dir.drop;
	return must_be_empty && entries_before(store, idx, dir) > 0 ? -ENOTEMPTY : 0;
}

static int prepare(struct lpi_mem_store *store, const struct lp_store_op *op, uint32_t idx)
{
	const struct lp_change *change = &op->txn.changes[idx];
	store->steps[idx] = (struct lpi_mem_step){NULL, NULL, NULL, 0};
	if (lpi_change_is_guard(change->type))
		return check_guard(store, change);
	if (change->type == LP_CHANGE_CREATE)
		return prepare_create(store, op, idx);
	if (lpi_change_is_inode(change->type))
		return prepare_inode(store, op, idx);
	if (change->type != LP_CHANGE_RECORD)
		return prepare_dir(store, op, idx);
	return change->named.value.data == NULL ? 0 : prepare_item(store, change, idx);
}

static void undo(struct lpi_mem_store *store, const struct lp_store_op *op, uint32_t cnt)
{
	lpi_mem_data_undo(store);
	for (uint32_t i = 0; i < cnt; i++) {
		free(store->steps[i].item);
		if (op->txn.changes[i].type == LP_CHANGE_CREATE)
			lpi_mem_inode_free(store->steps[i].inode);
	}
}

/* --- Applying --------------------------------------------------------------------------------- */

static void set_attrs(struct lp_attrs *to, const struct lp_attrs *from, uint32_t mask)
{
	if ((mask & LP_ATTR_MODE) != 0)
		to->mode = from->mode;
	if ((mask & LP_ATTR_UID) != 0)
		to->uid = from->uid;
	if ((mask & LP_ATTR_GID) != 0)
		to->gid = from->gid;
	if ((mask & LP_ATTR_NLINK) != 0)
		to->nlink = from->nlink;
	if ((mask & LP_ATTR_ATIME) != 0)
		to->atime_ns = from->atime_ns;
	if ((mask & LP_ATTR_MTIME) != 0)
		to->mtime_ns = from->mtime_ns;
	if ((mask & LP_ATTR_CTIME) != 0)
		to->ctime_ns = from->ctime_ns;
	if ((mask & LP_ATTR_BTIME) != 0)
		to->btime_ns = from->btime_ns;
	if ((mask & LP_ATTR_FLAGS) != 0)
		to->flags = from->flags;
	if ((mask & LP_ATTR_PARENT) != 0)
		to->parent = from->parent;
}

static void apply_create(struct lpi_mem_store *store, struct lpi_mem_inode *inode)
{
	struct lp_ino ino = {inode->id.nr};
	lpi_mem_table_insert(&store->inodes, &inode->id);
	lpi_mem_inodes_insert(&store->inodes_by_nr, inode);
	/* Numbers that tests and tools choose themselves are not given again (rule N5). */
	if (lp_ino_shard(ino) == store->shard_idx && ino.nr >= store->next_ino)
		store->next_ino = ino.nr + 1;
}

static void remove_mark(struct lpi_mem_store *store, uint64_t nr)
{
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, (struct lp_ino){nr});
	const struct lp_bytes name = {key.bytes, (uint32_t)key.len};
	if (lpi_mem_item_find(&store->records, name) != NULL)
		lpi_mem_item_remove(&store->records, name);
}

static void apply_remove(struct lpi_mem_store *store, struct lpi_mem_inode *inode)
{
	if (inode->attrs.nlink == 0)
		remove_mark(store, inode->id.nr);
	if (inode->attrs.type == LP_INODE_TYPE_DIR)
		lpi_mem_dir_drop(store, (struct lp_ino){inode->id.nr});
	lpi_mem_table_remove(&store->inodes, &inode->id);
	lpi_mem_inodes_remove(&store->inodes_by_nr, inode);
	lpi_mem_inode_free(inode);
}

static void apply_inode(struct lpi_mem_store *store, const struct lp_change *change,
			const struct lpi_mem_step *step)
{
	struct lpi_mem_inode *inode = step->inode;
	if (lpi_change_is_news(change) && inode->bumped_by != store->txn_nr) {
		inode->bumped_by = store->txn_nr;
		inode->attrs.version_nr++;
	}
	inode->attrs.version_nr = LP_MAX(inode->attrs.version_nr, lpi_change_version(change));
	if (lpi_change_is_data(change->type))
		lpi_mem_data_apply(store, change);
	else if (change->type == LP_CHANGE_CREATE)
		apply_create(store, inode);
	else if (change->type == LP_CHANGE_REMOVE)
		apply_remove(store, inode);
	else if (change->type == LP_CHANGE_SET)
		set_attrs(&inode->attrs, change->inode.attrs, change->inode.mask);
	else if (change->type == LP_CHANGE_LINK)
		inode->attrs.nlink += (uint32_t)change->inode.delta;
	else if (change->type == LP_CHANGE_XATTR_SET)
		(void)lpi_mem_item_put(&inode->xattrs, step->item); /* new or not */
	else if (change->type == LP_CHANGE_OMAP_SET)
		(void)lpi_mem_item_put(&inode->omap, step->item);
	else if (change->type == LP_CHANGE_XATTR_REMOVE)
		lpi_mem_item_remove(&inode->xattrs, change->named.name);
	else if (lpi_mem_item_find(&inode->omap, change->named.name) != NULL)
		lpi_mem_item_remove(&inode->omap, change->named.name);
}

static void apply_dir(const struct lp_change *change, const struct lpi_mem_step *step)
{
	struct lpi_mem_dir *dir = step->dir;
	LP_ASSERT(dir != NULL); /* prepare_dir() has found it */
	dir->entries_cnt += (uint64_t)(int64_t)step->delta;
	if (change->type == LP_CHANGE_ENTRY_SET) {
		LP_ASSERT(step->item != NULL);
		if (lpi_mem_item_put(&dir->entries, step->item)) {
			step->item->insertion = ++dir->last_insertion;
			dir->name_bytes += change->named.name.len;
		}
	} else if (change->type == LP_CHANGE_ENTRY_REMOVE) {
		lpi_mem_item_remove(&dir->entries, change->named.name);
		dir->name_bytes -= change->named.name.len;
	} else {
		dir->is_sealed = (dir->is_sealed || change->dir.seal) && !change->dir.unseal;
		dir->mtime_ns = lpi_dir_time(dir->mtime_ns, change->dir.mtime_ns);
		dir->ctime_ns = lpi_dir_time(dir->ctime_ns, change->dir.ctime_ns);
	}
}

static void apply_record(struct lpi_mem_store *store, const struct lp_change *change,
			 const struct lpi_mem_step *step)
{
	if (step->item != NULL)
		(void)lpi_mem_item_put(&store->records, step->item); /* new or not */
	else if (lpi_mem_item_find(&store->records, change->named.name) != NULL)
		lpi_mem_item_remove(&store->records, change->named.name);
}

static void apply(struct lpi_mem_store *store, const struct lp_change *change,
		  const struct lpi_mem_step *step)
{
	if (lpi_change_is_inode(change->type))
		apply_inode(store, change, step);
	else if (change->type == LP_CHANGE_RECORD)
		apply_record(store, change, step);
	else if (lpi_change_drops(change))
		lpi_mem_dir_drop(store, change->ino);
	else if (!lpi_change_is_guard(change->type))
		apply_dir(change, step);
}

/* --- All -------------------------------------------------------------------------------------- */

/* The change whose inode's version is told; change_cnt: none. */
static uint32_t telling_idx(const struct lp_store_op *op)
{
	uint32_t first = op->txn.change_cnt;
	for (uint32_t i = op->txn.change_cnt; i-- > 0;) {
		if (lpi_change_is_data(op->txn.changes[i].type))
			return i;
		if (lpi_change_is_inode(op->txn.changes[i].type))
			first = i;
	}
	return first;
}

static void give_results(const struct lpi_mem_store *store, struct lp_store_op *op)
{
	uint32_t idx = telling_idx(op);
	if (idx == op->txn.change_cnt)
		return;
	const struct lp_change *change = &op->txn.changes[idx];
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, change->ino);
	if (inode != NULL)
		op->txn.version_nr = inode->attrs.version_nr;
	if (change->type != LP_CHANGE_WRITE)
		return;
	op->txn.offset = store->data.offset;
	op->txn.path = LP_PATH_DIRECT;
}

int lpi_mem_txn(struct lpi_mem_store *store, struct lp_store_op *op)
{
	store->txn_nr++;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		int err = prepare(store, op, i);
		if (err < 0) {
			op->txn.failed_idx = i;
			undo(store, op, i + 1);
			return err;
		}
	}
	for (uint32_t i = 0; i < op->txn.change_cnt; i++)
		apply(store, &op->txn.changes[i], &store->steps[i]);
	give_results(store, op);
	return 0;
}
