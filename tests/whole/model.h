/* SPDX-License-Identifier: Apache-2.0 */
/* What a namespace holds, as simply as it can be said: inodes by slot, entries, pages of data,
 * small things. Operations change it as they should change the namespace, whatever door they came
 * by, and say what they should be answered.
 *
 * It is copied often: pages are shared by all copies, and so is what an inode holds until one of
 * them changes it.
 *
 * Two states are compared as texts, a line for each inode and entry in any order, with the real
 * numbers: the model knows which inode each slot has got (struct lpi_whole_inos, shared by copies).
 *
 * Threads: one. Errors: none; without memory the program ends.
 */
#ifndef LP_TESTS_WHOLE_MODEL_H
#define LP_TESTS_WHOLE_MODEL_H

#include "namespace/ns.h"
#include "tests/whole/op.h"

/* --- The state -------------------------------------------------------------------------------- */

/* A block of a file that is not all zeros. */
struct lpi_whole_page {
	uint32_t refs;
	uint32_t crc;
	uint8_t bytes[LP_BLOCK_BYTES];
};

struct lpi_whole_block {
	uint64_t idx;
	struct lpi_whole_page *page;
};

/* An xattr, or of the omap. */
struct lpi_whole_item {
	uint32_t name;
	uint32_t len;
	uint32_t seed;
	bool is_omap;
	bool has_perms; /* an access list whose mode was set: to these nine bits */
	uint32_t perms;
};

struct lpi_whole_body {
	uint32_t refs;
	uint32_t block_cnt;
	uint32_t block_max;
	uint32_t item_cnt;
	uint32_t item_max;
	struct lpi_whole_block *blocks; /* in ascending order */
	struct lpi_whole_item *items;
	bool is_hashed;
	uint64_t data_hash; /* only then */
	uint64_t items_hash;
};

struct lpi_whole_node {
	uint32_t slot;
	uint32_t type;
	uint32_t opens;
	uint32_t names;  /* that lead to it; the root has one more */
	uint32_t target; /* seed of a symlink's */
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev;
	uint32_t flags;   /* LP_INODE_FLAG_SPREAD, LP_INODE_FLAG_MADE_BY_PUT */
	bool is_unnamed;  /* and never had a name */
	int64_t mtime_ns; /* 0: the clock's */
	uint64_t size_bytes;
	struct lpi_whole_body *body;
};

struct lpi_whole_entry {
	uint32_t dir;
	uint32_t name;
	uint32_t node;
};

/* Which inode each slot has got; 0: it has none, or that is not known yet. */
struct lpi_whole_inos {
	uint64_t *nrs;
	uint32_t max;
};

/* What a change has touched: two that touch the same happen in their order, if one of the two
 * changes it. */
enum lpi_whole_touch_kind {
	LPI_WHOLE_TOUCH_INODE,
	LPI_WHOLE_TOUCH_FRAGMENT, /* of a directory, on a shard */
	LPI_WHOLE_TOUCH_BEING,    /* that a directory is there */
	LPI_WHOLE_TOUCH_NAME      /* in a directory */
};

struct lpi_whole_touch {
	enum lpi_whole_touch_kind kind;
	uint32_t slot;
	uint32_t shard_idx; /* of a fragment */
	uint32_t name;
	bool changes;
};

#define LPI_WHOLE_TOUCHES_MAX 128u

struct lpi_whole_touches {
	uint32_t cnt;
	struct lpi_whole_touch items[LPI_WHOLE_TOUCHES_MAX];
};

struct lpi_whole {
	uint32_t shard_cnt;
	/* What a door says of modes and owners: these bits only, and who asks is always root. */
	uint32_t mode_mask;
	bool is_root_only;
	bool copies_are_roots; /* what copy and move make: they say no owner */
	bool is_below;         /* the root is a directory of another one: no bucket is made in it */
	bool data_sets_times;  /* who changes data sets the time, to that of the clock */
	bool lists_set_modes;  /* who sets an access list sets the mode */
	uint32_t node_cnt;
	uint32_t node_max;
	uint32_t entry_cnt;
	uint32_t entry_max;
	struct lpi_whole_node *nodes;
	struct lpi_whole_entry *entries;
	struct lpi_whole_inos *inos;
	struct lpi_whole_touches *touches; /* where they are written down; NULL: nowhere */
	bool has_changed;                  /* by the last operation */
};

/* With a root, slot LPI_WHOLE_ROOT. */
void lpi_whole_init(struct lpi_whole *whole, uint32_t shard_cnt, struct lpi_whole_inos *inos);
void lpi_whole_fini(struct lpi_whole *whole);
/* Into memory of no model. */
void lpi_whole_copy(const struct lpi_whole *from, struct lpi_whole *ret_whole);

uint64_t lpi_whole_ino(const struct lpi_whole *whole, uint32_t slot);
void lpi_whole_inos_set(struct lpi_whole_inos *inos, uint32_t slot, uint64_t nr);
void lpi_whole_inos_fini(struct lpi_whole_inos *inos);
bool lpi_whole_touch_is_same(const struct lpi_whole_touch *a, const struct lpi_whole_touch *b);
bool lpi_whole_touches_meet(const struct lpi_whole_touches *a, const struct lpi_whole_touches *b);

/* --- Doors ------------------------------------------------------------------------------------ */

struct lpi_whole_answer;

/* Does one operation at a time. The model knows which inode a slot is, and paths to it; it has not
 * done the operation yet. */
struct lpi_whole_door {
	void (*apply)(struct lpi_whole_door *door, const struct lpi_whole *whole,
		      const struct lpi_whole_op *op, struct lpi_whole_answer *ret);
};

#define LPI_WHOLE_SKIPPED (-100002) /* the door has no such operation */

/* --- Operations ------------------------------------------------------------------------------- */

#define LPI_WHOLE_ANY_ERROR (-100000) /* one of the operation's, and nothing has changed */
#define LPI_WHOLE_ANYTHING  (-100001) /* nobody can say; and nothing has changed */

/* What came of one, as far as it is compared. */
struct lpi_whole_answer {
	int result;
	uint64_t ino;
	uint64_t cnt;  /* of items, bytes; an offset */
	uint64_t more; /* of a list; of stat: the link count */
	uint64_t hash; /* of what was returned */
	/* Of what was found, if the door tells; the model does not know it. */
	uint64_t version_nr;
};

/* States that an operation goes through, each of which a crash may leave: what a put makes before
 * the object. */
struct lpi_whole_visit {
	void (*state)(void *arg, const struct lpi_whole *whole);
	void *arg;
};

/* Whether all slots that it refers to have been made, by operations that were not left out. */
bool lpi_whole_can(const struct lpi_whole *whole, const struct lpi_whole_op *op);
/* Does it; visit may be NULL. */
void lpi_whole_apply(struct lpi_whole *whole, const struct lpi_whole_op *op,
		     const struct lpi_whole_visit *visit, struct lpi_whole_answer *ret);
/* Whether the real answer is right; `want` is the model's, of a state that still is as it was when
 * it was asked, if it only asks. */
bool lpi_whole_is_right(const struct lpi_whole *whole, const struct lpi_whole_op *op,
			const struct lpi_whole_answer *want, const struct lpi_whole_answer *got);
bool lpi_whole_only_asks(const struct lpi_whole_op *op);
/* LPI_WHOLE_LIST: the keys, in their order. */
int lpi_whole_list(const struct lpi_whole *whole, const struct lpi_whole_op *op,
		   struct lpi_whole_answer *ret);
/* The next one's hash, from that of those before it. */
uint64_t lpi_whole_hash_key(uint64_t hash, struct lp_bytes key);
/* What a list is asked for: the path as a text, of which a length says where it is cut off. */
#define LPI_WHOLE_PATH_BYTES (LPI_WHOLE_DEPTH_MAX * LPI_WHOLE_NAME_MAX)
struct lpi_whole_path {
	uint32_t len;
	char bytes[LPI_WHOLE_PATH_BYTES];
};
void lpi_whole_path(const uint32_t *names, uint32_t depth, struct lpi_whole_path *ret);
void lpi_whole_list_bounds(const struct lpi_whole_op *op, struct lpi_whole_path *ret_prefix,
			   struct lpi_whole_path *ret_after);

/* What the answer to a question, or to what was refused, has told of (P3); the model has changed no
 * more since. */
void lpi_whole_show(struct lpi_whole *whole, const struct lpi_whole_op *op, int result,
		    struct lpi_whole_touches *ret);
/* Whether that tells of what this operation has changed. */
bool lpi_whole_is_shown(const struct lpi_whole_op *op, const struct lpi_whole_touches *changed,
			const struct lpi_whole_touches *shown);

/* --- As text ---------------------------------------------------------------------------------- */

struct lpi_whole_text {
	uint64_t hash; /* of all lines, in any order */
	bool is_kept;  /* else only the hash is made */
	char *bytes;   /* lines, each ended by a zero byte */
	size_t len;
	size_t max;
};

/* What is written of an inode. */
struct lpi_whole_line {
	uint64_t ino;
	uint64_t parent; /* of a directory */
	uint64_t size_bytes;
	uint64_t data_hash;
	uint64_t items_hash;
	uint64_t target_hash;
	int64_t mtime_ns;
	uint32_t type;
	uint32_t nlink;
	uint32_t mode;
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev;
	uint32_t flags;
};

void lpi_whole_say(struct lpi_whole_text *text, const char *format, ...) LP_PRINTF(2, 3);
void lpi_whole_say_inode(struct lpi_whole_text *text, const struct lpi_whole_line *line);
void lpi_whole_say_entry(struct lpi_whole_text *text, uint64_t dir,
			 const struct lpi_whole_bytes *name, uint64_t ino, uint32_t type);
void lpi_whole_text_fini(struct lpi_whole_text *text);
/* All that has a name. */
void lpi_whole_describe(const struct lpi_whole *whole, struct lpi_whole_text *text);
/* How many lines only one of the two has; both are kept. And these lines, on standard error. */
uint32_t lpi_whole_text_distance(const struct lpi_whole_text *a, const struct lpi_whole_text *b);
void lpi_whole_text_compare(const struct lpi_whole_text *found, const struct lpi_whole_text *want);

/* How small things are hashed, in any order, by who reads them elsewhere. */
uint64_t lpi_whole_hash_block(uint64_t idx, uint32_t crc);
uint64_t lpi_whole_hash_item(bool is_omap, struct lp_bytes name, struct lp_bytes value);
uint64_t lpi_whole_hash_target(const void *bytes, size_t len);
uint64_t lpi_whole_hash_attrs(const struct lp_attrs *attrs, uint64_t ino, uint64_t entries_cnt);
uint64_t lpi_whole_hash_name(struct lp_bytes name, uint64_t ino, uint32_t type);

/* --- Inside ----------------------------------------------------------------------------------- */

struct lpi_whole_node *lpi_whole_find(const struct lpi_whole *whole, uint32_t slot);
struct lpi_whole_entry *lpi_whole_entry_find(const struct lpi_whole *whole, uint32_t dir,
					     uint32_t name);
/* NULL: the path leads nowhere. */
struct lpi_whole_node *lpi_whole_walk(const struct lpi_whole *whole, const uint32_t *names,
				      uint32_t depth);
bool lpi_whole_is_dir(const struct lpi_whole_node *node);
uint32_t lpi_whole_nlink(const struct lpi_whole *whole, const struct lpi_whole_node *node);
uint32_t lpi_whole_entries_in(const struct lpi_whole *whole, uint32_t dir);
/* Where a directory is; the root is in itself. */
uint32_t lpi_whole_parent(const struct lpi_whole *whole, uint32_t slot);

struct lpi_whole_node *lpi_whole_node_add(struct lpi_whole *whole, uint32_t slot, uint32_t type);
/* Gone, if it has no name and nobody has it open. */
void lpi_whole_node_drop(struct lpi_whole *whole, uint32_t slot);
void lpi_whole_entry_set(struct lpi_whole *whole, uint32_t dir, uint32_t name, uint32_t node);
void lpi_whole_entry_remove(struct lpi_whole *whole, uint32_t dir, uint32_t name);
void lpi_whole_touch(struct lpi_whole *whole, enum lpi_whole_touch_kind kind, uint32_t slot,
		     bool changes);

/* Data and small things of a node. */
void lpi_whole_write(struct lpi_whole_node *node, uint64_t offset, const uint8_t *bytes,
		     uint64_t length);
void lpi_whole_punch(struct lpi_whole_node *node, uint64_t offset, uint64_t length);
void lpi_whole_truncate(struct lpi_whole_node *node, uint64_t size);
/* Whole blocks; both may be the same. */
void lpi_whole_clone(struct lpi_whole_node *node, const struct lpi_whole_node *from,
		     uint64_t src_offset, uint64_t offset, uint64_t length);
void lpi_whole_share_body(struct lpi_whole_node *node, const struct lpi_whole_node *from);
void lpi_whole_read(const struct lpi_whole_node *node, uint64_t offset, uint64_t length,
		    uint8_t *ret_bytes);
/* The first byte from offset on that is not zero; UINT64_MAX: there is none. */
uint64_t lpi_whole_next_data(const struct lpi_whole_node *node, uint64_t offset);
const struct lpi_whole_item *lpi_whole_item_find(const struct lpi_whole_node *node, bool is_omap,
						 uint32_t name);
void lpi_whole_item_set(struct lpi_whole_node *node, const struct lpi_whole_item *item);
/* item->len bytes. */
void lpi_whole_item_value(const struct lpi_whole_item *item, uint8_t *ret_value);
/* Of an access list. */
uint32_t lpi_whole_item_perms(const struct lpi_whole_item *item);
void lpi_whole_item_remove(struct lpi_whole_node *node, bool is_omap, uint32_t name);
uint32_t lpi_whole_pages(const struct lpi_whole *whole);

#endif
