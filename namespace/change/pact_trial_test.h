/* SPDX-License-Identifier: Apache-2.0 */
/* Changes over several shards as small jobs, on a world of a few directories and files. Only
 * *_test.c files include this.
 *
 *   /           shard 0
 *   /d1         shard 1       g (shard 0, two names)
 *   /d2         shard 2       g, h (shard 1, with data)
 *   /e          shard 2       empty
 *   /s          shard 1       spread, empty
 *   /t          shard 1       spread, with x (shard 2) in its fragment there
 */
#ifndef LP_NAMESPACE_CHANGE_PACT_TRIAL_TEST_H
#define LP_NAMESPACE_CHANGE_PACT_TRIAL_TEST_H

#include "namespace/change/ns_state.h"
#include "store/model/store_test.h"

#define LPI_TRIAL_NAME(s) ((struct lp_bytes){(s), sizeof(s) - 1})

struct lpi_trial_world {
	struct lp_ns *const *ns;
	struct lp_ino d1, d2, e, s, t, g, h, x;
	struct lp_ino fresh[3]; /* a number of each shard that nobody has */
};

struct lpi_trial {
	struct lp_ns_op op;
	struct lpi_trial_world world;
	struct lp_ino going; /* a directory: its fragments are locked */
	struct lpi_job *job; /* of lpi_trial_begin(), until it has ended */
	bool is_done;
	bool was_told; /* set by decided() */
};

/* --- The world -------------------------------------------------------------------------------- */

static inline void lpi_world_inode(const struct lpi_hand *hand, struct lp_ino ino, uint8_t type,
				   struct lp_ino parent, uint32_t nlink, uint32_t flags)
{
	const struct lp_attrs attrs = {
		.type = type, .mode = 0755, .nlink = nlink, .parent = parent, .flags = flags};
	lp_test_ok(lpi_hand_change(hand, (struct lp_change){.type = LP_CHANGE_CREATE,
							    .ino = ino,
							    .inode = {.attrs = &attrs}}));
}

static inline void lpi_world_entry(const struct lpi_hand *hand, struct lp_ino dir,
				   struct lp_bytes name, struct lp_ino target, uint8_t type)
{
	lp_test_ok(lpi_hand_change(
		hand, (struct lp_change){
			      .type = LP_CHANGE_ENTRY_SET,
			      .ino = dir,
			      .named = {.name = name, .target = target, .target_type = type}}));
}

static inline void lpi_world_links(const struct lpi_hand *hand, struct lp_ino ino, int32_t delta)
{
	lp_test_ok(lpi_hand_change(
		hand,
		(struct lp_change){.type = LP_CHANGE_LINK, .ino = ino, .inode = {.delta = delta}}));
}

/* hands: one for each of three shards. */
static inline struct lpi_trial_world lpi_world_make(struct lpi_hand *hands, struct lp_ns *const *ns)
{
	const struct lp_ino root = LP_INO_ROOT;
	const struct lp_ino nowhere = {0};
	struct lpi_trial_world w = {.ns = ns};
	struct {
		struct lp_ino *ino;
		uint32_t shard;
		const char *name;
		uint32_t flags;
	} dirs[] = {{&w.d1, 1, "d1", 0},
		    {&w.d2, 2, "d2", 0},
		    {&w.e, 2, "e", 0},
		    {&w.s, 1, "s", LP_INODE_FLAG_SPREAD},
		    {&w.t, 1, "t", LP_INODE_FLAG_SPREAD}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(dirs); i++) {
		*dirs[i].ino = lp_store_new_ino(hands[dirs[i].shard].store);
		lpi_world_inode(&hands[dirs[i].shard], *dirs[i].ino, LP_INODE_TYPE_DIR, root,
				(dirs[i].flags & LP_INODE_FLAG_SPREAD) != 0 ? 1 : 2, dirs[i].flags);
		lpi_world_entry(&hands[0], root,
				(struct lp_bytes){dirs[i].name, (uint32_t)strlen(dirs[i].name)},
				*dirs[i].ino, LP_INODE_TYPE_DIR);
	}
	lpi_world_links(&hands[0], root, (int32_t)LP_ARRAY_SIZE(dirs));
	w.g = lp_store_new_ino(hands[0].store);
	w.h = lp_store_new_ino(hands[1].store);
	w.x = lp_store_new_ino(hands[2].store);
	lpi_world_inode(&hands[0], w.g, LP_INODE_TYPE_FILE, nowhere, 2, 0);
	lpi_world_inode(&hands[1], w.h, LP_INODE_TYPE_FILE, nowhere, 1, 0);
	lpi_world_inode(&hands[2], w.x, LP_INODE_TYPE_FILE, nowhere, 1, 0);
	lpi_world_entry(&hands[1], w.d1, LPI_TRIAL_NAME("g"), w.g, LP_INODE_TYPE_FILE);
	lpi_world_entry(&hands[2], w.d2, LPI_TRIAL_NAME("g"), w.g, LP_INODE_TYPE_FILE);
	lpi_world_entry(&hands[2], w.d2, LPI_TRIAL_NAME("h"), w.h, LP_INODE_TYPE_FILE);
	lpi_world_entry(&hands[2], w.t, LPI_TRIAL_NAME("x"), w.x, LP_INODE_TYPE_FILE);
	lp_test_ok(lpi_hand_write(&hands[1], w.h, 0, "some bytes of h", 15));
	for (uint32_t i = 0; i < 3; i++)
		w.fresh[i] = lp_store_new_ino(hands[i].store);
	return w;
}

/* --- Steps of jobs ---------------------------------------------------------------------------- */

static inline struct lpi_trial *lpi_trial_of(struct lpi_job *job)
{
	return LP_CONTAINER_OF(job->op, struct lpi_trial, op);
}

static inline void lpi_trial_committed(struct lpi_job *job)
{
	lpi_trial_of(job)->was_told = true;
	lpi_job_end(job, job->pact.result);
}

static inline struct lpi_entry lpi_trial_entry(struct lp_ino dir, struct lp_bytes name)
{
	struct lpi_entry entry = {
		.dir = dir, .shard_idx = lp_ino_shard(dir), .name_len = (uint8_t)name.len};
	memcpy(entry.name, name.data, name.len);
	return entry;
}

static inline void lpi_trial_lock(struct lpi_job *job, struct lp_ino dir, struct lp_bytes name)
{
	const struct lpi_entry entry = lpi_trial_entry(dir, name);
	lpi_job_lock_name(job, &entry);
}

static inline void lpi_trial_set(struct lpi_job *job, struct lp_ino dir, struct lp_bytes name,
				 struct lp_ino target, uint8_t type)
{
	struct lp_change *change = lpi_job_change(job, lp_ino_shard(dir), LP_CHANGE_ENTRY_SET, dir);
	change->named.name = name;
	change->named.target = target;
	change->named.target_type = type;
}

static inline void lpi_trial_unset(struct lpi_job *job, struct lp_ino dir, struct lp_bytes name,
				   struct lp_ino target)
{
	struct lp_change *guard = lpi_job_change(job, lp_ino_shard(dir), LP_GUARD_ENTRY, dir);
	guard->named.name = name;
	guard->named.target = target;
	lpi_job_change(job, lp_ino_shard(dir), LP_CHANGE_ENTRY_REMOVE, dir)->named.name = name;
}

static inline void lpi_trial_absent(struct lpi_job *job, struct lp_ino dir, struct lp_bytes name)
{
	lpi_job_change(job, lp_ino_shard(dir), LP_GUARD_NO_ENTRY, dir)->named.name = name;
}

static inline void lpi_trial_link(struct lpi_job *job, struct lp_ino ino, int32_t delta)
{
	lpi_job_change(job, lp_ino_shard(ino), LP_CHANGE_LINK, ino)->inode.delta = delta;
}

static inline void lpi_trial_move(struct lpi_job *job, struct lp_ino ino, struct lp_ino parent,
				  struct lp_bytes name)
{
	struct lp_attrs *attrs = lpi_job_attrs(job);
	struct lp_change *change = lpi_job_change(job, lp_ino_shard(ino), LP_CHANGE_SET, ino);
	attrs->parent = parent;
	change->inode.attrs = attrs;
	change->inode.mask = LP_ATTR_PARENT;
	change->inode.name = name;
}

/* --- Kinds of changes ------------------------------------------------------------------------- */

static inline void lpi_trial_make_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	struct lp_attrs *attrs = lpi_job_attrs(job);
	*attrs = (struct lp_attrs){
		.type = LP_INODE_TYPE_FILE, .nlink = 1, .mode = 0644, .parent = LP_INO_ROOT};
	struct lp_change *create = lpi_job_change(job, 1, LP_CHANGE_CREATE, w->fresh[1]);
	create->inode.attrs = attrs;
	create->inode.name = LPI_TRIAL_NAME("new");
	lpi_trial_set(job, LP_INO_ROOT, LPI_TRIAL_NAME("new"), w->fresh[1], LP_INODE_TYPE_FILE);
	lpi_trial_absent(job, LP_INO_ROOT, LPI_TRIAL_NAME("new"));
	lpi_job_commit(job, lpi_trial_committed);
}

/* A file on another shard than its entry. */
static inline void lpi_trial_make(struct lpi_job *job)
{
	lpi_trial_lock(job, LP_INO_ROOT, LPI_TRIAL_NAME("new"));
	lpi_job_lock_inode(job, lpi_trial_of(job)->world.fresh[1]);
	lpi_job_lock(job, lpi_trial_make_locked);
}

static inline void lpi_trial_taken_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	struct lp_attrs *attrs = lpi_job_attrs(job);
	*attrs = (struct lp_attrs){.type = LP_INODE_TYPE_FILE, .nlink = 1, .mode = 0644};
	lpi_job_change(job, 0, LP_CHANGE_CREATE, w->fresh[0])->inode.attrs = attrs;
	lpi_trial_link(job, w->d1, 0);
	lpi_trial_set(job, w->d2, LPI_TRIAL_NAME("h"), w->fresh[0], LP_INODE_TYPE_FILE);
	lpi_trial_absent(job, w->d2, LPI_TRIAL_NAME("h"));
	lpi_job_commit(job, lpi_trial_committed);
}

/* The name is taken: the guard of one who only takes part fails, others have prepared. */
static inline void lpi_trial_taken(struct lpi_job *job)
{
	lpi_trial_lock(job, lpi_trial_of(job)->world.d2, LPI_TRIAL_NAME("h"));
	lpi_job_lock_inode(job, lpi_trial_of(job)->world.fresh[0]);
	lpi_job_lock(job, lpi_trial_taken_locked);
}

static inline void lpi_trial_refused_locked(struct lpi_job *job)
{
	lpi_job_coordinate(job, 2);
	lpi_trial_taken_locked(job);
}

/* The same, found by who decides. */
static inline void lpi_trial_refused(struct lpi_job *job)
{
	lpi_trial_lock(job, lpi_trial_of(job)->world.d2, LPI_TRIAL_NAME("h"));
	lpi_job_lock_inode(job, lpi_trial_of(job)->world.fresh[0]);
	lpi_job_lock(job, lpi_trial_refused_locked);
}

static inline void lpi_trial_hard_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_link(job, w->h, 1);
	lpi_trial_set(job, LP_INO_ROOT, LPI_TRIAL_NAME("h2"), w->h, LP_INODE_TYPE_FILE);
	lpi_trial_absent(job, LP_INO_ROOT, LPI_TRIAL_NAME("h2"));
	lpi_job_commit(job, lpi_trial_committed);
}

static inline void lpi_trial_hard_link(struct lpi_job *job)
{
	lpi_trial_lock(job, LP_INO_ROOT, LPI_TRIAL_NAME("h2"));
	lpi_job_lock_inode(job, lpi_trial_of(job)->world.h);
	lpi_job_lock(job, lpi_trial_hard_locked);
}

static inline void lpi_trial_last_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_unset(job, w->d2, LPI_TRIAL_NAME("h"), w->h);
	lpi_job_unname(job, w->h);
	lpi_job_commit(job, lpi_trial_committed);
}

static inline void lpi_trial_remove_last(struct lpi_job *job)
{
	lpi_trial_lock(job, lpi_trial_of(job)->world.d2, LPI_TRIAL_NAME("h"));
	lpi_job_lock_inode(job, lpi_trial_of(job)->world.h);
	lpi_job_lock(job, lpi_trial_last_locked);
}

static inline void lpi_trial_one_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_unset(job, w->d2, LPI_TRIAL_NAME("g"), w->g);
	lpi_trial_link(job, w->g, -1);
	lpi_job_commit(job, lpi_trial_committed);
}

static inline void lpi_trial_remove_one(struct lpi_job *job)
{
	lpi_trial_lock(job, lpi_trial_of(job)->world.d2, LPI_TRIAL_NAME("g"));
	lpi_job_lock_inode(job, lpi_trial_of(job)->world.g);
	lpi_job_lock(job, lpi_trial_one_locked);
}

static inline void lpi_trial_over_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_unset(job, w->d1, LPI_TRIAL_NAME("g"), w->g);
	lpi_trial_set(job, w->d2, LPI_TRIAL_NAME("h"), w->g, LP_INODE_TYPE_FILE);
	lpi_trial_move(job, w->g, w->d2, LPI_TRIAL_NAME("h"));
	lpi_job_unname(job, w->h);
	lpi_job_commit(job, lpi_trial_committed);
}

/* d1/g -> d2/h, which goes. */
static inline void lpi_trial_rename_over(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_lock(job, w->d1, LPI_TRIAL_NAME("g"));
	lpi_trial_lock(job, w->d2, LPI_TRIAL_NAME("h"));
	lpi_job_lock_inode(job, w->g);
	lpi_job_lock_inode(job, w->h);
	lpi_job_lock(job, lpi_trial_over_locked);
}

static inline void lpi_trial_moved_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_unset(job, LP_INO_ROOT, LPI_TRIAL_NAME("d1"), w->d1);
	lpi_trial_link(job, LP_INO_ROOT, -1);
	lpi_trial_set(job, w->d2, LPI_TRIAL_NAME("sub"), w->d1, LP_INODE_TYPE_DIR);
	lpi_trial_link(job, w->d2, 1);
	lpi_trial_move(job, w->d1, w->d2, LPI_TRIAL_NAME("sub"));
	lpi_job_commit(job, lpi_trial_committed);
}

/* /d1 -> d2/sub */
static inline void lpi_trial_move_dir(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_job_lock_token(job);
	lpi_trial_lock(job, LP_INO_ROOT, LPI_TRIAL_NAME("d1"));
	lpi_trial_lock(job, w->d2, LPI_TRIAL_NAME("sub"));
	lpi_job_lock_inode(job, w->d1);
	lpi_job_lock(job, lpi_trial_moved_locked);
}

static inline void lpi_trial_rmdir_locked(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_unset(job, LP_INO_ROOT, LPI_TRIAL_NAME("e"), w->e);
	lpi_trial_link(job, LP_INO_ROOT, -1);
	lpi_job_seal(job, 2, w->e);
	lpi_job_unname(job, w->e);
	lpi_job_commit(job, lpi_trial_committed);
}

static inline void lpi_trial_rmdir(struct lpi_job *job)
{
	const struct lpi_trial_world *w = &lpi_trial_of(job)->world;
	lpi_trial_lock(job, LP_INO_ROOT, LPI_TRIAL_NAME("e"));
	lpi_job_lock_fragment(job, 2, w->e);
	lpi_job_lock_inode(job, w->e);
	lpi_job_lock(job, lpi_trial_rmdir_locked);
}

static inline void lpi_trial_spread_locked(struct lpi_job *job)
{
	const struct lpi_trial *trial = lpi_trial_of(job);
	struct lp_bytes name =
		trial->going.nr == trial->world.s.nr ? LPI_TRIAL_NAME("s") : LPI_TRIAL_NAME("t");
	lpi_trial_unset(job, LP_INO_ROOT, name, trial->going);
	lpi_trial_link(job, LP_INO_ROOT, -1);
	for (uint32_t i = 0; i < job->ns->options.shard_cnt; i++)
		lpi_job_seal(job, i, trial->going);
	lpi_job_unname(job, trial->going);
	lpi_job_commit(job, lpi_trial_committed);
}

static inline void lpi_trial_spread_wide(struct lpi_job *job)
{
	const struct lpi_trial *trial = lpi_trial_of(job);
	bool is_s = trial->going.nr == trial->world.s.nr;
	lpi_trial_lock(job, LP_INO_ROOT, is_s ? LPI_TRIAL_NAME("s") : LPI_TRIAL_NAME("t"));
	lpi_job_lock_fragments(job, trial->going);
	lpi_job_lock_inode(job, trial->going);
	lpi_job_lock(job, lpi_trial_spread_locked);
}

/* A spread directory that is empty. */
static inline void lpi_trial_rmdir_spread(struct lpi_job *job)
{
	lpi_trial_of(job)->going = lpi_trial_of(job)->world.s;
	lpi_job_take_wide(job, lpi_trial_spread_wide);
}

/* One that is not: -ENOTEMPTY, and what was sealed is open again. */
static inline void lpi_trial_rmdir_full(struct lpi_job *job)
{
	lpi_trial_of(job)->going = lpi_trial_of(job)->world.t;
	lpi_job_take_wide(job, lpi_trial_spread_wide);
}

static const struct lpi_trial_kind {
	const char *name;
	lpi_step_fn *begin;
	int result;
} lpi_trial_kinds[] = {
	{"make", lpi_trial_make, 0},
	{"taken", lpi_trial_taken, -EEXIST},
	{"refused", lpi_trial_refused, -EEXIST},
	{"link", lpi_trial_hard_link, 0},
	{"remove the last name", lpi_trial_remove_last, 0},
	{"remove one name", lpi_trial_remove_one, 0},
	{"rename over", lpi_trial_rename_over, 0},
	{"move a directory", lpi_trial_move_dir, 0},
	{"rmdir", lpi_trial_rmdir, 0},
	{"rmdir of a spread one", lpi_trial_rmdir_spread, 0},
	{"rmdir of a full one", lpi_trial_rmdir_full, -ENOTEMPTY},
};

#define LPI_TRIAL_KINDS LP_ARRAY_SIZE(lpi_trial_kinds)

/* It takes something away, and nothing grows. */
static inline bool lpi_trial_is_removal(const struct lpi_trial_kind *kind)
{
	return kind->begin == lpi_trial_remove_last || kind->begin == lpi_trial_remove_one ||
	       kind->begin == lpi_trial_rmdir || kind->begin == lpi_trial_rmdir_spread ||
	       kind->begin == lpi_trial_rmdir_full;
}

/* --- Running ---------------------------------------------------------------------------------- */

static inline void lpi_trial_done(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct lpi_trial, op)->is_done = true;
}

/* Begins the kind of change on a shard; op.result when is_done. */
static inline void lpi_trial_begin(struct lpi_trial *trial, uint32_t home,
				   const struct lpi_trial_kind *kind)
{
	LP_ASSERT(trial->world.ns != NULL);
	struct lp_ns *ns = trial->world.ns[home];
	struct lpi_job *job = lp_pool_get(ns->jobs);
	assert_non_null(job);
	trial->op.complete = lpi_trial_done;
	trial->job = job;
	trial->is_done = false;
	trial->was_told = false;
	ns->under_way++;
	lpi_job_begin(ns, job, &trial->op, kind->begin);
}

#endif
