/* SPDX-License-Identifier: Apache-2.0 */
/* The store on a host file system: objects as files, with a journal, as the classic design did. It
 * is there to be compared with; the promises of store.h hold for it, but for what
 * store/README.md names.
 *
 * Threads, errors: as store.h says. Whatever may block is done by options->workers; opening and
 * closing block, and turn the reactor. The reactor has a ring.
 */
#ifndef LP_STORE_FILESTORE_FILESTORE_H
#define LP_STORE_FILESTORE_FILESTORE_H

#include "store/filestore/directory.h"
#include "store/store.h"

/* devices, alloc_kind, sim_clock and what is about deferred payloads are not looked at. dir
 * outlives the store. A shard's directory is made when it is first opened. journal_bytes: of one
 * that is made; 0: 64 MiB. */
struct lp_store_file_options {
	const struct lp_file_dir *dir;
	uint64_t journal_bytes;
};

int lp_store_open_file(const struct lp_store_options *options,
		       const struct lp_store_file_options *file,
		       struct lp_store **ret_store) LP_MUST_CHECK;

#endif
