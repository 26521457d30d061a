/* SPDX-License-Identifier: Apache-2.0 */
/* A bit stays if it gives no more rights than the caller has: the user's bit on the caller's own
 * file, and the group's bit if it is also the caller's group. */
#include "namespace/state/rights.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static bool has_user(const struct lp_rights *rights, uint32_t uid)
{
	return rights->uid != LP_RIGHTS_NOBODY && rights->uid == uid;
}

/* Of these bits, those that the caller may give a file of such an owner. */
static uint16_t may_have(const struct lp_rights *rights, uint32_t uid, uint32_t gid)
{
	if (!rights->is_limited)
		return LP_RIGHTS_BITS;
	if (!has_user(rights, uid))
		return 0;
	return rights->gid == gid ? LP_RIGHTS_BITS : S_ISUID;
}

uint16_t lp_rights_mode_left(const struct lp_rights *rights, const struct lp_attrs *attrs)
{
	if (attrs->type == LP_INODE_TYPE_DIR)
		return attrs->mode;
	return (uint16_t)(attrs->mode &
			  (~(unsigned)LP_RIGHTS_BITS | may_have(rights, attrs->uid, attrs->gid)));
}

int lp_rights_check_new(const struct lp_rights *rights, uint32_t uid, uint32_t gid, uint16_t mode)
{
	return (mode & LP_RIGHTS_BITS & ~may_have(rights, uid, gid)) != 0 ? -EPERM : 0;
}

static void put_mode(struct lp_attrs *attrs, uint32_t *mask, uint16_t mode)
{
	attrs->mode = mode;
	*mask |= LP_ATTR_MODE;
}

int lp_rights_set(const struct lp_rights *rights, const struct lp_attrs *old,
		  struct lp_attrs *attrs, uint32_t *mask)
{
	bool is_dir = old->type == LP_INODE_TYPE_DIR;
	bool sets_flags = (*mask & LP_ATTR_FLAGS) != 0;
	if (rights->is_limited && sets_flags &&
	    ((old->flags ^ attrs->flags) & LP_INODE_FLAGS_KEEPING) != 0)
		return -EPERM;
	if (!lp_rights_set_rests_on_old(rights, *mask))
		return 0;
	if ((*mask & LP_ATTR_MODE) == 0) {
		/* A new owner: the bits are cleared for any owner. */
		uint16_t left = (uint16_t)(old->mode & ~(unsigned)LP_RIGHTS_BITS);
		if (!is_dir && left != old->mode)
			put_mode(attrs, mask, left);
		return 0;
	}
	uint16_t kept = is_dir ? old->mode & LP_RIGHTS_BITS : 0;
	uint16_t bits = (uint16_t)(attrs->mode & LP_RIGHTS_BITS & ~kept);
	if (bits != 0 && !has_user(rights, old->uid))
		return -EPERM;
	/* The group's bit is cleared without an error, as by chmod. */
	uint32_t gid = (*mask & LP_ATTR_GID) != 0 ? attrs->gid : old->gid;
	bits &= (uint16_t)~may_have(rights, old->uid, gid);
	put_mode(attrs, mask, (uint16_t)(attrs->mode & ~bits));
	return 0;
}

bool lp_rights_set_rests_on_old(const struct lp_rights *rights, uint32_t mask)
{
	return rights->is_limited && (mask & (LP_ATTR_MODE | LP_ATTR_UID | LP_ATTR_GID)) != 0;
}

static bool begins_with(struct lp_bytes name, const char *prefix)
{
	size_t len = strlen(prefix);
	return name.len >= len && memcmp(name.data, prefix, len) == 0;
}

bool lp_rights_is_roots_xattr(struct lp_bytes name)
{
	return begins_with(name, "security.") || begins_with(name, "trusted.");
}
