/* SPDX-License-Identifier: Apache-2.0 */
/* The commands on devices that no daemon has open. They are in a program of their own,
 * lapis-offline, which `lapis` becomes when it is asked for one of them.
 *
 * Threads: the main thread only.
 */
#ifndef LP_CLI_OFFLINE_H
#define LP_CLI_OFFLINE_H

#define LPI_OFFLINE_PROGRAM "lapis_offline"

/* As in the help of each of them, which is not linked here. */
struct lpi_offline_command {
	const char *name;
	const char *summary;
};

extern const struct lpi_offline_command lpi_offline_commands[];
extern const unsigned lpi_offline_command_cnt;

/* Becomes the other program, which is found in ../libexec from where this one is. Returns the exit
 * status only when that fails. */
int lpi_offline_run(char **argv);

#endif
