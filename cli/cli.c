/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void lpi_cli_print_escaped(FILE *to, const char *text)
{
	for (; *text != '\0'; text++) {
		unsigned char c = (unsigned char)*text;
		if (c < 0x20 || c == 0x7f)
			(void)fprintf(to, "\\x%02x", c);
		else
			(void)fputc(c, to);
	}
}

/* How many bytes the UTF-8 sequence has that begins here, more than one; 0 if it is none. */
static size_t utf8_len(const unsigned char *at)
{
	static const struct {
		unsigned char mask;
		unsigned char lead;
		uint32_t low; /* shorter ones are to be written so */
	} forms[] = {{0xe0, 0xc0, 0x80}, {0xf0, 0xe0, 0x800}, {0xf8, 0xf0, 0x10000}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(forms); i++) {
		if ((at[0] & forms[i].mask) != forms[i].lead)
			continue;
		uint32_t point = at[0] & (uint32_t)(unsigned char)~forms[i].mask;
		for (size_t k = 1; k <= i + 1; k++) {
			if ((at[k] & 0xc0) != 0x80)
				return 0;
			point = point << 6 | (at[k] & 0x3f);
		}
		bool is_surrogate = point >= 0xd800 && point < 0xe000;
		return point < forms[i].low || point > 0x10ffff || is_surrogate ? 0 : i + 2;
	}
	return 0;
}

void lpi_cli_print_json(FILE *to, const char *text)
{
	const unsigned char *at = (const unsigned char *)text;
	(void)fputc('"', to);
	while (*at != '\0') {
		size_t len = *at >= 0x80 ? utf8_len(at) : 1;
		if (*at == '"' || *at == '\\')
			(void)fprintf(to, "\\%c", *at);
		else if (*at < 0x20)
			(void)fprintf(to, "\\u%04x", *at);
		else if (len == 0)
			(void)fprintf(to, "\\\\x%02x", *at);
		else
			(void)fwrite(at, 1, len, to);
		at += LP_MAX(len, (size_t)1);
	}
	(void)fputc('"', to);
}

int lpi_cli_fail(const char *subject, const char *fmt, ...)
{
	va_list ap;
	(void)fputs("lapis: ", stderr);
	lpi_cli_print_escaped(stderr, subject);
	(void)fputs(": ", stderr);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fputc('\n', stderr);
	return LP_EXIT_FAILED;
}

int lpi_cli_usage(const struct lpi_cli_command *command, const char *fmt, ...)
{
	va_list ap;
	(void)fprintf(stderr, "lapis: %s: ", command->name);
	va_start(ap, fmt);
	(void)vfprintf(stderr, fmt, ap);
	va_end(ap);
	(void)fprintf(stderr, " (see lapis %s --help)\n", command->name);
	return LP_EXIT_USAGE;
}

int lpi_cli_help(const struct lpi_cli_command *command)
{
	(void)printf("usage: lapis %s %s\n\n%s.\n\n%s", command->name, command->synopsis,
		     command->summary, command->help);
	return LP_EXIT_OK;
}

int lpi_cli_next_option(const struct lpi_cli_command *command, int argc, char **argv,
			const struct option *options, int *ret_status)
{
	opterr = 0;
	/* One thread: getopt's state is ours. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	int c = getopt_long(argc, argv, ":h", options, NULL);
	if (c != 'h' && c != ':' && c != '?')
		return c;
	if (c == 'h')
		*ret_status = lpi_cli_help(command);
	else if (c == ':')
		*ret_status = lpi_cli_usage(command, "%s needs a value", argv[optind - 1]);
	else
		*ret_status = lpi_cli_usage(command, "unknown option %s", argv[optind - 1]);
	return 0;
}

/* The factor of "", "K", "KiB", ..., "TiB"; 0 for anything else. */
static uint64_t unit_factor(const char *unit)
{
	static const char letters[] = "KMGT";
	if (unit[0] == '\0')
		return 1;
	const char *at = strchr(letters, toupper((unsigned char)unit[0]));
	if (at == NULL || (unit[1] != '\0' && strcmp(unit + 1, "iB") != 0))
		return 0;
	return UINT64_C(1) << (10 * (at - letters + 1));
}

int lpi_cli_parse_size(const char *text, uint64_t *ret_bytes)
{
	char *end;
	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	double value = strtod(text, &end);
	uint64_t factor = unit_factor(end);
	if (factor == 0 || text[1] == 'x' || text[1] == 'X')
		return -EINVAL;
	if (errno != 0 || !(value * (double)factor < 0x1p63))
		return -ERANGE;
	/* Whole bytes are exact up to 2^53, and larger sizes are given with a unit. */
	*ret_bytes = (uint64_t)value * factor + (uint64_t)((value - floor(value)) * (double)factor);
	return 0;
}

int lpi_cli_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *ret_value)
{
	char *end;
	if (!isdigit((unsigned char)text[0]))
		return -EINVAL;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (*end != '\0')
		return -EINVAL;
	if (errno != 0 || value < low || value > high)
		return -ERANGE;
	*ret_value = value;
	return 0;
}

int lpi_cli_format_size(uint64_t bytes, char *buf, size_t len)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	size_t unit = 0;
	double value = (double)bytes;
	while (value >= 1024 && unit + 1 < LP_ARRAY_SIZE(units)) {
		value /= 1024;
		unit++;
	}
	if (unit == 0)
		return snprintf(buf, len, "%llu B", (unsigned long long)bytes);
	return snprintf(buf, len, "%.*f %s", value == floor(value) ? 0 : 1, value, units[unit]);
}
