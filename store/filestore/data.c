/* SPDX-License-Identifier: Apache-2.0 */
/* Changes of data. A block of a write takes one of two ways:
 *
 *  - through the journal: its whole new content is kept with the group, rides in its frame, and is
 *    written to its file when that is durable. So it is with small writes, and with the blocks that
 *    a larger one covers in part.
 *  - directly: it is written at once to a place that nothing durable names, nor anything that is on
 *    its way to be; the file is synced before the frame is written that names it. Each block has
 *    two places, so one is free unless two groups in a row want it: then the operation waits until
 *    none is under way.
 *
 * Blocks have data only below the file's end, and zeros from the end to the end of its block. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "store/filestore/filestore_impl.h"

/* From this size on writes go directly, unless they say how they want to go; and in any case from
 * the other one on, for a frame has a limit. */
#define DIRECT_BYTES     (UINT64_C(64) << 10)
#define DIRECT_BYTES_MAX (UINT64_C(512) << 10)
#define CUT_LEAVES       2048u /* that one step removes */

struct piece_range {
	uint64_t begin;
	uint64_t end;
};

/* A write on its way through the leaves. */
struct writing {
	struct lpi_fstore_store *store;
	struct lpi_fstore_inode *inode;
	struct lpi_seg_cursor cursor;
	const uint32_t *crcs; /* of the next piece */
	uint64_t end;
	bool is_direct;
};

/* --- Blocks ----------------------------------------------------------------------------------- */

int lpi_fstore_block(struct lpi_fstore_store *store, const struct lpi_fstore_view *view,
		     const struct lpi_object_place *place, void *ret_block)
{
	struct lpi_fstore_value value;
	struct lp_key key;
	lpi_payload_key(&key, place);
	int err = lpi_fstore_get(view, &key, &value);
	if (err == -ENOENT)
		return lpi_objects_read(&store->objects, place, ret_block, 1);
	if (err < 0)
		return err;
	LP_ASSERT(value.bytes.len == LP_BLOCK_BYTES && !value.is_pinned);
	memcpy(ret_block, value.bytes.data, LP_BLOCK_BYTES);
	return 0;
}

/* Content that waits for this place is not wanted any more. What a sealed group has goes there all
 * the same, before anybody else may write there. */
static int drop_payload(struct lpi_fstore_store *store, const struct lpi_object_place *place)
{
	struct lp_key key;
	lpi_payload_key(&key, place);
	const struct lpi_fstore_rec *rec = lpi_fstore_overlay_find(&store->eval->txn, &key);
	if (rec == NULL)
		rec = lpi_fstore_overlay_find(&store->open->overlay, &key);
	return rec == NULL ? 0 : lpi_fstore_overlay_delete(&store->eval->txn, &key);
}

static int put_payload(struct lpi_fstore_store *store, const struct lpi_object_place *place,
		       const void *block)
{
	struct lp_key key;
	lpi_payload_key(&key, place);
	return lpi_fstore_overlay_put(&store->eval->txn, &key, block, LP_BLOCK_BYTES);
}

static struct lpi_object_place place_of(const struct lpi_fstore_inode *inode,
					const struct lpi_mapleaf *leaf, uint64_t block)
{
	return (struct lpi_object_place){inode->ino, block, lpi_mapleaf_side(leaf, block)};
}

static void set_data(struct lpi_fstore_inode *inode, struct lpi_mapleaf *leaf,
		     const struct lpi_object_place *place, uint32_t crc)
{
	uint64_t bit = lpi_mapleaf_bit(place->block);
	inode->blocks += ((leaf->data | leaf->unwritten) & bit) == 0;
	leaf->data |= bit;
	leaf->unwritten &= ~bit;
	leaf->side = place->side == 0 ? leaf->side & ~bit : leaf->side | bit;
	leaf->crcs[lpi_mapleaf_slot(place->block)] = crc;
}

/* It becomes a hole. */
static int clear_block(struct lpi_fstore_store *store, struct lpi_fstore_inode *inode,
		       struct lpi_mapleaf *leaf, uint64_t block)
{
	uint64_t bit = lpi_mapleaf_bit(block);
	if (((leaf->data | leaf->unwritten) & bit) == 0)
		return 0;
	const struct lpi_object_place place = place_of(inode, leaf, block);
	leaf->data &= ~bit;
	leaf->unwritten &= ~bit;
	leaf->side &= ~bit;
	LP_ASSERT(inode->blocks > 0);
	inode->blocks--;
	return drop_payload(store, &place);
}

/* Space for it will be needed, unless it has some. */
static void need_space(struct lpi_fstore_eval *eval, const struct lpi_mapleaf *leaf, uint64_t block)
{
	if (((leaf->data | leaf->unwritten) & lpi_mapleaf_bit(block)) == 0)
		eval->need_bytes += LP_BLOCK_BYTES;
}

/* Bit by bit: which places of the leaf are named by what is durable, will be, or is evaluated; each
 * layer may yet become durable, and what it no longer names is punched then. Space without data may
 * be written to, for nobody reads it: as long as all have it. */
static int find_uses(const struct lpi_fstore_eval *eval, struct lp_ino ino, uint64_t block,
		     const struct lpi_mapleaf *now, uint64_t ret_uses[LPI_SIDE_CNT])
{
	const struct lpi_fstore_view *view = &eval->view;
	uint64_t unwritten = now->unwritten;
	int err = 0;
	for (uint32_t side = 0; side < LPI_SIDE_CNT; side++)
		ret_uses[side] = lpi_mapleaf_uses(now, side);
	for (uint32_t i = 1; i <= view->layer_cnt && err == 0; i++) {
		struct lpi_fstore_view below = {.layer_cnt = view->layer_cnt - i, .kv = view->kv};
		struct lpi_mapleaf leaf = {.data = 0};
		for (uint32_t j = 0; j < below.layer_cnt; j++)
			below.layers[j] = view->layers[i + j];
		err = lpi_mapleaf_get(&below, ino, block, &leaf);
		if (err < 0)
			return err;
		for (uint32_t side = 0; side < LPI_SIDE_CNT; side++)
			ret_uses[side] |= lpi_mapleaf_uses(&leaf, side);
		unwritten &= leaf.unwritten;
	}
	ret_uses[0] &= ~unwritten;
	return err;
}

/* Neither is free: LPI_FSTORE_LATER. */
static int choose_side(const uint64_t uses[LPI_SIDE_CNT], uint64_t block, uint32_t *ret_side)
{
	for (uint32_t side = 0; side < LPI_SIDE_CNT; side++) {
		if ((uses[side] & lpi_mapleaf_bit(block)) == 0) {
			*ret_side = side;
			return 0;
		}
	}
	return LPI_FSTORE_LATER;
}

/* --- What was written directly ---------------------------------------------------------------- */

static int note_change(struct lpi_fstore_group *group, uint64_t block, uint32_t cnt, uint32_t op)
{
	if (group->change_cnt == group->change_max) {
		uint32_t max = LP_MAX(2 * group->change_max, 64u);
		struct lp_log_change *changes = realloc(group->changes, max * sizeof(*changes));
		if (changes == NULL)
			return -ENOMEM;
		group->changes = changes;
		group->change_max = max;
	}
	group->changes[group->change_cnt++] = (struct lp_log_change){block, cnt, op};
	return 0;
}

/* The frame says so: a replay must not write anything older there. Also of a transaction that then
 * fails: nothing is named there that could be missed. */
static int note_direct(struct lpi_fstore_store *store, const struct lpi_object_place *place,
		       uint32_t cnt)
{
	struct lpi_fstore_eval *eval = store->eval;
	uint64_t file_block = lp_align_down(place->block, UINT64_C(1) << LPI_PART_SHIFT);
	const struct lpi_object_place file = {place->ino, file_block, place->side};
	uint32_t i = 0;
	int err = note_change(store->open, place->ino.nr, 0, LP_FILE_CHANGE_INO);
	if (err == 0)
		err = note_change(store->open, place->block, cnt,
				  place->side == 0 ? LP_FILE_CHANGE_SIDE_0 : LP_FILE_CHANGE_SIDE_1);
	while (i < eval->sync_cnt &&
	       (eval->syncs[i].ino.nr != file.ino.nr || eval->syncs[i].block != file.block ||
		eval->syncs[i].side != file.side))
		i++;
	if (i == LPI_FSTORE_SYNCS_MAX) {
		err = err == 0 ? lpi_objects_sync(&store->objects, &eval->syncs[0]) : err;
		i = 0;
	}
	eval->syncs[i] = file;
	eval->sync_cnt = LP_MAX(eval->sync_cnt, i + 1);
	return err;
}

/* Whole blocks from the place on, in one file. */
static int write_direct(struct lpi_fstore_store *store, const struct lpi_object_place *place,
			uint32_t cnt, int iov_cnt)
{
	int err = lpi_objects_write(&store->objects, place, store->eval->iov, iov_cnt);
	if (err == 0)
		return note_direct(store, place, cnt);
	/* A full host has a part of it; if that stays it is only lost space. */
	int ignored = lpi_objects_punch(&store->objects, place, cnt);
	(void)ignored;
	return err;
}

/* --- Writing ---------------------------------------------------------------------------------- */

static struct lp_csum_piece piece_at(uint64_t at, uint64_t end, uint32_t crc)
{
	uint32_t offset = (uint32_t)(at & (LP_BLOCK_BYTES - 1));
	uint64_t len = LP_MIN(end - at, LP_BLOCK_BYTES - offset);
	return (struct lp_csum_piece){offset, (uint32_t)len, crc};
}

/* A piece of a block takes its place in it, through the journal. bytes NULL: zeros. */
static int merge_piece(struct lpi_fstore_store *store, struct lpi_fstore_inode *inode,
		       struct lpi_mapleaf *leaf, uint64_t block, const struct lp_csum_piece *piece)
{
	uint8_t *bytes = store->eval->bounce;
	bool is_data = (leaf->data & lpi_mapleaf_bit(block)) != 0;
	uint32_t slot = lpi_mapleaf_slot(block);
	const struct lpi_object_place place = place_of(inode, leaf, block);
	uint32_t crc = piece->crc;
	int err = 0;
	if (!is_data) {
		memset(bytes, 0, LP_BLOCK_BYTES);
		crc = lp_csum_merge_zeros(piece);
	} else if (piece->len_bytes < LP_BLOCK_BYTES) {
		err = lpi_fstore_block(store, &store->eval->view, &place, bytes);
		if (err == 0)
			err = lp_csum_merge(bytes, leaf->crcs[slot], block, piece, &crc);
	}
	if (err == 0) {
		need_space(store->eval, leaf, block);
		set_data(inode, leaf, &place, crc);
	}
	return err;
}

static int write_piece(struct writing *w, struct lpi_mapleaf *leaf, uint64_t at)
{
	struct lp_csum_piece piece = piece_at(at, w->end, *w->crcs);
	uint64_t block = at >> LP_BLOCK_SHIFT;
	int err = merge_piece(w->store, w->inode, leaf, block, &piece);
	if (err < 0)
		return err;
	uint8_t *bytes = w->store->eval->bounce;
	lpi_seg_cursor_copy(&w->cursor, bytes + piece.offset_bytes, piece.len_bytes);
	w->crcs++;
	const struct lpi_object_place place = place_of(w->inode, leaf, block);
	return put_payload(w->store, &place, bytes);
}

/* So many whole blocks from `at` on, within the leaf, that can go to the same side; LATER. */
static int count_run(const struct writing *w, const uint64_t uses[LPI_SIDE_CNT], uint64_t at,
		     uint32_t *ret_cnt, uint32_t *ret_side)
{
	uint64_t block = at >> LP_BLOCK_SHIFT;
	uint64_t leaf_end = lp_align_down(block, LPI_LEAF_BLOCKS) + LPI_LEAF_BLOCKS;
	uint64_t end = LP_MIN(w->end >> LP_BLOCK_SHIFT, leaf_end);
	uint32_t cnt = 1;
	int err = choose_side(uses, block, ret_side);
	uint32_t side = *ret_side;
	while (err == 0 && block + cnt < end && choose_side(uses, block + cnt, &side) == 0 &&
	       side == *ret_side)
		cnt++;
	*ret_cnt = cnt;
	return err;
}

/* The payload's pieces as they lie in memory: nothing is copied. */
static int gather(struct writing *w, uint64_t bytes)
{
	struct iovec *iov = w->store->eval->iov;
	int cnt = 0;
	while (bytes > 0) {
		uint32_t len = 0;
		const uint8_t *at = lpi_seg_cursor_next(
			&w->cursor, (uint32_t)LP_MIN(bytes, LP_BLOCK_BYTES), &len);
		bytes -= len;
		if (cnt > 0 && (uint8_t *)iov[cnt - 1].iov_base + iov[cnt - 1].iov_len == at) {
			iov[cnt - 1].iov_len += len;
			continue;
		}
		if (cnt == (int)LP_ARRAY_SIZE(w->store->eval->iov))
			return -E2BIG;
		iov[cnt++] = (struct iovec){.iov_base = (void *)(uintptr_t)at, .iov_len = len};
	}
	return cnt;
}

static int write_run(struct writing *w, struct lpi_mapleaf *leaf, const uint64_t uses[LPI_SIDE_CNT],
		     uint64_t *at)
{
	struct lpi_object_place place = {.ino = w->inode->ino, .block = *at >> LP_BLOCK_SHIFT};
	const struct lpi_seg_cursor before = w->cursor;
	uint32_t cnt = 0;
	int err = count_run(w, uses, *at, &cnt, &place.side);
	if (err != 0)
		return err;
	int iov_cnt = gather(w, cnt * LP_BLOCK_BYTES);
	/* Of smaller pieces than any sender makes: block by block. */
	if (iov_cnt == -E2BIG) {
		w->cursor = before;
		cnt = 1;
		iov_cnt = gather(w, LP_BLOCK_BYTES);
	}
	err = iov_cnt < 0 ? iov_cnt : write_direct(w->store, &place, cnt, iov_cnt);
	for (uint32_t i = 0; i < cnt && err == 0; i++) {
		struct lpi_object_place one = {place.ino, place.block + i, place.side};
		const struct lpi_object_place old = place_of(w->inode, leaf, one.block);
		if ((leaf->data & lpi_mapleaf_bit(one.block)) != 0)
			err = drop_payload(w->store, &old);
		need_space(w->store->eval, leaf, one.block);
		set_data(w->inode, leaf, &one, *w->crcs++);
	}
	*at += cnt * LP_BLOCK_BYTES;
	return err;
}

/* All of the write that lies in the leaf of `at`. */
static int write_leaf(struct writing *w, uint64_t *at)
{
	struct lpi_fstore_eval *eval = w->store->eval;
	uint64_t leaf_bytes = LPI_LEAF_BLOCKS * LP_BLOCK_BYTES;
	uint64_t leaf_end = lp_align_down(*at, leaf_bytes) + leaf_bytes;
	uint64_t first = *at >> LP_BLOCK_SHIFT;
	uint64_t uses[LPI_SIDE_CNT] = {0, 0};
	struct lpi_mapleaf leaf = {.data = 0};
	int err = lpi_mapleaf_get(&eval->view, w->inode->ino, first, &leaf);
	if (err == 0 && w->is_direct)
		err = find_uses(eval, w->inode->ino, first, &leaf, uses);
	while (err == 0 && *at < LP_MIN(leaf_end, w->end)) {
		bool is_whole =
			lp_is_aligned(*at, LP_BLOCK_BYTES) && w->end - *at >= LP_BLOCK_BYTES;
		if (w->is_direct && is_whole) {
			err = write_run(w, &leaf, uses, at);
			continue;
		}
		err = write_piece(w, &leaf, *at);
		*at = LP_MIN(w->end, lp_align_down(*at, LP_BLOCK_BYTES) + LP_BLOCK_BYTES);
	}
	return err != 0 ? err : lpi_mapleaf_put(&eval->txn, w->inode->ino, first, &leaf);
}

static bool is_direct(const struct lpi_fstore_store *store, const struct lp_change *change)
{
	enum lp_write_path path = change->data.path;
	if (path == LP_PATH_AUTO)
		path = store->eval->write_path;
	uint64_t least = path == LP_PATH_DIRECT ? LP_BLOCK_BYTES : DIRECT_BYTES;
	if (path == LP_PATH_DEFERRED || path == LP_PATH_INLINE)
		least = DIRECT_BYTES_MAX;
	return change->data.length >= least;
}

static int write_data(struct lpi_fstore_store *store, const struct lp_change *change,
		      struct lpi_fstore_inode *inode)
{
	struct lpi_fstore_eval *eval = store->eval;
	struct writing w = {.store = store,
			    .inode = inode,
			    .cursor = lpi_seg_cursor_at(&change->data.payload),
			    .crcs = change->data.payload.crcs,
			    .is_direct = is_direct(store, change)};
	uint64_t at = change->data.offset;
	int err = 0;
	eval->path = w.is_direct ? LP_PATH_DIRECT : LP_PATH_DEFERRED;
	if (at == LP_STORE_APPEND) {
		at = inode->rec.size_bytes;
		if (lp_range_outside(at, change->data.length, LP_STORE_FILE_MAX))
			return -EFBIG;
		err = lpi_payload_recut(&change->data.payload, at, change->data.length, eval->crcs);
		w.crcs = eval->crcs;
	}
	w.end = at + change->data.length;
	eval->offset = at;
	while (err == 0 && at < w.end)
		err = write_leaf(&w, &at);
	if (err == 0)
		inode->rec.size_bytes = LP_MAX(inode->rec.size_bytes, w.end);
	return err;
}

/* --- Cutting, punching, preallocating --------------------------------------------------------- */

/* Zeros [begin, end), all of it in one block; nothing to do where there is no data. */
static int zero_piece(struct lpi_fstore_store *store, struct lpi_fstore_inode *inode,
		      struct piece_range range)
{
	struct lpi_fstore_eval *eval = store->eval;
	uint64_t block = range.begin >> LP_BLOCK_SHIFT;
	struct lp_csum_piece piece = piece_at(range.begin, range.end, 0);
	struct lpi_mapleaf leaf = {.data = 0};
	int err = lpi_mapleaf_get(&eval->view, inode->ino, block, &leaf);
	if (err < 0 || (leaf.data & lpi_mapleaf_bit(block)) == 0)
		return err;
	piece = lp_csum_zero_piece(piece.offset_bytes, piece.len_bytes);
	err = merge_piece(store, inode, &leaf, block, &piece);
	if (err < 0)
		return err;
	memset(eval->bounce + piece.offset_bytes, 0, piece.len_bytes);
	const struct lpi_object_place place = place_of(inode, &leaf, block);
	err = put_payload(store, &place, eval->bounce);
	return err < 0 ? err : lpi_mapleaf_put(&eval->txn, inode->ino, block, &leaf);
}

/* Whole blocks [begin, end) become holes. */
static int clear_range(struct lpi_fstore_store *store, struct lpi_fstore_inode *inode,
		       struct piece_range range)
{
	struct lpi_fstore_eval *eval = store->eval;
	int err = 0;
	for (uint64_t block = range.begin; block < range.end && err == 0;) {
		uint64_t leaf_end = lp_align_down(block, LPI_LEAF_BLOCKS) + LPI_LEAF_BLOCKS;
		uint64_t first = block;
		struct lpi_mapleaf leaf = {.data = 0};
		err = lpi_mapleaf_get(&eval->view, inode->ino, block, &leaf);
		bool is_empty = (leaf.data | leaf.unwritten) == 0;
		for (; block < LP_MIN(leaf_end, range.end) && err == 0; block++)
			err = clear_block(store, inode, &leaf, block);
		if (err == 0 && !is_empty)
			err = lpi_mapleaf_put(&eval->txn, inode->ino, first, &leaf);
	}
	return err;
}

static int drop_leaf(struct lpi_fstore_eval *eval, struct lpi_fstore_inode *inode,
		     const struct lp_key *key, uint64_t *ret_end)
{
	struct lp_key_view at = {.number = 0};
	struct lpi_mapleaf leaf = {.data = 0};
	int err = lp_key_parse(key->bytes, key->len, &at);
	if (err == 0)
		err = lpi_mapleaf_get(&eval->view, inode->ino, at.number, &leaf);
	if (err < 0)
		return err;
	uint64_t cnt = (uint64_t)__builtin_popcountll(leaf.data | leaf.unwritten);
	inode->blocks -= LP_MIN(cnt, inode->blocks);
	*ret_end = lp_align_down(at.number, LPI_LEAF_BLOCKS) + LPI_LEAF_BLOCKS;
	return lpi_fstore_overlay_delete(&eval->txn, key);
}

int lpi_fstore_cut(struct lpi_fstore_eval *eval, struct lpi_fstore_inode *inode, uint64_t *block)
{
	struct lp_key_range range;
	struct lp_key key;
	LP_ASSERT(*block % LPI_LEAF_BLOCKS == 0);
	if (*block >= LP_KEY_MAP_BLOCKS_MAX)
		return 0;
	lp_key_range_of_map(&range, inode->ino, *block, LP_KEY_MAP_BLOCKS_MAX - 1);
	for (uint32_t i = 0; i < CUT_LEAVES; i++) {
		int err = lpi_fstore_next(&eval->view, &range.first, &range.end, &key);
		if (err == 0)
			err = drop_leaf(eval, inode, &key, block);
		if (err < 0)
			return err == -ENOENT ? 0 : err;
		range.first = key;
	}
	return 1;
}

int lpi_fstore_drop_payloads(struct lpi_fstore_store *store, struct lp_ino ino, uint64_t block)
{
	struct lpi_fstore_overlay *txn = &store->eval->txn;
	const struct lpi_fstore_overlay *layers[] = {&store->open->overlay, txn};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(layers); i++) {
		struct lpi_object_place place = {ino, block, 0};
		while (lpi_fstore_next_payload(layers[i], &place)) {
			struct lp_key key;
			lpi_payload_key(&key, &place);
			int err = lpi_fstore_overlay_delete(txn, &key);
			if (err < 0)
				return err;
			place.side++;
		}
	}
	return 0;
}

/* A very large file's map is cut step by step. Until that has ended nothing else is evaluated, so
 * nobody sees what is between; and a start goes on with it. */
static int begin_trim(struct lpi_fstore_store *store, struct lpi_fstore_inode *inode,
		      uint64_t block)
{
	uint8_t value[sizeof(uint64_t)];
	struct lp_key key;
	lp_key_of_store_number(&key, "trim", inode->ino.nr);
	lp_put_le64(value, block);
	store->eval->trim_wanted = inode->ino.nr;
	return lpi_fstore_overlay_put(&store->eval->txn, &key, value, sizeof(value));
}

static int truncate_data(struct lpi_fstore_store *store, const struct lp_change *change,
			 struct lpi_fstore_inode *inode)
{
	uint64_t size = change->data.offset;
	uint64_t block_end = lp_align_up(size, LP_BLOCK_BYTES);
	uint64_t block = block_end >> LP_BLOCK_SHIFT;
	uint64_t leaf_end = lp_align_up(block, LPI_LEAF_BLOCKS);
	int err = 0;
	if (size < block_end)
		err = zero_piece(store, inode, (struct piece_range){size, block_end});
	if (err == 0 && size < inode->rec.size_bytes)
		err = lpi_fstore_drop_payloads(store, inode->ino, block);
	if (err == 0)
		err = clear_range(store, inode, (struct piece_range){block, leaf_end});
	if (err == 0)
		err = lpi_fstore_cut(store->eval, inode, &leaf_end);
	if (err == 1)
		err = begin_trim(store, inode, leaf_end);
	if (err == 0)
		inode->rec.size_bytes = size;
	return err;
}

static int punch_data(struct lpi_fstore_store *store, const struct lp_change *change,
		      struct lpi_fstore_inode *inode)
{
	uint64_t begin = change->data.offset;
	uint64_t end = begin + change->data.length;
	uint64_t head_end = lp_align_up(begin, LP_BLOCK_BYTES);
	uint64_t tail_begin = lp_align_down(end, LP_BLOCK_BYTES);
	int err = 0;
	if (head_end > begin)
		err = zero_piece(store, inode, (struct piece_range){begin, LP_MIN(head_end, end)});
	if (err == 0 && tail_begin < end && tail_begin >= head_end)
		err = zero_piece(store, inode, (struct piece_range){tail_begin, end});
	if (err == 0)
		err = clear_range(store, inode,
				  (struct piece_range){head_end >> LP_BLOCK_SHIFT,
						       tail_begin >> LP_BLOCK_SHIFT});
	return err;
}

/* The blocks of one leaf. */
static int reserve_leaf(struct lpi_fstore_store *store, struct lpi_fstore_inode *inode,
			struct piece_range range)
{
	struct lpi_fstore_eval *eval = store->eval;
	const struct lpi_object_place place = {inode->ino, range.begin, 0};
	struct lpi_mapleaf leaf = {.data = 0};
	uint64_t found = 0;
	int err = lpi_mapleaf_get(&eval->view, inode->ino, range.begin, &leaf);
	for (uint64_t block = range.begin; block < range.end && err == 0; block++) {
		uint64_t bit = lpi_mapleaf_bit(block);
		if (((leaf.data | leaf.unwritten) & bit) != 0)
			continue;
		need_space(eval, &leaf, block);
		leaf.unwritten |= bit;
		inode->blocks++;
		found++;
	}
	/* Where side 0 has data it has space already, and keeps it. */
	if (err == 0 && found > 0)
		err = lpi_objects_reserve(&store->objects, &place,
					  (uint32_t)(range.end - range.begin));
	if (err == 0 && found > 0)
		err = lpi_mapleaf_put(&eval->txn, inode->ino, range.begin, &leaf);
	return err;
}

static int reserve_data(struct lpi_fstore_store *store, const struct lp_change *change,
			struct lpi_fstore_inode *inode)
{
	uint64_t block = change->data.offset >> LP_BLOCK_SHIFT;
	uint64_t end = lp_bytes_to_blocks_up(change->data.offset + change->data.length);
	int err = 0;
	/* Sooner than by filling up the host: it would have to be given back. */
	if ((end - block) * LP_BLOCK_BYTES + store->eval->need_bytes > store->eval->room_bytes)
		return -ENOSPC;
	while (block < end && err == 0) {
		uint64_t leaf_end = lp_align_down(block, LPI_LEAF_BLOCKS) + LPI_LEAF_BLOCKS;
		err = reserve_leaf(store, inode,
				   (struct piece_range){block, LP_MIN(leaf_end, end)});
		block = leaf_end;
	}
	return err;
}

/* --- Cloning ---------------------------------------------------------------------------------- */

/* Copies are what a host file system offers everywhere. A run of blocks of one leaf of each, all
 * with data in the source or all without. */
struct cloning {
	struct lpi_fstore_store *store;
	struct lpi_fstore_inode *src;
	struct lpi_fstore_inode *dst;
	uint64_t from;
	uint64_t to;
	uint64_t end; /* of to */
};

static int read_run(const struct cloning *c, const struct lpi_mapleaf *leaf, uint32_t cnt)
{
	uint8_t *bounce = c->store->eval->bounce;
	int err = 0;
	for (uint32_t i = 0; i < cnt && err == 0; i++) {
		const struct lpi_object_place place = place_of(c->src, leaf, c->from + i);
		err = lpi_fstore_block(c->store, &c->store->eval->view, &place,
				       bounce + i * LP_BLOCK_BYTES);
	}
	return err;
}

static int write_copy(const struct cloning *c, const struct lpi_mapleaf *from,
		      struct lpi_mapleaf *to, const struct lpi_object_place *place, uint32_t cnt)
{
	struct lpi_fstore_eval *eval = c->store->eval;
	eval->iov[0] = (struct iovec){.iov_base = eval->bounce, .iov_len = cnt * LP_BLOCK_BYTES};
	int err = write_direct(c->store, place, cnt, 1);
	for (uint32_t i = 0; i < cnt && err == 0; i++) {
		struct lpi_object_place one = {place->ino, place->block + i, place->side};
		const struct lpi_object_place old = place_of(c->dst, to, one.block);
		uint32_t crc = from->crcs[lpi_mapleaf_slot(c->from + i)];
		if ((to->data & lpi_mapleaf_bit(one.block)) != 0)
			err = drop_payload(c->store, &old);
		need_space(eval, to, one.block);
		set_data(c->dst, to, &one, crc);
	}
	return err;
}

static uint32_t run_of(const struct cloning *c, const struct lpi_mapleaf *from,
		       const uint64_t uses[LPI_SIDE_CNT], uint32_t *ret_side)
{
	uint32_t cnt = 0;
	uint32_t side = 0;
	uint64_t max = LP_MIN(LPI_LEAF_BLOCKS - lpi_mapleaf_slot(c->from),
			      LPI_LEAF_BLOCKS - lpi_mapleaf_slot(c->to));
	max = LP_MIN(max, c->end - c->to);
	while (cnt < max && (from->data & lpi_mapleaf_bit(c->from + cnt)) != 0 &&
	       choose_side(uses, c->to + cnt, &side) == 0 && (cnt == 0 || side == *ret_side)) {
		*ret_side = side;
		cnt++;
	}
	return cnt;
}

/* Holes of the source become holes. */
static int clear_run(const struct cloning *c, const struct lpi_mapleaf *from,
		     struct lpi_mapleaf *to, uint32_t *ret_cnt)
{
	uint64_t max = LP_MIN(LPI_LEAF_BLOCKS - lpi_mapleaf_slot(c->from),
			      LPI_LEAF_BLOCKS - lpi_mapleaf_slot(c->to));
	uint32_t cnt = 0;
	int err = 0;
	max = LP_MIN(max, c->end - c->to);
	while (err == 0 && cnt < max && (from->data & lpi_mapleaf_bit(c->from + cnt)) == 0)
		err = clear_block(c->store, c->dst, to, c->to + cnt++);
	*ret_cnt = cnt;
	return err;
}

static int clone_run(struct cloning *c)
{
	struct lpi_fstore_eval *eval = c->store->eval;
	struct lpi_object_place place = {.ino = c->dst->ino, .block = c->to};
	uint64_t uses[LPI_SIDE_CNT] = {0, 0};
	struct lpi_mapleaf from = {.data = 0};
	struct lpi_mapleaf to = {.data = 0};
	uint32_t cnt = 1;
	int err = lpi_mapleaf_get(&eval->view, c->src->ino, c->from, &from);
	if (err == 0)
		err = lpi_mapleaf_get(&eval->view, c->dst->ino, c->to, &to);
	if (err == 0)
		err = find_uses(eval, c->dst->ino, c->to, &to, uses);
	if (err < 0)
		return err;
	if ((from.data & lpi_mapleaf_bit(c->from)) == 0) {
		err = clear_run(c, &from, &to, &cnt);
	} else {
		cnt = run_of(c, &from, uses, &place.side);
		if (cnt == 0)
			return LPI_FSTORE_LATER;
		err = read_run(c, &from, cnt);
		if (err == 0)
			err = write_copy(c, &from, &to, &place, cnt);
	}
	if (err == 0)
		err = lpi_mapleaf_put(&eval->txn, c->dst->ino, c->to, &to);
	c->from += cnt;
	c->to += cnt;
	return err;
}

static int clone_data(struct lpi_fstore_store *store, const struct lp_change *change,
		      struct lpi_fstore_inode *inode)
{
	struct cloning c = {.store = store, .dst = inode};
	int err = lpi_fstore_inode_find(store->eval, change->clone.src, &c.src);
	if (err < 0)
		return err;
	if (!c.src->exists)
		return -ENOENT;
	err = lpi_fstore_data_err(c.src);
	if (err < 0)
		return err;
	uint64_t src_end = change->clone.src_offset + change->clone.length;
	uint64_t end = change->clone.offset + change->clone.length;
	bool fits_grid = lp_is_aligned(change->clone.length, LP_BLOCK_BYTES);
	bool ends_both = src_end == c.src->rec.size_bytes && end >= inode->rec.size_bytes;
	if (src_end > c.src->rec.size_bytes || (!fits_grid && !ends_both))
		return -EINVAL;
	c.from = change->clone.src_offset >> LP_BLOCK_SHIFT;
	c.to = change->clone.offset >> LP_BLOCK_SHIFT;
	c.end = lp_bytes_to_blocks_up(end);
	while (err == 0 && c.to < c.end)
		err = clone_run(&c);
	if (err == 0)
		inode->rec.size_bytes = LP_MAX(inode->rec.size_bytes, end);
	return err;
}

/* --- All changes ------------------------------------------------------------------------------ */

int lpi_fstore_data(struct lpi_fstore_store *store, const struct lp_change *change,
		    struct lpi_fstore_inode *inode)
{
	LP_ASSERT(lpi_change_is_data(change->type));
	int err = lpi_fstore_data_err(inode);
	if (err < 0)
		return err;
	if (change->type == LP_CHANGE_WRITE)
		return write_data(store, change, inode);
	if (change->type == LP_CHANGE_TRUNCATE)
		return truncate_data(store, change, inode);
	if (change->type == LP_CHANGE_PUNCH)
		return punch_data(store, change, inode);
	if (change->type == LP_CHANGE_PREALLOC)
		return reserve_data(store, change, inode);
	return clone_data(store, change, inode);
}
