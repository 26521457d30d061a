/* SPDX-License-Identifier: Apache-2.0 */
/* A connection of liblapis to one shard of the daemon.
 *
 * Threads: all of this belongs to the thread that runs the handle (who is in lapis_turn(), one at a
 * time).
 * Blocking: none.
 */
#ifndef LP_CLIENT_CONNECTION_H
#define LP_CLIENT_CONNECTION_H

#include <sys/uio.h>

#include "client/op.h"

#define LPI_CREDITS_MAX    4096u
#define LPI_READ_BYTES     (256u << 10)
#define LPI_LINK_TRIES_MAX 6u /* of one message, in a row without anything new */
#define LPI_BACKOFF_MIN    (10 * LP_NS_PER_MS)
#define LPI_BACKOFF_MAX    (1000 * LP_NS_PER_MS)
#define LPI_BUSY_SHIFT_MAX 6u /* how often the wait doubles for a daemon that has no room */
#define LPI_SHARE_FROM     (256u << 10) /* bytes of a piece that are worth it */

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

/* down.c */
int lpi_link_new(struct lapis *lapis, uint32_t shard, struct lpi_link **ret_conn) LP_MUST_CHECK;
void lpi_link_free(struct lpi_link *conn);
/* Closes it. What was surely not done waits for another one, the rest ends. */
void lpi_link_fail(struct lpi_link *conn, int err, const char *fmt, ...) LP_PRINTF(3, 4);
/* The same, of one that the daemon ends for want of places: what is unanswered is asked again. */
void lpi_link_turned_away(struct lpi_link *conn, const uint8_t *text);
/* Memory for a piece that is nobody's, or that is there already. -ENOMEM. */
int lpi_link_piece_new(struct lpi_link *conn) LP_MUST_CHECK;
/* The buffer that this slot's data is received into is not to be written to any more. Without
 * memory the connection ends. */
void lpi_link_turn_away(struct lpi_link *conn, const struct lpi_credit *slot);

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

/* send.c */
void lpi_link_queue(struct lpi_link *conn, struct lpi_op *op);
/* Sends what it can. An error: the connection takes nothing any more, and is still to end, when
 * what came last has been received. */
int lpi_link_flush(struct lpi_link *conn) LP_MUST_CHECK;
/* A part of a message may be on its way, and the daemon waits for the rest. */
bool lpi_link_has_unsent(const struct lpi_link *conn);
/* The operation is no longer this connection's; true when its outcome is unknown. */
bool lpi_link_forget(struct lpi_op *op);
void lpi_link_free_slot(struct lpi_link *conn, struct lpi_credit *slot);

/* receive.c */
void lpi_link_receive(struct lpi_link *conn);
/* Closes what nobody has any more, or gives up an upload: however long the daemon takes to have
 * room for that, for else it stays until the connection ends. */
void lpi_link_give_up(struct lpi_link *conn, uint64_t ino, bool is_upload);

/* conn.c */
/* Begins to connect; a failure is lpi_link_fail()'s. */
void lpi_link_connect(struct lpi_link *conn);
/* CONNECTING or GREETING for too long. */
void lpi_link_expire(struct lpi_link *conn);
/* Sends what it can. One that takes nothing any more ends. */
void lpi_link_send(struct lpi_link *conn);
/* What epoll said. */
void lpi_link_event(struct lpi_link *conn, uint32_t events);

#endif
