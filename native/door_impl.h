/* SPDX-License-Identifier: Apache-2.0 */
/* Private parts of the native door: struct lp_door and struct lpi_conn.
 *
 * Threads: the door's.
 * Blocking: none.
 * Memory: allocated for a connection and for its stash.
 * Errors: none of its own.
 *
 * Receiving: a connection with something to read is in the door's ready queue. Each in turn makes
 * one receive into the door's one receive buffer, from which messages are copied to their requests.
 * Bytes for which a request, credits or buffers are missing are set aside (the stash), and the
 * connection waits among the throttled ones. An idle connection has no buffer.
 */
#ifndef LP_NATIVE_DOOR_IMPL_H
#define LP_NATIVE_DOOR_IMPL_H

#include <sys/socket.h>

#include "base/loop/reactor.h"
#include "base/memory/pool.h"
#include "native/opcode.h"
#include "native/share.h"

#define LPI_SCRATCH_BYTES    (UINT32_C(256) << 10) /* one receive */
#define LPI_DIRECT_BYTES     (UINT32_C(32) << 10)  /* data from this size goes into its place */
#define LPI_ADMIN_BUFS_BYTES LP_BUF_LARGE          /* for answers of the administration */
#define LPI_SMALL_BYTES      (UINT32_C(64) << 10)  /* small data: gets room beside large */
#define LPI_IOVS             256u                  /* of one send */
#define LPI_SEND_BYTES       (UINT64_C(1) << 20)   /* of one send, about */
#define LPI_READY_BUDGET     16u                   /* receives in a turn */
#define LPI_CONN_NAMES       1024u                 /* paths and numbers at work, by hash */
#define LPI_CONN_OPENS_MAX   4096u                 /* of a connection */
#define LPI_OPEN_BUCKETS     4096u
#define LPI_PIECES           64u /* beyond the one of each request */
#define LPI_OPENS_FEW        16u /* open objects: a connection with fewer counts as if none */
#define LPI_OPCODES          96u
/* While others wait for something that a client holds, it may be silent this long in the middle of
 * a message or reply. */
#define LPI_STARVED_NS (2 * LP_NS_PER_S)
/* Then in each such time this many bytes, or all that are awaited, must be received or sent.
 * Otherwise a client that is slow, but never silent, would hold as much. */
#define LPI_PACE_BYTES (UINT64_C(64) << 10)
/* Bytes of stashed messages, of all connections. Above this, a receive takes at most
 * LPI_SIP_BYTES. */
#define LPI_STASH_BYTES_MAX (UINT64_C(32) << 20)
#define LPI_SIP_BYTES       64u
/* Interval of the signs that a long request progresses. */
#define LPI_SIGN_NS LP_NS_PER_S
/* A connection that has waited this long counts as waiting for what others hold, not for its
 * turn; */
#define LPI_PATIENCE_NS (250 * LP_NS_PER_MS)
/* and a connection that has said hello, and nothing for so long, is idle. */
#define LPI_IDLE_NS LP_NS_PER_S
/* A client that was turned away is read for this long, so that it gets the answer, */
#define LPI_LINGER_NS (LP_NS_PER_S / 2)
/* and this many clients at a time are. */
#define LPI_TURNED_AWAY_MAX 64u

/* An inode that a connection has open. */
struct lpi_open {
	struct lp_list_node node;   /* of the connection */
	struct lp_list_node bucket; /* of the door */
	struct lpi_conn *conn;
	struct lp_ino ino; /* nr 0: not yet known */
	uint32_t count;
	uint32_t busy; /* requests that are at work on it */
	bool is_upload;
};

LP_LIST_DEFINE(lpi_open_list, struct lpi_open, node);
LP_LIST_DEFINE(lpi_open_bucket, struct lpi_open, bucket);

enum lpi_conn_state {
	LPI_CONN_GREETING, /* no hello yet */
	LPI_CONN_SERVING,
	LPI_CONN_PARTING, /* queued replies are sent, then it ends */
	LPI_CONN_ENDING,  /* shut down; requests under way come to their end */
	LPI_CONN_CLOSING, /* its opens are given back */
};

enum lpi_throttle {
	LPI_THROTTLE_NONE,
	LPI_THROTTLE_CREDITS,  /* its own */
	LPI_THROTTLE_REQUESTS, /* the door's */
	LPI_THROTTLE_BUFFERS,
	LPI_THROTTLE_USER /* the user's other connections have all of its share */
};

/* Which part of a message comes next. */
enum lpi_message_part { LPI_PART_HEADER, LPI_PART_REST, LPI_PART_DATA };

struct lpi_conn {
	struct lp_list_node node; /* of the door */
	struct lp_list_node ready_node;
	struct lp_list_node throttled_node;
	struct lp_list_node send_node;
	struct lp_list_node end_node; /* of those that end */
	struct lp_door *door;
	struct lpi_quota_user *user;
	int fd;
	enum lpi_conn_state state;
	struct lp_peer peer;
	bool has_place;          /* it counts as one of its user's connections */
	bool is_turned_away;     /* it never had a place: it is told why */
	bool is_heard;           /* and has said something since */
	uint64_t turned_away_ns; /* since when */
	char client_name[LP_WIRE_TEXT_MAX + 1];
	enum lp_wire_crc crc_mode;
	uint32_t meta_max; /* bytes of meta in a message, as agreed on */
	bool hears_signs;  /* the client takes signs that a long request progresses */
	uint32_t credits;
	uint64_t progress_ns; /* when bytes were last received */
	uint64_t active_ns;   /* the same, or when an answer was last given */
	/* Since when the next LPI_PACE_BYTES of the message, or its rest, have been awaited, and
	 * how many of them were received. The same for the bytes to be sent; 0: there are none. */
	uint64_t pace_ns;
	uint64_t paced_bytes;
	uint64_t send_pace_ns;
	uint64_t send_paced_bytes;
	/* Receiving. */
	struct lp_io poll_io;
	enum lpi_message_part part;
	enum lpi_throttle throttle;
	uint64_t throttled_ns; /* since when it has waited for what others hold; 0: not */
	bool waits_for_own;    /* these others are connections of its own user */
	uint32_t head_bytes;
	uint8_t head[LP_WIRE_HEADER_SIZE];
	struct lp_wire_header header;
	struct lpi_request *coming; /* the request that is being received */
	uint8_t *stash;             /* bytes that were read and could not be taken */
	uint32_t stash_bytes;
	uint32_t stash_at;
	bool read_all;   /* the last receive took all there was */
	bool at_end;     /* the client sends no more */
	bool is_leaving; /* for another shard: nothing more is taken here */
	uint32_t leave_to;
	/* Requests. */
	struct lpi_request_list requests;
	struct lpi_wait_list waiting; /* for earlier ones on the same path or number */
	bool is_waking;               /* the waiting requests are being gone through */
	uint32_t under_way;
	uint64_t under_way_bytes;
	uint64_t reply_bytes;           /* of data in its replies */
	uint64_t held_bytes;            /* of its requests */
	uint16_t names[LPI_CONN_NAMES]; /* requests at work that name it */
	uint32_t looking;               /* requests at work that look first, on some number */
	/* Sending. */
	struct lpi_reply_list replies;
	struct lp_io send_io;
	uint64_t send_began_ns;
	uint64_t first_sent_bytes; /* of the first reply in the queue */
	struct msghdr msg;
	struct iovec iovs[LPI_IOVS];
	struct lpi_reply last_words;
	/* Session. */
	struct lpi_open_list opens;
	uint32_t open_cnt;
	struct lp_ns_op close_op;
	bool is_giving_back;
	struct lpi_share *share; /* NULL: the client has not asked for one */
};

LP_LIST_DEFINE(lpi_conn_list, struct lpi_conn, node);
LP_LIST_DEFINE(lpi_ready_list, struct lpi_conn, ready_node);
LP_LIST_DEFINE(lpi_throttled_list, struct lpi_conn, throttled_node);
LP_LIST_DEFINE(lpi_send_list, struct lpi_conn, send_node);
LP_LIST_DEFINE(lpi_end_list, struct lpi_conn, end_node);

struct lp_door {
	struct lp_door_options options;
	const struct lpi_opcodes *opcodes;
	struct lp_source source;
	struct lp_pool *requests;
	struct lp_pool *pieces;
	struct lp_pool *opens;
	struct lpi_conn_list conns;
	/* For answers of the administration, which must be possible when all other buffers are
	 * taken. */
	struct lp_bufs *admin_bufs;
	struct lpi_ready_list ready;
	struct lpi_throttled_list throttled; /* waiting for requests or buffers */
	struct lpi_throttled_list capped;    /* of users that have all of their share */
	struct lpi_send_list sendable;
	struct lpi_end_list
		ending; /* gone through in each turn: only there a connection is freed */
	struct lpi_wait_list short_of_room; /* requests that wait for room for replies */
	struct lpi_open_bucket open_buckets[LPI_OPEN_BUCKETS];
	struct lp_timer tick;
	struct lp_timer retry; /* of those that wait for buffers */
	uint64_t starved_ns; /* since when a connection waits for what others hold; 0: none does */
	uint64_t refused_ns; /* when a request was last refused for lack of it; 0: never */
	uint64_t tick_ns;
	uint32_t under_way;
	uint64_t receiving_bytes; /* buffers of data that is being received, or waits behind other
				     requests */
	uint64_t receiving_bytes_max;
	uint64_t reply_bytes;
	uint64_t reply_bytes_max;
	uint64_t held_bytes; /* buffers of meta, operations, and answers that are meta */
	uint64_t held_bytes_max;
	struct lpi_quota quota; /* the part of each user in these amounts */
	uint32_t turned_away_cnt;
	bool is_stopping;
	uint64_t stop_deadline_ns;
	void (*stopped)(void *arg);
	void *stopped_arg;
	struct lp_task stopped_task;
	struct lp_task kick; /* a turn for the ready ones */
	struct lp_door_stats stats;
	struct lp_hist *latencies; /* by place in the table of opcodes */
	uint8_t latency_idx[LPI_OPCODES];
	struct lp_slow slow;
	struct lp_writer writer; /* of the reply that is being made */
	uint64_t received_ns;    /* when the bytes that are being taken were received */
	uint8_t *scratch;
};

/* The parts, from the lowest: no part calls one behind it. share.c and quota.c are below all,
 * request.c comes behind door_note.c, and the opcodes are above all. */

/* --- conn_turn.c: turns of a connection ------------------------------------------------------- */

bool lpi_conn_may_read(const struct lpi_conn *conn);
/* True if bytes that a throttle held up are there: no new byte will wake the connection. */
bool lpi_conn_is_held_up(const struct lpi_conn *conn);
/* A connection goes on: reads the bytes that are there, waits for more, or ends. Any time. */
void lpi_conn_go_on(struct lpi_conn *conn);
void lpi_conn_leave_throttled(struct lpi_conn *conn);
/* From now on the next bytes of a message are awaited. */
void lpi_conn_begin_pace(struct lpi_conn *conn);
void lpi_conn_unthrottle(struct lpi_conn *conn);
/* A request has ended: gives back its credits, and ends throttles, also of other connections. */
void lpi_conn_request_ended(struct lpi_conn *conn);
/* Queues a reply on a live connection: it is sent when the turn ends. */
void lpi_conn_queue(struct lpi_conn *conn, struct lpi_reply *reply);
/* Reads no more; the connection ends when its requests under way have been answered and sent. */
void lpi_conn_finish(struct lpi_conn *conn);
/* Shuts the socket. The connection goes when its requests under way have ended. Any time, also more
 * than once. */
void lpi_conn_end(struct lpi_conn *conn);

/* --- conn_quota.c: a connection's use of its user's share ------------------------------------- */

void lpi_conn_give_place(struct lpi_conn *conn);
/* Takes amount for a connection that has so much already: LPI_QUOTA_OK when it was taken. */
enum lpi_quota_verdict lpi_conn_take(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t has,
				     uint64_t amount);
/* Takes it without regard to the limits. */
void lpi_conn_force(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t amount);
/* Gives it back: one of the user's waiting connections may go on. */
void lpi_conn_give(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t amount);
/* Counts that a limit has stopped a connection; if a request was refused, also logs it. */
void lpi_conn_note_limit(struct lpi_conn *conn, enum lpi_quota_kind kind,
			 enum lpi_quota_verdict verdict, bool is_refused);
/* Logs that a request was refused because of this limit. */
void lpi_conn_tell_refused(const struct lpi_conn *conn, enum lpi_quota_kind kind,
			   enum lpi_quota_verdict verdict);

/* --- door_note.c: statistics and times of requests -------------------------------------------- */

/* There was no buffer for a request that does not wait for one. */
void lpi_door_note_refused(struct lp_door *door);
/* The last reply of a request is queued; and later, it is being sent. One reading of the clock
 * serves all requests that were received at once, and one all replies that are sent at once. */
void lpi_door_note_end(struct lpi_request *request, int status);
void lpi_door_note_time(struct lpi_request *request, uint64_t now_ns);
/* The object of a request, for people: the end of its path, or its number. */
void lpi_request_tell_object(const struct lpi_request *request, char *ret, size_t size);

/* --- conn.c: receiving ------------------------------------------------------------------------ */

/* One turn of a ready connection: its stash, and one receive. */
void lpi_conn_receive(struct lpi_conn *conn);
/* Drops the part of a message that has been received. */
void lpi_conn_forget_message(struct lpi_conn *conn);
/* The connection cannot or must not be read any more: tells the client why, and finishes. */
void lpi_conn_part(struct lpi_conn *conn, int err, const char *why);
/* The same, but not counted as an error of the client. */
void lpi_conn_say(struct lpi_conn *conn, int err, const char *why);
/* Reads from a connection that is, or was, turned away until its client has said something. */
void lpi_conn_hear(struct lpi_conn *conn);
void lpi_conn_keep_stash(struct lpi_conn *conn, uint8_t *stash, uint32_t bytes);

/* --- conn_send.c ------------------------------------------------------------------------------ */

void lpi_conn_send(struct lpi_conn *conn);
/* Drops replies that no client will read. */
void lpi_conn_drop_replies(struct lpi_conn *conn);

/* --- conn_end.c: opens, and the end ----------------------------------------------------------- */

/* A record for an inode that is about to be opened. NULL: there are too many; why says which limit
 * was met. */
struct lpi_open *lpi_open_new(struct lpi_conn *conn, char *why, size_t why_len);
/* The inode is open: takes the record, which may be merged into an older one. */
void lpi_open_add(struct lpi_open *open, struct lp_ino ino, bool is_upload);
struct lpi_open *lpi_open_find(const struct lpi_conn *conn, struct lp_ino ino);
/* Removes one open. The record is freed with the last one, or if the open failed. */
void lpi_open_drop(struct lpi_open *open);
/* Continues to end the connection, if nothing holds it up. May free the connection: only for the
 * door's flush. */
void lpi_conn_check_end(struct lpi_conn *conn);
/* If the door is stopping and has no connections left, it has stopped. */
void lpi_door_check_stopped(struct lp_door *door);

/* --- door_quota.c: places for connections, and which idle one gives its place up -------------- */

/* Finds a place for a new connection, if necessary that of an idle one. */
enum lpi_quota_verdict lpi_door_find_place(struct lpi_conn *conn);
/* There is no place for the connection. */
void lpi_door_turn_away(struct lpi_conn *conn, enum lpi_quota_verdict verdict);
/* In each tick: which users have connections that wait for their other ones, and for how long. They
 * try again. */
void lpi_door_look_at_users(struct lp_door *door);

/* --- door.c ----------------------------------------------------------------------------------- */

/* lp_door_new() with these opcodes; the door only keeps a pointer to them. */
int lpi_door_new(const struct lp_door_options *options, const struct lpi_opcodes *opcodes,
		 struct lp_door **ret_door) LP_MUST_CHECK;

static inline uint64_t lpi_door_now_ns(const struct lp_door *door)
{
	return lp_reactor_now_ns(door->options.reactor);
}

/* Room for a reply with so many bytes of data. A large reply, or a connection that has replies
 * already, does not get the last quarter. */
static inline uint64_t lpi_conn_reply_room(const struct lpi_conn *conn, uint64_t bytes)
{
	const struct lp_door *door = conn->door;
	bool is_modest = conn->reply_bytes == 0 && bytes <= LPI_SMALL_BYTES;
	uint64_t room = door->reply_bytes_max;
	if (!is_modest)
		room -= room / 4;
	return room - LP_MIN(door->reply_bytes, room);
}

static inline int64_t lpi_request_wall_ns(const struct lpi_request *request)
{
	return lp_clock_wall_ns(lp_reactor_clock(request->door->options.reactor));
}

static inline bool lpi_conn_is_alive(const struct lpi_conn *conn)
{
	return conn->state <= LPI_CONN_PARTING;
}

#endif
