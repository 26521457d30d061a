/* SPDX-License-Identifier: Apache-2.0 */
/* lapis umount: takes away a mount, also one whose daemon is gone. */
#include <errno.h>
#include <getopt.h>

#include "base/error.h"
#include "cli/cli.h"
#include "fuse/mount/umount.h"

static const char *reason(int err)
{
	switch (err) {
	case -EINVAL:
		return "no Lapis store is mounted there";
	case -EBUSY:
		return "it is in use (end what uses it, or --lazy)";
	case -EPERM:
		return "only root may do that, or who mounted it";
	default:
		return lp_strerror(err);
	}
}

static int run(const struct lpi_cli_command *self, int argc, char **argv)
{
	static const struct option options[] = {{"help", no_argument, NULL, 'h'},
						{"lazy", no_argument, NULL, 'l'},
						{NULL, 0, NULL, 0}};
	int status = LP_EXIT_OK;
	bool lazy = false;
	int option = 0;
	while ((option = lpi_cli_next_option(self, argc, argv, options, &status)) > 0)
		lazy = option == 'l';
	if (option == 0)
		return status;
	if (optind != argc - 1)
		return lpi_cli_usage(self, "exactly one DIR is needed");
	int err = lp_fuse_umount(argv[optind], lazy);
	return err < 0 ? lpi_cli_fail(argv[optind], "%s", reason(err)) : LP_EXIT_OK;
}

const struct lpi_cli_command lpi_cli_umount = {
	.name = "umount",
	.synopsis = "[--lazy] DIR",
	.summary = "Take away a mount, also one whose daemon is gone",
	.help = "  --lazy  take it out of sight at once, also when it is in use\n"
		"  --help  this text\n"
		"\n"
		"A daemon that is there goes on without the mount, and serves its sockets.\n",
	.run = run,
};
