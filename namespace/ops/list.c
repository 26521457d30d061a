/* SPDX-License-Identifier: Apache-2.0 */
/* Keys in the order of their bytes, merged over the shards.
 *
 * A list is a walk through the tree, with one level for each directory on the way. A directory's
 * entries come in pages from each shard that has some, and the least of the next entries is taken.
 * A shard is asked again only when its page is used up.
 *
 *   order    A directory "a" is where its keys are: "a/...". In the order of names it comes before
 *            "a-b", in the order of keys after it. So a directory that was met is held back until
 *            the next name is greater than "a/". More may be met meanwhile. Each one's name begins
 *            with the name of the one before, so all are prefixes of one name. The last one is
 *            entered first.
 *   seek     To go on after a key, each name of its path is looked up. The directories held back
 *            there are among those prefixes of the name that end before a byte less than '/'. They
 *            are looked up, and the entries are listed from there on.
 *   memory   Only the last levels keep their pages. A level that has lost its pages asks for them
 *            again when the walk comes back to it, from the name that it came back from.
 *
 * The tree may change meanwhile: a key that is there all the time is listed once. A directory that
 * is renamed while it is listed may be seen at both places, or at none of them. */
#include "namespace/ops/list.h"

#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/change/packed_items.h"
#include "namespace/ops/paths.h"

#define SETS           4u /* levels that keep their pages */
#define SET_BYTES      65536u
#define PAGE_BYTES_MIN 1024u
#define NAME_MAX_BYTES LP_KEY_NAME_MAX
/* All directories held back are prefixes of names of one path. */
#define HELD_MAX      (LP_NS_PATH_MAX + 2 * NAME_MAX_BYTES)
#define STATS_AT_ONCE (LPI_JOB_ASKS - 1)

static_assert(SET_BYTES / LP_SHARDS_MAX >= PAGE_BYTES_MIN, "a page takes the longest entry");

/* One shard's entries of a directory. */
struct cursor {
	struct lpi_list *list;
	uint32_t shard_idx;
	bool is_end;   /* there are no more pages */
	bool has_item; /* item is the next one */
	struct lp_list_item item;
	struct lpi_call call;
	struct lp_store_op op;
	uint32_t pos;
	uint8_t *page;
	uint32_t page_bytes;
	uint32_t last_len; /* of the last name of the page; 0: no page was read */
	char last[NAME_MAX_BYTES];
};

struct set {
	uint32_t level; /* whose pages these are */
	bool is_taken;
	uint32_t cnt;
	struct cursor *cursors; /* one for each shard */
	uint8_t bytes[SET_BYTES];
};

struct level {
	struct lp_ino dir;
	bool is_spread;
	uint32_t path_len; /* of what comes before its names */
	uint32_t from_len; /* names from this one on, which is stored in path; 0: all */
	uint32_t held_cnt; /* of the levels above it */
};

struct held {
	struct lp_ino ino;
	uint32_t len;
};

struct lpi_list {
	struct lpi_job *job;
	uint32_t pending;
	int error;
	struct lpi_items items;
	uint32_t items_max;
	bool more;
	bool is_behind;       /* `after` has been passed */
	uint32_t prefix_len;  /* of names in the first directory */
	uint32_t seek_at;     /* the next length that is looked for */
	uint32_t seek_len;    /* of the name of the path that is looked for */
	uint32_t seek_levels; /* as many as there were before it went down */
	uint32_t down_len;    /* of the name of the directory being entered */
	lpi_step_fn *after_down;
	uint32_t item_idx; /* whose attributes are looked for */
	uint32_t stat_idx[STATS_AT_ONCE];
	uint32_t level_cnt;
	uint32_t held_cnt;
	struct level levels[LP_NS_DEPTH_MAX];
	struct held held[HELD_MAX];
	char path[LP_NS_PATH_MAX + 2 * NAME_MAX_BYTES];
	char prefix[NAME_MAX_BYTES + 1]; /* a common one, behind its directory */
	struct set sets[SETS];
	struct cursor cursors[]; /* of the sets */
};

int lpi_lists_new(uint32_t shard_cnt, struct lp_pool **ret_lists)
{
	const struct lp_pool_config config = {
		.name = "namespace lists",
		.object_bytes =
			sizeof(struct lpi_list) + (size_t)SETS * shard_cnt * sizeof(struct cursor),
		.limit = LPI_LISTS};
	return lp_pool_new(&config, ret_lists);
}

static const struct lp_ns_op *op_of(const struct lpi_list *list)
{
	return list->job->op;
}

static struct level *top(struct lpi_list *list)
{
	LP_ASSERT(list->level_cnt > 0);
	return &list->levels[list->level_cnt - 1];
}

/* Compares two names or prefixes of keys. */
static int compare(const void *a, size_t a_len, const void *b, size_t b_len)
{
	int c = memcmp(a, b, LP_MIN(a_len, b_len));
	if (c != 0)
		return c;
	return a_len < b_len ? -1 : a_len > b_len;
}

/* --- The end ---------------------------------------------------------------------------------- */

static void list_start(struct lpi_job *job);

static void list_end(struct lpi_job *job, int result)
{
	struct lp_ns *ns = job->ns;
	struct lpi_list *list = job->list;
	struct lp_ns_op *op = job->op;
	if (result >= 0) {
		op->list.items = list->items.cnt;
		op->list.more = list->more;
		op->list.used = lpi_items_finish(&list->items);
	}
	job->list = NULL;
	lp_pool_put(ns->lists, list);
	lpi_path_end(job, result);
	struct lpi_job *next = lpi_job_list_pop_front(&ns->lists_waiting);
	if (next != NULL)
		list_start(next);
}

/* --- Attributes ------------------------------------------------------------------------------- */

static void stat_more(struct lpi_job *job);

static void stats_known(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	for (uint32_t i = 0; i < STATS_AT_ONCE; i++) {
		const struct lpi_job_ask *ask = &job->asks[i];
		int r = ask->call.result;
		if (list->stat_idx[i] == UINT32_MAX)
			continue;
		if (r >= 0)
			lpi_items_set_attrs(&list->items, list->stat_idx[i], &ask->op.stat.attrs);
		else if (r != -ENOENT && list->error == 0)
			list->error = r;
	}
	stat_more(job);
}

/* Asks for some attributes at a time. An inode that is gone gets none. */
static void stat_more(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	uint32_t asked = 0;
	for (uint32_t i = 0; i < STATS_AT_ONCE; i++)
		list->stat_idx[i] = UINT32_MAX;
	while (list->error == 0 && asked < STATS_AT_ONCE && list->item_idx < list->items.cnt) {
		struct lp_ns_item item;
		lpi_items_get(&list->items, list->item_idx++, &item);
		if (item.ino.nr == 0)
			continue;
		struct lp_store_op *op = lpi_job_op(job, asked);
		op->opcode = LP_STORE_STAT;
		op->stat.ino = item.ino;
		list->stat_idx[asked] = list->item_idx - 1;
		lpi_job_ask(job, lp_ino_shard(item.ino), asked++, false);
	}
	if (asked > 0)
		lpi_job_wait(job, stats_known);
	else
		list_end(job, list->error);
}

static void walked_all(struct lpi_job *job)
{
	if (op_of(job->list)->list.with_attrs)
		stat_more(job);
	else
		list_end(job, 0);
}

/* --- Pages ------------------------------------------------------------------------------------ */

static void run(struct lpi_job *job);

static struct set *set_of(struct lpi_list *list)
{
	return &list->sets[(list->level_cnt - 1) % SETS];
}

/* Takes the next item of the page, if there is one. */
static void advance(struct cursor *cursor)
{
	struct lp_bytes before = cursor->item.name;
	bool had_item = cursor->has_item;
	cursor->has_item = lp_store_list_next(&cursor->op, &cursor->pos, &cursor->item);
	if (cursor->has_item)
		return;
	cursor->is_end = !cursor->op.list.more;
	/* The page will be used by another level: keeps the place where this one goes on. */
	if (had_item) {
		cursor->last_len = before.len;
		memcpy(cursor->last, before.data, before.len);
	}
}

static void fetched(struct lpi_call *call)
{
	struct cursor *cursor = LP_CONTAINER_OF(call, struct cursor, call);
	struct lpi_list *list = cursor->list;
	if (call->result < 0)
		list->error = call->result;
	cursor->pos = 0;
	if (call->result >= 0)
		advance(cursor);
	LP_ASSERT(list->pending > 0);
	if (--list->pending > 0)
		return;
	if (list->error < 0)
		list_end(list->job, list->error);
	else
		run(list->job);
}

/* At most as many as are needed: one more than there is room for shows whether there are more. */
static uint32_t wanted(const struct lpi_list *list, uint32_t cursor_cnt)
{
	uint32_t room = (list->items.len - list->items.used) / lpi_items_bytes(1, false);
	uint32_t left = LP_MIN(list->items_max - list->items.cnt, room) + 1;
	return cursor_cnt == 1 ? left : left / cursor_cnt + left / (4 * cursor_cnt) + 4;
}

static void fetch(struct lpi_list *list, struct cursor *cursor)
{
	const struct level *level = top(list);
	struct lp_store_op *op = &cursor->op;
	*op = (struct lp_store_op){.opcode = LP_STORE_LIST,
				   .list = {.space = LP_STORE_ENTRIES,
					    .ino = level->dir,
					    .buf = cursor->page,
					    .buf_len = cursor->page_bytes,
					    .items_max = wanted(list, set_of(list)->cnt)}};
	if (cursor->last_len > 0)
		op->list.after = (struct lp_bytes){cursor->last, cursor->last_len};
	else if (level->from_len > 0)
		op->list.from = (struct lp_bytes){list->path + level->path_len, level->from_len};
	if (list->level_cnt == 1 && list->prefix_len > 0)
		op->list.prefix = (struct lp_bytes){(const char *)op_of(list)->list.prefix.data +
							    level->path_len,
						    list->prefix_len};
	cursor->call.done = fetched;
	list->pending++;
	lpi_call_store(list->job->ns, cursor->shard_idx, &cursor->call, op, true);
}

static void take_set(struct lpi_list *list, struct set *set)
{
	const struct level *level = top(list);
	uint32_t shard_cnt = list->job->ns->options.shard_cnt;
	set->level = list->level_cnt;
	set->is_taken = true;
	set->cnt = level->is_spread ? shard_cnt : 1;
	uint32_t page_bytes = SET_BYTES / set->cnt;
	for (uint32_t i = 0; i < set->cnt; i++) {
		struct cursor *cursor = &set->cursors[i];
		cursor->shard_idx = level->is_spread ? i : lp_ino_shard(level->dir);
		cursor->is_end = false;
		cursor->has_item = false;
		cursor->last_len = 0;
		cursor->page = set->bytes + (size_t)i * page_bytes;
		cursor->page_bytes = page_bytes;
	}
}

/* True when the next entry of each shard is known, or that there is none. Otherwise run() is called
 * again. */
static bool has_next(struct lpi_list *list)
{
	struct set *set = set_of(list);
	if (!set->is_taken || set->level != list->level_cnt)
		take_set(list, set);
	list->pending = 1; /* so that none of the calls is the last before all have begun */
	for (uint32_t i = 0; i < set->cnt; i++) {
		struct cursor *cursor = &set->cursors[i];
		if (!cursor->has_item && !cursor->is_end)
			fetch(list, cursor);
	}
	return --list->pending == 0;
}

static struct cursor *least(struct lpi_list *list)
{
	struct set *set = set_of(list);
	struct cursor *least = NULL;
	for (uint32_t i = 0; i < set->cnt; i++) {
		struct cursor *cursor = &set->cursors[i];
		if (cursor->has_item &&
		    (least == NULL || compare(cursor->item.name.data, cursor->item.name.len,
					      least->item.name.data, least->item.name.len) < 0))
			least = cursor;
	}
	return least;
}

/* --- Levels ----------------------------------------------------------------------------------- */

static void push_level(struct lpi_list *list, struct lp_ino dir, bool is_spread, uint32_t path_len)
{
	LP_ASSERT(list->level_cnt < LP_NS_DEPTH_MAX);
	list->levels[list->level_cnt++] = (struct level){.dir = dir,
							 .is_spread = is_spread,
							 .path_len = path_len,
							 .held_cnt = list->held_cnt};
}

/* Goes back to the directory above, after the one that was left. No name has a '/', so the next
 * names begin with the byte after '/'. */
static void pop_level(struct lpi_list *list)
{
	struct set *set = set_of(list);
	uint32_t path_len = top(list)->path_len;
	if (set->level == list->level_cnt)
		set->is_taken = false;
	list->level_cnt--;
	if (list->level_cnt == 0)
		return;
	list->path[path_len - 1] = '/' + 1;
	top(list)->from_len = path_len - top(list)->path_len;
}

/* --- Items ------------------------------------------------------------------------------------ */

/* True if a key, given in two parts, is greater than `after`. */
static bool is_behind(struct lp_bytes dir, struct lp_bytes name, struct lp_bytes after)
{
	int c = compare(dir.data, dir.len, after.data, LP_MIN(after.len, dir.len));
	if (c != 0)
		return c > 0;
	return compare(name.data, name.len, (const char *)after.data + dir.len,
		       after.len - dir.len) > 0;
}

/* Adds an item. False: there is no room. ino.nr 0: a common prefix. */
static bool emit(struct lpi_list *list, struct lp_ino ino, uint8_t type, const void *name,
		 uint32_t len)
{
	const struct lp_ns_op *op = op_of(list);
	const struct lp_bytes dir = {list->path, top(list)->path_len};
	if (dir.len + len + (ino.nr == 0 ? 1 : 0) > LP_NS_PATH_MAX)
		return true; /* not a key: no path can be so long */
	struct lp_ns_item item = {.name = {name, len}, .ino = ino, .type = type};
	if (ino.nr == 0) {
		memcpy(list->prefix, name, len);
		list->prefix[len] = '/';
		item.name = (struct lp_bytes){list->prefix, len + 1};
	}
	if (!list->is_behind)
		list->is_behind = is_behind(dir, item.name, op->list.after);
	if (!list->is_behind)
		return true;
	list->more =
		list->items.cnt == list->items_max ||
		!lpi_items_add_below(&list->items, dir, &item, op->list.with_attrs && ino.nr != 0);
	return !list->more;
}

static void hold(struct lpi_list *list, struct lp_ino ino, const void *name, uint32_t len)
{
	LP_ASSERT(list->held_cnt < HELD_MAX);
	memcpy(list->path + top(list)->path_len, name, len);
	list->held[list->held_cnt++] = (struct held){.ino = ino, .len = len};
}

/* True if the last directory held back comes before this name; NULL: before the end. */
static bool is_held_next(struct lpi_list *list, const struct cursor *cursor)
{
	const struct level *level = top(list);
	if (list->held_cnt == level->held_cnt)
		return false;
	if (cursor == NULL)
		return true;
	uint32_t len = list->held[list->held_cnt - 1].len;
	list->path[level->path_len + len] = '/';
	return compare(cursor->item.name.data, cursor->item.name.len, list->path + level->path_len,
		       len + 1) > 0;
}

/* --- Into directories ------------------------------------------------------------------------- */

static void seek(struct lpi_job *job);

/* Enters a directory. Its name, and a '/', are in the path. */
static void go_down(struct lpi_list *list, struct lp_ino dir, bool is_spread, uint32_t len)
{
	uint32_t path_len = top(list)->path_len + len + 1;
	list->path[path_len - 1] = '/';
	/* Names below would be no keys (LP_NS_PATH_MAX, LP_NS_DEPTH_MAX). */
	if (path_len < LP_NS_PATH_MAX && list->level_cnt < LP_NS_DEPTH_MAX)
		push_level(list, dir, is_spread, path_len);
}

static void kind_known(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	struct lpi_list *list = job->list;
	int r = ask->call.result;
	if (r < 0 && r != -ENOENT) {
		list_end(job, r);
		return;
	}
	if (r >= 0) {
		bool is_spread = (ask->op.stat.attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
		lpi_dir_kind_learn(job->ns, ask->op.stat.ino, is_spread);
		go_down(list, ask->op.stat.ino, is_spread, list->down_len);
	}
	list->after_down(job);
}

/* Enters a directory and goes on with next, now or later; skips a directory that is gone. True:
 * now. */
static bool descend(struct lpi_list *list, struct lp_ino dir, uint32_t len, lpi_step_fn *next)
{
	struct lpi_job *job = list->job;
	bool is_spread = false;
	if (lpi_dir_kind_find(job->ns, dir, &is_spread)) {
		go_down(list, dir, is_spread, len);
		return true;
	}
	list->down_len = len;
	list->after_down = next;
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = dir;
	lpi_job_ask_dir(job, lp_ino_shard(dir), 0);
	lpi_job_wait(job, kind_known);
	return false;
}

/* --- One after the other ---------------------------------------------------------------------- */

enum step {
	STEP_ON,
	STEP_WAIT, /* run() comes again */
	STEP_FULL
};

static enum step take_held(struct lpi_list *list)
{
	struct held held = list->held[--list->held_cnt];
	if (!op_of(list)->list.delimit)
		return descend(list, held.ino, held.len, run) ? STEP_ON : STEP_WAIT;
	const struct lp_ino none = {0};
	return emit(list, none, 0, list->path + top(list)->path_len, held.len) ? STEP_ON
									       : STEP_FULL;
}

static enum step take_next(struct lpi_list *list)
{
	if (!has_next(list))
		return STEP_WAIT;
	struct cursor *cursor = least(list);
	if (is_held_next(list, cursor))
		return take_held(list);
	if (cursor == NULL) {
		pop_level(list);
		return STEP_ON;
	}
	const struct lp_list_item *item = &cursor->item;
	enum step step = STEP_ON;
	if (item->type == LP_INODE_TYPE_DIR)
		hold(list, item->ino, item->name.data, item->name.len);
	else if (!emit(list, item->ino, item->type, item->name.data, item->name.len))
		step = STEP_FULL;
	advance(cursor);
	return step;
}

static void run(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	enum step step = STEP_ON;
	while (step == STEP_ON && list->level_cnt > 0)
		step = take_next(list);
	if (step == STEP_WAIT)
		return;
	if (list->more && list->items.cnt == 0 && list->items_max > 0)
		list_end(job, -ERANGE);
	else
		walked_all(job);
}

/* --- To the key to go on behind --------------------------------------------------------------- */

/* The rest of `after` in the directory that was reached. */
static struct lp_bytes rest_of(struct lpi_list *list)
{
	struct lp_bytes after = op_of(list)->list.after;
	uint32_t path_len = top(list)->path_len;
	LP_ASSERT(path_len <= after.len);
	return (struct lp_bytes){(const char *)after.data + path_len, after.len - path_len};
}

/* True if the first len bytes of the name may be a directory that comes later. */
static bool may_be_held(const struct lpi_list *list, struct lp_bytes rest, uint32_t len)
{
	const char *name = rest.data;
	if (len == 0 || len > NAME_MAX_BYTES || (list->level_cnt == 1 && len < list->prefix_len))
		return false;
	/* The longest prefix of a name that is too long is among the entries listed from there
	 * on. */
	if (len == NAME_MAX_BYTES && len < list->seek_len)
		return false;
	if (len < list->seek_len)
		return (unsigned char)name[len] < '/';
	/* True for the name itself, if more follows; nothing is left of a common prefix. */
	return len < rest.len && !op_of(list)->list.delimit;
}

static void sought(struct lpi_job *job);

/* Looks up prefixes of the name, the shortest first; then lists from there on. */
static void seek(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	const struct level *level = top(list);
	struct lp_bytes rest = rest_of(list);
	while (list->seek_at <= list->seek_len && !may_be_held(list, rest, list->seek_at))
		list->seek_at++;
	if (list->seek_at > list->seek_len) {
		run(job);
		return;
	}
	int r = lpi_entry_set(&job->entry, level->dir, (struct lp_bytes){rest.data, list->seek_at});
	if (r < 0) { /* ".", "..", or with a NUL: there is none */
		list->seek_at++;
		lpi_job_soon(job, seek);
		return;
	}
	job->entry.dir_is_spread = level->is_spread;
	job->entry.shard_idx = lpi_shard_of_entry(job->ns, level->dir, level->is_spread,
						  lpi_entry_name(&job->entry));
	lpi_entry_ask(job, &job->entry, 0, false);
	lpi_job_wait(job, sought);
}

/* Sets where to begin in the directory that was reached. */
static void begin_seek(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	struct level *level = top(list);
	struct lp_bytes rest = rest_of(list);
	const char *slash = rest.len == 0 ? NULL : memchr(rest.data, '/', rest.len);
	list->seek_len = slash == NULL ? rest.len : (uint32_t)(slash - (const char *)rest.data);
	list->seek_at = 1;
	uint32_t len = LP_MIN(list->seek_len, NAME_MAX_BYTES);
	memcpy(list->path + level->path_len, rest.data, len);
	level->from_len = len;
	if (slash != NULL) {
		list->path[level->path_len + len] = '/' + 1;
		level->from_len++;
	}
	seek(job);
}

static void went_down(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	if (list->level_cnt == list->seek_levels)
		run(job); /* it is gone, or too deep */
	else
		begin_seek(job);
}

static void sought(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	int r = lpi_entry_take(job, &job->entry, 0);
	bool is_dir = r >= 0 && job->entry.ino.nr != 0 && job->entry.type == LP_INODE_TYPE_DIR;
	uint32_t len = list->seek_at++;
	if (r < 0) {
		list_end(job, r);
		return;
	}
	if (is_dir && len < list->seek_len) {
		list->held[list->held_cnt++] = (struct held){.ino = job->entry.ino, .len = len};
	} else if (is_dir) {
		list->seek_levels = list->level_cnt;
		if (descend(list, job->entry.ino, len, went_down))
			went_down(job);
		return;
	}
	seek(job);
}

/* --- LP_NS_LIST ------------------------------------------------------------------------------- */

static uint32_t dir_len_of(struct lp_bytes prefix)
{
	uint32_t len = prefix.len;
	const char *data = prefix.data;
	while (len > 0 && data[len - 1] != '/')
		len--;
	return len;
}

static bool begins_with(struct lp_bytes key, struct lp_bytes prefix)
{
	return key.len >= prefix.len &&
	       (prefix.len == 0 || memcmp(key.data, prefix.data, prefix.len) == 0);
}

static void list_from(struct lpi_job *job, struct lp_ino dir, bool is_spread, uint32_t path_len)
{
	struct lpi_list *list = job->list;
	struct lp_bytes after = job->op->list.after;
	push_level(list, dir, is_spread, path_len);
	bool seeks =
		after.data != NULL && after.len > 0 && begins_with(after, job->op->list.prefix);
	list->is_behind = !seeks;
	if (seeks)
		begin_seek(job);
	else
		run(job);
}

static void list_walked(struct lpi_job *job)
{
	uint32_t path_len = job->walk.path.len - 1;
	int r = job->walk.result;
	if (r == -ENOENT || r == -ENOTDIR)
		list_end(job, 0);
	else if (r < 0)
		list_end(job, r);
	else
		list_from(job, job->walk.dir, job->walk.is_spread, path_len);
}

/* True if no key can begin with the prefix, or all that do come before `after`. */
static bool is_empty(const struct lp_ns_op *op, struct lp_bytes walked)
{
	struct lp_bytes prefix = op->list.prefix;
	struct lp_bytes after = op->list.after;
	if (prefix.len - (walked.len - 1) > NAME_MAX_BYTES || lp_ns_path_check(walked) < 0)
		return true;
	return after.data != NULL && !begins_with(after, prefix) &&
	       compare(after.data, after.len, prefix.data, prefix.len) > 0;
}

static void list_begin(struct lpi_job *job)
{
	struct lpi_list *list = job->list;
	const struct lp_ns_op *op = job->op;
	uint32_t dir_len = dir_len_of(op->list.prefix);
	if (dir_len >= LP_NS_PATH_MAX) {
		list_end(job, 0);
		return;
	}
	list->prefix_len = op->list.prefix.len - dir_len;
	/* A walk ends in the directory of the last name, so the path gets one. */
	if (dir_len > 0)
		memcpy(list->path, op->list.prefix.data, dir_len);
	list->path[dir_len] = 'x';
	struct lp_bytes walked = {list->path, dir_len + 1};
	if (is_empty(op, walked))
		list_end(job, 0);
	else
		lpi_walk(job, walked, false, list_walked);
}

static void list_start(struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	struct lp_ns_op *op = job->op;
	struct lpi_list *list = lp_pool_get(ns->lists);
	if (list == NULL) {
		lpi_job_list_push_back(&ns->lists_waiting, job);
		return;
	}
	uint32_t shard_cnt = ns->options.shard_cnt;
	memset(list, 0, offsetof(struct lpi_list, levels));
	memset(list->cursors, 0, (size_t)SETS * shard_cnt * sizeof(struct cursor));
	for (uint32_t i = 0; i < SETS; i++) {
		list->sets[i].is_taken = false;
		list->sets[i].cursors = &list->cursors[(size_t)i * shard_cnt];
	}
	for (uint32_t i = 0; i < SETS * shard_cnt; i++)
		list->cursors[i].list = list;
	list->job = job;
	job->list = list;
	lpi_items_init(&list->items, op->list.buf, op->list.buf_len);
	/* Without a limit: as many items as there is room for. */
	list->items_max = op->list.items_max != 0 ? op->list.items_max : UINT32_MAX - 1;
	lpi_job_soon(job, list_begin);
}

void lpi_begin_list(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	op->list.items = 0;
	op->list.used = 0;
	op->list.more = false;
	list_start(job);
}
