/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/resolve.h"

#include <grp.h>
#include <pwd.h>

#include "base/units.h"

/* For the entry of one user or group, with all its members. */
#define ENTRY_BYTES 65536u

int lpi_resolve_user(const char *name, uint32_t *ret_uid, uint32_t *ret_gid, char *why)
{
	char entry[ENTRY_BYTES];
	struct passwd user;
	struct passwd *found = NULL;
	uint64_t number = 0;
	(void)getpwnam_r(name, &user, entry, sizeof(entry), &found); /* found has the result */
	bool is_number = found == NULL && lp_parse_number(name, 0, UINT32_MAX - 1, &number) == 0;
	if (is_number)
		/* A user with that number need not exist. */
		(void)getpwuid_r((uid_t)number, &user, entry, sizeof(entry), &found);
	if (found == NULL && !is_number)
		return lpi_refuse(why, -EINVAL, "%.100s: there is no such user", name);
	*ret_uid = found != NULL ? user.pw_uid : (uint32_t)number;
	*ret_gid = found != NULL ? user.pw_gid : (uint32_t)number;
	return 0;
}

static int resolve_group(const char *name, uint32_t *ret_gid, char *why)
{
	char entry[ENTRY_BYTES];
	struct group group;
	struct group *found = NULL;
	uint64_t number = 0;
	(void)getgrnam_r(name, &group, entry, sizeof(entry), &found); /* found says it */
	if (found == NULL && lp_parse_number(name, 0, UINT32_MAX - 1, &number) < 0)
		return lpi_refuse(why, -EINVAL, "allow-gids: %.100s: there is no such group", name);
	*ret_gid = found != NULL ? group.gr_gid : (uint32_t)number;
	return 0;
}

int lpi_resolve_access(const struct lp_config *config, struct lp_access *ret_access, char *why)
{
	struct lp_access access = {.uid_cnt = 0};
	char name[LP_CONFIG_TEXT_MAX];
	uint32_t gid;
	size_t pos = 0;
	while (lp_config_item(config, LP_OPT_ALLOW_UIDS, &pos, name, sizeof(name))) {
		if (access.uid_cnt == LP_ACCESS_MAX)
			return lpi_refuse(why, -E2BIG, "allow-uids: more than %u", LP_ACCESS_MAX);
		int err = lpi_resolve_user(name, &access.uids[access.uid_cnt++], &gid, why);
		if (err < 0)
			return lpi_refuse(why, err, "allow-uids: %.300s", why);
	}
	pos = 0;
	while (lp_config_item(config, LP_OPT_ALLOW_GIDS, &pos, name, sizeof(name))) {
		if (access.gid_cnt == LP_ACCESS_MAX)
			return lpi_refuse(why, -E2BIG, "allow-gids: more than %u", LP_ACCESS_MAX);
		int err = resolve_group(name, &access.gids[access.gid_cnt++], why);
		if (err < 0)
			return err;
	}
	*ret_access = access;
	return 0;
}
