/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and numbers as people write them, in options and configuration files.
 *
 * Threads: any.
 * Blocking, memory: none.
 * Errors: -EINVAL, it is no such text; -ERANGE, too large or outside of what is allowed. The result
 *   is untouched then.
 */
#ifndef LP_BASE_UNITS_H
#define LP_BASE_UNITS_H

#include <errno.h>

#include "base/compiler.h"

/* "4096", "64K", "1.5G", "2TiB": bytes, binary units. */
int lp_parse_bytes(const char *text, uint64_t *ret_bytes) LP_MUST_CHECK;
/* A decimal number within [low, high]. */
int lp_parse_number(const char *text, uint64_t low, uint64_t high,
		    uint64_t *ret_value) LP_MUST_CHECK;
/* "1.5 GiB". Returns as snprintf(). */
int lp_format_bytes(uint64_t bytes, char *buf, size_t len);

#endif
