/* SPDX-License-Identifier: Apache-2.0 */
/* The objects of a load: found or made before, read back and removed afterwards, a bounded number
 * at once. Each phase is one walk, by cursor.
 *
 * A file is made empty and then filled, its last part after all others: who is interrupted leaves
 * files that are too short, which the next run makes again. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/bench/load_impl.h"

#define KEY_DIGITS 10u

static_assert(sizeof(((struct lpi_load *)NULL)->prefix) + KEY_DIGITS <= LPI_LOAD_KEY_MAX,
	      "a key has room for its number");

static uint32_t walk_depth(const struct lpi_load *load)
{
	return LP_MIN(load->slots_cnt, LPI_LOAD_PREP_DEPTH);
}

static int walk(struct lpi_load *load, const struct lpi_load_step *step, uint64_t cnt)
{
	load->cursor = 0;
	load->all = cnt;
	int err = cnt == 0 ? 0 : lpi_load_run(load, step, walk_depth(load));
	load->cursor = 0;
	load->all = 0;
	return err;
}

/* --- Names and sizes -------------------------------------------------------------------------- */

void lpi_load_name(struct lpi_load *load)
{
	const struct lpi_load_options *options = load->options;
	(void)snprintf(load->prefix, sizeof(load->prefix), "%s/%s%s", options->bucket,
		       options->is_verified ? "v" : "",
		       lpi_load_uses_files(options->op) ? "file." : "obj.");
	(void)snprintf(load->new_prefix, sizeof(load->new_prefix), "%s/new.%" PRIx64 ".",
		       options->bucket, load->run);
}

/* Made for each operation: by hand, for snprintf() takes longer than all else of ours. */
void lpi_load_key(const struct lpi_load *load, uint64_t object, bool is_new, char *ret_key)
{
	const char *prefix = is_new ? load->new_prefix : load->prefix;
	size_t len = strlen(prefix);
	memcpy(ret_key, prefix, len);
	for (size_t i = len + KEY_DIGITS; i > len; i--) {
		ret_key[i - 1] = (char)('0' + object % 10);
		object /= 10;
	}
	ret_key[len + KEY_DIGITS] = '\0';
}

uint64_t lpi_load_size_of(const struct lpi_load *load, uint64_t object, bool is_new)
{
	/* Of the set it must not depend on the seed, or another run could not use it. */
	uint64_t random = is_new ? lpi_load_mix(object) ^ load->options->seed : object;
	if (lpi_load_uses_files(load->options->op))
		return load->options->object_bytes;
	return lpi_load_sizes_pick(&load->options->sizes, lpi_load_mix(random));
}

/* --- Which are there -------------------------------------------------------------------------- */

static enum lpi_load_next next_look(struct lpi_load *load, struct lpi_load_slot *slot,
				    struct lapis_request *request)
{
	if (load->cursor == load->options->objects_cnt)
		return LPI_LOAD_END;
	slot->kind = LPI_LOAD_KIND_STAT;
	slot->object = load->cursor++;
	request->op = LAPIS_STAT;
	return LPI_LOAD_GO;
}

static int end_look(struct lpi_load *load, struct lpi_load_slot *slot,
		    const struct lapis_result *result)
{
	if (result->status == -ENOENT)
		return 0;
	int err = lpi_load_status(load, slot, result);
	if (err < 0 || result->attrs.type != LAPIS_FILE ||
	    result->attrs.size_bytes != lpi_load_size_of(load, slot->object, false))
		return err;
	load->flags[slot->object] = LPI_LOAD_FOUND;
	if (load->inos != NULL)
		load->inos[slot->object] = result->attrs.ino;
	return 0;
}

static const struct lpi_load_step look = {
	.name = "looking what is there", .next = next_look, .done = end_look};

/* --- Making them ------------------------------------------------------------------------------ */

static bool is_there(const struct lpi_load *load, uint64_t object)
{
	return (load->flags[object] & LPI_LOAD_FOUND) != 0;
}

static enum lpi_load_next next_make(struct lpi_load *load, struct lpi_load_slot *slot,
				    struct lapis_request *request)
{
	while (load->cursor < load->options->objects_cnt && is_there(load, load->cursor))
		load->cursor++;
	if (load->cursor == load->options->objects_cnt)
		return LPI_LOAD_END;
	slot->kind = LPI_LOAD_KIND_PUT;
	slot->object = load->cursor++;
	if (load->inos != NULL) {
		request->op = LAPIS_PUT;
		return LPI_LOAD_GO;
	}
	slot->length = lpi_load_size_of(load, slot->object, false);
	lpi_load_make_write(load, slot, request);
	return LPI_LOAD_GO;
}

static int end_make(struct lpi_load *load, struct lpi_load_slot *slot,
		    const struct lapis_result *result)
{
	int err = load->inos == NULL ? lpi_load_end_write(load, slot, result)
				     : lpi_load_status(load, slot, result);
	if (err == 0 && load->inos != NULL)
		load->inos[slot->object] = result->attrs.ino;
	/* Also when it is not known whether it is there. */
	load->flags[slot->object] |= LPI_LOAD_OURS;
	return err;
}

static const struct lpi_load_step make = {
	.name = "making objects", .next = next_make, .done = end_make};

/* The parts of all files that this run made: in the first walk all but their last ones. */
static enum lpi_load_next next_fill(struct lpi_load *load, struct lpi_load_slot *slot,
				    struct lapis_request *request)
{
	uint64_t parts = load->fills_last ? 1 : load->fill_chunks;
	uint64_t first = load->fills_last ? load->fill_chunks : 0;
	uint64_t end = load->options->objects_cnt * parts;
	while (load->cursor < end && is_there(load, load->cursor / parts))
		load->cursor += parts - load->cursor % parts;
	if (load->cursor >= end)
		return LPI_LOAD_END;
	slot->kind = LPI_LOAD_KIND_WRITE;
	slot->object = load->cursor / parts;
	slot->offset = (first + load->cursor % parts) * LPI_LOAD_CHUNK;
	slot->length = LP_MIN(load->options->object_bytes - slot->offset, LPI_LOAD_CHUNK);
	load->cursor++;
	lpi_load_make_write(load, slot, request);
	return LPI_LOAD_GO;
}

static const struct lpi_load_step fill = {
	.name = "filling files", .next = next_fill, .done = lpi_load_end_write};

static int fill_files(struct lpi_load *load)
{
	uint64_t cnt = load->options->objects_cnt;
	int err = 0;
	load->fill_chunks = (load->options->object_bytes - 1) / LPI_LOAD_CHUNK;
	load->fills_last = false;
	if (load->fill_chunks > 0)
		err = walk(load, &fill, cnt * load->fill_chunks);
	load->fills_last = true;
	return err == 0 ? walk(load, &fill, cnt) : err;
}

/* An object that cannot be made is missing from then on. */
static int fail_on_errors(struct lpi_load *load)
{
	if (load->errors_cnt == 0)
		return 0;
	const struct lpi_load_error *error = &load->errors[0];
	lpi_load_give_up(load, "%s: %s", error->key, error->text);
	return -EIO;
}

int lpi_load_prepare(struct lpi_load *load)
{
	uint64_t cnt = load->options->objects_cnt;
	int err = 0;
	if (cnt == 0)
		return 0;
	if (load->options->is_ready) {
		memset(load->flags, LPI_LOAD_FOUND, cnt);
		return 0;
	}
	if (!load->is_bucket_ours)
		err = walk(load, &look, cnt);
	if (err == 0)
		err = fail_on_errors(load);
	if (err == 0)
		err = walk(load, &make, cnt);
	if (err == 0 && load->inos != NULL)
		err = fill_files(load);
	return err == 0 ? fail_on_errors(load) : err;
}

/* --- Reading back ----------------------------------------------------------------------------- */

static bool has_failed(const struct lpi_load *load, uint64_t object)
{
	for (uint32_t i = 0; i < load->failed_new_cnt; i++) {
		if (load->failed_new[i] == object)
			return true;
	}
	return false;
}

static enum lpi_load_next next_check_new(struct lpi_load *load, struct lpi_load_slot *slot,
					 struct lapis_request *request)
{
	while (load->cursor < load->new_cnt && has_failed(load, load->cursor))
		load->cursor++;
	if (load->cursor == load->new_cnt)
		return LPI_LOAD_END;
	slot->kind = LPI_LOAD_KIND_GET;
	slot->is_new = true;
	slot->object = load->cursor++;
	lpi_load_make_read(load, slot, request);
	return LPI_LOAD_GO;
}

static enum lpi_load_next next_check(struct lpi_load *load, struct lpi_load_slot *slot,
				     struct lapis_request *request)
{
	uint64_t parts = load->inos != NULL ? load->fill_chunks + 1 : 1;
	if (load->cursor == load->options->objects_cnt * parts)
		return LPI_LOAD_END;
	slot->kind = load->inos != NULL ? LPI_LOAD_KIND_READ : LPI_LOAD_KIND_GET;
	slot->object = load->cursor / parts;
	slot->offset = load->cursor % parts * LPI_LOAD_CHUNK;
	if (load->inos != NULL)
		slot->length = LP_MIN(load->options->object_bytes - slot->offset, LPI_LOAD_CHUNK);
	load->cursor++;
	lpi_load_make_read(load, slot, request);
	return LPI_LOAD_GO;
}

static int end_check(struct lpi_load *load, struct lpi_load_slot *slot,
		     const struct lapis_result *result)
{
	load->result.checked++;
	return lpi_load_end_read(load, slot, result);
}

/* What was deleted stays away, what was not is still there. */
static int end_check_gone(struct lpi_load *load, struct lpi_load_slot *slot,
			  const struct lapis_result *result)
{
	bool is_gone = (load->flags[slot->object] & LPI_LOAD_GONE) != 0;
	bool may_be_gone = is_gone || (load->flags[slot->object] & LPI_LOAD_DOUBT) != 0;
	load->result.checked++;
	if (may_be_gone && result->status == -ENOENT)
		return 0;
	if (!is_gone)
		return lpi_load_status(load, slot, result);
	load->result.mismatches++;
	return lpi_load_note(load, slot, -EBADMSG, "it was deleted, and is still there: %s",
			     result->text);
}

int lpi_load_check(struct lpi_load *load)
{
	static const struct lpi_load_step check_new = {
		.name = "reading back", .next = next_check_new, .done = end_check};
	static const struct lpi_load_step check = {
		.name = "reading back", .next = next_check, .done = end_check};
	static const struct lpi_load_step check_gone = {
		.name = "looking again", .next = next_look, .done = end_check_gone};
	const struct lpi_load_options *options = load->options;
	uint64_t parts = load->inos != NULL ? load->fill_chunks + 1 : 1;
	if (!options->is_verified)
		return 0;
	if (options->op == LPI_LOAD_DELETE)
		return walk(load, &check_gone, options->objects_cnt);
	if (!lpi_load_writes(options->op))
		return 0;
	if (options->objects_cnt > 0)
		return walk(load, &check, options->objects_cnt * parts);
	/* With more failures than are remembered nobody knows which ones are missing. */
	if (load->failed_new_cnt == LPI_LOAD_FAILED_NEW_MAX)
		return 0;
	return walk(load, &check_new, load->new_cnt);
}

/* --- Removing them ---------------------------------------------------------------------------- */

static enum lpi_load_next next_clean(struct lpi_load *load, struct lpi_load_slot *slot,
				     struct lapis_request *request)
{
	uint64_t cnt = load->options->objects_cnt;
	while (load->cursor < cnt && (load->flags[load->cursor] & LPI_LOAD_OURS) == 0)
		load->cursor++;
	if (load->cursor == cnt + load->new_cnt)
		return LPI_LOAD_END;
	slot->kind = LPI_LOAD_KIND_DELETE;
	slot->is_new = load->cursor >= cnt;
	slot->object = slot->is_new ? load->cursor - cnt : load->cursor;
	load->cursor++;
	request->op = LAPIS_DELETE;
	return LPI_LOAD_GO;
}

static int end_clean(struct lpi_load *load, struct lpi_load_slot *slot,
		     const struct lapis_result *result)
{
	if (result->status == 0 || result->status == -ENOENT)
		return 0;
	load->left_cnt++;
	return lpi_load_status(load, slot, result);
}

int lpi_load_clean(struct lpi_load *load)
{
	static const struct lpi_load_step clean = {.name = "removing objects",
						   .next = next_clean,
						   .done = end_clean,
						   .ignores_stop = true};
	const char *bucket = load->options->bucket;
	if (load->options->is_kept)
		return 0;
	load->error = 0;
	if (load->is_lost) {
		lpi_load_give_up(load, "what this run made is left in %s/", bucket);
		return -EIO;
	}
	int err = walk(load, &clean, load->options->objects_cnt + load->new_cnt);
	if (err == 0 && load->left_cnt > 0) {
		lpi_load_give_up(load, "%llu objects in %s/ could not be removed",
				 (unsigned long long)load->left_cnt, bucket);
		err = -EIO;
	}
	if (err < 0 || !load->is_bucket_ours)
		return err;
	err = lapis_rmdir(load->handles[0], bucket);
	/* Somebody else has put something there meanwhile. */
	if (err == 0 || err == -ENOTEMPTY)
		return 0;
	lpi_load_give_up(load, "%s: %s", bucket, lapis_error_text());
	return -EIO;
}
