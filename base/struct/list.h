/* SPDX-License-Identifier: Apache-2.0 */
/* Intrusive doubly linked lists, typed.
 *
 * Threads: none of its own; a list belongs to one thread, or to the holder of its lock.
 *
 * An object embeds a struct lp_list_node for each list it can be on. LP_LIST_DEFINE(name, type,
 * member) makes `struct name` and functions that take and return `type *`, so that an object cannot
 * land on a list of another type or through another member. Insert asserts that the node is
 * unlinked, remove that it is linked; lp_list_node_init() (or zeroed memory) makes a node unlinked.
 * All operations are O(1) except name_count().
 */
#ifndef LP_BASE_STRUCT_LIST_H
#define LP_BASE_STRUCT_LIST_H

#include "base/assert.h"

struct lp_list_node {
	struct lp_list_node *next; /* NULL while unlinked */
	struct lp_list_node *prev; /* NULL while unlinked */
};

static inline void lp_list_node_init(struct lp_list_node *node)
{
	node->next = NULL;
	node->prev = NULL;
}

static inline bool lp_list_node_is_linked(const struct lp_list_node *node)
{
	return node->next != NULL;
}

static inline void lp_list_node_insert_after(struct lp_list_node *at, struct lp_list_node *node)
{
	LP_ASSERT(!lp_list_node_is_linked(node));
	node->prev = at;
	node->next = at->next;
	at->next->prev = node;
	at->next = node;
}

static inline void lp_list_node_remove(struct lp_list_node *node)
{
	LP_ASSERT(lp_list_node_is_linked(node));
	node->prev->next = node->next;
	node->next->prev = node->prev;
	lp_list_node_init(node);
}

/* Walks a list; the body must not remove `it`. */
#define LP_LIST_FOREACH(name, list, it)                                                            \
	for ((it) = name##_first(list); (it) != NULL; (it) = name##_next((list), (it)))

/* The same where the body may remove or free `it`, but not `tmp`. */
#define LP_LIST_FOREACH_SAFE(name, list, it, tmp)                                                  \
	for ((it) = name##_first(list); (it) != NULL && ((tmp) = name##_next((list), (it)), true); \
	     (it) = (tmp))

#define LP_LIST_DEFINE(name, type, member)                                                         \
	struct name {                                                                              \
		struct lp_list_node head;                                                          \
	};                                                                                         \
	__attribute__((unused)) static inline void name##_init(struct name *list)                  \
	{                                                                                          \
		list->head.next = &list->head;                                                     \
		list->head.prev = &list->head;                                                     \
	}                                                                                          \
	__attribute__((unused)) static inline bool name##_is_empty(const struct name *list)        \
	{                                                                                          \
		return list->head.next == &list->head;                                             \
	}                                                                                          \
	__attribute__((unused)) static inline bool name##_is_linked(const type *obj)               \
	{                                                                                          \
		return lp_list_node_is_linked(&obj->member);                                       \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_at(const struct name *list,             \
							      struct lp_list_node *node)           \
	{                                                                                          \
		return node == &list->head ? NULL : LP_CONTAINER_OF(node, type, member);           \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_first(const struct name *list)          \
	{                                                                                          \
		return name##_at(list, list->head.next);                                           \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_last(const struct name *list)           \
	{                                                                                          \
		return name##_at(list, list->head.prev);                                           \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_next(const struct name *list,           \
								const type *obj)                   \
	{                                                                                          \
		return name##_at(list, obj->member.next);                                          \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_prev(const struct name *list,           \
								const type *obj)                   \
	{                                                                                          \
		return name##_at(list, obj->member.prev);                                          \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_push_front(struct name *list, type *obj) \
	{                                                                                          \
		lp_list_node_insert_after(&list->head, &obj->member);                              \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_push_back(struct name *list, type *obj)  \
	{                                                                                          \
		lp_list_node_insert_after(list->head.prev, &obj->member);                          \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_insert_after(type *at, type *obj)        \
	{                                                                                          \
		lp_list_node_insert_after(&at->member, &obj->member);                              \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_insert_before(type *at, type *obj)       \
	{                                                                                          \
		lp_list_node_insert_after(at->member.prev, &obj->member);                          \
	}                                                                                          \
	__attribute__((unused)) static inline void name##_remove(type *obj)                        \
	{                                                                                          \
		lp_list_node_remove(&obj->member);                                                 \
	}                                                                                          \
	__attribute__((unused)) static inline type *name##_pop_front(struct name *list)            \
	{                                                                                          \
		type *obj = name##_first(list);                                                    \
		if (obj != NULL)                                                                   \
			lp_list_node_remove(&obj->member);                                         \
		return obj;                                                                        \
	}                                                                                          \
	/* Moves all of `from` to the end of `list`, in order. */                                  \
	__attribute__((unused)) static inline void name##_splice_back(struct name *list,           \
								      struct name *from)           \
	{                                                                                          \
		if (name##_is_empty(from))                                                         \
			return;                                                                    \
		from->head.next->prev = list->head.prev;                                           \
		list->head.prev->next = from->head.next;                                           \
		from->head.prev->next = &list->head;                                               \
		list->head.prev = from->head.prev;                                                 \
		name##_init(from);                                                                 \
	}                                                                                          \
	__attribute__((unused)) static inline size_t name##_count(const struct name *list)         \
	{                                                                                          \
		size_t cnt = 0;                                                                    \
		const struct lp_list_node *node;                                                   \
		for (node = list->head.next; node != &list->head; node = node->next)               \
			cnt++;                                                                     \
		return cnt;                                                                        \
	}                                                                                          \
	struct name /* takes the semicolon */

#endif
