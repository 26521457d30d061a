/* SPDX-License-Identifier: Apache-2.0 */
/* Preparation of a transaction: brings what it needs into memory and checks it: inodes, fragments,
 * entries, xattrs, records, and the guards. Then it computes the room to reserve in the group.
 *
 * All of it starts again from the first change when a record was missing, so no decision is kept
 * halfway. Nodes stay pinned meanwhile. Claimed inodes and names cannot change before the
 * transaction is applied. Fragments are not claimed, because otherwise creates in one directory
 * would run one after the other. They are checked last, in the turn that applies. */
#include <string.h>

#include "store/block/write/txn.h"

#define KEY_HEAD 9u /* space and inode */

static bool same_bytes(struct lp_kv_bytes have, const struct lp_bytes *want)
{
	return have.len == want->len &&
	       (want->len == 0 || memcmp(have.data, want->data, have.len) == 0);
}

static void need_record(struct lpi_txn *txn, uint64_t bytes)
{
	txn->need.batch_bytes += (uint32_t)bytes + LP_COMMIT_RECORD_BYTES;
}

/* --- Inodes ----------------------------------------------------------------------------------- */

static int get_inode(struct lpi_txn *txn, struct lp_ino ino, struct lpi_node **ret_node)
{
	struct lpi_nodes *nodes = &txn->block->nodes;
	const struct lp_kv_bytes none = {NULL, 0};
	if (!lpi_ino_is_fresh(txn->block, ino))
		return lpi_node_get(&txn->warmer, LPI_NODE_INODE, ino.nr, true, ret_node);
	*ret_node = lpi_node_find(nodes, LPI_NODE_INODE, ino.nr);
	return *ret_node != NULL ? 0 : lpi_node_load(nodes, LPI_NODE_INODE, ino.nr, none, ret_node);
}

static int touch(struct lpi_txn *txn, struct lp_ino ino, struct lpi_touched **ret_touched)
{
	struct lpi_node *node = NULL;
	*ret_touched = lpi_txn_touched(txn, ino);
	if (*ret_touched != NULL)
		return 0;
	int err = get_inode(txn, ino, &node);
	if (err == 0)
		err = lpi_txn_pin(txn, node);
	if (err < 0)
		return err;
	LP_ASSERT(txn->touched_cnt < LP_STORE_TOUCHED_MAX);
	struct lpi_inode *inode = lpi_inode_of(node);
	txn->touched[txn->touched_cnt] = (struct lpi_touched){
		.inode = inode,
		.nlink = inode->rec.nlink,
		.type = inode->rec.type,
		.will_exist = lpi_inode_is_there(inode),
	};
	*ret_touched = &txn->touched[txn->touched_cnt++];
	return 0;
}

static int touch_existing(struct lpi_txn *txn, struct lp_ino ino, struct lpi_touched **ret_touched)
{
	int err = touch(txn, ino, ret_touched);
	return err == 0 && !(*ret_touched)->will_exist ? -ENOENT : err;
}

static int heed_flags(const struct lpi_txn *txn, const struct lp_change *change,
		      const struct lpi_touched *touched)
{
	const struct lp_inode *rec = &touched->inode->rec;
	return lpi_store_heed_flags(txn->op, change, rec->flags, rec->size_bytes);
}

/* For a change that the inode's flags must allow. */
static int touch_changing(struct lpi_txn *txn, const struct lp_change *change,
			  struct lpi_touched **ret_touched)
{
	int err = touch_existing(txn, change->ino, ret_touched);
	return err == 0 ? heed_flags(txn, change, *ret_touched) : err;
}

static void mark_changed(struct lpi_touched *touched, const struct lp_change *change)
{
	touched->is_changed = true;
	touched->is_newer = touched->is_newer || lpi_change_is_news(change);
}

static int create(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_touched *touched = NULL;
	if (lp_ino_shard(change->ino) != txn->block->options.shard_idx)
		return -EINVAL;
	int err = touch(txn, change->ino, &touched);
	if (err < 0)
		return err;
	if (touched->inode->node.exists || touched->will_exist || touched->is_changed)
		return -EEXIST;
	err = lpi_inode_make_room(touched->inode, LPI_PART_NAME, change->inode.name.len);
	if (err == 0)
		err = lpi_inode_make_room(touched->inode, LPI_PART_TARGET,
					  change->inode.target.len);
	touched->will_exist = true;
	mark_changed(touched, change);
	touched->type = change->inode.attrs->type;
	touched->nlink = change->inode.attrs->nlink;
	slot->inode = touched->inode;
	txn->need.batch_bytes += change->inode.name.len + change->inode.target.len;
	return err;
}

static int set_attrs(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_touched *touched = NULL;
	int err = touch_changing(txn, change, &touched);
	if (err == 0)
		err = lpi_store_check_set(change, touched->type);
	if (err < 0)
		return err;
	slot->inode = touched->inode;
	mark_changed(touched, change);
	if ((change->inode.mask & LP_ATTR_NLINK) != 0)
		touched->nlink = change->inode.attrs->nlink;
	if ((change->inode.mask & LP_ATTR_PARENT) != 0) {
		err = lpi_inode_make_room(touched->inode, LPI_PART_NAME, change->inode.name.len);
		txn->need.batch_bytes += change->inode.name.len;
	}
	return err;
}

static int add_links(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_touched *touched = NULL;
	int err = touch_changing(txn, change, &touched);
	if (err < 0)
		return err;
	slot->inode = touched->inode;
	mark_changed(touched, change);
	touched->nlink += change->inode.delta;
	return touched->nlink < 0 || touched->nlink > UINT32_MAX ? -EOVERFLOW : 0;
}

static int pin_for_release(void *arg, struct lpi_node *node)
{
	return lpi_txn_pin(arg, node);
}

static int wait_for_trim(struct lpi_txn *txn, struct lpi_inode *inode)
{
	if (inode->trim->error != 0)
		return inode->trim->error;
	lpi_txn_move(txn, LPI_TXN_TRIM);
	lpi_trim_wait(inode->trim, &txn->waiter);
	return LPI_WAIT;
}

/* All of the inode goes at once. */
static int remove_small(struct lpi_txn *txn, struct lpi_inode *inode)
{
	struct lpi_release_plan plan = {.warmer = &txn->warmer, .pin = pin_for_release, .arg = txn};
	if (lp_extmap_blocks(&inode->map) == 0)
		return 0;
	int err = lpi_release_prepare(&plan, inode,
				      (struct lp_extmap_range){0, LP_EXTMAP_LEAF_BLOCKS}, true);
	txn->need.change_cnt += plan.changes;
	txn->need.batch_bytes += LPI_LEAF_NEED;
	return err;
}

/* Its blocks can be released at once; not those of a fragmented clone. */
static bool is_small(struct lpi_txn *txn, struct lpi_inode *inode)
{
	struct lpi_release_plan plan = {.warmer = &txn->warmer};
	const struct lp_extmap_range all = {0, LP_EXTMAP_LEAF_BLOCKS};
	if (lp_extmap_blocks(&inode->map) == 0)
		return true;
	/* The map is in its root: no leaf is missing. */
	return lp_extmap_is_small(&inode->map) && lpi_release_count(&plan, inode, all, true) == 0 &&
	       plan.refs_cnt <= LPI_GROUPS_SMALL;
}

/* Keys of its own that exist, or that an earlier change makes. */
static bool has_keys(const struct lpi_txn *txn, const struct lp_change *change,
		     const struct lpi_inode *inode)
{
	const struct lp_change *first = txn->op->txn.changes;
	for (const struct lp_change *at = first; at < change; at++) {
		bool makes = at->type == LP_CHANGE_XATTR_SET || at->type == LP_CHANGE_OMAP_SET;
		if (makes && at->ino.nr == change->ino.nr)
			return true;
	}
	return (inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) != 0;
}

static int get_fragment(struct lpi_txn *txn, struct lp_ino dir, struct lpi_slot *slot);

/* Unreadable parts of an inode do not keep the rest from being removed. A submitter that has
 * promised a removal to other shards must be able to make it (rule N1). Damaged parts are left to a
 * trim, which leaves their blocks taken. */
static bool is_damage(int err)
{
	return err == -EBADMSG || err == -EUCLEAN || err == -EIO;
}

static int remove_inode(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_touched *touched = NULL;
	int err = touch_changing(txn, change, &touched);
	if (err == 0 && touched->type == LP_INODE_TYPE_DIR)
		err = get_fragment(txn, change->ino, slot);
	if (err < 0)
		return err;
	struct lpi_inode *inode = touched->inode;
	/* Not made or written by the same transaction: lpi_store_check() refuses that. */
	LP_ASSERT(inode->node.exists);
	if (inode->trim != NULL && inode->trim->error == 0)
		return wait_for_trim(txn, inode);
	slot->inode = inode;
	touched->will_exist = false;
	mark_changed(touched, change);
	need_record(txn, KEY_HEAD + LP_UNFINISHED_VALUE_SIZE);
	if (inode->trim != NULL) /* given up: the removal takes it over */
		return 0;
	if (!has_keys(txn, change, inode) && is_small(txn, inode)) {
		err = remove_small(txn, inode);
		if (!is_damage(err))
			return err;
	}
	if (slot->trim != NULL)
		return 0;
	if (lpi_trims_are_many(txn->block))
		return lpi_txn_wait_memory(txn);
	return lpi_trim_new(txn->block, &slot->trim);
}

/* --- Data ------------------------------------------------------------------------------------- */

static int touch_file(struct lpi_txn *txn, struct lp_ino ino, struct lpi_touched **ret_touched)
{
	int err = touch_existing(txn, ino, ret_touched);
	if (err < 0)
		return err;
	if ((*ret_touched)->type == LP_INODE_TYPE_DIR)
		return -EISDIR;
	if ((*ret_touched)->type != LP_INODE_TYPE_FILE)
		return -EINVAL;
	struct lpi_inode *inode = (*ret_touched)->inode;
	return inode->trim != NULL ? wait_for_trim(txn, inode) : 0;
}

static int edit(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_touched *touched = NULL;
	int err = touch_file(txn, change->ino, &touched);
	if (err == 0)
		err = heed_flags(txn, change, touched);
	if (err != 0)
		return err;
	slot->inode = touched->inode;
	mark_changed(touched, change);
	txn->edit.inode = touched->inode;
	if (change->type == LP_CHANGE_CLONE)
		err = touch_file(txn, change->clone.src, &touched);
	return err == 0 ? lpi_edit_check(change, slot->inode, touched->inode) : err;
}

/* --- Fragments and entries -------------------------------------------------------------------- */

/* How many entries earlier changes add to the same fragment. */
static int64_t added_before(const struct lpi_txn *txn, uint32_t idx)
{
	int64_t added = 0;
	for (uint32_t i = 0; i < idx; i++) {
		if (txn->slots[i].fragment != txn->slots[idx].fragment)
			continue;
		enum lp_change_type type = txn->op->txn.changes[i].type;
		added += type == LP_CHANGE_ENTRY_SET && !txn->slots[i].existed;
		added -= type == LP_CHANGE_ENTRY_REMOVE;
	}
	return added;
}

/* Checked in the turn that applies, so no seal comes in between (rule N2). */
static bool is_sealed_then(const struct lpi_txn *txn, uint32_t idx)
{
	bool is_sealed = txn->slots[idx].fragment->value.is_sealed != 0;
	for (uint32_t i = 0; i < idx; i++) {
		const struct lp_change *change = &txn->op->txn.changes[i];
		if (change->type == LP_CHANGE_DIR &&
		    txn->slots[i].fragment == txn->slots[idx].fragment)
			is_sealed = (is_sealed || change->dir.seal) && !change->dir.unseal;
	}
	return is_sealed;
}

static int check_fragment(const struct lpi_txn *txn, uint32_t idx)
{
	const struct lp_change *change = &txn->op->txn.changes[idx];
	const struct lp_fragment_value *value = &txn->slots[idx].fragment->value;
	int64_t entries = (int64_t)value->entries_cnt + added_before(txn, idx);
	switch (change->type) {
	case LP_GUARD_EMPTY:
		return value->entries_cnt > 0 ? -ENOTEMPTY : 0;
	case LP_CHANGE_ENTRY_SET:
		if (is_sealed_then(txn, idx))
			return -ENOENT;
		return value->next_insertion >= LP_INSERTION_MAX ? -ENOSPC : 0;
	case LP_CHANGE_REMOVE:
		return entries > 0 ? -ENOTEMPTY : 0;
	case LP_CHANGE_DIR:
		return (change->dir.seal || change->dir.drop) && entries > 0 ? -ENOTEMPTY : 0;
	default:
		return 0;
	}
}

static int get_fragment(struct lpi_txn *txn, struct lp_ino dir, struct lpi_slot *slot)
{
	struct lpi_node *node = NULL;
	int err = lpi_node_get(&txn->warmer, LPI_NODE_FRAGMENT, dir.nr, false, &node);
	if (err < 0)
		return err;
	slot->fragment = lpi_fragment_of(node);
	err = lpi_txn_pin(txn, node);
	/* Once in its order, and once more in the turn that applies. */
	return err == 0 ? check_fragment(txn, (uint32_t)(slot - txn->slots)) : err;
}

static bool is_of_entry(const struct lp_change *change, const struct lp_change *entry)
{
	bool is = change->type == LP_GUARD_ENTRY || change->type == LP_GUARD_NO_ENTRY ||
		  change->type == LP_GUARD_DIR || change->type == LP_CHANGE_ENTRY_SET ||
		  change->type == LP_CHANGE_ENTRY_REMOVE;
	const struct lp_bytes *name = &change->named.name;
	return is && change->ino.nr == entry->ino.nr && name->len == entry->named.name.len &&
	       memcmp(name->data, entry->named.name.data, name->len) == 0;
}

/* A guard and a change of one name are usual, so the index is asked only once. All lookups of a
 * transaction see the state before it. */
static const struct lpi_slot *same_entry_before(const struct lpi_txn *txn,
						const struct lpi_slot *slot)
{
	const struct lp_change *changes = txn->op->txn.changes;
	size_t idx = (size_t)(slot - txn->slots);
	for (size_t i = 0; i < idx; i++) {
		if (is_of_entry(&changes[i], &changes[idx]))
			return &txn->slots[i];
	}
	return NULL;
}

static int find_entry(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	const struct lpi_slot *before = same_entry_before(txn, slot);
	struct lp_dirent_value value;
	struct lpi_point point;
	struct lp_key key;
	if (slot->was_found)
		return 0;
	if (before != NULL) {
		slot->existed = before->existed;
		slot->insertion = before->insertion;
		slot->target_nr = before->target_nr;
		return 0;
	}
	if (lpi_fragment_lacks(&txn->block->nodes, change->ino.nr, change->named.name.data,
			       change->named.name.len)) {
		slot->existed = false;
		slot->was_found = true;
		return 0;
	}
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, change->ino, change->named.name.data,
		       change->named.name.len);
	int err = lpi_point_get(&txn->warmer, &key, false, true, &point);
	if (err < 0)
		return err;
	slot->existed = point.bytes.data != NULL;
	if (slot->existed)
		err = lp_dirent_read(point.bytes.data, point.bytes.len, &key, &value);
	if (slot->existed && err == 0) {
		slot->insertion = value.insertion;
		slot->target_nr = value.ino;
	}
	lpi_point_end(&point);
	slot->was_found = err == 0;
	return err;
}

static int entry(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	int err = find_entry(txn, change, slot);
	if (err < 0)
		return err;
	switch (change->type) {
	case LP_GUARD_ENTRY:
		if (!slot->existed)
			return -ENOENT;
		return change->named.target.nr != 0 && change->named.target.nr != slot->target_nr
			       ? -ECANCELED
			       : 0;
	case LP_GUARD_NO_ENTRY:
		return slot->existed ? -EEXIST : 0;
	case LP_CHANGE_ENTRY_REMOVE:
		if (!slot->existed)
			return -ENOENT;
		break;
	default:
		break;
	}
	need_record(txn, KEY_HEAD + change->named.name.len + LP_DIRENT_VALUE_SIZE);
	return get_fragment(txn, change->ino, slot);
}

static int guard_dir(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	int err = change->named.name.data == NULL ? 0 : find_entry(txn, change, slot);
	return err < 0 ? err : get_fragment(txn, change->ino, slot);
}

/* --- Xattrs, omap, records -------------------------------------------------------------------- */

/* The value of an xattr, from either place; the point holds it. */
static int find_xattr(struct lpi_txn *txn, const struct lp_change *change, struct lpi_inode *inode,
		      struct lpi_point *point)
{
	struct lp_xattr xattr;
	struct lp_key key;
	const struct lp_bytes *name = &change->named.name;
	*point = (struct lpi_point){.bytes = {0}};
	if (lp_xattrs_find(inode->rec.xattrs, name->data, name->len, &xattr)) {
		/* An empty value is there, too. */
		point->bytes = (struct lp_kv_bytes){xattr.value.at != NULL ? xattr.value.at
									   : (const void *)"",
						    xattr.value.len};
		return 0;
	}
	if ((inode->rec.flags & LP_INODE_FLAG_HAS_KEYS) == 0)
		return 0;
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, change->ino, name->data, name->len);
	return lpi_point_get(&txn->warmer, &key, false, true, point);
}

static int guard_value(const struct lp_change *change, const struct lpi_point *point, int absent)
{
	bool exists = point->bytes.data != NULL;
	if (change->type == LP_GUARD_NO_XATTR || change->type == LP_GUARD_NO_RECORD)
		return exists ? -EEXIST : 0;
	if (!exists)
		return absent;
	return change->named.value.data != NULL && !same_bytes(point->bytes, &change->named.value)
		       ? -ECANCELED
		       : 0;
}

/* For a guard or a removal. */
static int check_xattr(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_point point;
	int err = slot->was_found ? 0 : find_xattr(txn, change, slot->inode, &point);
	if (err < 0 || slot->was_found)
		return err;
	slot->existed = point.bytes.data != NULL;
	if (change->type == LP_CHANGE_XATTR_REMOVE)
		err = slot->existed ? 0 : -ENODATA;
	else
		err = guard_value(change, &point, -ENODATA);
	lpi_point_end(&point);
	slot->was_found = err == 0;
	return err;
}

static int xattr(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_touched *touched = NULL;
	bool is_guard = lpi_change_is_guard(change->type);
	int err = is_guard ? touch_existing(txn, change->ino, &touched)
			   : touch_changing(txn, change, &touched);
	if (err < 0)
		return err;
	slot->inode = touched->inode;
	if (change->type != LP_CHANGE_XATTR_SET)
		err = check_xattr(txn, change, slot);
	if (err < 0 || is_guard)
		return err;
	mark_changed(touched, change);
	need_record(txn, KEY_HEAD + change->named.name.len + change->named.value.len);
	txn->need.batch_bytes += LP_INODE_XATTRS_MAX;
	return lpi_inode_make_room(touched->inode, LPI_PART_XATTRS, LP_INODE_XATTRS_MAX);
}

static int omap(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_touched *touched = NULL;
	int err = touch_changing(txn, change, &touched);
	if (err < 0)
		return err;
	slot->inode = touched->inode;
	mark_changed(touched, change);
	need_record(txn, KEY_HEAD + change->named.name.len + change->named.value.len);
	return 0;
}

/* While the inode is being trimmed its mark is the trim's. A trim that damage has stopped may be
 * replaced by an orphan's mark, because an orphan is removed as a whole. It may not be replaced by
 * no mark, because the next opening must know of it. */
static int mark(struct lpi_txn *txn, const struct lp_change *change)
{
	struct lpi_touched *touched = NULL;
	int err = touch(txn, lpi_change_mark_of(change), &touched);
	if (err < 0)
		return err;
	struct lpi_inode *inode = touched->inode;
	if (inode->trim == NULL || (inode->trim->error != 0 && change->named.value.data != NULL))
		return 0;
	return wait_for_trim(txn, inode);
}

static int record(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	struct lpi_point point;
	struct lp_key key;
	const struct lp_bytes *name = &change->named.name;
	if (change->type == LP_CHANGE_RECORD) {
		need_record(txn, (uint64_t)name->len + change->named.value.len);
		return lpi_change_mark_of(change).nr != 0 ? mark(txn, change) : 0;
	}
	if (slot->was_found)
		return 0;
	key.len = name->len;
	memcpy(key.bytes, name->data, name->len);
	int err = lpi_point_get(&txn->warmer, &key, false, true, &point);
	if (err < 0)
		return err;
	err = guard_value(change, &point, -ENOENT);
	lpi_point_end(&point);
	slot->was_found = err == 0;
	return err;
}

/* --- All of them ------------------------------------------------------------------------------ */

static int guard_inode(struct lpi_txn *txn, const struct lp_change *change)
{
	struct lpi_touched *touched = NULL;
	int err = touch(txn, change->ino, &touched);
	if (err < 0)
		return err;
	if (change->type == LP_GUARD_NO_INODE)
		return touched->will_exist ? -EEXIST : 0;
	if (!touched->will_exist)
		return -ENOENT;
	const struct lp_inode *rec = &touched->inode->rec;
	if (!lpi_guard_flags_hold(change, rec->flags))
		return -EPERM;
	return lpi_guard_inode_holds(change, rec->version_nr, rec->size_bytes, rec->uid, rec->gid,
				     rec->mode)
		       ? 0
		       : -ECANCELED;
}

static int resolve_one(struct lpi_txn *txn, const struct lp_change *change, struct lpi_slot *slot)
{
	switch (change->type) {
	case LP_GUARD_INODE:
	case LP_GUARD_NO_INODE:
		return guard_inode(txn, change);
	case LP_GUARD_ENTRY:
	case LP_GUARD_NO_ENTRY:
	case LP_CHANGE_ENTRY_SET:
	case LP_CHANGE_ENTRY_REMOVE:
		return entry(txn, change, slot);
	case LP_GUARD_XATTR:
	case LP_GUARD_NO_XATTR:
	case LP_CHANGE_XATTR_SET:
	case LP_CHANGE_XATTR_REMOVE:
		return xattr(txn, change, slot);
	case LP_GUARD_DIR:
		return guard_dir(txn, change, slot);
	case LP_GUARD_EMPTY:
	case LP_CHANGE_DIR:
		return get_fragment(txn, change->ino, slot);
	case LP_GUARD_RECORD:
	case LP_GUARD_NO_RECORD:
	case LP_CHANGE_RECORD:
		return record(txn, change, slot);
	case LP_CHANGE_CREATE:
		return create(txn, change, slot);
	case LP_CHANGE_SET:
		return set_attrs(txn, change, slot);
	case LP_CHANGE_LINK:
		return add_links(txn, change, slot);
	case LP_CHANGE_REMOVE:
		return remove_inode(txn, change, slot);
	case LP_CHANGE_WRITE:
	case LP_CHANGE_TRUNCATE:
	case LP_CHANGE_PUNCH:
	case LP_CHANGE_PREALLOC:
	case LP_CHANGE_CLONE:
		return edit(txn, change, slot);
	case LP_CHANGE_OMAP_SET:
	case LP_CHANGE_OMAP_REMOVE:
		return omap(txn, change, slot);
	case LP_CHANGE_CNT:
	default:
		return -EINVAL;
	}
}

int lpi_txn_resolve(struct lpi_txn *txn)
{
	struct lp_store_op *op = txn->op;
	txn->touched_cnt = 0;
	txn->need = (struct lp_commit_need){0};
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		int err = resolve_one(txn, &op->txn.changes[i], &txn->slots[i]);
		if (err == 0)
			continue;
		if (err < 0 && err != -EAGAIN)
			op->txn.failed_idx = i;
		return err;
	}
	txn->is_resolved = true;
	return 0;
}

/* --- Fragments, checked last ------------------------------------------------------------------ */

int lpi_txn_check_fragments(struct lpi_txn *txn)
{
	for (uint32_t i = 0; i < txn->op->txn.change_cnt; i++) {
		if (txn->slots[i].fragment == NULL)
			continue;
		int err = check_fragment(txn, i);
		if (err < 0) {
			txn->op->txn.failed_idx = i;
			return err;
		}
	}
	return 0;
}
