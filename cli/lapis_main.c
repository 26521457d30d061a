/* SPDX-License-Identifier: Apache-2.0 */
/* The command `lapis`: finds the subcommand in the table and runs it. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

extern const char lp_allocator_name[];

static const struct lpi_cli_command *const commands[] = {
	&lpi_cli_mkfs, &lpi_cli_info, &lpi_cli_fsck, &lpi_cli_grow, &lpi_cli_store_bench};

static int print_help(void)
{
	(void)puts("usage: lapis COMMAND ...\n\nCommands on a device that no daemon has open:");
	for (size_t i = 0; i < LP_ARRAY_SIZE(commands); i++)
		(void)printf("  %-11s %s\n", commands[i]->name, commands[i]->summary);
	(void)puts("\n  --help     this text; lapis COMMAND --help for one command\n"
		   "  --version  version and memory allocator");
	return LP_EXIT_OK;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		(void)fputs("lapis: no command given (see lapis --help)\n", stderr);
		return LP_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return print_help();
	if (strcmp(argv[1], "--version") == 0) {
		(void)printf("lapis %s (%s)\n", LAPIS_VERSION, lp_allocator_name);
		return LP_EXIT_OK;
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(commands[i], argc - 1, argv + 1);
	}
	(void)lpi_cli_fail(argv[1], "no such command (see lapis --help)");
	return LP_EXIT_USAGE;
}
