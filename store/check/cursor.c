/* SPDX-License-Identifier: Apache-2.0 */
/* An iterator over one space of a shard's index that steps over what cannot be parsed. */
#include <string.h>

#include "store/check/fsck_impl.h"

#include "base/error.h"

/* A record of this space is there that cannot be looked at: what must not be believed then. */
static void doubt(struct lpi_fsck_shard *shard, unsigned space)
{
	bool is_inode = space == LP_KEY_SPACE_INODE;
	bool is_entry = space == LP_KEY_SPACE_DIRENT;
	if (is_inode || space == LP_KEY_SPACE_MAP)
		shard->maps_in_doubt = true;
	if (is_inode || is_entry)
		shard->fsck->names_in_doubt = true;
	shard->inodes_hidden = shard->inodes_hidden || is_inode;
	shard->entries_hidden = shard->entries_hidden || is_entry;
}

static void found_break(const struct lpi_fsck_cursor *cursor, int err)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_INDEX, .shard = cursor->shard};
	cursor->shard->is_broken = true;
	doubt(cursor->shard, cursor->space);
	if (cursor->space == LP_KEY_SPACE_UNFINISHED)
		cursor->shard->fsck->names_in_doubt = true;
	if (!cursor->is_quiet)
		lpi_fsck_found(cursor->shard->fsck, &at,
			       "the index cannot be read further among its %s records: %s",
			       lp_key_space_name(cursor->space), lp_strerror(err));
}

static void found_bad_key(const struct lpi_fsck_cursor *cursor)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_KEY, .shard = cursor->shard};
	doubt(cursor->shard, cursor->space);
	/* A bad mark has been told (lpi_fsck_bad_marks()). */
	if (!cursor->is_quiet && cursor->space != LP_KEY_SPACE_UNFINISHED)
		lpi_fsck_found(cursor->shard->fsck, &at, "%s", lpi_fsck_last_corruption());
}

/* err: of the iterator's last movement. */
static void arrive(struct lpi_fsck_cursor *cursor, int err)
{
	while (err == 0 && !lpi_fsck_is_over(cursor->shard)) {
		cursor->key = lp_kv_iter_key(cursor->iter);
		cursor->value = lp_kv_iter_value(cursor->iter);
		if (lp_key_parse(cursor->key.data, cursor->key.len, &cursor->view) == 0)
			return;
		found_bad_key(cursor);
		err = lp_kv_iter_next(cursor->iter);
	}
	cursor->is_at_end = true;
	if (err != 0 && err != -ENOENT)
		found_break(cursor, err);
}

int lpi_fsck_cursor_open(struct lpi_fsck_cursor *cursor, struct lpi_fsck_shard *shard,
			 enum lp_key_space space, bool is_quiet)
{
	struct lp_key_range range;
	*cursor = (struct lpi_fsck_cursor){.shard = shard, .space = space, .is_quiet = is_quiet};
	lp_key_range_of_space(&range, space);
	int err = lpi_fsck_iter_open(
		shard, (struct lp_kv_bytes){range.first.bytes, range.first.len},
		(struct lp_kv_bytes){range.end.bytes, range.end.len}, &cursor->iter);
	if (err < 0)
		return err;
	arrive(cursor, lp_kv_iter_seek_first(cursor->iter));
	return 0;
}

void lpi_fsck_cursor_next(struct lpi_fsck_cursor *cursor)
{
	LP_ASSERT(!cursor->is_at_end);
	arrive(cursor, lp_kv_iter_next(cursor->iter));
}

void lpi_fsck_cursor_close(struct lpi_fsck_cursor *cursor)
{
	lp_kv_iter_close(cursor->iter);
	cursor->iter = NULL;
}

void lpi_fsck_cursor_key(const struct lpi_fsck_cursor *cursor, struct lp_key *ret)
{
	LP_ASSERT(!cursor->is_at_end && cursor->key.len <= sizeof(ret->bytes));
	ret->len = cursor->key.len;
	memcpy(ret->bytes, cursor->key.data, cursor->key.len);
}

/* Leaps over the spaces that are ours. */
int lpi_fsck_foreign_keys(struct lpi_fsck_shard *shard)
{
	const struct lpi_fsck_at at = {.kind = LP_FSCK_KEY, .shard = shard};
	const struct lp_kv_bytes open = {NULL, 0};
	struct lp_kv_iter *iter = NULL;
	int err = lpi_fsck_iter_open(shard, open, open, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0;) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		uint8_t first = key.len > 0 ? *(const uint8_t *)key.data : 0;
		struct lp_key after;
		if (lp_key_space_name(first) != NULL && lp_key_after(&first, 1, &after)) {
			err = lp_kv_iter_seek(iter, (struct lp_kv_bytes){after.bytes, after.len});
			continue;
		}
		/* It may have been any. */
		doubt(shard, LP_KEY_SPACE_INODE);
		doubt(shard, LP_KEY_SPACE_DIRENT);
		lpi_fsck_found(shard->fsck, &at, "a key of %zu bytes that begins with 0x%02x",
			       key.len, first);
		err = lp_kv_iter_next(iter);
	}
	/* What cannot be read is found again, and told, by who reads the spaces. */
	lp_kv_iter_close(iter);
	return 0;
}

/* Nobody can use such a mark, and its value is nothing without its key: what it was about is known
 * as well, or as little, when it is gone. */
static int bad_mark(struct lpi_fsck_shard *shard, struct lp_kv_bytes key)
{
	struct lpi_fsck_at at = {.kind = LP_FSCK_KEY, .shard = shard};
	at.is_repaired = shard->fsck->options->repair && key.len <= LP_KEY_BYTES_MAX;
	lpi_fsck_found(shard->fsck, &at, "%s", lpi_fsck_last_corruption());
	return at.is_repaired ? lpi_fsck_put(shard, key, (struct lp_kv_bytes){NULL, 0}) : 0;
}

int lpi_fsck_bad_marks(struct lpi_fsck_shard *shard)
{
	struct lp_kv_iter *iter = NULL;
	struct lp_key_range range;
	lp_key_range_of_space(&range, LP_KEY_SPACE_UNFINISHED);
	int err =
		lpi_fsck_iter_open(shard, (struct lp_kv_bytes){range.first.bytes, range.first.len},
				   (struct lp_kv_bytes){range.end.bytes, range.end.len}, &iter);
	if (err < 0)
		return err;
	int put_err = 0;
	for (err = lp_kv_iter_seek_first(iter); err == 0 && put_err == 0;
	     err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		struct lp_key_view view;
		if (lp_key_parse(key.data, key.len, &view) < 0)
			put_err = bad_mark(shard, key);
	}
	/* As above. */
	lp_kv_iter_close(iter);
	return put_err;
}
