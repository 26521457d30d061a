/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the cache returns what was inserted and nothing older, keeps its budget, evicts as S3-FIFO
 * says, so that a scan does not wash out what is in use, and gives every buffer back.
 * Method: random calls against a model of three arrays that are searched from end to end; then
 * each property by itself. Each block's bytes say which block and which version they are. */
#include "base/testing/test.h"

#include "base/prng.h"
#include "base/testing/test_death.h"
#include "store/cache/block_cache.h"

#define REGION_BYTES (UINT64_C(16) << 20)
#define BUFS_MAX     (REGION_BYTES / LP_BUF_SMALL)
#define BLOCKS       400u /* of the model's device */
#define LIMIT_MAX    96u
#define FAR(n)       ((uint64_t)(n) << 24)

static struct lp_bufs *bufs;
static struct lp_block_cache *cache;

static void open_cache(uint64_t limit, uint64_t limit_max)
{
	lp_test_ok(lp_bufs_new(REGION_BYTES, &bufs));
	lp_test_ok(lp_block_cache_new(bufs, limit, limit_max, &cache));
}

static struct lp_block_cache_stats stats_of(void)
{
	struct lp_block_cache_stats stats;
	lp_block_cache_read_stats(cache, &stats);
	return stats;
}

static uint64_t used_bytes(void)
{
	struct lp_bufs_stats stats;
	lp_bufs_read_stats(bufs, &stats);
	return stats.used_bytes;
}

static void close_cache(void)
{
	assert_true(lp_block_cache_is_sound(cache));
	assert_int_equal(used_bytes(), stats_of().bytes);
	lp_block_cache_free(cache);
	assert_int_equal(used_bytes(), 0);
	lp_bufs_free(bufs);
	cache = NULL;
	bufs = NULL;
}

static void fill(uint8_t *data, uint64_t block, uint32_t crc)
{
	memcpy(data, &block, sizeof(block));
	memcpy(data + LP_BLOCK_BYTES - sizeof(crc), &crc, sizeof(crc));
}

static bool insert_seg(uint64_t block, uint32_t crc, struct lp_seg seg)
{
	const struct lp_block_cache_item item = {
		.block = block, .since = lp_block_cache_now(cache), .seg = seg, .crc = crc};
	return lp_block_cache_insert(cache, &item);
}

static bool insert(uint64_t block, uint32_t crc)
{
	struct lp_buf *buf = lp_buf_new(bufs, LP_BUF_SMALL);
	assert_non_null(buf);
	fill(buf->data, block, crc);
	struct lp_seg seg = {buf, 0, LP_BUF_SMALL};
	bool is_kept = insert_seg(block, crc, seg);
	lp_buf_put(buf);
	return is_kept;
}

/* Looks, and checks the bytes. */
static bool lookup(uint64_t block, uint32_t crc)
{
	const struct lp_seg *seg = lp_block_cache_lookup(cache, block, crc, false);
	uint64_t got_block = 0;
	uint32_t got_crc = 0;
	if (seg == NULL)
		return false;
	assert_int_equal(seg->len, LP_BLOCK_BYTES);
	memcpy(&got_block, seg->buf->data + seg->offset, sizeof(got_block));
	memcpy(&got_crc, seg->buf->data + seg->offset + LP_BLOCK_BYTES - sizeof(got_crc),
	       sizeof(got_crc));
	assert_int_equal(got_block, block);
	assert_int_equal(got_crc, crc);
	return true;
}

/* What a reader does. */
static bool read_block(uint64_t block)
{
	if (lookup(block, (uint32_t)block))
		return true;
	(void)insert(block, (uint32_t)block); /* the budget may be 0 */
	return false;
}

/* --- The model -------------------------------------------------------------------------------- */

struct list {
	uint64_t blocks[LIMIT_MAX + 1]; /* oldest first */
	uint64_t cnt;
};

struct model {
	struct list small;
	struct list main;
	struct list ghosts;
	uint32_t crc[BLOCKS];
	unsigned looks[BLOCKS];
	uint64_t limit;
	struct lp_block_cache_stats stats;
};

static bool list_has(const struct list *list, uint64_t block)
{
	for (uint64_t i = 0; i < list->cnt; i++) {
		if (list->blocks[i] == block)
			return true;
	}
	return false;
}

static void list_add(struct list *list, uint64_t block)
{
	assert_true(list->cnt <= LIMIT_MAX);
	list->blocks[list->cnt++] = block;
}

static bool list_drop(struct list *list, uint64_t block)
{
	for (uint64_t i = 0; i < list->cnt; i++) {
		if (list->blocks[i] != block)
			continue;
		memmove(&list->blocks[i], &list->blocks[i + 1],
			(list->cnt - i - 1) * sizeof(list->blocks[0]));
		list->cnt--;
		return true;
	}
	return false;
}

static uint64_t list_oldest(const struct list *list)
{
	assert_true(list->cnt > 0);
	return list->blocks[0];
}

static uint64_t model_small_limit(const struct model *model)
{
	return model->limit < 20 ? 1 : model->limit / 10;
}

static void model_trim_ghosts(struct model *model)
{
	uint64_t most = model->limit == 0 ? 0 : model->limit - model_small_limit(model);
	while (model->ghosts.cnt > most)
		(void)list_drop(&model->ghosts, list_oldest(&model->ghosts));
}

static void model_evict(struct model *model)
{
	for (unsigned n = 0;; n++) {
		bool may_stay = n < 64;
		if (model->small.cnt > model_small_limit(model) || model->main.cnt == 0) {
			uint64_t block = list_oldest(&model->small);
			(void)list_drop(&model->small, block);
			if (may_stay && model->looks[block] >= 2) {
				model->looks[block] = 0;
				list_add(&model->main, block);
				continue;
			}
			if (model->limit > model_small_limit(model)) {
				if (model->ghosts.cnt == model->limit - model_small_limit(model))
					(void)list_drop(&model->ghosts,
							list_oldest(&model->ghosts));
				list_add(&model->ghosts, block);
			}
			model_trim_ghosts(model);
			break;
		}
		uint64_t block = list_oldest(&model->main);
		(void)list_drop(&model->main, block);
		if (!may_stay || model->looks[block] == 0)
			break;
		model->looks[block]--;
		list_add(&model->main, block);
	}
	model->stats.evictions++;
}

static bool model_holds(const struct model *model, uint64_t block)
{
	return list_has(&model->small, block) || list_has(&model->main, block);
}

static bool model_drop(struct model *model, uint64_t block)
{
	return list_drop(&model->small, block) || list_drop(&model->main, block);
}

static bool model_lookup(struct model *model, uint64_t block, uint32_t crc)
{
	if (model_holds(model, block) && model->crc[block] == crc) {
		model->looks[block] = LP_MIN(model->looks[block] + 1, 3u);
		model->stats.hits++;
		return true;
	}
	model->stats.misses++;
	if (model_drop(model, block))
		model->stats.stale++;
	return false;
}

static void model_insert(struct model *model, uint64_t block, uint32_t crc)
{
	if (model->limit == 0) {
		model->stats.refused++;
		return;
	}
	if (model_holds(model, block)) {
		if (model->crc[block] == crc)
			return;
		model->stats.stale++;
	} else {
		bool is_ghost = list_drop(&model->ghosts, block);
		while (model->small.cnt + model->main.cnt >= model->limit)
			model_evict(model);
		list_add(is_ghost ? &model->main : &model->small, block);
		model->looks[block] = 0;
		model->stats.ghost_inserts += is_ghost;
	}
	model->crc[block] = crc;
	model->stats.inserts++;
}

static void model_invalidate(struct model *model, struct lp_extent extent)
{
	for (uint64_t block = 0; block < BLOCKS; block++) {
		if (block < extent.block || block >= lp_extent_end(extent))
			continue;
		model->stats.invalidated += model_drop(model, block);
		(void)list_drop(&model->ghosts, block);
	}
}

static void assert_same(const struct model *model)
{
	struct lp_block_cache_stats stats = stats_of();
	assert_int_equal(stats.hits, model->stats.hits);
	assert_int_equal(stats.misses, model->stats.misses);
	assert_int_equal(stats.stale, model->stats.stale);
	assert_int_equal(stats.inserts, model->stats.inserts);
	assert_int_equal(stats.ghost_inserts, model->stats.ghost_inserts);
	assert_int_equal(stats.evictions, model->stats.evictions);
	assert_int_equal(stats.invalidated, model->stats.invalidated);
	assert_int_equal(stats.refused, model->stats.refused);
	assert_int_equal(stats.blocks, model->small.cnt + model->main.cnt);
	assert_int_equal(stats.bytes, stats.blocks * 4096);
	assert_int_equal(stats.ghosts, model->ghosts.cnt);
	assert_int_equal(stats.limit_blocks, model->limit);
}

static void change_both(struct model *model, struct lp_prng *prng)
{
	struct lp_extent extent = {lp_prng_below(prng, BLOCKS), lp_prng_between(prng, 0, 5)};
	switch (lp_prng_below(prng, 5)) {
	case 0: /* far more than there are, and short */
		extent.cnt = UINT64_C(1) << lp_prng_between(prng, 7, 40);
		lp_block_cache_invalidate(cache, extent);
		model_invalidate(model, extent);
		break;
	case 1:
	case 2:
		lp_block_cache_invalidate(cache, extent);
		model_invalidate(model, extent);
		break;
	case 3: /* as much again, and so many fewer between */
		extent.cnt = LP_MIN(extent.cnt, model->limit);
		lp_block_cache_resize(cache, model->limit - extent.cnt);
		model->limit -= extent.cnt;
		while (model->small.cnt + model->main.cnt > model->limit)
			model_evict(model);
		model_trim_ghosts(model);
		lp_block_cache_resize(cache, model->limit += extent.cnt);
		break;
	default:
		model->limit = lp_prng_between(prng, 0, LIMIT_MAX);
		lp_block_cache_resize(cache, model->limit);
		while (model->small.cnt + model->main.cnt > model->limit)
			model_evict(model);
		model_trim_ghosts(model);
		break;
	}
}

static void test_model(void **state)
{
	(void)state;
	static struct model model;
	for (uint64_t seed = 1; seed <= 6; seed++) {
		struct lp_prng prng;
		lp_prng_init(&prng, seed);
		uint64_t limit = seed == 1 ? 1 : LIMIT_MAX / seed;
		model = (struct model){.limit = limit};
		open_cache(limit, LIMIT_MAX);
		for (int i = 0; i < 20000; i++) {
			/* Some blocks are wanted more often than others. */
			uint64_t block = lp_prng_below(&prng, lp_prng_between(&prng, 1, BLOCKS));
			uint32_t crc = lp_prng_chance(&prng, 1, 20) ? 1 : 0;
			if (lp_prng_chance(&prng, 1, seed < 4 ? 100 : 1000))
				change_both(&model, &prng);
			bool is_hit = lookup(block, crc);
			assert_int_equal(is_hit, model_lookup(&model, block, crc));
			if (!is_hit || lp_prng_chance(&prng, 1, 30)) {
				crc = lp_prng_chance(&prng, 1, 10) ? crc + 1 : crc;
				(void)insert(block, crc); /* as counted */
				model_insert(&model, block, crc);
			}
			assert_same(&model);
			if (i % 64 == 0)
				assert_true(lp_block_cache_is_sound(cache));
		}
		close_cache();
	}
}

/* --- By itself -------------------------------------------------------------------------------- */

static void test_nothing_older_is_returned(void **state)
{
	(void)state;
	open_cache(8, 8);
	assert_true(insert(5, 1));
	assert_true(lookup(5, 1));
	assert_false(lookup(6, 1));
	/* Another crc is wanted: what is there is what was there before. */
	assert_false(lookup(5, 2));
	assert_int_equal(stats_of().stale, 1);
	assert_int_equal(stats_of().blocks, 0);
	assert_false(lookup(5, 1));
	/* Rewritten while it is there. */
	assert_true(insert(5, 1));
	assert_true(insert(5, 2));
	assert_int_equal(stats_of().stale, 2);
	assert_int_equal(stats_of().blocks, 1);
	assert_true(lookup(5, 2));
	close_cache();
}

static void test_buffers(void **state)
{
	(void)state;
	open_cache(8, 8);
	/* A small one is kept by reference. */
	struct lp_buf *small = lp_buf_new(bufs, LP_BUF_SMALL);
	fill(small->data, 1, 1);
	assert_true(insert_seg(1, 1, (struct lp_seg){small, 0, LP_BUF_SMALL}));
	assert_int_equal(small->refs, 2);
	assert_ptr_equal(lp_block_cache_lookup(cache, 1, 1, false)->buf, small);
	/* The same again takes no second one. */
	assert_true(insert_seg(1, 1, (struct lp_seg){small, 0, LP_BUF_SMALL}));
	assert_int_equal(small->refs, 2);
	lp_block_cache_invalidate(cache, (struct lp_extent){1, 1});
	assert_int_equal(small->refs, 1);
	lp_buf_put(small);
	/* Larger ones are not held: the block is copied. */
	static const uint32_t sizes[] = {LP_BUF_MEDIUM, LP_BUF_LARGE};
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		struct lp_buf *large = lp_buf_new(bufs, sizes[i]);
		uint32_t last = sizes[i] - LP_BUF_SMALL;
		fill(large->data + last, 7, 7);
		lp_block_cache_invalidate(cache, (struct lp_extent){7, 1});
		assert_true(insert_seg(7, 7, (struct lp_seg){large, last, LP_BUF_SMALL}));
		assert_int_equal(large->refs, 1);
		memset(large->data, 0xff, large->bytes);
		lp_buf_put(large);
		assert_true(lookup(7, 7));
	}
	assert_int_equal(stats_of().copies, 2);
	assert_int_equal(used_bytes(), LP_BUF_SMALL);
	close_cache();
}

static void test_no_buffer_for_a_copy(void **state)
{
	(void)state;
	open_cache(8, 8);
	static struct lp_buf *large[REGION_BYTES / LP_BUF_LARGE];
	for (size_t i = 0; i < LP_ARRAY_SIZE(large); i++)
		large[i] = lp_buf_new(bufs, LP_BUF_LARGE);
	struct lp_seg seg = {large[0], 0, LP_BUF_SMALL};
	fill(large[0]->data, 3, 3);
	assert_false(insert_seg(3, 3, seg));
	assert_false(lookup(3, 3));
	assert_int_equal(stats_of().refused, 1);
	assert_true(lp_block_cache_is_sound(cache));
	lp_buf_put(large[1]);
	assert_true(insert_seg(3, 3, seg));
	/* The rest of that slab goes, so that the next copy fails: the old content must go too. */
	static struct lp_buf *small[LP_BUF_LARGE / LP_BUF_SMALL];
	for (size_t i = 1; i < LP_ARRAY_SIZE(small); i++)
		small[i] = lp_buf_new(bufs, LP_BUF_SMALL);
	assert_false(insert_seg(3, 4, seg));
	assert_int_equal(stats_of().blocks, 0);
	assert_false(lookup(3, 3));
	for (size_t i = 0; i < LP_ARRAY_SIZE(large); i++) {
		if (i != 1)
			lp_buf_put(large[i]);
	}
	for (size_t i = 1; i < LP_ARRAY_SIZE(small); i++)
		lp_buf_put(small[i]);
	close_cache();
}

static void test_scan(void **state)
{
	(void)state;
	const uint64_t limit = 1000;
	const uint64_t hot = 600;
	open_cache(limit, limit);
	for (int round = 0; round < 4; round++) {
		for (uint64_t block = 0; block < hot; block++)
			(void)read_block(block);
	}
	/* Ten times the size, and nobody looks at the hot set meanwhile. */
	for (uint64_t block = 0; block < 10 * limit; block++)
		assert_false(read_block(1000000 + block));
	uint64_t hits = 0;
	for (uint64_t block = 0; block < hot; block++)
		hits += lookup(block, (uint32_t)block);
	assert_true(hits >= hot * 95 / 100);
	assert_int_equal(stats_of().blocks, limit);
	close_cache();
}

static void test_a_new_hot_set_takes_over(void **state)
{
	(void)state;
	open_cache(1000, 1000);
	for (uint64_t set = 0; set < 3; set++) {
		for (int round = 0; round < 12; round++) {
			for (uint64_t block = 0; block < 800; block++)
				(void)read_block(set * 1000000 + block);
		}
		uint64_t hits = 0;
		for (uint64_t block = 0; block < 800; block++)
			hits += read_block(set * 1000000 + block);
		assert_true(hits >= 780);
	}
	close_cache();
}

static void test_ghosts(void **state)
{
	(void)state;
	open_cache(100, 100); /* small: 10, ghosts: 90 */
	for (uint64_t block = 0; block < 190; block++)
		assert_false(read_block(block));
	assert_int_equal(stats_of().blocks, 100);
	assert_int_equal(stats_of().ghosts, 90);
	/* One that is remembered comes back: into main, where a scan does not reach it. */
	assert_false(read_block(50));
	assert_int_equal(stats_of().ghost_inserts, 1);
	for (uint64_t block = 1000; block < 2000; block++)
		assert_false(read_block(block));
	assert_true(lookup(50, 50));
	/* One that is too long gone is new. */
	assert_false(read_block(51));
	assert_int_equal(stats_of().ghost_inserts, 1);
	/* A freed block is forgotten: its number may get another content. */
	assert_int_equal(stats_of().ghosts, 90);
	lp_block_cache_invalidate(cache, (struct lp_extent){1000, UINT64_C(1) << 30});
	assert_int_equal(stats_of().ghosts, 0);
	assert_false(read_block(1950));
	assert_int_equal(stats_of().ghost_inserts, 1);
	close_cache();
}

static void test_resize(void **state)
{
	(void)state;
	open_cache(0, 1000);
	/* Off. */
	assert_false(insert(1, 1));
	assert_false(lookup(1, 1));
	assert_int_equal(stats_of().refused, 1);
	lp_block_cache_resize(cache, 1000);
	for (uint64_t block = 0; block < 1500; block++)
		(void)read_block(block);
	assert_int_equal(stats_of().blocks, 1000);
	lp_block_cache_resize(cache, 300);
	assert_int_equal(stats_of().blocks, 300);
	assert_true(stats_of().ghosts <= 270);
	assert_int_equal(used_bytes(), 300 * LP_BUF_SMALL);
	assert_true(lp_block_cache_is_sound(cache));
	lp_block_cache_resize(cache, 1);
	for (uint64_t block = 0; block < 100; block++)
		assert_false(read_block(block));
	assert_int_equal(stats_of().blocks, 1);
	assert_int_equal(stats_of().ghosts, 0);
	lp_block_cache_resize(cache, 0);
	assert_int_equal(used_bytes(), 0);
	lp_block_cache_resize(cache, 1000);
	for (uint64_t block = 0; block < 1000; block++)
		(void)read_block(block);
	assert_int_equal(stats_of().blocks, 1000);
	close_cache();
}

/* What goes at rest; the budget stays, and it fills again. */
static void test_shed(void **state)
{
	(void)state;
	open_cache(1000, 1000);
	lp_block_cache_shed(cache, 10); /* of nothing */
	for (int round = 0; round < 3; round++) {
		for (uint64_t block = 0; block < 1500; block++)
			(void)read_block(block);
		assert_int_equal(stats_of().blocks, 1000);
		lp_block_cache_shed(cache, 300);
		assert_int_equal(stats_of().blocks, 700);
		assert_int_equal(stats_of().limit_blocks, 1000);
		assert_true(lp_block_cache_is_sound(cache));
		for (uint64_t block = 1400; block < 1500; block++)
			(void)read_block(block);
		lp_block_cache_shed(cache, 10000);
		assert_int_equal(stats_of().blocks, 0);
		assert_int_equal(stats_of().ghosts, 0);
		assert_int_equal(used_bytes(), 0);
		assert_true(lp_block_cache_is_sound(cache));
	}
	for (uint64_t block = 0; block < 1000; block++)
		assert_false(read_block(block));
	close_cache();
}

static void test_huge_invalidations(void **state)
{
	(void)state;
	open_cache(1000, 1000);
	for (uint64_t block = 0; block < 1000; block++)
		(void)read_block(FAR(block));
	/* A loop over the blocks of one of these would take seconds, over all of them hours. */
	for (uint64_t i = 0; i < 1000; i++) {
		struct lp_extent extent = {(UINT64_C(1) << 47) + i, UINT64_C(1) << 46};
		lp_block_cache_invalidate(cache, extent);
	}
	assert_int_equal(stats_of().blocks, 1000);
	lp_block_cache_invalidate(cache, (struct lp_extent){FAR(500) + 1, FAR(99)});
	assert_int_equal(stats_of().blocks, 901);
	assert_true(lookup(FAR(500), (uint32_t)FAR(500)));
	assert_false(lookup(FAR(501), (uint32_t)FAR(501)));
	assert_true(lookup(FAR(600), (uint32_t)FAR(600)));
	lp_block_cache_invalidate(cache, (struct lp_extent){0, UINT64_MAX});
	assert_int_equal(stats_of().blocks, 0);
	assert_int_equal(stats_of().invalidated, 1000);
	lp_block_cache_invalidate(cache, (struct lp_extent){5, 0});
	close_cache();
}

/* However much all is in use, one insert moves a bounded number of entries. */
static void test_all_hot(void **state)
{
	(void)state;
	open_cache(2000, 2000);
	for (int round = 0; round < 6; round++) {
		for (uint64_t block = 0; block < 2000; block++)
			(void)read_block(block);
	}
	assert_false(read_block(5000));
	assert_int_equal(stats_of().blocks, 2000);
	assert_int_equal(stats_of().evictions, 1);
	uint64_t hits = 0;
	for (uint64_t block = 0; block < 2000; block++)
		hits += lookup(block, (uint32_t)block);
	assert_int_equal(hits, 1999);
	close_cache();
}

/* --- What comes too late ---------------------------------------------------------------------- */

static bool insert_since(uint64_t block, uint32_t crc, uint64_t since)
{
	struct lp_buf *buf = lp_buf_new(bufs, LP_BUF_SMALL);
	assert_non_null(buf);
	fill(buf->data, block, crc);
	const struct lp_block_cache_item item = {
		.block = block, .since = since, .seg = {buf, 0, LP_BUF_SMALL}, .crc = crc};
	bool is_kept = lp_block_cache_insert(cache, &item);
	lp_buf_put(buf);
	return is_kept;
}

/* The case in which the crc does not help: another content has the same one. So it is not only an
 * entry that must go when its block is freed or rewritten, but also what is on its way then. */
static void test_too_late(void **state)
{
	(void)state;
	struct lp_buf *fresh = NULL;
	open_cache(64, 64);
	for (uint64_t block = 100; block < 108; block++) {
		uint64_t since = lp_block_cache_now(cache);
		lp_block_cache_invalidate(cache, (struct lp_extent){block - 3, 4});
		assert_false(insert_since(block, 1, since));
		assert_false(lookup(block, 1));
		assert_true(insert_since(block, 1, lp_block_cache_now(cache)));
		since = lp_block_cache_now(cache);
		fresh = lp_buf_new(bufs, LP_BUF_SMALL);
		fill(fresh->data, block, 2);
		lp_block_cache_rewrite(cache, block, 1, (struct lp_seg){fresh, 0, LP_BUF_SMALL});
		/* The old content, with the crc of the new one: the new one stays. */
		assert_false(insert_since(block, 1, since));
		const struct lp_seg *seg = lp_block_cache_lookup(cache, block, 1, false);
		assert_ptr_equal(seg->buf, fresh);
		lp_buf_put(fresh);
	}
	assert_int_equal(stats_of().late, 16);
	/* Of a huge extent each block. */
	uint64_t since = lp_block_cache_now(cache);
	lp_block_cache_invalidate(cache, (struct lp_extent){0, UINT64_C(1) << 40});
	assert_false(insert_since(0, 1, since));
	assert_false(insert_since((UINT64_C(1) << 40) - 1, 1, since));
	assert_int_equal(stats_of().blocks, 0);
	/* What is freed elsewhere seldom matters. */
	uint64_t kept = 0;
	for (uint64_t block = 0; block < 60; block++) {
		since = lp_block_cache_now(cache);
		lp_block_cache_invalidate(cache, (struct lp_extent){1000 + block, 1});
		kept += insert_since(block, 1, since);
	}
	assert_true(kept >= 58);
	close_cache();
}

static void test_rewrite(void **state)
{
	(void)state;
	open_cache(100, 100);
	struct lp_buf *large = lp_buf_new(bufs, LP_BUF_MEDIUM);
	struct lp_seg seg = {large, 8192, LP_BUF_SMALL};
	/* What is not there does not come in, and a ghost stays one. */
	for (uint64_t block = 0; block < 150; block++)
		(void)read_block(block);
	uint64_t ghosts = stats_of().ghosts;
	fill(large->data + 8192, 20, 9);
	lp_block_cache_rewrite(cache, 20, 9, seg);
	lp_block_cache_rewrite(cache, 5000, 9, seg);
	assert_int_equal(stats_of().ghosts, ghosts);
	assert_int_equal(stats_of().blocks, 100);
	assert_false(lookup(20, 9));
	/* What is there has its new content, and readers keep the old one. */
	struct lp_buf *old = lp_buf_get(lp_block_cache_lookup(cache, 149, 149, false)->buf);
	fill(large->data + 8192, 149, 9);
	lp_block_cache_rewrite(cache, 149, 9, seg);
	memset(large->data, 0xff, large->bytes);
	assert_true(lookup(149, 9));
	assert_false(lookup(149, 149));
	uint64_t block = 0;
	memcpy(&block, old->data, sizeof(block));
	assert_int_equal(block, 149);
	assert_int_equal(old->refs, 1);
	lp_buf_put(old);
	lp_buf_put(large);
	close_cache();
}

/* --- Reading ahead ---------------------------------------------------------------------------- */

static void insert_ahead(uint64_t block)
{
	struct lp_buf *buf = lp_buf_new(bufs, LP_BUF_SMALL);
	assert_non_null(buf);
	fill(buf->data, block, (uint32_t)block);
	const struct lp_block_cache_item item = {.block = block,
						 .since = lp_block_cache_now(cache),
						 .seg = {buf, 0, LP_BUF_SMALL},
						 .crc = (uint32_t)block,
						 .is_ahead = true};
	assert_true(lp_block_cache_insert(cache, &item));
	lp_buf_put(buf);
}

/* A reader that comes by once, in whatever pieces, with or without read-ahead, leaves main alone.
 */
static void test_one_pass_in_pieces(void **state)
{
	(void)state;
	open_cache(100, 100);
	for (int round = 0; round < 4; round++) {
		for (uint64_t block = 0; block < 60; block++)
			(void)read_block(block);
	}
	for (uint64_t block = 1000; block < 2000; block++) {
		if (block % 2 == 0)
			insert_ahead(block);
		else
			(void)read_block(block);
		for (int piece = block % 2 == 0 ? 0 : 1; piece < 8; piece++)
			assert_non_null(
				lp_block_cache_lookup(cache, block, (uint32_t)block, piece > 0));
	}
	uint64_t hits = 0;
	for (uint64_t block = 0; block < 60; block++)
		hits += lookup(block, (uint32_t)block);
	assert_true(hits >= 57);
	assert_int_equal(stats_of().ahead_inserts, 500);
	assert_int_equal(stats_of().ahead_used, 500);
	assert_int_equal(stats_of().ahead_wasted, 0);
	/* Read ahead and not used: evicted, forgotten, stale. */
	for (uint64_t block = 3000; block < 3200; block++)
		insert_ahead(block);
	assert_true(lp_block_cache_has(cache, 3199));
	assert_false(lp_block_cache_has(cache, 3000));
	lp_block_cache_invalidate(cache, (struct lp_extent){3000, 199});
	assert_false(lookup(3199, 1));
	assert_int_equal(stats_of().ahead_wasted, 200);
	assert_int_equal(stats_of().ahead_used, 500);
	close_cache();
}

static void test_buffers_of_others(void **state)
{
	(void)state;
	struct lp_bufs *others = NULL;
	open_cache(8, 8);
	lp_test_ok(lp_bufs_new(1 << 20, &others));
	struct lp_buf *buf = lp_buf_new(others, LP_BUF_SMALL);
	fill(buf->data, 3, 3);
	assert_true(insert_seg(3, 3, (struct lp_seg){buf, 0, LP_BUF_SMALL}));
	assert_int_equal(buf->refs, 1);
	lp_buf_put(buf);
	lp_bufs_free(others); /* asserts that none is held */
	assert_true(lookup(3, 3));
	assert_int_equal(stats_of().copies, 1);
	close_cache();
}

static void resize_beyond(void *arg)
{
	(void)arg;
	lp_block_cache_resize(cache, 9);
}

static void insert_short(void *arg)
{
	struct lp_buf *buf = arg;
	(void)insert_seg(1, 1, (struct lp_seg){buf, 0, 512});
}

static void insert_outside(void *arg)
{
	struct lp_buf *buf = arg;
	(void)insert_seg(1, 1, (struct lp_seg){buf, 512, LP_BUF_SMALL});
}

static void test_breaches(void **state)
{
	(void)state;
	open_cache(8, 8);
	struct lp_buf *buf = lp_buf_new(bufs, LP_BUF_SMALL);
	lp_test_dies(resize_beyond, NULL);
	lp_test_dies(insert_short, buf);
	lp_test_dies(insert_outside, buf);
	lp_buf_put(buf);
	lp_block_cache_free(NULL);
	close_cache();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_nothing_older_is_returned),
		cmocka_unit_test(test_buffers),
		cmocka_unit_test(test_no_buffer_for_a_copy),
		cmocka_unit_test(test_scan),
		cmocka_unit_test(test_a_new_hot_set_takes_over),
		cmocka_unit_test(test_ghosts),
		cmocka_unit_test(test_resize),
		cmocka_unit_test(test_shed),
		cmocka_unit_test(test_huge_invalidations),
		cmocka_unit_test(test_all_hot),
		cmocka_unit_test(test_too_late),
		cmocka_unit_test(test_rewrite),
		cmocka_unit_test(test_one_pass_in_pieces),
		cmocka_unit_test(test_buffers_of_others),
		cmocka_unit_test(test_breaches),
	};
	return lp_test_main(tests, "store/cache/block_cache");
}
