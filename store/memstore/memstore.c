/* SPDX-License-Identifier: Apache-2.0 */
/* The store in memory: what measurements compare with, and the model that the store on devices is
 * checked against. Nothing persists.
 *
 * An operation is done when it is submitted; a task tells its caller later in the turn. So all of
 * them happen in the order of their submission, and complete in it. */
#include "store/memstore/memstore_impl.h"

#include <stdio.h>
#include <stdlib.h>

#define BUCKETS_MIN 1024u

/* --- The tables ------------------------------------------------------------------------------- */

int lpi_mem_table_init(struct lpi_mem_table *table)
{
	*table = (struct lpi_mem_table){.mask = BUCKETS_MIN - 1};
	table->buckets = calloc(BUCKETS_MIN, sizeof(struct lpi_mem_id *));
	return table->buckets == NULL ? -ENOMEM : 0;
}

static void link_id(struct lpi_mem_table *table, struct lpi_mem_id *id)
{
	struct lpi_mem_id **bucket = lpi_mem_table_bucket(table, id->nr);
	id->next_in_bucket = *bucket;
	*bucket = id;
}

/* Twice as large, if there is memory: it works without, only slower. */
static void grow_table(struct lpi_mem_table *table)
{
	struct lpi_mem_table old = *table;
	uint64_t cnt = (old.mask + 1) * 2;
	struct lpi_mem_id **buckets = calloc(cnt, sizeof(struct lpi_mem_id *));
	if (buckets == NULL)
		return;
	table->buckets = buckets;
	table->mask = cnt - 1;
	for (uint64_t i = 0; i <= old.mask; i++) {
		struct lpi_mem_id *next = NULL;
		for (struct lpi_mem_id *id = old.buckets[i]; id != NULL; id = next) {
			next = id->next_in_bucket;
			link_id(table, id);
		}
	}
	free(old.buckets);
}

void lpi_mem_table_insert(struct lpi_mem_table *table, struct lpi_mem_id *id)
{
	LP_ASSERT(lpi_mem_table_find(table, id->nr) == NULL);
	if (table->cnt > table->mask)
		grow_table(table);
	link_id(table, id);
	table->cnt++;
}

void lpi_mem_table_remove(struct lpi_mem_table *table, struct lpi_mem_id *id)
{
	struct lpi_mem_id **at = lpi_mem_table_bucket(table, id->nr);
	while (*at != NULL && *at != id)
		at = &(*at)->next_in_bucket;
	LP_ASSERT(*at == id);
	*at = id->next_in_bucket;
	table->cnt--;
}

/* --- Inodes and directories ------------------------------------------------------------------- */

struct lpi_mem_inode *lpi_mem_inode_find(const struct lpi_mem_store *store, struct lp_ino ino)
{
	struct lpi_mem_id *id = lpi_mem_table_find(&store->inodes, ino.nr);
	return id == NULL ? NULL : LP_CONTAINER_OF(id, struct lpi_mem_inode, id);
}

struct lpi_mem_inode *lpi_mem_inode_new(const struct lp_change *change)
{
	LP_ASSERT(change->type == LP_CHANGE_CREATE);
	struct lp_bytes target = change->inode.target;
	struct lpi_mem_inode *inode = calloc(1, sizeof(*inode) + target.len);
	if (inode == NULL)
		return NULL;
	inode->id.nr = change->ino.nr;
	inode->attrs = *change->inode.attrs;
	inode->attrs.size_bytes = target.len;
	inode->attrs.version_nr = 0;
	inode->attrs.is_freeing = false;
	inode->target = (uint8_t *)(inode + 1);
	if (target.len > 0)
		memcpy(inode->target, target.data, target.len);
	return inode;
}

void lpi_mem_inode_free(struct lpi_mem_inode *inode)
{
	if (inode == NULL)
		return;
	lpi_mem_pages_cut(&inode->pages, 0);
	lpi_mem_items_clear(&inode->xattrs);
	lpi_mem_items_clear(&inode->omap);
	free(inode);
}

void lpi_mem_inode_attrs(const struct lpi_mem_inode *inode, struct lp_attrs *ret_attrs)
{
	*ret_attrs = inode->attrs;
	ret_attrs->blocks = inode->pages.cnt;
}

struct lpi_mem_dir *lpi_mem_dir_find(const struct lpi_mem_store *store, struct lp_ino ino)
{
	struct lpi_mem_id *id = lpi_mem_table_find(&store->dirs, ino.nr);
	return id == NULL ? NULL : LP_CONTAINER_OF(id, struct lpi_mem_dir, id);
}

struct lpi_mem_dir *lpi_mem_dir_make(struct lpi_mem_store *store, struct lp_ino ino)
{
	struct lpi_mem_dir *dir = lpi_mem_dir_find(store, ino);
	if (dir != NULL)
		return dir;
	dir = calloc(1, sizeof(*dir));
	if (dir == NULL)
		return NULL;
	dir->id.nr = ino.nr;
	lpi_mem_table_insert(&store->dirs, &dir->id);
	return dir;
}

void lpi_mem_dir_drop(struct lpi_mem_store *store, struct lp_ino ino)
{
	struct lpi_mem_dir *dir = lpi_mem_dir_find(store, ino);
	if (dir == NULL)
		return;
	LP_ASSERT(dir->entries_cnt == 0);
	lpi_mem_table_remove(&store->dirs, &dir->id);
	free(dir);
}

static void read_dir(const struct lpi_mem_store *store, struct lp_store_op *op)
{
	const struct lpi_mem_dir *dir = lpi_mem_dir_find(store, op->dir.ino);
	if (dir == NULL)
		return;
	op->dir.entries_cnt = dir->entries_cnt;
	op->dir.name_bytes = dir->name_bytes;
	op->dir.next_insertion = dir->last_insertion + 1;
	op->dir.mtime_ns = dir->mtime_ns;
	op->dir.ctime_ns = dir->ctime_ns;
	op->dir.is_sealed = dir->is_sealed;
}

static int read_stat(const struct lpi_mem_store *store, struct lp_store_op *op)
{
	const struct lpi_mem_inode *inode = lpi_mem_inode_find(store, op->stat.ino);
	if (inode == NULL)
		return -ENOENT;
	lpi_mem_inode_attrs(inode, &op->stat.attrs);
	return 0;
}

/* --- Operations ------------------------------------------------------------------------------- */

static int run(struct lpi_mem_store *store, struct lp_store_op *op)
{
	switch (op->opcode) {
	case LP_STORE_TXN:
		return lpi_mem_txn(store, op);
	case LP_STORE_READ:
		return lpi_mem_read(store, op);
	case LP_STORE_STAT:
		return read_stat(store, op);
	case LP_STORE_LOOKUP:
		return lpi_mem_lookup(store, op);
	case LP_STORE_GET:
		return lpi_mem_get(store, op);
	case LP_STORE_LIST:
		return lpi_mem_list(store, op);
	case LP_STORE_SEEK:
		return lpi_mem_seek(store, op);
	case LP_STORE_DIR:
		read_dir(store, op);
		return 0;
	case LP_STORE_SYNC:
		return 0; /* as durable as it gets */
	case LP_STORE_OPCODE_CNT:
		break;
	}
	LP_UNREACHABLE();
}

static void mem_submit(struct lp_store *base, struct lp_store_op *op)
{
	struct lpi_mem_store *store = lpi_mem_store_of(base);
	LP_ASSERT(lp_reactor_is_mine(store->reactor));
	op->result = lpi_store_check(op);
	if (op->result == 0) {
		lpi_payload_sum(op);
		op->result = run(store, op);
	}
	lpi_mem_ops_push_back(&store->done, op);
	if (!lp_task_is_queued(&store->deliver))
		lp_task_queue(store->reactor, &store->deliver);
}

/* What is submitted meanwhile waits for the next turn. */
static void deliver(struct lp_task *task)
{
	struct lpi_mem_store *store = LP_CONTAINER_OF(task, struct lpi_mem_store, deliver);
	struct lpi_mem_ops ready;
	struct lp_store_op *op;
	lpi_mem_ops_init(&ready);
	lpi_mem_ops_splice_back(&ready, &store->done);
	while ((op = lpi_mem_ops_pop_front(&ready)) != NULL) {
		if (op->opcode < LP_STORE_OPCODE_CNT) {
			store->stats.ops[op->opcode]++;
			store->stats.errors[op->opcode] += op->result < 0;
		}
		op->complete(op);
	}
}

static void mem_end(struct lp_store *base, struct lp_store_op *op)
{
	lpi_mem_read_end(lpi_mem_store_of(base), op);
}

static struct lp_ino mem_new_ino(struct lp_store *base)
{
	struct lpi_mem_store *store = lpi_mem_store_of(base);
	return (struct lp_ino){store->next_ino++};
}

static int mem_error(const struct lp_store *base)
{
	(void)base;
	return 0; /* nothing can fail for good */
}

static bool mem_is_settled(const struct lp_store *base)
{
	(void)base;
	return true; /* as durable as it will be */
}

static bool mem_is_freeing(const struct lp_store *base, struct lp_store_freeing *since)
{
	(void)base;
	(void)since;
	return false; /* what is removed is free */
}

static void mem_read_health(const struct lp_store *base, struct lp_store_health *ret_health)
{
	(void)base;
	LP_ASSERT(ret_health->state == LP_STORE_OK);
}

static void mem_set_write_path(struct lp_store *base, enum lp_write_path path)
{
	(void)base; /* there is one only */
	(void)path;
}

static void mem_set_deferred_store(struct lp_store *base, enum lp_deferred_store kind)
{
	(void)base; /* nothing is deferred */
	(void)kind;
}

static void mem_read_stats(struct lp_store *base, struct lp_store_stats *ret_stats)
{
	struct lpi_mem_store *store = lpi_mem_store_of(base);
	struct lp_bufs_stats bufs;
	lp_bufs_read_stats(store->bufs, &bufs);
	*ret_stats = store->stats;
	ret_stats->used_blocks = bufs.used_bytes >> LP_BLOCK_SHIFT;
	ret_stats->shard_idx = store->shard_idx;
	ret_stats->free_blocks = (bufs.region_bytes - bufs.used_bytes) >> LP_BLOCK_SHIFT;
}

static void mem_read_usage(struct lp_store *base, struct lp_store_usage *ret_usage)
{
	(void)base;
	*ret_usage = (struct lp_store_usage){0};
}

static int mem_explain(const struct lp_store *base, uint64_t bytes, char *buf, size_t len)
{
	(void)base;
	return snprintf(buf, len, "%llu bytes: kept in memory, there is no device to write to",
			(unsigned long long)bytes);
}

/* There is no space to be broken up. */
static double mem_alloc_score(const struct lp_store *base)
{
	(void)base;
	return 0;
}

/* Nothing is ever waited for. */
static size_t mem_read_times(const struct lp_store *base, struct lp_store_time *ret_rows,
			     size_t max)
{
	(void)base;
	(void)ret_rows;
	(void)max;
	return 0;
}

static bool mem_sim_run_one(struct lp_store *base)
{
	(void)base;
	return false; /* there are no jobs */
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static void free_ids(struct lpi_mem_store *store)
{
	struct lpi_mem_inode *inode;
	while ((inode = lpi_mem_inodes_first(&store->inodes_by_nr)) != NULL) {
		lpi_mem_inodes_remove(&store->inodes_by_nr, inode);
		lpi_mem_inode_free(inode);
	}
	for (uint64_t i = 0; store->dirs.buckets != NULL && i <= store->dirs.mask; i++) {
		struct lpi_mem_id *next = NULL;
		for (struct lpi_mem_id *id = store->dirs.buckets[i]; id != NULL; id = next) {
			struct lpi_mem_dir *dir = LP_CONTAINER_OF(id, struct lpi_mem_dir, id);
			next = id->next_in_bucket;
			lpi_mem_items_clear(&dir->entries);
			free(dir);
		}
	}
}

static int mem_close(struct lp_store *base, bool abandon)
{
	struct lpi_mem_store *store = lpi_mem_store_of(base);
	(void)abandon; /* all is lost either way */
	LP_ASSERT(lpi_mem_ops_is_empty(&store->done));
	LP_ASSERT(store->reads_cnt == 0);
	if (lp_task_is_queued(&store->deliver))
		lp_task_cancel(&store->deliver);
	free_ids(store);
	lpi_mem_items_clear(&store->records);
	struct lpi_mem_read *next = NULL;
	for (struct lpi_mem_read *read = store->free_reads; read != NULL; read = next) {
		next = read->next;
		free(read);
	}
	lp_buf_put(store->zeros);
	free(store->inodes.buckets);
	free(store->dirs.buckets);
	free(store);
	return 0;
}

static const struct lpi_store_calls mem_calls = {
	.submit = mem_submit,
	.end = mem_end,
	.new_ino = mem_new_ino,
	.close = mem_close,
	.error = mem_error,
	.is_settled = mem_is_settled,
	.is_freeing = mem_is_freeing,
	.read_health = mem_read_health,
	.set_write_path = mem_set_write_path,
	.set_deferred_store = mem_set_deferred_store,
	.read_stats = mem_read_stats,
	.read_usage = mem_read_usage,
	.explain = mem_explain,
	.alloc_score = mem_alloc_score,
	.read_times = mem_read_times,
	.sim_run_one = mem_sim_run_one,
};

int lp_store_open_mem(const struct lp_store_options *options, struct lp_store **ret_store)
{
	LP_ASSERT(options->shard_idx < LP_SHARDS_MAX);
	struct lpi_mem_store *store = calloc(1, sizeof(*store));
	if (store == NULL)
		return -ENOMEM;
	store->store.calls = &mem_calls;
	store->reactor = options->reactor;
	store->bufs = options->bufs;
	store->shard_idx = options->shard_idx;
	store->next_ino = lp_ino_make(options->shard_idx, LP_INO_FIRST).nr;
	store->deliver.run = deliver;
	lpi_mem_ops_init(&store->done);
	lpi_mem_bufs_init(&store->reserved);
	store->zeros = lp_buf_new(store->bufs, LP_BLOCK_BYTES);
	int err = store->zeros == NULL ? -ENOMEM : 0;
	if (err == 0)
		err = lpi_mem_table_init(&store->inodes);
	if (err == 0)
		err = lpi_mem_table_init(&store->dirs);
	if (err < 0) {
		(void)mem_close(&store->store, true); /* frees what there is */
		return err;
	}
	memset(store->zeros->data, 0, LP_BLOCK_BYTES);
	*ret_store = &store->store;
	return 0;
}
