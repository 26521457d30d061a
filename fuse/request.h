/* SPDX-License-Identifier: Apache-2.0 */
/* A request of the kernel, from the read that brought it to the answer.
 *
 * Threads: the channel's.
 * Blocking, memory: none.
 *
 * An opcode is a chain of steps. begin() submits an operation of the namespace and names the next
 * step. This goes on until a step answers. The answer ends the request, and no step may touch it
 * afterwards.
 */
#ifndef LP_FUSE_REQUEST_H
#define LP_FUSE_REQUEST_H

#include "base/memory/pool.h"
#include "base/struct/sm.h"
#include "fuse/channel.h"

#define LPI_FUSE_INLINE_BYTES 640u /* bytes of a message that needs no buffer */
#define LPI_FUSE_SEGS         6u   /* buffers that a message lands in */
#define LPI_FUSE_CRCS         (LP_FUSE_WRITE_MAX / 4096u + 1u)
#define LPI_FUSE_CHANGES      4u
#define LPI_FUSE_FORGOTTEN    64u /* inodes let go at a time */

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
	uint64_t began_ns;             /* when it was read */
	struct lp_list_node node;      /* of requests that wait: sync, room, carry */
	struct lp_list_node home_node; /* of all requests that home has read, in their order */
	bool is_away;                  /* home's: another thread has the request */
	bool is_known;                 /* op holds the result already (a directory's attributes) */
	struct lp_fuse_channel *home;  /* the channel that has read it, and owns its memory */
	struct lp_fuse_channel *channel; /* the channel where it is at work */
	struct lpi_fuse_entry *entry;    /* it came by io_uring, and has not been answered */
	struct lp_fuse_message message;
	struct lp_ns_op op;
	lpi_fuse_step_fn *next;
	lpi_fuse_step_fn *after; /* the step after a chain of steps that others call as one */
	struct lp_change changes[LPI_FUSE_CHANGES];
	struct lp_attrs attrs;
	struct lp_seg segs[LPI_FUSE_SEGS]; /* a write's data */
	uint32_t seg_cnt;
	uint32_t crc_cnt;      /* checksums of segs, once they are made */
	struct lp_seg adopted; /* the data of segs, copied for another thread */
	uint32_t budget_bytes; /* bytes of data under way, counted for it where it is at work */
	uint32_t home_bytes;   /* the same where it was read, if that is another channel */
	struct lp_buf *message_buf;  /* holds a message that is not inline */
	struct lp_buf *room;         /* for an answer or an operation */
	lpi_fuse_step_fn *with_room; /* called when there is room */
	struct lp_ino ino;           /* the inode that is changed, if it is not the header's */
	struct lp_ns_op source;      /* a read that goes on beside op, or a list that was read */
	struct lp_ino parent;
	struct lpi_reading *reading; /* state of the directory that is read */
	uint32_t rest_pos; /* where the listed entries begin that were not added to the answer */
	int failure;       /* answered when everything held for the request has been let go */
	uint32_t tries;
	bool is_punching;
	bool is_killing;   /* noted as a request that takes privileges (fuse/privileges.h) */
	bool is_impatient; /* it has waited for space, and found none */
	uint64_t at;
	uint64_t left;
	uint64_t limit;      /* of a copy: end of the source's data, or of its hole */
	uint64_t taken_from; /* of a fallocate: the range behind the end that was free before */
	uint64_t taken_to;
	uint64_t size_bytes; /* the file's size at that time */
	int given_up;        /* the failure of a fallocate that gives blocks back */
	uint32_t count;
	struct lp_ns_named_value xattrs[2]; /* of a new inode */
	uint32_t xattr_cnt;
	uint32_t after_len;
	struct lp_msg msg; /* on its way through the threads */
	void (*handed)(struct lpi_fuse_request *request);
	uint64_t free_blocks;
	uint64_t own_blocks;    /* blocks that its own shard has for it */
	uint64_t others_blocks; /* blocks that the other shards can lend to its own */
	bool takes_no_more;     /* its own shard takes no more */
	uint64_t used_blocks;
	/* A new request does not clear the fields from here on. */
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
/* The same for an operation of the store on an inode. */
struct lp_store_op *lpi_fuse_store_op(struct lpi_fuse_request *request, enum lp_store_opcode opcode,
				      struct lp_ino ino);
/* A transaction of the request's first changes. */
void lpi_fuse_txn(struct lpi_fuse_request *request, struct lp_ino ino, uint32_t change_cnt);
/* Whether the request's change is durable when it is answered (O_DSYNC, O_SYNC): a write, a range
 * of fallocate, or a copy. The kernel sends no FSYNC after these: a write with O_DIRECT by AIO or
 * io_uring, a write to a file that is open with FOPEN_DIRECT_IO, a fallocate, a copy. It sends one
 * after data that it writes back, so such a write is not made durable here. */
bool lpi_fuse_is_dsync(const struct lpi_fuse_request *request);
void lpi_fuse_submit(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);
/* An inode was read. Sets its access time to now, if the rules of relatime or strictatime say so.
 * This runs beside op and leaves it as it is. No caller hears of a failure. */
void lpi_fuse_touch(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);
/* A caller sets the access time, so the next read may count, however early it comes. */
void lpi_fuse_atime_is_set(struct lpi_fuse_request *request);
/* Whether a file that is opened with these flags has not been read for so long that its next read
 * would set the access time. The kernel must then not serve that read from its cache. */
bool lpi_fuse_is_read_due(const struct lpi_fuse_request *request, uint32_t flags,
			  const struct lp_attrs *attrs);
/* Counts bytes of data as under way for the request; its end gives them back. */
void lpi_fuse_take_budget(struct lpi_fuse_request *request, uint32_t bytes);
/* Moves the request to a state. The time of the move is no earlier than that of the last one,
 * because the turns of two threads do not begin at the same time. */
void lpi_fuse_move(struct lpi_fuse_request *request, enum lpi_fuse_state state);
/* The data has been written, or will not be: gives back buffers and budget. The request goes on. */
void lpi_fuse_give_back_data(struct lpi_fuse_request *request);
int64_t lpi_fuse_wall_ns(const struct lpi_fuse_request *request);

/* The inode that the message's header names. */
static inline struct lp_ino lpi_fuse_own(const struct lpi_fuse_request *request)
{
	return (struct lp_ino){request->message.header.nodeid};
}

/* The inode that is changed: the header's, unless a step has set another. */
static inline struct lp_ino lpi_fuse_node(const struct lpi_fuse_request *request)
{
	return request->ino.nr != 0 ? request->ino : lpi_fuse_own(request);
}

/* The crc32c of each piece that the file's grid of blocks cuts from data at offset. Returns the
 * number of pieces: at most LPI_FUSE_CRCS for LP_FUSE_WRITE_MAX bytes. */
uint32_t lpi_fuse_sum_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			     uint32_t *ret_crcs);
/* The same, and copies each piece first, because copied data is in the CPU's cache. */
uint32_t lpi_fuse_copy_pieces(const struct lp_seg *segs, uint32_t seg_cnt, uint64_t offset,
			      uint8_t *to, uint32_t *ret_crcs);

/* Whether a read or write bypasses the kernel's cache. Writes by which the kernel writes back do
 * not, nor do reads into pages by a descriptor with O_DIRECT (mappings). */
bool lpi_fuse_is_uncached(const struct lpi_fuse_request *request);
/* The offset of a write, LP_STORE_APPEND: at the end; and the offset whose grid its checksums use.
 */
uint64_t lpi_fuse_write_offset(const struct lpi_fuse_request *request);
uint64_t lpi_fuse_write_grid(const struct lpi_fuse_request *request);

/* --- Answers ---------------------------------------------------------------------------------- */

/* The error that the kernel is answered. */
int lpi_fuse_errno_of(const struct lpi_fuse_request *request, int err);
/* err is negative, or 0 for an answer without anything in it. */
void lpi_fuse_answer(struct lpi_fuse_request *request, int err);
void lpi_fuse_answer_bytes(struct lpi_fuse_request *request, const void *bytes, size_t len);
/* False: no caller waits for the answer any more. The request has not ended. */
bool lpi_fuse_tell(struct lpi_fuse_request *request, const void *bytes, size_t len);
void lpi_fuse_answer_segs(struct lpi_fuse_request *request, const struct lp_seg *segs,
			  uint32_t seg_cnt);
/* The kernel did not take an answer that names a held inode: lets go of the inode and ends the
 * request. */
void lpi_fuse_let_go(struct lpi_fuse_request *request, struct lp_ino ino);
/* Lets go of the first cnt of request->forgotten. */
void lpi_fuse_forget_some(struct lpi_fuse_request *request, uint32_t cnt, lpi_fuse_step_fn *next);
/* The last step of a request that has no answer. */
lpi_fuse_step_fn lpi_fuse_ended;

/* The mode after a change by a caller without a right to the set-ID bits. Set-user-ID always goes.
 * Set-group-ID goes if the group may execute the file, or if the caller is a stranger, which is not
 * in the group. */
uint16_t lpi_fuse_mode_killed(uint16_t mode, bool is_stranger);
/* Answers with the operation's result, when there is nothing else to answer. */
void lpi_fuse_answer_result(struct lpi_fuse_request *request);
void lpi_fuse_end(struct lpi_fuse_request *request, int err);

/* How long the kernel may believe the name, and the attributes, that it is told now. */
uint64_t lpi_fuse_entry_ns(const struct lpi_fuse_request *request);
uint64_t lpi_fuse_attr_ns(const struct lpi_fuse_request *request);
/* The same for these attributes, which may change without a request. */
uint64_t lpi_fuse_attrs_ns(const struct lpi_fuse_request *request, const struct lp_attrs *attrs);
/* Whether the kernel is to bypass its cache for reads and writes of a file that it opens now. */
bool lpi_fuse_is_direct(const struct lpi_fuse_request *request);
/* The same as flags of the answer (FOPEN_...). is_due: the kernel must not serve the next read from
 * its cache. */
uint32_t lpi_fuse_open_flags(const struct lpi_fuse_request *request, bool is_due);
/* Fills in an inode's attributes for the kernel. */
void lpi_fuse_fill_attr(struct lp_ino ino, const struct lp_attrs *attrs, struct fuse_attr *ret);
void lpi_fuse_fill_entry(const struct lpi_fuse_request *request, const struct lp_ns_found *found,
			 struct fuse_entry_out *ret);
void lpi_fuse_split_time(int64_t ns, uint64_t *ret_s, uint32_t *ret_ns);
uint32_t lpi_fuse_mode(uint8_t type, uint16_t mode);
/* 0: there is no such type. */
uint8_t lpi_fuse_type(uint32_t mode);
/* found is held; it is let go if the kernel does not take the answer. */
void lpi_fuse_answer_entry(struct lpi_fuse_request *request, const struct lp_ns_found *found);
void lpi_fuse_answer_attrs(struct lpi_fuse_request *request, struct lp_ino ino,
			   const struct lp_attrs *attrs);

/* --- Opcodes ---------------------------------------------------------------------------------- */

/* Finds an opcode's first step; NULL: not implemented. */
typedef lpi_fuse_step_fn *lpi_fuse_find_fn(uint32_t opcode);

#endif
