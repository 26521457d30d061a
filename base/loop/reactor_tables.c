/* SPDX-License-Identifier: Apache-2.0 */
/* Both tables are sparse, and have their full size from the start, because each slot is filled and
 * emptied alone. Memory is registered in pieces, because the kernel limits the size of one. */
#include "base/loop/reactor_tables.h"

#include <errno.h>
#include <liburing.h>
#include <stdlib.h>

#include "base/assert.h"

/* The most that the kernel registers at once. */
#define PIECE_BYTES ((size_t)1 << 30)

struct lpi_reactor_piece {
	uint8_t *base; /* NULL: a free slot */
	size_t len;
	const void *region; /* the base of the whole */
};

static int tables_register(const struct lpi_reactor_tables *tables)
{
	int err = 0;
	if (tables->files_max > 0)
		err = io_uring_register_files_sparse(tables->ring, tables->files_max);
	if (err >= 0 && tables->buffers_max > 0)
		err = io_uring_register_buffers_sparse(tables->ring, tables->buffers_max);
	return err < 0 ? err : 0;
}

int lpi_reactor_tables_init(struct lpi_reactor_tables *tables, struct io_uring *ring,
			    uint32_t files_max, uint32_t buffers_max)
{
	*tables = (struct lpi_reactor_tables){
		.ring = ring, .files_max = files_max, .buffers_max = buffers_max};
	tables->files = calloc(files_max + 1, sizeof(*tables->files));
	tables->pieces = calloc(buffers_max + 1, sizeof(*tables->pieces));
	int err = tables->files == NULL || tables->pieces == NULL ? -ENOMEM : 0;
	if (err == 0 && ring != NULL)
		err = tables_register(tables);
	if (err < 0) {
		lpi_reactor_tables_fini(tables);
		return err;
	}
	for (uint32_t i = 0; i < files_max; i++)
		tables->files[i] = -1;
	return 0;
}

void lpi_reactor_tables_fini(struct lpi_reactor_tables *tables)
{
	free(tables->files);
	free(tables->pieces);
	*tables = (struct lpi_reactor_tables){0};
}

int lpi_reactor_tables_add_file(struct lpi_reactor_tables *tables, int fd, uint32_t *ret_slot)
{
	LP_ASSERT(fd >= 0);
	if (tables->ring == NULL)
		return -ENFILE;
	for (uint32_t slot = 0; slot < tables->files_max; slot++) {
		if (tables->files[slot] >= 0)
			continue;
		int err = io_uring_register_files_update(tables->ring, slot, &fd, 1);
		if (err < 0)
			return err;
		tables->files[slot] = fd;
		*ret_slot = slot;
		return 0;
	}
	return -ENFILE;
}

void lpi_reactor_tables_remove_file(struct lpi_reactor_tables *tables, uint32_t slot)
{
	LP_ASSERT(slot < tables->files_max && tables->files[slot] >= 0);
	int none = -1;
	/* Clearing a slot of our own table can only fail for lack of memory. Then the file stays
	 * referenced until the ring ends. */
	(void)io_uring_register_files_update(tables->ring, slot, &none, 1);
	tables->files[slot] = -1;
}

static int slot_update(const struct lpi_reactor_tables *tables, uint32_t slot, void *base,
		       size_t len)
{
	struct iovec iov = {.iov_base = base, .iov_len = len};
	__u64 tag = 0;
	if (tables->ring == NULL)
		return 0;
	int err = io_uring_register_buffers_update_tag(tables->ring, slot, &iov, &tag, 1);
	return err < 0 ? err : 0;
}

static int piece_add(struct lpi_reactor_tables *tables, const void *region, uint8_t *base,
		     size_t len)
{
	for (uint32_t slot = 0; slot < tables->buffers_max; slot++) {
		struct lpi_reactor_piece *piece = &tables->pieces[slot];
		if (piece->base != NULL)
			continue;
		int err = slot_update(tables, slot, base, len);
		if (err == 0)
			*piece = (struct lpi_reactor_piece){base, len, region};
		return err;
	}
	return -ENFILE;
}

/* Returns the number of pieces that it removed. */
static uint32_t pieces_remove(struct lpi_reactor_tables *tables, const void *region)
{
	uint32_t cnt = 0;
	for (uint32_t slot = 0; slot < tables->buffers_max; slot++) {
		struct lpi_reactor_piece *piece = &tables->pieces[slot];
		if (piece->base == NULL || piece->region != region)
			continue;
		(void)slot_update(tables, slot, NULL, 0); /* as for files */
		*piece = (struct lpi_reactor_piece){0};
		cnt++;
	}
	return cnt;
}

int lpi_reactor_tables_add_buffer(struct lpi_reactor_tables *tables, void *base, size_t len)
{
	LP_ASSERT(base != NULL && len > 0);
	int err = 0;
	for (size_t at = 0; at < len && err == 0; at += PIECE_BYTES)
		err = piece_add(tables, base, (uint8_t *)base + at, LP_MIN(len - at, PIECE_BYTES));
	if (err < 0)
		(void)pieces_remove(tables, base); /* there may be none */
	return err;
}

void lpi_reactor_tables_remove_buffer(struct lpi_reactor_tables *tables, const void *base)
{
	uint32_t cnt = pieces_remove(tables, base);
	LP_ASSERT(cnt > 0);
}

/* Sets the piece's length; 0 removes the piece. If the kernel refuses, a piece that became shorter
 * must be shorter nevertheless. */
static int piece_resize(const struct lpi_reactor_tables *tables, struct lpi_reactor_piece *piece,
			size_t len)
{
	uint32_t slot = (uint32_t)(piece - tables->pieces);
	bool shrinks = len < piece->len;
	int err = len > 0 ? slot_update(tables, slot, piece->base, len) : 0;
	if (shrinks && (err < 0 || len == 0)) {
		(void)slot_update(tables, slot, NULL, 0); /* as for files */
		*piece = (struct lpi_reactor_piece){0};
	} else if (err == 0) {
		piece->len = len;
	}
	return err;
}

static struct lpi_reactor_piece *piece_at(const struct lpi_reactor_tables *tables,
					  const void *region, const uint8_t *base)
{
	for (uint32_t slot = 0; slot < tables->buffers_max; slot++) {
		struct lpi_reactor_piece *piece = &tables->pieces[slot];
		if (piece->region == region && piece->base == base)
			return piece;
	}
	return NULL;
}

int lpi_reactor_tables_resize_buffer(struct lpi_reactor_tables *tables, void *base, size_t len)
{
	int result = 0;
	LP_ASSERT(base != NULL);
	for (uint32_t slot = 0; slot < tables->buffers_max; slot++) {
		struct lpi_reactor_piece *piece = &tables->pieces[slot];
		if (piece->base == NULL || piece->region != base)
			continue;
		size_t at = (size_t)(piece->base - (uint8_t *)base);
		size_t want = len - LP_MIN(len, at);
		want = LP_MIN(want, PIECE_BYTES);
		int err = want != piece->len ? piece_resize(tables, piece, want) : 0;
		result = result == 0 ? err : result;
	}
	for (size_t at = 0; at < len && result == 0; at += PIECE_BYTES) {
		uint8_t *from = (uint8_t *)base + at;
		if (piece_at(tables, base, from) == NULL)
			result = piece_add(tables, base, from, LP_MIN(len - at, PIECE_BYTES));
	}
	return result;
}

int lpi_reactor_tables_find_buffer(const struct lpi_reactor_tables *tables, const void *buf,
				   size_t len)
{
	const uint8_t *from = buf;
	for (uint32_t slot = 0; slot < tables->buffers_max; slot++) {
		const struct lpi_reactor_piece *piece = &tables->pieces[slot];
		if (piece->base == NULL || from < piece->base)
			continue;
		if (!lp_range_outside((uint64_t)(from - piece->base), len, piece->len))
			return (int)slot;
	}
	return -1;
}
