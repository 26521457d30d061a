/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/json.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"

#define UTF8_MAX        4u /* bytes of a character */
#define LINE_MAX_BYTES  80 /* of a container that is shown in one line */
#define VALUE_MAX_BYTES 1024

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

/* --- Strings ---------------------------------------------------------------------------------- */

/* The four digits of an escape; 0: they are none, or a NUL, which no text has. */
static uint32_t hex4(const char *at, const char *end)
{
	uint32_t code = 0;
	for (int i = 0; i < 4; i++) {
		if (at + i >= end || !isxdigit((unsigned char)at[i]))
			return 0;
		int c = tolower((unsigned char)at[i]);
		code = code << 4 | (uint32_t)(c >= 'a' ? c - 'a' + 10 : c - '0');
	}
	return code;
}

/* The code point in UTF-8, without an end. */
static size_t put_utf8(uint32_t code, char *to)
{
	size_t len = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
	static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
	for (size_t i = len; i-- > 1; code >>= 6)
		to[i] = (char)(uint8_t)(0x80 | (code & 0x3f));
	to[0] = (char)(uint8_t)(leads[len] | code);
	return len;
}

/* One character of a string, which may be escaped: how many bytes it is in to, at most UTF8_MAX.
 * *at goes on behind it. */
static size_t take_char(const char **at, const char *end, char *to)
{
	static const char letters[] = "bfnrt";
	static const char meant[] = "\b\f\n\r\t";
	const char *from = *at;
	if (*from != '\\' || from + 1 >= end) {
		to[0] = *from;
		*at = from + 1;
		return 1;
	}
	uint32_t code = from[1] == 'u' ? hex4(from + 2, end) : 0;
	if (code != 0) {
		uint32_t low = from + 12 <= end && memcmp(from + 6, "\\u", 2) == 0
				       ? hex4(from + 8, end)
				       : 0;
		bool is_pair = code >= 0xd800 && code < 0xdc00 && low >= 0xdc00 && low < 0xe000;
		*at = from + (is_pair ? 12 : 6);
		return put_utf8(is_pair ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : code,
				to);
	}
	const char *letter = strchr(letters, from[1]);
	to[0] = from[1];
	if (letter != NULL && *letter != '\0')
		to[0] = meant[letter - letters];
	*at = from + 2;
	return 1;
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

const char *lpi_cli_json_word(const char *text, const char *path, char *buf, size_t len)
{
	size_t value_len = 0;
	const char *value = find(text, path, &value_len);
	(void)snprintf(buf, len, "%.*s", (int)value_len, value != NULL ? value : "");
	return buf;
}

const char *lpi_cli_json_text(const char *text, const char *path, char *buf, size_t len)
{
	size_t value_len = 0;
	const char *value = find(text, path, &value_len);
	size_t used = 0;
	const char *end = value + value_len;
	if (value != NULL && *value == '"') {
		for (value++, end--; value < end && used + UTF8_MAX < len;)
			used += take_char(&value, end, buf + used);
	}
	buf[used] = '\0';
	return buf;
}

/* --- Showing ---------------------------------------------------------------------------------- */

/* How much of a number is worth showing: three digits, or all before the point. */
static size_t digits_len(const char *value, size_t len)
{
	size_t point = strcspn(value, ".");
	size_t sign = value[0] == '-' ? 1 : 0;
	if (point >= len || memchr(value, 'e', len) != NULL)
		return len;
	return point >= sign + 3 ? point : LP_MIN(len, sign + 4);
}

/* A value as it was meant, at most len - 1 bytes. */
static void format_value(const struct lpi_cli_json *json, char *buf, size_t len)
{
	size_t used = 0;
	const char *at = json->value;
	const char *end = at + json->value_len;
	bool is_string = *at == '"';
	if (is_string) {
		at++;
		end--;
	} else {
		end = at + digits_len(at, json->value_len);
	}
	while (at < end && used + UTF8_MAX < len) {
		if (is_string)
			used += take_char(&at, end, buf + used);
		else
			buf[used++] = *at++;
	}
	buf[used] = '\0';
}

/* What has just been opened, if it holds values only and they fit: "mean 3.1  max 12". */
static bool format_line(struct lpi_cli_json json, char *buf, size_t len)
{
	enum lpi_cli_json_kind kind;
	size_t used = 0;
	while ((kind = lpi_cli_json_next(&json)) == LPI_CLI_JSON_VALUE) {
		char value[LINE_MAX_BYTES];
		format_value(&json, value, sizeof(value));
		int n = snprintf(buf + used, len - used, "%s%.*s%s%s", used > 0 ? "  " : "",
				 (int)json.key_len, json.key_len > 0 ? json.key : "",
				 json.key_len > 0 ? " " : "", value);
		if (n < 0 || used + (size_t)n >= len)
			return false;
		used += (size_t)n;
	}
	return kind == LPI_CLI_JSON_CLOSE && used > 0;
}

/* The longest name in what has just been opened. */
static int name_width(struct lpi_cli_json json)
{
	int depth = json.depth;
	size_t width = 0;
	enum lpi_cli_json_kind kind;
	while ((kind = lpi_cli_json_next(&json)) != LPI_CLI_JSON_END && json.depth >= depth) {
		bool is_ours = json.depth - (kind == LPI_CLI_JSON_OPEN ? 1 : 0) == depth;
		if (is_ours && kind != LPI_CLI_JSON_CLOSE)
			width = LP_MAX(width, json.key_len);
	}
	return (int)LP_MIN(width, (size_t)LINE_MAX_BYTES);
}

static void show_name(FILE *to, const char *name, int len)
{
	char text[LINE_MAX_BYTES];
	(void)snprintf(text, sizeof(text), "%.*s", len, name);
	lpi_cli_print_escaped(to, text);
}

/* Text in lines of words, which begin in this column; the first is there already. */
static void show_words(FILE *to, const char *text, int column)
{
	int at = column;
	for (const char *word = text; *word != '\0';) {
		char copy[VALUE_MAX_BYTES];
		size_t len = strcspn(word, " ");
		if (word != text && at + 1 + (int)len > LINE_MAX_BYTES) {
			(void)fprintf(to, "\n%*s", column, "");
			at = column;
		} else if (word != text) {
			(void)fputc(' ', to);
			at++;
		}
		(void)snprintf(copy, sizeof(copy), "%.*s", (int)len, word);
		lpi_cli_print_escaped(to, copy);
		at += (int)len;
		word += len + (word[len] == ' ' ? 1 : 0);
	}
}

/* Below what is open: numbers count its items, widths align its values. */
struct shown {
	unsigned numbers[LPI_CLI_JSON_DEPTH + 1];
	int widths[LPI_CLI_JSON_DEPTH + 1];
};

/* One value or container; true when all of the container has been shown in this line. */
static bool show_token(FILE *to, const struct lpi_cli_json *json, enum lpi_cli_json_kind kind,
		       const struct shown *shown)
{
	int depth = json->depth - (kind == LPI_CLI_JSON_OPEN ? 1 : 0);
	/* What is outermost needs no indentation. */
	int indent = depth > 0 ? (depth - 1) * 2 : 0;
	char line[VALUE_MAX_BYTES];
	size_t room = indent < LINE_MAX_BYTES / 2 ? (size_t)(LINE_MAX_BYTES - indent) : 1;
	room -= LP_MIN(json->key_len + 2, room - 1);
	bool is_whole = kind == LPI_CLI_JSON_VALUE || format_line(*json, line, room);
	(void)fprintf(to, "%*s", indent, "");
	if (json->key_len > 0)
		show_name(to, json->key, (int)json->key_len);
	else if (!is_whole)
		(void)fprintf(to, "%u", shown->numbers[depth]);
	if (kind == LPI_CLI_JSON_VALUE)
		format_value(json, line, sizeof(line));
	int column = indent;
	if (is_whole && json->key_len > 0 && line[0] != '\0') {
		int gap = LP_MAX(shown->widths[depth] - (int)json->key_len, 0) + 2;
		(void)fprintf(to, "%*s", gap, "");
		column += (int)json->key_len + gap;
	}
	if (is_whole)
		show_words(to, line, column);
	(void)fputc('\n', to);
	return is_whole && kind == LPI_CLI_JSON_OPEN;
}

void lpi_cli_json_show(FILE *to, const char *text)
{
	struct lpi_cli_json json;
	struct shown shown = {.numbers = {0}};
	enum lpi_cli_json_kind kind;
	int hidden = LPI_CLI_JSON_DEPTH + 1; /* what is as deep has been shown */
	lpi_cli_json_init(&json, text);
	while ((kind = lpi_cli_json_next(&json)) != LPI_CLI_JSON_END) {
		if (kind == LPI_CLI_JSON_CLOSE) {
			hidden = json.depth < hidden ? LPI_CLI_JSON_DEPTH + 1 : hidden;
			continue;
		}
		int depth = json.depth - (kind == LPI_CLI_JSON_OPEN ? 1 : 0);
		if (json.depth >= hidden)
			continue;
		if (kind == LPI_CLI_JSON_OPEN) {
			shown.numbers[json.depth] = 0;
			shown.widths[json.depth] = name_width(json);
		}
		if (kind == LPI_CLI_JSON_VALUE || depth > 0) {
			if (show_token(to, &json, kind, &shown))
				hidden = json.depth;
		}
		shown.numbers[depth]++;
	}
}
