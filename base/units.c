/* SPDX-License-Identifier: Apache-2.0 */
#include "base/units.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

int lp_parse_bytes(const char *text, uint64_t *ret_bytes)
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
	/* Whole bytes are exact up to 2^53; larger sizes are usually given with a unit. */
	*ret_bytes = (uint64_t)value * factor + (uint64_t)((value - floor(value)) * (double)factor);
	return 0;
}

int lp_parse_number(const char *text, uint64_t low, uint64_t high, uint64_t *ret_value)
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

int lp_format_bytes(uint64_t bytes, char *buf, size_t len)
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
