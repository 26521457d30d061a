/* SPDX-License-Identifier: Apache-2.0 */
/* lapis salvage: takes out of a store what verifies, also where it does not open. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/offline/salvage_files.h"
#include "store/kvfs/posix.h"

/* What was collected, until the end. */
#define SCRATCH ".salvage"

struct salvage {
	const char *path[LP_ROLES]; /* NULL: none, or as the label says */
	const char *dir;
	struct lp_bdev *bdev[LP_ROLES];
	struct lp_disk_label label;
	int dir_fd;
	int scratch_fd;
	struct lp_kvfs_posix scratch;
	struct lpi_salvage_files files;
	bool lost_something; /* that is known while records are collected */
};

/* --- Devices and directories ------------------------------------------------------------------ */

/* The data device names the others. */
static int open_devices(struct salvage *salvage)
{
	int err = lpi_device_open(salvage->path[LP_ROLE_DATA], true, &salvage->bdev[LP_ROLE_DATA]);
	if (err == 0)
		err = lpi_device_read_label(salvage->bdev[LP_ROLE_DATA], false, &salvage->label);
	if (err < 0)
		return err;
	if (salvage->path[LP_ROLE_DB] == NULL && salvage->label.db_path[0] != 0)
		salvage->path[LP_ROLE_DB] = (const char *)salvage->label.db_path;
	if (salvage->path[LP_ROLE_WAL] == NULL && salvage->label.wal_path[0] != 0)
		salvage->path[LP_ROLE_WAL] = (const char *)salvage->label.wal_path;
	for (int i = LP_ROLE_DB; i < LP_ROLES && err == 0; i++) {
		if (salvage->path[i] != NULL)
			err = lpi_device_open(salvage->path[i], true, &salvage->bdev[i]);
	}
	return err;
}

static int say_dir(const struct salvage *salvage, int err)
{
	(void)lpi_cli_fail(salvage->dir, "%s",
			   err == -EEXIST || err == -ENOTEMPTY
				   ? "exists already (name a new directory)"
				   : lp_strerror(err));
	return err;
}

static int make_dirs(struct salvage *salvage)
{
	if (mkdir(salvage->dir, S_IRWXU) < 0)
		return say_dir(salvage, -errno);
	salvage->dir_fd = open(salvage->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (salvage->dir_fd < 0 || mkdirat(salvage->dir_fd, SCRATCH, S_IRWXU) < 0)
		return say_dir(salvage, -errno);
	salvage->scratch_fd = openat(salvage->dir_fd, SCRATCH, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (salvage->scratch_fd < 0)
		return say_dir(salvage, -errno);
	lp_kvfs_posix_init(&salvage->scratch, salvage->scratch_fd);
	return 0;
}

static int remove_one(const char *name, void *arg)
{
	const struct salvage *salvage = arg;
	(void)unlinkat(salvage->scratch_fd, name, 0); /* then the directory stays, too */
	return 0;
}

static void remove_scratch(struct salvage *salvage)
{
	if (salvage->scratch_fd >= 0) {
		int err = salvage->scratch.kvfs.ops->list(&salvage->scratch.kvfs, remove_one,
							  salvage);
		(void)err; /* as above */
		(void)close(salvage->scratch_fd);
		(void)unlinkat(salvage->dir_fd, SCRATCH, AT_REMOVEDIR);
	}
	if (salvage->dir_fd >= 0)
		(void)close(salvage->dir_fd);
}

/* --- Reports ---------------------------------------------------------------------------------- */

static void print_lost(uint32_t shard_idx, uint64_t cnt, const char *what)
{
	if (cnt > 0)
		(void)printf("shard %u: %" PRIu64 " %s\n", shard_idx, cnt, what);
}

static void collected(void *arg, uint32_t shard_idx, const struct lp_salvage_shard_report *report)
{
	struct salvage *salvage = arg;
	(void)printf("shard %u: %" PRIu64 " records in %" PRIu64 " tables, %" PRIu64
		     " frames of the log\n",
		     shard_idx, report->records, report->tables, report->log_frames);
	if (!report->has_files)
		(void)printf("shard %u: both superblocks of its files are damaged\n", shard_idx);
	if (!report->has_log)
		(void)printf("shard %u: both superblocks of its log are damaged\n", shard_idx);
	print_lost(
		shard_idx, report->journal_lost,
		"frames of the journal of its files are damaged (what was removed may show again)");
	print_lost(shard_idx, report->mended_bits,
		   "bits had flipped, and are known: nothing is lost");
	print_lost(shard_idx, report->bad_blocks, "blocks of its index are damaged");
	print_lost(shard_idx, report->log_lost, "frames of its log are damaged");
	print_lost(shard_idx, report->bad_records, "records are damaged");
	print_lost(shard_idx, report->changes_under_way,
		   "changes over several shards were under way, and are not finished");
	salvage->lost_something = salvage->lost_something || !report->has_files ||
				  !report->has_log || report->journal_lost > 0 ||
				  report->log_lost > 0 || report->bad_records > 0 ||
				  report->bad_blocks > 0;
	(void)fflush(stdout);
}

static void print_summary(const struct salvage *salvage)
{
	const struct lpi_salvage_files *files = &salvage->files;
	char size[32];
	(void)lpi_cli_format_size(files->bytes, size, sizeof(size));
	(void)printf("%s: %" PRIu64 " objects (%s) and %" PRIu64 " directories taken out, %" PRIu64
		     " named by their inodes, %" PRIu64 " without a name; %" PRIu64
		     " damaged, %" PRIu64 " lost\n",
		     salvage->dir, files->whole, size, files->dirs, files->guessed, files->unnamed,
		     files->damaged, files->lost);
	if (files->left > 0)
		(void)printf("%s: %" PRIu64 " attributes, owners or entries of ordered maps could "
			     "not be taken out\n",
			     salvage->dir, files->left);
}

/* --- Running ---------------------------------------------------------------------------------- */

static int take_out(struct salvage *salvage)
{
	struct lp_label_why why;
	struct lp_salvage_options options = {
		.scratch = &salvage->scratch.kvfs, .collected = collected, .arg = salvage};
	for (int i = 0; i < LP_ROLES; i++)
		options.bdev[i] = salvage->bdev[i];
	int err = lp_salvage_open(&options, &salvage->files.salvage, &why);
	if (err == 0) {
		salvage->files.dir_fd = salvage->dir_fd;
		salvage->files.is_root = geteuid() == 0;
		err = lpi_salvage_files_write(&salvage->files);
		lp_salvage_close(salvage->files.salvage);
	}
	if (err < 0)
		(void)lpi_cli_fail(salvage->dir, "ended early: %s",
				   why.text[0] != '\0' ? why.text : lp_strerror(err));
	else
		print_summary(salvage);
	return err;
}

static int run_parsed(struct salvage *salvage)
{
	const struct lpi_salvage_files *files = &salvage->files;
	int err = open_devices(salvage);
	if (err == 0)
		err = make_dirs(salvage);
	if (err == 0)
		err = take_out(salvage);
	remove_scratch(salvage);
	for (int i = 0; i < LP_ROLES; i++)
		lp_bdev_close(salvage->bdev[i]);
	bool is_whole = err == 0 && !salvage->lost_something && files->damaged == 0 &&
			files->lost == 0 && files->left == 0 && files->unnamed == 0 &&
			files->guessed == 0;
	return is_whole ? LP_EXIT_OK : LP_EXIT_FAILED;
}

static int run(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {{"db", required_argument, NULL, 'd'},
						{"wal", required_argument, NULL, 'w'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	static struct salvage salvage;
	int status = LP_EXIT_OK;
	int c;
	salvage = (struct salvage){.dir_fd = -1, .scratch_fd = -1};
	while ((c = lpi_cli_next_option(self, argc, argv, options, &status)) > 0)
		salvage.path[c == 'd' ? LP_ROLE_DB : LP_ROLE_WAL] = optarg;
	if (c == 0)
		return status;
	if (optind != argc - 2)
		return lpi_cli_usage(self, "exactly one DEVICE and one DIR are needed");
	salvage.path[LP_ROLE_DATA] = argv[optind];
	salvage.dir = argv[optind + 1];
	return run_parsed(&salvage);
}

const struct lpi_cli_command lpi_cli_salvage = {
	.name = "salvage",
	.synopsis = "[--db DEV] [--wal DEV] DEVICE DIR",
	.summary = "Copy everything that verifies out of a damaged store",
	.help = "  --db DEV   where the index is, if it has moved\n"
		"  --wal DEV  where the commit logs are, if they have moved\n"
		"  --help     this text\n"
		"\n"
		"DEVICE is a block device or an image file that no daemon has open; nothing is\n"
		"written to it. DIR is made, with three directories. objects/ has whole objects,\n"
		"damaged/ has files with holes where data is damaged, and lost+found/ has objects\n"
		"without a name. The exit status is 0 when nothing is damaged, 1 otherwise.\n",
	.run = run,
};
