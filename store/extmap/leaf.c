/* SPDX-License-Identifier: Apache-2.0 */
/* Every edit builds the new list of extents in an array on the stack, from left to right: what lies
 * before the range, what takes its place, what lies behind. lpi_words_push() joins neighbours on
 * the way. With at most 64 extents that is as fast as anything cleverer, and there is one place
 * where extents are cut. */
#include "store/extmap/leaf.h"

#include "base/crc32c.h"
#include "base/cursor.h"
#include "base/error.h"

/* A range may cut one extent in two, and an edit inserts at most one per block. */
#define SCRATCH_WORDS (LPI_LEAF_BLOCKS + 2)

static bool continues(uint64_t last, uint64_t next)
{
	return lpi_word_end(last) == lpi_word_first(next) &&
	       lpi_word_block(last) + lpi_word_cnt(last) == lpi_word_block(next) &&
	       lpi_word_flags(last) == lpi_word_flags(next);
}

void lpi_words_push(uint64_t *words, uint32_t *cnt, uint64_t word)
{
	uint64_t *last = *cnt > 0 ? &words[*cnt - 1] : NULL;
	if (last != NULL && continues(*last, word)) {
		*last = lpi_word(lpi_word_block(*last), lpi_word_first(*last),
				 lpi_word_cnt(*last) + lpi_word_cnt(word), lpi_word_flags(word));
		return;
	}
	LP_ASSERT(last == NULL || lpi_word_end(*last) <= lpi_word_first(word));
	LP_ASSERT(*cnt < SCRATCH_WORDS);
	words[(*cnt)++] = word;
}

/* The part of a word within [first, end), which is not empty. */
static uint64_t slice(uint64_t word, uint32_t first, uint32_t end)
{
	uint32_t from = LP_MAX(first, lpi_word_first(word));
	uint32_t to = LP_MIN(end, lpi_word_end(word));
	LP_ASSERT(from < to);
	return lpi_word(lpi_word_block(word) + from - lpi_word_first(word), from, to - from,
			lpi_word_flags(word));
}

uint32_t lpi_leaf_crc(const struct lpi_leaf *leaf, uint32_t block)
{
	const uint32_t *crcs = (const uint32_t *)(const void *)(leaf->words + leaf->words_max);
	return block < leaf->crcs_max ? crcs[block] : 0;
}

void lpi_leaf_init(struct lpi_leaf *leaf, uint32_t idx, uint32_t words_max, uint32_t crcs_max)
{
	LP_ASSERT(words_max > 0 && words_max <= LPI_LEAF_BLOCKS);
	LP_ASSERT(crcs_max > 0 && crcs_max <= LPI_LEAF_BLOCKS);
	memset(leaf, 0, lpi_leaf_bytes(words_max, crcs_max));
	leaf->idx = idx;
	leaf->words_max = (uint8_t)words_max;
	leaf->crcs_max = (uint8_t)crcs_max;
}

void lpi_leaf_copy(struct lpi_leaf *to, const struct lpi_leaf *from)
{
	LP_ASSERT(to->words_cnt == 0 && to->words_max >= from->words_cnt);
	uint32_t crcs_end = lpi_leaf_crcs_end(from);
	LP_ASSERT(to->crcs_max >= crcs_end);
	to->words_cnt = from->words_cnt;
	to->is_stored = from->is_stored;
	to->is_owed = from->is_owed;
	to->is_used = from->is_used;
	memcpy(to->words, from->words, from->words_cnt * sizeof(from->words[0]));
	for (uint32_t b = 0; b < crcs_end; b++)
		lpi_leaf_crcs(to)[b] = lpi_leaf_crc(from, b);
}

uint32_t lpi_leaf_crcs_end(const struct lpi_leaf *leaf)
{
	for (uint32_t i = leaf->words_cnt; i > 0; i--) {
		if (!lpi_word_is_unwritten(leaf->words[i - 1]))
			return lpi_word_end(leaf->words[i - 1]);
	}
	return 0;
}

uint32_t lpi_leaf_blocks(const struct lpi_leaf *leaf)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < leaf->words_cnt; i++)
		cnt += lpi_word_cnt(leaf->words[i]);
	return cnt;
}

uint32_t lpi_leaf_overlaps(const struct lpi_leaf *leaf, uint32_t first, uint32_t end)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < leaf->words_cnt; i++)
		cnt += lpi_word_first(leaf->words[i]) < end && lpi_word_end(leaf->words[i]) > first;
	return cnt;
}

static void release(struct lp_extmap_released *list, uint64_t word)
{
	struct lp_extent extent = {lpi_word_block(word), lpi_word_cnt(word)};
	bool is_shared = (word & LP_EXTMAP_FLAG_SHARED) != 0;
	if (list->cnt > 0) {
		struct lp_extmap_release *last = &list->items[list->cnt - 1];
		if (lp_extent_end(last->extent) == extent.block && last->is_shared == is_shared) {
			last->extent.cnt += extent.cnt;
			return;
		}
	}
	LP_ASSERT(list->items != NULL);
	LP_ASSERT(list->cnt < list->max);
	list->items[list->cnt++] = (struct lp_extmap_release){extent, is_shared};
}

/* What becomes of an old extent's part within the range. */
static void edit_inside(const struct lpi_leaf_edit *edit, uint64_t word, uint64_t *out,
			uint32_t *cnt)
{
	switch (edit->action) {
	case LPI_LEAF_REPLACE:
		release(edit->released, word);
		break;
	case LPI_LEAF_MARK_WRITTEN:
		LP_ASSERT(lpi_word_is_unwritten(word));
		lpi_words_push(out, cnt, word & ~LP_EXTMAP_FLAG_UNWRITTEN);
		break;
	case LPI_LEAF_MARK_SHARED:
		if (!lpi_word_is_unwritten(word))
			word |= LP_EXTMAP_FLAG_SHARED;
		lpi_words_push(out, cnt, word);
		break;
	}
}

static void edit_crcs(struct lpi_leaf *leaf, const struct lpi_leaf_edit *edit)
{
	if (edit->action == LPI_LEAF_MARK_SHARED)
		return;
	LP_ASSERT(edit->crcs == NULL || edit->end <= leaf->crcs_max);
	uint32_t *crcs = lpi_leaf_crcs(leaf);
	for (uint32_t b = edit->first; b < LP_MIN(edit->end, leaf->crcs_max); b++)
		crcs[b] = edit->crcs == NULL ? 0 : edit->crcs[b - edit->first];
}

void lpi_leaf_edit(struct lpi_leaf *leaf, const struct lpi_leaf_edit *edit)
{
	uint64_t out[SCRATCH_WORDS];
	uint32_t cnt = 0;
	uint32_t i = 0;
	LP_ASSERT(edit->first < edit->end && edit->end <= LPI_LEAF_BLOCKS);

	for (; i < leaf->words_cnt && lpi_word_first(leaf->words[i]) < edit->first; i++)
		lpi_words_push(out, &cnt, slice(leaf->words[i], 0, edit->first));
	/* The last of these may reach into the range. */
	if (i > 0 && lpi_word_end(leaf->words[i - 1]) > edit->first)
		i--;
	uint32_t covered = 0;
	for (uint32_t k = i; k < leaf->words_cnt; k++) {
		if (lpi_word_first(leaf->words[k]) >= edit->end)
			break;
		uint64_t inside = slice(leaf->words[k], edit->first, edit->end);
		covered += lpi_word_cnt(inside);
		edit_inside(edit, inside, out, &cnt);
	}
	LP_ASSERT(edit->action != LPI_LEAF_MARK_WRITTEN || covered == edit->end - edit->first);
	for (uint32_t k = 0; k < edit->insert_cnt; k++) {
		LP_ASSERT(lpi_word_first(edit->insert[k]) >= edit->first);
		LP_ASSERT(lpi_word_end(edit->insert[k]) <= edit->end);
		lpi_words_push(out, &cnt, edit->insert[k]);
	}
	for (; i < leaf->words_cnt; i++) {
		if (lpi_word_end(leaf->words[i]) > edit->end)
			lpi_words_push(out, &cnt,
				       slice(leaf->words[i], edit->end, LPI_LEAF_BLOCKS));
	}
	LP_ASSERT(cnt <= leaf->words_max);
	memcpy(leaf->words, out, cnt * sizeof(out[0]));
	leaf->words_cnt = (uint8_t)cnt;
	edit_crcs(leaf, edit);
	LP_ASSERT_SLOW(lpi_leaf_is_sound(leaf));
}

const uint64_t *lpi_leaf_find(const struct lpi_leaf *leaf, uint32_t block, uint32_t *ret_end)
{
	uint32_t low = 0;
	uint32_t high = leaf->words_cnt;
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		if (lpi_word_end(leaf->words[mid]) <= block)
			low = mid + 1;
		else
			high = mid;
	}
	bool is_end = low == leaf->words_cnt;
	if (!is_end && lpi_word_first(leaf->words[low]) <= block)
		return &leaf->words[low];
	*ret_end = is_end ? LPI_LEAF_BLOCKS : lpi_word_first(leaf->words[low]);
	return NULL;
}

/* A leaf is bound to its place: one that was stored under another key does not pass. */
static uint32_t leaf_crc(const uint8_t *bytes, size_t len, struct lp_ino ino, uint32_t idx)
{
	uint8_t place[20];
	lp_put_le64(place, ino.nr);
	lp_put_le64(place + 8, (uint64_t)idx << LPI_LEAF_SHIFT);
	memcpy(place + 16, bytes, LP_EXTMAP_LEAF_HEAD_CRC_OFF);
	uint32_t crc = lp_crc32c(0, place, sizeof(place));
	return lp_crc32c(crc, bytes + LP_EXTMAP_LEAF_HEAD_SIZE, len - LP_EXTMAP_LEAF_HEAD_SIZE);
}

size_t lpi_leaf_encode(struct lpi_leaf *leaf, struct lp_ino ino, uint8_t *buf)
{
	struct lp_extmap_leaf_head head = {.version = 1, .extents_cnt = leaf->words_cnt};
	const uint32_t *crcs = lpi_leaf_crcs(leaf);
	struct lp_writer writer;
	size_t len = 0;
	LP_ASSERT(leaf->words_cnt > 0);
	LP_ASSERT_SLOW(lpi_leaf_is_sound(leaf));
	lp_writer_init(&writer, buf, LPI_LEAF_BYTES_MAX);
	(void)lp_writer_reserve(&writer, LP_EXTMAP_LEAF_HEAD_SIZE);
	for (uint32_t i = 0; i < leaf->words_cnt; i++)
		lp_writer_u64(&writer, leaf->words[i]);
	for (uint32_t i = 0; i < leaf->words_cnt; i++) {
		if (lpi_word_is_unwritten(leaf->words[i]))
			continue;
		lp_writer_u32s(&writer, crcs + lpi_word_first(leaf->words[i]),
			       lpi_word_cnt(leaf->words[i]));
	}
	bool fits = lp_writer_finish(&writer, &len);
	LP_ASSERT(fits);
	lp_extmap_leaf_head_encode(&head, buf);
	head.crc = leaf_crc(buf, len, ino, leaf->idx);
	lp_extmap_leaf_head_encode(&head, buf);
	return len;
}

static bool overlap_on_device(uint64_t a, uint64_t b)
{
	uint64_t block_a = lpi_word_block(a);
	uint64_t block_b = lpi_word_block(b);
	return block_a < block_b + lpi_word_cnt(b) && block_b < block_a + lpi_word_cnt(a);
}

/* What is wrong with words[i], given those before, or NULL. */
static const char *word_fault(const uint64_t *words, uint32_t i)
{
	uint64_t word = words[i];
	uint64_t both = LP_EXTMAP_FLAG_UNWRITTEN | LP_EXTMAP_FLAG_SHARED;
	if (word >> 62 != 0)
		return "unknown flag";
	if ((word & both) == both)
		return "unwritten and shared";
	if (lpi_word_end(word) > LPI_LEAF_BLOCKS)
		return "beyond the leaf";
	if ((lpi_word_block(word) + lpi_word_cnt(word) - 1) >> LPI_LEAF_DEVICE_BITS != 0)
		return "beyond any device";
	if (i > 0 && lpi_word_end(words[i - 1]) > lpi_word_first(word))
		return "out of order";
	if (i > 0 && continues(words[i - 1], word))
		return "continues the one before";
	for (uint32_t k = 0; k < i; k++) {
		bool both_shared = (words[k] & word & LP_EXTMAP_FLAG_SHARED) != 0;
		if (!both_shared && overlap_on_device(words[k], word))
			return "device blocks mapped twice";
	}
	return NULL;
}

static int bad_leaf(struct lp_ino ino, uint32_t idx, const char *what)
{
	return LP_CORRUPT(LP_OFFSET_NONE, "inode %llu: leaf %u of its map: %s",
			  (unsigned long long)ino.nr, idx, what);
}

static const char *head_fault(const struct lp_extmap_leaf_head *head, size_t len)
{
	if (head->version != 1)
		return "version";
	if (!lp_extmap_leaf_head_reserved_is_zero(head))
		return "reserved";
	if (head->extents_cnt == 0 || head->extents_cnt > LPI_LEAF_BLOCKS)
		return "extents_cnt";
	return len < LP_EXTMAP_LEAF_HEAD_SIZE + head->extents_cnt * 8U ? "length" : NULL;
}

int lpi_leaf_check(const void *bytes, size_t len, struct lp_ino ino, uint32_t idx,
		   uint32_t *ret_words, uint32_t *ret_crcs_end)
{
	struct lp_extmap_leaf_head head;
	uint64_t words[LPI_LEAF_BLOCKS];
	uint32_t written = 0;
	uint32_t crcs_end = 0;
	if (len < LP_EXTMAP_LEAF_HEAD_SIZE || len > LPI_LEAF_BYTES_MAX)
		return bad_leaf(ino, idx, "length");
	lp_extmap_leaf_head_decode(bytes, &head);
	uint32_t crc = leaf_crc(bytes, len, ino, idx);
	if (crc != head.crc)
		return LP_CORRUPT_CRC(LP_OFFSET_NONE,
				      "inode %llu: leaf %u of its map: crc is %08x, stored %08x",
				      (unsigned long long)ino.nr, idx, crc, head.crc);
	const char *fault = head_fault(&head, len);
	struct lp_reader reader;
	lp_reader_init(&reader, bytes, len);
	(void)lp_reader_bytes(&reader, LP_EXTMAP_LEAF_HEAD_SIZE);
	for (uint32_t i = 0; fault == NULL && i < head.extents_cnt; i++) {
		words[i] = lp_reader_u64(&reader);
		fault = word_fault(words, i);
		if (fault == NULL && !lpi_word_is_unwritten(words[i])) {
			written += lpi_word_cnt(words[i]);
			crcs_end = lpi_word_end(words[i]);
		}
	}
	if (fault == NULL && lp_reader_remaining(&reader) != written * sizeof(uint32_t))
		fault = "number of crcs";
	if (fault != NULL)
		return bad_leaf(ino, idx, fault);
	*ret_words = head.extents_cnt;
	*ret_crcs_end = crcs_end;
	return 0;
}

void lpi_leaf_decode(struct lpi_leaf *leaf, const void *bytes, size_t len)
{
	struct lp_extmap_leaf_head head;
	struct lp_reader reader;
	uint32_t *crcs = lpi_leaf_crcs(leaf);
	LP_ASSERT(leaf->words_cnt == 0);
	lp_extmap_leaf_head_decode(bytes, &head);
	LP_ASSERT(head.extents_cnt <= leaf->words_max);
	lp_reader_init(&reader, bytes, len);
	(void)lp_reader_bytes(&reader, LP_EXTMAP_LEAF_HEAD_SIZE);
	for (uint32_t i = 0; i < head.extents_cnt; i++)
		leaf->words[i] = lp_reader_u64(&reader);
	leaf->words_cnt = head.extents_cnt;
	LP_ASSERT(lpi_leaf_crcs_end(leaf) <= leaf->crcs_max);
	for (uint32_t i = 0; i < leaf->words_cnt; i++) {
		if (lpi_word_is_unwritten(leaf->words[i]))
			continue;
		for (uint32_t b = lpi_word_first(leaf->words[i]); b < lpi_word_end(leaf->words[i]);
		     b++)
			crcs[b] = lp_reader_u32(&reader);
	}
	LP_ASSERT(lp_reader_finish(&reader));
	LP_ASSERT_SLOW(lpi_leaf_is_sound(leaf));
}

bool lpi_leaf_is_sound(const struct lpi_leaf *leaf)
{
	uint64_t written = 0;
	if (leaf->words_cnt > leaf->words_max || lpi_leaf_crcs_end(leaf) > leaf->crcs_max)
		return false;
	for (uint32_t i = 0; i < leaf->words_cnt; i++) {
		uint32_t cnt = lpi_word_cnt(leaf->words[i]);
		if (word_fault(leaf->words, i) != NULL)
			return false;
		if (!lpi_word_is_unwritten(leaf->words[i]))
			written |= (UINT64_MAX >> (64 - cnt)) << lpi_word_first(leaf->words[i]);
	}
	for (uint32_t b = 0; b < leaf->crcs_max; b++) {
		if ((written >> b & 1) == 0 && lpi_leaf_crc(leaf, b) != 0)
			return false;
	}
	return true;
}
