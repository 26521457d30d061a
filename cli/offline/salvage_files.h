/* SPDX-License-Identifier: Apache-2.0 */
/* What lapis salvage takes out, written below a directory of the host.
 *
 *   DIR/objects/...     what verifies wholly, under its name
 *   DIR/damaged/...     files of which a part does not verify: that part is a hole
 *   DIR/lost+found/...  what has no name
 *
 * Nothing that exists is overwritten, and no symbolic link is followed. Owners and all bits of the
 * mode are set for root only; others get the permissions.
 *
 * Threads: the main thread only; blocks. Errors: those of the host's file system end it; damage
 * does not.
 */
#ifndef LP_CLI_OFFLINE_SALVAGE_FILES_H
#define LP_CLI_OFFLINE_SALVAGE_FILES_H

#include "cli/progress.h"
#include "store/salvage/salvage.h"

#define LPI_SALVAGE_DAMAGED "damaged"

struct lpi_salvage_files {
	struct lp_salvage_walker walker;
	struct lp_salvage *salvage;
	int dir_fd;
	bool is_root; /* owners can be set */
	struct lpi_progress progress;
	uint64_t bytes; /* of data that was taken out */
	uint64_t whole; /* objects that were taken out under their names, directories not counted */
	uint64_t dirs;
	uint64_t guessed; /* whose name an inode itself said, directories counted */
	uint64_t unnamed; /* that are in lost+found */
	uint64_t damaged;
	uint64_t lost; /* names whose object is lost */
	uint64_t left; /* attributes, entries of ordered maps and owners that the host does not take
			*/
};

/* Everything that the salvage has. Lines about what is damaged go to standard output. */
int lpi_salvage_files_write(struct lpi_salvage_files *files) LP_MUST_CHECK;

#endif
