/* SPDX-License-Identifier: Apache-2.0 */
/* Cache of path lookups: from (directory, name) to the inode, for directories only.
 *
 * Threads: the shard's.
 * Blocking: none.
 * Memory: allocated by new only.
 * Errors: of new only.
 * Limits: names of more than LPI_DIRCACHE_NAME_MAX bytes are never remembered.
 *
 * With it a path is looked up without asking for each of its names. Why it is never stale:
 *   1. Before a directory is renamed or removed, the caches of all shards are frozen (ops/paths.c).
 *      They forget its names and remember nothing until they are thawed.
 *   2. Each freeze and thaw begins a new generation. A caller that adds an entry says in which
 *      generation its lookup began. An entry of an older generation is dropped.
 */
#ifndef LP_NAMESPACE_STATE_DIR_CACHE_H
#define LP_NAMESPACE_STATE_DIR_CACHE_H

#include <errno.h>

#include "store/store.h"

#define LPI_DIRCACHE_NAME_MAX 77u

struct lpi_dircache;

/* The directory that a name leads to. */
struct lpi_dirhit {
	struct lp_ino ino;
	bool is_spread;
};

/* -ENOMEM. It takes at most so many bytes, and at least a page. */
int lpi_dircache_new(uint64_t bytes, struct lpi_dircache **ret_cache) LP_MUST_CHECK;
/* Accepts NULL. */
void lpi_dircache_free(struct lpi_dircache *cache);

bool lpi_dircache_find(struct lpi_dircache *cache, struct lp_ino dir, struct lp_bytes name,
		       struct lpi_dirhit *ret);
uint64_t lpi_dircache_generation(const struct lpi_dircache *cache);
/* generation: that of the time before the name was looked up. */
void lpi_dircache_add(struct lpi_dircache *cache, uint64_t generation, struct lp_ino dir,
		      struct lp_bytes name, struct lpi_dirhit hit);
void lpi_dircache_forget(struct lpi_dircache *cache, struct lp_ino dir, struct lp_bytes name);
/* Each freeze needs one thaw. */
void lpi_dircache_freeze(struct lpi_dircache *cache);
void lpi_dircache_thaw(struct lpi_dircache *cache);

uint64_t lpi_dircache_hits(const struct lpi_dircache *cache);
uint64_t lpi_dircache_misses(const struct lpi_dircache *cache);

#endif
