/* SPDX-License-Identifier: Apache-2.0 */
/* Internals of every kind of store: table of calls, checks of a request, form of a list.
 *
 * Threads: the store's.
 * Blocking: none.
 * Memory: none is allocated.
 */
#ifndef LP_STORE_STORE_KINDS_H
#define LP_STORE_STORE_KINDS_H

#include "base/endian.h"
#include "store/index/kv.h"
#include "store/record/keys.h"
#include "store/store.h"

struct lp_pause;
struct lp_view;

struct lpi_store_calls {
	void (*submit)(struct lp_store *store, struct lp_store_op *op);
	void (*end)(struct lp_store *store, struct lp_store_op *op);
	struct lp_ino (*new_ino)(struct lp_store *store);
	int (*close)(struct lp_store *store, bool abandon);
	int (*error)(const struct lp_store *store);
	bool (*is_settled)(const struct lp_store *store);
	bool (*is_freeing)(const struct lp_store *store, struct lp_store_freeing *since);
	/* NULL: there is no device. */
	void (*read_bad)(const struct lp_store *store, struct lp_bad_blocks *ret_bad);
	void (*read_health)(const struct lp_store *store, struct lp_store_health *ret_health);
	void (*set_write_path)(struct lp_store *store, enum lp_write_path path);
	void (*set_deferred_store)(struct lp_store *store, enum lp_deferred_store kind);
	/* NULL: it has no caches. */
	void (*set_lost_bytes)(struct lp_store *store, uint64_t bytes);
	bool (*rest)(struct lp_store *store);
	void (*read_stats)(struct lp_store *store, struct lp_store_stats *ret_stats);
	void (*read_usage)(struct lp_store *store, struct lp_store_usage *ret_usage);
	int (*explain)(const struct lp_store *store, uint64_t bytes, char *buf, size_t len);
	double (*alloc_score)(const struct lp_store *store);
	size_t (*read_times)(const struct lp_store *store, struct lp_store_time *ret_rows,
			     size_t max);
	/* NULL: it does not tell. */
	void (*under_way)(struct lp_store *store, struct lp_under_way_list *list);
	bool (*sim_run_one)(struct lp_store *store);
	/* NULL: there are no views, as the next ones. */
	int (*pause)(struct lp_store *store, struct lp_pause *pause);
	void (*resume)(struct lp_store *store, struct lp_pause *pause);
	int (*view_take)(struct lp_store *store, struct lp_view **ret_view);
	void (*view_end)(struct lp_store *store, struct lp_view *view);
};

/* The first member of each kind. */
struct lp_store {
	const struct lpi_store_calls *calls;
};

/* What the index says of itself, for who reads the stats. */
void lpi_note_index(const struct lp_kv_stats *kv, struct lp_store_stats *stats);

/* Everything about a request that can be seen without the store: limits, names, alignment, how many
 * data changes, a crc for each piece. 0 or the error; of a transaction, failed_idx is set. Clears
 * the results. */
int lpi_store_check(struct lp_store_op *op) LP_MUST_CHECK;
/* The same for what could not be seen then: whether a SET suits an inode of the type. -EINVAL. */
int lpi_store_check_set(const struct lp_change *change, uint8_t type) LP_MUST_CHECK;

/* Whether the flags of the inode allow the change: -EPERM. size_bytes is before the change. */
int lpi_store_heed_flags(const struct lp_store_op *op, const struct lp_change *change,
			 uint32_t flags, uint64_t size_bytes) LP_MUST_CHECK;

/* Of an inode that is there: whether it has none of the flags that LP_GUARD_INODE names. */
static inline bool lpi_guard_flags_hold(const struct lp_change *guard, uint32_t flags)
{
	return (guard->guard.flags & flags) == 0;
}

/* Of an inode that is there: whether it is as LP_GUARD_INODE says. */
static inline bool lpi_guard_inode_holds(const struct lp_change *guard, uint64_t version_nr,
					 uint64_t size_bytes, uint32_t uid, uint32_t gid,
					 uint16_t mode)
{
	if (guard->guard.version_nr != 0 && guard->guard.version_nr != version_nr)
		return false;
	if (guard->guard.shorter_than != 0 && size_bytes >= guard->guard.shorter_than)
		return false;
	if ((mode & guard->guard.mode_mask) != (guard->guard.mode & guard->guard.mode_mask))
		return false;
	return !guard->guard.has_owner || (guard->guard.uid == uid && guard->guard.gid == gid);
}

static inline bool lpi_change_is_guard(enum lp_change_type type)
{
	return type < LP_CHANGE_CREATE;
}

/* LP_CHANGE_WRITE and its like. */
static inline bool lpi_change_is_data(enum lp_change_type type)
{
	return type >= LP_CHANGE_WRITE && type <= LP_CHANGE_CLONE;
}

/* Tells who listens of damage that a question about an inode has met, just before it completes. A
 * check of all data submits such reads, too. */
static inline void lpi_store_tell_damage(struct lp_store_events *events,
					 const struct lp_store_op *op)
{
	bool is_damage = op->result == -EBADMSG || op->result == -EUCLEAN;
	if (!is_damage || events == NULL || events->damaged == NULL)
		return;
	if (op->opcode == LP_STORE_READ)
		events->damaged(events, op->read.ino, LP_MAX(op->read.offset, op->read.bad_offset),
				op->result);
	else if (op->opcode == LP_STORE_SEEK)
		events->damaged(events, op->seek.ino, op->seek.offset, op->result);
	else if (op->opcode == LP_STORE_STAT)
		events->damaged(events, op->stat.ino, 0, op->result);
}

/* Changes the inode `ino`: it must exist. */
static inline bool lpi_change_is_inode(enum lp_change_type type)
{
	return type >= LP_CHANGE_CREATE && type <= LP_CHANGE_OMAP_REMOVE;
}

/* Of a change of an inode: whether its version goes up. An access time alone is none: it was read.
 */
static inline bool lpi_change_is_news(const struct lp_change *change)
{
	return change->type != LP_CHANGE_SET || change->inode.mask != LP_ATTR_ATIME;
}

/* What its inode's version is at least after it. */
static inline uint64_t lpi_change_version(const struct lp_change *change)
{
	const uint32_t naming = LP_ATTR_PARENT | LP_ATTR_CTIME;
	bool names = change->type == LP_CHANGE_SET && (change->inode.mask & naming) == naming;
	return names || change->type == LP_CHANGE_CREATE
		       ? lp_version_at(change->inode.attrs->ctime_ns)
		       : 1;
}

/* A time of a directory's fragment after a change of it that says new_ns; 0: there is none. A
 * change over several shards is made when others, which took their time later, have been made: the
 * later one stays. But what lies further back than any of these could says that the clock was set
 * back, or that the time is to be forgotten (namespace/ops/dirs.c): that counts. */
#define LPI_DIR_LATE_NS (60 * LP_NS_PER_S)

static inline int64_t lpi_dir_time(int64_t old_ns, int64_t new_ns)
{
	uint64_t back_ns = (uint64_t)old_ns - (uint64_t)new_ns; /* right also where it is signed */
	bool is_late = old_ns != 0 && new_ns < old_ns && back_ns < LPI_DIR_LATE_NS;
	return new_ns == 0 || is_late ? old_ns : new_ns;
}

/* The inode whose mark, U ino, a change of a record is about; nr 0: none. */
static inline struct lp_ino lpi_change_mark_of(const struct lp_change *change)
{
	const uint8_t *name = change->named.name.data;
	if (change->type != LP_CHANGE_RECORD || name[0] != LP_KEY_SPACE_UNFINISHED)
		return (struct lp_ino){0};
	return (struct lp_ino){lp_get_be64(name + 1)};
}

/* Nothing is left of this shard's fragment of the directory `ino`, if that is one. */
static inline bool lpi_change_drops(const struct lp_change *change)
{
	return change->type == LP_CHANGE_REMOVE ||
	       (change->type == LP_CHANGE_DIR && change->dir.drop);
}

/* How many pieces the grid of blocks cuts from a range: one crc each. */
static inline uint32_t lpi_piece_cnt(uint64_t offset, uint64_t length)
{
	if (length == 0)
		return 0;
	uint64_t first = offset >> LP_BLOCK_SHIFT;
	uint64_t last = (offset + length - 1) >> LP_BLOCK_SHIFT;
	return (uint32_t)(last - first + 1);
}

/* --- The payload of a write ------------------------------------------------------------------- */

/* Walks through the bytes of segments. */
struct lpi_seg_cursor {
	const struct lp_seg *seg;
	uint32_t offset; /* in *seg */
};

static inline struct lpi_seg_cursor lpi_seg_cursor_at(const struct lp_payload *payload)
{
	return (struct lpi_seg_cursor){.seg = payload->segs};
}

/* The next bytes that lie in one piece, at most max, which are there; moves behind them. */
const uint8_t *lpi_seg_cursor_next(struct lpi_seg_cursor *cursor, uint32_t max, uint32_t *ret_len);
/* For stores that begin nothing before they look at checksums: has those made that are not there.
 */
void lpi_payload_sum(const struct lp_store_op *op);
/* Copies the next len bytes. */
void lpi_seg_cursor_copy(struct lpi_seg_cursor *cursor, void *to, uint32_t len);

/* For an append whose end turned out to be `offset`: one crc for each piece that the grid cuts
 * there, lpi_piece_cnt() many, from those of pieces cut as if it were on the grid. Where the two
 * agree they are copied, else all is read once and verified: -EBADMSG. */
int lpi_payload_recut(const struct lp_payload *payload, uint64_t offset, uint64_t length,
		      uint32_t *ret_crcs) LP_MUST_CHECK;

/* --- Lists ------------------------------------------------------------------------------------ */

/* Appends one record to the list's buffer and counts it. -ENOBUFS: it does not fit any more (or
 * items_max is reached): op->list.more is set. */
int lpi_list_put(struct lp_store_op *op, const struct lp_list_item *item) LP_MUST_CHECK;
/* The end of filling a list: -ERANGE when there was something and nothing fitted, else 0. */
int lpi_list_end(struct lp_store_op *op) LP_MUST_CHECK;

#endif
