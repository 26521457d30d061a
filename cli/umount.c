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
		return "is in use (end the programs that use it, or give --lazy)";
	case -EPERM:
		return "only root or the user who mounted it may unmount it";
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
	.summary = "Unmount Lapis, even if the mount's daemon is gone",
	.help = "  --lazy  hide the mount at once, even if it is in use; it ends when it is "
		"unused\n"
		"  --help  this text\n"
		"\n"
		"A running daemon goes on without the mount, and serves its sockets.\n",
	.run = run,
};
