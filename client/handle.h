/* SPDX-License-Identifier: Apache-2.0 */
/* The handle of liblapis.
 *
 * Threads: all of this belongs to the thread that runs the handle (who is in lapis_turn(), one at a
 * time), but for the inbox, which is under the lock. Blocking: none.
 */
#ifndef LP_CLIENT_HANDLE_H
#define LP_CLIENT_HANDLE_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "client/op.h"

#define LPI_SHARDS_MAX    256u /* connections of one handle; further shards are reached by these */
#define LPI_ADDRESSES_MAX 8u   /* of one host */
#define LPI_ROUTES        4096u
#define LPI_ANY_SHARD     LP_WIRE_ANY_SHARD
/* So much of a wait, and of a step, counts as time that the daemon had. */
#define LPI_WAIT_COUNTS_MAX LP_NS_PER_S
#define LPI_STEP_COUNTS_MAX LP_NS_PER_MS

struct lpi_route {
	uint64_t hash;
	uint32_t shard; /* LPI_ANY_SHARD: its entries are on several */
};

struct lpi_cancel {
	struct lp_list_node node;
	uint64_t id;
};
LP_LIST_DEFINE(lpi_cancels, struct lpi_cancel, node);

struct lpi_address {
	struct sockaddr_storage storage;
	socklen_t len;
};

/* Only who runs the handle counts; others look. */
struct lpi_counters {
	_Atomic uint64_t requests, sent, received, sends, receives, connects, retries, hits, misses;
};

static inline void lpi_counter_add(_Atomic uint64_t *counter)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
	atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

struct lapis {
	struct lapis_options options;
	char name[64];
	char address_text[128]; /* for messages */
	struct lpi_address addresses[LPI_ADDRESSES_MAX];
	uint32_t address_cnt;
	uint32_t address_idx; /* where a connection was made last */
	const struct lp_clock *clock;

	pthread_mutex_t lock; /* of the next ones */
	struct lpi_ops inbox;
	struct lpi_cancels cancels;
	bool is_woken;

	_Atomic bool is_stopping; /* set under the lock */
	_Atomic uint64_t last_id;
	_Atomic uint32_t held_cnt; /* operations */

	int epoll_fd;
	int wake_fd;
	int timer_fd;
	uint64_t timer_ns; /* it is set for; 0: not */
	bool has_thread;
	pthread_t thread;

	/* The time in which requests expire: it stands still while nobody runs the handle. */
	uint64_t run_ns;  /* never 0 */
	uint64_t seen_ns; /* of the clock, when it was last set */
	uint64_t wait_ns; /* how long a wait was meant to last */

	struct lpi_link *conns[LPI_SHARDS_MAX]; /* [0]: the first that was made */
	struct lpi_link *by_shard[LPI_SHARDS_MAX];
	uint32_t conn_cnt;
	uint32_t shard_cnt; /* 0: never connected */
	uint64_t uuid[2];
	uint64_t down_ns; /* since when a connection is wanted and none is up; 0: one is, or none
			     was tried */
	int failure;      /* of the last connection that broke */
	char failure_text[LPI_TEXT_MAX];
	uint64_t ordered_nr; /* answers so far that may have come before the change was durable */
	uint64_t synced_nr;  /* of these, how many a sync has covered */
	bool lost_ordered;   /* a connection broke while they differed */
	bool shares_nothing; /* what the daemon shares cannot be mapped here */

	struct lpi_all all;
	struct lpi_ops own_inbox; /* what callbacks have submitted: no lock is needed for that */
	struct lpi_op *spare;     /* ended, and kept for the next ones */
	uint32_t spare_cnt;
	struct lpi_ops waiting;
	struct lpi_ops later;
	struct lpi_ops done;
	struct lpi_ops hungry; /* uploads that can take more from their sources */
	uint64_t hungry_ns;    /* in run_ns's time: since when they wait for what is half sent; 0:
				  they do not */
	/* Those with the handle's timeout, which end in the order in which they began, and others.
	 */
	struct lpi_usual usual;
	struct lpi_deadlines deadlines;
	struct lpi_route routes[LPI_ROUTES];
	struct lpi_counters counters;
};

/* life.c */
uint64_t lpi_now(const struct lapis *lapis);
/* Whether this thread does. */
bool lpi_is_running(const struct lapis *lapis);
/* Which one this thread runs from now on, or NULL; the one that it ran before. */
const struct lapis *lpi_set_running(const struct lapis *lapis);

/* address.c */
int lpi_address_parse(struct lapis *lapis, const char *text) LP_MUST_CHECK;

/* route_table.c */
uint64_t lpi_route_hash(uint64_t ino, const char *path, size_t len);
void lpi_route_learn(struct lpi_op *op, uint32_t shard);
/* LPI_ANY_SHARD: not known. */
uint32_t lpi_route_find(const struct lpi_op *op);

/* route.c */
/* Whatever waits goes to a connection, if there is one, or waits on, or is given up. */
void lpi_route_waiting(struct lapis *lapis);

#endif
