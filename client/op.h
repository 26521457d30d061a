/* SPDX-License-Identifier: Apache-2.0 */
/* An operation of liblapis: what was asked for, its message, where it is, and its result.
 *
 * Threads: all of this belongs to the thread that runs the handle (who is in lapis_turn(), one at a
 * time), but for an operation before it is in the handle's inbox, which is its maker's.
 * Blocking: none.
 */
#ifndef LP_CLIENT_OP_H
#define LP_CLIENT_OP_H

#include "base/clock.h"
#include "base/error.h"
#include "base/struct/list.h"
#include "base/struct/tree.h"
#include "client/lapis.h"
#include "wire/wire.h"

#define LPI_TEXT_MAX  320u        /* of an error: the server's 255 bytes, or ours around them */
#define LPI_VALUE_MAX (64u << 20) /* of an answer in several parts */
#define LPI_HEAD_ROOM 256u        /* a message without data that is not longer needs no memory */
#define LPI_SPARE_MAX 256u        /* operations that are kept for the next ones */

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

/* life.c */
/* It counts, and is among all: for who then begins it. */
void lpi_enter(struct lpi_op *op);
/* One that nobody submitted, and that is no upload, begins. */
void lpi_begin_own(struct lpi_op *op);
/* It has all its time from now on. */
void lpi_arm(struct lpi_op *op);
/* The one that has least time left, or NULL. */
struct lpi_op *lpi_first_deadline(const struct lapis *lapis);
void lpi_wait(struct lpi_op *op);
/* The operation ends: its callback comes in this turn. The text may be op->text. */
void lpi_finish(struct lpi_op *op, int status, const char *text);

#endif
