/* SPDX-License-Identifier: Apache-2.0 */
/* State for a service manager: a datagram to the socket that $NOTIFY_SOCKET names.
 *
 * Threads: any.
 * Blocking: none.
 * Errors: none that a daemon could handle.
 */
#ifndef LP_DAEMON_NOTIFY_H
#define LP_DAEMON_NOTIFY_H

#include "base/compiler.h"

/* path: of a unix socket, abstract if it begins with '@'; NULL: there is no service manager. state:
 * "READY=1". False if the datagram could not be sent. */
bool lpi_notify(const char *path, const char *state);

#endif
