/* SPDX-License-Identifier: Apache-2.0 */
/* Filter of names that a directory's fragment may have: a set of hashes.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: 5 to 16 bytes for a name, and 120 of its own.
 * Errors: none; no memory is false.
 *
 * A create must know that its name is not there yet. Finding nothing in the index takes a look
 * into each of its tables: a quarter of the thread's time for a create. Finding nothing here
 * takes one cache line. A fragment that has been in memory since it was made knows all of its
 * names so. A name that is found here may be there. A name that is not found is not.
 *
 * Nothing is ever taken out, because it is not known here whether the removal of a name is
 * durable.
 *
 * 32 bits of each hash are kept, in an open table that doubles. Each addition moves a few of the
 * smaller table, so that none takes long.
 */
#ifndef LP_STORE_NODES_NAME_FILTER_H
#define LP_STORE_NODES_NAME_FILTER_H

#include "base/compiler.h"

struct lp_names;

/* seed: must be unknown to clients that choose names. NULL: no memory. */
struct lp_names *lp_names_new(uint64_t seed);
/* Accepts NULL. */
void lp_names_free(struct lp_names *names);
/* False: no memory, and the filter does not know all names any more. */
bool lp_names_add(struct lp_names *names, const void *name, size_t len) LP_MUST_CHECK;
/* False: the name was never added. */
bool lp_names_may_have(const struct lp_names *names, const void *name, size_t len);
uint64_t lp_names_bytes(const struct lp_names *names);

#endif
