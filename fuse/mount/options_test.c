/* SPDX-License-Identifier: Apache-2.0 */
/* The options of -o and their defaults. By default the kernel may cache for long, because it is
 * told of changes (rule M2). */
#include "fuse/mount/options.h"

#include <errno.h>
#include <string.h>
#include <sys/mount.h>

#include "base/testing/test.h"

static struct lpi_fuse_options parse(const char *text)
{
	struct lpi_fuse_options options;
	char why[LP_FUSE_WHY_MAX] = "";
	lp_test_ok(lpi_fuse_options_parse(text, &options, why));
	assert_string_equal(why, "");
	return options;
}

static void test_times(void **state)
{
	(void)state;
	struct lpi_fuse_options options = parse("noatime");
	assert_int_equal(options.behaviour.entry_ns, 86400 * LP_NS_PER_S);
	assert_int_equal(options.behaviour.attr_ns, 86400 * LP_NS_PER_S);
	options = parse("entry_timeout=0,attr_timeout=1.5");
	assert_int_equal(options.behaviour.entry_ns, 0);
	assert_int_equal(options.behaviour.attr_ns, 3 * LP_NS_PER_S / 2);
}

static void test_meanings(void **state)
{
	(void)state;
	struct lpi_fuse_options options = parse("ro,nodev,,x-systemd.automount,uid=7,sync");
	assert_int_equal(options.set, MS_RDONLY | MS_NODEV);
	assert_true(options.behaviour.no_atime && options.behaviour.sync);
	assert_int_equal(options.behaviour.squash_uid, 7);
	assert_int_equal(options.behaviour.squash_gid, UINT32_MAX);
	assert_int_equal(options.behaviour.inodes_max, 1000000);
	assert_int_equal(parse("max_inodes=0").behaviour.inodes_max, 0);
	assert_int_equal(parse("max_inodes=5000").behaviour.inodes_max, 5000);
	assert_int_equal(parse("max_read=65536").read_max, 65536);
	assert_string_equal(parse("fsname=pool").source, "pool");
	assert_string_equal(options.source, "");
	assert_false(options.behaviour.writeback || options.is_private);
	assert_false(options.behaviour.no_diratime);
	options = parse("nodiratime");
	assert_true(options.behaviour.no_diratime && !options.behaviour.no_atime);
}

/* The options for libfuse, which refuses unknown ones. */
static void test_kernel(void **state)
{
	static const struct {
		const char *options;
		const char *text;
		unsigned long late;
	} cases[] = {
		{"", "", 0},
		{"ro,nodev,sync", ",ro,nodev", 0},
		{"suid,dev,noexec,noatime", ",suid,dev,noexec,noatime", 0},
		{"nodiratime,relatime,atime,diratime", "", 0},
		{"nodiratime,noatime", ",noatime", MS_NODIRATIME},
		{"strictatime,nodiratime", "", MS_STRICTATIME | MS_NODIRATIME},
		{"user,users,owner,group,lazytime,default_permissions,subtype=lapis", "", 0},
		{"max_read=131072,fsname=pool", ",max_read=131072", 0},
	};
	char text[LP_FUSE_OPTIONS_MAX];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		struct lpi_fuse_options options = parse(cases[i].options);
		lpi_fuse_options_kernel(&options, text, sizeof(text));
		assert_string_equal(text, cases[i].text);
		assert_int_equal(lpi_fuse_options_late(&options), cases[i].late);
	}
}

/* The last of contradicting options counts. */
static void test_last_counts(void **state)
{
	(void)state;
	assert_int_equal(parse("ro,rw").set, 0);
	assert_int_equal(parse("ro,rw").cleared, MS_RDONLY);
	assert_int_equal(parse("rw,ro").set, MS_RDONLY);
	assert_int_equal(parse("suid,nosuid").set, MS_NOSUID);
	assert_int_equal(parse("noexec,exec").cleared, MS_NOEXEC);
	assert_int_equal(parse("noatime,strictatime").set, MS_STRICTATIME);
	assert_int_equal(parse("strictatime,noatime").set, MS_NOATIME);
	/* As with mount(2). */
	assert_true(parse("noatime,relatime").behaviour.no_atime);
	assert_false(parse("noatime,atime").behaviour.no_atime);
	assert_false(parse("ro,rw").behaviour.no_atime);
	assert_true(parse("noatime,strictatime,relatime").behaviour.strict_atime);
	assert_false(parse("strictatime,noatime").behaviour.strict_atime);
	assert_false(parse("strictatime,nostrictatime").behaviour.strict_atime);
	assert_false(parse("nodiratime,diratime").behaviour.no_diratime);
	assert_false(parse("sync,async").behaviour.sync);
	assert_false(parse("private,allow_other").is_private);
	assert_true(parse("relatime").has_atimes && parse("atime").has_atimes);
	assert_false(parse("nodiratime,ro").has_atimes);
}

/* All options, and those of fstab for other programs. tests/system/mount/mount_options.sh compares
 * the manual with this. */
static const char *const all[] = {"_netdev",
				  "allow_other",
				  "async",
				  "atime",
				  "attr_timeout=1",
				  "auto",
				  "comment=words",
				  "default_permissions",
				  "defaults",
				  "dev",
				  "diratime",
				  "dirsync",
				  "entry_timeout=1",
				  "exec",
				  "fsname=pool",
				  "gid=5",
				  "group",
				  "lazytime",
				  "max_inodes=1000",
				  "max_read=65536",
				  "noatime",
				  "noauto",
				  "nodev",
				  "nodiratime",
				  "noexec",
				  "nofail",
				  "nogroup",
				  "nolazytime",
				  "noowner",
				  "norelatime",
				  "nostrictatime",
				  "nosuid",
				  "nouser",
				  "nousers",
				  "owner",
				  "private",
				  "relatime",
				  "ro",
				  "rw",
				  "strictatime",
				  "subtype=lapis",
				  "suid",
				  "sync",
				  "transport=auto",
				  "transport=device",
				  "transport=io_uring",
				  "uid=5",
				  "user",
				  "users",
				  "writeback",
				  "x-systemd.automount",
				  "X-mount.mkdir"};

static bool is_known_to_libfuse(const char *item)
{
	static const char *const known[] = {"ro", "nosuid", "suid",    "nodev",         "dev",
					    "",   "noexec", "noatime", "max_read=65536"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(known); i++) {
		if (strcmp(item, known[i]) == 0)
			return true;
	}
	return false;
}

/* Each option alone and all pairs are accepted, and libfuse gets only options that it knows. */
static void test_pairs(void **state)
{
	char both[128];
	char text[LP_FUSE_OPTIONS_MAX];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(all) * LP_ARRAY_SIZE(all); i++) {
		(void)snprintf(both, sizeof(both), "%s,%s", all[i % LP_ARRAY_SIZE(all)],
			       all[i / LP_ARRAY_SIZE(all)]);
		struct lpi_fuse_options options = parse(both);
		lpi_fuse_options_kernel(&options, text, sizeof(text));
		char *rest = text;
		for (char *item; (item = strsep(&rest, ",")) != NULL;)
			assert_true(is_known_to_libfuse(item));
	}
}

/* Options that can be given for an existing mount. */
static void test_same(void **state)
{
	(void)state;
	struct lpi_fuse_options before = parse("uid=5,noatime,attr_timeout=3");
	struct lpi_fuse_options after = parse("uid=5,noatime,attr_timeout=3,ro,atime,uid=5,user");
	assert_true(lpi_fuse_options_are_same(&before, &after));
	static const char *const others[] = {"uid=6",      "gid=1",          "attr_timeout=4",
					     "writeback",  "sync",           "transport=device",
					     "private",    "max_inodes=7",   "max_read=4096",
					     "fsname=any", "entry_timeout=0"};
	for (size_t i = 0; i < LP_ARRAY_SIZE(others); i++) {
		char text[128];
		(void)snprintf(text, sizeof(text), "uid=5,attr_timeout=3,%s", others[i]);
		after = parse(text);
		assert_false(lpi_fuse_options_are_same(&before, &after));
	}
}

/* How requests come, and whether the daemon's rings must be made for it. */
static void test_transport(void **state)
{
	(void)state;
	assert_int_equal(parse(NULL).transport, LPI_FUSE_TRANSPORT_AUTO);
	assert_int_equal(parse("transport=auto").transport, LPI_FUSE_TRANSPORT_AUTO);
	assert_int_equal(parse("transport=device").transport, LPI_FUSE_TRANSPORT_DEVICE);
	assert_int_equal(parse("ro,transport=io_uring").transport, LPI_FUSE_TRANSPORT_IO_URING);
	assert_true(lp_fuse_options_want_ring(NULL));
	assert_true(lp_fuse_options_want_ring("transport=io_uring"));
	assert_false(lp_fuse_options_want_ring("noatime,transport=device"));
	assert_false(lp_fuse_options_want_ring("nonsense"));
}

static void test_refused(void **state)
{
	static const char *const wrong[] = {"nonsense",
					    "uid",
					    "uid=x",
					    "ro=1",
					    "uid=-1",
					    "attr_timeout=-1",
					    "attr_timeout=9e9",
					    "gid=4294967295",
					    "max_inodes=many",
					    "transport",
					    "transport=pigeon",
					    "subtype=ext4",
					    "max_read=100",
					    "max_read=4k",
					    "max_read=2000000",
					    "fsname=",
					    "comment",
					    "user=1",
					    "noatim",
					    "noatimes"};
	char why[LP_FUSE_WHY_MAX];
	(void)state;
	for (size_t i = 0; i < LP_ARRAY_SIZE(wrong); i++) {
		why[0] = '\0';
		lp_test_err(-EINVAL, lp_fuse_options_check(wrong[i], why));
		assert_non_null(strstr(why, wrong[i]));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_times),     cmocka_unit_test(test_meanings),
		cmocka_unit_test(test_kernel),    cmocka_unit_test(test_last_counts),
		cmocka_unit_test(test_pairs),     cmocka_unit_test(test_same),
		cmocka_unit_test(test_transport), cmocka_unit_test(test_refused),
	};
	return lp_test_main(tests, "fuse/mount/options");
}
