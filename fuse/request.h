/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the kernel, from the read that brought it to the answer.
 *
 * Threads: the channel's.
 * Blocking, memory: none.
 *
 * An opcode is a chain of steps. begin() submits an operation of the namespace and says what comes
 * next, and so on, until one of the steps answers. The answer ends the request: it is not to be
 * touched afterwards.
 */
#ifndef LP_FUSE_REQUEST_H
#define LP_FUSE_REQUEST_H

#include "base/memory/pool.h"
#include "base/struct/sm.h"
#include "fuse/channel.h"

#define LPI_FUSE_INLINE_BYTES 640u /* of a message that needs no buffer */
#define LPI_FUSE_SEGS         6u   /* buffers that a message lands in */
#define LPI_FUSE_CRCS         (LP_FUSE_WRITE_MAX / 4096u + 1u)
#define LPI_FUSE_CHANGES      4u
#define LPI_FUSE_FORGOTTEN    64u /* at a time */

enum lpi_fuse_state {
	LPI_FUSE_LANDED, /* read, and not begun */
	LPI_FUSE_WORK,
	LPI_FUSE_DONE,
	LPI_FUSE_FAILED,
	LPI_FUSE_STATE_CNT
};

struct lpi_fuse_entry;
struct lpi_fuse_request;
typedef void lpi_fuse_step_fn(struct lpi_fuse_request *request);

struct lpi_fuse_request {
	struct lp_sm sm;
	uint64_t began_ns;               /* when it was read */
	struct lp_list_node node;        /* of those that wait: sync, room, carry */
	struct lp_list_node home_node;   /* of all that home has read, in their order */
	bool is_away;                    /* home's: another thread has it */
	bool is_known;                   /* what it asks for is in op already */
	struct lp_fuse_channel *home;    /* that has read it, and has its memory */
	struct lp_fuse_channel *channel; /* where it is at work */
	struct lpi_fuse_entry *entry;    /* it came by io_uring, and has not been answered */
	struct lp_fuse_message message;
	struct lp_ns_op op;
	lpi_fuse_step_fn *next;
	lpi_fuse_step_fn *after; /* of several steps that are one to others */
	struct lp_change changes[LPI_FUSE_CHANGES];
	struct lp_attrs attrs;
	struct lp_seg segs[LPI_FUSE_SEGS]; /* a write's data */
	uint32_t seg_cnt;
	uint32_t crc_cnt;            /* of those, once they have been summed */
	struct lp_seg adopted;       /* the same, copied for another thread */
	uint32_t budget_bytes;       /* of data under way, taken for it where it is at work */
	uint32_t home_bytes;         /* the same, where it was read, if that is elsewhere */
	struct lp_buf *message_buf;  /* of a message that is not inline */
	struct lp_buf *room;         /* for an answer or an operation */
	lpi_fuse_step_fn *with_room; /* what goes on when there is some */
	struct lp_ino ino;           /* that is changed, if not the header's */
	struct lp_ns_op source;      /* a read that goes on beside op; a list that was read */
	struct lp_ino parent;
	struct lpi_reading *reading; /* of the directory that is read */
	uint32_t rest_pos;           /* where what was listed and not added to the answer begins */
	int failure;                 /* to be answered when what was held has been let go */
	uint32_t tries;
	bool is_punching;
	bool is_killing;   /* noted as one that takes privileges (fuse/privileges.h) */
	bool is_impatient; /* it has waited for space, and found none */
	uint64_t at;
	uint64_t left;
	uint64_t limit;      /* of a copy: where the source's data ends, or its hole */
	uint64_t taken_from; /* of a fallocate: behind the file's end, and what was free there */
	uint64_t taken_to;
	uint64_t size_bytes; /* of the file then */
	int given_up;        /* the failure of a fallocate that gives back what it took */
	uint32_t count;
	struct lp_ns_named_value xattrs[2]; /* of something new */
	uint32_t xattr_cnt;
	uint32_t after_len;
	struct lp_msg msg; /* on its way through the threads */
	void (*handed)(struct lpi_fuse_request *request);
	uint64_t free_blocks;
	uint64_t own_blocks;    /* what its own shard has for it, and */
	uint64_t others_blocks; /* what the others can lend to that */
	bool takes_no_more;     /* that shard */
	uint64_t used_blocks;
	/* From here on nothing is cleared for a new one. */
	uint8_t after_name[256]; /* after_len of them */
	struct lp_ns_forgotten forgotten[LPI_FUSE_FORGOTTEN];
	struct lp_seg part[LPI_FUSE_SEGS]; /* of a write's data */
	uint32_t crcs[LPI_FUSE_CRCS];
	uint64_t bytes[LPI_FUSE_INLINE_BYTES / 8]; /* the message */
};

LP_LIST_DEFINE(lpi_fuse_home_list, struct lpi_fuse_request, home_node);
LP_LIST_DEFINE(lpi_fuse_list, struct lpi_fuse_request, node);

extern const struct lp_sm_table lpi_fuse_request_table;

/* --- Steps ------------------------------------------------------------------------------------ */

/* The request's operation, cleared. */
struct lp_ns_op *lpi_fuse_op(struct lpi_fuse_request *request, enum lp_ns_opcode opcode);
/* The same for one of the store's on an inode. */
struct lp_store_op *lpi_fuse_store_op(struct lpi_fuse_request *request, enum lp_store_opcode opcode,
				      struct lp_ino ino);
/* A transaction of the request's first changes. */
void lpi_fuse_txn(struct lpi_fuse_request *request, struct lp_ino ino, uint32_t change_cnt);
/* Whether it is a write, a range of fallocate's or a copy that is durable when it is answered
 * (O_DSYNC, O_SYNC): behind a write with O_DIRECT by AIO or io_uring, or to what is open with
 * FOPEN_DIRECT_IO, and behind the others, the kernel sends no FSYNC. What it writes back is not,
 * for then it does. */
bool lpi_fuse_is_dsync(const struct lpi_fuse_request *request);
void lpi_fuse_submit(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);
/* An inode was read: its access time is now, if the rules of relatime want that, or those of
 * strictatime. Beside op, which stays as it is. A failure is nobody's. */
void lpi_fuse_touch(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);
/* Somebody sets the access time, so that the next read may count, however soon it comes. */
void lpi_fuse_atime_is_set(struct lpi_fuse_request *request);
/* Whether what is opened with these flags has not been read for so long that the next read is not
 * to be served from the kernel's cache: it would count. */
bool lpi_fuse_is_read_due(const struct lpi_fuse_request *request, uint32_t flags,
			  const struct lp_attrs *attrs);
/* Data that is under way for it, given back at its end. */
void lpi_fuse_take_budget(struct lpi_fuse_request *request, uint32_t bytes);
/* As the states of a request want it: no earlier than the last move, for the turns of two threads
 * do not begin at the same time. */
void lpi_fuse_move(struct lpi_fuse_request *request, enum lpi_fuse_state state);
/* The data has been written, or will not be: buffers and budget, while the request goes on. */
void lpi_fuse_give_back_data(struct lpi_fuse_request *request);
int64_t lpi_fuse_wall_ns(const struct lpi_fuse_request *request);

/* The inode that the message's header names. */
static inline struct lp_ino lpi_fuse_own(const struct lpi_fuse_request *request)
{
	return (struct lp_ino){request->message.header.nodeid};
}

/* The inode that is changed: that one, unless a step has said otherwise. */
static inline struct lp_ino lpi_fuse_node(const struct lpi_fuse_request *request)
{
	return request->ino.nr != 0 ? request->ino : lpi_fuse_own(request);
}

/* The crc32c of each piece that the file's grid of blocks cuts from data at offset; returns how
 * many: at most LPI_FUSE_CRCS for LP_FUSE_WRITE_MAX bytes. */
uint32_t lpi_fuse_sum_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			     uint32_t *ret_crcs);
/* The same, and each piece is copied on the way: what has just been copied is in the cache. */
uint32_t lpi_fuse_copy_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			      uint8_t *to, uint32_t *ret_crcs);

/* Whether a read or write has passed the kernel's cache by: what it writes back has not, nor what
 * it reads to pages by a descriptor with O_DIRECT (mappings). */
bool lpi_fuse_is_uncached(const struct lpi_fuse_request *request);
/* Where a write goes, LP_STORE_APPEND: to the end; and the offset whose grid its checksums are of.
 */
uint64_t lpi_fuse_write_offset(const struct lpi_fuse_request *request);
uint64_t lpi_fuse_write_grid(const struct lpi_fuse_request *request);

/* --- Answers ---------------------------------------------------------------------------------- */

/* What the kernel is told of it. */
int lpi_fuse_errno_of(const struct lpi_fuse_request *request, int err);
/* err is negative, or 0 for an answer without anything in it. */
void lpi_fuse_answer(struct lpi_fuse_request *request, int err);
void lpi_fuse_answer_bytes(struct lpi_fuse_request *request, const void *bytes, size_t len);
/* False: nobody heard it. The request has not ended. */
bool lpi_fuse_tell(struct lpi_fuse_request *request, const void *bytes, size_t len);
void lpi_fuse_answer_segs(struct lpi_fuse_request *request, const struct lp_seg *segs,
			  uint32_t seg_cnt);
/* Nobody heard of an inode that was held for an answer: it is let go, and the request ends. */
void lpi_fuse_let_go(struct lpi_fuse_request *request, struct lp_ino ino);
/* Lets go of the first cnt of request->forgotten. */
void lpi_fuse_forget_some(struct lpi_fuse_request *request, uint32_t cnt, lpi_fuse_step_fn *next);
/* The last step of one that has no answer. */
lpi_fuse_step_fn lpi_fuse_ended;

/* The mode without what a change by somebody who has no right to it takes: set-user-ID always;
 * set-group-ID if the group may execute the file, or he is a stranger, who is not in the group. */
uint16_t lpi_fuse_mode_killed(uint16_t mode, bool is_stranger);
/* What the operation returned, if that is all. */
void lpi_fuse_answer_result(struct lpi_fuse_request *request);
void lpi_fuse_end(struct lpi_fuse_request *request, int err);

/* How long the kernel may believe the name, and the attributes, that it is told now. */
uint64_t lpi_fuse_entry_ns(const struct lpi_fuse_request *request);
uint64_t lpi_fuse_attr_ns(const struct lpi_fuse_request *request);
/* And these, which may change without anybody's doing. */
uint64_t lpi_fuse_attrs_ns(const struct lpi_fuse_request *request, const struct lp_attrs *attrs);
/* Whether the kernel is to read and write what it opens now without its cache. */
bool lpi_fuse_is_direct(const struct lpi_fuse_request *request);
/* The same as flags of the answer (FOPEN_...). is_due: the next read is not to be served from the
 * cache. */
uint32_t lpi_fuse_open_flags(const struct lpi_fuse_request *request, bool is_due);
/* What the kernel is told of an inode. */
void lpi_fuse_fill_attr(struct lp_ino ino, const struct lp_attrs *attrs, struct fuse_attr *ret);
void lpi_fuse_fill_entry(const struct lpi_fuse_request *request, const struct lp_ns_found *found,
			 struct fuse_entry_out *ret);
void lpi_fuse_split_time(int64_t ns, uint64_t *ret_s, uint32_t *ret_ns);
uint32_t lpi_fuse_mode(uint8_t type, uint16_t mode);
/* 0: no such type. */
uint8_t lpi_fuse_type(uint32_t mode);
/* found is held, and let go if nobody hears of it. */
void lpi_fuse_answer_entry(struct lpi_fuse_request *request, const struct lp_ns_found *found);
void lpi_fuse_answer_attrs(struct lpi_fuse_request *request, struct lp_ino ino,
			   const struct lp_attrs *attrs);

/* --- Opcodes ---------------------------------------------------------------------------------- */

/* What begins an opcode's work; NULL: not implemented. */
typedef lpi_fuse_step_fn *lpi_fuse_find_fn(uint32_t opcode);

#endif
