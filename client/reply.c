/* SPDX-License-Identifier: Apache-2.0 */
/* From the meta of a reply to a result. Lists are walked once here, so that whoever walks the
 * result later cannot meet what does not fit. */
#include <stdlib.h>
#include <string.h>

#include "client/op.h"

static void copy_attrs(const struct lp_wire_attrs *from, struct lapis_attrs *ret)
{
	*ret = (struct lapis_attrs){
		.ino = from->ino,
		.size_bytes = from->size_bytes,
		.blocks = from->blocks,
		.version = from->version_nr,
		.atime_ns = from->atime_ns,
		.mtime_ns = from->mtime_ns,
		.ctime_ns = from->ctime_ns,
		.btime_ns = from->btime_ns,
		.parent_ino = from->parent_ino,
		.entries_cnt = from->entries_cnt,
		.uid = from->uid,
		.gid = from->gid,
		.nlink = from->nlink,
		.flags = from->flags,
		.rdev = from->rdev,
		.mode = from->mode,
		.type = from->type,
	};
}

static bool read_attrs(struct lp_reader *reader, struct lapis_attrs *ret)
{
	struct lp_wire_attrs attrs;
	if (!lp_wire_part(reader, lp_wire_attrs, &attrs))
		return false;
	copy_attrs(&attrs, ret);
	return true;
}

static bool read_item(struct lp_reader *reader, struct lapis_item *ret)
{
	struct lp_wire_item item;
	if (!lp_wire_part(reader, lp_wire_item, &item))
		return false;
	*ret = (struct lapis_item){
		.ino = item.ino,
		.cookie = item.cookie,
		.name = lp_wire_bytes(reader, item.name_bytes),
		.name_bytes = item.name_bytes,
		.type = item.type,
		.has_attrs = item.has_attrs,
	};
	return item.has_attrs == 0 || read_attrs(reader, &ret->attrs);
}

static bool read_pair(struct lp_reader *reader, struct lapis_pair *ret)
{
	struct lp_wire_pair pair;
	if (!lp_wire_part(reader, lp_wire_pair, &pair))
		return false;
	*ret = (struct lapis_pair){.name_bytes = pair.name_bytes, .value_bytes = pair.value_bytes};
	ret->name = lp_wire_bytes(reader, pair.name_bytes);
	ret->value = lp_wire_bytes(reader, pair.value_bytes);
	return !lp_reader_failed(reader);
}

static int append_value(struct lpi_op *op, const void *bytes, size_t len)
{
	if (op->value_bytes + len > LPI_VALUE_MAX)
		return -EPROTO;
	uint8_t *value = realloc(op->value, op->value_bytes + len + 1);
	if (value == NULL)
		return -ENOMEM;
	if (len > 0)
		memcpy(value + op->value_bytes, bytes, len);
	op->value = value;
	op->value_bytes += len;
	value[op->value_bytes] = 0;
	op->result.value = value;
	op->result.value_bytes = op->value_bytes;
	return 0;
}

static int decode_listed(struct lpi_op *op, struct lp_reader *reader)
{
	struct lp_wire_listed listed;
	struct lapis_item item;
	struct lapis_pair pair;
	if (!lp_wire_part(reader, lp_wire_listed, &listed))
		return -EPROTO;
	struct lp_reader items = *reader;
	for (uint32_t i = 0; i < listed.item_cnt; i++) {
		op->last_pos = lp_reader_offset(reader) - lp_reader_offset(&items);
		bool fits = op->answer == LPI_ANSWER_ITEMS ? read_item(reader, &item)
							   : read_pair(reader, &pair);
		if (!fits)
			return -EPROTO;
	}
	/* More is promised behind the last one: there must be one. */
	if (lp_wire_end(reader) < 0 || listed.more > 1 ||
	    (listed.more == 1 && listed.item_cnt == 0))
		return -EPROTO;
	op->result.item_cnt = listed.item_cnt;
	op->result.more = listed.more;
	size_t len = lp_reader_remaining(&items);
	return append_value(op, lp_reader_bytes(&items, len), len);
}

static int decode_value(struct lpi_op *op, struct lp_reader *reader)
{
	struct lp_wire_value value;
	if (!lp_wire_part(reader, lp_wire_value, &value))
		return -EPROTO;
	const char *bytes = lp_wire_bytes(reader, value.value_bytes);
	if (lp_wire_end(reader) < 0)
		return -EPROTO;
	return append_value(op, bytes, value.value_bytes);
}

static bool decode_fixed(struct lpi_op *op, struct lp_reader *reader)
{
	struct lp_wire_written written;
	struct lp_wire_found found;
	struct lp_wire_got got;
	struct lapis_result *result = &op->result;
	if (op->answer == LPI_ANSWER_ATTRS) {
		if (!read_attrs(reader, &result->attrs))
			return false;
		result->version = result->attrs.version;
	} else if (op->answer == LPI_ANSWER_WRITTEN) {
		if (!lp_wire_part(reader, lp_wire_written, &written))
			return false;
		result->offset = written.offset;
		result->version = written.version_nr;
		result->failed_idx = written.failed_idx;
		result->write_path = written.write_path;
	} else if (op->answer == LPI_ANSWER_FOUND) {
		if (!lp_wire_part(reader, lp_wire_found, &found))
			return false;
		result->offset = found.offset;
	} else if (op->answer == LPI_ANSWER_GOT) {
		if (!lp_wire_part(reader, lp_wire_got, &got))
			return false;
		result->object_bytes = got.size_bytes;
		result->version = got.version_nr;
	}
	return lp_wire_end(reader) == 0;
}

int lpi_reply_decode(struct lpi_op *op, const uint8_t *meta, uint32_t len)
{
	struct lp_reader reader;
	lp_reader_init(&reader, meta, len);
	switch (op->answer) {
	case LPI_ANSWER_ITEMS:
	case LPI_ANSWER_PAIRS:
		return decode_listed(op, &reader);
	case LPI_ANSWER_VALUE:
	case LPI_ANSWER_TEXT:
		return decode_value(op, &reader);
	case LPI_ANSWER_UNKNOWN:
	case LPI_ANSWER_NONE:
	case LPI_ANSWER_ATTRS:
	case LPI_ANSWER_GOT:
	case LPI_ANSWER_WRITTEN:
	case LPI_ANSWER_FOUND:
		break;
	}
	return decode_fixed(op, &reader) ? 0 : -EPROTO;
}

int lapis_next_item(const struct lapis_result *result, size_t *pos, struct lapis_item *ret_item)
{
	struct lp_reader reader;
	struct lapis_item item;
	lp_reader_init(&reader, result->value, result->value_bytes);
	(void)lp_reader_bytes(&reader, *pos);
	if (lp_reader_remaining(&reader) == 0 || !read_item(&reader, &item))
		return 0;
	*pos = lp_reader_offset(&reader);
	*ret_item = item;
	return 1;
}

int lapis_next_pair(const struct lapis_result *result, size_t *pos, struct lapis_pair *ret_pair)
{
	struct lp_reader reader;
	struct lapis_pair pair;
	lp_reader_init(&reader, result->value, result->value_bytes);
	(void)lp_reader_bytes(&reader, *pos);
	if (lp_reader_remaining(&reader) == 0 || !read_pair(&reader, &pair))
		return 0;
	*pos = lp_reader_offset(&reader);
	*ret_pair = pair;
	return 1;
}
