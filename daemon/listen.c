/* SPDX-License-Identifier: Apache-2.0 */
/* Between the check that a socket is dead and its removal another daemon could make its own socket
 * there. So both are done under the lock. Only the holder of the lock removes the lock's file. A
 * daemon that takes the lock checks whether it is still on the file with that name.
 *
 * One accept is in flight at a time. When it completes, all waiting connections are taken with it.
 * When the process has no descriptor left, the accept is tried again after RETRY_NS; the client
 * waits in the backlog.
 */
#include "daemon/listen.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/log.h"
#include "base/units.h"

#define BACKLOG        1024
#define SEND_BYTES     (1 << 20) /* as much as one send of a door, LPI_SEND_BYTES */
#define ACCEPTS_MAX    64u       /* in one turn, of one listener */
#define RETRY_NS       (100 * LP_NS_PER_MS)
#define LOCK_TRIES_MAX 16u
/* The kernel frees the port, or socket, of a killed process only some time after its end. */
#define BUSY_TRIES   20u
#define BUSY_WAIT_US 50000u
#define GROUPS_MAX   1024u

struct lp_listener {
	struct lp_listener_options options;
	char name[160];
	char lock_path[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 8];
	int fd;
	int lock_fd;                /* -1: none */
	struct stat made;           /* the unix socket's file */
	struct lp_reactor *reactor; /* NULL: not started */
	struct lp_io io;
	struct lp_io cancel;
	struct lp_timer retry;
	bool is_stopping;
	uint64_t refused;
	void (*accepted)(void *arg, int fd, const struct lp_peer *peer);
	void *arg;
};

/* --- Addresses -------------------------------------------------------------------------------- */

static int parse_unix(const char *path, struct lp_address *address, char *why)
{
	size_t len = strlen(path);
	if (len == 0)
		return lpi_refuse(why, -EINVAL, "unix: needs a path: unix:PATH");
	/* The name of its lock is longer. */
	if (len >= sizeof(address->un.sun_path))
		return lpi_refuse(why, -EINVAL, "unix:%.100s...: longer than %zu bytes", path,
				  sizeof(address->un.sun_path) - 1);
	address->un.sun_family = AF_UNIX;
	memcpy(address->un.sun_path, path, len + 1);
	address->len = sizeof(address->un);
	return 0;
}

static bool is_this_machine(const struct lp_address *address)
{
	if (address->any.sa_family == AF_INET)
		return ntohl(address->in.sin_addr.s_addr) >> 24 == 127;
	return memcmp(&address->in6.sin6_addr, &in6addr_loopback, sizeof(in6addr_loopback)) == 0;
}

/* Cuts "HOST:PORT" or "[HOST]:PORT". */
static int split_host(const char *text, char *ret_host, size_t len, const char **ret_port)
{
	bool in_brackets = text[0] == '[';
	const char *end = in_brackets ? strstr(text, "]:") : strchr(text, ':');
	const char *begin = text + in_brackets;
	if (end == NULL || (size_t)(end - begin) >= len)
		return -EINVAL;
	memcpy(ret_host, begin, (size_t)(end - begin));
	ret_host[end - begin] = '\0';
	*ret_port = end + 1 + in_brackets;
	return 0;
}

static int parse_tcp(const char *text, struct lp_address *address, char *why)
{
	char host[64];
	const char *port;
	uint64_t port_nr;
	if (split_host(text, host, sizeof(host), &port) < 0 ||
	    lp_parse_number(port, 0, UINT16_MAX, &port_nr) < 0)
		return lpi_refuse(why, -EINVAL, "tcp:%.100s is not of the form tcp:HOST:PORT",
				  text);
	if (strcmp(host, "localhost") == 0)
		(void)snprintf(host, sizeof(host), "127.0.0.1");
	if (inet_pton(AF_INET, host, &address->in.sin_addr) == 1) {
		address->in.sin_family = AF_INET;
		address->in.sin_port = htons((uint16_t)port_nr);
		address->len = sizeof(address->in);
	} else if (inet_pton(AF_INET6, host, &address->in6.sin6_addr) == 1) {
		address->in6.sin6_family = AF_INET6;
		address->in6.sin6_port = htons((uint16_t)port_nr);
		address->len = sizeof(address->in6);
	} else {
		return lpi_refuse(why, -EINVAL, "tcp:%.100s: the host must be a numeric address",
				  text);
	}
	if (is_this_machine(address))
		return 0;
	return lpi_refuse(why, -EINVAL,
			  "tcp:%.100s: only 127.0.0.1 and [::1] can be listened on: clients on "
			  "other machines need an authentication that this version does not have",
			  text);
}

int lp_address_parse(const char *text, struct lp_address *ret_address, char *why)
{
	struct lp_address address = {.len = 0};
	int err;
	if (strncmp(text, "unix:", 5) == 0)
		err = parse_unix(text + 5, &address, why);
	else if (strncmp(text, "tcp:", 4) == 0)
		err = parse_tcp(text + 4, &address, why);
	else
		err = lpi_refuse(why, -EINVAL, "%.100s is neither unix:PATH nor tcp:HOST:PORT",
				 text);
	if (err == 0)
		*ret_address = address;
	return err;
}

static void name_address(const struct lp_address *address, char *buf, size_t len)
{
	char host[INET6_ADDRSTRLEN] = "";
	if (address->any.sa_family == AF_UNIX) {
		(void)snprintf(buf, len, "unix:%s", address->un.sun_path);
	} else if (address->any.sa_family == AF_INET) {
		(void)inet_ntop(AF_INET, &address->in.sin_addr, host, sizeof(host)); /* fits */
		(void)snprintf(buf, len, "tcp:%s:%u", host, ntohs(address->in.sin_port));
	} else {
		(void)inet_ntop(AF_INET6, &address->in6.sin6_addr, host, sizeof(host)); /* fits */
		(void)snprintf(buf, len, "tcp:[%s]:%u", host, ntohs(address->in6.sin6_port));
	}
}

/* --- Access ----------------------------------------------------------------------------------- */

static bool is_among(uint32_t id, const uint32_t *ids, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (ids[i] == id)
			return true;
	}
	return false;
}

bool lp_access_allows(const struct lp_access *access, uint32_t uid, const uint32_t *groups,
		      uint32_t group_cnt)
{
	if (access->uid_cnt + access->gid_cnt == 0 || uid == 0 || uid == geteuid())
		return true;
	if (is_among(uid, access->uids, access->uid_cnt))
		return true;
	for (uint32_t i = 0; i < group_cnt; i++) {
		if (is_among(groups[i], access->gids, access->gid_cnt))
			return true;
	}
	return false;
}

static bool has_other_than_root(const uint32_t *ids, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (ids[i] != 0)
			return true;
	}
	return false;
}

bool lp_access_is_for_others(const struct lp_access *access, mode_t mode, uid_t uid, gid_t gid)
{
	if (access->uid_cnt + access->gid_cnt > 0)
		return has_other_than_root(access->uids, access->uid_cnt) ||
		       has_other_than_root(access->gids, access->gid_cnt);
	return (mode & S_IWOTH) != 0 || ((mode & S_IWGRP) != 0 && gid != 0) ||
	       ((mode & S_IWUSR) != 0 && uid != 0);
}

static bool allows(const struct lp_listener *listener, int fd, const struct ucred *peer)
{
	uint32_t groups[GROUPS_MAX + 1];
	socklen_t len = GROUPS_MAX * sizeof(groups[0]);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &len) < 0)
		len = 0; /* in more groups than any system allows: the first one counts */
	uint32_t cnt = (uint32_t)(len / sizeof(groups[0]));
	groups[cnt++] = peer->gid;
	return lp_access_allows(&listener->options.access, peer->uid, groups, cnt);
}

/* --- Opening ---------------------------------------------------------------------------------- */

static int give(const struct lp_listener *listener, const char *path)
{
	const struct lp_listener_options *options = &listener->options;
	if (options->uid == (uid_t)-1 || geteuid() != 0)
		return 0;
	return chown(path, options->uid, options->gid) < 0 ? -errno : 0;
}

static int make_directory(struct lp_listener *listener, char *why)
{
	char dir[sizeof(listener->lock_path)];
	(void)snprintf(dir, sizeof(dir), "%s", listener->options.address.un.sun_path);
	char *slash = strrchr(dir, '/');
	if (slash == NULL || slash == dir)
		return 0;
	*slash = '\0';
	int err = mkdir(dir, 0755) < 0 ? -errno : give(listener, dir);
	if (err == 0 || err == -EEXIST)
		return 0;
	return lpi_refuse(why, err, "%s: cannot make its directory: %s", listener->name,
			  lp_strerror(err));
}

/* 1: the lock is on a file that has lost its name, and must be taken again. */
static int try_lock(struct lp_listener *listener)
{
	struct stat held;
	struct stat named;
	int fd = open(listener->lock_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
	if (r == 0 && fstat(fd, &held) < 0)
		r = -errno;
	if (r == 0 && (stat(listener->lock_path, &named) < 0 || named.st_ino != held.st_ino ||
		       named.st_dev != held.st_dev))
		r = 1;
	if (r == 0)
		r = give(listener, listener->lock_path);
	if (r != 0)
		(void)close(fd); /* nothing was written */
	else
		listener->lock_fd = fd;
	return r;
}

static int lock(struct lp_listener *listener, char *why)
{
	int r = 1;
	for (unsigned i = 0; i < LOCK_TRIES_MAX && r == 1; i++)
		r = try_lock(listener);
	if (r == 0)
		return 0;
	if (r == 1 || r == -EWOULDBLOCK)
		return lpi_refuse(why, -EADDRINUSE,
				  "%s: another daemon listens there (stop it, or use another "
				  "address)",
				  listener->name);
	return lpi_refuse(why, r, "%s: %s: %s", listener->name, listener->lock_path,
			  lp_strerror(r));
}

/* Whether a process without a lock listens there. */
static bool is_alive(const struct lp_address *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return true;
	bool is_refused = connect(fd, &address->any, address->len) < 0 && errno == ECONNREFUSED;
	(void)close(fd); /* nothing was sent */
	return !is_refused;
}

static int clear_path(struct lp_listener *listener, char *why)
{
	const char *path = listener->options.address.un.sun_path;
	struct stat there;
	if (lstat(path, &there) < 0)
		return errno == ENOENT ? 0
				       : lpi_refuse(why, -errno, "%s: %s", listener->name,
						    lp_strerror(errno));
	if (!S_ISSOCK(there.st_mode))
		return lpi_refuse(why, -EEXIST,
				  "%s: a file that is not a socket is in the way (remove it)",
				  listener->name);
	bool is_in_use = is_alive(&listener->options.address);
	for (unsigned i = 1; i < BUSY_TRIES && is_in_use; i++) {
		(void)usleep(BUSY_WAIT_US); /* a shorter pause only checks once more */
		is_in_use = is_alive(&listener->options.address);
	}
	if (is_in_use)
		return lpi_refuse(
			why, -EADDRINUSE,
			"%s: another program listens there (stop it, or use another address)",
			listener->name);
	if (unlink(path) < 0)
		return lpi_refuse(why, -errno, "%s: cannot remove the socket of a dead daemon: %s",
				  listener->name, lp_strerror(errno));
	LP_LOG_NOTICE("%s: replaced the socket of a daemon that is gone", listener->name);
	return 0;
}

static int bind_unix(struct lp_listener *listener)
{
	const struct lp_address *address = &listener->options.address;
	const char *path = address->un.sun_path;
	/* No user may connect before the socket has its owner and mode. */
	mode_t mask = umask(0777);
	int err = bind(listener->fd, &address->any, address->len) < 0 ? -errno : 0;
	(void)umask(mask); /* never fails */
	if (err < 0)
		return err;
	if (lstat(path, &listener->made) < 0)
		return -errno;
	err = give(listener, path);
	if (err == 0 && chmod(path, listener->options.mode) < 0)
		err = -errno;
	return err;
}

static int bind_tcp(struct lp_listener *listener)
{
	struct lp_address *address = &listener->options.address;
	const int on = 1;
	int err = -EADDRINUSE;
	if (setsockopt(listener->fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) < 0)
		return -errno;
	for (unsigned i = 0; i < BUSY_TRIES && err == -EADDRINUSE; i++) {
		if (i > 0)
			(void)usleep(BUSY_WAIT_US); /* a shorter pause only tries once more */
		err = bind(listener->fd, &address->any, address->len) < 0 ? -errno : 0;
	}
	if (err < 0)
		return err;
	/* Only listen() fails if two sockets are bound to one port. */
	if (listen(listener->fd, BACKLOG) < 0 ||
	    getsockname(listener->fd, &address->any, &address->len) < 0)
		return -errno;
	name_address(address, listener->name, sizeof(listener->name));
	return 0;
}

/* For TCP the listening socket needs the buffers, because the window of a connection is agreed on
 * before it is accepted. For a unix socket the connection needs them. */
static int set_buffers(const struct lp_listener *listener, int fd)
{
	const int bytes = (int)listener->options.buffer_bytes;
	const int send_bytes = SEND_BYTES;
	if (bytes == 0) {
		/* Otherwise a send by a unix socket is cut into pieces of 208 KiB, and each waits
		 * until three quarters of the one before have been read. TCP finds its own size.
		 * The host may allow less. */
		if (lp_listener_is_unix(listener))
			(void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &send_bytes,
					 sizeof(send_bytes));
		return 0;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes)) < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) < 0)
		return -errno;
	return 0;
}

static int open_socket(struct lp_listener *listener, char *why)
{
	bool is_unix = lp_listener_is_unix(listener);
	int err = is_unix ? make_directory(listener, why) : 0;
	if (err == 0 && is_unix)
		err = lock(listener, why);
	if (err == 0 && is_unix)
		err = clear_path(listener, why);
	if (err < 0)
		return err;
	listener->fd =
		socket(listener->options.address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	err = listener->fd < 0 ? -errno : set_buffers(listener, listener->fd);
	if (err == 0)
		err = is_unix ? bind_unix(listener) : bind_tcp(listener);
	if (err == -EADDRINUSE)
		return lpi_refuse(why, err,
				  "%s: the address is in use (stop the program there, or use "
				  "another address)",
				  listener->name);
	return err < 0 ? lpi_refuse(why, err, "%s: %s", listener->name, lp_strerror(err)) : 0;
}

int lp_listener_open(const struct lp_listener_options *options, struct lp_listener **ret_listener,
		     char *why)
{
	struct lp_listener *listener = calloc(1, sizeof(*listener));
	if (listener == NULL)
		return lpi_refuse(why, -ENOMEM, "out of memory for a socket");
	listener->options = *options;
	listener->fd = -1;
	listener->lock_fd = -1;
	name_address(&options->address, listener->name, sizeof(listener->name));
	if (lp_listener_is_unix(listener))
		(void)snprintf(listener->lock_path, sizeof(listener->lock_path), "%s.lock",
			       options->address.un.sun_path);
	int err = open_socket(listener, why);
	if (err < 0) {
		lp_listener_close(listener);
		return err;
	}
	*ret_listener = listener;
	return 0;
}

static void remove_socket(const struct lp_listener *listener)
{
	struct stat there;
	const char *path = listener->options.address.un.sun_path;
	if (listener->made.st_ino != 0 && lstat(path, &there) == 0 &&
	    there.st_ino == listener->made.st_ino && there.st_dev == listener->made.st_dev)
		(void)unlink(path);        /* the next daemon replaces a file that stays */
	(void)unlink(listener->lock_path); /* the same */
}

void lp_listener_close(struct lp_listener *listener)
{
	if (listener == NULL)
		return;
	LP_ASSERT(lp_listener_is_idle(listener));
	if (listener->fd >= 0)
		(void)close(listener->fd); /* nothing was written */
	if (listener->lock_fd >= 0) {
		remove_socket(listener);
		(void)close(listener->lock_fd); /* the same */
	}
	free(listener);
}

/* --- Accepting -------------------------------------------------------------------------------- */

static void accept_next(struct lp_listener *listener);

static void name_peer(const struct lp_listener *listener, int fd, struct lp_peer *peer)
{
	struct lp_address address = {.len = sizeof(address.in6)};
	if (peer->is_unix) {
		(void)snprintf(peer->address, sizeof(peer->address), "uid %u, process %d",
			       peer->uid, peer->pid);
		return;
	}
	char name[160];
	(void)snprintf(name, sizeof(name), "%s", listener->name);
	if (getpeername(fd, &address.any, &address.len) == 0)
		name_address(&address, name, sizeof(name));
	(void)snprintf(peer->address, sizeof(peer->address), "%.63s", name);
}

/* The user that the connection counts for. By TCP only the peer's address is known. */
static struct lp_who whom(bool is_unix, int fd, const struct ucred *cred)
{
	struct lp_address address = {.len = sizeof(address.in6)};
	if (is_unix)
		return lp_who_user(cred->uid, cred->uid == 0 || cred->uid == geteuid());
	/* The peer has gone again already, so the connection counts for no address. */
	if (getpeername(fd, &address.any, &address.len) < 0)
		address.any.sa_family = AF_UNSPEC;
	return lp_who_address(&address.any);
}

static int look_at_peer(struct lp_listener *listener, int fd, struct lp_peer *ret_peer)
{
	struct ucred cred = {.uid = geteuid(), .gid = getegid(), .pid = 0};
	socklen_t len = sizeof(cred);
	const int on = 1;
	bool is_unix = lp_listener_is_unix(listener);
	if (is_unix && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
		return -errno;
	if (!is_unix && !listener->options.waits_for_acks &&
	    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) < 0)
		return -errno;
	int err = set_buffers(listener, fd);
	if (err < 0)
		return err;
	*ret_peer = (struct lp_peer){
		.is_unix = is_unix, .uid = cred.uid, .gid = cred.gid, .pid = cred.pid};
	name_peer(listener, fd, ret_peer);
	ret_peer->who = whom(is_unix, fd, &cred);
	if (!is_unix || allows(listener, fd, &cred))
		return 0;
	LP_LOG_WARN("%s: %s may not connect (allow-uids, allow-gids)", listener->name,
		    ret_peer->address);
	return -EACCES;
}

static void take(struct lp_listener *listener, int fd)
{
	struct lp_peer peer;
	int err = listener->is_stopping ? -ECANCELED : look_at_peer(listener, fd, &peer);
	if (err < 0) {
		listener->refused += err == -EACCES;
		(void)close(fd); /* nothing was written */
		return;
	}
	listener->accepted(listener->arg, fd, &peer);
}

/* Takes all other waiting connections at once. Otherwise a client that connects again and again
 * would fill the backlog, in which all clients wait. This never blocks: nothing else accepts from
 * the backlog, and a client that has gone stays in it. */
static void take_waiting(struct lp_listener *listener)
{
	for (unsigned i = 0; i < ACCEPTS_MAX && !listener->is_stopping; i++) {
		struct pollfd ready = {.fd = listener->fd, .events = POLLIN};
		if (poll(&ready, 1, 0) <= 0)
			return;
		int fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC);
		if (fd < 0)
			return; /* the next accept reports the reason */
		take(listener, fd);
	}
}

static void accept_done(struct lp_io *io)
{
	struct lp_listener *listener = LP_CONTAINER_OF(io, struct lp_listener, io);
	if (io->result >= 0) {
		take(listener, io->result);
		take_waiting(listener);
	}
	if (listener->is_stopping)
		return;
	if (io->result >= 0 || io->result == -ECONNABORTED || io->result == -EINTR) {
		accept_next(listener);
		return;
	}
	LP_LOG_WARN("%s: cannot accept: %s", listener->name, lp_strerror(io->result));
	lp_timer_start(listener->reactor, &listener->retry,
		       lp_reactor_now_ns(listener->reactor) + RETRY_NS);
}

static void accept_next(struct lp_listener *listener)
{
	struct io_uring_sqe *sqe = lp_reactor_sqe(listener->reactor, &listener->io);
	io_uring_prep_accept(sqe, listener->fd, NULL, NULL, SOCK_CLOEXEC);
}

static void retry_now(struct lp_timer *timer)
{
	accept_next(LP_CONTAINER_OF(timer, struct lp_listener, retry));
}

static void cancel_done(struct lp_io *io)
{
	(void)io; /* the accept's own completion has its result */
}

int lp_listener_start(struct lp_listener *listener, struct lp_reactor *reactor,
		      void (*accepted)(void *arg, int fd, const struct lp_peer *peer), void *arg)
{
	LP_ASSERT(listener->reactor == NULL);
	if (listen(listener->fd, BACKLOG) < 0)
		return -errno;
	listener->reactor = reactor;
	listener->accepted = accepted;
	listener->arg = arg;
	listener->io.complete = accept_done;
	listener->cancel.complete = cancel_done;
	listener->retry.fire = retry_now;
	accept_next(listener);
	return 0;
}

void lp_listener_stop(struct lp_listener *listener)
{
	if (listener->reactor == NULL || listener->is_stopping)
		return;
	listener->is_stopping = true;
	lp_timer_stop(listener->reactor, &listener->retry);
	if (lp_io_is_idle(&listener->io))
		return;
	struct io_uring_sqe *sqe = lp_reactor_sqe(listener->reactor, &listener->cancel);
	io_uring_prep_cancel(sqe, &listener->io, 0);
}

bool lp_listener_is_idle(const struct lp_listener *listener)
{
	return lp_io_is_idle(&listener->io) && lp_io_is_idle(&listener->cancel) &&
	       (listener->reactor == NULL || listener->is_stopping);
}

const char *lp_listener_name(const struct lp_listener *listener)
{
	return listener->name;
}

bool lp_listener_is_unix(const struct lp_listener *listener)
{
	return listener->options.address.any.sa_family == AF_UNIX;
}

bool lp_listener_lets_others_in(const struct lp_listener *listener)
{
	struct stat st;
	if (!lp_listener_is_unix(listener))
		return true;
	/* The directory may have given the socket another group. */
	if (stat(listener->options.address.un.sun_path, &st) < 0)
		return true;
	return lp_access_is_for_others(&listener->options.access, st.st_mode, st.st_uid, st.st_gid);
}

uint64_t lp_listener_refused(const struct lp_listener *listener)
{
	return listener->refused;
}
