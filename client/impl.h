/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of liblapis share: an operation, a connection, the handle.
 *
 * Threads: all of this belongs to the thread that runs the handle (who is in lapis_turn(), one at a
 * time), but for struct lapis's inbox, which is under its lock, and an operation before it is in
 * there, which is its maker's. Blocking: none but in call.c.
 */
#ifndef LP_CLIENT_IMPL_H
#define LP_CLIENT_IMPL_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/struct/list.h"
#include "base/struct/tree.h"
#include "client/lapis.h"
#include "wire/wire.h"

#define LPI_TEXT_MAX       320u /* of an error: the server's 255 bytes, or ours around them */
#define LPI_CREDITS_MAX    4096u
#define LPI_SHARDS_MAX     256u /* connections of one handle; further shards are reached by these */
#define LPI_READ_BYTES     (256u << 10)
#define LPI_LINK_TRIES_MAX 6u /* of one message, in a row without anything new */
#define LPI_ADDRESSES_MAX  8u /* of one host */
#define LPI_ROUTES         4096u
#define LPI_BACKOFF_MIN    (10 * LP_NS_PER_MS)
#define LPI_BACKOFF_MAX    (1000 * LP_NS_PER_MS)
#define LPI_BUSY_SHIFT_MAX 6u /* how often the wait doubles for a daemon that has no room */
#define LPI_VALUE_MAX      (64u << 20) /* of an answer in several parts */
#define LPI_UPLOAD_WINDOW  8u          /* pieces of one put under way */
#define LPI_HEAD_ROOM      256u /* a message without data that is not longer needs no memory */
#define LPI_SPARE_MAX      256u /* operations that are kept for the next ones */
#define LPI_ANY_SHARD      LP_WIRE_ANY_SHARD
/* So much of a wait, and of a step, counts as time that the daemon had. */
#define LPI_WAIT_COUNTS_MAX LP_NS_PER_S
#define LPI_STEP_COUNTS_MAX LP_NS_PER_MS
#define LPI_SHARE_FROM      (256u << 10) /* bytes of a piece that are worth it */
/* So long sources wait for what is half sent. */
#define LPI_HUNGER_MAX (100 * LP_NS_PER_MS)

/* --- Operations ------------------------------------------------------------------------------- */

enum lpi_answer {
	LPI_ANSWER_UNKNOWN, /* there is no such operation */
	LPI_ANSWER_NONE,
	LPI_ANSWER_ATTRS,
	LPI_ANSWER_GOT,
	LPI_ANSWER_WRITTEN,
	LPI_ANSWER_FOUND,
	LPI_ANSWER_VALUE,
	LPI_ANSWER_TEXT, /* a value that may come in several */
	LPI_ANSWER_ITEMS,
	LPI_ANSWER_PAIRS,
};

/* Where an operation is; its node is in the list that belongs to it. */
enum lpi_place {
	LPI_PLACE_NONE,    /* its maker's, or an upload, which may be in lapis->hungry */
	LPI_PLACE_WAITING, /* lapis->waiting: for a connection */
	LPI_PLACE_LATER,   /* lapis->later: was told to come again */
	LPI_PLACE_QUEUED,  /* conn->queue */
	LPI_PLACE_SENDING, /* conn->sending, and has a slot */
	LPI_PLACE_SENT,    /* in no list, has a slot */
	LPI_PLACE_DONE,    /* lapis->done */
};

struct lpi_await;
struct lpi_link;
struct lpi_upload;

struct lpi_op {
	struct lp_list_node node;
	struct lp_list_node all_node;
	struct lp_list_node usual_node;    /* of its deadline: it is in usual, */
	struct lp_tree_node deadline_node; /* or in deadlines */
	struct lapis *lapis;
	struct lpi_link *conn; /* QUEUED, SENDING, SENT */
	enum lpi_place place;
	enum lpi_answer answer;
	uint32_t slot_idx;
	uint16_t opcode;
	bool is_safe;      /* may be asked again when its outcome is unknown */
	bool is_stub;      /* the rest of a message whose operation has ended: only sent */
	uint32_t tries;    /* that ended with the connection */
	uint32_t busy_cnt; /* that the daemon had no room for */
	uint64_t id;
	uint64_t timeout_ns;
	uint64_t deadline_ns; /* in lapis->run_ns's time; 0: none, and in neither */
	uint64_t later_ns;    /* LATER: not before */
	/* Only this connection will do, as long as it is the same. */
	struct lpi_link *pin;
	uint64_t pin_generation;
	/* Which one answered. */
	struct lpi_link *by;
	uint64_t by_generation;
	/* What the shards' replies taught is found under these; 0: nothing. */
	uint64_t exact_hash;
	uint64_t dir_hash;

	/* The message: room for a header, then the meta, then the checksums. */
	uint8_t *head; /* in room, or of its own */
	uint32_t wire_flags;
	uint32_t meta_bytes;
	uint32_t crc_cnt; /* there is room for */
	bool has_crcs;
	uint32_t data_bytes;
	uint64_t data_offset;
	const uint8_t *data;
	uint8_t *own_data; /* freed with the operation */

	/* get */
	uint64_t offset;
	uint64_t length;
	uint64_t first_bytes;    /* of the object, when its first piece was read */
	uint64_t furthest_bytes; /* that it ever got to, also if it began again */
	bool has_version;        /* only the version that the first piece had, from now on */
	bool is_by_number;       /* of the object, which no other one ever has */
	uint8_t *buf;
	lapis_sink_fn *sink;
	void *sink_arg;

	uint64_t ordered_nr; /* sync: lapis->ordered_nr when it was sent */
	uint8_t *value;
	size_t value_bytes;
	size_t last_pos; /* in the value of a list: where its last item begins */
	struct lapis_result result;
	struct lpi_upload *upload; /* a put that is made of others */
	uint64_t upload_ino;       /* the commit of such a put */
	lapis_done_fn *done;
	void *arg;
	struct lpi_op *next_spare;
	/* From here on nothing is cleared for a new one, but the first byte of text. */
	char text[LPI_TEXT_MAX];
	uint8_t room[LPI_HEAD_ROOM];
};

LP_LIST_DEFINE(lpi_ops, struct lpi_op, node);
LP_LIST_DEFINE(lpi_all, struct lpi_op, all_node);
LP_LIST_DEFINE(lpi_usual, struct lpi_op, usual_node);
static inline bool lpi_deadline_less(const struct lpi_op *a, const struct lpi_op *b)
{
	return a->deadline_ns != b->deadline_ns ? a->deadline_ns < b->deadline_ns : a < b;
}
LP_TREE_DEFINE(lpi_deadlines, struct lpi_op, deadline_node, lpi_deadline_less);

/* The operation whose result this is. */
static inline struct lpi_op *lpi_op_of(const struct lapis_result *result)
{
	return LP_CONTAINER_OF((struct lapis_result *)(uintptr_t)result, struct lpi_op, result);
}

/* message.c */
bool lpi_op_is_known(uint32_t opcode);
/* Everything the request says, checked and encoded. -EINVAL, -E2BIG, -ENAMETOOLONG, -ENOMEM. */
int lpi_op_new(struct lapis *lapis, const struct lapis_request *request,
	       struct lpi_op **ret_op) LP_MUST_CHECK;
/* Accepts NULL. */
void lpi_op_free(struct lpi_op *op);
/* Zeroed but for text and room; NULL: no memory. */
struct lpi_op *lpi_op_alloc(struct lapis *lapis);
/* It is asked again: what has come of its answer is not a part of the next one. */
void lpi_op_drop_value(struct lpi_op *op);
/* Room for so many bytes, which keeps what it holds. -ENOMEM. */
int lpi_op_head_resize(struct lpi_op *op, size_t bytes) LP_MUST_CHECK;
/* The handle ends: those that were kept. */
void lpi_ops_free_spare(struct lapis *lapis);
void lpi_op_make_crcs(struct lpi_op *op);
/* A get that goes on where it was interrupted. */
void lpi_op_advance_get(struct lpi_op *op);
int lpi_op_printf(struct lpi_op *op, int status, const char *fmt, ...) LP_PRINTF(3, 4);

/* reply.c */
/* The meta of a reply with status 0 becomes the result. -EPROTO. */
int lpi_reply_decode(struct lpi_op *op, const uint8_t *meta, uint32_t len) LP_MUST_CHECK;

/* --- Connections ------------------------------------------------------------------------------ */

struct lpi_credit {
	uint64_t wire_id;
	struct lpi_op *op; /* NULL with is_busy: it has ended, its reply is thrown away */
	uint32_t data_bytes;
	uint16_t opcode;
	bool is_busy;
	bool opens;          /* the reply means that something is open */
	uint64_t upload_ino; /* the commit of a put's upload; 0: it is none */
};

enum lpi_state {
	LPI_STATE_DOWN,
	LPI_STATE_CONNECTING,
	LPI_STATE_GREETING,
	LPI_STATE_UP,
};

/* Memory that is shared with the daemon. */
enum lpi_share_state {
	LPI_SHARE_NONE, /* not asked for yet */
	LPI_SHARE_ASKED,
	LPI_SHARE_HAS,
	LPI_SHARE_OFF, /* there is none to be had */
};

struct lpi_link {
	struct lapis *lapis;
	int fd;
	enum lpi_state state;
	uint32_t shard; /* wanted, or, when UP, that it has */
	uint64_t generation;
	uint64_t retry_ns;    /* DOWN: not before */
	uint64_t deadline_ns; /* CONNECTING, GREETING: in lapis->run_ns's time */
	uint64_t backoff_ns;
	uint32_t address_idx;  /* CONNECTING, GREETING: which of the handle's it is */
	uint32_t address_left; /* CONNECTING: how many others are still to be tried */
	enum lp_wire_crc mode;
	uint32_t meta_max; /* bytes of meta in a message, as agreed on */

	uint32_t credits;
	uint32_t credit_bytes;
	uint32_t slots_used;
	uint64_t bytes_used;
	struct lpi_credit *slots;
	uint32_t *free_slots; /* a stack: [slots_used, credits) are free */
	uint64_t next_wire;
	struct lpi_ops queue;
	struct lpi_ops sending;
	size_t sent_bytes; /* of the first in sending */
	bool wants_out;

	uint8_t *in; /* LPI_READ_BYTES */
	size_t in_pos;
	size_t in_end;
	bool in_data; /* the data of `header` is coming */
	struct lp_wire_header header;
	struct lpi_credit *data_slot;
	uint8_t *target;
	uint32_t target_bytes; /* that are there */
	uint8_t *piece;        /* LP_WIRE_PIECE_MAX, made when it is needed */
	bool is_checked;       /* data that came has been verified */
	uint32_t crcs[LP_WIRE_CRCS_MAX];

	enum lpi_share_state share_state;
	int share_fd;   /* came before the answer, else -1 */
	uint8_t *share; /* only to be read */
	uint64_t share_bytes;
	uint64_t shared_cnt;   /* replies with data there that we are done with, */
	uint64_t released_cnt; /* and of which the daemon knows */
};

/* conn.c */
int lpi_link_new(struct lapis *lapis, uint32_t shard, struct lpi_link **ret_conn) LP_MUST_CHECK;
void lpi_link_free(struct lpi_link *conn);
/* Begins to connect; a failure is lpi_link_fail()'s. */
void lpi_link_connect(struct lpi_link *conn);
/* CONNECTING or GREETING for too long. */
void lpi_link_expire(struct lpi_link *conn);
/* What epoll said. */
void lpi_link_event(struct lpi_link *conn, uint32_t events);
/* Closes it. What was surely not done waits for another one, the rest ends. */
/* The same, of one that the daemon ends for want of places: what is unanswered is asked again. */
void lpi_link_turned_away(struct lpi_link *conn, const uint8_t *text);
void lpi_link_fail(struct lpi_link *conn, int err, const char *fmt, ...) LP_PRINTF(3, 4);

/* send.c */
void lpi_link_queue(struct lpi_link *conn, struct lpi_op *op);
void lpi_link_flush(struct lpi_link *conn);
/* A part of a message may be on its way, and the daemon waits for the rest. */
bool lpi_link_has_unsent(const struct lpi_link *conn);
/* The operation is no longer this connection's; true when its outcome is unknown. */
bool lpi_link_forget(struct lpi_op *op);
void lpi_link_free_slot(struct lpi_link *conn, struct lpi_credit *slot);

/* shared.c */
/* If it is worth it, and can be had: what gets of this connection bring comes by shared memory. */
void lpi_shared_ask(struct lpi_link *conn);
/* readv(), with descriptors. */
ssize_t lpi_shared_receive(struct lpi_link *conn, struct iovec *iov, int cnt) LP_MUST_CHECK;
/* What was asked for. An error ends the connection. */
int lpi_shared_answer(struct lpi_link *conn, const uint8_t *meta) LP_MUST_CHECK;
/* The data of a reply, if it is wanted, to the connection's target, and verified: -EBADMSG, what
 * is there is not what was meant. -EPROTO ends the connection. */
int lpi_shared_take(struct lpi_link *conn, const uint8_t *rest, bool is_wanted,
		    const char **ret_why) LP_MUST_CHECK;
/* The daemon is told what we are done with: by what is sent next. */
void lpi_shared_release(struct lpi_link *conn);
/* The connection has ended. */
void lpi_shared_drop(struct lpi_link *conn);

/* receive.c */
void lpi_link_receive(struct lpi_link *conn);
/* Closes what nobody has any more, or gives up an upload: however long the daemon takes to have
 * room for that, for else it stays until the connection ends. */
void lpi_link_give_up(struct lpi_link *conn, uint64_t ino, bool is_upload);
/* The buffer that this slot's data is received into is not to be written to any more. Without
 * memory the connection ends. */
void lpi_link_turn_away(struct lpi_link *conn, const struct lpi_credit *slot);

/* --- The handle ------------------------------------------------------------------------------- */

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

/* lapis.c */
uint64_t lpi_now(const struct lapis *lapis);
/* One that nobody submitted. */
void lpi_begin_own(struct lpi_op *op);
/* It has all its time from now on. */
void lpi_arm(struct lpi_op *op);
void lpi_wait(struct lpi_op *op);
/* The operation ends: its callback comes in this turn. The text may be op->text. */
void lpi_finish(struct lpi_op *op, int status, const char *text);
void lpi_end_early(struct lpi_op *op, int status, const char *text);
/* call NULL, or whose connection it is for. */
int lpi_submit(struct lapis *lapis, const struct lapis_request *request,
	       const struct lpi_await *call, uint64_t *ret_id) LP_MUST_CHECK;
bool lpi_is_running(const struct lapis *lapis);
/* A caller's struct that begins with its size. Later versions of it are longer: what they have more
 * must not be meant. -EINVAL, also for one of less than `least` bytes. */
int lpi_copy_struct(const void *from, size_t least, size_t known, void *ret) LP_MUST_CHECK;
int lpi_copy_request(const struct lapis_request *from, struct lapis_request *ret) LP_MUST_CHECK;

/* address.c */
int lpi_address_parse(struct lapis *lapis, const char *text) LP_MUST_CHECK;

/* route.c */
uint64_t lpi_route_hash(uint64_t ino, const char *path, size_t len);
void lpi_route_learn(struct lpi_op *op, uint32_t shard);
/* Gives the operation to a connection, or lets it wait. */
void lpi_route(struct lpi_op *op);
void lpi_route_waiting(struct lapis *lapis);

/* upload.c */
int lpi_upload_new(struct lpi_op *op, const struct lapis_request *request) LP_MUST_CHECK;
void lpi_upload_free(struct lpi_upload *upload);
void lpi_upload_start(struct lpi_op *op);
void lpi_upload_end(struct lpi_op *op, int status, const char *text);
/* A piece of each source that may be asked now, which may take as long as it likes. True when there
 * was any. */
bool lpi_uploads_feed(struct lapis *lapis);
/* After how much of the handle's time some may; UINT64_MAX: there is none. */
uint64_t lpi_uploads_wait_ns(const struct lapis *lapis);

/* call.c */
int lpi_set_error(int err, const char *text);

#endif
