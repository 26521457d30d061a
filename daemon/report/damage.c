/* SPDX-License-Identifier: Apache-2.0 */
/* step() does one thing after the other: it loads the store's records, writes changed ones, finds
 * names, and looks at listed objects. A completion notes its result and steps. The object under
 * work is named by its number, because the list may move meanwhile.
 *
 *   load    LIST of records, page after page
 *   write   TXN of one record
 *   name    STAT, GET of the name, LOOKUP of it in the parent, and so on with the parent
 *   look    STAT; if its version is another: READ of the damaged place; if that is right, all of
 *           it, by a check of its own, which takes its time: the rest goes on meanwhile
 */
#include "daemon/report/damage.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"

#define RECORD_NAME "damaged"
#define LOOKS       16u /* objects that are looked at each second */
#define LINES       2u  /* of the log each second: fewer than its limit (base/log.h) */
#define AGAIN_NS    (60 * (uint64_t)LP_NS_PER_S) /* after a write that has failed */
#define ROOM_FIRST  16u

static void step(struct lpi_damage *damage);

/* --- The list --------------------------------------------------------------------------------- */

/* The index of the first entry whose number is not below ino. */
static uint32_t place_of(const struct lpi_damage *damage, struct lp_ino ino)
{
	uint32_t from = 0;
	uint32_t to = damage->cnt;
	while (from < to) {
		uint32_t middle = from + (to - from) / 2;
		if (damage->items[middle].ino.nr < ino.nr)
			from = middle + 1;
		else
			to = middle;
	}
	return from;
}

static struct lpi_damaged *find(const struct lpi_damage *damage, struct lp_ino ino)
{
	uint32_t idx = place_of(damage, ino);
	bool is_there = idx < damage->cnt && damage->items[idx].ino.nr == ino.nr;
	return is_there ? &damage->items[idx] : NULL;
}

static bool make_room(struct lpi_damage *damage)
{
	if (damage->cnt < damage->room)
		return true;
	uint32_t room = damage->room == 0 ? ROOM_FIRST : 2 * damage->room;
	room = LP_MIN(room, LPI_DAMAGE_MAX);
	struct lpi_damaged *items = NULL;
	if (room > damage->room)
		items = realloc(damage->items, room * sizeof(*items));
	if (items == NULL)
		return false;
	damage->items = items;
	damage->room = room;
	return true;
}

/* NULL: the list is full. */
static struct lpi_damaged *insert(struct lpi_damage *damage, struct lp_ino ino)
{
	if (!make_room(damage))
		return NULL;
	uint32_t idx = place_of(damage, ino);
	struct lpi_damaged *item = &damage->items[idx];
	memmove(item + 1, item, (damage->cnt - idx) * sizeof(*item));
	damage->cnt++;
	*item = (struct lpi_damaged){.ino = ino};
	return item;
}

static void take_off(struct lpi_damage *damage, struct lpi_damaged *item)
{
	uint32_t idx = (uint32_t)(item - damage->items);
	damage->gone_cnt -= item->is_gone;
	free(item->name);
	damage->cnt--;
	memmove(item, item + 1, (damage->cnt - idx) * sizeof(*item));
}

/* Takes the object off the list. Its record is removed first, so that no record stays behind. */
static void mended(struct lpi_damage *damage, struct lpi_damaged *item, const char *why)
{
	if (item->is_gone)
		return;
	LP_LOG_INFO("shard %u: no longer damaged: %s (inode %llu): %s", damage->shard_idx,
		    item->name != NULL ? item->name : "an object", (unsigned long long)item->ino.nr,
		    why);
	item->is_gone = true;
	item->is_dirty = true;
	damage->gone_cnt++;
}

static uint8_t kind_of(int err)
{
	if (err == -EIO)
		return LP_DAMAGED_KIND_UNREADABLE;
	return err == -EUCLEAN ? LP_DAMAGED_KIND_INDEX : LP_DAMAGED_KIND_CHECKSUM;
}

static const char *what_of(uint8_t kind)
{
	static const char *const words[] = {[LP_DAMAGED_KIND_CHECKSUM] = "checksum mismatch",
					    [LP_DAMAGED_KIND_INDEX] =
						    "the index is damaged, or counts it as free",
					    [LP_DAMAGED_KIND_UNREADABLE] = "cannot be read"};
	return kind < LP_ARRAY_SIZE(words) && words[kind] != NULL ? words[kind] : "damaged";
}

static int64_t day_ns(const struct lpi_damage *damage)
{
	return LP_MAX(lp_clock_wall_ns(lp_reactor_clock(damage->reactor)), INT64_C(0));
}

/* The read that met the damage is answered first; the work is done after that. */
void lpi_damage_note(struct lpi_damage *damage, struct lp_ino ino, uint64_t offset, int err)
{
	if (damage->scrub == NULL || ino.nr == 0)
		return;
	struct lpi_damaged *item = find(damage, ino);
	if (item != NULL && !item->is_gone)
		return;
	if (item == NULL)
		item = insert(damage, ino);
	if (item == NULL) {
		damage->beyond++;
		return;
	}
	damage->gone_cnt -= item->is_gone;
	item->is_gone = false;
	item->offset = offset;
	item->kind = kind_of(err);
	item->since_ns = day_ns(damage);
	item->version_nr = 0;
	item->is_dirty = true;
	damage->found++;
	step(damage);
}

void lpi_damage_passed(struct lpi_damage *damage, const struct lp_scrub_verdict *verdict)
{
	if (verdict->error != 0) {
		lpi_damage_note(damage, verdict->ino, verdict->offset, verdict->error);
		return;
	}
	struct lpi_damaged *item = find(damage, verdict->ino);
	if (item == NULL || verdict->is_unsure)
		return;
	mended(damage, item, "all of it was read, and is whole");
	step(damage);
}

/* --- Records in the store --------------------------------------------------------------------- */

static void ask(struct lpi_damage *damage, void (*complete)(struct lp_store_op *op))
{
	damage->is_asking = true;
	damage->op.complete = complete;
	lp_store_submit(damage->store, &damage->op);
}

static struct lpi_damage *answered(struct lp_store_op *op)
{
	struct lpi_damage *damage = LP_CONTAINER_OF(op, struct lpi_damage, op);
	damage->is_asking = false;
	return damage;
}

/* A note by a reader meanwhile is newer than the record. */
static void take_record(struct lpi_damage *damage, const struct lp_list_item *record)
{
	struct lp_damaged_value value;
	struct lp_key_view view;
	struct lp_key key = {.len = record->name.len};
	memcpy(key.bytes, record->name.data, record->name.len);
	if (lp_key_parse(key.bytes, key.len, &view) < 0 || !view.has_number || view.number == 0 ||
	    lp_damaged_read(record->value.data, record->value.len, &key, &value) < 0)
		return;
	const struct lp_ino ino = {view.number};
	struct lpi_damaged *item = find(damage, ino);
	if (item == NULL)
		item = insert(damage, ino);
	if (item == NULL)
		return;
	item->offset = value.offset;
	item->kind = value.kind;
	item->since_ns = value.since_ns;
}

static void load(struct lpi_damage *damage);

static void loaded(struct lp_store_op *op)
{
	struct lpi_damage *damage = answered(op);
	struct lp_list_item record;
	uint32_t pos = 0;
	while (op->result == 0 && lp_store_list_next(op, &pos, &record)) {
		take_record(damage, &record);
		damage->last_len = record.name.len;
		memcpy(damage->last, record.name.data, record.name.len);
	}
	if (op->result == 0 && op->list.more && !damage->is_stopping) {
		load(damage);
		return;
	}
	/* A list that cannot be read may be lost. The next check of all data makes it again. */
	damage->is_loaded = true;
	free(damage->list);
	damage->list = NULL;
	step(damage);
}

static void load(struct lpi_damage *damage)
{
	lp_key_of_store_number(&damage->key, RECORD_NAME, 0);
	/* Up to the number. */
	const struct lp_bytes prefix = {damage->key.bytes,
					(uint32_t)(damage->key.len - sizeof(uint64_t))};
	damage->op = (struct lp_store_op){.opcode = LP_STORE_LIST,
					  .list = {.space = LP_STORE_RECORDS,
						   .prefix = prefix,
						   .buf = damage->list,
						   .buf_len = LPI_DAMAGE_LIST,
						   .with_values = true}};
	if (damage->last_len > 0)
		damage->op.list.after = (struct lp_bytes){damage->last, damage->last_len};
	ask(damage, loaded);
}

/* While the store cannot be written, the list is in memory only. The write is tried again after
 * AGAIN_NS, because the store may only have been full. */
static void written(struct lp_store_op *op)
{
	struct lpi_damage *damage = answered(op);
	struct lpi_damaged *item = find(damage, damage->at);
	bool is_removal = damage->change.named.value.data == NULL;
	if (op->result < 0) {
		damage->write_not_before_ns = lp_reactor_now_ns(damage->reactor) + AGAIN_NS;
		LP_LOG_DEBUG("shard %u: the list of what is damaged cannot be kept: %s",
			     damage->shard_idx, lp_strerror(op->result));
	}
	/* If a record stays in the store, the object is found to be whole after the next start. */
	if (item != NULL && is_removal && item->is_gone)
		take_off(damage, item);
	else if (item != NULL && op->result < 0 && !item->is_gone)
		item->is_dirty = true;
	step(damage);
}

static void write_record(struct lpi_damage *damage, struct lpi_damaged *item)
{
	const struct lp_damaged_value value = {
		.kind = item->kind, .since_ns = item->since_ns, .offset = item->offset};
	struct lp_change *change = &damage->change;
	item->is_dirty = false;
	damage->at = item->ino;
	lp_key_of_store_number(&damage->key, RECORD_NAME, item->ino.nr);
	*change = (struct lp_change){.type = LP_CHANGE_RECORD};
	change->named.name = (struct lp_bytes){damage->key.bytes, (uint32_t)damage->key.len};
	if (!item->is_gone) {
		lp_damaged_write(&value, &damage->key, damage->value);
		change->named.value = (struct lp_bytes){damage->value, LP_DAMAGED_VALUE_SIZE};
	}
	damage->op = (struct lp_store_op){
		.opcode = LP_STORE_TXN,
		.txn = {.changes = change, .change_cnt = 1, .ack = LP_ACK_DURABLE}};
	ask(damage, written);
}

static bool write_one(struct lpi_damage *damage)
{
	if (lp_reactor_now_ns(damage->reactor) < damage->write_not_before_ns)
		return false;
	for (uint32_t i = 0; i < damage->cnt; i++) {
		if (!damage->items[i].is_dirty)
			continue;
		write_record(damage, &damage->items[i]);
		return true;
	}
	return false;
}

/* --- Names ------------------------------------------------------------------------------------ */

static struct lpi_damage *ns_answered(struct lp_ns_op *op)
{
	struct lpi_damage *damage = LP_CONTAINER_OF(op, struct lpi_damage, ns_op);
	damage->is_asking = false;
	damage->is_naming = false;
	return damage;
}

static void ask_names(struct lpi_damage *damage, void (*complete)(struct lp_ns_op *op))
{
	damage->is_asking = true;
	damage->is_naming = true;
	damage->ns_op.complete = complete;
	lp_ns_submit(damage->ns, &damage->ns_op);
}

/* The name is complete, or there is none. */
static void end_naming(struct lpi_damage *damage, bool is_found)
{
	struct lpi_damaged *item = find(damage, damage->at);
	if (item != NULL) {
		free(item->name);
		item->name = is_found ? strdup(damage->path + damage->path_at) : NULL;
		item->naming = item->name != NULL ? LPI_DAMAGE_NAMED : LPI_DAMAGE_NO_NAME;
	}
	step(damage);
}

static void ask_parent(struct lpi_damage *damage);

/* The name was a hint, and may lead to another inode by now. */
static void looked_up(struct lp_ns_op *op)
{
	struct lpi_damage *damage = ns_answered(op);
	uint32_t len = op->lookup.name.len;
	uint32_t takes = len + (damage->depth > 0);
	bool is_right = op->result == 0 && op->lookup.found.ino.nr == damage->child.nr;
	/* If the inode cannot be read, it is not known where the name leads. */
	bool is_damaged = op->result == -EBADMSG || op->result == -EUCLEAN;
	if ((!is_right && !is_damaged) || damage->is_quiet || takes > damage->path_at) {
		end_naming(damage, false);
		return;
	}
	damage->path_at -= takes;
	memcpy(damage->path + damage->path_at, damage->hint, len);
	if (damage->depth > 0)
		damage->path[damage->path_at + len] = '/';
	damage->depth++;
	damage->child = damage->parent;
	if (damage->child.nr == LP_INO_ROOT.nr)
		end_naming(damage, true);
	else if (damage->depth >= LPI_DAMAGE_DEPTH_MAX)
		end_naming(damage, false);
	else
		ask_parent(damage);
}

static void got_hint(struct lp_ns_op *op)
{
	struct lpi_damage *damage = ns_answered(op);
	if (op->result < 0 || damage->is_quiet) {
		end_naming(damage, false);
		return;
	}
	uint32_t len = op->store.op.get.value_len;
	damage->ns_op =
		(struct lp_ns_op){.opcode = LP_NS_LOOKUP,
				  .ack = LP_ACK_ORDERED,
				  .lookup = {.dir = damage->parent, .name = {damage->hint, len}}};
	ask_names(damage, looked_up);
}

static void got_parent(struct lp_ns_op *op)
{
	struct lpi_damage *damage = ns_answered(op);
	damage->parent = op->store.op.stat.attrs.parent;
	if (op->result < 0 || damage->is_quiet || damage->parent.nr == 0) {
		end_naming(damage, false);
		return;
	}
	damage->ns_op = (struct lp_ns_op){.opcode = LP_NS_STORE, .store = {.ino = damage->child}};
	damage->ns_op.store.op = (struct lp_store_op){.opcode = LP_STORE_GET,
						      .sees_ordered = true,
						      .get = {.space = LP_STORE_NAME,
							      .ino = damage->child,
							      .buf = damage->hint,
							      .buf_len = sizeof(damage->hint)}};
	ask_names(damage, got_hint);
}

static void ask_parent(struct lpi_damage *damage)
{
	damage->ns_op = (struct lp_ns_op){.opcode = LP_NS_STORE, .store = {.ino = damage->child}};
	damage->ns_op.store.op = (struct lp_store_op){
		.opcode = LP_STORE_STAT, .sees_ordered = true, .stat = {.ino = damage->child}};
	ask_names(damage, got_parent);
}

static bool name_one(struct lpi_damage *damage)
{
	for (uint32_t i = 0; i < damage->cnt && !damage->is_quiet; i++) {
		const struct lpi_damaged *item = &damage->items[i];
		if (item->naming != LPI_DAMAGE_UNNAMED || item->is_gone)
			continue;
		damage->at = item->ino;
		damage->child = item->ino;
		damage->depth = 0;
		damage->path_at = LPI_DAMAGE_NAME_MAX - 1;
		damage->path[damage->path_at] = '\0';
		ask_parent(damage);
		return true;
	}
	return false;
}

static void log_some(struct lpi_damage *damage)
{
	uint32_t lines = 0;
	for (uint32_t i = 0; i < damage->cnt && lines < LINES; i++) {
		struct lpi_damaged *item = &damage->items[i];
		if (item->is_logged || item->is_gone || item->naming == LPI_DAMAGE_UNNAMED)
			continue;
		item->is_logged = true;
		lines++;
		LP_LOG_ERROR("shard %u: damaged object: %s (inode %llu, offset %llu): %s",
			     damage->shard_idx,
			     item->name != NULL ? item->name : "it has no known name",
			     (unsigned long long)item->ino.nr, (unsigned long long)item->offset,
			     what_of(item->kind));
	}
}

/* --- Looking whether it still is -------------------------------------------------------------- */

static bool is_damage(int err)
{
	return err == -EBADMSG || err == -EUCLEAN || err == -EIO;
}

/* The damaged place was read; or it is a hole now, or behind the end. */
static void tried(struct lp_store_op *op)
{
	struct lpi_damage *damage = answered(op);
	struct lpi_damaged *item = find(damage, damage->at);
	if (op->result == 0)
		lp_store_end(damage->store, op);
	if (item != NULL && is_damage(op->result))
		item->version_nr = damage->at_version;
	if (item != NULL && op->result == 0 && !damage->is_stopping) {
		damage->scrubbed = item->ino;
		damage->scrubbed_version = damage->at_version;
		int err = lp_scrub_start_one(damage->scrub, item->ino);
		LP_ASSERT(err == 0); /* otherwise nothing would have been looked at */
	}
	step(damage);
}

static void try_place(struct lpi_damage *damage, const struct lpi_damaged *item)
{
	damage->op = (struct lp_store_op){
		.opcode = LP_STORE_READ,
		.sees_ordered = true,
		.read = {.ino = item->ino,
			 .offset = item->offset - item->offset % LP_BLOCK_BYTES,
			 .length = LP_BLOCK_BYTES,
			 .from_device = true}};
	ask(damage, tried);
}

static void stated(struct lp_store_op *op)
{
	struct lpi_damage *damage = answered(op);
	struct lpi_damaged *item = find(damage, damage->at);
	if (item != NULL && op->result == -ENOENT)
		mended(damage, item, "it is gone");
	if (item == NULL || op->result < 0 || damage->is_stopping ||
	    op->stat.attrs.version_nr == item->version_nr) {
		step(damage);
		return;
	}
	damage->at_version = op->stat.attrs.version_nr;
	try_place(damage, item);
}

/* Looks at the next object behind the cursor, which wraps round. */
static bool look_at_one(struct lpi_damage *damage)
{
	if (damage->looks_left == 0 || damage->cnt == 0 || !lp_scrub_is_idle(damage->scrub))
		return false;
	damage->looks_left--;
	uint32_t idx = place_of(damage, (struct lp_ino){damage->cursor.nr + 1});
	const struct lpi_damaged *item = &damage->items[idx < damage->cnt ? idx : 0];
	damage->cursor = item->ino;
	damage->at = item->ino;
	damage->op = (struct lp_store_op){
		.opcode = LP_STORE_STAT, .sees_ordered = true, .stat = {.ino = item->ino}};
	ask(damage, stated);
	return true;
}

static void read_whole(void *arg, const struct lp_scrub_verdict *verdict)
{
	lpi_damage_passed(arg, verdict);
}

static void scrub_ended(void *arg)
{
	struct lpi_damage *damage = arg;
	struct lpi_damaged *item = find(damage, damage->scrubbed);
	/* Another place of the object is damaged, so it stays listed until it changes again. */
	if (item != NULL && !item->is_gone && lp_scrub_stats(damage->scrub)->damaged > 0)
		item->version_nr = damage->scrubbed_version;
	step(damage);
}

/* --- Life ------------------------------------------------------------------------------------- */

static void stop_if_idle(struct lpi_damage *damage)
{
	void (*stopped)(void *arg) = damage->stopped;
	if (!lp_scrub_is_idle(damage->scrub))
		return; /* its completion steps */
	damage->stopped = NULL;
	stopped(damage->arg);
}

static void step(struct lpi_damage *damage)
{
	if (damage->is_asking || (damage->is_stopping && damage->stopped == NULL))
		return;
	if (damage->is_quiet && damage->quiet != NULL) {
		void (*quiet)(void *arg) = damage->quiet;
		damage->quiet = NULL;
		quiet(damage->arg);
		return;
	}
	if (!damage->is_loaded && !damage->is_stopping) {
		load(damage);
		return;
	}
	if (damage->is_loaded && write_one(damage))
		return;
	if (damage->is_stopping)
		stop_if_idle(damage);
	else if (!name_one(damage))
		(void)look_at_one(damage);
}

int lpi_damage_begin(struct lpi_damage *damage, struct lp_reactor *reactor, struct lp_store *store,
		     struct lp_ns *ns, uint32_t shard_idx)
{
	const struct lp_scrub_options options = {.reactor = reactor,
						 .store = store,
						 .passed = read_whole,
						 .ended = scrub_ended,
						 .ended_arg = damage};
	*damage = (struct lpi_damage){
		.reactor = reactor, .store = store, .ns = ns, .shard_idx = shard_idx};
	damage->is_quiet = ns == NULL;
	damage->list = malloc(LPI_DAMAGE_LIST);
	int err = damage->list == NULL ? -ENOMEM : lp_scrub_new(&options, &damage->scrub);
	if (err < 0) {
		free(damage->list);
		damage->list = NULL;
		return err;
	}
	load(damage);
	return 0;
}

void lpi_damage_set_rate(struct lpi_damage *damage, uint64_t bytes_per_s)
{
	lp_scrub_set_rate(damage->scrub, bytes_per_s);
}

void lpi_damage_look(struct lpi_damage *damage)
{
	if (damage->scrub == NULL || damage->is_stopping)
		return;
	damage->looks_left = LP_MIN(LOOKS, damage->cnt);
	log_some(damage);
	step(damage);
}

void lpi_damage_quiet(struct lpi_damage *damage, void (*quiet)(void *arg), void *arg)
{
	damage->is_quiet = true;
	if (!damage->is_naming) {
		quiet(arg);
		return;
	}
	damage->quiet = quiet;
	damage->arg = arg;
}

void lpi_damage_stop(struct lpi_damage *damage, void (*stopped)(void *arg), void *arg)
{
	LP_ASSERT(damage->is_quiet || damage->ns == NULL);
	if (damage->scrub == NULL) {
		stopped(arg);
		return;
	}
	damage->is_stopping = true;
	damage->stopped = stopped;
	damage->arg = arg;
	if (!lp_scrub_is_idle(damage->scrub))
		lp_scrub_stop(damage->scrub);
	step(damage);
}

void lpi_damage_fini(struct lpi_damage *damage)
{
	for (uint32_t i = 0; i < damage->cnt; i++)
		free(damage->items[i].name);
	free(damage->items);
	free(damage->list);
	lp_scrub_free(damage->scrub);
	*damage = (struct lpi_damage){.scrub = NULL};
}

/* --- Report ----------------------------------------------------------------------------------- */

uint64_t lpi_damage_cnt(const struct lpi_damage *damage)
{
	return damage->cnt - damage->gone_cnt;
}

bool lpi_damage_is_full(const struct lpi_damage *damage)
{
	return damage->cnt == LPI_DAMAGE_MAX;
}

void lpi_damage_read_stats(const struct lpi_damage *damage, struct lpi_damage_stats *ret_stats)
{
	*ret_stats = (struct lpi_damage_stats){.objects = lpi_damage_cnt(damage),
					       .found = damage->found,
					       .beyond = damage->beyond,
					       .is_full = lpi_damage_is_full(damage)};
}

static void json_item(const struct lpi_damaged *item, struct lpi_text *text)
{
	lpi_json_open(text, NULL, '{');
	lpi_json_number(text, "ino", item->ino.nr);
	lpi_json_number(text, "offset", item->offset);
	lpi_json_string(text, "error", what_of(item->kind));
	lpi_json_number(text, "since_ns", (uint64_t)item->since_ns);
	lpi_json_string(text, "name", item->name != NULL ? item->name : "");
	lpi_json_close(text, '}');
}

void lpi_damage_json(const struct lpi_damage *damage, struct lp_ino behind, struct lpi_text *text)
{
	uint32_t shown = 0;
	uint32_t i = place_of(damage, (struct lp_ino){behind.nr + 1});
	lpi_json_open(text, "objects", '[');
	for (; i < damage->cnt && shown < LPI_DAMAGE_PAGE; i++) {
		if (damage->items[i].is_gone)
			continue;
		json_item(&damage->items[i], text);
		shown++;
	}
	lpi_json_close(text, ']');
	lpi_json_bool(text, "more", i < damage->cnt);
	lpi_json_bool(text, "full", lpi_damage_is_full(damage));
}
