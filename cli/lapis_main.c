/* SPDX-License-Identifier: Apache-2.0 */
/* The command `lapis`: finds the subcommand in the table and runs it. */
#include <string.h>

#include "base/error.h"
#include "base/stdfds.h"
#include "cli/cli.h"
#include "cli/offline.h"
#include "cli/remote/remote.h"

extern const char lp_allocator_name[];

static const struct lpi_cli_command *const commands[] = {
	&lpi_remote_mb,     &lpi_remote_rb,    &lpi_remote_bucket, &lpi_remote_ls,
	&lpi_remote_put,    &lpi_remote_get,   &lpi_remote_cat,    &lpi_remote_rm,
	&lpi_remote_cp,     &lpi_remote_mv,    &lpi_remote_stat,   &lpi_remote_chattr,
	&lpi_remote_chown,  &lpi_remote_chmod, &lpi_remote_du,     &lpi_remote_xattr,
	&lpi_remote_omap,   &lpi_remote_sync,  &lpi_remote_status, &lpi_remote_stats,
	&lpi_remote_top,    &lpi_remote_slow,  &lpi_remote_stuck,  &lpi_remote_explain,
	&lpi_remote_config, &lpi_remote_alloc, &lpi_remote_heap,   &lpi_remote_scrub,
	&lpi_remote_check,  &lpi_remote_bench};

static const struct lpi_cli_command *const local_commands[] = {&lpi_cli_umount};

static int print_help(void)
{
	(void)puts("usage: lapis [-s ADDRESS] COMMAND ...\n\nCommands to a daemon:");
	for (size_t i = 0; i < LP_ARRAY_SIZE(commands); i++)
		(void)printf("  %-11s %s\n", commands[i]->name, commands[i]->summary);
	(void)puts("\nCommands on a device that no daemon has open:");
	for (size_t i = 0; i < lpi_offline_command_cnt; i++)
		(void)printf("  %-11s %s\n", lpi_offline_commands[i].name,
			     lpi_offline_commands[i].summary);
	(void)puts("\nCommands on this machine:");
	for (size_t i = 0; i < LP_ARRAY_SIZE(local_commands); i++)
		(void)printf("  %-11s %s\n", local_commands[i]->name, local_commands[i]->summary);
	(void)puts("\n  -s ADDRESS  where the daemon is: unix:PATH or tcp:HOST:PORT;\n"
		   "              default: $LAPIS_ADDRESS, then unix:/run/lapis/lapis.sock\n"
		   "  --help      this text; lapis COMMAND --help for one command\n"
		   "  --version   version and memory allocator");
	return LP_EXIT_OK;
}

static int run(int argc, char **argv)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(commands); i++) {
		if (strcmp(argv[1], commands[i]->name) == 0)
			return commands[i]->run(commands[i], argc - 1, argv + 1);
	}
	for (size_t i = 0; i < LP_ARRAY_SIZE(local_commands); i++) {
		if (strcmp(argv[1], local_commands[i]->name) == 0)
			return local_commands[i]->run(local_commands[i], argc - 1, argv + 1);
	}
	for (size_t i = 0; i < lpi_offline_command_cnt; i++) {
		if (strcmp(argv[1], lpi_offline_commands[i].name) == 0)
			return lpi_offline_run(argv);
	}
	(void)lpi_cli_fail(argv[1], "no such command (see lapis --help)");
	return LP_EXIT_USAGE;
}

/* -s ADDRESS, -sADDRESS: how many arguments it takes; -1: it is none, or missing. */
static int take_address(int argc, char **argv)
{
	if (argc < 2 || strncmp(argv[1], "-s", 2) != 0)
		return 0;
	int taken = argv[1][2] != '\0' ? 1 : 2;
	const char *address = taken == 1 ? argv[1] + 2 : argv[2];
	if (address == NULL) {
		(void)lpi_cli_fail("-s", "needs an ADDRESS (unix:PATH or tcp:HOST:PORT)");
		return -1;
	}
	if (strncmp(address, "unix:", 5) != 0 && strncmp(address, "tcp:", 4) != 0) {
		(void)lpi_cli_fail("-s", "%s is not an address (unix:PATH or tcp:HOST:PORT)",
				   address);
		return -1;
	}
	lpi_remote_set_address(address);
	return taken;
}

/* The whole call, but for what it has printed. */
static int act(int argc, char **argv)
{
	int taken = take_address(argc, argv);
	if (taken < 0)
		return LP_EXIT_USAGE;
	argv += taken;
	argc -= taken;
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
	int status = run(argc, argv);
	lpi_remote_close();
	return lpi_remote_is_no_address() ? LP_EXIT_USAGE : status;
}

int main(int argc, char **argv)
{
	int err = lp_stdfds_hold();
	if (err < 0)
		return lpi_cli_fail("/dev/null", "%s", lp_strerror(err));
	return lpi_end_output(act(argc, argv));
}
