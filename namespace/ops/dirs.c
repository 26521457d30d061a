/* SPDX-License-Identifier: Apache-2.0 */
/* Stat and set, of directories over all fragments.
 *
 * Adding or removing a name leaves its time in the fragment of the entry's shard. So files can be
 * made in a spread directory without asking the shard of its inode. The directory's times are the
 * newest of all. When they are set, the same change removes those of the fragments, which could be
 * newer. A directory with one fragment has it beside the inode. An mtime in this fragment was
 * written after the mtime was set, so it counts, even if it is older. This does not hold for ctime,
 * which each change of the inode sets. With several fragments a reader cannot know whether all
 * times were removed at one moment, so the newest counts. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"
#include "namespace/state/acl.h"

#define TIME_FORGOTTEN INT64_MIN /* older than any */
/* Tries to set a mode while others keep changing the access list or the owner. */
#define SET_TRIES_MAX 64u

static const uint32_t settable = LP_ATTR_MODE | LP_ATTR_UID | LP_ATTR_GID | LP_ATTR_ATIME |
				 LP_ATTR_MTIME | LP_ATTR_CTIME | LP_ATTR_BTIME | LP_ATTR_FLAGS;
/* Flags that only the namespace sets. */
static const uint32_t own_flags =
	LP_INODE_FLAG_MADE_BY_PUT | LP_INODE_FLAG_SPREAD | LP_INODE_FLAG_SEALED;

/* --- Stat ------------------------------------------------------------------------------------- */

static void sum_more(struct lpi_job *job);

/* A failed operation holds nothing. */
static void end_stat(struct lpi_job *job)
{
	struct lpi_dir_stat *stat = &job->dir_stat;
	bool is_for_nothing = stat->holds && stat->result < 0;
	stat->holds = false;
	if (is_for_nothing)
		lpi_let_go(job, stat->ino, stat->next);
	else
		stat->next(job);
}

/* A time in the only fragment came after any that was set, even if the set one lies in the future.
 * A directory that was removed, and is open, has a set time without a fragment. */
static bool says_mtime(const struct lpi_dir_stat *stat, const struct lpi_fragment_view *fragment)
{
	return (stat->attrs.flags & LP_INODE_FLAG_SPREAD) == 0 && stat->attrs.nlink > 0 &&
	       fragment->mtime_ns != TIME_FORGOTTEN;
}

static void add_fragment(struct lpi_dir_stat *stat, const struct lpi_fragment_view *fragment)
{
	stat->entries_cnt += fragment->entries_cnt;
	stat->name_bytes += fragment->name_bytes;
	/* 0: no fragment, or one that was never touched. */
	if (fragment->mtime_ns != 0 &&
	    (fragment->mtime_ns > stat->attrs.mtime_ns || says_mtime(stat, fragment)))
		stat->attrs.mtime_ns = fragment->mtime_ns;
	if (fragment->ctime_ns != 0 && fragment->ctime_ns > stat->attrs.ctime_ns)
		stat->attrs.ctime_ns = fragment->ctime_ns;
}

static void fragments_known(struct lpi_job *job)
{
	struct lpi_dir_stat *stat = &job->dir_stat;
	for (uint32_t i = 0; i < stat->asked; i++) {
		int r = job->asks[i].call.result;
		if (r < 0 && stat->result >= 0)
			stat->result = r;
		const struct lpi_fragment_view view = lpi_fragment_view(&job->asks[i].op);
		if (r >= 0)
			add_fragment(stat, &view);
	}
	sum_more(job);
}

/* Asks some shards at a time. */
static void sum_more(struct lpi_job *job)
{
	struct lpi_dir_stat *stat = &job->dir_stat;
	bool is_spread = (stat->attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
	uint32_t end = is_spread ? job->ns->options.shard_cnt : lp_ino_shard(stat->ino) + 1;
	stat->asked = 0;
	while (stat->asked < LPI_JOB_ASKS && stat->shard_idx < end) {
		struct lp_store_op *op = lpi_job_op(job, stat->asked);
		op->opcode = LP_STORE_DIR;
		op->dir.ino = stat->ino;
		job->asks[stat->asked].call.shows_dir = job->op->opcode == LP_NS_STAT;
		lpi_job_ask(job, stat->shard_idx++, stat->asked++, stat->is_locked);
	}
	if (stat->asked > 0) {
		lpi_job_wait(job, fragments_known);
		return;
	}
	stat->attrs.size_bytes = stat->name_bytes;
	end_stat(job);
}

static void inode_known(struct lpi_job *job)
{
	struct lpi_dir_stat *stat = &job->dir_stat;
	const struct lpi_job_ask *ask = &job->asks[0];
	stat->result = ask->call.result;
	if (stat->result >= 0)
		stat->attrs = ask->op.stat.attrs;
	else
		stat->holds = false;
	if (stat->result < 0 || stat->attrs.type != LP_INODE_TYPE_DIR) {
		stat->next(job);
		return;
	}
	bool is_spread = (stat->attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
	lpi_dir_kind_learn(job->ns, stat->ino, is_spread);
	stat->shard_idx = is_spread ? 0 : lp_ino_shard(stat->ino);
	sum_more(job);
}

static void begin_stat(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next)
{
	job->dir_stat = (struct lpi_dir_stat){.ino = ino, .next = next};
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = ino;
}

void lpi_stat(struct lpi_job *job, struct lp_ino ino, bool is_locked, lpi_step_fn *next)
{
	begin_stat(job, ino, next);
	job->dir_stat.is_locked = is_locked;
	lpi_job_ask(job, lp_ino_shard(ino), 0, is_locked);
	lpi_job_wait(job, inode_known);
}

void lpi_stat_held(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next)
{
	if (!job->op->hold) {
		lpi_stat(job, ino, false, next);
		return;
	}
	begin_stat(job, ino, next);
	job->dir_stat.holds = true;
	lpi_job_ask_held(job, lp_ino_shard(ino), 0, 1, false);
	lpi_job_wait(job, inode_known);
}

struct lp_ns_found lpi_stat_found(const struct lpi_job *job)
{
	const struct lpi_dir_stat *stat = &job->dir_stat;
	return (struct lp_ns_found){
		.ino = stat->ino, .attrs = stat->attrs, .entries_cnt = stat->entries_cnt};
}

/* As sum_more() does, from the boards of all shards. */
bool lp_ns_peek_dir(struct lp_ns *ns, struct lp_ino dir, struct lp_ns_found *ret_found)
{
	struct lpi_dir_stat stat = {.ino = dir};
	struct lpi_board_view view;
	if (ns->state != LPI_NS_SERVING || !lpi_ino_is_sane(ns, dir))
		return false;
	uint32_t own = lp_ino_shard(dir);
	if (!lpi_board_read(ns->peers[own]->board, dir, &view) ||
	    view.attrs.type != LP_INODE_TYPE_DIR)
		return false;
	stat.attrs = view.attrs;
	add_fragment(&stat, &view.fragment);
	bool is_spread = (stat.attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
	for (uint32_t i = 0; is_spread && i < ns->options.shard_cnt; i++) {
		if (i == own)
			continue;
		if (!lpi_board_read(ns->peers[i]->board, dir, &view))
			return false;
		add_fragment(&stat, &view.fragment);
	}
	stat.attrs.size_bytes = stat.name_bytes;
	*ret_found = (struct lp_ns_found){
		.ino = dir, .attrs = stat.attrs, .entries_cnt = stat.entries_cnt};
	return true;
}

static void stat_known(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r >= 0)
		job->op->stat.found = lpi_stat_found(job);
	lpi_job_end(job, r == -ENOENT ? -ESTALE : r);
}

void lpi_begin_stat(struct lpi_job *job)
{
	if (!lpi_ino_is_sane(job->ns, job->op->stat.ino)) {
		lpi_job_fail(job, -ESTALE);
		return;
	}
	lpi_stat_held(job, job->op->stat.ino, stat_known);
}

/* --- Set -------------------------------------------------------------------------------------- */

enum { ASK_ATTRS, ASK_LIST };

static void set_look(struct lpi_job *job);

static void set_stat_known(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r >= 0)
		job->op->set.found = lpi_stat_found(job);
	lpi_job_end(job, r == -ENOENT ? -ESTALE : r);
}

static bool rests_on_old(const struct lpi_job *job)
{
	return lp_rights_set_rests_on_old(&job->op->rights, job->op->set.mask);
}

static bool sets_mode(const struct lpi_job *job)
{
	return (job->op->set.mask & LP_ATTR_MODE) != 0;
}

/* Only the guards of the access list and of mode and owner fail with these errors. */
static bool is_other(const struct lpi_job *job, int result)
{
	if (rests_on_old(job) && result == -ECANCELED)
		return true;
	return sets_mode(job) && (result == -ECANCELED || result == -ENODATA || result == -EEXIST);
}

static void set_done(struct lpi_job *job)
{
	int r = job->pact.result;
	if (is_other(job, r) && job->tries < SET_TRIES_MAX)
		lpi_job_again(job, set_look);
	else if (is_other(job, r))
		lpi_job_end(job, -EAGAIN);
	else if (r < 0)
		lpi_job_end(job, r == -ENOENT ? -ESTALE : r);
	else
		lpi_stat(job, job->op->set.ino, false, set_stat_known);
}

static void forget_times(struct lpi_job *job, uint32_t shard_idx)
{
	uint32_t mask = job->op->set.mask;
	struct lp_change *change = lpi_job_change(job, shard_idx, LP_CHANGE_DIR, job->op->set.ino);
	change->dir.mtime_ns = (mask & LP_ATTR_MTIME) != 0 ? TIME_FORGOTTEN : 0;
	change->dir.ctime_ns = (mask & LP_ATTR_CTIME) != 0 ? TIME_FORGOTTEN : 0;
}

static bool sets_times(const struct lpi_job *job)
{
	return (job->op->set.mask & (LP_ATTR_MTIME | LP_ATTR_CTIME)) != 0;
}

/* The value that was read is a list, or -ENODATA. A value that is no valid list stays as it is,
 * because no kernel can use it. */
static int set_take_list(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[ASK_LIST];
	struct lpi_put *put = &job->put;
	int r = ask->call.result;
	put->acl_len = r >= 0 ? ask->op.get.value_len : 0;
	put->has_acl = r >= 0 && lp_acl_check(put->acl, put->acl_len) == 0;
	return r == -ENODATA || r == -ERANGE ? 0 : r;
}

static struct lp_change *list_change(struct lpi_job *job, enum lp_change_type type,
				     const void *value)
{
	struct lp_ino ino = job->op->set.ino;
	struct lp_change *change = lpi_job_change(job, lp_ino_shard(ino), type, ino);
	change->named.name = lp_acl_access_name();
	change->named.value = (struct lp_bytes){value, value == NULL ? 0 : job->put.acl_len};
	return change;
}

/* Adds the access list for the new mode to the same change, guarded by the list that was read. If
 * another client sets another list at that moment, the operation looks again. */
static void set_add_list(struct lpi_job *job)
{
	const struct lpi_put *put = &job->put;
	if (job->asks[ASK_LIST].call.result == -ENODATA)
		(void)list_change(job, LP_GUARD_NO_XATTR, NULL);
	if (!put->has_acl)
		return;
	memcpy(job->new_acl, put->acl, put->acl_len);
	lp_acl_chmod(job->new_acl, put->acl_len, job->op->set.attrs.mode);
	(void)list_change(job, LP_GUARD_XATTR, put->acl);
	if (memcmp(job->new_acl, put->acl, put->acl_len) != 0)
		(void)list_change(job, LP_CHANGE_XATTR_SET, job->new_acl);
	lpi_job_coordinate(job, lp_ino_shard(job->op->set.ino));
}

/* The inode's flags that forbid the set. Flags alone may always be set. */
static uint32_t flags_in_the_way(const struct lp_ns_op *op)
{
	uint32_t mask = op->set.mask & ~(uint32_t)LP_ATTR_CTIME;
	const uint32_t times = LP_ATTR_ATIME | LP_ATTR_MTIME;
	if (mask == LP_ATTR_FLAGS)
		return 0;
	return LP_INODE_FLAGS_KEEPING & ~((mask & ~times) == 0 ? op->set.passes : 0);
}

/* old: the present attributes. A directory of which a client has set any attribute no longer
 * vanishes (rule N2). */
static void set_commit(struct lpi_job *job, const struct lp_attrs *old)
{
	const struct lp_ns_op *op = job->op;
	struct lp_ino ino = op->set.ino;
	bool is_dir = old->type == LP_INODE_TYPE_DIR;
	bool is_spread = (old->flags & LP_INODE_FLAG_SPREAD) != 0;
	struct lp_attrs wanted = op->set.attrs;
	uint32_t mask = op->set.mask;
	int r = lp_rights_set(&op->rights, old, &wanted, &mask);
	if (r < 0) {
		lpi_job_end(job, r);
		return;
	}
	struct lp_change *change = lpi_ino_set_change(job, ino, mask);
	struct lp_attrs *attrs = &job->attrs[0];
	*attrs = wanted;
	attrs->type = old->type;
	attrs->mode &= 07777;
	if ((op->set.mask & LP_ATTR_CTIME) == 0)
		attrs->ctime_ns = job->now_ns;
	uint32_t own = old->flags & own_flags & ~LP_INODE_FLAG_MADE_BY_PUT;
	uint32_t others = (op->set.mask & LP_ATTR_FLAGS) != 0 ? op->set.attrs.flags : old->flags;
	attrs->flags = own | (others & LP_INODE_FLAGS_SETTABLE & ~own_flags);
	if ((old->flags & LP_INODE_FLAG_MADE_BY_PUT) != 0)
		change->inode.mask |= LP_ATTR_FLAGS;
	/* A directory that was removed, and is open, has no fragments any more. */
	is_dir = is_dir && old->nlink > 0;
	for (uint32_t i = 0; is_dir && sets_times(job) && i < job->ns->options.shard_cnt; i++) {
		if (is_spread || i == lp_ino_shard(ino))
			forget_times(job, i);
	}
	if (sets_mode(job))
		set_add_list(job);
	if (rests_on_old(job))
		lpi_job_guard_rights(job, ino, old); /* allowed for these */
	if (flags_in_the_way(op) != 0)
		lpi_job_guard_flags(job, ino, flags_in_the_way(op));
	lpi_job_commit(job, set_done);
}

static void set_ask(struct lpi_job *job, bool is_locked, lpi_step_fn *next)
{
	struct lp_ino ino = job->op->set.ino;
	struct lp_store_op *stat = lpi_job_op(job, ASK_ATTRS);
	stat->opcode = LP_STORE_STAT;
	stat->stat.ino = ino;
	lpi_job_ask(job, lp_ino_shard(ino), ASK_ATTRS, is_locked);
	if (sets_mode(job)) {
		struct lp_store_op *list = lpi_job_op(job, ASK_LIST);
		list->opcode = LP_STORE_GET;
		list->get.space = LP_STORE_XATTRS;
		list->get.ino = ino;
		list->get.name = lp_acl_access_name();
		list->get.buf = job->put.acl;
		list->get.buf_len = sizeof(job->put.acl);
		lpi_job_ask(job, lp_ino_shard(ino), ASK_LIST, is_locked);
	}
	lpi_job_wait(job, next);
}

static int set_take(struct lpi_job *job)
{
	int r = job->asks[ASK_ATTRS].call.result;
	if (r >= 0 && sets_mode(job))
		r = set_take_list(job);
	return r == -ENOENT ? -ESTALE : r;
}

static void set_locked_known(struct lpi_job *job)
{
	int r = set_take(job);
	const struct lp_attrs attrs = job->asks[ASK_ATTRS].op.stat.attrs;
	if (r < 0)
		lpi_job_end(job, r);
	else
		set_commit(job, &attrs);
}

static void set_locked(struct lpi_job *job)
{
	set_ask(job, true, set_locked_known);
}

static bool sets_flags(const struct lpi_job *job)
{
	return (job->op->set.mask & LP_ATTR_FLAGS) != 0;
}

/* While the flags of a directory change, no name of it is locked. So an owner of such a lock may
 * rely on the flags, and shards drop what they remember of them. */
static void set_lock(struct lpi_job *job)
{
	const struct lp_attrs *attrs = &job->asks[ASK_ATTRS].op.stat.attrs;
	struct lp_ino ino = job->op->set.ino;
	bool is_dir = attrs->type == LP_INODE_TYPE_DIR;
	if (sets_flags(job) && is_dir && (attrs->flags & LP_INODE_FLAG_SPREAD) != 0)
		lpi_job_lock_fragments(job, ino);
	else if (sets_flags(job) && is_dir)
		lpi_job_lock_fragment(job, lp_ino_shard(ino), ino);
	lpi_job_lock_inode(job, ino);
	lpi_job_lock(job, set_locked);
}

/* Flags are set as a whole, so an operation that changes them, or may, needs the inode's lock. */
static void set_known(struct lpi_job *job)
{
	int r = set_take(job);
	const struct lp_attrs attrs = job->asks[ASK_ATTRS].op.stat.attrs;
	bool needs_wide =
		(attrs.flags & LP_INODE_FLAG_SPREAD) != 0 && (sets_times(job) || sets_flags(job));
	if (r < 0) {
		lpi_job_end(job, r);
		return;
	}
	if (attrs.type != LP_INODE_TYPE_DIR && !sets_flags(job))
		set_commit(job, &attrs);
	else if (needs_wide && job->wide == NULL)
		lpi_job_take_wide(job, set_lock);
	else
		set_lock(job);
}

static void set_look(struct lpi_job *job)
{
	set_ask(job, false, set_known);
}

void lpi_begin_set(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	if (!lpi_ino_is_sane(job->ns, op->set.ino)) {
		lpi_job_fail(job, -ESTALE);
		return;
	}
	if ((op->set.mask & ~settable) != 0 ||
	    ((op->set.mask & LP_ATTR_MODE) != 0 && op->set.attrs.mode > 07777)) {
		lpi_job_fail(job, -EINVAL);
		return;
	}
	set_look(job);
}

/* --- A directory becomes one's own ------------------------------------------------------------ */

/* True for a transaction that stores something of a client's with an inode, if a directory can have
 * it, too. Data writes are no such transactions: a directory refuses them. */
bool lpi_txn_may_own(const struct lp_store_op *op)
{
	bool may = false;
	if (op->opcode != LP_STORE_TXN)
		return false;
	for (uint32_t i = 0; i < op->txn.change_cnt; i++) {
		const struct lp_change *change = &op->txn.changes[i];
		switch (change->type) {
		case LP_CHANGE_SET:
			/* Not if only the access time is set, by a read. */
			may = may || change->inode.mask != LP_ATTR_ATIME;
			break;
		case LP_CHANGE_XATTR_SET:
		case LP_CHANGE_XATTR_REMOVE:
		case LP_CHANGE_OMAP_SET:
		case LP_CHANGE_OMAP_REMOVE:
			may = true;
			break;
		case LP_CHANGE_WRITE:
		case LP_CHANGE_TRUNCATE:
		case LP_CHANGE_PUNCH:
		case LP_CHANGE_PREALLOC:
		case LP_CHANGE_CLONE:
			return false;
		default:
			break;
		}
	}
	return may;
}

static bool vanishes(const struct lp_attrs *attrs)
{
	return attrs->type == LP_INODE_TYPE_DIR && (attrs->flags & LP_INODE_FLAG_MADE_BY_PUT) != 0;
}

static void own_stored(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	int r = job->asks[0].call.result;
	if (lpi_txn_rests_on_seen(&op->store.op, r))
		job->seen_shards |= UINT64_C(1) << lp_ino_shard(op->store.ino);
	lpi_job_end(job, r);
}

static void own_store(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	lpi_job_submit(job, lp_ino_shard(op->store.ino), 0, &op->store.op);
	lpi_job_wait(job, own_stored);
}

/* The flag stays cleared if a guard of the transaction then fails: that loses nothing. */
static void own_cleared(struct lpi_job *job)
{
	if (job->pact.result < 0)
		lpi_job_end(job, job->pact.result);
	else
		own_store(job);
}

static void own_locked_known(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	const struct lp_attrs old = job->asks[0].op.stat.attrs;
	if (r < 0) {
		lpi_job_end(job, r);
		return;
	}
	if (!vanishes(&old)) {
		lpi_job_unlock(job, own_store);
		return;
	}
	(void)lpi_ino_set_change(job, job->op->store.ino, LP_ATTR_FLAGS);
	job->attrs[0].type = old.type;
	job->attrs[0].flags = old.flags & ~LP_INODE_FLAG_MADE_BY_PUT;
	lpi_job_commit(job, own_cleared);
}

static void own_ask(struct lpi_job *job, bool is_locked, lpi_step_fn *next)
{
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->op->store.ino;
	lpi_job_ask(job, lp_ino_shard(op->stat.ino), 0, is_locked);
	lpi_job_wait(job, next);
}

static void own_locked(struct lpi_job *job)
{
	own_ask(job, true, own_locked_known);
}

static void own_known(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	if (ask->call.result < 0 || !vanishes(&ask->op.stat.attrs)) {
		own_store(job);
		return;
	}
	lpi_job_lock_inode(job, job->op->store.ino);
	lpi_job_lock(job, own_locked);
}

/* Called before a client stores something with a directory that a put made: the directory must no
 * longer vanish (rule N2). No existing directory gets that flag later, so another directory needs
 * no lock. */
void lpi_begin_own_store(struct lpi_job *job)
{
	own_ask(job, false, own_known);
}
