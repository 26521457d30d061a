/* SPDX-License-Identifier: Apache-2.0 */
/* Rename, with its flags.
 *
 *   (token)   if a directory goes into another one: such renames are one after the other
 *   names     both are locked, and looked up; and the fragments of a directory that is replaced
 *   (walk)    up from the new parent of a moved directory: the walk must not meet that directory
 *             (rule N3)
 *   inodes    the moved inode, and the replaced or exchanged one
 *   (freeze)  the caches of paths, if a directory is moved or removed
 *   commit    both entries, both inodes, the link counts of the directories
 *
 * Whether the token is needed, or fragments, is known only when the names have been looked up. Then
 * the job gives all locks back and begins again with it, because it comes first in the order of
 * locks. The moved inode is locked, too. Its hint (parent and name) is changed on its own shard.
 * Without the lock another operation might find the inode under its new name, and remove it, before
 * that. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"

#define WALK_MAX  100000u /* directories above one another */
#define TRIES_MAX 64u

/* job->entry is the old name, job->to the new one. */

static bool is_dir(const struct lpi_entry *entry)
{
	return entry->ino.nr != 0 && entry->type == LP_INODE_TYPE_DIR;
}

static bool has_flag(const struct lpi_job *job, uint32_t flag)
{
	return (job->rename_flags & flag) != 0;
}

static bool is_exchange(const struct lpi_job *job)
{
	return has_flag(job, LP_NS_RENAME_EXCHANGE);
}

static bool is_same_dir(const struct lpi_job *job)
{
	return job->entry.dir.nr == job->to.dir.nr;
}

/* The rename replaces an inode. */
static bool replaces(const struct lpi_job *job)
{
	return job->to.ino.nr != 0 && !is_exchange(job);
}

static void rename_placed(struct lpi_job *job);

/* --- The end ---------------------------------------------------------------------------------- */

static void rename_over(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	int r = job->pact.result;
	job->is_frozen = false;
	/* The inode that the name has shown was changed meanwhile. */
	if (r == -ECANCELED && job->rename_if != LP_NS_IF_VERSION) {
		lpi_job_again(job, rename_placed);
		return;
	}
	if (r >= 0 && op->opcode == LP_NS_RENAME) {
		op->rename.moved = job->entry.ino;
		op->rename.replaced = job->to.ino;
	}
	lpi_job_stop(job, r);
}

static void rename_done(struct lpi_job *job)
{
	if (job->is_frozen)
		lpi_paths_thaw(job, rename_over);
	else
		rename_over(job);
}

/* --- The change ------------------------------------------------------------------------------- */

/* The inode has a new name: its version must be above the one that the name has shown, even if the
 * clock is behind (rule W3). The shown inode may be changed until the commit. Then the commit's
 * guard fails and the job looks again, unless the shown version is too far behind to come near. */
static void move_inode(struct lpi_job *job, const struct lpi_entry *what,
		       const struct lpi_entry *where, const struct lp_attrs *shown)
{
	struct lp_attrs *attrs = lpi_ino_name_change(job, what->ino, where);
	lpi_job_guard_flags(job, what->ino, LP_INODE_FLAGS_KEEPING);
	if (where->ino.nr == 0)
		return;
	bool is_guarded = job->rename_if == LP_NS_IF_VERSION;
	bool must_guard =
		lpi_version_above(attrs, shown->version_nr, is_guarded || job->tries < TRIES_MAX);
	if (must_guard && !is_guarded)
		lpi_job_change(job, lp_ino_shard(where->ino), LP_GUARD_INODE, where->ino)
			->guard.version_nr = shown->version_nr;
}

/* Directories that are not spread count their subdirectories. */
static void count_dirs(struct lpi_job *job)
{
	const struct lpi_entry *from = &job->entry;
	const struct lpi_entry *to = &job->to;
	int32_t come = is_dir(from) ? 1 : 0;
	int32_t go = is_dir(to) ? 1 : 0;
	if (is_same_dir(job)) {
		if (!is_exchange(job))
			lpi_entry_count_dir(job, to, -go);
		return;
	}
	lpi_entry_count_dir(job, from, is_exchange(job) ? go - come : -come);
	lpi_entry_count_dir(job, to, come - go);
}

static void rename_commit(struct lpi_job *job)
{
	const struct lpi_entry *from = &job->entry;
	const struct lpi_entry *to = &job->to;
	lpi_job_take_time(job);
	if (job->rename_if == LP_NS_IF_VERSION)
		lpi_job_change(job, lp_ino_shard(to->ino), LP_GUARD_INODE, to->ino)
			->guard.version_nr = job->rename_version_nr;
	lpi_entry_set_change(job, to, from->ino, from->type);
	if (is_exchange(job))
		lpi_entry_set_change(job, from, to->ino, to->type);
	else
		lpi_entry_remove_change(job, from);
	move_inode(job, from, to, &job->gone_attrs);
	if (is_exchange(job))
		move_inode(job, to, from, &job->moved_attrs);
	count_dirs(job);
	if (replaces(job) && is_dir(to))
		lpi_dir_lose(job, to->ino);
	else if (replaces(job))
		lpi_ino_lose_name(job, to->ino, &job->gone_attrs);
	lpi_job_coordinate(job, to->shard_idx);
	lpi_job_commit(job, rename_done);
}

static void rename_freeze(struct lpi_job *job)
{
	job->is_frozen = is_dir(&job->entry) || is_dir(&job->to);
	if (job->is_frozen)
		lpi_paths_freeze(job, rename_commit);
	else
		rename_commit(job);
}

static void rename_may_lose(struct lpi_job *job)
{
	/* A directory that has an entry exists. */
	if (is_same_dir(job))
		rename_freeze(job);
	else if (job->to.ino.nr != 0)
		lpi_entry_may_lose(job, &job->to, lpi_job_stop, rename_freeze);
	else
		lpi_entry_need_dir(job, &job->to, lpi_job_stop, rename_freeze);
}

static void rename_need_dir(struct lpi_job *job)
{
	lpi_entry_may_lose(job, &job->entry, lpi_job_stop, rename_may_lose);
}

/* --- How many directories a directory has ----------------------------------------------------- */

static void count_known(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	int r = ask->call.result;
	if (r >= 0 && ask->op.stat.attrs.nlink == 0)
		r = -ENOENT;
	if (r >= 0 && ask->op.stat.attrs.nlink >= LP_NS_LINK_MAX)
		r = -EMLINK;
	if (r < 0)
		lpi_job_stop(job, r);
	else
		rename_need_dir(job);
}

static void check_count(struct lpi_job *job)
{
	const struct lpi_entry *grows = &job->to;
	bool is_more = is_dir(&job->entry) && !is_dir(&job->to);
	if (is_exchange(job) && is_dir(&job->to) && !is_dir(&job->entry)) {
		grows = &job->entry;
		is_more = true;
	}
	if (!is_more || is_same_dir(job) || grows->dir_is_spread) {
		rename_need_dir(job);
		return;
	}
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = grows->dir;
	lpi_job_ask_dir(job, lp_ino_shard(op->stat.ino), 0);
	lpi_job_wait(job, count_known);
}

/* --- The replaced inode ----------------------------------------------------------------------- */

static void gone_known(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r == -ENOENT)
		r = lpi_corrupt_name(job->to.ino);
	job->gone_attrs = job->dir_stat.attrs;
	if (r >= 0 && job->rename_if == LP_NS_IF_VERSION &&
	    job->gone_attrs.version_nr != job->rename_version_nr)
		r = -ECANCELED;
	/* The commit guards this, too. It is checked here so that -EPERM comes before
	 * -ENOTEMPTY. */
	if (r >= 0 && (job->gone_attrs.flags & LP_INODE_FLAGS_KEEPING) != 0)
		r = -EPERM;
	if (r >= 0 && is_dir(&job->to) && job->dir_stat.entries_cnt > 0)
		r = -ENOTEMPTY;
	if (r < 0)
		lpi_job_stop(job, r);
	else
		check_count(job);
}

static void exchanged_known(struct lpi_job *job)
{
	const struct lpi_entry *entries[] = {&job->entry, &job->to};
	struct lp_attrs *attrs[] = {&job->moved_attrs, &job->gone_attrs};
	for (uint32_t i = 0; i < 2; i++) {
		int r = job->asks[i].call.result;
		if (r == -ENOENT)
			r = lpi_corrupt_name(entries[i]->ino);
		if (r < 0) {
			lpi_job_stop(job, r);
			return;
		}
		*attrs[i] = job->asks[i].op.stat.attrs;
	}
	check_count(job);
}

static void look_at_exchanged(struct lpi_job *job)
{
	const struct lpi_entry *entries[] = {&job->entry, &job->to};
	for (uint32_t i = 0; i < 2; i++) {
		struct lp_store_op *op = lpi_job_op(job, i);
		op->opcode = LP_STORE_STAT;
		op->stat.ino = entries[i]->ino;
		lpi_job_ask(job, lp_ino_shard(op->stat.ino), i, true);
	}
	lpi_job_wait(job, exchanged_known);
}

static void rename_locked(struct lpi_job *job)
{
	if (replaces(job))
		lpi_stat(job, job->to.ino, true, gone_known);
	else if (is_exchange(job))
		look_at_exchanged(job);
	else
		check_count(job);
}

static void lock_inodes_now(struct lpi_job *job)
{
	lpi_job_lock_inode(job, job->entry.ino);
	if (job->to.ino.nr != 0)
		lpi_job_lock_inode(job, job->to.ino);
	lpi_job_lock(job, rename_locked);
}

static void lock_inodes(struct lpi_job *job)
{
	if (replaces(job) && is_dir(&job->to))
		lpi_dir_need(job, job->to.ino, rename_placed, lock_inodes_now);
	else
		lock_inodes_now(job);
}

/* --- Up the tree ------------------------------------------------------------------------------ */

/* Walks from walk.dir to the root; it must not meet new_ino, the moved directory. */
static void walk_up(struct lpi_job *job);

static void begin_walk(struct lpi_job *job, const struct lpi_entry *what,
		       const struct lpi_entry *where, lpi_step_fn *next)
{
	job->walk.dir = where->dir;
	job->walk.depth = 0;
	job->walk.next = next;
	job->new_ino = what->ino;
	walk_up(job);
}

static void walk_known(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	int r = ask->call.result;
	struct lp_ino parent = ask->op.stat.attrs.parent;
	if (r >= 0 && ask->op.stat.attrs.nlink == 0)
		r = -ENOENT;
	if (r >= 0 && ++job->walk.depth > WALK_MAX)
		r = -ELOOP;
	if (r < 0) {
		lpi_job_stop(job, r);
		return;
	}
	if (parent.nr == job->walk.dir.nr) {
		job->walk.next(job);
		return;
	}
	job->walk.dir = parent;
	walk_up(job);
}

static void walk_up(struct lpi_job *job)
{
	if (job->walk.dir.nr == job->new_ino.nr) {
		lpi_job_stop(job, -EINVAL);
		return;
	}
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->walk.dir;
	lpi_job_ask_dir(job, lp_ino_shard(op->stat.ino), 0);
	lpi_job_wait(job, walk_known);
}

static void walk_of_exchanged(struct lpi_job *job)
{
	if (is_exchange(job) && is_dir(&job->to))
		begin_walk(job, &job->to, &job->entry, lock_inodes);
	else
		lock_inodes(job);
}

static void take_token(struct lpi_job *job)
{
	job->needs_token = true;
	rename_placed(job);
}

static void rename_walk(struct lpi_job *job)
{
	bool moves_dir = is_dir(&job->entry) || (is_exchange(job) && is_dir(&job->to));
	if (is_same_dir(job) || !moves_dir) {
		lock_inodes(job);
		return;
	}
	if (!job->needs_token) {
		lpi_job_again(job, take_token);
		return;
	}
	if (is_dir(&job->entry))
		begin_walk(job, &job->entry, &job->to, walk_of_exchanged);
	else
		walk_of_exchanged(job);
}

/* --- The inodes of the names ------------------------------------------------------------------ */

static int check_found(const struct lpi_job *job)
{
	const struct lpi_entry *from = &job->entry;
	const struct lpi_entry *to = &job->to;
	if (from->ino.nr == 0)
		return -ENOENT;
	if (has_flag(job, LP_NS_RENAME_NOREPLACE) && to->ino.nr != 0)
		return -EEXIST;
	if (job->rename_if != LP_NS_IF_ANY && to->ino.nr == 0)
		return -ENOENT;
	if (is_exchange(job))
		return to->ino.nr == 0 ? -ENOENT : 0;
	if (to->ino.nr == 0 || to->ino.nr == from->ino.nr)
		return 0;
	/* The target is the parent of the moved entry. Its whole fragment is never locked together
	 * with one of its names. */
	if (is_dir(to) && to->ino.nr == from->dir.nr)
		return -ENOTEMPTY;
	if (is_dir(from) && !is_dir(to))
		return -ENOTDIR;
	return !is_dir(from) && is_dir(to) ? -EISDIR : 0;
}

/* Both names lead to one inode: nothing happens, if the state is as required. */
static void same_known(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r == -ENOENT)
		r = lpi_corrupt_name(job->to.ino);
	if (r >= 0 && job->dir_stat.attrs.version_nr != job->rename_version_nr)
		r = -ECANCELED;
	lpi_job_stop(job, r);
}

static void rename_same(struct lpi_job *job)
{
	if (job->op->opcode == LP_NS_RENAME)
		job->op->rename.moved = job->entry.ino;
	if (job->rename_if == LP_NS_IF_VERSION)
		lpi_stat(job, job->to.ino, false, same_known);
	else
		lpi_job_stop(job, 0);
}

static void rename_looked(struct lpi_job *job)
{
	int r = lpi_entry_take(job, &job->entry, 0);
	if (r >= 0)
		r = lpi_entry_take(job, &job->to, 1);
	if (r >= 0)
		r = check_found(job);
	if (r < 0) {
		lpi_job_stop(job, r);
		return;
	}
	if (job->entry.ino.nr == job->to.ino.nr)
		rename_same(job);
	else
		rename_walk(job);
}

static void rename_names_locked(struct lpi_job *job)
{
	lpi_entry_ask(job, &job->entry, 0, true);
	lpi_entry_ask(job, &job->to, 1, true);
	lpi_job_wait(job, rename_looked);
}

static void rename_placed(struct lpi_job *job)
{
	if (job->needs_token)
		lpi_job_lock_token(job);
	lpi_job_lock_name(job, &job->entry);
	lpi_job_lock_name(job, &job->to);
	lpi_dir_lock(job);
	lpi_job_lock(job, rename_names_locked);
}

void lpi_rename(struct lpi_job *job)
{
	job->gone_dir.nr = 0;
	job->needs_token = false;
	rename_placed(job);
}

void lpi_begin_rename(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	uint32_t both = LP_NS_RENAME_NOREPLACE | LP_NS_RENAME_EXCHANGE;
	op->rename.moved.nr = 0;
	op->rename.replaced.nr = 0;
	job->rename_flags = op->rename.flags;
	int r = lpi_entry_set(&job->entry, op->rename.dir, op->rename.name);
	if (r >= 0)
		r = lpi_entry_set(&job->to, op->rename.to_dir, op->rename.to_name);
	if (r >= 0 && ((op->rename.flags & ~both) != 0 || op->rename.flags == both))
		r = -EINVAL;
	if (r < 0)
		lpi_job_fail(job, r);
	else
		lpi_names_place(job, 2, rename_placed);
}
