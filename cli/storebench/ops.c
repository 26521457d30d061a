/* SPDX-License-Identifier: Apache-2.0 */
/* The operations that are measured: how each is put together. What they read
 * is judged in storebench/read.c.
 *
 * Objects are named by index times an odd number, so that their names come in no order, as those
 * of real objects do, and the index can be had back from the name. */
#include "cli/storebench/store_bench_impl.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"

#define SCRAMBLE   UINT64_C(0x9e3779b97f4a7c15)
#define UNSCRAMBLE UINT64_C(0xf1de83e19937733d)
static_assert(SCRAMBLE * UNSCRAMBLE == 1, "each undoes the other");

/* --- Names ------------------------------------------------------------------------------------ */

void lpi_bench_object_prefix(const struct lpi_benchmark *bench, char *ret_prefix)
{
	const struct lpi_bench_options *options = &bench->options;
	if (options->verify)
		(void)snprintf(ret_prefix, LPI_BENCH_NAME_BYTES,
			       "verified-%" PRIx64 "-%" PRIx32 "-", options->object_bytes,
			       bench->cell_bytes);
	else
		(void)snprintf(ret_prefix, LPI_BENCH_NAME_BYTES, "object-%" PRIx64 "-",
			       options->object_bytes);
}

void lpi_bench_object_name(const struct lpi_benchmark *bench, uint64_t index, char *ret_name)
{
	uint64_t number = (index & ~LPI_BENCH_CREATED) * SCRAMBLE;
	size_t len = 0;
	if ((index & LPI_BENCH_CREATED) != 0) {
		(void)snprintf(ret_name, LPI_BENCH_NAME_BYTES, "created-%016" PRIx64 "-%016" PRIx64,
			       bench->options.run_nr, number);
		return;
	}
	lpi_bench_object_prefix(bench, ret_name);
	len = strlen(ret_name);
	(void)snprintf(ret_name + len, LPI_BENCH_NAME_BYTES - len, "%016" PRIx64, number);
}

uint64_t lpi_bench_object_index(const struct lpi_benchmark *bench, struct lp_bytes name)
{
	char text[LPI_BENCH_NAME_BYTES];
	char *end;
	lpi_bench_object_prefix(bench, text);
	size_t prefix = strlen(text);
	if (name.len != prefix + 16 || memcmp(text, name.data, prefix) != 0)
		return UINT64_MAX;
	memcpy(text, (const char *)name.data + prefix, 16);
	text[16] = '\0';
	uint64_t number = strtoull(text, &end, 16);
	return end == text + 16 ? number * UNSCRAMBLE : UINT64_MAX;
}

struct lp_ino lpi_bench_object_ino(const struct lpi_benchmark *bench, uint64_t index)
{
	if ((index & LPI_BENCH_CREATED) == 0)
		return bench->objects[index].ino;
	index &= ~LPI_BENCH_CREATED;
	LP_ASSERT(index < bench->created_cnt);
	return bench->created[index / LPI_BENCH_PIECE][index % LPI_BENCH_PIECE];
}

static struct lp_bytes name_of(struct lpi_bench_unit *unit, uint64_t index)
{
	lpi_bench_object_name(unit->bench, index, unit->name);
	return (struct lp_bytes){unit->name, (uint32_t)strlen(unit->name)};
}

/* --- Payloads --------------------------------------------------------------------------------- */

static bool take_buffers(struct lpi_bench_unit *unit)
{
	uint64_t left = unit->length;
	for (uint32_t i = 0; left > 0; i++) {
		LP_ASSERT(i < LPI_BENCH_PATTERN_BUFS && unit->bufs[i] == NULL);
		uint32_t some = (uint32_t)LP_MIN(left, (uint64_t)LP_BUF_LARGE);
		unit->bufs[i] = lp_buf_new(unit->bench->bufs, some);
		if (unit->bufs[i] == NULL)
			break;
		unit->segs[i] = (struct lp_seg){unit->bufs[i], 0, some};
		left -= some;
	}
	for (uint32_t i = 0; left > 0 && i < LPI_BENCH_PATTERN_BUFS; i++) {
		lp_buf_put(unit->bufs[i]);
		unit->bufs[i] = NULL;
	}
	return left == 0;
}

static void fill_cell(struct lpi_bench_unit *unit, uint64_t at)
{
	struct lpi_benchmark *bench = unit->bench;
	struct lpi_bench_cell cell = {.run = bench->options.run_nr,
				      .object = unit->object,
				      .place = unit->offset + at,
				      .generation = 1};
	if ((unit->object & LPI_BENCH_CREATED) == 0)
		cell.generation = ++*lpi_bench_generation(bench, unit->object, cell.place);
	uint8_t *to = unit->bufs[at / LP_BUF_LARGE]->data + at % LP_BUF_LARGE;
	lpi_bench_cell_fill(to, bench->cell_bytes, &cell);
}

static bool verified_payload(struct lpi_bench_unit *unit, struct lp_payload *ret_payload)
{
	uint32_t cnt = 0;
	if (!take_buffers(unit))
		return false;
	for (uint64_t at = 0; at < unit->length; at += unit->bench->cell_bytes)
		fill_cell(unit, at);
	for (uint64_t at = 0; at < unit->length; at += LP_BLOCK_BYTES) {
		const uint8_t *piece = unit->bufs[at / LP_BUF_LARGE]->data + at % LP_BUF_LARGE;
		unit->crcs[cnt++] = lp_crc32c(0, piece, LP_MIN(LP_BLOCK_BYTES, unit->length - at));
	}
	*ret_payload = (struct lp_payload){
		.segs = unit->segs,
		.crcs = unit->crcs,
		.seg_cnt = (uint32_t)((unit->length + LP_BUF_LARGE - 1) / LP_BUF_LARGE),
		.crc_cnt = cnt,
	};
	return true;
}

bool lpi_bench_payload(struct lpi_bench_unit *unit, struct lp_payload *ret_payload)
{
	/* Else the grid of blocks would cut it into other pieces. */
	LP_ASSERT(unit->offset % LP_BLOCK_BYTES + LP_MIN(unit->length, LP_BLOCK_BYTES) <=
		  LP_BLOCK_BYTES);
	if (unit->bench->options.verify)
		return verified_payload(unit, ret_payload);
	lpi_bench_pattern_take(&unit->bench->pattern, unit->length, unit->segs, &unit->one_crc,
			       ret_payload);
	return true;
}

/* --- Transactions ----------------------------------------------------------------------------- */

static int64_t wall_ns(const struct lpi_benchmark *bench)
{
	return bench->wall_base_ns + (int64_t)lp_reactor_now_ns(bench->reactor);
}

struct lp_change lpi_bench_named(enum lp_change_type type, struct lp_ino ino, struct lp_bytes name,
				 struct lp_ino target)
{
	return (struct lp_change){
		.type = type,
		.ino = ino,
		.named = {.name = name, .target = target, .target_type = LP_INODE_TYPE_FILE},
	};
}

void lpi_bench_attrs(struct lpi_bench_unit *unit, enum lp_inode_type type)
{
	int64_t now_ns = wall_ns(unit->bench);
	unit->attrs = (struct lp_attrs){
		.atime_ns = now_ns,
		.mtime_ns = now_ns,
		.ctime_ns = now_ns,
		.btime_ns = now_ns,
		.parent = unit->bench->dir,
		.nlink = type == LP_INODE_TYPE_DIR ? 2 : 1,
		.mode = type == LP_INODE_TYPE_DIR ? 0755 : 0644,
		.type = (uint8_t)type,
	};
}

struct lp_change lpi_bench_write(const struct lpi_bench_unit *unit, struct lp_ino ino,
				 const struct lp_payload *payload)
{
	return (struct lp_change){
		.type = LP_CHANGE_WRITE,
		.ino = ino,
		.data = {.offset = unit->offset,
			 .length = unit->length,
			 .payload = *payload,
			 .path = LP_PATH_AUTO},
	};
}

void lpi_bench_txn(struct lpi_bench_unit *unit, uint32_t cnt)
{
	LP_ASSERT(cnt > 0 && cnt <= LPI_BENCH_CHANGES);
	struct lp_store_op *op = &unit->parts[0].op;
	op->opcode = LP_STORE_TXN;
	op->txn.changes = unit->changes;
	op->txn.change_cnt = cnt;
	op->txn.ack = LP_ACK_DURABLE;
	unit->part_cnt = 1;
	unit->is_write = true;
}

static enum lpi_bench_next overwrite(struct lpi_bench_unit *unit)
{
	struct lp_ino ino = lpi_bench_object_ino(unit->bench, unit->object);
	struct lp_payload payload;
	if (!lpi_bench_payload(unit, &payload))
		return LPI_BENCH_LATER;
	unit->attrs.mtime_ns = wall_ns(unit->bench);
	unit->attrs.ctime_ns = unit->attrs.mtime_ns;
	unit->changes[0] = lpi_bench_write(unit, ino, &payload);
	unit->changes[1] = (struct lp_change){
		.type = LP_CHANGE_SET,
		.ino = ino,
		.inode = {.attrs = &unit->attrs, .mask = LP_ATTR_MTIME | LP_ATTR_CTIME},
	};
	lpi_bench_txn(unit, 2);
	return LPI_BENCH_SUBMIT;
}

void lpi_bench_create(struct lpi_bench_unit *unit, uint64_t index, struct lp_ino ino,
		      const struct lp_payload *payload)
{
	struct lpi_benchmark *bench = unit->bench;
	struct lp_bytes name = name_of(unit, index);
	lpi_bench_attrs(unit, LP_INODE_TYPE_FILE);
	unit->changes[0] = lpi_bench_named(LP_GUARD_NO_ENTRY, bench->dir, name, (struct lp_ino){0});
	unit->changes[1] = (struct lp_change){
		.type = LP_CHANGE_CREATE,
		.ino = ino,
		.inode = {.attrs = &unit->attrs, .name = name},
	};
	unit->changes[2] = lpi_bench_write(unit, ino, payload);
	unit->changes[3] = lpi_bench_named(LP_CHANGE_ENTRY_SET, bench->dir, name, ino);
	lpi_bench_txn(unit, 4);
}

/* Only when it is sure to be submitted: the number is in the names to come. */
static int remember_created(struct lpi_benchmark *bench, struct lp_ino ino)
{
	uint64_t index = bench->created_cnt;
	struct lp_ino **piece = &bench->created[index / LPI_BENCH_PIECE];
	if (*piece == NULL)
		*piece = malloc(LPI_BENCH_PIECE * sizeof(**piece));
	if (*piece == NULL)
		return -ENOMEM;
	(*piece)[index % LPI_BENCH_PIECE] = ino;
	bench->created_cnt++;
	return 0;
}

static enum lpi_bench_next create(struct lpi_bench_unit *unit)
{
	struct lpi_benchmark *bench = unit->bench;
	struct lp_payload payload;
	unit->object = LPI_BENCH_CREATED | bench->created_cnt;
	unit->offset = 0;
	if (bench->created_cnt == LPI_BENCH_OBJECTS_MAX)
		return LPI_BENCH_END;
	if (!lpi_bench_payload(unit, &payload))
		return LPI_BENCH_LATER;
	struct lp_ino ino = lp_store_new_ino(bench->store);
	if (remember_created(bench, ino) < 0) {
		bench->error = lpi_bench_fail(bench, -ENOMEM, "no memory for what was created");
		return LPI_BENCH_END;
	}
	lpi_bench_create(unit, unit->object, ino, &payload);
	return LPI_BENCH_SUBMIT;
}

void lpi_bench_delete(struct lpi_bench_unit *unit, uint64_t index)
{
	struct lpi_benchmark *bench = unit->bench;
	struct lp_ino ino = lpi_bench_object_ino(bench, index);
	struct lp_bytes name = name_of(unit, index);
	unit->object = index;
	unit->offset = 0;
	unit->length = 0;
	unit->changes[0] = lpi_bench_named(LP_GUARD_ENTRY, bench->dir, name, ino);
	unit->changes[1] = lpi_bench_named(LP_CHANGE_ENTRY_REMOVE, bench->dir, name, ino);
	unit->changes[2] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
	lpi_bench_txn(unit, 3);
}

void lpi_bench_lookup(struct lpi_bench_unit *unit, uint64_t index)
{
	LP_ASSERT(unit->part_cnt < LPI_BENCH_PARTS);
	struct lp_store_op *op = &unit->parts[unit->part_cnt++].op;
	op->opcode = LP_STORE_LOOKUP;
	op->lookup.dir = unit->bench->dir;
	op->lookup.name = name_of(unit, index);
}

/* --- What comes next -------------------------------------------------------------------------- */

static bool is_over(struct lpi_benchmark *bench)
{
	if (bench->started >= bench->ops_max || lp_reactor_now_ns(bench->reactor) >= bench->end_ns)
		return true;
	bench->started++;
	return false;
}

static void pick_random(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	uint64_t places = bench->options.object_bytes / bench->options.size_bytes;
	unit->object = lp_prng_below(&bench->prng, bench->options.objects_cnt);
	unit->offset = lp_prng_below(&bench->prng, places) * bench->options.size_bytes;
	unit->length = bench->options.size_bytes;
}

static void pick_next(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	uint64_t places = bench->options.object_bytes / bench->options.size_bytes;
	uint64_t at = bench->cursor++ % (places * bench->options.objects_cnt);
	unit->object = at / places;
	unit->offset = at % places * bench->options.size_bytes;
	unit->length = bench->options.size_bytes;
}

static enum lpi_bench_next read_place(struct lpi_bench_unit *unit)
{
	lpi_bench_read(unit, lpi_bench_object_ino(unit->bench, unit->object));
	return LPI_BENCH_SUBMIT;
}

static enum lpi_bench_next next_access(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	enum lpi_bench_kind kind = bench->options.kind;
	bool write = kind == LPI_BENCH_OVERWRITE || kind == LPI_BENCH_SEQWRITE;
	if (is_over(bench))
		return LPI_BENCH_END;
	if (kind == LPI_BENCH_SEQREAD || kind == LPI_BENCH_SEQWRITE)
		pick_next(bench, unit);
	else
		pick_random(bench, unit);
	if (kind == LPI_BENCH_MIXED)
		write = lp_prng_chance(&bench->prng, 3, 10);
	enum lpi_bench_next next = write ? overwrite(unit) : read_place(unit);
	if (next == LPI_BENCH_LATER) {
		bench->started--;
		bench->cursor -= kind == LPI_BENCH_SEQWRITE;
	}
	return next;
}

static enum lpi_bench_next next_create(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	if (is_over(bench))
		return LPI_BENCH_END;
	unit->length = bench->options.size_bytes;
	enum lpi_bench_next next = create(unit);
	if (next == LPI_BENCH_LATER)
		bench->started--;
	return next;
}

static enum lpi_bench_next next_delete(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	if (bench->deleted_cnt >= bench->options.objects_cnt || is_over(bench))
		return LPI_BENCH_END;
	lpi_bench_delete(unit, bench->deleted_cnt++);
	return LPI_BENCH_SUBMIT;
}

static enum lpi_bench_next next_stat(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	if (is_over(bench))
		return LPI_BENCH_END;
	pick_random(bench, unit);
	unit->offset = 0;
	unit->length = 0;
	unit->is_write = false;
	unit->part_cnt = 1;
	unit->parts[0].op.opcode = LP_STORE_STAT;
	unit->parts[0].op.stat.ino = lpi_bench_object_ino(bench, unit->object);
	return LPI_BENCH_SUBMIT;
}

const struct lpi_bench_step lpi_bench_steps[LPI_BENCH_KIND_CNT] = {
	[LPI_BENCH_OVERWRITE] = {next_access, NULL},
	[LPI_BENCH_CREATE] = {next_create, NULL},
	[LPI_BENCH_READ] = {next_access, lpi_bench_check_read},
	[LPI_BENCH_SEQWRITE] = {next_access, NULL},
	[LPI_BENCH_SEQREAD] = {next_access, lpi_bench_check_read},
	[LPI_BENCH_DELETE] = {next_delete, NULL},
	[LPI_BENCH_STAT] = {next_stat, lpi_bench_check_stat},
	[LPI_BENCH_MIXED] = {next_access, lpi_bench_check_read},
};
