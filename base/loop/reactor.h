/* SPDX-License-Identifier: Apache-2.0 */
/* Event loop of one thread: one io_uring, timers, tasks, an inbox, and sources to poll.
 *
 * Threads: a reactor belongs to the thread that called lp_reactor_start(). Every call below is for
 *   that thread unless it says "any thread".
 * Blocking: only lp_reactor_run() and lp_reactor_turn(), which sleep when there is nothing to do.
 * Memory: nothing is allocated after lp_reactor_new(). Ios, timers, tasks and messages are embedded
 *   in the caller's structs, which stay the reactor's from submit until the callback begins.
 * Errors: as the functions say.
 *
 * One turn:
 *   1. The flush hooks, where queued work is turned into submissions.
 *   2. One system call that submits all of it, fetches what has completed, and sleeps if there is
 *      nothing to do.
 *   3. The callbacks: completions, messages, timers, tasks, sources, each within its budget so that
 *      none starves another. What a callback submits leaves with the next turn. A callback is never
 *      called from inside a submit (invariant R1).
 *
 * Without a ring (options.ring false) the same loop runs a simulation: when there is nothing to do,
 * simulated time jumps to the next timer or source event.
 */
#ifndef LP_BASE_LOOP_REACTOR_H
#define LP_BASE_LOOP_REACTOR_H

#include "base/clock.h"
#include "base/loop/inbox.h"
#include "base/loop/timer.h"
#include "base/struct/list.h"

struct io_uring_sqe;
struct lp_reactor;

/* --- Operations on the ring ------------------------------------------------------------------- */

/* One submission and its completion. Zeroed memory is an idle io. */
struct lp_io {
	uint32_t magic;     /* LP_IO_IDLE, LP_IO_IN_FLIGHT */
	int32_t result;     /* valid in complete(): as cqe->res */
	uint32_t cqe_flags; /* valid in complete(): as cqe->flags */
	void (*complete)(struct lp_io *io);
};

#define LP_IO_IDLE      0u
#define LP_IO_IN_FLIGHT 0x10f11e57u

/* An SQE for the caller to prepare (io_uring_prep_*), whose completion calls io->complete. With
 * IORING_CQE_F_MORE in cqe_flags the io stays in flight. Never NULL: a full submission queue is
 * submitted first. The SQE must be prepared before the next call into the reactor. */
struct io_uring_sqe *lp_reactor_sqe(struct lp_reactor *reactor, struct lp_io *io);

/* Submits all prepared SQEs now, not with the next turn. For a caller that will be busy for longer
 * than a system call takes. No io completes inside. */
void lp_reactor_submit(struct lp_reactor *reactor);

static inline bool lp_io_is_idle(const struct lp_io *io)
{
	return io->magic == LP_IO_IDLE;
}

/* --- Timers ----------------------------------------------------------------------------------- */

/* Arms or moves the timer. A deadline in the past fires in the next turn, not inside the call. */
void lp_timer_start(struct lp_reactor *reactor, struct lp_timer *timer, uint64_t deadline_ns);
/* No-op for a stopped timer. */
void lp_timer_stop(struct lp_reactor *reactor, struct lp_timer *timer);

/* --- Tasks: "call me soon, but not now" ------------------------------------------------------- */

struct lp_task {
	struct lp_list_node node;
	void (*run)(struct lp_task *task);
};

/* Runs the task once, in this turn or the next; a task queued by a task waits for the next turn.
 * Must not be queued already. */
void lp_task_queue(struct lp_reactor *reactor, struct lp_task *task);
void lp_task_cancel(struct lp_task *task);

static inline bool lp_task_is_queued(const struct lp_task *task)
{
	return lp_list_node_is_linked(&task->node);
}

/* --- Messages between threads (struct lp_msg is in base/loop/inbox.h) ------------------------ */

/* From one reactor's thread to another reactor (or to itself). Messages from one sender arrive in
 * order. They leave with this turn's submission: one atomic operation and at most one wake-up for
 * all messages to the same receiver. The queue has no limit of its own; the pools of the messages
 * bound it. */
void lp_reactor_send(struct lp_reactor *from, struct lp_reactor *to, struct lp_msg *msg);
/* From any thread, at once. One system call, and only if the receiver sleeps. */
void lp_reactor_post(struct lp_reactor *to, struct lp_msg *msg);

/* --- Sources and hooks ------------------------------------------------------------------------ */

/* An object that is polled each turn. The reactor sleeps only when the last poll of all sources did
 * nothing. A source that gets work between its polls queues a task as well. */
struct lp_source {
	const char *name; /* shown by the watchdog; static */
	uint32_t budget;  /* most units of work in one poll() */
	/* Returns how many units of work were done, 0 if idle. NULL if there is only a flush. */
	uint32_t (*poll)(struct lp_source *source, uint32_t budget);
	/* Called when a turn begins, just before the submission. May be NULL. */
	void (*flush)(struct lp_source *source);
	/* Called again and again while the reactor spins before it sleeps. True: there is work, and
	 * the source has queued a task for it. May be NULL. */
	bool (*look)(struct lp_source *source);
	/* Called before the reactor sleeps: prepares the event that shall end the sleep. May be
	 * NULL. */
	void (*rest)(struct lp_source *source);
	/* The time of the source's next event, or UINT64_MAX; only asked in a simulation. May be
	 * NULL. */
	uint64_t (*next_ns)(const struct lp_source *source);
	struct lp_list_node node;
};

void lp_source_add(struct lp_reactor *reactor, struct lp_source *source);
/* cnt events came that were neither completions nor messages. If many events come together, the
 * reactor does not spin for the next one before it sleeps. */
void lp_reactor_note_events(struct lp_reactor *reactor, uint32_t cnt);
void lp_source_remove(struct lp_reactor *reactor, struct lp_source *source);

/* --- The reactor ------------------------------------------------------------------------------ */

struct lp_reactor_options {
	const char *name;     /* static; for messages and thread names */
	bool ring;            /* false: simulation or tests, no io_uring */
	bool sqe128;          /* 128-byte SQEs (FUSE over io_uring needs them) */
	uint32_t entries;     /* submission queue; 0: LP_REACTOR_ENTRIES */
	uint32_t files_max;   /* slots for registered files */
	uint32_t buffers_max; /* slots for registered buffer regions: one for each GiB or part of it
			       */
	uint32_t io_budget;   /* completions, messages, tasks per turn; 0: LP_REACTOR_BUDGET */
	uint64_t spin_max_ns; /* longest spin before sleeping; 0: never spin */
	const char *schedstat;        /* as in base/loop/contention.h; NULL: the thread's own */
	const struct lp_clock *clock; /* NULL: the system's */
	struct lp_clock_sim *sim;     /* the clock to move when idle, or NULL */
};

/* Most reactors of a process. */
#define LP_REACTOR_MAX       256u
#define LP_REACTOR_ENTRIES   512u
#define LP_REACTOR_BUDGET    256u
#define LP_REACTOR_ABSENT_NS LP_NS_PER_MS       /* an absence worth counting */
#define LP_REACTOR_LONG_NS   (2 * LP_NS_PER_MS) /* after this time tasks wait for the next turn */

enum lp_reactor_phase {
	LP_PHASE_IO,
	LP_PHASE_MESSAGES,
	LP_PHASE_TIMERS,
	LP_PHASE_TASKS,
	LP_PHASE_SOURCES,
	LP_PHASE_FLUSH,
	LP_PHASE_SUBMIT,
	LP_PHASE_CNT
};

/* Plain counters of the owner. Another thread may read some from before a turn and some from after
 * it, but no torn number. */
struct lp_reactor_stats {
	uint64_t turns;
	uint64_t enters;    /* system calls on the ring */
	uint64_t sleeps;    /* of those: allowed to sleep */
	uint64_t spins_won; /* an event came while spinning */
	uint64_t spins_lost;
	uint64_t ios;                /* completions */
	uint64_t msgs;               /* delivered */
	uint64_t wakes_sent;         /* of other reactors */
	uint64_t absences;           /* turns longer than LP_REACTOR_ABSENT_NS */
	uint64_t absences_preempted; /* of those: the scheduler took the core away meanwhile */
	uint64_t absences_blocked;   /* of those: it waited in a call other than its sleep */
	uint64_t absence_max_ns;
	/* The most CPU time in one of them. This is the part of our own code; the rest is the
	 * scheduler's. It may include up to a millisecond from before the absence. */
	uint64_t absence_own_max_ns;
	uint64_t absences_by_phase[LP_PHASE_CNT];
	uint64_t absence_max_by_phase_ns[LP_PHASE_CNT];
	uint64_t absence_own_max_by_phase_ns[LP_PHASE_CNT];
};

/* Fails with the error of io_uring_setup; lp_reactor_explain() turns that into a sentence. The
 * options are copied. Any thread may create a reactor; the ring stays asleep until start. */
int lp_reactor_new(const struct lp_reactor_options *options,
		   struct lp_reactor **ret_reactor) LP_MUST_CHECK;
/* A reactor of the same kind and with the same clock, for a helper that turns it for a while and
 * waits for I/O. Any thread, while `like` exists. Errors as lp_reactor_new(). */
int lp_reactor_new_like(const struct lp_reactor *like, const char *name,
			struct lp_reactor **ret_reactor) LP_MUST_CHECK;
/* One line for a person: why io_uring cannot be used, and what to change. */
int lp_reactor_explain(int err, char *buf, size_t len);
/* Accepts NULL. Nothing may be in flight, armed or queued (asserted). */
void lp_reactor_free(struct lp_reactor *reactor);

/* The calling thread becomes the owner. A thread owns at most one reactor with a ring, and any
 * number without, because a simulation turns all its shards on one thread. */
int lp_reactor_start(struct lp_reactor *reactor) LP_MUST_CHECK;
/* Turns until lp_reactor_stop(). */
void lp_reactor_run(struct lp_reactor *reactor);
/* One turn. Without may_sleep it only does the work that is there. Returns the number of callbacks
 * made. In a simulation, 0 with may_sleep means that no event will ever happen by itself. */
uint32_t lp_reactor_turn(struct lp_reactor *reactor, bool may_sleep);
/* Turns until nothing is in flight on the ring, the deadline passes (-ETIMEDOUT) or 0. */
int lp_reactor_drain(struct lp_reactor *reactor, uint64_t timeout_ns) LP_MUST_CHECK;
/* Any thread, also a signal handler. run() returns after its current turn. */
void lp_reactor_stop(struct lp_reactor *reactor);

uint64_t lp_reactor_now_ns(const struct lp_reactor *reactor); /* as of this turn: no call */
/* The total time for which the thread had only waited, as of this turn. Ios that complete while it
 * works are only seen afterwards. */
uint64_t lp_reactor_waited_ns(const struct lp_reactor *reactor);
/* Whether this turn's tasks (or completions, or messages) have taken long enough. A caller with
 * more work then queues a task for it. Asks the clock. */
bool lp_reactor_is_long(const struct lp_reactor *reactor);
const struct lp_clock *lp_reactor_clock(const struct lp_reactor *reactor);
uint64_t lp_reactor_inflight(const struct lp_reactor *reactor);
bool lp_reactor_is_mine(const struct lp_reactor *reactor); /* any thread: assertable */
const struct lp_reactor_stats *lp_reactor_stats(const struct lp_reactor *reactor);
/* Resets the longest absences; the counts go on. For measuring a part of a run. */
void lp_reactor_forget_absences(struct lp_reactor *reactor);
const char *lp_reactor_phase_name(enum lp_reactor_phase phase);

/* Whether the kernel knows this io_uring opcode; without a ring none. */
bool lp_reactor_has_opcode(const struct lp_reactor *reactor, uint8_t opcode);

/* Registered files: ret_slot is for IOSQE_FIXED_FILE. -ENFILE when the table is full. */
int lp_reactor_file_add(struct lp_reactor *reactor, int fd, uint32_t *ret_slot) LP_MUST_CHECK;
void lp_reactor_file_remove(struct lp_reactor *reactor, uint32_t slot);
/* Pins a region so that I/O from inside it needs no page lookups. Optional: on failure (-ENOMEM
 * at the limit of locked memory, -ENFILE) I/O goes the ordinary way. The kernel takes at most 1 GiB
 * at once: a longer region is registered in pieces of that, counted from its base. */
int lp_reactor_buffer_add(struct lp_reactor *reactor, void *base, size_t len) LP_MUST_CHECK;
void lp_reactor_buffer_remove(struct lp_reactor *reactor, void *base);
/* Changes the registered length of the region, from its base; it may have been 0 before, and may
 * become 0. I/O under way is not disturbed if it lies inside of both lengths. On failure less may
 * be registered, but nothing beyond len. */
int lp_reactor_buffer_resize(struct lp_reactor *reactor, void *base, size_t len) LP_MUST_CHECK;
/* The registered piece that holds all of [buf, buf + len), or -1. */
int lp_reactor_buffer_find(const struct lp_reactor *reactor, const void *buf, size_t len);

#endif
