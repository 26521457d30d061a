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

/* Zeroed: there is none. */
struct lpi_mount {
	struct lp_service *service;
	struct lp_work work;
	struct lp_fuse_session *session;
	struct lp_workers *waiter;                              /* one thread: the mount's own */
	struct lp_workers *notifier;                            /* one thread */
	struct lp_workers *launderer;                           /* one thread */
	struct lp_workers *dropper;                             /* some threads */
	struct lp_fuse_channel *channels[LP_FUSE_CHANNELS_MAX]; /* by thread */
	void (*next)(struct lp_service *service, int result);
	int result;
	const char *no_ring; /* why there is to be no FUSE over io_uring; NULL: there may */
	bool is_again;       /* when it has stopped it is made once more */
	bool is_starting;
	bool is_dead; /* when it was to be unmounted its connection had ended already */
	char why[LP_WHY_MAX];
	struct lp_msg gone;   /* to the control thread */
	_Atomic bool is_gone; /* any thread's: it is being unmounted, or was by somebody else */
};

/* Whether the mount there is to be may be served by io_uring, which wants rings that are made for
 * that. */
bool lpi_mount_wants_ring(const struct lp_config *config);
/* Does all of it, or nothing; next() gets 0 or why not, with the words in the service's why. At
 * once if the configuration has no mount. */
void lpi_mount_start(struct lp_service *service,
		     void (*next)(struct lp_service *service, int result));
/* Also when none was made. */
void lpi_mount_stop(struct lp_service *service,
		    void (*next)(struct lp_service *service, int result));

#endif
