/* SPDX-License-Identifier: Apache-2.0 */
/* lapis info: what a device's label and chunk table say. Changes nothing, repairs nothing. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "store/volume/chunks.h"

struct info {
	struct lp_bdev *bdev;
	struct lp_disk_label label;
	bool has_chunks;
	struct lp_chunks_stats chunks;
};

static const char *role_name(uint32_t role)
{
	switch (role) {
	case LP_DISK_ROLE_DATA:
		return "data";
	case LP_DISK_ROLE_DB:
		return "db";
	case LP_DISK_ROLE_WAL:
		return "wal";
	default:
		return "unknown";
	}
}

static int read_chunks(struct info *info)
{
	const struct lp_chunks_options options = {.label = &info->label, .read_only = true};
	struct lp_chunks *chunks = NULL;
	if (info->label.chunk_cnt == 0)
		return 0;
	int err = lp_chunks_open(info->bdev, &options, &chunks);
	if (err < 0) {
		const struct lp_corruption *found = lp_corruption_find(0);
		return lpi_cli_fail(lp_bdev_name(info->bdev), "the chunk table is damaged: %s",
				    found != NULL ? found->what : lp_strerror(err));
	}
	lp_chunks_stats(chunks, &info->chunks);
	lp_chunks_close(chunks);
	info->has_chunks = true;
	return 0;
}

static void format_time(int64_t ns, char *buf, size_t len)
{
	time_t seconds = (time_t)(ns / 1000000000);
	struct tm tm;
	if (gmtime_r(&seconds, &tm) == NULL || strftime(buf, len, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0)
		(void)snprintf(buf, len, "unknown");
}

static void print_size(const char *what, uint64_t bytes)
{
	char size[32];
	(void)lpi_cli_format_size(bytes, size, sizeof(size));
	(void)printf("%-14s %s\n", what, size);
}

static void print_text(const struct info *info)
{
	const struct lp_disk_label *label = &info->label;
	char store[37];
	char device[37];
	char created[32];
	lpi_device_format_uuid(label->store_uuid, store);
	lpi_device_format_uuid(label->device_uuid, device);
	format_time(label->created_ns, created, sizeof(created));
	(void)printf("%-14s %s\n%-14s %s\n%-14s %s\n%-14s %s\n%-14s %u\n%-14s %u\n", "store", store,
		     "device", device, "role", role_name(label->role), "created", created, "format",
		     label->version, "shards", label->shard_cnt);
	print_size("size", label->size_blocks * LP_BLOCK_BYTES);
	if (label->log_blocks[0] > 0)
		print_size("log per shard", label->log_blocks[0] * LP_BLOCK_BYTES);
	if (label->db_path[0] != 0)
		(void)printf("%-14s %s\n", "db device", (const char *)label->db_path);
	if (label->wal_path[0] != 0)
		(void)printf("%-14s %s\n", "wal device", (const char *)label->wal_path);
	if (!info->has_chunks)
		return;
	uint64_t chunk_bytes = label->chunk_blocks * LP_BLOCK_BYTES;
	print_size("chunk", chunk_bytes);
	print_size("free chunks", info->chunks.cnt[LP_CHUNK_USE_FREE] * chunk_bytes);
	print_size("for objects", info->chunks.cnt[LP_CHUNK_USE_OBJECTS] * chunk_bytes);
	print_size("for metadata", info->chunks.cnt[LP_CHUNK_USE_FILES] * chunk_bytes);
}

static void print_json(const struct info *info)
{
	const struct lp_disk_label *label = &info->label;
	char store[37];
	char device[37];
	lpi_device_format_uuid(label->store_uuid, store);
	lpi_device_format_uuid(label->device_uuid, device);
	(void)printf(
		"{\"store\": \"%s\", \"device\": \"%s\", \"role\": \"%s\", \"created_ns\": %lld, "
		"\"format\": %u, \"shards\": %u, \"size_bytes\": %" PRIu64
		", \"chunk_bytes\": %" PRIu64,
		store, device, role_name(label->role), (long long)label->created_ns, label->version,
		label->shard_cnt, label->size_blocks * LP_BLOCK_BYTES,
		label->chunk_blocks * LP_BLOCK_BYTES);
	if (info->has_chunks)
		(void)printf(", \"chunks\": {\"free\": %u, \"objects\": %u, \"files\": %u}",
			     info->chunks.cnt[LP_CHUNK_USE_FREE],
			     info->chunks.cnt[LP_CHUNK_USE_OBJECTS],
			     info->chunks.cnt[LP_CHUNK_USE_FILES]);
	(void)puts("}");
}

static int show(const char *path, bool json)
{
	static struct info info;
	int err = lpi_device_open(path, true, &info.bdev);
	if (err < 0)
		return LP_EXIT_FAILED;
	err = lpi_device_read_label(info.bdev, false, &info.label);
	if (err == 0)
		err = read_chunks(&info);
	if (err == 0 && json)
		print_json(&info);
	else if (err == 0)
		print_text(&info);
	lp_bdev_close(info.bdev);
	return err == 0 ? LP_EXIT_OK : LP_EXIT_FAILED;
}

static int run(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
						{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	bool json = false;
	int status = LP_EXIT_OK;
	int c;
	while ((c = lpi_cli_next_option(self, argc, argv, options, &status)) > 0)
		json = true;
	if (c == 0)
		return status;
	if (optind != argc - 1)
		return lpi_cli_usage(self, "exactly one DEVICE is needed");
	return show(argv[optind], json);
}

const struct lpi_cli_command lpi_cli_info = {
	.name = "info",
	.synopsis = "[--json] DEVICE",
	.summary = "Show which store is on a device",
	.help = "  --json  one JSON object instead of text\n"
		"  --help  this text\n"
		"\n"
		"DEVICE is a block device or an image file that no daemon has open.\n",
	.run = run,
};
