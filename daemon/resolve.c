/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/resolve.h"

#include <grp.h>
#include <pwd.h>

#include "base/units.h"

int lpi_resolve_user(const char *name, uint32_t *ret_uid, uint32_t *ret_gid, char *why)
{
	uint64_t number;
	const struct passwd *user = getpwnam(name);
	if (user == NULL && lp_parse_number(name, 0, UINT32_MAX - 1, &number) == 0) {
		user = getpwuid((uid_t)number);
		*ret_uid = (uint32_t)number;
		*ret_gid = user == NULL ? (uint32_t)number : user->pw_gid;
		return 0;
	}
	if (user == NULL)
		return lpi_refuse(why, -EINVAL, "%.100s: there is no such user", name);
	*ret_uid = user->pw_uid;
	*ret_gid = user->pw_gid;
	return 0;
}

static int resolve_group(const char *name, uint32_t *ret_gid, char *why)
{
	uint64_t number;
	const struct group *group = getgrnam(name);
	if (group == NULL && lp_parse_number(name, 0, UINT32_MAX - 1, &number) == 0) {
		*ret_gid = (uint32_t)number;
		return 0;
	}
	if (group == NULL)
		return lpi_refuse(why, -EINVAL, "allow-gids: %.100s: there is no such group", name);
	*ret_gid = group->gr_gid;
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
