/* SPDX-License-Identifier: Apache-2.0 */
/* What the measured operations need, made before them; and after them read back, and removed.
 *
 * An object is created with its entry and its first chunk in one transaction, and filled from front
 * to back, so an interrupted preparation is gone on with: each object's size says how far it
 * came. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/endian.h"
#include "base/error.h"
#include "cli/storebench/store_bench_impl.h"
#include "store/record/keys.h"

#define LIST_BYTES 65536u
#define FILL_DEPTH 16u

static uint32_t depth_of(const struct lpi_benchmark *bench, uint32_t wanted)
{
	return LP_MIN(bench->options.depth, wanted);
}

/* --- The directory ---------------------------------------------------------------------------- */

static struct lp_bytes record_key(struct lp_key *key)
{
	lp_key_of_store(key, "store-bench");
	return (struct lp_bytes){key->bytes, (uint32_t)key->len};
}

static struct lp_change record_change(enum lp_change_type type, struct lp_bytes key,
				      struct lp_bytes value)
{
	return (struct lp_change){.type = type, .named = {.name = key, .value = value}};
}

/* 0 and *ret_found false when there is none yet. */
static int find_dir(struct lpi_benchmark *bench, bool *ret_found)
{
	struct lp_key key;
	uint8_t value[8];
	struct lpi_bench_call call = {.op = {.opcode = LP_STORE_GET}};
	call.op.get.space = LP_STORE_RECORDS;
	call.op.get.name = record_key(&key);
	call.op.get.buf = value;
	call.op.get.buf_len = sizeof(value);
	int err = lpi_bench_call(bench, &call);
	*ret_found = err == 0;
	if (err == -ENOENT || err == -ENODATA)
		return 0;
	if (err == 0 && call.op.get.value_len != sizeof(value))
		err = -EUCLEAN;
	if (err < 0)
		return lpi_bench_fail(bench, err, "the record of former runs: %s",
				      lp_strerror(err));
	bench->dir.nr = lp_get_le64(value);
	return 0;
}

static int make_dir(struct lpi_benchmark *bench)
{
	struct lpi_bench_unit *unit = &bench->units[0];
	struct lpi_bench_call call = {.op = {.opcode = LP_STORE_TXN}};
	struct lp_key key;
	uint8_t value[8];
	struct lp_bytes none = {NULL, 0};
	bench->dir = lp_store_new_ino(bench->store);
	lp_put_le64(value, bench->dir.nr);
	lpi_bench_attrs(unit, LP_INODE_TYPE_DIR);
	const struct lp_change changes[] = {
		record_change(LP_GUARD_NO_RECORD, record_key(&key), none),
		{.type = LP_CHANGE_CREATE, .ino = bench->dir, .inode = {.attrs = &unit->attrs}},
		record_change(LP_CHANGE_RECORD, record_key(&key), (struct lp_bytes){value, 8}),
	};
	call.op.txn.changes = changes;
	call.op.txn.change_cnt = LP_ARRAY_SIZE(changes);
	int err = lpi_bench_call(bench, &call);
	return err == 0 ? 0
			: lpi_bench_fail(bench, err, "cannot make the directory: %s",
					 lp_strerror(err));
}

/* --- What is there ---------------------------------------------------------------------------- */

static void found_entry(struct lpi_benchmark *bench, const struct lp_list_item *item)
{
	uint64_t index = lpi_bench_object_index(bench, item->name);
	if (index >= bench->options.objects_cnt)
		return;
	/* Shorter than a chunk: its one transaction has filled it. */
	bench->objects[index] = (struct lpi_bench_object){
		.ino = item->ino,
		.have_bytes = LP_MIN(bench->options.object_bytes, LPI_BENCH_CHUNK),
	};
}

static int find_objects(struct lpi_benchmark *bench)
{
	char prefix[LPI_BENCH_NAME_BYTES];
	char last[LP_KEY_NAME_MAX];
	struct lpi_bench_call call = {.op = {.opcode = LP_STORE_LIST}};
	struct lp_store_op *op = &call.op;
	void *buf = malloc(LIST_BYTES);
	int err = buf == NULL ? -ENOMEM : 0;
	lpi_bench_object_prefix(bench, prefix);
	op->list.space = LP_STORE_ENTRIES;
	op->list.ino = bench->dir;
	op->list.prefix = (struct lp_bytes){prefix, (uint32_t)strlen(prefix)};
	op->list.buf = buf;
	op->list.buf_len = LIST_BYTES;
	op->list.more = err == 0;
	while (err == 0 && op->list.more) {
		struct lp_list_item item = {.name = {NULL, 0}};
		uint32_t pos = 0;
		err = lpi_bench_call(bench, &call);
		while (err == 0 && lp_store_list_next(op, &pos, &item))
			found_entry(bench, &item);
		if (err == 0 && item.name.data != NULL) {
			memcpy(last, item.name.data, item.name.len);
			op->list.after = (struct lp_bytes){last, item.name.len};
		}
	}
	free(buf);
	return err == 0 ? 0
			: lpi_bench_fail(bench, err, "cannot list the objects: %s",
					 lp_strerror(err));
}

static enum lpi_bench_next next_size(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	while (bench->cursor < bench->options.objects_cnt &&
	       bench->objects[bench->cursor].ino.nr == 0)
		bench->cursor++;
	if (bench->cursor >= bench->options.objects_cnt)
		return LPI_BENCH_END;
	unit->object = bench->cursor++;
	unit->is_write = false;
	unit->part_cnt = 1;
	unit->parts[0].op.opcode = LP_STORE_STAT;
	unit->parts[0].op.stat.ino = bench->objects[unit->object].ino;
	return LPI_BENCH_SUBMIT;
}

static int done_size(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	int err = lpi_bench_parts_result(unit);
	if (err == 0)
		bench->objects[unit->object].have_bytes = unit->parts[0].op.stat.attrs.size_bytes;
	return err;
}

/* --- Making objects --------------------------------------------------------------------------- */

static enum lpi_bench_next fill_object(struct lpi_bench_unit *unit)
{
	struct lpi_bench_object *object = &unit->bench->objects[unit->object];
	struct lp_payload payload;
	if (!lpi_bench_payload(unit, &payload))
		return LPI_BENCH_LATER;
	if (object->ino.nr == 0) {
		object->ino = lp_store_new_ino(unit->bench->store);
		lpi_bench_create(unit, unit->object, object->ino, &payload);
	} else {
		unit->changes[0] = lpi_bench_write(unit, object->ino, &payload);
		lpi_bench_txn(unit, 1);
	}
	object->have_bytes += unit->length;
	return LPI_BENCH_SUBMIT;
}

/* The first chunk creates the object; those after it may be submitted at once, for the store keeps
 * the order per inode. */
static enum lpi_bench_next next_fill(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	uint64_t bytes = bench->options.object_bytes;
	while (bench->cursor < bench->options.objects_cnt &&
	       bench->objects[bench->cursor].have_bytes >= bytes)
		bench->cursor++;
	if (bench->cursor >= bench->options.objects_cnt)
		return LPI_BENCH_END;
	unit->object = bench->cursor;
	/* A chunk that ended elsewhere was not one of ours: it is written again. */
	unit->offset = lp_align_down(bench->objects[bench->cursor].have_bytes, LPI_BENCH_CHUNK);
	unit->length = LP_MIN(LPI_BENCH_CHUNK, bytes - unit->offset);
	bench->objects[bench->cursor].have_bytes = unit->offset;
	return fill_object(unit);
}

int lpi_bench_prepare(struct lpi_benchmark *bench, bool *ret_made)
{
	static const struct lpi_bench_step sizes = {next_size, done_size};
	static const struct lpi_bench_step fill = {next_fill, NULL};
	bool found = false;
	int err = find_dir(bench, &found);
	*ret_made = !found;
	if (err == 0 && !found)
		err = make_dir(bench);
	if (err == 0 && found && bench->objects != NULL)
		err = find_objects(bench);
	if (err == 0 && bench->options.object_bytes > LPI_BENCH_CHUNK && bench->objects != NULL)
		err = lpi_bench_run(bench, &sizes, bench->options.depth);
	if (err == 0 && bench->objects != NULL) {
		uint32_t wanted =
			bench->options.object_bytes > LP_BUF_MEDIUM ? FILL_DEPTH : UINT32_MAX;
		err = lpi_bench_run(bench, &fill, depth_of(bench, wanted));
		*ret_made = *ret_made || bench->result.ops > 0;
	}
	return err;
}

/* --- Reading back ----------------------------------------------------------------------------- */

/* Prepared objects from front to back; what was deleted is gone. */
static enum lpi_bench_next next_back(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	uint64_t places = bench->options.object_bytes / bench->options.size_bytes;
	uint64_t index = bench->cursor / places;
	if (index >= bench->options.objects_cnt)
		return LPI_BENCH_END;
	unit->object = index;
	unit->offset = bench->cursor++ % places * bench->options.size_bytes;
	unit->length = bench->options.size_bytes;
	if (index >= bench->deleted_cnt) {
		lpi_bench_read(unit, bench->objects[index].ino);
		return LPI_BENCH_SUBMIT;
	}
	unit->length = 0;
	unit->is_write = false;
	unit->part_cnt = 1;
	unit->parts[0].op.opcode = LP_STORE_STAT;
	unit->parts[0].op.stat.ino = bench->objects[index].ino;
	lpi_bench_lookup(unit, index);
	return LPI_BENCH_SUBMIT;
}

static int done_back(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	if (unit->object >= bench->deleted_cnt)
		return lpi_bench_check_read(bench, unit);
	for (uint32_t i = 0; i < unit->part_cnt; i++) {
		if (unit->parts[i].op.result != -ENOENT)
			return lpi_bench_fail(bench, -EUCLEAN,
					      "object %" PRIu64 " was deleted, and is still there",
					      unit->object);
	}
	return 0;
}

static enum lpi_bench_next next_created(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	if (bench->cursor >= bench->created_cnt)
		return LPI_BENCH_END;
	unit->object = bench->cursor++ | LPI_BENCH_CREATED;
	unit->offset = 0;
	unit->length = bench->options.size_bytes;
	/* The entry comes after the parts of the read. */
	lpi_bench_read(unit, lpi_bench_object_ino(bench, unit->object));
	if (unit->part_cnt < LPI_BENCH_PARTS)
		lpi_bench_lookup(unit, unit->object);
	return LPI_BENCH_SUBMIT;
}

static int done_created(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	int err = lpi_bench_check_read(bench, unit);
	struct lp_ino ino = lpi_bench_object_ino(bench, unit->object);
	for (uint32_t i = 0; i < unit->part_cnt && err == 0; i++) {
		const struct lp_store_op *op = &unit->parts[i].op;
		if (op->opcode == LP_STORE_LOOKUP && op->lookup.ino.nr != ino.nr)
			err = lpi_bench_fail(bench, -EUCLEAN,
					     "the entry of created object %" PRIu64
					     " leads to another inode",
					     unit->object & ~LPI_BENCH_CREATED);
	}
	return err;
}

int lpi_bench_check(struct lpi_benchmark *bench)
{
	static const struct lpi_bench_step back = {next_back, done_back};
	static const struct lpi_bench_step created = {next_created, done_created};
	int err = 0;
	if (!bench->options.verify)
		return 0;
	if (bench->objects != NULL)
		err = lpi_bench_run(bench, &back, bench->options.depth);
	if (err == 0)
		err = lpi_bench_run(bench, &created, bench->options.depth);
	return err;
}

/* --- Removing --------------------------------------------------------------------------------- */

static enum lpi_bench_next next_remove(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	uint64_t prepared = bench->objects != NULL ? bench->options.objects_cnt : 0;
	if (bench->deleted_cnt < prepared) {
		lpi_bench_delete(unit, bench->deleted_cnt++);
		return LPI_BENCH_SUBMIT;
	}
	if (bench->cursor >= bench->created_cnt)
		return LPI_BENCH_END;
	lpi_bench_delete(unit, bench->cursor++ | LPI_BENCH_CREATED);
	return LPI_BENCH_SUBMIT;
}

/* The directory goes too, unless it holds objects of other runs. */
static int remove_dir(struct lpi_benchmark *bench)
{
	struct lpi_bench_call call = {.op = {.opcode = LP_STORE_TXN}};
	struct lp_key key;
	const struct lp_change changes[] = {
		{.type = LP_GUARD_EMPTY, .ino = bench->dir},
		{.type = LP_CHANGE_REMOVE, .ino = bench->dir},
		record_change(LP_CHANGE_RECORD, record_key(&key), (struct lp_bytes){NULL, 0}),
	};
	call.op.txn.changes = changes;
	call.op.txn.change_cnt = LP_ARRAY_SIZE(changes);
	int err = lpi_bench_call(bench, &call);
	if (err == 0 || err == -ENOTEMPTY)
		return 0;
	return lpi_bench_fail(bench, err, "cannot remove the directory: %s", lp_strerror(err));
}

int lpi_bench_clean(struct lpi_benchmark *bench)
{
	static const struct lpi_bench_step removing = {next_remove, NULL};
	int err = lpi_bench_run(bench, &removing, bench->options.depth);
	return err == 0 ? remove_dir(bench) : err;
}
