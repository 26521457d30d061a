/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"

#define TEXT_MAX   8192 /* of a message; a longer one is cut */
#define SHORTS_MAX 32

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

void lpi_cli_print_escaped_bytes(FILE *to, const char *text, size_t text_len)
{
	const unsigned char *at = (const unsigned char *)text;
	const unsigned char *end = at + text_len;
	while (at < end) {
		size_t len = *at >= 0x80 ? utf8_len(at) : 1;
		/* Terminals take U+0080 to U+009f for commands as well. */
		bool is_control = *at < 0x20 || *at == 0x7f || (*at == 0xc2 && at[1] < 0xa0);
		if (len == 0 || is_control)
			(void)fprintf(to, "\\x%02x", *at);
		else
			(void)fwrite(at, 1, len, to);
		at += len == 0 || is_control ? 1 : len;
	}
}

void lpi_cli_print_escaped(FILE *to, const char *text)
{
	lpi_cli_print_escaped_bytes(to, text, strlen(text));
}

/* A byte that is no UTF-8 becomes one of the halves of a pair that mean nothing alone: so each
 * string stands for one sequence of bytes only. */
void lpi_cli_print_json_bytes(FILE *to, const char *text, size_t text_len)
{
	const unsigned char *at = (const unsigned char *)text;
	const unsigned char *end = at + text_len;
	(void)fputc('"', to);
	while (at < end) {
		size_t len = *at >= 0x80 ? utf8_len(at) : 1;
		if (*at == '"' || *at == '\\')
			(void)fprintf(to, "\\%c", *at);
		else if (*at < 0x20)
			(void)fprintf(to, "\\u%04x", *at);
		else if (len == 0)
			(void)fprintf(to, "\\udc%02x", *at);
		else
			(void)fwrite(at, 1, len, to);
		at += LP_MAX(len, (size_t)1);
	}
	(void)fputc('"', to);
}

void lpi_cli_print_json(FILE *to, const char *text)
{
	lpi_cli_print_json_bytes(to, text, strlen(text));
}

int lpi_cli_fail(const char *subject, const char *fmt, ...)
{
	char text[TEXT_MAX] = "";
	va_list ap;
	(void)fputs("lapis: ", stderr);
	lpi_cli_print_escaped(stderr, subject);
	(void)fputs(": ", stderr);
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	lpi_cli_print_escaped(stderr, text);
	(void)fputc('\n', stderr);
	return LP_EXIT_FAILED;
}

int lpi_end_output(int status)
{
	int err = fflush(stdout) == 0 ? 0 : -errno;
	if (err == 0 && !ferror(stdout))
		return status;
	/* Whoever closed the pipe knows. What failed earlier has left a mark, and no number. */
	if (err == 0)
		(void)lpi_cli_fail("standard output", "only a part of the output could be written");
	else if (err != -EPIPE)
		(void)lpi_cli_fail("standard output", "%s", lp_strerror(err));
	return LP_EXIT_FAILED;
}

int lpi_cli_usage(const struct lpi_cli_command *command, const char *fmt, ...)
{
	char text[TEXT_MAX] = "";
	va_list ap;
	(void)fprintf(stderr, "lapis: %s: ", command->name);
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	lpi_cli_print_escaped(stderr, text);
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

/* What getopt did not take: argv[optind - 1], or of letters that stand together optopt. */
static int wrong_option(const struct lpi_cli_command *command, int c, char **argv)
{
	const char *given = argv[optind - 1];
	bool is_long = strncmp(given, "--", 2) == 0;
	if (c == ':' && is_long)
		return lpi_cli_usage(command, "%s needs a value", given);
	if (c == ':')
		return lpi_cli_usage(command, "-%c needs a value", optopt);
	if (optopt != 0 && !is_long)
		return lpi_cli_usage(
			command, "unknown option -%c (write -- before a name that begins with -)",
			optopt);
	return lpi_cli_usage(command, "unknown option %s", given);
}

int lpi_args_parse(const struct lpi_cli_command *command, int argc, char **argv,
		   const struct lpi_args_form *form, struct lpi_args *ret_args)
{
	struct lpi_args args = {.cnt = 0};
	char shorts[SHORTS_MAX];
	int c;
	(void)snprintf(shorts, sizeof(shorts), ":h%s", form->shorts);
	opterr = 0;
	/* One thread: getopt's state is ours. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	while ((c = getopt_long(argc, argv, shorts, form->longs, NULL)) != -1) {
		if (c == 'h')
			return lpi_cli_help(command);
		if (c == '?' || c == ':' || c <= 0 || c >= (int)LP_ARRAY_SIZE(args.has))
			return wrong_option(command, c, argv);
		args.has[c] = true;
		args.value[c] = optarg;
	}
	args.cnt = argc - optind;
	args.names = argv + optind;
	if (args.cnt < form->min)
		return lpi_cli_usage(command, "too few arguments: lapis %s %s", command->name,
				     command->synopsis);
	if (args.cnt > form->max)
		return lpi_cli_usage(command, "too many arguments: lapis %s %s", command->name,
				     command->synopsis);
	*ret_args = args;
	return -1;
}

bool lpi_is_terminal(FILE *to)
{
	return isatty(fileno(to)) == 1;
}
