/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands share that talk to a daemon: the handle, errors, keys, and how names are shown.
 *
 * Threads: the main thread only. Blocking: what asks the daemon.
 */
#ifndef LP_CLI_REMOTE_REMOTE_H
#define LP_CLI_REMOTE_REMOTE_H

#include "cli/cli.h"
#include "client/lapis.h"

extern const struct lpi_cli_command lpi_remote_mb;
extern const struct lpi_cli_command lpi_remote_rb;
extern const struct lpi_cli_command lpi_remote_bucket;
extern const struct lpi_cli_command lpi_remote_ls;
extern const struct lpi_cli_command lpi_remote_put;
extern const struct lpi_cli_command lpi_remote_get;
extern const struct lpi_cli_command lpi_remote_cat;
extern const struct lpi_cli_command lpi_remote_rm;
extern const struct lpi_cli_command lpi_remote_cp;
extern const struct lpi_cli_command lpi_remote_mv;
extern const struct lpi_cli_command lpi_remote_stat;
extern const struct lpi_cli_command lpi_remote_chattr;
extern const struct lpi_cli_command lpi_remote_chown;
extern const struct lpi_cli_command lpi_remote_chmod;
extern const struct lpi_cli_command lpi_remote_du;
extern const struct lpi_cli_command lpi_remote_xattr;
extern const struct lpi_cli_command lpi_remote_omap;
extern const struct lpi_cli_command lpi_remote_sync;
extern const struct lpi_cli_command lpi_remote_status;
extern const struct lpi_cli_command lpi_remote_stats;
extern const struct lpi_cli_command lpi_remote_top;
extern const struct lpi_cli_command lpi_remote_slow;
extern const struct lpi_cli_command lpi_remote_stuck;
extern const struct lpi_cli_command lpi_remote_explain;
extern const struct lpi_cli_command lpi_remote_config;
extern const struct lpi_cli_command lpi_remote_alloc;
extern const struct lpi_cli_command lpi_remote_heap;
extern const struct lpi_cli_command lpi_remote_scrub;
extern const struct lpi_cli_command lpi_remote_check;
extern const struct lpi_cli_command lpi_remote_bench;

#define LPI_KEY_MAX       4096 /* bytes of a key */
#define LPI_KEY_NAMES_MAX 256u

/* --- The handle ------------------------------------------------------------------------------- */

/* Where the daemon is, instead of $LAPIS_ADDRESS; NULL: there. Before the first lpi_remote(). */
void lpi_remote_set_address(const char *address);
/* For who opens handles of his own. NULL: the default. */
const char *lpi_remote_address(void);
/* The handle, opened when it is first needed; NULL: the error has been printed. */
struct lapis *lpi_remote(void);
/* It was not opened because the address is none: a wrong call. */
bool lpi_remote_is_no_address(void);
void lpi_remote_close(void);

/* Prints why the last function of liblapis failed and what to do about it: LP_EXIT_FAILED. */
int lpi_remote_fail(const char *key, int err);
/* The same for an error that came with a text of its own. */
int lpi_remote_fail_text(const char *key, int err, const char *text);

/* The same for a destination that is a directory, and was not given as one. */
int lpi_remote_fail_into(const char *key);

/* --- Keys ------------------------------------------------------------------------------------- */

/* 0, or LP_EXIT_USAGE: this cannot be a key, and that has been printed. */
int lpi_key_check(const char *key);
/* The same of where something goes, which may be DIR/. */
int lpi_key_check_target(const char *key);
/* The same for all. */
int lpi_keys_check(char **keys, int cnt);
/* The same of what goes to a directory, dir/, each under its last name: two of one name would
 * become one. */
int lpi_names_check_into(const struct lpi_cli_command *self, char **names, int cnt,
			 const char *dir);
/* SRC ... DST: `one` for each SRC, to DST, or to its last name in DST/; an exit status. */
int lpi_keys_to_one(const struct lpi_cli_command *self, const struct lpi_args *args,
		    int (*one)(const char *src, const char *dst, const struct lpi_args *args));
/* DIR/NAME, where dir may end in '/', or be empty. -ENAMETOOLONG: printed. */
int lpi_key_join(const char *dir, const char *name, char *ret_key);
/* Some name in this directory could be none of a key: it would be too long, or one too many. */
bool lpi_key_is_deep(const char *dir);
/* It is a path here, whatever there is: /..., ./..., ../..., . or .. itself. No key is so. */
bool lpi_name_is_local(const char *name);
/* The key of lapis:KEY, which lapis://KEY is, too; NULL: it does not begin so. */
const char *lpi_name_in_store(const char *name);
/* What follows the last '/'. */
const char *lpi_key_name(const char *key);
bool lpi_key_is_dir_form(const char *key); /* ends in '/' */
/* It is dir, or something below it. */
bool lpi_key_is_inside(const char *key, const char *dir);

/* Prints what is damaged, by name; LP_EXIT_FAILED if there is anything. */
int lpi_damaged_list(bool is_json);
/* lapis cp of one key to another one. */
int lpi_copy_key(const char *src, const char *dst, const struct lpi_args *args);

/* --- Output ----------------------------------------------------------------------------------- */

/* The escape sequence of a colour ("1;34"), or nothing where colours are not wanted. */
const char *lpi_color(FILE *to, const char *code);

/* A name and what ends its line: escaped on a terminal; else as it is. */
void lpi_print_name(FILE *to, const char *name, char end);
/* "2026-11-22 00:49:12", local time. */
void lpi_format_time(int64_t ns, char *buf, size_t len);
/* "-rw-r--r--". */
void lpi_format_mode(const struct lapis_attrs *attrs, char *buf);
const char *lpi_type_name(uint32_t type);
/* "key": ..., and all else that is known, in braces. */
void lpi_print_attrs_json(FILE *to, const char *key, const struct lapis_attrs *attrs);

#endif
