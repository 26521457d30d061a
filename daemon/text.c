/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define ROOM_FIRST 4096u

void lpi_text_fini(struct lpi_text *text)
{
	free(text->bytes);
	*text = (struct lpi_text){.bytes = NULL};
}

static bool make_room(struct lpi_text *text, size_t more)
{
	if (text->failed)
		return false;
	if (text->len + more < text->room)
		return true;
	size_t room = LP_MAX(text->room * 2, LP_MAX(text->len + more + 1, (size_t)ROOM_FIRST));
	char *bytes = room > LPI_REPORT_TEXT_MAX ? NULL : realloc(text->bytes, room);
	text->failed = bytes == NULL;
	if (text->failed)
		return false;
	text->bytes = bytes;
	text->room = room;
	return true;
}

void lpi_text_printf(struct lpi_text *text, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int len = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (len < 0 || !make_room(text, (size_t)len))
		return;
	va_start(ap, fmt);
	(void)vsnprintf(text->bytes + text->len, text->room - text->len, fmt, ap); /* measured */
	va_end(ap);
	text->len += (size_t)len;
}

/* What stands before a value: a comma, the key. */
static void begin(struct lpi_text *text, const char *key)
{
	lpi_text_printf(text, "%s", text->wants_comma ? ", " : "");
	if (key != NULL)
		lpi_text_printf(text, "\"%s\": ", key);
	text->wants_comma = true;
}

void lpi_json_open(struct lpi_text *text, const char *key, char bracket)
{
	begin(text, key);
	lpi_text_printf(text, "%c", bracket);
	text->wants_comma = false;
}

void lpi_json_close(struct lpi_text *text, char bracket)
{
	lpi_text_printf(text, "%c", bracket);
	text->wants_comma = true;
}

void lpi_json_number(struct lpi_text *text, const char *key, uint64_t value)
{
	begin(text, key);
	lpi_text_printf(text, "%llu", (unsigned long long)value);
}

void lpi_json_real(struct lpi_text *text, const char *key, double value)
{
	begin(text, key);
	lpi_text_printf(text, "%.6g", value);
}

void lpi_json_bool(struct lpi_text *text, const char *key, bool value)
{
	begin(text, key);
	lpi_text_printf(text, "%s", value ? "true" : "false");
}

void lpi_json_string(struct lpi_text *text, const char *key, const char *value)
{
	char clean[4096];
	begin(text, key);
	/* Leaves quotes and backslashes, and no control characters. */
	(void)lp_log_escape(value, strlen(value), clean, sizeof(clean));
	lpi_text_printf(text, "\"");
	for (const char *at = clean; *at != '\0'; at++)
		lpi_text_printf(text, *at == '"' || *at == '\\' ? "\\%c" : "%c", *at);
	lpi_text_printf(text, "\"");
}
