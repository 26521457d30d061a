/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's struct that begins with its size, and the text of a thread's last error. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/error.h"
#include "client/op.h"
#include "client/public.h"

static _Thread_local char error_text[LPI_TEXT_MAX];

const char *lapis_error_text(void)
{
	return error_text;
}

int lpi_set_error(int err, const char *text)
{
	(void)snprintf(error_text, sizeof(error_text), "%s",
		       text != NULL ? text : lp_strerror(err));
	return err;
}

int lpi_copy_struct(const void *from, size_t least, size_t known, void *ret)
{
	const unsigned char *bytes = from;
	size_t size;
	memcpy(&size, from, sizeof(size));
	if (size < least)
		return -EINVAL;
	for (size_t i = known; i < size; i++) {
		if (bytes[i] != 0)
			return -EINVAL;
	}
	memset(ret, 0, known);
	memcpy(ret, from, LP_MIN(known, size));
	return 0;
}

int lpi_copy_request(const struct lapis_request *from, struct lapis_request *ret)
{
	return lpi_copy_struct(from, offsetof(struct lapis_request, timeout_ms), sizeof(*ret), ret);
}
