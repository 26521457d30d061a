/* SPDX-License-Identifier: Apache-2.0 */
/* The door that has namespace and stores in its own process, on a simulated device; and all that is
 * there, as a text. Only *_test.c files and their headers include this.
 */
#ifndef LP_TESTS_WHOLE_SIM_TEST_H
#define LP_TESTS_WHOLE_SIM_TEST_H

#include "base/hash.h"
#include "namespace/shard/ns_sim_test.h"
#include "tests/whole/model.h"

struct lpi_whole_sim {
	struct lpi_whole_door door;
	struct lpi_ns_sim *sim;
	/* The one under way. */
	const struct lpi_whole *whole;
	const struct lpi_whole_op *op;
	struct lpi_whole_answer *answer;
	uint32_t home;
	struct lpi_ns_sim_asked asked;
};

/* --- One operation ---------------------------------------------------------------------------- */

static inline struct lp_ns_op *lpi_ws_op(struct lpi_whole_sim *ws, enum lp_ns_opcode opcode)
{
	bool is_ordered = (ws->op->flags & LPI_WHOLE_ORDERED) != 0;
	ws->asked = (struct lpi_ns_sim_asked){
		.op = {.opcode = opcode,
		       .complete = lpi_ns_sim_answered,
		       .ack = is_ordered ? LP_ACK_ORDERED : LP_ACK_DURABLE,
		       .who = {.uid = lpi_whole_owner(ws->op->seed),
			       .gid = lpi_whole_owner(ws->op->seed / 7)}}};
	return &ws->asked.op;
}

/* A number that was given and is not any more is the same as one that leads nowhere. */
static inline int lpi_ws_do(struct lpi_whole_sim *ws)
{
	lp_ns_submit(ws->sim->ns[ws->home], &ws->asked.op);
	for (uint32_t i = 0; !ws->asked.is_done; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(ws->sim);
	}
	int r = ws->asked.op.result;
	return r == -ESTALE ? -ENOENT : r;
}

static inline struct lp_ino lpi_ws_ino(const struct lpi_whole_sim *ws, uint32_t slot)
{
	return (struct lp_ino){lpi_whole_ino(ws->whole, slot)};
}

static inline struct lp_bytes lpi_ws_name(uint32_t idx, struct lpi_whole_bytes *bytes)
{
	lpi_whole_name(idx, bytes);
	return (struct lp_bytes){bytes->bytes, bytes->len};
}

static inline struct lp_bytes lpi_ws_path(const uint32_t *names, uint32_t depth,
					  struct lpi_whole_path *path)
{
	lpi_whole_path(names, depth, path);
	return (struct lp_bytes){path->bytes, path->len};
}

static inline uint64_t lpi_ws_version(const struct lpi_whole_sim *ws, int result,
				      const struct lp_attrs *attrs)
{
	bool is_wrong = (ws->op->flags & LPI_WHOLE_WRONG) != 0;
	return (result < 0 ? 1 : attrs->version_nr) + (is_wrong ? 1000 : 0);
}

static inline uint64_t lpi_ws_version_at(struct lpi_whole_sim *ws, const uint32_t *names,
					 uint32_t depth)
{
	struct lpi_whole_path path;
	if (ws->op->condition != LP_NS_IF_VERSION)
		return 0;
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_WALK);
	op->walk.path = lpi_ws_path(names, depth, &path);
	int r = lpi_ws_do(ws);
	return lpi_ws_version(ws, r, &op->walk.found.attrs);
}

/* Xattrs that come with an object. */
struct lpi_ws_xattrs {
	struct lp_ns_named_value items[LPI_WHOLE_XATTR_NAMES];
	struct lpi_whole_bytes names[LPI_WHOLE_XATTR_NAMES];
	uint8_t values[LPI_WHOLE_XATTR_NAMES][28];
};

static inline void lpi_ws_xattrs_fill(const struct lpi_whole_op *op, struct lpi_ws_xattrs *ret)
{
	assert_true(op->items <= LPI_WHOLE_XATTR_NAMES - LPI_WHOLE_XATTR_ACL);
	for (uint32_t i = 0; i < op->items; i++) {
		lpi_whole_xattr_name(LPI_WHOLE_XATTR_ACL + i, &ret->names[i]);
		lpi_whole_fill_xattr(LPI_WHOLE_XATTR_ACL + i, op->seed + i, ret->values[i],
				     sizeof(ret->values[i]));
		ret->items[i] =
			(struct lp_ns_named_value){{ret->names[i].bytes, ret->names[i].len},
						   {ret->values[i], sizeof(ret->values[i])}};
	}
}

/* --- By number and name ----------------------------------------------------------------------- */

static inline int lpi_ws_make(struct lpi_whole_sim *ws)
{
	const struct lpi_whole_op *what = ws->op;
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_MAKE);
	struct lpi_ws_xattrs xattrs;
	struct lpi_whole_bytes name;
	uint8_t target[LP_INODE_TARGET_MAX];
	bool is_device =
		what->type == LP_INODE_TYPE_CHARDEV || what->type == LP_INODE_TYPE_BLOCKDEV;
	lpi_ws_xattrs_fill(what, &xattrs);
	lpi_whole_target(what->seed, target);
	op->make.dir = lpi_ws_ino(ws, what->dir);
	op->make.name = lpi_ws_name(what->name, &name);
	op->make.target = (struct lp_bytes){target, lpi_whole_target_len(what->seed)};
	op->make.rdev = is_device ? what->seed : 0;
	op->make.mode = (uint16_t)what->mode;
	op->make.type = (uint8_t)what->type;
	op->make.spread = (what->flags & LPI_WHOLE_SPREAD) != 0;
	op->make.open = (what->flags & LPI_WHOLE_AND_OPEN) != 0;
	op->make.or_open = (what->flags & LPI_WHOLE_OR_OPEN) != 0;
	op->make.unnamed = (what->flags & LPI_WHOLE_UNNAMED) != 0;
	op->make.xattrs = xattrs.items;
	op->make.xattr_cnt = what->items;
	int r = lpi_ws_do(ws);
	ws->answer->ino = r < 0 ? 0 : op->make.found.ino.nr;
	op->make.xattrs = NULL; /* they end here */
	return r;
}

static inline int lpi_ws_link(struct lpi_whole_sim *ws)
{
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_LINK);
	struct lpi_whole_bytes name;
	op->link.ino = lpi_ws_ino(ws, ws->op->node);
	op->link.dir = lpi_ws_ino(ws, ws->op->dir);
	op->link.name = lpi_ws_name(ws->op->name, &name);
	return lpi_ws_do(ws);
}

static inline int lpi_ws_remove(struct lpi_whole_sim *ws)
{
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_REMOVE);
	struct lpi_whole_bytes name;
	op->remove.dir = lpi_ws_ino(ws, ws->op->dir);
	op->remove.name = lpi_ws_name(ws->op->name, &name);
	op->remove.is_dir = (ws->op->flags & LPI_WHOLE_IS_DIR) != 0;
	return lpi_ws_do(ws);
}

static inline int lpi_ws_rename(struct lpi_whole_sim *ws)
{
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_RENAME);
	struct lpi_whole_bytes name;
	struct lpi_whole_bytes to_name;
	op->rename.dir = lpi_ws_ino(ws, ws->op->dir);
	op->rename.name = lpi_ws_name(ws->op->name, &name);
	op->rename.to_dir = lpi_ws_ino(ws, ws->op->to_dir);
	op->rename.to_name = lpi_ws_name(ws->op->to_name, &to_name);
	if ((ws->op->flags & LPI_WHOLE_NOREPLACE) != 0)
		op->rename.flags = LP_NS_RENAME_NOREPLACE;
	if ((ws->op->flags & LPI_WHOLE_EXCHANGE) != 0)
		op->rename.flags = LP_NS_RENAME_EXCHANGE;
	return lpi_ws_do(ws);
}

static inline int lpi_ws_open(struct lpi_whole_sim *ws)
{
	bool is_open = ws->op->kind == LPI_WHOLE_OPEN;
	struct lp_ns_op *op = lpi_ws_op(ws, is_open ? LP_NS_OPEN : LP_NS_CLOSE);
	op->open.ino = lpi_ws_ino(ws, ws->op->node);
	op->open.count = 1;
	return lpi_ws_do(ws);
}

static inline int lpi_ws_set(struct lpi_whole_sim *ws)
{
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_SET);
	op->set.ino = lpi_ws_ino(ws, ws->op->node);
	op->set.mask = ws->op->mask;
	op->set.attrs = (struct lp_attrs){.mode = (uint16_t)ws->op->mode,
					  .uid = lpi_whole_owner(ws->op->seed),
					  .gid = lpi_whole_owner(ws->op->seed / 7),
					  .mtime_ns = lpi_whole_time(ws->op->seed)};
	return lpi_ws_do(ws);
}

/* --- What is in an inode ---------------------------------------------------------------------- */

/* A transaction about one inode: the guard, if there is to be one, and what else `change` says. */
static inline int lpi_ws_txn(struct lpi_whole_sim *ws, const struct lp_change *change,
			     bool sets_time)
{
	const struct lp_attrs attrs = {.mtime_ns = lpi_whole_time(ws->op->seed)};
	struct lp_ino ino = lpi_ws_ino(ws, ws->op->node);
	struct lp_change changes[3];
	uint32_t cnt = 0;
	if (ws->op->condition != 0) {
		struct lp_ns_op *stat = lpi_ws_op(ws, LP_NS_STAT);
		stat->stat.ino = ino;
		int r = lpi_ws_do(ws);
		changes[cnt] = (struct lp_change){.type = LP_GUARD_INODE, .ino = ino};
		changes[cnt++].guard.version_nr = lpi_ws_version(ws, r, &stat->stat.found.attrs);
	}
	changes[cnt++] = *change;
	if (sets_time && attrs.mtime_ns != 0)
		changes[cnt++] =
			(struct lp_change){.type = LP_CHANGE_SET,
					   .ino = ino,
					   .inode = {.attrs = &attrs, .mask = LP_ATTR_MTIME}};
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_STORE);
	op->store.ino = ino;
	op->store.op = lpi_txn_op(changes, cnt);
	op->store.op.txn.ack = op->ack;
	int r = lpi_ws_do(ws);
	op->store.op.txn.changes = NULL; /* they end here */
	return r;
}

static inline int lpi_ws_write(struct lpi_whole_sim *ws)
{
	static const uint32_t seg_bytes[] = {LP_BUF_SMALL, 3000, LP_BUF_MEDIUM};
	const struct lpi_whole_op *what = ws->op;
	bool is_append = what->kind == LPI_WHOLE_APPEND;
	uint64_t offset = is_append ? LP_STORE_APPEND : what->offset;
	struct lpi_pay pay;
	uint8_t *bytes = malloc(what->length);
	assert_non_null(bytes);
	lpi_whole_fill(what->seed, bytes, what->length);
	assert_true(lpi_pay_make(&pay, ws->sim->bufs, bytes, offset, what->length,
				 seg_bytes[what->seed % LP_ARRAY_SIZE(seg_bytes)]));
	struct lp_change change =
		lpi_write_change(lpi_ws_ino(ws, what->node), offset, what->length, &pay);
	change.data.path = (enum lp_write_path)what->path;
	int r = lpi_ws_txn(ws, &change, true);
	if (r >= 0 && is_append)
		ws->answer->cnt = ws->asked.op.store.op.txn.offset;
	lpi_pay_drop(&pay);
	free(bytes);
	return r;
}

static inline int lpi_ws_data(struct lpi_whole_sim *ws)
{
	static const enum lp_change_type types[LPI_WHOLE_KIND_CNT] = {
		[LPI_WHOLE_TRUNCATE] = LP_CHANGE_TRUNCATE,
		[LPI_WHOLE_PUNCH] = LP_CHANGE_PUNCH,
		[LPI_WHOLE_PREALLOC] = LP_CHANGE_PREALLOC,
	};
	const struct lp_change change = {
		.type = types[ws->op->kind],
		.ino = lpi_ws_ino(ws, ws->op->node),
		.data = {.offset = ws->op->offset, .length = ws->op->length}};
	return lpi_ws_txn(ws, &change, true);
}

static inline int lpi_ws_clone(struct lpi_whole_sim *ws)
{
	const struct lp_change change = {.type = LP_CHANGE_CLONE,
					 .ino = lpi_ws_ino(ws, ws->op->node),
					 .clone = {.src = lpi_ws_ino(ws, ws->op->to_dir),
						   .src_offset = ws->op->src_offset,
						   .offset = ws->op->offset,
						   .length = ws->op->length}};
	return lpi_ws_txn(ws, &change, true);
}

static inline int lpi_ws_item(struct lpi_whole_sim *ws)
{
	static const enum lp_change_type types[LPI_WHOLE_KIND_CNT] = {
		[LPI_WHOLE_XATTR_SET] = LP_CHANGE_XATTR_SET,
		[LPI_WHOLE_XATTR_REMOVE] = LP_CHANGE_XATTR_REMOVE,
		[LPI_WHOLE_OMAP_SET] = LP_CHANGE_OMAP_SET,
		[LPI_WHOLE_OMAP_REMOVE] = LP_CHANGE_OMAP_REMOVE,
	};
	const struct lpi_whole_op *what = ws->op;
	struct lpi_whole_bytes name;
	struct lp_change change = {.type = types[what->kind], .ino = lpi_ws_ino(ws, what->node)};
	uint8_t *value = malloc(what->length + 1);
	assert_non_null(value);
	if (what->kind == LPI_WHOLE_XATTR_SET || what->kind == LPI_WHOLE_XATTR_REMOVE)
		lpi_whole_xattr_name(what->name, &name);
	else
		lpi_whole_omap_name(what->name, &name);
	if (what->kind == LPI_WHOLE_XATTR_SET)
		lpi_whole_fill_xattr(what->name, what->seed, value, what->length);
	else
		lpi_whole_fill(what->seed, value, what->length);
	change.named.name = (struct lp_bytes){name.bytes, name.len};
	if (what->kind == LPI_WHOLE_XATTR_SET || what->kind == LPI_WHOLE_OMAP_SET)
		change.named.value = (struct lp_bytes){value, (uint32_t)what->length};
	int r = lpi_ws_txn(ws, &change, false);
	free(value);
	return r;
}

/* --- By path ---------------------------------------------------------------------------------- */

static inline int lpi_ws_put(struct lpi_whole_sim *ws)
{
	static const enum lp_ns_opcode opcodes[LPI_WHOLE_KIND_CNT] = {
		[LPI_WHOLE_PUT] = LP_NS_PUT,
		[LPI_WHOLE_UPLOAD] = LP_NS_UPLOAD,
		[LPI_WHOLE_COMMIT] = LP_NS_COMMIT,
	};
	const struct lpi_whole_op *what = ws->op;
	bool is_put = what->kind == LPI_WHOLE_PUT;
	uint64_t length = is_put ? what->length : 0;
	uint64_t version_nr = lpi_ws_version_at(ws, what->names, what->depth);
	struct lp_ns_op *op = lpi_ws_op(ws, opcodes[what->kind]);
	struct lpi_ws_xattrs xattrs;
	struct lpi_whole_path path;
	struct lpi_pay pay;
	uint8_t *bytes = malloc(length + 1);
	assert_non_null(bytes);
	lpi_whole_fill(what->seed, bytes, length);
	assert_true(lpi_pay_make(&pay, ws->sim->bufs, bytes, 0, length, LP_BUF_MEDIUM));
	lpi_ws_xattrs_fill(what, &xattrs);
	op->put.path = lpi_ws_path(what->names, what->depth, &path);
	op->put.condition = (enum lp_ns_if)what->condition;
	op->put.version_nr = version_nr;
	op->put.mode = (uint16_t)what->mode;
	op->put.mtime_ns = lpi_whole_time(what->seed);
	op->put.payload = pay.payload;
	op->put.length = length;
	op->put.write_path = (enum lp_write_path)what->path;
	op->put.xattrs = xattrs.items;
	op->put.xattr_cnt = what->items;
	op->put.ino = lpi_ws_ino(ws, what->node);
	int r = lpi_ws_do(ws);
	ws->answer->ino = r < 0 ? 0 : op->put.found.ino.nr;
	op->put.xattrs = NULL; /* they end here */
	lpi_pay_drop(&pay);
	free(bytes);
	return r;
}

static inline int lpi_ws_delete(struct lpi_whole_sim *ws)
{
	uint64_t version_nr = lpi_ws_version_at(ws, ws->op->names, ws->op->depth);
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_DELETE);
	struct lpi_whole_path path;
	op->delete.path = lpi_ws_path(ws->op->names, ws->op->depth, &path);
	op->delete.condition = (enum lp_ns_if)ws->op->condition;
	op->delete.version_nr = version_nr;
	op->delete.or_dir = (ws->op->flags & LPI_WHOLE_IS_DIR) != 0;
	return lpi_ws_do(ws);
}

static inline int lpi_ws_copy(struct lpi_whole_sim *ws)
{
	bool is_copy = ws->op->kind == LPI_WHOLE_COPY;
	uint64_t version_nr = lpi_ws_version_at(ws, ws->op->to_names, ws->op->to_depth);
	struct lp_ns_op *op = lpi_ws_op(ws, is_copy ? LP_NS_COPY : LP_NS_MOVE);
	struct lpi_whole_path path;
	struct lpi_whole_path to;
	op->copy.path = lpi_ws_path(ws->op->names, ws->op->depth, &path);
	op->copy.to_path = lpi_ws_path(ws->op->to_names, ws->op->to_depth, &to);
	op->copy.condition = (enum lp_ns_if)ws->op->condition;
	op->copy.version_nr = version_nr;
	int r = lpi_ws_do(ws);
	ws->answer->ino = r < 0 || !is_copy ? 0 : op->copy.found.ino.nr;
	return r;
}

static inline int lpi_ws_sync(struct lpi_whole_sim *ws)
{
	(void)lpi_ws_op(ws, LP_NS_SYNC);
	return lpi_ws_do(ws);
}

/* --- What only asks --------------------------------------------------------------------------- */

static inline void lpi_ws_found(struct lpi_whole_sim *ws, int result,
				const struct lp_ns_found *found)
{
	if (result < 0)
		return;
	ws->answer->ino = found->ino.nr;
	ws->answer->more = found->attrs.nlink;
	ws->answer->version_nr = found->attrs.version_nr;
	ws->answer->hash = lpi_whole_hash_attrs(&found->attrs, found->ino.nr, found->entries_cnt);
}

static inline int lpi_ws_stat(struct lpi_whole_sim *ws)
{
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_STAT);
	op->stat.ino = lpi_ws_ino(ws, ws->op->node);
	int r = lpi_ws_do(ws);
	lpi_ws_found(ws, r, &op->stat.found);
	return r;
}

static inline int lpi_ws_lookup(struct lpi_whole_sim *ws)
{
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_LOOKUP);
	struct lpi_whole_bytes name;
	op->lookup.dir = lpi_ws_ino(ws, ws->op->dir);
	op->lookup.name = lpi_ws_name(ws->op->name, &name);
	int r = lpi_ws_do(ws);
	lpi_ws_found(ws, r, &op->lookup.found);
	return r;
}

static inline int lpi_ws_walk(struct lpi_whole_sim *ws)
{
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_WALK);
	struct lpi_whole_path path;
	op->walk.path = lpi_ws_path(ws->op->names, ws->op->depth, &path);
	int r = lpi_ws_do(ws);
	lpi_ws_found(ws, r, &op->walk.found);
	return r;
}

static inline int lpi_ws_read(struct lpi_whole_sim *ws)
{
	struct lp_ino ino = lpi_ws_ino(ws, ws->op->node);
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_STORE);
	op->store.ino = ino;
	op->store.op = (struct lp_store_op){
		.opcode = LP_STORE_READ,
		.sees_ordered = op->ack == LP_ACK_ORDERED,
		.read = {.ino = ino, .offset = ws->op->offset, .length = ws->op->length}};
	int r = lpi_ws_do(ws);
	if (r < 0)
		return r;
	uint64_t len = op->store.op.read.bytes;
	uint8_t *bytes = malloc(len + 1);
	assert_non_null(bytes);
	lpi_read_take(&op->store.op, bytes);
	lp_ns_end(ws->sim->ns[ws->home], op);
	ws->answer->cnt = len;
	ws->answer->hash = lp_hash_u64(bytes, len, 0);
	free(bytes);
	return r;
}

static inline int lpi_ws_seek(struct lpi_whole_sim *ws)
{
	struct lp_ino ino = lpi_ws_ino(ws, ws->op->node);
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_STORE);
	op->store.ino = ino;
	op->store.op =
		(struct lp_store_op){.opcode = LP_STORE_SEEK,
				     .sees_ordered = op->ack == LP_ACK_ORDERED,
				     .seek = {.ino = ino,
					      .offset = ws->op->offset,
					      .hole = (ws->op->flags & LPI_WHOLE_HOLE) != 0}};
	int r = lpi_ws_do(ws);
	ws->answer->cnt = r < 0 ? 0 : op->store.op.seek.found;
	return r;
}

#define LPI_WS_PAGE_BYTES 131072u /* two of the largest values */

static inline int lpi_ws_xattrs(struct lpi_whole_sim *ws)
{
	static uint8_t page[LPI_WS_PAGE_BYTES];
	uint8_t last[LP_KEY_OMAP_MAX];
	struct lp_bytes after = {NULL, 0};
	bool is_omap = (ws->op->flags & LPI_WHOLE_OMAP) != 0;
	struct lp_ino ino = lpi_ws_ino(ws, ws->op->node);
	for (;;) {
		struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_STORE);
		struct lp_list_item item;
		uint32_t pos = 0;
		op->store.ino = ino;
		op->store.op = (struct lp_store_op){
			.opcode = LP_STORE_LIST,
			.sees_ordered = op->ack == LP_ACK_ORDERED,
			.list = {.space = is_omap ? LP_STORE_OMAP : LP_STORE_XATTRS,
				 .ino = ino,
				 .after = after,
				 .buf = page,
				 .buf_len = sizeof(page),
				 .with_values = true}};
		int r = lpi_ws_do(ws);
		if (r < 0)
			return r;
		while (lp_store_list_next(&op->store.op, &pos, &item)) {
			ws->answer->cnt++;
			ws->answer->hash += lpi_whole_hash_item(is_omap, item.name, item.value);
			memcpy(last, item.name.data, item.name.len);
			after = (struct lp_bytes){last, item.name.len};
		}
		if (!op->store.op.list.more)
			return r;
	}
}

/* In small pages. */
static inline int lpi_ws_readdir(struct lpi_whole_sim *ws)
{
	static uint8_t page[LP_NS_READDIR_MIN];
	uint64_t cookie = 0;
	for (;;) {
		struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_READDIR);
		struct lp_ns_item item;
		uint32_t pos = 0;
		op->readdir.dir = lpi_ws_ino(ws, ws->op->dir);
		op->readdir.cookie = cookie;
		op->readdir.buf = page;
		op->readdir.buf_len = sizeof(page);
		int r = lpi_ws_do(ws);
		if (r < 0)
			return r;
		while (lp_ns_next(op, &pos, &item)) {
			ws->answer->cnt++;
			ws->answer->hash += lpi_whole_hash_name(item.name, item.ino.nr, item.type);
			cookie = item.cookie;
		}
		if (!op->readdir.more)
			return r;
	}
}

static inline int lpi_ws_list(struct lpi_whole_sim *ws)
{
	static uint8_t page[65536];
	struct lp_ns_op *op = lpi_ws_op(ws, LP_NS_LIST);
	struct lpi_whole_path prefix;
	struct lpi_whole_path after;
	struct lp_ns_item item;
	uint32_t pos = 0;
	lpi_whole_list_bounds(ws->op, &prefix, &after);
	op->list.prefix = (struct lp_bytes){prefix.bytes, prefix.len};
	if (after.len > 0)
		op->list.after = (struct lp_bytes){after.bytes, after.len};
	op->list.delimit = (ws->op->flags & LPI_WHOLE_DELIMIT) != 0;
	op->list.items_max = ws->op->items;
	op->list.buf = page;
	op->list.buf_len = sizeof(page);
	int r = lpi_ws_do(ws);
	if (r < 0)
		return r;
	while (lp_ns_next(op, &pos, &item)) {
		ws->answer->cnt++;
		ws->answer->hash = lpi_whole_hash_key(ws->answer->hash, item.name);
	}
	ws->answer->more = op->list.more;
	return r;
}

/* --- All -------------------------------------------------------------------------------------- */

static inline void lpi_whole_sim_apply(struct lpi_whole_door *door, const struct lpi_whole *whole,
				       const struct lpi_whole_op *op, struct lpi_whole_answer *ret)
{
	static int (*const calls[LPI_WHOLE_KIND_CNT])(struct lpi_whole_sim * ws) = {
		[LPI_WHOLE_MAKE] = lpi_ws_make,         [LPI_WHOLE_LINK] = lpi_ws_link,
		[LPI_WHOLE_REMOVE] = lpi_ws_remove,     [LPI_WHOLE_RENAME] = lpi_ws_rename,
		[LPI_WHOLE_OPEN] = lpi_ws_open,         [LPI_WHOLE_CLOSE] = lpi_ws_open,
		[LPI_WHOLE_SET] = lpi_ws_set,           [LPI_WHOLE_WRITE] = lpi_ws_write,
		[LPI_WHOLE_APPEND] = lpi_ws_write,      [LPI_WHOLE_TRUNCATE] = lpi_ws_data,
		[LPI_WHOLE_PUNCH] = lpi_ws_data,        [LPI_WHOLE_PREALLOC] = lpi_ws_data,
		[LPI_WHOLE_CLONE] = lpi_ws_clone,       [LPI_WHOLE_XATTR_SET] = lpi_ws_item,
		[LPI_WHOLE_XATTR_REMOVE] = lpi_ws_item, [LPI_WHOLE_OMAP_SET] = lpi_ws_item,
		[LPI_WHOLE_OMAP_REMOVE] = lpi_ws_item,  [LPI_WHOLE_PUT] = lpi_ws_put,
		[LPI_WHOLE_UPLOAD] = lpi_ws_put,        [LPI_WHOLE_COMMIT] = lpi_ws_put,
		[LPI_WHOLE_DELETE] = lpi_ws_delete,     [LPI_WHOLE_COPY] = lpi_ws_copy,
		[LPI_WHOLE_MOVE] = lpi_ws_copy,         [LPI_WHOLE_SYNC] = lpi_ws_sync,
		[LPI_WHOLE_STAT] = lpi_ws_stat,         [LPI_WHOLE_LOOKUP] = lpi_ws_lookup,
		[LPI_WHOLE_WALK] = lpi_ws_walk,         [LPI_WHOLE_READ] = lpi_ws_read,
		[LPI_WHOLE_SEEK] = lpi_ws_seek,         [LPI_WHOLE_XATTRS] = lpi_ws_xattrs,
		[LPI_WHOLE_READDIR] = lpi_ws_readdir,   [LPI_WHOLE_LIST] = lpi_ws_list,
	};
	struct lpi_whole_sim *ws = LP_CONTAINER_OF(door, struct lpi_whole_sim, door);
	*ret = (struct lpi_whole_answer){.result = 0};
	ws->whole = whole;
	ws->op = op;
	ws->answer = ret;
	ws->home = op->home % ws->sim->shard_cnt;
	ret->result = calls[op->kind](ws);
}

/* --- What is there ---------------------------------------------------------------------------- */

/* A place in the stores that is being described. */
struct lpi_ws_look {
	const struct lpi_ns_sim *sim;
	struct lpi_whole_text *text;
	struct lpi_whole_line line;
	uint32_t shard_idx;
	uint8_t *bytes; /* LP_STORE_READ_MAX */
};

/* Calls for each item of a space on the shard: of an inode, or of records that begin so. */
static inline void lpi_ws_each(struct lpi_ws_look *look, struct lp_store_op *list,
			       void (*item)(struct lpi_ws_look *look,
					    const struct lp_store_op *list,
					    const struct lp_list_item *item))
{
	uint8_t *page = malloc(LPI_WS_PAGE_BYTES);
	uint8_t last[LP_KEY_BYTES_MAX];
	struct lp_list_item one;
	assert_non_null(page);
	do {
		uint32_t pos = 0;
		list->list.buf = page;
		list->list.buf_len = LPI_WS_PAGE_BYTES;
		lp_test_ok(lpi_hand_do(&look->sim->hand[look->shard_idx], list));
		while (lp_store_list_next(list, &pos, &one)) {
			item(look, list, &one);
			memcpy(last, one.name.data, one.name.len);
			list->list.after = (struct lp_bytes){last, one.name.len};
		}
	} while (list->list.more);
	free(page);
}

static inline void lpi_ws_say_item(struct lpi_ws_look *look, const struct lp_store_op *list,
				   const struct lp_list_item *item)
{
	look->line.items_hash +=
		lpi_whole_hash_item(list->list.space == LP_STORE_OMAP, item->name, item->value);
}

static inline void lpi_ws_say_entry(struct lpi_ws_look *look, const struct lp_store_op *list,
				    const struct lp_list_item *item)
{
	struct lpi_whole_bytes name = {.len = item->name.len};
	memcpy(name.bytes, item->name.data, item->name.len);
	lpi_whole_say_entry(look->text, list->list.ino.nr, &name, item->ino.nr, item->type);
}

static inline void lpi_ws_say_record(struct lpi_ws_look *look, const struct lp_store_op *list,
				     const struct lp_list_item *item)
{
	(void)list;
	lpi_whole_say(look->text, "record %c of %llx on shard %u", *(const char *)item->name.data,
		      (unsigned long long)lp_get_be64((const uint8_t *)item->name.data + 1),
		      look->shard_idx);
}

static inline void lpi_ws_say_pages(struct lpi_ws_look *look, uint64_t begin, uint64_t len)
{
	static const uint8_t zeros[LP_BLOCK_BYTES];
	for (uint64_t at = 0; at < len; at += LP_BLOCK_BYTES) {
		uint64_t rest = LP_MIN(LP_BLOCK_BYTES, len - at);
		memset(look->bytes + at + rest, 0, LP_BLOCK_BYTES - rest);
		if (memcmp(look->bytes + at, zeros, LP_BLOCK_BYTES) != 0)
			look->line.data_hash += lpi_whole_hash_block(
				(begin + at) >> LP_BLOCK_SHIFT,
				lp_crc32c(0, look->bytes + at, LP_BLOCK_BYTES));
	}
}

/* What seeking finds, read. */
static inline void lpi_ws_say_data(struct lpi_ws_look *look, struct lp_ino ino)
{
	const struct lpi_hand *hand = &look->sim->hand[look->shard_idx];
	for (uint64_t at = 0; at < look->line.size_bytes;) {
		struct lp_store_op data = {.opcode = LP_STORE_SEEK,
					   .seek = {.ino = ino, .offset = at}};
		int r = lpi_hand_do(hand, &data);
		if (r == -ENXIO)
			return;
		lp_test_ok(r);
		struct lp_store_op hole = {
			.opcode = LP_STORE_SEEK,
			.seek = {.ino = ino, .offset = data.seek.found, .hole = true}};
		lp_test_ok(lpi_hand_do(hand, &hole));
		uint64_t begin = data.seek.found & ~(LP_BLOCK_BYTES - 1);
		uint64_t length = LP_MIN(hole.seek.found - begin, LP_STORE_READ_MAX);
		assert_true(hole.seek.found > begin);
		int64_t len = lpi_hand_read(hand, ino, begin, length, look->bytes);
		assert_true(len > 0);
		lpi_ws_say_pages(look, begin, (uint64_t)len);
		at = begin + (uint64_t)lp_align_up((uint64_t)len, LP_BLOCK_BYTES);
	}
}

static inline void lpi_ws_say_dir(struct lpi_ws_look *look, struct lp_ino ino)
{
	uint32_t home = look->shard_idx;
	for (uint32_t i = 0; i < look->sim->shard_cnt; i++) {
		struct lp_store_op dir = {.opcode = LP_STORE_DIR, .dir = {.ino = ino}};
		struct lp_store_op list = {.opcode = LP_STORE_LIST,
					   .list = {.space = LP_STORE_ENTRIES, .ino = ino}};
		look->shard_idx = i;
		lp_test_ok(lpi_hand_do(&look->sim->hand[i], &dir));
		if (dir.dir.is_sealed)
			lpi_whole_say(look->text, "sealed: %llx on shard %u",
				      (unsigned long long)ino.nr, i);
		lpi_ws_each(look, &list, lpi_ws_say_entry);
	}
	look->shard_idx = home;
}

static inline void lpi_ws_say_small(struct lpi_ws_look *look, struct lp_ino ino)
{
	static const enum lp_store_space spaces[] = {LP_STORE_XATTRS, LP_STORE_OMAP};
	const struct lpi_hand *hand = &look->sim->hand[look->shard_idx];
	for (size_t i = 0; i < LP_ARRAY_SIZE(spaces); i++) {
		struct lp_store_op list = {
			.opcode = LP_STORE_LIST,
			.list = {.space = spaces[i], .ino = ino, .with_values = true}};
		lpi_ws_each(look, &list, lpi_ws_say_item);
	}
	if (look->line.type != LP_INODE_TYPE_SYMLINK)
		return;
	int64_t len = lpi_hand_get(hand, LP_STORE_TARGET, ino, (struct lp_bytes){NULL, 0},
				   look->bytes, LP_INODE_TARGET_MAX);
	assert_true(len > 0);
	look->line.target_hash = lpi_whole_hash_target(look->bytes, (size_t)len);
}

static inline void lpi_ws_say_inode(struct lpi_ws_look *look, const struct lp_store_op *list,
				    const struct lp_list_item *item)
{
	struct lp_ino ino = {lp_get_be64(item->name.data)};
	struct lp_attrs attrs;
	(void)list;
	lp_test_ok(lpi_hand_stat(&look->sim->hand[look->shard_idx], ino, &attrs));
	bool is_dir = attrs.type == LP_INODE_TYPE_DIR;
	bool has_time = !is_dir && attrs.mtime_ns < LPI_WHOLE_TIME_END;
	look->line = (struct lpi_whole_line){
		.ino = ino.nr,
		.parent = is_dir ? attrs.parent.nr : 0,
		.size_bytes = attrs.size_bytes,
		.mtime_ns = has_time ? attrs.mtime_ns : 0,
		.type = attrs.type,
		.nlink = attrs.nlink,
		.mode = attrs.mode,
		.uid = attrs.uid,
		.gid = attrs.gid,
		.rdev = attrs.rdev,
		.flags = attrs.flags & (LP_INODE_FLAG_SPREAD | LP_INODE_FLAG_MADE_BY_PUT)};
	lpi_ws_say_small(look, ino);
	if (attrs.type == LP_INODE_TYPE_FILE)
		lpi_ws_say_data(look, ino);
	if (is_dir)
		lpi_ws_say_dir(look, ino);
	lpi_whole_say_inode(look->text, &look->line);
}

static inline bool lpi_ws_is_freeing(const struct lpi_ns_sim *sim)
{
	for (uint32_t i = 0; i < sim->shard_cnt; i++) {
		if (lp_store_is_freeing(sim->hand[i].store, NULL))
			return true;
	}
	return false;
}

/* All that the stores hold, by their own faces: inodes that nothing leads to, and what is left of
 * changes over several shards, are seen as well. What was removed goes first. */
static inline void lpi_whole_sim_describe(struct lpi_ns_sim *sim, struct lpi_whole_text *text)
{
	struct lpi_ws_look look = {.sim = sim, .text = text, .bytes = malloc(LP_STORE_READ_MAX)};
	assert_non_null(look.bytes);
	text->hash = 0;
	text->len = 0;
	for (uint32_t i = 0; lpi_ws_is_freeing(sim); i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(sim);
	}
	for (look.shard_idx = 0; look.shard_idx < sim->shard_cnt; look.shard_idx++) {
		static const char prefixes[] = {'T', 'U'};
		struct lp_store_op inodes = {.opcode = LP_STORE_LIST,
					     .list = {.space = LP_STORE_INODES}};
		lpi_ws_each(&look, &inodes, lpi_ws_say_inode);
		for (size_t i = 0; i < sizeof(prefixes); i++) {
			struct lp_store_op records = {
				.opcode = LP_STORE_LIST,
				.list = {.space = LP_STORE_RECORDS, .prefix = {&prefixes[i], 1}}};
			lpi_ws_each(&look, &records, lpi_ws_say_record);
		}
	}
	free(look.bytes);
}

#endif
