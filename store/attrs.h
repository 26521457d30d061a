/* SPDX-License-Identifier: Apache-2.0 */
/* Attribute values of inodes that every door can live with.
 *
 * Threads: any.
 * Blocking: none.
 * Memory: none is allocated.
 *
 * The kernel behind a mount has narrower limits than the record of an inode. An owner with the
 * number 0xffffffff is nobody to it: it refuses even root such an inode. Times of the mount are
 * seconds and a part of a second. So the first and the last second that a number of nanoseconds
 * can say are not valid.
 *
 * A record may still hold such values. It is read as it is: only the checker tells of it, and
 * mends it.
 */
#ifndef LP_STORE_ATTRS_H
#define LP_STORE_ATTRS_H

#include "store/record/inode.h"
#include "store/store.h"

#define LP_OWNER_NOBODY UINT32_MAX

/* Since 1970: the years 1677 to 2262, in whole seconds. */
#define LP_TIME_S_MAX  (INT64_MAX / INT64_C(1000000000) - 1)
#define LP_TIME_NS_MAX (LP_TIME_S_MAX * INT64_C(1000000000) + INT64_C(999999999))
#define LP_TIME_NS_MIN (-LP_TIME_S_MAX * INT64_C(1000000000))

static inline bool lp_time_is_possible(int64_t ns)
{
	return ns >= LP_TIME_NS_MIN && ns <= LP_TIME_NS_MAX;
}

/* The name of the first attribute among those of the mask (LP_ATTR_*) that nobody can have, or
 * NULL. Modes, flags, types and names break rules of the record itself: lp_inode_fault(). */
const char *lp_attrs_fault(const struct lp_attrs *attrs, uint32_t mask);

/* The same of a record; and what it is to be instead: root's, without set-user-ID and
 * set-group-ID if it is a file, and the nearest time. False if nothing had to be changed. */
const char *lp_inode_impossible(const struct lp_inode *inode);
bool lp_inode_make_possible(struct lp_inode *inode);

#endif
