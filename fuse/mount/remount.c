/* SPDX-License-Identifier: Apache-2.0 */
/* Checks everything first, and then makes the changes. A read-only mount cannot be written to, so
 * its daemon is told before the mount becomes read-only, or after it ceases to be. If the kernel
 * then refuses, the daemon is told to return to the old state. */
#include "fuse/mount/remount.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#include "base/error.h"
#include "fuse/mount/options.h"
#include "fuse/mount/umount.h"
#include "fuse/ops/settings.h"

#define COMMAND_MAX (128u << 10)
#define ATIMES      ((unsigned long)(MS_NOATIME | MS_RELATIME | MS_STRICTATIME))
#define DAEMONS     "lapisd."

static int refuse(char *why, int err, const char *what, const char *text)
{
	(void)snprintf(why, LP_FUSE_WHY_MAX, "%.200s: %s", what, text);
	return err;
}

/* --- Possible options ------------------------------------------------------------------------- */

/* Whether the table of mounts shows the option for any FUSE mount, so that mount(8) passes it on.
 */
static bool is_shown(const char *item)
{
	static const char *const names[] = {"user_id=", "group_id=", "rootmode=", "fd="};
	for (size_t i = 0; i < LP_ARRAY_SIZE(names); i++) {
		if (strncmp(item, names[i], strlen(names[i])) == 0)
			return true;
	}
	return false;
}

/* lapisd.NAME=VALUE, the form of mount.lapis. */
static bool is_daemons(const char *item)
{
	return strncmp(item, DAEMONS, strlen(DAEMONS)) == 0 && strchr(item, '=') != NULL;
}

/* Whether the daemon's command has the option, which is NAME=VALUE. */
static bool is_given(const struct lpi_fuse_mounted *mounted, const char *item)
{
	const char *end = mounted->command + mounted->command_bytes;
	size_t name_len = strcspn(item, "=");
	bool is_name_before = false;
	for (const char *word = mounted->command; word < end; word += strlen(word) + 1) {
		if (is_name_before && strcmp(word, item + name_len + 1) == 0)
			return true;
		bool is_option = strncmp(word, "--", 2) == 0;
		if (is_option && strcmp(word + 2, item) == 0)
			return true;
		is_name_before = is_option && strlen(word + 2) == name_len &&
				 strncmp(word + 2, item, name_len) == 0;
	}
	return false;
}

/* Checks that the option says what is so already. */
static int check_same(const struct lpi_fuse_mounted *mounted, const char *item, char *why)
{
	struct lpi_fuse_options before;
	struct lpi_fuse_options after;
	char text[LPI_FUSE_SETTINGS_MAX + LP_FUSE_OPTIONS_MAX];
	(void)snprintf(text, sizeof(text), "%s,%s", mounted->options, item);
	int err = lpi_fuse_options_parse(mounted->options, &before, why);
	if (err == 0)
		err = lpi_fuse_options_parse(text, &after, why);
	if (err == 0 && !lpi_fuse_options_are_same(&before, &after))
		err = -EINVAL;
	return err;
}

static int check_item(const struct lpi_fuse_mounted *mounted, const char *item, char *why)
{
	static const char no_change[] = "cannot be changed while it is mounted";
	struct lpi_fuse_options alone;
	char what[256];
	(void)snprintf(what, sizeof(what), "mount option %.200s", item);
	if (is_daemons(item))
		return is_given(mounted, item + strlen(DAEMONS))
			       ? 0
			       : refuse(why, -EINVAL, what, no_change);
	int err = lpi_fuse_options_parse(item, &alone, why);
	if (err == 0 && check_same(mounted, item, why) < 0)
		err = refuse(why, -EINVAL, what, no_change);
	return err;
}

static void apply(const struct lpi_fuse_options *wanted, unsigned long *flags)
{
	const unsigned long kinds = MS_NOATIME | MS_STRICTATIME;
	if (wanted->has_atimes)
		*flags &= ~ATIMES;
	*flags = (*flags & ~wanted->cleared) | wanted->set;
	*flags &= ~(unsigned long)MS_RELATIME;
	if ((*flags & kinds) == 0)
		*flags |= MS_RELATIME;
}

int lpi_fuse_remount_flags(const struct lpi_fuse_mounted *mounted, const char *options,
			   unsigned long *ret_flags, char *why)
{
	struct lpi_fuse_options wanted;
	char item[LP_FUSE_OPTIONS_MAX];
	char flags[LPI_FUSE_SETTINGS_MAX] = "";
	size_t used = 0;
	for (size_t len = 0; *options != '\0'; options += len + (options[len] == ',')) {
		len = strcspn(options, ",");
		if (len >= sizeof(item) || used + len + 2 > sizeof(flags))
			return refuse(why, -EINVAL, "mount options", "too long");
		memcpy(item, options, len);
		item[len] = '\0';
		if (len == 0 || strcmp(item, "remount") == 0 || is_shown(item))
			continue;
		int err = check_item(mounted, item, why);
		if (err < 0)
			return err;
		if (!is_daemons(item))
			used += (size_t)sprintf(flags + used, "%s,", item);
	}
	int err = lpi_fuse_options_parse(flags, &wanted, why);
	if (err < 0)
		return err;
	*ret_flags = mounted->flags;
	apply(&wanted, ret_flags);
	return 0;
}

const char *lpi_fuse_remount_word(unsigned long flags)
{
	if ((flags & (MS_RDONLY | MS_NOATIME)) != 0)
		return LPI_FUSE_ATIMES_NONE;
	bool has_dirs = (flags & MS_NODIRATIME) == 0;
	if ((flags & MS_STRICTATIME) != 0)
		return has_dirs ? LPI_FUSE_ATIMES_EACH : LPI_FUSE_ATIMES_EACH_NO_DIRS;
	return has_dirs ? LPI_FUSE_ATIMES_ALL : LPI_FUSE_ATIMES_NO_DIRS;
}

/* --- The mount -------------------------------------------------------------------------------- */

/* Translates the names that statvfs has for these flags. */
static unsigned long flags_of(unsigned long shown)
{
	static const struct {
		unsigned long shown;
		unsigned long flag;
	} flags[] = {{ST_RDONLY, MS_RDONLY},
		     {ST_NOSUID, MS_NOSUID},
		     {ST_NODEV, MS_NODEV},
		     {ST_NOEXEC, MS_NOEXEC},
		     {ST_SYNCHRONOUS, MS_SYNCHRONOUS},
		     {ST_NOATIME, MS_NOATIME},
		     {ST_NODIRATIME, MS_NODIRATIME},
		     {ST_RELATIME, MS_RELATIME},
		     {0x2000, MS_NOSYMFOLLOW}};
	unsigned long found = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(flags); i++)
		found |= (shown & flags[i].shown) != 0 ? flags[i].flag : 0;
	return (found & ATIMES) == 0 ? found | MS_STRICTATIME : found;
}

static size_t read_command(int pid, char *command, size_t size)
{
	char path[64];
	(void)snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	FILE *file = fopen(path, "re");
	if (file == NULL)
		return 0;
	size_t bytes = fread(command, 1, size - 1, file);
	command[bytes] = '\0'; /* a longer command is cut off here */
	(void)fclose(file);    /* it was only read */
	return bytes;
}

static int tell(const char *path, unsigned long flags, char *why)
{
	const char *word = lpi_fuse_remount_word(flags);
	if (setxattr(path, LPI_FUSE_SETTINGS, word, strlen(word), 0) == 0)
		return 0;
	int err = -errno;
	(void)snprintf(why, LP_FUSE_WHY_MAX, "%.200s: its daemon cannot be told: %s", path,
		       lp_strerror(err));
	return err;
}

static int change(const char *path, unsigned long before, unsigned long after, char *why)
{
	bool was_read_only = (before & MS_RDONLY) != 0;
	int err = was_read_only ? 0 : tell(path, after, why);
	if (err < 0)
		return err;
	if (mount(NULL, path, NULL, MS_REMOUNT | after, NULL) < 0) {
		err = refuse(why, -errno, path,
			     errno == EBUSY ? "files are open for writing" : lp_strerror(errno));
		char unsaid[LP_FUSE_WHY_MAX];
		if (!was_read_only && tell(path, before, unsaid) < 0)
			return err; /* the remount has failed anyway */
		return err;
	}
	return was_read_only && (after & MS_RDONLY) == 0 ? tell(path, after, why) : 0;
}

int lp_fuse_remount(const char *dir, const char *options, char *why)
{
	static char command[COMMAND_MAX];
	char path[PATH_MAX];
	char settings[LPI_FUSE_SETTINGS_MAX];
	struct statvfs st;
	int err = lpi_fuse_real_path(dir, path);
	if (err < 0)
		return refuse(why, err, dir, lp_strerror(err));
	if (!lpi_fuse_is_ours(path))
		return refuse(why, -EINVAL, path, "no Lapis store is mounted there");
	ssize_t len = getxattr(path, LPI_FUSE_SETTINGS, settings, sizeof(settings) - 1);
	if (len < 0 || statvfs(path, &st) < 0) {
		err = -errno;
		return refuse(why, err, path,
			      err == -ENODATA ? "only root may remount it" : lp_strerror(err));
	}
	settings[len] = '\0';
	char *given = NULL;
	int pid = (int)strtol(settings, &given, 10);
	const struct lpi_fuse_mounted mounted = {
		.flags = flags_of(st.f_flag),
		.options = *given == ' ' ? given + 1 : given,
		.command = command,
		.command_bytes = read_command(pid, command, sizeof(command))};
	unsigned long flags = 0;
	err = lpi_fuse_remount_flags(&mounted, options, &flags, why);
	return err < 0 ? err : change(path, mounted.flags, flags, why);
}
