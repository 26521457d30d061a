/* SPDX-License-Identifier: Apache-2.0 */
/* The table in memory is one slot as it lies on the device. A change is made in it, encoded,
 * written to slot 0, then to slot 1, and undone in memory when either write fails. Both are written
 * each time: docs/format/disk.md says what would be lost otherwise.
 *
 * Leases are rare (one per chunk of some MiB to a GiB), so the whole used part of the slot is
 * written each time: 2 bytes per chunk. */
#include "store/chunks.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/label_impl.h"

#define CHUNKS_MAGIC   UINT32_C(0x4b43504c)
#define CHUNKS_VERSION 1u
#define SLOT_CNT       2u

enum question { QUESTION_NONE, QUESTION_ASKED, QUESTION_AGAIN };

struct listener {
	void (*asked)(void *arg); /* NULL: none */
	void *arg;
	_Atomic int question; /* that is not answered; read and answered without the lock */
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
	uint8_t *slot; /* slot_bytes, aligned: header and entries */
	struct lp_chunks_stats stats;
	struct listener listeners[LP_SHARDS_MAX];
	_Atomic uint32_t free_cnt; /* a copy, for those who take no lock */
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

static uint32_t slot_crc(const uint8_t *slot, uint32_t chunk_cnt)
{
	uint8_t header[LP_DISK_CHUNKS_SIZE];
	memcpy(header, slot, sizeof(header));
	memset(header + LP_DISK_CHUNKS_CRC_OFF, 0, LP_DISK_CHUNKS_CRC_SIZE);
	uint32_t crc = lp_crc32c(0, header, sizeof(header));
	return lp_crc32c(crc, slot + sizeof(header), used_bytes(chunk_cnt) - sizeof(header));
}

static void slot_encode(const struct lp_chunks *chunks, uint64_t sequence, uint32_t slot_idx)
{
	struct lp_disk_chunks header = {.magic = CHUNKS_MAGIC,
					.version = CHUNKS_VERSION,
					.slot = slot_idx,
					.sequence = sequence,
					.chunk_cnt = chunks->chunk_cnt};
	memcpy(header.device_uuid, chunks->device_uuid, LP_UUID_BYTES);
	lp_disk_chunks_encode(&header, chunks->slot);
	lp_put_le32(chunks->slot + LP_DISK_CHUNKS_CRC_OFF,
		    slot_crc(chunks->slot, chunks->chunk_cnt));
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
	if (header.version != CHUNKS_VERSION || header.slot != slot_idx || header.sequence == 0 ||
	    !lp_disk_chunks_reserved_is_zero(&header) ||
	    memcmp(header.device_uuid, device_uuid, LP_UUID_BYTES) != 0)
		return LP_CORRUPT(0, "chunk table slot %u: version, slot, sequence or device",
				  slot_idx);
	for (uint32_t i = 0; i < header.chunk_cnt; i++) {
		struct lp_disk_chunk entry;
		entry_get(bytes, i, &entry);
		bool free_owned = entry.use == LP_CHUNK_USE_FREE && entry.shard != 0;
		if (lp_chunk_use_name(entry.use) == NULL || entry.shard >= LP_SHARDS_MAX ||
		    free_owned)
			return LP_CORRUPT(used_bytes(i), "chunk table slot %u: entry of chunk %u",
					  slot_idx, i);
	}
	*ret_header = header;
	return 0;
}

/* Writes the table in memory to one slot. */
static int slot_write(struct lp_chunks *chunks, uint64_t sequence, uint32_t slot_idx)
{
	slot_encode(chunks, sequence, slot_idx);
	chunks->stats.write_cnt++;
	return lp_bdev_write_sync(
		chunks->bdev, chunks->slot,
		lp_align_up(used_bytes(chunks->chunk_cnt), LP_BLOCK_BYTES),
		chunks->table_block * LP_BLOCK_BYTES + slot_idx * chunks->slot_bytes, true);
}

/* Makes the table in memory durable in both slots, or marks it failed. */
static int table_publish(struct lp_chunks *chunks)
{
	uint64_t sequence = chunks->sequence + 1;
	int err = 0;
	for (uint32_t i = 0; i < SLOT_CNT && err == 0; i++)
		err = slot_write(chunks, sequence, i);
	if (err < 0)
		chunks->failed = true;
	else
		chunks->sequence = sequence;
	return err;
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
	if (chunks->slot == NULL || pthread_mutex_init(&chunks->lock, NULL) != 0) {
		free(chunks->slot);
		free(chunks);
		return -ENOMEM;
	}
	memset(chunks->slot, 0, chunks->slot_bytes);
	*ret_chunks = chunks;
	return 0;
}

void lp_chunks_close(struct lp_chunks *chunks)
{
	if (chunks == NULL)
		return;
	(void)pthread_mutex_destroy(&chunks->lock); /* fails only when held: our bug */
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
	if (header[0].sequence == header[1].sequence &&
	    (header[0].chunk_cnt != header[1].chunk_cnt ||
	     memcmp(slots->bytes[0] + LP_DISK_CHUNKS_SIZE, slots->bytes[1] + LP_DISK_CHUNKS_SIZE,
		    used_bytes(header[0].chunk_cnt) - LP_DISK_CHUNKS_SIZE) != 0))
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
	bool is_resized = header->chunk_cnt != label_cnt;
	chunks->chunk_cnt = label_cnt; /* what is new is zero, and so free */
	count_uses(chunks);
	if (chunks->read_only || (equal && !is_resized))
		return 0;
	/* The chosen slot is not to be touched before the other one is as good. */
	uint64_t sequence = chunks->sequence + 1;
	int err = slot_write(chunks, sequence, 1 - idx);
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

int lp_chunks_return(struct lp_chunks *chunks, uint32_t shard_idx, enum lp_chunk_use use,
		     uint32_t chunk_idx)
{
	struct lp_disk_chunk entry;
	table_lock(chunks);
	LP_ASSERT(chunk_idx < chunks->chunk_cnt);
	entry_get(chunks->slot, chunk_idx, &entry);
	LP_ASSERT(use != LP_CHUNK_USE_FREE);
	LP_ASSERT(entry.use == use && entry.shard == shard_idx);
	int err = table_usable(chunks);
	if (err == 0)
		err = entry_change(chunks, chunk_idx,
				   (struct lp_disk_chunk){.use = LP_CHUNK_USE_FREE});
	if (err == 0)
		chunks->stats.return_cnt++;
	table_unlock(chunks);
	return err;
}

/* --- Asking each other ------------------------------------------------------------------------ */

void lp_chunks_listen(struct lp_chunks *chunks, uint32_t shard_idx, void (*asked)(void *arg),
		      void *arg)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	table_lock(chunks);
	chunks->listeners[shard_idx].asked = asked;
	chunks->listeners[shard_idx].arg = arg;
	atomic_store(&chunks->listeners[shard_idx].question, QUESTION_NONE);
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
		if (note_question(listener))
			listener->asked(listener->arg);
	}
	table_unlock(chunks);
	return is_asking;
}

bool lp_chunks_answer(struct lp_chunks *chunks, uint32_t shard_idx)
{
	LP_ASSERT(shard_idx < LP_SHARDS_MAX);
	struct listener *listener = &chunks->listeners[shard_idx];
	int was = atomic_load(&listener->question);
	while (!atomic_compare_exchange_weak(
		&listener->question, &was, was == QUESTION_AGAIN ? QUESTION_ASKED : QUESTION_NONE))
		;
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

static int grow_locked(struct lp_chunks *chunks, uint32_t chunk_cnt)
{
	uint32_t before = chunks->chunk_cnt;
	int err = table_usable(chunks);
	if (err < 0 || chunk_cnt == before)
		return err;
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
	ret_stats->failed = chunks->failed;
	table_unlock(chunks);
}
