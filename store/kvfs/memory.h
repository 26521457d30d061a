/* SPDX-License-Identifier: Apache-2.0 */
/* RocksDB's files in memory, with injected faults and power loss.
 *
 * Threads: any, under one mutex.
 * Blocking: only in the barrier that was set.
 * Memory: allocated for each file and name; -ENOMEM.
 * Errors: -ENOENT, those injected, and -EIO without power.
 *
 * It serves tests, benchmarks, the comparison store that keeps nothing, and files that must not
 * change (store/kvfs/read_only.h).
 *
 * It can fail: any operation from a given count on, with a given error, some number of times. It
 * can lose power: from a given operation on nothing has an effect, until lp_kvfs_mem_restart()
 * drops what had not been synced. A file keeps at least its synced bytes. Of later ones it keeps
 * nothing or (torn) some prefix. Names are durable at once, as with blockfs, but a file that was
 * never synced may vanish whole.
 *
 * Every operation also goes into a hash (kind of operation, name, length, offset). The hash tells
 * whether two runs were the same. It leaves the bytes out, because RocksDB writes random
 * identifiers into its files.
 */
#ifndef LP_STORE_KVFS_MEMORY_H
#define LP_STORE_KVFS_MEMORY_H

#include "store/kvfs/kvfs.h"

struct lp_kvfs_mem;

/* What an injected error can hit, as bits. */
enum lp_kvfs_mem_op {
	LP_KVFS_MEM_CREATE = 1u << 0,
	LP_KVFS_MEM_APPEND = 1u << 1,
	LP_KVFS_MEM_SYNC = 1u << 2,
	LP_KVFS_MEM_REMOVE = 1u << 3,
	LP_KVFS_MEM_RENAME = 1u << 4,
	LP_KVFS_MEM_PREAD = 1u << 5,
	LP_KVFS_MEM_OPEN = 1u << 6
};
#define LP_KVFS_MEM_CHANGES                                                                        \
	(LP_KVFS_MEM_CREATE | LP_KVFS_MEM_APPEND | LP_KVFS_MEM_SYNC | LP_KVFS_MEM_REMOVE |         \
	 LP_KVFS_MEM_RENAME)

struct lp_kvfs_mem_fault {
	uint32_t ops;   /* enum lp_kvfs_mem_op */
	uint32_t kinds; /* 1 << enum lp_kvfs_kind; 0: all */
	uint64_t skip;  /* so many matching operations still succeed */
	uint64_t times; /* so many after them fail; 0: the fault is off */
	int err;        /* negative errno */
};

/* Before a MANIFEST is appended to, as lp_kvfs_ops says. Called without the mutex. */
typedef int lp_kvfs_mem_barrier_fn(const char *name, void *arg);

struct lp_kvfs_mem_stats {
	uint64_t changes; /* operations of LP_KVFS_MEM_CHANGES, whether or not they succeeded */
	uint64_t reads;
	uint64_t appended_bytes;
	uint64_t synced_cnt;
	uint64_t failed; /* by a fault */
	uint64_t hash;   /* of all operations */
	uint64_t live_bytes;
	uint32_t files;
};

/* The seed decides what is torn and what vanishes at a restart. */
int lp_kvfs_mem_new(uint64_t seed, struct lp_kvfs_mem **ret_mem) LP_MUST_CHECK;
/* Accepts NULL. No file may be open (asserted). */
void lp_kvfs_mem_free(struct lp_kvfs_mem *mem);
struct lp_kvfs *lp_kvfs_mem_fs(struct lp_kvfs_mem *mem);

void lp_kvfs_mem_set_fault(struct lp_kvfs_mem *mem, const struct lp_kvfs_mem_fault *fault);
void lp_kvfs_mem_set_barrier(struct lp_kvfs_mem *mem, lp_kvfs_mem_barrier_fn *barrier, void *arg);
/* The power goes once so many more changes have been made. UINT64_MAX: never. */
void lp_kvfs_mem_cut_after(struct lp_kvfs_mem *mem, uint64_t changes);
bool lp_kvfs_mem_is_cut(struct lp_kvfs_mem *mem);
/* As after a power cut, whether or not there was one. No file may be open (asserted). */
void lp_kvfs_mem_restart(struct lp_kvfs_mem *mem, bool torn);

void lp_kvfs_mem_read_stats(struct lp_kvfs_mem *mem, struct lp_kvfs_mem_stats *ret_stats);

#endif
