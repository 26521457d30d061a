/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets: unix and TCP.
 *
 * Threads: open and close by any, while nothing runs. Between start and stop all belongs to the
 *   reactor's thread.
 * Blocking: open, close.
 * Memory: allocated by open only.
 * Errors: with a sentence.
 *
 *   - Unix: the socket's directory is made if it is missing (one level). A socket that a dead
 *     daemon left at the path is replaced, one of a living daemon is not. A lock on PATH.lock, held
 *     as long as the socket is there, tells the two apart without a race. The socket's mode says
 *     who may connect. So do lists of users and groups, which are compared with the peer's
 *     credentials.
 *   - TCP: addresses of this machine only, because there is no authentication yet.
 */
#ifndef LP_DAEMON_LISTEN_H
#define LP_DAEMON_LISTEN_H

#include <netinet/in.h>
#include <sys/types.h>
#include <sys/un.h>

#include "base/loop/reactor.h"
#include "daemon/config/why.h"
#include "native/conn.h"

#define LP_ACCESS_MAX 64u /* users, and groups */

struct lp_address {
	socklen_t len;
	union {
		struct sockaddr any;
		struct sockaddr_un un;
		struct sockaddr_in in;
		struct sockaddr_in6 in6;
	};
};

/* "unix:PATH", "tcp:HOST:PORT" with a numeric host, [in brackets] if it is IPv6, or localhost. */
int lp_address_parse(const char *text, struct lp_address *ret_address, char *why) LP_MUST_CHECK;

/* The users and groups that may use a unix socket. If it is empty, the socket's mode alone decides.
 * Root and the daemon's own user always may. */
struct lp_access {
	uint32_t uids[LP_ACCESS_MAX];
	uint32_t gids[LP_ACCESS_MAX];
	uint32_t uid_cnt;
	uint32_t gid_cnt;
};

/* groups: all groups of the peer. */
bool lp_access_allows(const struct lp_access *access, uint32_t uid, const uint32_t *groups,
		      uint32_t group_cnt);

/* Whether users other than root and the members of root's group may connect, by a socket of this
 * mode, owner and group. If there are lists, they decide. */
bool lp_access_is_for_others(const struct lp_access *access, mode_t mode, uid_t uid, gid_t gid);

struct lp_listener;

struct lp_listener_options {
	struct lp_address address;
	mode_t mode; /* of a unix socket */
	uid_t uid;   /* owner of the socket and its directory; (uid_t)-1: the process's */
	gid_t gid;
	struct lp_access access;
	uint32_t buffer_bytes; /* of a connection's socket, each way; 0: the default of its kind */
	bool waits_for_acks;   /* TCP without TCP_NODELAY */
};

/* Bound, but connections are not accepted yet. */
int lp_listener_open(const struct lp_listener_options *options, struct lp_listener **ret_listener,
		     char *why) LP_MUST_CHECK;
/* "unix:/run/lapis/lapis.sock", or "tcp:127.0.0.1:7000" with the port that it got. */
const char *lp_listener_name(const struct lp_listener *listener);
bool lp_listener_is_unix(const struct lp_listener *listener);
/* The same for an open listener; by TCP any user may connect. */
bool lp_listener_lets_others_in(const struct lp_listener *listener);

/* Calls accepted() with each connected socket. A peer that may not connect is disconnected before.
 */
int lp_listener_start(struct lp_listener *listener, struct lp_reactor *reactor,
		      void (*accepted)(void *arg, int fd, const struct lp_peer *peer),
		      void *arg) LP_MUST_CHECK;
/* Stops accepting. The listener may be closed once lp_listener_is_idle(), some turns later. */
void lp_listener_stop(struct lp_listener *listener);
bool lp_listener_is_idle(const struct lp_listener *listener);
/* Accepts NULL. Removes a unix socket. */
void lp_listener_close(struct lp_listener *listener);

/* Number of connections closed because the peer was not allowed. */
uint64_t lp_listener_refused(const struct lp_listener *listener);

#endif
