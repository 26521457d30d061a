/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an existing mount gets the given flags and keeps the others. Options that cannot change are
 * refused, unless they say what is so already.
 * Method: options are compared with a mount of which only the texts exist.
 * tests/system/mount/mount_remount.sh tries the mount itself. */
#include "fuse/mount/remount.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>

#include "base/testing/test.h"
#include "fuse/mount/session.h"
#include "fuse/ops/settings.h"

static const char command[] =
	"lapisd\0--mount\0/srv\0--memory\0002G\0--listen=unix:/run/s\0/dev/sdb\0--crc";

static struct lpi_fuse_mounted mounted_as(unsigned long flags, const char *options)
{
	return (struct lpi_fuse_mounted){.flags = flags,
					 .options = options,
					 .command = command,
					 .command_bytes = sizeof(command)};
}

static void test_flags(void **state)
{
	static const struct {
		unsigned long before;
		const char *options;
		unsigned long after;
		const char *word;
	} cases[] = {
		{MS_RELATIME, "remount,ro", MS_RELATIME | MS_RDONLY, LPI_FUSE_ATIMES_NONE},
		{MS_RELATIME | MS_RDONLY, "remount,rw", MS_RELATIME, LPI_FUSE_ATIMES_ALL},
		/* Flags that are not named stay, above all the protecting ones. */
		{MS_NOATIME | MS_NOSUID | MS_NODEV, "ro,remount",
		 MS_NOATIME | MS_NOSUID | MS_NODEV | MS_RDONLY, LPI_FUSE_ATIMES_NONE},
		{MS_NOSUID | MS_NOEXEC | MS_RELATIME, "remount,suid", MS_NOEXEC | MS_RELATIME,
		 LPI_FUSE_ATIMES_ALL},
		{MS_NODIRATIME | MS_RELATIME, "remount,noexec",
		 MS_NODIRATIME | MS_RELATIME | MS_NOEXEC, LPI_FUSE_ATIMES_NO_DIRS},
		/* One kind of access times. */
		{MS_RELATIME, "remount,noatime", MS_NOATIME, LPI_FUSE_ATIMES_NONE},
		{MS_NOATIME, "remount,relatime", MS_RELATIME, LPI_FUSE_ATIMES_ALL},
		{MS_NOATIME, "noatime,remount,relatime", MS_NOATIME, LPI_FUSE_ATIMES_NONE},
		{MS_NOATIME, "remount,strictatime,nodiratime", MS_STRICTATIME | MS_NODIRATIME,
		 LPI_FUSE_ATIMES_EACH_NO_DIRS},
		{MS_RELATIME, "remount,strictatime", MS_STRICTATIME, LPI_FUSE_ATIMES_EACH},
		{MS_STRICTATIME, "remount,nosuid", MS_STRICTATIME | MS_NOSUID,
		 LPI_FUSE_ATIMES_EACH},
		{MS_STRICTATIME, "remount,ro", MS_STRICTATIME | MS_RDONLY, LPI_FUSE_ATIMES_NONE},
		{MS_STRICTATIME, "remount,atime", MS_RELATIME, LPI_FUSE_ATIMES_ALL},
		{MS_NOATIME, "remount,nostrictatime", MS_NOATIME, LPI_FUSE_ATIMES_NONE},
		/* As mount(8) passes them on: from fstab, and from the table of mounts. */
		{MS_RELATIME,
		 "ro,noatime,remount,user_id=0,group_id=0,default_permissions,allow_other,_netdev",
		 MS_NOATIME | MS_RDONLY, LPI_FUSE_ATIMES_NONE},
		{MS_RELATIME, "rw,remount,uid=5,lapisd.memory=2G,lapisd.listen=unix:/run/s,user",
		 MS_RELATIME, LPI_FUSE_ATIMES_ALL},
		{MS_RELATIME, "", MS_RELATIME, LPI_FUSE_ATIMES_ALL},
	};
	char why[LP_FUSE_WHY_MAX];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_fuse_mounted mounted = mounted_as(cases[i].before, "uid=5,noatime");
		unsigned long after = 0;
		lp_test_ok(lpi_fuse_remount_flags(&mounted, cases[i].options, &after, why));
		assert_int_equal(after, cases[i].after);
		assert_string_equal(lpi_fuse_remount_word(after), cases[i].word);
	}
}

static void test_refused(void **state)
{
	/* The refusal names the last one. */
	static const char *const wrong[] = {"uid=6",
					    "gid=5",
					    "sync",
					    "writeback",
					    "private",
					    "attr_timeout=0",
					    "entry_timeout=0",
					    "transport=device",
					    "max_inodes=1",
					    "max_read=4096",
					    "fsname=pool",
					    "lapisd.memory=3G",
					    "lapisd.memory=2",
					    "lapisd.mem=2G",
					    "lapisd.crc=",
					    "lapisd.crc",
					    "lapisd.workers=4",
					    "nonsense"};
	char why[LP_FUSE_WHY_MAX];
	char text[128];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(wrong); i++) {
		struct lpi_fuse_mounted mounted = mounted_as(MS_RELATIME, "uid=5");
		unsigned long flags = 77;
		(void)snprintf(text, sizeof(text), "remount,ro,uid=5,%s", wrong[i]);
		why[0] = '\0';
		lp_test_err(-EINVAL, lpi_fuse_remount_flags(&mounted, text, &flags, why));
		assert_non_null(strstr(why, wrong[i]));
		assert_int_equal(flags, 77);
	}
	/* A daemon without a known command line has no options. */
	struct lpi_fuse_mounted unknown = mounted_as(0, "");
	unsigned long flags = 0;
	unknown.command_bytes = 0;
	lp_test_err(-EINVAL,
		    lpi_fuse_remount_flags(&unknown, "remount,lapisd.memory=2G", &flags, why));
}

/* A mount that is not ours is left alone. */
static void test_no_mount(void **state)
{
	char why[LP_FUSE_WHY_MAX];
	(void)state;
	lp_test_err(-EINVAL, lp_fuse_remount("/", "remount,ro", why));
	assert_non_null(strstr(why, "no Lapis store"));
	lp_test_err(-ENOENT, lp_fuse_remount("/nowhere/at/all", "remount,ro", why));
	assert_non_null(strstr(why, "/nowhere/at/all"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flags),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_no_mount),
	};
	return lp_test_main(tests, "fuse/mount/remount");
}
