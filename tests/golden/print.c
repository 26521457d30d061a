/* SPDX-License-Identifier: Apache-2.0 */
/* Prints a store as text, one fact a line, in an order of its own: what users see of it, which no
 * version may change, and the records it is made of. */
#include "tests/golden/golden.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "store/index/kv.h"

#define LIST_BYTES (UINT32_C(512) << 10)

static void print_bytes(const void *data, size_t len)
{
	const uint8_t *bytes = data;
	for (size_t i = 0; i < len; i++) {
		if (isgraph(bytes[i]) && bytes[i] != '\\')
			(void)putchar(bytes[i]);
		else
			(void)printf("\\%02x", bytes[i]);
	}
}

static uint32_t crc_of(const void *data, size_t len)
{
	return len > 0 ? lp_crc32c(0, data, len) : 0;
}

/* --- Contents --------------------------------------------------------------------------------- */

struct list {
	struct lp_store_op op;
	uint32_t pos;
	uint8_t buf[LIST_BYTES];
};

/* All of it: the golden stores are small. */
static void list_open(struct lpi_golden *golden, struct list *list, uint32_t shard,
		      enum lp_store_space space, struct lp_ino ino)
{
	list->op = (struct lp_store_op){.opcode = LP_STORE_LIST,
					.list = {.space = space,
						 .ino = ino,
						 .buf = list->buf,
						 .buf_len = sizeof(list->buf),
						 .with_values = true}};
	list->pos = 0;
	LPI_GOLDEN_OK(lpi_golden_do(golden, shard, &list->op));
	LPI_GOLDEN_CHECK(!list->op.list.more);
}

static void print_named(struct lpi_golden *golden, enum lp_store_space space, struct lp_ino ino,
			const char *what)
{
	static struct list list;
	struct lp_list_item item;
	list_open(golden, &list, lp_ino_shard(ino), space, ino);
	while (lp_store_list_next(&list.op, &list.pos, &item)) {
		(void)printf("  %s ", what);
		print_bytes(item.name.data, item.name.len);
		(void)printf(" %u bytes crc %08x\n", item.value.len,
			     crc_of(item.value.data, item.value.len));
	}
}

/* The end of the data, or of the hole, at `offset`. */
static uint64_t seek(struct lpi_golden *golden, struct lp_ino ino, uint64_t offset, bool hole)
{
	struct lp_store_op op = {.opcode = LP_STORE_SEEK,
				 .seek = {.ino = ino, .offset = offset, .hole = hole}};
	int err = lpi_golden_do(golden, lp_ino_shard(ino), &op);
	LPI_GOLDEN_CHECK(err == 0 || err == -ENXIO);
	return err == 0 ? op.seek.found : UINT64_MAX;
}

/* A piece of data. */
static void print_piece(struct lpi_golden *golden, struct lp_ino ino, uint64_t offset, uint64_t end)
{
	uint32_t crc = 0;
	for (uint64_t at = offset; at < end;) {
		struct lp_store_op op = {.opcode = LP_STORE_READ,
					 .read = {.ino = ino,
						  .offset = at,
						  .length = LP_MIN(end - at, LP_STORE_READ_MAX)}};
		LPI_GOLDEN_OK(lpi_golden_do(golden, lp_ino_shard(ino), &op));
		LPI_GOLDEN_CHECK(op.read.bytes > 0);
		for (uint32_t i = 0; i < op.read.seg_cnt; i++)
			crc = lp_crc32c(crc, op.read.segs[i].buf->data + op.read.segs[i].offset,
					op.read.segs[i].len);
		at += op.read.bytes;
		lp_store_end(golden->stores[lp_ino_shard(ino)], &op);
	}
	(void)printf("  data %" PRIu64 " to %" PRIu64 " crc %08x\n", offset, end, crc);
}

static void print_data(struct lpi_golden *golden, struct lp_ino ino, uint64_t size_bytes)
{
	for (uint64_t at = 0; at < size_bytes;) {
		uint64_t begin = seek(golden, ino, at, false);
		if (begin == UINT64_MAX)
			return;
		at = seek(golden, ino, begin, true);
		print_piece(golden, ino, begin, at);
	}
}

static void print_target(struct lpi_golden *golden, struct lp_ino ino)
{
	char target[4096];
	struct lp_store_op op = {.opcode = LP_STORE_GET,
				 .get = {.space = LP_STORE_TARGET,
					 .ino = ino,
					 .buf = target,
					 .buf_len = sizeof(target)}};
	LPI_GOLDEN_OK(lpi_golden_do(golden, lp_ino_shard(ino), &op));
	(void)printf("  target ");
	print_bytes(target, op.get.value_len);
	(void)printf("\n");
}

static void print_fragment(struct lpi_golden *golden, uint32_t shard, struct lp_ino dir)
{
	static struct list list;
	struct lp_list_item item;
	struct lp_store_op op = {.opcode = LP_STORE_DIR, .dir.ino = dir};
	LPI_GOLDEN_OK(lpi_golden_do(golden, shard, &op));
	(void)printf("  fragment on shard %u: %" PRIu64 " entries, %" PRIu64
		     " bytes, mtime %" PRId64 " ctime %" PRId64 "%s\n",
		     shard, op.dir.entries_cnt, op.dir.name_bytes, op.dir.mtime_ns, op.dir.ctime_ns,
		     op.dir.is_sealed ? " sealed" : "");
	list_open(golden, &list, shard, LP_STORE_ENTRIES, dir);
	while (lp_store_list_next(&list.op, &list.pos, &item)) {
		(void)printf("    ");
		print_bytes(item.name.data, item.name.len);
		(void)printf(" -> inode %" PRIx64 " %s insertion %" PRIu64 "\n", item.ino.nr,
			     lp_inode_type_name(item.type), item.insertion);
	}
}

/* Not the number of blocks: what is freed by and by goes out of it. */
static void print_attrs(struct lp_ino ino, const struct lp_attrs *attrs)
{
	(void)printf("inode %" PRIx64 " %s mode %o uid %u gid %u links %u size %" PRIu64
		     " version %" PRIu64 " flags %x rdev %x parent %" PRIx64 "\n",
		     ino.nr, lp_inode_type_name(attrs->type), attrs->mode, attrs->uid, attrs->gid,
		     attrs->nlink, attrs->size_bytes, attrs->version_nr, attrs->flags, attrs->rdev,
		     attrs->parent.nr);
	(void)printf("  atime %" PRId64 " mtime %" PRId64 " ctime %" PRId64 " btime %" PRId64 "\n",
		     attrs->atime_ns, attrs->mtime_ns, attrs->ctime_ns, attrs->btime_ns);
}

static void print_inode(struct lpi_golden *golden, struct lp_ino ino)
{
	struct lp_store_op op = {.opcode = LP_STORE_STAT, .stat.ino = ino};
	LPI_GOLDEN_OK(lpi_golden_do(golden, lp_ino_shard(ino), &op));
	print_attrs(ino, &op.stat.attrs);
	if (op.stat.attrs.type == LP_INODE_TYPE_FILE)
		print_data(golden, ino, op.stat.attrs.size_bytes);
	if (op.stat.attrs.type == LP_INODE_TYPE_SYMLINK)
		print_target(golden, ino);
	for (uint32_t i = 0; op.stat.attrs.type == LP_INODE_TYPE_DIR && i < golden->shard_cnt; i++)
		print_fragment(golden, i, ino);
	print_named(golden, LP_STORE_XATTRS, ino, "xattr");
	print_named(golden, LP_STORE_OMAP, ino, "omap");
}

void lpi_golden_print_contents(struct lpi_golden *golden)
{
	static struct list inodes;
	struct lp_list_item item;
	for (uint32_t shard = 0; shard < golden->shard_cnt; shard++) {
		(void)printf("shard %u\n", shard);
		list_open(golden, &inodes, shard, LP_STORE_INODES, (struct lp_ino){0});
		while (lp_store_list_next(&inodes.op, &inodes.pos, &item)) {
			uint64_t nr = 0;
			for (uint32_t i = 0; i < item.name.len; i++)
				nr = nr << 8 | ((const uint8_t *)item.name.data)[i];
			print_inode(golden, (struct lp_ino){nr});
		}
	}
}

/* --- Records ---------------------------------------------------------------------------------- */

static void print_device(const struct lpi_golden *golden, unsigned device)
{
	const struct lp_disk_label *label = &golden->devices.label[device];
	uint8_t bytes[LP_DISK_LABEL_SIZE];
	lp_label_encode(label, 0, bytes);
	(void)printf("device %u version %u role %u blocks %" PRIu64 " label crc %08x\n", device,
		     label->version, label->role, label->size_blocks, crc_of(bytes, sizeof(bytes)));
}

static void print_shard(struct lp_shard *shard, uint32_t idx)
{
	const struct lp_shard_recovery *recovery = lp_shard_recovery(shard);
	const struct lp_kv_bytes open_end = {NULL, 0};
	struct lp_kv_iter *iter = NULL;
	(void)printf("shard %u last %" PRIu64 " frames %" PRIu64 " payloads %" PRIu64 "%s\n", idx,
		     recovery->last_seq, recovery->frames, recovery->payloads,
		     recovery->was_clean ? " clean" : "");
	LPI_GOLDEN_OK(lp_kv_iter_open(lp_shard_kv(shard), open_end, open_end, false, &iter));
	int found = lp_kv_iter_seek_first(iter);
	for (; found == 0; found = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		struct lp_kv_bytes value = lp_kv_iter_value(iter);
		(void)printf("  ");
		print_bytes(key.data, key.len);
		(void)printf(" %zu bytes crc %08x\n", value.len, crc_of(value.data, value.len));
	}
	LPI_GOLDEN_CHECK(found == -ENOENT);
	lp_kv_iter_close(iter);
}

void lpi_golden_print_records(struct lpi_golden *golden)
{
	for (unsigned i = 0; i < LP_ROLES; i++) {
		if (golden->bdev[i] != NULL)
			print_device(golden, i);
	}
	for (uint32_t i = 0; i < golden->shard_cnt; i++)
		print_shard(golden->shards[i], i);
}
