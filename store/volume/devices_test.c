/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a store says where its db and wal devices were last found (docs/format/disk.md), to who
 * starts in another directory as well; wherever the power fails while it is told, or if it cannot
 * be, it opens, and says where they are or were.
 * Method: a store on three devices in memory, opened with other paths; cuts and faults of the
 * simulated data device. */
#include "store/volume/volume_test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/setup/mkfs.h"
#include "store/volume/devices.h"

#define BYTES (64 * LP_MIB)
#define OLD   "/dev/disk/by-id/old"
#define NEW   "/dev/disk/by-id/a-new-one"

static struct lp_bdev *bdevs[LP_ROLES];
static struct lp_label_why why;

/* On this data device. */
static void make_store(struct lp_bdev *data)
{
	struct lp_mkfs_options options = {.shard_cnt = 1, .path = {NULL, OLD, OLD}};
	struct lp_disk_label label;
	bdevs[LP_ROLE_DATA] = data;
	lp_test_ok(lp_bdev_open_mem(BYTES, 4096, &bdevs[LP_ROLE_DB]));
	lp_test_ok(lp_bdev_open_mem(BYTES, 4096, &bdevs[LP_ROLE_WAL]));
	for (int i = 0; i < LP_ROLES; i++)
		options.bdev[i] = bdevs[i];
	for (size_t i = 0; i < sizeof(options.seed); i++)
		options.seed[i] = (uint8_t)(i * 7 + 1);
	lp_test_ok(lp_store_mkfs(&options, &label, &why));
}

static void drop_store(void)
{
	for (int i = 0; i < LP_ROLES; i++)
		lp_bdev_close(bdevs[i]);
}

static void open_on(struct lp_bdev *data, const char *db_path, const char *wal_path, bool read_only)
{
	const struct lp_devices_options options = {
		.bdev = {data, bdevs[LP_ROLE_DB], bdevs[LP_ROLE_WAL]},
		.path = {NULL, db_path, wal_path},
		.read_only = read_only};
	struct lp_devices devices;
	lp_test_ok(lp_devices_open(&options, &devices, &why));
	lp_devices_close(&devices);
}

static void expect(const char *db_path, const char *wal_path, uint64_t sequence)
{
	struct lp_disk_label label;
	lp_test_ok(lp_label_read(bdevs[LP_ROLE_DATA], false, &label, &why));
	assert_string_equal((const char *)label.db_path, db_path);
	assert_string_equal((const char *)label.wal_path, wal_path);
	assert_int_equal(label.sequence, sequence);
}

static void test_paths_are_kept(void **state)
{
	(void)state;
	static char long_path[LP_DISK_LABEL_DB_PATH_SIZE + 1];
	struct lp_bdev *data = NULL;
	lp_test_ok(lp_bdev_open_mem(BYTES, 4096, &data));
	make_store(data);
	memset(long_path, 'x', sizeof(long_path) - 1);
	expect(OLD, OLD, 1);
	open_on(data, NEW, NULL, true);
	open_on(data, NULL, NULL, false);
	open_on(data, OLD, OLD, false);
	open_on(data, long_path, NULL, false);
	expect(OLD, OLD, 1);
	open_on(data, NEW, NULL, false);
	expect(NEW, OLD, 2);
	open_on(data, NEW, NULL, false); /* nothing to write */
	expect(NEW, OLD, 2);
	long_path[LP_DISK_LABEL_DB_PATH_SIZE - 1] = '\0'; /* the longest */
	open_on(data, OLD, long_path, false);
	expect(OLD, long_path, 3);
	open_on(data, NULL, "/w", false); /* and nothing of it is left */
	expect(OLD, "/w", 4);
	drop_store();
}

/* What is left opens, and has one path or the other. */
static void cut_check(struct lp_bdev *left, uint64_t event, void *arg)
{
	uint64_t *new_cnt = arg;
	struct lp_disk_label label;
	(void)event;
	open_on(left, NULL, NULL, false);
	lp_test_ok(lp_label_read(left, false, &label, &why));
	bool is_new = strcmp((const char *)label.db_path, NEW) == 0;
	if (!is_new)
		assert_string_equal((const char *)label.db_path, OLD);
	new_cnt[is_new]++;
}

static void test_cut(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 4; seed++) {
		struct lp_bdev *data =
			lpi_disk_sim(BYTES, (enum lp_sim_preset)(seed % LP_SIM_PRESET_CNT), seed);
		uint64_t cnts[2] = {0, 0};
		make_store(data);
		uint64_t from = lp_sim_event_count(lp_sim_of(data));
		open_on(data, NEW, NULL, false);
		(void)lpi_disk_cut_everywhere(data, from, 4, cut_check, cnts);
		assert_true(cnts[0] > 0 && cnts[1] > 0);
		drop_store();
	}
}

/* The write of the last copy fails, or of the first one: the store opens, and again. */
static void test_failed_write(void **state)
{
	(void)state;
	for (uint32_t skip = 0; skip < 2; skip++) {
		struct lp_bdev *data = lpi_disk_sim(BYTES, LP_SIM_CONSUMER, 1);
		uint64_t cnts[2] = {0, 0};
		make_store(data);
		open_on(data, NULL, NULL, false);
		struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					   .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					   .skip_cnt = skip};
		uint32_t idx = lp_sim_rule_add(lp_sim_of(data), &rule);
		open_on(data, NEW, NULL, false);
		assert_int_equal(lp_sim_rule_fired(lp_sim_of(data), idx), 1);
		lp_sim_rules_clear(lp_sim_of(data));
		cut_check(data, 0, cnts);
		drop_store();
	}
}

static void expect_absolute(const char *path, const char *dir, const char *rest)
{
	char want[600];
	char got[600];
	(void)snprintf(want, sizeof(want), "%s%s", dir, rest);
	lp_test_ok(lp_devices_absolute_path(path, got, sizeof(got)));
	assert_string_equal(got, want);
	lp_test_ok(lp_devices_absolute_path(path, got, strlen(want) + 1));
	lp_test_err(-ENAMETOOLONG, lp_devices_absolute_path(path, got, strlen(want)));
	assert_string_equal(got, want);
}

/* A name that leads elsewhere is kept: it is the one that stays. */
static void test_absolute_path(void **state)
{
	(void)state;
	char top[300];
	char got[300] = "as it was";
	lp_test_ok(mkdir("by-id", 0700));
	int fd = open("disk.img", O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	lp_test_ok(close(fd));
	lp_test_ok(symlink("../disk.img", "by-id/disk"));
	assert_non_null(getcwd(top, sizeof(top)));
	expect_absolute("disk.img", top, "/disk.img");
	expect_absolute("by-id/disk", top, "/by-id/disk");
	expect_absolute("./by-id/../disk.img", top, "/disk.img");
	expect_absolute("/dev/../dev/disk", "", "/dev/../dev/disk");
	lp_test_err(-ENOENT, lp_devices_absolute_path("nowhere/disk", got, sizeof(got)));
	assert_string_equal(got, "as it was");
	lp_test_ok(chdir("/"));
	expect_absolute("dev/disk", "", "/dev/disk");
	expect_absolute("disk", "", "/disk");
	lp_test_ok(chdir(top));
	lp_test_ok(unlink("by-id/disk"));
	lp_test_ok(unlink("disk.img"));
	lp_test_ok(rmdir("by-id"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_paths_are_kept),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_failed_write),
		cmocka_unit_test(test_absolute_path),
	};
	return lp_test_main(tests, "store/volume/devices");
}
