/* SPDX-License-Identifier: Apache-2.0 */
/* A name leads to a node; open files and the directory each hold a reference, so that a removed
 * file can be read to its end. Nodes and names are one thing: a rename changes the node's name.
 *
 * An operation goes through admit() first: it counts, hashes, loses the power and injects errors
 * there, and nowhere else. */
#include "store/kvfs/memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/prng.h"
#include "base/struct/list.h"

struct node {
	struct lp_list_node link; /* linked while the name exists */
	char name[LP_KVFS_NAME_MAX + 1];
	enum lp_kvfs_kind kind;
	uint8_t *data;
	size_t len;
	size_t synced;
	size_t capacity;
	uint32_t refs;
};
/* The analyzer does not know that a removed node is no longer its neighbours'. */
LP_LIST_DEFINE(node_list, struct node, link); /* NOLINT(clang-analyzer-unix.Malloc) */

struct lp_kvfs_mem {
	struct lp_kvfs fs;
	pthread_mutex_t lock;
	struct node_list nodes; /* this and all below by lock */
	struct lp_prng prng;
	struct lp_kvfs_mem_fault fault;
	lp_kvfs_mem_barrier_fn *barrier;
	void *barrier_arg;
	uint64_t cut_after; /* changes until the power goes */
	bool cut;
	uint32_t open_cnt;
	struct lp_kvfs_mem_stats stats;
};

struct open_file {
	struct lp_kvfs_file file;
	struct node *node;
};

static struct lp_kvfs_mem *mem_of(struct lp_kvfs *fs)
{
	return LP_CONTAINER_OF(fs, struct lp_kvfs_mem, fs);
}

static void lock(struct lp_kvfs_mem *mem)
{
	int err = pthread_mutex_lock(&mem->lock);
	LP_ASSERT(err == 0);
}

static void unlock(struct lp_kvfs_mem *mem)
{
	int err = pthread_mutex_unlock(&mem->lock);
	LP_ASSERT(err == 0);
}

/* --- Nodes -------------------------------------------------------------------------------------
 */

static struct node *node_find(struct lp_kvfs_mem *mem, const char *name)
{
	struct node *node;
	LP_LIST_FOREACH (node_list, &mem->nodes, node)
		if (strcmp(node->name, name) == 0)
			return node;
	return NULL;
}

static void node_put(struct node *node)
{
	LP_ASSERT(node->refs > 0);
	if (--node->refs > 0)
		return;
	LP_ASSERT(!lp_list_node_is_linked(&node->link));
	free(node->data);
	free(node);
}

static void node_unlink(struct lp_kvfs_mem *mem, struct node *node)
{
	mem->stats.live_bytes -= node->len;
	mem->stats.files--;
	node_list_remove(node);
	node_put(node);
}

static void node_set_name(struct node *node, const char *name)
{
	size_t len = strlen(name);
	LP_ASSERT(len <= LP_KVFS_NAME_MAX);
	memcpy(node->name, name, len + 1);
	node->kind = lp_kvfs_kind_of(name);
}

static struct node *node_new(struct lp_kvfs_mem *mem, const char *name)
{
	struct node *node = calloc(1, sizeof(*node));
	if (node == NULL)
		return NULL;
	node_set_name(node, name);
	node->refs = 1;
	node_list_push_back(&mem->nodes, node);
	mem->stats.files++;
	return node;
}

static int node_reserve(struct node *node, size_t len)
{
	if (len <= node->capacity)
		return 0;
	size_t capacity = LP_MAX(len, LP_MAX(node->capacity * 2, (size_t)4096));
	uint8_t *data = realloc(node->data, capacity);
	if (data == NULL)
		return -ENOMEM;
	node->data = data;
	node->capacity = capacity;
	return 0;
}

/* --- What happens to every operation -----------------------------------------------------------
 */

static bool fault_hits(struct lp_kvfs_mem *mem, enum lp_kvfs_mem_op op, enum lp_kvfs_kind kind)
{
	struct lp_kvfs_mem_fault *fault = &mem->fault;
	if (fault->times == 0 || (fault->ops & op) == 0)
		return false;
	if (fault->kinds != 0 && (fault->kinds & (1u << kind)) == 0)
		return false;
	if (fault->skip > 0) {
		fault->skip--;
		return false;
	}
	fault->times--;
	return true;
}

/* Under the lock. */
static int admit(struct lp_kvfs_mem *mem, enum lp_kvfs_mem_op op, const char *name, uint64_t len,
		 uint64_t offset)
{
	const uint64_t words[] = {mem->stats.hash, op, lp_hash_u64(name, strlen(name), 0), len,
				  offset};
	mem->stats.hash = lp_hash_u64(words, sizeof(words), 0);
	if ((op & LP_KVFS_MEM_CHANGES) != 0) {
		mem->stats.changes++;
		if (mem->cut_after == 0)
			mem->cut = true;
		else if (mem->cut_after != UINT64_MAX)
			mem->cut_after--;
	} else {
		mem->stats.reads++;
	}
	if (mem->cut)
		return -EIO;
	if (!fault_hits(mem, op, lp_kvfs_kind_of(name)))
		return 0;
	mem->stats.failed++;
	return mem->fault.err;
}

static int open_node(struct lp_kvfs_mem *mem, struct node *node, struct lp_kvfs_file **ret_file)
{
	struct open_file *open = calloc(1, sizeof(*open));
	if (open == NULL)
		return -ENOMEM;
	open->file.fs = &mem->fs;
	open->node = node;
	node->refs++;
	mem->open_cnt++;
	*ret_file = &open->file;
	return 0;
}

/* --- Operations --------------------------------------------------------------------------------
 */

static int create_locked(struct lp_kvfs_mem *mem, const char *name, struct lp_kvfs_file **ret_file)
{
	int err = admit(mem, LP_KVFS_MEM_CREATE, name, 0, 0);
	if (err < 0)
		return err;
	struct node *old = node_find(mem, name);
	struct node *node = node_new(mem, name);
	if (node == NULL)
		return -ENOMEM;
	err = open_node(mem, node, ret_file);
	if (err < 0)
		node_unlink(mem, node);
	else if (old != NULL)
		node_unlink(mem, old);
	return err;
}

static int mem_create(struct lp_kvfs *fs, const char *name, struct lp_kvfs_file **ret_file)
{
	struct lp_kvfs_mem *mem = mem_of(fs);
	lock(mem);
	int err = create_locked(mem, name, ret_file);
	unlock(mem);
	return err;
}

static int append_locked(struct lp_kvfs_mem *mem, struct node *node, const void *data, size_t len)
{
	int err = admit(mem, LP_KVFS_MEM_APPEND, node->name, len, node->len);
	if (err == 0)
		err = node_reserve(node, node->len + len);
	if (err < 0)
		return err;
	if (len > 0)
		memcpy(node->data + node->len, data, len);
	node->len += len;
	mem->stats.appended_bytes += len;
	if (node_list_is_linked(node))
		mem->stats.live_bytes += len;
	return 0;
}

static int mem_append(struct lp_kvfs_file *file, const void *data, size_t len)
{
	struct open_file *open = LP_CONTAINER_OF(file, struct open_file, file);
	struct lp_kvfs_mem *mem = mem_of(file->fs);
	lock(mem);
	int err = append_locked(mem, open->node, data, len);
	unlock(mem);
	return err;
}

static int mem_sync(struct lp_kvfs_file *file)
{
	struct open_file *open = LP_CONTAINER_OF(file, struct open_file, file);
	struct lp_kvfs_mem *mem = mem_of(file->fs);
	lock(mem);
	int err = admit(mem, LP_KVFS_MEM_SYNC, open->node->name, 0, open->node->len);
	if (err == 0) {
		open->node->synced = open->node->len;
		mem->stats.synced_cnt++;
	}
	unlock(mem);
	return err;
}

static int mem_close(struct lp_kvfs_file *file)
{
	struct open_file *open = LP_CONTAINER_OF(file, struct open_file, file);
	struct lp_kvfs_mem *mem = mem_of(file->fs);
	lock(mem);
	LP_ASSERT(mem->open_cnt > 0);
	mem->open_cnt--;
	node_put(open->node);
	unlock(mem);
	free(open);
	return 0;
}

static int open_locked(struct lp_kvfs_mem *mem, const char *name, struct lp_kvfs_file **ret_file)
{
	int err = admit(mem, LP_KVFS_MEM_OPEN, name, 0, 0);
	if (err < 0)
		return err;
	struct node *node = node_find(mem, name);
	return node == NULL ? -ENOENT : open_node(mem, node, ret_file);
}

static int mem_open(struct lp_kvfs *fs, const char *name, struct lp_kvfs_file **ret_file)
{
	struct lp_kvfs_mem *mem = mem_of(fs);
	lock(mem);
	int err = open_locked(mem, name, ret_file);
	unlock(mem);
	return err;
}

static int64_t mem_pread(struct lp_kvfs_file *file, void *buf, size_t len, uint64_t offset)
{
	struct open_file *open = LP_CONTAINER_OF(file, struct open_file, file);
	struct lp_kvfs_mem *mem = mem_of(file->fs);
	struct node *node = open->node;
	lock(mem);
	int64_t result = admit(mem, LP_KVFS_MEM_PREAD, node->name, len, offset);
	if (result == 0 && offset < node->len) {
		size_t got = LP_MIN(len, node->len - (size_t)offset);
		memcpy(buf, node->data + offset, got);
		result = (int64_t)got;
	}
	unlock(mem);
	return result;
}

static int mem_remove(struct lp_kvfs *fs, const char *name)
{
	struct lp_kvfs_mem *mem = mem_of(fs);
	lock(mem);
	int err = admit(mem, LP_KVFS_MEM_REMOVE, name, 0, 0);
	struct node *node = err == 0 ? node_find(mem, name) : NULL;
	if (node != NULL)
		node_unlink(mem, node);
	else if (err == 0)
		err = -ENOENT;
	unlock(mem);
	return err;
}

static int mem_rename(struct lp_kvfs *fs, const char *from, const char *to)
{
	struct lp_kvfs_mem *mem = mem_of(fs);
	lock(mem);
	int err = admit(mem, LP_KVFS_MEM_RENAME, from, lp_hash_u64(to, strlen(to), 0), 0);
	struct node *node = err == 0 ? node_find(mem, from) : NULL;
	struct node *old = err == 0 ? node_find(mem, to) : NULL;
	if (err == 0 && node == NULL)
		err = -ENOENT;
	if (err == 0 && old != NULL && old != node)
		node_unlink(mem, old);
	if (err == 0)
		node_set_name(node, to);
	unlock(mem);
	return err;
}

static int mem_list(struct lp_kvfs *fs, lp_kvfs_list_fn *each, void *arg)
{
	struct lp_kvfs_mem *mem = mem_of(fs);
	int err = 0;
	struct node *node;
	lock(mem);
	LP_LIST_FOREACH (node_list, &mem->nodes, node) {
		err = each(node->name, arg);
		if (err != 0)
			break;
	}
	unlock(mem);
	return err;
}

static int mem_stat(struct lp_kvfs *fs, const char *name, struct lp_kvfs_stat *ret_stat)
{
	struct lp_kvfs_mem *mem = mem_of(fs);
	lock(mem);
	const struct node *node = node_find(mem, name);
	if (node != NULL)
		*ret_stat = (struct lp_kvfs_stat){.size_bytes = node->len};
	unlock(mem);
	return node == NULL ? -ENOENT : 0;
}

static int mem_barrier(struct lp_kvfs *fs, const char *name)
{
	struct lp_kvfs_mem *mem = mem_of(fs);
	lock(mem);
	lp_kvfs_mem_barrier_fn *barrier = mem->barrier;
	void *arg = mem->barrier_arg;
	unlock(mem);
	return barrier == NULL ? 0 : barrier(name, arg);
}

static const struct lp_kvfs_ops mem_ops = {
	.create = mem_create,
	.append = mem_append,
	.sync = mem_sync,
	.close = mem_close,
	.open = mem_open,
	.pread = mem_pread,
	.remove = mem_remove,
	.rename = mem_rename,
	.list = mem_list,
	.stat = mem_stat,
	.manifest_barrier = mem_barrier,
};

/* --- The face ----------------------------------------------------------------------------------
 */

int lp_kvfs_mem_new(uint64_t seed, struct lp_kvfs_mem **ret_mem)
{
	struct lp_kvfs_mem *mem = calloc(1, sizeof(*mem));
	if (mem == NULL)
		return -ENOMEM;
	mem->fs.ops = &mem_ops;
	mem->cut_after = UINT64_MAX;
	node_list_init(&mem->nodes);
	lp_prng_init(&mem->prng, seed);
	int err = pthread_mutex_init(&mem->lock, NULL);
	LP_ASSERT(err == 0);
	*ret_mem = mem;
	return 0;
}

void lp_kvfs_mem_free(struct lp_kvfs_mem *mem)
{
	if (mem == NULL)
		return;
	LP_ASSERT(mem->open_cnt == 0);
	struct node *node;
	while ((node = node_list_pop_front(&mem->nodes)) != NULL)
		node_put(node);
	(void)pthread_mutex_destroy(&mem->lock);
	free(mem);
}

struct lp_kvfs *lp_kvfs_mem_fs(struct lp_kvfs_mem *mem)
{
	return &mem->fs;
}

void lp_kvfs_mem_set_fault(struct lp_kvfs_mem *mem, const struct lp_kvfs_mem_fault *fault)
{
	LP_ASSERT(fault->times == 0 || fault->err < 0);
	lock(mem);
	mem->fault = *fault;
	unlock(mem);
}

void lp_kvfs_mem_set_barrier(struct lp_kvfs_mem *mem, lp_kvfs_mem_barrier_fn *barrier, void *arg)
{
	lock(mem);
	mem->barrier = barrier;
	mem->barrier_arg = arg;
	unlock(mem);
}

void lp_kvfs_mem_cut_after(struct lp_kvfs_mem *mem, uint64_t changes)
{
	lock(mem);
	mem->cut_after = changes;
	unlock(mem);
}

bool lp_kvfs_mem_is_cut(struct lp_kvfs_mem *mem)
{
	lock(mem);
	bool cut = mem->cut;
	unlock(mem);
	return cut;
}

static void lose_unsynced(struct lp_kvfs_mem *mem, struct node *node, bool torn)
{
	size_t keep = node->synced;
	if (torn)
		keep += (size_t)lp_prng_below(&mem->prng, node->len - node->synced + 1);
	mem->stats.live_bytes -= node->len - keep;
	node->len = keep;
	node->synced = keep;
	if (keep == 0 && lp_prng_below(&mem->prng, 2) == 0)
		node_unlink(mem, node);
}

void lp_kvfs_mem_restart(struct lp_kvfs_mem *mem, bool torn)
{
	struct node *node;
	struct node *tmp;
	lock(mem);
	LP_ASSERT(mem->open_cnt == 0);
	LP_LIST_FOREACH_SAFE (node_list, &mem->nodes, node, tmp)
		lose_unsynced(mem, node, torn);
	mem->cut = false;
	mem->cut_after = UINT64_MAX;
	mem->fault = (struct lp_kvfs_mem_fault){0};
	unlock(mem);
}

void lp_kvfs_mem_read_stats(struct lp_kvfs_mem *mem, struct lp_kvfs_mem_stats *ret_stats)
{
	lock(mem);
	*ret_stats = mem->stats;
	unlock(mem);
}
