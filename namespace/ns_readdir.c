/* SPDX-License-Identifier: Apache-2.0 */
/* Readdir: items in the order of their cookies, which are shard and insertion number (rule N4).
 *
 * A store lists a fragment in the order of its names. So all of it is walked, and those of the
 * lowest cookies behind the given one are kept: what goes and comes meanwhile moves nobody else's
 * cookie. One half of the caller's buffer takes the store's pages, the other the items. When these
 * find no room the half with the higher cookies goes, and whatever is behind it then.
 *
 * That is one walk through the fragment for each buffer filled: who reads large directories should
 * bring a buffer that takes all of it, or many thousands of items. A remembered order would be
 * quicker, and would have to be kept true. */
#include <errno.h>

#include "namespace/names.h"
#include "namespace/ns_impl.h"

#define COOKIE_SHIFT LP_INO_SHARD_SHIFT

static_assert((LP_INSERTION_MAX - 1) >> COOKIE_SHIFT == 0, "an insertion fits below the shard");

static void list_page(struct lpi_job *job);

static uint32_t half(const struct lpi_job *job)
{
	return job->op->readdir.buf_len / 2;
}

/* --- Attributes ------------------------------------------------------------------------------- */

/* Some inodes at a time; then the directories among them, whose fragments belong to it, each by
 * itself. What has lost its name meanwhile, and with it the inode, is told without attributes. */

static void attrs_next(struct lpi_job *job);

static void finish(struct lpi_job *job, int result)
{
	struct lp_ns_op *op = job->op;
	struct lpi_readdir *rd = &job->readdir;
	op->readdir.items = result < 0 ? 0 : rd->items.cnt;
	op->readdir.used = result < 0 ? 0 : lpi_items_finish(&rd->items);
	lpi_job_end(job, result);
}

static void next_dir(struct lpi_job *job);

static void dir_known(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	int r = job->dir_stat.result;
	if (r < 0 && r != -ENOENT) {
		finish(job, r);
		return;
	}
	if (r >= 0)
		lpi_items_set_attrs(&rd->items, rd->item_idx, &job->dir_stat.attrs);
	rd->item_idx++;
	next_dir(job);
}

static void next_dir(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	struct lp_ns_item item;
	for (; rd->item_idx < rd->asked_end; rd->item_idx++) {
		lpi_items_get(&rd->items, rd->item_idx, &item);
		if (item.type == LP_INODE_TYPE_DIR) {
			lpi_stat(job, item.ino, false, dir_known);
			return;
		}
	}
	attrs_next(job);
}

static void inodes_known(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	for (uint32_t i = 0; rd->item_idx + i < rd->asked_end; i++) {
		const struct lpi_job_ask *ask = &job->asks[i];
		int r = ask->call.result;
		if (r < 0 && r != -ENOENT) {
			finish(job, r);
			return;
		}
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
	rd->asked_end = LP_MIN(rd->item_idx + LPI_JOB_ASKS, rd->items.cnt);
	for (uint32_t i = 0; rd->item_idx + i < rd->asked_end; i++) {
		lpi_items_get(&rd->items, rd->item_idx + i, &item);
		struct lp_store_op *op = lpi_job_op(job, i);
		op->opcode = LP_STORE_STAT;
		op->stat.ino = item.ino;
		lpi_job_ask(job, lp_ino_shard(item.ino), i, false);
	}
	lpi_job_wait(job, inodes_known);
}

/* --- Items ------------------------------------------------------------------------------------ */

/* Keeps it if it is among the lowest. */
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

static void next_shard(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	bool is_full = rd->end != UINT64_MAX;
	rd->shard_idx++;
	rd->after_len = 0;
	job->op->readdir.more = is_full;
	if (!is_full && job->entry.dir_is_spread && rd->shard_idx < job->ns->options.shard_cnt) {
		list_page(job);
		return;
	}
	lpi_items_sort(&rd->items);
	attrs_next(job);
}

static void page_known(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	const struct lp_store_op *op = &job->asks[0].op;
	struct lp_list_item listed;
	uint32_t pos = 0;
	if (op->result < 0) {
		finish(job, op->result);
		return;
	}
	while (lp_store_list_next(op, &pos, &listed)) {
		const struct lp_ns_item item = {.name = listed.name,
						.ino = listed.ino,
						.cookie = (uint64_t)rd->shard_idx << COOKIE_SHIFT |
							  listed.insertion,
						.type = listed.type};
		keep(rd, &item, job->op->readdir.with_attrs);
		memcpy(rd->after, listed.name.data, listed.name.len);
		rd->after_len = listed.name.len;
	}
	if (op->list.more)
		list_page(job);
	else
		next_shard(job);
}

static void list_page(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_LIST;
	op->list.space = LP_STORE_ENTRIES;
	op->list.ino = job->entry.dir;
	if (rd->after_len > 0)
		op->list.after = (struct lp_bytes){rd->after, rd->after_len};
	op->list.buf = (uint8_t *)job->op->readdir.buf + half(job);
	op->list.buf_len = job->op->readdir.buf_len - half(job);
	lpi_job_ask(job, rd->shard_idx, 0, false);
	lpi_job_wait(job, page_known);
}

static void readdir_placed(struct lpi_job *job)
{
	struct lpi_readdir *rd = &job->readdir;
	uint32_t first = (uint32_t)(rd->behind >> COOKIE_SHIFT);
	uint32_t own = lp_ino_shard(job->entry.dir);
	rd->shard_idx = job->entry.dir_is_spread ? first : own;
	lpi_items_init(&rd->items, job->op->readdir.buf, half(job));
	rd->end = UINT64_MAX;
	list_page(job);
}

void lpi_begin_readdir(struct lpi_job *job)
{
	struct lp_ns_op *op = job->op;
	struct lpi_readdir *rd = &job->readdir;
	op->readdir.items = 0;
	op->readdir.used = 0;
	op->readdir.more = false;
	rd->behind = op->readdir.cookie;
	job->entry = (struct lpi_entry){.dir = op->readdir.dir};
	if (op->readdir.buf_len < LP_NS_READDIR_MIN ||
	    rd->behind >> COOKIE_SHIFT >= job->ns->options.shard_cnt)
		lpi_job_fail(job, -EINVAL);
	else
		lpi_names_place(job, 1, readdir_placed);
}
