/* SPDX-License-Identifier: Apache-2.0 */
/* C++ internals of RocksDB's file system, shared by the C++ files; C sees nothing of it.
 *
 * Threads: any.
 * Blocking: none.
 * Errors: none.
 */
#ifndef LP_STORE_KVFS_KVFS_CXX_H
#define LP_STORE_KVFS_KVFS_CXX_H

struct lp_fetch;
struct lp_kvfs_env;

#ifdef __cplusplus
#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>

namespace rocksdb
{
class Env;
class MemTableRepFactory;
class Status;
} /* namespace rocksdb */

rocksdb::Env *lpi_kvfs_env_rep(struct lp_kvfs_env *env);
/* 0 or a negative errno; the only place where RocksDB's errors become ours. */
int lpi_kvfs_errno(const rocksdb::Status &status);
/* The last error of the file layer on this thread, once; 0: none. */
int lpi_kvfs_take_error();
/* As long as it lives no read of a table by this thread waits for a device: it is put off, and
 * noted in the fetch. */
class lpi_kvfs_fetching
{
      public:
	explicit lpi_kvfs_fetching(struct lp_fetch *fetch);
	~lpi_kvfs_fetching();
	lpi_kvfs_fetching(const lpi_kvfs_fetching &) = delete;
	lpi_kvfs_fetching &operator=(const lpi_kvfs_fetching &) = delete;
};
/* What makes memtables (index/memtable.cc); and the memory that it keeps for the next ones, which
 * is never more than one has: any thread may ask. */
std::shared_ptr<rocksdb::MemTableRepFactory> lpi_kv_table_factory(uint64_t write_buffer_bytes);
size_t lpi_kv_table_kept_bytes(const rocksdb::MemTableRepFactory &factory);
/* The writer's. */
size_t lpi_kv_table_drop_kept(rocksdb::MemTableRepFactory &factory);

/* A batch (index/batch.cc). */
struct lp_kv_batch {
	std::string bytes;
	uint32_t cnt = 0;
};

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
