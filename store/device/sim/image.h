/* SPDX-License-Identifier: Apache-2.0 */
/* A sparse image in memory whose copies share what they have in common. Private to the simulated
 * device.
 *
 * Pages that were never written read as zeros and take no memory. A copy costs one reference;
 * the first write to a page after that copies the page and the path to it.
 *
 * Threads: an image belongs to one; images that share pages may belong to several.
 * Out of memory: aborts.
 */
#ifndef LP_STORE_DEVICE_SIM_IMAGE_H
#define LP_STORE_DEVICE_SIM_IMAGE_H

#include "base/compiler.h"

#define LPI_PAGE_BYTES 4096u

/* Zeroed memory is no image: fini accepts it. */
struct lpi_image {
	void *root;      /* a page if height is 0, else a node; NULL: all zeros */
	uint32_t height; /* levels of nodes above the pages */
	uint64_t size_bytes;
};

/* malloc, calloc for a test instrument: never NULL. */
void *lpi_sim_alloc(size_t len);
void *lpi_sim_alloc_zeroed(size_t len);
void *lpi_sim_realloc(void *old, size_t len);

void lpi_image_init(struct lpi_image *image, uint64_t size_bytes);
void lpi_image_clone(const struct lpi_image *image, struct lpi_image *ret_clone);
void lpi_image_fini(struct lpi_image *image);

/* Ranges lie within the image (asserted); they need no alignment. */
void lpi_image_read(const struct lpi_image *image, void *buf, uint64_t length_bytes,
		    uint64_t offset_bytes);
void lpi_image_write(struct lpi_image *image, const void *buf, uint64_t length_bytes,
		     uint64_t offset_bytes);
/* Gives whole pages back. */
void lpi_image_zero(struct lpi_image *image, uint64_t length_bytes, uint64_t offset_bytes);
/* Flips each bit that is set in mask. */
void lpi_image_flip(struct lpi_image *image, const void *mask, uint64_t length_bytes,
		    uint64_t offset_bytes);

#endif
