/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/config.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/error.h"
#include "base/units.h"

#define MEMORY_MIN (UINT64_C(128) << 20)
#define NAME_MAX_  32u

const struct lp_option_info lp_options[LP_OPT_CNT] = {
	[LP_OPT_ALLOCATOR] = {.name = "allocator",
			      .type = LP_OPTION_CHOICE,
			      .value = "KIND",
			      .initial = "hybrid",
			      .choices = {"hybrid", "bitmap", "extent"},
			      .help = "allocator for free blocks"},
	[LP_OPT_ALLOW_GIDS] = {.name = "allow-gids",
			       .type = LP_OPTION_LIST,
			       .value = "GROUP",
			       .initial = "",
			       .help = "a group whose members may use the unix sockets"},
	[LP_OPT_ALLOW_UIDS] = {.name = "allow-uids",
			       .type = LP_OPTION_LIST,
			       .value = "USER",
			       .initial = "",
			       .help = "a user who may use the unix sockets"},
	[LP_OPT_CONNECTIONS_MAX] = {.name = "connections-max",
				    .type = LP_OPTION_NUMBER,
				    .value = "N",
				    .initial = "1024",
				    .min = 1,
				    .max = 16384,
				    .is_live = true,
				    .help = "most connections to one shard"},
	[LP_OPT_CRC] = {.name = "crc",
			.type = LP_OPTION_CHOICE,
			.value = "MODE",
			.initial = "off",
			.choices = {"off", "header", "all"},
			.is_live = true,
			.help = "least checksums that clients must use"},
	[LP_OPT_CREDITS] = {.name = "credits",
			    .type = LP_OPTION_NUMBER,
			    .value = "N",
			    .initial = "256",
			    .min = 1,
			    .max = 4096,
			    .is_live = true,
			    .help = "most requests under way on one connection"},
	[LP_OPT_CREDIT_BYTES] = {.name = "credit-bytes",
				 .type = LP_OPTION_BYTES,
				 .value = "BYTES",
				 .initial = "32M",
				 .min = UINT64_C(4) << 20,
				 .max = UINT64_C(1) << 30,
				 .is_live = true,
				 .help = "most data in the requests of one connection"},
	[LP_OPT_DB] = {.name = "db",
		       .type = LP_OPTION_TEXT,
		       .value = "DEV",
		       .initial = "",
		       .help = "where the store's db device is, if it has moved"},
	[LP_OPT_DEFERRED_STORE] = {.name = "deferred-store",
				   .type = LP_OPTION_CHOICE,
				   .value = "WHERE",
				   .initial = "log",
				   .choices = {"log", "kv"},
				   .is_live = true,
				   .help = "where deferred data waits for its place"},
	[LP_OPT_DEGRADED] =
		{.name = "degraded",
		 .type = LP_OPTION_CHOICE,
		 .value = "HOW",
		 .initial = "off",
		 .choices = {"off", "on"},
		 .help = "on: start even if some shards fail; serve the others read-only"},
	[LP_OPT_DEVICE] = {.name = "device",
			   .type = LP_OPTION_TEXT,
			   .value = "DEVICE",
			   .initial = "",
			   .is_argument = true,
			   .help = "a block device or image file with a store (lapis mkfs), or a "
				   "directory (--store file)"},
	[LP_OPT_DEVICE_TIMEOUT] = {.name = "device-timeout",
				   .type = LP_OPTION_NUMBER,
				   .value = "SECONDS",
				   .initial = "5",
				   .min = 1,
				   .max = 3600,
				   .is_live = true,
				   .help = "after how long a silent device or thread is reported"},
	[LP_OPT_LISTEN] = {.name = "listen",
			   .type = LP_OPTION_LIST,
			   .value = "ADDRESS",
			   .initial = "",
			   .help = "address to listen on: unix:PATH or tcp:HOST:PORT, local only"},
	[LP_OPT_LOG_FILE] = {.name = "log-file",
			     .type = LP_OPTION_TEXT,
			     .value = "FILE",
			     .initial = "",
			     .help = "where the log goes instead of standard error"},
	[LP_OPT_LOG_LEVEL] = {.name = "log-level",
			      .type = LP_OPTION_CHOICE,
			      .value = "LEVEL",
			      .initial = "info",
			      .choices = {"error", "warn", "notice", "info", "debug"},
			      .is_live = true,
			      .help = "how much is logged"},
	[LP_OPT_MEMORY] = {.name = "memory",
			   .type = LP_OPTION_BYTES,
			   .value = "BYTES",
			   .initial = "1G",
			   .min = MEMORY_MIN,
			   .max = UINT64_C(1) << 44,
			   .help = "for buffers, caches and the index; at least 64M for a shard"},
	[LP_OPT_MEMORY_IDLE] =
		{
			.name = "memory-idle",
			.type = LP_OPTION_NUMBER,
			.value = "SECONDS",
			.initial = "20",
			.min = 0,
			.max = 86400,
			.is_live = true,
			.help = "memory that has rested for so long is given back; 0: never"},
	[LP_OPT_METRICS] = {.name = "metrics",
			    .type = LP_OPTION_TEXT,
			    .value = "ADDRESS",
			    .initial = "",
			    .help = "tcp:HOST:PORT that serves /metrics for Prometheus"},
	[LP_OPT_MOUNT] = {.name = "mount",
			  .type = LP_OPTION_TEXT,
			  .value = "DIR",
			  .initial = "",
			  .help = "mount the namespace on this directory"},
	[LP_OPT_MOUNT_OPTIONS] = {.name = "mount-options",
				  .type = LP_OPTION_TEXT,
				  .value = "OPTION,...",
				  .initial = "",
				  .help = "mount options, as after mount -o"},
	[LP_OPT_OPENS_MAX] = {.name = "opens-max",
			      .type = LP_OPTION_NUMBER,
			      .value = "N",
			      .initial = "16384",
			      .min = 64,
			      .max = 1048576,
			      .help = "most open objects and uploads on one shard"},
	[LP_OPT_PIDFILE] = {.name = "pidfile",
			    .type = LP_OPTION_TEXT,
			    .value = "FILE",
			    .initial = "",
			    .help = "a file with the process id while the daemon runs"},
	[LP_OPT_REPLIES] = {.name = "replies",
			    .type = LP_OPTION_CHOICE,
			    .value = "HOW",
			    .initial = "together",
			    .choices = {"together", "singly"},
			    .help = "how replies are sent; singly is for measuring"},
	[LP_OPT_REQUEST_MEMORY] = {.name = "request-memory",
				   .type = LP_OPTION_CHOICE,
				   .value = "WHERE",
				   .initial = "pool",
				   .choices = {"pool", "malloc"},
				   .help = "memory of requests; malloc is for measuring"},
	[LP_OPT_REQUESTS_MAX] = {.name = "requests-max",
				 .type = LP_OPTION_NUMBER,
				 .value = "N",
				 .initial = "512",
				 .min = 16,
				 .max = 65536,
				 .is_live = true,
				 .help = "most requests under way on one shard"},
	[LP_OPT_SCRUB_INTERVAL] = {.name = "scrub-interval",
				   .type = LP_OPTION_NUMBER,
				   .value = "HOURS",
				   .initial = "168",
				   .min = 0,
				   .max = 87600,
				   .is_live = true,
				   .help = "time between two checks of all data; 0: never"},
	[LP_OPT_SCRUB_RATE] =
		{
			.name = "scrub-rate",
			.type = LP_OPTION_BYTES,
			.value = "BYTES",
			.initial = "32M",
			.min = 0,
			.max = UINT64_C(1) << 40,
			.is_live = true,
			.help = "bytes a second that a check of all data reads; 0: no limit"},
	[LP_OPT_SEND_TIMEOUT] = {.name = "send-timeout",
				 .type = LP_OPTION_NUMBER,
				 .value = "SECONDS",
				 .initial = "30",
				 .min = 1,
				 .max = 3600,
				 .is_live = true,
				 .help = "disconnect a client that reads nothing for so long"},
	[LP_OPT_SHARDS] = {.name = "shards",
			   .type = LP_OPTION_NUMBER,
			   .value = "N",
			   .initial = "0",
			   .min = 0,
			   .max = 64,
			   .help = "shards of --store mem or a new file store; 0: one per CPU"},
	[LP_OPT_SLOW_MS] = {.name = "slow-ms",
			    .type = LP_OPTION_NUMBER,
			    .value = "N",
			    .initial = "1000",
			    .min = 0,
			    .max = 3600000,
			    .is_live = true,
			    .help = "log requests that take this many milliseconds; 0: none"},
	[LP_OPT_SOCKET_BUFFER] = {.name = "socket-buffer",
				  .type = LP_OPTION_BYTES,
				  .value = "BYTES",
				  .initial = "0",
				  .min = 0,
				  .max = UINT64_C(64) << 20,
				  .help = "socket buffer, each direction; 0: automatic"},
	[LP_OPT_SOCKET_MODE] = {.name = "socket-mode",
				.type = LP_OPTION_OCTAL,
				.value = "MODE",
				.initial = "0660",
				.min = 0,
				.max = 0777,
				.help = "permissions of unix sockets"},
	[LP_OPT_SPIN_US] = {.name = "spin-us",
			    .type = LP_OPTION_NUMBER,
			    .value = "N",
			    .initial = "100",
			    .min = 0,
			    .max = 1000,
			    .help = "microseconds that a thread looks for work before it sleeps"},
	[LP_OPT_STOP_TIMEOUT] = {.name = "stop-timeout",
				 .type = LP_OPTION_NUMBER,
				 .value = "SECONDS",
				 .initial = "10",
				 .min = 0,
				 .max = 3600,
				 .is_live = true,
				 .help = "how long a stop waits for requests under way"},
	[LP_OPT_STORE] =
		{.name = "store",
		 .type = LP_OPTION_CHOICE,
		 .value = "KIND",
		 .initial = "block",
		 .choices = {"block", "mem", "file"},
		 .help = "kind of store; file: DEVICE is a directory; mem: lost at the end"},
	[LP_OPT_TCP_NODELAY] = {.name = "tcp-nodelay",
				.type = LP_OPTION_CHOICE,
				.value = "HOW",
				.initial = "on",
				.choices = {"on", "off"},
				.help = "on: send small replies at once; off is for measuring"},
	[LP_OPT_THREADS] = {.name = "threads",
			    .type = LP_OPTION_NUMBER,
			    .value = "N",
			    .initial = "0",
			    .min = 0,
			    .max = 64,
			    .help = "threads for the shards; 0: one each, at most one per CPU"},
	[LP_OPT_USER] = {.name = "user",
			 .type = LP_OPTION_TEXT,
			 .value = "USER",
			 .initial = "",
			 .help = "user to run as once devices and sockets are open"},
	[LP_OPT_USER_SHARE] =
		{
			.name = "user-share",
			.type = LP_OPTION_NUMBER,
			.value = "PERCENT",
			.initial = "50",
			.min = 1,
			.max = 100,
			.is_live = true,
			.help = "part of each limit for one user while others are connected"},
	[LP_OPT_WAL] = {.name = "wal",
			.type = LP_OPTION_TEXT,
			.value = "DEV",
			.initial = "",
			.help = "where the store's wal device is, if it has moved"},
	[LP_OPT_WORKERS] =
		{
			.name = "workers",
			.type = LP_OPTION_NUMBER,
			.value = "N",
			.initial = "8",
			.min = 1,
			.max = 64,
			.help = "helper threads for blocking work, above all reads of the index"},
	[LP_OPT_WRITE_PATH] = {.name = "write-path",
			       .type = LP_OPTION_CHOICE,
			       .value = "PATH",
			       .initial = "auto",
			       .choices = {"auto", "inline", "deferred", "direct"},
			       .is_live = true,
			       .help = "path of writes that do not ask for one"},
};

const struct lp_option_info *lp_config_find(const char *name, enum lp_option *ret_option)
{
	for (int i = 0; i < LP_OPT_CNT; i++) {
		if (strcmp(lp_options[i].name, name) != 0)
			continue;
		*ret_option = (enum lp_option)i;
		return &lp_options[i];
	}
	return NULL;
}

/* --- Values ----------------------------------------------------------------------------------- */

static int format_value(const struct lp_option_info *info, uint64_t number, char *buf, size_t len)
{
	unsigned long long value = number;
	switch (info->type) {
	case LP_OPTION_OCTAL:
		return snprintf(buf, len, "0%llo", value);
	case LP_OPTION_CHOICE:
		return snprintf(buf, len, "%s", info->choices[number]);
	case LP_OPTION_NUMBER:
	case LP_OPTION_BYTES:
	case LP_OPTION_TEXT:
	case LP_OPTION_LIST:
		break;
	}
	return snprintf(buf, len, "%llu", value);
}

static int set_choice(const struct lp_option_info *info, const char *text,
		      struct lp_config_value *value, char *why)
{
	char all[LP_WHY_MAX] = "";
	size_t used = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(info->choices) && info->choices[i] != NULL; i++) {
		if (strcmp(info->choices[i], text) == 0) {
			value->number = i;
			return 0;
		}
		used += (size_t)snprintf(all + used, sizeof(all) - used, "%s%s", i == 0 ? "" : ", ",
					 info->choices[i]);
	}
	return lpi_refuse(why, -EINVAL, "%s: %.100s is not one of %s", info->name, text, all);
}

static int parse_octal(const char *text, uint64_t *ret_number)
{
	if (text[0] == '\0' || strspn(text, "01234567") != strlen(text) || strlen(text) > 12)
		return -EINVAL;
	*ret_number = strtoull(text, NULL, 8);
	return 0;
}

static int set_number(const struct lp_option_info *info, const char *text,
		      struct lp_config_value *value, char *why)
{
	char low[32];
	char high[32];
	uint64_t number = 0;
	int r;
	if (info->type == LP_OPTION_BYTES)
		r = lp_parse_bytes(text, &number);
	else if (info->type == LP_OPTION_OCTAL)
		r = parse_octal(text, &number);
	else
		r = lp_parse_number(text, 0, UINT64_MAX, &number);
	if (r == -EINVAL)
		return lpi_refuse(why, -EINVAL, "%s: %.100s is not a %s", info->name, text,
				  info->type == LP_OPTION_BYTES ? "size (such as 4096, 64K or 1.5G)"
				  : info->type == LP_OPTION_OCTAL ? "mode (such as 0660)"
								  : "number");
	if (r == 0 && number >= info->min && number <= info->max) {
		value->number = number;
		return 0;
	}
	if (info->type == LP_OPTION_BYTES) {
		(void)lp_format_bytes(info->min, low, sizeof(low));
		(void)lp_format_bytes(info->max, high, sizeof(high));
	} else {
		(void)format_value(info, info->min, low, sizeof(low));
		(void)format_value(info, info->max, high, sizeof(high));
	}
	return lpi_refuse(why, -EINVAL, "%s: %.100s is out of range: %s to %s", info->name, text,
			  low, high);
}

static int set_text(const struct lp_option_info *info, const char *text,
		    struct lp_config_value *value, char *why)
{
	size_t len = strlen(text);
	bool is_list = info->type == LP_OPTION_LIST;
	size_t used = is_list ? strlen(value->text) : 0;
	for (size_t i = 0; i < len; i++) {
		if ((unsigned char)text[i] < 0x20 || text[i] == 0x7f)
			return lpi_refuse(why, -EINVAL, "%s: its value has a control character",
					  info->name);
	}
	if (len == 0)
		return lpi_refuse(why, -EINVAL, "%s: its value is empty", info->name);
	if (used + len + is_list >= sizeof(value->text))
		return lpi_refuse(why, -EINVAL, "%s: its value is longer than %u bytes%s",
				  info->name, LP_CONFIG_TEXT_MAX - 2, is_list ? " altogether" : "");
	memcpy(value->text + used, text, len);
	if (is_list)
		value->text[used + len++] = '\n';
	value->text[used + len] = '\0';
	return 0;
}

static int set_value(const struct lp_option_info *info, const char *text,
		     struct lp_config_value *value, char *why)
{
	switch (info->type) {
	case LP_OPTION_NUMBER:
	case LP_OPTION_BYTES:
	case LP_OPTION_OCTAL:
		return set_number(info, text, value, why);
	case LP_OPTION_CHOICE:
		return set_choice(info, text, value, why);
	case LP_OPTION_TEXT:
	case LP_OPTION_LIST:
		break;
	}
	return set_text(info, text, value, why);
}

int lp_config_set(struct lp_config *config, enum lp_option option, const char *text, char *why)
{
	int err = set_value(&lp_options[option], text, &config->values[option], why);
	if (err == 0)
		config->given |= UINT64_C(1) << option;
	return err;
}

void lp_config_init(struct lp_config *ret_config)
{
	char why[LP_WHY_MAX];
	memset(ret_config, 0, sizeof(*ret_config));
	for (int i = 0; i < LP_OPT_CNT; i++) {
		if (lp_options[i].initial[0] == '\0')
			continue;
		int err = lp_config_set(ret_config, (enum lp_option)i, lp_options[i].initial, why);
		LP_ASSERT(err == 0);
	}
	ret_config->given = 0;
}

bool lp_config_item(const struct lp_config *config, enum lp_option option, size_t *pos, char *item,
		    size_t len)
{
	const char *begin = config->values[option].text + *pos;
	if (begin[0] == '\0')
		return false;
	size_t item_len = strcspn(begin, "\n");
	(void)snprintf(item, len, "%.*s", (int)item_len, begin);
	*pos += item_len + 1;
	return true;
}

int lp_config_format(const struct lp_config *config, enum lp_option option, char *buf, size_t len)
{
	const struct lp_option_info *info = &lp_options[option];
	const struct lp_config_value *value = &config->values[option];
	if (info->type == LP_OPTION_TEXT)
		return snprintf(buf, len, "%s", value->text);
	if (info->type != LP_OPTION_LIST)
		return format_value(info, value->number, buf, len);
	int used = snprintf(buf, len, "%s", value->text);
	for (char *at = buf; len > 0 && *at != '\0'; at++) {
		if (*at == '\n')
			*at = at[1] == '\0' ? '\0' : ',';
	}
	return used > 0 ? used - 1 : used;
}

/* --- Files ------------------------------------------------------------------------------------ */

/* A file's line, cut at '=' into two halves without blanks at their ends. */
struct line {
	char name[NAME_MAX_];
	char value[LP_CONFIG_TEXT_MAX];
};

static bool is_blank(char c)
{
	return c == ' ' || c == '\t' || c == '\r';
}

/* [*begin, *end) without blanks at both ends. */
static void trim(const char **begin, const char **end)
{
	while (*begin < *end && is_blank(**begin))
		(*begin)++;
	while (*end > *begin && is_blank((*end)[-1]))
		(*end)--;
}

static const char *find_comment(const char *begin, const char *end)
{
	for (const char *at = begin; at < end; at++) {
		if (*at == '#' && (at == begin || is_blank(at[-1])))
			return at;
	}
	return end;
}

/* 1: there is a setting; 0: there is nothing. */
static int split(const char *begin, const char *end, struct line *ret_line, char *why)
{
	end = find_comment(begin, end);
	trim(&begin, &end);
	if (begin == end)
		return 0;
	if (memchr(begin, '\0', (size_t)(end - begin)) != NULL)
		return lpi_refuse(why, -EINVAL, "the line has a NUL character");
	const char *equals = memchr(begin, '=', (size_t)(end - begin));
	if (equals == NULL)
		return lpi_refuse(why, -EINVAL, "%.*s is not of the form NAME = VALUE",
				  (int)LP_MIN(end - begin, 100), begin);
	const char *name_end = equals;
	const char *value = equals + 1;
	trim(&begin, &name_end);
	trim(&value, &end);
	if ((size_t)(name_end - begin) >= sizeof(ret_line->name))
		return lpi_refuse(why, -EINVAL, "%.*s...: there is no such option",
				  (int)sizeof(ret_line->name), begin);
	if ((size_t)(end - value) >= sizeof(ret_line->value))
		return lpi_refuse(why, -EINVAL, "its value is longer than %u bytes",
				  LP_CONFIG_TEXT_MAX - 1);
	(void)snprintf(ret_line->name, sizeof(ret_line->name), "%.*s", (int)(name_end - begin),
		       begin);
	(void)snprintf(ret_line->value, sizeof(ret_line->value), "%.*s", (int)(end - value), value);
	return 1;
}

static int take_line(struct lp_config *config, const struct line *line, bool *seen, char *why)
{
	enum lp_option option;
	const struct lp_option_info *info = lp_config_find(line->name, &option);
	if (info == NULL)
		return lpi_refuse(why, -EINVAL, "%s: there is no such option", line->name);
	if (seen[option] && info->type != LP_OPTION_LIST)
		return lpi_refuse(why, -EINVAL, "%s: given twice", line->name);
	seen[option] = true;
	return lp_config_set(config, option, line->value, why);
}

int lp_config_parse(struct lp_config *config, const char *name, const char *bytes, size_t len,
		    char *why)
{
	struct lp_config result = *config;
	bool seen[LP_OPT_CNT] = {false};
	const char *end = bytes + len;
	unsigned line_nr = 0;
	while (bytes < end) {
		struct line line;
		char reason[LP_WHY_MAX];
		const char *newline = memchr(bytes, '\n', (size_t)(end - bytes));
		const char *line_end = newline != NULL ? newline : end;
		line_nr++;
		int r = split(bytes, line_end, &line, reason);
		if (r > 0)
			r = take_line(&result, &line, seen, reason);
		if (r < 0)
			return lpi_refuse(why, r, "%.200s:%u: %.250s", name, line_nr, reason);
		bytes = newline != NULL ? newline + 1 : end;
	}
	*config = result;
	return 0;
}

/* Reads at most len bytes. */
static ssize_t read_all(const char *path, char *buf, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	size_t used = 0;
	ssize_t r = 1;
	while (r > 0 && used < len) {
		r = read(fd, buf + used, len - used);
		if (r > 0)
			used += (size_t)r;
	}
	int err = r < 0 ? -errno : 0;
	(void)close(fd); /* it was only read */
	return err < 0 ? err : (ssize_t)used;
}

int lp_config_read_file(struct lp_config *config, const char *path, char *why)
{
	char *bytes = malloc(LP_CONFIG_FILE_MAX + 1);
	ssize_t len = bytes == NULL ? -ENOMEM : read_all(path, bytes, LP_CONFIG_FILE_MAX + 1);
	int err;
	if (len < 0)
		err = lpi_refuse(why, (int)len, "%.300s: %s", path, lp_strerror((int)len));
	else if (len > (ssize_t)LP_CONFIG_FILE_MAX)
		err = lpi_refuse(why, -EFBIG, "%.300s: longer than %u bytes", path,
				 LP_CONFIG_FILE_MAX);
	else
		err = lp_config_parse(config, path, bytes, (size_t)len, why);
	free(bytes);
	return err;
}

/* --- Flags ------------------------------------------------------------------------------------ */

/* A flag and its value, which is behind '=' in the same word, or in the next word. */
struct flag {
	char name[NAME_MAX_];
	const char *value; /* NULL: there is none */
};

static int next_flag(int argc, char *const *argv, int *at, struct flag *ret_flag, char *why)
{
	const char *word = argv[*at] + 2;
	size_t name_len = strcspn(word, "=");
	if (name_len >= sizeof(ret_flag->name))
		return lpi_refuse(why, -EINVAL, "%.100s: unknown option (see lapisd --help)",
				  argv[*at]);
	(void)snprintf(ret_flag->name, sizeof(ret_flag->name), "%.*s", (int)name_len, word);
	if (word[name_len] == '=')
		ret_flag->value = word + name_len + 1;
	else
		ret_flag->value = *at + 1 < argc ? argv[++*at] : NULL;
	return 0;
}

static int take_flag(struct lp_config *config, const struct flag *flag, bool files, char *why)
{
	enum lp_option option = LP_OPT_CNT;
	char reason[LP_WHY_MAX];
	bool is_config = strcmp(flag->name, "config") == 0;
	const struct lp_option_info *info = lp_config_find(flag->name, &option);
	if (!is_config && (info == NULL || info->is_argument))
		return lpi_refuse(why, -EINVAL, "--%s: unknown option (see lapisd --help)",
				  flag->name);
	if (flag->value == NULL)
		return lpi_refuse(why, -EINVAL, "--%s needs a value (see lapisd --help)",
				  flag->name);
	if (is_config != files)
		return 0;
	if (is_config)
		return lp_config_read_file(config, flag->value, why);
	int err = lp_config_set(config, option, flag->value, reason);
	return err < 0 ? lpi_refuse(why, err, "--%s", reason) : 0;
}

static int take_argument(struct lp_config *config, const char *text, unsigned *cnt, char *why)
{
	if (++*cnt > 1)
		return lpi_refuse(why, -EINVAL,
				  "%.100s: only one DEVICE is allowed (see lapisd --help)", text);
	return lp_config_set(config, LP_OPT_DEVICE, text, why);
}

static bool is_call(const char *word, struct lp_config_call *call)
{
	bool is_help = strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
	bool is_version = strcmp(word, "--version") == 0;
	call->help |= is_help;
	call->version |= is_version;
	return is_help || is_version;
}

/* Called once for the files, then once for all other words. */
static int parse_words(struct lp_config *config, int argc, char *const *argv, bool files,
		       struct lp_config_call *call, char *why)
{
	unsigned argument_cnt = 0;
	for (int i = 1; i < argc; i++) {
		struct flag flag = {.value = NULL};
		int err = 0;
		if (is_call(argv[i], call))
			continue;
		if (strncmp(argv[i], "--", 2) == 0 && argv[i][2] != '\0') {
			err = next_flag(argc, argv, &i, &flag, why);
			if (err == 0)
				err = take_flag(config, &flag, files, why);
		} else if (argv[i][0] == '-') {
			err = lpi_refuse(why, -EINVAL, "%.100s: unknown option (see lapisd --help)",
					 argv[i]);
		} else if (!files) {
			err = take_argument(config, argv[i], &argument_cnt, why);
		}
		if (err < 0)
			return err;
	}
	return 0;
}

int lp_config_parse_flags(struct lp_config *config, int argc, char *const *argv,
			  struct lp_config_call *ret_call, char *why)
{
	struct lp_config result = *config;
	struct lp_config_call call = {.help = false};
	int err = parse_words(&result, argc, argv, true, &call, why);
	if (err == 0)
		err = parse_words(&result, argc, argv, false, &call, why);
	if (err < 0)
		return err;
	*config = result;
	*ret_call = call;
	return 0;
}

int lp_config_format_help(char *buf, size_t len)
{
	size_t used = 0;
	for (int i = 0; i < LP_OPT_CNT && used < len; i++) {
		const struct lp_option_info *info = &lp_options[i];
		char flag[64];
		if (info->is_argument)
			continue;
		(void)snprintf(flag, sizeof(flag), "--%s %s", info->name, info->value);
		used += (size_t)snprintf(buf + used, len - used, "  %-25s %s", flag, info->help);
		if (used < len && info->type == LP_OPTION_CHOICE)
			used += (size_t)snprintf(buf + used, len - used, ":");
		for (size_t k = 0; used < len && info->type == LP_OPTION_CHOICE &&
				   k < LP_ARRAY_SIZE(info->choices) && info->choices[k] != NULL;
		     k++)
			used += (size_t)snprintf(buf + used, len - used, " %s", info->choices[k]);
		if (used < len && info->initial[0] != '\0')
			used += (size_t)snprintf(buf + used, len - used, " [%s]", info->initial);
		if (used < len)
			used += (size_t)snprintf(buf + used, len - used, "\n");
	}
	return (int)used;
}
