/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/json.h"

#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

void lpi_cli_json_init(struct lpi_cli_json *json, const char *text)
{
	*json = (struct lpi_cli_json){.at = text};
}

static void skip(struct lpi_cli_json *json, const char *what)
{
	json->at += strspn(json->at, what);
}

/* The length of the string that begins here, with its quotes; 0: it has no end. */
static size_t string_len(const char *text)
{
	size_t i = 1;
	while (text[i] != '\0' && text[i] != '"')
		i += text[i] == '\\' && text[i + 1] != '\0' ? 2 : 1;
	return text[i] == '"' ? i + 1 : 0;
}

static size_t value_len(const char *text)
{
	return *text == '"' ? string_len(text) : strcspn(text, ",]} \t\r\n");
}

static bool take_key(struct lpi_cli_json *json)
{
	size_t len = *json->at == '"' ? string_len(json->at) : 0;
	if (len == 0)
		return false;
	json->key = json->at + 1;
	json->key_len = len - 2;
	json->at += len;
	skip(json, " \t\r\n");
	if (*json->at != ':')
		return false;
	json->at++;
	skip(json, " \t\r\n");
	return true;
}

enum lpi_cli_json_kind lpi_cli_json_next(struct lpi_cli_json *json)
{
	skip(json, " \t\r\n,");
	json->key_len = 0;
	if ((*json->at == '}' || *json->at == ']') && json->depth > 0) {
		json->at++;
		json->depth--;
		return LPI_CLI_JSON_CLOSE;
	}
	if (json->depth > 0 && json->stack[json->depth - 1] == '{' && !take_key(json))
		return LPI_CLI_JSON_END;
	json->value = json->at;
	if (*json->at == '{' || *json->at == '[') {
		if (json->depth == LPI_CLI_JSON_DEPTH)
			return LPI_CLI_JSON_END;
		json->stack[json->depth++] = *json->at++;
		return LPI_CLI_JSON_OPEN;
	}
	json->value_len = value_len(json->at);
	if (json->value_len == 0)
		return LPI_CLI_JSON_END;
	json->at += json->value_len;
	return LPI_CLI_JSON_VALUE;
}

/* --- Finding ---------------------------------------------------------------------------------- */

/* Whether the token is what the first part of the path names; idx is its number in its array. */
static bool is_named(const struct lpi_cli_json *json, const char *part, size_t len, unsigned idx)
{
	char number[16];
	if (json->key_len > 0)
		return json->key_len == len && memcmp(json->key, part, len) == 0;
	(void)snprintf(number, sizeof(number), "%u", idx);
	return strlen(number) == len && memcmp(number, part, len) == 0;
}

/* The value at a path; *ret_len its length. NULL: none. */
static const char *find(const char *text, const char *path, size_t *ret_len)
{
	struct lpi_cli_json json;
	unsigned idx = 0;
	int level = 1; /* of the containers that the path leads through */
	lpi_cli_json_init(&json, text);
	if (lpi_cli_json_next(&json) != LPI_CLI_JSON_OPEN)
		return NULL;
	for (;;) {
		size_t len = strcspn(path, ".");
		enum lpi_cli_json_kind kind = lpi_cli_json_next(&json);
		int depth = json.depth - (kind == LPI_CLI_JSON_OPEN ? 1 : 0);
		if (kind == LPI_CLI_JSON_END || json.depth < level)
			return NULL;
		if (kind == LPI_CLI_JSON_CLOSE || depth != level)
			continue;
		if (!is_named(&json, path, len, idx++))
			continue;
		if (path[len] == '\0' && kind == LPI_CLI_JSON_VALUE) {
			*ret_len = json.value_len;
			return json.value;
		}
		if (path[len] == '\0' || kind != LPI_CLI_JSON_OPEN)
			return NULL;
		path += len + 1;
		level++;
		idx = 0;
	}
}

double lpi_cli_json_number(const char *text, const char *path)
{
	size_t len = 0;
	const char *value = find(text, path, &len);
	return value != NULL ? strtod(value, NULL) : 0;
}

const char *lpi_cli_json_text(const char *text, const char *path, char *buf, size_t len)
{
	size_t value_len_found = 0;
	const char *value = find(text, path, &value_len_found);
	if (value == NULL || value[0] != '"')
		value_len_found = 2;
	(void)snprintf(buf, len, "%.*s", (int)value_len_found - 2, value != NULL ? value + 1 : "");
	return buf;
}

/* --- Showing ---------------------------------------------------------------------------------- */

/* A string as it was meant, escaped where a terminal would not show it. */
static void show_value(FILE *to, const struct lpi_cli_json *json)
{
	char buf[1024];
	size_t used = 0;
	const char *at = json->value;
	const char *end = at + json->value_len;
	if (*at == '"') {
		at++;
		end--;
	}
	for (; at < end && used + 1 < sizeof(buf); at++) {
		if (*at == '\\' && at + 1 < end && (at[1] == '"' || at[1] == '\\' || at[1] == '/'))
			at++;
		buf[used++] = *at;
	}
	buf[used] = '\0';
	lpi_cli_print_escaped(to, buf);
}

void lpi_cli_json_show(FILE *to, const char *text)
{
	struct lpi_cli_json json;
	enum lpi_cli_json_kind kind;
	bool was_open = false;
	lpi_cli_json_init(&json, text);
	while ((kind = lpi_cli_json_next(&json)) != LPI_CLI_JSON_END) {
		int depth = json.depth - (kind == LPI_CLI_JSON_OPEN ? 1 : 0);
		/* What is outermost needs no indentation. */
		int indent = depth > 0 ? (depth - 1) * 2 : 0;
		bool is_item = json.key_len == 0 && depth > 0;
		if (kind == LPI_CLI_JSON_CLOSE)
			continue;
		if (kind == LPI_CLI_JSON_OPEN && depth == 0)
			continue;
		if (is_item && kind == LPI_CLI_JSON_OPEN && was_open)
			(void)fputc('\n', to);
		was_open = was_open || (is_item && kind == LPI_CLI_JSON_OPEN);
		if (is_item && kind == LPI_CLI_JSON_OPEN)
			continue;
		(void)fprintf(to, "%*s%.*s%s", indent, "", (int)json.key_len,
			      json.key_len > 0 ? json.key : "", json.key_len > 0 ? "  " : "");
		if (kind == LPI_CLI_JSON_VALUE)
			show_value(to, &json);
		(void)fputc('\n', to);
	}
}
