/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: what recovery must refuse, and what it must not: rot, lost superblocks, stale frames of
 * former laps and incarnations, frames that cannot have been in flight, read errors (rule L2).
 * Method: images of a log in memory, damaged block by block, or with frames forged into them whose
 * crc is right and of which one thing is wrong; random damage at the end. After each refusal the
 * device must be byte for byte what it was. */
#include "store/log/log_rig_test.h"

#include "store/log/impl.h"

#define RING 64u

static struct lp_log_options options;
static uint8_t *image; /* of the whole device */
static uint64_t image_bytes;
static struct lpi_rig_model model;
static struct lpi_rig first; /* what a recovery of the image delivers; only the got_ fields count */

static struct lp_bdev *device_of(const uint8_t *bytes)
{
	struct lp_bdev *bdev = NULL;
	lp_test_ok(lp_bdev_open_mem(image_bytes, 4096, &bdev));
	lp_test_ok(lp_bdev_write_sync(bdev, bytes, image_bytes, 0, false));
	return bdev;
}

static void read_image(struct lp_bdev *bdev, uint8_t *ret_bytes)
{
	lp_test_ok(lp_bdev_read_sync(bdev, ret_bytes, image_bytes, 0));
}

static uint8_t *image_copy(void)
{
	uint8_t *copy = aligned_alloc(4096, image_bytes);
	assert_non_null(copy);
	memcpy(copy, image, image_bytes);
	return copy;
}

static uint8_t *ring_at(uint8_t *bytes, uint64_t ring_block)
{
	return bytes + (LPI_RIG_AREA_BLOCK + LP_LOG_SLOT_CNT + ring_block) * LP_BLOCK_BYTES;
}

static uint8_t *slot_at(uint8_t *bytes, uint64_t slot_seq)
{
	return bytes + (LPI_RIG_AREA_BLOCK + slot_seq % LP_LOG_SLOT_CNT) * LP_BLOCK_BYTES;
}

static struct lp_log_super newest_super(uint8_t *bytes)
{
	struct lp_log_super super = {0};
	struct lp_log_super other;
	if (lp_log_super_read(slot_at(bytes, 0), &super) != LP_LOG_FOUND)
		super.slot_seq = 0;
	if (lp_log_super_read(slot_at(bytes, 1), &other) == LP_LOG_FOUND &&
	    other.slot_seq > super.slot_seq)
		super = other;
	assert_true(super.slot_seq > 0);
	return super;
}

/* A few laps, several in flight at times, all acknowledged, some superblocks on the way. */
static void image_make(uint64_t seed, bool close)
{
	struct lp_bdev *bdev = NULL;
	options = lpi_rig_options(RING);
	image_bytes = lpi_rig_device_bytes(&options);
	lp_test_ok(lp_bdev_open_mem(image_bytes, 4096, &bdev));
	lp_test_ok(lp_log_format(bdev, &options.area, &options.limits, LPI_RIG_SALT));
	struct lpi_rig *rig = lpi_rig_on(bdev, &options, seed);
	memset(&model, 0, sizeof(model));
	rig->model = &model;
	lp_test_ok(lpi_rig_recover(rig));
	lpi_rig_run(rig, 60);
	lpi_rig_drain(rig);
	if (close)
		lp_test_ok(lpi_rig_close(rig));
	free(image);
	image = aligned_alloc(4096, image_bytes);
	assert_non_null(image);
	read_image(rig->bdev, image);
	lpi_rig_free(rig);
}

/* Recovers these bytes. Whatever comes of it, a refusal leaves the device as it was, and nothing
 * is delivered that was not written. */
static struct lpi_rig *recover_bytes_at(const uint8_t *bytes, uint64_t applied, bool read_only)
{
	struct lpi_rig *rig = lpi_rig_on(device_of(bytes), &options, 77);
	int err = lpi_rig_recover_at(rig, applied, read_only);
	for (uint64_t i = 0; i < rig->got_cnt; i++) {
		bool may = false;
		for (size_t j = 0; j < model.cand_cnt && !may; j++)
			may = model.cands[j].seq == rig->got_first + i &&
			      model.cands[j].id == rig->got_id[i];
		assert_true(may);
	}
	if (err < 0 || read_only) {
		uint8_t *after = aligned_alloc(4096, image_bytes);
		assert_non_null(after);
		read_image(rig->bdev, after);
		assert_memory_equal(after, bytes, image_bytes);
		free(after);
	}
	return rig;
}

static struct lpi_rig *recover_bytes(const uint8_t *bytes)
{
	return recover_bytes_at(bytes, lpi_rig_applied(&model, LPI_RIG_NEVER), false);
}

static void expect(const uint8_t *bytes, int err, uint64_t last_seq)
{
	struct lpi_rig *rig = recover_bytes(bytes);
	if (rig->recovery.result != err && lp_corruption_find(0) != NULL)
		print_error("%s\n", lp_corruption_find(0)->what);
	lp_test_err(err, rig->recovery.result);
	assert_int_equal(rig->recovery.last_seq, last_seq);
	lpi_rig_free(rig);
}

/* The image, its whole content and its end. */
static void learn(uint64_t seed, bool close)
{
	image_make(seed, close);
	struct lpi_rig *rig = recover_bytes(image);
	lp_test_ok(rig->recovery.result);
	first = *rig;
	lpi_rig_free(rig);
	assert_true(first.got_cnt > 0);
	assert_int_equal(first.recovery.was_clean, close);
}

static uint64_t last_seq(void);
static uint64_t end_block(void);

/* One with a free window behind its end, for forgeries. */
static void learn_roomy(uint64_t seed)
{
	uint64_t held = RING;
	uint64_t window = RING;
	do {
		learn(seed, false);
		seed += 100;
		window = options.limits.flight_blocks + options.limits.frame_blocks + 1;
		held = (end_block() + RING - first.got_block[0]) % RING;
	} while (held + window > RING || first.got_cnt < 3);
}

static uint64_t last_seq(void)
{
	return first.recovery.last_seq;
}

/* The ring block behind the last frame. */
static uint64_t end_block(void)
{
	uint64_t i = first.got_cnt - 1;
	return (first.got_block[i] + first.got_blocks[i]) % RING;
}

/* A header that would be the next frame there, one block long. */
static struct lp_log_head next_head(uint64_t ring_block)
{
	struct lp_log_super super = newest_super(image);
	struct lp_log_head last;
	lp_log_head_decode(ring_at(image, first.got_block[first.got_cnt - 1]), &last);
	return (struct lp_log_head){
		.shard = super.shard,
		.tag = lp_log_tag(super.store_uuid, LPI_RIG_SALT),
		.incarnation = super.incarnation,
		.seq = last.seq + 1,
		.oldest_needed = last.oldest_needed,
		.acked_seq = last.acked_seq,
		.slot_seq = last.slot_seq,
		.ring_block = ring_block,
		.chain = last.crc,
	};
}

static void forge(uint8_t *bytes, struct lp_log_head head)
{
	uint8_t *to = ring_at(bytes, head.ring_block);
	memset(to, 0, LP_BLOCK_BYTES);
	lp_log_head_write(&head, to);
}

/* --- Rule L1 ------------------------------------------------------------------------------------
 */

/* Somebody can know that the frame was acknowledged. */
static bool is_known(uint64_t seq)
{
	if (newest_super(image).acked_seq >= seq || lpi_rig_applied(&model, LPI_RIG_NEVER) >= seq)
		return true;
	for (uint64_t i = seq + 1 - first.got_first; i < first.got_cnt; i++)
		if (first.got_acked[i] >= seq)
			return true;
	return false;
}

static void rot_frame(uint64_t idx)
{
	uint64_t seq = first.got_first + idx;
	for (uint64_t block = 0; block < first.got_blocks[idx]; block++) {
		uint8_t *bytes = image_copy();
		uint64_t ring_block = first.got_block[idx] + block;
		ring_at(bytes, ring_block)[(seq * 37 + block) % 90] ^= 0x10;
		expect(bytes, is_known(seq) ? -EUCLEAN : 0, seq - 1);
		if (is_known(seq)) {
			char want[64];
			(void)snprintf(want, sizeof(want), "frame %llu", (unsigned long long)seq);
			assert_non_null(strstr(lp_corruption_find(0)->what, want));
		}
		free(bytes);
	}
}

/* Rule L1: rot in any block of a frame that something tells of is refused, not taken for the end.
 */
static void test_l1_rot_in_any_block(void **state)
{
	(void)state;
	uint64_t hidden_cnt = 0;
	for (uint64_t seed = 1; seed < 5; seed++) {
		learn(seed, false);
		for (uint64_t i = 0; i < first.got_cnt; i++) {
			hidden_cnt += !is_known(first.got_first + i);
			rot_frame(i);
		}
	}
	/* The window that the format page admits is not larger than what may be in flight. */
	assert_true(hidden_cnt <= UINT64_C(4) * lpi_rig_options(RING).limits.flight_frames);
}

/* Rule L1: after a close there is no such window. */
static void test_l1_rot_after_close(void **state)
{
	(void)state;
	learn(2, true);
	for (uint64_t i = 0; i < first.got_cnt; i++) {
		assert_true(is_known(first.got_first + i));
		rot_frame(i);
	}
}

/* Rule L1: the index knows of frames that are not there, or the log does not go back far enough. */
static void test_l1_applied(void **state)
{
	(void)state;
	learn(3, false);
	uint64_t start_seq = newest_super(image).start_seq;
	uint64_t applied[] = {last_seq(), last_seq() + 1, UINT64_MAX - 1, start_seq - 1,
			      start_seq - 2};
	int want[] = {0, -EUCLEAN, -EUCLEAN, 0, -EUCLEAN};
	assert_true(start_seq > 2);
	for (size_t i = 0; i < LP_ARRAY_SIZE(applied); i++) {
		struct lpi_rig *rig = recover_bytes_at(image, applied[i], false);
		lp_test_err(want[i], rig->recovery.result);
		lpi_rig_free(rig);
	}
}

/* Rule L1: what cannot have been in flight together with the missing frame. */
static void test_l1_limits(void **state)
{
	(void)state;
	learn_roomy(4);
	uint32_t frames = options.limits.flight_frames;
	uint32_t blocks = options.limits.flight_blocks;
	uint32_t window = blocks + options.limits.frame_blocks;
	uint64_t missing = last_seq() + 1;
	struct {
		uint64_t behind; /* blocks behind the gap */
		uint64_t seq;
		uint64_t acked_seq;
		int want;
	} cases[] = {
		{1, missing + 1, last_seq(), 0},
		{1, missing + 1, missing, -EUCLEAN},
		{1, missing + frames - 1, last_seq(), 0},
		{1, missing + frames, last_seq(), -EUCLEAN},
		{blocks - 1, missing + 1, last_seq(), 0},
		{blocks, missing + 1, last_seq(), -EUCLEAN},
		{blocks - 1, missing + 1, missing, -EUCLEAN},
		{window - 1, missing + 1, last_seq(), -EUCLEAN},
		{window, missing + 1, missing, 0},
		{1, missing - 1, last_seq() - 1, 0},
	};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		uint8_t *bytes = image_copy();
		struct lp_log_head head = next_head((end_block() + cases[i].behind) % RING);
		head.seq = cases[i].seq;
		head.acked_seq = cases[i].acked_seq;
		forge(bytes, head);
		expect(bytes, cases[i].want, last_seq());
		free(bytes);
	}
}

/* A gap at the end of a lap: the evidence is behind the ring's end. */
static void test_l1_evidence_wraps(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed < 600; seed++) {
		learn_roomy(seed);
		if (end_block() < RING - 6 || end_block() == 0)
			continue;
		uint8_t *bytes = image_copy();
		struct lp_log_head head = next_head(2);
		head.seq += 2;
		head.acked_seq = head.seq - 1;
		forge(bytes, head);
		expect(bytes, -EUCLEAN, last_seq());
		free(bytes);
		return;
	}
	fail_msg("no such image");
}

/* Rule L1: a read error is an error, with its place, and never a gap. */
static void test_l1_read_error(void **state)
{
	(void)state;
	learn(5, false);
	unsigned failed_cnt = 0;
	for (uint64_t block = 0; block < lp_log_area_blocks(RING); block++) {
		struct lp_sim_options sim_options = {.profile = lp_sim_preset(LP_SIM_CONSUMER),
						     .size_bytes = image_bytes,
						     .seed = 1};
		struct lp_bdev *bdev = NULL;
		lp_test_ok(lp_bdev_open_sim(&sim_options, &bdev));
		lp_test_ok(lp_bdev_write_sync(bdev, image, image_bytes, 0, true));
		struct lp_sim *sim = lp_sim_of(bdev);
		uint64_t bad_bytes = (LPI_RIG_AREA_BLOCK + block) * LP_BLOCK_BYTES;
		lp_sim_spoil(sim, LP_BLOCK_BYTES, bad_bytes);
		struct lpi_rig *rig = lpi_rig_on(bdev, &options, 1);
		rig->sim = sim;
		uint64_t event = lp_sim_event_count(sim);
		int err = lpi_rig_recover_at(rig, lpi_rig_applied(&model, LPI_RIG_NEVER), false);
		assert_true(err == 0 || err == -EIO);
		failed_cnt += err != 0;
		if (err != 0)
			assert_true(rig->recovery.offset_bytes <= bad_bytes);
		for (; err != 0 && event < lp_sim_event_count(sim); event++) {
			struct lp_sim_event info;
			lp_sim_event_get(sim, event, &info);
			assert_int_equal(info.opcode, LP_BDEV_READ);
		}
		lpi_rig_free(rig);
	}
	/* Recovery of a ring this small reads it all, and both slots. */
	assert_int_equal(failed_cnt, lp_log_area_blocks(RING));
}

/* --- Rule L2 ------------------------------------------------------------------------------------
 */

/* Rule L2: the image is recovered (a new incarnation), then a frame of the old one stands behind
 * the end: it must not follow, whatever fits. */
static void test_l2_former_incarnation(void **state)
{
	(void)state;
	learn_roomy(6);
	struct lpi_rig *rig = recover_bytes(image);
	lp_test_ok(rig->recovery.result);
	uint8_t *bytes = image_copy();
	read_image(rig->bdev, bytes);
	lpi_rig_free(rig);
	/* Right in all but the incarnation: the chain alone would let it pass. */
	struct lp_log_head head = next_head(end_block());
	forge(bytes, head);
	expect(bytes, 0, last_seq());
	/* Acknowledged by its own words, in its own time: void, so no evidence. */
	head = next_head((end_block() + 1) % RING);
	head.seq++;
	head.acked_seq = head.seq - 1;
	forge(bytes, head);
	expect(bytes, 0, last_seq());
	/* The new incarnation itself does follow. */
	head = next_head(end_block());
	head.incarnation++;
	forge(bytes, head);
	struct lpi_rig_cand *cand = &model.cands[model.cand_cnt++];
	*cand = (struct lpi_rig_cand){.seq = head.seq};
	expect(bytes, 0, last_seq() + 1);
	free(bytes);
}

/* Rule L2: a number of the old incarnation below first_seq, found where a frame rotted away. */
static void test_l2_chain(void **state)
{
	(void)state;
	learn_roomy(7);
	struct lp_log_head head = next_head(end_block());
	uint8_t *bytes = image_copy();
	/* Of this incarnation, with another predecessor: no crash leaves that. */
	head.chain ^= 1;
	forge(bytes, head);
	expect(bytes, -EUCLEAN, last_seq());
	/* It was not overwritten by chance: with its chain right it is the next frame. */
	head.chain ^= 1;
	forge(bytes, head);
	model.cands[model.cand_cnt++] = (struct lpi_rig_cand){.seq = head.seq};
	expect(bytes, 0, last_seq() + 1);
	free(bytes);
}

/* Rule L2: a recovery cut during recovery: the old n+2 must not follow the new n+1. */
static void test_l2_old_follower(void **state)
{
	(void)state;
	learn_roomy(8);
	struct lpi_rig *rig = recover_bytes(image);
	lp_test_ok(rig->recovery.result);
	uint8_t *bytes = image_copy();
	read_image(rig->bdev, bytes);
	lpi_rig_free(rig);
	struct lp_log_head new_next = next_head(end_block());
	new_next.incarnation++;
	forge(bytes, new_next);
	lp_log_head_decode(ring_at(bytes, new_next.ring_block), &new_next);
	struct lp_log_head old_after = next_head((end_block() + 1) % RING);
	old_after.seq += 1;
	old_after.chain = new_next.crc; /* as if the chain did not tell them apart */
	forge(bytes, old_after);
	model.cands[model.cand_cnt++] = (struct lpi_rig_cand){.seq = new_next.seq};
	expect(bytes, 0, last_seq() + 1);
	free(bytes);
}

/* The next frame that is so long, with data. Its last payload block; the frame is durable. */
static uint64_t append_long(struct lpi_rig *rig, uint64_t least_blocks, uint64_t most_blocks)
{
	static struct lpi_rig_frame trial;
	struct lpi_rig_frame *frame = NULL;
	uint64_t blocks = 0;
	do {
		rig->next_id++;
		lpi_rig_frame_fill(&trial, rig->next_id, false);
		uint64_t bytes = trial.batch[0].iov_len + trial.batch[1].iov_len;
		blocks = lp_log_frame_blocks(bytes, trial.frame.change_cnt, trial.frame.data_cnt);
	} while (trial.frame.data_cnt == 0 || blocks < least_blocks || blocks > most_blocks);
	lp_test_ok(lpi_rig_append_id(rig, rig->next_id, &frame));
	uint64_t last = lpi_rig_ring_block(frame) + blocks - 1;
	lpi_rig_drain(rig);
	return last;
}

static struct lpi_rig *restart(const uint8_t *bytes, uint64_t seed)
{
	struct lpi_rig *rig = lpi_rig_on(device_of(bytes), &options, seed);
	rig->model = &model;
	int err = lpi_rig_recover_at(rig, lpi_rig_applied(&model, LPI_RIG_NEVER), false);
	if (err < 0 && lp_corruption_find(0) != NULL)
		print_error("%s\n", lp_corruption_find(0)->what);
	lp_test_ok(err);
	return rig;
}

/* Rule L2: a torn frame stays where it stood when the one that took its number was too long for the
 * rest of the ring. Who starts then, and who starts after that, finds the latter. */
static void test_l2_torn_before_the_end(void **state)
{
	(void)state;
	struct lp_bdev *bdev = NULL;
	options = lpi_rig_options(RING);
	image_bytes = lpi_rig_device_bytes(&options);
	lp_test_ok(lp_bdev_open_mem(image_bytes, 4096, &bdev));
	lp_test_ok(lp_log_format(bdev, &options.area, &options.limits, LPI_RIG_SALT));
	struct lpi_rig *rig = lpi_rig_on(bdev, &options, 3);
	memset(&model, 0, sizeof(model));
	rig->model = &model;
	lp_test_ok(lpi_rig_recover(rig));
	uint64_t last = 0;
	while (last < RING - 8)
		last = append_long(rig, 2, 4);
	lp_log_trim(rig->log, lp_log_durable_seq(rig->log) - 2);
	lp_test_ok(lpi_rig_append_id(rig, 0, NULL));
	lpi_rig_drain(rig);
	lp_log_advance(rig->log);
	lpi_rig_drain(rig);
	uint64_t torn_block = append_long(rig, 2, 3);
	uint64_t torn_seq = lp_log_durable_seq(rig->log);
	assert_in_range(torn_block, last + 2, RING - 1);
	uint8_t *bytes = aligned_alloc(4096, image_bytes);
	assert_non_null(bytes);
	read_image(rig->bdev, bytes);
	lpi_rig_free(rig);
	memset(ring_at(bytes, torn_block), 0xee, LP_BLOCK_BYTES);

	rig = restart(bytes, 4);
	assert_int_equal(rig->recovery.last_seq, torn_seq - 1);
	assert_in_range(append_long(rig, 7, 8), 6, 7); /* from the front on */
	for (uint64_t i = 0; i < 3; i++) {
		assert_int_equal(lp_log_durable_seq(rig->log), torn_seq);
		read_image(rig->bdev, bytes);
		lpi_rig_free(rig);
		rig = restart(bytes, 5 + i);
		assert_int_equal(rig->recovery.last_seq, torn_seq);
	}
	lpi_rig_free(rig);
	free(bytes);
}

/* --- Superblocks --------------------------------------------------------------------------------
 */

/* Rule L2: the newest superblock rots. Frames written under it tell; if there are none, the former
 * one is as good. */
static void test_l2_superblock_lost(void **state)
{
	(void)state;
	learn(9, true);
	uint8_t *bytes = image_copy();
	uint64_t newest = newest_super(bytes).slot_seq;
	slot_at(bytes, newest)[200] ^= 1;
	expect(bytes, 0, last_seq());
	slot_at(bytes, newest + 1)[60] ^= 1;
	expect(bytes, -EBADMSG, 0);
	free(bytes);
	for (uint64_t seed = 10; seed < 14; seed++) {
		learn(seed, false);
		bytes = image_copy();
		struct lp_log_head head = next_head(0);
		newest = newest_super(bytes).slot_seq;
		slot_at(bytes, newest)[17] ^= 1;
		struct lpi_rig *rig = recover_bytes(bytes);
		if (head.slot_seq == newest)
			lp_test_err(-EUCLEAN, rig->recovery.result);
		lpi_rig_free(rig);
		free(bytes);
	}
}

/* Rule L2: a frame of an incarnation that no superblock tells of. */
static void test_l2_incarnation_lost(void **state)
{
	(void)state;
	learn_roomy(9);
	uint8_t *bytes = image_copy();
	struct lp_log_head head = next_head(end_block());
	head.incarnation++;
	forge(bytes, head);
	expect(bytes, -EUCLEAN, last_seq());
	free(bytes);
}

static void test_l2_frame_knows_later_superblock(void **state)
{
	(void)state;
	learn_roomy(9);
	uint8_t *bytes = image_copy();
	struct lp_log_head head = next_head(end_block());
	head.slot_seq = newest_super(bytes).slot_seq + 1;
	forge(bytes, head);
	expect(bytes, -EUCLEAN, last_seq());
	head.slot_seq = 0; /* less than its predecessor's */
	forge(bytes, head);
	expect(bytes, -EUCLEAN, last_seq());
	free(bytes);
}

static void change_super(uint8_t *bytes, struct lp_log_super super)
{
	lp_log_super_write(&super, slot_at(bytes, super.slot_seq));
}

static void test_super_refused(void **state)
{
	(void)state;
	learn(1, false);
	struct lp_log_super super = newest_super(image);
	struct lp_log_super bad[10];
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++)
		bad[i] = super;
	bad[0].store_uuid[3] ^= 1;
	bad[1].shard++;
	bad[2].area_block++;
	bad[3].ring_blocks--;
	bad[4].start_block = super.ring_blocks;
	bad[5].first_seq = super.acked_seq + 2;
	bad[6].frame_blocks_max = LP_LOG_FRAME_BLOCKS_MAX + 1;
	bad[7].flags = 2;
	bad[8].acked_seq = UINT64_MAX;
	bad[9].incarnation = 0;
	for (size_t i = 0; i < LP_ARRAY_SIZE(bad); i++) {
		uint8_t *bytes = image_copy();
		change_super(bytes, bad[i]);
		expect(bytes, -EUCLEAN, 0);
		free(bytes);
	}
	/* In the wrong slot. */
	uint8_t *bytes = image_copy();
	memcpy(slot_at(bytes, super.slot_seq + 1), slot_at(bytes, super.slot_seq), LP_BLOCK_BYTES);
	expect(bytes, -EUCLEAN, 0);
	free(bytes);
}

static void test_super_newer_version(void **state)
{
	(void)state;
	learn(1, false);
	uint8_t *bytes = image_copy();
	uint8_t *block = slot_at(bytes, newest_super(bytes).slot_seq);
	static const uint8_t none[4];
	block[LP_LOG_SUPER_VERSION_OFF] = 2;
	uint32_t crc = lp_crc32c(lp_crc32c(0, block, 4), none, 4);
	crc = lp_crc32c(crc, block + 8, LP_BLOCK_BYTES - 8);
	memcpy(block + 4, &crc, 4); /* tests run on little-endian machines */
	expect(bytes, -ENOTSUP, 0);
	free(bytes);
}

/* --- Other ways to be wrong
 * ------------------------------------------------------------------------ */

/* Copies of frames, as a client may store them, are no frames: their place is wrong. */
static void test_copies_do_not_count(void **state)
{
	(void)state;
	learn_roomy(2);
	uint8_t *bytes = image_copy();
	struct lp_log_head head = next_head((end_block() + 3) % RING);
	head.seq += 3;
	head.acked_seq = head.seq - 1;
	forge(bytes, head);
	memcpy(ring_at(bytes, (end_block() + 2) % RING), ring_at(bytes, head.ring_block),
	       LP_BLOCK_BYTES);
	memset(ring_at(bytes, head.ring_block), 0, LP_BLOCK_BYTES);
	expect(bytes, 0, last_seq());
	/* And those of another store, or with another salt. */
	head.tag ^= 1;
	forge(bytes, head);
	expect(bytes, 0, last_seq());
	free(bytes);
}

/* A frame at ring block 0 although it would have found room behind its predecessor. */
static void test_front_without_need(void **state)
{
	(void)state;
	learn(3, false);
	uint8_t *bytes = image_copy();
	uint64_t from = end_block();
	assert_true(from != 0);
	struct lp_log_head head = next_head(0);
	forge(bytes, head);
	struct lpi_rig *rig = recover_bytes(bytes);
	assert_true(rig->recovery.last_seq <= last_seq());
	lpi_rig_free(rig);
	free(bytes);
}

static void test_read_only(void **state)
{
	(void)state;
	learn(4, false);
	struct lpi_rig *rig = recover_bytes_at(image, last_seq(), true);
	lp_test_ok(rig->recovery.result);
	assert_int_equal(rig->recovery.last_seq, last_seq());
	lp_test_err(-EIO, lpi_rig_close(rig));
	lpi_rig_free(rig);
}

static bool is_new(const uint8_t *bytes)
{
	struct lp_bdev *bdev = device_of(bytes);
	bool found = false;
	lp_test_ok(lp_log_is_new(bdev, &options.area, &found));
	lp_bdev_close(bdev);
	return found;
}

/* New is what mkfs left, whole, and nothing else: also not what a torn first recovery may leave. */
static void test_is_new(void **state)
{
	(void)state;
	learn(4, false);
	assert_false(is_new(image));
	memset(&model, 0, sizeof(model));
	struct lp_bdev *bdev = device_of(image);
	lp_test_ok(lp_log_format(bdev, &options.area, &options.limits, LPI_RIG_SALT));
	read_image(bdev, image);
	lp_bdev_close(bdev);
	assert_true(is_new(image));
	for (uint64_t slot = 0; slot < LP_LOG_SLOT_CNT; slot++) {
		uint8_t *byte = slot_at(image, slot) + 100;
		*byte ^= 1;
		assert_false(is_new(image));
		*byte ^= 1;
	}
	/* Read-only it stays new; a recovery that writes ends that, though nothing was appended. */
	for (int read_only = 1; read_only >= 0; read_only--) {
		struct lpi_rig *rig = recover_bytes_at(image, 0, read_only);
		lp_test_ok(rig->recovery.result);
		read_image(rig->bdev, image);
		lpi_rig_free(rig);
		assert_int_equal(is_new(image), read_only);
	}
}

static void test_callback_error(void **state)
{
	(void)state;
	learn(4, false);
	struct lpi_rig *rig = lpi_rig_on(device_of(image), &options, 1);
	rig->frame_err = -ENOMEM;
	lp_test_err(-ENOMEM, lpi_rig_recover_at(rig, last_seq(), false));
	assert_int_equal(rig->got_cnt, 1);
	lp_test_err(-EIO, lpi_rig_close(rig));
	lpi_rig_free(rig);
}

static void test_states(void **state)
{
	(void)state;
	char why[200] = "";
	int err = lp_sm_table_check(&lpi_log_scan_table, why, sizeof(why));
	if (err < 0)
		print_error("%s\n", why);
	lp_test_ok(err);
}

/* --- Random damage
 * --------------------------------------------------------------------------------- */

static void damage(uint8_t *bytes, struct lp_prng *prng)
{
	uint64_t from = lp_prng_below(prng, image_bytes);
	uint64_t to = lp_prng_below(prng, image_bytes);
	uint64_t block = from / LP_BLOCK_BYTES * LP_BLOCK_BYTES;
	switch (lp_prng_below(prng, 5)) {
	case 0:
		bytes[from] ^= (uint8_t)(1u << lp_prng_below(prng, 8));
		break;
	case 1: /* in a header, where it hurts */
		bytes[block + from % LP_LOG_HEAD_SIZE] = (uint8_t)lp_prng_u64(prng);
		break;
	case 2:
		memset(bytes + block, 0, LP_BLOCK_BYTES);
		break;
	case 3:
		memcpy(bytes + block, bytes + to / LP_BLOCK_BYTES * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
		break;
	default:
		for (uint64_t i = from; i < LP_MIN(from + 512, image_bytes); i++)
			bytes[i] = (uint8_t)lp_prng_u64(prng);
		break;
	}
}

/* Rule L1: whatever is broken, nothing is delivered that was not written, and if recovery says that
 * all is well, no frame is missing that anything still tells of. */
static void test_l1_random_damage(void **state)
{
	(void)state;
	unsigned refused_cnt = 0;
	struct lp_prng prng;
	lp_prng_init(&prng, 99);
	for (unsigned n = 0; n < 600; n++) {
		if (n % 60 == 0)
			learn(n, n % 120 == 0);
		uint8_t *bytes = image_copy();
		for (uint64_t i = lp_prng_between(&prng, 1, 6); i > 0; i--)
			damage(bytes, &prng);
		struct lpi_rig *rig = recover_bytes(bytes);
		refused_cnt += rig->recovery.result < 0;
		assert_true(rig->recovery.last_seq <= last_seq());
		if (rig->recovery.result == 0)
			assert_true(rig->recovery.last_seq >=
				    lpi_rig_applied(&model, LPI_RIG_NEVER));
		lpi_rig_free(rig);
		free(bytes);
	}
	assert_in_range(refused_cnt, 50, 590);
}

static int forget(void **state)
{
	(void)state;
	free(image);
	image = NULL;
	return 0;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_l1_rot_in_any_block),
		cmocka_unit_test(test_l1_rot_after_close),
		cmocka_unit_test(test_l1_applied),
		cmocka_unit_test(test_l1_limits),
		cmocka_unit_test(test_l1_evidence_wraps),
		cmocka_unit_test(test_l1_read_error),
		cmocka_unit_test(test_l2_former_incarnation),
		cmocka_unit_test(test_l2_chain),
		cmocka_unit_test(test_l2_old_follower),
		cmocka_unit_test(test_l2_torn_before_the_end),
		cmocka_unit_test(test_l2_superblock_lost),
		cmocka_unit_test(test_l2_incarnation_lost),
		cmocka_unit_test(test_l2_frame_knows_later_superblock),
		cmocka_unit_test(test_super_refused),
		cmocka_unit_test(test_super_newer_version),
		cmocka_unit_test(test_copies_do_not_count),
		cmocka_unit_test(test_front_without_need),
		cmocka_unit_test(test_read_only),
		cmocka_unit_test(test_is_new),
		cmocka_unit_test(test_callback_error),
		cmocka_unit_test(test_states),
		cmocka_unit_test(test_l1_random_damage),
	};
	return lp_test_main_with(tests, "store/log/recover", NULL, forget);
}
