/* SPDX-License-Identifier: Apache-2.0 */
/* Placeholders for standard input, output and error that were closed at the start.
 *
 * Threads: before there are others.
 * Blocking, memory: none.
 *
 * If one of them were left closed, the next file that is opened would have its number, and what is
 * printed would be written into that file: a device with a store, or a peer's socket.
 */
#ifndef LP_BASE_STDFDS_H
#define LP_BASE_STDFDS_H

#include "base/compiler.h"

/* First of all in main(), of what opens devices or sockets: afterwards each of the three is taken.
 * One that was closed can neither be read nor written, -EBADF as before, so that an input that is
 * missing is not an empty one and an output that is lost is noticed. It stays open over an exec.
 * Negative: there is no /dev/null to be opened. */
int lp_stdfds_hold(void) LP_MUST_CHECK;

#endif
