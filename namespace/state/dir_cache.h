/* SPDX-License-Identifier: Apache-2.0 */
/* What (directory, name) leads to, for directories only: so that a path is looked up without asking
 * for each of its names.
 *
 * Coherent, because who renames or removes a directory first freezes the caches of all shards
 * (ops/paths.c): they forget its names, and remember nothing until he has thawed them again. What
 * was being looked up meanwhile is not remembered either: who adds says when he began to look, and
 * each freeze and thaw begins a new generation.
 *
 * Threads: the shard's. Blocking: none. Allocation: new only. Names of more than
 * LPI_DIRCACHE_NAME_MAX bytes are never remembered.
 */
#ifndef LP_NAMESPACE_STATE_DIR_CACHE_H
#define LP_NAMESPACE_STATE_DIR_CACHE_H

#include <errno.h>

#include "store/store.h"

#define LPI_DIRCACHE_NAME_MAX 77u

struct lpi_dircache;

/* Where a name leads. */
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
/* generation: as it was before the name was looked up. */
void lpi_dircache_add(struct lpi_dircache *cache, uint64_t generation, struct lp_ino dir,
		      struct lp_bytes name, struct lpi_dirhit hit);
void lpi_dircache_forget(struct lpi_dircache *cache, struct lp_ino dir, struct lp_bytes name);
/* As many thaws as freezes. */
void lpi_dircache_freeze(struct lpi_dircache *cache);
void lpi_dircache_thaw(struct lpi_dircache *cache);

uint64_t lpi_dircache_hits(const struct lpi_dircache *cache);
uint64_t lpi_dircache_misses(const struct lpi_dircache *cache);

#endif
