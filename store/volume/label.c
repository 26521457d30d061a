/* SPDX-License-Identifier: Apache-2.0 */
/* Labels are read and written by blocks of their own. The order of writing (last copy, then first)
 * is what growing relies on: see docs/format/disk.md. The plan of a device is in label_plan.c. */
#include "store/volume/label.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "store/volume/label_impl.h"

#define LABEL_MAGIC     "LAPISDEV"
#define ZERO_STEP_BYTES (UINT64_C(1) << 20)

static_assert(LP_DISK_LABEL_SIZE == LP_BLOCK_BYTES, "a label is a block");

void lpi_label_say(struct lp_label_why *why, const char *fmt, ...)
{
	if (why == NULL)
		return;
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(why->text, sizeof(why->text), fmt, ap); /* a longer text is cut */
	va_end(ap);
}

static uint32_t label_crc(const uint8_t *bytes)
{
	static const uint8_t zeros[LP_DISK_LABEL_CRC_SIZE];
	uint32_t crc = lp_crc32c(0, bytes, LP_DISK_LABEL_CRC_OFF);
	crc = lp_crc32c(crc, zeros, sizeof(zeros));
	size_t rest = LP_DISK_LABEL_CRC_OFF + LP_DISK_LABEL_CRC_SIZE;
	return lp_crc32c(crc, bytes + rest, LP_DISK_LABEL_SIZE - rest);
}

void lp_label_encode(const struct lp_disk_label *label, uint64_t copy_block, void *ret_bytes)
{
	LP_ASSERT(copy_block == 0 || copy_block == label->size_blocks - 1);
	uint8_t *bytes = ret_bytes;
	lp_disk_label_encode(label, bytes);
	memcpy(bytes + LP_DISK_LABEL_MAGIC_OFF, LABEL_MAGIC, LP_DISK_LABEL_MAGIC_SIZE);
	lp_put_le64(bytes + LP_DISK_LABEL_COPY_BLOCK_OFF, copy_block);
	lp_put_le32(bytes + LP_DISK_LABEL_CRC_OFF, label_crc(bytes));
}

/* --- Checks ---------------------------------------------------------------------------------- */

#define CHECK(cond, field)                                                                         \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return LP_CORRUPT(offsetof(struct lp_disk_label, field),                   \
					  "device label: " #field " breaks the rule " #cond);      \
	} while (0)

static int check_string(const uint8_t *text, size_t size, const char *name)
{
	size_t len = strnlen((const char *)text, size);
	if (len == size)
		return LP_CORRUPT(LP_OFFSET_NONE, "device label: %s does not end", name);
	for (size_t i = len; i < size; i++)
		if (text[i] != 0)
			return LP_CORRUPT(LP_OFFSET_NONE, "device label: %s has a tail", name);
	return 0;
}

static int check_basics(const struct lp_disk_label *label, uint64_t device_blocks)
{
	CHECK(label->block_bytes == LP_BLOCK_BYTES, block_bytes);
	CHECK(label->size_blocks >= 2, size_blocks);
	CHECK(label->size_blocks <= device_blocks, size_blocks);
	CHECK(label->sequence != 0, sequence);
	CHECK(lp_disk_role_name(label->role) != NULL, role);
	CHECK(label->shard_cnt >= 1, shard_cnt);
	CHECK(label->shard_cnt <= LP_SHARDS_MAX, shard_cnt);
	CHECK(lp_disk_label_reserved_is_zero(label), reserved);
	int err = check_string(label->db_path, sizeof(label->db_path), "db_path");
	if (err < 0)
		return err;
	return check_string(label->wal_path, sizeof(label->wal_path), "wal_path");
}

static int check_chunks(const struct lp_disk_label *label)
{
	if (label->role == LP_DISK_ROLE_WAL) {
		CHECK(label->chunk_base == 0, chunk_base);
		CHECK(label->chunk_blocks == 0, chunk_blocks);
		CHECK(label->chunk_cnt == 0, chunk_cnt);
		CHECK(label->table_block == 0, table_block);
		CHECK(label->table_slot_blocks == 0, table_slot_blocks);
		return 0;
	}
	uint64_t last = label->size_blocks - 1;
	CHECK(lp_is_power_of_two(label->chunk_blocks), chunk_blocks);
	CHECK(label->chunk_blocks >= LPI_CHUNK_BLOCKS_MIN, chunk_blocks);
	CHECK(label->chunk_blocks <= LPI_CHUNK_BLOCKS_MAX, chunk_blocks);
	CHECK(label->chunk_base > 0, chunk_base);
	CHECK(label->chunk_base <= last, chunk_base);
	CHECK(label->chunk_cnt >= 1, chunk_cnt);
	CHECK(label->chunk_cnt <= (last - label->chunk_base) / label->chunk_blocks, chunk_cnt);
	CHECK(label->table_block >= 1, table_block);
	CHECK(!lp_range_outside(label->table_block, 2 * (uint64_t)label->table_slot_blocks,
				label->chunk_base),
	      table_block);
	CHECK(label->table_slot_blocks <= LP_BDEV_IO_MAX / LP_BLOCK_BYTES, table_slot_blocks);
	CHECK(label->chunk_cnt <= lpi_label_table_room(label->table_slot_blocks),
	      table_slot_blocks);
	CHECK(lpi_label_chunks_max(label) >= 1, chunk_base);
	return 0;
}

static struct lp_extent region_of(const struct lp_disk_label *label, uint32_t idx)
{
	return (struct lp_extent){.block = label->region_block[idx],
				  .cnt = (uint64_t)label->log_blocks[idx] +
					 label->files_blocks[idx]};
}

static bool overlap(struct lp_extent a, struct lp_extent b)
{
	return a.block < lp_extent_end(b) && b.block < lp_extent_end(a);
}

/* Regions lie between the first label and the chunks (or the last label, without chunks), apart
 * from the table and from each other. */
static int check_regions(const struct lp_disk_label *label)
{
	uint64_t limit =
		label->role == LP_DISK_ROLE_WAL ? label->size_blocks - 1 : label->chunk_base;
	struct lp_extent table = {.block = label->table_block,
				  .cnt = 2 * (uint64_t)label->table_slot_blocks};
	for (uint32_t i = 0; i < LP_SHARDS_MAX; i++) {
		struct lp_extent region = region_of(label, i);
		if (i >= label->shard_cnt || region.cnt == 0) {
			CHECK(label->region_block[i] == 0, region_block);
			CHECK(label->log_blocks[i] == 0, log_blocks);
			CHECK(label->files_blocks[i] == 0, files_blocks);
			continue;
		}
		CHECK(region.block >= 1, region_block);
		CHECK(!lp_range_outside(region.block, region.cnt, limit), region_block);
		if (overlap(region, table))
			return LP_CORRUPT(LP_DISK_LABEL_REGION_BLOCK_OFF,
					  "device label: region_block %u overlaps the chunk table",
					  i);
		for (uint32_t j = 0; j < i; j++)
			if (overlap(region, region_of(label, j)))
				return LP_CORRUPT(LP_DISK_LABEL_REGION_BLOCK_OFF,
						  "device label: region_block %u overlaps %u", i,
						  j);
	}
	return 0;
}

static int check_shape(const struct lp_disk_label *label, uint64_t device_blocks)
{
	int err = check_basics(label, device_blocks);
	if (err == 0)
		err = check_chunks(label);
	if (err == 0)
		err = check_regions(label);
	return err;
}

static bool has_too_many_chunks(const struct lp_disk_label *label)
{
	return label->chunk_blocks != 0 && label->chunk_cnt > lpi_label_chunks_max(label);
}

int lp_label_check(const struct lp_disk_label *label, uint64_t device_blocks)
{
	int err = check_shape(label, device_blocks);
	if (err == 0)
		CHECK(!has_too_many_chunks(label), chunk_cnt);
	return err;
}

static int check_version(const struct lp_disk_label *label, struct lp_label_why *why)
{
	if (why != NULL)
		why->version = label->version;
	if (label->version > LP_DISK_VERSION) {
		lpi_label_say(why,
			      "the device has format version %u, this program knows versions up "
			      "to %u: use a newer Lapis",
			      label->version, LP_DISK_VERSION);
		return -ENOTSUP;
	}
	if (label->version < LP_DISK_VERSION) {
		lpi_label_say(why, "the device has the older format version %u: upgrade it first",
			      label->version);
		return -ESTALE;
	}
	if (label->incompat != 0) {
		lpi_label_say(why, "the device uses features this program does not know (0x%llx)",
			      (unsigned long long)label->incompat);
		return -ENOTSUP;
	}
	return 0;
}

/* *ret_is_cut_off: its crc is right, and the device smaller than it says. */
static int decode(const void *bytes, uint64_t block_idx, uint64_t device_blocks,
		  struct lp_disk_label *ret_label, struct lp_label_why *why, bool *ret_is_cut_off)
{
	struct lp_disk_label label;
	lp_disk_label_decode(bytes, &label);
	if (memcmp(label.magic, LABEL_MAGIC, sizeof(label.magic)) != 0) {
		lpi_label_say(why, "no Lapis label: this is not a device of a Lapis store");
		return -EMEDIUMTYPE;
	}
	if (label.crc != label_crc(bytes))
		return LP_CORRUPT_CRC(block_idx * LP_BLOCK_BYTES, "device label");
	int err = check_version(&label, why);
	if (err < 0)
		return err;
	if (label.copy_block != block_idx)
		return LP_CORRUPT(block_idx * LP_BLOCK_BYTES,
				  "device label: copy_block says %llu, found in %llu",
				  (unsigned long long)label.copy_block,
				  (unsigned long long)block_idx);
	*ret_is_cut_off = label.size_blocks > device_blocks;
	if (*ret_is_cut_off)
		lpi_label_say(why,
			      "the store on it has %llu MiB, and the device only %llu: it was cut "
			      "off, or copied in part (a full copy or the rest is needed)",
			      (unsigned long long)(label.size_blocks >> (20 - LP_BLOCK_SHIFT)),
			      (unsigned long long)(device_blocks >> (20 - LP_BLOCK_SHIFT)));
	err = check_shape(&label, device_blocks);
	if (err < 0)
		return err;
	/* Stores were grown beyond what can be opened, and so have nothing there. */
	if (has_too_many_chunks(&label))
		label.chunk_cnt = (uint32_t)lpi_label_chunks_max(&label);
	if (block_idx != 0 && block_idx != label.size_blocks - 1)
		return LP_CORRUPT(block_idx * LP_BLOCK_BYTES,
				  "device label: size_blocks does not end where this copy lies");
	*ret_label = label;
	return 0;
}

int lp_label_decode(const void *bytes, uint64_t block_idx, uint64_t device_blocks,
		    struct lp_disk_label *ret_label, struct lp_label_why *why)
{
	bool is_cut_off;
	return decode(bytes, block_idx, device_blocks, ret_label, why, &is_cut_off);
}

/* --- Reading --------------------------------------------------------------------------------- */

enum { COPY_FIRST, COPY_LAST, COPY_FORMER, COPY_CNT };

struct copies {
	struct lp_disk_label label[COPY_CNT];
	uint64_t block[COPY_CNT];
	int err[COPY_CNT]; /* 0: valid */
	bool is_cut_off[COPY_CNT];
	struct lp_label_why why[COPY_CNT];
};

static void copy_read(struct lp_bdev *bdev, uint8_t *buf, unsigned idx, struct copies *copies)
{
	uint64_t device_blocks = lp_bdev_caps(bdev)->size_bytes >> LP_BLOCK_SHIFT;
	uint64_t block = copies->block[idx];
	copies->why[idx] = (struct lp_label_why){.text = ""};
	copies->err[idx] = lp_bdev_read_sync(bdev, buf, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES);
	if (copies->err[idx] == 0)
		copies->err[idx] = decode(buf, block, device_blocks, &copies->label[idx],
					  &copies->why[idx], &copies->is_cut_off[idx]);
}

static void copies_read(struct lp_bdev *bdev, uint8_t *buf, struct copies *copies)
{
	uint64_t device_blocks = lp_bdev_caps(bdev)->size_bytes >> LP_BLOCK_SHIFT;
	copies->block[COPY_FIRST] = 0;
	copies->block[COPY_LAST] = device_blocks - 1;
	copies->err[COPY_FORMER] = -ENOENT;
	copy_read(bdev, buf, COPY_FIRST, copies);
	copy_read(bdev, buf, COPY_LAST, copies);
	if (copies->err[COPY_FIRST] != 0)
		return;
	const struct lp_disk_label *first = &copies->label[COPY_FIRST];
	if (first->size_blocks != device_blocks) {
		copies->block[COPY_FORMER] = first->size_blocks - 1;
		copy_read(bdev, buf, COPY_FORMER, copies);
	}
	/* What another store left at the end of a device is not ours. */
	for (unsigned i = COPY_LAST; i < COPY_CNT; i++) {
		if (copies->err[i] == 0 &&
		    memcmp(first->device_uuid, copies->label[i].device_uuid, LP_UUID_BYTES) != 0)
			copies->err[i] = -ENOENT;
	}
}

/* The index of the copy that counts, or the error to give. A refusal for its version by any
 * copy is a refusal; damage is reported before absence. */
static int copies_choose(const struct copies *copies, unsigned *ret_idx)
{
	static const int order[] = {-EBADMSG, -EUCLEAN, -EIO, -ENODEV, -EMEDIUMTYPE};
	unsigned best = COPY_CNT;
	for (unsigned i = 0; i < COPY_CNT; i++) {
		bool refused = copies->err[i] == -ENOTSUP || copies->err[i] == -ESTALE;
		if (refused) {
			*ret_idx = i;
			return copies->err[i];
		}
		/* Then a copy at the end is what the store left there when it was smaller: it says
		 * nothing of what is now missing, and must not be written over this one. */
		if (copies->is_cut_off[i]) {
			*ret_idx = i;
			return copies->err[i];
		}
		if (copies->err[i] == 0 &&
		    (best == COPY_CNT || copies->label[i].sequence > copies->label[best].sequence))
			best = i;
	}
	if (best != COPY_CNT) {
		*ret_idx = best;
		return 0;
	}
	for (unsigned k = 0; k < LP_ARRAY_SIZE(order); k++)
		for (unsigned i = 0; i <= COPY_LAST; i++)
			if (copies->err[i] == order[k]) {
				*ret_idx = i;
				return order[k];
			}
	*ret_idx = COPY_FIRST;
	return copies->err[COPY_FIRST];
}

static int copy_write(struct lp_bdev *bdev, const struct lp_disk_label *label, uint64_t block,
		      uint8_t *buf)
{
	lp_label_encode(label, block, buf);
	return lp_bdev_write_sync(bdev, buf, LP_BLOCK_BYTES, block * LP_BLOCK_BYTES, true);
}

/* Both copies, last one first. */
static int copies_write(struct lp_bdev *bdev, const struct lp_disk_label *label, uint8_t *buf)
{
	int err = copy_write(bdev, label, label->size_blocks - 1, buf);
	return err < 0 ? err : copy_write(bdev, label, 0, buf);
}

static bool copies_differ(const struct copies *copies, const struct lp_disk_label *label)
{
	unsigned last =
		label->size_blocks - 1 == copies->block[COPY_LAST] ? COPY_LAST : COPY_FORMER;
	return copies->err[COPY_FIRST] != 0 || copies->err[last] != 0 ||
	       copies->label[COPY_FIRST].sequence != label->sequence ||
	       copies->label[last].sequence != label->sequence;
}

/* Brings the copies up to the chosen label. */
static int copies_repair(struct lp_bdev *bdev, const struct copies *copies,
			 const struct lp_disk_label *label, struct lp_label_why *why, uint8_t *buf)
{
	if (label->ro_compat != 0) {
		lpi_label_say(why,
			      "the device uses features (0x%llx) that this program may only "
			      "read: open it read-only",
			      (unsigned long long)label->ro_compat);
		return -EROFS;
	}
	return copies_differ(copies, label) ? copies_write(bdev, label, buf) : 0;
}

static int label_read(struct lp_bdev *bdev, bool repair, struct lp_disk_label *ret_label,
		      struct lp_label_why *why, struct copies *copies)
{
	unsigned idx = 0;
	uint8_t *buf = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	if (buf == NULL)
		return -ENOMEM;
	/* After a crash of the process alone what is read need not be durable yet. */
	int err = repair ? lp_bdev_flush_sync(bdev) : 0;
	if (err < 0)
		goto out;
	copies_read(bdev, buf, copies);
	err = copies_choose(copies, &idx);
	if (err < 0 && why != NULL)
		*why = copies->why[idx];
	if ((err == -EBADMSG || err == -EUCLEAN) && why != NULL && why->text[0] == '\0')
		lpi_label_say(why, "neither copy of its label can be read, in the first and in the "
				   "last block: where all else is, is lost (restore a backup)");
	if (err == 0 && repair)
		err = copies_repair(bdev, copies, &copies->label[idx], why, buf);
	if (err == 0)
		*ret_label = copies->label[idx];
out:
	free(buf);
	return err;
}

int lp_label_read(struct lp_bdev *bdev, bool repair, struct lp_disk_label *ret_label,
		  struct lp_label_why *why)
{
	if (why != NULL)
		*why = (struct lp_label_why){.text = ""};
	if (lp_bdev_caps(bdev)->size_bytes < 2 * LP_BLOCK_BYTES) {
		lpi_label_say(why, "the device is too small to hold a Lapis store");
		return -EMEDIUMTYPE;
	}
	struct copies *copies = calloc(1, sizeof(*copies));
	if (copies == NULL)
		return -ENOMEM;
	int err = label_read(bdev, repair, ret_label, why, copies);
	free(copies);
	return err;
}

/* --- Writing --------------------------------------------------------------------------------- */

static int label_write(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	uint8_t *buf = aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	if (buf == NULL)
		return -ENOMEM;
	int err = copies_write(bdev, label, buf);
	free(buf);
	return err;
}

static int zero_range(struct lp_bdev *bdev, uint64_t block, uint64_t cnt)
{
	uint8_t *zeros = aligned_alloc(LP_BLOCK_BYTES, ZERO_STEP_BYTES);
	if (zeros == NULL)
		return -ENOMEM;
	memset(zeros, 0, ZERO_STEP_BYTES);
	int err = 0;
	for (uint64_t done = 0; done < cnt && err == 0;) {
		uint64_t step = LP_MIN(cnt - done, ZERO_STEP_BYTES / LP_BLOCK_BYTES);
		err = lp_bdev_write_sync(bdev, zeros, step * LP_BLOCK_BYTES,
					 (block + done) * LP_BLOCK_BYTES, false);
		done += step;
	}
	free(zeros);
	return err;
}

int lp_label_format_begin(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	LP_ASSERT(lp_bdev_caps(bdev)->size_bytes >= label->size_blocks * LP_BLOCK_BYTES);
	int err = zero_range(bdev, 0, 1);
	if (err == 0)
		err = zero_range(bdev, label->size_blocks - 1, 1);
	/* No old label may come back once anything else of the old store is overwritten. */
	if (err == 0)
		err = lp_bdev_flush_sync(bdev);
	if (err == 0 && label->table_slot_blocks != 0)
		err = zero_range(bdev, label->table_block, 2 * (uint64_t)label->table_slot_blocks);
	for (uint32_t i = 0; i < label->shard_cnt && err == 0; i++) {
		struct lp_extent region = region_of(label, i);
		err = zero_range(bdev, region.block, region.cnt);
	}
	return err;
}

int lp_label_format_commit(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	LP_ASSERT(label->sequence != 0);
	int err = lp_bdev_flush_sync(bdev);
	return err < 0 ? err : label_write(bdev, label);
}

int lp_label_update(struct lp_bdev *bdev, struct lp_disk_label *label)
{
	struct lp_disk_label next = *label;
	next.sequence++;
	int err = label_write(bdev, &next);
	if (err == 0)
		*label = next;
	return err;
}

int lp_label_grow(struct lp_bdev *bdev, struct lp_disk_label *label)
{
	uint64_t device_blocks = lp_bdev_caps(bdev)->size_bytes >> LP_BLOCK_SHIFT;
	if (device_blocks <= label->size_blocks)
		return -EALREADY;
	struct lp_disk_label next = *label;
	next.sequence++;
	next.size_blocks = device_blocks;
	if (next.chunk_blocks != 0) {
		uint64_t cnt = (device_blocks - 1 - next.chunk_base) / next.chunk_blocks;
		next.chunk_cnt = (uint32_t)LP_MIN(cnt, lpi_label_chunks_max(&next));
	}
	LP_ASSERT(next.chunk_cnt >= label->chunk_cnt);
	int err = label_write(bdev, &next);
	if (err == 0)
		*label = next;
	return err;
}

struct lp_extent lp_label_log_area(const struct lp_disk_label *label, uint32_t shard_idx)
{
	LP_ASSERT(shard_idx < label->shard_cnt);
	return (struct lp_extent){.block = label->region_block[shard_idx],
				  .cnt = label->log_blocks[shard_idx]};
}

struct lp_extent lp_label_files_area(const struct lp_disk_label *label, uint32_t shard_idx)
{
	LP_ASSERT(shard_idx < label->shard_cnt);
	return (struct lp_extent){.block = label->region_block[shard_idx] +
					   label->log_blocks[shard_idx],
				  .cnt = label->files_blocks[shard_idx]};
}
