/* SPDX-License-Identifier: Apache-2.0 */
/* Options of lapisd: the one table for flags, configuration file, --help and `lapis config`.
 *
 * Threads: any.
 * Blocking: lp_config_read_file() only.
 * Memory: none.
 * Errors: -EINVAL with a sentence without a newline; of a file also the errors of opening
 *   and reading it. A refused text leaves the configuration as it was.
 *
 * A struct lp_config holds a value for each option. It is plain memory and may be copied. Texts
 * come from the defaults, then a file, then flags; each overrides the one before.
 *
 * A file is lines of NAME = VALUE, in any order, each option once (listen, allow-uids and
 * allow-gids as often as needed). A # at the beginning of a line or after a space begins a comment.
 */
#ifndef LP_DAEMON_CONFIG_CONFIG_H
#define LP_DAEMON_CONFIG_CONFIG_H

#include "daemon/config/why.h"

#define LP_CONFIG_TEXT_MAX 1024u           /* bytes of one value, and of all items of a list */
#define LP_CONFIG_FILE_MAX UINT32_C(65536) /* bytes of a file */

enum lp_option {
	LP_OPT_ALLOCATOR,
	LP_OPT_ALLOW_GIDS,
	LP_OPT_ALLOW_UIDS,
	LP_OPT_CONNECTIONS_MAX,
	LP_OPT_CRC,
	LP_OPT_CREDIT_BYTES,
	LP_OPT_CREDITS,
	LP_OPT_DB,
	LP_OPT_DEFERRED_STORE,
	LP_OPT_DEGRADED,
	LP_OPT_DEVICE,
	LP_OPT_DEVICE_TIMEOUT,
	LP_OPT_LISTEN,
	LP_OPT_LOG_FILE,
	LP_OPT_LOG_LEVEL,
	LP_OPT_MEMORY,
	LP_OPT_MEMORY_IDLE,
	LP_OPT_METRICS,
	LP_OPT_MOUNT,
	LP_OPT_MOUNT_OPTIONS,
	LP_OPT_OPENS_MAX,
	LP_OPT_PIDFILE,
	LP_OPT_REPLIES,
	LP_OPT_REQUEST_MEMORY,
	LP_OPT_REQUESTS_MAX,
	LP_OPT_SCRUB_INTERVAL,
	LP_OPT_SCRUB_RATE,
	LP_OPT_SEND_TIMEOUT,
	LP_OPT_SHARDS,
	LP_OPT_SLOW_MS,
	LP_OPT_SOCKET_BUFFER,
	LP_OPT_SOCKET_MODE,
	LP_OPT_SPIN_US,
	LP_OPT_STOP_TIMEOUT,
	LP_OPT_STORE,
	LP_OPT_TCP_NODELAY,
	LP_OPT_THREADS,
	LP_OPT_USER,
	LP_OPT_USER_SHARE,
	LP_OPT_WAL,
	LP_OPT_WORKERS,
	LP_OPT_WRITE_PATH,
	LP_OPT_CNT
};

enum lp_option_type {
	LP_OPTION_NUMBER, /* decimal, min to max */
	LP_OPTION_BYTES,  /* with units, min to max */
	LP_OPTION_OCTAL,  /* a file's mode, min to max */
	LP_OPTION_CHOICE, /* one of choices; the number is its index */
	LP_OPTION_TEXT,
	LP_OPTION_LIST /* of texts, each given by itself */
};

struct lp_option_info {
	const char *name; /* the flag is --name */
	enum lp_option_type type;
	const char *value;   /* placeholder of the value in --help: "BYTES" */
	const char *initial; /* default, as in a file; "": none */
	uint64_t min;
	uint64_t max;
	const char *choices[8]; /* up to the first NULL */
	bool is_live;           /* `config set` may change it */
	bool is_argument;       /* the operand DEVICE, without a flag */
	const char *help;       /* a line, no full stop */
};

extern const struct lp_option_info lp_options[LP_OPT_CNT];

struct lp_config_value {
	uint64_t number;
	char text[LP_CONFIG_TEXT_MAX]; /* TEXT; LIST: each item ends in a newline */
};

struct lp_config {
	struct lp_config_value values[LP_OPT_CNT];
	uint64_t given; /* bits by option: those that differ from lp_config_init() */
};

_Static_assert(LP_OPT_CNT <= 64, "a bit for each option");

void lp_config_init(struct lp_config *ret_config);
/* NULL: there is no such option. */
const struct lp_option_info *lp_config_find(const char *name, enum lp_option *ret_option);
/* Sets a value from text; of a list, adds an item. why holds LP_WHY_MAX bytes. */
int lp_config_set(struct lp_config *config, enum lp_option option, const char *text,
		  char *why) LP_MUST_CHECK;
/* Parses a file's content. name is the file's name for why: "FILE:LINE: ...". */
int lp_config_parse(struct lp_config *config, const char *name, const char *bytes, size_t len,
		    char *why) LP_MUST_CHECK;
int lp_config_read_file(struct lp_config *config, const char *path, char *why) LP_MUST_CHECK;
/* Flags and the operand; --config is read before any other flag counts. */
struct lp_config_call {
	bool help;
	bool version;
};
int lp_config_parse_flags(struct lp_config *config, int argc, char *const *argv,
			  struct lp_config_call *ret_call, char *why) LP_MUST_CHECK;

/* The value as lp_config_set() takes it; of a list, the items with commas. Returns as snprintf().
 */
int lp_config_format(const struct lp_config *config, enum lp_option option, char *buf, size_t len);
/* Walks the items of a list: *pos is 0 at first; false at the end. The item is cut to len. */
bool lp_config_item(const struct lp_config *config, enum lp_option option, size_t *pos, char *item,
		    size_t len);

static inline uint64_t lp_config_number(const struct lp_config *config, enum lp_option option)
{
	return config->values[option].number;
}

static inline bool lp_config_is_given(const struct lp_config *config, enum lp_option option)
{
	return (config->given >> option & 1) != 0;
}

/* NULL: none. */
static inline const char *lp_config_text(const struct lp_config *config, enum lp_option option)
{
	const char *text = config->values[option].text;
	return text[0] == '\0' ? NULL : text;
}

/* The part of --help that lists the options. */
int lp_config_format_help(char *buf, size_t len);

#endif
