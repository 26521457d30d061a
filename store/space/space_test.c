/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: after a crash at any point the space knows exactly what durable frames say (rule S2); no
 * block is handed out while it is in use, or its free is not durable, or an I/O is on it
 * (rule S3); records from the device are checked before they are believed.
 * Method: a model of frames, records and what is persisted drives random groups, pins,
 * checkpoints, chunks that come and go, and crashes, on each kind of allocator; each rule
 * once more by hand; every byte of a record spoilt.
 *
 * Long because the rules by hand need the model's records and frames. */
#include "base/testing/test.h"

#include "base/crc32c.h"
#include "base/prng.h"
#include "format/space.h"
#include "store/space/space.h"

#define CHUNK_BLOCKS 256
#define CHUNK_CNT    12
#define BASE_BLOCK   7
#define BLOCK_CNT    (BASE_BLOCK + CHUNK_CNT * CHUNK_BLOCKS)
#define FRAMES_MAX   4096
#define CHANGES_MAX  16
#define OBJECTS_MAX  512
#define PINS_MAX     24
#define RECORDS_MAX  (2 * CHUNK_CNT + 8)

struct frame {
	uint64_t seq;
	size_t len;
	uint8_t changes[CHANGES_MAX * LP_SPACE_CHANGE_SIZE];
};

struct record {
	uint64_t commit_seq; /* 0: unused */
	uint32_t chunk;
	size_t len;
	uint8_t bytes[LP_SPACE_RECORD_SIZE + CHUNK_BLOCKS / 8];
};

struct object {
	struct lp_extent extent; /* cnt 0: unused */
	uint64_t take_seq;
	uint64_t free_seq; /* 0: lives */
};

struct pin {
	bool is_on;
	struct lp_space_pin pin;
};

struct fixture {
	struct lp_space_config config;
	struct lp_space *space;
	struct lp_prng prng;
	bool is_owned[CHUNK_CNT];
	bool is_lent[BLOCK_CNT]; /* of an owned chunk, and another shard's */
	bool is_used[BLOCK_CNT]; /* by durable frames */
	struct frame frames[FRAMES_MAX];
	uint64_t next_seq;    /* of the open group, which is frames[next_seq] */
	uint64_t durable_seq; /* frames[..] up to here are durable, later ones in flight */
	uint64_t persisted_seq;
	uint64_t log_start;
	struct lp_space_group group;
	struct record records[RECORDS_MAX];
	struct object objects[OBJECTS_MAX];
	struct pin pins[PINS_MAX];
	unsigned given_back_cnt;
	unsigned lent_cnt;
	/* What is set aside, of one chunk at a time. */
	uint64_t aside_cnt; /* 0: nothing is */
	uint32_t aside_chunk;
	uint64_t aside_seq;
	uint64_t aside_words[CHUNK_BLOCKS / 64];
	unsigned aside_lent_cnt; /* so often while the chunk had changes without a record */
};

static struct fixture fx;

static uint64_t block_of(uint32_t chunk, uint64_t i)
{
	return BASE_BLOCK + (uint64_t)chunk * CHUNK_BLOCKS + i;
}

/* The blocks of the chunk that are lent, or those that are not. */
static uint64_t find_lent(uint32_t chunk, bool is_lent, struct lp_bitmap *ret)
{
	for (uint64_t i = 0; i < CHUNK_BLOCKS; i++) {
		if (fx.is_lent[block_of(chunk, i)] == is_lent)
			lp_bitmap_set(ret, i, i + 1);
	}
	return lp_bitmap_count(ret, 0, CHUNK_BLOCKS);
}

static void open_space(void)
{
	lp_test_ok(lp_space_new(&fx.config, &fx.space));
	for (uint32_t i = 0; i < CHUNK_CNT; i++) {
		uint64_t words[CHUNK_BLOCKS / 64] = {0};
		struct lp_bitmap mine;
		lp_bitmap_init(&mine, words, CHUNK_BLOCKS);
		uint64_t cnt = fx.is_owned[i] ? find_lent(i, false, &mine) : 0;
		if (cnt == CHUNK_BLOCKS)
			lp_test_ok(lp_space_chunk_add(fx.space, i));
		else if (cnt > 0)
			lp_test_ok(lp_space_blocks_add(fx.space, i, i % 2 == 0, &mine));
	}
}

static void open_group(void)
{
	struct frame *frame = &fx.frames[fx.next_seq];
	*frame = (struct frame){.seq = fx.next_seq};
	lp_space_group_init(&fx.group, frame->changes, sizeof(frame->changes));
}

static void start(enum lp_alloc_kind kind, uint64_t seed)
{
	memset(&fx, 0, sizeof(fx));
	fx.config = (struct lp_space_config){.alloc_kind = kind,
					     .alloc_memory_max_bytes = 4096,
					     .base_block = BASE_BLOCK,
					     .chunk_blocks = CHUNK_BLOCKS,
					     .chunk_cnt_max = CHUNK_CNT,
					     .low_water_blocks = CHUNK_BLOCKS / 2};
	if (kind == LP_ALLOC_EXTENT)
		fx.config.alloc_memory_max_bytes = 0;
	lp_prng_init(&fx.prng, seed);
	for (uint32_t i = 0; i < 4; i++)
		fx.is_owned[i] = true;
	fx.next_seq = 1;
	fx.log_start = 1;
	open_space();
	lp_test_ok(lp_space_recovered(fx.space, 0));
	open_group();
}

static void unpin_all(void)
{
	for (size_t i = 0; i < PINS_MAX; i++) {
		if (fx.pins[i].is_on)
			lp_space_unpin(fx.space, &fx.pins[i].pin);
		fx.pins[i].is_on = false;
	}
}

static void finish(void)
{
	unpin_all();
	lp_space_free(fx.space);
	fx.space = NULL;
}

static bool overlap(struct lp_extent a, struct lp_extent b)
{
	return a.block < lp_extent_end(b) && b.block < lp_extent_end(a);
}

/* What was just handed out must be nobody's, nor be under an I/O. */
static void check_taken(struct lp_extent extent)
{
	for (uint64_t i = extent.block; i < lp_extent_end(extent); i++) {
		assert_false(fx.is_used[i]); /* the free must be durable: rule S3 */
		assert_true(fx.is_owned[(i - BASE_BLOCK) / CHUNK_BLOCKS]);
		assert_false(fx.is_lent[i]);
	}
	for (size_t i = 0; i < OBJECTS_MAX; i++) {
		const struct object *object = &fx.objects[i];
		bool is_gone = object->free_seq != 0 && object->free_seq <= fx.durable_seq;
		assert_true(object->extent.cnt == 0 || is_gone || !overlap(object->extent, extent));
	}
	for (size_t i = 0; i < PINS_MAX; i++)
		assert_true(!fx.pins[i].is_on || !overlap(fx.pins[i].pin.extent, extent));
}

static struct object *object_slot(void)
{
	for (size_t i = 0; i < OBJECTS_MAX; i++) {
		struct object *object = &fx.objects[i];
		if (object->extent.cnt == 0 ||
		    (object->free_seq != 0 && object->free_seq <= fx.durable_seq))
			return object;
	}
	return NULL;
}

static void random_take(void)
{
	struct lp_extent extents[4];
	uint64_t blocks;
	struct lp_alloc_options options = {.hint = LP_ALLOC_NO_HINT, .extents_max = 4};
	int cnt = lp_space_take(fx.space, 1 + lp_prng_below(&fx.prng, 60), &options, extents,
				&blocks);
	assert_true(cnt > 0 || cnt == -ENOSPC);
	for (int i = 0; i < cnt; i++)
		check_taken(extents[i]);
	for (int i = 0; i < cnt; i++) {
		struct object *object = object_slot();
		if (object == NULL || lp_prng_chance(&fx.prng, 1, 10) ||
		    lp_space_log_take(&fx.group, extents[i]) != 0) {
			lp_space_untake(fx.space, extents[i]);
			continue;
		}
		*object = (struct object){.extent = extents[i], .take_seq = fx.next_seq};
	}
}

static struct object *random_object(void)
{
	struct object *object = &fx.objects[lp_prng_below(&fx.prng, OBJECTS_MAX)];
	return object->extent.cnt != 0 && object->free_seq == 0 ? object : NULL;
}

static void random_free(void)
{
	struct object *object = random_object();
	for (int i = 0; object == NULL && i < 50; i++)
		object = random_object();
	if (object != NULL && lp_space_log_free(&fx.group, object->extent) == 0)
		object->free_seq = fx.next_seq;
}

static void random_pin(void)
{
	struct pin *pin = &fx.pins[lp_prng_below(&fx.prng, PINS_MAX)];
	const struct object *object = random_object();
	if (pin->is_on) {
		lp_space_unpin(fx.space, &pin->pin);
		pin->is_on = false;
	} else if (object != NULL) {
		struct lp_extent part = object->extent;
		uint64_t skip = lp_prng_below(&fx.prng, part.cnt);
		part.block += skip;
		part.cnt = 1 + lp_prng_below(&fx.prng, part.cnt - skip);
		lp_space_pin(fx.space, &pin->pin, part);
		pin->is_on = true;
	}
}

static void seal(void)
{
	if (fx.next_seq + 1 >= FRAMES_MAX || fx.next_seq > fx.durable_seq + 6)
		return;
	fx.frames[fx.next_seq].len = fx.group.len;
	fx.next_seq++;
	open_group();
}

static void apply_to_model(const struct frame *frame)
{
	for (size_t at = 0; at < frame->len; at += LP_SPACE_CHANGE_SIZE) {
		struct lp_space_change change;
		lp_space_change_decode(frame->changes + at, &change);
		bool takes = change.kind == LP_SPACE_CHANGE_KIND_TAKE;
		for (uint64_t i = change.block; i < change.block + change.cnt; i++) {
			assert_int_equal(fx.is_used[i], !takes);
			fx.is_used[i] = takes;
		}
	}
}

static void next_durable(void)
{
	if (fx.durable_seq + 1 >= fx.next_seq)
		return;
	const struct frame *frame = &fx.frames[++fx.durable_seq];
	apply_to_model(frame);
	lp_space_frame_durable(fx.space, frame->seq, frame->changes, frame->len);
}

static struct record *record_slot(void)
{
	for (size_t i = 0; i < RECORDS_MAX; i++) {
		if (fx.records[i].commit_seq == 0)
			return &fx.records[i];
	}
	return NULL;
}

static void forget_records(uint64_t from_seq)
{
	for (size_t i = 0; i < RECORDS_MAX; i++) {
		if (fx.records[i].commit_seq >= from_seq)
			fx.records[i].commit_seq = 0;
	}
}

/* A later record of the same key, once persisted, takes the place of the former. */
static void replace_old_records(void)
{
	for (size_t i = 0; i < RECORDS_MAX; i++) {
		for (size_t k = 0; k < RECORDS_MAX; k++) {
			if (fx.records[i].commit_seq != 0 &&
			    fx.records[i].chunk == fx.records[k].chunk &&
			    fx.records[i].commit_seq < fx.records[k].commit_seq &&
			    fx.records[k].commit_seq <= fx.persisted_seq)
				fx.records[i].commit_seq = 0;
		}
	}
}

static void random_checkpoint(void)
{
	static uint8_t buf[LP_SPACE_RECORD_BYTES_MAX];
	uint64_t budget = lp_prng_below(&fx.prng, 4);
	for (uint64_t n = 0; n < budget; n++) {
		struct record *slot = record_slot();
		assert_non_null(slot);
		/* The last one made for the same commit is what the commit has. */
		size_t len;
		uint32_t chunk;
		if (lp_space_checkpoint_next(fx.space, fx.next_seq, buf, &chunk, &len) == 0)
			return;
		for (size_t i = 0; i < RECORDS_MAX; i++) {
			if (fx.records[i].chunk == chunk && fx.records[i].commit_seq == fx.next_seq)
				slot = &fx.records[i];
		}
		assert_true(len <= sizeof(slot->bytes));
		slot->commit_seq = fx.next_seq;
		slot->chunk = chunk;
		slot->len = len;
		memcpy(slot->bytes, buf, len);
	}
	if (lp_prng_chance(&fx.prng, 1, 5)) {
		lp_space_checkpoint_abandon(fx.space, fx.next_seq);
		forget_records(fx.next_seq);
	}
}

static void random_persist(void)
{
	fx.persisted_seq = lp_prng_between(&fx.prng, fx.persisted_seq, fx.durable_seq);
	replace_old_records();
	lp_space_persisted(fx.space, fx.persisted_seq);
	assert_true(lp_space_log_start(fx.space) >= fx.log_start);
	fx.log_start = lp_space_log_start(fx.space);
}

static void random_chunk(void)
{
	uint32_t chunk = (uint32_t)lp_prng_below(&fx.prng, CHUNK_CNT);
	if (lp_space_wants_chunk(fx.space) && !fx.is_owned[chunk]) {
		lp_test_ok(lp_space_chunk_add(fx.space, chunk));
		lp_test_err(-EEXIST, lp_space_chunk_add(fx.space, chunk));
		fx.is_owned[chunk] = true;
	} else if (lp_space_chunk_find_empty(fx.space, 0, lp_space_keep_blocks(fx.space), &chunk)) {
		assert_true(fx.is_owned[chunk]);
		for (uint64_t i = 0; i < CHUNK_BLOCKS; i++)
			assert_false(fx.is_used[block_of(chunk, i)] ||
				     fx.is_lent[block_of(chunk, i)]);
		lp_test_ok(lp_space_chunk_remove(fx.space, chunk));
		fx.is_owned[chunk] = false;
		fx.given_back_cnt++;
	}
}

/* Some free blocks become another shard's. */
static void random_lend(void)
{
	uint64_t words[CHUNK_BLOCKS / 64] = {0};
	struct lp_bitmap lent;
	struct lp_space_loose loose = {.is_begun = false};
	uint64_t last = UINT64_MAX;
	lp_bitmap_init(&lent, words, CHUNK_BLOCKS);
	if (!lp_space_next_loose(fx.space, false, &loose))
		return;
	for (struct lp_space_loose next = loose; lp_prng_chance(&fx.prng, 1, 2);) {
		assert_true(next.cnt <= last);
		last = next.cnt;
		if (!lp_space_next_loose(fx.space, false, &next))
			break;
		loose = next;
	}
	uint64_t max = lp_prng_between(&fx.prng, 1, CHUNK_BLOCKS / 4);
	uint64_t free_blocks = lp_alloc_free_blocks(lp_space_alloc(fx.space));
	uint64_t cnt = lp_space_blocks_remove(fx.space, loose.chunk, max, &lent);
	assert_true(cnt <= max && cnt == lp_bitmap_count(&lent, 0, CHUNK_BLOCKS));
	assert_int_equal(lp_alloc_free_blocks(lp_space_alloc(fx.space)), free_blocks - cnt);
	for (uint64_t i = 0; i < CHUNK_BLOCKS; i++) {
		if (!lp_bitmap_test(&lent, i))
			continue;
		struct lp_extent extent = {block_of(loose.chunk, i), 1};
		check_taken(extent);
		fx.is_lent[extent.block] = true;
		assert_false(lp_space_has(fx.space, extent));
		assert_false(lp_space_is_taken(fx.space, extent));
	}
	fx.lent_cnt += cnt > 0;
}

/* Some blocks are set aside, though their chunk has changes without a record. */
static void random_set_aside(void)
{
	struct lp_space_loose loose = {.is_begun = false};
	struct lp_bitmap aside;
	memset(fx.aside_words, 0, sizeof(fx.aside_words));
	lp_bitmap_init(&aside, fx.aside_words, CHUNK_BLOCKS);
	do {
		if (!lp_space_next_any(fx.space, &loose))
			return;
	} while (lp_prng_chance(&fx.prng, 1, 2));
	uint64_t max = lp_prng_between(&fx.prng, 1, CHUNK_BLOCKS / 4);
	fx.aside_cnt = lp_space_set_aside(fx.space, loose.chunk, max, &aside);
	fx.aside_chunk = loose.chunk;
	fx.aside_seq = lp_space_durable_seq(fx.space);
	assert_int_equal(lp_bitmap_count(&aside, 0, CHUNK_BLOCKS), fx.aside_cnt);
}

/* They become another shard's as soon as that is sound, or are put back. */
static void random_let_go(void)
{
	struct lp_bitmap aside;
	lp_bitmap_init(&aside, fx.aside_words, CHUNK_BLOCKS);
	if (lp_prng_chance(&fx.prng, 1, 4)) {
		lp_space_put_back(fx.space, fx.aside_chunk, &aside);
		fx.aside_cnt = 0;
		return;
	}
	if (!lp_space_is_recorded(fx.space, fx.aside_chunk, fx.aside_seq))
		return;
	fx.aside_lent_cnt += !lp_space_is_recorded(fx.space, fx.aside_chunk, UINT64_MAX);
	lp_test_ok(lp_space_let_go(fx.space, fx.aside_chunk, &aside));
	for (uint64_t i = 0; i < CHUNK_BLOCKS; i++) {
		struct lp_extent extent = {block_of(fx.aside_chunk, i), 1};
		if (!lp_bitmap_test(&aside, i))
			continue;
		check_taken(extent);
		fx.is_lent[extent.block] = true;
		assert_false(lp_space_has(fx.space, extent));
	}
	fx.aside_cnt = 0;
}

/* Some of them, or all of a chunk, come back. */
static void random_get_back(void)
{
	uint64_t words[CHUNK_BLOCKS / 64] = {0};
	struct lp_bitmap lent;
	uint32_t chunk = (uint32_t)lp_prng_below(&fx.prng, CHUNK_CNT);
	lp_bitmap_init(&lent, words, CHUNK_BLOCKS);
	if (find_lent(chunk, true, &lent) == 0)
		return;
	if (lp_prng_chance(&fx.prng, 1, 2))
		lp_bitmap_clear(&lent, 0, lp_bitmap_find_set(&lent, 0, CHUNK_BLOCKS) / 2);
	lp_test_ok(lp_space_blocks_add(fx.space, chunk, chunk % 2 == 0, &lent));
	for (uint64_t i = 0; i < CHUNK_BLOCKS; i++) {
		if (lp_bitmap_test(&lent, i))
			fx.is_lent[block_of(chunk, i)] = false;
	}
}

static void check_durable(void)
{
	uint64_t used = 0;
	for (uint64_t i = BASE_BLOCK; i < BLOCK_CNT; i++) {
		struct lp_extent block = {.block = i, .cnt = 1};
		bool is_mine = fx.is_owned[(i - BASE_BLOCK) / CHUNK_BLOCKS] && !fx.is_lent[i];
		assert_int_equal(lp_space_has(fx.space, block), is_mine);
		if (!is_mine) {
			assert_false(fx.is_used[i]);
			continue;
		}
		used += fx.is_used[i];
		assert_int_equal(lp_space_is_used(fx.space, block), fx.is_used[i]);
		assert_int_equal(lp_space_is_unused(fx.space, block), !fx.is_used[i]);
		assert_true(!fx.is_used[i] || !lp_alloc_is_free(lp_space_alloc(fx.space), block));
	}
	assert_int_equal(lp_space_used_blocks(fx.space) - lp_space_waiting_blocks(fx.space), used);
	assert_true(lp_alloc_is_sound(lp_space_alloc(fx.space)));
}

/* What is durable: a prefix of the frames in flight, records up to persisted_seq. */
static void crash(void)
{
	uint64_t survive = lp_prng_between(&fx.prng, fx.durable_seq, fx.next_seq - 1);
	unpin_all();
	lp_space_free(fx.space);
	fx.aside_cnt = 0;
	while (fx.durable_seq < survive)
		apply_to_model(&fx.frames[++fx.durable_seq]);
	fx.next_seq = survive + 1;
	forget_records(fx.persisted_seq + 1);
	open_space();
	for (size_t i = 0; i < RECORDS_MAX; i++) {
		const struct record *record = &fx.records[i];
		if (record->commit_seq != 0)
			lp_test_ok(lp_space_load_record(fx.space, record->chunk, record->bytes,
							record->len));
	}
	for (uint64_t seq = fx.log_start; seq <= survive; seq++)
		lp_test_ok(lp_space_replay_frame(fx.space, seq, fx.frames[seq].changes,
						 fx.frames[seq].len));
	lp_test_ok(lp_space_recovered(fx.space, survive));
	for (size_t i = 0; i < OBJECTS_MAX; i++) {
		struct object *object = &fx.objects[i];
		if (object->take_seq > survive)
			*object = (struct object){0};
		if (object->free_seq > survive)
			object->free_seq = 0;
	}
	open_group();
	check_durable();
	/* Nothing waits after a crash: all the rest is free. */
	assert_int_equal(lp_alloc_free_blocks(lp_space_alloc(fx.space)),
			 lp_alloc_space_blocks(lp_space_alloc(fx.space)) -
				 lp_space_used_blocks(fx.space));
}

static void run_model(enum lp_alloc_kind kind, uint64_t seed)
{
	start(kind, seed);
	for (int n = 0; n < 8000; n++) {
		bool is_filling = n / 1000 % 2 == 0;
		uint64_t dice = lp_prng_below(&fx.prng, 100);
		if (dice < (is_filling ? 25 : 10))
			random_take();
		else if (dice < 50)
			random_free();
		else if (dice < 59)
			random_pin();
		else if (dice < 60)
			fx.aside_cnt == 0 ? random_set_aside() : random_let_go();
		else if (dice < 73)
			seal();
		else if (dice < 87)
			next_durable();
		else if (dice < 91)
			random_checkpoint();
		else if (dice < 95)
			random_persist();
		else if (dice < 97)
			random_chunk();
		else if (dice < 98)
			random_lend();
		else if (dice < 99)
			random_get_back();
		else if (lp_prng_chance(&fx.prng, 1, 2))
			crash();
		if (n % 64 == 0)
			check_durable();
	}
	/* The log does move, and chunks do come and go. */
	assert_true(fx.log_start > 100);
	assert_true(fx.given_back_cnt > 5);
	assert_true(fx.lent_cnt > 1);
	assert_true(fx.aside_lent_cnt > 1);
	crash();
	finish();
}

static void test_model(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 4; seed++) {
		run_model(LP_ALLOC_HYBRID, seed);
		run_model(LP_ALLOC_BITMAP, seed);
		run_model(LP_ALLOC_EXTENT, seed);
	}
}

/* By hand */

static struct lp_extent take(uint64_t cnt)
{
	struct lp_alloc_options options = {
		.hint = LP_ALLOC_NO_HINT, .extents_max = 1, .is_contiguous = true};
	struct lp_extent extent;
	uint64_t blocks;
	assert_int_equal(lp_space_take(fx.space, cnt, &options, &extent, &blocks), 1);
	return extent;
}

static uint64_t free_blocks(void)
{
	return lp_alloc_free_blocks(lp_space_alloc(fx.space));
}

static void test_free_waits_for_durability_and_io(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	uint64_t all = free_blocks();
	struct lp_extent extent = take(10);
	lp_test_ok(lp_space_log_take(&fx.group, extent));
	seal();
	lp_test_ok(lp_space_log_free(&fx.group, extent));
	seal();
	next_durable();
	/* Rule S3: neither logged nor submitted is enough. */
	assert_int_equal(free_blocks(), all - 10);
	struct lp_space_pin read = {0};
	struct lp_space_pin write = {0};
	lp_space_pin(fx.space, &read, (struct lp_extent){extent.block + 2, 4});
	lp_space_pin(fx.space, &write, (struct lp_extent){extent.block + 5, 2});
	next_durable();
	assert_int_equal(free_blocks(), all - 5);
	assert_int_equal(lp_space_waiting_blocks(fx.space), 5);
	/* One block has an I/O left. */
	lp_space_unpin(fx.space, &read);
	assert_int_equal(free_blocks(), all - 2);
	lp_space_unpin(fx.space, &write);
	assert_int_equal(free_blocks(), all);
	/* The same for what was never logged. */
	extent = take(10);
	lp_space_pin(fx.space, &write, extent);
	lp_space_untake(fx.space, extent);
	assert_int_equal(free_blocks(), all - 10);
	lp_space_unpin(fx.space, &write);
	assert_int_equal(free_blocks(), all);
	finish();
}

static bool any_is_on(const struct lp_space_pin *pins, uint32_t cnt, struct lp_extent range)
{
	for (uint32_t i = 0; i < cnt; i++) {
		if (pins[i].extent.cnt > 0 && !pins[i].is_hold && overlap(pins[i].extent, range))
			return true;
	}
	return false;
}

/* Whether an I/O is on a block (rule S3) does not depend on where it began, how long it is, and
 * what else is pinned: short ones and long ones, far from each other and on top of each other. */
static void test_every_pin_is_found(void **state)
{
	(void)state;
	enum { CNT = 200, BIG_BLOCKS = 1 << 16, LONG_MAX = 20000 };
	static struct lp_space_pin pins[CNT];
	const struct lp_space_config config = {.alloc_kind = LP_ALLOC_BITMAP,
					       .base_block = BASE_BLOCK,
					       .chunk_blocks = BIG_BLOCKS,
					       .chunk_cnt_max = 2};
	struct lp_prng prng;
	struct lp_space *space;
	memset(pins, 0, sizeof(pins));
	lp_prng_init(&prng, 5);
	lp_test_ok(lp_space_new(&config, &space));
	lp_test_ok(lp_space_chunk_add(space, 0));
	lp_test_ok(lp_space_chunk_add(space, 1));
	lp_test_ok(lp_space_recovered(space, 0));
	for (uint32_t round = 0; round < 20000; round++) {
		struct lp_space_pin *pin = &pins[lp_prng_below(&prng, CNT)];
		bool is_long = lp_prng_chance(&prng, 1, 10);
		uint64_t cnt = 1 + lp_prng_below(&prng, is_long ? LONG_MAX : 4);
		uint64_t block = BASE_BLOCK + lp_prng_below(&prng, 2 * BIG_BLOCKS - LONG_MAX);
		if (pin->extent.cnt > 0) {
			lp_space_unpin(space, pin);
			*pin = (struct lp_space_pin){0};
		} else if (lp_prng_chance(&prng, 1, 8)) {
			lp_space_hold(space, pin, (struct lp_extent){block, cnt});
		} else {
			lp_space_pin(space, pin, (struct lp_extent){block, cnt});
		}
		uint64_t len = 1 + lp_prng_below(&prng, lp_prng_chance(&prng, 1, 2) ? 3 : 300);
		struct lp_extent range = {BASE_BLOCK + lp_prng_below(&prng, 2 * BIG_BLOCKS - 300),
					  len};
		assert_int_equal(lp_space_is_pinned(space, range), any_is_on(pins, CNT, range));
	}
	for (uint32_t i = 0; i < CNT; i++) {
		if (pins[i].extent.cnt > 0)
			lp_space_unpin(space, &pins[i]);
	}
	lp_space_free(space);
}

/* What a durable record may still write is given to nobody, also across an opening (rule S3); but
 * it is no I/O: write-back may go there. */
static void test_held_blocks_are_not_given_away(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	uint64_t all = free_blocks();
	struct lp_extent extent = take(10);
	struct lp_space_pin freed = {0};
	struct lp_space_pin used = {0};
	const struct lp_extent second = {extent.block + 1, 1};
	const struct lp_extent last = {extent.block + 9, 1};
	lp_test_ok(lp_space_log_take(&fx.group, extent));
	seal();
	lp_test_ok(lp_space_log_free(&fx.group, (struct lp_extent){extent.block, 9}));
	seal();
	next_durable();
	lp_space_hold(fx.space, &freed, second);
	lp_space_hold(fx.space, &used, last);
	assert_false(lp_space_is_pinned(fx.space, extent));
	static uint8_t buf[LP_SPACE_RECORD_BYTES_MAX];
	uint32_t chunk;
	size_t len;
	next_durable();
	assert_int_equal(free_blocks(), all - 2);
	assert_int_equal(lp_space_waiting_blocks(fx.space), 1);
	assert_int_equal(lp_space_checkpoint_next(fx.space, 3, buf, &chunk, &len), 1);
	lp_space_unpin(fx.space, &freed);
	lp_space_unpin(fx.space, &used);
	assert_int_equal(free_blocks(), all - 1);
	lp_space_free(fx.space);
	open_space();
	lp_test_ok(lp_space_load_record(fx.space, chunk, buf, len));
	lp_space_hold(fx.space, &freed, second);
	lp_space_hold(fx.space, &used, last);
	lp_test_ok(lp_space_recovered(fx.space, 2));
	assert_int_equal(free_blocks(), all - 2);
	assert_true(lp_space_is_unused(fx.space, second));
	assert_true(lp_space_is_used(fx.space, last));
	lp_space_unpin(fx.space, &freed);
	lp_space_unpin(fx.space, &used);
	assert_int_equal(free_blocks(), all - 1);
	finish();
}

/* Rule S2: a record made while a group is in flight, and persisted, knows nothing of the group. */
static void test_record_has_durable_frames_only(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	struct lp_extent durable = take(10);
	lp_test_ok(lp_space_log_take(&fx.group, durable));
	seal();
	struct lp_extent lost = take(20);
	lp_test_ok(lp_space_log_take(&fx.group, lost));
	lp_test_ok(lp_space_log_free(&fx.group, durable));
	seal();
	next_durable();
	static uint8_t buf[LP_SPACE_RECORD_BYTES_MAX];
	uint32_t chunk;
	size_t len;
	assert_int_equal(lp_space_checkpoint_next(fx.space, 3, buf, &chunk, &len), 1);
	lp_space_free(fx.space);
	open_space();
	lp_test_ok(lp_space_load_record(fx.space, chunk, buf, len));
	lp_test_ok(lp_space_recovered(fx.space, 1));
	assert_true(lp_space_is_used(fx.space, durable));
	assert_true(lp_space_is_unused(fx.space, lost));
	finish();
}

/* Rule S2: the log keeps the oldest change that no persisted record contains. */
static void test_log_start(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	static uint8_t buf[LP_SPACE_RECORD_BYTES_MAX];
	uint32_t chunk;
	size_t len;
	assert_int_equal(lp_space_log_start(fx.space), 1);
	seal();
	lp_test_ok(lp_space_log_take(&fx.group, take(1)));
	seal();
	lp_test_ok(lp_space_log_take(&fx.group, take(1)));
	seal();
	next_durable();
	assert_int_equal(lp_space_log_start(fx.space), 2);
	next_durable();
	assert_int_equal(lp_space_checkpoint_next(fx.space, 4, buf, &chunk, &len), 1);
	assert_int_equal(lp_space_checkpoint_next(fx.space, 4, buf, &chunk, &len), 0);
	next_durable(); /* changes the chunk after the record */
	lp_space_persisted(fx.space, 3);
	assert_int_equal(lp_space_log_start(fx.space), 2); /* made, but not persisted */
	lp_space_persisted(fx.space, 4);
	assert_int_equal(lp_space_log_start(fx.space), 3);
	assert_int_equal(lp_space_checkpoint_next(fx.space, 5, buf, &chunk, &len), 1);
	lp_space_checkpoint_abandon(fx.space, 5);
	lp_space_persisted(fx.space, 5);
	assert_int_equal(lp_space_log_start(fx.space), 3);
	assert_int_equal(lp_space_checkpoint_next(fx.space, 6, buf, &chunk, &len), 1);
	lp_space_persisted(fx.space, 6);
	assert_int_equal(lp_space_log_start(fx.space), 4);
	finish();
}

static size_t one_change(uint8_t *buf, uint64_t block, uint32_t cnt, uint8_t kind)
{
	struct lp_space_change change = {.block = block, .cnt = cnt, .kind = kind};
	lp_space_change_encode(&change, buf);
	return LP_SPACE_CHANGE_SIZE;
}

/* One frame takes blocks 100..109, the next does what must be refused. */
static void refused(uint64_t block, uint32_t cnt, uint8_t kind, uint64_t offset)
{
	uint8_t buf[LP_SPACE_CHANGE_SIZE + 1] = {0};
	lp_space_free(fx.space);
	open_space();
	size_t len = one_change(buf, 100, 10, LP_SPACE_CHANGE_KIND_TAKE);
	lp_test_ok(lp_space_replay_frame(fx.space, 1, buf, len));
	len = one_change(buf, block, cnt, kind);
	lp_test_err(-EUCLEAN, lp_space_replay_frame(fx.space, 2, buf, len));
	assert_int_equal(lp_corruption_find(0)->offset, offset);
}

static void test_replay_refuses(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	refused(95, 10, LP_SPACE_CHANGE_KIND_TAKE, 100 * LP_BLOCK_BYTES);
	refused(50, 0, LP_SPACE_CHANGE_KIND_TAKE, LP_OFFSET_NONE);
	refused(50, 1, 3, LP_OFFSET_NONE);
	refused(50, 1, 0, LP_OFFSET_NONE);
	refused(6, 1, LP_SPACE_CHANGE_KIND_TAKE, LP_OFFSET_NONE);
	refused(BLOCK_CNT - 1, 2, LP_SPACE_CHANGE_KIND_TAKE, LP_OFFSET_NONE);
	refused(UINT64_MAX, 2, LP_SPACE_CHANGE_KIND_TAKE, LP_OFFSET_NONE);
	refused(BASE_BLOCK + 5 * CHUNK_BLOCKS, 1, LP_SPACE_CHANGE_KIND_TAKE, LP_OFFSET_NONE);
	uint8_t buf[LP_SPACE_CHANGE_SIZE + 1] = {0};
	(void)one_change(buf, 50, 1, LP_SPACE_CHANGE_KIND_TAKE);
	lp_test_err(-EUCLEAN, lp_space_replay_frame(fx.space, 3, buf, 17));
	buf[LP_SPACE_CHANGE_RESERVED_OFF] = 1;
	lp_test_err(-EUCLEAN, lp_space_replay_frame(fx.space, 3, buf, 16));
	finish();
}

/* Random changes, most of them near what exists: taken or refused, never more. */
static void test_replay_of_random_bytes(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	unsigned ok_cnt = 0;
	for (int n = 0; n < 3000; n++) {
		uint8_t buf[8 * LP_SPACE_CHANGE_SIZE];
		size_t len = LP_SPACE_CHANGE_SIZE * lp_prng_below(&fx.prng, 9);
		lp_prng_fill(&fx.prng, buf, sizeof(buf));
		for (size_t at = 0; at < len; at += LP_SPACE_CHANGE_SIZE) {
			if (!lp_prng_chance(&fx.prng, 1, 50))
				(void)one_change(buf + at, lp_prng_below(&fx.prng, BLOCK_CNT / 3),
						 1 + (uint32_t)lp_prng_below(&fx.prng, 300),
						 (uint8_t)lp_prng_between(&fx.prng, 1, 2));
		}
		lp_space_free(fx.space);
		open_space();
		int rc = lp_space_replay_frame(fx.space, 1, buf, len);
		assert_true(rc == 0 || rc == -EUCLEAN);
		ok_cnt += rc == 0;
		if (rc == 0)
			lp_test_ok(lp_space_recovered(fx.space, 1));
	}
	assert_in_range(ok_cnt, 100, 2900);
	finish();
}

/* A record with a few runs in `few`, else with every other block in use. Returns its length. */
static size_t make_record(uint8_t *buf, bool few)
{
	uint32_t chunk;
	size_t len;
	struct lp_extent extent = take(200);
	for (uint64_t i = 0; i < (few ? 3 : 8); i++)
		lp_test_ok(
			lp_space_log_take(&fx.group, (struct lp_extent){extent.block + 2 * i, 1}));
	if (!few) {
		for (uint64_t i = 8; i < 100; i++) {
			if (!lp_space_group_has_room(&fx.group, 1))
				seal();
			lp_test_ok(lp_space_log_take(&fx.group,
						     (struct lp_extent){extent.block + 2 * i, 1}));
			next_durable();
		}
	}
	seal();
	while (fx.durable_seq + 1 < fx.next_seq)
		next_durable();
	assert_int_equal(lp_space_checkpoint_next(fx.space, fx.next_seq, buf, &chunk, &len), 1);
	assert_int_equal(chunk, 0);
	return len;
}

static int load(const uint8_t *bytes, size_t len, uint64_t durable_seq)
{
	/* An exact copy, so that a read beyond it is seen. */
	uint8_t *exact = malloc(len + (len == 0));
	assert_non_null(exact);
	if (len > 0)
		memcpy(exact, bytes, len);
	lp_space_free(fx.space);
	open_space();
	int rc = lp_space_load_record(fx.space, 0, exact, len);
	free(exact);
	return rc != 0 ? rc : lp_space_recovered(fx.space, durable_seq);
}

static void seal_record(uint8_t *buf, size_t len)
{
	uint32_t crc = lp_crc32c(0, buf, LP_SPACE_RECORD_CRC_OFF);
	crc = lp_crc32c(crc, buf + LP_SPACE_RECORD_SIZE, len - LP_SPACE_RECORD_SIZE);
	lp_put_le32(buf + LP_SPACE_RECORD_CRC_OFF, crc);
}

static void test_spoilt_records(void **state)
{
	(void)state;
	for (int few = 0; few < 2; few++) {
		static uint8_t good[LP_SPACE_RECORD_BYTES_MAX];
		static uint8_t bad[LP_SPACE_RECORD_BYTES_MAX];
		start(LP_ALLOC_HYBRID, 1);
		size_t len = make_record(good, few);
		uint64_t durable_seq = fx.durable_seq;
		assert_int_equal(good[LP_SPACE_RECORD_ENCODING_OFF],
				 few ? LP_SPACE_ENCODING_RUNS : LP_SPACE_ENCODING_RAW);
		lp_test_ok(load(good, len, durable_seq));
		assert_int_equal(lp_space_used_blocks(fx.space), few ? 3 : 100);
		lp_test_err(-EUCLEAN, load(good, len, 0)); /* of a frame that is not there */
		for (size_t cut = 0; cut < len; cut++)
			assert_true(load(good, cut, durable_seq) < 0);
		for (size_t bit = 0; bit < len * 8; bit++) {
			memcpy(bad, good, len);
			bad[bit / 8] ^= (uint8_t)(1u << (bit % 8));
			assert_true(load(bad, len, durable_seq) < 0);
		}
		/* With a good checksum: what is inside must not be believed either. Only as_of can
		 * be any number. */
		struct lp_prng prng;
		lp_prng_init(&prng, 1);
		for (int n = 0; n < 5000; n++) {
			memcpy(bad, good, len);
			size_t at = lp_prng_below(&prng, len);
			bad[at] = (uint8_t)lp_prng_u64(&prng);
			bool is_as_of = at >= LP_SPACE_RECORD_AS_OF_OFF &&
					at < LP_SPACE_RECORD_USED_CNT_OFF;
			bool is_header = at < LP_SPACE_RECORD_SIZE;
			bool is_changed = bad[at] != good[at];
			bool is_crc =
				at >= LP_SPACE_RECORD_CRC_OFF && at < LP_SPACE_RECORD_CRC_OFF + 4;
			seal_record(bad, len);
			int rc = load(bad, len, UINT64_MAX);
			if (is_header && is_changed && !is_as_of && !is_crc)
				lp_test_err(-EUCLEAN, rc);
		}
		finish();
	}
}

static void test_record_of_another_chunk(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	static uint8_t buf[LP_SPACE_RECORD_BYTES_MAX];
	size_t len = make_record(buf, true);
	lp_space_free(fx.space);
	open_space();
	lp_test_err(-EUCLEAN, lp_space_load_record(fx.space, 1, buf, len));
	lp_test_err(-EUCLEAN, lp_space_load_record(fx.space, CHUNK_CNT, buf, len));
	/* A chunk that was given back cannot have blocks in use. */
	lp_space_free(fx.space);
	fx.is_owned[0] = false;
	open_space();
	lp_test_err(-EUCLEAN, lp_space_load_record(fx.space, 0, buf, len));
	finish();
}

static void test_chunk_with_unpersisted_changes_stays(void **state)
{
	(void)state;
	start(LP_ALLOC_HYBRID, 1);
	struct lp_extent extent = take(10);
	uint32_t chunk = (uint32_t)((extent.block - BASE_BLOCK) / CHUNK_BLOCKS);
	lp_test_err(-EBUSY, lp_space_chunk_remove(fx.space, chunk)); /* taken */
	lp_test_ok(lp_space_log_take(&fx.group, extent));
	seal();
	lp_test_ok(lp_space_log_free(&fx.group, extent));
	seal();
	next_durable();
	lp_test_err(-EBUSY, lp_space_chunk_remove(fx.space, chunk)); /* in use */
	next_durable();
	/* Empty, but were it given back and come again, its past would be in no record. */
	lp_test_err(-EBUSY, lp_space_chunk_remove(fx.space, chunk));
	static uint8_t buf[LP_SPACE_RECORD_BYTES_MAX];
	size_t len;
	assert_int_equal(lp_space_checkpoint_next(fx.space, 3, buf, &chunk, &len), 1);
	assert_int_equal(len, LP_SPACE_RECORD_SIZE);
	lp_test_err(-EBUSY, lp_space_chunk_remove(fx.space, chunk));
	lp_space_persisted(fx.space, 3);
	struct lp_space_pin pin;
	lp_space_pin(fx.space, &pin, extent);
	lp_test_err(-EBUSY, lp_space_chunk_remove(fx.space, chunk));
	lp_space_unpin(fx.space, &pin);
	uint64_t all = free_blocks();
	lp_test_ok(lp_space_chunk_remove(fx.space, chunk));
	assert_int_equal(free_blocks(), all - CHUNK_BLOCKS);
	assert_false(lp_space_owns(fx.space, chunk));
	finish();
}

static void test_group_is_bounded(void **state)
{
	(void)state;
	uint8_t buf[2 * LP_SPACE_CHANGE_SIZE + 5];
	struct lp_space_group group;
	lp_space_group_init(&group, buf, sizeof(buf));
	assert_true(lp_space_group_has_room(&group, 2));
	assert_false(lp_space_group_has_room(&group, 3));
	lp_test_ok(lp_space_log_take(&group, (struct lp_extent){10, 2}));
	lp_test_ok(lp_space_log_take(&group, (struct lp_extent){12, 2})); /* goes on */
	assert_int_equal(group.len, LP_SPACE_CHANGE_SIZE);
	lp_test_ok(lp_space_log_free(&group, (struct lp_extent){14, 2}));
	lp_test_err(-EAGAIN, lp_space_log_take(&group, (struct lp_extent){16, 1}));
	lp_test_ok(lp_space_log_free(&group, (struct lp_extent){16, UINT32_MAX - 2}));
	lp_test_err(-EAGAIN,
		    lp_space_log_free(&group, (struct lp_extent){14 + (uint64_t)UINT32_MAX, 1}));
	assert_int_equal(group.len, 2 * LP_SPACE_CHANGE_SIZE);
}

/* Blocks that find no memory for their run wait, and come free later. */
static void test_release_without_memory(void **state)
{
	(void)state;
	start(LP_ALLOC_EXTENT, 1);
	lp_space_free(fx.space);
	fx.config.alloc_memory_max_bytes = 4096;
	open_space();
	lp_test_ok(lp_space_recovered(fx.space, 0));
	uint64_t all = free_blocks();
	struct lp_extent extent = take(200);
	for (uint64_t i = 0; i < 200; i += 2)
		lp_space_untake(fx.space, (struct lp_extent){extent.block + i, 1});
	assert_true(lp_space_waiting_blocks(fx.space) > 0);
	for (uint64_t i = 1; i < 200; i += 2)
		lp_space_untake(fx.space, (struct lp_extent){extent.block + i, 1});
	lp_space_frame_durable(fx.space, 1, NULL, 0);
	assert_int_equal(lp_space_waiting_blocks(fx.space), 0);
	assert_int_equal(free_blocks(), all);
	finish();
}

/* A guest may have all blocks of a chunk, and still it is no chunk to be returned. */
static void test_guest_of_a_whole_chunk(void **state)
{
	(void)state;
	uint64_t words[CHUNK_BLOCKS / 64] = {0};
	struct lp_space_loose loose = {.is_begun = false};
	struct lp_bitmap half;
	uint32_t chunk = 0;
	start(LP_ALLOC_BITMAP, 1);
	lp_bitmap_init(&half, words, CHUNK_BLOCKS);
	lp_bitmap_set(&half, 0, CHUNK_BLOCKS / 2);
	lp_test_ok(lp_space_blocks_add(fx.space, 7, true, &half));
	lp_bitmap_clear(&half, 0, CHUNK_BLOCKS / 2);
	lp_bitmap_set(&half, CHUNK_BLOCKS / 2, CHUNK_BLOCKS);
	lp_test_ok(lp_space_blocks_add(fx.space, 7, true, &half));
	assert_null(lp_space_mine_map(fx.space, 7));
	assert_true(lp_space_is_guest(fx.space, 7));
	assert_false(lp_space_chunk_find_empty(fx.space, 7, 0, &chunk));
	lp_test_err(-EBUSY, lp_space_chunk_remove(fx.space, 7));
	assert_true(lp_space_next_loose(fx.space, true, &loose));
	assert_int_equal(loose.chunk, 7);
	assert_int_equal(loose.cnt, CHUNK_BLOCKS);
	finish();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_model),
		cmocka_unit_test(test_free_waits_for_durability_and_io),
		cmocka_unit_test(test_every_pin_is_found),
		cmocka_unit_test(test_held_blocks_are_not_given_away),
		cmocka_unit_test(test_record_has_durable_frames_only),
		cmocka_unit_test(test_log_start),
		cmocka_unit_test(test_replay_refuses),
		cmocka_unit_test(test_replay_of_random_bytes),
		cmocka_unit_test(test_spoilt_records),
		cmocka_unit_test(test_record_of_another_chunk),
		cmocka_unit_test(test_chunk_with_unpersisted_changes_stays),
		cmocka_unit_test(test_group_is_bounded),
		cmocka_unit_test(test_release_without_memory),
		cmocka_unit_test(test_guest_of_a_whole_chunk),
	};
	return lp_test_main(tests, "store/space/space");
}
