/* SPDX-License-Identifier: Apache-2.0 */
/* What nodes owe the index (payments.h). Nodes that owe something are in one list, the leaves that
 * are owed in one of their map; a record that changes again leaves it, and comes back when it has
 * been put into its next frame. To pay, all that is owed is listed and sorted by key: RocksDB finds
 * the place of a record beside the one before without searching, and no table gets a record twice.
 * What leaves the lists meanwhile is passed over: it has been deleted, or is in a newer frame, or
 * will be in that of the group that collects. */
#include "store/node.h"

#include <stdlib.h>

#define RECORDS_MAX     16384u /* sorted in some 2 ms */
#define RECORDS_MIN     256u
#define RECORD_SHARE    2048u /* of the budget, one for so many bytes: a quarter of it, at most */
#define RECORDS_PER_PAY 256u  /* some 200 us: all of it before the log is three quarters full */

struct lpi_owed_record {
	uint64_t id;
	uint32_t leaf;
	uint8_t space; /* of its key */
	uint8_t kind;
};

static const uint8_t space_of[LPI_NODE_KINDS] = {
	[LPI_NODE_INODE] = LP_KEY_SPACE_INODE,
	[LPI_NODE_FRAGMENT] = LP_KEY_SPACE_FRAGMENT,
	[LPI_NODE_REFS] = LP_KEY_SPACE_REFS,
};

static uint32_t records_max(uint64_t limit_bytes)
{
	return (uint32_t)LP_MIN(LP_MAX(limit_bytes / RECORD_SHARE, (uint64_t)RECORDS_MIN),
				(uint64_t)RECORDS_MAX);
}

uint64_t lpi_owing_bytes(uint64_t limit_bytes)
{
	return records_max(limit_bytes) * sizeof(struct lpi_owed_record);
}

static struct lpi_nodes *of_owed(struct lp_owed *owed)
{
	return LP_CONTAINER_OF(owed, struct lpi_nodes, owing.owed);
}

void lpi_owing_account(struct lpi_node *node)
{
	struct lpi_owing *owing = &node->home->owing;
	uint32_t cnt = node->is_owed;
	if (node->kind == LPI_NODE_INODE)
		cnt += lp_extmap_owed_cnt(&lpi_inode_of(node)->map);
	owing->owed.cnt += cnt;
	owing->owed.cnt -= node->owed_cnt;
	node->owed_cnt = cnt;
	if (cnt > 0 && !lpi_owed_list_is_linked(node))
		lpi_owed_list_push_back(&owing->nodes, node);
	else if (cnt == 0 && lpi_owed_list_is_linked(node))
		lpi_owed_list_remove(node);
}

bool lpi_owing_is_open(struct lpi_nodes *nodes)
{
	bool has_room = nodes->owing.owed.cnt < nodes->owing.max;
	if (!has_room)
		lp_commit_pay(nodes->commit);
	return has_room && lp_commit_may_owe(nodes->commit);
}

/* --- Paying ----------------------------------------------------------------------------------- */

static int by_key(const void *a, const void *b)
{
	const struct lpi_owed_record *x = a;
	const struct lpi_owed_record *y = b;
	if (x->space != y->space)
		return x->space < y->space ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return (x->leaf > y->leaf) - (x->leaf < y->leaf);
}

static void add(struct lpi_owing *owing, const struct lpi_node *node, uint8_t space, uint32_t leaf)
{
	LP_ASSERT(owing->cnt < owing->max);
	owing->records[owing->cnt++] = (struct lpi_owed_record){
		.id = node->id, .leaf = leaf, .space = space, .kind = node->kind};
}

static void add_node(struct lpi_owing *owing, struct lpi_node *node)
{
	const struct lpi_leaf *leaf = NULL;
	if (node->is_owed)
		add(owing, node, space_of[node->kind], 0);
	if (node->kind != LPI_NODE_INODE)
		return;
	const struct lp_extmap *map = &lpi_inode_of(node)->map;
	while ((leaf = lp_extmap_next_owed(map, leaf)) != NULL)
		add(owing, node, LP_KEY_SPACE_MAP, leaf->idx);
}

static void begin(struct lp_owed *owed)
{
	struct lpi_owing *owing = &of_owed(owed)->owing;
	struct lpi_node *node;
	owing->cnt = 0;
	owing->at = 0;
	LP_LIST_FOREACH (lpi_owed_list, &owing->nodes, node)
		add_node(owing, node);
	qsort(owing->records, owing->cnt, sizeof(*owing->records), by_key);
}

static void pay_leaf(struct lpi_inode *inode, uint32_t idx, struct lp_payments *payments)
{
	uint8_t *scratch = inode->node.home->scratch;
	struct lp_extmap_piece piece;
	struct lp_key key;
	if (!lp_extmap_pay(&inode->map, idx, scratch, &piece))
		return;
	lp_key_of_map(&key, inode->rec.ino, piece.block);
	lp_payments_put(payments, (struct lp_kv_bytes){key.bytes, key.len},
			(struct lp_kv_bytes){scratch, piece.len});
}

static void pay_node(struct lpi_node *node, struct lp_payments *payments)
{
	struct lp_key key;
	/* What it is now is in no frame yet. */
	if (!node->is_owed || lpi_node_is_dirty(node))
		return;
	node->is_owed = false;
	size_t len = lpi_node_encode(node);
	lpi_node_key(node->kind, node->id, &key);
	lp_payments_put(payments, (struct lp_kv_bytes){key.bytes, key.len},
			(struct lp_kv_bytes){node->home->scratch, len});
}

static bool pay(struct lp_owed *owed, struct lp_payments *payments)
{
	struct lpi_nodes *nodes = of_owed(owed);
	struct lpi_owing *owing = &nodes->owing;
	uint32_t end = LP_MIN(owing->at + RECORDS_PER_PAY, owing->cnt);
	for (; owing->at < end; owing->at++) {
		const struct lpi_owed_record *record = &owing->records[owing->at];
		struct lpi_node *node =
			lpi_node_peek(nodes, (enum lpi_node_kind)record->kind, record->id);
		if (node == NULL)
			continue;
		if (record->space == LP_KEY_SPACE_MAP)
			pay_leaf(lpi_inode_of(node), record->leaf, payments);
		else
			pay_node(node, payments);
		node->index_group = lp_commit_group(nodes->commit);
		lpi_owing_account(node);
	}
	return owing->at == owing->cnt;
}

/* --- Birth and death -------------------------------------------------------------------------- */

int lpi_owing_init(struct lpi_nodes *nodes)
{
	struct lpi_owing *owing = &nodes->owing;
	*owing = (struct lpi_owing){.owed = {.begin = begin, .pay = pay}};
	lpi_owed_list_init(&owing->nodes);
	if (nodes->commit == NULL)
		return 0;
	owing->max = records_max(nodes->limit_bytes);
	owing->records = calloc(owing->max, sizeof(*owing->records));
	if (owing->records == NULL)
		return -ENOMEM;
	lp_commit_set_owed(nodes->commit, &owing->owed);
	return 0;
}

void lpi_owing_fini(struct lpi_nodes *nodes)
{
	free(nodes->owing.records);
	nodes->owing = (struct lpi_owing){.max = 0};
}
