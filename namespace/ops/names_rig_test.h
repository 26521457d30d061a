/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on names, one line each, for tests. Only *_test.c files include this. */
#ifndef LP_NAMESPACE_OPS_NAMES_RIG_TEST_H
#define LP_NAMESPACE_OPS_NAMES_RIG_TEST_H

#include <errno.h>

#include "namespace/shard/ns_rig_test.h"

#define LPI_T_TURNS_MAX 100000u

/* The rig, the shard that is asked next, and room for one operation. */
struct lpi_t {
	struct lpi_ns_rig *rig;
	uint32_t home;
	struct lpi_ns_hand hand;
	struct lp_ns_op *op;
};

/* Each operation is submitted on the next shard. */
static inline int lpi_t_do(struct lpi_t *t)
{
	LP_ASSERT(t->rig->shard_cnt > 0);
	t->home = (t->home + 1) % t->rig->shard_cnt;
	return lpi_ns_rig_do(t->rig, t->home, &t->hand);
}

static inline struct lp_ns_op *lpi_t_op(struct lpi_t *t, enum lp_ns_opcode opcode)
{
	t->hand = (struct lpi_ns_hand){.op = {.opcode = opcode}};
	t->op = &t->hand.op;
	return t->op;
}

/* All that is under way has ended, and everything was given back. */
static inline void lpi_t_idle(struct lpi_t *t)
{
	struct lpi_ns_rig *rig = t->rig;
	for (uint32_t turns = 0;; turns++) {
		uint32_t busy = 0;
		for (uint32_t i = 0; i < rig->shard_cnt; i++)
			busy += rig->ns[i]->under_way + lpi_locks_cnt(rig->ns[i]->locks);
		if (busy == 0)
			break;
		assert_true(turns < LPI_T_TURNS_MAX);
		(void)lpi_ns_rig_turn(rig);
	}
	for (uint32_t i = 0; i < rig->shard_cnt; i++) {
		struct lp_ns *ns = rig->ns[i];
		assert_int_equal(lp_pool_free_cnt(ns->jobs), ns->options.ops_max);
		assert_int_equal(lp_pool_free_cnt(ns->calls), ns->options.ops_max);
		assert_int_equal(lp_pool_free_cnt(ns->rooms), LPI_ROOMS);
		assert_int_equal(lp_pool_free_cnt(ns->transfers), LPI_TRANSFERS);
		assert_non_null(ns->wides);
		assert_non_null(ns->wides->next);
	}
}

static inline void lpi_t_begin(struct lpi_t *t, uint32_t shard_cnt)
{
	*t = (struct lpi_t){.rig = lpi_ns_rig_new(shard_cnt)};
}

static inline void lpi_t_end(struct lpi_t *t)
{
	lpi_t_idle(t);
	lpi_ns_rig_free(t->rig);
}

/* On one, two and three shards, each time on new ones. */
static inline void lpi_t_on_all(void (*check)(struct lpi_t *t))
{
	for (uint32_t shards = 1; shards <= 3; shards++) {
		struct lpi_t t;
		lpi_t_begin(&t, shards);
		check(&t);
		lpi_t_end(&t);
	}
}

static inline struct lp_bytes lpi_t_bytes(const char *text)
{
	return (struct lp_bytes){text, (uint32_t)strlen(text)};
}

static inline void lpi_t_fill_make(struct lpi_t *t, struct lp_ino dir, const char *name,
				   enum lp_inode_type type)
{
	lpi_t_op(t, LP_NS_MAKE);
	t->op->make.dir = dir;
	t->op->make.name = lpi_t_bytes(name);
	t->op->make.type = (uint8_t)type;
	t->op->make.mode = 0640;
	t->op->who = (struct lp_ns_who){.uid = 7, .gid = 8};
}

static inline int lpi_t_make(struct lpi_t *t, struct lp_ino dir, const char *name,
			     enum lp_inode_type type)
{
	lpi_t_fill_make(t, dir, name, type);
	if (type == LP_INODE_TYPE_SYMLINK)
		t->op->make.target = LPI_NS_RIG_BYTES("target");
	return lpi_t_do(t);
}

static inline struct lp_ino lpi_t_file(struct lpi_t *t, struct lp_ino dir, const char *name)
{
	lp_test_ok(lpi_t_make(t, dir, name, LP_INODE_TYPE_FILE));
	return t->op->make.found.ino;
}

static inline struct lp_ino lpi_t_dir(struct lpi_t *t, struct lp_ino dir, const char *name)
{
	lp_test_ok(lpi_t_make(t, dir, name, LP_INODE_TYPE_DIR));
	return t->op->make.found.ino;
}

static inline struct lp_ino lpi_t_spread(struct lpi_t *t, struct lp_ino dir, const char *name)
{
	lpi_t_fill_make(t, dir, name, LP_INODE_TYPE_DIR);
	t->op->make.spread = true;
	lp_test_ok(lpi_t_do(t));
	return t->op->make.found.ino;
}

static inline int lpi_t_lookup(struct lpi_t *t, struct lp_ino dir, const char *name)
{
	lpi_t_op(t, LP_NS_LOOKUP);
	t->op->lookup.dir = dir;
	t->op->lookup.name = lpi_t_bytes(name);
	return lpi_t_do(t);
}

/* nr 0: there is none. */
static inline struct lp_ino lpi_t_find(struct lpi_t *t, struct lp_ino dir, const char *name)
{
	int r = lpi_t_lookup(t, dir, name);
	if (r == -ENOENT)
		return (struct lp_ino){0};
	lp_test_ok(r);
	return t->op->lookup.found.ino;
}

static inline int lpi_t_remove(struct lpi_t *t, struct lp_ino dir, const char *name, bool is_dir)
{
	lpi_t_op(t, LP_NS_REMOVE);
	t->op->remove.dir = dir;
	t->op->remove.name = lpi_t_bytes(name);
	t->op->remove.is_dir = is_dir;
	return lpi_t_do(t);
}

static inline int lpi_t_link(struct lpi_t *t, struct lp_ino ino, struct lp_ino dir,
			     const char *name)
{
	lpi_t_op(t, LP_NS_LINK);
	t->op->link.ino = ino;
	t->op->link.dir = dir;
	t->op->link.name = lpi_t_bytes(name);
	return lpi_t_do(t);
}

static inline int lpi_t_rename(struct lpi_t *t, struct lp_ino dir, const char *name,
			       struct lp_ino to_dir, const char *to_name, uint32_t flags)
{
	lpi_t_op(t, LP_NS_RENAME);
	t->op->rename.dir = dir;
	t->op->rename.name = lpi_t_bytes(name);
	t->op->rename.to_dir = to_dir;
	t->op->rename.to_name = lpi_t_bytes(to_name);
	t->op->rename.flags = flags;
	return lpi_t_do(t);
}

static inline int lpi_t_stat(struct lpi_t *t, struct lp_ino ino)
{
	lpi_t_op(t, LP_NS_STAT);
	t->op->stat.ino = ino;
	return lpi_t_do(t);
}

static inline struct lp_attrs lpi_t_attrs(struct lpi_t *t, struct lp_ino ino)
{
	lp_test_ok(lpi_t_stat(t, ino));
	return t->op->stat.found.attrs;
}

static inline uint32_t lpi_t_nlink(struct lpi_t *t, struct lp_ino ino)
{
	return lpi_t_attrs(t, ino).nlink;
}

static inline int lpi_t_open(struct lpi_t *t, struct lp_ino ino)
{
	lpi_t_op(t, LP_NS_OPEN);
	t->op->open.ino = ino;
	return lpi_t_do(t);
}

static inline int lpi_t_close(struct lpi_t *t, struct lp_ino ino)
{
	lpi_t_op(t, LP_NS_CLOSE);
	t->op->open.ino = ino;
	t->op->open.count = 1;
	return lpi_t_do(t);
}

/* Time goes on, so that what is changed from now on is younger. */
static inline void lpi_t_later(struct lpi_t *t)
{
	struct lp_clock_sim *sim = &t->rig->clock;
	lp_clock_sim_advance_to(sim, sim->now_ns + LP_NS_PER_S);
}

static inline void lpi_t_stored(struct lp_store_op *op)
{
	op->user = op;
}

/* Beside the namespace. */
static inline void lpi_t_store(struct lpi_t *t, uint32_t shard_idx, struct lp_store_op *op)
{
	op->complete = lpi_t_stored;
	op->user = NULL;
	lp_store_submit(t->rig->store[shard_idx], op);
	for (uint32_t i = 0; op->user == NULL; i++) {
		assert_true(i < LPI_T_TURNS_MAX);
		(void)lpi_ns_rig_turn(t->rig);
	}
	lp_test_ok(op->result);
}

#endif
