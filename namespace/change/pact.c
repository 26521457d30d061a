/* SPDX-License-Identifier: Apache-2.0 */
/* Each step of a part is a call to its shard, which submits one transaction there. If that ends the
 * part, the call releases the part's locks before it answers. So no other message is needed to
 * unlock.
 *
 * Locks become hard with the first transaction of a part of several: from then on readers wait,
 * because the outcome may be known elsewhere before it can be seen here. */
#include "namespace/change/pact.h"

#include <errno.h>

#include "namespace/change/ns_state.h"

#define RETRY_NS (20 * LP_NS_PER_MS)

/* --- On the part's shard ---------------------------------------------------------------------- */

/* Its blocks count as being freed from add_unnamed() until this. */
static void end_unnaming(struct lpi_part *part, struct lp_ns *ns)
{
	ns->freeing.unnaming_cnt -= part->is_unnaming ? 1 : 0;
	part->is_unnaming = false;
}

static void release_locks(struct lpi_part *part, struct lp_ns *ns)
{
	end_unnaming(part, ns);
	for (uint32_t i = 0; i < part->lock_cnt; i++)
		lpi_lock_release(ns->locks, part->locks[i]);
	part->lock_cnt = 0;
	part->state = LPI_PART_ENDED;
}

/* These locks are not granted before the next opening: jobs that wait for them get -EIO. */
static void fail_locks(struct lpi_part *part, struct lp_ns *ns)
{
	end_unnaming(part, ns);
	for (uint32_t i = 0; i < part->lock_cnt; i++)
		lpi_lock_fail(ns->locks, part->locks[i]);
}

static void harden_locks(struct lpi_part *part, struct lp_ns *ns)
{
	lpi_board_doubt(ns->board);
	for (uint32_t i = 0; i < part->lock_cnt; i++)
		lpi_lock_harden(ns->locks, part->locks[i]);
}

/* The pact's own removal may be the one that frees space, and it ends only with the pact. */
static bool unnames_any(const struct lpi_pact *pact)
{
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		if (pact->parts[i]->unnamed.nr != 0)
			return true;
	}
	return false;
}

static void submit(struct lpi_part *part, uint32_t cnt, enum lp_store_ack ack,
		   enum lp_store_room room, void (*stored)(struct lpi_call *call))
{
	LP_ASSERT(cnt <= LPI_PART_CHANGES);
	part->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = part->changes, .change_cnt = cnt, .ack = ack, .room = room}};
	part->call.store_op = &part->op;
	part->call.stored = stored;
	/* The end of a pact is tried again in any case. And a removal does not wait, because it was
	 * decided for a transaction that is submitted at once whether the inode is removed or
	 * kept. */
	part->call.may_wait_space = part->state == LPI_PART_IDLE && !unnames_any(part->pact);
	part->call.space_wait = (struct lpi_freeing_wait){0};
	lpi_call_submit(&part->call);
}

static struct lpi_part *part_of(struct lpi_call *call)
{
	return LP_CONTAINER_OF(call, struct lpi_part, call);
}

/* The part had only locks, or all its changes have been made. */
static void run_release(struct lpi_call *call)
{
	release_locks(part_of(call), call->to);
	lpi_call_end(call, 0);
}

/* Adds the changes for an inode that loses its last name: it is removed or becomes an orphan. No
 * caller can open or hold it between now and the transaction, because each counts first and then
 * looks whether the inode exists. */
static void add_unnamed(struct lpi_part *part, struct lp_ns *ns)
{
	struct lp_ino ino = part->unnamed;
	if (ino.nr == 0)
		return;
	LP_ASSERT(part->change_cnt + 2 <= LPI_PART_CHANGES);
	/* Damage: its link count was too low, and this is one more name. The orphan is removed when
	 * it is closed. That may be at any moment, also before the end of a change that is only
	 * prepared here. */
	if (lpi_opens_is_orphan(ns->opens, ino))
		return;
	part->is_unnaming = true;
	ns->freeing.unnaming_cnt++;
	lpi_freeing_begin(ns);
	part->is_orphaned = lpi_opens_is_needed(ns->opens, ino);
	if (!part->is_orphaned) {
		part->changes[part->change_cnt++] =
			(struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
		return;
	}
	int64_t now_ns = lp_clock_wall_ns(lp_reactor_clock(ns->options.reactor));
	part->orphan_attrs = (struct lp_attrs){.nlink = 0, .ctime_ns = now_ns};
	part->changes[part->change_cnt++] = (struct lp_change){
		.type = LP_CHANGE_SET,
		.ino = ino,
		.inode = {.attrs = &part->orphan_attrs, .mask = LP_ATTR_NLINK | LP_ATTR_CTIME}};
	struct lp_bytes value = {part->orphan_value, sizeof(part->orphan_value)};
	lpi_unfinished_fill(ino, LP_UNFINISHED_KIND_ORPHAN, now_ns, part->orphan_key,
			    part->orphan_value);
	part->changes[part->change_cnt++] = (struct lp_change){
		.type = LP_CHANGE_RECORD,
		.named = {.name = {part->orphan_key, sizeof(part->orphan_key)}, .value = value}};
}

/* The part's changes were made. Its locks are still held, so no other change touches these
 * inodes. */
static void note_orphan(struct lpi_part *part, struct lp_ns *ns)
{
	if (part->adopted.nr != 0)
		lpi_opens_adopt(ns->opens, part->adopted);
	if (part->unnamed.nr != 0 && part->is_orphaned)
		lpi_opens_orphan(ns->opens, part->unnamed);
}

static void made(struct lpi_call *call)
{
	if (call->store_op->result >= 0)
		note_orphan(part_of(call), call->to);
	release_locks(part_of(call), call->to);
	lpi_call_end(call, call->store_op->result);
}

static void run_make(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	if (!lpi_call_bring_data(call, part->changes, part->change_cnt))
		return;
	add_unnamed(part, call->to);
	submit(part, part->change_cnt, part->pact->ack, LP_ROOM_OWN, made);
}

/* Guards stand before changes. */
static uint32_t guards_cnt(const struct lpi_part *part)
{
	uint32_t i = 0;
	while (i < part->change_cnt && part->changes[i].type < LP_CHANGE_CREATE)
		i++;
	return i;
}

static bool does_grow(const struct lpi_part *part)
{
	for (uint32_t i = 0; i < part->change_cnt; i++) {
		enum lp_change_type type = part->changes[i].type;
		if (type == LP_CHANGE_CREATE || type == LP_CHANGE_ENTRY_SET)
			return true;
	}
	return false;
}

static bool does_remove(const struct lpi_part *part)
{
	bool removes = part->unnamed.nr != 0;
	for (uint32_t i = 0; i < part->change_cnt; i++)
		removes |= part->changes[i].type == LP_CHANGE_ENTRY_REMOVE;
	return removes;
}

/* Changes that a removal makes on other shards belong to it, and all of it may use the space that
 * is kept for removals (rule L8). */
static bool is_removal(const struct lpi_pact *pact)
{
	bool removes = false;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		if (does_grow(pact->parts[i]))
			return false;
		removes |= does_remove(pact->parts[i]);
	}
	return removes;
}

/* A promise is made only where there is room to keep it. So its end may use the kept space. */
static enum lp_store_room room_to_promise(const struct lpi_part *part)
{
	if (part->pact->is_removal)
		return LP_ROOM_FREES;
	return does_grow(part) ? LP_ROOM_GROWS : LP_ROOM_OWN;
}

static struct lp_change record_change(struct lpi_part *part, const void *value, size_t len)
{
	return (struct lp_change){
		.type = LP_CHANGE_RECORD,
		.named = {.name = {part->key, sizeof(part->key)}, .value = {value, (uint32_t)len}}};
}

static bool is_of_inode(const struct lp_change *change)
{
	return change->type == LP_GUARD_INODE || change->type == LP_GUARD_NO_INODE;
}

/* A guard for a change that is only promised: the value that it reads exists and is not damaged.
 * Type LP_CHANGE_CNT: it reads nothing, or another change of the part reads it. */
static struct lp_change guard_of(const struct lp_change *change)
{
	struct lp_change guard = {.type = LP_GUARD_INODE, .ino = change->ino};
	switch (change->type) {
	case LP_CHANGE_CREATE:
		guard.type = LP_GUARD_NO_INODE;
		break;
	case LP_CHANGE_ENTRY_SET:
	case LP_CHANGE_ENTRY_REMOVE:
		guard.named.name = change->named.name;
		guard.type = LP_GUARD_DIR;
		break;
	case LP_CHANGE_DIR:
		guard.type = LP_GUARD_DIR;
		break;
	case LP_CHANGE_RECORD: /* the mark of an inode that is changed with it */
		guard.type = LP_CHANGE_CNT;
		break;
	default:
		break;
	}
	return guard;
}

static bool is_guarded(const struct lp_change *guards, uint32_t cnt, const struct lp_change *guard)
{
	if (guard->type == LP_GUARD_DIR && guard->named.name.data != NULL)
		return false;
	for (uint32_t i = 0; i < cnt; i++) {
		bool is_same = guards[i].type == guard->type ||
			       (is_of_inode(&guards[i]) && is_of_inode(guard));
		if (is_same && guards[i].ino.nr == guard->ino.nr)
			return true;
	}
	return false;
}

/* The changes are in the record, so each is replaced by the guard of the value that it will read.
 * Damage is met now, when all can still be taken back. Later the change would be decided and
 * answered, and could never end. Returns how many guards there are. */
static uint32_t guard_promises(struct lpi_part *part)
{
	uint32_t cnt = guards_cnt(part);
	for (uint32_t i = cnt; i < part->change_cnt; i++) {
		const struct lp_change guard = guard_of(&part->changes[i]);
		if (guard.type != LP_CHANGE_CNT && !is_guarded(part->changes, cnt, &guard))
			part->changes[cnt++] = guard;
	}
	return cnt;
}

static void prepared(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	int r = call->store_op->result;
	part->state = r < 0 ? LPI_PART_IDLE : LPI_PART_PREPARED;
	lpi_call_end(call, r);
}

static void run_prepare(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	struct lpi_pact *pact = part->pact;
	enum lp_store_room room = room_to_promise(part);
	add_unnamed(part, call->to);
	const struct lpi_pact_record record = {
		.kind = LP_PACT_KIND_PREPARED,
		.coordinator = pact->coordinator->shard_idx,
		.since_ns = lp_clock_wall_ns(lp_reactor_clock(call->to->options.reactor)),
		.sealed = part->sealed,
		.change_cnt = part->change_cnt,
		.changes = part->changes};
	harden_locks(part, call->to);
	part->room->len = (uint32_t)lpi_pact_record_encode(&record, pact->txid, part->room->bytes);
	uint32_t cnt = guard_promises(part);
	if (part->sealed.nr != 0) {
		LP_ASSERT(cnt + 3 <= LPI_PART_CHANGES);
		part->changes[cnt++] =
			(struct lp_change){.type = LP_GUARD_EMPTY, .ino = part->sealed};
		part->changes[cnt++] = (struct lp_change){
			.type = LP_CHANGE_DIR, .ino = part->sealed, .dir = {.seal = true}};
	}
	part->changes[cnt++] = record_change(part, part->room->bytes, part->room->len);
	submit(part, cnt, LP_ACK_DURABLE, room, prepared);
}

static void decided_here(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	if (call->store_op->result >= 0)
		note_orphan(part, call->to);
	/* If it is unknown whether the decision is durable, the locks stay until the next opening.
	 * If its data could not be written the decision certainly is not durable. */
	part->is_unknown = call->store_op->result == -EIO && call->store_op->txn.is_unknown;
	if (part->is_unknown)
		fail_locks(part, call->to);
	else
		release_locks(part, call->to);
	lpi_call_end(call, call->store_op->result);
}

static void run_decide(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	struct lpi_pact *pact = part->pact;
	uint64_t participants = 0;
	int dead = lp_store_error(call->to->options.store);
	part->is_unknown = false;
	if (dead < 0) {
		/* The shard can change nothing any more, so the change certainly was not
		 * decided. */
		release_locks(part, call->to);
		lpi_call_end(call, dead);
		return;
	}
	if (!lpi_call_bring_data(call, part->changes, part->change_cnt))
		return;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		if (pact->parts[i]->state == LPI_PART_PREPARED)
			participants |= UINT64_C(1) << pact->parts[i]->shard_idx;
	}
	const struct lpi_pact_record record = {
		.kind = LP_PACT_KIND_DECIDED,
		.coordinator = part->shard_idx,
		.participants = participants,
		.since_ns = lp_clock_wall_ns(lp_reactor_clock(call->to->options.reactor))};
	harden_locks(part, call->to);
	add_unnamed(part, call->to);
	uint32_t cnt = part->change_cnt;
	LP_ASSERT(cnt < LPI_PART_CHANGES);
	part->room->len = (uint32_t)lpi_pact_record_encode(&record, pact->txid, part->room->bytes);
	part->changes[cnt++] = record_change(part, part->room->bytes, part->room->len);
	enum lp_store_room room = pact->is_removal ? LP_ROOM_FREES : LP_ROOM_OWN;
	submit(part, cnt, LP_ACK_DURABLE, room, decided_here);
}

/* The end of a pact is tried again when there was no space. That is possible although it may use
 * the kept space, because the host of an image may have none. A stop does not wait for it, and the
 * next start ends it. */
static bool is_tried_again(struct lpi_part *part, struct lp_ns *ns)
{
	struct lp_reactor *reactor = ns->options.reactor;
	if (part->op.result != -ENOSPC || ns->state == LPI_NS_STOPPING)
		return false;
	ns->stats.finish_retries++;
	lp_timer_start(reactor, &part->retry, lp_reactor_now_ns(reactor) + RETRY_NS);
	return true;
}

static void forgotten(struct lpi_call *call)
{
	if (!is_tried_again(part_of(call), call->to))
		lpi_call_end(call, call->store_op->result);
}

static void run_forget(struct lpi_call *call);

static void retry_forget(struct lp_timer *timer)
{
	run_forget(&LP_CONTAINER_OF(timer, struct lpi_part, retry)->call);
}

static void run_forget(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	part->retry.fire = retry_forget;
	part->changes[0] = record_change(part, NULL, 0);
	/* No operation waits for it: it goes with the next commit. */
	submit(part, 1, LP_ACK_ORDERED, LP_ROOM_ENDS, forgotten);
}

/* If it fails for good the record stays for the next opening; until then the changes here may not
 * be seen. */
static void finished(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	if (is_tried_again(part, call->to))
		return;
	if (part->op.result >= 0) {
		note_orphan(part, call->to);
		release_locks(part, call->to);
	} else {
		fail_locks(part, call->to);
	}
	lpi_call_end(call, part->op.result);
}

/* It is unknown whether the change was decided, so this part cannot be ended. */
static void run_doubt(struct lpi_call *call)
{
	fail_locks(part_of(call), call->to);
	lpi_call_end(call, 0);
}

/* No change has been made here and none will be, even if the record stays, because there is no
 * decision. But a sealed directory may not be seen. */
static void aborted(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	if (is_tried_again(part, call->to))
		return;
	if (part->op.result == -ENOSPC)
		fail_locks(part, call->to);
	else
		release_locks(part, call->to);
	lpi_call_end(call, part->op.result);
}

static void run_abort(struct lpi_call *call);

static void retry_abort(struct lp_timer *timer)
{
	run_abort(&LP_CONTAINER_OF(timer, struct lpi_part, retry)->call);
}

static void run_abort(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	uint32_t cnt = 0;
	part->retry.fire = retry_abort;
	if (part->sealed.nr != 0)
		part->changes[cnt++] = (struct lp_change){
			.type = LP_CHANGE_DIR, .ino = part->sealed, .dir = {.unseal = true}};
	part->changes[cnt++] = record_change(part, NULL, 0);
	submit(part, cnt, LP_ACK_DURABLE, LP_ROOM_ENDS, aborted);
}

/* The changes of a record, and its removal. A fragment that was sealed goes; but beside its inode
 * it stays sealed until that is removed, which takes it along: one that is open still is there, and
 * must not be given entries. */
static uint32_t list_finish(const struct lp_ns *ns, const struct lpi_pact_record *record,
			    const uint8_t *key, struct lp_change *changes)
{
	uint32_t cnt = record->change_cnt;
	memcpy(changes, record->changes, cnt * sizeof(*changes));
	if (record->sealed.nr != 0 && lp_ino_shard(record->sealed) != ns->options.shard_idx)
		changes[cnt++] = (struct lp_change){
			.type = LP_CHANGE_DIR, .ino = record->sealed, .dir = {.drop = true}};
	changes[cnt++] = (struct lp_change){.type = LP_CHANGE_RECORD,
					    .named = {.name = {key, LPI_PACT_KEY_BYTES}}};
	return cnt;
}

static void run_finish(struct lpi_call *call);

static void retry_finish(struct lp_timer *timer)
{
	run_finish(&LP_CONTAINER_OF(timer, struct lpi_part, retry)->call);
}

static void run_finish(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	struct lpi_part_room *room = part->room;
	const struct lp_bytes value = {room->bytes, room->len};
	uint32_t shard_cnt = call->to->options.shard_cnt;
	part->retry.fire = retry_finish;
	int r = lpi_pact_record_decode(value, part->pact->txid, shard_cnt, &room->decoded);
	LP_ASSERT(r == 0);
	uint32_t cnt = list_finish(call->to, &room->decoded.record, part->key, part->changes);
	submit(part, cnt, LP_ACK_DURABLE, LP_ROOM_ENDS, finished);
}

/* --- At home ---------------------------------------------------------------------------------- */

static void part_done(struct lpi_call *call)
{
	struct lpi_part *part = part_of(call);
	struct lpi_pact *pact = part->pact;
	if (call->result < 0 && pact->failed == NULL && !pact->is_decided) {
		pact->failed = part;
		pact->result = call->result;
	}
	LP_ASSERT(pact->calls_cnt > 0);
	if (--pact->calls_cnt == 0)
		pact->next(pact);
}

static void call_part(struct lpi_pact *pact, struct lpi_part *part,
		      void (*run)(struct lpi_call *call))
{
	part->call.run = run;
	part->call.done = part_done;
	pact->calls_cnt++;
	lpi_call_start(pact->ns, part->shard_idx, &part->call);
}

static bool begin_shared(struct lpi_pact *pact);

void lpi_pact_put_rooms(struct lpi_pact *pact)
{
	struct lp_ns *ns = pact->ns;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		struct lpi_part *part = pact->parts[i];
		if (part->room != NULL)
			lp_pool_put(ns->rooms, part->room);
		part->room = NULL;
	}
}

/* Pacts that wait for rooms go on, in their order. */
void lpi_pact_begin_waiting(struct lp_ns *ns)
{
	struct lpi_pact *next = NULL;
	while ((next = lpi_pact_list_first(&ns->pacts_waiting)) != NULL && begin_shared(next))
		lpi_pact_list_remove(next);
}

static void pact_over(struct lpi_pact *pact)
{
	struct lp_ns *ns = pact->ns;
	lpi_pact_put_rooms(pact);
	lpi_pact_begin_waiting(ns);
	pact->over(pact);
}

static void say_decided(struct lpi_pact *pact)
{
	pact->is_decided = true;
	pact->decided(pact);
}

/* A part that could not end keeps its locks, and the pact with them. */
static bool have_all_ended(const struct lpi_pact *pact)
{
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		if (pact->parts[i]->state != LPI_PART_ENDED)
			return false;
	}
	return true;
}

/* The change has failed, and all is as before, or will be after the next opening. */
static void undone(struct lpi_pact *pact)
{
	say_decided(pact);
	if (have_all_ended(pact))
		pact_over(pact);
	else
		pact->ns->above->pact_is_stuck(pact->ns, pact);
}

static void forget(struct lpi_pact *pact)
{
	if (!have_all_ended(pact)) {
		pact->ns->above->pact_is_stuck(pact->ns, pact);
		return;
	}
	pact->next = pact_over;
	call_part(pact, pact->coordinator, run_forget);
}

/* Ends all parts that are not over: those with work by `work`, the others by releasing locks. */
static void end_rest(struct lpi_pact *pact, void (*work)(struct lpi_call *call),
		     void (*next)(struct lpi_pact *pact))
{
	pact->next = next;
	/* One more, so that none of the calls is the last before all have begun. */
	pact->calls_cnt++;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		struct lpi_part *part = pact->parts[i];
		if (part->state == LPI_PART_PREPARED)
			call_part(pact, part, work);
		else if (part->state == LPI_PART_IDLE && part->lock_cnt > 0)
			call_part(pact, part, run_release);
		else
			part->state = LPI_PART_ENDED;
	}
	if (--pact->calls_cnt == 0)
		pact->next(pact);
}

static void in_doubt(struct lpi_pact *pact)
{
	pact->ns->above->pact_is_stuck(pact->ns, pact);
}

static void stay_in_doubt(struct lpi_pact *pact)
{
	say_decided(pact);
	pact->next = in_doubt;
	/* One more, as in end_rest(). */
	pact->calls_cnt++;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		struct lpi_part *part = pact->parts[i];
		if (part != pact->coordinator && part->lock_cnt > 0)
			call_part(pact, part, run_doubt);
	}
	if (--pact->calls_cnt == 0)
		pact->next(pact);
}

static void deciding_done(struct lpi_pact *pact)
{
	if (pact->coordinator->is_unknown) {
		stay_in_doubt(pact);
		return;
	}
	if (pact->result < 0) {
		end_rest(pact, run_abort, undone);
		return;
	}
	say_decided(pact);
	end_rest(pact, run_finish, forget);
}

static void preparing_done(struct lpi_pact *pact)
{
	if (pact->result < 0) {
		end_rest(pact, run_abort, undone);
		return;
	}
	pact->next = deciding_done;
	call_part(pact, pact->coordinator, run_decide);
}

static void making_done(struct lpi_pact *pact)
{
	say_decided(pact);
	end_rest(pact, run_release, pact_over);
}

static bool take_rooms(struct lpi_pact *pact)
{
	struct lp_ns *ns = pact->ns;
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < pact->part_cnt; i++)
		cnt += lpi_part_has_work(pact->parts[i]) ? 1 : 0;
	if (lp_pool_free_cnt(ns->rooms) < cnt)
		return false;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		if (!lpi_part_has_work(pact->parts[i]))
			continue;
		pact->parts[i]->room = lp_pool_get(ns->rooms);
		LP_ASSERT(pact->parts[i]->room != NULL);
	}
	return true;
}

/* False when there are no rooms for it, or no pact may begin. */
static bool begin_shared(struct lpi_pact *pact)
{
	struct lp_ns *ns = pact->ns;
	if (ns->are_shared_held || !take_rooms(pact))
		return false;
	ns->stats.face.shared_txns++;
	/* A number of an inode is never given twice. So the txid is unique, and its key never
	 * stands for another change. */
	pact->txid = lp_store_new_ino(ns->options.store).nr;
	pact->is_removal = is_removal(pact);
	pact->next = preparing_done;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		struct lpi_part *part = pact->parts[i];
		lpi_pact_key(pact->txid, part->key);
		if (lpi_part_has_work(part) && part != pact->coordinator)
			call_part(pact, part, run_prepare);
	}
	return true;
}

void lpi_pact_start(struct lpi_pact *pact)
{
	uint32_t working = 0;
	struct lpi_part *first = NULL;
	LP_ASSERT(pact->part_cnt <= LPI_PACT_PARTS);
	pact->result = 0;
	pact->failed = NULL;
	pact->is_decided = false;
	pact->calls_cnt = 0;
	for (uint32_t i = 0; i < pact->part_cnt; i++) {
		struct lpi_part *part = pact->parts[i];
		part->pact = pact;
		part->state = LPI_PART_IDLE;
		part->room = NULL;
		if (!lpi_part_has_work(part))
			continue;
		working++;
		if (first == NULL || part->shard_idx < first->shard_idx)
			first = part;
	}
	if (pact->coordinator == NULL)
		pact->coordinator = first;
	LP_ASSERT(working > 0 && lpi_part_has_work(pact->coordinator));
	LP_ASSERT(pact->coordinator->sealed.nr == 0);
	if (working > 1) {
		struct lp_ns *ns = pact->ns;
		if (!lpi_pact_list_is_empty(&ns->pacts_waiting) || !begin_shared(pact))
			lpi_pact_list_push_back(&ns->pacts_waiting, pact);
		return;
	}
	pact->ns->stats.face.local_txns++;
	pact->next = making_done;
	call_part(pact, pact->coordinator, run_make);
}

/* --- After a crash ---------------------------------------------------------------------------- */

static void run_redo(struct lpi_call *call)
{
	lpi_call_submit(call);
}

void lpi_pact_redo(struct lp_ns *ns, uint64_t txid, bool is_decided, struct lpi_pact_redo *redo)
{
	const struct lpi_pact_record *record = &redo->decoded.record;
	uint32_t cnt = 0;
	lpi_pact_key(txid, redo->key);
	if (is_decided) {
		cnt = list_finish(ns, record, redo->key, redo->changes);
	} else {
		if (record->sealed.nr != 0)
			redo->changes[cnt++] = (struct lp_change){.type = LP_CHANGE_DIR,
								  .ino = record->sealed,
								  .dir = {.unseal = true}};
		redo->changes[cnt++] =
			(struct lp_change){.type = LP_CHANGE_RECORD,
					   .named = {.name = {redo->key, sizeof(redo->key)}}};
	}
	redo->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = redo->changes, .change_cnt = cnt, .room = LP_ROOM_ENDS}};
	redo->call.store_op = &redo->op;
	redo->call.run = run_redo;
	lpi_call_start(ns, ns->options.shard_idx, &redo->call);
}
