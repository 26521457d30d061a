/* SPDX-License-Identifier: Apache-2.0 */
/* An AVL tree with parent pointers. It is the lowest of the usual balanced trees, so searches are
 * fast, and its code is small enough to be checked by eye. A node's balance, height of the greater
 * side minus height of the less side, is -1, 0 or 1; it is kept as 1, 2 or 3 in the low bits of the
 * parent pointer, so that a linked node is never all zero and a node takes 24 bytes.
 *
 * Sides are -1 (less) and 1 (greater) in arithmetic with balances, 0 and 1 as indices. An insert or
 * remove changes the height of one subtree by one; the change is carried upwards until a balance or
 * one rotation (at most one for an insert) absorbs it. */
#include "base/struct/tree.h"

#define BALANCE_MASK ((uintptr_t)3)
/* More levels than an AVL tree of 2^64 nodes can have. */
#define HEIGHT_MAX 96

static struct lp_tree_node *parent_of(const struct lp_tree_node *node)
{
	return (struct lp_tree_node *)(node->parent & ~BALANCE_MASK);
}

static int balance_of(const struct lp_tree_node *node)
{
	return (int)(node->parent & BALANCE_MASK) - 2;
}

static void set_parent(struct lp_tree_node *node, struct lp_tree_node *parent)
{
	node->parent = (uintptr_t)parent | (node->parent & BALANCE_MASK);
}

static void set_balance(struct lp_tree_node *node, int balance)
{
	LP_ASSERT(balance >= -1 && balance <= 1);
	node->parent = (node->parent & ~BALANCE_MASK) | (uintptr_t)(balance + 2);
}

static int index_of(int side)
{
	return side > 0;
}

/* The side of its parent that a node is on; meaningless for the root. */
static int side_of(const struct lp_tree_node *node)
{
	const struct lp_tree_node *parent = parent_of(node);
	return parent != NULL && parent->child[0] == node ? -1 : 1;
}

/* Puts `node` (or NULL) in the place of `old`. */
static void replace(struct lp_tree *tree, struct lp_tree_node *old, struct lp_tree_node *node)
{
	struct lp_tree_node *parent = parent_of(old);
	if (parent == NULL) {
		LP_ASSERT(tree->root == old);
		tree->root = node;
	} else {
		parent->child[index_of(side_of(old))] = node;
	}
	if (node != NULL)
		set_parent(node, parent);
}

/* The child on `side` takes the place of `top`, which becomes its child on the other side. */
static void rotate(struct lp_tree *tree, struct lp_tree_node *top, int side)
{
	struct lp_tree_node *up = top->child[index_of(side)];
	struct lp_tree_node *across = up->child[index_of(-side)];
	replace(tree, top, up);
	up->child[index_of(-side)] = top;
	set_parent(top, up);
	top->child[index_of(side)] = across;
	if (across != NULL)
		set_parent(across, top);
}

/* `top` has become two levels higher on `side`. True when the subtree is lower afterwards than it
 * was in that state. */
static bool restore(struct lp_tree *tree, struct lp_tree_node *top, int side)
{
	struct lp_tree_node *heavy = top->child[index_of(side)];
	int lean = balance_of(heavy) * side;
	if (lean >= 0) {
		rotate(tree, top, side);
		set_balance(top, lean == 0 ? side : 0);
		set_balance(heavy, lean == 0 ? -side : 0);
		return lean != 0;
	}
	struct lp_tree_node *mid = heavy->child[index_of(-side)];
	int mid_lean = balance_of(mid) * side;
	rotate(tree, heavy, -side);
	rotate(tree, top, side);
	set_balance(top, mid_lean > 0 ? -side : 0);
	set_balance(heavy, mid_lean < 0 ? side : 0);
	set_balance(mid, 0);
	return true;
}

void lp_tree_node_insert(struct lp_tree *tree, struct lp_tree_node *parent, int side_idx,
			 struct lp_tree_node *node)
{
	LP_ASSERT(!lp_tree_node_is_linked(node));
	*node = (struct lp_tree_node){.parent = (uintptr_t)parent};
	set_balance(node, 0);
	if (parent == NULL) {
		LP_ASSERT(tree->root == NULL);
		tree->root = node;
		return;
	}
	LP_ASSERT(parent->child[side_idx] == NULL);
	parent->child[side_idx] = node;
	for (; parent != NULL; node = parent, parent = parent_of(parent)) {
		int side = side_of(node);
		int balance = balance_of(parent) + side;
		if (balance == 2 * side) {
			(void)restore(tree, parent, side); /* always as low as before the insert */
			return;
		}
		set_balance(parent, balance);
		if (balance == 0)
			return;
	}
}

/* The subtree of `at` on `side` has become one level lower. */
static void absorb_loss(struct lp_tree *tree, struct lp_tree_node *at, int side)
{
	while (at != NULL) {
		struct lp_tree_node *parent = parent_of(at);
		int next_side = side_of(at);
		int balance = balance_of(at) - side;
		if (balance == -2 * side) {
			if (!restore(tree, at, -side))
				return;
		} else {
			set_balance(at, balance);
			if (balance != 0)
				return;
		}
		at = parent;
		side = next_side;
	}
}

/* Removes a node with two children: its successor, which has no lesser child, takes its place. */
static void remove_inner(struct lp_tree *tree, struct lp_tree_node *node)
{
	struct lp_tree_node *next = node->child[1];
	while (next->child[0] != NULL)
		next = next->child[0];
	struct lp_tree_node *at = parent_of(next);
	int side = side_of(next);
	replace(tree, next, next->child[1]);
	if (at == node)
		at = next;
	/* Read again: next may have been node's child. */
	for (int i = 0; i < 2; i++) {
		next->child[i] = node->child[i];
		if (next->child[i] != NULL)
			set_parent(next->child[i], next);
	}
	replace(tree, node, next);
	set_balance(next, balance_of(node));
	absorb_loss(tree, at, side);
}

void lp_tree_node_remove(struct lp_tree *tree, struct lp_tree_node *node)
{
	LP_ASSERT(lp_tree_node_is_linked(node));
	LP_ASSERT(tree->root != NULL);
	if (node->child[0] != NULL && node->child[1] != NULL) {
		remove_inner(tree, node);
	} else {
		struct lp_tree_node *parent = parent_of(node);
		int side = side_of(node);
		replace(tree, node, node->child[node->child[0] == NULL]);
		absorb_loss(tree, parent, side);
	}
	lp_tree_node_init(node);
}

struct lp_tree_node *lp_tree_edge(const struct lp_tree *tree, int side)
{
	struct lp_tree_node *node = tree->root;
	while (node != NULL && node->child[side] != NULL)
		node = node->child[side];
	return node;
}

struct lp_tree_node *lp_tree_node_step(const struct lp_tree_node *node, int side)
{
	LP_ASSERT(lp_tree_node_is_linked(node));
	if (node->child[side] != NULL) {
		struct lp_tree sub = {.root = node->child[side]};
		return lp_tree_edge(&sub, !side);
	}
	struct lp_tree_node *parent = parent_of(node);
	while (parent != NULL && parent->child[side] == node) {
		node = parent;
		parent = parent_of(parent);
	}
	return parent;
}

/* Bottom up in post-order, the heights of finished subtrees kept by depth. */
struct check {
	int height[HEIGHT_MAX][2];
	unsigned depth;
};

/* False when the node's links or balance are wrong; hands its height to its parent. */
static bool check_node(struct check *check, const struct lp_tree_node *node)
{
	const int *heights = check->height[check->depth];
	if (heights[1] - heights[0] != balance_of(node))
		return false;
	int height = 1 + LP_MAX(heights[0], heights[1]);
	if (check->depth > 0)
		check->height[check->depth - 1][index_of(side_of(node))] = height;
	return true;
}

static const struct lp_tree_node *descend(struct check *check, const struct lp_tree_node *node)
{
	for (;;) {
		int *heights = check->height[check->depth];
		heights[0] = heights[1] = 0;
		const struct lp_tree_node *child = node->child[node->child[0] == NULL];
		if (child == NULL || parent_of(child) != node || check->depth + 1 == HEIGHT_MAX)
			return node;
		check->depth++;
		node = child;
	}
}

bool lp_tree_is_sound(const struct lp_tree *tree)
{
	struct check check = {.depth = 0};
	if (tree->root == NULL)
		return true;
	if (parent_of(tree->root) != NULL)
		return false;
	const struct lp_tree_node *node = descend(&check, tree->root);
	for (;;) {
		if (!check_node(&check, node))
			return false;
		const struct lp_tree_node *parent = parent_of(node);
		if (parent == NULL)
			return node == tree->root;
		if (parent->child[0] == node && parent->child[1] != NULL) {
			if (parent_of(parent->child[1]) != parent)
				return false;
			node = descend(&check, parent->child[1]);
		} else {
			check.depth--;
			node = parent;
		}
	}
}
