/* SPDX-License-Identifier: Apache-2.0 */
/* Make: a new inode, and its entry.
 *
 *   number     of the inode, on its shard; with `open` it is counted there already
 *   lock       the name; and the inode, if it is on another shard than the entry
 *   commit     guards say that the name is free; nothing is looked up before
 *
 * A file is on the shard of its entry, and all of it is one transaction. A directory in a directory
 * that is not spread goes round the shards. The inode's shard coordinates: it may have xattrs to
 * set, and a client that was told the number finds the inode there at once. A lookup of the name
 * waits until it can be seen.
 *
 * With or_open an existing name is looked up, under its lock, and opened. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"

#define TRIES_MAX 16u

static void make_placed(struct lpi_job *job);

/* --- The end ---------------------------------------------------------------------------------- */

static void tell_new(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	struct lp_attrs attrs = job->attrs[0];
	attrs.version_nr = job->pact.coordinator->op.txn.version_nr;
	if (op->make.type == LP_INODE_TYPE_SYMLINK)
		attrs.size_bytes = op->make.target.len;
	op->make.created = true;
	op->make.found = (struct lp_ns_found){.ino = job->new_ino, .attrs = attrs};
	if (op->make.type == LP_INODE_TYPE_DIR)
		lpi_dir_kind_learn(job->ns, job->new_ino, op->make.spread);
	lpi_job_end(job, 0);
}

/* --- One that is there already ---------------------------------------------------------------- */

static void existing_known(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	int r = job->dir_stat.result;
	if (r >= 0)
		op->make.found = lpi_stat_found(job);
	lpi_names_end(job, r);
}

static void existing_looked(struct lpi_job *job)
{
	struct lpi_entry *entry = &job->entry;
	int r = lpi_entry_take(job, entry, 0);
	if (r < 0) {
		lpi_job_end(job, r);
		return;
	}
	if (entry->ino.nr == 0) {
		/* The name is gone meanwhile: the inode is made after all. */
		if (job->tries >= TRIES_MAX)
			lpi_job_end(job, -EEXIST);
		else
			lpi_job_again(job, make_placed);
		return;
	}
	if (entry->type != LP_INODE_TYPE_FILE) {
		lpi_job_end(job, entry->type == LP_INODE_TYPE_DIR ? -EISDIR : -EEXIST);
		return;
	}
	if (job->op->make.open)
		lpi_open_count(job, entry->ino, existing_known);
	else
		lpi_stat(job, entry->ino, false, existing_known);
}

static void existing_locked(struct lpi_job *job)
{
	lpi_entry_ask(job, &job->entry, 0, true);
	lpi_job_wait(job, existing_looked);
}

static void existing(struct lpi_job *job)
{
	lpi_job_lock_name(job, &job->entry);
	lpi_job_lock(job, existing_locked);
}

static void leave_new(struct lpi_job *job)
{
	lpi_job_again(job, existing);
}

/* --- The change ------------------------------------------------------------------------------- */

static void make_done(struct lpi_job *job)
{
	int r = job->pact.result;
	if (r >= 0)
		tell_new(job);
	else if (r == -EEXIST && job->op->make.or_open)
		lpi_open_uncount(job, leave_new);
	else
		lpi_names_end(job, r);
}

static void add_xattrs(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	for (uint32_t i = 0; i < op->make.xattr_cnt; i++) {
		struct lp_change *change = lpi_job_change(job, lp_ino_shard(job->new_ino),
							  LP_CHANGE_XATTR_SET, job->new_ino);
		change->named.name = op->make.xattrs[i].name;
		change->named.value = op->make.xattrs[i].value;
	}
}

static void add_inode(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	bool is_dir = op->make.type == LP_INODE_TYPE_DIR;
	struct lp_attrs *attrs = lpi_job_attrs(job);
	*attrs = (struct lp_attrs){.type = op->make.type,
				   .mode = op->make.mode,
				   .rdev = op->make.rdev,
				   .uid = op->who.uid,
				   .gid = op->who.gid,
				   .nlink = is_dir && !op->make.spread ? 2 : 1,
				   .flags = op->make.spread ? LP_INODE_FLAG_SPREAD : 0,
				   .atime_ns = job->now_ns,
				   .mtime_ns = job->now_ns,
				   .ctime_ns = job->now_ns,
				   .btime_ns = job->now_ns};
	if (op->make.unnamed)
		attrs->nlink = 0;
	else
		attrs->parent = job->entry.dir;
	uint32_t shard_idx = lp_ino_shard(job->new_ino);
	struct lp_change *change = lpi_job_change(job, shard_idx, LP_CHANGE_CREATE, job->new_ino);
	change->inode.attrs = attrs;
	if (!op->make.unnamed)
		change->inode.name = lpi_entry_name(&job->entry);
	if (op->make.type == LP_INODE_TYPE_SYMLINK)
		change->inode.target = op->make.target;
	add_xattrs(job);
	lpi_job_coordinate(job, shard_idx);
}

static void make_commit(struct lpi_job *job)
{
	struct lpi_entry *entry = &job->entry;
	lpi_job_take_time(job);
	struct lp_change *guard =
		lpi_job_change(job, entry->shard_idx, LP_GUARD_NO_ENTRY, entry->dir);
	guard->named.name = lpi_entry_name(entry);
	add_inode(job);
	lpi_entry_set_change(job, entry, job->new_ino, job->op->make.type);
	if (job->op->make.type == LP_INODE_TYPE_DIR)
		lpi_entry_count_dir(job, entry, 1);
	lpi_job_commit(job, make_done);
}

/* Other operations may be making directories at the same time. The limit is not exact, but keeps
 * the count far below what a link count can hold. */
static void parent_known(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	int r = ask->call.result;
	if (r >= 0 && ask->op.stat.attrs.nlink == 0)
		r = -ENOENT;
	if (r >= 0 && ask->op.stat.attrs.nlink >= LP_NS_LINK_MAX)
		r = -EMLINK;
	if (r < 0)
		lpi_names_end(job, r);
	else
		lpi_entry_need_dir(job, &job->entry, lpi_names_end, make_commit);
}

static void make_locked(struct lpi_job *job)
{
	if (job->op->make.type != LP_INODE_TYPE_DIR || job->entry.dir_is_spread) {
		lpi_entry_need_dir(job, &job->entry, lpi_names_end, make_commit);
		return;
	}
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->entry.dir;
	/* Other names of the directory that are being decided change only its link count. The lock
	 * of this name prevents the directory's removal. Without this, each of several mkdirs in a
	 * row would wait for the end of the one before. */
	lpi_job_ask(job, lp_ino_shard(op->stat.ino), 0, true);
	lpi_job_wait(job, parent_known);
}

/* --- Without a name --------------------------------------------------------------------------- */

static void run_mark_unnamed(struct lpi_call *call)
{
	const struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	lpi_opens_orphan_unnamed(call->to->opens, job->new_ino);
	lpi_call_end(call, 0);
}

static void unnamed_done(struct lpi_job *job)
{
	if (job->pact.result < 0) {
		lpi_names_end(job, job->pact.result);
		return;
	}
	/* Only this job knows the number yet. */
	job->result = 0;
	lpi_job_run(job, lp_ino_shard(job->new_ino), 0, run_mark_unnamed);
	lpi_job_wait(job, tell_new);
}

static void make_unnamed(struct lpi_job *job)
{
	add_inode(job);
	lpi_job_mark(job, job->new_ino, LP_UNFINISHED_KIND_ORPHAN);
	lpi_job_commit(job, unnamed_done);
}

/* --- The number ------------------------------------------------------------------------------- */

static void numbered(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	if (job->result < 0) {
		lpi_job_fail(job, job->result);
		return;
	}
	if (op->make.unnamed) {
		make_unnamed(job);
		return;
	}
	lpi_job_lock_name(job, &job->entry);
	if (lp_ino_shard(job->new_ino) != job->entry.shard_idx)
		lpi_job_lock_inode(job, job->new_ino);
	job->lock_refused = lpi_names_end;
	lpi_job_lock(job, make_locked);
}

/* Takes a number on the shard where the inode will be. */
static void take_number(struct lpi_job *job, struct lp_ns *ns)
{
	const struct lp_ns_op *op = job->op;
	job->result = 0;
	job->new_ino = lp_store_new_ino(ns->options.store);
	if ((op->make.open || op->make.unnamed) && lpi_open_is_mounts(op))
		job->result = lpi_opens_add_mounts(ns->opens, job->new_ino);
	else if (op->make.open || op->make.unnamed)
		job->result = lpi_opens_add(ns->opens, job->new_ino, 1);
	if (job->result >= 0 && (op->make.open || op->make.unnamed))
		job->counted = job->new_ino;
	if (job->result >= 0 && op->hold) {
		job->result = lpi_opens_hold(ns->opens, job->new_ino);
		LP_ASSERT(job->result == 0); /* the number is new */
		job->held = job->new_ino;
	}
}

static void run_number(struct lpi_call *call)
{
	take_number(LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job, call->to);
	lpi_call_end(call, 0);
}

static uint32_t choose_shard(const struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	const struct lpi_entry *entry = &job->entry;
	if (job->op->make.unnamed)
		return entry->dir_is_spread ? ns->options.shard_idx : lp_ino_shard(entry->dir);
	if (job->op->make.type != LP_INODE_TYPE_DIR || entry->dir_is_spread)
		return entry->shard_idx;
	return ns->next_dir_shard++ % ns->options.shard_cnt;
}

static void make_placed(struct lpi_job *job)
{
	uint32_t shard_idx = choose_shard(job);
	if (shard_idx == job->ns->options.shard_idx) {
		take_number(job, job->ns);
		numbered(job);
		return;
	}
	lpi_job_run(job, shard_idx, 0, run_number);
	lpi_job_wait(job, numbered);
}

/* --- The beginning ---------------------------------------------------------------------------- */

static int check_make(const struct lp_ns_op *op)
{
	bool is_dir = op->make.type == LP_INODE_TYPE_DIR;
	bool is_file = op->make.type == LP_INODE_TYPE_FILE;
	bool is_symlink = op->make.type == LP_INODE_TYPE_SYMLINK;
	bool is_device =
		op->make.type == LP_INODE_TYPE_CHARDEV || op->make.type == LP_INODE_TYPE_BLOCKDEV;
	if (lp_inode_type_name(op->make.type) == NULL || op->make.mode > 07777)
		return -EINVAL;
	if ((op->make.spread && !is_dir) || (op->make.rdev != 0 && !is_device))
		return -EINVAL;
	if (((op->make.unnamed || op->make.or_open) && !is_file) || (op->make.or_open && op->hold))
		return -EINVAL;
	if (is_symlink && op->make.target.len > LP_INODE_TARGET_MAX)
		return -ENAMETOOLONG;
	if (is_symlink && op->make.target.len == 0)
		return -ENOENT;
	return op->make.xattr_cnt > LP_NS_XATTRS_MAX ? -E2BIG : 0;
}

void lpi_begin_make(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	int r = check_make(op);
	op->make.created = false;
	if (r >= 0 && op->make.unnamed)
		job->entry = (struct lpi_entry){.dir = op->make.dir};
	else if (r >= 0)
		r = lpi_entry_set(&job->entry, op->make.dir, op->make.name);
	if (r < 0)
		lpi_job_fail(job, r);
	else
		lpi_names_place(job, 1, make_placed);
}
