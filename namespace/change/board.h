/* SPDX-License-Identifier: Apache-2.0 */
/* What some directories of this shard look like, for any thread to read: the kernel asks for the
 * attributes of a directory behind each name that comes or goes in it, and of one that is spread
 * all shards know a part.
 *
 * A place says how its directory was when nothing was under way that changes it. It says nothing
 * from before a transaction that may change it is submitted until it has ended and the directory
 * was looked at again; nor while anything is being decided here over several shards. So who reads
 * it sees what he would have been told by a message, at some moment since he began. What he sees
 * need not be durable.
 *
 * A directory gets a place when it is asked for a second time, and is looked at again behind a
 * change only if somebody has read it, or asked for it, since the last one.
 *
 * Threads: the shard's, but for lpi_board_read(). Blocking, errors: none. Allocation: new. Limits:
 * LPI_BOARD_PLACES, by hash: of two directories with one place the last one has it.
 */
#ifndef LP_NAMESPACE_CHANGE_BOARD_H
#define LP_NAMESPACE_CHANGE_BOARD_H

#include "store/store.h"

#define LPI_BOARD_PLACES 256u /* a power of two */

struct lp_ns;
struct lpi_board;

/* Of a shard's fragment, as LP_STORE_DIR tells it. */
struct lpi_fragment_view {
	uint64_t entries_cnt;
	uint64_t name_bytes;
	int64_t mtime_ns;
	int64_t ctime_ns;
};

struct lpi_board_view {
	uint64_t ino_nr;
	struct lpi_fragment_view fragment;
	struct lp_attrs attrs; /* type 0: the inode is another shard's */
};

static inline struct lpi_fragment_view lpi_fragment_view(const struct lp_store_op *op)
{
	return (struct lpi_fragment_view){.entries_cnt = op->dir.entries_cnt,
					  .name_bytes = op->dir.name_bytes,
					  .mtime_ns = op->dir.mtime_ns,
					  .ctime_ns = op->dir.ctime_ns};
}

int lpi_board_new(struct lp_ns *ns, struct lpi_board **ret_board) LP_MUST_CHECK;
/* Accepts NULL. */
void lpi_board_free(struct lpi_board *board);

/* Of an operation of the store: it is about to be submitted, and it has ended. */
void lpi_board_begins(struct lpi_board *board, const struct lp_store_op *op);
void lpi_board_ended(struct lpi_board *board, const struct lp_store_op *op);
/* Something is being decided, or the store has failed: no place says anything. */
void lpi_board_doubt(struct lpi_board *board);
/* A mount has asked for that directory. */
void lpi_board_want(struct lpi_board *board, struct lp_ino dir);
/* Any thread. False: it is not known without asking. */
bool lpi_board_read(struct lpi_board *board, struct lp_ino dir,
		    struct lpi_board_view *ret_view) LP_MUST_CHECK;

#endif
