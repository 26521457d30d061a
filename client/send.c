/* SPDX-License-Identifier: Apache-2.0 */
/* What a connection sends: everything that is queued and has a credit goes in one sendmsg(), header
 * and meta as one piece, data from where the caller has it. A message is sealed when it gets its
 * credit: only then are its id and the connection's mode known.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/uio.h>
#include <unistd.h>

#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"

#define MESSAGES_MAX 128u /* in one call */

void lpi_link_queue(struct lpi_link *conn, struct lpi_op *op)
{
	LP_ASSERT(op->place == LPI_PLACE_NONE);
	op->conn = conn;
	op->place = LPI_PLACE_QUEUED;
	lpi_ops_push_back(&conn->queue, op);
}

void lpi_link_free_slot(struct lpi_link *conn, struct lpi_credit *slot)
{
	LP_ASSERT(slot->is_busy && conn->slots_used > 0);
	conn->bytes_used -= slot->data_bytes;
	conn->free_slots[--conn->slots_used] = (uint32_t)(slot - conn->slots);
	slot->is_busy = false;
	slot->op = NULL;
}

static uint32_t rest_bytes(const struct lpi_link *conn, const struct lpi_op *op)
{
	return op->meta_bytes + (conn->mode == LP_WIRE_CRC_ALL ? op->crc_cnt * 4 : 0);
}

static void seal(struct lpi_link *conn, struct lpi_op *op, uint64_t wire_id)
{
	const struct lp_wire_header header = {
		.kind = LP_WIRE_KIND_REQUEST,
		.opcode = op->opcode,
		.request_id = wire_id,
		.flags = op->wire_flags,
		.meta_bytes = op->meta_bytes,
		.data_bytes = op->data_bytes,
		.crc_cnt = conn->mode == LP_WIRE_CRC_ALL ? op->crc_cnt : 0,
		.offset = op->data_offset,
	};
	if (header.crc_cnt > 0 && !op->has_crcs)
		lpi_op_make_crcs(op);
	if (op->opcode == LP_WIRE_OP_GET)
		lpi_op_advance_get(op);
	lp_wire_header_seal(&header, conn->mode, op->head + LP_WIRE_HEADER_SIZE, op->head);
}

/* What an older daemon could not read is not sent. */
static void refuse_long(struct lpi_link *conn)
{
	struct lpi_op *op;
	while ((op = lpi_ops_first(&conn->queue)) != NULL && op->meta_bytes > conn->meta_max) {
		lpi_ops_remove(op);
		op->place = LPI_PLACE_NONE;
		op->conn = NULL;
		lpi_finish(op, -EMSGSIZE,
			   "the daemon is too old for values of that length (at most 60000 bytes)");
	}
}

/* False when the first in the queue has to wait for credit. A message that is larger than all the
 * credit goes alone. */
static bool admit(struct lpi_link *conn)
{
	refuse_long(conn);
	struct lpi_op *op = lpi_ops_first(&conn->queue);
	if (op == NULL || conn->slots_used == conn->credits)
		return false;
	if (conn->bytes_used > 0 && conn->bytes_used + op->data_bytes > conn->credit_bytes)
		return false;
	lpi_ops_remove(op);
	op->slot_idx = conn->free_slots[conn->slots_used++];
	struct lpi_credit *slot = &conn->slots[op->slot_idx];
	LP_ASSERT(!slot->is_busy);
	const uint8_t *meta = op->head + LP_WIRE_HEADER_SIZE;
	bool opens = op->opcode == LP_WIRE_OP_OPEN || op->opcode == LP_WIRE_OP_UPLOAD ||
		     (op->opcode == LP_WIRE_OP_MAKE && meta[LP_WIRE_MAKE_OPEN_OFF] != 0);
	*slot = (struct lpi_credit){.wire_id = conn->next_wire++ * LPI_CREDITS_MAX + op->slot_idx,
				    .op = op,
				    .data_bytes = op->data_bytes,
				    .opcode = op->opcode,
				    .is_busy = true,
				    .opens = opens,
				    .upload_ino = op->upload_ino};
	conn->bytes_used += op->data_bytes;
	seal(conn, op, slot->wire_id);
	op->place = LPI_PLACE_SENDING;
	lpi_ops_push_back(&conn->sending, op);
	return true;
}

static unsigned gather(struct lpi_link *conn, struct iovec *iov)
{
	unsigned cnt = 0;
	size_t skip = conn->sent_bytes;
	struct lpi_op *op;
	LP_LIST_FOREACH (lpi_ops, &conn->sending, op) {
		if (cnt + 2 > MESSAGES_MAX * 2)
			break;
		size_t head = LP_WIRE_HEADER_SIZE + rest_bytes(conn, op);
		size_t from = LP_MIN(skip, head);
		if (from < head)
			iov[cnt++] = (struct iovec){op->head + from, head - from};
		skip -= from;
		if (op->data_bytes > skip)
			/* sendmsg() does not write there. */
			iov[cnt++] = (struct iovec){(void *)(uintptr_t)(op->data + skip),
						    op->data_bytes - skip};
		skip = 0;
	}
	return cnt;
}

static void sent(struct lpi_link *conn, size_t bytes)
{
	conn->sent_bytes += bytes;
	struct lpi_op *op;
	while ((op = lpi_ops_first(&conn->sending)) != NULL) {
		size_t whole = LP_WIRE_HEADER_SIZE + rest_bytes(conn, op) + op->data_bytes;
		if (conn->sent_bytes < whole)
			break;
		conn->sent_bytes -= whole;
		lpi_ops_remove(op);
		lpi_counter_add(&conn->lapis->counters.sent);
		if (op->is_stub) {
			lpi_op_free(op);
			continue;
		}
		op->place = LPI_PLACE_SENT;
		/* Only now can it be answered. A daemon that is busy is not asked for ever. */
		if (op->later_ns == 0)
			lpi_arm(op);
		op->ordered_nr = op->lapis->ordered_nr;
	}
}

bool lpi_link_has_unsent(const struct lpi_link *conn)
{
	return !lpi_ops_is_empty(&conn->sending);
}

static void want_out(struct lpi_link *conn, bool wants)
{
	if (conn->wants_out == wants)
		return;
	struct epoll_event event = {.events = EPOLLIN | (wants ? (uint32_t)EPOLLOUT : 0),
				    .data.ptr = conn};
	if (epoll_ctl(conn->lapis->epoll_fd, EPOLL_CTL_MOD, conn->fd, &event) < 0) {
		lpi_link_fail(conn, -errno, "the socket cannot be watched");
		return;
	}
	conn->wants_out = wants;
}

int lpi_link_flush(struct lpi_link *conn)
{
	struct iovec iov[MESSAGES_MAX * 2];
	while (conn->state == LPI_STATE_UP) {
		while (admit(conn))
			;
		struct msghdr msg = {.msg_iov = iov, .msg_iovlen = gather(conn, iov)};
		if (msg.msg_iovlen == 0) {
			want_out(conn, false);
			return 0;
		}
		ssize_t n = sendmsg(conn->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN) {
			want_out(conn, true);
			return 0;
		}
		if (n < 0) {
			return -errno;
		}
		lpi_counter_add(&conn->lapis->counters.sends);
		sent(conn, (size_t)n);
	}
	return 0;
}

/* The operation goes, but the bytes of its message that are left have to be sent: from memory of
 * our own, for the caller's is his again. */
static int make_stub(struct lpi_op *op)
{
	struct lpi_link *conn = op->conn;
	size_t head_bytes = LP_WIRE_HEADER_SIZE + rest_bytes(conn, op);
	struct lpi_op *stub = lpi_op_alloc(op->lapis);
	if (stub == NULL)
		return -ENOMEM;
	if (lpi_op_head_resize(stub, head_bytes) < 0) {
		lpi_op_free(stub);
		return -ENOMEM;
	}
	memcpy(stub->head, op->head, head_bytes);
	if (op->data_bytes > 0 && op->own_data == NULL) {
		stub->own_data = malloc(op->data_bytes);
		if (stub->own_data == NULL) {
			lpi_op_free(stub);
			return -ENOMEM;
		}
		memcpy(stub->own_data, op->data, op->data_bytes);
		stub->data = stub->own_data;
	} else {
		stub->own_data = op->own_data;
		stub->data = op->data;
		op->own_data = NULL;
	}
	stub->is_stub = true;
	stub->place = LPI_PLACE_SENDING;
	stub->meta_bytes = op->meta_bytes;
	stub->crc_cnt = op->crc_cnt;
	stub->data_bytes = op->data_bytes;
	lpi_ops_insert_after(op, stub);
	lpi_ops_remove(op);
	conn->slots[op->slot_idx].op = NULL;
	return 0;
}

static bool forget_sending(struct lpi_op *op)
{
	struct lpi_link *conn = op->conn;
	if (lpi_ops_first(&conn->sending) != op || conn->sent_bytes == 0) {
		lpi_ops_remove(op);
		lpi_link_free_slot(conn, &conn->slots[op->slot_idx]);
		return false;
	}
	if (make_stub(op) == 0)
		return true;
	/* Then this message is never complete, and so never carried out. */
	lpi_ops_remove(op);
	conn->slots[op->slot_idx].op = NULL;
	op->place = LPI_PLACE_NONE;
	lpi_link_fail(conn, -ENOMEM, "no memory to end a message with");
	return false;
}

bool lpi_link_forget(struct lpi_op *op)
{
	struct lpi_link *conn = op->conn;
	bool unknown = false;
	LP_ASSERT(conn != NULL);
	if (op->place == LPI_PLACE_QUEUED) {
		lpi_ops_remove(op);
	} else if (op->place == LPI_PLACE_SENDING) {
		unknown = forget_sending(op);
	} else {
		LP_ASSERT(op->place == LPI_PLACE_SENT);
		struct lpi_credit *slot = &conn->slots[op->slot_idx];
		/* First, for the connection may end below, and the slots with it. */
		slot->op = NULL;
		lpi_link_turn_away(conn, slot);
		unknown = true;
	}
	op->place = LPI_PLACE_NONE;
	op->conn = NULL;
	return unknown;
}
