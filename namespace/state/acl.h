/* SPDX-License-Identifier: Apache-2.0 */
/* POSIX access control lists in the form that the kernel passes as extended attributes.
 *
 * Threads: any.
 * Blocking, memory: none.
 * Errors: -EINVAL, the bytes are no list that may be.
 * Limits: LP_ACL_BYTES_MAX.
 *
 * A list is a version, then entries of tag, permissions and id, little-endian. The kernel decides
 * by it. A file system must keep list and mode in agreement: when a list is set, when the mode is
 * set, and when an inode is made in a directory that has a default list.
 *
 * The nine bits of the mode are the entries of owner, others, and of the mask or, without one, of
 * the group. So an operation that sets the one sets the other in the same change, through either
 * door:
 *   - A set of the mode reads the list first and is guarded by it, also by its absence. If another
 *     list is there by then, it looks again.
 *   - A put that brings a list has that one's bits.
 *   - A list that is set by itself is a transaction of the store, in which the doors put the mode.
 *     The mount's kernel keeps others away meanwhile; the native door guards the inode's version.
 *   - A list longer than LP_ACL_BYTES_MAX, or bytes that are no list, could only have been stored
 *     before they were refused, and are left as they are.
 */
#ifndef LP_NAMESPACE_STATE_ACL_H
#define LP_NAMESPACE_STATE_ACL_H

#include <errno.h>

#include "base/compiler.h"
#include "store/store.h"

#define LP_ACL_ACCESS  "system.posix_acl_access"
#define LP_ACL_DEFAULT "system.posix_acl_default"

/* The kernel reads no longer list, because it has one page for it. */
#define LP_ACL_BYTES_MAX 4096u

/* The name of an access list. */
struct lp_bytes lp_acl_access_name(void);

/* Checks the value of an xattr with a list's name; values of other names are always right. */
int lp_acl_check_xattr(struct lp_bytes name, struct lp_bytes value) LP_MUST_CHECK;

/* Checks length, version and order of the tags. The tags of owner, group and others must be
 * present, and a mask if a user or group is named. */
int lp_acl_check(const void *acl, size_t len) LP_MUST_CHECK;

/* All functions below take a list that was checked. */

/* The nine mode bits equal to the list; the group's are the mask where there is one. */
uint16_t lp_acl_mode(const void *acl, size_t len);
/* True if the nine mode bits say all of the list. */
bool lp_acl_is_mode(const void *acl, size_t len);
/* A change of mode changes the list. */
void lp_acl_chmod(void *acl, size_t len, uint16_t mode);
/* Turns a directory's default list into the access list of a new inode made with this mode. Both
 * lose the rights that the other does not allow. Returns the mode, whose other bits stay. */
uint16_t lp_acl_create(void *acl, size_t len, uint16_t mode);

#endif
