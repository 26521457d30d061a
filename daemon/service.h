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
 *   1. open() does the parts whose errors must be reported at once: devices, labels, the division
 * of memory, sockets.
 *   2. start() begins the rest. From then on run() turns the control reactor. It returns when
 *      all has ended.
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
	uint32_t uid;                   /* owner of the sockets; UINT32_MAX: the process */
	uint32_t gid;
	/* All shards serve, and sockets are answered. */
	void (*ready)(void *arg);
	/* A stop has begun. */
	void (*stopping)(void *arg);
	void *arg;
};

int lp_service_open(const struct lp_service_options *options, struct lp_service **ret_service,
		    char *why) LP_MUST_CHECK;
/* Begins to open the shards. Signals that the control thread blocks are blocked in all others. */
int lp_service_start(struct lp_service *service, char *why) LP_MUST_CHECK;
/* Turns the reactor until a stop has ended. 0, or the reason why the service could not start or
 * could not keep everything. */
int lp_service_run(struct lp_service *service, char *why) LP_MUST_CHECK;
void lp_service_stop(struct lp_service *service);
/* Sets live options to the values of config; the log names each change: see daemon/reload.h. False:
 * the service does not serve yet, or stops, and nothing is done. */
bool lp_service_reload(struct lp_service *service, const struct lp_config *config);
/* After run() has returned, or without start(). Accepts NULL. */
void lp_service_close(struct lp_service *service);

struct lp_reactor *lp_service_reactor(struct lp_service *service);

#endif
