/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the JSON that a daemon answers with: token by token, any bytes. What is no JSON ends early.
 *
 * Threads: any. Blocking, allocation: none.
 */
#ifndef LP_CLI_JSON_H
#define LP_CLI_JSON_H

#include <stdio.h>

#include "base/compiler.h"

#define LPI_CLI_JSON_DEPTH 32

enum lpi_cli_json_kind {
	LPI_CLI_JSON_END,
	LPI_CLI_JSON_OPEN,
	LPI_CLI_JSON_CLOSE,
	LPI_CLI_JSON_VALUE
};

struct lpi_cli_json {
	const char *at;
	int depth;
	char stack[LPI_CLI_JSON_DEPTH]; /* '{' or '[' */
	/* Of the last token: where in the text; a string with its quotes. */
	const char *key;
	size_t key_len; /* without quotes; 0: none */
	const char *value;
	size_t value_len;
};

void lpi_cli_json_init(struct lpi_cli_json *json, const char *text);
/* The next token; LPI_CLI_JSON_END at the end, or where it is no JSON any more. */
enum lpi_cli_json_kind lpi_cli_json_next(struct lpi_cli_json *json);

/* The number at "ops.put.count", where array elements are numbered; 0 when there is none. */
double lpi_cli_json_number(const char *text, const char *path);
/* What stands there as it stands, cut to len; "" when there is none. */
const char *lpi_cli_json_word(const char *text, const char *path, char *buf, size_t len);
/* The string there as it was meant, cut to len; "" when there is none. */
const char *lpi_cli_json_text(const char *text, const char *path, char *buf, size_t len);

/* Without the punctuation: each value in a line, indented; what holds only a few, in one line. */
void lpi_cli_json_show(FILE *to, const char *text);

#endif
