/* SPDX-License-Identifier: Apache-2.0 */
/* A chunk has two bitmaps: blocks durably in use, and blocks that are not in use but wait to become
 * free. A block is in exactly one state: in the allocator; waiting; durably in use; or taken,
 * which is none of the three. Waiting blocks go to the allocator by settle(), which leaves out
 * what is pinned.
 *
 * Of a split chunk the shard has only some blocks, which a third bitmap says. The others are in
 * none of these states: the allocator does not know them, and no durable frame may speak of them.
 *
 * Pins are in buckets by the stretch of blocks in which they begin, in no order: each operation
 * pins and unpins, while few look for pins, and those for few blocks. A search begins so many
 * blocks earlier as the longest pin of the kind has; holds may be longer than any I/O.
 *
 * For checkpoints a chunk knows three kinds of first changes:
 *   oldest_seq      the first that no persisted record contains: it holds the log's start
 *   recs[].after    the first that this record, made but not persisted yet, does not contain
 *   first_new_seq   the first that no record contains: the chunk wants another one
 * When a record is persisted its `after` becomes the oldest. A chunk has at most two records on
 * their way: more would not move the log's start further.
 *
 * Long because all of it changes the states of one structure, the chunk. */
#include "store/space/space.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/struct/tree.h"
#include "format/space.h"
#include "store/space/record.h"

#define SPACE_MAGIC       UINT32_C(0x4c534350)
#define RECORDS_IN_FLIGHT 2u
#define STRETCH_SHIFT     6u   /* 64 blocks */
#define PIN_BUCKETS       256u /* a power of two: stretches side by side are in different ones */

struct record_in_flight {
	uint64_t commit_seq;
	uint64_t first_seq; /* the chunk's first_new_seq when the record was made */
	uint64_t after_seq; /* 0: no change since */
};

struct chunk {
	uint32_t idx;
	uint64_t as_of; /* of the record that was loaded; 0 without */
	struct lp_bitmap used;
	struct lp_bitmap waiting;
	struct lp_bitmap mine; /* has no words while all are */
	uint64_t mine_cnt;
	bool is_guest; /* another shard leased it */
	uint64_t used_cnt;
	uint64_t waiting_cnt;
	uint64_t oldest_seq; /* 0: none, as in the others */
	uint64_t first_new_seq;
	unsigned rec_cnt;
	struct record_in_flight recs[RECORDS_IN_FLIGHT];
	struct lp_tree_node by_oldest; /* linked while oldest_seq != 0 */
	struct lp_list_node todo;      /* linked while it wants a record and may have one */
	uint64_t words[];              /* of both bitmaps */
};

static bool chunk_is_older(const struct chunk *a, const struct chunk *b)
{
	return a->oldest_seq < b->oldest_seq || (a->oldest_seq == b->oldest_seq && a->idx < b->idx);
}

LP_TREE_DEFINE(chunks_by_oldest, struct chunk, by_oldest, chunk_is_older);
LP_LIST_DEFINE(pin_list, struct lp_space_pin, node);
LP_LIST_DEFINE(chunk_list, struct chunk, todo);

/* I/O, and holds, which may be much longer. */
enum pin_kind { PIN_IO, PIN_HOLD, PIN_KINDS };

struct pins_of_kind {
	uint64_t cnt;
	uint64_t longest_blocks; /* none that is there is longer */
};

struct lp_space {
	uint32_t magic;
	bool is_recovered;
	bool is_stuck; /* a release found no memory: waiting blocks are to be tried again */
	struct lp_space_config config;
	struct lp_alloc *alloc; /* NULL until recovered */
	void (*freed)(void *arg, struct lp_extent extent);
	void *freed_arg;
	uint64_t durable_seq;
	uint64_t used_blocks;
	uint64_t waiting_blocks;
	uint64_t released_blocks; /* in all */
	uint32_t guest_cnt;       /* chunks in which the shard is a guest */
	struct pins_of_kind pins_of[PIN_KINDS];
	struct chunks_by_oldest by_oldest;
	struct chunk_list todo;
	struct pin_list pins[PIN_BUCKETS]; /* by the stretch of their first block */
	struct lp_bitmap owned;            /* chunks: asked for each I/O, and never cold */
	struct chunk *chunks[]; /* chunk_cnt_max; NULL for those not owned and without a record */
};

static uint32_t bucket_of(uint64_t stretch)
{
	return (uint32_t)(stretch & (PIN_BUCKETS - 1));
}

/* A part of an extent that lies in one chunk, in blocks of the chunk. */
struct piece {
	struct chunk *chunk;
	uint64_t from;
	uint64_t to;
};

static uint64_t chunk_base(const struct lp_space *space, uint32_t idx)
{
	return space->config.base_block + (uint64_t)idx * space->config.chunk_blocks;
}

static uint32_t chunk_of(const struct lp_space *space, uint64_t block)
{
	LP_ASSERT(block >= space->config.base_block);
	uint64_t idx = (block - space->config.base_block) / space->config.chunk_blocks;
	LP_ASSERT(idx < space->config.chunk_cnt_max);
	return (uint32_t)idx;
}

/* The first piece of the extent, which is made shorter by it. False when the extent has no more, or
 * lies outside the chunks: then its cnt is not 0. piece->chunk may be NULL. */
static bool next_piece(const struct lp_space *space, struct lp_extent *extent, struct piece *piece)
{
	uint64_t blocks = space->config.chunk_blocks;
	uint64_t all = blocks * space->config.chunk_cnt_max;
	if (extent->cnt == 0 || extent->block < space->config.base_block ||
	    lp_range_outside(extent->block - space->config.base_block, extent->cnt, all))
		return false;
	uint64_t at = extent->block - space->config.base_block;
	piece->chunk = space->chunks[at / blocks];
	piece->from = at % blocks;
	piece->to = LP_MIN(piece->from + extent->cnt, blocks);
	extent->block += piece->to - piece->from;
	extent->cnt -= piece->to - piece->from;
	return true;
}

/* The same for an extent that our own code named: it lies in owned chunks. */
static bool next_own_piece(const struct lp_space *space, struct lp_extent *extent,
			   struct piece *piece)
{
	if (!next_piece(space, extent, piece)) {
		LP_ASSERT(extent->cnt == 0);
		return false;
	}
	LP_ASSERT(piece->chunk != NULL);
	LP_ASSERT(lp_space_owns(space, piece->chunk->idx));
	return true;
}

/* --- Whose the blocks are --- */

static bool is_mine(const struct chunk *chunk, uint64_t from, uint64_t to)
{
	return chunk->mine.words == NULL || lp_bitmap_is_set(&chunk->mine, from, to);
}

/* Gives the chunk the bitmap, all as it is. */
static int split_chunk(struct chunk *chunk)
{
	uint64_t bit_cnt = chunk->used.bit_cnt;
	if (chunk->mine.words != NULL)
		return 0;
	uint64_t *words = calloc(lp_bitmap_word_cnt(bit_cnt), sizeof(*words));
	if (words == NULL)
		return -ENOMEM;
	lp_bitmap_init(&chunk->mine, words, bit_cnt);
	if (chunk->mine_cnt > 0)
		lp_bitmap_set(&chunk->mine, 0, bit_cnt);
	return 0;
}

static void count_mine(struct chunk *chunk)
{
	uint64_t bit_cnt = chunk->used.bit_cnt;
	chunk->mine_cnt = lp_bitmap_count(&chunk->mine, 0, bit_cnt);
	if (chunk->mine_cnt < bit_cnt)
		return;
	free(chunk->mine.words);
	chunk->mine.words = NULL;
}

/* --- Birth and death --- */

static bool config_is_valid(const struct lp_space_config *config)
{
	return lp_is_power_of_two(config->chunk_blocks) &&
	       config->chunk_blocks >= LP_SPACE_CHUNK_BLOCKS_MIN &&
	       config->chunk_blocks <= LP_SPACE_CHUNK_BLOCKS_MAX &&
	       config->chunk_cnt_max <= LP_SPACE_CHUNKS_MAX &&
	       config->base_block <= LP_ALLOC_BLOCKS_MAX &&
	       (uint64_t)config->chunk_blocks * config->chunk_cnt_max <=
		       LP_ALLOC_BLOCKS_MAX - config->base_block;
}

int lp_space_new(const struct lp_space_config *config, struct lp_space **ret_space)
{
	LP_ASSERT(config_is_valid(config));
	size_t bytes = sizeof(struct lp_space) + config->chunk_cnt_max * sizeof(struct chunk *);
	uint64_t words = lp_bitmap_word_cnt(LP_MAX(config->chunk_cnt_max, 1u));
	struct lp_space *space = calloc(1, bytes);
	uint64_t *owned = calloc(words, sizeof(*owned));
	if (space == NULL || owned == NULL) {
		free(space);
		free(owned);
		return -ENOMEM;
	}
	lp_bitmap_init(&space->owned, owned, LP_MAX(config->chunk_cnt_max, 1u));
	space->magic = SPACE_MAGIC;
	space->config = *config;
	chunks_by_oldest_init(&space->by_oldest);
	chunk_list_init(&space->todo);
	for (uint32_t i = 0; i < PIN_BUCKETS; i++)
		pin_list_init(&space->pins[i]);
	*ret_space = space;
	return 0;
}

static void drop_chunk(struct lp_space *space, struct chunk *chunk)
{
	if (chunks_by_oldest_is_linked(chunk))
		chunks_by_oldest_remove(&space->by_oldest, chunk);
	if (chunk_list_is_linked(chunk))
		chunk_list_remove(chunk);
	lp_bitmap_clear(&space->owned, chunk->idx, chunk->idx + UINT64_C(1));
	space->chunks[chunk->idx] = NULL;
	space->guest_cnt -= chunk->is_guest;
	free(chunk->mine.words);
	free(chunk);
}

void lp_space_free(struct lp_space *space)
{
	if (space == NULL)
		return;
	LP_ASSERT(space->magic == SPACE_MAGIC);
	LP_ASSERT(space->pins_of[PIN_IO].cnt + space->pins_of[PIN_HOLD].cnt == 0);
	for (uint32_t i = 0; i < space->config.chunk_cnt_max; i++) {
		if (space->chunks[i] != NULL)
			drop_chunk(space, space->chunks[i]);
	}
	lp_alloc_free(space->alloc);
	free(space->owned.words);
	space->magic = 0;
	free(space);
}

static int make_chunk(struct lp_space *space, uint32_t idx, struct chunk **ret_chunk)
{
	uint64_t words = lp_bitmap_word_cnt(space->config.chunk_blocks);
	struct chunk *chunk = calloc(1, sizeof(*chunk) + 2 * words * sizeof(uint64_t));
	if (chunk == NULL)
		return -ENOMEM;
	LP_ASSERT(space->chunks[idx] == NULL);
	chunk->idx = idx;
	lp_bitmap_init(&chunk->used, chunk->words, space->config.chunk_blocks);
	lp_bitmap_init(&chunk->waiting, chunk->words + words, space->config.chunk_blocks);
	space->chunks[idx] = chunk;
	*ret_chunk = chunk;
	return 0;
}

/* --- Changes of the durable state --- */

static void note_change(struct lp_space *space, struct chunk *chunk, uint64_t seq)
{
	if (chunk->oldest_seq == 0) {
		chunk->oldest_seq = seq;
		chunks_by_oldest_insert(&space->by_oldest, chunk);
	}
	for (unsigned i = 0; i < chunk->rec_cnt; i++) {
		if (chunk->recs[i].after_seq == 0)
			chunk->recs[i].after_seq = seq;
	}
	if (chunk->first_new_seq == 0) {
		chunk->first_new_seq = seq;
		if (chunk->rec_cnt < RECORDS_IN_FLIGHT)
			chunk_list_push_back(&space->todo, chunk);
	}
}

/* False, and nothing changed, unless none of the blocks is in use. */
static bool take_piece(struct lp_space *space, const struct piece *piece, uint64_t seq)
{
	struct chunk *chunk = piece->chunk;
	uint64_t cnt = piece->to - piece->from;
	LP_ASSERT(is_mine(chunk, piece->from, piece->to));
	if (!lp_bitmap_is_clear(&chunk->used, piece->from, piece->to))
		return false;
	lp_bitmap_set(&chunk->used, piece->from, piece->to);
	chunk->used_cnt += cnt;
	space->used_blocks += cnt;
	note_change(space, chunk, seq);
	return true;
}

static void wait_and_settle(struct lp_space *space, const struct piece *piece);

/* All of it is in use. */
static void free_run(struct lp_space *space, const struct piece *run, uint64_t seq)
{
	struct chunk *chunk = run->chunk;
	uint64_t cnt = run->to - run->from;
	lp_bitmap_clear(&chunk->used, run->from, run->to);
	chunk->used_cnt -= cnt;
	space->used_blocks -= cnt;
	note_change(space, chunk, seq);
	if (!space->is_recovered)
		return;
	if (space->freed != NULL)
		space->freed(space->freed_arg,
			     (struct lp_extent){chunk_base(space, chunk->idx) + run->from, cnt});
	wait_and_settle(space, run);
}

/* False when not all of it was in use: what was is free now. */
static bool free_piece(struct lp_space *space, struct piece piece, uint64_t seq)
{
	struct chunk *chunk = piece.chunk;
	bool all = true;
	/* The record contains it. */
	if (chunk != NULL && seq <= chunk->as_of)
		return true;
	if (chunk == NULL || !lp_space_owns(space, chunk->idx))
		return false;
	while (piece.from < piece.to) {
		struct piece run = {.chunk = chunk};
		run.from = lp_bitmap_find_set(&chunk->used, piece.from, piece.to);
		run.to = lp_bitmap_find_clear(&chunk->used, run.from, piece.to);
		all = all && run.from == piece.from;
		if (run.from < run.to)
			free_run(space, &run, seq);
		piece.from = run.to;
	}
	return all;
}

/* Who frees says what a map said. Of two maps that name one block, which is damage, the second one
 * frees what is not in use any more: that is recorded, and changes nothing (P7). It is the same in
 * a replay, so what was acknowledged after it is not lost. */
static void free_extent(struct lp_space *space, struct lp_extent extent, uint64_t seq)
{
	struct lp_extent left = extent;
	struct piece piece;
	bool all = true;
	while (next_piece(space, &left, &piece))
		all = free_piece(space, piece, seq) && all;
	if (all && left.cnt == 0)
		return;
	int err = LP_CORRUPT(extent.block << LP_BLOCK_SHIFT,
			     "frame %" PRIu64 " frees blocks %" PRIu64 " to %" PRIu64
			     ", which are not all in use",
			     seq, extent.block, lp_extent_end(extent) - 1);
	(void)err; /* it has been recorded */
}

/* --- Recovery --- */

/* Of a split chunk the record speaks of the shard's own blocks only. */
static int check_split(const struct chunk *chunk)
{
	for (uint64_t i = 0;
	     chunk->mine.words != NULL && i < lp_bitmap_word_cnt(chunk->used.bit_cnt); i++) {
		if ((chunk->used.words[i] & ~chunk->mine.words[i]) != 0)
			return LP_CORRUPT(LP_OFFSET_NONE,
					  "the record of chunk %u has blocks in use that are "
					  "another shard's",
					  chunk->idx);
	}
	return 0;
}

int lp_space_load_record(struct lp_space *space, uint32_t idx, const void *value, size_t len)
{
	LP_ASSERT(space->magic == SPACE_MAGIC);
	LP_ASSERT(!space->is_recovered);
	if (idx >= space->config.chunk_cnt_max)
		return LP_CORRUPT(LP_OFFSET_NONE, "space record of chunk %u, which is not there",
				  idx);
	struct chunk *chunk = space->chunks[idx];
	int rc = chunk == NULL ? make_chunk(space, idx, &chunk) : 0;
	if (rc != 0)
		return rc;
	LP_ASSERT(chunk->as_of == 0);
	struct lpi_space_record record = {.chunk = idx, .used = chunk->used};
	rc = lpi_space_record_decode(value, len, &record);
	if (rc != 0)
		return rc;
	chunk->as_of = record.as_of;
	chunk->used_cnt = lp_bitmap_count(&chunk->used, 0, chunk->used.bit_cnt);
	space->used_blocks += chunk->used_cnt;
	if (!lp_space_owns(space, chunk->idx) && chunk->used_cnt != 0)
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "chunk %u is not owned, but its record has blocks in use", idx);
	return check_split(chunk);
}

static int replay_take(struct lp_space *space, const struct piece *piece, uint64_t seq)
{
	const struct chunk *chunk = piece->chunk;
	/* The record contains it. */
	if (chunk != NULL && seq <= chunk->as_of)
		return 0;
	if (chunk == NULL || !lp_space_owns(space, chunk->idx) ||
	    !is_mine(chunk, piece->from, piece->to))
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "frame %" PRIu64 " takes of a chunk that is not owned", seq);
	if (take_piece(space, piece, seq))
		return 0;
	uint64_t block = chunk_base(space, chunk->idx) +
			 lp_bitmap_find_set(&chunk->used, piece->from, piece->to);
	return LP_CORRUPT(block << LP_BLOCK_SHIFT,
			  "frame %" PRIu64 " takes block %" PRIu64 ", which is in use", seq, block);
}

static int replay_change(struct lp_space *space, const struct lp_space_change *change, uint64_t seq)
{
	struct lp_extent extent = {.block = change->block, .cnt = change->cnt};
	if (lp_space_change_kind_name(change->kind) == NULL || change->cnt == 0 ||
	    !lp_space_change_reserved_is_zero(change))
		return LP_CORRUPT(LP_OFFSET_NONE, "frame %" PRIu64 ": change of block %" PRIu64,
				  seq, change->block);
	if (change->kind == LP_SPACE_CHANGE_KIND_FREE) {
		free_extent(space, extent, seq);
		return 0;
	}
	struct piece piece;
	while (next_piece(space, &extent, &piece)) {
		int rc = replay_take(space, &piece, seq);
		if (rc != 0)
			return rc;
	}
	if (extent.cnt != 0)
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "frame %" PRIu64 " takes block %" PRIu64 ", outside all chunks",
				  seq, extent.block);
	return 0;
}

int lp_space_replay_frame(struct lp_space *space, uint64_t seq, const void *changes, size_t len)
{
	LP_ASSERT(space->magic == SPACE_MAGIC);
	LP_ASSERT(!space->is_recovered);
	LP_ASSERT(seq > space->durable_seq);
	if (len % LP_SPACE_CHANGE_SIZE != 0)
		return LP_CORRUPT(LP_OFFSET_NONE, "frame %" PRIu64 ": changes of %zu bytes", seq,
				  len);
	for (size_t at = 0; at < len; at += LP_SPACE_CHANGE_SIZE) {
		struct lp_space_change change;
		lp_space_change_decode((const uint8_t *)changes + at, &change);
		int rc = replay_change(space, &change, seq);
		if (rc != 0)
			return rc;
	}
	space->durable_seq = seq;
	return 0;
}

/* Makes blocks that are all in use, or all not, known to the allocator. */
static int run_to_alloc(struct lp_space *space, struct lp_extent run, bool is_used)
{
	return is_used ? lp_alloc_add_taken_range(space->alloc, run)
		       : lp_alloc_add_range(space->alloc, run);
}

/* Makes the shard's blocks of the chunk known to the allocator: what is in use as taken, the rest
 * as free. */
static int chunk_to_alloc(struct lp_space *space, const struct chunk *chunk)
{
	uint64_t base = chunk_base(space, chunk->idx);
	uint64_t cnt = chunk->used.bit_cnt;
	bool is_split = chunk->mine.words != NULL;
	int rc = 0;
	for (uint64_t pos = 0; pos < cnt && rc == 0;) {
		uint64_t from = is_split ? lp_bitmap_find_set(&chunk->mine, pos, cnt) : pos;
		uint64_t own_end = is_split ? lp_bitmap_find_clear(&chunk->mine, from, cnt) : cnt;
		if (from == cnt)
			break;
		bool is_used = lp_bitmap_test(&chunk->used, from);
		pos = is_used ? lp_bitmap_find_clear(&chunk->used, from, own_end)
			      : lp_bitmap_find_set(&chunk->used, from, own_end);
		rc = run_to_alloc(space, (struct lp_extent){base + from, pos - from}, is_used);
	}
	return rc;
}

static void keep_one_held(struct lp_space *space, struct lp_space_pin *pin)
{
	struct lp_extent extent = pin->extent;
	struct piece piece;
	LP_ASSERT(pin->is_hold && extent.cnt == 1);
	bool is_ours = next_own_piece(space, &extent, &piece);
	LP_ASSERT(is_ours);
	pin->was_free = !lp_bitmap_test(&piece.chunk->used, piece.from);
	lp_bitmap_set(&piece.chunk->used, piece.from, piece.to);
}

/* What is held and free is not for the allocator yet: in use for it, and waiting for us. */
static void keep_held(struct lp_space *space)
{
	struct lp_space_pin *pin;
	for (uint32_t i = 0; i < PIN_BUCKETS; i++) {
		LP_LIST_FOREACH (pin_list, &space->pins[i], pin)
			keep_one_held(space, pin);
	}
}

static void let_one_wait(struct lp_space *space, const struct lp_space_pin *pin)
{
	struct lp_extent extent = pin->extent;
	struct piece piece;
	if (!pin->was_free || !next_own_piece(space, &extent, &piece))
		return;
	lp_bitmap_clear(&piece.chunk->used, piece.from, piece.to);
	wait_and_settle(space, &piece);
}

static void let_held_wait(struct lp_space *space)
{
	struct lp_space_pin *pin;
	for (uint32_t i = 0; i < PIN_BUCKETS; i++) {
		LP_LIST_FOREACH (pin_list, &space->pins[i], pin)
			let_one_wait(space, pin);
	}
}

int lp_space_recovered(struct lp_space *space, uint64_t durable_seq)
{
	struct lp_alloc_config config = {.kind = space->config.alloc_kind,
					 .block_cnt =
						 chunk_base(space, space->config.chunk_cnt_max),
					 .memory_max_bytes = space->config.alloc_memory_max_bytes};
	LP_ASSERT(!space->is_recovered);
	LP_ASSERT(durable_seq >= space->durable_seq);
	keep_held(space);
	int rc = lp_alloc_new(&config, &space->alloc);
	for (uint32_t i = 0; rc == 0 && i < space->config.chunk_cnt_max; i++) {
		struct chunk *chunk = space->chunks[i];
		if (chunk == NULL)
			continue;
		if (chunk->as_of > durable_seq)
			return LP_CORRUPT(LP_OFFSET_NONE,
					  "space record of chunk %u is of frame %" PRIu64
					  ", the last is %" PRIu64,
					  i, chunk->as_of, durable_seq);
		if (lp_space_owns(space, chunk->idx))
			rc = chunk_to_alloc(space, chunk);
		else
			drop_chunk(space, chunk);
	}
	if (rc != 0)
		return rc;
	let_held_wait(space);
	space->durable_seq = durable_seq;
	space->is_recovered = true;
	return 0;
}

/* --- Chunks --- */

static struct lp_extent chunk_range(const struct lp_space *space, uint32_t idx)
{
	return (struct lp_extent){.block = chunk_base(space, idx),
				  .cnt = space->config.chunk_blocks};
}

bool lp_space_owns(const struct lp_space *space, uint32_t idx)
{
	return idx < space->config.chunk_cnt_max && lp_bitmap_test(&space->owned, idx);
}

int lp_space_chunk_add(struct lp_space *space, uint32_t idx)
{
	LP_ASSERT(space->magic == SPACE_MAGIC);
	LP_ASSERT(idx < space->config.chunk_cnt_max);
	struct chunk *chunk = space->chunks[idx];
	if (chunk != NULL)
		return -EEXIST;
	int rc = make_chunk(space, idx, &chunk);
	if (rc != 0)
		return rc;
	chunk->mine_cnt = space->config.chunk_blocks;
	if (space->is_recovered)
		rc = lp_alloc_add_range(space->alloc, chunk_range(space, idx));
	if (rc != 0)
		drop_chunk(space, chunk);
	else
		lp_bitmap_set(&space->owned, idx, idx + UINT64_C(1));
	return rc;
}

/* What a search is for: pins up to that kind, on one of the blocks [from, to). */
struct pin_search {
	uint64_t from;
	uint64_t to;
	enum pin_kind kind_max;
	const struct lp_space_pin *found; /* the one that begins first */
};

static void find_in_bucket(const struct lp_space *space, uint32_t bucket, struct pin_search *search)
{
	const struct lp_space_pin *pin;
	LP_LIST_FOREACH (pin_list, &space->pins[bucket], pin) {
		uint64_t block = pin->extent.block;
		bool is_there = block < search->to && lp_extent_end(pin->extent) > search->from;
		bool counts = !pin->is_hold || search->kind_max == PIN_HOLD;
		if (is_there && counts &&
		    (search->found == NULL || block < search->found->extent.block))
			search->found = pin;
	}
}

/* A bucket has pins of many stretches: one that is found may begin behind another that a later
 * bucket has, so all that could have it are looked through; each once. */
static const struct lp_space_pin *find_pin(const struct lp_space *space, uint64_t from, uint64_t to,
					   enum pin_kind kind_max)
{
	struct pin_search search = {.from = from, .to = to, .kind_max = kind_max};
	uint64_t longest = 0;
	uint64_t cnt = 0;
	for (uint32_t kind = 0; kind <= kind_max; kind++) {
		longest = LP_MAX(longest, space->pins_of[kind].longest_blocks);
		cnt += space->pins_of[kind].cnt;
	}
	if (cnt == 0)
		return NULL;
	uint64_t stretch = (from - LP_MIN(longest, from)) >> STRETCH_SHIFT;
	uint64_t last = (to - 1) >> STRETCH_SHIFT;
	for (uint32_t i = 0; i < PIN_BUCKETS && stretch <= last; i++, stretch++)
		find_in_bucket(space, bucket_of(stretch), &search);
	return search.found;
}

bool lp_space_is_pinned(const struct lp_space *space, struct lp_extent range)
{
	return find_pin(space, range.block, lp_extent_end(range), PIN_IO) != NULL;
}

static bool chunk_is_empty(const struct lp_space *space, const struct chunk *chunk)
{
	struct lp_extent range = chunk_range(space, chunk->idx);
	/* A guest who has all of its blocks may not return it: its home has leased it. */
	return lp_space_owns(space, chunk->idx) && !chunk->is_guest && chunk->mine.words == NULL &&
	       chunk->used_cnt == 0 && chunk->waiting_cnt == 0 && chunk->oldest_seq == 0 &&
	       lp_alloc_is_free(space->alloc, range) && !lp_space_is_pinned(space, range);
}

uint64_t lp_space_keep_blocks(const struct lp_space *space)
{
	return 2 * space->config.low_water_blocks;
}

bool lp_space_chunk_find_empty(const struct lp_space *space, uint32_t from, uint64_t keep_blocks,
			       uint32_t *ret_chunk)
{
	LP_ASSERT(space->is_recovered);
	if (lp_alloc_free_blocks(space->alloc) < keep_blocks + space->config.chunk_blocks)
		return false;
	for (uint32_t i = from; i < space->config.chunk_cnt_max; i++) {
		if (space->chunks[i] != NULL && chunk_is_empty(space, space->chunks[i])) {
			*ret_chunk = i;
			return true;
		}
	}
	return false;
}

int lp_space_chunk_remove(struct lp_space *space, uint32_t idx)
{
	LP_ASSERT(space->is_recovered);
	LP_ASSERT(lp_space_owns(space, idx));
	struct chunk *chunk = space->chunks[idx];
	if (!chunk_is_empty(space, chunk))
		return -EBUSY;
	int rc = lp_alloc_remove_range(space->alloc, chunk_range(space, idx));
	if (rc == 0)
		drop_chunk(space, chunk);
	return rc;
}

/* --- Blocks of a chunk ---
 *
 * What is given away is free for the allocator, so no frame is under way that speaks of it; and the
 * chunk has no change that no persisted record contains, so no frame in the log does that a start
 * would look at. So it can be another shard's without a word of this one's log.
 *
 * What is set aside needs less. No frame speaks of it that became durable later; so it is enough
 * that the chunk's first change without a persisted record is a later one. */

static int add_run(struct lp_space *space, struct chunk *chunk, uint64_t from, uint64_t to)
{
	struct lp_extent run = {chunk_base(space, chunk->idx) + from, to - from};
	LP_ASSERT(lp_bitmap_is_clear(&chunk->mine, from, to));
	int rc = space->is_recovered ? lp_alloc_add_range(space->alloc, run) : 0;
	if (rc == 0)
		lp_bitmap_set(&chunk->mine, from, to);
	return rc;
}

int lp_space_blocks_add(struct lp_space *space, uint32_t idx, bool is_guest,
			const struct lp_bitmap *blocks)
{
	LP_ASSERT(space->magic == SPACE_MAGIC);
	LP_ASSERT(idx < space->config.chunk_cnt_max);
	LP_ASSERT(blocks->bit_cnt == space->config.chunk_blocks);
	struct chunk *chunk = space->chunks[idx];
	uint64_t end = blocks->bit_cnt;
	int rc = chunk == NULL ? make_chunk(space, idx, &chunk) : 0;
	if (rc == 0)
		rc = split_chunk(chunk);
	if (rc != 0 && chunk != NULL && chunk->mine_cnt == 0)
		drop_chunk(space, chunk);
	if (rc != 0)
		return rc;
	space->guest_cnt += is_guest && !chunk->is_guest;
	LP_ASSERT(is_guest || !chunk->is_guest);
	chunk->is_guest = is_guest;
	lp_bitmap_set(&space->owned, idx, idx + UINT64_C(1));
	for (uint64_t from = lp_bitmap_find_set(blocks, 0, end), to; from < end && rc == 0;
	     from = lp_bitmap_find_set(blocks, to, end)) {
		to = lp_bitmap_find_clear(blocks, from, end);
		rc = add_run(space, chunk, from, to);
	}
	count_mine(chunk);
	return rc;
}

bool lp_space_is_guest(const struct lp_space *space, uint32_t idx)
{
	return lp_space_owns(space, idx) && space->chunks[idx]->is_guest;
}

static uint64_t unused_of(const struct chunk *chunk)
{
	return chunk->mine_cnt - chunk->used_cnt - chunk->waiting_cnt;
}

/* 0: its blocks cannot be given away. */
static uint64_t loose_of(const struct chunk *chunk)
{
	return chunk == NULL || chunk->oldest_seq != 0 ? 0 : unused_of(chunk);
}

enum walk { WALK_LOOSE, WALK_GUESTS, WALK_ANY };

static uint64_t cnt_for(const struct lp_space *space, uint32_t idx, enum walk walk)
{
	const struct chunk *chunk = space->chunks[idx];
	if (chunk == NULL || (walk == WALK_GUESTS && !chunk->is_guest))
		return 0;
	return walk == WALK_ANY ? unused_of(chunk) : loose_of(chunk);
}

/* After `loose`, which is that chunk then. */
static bool walk_on(const struct lp_space *space, enum walk walk, struct lp_space_loose *loose)
{
	const struct lp_space_loose before = *loose;
	LP_ASSERT(space->is_recovered);
	*loose = (struct lp_space_loose){.is_begun = true};
	if (walk == WALK_GUESTS && space->guest_cnt == 0)
		return false;
	for (uint32_t i = 0; i < space->config.chunk_cnt_max; i++) {
		uint64_t cnt = cnt_for(space, i, walk);
		bool was_passed = before.is_begun &&
				  (cnt > before.cnt || (cnt == before.cnt && i <= before.chunk));
		if (cnt <= loose->cnt || was_passed)
			continue;
		loose->cnt = cnt;
		loose->chunk = i;
	}
	return loose->cnt > 0;
}

bool lp_space_next_loose(const struct lp_space *space, bool of_guest, struct lp_space_loose *loose)
{
	return walk_on(space, of_guest ? WALK_GUESTS : WALK_LOOSE, loose);
}

bool lp_space_next_any(const struct lp_space *space, struct lp_space_loose *loose)
{
	return walk_on(space, WALK_ANY, loose);
}

uint64_t lp_space_loose_blocks(const struct lp_space *space)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < space->config.chunk_cnt_max; i++)
		cnt += loose_of(space->chunks[i]);
	return cnt;
}

/* The next run of free blocks of the chunk from `from` on that no I/O is on. */
static bool next_loose(const struct lp_space *space, const struct chunk *chunk, uint64_t from,
		       struct piece *ret_run)
{
	uint64_t base = chunk_base(space, chunk->idx);
	uint64_t end = base + chunk->used.bit_cnt;
	struct lp_extent run;
	for (uint64_t at = base + from; at < end;) {
		if (!lp_alloc_next_free(space->alloc, at, &run) || run.block >= end)
			return false;
		uint64_t to = LP_MIN(lp_extent_end(run), end);
		const struct lp_space_pin *pin = find_pin(space, run.block, to, PIN_HOLD);
		if (pin == NULL || pin->extent.block > run.block) {
			ret_run->from = run.block - base;
			ret_run->to = (pin == NULL ? to : pin->extent.block) - base;
			return true;
		}
		at = lp_extent_end(pin->extent);
	}
	return false;
}

uint64_t lp_space_set_aside(struct lp_space *space, uint32_t idx, uint64_t max,
			    struct lp_bitmap *ret_blocks)
{
	LP_ASSERT(space->is_recovered);
	LP_ASSERT(lp_space_owns(space, idx));
	const struct chunk *chunk = space->chunks[idx];
	uint64_t base = chunk_base(space, idx);
	uint64_t left = max;
	LP_ASSERT(ret_blocks->bit_cnt == chunk->used.bit_cnt);
	for (struct piece run = {.to = 0}; left > 0 && next_loose(space, chunk, run.to, &run);) {
		run.to = LP_MIN(run.to, run.from + left);
		struct lp_extent extent = {base + run.from, run.to - run.from};
		LP_ASSERT(lp_bitmap_is_clear(&chunk->used, run.from, run.to));
		LP_ASSERT(lp_bitmap_is_clear(&chunk->waiting, run.from, run.to));
		LP_ASSERT(is_mine(chunk, run.from, run.to));
		if (lp_alloc_remove_range(space->alloc, extent) != 0)
			break;
		lp_bitmap_set(ret_blocks, run.from, run.to);
		left -= extent.cnt;
	}
	return max - left;
}

bool lp_space_is_recorded(const struct lp_space *space, uint32_t idx, uint64_t seq)
{
	LP_ASSERT(lp_space_owns(space, idx));
	const struct chunk *chunk = space->chunks[idx];
	return chunk->oldest_seq == 0 || chunk->oldest_seq > seq;
}

int lp_space_let_go(struct lp_space *space, uint32_t idx, const struct lp_bitmap *blocks)
{
	LP_ASSERT(lp_space_owns(space, idx));
	struct chunk *chunk = space->chunks[idx];
	int err = split_chunk(chunk);
	if (err < 0)
		return err;
	for (uint64_t i = 0; i < lp_bitmap_word_cnt(blocks->bit_cnt); i++) {
		LP_ASSERT((blocks->words[i] & ~chunk->mine.words[i]) == 0);
		LP_ASSERT((blocks->words[i] & chunk->used.words[i]) == 0);
		chunk->mine.words[i] &= ~blocks->words[i];
	}
	count_mine(chunk);
	/* Who has no block left has had no change either since they were set aside. */
	if (chunk->mine_cnt == 0 && chunk->oldest_seq == 0)
		drop_chunk(space, chunk);
	return 0;
}

void lp_space_put_back(struct lp_space *space, uint32_t idx, const struct lp_bitmap *blocks)
{
	LP_ASSERT(lp_space_owns(space, idx));
	uint64_t base = chunk_base(space, idx);
	uint64_t end = blocks->bit_cnt;
	for (uint64_t from = lp_bitmap_find_set(blocks, 0, end), to; from < end;
	     from = lp_bitmap_find_set(blocks, to, end)) {
		to = lp_bitmap_find_clear(blocks, from, end);
		int ignored = lp_alloc_add_range(space->alloc,
						 (struct lp_extent){base + from, to - from});
		(void)ignored;
	}
}

uint64_t lp_space_blocks_remove(struct lp_space *space, uint32_t idx, uint64_t max,
				struct lp_bitmap *ret_blocks)
{
	LP_ASSERT(lp_space_owns(space, idx));
	struct chunk *chunk = space->chunks[idx];
	LP_ASSERT(chunk->oldest_seq == 0);
	if (split_chunk(chunk) != 0)
		return 0;
	uint64_t cnt = lp_space_set_aside(space, idx, max, ret_blocks);
	int err = lp_space_let_go(space, idx, ret_blocks);
	LP_ASSERT(err == 0); /* it has its bitmap */
	return cnt;
}

bool lp_space_wants_chunk(const struct lp_space *space)
{
	LP_ASSERT(space->is_recovered);
	return lp_alloc_free_blocks(space->alloc) < space->config.low_water_blocks;
}

/* --- Waiting blocks --- */

static void release(struct lp_space *space, struct chunk *chunk, uint64_t from, uint64_t to)
{
	struct lp_extent extent = {.block = from, .cnt = to - from};
	uint64_t base = chunk_base(space, chunk->idx);
	if (lp_alloc_release(space->alloc, extent) != 0) {
		/* They wait on, and are tried again with the next durable frame. */
		space->is_stuck = true;
		return;
	}
	lp_bitmap_clear(&chunk->waiting, from - base, to - base);
	chunk->waiting_cnt -= extent.cnt;
	space->waiting_blocks -= extent.cnt;
	space->released_blocks += extent.cnt;
}

/* Rule S3: of these waiting blocks, those that no I/O is on become free. */
static void release_unpinned(struct lp_space *space, struct chunk *chunk, uint64_t from,
			     uint64_t to)
{
	while (from < to) {
		const struct lp_space_pin *pin = find_pin(space, from, to, PIN_HOLD);
		uint64_t end = pin == NULL ? to : pin->extent.block;
		if (end > from)
			release(space, chunk, from, end);
		from = pin == NULL ? to : lp_extent_end(pin->extent);
	}
}

static void settle(struct lp_space *space, const struct piece *piece)
{
	struct chunk *chunk = piece->chunk;
	uint64_t base = chunk_base(space, chunk->idx);
	uint64_t pos = piece->from;
	while (chunk->waiting_cnt > 0 && pos < piece->to) {
		uint64_t start = lp_bitmap_find_set(&chunk->waiting, pos, piece->to);
		pos = lp_bitmap_find_clear(&chunk->waiting, start, piece->to);
		if (start < pos)
			release_unpinned(space, chunk, base + start, base + pos);
	}
}

static void wait_and_settle(struct lp_space *space, const struct piece *piece)
{
	struct chunk *chunk = piece->chunk;
	uint64_t cnt = piece->to - piece->from;
	LP_ASSERT(lp_bitmap_is_clear(&chunk->waiting, piece->from, piece->to));
	LP_ASSERT(lp_bitmap_is_clear(&chunk->used, piece->from, piece->to));
	lp_bitmap_set(&chunk->waiting, piece->from, piece->to);
	chunk->waiting_cnt += cnt;
	space->waiting_blocks += cnt;
	settle(space, piece);
}

static void settle_stuck(struct lp_space *space)
{
	space->is_stuck = false;
	for (uint32_t i = 0; i < space->config.chunk_cnt_max; i++) {
		struct piece piece = {.chunk = space->chunks[i], .to = space->config.chunk_blocks};
		if (piece.chunk != NULL)
			settle(space, &piece);
	}
}

/* --- Taking and freeing --- */

int lp_space_take(struct lp_space *space, uint64_t want, const struct lp_alloc_options *options,
		  struct lp_extent *ret_extents, uint64_t *ret_blocks)
{
	LP_ASSERT(space->magic == SPACE_MAGIC);
	LP_ASSERT(space->is_recovered);
	return lp_alloc_take(space->alloc, want, options, ret_extents, ret_blocks);
}

void lp_space_untake(struct lp_space *space, struct lp_extent extent)
{
	LP_ASSERT(space->is_recovered);
	LP_ASSERT(extent.cnt > 0);
	struct piece piece;
	while (next_own_piece(space, &extent, &piece))
		wait_and_settle(space, &piece);
}

void lp_space_tell_freed(struct lp_space *space, void (*freed)(void *arg, struct lp_extent extent),
			 void *arg)
{
	space->freed = freed;
	space->freed_arg = arg;
}

static void change_durable(struct lp_space *space, const struct lp_space_change *change,
			   uint64_t seq)
{
	struct lp_extent extent = {.block = change->block, .cnt = change->cnt};
	struct piece piece;
	LP_ASSERT(lp_space_change_kind_name(change->kind) != NULL);
	LP_ASSERT(change->cnt > 0);
	if (change->kind == LP_SPACE_CHANGE_KIND_FREE) {
		free_extent(space, extent, seq);
		return;
	}
	while (next_own_piece(space, &extent, &piece)) {
		bool fits = take_piece(space, &piece, seq);
		LP_ASSERT(fits); /* the allocator had it */
	}
}

void lp_space_frame_durable(struct lp_space *space, uint64_t seq, const void *changes, size_t len)
{
	LP_ASSERT(space->magic == SPACE_MAGIC);
	LP_ASSERT(space->is_recovered);
	LP_ASSERT(seq > space->durable_seq);
	LP_ASSERT(len % LP_SPACE_CHANGE_SIZE == 0);
	for (size_t at = 0; at < len; at += LP_SPACE_CHANGE_SIZE) {
		struct lp_space_change change;
		lp_space_change_decode((const uint8_t *)changes + at, &change);
		change_durable(space, &change, seq);
	}
	space->durable_seq = seq;
	if (LP_UNLIKELY(space->is_stuck))
		settle_stuck(space);
}

static void pin_range(struct lp_space *space, struct lp_space_pin *pin, struct lp_extent extent,
		      bool is_hold)
{
	LP_ASSERT(extent.cnt > 0);
	LP_ASSERT(lp_space_owns(space, chunk_of(space, extent.block)));
	LP_ASSERT(lp_space_owns(space, chunk_of(space, lp_extent_end(extent) - 1)));
	*pin = (struct lp_space_pin){.extent = extent, .is_hold = is_hold};
	pin_list_push_front(&space->pins[bucket_of(extent.block >> STRETCH_SHIFT)], pin);
	struct pins_of_kind *of = &space->pins_of[is_hold ? PIN_HOLD : PIN_IO];
	of->cnt++;
	of->longest_blocks = LP_MAX(of->longest_blocks, extent.cnt);
}

void lp_space_pin(struct lp_space *space, struct lp_space_pin *pin, struct lp_extent extent)
{
	LP_ASSERT(space->is_recovered);
	pin_range(space, pin, extent, false);
}

void lp_space_hold(struct lp_space *space, struct lp_space_pin *pin, struct lp_extent extent)
{
	pin_range(space, pin, extent, true);
}

void lp_space_unpin(struct lp_space *space, struct lp_space_pin *pin)
{
	struct pins_of_kind *of = &space->pins_of[pin->is_hold ? PIN_HOLD : PIN_IO];
	pin_list_remove(pin);
	if (--of->cnt == 0)
		of->longest_blocks = 0;
	/* Nothing waits for it. */
	if (space->waiting_blocks == 0)
		return;
	struct lp_extent extent = pin->extent;
	struct piece piece;
	while (next_own_piece(space, &extent, &piece))
		settle(space, &piece);
}

/* --- Checkpoints --- */

int lp_space_checkpoint_next(struct lp_space *space, uint64_t commit_seq, void *buf,
			     uint32_t *ret_chunk, size_t *ret_len)
{
	LP_ASSERT(space->is_recovered);
	LP_ASSERT(commit_seq > space->durable_seq);
	struct chunk *chunk = chunk_list_pop_front(&space->todo);
	if (chunk == NULL)
		return 0;
	LP_ASSERT(chunk->first_new_seq != 0);
	LP_ASSERT(chunk->rec_cnt < RECORDS_IN_FLIGHT);
	chunk->recs[chunk->rec_cnt++] = (struct record_in_flight){
		.commit_seq = commit_seq, .first_seq = chunk->first_new_seq};
	chunk->first_new_seq = 0;
	/* Rule S2: of durable frames, not of the live allocator. */
	struct lpi_space_record record = {
		.chunk = chunk->idx, .as_of = space->durable_seq, .used = chunk->used};
	*ret_len = lpi_space_record_encode(&record, buf);
	LP_ASSERT(*ret_len <= LP_SPACE_RECORD_BYTES_MAX);
	*ret_chunk = chunk->idx;
	return 1;
}

/* It may have become possible to make another record. */
static void queue_again(struct lp_space *space, struct chunk *chunk)
{
	if (chunk->first_new_seq != 0 && !chunk_list_is_linked(chunk))
		chunk_list_push_back(&space->todo, chunk);
}

void lp_space_checkpoint_abandon(struct lp_space *space, uint64_t commit_seq)
{
	struct chunk *chunk = chunks_by_oldest_first(&space->by_oldest);
	for (; chunk != NULL; chunk = chunks_by_oldest_next(chunk)) {
		while (chunk->rec_cnt > 0 &&
		       chunk->recs[chunk->rec_cnt - 1].commit_seq == commit_seq) {
			chunk->rec_cnt--;
			chunk->first_new_seq = chunk->recs[chunk->rec_cnt].first_seq;
		}
		if (chunk->rec_cnt < RECORDS_IN_FLIGHT)
			queue_again(space, chunk);
	}
}

static void chunk_persisted(struct lp_space *space, struct chunk *chunk, uint64_t applied_seq)
{
	unsigned done = 0;
	while (done < chunk->rec_cnt && chunk->recs[done].commit_seq <= applied_seq)
		done++;
	if (done == 0)
		return;
	uint64_t oldest_seq = chunk->recs[done - 1].after_seq;
	for (unsigned i = done; i < chunk->rec_cnt; i++)
		chunk->recs[i - done] = chunk->recs[i];
	chunk->rec_cnt -= done;
	chunks_by_oldest_remove(&space->by_oldest, chunk);
	chunk->oldest_seq = oldest_seq;
	if (oldest_seq != 0)
		chunks_by_oldest_insert(&space->by_oldest, chunk);
	queue_again(space, chunk);
}

void lp_space_persisted(struct lp_space *space, uint64_t applied_seq)
{
	LP_ASSERT(space->is_recovered);
	struct chunk *chunk = chunks_by_oldest_first(&space->by_oldest);
	while (chunk != NULL) {
		/* The chunk may move further on; that it is met again then does no harm. */
		struct chunk *next = chunks_by_oldest_next(chunk);
		chunk_persisted(space, chunk, applied_seq);
		chunk = next;
	}
}

uint64_t lp_space_log_start(const struct lp_space *space)
{
	const struct chunk *oldest = chunks_by_oldest_first(&space->by_oldest);
	return oldest == NULL ? space->durable_seq + 1 : oldest->oldest_seq;
}

uint64_t lp_space_unrecorded_seq(const struct lp_space *space)
{
	const struct chunk *next = chunk_list_first(&space->todo);
	return next == NULL ? UINT64_MAX : next->first_new_seq;
}

/* --- Queries --- */

uint64_t lp_space_durable_seq(const struct lp_space *space)
{
	return space->durable_seq;
}

uint64_t lp_space_used_blocks(const struct lp_space *space)
{
	return space->used_blocks + space->waiting_blocks;
}

uint64_t lp_space_waiting_blocks(const struct lp_space *space)
{
	return space->waiting_blocks;
}

uint64_t lp_space_released_blocks(const struct lp_space *space)
{
	return space->released_blocks;
}

bool lp_space_has_io(const struct lp_space *space)
{
	return space->pins_of[PIN_IO].cnt > 0;
}

bool lp_space_is_used(const struct lp_space *space, struct lp_extent extent)
{
	struct piece piece;
	bool is_used = true;
	while (next_own_piece(space, &extent, &piece))
		is_used = is_used && lp_bitmap_is_set(&piece.chunk->used, piece.from, piece.to);
	return is_used;
}

bool lp_space_is_unused(const struct lp_space *space, struct lp_extent extent)
{
	struct piece piece;
	bool is_unused = true;
	while (next_own_piece(space, &extent, &piece))
		is_unused =
			is_unused && lp_bitmap_is_clear(&piece.chunk->used, piece.from, piece.to);
	return is_unused;
}

/* No block of the piece is free, or waits to be. One that is not durably in use is a group's. */
static bool piece_is_taken(const struct lp_space *space, const struct piece *piece)
{
	const struct chunk *chunk = piece->chunk;
	struct lp_extent run;
	if (chunk == NULL || !lp_space_owns(space, chunk->idx) ||
	    !is_mine(chunk, piece->from, piece->to))
		return false;
	if (lp_bitmap_is_set(&chunk->used, piece->from, piece->to))
		return true;
	uint64_t base = chunk_base(space, chunk->idx);
	return lp_bitmap_is_clear(&chunk->waiting, piece->from, piece->to) &&
	       (!lp_alloc_next_free(space->alloc, base + piece->from, &run) ||
		run.block >= base + piece->to);
}

bool lp_space_is_taken(const struct lp_space *space, struct lp_extent extent)
{
	struct piece piece;
	bool is_taken = true;
	LP_ASSERT(space->is_recovered);
	while (is_taken && next_piece(space, &extent, &piece))
		is_taken = piece_is_taken(space, &piece);
	return is_taken && extent.cnt == 0;
}

bool lp_space_has(const struct lp_space *space, struct lp_extent extent)
{
	struct piece piece;
	bool has = true;
	while (has && next_piece(space, &extent, &piece))
		has = piece.chunk != NULL && lp_space_owns(space, piece.chunk->idx) &&
		      is_mine(piece.chunk, piece.from, piece.to);
	return has && extent.cnt == 0;
}

const struct lp_alloc *lp_space_alloc(const struct lp_space *space)
{
	return space->alloc;
}

uint64_t lp_space_memory_bytes(const struct lp_space *space)
{
	uint64_t words = lp_bitmap_word_cnt(space->config.chunk_blocks);
	uint64_t bytes = space->alloc != NULL ? lp_alloc_memory_bytes(space->alloc) : 0;
	for (uint32_t i = 0; i < space->config.chunk_cnt_max; i++) {
		if (space->chunks[i] == NULL)
			continue;
		uint64_t maps = space->chunks[i]->mine.words != NULL ? 3 : 2;
		bytes += sizeof(struct chunk) + maps * words * sizeof(uint64_t);
	}
	return bytes;
}

const struct lp_space_config *lp_space_config(const struct lp_space *space)
{
	return &space->config;
}

const struct lp_bitmap *lp_space_used_map(const struct lp_space *space, uint32_t idx)
{
	return lp_space_owns(space, idx) ? &space->chunks[idx]->used : NULL;
}

const struct lp_bitmap *lp_space_mine_map(const struct lp_space *space, uint32_t idx)
{
	bool is_split = lp_space_owns(space, idx) && space->chunks[idx]->mine.words != NULL;
	return is_split ? &space->chunks[idx]->mine : NULL;
}
