/* SPDX-License-Identifier: Apache-2.0 */
/* Files and memory that are registered with a reactor's ring.
 *
 * Threads: the reactor's.
 *
 * This is a part of base/loop/reactor.h, which documents their use, their thread and their limits.
 * Without a ring, files cannot be added, and memory is only recorded.
 */
#ifndef LP_BASE_LOOP_REACTOR_TABLES_H
#define LP_BASE_LOOP_REACTOR_TABLES_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct io_uring;
struct lpi_reactor_piece;

struct lpi_reactor_tables {
	struct io_uring *ring; /* or NULL */
	uint32_t files_max;
	uint32_t buffers_max;
	int32_t *files; /* by slot; -1: free */
	struct lpi_reactor_piece *pieces;
};

/* -ENOMEM, or the kernel's error. */
int lpi_reactor_tables_init(struct lpi_reactor_tables *tables, struct io_uring *ring,
			    uint32_t files_max, uint32_t buffers_max) LP_MUST_CHECK;
void lpi_reactor_tables_fini(struct lpi_reactor_tables *tables);

int lpi_reactor_tables_add_file(struct lpi_reactor_tables *tables, int fd,
				uint32_t *ret_slot) LP_MUST_CHECK;
void lpi_reactor_tables_remove_file(struct lpi_reactor_tables *tables, uint32_t slot);

int lpi_reactor_tables_add_buffer(struct lpi_reactor_tables *tables, void *base,
				  size_t len) LP_MUST_CHECK;
void lpi_reactor_tables_remove_buffer(struct lpi_reactor_tables *tables, const void *base);
int lpi_reactor_tables_resize_buffer(struct lpi_reactor_tables *tables, void *base,
				     size_t len) LP_MUST_CHECK;
/* The slot of the piece that holds the whole range; -1: there is none. */
int lpi_reactor_tables_find_buffer(const struct lpi_reactor_tables *tables, const void *buf,
				   size_t len);

#endif
