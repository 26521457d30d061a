/* SPDX-License-Identifier: Apache-2.0 */
/* The steps that all opcodes share, the answers, and the end.
 *
 * An answer is one writev of a header and its data, which the kernel copies in the call. The answer
 * to a request that came by io_uring goes to the request's entry instead. An answer fails if the
 * request was aborted (ENOENT) or the connection has ended. No caller waits then, so the failure is
 * ignored. */
#include "fuse/request.h"

#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "base/error.h"
#include "base/log.h"
#include "fuse/channel_state.h"
#include "fuse/handover.h"
#include "store/record/inode.h"

#define TO LP_SM_TO
static const struct lp_sm_state states[LPI_FUSE_STATE_CNT] = {
	[LPI_FUSE_LANDED] = {"LANDED", LP_SM_INITIAL, TO(LPI_FUSE_WORK)},
	[LPI_FUSE_WORK] = {"WORK", 0, TO(LPI_FUSE_DONE) | TO(LPI_FUSE_FAILED)},
	[LPI_FUSE_DONE] = {"DONE", LP_SM_FINAL, 0},
	[LPI_FUSE_FAILED] = {"FAILED", LP_SM_FINAL | LP_SM_FAILURE, 0},
};
#undef TO

const struct lp_sm_table lpi_fuse_request_table = {
	.name = "mount request", .states = states, .state_cnt = LPI_FUSE_STATE_CNT};

/* Most segments of one answer: the header and the pieces of a read. */
#define ANSWER_IOVS  1024u
#define MADE_ATTR_NS (10 * LP_NS_PER_MS)

/* --- Steps ------------------------------------------------------------------------------------ */

int64_t lpi_fuse_wall_ns(const struct lpi_fuse_request *request)
{
	return lp_clock_wall_ns(lp_reactor_clock(request->channel->options.reactor));
}

static void completed(struct lp_ns_op *op)
{
	struct lpi_fuse_request *request = LP_CONTAINER_OF(op, struct lpi_fuse_request, op);
	request->next(request);
}

bool lpi_fuse_is_dsync(const struct lpi_fuse_request *request)
{
	const union lp_fuse_in *in = &request->message.in;
	switch (request->message.header.opcode) {
	case FUSE_WRITE:
		return (in->write.flags & O_DSYNC) != 0 &&
		       (in->write.write_flags & FUSE_WRITE_CACHE) == 0;
	/* These come without the open's flags. */
	case FUSE_FALLOCATE:
		return (in->fallocate.fh & LPI_FUSE_HANDLE_DSYNC) != 0;
	case FUSE_COPY_FILE_RANGE:
		return (in->copy.fh_out & LPI_FUSE_HANDLE_DSYNC) != 0;
	default:
		return false;
	}
}

struct lp_ns_op *lpi_fuse_op(struct lpi_fuse_request *request, enum lp_ns_opcode opcode)
{
	const struct lp_fuse_behaviour *behaviour = &request->channel->options.behaviour;
	const struct fuse_in_header *header = &request->message.header;
	struct lp_ns_op *op = &request->op;
	memset(op, 0, sizeof(*op));
	op->opcode = opcode;
	op->complete = completed;
	op->is_mounts = true;
	/* Without a sync, the last changes may be lost (rule M1). */
	bool is_durable = behaviour->sync || lpi_fuse_is_dsync(request);
	op->ack = is_durable ? LP_ACK_DURABLE : LP_ACK_ORDERED;
	op->who.uid = behaviour->squash_uid == UINT32_MAX ? header->uid : behaviour->squash_uid;
	op->who.gid = behaviour->squash_gid == UINT32_MAX ? header->gid : behaviour->squash_gid;
	return op;
}

struct lp_store_op *lpi_fuse_store_op(struct lpi_fuse_request *request, enum lp_store_opcode opcode,
				      struct lp_ino ino)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_STORE);
	op->store.ino = ino;
	op->store.is_impatient = request->is_impatient;
	op->store.op.opcode = opcode;
	op->store.op.sees_ordered = op->ack == LP_ACK_ORDERED;
	return &op->store.op;
}

void lpi_fuse_txn(struct lpi_fuse_request *request, struct lp_ino ino, uint32_t change_cnt)
{
	struct lp_store_op *op = lpi_fuse_store_op(request, LP_STORE_TXN, ino);
	LP_ASSERT(change_cnt <= LPI_FUSE_CHANGES);
	for (uint32_t i = 0; i < change_cnt; i++)
		request->changes[i].ino = ino;
	op->txn.changes = request->changes;
	op->txn.change_cnt = change_cnt;
	op->txn.ack = request->op.ack;
}

void lpi_fuse_submit(struct lpi_fuse_request *request, lpi_fuse_step_fn *next)
{
	request->next = next;
	lp_ns_submit(request->channel->options.ns, &request->op);
}

void lpi_fuse_move(struct lpi_fuse_request *request, enum lpi_fuse_state state)
{
	uint64_t now_ns = lp_reactor_now_ns(request->channel->options.reactor);
	lp_sm_move(&request->sm, state, LP_MAX(now_ns, request->sm.entered_ns));
}

void lpi_fuse_take_budget(struct lpi_fuse_request *request, uint32_t bytes)
{
	request->budget_bytes += bytes;
	request->channel->bytes_out += bytes;
}

void lpi_fuse_give_back_data(struct lpi_fuse_request *request)
{
	lp_buf_put(request->room);
	request->room = NULL;
	request->channel->bytes_out -= request->budget_bytes;
	request->budget_bytes = 0;
}

/* --- Answers ---------------------------------------------------------------------------------- */

static bool tell(struct lpi_fuse_request *request, int err, struct iovec *iovs, uint32_t cnt)
{
	struct fuse_out_header header = {.error = err, .unique = request->message.header.unique};
	iovs[0] = (struct iovec){&header, sizeof(header)};
	size_t len = 0;
	for (uint32_t i = 0; i < cnt; i++)
		len += iovs[i].iov_len;
	header.len = (uint32_t)len;
	lpi_fuse_look_slow(request, err);
	if (request->entry != NULL)
		return lpi_fuse_ring_answer(request, &header, iovs + 1, cnt - 1);
	ssize_t written = writev(request->home->fd, iovs, (int)cnt);
	iovs[0] = (struct iovec){NULL, 0};
	if (written < 0 && errno == EINVAL)
		LP_LOG_WARN("the mount: the kernel does not take the answer to %s",
			    request->message.opcode == NULL ? "a request"
							    : request->message.opcode->name);
	return written >= 0;
}

void lpi_fuse_end(struct lpi_fuse_request *request, int err)
{
	struct lp_fuse_channel *channel = request->channel;
	LP_ASSERT(request->entry == NULL); /* mount F2 */
	lpi_fuse_give_back_data(request);
	lpi_fuse_move(request, err < 0 ? LPI_FUSE_FAILED : LPI_FUSE_DONE);
	lpi_fuse_channel_count(request, err);
	if (request->home == channel)
		lpi_fuse_channel_ended(request);
	else
		lpi_fuse_give_back(request, lpi_fuse_channel_ended);
}

/* Errors that only Lapis has get another name outside. So does the error for a value too large to
 * be kept, but not for a list that is too long for the caller's buffer. */
int lpi_fuse_errno_of(const struct lpi_fuse_request *request, int err)
{
	if (err == -EBADMSG || err == -EUCLEAN || err == -EAGAIN || err < -511)
		return -EIO;
	bool is_list = request->message.header.opcode == FUSE_LISTXATTR;
	return err == -E2BIG && !is_list ? -ENOSPC : err;
}

void lpi_fuse_answer(struct lpi_fuse_request *request, int err)
{
	struct iovec iovs[1];
	(void)tell(request, lpi_fuse_errno_of(request, err), iovs, 1);
	lpi_fuse_end(request, err);
}

bool lpi_fuse_tell(struct lpi_fuse_request *request, const void *bytes, size_t len)
{
	struct iovec iovs[2];
	iovs[1].iov_base = (void *)(uintptr_t)bytes;
	iovs[1].iov_len = len;
	return tell(request, 0, iovs, 2);
}

void lpi_fuse_answer_bytes(struct lpi_fuse_request *request, const void *bytes, size_t len)
{
	(void)lpi_fuse_tell(request, bytes, len); /* if it fails, no caller waits for it any more */
	lpi_fuse_end(request, 0);
}

void lpi_fuse_answer_segs(struct lpi_fuse_request *request, const struct lp_seg *segs,
			  uint32_t seg_cnt)
{
	struct iovec iovs[ANSWER_IOVS];
	LP_ASSERT(seg_cnt < ANSWER_IOVS);
	for (uint32_t i = 0; i < seg_cnt; i++)
		iovs[i + 1] = (struct iovec){segs[i].buf->data + segs[i].offset, segs[i].len};
	(void)tell(request, 0, iovs, seg_cnt + 1); /* as above */
}

void lpi_fuse_answer_result(struct lpi_fuse_request *request)
{
	lpi_fuse_answer(request, LP_MIN(request->op.result, 0));
}

/* --- Attributes ------------------------------------------------------------------------------- */

static const struct {
	uint8_t type;
	uint32_t mode;
} types[] = {
	{LP_INODE_TYPE_FILE, S_IFREG},     {LP_INODE_TYPE_DIR, S_IFDIR},
	{LP_INODE_TYPE_SYMLINK, S_IFLNK},  {LP_INODE_TYPE_FIFO, S_IFIFO},
	{LP_INODE_TYPE_SOCKET, S_IFSOCK},  {LP_INODE_TYPE_CHARDEV, S_IFCHR},
	{LP_INODE_TYPE_BLOCKDEV, S_IFBLK},
};

uint32_t lpi_fuse_mode(uint8_t type, uint16_t mode)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(types); i++) {
		if (types[i].type == type)
			return types[i].mode | mode;
	}
	return mode;
}

uint8_t lpi_fuse_type(uint32_t mode)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(types); i++) {
		if (types[i].mode == (mode & S_IFMT))
			return types[i].type;
	}
	return 0;
}

/* Seconds are rounded down, also before 1970. */
void lpi_fuse_split_time(int64_t ns, uint64_t *ret_s, uint32_t *ret_ns)
{
	int64_t second = (int64_t)LP_NS_PER_S;
	int64_t s = ns / second - (ns % second < 0 ? 1 : 0);
	*ret_s = (uint64_t)s;
	*ret_ns = (uint32_t)(ns - s * second);
}

/* In units of 512 bytes. A small file has no block of its own, but has no hole. Some programs take
 * a file of no blocks for a hole. */
static uint64_t sectors(const struct lp_attrs *attrs)
{
	bool may_be_inline =
		attrs->type == LP_INODE_TYPE_FILE && attrs->size_bytes <= LP_INODE_INLINE_MAX;
	if (attrs->blocks == 0 && may_be_inline)
		return (attrs->size_bytes + 511) / 512;
	return attrs->blocks * (4096 / 512);
}

void lpi_fuse_fill_attr(struct lp_ino ino, const struct lp_attrs *attrs, struct fuse_attr *ret)
{
	*ret = (struct fuse_attr){.ino = ino.nr,
				  .size = attrs->size_bytes,
				  .blocks = sectors(attrs),
				  .mode = lpi_fuse_mode(attrs->type, attrs->mode),
				  .nlink = attrs->nlink,
				  .uid = attrs->uid,
				  .gid = attrs->gid,
				  .rdev = attrs->rdev,
				  .blksize = 4096};
	lpi_fuse_split_time(attrs->atime_ns, &ret->atime, &ret->atimensec);
	lpi_fuse_split_time(attrs->mtime_ns, &ret->mtime, &ret->mtimensec);
	lpi_fuse_split_time(attrs->ctime_ns, &ret->ctime, &ret->ctimensec);
}

static bool is_mute(const struct lpi_fuse_request *request)
{
	return atomic_load_explicit(&request->channel->is_mute, memory_order_relaxed);
}

uint64_t lpi_fuse_entry_ns(const struct lpi_fuse_request *request)
{
	return is_mute(request) ? 0 : request->channel->options.behaviour.entry_ns;
}

/* Without cached attributes the kernel asks for the size before each read. It keeps the old size if
 * another change comes during that answer. So it had better bypass the cache and ask for the data.
 * Mapped pages stay cached, and the kernel is told of changes to them. */
bool lpi_fuse_is_direct(const struct lpi_fuse_request *request)
{
	const struct lp_fuse_behaviour *behaviour = &request->channel->options.behaviour;
	return behaviour->maps_direct && !behaviour->writeback && !behaviour->is_only_door &&
	       (behaviour->attr_ns == 0 || is_mute(request));
}

/* Cached data is right as long as the kernel can be told of changes. When the kernel drops the
 * cache of a file at an open, it takes no lock, and writes may be on their way. So it is only made
 * to do that where an access time needs it, and the drop is noted. */
uint32_t lpi_fuse_open_flags(const struct lpi_fuse_request *request, bool is_due)
{
	if (lpi_fuse_is_direct(request))
		return FOPEN_DIRECT_IO;
	return is_mute(request) || is_due ? 0 : FOPEN_KEEP_CACHE;
}

/* Whether the kernel takes the attributes in the answer for the newest of an inode that it may have
 * known before, even if it was told of a change while the answer was on its way. */
static bool is_taken_unseen(const struct lpi_fuse_request *request)
{
	uint32_t opcode = request->message.header.opcode;
	return (opcode == FUSE_SETATTR || opcode == FUSE_LINK) &&
	       !request->channel->options.behaviour.is_only_door;
}

/* Whether the request makes an inode. The kernel also takes its attributes for the newest if it is
 * told of a change between making and filling its inode, which is within one system call. So
 * requests that come right after a create need not ask again. */
static bool is_made(const struct lpi_fuse_request *request)
{
	uint32_t opcode = request->message.header.opcode;
	bool makes = opcode == FUSE_CREATE || opcode == FUSE_MKNOD || opcode == FUSE_MKDIR ||
		     opcode == FUSE_SYMLINK || opcode == FUSE_TMPFILE;
	return makes && !request->channel->options.behaviour.is_only_door;
}

uint64_t lpi_fuse_attr_ns(const struct lpi_fuse_request *request)
{
	uint64_t attr_ns = request->channel->options.behaviour.attr_ns;
	if (is_mute(request) || is_taken_unseen(request))
		return 0;
	return is_made(request) ? LP_MIN(attr_ns, MADE_ATTR_NS) : attr_ns;
}

/* Whether a change of the data by another user takes bits of the mode. The kernel asks for that
 * change, but goes on believing the old mode: after a write it forgets sizes and times only. */
static bool may_lose_bits(const struct lp_attrs *attrs)
{
	return attrs->type == LP_INODE_TYPE_FILE &&
	       lpi_fuse_mode_killed(attrs->mode, true) != attrs->mode;
}

/* The end of a free that is under way is not told to the kernel, so the kernel must ask each time.
 * The same holds for a file that may lose its privileges: no program may run with privileges that
 * are gone (rule M5). */
uint64_t lpi_fuse_attrs_ns(const struct lpi_fuse_request *request, const struct lp_attrs *attrs)
{
	return attrs->is_freeing || may_lose_bits(attrs) ? 0 : lpi_fuse_attr_ns(request);
}

void lpi_fuse_fill_entry(const struct lpi_fuse_request *request, const struct lp_ns_found *found,
			 struct fuse_entry_out *ret)
{
	uint64_t entry_ns = lpi_fuse_entry_ns(request);
	uint64_t attr_ns = lpi_fuse_attrs_ns(request, &found->attrs);
	*ret = (struct fuse_entry_out){.nodeid = found->ino.nr,
				       .entry_valid = entry_ns / LP_NS_PER_S,
				       .entry_valid_nsec = (uint32_t)(entry_ns % LP_NS_PER_S),
				       .attr_valid = attr_ns / LP_NS_PER_S,
				       .attr_valid_nsec = (uint32_t)(attr_ns % LP_NS_PER_S)};
	lpi_fuse_fill_attr(found->ino, &found->attrs, &ret->attr);
}

void lpi_fuse_answer_entry(struct lpi_fuse_request *request, const struct lp_ns_found *found)
{
	struct fuse_entry_out out;
	lpi_fuse_fill_entry(request, found, &out);
	if (lpi_fuse_tell(request, &out, sizeof(out)))
		lpi_fuse_end(request, 0);
	else
		lpi_fuse_let_go(request, found->ino);
}

void lpi_fuse_answer_attrs(struct lpi_fuse_request *request, struct lp_ino ino,
			   const struct lp_attrs *attrs)
{
	uint64_t attr_ns = lpi_fuse_attrs_ns(request, attrs);
	struct fuse_attr_out out = {.attr_valid = attr_ns / LP_NS_PER_S,
				    .attr_valid_nsec = (uint32_t)(attr_ns % LP_NS_PER_S)};
	lpi_fuse_fill_attr(ino, attrs, &out.attr);
	lpi_fuse_answer_bytes(request, &out, sizeof(out));
}

void lpi_fuse_ended(struct lpi_fuse_request *request)
{
	lpi_fuse_end(request, 0);
}

void lpi_fuse_forget_some(struct lpi_fuse_request *request, uint32_t cnt, lpi_fuse_step_fn *next)
{
	struct lp_ns_op *op = lpi_fuse_op(request, LP_NS_FORGET);
	LP_ASSERT(cnt <= LPI_FUSE_FORGOTTEN);
	op->forget.items = request->forgotten;
	op->forget.cnt = cnt;
	lpi_fuse_submit(request, next);
}

void lpi_fuse_let_go(struct lpi_fuse_request *request, struct lp_ino ino)
{
	request->forgotten[0] = (struct lp_ns_forgotten){.ino = ino, .count = 1};
	lpi_fuse_forget_some(request, 1, lpi_fuse_ended);
}

uint16_t lpi_fuse_mode_killed(uint16_t mode, bool is_stranger)
{
	unsigned killed = mode & ~(unsigned)S_ISUID;
	/* If the group may not execute the file, the bit gives no rights now. A caller that may set
	 * the bit does not lose it. */
	if ((mode & S_IXGRP) != 0 || is_stranger)
		killed &= ~(unsigned)S_ISGID;
	return (uint16_t)killed;
}
