/* SPDX-License-Identifier: Apache-2.0 */
/* Generator of random operations for a model run.
 *
 * Only *_test.c files and their headers include this. It draws from few inodes and names, so that
 * they meet. It draws at the edges of blocks, of inline data, of leaves of extent maps, and of
 * files, with guards that hold and guards that do not. It looks at the model to know what is
 * there.
 */
#ifndef LP_STORE_MODEL_DRAW_TEST_H
#define LP_STORE_MODEL_DRAW_TEST_H

#include "store/model/plan_test.h"

/* A crash may leave what was made and not what was removed before it, if neither was acknowledged.
 */
#define LPI_GEN_INODES_MAX 128u
#define LPI_GEN_DIRS       3u
#define LPI_GEN_FIRST_INO  1000u

/* For gen.without: fragments are not claimed, so what changes one is whole, but in any order. */
#define LPI_GEN_OF_FRAGMENTS                                                                       \
	(UINT64_C(1) << LP_GUARD_EMPTY | UINT64_C(1) << LP_CHANGE_DIR |                            \
	 UINT64_C(1) << LP_CHANGE_ENTRY_SET | UINT64_C(1) << LP_CHANGE_ENTRY_REMOVE)

struct lpi_gen_options {
	uint64_t seed;
	uint32_t shard_idx;
	uint32_t inodes;         /* alive at a time, at most; 0: 6 */
	uint64_t data_bytes_max; /* in all files together; 0: 24 MiB */
	uint64_t length_max;     /* of one write, range or clone; 0: as the store allows */
	uint64_t without;        /* bit mask of enum lp_change_type: never drawn */
	bool no_sparse;          /* no offsets in the terabytes */
	bool ordered;            /* some transactions complete when ordered; some syncs */
};

/* Where a file's offsets lie. */
enum lpi_span { LPI_SPAN_TINY, LPI_SPAN_SMALL, LPI_SPAN_LARGE, LPI_SPAN_SPARSE, LPI_SPAN_CNT };

struct lpi_gen_inode {
	uint64_t nr;
	enum lpi_span span;
	uint8_t type;
};

struct lpi_gen {
	struct lpi_gen_options options;
	struct lp_prng prng;
	const struct lpi_hand *model;
	struct lpi_gen_inode inodes[LPI_GEN_INODES_MAX];
	uint32_t inode_cnt;
	uint64_t next_nr;
	/* While a transaction is drawn. */
	bool has_data;
};

static inline void lpi_gen_init(struct lpi_gen *gen, const struct lpi_gen_options *options)
{
	*gen = (struct lpi_gen){.options = *options};
	lp_prng_init(&gen->prng, options->seed);
	if (gen->options.inodes == 0)
		gen->options.inodes = 6;
	assert_true(gen->options.inodes + LPI_PLAN_CHANGES_MAX <= LPI_GEN_INODES_MAX);
	if (gen->options.data_bytes_max == 0)
		gen->options.data_bytes_max = UINT64_C(24) << 20;
	if (gen->options.length_max == 0)
		gen->options.length_max = LP_STORE_RANGE_MAX;
	gen->next_nr = lp_ino_make(options->shard_idx, LPI_GEN_FIRST_INO).nr;
}

/* --- What is there ---------------------------------------------------------------------------- */

static inline struct lpi_gen_inode *lpi_gen_find(struct lpi_gen *gen, uint64_t nr)
{
	for (uint32_t i = 0; i < gen->inode_cnt; i++)
		if (gen->inodes[i].nr == nr)
			return &gen->inodes[i];
	return NULL;
}

/* A transaction happened. */
static inline void lpi_gen_note(struct lpi_gen *gen, const struct lpi_plan *plan)
{
	for (uint32_t i = 0; i < plan->change_cnt; i++) {
		const struct lpi_plan_change *change = &plan->changes[i];
		if (change->type == LP_CHANGE_CREATE) {
			assert_true(gen->inode_cnt < LPI_GEN_INODES_MAX);
			gen->inodes[gen->inode_cnt++] = (struct lpi_gen_inode){
				change->ino, (enum lpi_span)(change->seed % LPI_SPAN_CNT),
				change->ino_type};
		} else if (change->type == LP_CHANGE_REMOVE) {
			struct lpi_gen_inode *inode = lpi_gen_find(gen, change->ino);
			if (inode == NULL)
				fail_msg("what is not there was removed");
			else
				*inode = gen->inodes[--gen->inode_cnt];
		}
	}
}

static inline void lpi_gen_stat(const struct lpi_gen *gen, uint64_t nr, struct lp_attrs *ret)
{
	(void)lpi_hand_stat(gen->model, (struct lp_ino){nr}, ret); /* zeros if there is none */
}

static inline uint64_t lpi_gen_data_bytes(const struct lpi_gen *gen)
{
	uint64_t blocks = 0;
	for (uint32_t i = 0; i < gen->inode_cnt; i++) {
		struct lp_attrs attrs;
		lpi_gen_stat(gen, gen->inodes[i].nr, &attrs);
		blocks += attrs.blocks;
	}
	return blocks * LP_BLOCK_BYTES;
}

/* Never drawn. */
static inline bool lpi_gen_is_out(const struct lpi_gen *gen, enum lp_change_type type)
{
	return (gen->options.without & UINT64_C(1) << type) != 0;
}

static inline bool lpi_gen_chance(struct lpi_gen *gen, uint32_t numerator, uint32_t denominator)
{
	return lp_prng_chance(&gen->prng, numerator, denominator);
}

static inline uint64_t lpi_gen_below(struct lpi_gen *gen, uint64_t limit)
{
	return lp_prng_below(&gen->prng, limit);
}

/* One that is there, or now and then one that never was. */
static inline uint64_t lpi_gen_any_ino(struct lpi_gen *gen)
{
	if (gen->inode_cnt == 0 || lpi_gen_chance(gen, 1, 50))
		return lp_ino_make(gen->options.shard_idx, 7).nr;
	return gen->inodes[lpi_gen_below(gen, gen->inode_cnt)].nr;
}

/* Mostly a file. */
static inline uint64_t lpi_gen_file(struct lpi_gen *gen)
{
	for (unsigned i = 0; i < 8; i++) {
		uint64_t nr = lpi_gen_any_ino(gen);
		const struct lpi_gen_inode *inode = lpi_gen_find(gen, nr);
		if (inode != NULL && inode->type == LP_INODE_TYPE_FILE)
			return nr;
	}
	return lpi_gen_any_ino(gen);
}

/* Fixed numbers, of this shard and of another, whose inodes are not here; or one that is. */
static inline uint64_t lpi_gen_dir(struct lpi_gen *gen)
{
	uint64_t nr = lpi_gen_any_ino(gen);
	const struct lpi_gen_inode *inode = lpi_gen_find(gen, nr);
	if (inode != NULL && inode->type == LP_INODE_TYPE_DIR)
		return nr;
	uint32_t shard = (gen->options.shard_idx + (uint32_t)lpi_gen_below(gen, 2)) % LP_SHARDS_MAX;
	return lp_ino_make(shard, 10 + lpi_gen_below(gen, LPI_GEN_DIRS)).nr;
}

/* The one that has so few names that it often has no entry. */
static inline uint64_t lpi_gen_empty_dir(const struct lpi_gen *gen)
{
	return lp_ino_make(gen->options.shard_idx, 10).nr;
}

static inline uint64_t lpi_gen_dir_nr(const struct lpi_gen *gen, unsigned idx)
{
	uint32_t shard = (gen->options.shard_idx + idx % 2) % LP_SHARDS_MAX;
	return lp_ino_make(shard, 10 + idx / 2).nr;
}

/* --- Offsets and lengths ---------------------------------------------------------------------- */

static inline uint64_t lpi_gen_length(struct lpi_gen *gen, uint64_t max)
{
	static const uint64_t edges[] = {1,    100,   2047,  2048,   2049,   4095,   4096,   4097,
					 8192, 12288, 65536, 262143, 262144, 262145, 1 << 20};
	uint64_t length;
	max = LP_MIN(max, gen->options.length_max);
	if (lpi_gen_chance(gen, 1, 60))
		length = lp_prng_between(&gen->prng, 1, LP_MIN(max, LP_STORE_WRITE_MAX));
	else if (lpi_gen_chance(gen, 1, 4))
		length = edges[lpi_gen_below(gen, LP_ARRAY_SIZE(edges))];
	else if (lpi_gen_chance(gen, 1, 3))
		length = (1 + lpi_gen_below(gen, 20)) * LP_BLOCK_BYTES;
	else
		length = 1 + lpi_gen_below(gen, 3 * LP_BLOCK_BYTES);
	return LP_MIN(length, max);
}

static inline uint64_t lpi_gen_sparse_base(struct lpi_gen *gen)
{
	static const uint64_t bases[] = {0,
					 UINT64_C(16) << 20,
					 UINT64_C(1) << 30,
					 (UINT64_C(1) << 40) - 262144,
					 (UINT64_C(1) << 40) + (UINT64_C(1) << 33),
					 LP_STORE_FILE_MAX - (UINT64_C(1) << 20)};
	return bases[lpi_gen_below(gen, LP_ARRAY_SIZE(bases))];
}

static inline uint64_t lpi_gen_offset(struct lpi_gen *gen, uint64_t nr)
{
	static const uint64_t spans[LPI_SPAN_CNT] = {5000, 300000, UINT64_C(9) << 20, 600000};
	static const uint64_t edges[] = {0, 0, 2047, 2048, 2049, 4096, 262144, UINT64_C(1) << 20};
	const struct lpi_gen_inode *inode = lpi_gen_find(gen, nr);
	enum lpi_span span = inode == NULL ? LPI_SPAN_TINY : inode->span;
	struct lp_attrs attrs;
	uint64_t offset;
	lpi_gen_stat(gen, nr, &attrs);
	if (lpi_gen_chance(gen, 1, 4))
		offset = attrs.size_bytes;
	else if (lpi_gen_chance(gen, 1, 4))
		offset = edges[lpi_gen_below(gen, LP_ARRAY_SIZE(edges))];
	else
		offset = lpi_gen_below(gen, spans[span]);
	if (span == LPI_SPAN_SPARSE && !gen->options.no_sparse && lpi_gen_chance(gen, 1, 2))
		offset = lpi_gen_sparse_base(gen) + lpi_gen_below(gen, spans[span]);
	if (lpi_gen_chance(gen, 1, 2))
		offset = lp_align_down(offset, LP_BLOCK_BYTES);
	if (lpi_gen_chance(gen, 1, 6))
		offset = offset + 1 - lpi_gen_below(gen, LP_MIN(offset, 1) + 2);
	return LP_MIN(offset, LP_STORE_FILE_MAX);
}

/* --- Changes ---------------------------------------------------------------------------------- */

static inline uint32_t lpi_gen_value_len(struct lpi_gen *gen)
{
	static const uint32_t edges[] = {0, 1, 700, 1023, 1024, 4096, 65535, LP_STORE_VALUE_MAX};
	if (lpi_gen_chance(gen, 1, 8))
		return edges[lpi_gen_below(gen, LP_ARRAY_SIZE(edges))];
	return (uint32_t)lpi_gen_below(gen, 300);
}

static inline void lpi_gen_create(struct lpi_gen *gen, struct lpi_plan_change *change)
{
	static const uint8_t types[] = {
		LP_INODE_TYPE_FILE, LP_INODE_TYPE_FILE,    LP_INODE_TYPE_FILE, LP_INODE_TYPE_DIR,
		LP_INODE_TYPE_FILE, LP_INODE_TYPE_SYMLINK, LP_INODE_TYPE_FILE, LP_INODE_TYPE_FIFO,
		LP_INODE_TYPE_FILE, LP_INODE_TYPE_CHARDEV};
	bool is_full = gen->inode_cnt >= gen->options.inodes;
	change->ino_type = types[lpi_gen_below(gen, LP_ARRAY_SIZE(types))];
	/* A number that is in use now and then, but never one that was removed (rule N5). */
	bool is_used = lpi_gen_find(gen, change->ino) != NULL;
	if (!is_used || (!is_full && !lpi_gen_chance(gen, 1, 20)))
		change->ino = gen->next_nr++;
}

static inline void lpi_gen_write(struct lpi_gen *gen, struct lpi_plan_change *change)
{
	change->path = (uint8_t)lpi_gen_below(gen, LP_PATH_CNT);
	if (lpi_gen_chance(gen, 1, 2))
		change->path = LP_PATH_AUTO;
	change->length = lpi_gen_length(gen, LP_STORE_WRITE_MAX);
	if (lpi_gen_chance(gen, 1, 6))
		change->offset = LP_STORE_APPEND;
	else if (change->offset < LP_STORE_FILE_MAX)
		change->length = LP_MIN(change->length, LP_STORE_FILE_MAX - change->offset);
}

static inline void lpi_gen_clone(struct lpi_gen *gen, struct lpi_plan_change *change)
{
	struct lp_attrs src;
	change->other = lpi_gen_file(gen);
	lpi_gen_stat(gen, change->other, &src);
	change->src_offset = lpi_gen_offset(gen, change->other);
	if (src.size_bytes > 0)
		change->src_offset %= src.size_bytes;
	change->length =
		LP_MIN(lpi_gen_length(gen, LP_STORE_RANGE_MAX) * 2, gen->options.length_max);
	if (lpi_gen_chance(gen, 1, 30))
		return; /* as it comes: mostly wrong */
	change->src_offset = lp_align_down(change->src_offset, LP_BLOCK_BYTES);
	change->offset = lp_align_down(change->offset, LP_BLOCK_BYTES);
	uint64_t rest = src.size_bytes - LP_MIN(change->src_offset, src.size_bytes);
	change->length = lp_align_up(change->length, LP_BLOCK_BYTES);
	if (change->length > rest)
		change->length =
			lpi_gen_chance(gen, 1, 2) ? rest : lp_align_down(rest, LP_BLOCK_BYTES);
}

static inline void lpi_gen_data(struct lpi_gen *gen, struct lpi_plan_change *change)
{
	change->ino = lpi_gen_chance(gen, 1, 10) ? change->ino : lpi_gen_file(gen);
	change->offset = lpi_gen_offset(gen, change->ino);
	change->length = lpi_gen_length(gen, LP_STORE_RANGE_MAX);
	if (change->type == LP_CHANGE_WRITE)
		lpi_gen_write(gen, change);
	else if (change->type == LP_CHANGE_CLONE)
		lpi_gen_clone(gen, change);
	else if (change->type == LP_CHANGE_PUNCH && lpi_gen_chance(gen, 1, 4))
		change->length = LP_MIN(change->length * 8, LP_STORE_RANGE_MAX);
	gen->has_data = true;
}

/* What a name in a space stands for now: whether it is there, and its entry's target. */
static inline bool lpi_gen_has(const struct lpi_gen *gen, const struct lpi_plan_change *change,
			       uint64_t *ret_target)
{
	struct lp_bytes name = lpi_plan_change_name(change);
	struct lp_store_op op = {.opcode = LP_STORE_LOOKUP,
				 .lookup = {.dir = {change->ino}, .name = name}};
	*ret_target = 0;
	if (!lpi_change_is_entry(change->type)) {
		enum lp_store_space space = LP_STORE_RECORDS;
		if (lpi_change_is_xattr(change->type))
			space = LP_STORE_XATTRS;
		if (lpi_change_is_omap(change->type))
			space = LP_STORE_OMAP;
		int64_t len = lpi_hand_get(gen->model, space, (struct lp_ino){change->ino}, name,
					   NULL, 0);
		return len >= 0 || len == -ERANGE;
	}
	int err = lpi_hand_do(gen->model, &op);
	*ret_target = op.lookup.ino.nr;
	return err == 0;
}

/* Mostly of the kind that will succeed. */
static inline void lpi_gen_named(struct lpi_gen *gen, struct lpi_plan_change *change)
{
	static const enum lp_change_type others[LP_CHANGE_CNT] = {
		[LP_GUARD_ENTRY] = LP_GUARD_NO_ENTRY,
		[LP_GUARD_XATTR] = LP_GUARD_NO_XATTR,
		[LP_GUARD_RECORD] = LP_GUARD_NO_RECORD,
		[LP_CHANGE_XATTR_REMOVE] = LP_CHANGE_XATTR_SET,
		[LP_CHANGE_ENTRY_REMOVE] = LP_CHANGE_ENTRY_SET,
	};
	uint64_t target = 0;
	change->name_idx = (uint8_t)lpi_gen_below(gen, 120); /* a multiple of all tables */
	if (lpi_change_is_entry(change->type))
		change->ino = lpi_gen_dir(gen);
	if (lpi_change_is_entry(change->type) && change->ino == lpi_gen_empty_dir(gen))
		change->name_idx %= 2;
	if (lpi_gen_has(gen, change, &target))
		change->other = lpi_gen_chance(gen, 9, 10) ? target : 0;
	else if (others[change->type] != 0 && !lpi_gen_is_out(gen, others[change->type]) &&
		 !lpi_gen_chance(gen, 1, 10))
		change->type = others[change->type];
	if (change->type == LP_CHANGE_ENTRY_SET)
		change->other = lpi_gen_any_ino(gen);
	if (change->type == LP_CHANGE_ENTRY_SET)
		change->ino_type = LP_INODE_TYPE_FILE;
	bool has_value = change->type == LP_CHANGE_XATTR_SET ||
			 change->type == LP_CHANGE_OMAP_SET ||
			 (change->type == LP_CHANGE_RECORD && lpi_gen_chance(gen, 2, 3)) ||
			 ((change->type == LP_GUARD_XATTR || change->type == LP_GUARD_RECORD) &&
			  lpi_gen_chance(gen, 1, 20));
	if (has_value)
		change->value_len = lpi_gen_value_len(gen);
}

/* Mostly as it is; else one of the three is another one. */
static inline void lpi_gen_owner(struct lpi_gen *gen, struct lpi_plan_change *change)
{
	struct lp_attrs attrs;
	uint64_t other = lpi_gen_below(gen, 30);
	lpi_gen_stat(gen, change->ino, &attrs);
	change->mask = attrs.mode ^ (other == 0 ? 1u : 0u);
	change->offset = attrs.uid ^ (other == 1 ? 1u : 0u);
	change->length = attrs.gid ^ (other == 2 ? 1u : 0u);
	change->has_owner = true;
}

static inline void lpi_gen_fill_inode(struct lpi_gen *gen, struct lpi_plan_change *change)
{
	const struct lpi_gen_inode *inode = lpi_gen_find(gen, change->ino);
	struct lp_attrs attrs;
	if (inode != NULL)
		change->ino_type = inode->type;
	if (change->type == LP_CHANGE_SET)
		change->mask = (uint32_t)lpi_gen_below(gen, LP_ATTRS_ALL + 1);
	if (change->type == LP_CHANGE_SET && change->seed % 8 == 0)
		change->mask = LP_ATTR_ATIME; /* by itself, as a read sets it */
	if (change->type == LP_CHANGE_LINK)
		change->delta = (int32_t)lpi_gen_below(gen, 4) - 1;
	if (change->type == LP_GUARD_NO_INODE && lpi_gen_chance(gen, 1, 2))
		change->ino = gen->next_nr;
	if (change->type != LP_GUARD_INODE)
		return;
	change->has_flags = change->seed % 8 == 0;
	if (lpi_gen_chance(gen, 1, 4))
		lpi_gen_owner(gen, change);
	if (lpi_gen_chance(gen, 1, 4))
		return;
	lpi_gen_stat(gen, change->ino, &attrs);
	change->version_nr = attrs.version_nr + lpi_gen_chance(gen, 1, 15);
}

static inline void lpi_gen_change(struct lpi_gen *gen, enum lp_change_type type, uint64_t ino,
				  struct lpi_plan_change *ret)
{
	*ret = (struct lpi_plan_change){.type = type,
					.ino = ino,
					.seed = (uint32_t)lp_prng_u64(&gen->prng),
					.value_len = LPI_PLAN_ABSENT};
	if (type == LP_CHANGE_CREATE) {
		lpi_gen_create(gen, ret);
	} else if (lpi_change_is_data(type)) {
		lpi_gen_data(gen, ret);
	} else if (type == LP_GUARD_EMPTY || type == LP_CHANGE_DIR) {
		ret->ino = lpi_gen_chance(gen, 1, 2) ? lpi_gen_empty_dir(gen) : lpi_gen_dir(gen);
		ret->drop = lpi_gen_chance(gen, 1, 5);
		ret->seal = lpi_gen_chance(gen, 1, 4);
		ret->unseal = !ret->seal && lpi_gen_chance(gen, 1, 2);
	} else if (lpi_change_is_entry(type) || lpi_change_is_xattr(type) ||
		   lpi_change_is_omap(type) || lpi_change_is_record(type)) {
		lpi_gen_named(gen, ret);
	} else {
		lpi_gen_fill_inode(gen, ret);
	}
}

static inline enum lp_change_type lpi_gen_guard_type(struct lpi_gen *gen)
{
	static const enum lp_change_type types[] = {
		LP_GUARD_INODE, LP_GUARD_INODE, LP_GUARD_INODE,  LP_GUARD_ENTRY,
		LP_GUARD_XATTR, LP_GUARD_EMPTY, LP_GUARD_RECORD, LP_GUARD_NO_INODE};
	uint64_t idx = lpi_gen_below(gen, LP_ARRAY_SIZE(types));
	if (types[idx] == LP_GUARD_NO_INODE && lpi_gen_chance(gen, 3, 4))
		return LP_GUARD_INODE;
	return types[idx];
}

/* By weight; what was left out, or comes a second time, becomes a SET. */
static inline enum lp_change_type lpi_gen_change_type(struct lpi_gen *gen)
{
	static const struct {
		enum lp_change_type type;
		uint32_t weight;
	} weights[] = {
		{LP_CHANGE_WRITE, 40},    {LP_CHANGE_TRUNCATE, 8},
		{LP_CHANGE_PUNCH, 6},     {LP_CHANGE_PREALLOC, 4},
		{LP_CHANGE_CLONE, 10},    {LP_CHANGE_CREATE, 8},
		{LP_CHANGE_SET, 6},       {LP_CHANGE_LINK, 4},
		{LP_CHANGE_REMOVE, 2},    {LP_CHANGE_XATTR_REMOVE, 8},
		{LP_CHANGE_OMAP_SET, 8},  {LP_CHANGE_OMAP_REMOVE, 4},
		{LP_CHANGE_ENTRY_SET, 6}, {LP_CHANGE_ENTRY_REMOVE, 8},
		{LP_CHANGE_DIR, 3},       {LP_CHANGE_RECORD, 5},
	};
	uint64_t sum = 0;
	enum lp_change_type type = LP_CHANGE_SET;
	for (size_t i = 0; i < LP_ARRAY_SIZE(weights); i++)
		sum += weights[i].weight;
	uint64_t at = lpi_gen_below(gen, sum);
	for (size_t i = 0; i < LP_ARRAY_SIZE(weights); i++) {
		if (at < weights[i].weight) {
			type = weights[i].type;
			break;
		}
		at -= weights[i].weight;
	}
	bool is_second = gen->has_data && lpi_change_is_data(type);
	return is_second || lpi_gen_is_out(gen, type) ? LP_CHANGE_SET : type;
}

/* --- Operations ------------------------------------------------------------------------------- */

static inline bool lpi_gen_is_removed(const struct lpi_plan *plan, uint64_t ino)
{
	for (uint32_t i = 0; i < plan->change_cnt; i++)
		if (plan->changes[i].type == LP_CHANGE_REMOVE && plan->changes[i].ino == ino)
			return true;
	return false;
}

/* Of two changes that one transaction had better not have both. */
static inline bool lpi_gen_collide(const struct lpi_plan_change *a, const struct lpi_plan_change *b)
{
	if (a->ino != b->ino)
		return false;
	if (a->type == LP_CHANGE_REMOVE || b->type == LP_CHANGE_REMOVE)
		return true;
	if (a->type == LP_CHANGE_CREATE && b->type == LP_CHANGE_PREALLOC)
		return true;
	if (a->type == LP_CHANGE_DIR && a->drop)
		return true;
	bool is_same_kind = (lpi_change_is_entry(a->type) && lpi_change_is_entry(b->type)) ||
			    (lpi_change_is_xattr(a->type) && lpi_change_is_xattr(b->type));
	if (!is_same_kind || lpi_change_is_guard(a->type))
		return false;
	struct lp_bytes name_a = lpi_plan_change_name(a);
	struct lp_bytes name_b = lpi_plan_change_name(b);
	return lp_key_compare(name_a.data, name_a.len, name_b.data, name_b.len) == 0;
}

static inline bool lpi_gen_last_collides(const struct lpi_plan *plan)
{
	for (uint32_t i = 0; i + 1 < plan->change_cnt; i++)
		if (lpi_gen_collide(&plan->changes[i], &plan->changes[plan->change_cnt - 1]))
			return true;
	return false;
}

static inline void lpi_gen_add(struct lpi_gen *gen, struct lpi_plan *plan, enum lp_change_type type)
{
	uint64_t ino = lpi_gen_any_ino(gen);
	/* Often the same inode again. */
	if (plan->change_cnt > 0 && lpi_gen_chance(gen, 1, 2))
		ino = plan->changes[plan->change_cnt - 1].ino;
	if (lpi_gen_is_removed(plan, ino) && lpi_gen_chance(gen, 9, 10))
		ino = lpi_gen_any_ino(gen);
	if (lpi_gen_is_out(gen, type))
		return;
	lpi_gen_change(gen, type, ino, &plan->changes[plan->change_cnt++]);
	if (lpi_gen_last_collides(plan) && lpi_gen_chance(gen, 19, 20))
		plan->change_cnt--;
}

/* Frees space, where there is too much. */
static inline bool lpi_gen_make_room(struct lpi_gen *gen, struct lpi_plan *plan)
{
	if (lpi_gen_data_bytes(gen) < gen->options.data_bytes_max)
		return false;
	struct lpi_plan_change *change = &plan->changes[0];
	lpi_gen_change(gen, LP_CHANGE_TRUNCATE, 0, change);
	change->ino = lpi_gen_file(gen);
	change->offset = lpi_gen_chance(gen, 1, 2) ? 0 : lpi_gen_below(gen, 100000);
	if (lpi_gen_chance(gen, 1, 3))
		change->type = LP_CHANGE_REMOVE;
	plan->change_cnt = 1;
	return true;
}

static inline void lpi_gen_txn(struct lpi_gen *gen, struct lpi_plan *plan)
{
	gen->has_data = false;
	if (gen->options.ordered && lpi_gen_chance(gen, 1, 2))
		plan->ack = LP_ACK_ORDERED;
	if (lpi_gen_make_room(gen, plan))
		return;
	if (gen->inode_cnt < 2) {
		lpi_gen_change(gen, LP_CHANGE_CREATE, gen->next_nr, &plan->changes[0]);
		plan->change_cnt = 1;
		return;
	}
	if (lpi_gen_chance(gen, 1, 4))
		lpi_gen_add(gen, plan, lpi_gen_guard_type(gen));
	uint64_t cnt = lpi_gen_chance(gen, 2, 3) ? 1 : 1 + lpi_gen_below(gen, 5);
	for (uint64_t i = 0; i < cnt; i++)
		lpi_gen_add(gen, plan, lpi_gen_change_type(gen));
	if (plan->change_cnt == 0)
		lpi_gen_change(gen, LP_CHANGE_SET, lpi_gen_any_ino(gen),
			       &plan->changes[plan->change_cnt++]);
	plan->heeds_flags = plan->changes[0].seed % 16 == 1;
}

static inline void lpi_gen_read(struct lpi_gen *gen, struct lpi_plan *plan)
{
	plan->ino = lpi_gen_file(gen);
	plan->offset = lpi_gen_offset(gen, plan->ino);
	plan->length = lpi_gen_chance(gen, 1, 3) ? LP_STORE_READ_MAX
						 : lpi_gen_length(gen, LP_STORE_READ_MAX);
}

static inline void lpi_gen_query(struct lpi_gen *gen, struct lpi_plan *plan)
{
	static const enum lp_store_space gets[] = {LP_STORE_XATTRS, LP_STORE_OMAP, LP_STORE_RECORDS,
						   LP_STORE_TARGET};
	static const enum lp_store_space lists[] = {LP_STORE_XATTRS, LP_STORE_OMAP,
						    LP_STORE_RECORDS, LP_STORE_ENTRIES};
	bool is_list = plan->opcode == LP_STORE_LIST;
	uint64_t idx = lpi_gen_below(gen, 4);
	plan->space = is_list ? lists[idx] : gets[idx];
	plan->name_idx = (uint8_t)lpi_gen_below(gen, 120);
	plan->bound = (uint8_t)lpi_gen_below(gen, 4);
	plan->flag = lpi_gen_chance(gen, 1, 2);
	/* Some are too short, some long enough for everything. */
	static const uint32_t buf_lens[] = {300, 8192, 8192, LP_STORE_VALUE_MAX + 2048};
	plan->buf_len = buf_lens[lpi_gen_below(gen, LP_ARRAY_SIZE(buf_lens))];
	if (plan->buf_len == buf_lens[0])
		plan->buf_len = (uint32_t)lpi_gen_below(gen, plan->buf_len);
	plan->items_max = lpi_gen_chance(gen, 1, 2) ? 0 : (uint32_t)lpi_gen_below(gen, 4);
	plan->ino = lpi_gen_any_ino(gen);
	bool of_dir = plan->opcode == LP_STORE_LOOKUP || plan->opcode == LP_STORE_DIR ||
		      (is_list && plan->space == LP_STORE_ENTRIES);
	if (of_dir)
		plan->ino = lpi_gen_dir(gen);
	if (plan->opcode == LP_STORE_LOOKUP) {
		const struct lpi_plan_change entry = {
			.type = LP_GUARD_ENTRY, .ino = plan->ino, .name_idx = plan->name_idx};
		(void)lpi_gen_has(gen, &entry, &plan->other); /* 0 when there is none */
	}
}

static inline void lpi_gen_next(struct lpi_gen *gen, struct lpi_plan *ret)
{
	static const enum lp_store_opcode others[] = {
		LP_STORE_READ, LP_STORE_READ, LP_STORE_READ, LP_STORE_READ,
		LP_STORE_STAT, LP_STORE_STAT, LP_STORE_SEEK, LP_STORE_LOOKUP,
		LP_STORE_GET,  LP_STORE_LIST, LP_STORE_DIR,  LP_STORE_SYNC};
	*ret = (struct lpi_plan){.opcode = LP_STORE_TXN};
	if (gen->inode_cnt < 2 || lpi_gen_chance(gen, 3, 5)) {
		lpi_gen_txn(gen, ret);
		return;
	}
	ret->opcode = others[lpi_gen_below(gen, LP_ARRAY_SIZE(others))];
	if (ret->opcode == LP_STORE_READ || ret->opcode == LP_STORE_SEEK) {
		lpi_gen_read(gen, ret);
		ret->flag = lpi_gen_chance(gen, 1, 2);
	} else {
		lpi_gen_query(gen, ret);
	}
}

#endif
