/* SPDX-License-Identifier: Apache-2.0 */
/* lapis grow: lets a store use all of a device that has become larger. */
#include <getopt.h>
#include <stdio.h>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/device.h"
#include "store/setup/grow.h"
#include "store/space/space.h"

static void report(const char *path, const struct lp_grow_result *result)
{
	char from[32];
	char to[32];
	char idle[32];
	char waiting[32];
	(void)lpi_cli_format_size(result->old_blocks * LP_BLOCK_BYTES, from, sizeof(from));
	(void)lpi_cli_format_size(result->new_blocks * LP_BLOCK_BYTES, to, sizeof(to));
	(void)lpi_cli_format_size(result->idle_blocks * LP_BLOCK_BYTES, idle, sizeof(idle));
	(void)lpi_cli_format_size(result->waiting_blocks * LP_BLOCK_BYTES, waiting,
				  sizeof(waiting));
	if (result->old_blocks == result->new_blocks)
		(void)printf("%s: uses all of its %s already\n", path, to);
	else
		(void)printf("%s: grown from %s to %s\n", path, from, to);
	if (result->idle_blocks > 0)
		(void)printf("%s: %s of it stay unused: a store grows to %u times its first "
			     "size, %u chunks or %llu TiB, and no further\n",
			     path, idle, LP_LABEL_GROWTH_MAX, LP_SPACE_CHUNKS_MAX,
			     (unsigned long long)LP_ALLOC_BLOCKS_MAX * LP_BLOCK_BYTES >> 40);
	if (result->waiting_blocks > 0)
		(void)printf("%s: %s of it cannot be used yet: the store was so full that its "
			     "shards have lent each other single blocks, and there is no room to "
			     "name more chunks; remove objects, and restart the daemon later\n",
			     path, waiting);
}

static const char *reason(int err, const struct lp_label_why *why)
{
	const struct lp_corruption *found = lp_corruption_find(0);
	if (err == -EMEDIUMTYPE)
		return "no Lapis store is on it (lapis mkfs makes one)";
	if (why->text[0] != '\0')
		return why->text;
	if ((err == -EBADMSG || err == -EUCLEAN) && found != NULL)
		return found->what;
	return lp_strerror(err);
}

static int grow(const char *path)
{
	struct lp_bdev *bdev = NULL;
	struct lp_grow_result result;
	struct lp_label_why why;
	if (lpi_device_open(path, false, &bdev) < 0)
		return LP_EXIT_FAILED;
	int err = lp_store_grow(bdev, &result, &why);
	lp_bdev_close(bdev);
	if (err < 0)
		return lpi_cli_fail(path, "%s", reason(err, &why));
	report(path, &result);
	return LP_EXIT_OK;
}

static int run(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{NULL, 0, NULL, 0}};
	int status = LP_EXIT_OK;
	if (lpi_cli_next_option(self, argc, argv, options, &status) == 0)
		return status;
	if (optind != argc - 1)
		return lpi_cli_usage(self, "exactly one DEVICE is needed");
	return grow(argv[optind]);
}

const struct lpi_cli_command lpi_cli_grow = {
	.name = "grow",
	.synopsis = "DEVICE",
	.summary = "Let a store use all of a device that became larger",
	.help = "  --help  this text\n"
		"\n"
		"Enlarge the partition, the volume or the image file (truncate -s) first. Stored\n"
		"data stays where it is, and the power may fail at any time. A store grows to at\n"
		"most 16 times its original size, 4194304 chunks and 256 TiB.\n",
	.run = run,
};
