/* SPDX-License-Identifier: Apache-2.0 */
/* A put that does not fit into one message: upload, writes, commit, as requests of their own on one
 * connection. Nobody sees anything of it before the commit, so whatever goes wrong before that
 * was sent is "not done"; if it was the connection, and the data is all in memory, it begins again.
 *
 * Of a source that gives the data as it comes, the first message's worth is read before anything
 * is sent: mostly that is all, and it is an ordinary put. A source may take as long as it likes,
 * and while it does nothing is sent: so it is asked at one place only, lpi_uploads_feed(), for one
 * piece in a turn, and rather not while a message is half sent, for whose rest the daemon would
 * wait in vain.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/connection.h"
#include "client/handle.h"
#include "client/op.h"
#include "client/upload.h"

#define RESTARTS_MAX 3u

static void proceed(struct lpi_op *op);
static void child_done(void *arg, const struct lapis_result *result);

/* --- Its parts -------------------------------------------------------------------------------- */

static void fail(struct lpi_op *op, int status, const char *text)
{
	struct lpi_upload *upload = op->upload;
	struct lpi_op *child;
	if (upload->status != 0)
		return;
	upload->status = status;
	if (lpi_ops_is_linked(op))
		lpi_ops_remove(op);
	(void)snprintf(upload->text, sizeof(upload->text), "%s", text);
	LP_LIST_FOREACH (lpi_all, &op->lapis->all, child) {
		if (child->done == child_done && child->arg == op)
			lpi_end_early(child, -ECANCELED, "the put that this was for failed");
	}
}

/* A request on the upload's connection; the upload itself makes it one. */
static struct lpi_op *child_new(struct lpi_op *op, const struct lapis_request *request)
{
	struct lpi_upload *upload = op->upload;
	struct lapis_request req = *request;
	struct lpi_op *child = NULL;
	req.done = child_done;
	req.arg = op;
	req.timeout_ms = (uint32_t)(op->timeout_ns / LP_NS_PER_MS);
	int err = lpi_op_new(op->lapis, &req, &child);
	if (err < 0) {
		fail(op, err, lp_strerror(err));
		return NULL;
	}
	child->pin = upload->pin;
	child->pin_generation = upload->pin_generation;
	return child;
}

static void child_start(struct lpi_op *op, struct lpi_op *child)
{
	op->upload->under_way++;
	lpi_begin_own(child);
}

static void open_upload(struct lpi_op *op)
{
	struct lpi_upload *upload = op->upload;
	const struct lapis_request request = {
		.op = LAPIS_UPLOAD, .ino = upload->dir_ino, .path = upload->path};
	upload->phase = LPI_UPLOAD_OPENING;
	struct lpi_op *child = child_new(op, &request);
	if (child != NULL)
		child_start(op, child);
}

/* Once before each call of the source. What is not written reads as zeros. */
static int ask_hole(struct lpi_upload *upload, uint64_t filled)
{
	int64_t len =
		upload->hole != NULL && !upload->is_asked ? upload->hole(upload->source_arg) : 0;
	if (len < 0)
		return (int)len;
	if ((uint64_t)len > UINT64_MAX / 2 - upload->pos - filled)
		return -EFBIG;
	upload->is_asked = true;
	upload->gap_bytes = (uint64_t)len;
	return 0;
}

/* Fills buf from the source: how many bytes; fewer than len at the end, or before a hole. */
static int64_t fill(struct lpi_upload *upload, uint8_t *buf, size_t len)
{
	size_t filled = 0;
	while (filled < len && !upload->at_end) {
		int err = ask_hole(upload, filled);
		if (err < 0)
			return err;
		if (upload->gap_bytes > 0)
			break;
		int64_t n = upload->source(upload->source_arg, buf + filled, len - filled);
		upload->is_asked = false;
		if (n < 0)
			return n;
		if ((uint64_t)n > len - filled)
			return -EINVAL;
		filled += (size_t)n;
		upload->at_end = n == 0;
	}
	return (int64_t)filled;
}

static void write_piece(struct lpi_op *op, uint8_t *own, const uint8_t *data, size_t len)
{
	struct lpi_upload *upload = op->upload;
	const struct lapis_request request = {.op = LAPIS_WRITE,
					      .ino = upload->ino,
					      .data = data,
					      .data_bytes = len,
					      .offset = upload->pos};
	struct lpi_op *child = child_new(op, &request);
	if (child == NULL) {
		free(own);
		return;
	}
	child->own_data = own;
	upload->pos += len;
	upload->ends_in_hole = false;
	child_start(op, child);
}

static void skip_gap(struct lpi_upload *upload)
{
	upload->pos += upload->gap_bytes;
	upload->ends_in_hole = upload->ends_in_hole || upload->gap_bytes > 0;
	upload->gap_bytes = 0;
}

static void write_from_source(struct lpi_op *op)
{
	struct lpi_upload *upload = op->upload;
	uint8_t *own = upload->first;
	int64_t len = LP_WIRE_DATA_MAX;
	upload->first = NULL;
	if (own == NULL) {
		own = malloc(LP_WIRE_PIECE_MAX);
		len = own == NULL ? -ENOMEM : fill(upload, own, LP_WIRE_PIECE_MAX);
	}
	if (len < 0)
		fail(op, (int)len, "what was to be put could not be read");
	if (len > 0)
		write_piece(op, own, own, (size_t)len);
	else
		free(own);
	skip_gap(upload);
}

/* Its source is asked when the turn comes to that. */
static void make_hungry(struct lpi_op *op)
{
	if (!lpi_ops_is_linked(op))
		lpi_ops_push_back(&op->lapis->hungry, op);
}

static void write_more(struct lpi_op *op)
{
	struct lpi_upload *upload = op->upload;
	while (upload->status == 0 && !upload->at_end && upload->under_way < LPI_UPLOAD_WINDOW) {
		if (upload->source != NULL) {
			make_hungry(op);
			return;
		}
		size_t len = LP_MIN(upload->data_bytes - upload->pos, (uint64_t)LP_WIRE_PIECE_MAX);
		write_piece(op, NULL, upload->data + upload->pos, len);
		upload->at_end = upload->pos == upload->data_bytes;
	}
}

/* The meta of the put, with the upload's inode between its fixed part and its strings. */
static int commit_meta(const struct lpi_op *op, struct lpi_op *child)
{
	const uint8_t *from = op->head + LP_WIRE_HEADER_SIZE;
	if (op->meta_bytes + sizeof(uint64_t) > LP_WIRE_LONG_META_MAX)
		return -E2BIG;
	int err =
		lpi_op_head_resize(child, LP_WIRE_HEADER_SIZE + op->meta_bytes + sizeof(uint64_t));
	if (err < 0)
		return err;
	uint8_t *to = child->head + LP_WIRE_HEADER_SIZE;
	memcpy(to, from, LP_WIRE_PUT_SIZE);
	lp_put_le64(to + LP_WIRE_PUT_SIZE, op->upload->ino);
	memcpy(to + LP_WIRE_COMMIT_SIZE, from + LP_WIRE_PUT_SIZE,
	       op->meta_bytes - LP_WIRE_PUT_SIZE);
	child->meta_bytes = op->meta_bytes + (uint32_t)sizeof(uint64_t);
	return 0;
}

/* The length of what ends in a hole is not given by any write. */
static void set_length(struct lpi_op *op)
{
	const struct lapis_request request = {
		.op = LAPIS_TRUNCATE, .ino = op->upload->ino, .offset = op->upload->pos};
	struct lpi_op *child = child_new(op, &request);
	op->upload->ends_in_hole = false;
	if (child != NULL)
		child_start(op, child);
}

static void commit(struct lpi_op *op)
{
	struct lpi_upload *upload = op->upload;
	const struct lapis_request request = {
		.op = LAPIS_COMMIT, .ino = upload->dir_ino, .path = upload->path};
	struct lpi_op *child = child_new(op, &request);
	if (child == NULL)
		return;
	int err = commit_meta(op, child);
	if (err < 0) {
		lpi_op_free(child);
		fail(op, err, lp_strerror(err));
		return;
	}
	child->wire_flags = op->wire_flags;
	child->upload_ino = upload->ino;
	upload->phase = LPI_UPLOAD_COMMITTING;
	child_start(op, child);
}

/* --- Its end ---------------------------------------------------------------------------------- */

static bool has_conn(const struct lpi_upload *upload)
{
	return upload->pin != NULL && upload->pin->generation == upload->pin_generation &&
	       upload->pin->state == LPI_STATE_UP;
}

/* Without it, the upload ends with the connection. */
static void abort_upload(struct lpi_op *op)
{
	const struct lpi_upload *upload = op->upload;
	if (upload->ino != 0 && has_conn(upload) && !op->lapis->is_stopping)
		lpi_link_give_up(upload->pin, upload->ino, true);
}

static void end_failed(struct lpi_op *op)
{
	struct lpi_upload *upload = op->upload;
	/* A commit that was refused leaves it open. Of one that may have been done the answer will
	 * say whether there is something to give up (receive.c). */
	if (upload->status != -LAPIS_EUNKNOWN)
		abort_upload(op);
	bool again = upload->status == -ENOTCONN && upload->source == NULL &&
		     upload->phase == LPI_UPLOAD_WRITING && upload->restarts < RESTARTS_MAX;
	if (!again) {
		lpi_finish(op, upload->status, upload->text);
		return;
	}
	upload->restarts++;
	upload->status = 0;
	upload->pos = 0;
	upload->at_end = false;
	upload->ino = 0;
	upload->pin = NULL;
	open_upload(op);
	if (upload->status != 0)
		lpi_finish(op, upload->status, upload->text);
}

static void proceed(struct lpi_op *op)
{
	struct lpi_upload *upload = op->upload;
	if (upload->status == 0 && upload->phase == LPI_UPLOAD_WRITING) {
		write_more(op);
		bool is_sent = upload->status == 0 && upload->at_end && upload->under_way == 0;
		if (is_sent && upload->ends_in_hole)
			set_length(op);
		else if (is_sent)
			commit(op);
	}
	if (upload->status != 0 && upload->under_way == 0)
		end_failed(op);
}

/* Whatever happened to a part before the commit, nothing is stored. */
static void part_failed(struct lpi_op *op, const struct lapis_result *result)
{
	int status = result->status;
	bool lost = status == -ENOTCONN || status == -LAPIS_EUNKNOWN;
	if (op->upload->phase != LPI_UPLOAD_WRITING || !lost)
		fail(op, status, result->text);
	else if (has_conn(op->upload))
		fail(op, -ETIMEDOUT,
		     "the daemon did not take the data in time; nothing was stored");
	else
		fail(op, -ENOTCONN,
		     "the connection broke in the middle of the put; nothing was stored");
}

static void child_done(void *arg, const struct lapis_result *result)
{
	struct lpi_op *op = arg;
	struct lpi_upload *upload = op->upload;
	const struct lpi_op *child = lpi_op_of(result);
	upload->under_way--;
	if (result->status < 0) {
		part_failed(op, result);
	} else if (upload->phase == LPI_UPLOAD_OPENING) {
		upload->ino = result->attrs.ino;
		upload->pin = child->by;
		upload->pin_generation = child->by_generation;
		upload->phase = LPI_UPLOAD_WRITING;
	} else if (upload->phase == LPI_UPLOAD_COMMITTING) {
		op->result.attrs = result->attrs;
		op->result.version = result->version;
		lpi_finish(op, 0, "");
		return;
	}
	proceed(op);
}

static void end_upload(struct lpi_op *op, int status, const char *text)
{
	struct lpi_op *child;
	LP_ASSERT(op->upload != NULL);
	if (op->upload->phase != LPI_UPLOAD_COMMITTING) {
		fail(op, status, text);
		/* Nothing but its source was waited for. */
		if (op->upload->under_way == 0)
			end_failed(op);
		return;
	}
	/* Then it is the commit that says how it ended. */
	LP_LIST_FOREACH (lpi_all, &op->lapis->all, child) {
		if (child->done == child_done && child->arg == op)
			lpi_end_early(child, status, text);
	}
}

/* Also of what is no upload: only here is known how either ends. */
void lpi_end_early(struct lpi_op *op, int status, const char *text)
{
	bool unknown = false;
	switch (op->place) {
	case LPI_PLACE_NONE:
		end_upload(op, status, text);
		return;
	case LPI_PLACE_DONE:
		return;
	case LPI_PLACE_WAITING:
	case LPI_PLACE_LATER:
		lpi_ops_remove(op);
		op->place = LPI_PLACE_NONE;
		break;
	case LPI_PLACE_QUEUED:
	case LPI_PLACE_SENDING:
	case LPI_PLACE_SENT:
		unknown = lpi_link_forget(op);
		break;
	}
	if (unknown && !op->is_safe) {
		(void)lpi_op_printf(op, 0,
				    "%.200s after it was sent: whether it was or will be "
				    "done is not known (look, then decide)",
				    text);
		lpi_finish(op, -LAPIS_EUNKNOWN, op->text);
	} else {
		lpi_finish(op, status, text);
	}
}

/* --- Its beginning ---------------------------------------------------------------------------- */

/* All of it was read, and fits into one message: an ordinary put. */
static void become_put(struct lpi_op *op, size_t len)
{
	struct lpi_upload *upload = op->upload;
	uint32_t cnt = lp_wire_piece_cnt(0, len);
	int err = lpi_op_head_resize(op, LP_WIRE_HEADER_SIZE + op->meta_bytes + (size_t)cnt * 4);
	if (err < 0) {
		lpi_finish(op, err, lp_strerror(err));
		return;
	}
	op->crc_cnt = cnt;
	op->own_data = upload->first;
	op->data = op->own_data;
	op->data_bytes = (uint32_t)len;
	upload->first = NULL;
	op->upload = NULL;
	lpi_upload_free(upload);
	if (op->lapis->options.crc == LAPIS_CRC_ALL)
		lpi_op_make_crcs(op);
	lpi_arm(op);
	lpi_wait(op);
}

static void open_first(struct lpi_op *op)
{
	open_upload(op);
	if (op->upload->status != 0)
		lpi_finish(op, op->upload->status, op->upload->text);
}

static void read_first(struct lpi_op *op)
{
	struct lpi_upload *upload = op->upload;
	int64_t len = LP_WIRE_DATA_MAX;
	/* With holes it is long anyway. */
	if (upload->hole == NULL) {
		upload->first = malloc(LP_WIRE_DATA_MAX);
		len = upload->first == NULL ? -ENOMEM
					    : fill(upload, upload->first, LP_WIRE_DATA_MAX);
	}
	if (len < 0)
		lpi_finish(op, (int)len, "what was to be put could not be read");
	else if (upload->at_end)
		become_put(op, (size_t)len);
	else
		open_first(op);
}

void lpi_upload_start(struct lpi_op *op)
{
	if (op->upload->source != NULL)
		make_hungry(op);
	else
		open_first(op);
}

/* --- Its sources ------------------------------------------------------------------------------ */

static bool is_any_unsent(const struct lapis *lapis)
{
	for (uint32_t i = 0; i < lapis->conn_cnt; i++) {
		if (lpi_link_has_unsent(lapis->conns[i]))
			return true;
	}
	return false;
}

/* Not for ever: others may keep a connection full, or the daemon may have stopped reading. */
uint64_t lpi_uploads_wait_ns(const struct lapis *lapis)
{
	if (lpi_ops_is_empty(&lapis->hungry))
		return UINT64_MAX;
	if (!is_any_unsent(lapis))
		return 0;
	if (lapis->hungry_ns == 0)
		return LPI_HUNGER_MAX;
	return LPI_HUNGER_MAX - LP_MIN(lapis->run_ns - lapis->hungry_ns, LPI_HUNGER_MAX);
}

static void feed(struct lpi_op *op)
{
	if (op->upload->phase == LPI_UPLOAD_NEW) {
		read_first(op);
		return;
	}
	write_from_source(op);
	proceed(op);
}

bool lpi_uploads_feed(struct lapis *lapis)
{
	struct lpi_ops hungry;
	struct lpi_op *op;
	uint64_t wait_ns = lpi_uploads_wait_ns(lapis);
	if (wait_ns > 0) {
		if (wait_ns == UINT64_MAX)
			lapis->hungry_ns = 0;
		else if (lapis->hungry_ns == 0)
			lapis->hungry_ns = lapis->run_ns;
		return false;
	}
	lapis->hungry_ns = 0;
	lpi_ops_init(&hungry);
	lpi_ops_splice_back(&hungry, &lapis->hungry);
	/* Whoever can take still more is in the handle's list again. */
	while ((op = lpi_ops_pop_front(&hungry)) != NULL)
		feed(op);
	return true;
}
