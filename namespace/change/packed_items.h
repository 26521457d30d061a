/* SPDX-License-Identifier: Apache-2.0 */
/* Packed results of a readdir or list, in the caller's buffer.
 *
 * Threads: one at a time.
 * Blocking, memory: none.
 *
 * While the buffer is filled, records grow from the front, and their offsets, four bytes each, from
 * the end. The order of the offsets is that of the items. lpi_items_finish() moves the offsets
 * behind the records. lp_ns_next() finds them by the operation's items and used.
 */
#ifndef LP_NAMESPACE_CHANGE_PACKED_ITEMS_H
#define LP_NAMESPACE_CHANGE_PACKED_ITEMS_H

#include "namespace/ns.h"

struct lpi_items {
	uint8_t *buf;
	uint32_t len;
	uint32_t used; /* by records */
	uint32_t cnt;
};

void lpi_items_init(struct lpi_items *items, void *buf, uint32_t len);
/* Adds an item after the existing ones. False: it does not fit, and nothing has changed. With room
 * for attributes these can be set later. */
bool lpi_items_add(struct lpi_items *items, const struct lp_ns_item *item,
		   bool has_room) LP_MUST_CHECK;
/* The same for an item whose name is a prefix and then its own name. */
bool lpi_items_add_below(struct lpi_items *items, struct lp_bytes dir,
			 const struct lp_ns_item *item, bool has_room) LP_MUST_CHECK;
void lpi_items_get(const struct lpi_items *items, uint32_t idx, struct lp_ns_item *ret);
void lpi_items_set_attrs(struct lpi_items *items, uint32_t idx, const struct lp_attrs *attrs);
/* Sorts the items by their cookies. */
void lpi_items_sort(struct lpi_items *items);
/* Keeps the items with the lower half of the cookies, sorted. Returns the lowest dropped cookie.
 * There must be at least one item. */
uint64_t lpi_items_halve(struct lpi_items *items);
/* The cookie of the last item; 0: there is none. */
uint64_t lpi_items_last_cookie(const struct lpi_items *items);
/* Returns the number of bytes used in all. No item can be added afterwards. */
uint32_t lpi_items_finish(struct lpi_items *items);

/* The bytes that an item takes, with its offset. */
uint32_t lpi_items_bytes(uint32_t name_len, bool has_room);

#endif
