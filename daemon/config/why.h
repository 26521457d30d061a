/* SPDX-License-Identifier: Apache-2.0 */
/* Why something was refused: one sentence for a person, made where it is known.
 *
 * Threads: any.
 * Blocking, memory: none.
 */
#ifndef LP_DAEMON_CONFIG_WHY_H
#define LP_DAEMON_CONFIG_WHY_H

#include <errno.h>
#include <stddef.h>

#include "base/compiler.h"

/* What a `char *why` points to holds so many bytes. */
#define LP_WHY_MAX 512u

/* Writes the sentence and returns err; why may be one of the arguments. What it cites may be any
 * bytes: who shows it escapes it. */
int lpi_refuse(char *why, int err, const char *fmt, ...) LP_PRINTF(3, 4);

#endif
