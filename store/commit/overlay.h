/* SPDX-License-Identifier: Apache-2.0 */
/* Overlay: keys that are decided, but not yet durable or not yet in RocksDB.
 *
 * Threads: one.
 * Blocking: none.
 * Memory: each group owns its entries, which live in its arena, and drops them together.
 * Errors: -ENOMEM of the group's arena.
 *
 * The next operation must see a commit group's puts and deletes at once. RocksDB takes the group
 * only after its frame was submitted (store I2), or later still when it stalls. So a point read
 * looks here first. Iterators do not: they start after the group is inserted (rule W1).
 *
 * Entries are dropped when the group is inserted and durable as well. So a key that is not here
 * reads from RocksDB a value that no crash takes back (P3). An entry says which group it is of: a
 * reader that has seen it waits for that group, and for no later one.
 */
#ifndef LP_STORE_COMMIT_OVERLAY_H
#define LP_STORE_COMMIT_OVERLAY_H

#include <errno.h>

#include "base/memory/arena.h"

struct lp_overlay;

struct lp_overlay_entry {
	struct lp_overlay_entry *next_in_group;
	struct lp_overlay_entry *next_in_bucket;
	uint64_t hash;
	uint64_t group; /* the group's name: lp_commit_group() */
	const uint8_t *key;
	const uint8_t *value; /* NULL for a delete */
	uint32_t key_len;
	uint32_t value_len;
	bool is_newest; /* in the table; else a later put of the key has taken its place */
};

/* A group's entries; zeroed memory is empty. */
struct lp_overlay_group {
	struct lp_overlay_entry *entries;
	uint32_t cnt;
};

enum lp_overlay_result {
	LP_OVERLAY_NONE, /* ask RocksDB */
	LP_OVERLAY_FOUND,
	LP_OVERLAY_DELETED, /* the key does not exist, whatever RocksDB says */
};

/* buckets: a power of two, near the number of keys of a busy turn. */
int lp_overlay_new(uint32_t buckets, uint64_t seed, struct lp_overlay **ret_overlay) LP_MUST_CHECK;
/* All groups must have been dropped. Accepts NULL. */
void lp_overlay_free(struct lp_overlay *overlay);

/* Copies key and value into the arena; value NULL is a delete. Groups are filled in their order, so
 * the entry is newer than all others. */
int lp_overlay_put(struct lp_overlay *overlay, struct lp_overlay_group *group,
		   struct lp_arena *arena, const struct lp_overlay_entry *entry) LP_MUST_CHECK;

/* The newest entry, also of a delete, is borrowed until its group is dropped. */
enum lp_overlay_result lp_overlay_find(const struct lp_overlay *overlay, const void *key,
				       uint32_t key_len, const struct lp_overlay_entry **ret_entry);

/* The group is durable and in RocksDB, or is given up. Called before its arena is reset. */
void lp_overlay_drop(struct lp_overlay *overlay, struct lp_overlay_group *group);

uint64_t lp_overlay_cnt(const struct lp_overlay *overlay);

#endif
