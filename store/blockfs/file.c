/* SPDX-License-Identifier: Apache-2.0 */
/* Writers of files.
 *
 * A writer collects in a buffer that begins on a block. A full buffer is written to newly allocated
 * blocks, without flush. Sync, in this order (rule L8):
 *   1. write the whole blocks of the buffer; what is left, less than a block, is the tail
 *   2. write a crc table, when the crcs have become many
 *   3. flush every device written to (or have written through, when it was little)
 *   4. one journal record: the new blocks, their crcs, the tail and the length
 *   5. let readers see it
 * The tail is in the record, so that no acknowledged block is ever written again, and the blocks a
 * crash cannot have damaged are those that a durable record names. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/error.h"
#include "store/blockfs/impl.h"

/* Written through instead of flushed, when nothing else waits for a flush. */
#define THROUGH_BYTES_MAX (UINT64_C(64) << 10)
/* With so many crcs a file gets a table; a finished one earlier, for its record stays. */
#define TABLE_CRCS_MIN          256u
#define TABLE_CRCS_MIN_FINISHED 64u
/* Blocks asked for at once, for a short and a long file. */
#define WANT_SHORT_BLOCKS 16u
#define SHORT_FILE_BLOCKS 64u

/* --- Writing blocks -------------------------------------------------------------------------- */

static int device_write(struct lp_blockfs *fs, struct lpi_run run, const void *buf, bool through)
{
	uint64_t len = run.cnt * LP_BLOCK_BYTES;
	lpi_count(&fs->write_cnt, 1);
	lpi_count(&fs->write_bytes, len);
	return lp_bdev_write_sync(fs->space.tiers[run.tier].bdev, buf, len,
				  run.block * LP_BLOCK_BYTES, through);
}

static int pending_reserve(struct lp_blockfs_writer *writer, size_t block_cnt)
{
	int err = lpi_map_reserve(&writer->pending, 1);
	if (err < 0 || writer->crc_room - writer->crc_cnt >= block_cnt)
		return err;
	size_t room = LP_MAX(writer->crc_cnt + block_cnt, writer->crc_room * 2);
	uint32_t *crcs = reallocarray(writer->crcs, room, sizeof(crcs[0]));
	if (crcs == NULL)
		return -ENOMEM;
	writer->crcs = crcs;
	writer->crc_room = room;
	return 0;
}

static uint32_t want_blocks(const struct lp_blockfs_writer *writer, uint32_t block_cnt, bool last)
{
	uint64_t before = writer->file->block_cnt + writer->crc_cnt;
	if (last)
		return block_cnt;
	return LP_MAX(block_cnt, before < SHORT_FILE_BLOCKS ? WANT_SHORT_BLOCKS : LPI_BUF_BLOCKS);
}

/* last: nothing will follow. */
static int write_blocks(struct lp_blockfs_writer *writer, const uint8_t *data, uint32_t block_cnt,
			bool through, bool last)
{
	struct lp_blockfs *fs = writer->fs;
	while (block_cnt != 0) {
		int err = pending_reserve(writer, block_cnt);
		if (err == 0 && writer->spare.cnt == 0)
			err = lpi_space_alloc(&fs->space, want_blocks(writer, block_cnt, last),
					      &writer->spare);
		if (err < 0)
			return err;
		struct lpi_run run = writer->spare;
		run.cnt = LP_MIN(run.cnt, block_cnt);
		err = device_write(fs, run, data, through);
		if (err < 0)
			return err;
		for (uint32_t i = 0; i < run.cnt; i++)
			writer->crcs[writer->crc_cnt++] =
				lp_crc32c(0, data + i * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		lpi_map_append(&writer->pending, run);
		writer->spare.block += run.cnt;
		writer->spare.cnt -= run.cnt;
		if (!through)
			writer->dirty |= 1u << run.tier;
		data += run.cnt * LP_BLOCK_BYTES;
		block_cnt -= run.cnt;
	}
	return 0;
}

/* --- The crc table --------------------------------------------------------------------------- */

struct crc_table {
	uint32_t *crcs; /* of all blocks */
	uint64_t block_cnt;
	struct lpi_map map;
	uint32_t crc;
};

static bool table_is_due(const struct lp_blockfs_writer *writer, bool finish)
{
	const struct lpi_file *file = writer->file;
	uint64_t outside = file->block_cnt - file->table_blocks + writer->crc_cnt;
	if (finish)
		return outside > TABLE_CRCS_MIN_FINISHED;
	/* Twice as many each time: what is written for tables stays below the crcs twice. */
	return outside >= LP_MAX(TABLE_CRCS_MIN, file->table_blocks);
}

/* After a failed journal write the record may be there all the same: what it may name stays
 * allocated until the next open. */
static void free_unpublished(struct lp_blockfs *fs, const struct lpi_map *map)
{
	if (!atomic_load(&fs->failed))
		lpi_space_free_map(&fs->space, map);
}

static void table_drop(struct lp_blockfs *fs, struct crc_table *table)
{
	free_unpublished(fs, &table->map);
	lpi_map_fini(&table->map);
	free(table->crcs);
	*table = (struct crc_table){.crcs = NULL};
}

static int table_collect(const struct lp_blockfs_writer *writer, struct crc_table *table)
{
	const struct lpi_file *file = writer->file;
	size_t in_table = file->table_blocks;
	size_t in_file = file->block_cnt - file->table_blocks;
	table->block_cnt = file->block_cnt + writer->crc_cnt;
	table->crcs = reallocarray(NULL, table->block_cnt, sizeof(uint32_t));
	if (table->crcs == NULL)
		return -ENOMEM;
	LP_ASSERT(in_table == 0 || file->table_crcs != NULL);
	if (in_table != 0)
		memcpy(table->crcs, file->table_crcs, in_table * sizeof(uint32_t));
	if (in_file != 0)
		memcpy(table->crcs + in_table, file->crcs, in_file * sizeof(uint32_t));
	if (writer->crc_cnt != 0)
		memcpy(table->crcs + in_table + in_file, writer->crcs,
		       writer->crc_cnt * sizeof(uint32_t));
	return 0;
}

static int table_store(struct lp_blockfs_writer *writer, const uint8_t *bytes, uint32_t block_cnt,
		       struct lpi_map *map)
{
	struct lp_blockfs *fs = writer->fs;
	while (block_cnt != 0) {
		struct lpi_run run = {.cnt = 0};
		int err = lpi_map_reserve(map, 1);
		if (err == 0)
			err = lpi_space_alloc(&fs->space, block_cnt, &run);
		if (err < 0)
			return err;
		lpi_map_append(map, run);
		err = device_write(fs, run, bytes, false);
		if (err < 0)
			return err;
		writer->dirty |= 1u << run.tier;
		bytes += run.cnt * LP_BLOCK_BYTES;
		block_cnt -= run.cnt;
	}
	return 0;
}

static int table_write(struct lp_blockfs_writer *writer, struct crc_table *table)
{
	int err = table_collect(writer, table);
	if (err < 0)
		return err;
	uint64_t block_cnt = lp_bytes_to_blocks_up(table->block_cnt * sizeof(uint32_t));
	size_t len = block_cnt * LP_BLOCK_BYTES;
	uint8_t *bytes = aligned_alloc(LP_BLOCK_BYTES, len);
	if (bytes == NULL)
		return -ENOMEM;
	memset(bytes, 0, len);
	for (uint64_t i = 0; i < table->block_cnt; i++)
		lp_put_le32(bytes + i * sizeof(uint32_t), table->crcs[i]);
	table->crc = lp_crc32c(0, bytes, len);
	err = table_store(writer, bytes, (uint32_t)block_cnt, &table->map);
	free(bytes);
	return err;
}

/* --- Publishing ------------------------------------------------------------------------------ */

static int flush_dirty(struct lp_blockfs_writer *writer)
{
	struct lp_blockfs *fs = writer->fs;
	for (uint32_t i = 0; i < fs->space.tier_cnt; i++) {
		if ((writer->dirty & 1u << i) == 0)
			continue;
		lpi_count(&fs->flush_cnt, 1);
		int err = lp_bdev_flush_sync(fs->space.tiers[i].bdev);
		if (err < 0) {
			/* What else that flush was to cover is gone too, perhaps. */
			atomic_store(&fs->failed, true);
			return err;
		}
		writer->dirty &= ~(1u << i);
	}
	return 0;
}

/* Under meta. */
static int publish_record(struct lp_blockfs *fs, struct lpi_file *file,
			  const struct lpi_publish *publish)
{
	struct lp_writer out;
	size_t len = lpi_record_publish_bytes(publish);
	lpi_blockfs_lock(&fs->lock);
	int err = lpi_file_reserve(file, publish);
	lpi_unlock(&fs->lock);
	if (err == 0)
		err = lpi_journal_begin(fs, len, true, &out);
	if (err < 0)
		return err;
	lpi_record_put_publish(&out, fs->roles, file->id, publish);
	LP_ASSERT(lp_writer_remaining(&out) == 0 && !lp_writer_overflowed(&out));
	return lpi_journal_commit(fs, len);
}

/* Under meta. Moves what the writer and the table hold into the file. */
static int publish_locked(struct lp_blockfs_writer *writer, struct lpi_publish *publish,
			  struct crc_table *table, struct lpi_map *ret_old_table)
{
	struct lp_blockfs *fs = writer->fs;
	struct lpi_file *file = writer->file;
	/* Deleted: no crash will bring it back, and nobody asks for more than what is there. */
	if (!file->named)
		return lpi_usable(fs);
	int err = publish_record(fs, file, publish);
	if (err < 0)
		return err;
	lpi_blockfs_lock(&fs->lock);
	lpi_file_publish(&fs->table, file, publish, ret_old_table);
	if (publish->has_table) {
		free(file->table_crcs);
		file->table_crcs = table->crcs;
		*table = (struct crc_table){.crcs = NULL};
	}
	lpi_unlock(&fs->lock);
	writer->pending.cnt = 0;
	writer->crc_cnt = 0;
	return 0;
}

static int publish(struct lp_blockfs_writer *writer, struct crc_table *table, uint64_t size_bytes,
		   bool finish)
{
	struct lp_blockfs *fs = writer->fs;
	struct lpi_map old_table = {.runs = NULL};
	bool has_table = table->crcs != NULL;
	struct lpi_publish what = {.size_bytes = size_bytes,
				   .mtime_ns = lp_clock_wall_ns(fs->clock),
				   .finished = finish,
				   .has_table = has_table,
				   .table_crc = table->crc,
				   .added = writer->pending,
				   .table_map = table->map,
				   .crcs = writer->crcs,
				   .crc_cnt = has_table ? 0 : writer->crc_cnt,
				   .tail = writer->buf,
				   .tail_bytes = (uint32_t)writer->buf_bytes};
	lpi_blockfs_lock(&fs->meta);
	int err = publish_locked(writer, &what, table, &old_table);
	lpi_unlock(&fs->meta);
	/* The record is durable that replaces it (rule S1). */
	lpi_space_free_map(&fs->space, &old_table);
	lpi_map_fini(&old_table);
	return err;
}

/* Steps 1: all of the buffer but a tail; when finishing, the tail too, unless it may stay in the
 * record. */
static int write_buffer(struct lp_blockfs_writer *writer, uint64_t size_bytes, bool finish)
{
	bool pad = finish && size_bytes > LPI_INLINE_MAX;
	uint64_t whole = lp_align_down(writer->buf_bytes, LP_BLOCK_BYTES);
	size_t tail = writer->buf_bytes - whole;
	if (pad && tail != 0) {
		memset(writer->buf + writer->buf_bytes, 0, LP_BLOCK_BYTES - tail);
		whole += LP_BLOCK_BYTES;
		tail = 0;
	}
	if (whole == 0)
		return 0;
	bool through = writer->dirty == 0 && whole <= THROUGH_BYTES_MAX;
	int err = write_blocks(writer, writer->buf, (uint32_t)(whole / LP_BLOCK_BYTES), through,
			       finish);
	if (err < 0)
		return err;
	memmove(writer->buf, writer->buf + whole, tail);
	writer->buf_bytes = tail;
	return 0;
}

static int sync_writer(struct lp_blockfs_writer *writer, bool finish)
{
	struct lp_blockfs *fs = writer->fs;
	const struct lpi_file *file = writer->file;
	struct crc_table table = {.crcs = NULL};
	uint64_t size_bytes = lp_blockfs_written(writer);
	int err = lpi_usable(fs);
	if (err == 0 && writer->is_manifest && fs->barrier != NULL)
		err = fs->barrier(fs->barrier_arg);
	if (err == 0)
		err = write_buffer(writer, size_bytes, finish);
	if (err < 0 || (!finish && size_bytes == file->size_bytes))
		return err;
	if (table_is_due(writer, finish))
		err = table_write(writer, &table);
	if (err == 0)
		err = flush_dirty(writer);
	if (err == 0)
		err = publish(writer, &table, size_bytes, finish);
	table_drop(fs, &table);
	return err;
}

/* --- Writers --------------------------------------------------------------------------------- */

uint64_t lp_blockfs_written(const struct lp_blockfs_writer *writer)
{
	return (writer->file->block_cnt + writer->crc_cnt) * LP_BLOCK_BYTES + writer->buf_bytes;
}

static int append(struct lp_blockfs_writer *writer, const uint8_t *from, uint64_t length_bytes)
{
	struct lp_blockfs *fs = writer->fs;
	int err = lpi_usable(fs);
	if (err == 0 && writer->is_manifest && fs->barrier != NULL)
		err = fs->barrier(fs->barrier_arg);
	while (length_bytes != 0 && err == 0) {
		size_t step = LP_MIN(length_bytes, LPI_BUF_BYTES - writer->buf_bytes);
		memcpy(writer->buf + writer->buf_bytes, from, step);
		writer->buf_bytes += step;
		from += step;
		length_bytes -= step;
		if (writer->buf_bytes != LPI_BUF_BYTES)
			break;
		err = write_blocks(writer, writer->buf, LPI_BUF_BLOCKS, false, false);
		if (err == 0)
			writer->buf_bytes = 0;
	}
	return err;
}

int lp_blockfs_append(struct lp_blockfs_writer *writer, const void *buf, uint64_t length_bytes)
{
	if (writer->err == 0)
		writer->err = append(writer, buf, length_bytes);
	return writer->err;
}

int lp_blockfs_sync(struct lp_blockfs_writer *writer)
{
	if (writer->err == 0)
		writer->err = sync_writer(writer, false);
	return writer->err;
}

void lp_blockfs_abandon(struct lp_blockfs_writer *writer)
{
	if (writer == NULL)
		return;
	struct lp_blockfs *fs = writer->fs;
	lpi_blockfs_lock(&fs->lock);
	lpi_writer_list_remove(writer);
	lpi_unlock(&fs->lock);
	free_unpublished(fs, &writer->pending);
	if (writer->spare.cnt != 0)
		lpi_space_free(&fs->space, writer->spare);
	lpi_file_put(fs, writer->file);
	lpi_map_fini(&writer->pending);
	free(writer->crcs);
	free(writer->buf);
	free(writer);
}

int lp_blockfs_finish(struct lp_blockfs_writer *writer)
{
	int err = writer->err;
	if (err == 0)
		err = sync_writer(writer, true);
	lp_blockfs_abandon(writer);
	return err;
}
