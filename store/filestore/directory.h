/* SPDX-License-Identifier: Apache-2.0 */
/* Directory of a file store: identity, lock, and number of shards.
 *
 * Threads: one at a time.
 * Blocking: open.
 * Memory: none is allocated.
 * Errors: -ENOTEMPTY not a store, and not empty. -EBUSY locked. -EUCLEAN the file says something
 * else. -ENOTSUP a newer version. -EINVAL another number of shards. Otherwise the host's own.
 *
 * An empty directory becomes a store when it is first opened. The file `lapis-file-store` says
 * so, and is there wholly or not at all. A directory that holds anything else and not that file
 * is refused, and so is one that another process has open.
 *
 *   lapis-file-store     "lapis file store 1", then "uuid HEX" and "shards N", one a line
 *   shard-NN/journal     the log of docs/format/log.md, in a file of fixed size
 *   shard-NN/index/      RocksDB's files
 *   shard-NN/objects/XX/ objects' data (store/filestore/filestore_impl.h)
 */
#ifndef LP_STORE_FILESTORE_DIRECTORY_H
#define LP_STORE_FILESTORE_DIRECTORY_H

#include "base/compiler.h"
#include "store/record/types.h"

#define LP_FILE_DIR_UUID_BYTES 16u
#define LP_FILE_DIR_WHY_MAX    256u

struct lp_file_dir {
	int fd; /* which holds the lock */
	uint32_t shard_cnt;
	uint8_t uuid[LP_FILE_DIR_UUID_BYTES];
};

struct lp_file_dir_options {
	const char *path;
	uint32_t shard_cnt; /* 0: what is there, or default_shard_cnt */
	uint32_t default_shard_cnt;
};

/* *ret_why is one line for people when it fails. */
int lp_file_dir_open(const struct lp_file_dir_options *options, struct lp_file_dir *ret_dir,
		     char ret_why[LP_FILE_DIR_WHY_MAX]) LP_MUST_CHECK;
/* All shards are closed. */
void lp_file_dir_close(struct lp_file_dir *dir);

#endif
