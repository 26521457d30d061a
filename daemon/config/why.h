/* SPDX-License-Identifier: Apache-2.0 */
/* Reason of a refusal: one sentence for a person, made where the reason is known.
 *
 * Threads: any.
 * Blocking, memory: none.
 */
#ifndef LP_DAEMON_CONFIG_WHY_H
#define LP_DAEMON_CONFIG_WHY_H

#include <errno.h>
#include <stddef.h>

#include "base/compiler.h"

/* Size of the buffer that each `char *why` points to. */
#define LP_WHY_MAX 512u

/* Writes the sentence and returns err. why may be one of the arguments. Cited text may be any
 * bytes; the code that shows the sentence escapes it. */
int lpi_refuse(char *why, int err, const char *fmt, ...) LP_PRINTF(3, 4);

#endif
