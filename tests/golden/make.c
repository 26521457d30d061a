/* SPDX-License-Identifier: Apache-2.0 */
/* The stores of the golden images. Each record of docs/format that a store may hold is in one of
 * them; tests/golden/README.md has the table.
 *
 *   objects  one shard, closed: files of every form, names, attributes, marks
 *   cut      one shard, cut off: payloads that wait in the log, a truncation and a removal on their
 *            way, changes that the index has not persisted
 *   spread   two shards on three devices, closed: a directory with a fragment on each
 *   lent     two shards, full, closed: a chunk of which the other shard has single blocks */
#include "tests/golden/golden.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/crc32c.h"
#include "store/record/values.h"

#define INO(nr)    ((struct lp_ino){nr})
#define FILE_MODE  0640u
#define TIME_NS    INT64_C(1600000000123456789)
#define BLOCKS_MAX 64u
/* One leaf of an extent map holds so many blocks. */
#define LEAF_BYTES (UINT64_C(64) * LP_BLOCK_BYTES)

const char *const lpi_golden_names[] = {"objects", "cut", "spread", "lent", NULL};

static struct lp_bytes bytes_of(const char *text)
{
	return (struct lp_bytes){text, (uint32_t)strlen(text)};
}

/* --- Transactions ----------------------------------------------------------------------------- */

static void change(struct lpi_golden *golden, const struct lp_change *changes, uint32_t cnt,
		   uint32_t shard)
{
	struct lp_store_op op = {.opcode = LP_STORE_TXN,
				 .txn = {.changes = changes, .change_cnt = cnt}};
	LPI_GOLDEN_OK(lpi_golden_do(golden, shard, &op));
}

static void change_one(struct lpi_golden *golden, struct lp_change one)
{
	change(golden, &one, 1, lp_ino_shard(one.ino));
}

static struct lp_change create(struct lp_ino ino, const struct lp_attrs *attrs, const char *name)
{
	return (struct lp_change){
		.type = LP_CHANGE_CREATE,
		.ino = ino,
		.inode = {.attrs = attrs,
			  .name = name != NULL ? bytes_of(name) : (struct lp_bytes){NULL, 0}}};
}

static struct lp_change entry(struct lp_ino dir, const char *name, struct lp_ino ino, uint8_t type)
{
	return (struct lp_change){
		.type = LP_CHANGE_ENTRY_SET,
		.ino = dir,
		.named = {.name = bytes_of(name), .target = ino, .target_type = type}};
}

static struct lp_attrs attrs_of(uint8_t type, struct lp_ino parent)
{
	return (struct lp_attrs){.type = type,
				 .parent = parent,
				 .nlink = type == LP_INODE_TYPE_DIR ? 2 : 1,
				 .mode = type == LP_INODE_TYPE_DIR ? 0750 : FILE_MODE,
				 .uid = 1000,
				 .gid = 100,
				 .atime_ns = TIME_NS,
				 .mtime_ns = TIME_NS + 1,
				 .ctime_ns = TIME_NS + 2,
				 .btime_ns = -TIME_NS};
}

/* An inode and its entry, both on the directory's shard. */
static void make(struct lpi_golden *golden, struct lp_ino ino, uint8_t type, struct lp_ino dir,
		 const char *name)
{
	const struct lp_attrs attrs = attrs_of(type, dir);
	const struct lp_change changes[] = {create(ino, &attrs, name),
					    entry(dir, name, ino, type),
					    {.type = LP_CHANGE_LINK, .ino = dir, .inode.delta = 1}};
	change(golden, changes, type == LP_INODE_TYPE_DIR ? 3 : 2, lp_ino_shard(ino));
}

static void make_root(struct lpi_golden *golden)
{
	const struct lp_attrs attrs = attrs_of(LP_INODE_TYPE_DIR, LP_INO_ROOT);
	change_one(golden, create(LP_INO_ROOT, &attrs, NULL));
}

/* Bytes that compress well, and tell which file and block they are of. */
static void fill(uint8_t *block, uint64_t ino, uint64_t idx, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		block[i] = (uint8_t)(ino * 31 + idx + i / 512);
}

static void write_at(struct lpi_golden *golden, struct lp_ino ino, uint64_t offset, uint64_t length,
		     enum lp_write_path path)
{
	struct lp_seg segs[BLOCKS_MAX];
	uint32_t crcs[BLOCKS_MAX];
	uint32_t cnt = 0;
	for (uint64_t at = 0; at < length; cnt++) {
		uint64_t room = LP_BLOCK_BYTES - (offset + at) % LP_BLOCK_BYTES;
		uint64_t len = LP_MIN(room, length - at);
		LPI_GOLDEN_CHECK(cnt < BLOCKS_MAX);
		segs[cnt] = (struct lp_seg){.buf = lp_buf_new(golden->bufs, LP_BLOCK_BYTES),
					    .len = (uint32_t)len};
		LPI_GOLDEN_CHECK(segs[cnt].buf != NULL);
		fill(segs[cnt].buf->data, ino.nr, (offset + at) / LP_BLOCK_BYTES, len);
		crcs[cnt] = lp_crc32c(0, segs[cnt].buf->data, len);
		at += len;
	}
	change_one(golden, (struct lp_change){.type = LP_CHANGE_WRITE,
					      .ino = ino,
					      .data = {.offset = offset,
						       .length = length,
						       .path = path,
						       .payload = {.segs = segs,
								   .crcs = crcs,
								   .seg_cnt = cnt,
								   .crc_cnt = cnt}}});
	while (cnt > 0)
		lp_buf_put(segs[--cnt].buf);
}

static void change_range(struct lpi_golden *golden, enum lp_change_type type, struct lp_ino ino,
			 uint64_t offset, uint64_t length)
{
	change_one(golden, (struct lp_change){.type = type,
					      .ino = ino,
					      .data = {.offset = offset, .length = length}});
}

/* One block in each of so many leaves. */
static void write_sparse(struct lpi_golden *golden, struct lp_ino ino, uint64_t leaves,
			 uint64_t step)
{
	for (uint64_t i = 0; i < leaves; i++)
		write_at(golden, ino, i * step * LEAF_BYTES, LP_BLOCK_BYTES, LP_PATH_DIRECT);
}

static void set_named(struct lpi_golden *golden, enum lp_change_type type, struct lp_ino ino,
		      struct lp_bytes name, struct lp_bytes value)
{
	change_one(golden, (struct lp_change){.type = type,
					      .ino = ino,
					      .named = {.name = name, .value = value}});
}

/* --- objects ---------------------------------------------------------------------------------- */

static void make_data(struct lpi_golden *golden, struct lp_ino dir)
{
	static const struct {
		uint64_t ino;
		const char *name;
	} files[] = {{30, "empty"},  {31, "inline"},    {32, "extents"},  {33, "leaves"},
		     {34, "sparse"}, {35, "unwritten"}, {36, "original"}, {37, "clone"}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(files); i++)
		make(golden, INO(files[i].ino), LP_INODE_TYPE_FILE, dir, files[i].name);
	write_at(golden, INO(31), 0, 777, LP_PATH_AUTO);
	write_at(golden, INO(32), 0, 5 * LP_BLOCK_BYTES, LP_PATH_DIRECT);
	write_at(golden, INO(32), 9 * LP_BLOCK_BYTES + 100, 3000, LP_PATH_DEFERRED);
	write_at(golden, INO(32), LP_BLOCK_BYTES, LP_BLOCK_BYTES, LP_PATH_DEFERRED);
	for (uint64_t i = 0; i < 3; i++)
		write_at(golden, INO(33), i * LEAF_BYTES, LEAF_BYTES, LP_PATH_DIRECT);
	change_range(golden, LP_CHANGE_PUNCH, INO(33), 3 * LP_BLOCK_BYTES, 2 * LP_BLOCK_BYTES);
	/* More runs of leaves than a root names. */
	write_sparse(golden, INO(34), 70, 2);
	change_range(golden, LP_CHANGE_PREALLOC, INO(35), 0, 6 * LP_BLOCK_BYTES);
	write_at(golden, INO(35), LP_BLOCK_BYTES, LP_BLOCK_BYTES, LP_PATH_DIRECT);
	write_at(golden, INO(36), 0, 8 * LP_BLOCK_BYTES, LP_PATH_DIRECT);
	change_one(golden, (struct lp_change){.type = LP_CHANGE_CLONE,
					      .ino = INO(37),
					      .clone = {.src = INO(36),
							.src_offset = LP_BLOCK_BYTES,
							.offset = 0,
							.length = 5 * LP_BLOCK_BYTES}});
}

/* Everything that is neither a file nor a directory. */
static void make_others(struct lpi_golden *golden, struct lp_ino dir)
{
	static const uint8_t types[] = {LP_INODE_TYPE_FIFO, LP_INODE_TYPE_SOCKET,
					LP_INODE_TYPE_CHARDEV, LP_INODE_TYPE_BLOCKDEV};
	for (size_t i = 0; i < LP_ARRAY_SIZE(types); i++) {
		struct lp_attrs attrs = attrs_of(types[i], dir);
		struct lp_ino ino = {40 + i};
		bool is_device = i >= 2;
		attrs.rdev = is_device ? 0x12345678 : 0;
		const struct lp_change changes[] = {
			create(ino, &attrs, lp_inode_type_name(types[i])),
			entry(dir, lp_inode_type_name(types[i]), ino, types[i])};
		change(golden, changes, 2, 0);
	}
	const struct lp_attrs attrs = attrs_of(LP_INODE_TYPE_SYMLINK, dir);
	struct lp_change changes[] = {create(INO(45), &attrs, "link"),
				      entry(dir, "link", INO(45), LP_INODE_TYPE_SYMLINK)};
	changes[0].inode.target = bytes_of("../where/ever");
	change(golden, changes, 2, 0);
}

static void make_attributes(struct lpi_golden *golden, struct lp_ino dir)
{
	static uint8_t large[5000];
	memset(large, 'v', sizeof(large));
	make(golden, INO(50), LP_INODE_TYPE_FILE, dir, "attributes");
	set_named(golden, LP_CHANGE_XATTR_SET, INO(50), bytes_of("user.small"), bytes_of("value"));
	set_named(golden, LP_CHANGE_XATTR_SET, INO(50), bytes_of("user.empty"), bytes_of(""));
	set_named(golden, LP_CHANGE_XATTR_SET, INO(50), bytes_of("user.large"),
		  (struct lp_bytes){large, sizeof(large)});
	set_named(golden, LP_CHANGE_OMAP_SET, INO(50), (struct lp_bytes){"\0key\xff", 5},
		  bytes_of("value"));
	set_named(golden, LP_CHANGE_OMAP_SET, INO(50), bytes_of("large"),
		  (struct lp_bytes){large, sizeof(large)});
}

/* A name that was removed leaves a gap in the insertions; a second name; flags; a seal. */
static void make_names(struct lpi_golden *golden, struct lp_ino dir)
{
	make(golden, INO(60), LP_INODE_TYPE_FILE, dir, "two names");
	const struct lp_change second[] = {
		entry(dir, "gone", INO(60), LP_INODE_TYPE_FILE),
		entry(dir, "other name", INO(60), LP_INODE_TYPE_FILE),
		{.type = LP_CHANGE_LINK, .ino = INO(60), .inode.delta = 1}};
	change(golden, second, LP_ARRAY_SIZE(second), 0);
	change_one(golden, (struct lp_change){.type = LP_CHANGE_ENTRY_REMOVE,
					      .ino = dir,
					      .named.name = bytes_of("gone")});
	make(golden, INO(61), LP_INODE_TYPE_DIR, LP_INO_ROOT, "made by a put");
	make(golden, INO(62), LP_INODE_TYPE_DIR, LP_INO_ROOT, "sealed");
	make(golden, INO(63), LP_INODE_TYPE_FILE, LP_INO_ROOT, "immutable");
	const struct lp_attrs flags[] = {{.flags = LP_INODE_FLAG_MADE_BY_PUT},
					 {.flags = LP_INODE_FLAG_SEALED},
					 {.flags = LP_INODE_FLAG_IMMUTABLE | LP_INODE_FLAG_APPEND}};
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(flags); i++)
		change_one(golden, (struct lp_change){
					   .type = LP_CHANGE_SET,
					   .ino = INO(61 + i),
					   .inode = {.attrs = &flags[i], .mask = LP_ATTR_FLAGS}});
	change_one(golden,
		   (struct lp_change){.type = LP_CHANGE_DIR,
				      .ino = INO(62),
				      .dir = {.mtime_ns = TIME_NS, .ctime_ns = 7, .seal = true}});
}

/* An inode without a name, and the mark that says why. */
static void make_marked(struct lpi_golden *golden, struct lp_ino ino, uint8_t kind)
{
	struct lp_attrs attrs = attrs_of(LP_INODE_TYPE_FILE, INO(0));
	const struct lp_unfinished_value value = {.kind = kind, .since_ns = TIME_NS};
	uint8_t bytes[LP_UNFINISHED_VALUE_SIZE];
	struct lp_key key;
	attrs.nlink = 0;
	lp_key_of_ino(&key, LP_KEY_SPACE_UNFINISHED, ino);
	lp_unfinished_write(&value, &key, bytes);
	const struct lp_change changes[] = {create(ino, &attrs, NULL),
					    {.type = LP_CHANGE_RECORD,
					     .ino = ino,
					     .named = {.name = {key.bytes, (uint32_t)key.len},
						       .value = {bytes, sizeof(bytes)}}}};
	change(golden, changes, 2, 0);
	write_at(golden, ino, 0, 2 * LP_BLOCK_BYTES, LP_PATH_DIRECT);
}

static void make_objects(struct lpi_golden *golden)
{
	const struct lp_ino dir = {20};
	lpi_golden_new(golden, 1, false);
	lpi_golden_open(golden);
	make_root(golden);
	make(golden, dir, LP_INODE_TYPE_DIR, LP_INO_ROOT, "dir");
	make_data(golden, dir);
	make_others(golden, dir);
	make_attributes(golden, dir);
	make_names(golden, dir);
	make_marked(golden, INO(70), LP_UNFINISHED_KIND_ORPHAN);
	make_marked(golden, INO(71), LP_UNFINISHED_KIND_UPLOAD);
	set_named(golden, LP_CHANGE_RECORD, INO(1), bytes_of("Sgolden"), bytes_of("a record"));
	lpi_golden_close(golden, false);
}

/* --- cut -------------------------------------------------------------------------------------- */

static void make_cut(struct lpi_golden *golden)
{
	lpi_golden_new(golden, 1, false);
	lpi_golden_open(golden);
	make_root(golden);
	make(golden, INO(30), LP_INODE_TYPE_FILE, LP_INO_ROOT, "overwritten");
	make(golden, INO(31), LP_INODE_TYPE_FILE, LP_INO_ROOT, "truncated");
	make(golden, INO(32), LP_INODE_TYPE_FILE, LP_INO_ROOT, "removed");
	write_at(golden, INO(30), 0, 16 * LP_BLOCK_BYTES, LP_PATH_DIRECT);
	write_sparse(golden, INO(31), 100, 1);
	write_sparse(golden, INO(32), 100, 1);
	lpi_golden_close(golden, false);

	lpi_golden_open(golden);
	make(golden, INO(33), LP_INODE_TYPE_FILE, LP_INO_ROOT, "young");
	const struct lp_change removal[] = {
		{.type = LP_CHANGE_ENTRY_REMOVE,
		 .ino = LP_INO_ROOT,
		 .named.name = bytes_of("removed")},
		{.type = LP_CHANGE_REMOVE, .ino = INO(32)},
		{.type = LP_CHANGE_TRUNCATE, .ino = INO(31), .data.offset = LP_BLOCK_BYTES}};
	for (uint64_t i = 0; i < 4; i++)
		write_at(golden, INO(30), 3 * i * LP_BLOCK_BYTES + 1000, LP_BLOCK_BYTES,
			 LP_PATH_DEFERRED);
	change(golden, removal, LP_ARRAY_SIZE(removal), 0);
	lpi_golden_close(golden, true);
}

/* --- spread ----------------------------------------------------------------------------------- */

static void make_spread(struct lpi_golden *golden)
{
	const struct lp_ino dir = lp_ino_make(0, 20);
	const struct lp_attrs attrs = {.flags = LP_INODE_FLAG_SPREAD, .nlink = 1};
	lpi_golden_new(golden, 2, true);
	lpi_golden_open(golden);
	make_root(golden);
	make(golden, dir, LP_INODE_TYPE_DIR, LP_INO_ROOT, "spread");
	change_one(golden, (struct lp_change){.type = LP_CHANGE_SET,
					      .ino = dir,
					      .inode = {.attrs = &attrs,
							.mask = LP_ATTR_FLAGS | LP_ATTR_NLINK}});
	for (uint32_t i = 0; i < 10; i++) {
		const struct lp_ino ino = lp_ino_make(i % 2, 30 + i);
		char name[16];
		(void)snprintf(name, sizeof(name), "file %u", i); /* fits */
		make(golden, ino, LP_INODE_TYPE_FILE, dir, name);
		write_at(golden, ino, 0, i * 1000 + 1, LP_PATH_AUTO);
	}
	lpi_golden_close(golden, false);
}

/* --- lent ------------------------------------------------------------------------------------- */

/* All space there is, wherever it is free. */
static void fill_up(struct lpi_golden *golden, struct lp_ino ino)
{
	uint64_t at = 0;
	for (uint64_t length = UINT64_C(4) << 20; length >= LP_BLOCK_BYTES;) {
		const struct lp_change aside = {.type = LP_CHANGE_PREALLOC,
						.ino = ino,
						.data = {.offset = at, .length = length}};
		struct lp_store_op op = {.opcode = LP_STORE_TXN,
					 .txn = {.changes = &aside, .change_cnt = 1}};
		int err = lpi_golden_do(golden, lp_ino_shard(ino), &op);
		LPI_GOLDEN_CHECK(err == 0 || err == -ENOSPC);
		at += length;
		length /= err == 0 ? 1 : 4;
	}
}

static void make_lent(struct lpi_golden *golden)
{
	const struct lp_ino other = lp_ino_make(1, 31);
	struct lp_chunks_stats stats;
	lpi_golden_new(golden, 2, false);
	lpi_golden_open(golden);
	make_root(golden);
	make(golden, INO(30), LP_INODE_TYPE_FILE, LP_INO_ROOT, "lends");
	make(golden, other, LP_INODE_TYPE_FILE, LP_INO_ROOT, "borrows");
	write_at(golden, INO(30), 0, 48 * LP_BLOCK_BYTES, LP_PATH_DIRECT);
	fill_up(golden, INO(30));
	for (uint64_t i = 1; i < 48; i += 2)
		change_range(golden, LP_CHANGE_PUNCH, INO(30), i * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	for (uint64_t i = 0; i < 5; i++)
		write_at(golden, other, 4 * i * LP_BLOCK_BYTES, 4 * LP_BLOCK_BYTES, LP_PATH_DIRECT);
	lp_chunks_stats(golden->devices.chunks[LP_ROLE_DATA], &stats);
	LPI_GOLDEN_CHECK(stats.split_cnt > 0);
	lpi_golden_close(golden, false);
}

void lpi_golden_make(struct lpi_golden *golden, const char *name)
{
	if (strcmp(name, "objects") == 0)
		make_objects(golden);
	else if (strcmp(name, "cut") == 0)
		make_cut(golden);
	else if (strcmp(name, "spread") == 0)
		make_spread(golden);
	else if (strcmp(name, "lent") == 0)
		make_lent(golden);
	else
		lpi_golden_fail(__FILE__, __LINE__, "no such store");
}
