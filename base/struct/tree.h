/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive balanced trees, typed.
 *
 * Threads: none of its own; a tree belongs to one thread, or to the holder of its lock.
 *
 * An object embeds a struct lp_tree_node for each tree it can be in. LP_TREE_DEFINE(name, type,
 * member, less) makes `struct name` and functions that take and return `type *`; `bool less(const
 * type *, const type *)` is a strict order by which no two objects of one tree are equal
 * (asserted). A search takes a key: an object of the same type, with only the fields filled in that
 * less() reads. An object's key may change while it is in the tree as long as its order among its
 * neighbours does not.
 *
 * Insert asserts that the node is unlinked, remove that it is linked; zeroed memory is an unlinked
 * node. Insert, remove and searches are O(log n), first and last too, a walk is O(n); there is no
 * recursion and no allocation.
 */
#ifndef LP_BASE_STRUCT_TREE_H
#define LP_BASE_STRUCT_TREE_H

#include "base/assert.h"

struct lp_tree_node {
	struct lp_tree_node *child[2]; /* less, greater */
	uintptr_t parent;              /* its low two bits hold the balance; see tree.c */
};

struct lp_tree {
	struct lp_tree_node *root; /* NULL when empty */
};

static inline void lp_tree_node_init(struct lp_tree_node *node)
{
	*node = (struct lp_tree_node){0};
}

static inline bool lp_tree_node_is_linked(const struct lp_tree_node *node)
{
	return node->parent != 0;
}

/* parent NULL: the tree is empty. Otherwise parent->child[side] is NULL, and node goes there. */
void lp_tree_node_insert(struct lp_tree *tree, struct lp_tree_node *parent, int side,
			 struct lp_tree_node *node);
void lp_tree_node_remove(struct lp_tree *tree, struct lp_tree_node *node);

/* The first (side 0) or last (side 1) of the tree, or NULL. */
struct lp_tree_node *lp_tree_edge(const struct lp_tree *tree, int side);
/* The neighbour before (side 0) or after (side 1), or NULL. */
struct lp_tree_node *lp_tree_node_step(const struct lp_tree_node *node, int side);

/* Checks links and balance of the whole tree. For tests and LP_ASSERT_SLOW. */
bool lp_tree_is_sound(const struct lp_tree *tree);

#define LP_TREE_DEFINE(name, type, member, less)                                                   \
	struct name {                                                                              \
		struct lp_tree tree;                                                               \
	};                                                                                         \
	__attribute__((unused)) static inline void name##_init(struct name *tree)                  \
	{                                                                                          \
		tree->tree.root = NULL;                                                            \
	}                                                                                          \
	__attribute__((unused)) static inline bool name##_is_empty(const struct name *tree)        \
	{                                                                                          \
		return tree->tree.root == NULL;                                                    \
	}                                                                                          \
	__attribute__((unused)) static inline bool name##_is_linked(const type *obj)               \
	{                                                                                          \
		return lp_tree_node_is_linked(&obj->member);                                       \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_at(struct lp_tree_node *node)           \
	{                                                                                          \
		return node == NULL ? NULL : LP_CONTAINER_OF(node, type, member);                  \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_first(const struct name *tree)          \
	{                                                                                          \
		return name##_at(lp_tree_edge(&tree->tree, 0));                                    \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_last(const struct name *tree)           \
	{                                                                                          \
		return name##_at(lp_tree_edge(&tree->tree, 1));                                    \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_next(const type *obj)                   \
	{                                                                                          \
		return name##_at(lp_tree_node_step(&obj->member, 1));                              \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_prev(const type *obj)                   \
	{                                                                                          \
		return name##_at(lp_tree_node_step(&obj->member, 0));                              \
	}                                                                                          \
	/* The first that is not less than key, or NULL. */                                        \
	__attribute__((unused)) static inline type *name##_find_ge(const struct name *tree,        \
								   const type *key)                \
	{                                                                                          \
		struct lp_tree_node *best = NULL;                                                  \
		struct lp_tree_node *node = tree->tree.root;                                       \
		while (node != NULL) {                                                             \
			bool is_less = less(LP_CONTAINER_OF(node, type, member), key);             \
			best = is_less ? best : node;                                              \
			node = node->child[is_less];                                               \
		}                                                                                  \
		return name##_at(best);                                                            \
	}                                                                                          \
	/* The last that is less than key, or NULL. */                                             \
	__attribute__((unused)) static inline type *name##_find_lt(const struct name *tree,        \
								   const type *key)                \
	{                                                                                          \
		struct lp_tree_node *best = NULL;                                                  \
		struct lp_tree_node *node = tree->tree.root;                                       \
		while (node != NULL) {                                                             \
			bool is_less = less(LP_CONTAINER_OF(node, type, member), key);             \
			best = is_less ? node : best;                                              \
			node = node->child[is_less];                                               \
		}                                                                                  \
		return name##_at(best);                                                            \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_insert(struct name *tree, type *obj)     \
	{                                                                                          \
		struct lp_tree_node *parent = NULL;                                                \
		struct lp_tree_node *node = tree->tree.root;                                       \
		int side = 0;                                                                      \
		while (node != NULL) {                                                             \
			parent = node;                                                             \
			side = less(LP_CONTAINER_OF(node, type, member), obj);                     \
			LP_ASSERT(side != 0 || less(obj, LP_CONTAINER_OF(node, type, member)));    \
			node = node->child[side];                                                  \
		}                                                                                  \
		lp_tree_node_insert(&tree->tree, parent, side, &obj->member);                      \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_remove(struct name *tree, type *obj)     \
	{                                                                                          \
		lp_tree_node_remove(&tree->tree, &obj->member);                                    \
	}                                                                                          \
	struct name /* takes the semicolon */

#endif
