/* SPDX-License-Identifier: Apache-2.0 */
/* Plans: operations of a model run as small data, enough to make them again.
 *
 * Only *_test.c files and their headers include this. A plan has no pointers. It gives all names,
 * values and data of its operation, as often as needed. Names are numbers into tables; contents
 * follow from seeds.
 */
#ifndef LP_STORE_MODEL_PLAN_TEST_H
#define LP_STORE_MODEL_PLAN_TEST_H

#include "base/endian.h"
#include "store/model/store_test.h"
#include "store/record/values.h"

#define LPI_PLAN_CHANGES_MAX  8u
#define LPI_PLAN_ABSENT       UINT32_MAX
#define LPI_PLAN_TOUCHES_MAX  (3u * LPI_PLAN_CHANGES_MAX)
#define LPI_PLAN_ENTRY_NAMES  10u
#define LPI_PLAN_XATTR_NAMES  8u
#define LPI_PLAN_OMAP_NAMES   10u
#define LPI_PLAN_RECORD_NAMES 8u

struct lpi_plan_change {
	enum lp_change_type type;
	uint64_t ino;
	uint64_t other; /* src of a clone, target of an entry */
	uint64_t offset;
	uint64_t src_offset;
	uint64_t length;
	uint64_t version_nr;
	uint32_t seed;      /* of payload, value, attributes */
	uint32_t value_len; /* LPI_PLAN_ABSENT */
	uint32_t mask;
	int32_t delta;
	uint8_t name_idx;
	uint8_t ino_type;
	uint8_t path;
	bool seal;
	bool unseal;
	bool drop;
	bool has_owner; /* of a guard: the mode is mask, the owner offset and length */
	bool has_flags; /* of a guard: none of those that keep changes away */
};

struct lpi_plan {
	enum lp_store_opcode opcode;
	/* Transactions. */
	uint32_t change_cnt;
	enum lp_store_ack ack;
	bool heeds_flags;
	struct lpi_plan_change changes[LPI_PLAN_CHANGES_MAX];
	/* The others. */
	uint64_t ino;
	uint64_t other; /* what a lookup will find, 0: nothing */
	uint64_t offset;
	uint64_t length;
	enum lp_store_space space;
	uint32_t buf_len;
	uint32_t items_max;
	uint8_t name_idx;
	uint8_t bound; /* of a list: 0 none, 1 after, 2 from, 3 prefix; of name_idx */
	bool flag;     /* hole; with_values */
};

/* --- Contents --------------------------------------------------------------------------------- */

static inline uint64_t lpi_plan_mix(uint64_t value)
{
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

/* Some are zeros, some the same byte all over: what a store might take for something else. */
static inline void lpi_plan_fill(uint32_t seed, uint8_t *buf, size_t len)
{
	uint64_t state = lpi_plan_mix(seed + UINT64_C(1));
	if (seed % 16 < 2) {
		memset(buf, seed % 16 == 0 ? 0 : (int)(state & 0xff), len);
		return;
	}
	for (size_t at = 0; at < len; at += sizeof(state)) {
		state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		uint64_t word = state ^ state >> 29;
		memcpy(buf + at, &word, LP_MIN(sizeof(word), len - at));
	}
}

struct lpi_plan_name {
	const char *text; /* NULL: len times 'n' */
	uint32_t len;
};

static inline struct lp_bytes lpi_plan_name_of(const struct lpi_plan_name *name)
{
	static char ns[LP_KEY_OMAP_MAX];
	memset(ns, 'n', sizeof(ns));
	return (struct lp_bytes){name->text == NULL ? ns : name->text, name->len};
}

static inline struct lp_bytes lpi_plan_entry_name(unsigned idx)
{
	static const struct lpi_plan_name names[LPI_PLAN_ENTRY_NAMES] = {
		{"a", 1},    {"aa", 2},       {"b", 1},   {"name", 4},  {"name2", 5},
		{NULL, 255}, {"\xff\xfe", 2}, {"...", 3}, {"a\x01", 2}, {"name2.part", 10}};
	return lpi_plan_name_of(&names[idx % LPI_PLAN_ENTRY_NAMES]);
}

static inline struct lp_bytes lpi_plan_xattr_name(unsigned idx)
{
	static const struct lpi_plan_name names[LPI_PLAN_XATTR_NAMES] = {
		{"user.a", 6}, {"user.b", 6}, {"user.ab", 7},     {"x", 1},
		{NULL, 255},   {"a/b", 3},    {"system.acl", 10}, {"\xff", 1}};
	return lpi_plan_name_of(&names[idx % LPI_PLAN_XATTR_NAMES]);
}

static inline struct lp_bytes lpi_plan_omap_name(unsigned idx)
{
	static const struct lpi_plan_name names[LPI_PLAN_OMAP_NAMES] = {
		{"k", 1},     {"k1", 2},    {"k\0z", 3}, {"\0", 1}, {"\xff\xff", 2},
		{NULL, 1024}, {NULL, 1023}, {"k/ey", 4}, {"k2", 2}, {"\0\0", 2}};
	return lpi_plan_name_of(&names[idx % LPI_PLAN_OMAP_NAMES]);
}

/* Of numbers no inode has, and names the store itself does not use. */
static inline struct lp_bytes lpi_plan_record_name(unsigned idx)
{
	static const struct lpi_plan_name names[LPI_PLAN_RECORD_NAMES] = {
		{"Smodel", 6},
		{"Smodel2", 7},
		{"Smodel\0\0\0\0\0\0\0\0\1", 15},
		{"Smodel\0\0\0\0\0\0\0\1\0", 15},
		{"T\0\0\0\0\0\0\0\0", 9},
		{"T\0\0\0\0\0\0\0\7", 9},
		{"T\xff\xff\xff\xff\xff\xff\xff\xff", 9},
		{"U\x3f\xff\xff\xff\xff\xff\xff\xff", 9}};
	return lpi_plan_name_of(&names[idx % LPI_PLAN_RECORD_NAMES]);
}

static inline bool lpi_change_is_entry(enum lp_change_type type)
{
	return type == LP_GUARD_ENTRY || type == LP_GUARD_NO_ENTRY || type == LP_CHANGE_ENTRY_SET ||
	       type == LP_CHANGE_ENTRY_REMOVE;
}

static inline bool lpi_change_is_xattr(enum lp_change_type type)
{
	return type == LP_GUARD_XATTR || type == LP_GUARD_NO_XATTR || type == LP_CHANGE_XATTR_SET ||
	       type == LP_CHANGE_XATTR_REMOVE;
}

static inline bool lpi_change_is_omap(enum lp_change_type type)
{
	return type == LP_CHANGE_OMAP_SET || type == LP_CHANGE_OMAP_REMOVE;
}

static inline bool lpi_change_is_record(enum lp_change_type type)
{
	return type == LP_GUARD_RECORD || type == LP_GUARD_NO_RECORD || type == LP_CHANGE_RECORD;
}

static inline bool lpi_change_has_attrs(enum lp_change_type type)
{
	return type == LP_CHANGE_CREATE || type == LP_CHANGE_SET;
}

/* Such as the type may have; what a store has to ignore is there as well. */
static inline void lpi_plan_attrs(const struct lpi_plan_change *plan, struct lp_attrs *ret)
{
	struct lp_prng prng;
	bool is_dir = plan->ino_type == LP_INODE_TYPE_DIR;
	bool is_device =
		plan->ino_type == LP_INODE_TYPE_CHARDEV || plan->ino_type == LP_INODE_TYPE_BLOCKDEV;
	uint32_t flags = LP_INODE_FLAG_IMMUTABLE | LP_INODE_FLAG_APPEND;
	if (is_dir)
		flags |= LP_INODE_FLAG_MADE_BY_PUT | LP_INODE_FLAG_SPREAD;
	lp_prng_init(&prng, plan->seed);
	*ret = (struct lp_attrs){
		.type = plan->ino_type,
		.mode = (uint16_t)(lp_prng_u64(&prng) & 07777),
		.uid = (uint32_t)lp_prng_u64(&prng),
		.gid = (uint32_t)lp_prng_below(&prng, 3),
		.nlink = (uint32_t)lp_prng_below(&prng, 4),
		.atime_ns = (int64_t)lp_prng_u64(&prng),
		.mtime_ns = (int64_t)lp_prng_u64(&prng),
		.ctime_ns = (int64_t)lp_prng_below(&prng, 20000), /* some raise the version */
		.btime_ns = -(int64_t)lp_prng_below(&prng, 2),
		.flags = (uint32_t)lp_prng_u64(&prng) & flags,
		.rdev = is_device ? (uint32_t)lp_prng_u64(&prng) : 0,
		.parent = {is_dir || plan->seed % 2 == 0 ? 1 + lp_prng_below(&prng, 9) : 0},
		.size_bytes = 12345,
		.blocks = 12345,
		.version_nr = 12345,
	};
}

/* --- The operation of a plan ------------------------------------------------------------------ */

/* Stays where it is while the operation is under way. */
struct lpi_plan_op {
	struct lp_store_op op;
	struct lp_change changes[LPI_PLAN_CHANGES_MAX];
	struct lp_attrs attrs[LPI_PLAN_CHANGES_MAX];
	uint8_t *values[LPI_PLAN_CHANGES_MAX]; /* also targets of symlinks */
	struct lpi_pay pay;
	uint8_t *buf; /* of a get or list */
};

static inline void lpi_plan_op_fini(struct lpi_plan_op *op)
{
	lpi_pay_drop(&op->pay);
	for (size_t i = 0; i < LP_ARRAY_SIZE(op->values); i++)
		free(op->values[i]);
	free(op->buf);
}

/* U takes nothing else. */
static inline struct lp_bytes lpi_plan_mark(uint32_t seed, struct lp_bytes name, uint8_t **ret)
{
	const struct lp_unfinished_value value = {.kind = seed % 2 == 0 ? LP_UNFINISHED_KIND_ORPHAN
									: LP_UNFINISHED_KIND_UPLOAD,
						  .since_ns = seed};
	struct lp_key key;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED,
		      (struct lp_ino){lp_get_be64((const uint8_t *)name.data + 1)});
	*ret = malloc(LP_UNFINISHED_VALUE_SIZE);
	assert_non_null(*ret);
	lp_unfinished_write(&value, &key, *ret);
	return (struct lp_bytes){*ret, LP_UNFINISHED_VALUE_SIZE};
}

static inline struct lp_bytes lpi_plan_value(const struct lpi_plan_change *plan, uint8_t **ret)
{
	if (plan->value_len == LPI_PLAN_ABSENT)
		return (struct lp_bytes){NULL, 0};
	if (plan->type == LP_CHANGE_RECORD) {
		struct lp_bytes name = lpi_plan_record_name(plan->name_idx);
		if (*(const char *)name.data == LP_KEY_SPACE_UNFINISHED)
			return lpi_plan_mark(plan->seed, name, ret);
	}
	*ret = malloc(plan->value_len + 1U);
	assert_non_null(*ret);
	lpi_plan_fill(plan->seed, *ret, plan->value_len);
	return (struct lp_bytes){*ret, plan->value_len};
}

static inline void lpi_plan_inode(const struct lpi_plan_change *plan, struct lpi_plan_op *op,
				  uint32_t idx)
{
	struct lp_change *change = &op->changes[idx];
	bool is_symlink = plan->ino_type == LP_INODE_TYPE_SYMLINK;
	change->inode.mask = plan->mask;
	change->inode.delta = plan->delta;
	if (!lpi_change_has_attrs(plan->type))
		return;
	lpi_plan_attrs(plan, &op->attrs[idx]);
	change->inode.attrs = &op->attrs[idx];
	if (op->attrs[idx].parent.nr != 0)
		change->inode.name = lpi_plan_entry_name(plan->seed);
	if (plan->type != LP_CHANGE_CREATE || !is_symlink)
		return;
	uint32_t len = 1 + plan->seed % LP_INODE_TARGET_MAX;
	op->values[idx] = malloc(len);
	assert_non_null(op->values[idx]);
	memset(op->values[idx], 'a' + (int)(plan->seed % 26), len);
	change->inode.target = (struct lp_bytes){op->values[idx], len};
}

/* False: no buffers. */
static inline bool lpi_plan_data(const struct lpi_plan_change *plan, struct lpi_plan_op *op,
				 uint32_t idx, struct lp_bufs *bufs)
{
	static const uint32_t seg_sizes[] = {LP_BUF_SMALL, LP_BUF_SMALL, 3000, LP_BUF_MEDIUM};
	struct lp_change *change = &op->changes[idx];
	change->data.offset = plan->offset;
	change->data.length = plan->length;
	change->data.path = (enum lp_write_path)plan->path;
	if (plan->type != LP_CHANGE_WRITE)
		return true;
	uint8_t *bytes = malloc(plan->length);
	assert_non_null(bytes);
	lpi_plan_fill(plan->seed, bytes, plan->length);
	bool is_made = lpi_pay_make(&op->pay, bufs, bytes, plan->offset, plan->length,
				    seg_sizes[plan->seed % LP_ARRAY_SIZE(seg_sizes)]);
	free(bytes);
	change->data.payload = op->pay.payload;
	return is_made;
}

static inline struct lp_bytes lpi_plan_change_name(const struct lpi_plan_change *plan)
{
	if (lpi_change_is_entry(plan->type))
		return lpi_plan_entry_name(plan->name_idx);
	if (lpi_change_is_xattr(plan->type))
		return lpi_plan_xattr_name(plan->name_idx);
	if (lpi_change_is_omap(plan->type))
		return lpi_plan_omap_name(plan->name_idx);
	return lpi_plan_record_name(plan->name_idx);
}

static inline bool lpi_plan_change(const struct lpi_plan_change *plan, struct lpi_plan_op *op,
				   uint32_t idx, struct lp_bufs *bufs)
{
	struct lp_change *change = &op->changes[idx];
	enum lp_change_type type = plan->type;
	*change = (struct lp_change){.type = type, .ino = {plan->ino}};
	if (type == LP_GUARD_INODE) {
		change->guard.version_nr = plan->version_nr;
		change->guard.flags = plan->has_flags ? LP_INODE_FLAGS_KEEPING : 0;
		change->guard.mode_mask = plan->has_owner ? 07777 : 0;
		change->guard.mode = (uint16_t)plan->mask;
		change->guard.has_owner = plan->has_owner;
		change->guard.uid = (uint32_t)plan->offset;
		change->guard.gid = (uint32_t)plan->length;
	} else if (lpi_change_has_attrs(type) || type == LP_CHANGE_LINK) {
		lpi_plan_inode(plan, op, idx);
	} else if (type == LP_CHANGE_CLONE) {
		change->clone.src.nr = plan->other;
		change->clone.src_offset = plan->src_offset;
		change->clone.offset = plan->offset;
		change->clone.length = plan->length;
	} else if (lpi_change_is_data(type)) {
		return lpi_plan_data(plan, op, idx, bufs);
	} else if (type == LP_CHANGE_DIR && plan->drop) {
		change->dir.drop = true;
	} else if (type == LP_CHANGE_DIR) {
		change->dir.mtime_ns = (int64_t)(plan->seed % 3) * plan->seed;
		change->dir.ctime_ns = (int64_t)(plan->seed % 2) * plan->seed;
		change->dir.seal = plan->seal;
		change->dir.unseal = plan->unseal;
	} else if (lpi_change_is_entry(type) || lpi_change_is_xattr(type) ||
		   lpi_change_is_omap(type) || lpi_change_is_record(type)) {
		change->named.name = lpi_plan_change_name(plan);
		change->named.value = lpi_plan_value(plan, &op->values[idx]);
		change->named.target.nr = plan->other;
		change->named.target_type = plan->ino_type;
	}
	return true;
}

static inline struct lp_bytes lpi_plan_space_name(enum lp_store_space space, unsigned idx)
{
	if (space == LP_STORE_ENTRIES)
		return lpi_plan_entry_name(idx);
	if (space == LP_STORE_XATTRS)
		return lpi_plan_xattr_name(idx);
	return space == LP_STORE_OMAP ? lpi_plan_omap_name(idx) : lpi_plan_record_name(idx);
}

static inline void lpi_plan_list(const struct lpi_plan *plan, struct lp_store_op *op)
{
	struct lp_bytes name = lpi_plan_space_name(plan->space, plan->name_idx);
	op->list.space = plan->space;
	op->list.ino.nr = plan->ino;
	op->list.buf_len = plan->buf_len;
	op->list.items_max = plan->items_max;
	op->list.with_values = plan->flag;
	if (plan->bound == 1)
		op->list.after = name;
	else if (plan->bound == 2)
		op->list.from = name;
	else if (plan->bound == 3)
		op->list.prefix = (struct lp_bytes){name.data, (name.len + 1) / 2};
	/* A store has S and U records of its own. */
	if (plan->space == LP_STORE_RECORDS)
		op->list.prefix =
			plan->name_idx % 2 == 0 ? LPI_TEST_BYTES("Smodel") : LPI_TEST_BYTES("T");
}

static inline void lpi_plan_other(const struct lpi_plan *plan, struct lpi_plan_op *op)
{
	struct lp_store_op *to = &op->op;
	if (plan->opcode == LP_STORE_READ) {
		to->read.ino.nr = plan->ino;
		to->read.offset = plan->offset;
		to->read.length = plan->length;
	} else if (plan->opcode == LP_STORE_STAT) {
		to->stat.ino.nr = plan->ino;
	} else if (plan->opcode == LP_STORE_LOOKUP) {
		to->lookup.dir.nr = plan->ino;
		to->lookup.name = lpi_plan_entry_name(plan->name_idx);
	} else if (plan->opcode == LP_STORE_SEEK) {
		to->seek.ino.nr = plan->ino;
		to->seek.offset = plan->offset;
		to->seek.hole = plan->flag;
	} else if (plan->opcode == LP_STORE_DIR) {
		to->dir.ino.nr = plan->ino;
	} else if (plan->opcode == LP_STORE_GET) {
		op->buf = malloc(plan->buf_len + 1U);
		to->get.space = plan->space;
		to->get.ino.nr = plan->ino;
		to->get.name = lpi_plan_space_name(plan->space, plan->name_idx);
		to->get.buf = op->buf;
		to->get.buf_len = plan->buf_len;
	} else if (plan->opcode == LP_STORE_LIST) {
		lpi_plan_list(plan, to);
		op->buf = malloc(plan->buf_len + 1U);
		to->list.buf = op->buf;
	}
}

/* Makes the operation. False, and nothing held: no buffers. */
static inline bool lpi_plan_op_init(struct lpi_plan_op *op, const struct lpi_plan *plan,
				    struct lp_bufs *bufs)
{
	memset(&op->op, 0, sizeof(op->op));
	memset(op->values, 0, sizeof(op->values));
	op->pay = (struct lpi_pay){.segs = NULL};
	op->buf = NULL;
	op->op.opcode = plan->opcode;
	if (plan->opcode != LP_STORE_TXN) {
		lpi_plan_other(plan, op);
		return true;
	}
	op->op.txn.changes = op->changes;
	op->op.txn.change_cnt = plan->change_cnt;
	op->op.txn.ack = plan->ack;
	op->op.txn.heeds_flags = plan->heeds_flags;
	for (uint32_t i = 0; i < plan->change_cnt; i++) {
		if (!lpi_plan_change(&plan->changes[i], op, i, bufs)) {
			lpi_plan_op_fini(op);
			return false;
		}
	}
	return true;
}

/* --- What a plan touches ---------------------------------------------------------------------- */

enum lpi_touch_kind {
	LPI_TOUCH_INODE,    /* and all that belongs to it */
	LPI_TOUCH_ENTRY,    /* nr: the directory */
	LPI_TOUCH_FRAGMENT, /* times and seal */
	LPI_TOUCH_RECORD,
	/* All entries of a directory: in the way of each other only when one is strong. */
	LPI_TOUCH_ENTRIES,
	LPI_TOUCH_ALL /* whatever there is; strong */
};

struct lpi_touch {
	enum lpi_touch_kind kind;
	uint64_t nr;
	uint8_t name_idx;
	bool strong;  /* of ENTRIES */
	bool changes; /* of INODE: does not only look at it */
};

struct lpi_touches {
	struct lpi_touch items[LPI_PLAN_TOUCHES_MAX];
	uint32_t cnt;
};

/* Once each. */
static inline void lpi_touches_add(struct lpi_touches *set, enum lpi_touch_kind kind, uint64_t nr,
				   uint8_t name_idx)
{
	/* Numbers of names wrap around. */
	if (kind == LPI_TOUCH_ENTRY)
		name_idx %= LPI_PLAN_ENTRY_NAMES;
	if (kind == LPI_TOUCH_RECORD)
		name_idx %= LPI_PLAN_RECORD_NAMES;
	for (uint32_t i = 0; i < set->cnt; i++) {
		const struct lpi_touch *item = &set->items[i];
		if (item->kind == kind && item->nr == nr && item->name_idx == name_idx)
			return;
	}
	assert_true(set->cnt < LPI_PLAN_TOUCHES_MAX);
	set->items[set->cnt++] = (struct lpi_touch){.kind = kind, .nr = nr, .name_idx = name_idx};
}

static inline void lpi_touches_add_entries(struct lpi_touches *set, uint64_t nr, bool strong)
{
	lpi_touches_add(set, LPI_TOUCH_ENTRIES, nr, 0);
	for (uint32_t i = 0; i < set->cnt; i++)
		if (set->items[i].kind == LPI_TOUCH_ENTRIES && set->items[i].nr == nr)
			set->items[i].strong |= strong;
}

static inline void lpi_touches_add_inode(struct lpi_touches *set, uint64_t nr, bool changes)
{
	lpi_touches_add(set, LPI_TOUCH_INODE, nr, 0);
	for (uint32_t i = 0; i < set->cnt; i++)
		if (set->items[i].kind == LPI_TOUCH_INODE && set->items[i].nr == nr)
			set->items[i].changes |= changes;
}

static inline void lpi_touches_of_change(struct lpi_touches *set,
					 const struct lpi_plan_change *change)
{
	enum lp_change_type type = change->type;
	if (lpi_change_is_record(type)) {
		lpi_touches_add(set, LPI_TOUCH_RECORD, 0, change->name_idx);
	} else if (lpi_change_is_entry(type)) {
		lpi_touches_add(set, LPI_TOUCH_ENTRY, change->ino, change->name_idx);
		lpi_touches_add_entries(set, change->ino, false);
	} else if (type == LP_GUARD_EMPTY) {
		lpi_touches_add_entries(set, change->ino, true);
	} else if (type == LP_CHANGE_DIR) {
		lpi_touches_add(set, LPI_TOUCH_FRAGMENT, change->ino, 0);
		lpi_touches_add_entries(set, change->ino,
					change->seal || change->unseal || change->drop);
	} else {
		lpi_touches_add_inode(set, change->ino, !lpi_change_is_guard(type));
		if (type == LP_CHANGE_CLONE)
			lpi_touches_add_inode(set, change->other, false);
		if (type == LP_CHANGE_REMOVE) { /* with its fragment, if it is a directory */
			lpi_touches_add(set, LPI_TOUCH_FRAGMENT, change->ino, 0);
			lpi_touches_add_entries(set, change->ino, true);
		}
	}
}

static inline void lpi_touches_of_query(struct lpi_touches *set, const struct lpi_plan *plan)
{
	bool of_dir = plan->opcode == LP_STORE_DIR ||
		      (plan->opcode == LP_STORE_LIST && plan->space == LP_STORE_ENTRIES);
	bool of_all = plan->opcode == LP_STORE_LIST && plan->space == LP_STORE_RECORDS;
	if (plan->opcode == LP_STORE_SYNC)
		return;
	if (of_all) {
		lpi_touches_add(set, LPI_TOUCH_ALL, 0, 0);
	} else if (plan->opcode == LP_STORE_LOOKUP) {
		lpi_touches_add(set, LPI_TOUCH_ENTRY, plan->ino, plan->name_idx);
		lpi_touches_add(set, LPI_TOUCH_INODE, plan->other, 0);
	} else if (of_dir) {
		lpi_touches_add(set, LPI_TOUCH_FRAGMENT, plan->ino, 0);
		lpi_touches_add_entries(set, plan->ino, true);
	} else if (plan->opcode == LP_STORE_GET && plan->space == LP_STORE_RECORDS) {
		lpi_touches_add(set, LPI_TOUCH_RECORD, 0, plan->name_idx);
	} else {
		lpi_touches_add(set, LPI_TOUCH_INODE, plan->ino, 0);
	}
}

static inline void lpi_touches_of(struct lpi_touches *ret, const struct lpi_plan *plan)
{
	ret->cnt = 0;
	if (plan->opcode != LP_STORE_TXN)
		lpi_touches_of_query(ret, plan);
	else
		for (uint32_t i = 0; i < plan->change_cnt; i++)
			lpi_touches_of_change(ret, &plan->changes[i]);
}

static inline bool lpi_touch_meets(const struct lpi_touch *a, const struct lpi_touch *b)
{
	if (a->kind == LPI_TOUCH_ALL || b->kind == LPI_TOUCH_ALL)
		return true;
	if (a->kind != b->kind || a->nr != b->nr || a->name_idx != b->name_idx)
		return false;
	return a->kind != LPI_TOUCH_ENTRIES || a->strong || b->strong;
}

static inline bool lpi_touches_meet(const struct lpi_touches *a, const struct lpi_touches *b)
{
	for (uint32_t i = 0; i < a->cnt; i++)
		for (uint32_t j = 0; j < b->cnt; j++)
			if (lpi_touch_meets(&a->items[i], &b->items[j]))
				return true;
	return false;
}

#endif
