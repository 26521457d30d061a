/* SPDX-License-Identifier: Apache-2.0 */
/* Steps that operations on a name in a directory share (ops/names.c and others).
 *
 * Threads: the shard's.
 * Blocking, memory: none.
 *
 * Versions: a name that leads to one object and later to another never shows one version twice
 * (rule W3). A client that remembers one, for a condition or in the middle of a read, would take
 * the other object for it.
 *   - A new inode's version begins with the microseconds since 1970 of its change time
 *     (lp_version_at()). When it gets a name (an upload, a rename, a hard link), the version is at
 *     least that again. So it is the same when a log is replayed.
 *   - Each other change adds 1, except a read, which sets the access time only. No object changes
 *     more than a million times a second, so no version runs ahead of the clock. A change time that
 *     a client sets does not count.
 *   - A put takes its time at its commit, as rename and mkdir do. It takes at least one above the
 *     version of what it replaces, wherever the clock is. So does a rename; an exchange does it for
 *     both names.
 *   - The version of what is replaced is guarded if it is less than a million changes (a second)
 *     below. No other version can come near before the commit. So a file that is written all the
 *     time is replaced at once unless it is new, and otherwise after a second at most.
 *   - After 64 tries, or 32 of a put, the guard is given up, and the time is taken a second above
 *     it. That may happen when the file is new and commits are fast, or where the clock stands far
 *     behind.
 *   - If the clock goes back, what is made, moved or linked in place of something deleted has its
 *     version only in the very same microsecond. Versions of what was only ordered and lost in a
 *     crash may be given again. Rejected: the last version of each deleted name (a record each), or
 *     of each shard (in every frame).
 */
#ifndef LP_NAMESPACE_OPS_NAMES_H
#define LP_NAMESPACE_OPS_NAMES_H

#include "namespace/change/job.h"

static inline struct lp_bytes lpi_entry_name(const struct lpi_entry *entry)
{
	return (struct lp_bytes){entry->name, entry->name_len};
}

/* Copies the name. -EINVAL, -ENAMETOOLONG. */
int lpi_entry_set(struct lpi_entry *entry, struct lp_ino dir, struct lp_bytes name) LP_MUST_CHECK;
/* Finds the shards of job->entry and, with cnt 2, of job->to; or ends the job: -ESTALE, -ENOTDIR.
 */
void lpi_names_place(struct lpi_job *job, uint32_t cnt, lpi_step_fn *next);
/* Looks an entry up by asks[idx], and takes what was found: ino.nr 0 if there is none. */
void lpi_entry_ask(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx, bool is_locked);
int lpi_entry_take(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx) LP_MUST_CHECK;

/* Sees to it that the directory is there when something is added to it, whose name is locked: by a
 * guard of the change where its inode is on the same shard, else by asking now. Or goes on with
 * job->dir_is_gone, if there is that; or with end, which gives back what the operation has taken:
 * -ENOENT, and what asking says. */
void lpi_entry_need_dir(struct lpi_job *job, struct lpi_entry *entry, lpi_end_fn *end,
			lpi_step_fn *next);
/* The same of a directory of which the entry is to go, or to lead elsewhere: -EPERM where the flags
 * of the directory forbid that. */
void lpi_entry_may_lose(struct lpi_job *job, struct lpi_entry *entry, lpi_end_fn *end,
			lpi_step_fn *next);
/* Goes on with next if the fragments of the directory, which is to go, are locked. Else the job
 * gives everything back, and begins again; lpi_dir_lock() then locks them with the names, in one
 * order: who waited for a whole fragment with names in his hands would wait in circles. A directory
 * that is not empty stops the job at once: -ENOTEMPTY. */
void lpi_dir_need(struct lpi_job *job, struct lp_ino dir, lpi_step_fn *begin, lpi_step_fn *next);
void lpi_dir_lock(struct lpi_job *job);
int lpi_corrupt_name(struct lp_ino ino) LP_MUST_CHECK;
/* Changes of the entry on its shard; the directory's times are now. */
void lpi_entry_set_change(struct lpi_job *job, const struct lpi_entry *entry, struct lp_ino target,
			  uint8_t type);
void lpi_entry_remove_change(struct lpi_job *job, const struct lpi_entry *entry);
/* The link count of a directory that is not spread: it has those of its directories. */
void lpi_entry_count_dir(struct lpi_job *job, const struct lpi_entry *entry, int32_t delta);
/* A change of an inode's attributes: those in mask, and its ctime. */
struct lp_change *lpi_ino_set_change(struct lpi_job *job, struct lp_ino ino, uint32_t mask);
/* It gets a name there: its hint, and its version, which begins with the ctime that is returned. */
struct lp_attrs *lpi_ino_name_change(struct lpi_job *job, struct lp_ino ino,
				     const struct lpi_entry *where);
/* Counted among what a mount has open: what it opens or makes, from the beginning. */
bool lpi_open_is_mounts(const struct lp_ns_op *op);
/* Puts a ctime whose version is above what the name has shown, wherever the clock is. Returns
 * whether what has shown it may come near before the commit, so that its version is to be guarded:
 * where that may not be, the new version is out of its reach. */
bool lpi_version_above(struct lp_attrs *attrs, uint64_t shown_nr, bool may_guard);
/* One name of a file less. attrs are as it is now, locked. */
void lpi_ino_lose_name(struct lpi_job *job, struct lp_ino ino, const struct lp_attrs *attrs);
/* A directory goes; its fragments are locked. */
void lpi_dir_lose(struct lpi_job *job, struct lp_ino ino);

/* Removes what job->entry, whose shard is known, leads to, if it is as job->removal says; stops the
 * job (lpi_job_stop()). -ENOENT, -EISDIR, -ENOTDIR, -ENOTEMPTY; -ESTALE: not that one;
 * -EPERM: not made by a put; -ECANCELED. */
void lpi_remove(struct lpi_job *job);
/* Renames job->entry to job->to, whose shards are known, as job->rename_flags and job->rename_if
 * say; stops the job. */
void lpi_rename(struct lpi_job *job);

/* lpi_entry_ask() of a lookup that holds what it finds: what it then takes attributes of. */
void lpi_entry_ask_held(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx,
			uint32_t stat_idx);
/* Attributes of an inode; of a directory over all fragments. In job->dir_stat are then: result,
 * -ENOENT if it is gone; attrs; entries_cnt. With is_locked inode and fragments are the job's. */
void lpi_stat(struct lpi_job *job, struct lp_ino ino, bool is_locked, lpi_step_fn *next);
/* The same, for a result that holds the inode, if the operation is to: see ns.h. */
void lpi_stat_held(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next);
struct lp_ns_found lpi_stat_found(const struct lpi_job *job);
/* Lets an inode go that was held for nothing. */
void lpi_let_go(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next);

/* Counts the inode as open on its shard, and goes on when it is known to be there: *result* as of
 * lpi_stat(). It is job->counted then. */
void lpi_open_count(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next);
/* Takes that back, if it was. */
void lpi_open_uncount(struct lpi_job *job, lpi_step_fn *next);
/* Ends the job; after a failure what was counted is taken back, and what is held let go. */
void lpi_names_end(struct lpi_job *job, int result);

#endif
