/* SPDX-License-Identifier: Apache-2.0 */
/* From a request to a message: the meta is encoded, and the checksums of the data are computed, on
 * the thread that submits. The header waits for the connection, which knows the mode and the id.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/sanitize.h"
#include "client/handle.h"
#include "client/op.h"
#include "client/upload.h"

#define XATTRS_MAX  16u
#define CHANGES_MAX 30u

/* What is asked, and whether asking twice does harm: an open or upload that nobody knows the answer
 * of ended with its connection. sync is not safe: a daemon that was started again knows nothing of
 * what the former one was asked for. */
struct op_kind {
	enum lpi_answer answer;
	bool is_safe;
};

static const struct op_kind kinds[] = {
	[LAPIS_PING] = {LPI_ANSWER_NONE, true},
	[LAPIS_STAT] = {LPI_ANSWER_ATTRS, true},
	[LAPIS_GET] = {LPI_ANSWER_GOT, true},
	[LAPIS_PUT] = {LPI_ANSWER_ATTRS, false},
	[LAPIS_UPLOAD] = {LPI_ANSWER_ATTRS, true},
	[LAPIS_WRITE] = {LPI_ANSWER_WRITTEN, false},
	[LAPIS_COMMIT] = {LPI_ANSWER_ATTRS, false},
	[LAPIS_ABORT] = {LPI_ANSWER_NONE, false},
	[LAPIS_DELETE] = {LPI_ANSWER_NONE, false},
	[LAPIS_LIST] = {LPI_ANSWER_ITEMS, true},
	[LAPIS_COPY] = {LPI_ANSWER_ATTRS, false},
	[LAPIS_MOVE] = {LPI_ANSWER_ATTRS, false},
	[LAPIS_OPEN] = {LPI_ANSWER_ATTRS, true},
	[LAPIS_CLOSE] = {LPI_ANSWER_NONE, false},
	[LAPIS_TRUNCATE] = {LPI_ANSWER_WRITTEN, false},
	[LAPIS_PUNCH] = {LPI_ANSWER_WRITTEN, false},
	[LAPIS_PREALLOC] = {LPI_ANSWER_WRITTEN, false},
	[LAPIS_SEEK] = {LPI_ANSWER_FOUND, true},
	[LAPIS_CLONE] = {LPI_ANSWER_WRITTEN, false},
	[LAPIS_SET] = {LPI_ANSWER_ATTRS, false},
	[LAPIS_XATTR_GET] = {LPI_ANSWER_VALUE, true},
	[LAPIS_XATTR_SET] = {LPI_ANSWER_NONE, false},
	[LAPIS_XATTR_REMOVE] = {LPI_ANSWER_NONE, false},
	[LAPIS_XATTR_LIST] = {LPI_ANSWER_PAIRS, true},
	[LAPIS_OMAP_GET] = {LPI_ANSWER_VALUE, true},
	[LAPIS_OMAP_SET] = {LPI_ANSWER_NONE, false},
	[LAPIS_OMAP_REMOVE] = {LPI_ANSWER_NONE, false},
	[LAPIS_OMAP_LIST] = {LPI_ANSWER_PAIRS, true},
	[LAPIS_COMPOUND] = {LPI_ANSWER_WRITTEN, false},
	[LAPIS_MAKE] = {LPI_ANSWER_ATTRS, false},
	[LAPIS_REMOVE] = {LPI_ANSWER_NONE, false},
	[LAPIS_LINK] = {LPI_ANSWER_ATTRS, false},
	[LAPIS_RENAME] = {LPI_ANSWER_NONE, false},
	[LAPIS_READDIR] = {LPI_ANSWER_ITEMS, true},
	[LAPIS_READLINK] = {LPI_ANSWER_VALUE, true},
	[LAPIS_SYNC] = {LPI_ANSWER_NONE, false},
	[LAPIS_STATUS] = {LPI_ANSWER_TEXT, true},
	[LAPIS_STATS] = {LPI_ANSWER_TEXT, true},
	[LAPIS_SLOW] = {LPI_ANSWER_TEXT, true},
	[LAPIS_CONFIG_GET] = {LPI_ANSWER_TEXT, true},
	[LAPIS_CONFIG_SET] = {LPI_ANSWER_TEXT, false},
	[LAPIS_EXPLAIN] = {LPI_ANSWER_TEXT, true},
	[LAPIS_ALLOC] = {LPI_ANSWER_TEXT, true},
	[LAPIS_HEAP] = {LPI_ANSWER_TEXT, false},
	[LAPIS_SCRUB] = {LPI_ANSWER_TEXT, false},
	[LAPIS_CHECK] = {LPI_ANSWER_TEXT, false},
};

bool lpi_op_is_known(uint32_t opcode)
{
	return opcode < LP_ARRAY_SIZE(kinds) && kinds[opcode].answer != LPI_ANSWER_UNKNOWN;
}

int lpi_op_printf(struct lpi_op *op, int status, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(op->text, sizeof(op->text), fmt, ap);
	va_end(ap);
	return status;
}

/* --- Encoding --------------------------------------------------------------------------------- */

struct encoder {
	const struct lapis_request *req;
	struct lp_writer writer;
	size_t path_len;
	size_t to_len;
	size_t name_len;
	size_t after_len;
	uint8_t ref[LP_WIRE_REF_SIZE];
	uint8_t to[LP_WIRE_REF_SIZE];
};

static size_t text_len(const char *text, size_t given)
{
	return text == NULL ? 0 : given != 0 ? given : strlen(text);
}

static size_t pair_name_len(const struct lapis_pair *pair)
{
	return text_len(pair->name, pair->name_bytes);
}

static void encode_ref(uint64_t ino, size_t path_len, uint8_t *ret)
{
	const struct lp_wire_ref ref = {.ino = ino, .path_bytes = (uint16_t)path_len};
	lp_wire_ref_encode(&ref, ret);
}

static void put_path(struct encoder *enc)
{
	lp_writer_bytes(&enc->writer, enc->req->path, enc->path_len);
}

static void encode_get(struct encoder *enc)
{
	struct lp_wire_get get = {.offset = enc->req->offset,
				  .length = enc->req->length,
				  .version_nr = enc->req->version};
	memcpy(get.ref, enc->ref, sizeof(get.ref));
	lp_wire_put_part(&enc->writer, lp_wire_get, &get);
	put_path(enc);
}

static void encode_put(struct encoder *enc)
{
	const struct lapis_request *req = enc->req;
	struct lp_wire_put put = {
		.version_nr = req->version,
		.mtime_ns = req->mtime_ns,
		.condition = req->condition,
		.uid = req->flags & LAPIS_OWNER ? req->uid : LP_WIRE_NO_OWNER,
		.gid = req->flags & LAPIS_OWNER ? req->gid : LP_WIRE_NO_OWNER,
		.mode = req->flags & LAPIS_MODE ? req->mode : LP_WIRE_NO_MODE,
		.write_path = req->write_path,
		.xattr_cnt = (uint16_t)req->xattr_cnt,
	};
	memcpy(put.ref, enc->ref, sizeof(put.ref));
	lp_wire_put_part(&enc->writer, lp_wire_put, &put);
	if (req->op == LAPIS_COMMIT)
		lp_writer_u64(&enc->writer, req->to_ino);
	put_path(enc);
	for (uint32_t i = 0; i < req->xattr_cnt; i++) {
		const struct lapis_pair *from = &req->xattrs[i];
		const struct lp_wire_pair pair = {.name_bytes = (uint16_t)pair_name_len(from),
						  .value_bytes = from->value_bytes};
		lp_wire_put_part(&enc->writer, lp_wire_pair, &pair);
		lp_writer_bytes(&enc->writer, from->name, pair.name_bytes);
		lp_writer_bytes(&enc->writer, from->value, pair.value_bytes);
	}
}

static void encode_write(struct encoder *enc)
{
	struct lp_wire_write write = {.write_path = enc->req->write_path,
				      .append = (enc->req->flags & LAPIS_APPEND) != 0};
	memcpy(write.ref, enc->ref, sizeof(write.ref));
	lp_wire_put_part(&enc->writer, lp_wire_write, &write);
	put_path(enc);
}

static void encode_delete(struct encoder *enc)
{
	struct lp_wire_delete del = {.version_nr = enc->req->version,
				     .condition = enc->req->condition,
				     .or_dir = (enc->req->flags & LAPIS_OR_DIR) != 0};
	memcpy(del.ref, enc->ref, sizeof(del.ref));
	lp_wire_put_part(&enc->writer, lp_wire_delete, &del);
	put_path(enc);
}

static void encode_list(struct encoder *enc)
{
	const struct lp_wire_list list = {.prefix_bytes = (uint16_t)enc->name_len,
					  .after_bytes = (uint16_t)enc->after_len,
					  .items_max = enc->req->items_max,
					  .delimit = (enc->req->flags & LAPIS_DELIMIT) != 0,
					  .with_attrs = (enc->req->flags & LAPIS_ATTRS) != 0};
	lp_wire_put_part(&enc->writer, lp_wire_list, &list);
	lp_writer_bytes(&enc->writer, enc->req->name, enc->name_len);
	lp_writer_bytes(&enc->writer, enc->req->after, enc->after_len);
}

static void encode_two(struct encoder *enc)
{
	struct lp_wire_two two = {.version_nr = enc->req->version,
				  .condition = enc->req->condition};
	memcpy(two.ref, enc->ref, sizeof(two.ref));
	memcpy(two.to, enc->to, sizeof(two.to));
	lp_wire_put_part(&enc->writer, lp_wire_two, &two);
	put_path(enc);
	lp_writer_bytes(&enc->writer, enc->req->to_path, enc->to_len);
}

static void encode_space(struct encoder *enc)
{
	struct lp_wire_space space = {.offset = enc->req->offset, .length = enc->req->length};
	memcpy(space.ref, enc->ref, sizeof(space.ref));
	lp_wire_put_part(&enc->writer, lp_wire_space, &space);
	put_path(enc);
}

static void encode_seek(struct encoder *enc)
{
	struct lp_wire_seek seek = {.offset = enc->req->offset,
				    .hole = (enc->req->flags & LAPIS_HOLE) != 0};
	memcpy(seek.ref, enc->ref, sizeof(seek.ref));
	lp_wire_put_part(&enc->writer, lp_wire_seek, &seek);
	put_path(enc);
}

static void encode_clone(struct encoder *enc)
{
	struct lp_wire_clone clone = {.src_ino = enc->req->to_ino,
				      .src_offset = enc->req->src_offset,
				      .offset = enc->req->offset,
				      .length = enc->req->length};
	memcpy(clone.ref, enc->ref, sizeof(clone.ref));
	lp_wire_put_part(&enc->writer, lp_wire_clone, &clone);
	put_path(enc);
}

static void encode_set(struct encoder *enc)
{
	const struct lapis_attrs *from = enc->req->attrs;
	uint32_t mask = enc->req->mask;
	/* What is not set is not looked at here either: the caller may have left it as it was. */
	const struct lp_wire_attrs attrs = {
		.atime_ns = mask & LAPIS_SET_ATIME ? from->atime_ns : 0,
		.mtime_ns = mask & LAPIS_SET_MTIME ? from->mtime_ns : 0,
		.ctime_ns = mask & LAPIS_SET_CTIME ? from->ctime_ns : 0,
		.btime_ns = mask & LAPIS_SET_BTIME ? from->btime_ns : 0,
		.uid = mask & LAPIS_SET_UID ? from->uid : 0,
		.gid = mask & LAPIS_SET_GID ? from->gid : 0,
		.flags = mask & LAPIS_SET_FLAGS ? from->flags : 0,
		.mode = mask & LAPIS_SET_MODE ? from->mode : 0,
	};
	struct lp_wire_set set = {.mask = mask};
	memcpy(set.ref, enc->ref, sizeof(set.ref));
	lp_wire_attrs_encode(&attrs, set.attrs);
	lp_wire_put_part(&enc->writer, lp_wire_set, &set);
	put_path(enc);
}

static void encode_named(struct encoder *enc)
{
	struct lp_wire_named named = {.name_bytes = (uint16_t)enc->name_len,
				      .value_bytes = (uint32_t)enc->req->value_bytes,
				      .condition = enc->req->condition};
	memcpy(named.ref, enc->ref, sizeof(named.ref));
	lp_wire_put_part(&enc->writer, lp_wire_named, &named);
	put_path(enc);
	lp_writer_bytes(&enc->writer, enc->req->name, enc->name_len);
	lp_writer_bytes(&enc->writer, enc->req->value, enc->req->value_bytes);
}

static void encode_range(struct encoder *enc)
{
	struct lp_wire_range range = {.after_bytes = (uint16_t)enc->after_len,
				      .prefix_bytes = (uint16_t)enc->name_len,
				      .items_max = enc->req->items_max,
				      .with_values = (enc->req->flags & LAPIS_VALUES) != 0};
	memcpy(range.ref, enc->ref, sizeof(range.ref));
	lp_wire_put_part(&enc->writer, lp_wire_range, &range);
	put_path(enc);
	lp_writer_bytes(&enc->writer, enc->req->after, enc->after_len);
	lp_writer_bytes(&enc->writer, enc->req->name, enc->name_len);
}

static void encode_compound(struct encoder *enc)
{
	struct lp_wire_compound compound = {.change_cnt = enc->req->change_cnt};
	memcpy(compound.ref, enc->ref, sizeof(compound.ref));
	lp_wire_put_part(&enc->writer, lp_wire_compound, &compound);
	put_path(enc);
	for (uint32_t i = 0; i < enc->req->change_cnt; i++) {
		const struct lapis_change *from = &enc->req->changes[i];
		const struct lp_wire_change change = {
			.kind = from->kind,
			.name_bytes = (uint16_t)text_len(from->name, from->name_bytes),
			.value_bytes = from->value_bytes,
			.offset = from->offset,
			.length = from->length,
		};
		lp_wire_put_part(&enc->writer, lp_wire_change, &change);
		lp_writer_bytes(&enc->writer, from->name, change.name_bytes);
		lp_writer_bytes(&enc->writer, from->value, change.value_bytes);
	}
}

static void encode_make(struct encoder *enc)
{
	const struct lapis_request *req = enc->req;
	struct lp_wire_make make = {
		.uid = req->flags & LAPIS_OWNER ? req->uid : LP_WIRE_NO_OWNER,
		.gid = req->flags & LAPIS_OWNER ? req->gid : LP_WIRE_NO_OWNER,
		.rdev = req->rdev,
		.mode = req->mode,
		.type = req->type,
		.spread = (req->flags & LAPIS_SPREAD) != 0,
		.or_open = (req->flags & LAPIS_OR_OPEN) != 0,
		.open = (req->flags & LAPIS_AND_OPEN) != 0,
		.target_bytes = (uint16_t)req->value_bytes,
	};
	memcpy(make.ref, enc->ref, sizeof(make.ref));
	lp_wire_put_part(&enc->writer, lp_wire_make, &make);
	put_path(enc);
	lp_writer_bytes(&enc->writer, req->value, req->value_bytes);
}

static void encode_remove(struct encoder *enc)
{
	struct lp_wire_remove remove = {.is_dir = (enc->req->flags & LAPIS_IS_DIR) != 0};
	memcpy(remove.ref, enc->ref, sizeof(remove.ref));
	lp_wire_put_part(&enc->writer, lp_wire_remove, &remove);
	put_path(enc);
}

static void encode_readdir(struct encoder *enc)
{
	struct lp_wire_readdir readdir = {.cookie = enc->req->cookie,
					  .items_max = enc->req->items_max,
					  .with_attrs = (enc->req->flags & LAPIS_ATTRS) != 0,
					  .after_bytes = (uint16_t)enc->after_len,
					  .by_name = (enc->req->flags & LAPIS_BY_NAME) != 0};
	memcpy(readdir.ref, enc->ref, sizeof(readdir.ref));
	lp_wire_put_part(&enc->writer, lp_wire_readdir, &readdir);
	put_path(enc);
	lp_writer_bytes(&enc->writer, enc->req->after, enc->after_len);
}

static void encode_plain(struct encoder *enc)
{
	lp_writer_bytes(&enc->writer, enc->ref, sizeof(enc->ref));
	put_path(enc);
}

static void encode_text(struct encoder *enc)
{
	const struct lp_wire_text text = {.text_bytes = (uint32_t)enc->req->value_bytes};
	lp_wire_put_part(&enc->writer, lp_wire_text, &text);
	lp_writer_bytes(&enc->writer, enc->req->value, enc->req->value_bytes);
}

static void encode_nothing(struct encoder *enc)
{
	(void)enc;
}

static void encode(struct encoder *enc)
{
	static void (*const encoders[LP_ARRAY_SIZE(kinds)])(struct encoder *) = {
		[LAPIS_PING] = encode_nothing,
		[LAPIS_STAT] = encode_plain,
		[LAPIS_GET] = encode_get,
		[LAPIS_PUT] = encode_put,
		[LAPIS_UPLOAD] = encode_plain,
		[LAPIS_WRITE] = encode_write,
		[LAPIS_COMMIT] = encode_put,
		[LAPIS_ABORT] = encode_plain,
		[LAPIS_DELETE] = encode_delete,
		[LAPIS_LIST] = encode_list,
		[LAPIS_COPY] = encode_two,
		[LAPIS_MOVE] = encode_two,
		[LAPIS_OPEN] = encode_plain,
		[LAPIS_CLOSE] = encode_plain,
		[LAPIS_TRUNCATE] = encode_space,
		[LAPIS_PUNCH] = encode_space,
		[LAPIS_PREALLOC] = encode_space,
		[LAPIS_SEEK] = encode_seek,
		[LAPIS_CLONE] = encode_clone,
		[LAPIS_SET] = encode_set,
		[LAPIS_XATTR_GET] = encode_named,
		[LAPIS_XATTR_SET] = encode_named,
		[LAPIS_XATTR_REMOVE] = encode_named,
		[LAPIS_XATTR_LIST] = encode_range,
		[LAPIS_OMAP_GET] = encode_named,
		[LAPIS_OMAP_SET] = encode_named,
		[LAPIS_OMAP_REMOVE] = encode_named,
		[LAPIS_OMAP_LIST] = encode_range,
		[LAPIS_COMPOUND] = encode_compound,
		[LAPIS_MAKE] = encode_make,
		[LAPIS_REMOVE] = encode_remove,
		[LAPIS_LINK] = encode_two,
		[LAPIS_RENAME] = encode_two,
		[LAPIS_READDIR] = encode_readdir,
		[LAPIS_READLINK] = encode_plain,
		[LAPIS_SYNC] = encode_nothing,
		[LAPIS_STATUS] = encode_nothing,
		[LAPIS_STATS] = encode_text,
		[LAPIS_SLOW] = encode_nothing,
		[LAPIS_CONFIG_GET] = encode_text,
		[LAPIS_CONFIG_SET] = encode_text,
		[LAPIS_EXPLAIN] = encode_plain,
		[LAPIS_ALLOC] = encode_text,
		[LAPIS_HEAP] = encode_text,
		[LAPIS_SCRUB] = encode_text,
		[LAPIS_CHECK] = encode_text,
	};
	encoders[enc->req->op](enc);
}

/* --- Checking --------------------------------------------------------------------------------- */

/* How many bytes the meta may take, or more than LP_WIRE_LONG_META_MAX. */
static size_t meta_bound(const struct encoder *enc)
{
	const struct lapis_request *req = enc->req;
	size_t bound = LP_WIRE_SET_SIZE + enc->path_len + enc->to_len + enc->name_len;
	bound += enc->after_len + LP_MIN(req->value_bytes, (size_t)LP_WIRE_LONG_META_MAX);
	for (uint32_t i = 0; i < req->xattr_cnt; i++)
		bound += LP_WIRE_PAIR_SIZE + pair_name_len(&req->xattrs[i]) +
			 req->xattrs[i].value_bytes;
	for (uint32_t i = 0; i < req->change_cnt; i++)
		bound += LP_WIRE_CHANGE_SIZE + req->changes[i].value_bytes +
			 text_len(req->changes[i].name, req->changes[i].name_bytes);
	return bound;
}

static bool names_fit(const struct encoder *enc)
{
	const struct lapis_request *req = enc->req;
	bool fit = enc->path_len <= LP_WIRE_PATH_MAX && enc->to_len <= LP_WIRE_PATH_MAX &&
		   enc->name_len <= LP_WIRE_PATH_MAX && enc->after_len <= LP_WIRE_PATH_MAX;
	for (uint32_t i = 0; i < req->xattr_cnt; i++)
		fit = fit && pair_name_len(&req->xattrs[i]) <= LP_WIRE_PATH_MAX;
	for (uint32_t i = 0; i < req->change_cnt; i++)
		fit = fit && text_len(req->changes[i].name, req->changes[i].name_bytes) <=
				     LP_WIRE_PATH_MAX;
	return fit;
}

static bool has_data(const struct lapis_request *req)
{
	return req->op == LAPIS_PUT || req->op == LAPIS_WRITE || req->op == LAPIS_COMPOUND;
}

static bool values_make_sense(const struct lapis_request *req)
{
	if ((req->value == NULL && req->value_bytes > 0) ||
	    (req->xattrs == NULL && req->xattr_cnt > 0) ||
	    (req->changes == NULL && req->change_cnt > 0) || req->xattr_cnt > XATTRS_MAX ||
	    req->change_cnt > CHANGES_MAX)
		return false;
	for (uint32_t i = 0; i < req->xattr_cnt; i++) {
		if (req->xattrs[i].value == NULL && req->xattrs[i].value_bytes > 0)
			return false;
	}
	for (uint32_t i = 0; i < req->change_cnt; i++) {
		if (req->changes[i].value == NULL && req->changes[i].value_bytes > 0)
			return false;
	}
	return true;
}

static bool makes_sense(const struct lapis_request *req)
{
	if (!has_data(req) && req->data_bytes > 0)
		return false;
	if (req->source != NULL && (req->op != LAPIS_PUT || req->data_bytes > 0))
		return false;
	if ((req->data == NULL && req->data_bytes > 0) || !values_make_sense(req))
		return false;
	if (req->op == LAPIS_SET && req->attrs == NULL)
		return false;
	if (req->op != LAPIS_GET)
		return true;
	bool has_buf = req->buf != NULL || req->length == 0;
	return req->sink != NULL || (has_buf && req->length <= req->buf_bytes);
}

/* A get into a buffer ends where the buffer does. */
static void limit_get(struct lapis_request *req)
{
	if (req->op == LAPIS_GET && req->sink == NULL && req->length == LAPIS_TO_END)
		req->length = req->buf_bytes;
}

/* --- Memory ----------------------------------------------------------------------------------- */

/* What is kept is for the thread that runs the handle: nobody else touches it. */
static struct lpi_op *take_spare(struct lapis *lapis)
{
	struct lpi_op *op = lapis->spare;
	if (op == NULL)
		return NULL;
	lp_san_unpoison(op, sizeof(*op));
	lapis->spare = op->next_spare;
	lapis->spare_cnt--;
	return op;
}

static bool keep_spare(struct lapis *lapis, struct lpi_op *op)
{
	if (!lpi_is_running(lapis) || lapis->spare_cnt == LPI_SPARE_MAX)
		return false;
	op->next_spare = lapis->spare;
	lapis->spare = op;
	lapis->spare_cnt++;
	lp_san_poison(op, sizeof(*op));
	return true;
}

void lpi_ops_free_spare(struct lapis *lapis)
{
	struct lpi_op *op;
	while ((op = take_spare(lapis)) != NULL)
		free(op);
}

struct lpi_op *lpi_op_alloc(struct lapis *lapis)
{
	struct lpi_op *op = lpi_is_running(lapis) ? take_spare(lapis) : NULL;
	if (op == NULL)
		op = malloc(sizeof(*op));
	if (op == NULL)
		return NULL;
	memset(op, 0, offsetof(struct lpi_op, text));
	op->text[0] = '\0';
	op->lapis = lapis;
	op->head = op->room;
	return op;
}

void lpi_op_free(struct lpi_op *op)
{
	if (op == NULL)
		return;
	lpi_upload_free(op->upload);
	free(op->own_data);
	free(op->value);
	if (op->head != op->room)
		free(op->head);
	if (!keep_spare(op->lapis, op))
		free(op);
}

void lpi_op_drop_value(struct lpi_op *op)
{
	free(op->value);
	op->value = NULL;
	op->value_bytes = 0;
	op->result.value = NULL;
	op->result.value_bytes = 0;
}

int lpi_op_head_resize(struct lpi_op *op, size_t bytes)
{
	bool is_in_room = op->head == op->room;
	if (is_in_room && bytes <= sizeof(op->room))
		return 0;
	uint8_t *head = realloc(is_in_room ? NULL : op->head, bytes);
	if (head == NULL)
		return -ENOMEM;
	if (is_in_room)
		memcpy(head, op->room, sizeof(op->room));
	op->head = head;
	return 0;
}

/* --- Making one ------------------------------------------------------------------------------- */

void lpi_op_make_crcs(struct lpi_op *op)
{
	uint32_t crcs[64];
	uint8_t *to = op->head + LP_WIRE_HEADER_SIZE + op->meta_bytes;
	const uint8_t *data = op->data;
	uint64_t offset = op->data_offset;
	uint32_t left = op->data_bytes;
	while (left > 0) {
		uint64_t end = lp_align_down(offset, LP_WIRE_BLOCK_BYTES) +
			       LP_ARRAY_SIZE(crcs) * LP_WIRE_BLOCK_BYTES;
		uint32_t len = (uint32_t)LP_MIN((uint64_t)left, end - offset);
		uint32_t cnt = lp_wire_piece_cnt(offset, len);
		lp_wire_crcs_make(data, offset, len, crcs);
		lp_wire_crcs_encode(crcs, cnt, to);
		to += (size_t)cnt * 4;
		data += len;
		offset += len;
		left -= len;
	}
	op->has_crcs = true;
}

/* It goes on where it was. But a name may lead to another object meanwhile: its version is another,
 * so a sink is told; what is in a buffer is read again from its beginning instead. */
void lpi_op_advance_get(struct lpi_op *op)
{
	if (!op->is_by_number && op->sink == NULL) {
		op->result.data_bytes = 0;
		op->has_version = false;
	}
	uint8_t *meta = op->head + LP_WIRE_HEADER_SIZE;
	uint64_t got = op->result.data_bytes;
	uint64_t length = op->length == LAPIS_TO_END ? op->length : op->length - got;
	lp_put_le64(meta + LP_WIRE_GET_OFFSET_OFF, op->offset + got);
	lp_put_le64(meta + LP_WIRE_GET_LENGTH_OFF, length);
	if (op->has_version)
		lp_put_le64(meta + LP_WIRE_GET_VERSION_NR_OFF, op->result.version);
}

/* Where the shard is remembered: the object itself, and the directory it is in. */
static void set_hashes(struct lpi_op *op, const struct encoder *enc)
{
	const char *path = enc->req->path;
	const char *slash = path == NULL ? NULL : memrchr(path, '/', enc->path_len);
	if (op->opcode == LAPIS_LIST || (enc->path_len == 0 && enc->req->ino == 0))
		return;
	op->exact_hash = lpi_route_hash(enc->req->ino, path, enc->path_len);
	if (enc->path_len > 0)
		op->dir_hash = ~lpi_route_hash(enc->req->ino, path,
					       slash == NULL ? 0 : (size_t)(slash - path));
}

static int encode_head(struct lpi_op *op, struct encoder *enc, size_t bound)
{
	const struct lapis_request *req = enc->req;
	size_t len = 0;
	op->crc_cnt = lp_wire_piece_cnt(op->data_offset, op->data_bytes);
	int err = lpi_op_head_resize(op, LP_WIRE_HEADER_SIZE + bound + (size_t)op->crc_cnt * 4);
	if (err < 0)
		return err;
	lp_writer_init(&enc->writer, op->head + LP_WIRE_HEADER_SIZE, bound);
	encode_ref(req->ino, enc->path_len, enc->ref);
	encode_ref(req->to_ino, enc->to_len, enc->to);
	encode(enc);
	if (!lp_writer_finish(&enc->writer, &len) || len > LP_WIRE_LONG_META_MAX)
		return -E2BIG;
	op->meta_bytes = (uint32_t)len;
	set_hashes(op, enc);
	return 0;
}

static void fill_in(struct lpi_op *op, const struct lapis_request *req)
{
	uint32_t ms = req->timeout_ms != 0 ? req->timeout_ms : op->lapis->options.timeout_ms;
	op->opcode = (uint16_t)req->op;
	op->answer = kinds[req->op].answer;
	op->is_safe = kinds[req->op].is_safe;
	op->timeout_ns = ms * LP_NS_PER_MS;
	op->wire_flags = req->flags & LAPIS_ORDERED ? LP_WIRE_FLAG_ORDERED : 0;
	op->offset = req->offset;
	op->length = req->length;
	op->is_by_number = req->ino != 0 && (req->path == NULL || req->path[0] == '\0');
	op->buf = req->buf;
	op->sink = req->sink;
	op->sink_arg = req->sink_arg;
	op->done = req->done;
	op->arg = req->arg;
	op->result = (struct lapis_result){.size = sizeof(op->result), .op = req->op};
	if (has_data(req) && req->data_bytes <= LP_WIRE_DATA_MAX) {
		bool at_offset = req->op != LAPIS_PUT && !(req->flags & LAPIS_APPEND);
		op->data = req->data;
		op->data_bytes = (uint32_t)req->data_bytes;
		op->data_offset = at_offset && req->data_bytes > 0 ? req->offset : 0;
	}
}

int lpi_op_new(struct lapis *lapis, const struct lapis_request *request, struct lpi_op **ret_op)
{
	struct lapis_request req = *request;
	limit_get(&req);
	struct encoder enc = {.req = &req,
			      .path_len = text_len(req.path, 0),
			      .to_len = text_len(req.to_path, 0),
			      .name_len = text_len(req.name, req.name_bytes),
			      .after_len = text_len(req.after, req.after_bytes)};
	if (!lpi_op_is_known(req.op) || !makes_sense(&req))
		return -EINVAL;
	if (!names_fit(&enc))
		return -ENAMETOOLONG;
	bool is_long = req.source != NULL || req.data_bytes > LP_WIRE_DATA_MAX;
	size_t bound = meta_bound(&enc);
	if (bound > LP_WIRE_LONG_META_MAX + LP_WIRE_SET_SIZE ||
	    req.value_bytes > LP_WIRE_LONG_META_MAX || (is_long && req.op != LAPIS_PUT))
		return -E2BIG;
	struct lpi_op *op = lpi_op_alloc(lapis);
	if (op == NULL)
		return -ENOMEM;
	fill_in(op, &req);
	int err = encode_head(op, &enc, bound);
	if (err == 0 && is_long)
		err = lpi_upload_new(op, &req);
	else if (err == 0 && op->data_bytes > 0 && lapis->options.crc == LAPIS_CRC_ALL)
		lpi_op_make_crcs(op);
	if (err < 0) {
		lpi_op_free(op);
		return err;
	}
	*ret_op = op;
	return 0;
}
