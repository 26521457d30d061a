/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that the daemon reads into and we may read: what a get brings is copied once, from there
 * to where it belongs, and not into a socket and out of it.
 *
 * It is asked for when the first long piece of a get comes, on a unix socket and with all
 * checksums. Question and notices are messages that nobody waits for: stubs. What is copied is
 * verified where it was copied to, for what is read there after the daemon has ended the connection
 * is zeros.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"

#define SHARE_BYTES (UINT64_C(16) << 20)
#define SHARE_UNIT  (UINT64_C(1) << 20)
#define SHARE_ID    UINT64_MAX /* of the request: no slot has it */

static bool may_ask(const struct lpi_link *conn)
{
	const struct lapis *lapis = conn->lapis;
	return conn->share_state == LPI_SHARE_NONE && !lapis->shares_nothing &&
	       conn->mode == LP_WIRE_CRC_ALL &&
	       lapis->addresses[conn->address_idx].storage.ss_family == AF_UNIX;
}

/* A message that is only sent. False: no memory. */
static bool send_stub(struct lpi_link *conn, struct lp_wire_header header, const uint8_t *meta)
{
	struct lpi_op *stub = lpi_op_alloc(conn->lapis);
	if (stub == NULL)
		return false;
	LP_ASSERT(LP_WIRE_HEADER_SIZE + header.meta_bytes <= LPI_HEAD_ROOM);
	uint8_t *rest = stub->head + LP_WIRE_HEADER_SIZE;
	if (header.meta_bytes > 0)
		memcpy(rest, meta, header.meta_bytes);
	lp_wire_header_seal(&header, conn->mode, rest, stub->head);
	stub->meta_bytes = header.meta_bytes;
	stub->is_stub = true;
	stub->place = LPI_PLACE_SENDING;
	lpi_ops_push_back(&conn->sending, stub);
	return true;
}

void lpi_shared_ask(struct lpi_link *conn)
{
	const struct lp_wire_share share = {.bytes = SHARE_BYTES};
	uint8_t meta[LP_WIRE_SHARE_SIZE];
	if (!may_ask(conn))
		return;
	lp_wire_share_encode(&share, meta);
	const struct lp_wire_header header = {.kind = LP_WIRE_KIND_REQUEST,
					      .opcode = LP_WIRE_OP_SHARE,
					      .request_id = SHARE_ID,
					      .meta_bytes = sizeof(meta)};
	if (send_stub(conn, header, meta))
		conn->share_state = LPI_SHARE_ASKED;
}

/* --- The descriptor --------------------------------------------------------------------------- */

static void keep_fds(struct lpi_link *conn, struct msghdr *msg)
{
	struct cmsghdr *head;
	for (head = CMSG_FIRSTHDR(msg); head != NULL; head = CMSG_NXTHDR(msg, head)) {
		if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
			continue;
		size_t cnt = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);
		for (size_t i = 0; i < cnt; i++) {
			int fd;
			memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof(fd));
			if (conn->share_fd < 0)
				conn->share_fd = fd;
			else
				(void)close(fd);
		}
	}
}

ssize_t lpi_shared_receive(struct lpi_link *conn, struct iovec *iov, int cnt)
{
	_Alignas(struct cmsghdr) uint8_t control[CMSG_SPACE(4 * sizeof(int))];
	struct msghdr msg = {.msg_iov = iov,
			     .msg_iovlen = (size_t)cnt,
			     .msg_control = control,
			     .msg_controllen = sizeof(control)};
	ssize_t n = recvmsg(conn->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (n >= 0)
		keep_fds(conn, &msg);
	return n;
}

static void drop_fd(struct lpi_link *conn)
{
	if (conn->share_fd >= 0)
		(void)close(conn->share_fd);
	conn->share_fd = -1;
}

void lpi_shared_drop(struct lpi_link *conn)
{
	if (conn->share != NULL)
		(void)munmap(conn->share, conn->share_bytes); /* our own mapping: cannot fail */
	drop_fd(conn);
	conn->share = NULL;
	conn->share_bytes = 0;
	conn->share_state = LPI_SHARE_NONE;
	conn->shared_cnt = 0;
	conn->released_cnt = 0;
}

/* Memory that is there whatever the other side does, all of it: reading what is not would end the
 * process. */
static bool is_sound(int fd, uint64_t bytes)
{
	struct stat stat;
	struct statfs fs;
	int seals = fcntl(fd, F_GET_SEALS);
	return seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fstat(fd, &stat) == 0 &&
	       stat.st_size >= 0 && (uint64_t)stat.st_size >= bytes && fstatfs(fd, &fs) == 0 &&
	       fs.f_type == TMPFS_MAGIC && bytes % SHARE_UNIT == 0;
}

int lpi_shared_answer(struct lpi_link *conn, const uint8_t *meta)
{
	const struct lp_wire_header *header = &conn->header;
	struct lp_wire_share share = {0};
	struct lp_reader reader;
	if (conn->share_state != LPI_SHARE_ASKED || header->request_id != SHARE_ID ||
	    header->data_bytes > 0 || header->flags != 0)
		return -EPROTO;
	conn->share_state = LPI_SHARE_OFF;
	if (header->status != 0) {
		drop_fd(conn);
		return 0;
	}
	lp_reader_init(&reader, meta, header->meta_bytes);
	void *map = MAP_FAILED;
	if (lp_wire_part(&reader, lp_wire_share, &share) && lp_wire_end(&reader) == 0 &&
	    share.bytes > 0 && share.bytes <= LP_WIRE_SHARE_MAX && conn->share_fd >= 0 &&
	    is_sound(conn->share_fd, share.bytes))
		map = mmap(NULL, share.bytes, PROT_READ, MAP_SHARED, conn->share_fd, 0);
	drop_fd(conn);
	if (map == MAP_FAILED) {
		/* The daemon is about to use it: this connection is of no use, and the next one
		 * does without. A program that has no descriptor left, say, or may receive none. */
		conn->lapis->shares_nothing = true;
		return -EPROTO;
	}
	conn->share = map;
	conn->share_bytes = share.bytes;
	conn->share_state = LPI_SHARE_HAS;
	return 0;
}

/* --- What is there ---------------------------------------------------------------------------- */

/* Where the copy goes on: in which part, and how much of it is done. */
struct source {
	const struct lpi_link *conn;
	const uint8_t *parts; /* lp_wire_shared, one behind the other */
	uint32_t part_cnt;
	uint32_t idx;
	uint32_t at;
};

static struct lp_wire_shared part_at(const struct source *source, uint32_t idx)
{
	struct lp_wire_shared part;
	lp_wire_shared_decode(source->parts + (size_t)idx * LP_WIRE_SHARED_SIZE, &part);
	return part;
}

static bool parts_fit(const struct source *source)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < source->part_cnt; i++) {
		struct lp_wire_shared part = part_at(source, i);
		if (part.bytes == 0 ||
		    (uint64_t)part.offset + part.bytes > source->conn->share_bytes)
			return false;
		bytes += part.bytes;
	}
	return bytes == source->conn->header.data_bytes;
}

static void copy(struct source *source, uint8_t *to, uint32_t len)
{
	while (len > 0) {
		struct lp_wire_shared part = part_at(source, source->idx);
		uint32_t run = LP_MIN(len, part.bytes - source->at);
		memcpy(to, source->conn->share + part.offset + source->at, run);
		to += run;
		len -= run;
		source->at += run;
		if (source->at == part.bytes) {
			source->idx++;
			source->at = 0;
		}
	}
}

/* Piece by piece of the grid, and each is summed while the cache has it. */
static bool copy_verified(struct source *source)
{
	const struct lpi_link *conn = source->conn;
	uint64_t offset = conn->header.offset;
	uint64_t left = conn->header.data_bytes;
	uint8_t *to = conn->target;
	for (uint32_t i = 0; left > 0; i++) {
		uint32_t len = lp_wire_piece_len(offset, left);
		copy(source, to, len);
		if (lp_crc32c(0, to, len) != conn->crcs[i])
			return false;
		to += len;
		offset += len;
		left -= len;
	}
	return true;
}

int lpi_shared_take(struct lpi_link *conn, const uint8_t *rest, bool is_wanted,
		    const char **ret_why)
{
	const struct lp_wire_header *header = &conn->header;
	uint32_t bytes = header->meta_bytes - LP_WIRE_GOT_SIZE;
	struct source source = {.conn = conn,
				.parts = rest + LP_WIRE_GOT_SIZE,
				.part_cnt = bytes / LP_WIRE_SHARED_SIZE};
	if (conn->share == NULL || header->crc_cnt == 0 || bytes % LP_WIRE_SHARED_SIZE != 0 ||
	    source.part_cnt > LP_WIRE_PARTS_MAX || !parts_fit(&source)) {
		*ret_why = "data in shared memory that is not there";
		return -EPROTO;
	}
	conn->shared_cnt++;
	if (is_wanted && !copy_verified(&source)) {
		*ret_why = "data in shared memory was damaged, or has gone with the connection";
		return -EBADMSG;
	}
	return 0;
}

void lpi_shared_release(struct lpi_link *conn)
{
	const struct lp_wire_header header = {.kind = LP_WIRE_KIND_NOTICE,
					      .opcode = LP_WIRE_OP_RELEASE,
					      .offset = conn->shared_cnt};
	if (conn->state != LPI_STATE_UP || conn->released_cnt == conn->shared_cnt)
		return;
	/* Without memory it is told with the next one. */
	if (send_stub(conn, header, NULL))
		conn->released_cnt = conn->shared_cnt;
}
