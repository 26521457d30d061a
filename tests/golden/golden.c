/* SPDX-License-Identifier: Apache-2.0 */
/* The machine of the golden images: everything happens in one thread and in simulated time, so that
 * the same calls leave the same records. (RocksDB writes random identifiers into its files: the
 * bytes of two images differ there, and in what blockfs's journal says of such blocks.) */
#include "tests/golden/golden.h"
#include "store/setup/mkfs.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE_BYTES (UINT64_C(64) << 20)
#define LOG_BYTES    (UINT64_C(1) << 20)
#define BUFS_BYTES   (UINT64_C(48) << 20)
#define TURNS_MAX    1000000u
#define WALL_NS      (INT64_C(1700000000) * (int64_t)LP_NS_PER_S)

static const char *const suffixes[LP_ROLES] = {"", ".db", ".wal"};

void lpi_golden_fail(const char *file, int line, const char *what)
{
	const struct lp_corruption *corruption = lp_corruption_find(0);
	(void)fprintf(stderr, "%s:%d: %s\n", file, line, what);
	if (corruption != NULL)
		(void)fprintf(stderr, "corruption: %s\n", corruption->what);
	_exit(1); /* not exit(): threads of the store run */
}

void lpi_golden_ok(int err, const char *file, int line, const char *what)
{
	char text[300];
	if (err >= 0)
		return;
	(void)snprintf(text, sizeof(text), "%s: %s", what, strerrorname_np(-err)); /* may be cut */
	lpi_golden_fail(file, line, text);
}

/* --- Birth and death -------------------------------------------------------------------------- */

static void init(struct lpi_golden *golden)
{
	const struct lp_reactor_options options = {.name = "golden", .sim = &golden->clock};
	*golden = (struct lpi_golden){.shard_cnt = 1};
	lp_clock_sim_init(&golden->clock, LP_NS_PER_S, WALL_NS);
	LPI_GOLDEN_OK(lp_reactor_new(&options, &golden->reactor));
	LPI_GOLDEN_OK(lp_reactor_start(golden->reactor));
	LPI_GOLDEN_OK(lp_workers_new(0, &golden->workers));
	LPI_GOLDEN_OK(lp_bufs_new(BUFS_BYTES, &golden->bufs));
}

void lpi_golden_new(struct lpi_golden *golden, uint32_t shard_cnt, bool has_fast_devices)
{
	struct lp_mkfs_options mkfs = {
		.shard_cnt = shard_cnt, .log_bytes = LOG_BYTES, .created_ns = WALL_NS};
	struct lp_disk_label label;
	struct lp_label_why why = {.text = ""};
	init(golden);
	golden->shard_cnt = shard_cnt;
	for (unsigned i = 0; i < (has_fast_devices ? LP_ROLES : 1u); i++) {
		LPI_GOLDEN_OK(lp_bdev_open_mem(DEVICE_BYTES, 4096, &golden->bdev[i]));
		mkfs.bdev[i] = golden->bdev[i];
		mkfs.path[i] = has_fast_devices ? suffixes[i] : NULL;
	}
	for (size_t i = 0; i < sizeof(mkfs.seed); i++)
		mkfs.seed[i] = (uint8_t)(i * 7 + 1);
	LPI_GOLDEN_OK(lp_store_mkfs(&mkfs, &label, &why));
}

void lpi_golden_end(struct lpi_golden *golden)
{
	for (unsigned i = 0; i < LP_ROLES; i++)
		lp_bdev_close(golden->bdev[i]);
	lp_bufs_free(golden->bufs);
	lp_workers_free(golden->workers);
	lp_reactor_free(golden->reactor);
}

/* --- Images ----------------------------------------------------------------------------------- */

static void path_of(const char *path, unsigned device, char *ret_path, size_t len)
{
	int got = snprintf(ret_path, len, "%s%s", path, suffixes[device]);
	LPI_GOLDEN_CHECK(got > 0 && (size_t)got < len);
}

static bool is_zero(const uint8_t *block)
{
	return block[0] == 0 && memcmp(block, block + 1, LP_BLOCK_BYTES - 1) == 0;
}

static struct lp_bdev *load_device(int fd, uint64_t bytes)
{
	static _Alignas(4096) uint8_t block[LP_BLOCK_BYTES];
	struct lp_bdev *bdev = NULL;
	LPI_GOLDEN_OK(lp_bdev_open_mem(bytes, 4096, &bdev));
	for (uint64_t at = 0; at < bytes; at += sizeof(block)) {
		LPI_GOLDEN_CHECK(pread(fd, block, sizeof(block), (off_t)at) == sizeof(block));
		if (!is_zero(block))
			LPI_GOLDEN_CHECK(
				lp_bdev_write_sync(bdev, block, sizeof(block), at, false) == 0);
	}
	return bdev;
}

void lpi_golden_load(struct lpi_golden *golden, const char *path)
{
	struct lp_label_why why = {.text = ""};
	struct lp_disk_label label;
	init(golden);
	for (unsigned i = 0; i < LP_ROLES; i++) {
		char name[512];
		struct stat stat;
		path_of(path, i, name, sizeof(name));
		int fd = open(name, O_RDONLY | O_CLOEXEC);
		if (fd < 0 && i != LP_ROLE_DATA)
			continue;
		LPI_GOLDEN_CHECK(fd >= 0 && fstat(fd, &stat) == 0);
		golden->bdev[i] = load_device(fd, (uint64_t)stat.st_size);
		(void)close(fd); /* only read */
	}
	LPI_GOLDEN_OK(lp_label_read(golden->bdev[LP_ROLE_DATA], false, &label, &why));
	LPI_GOLDEN_CHECK(label.shard_cnt <= LPI_GOLDEN_SHARDS_MAX);
	golden->shard_cnt = label.shard_cnt;
}

static void save_device(struct lp_bdev *bdev, const char *name)
{
	static _Alignas(4096) uint8_t block[LP_BLOCK_BYTES];
	uint64_t bytes = lp_bdev_caps(bdev)->size_bytes;
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	LPI_GOLDEN_CHECK(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
	for (uint64_t at = 0; at < bytes; at += sizeof(block)) {
		LPI_GOLDEN_OK(lp_bdev_read_sync(bdev, block, sizeof(block), at));
		if (!is_zero(block))
			LPI_GOLDEN_CHECK(pwrite(fd, block, sizeof(block), (off_t)at) ==
					 sizeof(block));
	}
	LPI_GOLDEN_CHECK(close(fd) == 0);
}

void lpi_golden_save(const struct lpi_golden *golden, const char *path)
{
	char name[512];
	for (unsigned i = 0; i < LP_ROLES; i++) {
		path_of(path, i, name, sizeof(name));
		if (golden->bdev[i] != NULL)
			save_device(golden->bdev[i], name);
	}
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static void open_devices(struct lpi_golden *golden, bool read_only)
{
	struct lp_devices_options options = {.read_only = read_only};
	struct lp_label_why why = {.text = ""};
	memcpy(options.bdev, golden->bdev, sizeof(options.bdev));
	int err = lp_devices_open(&options, &golden->devices, &why);
	if (err < 0)
		lpi_golden_fail(__FILE__, __LINE__, why.text);
}

void lpi_golden_open(struct lpi_golden *golden)
{
	open_devices(golden, false);
	for (uint32_t i = 0; i < golden->shard_cnt; i++) {
		const struct lp_store_options options = {.reactor = golden->reactor,
							 .workers = golden->workers,
							 .devices = &golden->devices,
							 .bufs = golden->bufs,
							 .shard_idx = i,
							 .sim_clock = &golden->clock.clock,
							 .index_buffer_bytes = UINT64_C(1) << 18,
							 .deferred_blocks_max = 64,
							 .files_reserve_bytes = UINT64_C(1) << 20};
		LPI_GOLDEN_OK(lp_store_open(&options, &golden->stores[i]));
	}
}

void lpi_golden_close(struct lpi_golden *golden, bool abandon)
{
	for (uint32_t i = 0; i < golden->shard_cnt; i++) {
		LPI_GOLDEN_CHECK(lp_store_close(golden->stores[i], abandon) == 0 || abandon);
		golden->stores[i] = NULL;
	}
	lp_devices_close(&golden->devices);
}

void lpi_golden_open_shards(struct lpi_golden *golden)
{
	open_devices(golden, true);
	for (uint32_t i = 0; i < golden->shard_cnt; i++) {
		const struct lp_shard_options options = {.reactor = golden->reactor,
							 .workers = golden->workers,
							 .devices = &golden->devices,
							 .bufs = golden->bufs,
							 .shard_idx = i,
							 .sim_clock = &golden->clock.clock,
							 .index_cache_bytes = 1 << 20,
							 .index_buffer_bytes = UINT64_C(1) << 18,
							 .read_only = true};
		LPI_GOLDEN_OK(lp_shard_open(&options, &golden->shards[i]));
	}
}

void lpi_golden_close_shards(struct lpi_golden *golden)
{
	for (uint32_t i = 0; i < golden->shard_cnt; i++) {
		LPI_GOLDEN_OK(lp_shard_close(golden->shards[i], false));
		golden->shards[i] = NULL;
	}
	lp_devices_close(&golden->devices);
}

/* --- Operations ------------------------------------------------------------------------------- */

void lpi_golden_turn(struct lpi_golden *golden)
{
	for (uint32_t i = 0; i < golden->shard_cnt; i++)
		(void)lp_store_sim_run_one(golden->stores[i]);
	(void)lp_reactor_turn(golden->reactor, true); /* how much it did does not matter */
}

static struct lp_store_op *completed;

static void complete(struct lp_store_op *op)
{
	completed = op;
}

int lpi_golden_do(struct lpi_golden *golden, uint32_t shard, struct lp_store_op *op)
{
	op->complete = complete;
	completed = NULL;
	lp_store_submit(golden->stores[shard], op);
	for (uint32_t turns = 0; completed != op; turns++) {
		LPI_GOLDEN_CHECK(turns < TURNS_MAX);
		lpi_golden_turn(golden);
	}
	return op->result;
}
