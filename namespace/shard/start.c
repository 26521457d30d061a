/* SPDX-License-Identifier: Apache-2.0 */
/* Steps before a shard serves, in this order (of a read-only store only the last):
 *
 *   ROOT       shard 0 makes the root of a store that has no inode yet
 *   RESOLVE    each prepared change of this shard: its coordinator is asked for the decision
 *   (all shards arrive: nothing is prepared anywhere any more)
 *   FORGET     decisions of this shard are removed: all who took part have finished (namespace NS4)
 *   ORPHANS    inodes that a `U` record calls orphans or uploads are removed
 *   (all shards arrive)
 *
 * A shard that fails arrives all the same, with its error, and then no shard serves: a change that
 * is half done on one shard may be half done on another. */
#include <errno.h>
#include <stdlib.h>

#include "namespace/change/ns_state.h"
#include "store/record/keys.h"

#define PAGE_BYTES 65536u

struct lpi_start {
	struct lp_ns *ns;
	void (*next)(struct lpi_start *start);
	struct lpi_call call;
	struct lp_store_op list;
	struct lp_store_op op;
	struct lp_change changes[1];
	struct lp_attrs attrs;
	uint8_t key[1 + 8];
	uint8_t decision[LP_PACT_HEAD_SIZE]; /* of the coordinator that was asked */
	uint8_t after[1 + 8];                /* the last record that was looked at */
	char space;                          /* of the records that are being walked */
	bool (*record)(struct lpi_start *start, const struct lp_list_item *item);
	void (*walked)(struct lpi_start *start);
	uint32_t pos;
	uint64_t txid;
	struct lpi_pact_redo redo;
	uint8_t value[LPI_PACT_RECORD_BYTES_MAX];
	uint8_t page[PAGE_BYTES];
};

int lpi_start_new(struct lp_ns *ns, struct lpi_start **ret_start)
{
	struct lpi_start *start = calloc(1, sizeof(*start));
	if (start == NULL)
		return -ENOMEM;
	start->ns = ns;
	*ret_start = start;
	return 0;
}

void lpi_start_free(struct lpi_start *start)
{
	free(start);
}

/* --- Steps ------------------------------------------------------------------------------------ */

static void step_done(struct lpi_call *call)
{
	struct lpi_start *start = LP_CONTAINER_OF(call, struct lpi_start, call);
	start->next(start);
}

static void ask(struct lpi_start *start, uint32_t shard_idx, struct lp_store_op *op,
		void (*next)(struct lpi_start *start))
{
	start->next = next;
	start->call.done = step_done;
	lpi_call_store(start->ns, shard_idx, &start->call, op, false);
}

static void ended(struct lpi_start *start)
{
	lpi_ns_started(start->ns, start->call.result);
}

static void arrive(struct lpi_start *start, int result, void (*next)(struct lpi_start *start))
{
	start->next = next;
	start->call.done = step_done;
	start->call.run = lpi_ns_arrive;
	start->call.result = result;
	lpi_call_start(start->ns, 0, &start->call);
}

/* --- Walking through records ------------------------------------------------------------------ */

static void walk_page(struct lpi_start *start);

static void walk_failed(struct lpi_start *start, int result)
{
	arrive(start, result, ended);
}

/* Calls the step's function for each record. If it returns true, the record needs nothing;
 * otherwise the walk goes on after it was dealt with. */
static void walk_on(struct lpi_start *start)
{
	struct lp_list_item item;
	while (lp_store_list_next(&start->list, &start->pos, &item)) {
		if (item.name.len != sizeof(start->after)) {
			walk_failed(start, LP_CORRUPT(LP_OFFSET_NONE, "key of unfinished work"));
			return;
		}
		memcpy(start->after, item.name.data, item.name.len);
		if (!start->record(start, &item))
			return;
	}
	if (start->list.list.more) {
		walk_page(start);
		return;
	}
	start->walked(start);
}

static void page_done(struct lpi_start *start)
{
	if (start->call.result < 0) {
		walk_failed(start, start->call.result);
		return;
	}
	start->pos = 0;
	walk_on(start);
}

static void walk_page(struct lpi_start *start)
{
	bool is_first = start->after[0] == 0;
	start->list = (struct lp_store_op){.opcode = LP_STORE_LIST,
					   .list = {.space = LP_STORE_RECORDS,
						    .prefix = {&start->space, 1},
						    .after = {is_first ? NULL : start->after,
							      is_first ? 0 : sizeof(start->after)},
						    .buf = start->page,
						    .buf_len = sizeof(start->page),
						    .with_values = true}};
	ask(start, start->ns->options.shard_idx, &start->list, page_done);
}

static void walk(struct lpi_start *start, enum lp_key_space space,
		 bool (*record)(struct lpi_start *start, const struct lp_list_item *item),
		 void (*walked)(struct lpi_start *start))
{
	start->space = (char)space;
	memset(start->after, 0, sizeof(start->after));
	start->record = record;
	start->walked = walked;
	walk_page(start);
}

/* The transaction that deals with a record is done. */
static void dealt_with(struct lpi_start *start)
{
	if (start->call.result < 0) {
		walk_failed(start, start->call.result);
		return;
	}
	walk_on(start);
}

static void change(struct lpi_start *start, uint32_t cnt)
{
	/* The shard serves nothing before this, so it may use the kept space of a full store (rule
	 * L8). */
	start->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = start->changes, .change_cnt = cnt, .room = LP_ROOM_ENDS}};
	ask(start, start->ns->options.shard_idx, &start->op, dealt_with);
}

/* --- Orphans and uploads ---------------------------------------------------------------------- */

/* An orphan that cannot be removed, because of damage or a device error, does not keep the shard
 * from serving. It is left to the next start, like those whose removal fails later (orphans.c).
 * Damage was recorded, for a check. */
static void orphan_gone(struct lpi_start *start)
{
	int r = start->call.result;
	/* The inode is gone already: only the record is left. */
	if (r == -ENOENT) {
		start->changes[0] =
			(struct lp_change){.type = LP_CHANGE_RECORD,
					   .named = {.name = {start->after, sizeof(start->after)}}};
		change(start, 1);
	} else if (r < 0 && lp_store_error(start->ns->options.store) == 0) {
		walk_on(start);
	} else {
		dealt_with(start);
	}
}

static bool take_unfinished(struct lpi_start *start, const struct lp_list_item *item)
{
	struct lp_unfinished_value value;
	struct lp_key key = {.len = item->name.len};
	memcpy(key.bytes, item->name.data, item->name.len);
	/* An unreadable record was recorded as damage, and the store deals with it. */
	if (lp_unfinished_read(item->value.data, item->value.len, &key, &value) < 0)
		return true;
	if (value.kind != LP_UNFINISHED_KIND_ORPHAN && value.kind != LP_UNFINISHED_KIND_UPLOAD)
		return true; /* the store's own */
	struct lp_ino ino = {lp_get_be64(key.bytes + 1)};
	start->changes[0] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino};
	start->op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					 .txn = {.changes = start->changes, .change_cnt = 1}};
	ask(start, start->ns->options.shard_idx, &start->op, orphan_gone);
	return false;
}

static void orphans_done(struct lpi_start *start)
{
	arrive(start, 0, ended);
}

/* --- Changes over several shards -------------------------------------------------------------- */

static bool take_decision(struct lpi_start *start, const struct lp_list_item *item)
{
	struct lp_ns *ns = start->ns;
	int r = lpi_pact_key_parse(item->name, &start->txid);
	if (r >= 0)
		r = lpi_pact_record_decode(item->value, start->txid, ns->options.shard_cnt,
					   &start->redo.decoded);
	if (r >= 0 && start->redo.decoded.record.kind != LP_PACT_KIND_DECIDED)
		r = LP_CORRUPT(LP_OFFSET_NONE, "change %llx over several shards is still prepared",
			       (unsigned long long)start->txid);
	if (r < 0) {
		walk_failed(start, r);
		return false;
	}
	memcpy(start->key, item->name.data, sizeof(start->key));
	start->changes[0] = (struct lp_change){.type = LP_CHANGE_RECORD,
					       .named = {.name = {start->key, sizeof(start->key)}}};
	change(start, 1);
	return false;
}

static void decisions_done(struct lpi_start *start)
{
	walk(start, LP_KEY_SPACE_UNFINISHED, take_unfinished, orphans_done);
}

static void all_resolved(struct lpi_start *start)
{
	if (start->call.result < 0) {
		ended(start);
		return;
	}
	walk(start, LP_KEY_SPACE_TXN, take_decision, decisions_done);
}

static void prepared_done(struct lpi_start *start)
{
	arrive(start, 0, all_resolved);
}

static void redo_done(struct lpi_call *call)
{
	struct lpi_start *start = LP_CONTAINER_OF(call, struct lpi_start, redo.call);
	start->call.result = call->result;
	dealt_with(start);
}

/* Checks that the coordinator's record is a decision, and that this shard's change is part of
 * it. */
static int check_decision(struct lpi_start *start)
{
	const struct lp_ns *ns = start->ns;
	struct lp_bytes value = {start->decision, start->op.get.value_len};
	struct lpi_pact_decoded decoded;
	if (value.len > sizeof(start->decision))
		return LP_CORRUPT(LP_OFFSET_NONE, "decision %llx: length",
				  (unsigned long long)start->txid);
	int r = lpi_pact_record_decode(value, start->txid, ns->options.shard_cnt, &decoded);
	if (r >= 0 && (decoded.record.kind != LP_PACT_KIND_DECIDED ||
		       (decoded.record.participants >> ns->options.shard_idx & 1) == 0))
		r = LP_CORRUPT(LP_OFFSET_NONE, "decision %llx is not about shard %u",
			       (unsigned long long)start->txid, ns->options.shard_idx);
	return r;
}

/* The coordinator has answered: there is a decision, or none. */
static void asked(struct lpi_start *start)
{
	struct lp_ns *ns = start->ns;
	int r = start->call.result;
	bool is_decided = r >= 0;
	if (is_decided || r == -ERANGE)
		r = check_decision(start);
	if (r < 0 && r != -ENOENT) {
		walk_failed(start, r);
		return;
	}
	start->redo.call.done = redo_done;
	lpi_pact_redo(ns, start->txid, is_decided, &start->redo);
}

static bool take_prepared(struct lpi_start *start, const struct lp_list_item *item)
{
	struct lp_ns *ns = start->ns;
	struct lp_bytes value = {start->value, item->value.len};
	int r = lpi_pact_key_parse(item->name, &start->txid);
	if (r >= 0 && item->value.len > sizeof(start->value))
		r = LP_CORRUPT(LP_OFFSET_NONE, "change %llx over several shards: length",
			       (unsigned long long)start->txid);
	if (r >= 0) {
		/* The decoded record points into the value, for longer than the page lasts. */
		memcpy(start->value, item->value.data, item->value.len);
		r = lpi_pact_record_decode(value, start->txid, ns->options.shard_cnt,
					   &start->redo.decoded);
	}
	if (r < 0) {
		walk_failed(start, r);
		return false;
	}
	if (start->redo.decoded.record.kind == LP_PACT_KIND_DECIDED)
		return true;
	if (start->redo.decoded.record.coordinator == ns->options.shard_idx) {
		walk_failed(start, LP_CORRUPT(LP_OFFSET_NONE, "change %llx asks itself",
					      (unsigned long long)start->txid));
		return false;
	}
	lpi_pact_key(start->txid, start->key);
	start->op = (struct lp_store_op){.opcode = LP_STORE_GET,
					 .get = {.space = LP_STORE_RECORDS,
						 .name = {start->key, sizeof(start->key)},
						 .buf = start->decision,
						 .buf_len = sizeof(start->decision)}};
	ask(start, start->redo.decoded.record.coordinator, &start->op, asked);
	return false;
}

static void resolve(struct lpi_start *start)
{
	walk(start, LP_KEY_SPACE_TXN, take_prepared, prepared_done);
}

/* --- The root --------------------------------------------------------------------------------- */

static void root_made(struct lpi_start *start)
{
	if (start->call.result < 0)
		walk_failed(start, start->call.result);
	else
		resolve(start);
}

static void looked_for_any(struct lpi_start *start)
{
	struct lp_ns *ns = start->ns;
	int r = start->call.result;
	if (r >= 0 && start->list.list.items > 0)
		r = LP_CORRUPT(LP_OFFSET_NONE, "the root directory is missing (lapis fsck)");
	if (r < 0) {
		walk_failed(start, r);
		return;
	}
	int64_t now_ns = lp_clock_wall_ns(lp_reactor_clock(ns->options.reactor));
	start->attrs = (struct lp_attrs){.type = LP_INODE_TYPE_DIR,
					 .mode = 0755,
					 .nlink = 2,
					 .parent = LP_INO_ROOT,
					 .atime_ns = now_ns,
					 .mtime_ns = now_ns,
					 .ctime_ns = now_ns,
					 .btime_ns = now_ns};
	start->changes[0] = (struct lp_change){
		.type = LP_CHANGE_CREATE, .ino = LP_INO_ROOT, .inode = {.attrs = &start->attrs}};
	start->op = (struct lp_store_op){.opcode = LP_STORE_TXN,
					 .txn = {.changes = start->changes, .change_cnt = 1}};
	ask(start, 0, &start->op, root_made);
}

static void looked_for_root(struct lpi_start *start)
{
	int r = start->call.result;
	if (r >= 0 && start->op.stat.attrs.type != LP_INODE_TYPE_DIR)
		r = LP_CORRUPT(LP_OFFSET_NONE, "the root is no directory");
	if (r >= 0) {
		resolve(start);
		return;
	}
	if (r != -ENOENT) {
		walk_failed(start, r);
		return;
	}
	start->list = (struct lp_store_op){.opcode = LP_STORE_LIST,
					   .list = {.space = LP_STORE_INODES,
						    .buf = start->page,
						    .buf_len = sizeof(start->page),
						    .items_max = 1}};
	ask(start, 0, &start->list, looked_for_any);
}

void lpi_start_run(struct lpi_start *start)
{
	if (start->ns->options.read_only) {
		arrive(start, 0, ended);
		return;
	}
	if (start->ns->options.shard_idx != 0) {
		resolve(start);
		return;
	}
	start->op = (struct lp_store_op){.opcode = LP_STORE_STAT, .stat = {.ino = LP_INO_ROOT}};
	ask(start, 0, &start->op, looked_for_root);
}
