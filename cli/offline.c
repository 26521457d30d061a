/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/offline.h"

#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "cli/cli.h"

const struct lpi_offline_command lpi_offline_commands[] = {
	{"mkfs", "Make a store on a block device or an image file"},
	{"info", "Show what store is on a device"},
	{"fsck", "Check a store, and repair what can be without loss"},
	{"salvage", "Take out of a damaged store all that verifies"},
	{"grow", "Let a store use all of a device that became larger"},
	{"store-bench", "Measure one shard's store, without a daemon"},
};
const unsigned lpi_offline_command_cnt = LP_ARRAY_SIZE(lpi_offline_commands);

/* The directory of this program, or one above it: *path is cut at its last '/'. */
static void cut_last(char *path)
{
	char *slash = strrchr(path, '/');
	if (slash != NULL)
		*slash = '\0';
}

int lpi_offline_run(char **argv)
{
	char dir[4096] = "";
	char path[4200];
	ssize_t len = readlink("/proc/self/exe", dir, sizeof(dir) - 1);
	if (len < 0)
		return lpi_cli_fail(argv[1], "cannot find the directory of the program lapis: %s",
				    lp_strerror(-errno));
	cut_last(dir);
	cut_last(dir);
	(void)snprintf(path, sizeof(path), "%s/libexec/%s", dir, LPI_OFFLINE_PROGRAM);
	(void)execv(path, argv);
	return lpi_cli_fail(argv[1], "%s: %s (it is installed together with lapis)", path,
			    lp_strerror(-errno));
}
