/* SPDX-License-Identifier: Apache-2.0 */
/* One hash table for all kinds. Two queues, each ordered from the next node to be looked at to the
 * one that came last. */
#include "store/nodes/node.h"

#include <stdlib.h>
#include <string.h>

#define BUCKETS_BITS_MIN 16u
#define BUCKETS_BITS_MAX 26u
#define BUCKET_SHARE     512u /* of the budget; one bucket per so many bytes: less than a node */
#define USED_MAX         3u
#define SMALL_SHARE      10u   /* of the budget, in parts of 100 */
#define SHRINK_LOOKS_MAX 64u   /* nodes looked at by one call */
#define MAP_LARGE        16384 /* bytes; leaves of such a map are evicted before the inode */
#define NAMES_SHARE      8u    /* of the budget, for all names that fragments remember */
#define NAMES_BYTES_MAX  (UINT64_C(16) << 20) /* of one fragment, so that its free is fast */
#define SCRATCH_BYTES    (LP_INODE_BYTES_MAX + LP_EXTMAP_ROOT_BYTES_MAX)

static const size_t node_bytes[LPI_NODE_KINDS] = {
	[LPI_NODE_INODE] = sizeof(struct lpi_inode),
	[LPI_NODE_FRAGMENT] = sizeof(struct lpi_fragment),
	[LPI_NODE_REFS] = sizeof(struct lpi_refs),
};

/* --- Accounting ------------------------------------------------------------------------------- */

static uint64_t measure(const struct lpi_node *node)
{
	uint64_t bytes = node_bytes[node->kind];
	if (node->kind == LPI_NODE_INODE) {
		const struct lpi_inode *inode =
			LP_CONTAINER_OF((struct lpi_node *)(uintptr_t)node, struct lpi_inode, node);
		bytes += lp_extmap_bytes(&inode->map) + inode->name_max + inode->target_max +
			 inode->content_max + inode->xattrs_max;
	} else if (node->kind == LPI_NODE_FRAGMENT) {
		const struct lpi_fragment *fragment = LP_CONTAINER_OF(
			(struct lpi_node *)(uintptr_t)node, struct lpi_fragment, node);
		bytes += fragment->names != NULL ? lp_names_bytes(fragment->names) : 0;
	}
	return bytes;
}

void lpi_node_account(struct lpi_node *node)
{
	struct lpi_nodes *nodes = node->home;
	uint64_t bytes = measure(node);
	nodes->bytes += bytes - node->bytes;
	if (!node->in_main)
		nodes->small_bytes += bytes - node->bytes;
	node->bytes = bytes;
}

/* --- Table ------------------------------------------------------------------------------------ */

static struct lpi_node **find_link(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id)
{
	uint64_t hash = (id + kind) * UINT64_C(0x9e3779b97f4a7c15);
	struct lpi_node **link = &nodes->buckets[hash >> (64 - nodes->bucket_bits)];
	while (*link != NULL && ((*link)->id != id || (*link)->kind != kind))
		link = &(*link)->next_in_bucket;
	return link;
}

struct lpi_node *lpi_node_peek(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id)
{
	return *find_link(nodes, kind, id);
}

struct lpi_node *lpi_node_find(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id)
{
	struct lpi_node *node = *find_link(nodes, kind, id);
	if (node == NULL) {
		nodes->misses++;
		return NULL;
	}
	nodes->hits++;
	if (node->used < USED_MAX)
		node->used++;
	return node;
}

void lpi_node_key(enum lpi_node_kind kind, uint64_t id, struct lp_key *ret_key)
{
	if (kind == LPI_NODE_REFS)
		lp_key_of_number(ret_key, LP_KEY_SPACE_REFS, id);
	else
		lp_key_of_ino(ret_key,
			      kind == LPI_NODE_INODE ? LP_KEY_SPACE_INODE : LP_KEY_SPACE_FRAGMENT,
			      (struct lp_ino){id});
}

/* --- The parts of an inode -------------------------------------------------------------------- */

struct part {
	struct lp_inode_bytes *bytes;
	uint32_t *max;
};

static struct part part_of(struct lpi_inode *inode, enum lpi_inode_part part)
{
	switch (part) {
	case LPI_PART_NAME:
		return (struct part){&inode->rec.name, &inode->name_max};
	case LPI_PART_TARGET:
		return (struct part){&inode->rec.target, &inode->target_max};
	case LPI_PART_CONTENT:
		return (struct part){&inode->rec.content, &inode->content_max};
	case LPI_PART_XATTRS:
	default:
		return (struct part){&inode->rec.xattrs, &inode->xattrs_max};
	}
}

/* The part keeps its memory when it is empty; `at` points to it as long as there is any. */
static uint8_t *memory_of(const struct part *part)
{
	return *part->max > 0 ? (uint8_t *)(uintptr_t)part->bytes->at : NULL;
}

int lpi_inode_make_room(struct lpi_inode *inode, enum lpi_inode_part which, uint32_t bytes)
{
	struct part part = part_of(inode, which);
	if (bytes <= *part.max)
		return 0;
	struct lp_slabs *slabs = inode->node.home->slabs;
	uint8_t *memory = lp_slabs_get(slabs, bytes);
	if (memory == NULL)
		return -ENOMEM;
	if (part.bytes->len > 0)
		memcpy(memory, part.bytes->at, part.bytes->len);
	lp_slabs_put(slabs, memory_of(&part), *part.max);
	part.bytes->at = memory;
	*part.max = bytes;
	lpi_node_account(&inode->node);
	return 0;
}

void lpi_inode_set_part(struct lpi_inode *inode, enum lpi_inode_part which, const void *bytes,
			uint32_t len)
{
	struct part part = part_of(inode, which);
	LP_ASSERT(len <= *part.max);
	if (len > 0)
		memmove(memory_of(&part), bytes, len);
	part.bytes->len = len;
}

void lpi_inode_clear(struct lpi_inode *inode)
{
	LP_ASSERT(lp_extmap_blocks(&inode->map) == 0);
	inode->rec.name.len = 0;
	inode->rec.target.len = 0;
	inode->rec.content.len = 0;
	inode->rec.xattrs.len = 0;
	inode->rec.content_crc = 0;
}

uint8_t *lpi_inode_part_memory(struct lpi_inode *inode, enum lpi_inode_part which)
{
	struct part part = part_of(inode, which);
	return memory_of(&part);
}

/* --- Encoding --------------------------------------------------------------------------------- */

static struct lp_kv_bytes key_bytes(const struct lp_key *key)
{
	return (struct lp_kv_bytes){key->bytes, key->len};
}

/* Puts the record of the node, or of one of its leaves, from the scratch. */
static void put_record(struct lpi_node *node, const struct lp_key *key, size_t len, bool is_owed)
{
	struct lp_commit *commit = node->home->commit;
	const struct lp_kv_bytes value = {node->home->scratch, len};
	if (is_owed) {
		lp_commit_owe(commit, key_bytes(key), value);
		return;
	}
	node->index_group = lp_commit_group(commit);
	if (len > 0)
		lp_commit_put_owned(commit, key_bytes(key), value);
	else
		lp_commit_delete_owned(commit, key_bytes(key));
}

static bool take_leaf(struct lpi_inode *inode, struct lp_extmap_piece *ret_piece)
{
	struct lpi_nodes *nodes = inode->node.home;
	if (lpi_owing_is_open(nodes))
		return lp_extmap_take_or_owe(&inode->map, nodes->scratch, ret_piece);
	return lp_extmap_take_dirty(&inode->map, nodes->scratch, ret_piece);
}

static void put_leaves(struct lpi_inode *inode)
{
	struct lp_extmap_piece piece;
	struct lp_key key;
	while (take_leaf(inode, &piece)) {
		lp_key_of_map(&key, inode->rec.ino, piece.block);
		put_record(&inode->node, &key, piece.len, piece.is_owed);
		if (piece.is_owed)
			lpi_owing_add(&inode->node, LP_KEY_SPACE_MAP,
				      (uint32_t)(piece.block / LP_EXTMAP_LEAF_BLOCKS), piece.len);
		lpi_owing_account(&inode->node);
	}
}

/* The record borrows the part; NULL means an empty part. */
static struct lp_inode_bytes borrowed(struct lp_inode_bytes bytes)
{
	return bytes.len > 0 ? bytes : (struct lp_inode_bytes){0};
}

static size_t encode_inode(struct lpi_inode *inode, uint8_t *scratch)
{
	uint8_t *root = scratch + LP_INODE_BYTES_MAX;
	size_t root_len = lp_extmap_encode_root(&inode->map, root);
	struct lp_inode rec = inode->rec;
	rec.name = borrowed(rec.name);
	rec.target = borrowed(rec.target);
	rec.content = borrowed(rec.content);
	rec.xattrs = borrowed(rec.xattrs);
	rec.map = borrowed((struct lp_inode_bytes){root, root_len});
	return lp_inode_encode(&rec, scratch);
}

size_t lpi_node_encode(struct lpi_node *node)
{
	uint8_t *scratch = node->home->scratch;
	struct lp_key key;
	switch (node->kind) {
	case LPI_NODE_INODE:
		return node->exists ? encode_inode(lpi_inode_of(node), scratch) : 0;
	case LPI_NODE_FRAGMENT:
		if (!node->exists)
			return 0;
		lpi_node_key(node->kind, node->id, &key);
		lp_fragment_write(&lpi_fragment_of(node)->value, &key, scratch);
		return LP_FRAGMENT_VALUE_SIZE;
	case LPI_NODE_REFS:
	default:
		return lp_refs_encode(&lpi_refs_of(node)->refs, scratch);
	}
}

/* A list of inodes leaves out those that are being removed, so their records must be in the index
 * (rule W1). */
static bool may_be_owed(const struct lpi_node *node)
{
	const struct lpi_inode *inode =
		LP_CONTAINER_OF((struct lpi_node *)(uintptr_t)node, struct lpi_inode, node);
	return node->kind != LPI_NODE_INODE || (inode->rec.flags & LP_INODE_FLAG_REMOVED) == 0;
}

static int encode(struct lp_commit_dirty *dirty, struct lp_commit *commit)
{
	struct lpi_node *node = LP_CONTAINER_OF(dirty, struct lpi_node, dirty);
	struct lp_key key;
	LP_ASSERT(commit == node->home->commit);
	if (node->kind == LPI_NODE_INODE)
		put_leaves(lpi_inode_of(node));
	size_t len = lpi_node_encode(node);
	if (node->kind == LPI_NODE_REFS)
		node->exists = len > 0;
	lpi_node_key(node->kind, node->id, &key);
	node->is_owed =
		len > 0 && node->is_stored && may_be_owed(node) && lpi_owing_is_open(node->home);
	put_record(node, &key, len, node->is_owed);
	if (node->is_owed)
		lpi_owing_add(node, key.bytes[0], 0, len);
	node->is_stored = len > 0;
	lpi_owing_account(node);
	lpi_node_account(node);
	return 0; /* a failure there has ended the pipeline already */
}

uint32_t lpi_node_need(const struct lpi_node *node)
{
	uint32_t bytes = LP_COMMIT_RECORD_BYTES + 9;
	if (lpi_node_is_dirty(node))
		return 0;
	if (node->kind == LPI_NODE_FRAGMENT)
		return bytes + LP_FRAGMENT_VALUE_SIZE;
	if (node->kind == LPI_NODE_REFS)
		return bytes + LP_REFS_BYTES_MAX;
	const struct lpi_inode *inode =
		LP_CONTAINER_OF((struct lpi_node *)(uintptr_t)node, struct lpi_inode, node);
	bytes += LP_INODE_HEAD_SIZE + 6 * LP_INODE_SECTION_SIZE + 4 * 4;
	bytes += (uint32_t)(inode->rec.name.len + inode->rec.target.len + inode->rec.content.len +
			    inode->rec.xattrs.len);
	if (lp_extmap_blocks(&inode->map) > 0)
		bytes += LP_EXTMAP_ROOT_BYTES_MAX;
	return bytes;
}

/* --- Loading ---------------------------------------------------------------------------------- */

static int copy_part(struct lpi_inode *inode, enum lpi_inode_part part, struct lp_inode_bytes from)
{
	if (from.len == 0)
		return 0;
	int err = lpi_inode_make_room(inode, part, (uint32_t)from.len);
	if (err == 0)
		lpi_inode_set_part(inode, part, from.at, (uint32_t)from.len);
	return err;
}

static int load_inode(struct lpi_inode *inode, struct lp_kv_bytes value)
{
	struct lp_inode rec;
	struct lp_ino ino = {inode->node.id};
	int err = lp_inode_decode(value.data, value.len, ino, &rec);
	if (err < 0)
		return err;
	inode->rec = rec;
	inode->rec.name = inode->rec.target = inode->rec.content = (struct lp_inode_bytes){0};
	inode->rec.xattrs = inode->rec.map = (struct lp_inode_bytes){0};
	err = lp_extmap_load_root(&inode->map, rec.map.at, rec.map.len);
	if (err == 0)
		err = copy_part(inode, LPI_PART_NAME, rec.name);
	if (err == 0)
		err = copy_part(inode, LPI_PART_TARGET, rec.target);
	if (err == 0)
		err = copy_part(inode, LPI_PART_CONTENT, rec.content);
	if (err == 0)
		err = copy_part(inode, LPI_PART_XATTRS, rec.xattrs);
	return err;
}

static int load_value(struct lpi_node *node, struct lp_kv_bytes value)
{
	struct lp_key key;
	if (node->kind == LPI_NODE_INODE)
		return load_inode(lpi_inode_of(node), value);
	lpi_node_key(node->kind, node->id, &key);
	if (node->kind == LPI_NODE_FRAGMENT)
		return lp_fragment_read(value.data, value.len, &key, &lpi_fragment_of(node)->value);
	return lp_refs_decode(value.data, value.len, &key, &lpi_refs_of(node)->refs);
}

static struct lpi_node *new_node(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id)
{
	void *memory = lp_slabs_get(nodes->slabs, node_bytes[kind]);
	if (memory == NULL)
		return NULL;
	memset(memory, 0, node_bytes[kind]);
	struct lpi_node *node = memory; /* the first member of each kind */
	node->home = nodes;
	node->id = id;
	node->kind = (uint8_t)kind;
	node->dirty.encode = encode;
	if (kind == LPI_NODE_INODE) {
		struct lpi_inode *inode = lpi_inode_of(node);
		inode->rec.ino = (struct lp_ino){id};
		lp_extmap_init(&inode->map, inode->rec.ino, &nodes->map_mem);
	} else if (kind == LPI_NODE_REFS) {
		lpi_refs_of(node)->refs.group = id;
	}
	return node;
}

static void free_part(struct lpi_inode *inode, enum lpi_inode_part which)
{
	struct part part = part_of(inode, which);
	lp_slabs_put(inode->node.home->slabs, memory_of(&part), *part.max);
}

static void free_node(struct lpi_node *node)
{
	if (node->kind == LPI_NODE_INODE) {
		struct lpi_inode *inode = lpi_inode_of(node);
		lp_extmap_fini(&inode->map);
		free_part(inode, LPI_PART_NAME);
		free_part(inode, LPI_PART_TARGET);
		free_part(inode, LPI_PART_CONTENT);
		free_part(inode, LPI_PART_XATTRS);
	} else if (node->kind == LPI_NODE_FRAGMENT && lpi_fragment_of(node)->names != NULL) {
		node->home->names_bytes -= lp_names_bytes(lpi_fragment_of(node)->names);
		lp_names_free(lpi_fragment_of(node)->names);
	}
	lp_slabs_put(node->home->slabs, node, node_bytes[node->kind]);
}

int lpi_node_load(struct lpi_nodes *nodes, enum lpi_node_kind kind, uint64_t id,
		  struct lp_kv_bytes value, struct lpi_node **ret_node)
{
	struct lpi_node **link = find_link(nodes, kind, id);
	LP_ASSERT(*link == NULL);
	struct lpi_node *node = new_node(nodes, kind, id);
	if (node == NULL)
		return -ENOMEM;
	node->exists = value.data != NULL;
	node->is_stored = node->exists;
	/* Not counted in a queue yet: its bytes are subtracted again if it fails. */
	int err = value.data != NULL ? load_value(node, value) : 0;
	lpi_node_account(node);
	if (err < 0) {
		nodes->bytes -= node->bytes;
		nodes->small_bytes -= node->bytes;
		free_node(node);
		return err;
	}
	*link = node;
	nodes->cnt++;
	lpi_node_queue_push_back(&nodes->small, node);
	*ret_node = node;
	return 0;
}

/* --- Names of a fragment ---------------------------------------------------------------------- */

static uint64_t names_bytes(const struct lpi_fragment *fragment)
{
	return fragment->names != NULL ? lp_names_bytes(fragment->names) : 0;
}

/* before: bytes of the names until now. */
static void account_names(struct lpi_fragment *fragment, uint64_t before)
{
	fragment->node.home->names_bytes += names_bytes(fragment) - before;
	lpi_node_account(&fragment->node);
}

void lpi_fragment_begin_names(struct lpi_fragment *fragment)
{
	LP_ASSERT(!fragment->node.exists);
	if (fragment->node.group != 0) /* it existed before, and was dropped */
		return;
	LP_ASSERT(fragment->names == NULL);
	fragment->names = lp_names_new(fragment->node.home->names_seed ^ fragment->node.id);
	account_names(fragment, 0);
}

static void forget_names(struct lpi_fragment *fragment)
{
	uint64_t before = names_bytes(fragment);
	lp_names_free(fragment->names);
	fragment->names = NULL;
	account_names(fragment, before);
}

void lpi_fragment_add_name(struct lpi_fragment *fragment, const void *name, size_t len)
{
	const struct lpi_nodes *nodes = fragment->node.home;
	uint64_t before = names_bytes(fragment);
	if (fragment->names == NULL)
		return;
	bool is_complete = lp_names_add(fragment->names, name, len);
	account_names(fragment, before);
	if (!is_complete || names_bytes(fragment) > NAMES_BYTES_MAX ||
	    nodes->names_bytes > nodes->limit_bytes / NAMES_SHARE)
		forget_names(fragment);
}

bool lpi_fragment_lacks(struct lpi_nodes *nodes, uint64_t dir_nr, const void *name, size_t len)
{
	struct lpi_node *node = lpi_node_peek(nodes, LPI_NODE_FRAGMENT, dir_nr);
	if (node == NULL || lpi_fragment_of(node)->names == NULL)
		return false;
	return !lp_names_may_have(lpi_fragment_of(node)->names, name, len);
}

/* --- Changes ---------------------------------------------------------------------------------- */

void lpi_node_changed(struct lpi_node *node)
{
	struct lp_commit *commit = node->home->commit;
	node->group = lp_commit_group(commit);
	lp_commit_dirty(commit, &node->dirty);
}

void lpi_node_noted(struct lpi_node *node)
{
	node->group = lp_commit_group(node->home->commit);
}

bool lpi_node_is_durable(const struct lpi_node *node)
{
	return node->group == 0 || lp_commit_group_is_durable(node->home->commit, node->group);
}

/* The index has all records that the group has put. */
static bool is_inserted(const struct lpi_node *node, uint64_t group)
{
	return group == 0 || lp_commit_group_is_inserted(node->home->commit, group);
}

/* The index has the node's record, leaves and entries, durably. */
static bool is_in_index(const struct lpi_node *node)
{
	return !lpi_node_is_dirty(node) && node->owed_cnt == 0 &&
	       is_inserted(node, LP_MAX(node->index_group, node->group)) &&
	       lpi_node_is_durable(node);
}

/* --- Eviction --------------------------------------------------------------------------------- */

static void evict(struct lpi_node *node)
{
	struct lpi_nodes *nodes = node->home;
	struct lpi_node **link = find_link(nodes, node->kind, node->id);
	LP_ASSERT(*link == node && node->pins == 0 && node->owed_cnt == 0);
	*link = node->next_in_bucket;
	lpi_node_queue_remove(node);
	nodes->bytes -= node->bytes;
	if (!node->in_main)
		nodes->small_bytes -= node->bytes;
	nodes->cnt--;
	nodes->evictions++;
	free_node(node);
}

static void requeue(struct lpi_node *node, bool in_main)
{
	struct lpi_nodes *nodes = node->home;
	if (in_main && !node->in_main)
		nodes->small_bytes -= node->bytes;
	LP_ASSERT(in_main || !node->in_main);
	lpi_node_queue_remove(node);
	node->in_main = in_main;
	lpi_node_queue_push_back(in_main ? &nodes->main : &nodes->small, node);
}

/* Frees leaves of a map that is in use: true when some memory came free. */
static bool trim_map(struct lpi_node *node)
{
	struct lpi_nodes *nodes = node->home;
	if (node->kind != LPI_NODE_INODE)
		return false;
	struct lpi_inode *inode = lpi_inode_of(node);
	if (lp_extmap_bytes(&inode->map) < MAP_LARGE)
		return false;
	size_t freed = lp_extmap_shrink(&inode->map, nodes->bytes - nodes->limit_bytes);
	lpi_node_account(node);
	return freed > 0;
}

/* Another operation that has the node pinned may be reading leaves. Leaves that it reads from the
 * index must not be older than those that were in memory meanwhile. */
void lpi_node_shrink_map(struct lpi_node *node)
{
	const struct lpi_nodes *nodes = node->home;
	bool is_alone = node->pins == 1 && is_inserted(node, node->index_group);
	if (is_alone && nodes->bytes > nodes->limit_bytes)
		(void)trim_map(node);
}

static void look_at(struct lpi_node *node)
{
	/* Leaves of a large file are evicted even if it is written all the time. */
	bool is_trimmed = node->pins == 0 && is_inserted(node, node->index_group) && trim_map(node);
	bool may_go = node->pins == 0 && is_in_index(node);
	/* A directory that is being filled is hardly ever in the index; its remembered names may
	 * go. */
	if (!may_go && node->kind == LPI_NODE_FRAGMENT)
		forget_names(lpi_fragment_of(node));
	if (may_go && node->used > 0) {
		node->used = node->in_main ? node->used - 1 : 0;
		requeue(node, true);
	} else if (!may_go || is_trimmed) {
		/* A node with owed records stays for long. Kept in the small queue, such nodes
		 * would be the only ones looked at there. */
		requeue(node, node->in_main || node->owed_cnt > 0);
	} else {
		evict(node);
	}
}

void lpi_nodes_shrink(struct lpi_nodes *nodes)
{
	for (uint32_t i = 0; i < SHRINK_LOOKS_MAX && nodes->bytes > nodes->limit_bytes; i++) {
		bool small = nodes->small_bytes > nodes->limit_bytes / 100 * SMALL_SHARE;
		struct lpi_node *node = lpi_node_queue_first(small ? &nodes->small : &nodes->main);
		if (node == NULL)
			node = lpi_node_queue_first(small ? &nodes->main : &nodes->small);
		if (node == NULL)
			return;
		look_at(node);
	}
}

/* --- Birth and death -------------------------------------------------------------------------- */

static void *map_alloc(void *arg, size_t bytes)
{
	return lp_slabs_get(arg, bytes);
}

static void map_free(void *arg, void *memory, size_t bytes)
{
	lp_slabs_put(arg, memory, bytes);
}

static uint32_t bucket_bits(uint64_t limit_bytes)
{
	uint32_t bits = BUCKETS_BITS_MIN;
	while (bits < BUCKETS_BITS_MAX && (UINT64_C(1) << bits) < limit_bytes / BUCKET_SHARE)
		bits++;
	return bits;
}

uint64_t lpi_nodes_table_bytes(uint64_t limit_bytes)
{
	return sizeof(struct lpi_node *) << bucket_bits(limit_bytes);
}

int lpi_nodes_init(struct lpi_nodes *nodes, struct lp_commit *commit, uint64_t limit_bytes)
{
	*nodes = (struct lpi_nodes){.commit = commit,
				    .map_mem = {.alloc = map_alloc, .free = map_free},
				    .limit_bytes = limit_bytes};
	lpi_node_queue_init(&nodes->small);
	lpi_node_queue_init(&nodes->main);
	nodes->bucket_bits = bucket_bits(limit_bytes);
	nodes->buckets = calloc(UINT64_C(1) << nodes->bucket_bits, sizeof(struct lpi_node *));
	nodes->scratch = malloc(SCRATCH_BYTES);
	int err = lp_slabs_new(limit_bytes, &nodes->slabs);
	nodes->map_mem.arg = nodes->slabs;
	if (err == 0 && nodes->buckets != NULL && nodes->scratch != NULL &&
	    lpi_owing_init(nodes) == 0)
		return 0;
	lp_slabs_free(nodes->slabs);
	free(nodes->buckets);
	free(nodes->scratch);
	nodes->buckets = NULL;
	return -ENOMEM;
}

static void drop_all(struct lpi_nodes *nodes, struct lpi_node_queue *queue)
{
	struct lpi_node *node;
	while ((node = lpi_node_queue_first(queue)) != NULL) {
		if (lpi_node_is_dirty(node))
			lp_list_node_remove(&node->dirty.node);
		node->owed_cnt = 0;
		evict(node);
	}
	LP_ASSERT(nodes->buckets != NULL);
}

void lpi_nodes_fini(struct lpi_nodes *nodes)
{
	if (nodes->buckets == NULL)
		return;
	drop_all(nodes, &nodes->small);
	drop_all(nodes, &nodes->main);
	LP_ASSERT(nodes->cnt == 0 && nodes->bytes == 0);
	lpi_owing_fini(nodes);
	lp_slabs_free(nodes->slabs);
	free(nodes->buckets);
	free(nodes->scratch);
	*nodes = (struct lpi_nodes){0};
}

void lpi_inode_attrs(const struct lpi_inode *inode, struct lp_attrs *ret_attrs)
{
	const struct lp_inode *rec = &inode->rec;
	*ret_attrs = (struct lp_attrs){
		.size_bytes = rec->size_bytes,
		.blocks = lp_extmap_blocks(&inode->map),
		.version_nr = rec->version_nr,
		.atime_ns = rec->atime_ns,
		.mtime_ns = rec->mtime_ns,
		.ctime_ns = rec->ctime_ns,
		.btime_ns = rec->btime_ns,
		.parent = rec->parent,
		.uid = rec->uid,
		.gid = rec->gid,
		.nlink = rec->nlink,
		.flags = rec->flags & ~(uint32_t)LP_INODE_FLAG_HAS_KEYS,
		.rdev = rec->rdev,
		.mode = rec->mode,
		.type = rec->type,
		.is_freeing = inode->trim != NULL,
	};
}
