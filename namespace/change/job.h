/* SPDX-License-Identifier: Apache-2.0 */
/* An operation at work: what it asks of shards, the locks it holds, the change it makes.
 *
 * Threads: the shard's where the operation was submitted.
 * Blocking, memory: none.
 *
 * An operation is written as a chain of small functions. Each starts something and names the
 * function that goes on when all of it is done:
 *
 *   lpi_job_lock_name(), lpi_job_lock(job, looked)      -> looked(job) when it has all its locks
 *   lpi_job_ask(job, shard, idx), lpi_job_wait(job, f)  -> f(job) when all asked is answered
 *   lpi_job_change(...), lpi_job_commit(job, f)         -> f(job) when the outcome is known
 *   lpi_job_end(job, result)                            the operation is answered
 *
 * lpi_job_end() gives back whatever was asked for: locks, open inodes, a wide set.
 *
 * What a look may rest on (P3, rule M1):
 *   - An operation of a mount need only be ordered. Its looks do not wait until what they see is
 *     durable. On shards that take part in the change, it is in the log before the change. What was
 *     seen on other shards and is not durable is synced before the commit. Otherwise a crash might
 *     take it back and leave the change.
 *   - If such a shard has failed and lost something, the change fails with -EIO. If the shard was
 *     already read-only when it was looked at, the change does not fail, because what is served
 *     then is durable (rule L7).
 *   - A durable change by number and name looks in the same way. Otherwise several changes in a row
 *     would each wait for the one before to finish on all shards, a third write in sequence. If it
 *     makes no change, what it has seen is synced before the answer, also where the store refused a
 *     transaction of its own (`LP_NS_STORE`).
 *   - Only that a directory is there, which a shard remembers for others, is always seen durable.
 */
#ifndef LP_NAMESPACE_CHANGE_JOB_H
#define LP_NAMESPACE_CHANGE_JOB_H

#include "namespace/change/packed_items.h"
#include "namespace/change/pact.h"
#include "namespace/ns.h"
#include "namespace/state/acl.h"

#define LPI_JOB_ASKS  6u
#define LPI_JOB_LOCKS 8u
#define LPI_JOB_PARTS 8u
/* Inodes whose attributes a readdir asks for at once, if it has a batch. */
#define LPI_STAT_BATCH   48u
#define LPI_STAT_BATCHES 8u

struct lpi_job;
struct lpi_list;
struct lpi_notice;
struct lpi_copy_page;
typedef void lpi_step_fn(struct lpi_job *job);
typedef void lpi_end_fn(struct lpi_job *job, int result);

/* The classes of locks, in the order in which they are requested (namespace NS2). Whole fragments
 * and names are in one order, a fragment before its names. The owner of a name's lock holds its
 * fragment, too, shared, and so blocks a job that wants the whole fragment. In another order it
 * could wait for names of that same job. */
enum lpi_lock_class {
	LPI_CLASS_TOKEN, /* of operations that move directories: on shard 0 */
	LPI_CLASS_FRAGMENT,
	LPI_CLASS_NAME,
	LPI_CLASS_INODE
};

struct lpi_job_lock {
	enum lpi_lock_class class;
	uint32_t shard_idx;
	bool is_asked_for;
	bool is_in_pact; /* the pact releases it */
	struct lpi_lock lock;
	struct lpi_call call;
	struct lpi_job *job;
};

struct lpi_job_ask {
	struct lpi_call call;
	struct lp_store_op op;
	struct lpi_job *job;
};

struct lpi_stat_batch {
	struct lpi_job_ask asks[LPI_STAT_BATCH];
};

/* Locks and parts on all shards, for the removal of a spread directory. */
struct lpi_wide {
	struct lpi_wide *next; /* list of the unused ones */
	uint32_t cnt;
	struct lpi_job_lock *locks; /* one for each shard */
	struct lpi_part *parts;
};

/* An entry as it was found under its lock. */
struct lpi_entry {
	struct lp_ino dir;
	bool dir_is_spread;
	uint32_t shard_idx; /* of the entry */
	uint8_t name_len;
	struct lp_ino ino; /* nr 0: there is none */
	uint8_t type;
	bool has_attrs;
	struct lp_attrs attrs;
	uint64_t insertion;
	char name[255]; /* must be last: only the fields before it are cleared */
};

/* The sum over all fragments of a directory. */
struct lpi_dir_stat {
	struct lp_ino ino;
	struct lp_attrs attrs; /* of the inode */
	uint32_t shard_idx;    /* the next to be asked */
	uint32_t asked;        /* under way */
	bool is_locked;
	bool holds; /* the inode is held, if there is one */
	uint64_t entries_cnt;
	uint64_t name_bytes;
	int64_t mtime_ns;
	int64_t ctime_ns;
	lpi_step_fn *next;
	int result;
};

/* The place of a walk on a path (ops/paths.c), or up the tree (ops/rename.c). */
struct lpi_walk {
	struct lp_bytes path;
	uint32_t pos; /* of the next name */
	uint32_t depth;
	uint32_t restarts;
	bool makes_dirs; /* that are missing, as a put does */
	bool has_made;   /* has made a directory; it is removed again if the operation fails */
	struct lp_ino dir;
	bool is_spread;
	uint64_t generation; /* of the cache, when the next name was asked for */
	lpi_step_fn *next;
	int result;
};

/* Freezing or thawing the caches of paths on all shards (ops/paths.c). */
struct lpi_telling {
	uint32_t shard_idx; /* the next to be told */
	bool is_thaw;
	lpi_step_fn *next;
};

/* A copy at work (ops/copy.c). */
struct lpi_copying {
	struct lp_attrs attrs; /* of the source */
	uint64_t offset;
	uint64_t length;     /* that is being cloned */
	uint64_t length_max; /* that is cloned at once */
	uint64_t length_now; /* the same, as holes were found so far */
	uint32_t tries;
	bool is_sparse;             /* data is searched for before it is cloned: */
	bool is_at_data;            /* at the offset there is some */
	bool is_omap;               /* omap values are being copied, otherwise xattrs */
	struct lpi_copy_page *page; /* out of a pool */
};

/* The entry to be removed (ops/links.c). */
struct lpi_removal {
	bool takes_file;
	bool takes_dir;
	struct lp_ino only; /* this inode; nr 0: any */
	bool only_made_by_put;
	enum lp_ns_if condition;
	uint64_t version_nr;
};

/* The walk up the path of a removed name (ops/delete.c). */
struct lpi_pruning {
	struct lp_bytes path;
	lpi_step_fn *next;
};

/* An object that will get a name by path (ops/put.c). */
struct lpi_put {
	struct lp_bytes path;
	enum lp_ns_if condition;
	uint64_t version_nr;
	struct lp_ino upload; /* the inode that gets it; nr 0: a new one */
	bool is_guess;        /* the name was not looked up, because it is probably new */
	bool guards_version;  /* of the replaced file */
	bool has_acl;         /* of the replaced file, or of the one whose mode is set */
	bool has_source_acl;  /* a copy: it has received the ACL of its source */
	uint32_t acl_len;
	uint32_t xattr_idx; /* the next to be set before it has a name */
	uint16_t mode;
	int64_t mtime_ns;
	const struct lp_ns_named_value *xattrs;
	uint32_t xattr_cnt;
	uint32_t opens;        /* of the upload, to be given back when it has a name */
	struct lp_ino source;  /* of a copy, which is open; nr 0: none */
	struct lp_attrs old;   /* of the file that has the name now */
	struct lp_attrs attrs; /* of the upload; later the final ones */
	uint32_t shard_idx;    /* where an upload is made */
	lpi_step_fn *next;
	uint8_t acl[LP_ACL_BYTES_MAX]; /* the last */
};

/* A readdir at work. */
struct lpi_readdir {
	struct lpi_items items;
	uint32_t shard_idx;           /* that is being listed */
	uint32_t item_idx;            /* the first whose attributes are not known */
	uint32_t asked_first;         /* attributes of the items from this one on, */
	uint32_t asked_end;           /* and before this one, are being asked for */
	uint64_t behind;              /* cookies up to this one were there before */
	uint64_t highest;             /* of the items */
	uint64_t end;                 /* the first cookie for which there was no room */
	uint64_t unheld;              /* of those that are asked for: a bit for each */
	bool is_seeking;              /* by name: the entry of the cookie is being looked for */
	bool is_full;                 /* by name */
	uint64_t answer_bytes;        /* that the items take in the caller's answer */
	struct lpi_stat_batch *batch; /* out of a pool; NULL: the job's own asks are used */
	uint32_t after_len;
	char after[255]; /* the last name that was listed */
};

struct lpi_job {
	struct lp_ns *ns;
	struct lp_ns_op *op; /* NULL once it was answered */
	lpi_step_fn *next;   /* when pending is 0 */
	uint32_t pending;
	uint64_t seen_shards;   /* whose answers were not durable yet: a bit each */
	uint64_t rested_shards; /* those of seen_shards that take part in the change */
	uint32_t sync_cnt;      /* shards being synced before a commit, or before the answer */
	int end_result;
	lpi_step_fn *committed;
	uint32_t asks_used; /* a bit for each of the asks that was ever taken */

	lpi_step_fn *after_unlock;
	lpi_end_fn *lock_refused; /* see lpi_job_lock() */
	uint32_t lock_cnt;
	uint32_t attrs_cnt;
	struct lpi_wide *wide;
	struct lp_list_node node; /* of those that wait for a wide set */

	struct lpi_notice
		*notice;  /* what the mount's kernel must be told of the change; NULL: nothing */
	bool has_pact;    /* under way, or not over yet */
	bool is_unlocked; /* it has ended, and nothing is left but its pact */

	/* State of the operations themselves. */
	int64_t now_ns;     /* of the day: the time of its changes */
	uint32_t place_cnt; /* of entry and to, whose shard is looked for */
	lpi_step_fn *placed;
	struct lp_ino new_ino;
	struct lpi_dir_stat dir_stat;
	struct lpi_walk walk;
	struct lpi_telling telling;
	struct lpi_list *list; /* out of a pool, while it lists */
	struct lpi_removal removal;
	struct lpi_pruning pruning;
	int path_result; /* of an operation on a path that is ending */
	struct lpi_copying copying;
	lpi_step_fn *stopped;    /* see lpi_job_stop() */
	uint32_t rename_flags;   /* LP_NS_RENAME_* */
	enum lp_ns_if rename_if; /* on the replaced inode: exists, this version, or any */
	uint64_t rename_version_nr;
	bool is_durable; /* its changes are durable even if the operation asks for less */
	uint32_t tries;  /* how often it began again */
	lpi_step_fn *again;
	bool is_stuck; /* its pact is never over */
	int result;
	const struct lpi_entry *needs_dir; /* whose directory is asked for */
	uint32_t needs_no_flags;           /* flags that this directory must not have */
	lpi_step_fn *dir_is_there;
	lpi_step_fn *dir_is_gone; /* instead of the end, */
	lpi_end_fn *dir_failed;   /* called in all other cases */
	bool needs_token;
	bool is_frozen; /* the caches of paths are */
	struct lp_ino
		gone_dir; /* the directory to be removed, whose fragments are locked; nr 0: none */
	bool is_gone_spread;
	lpi_step_fn *begin_again;
	struct lp_ino counted; /* an inode that is open for this; nr 0: none */
	struct lp_ino held;    /* inode held for the result; given back if it fails. nr 0: none */
	lpi_step_fn *uncounted;
	struct lpi_put put;
	/* Only the fields before put.acl are cleared when a job begins, because the rest is nearly
	 * all of its memory. Each field below is cleared when it is first used. Of the pact and the
	 * entries only the fields before their parts and names are cleared. */
	struct lpi_pact pact;
	struct lpi_entry entry;
	struct lpi_entry to; /* of two: where it goes */
	struct lpi_job_ask asks[LPI_JOB_ASKS];
	struct lp_attrs moved_attrs; /* of two inodes, as they are under their locks */
	struct lp_attrs gone_attrs;
	struct lpi_readdir readdir;
	uint8_t new_acl[LP_ACL_BYTES_MAX]; /* of a set: the list that goes with the mode */
	struct lpi_job_lock locks[LPI_JOB_LOCKS];
	struct lp_attrs attrs[LPI_JOB_PARTS]; /* of the changes */
	struct lpi_part parts[LPI_JOB_PARTS];
};

LP_LIST_DEFINE(lpi_job_list, struct lpi_job, node);

/* --- Asking ----------------------------------------------------------------------------------- */

/* Returns asks[idx] for use; it is zeroed the first time. */
struct lpi_job_ask *lpi_job_ask_at(struct lpi_job *job, uint32_t idx);
/* Returns the operation of asks[idx], to be filled in. */
struct lp_store_op *lpi_job_op(struct lpi_job *job, uint32_t idx);
/* Submits asks[idx] to a shard's store. is_locked: the caller holds locks on the inode or name, or
 * must not wait for others' changes. The answer to an operation of a mount may be ordered only. A
 * change that follows rests on it, see lpi_job_commit(). */
void lpi_job_ask(struct lpi_job *job, uint32_t shard_idx, uint32_t idx, bool is_locked);
/* The same for a locked inode or name, for any operation, on a shard that will take part in its
 * change: the answer may be ordered only. */
void lpi_job_ask_part(struct lpi_job *job, uint32_t shard_idx, uint32_t idx);
/* The same with an ask outside job->asks, of which all but the operation is zeroed. */
void lpi_job_ask_other(struct lpi_job *job, uint32_t shard_idx, struct lpi_job_ask *ask);
/* The same for a STAT of a directory. The caller wants to know whether the directory exists, its
 * kind and place, or whether there is room for one more directory in it. The STAT does not wait for
 * names in it that are being decided, perhaps for ever. So the caller must not return its counts
 * and times. */
void lpi_job_ask_dir(struct lpi_job *job, uint32_t shard_idx, uint32_t idx);
/* The same for a fact that later operations will rely on: the answer is durable. */
void lpi_job_ask_durable(struct lpi_job *job, uint32_t shard_idx, uint32_t idx);
/* The same for a STAT or LOOKUP with a hold (lpi_call_hold(), with the operation of
 * asks[stat_idx]). */
void lpi_job_ask_held(struct lpi_job *job, uint32_t shard_idx, uint32_t idx, uint32_t stat_idx,
		      bool is_locked);
/* The same with a store operation outside the job: it waits for others' changes. */
void lpi_job_submit(struct lpi_job *job, uint32_t shard_idx, uint32_t idx, struct lp_store_op *op);
/* The same for any other call: run() is called on that shard, and finds the job as
 * LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job. Its result is the call's. */
void lpi_job_run(struct lpi_job *job, uint32_t shard_idx, uint32_t idx,
		 void (*run)(struct lpi_call *call));
/* Goes on with next when all asks are answered. At least one must have been submitted. */
void lpi_job_wait(struct lpi_job *job, lpi_step_fn *next);
/* Goes on with next soon. */
void lpi_job_soon(struct lpi_job *job, lpi_step_fn *next);

/* --- Locking ---------------------------------------------------------------------------------- */

void lpi_job_lock_token(struct lpi_job *job);
void lpi_job_lock_name(struct lpi_job *job, const struct lpi_entry *entry);
void lpi_job_lock_inode(struct lpi_job *job, struct lp_ino ino);
/* Locks the fragment on one shard; or on all of them, with a wide set, which must have been waited
 * for. Call it together with the locks of names, before one lpi_job_lock(). If a job learns only
 * from a locked name which directory will be removed, it unlocks, locks both, and looks again. A
 * job must not lock a fragment and a name in it. */
void lpi_job_lock_fragment(struct lpi_job *job, uint32_t shard_idx, struct lp_ino dir);
void lpi_job_lock_fragments(struct lpi_job *job, struct lp_ino dir);
/* Goes on with next when all locks are held, perhaps from inside this call. If a lock can never be
 * granted because a change over several shards is stuck (-EIO), goes on with job->lock_refused,
 * once, or else lpi_job_stop(). */
void lpi_job_lock(struct lpi_job *job, lpi_step_fn *next);
/* Goes on with next when the job has a wide set. The job must hold no lock, because the owner of a
 * set may wait for that lock. */
void lpi_job_take_wide(struct lpi_job *job, lpi_step_fn *next);
/* Gives back all locks, to begin again from the start. */
void lpi_job_unlock(struct lpi_job *job, lpi_step_fn *next);

/* --- Changing --------------------------------------------------------------------------------- */

/* Adds a change or guard on a shard. Guards stand before changes; otherwise all keep the order of
 * the calls. */
struct lp_change *lpi_job_change(struct lpi_job *job, uint32_t shard_idx, enum lp_change_type type,
				 struct lp_ino ino);
/* A guard: the inode has the mode and the owner of `attrs`, or -ECANCELED. */
void lpi_job_guard_rights(struct lpi_job *job, struct lp_ino ino, const struct lp_attrs *attrs);
/* A guard: the inode has none of these flags, or -EPERM. It joins an existing guard of the
 * inode. */
void lpi_job_guard_flags(struct lpi_job *job, struct lp_ino ino, uint32_t flags);
/* Memory for attributes of a change. */
struct lp_attrs *lpi_job_attrs(struct lpi_job *job);
/* Makes the shard whose changes do not fit into a record the coordinator. */
void lpi_job_coordinate(struct lpi_job *job, uint32_t shard_idx);
/* Seals a fragment on a shard: it must be empty, and is gone after the change. */
void lpi_job_seal(struct lpi_job *job, uint32_t shard_idx, struct lp_ino dir);
/* Puts the mark of an orphan or upload: with the change that makes it. */
void lpi_job_mark(struct lpi_job *job, struct lp_ino ino, enum lp_unfinished_kind kind);
/* An orphan that is locked and open gets a name; the change takes its `U` record away. */
void lpi_job_adopt(struct lpi_job *job, struct lp_ino ino);
/* The inode loses its last name. It is removed, or becomes an orphan if it is open. The caller has
 * locked it. */
void lpi_job_unname(struct lpi_job *job, struct lp_ino ino);
/* Makes all changes, as one. Goes on with next when the outcome is known: job->pact.result. State
 * that the job has seen on shards that take no part is made durable first; otherwise a crash might
 * take it back and leave the change. On shards that take part it is in the log before the
 * change. */
void lpi_job_commit(struct lpi_job *job, lpi_step_fn *next);

/* Forgets the change, gives back all locks but not its wide set, and goes on with step, which
 * begins from the start: before a commit, or from the step behind one that failed. */
void lpi_job_again(struct lpi_job *job, lpi_step_fn *step);
/* Its pact will not be over before the next opening. Jobs that wait for it to begin again, now or
 * later, end with -EIO. */
void lpi_job_stuck(struct lpi_job *job);

/* --- The end ---------------------------------------------------------------------------------- */

/* Answers the operation and gives back all that it holds. The job is given back when its pact is
 * over. If a mount must be told of the change, this is done before the answer. */
void lpi_job_end(struct lpi_job *job, int result);

/* Ends the job. If the job is a step of another operation, ends that step: goes on with
 * job->stopped, once, which finds the result in job->result. Locks and change stay. */
void lpi_job_stop(struct lpi_job *job, int result);
/* The same as lpi_job_end() from a first step, which is inside a submit. */
void lpi_job_fail(struct lpi_job *job, int result);

/* A job begins: all fields before put.acl are cleared. */
void lpi_job_begin(struct lp_ns *ns, struct lpi_job *job, struct lp_ns_op *op, lpi_step_fn *first);
/* Sets the time of the job's changes to now. An operation that gives or takes a name calls it at
 * its commit, when it holds the name. So the version begins after that of the name's earlier owner,
 * and a directory's times do not go back. */
void lpi_job_take_time(struct lpi_job *job);
/* A set with a lock and a part for each shard; unused. */
int lpi_wide_new(uint32_t shard_cnt, struct lpi_wide **ret_wide) LP_MUST_CHECK;
/* Frees the set and those after it in its list. Accepts NULL. */
void lpi_wide_free(struct lpi_wide *wide);
/* The job keeps its wide set for good, if it has one. The pool gets a new one, now or when there is
 * memory. A job that needs a set while there is none, and no memory, is stopped: -ENOMEM. */
void lpi_job_renew_wide(struct lpi_job *job);

#endif
