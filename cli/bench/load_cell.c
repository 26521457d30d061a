/* SPDX-License-Identifier: Apache-2.0 */
/* A head is eight words: a mark, the six numbers, and a hash of these. The words behind it follow
 * from the hash. */
#include "cli/bench/load_cell.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/endian.h"
#include "base/hash.h"

#define MARK        UINT64_C(0x6c6c6563646f616c)
#define HASHED      56u /* bytes of the head, before the hash */
#define VERSION_MAX ((UINT32_C(1) << 31) - 1)

static_assert(HASHED + 8 == LPI_LOAD_CELL_MIN, "the shortest cell is a head");

static uint64_t next_word(uint64_t *state)
{
	*state += UINT64_C(0x9e3779b97f4a7c15);
	uint64_t word = *state;
	word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	return word ^ word >> 27;
}

/* Returns the hash. */
static uint64_t make_head(const struct lpi_load_cell *cell, uint8_t *head)
{
	lp_put_le64(head, MARK);
	lp_put_le64(head + 8, cell->run);
	lp_put_le64(head + 16, cell->object);
	lp_put_le64(head + 24, cell->place);
	lp_put_le64(head + 32, cell->total_bytes);
	lp_put_le64(head + 40, cell->seed);
	lp_put_le64(head + 48, cell->version);
	uint64_t hash = lp_hash_u64(head, HASHED, 0);
	lp_put_le64(head + HASHED, hash);
	return hash;
}

static void fill_words(uint8_t *buf, size_t len, uint64_t state)
{
	size_t at = 0;
	uint8_t last[8];
	for (; at + 8 <= len; at += 8)
		lp_put_le64(buf + at, next_word(&state));
	lp_put_le64(last, next_word(&state));
	if (at < len)
		memcpy(buf + at, last, len - at);
}

static bool has_words(const uint8_t *buf, size_t len, uint64_t state)
{
	size_t at = 0;
	uint8_t last[8];
	for (; at + 8 <= len; at += 8) {
		if (lp_get_le64(buf + at) != next_word(&state))
			return false;
	}
	lp_put_le64(last, next_word(&state));
	return at == len || memcmp(buf + at, last, len - at) == 0;
}

void lpi_load_cell_fill(uint8_t *buf, size_t len, const struct lpi_load_cell *cell)
{
	uint8_t head[LPI_LOAD_CELL_MIN];
	uint64_t hash = make_head(cell, head);
	size_t from = len >= sizeof(head) ? sizeof(head) : 0;
	memcpy(buf, head, from);
	fill_words(buf + from, len - from, hash);
}

int lpi_load_cell_read(const uint8_t *buf, size_t len, struct lpi_load_cell *ret)
{
	LP_ASSERT(len >= LPI_LOAD_CELL_MIN);
	uint64_t hash = lp_get_le64(buf + HASHED);
	uint64_t version = lp_get_le64(buf + 48);
	if (lp_get_le64(buf) != MARK || hash != lp_hash_u64(buf, HASHED, 0) ||
	    version > VERSION_MAX ||
	    !has_words(buf + LPI_LOAD_CELL_MIN, len - LPI_LOAD_CELL_MIN, hash))
		return -EBADMSG;
	*ret = (struct lpi_load_cell){
		.run = lp_get_le64(buf + 8),
		.object = lp_get_le64(buf + 16),
		.place = lp_get_le64(buf + 24),
		.total_bytes = lp_get_le64(buf + 32),
		.seed = lp_get_le64(buf + 40),
		.version = (uint32_t)version,
	};
	return 0;
}

bool lpi_load_cell_matches(const uint8_t *buf, size_t len, const struct lpi_load_cell *cell)
{
	uint8_t head[LPI_LOAD_CELL_MIN];
	uint64_t hash = make_head(cell, head);
	size_t from = len >= sizeof(head) ? sizeof(head) : 0;
	return memcmp(buf, head, from) == 0 && has_words(buf + from, len - from, hash);
}

/* --- The book --------------------------------------------------------------------------------- */

int lpi_load_book_init(struct lpi_load_book *book, uint64_t cnt)
{
	LP_ASSERT(cnt > 0 && cnt <= LPI_LOAD_BOOK_MAX);
	book->pages = calloc(cnt, sizeof(*book->pages));
	book->cnt = cnt;
	return book->pages != NULL ? 0 : -ENOMEM;
}

void lpi_load_book_fini(struct lpi_load_book *book)
{
	free(book->pages);
	book->pages = NULL;
}

bool lpi_load_book_is_busy(const struct lpi_load_book *book, uint64_t first, uint64_t cnt)
{
	LP_ASSERT(first + cnt <= book->cnt);
	for (uint64_t i = first; i < first + cnt; i++) {
		if (book->pages[i].is_busy)
			return true;
	}
	return false;
}

void lpi_load_book_begin(struct lpi_load_book *book, uint64_t first, uint64_t cnt)
{
	LP_ASSERT(first + cnt <= book->cnt);
	for (uint64_t i = first; i < first + cnt; i++) {
		struct lpi_load_page *page = &book->pages[i];
		LP_ASSERT(!page->is_busy && page->issued < VERSION_MAX);
		page->is_busy = 1;
		page->issued++;
	}
}

void lpi_load_book_end(struct lpi_load_book *book, uint64_t first, uint64_t cnt, bool is_acked)
{
	LP_ASSERT(first + cnt <= book->cnt);
	for (uint64_t i = first; i < first + cnt; i++) {
		struct lpi_load_page *page = &book->pages[i];
		LP_ASSERT(page->is_busy);
		page->is_busy = 0;
		if (!is_acked)
			page->is_doubtful = 1;
		if (!page->is_doubtful)
			page->acked = page->issued;
	}
}

const char *lpi_load_book_fault(const struct lpi_load_book *book, uint64_t at, uint32_t floor,
				const struct lpi_load_cell *cell, uint64_t run)
{
	LP_ASSERT(at < book->cnt);
	if (cell->run > run)
		return "data of a later run";
	if (cell->run < run)
		return floor > 0 ? "data of an earlier run, after this one's was acknowledged"
				 : NULL;
	if (cell->version < floor)
		return "an older version than was acknowledged";
	if (cell->version > book->pages[at].issued)
		return "a version that was never sent";
	return NULL;
}
