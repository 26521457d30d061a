/* SPDX-License-Identifier: Apache-2.0 */
/* Data: gets, writes and other changes of one file's content.
 *
 * A get that fits one piece is one read. A longer one holds its object open, so that it reads the
 * same object to the end even if the name changes. It reads a few pieces ahead and sends them in
 * the order of their offsets, each from the store's own buffers. The first piece is read alone,
 * because it tells the object's size. */
#include "native/door_impl.h"
#include "native/ops.h"

/* --- Get
 * ------------------------------------------------------------------------------------------ */

int lpi_meta_get(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_get get;
	if (!lp_wire_part(reader, lp_wire_get, &get))
		return -EINVAL;
	request->get.start = get.offset;
	request->get.end =
		get.length > UINT64_MAX - get.offset ? UINT64_MAX : get.offset + get.length;
	request->get.version_nr = get.version_nr;
	(void)lpi_request_store_op(request, LP_STORE_READ);
	return lpi_read_ref(request, LPI_REF_INO, get.ref, reader);
}

static void end_get(struct lpi_request *request);

static void closed(struct lp_ns_op *op)
{
	struct lpi_request *request = LP_CONTAINER_OF(op, struct lpi_request, find);
	/* An error of the close is not reported. */
	request->get.held.nr = 0;
	end_get(request);
}

/* All pieces are sent, or dropped. */
static void end_get(struct lpi_request *request)
{
	struct lp_ns_op *op = &request->find;
	if (request->get.held.nr == 0) {
		if (lp_sm_state(&request->sm) == LPI_REQUEST_WORK)
			lpi_request_move(request, LPI_REQUEST_DROPPED);
		lpi_request_end(request);
		return;
	}
	lpi_request_move(request, LPI_REQUEST_CLOSE);
	memset(op, 0, sizeof(*op));
	op->opcode = LP_NS_CLOSE;
	op->complete = closed;
	op->open.ino = request->get.held;
	op->open.count = 1;
	lp_ns_submit(request->door->options.ns, op);
}

static struct lpi_piece *take_piece(struct lpi_request *request)
{
	if (!request->piece.is_out)
		return &request->piece;
	return lpi_piece_new(request);
}

static void put_piece(struct lpi_piece *piece)
{
	LP_ASSERT(piece->request->get.out_cnt > 0);
	piece->request->get.out_cnt--;
	lpi_piece_free(piece);
}

void lpi_get_sent(struct lpi_request *request, struct lpi_piece *piece)
{
	/* An error before anything was read. */
	if (!piece->is_out || request->get.out_cnt == 0) {
		end_get(request);
		return;
	}
	put_piece(piece);
	if (request->get.is_last_queued && request->get.out_cnt == 0)
		end_get(request);
	else if (!request->get.is_last_queued)
		lpi_get_pump(request);
}

/* Drops the pieces after the last one; those that are still being read end by themselves. */
static void drop_read(struct lpi_request *request)
{
	struct lpi_piece *piece = NULL;
	struct lpi_piece *next = NULL;
	LP_LIST_FOREACH_SAFE (lpi_piece_list, &request->get.reading, piece, next) {
		if (!piece->is_read)
			continue;
		lpi_piece_list_remove(piece);
		put_piece(piece);
	}
}

/* Writes the meta of a piece; returns its length. */
static uint32_t write_got(struct lpi_piece *piece)
{
	struct lpi_conn *conn = piece->request->conn;
	const struct lp_store_op *read = &piece->op.store.op;
	struct lpi_reply *reply = &piece->reply;
	const struct lp_wire_got got = {.size_bytes = read->read.size_bytes,
					.version_nr = read->read.version_nr};
	struct lp_writer writer;
	size_t len = 0;
	lp_writer_init(&writer, reply->head + LP_WIRE_HEADER_SIZE, LPI_REST_INLINE);
	lp_wire_put_part(&writer, lp_wire_got, &got);
	/* A connection that is about to end would take the memory back too soon. */
	reply->is_shared = conn->share != NULL && conn->state <= LPI_CONN_SERVING &&
			   lpi_share_show(conn->share, reply->segs, reply->seg_cnt, &writer);
	if (reply->is_shared) {
		conn->door->stats.shared_replies++;
		conn->door->stats.shared_bytes += read->read.bytes;
	}
	bool fits = lp_writer_finish(&writer, &len);
	LP_ASSERT(fits);
	return (uint32_t)len;
}

/* Returns whether it is the last one. */
static bool queue_piece(struct lpi_request *request, struct lpi_piece *piece)
{
	const struct lp_store_op *read = &piece->op.store.op;
	struct lpi_reply *reply = &piece->reply;
	int r = piece->op.result;
	if (r >= 0 && request->get.version_nr != 0 &&
	    read->read.version_nr != request->get.version_nr)
		r = -ECANCELED;
	bool is_last = r < 0 || piece->offset + read->read.bytes >= request->get.end;
	request->get.is_last_queued = is_last;
	if (is_last)
		drop_read(request);
	if (r < 0) {
		lpi_piece_queue_error(piece, r == -ENOENT ? -ESTALE : r,
				      r == -ECANCELED ? "the object has another version" : "");
		return true;
	}
	reply->segs = read->read.segs;
	reply->seg_cnt = read->read.seg_cnt;
	reply->data_bytes = (uint32_t)read->read.bytes;
	lpi_piece_queue(piece, write_got(piece), !is_last);
	return is_last;
}

/* The client has gone: the pieces that are still being read are the last. */
static void abandon_get(struct lpi_request *request)
{
	request->get.is_last_queued = true;
	drop_read(request);
	if (request->get.out_cnt == 0)
		end_get(request);
}

/* Queues the pieces that have been read, in order, and reads more. The request may be gone
 * afterwards. */
static void advance(struct lpi_request *request)
{
	struct lpi_piece *piece = NULL;
	if (!lpi_conn_is_alive(request->conn)) {
		abandon_get(request);
		return;
	}
	while ((piece = lpi_piece_list_first(&request->get.reading)) != NULL && piece->is_read) {
		lpi_piece_list_remove(piece);
		if (queue_piece(request, piece))
			return;
	}
	lpi_get_pump(request);
}

static void note_size(struct lpi_request *request, const struct lpi_piece *piece)
{
	const struct lp_store_op *read = &piece->op.store.op;
	uint64_t size = read->read.size_bytes;
	/* The object was cut since the read was submitted: the missing bytes are at its end. */
	if (read->read.bytes < piece->length)
		size = LP_MIN(size, piece->offset + read->read.bytes);
	request->get.end = LP_MIN(request->get.end, LP_MAX(size, request->get.start));
	request->get.size_known = true;
}

static void piece_read(struct lp_ns_op *op)
{
	struct lpi_piece *piece = LP_CONTAINER_OF(op, struct lpi_piece, op);
	struct lpi_request *request = piece->request;
	int r = op->result;
	piece->is_read = true;
	piece->holds = r >= 0;
	if (piece->holds)
		note_size(request, piece);
	/* The piece is after the last one that is sent. */
	if (request->get.is_last_queued) {
		lpi_piece_list_remove(piece);
		put_piece(piece);
		if (request->get.out_cnt == 0)
			end_get(request);
		return;
	}
	/* The object may have been replaced since its name was looked up. */
	if (r < 0 && piece->offset == request->get.start && request->get.held.nr == 0) {
		lpi_piece_list_remove(piece);
		put_piece(piece);
		if (!lpi_request_again(request, r))
			lpi_request_fail(request, r == -ENOENT ? -ESTALE : r, "");
		return;
	}
	advance(request);
}

static void read_piece(struct lpi_request *request, struct lpi_piece *piece, uint64_t length)
{
	struct lp_ns_op *op = &piece->op;
	memset(op, 0, sizeof(*op));
	piece->offset = request->get.at;
	piece->length = length;
	piece->is_out = true;
	request->get.at += length;
	request->get.out_cnt++;
	lpi_piece_list_push_back(&request->get.reading, piece);
	op->opcode = LP_NS_STORE;
	op->complete = piece_read;
	op->store.ino = request->refs[0].found;
	op->store.op.opcode = LP_STORE_READ;
	op->store.op.read.ino = request->refs[0].found;
	op->store.op.read.offset = piece->offset;
	op->store.op.read.length = length;
	if (request->conn->share != NULL)
		op->store.op.read.into = lpi_share_bufs(request->conn->share);
	lp_ns_submit(request->door->options.ns, op);
}

/* The longest allowed piece. A piece of a long get is a part of the room that is left. So clients
 * that ask for much and do not read it leave room to others. */
static uint64_t piece_max(const struct lpi_request *request)
{
	uint64_t max = LP_WIRE_PIECE_MAX;
	if (request->get.held.nr != 0)
		max = LP_MIN(max, lpi_conn_reply_room(request->conn, max) / 4);
	return LP_MAX(max - max % LP_WIRE_BLOCK_BYTES, (uint64_t)LPI_SMALL_BYTES);
}

/* Later pieces begin on the grid. An object known to be small takes little room. If it has grown,
 * there is another piece. */
static uint64_t next_length(const struct lpi_request *request)
{
	uint64_t at = request->get.at;
	uint64_t left = request->get.end - at;
	uint64_t size = request->found.attrs.size_bytes;
	if (request->refs[0].path.len > 0 && !request->get.size_known)
		left = LP_MIN(left, LP_MAX(size - LP_MIN(size, at), (uint64_t)LPI_SMALL_BYTES));
	return LP_MIN(left, piece_max(request) - at % LP_WIRE_BLOCK_BYTES);
}

static bool wants_more(const struct lpi_request *request)
{
	if (request->get.out_cnt == 0)
		return true;
	return request->get.size_known && request->get.at < request->get.end &&
	       request->get.out_cnt < LPI_PIECES_AHEAD &&
	       request->conn->reply_bytes < LPI_AHEAD_BYTES;
}

void lpi_get_pump(struct lpi_request *request)
{
	struct lp_door *door = request->door;
	if (lp_list_node_is_linked(&request->wait_node))
		return;
	if (!lpi_conn_is_alive(request->conn) && request->get.out_cnt == 0) {
		abandon_get(request);
		return;
	}
	while (lpi_conn_is_alive(request->conn) && wants_more(request)) {
		struct lpi_piece *piece = take_piece(request);
		uint64_t length = next_length(request);
		if (piece == NULL)
			return;
		if (!lpi_piece_budget(piece, length)) {
			lpi_piece_free(piece);
			/* The get goes on when one of its own pieces has been sent. */
			if (request->get.out_cnt > 0)
				return;
			if (request->waits_ns == 0)
				request->waits_ns = lpi_door_now_ns(door);
			/* Only a short get keeps the order: a long one may show changes made while
			 * it is read. */
			if (request->get.held.nr == 0)
				lpi_request_note_look(request);
			lpi_wait_list_push_back(&door->short_of_room, request);
			return;
		}
		request->waits_ns = 0;
		read_piece(request, piece, length);
	}
}

static void opened(struct lp_ns_op *op)
{
	struct lpi_request *request = LP_CONTAINER_OF(op, struct lpi_request, find);
	if (op->result < 0) {
		if (!lpi_request_again(request, op->result))
			lpi_request_fail(request, op->result, "");
		return;
	}
	request->get.held = request->refs[0].found;
	lpi_get_pump(request);
}

static bool fits_one_piece(const struct lpi_request *request)
{
	uint64_t end = request->get.end;
	uint64_t start = request->get.start;
	if (request->refs[0].path.len > 0)
		end = LP_MIN(end, LP_MAX(request->found.attrs.size_bytes, start));
	return end - start <= LP_WIRE_PIECE_MAX - start % LP_WIRE_BLOCK_BYTES;
}

void lpi_run_get(struct lpi_request *request)
{
	struct lp_ns_op *op = &request->find;
	request->get.at = request->get.start;
	if (fits_one_piece(request)) {
		lpi_get_pump(request);
		return;
	}
	memset(op, 0, sizeof(*op));
	op->opcode = LP_NS_OPEN;
	op->complete = opened;
	op->open.ino = request->refs[0].found;
	lp_ns_submit(request->door->options.ns, op);
}

/* --- Changes
 * ---------------------------------------------------------------------------------------- */

int lpi_meta_write(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_write write;
	struct lp_change *change = &request->changes[0];
	if (!lp_wire_part(reader, lp_wire_write, &write) || write.append > 1 ||
	    write.write_path >= LP_PATH_CNT)
		return -EINVAL;
	if (write.append == 1 && request->header.offset != 0) {
		lpi_request_why(request, "an append has no offset");
		return -EINVAL;
	}
	change->type = LP_CHANGE_WRITE;
	change->data.offset = write.append == 1 ? LP_STORE_APPEND : request->header.offset;
	change->data.length = request->header.data_bytes;
	change->data.payload = lpi_request_payload(request);
	change->data.path = (enum lp_write_path)write.write_path;
	lpi_change_times(request, &request->changes[1], true);
	lpi_request_txn(request, request->changes, 2);
	return lpi_read_ref(request, LPI_REF_INO, write.ref, reader);
}

static int begin_space(struct lpi_request *request, struct lp_reader *reader,
		       enum lp_change_type type)
{
	struct lp_wire_space space;
	struct lp_change *change = &request->changes[0];
	if (!lp_wire_part(reader, lp_wire_space, &space))
		return -EINVAL;
	if (type == LP_CHANGE_TRUNCATE ? space.length != 0 : space.length > LP_STORE_RANGE_MAX)
		return -EINVAL;
	change->type = type;
	change->data.offset = space.offset;
	change->data.length = space.length;
	lpi_change_times(request, &request->changes[1], true);
	lpi_request_txn(request, request->changes, 2);
	return lpi_read_ref(request, LPI_REF_INO, space.ref, reader);
}

int lpi_meta_truncate(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_space(request, reader, LP_CHANGE_TRUNCATE);
}

int lpi_meta_punch(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_space(request, reader, LP_CHANGE_PUNCH);
}

int lpi_meta_prealloc(struct lpi_request *request, struct lp_reader *reader)
{
	return begin_space(request, reader, LP_CHANGE_PREALLOC);
}

int lpi_meta_clone(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_clone clone;
	struct lp_change *change = &request->changes[0];
	if (!lp_wire_part(reader, lp_wire_clone, &clone) || clone.length > LP_STORE_RANGE_MAX)
		return -EINVAL;
	change->type = LP_CHANGE_CLONE;
	change->clone.src.nr = clone.src_ino;
	change->clone.src_offset = clone.src_offset;
	change->clone.offset = clone.offset;
	change->clone.length = clone.length;
	lpi_change_times(request, &request->changes[1], true);
	lpi_request_txn(request, request->changes, 2);
	return lpi_read_ref(request, LPI_REF_INO, clone.ref, reader);
}

/* Behind the door's own guards, if the request runs again. */
struct lp_ino lpi_clone_source(const struct lpi_request *request)
{
	return request->changes[request->own_at + request->own_cnt].clone.src;
}

/* Only now the target's shard is known, so a source on another shard is refused here. */
void lpi_run_clone(struct lpi_request *request)
{
	if (lp_ino_shard(lpi_clone_source(request)) != lp_ino_shard(request->refs[0].found)) {
		lpi_request_fail(request, -EXDEV, "source and target are on different shards");
		return;
	}
	lpi_run_change(request);
}

void lpi_answer_written(struct lpi_request *request)
{
	const struct lp_store_op *op = &request->piece.op.store.op;
	const struct lp_change *changes = op->txn.changes;
	struct lp_wire_written written = {.version_nr = op->txn.version_nr};
	struct lp_writer *writer = lpi_request_writer(request, LP_WIRE_WRITTEN_SIZE);
	if (writer == NULL)
		return;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		if (!lpi_is_data_change(changes[i].type))
			continue;
		written.offset = changes[i].type == LP_CHANGE_CLONE ? changes[i].clone.offset
								    : changes[i].data.offset;
		if (changes[i].type != LP_CHANGE_WRITE)
			continue;
		written.write_path = (uint8_t)op->txn.path;
		if (written.offset == LP_STORE_APPEND)
			written.offset = op->txn.offset;
	}
	lp_wire_put_part(writer, lp_wire_written, &written);
	lpi_request_answer(request);
}

int lpi_meta_seek(struct lpi_request *request, struct lp_reader *reader)
{
	struct lp_wire_seek seek;
	struct lp_store_op *op = lpi_request_store_op(request, LP_STORE_SEEK);
	if (!lp_wire_part(reader, lp_wire_seek, &seek) || seek.hole > 1)
		return -EINVAL;
	op->seek.offset = seek.offset;
	op->seek.hole = seek.hole == 1;
	return lpi_read_ref(request, LPI_REF_INO, seek.ref, reader);
}

void lpi_answer_seek(struct lpi_request *request)
{
	const struct lp_wire_found found = {.offset = request->piece.op.store.op.seek.found};
	struct lp_writer *writer = lpi_request_writer(request, LP_WIRE_FOUND_SIZE);
	if (writer == NULL)
		return;
	lp_wire_put_part(writer, lp_wire_found, &found);
	lpi_request_answer(request);
}

/* --- Compound
 * --------------------------------------------------------------------------------------- */

static const struct {
	uint32_t kind;
	enum lp_change_type type;
} compound_types[] = {
	{LP_WIRE_CHANGE_KIND_GUARD_VERSION, LP_GUARD_INODE},
	{LP_WIRE_CHANGE_KIND_GUARD_XATTR, LP_GUARD_XATTR},
	{LP_WIRE_CHANGE_KIND_GUARD_NO_XATTR, LP_GUARD_NO_XATTR},
	{LP_WIRE_CHANGE_KIND_WRITE, LP_CHANGE_WRITE},
	{LP_WIRE_CHANGE_KIND_TRUNCATE, LP_CHANGE_TRUNCATE},
	{LP_WIRE_CHANGE_KIND_PUNCH, LP_CHANGE_PUNCH},
	{LP_WIRE_CHANGE_KIND_XATTR_SET, LP_CHANGE_XATTR_SET},
	{LP_WIRE_CHANGE_KIND_XATTR_REMOVE, LP_CHANGE_XATTR_REMOVE},
	{LP_WIRE_CHANGE_KIND_OMAP_SET, LP_CHANGE_OMAP_SET},
	{LP_WIRE_CHANGE_KIND_OMAP_REMOVE, LP_CHANGE_OMAP_REMOVE},
};

static int compound_type(uint32_t kind, enum lp_change_type *ret_type)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(compound_types); i++) {
		if (compound_types[i].kind == kind) {
			*ret_type = compound_types[i].type;
			return 0;
		}
	}
	return -EINVAL;
}

static int set_data_change(struct lpi_request *request, const struct lp_wire_change *wire,
			   struct lp_change *change)
{
	change->data.offset = wire->offset;
	change->data.length = wire->length;
	if (change->type != LP_CHANGE_WRITE)
		return 0;
	if (wire->offset != request->header.offset || wire->length != request->header.data_bytes) {
		lpi_request_why(request, "the write of a compound is its message's data");
		return -EINVAL;
	}
	change->data.payload = lpi_request_payload(request);
	return 0;
}

static int read_change(struct lpi_request *request, struct lp_reader *reader,
		       struct lp_change *change)
{
	struct lp_wire_change wire;
	if (!lp_wire_part(reader, lp_wire_change, &wire))
		return -EINVAL;
	const char *name = lp_wire_bytes(reader, wire.name_bytes);
	const char *value = lp_wire_bytes(reader, wire.value_bytes);
	if (value == NULL || compound_type(wire.kind, &change->type) < 0)
		return -EINVAL;
	if (change->type == LP_GUARD_INODE) {
		change->guard.version_nr = wire.offset;
		return 0;
	}
	if (lpi_is_data_change(change->type))
		return set_data_change(request, &wire, change);
	bool is_absent = wire.value_bytes == 0 && change->type != LP_CHANGE_XATTR_SET &&
			 change->type != LP_CHANGE_OMAP_SET;
	change->named.name = (struct lp_bytes){name, wire.name_bytes};
	change->named.value = (struct lp_bytes){is_absent ? NULL : value, wire.value_bytes};
	if (change->type == LP_CHANGE_XATTR_SET)
		return lpi_check_xattr(request, change->named.name, change->named.value);
	if (change->type == LP_CHANGE_XATTR_REMOVE)
		return lpi_check_xattr_name(request, change->named.name);
	return wire.value_bytes > LP_WIRE_VALUE_MAX ? -E2BIG : 0;
}

static int read_changes(struct lpi_request *request, struct lp_reader *reader,
			struct lp_change *changes, uint32_t cnt)
{
	bool has_write = false;
	bool is_change = false;
	for (uint32_t i = 0; i < cnt; i++) {
		int r = read_change(request, reader, &changes[i]);
		if (r < 0)
			return r;
		has_write |= changes[i].type == LP_CHANGE_WRITE;
		if (lpi_sets_list(&changes[i]))
			request->list = &changes[i];
		is_change |= changes[i].type >= LP_CHANGE_CREATE;
		if (is_change && changes[i].type < LP_CHANGE_CREATE) {
			lpi_request_why(request, "guards come first");
			return -EINVAL;
		}
	}
	return request->header.data_bytes > 0 && !has_write ? -EINVAL : 0;
}

int lpi_meta_compound(struct lpi_request *request, struct lp_reader *reader)
{
	static_assert(LP_STORE_CHANGES_MAX * sizeof(struct lp_change) <= LP_BUF_SMALL &&
			      LPI_COMPOUND_MAX + 2 <= LP_STORE_CHANGES_MAX,
		      "a buffer holds them");
	struct lp_wire_compound compound;
	if (!lp_wire_part(reader, lp_wire_compound, &compound) || compound.change_cnt == 0 ||
	    compound.change_cnt > LPI_COMPOUND_MAX)
		return -EINVAL;
	int r = lpi_read_ref(request, LPI_REF_INO, compound.ref, reader);
	if (r < 0)
		return r;
	struct lp_buf *room = lpi_request_room(request, LP_BUF_SMALL);
	if (room == NULL)
		return -EAGAIN;
	struct lp_change *changes = (struct lp_change *)(void *)room->data;
	uint32_t cnt = compound.change_cnt;
	memset(changes, 0, LP_BUF_SMALL);
	r = read_changes(request, reader, changes, cnt);
	if (r < 0)
		return r;
	/* A compound of guards only changes nothing, so it sets no times. */
	if (changes[cnt - 1].type >= LP_CHANGE_CREATE) {
		bool has_data = false;
		for (uint32_t i = 0; i < cnt; i++)
			has_data |= lpi_is_data_change(changes[i].type);
		lpi_change_times(request, &changes[cnt++], has_data);
	}
	lpi_request_txn(request, changes, cnt);
	return 0;
}
