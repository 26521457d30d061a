/* SPDX-License-Identifier: Apache-2.0 */
/* One shard's namespace as its rooms see it: struct lp_ns, and what its rooms share.
 *
 * Threads: the shard's. Another shard's thread acts here only by calls.
 * Blocking: none.
 * Memory: pools and tables, allocated at opening.
 *
 * Where things are:
 *   state/         locks, open_inodes, kernel_holds, dir_cache: the tables
 *   change/        job (an operation at work), shard_call, pact (a change on several shards),
 *                  orphans, freeing (space on its way), notices (what a mount is told)
 *   ops/names      what operations on names share; links, make, rename, readdir
 *   ops/dirs       stat and set, also of directories; ops/open: open, close, sync
 *   ops/hold       inodes that a mount was told of, and has forgotten
 *   ops/paths      walk, directories that puts make, freezing the caches of paths
 *   ops/put        put, upload, commit; ops/delete, ops/copy (copy, move), ops/list
 *   shard/ns       submitting, the queue, opening, closing; shard/start: ends changes that a crash
 *                  left half done
 */
#ifndef LP_NAMESPACE_CHANGE_NS_STATE_H
#define LP_NAMESPACE_CHANGE_NS_STATE_H

#include "base/hash.h"
#include "base/memory/pool.h"
#include "namespace/change/answer.h"
#include "namespace/change/board.h"
#include "namespace/change/dir_kinds.h"
#include "namespace/change/freeing.h"
#include "namespace/change/job.h"
#include "namespace/change/notices.h"
#include "namespace/change/pact.h"
#include "namespace/ns.h"
#include "namespace/state/dir_cache.h"
#include "namespace/state/open_inodes.h"

#define LPI_DIR_KINDS      4096u /* directories whose kind is remembered: a power of two */
#define LPI_DIRCACHE_BYTES (UINT64_C(1) << 20)
#define LPI_ROOMS          256u
/* Two, so that the next removal begins while one is being finished after its answer. */
#define LPI_WIDES     2u
#define LPI_TRANSFERS 64u
#define LPI_TURNS     256u /* inodes by hash: a power of two */
#define LPI_LOCKS_MAX (UINT32_C(1) << 22)

enum lpi_ns_state {
	LPI_NS_OPENED,
	LPI_NS_STARTING,
	LPI_NS_SERVING,
	LPI_NS_STOPPING, /* operations under way end, new ones are refused */
	LPI_NS_STOPPED
};

LP_LIST_DEFINE(lpi_ns_op_list, struct lp_ns_op, node);

struct lp_ns {
	struct lp_ns_options options;
	const struct lpi_ns_above *above;
	struct lp_ns *const *peers;
	enum lpi_ns_state state;
	struct lpi_locks *locks;
	struct lpi_opens *opens;
	struct lpi_orphans *orphans;
	struct lpi_board *board;
	struct lp_pool *calls;     /* of LP_NS_STORE operations */
	struct lp_pool *jobs;      /* of all others */
	struct lp_pool *rooms;     /* of parts of changes over several shards */
	struct lp_pool *transfers; /* of data from other threads */
	bool are_carries_short;    /* until the waiting calls have tried again */
	bool are_answers_short;
	struct lpi_ns_op_list queue; /* operations that wait for a call or job */
	struct lp_task queue_task;
	struct lp_ns_watch watch;           /* tell NULL: no mount watches */
	struct lp_pool *notices;            /* notices to the mount */
	struct lpi_untold *untold;          /* shard 0's, for all */
	struct lpi_ns_op_list notice_queue; /* operations that wait until there are fewer notices */
	uint32_t notices_out;
	bool are_shared_held; /* no change over several shards begins */
	struct lpi_pact_list pacts_waiting;
	struct lpi_pact_list pacts_stuck;
	struct lpi_call_list trying_again; /* for want of buffers or space */
	uint32_t turns[LPI_TURNS]; /* by hash of the inode: how many of these calls must keep their
				      order */
	struct lp_timer again_timer;
	struct lpi_freeing freeing;
	struct lpi_dir_kind *dir_kinds;
	struct lpi_dircache *dircache;
	struct lp_pool *lists;   /* memory of lists at work */
	struct lp_pool *batches; /* of readdirs that want attributes */
	struct lpi_job_list lists_waiting;
	struct lp_pool *copy_pages; /* of copies at work */
	struct lpi_job_list copies_waiting;
	/* For removals of spread directories: LPI_WIDES at a time. */
	struct lpi_wide *wides;
	struct lpi_job_list wide_waiting;
	uint32_t wide_cnt; /* sets that exist, without those of stuck changes */
	/* Changes that a sync would have to make durable (change/shard_call.c). The flag is for all
	 * threads. */
	_Atomic bool is_unsynced;
	uint32_t txns_under_way;
	struct lp_source source; /* for each turn */
	uint32_t under_way;      /* operations, and work that they left to be finished */
	uint32_t stranded_cnt;   /* of those: operations of which only a stuck pact is left, which
				    never ends */
	uint32_t next_dir_shard;
	uint32_t new_names_cnt; /* new names found by consecutive puts (ops/put.c) */
	struct lpi_start *start;
	void (*ready)(struct lp_ns *ns, int result, void *arg);
	void *ready_arg;
	void (*stopped)(struct lp_ns *ns, void *arg);
	void *stopped_arg;
	struct lpi_call stop_call;
	bool is_arriving; /* this shard has no work left and has told shard 0 */
	bool has_arrived; /* all shards have arrived: no shard asks this one for anything any more
			   */
	/* Of shard 0: the shards that have come to a point that all must reach. */
	uint32_t arrived_cnt;
	int arrived_result;
	struct lpi_call_list arrived;
	struct {
		struct lp_ns_stats face;
		uint64_t finish_retries;
		uint64_t stuck; /* changes over several shards whose end must wait for an opening */
	} stats;
};

/* --- Placement -------------------------------------------------------------------------------- */

/* The shard of an entry of a directory. */
static inline uint32_t lpi_shard_of_entry(const struct lp_ns *ns, struct lp_ino dir, bool is_spread,
					  struct lp_bytes name)
{
	if (!is_spread)
		return lp_ino_shard(dir);
	return (uint32_t)(lp_hash_u64(name.data, name.len, dir.nr) % ns->options.shard_cnt);
}

/* True if an inode of this store may have the number. */
static inline bool lpi_ino_is_sane(const struct lp_ns *ns, struct lp_ino ino)
{
	return lp_ino_shard(ino) < ns->options.shard_cnt && (ino.nr << 8) != 0;
}

/* --- Operations ------------------------------------------------------------------------------- */

/* The first step of each kind of operation. */
typedef void lpi_begin_fn(struct lpi_job *job);
lpi_begin_fn lpi_begin_stat, lpi_begin_set, lpi_begin_open, lpi_begin_close, lpi_begin_sync;
lpi_begin_fn lpi_begin_lookup, lpi_begin_make, lpi_begin_remove, lpi_begin_link, lpi_begin_rename;
lpi_begin_fn lpi_begin_readdir, lpi_begin_forget;
/* Of an LP_NS_STORE for which lpi_txn_may_own() is true. */
lpi_begin_fn lpi_begin_own_store;
bool lpi_txn_may_own(const struct lp_store_op *op);
lpi_begin_fn lpi_begin_walk, lpi_begin_put, lpi_begin_upload, lpi_begin_commit, lpi_begin_delete;
lpi_begin_fn lpi_begin_copy, lpi_begin_move, lpi_begin_list;

/* Called before and after a directory is renamed or removed: no shard caches its path in between.
 * The directory is job->entry, and job->to if there are two. */
void lpi_paths_freeze(struct lpi_job *job, lpi_step_fn *next);
void lpi_paths_thaw(struct lpi_job *job, lpi_step_fn *next);

/* Removes orphans that are no longer needed, a batch at a time; arg is the ns. */
void lpi_orphans_told(void *arg, enum lpi_orphan_event event);
/* Removes at once the orphans that wait for a full batch. */
void lpi_orphans_hurry(struct lp_ns *ns);
/* Orphans that are to be removed still exist. */
bool lpi_orphans_are_going(const struct lpi_orphans *orphans);
int lpi_orphans_new(struct lp_ns *ns, struct lpi_orphans **ret_orphans) LP_MUST_CHECK;
void lpi_orphans_free(struct lpi_orphans *orphans);

/* --- The start (shard/start.c) -------------------------------------------------------------------
 */

int lpi_start_new(struct lp_ns *ns, struct lpi_start **ret_start) LP_MUST_CHECK;
void lpi_start_free(struct lpi_start *start);
/* Calls lpi_ns_started() in the end. */
void lpi_start_run(struct lpi_start *start);
void lpi_ns_started(struct lp_ns *ns, int result);
/* Ends the calls when one has come from each shard; on shard 0. Each brings a result; all get the
 * first error. */
void lpi_ns_arrive(struct lpi_call *call);

#endif
