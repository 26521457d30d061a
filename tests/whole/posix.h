/* SPDX-License-Identifier: Apache-2.0 */
/* The door that is a file system: operations on the whole namespace as system calls below a
 * directory, by root. What a file system has no call for is skipped: what goes by keys, omap,
 * conditions, clones.
 *
 * Threads: one. Errors: what the calls say, in the answers.
 */
#ifndef LP_TESTS_WHOLE_POSIX_H
#define LP_TESTS_WHOLE_POSIX_H

#include "tests/whole/model.h"

#define LPI_WHOLE_POSIX_OPENS 512u

struct lpi_whole_posix {
	struct lpi_whole_door door;
	char root[256];
	uint32_t open_cnt;
	struct {
		uint32_t slot;
		int fd;
	} opens[LPI_WHOLE_POSIX_OPENS];
};

/* root is an empty directory. */
void lpi_whole_posix_init(struct lpi_whole_posix *posix, const char *root);
/* Closes what is open. */
void lpi_whole_posix_fini(struct lpi_whole_posix *posix);
/* Such as a file system can do it: of a drawn operation what it has no way to say is taken out. */
void lpi_whole_posix_fit(struct lpi_whole_op *op);

#endif
