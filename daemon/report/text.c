/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/report/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Writes the part before a value: a comma, the key. */
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
	/* Without an exponent, which few people can read. */
	lpi_text_printf(text, "%.3f", value);
}

void lpi_json_bool(struct lpi_text *text, const char *key, bool value)
{
	begin(text, key);
	lpi_text_printf(text, "%s", value ? "true" : "false");
}

/* The number of bytes of the UTF-8 character that begins here; 0: it is none. */
static uint32_t character_bytes(const char *at)
{
	/* By the first byte: the number of bytes that follow, and the range of the second. */
	static const struct {
		uint8_t low;
		uint8_t high;
		uint8_t bytes;
		uint8_t second_low;
		uint8_t second_high;
	} kinds[] = {
		{0x20, 0x7e, 1, 0, 0},       {0xc2, 0xdf, 2, 0x80, 0xbf},
		{0xe0, 0xe0, 3, 0xa0, 0xbf}, {0xe1, 0xec, 3, 0x80, 0xbf},
		{0xed, 0xed, 3, 0x80, 0x9f}, {0xee, 0xef, 3, 0x80, 0xbf},
		{0xf0, 0xf0, 4, 0x90, 0xbf}, {0xf1, 0xf3, 4, 0x80, 0xbf},
		{0xf4, 0xf4, 4, 0x80, 0x8f},
	};
	const uint8_t *bytes = (const uint8_t *)at;
	for (size_t i = 0; i < LP_ARRAY_SIZE(kinds); i++) {
		if (bytes[0] < kinds[i].low || bytes[0] > kinds[i].high)
			continue;
		uint32_t cnt = kinds[i].bytes;
		bool is_good = cnt == 1 || (bytes[1] >= kinds[i].second_low &&
					    bytes[1] <= kinds[i].second_high);
		for (uint32_t k = 2; k < cnt && is_good; k++)
			is_good = (bytes[k] & 0xc0u) == 0x80;
		return is_good ? cnt : 0;
	}
	return 0;
}

void lpi_json_string(struct lpi_text *text, const char *key, const char *value)
{
	begin(text, key);
	lpi_text_printf(text, "\"");
	for (const char *at = value; *at != '\0';) {
		uint32_t bytes = character_bytes(at);
		uint8_t byte = (uint8_t)*at;
		if (*at == '"' || *at == '\\')
			lpi_text_printf(text, "\\%c", *at);
		else if (bytes > 0)
			lpi_text_printf(text, "%.*s", (int)bytes, at);
		else if (byte < 0x80)
			lpi_text_printf(text, "\\u%04x", byte);
		else
			/* JSON has no form for it: the mark of a lost character. */
			lpi_text_printf(text, "\\ufffd");
		at += bytes > 0 ? bytes : 1;
	}
	lpi_text_printf(text, "\"");
}

void lpi_json_latency(struct lpi_text *text, const struct lp_hist *hist)
{
	lpi_json_open(text, "latency_us", '{');
	lpi_json_real(text, "mean", lp_hist_mean(hist) / 1e3);
	lpi_json_real(text, "p50", (double)lp_hist_percentile(hist, LP_HIST_P50) / 1e3);
	lpi_json_real(text, "p95", (double)lp_hist_percentile(hist, LP_HIST_P95) / 1e3);
	lpi_json_real(text, "p99", (double)lp_hist_percentile(hist, LP_HIST_P99) / 1e3);
	lpi_json_real(text, "p999", (double)lp_hist_percentile(hist, LP_HIST_P999) / 1e3);
	lpi_json_real(text, "max", (double)hist->max / 1e3);
	lpi_json_close(text, '}');
}
