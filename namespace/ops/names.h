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
 *     least that again. So a replay of the log gives the same version.
 *   - Each other change adds 1, except a read, which sets the access time only. No object changes
 *     more than a million times a second, so no version runs ahead of the clock. A change time that
 *     a client sets does not count.
 *   - A put takes its time at its commit, as rename and mkdir do. It takes at least one above the
 *     version of the inode that it replaces, even if the clock is behind. So does a rename; an
 *     exchange does it for both names.
 *   - The version of the replaced inode is guarded if it is less than a million changes (a second)
 *     below. No other version can come near before the commit. So a put replaces a file that is
 *     always being written at once, or after at most a second if the file is new.
 *   - After 64 tries, or 32 of a put, the guard is given up, and the time is taken a second above
 *     it. That may happen when the file is new and commits are fast, or where the clock stands far
 *     behind.
 *   - If the clock goes back, an inode that is made, moved or linked in place of a deleted one has
 *     the same version only in the very same microsecond. Versions of ordered changes that a crash
 *     took back may be given again. Rejected: the last version of each deleted name (a record
 *     each), or of each shard (in every frame).
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
/* Looks an entry up by asks[idx], and takes the answer: ino.nr 0 if there is none. */
void lpi_entry_ask(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx, bool is_locked);
int lpi_entry_take(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx) LP_MUST_CHECK;

/* Ensures that the directory exists when a name, which is locked, is added to it. If its inode is
 * on the same shard the change gets a guard; otherwise its shard is asked now. If it does not exist
 * the job goes on with job->dir_is_gone, if set. Otherwise it goes on with end, which gives back
 * all that the operation has taken: -ENOENT, or the error of asking. */
void lpi_entry_need_dir(struct lpi_job *job, struct lpi_entry *entry, lpi_end_fn *end,
			lpi_step_fn *next);
/* The same of a directory from which the entry will be removed, or in which it will lead to another
 * inode: -EPERM if the directory's flags forbid that. */
void lpi_entry_may_lose(struct lpi_job *job, struct lpi_entry *entry, lpi_end_fn *end,
			lpi_step_fn *next);
/* Goes on with next if the fragments of the directory that will be removed are locked. Otherwise
 * the job gives everything back and begins again; lpi_dir_lock() then locks them with the names, in
 * one order. A job that waits for a whole fragment while it holds names could cause a deadlock. A
 * directory that is not empty stops the job at once: -ENOTEMPTY. */
void lpi_dir_need(struct lpi_job *job, struct lp_ino dir, lpi_step_fn *begin, lpi_step_fn *next);
void lpi_dir_lock(struct lpi_job *job);
int lpi_corrupt_name(struct lp_ino ino) LP_MUST_CHECK;
/* Adds the entry's changes on its shard; the directory's times are set to now. */
void lpi_entry_set_change(struct lpi_job *job, const struct lpi_entry *entry, struct lp_ino target,
			  uint8_t type);
void lpi_entry_remove_change(struct lpi_job *job, const struct lpi_entry *entry);
/* Changes the link count of a directory that is not spread: it counts its subdirectories. */
void lpi_entry_count_dir(struct lpi_job *job, const struct lpi_entry *entry, int32_t delta);
/* Adds a change of an inode's attributes: those in mask, and its ctime. */
struct lp_change *lpi_ino_set_change(struct lpi_job *job, struct lp_ino ino, uint32_t mask);
/* The inode gets a name there: sets its hint and its version, which begins with the ctime that is
 * returned. */
struct lp_attrs *lpi_ino_name_change(struct lpi_job *job, struct lp_ino ino,
				     const struct lpi_entry *where);
/* True if an inode that the operation opens or makes is counted as open by the mount. */
bool lpi_open_is_mounts(const struct lp_ns_op *op);
/* Sets a ctime whose version is above the one that the name has shown, even if the clock is behind.
 * Returns true if the shown inode's version may reach the new one before the commit: the caller
 * must then guard it. Where may_guard is false, the new version is out of its reach. */
bool lpi_version_above(struct lp_attrs *attrs, uint64_t shown_nr, bool may_guard);
/* Removes one name of a file. attrs are its present attributes; it is locked. */
void lpi_ino_lose_name(struct lpi_job *job, struct lp_ino ino, const struct lp_attrs *attrs);
/* Removes a directory, whose fragments are locked. */
void lpi_dir_lose(struct lpi_job *job, struct lp_ino ino);

/* Removes the inode or name that job->entry leads to, whose shard is known, if it fulfils
 * job->removal; stops the job (lpi_job_stop()). -ENOENT, -EISDIR, -ENOTDIR, -ENOTEMPTY; -ESTALE:
 * another inode; -EPERM: not made by a put; -ECANCELED. */
void lpi_remove(struct lpi_job *job);
/* Renames job->entry to job->to, whose shards are known, with job->rename_flags and job->rename_if;
 * stops the job. */
void lpi_rename(struct lpi_job *job);

/* lpi_entry_ask() of a lookup that holds the inode it finds, before it reads the attributes. */
void lpi_entry_ask_held(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx,
			uint32_t stat_idx);
/* Reads attributes of an inode; of a directory over all fragments. Then job->dir_stat has: result,
 * -ENOENT if the inode is gone; attrs; entries_cnt. With is_locked the job has the locks of inode
 * and fragments. */
void lpi_stat(struct lpi_job *job, struct lp_ino ino, bool is_locked, lpi_step_fn *next);
/* The same, for a result that holds the inode if the operation asks for that: see ns.h. */
void lpi_stat_held(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next);
struct lp_ns_found lpi_stat_found(const struct lpi_job *job);
/* Gives back a hold that is not needed. */
void lpi_let_go(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next);

/* Counts the inode as open on its shard, and goes on when it is known to exist: *result* as of
 * lpi_stat(). It is job->counted then. */
void lpi_open_count(struct lpi_job *job, struct lp_ino ino, lpi_step_fn *next);
/* Takes the count back, if there is one. */
void lpi_open_uncount(struct lpi_job *job, lpi_step_fn *next);
/* Ends the job. After a failure it takes the count of job->counted back and gives the hold on
 * job->held back. */
void lpi_names_end(struct lpi_job *job, int result);

#endif
