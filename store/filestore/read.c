/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and questions, by helpers. Of a read the store's thread gave the buffers, for the blocks
 * that it may touch: each block that has data is read from its file, in runs that lie side by side
 * in file and memory, and held against its checksum (store I8). */
#include <string.h>

#include "base/error.h"
#include "store/filestore/filestore_impl.h"

/* --- Data ------------------------------------------------------------------------------------- */

struct reading {
	struct lpi_fstore_store *store;
	const struct lpi_fstore_view *view;
	struct lpi_fstore_read *read;
	struct lp_ino ino;
	uint64_t first; /* block in the first buffer */
	uint64_t end;   /* behind the last one that is wanted */
};

/* Where a block goes, and how many follow it there. */
static uint8_t *memory_of(const struct reading *r, uint64_t block, uint32_t *ret_blocks)
{
	uint64_t at = (block - r->first) << LP_BLOCK_SHIFT;
	uint32_t i = 0;
	while (at >= r->read->bufs[i]->bytes) {
		at -= r->read->bufs[i++]->bytes;
		LP_ASSERT(i < r->read->buf_cnt);
	}
	*ret_blocks = (uint32_t)((r->read->bufs[i]->bytes - at) >> LP_BLOCK_SHIFT);
	return r->read->bufs[i]->data + at;
}

static bool is_data(const struct lpi_mapleaf *leaf, uint64_t block)
{
	return (leaf->data & lpi_mapleaf_bit(block)) != 0;
}

/* What waits in a layer is newer than the file. */
static int overlay_blocks(const struct reading *r, const struct lpi_object_place *first,
			  uint32_t cnt, uint8_t *to)
{
	for (uint32_t i = 0; i < cnt && r->view->layer_cnt > 0; i++) {
		const struct lpi_object_place place = {first->ino, first->block + i, first->side};
		struct lpi_fstore_value value;
		struct lp_key key;
		lpi_payload_key(&key, &place);
		int err = lpi_fstore_get(r->view, &key, &value);
		if (err < 0 && err != -ENOENT)
			return err;
		if (err == 0)
			memcpy(to + i * LP_BLOCK_BYTES, value.bytes.data, LP_BLOCK_BYTES);
	}
	return 0;
}

static int verify(const struct lpi_object_place *place, const struct lpi_mapleaf *leaf,
		  uint32_t cnt, const uint8_t *blocks)
{
	for (uint32_t i = 0; i < cnt; i++) {
		uint64_t block = place->block + i;
		uint32_t crc = lp_crc32c(0, blocks + i * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		if (crc != leaf->crcs[lpi_mapleaf_slot(block)])
			return LP_CORRUPT_CRC(block << LP_BLOCK_SHIFT,
					      "inode %llu, block %llu: crc is %08x, stored %08x",
					      (unsigned long long)place->ino.nr,
					      (unsigned long long)block, crc,
					      leaf->crcs[lpi_mapleaf_slot(block)]);
	}
	return 0;
}

/* A run from `block` on, at most to `end`; moves behind it. */
static int read_run(const struct reading *r, const struct lpi_mapleaf *leaf, uint64_t *block,
		    uint64_t end)
{
	uint32_t max = 0;
	uint8_t *to = memory_of(r, *block, &max);
	const struct lpi_object_place place = {r->ino, *block, lpi_mapleaf_side(leaf, *block)};
	bool has_data = is_data(leaf, *block);
	uint32_t cnt = 0;
	int err = 0;
	while (cnt < max && *block < end && is_data(leaf, *block) == has_data &&
	       lpi_mapleaf_side(leaf, *block) == place.side) {
		(*block)++;
		cnt++;
	}
	if (!has_data) {
		memset(to, 0, cnt * LP_BLOCK_BYTES);
		return 0;
	}
	err = lpi_objects_read(&r->store->objects, &place, to, cnt);
	if (err == 0)
		err = overlay_blocks(r, &place, cnt, to);
	return err < 0 ? err : verify(&place, leaf, cnt, to);
}

/* The crc of a piece of the read, whose block has been verified. */
static uint32_t crc_of(const struct reading *r, const struct lpi_mapleaf *leaf, uint64_t at,
		       uint32_t len)
{
	uint64_t block = at >> LP_BLOCK_SHIFT;
	uint32_t ignored = 0;
	if (!is_data(leaf, block))
		return lp_csum_zeros(len);
	if (len == LP_BLOCK_BYTES)
		return leaf->crcs[lpi_mapleaf_slot(block)];
	return lp_crc32c(0, memory_of(r, block, &ignored) + (at & (LP_BLOCK_BYTES - 1)), len);
}

static int read_leaf(struct reading *r, struct lp_store_op *op, uint64_t *block)
{
	uint64_t from = op->read.offset;
	uint64_t to = op->read.offset + op->read.bytes;
	uint64_t leaf_end = lp_align_down(*block, LPI_LEAF_BLOCKS) + LPI_LEAF_BLOCKS;
	uint64_t end = LP_MIN(leaf_end, r->end);
	uint64_t begin = *block;
	struct lpi_mapleaf leaf = {.data = 0};
	int err = lpi_mapleaf_get(r->view, r->ino, *block, &leaf);
	while (err == 0 && *block < end)
		err = read_run(r, &leaf, block, end);
	for (; begin < end && err == 0; begin++) {
		uint64_t at = LP_MAX(from, begin << LP_BLOCK_SHIFT);
		uint64_t piece_end = LP_MIN(to, (begin + 1) << LP_BLOCK_SHIFT);
		r->read->crcs[op->read.crc_cnt++] =
			crc_of(r, &leaf, at, (uint32_t)(piece_end - at));
	}
	return err;
}

static void give_segs(const struct reading *r, struct lp_store_op *op)
{
	struct lpi_fstore_read *read = r->read;
	uint32_t skip = (uint32_t)(op->read.offset & (LP_BLOCK_BYTES - 1));
	uint64_t left = op->read.bytes;
	for (uint32_t i = 0; left > 0; i++) {
		LP_ASSERT(i < read->buf_cnt);
		uint32_t len = (uint32_t)LP_MIN(left, read->bufs[i]->bytes - skip);
		read->segs[op->read.seg_cnt++] = (struct lp_seg){read->bufs[i], skip, len};
		left -= len;
		skip = 0;
	}
	op->read.segs = read->segs;
	op->read.crcs = read->crcs;
}

int lpi_fstore_read_data(struct lpi_fstore_store *store, const struct lpi_fstore_view *view,
			 struct lp_store_op *op)
{
	struct lpi_fstore_read *read = op->work;
	struct lpi_fstore_inode *inode = &read->inode;
	int err = lpi_fstore_inode_read(view, op->read.ino, inode);
	if (err < 0)
		return err;
	if (!inode->exists)
		return -ENOENT;
	err = lpi_fstore_data_err(inode);
	if (err < 0)
		return err;
	uint64_t size = inode->rec.size_bytes;
	op->read.size_bytes = size;
	op->read.version_nr = inode->rec.version_nr;
	if (op->read.offset < size)
		op->read.bytes = LP_MIN(op->read.length, size - op->read.offset);
	struct reading r = {.store = store,
			    .view = view,
			    .read = read,
			    .ino = op->read.ino,
			    .first = op->read.offset >> LP_BLOCK_SHIFT,
			    .end = lp_bytes_to_blocks_up(op->read.offset + op->read.bytes)};
	for (uint64_t block = r.first; op->read.bytes > 0 && block < r.end && err == 0;)
		err = read_leaf(&r, op, &block);
	if (err == 0)
		give_segs(&r, op);
	return err;
}

/* --- Questions -------------------------------------------------------------------------------- */

static int ask_attrs(const struct lpi_fstore_view *view, struct lp_ino ino,
		     struct lp_attrs *ret_attrs)
{
	struct lpi_fstore_inode inode;
	int err = lpi_fstore_inode_read(view, ino, &inode);
	if (err < 0)
		return err;
	if (!inode.exists)
		return -ENOENT;
	lpi_fstore_inode_attrs(&inode, ret_attrs);
	return 0;
}

static int ask_lookup(const struct lpi_fstore_view *view, struct lp_store_op *op)
{
	struct lpi_fstore_value value;
	struct lp_dirent_value entry;
	struct lp_key key;
	lp_key_of_name(&key, LP_KEY_SPACE_DIRENT, op->lookup.dir, op->lookup.name.data,
		       op->lookup.name.len);
	int err = lpi_fstore_get(view, &key, &value);
	if (err < 0)
		return err;
	err = lp_dirent_read(value.bytes.data, value.bytes.len, &key, &entry);
	lpi_fstore_value_release(&value);
	if (err < 0)
		return err;
	op->lookup.ino.nr = entry.ino;
	op->lookup.insertion = entry.insertion;
	op->lookup.type = entry.type;
	err = ask_attrs(view, op->lookup.ino, &op->lookup.attrs);
	op->lookup.has_attrs = err == 0;
	return err == -ENOENT ? 0 : err;
}

static int give(struct lp_store_op *op, const void *data, size_t len)
{
	op->get.value_len = (uint32_t)len;
	if (len > op->get.buf_len)
		return -ERANGE;
	if (len > 0)
		memcpy(op->get.buf, data, len);
	return 0;
}

static int give_record(const struct lpi_fstore_view *view, struct lp_store_op *op,
		       const struct lp_key *key, int absent)
{
	struct lpi_fstore_value value;
	int err = lpi_fstore_get(view, key, &value);
	if (err < 0)
		return err == -ENOENT ? absent : err;
	err = give(op, value.bytes.data, value.bytes.len);
	lpi_fstore_value_release(&value);
	return err;
}

static int ask_get(const struct lpi_fstore_view *view, struct lp_store_op *op)
{
	struct lpi_fstore_inode inode;
	struct lp_bytes name = op->get.name;
	struct lp_key key;
	if (op->get.space == LP_STORE_RECORDS) {
		memcpy(key.bytes, name.data, name.len);
		key.len = name.len;
		return give_record(view, op, &key, -ENOENT);
	}
	int err = lpi_fstore_inode_read(view, op->get.ino, &inode);
	if (err < 0)
		return err;
	if (!inode.exists)
		return -ENOENT;
	if (op->get.space == LP_STORE_TARGET) {
		if (inode.rec.type != LP_INODE_TYPE_SYMLINK)
			return -EINVAL;
		return give(op, inode.rec.target.at, inode.rec.target.len);
	}
	if (op->get.space == LP_STORE_NAME)
		return inode.rec.name.len == 0 ? -ENODATA
					       : give(op, inode.rec.name.at, inode.rec.name.len);
	lp_key_of_name(&key,
		       op->get.space == LP_STORE_OMAP ? LP_KEY_SPACE_OMAP : LP_KEY_SPACE_XATTR,
		       op->get.ino, name.data, name.len);
	return give_record(view, op, &key, -ENODATA);
}

static int ask_dir(const struct lpi_fstore_view *view, struct lp_store_op *op)
{
	struct lp_fragment_value fragment;
	int err = lpi_fstore_fragment(view, op->dir.ino, &fragment);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	op->dir.entries_cnt = fragment.entries_cnt;
	op->dir.name_bytes = fragment.name_bytes;
	op->dir.next_insertion = fragment.next_insertion;
	op->dir.mtime_ns = fragment.mtime_ns;
	op->dir.ctime_ns = fragment.ctime_ns;
	op->dir.is_sealed = fragment.is_sealed != 0;
	return 0;
}

int lpi_fstore_ask(const struct lpi_fstore_view *view, struct lp_store_op *op)
{
	if (op->opcode == LP_STORE_STAT)
		return ask_attrs(view, op->stat.ino, &op->stat.attrs);
	if (op->opcode == LP_STORE_LOOKUP)
		return ask_lookup(view, op);
	if (op->opcode == LP_STORE_GET)
		return ask_get(view, op);
	LP_ASSERT(op->opcode == LP_STORE_DIR);
	return ask_dir(view, op);
}
