/* SPDX-License-Identifier: Apache-2.0 */
/* The file store: objects as files of a host file system, with a journal, to compare with.
 *
 * Threads, errors: as store.h says. The reactor has a ring.
 * Blocking: options->workers do what may block. Opening and closing block, and turn the reactor.
 *
 * The promises of store.h hold for it, except for the differences that store/filestore/README.md
 * names.
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
