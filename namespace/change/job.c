/* SPDX-License-Identifier: Apache-2.0 */
/* Locks are asked for one after the other, in their order; those of this shard without a call if
 * they are free. A lock that has to be waited for on this shard goes on by a task, so that one
 * release never runs through a chain of others. */
#include "namespace/change/job.h"

#include <errno.h>
#include <stdlib.h>

#include "namespace/change/ns_state.h"

void lpi_job_take_time(struct lpi_job *job)
{
	job->now_ns = lp_clock_wall_ns(lp_reactor_clock(job->ns->options.reactor));
}

static void clear_pact(struct lpi_job *job)
{
	memset(&job->pact, 0, offsetof(struct lpi_pact, parts));
}

void lpi_job_begin(struct lp_ns *ns, struct lpi_job *job, struct lp_ns_op *op, lpi_step_fn *first)
{
	memset(job, 0, offsetof(struct lpi_job, put.acl));
	memset(&job->entry, 0, offsetof(struct lpi_entry, name));
	memset(&job->to, 0, offsetof(struct lpi_entry, name));
	clear_pact(job);
	job->ns = ns;
	job->op = op;
	if (op->opcode != LP_NS_PUT) /* which takes it at its commit */
		lpi_job_take_time(job);
	first(job);
}

/* --- Asking ----------------------------------------------------------------------------------- */

static void one_less(struct lpi_job *job)
{
	LP_ASSERT(job->pending > 0);
	if (--job->pending > 0 || job->next == NULL)
		return;
	lpi_step_fn *next = job->next;
	job->next = NULL;
	next(job);
}

static void answered(struct lpi_call *call)
{
	one_less(LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job);
}

struct lpi_job_ask *lpi_job_ask_at(struct lpi_job *job, uint32_t idx)
{
	struct lpi_job_ask *ask = &job->asks[idx];
	LP_ASSERT(idx < LPI_JOB_ASKS);
	if ((job->asks_used & UINT32_C(1) << idx) == 0)
		*ask = (struct lpi_job_ask){.job = job};
	job->asks_used |= UINT32_C(1) << idx;
	return ask;
}

struct lp_store_op *lpi_job_op(struct lpi_job *job, uint32_t idx)
{
	struct lpi_job_ask *ask = lpi_job_ask_at(job, idx);
	LP_ASSERT(lpi_call_is_idle(&ask->call));
	ask->op = (struct lp_store_op){0};
	return &ask->op;
}

/* True for operations by number and name, whose answers are not remembered, if they need only be
 * ordered. A durable change need not wait for each of its looks either. What it has seen is durable
 * before or with the change, or before the answer that there is no change. */
static bool may_see_ordered(const struct lp_ns_op *op)
{
	bool is_change = op->opcode == LP_NS_MAKE || op->opcode == LP_NS_REMOVE ||
			 op->opcode == LP_NS_LINK || op->opcode == LP_NS_RENAME;
	return is_change ||
	       (op->ack == LP_ACK_ORDERED && op->opcode != LP_NS_SYNC && op->opcode < LP_NS_WALK);
}

/* True for an operation by number that holds nothing yet: it sees its inode as all earlier ones
 * have left it. */
static bool keeps_turn(const struct lpi_job *job)
{
	return job->op != NULL && job->op->opcode <= LP_NS_CLOSE && job->lock_cnt == 0 &&
	       job->wide == NULL;
}

static void start_as(struct lpi_job *job, uint32_t shard_idx, struct lpi_job_ask *ask,
		     bool is_locked, bool passes_names)
{
	ask->call.may_wait_space = false;
	ask->call.passes_names = passes_names;
	ask->call.keeps_turn = !is_locked && keeps_turn(job);
	job->pending++;
	lpi_call_store(job->ns, shard_idx, &ask->call, &ask->op, !is_locked);
}

static void start(struct lpi_job *job, uint32_t shard_idx, struct lpi_job_ask *ask, bool is_locked)
{
	start_as(job, shard_idx, ask, is_locked, false);
}

/* Only state that a crash could take back must be made durable before a change that rests on it. A
 * shard that has failed cannot sync, but the state that it serves since then is durable (rule
 * L7). */
static void seen(struct lpi_call *call)
{
	if (call->saw_ordered)
		LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job->seen_shards |=
			UINT64_C(1) << call->to->options.shard_idx;
	answered(call);
}

static void see_ordered(struct lpi_job *job, struct lpi_job_ask *ask)
{
	ask->op.sees_ordered = may_see_ordered(job->op);
	ask->call.done = seen;
}

void lpi_job_ask(struct lpi_job *job, uint32_t shard_idx, uint32_t idx, bool is_locked)
{
	struct lpi_job_ask *ask = lpi_job_ask_at(job, idx);
	see_ordered(job, ask);
	start(job, shard_idx, ask, is_locked);
}

void lpi_job_ask_part(struct lpi_job *job, uint32_t shard_idx, uint32_t idx)
{
	struct lpi_job_ask *ask = lpi_job_ask_at(job, idx);
	ask->op.sees_ordered = true;
	ask->call.done = seen;
	start(job, shard_idx, ask, true);
}

void lpi_job_ask_other(struct lpi_job *job, uint32_t shard_idx, struct lpi_job_ask *ask)
{
	ask->job = job;
	see_ordered(job, ask);
	start(job, shard_idx, ask, false);
}

void lpi_job_ask_dir(struct lpi_job *job, uint32_t shard_idx, uint32_t idx)
{
	struct lpi_job_ask *ask = lpi_job_ask_at(job, idx);
	see_ordered(job, ask);
	start_as(job, shard_idx, ask, false, true);
}

void lpi_job_ask_durable(struct lpi_job *job, uint32_t shard_idx, uint32_t idx)
{
	struct lpi_job_ask *ask = lpi_job_ask_at(job, idx);
	ask->call.done = answered;
	start_as(job, shard_idx, ask, false, true);
}

void lpi_job_ask_held(struct lpi_job *job, uint32_t shard_idx, uint32_t idx, uint32_t stat_idx,
		      bool is_locked)
{
	lpi_call_hold(&lpi_job_ask_at(job, idx)->call, lpi_job_op(job, stat_idx));
	lpi_job_ask(job, shard_idx, idx, is_locked);
}

void lpi_job_submit(struct lpi_job *job, uint32_t shard_idx, uint32_t idx, struct lp_store_op *op)
{
	struct lpi_job_ask *ask = lpi_job_ask_at(job, idx);
	ask->call.done = answered;
	ask->call.may_wait_space = true;
	ask->call.passes_names = false;
	ask->call.keeps_turn = false;
	job->pending++;
	lpi_call_store(job->ns, shard_idx, &ask->call, op, true);
}

void lpi_job_run(struct lpi_job *job, uint32_t shard_idx, uint32_t idx,
		 void (*run)(struct lpi_call *call))
{
	struct lpi_job_ask *ask = lpi_job_ask_at(job, idx);
	ask->call.run = run;
	ask->call.done = answered;
	job->pending++;
	lpi_call_start(job->ns, shard_idx, &ask->call);
}

void lpi_job_wait(struct lpi_job *job, lpi_step_fn *next)
{
	LP_ASSERT(job->pending > 0 && job->next == NULL);
	job->next = next;
}

static void run_nothing(struct lpi_call *call)
{
	lpi_call_end(call, 0);
}

void lpi_job_soon(struct lpi_job *job, lpi_step_fn *next)
{
	lpi_job_run(job, job->ns->options.shard_idx, LPI_JOB_ASKS - 1, run_nothing);
	lpi_job_wait(job, next);
}

static void fail_now(struct lpi_job *job)
{
	lpi_job_end(job, job->result);
}

void lpi_job_fail(struct lpi_job *job, int result)
{
	job->result = result;
	lpi_job_soon(job, fail_now);
}

/* --- Locking ---------------------------------------------------------------------------------- */

static struct lpi_job_lock *add_lock(struct lpi_job *job, enum lpi_lock_class class,
				     uint32_t shard_idx)
{
	LP_ASSERT(job->lock_cnt < LPI_JOB_LOCKS);
	struct lpi_job_lock *lock = &job->locks[job->lock_cnt++];
	*lock = (struct lpi_job_lock){.class = class, .shard_idx = shard_idx, .job = job};
	return lock;
}

/* Two names of a spread directory with one hash may be on different shards, because another hash
 * chooses the shard. Each is locked on its own. */
static struct lpi_job_lock *find_lock(struct lpi_job *job, enum lpi_lock_class class,
				      uint32_t shard_idx, struct lp_ino ino, uint64_t hash)
{
	for (uint32_t i = 0; i < job->lock_cnt; i++) {
		struct lpi_job_lock *lock = &job->locks[i];
		if (lock->class == class && lock->shard_idx == shard_idx &&
		    lock->lock.ino.nr == ino.nr && lock->lock.hash == hash)
			return lock;
	}
	return NULL;
}

static bool has_inode_lock(struct lpi_job *job, struct lp_ino ino)
{
	return find_lock(job, LPI_CLASS_INODE, lp_ino_shard(ino), ino, 0) != NULL;
}

void lpi_job_lock_token(struct lpi_job *job)
{
	struct lpi_job_lock *lock = add_lock(job, LPI_CLASS_TOKEN, 0);
	lock->lock.kind = LPI_LOCK_TOKEN;
}

void lpi_job_lock_name(struct lpi_job *job, const struct lpi_entry *entry)
{
	uint64_t hash = lpi_lock_hash(entry->name, entry->name_len);
	if (find_lock(job, LPI_CLASS_NAME, entry->shard_idx, entry->dir, hash) != NULL)
		return;
	struct lpi_job_lock *lock = add_lock(job, LPI_CLASS_NAME, entry->shard_idx);
	lock->lock.kind = LPI_LOCK_NAME;
	lock->lock.ino = entry->dir;
	lock->lock.hash = hash;
}

void lpi_job_lock_inode(struct lpi_job *job, struct lp_ino ino)
{
	if (has_inode_lock(job, ino))
		return;
	struct lpi_job_lock *lock = add_lock(job, LPI_CLASS_INODE, lp_ino_shard(ino));
	lock->lock.kind = LPI_LOCK_INODE;
	lock->lock.ino = ino;
}

void lpi_job_lock_fragment(struct lpi_job *job, uint32_t shard_idx, struct lp_ino dir)
{
	struct lpi_job_lock *lock = add_lock(job, LPI_CLASS_FRAGMENT, shard_idx);
	lock->lock.kind = LPI_LOCK_FRAGMENT;
	lock->lock.ino = dir;
}

void lpi_job_lock_fragments(struct lpi_job *job, struct lp_ino dir)
{
	struct lpi_wide *wide = job->wide;
	LP_ASSERT(wide != NULL);
	for (uint32_t i = 0; i < wide->cnt; i++) {
		wide->locks[i] = (struct lpi_job_lock){
			.class = LPI_CLASS_FRAGMENT, .shard_idx = i, .job = job};
		wide->locks[i].lock.kind = LPI_LOCK_FRAGMENT;
		wide->locks[i].lock.ino = dir;
	}
}

static uint32_t locks_cnt(const struct lpi_job *job)
{
	return job->lock_cnt + (job->wide == NULL ? 0 : job->wide->cnt);
}

static struct lpi_job_lock *lock_at(struct lpi_job *job, uint32_t i)
{
	return i < job->lock_cnt ? &job->locks[i] : &job->wide->locks[i - job->lock_cnt];
}

/* A name brings a hold on its directory's fragment, so names and whole fragments have one order. */
static uint32_t rank_of(const struct lpi_job_lock *lock)
{
	return lock->class == LPI_CLASS_FRAGMENT ? LPI_CLASS_NAME : lock->class;
}

static bool is_before(const struct lpi_job_lock *a, const struct lpi_job_lock *b)
{
	if (rank_of(a) != rank_of(b))
		return rank_of(a) < rank_of(b);
	if (a->shard_idx != b->shard_idx)
		return a->shard_idx < b->shard_idx;
	if (a->lock.ino.nr != b->lock.ino.nr)
		return a->lock.ino.nr < b->lock.ino.nr;
	if (a->class != b->class)
		return a->class < b->class;
	return a->lock.hash < b->lock.hash;
}

/* The first lock in the order that was not requested yet; NULL: all were. */
static struct lpi_job_lock *next_lock(struct lpi_job *job)
{
	struct lpi_job_lock *best = NULL;
	for (uint32_t i = 0; i < locks_cnt(job); i++) {
		struct lpi_job_lock *lock = lock_at(job, i);
		if (lock->job != NULL && !lock->is_asked_for &&
		    (best == NULL || is_before(lock, best)))
			best = lock;
	}
	return best;
}

static const struct lpi_lock *sibling_of(struct lpi_job *job, const struct lpi_job_lock *lock)
{
	if (lock->class != LPI_CLASS_NAME)
		return NULL;
	for (uint32_t i = 0; i < job->lock_cnt; i++) {
		const struct lpi_job_lock *other = &job->locks[i];
		if (other != lock && other->class == LPI_CLASS_NAME && other->is_asked_for &&
		    other->shard_idx == lock->shard_idx && other->lock.ino.nr == lock->lock.ino.nr)
			return &other->lock;
	}
	return NULL;
}

/* The owner of a whole fragment may remove the directory. No name of it is locked here now, so no
 * operation relies on its existence: the knowledge is dropped, and asked for again. */
static void note_held(struct lp_ns *ns, const struct lpi_lock *lock)
{
	if (lock->kind == LPI_LOCK_FRAGMENT && lpi_lock_is_held(lock))
		lpi_dir_alive_forget(ns, lock->ino);
}

static void granted(struct lpi_lock *lock)
{
	struct lpi_call *call = &LP_CONTAINER_OF(lock, struct lpi_job_lock, lock)->call;
	note_held(call->to, lock);
	lpi_call_end(call, lock->result);
}

static void run_acquire(struct lpi_call *call)
{
	struct lpi_job_lock *lock = LP_CONTAINER_OF(call, struct lpi_job_lock, call);
	if (!lpi_lock_acquire(call->to->locks, &lock->lock))
		return;
	note_held(call->to, &lock->lock);
	lpi_call_end(call, lock->lock.result);
}

static void lock_more(struct lpi_job *job);

/* Locks granted so far are given back when the job ends. */
static void lock_refused(struct lpi_job *job)
{
	lpi_end_fn *end = job->lock_refused;
	job->lock_refused = NULL;
	if (end != NULL)
		end(job, job->result);
	else
		lpi_job_stop(job, job->result);
}

static void refuse(struct lpi_job_lock *lock)
{
	struct lpi_job *job = lock->job;
	lock->is_asked_for = false;
	job->next = NULL;
	job->result = lock->lock.result;
	/* Perhaps inside the submit. */
	lpi_job_soon(job, lock_refused);
}

static void locked_one(struct lpi_call *call)
{
	struct lpi_job_lock *lock = LP_CONTAINER_OF(call, struct lpi_job_lock, call);
	if (call->result < 0)
		refuse(lock);
	else
		lock_more(lock->job);
}

static void lock_more(struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	for (;;) {
		struct lpi_job_lock *lock = next_lock(job);
		if (lock == NULL)
			break;
		lock->is_asked_for = true;
		lock->lock.granted = granted;
		lock->lock.sibling = sibling_of(job, lock);
		lock->call.done = locked_one;
		lock->call.run = run_acquire;
		if (lock->shard_idx != ns->options.shard_idx) {
			lpi_call_start(ns, lock->shard_idx, &lock->call);
			return;
		}
		lpi_call_here(ns, &lock->call);
		if (!lpi_lock_acquire(ns->locks, &lock->lock))
			return;
		note_held(ns, &lock->lock);
		lock->call.from = NULL;
		if (lock->lock.result < 0) {
			refuse(lock);
			return;
		}
	}
	lpi_step_fn *next = job->next;
	job->next = NULL;
	job->lock_refused = NULL;
	next(job);
}

void lpi_job_lock(struct lpi_job *job, lpi_step_fn *next)
{
	LP_ASSERT(job->pending == 0 && job->next == NULL);
	job->next = next;
	lock_more(job);
}

static void run_release(struct lpi_call *call)
{
	struct lpi_job_lock *lock = LP_CONTAINER_OF(call, struct lpi_job_lock, call);
	lpi_lock_release(call->to->locks, &lock->lock);
	lpi_call_end(call, 0);
}

static void released(struct lpi_call *call)
{
	one_less(LP_CONTAINER_OF(call, struct lpi_job_lock, call)->job);
}

static void forget_locks(struct lpi_job *job)
{
	job->lock_cnt = 0;
	if (job->wide != NULL)
		memset(job->wide->locks, 0, job->wide->cnt * sizeof(*job->wide->locks));
}

static void all_released(struct lpi_job *job)
{
	lpi_step_fn *next = job->after_unlock;
	/* A pact that is not over still holds its locks. */
	if (!job->has_pact)
		forget_locks(job);
	next(job);
}

void lpi_job_unlock(struct lpi_job *job, lpi_step_fn *next)
{
	struct lp_ns *ns = job->ns;
	LP_ASSERT(job->pending == 0 && job->next == NULL);
	job->next = all_released;
	job->after_unlock = next;
	job->pending = 1; /* so that none of the calls is the last before all have begun */
	for (uint32_t i = 0; i < locks_cnt(job); i++) {
		struct lpi_job_lock *lock = lock_at(job, i);
		if (!lock->is_asked_for || lock->is_in_pact)
			continue;
		if (lock->shard_idx == ns->options.shard_idx) {
			lpi_lock_release(ns->locks, &lock->lock);
			continue;
		}
		lock->call.run = run_release;
		lock->call.done = released;
		job->pending++;
		lpi_call_start(ns, lock->shard_idx, &lock->call);
	}
	one_less(job);
}

/* --- Wide sets -------------------------------------------------------------------------------- */

int lpi_wide_new(uint32_t shard_cnt, struct lpi_wide **ret_wide)
{
	struct lpi_wide *wide = calloc(1, sizeof(*wide));
	if (wide == NULL)
		return -ENOMEM;
	wide->cnt = shard_cnt;
	wide->locks = calloc(shard_cnt, sizeof(*wide->locks));
	wide->parts = calloc(shard_cnt, sizeof(*wide->parts));
	if (wide->locks == NULL || wide->parts == NULL) {
		lpi_wide_free(wide);
		return -ENOMEM;
	}
	*ret_wide = wide;
	return 0;
}

void lpi_wide_free(struct lpi_wide *wide)
{
	while (wide != NULL) {
		struct lpi_wide *next = wide->next;
		free(wide->locks);
		free(wide->parts);
		free(wide);
		wide = next;
	}
}

/* Replaces a wide set that a stuck change has kept, when there was no memory for another. */
static void make_up_wide(struct lp_ns *ns)
{
	struct lpi_wide *wide = NULL;
	if (ns->wide_cnt == LPI_WIDES || lpi_wide_new(ns->options.shard_cnt, &wide) < 0)
		return;
	ns->wide_cnt++;
	ns->wides = wide;
}

/* No job has a set that it could give back. Perhaps called inside the submit. */
static void refuse_wide(struct lpi_job *job)
{
	job->next = NULL;
	job->result = -ENOMEM;
	lpi_job_soon(job, lock_refused);
}

void lpi_job_take_wide(struct lpi_job *job, lpi_step_fn *next)
{
	struct lp_ns *ns = job->ns;
	LP_ASSERT(job->next == NULL && job->wide == NULL && job->lock_cnt == 0);
	if (ns->wides == NULL)
		make_up_wide(ns);
	if (ns->wide_cnt == 0) {
		refuse_wide(job);
		return;
	}
	if (ns->wides == NULL) {
		job->next = next;
		lpi_job_list_push_back(&ns->wide_waiting, job);
		return;
	}
	job->wide = ns->wides;
	ns->wides = job->wide->next;
	job->wide->next = NULL;
	memset(job->wide->locks, 0, job->wide->cnt * sizeof(*job->wide->locks));
	next(job);
}

static void pass_wide(struct lp_ns *ns, struct lpi_wide *wide)
{
	wide->next = ns->wides;
	ns->wides = wide;
	struct lpi_job *next = lpi_job_list_pop_front(&ns->wide_waiting);
	if (next == NULL)
		return;
	lpi_step_fn *step = next->next;
	next->next = NULL;
	lpi_job_take_wide(next, step);
}

static void give_wide(struct lpi_job *job)
{
	struct lpi_wide *wide = job->wide;
	job->wide = NULL;
	if (wide != NULL)
		pass_wide(job->ns, wide);
}

void lpi_job_renew_wide(struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	struct lpi_wide *wide = NULL;
	struct lpi_job *waiting = NULL;
	if (job->wide == NULL)
		return;
	if (lpi_wide_new(job->wide->cnt, &wide) == 0) {
		pass_wide(ns, wide);
		return;
	}
	ns->wide_cnt--;
	while (ns->wide_cnt == 0 && (waiting = lpi_job_list_pop_front(&ns->wide_waiting)) != NULL)
		refuse_wide(waiting);
}

/* --- Changing --------------------------------------------------------------------------------- */

static struct lpi_part *part_on(struct lpi_job *job, uint32_t shard_idx)
{
	struct lpi_pact *pact = &job->pact;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		if (pact->parts[i]->shard_idx == shard_idx)
			return pact->parts[i];
	}
	struct lpi_part *part = NULL;
	if (job->wide != NULL) {
		part = &job->wide->parts[shard_idx];
	} else {
		LP_ASSERT(pact->part_cnt < LPI_JOB_PARTS);
		part = &job->parts[pact->part_cnt];
	}
	memset(part, 0, offsetof(struct lpi_part, op));
	part->shard_idx = shard_idx;
	LP_ASSERT(pact->part_cnt < LPI_PACT_PARTS);
	pact->parts[pact->part_cnt++] = part;
	return part;
}

struct lp_change *lpi_job_change(struct lpi_job *job, uint32_t shard_idx, enum lp_change_type type,
				 struct lp_ino ino)
{
	struct lpi_part *part = part_on(job, shard_idx);
	uint32_t at = part->change_cnt;
	LP_ASSERT(part->change_cnt < LPI_PART_CHANGES);
	if (type < LP_CHANGE_CREATE) {
		while (at > 0 && part->changes[at - 1].type >= LP_CHANGE_CREATE)
			at--;
		memmove(&part->changes[at + 1], &part->changes[at],
			(part->change_cnt - at) * sizeof(part->changes[0]));
	}
	part->change_cnt++;
	part->changes[at] = (struct lp_change){.type = type, .ino = ino};
	return &part->changes[at];
}

void lpi_job_guard_rights(struct lpi_job *job, struct lp_ino ino, const struct lp_attrs *attrs)
{
	struct lp_change *guard = lpi_job_change(job, lp_ino_shard(ino), LP_GUARD_INODE, ino);
	guard->guard.mode_mask = 07777;
	guard->guard.mode = attrs->mode;
	guard->guard.has_owner = true;
	guard->guard.uid = attrs->uid;
	guard->guard.gid = attrs->gid;
}

void lpi_job_guard_flags(struct lpi_job *job, struct lp_ino ino, uint32_t flags)
{
	struct lpi_part *part = part_on(job, lp_ino_shard(ino));
	for (uint32_t i = 0; i < part->change_cnt; i++) {
		struct lp_change *change = &part->changes[i];
		if (change->type == LP_GUARD_INODE && change->ino.nr == ino.nr) {
			change->guard.flags |= flags;
			return;
		}
	}
	lpi_job_change(job, part->shard_idx, LP_GUARD_INODE, ino)->guard.flags = flags;
}

struct lp_attrs *lpi_job_attrs(struct lpi_job *job)
{
	LP_ASSERT(job->attrs_cnt < LP_ARRAY_SIZE(job->attrs));
	struct lp_attrs *attrs = &job->attrs[job->attrs_cnt++];
	*attrs = (struct lp_attrs){0};
	return attrs;
}

void lpi_job_coordinate(struct lpi_job *job, uint32_t shard_idx)
{
	job->pact.coordinator = part_on(job, shard_idx);
}

void lpi_job_seal(struct lpi_job *job, uint32_t shard_idx, struct lp_ino dir)
{
	struct lpi_part *part = part_on(job, shard_idx);
	LP_ASSERT(part->sealed.nr == 0);
	part->sealed = dir;
}

static struct lp_change *mark_change(struct lpi_job *job, struct lp_ino ino,
				     enum lp_unfinished_kind kind)
{
	struct lpi_part *part = part_on(job, lp_ino_shard(ino));
	lpi_unfinished_fill(ino, kind, job->now_ns, part->mark_key, part->mark_value);
	struct lp_change *mark =
		lpi_job_change(job, part->shard_idx, LP_CHANGE_RECORD, (struct lp_ino){0});
	mark->named.name = (struct lp_bytes){part->mark_key, sizeof(part->mark_key)};
	return mark;
}

void lpi_job_mark(struct lpi_job *job, struct lp_ino ino, enum lp_unfinished_kind kind)
{
	const struct lpi_part *part = part_on(job, lp_ino_shard(ino));
	mark_change(job, ino, kind)->named.value =
		(struct lp_bytes){part->mark_value, sizeof(part->mark_value)};
}

void lpi_job_adopt(struct lpi_job *job, struct lp_ino ino)
{
	struct lpi_part *part = part_on(job, lp_ino_shard(ino));
	LP_ASSERT(part->adopted.nr == 0);
	LP_ASSERT(has_inode_lock(job, ino));
	part->adopted = ino;
	/* Without a value the record is removed. */
	(void)mark_change(job, ino, LP_UNFINISHED_KIND_ORPHAN);
}

void lpi_job_unname(struct lpi_job *job, struct lp_ino ino)
{
	struct lpi_part *part = part_on(job, lp_ino_shard(ino));
	LP_ASSERT(part->unnamed.nr == 0);
	LP_ASSERT(has_inode_lock(job, ino));
	part->unnamed = ino;
}

/* A fragment of the coordinator, or of a change on one shard, is never prepared: it is checked and
 * dropped with the changes. A fragment beside the inode is sealed and goes with the inode, which
 * may be later. */
static void seal_own(struct lpi_job *job)
{
	struct lpi_pact *pact = &job->pact;
	struct lpi_part *part = pact->coordinator;
	if (part->sealed.nr == 0)
		return;
	struct lp_ino dir = part->sealed;
	part->sealed.nr = 0;
	(void)lpi_job_change(job, part->shard_idx, LP_GUARD_EMPTY, dir);
	struct lp_change *change = lpi_job_change(job, part->shard_idx, LP_CHANGE_DIR, dir);
	change->dir.seal = part->shard_idx == lp_ino_shard(dir);
	change->dir.drop = !change->dir.seal;
}

/* The lowest shard that has changes to make, unless the job named one. */
static void choose_coordinator(struct lpi_pact *pact)
{
	bool is_named = pact->coordinator != NULL;
	for (uint32_t i = 0; i < pact->part_cnt && !is_named; i++) {
		struct lpi_part *part = pact->parts[i];
		if (lpi_part_has_work(part) &&
		    (pact->coordinator == NULL || part->shard_idx < pact->coordinator->shard_idx))
			pact->coordinator = part;
	}
	LP_ASSERT(pact->coordinator != NULL);
}

static void finish_job(struct lpi_job *job);

static void begin_again(struct lpi_job *job)
{
	lpi_step_fn *step = job->again;
	job->again = NULL;
	clear_pact(job);
	job->attrs_cnt = 0;
	forget_locks(job);
	step(job);
}

void lpi_job_again(struct lpi_job *job, lpi_step_fn *step)
{
	job->tries++;
	if (job->is_stuck) {
		job->ns->above->fail_path(job, -EIO);
		return;
	}
	job->again = step;
	if (!job->has_pact)
		lpi_job_unlock(job, begin_again);
}

void lpi_job_stuck(struct lpi_job *job)
{
	job->is_stuck = true;
	if (job->is_unlocked) {
		lpi_ns_stranded(job->ns);
		return;
	}
	if (job->again == NULL)
		return;
	job->again = NULL;
	job->ns->above->fail_path(job, -EIO);
}

static void pact_decided(struct lpi_pact *pact)
{
	struct lpi_job *job = LP_CONTAINER_OF(pact, struct lpi_job, pact);
	lpi_step_fn *next = job->next;
	job->next = NULL;
	if (pact->result < 0)
		job->seen_shards |= job->rested_shards;
	/* The state that the change was refused for may be only ordered, too. */
	bool is_refused = pact->failed != NULL && pact->result != -EIO && pact->result != -EROFS;
	if (is_refused)
		job->seen_shards |= UINT64_C(1) << pact->failed->shard_idx;
	lpi_notice_pact(job);
	next(job);
}

static void pact_over(struct lpi_pact *pact)
{
	struct lpi_job *job = LP_CONTAINER_OF(pact, struct lpi_job, pact);
	job->has_pact = false;
	if (job->is_unlocked)
		finish_job(job);
	else if (job->again != NULL)
		begin_again(job);
}

static void start_pact(struct lpi_job *job)
{
	struct lpi_pact *pact = &job->pact;
	LP_ASSERT(job->pending == 0 && job->next == NULL && !job->has_pact);
	job->next = job->committed;
	job->has_pact = true;
	choose_coordinator(pact);
	seal_own(job);
	for (uint32_t i = 0; i < locks_cnt(job); i++) {
		struct lpi_job_lock *lock = lock_at(job, i);
		if (!lock->is_asked_for)
			continue;
		struct lpi_part *part = part_on(job, lock->shard_idx);
		LP_ASSERT(part->lock_cnt < LPI_PART_LOCKS);
		part->locks[part->lock_cnt++] = &lock->lock;
		lock->is_in_pact = true;
	}
	pact->ns = job->ns;
	pact->ack = job->is_durable ? LP_ACK_DURABLE : job->op->ack;
	pact->decided = pact_decided;
	pact->over = pact_over;
	lpi_pact_start(pact);
}

/* Syncs the shards in seen_shards, some at a time. Returns how many; 0: all are synced. */
static uint32_t sync_seen(struct lpi_job *job)
{
	uint32_t asked = 0;
	for (uint32_t i = 0; i < job->ns->options.shard_cnt && asked < LPI_JOB_ASKS; i++) {
		if ((job->seen_shards & UINT64_C(1) << i) == 0)
			continue;
		job->seen_shards &= ~(UINT64_C(1) << i);
		lpi_job_op(job, asked)->opcode = LP_STORE_SYNC;
		lpi_job_ask_durable(job, i, asked++);
	}
	job->sync_cnt = asked;
	return asked;
}

static int synced_result(const struct lpi_job *job)
{
	int r = 0;
	for (uint32_t i = 0; i < job->sync_cnt; i++)
		r = LP_MIN(r, job->asks[i].call.result);
	return r;
}

/* All seen state is durable, or the change cannot be made. */
static void seen_durable(struct lpi_job *job);

static void make_seen_durable(struct lpi_job *job)
{
	if (sync_seen(job) == 0)
		start_pact(job);
	else
		lpi_job_wait(job, seen_durable);
}

static void seen_durable(struct lpi_job *job)
{
	int r = synced_result(job);
	if (r >= 0) {
		make_seen_durable(job);
		return;
	}
	job->pact.result = r;
	job->committed(job);
}

void lpi_job_commit(struct lpi_job *job, lpi_step_fn *next)
{
	const struct lpi_pact *pact = &job->pact;
	job->committed = next;
	job->rested_shards = 0;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		if (lpi_part_has_work(pact->parts[i]))
			job->rested_shards |= UINT64_C(1) << pact->parts[i]->shard_idx;
	}
	job->rested_shards &= job->seen_shards;
	job->seen_shards &= ~job->rested_shards;
	make_seen_durable(job);
}

/* --- The end ---------------------------------------------------------------------------------- */

static void finish_job(struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	give_wide(job);
	lp_pool_put(ns->jobs, job);
	lpi_ns_left(ns);
}

static void unlocked(struct lpi_job *job)
{
	job->is_unlocked = true;
	if (!job->has_pact)
		finish_job(job);
	else if (job->is_stuck)
		lpi_ns_stranded(job->ns);
}

/* The kernel may wait for something that the job held. So the kernel is told after the job has
 * given all back. Locks that a pact still holds do not wait for the kernel. */
static void unlocked_to_tell(struct lpi_job *job)
{
	struct lpi_notice *notice = job->notice;
	struct lp_ns_op *op = job->op;
	int result = job->result;
	job->op = NULL;
	unlocked(job);
	lpi_notice_tell(notice, op, result);
}

void lpi_job_stop(struct lpi_job *job, int result)
{
	lpi_step_fn *stopped = job->stopped;
	job->result = result;
	job->stopped = NULL;
	if (stopped != NULL)
		stopped(job);
	else
		lpi_job_end(job, result);
}

/* An answer rests on durable state only, also an answer that the operation was refused. */
static void end_durable(struct lpi_job *job)
{
	int r = synced_result(job);
	if (r < 0 && job->end_result >= 0)
		job->ns->above->fail_named(job,
					   r); /* closes the inode that it opened for the caller */
	else
		lpi_job_end(job, r < 0 ? r : job->end_result);
}

void lpi_job_end(struct lpi_job *job, int result)
{
	struct lp_ns_op *op = job->op;
	LP_ASSERT(op != NULL);
	LP_ASSERT(job->pending == 0 && job->next == NULL);
	if (op->ack == LP_ACK_DURABLE && sync_seen(job) > 0) {
		job->end_result = result;
		lpi_job_wait(job, end_durable);
		return;
	}
	if (op->opcode == LP_NS_STORE)
		lpi_notice_txn(job->ns, op, result, &job->notice);
	if (job->notice != NULL) {
		job->result = result;
		lpi_job_unlock(job, unlocked_to_tell);
		return;
	}
	job->op = NULL;
	lpi_ns_answer(job->ns, op, result);
	lpi_job_unlock(job, unlocked);
}
