/* SPDX-License-Identifier: Apache-2.0 */
/* What is measured: which object and place an operation is about, what it asks, and how its answer
 * is judged; and which options make sense together. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cli/bench/load_impl.h"

#define MEMORY_MAX (UINT64_C(8) << 30) /* of all slots, with verify */
#define FILES_MAX  (UINT64_C(1) << 60) /* bytes of all files */

static const struct {
	const char *name;
	bool uses_files;
	bool writes;
} ops[LPI_LOAD_OP_CNT] = {
	[LPI_LOAD_WRITE] = {"write", true, true},
	[LPI_LOAD_READ] = {"read", true, false},
	[LPI_LOAD_RANDWRITE] = {"randwrite", true, true},
	[LPI_LOAD_RANDREAD] = {"randread", true, false},
	[LPI_LOAD_MIXED] = {"mixed", true, true},
	[LPI_LOAD_PUT] = {"put", false, true},
	[LPI_LOAD_GET] = {"get", false, false},
	[LPI_LOAD_STAT] = {"stat", false, false},
	[LPI_LOAD_DELETE] = {"delete", false, false},
	[LPI_LOAD_LIST] = {"list", false, false},
	[LPI_LOAD_PUTGET] = {"putget", false, true},
	[LPI_LOAD_PING] = {"ping", false, false},
};

bool lpi_load_uses_files(enum lpi_load_op op)
{
	return ops[op].uses_files;
}

bool lpi_load_writes(enum lpi_load_op op)
{
	return ops[op].writes;
}

const char *lpi_load_op_name(enum lpi_load_op op)
{
	return ops[op].name;
}

int lpi_load_op_parse(const char *name)
{
	for (int i = 0; i < LPI_LOAD_OP_CNT; i++) {
		if (strcmp(ops[i].name, name) == 0)
			return i;
	}
	return -1;
}

const char *lpi_load_kind_name(enum lpi_load_kind kind)
{
	static const char *const names[LPI_LOAD_KIND_CNT] = {"read", "write",  "get",  "put",
							     "stat", "delete", "list", "ping"};
	return names[kind];
}

/* --- What makes no sense ---------------------------------------------------------------------- */

static const char *file_fault(const struct lpi_load_options *options)
{
	uint64_t bits = options->sizes.unit_bytes | options->object_bytes;
	uint64_t unit = bits & (~bits + 1);
	LP_ASSERT(options->objects_cnt > 0);
	if (options->sizes.high_bytes > LPI_LOAD_FILE_IO_MAX)
		return "--size of a read or write of a file is at most 4 MiB";
	if (options->object_bytes < options->sizes.high_bytes)
		return "--object-size must be at least the largest --size";
	if (options->object_bytes > FILES_MAX / options->objects_cnt)
		return "that is more than any store holds";
	if (options->is_verified && unit < LPI_LOAD_CELL_MIN)
		return "with --verify sizes are multiples of 64 bytes";
	if (options->is_verified &&
	    options->object_bytes / unit > LPI_LOAD_BOOK_MAX / options->objects_cnt)
		return "too much data to verify: use fewer or smaller files";
	return NULL;
}

static const char *object_fault(const struct lpi_load_options *options)
{
	if (options->sizes.high_bytes > LPI_LOAD_OBJECT_MAX)
		return "an object that is put as a whole has at most 1 GiB";
	if (options->is_verified && options->sizes.low_bytes < LPI_LOAD_CELL_MIN)
		return "with --verify objects have at least 64 bytes";
	if (options->is_verified && options->objects_cnt > LPI_LOAD_BOOK_MAX)
		return "too many objects to verify: use fewer with --objects";
	if (options->is_verified && options->sizes.high_bytes * options->depth > MEMORY_MAX)
		return "that many objects of this size at once do not fit into memory: use a "
		       "smaller depth";
	return NULL;
}

static const char *bucket_fault(const char *bucket)
{
	size_t len = strlen(bucket);
	if (len == 0 || len > LPI_LOAD_BUCKET_MAX || strchr(bucket, '/') != NULL ||
	    strcmp(bucket, ".") == 0 || strcmp(bucket, "..") == 0)
		return "a bucket's name has 1 to 200 bytes and no /";
	return NULL;
}

const char *lpi_load_fault(const struct lpi_load_options *options)
{
	const char *fault = bucket_fault(options->bucket);
	bool uses_files = lpi_load_uses_files(options->op);
	if (fault != NULL)
		return fault;
	bool needs_none = options->op == LPI_LOAD_PUT || options->op == LPI_LOAD_PING;
	if (options->objects_cnt == 0 && !needs_none)
		return "the number of objects is at least 1";
	if (options->objects_cnt == 0 && options->only_prepares)
		return "--prepare-only needs --objects";
	if (options->is_ready && (uses_files || options->only_prepares))
		return "--ready is for existing objects, not for files";
	if (options->depth < options->conns_cnt)
		return "each connection needs a request to send: --depth is at least "
		       "--connections";
	if (options->is_poisson && options->rate <= 0)
		return "--poisson needs a --rate";
	if (options->run_ns == 0 && options->ops_max == 0)
		return "give --seconds or --ops";
	return uses_files ? file_fault(options) : object_fault(options);
}

/* --- Which one -------------------------------------------------------------------------------- */

static bool draw_is_read(struct lpi_load *load)
{
	switch (load->options->op) {
	case LPI_LOAD_READ:
	case LPI_LOAD_RANDREAD:
	case LPI_LOAD_GET:
		return true;
	case LPI_LOAD_MIXED:
	case LPI_LOAD_PUTGET:
		return lp_prng_chance(&load->prng, load->options->reads_percent, 100);
	default:
		return false;
	}
}

static uint64_t draw_size(struct lpi_load *load)
{
	const struct lpi_load_sizes *sizes = &load->options->sizes;
	if (sizes->low_bytes == sizes->high_bytes)
		return sizes->low_bytes;
	return lpi_load_sizes_pick(sizes, lp_prng_u64(&load->prng));
}

/* From front to back of one file after the other: what does not fit into the rest of one begins the
 * next. */
static void next_in_order(struct lpi_load *load, struct lpi_load_slot *slot)
{
	if (load->at_offset + slot->length > load->options->object_bytes) {
		load->at_offset = 0;
		load->at_object = (load->at_object + 1) % load->options->objects_cnt;
	}
	slot->object = load->at_object;
	slot->offset = load->at_offset;
	load->at_offset += slot->length;
}

static void draw_range(struct lpi_load *load, struct lpi_load_slot *slot)
{
	uint64_t object_bytes = load->options->object_bytes;
	if (load->options->order == LPI_LOAD_SEQUENTIAL) {
		next_in_order(load, slot);
		return;
	}
	uint64_t per_object = object_bytes / load->grain_bytes;
	uint64_t place = lpi_load_places_next(&load->places, &load->prng);
	slot->object = place / per_object;
	slot->offset = place % per_object * load->grain_bytes;
	if (slot->offset + slot->length > object_bytes)
		slot->offset = lp_align_down(object_bytes - slot->length, load->unit_bytes);
}

/* Of two writes of one place at once nobody could say which is the last. */
static bool is_taken(const struct lpi_load *load, const struct lpi_load_slot *slot)
{
	if (!load->options->is_verified || load->book.pages == NULL)
		return false;
	return lpi_load_book_is_busy(&load->book,
				     lpi_load_page_of(load, slot->object, slot->offset),
				     lpi_load_pages_in(load, slot->length));
}

/* False: each that was tried is being written. */
static bool draw_target(struct lpi_load *load, struct lpi_load_slot *slot, bool is_read)
{
	for (uint32_t i = 0; i < LPI_LOAD_TRIES; i++) {
		if (lpi_load_uses_files(load->options->op))
			draw_range(load, slot);
		else
			slot->object = lpi_load_places_next(&load->places, &load->prng);
		if (is_read || !is_taken(load, slot))
			return true;
	}
	return false;
}

/* --- What is asked ---------------------------------------------------------------------------- */

static enum lpi_load_next next_data(struct lpi_load *load, struct lpi_load_slot *slot,
				    struct lapis_request *request)
{
	bool uses_files = lpi_load_uses_files(load->options->op);
	bool is_read = draw_is_read(load);
	slot->length = draw_size(load);
	if (!draw_target(load, slot, is_read))
		return LPI_LOAD_LATER;
	if (is_read) {
		slot->kind = uses_files ? LPI_LOAD_KIND_READ : LPI_LOAD_KIND_GET;
		lpi_load_make_read(load, slot, request);
	} else {
		slot->kind = uses_files ? LPI_LOAD_KIND_WRITE : LPI_LOAD_KIND_PUT;
		lpi_load_make_write(load, slot, request);
	}
	return LPI_LOAD_GO;
}

static enum lpi_load_next next_new(struct lpi_load *load, struct lpi_load_slot *slot,
				   struct lapis_request *request)
{
	slot->kind = LPI_LOAD_KIND_PUT;
	slot->is_new = true;
	slot->object = load->new_cnt++;
	slot->length = lpi_load_size_of(load, slot->object, true);
	lpi_load_make_write(load, slot, request);
	return LPI_LOAD_GO;
}

static enum lpi_load_next next_delete(struct lpi_load *load, struct lpi_load_slot *slot,
				      struct lapis_request *request)
{
	if (load->cursor == load->options->objects_cnt)
		return LPI_LOAD_END;
	slot->kind = LPI_LOAD_KIND_DELETE;
	slot->object = load->cursor++;
	request->op = LAPIS_DELETE;
	return LPI_LOAD_GO;
}

static enum lpi_load_next next_list(struct lpi_load *load, struct lpi_load_slot *slot,
				    struct lapis_request *request)
{
	static char after[LPI_LOAD_KEY_MAX]; /* copied when the request is made */
	slot->kind = LPI_LOAD_KIND_LIST;
	slot->object = lpi_load_places_next(&load->places, &load->prng);
	lpi_load_key(load, slot->object, false, after);
	request->op = LAPIS_LIST;
	request->path = NULL;
	request->name = load->prefix;
	request->after = after;
	request->items_max = load->options->items_max;
	return LPI_LOAD_GO;
}

static enum lpi_load_next next_op(struct lpi_load *load, struct lpi_load_slot *slot,
				  struct lapis_request *request)
{
	switch (load->options->op) {
	case LPI_LOAD_PUT:
		if (load->options->objects_cnt == 0)
			return next_new(load, slot, request);
		break;
	case LPI_LOAD_STAT:
		slot->kind = LPI_LOAD_KIND_STAT;
		slot->object = lpi_load_places_next(&load->places, &load->prng);
		request->op = LAPIS_STAT;
		return LPI_LOAD_GO;
	case LPI_LOAD_PING:
		slot->kind = LPI_LOAD_KIND_PING;
		slot->object = 0;
		request->op = LAPIS_PING;
		request->path = NULL;
		return LPI_LOAD_GO;
	case LPI_LOAD_DELETE:
		return next_delete(load, slot, request);
	case LPI_LOAD_LIST:
		return next_list(load, slot, request);
	default:
		break;
	}
	return next_data(load, slot, request);
}

/* --- What came of it -------------------------------------------------------------------------- */

int lpi_load_status(struct lpi_load *load, const struct lpi_load_slot *slot,
		    const struct lapis_result *result)
{
	if (result->status >= 0)
		return 0;
	return lpi_load_note(load, slot, result->status, "%s", result->text);
}

static int end_stat(struct lpi_load *load, struct lpi_load_slot *slot,
		    const struct lapis_result *result)
{
	int err = lpi_load_status(load, slot, result);
	uint64_t want = lpi_load_size_of(load, slot->object, false);
	if (err < 0 || result->attrs.size_bytes == want)
		return err;
	load->result.mismatches++;
	return lpi_load_note(load, slot, -EBADMSG, "it has %" PRIu64 " bytes, not %" PRIu64,
			     result->attrs.size_bytes, want);
}

static int end_delete(struct lpi_load *load, struct lpi_load_slot *slot,
		      const struct lapis_result *result)
{
	int err = lpi_load_status(load, slot, result);
	if (err == 0)
		load->flags[slot->object] = LPI_LOAD_GONE;
	else
		load->flags[slot->object] |= LPI_LOAD_DOUBT;
	return err;
}

/* Without verify the names are only counted. */
static int end_list(struct lpi_load *load, struct lpi_load_slot *slot,
		    const struct lapis_result *result)
{
	char key[LPI_LOAD_KEY_MAX];
	struct lapis_item item;
	size_t pos = 0;
	uint64_t object = slot->object;
	int err = lpi_load_status(load, slot, result);
	if (err < 0)
		return err;
	load->result.items += result->item_cnt;
	if (!load->options->is_verified)
		return 0;
	while (lapis_next_item(result, &pos, &item) == 1 && ++object < load->options->objects_cnt) {
		lpi_load_key(load, object, false, key);
		if (item.name_bytes == strlen(key) && memcmp(item.name, key, item.name_bytes) == 0)
			continue;
		load->result.mismatches++;
		return lpi_load_note(load, slot, -EBADMSG, "the list behind it has not %s", key);
	}
	uint64_t left = load->options->objects_cnt - 1 - slot->object;
	if (result->more != 0 ||
	    result->item_cnt >= LP_MIN(left, (uint64_t)load->options->items_max))
		return 0;
	load->result.mismatches++;
	return lpi_load_note(load, slot, -EBADMSG, "the list behind it ends too early");
}

static int end_op(struct lpi_load *load, struct lpi_load_slot *slot,
		  const struct lapis_result *result)
{
	switch (slot->kind) {
	case LPI_LOAD_KIND_READ:
	case LPI_LOAD_KIND_GET:
		return lpi_load_end_read(load, slot, result);
	case LPI_LOAD_KIND_WRITE:
	case LPI_LOAD_KIND_PUT:
		return lpi_load_end_write(load, slot, result);
	case LPI_LOAD_KIND_STAT:
		return end_stat(load, slot, result);
	case LPI_LOAD_KIND_DELETE:
		return end_delete(load, slot, result);
	case LPI_LOAD_KIND_LIST:
		return end_list(load, slot, result);
	case LPI_LOAD_KIND_PING:
		return lpi_load_status(load, slot, result);
	case LPI_LOAD_KIND_CNT:
		break;
	}
	LP_ASSERT(false);
	return 0;
}

const struct lpi_load_step lpi_load_measured = {
	.name = "measuring", .next = next_op, .done = end_op, .is_measured = true};
