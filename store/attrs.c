/* SPDX-License-Identifier: Apache-2.0 */
/* One list of attributes for both: a record's are looked at as those of a request. */
#include "store/attrs.h"

#define RIGHTS_BITS UINT16_C(06000) /* S_ISUID, S_ISGID */

const char *lp_attrs_fault(const struct lp_attrs *attrs, uint32_t mask)
{
	const struct {
		uint32_t mask;
		bool is_right;
		const char *name;
	} all[] = {
		{LP_ATTR_UID, attrs->uid != LP_OWNER_NOBODY, "uid"},
		{LP_ATTR_GID, attrs->gid != LP_OWNER_NOBODY, "gid"},
		{LP_ATTR_ATIME, lp_time_is_possible(attrs->atime_ns), "atime_ns"},
		{LP_ATTR_MTIME, lp_time_is_possible(attrs->mtime_ns), "mtime_ns"},
		{LP_ATTR_CTIME, lp_time_is_possible(attrs->ctime_ns), "ctime_ns"},
		{LP_ATTR_BTIME, lp_time_is_possible(attrs->btime_ns), "btime_ns"},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(all); i++) {
		if ((mask & all[i].mask) != 0 && !all[i].is_right)
			return all[i].name;
	}
	return NULL;
}

const char *lp_inode_impossible(const struct lp_inode *inode)
{
	const struct lp_attrs attrs = {.uid = inode->uid,
				       .gid = inode->gid,
				       .atime_ns = inode->atime_ns,
				       .mtime_ns = inode->mtime_ns,
				       .ctime_ns = inode->ctime_ns,
				       .btime_ns = inode->btime_ns};
	return lp_attrs_fault(&attrs, LP_ATTRS_ALL);
}

static int64_t nearest(int64_t ns)
{
	return LP_MAX(LP_TIME_NS_MIN, LP_MIN(ns, LP_TIME_NS_MAX));
}

bool lp_inode_make_possible(struct lp_inode *inode)
{
	bool is_file = inode->type == LP_INODE_TYPE_FILE;
	if (lp_inode_impossible(inode) == NULL)
		return false;
	/* Nobody's program is not to run as root now. */
	if (is_file && (inode->uid == LP_OWNER_NOBODY || inode->gid == LP_OWNER_NOBODY))
		inode->mode &= (uint16_t)~RIGHTS_BITS;
	if (inode->uid == LP_OWNER_NOBODY)
		inode->uid = 0;
	if (inode->gid == LP_OWNER_NOBODY)
		inode->gid = 0;
	inode->atime_ns = nearest(inode->atime_ns);
	inode->mtime_ns = nearest(inode->mtime_ns);
	inode->ctime_ns = nearest(inode->ctime_ns);
	inode->btime_ns = nearest(inode->btime_ns);
	return true;
}
