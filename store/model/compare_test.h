/* SPDX-License-Identifier: Apache-2.0 */
/* Comparison of two stores: results of one operation, single objects, and all they hold.
 *
 * Only *_test.c files and their headers include this. A is under test, b says what is right. Two
 * things may differ and are left out: which blocks have space, and the numbers of insertions,
 * which must only be different ones.
 *
 * All answer whether the two are the same. The first difference is said in a struct lpi_diff.
 */
#ifndef LP_STORE_MODEL_COMPARE_TEST_H
#define LP_STORE_MODEL_COMPARE_TEST_H

#include "store/model/plan_test.h"

#define LPI_DIFF_TEXT_MAX   400u
#define LPI_SAME_LIST_BYTES (LP_STORE_VALUE_MAX + 2048u) /* the largest record fits */
#define LPI_SAME_LIST_MAX   1000000u
#define LPI_SAME_ENTRIES    64u /* whose insertions are looked at */

struct lpi_diff {
	bool found;
	char text[LPI_DIFF_TEXT_MAX];
};

/* Keeps the first; false. */
LP_PRINTF(2, 3) static inline bool lpi_diff_say(struct lpi_diff *diff, const char *fmt, ...)
{
	va_list args;
	if (diff->found)
		return false;
	diff->found = true;
	va_start(args, fmt);
	(void)vsnprintf(diff->text, sizeof(diff->text), fmt, args); /* cut short is fine */
	va_end(args);
	return false;
}

/* Numbers that a and b must agree in. */
static inline bool lpi_same_number(uint64_t a, uint64_t b, const char *what, struct lpi_diff *diff)
{
	return a == b || lpi_diff_say(diff, "%s: %llu, not %llu", what, (unsigned long long)a,
				      (unsigned long long)b);
}

static inline bool lpi_same_result(int a, int b, const char *what, struct lpi_diff *diff)
{
	return a == b || lpi_diff_say(diff, "%s says %d (%s), not %d (%s)", what, a, lp_strerror(a),
				      b, lp_strerror(b));
}

static inline bool lpi_same_bytes(const struct lp_bytes *a, const struct lp_bytes *b,
				  const char *what, struct lpi_diff *diff)
{
	if ((a->data == NULL) != (b->data == NULL) || a->len != b->len)
		return lpi_diff_say(diff, "%s: %u bytes, not %u", what, a->len, b->len);
	return a->len == 0 || memcmp(a->data, b->data, a->len) == 0 ||
	       lpi_diff_say(diff, "%s: other bytes", what);
}

static inline bool lpi_same_attrs(const struct lp_attrs *a, const struct lp_attrs *b,
				  struct lpi_diff *diff)
{
	const char *name = lpi_attrs_difference(a, b);
	return name == NULL ||
	       lpi_diff_say(diff,
			    "attribute %s (size %llu, not %llu; version "
			    "%llu, not %llu)",
			    name, (unsigned long long)a->size_bytes,
			    (unsigned long long)b->size_bytes, (unsigned long long)a->version_nr,
			    (unsigned long long)b->version_nr);
}

/* --- Results of one operation ----------------------------------------------------------------- */

static inline bool lpi_same_txn(const struct lp_store_op *a, const struct lp_store_op *b,
				struct lpi_diff *diff)
{
	return lpi_same_number(a->txn.failed_idx, b->txn.failed_idx, "failed_idx", diff) &&
	       lpi_same_number(a->txn.version_nr, b->txn.version_nr, "version_nr", diff);
}

/* One piece of the grid after the other, each held against its crc, then against b's bytes. */
static inline bool lpi_same_pieces(const struct lp_store_op *a, const struct lp_store_op *b,
				   struct lpi_diff *diff)
{
	struct lpi_seg_cursor at_a = {.seg = a->read.segs};
	struct lpi_seg_cursor at_b = {.seg = b->read.segs};
	uint8_t bytes_a[LP_BLOCK_BYTES];
	uint8_t bytes_b[LP_BLOCK_BYTES];
	uint32_t idx = 0;
	for (uint64_t at = a->read.offset; at < a->read.offset + a->read.bytes; idx++) {
		uint64_t room = LP_BLOCK_BYTES - (at & (LP_BLOCK_BYTES - 1));
		uint32_t len = (uint32_t)LP_MIN(room, a->read.offset + a->read.bytes - at);
		lpi_seg_cursor_copy(&at_a, bytes_a, len);
		lpi_seg_cursor_copy(&at_b, bytes_b, len);
		if (a->read.crcs[idx] != lp_crc32c(0, bytes_a, len))
			return lpi_diff_say(diff, "data at %llu does not match its crc",
					    (unsigned long long)at);
		if (memcmp(bytes_a, bytes_b, len) != 0)
			return lpi_diff_say(diff, "data at %llu: other bytes",
					    (unsigned long long)at);
		at += len;
	}
	return true;
}

static inline bool lpi_same_read(const struct lp_store_op *a, const struct lp_store_op *b,
				 struct lpi_diff *diff)
{
	uint64_t seg_bytes = 0;
	for (uint32_t i = 0; i < a->read.seg_cnt; i++)
		seg_bytes += a->read.segs[i].len;
	return lpi_same_number(a->read.bytes, b->read.bytes, "bytes read", diff) &&
	       lpi_same_number(seg_bytes, b->read.bytes, "bytes of segments", diff) &&
	       lpi_same_number(a->read.crc_cnt, b->read.crc_cnt, "crcs", diff) &&
	       lpi_same_number(a->read.size_bytes, b->read.size_bytes, "size", diff) &&
	       lpi_same_number(a->read.version_nr, b->read.version_nr, "version", diff) &&
	       lpi_same_pieces(a, b, diff);
}

static inline bool lpi_same_item(const struct lp_list_item *a, const struct lp_list_item *b,
				 struct lpi_diff *diff)
{
	return lpi_same_bytes(&a->name, &b->name, "name in a list", diff) &&
	       lpi_same_bytes(&a->value, &b->value, "value in a list", diff) &&
	       lpi_same_number(a->ino.nr, b->ino.nr, "ino of an entry", diff) &&
	       lpi_same_number(a->type, b->type, "type of an entry", diff);
}

static inline bool lpi_same_list(const struct lp_store_op *a, const struct lp_store_op *b,
				 struct lpi_diff *diff)
{
	struct lp_list_item item_a = {.type = 0};
	struct lp_list_item item_b = {.type = 0};
	uint32_t pos_a = 0;
	uint32_t pos_b = 0;
	if (!lpi_same_number(a->list.items, b->list.items, "items of a list", diff) ||
	    !lpi_same_number(a->list.more, b->list.more, "more in a list", diff))
		return false;
	while (lp_store_list_next(a, &pos_a, &item_a) && lp_store_list_next(b, &pos_b, &item_b))
		if (!lpi_same_item(&item_a, &item_b, diff))
			return false;
	return lpi_same_number(pos_a, pos_b, "bytes of a list", diff);
}

static inline bool lpi_same_lookup(const struct lp_store_op *a, const struct lp_store_op *b,
				   struct lpi_diff *diff)
{
	return lpi_same_number(a->lookup.ino.nr, b->lookup.ino.nr, "ino found", diff) &&
	       lpi_same_number(a->lookup.type, b->lookup.type, "type found", diff) &&
	       lpi_same_number(a->lookup.insertion != 0, b->lookup.insertion != 0, "insertion",
			       diff) &&
	       lpi_same_number(a->lookup.has_attrs, b->lookup.has_attrs, "has_attrs", diff) &&
	       lpi_same_attrs(&a->lookup.attrs, &b->lookup.attrs, diff);
}

static inline bool lpi_same_get(const struct lp_store_op *a, const struct lp_store_op *b,
				struct lpi_diff *diff)
{
	const struct lp_bytes value_a = {a->get.buf, a->get.value_len};
	const struct lp_bytes value_b = {b->get.buf, b->get.value_len};
	if (a->result < 0)
		return lpi_same_number(value_a.len, value_b.len, "length of a value", diff);
	return lpi_same_bytes(&value_a, &value_b, "value", diff);
}

static inline bool lpi_same_dir_op(const struct lp_store_op *a, const struct lp_store_op *b,
				   struct lpi_diff *diff)
{
	return lpi_same_number(a->dir.entries_cnt, b->dir.entries_cnt, "entries", diff) &&
	       lpi_same_number(a->dir.name_bytes, b->dir.name_bytes, "bytes of names", diff) &&
	       lpi_same_number((uint64_t)a->dir.mtime_ns, (uint64_t)b->dir.mtime_ns, "mtime",
			       diff) &&
	       lpi_same_number((uint64_t)a->dir.ctime_ns, (uint64_t)b->dir.ctime_ns, "ctime",
			       diff) &&
	       lpi_same_number(a->dir.is_sealed, b->dir.is_sealed, "sealed", diff);
}

static inline const char *lpi_opcode_name(enum lp_store_opcode opcode)
{
	static const char *const names[LP_STORE_OPCODE_CNT] = {
		"transaction", "read", "stat", "lookup", "get", "list", "seek", "dir", "sync"};
	return names[opcode];
}

/* Of the same operation on both; seeks are held against what they find (lpi_seek_is_right()). */
static inline bool lpi_same_op(const struct lp_store_op *a, const struct lp_store_op *b,
			       struct lpi_diff *diff)
{
	if (a->opcode != LP_STORE_SEEK &&
	    !lpi_same_result(a->result, b->result, lpi_opcode_name(a->opcode), diff))
		return false;
	switch (a->opcode) {
	case LP_STORE_TXN:
		return lpi_same_txn(a, b, diff);
	case LP_STORE_READ:
		return a->result < 0 || lpi_same_read(a, b, diff);
	case LP_STORE_STAT:
		return a->result < 0 || lpi_same_attrs(&a->stat.attrs, &b->stat.attrs, diff);
	case LP_STORE_LOOKUP:
		return a->result < 0 || lpi_same_lookup(a, b, diff);
	case LP_STORE_GET:
		return lpi_same_get(a, b, diff);
	case LP_STORE_LIST:
		return a->result < 0 || lpi_same_list(a, b, diff);
	case LP_STORE_DIR:
		return lpi_same_dir_op(a, b, diff);
	case LP_STORE_SEEK:
	case LP_STORE_SYNC:
	case LP_STORE_OPCODE_CNT:
		break;
	}
	return true;
}

/* --- Data of a file --------------------------------------------------------------------------- */

/* UINT64_MAX: there is no more. */
static inline uint64_t lpi_next_data(const struct lpi_hand *hand, struct lp_ino ino,
				     uint64_t offset)
{
	struct lp_store_op op = {.opcode = LP_STORE_SEEK, .seek = {.ino = ino, .offset = offset}};
	return lpi_hand_do(hand, &op) < 0 ? UINT64_MAX : op.seek.found;
}

/* One read of both, compared. */
static inline bool lpi_same_range(const struct lpi_hand *a, const struct lpi_hand *b,
				  struct lp_ino ino, uint64_t offset, struct lpi_diff *diff)
{
	struct lp_store_op op_a = {
		.opcode = LP_STORE_READ,
		.read = {.ino = ino, .offset = offset, .length = LP_STORE_READ_MAX / 4}};
	struct lp_store_op op_b = op_a;
	(void)lpi_hand_do(a, &op_a); /* the results are compared */
	(void)lpi_hand_do(b, &op_b);
	bool is_same = lpi_same_op(&op_a, &op_b, diff);
	if (op_a.result >= 0)
		lp_store_end(a->store, &op_a);
	if (op_b.result >= 0)
		lp_store_end(b->store, &op_b);
	return is_same;
}

/* Wherever one of them says that it has data; elsewhere both say that there are zeros. */
static inline bool lpi_same_data(const struct lpi_hand *a, const struct lpi_hand *b,
				 struct lp_ino ino, struct lpi_diff *diff)
{
	for (uint64_t at = 0;;) {
		uint64_t next_a = lpi_next_data(a, ino, at);
		uint64_t next_b = lpi_next_data(b, ino, at);
		at = LP_MIN(next_a, next_b);
		if (at == UINT64_MAX)
			return true;
		if (!lpi_same_range(a, b, ino, at, diff))
			return false;
		at += LP_STORE_READ_MAX / 4;
	}
}

/* Nothing but zeros in [from, to). */
static inline bool lpi_is_zero(const struct lpi_hand *hand, struct lp_ino ino, uint64_t from,
			       uint64_t to)
{
	static uint8_t bytes[LP_BLOCK_BYTES];
	for (uint64_t at = lpi_next_data(hand, ino, from); at < to;
	     at = lpi_next_data(hand, ino, at)) {
		int64_t len = lpi_hand_read(hand, ino, at, LP_MIN(to - at, sizeof(bytes)), bytes);
		assert_true(len > 0);
		for (int64_t i = 0; i < len; i++)
			if (bytes[i] != 0)
				return false;
		at += (uint64_t)len;
	}
	return true;
}

/* Whether what a found may be so, in the file as b has it: it must not pass over data, nor find a
 * hole where there is some. */
static inline bool lpi_seek_is_right(const struct lp_store_op *a, const struct lp_store_op *b,
				     const struct lpi_hand *hand_b, struct lpi_diff *diff)
{
	struct lp_attrs attrs;
	uint64_t offset = a->seek.offset;
	uint64_t found = a->seek.found;
	int err = lpi_hand_stat(hand_b, a->seek.ino, &attrs);
	if (err < 0 || attrs.type != LP_INODE_TYPE_FILE || offset >= attrs.size_bytes)
		return lpi_same_result(a->result, b->result, "seek", diff);
	if (a->result == -ENXIO && !a->seek.hole)
		found = attrs.size_bytes;
	else if (a->result < 0 || found < offset || found > attrs.size_bytes)
		return lpi_diff_say(diff, "seek says %d, %llu", a->result,
				    (unsigned long long)found);
	uint64_t block_end = lp_align_down(found, LP_BLOCK_BYTES) + LP_BLOCK_BYTES;
	bool is_zero = a->seek.hole ? lpi_is_zero(hand_b, a->seek.ino, found, block_end)
				    : lpi_is_zero(hand_b, a->seek.ino, offset, found);
	return is_zero || lpi_diff_say(diff, "seek for %s from %llu finds %llu",
				       a->seek.hole ? "a hole" : "data", (unsigned long long)offset,
				       (unsigned long long)found);
}

/* --- Lists ------------------------------------------------------------------------------------ */

/* Page by page. */
struct lpi_lister {
	const struct lpi_hand *hand;
	struct lp_store_op op;
	uint32_t pos;
	bool started;
	uint8_t buf[LPI_SAME_LIST_BYTES];
	uint8_t last[LP_KEY_BYTES_MAX];
};

static inline void lpi_lister_init(struct lpi_lister *lister, const struct lpi_hand *hand,
				   enum lp_store_space space, uint64_t nr, struct lp_bytes prefix)
{
	lister->hand = hand;
	lister->started = false;
	lister->op = (struct lp_store_op){.opcode = LP_STORE_LIST,
					  .list = {.space = space,
						   .ino = {nr},
						   .prefix = prefix,
						   .buf = lister->buf,
						   .buf_len = sizeof(lister->buf),
						   .with_values = true}};
}

/* 1, 0 at the end, or the error. */
static inline int lpi_lister_next(struct lpi_lister *lister, struct lp_list_item *ret)
{
	struct lp_store_op *op = &lister->op;
	if (lister->started && lp_store_list_next(op, &lister->pos, ret)) {
		memcpy(lister->last, ret->name.data, ret->name.len);
		op->list.after = (struct lp_bytes){lister->last, ret->name.len};
		return 1;
	}
	if (lister->started && !op->list.more)
		return 0;
	lister->started = true;
	lister->pos = 0;
	int err = lpi_hand_do(lister->hand, op);
	if (err < 0)
		return err;
	return op->list.items == 0 ? 0 : lpi_lister_next(lister, ret);
}

struct lpi_insertions {
	uint64_t numbers[LPI_SAME_ENTRIES];
	uint32_t cnt;
};

/* Rule N4. */
static inline bool lpi_insertion_is_new(struct lpi_insertions *seen, uint64_t number,
					struct lpi_diff *diff)
{
	for (uint32_t i = 0; i < seen->cnt; i++)
		if (seen->numbers[i] == number)
			return lpi_diff_say(diff, "insertion %llu twice",
					    (unsigned long long)number);
	if (seen->cnt < LPI_SAME_ENTRIES)
		seen->numbers[seen->cnt++] = number;
	return true;
}

static inline bool lpi_same_listers(struct lpi_lister *a, struct lpi_lister *b,
				    struct lpi_diff *diff)
{
	struct lpi_insertions seen = {.cnt = 0};
	for (uint32_t i = 0; i < LPI_SAME_LIST_MAX; i++) {
		struct lp_list_item item_a = {.type = 0};
		struct lp_list_item item_b = {.type = 0};
		int err_a = lpi_lister_next(a, &item_a);
		int err_b = lpi_lister_next(b, &item_b);
		if (!lpi_same_result(err_a, err_b, "list", diff))
			return false;
		if (err_a <= 0)
			return true;
		if (!lpi_same_item(&item_a, &item_b, diff))
			return false;
		if (a->op.list.space == LP_STORE_ENTRIES &&
		    !lpi_insertion_is_new(&seen, item_a.insertion, diff))
			return false;
	}
	return lpi_diff_say(diff, "list without end");
}

/* All of one space, from beginning to end. */
static inline bool lpi_same_space(const struct lpi_hand *a, const struct lpi_hand *b,
				  enum lp_store_space space, uint64_t nr, struct lp_bytes prefix,
				  struct lpi_diff *diff)
{
	static struct lpi_lister listers[2]; /* large */
	lpi_lister_init(&listers[0], a, space, nr, prefix);
	lpi_lister_init(&listers[1], b, space, nr, prefix);
	return lpi_same_listers(&listers[0], &listers[1], diff);
}

/* --- Objects ---------------------------------------------------------------------------------- */

static inline bool lpi_same_query(const struct lpi_hand *a, const struct lpi_hand *b,
				  const struct lpi_plan *plan, struct lpi_diff *diff)
{
	struct lpi_plan_op *op_a = malloc(sizeof(*op_a));
	struct lpi_plan_op *op_b = malloc(sizeof(*op_b));
	assert_true(op_a != NULL && op_b != NULL);
	assert_true(lpi_plan_op_init(op_a, plan, a->bufs));
	assert_true(lpi_plan_op_init(op_b, plan, b->bufs));
	(void)lpi_hand_do(a, &op_a->op); /* the results are compared */
	(void)lpi_hand_do(b, &op_b->op);
	bool is_same = lpi_same_op(&op_a->op, &op_b->op, diff);
	lpi_plan_op_fini(op_a);
	lpi_plan_op_fini(op_b);
	free(op_a);
	free(op_b);
	return is_same;
}

static inline bool lpi_same_target(const struct lpi_hand *a, const struct lpi_hand *b, uint64_t nr,
				   struct lpi_diff *diff)
{
	const struct lpi_plan plan = {.opcode = LP_STORE_GET,
				      .space = LP_STORE_TARGET,
				      .ino = nr,
				      .buf_len = LP_INODE_TARGET_MAX};
	return lpi_same_query(a, b, &plan, diff);
}

static inline bool lpi_same_dir(const struct lpi_hand *a, const struct lpi_hand *b, uint64_t nr,
				struct lpi_diff *diff)
{
	const struct lpi_plan plan = {.opcode = LP_STORE_DIR, .ino = nr};
	const struct lp_bytes none = {NULL, 0};
	return lpi_same_query(a, b, &plan, diff) &&
	       lpi_same_space(a, b, LP_STORE_ENTRIES, nr, none, diff);
}

/* Also that neither has it. */
static inline bool lpi_same_inode(const struct lpi_hand *a, const struct lpi_hand *b, uint64_t nr,
				  struct lpi_diff *diff)
{
	const struct lp_bytes none = {NULL, 0};
	struct lp_attrs attrs_a;
	struct lp_attrs attrs_b;
	int err_a = lpi_hand_stat(a, (struct lp_ino){nr}, &attrs_a);
	int err_b = lpi_hand_stat(b, (struct lp_ino){nr}, &attrs_b);
	if (!lpi_same_result(err_a, err_b, "stat", diff))
		return false;
	if (err_a < 0)
		return err_a == -ENOENT || lpi_diff_say(diff, "stat says %d", err_a);
	if (!lpi_same_attrs(&attrs_a, &attrs_b, diff))
		return false;
	if (attrs_a.type == LP_INODE_TYPE_SYMLINK && !lpi_same_target(a, b, nr, diff))
		return false;
	if (attrs_a.type == LP_INODE_TYPE_FILE && !lpi_same_data(a, b, (struct lp_ino){nr}, diff))
		return false;
	return lpi_same_space(a, b, LP_STORE_XATTRS, nr, none, diff) &&
	       lpi_same_space(a, b, LP_STORE_OMAP, nr, none, diff);
}

static inline bool lpi_same_record(const struct lpi_hand *a, const struct lpi_hand *b,
				   unsigned name_idx, struct lpi_diff *diff)
{
	const struct lpi_plan plan = {.opcode = LP_STORE_GET,
				      .space = LP_STORE_RECORDS,
				      .name_idx = (uint8_t)name_idx,
				      .buf_len = LP_STORE_VALUE_MAX};
	return lpi_same_query(a, b, &plan, diff);
}

#endif
