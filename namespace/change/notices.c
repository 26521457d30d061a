/* SPDX-License-Identifier: Apache-2.0 */
/* Notices are made from the changes themselves, so no operation can forget to report one.
 *
 * If the kernel does not know a name, or its directory, nothing is left to do. The kernel enters
 * the result of a lookup under the directory's lock, which a notice of a name takes, too. If it
 * does not know an inode, an answer with old attributes may be on its way to it. The inode is
 * counted as held in that case, from before the attributes were read. So the kernel is told again
 * until it knows the inode, or has forgotten it. If the kernel knows an inode, it takes no
 * attributes that were asked for before the notice, and it waits for the pages of data that is on
 * its way. */
#include "namespace/change/notices.h"

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"
#include "namespace/change/ns_state.h"

#define RETRY_NS LP_NS_PER_MS
/* The interval when no operation waits any more. Then the time after which no answer can be on its
 * way any more. */
#define RETRY_LATE_NS (50 * LP_NS_PER_MS)
#define GIVE_UP_NS    (30 * LP_NS_PER_S)
#define UNKNOWN_NS    (50 * LP_NS_PER_MS)
#define NOBODY_KNOWS  UINT64_MAX

struct lpi_notice {
	struct lp_ns_notice face;
	struct lpi_notice *next; /* of the same operation */
	/* The first notice of the operation. */
	struct lpi_notice *first;
	struct lp_ns_op *op; /* of the first one; NULL: it has been answered */
	int result;
	uint32_t pending; /* of those that are being told */
	/* The names in it, as they count in lpi_untold. */
	uint16_t slots[LP_NS_NOTICE_ITEMS];
	uint32_t slot_cnt;
	bool is_move; /* of a mount's rename */
	struct lp_timer limit;
	/* Telling again of items that the kernel did not know. */
	uint64_t began_ns;
	uint32_t item_idx; /* being asked for */
	uint32_t kept_cnt; /* of those before it */
	struct lpi_call call;
	struct lp_timer retry;
};

int lpi_notices_new(struct lp_ns *ns)
{
	const struct lp_pool_config config = {.name = "namespace notices",
					      .object_bytes = sizeof(struct lpi_notice),
					      .limit = LPI_NOTICES_MAX,
					      .limit_max = LPI_NOTICES_LIMIT_MAX};
	if (ns->options.shard_idx == 0) {
		ns->untold = calloc(1, sizeof(*ns->untold));
		if (ns->untold == NULL)
			return -ENOMEM;
	}
	return lp_pool_new(&config, &ns->notices);
}

void lpi_notices_free(struct lp_ns *ns)
{
	lp_pool_free(ns->notices);
	free(ns->untold);
	ns->notices = NULL;
	ns->untold = NULL;
}

/* --- Changes not told yet --------------------------------------------------------------------- */

static struct lpi_untold *untold_of(const struct lp_ns *ns)
{
	return ns->peers[0]->untold;
}

static uint16_t slot_of(struct lp_ino dir, struct lp_bytes name)
{
	return (uint16_t)(lp_hash_u64(name.data, name.len, dir.nr) % LPI_UNTOLD_NAMES);
}

static bool is_untold(const struct lp_ns *ns, struct lp_ino dir, struct lp_bytes name)
{
	return atomic_load(&untold_of(ns)->names[slot_of(dir, name)]) > 0;
}

/* The operation that changed the name still holds its lock, so a rename of it comes later. */
static void count_untold(struct lpi_notice *notice, struct lp_ino dir, struct lp_bytes name)
{
	uint16_t slot = slot_of(dir, name);
	LP_ASSERT(notice->slot_cnt < LP_NS_NOTICE_ITEMS);
	notice->slots[notice->slot_cnt++] = slot;
	atomic_fetch_add(&untold_of(notice->face.ns)->names[slot], 1);
}

static void count_move(struct lpi_notice *notice)
{
	if (!notice->is_move)
		atomic_fetch_add(&untold_of(notice->face.ns)->moves, 1);
	notice->is_move = true;
}

static void count_told(struct lpi_notice *notice)
{
	struct lpi_untold *untold = untold_of(notice->face.ns);
	for (uint32_t i = 0; i < notice->slot_cnt; i++)
		atomic_fetch_sub(&untold->names[notice->slots[i]], 1);
	if (notice->is_move)
		atomic_fetch_sub(&untold->moves, 1);
	notice->slot_cnt = 0;
	notice->is_move = false;
}

/* --- Which changes the kernel is told of ------------------------------------------------------ */

static bool changes_something(const struct lp_ns_op *op)
{
	switch (op->opcode) {
	case LP_NS_STORE:
		return op->store.op.opcode == LP_STORE_TXN;
	case LP_NS_STAT:
	case LP_NS_OPEN:
	case LP_NS_CLOSE:
	case LP_NS_SYNC:
	case LP_NS_FORGET:
	case LP_NS_LOOKUP:
	case LP_NS_READDIR:
	case LP_NS_WALK:
	case LP_NS_LIST:
		return false;
	case LP_NS_SET:
	case LP_NS_MAKE:
	case LP_NS_REMOVE:
	case LP_NS_LINK:
	case LP_NS_RENAME:
	case LP_NS_PUT:
	case LP_NS_UPLOAD:
	case LP_NS_COMMIT:
	case LP_NS_DELETE:
	case LP_NS_COPY:
	case LP_NS_MOVE:
	case LP_NS_OPCODE_CNT:
		break;
	}
	return true;
}

bool lpi_notice_must_wait(const struct lp_ns *ns, const struct lp_ns_op *op)
{
	return ns->watch.tell != NULL && !op->is_mounts && ns->notices_out >= LPI_NOTICES_MAX &&
	       changes_something(op);
}

/* True if the kernel may remember the inode; it always remembers its root. The caller asks when the
 * change can be seen, after it has learned of the change from the thread that made it: see
 * lpi_held_may(). */
static bool may_know(const struct lp_ns *ns, struct lp_ino ino)
{
	if (ino.nr == LP_INO_ROOT.nr)
		return true;
	return lpi_ino_is_sane(ns, ino) &&
	       lpi_opens_may_hold(ns->peers[lp_ino_shard(ino)]->opens, ino);
}

/* True if the change may be visible: it was made, or its outcome is unknown, or it was seen before
 * the log failed. */
static bool may_have_happened(int result)
{
	return result >= 0 || result == -EIO || result == -EROFS;
}

/* --- Making notices --------------------------------------------------------------------------- */

/* The watcher must make the kernel drop everything that it remembers. */
static void untold(struct lp_ns *ns)
{
	ns->stats.face.untold++;
	if (ns->watch.untold != NULL)
		ns->watch.untold(ns->watch.arg);
}

static struct lpi_notice *get(struct lp_ns *ns)
{
	struct lpi_notice *notice = lp_pool_get(ns->notices);
	struct lp_pool_stats stats;
	if (notice == NULL) {
		lp_pool_read_stats(ns->notices, &stats);
		if (stats.limit >= LPI_NOTICES_LIMIT_MAX ||
		    lp_pool_resize(ns->notices, 2 * stats.limit) < 0)
			return NULL;
		notice = lp_pool_get(ns->notices);
	}
	LP_ASSERT(notice != NULL);
	*notice = (struct lpi_notice){.face.ns = ns};
	ns->notices_out++;
	ns->under_way++;
	return notice;
}

static void put(struct lpi_notice *notice)
{
	struct lp_ns *ns = notice->face.ns;
	LP_ASSERT(ns->notices_out > 0);
	ns->notices_out--;
	count_told(notice);
	lp_pool_put(ns->notices, notice);
	lpi_ns_left(ns);
}

static struct lpi_notice *last_of(struct lpi_notice *notice)
{
	while (notice != NULL && notice->next != NULL)
		notice = notice->next;
	return notice;
}

/* The operation's last notice if it has room, otherwise a new one. NULL: there is no memory. */
static struct lpi_notice *with_room(struct lp_ns *ns, struct lpi_notice **first, uint32_t name_len)
{
	struct lpi_notice *last = last_of(*first);
	if (last != NULL && last->face.item_cnt < LP_NS_NOTICE_ITEMS &&
	    last->face.names_len + name_len <= LP_NS_NOTICE_NAMES)
		return last;
	struct lpi_notice *more = get(ns);
	if (more == NULL) {
		untold(ns);
		return NULL;
	}
	if (last == NULL)
		*first = more;
	else
		last->next = more;
	more->first = *first;
	return more;
}

static bool is_same(const struct lp_ns_notice *face, const struct lp_ns_news *item,
		    struct lp_ino ino, struct lp_bytes name)
{
	return item->ino.nr == ino.nr && item->name_len == name.len &&
	       (name.len == 0 || memcmp(face->names + item->name_at, name.data, name.len) == 0);
}

/* The item of this inode or name in the last notice, otherwise a new one. NULL: the kernel need not
 * be told, or there is no memory. */
static struct lp_ns_news *note(struct lp_ns *ns, struct lpi_notice **first, struct lp_ino ino,
			       struct lp_bytes name)
{
	if (!may_know(ns, ino))
		return NULL;
	struct lpi_notice *last = last_of(*first);
	for (uint32_t i = 0; last != NULL && i < last->face.item_cnt; i++) {
		if (is_same(&last->face, &last->face.items[i], ino, name))
			return &last->face.items[i];
	}
	last = with_room(ns, first, name.len);
	if (last == NULL)
		return NULL;
	struct lp_ns_notice *face = &last->face;
	struct lp_ns_news *item = &face->items[face->item_cnt++];
	*item = (struct lp_ns_news){
		.ino = ino, .name_at = (uint16_t)face->names_len, .name_len = (uint16_t)name.len};
	if (name.len > 0) {
		memcpy(face->names + face->names_len, name.data, name.len);
		count_untold(last, ino, name);
	}
	face->names_len += name.len;
	return item;
}

static void note_inode(struct lp_ns *ns, struct lpi_notice **first, struct lp_ino ino)
{
	if (!ns->watch.only_data)
		(void)note(ns, first, ino, (struct lp_bytes){0});
}

static void note_name(struct lp_ns *ns, struct lpi_notice **first, const struct lp_change *change)
{
	if (!ns->watch.only_data)
		(void)note(ns, first, change->ino, change->named.name);
}

/* length 0: to the end. */
static void note_data(struct lp_ns *ns, struct lpi_notice **first, struct lp_ino ino,
		      uint64_t offset, uint64_t length)
{
	struct lp_ns_news *item = note(ns, first, ino, (struct lp_bytes){0});
	if (item == NULL)
		return;
	uint64_t end = length == 0 ? UINT64_MAX : offset + length;
	if (item->has_data) {
		uint64_t old_end = item->length == 0 ? UINT64_MAX : item->offset + item->length;
		end = LP_MAX(end, old_end);
		offset = LP_MIN(offset, item->offset);
	}
	item->has_data = true;
	item->offset = offset;
	item->length = end == UINT64_MAX ? 0 : end - offset;
}

static void note_range(struct lp_ns *ns, struct lpi_notice **first, const struct lp_change *change,
		       uint64_t append_offset)
{
	bool is_append = change->type == LP_CHANGE_WRITE && change->data.offset == LP_STORE_APPEND;
	uint64_t offset = is_append ? append_offset : change->data.offset;
	if (change->data.length == 0)
		return;
	if (offset == NOBODY_KNOWS)
		note_data(ns, first, change->ino, 0, 0);
	else
		note_data(ns, first, change->ino, offset, change->data.length);
}

/* append_offset: where an appending write has begun; NOBODY_KNOWS: anywhere. */
static void note_change(struct lp_ns *ns, struct lpi_notice **first, const struct lp_change *change,
			uint64_t append_offset)
{
	switch (change->type) {
	case LP_GUARD_INODE:
	case LP_GUARD_NO_INODE:
	case LP_GUARD_ENTRY:
	case LP_GUARD_NO_ENTRY:
	case LP_GUARD_XATTR:
	case LP_GUARD_NO_XATTR:
	case LP_GUARD_EMPTY:
	case LP_GUARD_DIR:
	case LP_GUARD_RECORD:
	case LP_GUARD_NO_RECORD:
	case LP_CHANGE_RECORD:
	case LP_CHANGE_CREATE: /* a number that was never given before */
	case LP_CHANGE_CNT:
		break;
	case LP_CHANGE_SET:
	case LP_CHANGE_LINK:
	case LP_CHANGE_REMOVE:
	case LP_CHANGE_PREALLOC:
	case LP_CHANGE_XATTR_SET:
	case LP_CHANGE_XATTR_REMOVE:
	case LP_CHANGE_OMAP_SET:
	case LP_CHANGE_OMAP_REMOVE:
	case LP_CHANGE_DIR:
		note_inode(ns, first, change->ino);
		break;
	case LP_CHANGE_WRITE:
	case LP_CHANGE_PUNCH:
		note_range(ns, first, change, append_offset);
		break;
	case LP_CHANGE_TRUNCATE:
		note_data(ns, first, change->ino, change->data.offset, 0);
		break;
	case LP_CHANGE_CLONE:
		note_data(ns, first, change->ino, change->clone.offset, change->clone.length);
		break;
	case LP_CHANGE_ENTRY_SET:
	case LP_CHANGE_ENTRY_REMOVE:
		note_name(ns, first, change);
		note_inode(ns, first, change->ino);
		break;
	}
}

static void note_changes(struct lp_ns *ns, struct lpi_notice **first,
			 const struct lp_change *changes, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++)
		note_change(ns, first, &changes[i], NOBODY_KNOWS);
}

/* The changes of a prepared part are in its record. No other function uses its room between the
 * decision and the next step. */
static void note_part(struct lpi_job *job, struct lpi_part *part)
{
	if (part->state != LPI_PART_PREPARED) {
		note_changes(job->ns, &job->notice, part->changes, part->change_cnt);
		return;
	}
	struct lpi_part_room *room = part->room;
	const struct lp_bytes value = {room->bytes, room->len};
	int r = lpi_pact_record_decode(value, job->pact.txid, job->ns->options.shard_cnt,
				       &room->decoded);
	LP_ASSERT(r == 0);
	note_changes(job->ns, &job->notice, room->decoded.record.changes,
		     room->decoded.record.change_cnt);
}

static struct lp_bytes name_of(const struct lpi_entry *entry)
{
	return (struct lp_bytes){entry->name, entry->name_len};
}

/* The kernel has moved its entry under the old name, or both entries. */
static void note_moved(struct lpi_job *job, const struct lpi_entry *from,
		       const struct lpi_entry *to)
{
	struct lp_ns *ns = job->ns;
	if (ns->watch.only_data || !is_untold(ns, from->dir, name_of(from)))
		return;
	(void)note(ns, &job->notice, to->dir, name_of(to));
	struct lpi_notice *last = last_of(job->notice);
	if (last != NULL)
		count_move(last);
}

static void note_rename(struct lpi_job *job)
{
	note_moved(job, &job->entry, &job->to);
	if (job->rename_flags & LP_NS_RENAME_EXCHANGE)
		note_moved(job, &job->to, &job->entry);
}

void lpi_notice_pact(struct lpi_job *job)
{
	struct lpi_pact *pact = &job->pact;
	if (job->ns->watch.tell == NULL || !may_have_happened(pact->result))
		return;
	if (job->op->is_mounts) {
		if (job->op->opcode == LP_NS_RENAME)
			note_rename(job);
		return;
	}
	for (uint32_t i = 0; i < pact->part_cnt; i++)
		note_part(job, pact->parts[i]);
}

/* If other clients have changed the size since the kernel asked for it, the kernel has put appended
 * data where it took the end to be. Its pages are wrong there, and also at the true place. */
static void note_misplaced(struct lp_ns *ns, struct lpi_notice **first, const struct lp_ns_op *op)
{
	const struct lp_store_op *store = &op->store.op;
	for (uint32_t i = 0; i < store->txn.change_cnt; i++) {
		const struct lp_change *change = &store->txn.changes[i];
		if (change->type == LP_CHANGE_WRITE && change->data.offset == LP_STORE_APPEND &&
		    store->txn.offset != op->store.believed_end)
			note_data(ns, first, change->ino,
				  LP_MIN(store->txn.offset, op->store.believed_end), 0);
	}
}

void lpi_notice_txn(struct lp_ns *ns, const struct lp_ns_op *op, int result,
		    struct lpi_notice **notice)
{
	const struct lp_store_op *store = &op->store.op;
	if (ns->watch.tell == NULL || store->opcode != LP_STORE_TXN || !may_have_happened(result))
		return;
	if (op->is_mounts) {
		if (result >= 0)
			note_misplaced(ns, notice, op);
		return;
	}
	uint64_t append_offset = result >= 0 ? store->txn.offset : NOBODY_KNOWS;
	for (uint32_t i = 0; i < store->txn.change_cnt; i++)
		note_change(ns, notice, &store->txn.changes[i], append_offset);
}

/* --- Telling ---------------------------------------------------------------------------------- */

static void answer(struct lpi_notice *first)
{
	struct lp_ns_op *op = first->op;
	first->op = NULL;
	if (op != NULL)
		lpi_ns_answer(first->face.ns, op, first->result);
}

/* One of the operation's notices has been told. */
static void ended(struct lpi_notice *first)
{
	LP_ASSERT(first->pending > 0);
	if (--first->pending > 0)
		return;
	lp_timer_stop(first->face.ns->options.reactor, &first->limit);
	answer(first);
	while (first != NULL) {
		struct lpi_notice *next = first->next;
		put(first);
		first = next;
	}
}

static void too_late(struct lp_timer *timer)
{
	struct lpi_notice *first = LP_CONTAINER_OF(timer, struct lpi_notice, limit);
	struct lp_ns *ns = first->face.ns;
	ns->stats.face.told_late++;
	if (ns->watch.late != NULL)
		ns->watch.late(ns->watch.arg);
	answer(first);
}

static void tell(struct lpi_notice *notice)
{
	struct lp_ns *ns = notice->face.ns;
	if (ns->watch.tell == NULL) {
		ended(notice->first);
		return;
	}
	ns->stats.face.told += notice->face.item_cnt;
	ns->watch.tell(ns->watch.arg, &notice->face);
}

static void tell_again(struct lp_timer *timer)
{
	tell(LP_CONTAINER_OF(timer, struct lpi_notice, retry));
}

static void retry_later(struct lpi_notice *notice)
{
	struct lp_ns *ns = notice->face.ns;
	struct lp_reactor *reactor = ns->options.reactor;
	uint64_t now_ns = lp_reactor_now_ns(reactor);
	if (now_ns - notice->began_ns > GIVE_UP_NS) {
		untold(ns);
		ended(notice->first);
		return;
	}
	bool is_late = notice->first->op == NULL;
	notice->retry.fire = tell_again;
	lp_timer_start(reactor, &notice->retry, now_ns + (is_late ? RETRY_LATE_NS : RETRY_NS));
}

static void check_next(struct lpi_notice *notice);

static void checked(struct lpi_call *call)
{
	struct lpi_notice *notice = LP_CONTAINER_OF(call, struct lpi_notice, call);
	struct lp_ns_news *items = notice->face.items;
	if (call->result > 0)
		items[notice->kept_cnt++] = items[notice->item_idx];
	notice->item_idx++;
	check_next(notice);
}

static void run_check(struct lpi_call *call)
{
	const struct lpi_notice *notice = LP_CONTAINER_OF(call, struct lpi_notice, call);
	struct lp_ino ino = notice->face.items[notice->item_idx].ino;
	/* Without memory it is unknown whether the inode is held; but no answer is on its way for
	 * longer than UNKNOWN_NS. */
	uint64_t now_ns = lp_reactor_now_ns(call->to->options.reactor);
	bool is_young = now_ns < notice->began_ns + UNKNOWN_NS;
	bool is_held =
		ino.nr == LP_INO_ROOT.nr || lpi_opens_is_held(call->to->opens, ino, is_young);
	lpi_call_end(call, is_held ? 1 : 0);
}

/* Goes on with the items that the kernel did not know, and may get to know. */
static void check_next(struct lpi_notice *notice)
{
	struct lp_ns_notice *face = &notice->face;
	while (notice->item_idx < face->item_cnt && !face->items[notice->item_idx].is_unknown)
		notice->item_idx++;
	if (notice->item_idx < face->item_cnt) {
		notice->call.run = run_check;
		notice->call.done = checked;
		lpi_call_start(notice->face.ns, lp_ino_shard(face->items[notice->item_idx].ino),
			       &notice->call);
		return;
	}
	face->item_cnt = notice->kept_cnt;
	if (face->item_cnt == 0)
		count_told(notice);
	/* A rename may have moved a name that the kernel was told of. The operation need not wait
	 * for that once it has been answered. */
	bool is_moving =
		notice->first->op != NULL && atomic_load(&untold_of(notice->face.ns)->moves) > 0;
	if (face->item_cnt == 0 && !is_moving)
		ended(notice->first);
	else
		retry_later(notice);
}

void lp_ns_told(struct lp_ns_notice *notice)
{
	struct lpi_notice *told = LP_CONTAINER_OF(notice, struct lpi_notice, face);
	LP_ASSERT(lp_reactor_is_mine(notice->ns->options.reactor));
	/* The watch has ended. */
	if (notice->ns->watch.tell == NULL)
		notice->item_cnt = 0;
	told->item_idx = 0;
	told->kept_cnt = 0;
	check_next(told);
}

void lpi_notice_tell(struct lpi_notice *first, struct lp_ns_op *op, int result)
{
	struct lp_reactor *reactor = first->face.ns->options.reactor;
	uint64_t now_ns = lp_reactor_now_ns(reactor);
	/* The kernel keeps the pages of a write locked until the write is answered. */
	first->op = op->is_mounts ? NULL : op;
	first->result = result;
	first->limit.fire = too_late;
	lp_timer_start(reactor, &first->limit, now_ns + LPI_NOTICE_LIMIT_NS);
	/* One more, so that none of them is the last before all have begun. */
	first->pending = 1;
	for (struct lpi_notice *notice = first; notice != NULL; notice = notice->next) {
		notice->began_ns = now_ns;
		first->pending++;
		tell(notice);
	}
	if (op->is_mounts)
		lpi_ns_answer(first->face.ns, op, result);
	ended(first);
}

void lp_ns_watch(struct lp_ns *ns, const struct lp_ns_watch *watch)
{
	LP_ASSERT(lp_reactor_is_mine(ns->options.reactor));
	ns->watch = watch == NULL ? (struct lp_ns_watch){0} : *watch;
}
