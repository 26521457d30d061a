/* SPDX-License-Identifier: Apache-2.0 */
/* A FUSE channel as the rooms of the mount see it: struct lp_fuse_channel, and calls between its
 * parts.
 *
 * Threads: the channel's, except fields that say otherwise.
 * Blocking, memory: none.
 */
#ifndef LP_FUSE_CHANNEL_STATE_H
#define LP_FUSE_CHANNEL_STATE_H

#include <stdatomic.h>

#include "fuse/carry.h"
#include "fuse/kernel/drop.h"
#include "fuse/kernel/launder.h"
#include "fuse/kernel/notify.h"
#include "fuse/kernel/sync.h"
#include "fuse/privileges.h"
#include "fuse/reading.h"
#include "fuse/request.h"
#include "fuse/ring.h"
#include "fuse/room.h"

/* The next message lands in a head and in buffers of all sizes behind it. So the buffers that a
 * write's data fills can be taken away as they are. */
#define LPI_FUSE_HEAD_BYTES (sizeof(struct fuse_in_header) + sizeof(struct fuse_write_in))

#define LPI_FUSE_SEEN 256u

/* An inode whose access time was looked at. */
struct lpi_fuse_seen {
	struct lp_ino ino;
	uint64_t at_ns;
};

/* Which access times are kept: of everything that is read, of everything but directories, or of
 * nothing. The last two keep the first two sets by the rules of strictatime: each read counts. */
enum {
	LPI_FUSE_KEEP_ATIMES,
	LPI_FUSE_KEEP_FILES_ATIMES,
	LPI_FUSE_KEEP_NO_ATIMES,
	LPI_FUSE_KEEP_EACH_ATIME,
	LPI_FUSE_KEEP_EACH_FILES_ATIME,
};

struct lp_fuse_channel {
	struct lp_fuse_channel_options options;
	lpi_fuse_find_fn *find_step; /* of the opcodes, which fuse/ops has */
	int fd;                      /* -1: it does not serve */
	struct lp_fuse_channel *const *peers;
	uint32_t peer_cnt;
	uint32_t idx; /* this channel's place among the peers */
	struct lp_pool *requests;
	uint64_t bytes_out; /* bytes of data under way */
	uint64_t bytes_max;
	/* Reading. */
	struct lp_io poll_io;
	struct lp_io cancel_io;
	struct lp_task read_task;
	struct lp_timer retry; /* when buffers are missing */
	struct lp_source source;
	uint32_t rested_turns;
	bool is_resting; /* no poll is armed, and no task that reads is queued */
	uint64_t head[LPI_FUSE_HEAD_BYTES / 8];
	struct lp_buf *landing[LPI_FUSE_SEGS];
	struct lpi_fuse_home_list at_home; /* requests that were read here */
	struct lpi_fuse_request *spare;    /* for the next message */
	bool is_reader;                    /* it is the one of the mount that waits for requests */
	bool is_throttled;
	bool is_gone;
	bool has_invited;    /* the invitation has not been received yet */
	uint32_t passed_cnt; /* throttled channels in a row that passed the reading on to it */
	uint32_t passes;     /* the same with itself, when it passed the reading on */
	struct lp_fuse_channel *reads_for; /* whose requests came last; itself: those of several */
	struct lp_fuse_channel *next_reader;
	struct lp_msg reader_msg; /* to next_reader */
	struct lp_msg invitation; /* to the next channel */
	struct lpi_fuse_syncs syncs;
	struct lpi_fuse_rooms rooms;
	struct lpi_fuse_carries carries;
	struct lpi_fuse_launders launders;
	struct lpi_fuse_pages pages;
	struct lpi_fuse_drops drops;
	struct lpi_fuse_privileges privileges;
	struct lpi_fuse_seen seen[LPI_FUSE_SEEN];
	struct lpi_readings readings; /* directories that were opened here */
	struct lpi_fuse_prune prune;
	struct lpi_fuse_ring_side ring;
	uint32_t notice_cnt; /* notices that the kernel is being told */
	bool is_watching;
	_Atomic bool is_mute;    /* any thread's: the kernel cannot be told of changes */
	_Atomic bool is_over;    /* any thread's: the connection has ended */
	_Atomic bool has_labels; /* any thread's, of the first channel: there are some of SELinux */
	/* Any thread's. A remount may ask for other access times (fuse/ops/settings.h). */
	_Atomic uint32_t atimes;
	/* At the end, all that the kernel knew is forgotten. */
	struct lp_ns_op forget_op;
	bool is_forgetting;
	bool has_forgotten; /* the last forgetting has been done */
	/* Stopping. */
	bool is_to_stop; /* stops when the kernel is not being told anything any more */
	bool is_stopping;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct lp_task stopped_task;
	struct lp_fuse_channel_stats stats;
	struct lp_hist *latencies; /* by opcode */
	struct lp_slow slow;
};

/* For requests that come by io_uring: a request that is begun. NULL: there is no room for one more.
 */
struct lpi_fuse_request *lpi_fuse_channel_take(struct lp_fuse_channel *channel);
void lpi_fuse_channel_begin(struct lpi_fuse_request *request);
/* The request cannot be understood, or cannot be done. */
void lpi_fuse_channel_refuse(struct lpi_fuse_request *request, int err);
/* The connection has ended. */
void lpi_fuse_channel_gone(struct lp_fuse_channel *channel);
/* An activity has ended that must end before the channel stops. */
void lpi_fuse_channel_check_stopped(struct lp_fuse_channel *channel);

static inline uint32_t lpi_fuse_atimes(const struct lp_fuse_channel *channel)
{
	return atomic_load_explicit(&channel->atimes, memory_order_relaxed);
}

static inline bool lpi_fuse_keeps_each_atime(const struct lp_fuse_channel *channel)
{
	uint32_t atimes = lpi_fuse_atimes(channel);
	return atimes == LPI_FUSE_KEEP_EACH_ATIME || atimes == LPI_FUSE_KEEP_EACH_FILES_ATIME;
}

/* There may be a request to read. For reactors without a ring, where no poll is armed. */
void lpi_fuse_channel_look(struct lp_fuse_channel *channel);

/* The kernel has been told something. */
void lpi_fuse_channel_told(struct lp_fuse_channel *channel);
/* The request is about to be answered. If it took long, the channel where it is at work remembers
 * it. */
void lpi_fuse_look_slow(const struct lpi_fuse_request *request, int err);
/* A request has ended, with 0 or an error: counts it, on the channel where it was at work. */
void lpi_fuse_channel_count(const struct lpi_fuse_request *request, int err);
/* Gives back all that the request has, on the channel that read it. */
void lpi_fuse_channel_ended(struct lpi_fuse_request *request);

/* As lp_fuse_channel_new(), which passes in the table of opcodes. */
int lpi_fuse_channel_new(const struct lp_fuse_channel_options *options, lpi_fuse_find_fn *find_step,
			 struct lp_fuse_channel **ret_channel) LP_MUST_CHECK;

#endif
