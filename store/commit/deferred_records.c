/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a record:
 *
 *   put -> LIVE --done--> DONE --a deletion is put--> DELETING --its group is durable--> gone
 *            \                                          ^
 *             +---------- replaced: in the frame of the newer payload
 *
 * A record that an opening finds begins as DONE, because it is written to its block before anything
 * else. A record whose block cannot be written, or not yet, is LIVE again. Records that stay are
 * LIVE until they are replaced.
 *
 * The newest record of a block, if it is not DELETING, stands in a hash table by block. All records
 * stand in another by number, for payloads that are done after they were replaced.
 */
#include "store/commit/deferred_records.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory/pool.h"
#include "store/record/keys.h"

enum record_state { LIVE, DONE, DELETING };

struct record {
	struct lp_space_pin hold;
	struct record *next_by_block;
	struct record *next_by_number;
	struct lp_list_node node; /* the list of DONE or DELETING records */
	uint64_t number;
	uint64_t group; /* DELETING: the group with the deletion */
	enum record_state state;
	bool stays;
};

LP_LIST_DEFINE(record_list, struct record, node);

struct lp_deferrals {
	struct lp_space *space;
	struct lp_commit *commit; /* NULL while opening, and when the pipeline is gone */
	struct lp_pool *records;
	struct record **by_block;
	struct record **by_number;
	uint64_t mask;
	uint64_t limit;
	uint64_t number_next;
	struct record_list done;
	struct record_list deleting; /* in the order of their groups */
	struct lp_commit_waiter waiter;
	bool is_waiting;
	struct lp_deferrals_stats stats;
	uint8_t value[LP_DEFERRED_RECORD_BYTES]; /* the record being put */
};

const char *lp_deferred_store_name(enum lp_deferred_store kind)
{
	return kind == LP_DEFERRED_KV ? "kv" : "log";
}

/* --- Records ---------------------------------------------------------------------------------- */

static uint64_t slot_of(const struct lp_deferrals *deferrals, uint64_t key)
{
	uint64_t hash = key * UINT64_C(0x9e3779b97f4a7c15);
	return (hash >> 32 ^ hash) & deferrals->mask;
}

static struct record **link_by_block(const struct lp_deferrals *deferrals, uint64_t block)
{
	struct record **link = &deferrals->by_block[slot_of(deferrals, block)];
	while (*link != NULL && (*link)->hold.extent.block != block)
		link = &(*link)->next_by_block;
	return link;
}

static struct record **link_by_number(const struct lp_deferrals *deferrals, uint64_t number)
{
	struct record **link = &deferrals->by_number[slot_of(deferrals, number)];
	while (*link != NULL && (*link)->number != number)
		link = &(*link)->next_by_number;
	return link;
}

static struct record *add_record(struct lp_deferrals *deferrals, uint64_t number, uint64_t block)
{
	struct record *record = lp_pool_get(deferrals->records);
	LP_ASSERT(record != NULL); /* there was room */
	*record = (struct record){.number = number};
	struct record **link = link_by_block(deferrals, block);
	LP_ASSERT(*link == NULL);
	*link = record;
	link = link_by_number(deferrals, number);
	LP_ASSERT(*link == NULL);
	*link = record;
	lp_space_hold(deferrals->space, &record->hold, (struct lp_extent){block, 1});
	deferrals->stats.records++;
	deferrals->number_next = LP_MAX(deferrals->number_next, number + 1);
	return record;
}

static void unlink_block(struct lp_deferrals *deferrals, struct record *record)
{
	struct record **link = link_by_block(deferrals, record->hold.extent.block);
	LP_ASSERT(*link == record);
	*link = record->next_by_block;
}

/* A record that no crash brings back. */
static void drop_record(struct lp_deferrals *deferrals, struct record *record)
{
	struct record **link = link_by_number(deferrals, record->number);
	LP_ASSERT(*link == record);
	*link = record->next_by_number;
	lp_space_unpin(deferrals->space, &record->hold);
	lp_pool_put(deferrals->records, record);
	deferrals->stats.records--;
}

static void make_key(struct lp_key *ret, uint64_t number)
{
	lp_key_of_number(ret, LP_KEY_SPACE_DEFERRED, number);
}

/* --- Deleting --------------------------------------------------------------------------------- */

/* Room was reserved. */
static void put_deletion(struct lp_deferrals *deferrals, struct record *record)
{
	struct lp_key key;
	if (record->state == DONE)
		record_list_remove(record);
	unlink_block(deferrals, record);
	make_key(&key, record->number);
	lp_commit_delete_owned(deferrals->commit, (struct lp_kv_bytes){key.bytes, key.len});
	record->state = DELETING;
	record->group = lp_commit_group(deferrals->commit);
	record_list_push_back(&deferrals->deleting, record);
}

void lp_deferrals_delete_some(struct lp_deferrals *deferrals)
{
	/* A deletion makes room: it releases held blocks, and allows newer records. */
	const struct lp_commit_need need = {.batch_bytes = LP_DEFERRALS_DELETE_NEED,
					    .is_relief = true};
	struct record *record;
	if (deferrals->commit == NULL || lp_commit_error(deferrals->commit) != 0)
		return;
	while ((record = record_list_first(&deferrals->done)) != NULL) {
		if (!lp_commit_reserve(deferrals->commit, &need))
			break;
		put_deletion(deferrals, record);
	}
	if (record == NULL || deferrals->is_waiting)
		return;
	deferrals->is_waiting = true;
	lp_commit_wait_room(deferrals->commit, &deferrals->waiter);
}

static void told(struct lp_commit_waiter *waiter, int result)
{
	struct lp_deferrals *deferrals = LP_CONTAINER_OF(waiter, struct lp_deferrals, waiter);
	deferrals->is_waiting = false;
	if (result == 0)
		lp_deferrals_delete_some(deferrals);
}

void lp_deferrals_durable(struct lp_deferrals *deferrals)
{
	struct record *record;
	while ((record = record_list_first(&deferrals->deleting)) != NULL &&
	       lp_commit_group_is_durable(deferrals->commit, record->group)) {
		record_list_remove(record);
		drop_record(deferrals, record);
	}
	lp_deferrals_delete_some(deferrals);
}

bool lp_deferrals_is_settled(const struct lp_deferrals *deferrals)
{
	return record_list_is_empty(&deferrals->done) && record_list_is_empty(&deferrals->deleting);
}

/* --- Putting ---------------------------------------------------------------------------------- */

void lp_deferrals_replace(struct lp_deferrals *deferrals, uint64_t block)
{
	struct record *record = *link_by_block(deferrals, block);
	if (record != NULL)
		put_deletion(deferrals, record);
}

uint64_t lp_deferrals_put(struct lp_deferrals *deferrals, const struct lp_log_payload *about,
			  struct lp_seg seg)
{
	const struct lp_deferred_value value = {.ino = about->ino,
						.file_block = about->file_block,
						.device_block = about->device_block,
						.block_crc = about->crc};
	struct lp_key key;
	LP_ASSERT(seg.len == LP_BLOCK_BYTES);
	lp_deferrals_replace(deferrals, about->device_block);
	uint64_t number = deferrals->number_next;
	make_key(&key, number);
	lp_deferred_write(&value, &key, deferrals->value);
	memcpy(deferrals->value + LP_DEFERRED_VALUE_SIZE, seg.buf->data + seg.offset,
	       LP_BLOCK_BYTES);
	/* No reader looks for it in the overlay: readers ask pending. */
	lp_commit_put_owned(deferrals->commit, (struct lp_kv_bytes){key.bytes, key.len},
			    (struct lp_kv_bytes){deferrals->value, sizeof(deferrals->value)});
	add_record(deferrals, number, about->device_block)->stays = about->ino == 0;
	deferrals->stats.put++;
	return number;
}

void lp_deferrals_done(struct lp_deferrals *deferrals, uint64_t number)
{
	struct record *record = *link_by_number(deferrals, number);
	/* A record that was replaced is being deleted, or gone. */
	if (record == NULL || record->state == DELETING || record->stays)
		return;
	LP_ASSERT(record->state == LIVE);
	record->state = DONE;
	record_list_push_back(&deferrals->done, record);
}

uint64_t lp_deferrals_room(const struct lp_deferrals *deferrals)
{
	return deferrals->limit - deferrals->stats.records;
}

/* --- Opening ---------------------------------------------------------------------------------- */

int lp_deferrals_found(struct lp_deferrals *deferrals, uint64_t number, uint64_t block)
{
	LP_ASSERT(deferrals->commit == NULL);
	const struct record *other = *link_by_block(deferrals, block);
	if (other != NULL)
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "deferred payloads %llu and %llu are both for block %llu",
				  (unsigned long long)other->number, (unsigned long long)number,
				  (unsigned long long)block);
	if (lp_deferrals_room(deferrals) == 0)
		return -EFBIG;
	struct record *record = add_record(deferrals, number, block);
	record->state = DONE;
	record_list_push_back(&deferrals->done, record);
	deferrals->stats.found++;
	return 0;
}

void lp_deferrals_keep(struct lp_deferrals *deferrals, uint64_t number, bool stays)
{
	struct record *record = *link_by_number(deferrals, number);
	LP_ASSERT(record != NULL && record->state == DONE);
	record_list_remove(record);
	record->state = LIVE;
	record->stays = stays;
}

void lp_deferrals_start(struct lp_deferrals *deferrals, struct lp_commit *commit)
{
	LP_ASSERT(deferrals->commit == NULL && commit != NULL);
	deferrals->commit = commit;
	lp_deferrals_delete_some(deferrals);
}

/* --- Birth and death -------------------------------------------------------------------------- */

int lp_deferrals_new(struct lp_space *space, uint64_t limit, struct lp_deferrals **ret_deferrals)
{
	LP_ASSERT(limit > 0 && limit <= LP_POOL_OBJECTS_MAX);
	struct lp_deferrals *deferrals = calloc(1, sizeof(*deferrals));
	if (deferrals == NULL)
		return -ENOMEM;
	uint64_t buckets = 64;
	while (buckets < limit)
		buckets *= 2;
	deferrals->space = space;
	deferrals->limit = limit;
	deferrals->mask = buckets - 1;
	deferrals->number_next = 1;
	deferrals->waiter.told = told;
	record_list_init(&deferrals->done);
	record_list_init(&deferrals->deleting);
	deferrals->by_block = calloc(buckets, sizeof(struct record *));
	deferrals->by_number = calloc(buckets, sizeof(struct record *));
	const struct lp_pool_config records = {.name = "deferred records",
					       .object_bytes = sizeof(struct record),
					       .limit = (uint32_t)limit};
	if (deferrals->by_block == NULL || deferrals->by_number == NULL ||
	    lp_pool_new(&records, &deferrals->records) < 0) {
		free(deferrals->by_block);
		free(deferrals->by_number);
		free(deferrals);
		return -ENOMEM;
	}
	*ret_deferrals = deferrals;
	return 0;
}

void lp_deferrals_free(struct lp_deferrals *deferrals)
{
	if (deferrals == NULL)
		return;
	for (uint64_t i = 0; i <= deferrals->mask; i++) {
		while (deferrals->by_number[i] != NULL) {
			struct record *record = deferrals->by_number[i];
			if (record->state != LIVE)
				record_list_remove(record);
			drop_record(deferrals, record);
		}
	}
	lp_pool_free(deferrals->records);
	free(deferrals->by_block);
	free(deferrals->by_number);
	free(deferrals);
}

void lp_deferrals_rest(struct lp_deferrals *deferrals)
{
	(void)lp_pool_trim(deferrals->records);
}

const struct lp_deferrals_stats *lp_deferrals_stats(const struct lp_deferrals *deferrals)
{
	return &deferrals->stats;
}
