/* SPDX-License-Identifier: Apache-2.0 */
/* What the functions of lapis.h have in common: structs that begin with their size, and the text of
 * the last error.
 *
 * Threads: any. Blocking: none.
 */
#ifndef LP_CLIENT_PUBLIC_H
#define LP_CLIENT_PUBLIC_H

#include "base/error.h"
#include "client/lapis.h"

/* What lapis_error_text() says on this thread from now on; NULL: what the error is called. */
int lpi_set_error(int err, const char *text);
/* A caller's struct that begins with its size. Later versions of it are longer: what they have more
 * must not be meant. -EINVAL, also for one of less than `least` bytes. */
int lpi_copy_struct(const void *from, size_t least, size_t known, void *ret) LP_MUST_CHECK;
int lpi_copy_request(const struct lapis_request *from, struct lapis_request *ret) LP_MUST_CHECK;

#endif
