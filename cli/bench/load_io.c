/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that carry data. Without verify, what is sent comes from a pattern that was made at the
 * beginning, and what is received is thrown away by the library's callback: of that only the length
 * is looked at, and the checksums, which the library compares. With verify each slot has memory of
 * its own. */
#include <errno.h>
#include <inttypes.h>

#include "cli/bench/load_impl.h"

#define NEW_OBJECT (UINT64_C(1) << 63) /* in cells: one that was put without --objects */

/* --- Pages ------------------------------------------------------------------------------------ */

uint64_t lpi_load_page_of(const struct lpi_load *load, uint64_t object, uint64_t offset)
{
	if (!lpi_load_uses_files(load->options->op))
		return object;
	return object * load->pages_per_object + offset / load->unit_bytes;
}

uint64_t lpi_load_pages_in(const struct lpi_load *load, uint64_t length)
{
	return lpi_load_uses_files(load->options->op) ? length / load->unit_bytes : 1;
}

static uint64_t cell_bytes(const struct lpi_load *load)
{
	return lpi_load_uses_files(load->options->op) ? load->unit_bytes : LPI_LOAD_CELL_BYTES;
}

static uint64_t name_of(const struct lpi_load_slot *slot)
{
	return slot->object | (slot->is_new ? NEW_OBJECT : 0);
}

/* --- Writing ---------------------------------------------------------------------------------- */

static void fill_cells(const struct lpi_load *load, struct lpi_load_slot *slot)
{
	bool is_whole = slot->kind == LPI_LOAD_KIND_PUT;
	uint64_t step = cell_bytes(load);
	struct lpi_load_cell cell = {.run = load->run,
				     .object = name_of(slot),
				     .total_bytes = is_whole ? slot->length : 0,
				     .seed = load->options->seed,
				     .version = 1};
	for (uint64_t at = 0; at < slot->length; at += step) {
		uint64_t page = slot->first_page + (is_whole ? 0 : at / step);
		cell.place = slot->offset + at;
		if (slot->page_cnt > 0)
			cell.version = load->book.pages[page].issued;
		lpi_load_cell_fill(slot->buf + at, LP_MIN(step, slot->length - at), &cell);
	}
}

static const void *make_data(struct lpi_load *load, struct lpi_load_slot *slot)
{
	if (!load->options->is_verified)
		return load->pattern + load->start++ % LPI_LOAD_STARTS * LPI_LOAD_CELL_BYTES;
	if (!slot->is_new) {
		slot->first_page = lpi_load_page_of(load, slot->object, slot->offset);
		slot->page_cnt = lpi_load_pages_in(load, slot->length);
		lpi_load_book_begin(&load->book, slot->first_page, slot->page_cnt);
	}
	fill_cells(load, slot);
	return slot->buf;
}

void lpi_load_make_write(struct lpi_load *load, struct lpi_load_slot *slot,
			 struct lapis_request *request)
{
	request->data = make_data(load, slot);
	request->data_bytes = slot->length;
	request->write_path = load->options->write_path;
	if (slot->kind == LPI_LOAD_KIND_PUT) {
		request->op = LAPIS_PUT;
		return;
	}
	request->op = LAPIS_WRITE;
	request->path = NULL;
	request->ino = load->inos[slot->object];
	request->offset = slot->offset;
}

int lpi_load_end_write(struct lpi_load *load, struct lpi_load_slot *slot,
		       const struct lapis_result *result)
{
	int err = lpi_load_status(load, slot, result);
	if (slot->page_cnt > 0)
		lpi_load_book_end(&load->book, slot->first_page, slot->page_cnt, err == 0);
	if (err < 0 && slot->is_new && load->failed_new_cnt < LPI_LOAD_FAILED_NEW_MAX)
		load->failed_new[load->failed_new_cnt++] = slot->object;
	return err;
}

/* --- Reading ---------------------------------------------------------------------------------- */

static int discard(void *arg, uint64_t offset, const void *data, size_t len)
{
	(void)arg;
	(void)offset;
	(void)data;
	(void)len;
	return 0;
}

void lpi_load_make_read(struct lpi_load *load, struct lpi_load_slot *slot,
			struct lapis_request *request)
{
	request->op = LAPIS_GET;
	request->length = LAPIS_TO_END;
	if (slot->kind == LPI_LOAD_KIND_READ) {
		request->path = NULL;
		request->ino = load->inos[slot->object];
		request->offset = slot->offset;
		request->length = slot->length;
	}
	if (!load->options->is_verified) {
		request->sink = discard;
		return;
	}
	request->buf = slot->buf;
	request->buf_bytes = LP_MAX(load->options->sizes.high_bytes, LPI_LOAD_CHUNK);
	if (slot->is_new)
		return;
	slot->first_page = lpi_load_page_of(load, slot->object, slot->offset);
	uint64_t cnt = lpi_load_pages_in(load, slot->length);
	for (uint64_t i = 0; i < cnt; i++)
		slot->floors[i] = lpi_load_book_floor(&load->book, slot->first_page + i);
}

static int mismatch(struct lpi_load *load, const struct lpi_load_slot *slot, uint64_t offset,
		    const char *what)
{
	load->result.mismatches++;
	return lpi_load_note(load, slot, -EBADMSG, "wrong data at offset %" PRIu64 ": %s", offset,
			     what);
}

static const char *cell_fault(const struct lpi_load *load, const struct lpi_load_slot *slot,
			      uint64_t idx, uint64_t offset, const struct lpi_load_cell *cell)
{
	if (cell->object != name_of(slot))
		return "data of another object";
	if (cell->place != offset)
		return "data of another place";
	if (slot->is_new)
		return cell->run != load->run || cell->version != 1 ? "data of another run" : NULL;
	return lpi_load_book_fault(&load->book, slot->first_page + idx, slot->floors[idx], cell,
				   load->run);
}

static int check_file(struct lpi_load *load, const struct lpi_load_slot *slot)
{
	uint64_t step = load->unit_bytes;
	struct lpi_load_cell cell;
	for (uint64_t at = 0; at < slot->length; at += step) {
		uint64_t offset = slot->offset + at;
		const char *fault = "no data of this benchmark";
		if (lpi_load_cell_read(slot->buf + at, step, &cell) == 0)
			fault = cell_fault(load, slot, at / step, offset, &cell);
		if (fault != NULL)
			return mismatch(load, slot, offset, fault);
	}
	return 0;
}

/* All cells of an object are of the version that the first one names. */
static int check_object(struct lpi_load *load, const struct lpi_load_slot *slot)
{
	uint64_t length = slot->length;
	uint64_t first = LP_MIN(length, (uint64_t)LPI_LOAD_CELL_BYTES);
	struct lpi_load_cell cell;
	if (length < LPI_LOAD_CELL_MIN || lpi_load_cell_read(slot->buf, first, &cell) < 0)
		return mismatch(load, slot, 0, "no data of this benchmark");
	const char *fault = cell_fault(load, slot, 0, 0, &cell);
	if (fault == NULL && cell.total_bytes != length)
		fault = "an object of another length";
	if (fault != NULL)
		return mismatch(load, slot, 0, fault);
	for (uint64_t at = first; at < length; at += LPI_LOAD_CELL_BYTES) {
		cell.place = at;
		if (!lpi_load_cell_matches(slot->buf + at,
					   LP_MIN(length - at, (uint64_t)LPI_LOAD_CELL_BYTES),
					   &cell))
			return mismatch(load, slot, at, "not what belongs to the first block");
	}
	return 0;
}

static int check_length(struct lpi_load *load, struct lpi_load_slot *slot,
			const struct lapis_result *result)
{
	uint64_t got = result->data_bytes;
	bool is_file = slot->kind == LPI_LOAD_KIND_READ;
	uint64_t want = is_file ? slot->length : result->object_bytes;
	/* Puts change what an object of the set is long. */
	if (load->options->op == LPI_LOAD_GET)
		want = lpi_load_size_of(load, slot->object, slot->is_new);
	slot->length = got;
	if (got == want)
		return 0;
	load->result.mismatches++;
	return lpi_load_note(load, slot, -EBADMSG,
			     "%" PRIu64 " bytes came from offset %" PRIu64 ", not %" PRIu64, got,
			     slot->offset, want);
}

int lpi_load_end_read(struct lpi_load *load, struct lpi_load_slot *slot,
		      const struct lapis_result *result)
{
	int err = lpi_load_status(load, slot, result);
	if (err == 0)
		err = check_length(load, slot, result);
	if (err < 0 || !load->options->is_verified)
		return err;
	return slot->kind == LPI_LOAD_KIND_READ ? check_file(load, slot) : check_object(load, slot);
}
