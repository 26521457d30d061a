/* SPDX-License-Identifier: Apache-2.0 */
/* Session of a mount: made by libfuse, greeted by us, its descriptors, and its end.
 *
 * Threads: one at a time, none of those that serve requests.
 * Blocking: all of it; an unmount also waits for requests.
 * Errors: with one sentence in why, LP_FUSE_WHY_MAX bytes; -EINVAL: options that cannot be.
 *
 * open() mounts, reads the kernel's INIT and answers it. From then on requests come, and wait in
 * the kernel until a channel reads them. A Lapis mount in the same place whose daemon has gone is
 * taken away first.
 */
#ifndef LP_FUSE_MOUNT_SESSION_H
#define LP_FUSE_MOUNT_SESSION_H

#include "fuse/channel.h"

#define LP_FUSE_WHY_MAX     512u
#define LP_FUSE_OPTIONS_MAX 1024u

struct lp_fuse_session;

struct lp_fuse_session_options {
	const char *dir;     /* to be mounted on; copied */
	const char *source;  /* what the table of mounts shows; copied */
	const char *options; /* as after -o, with commas; NULL: none */
	bool is_only_door;   /* nothing changes but through the mount */
	/* Others than root change things in other ways, too: nosuid and nodev, unless the options
	 * say suid or dev. */
	bool is_for_others;
	/* What FUSE over io_uring may take of memory; 0: the rings of those who serve cannot do
	 * it. */
	uint64_t ring_bytes;
	const char *no_ring; /* static: why there is to be no FUSE over io_uring; NULL: there may */
};

/* What -o says, without a mount: -EINVAL. */
int lp_fuse_options_check(const char *options, char *why) LP_MUST_CHECK;
/* Whether they allow FUSE over io_uring. */
bool lp_fuse_options_want_ring(const char *options);

int lp_fuse_session_open(const struct lp_fuse_session_options *options,
			 struct lp_fuse_session **ret_session, char *why) LP_MUST_CHECK;
/* One more descriptor of the connection, which does not block. */
int lp_fuse_session_clone(struct lp_fuse_session *session, int *ret_fd) LP_MUST_CHECK;
void lp_fuse_session_behaviour(const struct lp_fuse_session *session,
			       struct lp_fuse_behaviour *ret_behaviour);
/* Where it is mounted, and the device; NULL: it gives nobody the rights of a program's owner, for
 * it is not root's. The session's. */
const char *lp_fuse_session_place(const struct lp_fuse_session *session, dev_t *ret_dev);
/* NULL: all goes by descriptors. The session's. */
struct lp_fuse_ring *lp_fuse_session_ring(const struct lp_fuse_session *session);
/* Whether the mount answers (rule M4): asks it for its root. Channels serve already. -ETIMEDOUT:
 * not by io_uring, for somebody keeps the entries from the kernel's FUSE; it is unmounted, and the
 * connection is ended. */
int lp_fuse_session_probe(struct lp_fuse_session *session) LP_MUST_CHECK;
/* The connection has come to its end, and not by an unmount, for the mount is still there. Touches
 * its path (rule M3). */
bool lp_fuse_session_is_dead(const struct lp_fuse_session *session);

/* Unmounts: waits so long for those who use it, then takes it out of their sight (-EBUSY, which is
 * no failure). Channels still serve; but with a ring those who use the mount get errors from then
 * on, for only the end of the connection takes back what the kernel was given. */
int lp_fuse_session_unmount(struct lp_fuse_session *session, uint64_t timeout_ns) LP_MUST_CHECK;
/* All channels have stopped. What still uses the mount gets an error. Accepts NULL. */
void lp_fuse_session_close(struct lp_fuse_session *session);

#endif
