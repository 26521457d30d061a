/* SPDX-License-Identifier: Apache-2.0 */
/* A radix tree of 16 children per node over pages of 4 KiB. Nodes and pages count references;
 * whoever wants to change a shared one copies it first, from the root down, so that a page below
 * an unshared path with a count of one belongs to this image alone. */
#include "store/device/sim/image.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

#define FANOUT_BITS 4u
#define FANOUT      (1u << FANOUT_BITS)

/* The head that nodes and pages have in common. */
struct shared {
	_Atomic uint32_t refs;
};

struct node {
	struct shared shared;
	struct shared *child[FANOUT];
};

struct page {
	struct shared shared;
	unsigned char bytes[LPI_PAGE_BYTES];
};

void *lpi_sim_alloc(size_t len)
{
	void *mem = malloc(len);
	LP_ASSERT(mem != NULL);
	return mem;
}

void *lpi_sim_alloc_zeroed(size_t len)
{
	void *mem = calloc(1, len);
	LP_ASSERT(mem != NULL);
	return mem;
}

void *lpi_sim_realloc(void *old, size_t len)
{
	void *mem = realloc(old, len);
	LP_ASSERT(mem != NULL);
	return mem;
}

static struct node *node_of(struct shared *shared)
{
	return LP_CONTAINER_OF(shared, struct node, shared);
}

static struct page *page_of(struct shared *shared)
{
	return LP_CONTAINER_OF(shared, struct page, shared);
}

static void get(struct shared *shared)
{
	atomic_fetch_add_explicit(&shared->refs, 1, memory_order_relaxed);
}

/* Recursion ends after `height` steps: at most 13 for any size. */
static void put(struct shared *shared, uint32_t height)
{
	if (shared == NULL || atomic_fetch_sub_explicit(&shared->refs, 1, memory_order_acq_rel) > 1)
		return;
	if (height == 0) {
		free(page_of(shared));
		return;
	}
	struct node *node = node_of(shared);
	for (uint32_t i = 0; i < FANOUT; i++)
		put(node->child[i], height - 1);
	free(node);
}

void lpi_image_init(struct lpi_image *image, uint64_t size_bytes)
{
	uint64_t pages = size_bytes / LPI_PAGE_BYTES + (size_bytes % LPI_PAGE_BYTES != 0);
	uint32_t height = 0;
	while (pages > 1) {
		pages = (pages + FANOUT - 1) >> FANOUT_BITS;
		height++;
	}
	*image = (struct lpi_image){.height = height, .size_bytes = size_bytes};
}

void lpi_image_clone(const struct lpi_image *image, struct lpi_image *ret_clone)
{
	*ret_clone = *image;
	if (image->root != NULL)
		get(image->root);
}

void lpi_image_fini(struct lpi_image *image)
{
	put(image->root, image->height);
	*image = (struct lpi_image){0};
}

static uint32_t child_idx(uint64_t page_idx, uint32_t level)
{
	return (uint32_t)(page_idx >> (FANOUT_BITS * (level - 1))) & (FANOUT - 1);
}

/* NULL: zeros. */
static const unsigned char *find_page(const struct lpi_image *image, uint64_t page_idx)
{
	struct shared *at = image->root;
	for (uint32_t level = image->height; level > 0 && at != NULL; level--)
		at = node_of(at)->child[child_idx(page_idx, level)];
	return at != NULL ? page_of(at)->bytes : NULL;
}

static struct node *own_node(struct shared *old, uint32_t height)
{
	if (old != NULL && atomic_load_explicit(&old->refs, memory_order_acquire) == 1)
		return node_of(old);
	struct node *node = lpi_sim_alloc_zeroed(sizeof(*node));
	atomic_init(&node->shared.refs, 1);
	if (old == NULL)
		return node;
	for (uint32_t i = 0; i < FANOUT; i++) {
		node->child[i] = node_of(old)->child[i];
		if (node->child[i] != NULL)
			get(node->child[i]);
	}
	put(old, height);
	return node;
}

static struct page *own_page(struct shared *old)
{
	if (old != NULL && atomic_load_explicit(&old->refs, memory_order_acquire) == 1)
		return page_of(old);
	struct page *page = lpi_sim_alloc(sizeof(*page));
	atomic_init(&page->shared.refs, 1);
	if (old == NULL) {
		memset(page->bytes, 0, sizeof(page->bytes));
		return page;
	}
	memcpy(page->bytes, page_of(old)->bytes, sizeof(page->bytes));
	put(old, 0);
	return page;
}

/* Makes the path to a page this image's own and returns the page's slot. */
static struct shared **own_path(struct lpi_image *image, struct shared **root, uint64_t page_idx)
{
	struct shared **slot = root;
	for (uint32_t level = image->height; level > 0; level--) {
		struct node *node = own_node(*slot, level);
		*slot = &node->shared;
		slot = &node->child[child_idx(page_idx, level)];
	}
	return slot;
}

static unsigned char *edit_page(struct lpi_image *image, uint64_t page_idx)
{
	struct shared *root = image->root;
	struct shared **slot = own_path(image, &root, page_idx);
	struct page *page = own_page(*slot);
	*slot = &page->shared;
	image->root = root;
	return page->bytes;
}

static void drop_page(struct lpi_image *image, uint64_t page_idx)
{
	struct shared *root = image->root;
	struct shared **slot = own_path(image, &root, page_idx);
	put(*slot, 0);
	*slot = NULL;
	image->root = root;
}

/* A part of a range that lies in one page. */
struct part {
	uint64_t page_idx;
	uint32_t skip; /* bytes into the page */
	uint32_t len;
};

static struct part part_at(uint64_t offset_bytes, uint64_t left_bytes)
{
	struct part part = {.page_idx = offset_bytes / LPI_PAGE_BYTES,
			    .skip = (uint32_t)(offset_bytes % LPI_PAGE_BYTES)};
	part.len = (uint32_t)LP_MIN(left_bytes, (uint64_t)(LPI_PAGE_BYTES - part.skip));
	return part;
}

void lpi_image_read(const struct lpi_image *image, void *buf, uint64_t length_bytes,
		    uint64_t offset_bytes)
{
	LP_ASSERT(!lp_range_outside(offset_bytes, length_bytes, image->size_bytes));
	unsigned char *to = buf;
	for (uint64_t done = 0; done < length_bytes;) {
		struct part part = part_at(offset_bytes + done, length_bytes - done);
		const unsigned char *page = find_page(image, part.page_idx);
		if (page != NULL)
			memcpy(to + done, page + part.skip, part.len);
		else
			memset(to + done, 0, part.len);
		done += part.len;
	}
}

static bool is_zero_page(const unsigned char *bytes, uint32_t len)
{
	return len == LPI_PAGE_BYTES && bytes[0] == 0 && memcmp(bytes, bytes + 1, len - 1) == 0;
}

/* Zeros are not kept: a new log is full of them, which each recovery reads. */
void lpi_image_write(struct lpi_image *image, const void *buf, uint64_t length_bytes,
		     uint64_t offset_bytes)
{
	LP_ASSERT(!lp_range_outside(offset_bytes, length_bytes, image->size_bytes));
	const unsigned char *from = buf;
	for (uint64_t done = 0; done < length_bytes;) {
		struct part part = part_at(offset_bytes + done, length_bytes - done);
		if (!is_zero_page(from + done, part.len))
			memcpy(edit_page(image, part.page_idx) + part.skip, from + done, part.len);
		else if (find_page(image, part.page_idx) != NULL)
			drop_page(image, part.page_idx);
		done += part.len;
	}
}

void lpi_image_zero(struct lpi_image *image, uint64_t length_bytes, uint64_t offset_bytes)
{
	LP_ASSERT(!lp_range_outside(offset_bytes, length_bytes, image->size_bytes));
	for (uint64_t done = 0; done < length_bytes;) {
		struct part part = part_at(offset_bytes + done, length_bytes - done);
		done += part.len;
		if (find_page(image, part.page_idx) == NULL)
			continue;
		if (part.len == LPI_PAGE_BYTES)
			drop_page(image, part.page_idx);
		else
			memset(edit_page(image, part.page_idx) + part.skip, 0, part.len);
	}
}

void lpi_image_flip(struct lpi_image *image, const void *mask, uint64_t length_bytes,
		    uint64_t offset_bytes)
{
	LP_ASSERT(!lp_range_outside(offset_bytes, length_bytes, image->size_bytes));
	const unsigned char *from = mask;
	for (uint64_t done = 0; done < length_bytes;) {
		struct part part = part_at(offset_bytes + done, length_bytes - done);
		unsigned char *to = edit_page(image, part.page_idx) + part.skip;
		for (uint32_t i = 0; i < part.len; i++)
			to[i] ^= from[done + i];
		done += part.len;
	}
}
