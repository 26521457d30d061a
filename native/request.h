/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the native door: its states from the header to the last reply.
 *
 * Threads: the door's.
 * Blocking: none.
 * Memory: none, except with options.without_pool.
 *
 * The life of a request:
 *   1. It comes out of the door's pool when its header is there. It holds all that the request
 *      needs: meta, checksums, buffers of its data, operations of the namespace, and the reply.
 *   2. The inodes that it refers to are looked up, in the same way for all opcodes.
 *   3. The opcode's own operation is submitted. Its result becomes the reply, which is queued on
 *      the connection. While the reply waits to be sent only the reply is kept.
 *   4. A long get does this several times, with pieces from a pool of their own that are read
 *      ahead.
 *
 * When the connection goes, a request at work goes on to its end, and its reply is dropped.
 */
#ifndef LP_NATIVE_REQUEST_H
#define LP_NATIVE_REQUEST_H

#include "base/struct/sm.h"
#include "native/conn.h"

#define LPI_META_INLINE 512u /* bytes of meta that need no buffer */
#define LPI_CRCS_INLINE 20u  /* checksums */
/* Bytes of a reply's meta and checksums: one piece of a read, in shared memory or not. */
#define LPI_REST_INLINE  (1056u + LP_WIRE_PARTS_MAX * LP_WIRE_SHARED_SIZE)
#define LPI_DATA_SEGS    12u        /* buffers of data: seven, or more where large ones are out */
#define LPI_PIECES_AHEAD 4u         /* pieces of one get that are read or sent at a time; */
#define LPI_AHEAD_BYTES  (8u << 20) /* only one if those of its connection have this many bytes */
#define LPI_TRIES_MAX    8u /* how often a path is looked up again when its object is gone */
#define LPI_OWN_CHANGES  5u /* of one transaction; a compound has more, in a buffer */
#define LPI_PUT_XATTRS   16u
#define LPI_ADMIN_PARTS  32u /* of an answer of the administration */
#define LPI_COMPOUND_MAX 30u

enum lpi_request_state {
	LPI_REQUEST_REST,  /* meta and checksums are coming */
	LPI_REQUEST_DATA,  /* data is coming */
	LPI_REQUEST_WAIT,  /* an earlier one on the same path or number is at work */
	LPI_REQUEST_FIND,  /* the inodes that it refers to are looked up */
	LPI_REQUEST_WORK,  /* the namespace or the administration works on it */
	LPI_REQUEST_CLOSE, /* gives back the inode that a get held open */
	LPI_REQUEST_REPLY, /* the last reply is queued, or being sent */
	LPI_REQUEST_DONE,
	LPI_REQUEST_DROPPED, /* the client has gone */
	LPI_REQUEST_STATE_CNT
};
extern const struct lp_sm_table lpi_request_table;

struct lpi_conn;
struct lpi_open;
struct lpi_opcode;
struct lpi_piece;
struct lpi_request;

/* One message to a client, with its memory until it has been sent. */
struct lpi_reply {
	struct lp_list_node node; /* of the connection's queue */
	struct lpi_piece *piece;  /* NULL: a connection's last words */
	const struct lp_seg *segs;
	uint32_t seg_cnt;
	uint32_t data_bytes;
	struct lp_buf *rest; /* meta that does not fit behind the header */
	uint32_t rest_bytes; /* of meta and checksums, wherever they are */
	bool is_last;        /* of its request; false when its time has been noted */
	bool is_shared;      /* its data is in the shared memory, and is not sent */
	uint8_t head[LP_WIRE_HEADER_SIZE + LPI_REST_INLINE];
};

/* An operation of the namespace and the reply made from it. */
struct lpi_piece {
	struct lp_ns_op op;
	struct lpi_request *request;
	struct lp_list_node node; /* of its request, in the order of the offsets */
	uint64_t offset;
	uint64_t length;
	uint64_t budget_bytes; /* of replies' data, taken for it */
	bool is_out;           /* at work, or being sent */
	bool is_read;          /* has an answer */
	bool holds;            /* ... that must be ended */
	struct lpi_reply reply;
};

LP_LIST_DEFINE(lpi_piece_list, struct lpi_piece, node);

enum lpi_ref_kind {
	LPI_REF_NONE,
	LPI_REF_INO,  /* an inode that must exist */
	LPI_REF_NAME, /* a directory that exists, and a name in it */
	LPI_REF_KEY,  /* a path from the root, not looked up */
};

struct lpi_ref {
	enum lpi_ref_kind kind;
	struct lp_ino ino;    /* as sent */
	struct lp_bytes path; /* as sent */
	struct lp_ino found;  /* the inode, or the directory */
	struct lp_bytes name; /* in it */
};

/* Whether a request's change of a number that it names is with the store as soon as it is
 * submitted. The store keeps the order from then on. */
enum lpi_request_look {
	LPI_LOOK_NEVER,
	LPI_LOOK_PERHAPS, /* it is, unless a guard on the inode fails */
	LPI_LOOK_FIRST,   /* it is not: the request asks for something first, or waits */
};

struct lpi_request {
	struct lp_sm sm;
	struct lp_list_node node;      /* of the connection's requests */
	struct lp_list_node wait_node; /* of those that wait for another, or for room for replies */
	struct lp_door *door;
	struct lpi_conn *conn;
	const struct lpi_opcode *opcode; /* NULL: the opcode is unknown */
	struct lp_wire_header header;
	uint64_t waits_ns; /* since when it waits for room for replies; 0: not */
	uint64_t began_ns; /* when the message's end was received */
	uint64_t state_ns[LPI_REQUEST_STATE_CNT]; /* in each state that was left, in all */
	int status;                               /* of the last reply */
	uint32_t received;                        /* bytes of the part that is coming */
	uint32_t checked; /* bytes of the data among these whose checksums were checked: in whole
			     pieces, */
	uint32_t checked_pieces; /* the number of these pieces */
	int refused; /* the error for which it is only read to its end; the words are in why */
	/* The message. */
	uint8_t *meta;
	uint32_t *crcs;
	struct lp_buf *meta_buf;
	struct lp_buf *crcs_buf;
	uint32_t held_bytes; /* its part of the memory for meta, operations and answers */
	struct lp_seg segs[LPI_DATA_SEGS];
	uint32_t seg_cnt;
	uint32_t receiving_bytes; /* of its data, until the request is at work */
	uint64_t path_hashes[2];  /* of the paths it names, in the connection's table */
	uint32_t path_cnt;
	uint64_t number_hashes[2]; /* and of the numbers: in the table unless look is LPI_LOOK_NEVER
				    */
	uint32_t number_cnt;       /* 0 until the first use */
	enum lpi_request_look look;
	/* Its objects. */
	struct lpi_ref refs[2];
	uint32_t ref_idx; /* the one that is being looked up */
	uint32_t tries;
	/* Work. */
	struct lp_buf *room; /* changes of a compound, xattrs of a put, records of a list */
	struct lp_change changes[LPI_OWN_CHANGES];
	struct lp_attrs attrs;
	struct lp_change *list; /* the one of them that sets an access list; NULL: none does */
	uint32_t own_at;        /* where the door's own guards are among the changes, */
	uint32_t own_cnt;       /* their number */
	struct lpi_open *open;  /* the open that it makes, closes or commits */
	struct lp_admin admin;
	uint32_t admin_replies; /* queued and not sent */
	uint32_t items_max;     /* of a listing; 0: as many as fit */
	/* A get. */
	struct {
		uint64_t start;
		uint64_t at;  /* where the next piece begins */
		uint64_t end; /* not above the object's, once size_known */
		uint64_t version_nr;
		struct lp_ino held; /* is open; nr 0: nothing is */
		struct lpi_piece_list reading;
		uint32_t out_cnt; /* pieces at work or being sent */
		bool size_known;
		bool is_last_queued;
		bool is_closing;
	} get;
	/* Of a long request: signs that it progresses. */
	struct {
		uint64_t steps; /* at the last one, which was told then; */
		uint64_t at_ns; /* 0: none was */
		bool is_out;    /* it has not been sent yet */
		bool is_end;    /* the last reply has, or was dropped */
	} sign;
	struct lpi_piece piece; /* the one that each request has */
	/* For a new request nothing is cleared from here on, except the first byte of why. */
	uint8_t meta_inline[LPI_META_INLINE];
	uint32_t crcs_inline[LPI_CRCS_INLINE];
	struct lp_ns_op find; /* a walk or lookup; opening and closing the inode that a get holds */
	struct lp_ns_found found; /* of a ref by path: the inode found */
	char why[160];            /* words for a refusal or failure */
};

LP_LIST_DEFINE(lpi_request_list, struct lpi_request, node);
LP_LIST_DEFINE(lpi_wait_list, struct lpi_request, wait_node);
LP_LIST_DEFINE(lpi_reply_list, struct lpi_reply, node);

/* --- Birth and death -------------------------------------------------------------------------- */

/* NULL: none is left. The request belongs to the connection; its header is the connection's. */
struct lpi_request *lpi_request_new(struct lpi_conn *conn, const struct lp_wire_header *header);
/* The request is only read to its end, and answered with this error. */
void lpi_request_refuse(struct lpi_request *request, int err, const char *why);
/* Checks received data that was not checked yet; refuses the request if a checksum does not
 * match. */
void lpi_request_check(struct lpi_request *request);
/* The whole message was received. May answer at once. */
void lpi_request_begin(struct lpi_request *request);
/* The connection ends before the whole message was received. */
void lpi_request_abandon(struct lpi_request *request);

/* --- Steps, for the opcodes ------------------------------------------------------------------- */

/* The request's changes of the numbers that it names are not with the store yet: later requests
 * wait. */
void lpi_request_note_look(struct lpi_request *request);
/* The same. True: the request itself waits for an earlier one of that kind, and begins anew after
 * it. */
bool lpi_request_waits_to_look(struct lpi_request *request);
/* Looks up the request's references, from the beginning; then starts its operation. */
void lpi_request_find(struct lpi_request *request);
/* Submits the request's own operation, for a run() that has done its own part. */
void lpi_request_submit(struct lpi_request *request);
/* The end of that operation: replies, or looks the references up again. */
void lpi_request_worked(struct lp_ns_op *op);
/* The object was gone when the operation began: looks it up again, if that can help. */
bool lpi_request_again(struct lpi_request *request, int result);
/* The last reply, with an error and words for people; "" is allowed. */
void lpi_request_fail(struct lpi_request *request, int err, const char *why);
/* A writer for the meta of the last reply, of at most so many bytes; then call
 * lpi_request_answer(). NULL: there is no memory, and the request has failed with -EAGAIN. */
struct lp_writer *lpi_request_writer(struct lpi_request *request, uint32_t meta_max);
void lpi_request_answer(struct lpi_request *request);
/* Queues the reply of a piece, which has its meta and data. The request may be gone afterwards. */
void lpi_piece_queue(struct lpi_piece *piece, uint32_t meta_bytes, bool more);
void lpi_piece_queue_error(struct lpi_piece *piece, int err, const char *why);
/* An additional piece; NULL: none is left. */
struct lpi_piece *lpi_piece_new(struct lpi_request *request);
/* Ends the answer that it holds. A piece of lpi_piece_new() is freed. */
void lpi_piece_free(struct lpi_piece *piece);
/* Takes room for a reply's data. False: there is none now. */
bool lpi_piece_budget(struct lpi_piece *piece, uint64_t bytes);
/* Sends signs that the connection's long requests progress, if its client takes them. */
void lpi_conn_give_signs(struct lpi_conn *conn);
/* A sign was sent, or the reply of a request that may have had signs before. */
void lpi_sent_sign(struct lpi_request *request, struct lpi_piece *piece);
/* A reply has been sent, or is dropped. */
void lpi_reply_done(struct lpi_reply *reply);
/* Ends and frees the request. */
void lpi_request_end(struct lpi_request *request);
/* Takes its part of the memory for meta, operations and answers that are meta; or says why not
 * now. */
enum lpi_quota_verdict lpi_request_hold(struct lpi_request *request, uint32_t bytes);
/* Gives that back, except so many bytes. */
void lpi_request_release(struct lpi_request *request, uint32_t keep_bytes);
/* A buffer out of that part. NULL: none is left, which is noted. */
struct lp_buf *lpi_request_buf(struct lpi_request *request, uint32_t bytes);
/* A buffer for its operation; NULL: none is left. */
struct lp_buf *lpi_request_room(struct lpi_request *request, uint32_t bytes);
/* The changes of its transaction: in the request, or, for a compound, in its room. */
struct lp_change *lpi_request_changes(struct lpi_request *request);
/* The rights of its client, for modes. */
struct lp_rights lpi_request_rights(const struct lpi_request *request);
void lpi_request_move(struct lpi_request *request, enum lpi_request_state state);

#endif
