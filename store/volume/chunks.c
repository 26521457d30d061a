/* SPDX-License-Identifier: Apache-2.0 */
/* The table in memory is one slot as it lies on the device. A change is made in it, encoded,
 * written to slot 0, then to slot 1, and undone in memory when either write fails. Both are written
 * each time: docs/format/disk.md says what would be lost otherwise.
 *
 * Leases are rare (one per chunk of some MiB to a GiB), so the whole used part of the slot is
 * written each time: 2 bytes per chunk.
 *
 * Splits are apart from the slot in memory, which gets them behind its entries when it is encoded.
 * They are changed in a copy, which takes the former's place when it has turned out to fit.
 *
 * Long because all of it reads and changes one table under one lock. */
#include "store/volume/chunks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/volume/label_impl.h"
#include "store/volume/splits.h"

#define CHUNKS_MAGIC         UINT32_C(0x4b43504c)
#define CHUNKS_VERSION       1u
#define CHUNKS_VERSION_SPLIT 2u
#define SLOT_CNT             2u

enum question { QUESTION_NONE, QUESTION_ASKED, QUESTION_AGAIN };

struct gift {
	struct gift *next;
	struct lp_chunk_blocks what;
};

struct listener {
	void (*asked)(void *arg); /* NULL: none */
	void *arg;
	_Atomic int question; /* that is not answered; read and answered without the lock */
	_Atomic uint64_t askers;
	_Atomic uint64_t gift_blocks;
	_Atomic uint64_t evasion_cnt;
	struct gift *gifts; /* the newest first */
};

struct lp_chunks {
	struct lp_bdev *bdev;
	uint64_t table_block;
	uint64_t slot_bytes;
	uint64_t base_block;
	uint32_t chunk_blocks;
	uint8_t device_uuid[LP_UUID_BYTES];
	bool read_only;

	pthread_mutex_t lock; /* guards all below */
	bool failed;
	uint64_t sequence;
	uint32_t chunk_cnt;
	_Atomic uint32_t files_reserve_cnt;
	uint8_t *slot;      /* slot_bytes, aligned: header, entries, splits */
	size_t split_bytes; /* as they are in it */
	struct lpi_splits splits;
	uint8_t *scratch; /* for one split */
	struct lp_chunks_stats stats;
	struct listener listeners[LP_SHARDS_MAX];
	_Atomic uint32_t free_cnt; /* a copy, for those who take no lock */
	_Atomic bool is_split_up;  /* the last gift found no room */
	_Atomic uint64_t move_cnt;
};

static void entry_get(const uint8_t *slot, uint32_t idx, struct lp_disk_chunk *ret_entry)
{
	lp_disk_chunk_decode(slot + LP_DISK_CHUNKS_SIZE + (size_t)idx * LP_DISK_CHUNK_SIZE,
			     ret_entry);
}

static void entry_put(uint8_t *slot, uint32_t idx, struct lp_disk_chunk entry)
{
	lp_disk_chunk_encode(&entry, slot + LP_DISK_CHUNKS_SIZE + (size_t)idx * LP_DISK_CHUNK_SIZE);
}

static size_t used_bytes(uint32_t chunk_cnt)
{
	return LP_DISK_CHUNKS_SIZE + (size_t)chunk_cnt * LP_DISK_CHUNK_SIZE;
}

/* Of the header and the entries. It does not cover the splits, so that it is right for older code,
 * too, which then says that it does not know the version. */
static uint32_t slot_crc(const uint8_t *slot, uint32_t chunk_cnt)
{
	size_t used = used_bytes(chunk_cnt);
	uint8_t header[LP_DISK_CHUNKS_SIZE];
	memcpy(header, slot, sizeof(header));
	memset(header + LP_DISK_CHUNKS_CRC_OFF, 0, LP_DISK_CHUNKS_CRC_SIZE);
	uint32_t crc = lp_crc32c(0, header, sizeof(header));
	return lp_crc32c(crc, slot + sizeof(header), used - sizeof(header));
}

/* What the table in memory takes. */
static size_t slot_used(const struct lp_chunks *chunks)
{
	return used_bytes(chunks->chunk_cnt) + chunks->split_bytes;
}

/* Puts the splits behind the entries: -ENOSPC when the slot has no room for them. */
static int splits_put(struct lp_chunks *chunks)
{
	size_t entries = used_bytes(chunks->chunk_cnt);
	size_t room = LP_MIN(chunks->slot_bytes - entries, LPI_SPLITS_BYTES_MAX);
	return lpi_splits_encode(&chunks->splits, chunks->scratch, chunks->slot + entries, room,
				 &chunks->split_bytes);
}

static void slot_encode(const struct lp_chunks *chunks, uint64_t sequence, uint32_t slot_idx)
{
	struct lp_disk_chunks header = {.magic = CHUNKS_MAGIC,
					.version = CHUNKS_VERSION,
					.slot = slot_idx,
					.sequence = sequence,
					.chunk_cnt = chunks->chunk_cnt};
	if (chunks->splits.cnt > 0) {
		header.version = CHUNKS_VERSION_SPLIT;
		header.split_cnt = chunks->splits.cnt;
		header.split_bytes = (uint32_t)chunks->split_bytes;
		header.block_cnt = chunks->chunk_blocks;
		header.split_crc = lp_crc32c(0, chunks->slot + used_bytes(chunks->chunk_cnt),
					     chunks->split_bytes);
	}
	memcpy(header.device_uuid, chunks->device_uuid, LP_UUID_BYTES);
	lp_disk_chunks_encode(&header, chunks->slot);
	lp_put_le32(chunks->slot + LP_DISK_CHUNKS_CRC_OFF,
		    slot_crc(chunks->slot, chunks->chunk_cnt));
}

/* The version says whether there are any. */
static bool version_is_right(const struct lp_disk_chunks *header)
{
	if (header->version == CHUNKS_VERSION)
		return header->split_cnt == 0 && header->split_bytes == 0 &&
		       header->block_cnt == 0 && header->split_crc == 0;
	return header->version == CHUNKS_VERSION_SPLIT && header->split_cnt != 0;
}

/* A slot's splits, of chunks that are leased for objects by others than who has the split.
 * ret_splits: not initialised. */
static int splits_decode(const uint8_t *slot, const struct lp_disk_chunks *header,
			 struct lpi_splits *ret_splits)
{
	int err = lpi_splits_decode(slot + used_bytes(header->chunk_cnt), header->split_bytes,
				    header->split_cnt, header->block_cnt, ret_splits);
	for (uint32_t i = 0; err == 0 && i < ret_splits->cnt; i++) {
		const struct lpi_split *split = &ret_splits->at[i];
		struct lp_disk_chunk entry = {.use = LP_CHUNK_USE_FREE};
		if (split->chunk_idx < header->chunk_cnt)
			entry_get(slot, split->chunk_idx, &entry);
		if (entry.use != LP_CHUNK_USE_OBJECTS || entry.shard == split->shard_idx)
			err = -EUCLEAN;
		if (err < 0)
			lpi_splits_fini(ret_splits);
	}
	if (err == -EUCLEAN)
		return LP_CORRUPT(used_bytes(header->chunk_cnt), "chunk table: its splits");
	return err;
}

static int splits_check(const uint8_t *slot, const struct lp_disk_chunks *header)
{
	struct lpi_splits splits;
	if (header->split_cnt == 0)
		return 0;
	int err = splits_decode(slot, header, &splits);
	if (err == 0)
		lpi_splits_fini(&splits);
	return err;
}

int lp_chunks_decode(const void *bytes, size_t len, uint32_t slot_idx, const uint8_t *device_uuid,
		     struct lp_disk_chunks *ret_header)
{
	struct lp_disk_chunks header;
	if (len < LP_DISK_CHUNKS_SIZE)
		return LP_CORRUPT(0, "chunk table slot %u is too short", slot_idx);
	lp_disk_chunks_decode(bytes, &header);
	if (header.magic != CHUNKS_MAGIC)
		return LP_CORRUPT_CRC(0, "chunk table slot %u has no magic", slot_idx);
	if (header.chunk_cnt > (len - LP_DISK_CHUNKS_SIZE) / LP_DISK_CHUNK_SIZE)
		return LP_CORRUPT(LP_DISK_CHUNKS_CHUNK_CNT_OFF,
				  "chunk table slot %u: chunk_cnt %u is beyond its end", slot_idx,
				  header.chunk_cnt);
	if (header.crc != slot_crc(bytes, header.chunk_cnt))
		return LP_CORRUPT_CRC(0, "chunk table slot %u", slot_idx);
	if (header.version > CHUNKS_VERSION_SPLIT)
		return LP_CORRUPT(LP_DISK_CHUNKS_VERSION_OFF,
				  "chunk table slot %u has version %u, this program knows versions "
				  "up to %u: use a newer Lapis",
				  slot_idx, header.version, CHUNKS_VERSION_SPLIT);
	if (!version_is_right(&header) || header.slot != slot_idx || header.sequence == 0 ||
	    !lp_disk_chunks_reserved_is_zero(&header) ||
	    memcmp(header.device_uuid, device_uuid, LP_UUID_BYTES) != 0)
		return LP_CORRUPT(0, "chunk table slot %u: version, slot, sequence or device",
				  slot_idx);
	if (header.split_bytes > len - used_bytes(header.chunk_cnt))
		return LP_CORRUPT(LP_DISK_CHUNKS_SPLIT_BYTES_OFF,
				  "chunk table slot %u: split_bytes %u is beyond its end", slot_idx,
				  header.split_bytes);
	if (header.split_crc !=
	    lp_crc32c(0, (const uint8_t *)bytes + used_bytes(header.chunk_cnt), header.split_bytes))
		return LP_CORRUPT_CRC(used_bytes(header.chunk_cnt),
				      "chunk table slot %u: its splits", slot_idx);
	for (uint32_t i = 0; i < header.chunk_cnt; i++) {
		struct lp_disk_chunk entry;
		entry_get(bytes, i, &entry);
		bool free_owned = entry.use == LP_CHUNK_USE_FREE && entry.shard != 0;
		if (lp_chunk_use_name(entry.use) == NULL || entry.shard >= LP_SHARDS_MAX ||
		    free_owned)
			return LP_CORRUPT(used_bytes(i), "chunk table slot %u: entry of chunk %u",
					  slot_idx, i);
	}
	int err = splits_check(bytes, &header);
	if (err == 0)
		*ret_header = header;
	return err;
}

/* Writes the table in memory to one slot. */
static int slot_write(struct lp_chunks *chunks, uint64_t sequence, uint32_t slot_idx)
{
	slot_encode(chunks, sequence, slot_idx);
	chunks->stats.write_cnt++;
	return lp_bdev_write_sync(
		chunks->bdev, chunks->slot, lp_align_up(slot_used(chunks), LP_BLOCK_BYTES),
		chunks->table_block * LP_BLOCK_BYTES + slot_idx * chunks->slot_bytes, true);
}

/* Makes the table in memory durable in both slots, or marks it failed. -ENOSPC: it does not fit,
 * and nothing was written. A write that failed is always -EIO, whatever the device says: its slot
 * may hold the new table, and the caller must not take its change for undone. mkfs has written both
 * slots to their ends, so that a sparse image has room for them (rule S7). */
static int table_publish(struct lp_chunks *chunks)
{
	uint64_t sequence = chunks->sequence + 1;
	int err = splits_put(chunks);
	if (err < 0)
		return err;
	/* Before it: who reads the new number and then takes the lock finds what has moved. */
	atomic_fetch_add(&chunks->move_cnt, 1);
	for (uint32_t i = 0; i < SLOT_CNT && err == 0; i++)
		err = slot_write(chunks, sequence, i);
	if (err < 0) {
		chunks->failed = true;
		return -EIO;
	}
	chunks->sequence = sequence;
	return 0;
}

static int table_new(struct lp_bdev *bdev, const struct lp_disk_label *label,
		     struct lp_chunks **ret_chunks)
{
	struct lp_chunks *chunks = calloc(1, sizeof(*chunks));
	if (chunks == NULL)
		return -ENOMEM;
	LP_ASSERT(label->chunk_cnt <= lpi_label_table_room(label->table_slot_blocks));
	chunks->bdev = bdev;
	chunks->table_block = label->table_block;
	chunks->slot_bytes = label->table_slot_blocks * LP_BLOCK_BYTES;
	chunks->base_block = label->chunk_base;
	chunks->chunk_blocks = label->chunk_blocks;
	memcpy(chunks->device_uuid, label->device_uuid, LP_UUID_BYTES);
	chunks->slot = aligned_alloc(LP_BLOCK_BYTES, chunks->slot_bytes);
	chunks->scratch = malloc(lpi_splits_one_max(label->chunk_blocks));
	if (chunks->slot == NULL || chunks->scratch == NULL ||
	    pthread_mutex_init(&chunks->lock, NULL) != 0) {
		free(chunks->slot);
		free(chunks->scratch);
		free(chunks);
		return -ENOMEM;
	}
	memset(chunks->slot, 0, chunks->slot_bytes);
	lpi_splits_init(&chunks->splits, label->chunk_blocks);
	*ret_chunks = chunks;
	return 0;
}

static void gifts_drop(struct gift **list)
{
	struct gift *gift;
	while ((gift = *list) != NULL) {
		*list = gift->next;
		free(gift->what.blocks.words);
		free(gift);
	}
}

void lp_chunks_close(struct lp_chunks *chunks)
{
	if (chunks == NULL)
		return;
	(void)pthread_mutex_destroy(&chunks->lock); /* fails only when held: our bug */
	for (uint32_t i = 0; i < LP_SHARDS_MAX; i++)
		gifts_drop(&chunks->listeners[i].gifts);
	lpi_splits_fini(&chunks->splits);
	free(chunks->scratch);
	free(chunks->slot);
	free(chunks);
}

int lp_chunks_format(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	struct lp_chunks *chunks = NULL;
	int err = table_new(bdev, label, &chunks);
	if (err < 0)
		return err;
	chunks->chunk_cnt = label->chunk_cnt;
	err = table_publish(chunks);
	lp_chunks_close(chunks);
	return err;
}

/* --- Opening --------------------------------------------------------------------------------- */

struct slots {
	uint8_t *bytes[SLOT_CNT];
	struct lp_disk_chunks header[SLOT_CNT];
	int err[SLOT_CNT];
};

static int slots_read(struct lp_chunks *chunks, struct slots *slots)
{
	for (uint32_t i = 0; i < SLOT_CNT; i++) {
		slots->bytes[i] = aligned_alloc(LP_BLOCK_BYTES, chunks->slot_bytes);
		if (slots->bytes[i] == NULL)
			return -ENOMEM;
		slots->err[i] = lp_bdev_read_sync(chunks->bdev, slots->bytes[i], chunks->slot_bytes,
						  chunks->table_block * LP_BLOCK_BYTES +
							  i * chunks->slot_bytes);
		if (slots->err[i] == 0)
			slots->err[i] = lp_chunks_decode(slots->bytes[i], chunks->slot_bytes, i,
							 chunks->device_uuid, &slots->header[i]);
	}
	return 0;
}

/* Which slot counts, or why none does. */
static int slots_choose(const struct slots *slots, uint32_t *ret_idx)
{
	const struct lp_disk_chunks *header = slots->header;
	if (slots->err[0] != 0 && slots->err[1] != 0)
		return slots->err[0];
	if (slots->err[0] != 0 || slots->err[1] != 0) {
		*ret_idx = slots->err[0] != 0;
		return 0;
	}
	*ret_idx = header[1].sequence > header[0].sequence;
	size_t used = used_bytes(header[0].chunk_cnt) + header[0].split_bytes;
	if (header[0].sequence == header[1].sequence &&
	    (header[0].chunk_cnt != header[1].chunk_cnt ||
	     header[0].split_cnt != header[1].split_cnt ||
	     header[0].split_bytes != header[1].split_bytes ||
	     memcmp(slots->bytes[0] + LP_DISK_CHUNKS_SIZE, slots->bytes[1] + LP_DISK_CHUNKS_SIZE,
		    used - LP_DISK_CHUNKS_SIZE) != 0))
		return LP_CORRUPT(LP_OFFSET_NONE, "chunk table: two slots of sequence %llu differ",
				  (unsigned long long)header[0].sequence);
	return 0;
}

static void count_uses(struct lp_chunks *chunks)
{
	memset(chunks->stats.cnt, 0, sizeof(chunks->stats.cnt));
	for (uint32_t i = 0; i < chunks->chunk_cnt; i++) {
		struct lp_disk_chunk entry;
		entry_get(chunks->slot, i, &entry);
		chunks->stats.cnt[entry.use]++;
	}
	atomic_store(&chunks->free_cnt, chunks->stats.cnt[LP_CHUNK_USE_FREE]);
}

/* A table of more chunks than the label has is another device's; unless the label has as many as
 * there can be, and nobody has the others (label.c). */
static bool is_cut(const uint8_t *slot, uint32_t slot_cnt, const struct lp_disk_label *label)
{
	bool is_cut = label->chunk_cnt == lpi_label_chunks_max(label);
	for (uint32_t i = label->chunk_cnt; i < slot_cnt && is_cut; i++) {
		struct lp_disk_chunk entry;
		entry_get(slot, i, &entry);
		is_cut = entry.use == LP_CHUNK_USE_FREE;
	}
	return is_cut;
}

/* The splits of the chosen slot, whose entries were taken up. What is behind the entries in memory
 * stays zero. */
static int splits_adopt(struct lp_chunks *chunks, const uint8_t *slot,
			const struct lp_disk_chunks *header)
{
	struct lpi_splits splits;
	if (header->split_cnt == 0)
		return 0;
	if (header->block_cnt != chunks->chunk_blocks)
		return LP_CORRUPT(LP_DISK_CHUNKS_BLOCK_CNT_OFF,
				  "chunk table: block_cnt %u, but the chunks have %u",
				  header->block_cnt, chunks->chunk_blocks);
	int err = splits_decode(slot, header, &splits);
	if (err < 0)
		return err;
	lpi_splits_fini(&chunks->splits);
	chunks->splits = splits;
	chunks->split_bytes = header->split_bytes;
	return 0;
}

/* As many chunks of the label as the slot has room for beside the splits: the others are taken up
 * when those have gone. */
static uint32_t fitting_cnt(const struct lp_chunks *chunks, uint32_t label_cnt)
{
	size_t room = chunks->slot_bytes - LP_DISK_CHUNKS_SIZE - chunks->split_bytes;
	return (uint32_t)LP_MIN(label_cnt, room / LP_DISK_CHUNK_SIZE);
}

/* Takes up the chosen slot, and brings the other one and the size up to date. */
static int slots_adopt(struct lp_chunks *chunks, const struct slots *slots, uint32_t idx,
		       const struct lp_disk_label *label)
{
	const struct lp_disk_chunks *header = &slots->header[idx];
	uint32_t label_cnt = label->chunk_cnt;
	if (header->chunk_cnt > label_cnt && !is_cut(slots->bytes[idx], header->chunk_cnt, label))
		return LP_CORRUPT(LP_DISK_CHUNKS_CHUNK_CNT_OFF,
				  "chunk table: chunk_cnt %u, but the device has %u chunks",
				  header->chunk_cnt, label_cnt);
	memcpy(chunks->slot, slots->bytes[idx], used_bytes(LP_MIN(header->chunk_cnt, label_cnt)));
	chunks->sequence = header->sequence;
	bool equal = slots->err[0] == 0 && slots->err[1] == 0 &&
		     slots->header[0].sequence == slots->header[1].sequence;
	int err = splits_adopt(chunks, slots->bytes[idx], header);
	if (err < 0)
		return err;
	/* What is new is zero, and so free. */
	chunks->chunk_cnt = fitting_cnt(chunks, label_cnt);
	bool is_resized = header->chunk_cnt != chunks->chunk_cnt;
	count_uses(chunks);
	if (chunks->read_only || (equal && !is_resized))
		return 0;
	err = splits_put(chunks);
	/* The chosen slot is not to be touched before the other one is as good. */
	uint64_t sequence = chunks->sequence + 1;
	if (err == 0)
		err = slot_write(chunks, sequence, 1 - idx);
	if (err == 0)
		err = slot_write(chunks, sequence, idx);
	if (err == 0)
		chunks->sequence = sequence;
	return err;
}

int lp_chunks_open(struct lp_bdev *bdev, const struct lp_chunks_options *options,
		   struct lp_chunks **ret_chunks)
{
	struct lp_chunks *chunks = NULL;
	struct slots slots = {.bytes = {NULL, NULL}};
	int err = table_new(bdev, options->label, &chunks);
	if (err < 0)
		return err;
	chunks->read_only = options->read_only;
	chunks->files_reserve_cnt = options->files_reserve_cnt;
	/* What a killed process wrote can be read before it is durable. */
	if (!options->read_only)
		err = lp_bdev_flush_sync(bdev);
	if (err == 0)
		err = slots_read(chunks, &slots);
	uint32_t idx = 0;
	if (err == 0)
		err = slots_choose(&slots, &idx);
	if (err == 0)
		err = slots_adopt(chunks, &slots, idx, options->label);
	free(slots.bytes[0]);
	free(slots.bytes[1]);
	if (err < 0)
		lp_chunks_close(chunks);
	else
		*ret_chunks = chunks;
	return err;
}

/* --- Leases ---------------------------------------------------------------------------------- */

static void table_lock(struct lp_chunks *chunks)
{
	int err = pthread_mutex_lock(&chunks->lock);
	LP_ASSERT(err == 0);
}

static void table_unlock(struct lp_chunks *chunks)
{
	int err = pthread_mutex_unlock(&chunks->lock);
	LP_ASSERT(err == 0);
}

static int table_usable(const struct lp_chunks *chunks)
{
	if (chunks->read_only)
		return -EROFS;
	return chunks->failed ? -EIO : 0;
}

static uint32_t find_locked(const struct lp_chunks *chunks, struct lp_disk_chunk want,
			    uint32_t from_idx)
{
	for (uint32_t i = from_idx; i < chunks->chunk_cnt; i++) {
		struct lp_disk_chunk entry;
		entry_get(chunks->slot, i, &entry);
		if (entry.use == want.use && entry.shard == want.shard)
			return i;
	}
	return LP_CHUNK_NONE;
}

/* Durable, or as before. */
static int entry_change(struct lp_chunks *chunks, uint32_t idx, struct lp_disk_chunk to)
{
	struct lp_disk_chunk from;
	entry_get(chunks->slot, idx, &from);
	entry_put(chunks->slot, idx, to);
	int err = table_publish(chunks);
	if (err < 0) {
		entry_put(chunks->slot, idx, from);
		return err;
	}
	chunks->stats.cnt[from.use]--;
	chunks->stats.cnt[to.use]++;
	atomic_store(&chunks->free_cnt, chunks->stats.cnt[LP_CHUNK_USE_FREE]);
	return 0;
}

static int lease_locked(struct lp_chunks *chunks, struct lp_disk_chunk to, uint32_t hint_idx,
			uint32_t *ret_chunk_idx)
{
	uint32_t free_cnt = chunks->stats.cnt[LP_CHUNK_USE_FREE];
	int err = table_usable(chunks);
	if (err < 0)
		return err;
	if (free_cnt == 0 ||
	    (to.use == LP_CHUNK_USE_OBJECTS && free_cnt <= chunks->files_reserve_cnt))
		return -ENOSPC;
	struct lp_disk_chunk unowned = {.use = LP_CHUNK_USE_FREE};
	uint32_t idx = find_locked(chunks, unowned, hint_idx);
	if (idx == LP_CHUNK_NONE)
		idx = find_locked(chunks, unowned, 0);
	LP_ASSERT(idx != LP_CHUNK_NONE);
	err = entry_change(chunks, idx, to);
	if (err < 0)
		return err;
	chunks->stats.lease_cnt++;
	*ret_chunk_idx = idx;
	return 0;
}

int lp_chunks_lease(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
		    uint32_t hint_idx, uint32_t *ret_chunk_idx)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	LP_ASSERT(use != LP_CHUNK_USE_FREE && lp_chunk_use_name(use) != NULL);
	struct lp_disk_chunk to = {.use = (uint8_t)use, .shard = (uint8_t)shard_idx};
	table_lock(chunks);
	int err = lease_locked(chunks, to, hint_idx, ret_chunk_idx);
	table_unlock(chunks);
	return err;
}

static bool is_split(const struct lp_chunks *chunks, uint32_t chunk_idx)
{
	const struct lpi_split *next = lpi_splits_next(&chunks->splits, chunk_idx);
	return next != NULL && next->chunk_idx == chunk_idx;
}

int lp_chunks_return(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
		     uint32_t chunk_idx)
{
	struct lp_disk_chunk entry;
	table_lock(chunks);
	LP_ASSERT(chunk_idx < chunks->chunk_cnt);
	entry_get(chunks->slot, chunk_idx, &entry);
	LP_ASSERT(use != LP_CHUNK_USE_FREE);
	LP_ASSERT(entry.use == use && entry.shard == shard_idx);
	LP_ASSERT(!is_split(chunks, chunk_idx));
	int err = table_usable(chunks);
	if (err == 0)
		err = entry_change(chunks, chunk_idx,
				   (struct lp_disk_chunk){.use = LP_CHUNK_USE_FREE});
	if (err == 0)
		chunks->stats.return_cnt++;
	table_unlock(chunks);
	return err;
}

/* --- Single blocks --------------------------------------------------------------------------- */

static uint32_t home_of(const struct lp_chunks *chunks, uint32_t chunk_idx)
{
	struct lp_disk_chunk entry;
	LP_ASSERT(chunk_idx < chunks->chunk_cnt);
	entry_get(chunks->slot, chunk_idx, &entry);
	LP_ASSERT(entry.use == LP_CHUNK_USE_OBJECTS);
	return entry.shard;
}

/* The blocks that the shard has in the chunk, which is leased for objects. ret_blocks is zeroed.
 */
static void blocks_of(const struct lp_chunks *chunks, uint32_t chunk_idx, uint32_t shard_idx,
		      struct lp_bitmap *ret_blocks)
{
	LP_ASSERT(ret_blocks->bit_cnt == chunks->chunk_blocks);
	bool is_home = home_of(chunks, chunk_idx) == shard_idx;
	if (is_home)
		lp_bitmap_set(ret_blocks, 0, ret_blocks->bit_cnt);
	const struct lpi_split *end = chunks->splits.at + chunks->splits.cnt;
	const struct lpi_split *split = lpi_splits_next(&chunks->splits, chunk_idx);
	for (; split != NULL && split < end && split->chunk_idx == chunk_idx; split++) {
		for (uint64_t i = 0; i < lp_bitmap_word_cnt(ret_blocks->bit_cnt); i++) {
			if (is_home)
				ret_blocks->words[i] &= ~split->blocks.words[i];
			else if (split->shard_idx == shard_idx)
				ret_blocks->words[i] |= split->blocks.words[i];
		}
	}
}

static bool has_blocks(const struct lp_chunks *chunks, uint32_t chunk_idx, uint32_t shard_idx)
{
	struct lp_disk_chunk entry;
	entry_get(chunks->slot, chunk_idx, &entry);
	return entry.use == LP_CHUNK_USE_OBJECTS &&
	       (entry.shard == shard_idx ||
		lpi_splits_find(&chunks->splits, chunk_idx, shard_idx) != NULL);
}

bool lp_chunks_find_blocks(struct lp_chunks *chunks, uint32_t shard_idx, uint32_t from_idx,
			   struct lp_chunk_blocks *ret_found)
{
	struct lp_bitmap *blocks = &ret_found->blocks;
	bool found = false;
	table_lock(chunks);
	for (uint32_t i = from_idx; i < chunks->chunk_cnt && !found; i++) {
		if (!has_blocks(chunks, i, shard_idx))
			continue;
		blocks_of(chunks, i, shard_idx, blocks);
		/* Who leased it may have given all of it away. */
		found = !lp_bitmap_is_clear(blocks, 0, blocks->bit_cnt);
		ret_found->chunk_idx = i;
		ret_found->shard_idx = shard_idx;
		ret_found->home_idx = home_of(chunks, i);
	}
	table_unlock(chunks);
	return found;
}

/* They are whose they are, in these splits. */
static int splits_move(struct lpi_splits *splits, uint32_t from_idx,
		       const struct lp_chunk_blocks *what)
{
	LP_ASSERT(what->shard_idx != from_idx);
	if (what->home_idx != from_idx)
		lpi_splits_remove(splits, what->chunk_idx, from_idx, &what->blocks);
	if (what->home_idx == what->shard_idx)
		return 0;
	return lpi_splits_add(splits, what->chunk_idx, what->shard_idx, &what->blocks);
}

/* Not linked yet. */
static int gift_new(const struct lp_chunks *chunks, const struct lp_chunk_blocks *what,
		    struct gift **ret_gift)
{
	size_t bytes = lp_bitmap_word_cnt(what->blocks.bit_cnt) * sizeof(uint64_t);
	struct gift *gift = calloc(1, sizeof(*gift));
	uint64_t *words = malloc(bytes);
	if (gift == NULL || words == NULL) {
		free(gift);
		free(words);
		return -ENOMEM;
	}
	memcpy(words, what->blocks.words, bytes);
	gift->what = *what;
	gift->what.blocks.words = words;
	gift->what.home_idx = home_of(chunks, what->chunk_idx);
	if (what->shard_idx == LP_CHUNKS_HOME)
		gift->what.shard_idx = gift->what.home_idx;
	*ret_gift = gift;
	return 0;
}

static void gift_deliver(struct lp_chunks *chunks, struct gift *gift)
{
	struct listener *to = &chunks->listeners[gift->what.shard_idx];
	uint64_t cnt = lp_bitmap_count(&gift->what.blocks, 0, gift->what.blocks.bit_cnt);
	gift->next = to->gifts;
	to->gifts = gift;
	atomic_fetch_add(&to->gift_blocks, cnt);
	to->asked(to->arg);
}

/* The splits as they are to be, or as they were when the table cannot say so. */
static int splits_publish(struct lp_chunks *chunks, struct lpi_splits *next)
{
	struct lpi_splits before = chunks->splits;
	chunks->splits = *next;
	int err = table_publish(chunks);
	if (err == 0) {
		*next = before;
		return 0;
	}
	*next = chunks->splits;
	chunks->splits = before;
	/* It did fit. */
	int ignored = splits_put(chunks);
	(void)ignored;
	return err;
}

static bool listens(const struct lp_chunks *chunks, const struct lp_chunk_blocks *what)
{
	uint32_t to_idx = what->shard_idx == LP_CHUNKS_HOME ? home_of(chunks, what->chunk_idx)
							    : what->shard_idx;
	return chunks->listeners[to_idx].asked != NULL;
}

/* One more gift in the list, and the splits as they are with it. */
static int give_one(const struct lp_chunks *chunks, struct lpi_splits *splits, uint32_t from_idx,
		    const struct lp_chunk_blocks *what, struct gift **list)
{
	struct gift *gift = NULL;
	int err = gift_new(chunks, what, &gift);
	if (err < 0)
		return err;
	gift->next = *list;
	*list = gift;
	return splits_move(splits, from_idx, &gift->what);
}

/* The splits as they are to be, and the gifts that make them so. */
static int give_plan(const struct lp_chunks *chunks, uint32_t from_idx,
		     const struct lp_chunk_blocks *list, uint32_t cnt, struct lpi_splits *ret_next,
		     struct gift **ret_gifts)
{
	int err = lpi_splits_copy(&chunks->splits, ret_next);
	if (err < 0)
		return err;
	for (uint32_t i = 0; i < cnt && err == 0; i++) {
		if (listens(chunks, &list[i]))
			err = give_one(chunks, ret_next, from_idx, &list[i], ret_gifts);
	}
	if (err == 0 && *ret_gifts == NULL)
		err = -EBUSY;
	if (err < 0)
		lpi_splits_fini(ret_next);
	return err;
}

/* All of the list that somebody listens for, or nothing. */
static int give_list(struct lp_chunks *chunks, uint32_t from_idx, struct lp_chunk_blocks *list,
		     uint32_t cnt)
{
	struct lpi_splits next;
	struct gift *gifts = NULL;
	struct gift *gift;
	int err = give_plan(chunks, from_idx, list, cnt, &next, &gifts);
	if (err == 0) {
		err = splits_publish(chunks, &next);
		lpi_splits_fini(&next);
		for (uint32_t i = 0; i < cnt; i++)
			list[i].has_gone = err != -ENOSPC && listens(chunks, &list[i]);
	}
	while (err == 0 && (gift = gifts) != NULL) {
		gifts = gift->next;
		gift_deliver(chunks, gift);
	}
	gifts_drop(&gifts);
	return err;
}

static int give_locked(struct lp_chunks *chunks, uint32_t from_idx, struct lp_chunk_blocks *list,
		       uint32_t cnt)
{
	bool is_split_up = false;
	int err = table_usable(chunks);
	for (uint32_t i = 0; i < cnt; i++)
		list[i].has_gone = false;
	if (err < 0)
		return err;
	err = give_list(chunks, from_idx, list, cnt);
	while (err == -ENOSPC && cnt > 1) {
		is_split_up = true;
		cnt /= 2;
		err = give_list(chunks, from_idx, list, cnt);
	}
	if (err == 0 || err == -ENOSPC)
		atomic_store(&chunks->is_split_up, is_split_up || err == -ENOSPC);
	chunks->stats.give_cnt += err == 0;
	return err;
}

int lp_chunks_give(struct lp_chunks *chunks, uint32_t from_idx, struct lp_chunk_blocks *list,
		   uint32_t cnt)
{
	LP_ASSERT(from_idx < LP_SHARDS_MAX);
	table_lock(chunks);
	int err = give_locked(chunks, from_idx, list, cnt);
	table_unlock(chunks);
	return err;
}

bool lp_chunks_take_gift(struct lp_chunks *chunks, uint32_t shard_idx,
			 struct lp_chunk_blocks *ret_gift)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	struct listener *to = &chunks->listeners[shard_idx];
	table_lock(chunks);
	struct gift **at = &to->gifts;
	while (*at != NULL && (*at)->next != NULL)
		at = &(*at)->next;
	struct gift *gift = *at;
	*at = NULL;
	if (gift != NULL)
		atomic_fetch_sub(&to->gift_blocks,
				 lp_bitmap_count(&gift->what.blocks, 0, gift->what.blocks.bit_cnt));
	table_unlock(chunks);
	if (gift == NULL)
		return false;
	*ret_gift = gift->what;
	free(gift);
	return true;
}

uint64_t lp_chunks_gift_blocks(const struct lp_chunks *chunks, uint32_t shard_idx)
{
	return atomic_load(&chunks->listeners[shard_idx].gift_blocks);
}

bool lp_chunks_is_split_up(const struct lp_chunks *chunks)
{
	return atomic_load(&chunks->is_split_up);
}

/* --- Asking each other ------------------------------------------------------------------------ */

void lp_chunks_listen(struct lp_chunks *chunks, uint32_t shard_idx, void (*asked)(void *arg),
		      void *arg)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	table_lock(chunks);
	chunks->listeners[shard_idx].asked = asked;
	chunks->listeners[shard_idx].arg = arg;
	atomic_fetch_add(&chunks->move_cnt, 1);
	/* Before the question goes: who sees that it is answered sees this as well. */
	lp_chunks_evade(chunks, shard_idx);
	atomic_store(&chunks->listeners[shard_idx].question, QUESTION_NONE);
	atomic_store(&chunks->listeners[shard_idx].askers, 0);
	/* They are the shard's all the same: it finds them in the table when it is opened. */
	gifts_drop(&chunks->listeners[shard_idx].gifts);
	atomic_store(&chunks->listeners[shard_idx].gift_blocks, 0);
	table_unlock(chunks);
}

/* False: somebody has asked before, and that is not answered. The answer may be from a look that
 * came too early for this question, so it will be looked once more. */
static bool note_question(struct listener *listener)
{
	int was = QUESTION_NONE;
	while (!atomic_compare_exchange_weak(
		&listener->question, &was, was == QUESTION_NONE ? QUESTION_ASKED : QUESTION_AGAIN))
		;
	return was == QUESTION_NONE;
}

bool lp_chunks_ask(struct lp_chunks *chunks, uint32_t shard_idx)
{
	bool is_asking = false;
	table_lock(chunks);
	for (uint32_t i = 0; i < LP_SHARDS_MAX; i++) {
		struct listener *listener = &chunks->listeners[i];
		if (i == shard_idx || listener->asked == NULL)
			continue;
		is_asking = true;
		atomic_fetch_or(&listener->askers, UINT64_C(1) << shard_idx);
		if (note_question(listener))
			listener->asked(listener->arg);
	}
	table_unlock(chunks);
	return is_asking;
}

uint64_t lp_chunks_askers(struct lp_chunks *chunks, uint32_t shard_idx)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	return atomic_exchange(&chunks->listeners[shard_idx].askers, 0);
}

bool lp_chunks_answer(struct lp_chunks *chunks, uint32_t shard_idx)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	struct listener *listener = &chunks->listeners[shard_idx];
	int was = atomic_load(&listener->question);
	/* Who asks says so before he puts the question. So the askers of the question that was read
	 * are seen, and one that is put after it fails the exchange. */
	do {
		if (atomic_load(&listener->askers) != 0)
			return false;
	} while (!atomic_compare_exchange_weak(
		&listener->question, &was, was == QUESTION_AGAIN ? QUESTION_ASKED : QUESTION_NONE));
	return was != QUESTION_AGAIN;
}

bool lp_chunks_is_asking(const struct lp_chunks *chunks, uint32_t shard_idx)
{
	bool is_asking = false;
	for (uint32_t i = 0; i < LP_SHARDS_MAX; i++)
		is_asking |= i != shard_idx &&
			     atomic_load(&chunks->listeners[i].question) != QUESTION_NONE;
	return is_asking;
}

void lp_chunks_evade(struct lp_chunks *chunks, uint32_t shard_idx)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	atomic_fetch_add(&chunks->listeners[shard_idx].evasion_cnt, 1);
}

uint64_t lp_chunks_evasions(const struct lp_chunks *chunks, uint32_t shard_idx)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < LP_SHARDS_MAX; i++)
		cnt += i == shard_idx ? 0 : atomic_load(&chunks->listeners[i].evasion_cnt);
	return cnt;
}

uint64_t lp_chunks_moves(const struct lp_chunks *chunks)
{
	return atomic_load(&chunks->move_cnt);
}

static int grow_locked(struct lp_chunks *chunks, uint32_t chunk_cnt)
{
	uint32_t before = chunks->chunk_cnt;
	int err = table_usable(chunks);
	chunk_cnt = LP_MAX(fitting_cnt(chunks, chunk_cnt), before);
	if (err < 0 || chunk_cnt == before)
		return err;
	/* Where splits were, entries come. */
	memset(chunks->slot + used_bytes(before), 0, chunks->slot_bytes - used_bytes(before));
	chunks->chunk_cnt = chunk_cnt;
	err = table_publish(chunks);
	if (err < 0)
		chunks->chunk_cnt = before;
	else
		chunks->stats.cnt[LP_CHUNK_USE_FREE] += chunk_cnt - before;
	atomic_store(&chunks->free_cnt, chunks->stats.cnt[LP_CHUNK_USE_FREE]);
	return err;
}

int lp_chunks_grow(struct lp_chunks *chunks, const struct lp_disk_label *label)
{
	LP_ASSERT(memcmp(label->device_uuid, chunks->device_uuid, LP_UUID_BYTES) == 0);
	LP_ASSERT(label->chunk_cnt <= lpi_label_table_room(label->table_slot_blocks));
	table_lock(chunks);
	LP_ASSERT(label->chunk_cnt >= chunks->chunk_cnt);
	int err = grow_locked(chunks, label->chunk_cnt);
	table_unlock(chunks);
	return err;
}

void lp_chunks_set_files_reserve(struct lp_chunks *chunks, uint32_t files_reserve_cnt)
{
	table_lock(chunks);
	atomic_fetch_add(&chunks->move_cnt, 1);
	chunks->files_reserve_cnt = files_reserve_cnt;
	table_unlock(chunks);
}

/* --- Questions ------------------------------------------------------------------------------- */

uint32_t lp_chunks_find(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
			uint32_t from_idx)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	struct lp_disk_chunk want = {.use = (uint8_t)use, .shard = (uint8_t)shard_idx};
	table_lock(chunks);
	uint32_t idx = find_locked(chunks, want, from_idx);
	table_unlock(chunks);
	return idx;
}

enum lp_chunk_use lp_chunks_owner(struct lp_chunks *chunks, uint32_t chunk_idx,
				  uint32_t *ret_shard_idx)
{
	struct lp_disk_chunk entry;
	table_lock(chunks);
	LP_ASSERT(chunk_idx < chunks->chunk_cnt);
	entry_get(chunks->slot, chunk_idx, &entry);
	table_unlock(chunks);
	if (entry.use != LP_CHUNK_USE_FREE)
		*ret_shard_idx = entry.shard;
	return (enum lp_chunk_use)entry.use;
}

uint32_t lp_chunks_chunk_blocks(const struct lp_chunks *chunks)
{
	return chunks->chunk_blocks;
}

struct lp_extent lp_chunks_extent(const struct lp_chunks *chunks, uint32_t chunk_idx)
{
	return (struct lp_extent){.block = chunks->base_block +
					   (uint64_t)chunk_idx * chunks->chunk_blocks,
				  .cnt = chunks->chunk_blocks};
}

uint32_t lp_chunks_of_block(struct lp_chunks *chunks, uint64_t block)
{
	if (block < chunks->base_block)
		return LP_CHUNK_NONE;
	uint64_t idx = (block - chunks->base_block) / chunks->chunk_blocks;
	table_lock(chunks);
	uint32_t chunk_cnt = chunks->chunk_cnt;
	table_unlock(chunks);
	return idx < chunk_cnt ? (uint32_t)idx : LP_CHUNK_NONE;
}

uint32_t lp_chunks_free_cnt(const struct lp_chunks *chunks)
{
	return atomic_load(&chunks->free_cnt);
}

uint64_t lp_chunks_host_lack_blocks(const struct lp_chunks *chunks)
{
	return lp_bytes_to_blocks_up(lp_bdev_host_lack_bytes(chunks->bdev));
}

uint32_t lp_chunks_for_objects_cnt(const struct lp_chunks *chunks)
{
	uint32_t free_cnt = atomic_load(&chunks->free_cnt);
	return free_cnt - LP_MIN(free_cnt, atomic_load(&chunks->files_reserve_cnt));
}

void lp_chunks_stats(struct lp_chunks *chunks, struct lp_chunks_stats *ret_stats)
{
	table_lock(chunks);
	*ret_stats = chunks->stats;
	ret_stats->total_cnt = chunks->chunk_cnt;
	ret_stats->split_cnt = chunks->splits.cnt;
	ret_stats->failed = chunks->failed;
	table_unlock(chunks);
}
