/* SPDX-License-Identifier: Apache-2.0 */
/* A radix tree as high as the file's last block needs. Each node and leaf has 64 places. A leaf is
 * made when a block near is first needed and stays until the file is cut in front of it, so that
 * the place of a page does not move and overwriting allocates nothing. */
#include "store/memstore/memstore_impl.h"

#include <stdlib.h>

#define FAN_SHIFT  6u
#define FAN        (1u << FAN_SHIFT)
#define HEIGHT_MAX 5u /* 64^6 blocks are more than a file may have */

struct leaf {
	struct lpi_mem_page pages[FAN];
};

struct node {
	void *children[FAN];
};

/* How many blocks lie below one node or leaf of this height. */
static uint64_t span_of(uint32_t height)
{
	return UINT64_C(1) << (FAN_SHIFT * (height + 1));
}

static uint32_t slot_of(uint64_t block, uint32_t height)
{
	return (uint32_t)(block >> (FAN_SHIFT * height)) & (FAN - 1);
}

struct lpi_mem_page *lpi_mem_page_find(const struct lpi_mem_pages *pages, uint64_t block)
{
	void *at = pages->root;
	if (block >= span_of(pages->height))
		return NULL;
	for (uint32_t height = pages->height; at != NULL && height > 0; height--)
		at = ((struct node *)at)->children[slot_of(block, height)];
	return at == NULL ? NULL : &((struct leaf *)at)->pages[slot_of(block, 0)];
}

static bool grow(struct lpi_mem_pages *pages)
{
	LP_ASSERT(pages->height < HEIGHT_MAX);
	if (pages->root != NULL) {
		struct node *node = calloc(1, sizeof(*node));
		if (node == NULL)
			return false;
		node->children[0] = pages->root;
		pages->root = node;
	}
	pages->height++;
	return true;
}

struct lpi_mem_page *lpi_mem_page_make(struct lpi_mem_pages *pages, uint64_t block)
{
	struct lpi_mem_page *page = lpi_mem_page_find(pages, block);
	if (LP_LIKELY(page != NULL))
		return page;
	while (block >= span_of(pages->height))
		if (!grow(pages))
			return NULL;
	void **at = &pages->root;
	for (uint32_t height = pages->height; height > 0; height--) {
		if (*at == NULL)
			*at = calloc(1, sizeof(struct node));
		if (*at == NULL)
			return NULL;
		at = &((struct node *)*at)->children[slot_of(block, height)];
	}
	if (*at == NULL)
		*at = calloc(1, sizeof(struct leaf));
	return *at == NULL ? NULL : &((struct leaf *)*at)->pages[slot_of(block, 0)];
}

/* In one leaf, from this slot on; FAN: none. */
static uint32_t next_in_leaf(const struct leaf *leaf, uint32_t slot)
{
	while (slot < FAN && !lpi_mem_page_is_data(&leaf->pages[slot]))
		slot++;
	return slot;
}

/* The leaf that holds the block, or NULL, and where the next one can begin. */
static const struct leaf *leaf_at(const struct lpi_mem_pages *pages, uint64_t block,
				  uint64_t *ret_next)
{
	void *at = pages->root;
	uint32_t height = pages->height;
	while (at != NULL && height > 0) {
		at = ((struct node *)at)->children[slot_of(block, height)];
		height--;
	}
	*ret_next = lp_align_down(block, span_of(height)) + span_of(height);
	return at;
}

uint64_t lpi_mem_pages_next_data(const struct lpi_mem_pages *pages, uint64_t block)
{
	while (block < span_of(pages->height)) {
		uint64_t next = 0;
		const struct leaf *leaf = leaf_at(pages, block, &next);
		uint32_t slot = leaf == NULL ? FAN : next_in_leaf(leaf, slot_of(block, 0));
		if (slot < FAN)
			return lp_align_down(block, FAN) + slot;
		block = next;
	}
	return UINT64_MAX;
}

void lpi_mem_page_drop(struct lpi_mem_pages *pages, struct lpi_mem_page *page)
{
	if (page->buf == NULL)
		return;
	lp_buf_put(page->buf);
	*page = (struct lpi_mem_page){0};
	LP_ASSERT(pages->cnt > 0);
	pages->cnt--;
}

/* From `block` on, counted from where the subtree begins; frees it when nothing of it is left. As
 * deep as the tree is high. */
static void cut_below(struct lpi_mem_pages *pages, void **at, uint32_t height, uint64_t block)
{
	if (*at == NULL)
		return;
	uint64_t child_span = height == 0 ? 1 : span_of(height - 1);
	for (uint64_t slot = block / child_span; slot < FAN; slot++) {
		uint64_t begin = slot * child_span;
		uint64_t rest = begin < block ? block - begin : 0;
		if (height == 0)
			lpi_mem_page_drop(pages, &((struct leaf *)*at)->pages[slot]);
		else
			cut_below(pages, &((struct node *)*at)->children[slot], height - 1, rest);
	}
	if (block == 0) {
		free(*at);
		*at = NULL;
	}
}

void lpi_mem_pages_cut(struct lpi_mem_pages *pages, uint64_t block)
{
	if (block >= span_of(pages->height))
		return;
	cut_below(pages, &pages->root, pages->height, block);
	if (pages->root == NULL) {
		LP_ASSERT(pages->cnt == 0);
		pages->height = 0;
	}
}
