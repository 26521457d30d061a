/* SPDX-License-Identifier: Apache-2.0 */
/* First the kind, by the weights of the mood; then what it is about, out of what the model has. */
#include "tests/whole/draw.h"

#include <stddef.h>

#include "namespace/ns.h"

#define COPY_MAX (UINT64_C(2) << 30)

/* --- Small choices ---------------------------------------------------------------------------- */

static uint32_t pick(struct lpi_whole_draw *draw, uint64_t below)
{
	return (uint32_t)lp_prng_below(&draw->prng, below);
}

static bool once_in(struct lpi_whole_draw *draw, uint32_t times)
{
	return pick(draw, times) == 0;
}

static uint32_t pick_name(struct lpi_whole_draw *draw)
{
	return pick(draw, draw->names);
}

/* Of the type, or 0 for any; UINT32_MAX: there is none. */
static uint32_t pick_of(struct lpi_whole_draw *draw, const struct lpi_whole *whole, uint32_t type)
{
	uint32_t first = pick(draw, whole->node_cnt);
	for (uint32_t i = 0; i < whole->node_cnt; i++) {
		const struct lpi_whole_node *node = &whole->nodes[(first + i) % whole->node_cnt];
		if (type == 0 || node->type == type)
			return node->slot;
	}
	return UINT32_MAX;
}

/* Mostly of that type; now and then something that was there once, or is something else. */
static uint32_t pick_node(struct lpi_whole_draw *draw, const struct lpi_whole *whole, uint32_t type)
{
	if (once_in(draw, 40))
		return LPI_WHOLE_SLOTS_EACH * pick(draw, draw->next_id);
	uint32_t slot = pick_of(draw, whole, once_in(draw, 30) ? 0 : type);
	return slot == UINT32_MAX ? LPI_WHOLE_ROOT : slot;
}

static uint32_t pick_dir(struct lpi_whole_draw *draw, const struct lpi_whole *whole)
{
	return pick_node(draw, whole, LP_INODE_TYPE_DIR);
}

/* Sizes and offsets where something changes: inline data, blocks, leaves of the map, the end of
 * what a file may be. */
static uint64_t pick_edge(struct lpi_whole_draw *draw, uint64_t max)
{
	static const uint64_t edges[] = {0, 1, 100, 2048, 4096, 8192, 65536, 131072, 262144};
	uint64_t edge = edges[pick(draw, LP_ARRAY_SIZE(edges))];
	uint64_t at = edge + pick(draw, 3);
	at = at == 0 ? 0 : at - 1;
	if (once_in(draw, 3))
		at = pick(draw, 300000);
	return LP_MIN(at, max);
}

static uint64_t pick_length(struct lpi_whole_draw *draw)
{
	uint64_t max = once_in(draw, 4) ? 270000 : 20000;
	uint64_t length = pick_edge(draw, max);
	return LP_MAX(length, 1);
}

static uint64_t pick_offset(struct lpi_whole_draw *draw)
{
	static const uint64_t far[] = {UINT64_C(1) << 30, (UINT64_C(1) << 40) - 1,
				       LP_STORE_FILE_MAX - 4096, LP_STORE_FILE_MAX - 1,
				       LP_STORE_FILE_MAX};
	if (once_in(draw, 25))
		return far[pick(draw, LP_ARRAY_SIZE(far))];
	return pick_edge(draw, UINT64_MAX);
}

static uint32_t pick_seed(struct lpi_whole_draw *draw)
{
	return pick(draw, UINT32_C(1) << 30);
}

/* A condition that a version is to hold, and sometimes does not. */
static void pick_version(struct lpi_whole_draw *draw, struct lpi_whole_op *op)
{
	if (!once_in(draw, 8))
		return;
	op->condition = LP_NS_IF_VERSION;
	op->flags |= once_in(draw, 3) ? LPI_WHOLE_WRONG : 0;
}

static void pick_condition(struct lpi_whole_draw *draw, struct lpi_whole_op *op)
{
	if (once_in(draw, 3))
		op->condition = pick(draw, LP_NS_IF_VERSION + 1);
	if (op->condition == LP_NS_IF_VERSION && once_in(draw, 3))
		op->flags |= LPI_WHOLE_WRONG;
}

static void pick_new_path(struct lpi_whole_draw *draw, uint32_t *names, uint32_t *depth)
{
	*depth = 1 + pick(draw, 3);
	for (uint32_t i = 0; i < *depth; i++)
		names[i] = i + 1 < *depth ? pick(draw, 3) : pick_name(draw);
}

/* Mostly one that leads somewhere. */
static void pick_path(struct lpi_whole_draw *draw, const struct lpi_whole *whole, uint32_t *names,
		      uint32_t *depth)
{
	uint32_t up[LPI_WHOLE_DEPTH_MAX];
	uint32_t cnt = 0;
	if (whole->entry_cnt == 0 || once_in(draw, 4)) {
		pick_new_path(draw, names, depth);
		return;
	}
	const struct lpi_whole_entry *entry = &whole->entries[pick(draw, whole->entry_cnt)];
	for (;; cnt++) {
		if (cnt == LPI_WHOLE_DEPTH_MAX) {
			pick_new_path(draw, names, depth);
			return;
		}
		up[cnt] = entry->name;
		if (entry->dir == LPI_WHOLE_ROOT)
			break;
		uint32_t dir = entry->dir;
		for (uint32_t i = 0; i < whole->entry_cnt; i++)
			if (whole->entries[i].node == dir)
				entry = &whole->entries[i];
	}
	*depth = cnt + 1;
	for (uint32_t i = 0; i <= cnt; i++)
		names[i] = up[cnt - i];
}

/* --- Each kind -------------------------------------------------------------------------------- */

static void draw_make(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		      struct lpi_whole_op *op)
{
	uint32_t kind = pick(draw, 12);
	op->type = LP_INODE_TYPE_FILE;
	op->dir = pick_dir(draw, whole);
	op->name = pick_name(draw);
	if (kind < 4) {
		op->type = LP_INODE_TYPE_DIR;
		op->flags |= once_in(draw, 2) ? LPI_WHOLE_SPREAD : 0;
	} else if (kind == 4) {
		op->type = LP_INODE_TYPE_SYMLINK;
	} else if (kind == 5) {
		op->type = LP_INODE_TYPE_FIFO +
			   pick(draw, LP_INODE_TYPE_BLOCKDEV - LP_INODE_TYPE_FIFO + 1);
	} else if (kind == 6) {
		op->flags |= LPI_WHOLE_UNNAMED;
		op->dir = LPI_WHOLE_ROOT;
	} else {
		op->flags |= kind == 7 ? LPI_WHOLE_AND_OPEN : 0;
		op->flags |= kind == 7 || kind == 8 ? LPI_WHOLE_OR_OPEN : 0;
	}
	op->items = once_in(draw, 5) ? 1 + pick(draw, 4) : 0;
}

static void draw_link(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		      struct lpi_whole_op *op)
{
	op->node = pick_node(draw, whole, LP_INODE_TYPE_FILE);
	op->dir = pick_dir(draw, whole);
	op->name = pick_name(draw);
}

/* One that is there, mostly. */
static void pick_entry(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		       struct lpi_whole_op *op)
{
	op->dir = pick_dir(draw, whole);
	op->name = pick_name(draw);
	if (whole->entry_cnt == 0 || once_in(draw, 6))
		return;
	const struct lpi_whole_entry *entry = &whole->entries[pick(draw, whole->entry_cnt)];
	op->dir = entry->dir;
	op->name = entry->name;
}

static void draw_remove(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			struct lpi_whole_op *op)
{
	pick_entry(draw, whole, op);
	const struct lpi_whole_entry *entry = lpi_whole_entry_find(whole, op->dir, op->name);
	bool is_dir = entry != NULL && lpi_whole_is_dir(lpi_whole_find(whole, entry->node));
	if (is_dir != once_in(draw, 12))
		op->flags |= LPI_WHOLE_IS_DIR;
}

static void draw_rename(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			struct lpi_whole_op *op)
{
	static const uint32_t flags[] = {0, 0, 0, LPI_WHOLE_NOREPLACE, LPI_WHOLE_EXCHANGE};
	pick_entry(draw, whole, op);
	op->to_dir = once_in(draw, 3) ? op->dir : pick_dir(draw, whole);
	op->to_name = pick_name(draw);
	op->flags |= flags[pick(draw, LP_ARRAY_SIZE(flags))];
}

static void draw_about_node(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			    struct lpi_whole_op *op)
{
	op->node = pick_node(draw, whole, once_in(draw, 3) ? 0 : LP_INODE_TYPE_FILE);
}

static void draw_close(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		       struct lpi_whole_op *op)
{
	uint32_t first = pick(draw, whole->node_cnt);
	for (uint32_t i = 0; i < whole->node_cnt; i++) {
		const struct lpi_whole_node *node = &whole->nodes[(first + i) % whole->node_cnt];
		if (node->opens > 0) {
			op->node = node->slot;
			return;
		}
	}
	op->kind = LPI_WHOLE_STAT;
	draw_about_node(draw, whole, op);
}

static void draw_set(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		     struct lpi_whole_op *op)
{
	static const uint32_t masks[] = {LP_ATTR_MODE, LP_ATTR_UID | LP_ATTR_GID, LP_ATTR_MTIME,
					 LP_ATTR_MODE | LP_ATTR_MTIME};
	draw_about_node(draw, whole, op);
	op->mask = masks[pick(draw, LP_ARRAY_SIZE(masks))];
	if (lpi_whole_time(op->seed) == 0)
		op->seed++;
}

static void draw_data(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		      struct lpi_whole_op *op)
{
	op->node = pick_node(draw, whole, LP_INODE_TYPE_FILE);
	op->offset = pick_offset(draw);
	op->length = pick_length(draw);
	op->path = pick(draw, LP_PATH_CNT);
	pick_version(draw, op);
	if (op->kind == LPI_WHOLE_APPEND)
		op->offset = 0;
}

/* Mostly what can be cloned: within one shard, whole blocks, or up to where both end. */
static void draw_clone(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		       struct lpi_whole_op *op)
{
	op->node = pick_node(draw, whole, LP_INODE_TYPE_FILE);
	op->to_dir = pick_node(draw, whole, LP_INODE_TYPE_FILE);
	const struct lpi_whole_node *src = lpi_whole_find(whole, op->to_dir);
	uint64_t size = src == NULL ? 0 : LP_MIN(src->size_bytes, 400000);
	op->src_offset = lp_prng_below(&draw->prng, size / LP_BLOCK_BYTES + 1) * LP_BLOCK_BYTES;
	op->offset = pick_edge(draw, 300000) / LP_BLOCK_BYTES * LP_BLOCK_BYTES;
	op->length = size - LP_MIN(size, op->src_offset);
	if (once_in(draw, 2))
		op->length = (1 + pick(draw, 8)) * LP_BLOCK_BYTES;
	else if (!once_in(draw, 3))
		op->length = op->length / LP_BLOCK_BYTES * LP_BLOCK_BYTES;
	if (op->length == 0)
		op->length = 1;
}

static void draw_item(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		      struct lpi_whole_op *op)
{
	static const uint32_t lens[] = {0, 1, 20, 900, 1100, 4000, 4000, LPI_WHOLE_VALUE_MAX};
	bool is_omap = op->kind == LPI_WHOLE_OMAP_SET || op->kind == LPI_WHOLE_OMAP_REMOVE;
	op->node =
		pick_node(draw, whole, once_in(draw, 4) ? LP_INODE_TYPE_DIR : LP_INODE_TYPE_FILE);
	op->name = pick(draw, is_omap ? LPI_WHOLE_OMAP_NAMES : LPI_WHOLE_XATTR_ACL + 1);
	op->length = lens[pick(draw, LP_ARRAY_SIZE(lens))];
	if (!is_omap && op->name == LPI_WHOLE_XATTR_ACL)
		op->length = 28;
	/* Of a directory that a put made it is two changes, one after the other. */
	const struct lpi_whole_node *node = lpi_whole_find(whole, op->node);
	if (lpi_whole_is_dir(node) && (node->flags & LP_INODE_FLAG_MADE_BY_PUT) != 0)
		op->flags &= ~LPI_WHOLE_ORDERED;
	pick_version(draw, op);
}

static void draw_put(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		     struct lpi_whole_op *op)
{
	pick_path(draw, whole, op->names, &op->depth);
	pick_condition(draw, op);
	op->length = once_in(draw, 8) ? 0 : pick_length(draw);
	op->path = pick(draw, LP_PATH_CNT);
	op->items = once_in(draw, 4) ? pick(draw, 13) : 0;
	op->flags &= ~LPI_WHOLE_ORDERED;
}

static void draw_commit(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			struct lpi_whole_op *op)
{
	draw_put(draw, whole, op);
	op->length = 0;
	for (uint32_t i = 0; i < whole->node_cnt; i++) {
		if (whole->nodes[i].is_unnamed) {
			op->node = whole->nodes[i].slot;
			return;
		}
	}
	op->kind = LPI_WHOLE_UPLOAD;
	op->items = 0;
}

static void draw_delete(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			struct lpi_whole_op *op)
{
	pick_path(draw, whole, op->names, &op->depth);
	pick_condition(draw, op);
	op->flags &= ~LPI_WHOLE_ORDERED;
	op->flags |= once_in(draw, 2) ? LPI_WHOLE_IS_DIR : 0;
}

static void draw_two_paths(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			   struct lpi_whole_op *op)
{
	pick_path(draw, whole, op->names, &op->depth);
	if (once_in(draw, 2))
		pick_path(draw, whole, op->to_names, &op->to_depth);
	else
		pick_new_path(draw, op->to_names, &op->to_depth);
	pick_condition(draw, op);
	op->flags &= ~LPI_WHOLE_ORDERED;
	/* Each 16 MiB of it are a step of their own, holes or not. */
	const struct lpi_whole_node *source = lpi_whole_walk(whole, op->names, op->depth);
	if (op->kind == LPI_WHOLE_COPY && source != NULL && source->size_bytes > COPY_MAX)
		op->kind = LPI_WHOLE_WALK;
}

static void draw_walk(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		      struct lpi_whole_op *op)
{
	pick_path(draw, whole, op->names, &op->depth);
}

static void draw_dir(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		     struct lpi_whole_op *op)
{
	op->dir = pick_dir(draw, whole);
}

static void draw_list(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		      struct lpi_whole_op *op)
{
	if (once_in(draw, 2))
		pick_path(draw, whole, op->names, &op->depth);
	if (once_in(draw, 2))
		pick_path(draw, whole, op->to_names, &op->to_depth);
	/* Cut off somewhere, or not. */
	op->offset = once_in(draw, 2) ? pick(draw, 6) : LPI_WHOLE_PATH_BYTES;
	op->src_offset = once_in(draw, 3) ? pick(draw, 6) : LPI_WHOLE_PATH_BYTES;
	op->flags |= once_in(draw, 2) ? LPI_WHOLE_DELIMIT : 0;
	op->items = 1 + pick(draw, 30);
}

static void draw_nothing(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			 struct lpi_whole_op *op)
{
	(void)draw;
	(void)whole;
	(void)op;
}

static void draw_seek(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		      struct lpi_whole_op *op)
{
	draw_data(draw, whole, op);
	op->condition = 0;
	op->flags = once_in(draw, 2) ? LPI_WHOLE_HOLE : 0;
}

static void draw_xattrs(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
			struct lpi_whole_op *op)
{
	draw_about_node(draw, whole, op);
	op->flags |= once_in(draw, 2) ? LPI_WHOLE_OMAP : 0;
}

/* --- All -------------------------------------------------------------------------------------- */

static const struct {
	uint8_t weight[LPI_WHOLE_MOOD_CNT];
	void (*draw)(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		     struct lpi_whole_op *op);
} kinds[LPI_WHOLE_KIND_CNT] = {
	[LPI_WHOLE_MAKE] = {{14, 6, 24, 5}, draw_make},
	[LPI_WHOLE_LINK] = {{3, 1, 6, 2}, draw_link},
	[LPI_WHOLE_REMOVE] = {{8, 2, 14, 4}, draw_remove},
	[LPI_WHOLE_RENAME] = {{9, 2, 14, 4}, draw_rename},
	[LPI_WHOLE_OPEN] = {{2, 1, 2, 1}, draw_about_node},
	[LPI_WHOLE_CLOSE] = {{3, 2, 3, 2}, draw_close},
	[LPI_WHOLE_SET] = {{4, 2, 3, 3}, draw_set},
	[LPI_WHOLE_WRITE] = {{8, 25, 1, 3}, draw_data},
	[LPI_WHOLE_APPEND] = {{4, 8, 1, 2}, draw_data},
	[LPI_WHOLE_TRUNCATE] = {{4, 10, 1, 1}, draw_data},
	[LPI_WHOLE_PUNCH] = {{3, 8, 0, 1}, draw_data},
	[LPI_WHOLE_PREALLOC] = {{2, 4, 0, 0}, draw_data},
	[LPI_WHOLE_CLONE] = {{4, 12, 0, 1}, draw_clone},
	[LPI_WHOLE_XATTR_SET] = {{4, 2, 1, 3}, draw_item},
	[LPI_WHOLE_XATTR_REMOVE] = {{2, 1, 1, 1}, draw_item},
	[LPI_WHOLE_OMAP_SET] = {{3, 2, 0, 2}, draw_item},
	[LPI_WHOLE_OMAP_REMOVE] = {{1, 1, 0, 1}, draw_item},
	[LPI_WHOLE_PUT] = {{8, 5, 4, 22}, draw_put},
	[LPI_WHOLE_UPLOAD] = {{2, 1, 0, 4}, draw_put},
	[LPI_WHOLE_COMMIT] = {{2, 1, 0, 5}, draw_commit},
	[LPI_WHOLE_DELETE] = {{5, 2, 4, 14}, draw_delete},
	[LPI_WHOLE_COPY] = {{3, 4, 1, 8}, draw_two_paths},
	[LPI_WHOLE_MOVE] = {{4, 1, 3, 10}, draw_two_paths},
	[LPI_WHOLE_SYNC] = {{3, 3, 3, 1}, draw_nothing},
	[LPI_WHOLE_STAT] = {{2, 2, 2, 2}, draw_about_node},
	[LPI_WHOLE_LOOKUP] = {{2, 0, 3, 1}, pick_entry},
	[LPI_WHOLE_WALK] = {{2, 0, 1, 3}, draw_walk},
	[LPI_WHOLE_READ] = {{4, 10, 0, 2}, draw_data},
	[LPI_WHOLE_SEEK] = {{2, 5, 0, 0}, draw_seek},
	[LPI_WHOLE_XATTRS] = {{2, 1, 0, 2}, draw_xattrs},
	[LPI_WHOLE_READDIR] = {{2, 0, 5, 1}, draw_dir},
	[LPI_WHOLE_LIST] = {{2, 0, 4, 4}, draw_list},
};

void lpi_whole_draw_init(struct lpi_whole_draw *draw, uint64_t seed)
{
	static const uint32_t few[] = {2, 4, LPI_WHOLE_NAMES_FEW};
	*draw = (struct lpi_whole_draw){.next_id = 1, .pages_max = 1500};
	lp_prng_init(&draw->prng, seed);
	draw->mood = (enum lpi_whole_mood)pick(draw, LPI_WHOLE_MOOD_CNT);
	draw->names = few[pick(draw, LP_ARRAY_SIZE(few))];
	if (draw->mood == LPI_WHOLE_MOOD_NAMES && once_in(draw, 2))
		draw->names = 300;
	draw->orders = !once_in(draw, 3);
}

static uint32_t draw_kind(struct lpi_whole_draw *draw)
{
	uint32_t sum = 0;
	uint32_t kind = 0;
	for (uint32_t i = 0; i < LPI_WHOLE_KIND_CNT; i++)
		sum += kinds[i].weight[draw->mood];
	uint32_t at = pick(draw, sum);
	while (at >= kinds[kind].weight[draw->mood])
		at -= kinds[kind++].weight[draw->mood];
	return kind;
}

/* The largest file is cut. */
static void draw_cut(const struct lpi_whole *whole, struct lpi_whole_op *op)
{
	uint32_t most = 0;
	op->kind = LPI_WHOLE_TRUNCATE;
	for (uint32_t i = 0; i < whole->node_cnt; i++) {
		if (whole->nodes[i].body->block_cnt > most) {
			most = whole->nodes[i].body->block_cnt;
			op->node = whole->nodes[i].slot;
		}
	}
}

void lpi_whole_draw_op(struct lpi_whole_draw *draw, const struct lpi_whole *whole,
		       struct lpi_whole_op *ret_op)
{
	struct lpi_whole_op *op = ret_op;
	bool is_full = lpi_whole_pages(whole) > draw->pages_max;
	*op = (struct lpi_whole_op){.kind = is_full ? LPI_WHOLE_TRUNCATE : draw_kind(draw),
				    .id = draw->next_id,
				    .home = pick(draw, 8),
				    .mode = pick(draw, 010000),
				    .seed = pick_seed(draw)};
	if (draw->orders && !once_in(draw, 3))
		op->flags = LPI_WHOLE_ORDERED;
	if (is_full)
		draw_cut(whole, op);
	else
		kinds[op->kind].draw(draw, whole, op);
	draw->next_id++;
}
