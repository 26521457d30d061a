/* SPDX-License-Identifier: Apache-2.0 */
/* Objects that get names: put, upload, commit. A copy ends in the same way (ops/copy.c).
 *
 *   walk      to the directory of the name; missing directories are made
 *   name      it is locked, and looked up; meanwhile a new inode gets its number. If a new name is
 *             expected it is not looked up, because the commit's guard checks that, too. If it
 *             exists, the put begins again, and looks it up
 *   inodes    a replaced file, and an upload, are locked and looked at
 *   commit    the inode with data and xattrs, its entry, and the removal of the replaced file
 *
 * A put (rule W3) is one transaction if the replaced file is on the same shard, which is so unless
 * it was moved or linked there. Mode, owner and ACL, which are carried over from the replaced file,
 * are guarded: if a client changes them meanwhile, the put looks again. The file's version is
 * guarded only if it is a condition, or near the new version, because the file may be written all
 * the time.
 *
 * Xattrs that do not fit into one transaction are set before: the put then makes an upload of its
 * own. So the object is complete whenever it has a name. */
#include <errno.h>

#include "namespace/change/ns_state.h"
#include "namespace/ops/names.h"
#include "namespace/ops/paths.h"

/* After so many new names in a row, the next one is expected to be new, too. */
#define NEW_NAMES_MIN 8u
/* Larger puts: their data may be written before the guards are checked. */
#define GUESS_BYTES_MAX LP_BUF_MEDIUM
/* After so many commits before which the replaced file was changed, its version is no longer
 * guarded. */
#define GUARDED_TRIES_MAX (LPI_PATH_TRIES_MAX / 2)

static bool is_acl(struct lp_bytes name)
{
	struct lp_bytes acl = lp_acl_access_name();
	return name.len == acl.len && memcmp(name.data, acl.data, acl.len) == 0;
}

/* True if a file is replaced, whose owner, mode and ACL are carried over. */
static bool inherits(const struct lpi_job *job)
{
	return job->entry.ino.nr != 0 && job->entry.type == LP_INODE_TYPE_FILE;
}

static bool brings_acl(const struct lpi_job *job)
{
	for (uint32_t i = 0; i < job->put.xattr_cnt; i++) {
		if (is_acl(job->put.xattrs[i].name))
			return true;
	}
	return false;
}

static bool is_upload(const struct lpi_job *job)
{
	return job->put.upload.nr != 0;
}

/* --- The end ---------------------------------------------------------------------------------- */

static void name_ended(struct lpi_job *job)
{
	job->counted.nr = 0;
	job->put.next(job);
}

/* Closes the opens of an upload: the one that it was made with, and the one that pinned it
 * meanwhile. The client may have closed it already. */
static void run_close(struct lpi_call *call)
{
	const struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	struct lpi_opens *opens = call->to->opens;
	uint32_t cnt = lpi_opens_cnt(opens, job->new_ino);
	lpi_opens_drop(opens, job->new_ino, LP_MIN(cnt, job->put.opens));
	lpi_call_end(call, 0);
}

static void named(struct lpi_job *job)
{
	int r = job->pact.result;
	if (r == -EEXIST && job->put.is_guess)
		job->ns->new_names_cnt = 0;
	/* The name, its directory, or its inode is not as found or expected. */
	if (r == -EEXIST || r == -ENOENT || r == -ECANCELED || r == -ENODATA) {
		lpi_walk_again(job);
		return;
	}
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	job->put.attrs.version_nr = job->pact.coordinator->op.txn.version_nr;
	if (!is_upload(job)) {
		/* The inode is new and has no holes. */
		if (job->pact.coordinator->op.txn.path != LP_PATH_INLINE)
			job->put.attrs.blocks =
				(job->op->put.length + LP_BLOCK_BYTES - 1) / LP_BLOCK_BYTES;
		name_ended(job);
		return;
	}
	lpi_job_run(job, lp_ino_shard(job->new_ino), 0, run_close);
	lpi_job_wait(job, name_ended);
}

/* --- The change ------------------------------------------------------------------------------- */

/* Guards only the attributes that are carried over, because the replaced file may be written
 * meanwhile. */
static void guard_carried(struct lpi_job *job)
{
	const struct lpi_put *put = &job->put;
	struct lp_ino ino = job->entry.ino;
	uint32_t shard_idx = lp_ino_shard(ino);
	lpi_job_guard_rights(job, ino, &put->old);
	if (brings_acl(job))
		return;
	struct lp_change *guard = lpi_job_change(
		job, shard_idx, put->has_acl ? LP_GUARD_XATTR : LP_GUARD_NO_XATTR, ino);
	guard->named.name = lp_acl_access_name();
	if (put->has_acl)
		guard->named.value = (struct lp_bytes){put->acl, put->acl_len};
}

static void add_guards(struct lpi_job *job)
{
	const struct lpi_entry *entry = &job->entry;
	bool is_there = entry->ino.nr != 0;
	struct lp_change *guard = lpi_job_change(
		job, entry->shard_idx, is_there ? LP_GUARD_ENTRY : LP_GUARD_NO_ENTRY, entry->dir);
	guard->named.name = lpi_entry_name(entry);
	guard->named.target = entry->ino;
	if (is_there && job->put.guards_version)
		lpi_job_change(job, lp_ino_shard(entry->ino), LP_GUARD_INODE, entry->ino)
			->guard.version_nr = job->put.old.version_nr;
	else if (inherits(job))
		guard_carried(job);
}

/* An access list that the put brings contains the mode (acl.h). */
static uint16_t mode_of(const struct lpi_job *job)
{
	const struct lpi_put *put = &job->put;
	uint16_t mode =
		inherits(job) ? lp_rights_mode_left(&job->op->rights, &put->old) : put->mode;
	for (uint32_t i = 0; i < put->xattr_cnt; i++) {
		struct lp_bytes value = put->xattrs[i].value;
		if (is_acl(put->xattrs[i].name) && lp_acl_check(value.data, value.len) == 0)
			mode = (uint16_t)((mode & ~0777u) | lp_acl_mode(value.data, value.len));
	}
	return mode;
}

/* The version begins with the change time, and must be above the one that the name has shown, even
 * if the clock went back. The shown inode may be written all the time. So its version is guarded
 * only if it could come near the new one before the commit, and only for some tries. */
static void set_version(struct lpi_job *job)
{
	struct lpi_put *put = &job->put;
	bool is_asked = put->condition == LP_NS_IF_VERSION;
	put->guards_version = is_asked;
	if (job->entry.ino.nr == 0)
		return;
	bool may_guard = is_asked || job->walk.restarts < GUARDED_TRIES_MAX;
	bool must_guard = lpi_version_above(&put->attrs, put->old.version_nr, may_guard);
	put->guards_version = is_asked || must_guard;
}

/* Sets the attributes of the object as it will be. */
static void set_attrs(struct lpi_job *job)
{
	struct lpi_put *put = &job->put;
	struct lp_attrs *attrs = &put->attrs;
	bool carries = inherits(job);
	attrs->type = LP_INODE_TYPE_FILE;
	attrs->mode = mode_of(job);
	attrs->uid = carries ? put->old.uid : job->op->who.uid;
	attrs->gid = carries ? put->old.gid : job->op->who.gid;
	attrs->nlink = 1;
	attrs->parent = job->entry.dir;
	lpi_job_take_time(job);
	attrs->mtime_ns = put->mtime_ns != 0 ? put->mtime_ns : job->now_ns;
	attrs->ctime_ns = job->now_ns;
	set_version(job);
	if (is_upload(job))
		return;
	attrs->atime_ns = job->now_ns;
	attrs->btime_ns = job->now_ns;
}

static void add_data(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	if (op->opcode != LP_NS_PUT || op->put.length == 0)
		return;
	struct lp_change *write =
		lpi_job_change(job, lp_ino_shard(job->new_ino), LP_CHANGE_WRITE, job->new_ino);
	write->data.length = op->put.length;
	write->data.payload = op->put.payload;
	write->data.path = op->put.write_path;
}

static void add_inode(struct lpi_job *job)
{
	uint32_t shard_idx = lp_ino_shard(job->new_ino);
	const uint32_t mask = LP_ATTR_MODE | LP_ATTR_UID | LP_ATTR_GID | LP_ATTR_NLINK |
			      LP_ATTR_MTIME | LP_ATTR_CTIME | LP_ATTR_PARENT;
	struct lp_change *change = lpi_job_change(
		job, shard_idx, is_upload(job) ? LP_CHANGE_SET : LP_CHANGE_CREATE, job->new_ino);
	change->inode.attrs = &job->put.attrs;
	change->inode.name = lpi_entry_name(&job->entry);
	change->inode.mask = mask;
	if (is_upload(job))
		lpi_job_adopt(job, job->new_ino);
	else
		add_data(job);
	lpi_job_coordinate(job, shard_idx);
}

static void add_xattr(struct lpi_job *job, struct lp_bytes name, struct lp_bytes value)
{
	struct lp_change *change =
		lpi_job_change(job, lp_ino_shard(job->new_ino), LP_CHANGE_XATTR_SET, job->new_ino);
	change->named.name = name;
	change->named.value = value;
}

/* The list of the replaced file stays, and a copy does not bring another one (rule W3). */
static void carry_acl(struct lpi_job *job)
{
	const struct lpi_put *put = &job->put;
	if (put->has_acl)
		add_xattr(job, lp_acl_access_name(), (struct lp_bytes){put->acl, put->acl_len});
	else if (inherits(job) && put->has_source_acl)
		lpi_job_change(job, lp_ino_shard(job->new_ino), LP_CHANGE_XATTR_REMOVE,
			       job->new_ino)
			->named.name = lp_acl_access_name();
}

static void add_xattrs(struct lpi_job *job)
{
	const struct lpi_put *put = &job->put;
	for (uint32_t i = put->xattr_idx; i < put->xattr_cnt; i++)
		add_xattr(job, put->xattrs[i].name, put->xattrs[i].value);
	if (!brings_acl(job))
		carry_acl(job);
}

static void put_commit(struct lpi_job *job)
{
	set_attrs(job);
	add_guards(job);
	add_inode(job);
	add_xattrs(job);
	lpi_entry_set_change(job, &job->entry, job->new_ino, LP_INODE_TYPE_FILE);
	if (job->entry.ino.nr != 0)
		lpi_ino_lose_name(job, job->entry.ino, &job->put.old);
	lpi_job_commit(job, named);
}

/* A directory that has an entry exists; the replaced file loses its name. */
static void put_need_dir(struct lpi_job *job)
{
	job->dir_is_gone = lpi_walk_again;
	if (job->entry.ino.nr != 0)
		lpi_entry_may_lose(job, &job->entry, lpi_path_end, put_commit);
	else
		lpi_entry_need_dir(job, &job->entry, lpi_path_end, put_commit);
}

/* --- The present entry ------------------------------------------------------------------------ */

static int check_condition(const struct lpi_job *job)
{
	const struct lpi_entry *entry = &job->entry;
	bool is_there = entry->ino.nr != 0;
	if (is_there && entry->type == LP_INODE_TYPE_DIR)
		return -EISDIR;
	if (job->put.condition == LP_NS_IF_ABSENT)
		return is_there ? -EEXIST : 0;
	return job->put.condition != LP_NS_IF_ANY && !is_there ? -ENOENT : 0;
}

enum { ASK_OLD, ASK_ACL, ASK_UPLOAD, ASK_CHECK };

static int take_old(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[ASK_OLD];
	struct lpi_put *put = &job->put;
	if (job->entry.ino.nr == 0)
		return 0;
	if (ask->call.result == -ENOENT)
		return LP_CORRUPT(LP_OFFSET_NONE, "a name leads to inode %llx, which is not there",
				  (unsigned long long)job->entry.ino.nr);
	if (ask->call.result < 0)
		return ask->call.result;
	put->old = ask->op.stat.attrs;
	bool is_other = put->old.version_nr != put->version_nr;
	return put->condition == LP_NS_IF_VERSION && is_other ? -ECANCELED : 0;
}

static int take_acl(struct lpi_job *job)
{
	const struct lpi_job_ask *ask = &job->asks[ASK_ACL];
	struct lpi_put *put = &job->put;
	put->has_acl = inherits(job) && ask->call.result >= 0;
	put->acl_len = put->has_acl ? ask->op.get.value_len : 0;
	if (!inherits(job) || ask->call.result >= 0 || ask->call.result == -ENODATA)
		return 0;
	return ask->call.result == -ERANGE ? -E2BIG : ask->call.result;
}

static int take_upload(struct lpi_job *job)
{
	if (!is_upload(job))
		return 0;
	/* Another commit has given it a name. */
	int r = job->asks[ASK_CHECK].call.result;
	if (r >= 0)
		r = job->asks[ASK_UPLOAD].call.result;
	job->put.attrs = job->asks[ASK_UPLOAD].op.stat.attrs;
	return r;
}

static void put_known(struct lpi_job *job)
{
	int r = take_upload(job);
	if (r >= 0)
		r = take_old(job);
	if (r >= 0)
		r = take_acl(job);
	if (r < 0)
		lpi_path_end(job, r);
	else
		put_need_dir(job);
}

/* Asks for the replaced file. Its shard takes part in the change, so the answer need not be
 * durable; it may be written all the time. */
static void ask_old(struct lpi_job *job)
{
	struct lp_store_op *op = lpi_job_op(job, ASK_OLD);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->entry.ino;
	lpi_job_ask_part(job, lp_ino_shard(op->stat.ino), ASK_OLD);
}

static void ask_upload(struct lpi_job *job)
{
	struct lp_store_op *op = lpi_job_op(job, ASK_UPLOAD);
	op->opcode = LP_STORE_STAT;
	op->stat.ino = job->new_ino;
	lpi_job_ask(job, lp_ino_shard(op->stat.ino), ASK_UPLOAD, true);
}

static void ask_acl(struct lpi_job *job)
{
	struct lp_store_op *op = lpi_job_op(job, ASK_ACL);
	op->opcode = LP_STORE_GET;
	op->get.space = LP_STORE_XATTRS;
	op->get.ino = job->entry.ino;
	op->get.name = lp_acl_access_name();
	op->get.buf = job->put.acl;
	op->get.buf_len = sizeof(job->put.acl);
	lpi_job_ask_part(job, lp_ino_shard(op->get.ino), ASK_ACL);
}

static void run_check_upload(struct lpi_call *call)
{
	const struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	lpi_call_end(call, lpi_opens_is_unnamed(call->to->opens, job->new_ino) ? 0 : -ESTALE);
}

static void put_inodes_locked(struct lpi_job *job)
{
	if (job->entry.ino.nr != 0)
		ask_old(job);
	if (inherits(job))
		ask_acl(job);
	if (is_upload(job)) {
		ask_upload(job);
		lpi_job_run(job, lp_ino_shard(job->new_ino), ASK_CHECK, run_check_upload);
	}
	lpi_job_wait(job, put_known);
}

/* Takes the result of the lookup. A name that is expected to be new was not looked up. */
static int take_entry(struct lpi_job *job)
{
	struct lpi_entry *entry = &job->entry;
	struct lp_ns *ns = job->ns;
	if (job->put.is_guess) {
		entry->ino.nr = 0;
		return 0;
	}
	int r = lpi_entry_take(job, entry, 0);
	if (entry->ino.nr != 0)
		ns->new_names_cnt = 0;
	else if (r >= 0 && ns->new_names_cnt < NEW_NAMES_MIN)
		ns->new_names_cnt++;
	return r;
}

static void put_looked(struct lpi_job *job)
{
	int r = take_entry(job);
	if (r >= 0)
		r = check_condition(job);
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	job->put.has_acl = false;
	if (job->entry.ino.nr == 0 && !is_upload(job)) {
		put_need_dir(job);
		return;
	}
	if (job->entry.ino.nr != 0)
		lpi_job_lock_inode(job, job->entry.ino);
	if (is_upload(job))
		lpi_job_lock_inode(job, job->new_ino);
	job->lock_refused = lpi_path_end;
	lpi_job_lock(job, put_inodes_locked);
}

static void run_number(struct lpi_call *call)
{
	struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	job->new_ino = lp_store_new_ino(call->to->options.store);
	lpi_call_end(call, 0);
}

static void take_number(struct lpi_job *job)
{
	if (is_upload(job))
		job->new_ino = job->put.upload;
	else if (job->entry.shard_idx == job->ns->options.shard_idx)
		job->new_ino = lp_store_new_ino(job->ns->options.store);
	else
		lpi_job_run(job, job->entry.shard_idx, 1, run_number);
}

/* Only in the first try: later ones look it up. */
static bool expects_new_name(const struct lpi_job *job)
{
	enum lp_ns_if condition = job->put.condition;
	return job->op->opcode == LP_NS_PUT && !is_upload(job) && job->walk.restarts == 0 &&
	       job->op->put.length <= GUESS_BYTES_MAX &&
	       (condition == LP_NS_IF_ANY || condition == LP_NS_IF_ABSENT) &&
	       job->ns->new_names_cnt == NEW_NAMES_MIN;
}

static void put_name_locked(struct lpi_job *job)
{
	job->put.is_guess = expects_new_name(job);
	if (!job->put.is_guess)
		lpi_entry_ask(job, &job->entry, 0, true);
	take_number(job);
	if (job->pending > 0)
		lpi_job_wait(job, put_looked);
	else
		put_looked(job);
}

static void put_walked(struct lpi_job *job)
{
	if (job->walk.result < 0) {
		lpi_path_end(job, job->walk.result);
		return;
	}
	lpi_job_lock_name(job, &job->entry);
	job->lock_refused = lpi_path_end;
	lpi_job_lock(job, put_name_locked);
}

void lpi_put_name(struct lpi_job *job, lpi_step_fn *next)
{
	/* If the object must exist, no directory is made. */
	bool makes_dirs =
		job->put.condition == LP_NS_IF_ANY || job->put.condition == LP_NS_IF_ABSENT;
	job->put.next = next;
	lpi_walk(job, job->put.path, makes_dirs, put_walked);
}

/* --- Uploads ---------------------------------------------------------------------------------- */

static void run_number_open(struct lpi_call *call)
{
	struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	struct lp_ns *ns = call->to;
	job->new_ino = lp_store_new_ino(ns->options.store);
	lpi_call_end(call, lpi_opens_add(ns->opens, job->new_ino, 1));
}

static void run_unnamed(struct lpi_call *call)
{
	const struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	lpi_opens_orphan_unnamed(call->to->opens, job->new_ino);
	lpi_call_end(call, 0);
}

static void upload_over(struct lpi_job *job)
{
	job->put.upload = job->new_ino;
	job->put.opens = 1;
	lpi_job_again(job, job->put.next);
}

static void upload_made(struct lpi_job *job)
{
	if (job->pact.result < 0) {
		lpi_path_end(job, job->pact.result);
		return;
	}
	job->put.attrs.version_nr = job->pact.coordinator->op.txn.version_nr;
	lpi_job_run(job, lp_ino_shard(job->new_ino), 0, run_unnamed);
	lpi_job_wait(job, upload_over);
}

static void upload_numbered(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	job->counted = job->new_ino;
	lpi_job_take_time(job);
	struct lp_attrs *attrs = &job->put.attrs;
	*attrs = (struct lp_attrs){.type = LP_INODE_TYPE_FILE,
				   .mode = job->put.mode,
				   .uid = job->op->who.uid,
				   .gid = job->op->who.gid,
				   .atime_ns = job->now_ns,
				   .mtime_ns = job->now_ns,
				   .ctime_ns = job->now_ns,
				   .btime_ns = job->now_ns};
	lpi_job_change(job, lp_ino_shard(job->new_ino), LP_CHANGE_CREATE, job->new_ino)
		->inode.attrs = attrs;
	lpi_job_mark(job, job->new_ino, LP_UNFINISHED_KIND_UPLOAD);
	lpi_job_commit(job, upload_made);
}

void lpi_upload_make(struct lpi_job *job, lpi_step_fn *next)
{
	job->put.next = next;
	lpi_job_run(job, job->put.shard_idx, 0, run_number_open);
	lpi_job_wait(job, upload_numbered);
}

/* --- Xattrs before the name ------------------------------------------------------------------- */

static void xattrs_set(struct lpi_job *job)
{
	int r = job->pact.result;
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	job->put.xattr_idx += LP_NS_XATTRS_MAX;
	lpi_job_again(job, job->put.next);
}

static void set_some_xattrs(struct lpi_job *job)
{
	const struct lpi_put *put = &job->put;
	job->new_ino = put->upload;
	for (uint32_t i = 0; i < LP_NS_XATTRS_MAX; i++) {
		const struct lp_ns_named_value *xattr = &put->xattrs[put->xattr_idx + i];
		add_xattr(job, xattr->name, xattr->value);
	}
	lpi_job_commit(job, xattrs_set);
}

static void set_more_xattrs(struct lpi_job *job);

void lpi_upload_set_xattrs(struct lpi_job *job, lpi_step_fn *next)
{
	job->placed = next;
	set_more_xattrs(job);
}

static void set_more_xattrs(struct lpi_job *job)
{
	job->put.next = set_more_xattrs;
	if (job->put.xattr_cnt - job->put.xattr_idx > LP_NS_XATTRS_MAX)
		set_some_xattrs(job);
	else
		job->placed(job);
}

/* --- LP_NS_PUT -------------------------------------------------------------------------------- */

static int take_request(struct lpi_job *job)
{
	const struct lp_ns_op *op = job->op;
	job->put.path = op->put.path;
	job->put.condition = op->put.condition;
	job->put.version_nr = op->put.version_nr;
	job->put.mode = op->put.mode;
	job->put.mtime_ns = op->put.mtime_ns;
	job->put.xattrs = op->put.xattrs;
	job->put.xattr_cnt = op->put.xattr_cnt;
	if (op->put.mode > 07777 || op->put.condition > LP_NS_IF_VERSION)
		return -EINVAL;
	if (op->put.xattr_cnt > LP_NS_PUT_XATTRS_MAX)
		return -E2BIG;
	return lpi_path_check(op->put.path);
}

static void tell_put(struct lpi_job *job)
{
	job->op->put.found = (struct lp_ns_found){.ino = job->new_ino, .attrs = job->put.attrs};
	lpi_path_end(job, 0);
}

static void put_named(struct lpi_job *job)
{
	if (job->op->opcode == LP_NS_PUT)
		job->put.attrs.size_bytes = job->op->put.length;
	tell_put(job);
}

static void name_it(struct lpi_job *job)
{
	lpi_put_name(job, put_named);
}

static void data_written(struct lpi_job *job)
{
	if (job->pact.result < 0)
		lpi_path_end(job, job->pact.result);
	else
		lpi_job_again(job, name_it);
}

/* Writes the data of a put that is an upload of its own. */
static void write_data(struct lpi_job *job)
{
	job->new_ino = job->put.upload;
	if (job->op->put.length == 0) {
		name_it(job);
		return;
	}
	add_data(job);
	lpi_job_commit(job, data_written);
}

static void set_xattrs(struct lpi_job *job)
{
	lpi_upload_set_xattrs(job, write_data);
}

static void put_placed(struct lpi_job *job)
{
	if (job->walk.result < 0 && job->walk.result != -ENOENT) {
		lpi_path_end(job, job->walk.result);
		return;
	}
	job->put.shard_idx = job->entry.shard_idx;
	lpi_upload_make(job, set_xattrs);
}

void lpi_begin_put(struct lpi_job *job)
{
	int r = take_request(job);
	if (r < 0)
		lpi_path_end(job, r);
	else if (job->put.xattr_cnt > LP_NS_XATTRS_MAX)
		lpi_walk(job, job->put.path, false, put_placed);
	else
		lpi_put_name(job, put_named);
}

/* --- LP_NS_UPLOAD, LP_NS_COMMIT --------------------------------------------------------------- */

static void upload_begun(struct lpi_job *job)
{
	job->counted.nr = 0; /* it stays open */
	tell_put(job);
}

/* No directory is made yet, because the client may never commit. If a directory is missing, the
 * upload may be on any shard. */
static void upload_walked(struct lpi_job *job)
{
	int r = job->walk.result;
	if (r < 0 && r != -ENOENT) {
		lpi_path_end(job, r);
		return;
	}
	job->put.shard_idx = job->entry.shard_idx;
	lpi_upload_make(job, upload_begun);
}

void lpi_begin_upload(struct lpi_job *job)
{
	job->put.mode = job->op->put.mode;
	int r = job->put.mode > 07777 ? -EINVAL : lpi_path_check(job->op->put.path);
	if (r < 0)
		lpi_path_end(job, r);
	else
		lpi_walk(job, job->op->put.path, false, upload_walked);
}

/* The upload stays open until it has a name, even if the client closes it. */
static void run_pin(struct lpi_call *call)
{
	const struct lpi_job *job = LP_CONTAINER_OF(call, struct lpi_job_ask, call)->job;
	struct lpi_opens *opens = call->to->opens;
	struct lp_ino ino = job->put.upload;
	int r = lpi_opens_is_unnamed(opens, ino) ? lpi_opens_add(opens, ino, 1) : -ESTALE;
	lpi_call_end(call, r);
}

static void commit_pinned(struct lpi_job *job)
{
	int r = job->asks[0].call.result;
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	job->counted = job->put.upload;
	job->put.opens = 2;
	lpi_upload_set_xattrs(job, name_it);
}

void lpi_begin_commit(struct lpi_job *job)
{
	int r = take_request(job);
	job->put.upload = job->op->put.ino;
	if (r >= 0 && !lpi_ino_is_sane(job->ns, job->put.upload))
		r = -ESTALE;
	if (r < 0) {
		lpi_path_end(job, r);
		return;
	}
	lpi_job_run(job, lp_ino_shard(job->put.upload), 0, run_pin);
	lpi_job_wait(job, commit_pinned);
}
