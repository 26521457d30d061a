/* SPDX-License-Identifier: Apache-2.0 */
/* Native door of one shard: its connections, their requests and replies.
 *
 * Threads: all of it belongs to the thread of options.reactor.
 * Blocking: none.
 * Memory: allocated for each connection when it comes; nothing for a request.
 * Errors: a client that breaks the protocol is told why, once, and its connection is closed. Others
 *   do not notice.
 * Limits: in struct lp_door_options; the shares of each user are in quota.h.
 *
 * How it works:
 *   1. A listener gives an accepted socket to lp_door_adopt(). The first message says which shard
 *      the client wants. If that is another one, options.hand_over() gets the socket with what was
 *      read so far. From then on the connection stays on its thread.
 *   2. One receive reads all bytes that are there on a socket.
 *   3. Requests come out of one pool for each door, which is the throttle: a door without a free
 *      request reads no more.
 *   4. One send writes all replies that are queued for a socket.
 *
 * How much a connection may hold:
 *   - Requests: its credits, but no more than are left. The last quarter of the pool is for
 *     connections that have none, so a new client always gets one.
 *   - Room for replies: the last quarter is for small replies of connections that have no other.
 *     The less room is left, the smaller are the pieces of a connection that takes much. The same
 *     holds for meta and for answers made of meta, above all lists.
 *   - A client that does not read its replies is not read from either, and is closed after
 *     send_timeout_ns. A client that sends half a message is waited for; only its buffer is held.
 */
#ifndef LP_NATIVE_CONN_H
#define LP_NATIVE_CONN_H

#include "base/struct/hist.h"
#include "base/struct/slow.h"
#include "base/under_way.h"
#include "namespace/ns.h"
#include "native/quota.h"
#include "wire/wire.h"

struct lp_door;

/* The client at the other end of a connection. */
struct lp_peer {
	bool is_unix;
	uint32_t uid; /* unix: of the process; TCP: as the daemon is configured */
	uint32_t gid;
	int32_t pid;
	struct lp_who who; /* the user whose quota it uses (quota.h) */
	char address[64];  /* for logs */
};

/* A request for the administration, which is another module. It answers with
 * lp_door_answer_admin(), at once or later, on this thread. */
struct lp_admin {
	uint16_t opcode;      /* LP_WIRE_OP_STATUS and later ones */
	struct lp_bytes text; /* explain: the path, which may be empty */
	struct lp_ino ino;    /* explain: the inode that it leads to */
	void *request;        /* the door's */
};

struct lp_door_options {
	struct lp_reactor *reactor;
	struct lp_bufs *bufs;
	uint64_t bufs_bytes;  /* the door's part of bufs; 0: all, it is alone on its thread */
	uint64_t share_bytes; /* of memory that clients may map, besides bufs; 0: none */
	struct lp_ns *ns;
	uint32_t shard_idx;
	uint32_t shard_cnt;
	uint8_t store_uuid[16];
	const char *server_name;   /* "lapisd 0.1.0 (glibc)" */
	struct lp_bdev *bdev;      /* the device of the data, for its description; NULL: none */
	uint32_t conns_max;        /* 0: 1024 */
	uint32_t requests_max;     /* 0: 512. The pool, and the limit of all connections together */
	uint32_t opens_max;        /* 0: 16384 */
	uint32_t share_percent;    /* of each limit that one user has; 0: 50 */
	uint32_t credits_max;      /* of one connection; 0: 256 */
	uint64_t credit_bytes_max; /* of data in a connection's requests; 0: 32 MiB */
	enum lp_wire_crc crc_min;  /* at least this mode is spoken */
	uint64_t send_timeout_ns;  /* a client that reads nothing for so long is closed; 0: 30 s */
	bool without_batching;     /* for measuring: one send per reply */
	bool without_pool;         /* for measuring: malloc and free per request */
	/* A connection for another shard; `read` bytes of its first message are in `head`. */
	void (*hand_over)(void *arg, uint32_t shard_idx, int fd, const struct lp_peer *peer,
			  const uint8_t *head, uint32_t read);
	void (*admin)(void *arg, struct lp_admin *admin);
	void *arg;
};

int lp_door_new(const struct lp_door_options *options, struct lp_door **ret_door) LP_MUST_CHECK;
/* After stopped(). Accepts NULL. */
void lp_door_free(struct lp_door *door);

/* Takes a connected socket; head as in hand_over(), or read 0. -EMFILE when there is no place for
 * it, and no idle connection to close: the client is told which limit was met, and the socket is
 * closed. */
int lp_door_adopt(struct lp_door *door, int fd, const struct lp_peer *peer, const uint8_t *head,
		  uint32_t read) LP_MUST_CHECK;
/* text is a JSON value, or, with an error, a sentence. */
void lp_door_answer_admin(struct lp_door *door, struct lp_admin *admin, int result,
			  const char *text, size_t len);

/* Stops reading requests. When those under way are answered and sent, or after the timeout, all
 * connections are closed and their opens are given back. Then stopped() is called. */
void lp_door_stop(struct lp_door *door, uint64_t timeout_ns, void (*stopped)(void *arg), void *arg);

/* From now on. */
int lp_door_set_requests_max(struct lp_door *door, uint32_t requests_max) LP_MUST_CHECK;
/* As in lp_door_options. credits_max holds for connections that say hello later, because earlier
 * ones were told their number. credit_bytes_max holds for all at once; a connection above it
 * waits. */
void lp_door_set_credits(struct lp_door *door, uint32_t credits_max, uint64_t credit_bytes_max);
/* As in lp_door_options. Existing connections stay, with the checksums agreed on at their hello. */
void lp_door_set_limits(struct lp_door *door, uint32_t conns_max, uint64_t send_timeout_ns,
			enum lp_wire_crc crc_min);
void lp_door_set_share_percent(struct lp_door *door, uint32_t share_percent);

struct lp_door_stats {
	uint64_t conns;       /* now */
	uint64_t conns_total; /* ever */
	uint64_t conns_refused;
	uint64_t conns_gave_way; /* idle ones, closed for new ones */
	uint64_t users;          /* that have connections, now */
	/* How often a limit of all users or of one was met, of each kind of quota.h: */
	uint64_t limits_conns;
	uint64_t limits_requests;
	uint64_t limits_pieces;
	uint64_t limits_opens;
	uint64_t limits_coming;
	uint64_t limits_going;
	uint64_t limits_meta;
	uint64_t limits_shared;
	uint64_t limits_stash;
	uint64_t requests[96]; /* answered, by opcode */
	uint64_t errors[96];
	uint64_t absent[96]; /* answered that the object does not exist: not an error */
	uint64_t received_bytes;
	uint64_t sent_bytes;
	uint64_t receives; /* system calls' worth */
	uint64_t sends;
	uint64_t requests_under_way;
	uint64_t throttled; /* how often a socket was not read for lack of requests or credits */
	uint64_t bad_messages;
	uint64_t shared_replies; /* with data in shared memory: */
	uint64_t shared_bytes;   /* bytes of these, which are not in sent_bytes */
	uint64_t share_bytes;    /* of memory that is shared, now */
	uint64_t timeouts;
};
void lp_door_read_stats(const struct lp_door *door, struct lp_door_stats *ret_stats);
/* The name of an opcode, as on the protocol's page. NULL: no opcode has the number. */
const char *lp_door_op_name(uint16_t opcode);

/* Called when no request has come for long: gives memory of requests back to the system. */
void lp_door_rest(struct lp_door *door);

/* Latencies by opcode, from the receipt of the message's end until the last reply is given to the
 * kernel; NULL: there were none. */
const struct lp_hist *lp_door_latency(const struct lp_door *door, uint16_t opcode);
/* Names of a request's states in their order; NULL: there are no more. The time in a state is
 * measured between turns of the reactor. The time before a request began is that of receiving
 * it. */
const char *lp_door_state_name(uint32_t state);
/* Requests that were received and are not answered yet, those at work first. Returns how many are
 * at work: they neither wait for their client nor for the administration. */
uint64_t lp_door_under_way(struct lp_door *door, struct lp_under_way_list *list);
/* The slowest of recent requests, slowest first; returns how many. */
uint32_t lp_door_slow(const struct lp_door *door, struct lp_slow_request *ret, uint32_t max);

#endif
