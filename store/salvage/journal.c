/* SPDX-License-Identifier: Apache-2.0 */
/* Both halves are read whole. A frame is any run of blocks whose header and crc are right, of the
 * generation that is looked for. First the half that is not active is replayed, of the newest
 * generation in it; that is what the snapshot of the active half began with. If no frame of that
 * snapshot is missing, it is forgotten again. Then comes the active half. Records are applied one
 * by one, and one that does not fit to what is known is passed over.
 *
 * What stands there may be any bytes. Headers can claim long frames at every block, so all sums
 * together may take only so many bytes (sum_room). Files can claim any blocks, so one file has a
 * limit, and all of them together no more than some times what the devices have.
 */
#include "store/salvage/journal.h"

#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "store/blockfs/impl.h"
#include "store/salvage/flipped_bit.h"

#define FRAME_MAGIC UINT32_C(0x4a46424c)
#define SUPER_CNT   2u
#define READ_BLOCKS UINT64_C(1024)
#define TIER_DATA   0u
#define TIER_DB     1u

/* As of the format (docs/format/blockfs.md). */
#define HALF_BLOCKS_MAX UINT64_C(262144)
/* An intact journal needs some six sums of each byte. */
#define SUMS_OF_A_BYTE UINT64_C(32)
#define SUM_BYTES_MIN  (UINT64_C(64) << 20)
/* The longest frame of which a bit is looked for. The longer it is, the sooner another one's sum
 * is taken for its own. */
#define MEND_BLOCKS_MAX UINT64_C(1024)
/* A file that is read at all: 1 GiB. And so many times the devices' blocks in all files. */
#define FILE_BLOCKS_MAX UINT64_C(262144)
#define FILES_SHARE_MAX UINT64_C(4)

struct lp_blockfs_salvage {
	struct lpi_table table;
	struct lp_bdev *bdev[LPI_TIER_MAX];
	struct lp_mender *mender; /* or NULL */
	uint64_t blocks_left;     /* that may still be read */
};

struct reading {
	const struct lp_blockfs_options *options;
	struct lp_blockfs_salvage *files;
	struct lp_blockfs_salvage_report *report;
	struct lp_blockfs_super super; /* sequence 0: there is none */
	uint32_t half_blocks;
	uint8_t *half[2];
	uint64_t sum_room; /* bytes that may still be summed up */
};

static const uint8_t tier_of[] = {LPI_TIER_MAX, TIER_DATA, TIER_DB, LPI_TIER_MAX};

/* What the device cannot read is zeros, block by block where a larger read fails. */
static void read_what_can_be(struct lp_bdev *bdev, uint8_t *bytes, uint64_t block, uint64_t cnt)
{
	for (uint64_t done = 0; done < cnt;) {
		uint64_t step = LP_MIN(cnt - done, READ_BLOCKS);
		int err = lp_bdev_read_sync(bdev, bytes + done * LP_BLOCK_BYTES,
					    step * LP_BLOCK_BYTES, (block + done) * LP_BLOCK_BYTES);
		for (uint64_t i = done; err < 0 && i < done + step; i++) {
			int one = lp_bdev_read_sync(bdev, bytes + i * LP_BLOCK_BYTES,
						    LP_BLOCK_BYTES, (block + i) * LP_BLOCK_BYTES);
			if (one < 0)
				memset(bytes + i * LP_BLOCK_BYTES, 0, LP_BLOCK_BYTES);
		}
		done += step;
	}
}

/* --- Frames ---------------------------------------------------------------------------------- */

static uint32_t crc_of_frame(const uint8_t *frame, size_t len)
{
	static const uint8_t zeros[LP_BLOCKFS_FRAME_CRC_SIZE];
	size_t rest = LP_BLOCKFS_FRAME_CRC_OFF + LP_BLOCKFS_FRAME_CRC_SIZE;
	uint32_t sum = lp_crc32c(0, frame, LP_BLOCKFS_FRAME_CRC_OFF);
	sum = lp_crc32c(sum, zeros, sizeof(zeros));
	return lp_crc32c(sum, frame + rest, len - rest);
}

/* Blocks of the frame that seems to stand there; 0: there is none of ours. */
static uint64_t guess_frame(const struct reading *reading, const uint8_t *bytes,
			    uint64_t room_blocks, struct lp_blockfs_frame *ret)
{
	const struct lp_blockfs_options *options = reading->options;
	lp_blockfs_frame_decode(bytes, ret);
	if (ret->magic != FRAME_MAGIC || ret->shard != options->shard_idx ||
	    memcmp(ret->store_uuid, options->store_uuid, sizeof(ret->store_uuid)) != 0)
		return 0;
	uint64_t blocks =
		lp_bytes_to_blocks_up(LP_BLOCKFS_FRAME_SIZE + (uint64_t)ret->length_bytes);
	return blocks <= room_blocks ? blocks : 0;
}

/* Whether its crc is right. */
static bool sum_is_right(struct reading *reading, const uint8_t *bytes, uint64_t blocks,
			 const struct lp_blockfs_frame *head)
{
	uint64_t len = blocks * LP_BLOCK_BYTES;
	if (len > reading->sum_room)
		return false;
	reading->sum_room -= len;
	return crc_of_frame(bytes, len) == head->crc;
}

/* The same of one whose crc is right. */
static uint64_t find_frame(struct reading *reading, const uint8_t *bytes, uint64_t room_blocks,
			   struct lp_blockfs_frame *ret)
{
	uint64_t blocks = guess_frame(reading, bytes, room_blocks, ret);
	return blocks > 0 && sum_is_right(reading, bytes, blocks, ret) ? blocks : 0;
}

/* --- Bits ------------------------------------------------------------------------------------- */

/* The frame that is wanted stands there. */
static bool is_frame(struct reading *reading, const uint8_t *bytes, uint64_t room_blocks,
		     const struct lp_blockfs_frame *want)
{
	struct lp_blockfs_frame head;
	uint64_t blocks = guess_frame(reading, bytes, room_blocks, &head);
	return blocks > 0 && head.sequence == want->sequence &&
	       head.generation == want->generation && head.prev_crc == want->prev_crc &&
	       sum_is_right(reading, bytes, blocks, &head);
}

/* The bit of the header, or of what follows it, after whose flip the frame that is wanted stands
 * there; it has flipped then. */
static uint64_t mend_frame(struct reading *reading, uint8_t *bytes, uint64_t room_blocks,
			   const struct lp_blockfs_frame *want)
{
	struct lp_blockfs_frame head;
	uint64_t blocks = guess_frame(reading, bytes, room_blocks, &head);
	uint64_t bit = LP_MEND_NONE;
	if (blocks > 0 && blocks <= MEND_BLOCKS_MAX)
		bit = lp_mend_find(blocks * LP_BLOCK_BYTES,
				   crc_of_frame(bytes, blocks * LP_BLOCK_BYTES), head.crc);
	if (bit != LP_MEND_NONE && bit / 8 >= LP_BLOCKFS_FRAME_SIZE) {
		lp_mend_flip(bytes, bit);
		if (is_frame(reading, bytes, room_blocks, want))
			return bit;
		lp_mend_flip(bytes, bit);
	}
	for (bit = 0; bit < LP_BLOCKFS_FRAME_SIZE * UINT64_C(8); bit++) {
		lp_mend_flip(bytes, bit);
		if (is_frame(reading, bytes, room_blocks, want))
			return bit;
		lp_mend_flip(bytes, bit);
	}
	return LP_MEND_NONE;
}

static void tell_mended(const struct lp_blockfs_salvage *files, struct lp_bdev *bdev,
			uint64_t block, const void *bytes, const char *what)
{
	if (files->mender != NULL)
		files->mender->mended(files->mender, bdev, block, bytes, what);
}

/* What a frame says fits to all before it, and zeros follow up to the end of its last block: of a
 * frame that was torn while it was written, and looks like one with a bit that flipped, this is
 * not so. */
static int fits(struct lpi_table *table, const uint8_t *bytes, const struct lp_blockfs_frame *head,
		uint64_t blocks)
{
	size_t used = LP_BLOCKFS_FRAME_SIZE + (size_t)head->length_bytes;
	for (size_t at = used; at < blocks * LP_BLOCK_BYTES; at++) {
		if (bytes[at] != 0)
			return -EUCLEAN;
	}
	return lpi_records_apply(table, tier_of, bytes + LP_BLOCKFS_FRAME_SIZE, head->length_bytes,
				 0);
}

static bool has_frame_behind(struct reading *reading, uint64_t at)
{
	const uint8_t *half = reading->half[reading->super.active_half];
	for (; at < reading->half_blocks; at++) {
		struct lp_blockfs_frame head;
		if (find_frame(reading, half + at * LP_BLOCK_BYTES, reading->half_blocks - at,
			       &head) > 0 &&
		    head.generation == reading->super.generation)
			return true;
	}
	return false;
}

static void tell_frame(const struct reading *reading, uint64_t at, uint64_t bit)
{
	const struct lp_blockfs_super *super = &reading->super;
	uint64_t idx = at + bit / 8 / LP_BLOCK_BYTES;
	uint64_t first = reading->options->area.block + SUPER_CNT +
			 super->active_half * (uint64_t)super->half_blocks;
	tell_mended(reading->files, reading->options->journal_bdev, first + idx,
		    reading->half[super->active_half] + idx * LP_BLOCK_BYTES,
		    "a frame of the journal of the index's files");
}

/* The frame that is wanted, or one that is it but for a bit; it moves *at behind it. 1: there is
 * none. */
static int take_next(struct reading *reading, struct lpi_table *table,
		     struct lp_blockfs_frame *want, uint64_t *at)
{
	uint8_t *bytes = reading->half[reading->super.active_half] + *at * LP_BLOCK_BYTES;
	uint64_t room = reading->half_blocks - *at;
	uint64_t bit = LP_MEND_NONE;
	struct lp_blockfs_frame head;
	bool stands = is_frame(reading, bytes, room, want);
	if (!stands)
		bit = mend_frame(reading, bytes, room, want);
	if (!stands && bit == LP_MEND_NONE)
		return 1;
	uint64_t blocks = guess_frame(reading, bytes, room, &head);
	int err = fits(table, bytes, &head, blocks);
	if (err == 0 && bit != LP_MEND_NONE)
		tell_frame(reading, *at, bit);
	if (err < 0 && bit != LP_MEND_NONE)
		lp_mend_flip(bytes, bit);
	*at += blocks;
	want->sequence++;
	want->prev_crc = head.crc;
	return err == -EUCLEAN ? 1 : err;
}

/* Frame after frame of the active half. */
static int mend_half(struct reading *reading)
{
	const struct lp_blockfs_super *super = &reading->super;
	struct lp_blockfs_frame want = {.sequence = super->snapshot_first,
					.generation = super->generation};
	struct lpi_table table;
	uint64_t at = 0;
	int err = 0;
	lpi_table_init(&table);
	while (err == 0 && at < reading->half_blocks)
		err = take_next(reading, &table, &want, &at);
	lpi_table_fini(&table);
	reading->report->is_whole =
		err >= 0 && want.sequence > super->snapshot_last && !has_frame_behind(reading, at);
	return err < 0 ? err : 0;
}

static uint64_t newest_generation(struct reading *reading, uint32_t half)
{
	uint64_t newest = 0;
	for (uint64_t at = 0; at < reading->half_blocks;) {
		struct lp_blockfs_frame head;
		uint64_t blocks = find_frame(reading, reading->half[half] + at * LP_BLOCK_BYTES,
					     reading->half_blocks - at, &head);
		if (blocks > 0)
			newest = LP_MAX(newest, head.generation);
		at += LP_MAX(blocks, UINT64_C(1));
	}
	return newest;
}

/* --- Records --------------------------------------------------------------------------------- */

/* A file that a snapshot describes anew is no longer what it was. */
static void forget_old(struct lpi_table *table, const struct lp_blockfs_record *record,
		       const uint8_t *body)
{
	if (record->type != LP_BLOCKFS_TYPE_CREATE || record->length_bytes < LP_BLOCKFS_NAME_SIZE)
		return;
	struct lp_blockfs_name name;
	lp_blockfs_name_decode(body, &name);
	struct lpi_file *file = lpi_table_find_id(table, name.file_id);
	if (file == NULL)
		return;
	lpi_table_unlink(table, file);
	lpi_file_list_remove(file);
	lpi_file_free(file);
}

static int apply_records(struct reading *reading, const uint8_t *bytes, size_t len)
{
	struct lpi_table *table = &reading->files->table;
	for (size_t at = 0; at + LP_BLOCKFS_RECORD_SIZE <= len;) {
		struct lp_blockfs_record record;
		lp_blockfs_record_decode(bytes + at, &record);
		size_t whole = LP_BLOCKFS_RECORD_SIZE + (size_t)record.length_bytes;
		if (whole > len - at)
			return 0;
		forget_old(table, &record, bytes + at + LP_BLOCKFS_RECORD_SIZE);
		int err = lpi_records_apply(table, tier_of, bytes + at, whole, at);
		if (err == -ENOMEM)
			return err;
		at += whole;
	}
	return 0;
}

static bool snapshot_is_whole(struct reading *reading, uint32_t half, uint64_t generation)
{
	uint64_t next = reading->super.snapshot_first;
	for (uint64_t at = 0; at < reading->half_blocks;) {
		struct lp_blockfs_frame head;
		uint64_t blocks = find_frame(reading, reading->half[half] + at * LP_BLOCK_BYTES,
					     reading->half_blocks - at, &head);
		if (blocks > 0 && head.generation == generation && head.sequence == next)
			next++;
		at += LP_MAX(blocks, UINT64_C(1));
	}
	return reading->super.sequence != 0 && next > reading->super.snapshot_last;
}

static int replay(struct reading *reading, uint32_t half, uint64_t generation, bool counts)
{
	uint64_t next = counts && reading->super.sequence != 0 ? reading->super.snapshot_first : 0;
	int err = 0;
	for (uint64_t at = 0; at < reading->half_blocks && err == 0;) {
		struct lp_blockfs_frame head;
		const uint8_t *bytes = reading->half[half] + at * LP_BLOCK_BYTES;
		uint64_t blocks = find_frame(reading, bytes, reading->half_blocks - at, &head);
		at += LP_MAX(blocks, UINT64_C(1));
		if (blocks == 0 || head.generation != generation)
			continue;
		if (counts && next != 0 && head.sequence > next)
			reading->report->lost_frame_cnt += (uint32_t)(head.sequence - next);
		next = head.sequence + 1;
		reading->report->frame_cnt += counts;
		err = apply_records(reading, bytes + LP_BLOCKFS_FRAME_SIZE, head.length_bytes);
	}
	return err;
}

/* --- The whole ------------------------------------------------------------------------------- */

static void read_supers(struct reading *reading, uint8_t *block)
{
	const struct lp_blockfs_options *options = reading->options;
	for (uint32_t i = 0; i < SUPER_CNT; i++) {
		struct lp_blockfs_super super;
		read_what_can_be(options->journal_bdev, block, options->area.block + i, 1);
		if (lp_blockfs_decode_super(block, i, &super) == 0 &&
		    memcmp(super.store_uuid, options->store_uuid, sizeof(super.store_uuid)) == 0 &&
		    super.shard == options->shard_idx &&
		    SUPER_CNT + 2 * (uint64_t)super.half_blocks <= options->area.cnt &&
		    super.sequence > reading->super.sequence)
			reading->super = super;
	}
	reading->report->has_super = reading->super.sequence != 0;
	reading->half_blocks =
		reading->report->has_super
			? reading->super.half_blocks
			: (uint32_t)LP_MIN((options->area.cnt - SUPER_CNT) / 2, HALF_BLOCKS_MAX);
	reading->sum_room =
		SUM_BYTES_MIN + SUMS_OF_A_BYTE * 2 * reading->half_blocks * LP_BLOCK_BYTES;
}

static int read_halves(struct reading *reading)
{
	const struct lp_blockfs_options *options = reading->options;
	uint8_t *block = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	if (block == NULL)
		return -ENOMEM;
	read_supers(reading, block);
	free(block);
	for (uint32_t i = 0; i < 2; i++) {
		uint64_t first =
			options->area.block + SUPER_CNT + i * (uint64_t)reading->half_blocks;
		reading->half[i] = aligned_alloc(LP_BLOCK_BYTES, LP_MAX(reading->half_blocks, 1u) *
									 (size_t)LP_BLOCK_BYTES);
		if (reading->half[i] == NULL)
			return -ENOMEM;
		read_what_can_be(options->journal_bdev, reading->half[i], first,
				 reading->half_blocks);
	}
	return 0;
}

static int replay_halves(struct reading *reading)
{
	bool has_super = reading->super.sequence != 0;
	int err = has_super ? mend_half(reading) : 0;
	if (err < 0)
		return err;
	uint64_t newest[2] = {newest_generation(reading, 0), newest_generation(reading, 1)};
	uint32_t active = has_super ? reading->super.active_half : newest[1] > newest[0];
	uint64_t generation = has_super ? reading->super.generation : newest[active];
	if (!snapshot_is_whole(reading, active, generation))
		err = replay(reading, 1 - active, newest[1 - active], false);
	return err == 0 ? replay(reading, active, generation, true) : err;
}

static uint64_t blocks_of(struct lp_bdev *bdev)
{
	return bdev != NULL ? lp_bdev_caps(bdev)->size_bytes / LP_BLOCK_BYTES : 0;
}

int lp_blockfs_salvage_open(const struct lp_blockfs_options *options, struct lp_mender *mender,
			    struct lp_blockfs_salvage **ret_files,
			    struct lp_blockfs_salvage_report *ret_report)
{
	struct reading reading = {.options = options, .report = ret_report};
	*ret_report = (struct lp_blockfs_salvage_report){.file_cnt = 0};
	reading.files = calloc(1, sizeof(*reading.files));
	if (reading.files == NULL)
		return -ENOMEM;
	lpi_table_init(&reading.files->table);
	reading.files->mender = mender;
	reading.files->bdev[TIER_DATA] = options->data.bdev;
	reading.files->bdev[TIER_DB] = options->db.bdev;
	for (unsigned i = 0; i < LPI_TIER_MAX; i++)
		reading.files->blocks_left += FILES_SHARE_MAX * blocks_of(reading.files->bdev[i]);
	int err = options->area.cnt > SUPER_CNT ? read_halves(&reading) : 0;
	if (err == 0 && options->area.cnt > SUPER_CNT)
		err = replay_halves(&reading);
	free(reading.half[0]);
	free(reading.half[1]);
	if (err < 0) {
		lp_blockfs_salvage_close(reading.files);
		return err;
	}
	ret_report->file_cnt = (uint32_t)reading.files->table.by_name.cnt;
	*ret_files = reading.files;
	return 0;
}

void lp_blockfs_salvage_close(struct lp_blockfs_salvage *files)
{
	if (files == NULL)
		return;
	lpi_table_fini(&files->table);
	free(files);
}

const char *lp_blockfs_salvage_name(const struct lp_blockfs_salvage *files, uint32_t idx)
{
	LP_ASSERT(idx < files->table.by_name.cnt);
	return files->table.by_name.files[idx]->name;
}

static bool is_on_device(const struct lp_blockfs_salvage *files, const struct lpi_run *run)
{
	uint64_t blocks = blocks_of(files->bdev[run->tier]);
	return run->block < blocks && run->cnt <= blocks - run->block;
}

/* The blocks of a map, one after the other. */
static void read_map(const struct lp_blockfs_salvage *files, const struct lpi_map *map,
		     uint8_t *bytes)
{
	for (size_t i = 0; i < map->cnt; i++) {
		const struct lpi_run *run = &map->runs[i];
		if (is_on_device(files, run))
			read_what_can_be(files->bdev[run->tier], bytes, run->block, run->cnt);
		else
			memset(bytes, 0, run->cnt * (size_t)LP_BLOCK_BYTES);
		bytes += run->cnt * (size_t)LP_BLOCK_BYTES;
	}
}

/* Where a block of a map is. */
static struct lpi_run find_in_map(const struct lpi_map *map, uint64_t idx)
{
	size_t i = 0;
	for (; idx >= map->runs[i].cnt; i++) {
		idx -= map->runs[i].cnt;
		LP_ASSERT(i + 1 < map->cnt);
	}
	return (struct lpi_run){map->runs[i].block + idx, 1, map->runs[i].tier};
}

/* What is on no device was never there. */
static void tell_block(const struct lp_blockfs_salvage *files, struct lpi_run run,
		       const uint8_t *bytes, const char *what)
{
	if (is_on_device(files, &run))
		tell_mended(files, files->bdev[run.tier], run.block, bytes, what);
}

/* The crcs of the first blocks of a file, in memory that the caller frees; NULL: they are lost. */
static uint8_t *read_crcs(const struct lp_blockfs_salvage *files, const struct lpi_file *file)
{
	size_t len = lpi_map_blocks(&file->table_map) * LP_BLOCK_BYTES;
	uint8_t *bytes = len > 0 ? aligned_alloc(LP_BLOCK_BYTES, len) : NULL;
	if (bytes == NULL)
		return NULL;
	read_map(files, &file->table_map, bytes);
	uint32_t crc = lp_crc32c(0, bytes, len);
	uint64_t bit = lp_mend_find(len, crc, file->table_crc);
	if (bit != LP_MEND_NONE) {
		uint64_t idx = bit / 8 / LP_BLOCK_BYTES;
		lp_mend_flip(bytes, bit);
		tell_block(files, find_in_map(&file->table_map, idx), bytes + idx * LP_BLOCK_BYTES,
			   "a block with checksums of a file of the index");
	} else if (crc != file->table_crc) {
		free(bytes);
		return NULL;
	}
	return bytes;
}

/* How many blocks are wrong, other than by one bit, which is right then. */
static uint64_t mend_blocks(const struct lp_blockfs_salvage *files, const struct lpi_file *file,
			    uint8_t *bytes)
{
	uint8_t *table = read_crcs(files, file);
	uint64_t bad = 0;
	for (uint64_t i = table != NULL ? 0 : file->table_blocks; i < file->block_cnt; i++) {
		uint8_t *at = bytes + i * LP_BLOCK_BYTES;
		uint32_t wanted = i < file->table_blocks ? lp_get_le32(table + i * 4)
							 : file->crcs[i - file->table_blocks];
		uint32_t crc = lp_crc32c(0, at, LP_BLOCK_BYTES);
		uint64_t bit = lp_mend_find(LP_BLOCK_BYTES, crc, wanted);
		if (bit != LP_MEND_NONE) {
			lp_mend_flip(at, bit);
			tell_block(files, find_in_map(&file->map, i), at,
				   "a block of a file of the index");
		}
		bad += bit == LP_MEND_NONE && crc != wanted;
	}
	free(table);
	return bad;
}

int lp_blockfs_salvage_read(struct lp_blockfs_salvage *files, uint32_t idx, uint8_t **ret_bytes,
			    size_t *ret_len, uint64_t *ret_bad)
{
	LP_ASSERT(idx < files->table.by_name.cnt);
	const struct lpi_file *file = files->table.by_name.files[idx];
	uint64_t all_blocks = file->block_cnt + lpi_map_blocks(&file->table_map);
	*ret_bytes = NULL;
	*ret_len = 0;
	*ret_bad = file->block_cnt;
	if (all_blocks > LP_MIN(files->blocks_left, FILE_BLOCKS_MAX))
		return 0;
	files->blocks_left -= all_blocks;
	size_t blocks_bytes = file->block_cnt * LP_BLOCK_BYTES;
	uint8_t *bytes = aligned_alloc(LP_BLOCK_BYTES, blocks_bytes + LP_BLOCK_BYTES);
	if (bytes == NULL)
		return -ENOMEM;
	read_map(files, &file->map, bytes);
	*ret_bad = mend_blocks(files, file, bytes);
	if (file->tail_bytes > 0)
		memcpy(bytes + blocks_bytes, file->tail, file->tail_bytes);
	*ret_bytes = bytes;
	*ret_len = LP_MIN(file->size_bytes, blocks_bytes + file->tail_bytes);
	return 0;
}
