/* SPDX-License-Identifier: Apache-2.0 */
/* Copy and move.
 *
 * A copy is an upload on the source's shard, where ranges can be cloned (rule N7). It is filled
 * from the source, and in the end it takes its name like any other upload. Each step is guarded by
 * the source's version: the copy equals the source at one moment, or begins anew.
 *
 * In a source with holes, the copy searches for data and clones it, together with short holes
 * behind it; each clone is longer as long as no hole is long. So a copy costs as much as the source
 * has data, not as its length. The hole behind the last data is made by one truncation of the copy.
 * The change after a search also guards the search, because filling a hole makes another version.
 * The search may see ordered state, because that change comes later in the same log.
 *
 * A move is a rename between two directories found by path. Missing directories at the new place
 * are made. At the old place, empty directories that a put had made are removed. */
#include "namespace/ops/copy.h"

#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/paths.h"

#define TRIES_MAX 8u /* of a source that is changed all the time */
/* A clone looks at each leaf of its range, also of a hole. To go over so much takes as long as
 * another step. So a longer hole is skipped by a step of its own, and the next clone begins with a
 * leaf. */
#define HOLE_LONG   (UINT64_C(4) << 20)
#define CLONE_FIRST (UINT64_C(256) << 10)

/* Xattrs or omap values being copied. */
struct lpi_copy_page {
	struct lp_store_op list;
	uint32_t last_len;
	uint32_t change_cnt;
	struct lp_change changes[LP_NS_XATTRS_MAX + 1];
	uint8_t last[LP_KEY_OMAP_MAX];
	uint8_t bytes[LP_STORE_VALUE_MAX + LP_KEY_OMAP_MAX + 256];
};

int lpi_copies_new(struct lp_pool **ret_pages)
{
	const struct lp_pool_config config = {.name = "namespace copies",
					      .object_bytes = sizeof(struct lpi_copy_page),
					      .limit = LPI_COPIES};
	return lp_pool_new(&config, ret_pages);
}

/* --- The end ---------------------------------------------------------------------------------- */

static void copy_start(struct lpi_job *job);
static void copy_again(struct lpi_job *job);

void lpi_copy_give_page(struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	if (job->copying.page == NULL)
		return;
	lp_pool_put(ns->copy_pages, job->copying.page);
	job->copying.page = NULL;
	struct lpi_job *next = lpi_job_list_pop_front(&ns->copies_waiting);
	if (next != NULL)
		copy_start(next);
}

static void copy_failed(struct lpi_job *job, int result)
{
	if (result == -ECANCELED) { /* the source was changed */
		lpi_open_uncount(job, copy_again);
		return;
	}
	lpi_path_end(job, result);
}

static void tell_copy(struct lpi_job *job)
{
	job->op->copy.found = (struct lp_ns_found){.ino = job->new_ino, .attrs = job->put.attrs};
	lpi_path_end(job, 0);
}

/* --- A step: a change of the copy ------------------------------------------------------------- */

static struct lp_change *guard_source(struct lpi_job *job)
{
	struct lpi_copy_page *page = job->copying.page;
	page->changes[0] = (struct lp_change){.type = LP_GUARD_INODE, .ino = job->put.source};
	page->changes[0].guard.version_nr = job->copying.attrs.version_nr;
	page->change_cnt = 1;
	return page->changes;
}

/* The changes become durable with the name, on the same shard. No lock is held, so the change may
 * wait for space that will soon be free, however long that takes. */
static void make_changes(struct lpi_job *job, lpi_step_fn *next)
{
	const struct lpi_copy_page *page = job->copying.page;
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_TXN;
	op->txn.changes = page->changes;
	op->txn.change_cnt = page->change_cnt;
	op->txn.ack = LP_ACK_ORDERED;
	lpi_job_submit(job, lp_ino_shard(job->put.source), 0, op);
	lpi_job_wait(job, next);
}

/* --- Xattrs and omap -------------------------------------------------------------------------- */

static void list_named(struct lpi_job *job);

static void unchanged(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[0];
	int r = ask->call.result;
	if (r >= 0 && ask->op.stat.attrs.version_nr != job->copying.attrs.version_nr)
		r = -ECANCELED;
	if (r < 0) {
		copy_failed(job, r);
		return;
	}
	lpi_copy_give_page(job);
	lpi_put_name(job, tell_copy);
}

/* All has been copied, from one version. */
static void check_source(struct lpi_job *job)
{
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->put.source;
	lpi_job_ask(job, lp_ino_shard(op->stat.ino), 0, false);
	lpi_job_wait(job, unchanged);
}

static void named_listed_all(struct lpi_job *job)
{
	job->copying.page->last_len = 0;
	if (job->copying.is_omap) {
		check_source(job);
		return;
	}
	job->copying.is_omap = true;
	list_named(job);
}

static void named_set(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	if (r < 0)
		copy_failed(job, r);
	else if (job->copying.page->list.list.more)
		list_named(job);
	else
		named_listed_all(job);
}

/* The ACL belongs to the mode, and a replaced file keeps its own of both (ops/put.c). */
static bool is_acl(struct lp_bytes name)
{
	struct lp_bytes acl = lp_acl_access_name();
	return name.len == acl.len && memcmp(name.data, acl.data, acl.len) == 0;
}

static void set_named(struct lpi_job *job)
{
	struct lpi_copy_page *page = job->copying.page;
	bool is_omap = job->copying.is_omap;
	struct lp_list_item item;
	uint32_t pos = 0;
	page->last_len = 0;
	(void)guard_source(job);
	while (lp_store_list_next(&page->list, &pos, &item)) {
		LP_ASSERT(item.name.len <= sizeof(page->last));
		page->last_len = item.name.len;
		memcpy(page->last, item.name.data, item.name.len);
		if (!is_omap && job->op->rights.is_limited && lp_rights_is_roots_xattr(item.name))
			continue;
		if (!is_omap && is_acl(item.name))
			job->put.has_source_acl = true;
		page->changes[page->change_cnt++] = (struct lp_change){
			.type = is_omap ? LP_CHANGE_OMAP_SET : LP_CHANGE_XATTR_SET,
			.ino = job->put.upload,
			.named = {.name = item.name, .value = item.value}};
	}
	if (page->change_cnt > 1)
		make_changes(job, named_set);
	else if (page->list.list.more)
		list_named(job);
	else
		named_listed_all(job);
}

static void named_listed(struct lpi_job *job)
{
	struct lpi_copy_page *page = job->copying.page;
	int r = job->asks[0].call.result;
	if (r < 0) {
		copy_failed(job, r);
		return;
	}
	page->list = job->asks[0].op;
	set_named(job);
}

static void list_named(struct lpi_job *job)
{
	struct lpi_copy_page *page = job->copying.page;
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_LIST;
	op->list.space = job->copying.is_omap ? LP_STORE_OMAP : LP_STORE_XATTRS;
	op->list.ino = job->put.source;
	op->list.buf = page->bytes;
	op->list.buf_len = sizeof(page->bytes);
	op->list.items_max = LP_NS_XATTRS_MAX;
	op->list.with_values = true;
	if (page->last_len > 0)
		op->list.after = (struct lp_bytes){page->last, page->last_len};
	lpi_job_ask(job, lp_ino_shard(job->put.source), 0, false);
	lpi_job_wait(job, named_listed);
}

/* --- Data ------------------------------------------------------------------------------------- */

static void clone_more(struct lpi_job *job);

/* The copy gets its whole length: the rest of the source is a hole. */
static void made_longer(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	if (r < 0)
		copy_failed(job, r);
	else
		list_named(job);
}

static void make_longer(struct lpi_job *job)
{
	struct lp_change *change = guard_source(job) + 1;
	*change = (struct lp_change){.type = LP_CHANGE_TRUNCATE, .ino = job->put.upload};
	change->data.offset = job->copying.attrs.size_bytes;
	job->copying.page->change_cnt++;
	make_changes(job, made_longer);
}

/* A range that is scattered over much of the device is too much for one clone: then tries a shorter
 * one. */
static void cloned(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	struct lpi_copying *copying = &job->copying;
	bool is_too_much = r == -EFBIG || r == -E2BIG;
	if (is_too_much && copying->length > LP_BLOCK_BYTES) {
		uint64_t blocks = copying->length / LP_BLOCK_BYTES / 4;
		copying->length_max = LP_MAX(blocks, 1u) * LP_BLOCK_BYTES;
	} else if (r < 0) {
		copy_failed(job, r);
		return;
	} else {
		copying->offset += copying->length;
		copying->is_at_data = false;
		job->op->copy.steps++;
	}
	clone_more(job);
}

static void clone_data(struct lpi_job *job)
{
	struct lpi_copying *copying = &job->copying;
	uint64_t left = copying->attrs.size_bytes - copying->offset;
	struct lp_change *change = guard_source(job) + 1;
	*change = (struct lp_change){.type = LP_CHANGE_CLONE, .ino = job->put.upload};
	change->clone.src = job->put.source;
	change->clone.src_offset = copying->offset;
	change->clone.offset = copying->offset;
	copying->length = LP_MIN(left, LP_MIN(copying->length_now, copying->length_max));
	change->clone.length = copying->length;
	copying->page->change_cnt++;
	make_changes(job, cloned);
}

static void data_found(struct lpi_job *job)
{
	struct lpi_copying *copying = &job->copying;
	const struct lpi_job_ask *ask = &job->asks[0];
	int r = ask->call.result;
	uint64_t found = ask->op.seek.found;
	if (r == -ENXIO) {
		make_longer(job);
	} else if (r < 0) {
		copy_failed(job, r);
	} else if (found >= copying->attrs.size_bytes) { /* it has become longer meanwhile */
		copy_failed(job, -ECANCELED);
	} else {
		bool is_far = found - copying->offset > HOLE_LONG;
		copying->length_now = is_far ? CLONE_FIRST : 2 * copying->length_now;
		copying->length_now = LP_MIN(copying->length_now, LP_STORE_RANGE_MAX);
		copying->offset = found;
		copying->is_at_data = true;
		clone_data(job);
	}
}

static void find_data(struct lpi_job *job)
{
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_SEEK;
	op->sees_ordered = true;
	op->seek.ino = job->put.source;
	op->seek.offset = job->copying.offset;
	lpi_job_submit(job, lp_ino_shard(job->put.source), 0, op);
	lpi_job_wait(job, data_found);
}

static void clone_more(struct lpi_job *job)
{
	const struct lpi_copying *copying = &job->copying;
	if (copying->offset == copying->attrs.size_bytes)
		list_named(job);
	else if (copying->is_sparse && !copying->is_at_data)
		find_data(job);
	else
		clone_data(job);
}

/* A file with its data in the inode has no holes worth a search. */
static bool has_holes(const struct lp_attrs *attrs)
{
	return attrs->size_bytes > LP_INODE_INLINE_MAX &&
	       attrs->blocks < lp_bytes_to_blocks_up(attrs->size_bytes);
}

static void upload_made(struct lpi_job *job)
{
	job->copying.offset = 0;
	job->copying.length_max = LP_STORE_RANGE_MAX;
	job->copying.is_sparse = has_holes(&job->copying.attrs);
	job->copying.length_now = job->copying.is_sparse ? CLONE_FIRST : LP_STORE_RANGE_MAX;
	job->copying.is_at_data = false;
	job->copying.is_omap = false;
	job->put.has_source_acl = false;
	job->copying.page->last_len = 0;
	clone_more(job);
}

/* --- The source ------------------------------------------------------------------------------- */

/* The caller owns the copy. A program that others have written must not run with the caller's
 * rights. */
static uint16_t mode_of_source(const struct lpi_job *job)
{
	const struct lp_ns_who *who = &job->op->who;
	const struct lp_rights owner = {.is_limited = true, .uid = who->uid, .gid = who->gid};
	struct lp_attrs attrs = job->copying.attrs;
	attrs.mode = lp_rights_mode_left(&owner, &attrs);
	return lp_rights_mode_left(&job->op->rights, &attrs);
}

static void make_upload(struct lpi_job *job)
{
	job->put.shard_idx = lp_ino_shard(job->put.source);
	job->put.mode = mode_of_source(job);
	lpi_upload_make(job, upload_made);
}

static void source_known(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	job->copying.attrs = job->asks[0].op.stat.attrs;
	if (r < 0)
		copy_failed(job, r);
	else
		make_upload(job);
}

static void know_source(struct lpi_job *job)
{
	struct lp_store_op *op = lpi_job_op(job, 0);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->put.source;
	lpi_job_ask(job, lp_ino_shard(op->stat.ino), 0, false);
	lpi_job_wait(job, source_known);
}

static void copy_again(struct lpi_job *job)
{
	if (++job->copying.tries < TRIES_MAX) {
		job->put.upload.nr = 0;
		know_source(job);
		return;
	}
	lpi_path_end(job, -EAGAIN);
}

static void copy_start(struct lpi_job *job)
{
	struct lp_ns *ns = job->ns;
	job->copying.page = lp_pool_get(ns->copy_pages);
	if (job->copying.page == NULL)
		lpi_job_list_push_back(&ns->copies_waiting, job);
	else
		lpi_job_soon(job, know_source);
}

static void source_opened(struct lpi_job *job)
{
	int r = job->dir_stat.result;
	if (r == -ENOENT) { /* it lost its name since it was looked up */
		lpi_open_uncount(job, lpi_walk_again);
		return;
	}
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	job->put.source = job->counted;
	job->counted.nr = 0;
	copy_start(job);
}

static void source_looked(struct lpi_job *job)
{
	const struct lpi_entry *entry = &job->entry;
	int r = lpi_entry_take(job, &job->entry, 0);
	if (r >= 0 && entry->ino.nr == 0)
		r = -ENOENT;
	if (r >= 0 && entry->type != LP_INODE_TYPE_FILE)
		r = entry->type == LP_INODE_TYPE_DIR ? -EISDIR : -EINVAL;
	if (r < 0)
		lpi_path_end(job, r);
	else
		lpi_open_count(job, entry->ino, source_opened);
}

static void source_walked(struct lpi_job *job)
{
	if (job->walk.result < 0) {
		lpi_path_end(job, job->walk.result);
		return;
	}
	lpi_entry_ask(job, &job->entry, 0, false);
	lpi_job_wait(job, source_looked);
}

static int check_paths(const struct lp_ns_op *op)
{
	int r = lpi_path_check(op->copy.path);
	if (r >= 0)
		r = lpi_path_check(op->copy.to_path);
	return r >= 0 && op->copy.condition > LP_NS_IF_VERSION ? -EINVAL : r;
}

void lpi_begin_copy(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	int r = check_paths(op);
	job->put.path = op->copy.to_path;
	job->put.condition = op->copy.condition;
	job->put.version_nr = op->copy.version_nr;
	if (r < 0)
		lpi_path_end(job, r);
	else
		lpi_walk(job, op->copy.path, false, source_walked);
}

/* --- LP_NS_MOVE ------------------------------------------------------------------------------- */

static void move_walk(struct lpi_job *job);

static void move_known(struct lpi_job *job)
{
	job->op->copy.found = lpi_stat_found(job);
	lpi_path_end(job, 0);
}

/* An inode that was removed meanwhile still has its number. */
static void move_pruned(struct lpi_job *job)
{
	lpi_stat(job, job->new_ino, false, move_known);
}

static void move_prune(struct lpi_job *job)
{
	lpi_prune(job, job->op->copy.path, move_pruned);
}

static void move_again(struct lpi_job *job)
{
	if (++job->walk.restarts > LPI_PATH_TRIES_MAX)
		lpi_path_end(job, -EAGAIN);
	else
		lpi_job_again(job, move_walk);
}

static void moved(struct lpi_job *job)
{
	int r = job->result;
	/* The end of the walk to the new place, because the rename uses job->walk, too. */
	job->walk.dir = job->to.dir;
	job->walk.is_spread = job->to.dir_is_spread;
	job->new_ino = job->entry.ino;
	if (r >= 0)
		lpi_job_again(job, move_prune);
	else if (r == -ENOENT && job->entry.ino.nr != 0 && job->rename_if == LP_NS_IF_ANY)
		move_again(job); /* the directory where it was to go */
	else
		lpi_path_end(job, r);
}

static void move_to_walked(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	if (job->walk.result < 0) {
		lpi_path_end(job, job->walk.result);
		return;
	}
	const struct lpi_entry from = job->to;
	job->to = job->entry;
	job->entry = from;
	bool is_absent = op->copy.condition == LP_NS_IF_ABSENT;
	job->rename_flags = is_absent ? LP_NS_RENAME_NOREPLACE : 0;
	job->rename_if = is_absent ? LP_NS_IF_ANY : op->copy.condition;
	job->rename_version_nr = op->copy.version_nr;
	job->dir_is_gone = move_again;
	job->stopped = moved;
	lpi_rename(job);
}

/* No directory is made if the source does not exist. */
static void move_from_looked(struct lpi_job *job)
{
	enum lp_ns_if condition = job->op->copy.condition;
	int r = lpi_entry_take(job, &job->entry, 0);
	if (r >= 0 && job->entry.ino.nr == 0)
		r = -ENOENT;
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	job->to = job->entry;
	lpi_walk(job, job->op->copy.to_path,
		 condition == LP_NS_IF_ANY || condition == LP_NS_IF_ABSENT, move_to_walked);
}

static void move_from_walked(struct lpi_job *job)
{
	if (job->walk.result < 0) {
		lpi_path_end(job, job->walk.result);
		return;
	}
	lpi_entry_ask(job, &job->entry, 0, false);
	lpi_job_wait(job, move_from_looked);
}

static void move_walk(struct lpi_job *job)
{
	lpi_walk(job, job->op->copy.path, false, move_from_walked);
}

/* A directory cannot be moved below itself. */
static bool is_below(struct lp_bytes path, struct lp_bytes dir)
{
	return path.len > dir.len && memcmp(path.data, dir.data, dir.len) == 0 &&
	       ((const char *)path.data)[dir.len] == '/';
}

void lpi_begin_move(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	int r = check_paths(op);
	if (r >= 0 && is_below(op->copy.to_path, op->copy.path))
		r = -EINVAL;
	if (r < 0)
		lpi_path_end(job, r);
	else
		move_walk(job);
}
