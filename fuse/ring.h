/* SPDX-License-Identifier: Apache-2.0 */
/* FUSE over io_uring: requests and answers without a system call for each.
 *
 * Threads: new and free any one, before and after all channels; the rest is for a channel's thread.
 * Blocking: none.
 * Memory: allocated in new, all of it.
 * Errors: -ENOMEM; -EOPNOTSUPP, too little memory.
 * Limits: LP_FUSE_RING_DEPTH_MIN to LP_FUSE_RING_DEPTH_MAX entries for each CPU.
 *
 *   - An entry is a place for one request: two heads, and room for data. A command on a thread's
 *     ring gives it to the kernel. The command completes when a request is in it. The next command
 *     takes the answer from it and leaves the entry with the kernel again.
 *   - Each entry belongs to the queue of one CPU, where the requests of callers on that CPU come.
 *     Its command is on the ring of the thread that has answered its last request. So a program
 *     that works in one file or directory wakes the thread that has it.
 *   - The mode begins when every queue has an entry, and ends with the connection.
 *   - Forgotten inodes, interrupts and notifications go by the descriptors as without it.
 */
#ifndef LP_FUSE_RING_H
#define LP_FUSE_RING_H

#include <stdatomic.h>
#include <sys/uio.h>

#include "base/loop/reactor.h"
#include "base/memory/buf.h"
#include "fuse/channel.h"

#define LP_FUSE_RING_DEPTH_MAX 32u /* entries of a queue */
#define LP_FUSE_RING_DEPTH_MIN 4u  /* with fewer, one entry that waits long delays the others */

/* The kernel's from 6.14 on; linux-libc-dev of Debian 12 does not have it. */
#define LPI_FUSE_OVER_IO_URING         (UINT64_C(1) << 41)
#define LPI_FUSE_RING_REGISTER         1u
#define LPI_FUSE_RING_COMMIT_AND_FETCH 2u
#define LPI_FUSE_RING_HEAD_BYTES       128u

struct lpi_fuse_ring_tail {
	uint64_t flags;
	uint64_t commit_id;
	uint32_t payload_bytes;
	uint32_t padding;
	uint64_t reserved;
};

/* A header, the part of fixed size, and the ids of the entry. */
struct lpi_fuse_ring_head {
	uint8_t in_out[LPI_FUSE_RING_HEAD_BYTES];
	uint8_t op_in[LPI_FUSE_RING_HEAD_BYTES];
	struct lpi_fuse_ring_tail tail;
};

struct lpi_fuse_ring_cmd {
	uint64_t flags;
	uint64_t commit_id;
	uint16_t queue;
	uint8_t padding[6];
};

struct lpi_fuse_request;
struct lp_fuse_ring;

struct lpi_fuse_entry {
	struct lp_io io;
	struct lp_list_node node;         /* in the list of entries that wait for room */
	struct lp_fuse_ring *ring;        /* constant */
	struct lp_fuse_channel *channel;  /* whose reactor has its command, or had it last */
	struct lpi_fuse_request *request; /* the request in it; NULL: none that has been begun */
	struct lpi_fuse_ring_head *head;  /* constant */
	struct lp_buf *payload;           /* constant; the entry alone uses it */
	struct iovec iovs[2];
	uint64_t commit_id;
	uint16_t queue;
	bool has_served;
	bool has_answer; /* an answer that the kernel had no memory to take */
};

LP_LIST_DEFINE(lpi_fuse_entries, struct lpi_fuse_entry, node);

struct lp_fuse_ring {
	uint32_t queue_cnt;
	uint32_t depth;
	/* Sends a command; a test replaces it. */
	void (*submit)(struct lpi_fuse_entry *entry, uint32_t command);
	struct lpi_fuse_ring_head *heads;
	struct lp_bufs *payloads; /* of no thread: the entries always have all of them */
	_Atomic uint32_t
		*held_cnts;      /* of each queue: entries whose write waits (fuse/kernel/drop.h) */
	_Atomic bool serves;     /* a request has come */
	_Atomic bool is_refused; /* the kernel took no entry, which was logged */
	_Atomic bool is_broken;  /* an answer was not taken: the connection was to be ended */
	/* Ends the connection and does not wait for it; on a channel's thread. May be NULL. */
	void (*end)(void *arg);
	void *end_arg;
	struct lpi_fuse_entry *entries;
};

/* A channel's part. */
struct lpi_fuse_ring_side {
	uint32_t in_flight; /* commands on its reactor */
	struct lpi_fuse_entries waiting;
	struct lp_task task;
	struct lp_timer retry;
};

/* --- For the daemon --------------------------------------------------------------------------- */

/* Whether the kernel has FUSE over io_uring, switched on for new connections. */
bool lp_fuse_ring_is_on(void);
/* The number of the kernel's queues: one for each possible CPU. 0: the kernel does not say. */
uint32_t lp_fuse_ring_queues(void);
/* The same, from the kernel's text, such as "0-3,8-11". 0: the text has another form, or there are
 * too many. */
uint32_t lpi_fuse_ring_count(const char *possible);
/* As many entries as fit bytes_max. */
int lp_fuse_ring_new(uint64_t bytes_max, uint32_t queue_cnt,
		     struct lp_fuse_ring **ret_ring) LP_MUST_CHECK;
/* No command is under way. Accepts NULL. */
void lp_fuse_ring_free(struct lp_fuse_ring *ring);
/* Whether requests come by the ring; NULL: there is none. Any thread. */
bool lp_fuse_ring_serves(const struct lp_fuse_ring *ring);
/* Whether an entry was refused. If the kernel's FUSE refused it, the descriptors serve. If another
 * part of the kernel refused it before, the kernel's FUSE waits for it. NULL: there is no ring. Any
 * thread. */
bool lp_fuse_ring_is_refused(const struct lp_fuse_ring *ring);
/* The same for an answer, finally: the connection was ended. */
bool lp_fuse_ring_is_broken(const struct lp_fuse_ring *ring);

/* --- For a channel ---------------------------------------------------------------------------- */

void lpi_fuse_ring_init(struct lp_fuse_channel *channel);
/* Gives the entries of its queues to the kernel. */
void lpi_fuse_ring_start(struct lp_fuse_channel *channel);
/* Something may have become free that an entry waits for. */
void lpi_fuse_ring_go_on(struct lp_fuse_channel *channel);
/* The answer to a request that is in an entry, on the thread where it is at work. False: no caller
 * waits for it any more. */
bool lpi_fuse_ring_answer(struct lpi_fuse_request *request, struct fuse_out_header *header,
			  const struct iovec *iovs, uint32_t cnt);
/* The connection has ended, and the channel stops: nothing waits any longer. */
void lpi_fuse_ring_stop(struct lp_fuse_channel *channel);
/* The kernel has given back all that this thread has given it. */
bool lpi_fuse_ring_is_idle(const struct lp_fuse_channel *channel);

#endif
