/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of files: they copy what they need of the map and the crcs under the lock, read without
 * it, and check every block before a byte of it is handed out. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/error.h"
#include "store/blockfs/impl.h"

struct lp_blockfs_reader {
	struct lp_blockfs *fs;
	struct lpi_file *file;
};

int lp_blockfs_open_reader(struct lp_blockfs *fs, const char *name,
			   struct lp_blockfs_reader **ret_reader)
{
	struct lp_blockfs_reader *reader = calloc(1, sizeof(*reader));
	if (reader == NULL)
		return -ENOMEM;
	lpi_blockfs_lock(&fs->lock);
	struct lpi_file *file = lpi_table_find(&fs->table, name);
	if (file != NULL)
		file->ref_cnt++;
	lpi_unlock(&fs->lock);
	if (file == NULL) {
		free(reader);
		return -ENOENT;
	}
	*reader = (struct lp_blockfs_reader){.fs = fs, .file = file};
	*ret_reader = reader;
	return 0;
}

void lp_blockfs_close_reader(struct lp_blockfs_reader *reader)
{
	if (reader == NULL)
		return;
	lpi_file_put(reader->fs, reader->file);
	free(reader);
}

uint64_t lp_blockfs_size(struct lp_blockfs_reader *reader)
{
	lpi_blockfs_lock(&reader->fs->lock);
	uint64_t size_bytes = reader->file->size_bytes;
	lpi_unlock(&reader->fs->lock);
	return size_bytes;
}

/* A file may be renamed meanwhile. */
static int corrupt(struct lp_blockfs *fs, const struct lpi_file *file, uint64_t offset_bytes,
		   const char *what)
{
	lpi_blockfs_lock(&fs->lock);
	int err = LP_CORRUPT_CRC(offset_bytes, "%s of blockfs file %s", what, file->name);
	lpi_unlock(&fs->lock);
	return err;
}

static int device_read(struct lp_blockfs *fs, struct lpi_run run, void *buf)
{
	uint64_t len = run.cnt * LP_BLOCK_BYTES;
	lpi_count(&fs->read_cnt, 1);
	lpi_count(&fs->read_bytes, len);
	return lp_bdev_read_sync(fs->space.tiers[run.tier].bdev, buf, len,
				 run.block * LP_BLOCK_BYTES);
}

/* Reads the crc table of a file that has no writer: nothing of it changes then. */
static int table_read(struct lp_blockfs *fs, const struct lpi_file *file, uint32_t **ret_crcs)
{
	uint64_t cnt = file->table_blocks;
	size_t len = lp_bytes_to_blocks_up(cnt * sizeof(uint32_t)) * LP_BLOCK_BYTES;
	uint8_t *bytes = aligned_alloc(LP_BLOCK_BYTES, len);
	uint32_t *crcs = reallocarray(NULL, cnt, sizeof(uint32_t));
	int err = bytes == NULL || crcs == NULL ? -ENOMEM : 0;
	uint64_t done = 0;
	for (size_t i = 0; i < file->table_map.cnt && err == 0; i++) {
		err = device_read(fs, file->table_map.runs[i], bytes + done);
		done += file->table_map.runs[i].cnt * LP_BLOCK_BYTES;
	}
	if (err == 0 && lp_crc32c(0, bytes, len) != file->table_crc)
		err = corrupt(fs, file, 0, "crc table");
	for (uint64_t i = 0; i < cnt && err == 0; i++)
		crcs[i] = lp_get_le32(bytes + i * sizeof(uint32_t));
	free(bytes);
	if (err < 0)
		free(crcs);
	else
		*ret_crcs = crcs;
	return err;
}

/* What a piece of a read needs of the file: copied under the lock. */
struct piece {
	uint64_t first_block; /* of the file */
	uint32_t block_cnt;   /* 0: the piece is in the tail, and was copied already */
	size_t run_cnt;
	struct lpi_run runs[LPI_BUF_BLOCKS];
	uint32_t crcs[LPI_BUF_BLOCKS];
};

static uint32_t crc_of(const struct lpi_file *file, uint64_t block)
{
	return block < file->table_blocks ? file->table_crcs[block]
					  : file->crcs[block - file->table_blocks];
}

static void piece_map(const struct lpi_file *file, struct piece *piece)
{
	uint64_t skip = piece->first_block;
	uint32_t need = piece->block_cnt;
	piece->run_cnt = 0;
	for (size_t i = 0; need != 0; i++) {
		LP_ASSERT(i < file->map.cnt);
		struct lpi_run run = file->map.runs[i];
		if (skip >= run.cnt) {
			skip -= run.cnt;
			continue;
		}
		run.block += skip;
		run.cnt = (uint32_t)LP_MIN(run.cnt - skip, need);
		skip = 0;
		need -= run.cnt;
		piece->runs[piece->run_cnt++] = run;
	}
	for (uint32_t i = 0; i < piece->block_cnt; i++)
		piece->crcs[i] = crc_of(file, piece->first_block + i);
}

/* False: the crc table must be loaded first. */
static bool piece_plan(const struct lpi_file *file, uint64_t offset_bytes, uint64_t length_bytes,
		       uint8_t *buf, struct piece *piece)
{
	uint64_t in_blocks = file->block_cnt * LP_BLOCK_BYTES;
	LP_ASSERT(offset_bytes + length_bytes <= file->size_bytes);
	piece->block_cnt = 0;
	if (offset_bytes >= in_blocks) {
		memcpy(buf, file->tail + (offset_bytes - in_blocks), length_bytes);
		return true;
	}
	piece->first_block = offset_bytes / LP_BLOCK_BYTES;
	if (piece->first_block < file->table_blocks && file->table_crcs == NULL)
		return false;
	uint64_t end = LP_MIN(lp_bytes_to_blocks_up(offset_bytes + length_bytes), file->block_cnt);
	piece->block_cnt = (uint32_t)LP_MIN(end - piece->first_block, LPI_BUF_BLOCKS);
	piece_map(file, piece);
	return true;
}

static int plan(struct lp_blockfs_reader *reader, uint64_t offset_bytes, uint64_t length_bytes,
		uint8_t *buf, struct piece *piece)
{
	struct lp_blockfs *fs = reader->fs;
	struct lpi_file *file = reader->file;
	uint32_t *crcs = NULL;
	lpi_blockfs_lock(&fs->lock);
	bool ready = piece_plan(file, offset_bytes, length_bytes, buf, piece);
	lpi_unlock(&fs->lock);
	if (ready)
		return 0;
	int err = table_read(fs, file, &crcs);
	if (err < 0)
		return err;
	lpi_blockfs_lock(&fs->lock);
	if (file->table_crcs == NULL) {
		file->table_crcs = crcs;
		crcs = NULL;
	}
	ready = piece_plan(file, offset_bytes, length_bytes, buf, piece);
	lpi_unlock(&fs->lock);
	LP_ASSERT(ready);
	free(crcs); /* another reader was quicker */
	return 0;
}

/* Reads and checks the blocks of a piece. */
static int piece_read(struct lp_blockfs_reader *reader, const struct piece *piece, uint8_t *to)
{
	uint8_t *at = to;
	for (size_t i = 0; i < piece->run_cnt; i++) {
		int err = device_read(reader->fs, piece->runs[i], at);
		if (err < 0)
			return err;
		at += piece->runs[i].cnt * LP_BLOCK_BYTES;
	}
	for (uint32_t i = 0; i < piece->block_cnt; i++) {
		if (lp_crc32c(0, to + i * LP_BLOCK_BYTES, LP_BLOCK_BYTES) != piece->crcs[i])
			return corrupt(reader->fs, reader->file,
				       (piece->first_block + i) * LP_BLOCK_BYTES, "block");
	}
	return 0;
}

/* Reads a part of what was asked for, up to where it is easy to go on from. */
static int read_some(struct lp_blockfs_reader *reader, uint8_t *buf, uint64_t length_bytes,
		     uint64_t offset_bytes, uint64_t *ret_bytes)
{
	struct piece piece;
	int err = plan(reader, offset_bytes, length_bytes, buf, &piece);
	*ret_bytes = length_bytes;
	if (err < 0 || piece.block_cnt == 0)
		return err;
	uint64_t len = piece.block_cnt * LP_BLOCK_BYTES;
	uint64_t skip = offset_bytes - piece.first_block * LP_BLOCK_BYTES;
	*ret_bytes = LP_MIN(length_bytes, len - skip);
	if (skip == 0 && *ret_bytes == len && lp_is_aligned((uintptr_t)buf, LP_BLOCK_BYTES))
		return piece_read(reader, &piece, buf);
	uint8_t *bounce = aligned_alloc(LP_BLOCK_BYTES, len);
	if (bounce == NULL)
		return -ENOMEM;
	err = piece_read(reader, &piece, bounce);
	if (err == 0)
		memcpy(buf, bounce + skip, *ret_bytes);
	free(bounce);
	return err;
}

int lp_blockfs_pread(struct lp_blockfs_reader *reader, void *buf, uint64_t length_bytes,
		     uint64_t offset_bytes, uint64_t *ret_bytes)
{
	uint64_t size_bytes = lp_blockfs_size(reader);
	uint64_t want =
		offset_bytes >= size_bytes ? 0 : LP_MIN(length_bytes, size_bytes - offset_bytes);
	uint64_t done = 0;
	while (done < want) {
		uint64_t step = 0;
		int err = read_some(reader, (uint8_t *)buf + done, want - done, offset_bytes + done,
				    &step);
		if (err < 0)
			return err;
		done += step;
	}
	*ret_bytes = done;
	return 0;
}

/* --- Without waiting -------------------------------------------------------------------------- */

/* Under the lock: one piece of the device, whose crcs are known. */
static bool fetch_plan(const struct lp_blockfs *fs, const struct lpi_file *file,
		       uint64_t offset_bytes, uint64_t length_bytes, struct lp_fetch *fetch)
{
	uint64_t first = offset_bytes / LP_BLOCK_BYTES;
	uint64_t end = lp_bytes_to_blocks_up(offset_bytes + length_bytes);
	uint64_t skip = first;
	size_t i = 0;
	if (end > file->block_cnt || end - first > LP_FETCH_BLOCKS ||
	    (first < file->table_blocks && file->table_crcs == NULL))
		return false;
	while (skip >= file->map.runs[i].cnt)
		skip -= file->map.runs[i++].cnt;
	const struct lpi_run *run = &file->map.runs[i];
	if (run->cnt - skip < end - first)
		return false;
	fetch->bdev = fs->space.tiers[run->tier].bdev;
	fetch->device_bytes = (run->block + skip) * LP_BLOCK_BYTES;
	fetch->file_id = file->id;
	fetch->file_block = first;
	fetch->block_cnt = (uint32_t)(end - first);
	for (uint32_t j = 0; j < fetch->block_cnt; j++)
		fetch->crcs[j] = crc_of(file, first + j);
	return true;
}

static bool has_fetched(const struct lp_fetch *fetch, const struct lpi_file *file,
			uint64_t offset_bytes, uint64_t length_bytes)
{
	uint64_t first_bytes = fetch->file_block * LP_BLOCK_BYTES;
	return fetch->data != NULL && fetch->file_id == file->id && offset_bytes >= first_bytes &&
	       offset_bytes + length_bytes <=
		       first_bytes + (uint64_t)fetch->block_cnt * LP_BLOCK_BYTES;
}

/* The lock is not waited for either: its holder may have lost the processor. */
int lp_blockfs_pread_fetched(struct lp_blockfs_reader *reader, void *buf, uint64_t length_bytes,
			     uint64_t offset_bytes, struct lp_fetch *fetch)
{
	const struct lpi_file *file = reader->file;
	if (has_fetched(fetch, file, offset_bytes, length_bytes)) {
		memcpy(buf, fetch->data + (offset_bytes - fetch->file_block * LP_BLOCK_BYTES),
		       length_bytes);
		return 0;
	}
	fetch->was_put_off = true;
	fetch->data = NULL;
	fetch->block_cnt = 0;
	if (length_bytes == 0 || pthread_mutex_trylock(&reader->fs->lock) != 0)
		return -EAGAIN;
	if (!fetch_plan(reader->fs, file, offset_bytes, length_bytes, fetch))
		fetch->block_cnt = 0;
	lpi_unlock(&reader->fs->lock);
	return -EAGAIN;
}
