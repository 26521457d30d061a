/* SPDX-License-Identifier: Apache-2.0 */
/* The daemon as one object: devices, threads with their shards, doors, sockets.
 *
 * Threads: the control thread; lp_service_stop() too (a signal arrives by its reactor).
 * Blocking: open, run, close.
 * Errors: with one sentence in `why`, LP_WHY_MAX bytes.
 *
 * The thread that opens a service is its control thread. It accepts connections, answers the
 * administration, watches health, and never does a client's work. Each shard lives on one of the
 * other threads, one reactor each.
 *
 *   1. open() does what must be refused at once: devices, labels, the division of memory, sockets.
 *   2. start() begins the rest. From then on run() turns the control reactor. It returns when all
 *      has come to its end.
 *   3. stop() may be asked for at any time, also before ready().
 */
#ifndef LP_DAEMON_SERVICE_H
#define LP_DAEMON_SERVICE_H

#include "base/loop/reactor.h"
#include "daemon/config/config.h"

struct lp_service;

struct lp_service_options {
	const struct lp_config *config; /* copied */
	const char *server_name;        /* static: "lapisd 0.1.0 (glibc)" */
	uint32_t uid;                   /* whose sockets shall be; UINT32_MAX: as they are made */
	uint32_t gid;
	/* All shards serve, sockets are answered. */
	void (*ready)(void *arg);
	/* A stop has begun. */
	void (*stopping)(void *arg);
	void *arg;
};

int lp_service_open(const struct lp_service_options *options, struct lp_service **ret_service,
		    char *why) LP_MUST_CHECK;
/* Begins to open the shards. Signals that the control thread blocks are blocked in all others. */
int lp_service_start(struct lp_service *service, char *why) LP_MUST_CHECK;
/* Turns until a stop has ended. 0, or why the service could not start or not keep all. */
int lp_service_run(struct lp_service *service, char *why) LP_MUST_CHECK;
void lp_service_stop(struct lp_service *service);
/* What may change while it runs becomes as the configuration says, and the log tells what has: see
 * daemon/reload.h. Before it serves, or when it stops: false, and nothing is done. */
bool lp_service_reload(struct lp_service *service, const struct lp_config *config);
/* After run() has returned, or without start(). Accepts NULL. */
void lp_service_close(struct lp_service *service);

struct lp_reactor *lp_service_reactor(struct lp_service *service);

#endif
