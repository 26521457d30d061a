/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on a name in a directory. Each finds where the entry is, locks it, looks, and changes.
 *
 * That the directory exists when something is added to it: on the shard of its inode a guard says
 * so. On any other shard it is asked for while the entry's lock keeps its removal away, which
 * needs that fragment as a whole. */
#include <errno.h>

#include "namespace/names.h"
#include "namespace/ns_impl.h"

/* --- Where an entry is ------------------------------------------------------------------------ */

int lpi_entry_set(struct lpi_entry *entry, struct lp_ino dir, struct lp_bytes name)
{
	if (name.len > LP_KEY_NAME_MAX)
		return -ENAMETOOLONG;
	if (!lp_key_name_is_valid(name.data, name.len))
		return -EINVAL;
	*entry = (struct lpi_entry){.dir = dir, .name_len = (uint8_t)name.len};
	memcpy(entry->name, name.data, name.len);
	return 0;
}

static bool place(const struct lpi_job *job, struct lpi_entry *entry)
{
	const struct lp_ns *ns = job->ns;
	if (!lpi_dir_kind_find(ns, entry->dir, &entry->dir_is_spread))
		return false;
	entry->shard_idx = lpi_shard_of_entry(ns, entry->dir, entry->dir_is_spread,
					      lpi_entry_name(entry));
	return true;
}

static void kinds_known(struct lpi_job *job);

/* Directories whose kind is not known here are asked for. */
static void place_all(struct lpi_job *job)
{
	for (uint32_t i = 0; i < job->place_cnt; i++) {
		struct lpi_entry *entry = i == 0 ? &job->entry : &job->to;
		if (place(job, entry))
			continue;
		struct lp_store_op *op = lpi_job_op(job, i);
		op->opcode = LP_STORE_STAT;
		op->stat.ino = entry->dir;
		lpi_job_ask(job, lp_ino_shard(entry->dir), i, false);
	}
	if (job->pending > 0)
		lpi_job_wait(job, kinds_known);
	else
		job->placed(job);
}

static void kinds_known(struct lpi_job *job)
{
	for (uint32_t i = 0; i < job->place_cnt; i++) {
		const struct lpi_job_ask *ask = &job->asks[i];
		struct lpi_entry *entry = i == 0 ? &job->entry : &job->to;
		if (ask->op.stat.ino.nr != entry->dir.nr || ask->op.opcode != LP_STORE_STAT)
			continue;
		int r = ask->call.result;
		if (r >= 0 && ask->op.stat.attrs.type != LP_INODE_TYPE_DIR)
			r = -ENOTDIR;
		if (r < 0) {
			lpi_job_end(job, r == -ENOENT ? -ESTALE : r);
			return;
		}
		bool is_spread = (ask->op.stat.attrs.flags & LP_INODE_FLAG_SPREAD) != 0;
		lpi_dir_kind_learn(job->ns, entry->dir, is_spread);
		/* Not from the cache, where the other one may have taken its place. */
		entry->dir_is_spread = is_spread;
		entry->shard_idx = lpi_shard_of_entry(job->ns, entry->dir, is_spread,
						      lpi_entry_name(entry));
	}
	job->placed(job);
}

void lpi_names_place(struct lpi_job *job, uint32_t cnt, lpi_step_fn *next)
{
	job->place_cnt = cnt;
	job->placed = next;
	if (!lpi_ino_is_sane(job->ns, job->entry.dir) ||
	    (cnt > 1 && !lpi_ino_is_sane(job->ns, job->to.dir))) {
		lpi_job_end(job, -ESTALE);
		return;
	}
	for (uint32_t i = 0; i < LPI_JOB_ASKS; i++)
		job->asks[i].op = (struct lp_store_op){0};
	place_all(job);
}

/* --- Looking at entries ----------------------------------------------------------------------- */

void lpi_entry_ask(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx, bool is_locked)
{
	struct lp_store_op *op = lpi_job_op(job, idx);
	op->opcode = LP_STORE_LOOKUP;
	op->lookup.dir = entry->dir;
	op->lookup.name = lpi_entry_name(entry);
	lpi_job_ask(job, entry->shard_idx, idx, is_locked);
}

int lpi_entry_take(struct lpi_job *job, struct lpi_entry *entry, uint32_t idx)
{
	const struct lp_store_op *op = &job->asks[idx].op;
	int r = job->asks[idx].call.result;
	entry->ino.nr = 0;
	if (r == -ENOENT)
		return 0;
	if (r < 0)
		return r;
	entry->ino = op->lookup.ino;
	entry->type = op->lookup.type;
	entry->insertion = op->lookup.insertion;
	entry->has_attrs = op->lookup.has_attrs;
	if (entry->has_attrs)
		entry->attrs = op->lookup.attrs;
	return 0;
}
