/* SPDX-License-Identifier: Apache-2.0 */
/* lapis mkfs: makes a store on a block device or an image file. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/error.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/progress.h"
#include "store/setup/mkfs.h"
#include "store/volume/devices.h"

struct mkfs {
	const struct lpi_cli_command *self;
	const char *path[LP_ROLES]; /* NULL: none */
	struct lp_bdev *bdev[LP_ROLES];
	uint64_t size_bytes; /* 0: not given */
	uint64_t shard_cnt;
	uint64_t chunk_bytes;
	uint64_t log_bytes;
	bool force;
	bool created; /* the image file is ours: removed again on failure */
};

/* --size makes a missing file, sparse; an existing one is left as it is. */
static int create_image(struct mkfs *mkfs)
{
	const char *path = mkfs->path[LP_ROLE_DATA];
	struct stat st;
	if (stat(path, &st) == 0) {
		if (mkfs->size_bytes == 0)
			return 0;
		(void)lpi_cli_fail(
			path, "exists already, so --size cannot create it (leave out --size, or "
			      "remove the file first)");
		return -EEXIST;
	}
	if (mkfs->size_bytes == 0) {
		(void)lpi_cli_fail(path, "%s (give --size to create an image file)",
				   lp_strerror(errno));
		return -ENOENT;
	}
	int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	int err = fd < 0 ? -errno : 0;
	if (fd >= 0 && ftruncate(fd, (off_t)mkfs->size_bytes) < 0)
		err = -errno;
	if (fd >= 0) {
		mkfs->created = true;
		(void)close(fd); /* nothing was written */
	}
	if (err < 0)
		(void)lpi_cli_fail(path, "cannot create the image file: %s", lp_strerror(err));
	return err;
}

static int open_devices(struct mkfs *mkfs)
{
	for (int i = 0; i < LP_ROLES; i++) {
		if (mkfs->path[i] == NULL)
			continue;
		int err = lpi_device_open(mkfs->path[i], false, &mkfs->bdev[i]);
		if (err == 0 && !mkfs->force)
			err = lpi_device_check_unused(mkfs->bdev[i]);
		if (err < 0)
			return err;
	}
	return 0;
}

/* Where the data device's label says that another one is: a daemon may start elsewhere. */
static int find_path(const char *path, char *ret_path, size_t len)
{
	int err = path != NULL ? lp_devices_absolute_path(path, ret_path, len) : 0;
	if (err == -ENAMETOOLONG)
		(void)lpi_cli_fail(path, "the absolute path of a device may have at most %zu bytes",
				   len - 1);
	else if (err < 0)
		(void)lpi_cli_fail(path, "%s", lp_strerror(err));
	return err;
}

static int make(struct mkfs *mkfs)
{
	struct lp_mkfs_options options = {
		.shard_cnt = (uint32_t)mkfs->shard_cnt,
		.chunk_bytes = mkfs->chunk_bytes,
		.log_bytes = mkfs->log_bytes,
		.created_ns = lp_clock_wall_ns(lp_clock_system()),
	};
	struct lp_label_why why = {.text = ""};
	struct lp_disk_label label;
	char path[LP_ROLES][sizeof(label.db_path)];
	char store[37];
	char size[32];
	for (int i = 0; i < LP_ROLES; i++)
		options.bdev[i] = mkfs->bdev[i];
	for (int i = LP_ROLE_DB; i < LP_ROLES; i++) {
		int err = find_path(mkfs->path[i], path[i], sizeof(path[i]));
		if (err < 0)
			return err;
		options.path[i] = mkfs->path[i] != NULL ? path[i] : NULL;
	}
	if (getrandom(options.seed, sizeof(options.seed), 0) != sizeof(options.seed))
		return -EIO; /* cannot be: so few bytes are never cut short */
	struct lpi_waiting waiting;
	lpi_waiting_start(&waiting, "making the store");
	int err = lp_store_mkfs(&options, &label, &why);
	lpi_waiting_stop(&waiting);
	if (err < 0) {
		(void)lpi_cli_fail(mkfs->path[LP_ROLE_DATA], "%s",
				   why.text[0] != '\0' ? why.text : lp_strerror(err));
		return err;
	}
	lpi_device_format_uuid(label.store_uuid, store);
	(void)lpi_cli_format_size(label.size_blocks * LP_BLOCK_BYTES, size, sizeof(size));
	(void)printf("store %s on %s: %s, %u shard%s\n", store, mkfs->path[LP_ROLE_DATA], size,
		     label.shard_cnt, label.shard_cnt == 1 ? "" : "s");
	return 0;
}

/* The name of a new image must not be lost when its store is not. */
static int sync_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	char *dir = slash == NULL   ? strdup(".")
		    : slash == path ? strdup("/")
				    : strndup(path, (size_t)(slash - path));
	if (dir == NULL)
		return -ENOMEM;
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int err = fd < 0 || fsync(fd) < 0 ? -errno : 0;
	if (err < 0)
		(void)lpi_cli_fail(dir, "cannot make the name of the image durable: %s",
				   lp_strerror(err));
	if (fd >= 0)
		(void)close(fd);
	free(dir);
	return err;
}

static int run_parsed(struct mkfs *mkfs)
{
	int err = create_image(mkfs);
	if (err == 0)
		err = open_devices(mkfs);
	if (err == 0 && mkfs->created)
		err = sync_name(mkfs->path[LP_ROLE_DATA]);
	if (err == 0)
		err = make(mkfs);
	for (int i = 0; i < LP_ROLES; i++)
		lp_bdev_close(mkfs->bdev[i]);
	if (err < 0 && mkfs->created)
		(void)unlink(mkfs->path[LP_ROLE_DATA]); /* as if it had never been tried */
	return err == 0 ? LP_EXIT_OK : LP_EXIT_FAILED;
}

enum { OPT_CHUNK = 256, OPT_LOG };

/* LP_EXIT_OK, or the status of a wrong call. */
static int take_option(struct mkfs *mkfs, int c, const char *text)
{
	int err = 0;
	switch (c) {
	case 'n':
		err = lpi_cli_parse_number(text, 1, LP_SHARDS_MAX, &mkfs->shard_cnt);
		break;
	case 's':
		err = lpi_cli_parse_size(text, &mkfs->size_bytes);
		break;
	case OPT_CHUNK:
		err = lpi_cli_parse_size(text, &mkfs->chunk_bytes);
		break;
	case OPT_LOG:
		err = lpi_cli_parse_size(text, &mkfs->log_bytes);
		break;
	case 'd':
		mkfs->path[LP_ROLE_DB] = text;
		break;
	case 'w':
		mkfs->path[LP_ROLE_WAL] = text;
		break;
	case 'f':
		mkfs->force = true;
		break;
	case 'P':
		lpi_progress_command(true);
		break;
	default:
		return lpi_cli_usage(mkfs->self, "unknown option");
	}
	if (err == -ERANGE)
		return lpi_cli_usage(mkfs->self, "%s is out of range", text);
	if (err < 0)
		return lpi_cli_usage(mkfs->self, "%s is not a %s", text,
				     c == 'n' ? "number" : "size (like 4096, 64K, 10G)");
	return LP_EXIT_OK;
}

static int run(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {
		{"shards", required_argument, NULL, 'n'},
		{"size", required_argument, NULL, 's'},
		{"db", required_argument, NULL, 'd'},
		{"wal", required_argument, NULL, 'w'},
		{"chunk-size", required_argument, NULL, OPT_CHUNK},
		{"log-size", required_argument, NULL, OPT_LOG},
		{"force", no_argument, NULL, 'f'},
		{"no-progress", no_argument, NULL, 'P'},
		{"help", no_argument, NULL, 'h'},
		{NULL, 0, NULL, 0},
	};
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	struct mkfs mkfs = {.self = self};
	mkfs.shard_cnt = (uint64_t)LP_MIN(LP_MAX(cpus, 1), (long)LP_SHARDS_MAX);
	int status = LP_EXIT_OK;
	int c;
	while ((c = lpi_cli_next_option(self, argc, argv, options, &status)) > 0) {
		status = take_option(&mkfs, c, optarg);
		if (status != LP_EXIT_OK)
			return status;
	}
	if (c == 0)
		return status;
	if (optind != argc - 1)
		return lpi_cli_usage(self, "exactly one DEVICE is needed");
	mkfs.path[LP_ROLE_DATA] = argv[optind];
	return run_parsed(&mkfs);
}

const struct lpi_cli_command lpi_cli_mkfs = {
	.name = "mkfs",
	.synopsis = "[--shards N] [--size BYTES] [--db DEV] [--wal DEV] [--force]"
		    " [--no-progress] DEVICE",
	.summary = "Make a store on a block device or an image file",
	.help = "  --shards N         number of shards, each with a thread; cannot be changed\n"
		"                     later (default: one per CPU)\n"
		"  --size BYTES       create DEVICE as a sparse image file of this size (10G, "
		"1.5T)\n"
		"  --db DEV           faster device for the index\n"
		"  --wal DEV          faster device for the commit log\n"
		"  --chunk-size BYTES the unit in which shards share the device (default: by "
		"size)\n"
		"  --log-size BYTES   commit log of each shard (default: by size)\n"
		"  --force            overwrite whatever the devices hold\n"
		"  --no-progress      do not show progress, even on a terminal\n"
		"  --help             this text\n"
		"\n"
		"A device with a store, a file system or partitions is refused without --force.\n",
	.run = run,
};
