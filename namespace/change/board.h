/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes of some directories of this shard, for any thread to read. The kernel asks for the
 * attributes of a directory after each name that comes or goes in it. Each shard knows only a part
 * of a spread directory.
 *
 * A place has the attributes of its directory at a time when no change of it was under way. It is
 * invalid from before a transaction that may change the directory is submitted until the
 * transaction has ended and the directory was read again. It is also invalid while this shard takes
 * part in deciding a change over several shards. So a reader sees the same as a message to the
 * shard would have returned at some moment since the reader began. The attributes need not be
 * durable.
 *
 * A directory gets a place when a mount asks for it a second time. After a change it is read again
 * only if a reader has read its place, or asked for it, since the last change.
 *
 * Threads: the shard's, except lpi_board_read(). Blocking, errors: none. Allocation: new. Limits:
 * LPI_BOARD_PLACES, by hash. If two directories hash to one place, the later one takes it.
 */
#ifndef LP_NAMESPACE_CHANGE_BOARD_H
#define LP_NAMESPACE_CHANGE_BOARD_H

#include "store/store.h"

#define LPI_BOARD_PLACES 256u /* a power of two */

struct lp_ns;
struct lpi_board;

/* The state of a shard's fragment, as LP_STORE_DIR returns it. */
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

/* A store operation is about to be submitted, and has ended. */
void lpi_board_begins(struct lpi_board *board, const struct lp_store_op *op);
void lpi_board_ended(struct lpi_board *board, const struct lp_store_op *op);
/* A change over several shards is being decided, or the store has failed: all places are
 * invalid. */
void lpi_board_doubt(struct lpi_board *board);
/* A mount has asked for that directory. */
void lpi_board_want(struct lpi_board *board, struct lp_ino dir);
/* Any thread. False: the caller must ask the shards. */
bool lpi_board_read(struct lpi_board *board, struct lp_ino dir,
		    struct lpi_board_view *ret_view) LP_MUST_CHECK;

#endif
