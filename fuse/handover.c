/* SPDX-License-Identifier: Apache-2.0 */
/* The table gives the inode on which each opcode works. An opcode that is not in the table stays on
 * the thread that read it. It works on no inode, on all shards, or on several inodes, and then the
 * namespace finds the threads. */
#include "fuse/handover.h"

#include "fuse/channel_state.h"

enum place {
	PLACE_ANY,
	PLACE_INODE, /* of the header's inode */
	PLACE_NAME,  /* of an entry of that directory */
};

static const uint8_t places[LP_FUSE_OPCODES] = {
	[FUSE_GETATTR] = PLACE_INODE,     [FUSE_SETATTR] = PLACE_INODE,
	[FUSE_READLINK] = PLACE_INODE,    [FUSE_OPEN] = PLACE_INODE,
	[FUSE_READ] = PLACE_INODE,        [FUSE_WRITE] = PLACE_INODE,
	[FUSE_RELEASE] = PLACE_INODE,     [FUSE_GETXATTR] = PLACE_INODE,
	[FUSE_LISTXATTR] = PLACE_INODE,   [FUSE_SETXATTR] = PLACE_INODE,
	[FUSE_REMOVEXATTR] = PLACE_INODE, [FUSE_FALLOCATE] = PLACE_INODE,
	[FUSE_LSEEK] = PLACE_INODE,       [LP_FUSE_STATX] = PLACE_INODE,
	[FUSE_LOOKUP] = PLACE_NAME,       [FUSE_MKNOD] = PLACE_NAME,
	[FUSE_SYMLINK] = PLACE_NAME,      [FUSE_CREATE] = PLACE_NAME,
	[FUSE_UNLINK] = PLACE_NAME,       [FUSE_IOCTL] = PLACE_INODE,
};

/* Any thread may peek at a directory's attributes. This is fast for a program that removes files:
 * the kernel asks for the attributes of the directory after each removal. A synchronous mount must
 * see durable attributes only, so it does not peek. */
static bool is_peeked(struct lpi_fuse_request *request)
{
	const struct lp_fuse_channel *channel = request->channel;
	struct lp_ino ino = {request->message.header.nodeid};
	request->is_known = request->message.header.opcode == FUSE_GETATTR &&
			    !channel->options.behaviour.sync &&
			    lp_ns_peek_dir(channel->options.ns, ino, &request->op.stat.found);
	return request->is_known;
}

struct lp_fuse_channel *lpi_fuse_place_of(struct lpi_fuse_request *request)
{
	struct lp_fuse_channel *channel = request->channel;
	const struct lp_fuse_message *message = &request->message;
	struct lp_ino ino = {message->header.nodeid};
	uint32_t shard_idx = 0;
	if (is_peeked(request))
		return NULL;
	switch ((enum place)places[message->header.opcode]) {
	case PLACE_ANY:
		return NULL;
	case PLACE_INODE:
		shard_idx = lp_ino_shard(ino);
		break;
	case PLACE_NAME:
		shard_idx = lp_ns_shard_of(channel->options.ns, ino, message->names[0]);
		break;
	}
	/* Shards are dealt out to the threads in turn. Any thread refuses an impossible number. */
	return channel->peers[shard_idx % channel->peer_cnt];
}

/* --- There ------------------------------------------------------------------------------------ */

static void begin_there(struct lp_reactor *reactor, struct lp_msg *msg)
{
	struct lpi_fuse_request *request = LP_CONTAINER_OF(msg, struct lpi_fuse_request, msg);
	LP_ASSERT(lp_reactor_is_mine(request->channel->options.reactor));
	(void)reactor;
	if (request->channel == request->home)
		request->is_away = false;
	request->handed(request);
}

void lpi_fuse_hand_over(struct lpi_fuse_request *request, struct lp_fuse_channel *to,
			void (*begin)(struct lpi_fuse_request *request))
{
	struct lp_reactor *from = request->channel->options.reactor;
	LP_ASSERT(request->channel != to && lp_reactor_is_mine(from));
	if (request->channel == request->home)
		request->is_away = true;
	request->channel = to;
	request->handed = begin;
	request->msg.deliver = begin_there;
	lp_reactor_send(from, to->options.reactor, &request->msg);
}

bool lpi_fuse_adopt_data(struct lpi_fuse_request *request)
{
	const struct fuse_write_in *in = &request->message.in.write;
	uint32_t bytes = in->size;
	struct lp_buf *buf = lp_buf_new_ranked(request->channel->options.bufs, bytes, LP_BUF_CARRY);
	if (buf == NULL)
		return false;
	LP_ASSERT(request->room == NULL);
	request->room = buf;
	for (uint32_t i = 0; i < request->seg_cnt; i++) {
		LP_ASSERT(request->segs[i].len <= bytes);
		bytes -= request->segs[i].len;
	}
	LP_ASSERT(bytes == 0);
	request->crc_cnt =
		lpi_fuse_copy_pieces(request->segs, request->seg_cnt, lpi_fuse_write_grid(request),
				     buf->data, request->crcs);
	return true;
}

/* --- And back --------------------------------------------------------------------------------- */

void lpi_fuse_give_back(struct lpi_fuse_request *request,
			void (*ended)(struct lpi_fuse_request *request))
{
	LP_ASSERT(request->channel != request->home && request->room == NULL);
	lpi_fuse_hand_over(request, request->home, ended);
}
