/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of inodes are the daemon's; of the model's root it is the directory's. A key is the
 * directory's, and then the model's. */
#include "tests/whole/wire.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "wire/wire.h"

struct call {
	const struct lpi_whole_wire *wire;
	const struct lpi_whole *whole;
	const struct lpi_whole_op *op;
	struct lpi_whole_answer *answer;
	struct lapis_request request;
	struct lapis_result result;
};

struct key {
	char bytes[LPI_WHOLE_PATH_BYTES + 64];
};

struct name {
	char bytes[LPI_WHOLE_NAME_MAX];
};

static bool has_flag(const struct call *call, uint32_t flag)
{
	return (call->op->flags & flag) != 0;
}

static uint64_t ino_of(const struct call *call, uint32_t slot)
{
	return slot == LPI_WHOLE_ROOT ? call->wire->root_ino : lpi_whole_ino(call->whole, slot);
}

static const char *name_of(uint32_t idx, struct name *ret)
{
	struct lpi_whole_bytes bytes;
	lpi_whole_name(idx, &bytes);
	memcpy(ret->bytes, bytes.bytes, bytes.len);
	ret->bytes[bytes.len] = '\0';
	return ret->bytes;
}

static const char *key_of(const struct call *call, const uint32_t *names, uint32_t depth,
			  struct key *ret)
{
	struct lpi_whole_path path;
	lpi_whole_path(names, depth, &path);
	(void)snprintf(ret->bytes, sizeof(ret->bytes), "%s%.*s", call->wire->root, (int)path.len,
		       path.bytes);
	return ret->bytes;
}

/* --- Requests --------------------------------------------------------------------------------- */

static void begin(struct call *call, uint32_t op)
{
	call->request = (struct lapis_request){
		.size = sizeof(call->request),
		.op = op,
		.flags = (has_flag(call, LPI_WHOLE_ORDERED) ? LAPIS_ORDERED : 0U) | LAPIS_OWNER |
			 LAPIS_MODE,
		.mode = (uint16_t)call->op->mode,
		.uid = lpi_whole_owner(call->op->seed),
		.gid = lpi_whole_owner(call->op->seed / 7)};
}

/* The result is looked at and given back by the caller. */
static int ask(struct call *call)
{
	call->result = (struct lapis_result){.size = sizeof(call->result)};
	int r = lapis_call(call->wire->lapis, &call->request, &call->result);
	return r == -ESTALE ? -ENOENT : r;
}

static int ask_only(struct call *call)
{
	int r = ask(call);
	lapis_result_fini(&call->result);
	return r;
}

/* Of what makes an inode. */
static int ask_ino(struct call *call)
{
	int r = ask(call);
	call->answer->ino = r < 0 ? 0 : call->result.attrs.ino;
	lapis_result_fini(&call->result);
	return r;
}

static uint64_t version_at(struct call *call, const char *key)
{
	uint64_t version = 1;
	if (call->op->condition != LAPIS_IF_VERSION)
		return 0;
	begin(call, LAPIS_STAT);
	call->request.flags = 0;
	call->request.path = key;
	if (ask(call) >= 0)
		version = call->result.attrs.version;
	lapis_result_fini(&call->result);
	return version + (has_flag(call, LPI_WHOLE_WRONG) ? 1000 : 0);
}

/* --- By number and name ----------------------------------------------------------------------- */

#define ITEM_BYTES 28u

/* Xattrs that come with an object. */
struct items {
	struct lapis_pair pairs[LPI_WHOLE_XATTR_NAMES];
	struct lpi_whole_bytes names[LPI_WHOLE_XATTR_NAMES];
	uint8_t values[LPI_WHOLE_XATTR_NAMES][ITEM_BYTES];
};

static void set_items(struct call *call, struct items *items)
{
	for (uint32_t i = 0; i < call->op->items; i++) {
		lpi_whole_xattr_name(LPI_WHOLE_XATTR_ACL + i, &items->names[i]);
		lpi_whole_fill_xattr(LPI_WHOLE_XATTR_ACL + i, call->op->seed + i, items->values[i],
				     ITEM_BYTES);
		items->pairs[i] = (struct lapis_pair){.name = items->names[i].bytes,
						      .name_bytes = items->names[i].len,
						      .value = items->values[i],
						      .value_bytes = ITEM_BYTES};
	}
	call->request.xattrs = items->pairs;
	call->request.xattr_cnt = call->op->items;
}

static int do_make(struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	uint8_t target[LP_INODE_TARGET_MAX];
	struct name name;
	bool is_device = op->type == LP_INODE_TYPE_CHARDEV || op->type == LP_INODE_TYPE_BLOCKDEV;
	begin(call, LAPIS_MAKE);
	call->request.ino = ino_of(call, op->dir);
	call->request.path = name_of(op->name, &name);
	call->request.type = (uint8_t)op->type;
	call->request.rdev = is_device ? op->seed : 0;
	call->request.flags |= has_flag(call, LPI_WHOLE_SPREAD) ? LAPIS_SPREAD : 0U;
	call->request.flags |= has_flag(call, LPI_WHOLE_OR_OPEN) ? LAPIS_OR_OPEN : 0U;
	if (op->type == LP_INODE_TYPE_SYMLINK) {
		lpi_whole_target(op->seed, target);
		call->request.value = target;
		call->request.value_bytes = lpi_whole_target_len(op->seed);
	}
	return ask_ino(call);
}

static int do_link(struct call *call)
{
	struct name name;
	begin(call, LAPIS_LINK);
	call->request.ino = ino_of(call, call->op->node);
	call->request.to_ino = ino_of(call, call->op->dir);
	call->request.to_path = name_of(call->op->name, &name);
	return ask_only(call);
}

static int do_remove(struct call *call)
{
	struct name name;
	begin(call, LAPIS_REMOVE);
	call->request.ino = ino_of(call, call->op->dir);
	call->request.path = name_of(call->op->name, &name);
	call->request.flags |= has_flag(call, LPI_WHOLE_IS_DIR) ? LAPIS_IS_DIR : 0U;
	return ask_only(call);
}

static int do_rename(struct call *call)
{
	struct name name;
	struct name to_name;
	begin(call, LAPIS_RENAME);
	call->request.ino = ino_of(call, call->op->dir);
	call->request.path = name_of(call->op->name, &name);
	call->request.to_ino = ino_of(call, call->op->to_dir);
	call->request.to_path = name_of(call->op->to_name, &to_name);
	call->request.condition =
		(has_flag(call, LPI_WHOLE_NOREPLACE) ? LAPIS_RENAME_NOREPLACE : 0U) |
		(has_flag(call, LPI_WHOLE_EXCHANGE) ? LAPIS_RENAME_EXCHANGE : 0U);
	return ask_only(call);
}

static int do_set(struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	const struct lapis_attrs attrs = {.mode = (uint16_t)op->mode,
					  .uid = lpi_whole_owner(op->seed),
					  .gid = lpi_whole_owner(op->seed / 7),
					  .mtime_ns = lpi_whole_time(op->seed)};
	begin(call, LAPIS_SET);
	call->request.ino = ino_of(call, op->node);
	call->request.attrs = &attrs;
	call->request.mask = ((op->mask & LP_ATTR_MODE) != 0 ? LAPIS_SET_MODE : 0U) |
			     ((op->mask & LP_ATTR_UID) != 0 ? LAPIS_SET_UID | LAPIS_SET_GID : 0U) |
			     ((op->mask & LP_ATTR_MTIME) != 0 ? LAPIS_SET_MTIME : 0U);
	return ask_only(call);
}

/* --- What is in an inode ---------------------------------------------------------------------- */

static int do_write(struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	bool is_append = op->kind == LPI_WHOLE_APPEND;
	uint8_t *bytes = malloc(op->length + 1);
	LP_ASSERT(bytes != NULL);
	lpi_whole_fill(op->seed, bytes, op->length);
	begin(call, LAPIS_WRITE);
	call->request.ino = ino_of(call, op->node);
	call->request.data = bytes;
	call->request.data_bytes = op->length;
	call->request.offset = is_append ? 0 : op->offset;
	call->request.flags |= is_append ? LAPIS_APPEND : 0U;
	call->request.write_path = (uint8_t)op->path;
	int r = ask(call);
	call->answer->cnt = r < 0 || !is_append ? 0 : call->result.offset;
	lapis_result_fini(&call->result);
	free(bytes);
	return r;
}

static int do_space(struct call *call)
{
	static const uint32_t ops[LPI_WHOLE_KIND_CNT] = {
		[LPI_WHOLE_TRUNCATE] = LAPIS_TRUNCATE,
		[LPI_WHOLE_PUNCH] = LAPIS_PUNCH,
		[LPI_WHOLE_PREALLOC] = LAPIS_PREALLOC,
		[LPI_WHOLE_CLONE] = LAPIS_CLONE,
	};
	const struct lpi_whole_op *op = call->op;
	begin(call, ops[op->kind]);
	call->request.ino = ino_of(call, op->node);
	call->request.offset = op->offset;
	call->request.length = op->kind == LPI_WHOLE_TRUNCATE ? 0 : op->length;
	if (op->kind == LPI_WHOLE_CLONE) {
		call->request.to_ino = ino_of(call, op->to_dir);
		call->request.src_offset = op->src_offset;
	}
	return ask_only(call);
}

static int do_data(struct call *call)
{
	const struct lpi_whole_node *node = lpi_whole_find(call->whole, call->op->node);
	if (node == NULL || call->op->condition != 0)
		return LPI_WHOLE_SKIPPED;
	bool is_write = call->op->kind == LPI_WHOLE_WRITE || call->op->kind == LPI_WHOLE_APPEND;
	return is_write ? do_write(call) : do_space(call);
}

static int do_item(struct call *call)
{
	static const uint32_t ops[LPI_WHOLE_KIND_CNT] = {
		[LPI_WHOLE_XATTR_SET] = LAPIS_XATTR_SET,
		[LPI_WHOLE_XATTR_REMOVE] = LAPIS_XATTR_REMOVE,
		[LPI_WHOLE_OMAP_SET] = LAPIS_OMAP_SET,
		[LPI_WHOLE_OMAP_REMOVE] = LAPIS_OMAP_REMOVE,
	};
	const struct lpi_whole_op *op = call->op;
	bool is_xattr = op->kind == LPI_WHOLE_XATTR_SET || op->kind == LPI_WHOLE_XATTR_REMOVE;
	bool sets = op->kind == LPI_WHOLE_XATTR_SET || op->kind == LPI_WHOLE_OMAP_SET;
	struct lpi_whole_bytes name;
	if (lpi_whole_find(call->whole, op->node) == NULL || op->condition != 0)
		return LPI_WHOLE_SKIPPED;
	if (is_xattr)
		lpi_whole_xattr_name(op->name, &name);
	else
		lpi_whole_omap_name(op->name, &name);
	uint8_t *value = malloc(op->length + 1);
	LP_ASSERT(value != NULL);
	if (is_xattr)
		lpi_whole_fill_xattr(op->name, op->seed, value, op->length);
	else
		lpi_whole_fill(op->seed, value, op->length);
	begin(call, ops[op->kind]);
	call->request.ino = ino_of(call, op->node);
	call->request.name = name.bytes;
	call->request.name_bytes = name.len;
	call->request.value = sets ? value : NULL;
	call->request.value_bytes = sets ? op->length : 0;
	int r = ask_only(call);
	free(value);
	return r;
}

/* --- By path ---------------------------------------------------------------------------------- */

static int do_put(struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	struct items items;
	struct key key;
	const char *path = key_of(call, op->names, op->depth, &key);
	uint64_t version = version_at(call, path);
	uint8_t *bytes = malloc(op->length + 1);
	LP_ASSERT(bytes != NULL);
	lpi_whole_fill(op->seed, bytes, op->length);
	begin(call, LAPIS_PUT);
	set_items(call, &items);
	call->request.path = path;
	call->request.condition = op->condition;
	call->request.version = version;
	call->request.mtime_ns = lpi_whole_time(op->seed);
	call->request.data = bytes;
	call->request.data_bytes = op->length;
	call->request.write_path = (uint8_t)op->path;
	int r = ask_ino(call);
	free(bytes);
	return r;
}

static int do_delete(struct call *call)
{
	struct key key;
	const char *path = key_of(call, call->op->names, call->op->depth, &key);
	uint64_t version = version_at(call, path);
	begin(call, LAPIS_DELETE);
	call->request.path = path;
	call->request.condition = call->op->condition;
	call->request.version = version;
	call->request.flags |= has_flag(call, LPI_WHOLE_IS_DIR) ? LAPIS_OR_DIR : 0U;
	return ask_only(call);
}

static int do_copy(struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	struct key key;
	struct key to;
	const char *to_path = key_of(call, op->to_names, op->to_depth, &to);
	uint64_t version = version_at(call, to_path);
	begin(call, op->kind == LPI_WHOLE_COPY ? LAPIS_COPY : LAPIS_MOVE);
	call->request.path = key_of(call, op->names, op->depth, &key);
	call->request.to_path = to_path;
	call->request.condition = op->condition;
	call->request.version = version;
	int r = ask_ino(call);
	if (op->kind == LPI_WHOLE_MOVE)
		call->answer->ino = 0;
	return r;
}

static int do_sync(struct call *call)
{
	begin(call, LAPIS_SYNC);
	call->request.flags = 0;
	return ask_only(call);
}

/* --- What only asks --------------------------------------------------------------------------- */

static int ask_attrs(struct call *call)
{
	int r = ask(call);
	if (r >= 0) {
		const struct lapis_attrs *found = &call->result.attrs;
		const struct lp_attrs attrs = {.type = found->type,
					       .nlink = found->nlink,
					       .mode = found->mode,
					       .uid = found->uid,
					       .gid = found->gid,
					       .rdev = found->rdev,
					       .flags = found->flags,
					       .mtime_ns = found->mtime_ns,
					       .size_bytes = found->size_bytes};
		call->answer->ino = found->ino;
		call->answer->more = found->nlink;
		call->answer->hash = lpi_whole_hash_attrs(&attrs, found->ino, found->entries_cnt);
	}
	lapis_result_fini(&call->result);
	return r;
}

static int do_stat(struct call *call)
{
	if (call->op->node == LPI_WHOLE_ROOT)
		return LPI_WHOLE_SKIPPED;
	begin(call, LAPIS_STAT);
	call->request.flags = 0;
	call->request.ino = ino_of(call, call->op->node);
	return ask_attrs(call);
}

static int do_lookup(struct call *call)
{
	struct name name;
	begin(call, LAPIS_STAT);
	call->request.flags = 0;
	call->request.ino = ino_of(call, call->op->dir);
	call->request.path = name_of(call->op->name, &name);
	return ask_attrs(call);
}

static int do_walk(struct call *call)
{
	struct key key;
	if (call->op->depth == 0)
		return LPI_WHOLE_SKIPPED;
	begin(call, LAPIS_STAT);
	call->request.flags = 0;
	call->request.path = key_of(call, call->op->names, call->op->depth, &key);
	return ask_attrs(call);
}

static int do_read(struct call *call)
{
	const struct lpi_whole_op *op = call->op;
	uint8_t *bytes = malloc(op->length + 1);
	LP_ASSERT(bytes != NULL);
	begin(call, LAPIS_GET);
	call->request.flags = 0;
	call->request.ino = ino_of(call, op->node);
	call->request.offset = op->offset;
	call->request.length = op->length;
	call->request.buf = bytes;
	call->request.buf_bytes = op->length;
	int r = ask(call);
	if (r >= 0) {
		call->answer->cnt = call->result.data_bytes;
		call->answer->hash = lp_hash_u64(bytes, call->result.data_bytes, 0);
	}
	lapis_result_fini(&call->result);
	free(bytes);
	return r;
}

static int do_seek(struct call *call)
{
	begin(call, LAPIS_SEEK);
	call->request.flags = has_flag(call, LPI_WHOLE_HOLE) ? LAPIS_HOLE : 0U;
	call->request.ino = ino_of(call, call->op->node);
	call->request.offset = call->op->offset;
	int r = ask(call);
	call->answer->cnt = r < 0 ? 0 : call->result.offset;
	lapis_result_fini(&call->result);
	return r;
}

static void add_pairs(struct call *call, char *last, size_t *ret_last_len)
{
	struct lapis_pair pair;
	size_t pos = 0;
	while (lapis_next_pair(&call->result, &pos, &pair) > 0) {
		call->answer->cnt++;
		call->answer->hash +=
			lpi_whole_hash_item(has_flag(call, LPI_WHOLE_OMAP),
					    (struct lp_bytes){pair.name, pair.name_bytes},
					    (struct lp_bytes){pair.value, pair.value_bytes});
		memcpy(last, pair.name, pair.name_bytes);
		*ret_last_len = pair.name_bytes;
	}
}

static int do_xattrs(struct call *call)
{
	char last[LPI_WHOLE_NAME_MAX];
	size_t last_len = 0;
	bool more = true;
	while (more) {
		begin(call, has_flag(call, LPI_WHOLE_OMAP) ? LAPIS_OMAP_LIST : LAPIS_XATTR_LIST);
		call->request.flags = LAPIS_VALUES;
		call->request.ino = ino_of(call, call->op->node);
		call->request.after = last_len > 0 ? last : NULL;
		call->request.after_bytes = last_len;
		int r = ask(call);
		if (r >= 0)
			add_pairs(call, last, &last_len);
		more = r >= 0 && call->result.more != 0;
		lapis_result_fini(&call->result);
		if (r < 0)
			return r;
	}
	return 0;
}

static int do_readdir(struct call *call)
{
	uint64_t cookie = 0;
	bool more = true;
	while (more) {
		struct lapis_item item;
		size_t pos = 0;
		begin(call, LAPIS_READDIR);
		call->request.flags = 0;
		call->request.ino = ino_of(call, call->op->dir);
		call->request.cookie = cookie;
		call->request.items_max = 7;
		int r = ask(call);
		while (r >= 0 && lapis_next_item(&call->result, &pos, &item) > 0) {
			const struct lp_bytes name = {item.name, (uint32_t)item.name_bytes};
			call->answer->cnt++;
			call->answer->hash += lpi_whole_hash_name(name, item.ino, item.type);
			cookie = item.cookie;
		}
		more = r >= 0 && call->result.more != 0;
		lapis_result_fini(&call->result);
		if (r < 0)
			return r;
	}
	return 0;
}

static int do_list(struct call *call)
{
	struct lpi_whole_path prefix;
	struct lpi_whole_path after;
	struct lapis_item item;
	struct key prefix_key;
	struct key after_key;
	size_t pos = 0;
	size_t skip = strlen(call->wire->root);
	lpi_whole_list_bounds(call->op, &prefix, &after);
	(void)snprintf(prefix_key.bytes, sizeof(prefix_key.bytes), "%s%.*s", call->wire->root,
		       (int)prefix.len, prefix.bytes);
	(void)snprintf(after_key.bytes, sizeof(after_key.bytes), "%s%.*s", call->wire->root,
		       (int)after.len, after.bytes);
	begin(call, LAPIS_LIST);
	call->request.flags = has_flag(call, LPI_WHOLE_DELIMIT) ? LAPIS_DELIMIT : 0U;
	call->request.name = prefix_key.bytes;
	call->request.after = after.len > 0 ? after_key.bytes : NULL;
	call->request.items_max = call->op->items;
	int r = ask(call);
	while (r >= 0 && lapis_next_item(&call->result, &pos, &item) > 0) {
		const struct lp_bytes name = {item.name + skip, (uint32_t)(item.name_bytes - skip)};
		LP_ASSERT(item.name_bytes > skip);
		call->answer->cnt++;
		call->answer->hash = lpi_whole_hash_key(call->answer->hash, name);
	}
	call->answer->more = r < 0 ? 0 : call->result.more;
	lapis_result_fini(&call->result);
	return r;
}

/* --- All -------------------------------------------------------------------------------------- */

static void wire_apply(struct lpi_whole_door *door, const struct lpi_whole *whole,
		       const struct lpi_whole_op *op, struct lpi_whole_answer *ret)
{
	static int (*const calls[LPI_WHOLE_KIND_CNT])(struct call * call) = {
		[LPI_WHOLE_MAKE] = do_make,         [LPI_WHOLE_LINK] = do_link,
		[LPI_WHOLE_REMOVE] = do_remove,     [LPI_WHOLE_RENAME] = do_rename,
		[LPI_WHOLE_SET] = do_set,           [LPI_WHOLE_WRITE] = do_data,
		[LPI_WHOLE_APPEND] = do_data,       [LPI_WHOLE_TRUNCATE] = do_data,
		[LPI_WHOLE_PUNCH] = do_data,        [LPI_WHOLE_PREALLOC] = do_data,
		[LPI_WHOLE_CLONE] = do_data,        [LPI_WHOLE_XATTR_SET] = do_item,
		[LPI_WHOLE_XATTR_REMOVE] = do_item, [LPI_WHOLE_OMAP_SET] = do_item,
		[LPI_WHOLE_OMAP_REMOVE] = do_item,  [LPI_WHOLE_PUT] = do_put,
		[LPI_WHOLE_DELETE] = do_delete,     [LPI_WHOLE_COPY] = do_copy,
		[LPI_WHOLE_MOVE] = do_copy,         [LPI_WHOLE_SYNC] = do_sync,
		[LPI_WHOLE_STAT] = do_stat,         [LPI_WHOLE_LOOKUP] = do_lookup,
		[LPI_WHOLE_WALK] = do_walk,         [LPI_WHOLE_READ] = do_read,
		[LPI_WHOLE_SEEK] = do_seek,         [LPI_WHOLE_XATTRS] = do_xattrs,
		[LPI_WHOLE_READDIR] = do_readdir,   [LPI_WHOLE_LIST] = do_list,
	};
	struct call call = {.wire = LP_CONTAINER_OF(door, struct lpi_whole_wire, door),
			    .whole = whole,
			    .op = op,
			    .answer = ret};
	*ret = (struct lpi_whole_answer){.result = LPI_WHOLE_SKIPPED};
	if (calls[op->kind] != NULL)
		ret->result = calls[op->kind](&call);
}

int lpi_whole_wire_init(struct lpi_whole_wire *wire, struct lapis *lapis, const char *root)
{
	*wire = (struct lpi_whole_wire){.door = {wire_apply}, .lapis = lapis};
	const struct lapis_request request = {.size = sizeof(request),
					      .op = LAPIS_MAKE,
					      .path = root,
					      .type = LAPIS_DIR,
					      .mode = 0755,
					      .flags = LAPIS_MODE};
	struct lapis_result result = {.size = sizeof(result)};
	int r = lapis_call(lapis, &request, &result);
	wire->root_ino = result.attrs.ino;
	lapis_result_fini(&result);
	(void)snprintf(wire->root, sizeof(wire->root), "%s/", root);
	return r;
}

void lpi_whole_wire_fit(struct lpi_whole_op *op)
{
	op->flags &= ~(LPI_WHOLE_UNNAMED | LPI_WHOLE_AND_OPEN);
	if (op->kind == LPI_WHOLE_MAKE)
		op->items = 0;
	if (op->kind == LPI_WHOLE_XATTR_SET || op->kind == LPI_WHOLE_OMAP_SET)
		op->length = LP_MIN(op->length, LP_WIRE_VALUE_MAX);
}
