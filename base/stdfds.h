/* SPDX-License-Identifier: Apache-2.0 */
/* Placeholders for standard input, output and error that were closed at the start.
 *
 * Threads: before there are others.
 * Blocking, memory: none.
 *
 * If one of them stayed closed, the next opened file would get its number. Printed text would then
 * be written into that file: a device with a store, or a peer's socket.
 */
#ifndef LP_BASE_STDFDS_H
#define LP_BASE_STDFDS_H

#include "base/compiler.h"

/* Called first of all in main() of programs that open devices or sockets. Afterwards each of the
 * three is open. One that was closed can neither be read nor written, -EBADF as before. So a
 * missing input does not look empty, and a lost output is noticed. The placeholders stay open over
 * an exec. Negative: /dev/null cannot be opened. */
int lp_stdfds_hold(void) LP_MUST_CHECK;

#endif
