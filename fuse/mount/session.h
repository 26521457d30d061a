/* SPDX-License-Identifier: Apache-2.0 */
/* Session of a mount: made by libfuse, greeted by us, its descriptors, and its end.
 *
 * Threads: one at a time, none of those that serve requests.
 * Blocking: all of it; an unmount also waits for requests.
 * Errors: with one sentence in why, LP_FUSE_WHY_MAX bytes; -EINVAL: options that cannot be.
 *
 * open() mounts, reads the kernel's INIT and answers it. From then on requests come, and wait in
 * the kernel until a channel reads them. If a Lapis mount without its daemon is in the same place,
 * it is unmounted first.
 */
#ifndef LP_FUSE_MOUNT_SESSION_H
#define LP_FUSE_MOUNT_SESSION_H

#include "fuse/channel.h"

#define LP_FUSE_WHY_MAX     512u
#define LP_FUSE_OPTIONS_MAX 1024u

struct lp_fuse_session;

struct lp_fuse_session_options {
	const char *dir;     /* to be mounted on; copied */
	const char *source;  /* source in the table of mounts; copied */
	const char *options; /* as after -o, with commas; NULL: none */
	bool is_only_door;   /* all changes come through the mount */
	/* Users other than root also change things in other ways. Then the mount has nosuid and
	 * nodev, unless the options say suid or dev. */
	bool is_for_others;
	/* Memory that FUSE over io_uring may take; 0: the rings of the serving threads cannot do
	 * it. */
	uint64_t ring_bytes;
	const char
		*no_ring; /* static: the reason against FUSE over io_uring; NULL: it is allowed */
};

/* Checks options without a mount: -EINVAL. */
int lp_fuse_options_check(const char *options, char *why) LP_MUST_CHECK;
/* Whether the options allow FUSE over io_uring. */
bool lp_fuse_options_want_ring(const char *options);

int lp_fuse_session_open(const struct lp_fuse_session_options *options,
			 struct lp_fuse_session **ret_session, char *why) LP_MUST_CHECK;
/* One more descriptor of the connection, which does not block. */
int lp_fuse_session_clone(struct lp_fuse_session *session, int *ret_fd) LP_MUST_CHECK;
void lp_fuse_session_behaviour(const struct lp_fuse_session *session,
			       struct lp_fuse_behaviour *ret_behaviour);
/* The directory of the mount, and its device; owned by the session. NULL: the mount is not root's,
 * so it gives no program the rights of its owner. */
const char *lp_fuse_session_place(const struct lp_fuse_session *session, dev_t *ret_dev);
/* NULL: all requests come by descriptors. The session owns it. */
struct lp_fuse_ring *lp_fuse_session_ring(const struct lp_fuse_session *session);
/* Whether the mount answers a request for its root (rule M4). Channels serve already. -ETIMEDOUT:
 * it does not answer by io_uring, because something keeps the entries from the kernel's FUSE. The
 * mount is then unmounted, and the connection ended. */
int lp_fuse_session_probe(struct lp_fuse_session *session) LP_MUST_CHECK;
/* Whether the connection has ended without an unmount, so that the mount is still there. Touches
 * its path (rule M3). */
bool lp_fuse_session_is_dead(const struct lp_fuse_session *session);

/* Unmounts. Waits up to timeout_ns for programs that use the mount, then detaches it (-EBUSY, which
 * is no failure). Channels still serve. But with a ring those programs get errors from then on,
 * because only the end of the connection takes back the entries that the kernel was given. */
int lp_fuse_session_unmount(struct lp_fuse_session *session, uint64_t timeout_ns) LP_MUST_CHECK;
/* All channels have stopped. Programs that still use the mount get errors. Accepts NULL. */
void lp_fuse_session_close(struct lp_fuse_session *session);

#endif
