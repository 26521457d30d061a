/* SPDX-License-Identifier: Apache-2.0 */
/* The message is formatted on the stack and leaves in one write(2), because the heap or the log may
 * be broken. */
#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

void lp_assert_failed(const char *expr, const char *file, int line, const char *func,
		      const char *object)
{
	char text[LP_ASSERT_TEXT_MAX + 512];
	int len = snprintf(text, sizeof(text), "lapis: assertion failed: %s at %s:%d in %s()%s%s\n",
			   expr, file, line, func, object ? ": " : "", object ? object : "");
	if (len > 0) {
		size_t bytes = LP_MIN((size_t)len, sizeof(text) - 1);
		/* A failed write cannot be handled here; the abort says enough. */
		ssize_t ignored = write(STDERR_FILENO, text, bytes);
		(void)ignored;
	}
	abort();
}
