/* SPDX-License-Identifier: Apache-2.0 */
/* Reads, and what is held against them: with verify every byte, its checksum, and its generation.
 */
#include <errno.h>
#include <inttypes.h>

#include "base/crc32c.h"
#include "cli/storebench/store_bench_impl.h"

uint32_t *lpi_bench_generation(struct lpi_benchmark *bench, uint64_t object, uint64_t offset)
{
	LP_ASSERT(object < bench->options.objects_cnt);
	return &bench->generations[object * bench->cells_per_object + offset / bench->cell_bytes];
}

void lpi_bench_read(struct lpi_bench_unit *unit, struct lp_ino ino)
{
	struct lpi_benchmark *bench = unit->bench;
	uint32_t cnt = 0;
	for (uint64_t at = 0; at < unit->length; at += LP_STORE_READ_MAX) {
		struct lp_store_op *op = &unit->parts[cnt++].op;
		op->opcode = LP_STORE_READ;
		op->read.from_device = false; /* it may have been a transaction */
		op->read.into = NULL;
		op->read.rank = LP_BUF_REQUEST;
		op->read.ino = ino;
		op->read.offset = unit->offset + at;
		op->read.length = LP_MIN(LP_STORE_READ_MAX, unit->length - at);
	}
	unit->part_cnt = cnt;
	unit->is_write = false;
	if (!bench->options.verify)
		return;
	for (uint64_t at = 0; at < unit->length; at += bench->cell_bytes) {
		unit->seen[at / bench->cell_bytes] =
			(unit->object & LPI_BENCH_CREATED) != 0
				? 1
				: *lpi_bench_generation(bench, unit->object, unit->offset + at);
	}
}

static int wrong_data(struct lpi_bench_unit *unit, uint64_t at, const char *what)
{
	return lpi_bench_fail(unit->bench, -EBADMSG, "object %" PRIu64 "%s at %" PRIu64 ": %s",
			      unit->object & ~LPI_BENCH_CREATED,
			      (unit->object & LPI_BENCH_CREATED) != 0 ? " of those created" : "",
			      unit->offset + at, what);
}

/* A read may show what was written after it was submitted, never less than before. */
static int check_cell(struct lpi_bench_unit *unit, const uint8_t *bytes, uint64_t at)
{
	struct lpi_benchmark *bench = unit->bench;
	struct lpi_bench_cell cell;
	uint32_t low = unit->seen[at / bench->cell_bytes];
	uint32_t high = low;
	if (lpi_bench_cell_read(bytes, bench->cell_bytes, &cell) < 0)
		return wrong_data(unit, at, "the bytes read are nothing that was ever written");
	if (cell.object != unit->object || cell.place != unit->offset + at)
		return wrong_data(unit, at, "the bytes read belong to another place");
	if ((unit->object & LPI_BENCH_CREATED) == 0)
		high = *lpi_bench_generation(bench, unit->object, unit->offset + at);
	if (cell.run != bench->options.run_nr)
		return low == 0 ? 0 : wrong_data(unit, at, "the bytes read are of a former run");
	if (cell.generation < low)
		return wrong_data(unit, at, "the bytes read are old");
	if (cell.generation > high)
		return wrong_data(unit, at, "the bytes read were not written yet");
	return 0;
}

/* One piece that the grid of blocks cuts: its checksum, and the cells in it. */
static int check_piece(struct lpi_bench_unit *unit, const struct lp_store_op *op, uint64_t at,
		       uint32_t crc)
{
	uint8_t bytes[LP_BLOCK_BYTES];
	size_t len = (size_t)LP_MIN(LP_BLOCK_BYTES, op->read.length - at);
	uint64_t base = op->read.offset - unit->offset + at;
	int err = 0;
	lpi_bench_gather(op->read.segs, at, bytes, len);
	if (lp_crc32c(0, bytes, len) != crc)
		return wrong_data(unit, base, "the bytes read do not match their checksum");
	for (size_t i = 0; i < len && err == 0; i += unit->bench->cell_bytes)
		err = check_cell(unit, bytes + i, base + i);
	return err;
}

static int check_part(struct lpi_bench_unit *unit, const struct lp_store_op *op)
{
	int err = 0;
	uint64_t at = op->read.offset - unit->offset;
	if (op->read.bytes != op->read.length)
		return wrong_data(unit, at, "the object ends too early");
	if (op->read.crc_cnt != lp_bytes_to_blocks_up(op->read.length))
		return wrong_data(unit, at, "not as many checksums as blocks");
	for (uint32_t i = 0; i < op->read.crc_cnt && err == 0; i++)
		err = check_piece(unit, op, i * LP_BLOCK_BYTES, op->read.crcs[i]);
	return err;
}

int lpi_bench_check_read(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	int err = lpi_bench_parts_result(unit);
	for (uint32_t i = 0; i < unit->part_cnt && err == 0; i++) {
		const struct lp_store_op *op = &unit->parts[i].op;
		if (bench->options.verify && op->opcode == LP_STORE_READ)
			err = check_part(unit, op);
	}
	return err;
}

int lpi_bench_check_stat(struct lpi_benchmark *bench, struct lpi_bench_unit *unit)
{
	int err = lpi_bench_parts_result(unit);
	const struct lp_attrs *attrs = &unit->parts[0].op.stat.attrs;
	if (err == 0 && (attrs->size_bytes != bench->options.object_bytes ||
			 attrs->type != LP_INODE_TYPE_FILE || attrs->nlink != 1))
		err = wrong_data(unit, 0, "its attributes are wrong");
	return err;
}
