/* SPDX-License-Identifier: Apache-2.0 */
/* lapis fsck: checks a store that no daemon has open, and mends what can be mended without loss. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/random.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "cli/offline/fsck_copy.h"
#include "cli/progress.h"
#include "store/check/fsck.h"

#define WORKERS          2u
#define INDEX_CACHE      (UINT64_C(16) << 20)
#define INDEX_BUFFER     (UINT64_C(16) << 20)
#define BUFS_SPARE_BYTES (UINT64_C(16) << 20)

struct fsck {
	const struct lpi_cli_command *self;
	const char *path[LP_ROLES]; /* NULL: none, or as the label says */
	struct lp_bdev *bdev[LP_ROLES];
	struct lp_disk_label label; /* the data device's */
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_fsck_events events;
	struct lpi_progress progress;
	struct lp_fsck_report report;
	uint64_t found_cnt;
	const char *to; /* NULL: it is the store itself */
	struct lpi_fsck_copy copy;
	struct lp_fsck_rebuild rebuild;
	bool deep;
	bool repair;
	bool json;
};

/* --- What is found ---------------------------------------------------------------------------- */

static const char *weight(const struct lp_fsck_finding *finding)
{
	if (finding->is_repaired)
		return "repaired";
	return finding->severity == LP_FSCK_ERROR ? "error" : "warning";
}

static void print_line(const struct lp_fsck_finding *finding)
{
	(void)printf("%s: %s: ", weight(finding), lp_fsck_kind_name(finding->kind));
	lpi_cli_print_escaped(stdout, finding->object);
	(void)fputs(": ", stdout);
	lpi_cli_print_escaped(stdout, finding->text);
	(void)fputc('\n', stdout);
}

static void print_json(const struct fsck *fsck, const struct lp_fsck_finding *finding)
{
	(void)printf("%s\n  {\"severity\": \"%s\", \"kind\": \"%s\", \"object\": ",
		     fsck->found_cnt > 1 ? "," : "", weight(finding),
		     lp_fsck_kind_name(finding->kind));
	lpi_cli_print_json(stdout, finding->object);
	(void)fputs(", \"text\": ", stdout);
	lpi_cli_print_json(stdout, finding->text);
	if (finding->shard_idx != LP_FSCK_NO_SHARD)
		(void)printf(", \"shard\": %u", finding->shard_idx);
	if (finding->ino.nr != 0)
		(void)printf(", \"inode\": %" PRIu64, finding->ino.nr);
	if (finding->offset_bytes != LP_OFFSET_NONE)
		(void)printf(", \"offset\": %" PRIu64, finding->offset_bytes);
	if (finding->extent.cnt > 0)
		(void)printf(", \"block\": %" PRIu64 ", \"blocks\": %" PRIu64,
			     finding->extent.block, finding->extent.cnt);
	(void)fputc('}', stdout);
}

static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	struct fsck *fsck = LP_CONTAINER_OF(events, struct fsck, events);
	fsck->found_cnt++;
	lpi_progress_stop(&fsck->progress);
	if (fsck->json)
		print_json(fsck, finding);
	else
		print_line(finding);
}

static void moved(struct lp_fsck_events *events, const struct lp_fsck_report *report)
{
	struct fsck *fsck = LP_CONTAINER_OF(events, struct fsck, events);
	uint64_t bytes = report->read_blocks * LP_BLOCK_BYTES;
	/* A repair may look once more, and count from the beginning. */
	lpi_progress_add(&fsck->progress, bytes - LP_MIN(bytes, fsck->progress.done_bytes),
			 report->inodes - LP_MIN(report->inodes, fsck->progress.items));
}

static void print_summary(const struct fsck *fsck)
{
	const struct lp_fsck_report *report = &fsck->report;
	(void)printf("%s: %" PRIu64 " inodes, %" PRIu64 " entries, %" PRIu64 " blocks",
		     fsck->path[LP_ROLE_DATA], report->inodes, report->entries, report->blocks);
	if (fsck->deep)
		(void)printf(", %" PRIu64 " of them read", report->read_blocks);
	if (report->problems + report->repaired + report->warnings == 0)
		(void)puts(": clean");
	else
		(void)printf(": %" PRIu64 " problem%s, %" PRIu64 " repaired, %" PRIu64
			     " warning%s\n",
			     report->problems, report->problems == 1 ? " remains" : "s remain",
			     report->repaired, report->warnings, report->warnings == 1 ? "" : "s");
}

/* After the list of findings, which is open. */
static void print_json_end(const struct fsck *fsck, int err)
{
	const struct lp_fsck_report *report = &fsck->report;
	(void)printf("%s], \"clean\": %s, \"problems\": %" PRIu64 ", \"repaired\": %" PRIu64
		     ", \"warnings\": %" PRIu64 ", \"inodes\": %" PRIu64 ", \"entries\": %" PRIu64
		     ", \"blocks\": %" PRIu64 ", \"read_blocks\": %" PRIu64
		     ", \"shards\": %u, \"complete\": %s}\n",
		     fsck->found_cnt > 0 ? "\n" : "",
		     err == 0 && report->problems == 0 ? "true" : "false", report->problems,
		     report->repaired, report->warnings, report->inodes, report->entries,
		     report->blocks, report->read_blocks, report->shards,
		     err == 0 ? "true" : "false");
}

/* --- Running ---------------------------------------------------------------------------------- */

/* The data device names the others. */
static int open_devices(struct fsck *fsck)
{
	bool read_only = !fsck->repair || fsck->to != NULL;
	int err = lpi_device_open(fsck->path[LP_ROLE_DATA], read_only, &fsck->bdev[LP_ROLE_DATA]);
	if (err == 0)
		err = lpi_device_read_label(fsck->bdev[LP_ROLE_DATA], false, &fsck->label);
	if (err < 0)
		return err;
	if (fsck->path[LP_ROLE_DB] == NULL && fsck->label.db_path[0] != 0)
		fsck->path[LP_ROLE_DB] = (const char *)fsck->label.db_path;
	if (fsck->path[LP_ROLE_WAL] == NULL && fsck->label.wal_path[0] != 0)
		fsck->path[LP_ROLE_WAL] = (const char *)fsck->label.wal_path;
	for (int i = LP_ROLE_DB; i < LP_ROLES && err == 0; i++) {
		if (fsck->path[i] != NULL)
			err = lpi_device_open(fsck->path[i], read_only, &fsck->bdev[i]);
	}
	return err;
}

/* Nothing is written but to the copy, which is checked from here on. */
static int make_copy(struct fsck *fsck)
{
	if (fsck->to == NULL)
		return 0;
	if (getrandom(&fsck->rebuild.salt, sizeof(fsck->rebuild.salt), 0) !=
	    sizeof(fsck->rebuild.salt)) {
		(void)lpi_cli_fail(fsck->to,
				   "the kernel gives no random numbers for the name of the copy");
		return -EIO;
	}
	int err = lpi_fsck_copy_make(&fsck->copy, fsck->to, fsck->bdev);
	if (err < 0)
		return err;
	fsck->rebuild.scratch = &fsck->copy.scratch.kvfs;
	for (int i = 0; i < LP_ROLES; i++)
		fsck->rebuild.bdev[i] = fsck->bdev[i];
	fsck->path[LP_ROLE_DATA] = fsck->to;
	if (fsck->copy.unread_blocks > 0 && !fsck->json)
		(void)printf("%" PRIu64 " blocks could not be read, and are zeros in %s\n",
			     fsck->copy.unread_blocks, fsck->to);
	return 0;
}

/* What the logs hold may have to be in memory, of all shards at once. */
static uint64_t bufs_bytes(const struct fsck *fsck)
{
	uint64_t blocks = 0;
	struct lp_disk_label wal;
	const struct lp_disk_label *label = &fsck->label;
	if (fsck->bdev[LP_ROLE_WAL] != NULL &&
	    lp_label_read(fsck->bdev[LP_ROLE_WAL], false, &wal, NULL) == 0)
		label = &wal;
	for (uint32_t i = 0; i < label->shard_cnt; i++)
		blocks += label->log_blocks[i];
	return blocks * LP_BLOCK_BYTES + BUFS_SPARE_BYTES;
}

static int set_up(struct fsck *fsck)
{
	const struct lp_reactor_options options = {
		.name = "fsck", .ring = true, .files_max = 2 * LP_ROLES * LP_SHARDS_MAX};
	char why[512];
	int err = lp_reactor_new(&options, &fsck->reactor);
	if (err < 0) {
		(void)lp_reactor_explain(err, why, sizeof(why));
		(void)lpi_cli_fail(fsck->path[LP_ROLE_DATA], "%s", why);
		return err;
	}
	err = lp_reactor_start(fsck->reactor);
	if (err == 0)
		err = lp_workers_new(WORKERS, &fsck->workers);
	if (err == 0)
		err = lp_bufs_new(bufs_bytes(fsck), &fsck->bufs);
	if (err < 0)
		(void)lpi_cli_fail(fsck->path[LP_ROLE_DATA], "%s", lp_strerror(err));
	return err;
}

static const char *reason(int err, const struct lp_label_why *why)
{
	const struct lp_corruption *newest = lp_corruption_find(0);
	if (why->text[0] != '\0')
		return why->text;
	return (err == -EBADMSG || err == -EUCLEAN) && newest != NULL ? newest->what
								      : lp_strerror(err);
}

static int check(struct fsck *fsck)
{
	struct lp_label_why why;
	struct lp_fsck_options options = {.reactor = fsck->reactor,
					  .workers = fsck->workers,
					  .bufs = fsck->bufs,
					  .events = &fsck->events,
					  .index_cache_bytes = INDEX_CACHE,
					  .index_buffer_bytes = INDEX_BUFFER,
					  .deep = fsck->deep,
					  .repair = fsck->repair};
	for (int i = 0; i < LP_ROLES; i++)
		options.bdev[i] = fsck->to != NULL ? fsck->copy.bdev[i] : fsck->bdev[i];
	if (fsck->to != NULL)
		options.rebuild = &fsck->rebuild;
	fsck->events.found = found;
	fsck->events.moved = moved;
	lpi_progress_start(&fsck->progress, 0);
	if (fsck->json)
		(void)fputs("{\"findings\": [", stdout);
	int err = lp_fsck_run(&options, &fsck->report, &why);
	lpi_progress_stop(&fsck->progress);
	if (fsck->json)
		print_json_end(fsck, err);
	else if (err == 0)
		print_summary(fsck);
	if (err < 0)
		(void)lpi_cli_fail(fsck->path[LP_ROLE_DATA], "the check ended early: %s",
				   reason(err, &why));
	return err;
}

static int run_parsed(struct fsck *fsck)
{
	int err = open_devices(fsck);
	if (err == 0)
		err = make_copy(fsck);
	if (err == 0)
		err = set_up(fsck);
	if (err == 0)
		err = check(fsck);
	lpi_fsck_copy_close(&fsck->copy, err == 0);
	lp_bufs_free(fsck->bufs);
	lp_workers_free(fsck->workers);
	lp_reactor_free(fsck->reactor);
	for (int i = 0; i < LP_ROLES; i++)
		lp_bdev_close(fsck->bdev[i]);
	return err == 0 && fsck->report.problems == 0 ? LP_EXIT_OK : LP_EXIT_FAILED;
}

static void take_option(struct fsck *fsck, int c, const char *text)
{
	switch (c) {
	case 'D':
		fsck->deep = true;
		break;
	case 'r':
		fsck->repair = true;
		break;
	case 'j':
		fsck->json = true;
		break;
	case 't':
		fsck->to = text;
		break;
	case 'P':
		lpi_progress_command(true);
		break;
	case 'd':
		fsck->path[LP_ROLE_DB] = text;
		break;
	default:
		fsck->path[LP_ROLE_WAL] = text;
		break;
	}
}

static int run(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {{"deep", no_argument, NULL, 'D'},
						{"repair", no_argument, NULL, 'r'},
						{"to", required_argument, NULL, 't'},
						{"json", no_argument, NULL, 'j'},
						{"db", required_argument, NULL, 'd'},
						{"wal", required_argument, NULL, 'w'},
						{"no-progress", no_argument, NULL, 'P'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	static struct fsck fsck;
	int status = LP_EXIT_OK;
	int c;
	fsck = (struct fsck){.self = self};
	while ((c = lpi_cli_next_option(self, argc, argv, options, &status)) > 0)
		take_option(&fsck, c, optarg);
	if (c == 0)
		return status;
	if (optind != argc - 1)
		return lpi_cli_usage(self, "exactly one DEVICE is needed");
	if (fsck.to != NULL && !fsck.repair)
		return lpi_cli_usage(self, "--to needs --repair");
	fsck.path[LP_ROLE_DATA] = argv[optind];
	return run_parsed(&fsck);
}

const struct lpi_cli_command lpi_cli_fsck = {
	.name = "fsck",
	.synopsis =
		"[--deep] [--repair] [--to FILE] [--json] [--no-progress] [--db DEV] [--wal DEV] "
		"DEVICE",
	.summary = "Check a store, and repair what can be repaired without loss",
	.help = "  --deep     also read every block and compare it with its checksum\n"
		"  --repair   repair what follows from the rest; never removes data or names\n"
		"  --to FILE  with --repair: leave DEVICE unchanged, and repair a copy of it in\n"
		"             the new image FILE. A damaged index is rebuilt there from what is\n"
		"             left of it. What is lost is listed\n"
		"  --json     one JSON object instead of lines\n"
		"  --db DEV   where the index is, if it has moved\n"
		"  --wal DEV  where the commit logs are, if they have moved\n"
		"  --no-progress  do not show progress, even on a terminal\n"
		"  --help     this text\n"
		"\n"
		"DEVICE is a block device or an image file that no daemon has open. The exit\n"
		"status is 0 when the store is in order, 1 when problems remain.\n",
	.run = run,
};
