/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that operations on a name in a directory share. Each operation finds the entry's shard,
 * locks the name, looks it up, and makes its change.
 *
 * The directory must exist when a name is added to it. On the shard of its inode a guard ensures
 * this, if that shard decides. Otherwise the shard is asked while the name's lock prevents a
 * removal, which needs the whole fragment.
 *
 * The directory's flags, which may forbid adding or removing names, are checked in the same way:
 * setting flags of a directory locks all its fragments, too. A shard remembers of a directory that
 * it exists and has no such flag. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"

#define VERSION_LEAD 1000000u /* more than one inode is changed in a commit's time */

/* --- Where an entry is ------------------------------------------------------------------------ */

int lpi_entry_set(struct lpi_entry *entry, struct lp_ino dir, struct lp_bytes name)
{
	if (name.len > LP_KEY_NAME_MAX)
		return -ENAMETOOLONG;
	if (!lp_key_name_is_valid(name.data, name.len))
		return -EINVAL;
	memset(entry, 0, offsetof(struct lpi_entry, name));
	entry->dir = dir;
	entry->name_len = (uint8_t)name.len;
	memcpy(entry->name, name.data, name.len);
	return 0;
}

static bool place(const struct lpi_job *job, struct lpi_entry *entry)
{
	const struct lp_ns *ns = job->ns;
	if (!lpi_dir_kind_find(ns, entry->dir, &entry->dir_is_spread))
		return false;
	entry->shard_idx =
		lpi_shard_of_entry(ns, entry->dir, entry->dir_is_spread, lpi_entry_name(entry));
	return true;
}

static void kinds_known(struct lpi_job *job);

/* Asks for the kind of directories that is not known here. */
static void place_all(struct lpi_job *job)
{
	for (uint32_t i = 0; i < job->place_cnt; i++) {
		struct lpi_entry *entry = i == 0 ? &job->entry : &job->to;
		if (place(job, entry))
			continue;
		struct lp_store_op *op = lpi_job_op(job, i);
		op->opcode = LP_STORE_STAT;
		op->stat.ino = entry->dir;
		lpi_job_ask_dir(job, lp_ino_shard(entry->dir), i);
	}
	if (job->pending > 0)
		lpi_job_wait(job, kinds_known);
	else
		job->placed(job);
}

static void kinds_known(struct lpi_job *job)
{
	for (uint32_t i = 0; i < job->place_cnt; i++) {
		const struct lpi_job_ask *ask = &job->asks[i];
		struct lpi_entry *entry = i == 0 ? &job->entry : &job->to;
		if (ask->op.stat.ino.nr != entry->dir.nr || ask->op.opcode != LP_STORE_STAT)
			continue;
		int r = ask->call.result;
		if (r >= 0 && ask->op.stat.attrs.type != LP_INODE_TYPE_DIR)
			r = -ENOTDIR;
		if (r < 0) {
			lpi_job_end(job, r == -ENOENT ? -ESTALE : r);
			return;
		}
		bool is_spread = (ask->op.stat.attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
		lpi_dir_kind_learn(job->ns, entry->dir, is_spread);
		/* Not from the cache, where another directory may have taken its place. */
		entry->dir_is_spread = is_spread;
		entry->shard_idx =
			lpi_shard_of_entry(job->ns, entry->dir, is_spread, lpi_entry_name(entry));
	}
	job->placed(job);
}

void lpi_names_place(struct lpi_job *job, uint32_t cnt, lpi_step_fn *next)
{
	job->place_cnt = cnt;
	job->placed = next;
	if (!lpi_ino_is_sane(job->ns, job->entry.dir) ||
	    (cnt > 1 && !lpi_ino_is_sane(job->ns, job->to.dir))) {
		lpi_job_fail(job, -ESTALE);
		return;
	}
	for (uint32_t i = 0; i < cnt; i++)
		(void)lpi_job_op(job, i); /* marks directories that were not asked for */
	place_all(job);
}

/* --- Looking at entries ----------------------------------------------------------------------- */

static void set_lookup(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx)
{
	struct lp_store_op *op = lpi_job_op(job, idx);
	op->opcode = LP_STORE_LOOKUP;
	op->lookup.dir = entry->dir;
	op->lookup.name = lpi_entry_name(entry);
}

void lpi_entry_ask_held(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx,
			uint32_t stat_idx)
{
	set_lookup(job, entry, idx);
	lpi_job_ask_held(job, entry->shard_idx, idx, stat_idx, false);
}

void lpi_entry_ask(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx, bool is_locked)
{
	set_lookup(job, entry, idx);
	lpi_job_ask(job, entry->shard_idx, idx, is_locked);
}

int lpi_entry_take(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx)
{
	const struct lp_store_op *op = &job->asks[idx].op;
	int r = job->asks[idx].call.result;
	entry->ino.nr = 0;
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	entry->ino = op->lookup.ino;
	entry->type = op->lookup.type;
	entry->insertion = op->lookup.insertion;
	entry->has_attrs = op->lookup.has_attrs;
	if (entry->has_attrs)
		entry->attrs = op->lookup.attrs;
	return 0;
}

/* --- The directory of an entry ---------------------------------------------------------------- */

static void dir_asked(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	const struct lpi_entry *entry = job->needs_dir;
	int r = ask->call.result;
	/* A directory that was removed, and is open. */
	if (r >= 0 && ask->op.stat.attrs.nlink == 0)
		r = -ENOENT;
	if (r == -ENOENT && job->dir_is_gone != NULL) {
		job->dir_is_gone(job);
		return;
	}
	if (r < 0) {
		job->dir_failed(job, r);
		return;
	}
	uint32_t flags = ask->op.stat.attrs.flags;
	if ((flags & job->needs_no_flags) != 0) {
		job->dir_failed(job, -EPERM);
		return;
	}
	if (entry->shard_idx == job->ns->options.shard_idx && (flags & LP_INODE_FLAGS_KEEPING) == 0)
		lpi_dir_alive_learn(job->ns, entry->dir);
	job->dir_is_there(job);
}

/* A removed directory that is still open has its inode. Only its sealed fragment shows the removal,
 * and refuses the entry. If another shard decides, the change is only prepared here, and the
 * fragment would refuse it after the decision. An operation that makes an inode decides on the
 * inode's shard. */
static bool may_be_prepared(const struct lpi_job *job, const struct lpi_entry *entry)
{
	enum lp_ns_opcode opcode = job->op->opcode;
	bool makes = opcode != LP_NS_LINK && opcode != LP_NS_RENAME && opcode != LP_NS_MOVE;
	return job->ns->options.shard_cnt > 1 &&
	       (!makes || lp_ino_shard(job->new_ino) != entry->shard_idx);
}

static bool is_known_alive(const struct lpi_job *job, const struct lpi_entry *entry)
{
	return entry->shard_idx == job->ns->options.shard_idx &&
	       lpi_dir_is_alive(job->ns, entry->dir);
}

static void ask_dir(struct lpi_job *job, const struct lpi_entry *entry)
{
	uint32_t shard_idx = lp_ino_shard(entry->dir);
	struct lp_store_op *op = lpi_job_op(job, 0);
	job->needs_dir = entry;
	op->opcode = LP_STORE_STAT;
	op->stat.ino = entry->dir;
	if (shard_idx == entry->shard_idx)
		lpi_job_ask_dir(job, shard_idx, 0); /* in its log before the entry */
	else
		lpi_job_ask_durable(job, shard_idx, 0); /* the entry's shard remembers it */
	lpi_job_wait(job, dir_asked);
}

void lpi_entry_need_dir(struct lpi_job *job, struct lpi_entry *entry, lpi_end_fn *end,
			lpi_step_fn *next)
{
	if (lp_ino_shard(entry->dir) == entry->shard_idx) {
		lpi_job_guard_flags(job, entry->dir, LP_INODE_FLAG_IMMUTABLE);
		if (!may_be_prepared(job, entry)) {
			next(job);
			return;
		}
	}
	if (is_known_alive(job, entry)) {
		next(job);
		return;
	}
	job->needs_no_flags = LP_INODE_FLAG_IMMUTABLE;
	job->dir_is_there = next;
	job->dir_failed = end;
	ask_dir(job, entry);
}

/* The guard is checked before anything is promised, and the name is held from before that. */
void lpi_entry_may_lose(struct lpi_job *job, struct lpi_entry *entry, lpi_end_fn *end,
			lpi_step_fn *next)
{
	bool is_beside = lp_ino_shard(entry->dir) == entry->shard_idx;
	if (is_beside)
		lpi_job_guard_flags(job, entry->dir, LP_INODE_FLAGS_KEEPING);
	if (is_beside || is_known_alive(job, entry)) {
		next(job);
		return;
	}
	job->needs_no_flags = LP_INODE_FLAGS_KEEPING;
	job->dir_is_there = next;
	job->dir_failed = end;
	ask_dir(job, entry);
}

static void dir_begin_again(struct lpi_job *job)
{
	if (job->is_gone_spread && job->wide == NULL)
		lpi_job_take_wide(job, job->begin_again);
	else
		job->begin_again(job);
}

static void dir_peeked(struct lpi_job *job)
{
	const struct lpi_dir_stat *stat = &job->dir_stat;
	int r = stat->result;
	if (r == -ENOENT)
		r = lpi_corrupt_name(stat->ino);
	/* The commit guards this, too. It is checked here so that -EPERM comes before
	 * -ENOTEMPTY. */
	if (r >= 0 && (stat->attrs.flags & LP_INODE_FLAGS_KEEPING) != 0)
		r = -EPERM;
	if (r >= 0 && stat->entries_cnt > 0)
		r = -ENOTEMPTY;
	if (r < 0) {
		lpi_job_stop(job, r);
		return;
	}
	job->gone_dir = stat->ino;
	job->is_gone_spread = (stat->attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
	lpi_job_again(job, dir_begin_again);
}

void lpi_dir_need(struct lpi_job *job, struct lp_ino dir, lpi_step_fn *begin, lpi_step_fn *next)
{
	if (job->gone_dir.nr == dir.nr) {
		next(job);
		return;
	}
	job->begin_again = begin;
	lpi_stat(job, dir, false, dir_peeked);
}

int lpi_corrupt_name(struct lp_ino ino)
{
	return LP_CORRUPT(LP_OFFSET_NONE, "a name leads to inode %llx, which is not there",
			  (unsigned long long)ino.nr);
}

/* --- Changes ---------------------------------------------------------------------------------- */

static void touch_dir(struct lpi_job *job, const struct lpi_entry *entry)
{
	struct lp_change *change = lpi_job_change(job, entry->shard_idx, LP_CHANGE_DIR, entry->dir);
	change->dir.mtime_ns = job->now_ns;
	change->dir.ctime_ns = job->now_ns;
}

void lpi_entry_set_change(struct lpi_job *job, const struct lpi_entry *entry, struct lp_ino target,
			  uint8_t type)
{
	struct lp_change *change =
		lpi_job_change(job, entry->shard_idx, LP_CHANGE_ENTRY_SET, entry->dir);
	change->named.name = lpi_entry_name(entry);
	change->named.target = target;
	change->named.target_type = type;
	touch_dir(job, entry);
}

void lpi_entry_remove_change(struct lpi_job *job, const struct lpi_entry *entry)
{
	lpi_job_change(job, entry->shard_idx, LP_CHANGE_ENTRY_REMOVE, entry->dir)->named.name =
		lpi_entry_name(entry);
	touch_dir(job, entry);
}

void lpi_entry_count_dir(struct lpi_job *job, const struct lpi_entry *entry, int32_t delta)
{
	if (entry->dir_is_spread || delta == 0)
		return;
	LP_ASSERT(entry->shard_idx == lp_ino_shard(entry->dir));
	lpi_job_change(job, entry->shard_idx, LP_CHANGE_LINK, entry->dir)->inode.delta = delta;
}

struct lp_change *lpi_ino_set_change(struct lpi_job *job, struct lp_ino ino, uint32_t mask)
{
	struct lp_attrs *attrs = lpi_job_attrs(job);
	attrs->ctime_ns = job->now_ns;
	struct lp_change *change = lpi_job_change(job, lp_ino_shard(ino), LP_CHANGE_SET, ino);
	change->inode.attrs = attrs;
	change->inode.mask = mask | LP_ATTR_CTIME;
	/* A prepared record contains a type, which has no meaning here. */
	attrs->type = LP_INODE_TYPE_FILE;
	return change;
}

bool lpi_version_above(struct lp_attrs *attrs, uint64_t shown_nr, bool may_guard)
{
	if (lp_version_at(attrs->ctime_ns) > shown_nr + VERSION_LEAD)
		return false;
	uint64_t above = shown_nr + 1 + (may_guard ? 0 : VERSION_LEAD);
	attrs->ctime_ns = LP_MAX(attrs->ctime_ns, (int64_t)(above * LP_NS_PER_US));
	return may_guard;
}

struct lp_attrs *lpi_ino_name_change(struct lpi_job *job, struct lp_ino ino,
				     const struct lpi_entry *where)
{
	struct lp_change *change = lpi_ino_set_change(job, ino, LP_ATTR_PARENT);
	struct lp_attrs *attrs = &job->attrs[job->attrs_cnt - 1];
	change->inode.name = lpi_entry_name(where);
	attrs->parent = where->dir;
	return attrs;
}

/* Reports it in the log and for a check. The name is removed all the same, which makes nothing
 * worse. */
static void tell_no_links(struct lp_ino ino)
{
	int damage = LP_CORRUPT(LP_OFFSET_NONE, "a name leads to inode %llx, which has no links",
				(unsigned long long)ino.nr);
	LP_ASSERT(damage < 0);
}

void lpi_ino_lose_name(struct lpi_job *job, struct lp_ino ino, const struct lp_attrs *attrs)
{
	if (attrs->nlink == 0)
		tell_no_links(ino);
	lpi_job_guard_flags(job, ino, LP_INODE_FLAGS_KEEPING);
	if (attrs->nlink <= 1) {
		lpi_job_unname(job, ino);
		return;
	}
	lpi_job_change(job, lp_ino_shard(ino), LP_CHANGE_LINK, ino)->inode.delta = -1;
	(void)lpi_ino_set_change(job, ino, 0);
}

void lpi_dir_lock(struct lpi_job *job)
{
	struct lp_ino ino = job->gone_dir;
	if (ino.nr != 0 && job->is_gone_spread)
		lpi_job_lock_fragments(job, ino);
	else if (ino.nr != 0)
		lpi_job_lock_fragment(job, lp_ino_shard(ino), ino);
}

void lpi_dir_lose(struct lpi_job *job, struct lp_ino ino)
{
	bool is_spread = job->is_gone_spread;
	lpi_job_guard_flags(job, ino, LP_INODE_FLAGS_KEEPING);
	for (uint32_t i = 0; is_spread && i < job->ns->options.shard_cnt; i++)
		lpi_job_seal(job, i, ino);
	if (!is_spread)
		lpi_job_seal(job, lp_ino_shard(ino), ino);
	lpi_job_unname(job, ino);
}
