/* SPDX-License-Identifier: Apache-2.0 */
/* Privilege bits of modes: which of them a change by a user may leave or set.
 *
 * Threads: any.
 * Blocking, memory: none.
 * Errors: -EPERM.
 *
 * On the machine where the namespace is mounted, a file with set-user-ID or set-group-ID runs with
 * its owner's rights, and a file with a capability with some of root's. So these must be gone from
 * what another user has changed. The kernel sees to that for changes through the mount; this is for
 * all doors.
 *
 * A directory's bits mean something else, so a directory keeps what it has. Only root makes an
 * inode immutable or append-only, or takes that away.
 */
#ifndef LP_NAMESPACE_STATE_RIGHTS_H
#define LP_NAMESPACE_STATE_RIGHTS_H

#include "base/compiler.h"
#include "store/store.h"

#define LP_RIGHTS_BITS       UINT16_C(06000) /* S_ISUID, S_ISGID */
#define LP_RIGHTS_CAPABILITY "security.capability"
#define LP_RIGHTS_NOBODY     UINT32_MAX /* owns nothing */

/* All zero: root, or who has seen to it himself. */
struct lp_rights {
	bool is_limited;
	uint32_t uid;
	uint32_t gid;
};

/* Of a file's mode, what is left of it after a change of what it holds, or of who may run it. */
uint16_t lp_rights_mode_left(const struct lp_rights *rights, const struct lp_attrs *attrs);
/* The mode that a file made for an owner is to have. -EPERM. */
int lp_rights_check_new(const struct lp_rights *rights, uint32_t uid, uint32_t gid,
			uint16_t mode) LP_MUST_CHECK;
/* Of what is set of an inode, old as it is, mode, owner, group and flags: makes of it what may be.
 * Holds for this mode and owner only, if it says so, and for these flags. -EPERM. */
int lp_rights_set(const struct lp_rights *rights, const struct lp_attrs *old,
		  struct lp_attrs *attrs, uint32_t *mask) LP_MUST_CHECK;
bool lp_rights_set_rests_on_old(const struct lp_rights *rights, uint32_t mask);
/* An xattr that only root sets and removes. */
bool lp_rights_is_roots_xattr(struct lp_bytes name);

#endif
