/* SPDX-License-Identifier: Apache-2.0 */
/* Phase 3: the counts of shared blocks. Which groups have any is known from phase 1; so many of
 * them as there is memory for are counted by a walk over all maps, and compared with the records
 * from where the last such window ended up to where this one does. Mostly one window is all. */
#include <stdlib.h>
#include <string.h>

#include "store/check/fsck_impl.h"

#define GROUPS_DEFAULT 65536u

struct window {
	struct lpi_fsck_shard *shard;
	struct lp_refs *groups; /* ascending */
	uint32_t cnt;
	uint32_t max;
	uint64_t end_group; /* what is below belongs to this window or those before */
};

static struct lp_refs *find(struct window *window, uint64_t group)
{
	uint32_t low = 0;
	uint32_t high = window->cnt;
	while (low < high) {
		uint32_t mid = low + (high - low) / 2;
		if (window->groups[mid].group < group)
			low = mid + 1;
		else
			high = mid;
	}
	return low < window->cnt && window->groups[low].group == group ? &window->groups[low]
								       : NULL;
}

/* False when nothing is left. */
static bool next_window(struct window *window)
{
	uint64_t group = window->end_group;
	if (group == LP_REFS_GROUPS)
		return false;
	window->cnt = 0;
	while (window->cnt < window->max &&
	       lpi_fsck_blocks_next_group(&window->shard->blocks, group, &group))
		lp_refs_init(&window->groups[window->cnt++], group++);
	window->end_group = window->cnt == window->max ? group : LP_REFS_GROUPS;
	return true;
}

static void count_word(void *arg, struct lp_ino ino, uint64_t word)
{
	struct window *window = arg;
	(void)ino;
	if ((word & LP_EXTMAP_FLAG_SHARED) == 0)
		return;
	uint64_t block = lpi_word_block(word);
	for (uint32_t i = 0; i < lpi_word_cnt(word); i++, block++) {
		struct lp_refs *refs = find(window, block >> LP_REFS_SHIFT);
		if (refs == NULL)
			continue;
		uint32_t *cnt = &refs->cnt[block % LP_REFS_BLOCKS];
		*cnt += *cnt < LP_REFS_MAX;
	}
}

/* --- Comparing -------------------------------------------------------------------------------- */

/* While maps are in doubt there may be more who name a block than can be counted. A count that is
 * too low loses data, one that is too high only space: what is there may grow. Where there is none,
 * nobody can let go of the block: any count would change that, and the last who is known would free
 * it. */
static bool only_raises(const struct lp_refs *stored, const struct lp_refs *truth)
{
	for (uint32_t i = 0; i < LP_REFS_BLOCKS; i++) {
		bool was_none = stored->cnt[i] == 0 && truth->cnt[i] > 0;
		if (was_none || truth->cnt[i] < stored->cnt[i])
			return false;
	}
	return true;
}

static int rewrite(struct lpi_fsck_shard *shard, const struct lp_refs *truth)
{
	uint8_t bytes[LP_REFS_BYTES_MAX];
	struct lp_key key;
	size_t len = lp_refs_encode(truth, bytes);
	lp_refs_key(&key, truth->group);
	return lpi_fsck_put(shard, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){len > 0 ? bytes : NULL, len});
}

/* stored NULL: the record cannot be read. */
static int compare(struct lpi_fsck_shard *shard, const struct lp_refs *truth,
		   const struct lp_refs *stored)
{
	struct lpi_fsck_at at = {.kind = LP_FSCK_REFS,
				 .shard = shard,
				 .extent = {truth->group << LP_REFS_SHIFT, LP_REFS_BLOCKS}};
	uint32_t i = 0;
	while (stored != NULL && i < LP_REFS_BLOCKS && stored->cnt[i] == truth->cnt[i])
		i++;
	if (i == LP_REFS_BLOCKS)
		return 0;
	bool is_safe = !shard->maps_in_doubt || (stored != NULL && only_raises(stored, truth));
	at.is_repaired = shard->fsck->options->repair && is_safe;
	if (stored == NULL)
		lpi_fsck_found(shard->fsck, &at, "%s", lpi_fsck_last_corruption());
	else
		lpi_fsck_found(shard->fsck, &at,
			       "block %llu has a count of %u, but is named by %u shared extents",
			       (unsigned long long)at.extent.block + i, stored->cnt[i],
			       truth->cnt[i]);
	return at.is_repaired ? rewrite(shard, truth) : 0;
}

/* Groups of the window from *next on and below `until` have no record. */
static int compare_missing(struct window *window, uint32_t *next, uint64_t until)
{
	int err = 0;
	for (; err == 0 && *next < window->cnt && window->groups[*next].group < until; (*next)++) {
		struct lp_refs none;
		lp_refs_init(&none, window->groups[*next].group);
		err = compare(window->shard, &window->groups[*next], &none);
	}
	return err;
}

static int compare_record(struct window *window, const struct lpi_fsck_cursor *cursor)
{
	struct lp_refs stored;
	struct lp_refs nothing;
	struct lp_key key;
	uint64_t group = cursor->view.number;
	lpi_fsck_cursor_key(cursor, &key);
	bool is_sound = lp_refs_decode(cursor->value.data, cursor->value.len, &key, &stored) == 0;
	if (group >= LP_REFS_GROUPS) {
		const struct lpi_fsck_at at = {.kind = LP_FSCK_RECORD, .shard = window->shard};
		lpi_fsck_found(window->shard->fsck, &at, "%s", lpi_fsck_last_corruption());
		return 0;
	}
	const struct lp_refs *truth = find(window, group);
	lp_refs_init(&nothing, group);
	return compare(window->shard, truth != NULL ? truth : &nothing, is_sound ? &stored : NULL);
}

/* Records from the cursor on that belong to the window, and groups without one. */
static int compare_window(struct window *window, struct lpi_fsck_cursor *cursor)
{
	uint32_t next = 0;
	int err = 0;
	for (; err == 0 && !cursor->is_at_end; lpi_fsck_cursor_next(cursor)) {
		uint64_t group = cursor->view.number;
		if (group >= window->end_group && window->end_group != LP_REFS_GROUPS)
			break;
		err = compare_missing(window, &next, group);
		if (next < window->cnt && window->groups[next].group == group)
			next++;
		if (err == 0)
			err = compare_record(window, cursor);
	}
	return err == 0 && !window->shard->is_broken
		       ? compare_missing(window, &next, LP_REFS_GROUPS)
		       : err;
}

int lpi_fsck_refs(struct lpi_fsck_shard *shard)
{
	uint32_t max = shard->fsck->options->refs_groups_max;
	struct window window = {.shard = shard, .max = max != 0 ? max : GROUPS_DEFAULT};
	struct lpi_fsck_cursor cursor = {.shard = shard};
	window.groups = malloc(window.max * sizeof(*window.groups));
	int err = window.groups != NULL ? 0 : -ENOMEM;
	if (err == 0)
		err = lpi_fsck_cursor_open(&cursor, shard, LP_KEY_SPACE_REFS, false);
	while (err == 0 && next_window(&window)) {
		if (window.cnt > 0)
			err = lpi_fsck_each_word(shard, count_word, &window);
		if (err == 0)
			err = compare_window(&window, &cursor);
	}
	lpi_fsck_cursor_close(&cursor);
	free(window.groups);
	return err == 0 ? lpi_fsck_settle(shard) : err;
}
