/* SPDX-License-Identifier: Apache-2.0 */
/* Readdir: each entry that stays is read once, even if others are added or removed meanwhile (rule
 * N4). A cookie is shard and insertion number. The store's pages are read into the caller's buffer,
 * too.
 *
 * By name is the order in which a store lists a fragment. The caller passes the name that was
 * returned with its cookie, and the list goes on after it, even if the name is gone. A name that
 * stays is always on the same side of it.
 *
 * A caller may remember which parts of a fragment it read by name, and read each part in the order
 * of cookies. Then it can go on from any cookie at the cost of one part, even if the cookie's entry
 * is gone. The mount does so.
 *
 * A caller that has only the cookie reads in the order of cookies. The whole fragment is walked,
 * and the entries with the lowest cookies after the given one are kept. Adding or removing entries
 * does not change the cookies of others. When the buffer is full, the half with the higher cookies
 * is dropped, and from then on all entries behind it. So each filled buffer costs one walk through
 * the fragment. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"

#define COOKIE_SHIFT LP_INO_SHARD_SHIFT

static_assert((LP_INSERTION_MAX - 1) >> COOKIE_SHIFT == 0, "an insertion fits below the shard");

static void list_page(struct lpi_job *job);

/* The part of the buffer for items; the rest is for a page of the store's. By name only few items
 * of a page find no room and are listed again, so the page is small. */
static uint32_t items_bytes(const struct lpi_job *job)
{
	uint32_t len = job->op->readdir.buf_len;
	return job->op->readdir.by_name ? len - LP_MAX(len / 8, LP_NS_READDIR_MIN / 2) : len / 2;
}

/* --- Attributes ------------------------------------------------------------------------------- */

/* Asks for the attributes of some inodes at a time, more with a batch; then of the directories
 * among them, one by one, with their fragments. An inode that was removed meanwhile is returned
 * without attributes. If the caller holds inodes, one that cannot be read is returned so, too,
 * because others are held already; the caller will ask for it, and get the error then. */

static void attrs_next(struct lpi_job *job);

static void finish(struct lpi_job *job, int result)
{
	struct lp_ns_op *op = job->op;
	struct lpi_readdir *rd = &job->readdir;
	if (rd->batch != NULL)
		lp_pool_put(job->ns->batches, rd->batch);
	rd->batch = NULL;
	op->readdir.items = result < 0 ? 0 : rd->items.cnt;
	op->readdir.used = result < 0 ? 0 : lpi_items_finish(&rd->items);
	lpi_job_end(job, result);
}

static void next_dir(struct lpi_job *job);

static void dir_left(struct lpi_job *job)
{
	job->readdir.item_idx++;
	next_dir(job);
}

static void dir_known(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	int r = job->dir_stat.result;
	if (r < 0 && job->op->hold) {
		lpi_let_go(job, job->dir_stat.ino, dir_left);
		return;
	}
	if (r < 0 && r != -ENOENT) {
		finish(job, r);
		return;
	}
	if (r >= 0)
		lpi_items_set_attrs(&rd->items, rd->item_idx, &job->dir_stat.attrs);
	rd->item_idx++;
	next_dir(job);
}

/* True for an inode that could not be read before. It is returned without attributes, and if it
 * cannot be read again there is no hold to give back. */
static bool is_unheld(const struct lpi_readdir *rd)
{
	return (rd->unheld >> (rd->item_idx - rd->asked_first) & 1) != 0;
}

static void next_dir(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	struct lp_ns_item item;
	for (; rd->item_idx < rd->asked_end; rd->item_idx++) {
		lpi_items_get(&rd->items, rd->item_idx, &item);
		if (item.type == LP_INODE_TYPE_DIR && !is_unheld(rd)) {
			lpi_stat(job, item.ino, false, dir_known);
			return;
		}
	}
	attrs_next(job);
}

static struct lpi_job_ask *ask_at(struct lpi_job *job, uint32_t i)
{
	return job->readdir.batch == NULL ? lpi_job_ask_at(job, i) : &job->readdir.batch->asks[i];
}

static void inodes_known(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	for (uint32_t i = 0; rd->item_idx + i < rd->asked_end; i++) {
		const struct lpi_job_ask *ask = ask_at(job, i);
		int r = ask->call.result;
		if (r < 0 && r != -ENOENT && !job->op->hold) {
			finish(job, r);
			return;
		}
		if (r < 0 && job->op->hold)
			rd->unheld |= UINT64_C(1) << i;
		if (r >= 0 && ask->op.stat.attrs.type != LP_INODE_TYPE_DIR)
			lpi_items_set_attrs(&rd->items, rd->item_idx + i, &ask->op.stat.attrs);
	}
	next_dir(job);
}

static void attrs_next(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	struct lp_ns_item item;
	if (!job->op->readdir.with_attrs || rd->item_idx >= rd->items.cnt) {
		finish(job, 0);
		return;
	}
	if (rd->batch == NULL && rd->items.cnt > LPI_JOB_ASKS) {
		rd->batch = lp_pool_get(job->ns->batches);
		if (rd->batch != NULL)
			memset(rd->batch, 0, sizeof(*rd->batch));
	}
	uint32_t most = rd->batch == NULL ? LPI_JOB_ASKS : LPI_STAT_BATCH;
	rd->asked_first = rd->item_idx;
	rd->asked_end = LP_MIN(rd->item_idx + most, rd->items.cnt);
	rd->unheld = 0;
	static_assert(LPI_STAT_BATCH <= 64, "a bit for each");
	for (uint32_t i = 0; rd->item_idx + i < rd->asked_end; i++) {
		struct lpi_job_ask *ask = ask_at(job, i);
		lpi_items_get(&rd->items, rd->item_idx + i, &item);
		ask->op = (struct lp_store_op){.opcode = LP_STORE_STAT, .stat = {.ino = item.ino}};
		if (job->op->hold)
			lpi_call_hold(&ask->call, NULL);
		lpi_job_ask_other(job, lp_ino_shard(item.ino), ask);
	}
	lpi_job_wait(job, inodes_known);
}

/* --- Items ------------------------------------------------------------------------------------ */

/* Keeps the item if its cookie is among the lowest. */
static void keep(struct lpi_readdir *rd, const struct lp_ns_item *item, bool has_room)
{
	while (item->cookie > rd->behind && item->cookie < rd->end) {
		if (lpi_items_add(&rd->items, item, has_room)) {
			rd->highest = LP_MAX(rd->highest, item->cookie);
			return;
		}
		if (item->cookie > rd->highest) {
			rd->end = item->cookie;
			return;
		}
		rd->end = lpi_items_halve(&rd->items);
		rd->highest = lpi_items_last_cookie(&rd->items);
	}
}

/* Takes the item if it is behind the cookie's entry. After the first that finds no room it takes
 * none. */
static void keep_by_name(struct lpi_job *job, const struct lp_ns_item *item)
{
	struct lpi_readdir *rd = &job->readdir;
	const struct lp_ns_op *op = job->op;
	if (rd->is_seeking) {
		rd->is_seeking = item->cookie != rd->behind;
		return;
	}
	rd->answer_bytes += (op->readdir.item_bytes + (uint64_t)item->name.len + 7) & ~UINT64_C(7);
	bool is_too_much =
		op->readdir.answer_bytes > 0 && rd->answer_bytes > op->readdir.answer_bytes;
	if (!rd->is_full)
		rd->is_full =
			is_too_much || !lpi_items_add(&rd->items, item, op->readdir.with_attrs);
}

static void next_shard(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	struct lp_ns_op *op = job->op;
	bool is_full = rd->is_full || rd->end != UINT64_MAX;
	bool is_last = !job->entry.dir_is_spread || rd->shard_idx + 1 >= job->ns->options.shard_cnt;
	if (rd->is_seeking) {
		finish(job, -ENOENT);
		return;
	}
	op->readdir.shard_idx = rd->shard_idx;
	op->readdir.is_last = is_last;
	op->readdir.more = is_full;
	rd->shard_idx++;
	rd->after_len = 0;
	if (!is_full && !is_last && !op->readdir.in_fragment) {
		list_page(job);
		return;
	}
	if (!op->readdir.by_name || op->readdir.in_fragment)
		lpi_items_sort(&rd->items);
	attrs_next(job);
}

/* True if the listed name is not after `until`: otherwise the list can end. */
static bool is_in_reach(const struct lpi_job *job, struct lp_bytes name)
{
	struct lp_bytes until = job->op->readdir.until;
	return until.len == 0 || lp_key_compare(name.data, name.len, until.data, until.len) <= 0;
}

static void take(struct lpi_job *job, const struct lp_list_item *listed)
{
	struct lpi_readdir *rd = &job->readdir;
	uint64_t before = job->op->readdir.in_fragment ? job->op->readdir.before : UINT64_MAX;
	const struct lp_ns_item item = {.name = listed->name,
					.ino = listed->ino,
					.cookie = (uint64_t)rd->shard_idx << COOKIE_SHIFT |
						  listed->insertion,
					.type = listed->type};
	if (listed->insertion >= before)
		return;
	if (job->op->readdir.by_name)
		keep_by_name(job, &item);
	else
		keep(rd, &item, job->op->readdir.with_attrs);
}

static void page_known(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	const struct lp_store_op *op = &job->asks[0].op;
	struct lp_list_item listed;
	uint32_t pos = 0;
	bool is_in = true;
	if (op->result < 0) {
		finish(job, op->result);
		return;
	}
	while (is_in && lp_store_list_next(op, &pos, &listed)) {
		is_in = is_in_reach(job, listed.name);
		if (is_in)
			take(job, &listed);
		memcpy(rd->after, listed.name.data, listed.name.len);
		rd->after_len = listed.name.len;
	}
	if (is_in && op->list.more && !rd->is_full)
		list_page(job);
	else
		next_shard(job);
}

/* The first page brings the insertion number of the next new entry. */
static void first_page_known(struct lpi_job *job)
{
	int r = job->asks[1].call.result;
	if (r < 0) {
		finish(job, r);
		return;
	}
	job->op->readdir.before = LP_MAX(job->asks[1].op.dir.next_insertion, UINT64_C(1));
	page_known(job);
}

static void list_page(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	bool wants_number = job->op->readdir.in_fragment && job->op->readdir.before == 0;
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_LIST;
	op->list.space = LP_STORE_ENTRIES;
	op->list.ino = job->entry.dir;
	if (rd->after_len > 0)
		op->list.after = (struct lp_bytes){rd->after, rd->after_len};
	op->list.buf = (uint8_t *)job->op->readdir.buf + items_bytes(job);
	op->list.buf_len = job->op->readdir.buf_len - items_bytes(job);
	lpi_job_ask(job, rd->shard_idx, 0, false);
	if (wants_number) {
		op = lpi_job_op(job, 1);
		op->opcode = LP_STORE_DIR;
		op->dir.ino = job->entry.dir;
		lpi_job_ask(job, rd->shard_idx, 1, false);
	}
	lpi_job_wait(job, wants_number ? first_page_known : page_known);
}

/* Finds the place where a reading with a name goes on. A name that is not on the cookie's shard was
 * not read with this cookie: entries would be skipped, or read twice. */
static int find_place(struct lpi_job *job, uint32_t first)
{
	struct lpi_readdir *rd = &job->readdir;
	struct lp_bytes after = job->op->readdir.after;
	bool in_fragment = job->op->readdir.in_fragment;
	bool is_at_its_beginning = in_fragment && rd->behind % (UINT64_C(1) << COOKIE_SHIFT) == 0;
	if (rd->behind == 0 && after.len == 0)
		return 0;
	if ((rd->behind == 0 && !in_fragment) ||
	    (!job->entry.dir_is_spread && first != rd->shard_idx))
		return -EINVAL;
	if (after.len == 0) {
		rd->is_seeking = job->op->readdir.by_name && !is_at_its_beginning;
		return 0;
	}
	if (!lp_key_name_is_valid(after.data, after.len) ||
	    lpi_shard_of_entry(job->ns, job->entry.dir, job->entry.dir_is_spread, after) != first)
		return -EINVAL;
	memcpy(rd->after, after.data, after.len);
	rd->after_len = after.len;
	return 0;
}

static void readdir_placed(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	uint32_t first = (uint32_t)(rd->behind >> COOKIE_SHIFT);
	uint32_t own = lp_ino_shard(job->entry.dir);
	rd->shard_idx = job->entry.dir_is_spread ? first : own;
	lpi_items_init(&rd->items, job->op->readdir.buf, items_bytes(job));
	rd->end = UINT64_MAX;
	bool knows_names = job->op->readdir.by_name || job->op->readdir.in_fragment;
	int r = knows_names ? find_place(job, first) : 0;
	if (r < 0)
		lpi_job_fail(job, r);
	else
		list_page(job);
}

void lpi_begin_readdir(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	struct lpi_readdir *rd = &job->readdir;
	*rd = (struct lpi_readdir){0};
	op->readdir.items = 0;
	op->readdir.used = 0;
	op->readdir.more = false;
	rd->behind = op->readdir.cookie;
	job->entry = (struct lpi_entry){.dir = op->readdir.dir};
	bool has_range =
		op->readdir.until.len > 0 || (!op->readdir.by_name && op->readdir.after.len > 0);
	if (op->readdir.buf_len < LP_NS_READDIR_MIN ||
	    (has_range && (op->readdir.by_name || !op->readdir.in_fragment)) ||
	    rd->behind >> COOKIE_SHIFT >= job->ns->options.shard_cnt)
		lpi_job_fail(job, -EINVAL);
	else
		lpi_names_place(job, 1, readdir_placed);
}
