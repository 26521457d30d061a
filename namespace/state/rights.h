/* SPDX-License-Identifier: Apache-2.0 */
/* Privilege bits of modes: which of them a change by a user may leave or set.
 *
 * Threads: any.
 * Blocking, memory: none.
 * Errors: -EPERM.
 *
 * On the machine where the namespace is mounted, a file with set-user-ID or set-group-ID runs with
 * its owner's rights, and a file with a capability with some of root's. So a file that another user
 * has changed must lose these. The kernel sees to that for changes through the mount; this is for
 * all doors.
 *
 * A directory's bits mean something else, so a directory keeps what it has.
 *
 * Flags that keep changes away (namespace NS7): an *immutable* inode does not change, and no name
 * is added to such a directory, removed from it or changed in it. An *append-only* file takes data
 * at its end only, and such a directory new names only. ns.h and store.h say it exactly. Only root
 * sets or clears them. A change is refused with -EPERM in its own transaction, because a flag may
 * be set at any moment:
 *   - One inode (LP_NS_STORE): the transaction heeds the flags of its inodes (heeds_flags), which
 *     are claimed then. The namespace sets this for all doors.
 *   - Names of an inode (unlink, link, rename, the file that a put replaces): a guard of the inode
 *     in the same change. Setting flags locks the inode, as a change of its names does.
 *   - Names in a directory: a guard where its inode is beside the entry. Elsewhere its shard is
 *     asked while the name is locked. The entry's shard remembers the answer, if there is no such
 *     flag, with the answer to whether the directory is there. Setting flags of a directory locks
 *     all its fragments, so no name of it is locked then, and the remembered answers are dropped.
 *     It costs a message only where one is sent anyway, and when a shard that does not know the
 *     directory takes names away.
 *
 * A change over several shards checks flags when it is prepared; its end is not asked again. An
 * orphan goes whatever flags it has. A copy, and a file that a put makes, have none. Rejected:
 * flags in the fragments as well, another form of their record; checks in the doors, which would
 * look before they change.
 */
#ifndef LP_NAMESPACE_STATE_RIGHTS_H
#define LP_NAMESPACE_STATE_RIGHTS_H

#include "base/compiler.h"
#include "store/store.h"

#define LP_RIGHTS_BITS       UINT16_C(06000) /* S_ISUID, S_ISGID */
#define LP_RIGHTS_CAPABILITY "security.capability"
#define LP_RIGHTS_NOBODY     UINT32_MAX /* owns nothing */

/* Rights of the caller. All zero: root, or a caller that has checked the rights itself. */
struct lp_rights {
	bool is_limited;
	uint32_t uid;
	uint32_t gid;
};

/* The bits of a file's mode that are left after a change of its content, or of the right to execute
 * it. */
uint16_t lp_rights_mode_left(const struct lp_rights *rights, const struct lp_attrs *attrs);
/* Checks the mode of a new file of this owner. -EPERM. */
int lp_rights_check_new(const struct lp_rights *rights, uint32_t uid, uint32_t gid,
			uint16_t mode) LP_MUST_CHECK;
/* Adjusts the new mode, owner, group and flags of an inode, whose present attributes are old, to
 * those that are allowed. If lp_rights_set_rests_on_old(), the result holds only for this old mode
 * and owner; it always holds only for the old flags. -EPERM. */
int lp_rights_set(const struct lp_rights *rights, const struct lp_attrs *old,
		  struct lp_attrs *attrs, uint32_t *mask) LP_MUST_CHECK;
bool lp_rights_set_rests_on_old(const struct lp_rights *rights, uint32_t mask);
/* An xattr that only root sets and removes. */
bool lp_rights_is_roots_xattr(struct lp_bytes name);

#endif
