/* SPDX-License-Identifier: Apache-2.0 */
/* The mount of a service: made when all shards serve, gone before they stop.
 *
 * Threads: the control thread, except where a step says otherwise.
 * Blocking: on helpers and on a thread of its own.
 *
 *   open     on a helper: libfuse mounts, the kernel is greeted
 *   make     on each thread: a channel
 *   start    on each thread: it reads requests, from a descriptor of its own
 *   probe    on its own thread: the mount answers (rule M4). If it does not by io_uring, all of
 *            this is undone and done again without
 *   ...
 *   unmount  on its own thread: waits for the mount's users, with a limit
 *   stop     on each thread: what was asked is answered, and the descriptor closed
 */
#ifndef LP_DAEMON_MOUNT_H
#define LP_DAEMON_MOUNT_H

#include <stdatomic.h>

#include "base/loop/workers.h"
#include "daemon/config/why.h"
#include "fuse/mount/session.h"

struct lp_config;
struct lp_service;
struct lpi_errand;

static_assert(LP_FUSE_WHY_MAX <= LP_WHY_MAX, "a sentence of the mount is one of ours");

/* Zeroed: there is no mount. */
struct lpi_mount {
	struct lp_service *service;
	struct lp_work work;
	struct lp_fuse_session *session;
	struct lp_workers *waiter;                              /* one thread: the mount's own */
	struct lp_workers *notifier;                            /* one thread */
	struct lp_workers *launderer;                           /* one thread */
	struct lp_workers *dropper;                             /* several threads */
	struct lp_fuse_channel *channels[LP_FUSE_CHANNELS_MAX]; /* by thread */
	void (*next)(struct lp_service *service, int result);
	int result;
	const char *no_ring; /* the reason against FUSE over io_uring; NULL: it is allowed */
	bool is_again;       /* the mount is made again when it has stopped */
	bool is_starting;
	bool is_dead; /* its connection had ended before it was to be unmounted */
	char why[LP_WHY_MAX];
	struct lp_msg gone; /* to the control thread */
	_Atomic bool
		is_gone; /* any thread's: it is being unmounted, by the daemon or another process */
};

/* Whether the mount may be served by io_uring, which needs rings that are made for it. */
bool lpi_mount_wants_ring(const struct lp_config *config);
/* Makes the whole mount, or none of it. next() gets 0 or the error, with a sentence in the
 * service's why. It is called at once if the configuration has no mount. */
void lpi_mount_start(struct lp_service *service,
		     void (*next)(struct lp_service *service, int result));
/* Also if there is no mount. */
void lpi_mount_stop(struct lp_service *service,
		    void (*next)(struct lp_service *service, int result));

#endif
