/* SPDX-License-Identifier: Apache-2.0 */
/* Owed records of nodes (commit/owed_records.h). Each owed record is noted when it is put
 * into its frame. A payment goes through the notes in key order, because RocksDB then finds the
 * place of a record beside the one before without a search. A note is skipped if the record has
 * been paid, deleted or changed since. A changed record is noted again with its next frame.
 *
 * No step has much work, however many records are deferred. Notes are sorted in runs, each when it
 * is full, and a payment merges the runs as it goes. Records noted meanwhile are for the next
 * payment.
 */
#include "store/nodes/node.h"

#include <stdlib.h>

#define RECORDS_MAX     16384u /* so that a run, 1024, is sorted in some 100 us */
#define RECORDS_MIN     256u
#define RECORD_SHARE    4096u /* bytes of budget for two records: at most a quarter of it */
#define BYTES_SHARE     8u    /* of the budget, twice: at most a quarter of it as well */
#define BYTES_MIN       (UINT64_C(64) << 10)
#define NODE_BYTES      192u
#define RECORDS_PER_PAY 256u /* some 200 us; all is paid before the log is three quarters full */

struct lpi_owed_record {
	uint64_t id;
	uint32_t leaf;
	uint8_t space; /* of its key */
	uint8_t kind;
};

static uint32_t records_max(uint64_t limit_bytes)
{
	return (uint32_t)LP_MIN(LP_MAX(limit_bytes / RECORD_SHARE, (uint64_t)RECORDS_MIN),
				(uint64_t)RECORDS_MAX);
}

/* Inodes may be long. The limit follows the budget, which changes. */
static uint64_t bytes_max(uint64_t limit_bytes)
{
	return LP_MAX(limit_bytes / BYTES_SHARE, BYTES_MIN);
}

uint64_t lpi_owing_bytes(uint64_t limit_bytes)
{
	return UINT64_C(2) * records_max(limit_bytes) * sizeof(struct lpi_owed_record);
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
}

bool lpi_owing_is_open(struct lpi_nodes *nodes)
{
	const struct lpi_owing *owing = &nodes->owing;
	bool has_room = owing->cnt < owing->max && owing->bytes < bytes_max(nodes->limit_bytes);
	if (!has_room)
		lp_commit_pay(nodes->commit);
	return has_room && lp_commit_may_owe(nodes->commit);
}

/* --- Noting ----------------------------------------------------------------------------------- */

static int by_key(const struct lpi_owed_record *x, const struct lpi_owed_record *y)
{
	if (x->space != y->space)
		return x->space < y->space ? -1 : 1;
	if (x->id != y->id)
		return x->id < y->id ? -1 : 1;
	return (x->leaf > y->leaf) - (x->leaf < y->leaf);
}

/* Shell sort, in place. qsort() would allocate, and first asks the system how much memory there is.
 */
static void sort(struct lpi_owed_record *records, uint32_t cnt)
{
	static const uint32_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
	for (size_t k = 0; k < LP_ARRAY_SIZE(gaps); k++) {
		for (uint32_t i = gaps[k]; i < cnt; i++) {
			struct lpi_owed_record record = records[i];
			uint32_t at = i;
			for (; at >= gaps[k] && by_key(&records[at - gaps[k]], &record) > 0;
			     at -= gaps[k])
				records[at] = records[at - gaps[k]];
			records[at] = record;
		}
	}
}

/* The last run, which has at least one record. */
static void sort_run(struct lpi_owing *owing)
{
	uint32_t first = (owing->cnt - 1) / owing->run_max * owing->run_max;
	sort(owing->records + first, owing->cnt - first);
}

/* Memory held by a owed record is about its own length, plus the rest of its node. */
void lpi_owing_add(struct lpi_node *node, uint8_t space, uint32_t leaf, size_t len)
{
	struct lpi_owing *owing = &node->home->owing;
	LP_ASSERT(owing->cnt < owing->max);
	owing->bytes += len + NODE_BYTES;
	owing->records[owing->cnt++] = (struct lpi_owed_record){
		.id = node->id, .leaf = leaf, .space = space, .kind = node->kind};
	if (owing->cnt % owing->run_max == 0)
		sort_run(owing);
}

/* --- Paying ----------------------------------------------------------------------------------- */

static void begin(struct lp_owed *owed)
{
	struct lpi_owing *owing = &of_owed(owed)->owing;
	struct lpi_owed_record *records = owing->records;
	LP_ASSERT(owing->run_cnt == 0);
	if (owing->cnt % owing->run_max != 0)
		sort_run(owing);
	for (uint32_t at = 0; at < owing->cnt; at += owing->run_max)
		owing->runs[owing->run_cnt++] = (struct lpi_owed_run){
			.next = records + at,
			.end = records + LP_MIN(at + owing->run_max, owing->cnt)};
	owing->records = owing->paying;
	owing->paying = records;
	owing->cnt = 0;
	owing->bytes = 0;
}

/* The record with the least key of all that are left. */
static struct lpi_owed_record next_record(struct lpi_owing *owing)
{
	struct lpi_owed_run *least = &owing->runs[0];
	LP_ASSERT(owing->run_cnt > 0);
	for (uint32_t i = 1; i < owing->run_cnt; i++) {
		if (by_key(owing->runs[i].next, least->next) < 0)
			least = &owing->runs[i];
	}
	struct lpi_owed_record record = *least->next++;
	if (least->next == least->end)
		*least = owing->runs[--owing->run_cnt];
	return record;
}

static void pay_leaf(struct lpi_inode *inode, uint32_t leaf, struct lp_payments *payments)
{
	uint8_t *scratch = inode->node.home->scratch;
	struct lp_extmap_piece piece;
	struct lp_key key;
	if (!lp_extmap_pay(&inode->map, (uint64_t)leaf * LP_EXTMAP_LEAF_BLOCKS, scratch, &piece))
		return;
	lp_key_of_map(&key, inode->rec.ino, piece.block);
	lp_payments_put(payments, (struct lp_kv_bytes){key.bytes, key.len},
			(struct lp_kv_bytes){scratch, piece.len});
}

static void pay_node(struct lpi_node *node, struct lp_payments *payments)
{
	struct lp_key key;
	/* Its present state is in no frame yet. */
	if (!node->is_owed || lpi_node_is_dirty(node))
		return;
	node->is_owed = false;
	size_t len = lpi_node_encode(node);
	lpi_node_key(node->kind, node->id, &key);
	lp_payments_put(payments, (struct lp_kv_bytes){key.bytes, key.len},
			(struct lp_kv_bytes){node->home->scratch, len});
}

static void pay_record(struct lpi_nodes *nodes, const struct lpi_owed_record *record,
		       struct lp_payments *payments)
{
	struct lpi_node *node = lpi_node_peek(nodes, (enum lpi_node_kind)record->kind, record->id);
	if (node == NULL)
		return;
	if (record->space == LP_KEY_SPACE_MAP)
		pay_leaf(lpi_inode_of(node), record->leaf, payments);
	else
		pay_node(node, payments);
	node->index_group = lp_commit_group(nodes->commit);
	lpi_owing_account(node);
}

static bool pay(struct lp_owed *owed, struct lp_payments *payments)
{
	struct lpi_nodes *nodes = of_owed(owed);
	struct lpi_owed_record last = {.id = 0};
	for (uint32_t i = 0; i < RECORDS_PER_PAY && nodes->owing.run_cnt > 0; i++) {
		struct lpi_owed_record record = next_record(&nodes->owing);
		LP_ASSERT(by_key(&last, &record) <= 0);
		last = record;
		pay_record(nodes, &record, payments);
	}
	return nodes->owing.run_cnt == 0;
}

/* --- Birth and death -------------------------------------------------------------------------- */

int lpi_owing_init(struct lpi_nodes *nodes)
{
	struct lpi_owing *owing = &nodes->owing;
	*owing = (struct lpi_owing){.owed = {.begin = begin, .pay = pay}};
	if (nodes->commit == NULL)
		return 0;
	owing->max = records_max(nodes->limit_bytes);
	owing->run_max = (owing->max + LPI_OWED_RUNS - 1) / LPI_OWED_RUNS;
	owing->records = calloc(owing->max, sizeof(*owing->records));
	owing->paying = calloc(owing->max, sizeof(*owing->paying));
	if (owing->records == NULL || owing->paying == NULL) {
		lpi_owing_fini(nodes);
		return -ENOMEM;
	}
	lp_commit_set_owed(nodes->commit, &owing->owed);
	return 0;
}

void lpi_owing_fini(struct lpi_nodes *nodes)
{
	free(nodes->owing.records);
	free(nodes->owing.paying);
	nodes->owing = (struct lpi_owing){.max = 0};
}
