/* SPDX-License-Identifier: Apache-2.0 */
/* The commands on devices, a program of its own: it links with the store and so with RocksDB, whose
 * start takes longer than a whole `lapis put`. `lapis` runs it. */
#include <string.h>

#include "base/error.h"
#include "base/stdfds.h"
#include "cli/cli.h"

static const struct lpi_cli_command *const commands[] = {&lpi_cli_mkfs, &lpi_cli_info,
							 &lpi_cli_fsck, &lpi_cli_salvage,
							 &lpi_cli_grow, &lpi_cli_store_bench};

int main(int argc, char **argv)
{
	int err = lp_stdfds_hold();
	if (err < 0)
		return lpi_cli_fail("/dev/null", "%s", lp_strerror(err));
	for (size_t i = 0; argc >= 2 && i < LP_ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i]->name) == 0)
			return lpi_end_output(commands[i]->run(commands[i], argc - 1, argv + 1));
	}
	(void)fputs("lapis: this is a part of the command lapis (see lapis --help)\n", stderr);
	return LP_EXIT_USAGE;
}
