/* SPDX-License-Identifier: Apache-2.0 */
/* Question: a read other than a read of data, as the files that answer it see it.
 *
 * Threads: the store's.
 * Blocking: none.
 * Errors: the question's result.
 *
 *   CLAIM -> RESOLVE <-> INDEX, INSERTED, SCAN
 *               |
 *               +-> DURABLE -> DONE        (or FAILED)
 *
 * In RESOLVE the question's go_on() is called. 0 or an error is the answer. -EAGAIN asks for the
 * warmer to be started. Any other value names the event to wait for. Then go_on() is called again:
 * it may have been set to the next part, otherwise it begins anew.
 *
 * The groups in which the answer was seen are noted on the way. The reply waits until they are
 * durable (store I6), and for no others. An entry of the overlay, and a node in memory, name their
 * group. A record in neither is durable. A list, which reads the index alone, uses the group of its
 * directory's fragment. Other lists have no such group, and wait for all that is in the index.
 */
#ifndef LP_STORE_BLOCK_READ_QUERY_H
#define LP_STORE_BLOCK_READ_QUERY_H

#include "store/block/core/read_claim.h"

enum lpi_query_state {
	LPI_QUERY_CLAIM,
	LPI_QUERY_RESOLVE,
	LPI_QUERY_INDEX,
	LPI_QUERY_INSERTED,
	LPI_QUERY_SCAN,
	LPI_QUERY_DURABLE,
	LPI_QUERY_DONE,
	LPI_QUERY_FAILED,
	LPI_QUERY_STATES,
};

/* Events that go_on() waits for, if it has no answer. */
enum lpi_query_wait {
	LPI_WAIT_CLAIM = 1, /* of query->ino, which must be set; a held claim is released */
	LPI_WAIT_INSERTED,  /* all earlier changes are in the index */
	LPI_WAIT_SCAN,      /* query->scan, whose fields are set */
	LPI_WAIT_TURN,      /* another turn: this one was long */
};

struct lpi_query {
	struct lp_sm sm;
	struct lp_store_op *op;
	int (*go_on)(struct lpi_query *query);
	struct lp_ino ino; /* nr 0: nothing is claimed */
	bool keeps_claim;  /* while a helper fetches, too: parts found so far must stay true */
	bool is_waiting;   /* the waiter is in use */
	int result;
	/* Groups that were seen. */
	bool saw_all;   /* all changes until now */
	uint64_t group; /* the newest; 0: none that matters */
	struct lp_commit_waiter waiter;
	struct lpi_hold hold;
	/* Lists and seeks. */
	struct lp_kv_iter *iter;
	struct lpi_inode *pinned;       /* while a list goes through its xattrs; of a seek */
	size_t xattr_offset;            /* in the inode's own list */
	size_t base_len;                /* bytes of keys before the name */
	uint64_t seek_block;            /* no result was found up to here */
	struct lp_extmap_leaves leaves; /* leaves that the scan must find */
	void *scan_buf;
	size_t scan_max; /* bytes of the scan */
	struct lp_kv_scan_op scan;
	struct lp_key_range range;
};

static inline struct lpi_block *lpi_query_block(const struct lpi_query *query)
{
	return query->hold.block;
}

/* Notes groups that were seen. */
static inline void lpi_query_saw_group(struct lpi_query *query, uint64_t group)
{
	query->group = LP_MAX(query->group, group);
}
/* All of the index, in any state until now. */
void lpi_query_saw_index(struct lpi_query *query);
/* The index's entries of a directory, likewise. */
void lpi_query_saw_entries(struct lpi_query *query, struct lp_ino dir);
/* All changes of the directory's entries are in the index. Not for a read-only store, where nothing
 * changes. */
bool lpi_query_has_entries(struct lpi_query *query, struct lp_ino dir);
/* The inode query->ino, which must be claimed. Its group is noted also when there is no inode:
 * -ENOENT. -EAGAIN, errors. */
int lpi_query_inode(struct lpi_query *query, struct lpi_inode **ret_inode) LP_MUST_CHECK;
/* Starts a scan for the records of query->range, at most `max` (0: no limit), in a buffer of at
 * least that many bytes: LPI_WAIT_SCAN, or -ENOMEM. */
int lpi_query_scan(struct lpi_query *query, uint32_t records_max, size_t bytes) LP_MUST_CHECK;

/* First go_on() of each kind of question. */
int lpi_query_stat(struct lpi_query *query) LP_MUST_CHECK;
int lpi_query_lookup(struct lpi_query *query) LP_MUST_CHECK;
/* For small things of an inode. */
int lpi_query_get(struct lpi_query *query) LP_MUST_CHECK;
int lpi_query_get_record(struct lpi_query *query) LP_MUST_CHECK;
int lpi_query_dir(struct lpi_query *query) LP_MUST_CHECK;
int lpi_query_sync(struct lpi_query *query) LP_MUST_CHECK;
int lpi_query_list(struct lpi_query *query) LP_MUST_CHECK;
int lpi_query_seek(struct lpi_query *query) LP_MUST_CHECK;

/* Begins a question: as lpi_read_submit(). */
void lpi_query_submit(struct lpi_block *block, struct lp_store_op *op);
size_t lpi_query_bytes(void); /* of a slot */
extern const struct lp_sm_table lpi_query_table;

#endif
