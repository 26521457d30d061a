/* SPDX-License-Identifier: Apache-2.0 */
/* FUSE channel: one thread's end of a mount, which reads requests and answers them.
 *
 * Threads: a channel belongs to its reactor's thread. All channels are made before any of them
 *   serves.
 * Blocking: none, except what the kernel does in a read or write of /dev/fuse.
 * Memory: allocated in new only.
 * Errors: -ENOMEM.
 * Limits: LP_FUSE_CHANNELS_MAX, LP_FUSE_REQUESTS_MAX of a channel, LP_FUSE_CHANNEL_STORES.
 *
 * A channel reads the kernel's requests from a descriptor of its own, turns each into operations of
 * the namespace, and answers on the same descriptor. All channels of a mount have descriptors of
 * one connection, so any of them may get any request. A channel first has all that a request needs
 * (a place in the pool, buffers for its data), then reads it. A channel without them does not read,
 * and the kernel's queue is the throttle. Where the kernel has FUSE over io_uring, most requests
 * come by that (fuse/ring.h). The descriptor then carries only the others.
 */
#ifndef LP_FUSE_CHANNEL_H
#define LP_FUSE_CHANNEL_H

#include <sys/types.h>

#include "base/struct/hist.h"
#include "base/struct/slow.h"
#include "base/under_way.h"
#include "fuse/proto.h"
#include "namespace/ns.h"

#define LP_FUSE_CHANNELS_MAX   64u
#define LP_FUSE_REQUESTS_MAX   256u /* at work on one channel, unless options say otherwise */
#define LP_FUSE_CHANNEL_STORES 64u
/* Of the kernel's requests by AIO and of readahead, at a time. */
#define LP_FUSE_BACKGROUND_MAX 512u

struct lp_devices;
struct lp_fuse_ring;
struct lp_workers;
struct lp_fuse_channel;

/* How the mount behaves; the same for all its channels. */
struct lp_fuse_behaviour {
	bool sync;           /* each change is durable when it is answered */
	uint32_t squash_uid; /* owner of new inodes; UINT32_MAX: the caller's */
	uint32_t squash_gid;
	bool no_atime; /* at the start: a remount may ask for others */
	bool no_diratime;
	bool strict_atime; /* each read counts */
	bool writeback; /* the kernel gathers writes, and keeps sizes and times of open files itself
			 */
	bool is_only_door;   /* all changes come through the mount */
	bool maps_direct;    /* the kernel may map files that it reads without its cache */
	bool no_selinux;     /* the kernel has no SELinux, and does not use labels */
	uint64_t entry_ns;   /* how long the kernel may believe a name */
	uint64_t attr_ns;    /* how long it may believe attributes */
	uint64_t inodes_max; /* inodes that the kernel is to remember; 0: no limit */
};

struct lp_fuse_channel_options {
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	struct lp_ns *ns; /* a namespace of this thread */
	/* This thread's stores, for statfs, and its namespaces. */
	struct lp_store *stores[LP_FUSE_CHANNEL_STORES];
	struct lp_ns *nss[LP_FUSE_CHANNEL_STORES];
	uint32_t store_cnt;
	const struct lp_devices *devices; /* NULL: a store in memory */
	uint32_t requests_max;            /* 0: LP_FUSE_REQUESTS_MAX */
	struct lp_workers *notifier;      /* one thread, for notices only; outlives the channel */
	struct lp_workers *launderer;     /* another (fuse/kernel/launder.h); NULL: no mappings */
	struct lp_workers *dropper;       /* others (fuse/kernel/drop.h); NULL: no cached pages */
	struct lp_fuse_ring *ring; /* the mount's; NULL: all requests come by the descriptors */
	struct lp_fuse_behaviour behaviour;
	const char *mount_options; /* as they were given; NULL: none. Outlives the channel */
	/* Where it is mounted, and its device there; NULL: the kernel gives no rights by
	 * set-user-ID. Outlives the channel. */
	const char *mount_dir;
	dev_t mount_dev;
	/* The connection has ended, by an unmount or an abort. Called once, in a turn. */
	void (*gone)(void *arg);
	void *arg;
};

int lp_fuse_channel_new(const struct lp_fuse_channel_options *options,
			struct lp_fuse_channel **ret_channel) LP_MUST_CHECK;
/* Accepts NULL. It has not served, or has stopped. */
void lp_fuse_channel_free(struct lp_fuse_channel *channel);

/* Tells a channel all channels of the mount. Called before the first of them starts, because that
 * one may hand requests over to any of them. The array stays until each has stopped. */
void lp_fuse_channels_join(struct lp_fuse_channel *const *channels, uint32_t cnt);
/* Begins to read. The descriptor, which does not block, becomes the channel's. */
void lp_fuse_channel_start(struct lp_fuse_channel *channel, int fd);
/* Stops reading. When all requests that were read have been answered, the descriptor is closed, and
 * stopped() is called in a later turn. With a ring, the connection must end too, before this call
 * or by itself: only its end takes back the entries that the kernel was given. */
void lp_fuse_channel_stop(struct lp_fuse_channel *channel, void (*stopped)(void *arg), void *arg);

struct lp_fuse_channel_stats {
	/* Ended, by opcode; unknown opcodes count as the first. */
	uint64_t requests[LP_FUSE_OPCODES];
	uint64_t errors[LP_FUSE_OPCODES]; /* of those: with an error */
	uint64_t refused;                 /* of those: that broke the protocol */
	uint64_t reads;                   /* system calls, also those that found nothing */
	uint64_t ring_requests;           /* that came by io_uring */
	uint64_t handed_over;             /* read here and done on another thread */
	uint64_t throttled;    /* how often the channel had to wait for buffers or requests */
	uint64_t roomless;     /* how often a request had to wait for room for an answer */
	uint64_t dropped;      /* writes after which the kernel dropped pages */
	uint64_t dropped_late; /* of those: answered before the drop */
	uint64_t read_bytes;
	uint64_t written_bytes;
	uint32_t under_way;
};
/* The mount has been idle for long: returns memory of requests to the system. */
void lp_fuse_channel_rest(struct lp_fuse_channel *channel);
void lp_fuse_channel_read_stats(const struct lp_fuse_channel *channel,
				struct lp_fuse_channel_stats *ret_stats);
/* Time from the read of a request to its answer, in ns. NULL: there were none of that opcode. */
const struct lp_hist *lp_fuse_channel_latency(const struct lp_fuse_channel *channel,
					      uint32_t opcode);
/* The names of states, in the order in which a request goes through them. NULL: there are no more.
 */
const char *lp_fuse_state_name(uint32_t state);
/* The slowest of recent requests, slowest first. Returns their number. */
uint32_t lp_fuse_channel_slow(struct lp_fuse_channel *channel, struct lp_slow_request *ret,
			      uint32_t max);
/* Requests that this channel has read and that have not ended, the oldest first. */
void lp_fuse_channel_under_way(struct lp_fuse_channel *channel, struct lp_under_way_list *list);

#endif
