/* SPDX-License-Identifier: Apache-2.0 */
/* What the two C++ files of this directory, kvfs.cc and kv.cc, share. C sees nothing of it.
 *
 * Threads: any. Blocking: none. Errors: none.
 */
#ifndef LP_STORE_KVFS_IMPL_H
#define LP_STORE_KVFS_IMPL_H

struct lp_kvfs_env;

#ifdef __cplusplus
#include <cerrno>

namespace rocksdb
{
class Env;
class Status;
} /* namespace rocksdb */

rocksdb::Env *lpi_kvfs_env_rep(struct lp_kvfs_env *env);
/* 0 or a negative errno; the only place where RocksDB's errors become ours. */
int lpi_kvfs_errno(const rocksdb::Status &status);

/* No exception may enter C. RocksDB throws none; what is left is memory. */
template <class Fn> static int lpi_guarded(Fn fn)
{
	try {
		return fn();
	} catch (...) {
		return -ENOMEM;
	}
}
#endif

#endif
