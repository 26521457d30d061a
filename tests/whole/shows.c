/* SPDX-License-Identifier: Apache-2.0 */
/* What an answer has shown (P3): of whom it tells what, as touches that change nothing. */
#include <errno.h>

#include "tests/whole/model.h"

static void show_name(struct lpi_whole *whole, uint32_t dir, uint32_t name)
{
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_NAME, dir, false);
	whole->touches->items[whole->touches->cnt - 1].name = name;
}

static void show_fragments(struct lpi_whole *whole, const struct lpi_whole_node *dir)
{
	bool is_spread = (dir->flags & LP_INODE_FLAG_SPREAD) != 0;
	for (uint32_t i = 0; i < (is_spread ? whole->shard_cnt : 1); i++) {
		lpi_whole_touch(whole, LPI_WHOLE_TOUCH_FRAGMENT, dir->slot, false);
		whole->touches->items[whole->touches->cnt - 1].shard_idx = i;
	}
}

/* Its attributes; of a directory they say what is in it. */
static void show_attrs(struct lpi_whole *whole, const struct lpi_whole_node *node)
{
	lpi_whole_touch(whole, LPI_WHOLE_TOUCH_INODE, node->slot, false);
	if (lpi_whole_is_dir(node))
		show_fragments(whole, node);
}

/* Up to where it leads nowhere. */
static void show_path(struct lpi_whole *whole, const uint32_t *names, uint32_t depth)
{
	const struct lpi_whole_node *node = lpi_whole_find(whole, LPI_WHOLE_ROOT);
	for (uint32_t i = 0; i < depth; i++) {
		if (!lpi_whole_is_dir(node))
			return;
		const struct lpi_whole_entry *entry =
			lpi_whole_entry_find(whole, node->slot, names[i]);
		show_name(whole, node->slot, names[i]);
		if (entry == NULL)
			return;
		node = lpi_whole_find(whole, entry->node);
	}
	show_attrs(whole, node);
}

/* If the directory is one. */
static void show_name_in(struct lpi_whole *whole, uint32_t dir, uint32_t name)
{
	const struct lpi_whole_node *node = lpi_whole_find(whole, dir);
	if (lpi_whole_is_dir(node) && node->names > 0)
		show_name(whole, dir, name);
}

/* A name, and what it leads to. */
static void show_entry(struct lpi_whole *whole, uint32_t dir, uint32_t name)
{
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(whole, dir, name);
	show_name_in(whole, dir, name);
	if (entry != NULL)
		show_attrs(whole, lpi_whole_find(whole, entry->node));
}

static void show_question(struct lpi_whole *whole, const struct lpi_whole_op *op)
{
	const struct lpi_whole_node *node = lpi_whole_find(whole, op->node);
	const struct lpi_whole_node *dir = lpi_whole_find(whole, op->dir);
	switch (op->kind) {
	case LPI_WHOLE_STAT:
		if (node != NULL)
			show_attrs(whole, node);
		break;
	case LPI_WHOLE_READ:
	case LPI_WHOLE_SEEK:
	case LPI_WHOLE_XATTRS:
		if (node != NULL)
			lpi_whole_touch(whole, LPI_WHOLE_TOUCH_INODE, op->node, false);
		break;
	case LPI_WHOLE_LOOKUP:
		show_entry(whole, op->dir, op->name);
		break;
	case LPI_WHOLE_WALK:
		show_path(whole, op->names, op->depth);
		break;
	case LPI_WHOLE_READDIR:
		if (lpi_whole_is_dir(dir))
			show_fragments(whole, dir);
		break;
	default:
		break; /* of a list only a part is told */
	}
}

void lpi_whole_show(struct lpi_whole *whole, const struct lpi_whole_op *op, int result,
		    struct lpi_whole_touches *ret)
{
	bool is_negative = op->kind == LPI_WHOLE_LOOKUP || op->kind == LPI_WHOLE_WALK;
	ret->cnt = 0;
	whole->touches = ret;
	if (lpi_whole_only_asks(op) && (result >= 0 || (is_negative && result == -ENOENT)))
		show_question(whole, op);
	/* Why it was refused: the name, and not what it leads to. */
	if ((op->kind == LPI_WHOLE_MAKE && result == -EEXIST) ||
	    (op->kind == LPI_WHOLE_REMOVE && result == -ENOENT))
		show_name_in(whole, op->dir, op->name);
	whole->touches = NULL;
}

/* The attributes of what is renamed are as they were. */
bool lpi_whole_is_shown(const struct lpi_whole_op *op, const struct lpi_whole_touches *changed,
			const struct lpi_whole_touches *shown)
{
	bool renames = op->kind == LPI_WHOLE_RENAME || op->kind == LPI_WHOLE_MOVE;
	for (uint32_t i = 0; i < changed->cnt; i++) {
		const struct lpi_whole_touch *touch = &changed->items[i];
		if (!touch->changes || (renames && touch->kind == LPI_WHOLE_TOUCH_INODE))
			continue;
		for (uint32_t j = 0; j < shown->cnt; j++)
			if (lpi_whole_touch_is_same(touch, &shown->items[j]))
				return true;
	}
	return false;
}
