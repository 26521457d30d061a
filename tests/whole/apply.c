/* SPDX-License-Identifier: Apache-2.0 */
/* What each operation does to the model, and what it should be answered.
 *
 * Where several things are wrong at once it is nobody's business which of them is said: the faults
 * are collected, and two different ones are LPI_WHOLE_ANY_ERROR. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "tests/whole/model.h"

struct apply {
	struct lpi_whole *whole;
	const struct lpi_whole_op *op;
	const struct lpi_whole_visit *visit;
	struct lpi_whole_answer *answer;
};

static bool has_flag(const struct lpi_whole_op *op, uint32_t flag)
{
	return (op->flags & flag) != 0;
}

static void fault_if(int *fault, bool is_so, int error)
{
	if (is_so && *fault != error)
		*fault = *fault == 0 ? error : LPI_WHOLE_ANY_ERROR;
}

static void visit(const struct apply *apply)
{
	if (apply->visit != NULL)
		apply->visit->state(apply->visit->arg, apply->whole);
}

static void set_ids(struct lpi_whole_node *node, const struct lpi_whole_op *op)
{
	node->uid = lpi_whole_owner(op->seed);
	node->gid = lpi_whole_owner(op->seed / 7);
}

/* --- Directories ------------------------------------------------------------------------------ */

static void find_dir_fault(const struct lpi_whole *whole, uint32_t slot, int *fault)
{
	const struct lpi_whole_node *dir = lpi_whole_find(whole, slot);
	fault_if(fault, dir == NULL || dir->names == 0, -ENOENT);
	fault_if(fault, dir != NULL && dir->type != LP_INODE_TYPE_DIR, LPI_WHOLE_ANY_ERROR);
}

/* The name is gone already. */
static void dir_goes(struct lpi_whole *whole, uint32_t slot)
{
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_BEING, slot, true);
	for (uint32_t i = 0; whole->touches != NULL && i < whole->shard_cnt; i++) {
		lpi_whole_touch(whole, LPI_WHOLE_TOUCH_FRAGMENT, slot, true);
		whole->touches->items[whole->touches->cnt - 1].shard_idx = i;
	}
}

/* What the name leads to loses it. */
static void lose_name(struct lpi_whole *whole, uint32_t dir, uint32_t name)
{
	uint32_t slot = lpi_whole_entry_find(whole, dir, name)->node;
	bool is_dir = lpi_whole_is_dir(lpi_whole_find(whole, slot));
	lpi_whole_entry_remove(whole, dir, name);
	if (is_dir)
		dir_goes(whole, slot);
	lpi_whole_node_drop(whole, slot);
}

/* Whether dir is node, or below it. */
static bool is_below(const struct lpi_whole *whole, uint32_t dir, uint32_t node)
{
	for (uint32_t i = 0; dir != node; i++) {
		LP_ASSERT(i <= whole->node_cnt);
		if (dir == LPI_WHOLE_ROOT)
			return false;
		dir = lpi_whole_parent(whole, dir);
	}
	return true;
}

/* --- By number and name ----------------------------------------------------------------------- */

static void set_owner(const struct apply *apply, struct lpi_whole_node *node)
{
	node->mode = apply->op->mode & apply->whole->mode_mask;
	bool is_copy = apply->op->kind == LPI_WHOLE_COPY || apply->op->kind == LPI_WHOLE_MOVE;
	if (!apply->whole->is_root_only && !(is_copy && apply->whole->copies_are_roots))
		set_ids(node, apply->op);
}

static void set_items(struct lpi_whole_node *node, const struct lpi_whole_op *op, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		const struct lpi_whole_item item = {.name = LPI_WHOLE_XATTR_ACL + i,
						    .len = LPI_WHOLE_ACL_BYTES,
						    .seed = op->seed + i};
		lpi_whole_item_set(node, &item);
	}
}

static void make_it(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	struct lpi_whole *whole = apply->whole;
	bool is_device = op->type == LP_INODE_TYPE_CHARDEV || op->type == LP_INODE_TYPE_BLOCKDEV;
	bool is_unnamed = has_flag(op, LPI_WHOLE_UNNAMED);
	struct lpi_whole_node *node = lpi_whole_node_add(whole, lpi_whole_slot(op), op->type);
	set_owner(apply, node);
	set_items(node, op, op->items);
	node->rdev = is_device ? op->seed : 0;
	node->target = op->type == LP_INODE_TYPE_SYMLINK ? op->seed : 0;
	if (op->type == LP_INODE_TYPE_SYMLINK)
		node->size_bytes = lpi_whole_target_len(op->seed);
	node->flags = has_flag(op, LPI_WHOLE_SPREAD) ? LP_INODE_FLAG_SPREAD : 0;
	node->is_unnamed = is_unnamed;
	node->opens = is_unnamed || has_flag(op, LPI_WHOLE_AND_OPEN) ? 1 : 0;
	if (!is_unnamed)
		lpi_whole_entry_set(whole, op->dir, op->name, node->slot);
}

static int do_make(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	int fault = 0;
	if (has_flag(op, LPI_WHOLE_UNNAMED)) {
		make_it(apply);
		return 0;
	}
	find_dir_fault(apply->whole, op->dir, &fault);
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(apply->whole, op->dir, op->name);
	if (fault == 0 && entry == NULL)
		make_it(apply);
	if (fault != 0 || entry == NULL)
		return fault;
	struct lpi_whole_node *there = lpi_whole_find(apply->whole, entry->node);
	if (!has_flag(op, LPI_WHOLE_OR_OPEN))
		return -EEXIST;
	if (there->type != LP_INODE_TYPE_FILE)
		return lpi_whole_is_dir(there) ? -EISDIR : -EEXIST;
	there->opens += has_flag(op, LPI_WHOLE_AND_OPEN) ? 1 : 0;
	return 0;
}

static int do_link(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	struct lpi_whole_node *node = lpi_whole_find(apply->whole, op->node);
	int fault = 0;
	find_dir_fault(apply->whole, op->dir, &fault);
	fault_if(&fault, node == NULL, -ENOENT);
	fault_if(&fault, lpi_whole_is_dir(node), -EPERM);
	fault_if(&fault, node != NULL && node->names == 0 && !node->is_unnamed, -ENOENT);
	fault_if(&fault, lpi_whole_entry_find(apply->whole, op->dir, op->name) != NULL, -EEXIST);
	if (fault != 0)
		return fault;
	node->is_unnamed = false;
	lpi_whole_entry_set(apply->whole, op->dir, op->name, op->node);
	return 0;
}

static int do_remove(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	bool is_dir = has_flag(op, LPI_WHOLE_IS_DIR);
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(apply->whole, op->dir, op->name);
	const struct lpi_whole_node *dir = lpi_whole_find(apply->whole, op->dir);
	if (dir != NULL && dir->type != LP_INODE_TYPE_DIR)
		return LPI_WHOLE_ANY_ERROR;
	if (entry == NULL)
		return -ENOENT;
	if (lpi_whole_is_dir(lpi_whole_find(apply->whole, entry->node)) != is_dir)
		return is_dir ? -ENOTDIR : -EISDIR;
	if (is_dir && lpi_whole_entries_in(apply->whole, entry->node) > 0)
		return -ENOTEMPTY;
	lose_name(apply->whole, op->dir, op->name);
	return 0;
}

struct ends {
	uint32_t dir;
	uint32_t name;
	uint32_t to_dir;
	uint32_t to_name;
	bool is_exchange;
};

static int find_rename_fault(const struct lpi_whole *whole, const struct ends *ends, uint32_t from,
			     uint32_t to)
{
	bool has_to = to != UINT32_MAX;
	bool is_dir = lpi_whole_is_dir(lpi_whole_find(whole, from));
	bool to_is_dir = has_to && lpi_whole_is_dir(lpi_whole_find(whole, to));
	int fault = 0;
	if (has_to && !ends->is_exchange) {
		if (to == ends->dir)
			return -ENOTEMPTY;
		if (is_dir != to_is_dir)
			return is_dir ? -ENOTDIR : -EISDIR;
	}
	find_dir_fault(whole, ends->to_dir, &fault);
	if (fault != 0)
		return fault;
	if (is_dir && is_below(whole, ends->to_dir, from))
		return -EINVAL;
	if (ends->is_exchange && to_is_dir && is_below(whole, ends->dir, to))
		return -EINVAL;
	bool goes = to_is_dir && !ends->is_exchange;
	return goes && lpi_whole_entries_in(whole, to) > 0 ? -ENOTEMPTY : 0;
}

static int move_names(struct lpi_whole *whole, const struct ends *ends)
{
	const struct lpi_whole_entry *to_entry =
		lpi_whole_entry_find(whole, ends->to_dir, ends->to_name);
	uint32_t from = lpi_whole_entry_find(whole, ends->dir, ends->name)->node;
	uint32_t to = to_entry == NULL ? UINT32_MAX : to_entry->node;
	if (from == to)
		return 0;
	int fault = find_rename_fault(whole, ends, from, to);
	if (fault != 0)
		return fault;
	if (to != UINT32_MAX && !ends->is_exchange)
		lose_name(whole, ends->to_dir, ends->to_name);
	lpi_whole_entry_remove(whole, ends->dir, ends->name);
	if (ends->is_exchange) {
		lpi_whole_entry_remove(whole, ends->to_dir, ends->to_name);
		lpi_whole_entry_set(whole, ends->dir, ends->name, to);
	}
	lpi_whole_entry_set(whole, ends->to_dir, ends->to_name, from);
	return 0;
}

static int do_rename(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	struct lpi_whole *whole = apply->whole;
	const struct ends ends = {.dir = op->dir,
				  .name = op->name,
				  .to_dir = op->to_dir,
				  .to_name = op->to_name,
				  .is_exchange = has_flag(op, LPI_WHOLE_EXCHANGE)};
	const struct lpi_whole_node *dir = lpi_whole_find(whole, op->dir);
	const struct lpi_whole_node *to_dir = lpi_whole_find(whole, op->to_dir);
	bool is_there = lpi_whole_entry_find(whole, op->to_dir, op->to_name) != NULL;
	if ((dir != NULL && dir->type != LP_INODE_TYPE_DIR) ||
	    (to_dir != NULL && to_dir->type != LP_INODE_TYPE_DIR))
		return LPI_WHOLE_ANY_ERROR;
	if (lpi_whole_entry_find(whole, op->dir, op->name) == NULL)
		return -ENOENT;
	if (is_there && has_flag(op, LPI_WHOLE_NOREPLACE))
		return -EEXIST;
	if (!is_there && ends.is_exchange)
		return -ENOENT;
	return move_names(whole, &ends);
}

static int do_open(const struct apply *apply)
{
	struct lpi_whole_node *node = lpi_whole_find(apply->whole, apply->op->node);
	if (node == NULL)
		return -ENOENT;
	node->opens++;
	return 0;
}

static int do_close(const struct apply *apply)
{
	struct lpi_whole_node *node = lpi_whole_find(apply->whole, apply->op->node);
	if (node == NULL || node->opens == 0)
		return LPI_WHOLE_ANY_ERROR;
	node->opens--;
	lpi_whole_node_drop(apply->whole, node->slot);
	return 0;
}

/* A mode is an access list as well, where there is one. */
static void change_mode(struct lpi_whole_node *node, uint32_t mode)
{
	const struct lpi_whole_item *acl = lpi_whole_item_find(node, false, LPI_WHOLE_XATTR_ACL);
	node->mode = mode;
	if (acl == NULL)
		return;
	struct lpi_whole_item changed = *acl;
	changed.has_perms = true;
	changed.perms = mode & 0777;
	lpi_whole_item_set(node, &changed);
}

/* And the other way round. */
static void take_mode_of_list(struct lpi_whole_node *node)
{
	const struct lpi_whole_item *acl = lpi_whole_item_find(node, false, LPI_WHOLE_XATTR_ACL);
	if (acl != NULL)
		node->mode = (node->mode & ~0777u) | lpi_whole_item_perms(acl);
}

static int do_set(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	struct lpi_whole_node *node = lpi_whole_find(apply->whole, op->node);
	if (node == NULL)
		return LPI_WHOLE_ANYTHING;
	if ((op->mask & LP_ATTR_MODE) != 0)
		change_mode(node, op->mode & apply->whole->mode_mask);
	if ((op->mask & LP_ATTR_UID) != 0)
		set_ids(node, op);
	if ((op->mask & LP_ATTR_MTIME) != 0)
		node->mtime_ns = lpi_whole_time(op->seed);
	node->flags &= ~(uint32_t)LP_INODE_FLAG_MADE_BY_PUT;
	lpi_whole_touch(apply->whole, LPI_WHOLE_TOUCH_INODE, node->slot, true);
	apply->whole->has_changed = true;
	return 0;
}

/* --- What is in an inode ---------------------------------------------------------------------- */

static int data_fault(const struct apply *apply, const struct lpi_whole_node *node)
{
	const struct lpi_whole_op *op = apply->op;
	bool is_append = op->kind == LPI_WHOLE_APPEND;
	uint64_t begin = is_append ? node->size_bytes : op->offset;
	uint64_t length = op->kind == LPI_WHOLE_TRUNCATE ? 0 : op->length;
	int fault = 0;
	bool is_wrong = op->condition != 0 && has_flag(op, LPI_WHOLE_WRONG);
	fault_if(&fault, is_wrong, -ECANCELED);
	fault_if(&fault, lp_range_outside(begin, length, LP_STORE_FILE_MAX), -EFBIG);
	fault_if(&fault, node->type != LP_INODE_TYPE_FILE,
		 lpi_whole_is_dir(node) ? -EISDIR : -EINVAL);
	fault_if(&fault, op->kind != LPI_WHOLE_TRUNCATE && op->length == 0, -EINVAL);
	return fault;
}

static int clone_fault(const struct apply *apply, const struct lpi_whole_node *node)
{
	const struct lpi_whole_op *op = apply->op;
	const struct lpi_whole_node *src = lpi_whole_find(apply->whole, op->to_dir);
	uint64_t end = op->offset + op->length;
	uint64_t src_end = op->src_offset + op->length;
	if (src == NULL)
		return LPI_WHOLE_ANYTHING;
	bool is_elsewhere = lp_ino_shard((struct lp_ino){lpi_whole_ino(apply->whole, src->slot)}) !=
			    lp_ino_shard((struct lp_ino){lpi_whole_ino(apply->whole, node->slot)});
	bool ends_both = src_end == src->size_bytes && end >= node->size_bytes;
	bool is_right = src->type == LP_INODE_TYPE_FILE && !is_elsewhere && op->length > 0 &&
			lp_is_aligned(op->offset | op->src_offset, LP_BLOCK_BYTES) &&
			!lp_range_outside(op->src_offset, op->length, src->size_bytes) &&
			(lp_is_aligned(op->length, LP_BLOCK_BYTES) || ends_both);
	if (src == node)
		is_right = is_right && (src_end <= op->offset || end <= op->src_offset);
	return is_right ? 0 : LPI_WHOLE_ANY_ERROR;
}

static void change_data(const struct apply *apply, struct lpi_whole_node *node)
{
	const struct lpi_whole_op *op = apply->op;
	uint64_t offset = op->kind == LPI_WHOLE_APPEND ? node->size_bytes : op->offset;
	uint8_t *bytes = NULL;
	switch (op->kind) {
	case LPI_WHOLE_WRITE:
	case LPI_WHOLE_APPEND:
		bytes = malloc(op->length);
		LP_ASSERT(bytes != NULL);
		lpi_whole_fill(op->seed, bytes, op->length);
		lpi_whole_write(node, offset, bytes, op->length);
		free(bytes);
		apply->answer->cnt = op->kind == LPI_WHOLE_APPEND ? offset : 0;
		break;
	case LPI_WHOLE_TRUNCATE:
		lpi_whole_truncate(node, op->offset);
		break;
	case LPI_WHOLE_PUNCH:
		lpi_whole_punch(node, op->offset, op->length);
		break;
	case LPI_WHOLE_CLONE:
		lpi_whole_clone(node, lpi_whole_find(apply->whole, op->to_dir), op->src_offset,
				op->offset, op->length);
		lpi_whole_touch(apply->whole, LPI_WHOLE_TOUCH_INODE, op->to_dir, false);
		break;
	default:
		break; /* of preallocated space nothing is seen */
	}
}

static int do_data(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	struct lpi_whole_node *node = lpi_whole_find(apply->whole, op->node);
	if (node == NULL)
		return LPI_WHOLE_ANYTHING;
	int fault = data_fault(apply, node);
	if (op->kind == LPI_WHOLE_CLONE)
		fault = fault == 0 ? clone_fault(apply, node) : LPI_WHOLE_ANY_ERROR;
	if (fault != 0)
		return fault;
	change_data(apply, node);
	if (apply->whole->data_sets_times)
		node->mtime_ns = 0;
	else if (lpi_whole_time(op->seed) != 0)
		node->mtime_ns = lpi_whole_time(op->seed);
	lpi_whole_touch(apply->whole, LPI_WHOLE_TOUCH_INODE, node->slot, true);
	apply->whole->has_changed = true;
	return 0;
}

/* A directory that a put made becomes its owner's first, by a change of its own (rule N2): so a
 * version that was asked for is another one by then. */
static bool become_owned(const struct apply *apply, struct lpi_whole_node *node)
{
	if ((node->flags & LP_INODE_FLAG_MADE_BY_PUT) == 0)
		return false;
	lpi_whole_touch(apply->whole, LPI_WHOLE_TOUCH_INODE, node->slot, true);
	node->flags &= ~(uint32_t)LP_INODE_FLAG_MADE_BY_PUT;
	apply->whole->has_changed = true;
	visit(apply);
	return true;
}

static int do_item(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	struct lpi_whole_node *node = lpi_whole_find(apply->whole, op->node);
	bool is_omap = op->kind == LPI_WHOLE_OMAP_SET || op->kind == LPI_WHOLE_OMAP_REMOVE;
	const struct lpi_whole_item item = {.name = op->name,
					    .len = (uint32_t)op->length,
					    .seed = op->seed,
					    .is_omap = is_omap};
	int fault = 0;
	if (node == NULL)
		return LPI_WHOLE_ANYTHING;
	bool is_other = become_owned(apply, node) || has_flag(op, LPI_WHOLE_WRONG);
	bool is_there = lpi_whole_item_find(node, is_omap, op->name) != NULL;
	fault_if(&fault, op->condition != 0 && is_other, -ECANCELED);
	fault_if(&fault, op->kind == LPI_WHOLE_XATTR_REMOVE && !is_there, -ENODATA);
	if (fault != 0)
		return fault;
	if (op->kind == LPI_WHOLE_XATTR_SET || op->kind == LPI_WHOLE_OMAP_SET)
		lpi_whole_item_set(node, &item);
	else
		lpi_whole_item_remove(node, is_omap, op->name);
	if (op->kind == LPI_WHOLE_XATTR_SET && op->name == LPI_WHOLE_XATTR_ACL &&
	    apply->whole->lists_set_modes)
		take_mode_of_list(node);
	lpi_whole_touch(apply->whole, LPI_WHOLE_TOUCH_INODE, node->slot, true);
	apply->whole->has_changed = true;
	return 0;
}

/* --- By path ---------------------------------------------------------------------------------- */

struct path {
	const uint32_t *names;
	uint32_t depth;
};

static uint32_t last_name(const struct path *path)
{
	return path->names[path->depth - 1];
}

/* The directory of the last name; UINT32_MAX and the fault: there is none. */
static uint32_t walk_to(const struct lpi_whole *whole, const struct path *path, int *fault)
{
	uint32_t dir = LPI_WHOLE_ROOT;
	for (uint32_t i = 0; i + 1 < path->depth; i++) {
		const struct lpi_whole_entry *entry =
			lpi_whole_entry_find(whole, dir, path->names[i]);
		bool is_dir = entry != NULL && lpi_whole_is_dir(lpi_whole_find(whole, entry->node));
		if (!is_dir) {
			*fault = entry == NULL ? -ENOENT : -ENOTDIR;
			return UINT32_MAX;
		}
		dir = entry->node;
	}
	return dir;
}

/* Makes those that are missing; nothing of a path may be in its way. */
static uint32_t make_dirs(const struct apply *apply, const struct path *path)
{
	struct lpi_whole *whole = apply->whole;
	uint32_t dir = LPI_WHOLE_ROOT;
	for (uint32_t i = 0; i + 1 < path->depth; i++) {
		const struct lpi_whole_entry *entry =
			lpi_whole_entry_find(whole, dir, path->names[i]);
		if (entry != NULL) {
			dir = entry->node;
			continue;
		}
		bool is_spread = (dir == LPI_WHOLE_ROOT && !whole->is_below) ||
				 (lpi_whole_find(whole, dir)->flags & LP_INODE_FLAG_SPREAD) != 0;
		struct lpi_whole_node *made = lpi_whole_node_add(
			whole, lpi_whole_slot(apply->op) + 1 + i, LP_INODE_TYPE_DIR);
		set_owner(apply, made);
		made->mode = 0755;
		made->flags = LP_INODE_FLAG_MADE_BY_PUT | (is_spread ? LP_INODE_FLAG_SPREAD : 0);
		uint32_t slot = made->slot;
		lpi_whole_entry_set(whole, dir, path->names[i], slot);
		visit(apply);
		dir = slot;
	}
	return dir;
}

/* Directories that puts made go with the last that was in them (rule N2). What was there before is
 * a state of its own, also of one that is not empty here: it may have been for who removed it, by a
 * removal that is not durable yet. */
static void prune(const struct apply *apply, const struct path *path)
{
	struct lpi_whole *whole = apply->whole;
	for (uint32_t depth = path->depth - 1; depth > 0; depth--) {
		const struct lpi_whole_node *dir = lpi_whole_walk(whole, path->names, depth);
		if (dir == NULL || (dir->flags & LP_INODE_FLAG_MADE_BY_PUT) == 0)
			return;
		visit(apply);
		if (lpi_whole_entries_in(whole, dir->slot) > 0)
			return;
		uint32_t above = lpi_whole_parent(whole, dir->slot);
		lose_name(whole, above, path->names[depth - 1]);
	}
}

static int condition_fault(const struct lpi_whole_op *op, bool is_there)
{
	if (op->condition == LP_NS_IF_ABSENT)
		return is_there ? -EEXIST : 0;
	if (op->condition != LP_NS_IF_ANY && !is_there)
		return -ENOENT;
	bool is_wrong = op->condition == LP_NS_IF_VERSION && has_flag(op, LPI_WHOLE_WRONG);
	return is_wrong ? -ECANCELED : 0;
}

static bool makes_dirs(const struct lpi_whole_op *op)
{
	return op->condition == LP_NS_IF_ANY || op->condition == LP_NS_IF_ABSENT;
}

/* Whether an object may come to this path; -ENOENT only where nothing is made. */
static int put_fault(const struct apply *apply, const struct path *path)
{
	int fault = 0;
	uint32_t dir = walk_to(apply->whole, path, &fault);
	if (fault == -ENOENT && makes_dirs(apply->op))
		return 0;
	if (fault != 0)
		return fault;
	const struct lpi_whole_entry *entry =
		lpi_whole_entry_find(apply->whole, dir, last_name(path));
	bool is_dir = entry != NULL && lpi_whole_is_dir(lpi_whole_find(apply->whole, entry->node));
	return is_dir ? -EISDIR : condition_fault(apply->op, entry != NULL);
}

/* The node takes the name; mode, owner and ACL come from what is replaced (rule W3), or an ACL from
 * `source`; an ACL that is put is the mode. */
static void take_name(const struct apply *apply, const struct path *path, uint32_t slot,
		      const struct lpi_whole_item *source_acl)
{
	struct lpi_whole *whole = apply->whole;
	const struct lpi_whole_item *acl = source_acl;
	uint32_t dir = make_dirs(apply, path);
	struct lpi_whole_node *node = lpi_whole_find(whole, slot);
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(whole, dir, last_name(path));
	const struct lpi_whole_node *old =
		entry == NULL ? NULL : lpi_whole_find(whole, entry->node);
	struct lpi_whole_item kept;
	if (old != NULL && old->type == LP_INODE_TYPE_FILE) {
		node->mode = old->mode;
		node->uid = old->uid;
		node->gid = old->gid;
		acl = lpi_whole_item_find(old, false, LPI_WHOLE_XATTR_ACL);
	}
	bool has_own = apply->op->items > 0;
	if (acl != NULL && !has_own) {
		kept = *acl;
		lpi_whole_item_set(node, &kept);
	}
	if (has_own)
		take_mode_of_list(node);
	if (old != NULL)
		lose_name(whole, dir, last_name(path));
	lpi_whole_entry_set(whole, dir, last_name(path), slot);
}

static int do_put(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	const struct path path = {op->names, op->depth};
	int fault = put_fault(apply, &path);
	if (fault != 0)
		return fault;
	uint8_t *bytes = malloc(op->length + 1);
	LP_ASSERT(bytes != NULL);
	lpi_whole_fill(op->seed, bytes, op->length);
	/* No name leads to it while the directories are made. */
	struct lpi_whole_node *node =
		lpi_whole_node_add(apply->whole, lpi_whole_slot(op), LP_INODE_TYPE_FILE);
	set_owner(apply, node);
	set_items(node, op, op->items);
	node->mtime_ns = lpi_whole_time(op->seed);
	lpi_whole_write(node, 0, bytes, op->length);
	free(bytes);
	take_name(apply, &path, lpi_whole_slot(op), NULL);
	return 0;
}

static int do_upload(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	const struct path path = {op->names, op->depth};
	int fault = 0;
	(void)walk_to(apply->whole, &path, &fault);
	if (fault != 0 && fault != -ENOENT)
		return fault;
	struct lpi_whole_node *node =
		lpi_whole_node_add(apply->whole, lpi_whole_slot(op), LP_INODE_TYPE_FILE);
	set_owner(apply, node);
	node->is_unnamed = true;
	node->opens = 1;
	return 0;
}

static int do_commit(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	const struct path path = {op->names, op->depth};
	struct lpi_whole_node *node = lpi_whole_find(apply->whole, op->node);
	int fault = put_fault(apply, &path);
	fault_if(&fault, node == NULL || !node->is_unnamed, -ENOENT);
	/* Those that its last transaction has no room for are set before, whatever comes then. */
	if (fault != 0 && node != NULL && node->is_unnamed && op->items > LP_NS_XATTRS_MAX) {
		set_items(node, op, LP_NS_XATTRS_MAX);
		lpi_whole_touch(apply->whole, LPI_WHOLE_TOUCH_INODE, node->slot, true);
		apply->whole->has_changed = true;
	}
	if (fault != 0)
		return fault;
	set_owner(apply, node);
	set_items(node, op, op->items);
	node->mtime_ns = lpi_whole_time(op->seed);
	node->is_unnamed = false;
	lpi_whole_touch(apply->whole, LPI_WHOLE_TOUCH_INODE, node->slot, true);
	take_name(apply, &path, op->node, NULL);
	lpi_whole_find(apply->whole, op->node)->opens--;
	return 0;
}

static int do_delete(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	const struct path path = {op->names, op->depth};
	struct lpi_whole *whole = apply->whole;
	int fault = 0;
	if (op->condition == LP_NS_IF_ABSENT)
		return -EINVAL;
	uint32_t dir = walk_to(whole, &path, &fault);
	if (fault != 0)
		return fault;
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(whole, dir, last_name(&path));
	const struct lpi_whole_node *node =
		entry == NULL ? NULL : lpi_whole_find(whole, entry->node);
	if (node == NULL)
		return -ENOENT;
	bool is_wrong = op->condition == LP_NS_IF_VERSION && has_flag(op, LPI_WHOLE_WRONG);
	fault_if(&fault, lpi_whole_is_dir(node) && !has_flag(op, LPI_WHOLE_IS_DIR), -EISDIR);
	fault_if(&fault, lpi_whole_is_dir(node) && lpi_whole_entries_in(whole, node->slot) > 0,
		 -ENOTEMPTY);
	fault_if(&fault, is_wrong, -ECANCELED);
	if (fault == LPI_WHOLE_ANY_ERROR && !has_flag(op, LPI_WHOLE_IS_DIR))
		fault = -EISDIR;
	if (fault != 0)
		return fault;
	lose_name(whole, dir, last_name(&path));
	prune(apply, &path);
	return 0;
}

/* What others have made does not run with the rights of who copies it (namespace/state/rights.h).
 */
static uint32_t copied_mode(const struct lpi_whole_node *from, const struct lpi_whole_node *to)
{
	uint32_t lost = from->uid != to->uid ? 06000 : from->gid != to->gid ? 02000 : 0;
	return from->mode & ~lost;
}

static int do_copy(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	const struct path path = {op->names, op->depth};
	const struct path to = {op->to_names, op->to_depth};
	struct lpi_whole *whole = apply->whole;
	int fault = 0;
	uint32_t dir = walk_to(whole, &path, &fault);
	if (fault != 0)
		return fault;
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(whole, dir, last_name(&path));
	if (entry == NULL)
		return -ENOENT;
	uint32_t source = entry->node;
	uint32_t type = lpi_whole_find(whole, source)->type;
	if (type != LP_INODE_TYPE_FILE)
		return type == LP_INODE_TYPE_DIR ? -EISDIR : -EINVAL;
	fault = put_fault(apply, &to);
	if (fault != 0)
		return fault;
	struct lpi_whole_node *node =
		lpi_whole_node_add(whole, lpi_whole_slot(op), LP_INODE_TYPE_FILE);
	const struct lpi_whole_node *from = lpi_whole_find(whole, source);
	set_owner(apply, node);
	node->mode = copied_mode(from, node);
	node->size_bytes = from->size_bytes;
	lpi_whole_share_body(node, from);
	const struct lpi_whole_item *acl = lpi_whole_item_find(from, false, LPI_WHOLE_XATTR_ACL);
	struct lpi_whole_item source_acl;
	if (acl != NULL)
		source_acl = *acl;
	lpi_whole_item_remove(node, false, LPI_WHOLE_XATTR_ACL);
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_INODE, source, false);
	take_name(apply, &to, lpi_whole_slot(op), acl == NULL ? NULL : &source_acl);
	return 0;
}

static bool path_is_below(const struct path *path, const struct path *dir)
{
	return path->depth > dir->depth &&
	       memcmp(path->names, dir->names, dir->depth * sizeof(*dir->names)) == 0;
}

static int do_move(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	const struct path path = {op->names, op->depth};
	const struct path to = {op->to_names, op->to_depth};
	struct lpi_whole *whole = apply->whole;
	int fault = 0;
	if (path_is_below(&to, &path))
		return -EINVAL;
	uint32_t dir = walk_to(whole, &path, &fault);
	if (fault != 0)
		return fault;
	if (lpi_whole_entry_find(whole, dir, last_name(&path)) == NULL)
		return -ENOENT;
	uint32_t to_dir = walk_to(whole, &to, &fault);
	if (fault == -ENOENT && makes_dirs(op))
		to_dir = make_dirs(apply, &to);
	else if (fault != 0)
		return fault;
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(whole, to_dir, last_name(&to));
	const struct ends ends = {
		.dir = dir, .name = last_name(&path), .to_dir = to_dir, .to_name = last_name(&to)};
	uint32_t from = lpi_whole_entry_find(whole, dir, ends.name)->node;
	fault = condition_fault(op, entry != NULL);
	/* Another version is found out last. */
	if (fault == 0 || fault == -ECANCELED) {
		uint32_t there = entry == NULL ? UINT32_MAX : entry->node;
		int other = from == there ? 0 : find_rename_fault(whole, &ends, from, there);
		fault_if(&fault, other != 0, other);
	}
	if (fault != 0)
		return fault;
	fault = move_names(whole, &ends);
	LP_ASSERT(fault == 0);
	prune(apply, &path);
	return 0;
}

static int do_sync(const struct apply *apply)
{
	(void)apply;
	return 0;
}

/* --- What only asks --------------------------------------------------------------------------- */

static void answer_node(const struct apply *apply, const struct lpi_whole_node *node)
{
	const struct lpi_whole *whole = apply->whole;
	struct lp_attrs attrs = {.type = (uint8_t)node->type,
				 .mode = (uint16_t)node->mode,
				 .uid = node->uid,
				 .gid = node->gid,
				 .rdev = node->rdev,
				 .flags = node->flags,
				 .nlink = lpi_whole_nlink(whole, node),
				 .mtime_ns = node->mtime_ns,
				 .size_bytes = node->size_bytes};
	uint64_t entries = 0;
	for (uint32_t i = 0; i < whole->entry_cnt; i++) {
		struct lpi_whole_bytes name;
		if (whole->entries[i].dir != node->slot)
			continue;
		lpi_whole_name(whole->entries[i].name, &name);
		attrs.size_bytes += name.len;
		entries++;
	}
	apply->answer->ino = lpi_whole_ino(whole, node->slot);
	apply->answer->more = attrs.nlink;
	apply->answer->hash = lpi_whole_hash_attrs(&attrs, apply->answer->ino, entries);
}

static int do_stat(const struct apply *apply)
{
	const struct lpi_whole_node *node = lpi_whole_find(apply->whole, apply->op->node);
	if (node == NULL)
		return -ENOENT;
	answer_node(apply, node);
	return 0;
}

static int do_lookup(const struct apply *apply)
{
	const struct lpi_whole *whole = apply->whole;
	const struct lpi_whole_node *dir = lpi_whole_find(whole, apply->op->dir);
	const struct lpi_whole_entry *entry =
		lpi_whole_entry_find(whole, apply->op->dir, apply->op->name);
	if (dir != NULL && dir->type != LP_INODE_TYPE_DIR)
		return LPI_WHOLE_ANY_ERROR;
	if (entry == NULL)
		return -ENOENT;
	answer_node(apply, lpi_whole_find(whole, entry->node));
	return 0;
}

static int do_walk(const struct apply *apply)
{
	const struct path path = {apply->op->names, apply->op->depth};
	int fault = 0;
	(void)walk_to(apply->whole, &path, &fault);
	const struct lpi_whole_node *node = lpi_whole_walk(apply->whole, path.names, path.depth);
	if (fault != 0 || node == NULL)
		return fault != 0 ? fault : -ENOENT;
	answer_node(apply, node);
	return 0;
}

static int do_read(const struct apply *apply)
{
	const struct lpi_whole_op *op = apply->op;
	const struct lpi_whole_node *node = lpi_whole_find(apply->whole, op->node);
	if (node == NULL)
		return LPI_WHOLE_ANYTHING;
	if (node->type != LP_INODE_TYPE_FILE)
		return lpi_whole_is_dir(node) ? -EISDIR : -EINVAL;
	uint64_t rest = node->size_bytes - LP_MIN(node->size_bytes, op->offset);
	uint64_t length = LP_MIN(op->length, rest);
	uint8_t *bytes = malloc(length + 1);
	LP_ASSERT(bytes != NULL);
	lpi_whole_read(node, op->offset, length, bytes);
	apply->answer->cnt = length;
	apply->answer->hash = lp_hash_u64(bytes, length, 0);
	free(bytes);
	return 0;
}

static int do_seek(const struct apply *apply)
{
	const struct lpi_whole_node *node = lpi_whole_find(apply->whole, apply->op->node);
	if (node == NULL)
		return LPI_WHOLE_ANYTHING;
	if (node->type != LP_INODE_TYPE_FILE)
		return LPI_WHOLE_ANY_ERROR;
	return 0; /* judged by itself */
}

static int do_xattrs(const struct apply *apply)
{
	const struct lpi_whole_node *node = lpi_whole_find(apply->whole, apply->op->node);
	bool is_omap = has_flag(apply->op, LPI_WHOLE_OMAP);
	if (node == NULL)
		return LPI_WHOLE_ANYTHING;
	uint8_t *value = malloc(LPI_WHOLE_VALUE_MAX);
	LP_ASSERT(value != NULL);
	for (uint32_t i = 0; i < node->body->item_cnt; i++) {
		const struct lpi_whole_item *item = &node->body->items[i];
		struct lpi_whole_bytes name;
		if (item->is_omap != is_omap)
			continue;
		if (is_omap)
			lpi_whole_omap_name(item->name, &name);
		else
			lpi_whole_xattr_name(item->name, &name);
		lpi_whole_item_value(item, value);
		apply->answer->cnt++;
		apply->answer->hash +=
			lpi_whole_hash_item(is_omap, (struct lp_bytes){name.bytes, name.len},
					    (struct lp_bytes){value, item->len});
	}
	free(value);
	return 0;
}

static int do_readdir(const struct apply *apply)
{
	const struct lpi_whole *whole = apply->whole;
	const struct lpi_whole_node *dir = lpi_whole_find(whole, apply->op->dir);
	if (dir == NULL || dir->names == 0)
		return LPI_WHOLE_ANYTHING;
	if (dir->type != LP_INODE_TYPE_DIR)
		return LPI_WHOLE_ANY_ERROR;
	for (uint32_t i = 0; i < whole->entry_cnt; i++) {
		const struct lpi_whole_entry *entry = &whole->entries[i];
		struct lpi_whole_bytes name;
		if (entry->dir != dir->slot)
			continue;
		lpi_whole_name(entry->name, &name);
		apply->answer->cnt++;
		apply->answer->hash += lpi_whole_hash_name(
			(struct lp_bytes){name.bytes, name.len}, lpi_whole_ino(whole, entry->node),
			lpi_whole_find(whole, entry->node)->type);
	}
	return 0;
}

/* --- All -------------------------------------------------------------------------------------- */

static int (*const calls[LPI_WHOLE_KIND_CNT])(const struct apply *apply) = {
	[LPI_WHOLE_MAKE] = do_make,         [LPI_WHOLE_LINK] = do_link,
	[LPI_WHOLE_REMOVE] = do_remove,     [LPI_WHOLE_RENAME] = do_rename,
	[LPI_WHOLE_OPEN] = do_open,         [LPI_WHOLE_CLOSE] = do_close,
	[LPI_WHOLE_SET] = do_set,           [LPI_WHOLE_WRITE] = do_data,
	[LPI_WHOLE_APPEND] = do_data,       [LPI_WHOLE_TRUNCATE] = do_data,
	[LPI_WHOLE_PUNCH] = do_data,        [LPI_WHOLE_PREALLOC] = do_data,
	[LPI_WHOLE_CLONE] = do_data,        [LPI_WHOLE_XATTR_SET] = do_item,
	[LPI_WHOLE_XATTR_REMOVE] = do_item, [LPI_WHOLE_OMAP_SET] = do_item,
	[LPI_WHOLE_OMAP_REMOVE] = do_item,  [LPI_WHOLE_PUT] = do_put,
	[LPI_WHOLE_UPLOAD] = do_upload,     [LPI_WHOLE_COMMIT] = do_commit,
	[LPI_WHOLE_DELETE] = do_delete,     [LPI_WHOLE_COPY] = do_copy,
	[LPI_WHOLE_MOVE] = do_move,         [LPI_WHOLE_SYNC] = do_sync,
	[LPI_WHOLE_STAT] = do_stat,         [LPI_WHOLE_LOOKUP] = do_lookup,
	[LPI_WHOLE_WALK] = do_walk,         [LPI_WHOLE_READ] = do_read,
	[LPI_WHOLE_SEEK] = do_seek,         [LPI_WHOLE_XATTRS] = do_xattrs,
	[LPI_WHOLE_READDIR] = do_readdir,
};

void lpi_whole_apply(struct lpi_whole *whole, const struct lpi_whole_op *op,
		     const struct lpi_whole_visit *visit, struct lpi_whole_answer *ret)
{
	const struct apply apply = {.whole = whole, .op = op, .visit = visit, .answer = ret};
	*ret = (struct lpi_whole_answer){.result = 0};
	whole->has_changed = false;
	ret->result = op->kind == LPI_WHOLE_LIST ? lpi_whole_list(whole, op, ret)
						 : calls[op->kind](&apply);
}

bool lpi_whole_only_asks(const struct lpi_whole_op *op)
{
	return op->kind >= LPI_WHOLE_STAT;
}

static bool is_known(const struct lpi_whole *whole, uint32_t slot)
{
	return lpi_whole_ino(whole, slot) != 0;
}

bool lpi_whole_can(const struct lpi_whole *whole, const struct lpi_whole_op *op)
{
	return is_known(whole, op->node) && is_known(whole, op->dir) && is_known(whole, op->to_dir);
}
