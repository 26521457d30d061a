/* SPDX-License-Identifier: Apache-2.0 */
/* Standard input, output and error that whoever started the program has closed: the next thing that
 * is opened would have the number of one of them, and what is printed would be written there, into
 * a device with a store, or to a peer.
 *
 * Threads: before there are others. Blocking, allocation: none.
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
