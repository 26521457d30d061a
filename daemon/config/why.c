/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/config/why.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int lpi_refuse(char *why, int err, const char *fmt, ...)
{
	char text[LP_WHY_MAX] = "";
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof(text), fmt, ap); /* a longer one is cut */
	va_end(ap);
	memcpy(why, text, sizeof(text));
	return err;
}
