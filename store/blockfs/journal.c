/* SPDX-License-Identifier: Apache-2.0 */
/* The journal of a file system's metadata: docs/format/blockfs.md says what lies where and why each
 * order of writes is safe.
 *
 * A change, under `meta`: begin (room is made, by a snapshot if need be), the caller's records,
 * commit (one write-through write). Any failed write or flush here leaves the device in a state
 * that memory does not know: the file system has then failed, until it is opened again. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/error.h"
#include "store/blockfs/impl.h"

#define SUPER_MAGIC     UINT32_C(0x5346424c)
#define FRAME_MAGIC     UINT32_C(0x4a46424c)
#define FORMAT_VERSION  1u
#define SUPER_CNT       2u
#define HALF_BLOCKS_MIN 16u
/* So that a whole half can be read into memory. */
#define HALF_BLOCKS_MAX UINT32_C(262144)
/* A snapshot's frames: large writes, small memory. */
#define SNAPSHOT_FRAME_BYTES (UINT64_C(256) << 10)
#define ZERO_BLOCKS          UINT64_C(256)

/* --- Superblocks ----------------------------------------------------------------------------- */

static uint32_t super_crc(const uint8_t *block)
{
	static const uint8_t zeros[LP_BLOCKFS_SUPER_CRC_SIZE];
	size_t rest = LP_BLOCKFS_SUPER_CRC_OFF + LP_BLOCKFS_SUPER_CRC_SIZE;
	uint32_t crc = lp_crc32c(0, block, LP_BLOCKFS_SUPER_CRC_OFF);
	crc = lp_crc32c(crc, zeros, sizeof(zeros));
	return lp_crc32c(crc, block + rest, LP_BLOCK_BYTES - rest);
}

int lp_blockfs_decode_super(const void *bytes, uint32_t slot_idx,
			    struct lp_blockfs_super *ret_super)
{
	struct lp_blockfs_super super;
	lp_blockfs_super_decode(bytes, &super);
	if (super.magic != SUPER_MAGIC || super.crc != super_crc(bytes))
		return LP_CORRUPT_CRC(slot_idx * LP_BLOCK_BYTES, "blockfs superblock %u", slot_idx);
	if (super.version != FORMAT_VERSION || super.slot != slot_idx || super.sequence == 0 ||
	    !lp_blockfs_super_reserved_is_zero(&super))
		return LP_CORRUPT(slot_idx * LP_BLOCK_BYTES,
				  "blockfs superblock %u: version, slot or sequence", slot_idx);
	if (super.active_half > 1 || super.generation == 0 ||
	    super.generation_last < super.generation || super.snapshot_first == 0 ||
	    super.snapshot_last < super.snapshot_first || super.snapshot_last == UINT64_MAX ||
	    super.half_blocks < HALF_BLOCKS_MIN || super.half_blocks > HALF_BLOCKS_MAX)
		return LP_CORRUPT(slot_idx * LP_BLOCK_BYTES,
				  "blockfs superblock %u: half, generation or snapshot", slot_idx);
	*ret_super = super;
	return 0;
}

static int super_write_slot(struct lpi_journal *journal, struct lp_blockfs_super *super,
			    uint32_t slot_idx)
{
	uint8_t *block = journal->super_block;
	memset(block, 0, LP_BLOCK_BYTES);
	super->slot = slot_idx;
	lp_blockfs_super_encode(super, block);
	lp_put_le32(block + LP_BLOCKFS_SUPER_CRC_OFF, super_crc(block));
	return lp_bdev_write_sync(journal->bdev, block, LP_BLOCK_BYTES,
				  (journal->area.block + slot_idx) * LP_BLOCK_BYTES, true);
}

/* Both slots, with the next sequence number. On failure nobody knows which superblock counts. */
static int super_write(struct lpi_journal *journal, struct lp_blockfs_super next, uint32_t first)
{
	next.magic = SUPER_MAGIC;
	next.version = FORMAT_VERSION;
	next.sequence++;
	int err = super_write_slot(journal, &next, first);
	if (err == 0)
		err = super_write_slot(journal, &next, 1 - first);
	if (err == 0)
		journal->super = next;
	return err;
}

static bool super_equal(const struct lp_blockfs_super *a, const struct lp_blockfs_super *b)
{
	return a->sequence == b->sequence && a->active_half == b->active_half &&
	       a->generation == b->generation && a->generation_last == b->generation_last &&
	       a->snapshot_first == b->snapshot_first && a->snapshot_last == b->snapshot_last &&
	       a->half_blocks == b->half_blocks;
}

static int super_choose(const struct lp_blockfs_super *slots, const int *errs, uint32_t *ret_idx)
{
	if (errs[0] != 0 && errs[1] != 0)
		return errs[0];
	*ret_idx = errs[0] != 0 || (errs[1] == 0 && slots[1].sequence > slots[0].sequence);
	if (errs[0] == 0 && errs[1] == 0 && slots[0].sequence == slots[1].sequence &&
	    !super_equal(&slots[0], &slots[1]))
		return LP_CORRUPT(LP_OFFSET_NONE, "blockfs superblocks of one sequence differ");
	return 0;
}

static int super_matches(const struct lp_blockfs_super *super,
			 const struct lp_blockfs_options *options)
{
	if (memcmp(super->store_uuid, options->store_uuid, sizeof(super->store_uuid)) != 0 ||
	    super->shard != options->shard_idx)
		return LP_CORRUPT(LP_OFFSET_NONE, "blockfs superblock of another store or shard");
	if (SUPER_CNT + 2 * (uint64_t)super->half_blocks > options->area.cnt)
		return LP_CORRUPT(LP_OFFSET_NONE, "blockfs superblock: half_blocks %u is too large",
				  super->half_blocks);
	return 0;
}

static int super_read(struct lpi_journal *journal, const struct lp_blockfs_options *options)
{
	uint32_t idx = 0;
	int errs[SUPER_CNT];
	struct lp_blockfs_super slots[SUPER_CNT] = {{.sequence = 0}, {.sequence = 0}};
	uint8_t *block = journal->super_block;
	for (uint32_t i = 0; i < SUPER_CNT; i++) {
		errs[i] = lp_bdev_read_sync(journal->bdev, block, LP_BLOCK_BYTES,
					    (journal->area.block + i) * LP_BLOCK_BYTES);
		if (errs[i] == 0)
			errs[i] = lp_blockfs_decode_super(block, i, &slots[i]);
	}
	int err = super_choose(slots, errs, &idx);
	if (err == 0)
		err = super_matches(&slots[idx], options);
	if (err < 0)
		return err;
	journal->super = slots[idx];
	bool repair = errs[1 - idx] != 0 || slots[1 - idx].sequence != slots[idx].sequence;
	if (repair && !options->read_only)
		err = super_write(journal, slots[idx], 1 - idx);
	return err;
}

/* --- Frames ---------------------------------------------------------------------------------- */

static uint64_t half_block(const struct lpi_journal *journal, uint32_t half)
{
	return journal->area.block + SUPER_CNT + half * (uint64_t)journal->super.half_blocks;
}

static uint64_t frame_blocks(size_t records_bytes)
{
	return lp_bytes_to_blocks_up(LP_BLOCKFS_FRAME_SIZE + records_bytes);
}

static uint32_t frame_crc(const uint8_t *frame, size_t len)
{
	static const uint8_t zeros[LP_BLOCKFS_FRAME_CRC_SIZE];
	size_t rest = LP_BLOCKFS_FRAME_CRC_OFF + LP_BLOCKFS_FRAME_CRC_SIZE;
	uint32_t crc = lp_crc32c(0, frame, LP_BLOCKFS_FRAME_CRC_OFF);
	crc = lp_crc32c(crc, zeros, sizeof(zeros));
	return lp_crc32c(crc, frame + rest, len - rest);
}

static int frame_reserve(struct lpi_journal *journal, size_t records_bytes)
{
	size_t need = frame_blocks(records_bytes) * LP_BLOCK_BYTES;
	if (need <= journal->frame_room)
		return 0;
	uint8_t *frame = aligned_alloc(LP_BLOCK_BYTES, need);
	if (frame == NULL)
		return -ENOMEM;
	free(journal->frame);
	journal->frame = frame;
	journal->frame_room = need;
	return 0;
}

/* Where the next frame goes. */
struct place {
	uint32_t half;
	uint64_t pos_blocks;
	uint64_t generation;
	uint64_t sequence;
	uint32_t prev_crc;
};

/* Writes the frame whose records are in place, and moves the place behind it. */
static int frame_write(struct lpi_journal *journal, struct place *place, size_t records_bytes,
		       bool through)
{
	uint64_t blocks = frame_blocks(records_bytes);
	size_t len = blocks * LP_BLOCK_BYTES;
	LP_ASSERT(place->pos_blocks + blocks <= journal->super.half_blocks);
	struct lp_blockfs_frame head = {.magic = FRAME_MAGIC,
					.length_bytes = (uint32_t)records_bytes,
					.version = FORMAT_VERSION,
					.shard = (uint16_t)journal->super.shard,
					.sequence = place->sequence,
					.generation = place->generation,
					.prev_crc = place->prev_crc};
	memcpy(head.store_uuid, journal->super.store_uuid, sizeof(head.store_uuid));
	lp_blockfs_frame_encode(&head, journal->frame);
	size_t used = LP_BLOCKFS_FRAME_SIZE + records_bytes;
	memset(journal->frame + used, 0, len - used);
	uint32_t crc = frame_crc(journal->frame, len);
	lp_put_le32(journal->frame + LP_BLOCKFS_FRAME_CRC_OFF, crc);
	int err = lp_bdev_write_sync(
		journal->bdev, journal->frame, len,
		(half_block(journal, place->half) + place->pos_blocks) * LP_BLOCK_BYTES, through);
	if (err < 0)
		return err;
	place->prev_crc = crc;
	place->sequence++;
	place->pos_blocks += blocks;
	return 0;
}

/* A frame of this generation at `bytes`, with a right crc. */
static bool frame_decode(const uint8_t *bytes, size_t len, const struct lp_blockfs_super *super,
			 struct lp_blockfs_frame *ret_head)
{
	if (len < LP_BLOCK_BYTES)
		return false;
	lp_blockfs_frame_decode(bytes, ret_head);
	if (ret_head->magic != FRAME_MAGIC || ret_head->generation != super->generation ||
	    ret_head->version != FORMAT_VERSION || ret_head->shard != super->shard ||
	    memcmp(ret_head->store_uuid, super->store_uuid, sizeof(super->store_uuid)) != 0)
		return false;
	uint64_t frame_len = frame_blocks(ret_head->length_bytes) * LP_BLOCK_BYTES;
	return frame_len <= len && lp_blockfs_frame_reserved_is_zero(ret_head) &&
	       ret_head->crc == frame_crc(bytes, frame_len);
}

/* --- Replay ---------------------------------------------------------------------------------- */

/* The journal seems to end at pos: it must not, if anything shows that more was acknowledged. */
static int check_end(const uint8_t *bytes, size_t len, const struct lp_blockfs_super *super,
		     const struct place *place)
{
	struct lp_blockfs_frame head;
	if (place->sequence <= super->snapshot_last)
		return LP_CORRUPT_CRC(place->pos_blocks * LP_BLOCK_BYTES,
				      "blockfs journal: frame %llu of the snapshot, up to %llu",
				      (unsigned long long)place->sequence,
				      (unsigned long long)super->snapshot_last);
	for (size_t at = place->pos_blocks * LP_BLOCK_BYTES; at < len; at += LP_BLOCK_BYTES) {
		if (frame_decode(bytes + at, len - at, super, &head))
			return LP_CORRUPT_CRC(place->pos_blocks * LP_BLOCK_BYTES,
					      "blockfs journal: frame %llu, though %llu follows",
					      (unsigned long long)place->sequence,
					      (unsigned long long)head.sequence);
	}
	return 0;
}

static int replay(struct lpi_table *table, const uint8_t *tier_of, const uint8_t *bytes, size_t len,
		  const struct lp_blockfs_super *super, struct place *place)
{
	*place = (struct place){.half = super->active_half,
				.generation = super->generation,
				.sequence = super->snapshot_first};
	for (;;) {
		struct lp_blockfs_frame head;
		size_t at = place->pos_blocks * LP_BLOCK_BYTES;
		if (!frame_decode(bytes + at, len - at, super, &head) ||
		    head.sequence != place->sequence || head.prev_crc != place->prev_crc)
			return check_end(bytes, len, super, place);
		int err = lpi_records_apply(table, tier_of, bytes + at + LP_BLOCKFS_FRAME_SIZE,
					    head.length_bytes, at);
		if (err < 0)
			return err;
		place->pos_blocks += frame_blocks(head.length_bytes);
		place->sequence++;
		place->prev_crc = head.crc;
	}
}

int lp_blockfs_decode_half(const void *bytes, size_t len, const struct lp_blockfs_super *super)
{
	static const uint8_t tier_of[] = {LPI_TIER_MAX, 0, 1, LPI_TIER_MAX};
	struct place place;
	struct lpi_table table;
	lpi_table_init(&table);
	int err = replay(&table, tier_of, bytes, lp_align_down(len, LP_BLOCK_BYTES), super, &place);
	lpi_table_fini(&table);
	return err;
}

static void tiers_by_role(const struct lpi_space *space, uint8_t *ret_tier_of)
{
	for (unsigned role = 0; role <= LP_DISK_ROLE_WAL; role++)
		ret_tier_of[role] = (uint8_t)lpi_space_tier(space, (uint8_t)role);
}

static int journal_init(struct lpi_journal *journal, const struct lp_blockfs_options *options)
{
	*journal = (struct lpi_journal){
		.bdev = options->journal_bdev,
		.area = options->area,
	};
	journal->super_block = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	return journal->super_block == NULL ? -ENOMEM : 0;
}

int lpi_journal_open(struct lp_blockfs *fs, const struct lp_blockfs_options *options)
{
	struct lpi_journal *journal = &fs->journal;
	uint8_t tier_of[LP_DISK_ROLE_WAL + 1];
	struct place place = {.half = 0};
	uint8_t *bytes = NULL;
	int err = options->area.cnt < SUPER_CNT ? -EINVAL : journal_init(journal, options);
	/* What a killed process wrote can be read before it is durable. */
	if (err == 0 && !options->read_only)
		err = lp_bdev_flush_sync(journal->bdev);
	if (err == 0)
		err = super_read(journal, options);
	if (err < 0)
		return err;
	size_t len = journal->super.half_blocks * LP_BLOCK_BYTES;
	bytes = aligned_alloc(LP_BLOCK_BYTES, len);
	if (bytes == NULL)
		return -ENOMEM;
	err = lp_bdev_read_sync(journal->bdev, bytes, len,
				half_block(journal, journal->super.active_half) * LP_BLOCK_BYTES);
	tiers_by_role(&fs->space, tier_of);
	if (err == 0)
		err = replay(&fs->table, tier_of, bytes, len, &journal->super, &place);
	free(bytes);
	if (err < 0)
		return err;
	journal->pos_blocks = place.pos_blocks;
	journal->sequence = place.sequence;
	journal->prev_crc = place.prev_crc;
	/* A quarter is left for deletes and renames, and for blocks that are partly filled. */
	fs->live_max_bytes = len / 4 * 3;
	return 0;
}

void lpi_journal_fini(struct lpi_journal *journal)
{
	free(journal->frame);
	free(journal->super_block);
	journal->frame = NULL;
	journal->super_block = NULL;
}

/* --- Snapshots ------------------------------------------------------------------------------- */

/* Frames of some files each. */
static int snapshot_frames(struct lpi_journal *journal, const struct lpi_table *table,
			   const uint8_t *roles, struct place *place, uint64_t *bytes,
			   bool *ret_doubt)
{
	size_t next = 0;
	bool first = true;
	while (first || next < table->by_id.cnt) {
		size_t end = next;
		size_t len = first ? LPI_RECORD_STATE_BYTES : 0;
		while (end < table->by_id.cnt && (end == next || len < SNAPSHOT_FRAME_BYTES))
			len += lpi_record_file_bytes(table->by_id.files[end++]);
		if (place->pos_blocks + frame_blocks(len) > journal->super.half_blocks)
			return -ENOSPC;
		int err = frame_reserve(journal, len);
		if (err < 0)
			return err;
		struct lp_writer out;
		lp_writer_init(&out, journal->frame + LP_BLOCKFS_FRAME_SIZE, len);
		if (first)
			lpi_record_put_state(&out, table->next_file_id);
		for (; next < end; next++)
			lpi_record_put_file(&out, roles, table->by_id.files[next]);
		LP_ASSERT(lp_writer_remaining(&out) == 0 && !lp_writer_overflowed(&out));
		err = frame_write(journal, place, len, false);
		*ret_doubt = err < 0;
		if (err < 0)
			return err;
		*bytes += frame_blocks(len) * LP_BLOCK_BYTES;
		first = false;
	}
	return 0;
}

/* Writes all there is into the half that is not active, and turns over to it. *ret_doubt: a write
 * or flush failed, so that memory and device may differ. */
static int snapshot_take(struct lpi_journal *journal, const struct lpi_table *table,
			 const uint8_t *roles, uint64_t *bytes, bool *ret_doubt)
{
	struct lp_blockfs_super next = journal->super;
	next.generation_last++;
	*ret_doubt = true;
	int err = super_write(journal, next, 0);
	if (err < 0)
		return err;
	*ret_doubt = false;
	struct place place = {.half = 1 - journal->super.active_half,
			      .generation = journal->super.generation_last,
			      .sequence = journal->sequence};
	err = snapshot_frames(journal, table, roles, &place, bytes, ret_doubt);
	if (err < 0)
		return err;
	*ret_doubt = true;
	err = lp_bdev_flush_sync(journal->bdev);
	if (err < 0)
		return err;
	next = journal->super;
	next.active_half = place.half;
	next.generation = place.generation;
	next.snapshot_first = journal->sequence;
	next.snapshot_last = place.sequence - 1;
	err = super_write(journal, next, 0);
	if (err < 0)
		return err;
	*ret_doubt = false;
	journal->pos_blocks = place.pos_blocks;
	journal->sequence = place.sequence;
	journal->prev_crc = place.prev_crc;
	return 0;
}

/* Frames of a former file system with the same uuid must not continue a new journal. */
static int area_zero(const struct lp_blockfs_options *options)
{
	uint8_t *zeros = aligned_alloc(LP_BLOCK_BYTES, ZERO_BLOCKS * LP_BLOCK_BYTES);
	if (zeros == NULL)
		return -ENOMEM;
	memset(zeros, 0, ZERO_BLOCKS * LP_BLOCK_BYTES);
	int err = 0;
	for (uint64_t done = 0; done < options->area.cnt && err == 0;) {
		uint64_t step = LP_MIN(options->area.cnt - done, ZERO_BLOCKS);
		err = lp_bdev_write_sync(options->journal_bdev, zeros, step * LP_BLOCK_BYTES,
					 (options->area.block + done) * LP_BLOCK_BYTES, false);
		done += step;
	}
	free(zeros);
	return err == 0 ? lp_bdev_flush_sync(options->journal_bdev) : err;
}

int lpi_journal_format(const struct lp_blockfs_options *options)
{
	static const uint8_t roles[LPI_TIER_MAX];
	struct lpi_journal journal;
	struct lpi_table table;
	uint64_t bytes = 0;
	uint64_t half_blocks =
		options->area.cnt < SUPER_CNT ? 0 : (options->area.cnt - SUPER_CNT) / 2;
	if (half_blocks < HALF_BLOCKS_MIN)
		return -EINVAL;
	int err = journal_init(&journal, options);
	if (err < 0)
		return err;
	bool doubt = false;
	journal.super = (struct lp_blockfs_super){
		.shard = options->shard_idx,
		.active_half = 1,
		.half_blocks = (uint32_t)LP_MIN(half_blocks, HALF_BLOCKS_MAX)};
	journal.sequence = 1;
	memcpy(journal.super.store_uuid, options->store_uuid, sizeof(journal.super.store_uuid));
	lpi_table_init(&table);
	err = area_zero(options);
	if (err == 0)
		err = snapshot_take(&journal, &table, roles, &bytes, &doubt);
	lpi_table_fini(&table);
	lpi_journal_fini(&journal);
	return err;
}

/* --- Changes --------------------------------------------------------------------------------- */

static int make_room(struct lp_blockfs *fs, uint64_t blocks)
{
	struct lpi_journal *journal = &fs->journal;
	uint64_t bytes = 0;
	if (journal->pos_blocks + blocks <= journal->super.half_blocks)
		return 0;
	bool doubt = false;
	int err = snapshot_take(journal, &fs->table, fs->roles, &bytes, &doubt);
	if (doubt)
		atomic_store(&fs->failed, true);
	lpi_count(&fs->journal_bytes, bytes);
	lpi_count(&fs->snapshot_cnt, err == 0);
	if (err < 0)
		return err;
	return journal->pos_blocks + blocks <= journal->super.half_blocks ? 0 : -ENOSPC;
}

int lpi_journal_begin(struct lp_blockfs *fs, size_t records_bytes, bool grows,
		      struct lp_writer *ret)
{
	int err = lpi_usable(fs);
	if (err < 0)
		return err;
	atomic_store(&fs->live_bytes, fs->table.live_bytes);
	if (grows && fs->table.live_bytes + records_bytes > fs->live_max_bytes)
		return -ENOSPC;
	err = make_room(fs, frame_blocks(records_bytes));
	if (err == 0)
		err = frame_reserve(&fs->journal, records_bytes);
	if (err == 0)
		lp_writer_init(ret, fs->journal.frame + LP_BLOCKFS_FRAME_SIZE, records_bytes);
	return err;
}

int lpi_journal_commit(struct lp_blockfs *fs, size_t records_bytes)
{
	struct lpi_journal *journal = &fs->journal;
	struct place place = {.half = journal->super.active_half,
			      .pos_blocks = journal->pos_blocks,
			      .generation = journal->super.generation,
			      .sequence = journal->sequence,
			      .prev_crc = journal->prev_crc};
	int err = frame_write(journal, &place, records_bytes, true);
	if (err < 0) {
		atomic_store(&fs->failed, true);
		return err;
	}
	lpi_count(&fs->frame_cnt, 1);
	lpi_count(&fs->journal_bytes, (place.pos_blocks - journal->pos_blocks) * LP_BLOCK_BYTES);
	journal->pos_blocks = place.pos_blocks;
	journal->sequence = place.sequence;
	journal->prev_crc = place.prev_crc;
	return 0;
}
