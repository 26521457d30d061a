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
 * What cannot be taken for lack of a request, credits or buffers is set aside (the stash), and the
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
#define LPI_DIRECT_BYTES     (UINT32_C(32) << 10)  /* as much data is received into its place */
#define LPI_ADMIN_BUFS_BYTES LP_BUF_LARGE          /* for answers of the administration */
#define LPI_SMALL_BYTES      (UINT32_C(64) << 10)  /* of data that finds room beside large data */
#define LPI_IOVS             256u                  /* of one send */
#define LPI_SEND_BYTES       (UINT64_C(1) << 20)   /* of one send, about */
#define LPI_READY_BUDGET     16u                   /* receives in a turn */
#define LPI_CONN_NAMES       1024u                 /* paths and numbers at work, by hash */
#define LPI_CONN_OPENS_MAX   4096u                 /* of a connection */
#define LPI_OPEN_BUCKETS     4096u
#define LPI_PIECES           64u /* beyond the one of each request */
#define LPI_OPENS_FEW        16u /* open objects: a connection with fewer counts as one that has none */
#define LPI_OPCODES          96u
/* How long a client that stands in others' way may be silent in the middle of something. */
#define LPI_STARVED_NS (2 * LP_NS_PER_S)
/* And then in each such time so much must come or go, or all that is awaited: who is not silent,
 * but never comes to an end, holds as much. */
#define LPI_PACE_BYTES (UINT64_C(64) << 10)
/* Messages that wait, of all connections: beyond that little is received at a time. */
#define LPI_STASH_BYTES_MAX (UINT64_C(32) << 20)
#define LPI_SIP_BYTES       64u
/* What takes long says that it goes on as often. */
#define LPI_SIGN_NS LP_NS_PER_S
/* Somebody who has waited as long waits for others, not for the turn of things; */
#define LPI_PATIENCE_NS (250 * LP_NS_PER_MS)
/* and a connection that has said hello, and nothing for so long, is idle. */
#define LPI_IDLE_NS LP_NS_PER_S
/* Who was turned away is listened to for so long, so that he finds the answer, */
#define LPI_LINGER_NS (LP_NS_PER_S / 2)
/* and so many at a time are. */
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
	LPI_CONN_PARTING, /* what is queued is sent, then it ends */
	LPI_CONN_ENDING,  /* shut down; what is under way comes to its end */
	LPI_CONN_CLOSING, /* what it had open is given back */
};

enum lpi_throttle {
	LPI_THROTTLE_NONE,
	LPI_THROTTLE_CREDITS,  /* its own */
	LPI_THROTTLE_REQUESTS, /* the door's */
	LPI_THROTTLE_BUFFERS,
	LPI_THROTTLE_USER /* his other connections have all that is for him */
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
	bool is_turned_away;     /* it never had one: it is told why */
	bool is_heard;           /* and has said something since */
	uint64_t turned_away_ns; /* since when */
	char client_name[LP_WIRE_TEXT_MAX + 1];
	enum lp_wire_crc crc_mode;
	uint32_t meta_max; /* bytes of meta in a message, as agreed on */
	bool hears_signs;  /* what takes long may say that it goes on */
	uint32_t credits;
	uint64_t progress_ns; /* when something last came */
	uint64_t active_ns;   /* the same, or when an answer was last given */
	/* Since when the next LPI_PACE_BYTES of the message, or its rest, have been awaited, and
	 * how much of them has come; the same of all that is to be sent, 0: nothing is. */
	uint64_t pace_ns;
	uint64_t paced_bytes;
	uint64_t send_pace_ns;
	uint64_t send_paced_bytes;
	/* Receiving. */
	struct lp_io poll_io;
	enum lpi_message_part part;
	enum lpi_throttle throttle;
	uint64_t throttled_ns; /* since when it has waited for what others hold; 0: it does not */
	bool waits_for_own;    /* these others are of its own user */
	uint32_t head_bytes;
	uint8_t head[LP_WIRE_HEADER_SIZE];
	struct lp_wire_header header;
	struct lpi_request *coming; /* the request that is being received */
	uint8_t *stash;             /* what was read and could not be taken */
	uint32_t stash_bytes;
	uint32_t stash_at;
	bool read_all;   /* the last receive took all there was */
	bool at_end;     /* the client sends no more */
	bool is_leaving; /* for another shard: nothing more is taken here */
	uint32_t leave_to;
	/* Requests. */
	struct lpi_request_list requests;
	struct lpi_wait_list waiting; /* for earlier ones on the same path or number */
	bool is_waking;               /* these are being looked at */
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
	struct lpi_share *share; /* NULL: it has asked for none */
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
	/* For answers of the administration, which come also when all other buffers are out. */
	struct lp_bufs *admin_bufs;
	struct lpi_ready_list ready;
	struct lpi_throttled_list throttled; /* for want of requests or buffers */
	struct lpi_throttled_list capped;    /* of users who have all that is for them */
	struct lpi_send_list sendable;
	struct lpi_end_list ending; /* looked at each turn: only there a connection is freed */
	struct lpi_wait_list short_of_room; /* requests that wait for room for replies */
	struct lpi_open_bucket open_buckets[LPI_OPEN_BUCKETS];
	struct lp_timer tick;
	struct lp_timer retry; /* of those that wait for buffers */
	uint64_t starved_ns;   /* since when somebody waits for what others hold; 0: nobody */
	uint64_t refused_ns;   /* when somebody was last refused for want of it; 0: never */
	uint64_t tick_ns;
	uint32_t under_way;
	uint64_t receiving_bytes; /* buffers of data that comes, or waits behind other requests */
	uint64_t receiving_bytes_max;
	uint64_t reply_bytes;
	uint64_t reply_bytes_max;
	uint64_t held_bytes; /* buffers of meta, operations, and answers that are meta */
	uint64_t held_bytes_max;
	struct lpi_quota quota; /* what each user has of all that */
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
	uint64_t received_ns;    /* when what is being taken came */
	uint8_t *scratch;
};

/* The parts, from the lowest: none calls one of those behind it. Below all are share.c and quota.c,
 * request.c comes behind door_note.c, and above all are the opcodes. */

/* --- conn_turn.c: when it has its turn -------------------------------------------------------- */

bool lpi_conn_may_read(const struct lpi_conn *conn);
/* What a throttle held up is there, and no byte will set it going. */
bool lpi_conn_is_held_up(const struct lpi_conn *conn);
/* A connection goes on: reads what there is, waits for more, or ends. Any time. */
void lpi_conn_go_on(struct lpi_conn *conn);
void lpi_conn_leave_throttled(struct lpi_conn *conn);
/* The next bytes of a message are awaited from now on. */
void lpi_conn_begin_pace(struct lpi_conn *conn);
void lpi_conn_unthrottle(struct lpi_conn *conn);
/* A request has ended: credits, throttles, also of others. */
void lpi_conn_request_ended(struct lpi_conn *conn);
/* Of one that is alive: it is sent when the turn ends. */
void lpi_conn_queue(struct lpi_conn *conn, struct lpi_reply *reply);
/* No more is read; it ends when what is under way has been answered and sent. */
void lpi_conn_finish(struct lpi_conn *conn);
/* Shuts the socket; the rest follows when all that is under way has come to its end. Any time, also
 * more than once. */
void lpi_conn_end(struct lpi_conn *conn);

/* --- conn_quota.c: what it holds -------------------------------------------------------------- */

void lpi_conn_give_place(struct lpi_conn *conn);
/* For a connection that has so much already: LPI_QUOTA_OK when it was taken. */
enum lpi_quota_verdict lpi_conn_take(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t has,
				     uint64_t amount);
/* Takes it whatever the limits say. */
void lpi_conn_force(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t amount);
/* One of the user's connections that waits may go on. */
void lpi_conn_give(struct lpi_conn *conn, enum lpi_quota_kind kind, uint64_t amount);
/* A limit has kept somebody from something: it is counted, and, of what was refused, told. */
void lpi_conn_note_limit(struct lpi_conn *conn, enum lpi_quota_kind kind,
			 enum lpi_quota_verdict verdict, bool is_refused);
/* Something is refused for want of it. */
void lpi_conn_tell_refused(const struct lpi_conn *conn, enum lpi_quota_kind kind,
			   enum lpi_quota_verdict verdict);

/* --- door_note.c: what is noted of requests --------------------------------------------------- */

/* There was no buffer for somebody, who does not wait for one. */
void lpi_door_note_refused(struct lp_door *door);
/* The last reply of a request is queued; and later, it is being sent. One look at the clock serves
 * all requests that came at once, and one all replies that go at once. */
void lpi_door_note_end(struct lpi_request *request, int status);
void lpi_door_note_time(struct lpi_request *request, uint64_t now_ns);
/* What it is about, for people: the end of its path, or its number. */
void lpi_request_tell_object(const struct lpi_request *request, char *ret, size_t size);

/* --- conn.c: receiving ------------------------------------------------------------------------ */

/* One turn of a ready connection: what it has stashed, and one receive. */
void lpi_conn_receive(struct lpi_conn *conn);
/* What of a message has come is of no use any more. */
void lpi_conn_forget_message(struct lpi_conn *conn);
/* What cannot be read on, or must not be: says why, and finishes. */
void lpi_conn_part(struct lpi_conn *conn, int err, const char *why);
/* The same without counting it as the peer's mistake. */
void lpi_conn_say(struct lpi_conn *conn, int err, const char *why);
/* One that was turned away, or has been, is listened to until it has said something. */
void lpi_conn_hear(struct lpi_conn *conn);
void lpi_conn_keep_stash(struct lpi_conn *conn, uint8_t *stash, uint32_t bytes);

/* --- conn_send.c ------------------------------------------------------------------------------ */

void lpi_conn_send(struct lpi_conn *conn);
/* Replies that nobody will read. */
void lpi_conn_drop_replies(struct lpi_conn *conn);

/* --- conn_end.c: opens, and the end ----------------------------------------------------------- */

/* A record for an inode that is about to be opened; NULL: there are too many, and why says whose.
 */
struct lpi_open *lpi_open_new(struct lpi_conn *conn, char *why, size_t why_len);
/* It is open: takes the record, which may become one that there was before. */
void lpi_open_add(struct lpi_open *open, struct lp_ino ino, bool is_upload);
struct lpi_open *lpi_open_find(const struct lpi_conn *conn, struct lp_ino ino);
/* One open less; the record goes with the last, or when it is one that nothing came of. */
void lpi_open_drop(struct lpi_open *open);
/* Goes on with the end, if it is time. The connection may be gone afterwards: only for the door's
 * flush. */
void lpi_conn_check_end(struct lpi_conn *conn);
/* If it stops, and no connection is left, it has. */
void lpi_door_check_stopped(struct lp_door *door);

/* --- door_quota.c: what users have, and who gives way ----------------------------------------- */

/* A place for a connection that has come, if need be that of an idle one. */
enum lpi_quota_verdict lpi_door_find_place(struct lpi_conn *conn);
/* There is none. */
void lpi_door_turn_away(struct lpi_conn *conn, enum lpi_quota_verdict verdict);
/* The tick: whose connections wait for others of his, and for how long; they try again. */
void lpi_door_look_at_users(struct lp_door *door);

/* --- door.c ----------------------------------------------------------------------------------- */

/* lp_door_new() with these opcodes, which it only refers to. */
int lpi_door_new(const struct lp_door_options *options, const struct lpi_opcodes *opcodes,
		 struct lp_door **ret_door) LP_MUST_CHECK;

static inline uint64_t lpi_door_now_ns(const struct lp_door *door)
{
	return lp_reactor_now_ns(door->options.reactor);
}

/* Room for a reply with so many bytes of data: for one that is not small, and for one more, all but
 * the last quarter. */
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
