/* SPDX-License-Identifier: Apache-2.0 */
/* Text that grows, and JSON in it.
 *
 * Threads: one owner.
 * Memory: as it grows, up to LPI_REPORT_TEXT_MAX.
 * Errors: they stick. When memory is short, nothing more is added, and `failed` is set.
 */
#ifndef LP_DAEMON_REPORT_TEXT_H
#define LP_DAEMON_REPORT_TEXT_H

#include "base/compiler.h"
#include "base/struct/hist.h"

#define LPI_REPORT_TEXT_MAX (UINT32_C(16) << 20)

/* Zeroed memory is an empty one. */
struct lpi_text {
	char *bytes; /* NUL-terminated; NULL while nothing was added */
	size_t len;
	size_t room;
	bool failed;
	bool wants_comma; /* JSON: a value stands before */
};

void lpi_text_fini(struct lpi_text *text);
void lpi_text_printf(struct lpi_text *text, const char *fmt, ...) LP_PRINTF(2, 3);

/* JSON. A member's key is NULL in an array and at the top level; keys are plain. */
void lpi_json_open(struct lpi_text *text, const char *key, char bracket);
void lpi_json_close(struct lpi_text *text, char bracket);
void lpi_json_number(struct lpi_text *text, const char *key, uint64_t value);
/* With three decimals: never an exponent. */
void lpi_json_real(struct lpi_text *text, const char *key, double value);
void lpi_json_bool(struct lpi_text *text, const char *key, bool value);
/* value may be any bytes. Bytes that are not UTF-8 become U+FFFD, one for each byte. */
void lpi_json_string(struct lpi_text *text, const char *key, const char *value);

/* Adds a member "latency_us" to the open object. */
void lpi_json_latency(struct lpi_text *text, const struct lp_hist *hist);

#endif
