/* SPDX-License-Identifier: Apache-2.0 */
/* Lookup, link, remove.
 *
 * A lookup takes no lock: it waits only for changes that are being decided. So the inode may have
 * lost the name before its attributes are read on another shard; then the lookup begins again. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"

#define TRIES_MAX 64u

/* --- Lookup ----------------------------------------------------------------------------------- */

static void lookup_placed(struct lpi_job *job);

static void lookup_stat_known(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r == -ENOENT && ++job->tries < TRIES_MAX) {
		lookup_placed(job);
		return;
	}
	if (r >= 0)
		job->op->lookup.found = lpi_stat_found(job);
	lpi_job_end(job, r);
}

static void looked_up(struct lpi_job *job)
{
	struct lpi_entry *entry = &job->entry;
	int r = lpi_entry_take(job, entry, 0);
	if (r >= 0 && entry->ino.nr == 0)
		r = -ENOENT;
	if (r < 0) {
		lpi_job_end(job, r);
		return;
	}
	if (!entry->has_attrs || entry->type == LP_INODE_TYPE_DIR) {
		lpi_stat_held(job, entry->ino, lookup_stat_known);
		return;
	}
	job->op->lookup.found = (struct lp_ns_found){.ino = entry->ino, .attrs = entry->attrs};
	lpi_job_end(job, 0);
}

static void lookup_placed(struct lpi_job *job)
{
	if (job->op->hold)
		lpi_entry_ask_held(job, &job->entry, 0, 1);
	else
		lpi_entry_ask(job, &job->entry, 0, false);
	lpi_job_wait(job, looked_up);
}

void lpi_begin_lookup(struct lpi_job *job)
{
	int r = lpi_entry_set(&job->entry, job->op->lookup.dir, job->op->lookup.name);
	if (r < 0)
		lpi_job_fail(job, r);
	else
		lpi_names_place(job, 1, lookup_placed);
}

/* --- Link ------------------------------------------------------------------------------------- */

static void link_left(struct lpi_job *job)
{
	lpi_names_end(job, job->result);
}

static void link_done(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	job->result = job->pact.result;
	if (job->result >= 0) {
		/* The attributes under the lock, with the changes made. */
		op->link.found =
			(struct lp_ns_found){.ino = op->link.ino, .attrs = job->moved_attrs};
		struct lp_attrs *attrs = &op->link.found.attrs;
		attrs->version_nr = LP_MAX(attrs->version_nr + 1, lp_version_at(job->now_ns));
		attrs->nlink++;
		attrs->ctime_ns = job->now_ns;
		attrs->parent = job->entry.dir;
	}
	lpi_open_uncount(job, link_left);
}

static void link_commit(struct lpi_job *job)
{
	struct lpi_entry *entry = &job->entry;
	struct lp_ino ino = job->op->link.ino;
	lpi_job_take_time(job);
	struct lp_change *guard =
		lpi_job_change(job, entry->shard_idx, LP_GUARD_NO_ENTRY, entry->dir);
	guard->named.name = lpi_entry_name(entry);
	lpi_entry_set_change(job, entry, ino, job->moved_attrs.type);
	lpi_job_guard_flags(job, ino, LP_INODE_FLAGS_KEEPING);
	lpi_job_change(job, lp_ino_shard(ino), LP_CHANGE_LINK, ino)->inode.delta = 1;
	/* The version is one of now (rule W3), because the name may have led to another inode
	 * before. */
	(void)lpi_ino_name_change(job, ino, entry);
	uint32_t coordinator = entry->shard_idx;
	if (job->moved_attrs.nlink == 0) {
		/* The caller may close it as soon as it is answered: it must be no orphan by
		 * then. */
		coordinator = lp_ino_shard(ino);
		lpi_job_adopt(job, ino);
	}
	lpi_job_coordinate(job, coordinator);
	lpi_job_commit(job, link_done);
}

static void run_pin(struct lpi_call *call)
{
	struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	struct lpi_opens *opens = call->to->opens;
	struct lp_ino ino = job->op->link.ino;
	int r = lpi_opens_is_unnamed(opens, ino) ? lpi_opens_add(opens, ino, 1) : -ENOENT;
	lpi_call_end(call, r);
}

static void pinned(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	if (r < 0) {
		lpi_names_end(job, r);
		return;
	}
	job->counted = job->op->link.ino;
	lpi_entry_need_dir(job, &job->entry, lpi_names_end, link_commit);
}

static void link_known(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	int r = ask->call.result;
	job->moved_attrs = ask->op.stat.attrs;
	if (r >= 0 && job->op->hold)
		job->held = job->op->link.ino;
	if (r >= 0 && job->moved_attrs.type == LP_INODE_TYPE_DIR)
		r = -EPERM;
	if (r >= 0 && job->moved_attrs.nlink >= LP_NS_LINK_MAX)
		r = -EMLINK;
	if (r < 0) {
		lpi_names_end(job, r);
		return;
	}
	if (job->moved_attrs.nlink > 0) {
		lpi_entry_need_dir(job, &job->entry, lpi_names_end, link_commit);
		return;
	}
	/* An inode that never had a name may get one, once, and stays open meanwhile. */
	lpi_job_run(job, lp_ino_shard(job->op->link.ino), 0, run_pin);
	lpi_job_wait(job, pinned);
}

static void link_locked(struct lpi_job *job)
{
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->op->link.ino;
	if (job->op->hold)
		lpi_job_ask_held(job, lp_ino_shard(op->stat.ino), 0, 1, true);
	else
		lpi_job_ask(job, lp_ino_shard(op->stat.ino), 0, true);
	lpi_job_wait(job, link_known);
}

static void link_placed(struct lpi_job *job)
{
	lpi_job_lock_name(job, &job->entry);
	lpi_job_lock_inode(job, job->op->link.ino);
	lpi_job_lock(job, link_locked);
}

void lpi_begin_link(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	int r = lpi_entry_set(&job->entry, op->link.dir, op->link.name);
	if (r >= 0 && !lpi_ino_is_sane(job->ns, op->link.ino))
		r = -ENOENT;
	if (r < 0)
		lpi_job_fail(job, r);
	else
		lpi_names_place(job, 1, link_placed);
}

/* --- Remove ----------------------------------------------------------------------------------- */

static void remove_placed(struct lpi_job *job);

static void remove_over(struct lpi_job *job)
{
	int r = job->pact.result;
	if (r >= 0 && job->op->opcode == LP_NS_REMOVE)
		job->op->remove.ino = job->entry.ino;
	job->is_frozen = false;
	lpi_job_stop(job, r);
}

static void remove_done(struct lpi_job *job)
{
	if (job->is_frozen)
		lpi_paths_thaw(job, remove_over);
	else
		remove_over(job);
}

static void remove_commit(struct lpi_job *job)
{
	struct lpi_entry *entry = &job->entry;
	/* Others have changed the directory while the name was waited for. */
	lpi_job_take_time(job);
	if (job->removal.condition == LP_NS_IF_VERSION)
		lpi_job_change(job, lp_ino_shard(entry->ino), LP_GUARD_INODE, entry->ino)
			->guard.version_nr = job->removal.version_nr;
	lpi_entry_remove_change(job, entry);
	lpi_job_coordinate(job, entry->shard_idx);
	if (entry->type == LP_INODE_TYPE_DIR) {
		lpi_entry_count_dir(job, entry, -1);
		lpi_dir_lose(job, entry->ino);
	} else {
		lpi_ino_lose_name(job, entry->ino, &job->dir_stat.attrs);
	}
	lpi_job_commit(job, remove_done);
}

/* Checks that the inode fulfils job->removal. */
static int check_removal(const struct lpi_job *job)
{
	const struct lpi_removal *removal = &job->removal;
	const struct lp_attrs *attrs = &job->dir_stat.attrs;
	if (removal->condition == LP_NS_IF_VERSION && attrs->version_nr != removal->version_nr)
		return -ECANCELED;
	if (removal->only_made_by_put && (attrs->flags & LP_INODE_FLAG_MADE_BY_PUT) == 0)
		return -EPERM;
	/* The commit guards this, too. For a directory it is checked here so that -EPERM comes
	 * before -ENOTEMPTY. */
	if ((attrs->flags & LP_INODE_FLAGS_KEEPING) != 0)
		return -EPERM;
	if (job->entry.type == LP_INODE_TYPE_DIR && job->dir_stat.entries_cnt > 0)
		return -ENOTEMPTY;
	return 0;
}

static void remove_allowed(struct lpi_job *job)
{
	job->is_frozen = job->entry.type == LP_INODE_TYPE_DIR;
	if (job->is_frozen)
		lpi_paths_freeze(job, remove_commit);
	else
		remove_commit(job);
}

static void remove_known(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r == -ENOENT)
		r = lpi_corrupt_name(job->entry.ino);
	if (r >= 0)
		r = check_removal(job);
	if (r < 0)
		lpi_job_stop(job, r);
	else
		lpi_entry_may_lose(job, &job->entry, lpi_job_stop, remove_allowed);
}

static void remove_locked(struct lpi_job *job)
{
	lpi_stat(job, job->entry.ino, true, remove_known);
}

static void remove_lock_inode(struct lpi_job *job)
{
	lpi_job_lock_inode(job, job->entry.ino);
	lpi_job_lock(job, remove_locked);
}

static void remove_looked(struct lpi_job *job)
{
	struct lpi_entry *entry = &job->entry;
	int r = lpi_entry_take(job, entry, 0);
	bool is_dir = entry->type == LP_INODE_TYPE_DIR;
	if (r >= 0 && entry->ino.nr == 0)
		r = -ENOENT;
	if (r >= 0 && job->removal.only.nr != 0 && job->removal.only.nr != entry->ino.nr)
		r = -ESTALE;
	if (r >= 0 && is_dir && !job->removal.takes_dir)
		r = -EISDIR;
	if (r >= 0 && !is_dir && !job->removal.takes_file)
		r = -ENOTDIR;
	if (r < 0) {
		lpi_job_stop(job, r);
		return;
	}
	if (is_dir)
		lpi_dir_need(job, entry->ino, remove_placed, remove_lock_inode);
	else
		remove_lock_inode(job);
}

static void remove_name_locked(struct lpi_job *job)
{
	lpi_entry_ask(job, &job->entry, 0, true);
	lpi_job_wait(job, remove_looked);
}

static void remove_placed(struct lpi_job *job)
{
	lpi_job_lock_name(job, &job->entry);
	lpi_dir_lock(job);
	lpi_job_lock(job, remove_name_locked);
}

void lpi_remove(struct lpi_job *job)
{
	job->gone_dir.nr = 0;
	remove_placed(job);
}

void lpi_begin_remove(struct lpi_job *job)
{
	bool is_dir = job->op->remove.is_dir;
	job->removal = (struct lpi_removal){.takes_dir = is_dir, .takes_file = !is_dir};
	int r = lpi_entry_set(&job->entry, job->op->remove.dir, job->op->remove.name);
	if (r < 0)
		lpi_job_fail(job, r);
	else
		lpi_names_place(job, 1, remove_placed);
}
