/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"

static struct lapis *handle;
static const char *given_address; /* by -s */
static bool is_no_address;

/* --- The handle ------------------------------------------------------------------------------- */

void lpi_remote_set_address(const char *address)
{
	given_address = address;
}

const char *lpi_remote_address(void)
{
	return given_address;
}

struct lapis *lpi_remote(void)
{
	const struct lapis_options options = {.size = sizeof(options), .address = given_address};
	if (handle != NULL)
		return handle;
	int err = lapis_open(&options, &handle);
	if (err < 0) {
		is_no_address = err == -EINVAL || err == -ENAMETOOLONG;
		(void)lpi_cli_fail(given_address != NULL ? "-s" : "address", "%s",
				   lapis_error_text());
		return NULL;
	}
	return handle;
}

bool lpi_remote_is_no_address(void)
{
	return is_no_address;
}

void lpi_remote_close(void)
{
	lapis_close(handle);
	handle = NULL;
}

/* --- Errors ----------------------------------------------------------------------------------- */

/* What can be done about it, by people who have only the command line. */
static const struct {
	int err;
	const char *hint;
} hints[] = {
	{-ENOENT, "lapis ls lists what exists"},
	{-EEXIST, "remove it first, or choose another name"},
	{-EISDIR, "it is a directory: name objects in it, or use -r if the command has it"},
	{-ENOTDIR, "a part of the key is a file: choose another key"},
	{-ENOTEMPTY, "lapis rm -r removes it with everything in it"},
	{-ENOSPC, "remove something, or enlarge the store with lapis grow"},
	{-EROFS, "lapis status and the daemon's log say why it is read-only"},
	{-EACCES, "ask the administrator of lapisd, or become another user"},
	{-EPERM, "ask the administrator of lapisd, or become another user"},
	{-EBADMSG, "the data is damaged: lapis scrub --list names damaged objects"},
	{-EUCLEAN, "the store is damaged: lapis fsck says where"},
	{-EAGAIN, "try again"},
	{-ETIMEDOUT, "try again; lapis status says how the daemon is"},
	{-ENAMETOOLONG, "a name has at most 255 bytes, a key 4096, and 256 names"},
	{-ENOSYS, "this daemon is too old for the request"},
	{-ECONNREFUSED, "is lapisd running there? -s ADDRESS or $LAPIS_ADDRESS says where it is"},
	{-ENODATA, "ls lists what exists"},
};

static const char *hint_of(int err, const char *text)
{
	/* Who says what to do says it in parentheses, at the end. */
	size_t len = strlen(text);
	if (len > 0 && text[len - 1] == ')')
		return NULL;
	for (size_t i = 0; i < LP_ARRAY_SIZE(hints); i++) {
		if (hints[i].err == err)
			return hints[i].hint;
	}
	return NULL;
}

/* No connection was ever made: the text begins with the address then. */
static bool is_unreached(const char *text)
{
	return strncmp(text, "unix:", 5) == 0 || strncmp(text, "tcp:", 4) == 0;
}

int lpi_remote_fail_text(const char *key, int err, const char *text)
{
	bool is_reached = !is_unreached(text);
	const char *hint = hint_of(is_reached ? err : -ECONNREFUSED, text);
	if (text[0] == '\0')
		text = lp_strerror(err);
	if (hint != NULL)
		return lpi_cli_fail(key, "%s (%s)", text, hint);
	return lpi_cli_fail(key, "%s", text);
}

int lpi_remote_fail(const char *key, int err)
{
	return lpi_remote_fail_text(key, err, lapis_error_text());
}

int lpi_remote_fail_into(const char *key)
{
	return lpi_cli_fail(key, "is a directory (write %s/ to put something into it)", key);
}

/* --- Keys ------------------------------------------------------------------------------------- */

static const char *wrong_name(const char *name, size_t len)
{
	if (len == 0)
		return "it has an empty name: no / at either end, and no // inside";
	if ((len == 1 && name[0] == '.') || (len == 2 && memcmp(name, "..", 2) == 0))
		return "it has a name . or ..: a key is a path from the root of the store";
	if (len > 255)
		return "it has a name of more than 255 bytes";
	return NULL;
}

int lpi_key_check(const char *key)
{
	const char *wrong = NULL;
	const char *at = key;
	uint32_t names = 0;
	if (key[0] == '\0')
		wrong = "it is empty: a key is BUCKET/NAME";
	else if (strlen(key) > LPI_KEY_MAX)
		wrong = "longer than 4096 bytes";
	while (wrong == NULL) {
		size_t len = strcspn(at, "/");
		wrong = ++names > LPI_KEY_NAMES_MAX ? "more than 256 names in it"
						    : wrong_name(at, len);
		if (at[len] == '\0')
			break;
		at += len + 1;
	}
	if (wrong == NULL)
		return 0;
	(void)lpi_cli_fail(key[0] == '\0' ? "key" : key, "is not a key: %s (a key looks like %s)",
			   wrong, "photos/2026/a.jpg");
	return LP_EXIT_USAGE;
}

int lpi_keys_check(char **keys, int cnt)
{
	int status = 0;
	for (int i = 0; i < cnt && status == 0; i++)
		status = lpi_key_check(keys[i]);
	return status;
}

int lpi_key_check_target(const char *key)
{
	char dir[LPI_KEY_MAX + 2];
	size_t len = strlen(key);
	if (!lpi_key_is_dir_form(key) || len >= sizeof(dir))
		return lpi_key_check(key);
	memcpy(dir, key, len - 1);
	dir[len - 1] = '\0';
	return lpi_key_check(dir);
}

static int by_last_name(const void *a, const void *b)
{
	return strcmp(lpi_key_name(*(char *const *)a), lpi_key_name(*(char *const *)b));
}

int lpi_names_check_into(const struct lpi_cli_command *self, char **names, int cnt, const char *dir)
{
	int status = 0;
	if (cnt < 2)
		return 0;
	char **sorted = calloc((size_t)cnt, sizeof(*sorted));
	if (sorted == NULL)
		return lpi_cli_fail(dir, "out of memory");
	memcpy(sorted, names, (size_t)cnt * sizeof(*sorted));
	qsort(sorted, (size_t)cnt, sizeof(*sorted), by_last_name);
	for (int i = 1; i < cnt && status == 0; i++) {
		if (by_last_name(&sorted[i - 1], &sorted[i]) == 0)
			status = lpi_cli_usage(self, "%s and %s would both become %s%s",
					       sorted[i - 1], sorted[i], dir,
					       lpi_key_name(sorted[i]));
	}
	free(sorted);
	return status;
}

int lpi_keys_to_one(const struct lpi_cli_command *self, const struct lpi_args *args,
		    int (*one)(const char *src, const char *dst, const struct lpi_args *args))
{
	char key[LPI_KEY_MAX + 1];
	int cnt = args->cnt - 1;
	const char *dst = args->names[cnt];
	bool into_dir = lpi_key_is_dir_form(dst);
	if (cnt > 1 && !into_dir)
		return lpi_cli_usage(
			self, "several keys need a DST that ends in /, and %s does not", dst);
	int status = lpi_keys_check(args->names, cnt);
	if (status == 0)
		status = lpi_key_check_target(dst);
	if (status == 0 && into_dir)
		status = lpi_names_check_into(self, args->names, cnt, dst);
	if (status != 0)
		return status;
	for (int i = 0; i < cnt; i++) {
		const char *src = args->names[i];
		bool has_key = !into_dir || lpi_key_join(dst, lpi_key_name(src), key) == 0;
		if (!has_key || one(src, into_dir ? key : dst, args) != LP_EXIT_OK)
			status = LP_EXIT_FAILED;
	}
	return status;
}

static uint32_t name_cnt(const char *key)
{
	uint32_t cnt = 1;
	for (; *key != '\0'; key++)
		cnt += *key == '/' ? 1 : 0;
	return cnt;
}

bool lpi_key_is_deep(const char *dir)
{
	return strlen(dir) + 1 + 255 > LPI_KEY_MAX || name_cnt(dir) >= LPI_KEY_NAMES_MAX;
}

int lpi_key_join(const char *dir, const char *name, char *ret_key)
{
	size_t len = strlen(dir);
	const char *slash = len == 0 || dir[len - 1] == '/' ? "" : "/";
	int n = snprintf(ret_key, LPI_KEY_MAX + 1, "%s%s%s", dir, slash, name);
	bool is_long = n > LPI_KEY_MAX;
	if (!is_long && name_cnt(ret_key) <= LPI_KEY_NAMES_MAX)
		return 0;
	(void)lpi_cli_fail(name, "its key in %s %s", dir,
			   is_long ? "is longer than 4096 bytes" : "has more than 256 names");
	return -ENAMETOOLONG;
}

bool lpi_name_is_local(const char *name)
{
	return name[0] == '/' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0 ||
	       strncmp(name, "./", 2) == 0 || strncmp(name, "../", 3) == 0;
}

const char *lpi_name_in_store(const char *name)
{
	if (strncmp(name, "lapis:", 6) != 0)
		return NULL;
	return strncmp(name + 6, "//", 2) == 0 ? name + 8 : name + 6;
}

const char *lpi_key_name(const char *key)
{
	const char *slash = strrchr(key, '/');
	return slash != NULL ? slash + 1 : key;
}

bool lpi_key_is_dir_form(const char *key)
{
	size_t len = strlen(key);
	return len > 0 && key[len - 1] == '/';
}

bool lpi_key_is_inside(const char *key, const char *dir)
{
	size_t len = strlen(dir);
	return strncmp(key, dir, len) == 0 && (key[len] == '/' || key[len] == '\0');
}

/* --- Output ----------------------------------------------------------------------------------- */

const char *lpi_color(FILE *to, const char *code)
{
	static char text[4][16];
	static unsigned turn;
	/* One thread. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	const char *no_color = getenv("NO_COLOR");
	if (!lpi_is_terminal(to) || (no_color != NULL && no_color[0] != '\0'))
		return "";
	turn = (turn + 1) % LP_ARRAY_SIZE(text);
	(void)snprintf(text[turn], sizeof(text[turn]), "\033[%sm", code);
	return text[turn];
}

void lpi_print_name(FILE *to, const char *name, char end)
{
	if (end != '\0' && lpi_is_terminal(to))
		lpi_cli_print_escaped(to, name);
	else
		(void)fputs(name, to);
	(void)fputc(end, to);
}

void lpi_format_time(int64_t ns, char *buf, size_t len)
{
	time_t seconds = (time_t)(ns / INT64_C(1000000000));
	struct tm tm;
	if (ns % INT64_C(1000000000) < 0)
		seconds--;
	if (localtime_r(&seconds, &tm) == NULL || strftime(buf, len, "%F %T", &tm) == 0)
		(void)snprintf(buf, len, "%lld", (long long)seconds);
}

static const struct {
	const char *name;
	char letter;
} types[] = {{"prefix", 'd'},           {"file", '-'},         {"directory", 'd'},
	     {"symlink", 'l'},          {"fifo", 'p'},         {"socket", 's'},
	     {"character device", 'c'}, {"block device", 'b'}, {"unknown", '?'}};

const char *lpi_type_name(uint32_t type)
{
	return types[LP_MIN(type, (uint32_t)LP_ARRAY_SIZE(types) - 1)].name;
}

void lpi_format_mode(const struct lapis_attrs *attrs, char *buf)
{
	static const char letters[] = "rwxrwxrwx";
	uint32_t type = LP_MIN((uint32_t)attrs->type, (uint32_t)LP_ARRAY_SIZE(types) - 1);
	buf[0] = types[type].letter;
	for (int i = 0; i < 9; i++)
		buf[1 + i] = '-';
	for (int i = 0; i < 9; i++) {
		if ((attrs->mode & (0400 >> i)) != 0)
			buf[1 + i] = letters[i];
	}
	if ((attrs->mode & S_ISUID) != 0)
		buf[3] = buf[3] == 'x' ? 's' : 'S';
	if ((attrs->mode & S_ISGID) != 0)
		buf[6] = buf[6] == 'x' ? 's' : 'S';
	if ((attrs->mode & S_ISVTX) != 0)
		buf[9] = buf[9] == 'x' ? 't' : 'T';
	buf[10] = '\0';
}

void lpi_print_attrs_json(FILE *to, const char *key, const struct lapis_attrs *attrs)
{
	(void)fputs("{\"key\": ", to);
	lpi_cli_print_json(to, key);
	(void)fprintf(to,
		      ", \"type\": \"%s\", \"size_bytes\": %llu, \"allocated_bytes\": %llu, "
		      "\"ino\": %llu, \"version\": %llu, \"mode\": \"%04o\", \"uid\": %u, "
		      "\"gid\": %u, \"links\": %u",
		      lpi_type_name(attrs->type), (unsigned long long)attrs->size_bytes,
		      (unsigned long long)attrs->blocks * 4096, (unsigned long long)attrs->ino,
		      (unsigned long long)attrs->version, attrs->mode, attrs->uid, attrs->gid,
		      attrs->nlink);
	(void)fprintf(to,
		      ", \"mtime_ns\": %lld, \"ctime_ns\": %lld, \"atime_ns\": %lld, "
		      "\"btime_ns\": %lld",
		      (long long)attrs->mtime_ns, (long long)attrs->ctime_ns,
		      (long long)attrs->atime_ns, (long long)attrs->btime_ns);
	(void)fprintf(to, ", \"immutable\": %s, \"append_only\": %s",
		      (attrs->flags & LAPIS_ATTR_IMMUTABLE) != 0 ? "true" : "false",
		      (attrs->flags & LAPIS_ATTR_APPEND) != 0 ? "true" : "false");
	if (attrs->type == LAPIS_DIR)
		(void)fprintf(to, ", \"entries\": %llu, \"spread\": %s, \"made_by_put\": %s",
			      (unsigned long long)attrs->entries_cnt,
			      (attrs->flags & LAPIS_ATTR_SPREAD) != 0 ? "true" : "false",
			      (attrs->flags & LAPIS_ATTR_MADE_BY_PUT) != 0 ? "true" : "false");
	(void)fputc('}', to);
}
