/* SPDX-License-Identifier: Apache-2.0 */
/* Paths: check, walk, the directories that a put makes, and freezing the caches of all shards
 * before a directory is renamed or removed.
 *
 *   walk   each name but the last: the cache knows it, or it is looked up and remembered
 *   make   one that is missing: locked, made on the shard of its entry, in a transaction of its own
 *
 * A walk holds no lock: when it is over, a directory that it found may have been moved or removed.
 * A move does not matter, because each name led there at some moment of the operation. An operation
 * that adds an entry to a removed directory notices it (lpi_entry_need_dir()) and walks again. */
#include "namespace/ops/paths.h"

#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/copy.h"

/* --- Checks (rule N6) ------------------------------------------------------------------------- */

/* The length of the name at pos. */
static uint32_t name_len_at(struct lp_bytes path, uint32_t pos)
{
	const char *from = (const char *)path.data + pos;
	const char *slash = memchr(from, '/', path.len - pos);
	return slash == NULL ? path.len - pos : (uint32_t)(slash - from);
}

int lp_ns_path_check(struct lp_bytes path)
{
	uint32_t depth = 0;
	if (path.len > LP_NS_PATH_MAX)
		return -ENAMETOOLONG;
	for (uint32_t pos = 0; path.len > 0; depth++) {
		if (pos > path.len) /* behind the last name */
			return depth > LP_NS_DEPTH_MAX ? -ENAMETOOLONG : 0;
		uint32_t len = name_len_at(path, pos);
		if (len > LP_KEY_NAME_MAX)
			return -ENAMETOOLONG;
		if (!lp_key_name_is_valid((const char *)path.data + pos, len))
			return -EINVAL;
		pos += len + 1;
	}
	return 0;
}

int lpi_path_check(struct lp_bytes path)
{
	return path.len == 0 ? -EISDIR : lp_ns_path_check(path);
}

/* --- The end ---------------------------------------------------------------------------------- */

static void end_now(struct lpi_job *job)
{
	job->put.source.nr = 0;
	lpi_names_end(job, job->path_result);
}

static void run_close_source(struct lpi_call *call)
{
	const struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	lpi_opens_drop(call->to->opens, job->put.source, 1);
	lpi_call_end(call, 0);
}

static void end_soon(struct lpi_job *job)
{
	if (job->put.source.nr == 0) {
		lpi_job_soon(job, end_now);
		return;
	}
	lpi_job_run(job, lp_ino_shard(job->put.source), 0, run_close_source);
	lpi_job_wait(job, end_now);
}

static void set_entry(struct lp_ns *ns, const struct lpi_walk *walk, struct lpi_entry *entry);

/* Removes the directories that were made for an operation that failed. */
static void unmake_dirs(struct lpi_job *job)
{
	struct lpi_walk *walk = &job->walk;
	uint32_t len = walk->pos + name_len_at(walk->path, walk->pos);
	set_entry(job->ns, walk, &job->entry);
	lpi_prune(job, (struct lp_bytes){walk->path.data, len}, end_soon);
}

void lpi_path_end(struct lpi_job *job, int result)
{
	bool has_made = job->walk.has_made;
	job->path_result = result;
	lpi_copy_give_page(job);
	job->walk.has_made = false;
	/* After -EIO a change may never be over. */
	if (result < 0 && result != -EIO && has_made)
		lpi_job_again(job, unmake_dirs);
	else
		end_soon(job);
}

/* --- Walking ---------------------------------------------------------------------------------- */

static void walk_on(struct lpi_job *job);
static void make_dir(struct lpi_job *job);

static void walk_ended(struct lpi_job *job, int result)
{
	job->walk.result = result;
	job->walk.next(job);
}

static void walk_from_root(struct lpi_job *job)
{
	job->walk.pos = 0;
	job->walk.dir = LP_INO_ROOT;
	job->walk.is_spread = false;
	walk_on(job);
}

void lpi_walk(struct lpi_job *job, struct lp_bytes path, bool makes_dirs, lpi_step_fn *next)
{
	LP_ASSERT(path.len > 0);
	job->walk.path = path;
	job->walk.makes_dirs = makes_dirs;
	job->walk.next = next;
	walk_from_root(job);
}

void lpi_walk_again(struct lpi_job *job)
{
	if (++job->walk.restarts > LPI_PATH_TRIES_MAX)
		lpi_path_end(job, -EAGAIN);
	else
		lpi_job_again(job, walk_from_root);
}

static struct lp_bytes walk_name(const struct lpi_walk *walk)
{
	const char *data = walk->path.data;
	return (struct lp_bytes){data + walk->pos, name_len_at(walk->path, walk->pos)};
}

static void go_into(struct lpi_walk *walk, const struct lpi_dirhit *hit)
{
	walk->pos += name_len_at(walk->path, walk->pos) + 1;
	walk->dir = hit->ino;
	walk->is_spread = hit->is_spread;
}

/* job->entry leads to a directory. */
static void learned(struct lpi_job *job, bool is_spread)
{
	const struct lpi_entry *entry = &job->entry;
	const struct lpi_dirhit hit = {.ino = entry->ino, .is_spread = is_spread};
	lpi_dir_kind_learn(job->ns, entry->ino, is_spread);
	lpi_dircache_add(job->ns->dircache, job->walk.generation, entry->dir, lpi_entry_name(entry),
			 hit);
	go_into(&job->walk, &hit);
}

static void kind_asked(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	if (ask->call.result == -ENOENT) {
		lpi_walk_again(job);
		return;
	}
	if (ask->call.result < 0) {
		walk_ended(job, ask->call.result);
		return;
	}
	learned(job, (ask->op.stat.attrs.flags & LP_INODE_FLAG_SPREAD) != 0);
	walk_on(job);
}

static void found_dir(struct lpi_job *job)
{
	const struct lpi_entry *entry = &job->entry;
	bool is_spread = entry->has_attrs && (entry->attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
	if (entry->has_attrs || lpi_dir_kind_find(job->ns, entry->ino, &is_spread)) {
		learned(job, is_spread);
		walk_on(job);
		return;
	}
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = entry->ino;
	lpi_job_ask_dir(job, lp_ino_shard(entry->ino), 0);
	lpi_job_wait(job, kind_asked);
}

static void looked_up(struct lpi_job *job)
{
	int r = lpi_entry_take(job, &job->entry, 0);
	if (r < 0)
		walk_ended(job, r);
	else if (job->entry.ino.nr == 0 && job->walk.makes_dirs)
		make_dir(job);
	else if (job->entry.ino.nr == 0)
		walk_ended(job, -ENOENT);
	else if (job->entry.type != LP_INODE_TYPE_DIR)
		walk_ended(job, -ENOTDIR);
	else
		found_dir(job);
}

/* Sets job->entry to the name at pos in the directory that was reached. */
static void set_entry(struct lp_ns *ns, const struct lpi_walk *walk, struct lpi_entry *entry)
{
	/* The whole path has been checked. */
	int r = lpi_entry_set(entry, walk->dir, walk_name(walk));
	LP_ASSERT(r == 0);
	entry->dir_is_spread = walk->is_spread;
	entry->shard_idx =
		lpi_shard_of_entry(ns, walk->dir, walk->is_spread, lpi_entry_name(entry));
}

/* Walks as far as the cache knows the path. True when the last name is reached. */
static bool walk_cached(struct lp_ns *ns, struct lpi_walk *walk)
{
	for (;;) {
		struct lpi_dirhit hit;
		struct lp_bytes name = walk_name(walk);
		if (walk->pos + name.len == walk->path.len)
			return true;
		if (!lpi_dircache_find(ns->dircache, walk->dir, name, &hit))
			return false;
		go_into(walk, &hit);
	}
}

static void walk_on(struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	bool is_there = walk_cached(ns, &job->walk);
	set_entry(ns, &job->walk, &job->entry);
	if (is_there) {
		walk_ended(job, 0);
		return;
	}
	job->walk.generation = lpi_dircache_generation(ns->dircache);
	lpi_entry_ask(job, &job->entry, 0, false);
	lpi_job_wait(job, looked_up);
}

uint32_t lp_ns_shard_of_path(struct lp_ns *ns, struct lp_bytes path)
{
	struct lpi_entry entry;
	struct lpi_walk walk = {.path = path, .dir = LP_INO_ROOT};
	if (lpi_path_check(path) < 0)
		return ns->options.shard_idx;
	(void)walk_cached(ns, &walk);
	set_entry(ns, &walk, &entry);
	return entry.shard_idx;
}

/* --- Directories that puts make --------------------------------------------------------------- */

static void dir_made(struct lpi_job *job)
{
	int r = job->pact.result;
	job->is_durable = false;
	if (r == -ENOENT) { /* the one above it went */
		lpi_walk_again(job);
		return;
	}
	if (r < 0 && r != -EEXIST) {
		lpi_path_end(job, r);
		return;
	}
	if (r >= 0) {
		job->walk.has_made = true;
		job->entry.ino = job->new_ino;
		learned(job, (job->attrs[0].flags & LP_INODE_FLAG_SPREAD) != 0);
	}
	/* Another operation made it: it is looked up again. */
	lpi_job_again(job, walk_on);
}

static void add_dir(struct lpi_job *job)
{
	const struct lpi_entry *entry = &job->entry;
	bool is_spread = entry->dir_is_spread || entry->dir.nr == LP_INO_ROOT.nr;
	lpi_job_take_time(job);
	struct lp_change *guard =
		lpi_job_change(job, entry->shard_idx, LP_GUARD_NO_ENTRY, entry->dir);
	guard->named.name = lpi_entry_name(entry);
	struct lp_attrs *attrs = lpi_job_attrs(job);
	*attrs = (struct lp_attrs){.type = LP_INODE_TYPE_DIR,
				   .mode = 0755,
				   .uid = job->op->who.uid,
				   .gid = job->op->who.gid,
				   .nlink = is_spread ? 1 : 2,
				   .flags = LP_INODE_FLAG_MADE_BY_PUT |
					    (is_spread ? LP_INODE_FLAG_SPREAD : 0),
				   .parent = entry->dir,
				   .atime_ns = job->now_ns,
				   .mtime_ns = job->now_ns,
				   .ctime_ns = job->now_ns,
				   .btime_ns = job->now_ns};
	struct lp_change *change =
		lpi_job_change(job, entry->shard_idx, LP_CHANGE_CREATE, job->new_ino);
	change->inode.attrs = attrs;
	change->inode.name = lpi_entry_name(entry);
	lpi_entry_set_change(job, entry, job->new_ino, LP_INODE_TYPE_DIR);
	lpi_entry_count_dir(job, entry, 1);
	/* An entry in it may be durable sooner, on another shard. */
	job->is_durable = true;
	lpi_job_commit(job, dir_made);
}

static void need_dir(struct lpi_job *job)
{
	job->dir_is_gone = lpi_walk_again;
	lpi_entry_need_dir(job, &job->entry, lpi_path_end, add_dir);
}

/* As in ops/make.c: a directory that is not spread counts its subdirectories. */
static void parent_known(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	int r = ask->call.result;
	if (r >= 0 && ask->op.stat.attrs.nlink >= LP_NS_LINK_MAX)
		r = -EMLINK;
	if (r == -ENOENT)
		lpi_walk_again(job);
	else if (r < 0)
		lpi_path_end(job, r);
	else
		need_dir(job);
}

static void make_locked(struct lpi_job *job)
{
	if (job->entry.dir_is_spread) {
		need_dir(job);
		return;
	}
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->entry.dir;
	lpi_job_ask_dir(job, lp_ino_shard(op->stat.ino), 0);
	lpi_job_wait(job, parent_known);
}

static void make_numbered(struct lpi_job *job)
{
	lpi_job_lock_name(job, &job->entry);
	job->lock_refused = lpi_path_end;
	lpi_job_lock(job, make_locked);
}

static void run_number(struct lpi_call *call)
{
	struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	job->new_ino = lp_store_new_ino(call->to->options.store);
	lpi_call_end(call, 0);
}

static void make_dir(struct lpi_job *job)
{
	lpi_job_run(job, job->entry.shard_idx, 0, run_number);
	lpi_job_wait(job, make_numbered);
}

/* --- Telling all shards ----------------------------------------------------------------------- */

static void tell_more(struct lpi_job *job);

static void run_tell(struct lpi_call *call)
{
	const struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	struct lpi_dircache *cache = call->to->dircache;
	if (job->telling.is_thaw) {
		lpi_dircache_thaw(cache);
	} else {
		lpi_dircache_freeze(cache);
		lpi_dircache_forget(cache, job->entry.dir, lpi_entry_name(&job->entry));
		lpi_dircache_forget(cache, job->to.dir, lpi_entry_name(&job->to));
	}
	lpi_call_end(call, 0);
}

/* Asks some shards at a time. */
static void tell_more(struct lpi_job *job)
{
	struct lpi_telling *telling = &job->telling;
	uint32_t asked = 0;
	while (asked < LPI_JOB_ASKS && telling->shard_idx < job->ns->options.shard_cnt)
		lpi_job_run(job, telling->shard_idx++, asked++, run_tell);
	if (asked > 0)
		lpi_job_wait(job, tell_more);
	else
		telling->next(job);
}

static void tell(struct lpi_job *job, bool is_thaw, lpi_step_fn *next)
{
	job->telling = (struct lpi_telling){.is_thaw = is_thaw, .next = next};
	tell_more(job);
}

void lpi_paths_freeze(struct lpi_job *job, lpi_step_fn *next)
{
	tell(job, false, next);
}

void lpi_paths_thaw(struct lpi_job *job, lpi_step_fn *next)
{
	tell(job, true, next);
}

/* --- LP_NS_WALK ------------------------------------------------------------------------------- */

static void walk_found(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r == -ENOENT && job->dir_stat.ino.nr != LP_INO_ROOT.nr) {
		/* The inode lost its name since it was looked up. */
		lpi_open_uncount(job, lpi_walk_again);
		return;
	}
	if (r >= 0)
		job->op->walk.found = lpi_stat_found(job);
	lpi_path_end(job, r);
}

static void walk_take(struct lpi_job *job, struct lp_ino ino)
{
	if (job->op->walk.open)
		lpi_open_count(job, ino, walk_found);
	else
		lpi_stat(job, ino, false, walk_found);
}

static void walk_looked(struct lpi_job *job)
{
	const struct lpi_entry *entry = &job->entry;
	int r = lpi_entry_take(job, &job->entry, 0);
	if (r >= 0 && entry->ino.nr == 0)
		r = -ENOENT;
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	if (job->op->walk.open || !entry->has_attrs || entry->type == LP_INODE_TYPE_DIR) {
		walk_take(job, entry->ino);
		return;
	}
	job->op->walk.found = (struct lp_ns_found){.ino = entry->ino, .attrs = entry->attrs};
	lpi_path_end(job, 0);
}

static void walk_walked(struct lpi_job *job)
{
	if (job->walk.result < 0) {
		lpi_path_end(job, job->walk.result);
		return;
	}
	lpi_entry_ask(job, &job->entry, 0, false);
	lpi_job_wait(job, walk_looked);
}

void lpi_begin_walk(struct lpi_job *job)
{
	struct lp_bytes path = job->op->walk.path;
	int r = lp_ns_path_check(path);
	if (r < 0)
		lpi_path_end(job, r);
	else if (path.len == 0)
		walk_take(job, LP_INO_ROOT);
	else
		lpi_walk(job, path, false, walk_walked);
}
