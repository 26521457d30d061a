/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the data of files in the store in memory is what was written, zeros elsewhere, with
 * checksums that were combined and never made anew; readers keep what they have; a full store
 * changes nothing; damage is noticed (rule W2).
 * Method: random changes to two files held against two plain arrays of bytes; single cases at the
 * limits; bytes damaged through the buffers that a read gives out. */
#include "store/model/store_test.h"

#define BLOCK      UINT64_C(4096)
#define FILE_BYTES (90 * BLOCK) /* more than one leaf of the store's */
#define STEPS      3000

static const struct lp_ino file_a = {101};
static const struct lp_ino file_b = {102};

static uint8_t scratch[LP_STORE_WRITE_MAX + BLOCK];
static uint8_t random_bytes[LP_STORE_WRITE_MAX];

static void create_type(const struct lpi_hand *hand, struct lp_ino ino, uint8_t type)
{
	const struct lp_attrs attrs = {.type = type, .parent = {type == LP_INODE_TYPE_DIR}};
	lp_test_ok(lpi_hand_change(hand, (struct lp_change){.type = LP_CHANGE_CREATE,
							    .ino = ino,
							    .inode = {.attrs = &attrs}}));
}

static void setup(struct lpi_mem_rig *rig, uint64_t bufs_bytes)
{
	struct lp_prng prng;
	lpi_mem_rig_init(rig, bufs_bytes);
	create_type(&rig->hand, file_a, LP_INODE_TYPE_FILE);
	create_type(&rig->hand, file_b, LP_INODE_TYPE_FILE);
	lp_prng_init(&prng, 4);
	lp_prng_fill(&prng, random_bytes, sizeof(random_bytes));
}

static int range(const struct lpi_hand *hand, enum lp_change_type type, struct lp_ino ino,
		 uint64_t offset, uint64_t length)
{
	return lpi_hand_change(hand,
			       (struct lp_change){.type = type,
						  .ino = ino,
						  .data = {.offset = offset, .length = length}});
}

static int clone(const struct lpi_hand *hand, struct lp_ino src, uint64_t src_offset,
		 struct lp_ino dst, uint64_t offset, uint64_t length)
{
	return lpi_hand_change(hand, (struct lp_change){.type = LP_CHANGE_CLONE,
							.ino = dst,
							.clone = {.src = src,
								  .src_offset = src_offset,
								  .offset = offset,
								  .length = length}});
}

static struct lp_attrs attrs_of(const struct lpi_hand *hand, struct lp_ino ino)
{
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_stat(hand, ino, &attrs));
	return attrs;
}

/* --- Against arrays --------------------------------------------------------------------------- */

struct array {
	struct lp_ino ino;
	uint64_t size;
	uint64_t version_nr;
	uint8_t bytes[FILE_BYTES];
};

struct duel {
	struct lpi_mem_rig rig;
	struct lp_prng prng;
	struct array arrays[2];
};

/* Often at a block's edge or just beside it. */
static uint64_t draw_offset(struct lp_prng *prng, uint64_t max)
{
	uint64_t offset = lp_prng_below(prng, max + 1);
	if (lp_prng_chance(prng, 1, 2))
		offset = lp_align_down(offset, BLOCK) + lp_prng_below(prng, 3);
	else if (lp_prng_chance(prng, 1, 3))
		offset = lp_align_up(offset, BLOCK) - 1;
	return LP_MIN(offset, max);
}

static void check_array(struct duel *duel, const struct array *array)
{
	const struct lpi_hand *hand = &duel->rig.hand;
	struct lp_attrs attrs = attrs_of(hand, array->ino);
	assert_int_equal(attrs.size_bytes, array->size);
	assert_int_equal(attrs.version_nr, array->version_nr);
	uint64_t offset =
		lp_prng_chance(&duel->prng, 1, 3) ? 0 : draw_offset(&duel->prng, FILE_BYTES);
	uint64_t length = lp_prng_chance(&duel->prng, 1, 3) ? FILE_BYTES
							    : draw_offset(&duel->prng, FILE_BYTES);
	uint64_t want = offset < array->size ? LP_MIN(length, array->size - offset) : 0;
	assert_int_equal(lpi_hand_read(hand, array->ino, offset, length, scratch), (int64_t)want);
	if (want > 0)
		assert_memory_equal(scratch, array->bytes + offset, want);
}

static void duel_write(struct duel *duel, struct array *array)
{
	struct lpi_pay pay;
	bool append = lp_prng_chance(&duel->prng, 1, 5) && array->size < FILE_BYTES;
	uint64_t offset = append ? array->size : draw_offset(&duel->prng, FILE_BYTES - 1);
	uint64_t length = 1 + draw_offset(&duel->prng, LP_MIN(FILE_BYTES - offset, 20 * BLOCK) - 1);
	const uint8_t *from = random_bytes + lp_prng_below(&duel->prng, 100000);
	uint32_t seg_bytes = lp_prng_chance(&duel->prng, 1, 2) ? LP_BUF_SMALL : 3000;
	assert_true(lpi_pay_make(&pay, duel->rig.hand.bufs, from, append ? LP_STORE_APPEND : offset,
				 length, seg_bytes));
	const struct lp_change change =
		lpi_write_change(array->ino, append ? LP_STORE_APPEND : offset, length, &pay);
	struct lp_store_op op = lpi_txn_op(&change, 1);
	lp_test_ok(lpi_hand_do(&duel->rig.hand, &op));
	assert_int_equal(op.txn.offset, offset);
	assert_int_equal(op.txn.version_nr, array->version_nr + 1);
	lpi_pay_drop(&pay);
	memcpy(array->bytes + offset, from, length);
	array->size = LP_MAX(array->size, offset + length);
	array->version_nr++;
}

static void duel_cut(struct duel *duel, struct array *array)
{
	uint64_t size = draw_offset(&duel->prng, FILE_BYTES);
	lp_test_ok(range(&duel->rig.hand, LP_CHANGE_TRUNCATE, array->ino, size, 0));
	if (size < array->size)
		memset(array->bytes + size, 0, array->size - size);
	array->size = size;
	array->version_nr++;
}

static void duel_punch(struct duel *duel, struct array *array, enum lp_change_type type)
{
	uint64_t offset = draw_offset(&duel->prng, FILE_BYTES - 1);
	uint64_t length = 1 + draw_offset(&duel->prng, FILE_BYTES - offset - 1);
	lp_test_ok(range(&duel->rig.hand, type, array->ino, offset, length));
	if (type == LP_CHANGE_PUNCH)
		memset(array->bytes + offset, 0, length);
	array->version_nr++;
}

static void duel_clone(struct duel *duel, struct array *dst)
{
	struct array *src = &duel->arrays[lp_prng_below(&duel->prng, 2)];
	uint64_t from = lp_align_down(lp_prng_below(&duel->prng, FILE_BYTES), BLOCK);
	uint64_t to = lp_align_down(lp_prng_below(&duel->prng, FILE_BYTES), BLOCK);
	uint64_t length = lp_prng_between(&duel->prng, 1, 30) * BLOCK;
	if (lp_prng_chance(&duel->prng, 1, 3) && src->size > from)
		length = src->size - from;
	length = LP_MIN(length, FILE_BYTES - LP_MAX(from, to));
	bool is_apart = src != dst || from + length <= to || to + length <= from;
	bool ends_both = from + length == src->size && to + length >= dst->size;
	bool is_right =
		is_apart && from + length <= src->size && (length % BLOCK == 0 || ends_both);
	int err = clone(&duel->rig.hand, src->ino, from, dst->ino, to, length);
	lp_test_err(is_right ? 0 : -EINVAL, err);
	if (!is_right)
		return;
	memmove(dst->bytes + to, src->bytes + from, length);
	dst->size = LP_MAX(dst->size, to + length);
	dst->version_nr++;
}

static void duel_step(struct duel *duel)
{
	struct array *array = &duel->arrays[lp_prng_below(&duel->prng, 2)];
	switch (lp_prng_below(&duel->prng, 10)) {
	case 0:
		duel_cut(duel, array);
		break;
	case 1:
		duel_punch(duel, array, LP_CHANGE_PUNCH);
		break;
	case 2:
		duel_punch(duel, array, LP_CHANGE_PREALLOC);
		break;
	case 3:
	case 4:
		duel_clone(duel, array);
		break;
	default:
		duel_write(duel, array);
	}
	check_array(duel, &duel->arrays[0]);
	check_array(duel, &duel->arrays[1]);
}

static void test_against_arrays(void **state)
{
	(void)state;
	struct duel *duel = calloc(1, sizeof(*duel));
	assert_non_null(duel);
	setup(&duel->rig, UINT64_C(16) << 20);
	lp_prng_init(&duel->prng, 7);
	duel->arrays[0] = (struct array){.ino = file_a, .version_nr = 1};
	duel->arrays[1] = (struct array){.ino = file_b, .version_nr = 1};
	for (unsigned i = 0; i < STEPS; i++)
		duel_step(duel);
	lpi_mem_rig_fini(&duel->rig);
	free(duel);
}

/* --- Sparse files, seeking -------------------------------------------------------------------- */

static int seek(const struct lpi_hand *hand, uint64_t offset, bool hole, uint64_t *ret_found)
{
	struct lp_store_op op = {.opcode = LP_STORE_SEEK,
				 .seek = {.ino = file_a, .offset = offset, .hole = hole}};
	int err = lpi_hand_do(hand, &op);
	*ret_found = op.seek.found;
	return err;
}

static void expect_seek(const struct lpi_hand *hand, uint64_t offset, uint64_t data, uint64_t hole)
{
	uint64_t found = 0;
	lp_test_err(data == UINT64_MAX ? -ENXIO : 0, seek(hand, offset, false, &found));
	assert_int_equal(found, data == UINT64_MAX ? 0 : data);
	lp_test_err(hole == UINT64_MAX ? -ENXIO : 0, seek(hand, offset, true, &found));
	assert_int_equal(found, hole == UINT64_MAX ? 0 : hole);
}

static void test_seek(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig, UINT64_C(4) << 20);
	const struct lpi_hand *hand = &rig.hand;
	expect_seek(hand, 0, UINT64_MAX, UINT64_MAX);
	lp_test_ok(range(hand, LP_CHANGE_TRUNCATE, file_a, 10 * BLOCK + 5, 0));
	expect_seek(hand, 0, UINT64_MAX, 0);
	expect_seek(hand, 10 * BLOCK + 4, UINT64_MAX, 10 * BLOCK + 4);
	expect_seek(hand, 10 * BLOCK + 5, UINT64_MAX, UINT64_MAX);
	lp_test_ok(lpi_hand_write(hand, file_a, 3 * BLOCK + 1, random_bytes, BLOCK));
	expect_seek(hand, 0, 3 * BLOCK, 0);
	expect_seek(hand, 3 * BLOCK + 7, 3 * BLOCK + 7, 5 * BLOCK);
	expect_seek(hand, 5 * BLOCK, UINT64_MAX, 5 * BLOCK);
	/* Preallocated blocks are holes, until they are written. */
	lp_test_ok(range(hand, LP_CHANGE_PREALLOC, file_a, 0, 100 * BLOCK));
	assert_int_equal(attrs_of(hand, file_a).blocks, 100);
	expect_seek(hand, 0, 3 * BLOCK, 0);
	lp_test_ok(lpi_hand_write(hand, file_a, 10 * BLOCK, random_bytes, 5));
	expect_seek(hand, 5 * BLOCK, 10 * BLOCK, 5 * BLOCK);
	expect_seek(hand, 10 * BLOCK, 10 * BLOCK, 10 * BLOCK + 5);
	lpi_mem_rig_fini(&rig);
}

static void test_sparse(void **state)
{
	(void)state;
	static const uint64_t offsets[] = {0,
					   63 * BLOCK,
					   64 * BLOCK - 1,
					   4096 * BLOCK - 1,
					   (UINT64_C(1) << 30) - 1,
					   (UINT64_C(1) << 40) + 12345,
					   LP_STORE_FILE_MAX - 2};
	struct lpi_mem_rig rig;
	uint8_t bytes[3];
	uint64_t found = 0;
	setup(&rig, UINT64_C(4) << 20);
	const struct lpi_hand *hand = &rig.hand;
	/* From the end to the beginning, so that each is behind all there are so far. */
	for (size_t i = LP_ARRAY_SIZE(offsets); i-- > 0;) {
		lp_test_ok(lpi_hand_write(hand, file_a, offsets[i], random_bytes + i, 2));
		lp_test_ok(seek(hand, 0, false, &found));
		assert_int_equal(found, lp_align_down(offsets[i], BLOCK));
	}
	assert_int_equal(attrs_of(hand, file_a).size_bytes, LP_STORE_FILE_MAX);
	/* Those that end in the next block have two. */
	assert_int_equal(attrs_of(hand, file_a).blocks, 7 + 3 - 1);
	for (size_t i = 0; i < LP_ARRAY_SIZE(offsets); i++) {
		int64_t want = (int64_t)LP_MIN(3, LP_STORE_FILE_MAX - offsets[i]);
		assert_int_equal(lpi_hand_read(hand, file_a, offsets[i], 3, bytes), want);
		assert_memory_equal(bytes, random_bytes + i, 2);
	}
	struct lp_store_op op;
	lp_test_err(-EFBIG, lpi_hand_write_op(hand, file_a, LP_STORE_APPEND, bytes, 1, &op));
	assert_int_equal(op.txn.failed_idx, 0);
	for (size_t i = LP_ARRAY_SIZE(offsets); i-- > 0;)
		lp_test_ok(range(hand, LP_CHANGE_TRUNCATE, file_a, offsets[i], 0));
	assert_int_equal(attrs_of(hand, file_a).blocks, 0);
	assert_int_equal(seek(hand, 0, false, &found), -ENXIO);
	lpi_mem_rig_fini(&rig);
}

/* The largest of everything. */
static void test_large(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig, UINT64_C(64) << 20);
	const struct lpi_hand *hand = &rig.hand;
	lp_test_ok(lpi_hand_write(hand, file_a, 1, random_bytes, LP_STORE_WRITE_MAX));
	assert_int_equal(attrs_of(hand, file_a).blocks, LP_STORE_WRITE_MAX / BLOCK + 1);
	for (unsigned i = 0; i < LP_STORE_WRITE_MAX / LP_STORE_READ_MAX; i++) {
		uint64_t offset = 1 + i * LP_STORE_READ_MAX;
		assert_int_equal(lpi_hand_read(hand, file_a, offset, LP_STORE_READ_MAX, scratch),
				 LP_STORE_READ_MAX);
		assert_memory_equal(scratch, random_bytes + offset - 1, LP_STORE_READ_MAX);
	}
	lp_test_ok(range(hand, LP_CHANGE_TRUNCATE, file_a, LP_STORE_RANGE_MAX, 0));
	lp_test_ok(clone(hand, file_a, 0, file_b, LP_STORE_RANGE_MAX, LP_STORE_RANGE_MAX));
	assert_int_equal(attrs_of(hand, file_b).blocks, LP_STORE_WRITE_MAX / BLOCK + 1);
	assert_int_equal(attrs_of(hand, file_b).size_bytes, 2 * LP_STORE_RANGE_MAX);
	lp_test_ok(range(hand, LP_CHANGE_PREALLOC, file_b, 0, LP_STORE_RANGE_MAX));
	lp_test_ok(range(hand, LP_CHANGE_PUNCH, file_b, 0, LP_STORE_RANGE_MAX));
	lp_test_ok(range(hand, LP_CHANGE_PUNCH, file_b, LP_STORE_RANGE_MAX, LP_STORE_RANGE_MAX));
	assert_int_equal(attrs_of(hand, file_b).blocks, 0);
	lpi_mem_rig_fini(&rig);
}

/* --- Buffers ---------------------------------------------------------------------------------- */

static uint64_t used_bytes(const struct lpi_hand *hand)
{
	struct lp_bufs_stats stats;
	lp_bufs_read_stats(hand->bufs, &stats);
	return stats.used_bytes;
}

static struct lp_store_op begin_read(const struct lpi_hand *hand, uint64_t offset, uint64_t length)
{
	struct lp_store_op op = {.opcode = LP_STORE_READ,
				 .read = {.ino = file_a, .offset = offset, .length = length}};
	lp_test_ok(lpi_hand_do(hand, &op));
	return op;
}

static void test_readers_keep(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	struct lp_store_op ops[5];
	setup(&rig, UINT64_C(4) << 20);
	const struct lpi_hand *hand = &rig.hand;
	lp_test_ok(lpi_hand_write(hand, file_a, 0, random_bytes, 3 * BLOCK));
	for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++)
		ops[i] = begin_read(hand, i, 3 * BLOCK);
	lp_test_ok(lpi_hand_write(hand, file_a, 0, random_bytes + 999, BLOCK));
	lp_test_ok(lpi_hand_write(hand, file_a, BLOCK + 1, random_bytes + 999, 1));
	lp_test_ok(range(hand, LP_CHANGE_PUNCH, file_a, 2 * BLOCK, 99));
	lp_test_ok(range(hand, LP_CHANGE_TRUNCATE, file_a, 9, 0));
	lp_test_ok(
		lpi_hand_change(hand, (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = file_a}));
	for (size_t i = 0; i < LP_ARRAY_SIZE(ops); i++) {
		lpi_read_take(&ops[i], scratch);
		assert_int_equal(ops[i].read.bytes, 3 * BLOCK - i);
		assert_memory_equal(scratch, random_bytes + i, 3 * BLOCK - i);
		lp_store_end(hand->store, &ops[i]);
	}
	assert_int_equal(used_bytes(hand), BLOCK); /* the zeros */
	lpi_mem_rig_fini(&rig);
}

/* Overwriting takes no more space, however it comes. */
static void test_overwrite_in_place(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig, UINT64_C(4) << 20);
	const struct lpi_hand *hand = &rig.hand;
	lp_test_ok(lpi_hand_write(hand, file_a, 0, random_bytes, 20 * BLOCK));
	uint64_t used = used_bytes(hand);
	assert_int_equal(used, 21 * BLOCK);
	for (uint64_t i = 0; i < 2000; i++)
		lp_test_ok(lpi_hand_write(hand, file_a, i * 37 % (19 * BLOCK), random_bytes + i,
					  1 + i % BLOCK));
	assert_int_equal(used_bytes(hand), used);
	lpi_mem_rig_fini(&rig);
}

LP_LIST_DEFINE(buf_list, struct lp_buf, node);

/* Takes all buffers but `left` of 4 KiB. */
static void take_all(struct lp_bufs *bufs, uint32_t left, struct buf_list *ret_taken)
{
	struct lp_buf *buf;
	buf_list_init(ret_taken);
	while ((buf = lp_buf_new(bufs, LP_BUF_SMALL)) != NULL)
		buf_list_push_back(ret_taken, buf);
	for (uint32_t i = 0; i < left; i++)
		lp_buf_put(buf_list_pop_front(ret_taken));
}

static void give_all(struct buf_list *taken)
{
	struct lp_buf *buf;
	while ((buf = buf_list_pop_front(taken)) != NULL)
		lp_buf_put(buf);
}

static void test_full(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig, UINT64_C(2) << 20);
	const struct lpi_hand *hand = &rig.hand;
	struct buf_list taken;
	struct lpi_pay pay;
	const struct lp_attrs attrs = {.uid = 9};
	/* Not in whole blocks, so that the store has to copy: it needs three. */
	assert_true(lpi_pay_make(&pay, hand->bufs, random_bytes, 0, 3 * BLOCK, 1000));
	const struct lp_change changes[] = {
		{.type = LP_CHANGE_SET, .ino = file_a, .inode = {&attrs, .mask = LP_ATTR_UID}},
		lpi_write_change(file_a, 0, 3 * BLOCK, &pay),
	};
	for (uint32_t left = 0; left <= 3; left++) {
		take_all(hand->bufs, left, &taken);
		uint64_t used = used_bytes(hand);
		struct lp_store_op op = lpi_txn_op(changes, 2);
		lp_test_err(left < 3 ? -ENOSPC : 0, lpi_hand_do(hand, &op));
		assert_int_equal(op.txn.failed_idx, left < 3 ? 1 : 2);
		assert_int_equal(used_bytes(hand), left < 3 ? used : used + 3 * BLOCK);
		assert_int_equal(attrs_of(hand, file_a).uid, left < 3 ? 0 : 9);
		assert_int_equal(attrs_of(hand, file_a).version_nr, left < 3 ? 1 : 2);
		if (left < 3)
			lp_test_err(-ENOSPC, range(hand, LP_CHANGE_PREALLOC, file_a, 0, 4 * BLOCK));
		give_all(&taken);
	}
	/* What is there can be overwritten, cut and punched when there is no more. */
	take_all(hand->bufs, 0, &taken);
	lp_test_ok(lpi_hand_txn(hand, changes, 2));
	lp_test_ok(range(hand, LP_CHANGE_PUNCH, file_a, 1, 2 * BLOCK));
	lp_test_ok(range(hand, LP_CHANGE_TRUNCATE, file_a, BLOCK + 1, 0));
	give_all(&taken);
	lpi_pay_drop(&pay);
	lpi_mem_rig_fini(&rig);
}

/* A store that kept the buffers of those who write left them none, when it was full, to receive
 * anything more in: a daemon answered nobody any more. */
static void test_others_buffers(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	struct lp_bufs *bufs = NULL;
	setup(&rig, UINT64_C(1) << 20);
	struct lpi_hand writer = rig.hand;
	lp_test_ok(lp_bufs_new(UINT64_C(4) << 20, &bufs));
	writer.bufs = bufs;
	uint64_t cnt = 0;
	int err = 0;
	while ((err = lpi_hand_write(&writer, file_a, cnt * BLOCK, random_bytes, BLOCK)) == 0)
		cnt++;
	lp_test_err(-ENOSPC, err);
	assert_int_equal(used_bytes(&writer), 0);
	assert_int_equal(used_bytes(&rig.hand), UINT64_C(1) << 20);
	lp_test_ok(range(&writer, LP_CHANGE_TRUNCATE, file_a, BLOCK, 0));
	lp_test_ok(lpi_hand_write(&writer, file_a, BLOCK, random_bytes, BLOCK));
	lp_bufs_free(bufs);
	lpi_mem_rig_fini(&rig);
}

/* What was preallocated can be written when there is no more. */
static void test_prealloc_holds(void **state)
{
	(void)state;
	struct buf_list taken;
	struct lpi_mem_rig rig;
	struct lpi_pay pay;
	setup(&rig, UINT64_C(2) << 20);
	const struct lpi_hand *hand = &rig.hand;
	lp_test_ok(range(hand, LP_CHANGE_PREALLOC, file_a, 0, 3 * BLOCK));
	assert_true(lpi_pay_make(&pay, hand->bufs, random_bytes, 1, 3 * BLOCK - 2, 1000));
	const struct lp_change change = lpi_write_change(file_a, 1, 3 * BLOCK - 2, &pay);
	take_all(hand->bufs, 0, &taken);
	lp_test_ok(lpi_hand_txn(hand, &change, 1));
	give_all(&taken);
	lpi_pay_drop(&pay);
	assert_int_equal(lpi_hand_read(hand, file_a, 0, 3 * BLOCK, scratch), 3 * BLOCK - 1);
	assert_int_equal(scratch[0], 0);
	assert_memory_equal(scratch + 1, random_bytes, 3 * BLOCK - 2);
	lpi_mem_rig_fini(&rig);
}

/* --- Damage ----------------------------------------------------------------------------------- */

static void damage(const struct lpi_hand *hand, uint64_t offset)
{
	struct lp_store_op op = begin_read(hand, offset, 1);
	op.read.segs[0].buf->data[op.read.segs[0].offset] ^= 1;
	lp_store_end(hand->store, &op);
}

static void test_damage(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig, UINT64_C(4) << 20);
	const struct lpi_hand *hand = &rig.hand;
	lp_test_ok(lpi_hand_write(hand, file_a, 0, random_bytes, 2 * BLOCK));
	damage(hand, BLOCK + 7);
	/* A new crc of a part would hide it: reading, writing, punching and cutting refuse. */
	assert_int_equal(lpi_hand_read(hand, file_a, BLOCK + 100, 5, scratch), -EBADMSG);
	assert_int_equal(lpi_hand_read(hand, file_a, 1, 2 * BLOCK - 2, scratch), -EBADMSG);
	lp_test_err(-EBADMSG, lpi_hand_write(hand, file_a, BLOCK - 1, random_bytes, 2));
	lp_test_err(-EBADMSG, range(hand, LP_CHANGE_PUNCH, file_a, 0, BLOCK + 1));
	lp_test_err(-EBADMSG, range(hand, LP_CHANGE_TRUNCATE, file_a, BLOCK + 1, 0));
	assert_int_equal(attrs_of(hand, file_a).version_nr, 2);
	assert_int_equal(lpi_hand_read(hand, file_a, 0, BLOCK, scratch), BLOCK);
	assert_memory_equal(scratch, random_bytes, BLOCK);
	/* Whole blocks come with the crc they were written with. */
	struct lp_store_op op = begin_read(hand, BLOCK, BLOCK);
	assert_int_equal(op.read.crcs[0], lp_crc32c(0, random_bytes + BLOCK, BLOCK));
	lp_store_end(hand->store, &op);
	lp_test_ok(lpi_hand_write(hand, file_a, BLOCK, random_bytes, BLOCK));
	assert_int_equal(lpi_hand_read(hand, file_a, BLOCK + 100, 5, scratch), 5);
	lpi_mem_rig_fini(&rig);
}

/* A payload that is not what its crc says is noticed by the reader at the latest. */
static void test_wrong_crc(void **state)
{
	(void)state;
	static const uint64_t offsets[] = {0, 1, LP_STORE_APPEND};
	struct lpi_mem_rig rig;
	struct lpi_pay pay;
	setup(&rig, UINT64_C(4) << 20);
	const struct lpi_hand *hand = &rig.hand;
	for (size_t i = 0; i < LP_ARRAY_SIZE(offsets); i++) {
		lp_test_ok(lpi_hand_write(hand, file_a, 0, random_bytes, BLOCK + 1));
		assert_true(lpi_pay_make(&pay, hand->bufs, random_bytes, offsets[i], BLOCK, 4096));
		pay.crcs[1 + pay.crcs[0]] ^= 1; /* of those that it will have when asked */
		const struct lp_change change = lpi_write_change(file_a, offsets[i], BLOCK, &pay);
		/* An append has to be cut anew, so it is looked at. */
		lp_test_err(offsets[i] == LP_STORE_APPEND ? -EBADMSG : 0,
			    lpi_hand_txn(hand, &change, 1));
		lpi_pay_drop(&pay);
		if (offsets[i] == LP_STORE_APPEND)
			continue;
		struct lp_store_op op = begin_read(hand, 0, BLOCK);
		assert_int_not_equal(op.read.crcs[0],
				     lp_crc32c(0, op.read.segs[0].buf->data, BLOCK));
		lp_store_end(hand->store, &op);
		lp_test_ok(range(hand, LP_CHANGE_PUNCH, file_a, 0, 2 * BLOCK));
	}
	lpi_mem_rig_fini(&rig);
}

/* --- What is no file -------------------------------------------------------------------------- */

static void expect_refused(const struct lpi_hand *hand, struct lp_ino ino, int err)
{
	struct lp_store_op op = {.opcode = LP_STORE_SEEK, .seek = {.ino = ino}};
	lp_test_err(err, lpi_hand_do(hand, &op));
	lp_test_err(err, (int)lpi_hand_read(hand, ino, 0, 1, scratch));
	lp_test_err(err, lpi_hand_write(hand, ino, 0, random_bytes, 1));
	lp_test_err(err, range(hand, LP_CHANGE_TRUNCATE, ino, 0, 0));
	lp_test_err(err, range(hand, LP_CHANGE_PUNCH, ino, 0, 1));
	lp_test_err(err, range(hand, LP_CHANGE_PREALLOC, ino, 0, 1));
	lp_test_err(err, clone(hand, file_a, 0, ino, 0, BLOCK));
	lp_test_err(err, clone(hand, ino, 0, file_b, 0, BLOCK));
}

static void test_no_file(void **state)
{
	(void)state;
	struct lpi_mem_rig rig;
	setup(&rig, UINT64_C(4) << 20);
	const struct lpi_hand *hand = &rig.hand;
	lp_test_ok(lpi_hand_write(hand, file_a, 0, random_bytes, BLOCK));
	create_type(hand, (struct lp_ino){200}, LP_INODE_TYPE_DIR);
	create_type(hand, (struct lp_ino){201}, LP_INODE_TYPE_FIFO);
	expect_refused(hand, (struct lp_ino){199}, -ENOENT);
	expect_refused(hand, (struct lp_ino){200}, -EISDIR);
	expect_refused(hand, (struct lp_ino){201}, -EINVAL);
	lpi_mem_rig_fini(&rig);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_against_arrays), cmocka_unit_test(test_seek),
		cmocka_unit_test(test_sparse),         cmocka_unit_test(test_large),
		cmocka_unit_test(test_readers_keep),   cmocka_unit_test(test_overwrite_in_place),
		cmocka_unit_test(test_full),           cmocka_unit_test(test_prealloc_holds),
		cmocka_unit_test(test_damage),         cmocka_unit_test(test_wrong_crc),
		cmocka_unit_test(test_no_file),        cmocka_unit_test(test_others_buffers),
	};
	return lp_test_main(tests, "store/memstore/data");
}
