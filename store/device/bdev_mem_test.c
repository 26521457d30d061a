/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what is special about the device in memory: it is sparse, gives discarded memory back, and
 * refuses what makes no sense. What all kinds have in common is in bdev_test.c.
 * Method: blocking calls around the borders of its chunks; the process's own memory figures. */
#include "base/testing/test.h"

#include <sys/resource.h>
#include <unistd.h>

#include "store/device/bdev.h"

#define MIB UINT64_C(1048576)

static _Alignas(4096) unsigned char buf[4 * MIB];

static void test_refuses(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	lp_test_err(-EINVAL, lp_bdev_open_mem(0, 4096, &bdev));
	lp_test_err(-EINVAL, lp_bdev_open_mem(4096, 1024, &bdev));
	lp_test_err(-EINVAL, lp_bdev_open_mem(4096 + 512, 4096, &bdev));
	assert_null(bdev);
	lp_test_ok(lp_bdev_open_mem(4096 + 512, 512, &bdev));
	assert_int_equal(lp_bdev_caps(bdev)->size_bytes, 4096 + 512);
	assert_false(lp_bdev_caps(bdev)->volatile_cache);
	lp_bdev_close(bdev);
	lp_bdev_close(NULL);
}

static void test_sparse(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	uint64_t size_bytes = UINT64_C(1) << 40;
	lp_test_ok(lp_bdev_open_mem(size_bytes, 4096, &bdev));
	memset(buf, 3, sizeof(buf));
	lp_test_ok(lp_bdev_write_sync(bdev, buf, 4096, size_bytes - 4096, false));
	lp_test_ok(lp_bdev_write_sync(bdev, buf, 8192, 5 * MIB - 4096, false));
	/* Over the border of two chunks, and what was never written around it. */
	lp_test_ok(lp_bdev_read_sync(bdev, buf, 4 * MIB, 3 * MIB));
	for (uint64_t i = 0; i < 4 * MIB; i++)
		assert_int_equal(buf[i], i >= 2 * MIB - 4096 && i < 2 * MIB + 4096 ? 3 : 0);
	lp_test_ok(lp_bdev_read_sync(bdev, buf, 8192, size_bytes - 8192));
	assert_int_equal(buf[4095], 0);
	assert_int_equal(buf[4096], 3);
	lp_bdev_close(bdev);
}

static long resident_pages(void)
{
	long total = 0;
	long resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	assert_non_null(file);
	char line[128];
	assert_non_null(fgets(line, sizeof(line), file));
	char *end = NULL;
	total = strtol(line, &end, 10);
	resident = strtol(end, NULL, 10);
	assert_true(total >= resident);
	(void)fclose(file);
	return resident;
}

static void test_discard_gives_back(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_mem(256 * MIB, 512, &bdev));
	memset(buf, 9, sizeof(buf));
	for (uint64_t at = 0; at < 64 * MIB; at += sizeof(buf))
		lp_test_ok(lp_bdev_write_sync(bdev, buf, sizeof(buf), at, false));
	long before = resident_pages();
	lp_test_ok(lp_bdev_discard_sync(bdev, 64 * MIB - 512, 512));
	long after = resident_pages();
	/* All but the first page; 8 MiB for whatever else moves. */
	assert_true((before - after) * sysconf(_SC_PAGESIZE) > (long)(56 * MIB));
	lp_test_ok(lp_bdev_read_sync(bdev, buf, 8192, 0));
	assert_int_equal(buf[511], 9);
	assert_int_equal(buf[512], 0);
	assert_int_equal(buf[8191], 0);
	/* What was never there can be discarded too. */
	lp_test_ok(lp_bdev_discard_sync(bdev, 64 * MIB, 128 * MIB));
	lp_bdev_close(bdev);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_refuses),
		cmocka_unit_test(test_sparse),
		cmocka_unit_test(test_discard_gives_back),
	};
	return lp_test_main(tests, "store/device/bdev_mem");
}
