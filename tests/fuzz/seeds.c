/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the seeds of the fuzzers whose inputs are single records: `make fuzz-seeds`, into
 * tests/fuzz/corpus/. Each is what the encoders write, once as it is and once for the fuzzer to
 * repair, so that mutations of it come past the checksums. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/crc32c.h"
#include "base/endian.h"
#include "namespace/state/pact_record.h"
#include "store/blockfs/blockfs.h"
#include "store/extmap/extmap.h"
#include "store/index/kv.h"
#include "store/record/inode.h"
#include "store/record/ref_counts.h"
#include "store/record/values.h"
#include "store/space/record.h"
#include "store/space/space.h"
#include "store/volume/label.h"
#include "wire/wire.h"

#include "format/space.h"

#define SEED_BYTES_MAX 65536u
#define FLAG_REPAIR    1u
#define MIB            (UINT64_C(1) << 20)

static uint8_t seed[SEED_BYTES_MAX];
static size_t seed_len;
static const char *corpus;

static void must(int result)
{
	LP_ASSERT(result == 0);
}

static void begin(uint8_t flags)
{
	seed[0] = flags;
	seed_len = 1;
}

static void add(const void *bytes, size_t len)
{
	LP_ASSERT(len <= sizeof(seed) - seed_len);
	if (len > 0 && bytes != NULL)
		memcpy(seed + seed_len, bytes, len);
	seed_len += len;
}

static void add_u8(uint8_t value)
{
	add(&value, sizeof(value));
}

static void add_u16(size_t value)
{
	uint8_t bytes[sizeof(uint16_t)];
	LP_ASSERT(value <= UINT16_MAX);
	lp_put_le16(bytes, (uint16_t)value);
	add(bytes, sizeof(bytes));
}

static void add_u64(uint64_t value)
{
	uint8_t bytes[sizeof(uint64_t)];
	lp_put_le64(bytes, value);
	add(bytes, sizeof(bytes));
}

static size_t without_zeros(const uint8_t *bytes, size_t len)
{
	while (len > 0 && bytes[len - 1] == 0)
		len--;
	return len;
}

static void write_file(const char *fuzzer, const char *name, const char *suffix)
{
	char path[4096];
	int len = snprintf(path, sizeof(path), "%s/%s/%s%s", corpus, fuzzer, name, suffix);
	LP_ASSERT(len > 0 && (size_t)len < sizeof(path));
	FILE *file = fopen(path, "wb");
	if (file == NULL || fwrite(seed, 1, seed_len, file) != seed_len || fclose(file) != 0) {
		perror(path);
		_exit(1);
	}
}

/* The seed as it is, and once more with these flags. */
static void save(const char *fuzzer, const char *name, uint8_t repair_flags)
{
	write_file(fuzzer, name, "");
	if (repair_flags == 0)
		return;
	seed[0] |= repair_flags;
	write_file(fuzzer, name, "-repair");
}

/* --- label, chunks, blockfs ------------------------------------------------------------------ */

static void make_label(const struct lp_disk_label *label, const char *name, bool is_last)
{
	uint8_t bytes[LP_DISK_LABEL_SIZE];
	lp_label_encode(label, is_last ? label->size_blocks - 1 : 0, bytes);
	begin(is_last ? 2 : 0);
	add_u64(label->size_blocks);
	add(bytes, without_zeros(bytes, sizeof(bytes)));
	save("label", name, FLAG_REPAIR);
}

static void make_labels(void)
{
	struct lp_label_plan plan;
	struct lp_label_wish wish = {.data_bytes = 4096 * MIB,
				     .db_bytes = 1024 * MIB,
				     .wal_bytes = 1024 * MIB,
				     .shard_cnt = 2,
				     .created_ns = 12345,
				     .store_uuid = "store",
				     .device_uuid = {"data", "db", "wal"},
				     .db_path = "/dev/db",
				     .wal_path = "/dev/wal"};
	must(lp_label_make_plan(&wish, &plan, NULL));
	plan.data.sequence = LP_MAX(plan.data.sequence, UINT64_C(1));
	plan.db.sequence = LP_MAX(plan.db.sequence, UINT64_C(1));
	plan.wal.sequence = LP_MAX(plan.wal.sequence, UINT64_C(1));
	make_label(&plan.data, "data", false);
	make_label(&plan.db, "db-last", true);
	make_label(&plan.wal, "wal", false);
}

static struct lp_disk_label tiny_label(void)
{
	struct lp_disk_label label = {.version = LP_DISK_VERSION,
				      .sequence = 1,
				      .role = LP_DISK_ROLE_DATA,
				      .block_bytes = (uint32_t)LP_BLOCK_BYTES,
				      .size_blocks = 1281,
				      .chunk_base = 256,
				      .chunk_blocks = 256,
				      .chunk_cnt = 4,
				      .table_block = 1,
				      .table_slot_blocks = 1,
				      .shard_cnt = 1};
	memset(label.device_uuid, 0x22, sizeof(label.device_uuid));
	memset(label.store_uuid, 0x11, sizeof(label.store_uuid));
	label.region_block[0] = 8;
	label.log_blocks[0] = 1;
	label.files_blocks[0] = 34;
	return label;
}

static void make_chunks(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	static _Alignas(4096) uint8_t slot[4096];
	for (uint8_t i = 0; i < 2; i++) {
		uint64_t at = (label->table_block + i) * LP_BLOCK_BYTES;
		must(lp_bdev_read_sync(bdev, slot, sizeof(slot), at));
		begin(i == 0 ? 0 : 2);
		add(slot, LP_DISK_CHUNKS_SIZE + label->chunk_cnt * (size_t)LP_DISK_CHUNK_SIZE);
		save("chunks", i == 0 ? "first" : "second", FLAG_REPAIR);
	}
}

static void save_blockfs(struct lp_bdev *bdev, struct lp_extent area, const char *name)
{
	static _Alignas(4096) uint8_t block[4096];
	struct lp_blockfs_super super;
	must(lp_bdev_read_sync(bdev, block, sizeof(block), area.block * LP_BLOCK_BYTES));
	must(lp_blockfs_decode_super(block, 0, &super));
	begin(0);
	add(block, LP_BLOCKFS_SUPER_SIZE);
	uint64_t first = area.block + 2 + super.active_half * (uint64_t)super.half_blocks;
	for (uint32_t i = 0; i < super.half_blocks; i++) {
		must(lp_bdev_read_sync(bdev, block, sizeof(block), (first + i) * LP_BLOCK_BYTES));
		size_t len = without_zeros(block, sizeof(block));
		if (len == 0)
			break;
		add_u8((uint8_t)i);
		add_u8(1);
		add_u16(len);
		add(block, len);
	}
	save("blockfs", name, 3);
}

static void add_record_head(enum lp_blockfs_type type, size_t len)
{
	add_u8((uint8_t)type);
	add_u8(0);
	add_u16(len);
}

static void add_name(enum lp_blockfs_type type, uint64_t id, const char *name)
{
	uint8_t bytes[LP_BLOCKFS_NAME_SIZE];
	struct lp_blockfs_name body = {.file_id = id, .name_bytes = (uint16_t)strlen(name)};
	lp_blockfs_name_encode(&body, bytes);
	add_record_head(type, sizeof(bytes) + body.name_bytes);
	add(bytes, sizeof(bytes));
	add(name, body.name_bytes);
}

/* Two more blocks, their crcs, and a tail. */
static void add_publish(uint64_t id, uint64_t size_blocks, uint64_t block)
{
	uint8_t bytes[LP_BLOCKFS_PUBLISH_SIZE + LP_BLOCKFS_EXTENT_SIZE];
	struct lp_blockfs_publish body = {.file_id = id,
					  .size_bytes = size_blocks * LP_BLOCK_BYTES + 4,
					  .extent_cnt = 1,
					  .crc_cnt = 2,
					  .tail_bytes = 4};
	struct lp_blockfs_extent extent = {
		.block = block, .block_cnt = 2, .role = LP_DISK_ROLE_DATA};
	lp_blockfs_publish_encode(&body, bytes);
	lp_blockfs_extent_encode(&extent, bytes + LP_BLOCKFS_PUBLISH_SIZE);
	add_record_head(LP_BLOCKFS_TYPE_PUBLISH, sizeof(bytes) + 12);
	add(bytes, sizeof(bytes));
	add("crc1crc2tail", 12);
}

/* Records of which the fuzzer makes frames. The seed has a superblock. */
static void save_records(void)
{
	uint8_t state[LP_BLOCKFS_STATE_SIZE];
	seed[0] = 8;
	seed_len = 1 + LP_BLOCKFS_SUPER_SIZE;
	lp_blockfs_state_encode(&(struct lp_blockfs_state){.next_file_id = 1}, state);
	add_record_head(LP_BLOCKFS_TYPE_STATE, sizeof(state));
	add(state, sizeof(state));
	add_name(LP_BLOCKFS_TYPE_CREATE, 1, "a");
	add_name(LP_BLOCKFS_TYPE_CREATE, 2, "b");
	add_publish(1, 2, 300);
	add_publish(1, 4, 400);
	add_name(LP_BLOCKFS_TYPE_RENAME, 1, "b");
	lp_blockfs_delete_encode(&(struct lp_blockfs_delete){.file_id = 1}, state);
	add_record_head(LP_BLOCKFS_TYPE_DELETE, LP_BLOCKFS_DELETE_SIZE);
	add(state, LP_BLOCKFS_DELETE_SIZE);
	save("blockfs", "records", 3);
}

static void put_file(struct lp_blockfs *fs, const char *name, size_t len)
{
	static uint8_t bytes[100000];
	struct lp_blockfs_writer *writer = NULL;
	memset(bytes, 0x5a, sizeof(bytes));
	must(lp_blockfs_create(fs, name, false, &writer));
	must(lp_blockfs_append(writer, bytes, len));
	must(lp_blockfs_finish(writer));
}

static void make_blockfs(struct lp_bdev *bdev, const struct lp_disk_label *label)
{
	struct lp_chunks_options chunks_options = {.label = label};
	struct lp_chunks *chunks = NULL;
	struct lp_blockfs *fs = NULL;
	struct lp_clock_sim clock;
	lp_clock_sim_init(&clock, 1000, 5000);
	must(lp_chunks_open(bdev, &chunks_options, &chunks));
	struct lp_blockfs_options options = {.data = {bdev, chunks},
					     .journal_bdev = bdev,
					     .area = lp_label_files_area(label, 0),
					     .clock = &clock.clock};
	memcpy(options.store_uuid, label->store_uuid, sizeof(options.store_uuid));
	must(lp_blockfs_format(&options));
	save_blockfs(bdev, options.area, "fresh");
	save_records();
	must(lp_blockfs_open(&options, &fs));
	put_file(fs, "db/CURRENT", 16);
	put_file(fs, "db/1.sst", 100000);
	must(lp_blockfs_rename(fs, "db/1.sst", "db/2.sst"));
	save_blockfs(bdev, options.area, "files");
	must(lp_blockfs_delete(fs, "db/CURRENT"));
	for (int i = 0; i < 6; i++)
		put_file(fs, "db/LOG", 700);
	save_blockfs(bdev, options.area, "snapshot");
	lp_blockfs_close(fs);
	lp_chunks_close(chunks);
}

static void make_devices(void)
{
	struct lp_disk_label label = tiny_label();
	struct lp_bdev *bdev = NULL;
	must(lp_bdev_open_mem(label.size_blocks * LP_BLOCK_BYTES, LP_BLOCK_BYTES, &bdev));
	must(lp_chunks_format(bdev, &label));
	make_blockfs(bdev, &label);
	make_chunks(bdev, &label);
	lp_bdev_close(bdev);
}

/* --- inode ----------------------------------------------------------------------------------- */

static struct lp_inode_bytes bytes_of(const char *text)
{
	return (struct lp_inode_bytes){(const uint8_t *)text, strlen(text)};
}

static void save_inode(const struct lp_inode *inode, const char *name)
{
	static uint8_t bytes[LP_INODE_BYTES_MAX];
	size_t len = lp_inode_encode(inode, bytes);
	begin(0);
	add(bytes, len);
	save("inode", name, 3);
}

static void make_inodes(void)
{
	uint8_t one[LP_INODE_XATTRS_MAX];
	uint8_t two[LP_INODE_XATTRS_MAX];
	struct lp_inode_bytes value = bytes_of("blue");
	struct lp_inode_bytes names[2] = {bytes_of("user.colour"), bytes_of("user.a")};
	int len = lp_xattrs_set((struct lp_inode_bytes){NULL, 0}, &names[0], &value, one);
	LP_ASSERT(len > 0);
	len = lp_xattrs_set((struct lp_inode_bytes){one, (size_t)len}, &names[1], &value, two);
	LP_ASSERT(len > 0);
	struct lp_inode file = {.ino = {7},
				.parent = {1},
				.nlink = 1,
				.mode = 0644,
				.type = LP_INODE_TYPE_FILE,
				.name = bytes_of("file"),
				.content = bytes_of("some bytes"),
				.xattrs = {two, (size_t)len}};
	file.size_bytes = file.content.len;
	file.content_crc = lp_crc32c(0, file.content.at, file.content.len);
	save_inode(&file, "inline");
	file.content = (struct lp_inode_bytes){NULL, 0};
	file.content_crc = 0;
	file.map = bytes_of("any bytes will do");
	save_inode(&file, "map");
	struct lp_inode dir = {
		.ino = {7}, .parent = {1}, .mode = 0755, .type = LP_INODE_TYPE_DIR, .nlink = 2};
	save_inode(&dir, "dir");
	struct lp_inode link = {.ino = {7},
				.type = LP_INODE_TYPE_SYMLINK,
				.nlink = 1,
				.target = bytes_of("../target")};
	link.size_bytes = link.target.len;
	link.content_crc = lp_crc32c(0, link.target.at, link.target.len);
	save_inode(&link, "symlink");
	struct lp_inode device = {
		.ino = {7}, .type = LP_INODE_TYPE_CHARDEV, .nlink = 1, .rdev = 0x103};
	save_inode(&device, "device");
}

/* --- extmap ---------------------------------------------------------------------------------- */

struct span {
	uint64_t first;
	uint64_t cnt;
	uint64_t block;
	bool is_unwritten;
};

static void map_span(struct lp_extmap *map, const struct span *span)
{
	static const uint32_t crcs[LP_EXTMAP_LEAF_BLOCKS] = {1, 2, 3};
	struct lp_extmap_release items[LP_EXTMAP_LEAF_BLOCKS];
	struct lp_extmap_released released = {.items = items, .max = LP_EXTMAP_LEAF_BLOCKS};
	struct lp_extent extent = {span->block, span->cnt};
	struct lp_extmap_range range = {span->first, span->cnt};
	struct lp_extmap_new fresh = {
		.extents = &extent, .extents_cnt = 1, .crcs = span->is_unwritten ? NULL : crcs};
	LP_ASSERT(lp_extmap_reserve(map, range, 1) >= 0);
	lp_extmap_replace(map, range, &fresh, &released);
}

static void make_extmap(const char *name, const struct span *spans, size_t cnt)
{
	static uint8_t leaves[SEED_BYTES_MAX];
	uint8_t buf[LP_EXTMAP_ROOT_BYTES_MAX];
	struct lp_extmap_piece piece;
	struct lp_extmap map;
	size_t leaves_len = 0;
	lp_extmap_init(&map, (struct lp_ino){7}, NULL);
	for (size_t i = 0; i < cnt; i++)
		map_span(&map, &spans[i]);
	while (lp_extmap_take_dirty(&map, buf, &piece)) {
		if (piece.len == 0)
			continue;
		uint8_t *at = leaves + leaves_len;
		lp_put_le32(at, (uint32_t)(piece.block / LP_EXTMAP_LEAF_BLOCKS));
		lp_put_le16(at + 4, (uint16_t)piece.len);
		memcpy(at + 6, buf, piece.len);
		leaves_len += 6 + piece.len;
	}
	size_t root_len = lp_extmap_encode_root(&map, buf);
	begin(0);
	add_u8(3);
	add_u16(root_len);
	add(buf, root_len);
	add(leaves, leaves_len);
	save("extmap", name, FLAG_REPAIR);
	lp_extmap_fini(&map);
}

static void make_extmaps(void)
{
	static const struct span small[] = {{0, 3, 100, false}, {3, 5, 200, true}};
	static const struct span split[] = {
		{0, 3, 100, false}, {70, 2, 300, false}, {640, 1, 500, true}};
	static struct span sparse[70];
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(sparse); i++)
		sparse[i] = (struct span){i * 1000, 1 + i % 3, 1000 + 10 * i, i % 7 == 0};
	make_extmap("empty", NULL, 0);
	make_extmap("inline", small, LP_ARRAY_SIZE(small));
	make_extmap("split", split, LP_ARRAY_SIZE(split));
	make_extmap("sparse", sparse, LP_ARRAY_SIZE(sparse));
}

/* --- values, keys, batch --------------------------------------------------------------------- */

static void save_value(unsigned kind, const char *name, const uint8_t *bytes, size_t len)
{
	begin((uint8_t)(kind << 1));
	add_u64(7);
	add(bytes, len);
	save("values", name, FLAG_REPAIR);
}

static void make_values(void)
{
	struct lp_ino ino = {7};
	struct lp_key key;
	uint8_t bytes[LP_REFS_BYTES_MAX];
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, ino, "name", 4);
	struct lp_dirent_value dirent = {.type = LP_INODE_TYPE_FILE, .ino = 9, .insertion = 3};
	lp_dirent_write(&dirent, &key, bytes);
	save_value(0, "dirent", bytes, LP_DIRENT_VALUE_SIZE);
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, ino);
	struct lp_fragment_value fragment = {
		.next_insertion = 5, .entries_cnt = 2, .name_bytes = 8};
	lp_fragment_write(&fragment, &key, bytes);
	save_value(1, "fragment", bytes, LP_FRAGMENT_VALUE_SIZE);
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	struct lp_unfinished_value unfinished = {.kind = LP_UNFINISHED_KIND_TRIM, .from_block = 64};
	lp_unfinished_write(&unfinished, &key, bytes);
	save_value(2, "unfinished", bytes, LP_UNFINISHED_VALUE_SIZE);
	struct lp_refs refs = {.group = 7, .cnt = {2, 2, 3, 0, [62] = 1, [63] = UINT32_MAX}};
	save_value(3, "refs", bytes, lp_refs_encode(&refs, bytes));
	static uint8_t record[LP_DEFERRED_RECORD_BYTES];
	const struct lp_deferred_value deferred = {
		.ino = 9,
		.file_block = 3,
		.device_block = 1000,
		.block_crc = lp_crc32c(0, record + LP_DEFERRED_VALUE_SIZE, LP_BLOCK_BYTES)};
	lp_key_of_number(&key, LP_KEY_SPACE_DEFERRED, 7);
	lp_deferred_write(&deferred, &key, record);
	save_value(4, "deferred", record, sizeof(record));
	lp_key_of_store(&key, "scrub");
	const struct lp_scrub_value scrub = {
		.is_under_way = 1, .since_ns = 1000, .behind = 7, .damaged = 1, .whole_ns = 900};
	lp_scrub_write(&scrub, &key, bytes);
	save_value(5, "scrub", bytes, LP_SCRUB_VALUE_SIZE);
}

static void save_key(const struct lp_key *key, const char *name)
{
	seed_len = 0;
	add(key->bytes, key->len);
	save("keys", name, 0);
}

static void make_keys(void)
{
	struct lp_key key;
	struct lp_ino ino = {7};
	lp_key_of_ino(&key, LP_KEY_SPACE_INODE, ino);
	save_key(&key, "inode");
	lp_key_of_ino(&key, LP_KEY_SPACE_FRAGMENT, ino);
	save_key(&key, "fragment");
	lp_key_of_map(&key, ino, 64);
	save_key(&key, "map");
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, ino, "name", 4);
	save_key(&key, "dirent");
	lp_key_of_name(&key, LP_KEY_SPACE_XATTR, ino, "user.a", 6);
	save_key(&key, "xattr");
	lp_key_of_name(&key, LP_KEY_SPACE_OMAP, ino, "a\0b\xff", 4);
	save_key(&key, "omap");
	lp_key_of_number(&key, LP_KEY_SPACE_REFS, 1000);
	save_key(&key, "refs");
	lp_key_of_store(&key, "applied");
	save_key(&key, "store");
	lp_key_of_store_number(&key, "alloc", 3);
	save_key(&key, "store-number");
}

static void save_batch(struct lp_kv_batch *batch, const char *name)
{
	struct lp_kv_bytes data = lp_kv_batch_data(batch);
	seed_len = 0;
	add(data.data, data.len);
	save("batch", name, 0);
}

static void make_batches(void)
{
	static const uint8_t zeros[200];
	struct lp_kv_batch *batch = NULL;
	must(lp_kv_batch_new(0, &batch));
	save_batch(batch, "empty");
	must(lp_kv_batch_put(batch, (struct lp_kv_bytes){"key", 3},
			     (struct lp_kv_bytes){"value", 5}));
	must(lp_kv_batch_delete(batch, (struct lp_kv_bytes){"old", 3}));
	save_batch(batch, "two");
	must(lp_kv_batch_put(batch, (struct lp_kv_bytes){"long", 4},
			     (struct lp_kv_bytes){zeros, sizeof(zeros)}));
	save_batch(batch, "long");
	lp_kv_batch_free(batch);
}

/* --- space ----------------------------------------------------------------------------------- */

static void add_record(uint32_t chunk, uint64_t word0, uint64_t word1)
{
	uint64_t words[2] = {word0, word1};
	uint8_t bytes[LP_SPACE_RECORD_SIZE + sizeof(words)];
	struct lpi_space_record record = {.chunk = chunk, .as_of = 2};
	lp_bitmap_init(&record.used, words, 128);
	words[0] = word0; /* whatever init made of them */
	words[1] = word1;
	size_t len = lpi_space_record_encode(&record, bytes);
	add_u8((uint8_t)chunk);
	add_u16(len);
	add(bytes, len);
}

static void add_change(uint64_t block, uint32_t cnt, uint8_t kind)
{
	struct lp_space_change change = {.block = block, .cnt = cnt, .kind = kind};
	uint8_t bytes[LP_SPACE_CHANGE_SIZE];
	lp_space_change_encode(&change, bytes);
	add(bytes, sizeof(bytes));
}

static void make_spaces(void)
{
	begin(0);
	add_u8(7);
	add_record(0, 0xff00, 0);
	add_record(1, UINT64_C(0x5555555555555555), UINT64_C(0x5555555555555555));
	add_record(3, 0, 0);
	add_u8(130); /* frame 3 */
	add_u16(2 * (size_t)LP_SPACE_CHANGE_SIZE);
	add_change(16 + 8, 4, LP_SPACE_CHANGE_KIND_FREE);
	add_change(16 + 256, 100, LP_SPACE_CHANGE_KIND_TAKE);
	add_u8(128); /* frame 4 */
	add_u16(LP_SPACE_CHANGE_SIZE);
	add_change(16 + 128 - 20, 20, LP_SPACE_CHANGE_KIND_TAKE);
	save("space", "records-and-frames", FLAG_REPAIR);
	begin(0);
	add_u8(15);
	add_u8(128);
	add_u16(LP_SPACE_CHANGE_SIZE);
	add_change(16 + 100, 200, LP_SPACE_CHANGE_KIND_TAKE);
	save("space", "frame-of-three-chunks", FLAG_REPAIR);
}

static void save_pact(const struct lpi_pact_record *record, const char *name)
{
	static uint8_t bytes[LPI_PACT_RECORD_BYTES_MAX];
	begin(0);
	add_u8(2); /* three shards */
	add_u64(77);
	add(bytes, lpi_pact_record_encode(record, 77, bytes));
	save("pact", name, FLAG_REPAIR);
}

static void make_pacts(void)
{
	static const uint8_t mark[] = {LP_KEY_SPACE_UNFINISHED, 0, 0, 0, 0, 0, 0, 0, 5};
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0644, .nlink = 1};
	const struct lp_ino ino = {5};
	const struct lp_bytes name = {"name", 4};
	const struct lp_change inodes[] = {
		{.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &attrs, .name = name}},
		{.type = LP_CHANGE_SET,
		 .ino = ino,
		 .inode = {.attrs = &attrs, .mask = LP_ATTR_NLINK}},
		{.type = LP_CHANGE_LINK, .ino = ino, .inode = {.delta = -1}},
		{.type = LP_CHANGE_REMOVE, .ino = ino},
		{.type = LP_CHANGE_RECORD,
		 .named = {.name = {mark, sizeof(mark)}, .value = {"value", 5}}},
		{.type = LP_CHANGE_RECORD, .named = {.name = {mark, sizeof(mark)}}}};
	const struct lp_change names[] = {
		{.type = LP_CHANGE_ENTRY_SET,
		 .ino = ino,
		 .named = {.name = name, .target = {9}, .target_type = LP_INODE_TYPE_DIR}},
		{.type = LP_CHANGE_ENTRY_REMOVE, .ino = ino, .named = {.name = name}},
		{.type = LP_CHANGE_DIR, .ino = ino, .dir = {.mtime_ns = 1, .ctime_ns = 2}},
		{.type = LP_CHANGE_DIR, .ino = ino, .dir = {.drop = true}}};
	struct lpi_pact_record record = {.kind = LP_PACT_KIND_PREPARED,
					 .coordinator = 2,
					 .since_ns = 1,
					 .change_cnt = LP_ARRAY_SIZE(inodes),
					 .changes = inodes};
	save_pact(&record, "inodes");
	record.sealed = ino;
	record.change_cnt = LP_ARRAY_SIZE(names);
	record.changes = names;
	save_pact(&record, "names");
	record = (struct lpi_pact_record){
		.kind = LP_PACT_KIND_DECIDED, .coordinator = 1, .participants = 5};
	save_pact(&record, "decision");
}

/* --- wire --------------------------------------------------------------------------------------
 */

/* The first byte is the mode of checksums; see wire_fuzz.c. */
static void save_message(const char *name, enum lp_wire_crc mode, struct lp_wire_header header,
			 const uint8_t *meta, const uint8_t *data)
{
	uint8_t rest[1024];
	uint8_t head[LP_WIRE_HEADER_SIZE];
	uint32_t crcs[16];
	LP_ASSERT(header.meta_bytes + sizeof(crcs) <= sizeof(rest));
	LP_ASSERT(lp_wire_piece_cnt(header.offset, header.data_bytes) <= 16);
	if (header.meta_bytes > 0)
		memcpy(rest, meta, header.meta_bytes);
	if (mode == LP_WIRE_CRC_ALL && header.data_bytes > 0) {
		header.crc_cnt = lp_wire_piece_cnt(header.offset, header.data_bytes);
		lp_wire_crcs_make(data, header.offset, header.data_bytes, crcs);
		lp_wire_crcs_encode(crcs, header.crc_cnt, rest + header.meta_bytes);
	}
	lp_wire_header_seal(&header, mode, rest, head);
	begin((uint8_t)mode);
	add(head, sizeof(head));
	add(rest, lp_wire_rest_bytes(&header));
	add(data, header.data_bytes);
	save("wire", name, 4);
}

static void make_wires(void)
{
	uint8_t meta[256];
	uint8_t data[5000];
	struct lp_writer writer;
	size_t len = 0;
	const struct lp_wire_ref ref = {.path_bytes = 5};
	struct lp_wire_put put = {.xattr_cnt = 1};
	const struct lp_wire_pair pair = {.name_bytes = 4, .value_bytes = 3};
	const struct lp_wire_listed listed = {.item_cnt = 1};
	struct lp_wire_header header = {.kind = LP_WIRE_KIND_REQUEST, .opcode = LP_WIRE_OP_PING};
	memset(data, 3, sizeof(data));
	save_message("ping", LP_WIRE_CRC_OFF, header, NULL, NULL);
	lp_wire_ref_encode(&ref, put.ref);
	lp_writer_init(&writer, meta, sizeof(meta));
	lp_wire_put_part(&writer, lp_wire_put, &put);
	lp_writer_bytes(&writer, "a/b/c", 5);
	lp_wire_put_part(&writer, lp_wire_pair, &pair);
	lp_writer_bytes(&writer, "nameval", 7);
	LP_ASSERT(lp_writer_finish(&writer, &len));
	header.opcode = LP_WIRE_OP_PUT;
	header.meta_bytes = (uint32_t)len;
	header.data_bytes = sizeof(data);
	save_message("put", LP_WIRE_CRC_ALL, header, meta, data);
	header.opcode = LP_WIRE_OP_WRITE;
	header.offset = 4000;
	save_message("write-off-grid", LP_WIRE_CRC_ALL, header, meta, data);
	lp_writer_init(&writer, meta, sizeof(meta));
	lp_wire_put_part(&writer, lp_wire_listed, &listed);
	lp_wire_put_part(&writer, lp_wire_pair, &pair);
	lp_writer_bytes(&writer, "nameval", 7);
	LP_ASSERT(lp_writer_finish(&writer, &len));
	header = (struct lp_wire_header){.kind = LP_WIRE_KIND_REPLY,
					 .opcode = LP_WIRE_OP_XATTR_LIST,
					 .meta_bytes = (uint32_t)len};
	save_message("pairs", LP_WIRE_CRC_HEADER, header, meta, NULL);
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		(void)fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
		return 2;
	}
	corpus = argv[1];
	make_labels();
	make_devices();
	make_inodes();
	make_extmaps();
	make_values();
	make_keys();
	make_batches();
	make_spaces();
	make_pacts();
	make_wires();
	return 0;
}
