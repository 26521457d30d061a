/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: full is a state, not an accident: whatever filled a store, writers are told so in bounded
 * time, everything can be read, overwritten in place, cut and deleted, and then written again; also
 * after a close, or a kill, and another opening (rules L8, S5, S7).
 * Method: small simulated devices are filled with objects of one kind until nothing more is taken,
 * then half of them is deleted, in several rounds; what should be there is kept beside. */
#include "store/device/sim/sim_test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/loop/workers.h"
#include "store/block/core/block.h"
#include "store/model/store_test.h"
#include "store/setup/mkfs.h"
#include "store/shard/shard_impl.h"
#include "store/volume/devices.h"

/* The least there may be for what is small in the index, else there are too many; and for all where
 * everything costs ten times as much. */
#define DEVICE_SMALL (UINT64_C(27) << 20)
#define DEVICE_BYTES (UINT64_C(48) << 20)
#define LOG_BYTES    (UINT64_C(8) << 20)
#define BUFS_BYTES   (UINT64_C(24) << 20)
#define OBJECTS_MAX  262144u
#define BATCH        32u
#define BYTES_MAX    (UINT64_C(1) << 20)
#define VALUE_BYTES  16000u
/* There also less rounds, and records of what is empty so large that 12,000 fill the index, not
 * 48,000. */
#define ROUNDS      (LP_ASSERT_SLOW_ON ? 1u : 3u)
#define XATTR_BYTES (LP_ASSERT_SLOW_ON ? 600u : 0u)
#define REFUSAL_NS  (50 * LP_NS_PER_MS)
#define SLOW_NS     (3 * LP_NS_PER_S) /* what may be refused once a reclaim has ended */
#define JOB_TURNS   100u              /* a compaction each */
#define ROOT        ((struct lp_ino){1})

enum kind { KIND_SMALL, KIND_LARGE, KIND_EMPTY, KIND_OMAP, KIND_INLINE, KIND_MIXED };

static const char *const kind_names[] = {"small", "large", "empty", "omap", "inline", "mixed"};

struct object {
	struct lp_ino ino;
	uint64_t size_bytes;
	uint32_t seed; /* of its content, of the omap value if there is one */
	bool has_value;
	bool exists;
};

/* A machine: a device and a store on it, and what should be in that. */
struct rig {
	struct lp_clock_sim clock;
	struct lp_workers *workers;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lpi_hand hand;
	struct lp_prng prng;
	enum lp_alloc_kind alloc_kind;
	enum kind kind;
	uint64_t files_reserve_bytes; /* 0: the default */
	struct object *objects;
	uint32_t object_cnt;
	uint32_t live_cnt;
	uint32_t seed;
};

static uint8_t pattern[2 * BYTES_MAX];

/* Cheap to make, and different for each seed and each block. */
static const uint8_t *content(uint32_t seed)
{
	return pattern + (uint64_t)seed * 4099 % BYTES_MAX;
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static int try_open(struct rig *rig)
{
	const struct lp_devices_options devices = {.bdev = {rig->bdev}};
	const struct lp_store_options options = {.reactor = rig->hand.reactor,
						 .workers = rig->workers,
						 .devices = &rig->devices,
						 .bufs = rig->hand.bufs,
						 .alloc_kind = rig->alloc_kind,
						 .sim_clock = &rig->clock.clock,
						 .memory_bytes = UINT64_C(16) << 20,
						 .files_reserve_bytes = rig->files_reserve_bytes,
						 .deferred_blocks_max = 512};
	struct lp_label_why why;
	lp_test_ok(lp_devices_open(&devices, &rig->devices, &why));
	return lp_store_open(&options, &rig->hand.store);
}

static void reopen(struct rig *rig, bool abandon)
{
	int err = lp_store_close(rig->hand.store, abandon);
	assert_true(err == 0 || abandon);
	lp_devices_close(&rig->devices);
	lp_sim_trim_log(lp_sim_of(rig->bdev));
	lp_test_ok(try_open(rig));
}

static void make_root(struct rig *rig)
{
	const struct lp_attrs attrs = {
		.mode = 0755, .nlink = 2, .type = LP_INODE_TYPE_DIR, .parent = ROOT};
	const struct lp_change change = {
		.type = LP_CHANGE_CREATE, .ino = ROOT, .inode = {.attrs = &attrs}};
	lp_test_ok(lpi_hand_change(&rig->hand, change));
}

static void rig_init_with(struct rig *rig, enum kind kind, enum lp_alloc_kind alloc_kind,
			  uint64_t log_bytes)
{
	struct lp_sim_profile profile = lpi_bench_plain_profile(4096);
	bool is_small = LP_ASSERT_SLOW_ON || kind == KIND_EMPTY || kind == KIND_INLINE;
	const struct lp_sim_options sim = {.profile = &profile,
					   .size_bytes = (is_small ? DEVICE_SMALL : DEVICE_BYTES) +
							 log_bytes - LOG_BYTES,
					   .seed = 11,
					   .log_metadata_only = true};
	const struct lp_reactor_options options = {.name = "full", .sim = &rig->clock};
	struct lp_disk_label label;
	struct lp_label_why why;
	*rig = (struct rig){.alloc_kind = alloc_kind, .kind = kind};
	lp_prng_init(&rig->prng, 1000 + (uint64_t)kind * 10 + (uint64_t)alloc_kind);
	lp_clock_sim_init(&rig->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	lp_test_ok(lp_reactor_new(&options, &rig->hand.reactor));
	lp_test_ok(lp_reactor_start(rig->hand.reactor));
	lp_test_ok(lp_workers_new(0, &rig->workers));
	lp_test_ok(lp_bufs_new(BUFS_BYTES, &rig->hand.bufs));
	lp_test_ok(lp_bdev_open_sim(&sim, &rig->bdev));
	struct lp_mkfs_options mkfs = {.bdev = {rig->bdev}, .shard_cnt = 1, .log_bytes = log_bytes};
	memset(mkfs.seed, 5, sizeof(mkfs.seed));
	lp_test_ok(lp_store_mkfs(&mkfs, &label, &why));
	rig->objects = calloc(OBJECTS_MAX, sizeof(*rig->objects));
	assert_non_null(rig->objects);
	lp_test_ok(try_open(rig));
	make_root(rig);
}

static void rig_init(struct rig *rig, enum kind kind, enum lp_alloc_kind alloc_kind)
{
	rig_init_with(rig, kind, alloc_kind, LOG_BYTES);
}

static void rig_fini(struct rig *rig)
{
	lp_test_ok(lp_store_close(rig->hand.store, false));
	lp_devices_close(&rig->devices);
	lp_bufs_free(rig->hand.bufs);
	lp_workers_free(rig->workers);
	lp_reactor_free(rig->hand.reactor);
	lp_bdev_close(rig->bdev);
	free(rig->objects);
}

/* --- Many at a time --------------------------------------------------------------------------- */

/* One object's creation, with name, and data or a value; or its removal. */
struct job {
	struct lp_store_op op;
	struct lp_change changes[4];
	struct lp_attrs attrs;
	struct lpi_pay pay;
	char name[250];
	uint32_t object_idx;
	uint64_t begin_ns;
	uint64_t took_ns;
	bool is_done;
	struct rig *rig;
};

#define WRITERS 64u

static struct job jobs[WRITERS];

static void job_complete(struct lp_store_op *op)
{
	struct job *job = LP_CONTAINER_OF(op, struct job, op);
	assert_false(job->is_done);
	job->is_done = true;
	job->took_ns = job->rig->clock.now_ns - job->begin_ns;
}

static void submit(struct rig *rig, struct job *job, uint32_t change_cnt)
{
	job->op = lpi_txn_op(job->changes, change_cnt);
	job->op.complete = job_complete;
	job->is_done = false;
	job->rig = rig;
	job->begin_ns = rig->clock.now_ns;
	lp_store_submit(rig->hand.store, &job->op);
}

static void wait_jobs(struct rig *rig, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		for (uint32_t turn = 0; !jobs[i].is_done; turn++) {
			assert_true(turn < LPI_TURNS_MAX);
			lpi_hand_turn(&rig->hand);
		}
		lpi_pay_drop(&jobs[i].pay);
	}
}

static struct lp_change named(struct job *job, enum lp_change_type type, struct lp_ino ino)
{
	/* Long: the sooner the index is full. */
	(void)snprintf(job->name, sizeof(job->name), "object-%0200llu", (unsigned long long)ino.nr);
	return (struct lp_change){.type = type,
				  .ino = ROOT,
				  .named = {.name = {job->name, (uint32_t)strlen(job->name)},
					    .target = ino,
					    .target_type = LP_INODE_TYPE_FILE}};
}

static struct lp_change value_change(const struct object *object)
{
	return (struct lp_change){
		.type = LP_CHANGE_OMAP_SET,
		.ino = object->ino,
		.named = {.name = {"value", 5}, .value = {content(object->seed), VALUE_BYTES}}};
}

static struct lp_change xattr_change(const struct object *object)
{
	return (struct lp_change){
		.type = LP_CHANGE_XATTR_SET,
		.ino = object->ino,
		.named = {.name = {"user.x", 6}, .value = {content(object->seed), XATTR_BYTES}}};
}

static void choose_object(struct rig *rig, struct object *object)
{
	enum kind kind = rig->kind;
	if (kind == KIND_MIXED)
		kind = (enum kind)lp_prng_below(&rig->prng, KIND_MIXED);
	*object = (struct object){.ino = lp_store_new_ino(rig->hand.store), .seed = ++rig->seed};
	object->has_value = kind == KIND_OMAP;
	if (kind == KIND_SMALL)
		object->size_bytes = LP_BLOCK_BYTES;
	if (kind == KIND_INLINE)
		object->size_bytes = 1500;
	if (kind == KIND_LARGE)
		object->size_bytes = 100000 + lp_prng_below(&rig->prng, BYTES_MAX - 100000);
}

static bool submit_create(struct rig *rig, struct job *job, uint32_t object_idx)
{
	struct object *object = &rig->objects[object_idx];
	uint32_t cnt = 0;
	choose_object(rig, object);
	job->object_idx = object_idx;
	job->attrs = (struct lp_attrs){.mode = 0644, .nlink = 1, .type = LP_INODE_TYPE_FILE};
	job->changes[cnt++] = (struct lp_change){
		.type = LP_CHANGE_CREATE, .ino = object->ino, .inode = {.attrs = &job->attrs}};
	job->changes[cnt++] = named(job, LP_CHANGE_ENTRY_SET, object->ino);
	if (object->has_value)
		job->changes[cnt++] = value_change(object);
	if (rig->kind == KIND_EMPTY && XATTR_BYTES > 0)
		job->changes[cnt++] = xattr_change(object);
	if (object->size_bytes > 0) {
		if (!lpi_pay_make(&job->pay, rig->hand.bufs, content(object->seed), 0,
				  object->size_bytes, LP_BUF_MEDIUM))
			return false;
		job->changes[cnt++] =
			lpi_write_change(object->ino, 0, object->size_bytes, &job->pay);
	}
	submit(rig, job, cnt);
	return true;
}

/* How many were made; fewer than BATCH: the others were refused. */
static uint32_t create_batch(struct rig *rig)
{
	uint32_t cnt = 0;
	uint32_t made = 0;
	assert_true(rig->object_cnt + BATCH <= OBJECTS_MAX);
	while (cnt < BATCH && submit_create(rig, &jobs[cnt], rig->object_cnt + cnt))
		cnt++;
	assert_true(cnt > 0);
	wait_jobs(rig, cnt);
	for (uint32_t i = 0; i < cnt; i++) {
		assert_true(jobs[i].op.result == 0 || jobs[i].op.result == -ENOSPC);
		assert_true(jobs[i].took_ns < SLOW_NS);
		rig->objects[jobs[i].object_idx].exists = jobs[i].op.result == 0;
		made += jobs[i].op.result == 0;
	}
	rig->object_cnt += cnt;
	rig->live_cnt += made;
	return made + (BATCH - cnt);
}

/* Until nothing is taken, by which time it is said at once. Returns how many were made. */
static uint32_t fill(struct rig *rig)
{
	uint32_t before = rig->live_cnt;
	uint32_t refused = 0;
	while (refused < 3)
		refused = create_batch(rig) < BATCH ? refused + 1 : 0;
	(void)create_batch(rig);
	for (uint32_t i = 0; i < BATCH; i++)
		assert_true(jobs[i].op.result == 0 || jobs[i].took_ns < REFUSAL_NS);
	return rig->live_cnt - before;
}

static void submit_remove(struct rig *rig, struct job *job, uint32_t object_idx)
{
	struct object *object = &rig->objects[object_idx];
	job->object_idx = object_idx;
	job->changes[0] = named(job, LP_CHANGE_ENTRY_REMOVE, object->ino);
	job->changes[1] = (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = object->ino};
	object->exists = false;
	rig->live_cnt--;
	submit(rig, job, 2);
}

/* So many: every second one at random, or those that were made first. */
static void remove_some(struct rig *rig, uint32_t left, bool at_random)
{
	uint32_t cnt = 0;
	for (uint32_t i = 0; i < rig->object_cnt && left > 0; i++) {
		if (!rig->objects[i].exists || (at_random && lp_prng_below(&rig->prng, 2) == 0))
			continue;
		submit_remove(rig, &jobs[cnt++], i);
		left--;
		if (cnt < BATCH && left > 0)
			continue;
		wait_jobs(rig, cnt);
		while (cnt > 0)
			lp_test_ok(jobs[--cnt].op.result);
	}
	wait_jobs(rig, cnt);
	while (cnt > 0)
		lp_test_ok(jobs[--cnt].op.result);
}

static void remove_half(struct rig *rig, bool at_random)
{
	remove_some(rig, rig->live_cnt / 2, at_random);
}

/* --- What should be there --------------------------------------------------------------------- */

static void expect_object(struct rig *rig, const struct object *object)
{
	static uint8_t bytes[BYTES_MAX];
	struct lp_attrs attrs;
	if (!object->exists) {
		if (object->ino.nr != 0)
			lp_test_err(-ENOENT, lpi_hand_stat(&rig->hand, object->ino, &attrs));
		return;
	}
	lp_test_ok(lpi_hand_stat(&rig->hand, object->ino, &attrs));
	assert_int_equal(attrs.size_bytes, object->size_bytes);
	if (object->size_bytes > 0) {
		assert_int_equal(lpi_hand_read(&rig->hand, object->ino, 0, BYTES_MAX, bytes),
				 object->size_bytes);
		assert_memory_equal(bytes, content(object->seed), object->size_bytes);
	}
	if (object->has_value) {
		assert_int_equal(lpi_hand_get(&rig->hand, LP_STORE_OMAP, object->ino,
					      (struct lp_bytes){"value", 5}, bytes, BYTES_MAX),
				 VALUE_BYTES);
		assert_memory_equal(bytes, content(object->seed), VALUE_BYTES);
	}
}

/* All objects, or one in so many. */
static void expect_all(struct rig *rig, uint32_t one_in)
{
	for (uint32_t i = 0; i < rig->object_cnt; i++) {
		if (one_in == 1 || lp_prng_below(&rig->prng, one_in) == 0)
			expect_object(rig, &rig->objects[i]);
	}
	struct lp_store_op op = {.opcode = LP_STORE_DIR, .dir = {.ino = ROOT}};
	lp_test_ok(lpi_hand_do(&rig->hand, &op));
	assert_int_equal(op.dir.entries_cnt, rig->live_cnt);
}

/* What they take, roughly. */
static uint64_t live_bytes(const struct rig *rig)
{
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < rig->object_cnt; i++) {
		const struct object *object = &rig->objects[i];
		if (object->exists)
			bytes += 600 + object->size_bytes + (object->has_value ? VALUE_BYTES : 0);
	}
	return bytes;
}

/* --- In a full store -------------------------------------------------------------------------- */

static struct object *some_object(struct rig *rig)
{
	for (;;) {
		struct object *object = &rig->objects[lp_prng_below(&rig->prng, rig->object_cnt)];
		if (object->exists)
			return object;
	}
}

/* What needs no new space can be done: other bytes in place, other times, a cut. */
static void work_when_full(struct rig *rig)
{
	for (uint32_t i = 0; i < 40; i++) {
		struct object *object = some_object(rig);
		const struct lp_attrs attrs = {.mtime_ns = (int64_t)i};
		const struct lp_change set = {.type = LP_CHANGE_SET,
					      .ino = object->ino,
					      .inode = {.attrs = &attrs, .mask = LP_ATTR_MTIME}};
		lp_test_ok(lpi_hand_change(&rig->hand, set));
		if (object->size_bytes == 0)
			continue;
		uint64_t keep = i % 4 == 0 ? 0 : object->size_bytes;
		if (keep == 0) {
			const struct lp_change cut = {.type = LP_CHANGE_TRUNCATE,
						      .ino = object->ino};
			lp_test_ok(lpi_hand_change(&rig->hand, cut));
			object->size_bytes = 0;
		} else if (object->size_bytes <= LP_BLOCK_BYTES) {
			object->seed = ++rig->seed;
			lp_test_ok(lpi_hand_write(&rig->hand, object->ino, 0, content(object->seed),
						  object->size_bytes));
		}
		expect_object(rig, object);
	}
}

static void run(enum kind kind, enum lp_alloc_kind alloc_kind, uint32_t rounds)
{
	struct rig rig;
	rig_init(&rig, kind, alloc_kind);
	assert_true(fill(&rig) > 0);
	expect_all(&rig, 1);
	for (uint32_t round = 0; round < rounds; round++) {
		work_when_full(&rig);
		expect_all(&rig, 4);
		uint64_t before = live_bytes(&rig);
		remove_half(&rig, round % 2 == 0);
		uint64_t kept = live_bytes(&rig);
		if (round == 1)
			reopen(&rig, true);
		(void)fill(&rig);
		/* As much as was removed, but for the last objects, which did not fit; of records
		 * alone less, for what deletes the old ones takes room itself. */
		uint64_t parts = kind == KIND_EMPTY ? 12 : 15; /* of 20 */
		uint64_t after = live_bytes(&rig);
		if ((after - kept) * 20 < (before - kept) * parts)
			print_error("%s: removed %llu bytes, made %llu\n", kind_names[kind],
				    (unsigned long long)(before - kept),
				    (unsigned long long)(after - kept));
		assert_true((after - kept) * 20 >= (before - kept) * parts);
		reopen(&rig, round % 2 == 0);
		expect_all(&rig, 1);
	}
	rig_fini(&rig);
}

static void test_small(void **state)
{
	(void)state;
	run(KIND_SMALL, LP_ALLOC_HYBRID, ROUNDS);
}

static void test_large(void **state)
{
	(void)state;
	run(KIND_LARGE, LP_ALLOC_BITMAP, ROUNDS);
}

static void test_empty(void **state)
{
	(void)state;
	run(KIND_EMPTY, LP_ALLOC_HYBRID, 1);
}

static void test_omap(void **state)
{
	(void)state;
	run(KIND_OMAP, LP_ALLOC_HYBRID, ROUNDS);
}

static void test_inline(void **state)
{
	(void)state;
	run(KIND_INLINE, LP_ALLOC_EXTENT, ROUNDS);
}

/* Other times for many: records of objects, which the index is owed. */
static void touch_some(struct rig *rig)
{
	for (uint32_t i = 0; i < BATCH; i++) {
		struct job *job = &jobs[i];
		job->attrs = (struct lp_attrs){.mtime_ns = (int64_t)i};
		job->changes[0] =
			(struct lp_change){.type = LP_CHANGE_SET,
					   .ino = some_object(rig)->ino,
					   .inode = {.attrs = &job->attrs, .mask = LP_ATTR_MTIME}};
		submit(rig, job, 1);
	}
	wait_jobs(rig, BATCH);
	for (uint32_t i = 0; i < BATCH; i++)
		lp_test_ok(jobs[i].op.result);
}

/* Killed when much is owed: the next opening puts again what the log has of it, into an index that
 * is as large as it may be, and must leave its compactions their room (rules L8, L9). */
static void test_much_to_replay(void **state)
{
	(void)state;
	struct rig rig;
	rig_init_with(&rig, KIND_INLINE, LP_ALLOC_EXTENT, 4 * LOG_BYTES);
	assert_true(fill(&rig) > 0);
	for (uint32_t round = 0; round < 2 * ROUNDS; round++) {
		uint32_t cnt = (uint32_t)lp_prng_below(&rig.prng, rig.live_cnt / 3);
		remove_some(&rig, rig.live_cnt / 8 + cnt, true);
		touch_some(&rig);
		(void)fill(&rig);
		reopen(&rig, true);
		const struct lp_shard *shard = lpi_block_of(rig.hand.store)->shard;
		assert_true(lp_blockfs_room_bytes(shard->files) >= shard->plan.rewrite_bytes);
		expect_all(&rig, 4);
	}
	expect_all(&rig, 1);
	rig_fini(&rig);
}

/* Flushes are as fast as ever, but of compactions there is one now and then. */
static void turn_without_compactions(const struct lpi_hand *hand)
{
	static uint32_t turns;
	bool has_run = false;
	if (lp_kv_is_flushing(lpi_block_of(hand->store)->shard->kv) || ++turns % JOB_TURNS == 0)
		has_run = lp_store_sim_run_one(hand->store);
	(void)lp_reactor_turn(hand->reactor, !has_run);
}

/* What rewrites waits for compactions that are behind, and is not refused (rule L8). */
static void test_slow_compactions(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig, KIND_INLINE, LP_ALLOC_HYBRID);
	assert_true(fill(&rig) > 0);
	rig.hand.turn = turn_without_compactions;
	for (uint32_t i = 0; i < 300; i++)
		touch_some(&rig);
	rig.hand.turn = NULL;
	expect_all(&rig, 1);
	rig_fini(&rig);
}

/* On a device that takes long for a commit, what is being deleted makes room all the same. */
static void test_slow_device(void **state)
{
	(void)state;
	struct rig rig;
	uint32_t first = 0;
	rig_init(&rig, KIND_LARGE, LP_ALLOC_HYBRID);
	assert_true(fill(&rig) > 0);
	const struct lp_sim_rule slow = {.fault = LP_SIM_SLOW,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							LP_SIM_OP(LP_BDEV_WRITE_THROUGH) |
							LP_SIM_OP(LP_BDEV_FLUSH),
					 .arg = 400 * LP_NS_PER_MS};
	(void)lp_sim_rule_add(lp_sim_of(rig.bdev), &slow);
	for (uint32_t i = 0; i < 4; i++) {
		while (!rig.objects[first].exists)
			first++;
		submit_remove(&rig, &jobs[i], first);
	}
	assert_true(submit_create(&rig, &jobs[4], rig.object_cnt));
	wait_jobs(&rig, 5);
	for (uint32_t i = 0; i < 5; i++)
		lp_test_ok(jobs[i].op.result);
	rig.objects[rig.object_cnt++].exists = true;
	rig_fini(&rig);
}

/* --- Many writers of one file ------------------------------------------------------------------
 */

#define WRITE_BYTES (UINT64_C(16) * LP_BLOCK_BYTES)

static uint64_t questions(const struct rig *rig)
{
	return lp_shard_questions(lpi_block_of(rig->hand.store)->shard);
}

/* All at once, each for itself, behind one another. */
static void submit_writers(struct rig *rig, struct lp_ino ino, uint64_t *offset)
{
	for (uint32_t i = 0; i < WRITERS; i++, *offset += WRITE_BYTES) {
		struct job *job = &jobs[i];
		assert_true(lpi_pay_make(&job->pay, rig->hand.bufs, content(i), *offset,
					 WRITE_BYTES, LP_BUF_MEDIUM));
		job->changes[0] = lpi_write_change(ino, *offset, WRITE_BYTES, &job->pay);
		submit(rig, job, 1);
	}
}

static uint32_t wait_writers(struct rig *rig)
{
	uint32_t written = 0;
	wait_jobs(rig, WRITERS);
	for (uint32_t i = 0; i < WRITERS; i++) {
		assert_true(jobs[i].op.result == 0 || jobs[i].op.result == -ENOSPC);
		written += jobs[i].op.result == 0;
	}
	return written;
}

static uint32_t write_many(struct rig *rig, struct lp_ino ino, uint64_t *offset)
{
	submit_writers(rig, ino, offset);
	return wait_writers(rig);
}

/* A removal that is on its way while they look for space, or was a moment before. */
static uint32_t write_while_freeing(struct rig *rig, struct lp_ino ino, uint64_t *offset,
				    uint32_t victim_idx)
{
	struct job *removal = calloc(1, sizeof(*removal));
	assert_non_null(removal);
	submit_remove(rig, removal, victim_idx);
	submit_writers(rig, ino, offset);
	uint32_t written = wait_writers(rig);
	assert_true(removal->is_done);
	lp_test_ok(removal->op.result);
	free(removal);
	return written;
}

/* Rule S5: who begins before the question is put is answered by it. So the writers of one file, who
 * take their turns, are refused by one of them, or two. What is freed meanwhile they find. */
static void test_many_writers_of_one(void **state)
{
	(void)state;
	struct rig rig;
	uint64_t offset = UINT64_C(1) << 30;
	rig_init(&rig, KIND_LARGE, LP_ALLOC_HYBRID);
	assert_true(fill(&rig) > 0);
	const struct object *object = some_object(&rig);
	while (write_many(&rig, object->ino, &offset) > 0)
		;
	uint64_t before = questions(&rig);
	uint64_t from_ns = rig.clock.now_ns;
	assert_int_equal(write_many(&rig, object->ino, &offset), 0);
	assert_in_range(questions(&rig) - before, 1, 2);
	assert_true(rig.clock.now_ns - from_ns < REFUSAL_NS);
	/* Who begins later asks again. */
	before = questions(&rig);
	lp_test_err(-ENOSPC, lpi_hand_write(&rig.hand, object->ino, offset, pattern, WRITE_BYTES));
	assert_int_equal(questions(&rig) - before, 1);
	for (uint32_t i = 0, freed = 0; freed < 4; i++) {
		if (!rig.objects[i].exists || &rig.objects[i] == object)
			continue;
		uint64_t room = rig.objects[i].size_bytes / WRITE_BYTES;
		uint32_t written = write_while_freeing(&rig, object->ino, &offset, i);
		assert_true(written >= LP_MIN(room, (uint64_t)WRITERS));
		freed++;
	}
	rig_fini(&rig);
}

/* --- What was promised ------------------------------------------------------------------------ */

#define RESERVE_ALL (16 * DEVICE_BYTES)
#define PROMISE_LEN 4000u
#define PROMISES    4000u /* more than memtables take */

/* A record that says what will be done; or its end, if it has no length. */
static int promise(struct rig *rig, enum lp_store_room room, uint32_t len)
{
	static const uint8_t key[] = {LP_KEY_SPACE_TXN, 0, 0, 0, 0, 0, 0, 0, 7};
	const struct lp_change change = {
		.type = LP_CHANGE_RECORD,
		.named = {.name = {key, sizeof(key)}, .value = {len == 0 ? NULL : pattern, len}}};
	struct lp_store_op op = lpi_txn_op(&change, 1);
	op.txn.room = room;
	return lpi_hand_do(&rig->hand, &op);
}

static int make_empty(struct rig *rig, enum lp_store_room room)
{
	const struct lp_attrs attrs = {.nlink = 1, .type = LP_INODE_TYPE_FIFO};
	const struct lp_change change = {.type = LP_CHANGE_CREATE,
					 .ino = lp_store_new_ino(rig->hand.store),
					 .inode = {.attrs = &attrs}};
	struct lp_store_op op = lpi_txn_op(&change, 1);
	op.txn.room = room;
	return lpi_hand_do(&rig->hand, &op);
}

/* What it says of that, before anybody asks. */
static bool takes_no_more(const struct rig *rig)
{
	struct lp_store_stats stats;
	lp_store_read_stats(rig->hand.store, &stats);
	return stats.takes_no_more;
}

static void reopen_with(struct rig *rig, uint64_t files_reserve_bytes)
{
	rig->files_reserve_bytes = files_reserve_bytes;
	reopen(rig, false);
}

/* Rule L8: a promise to grow is refused where growth is; one that is part of a removal is not; and
 * what ends one never is. */
static void test_promises(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig, KIND_EMPTY, LP_ALLOC_HYBRID);
	lp_test_ok(promise(&rig, LP_ROOM_GROWS, PROMISE_LEN));
	assert_false(takes_no_more(&rig));
	const struct lp_shard *shard = lpi_block_of(rig.hand.store)->shard;
	/* There is room to rewrite, and none to grow. */
	reopen_with(&rig, lp_blockfs_room_bytes(shard->files) / 9 * 16);
	lp_test_err(-ENOSPC, promise(&rig, LP_ROOM_GROWS, PROMISE_LEN));
	lp_test_ok(promise(&rig, LP_ROOM_OWN, PROMISE_LEN));
	lp_test_err(-ENOSPC, make_empty(&rig, LP_ROOM_OWN));
	lp_test_ok(make_empty(&rig, LP_ROOM_ENDS));
	assert_true(takes_no_more(&rig));
	/* And none for either. */
	reopen_with(&rig, RESERVE_ALL);
	lp_test_err(-ENOSPC, promise(&rig, LP_ROOM_GROWS, PROMISE_LEN));
	lp_test_err(-ENOSPC, promise(&rig, LP_ROOM_OWN, PROMISE_LEN));
	lp_test_ok(promise(&rig, LP_ROOM_FREES, PROMISE_LEN));
	lp_test_ok(make_empty(&rig, LP_ROOM_ENDS));
	lp_test_ok(promise(&rig, LP_ROOM_ENDS, 0));
	rig_fini(&rig);
}

/* While the index cannot be written nothing is promised, for who ends it may find no room. He is
 * told so, as is who removes: nobody waits for what may never come. */
static void test_stopped_index(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig, KIND_EMPTY, LP_ALLOC_HYBRID);
	const struct lp_kv *kv = lpi_block_of(rig.hand.store)->shard->kv;
	const struct lp_disk_label *label = &rig.devices.label[LP_ROLE_DATA];
	const struct lp_sim_rule full = {.fault = LP_SIM_ENOSPC,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = label->chunk_base * LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(lp_sim_of(rig.bdev), &full);
	for (uint32_t i = 0; lp_kv_error(kv) == 0; i++) {
		assert_true(i < PROMISES);
		lp_test_ok(promise(&rig, LP_ROOM_OWN, PROMISE_LEN));
	}
	assert_int_equal(lp_kv_error(kv), -ENOSPC);
	assert_true(takes_no_more(&rig));
	lp_test_err(-ENOSPC, promise(&rig, LP_ROOM_FREES, PROMISE_LEN));
	lp_test_ok(promise(&rig, LP_ROOM_ENDS, 0));
	int r = 0;
	for (uint32_t i = 0; r == 0; i++) {
		assert_true(i < PROMISES);
		r = promise(&rig, LP_ROOM_ENDS, PROMISE_LEN);
	}
	lp_test_err(-ENOSPC, r);
	const struct lp_change change = {.type = LP_CHANGE_DIR, .ino = ROOT, .dir = {.drop = true}};
	lp_test_err(-ENOSPC, lpi_hand_change(&rig.hand, change));
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	uint64_t end_ns = rig.clock.now_ns + SLOW_NS;
	while (promise(&rig, LP_ROOM_GROWS, PROMISE_LEN) == -ENOSPC) {
		assert_true(rig.clock.now_ns < end_ns);
		lpi_hand_turn(&rig.hand);
	}
	rig_fini(&rig);
}

static struct lp_ino make_file(struct rig *rig)
{
	const struct lp_attrs attrs = {.mode = 0644, .nlink = 1, .type = LP_INODE_TYPE_FILE};
	struct lp_ino ino = lp_store_new_ino(rig->hand.store);
	const struct lp_change change = {
		.type = LP_CHANGE_CREATE, .ino = ino, .inode = {.attrs = &attrs}};
	lp_test_ok(lpi_hand_change(&rig->hand, change));
	return ino;
}

static void expect_bytes(const struct rig *rig, struct lp_ino ino, uint64_t block, uint32_t length)
{
	uint8_t bytes[LP_BLOCK_BYTES];
	assert_int_equal(
		lpi_hand_read(&rig->hand, ino, block * LP_BLOCK_BYTES, LP_BLOCK_BYTES, bytes),
		block == 8 ? length : LP_BLOCK_BYTES);
	assert_memory_equal(bytes, content((uint32_t)block), length);
}

/* Small writes wait in the log while the host of an image has no space for their places. They are
 * refused before they are too many; what was let in may be overwritten then, cut and removed, and
 * nothing is lost (rule S7). */
static void test_small_writes_on_a_full_host(void **state)
{
	(void)state;
	struct rig rig;
	rig_init(&rig, KIND_EMPTY, LP_ALLOC_HYBRID);
	const struct lp_shard *shard = lpi_block_of(rig.hand.store)->shard;
	const struct lp_disk_label *label = &rig.devices.label[LP_ROLE_DATA];
	const struct lp_sim_rule full = {.fault = LP_SIM_ENOSPC,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = label->chunk_base * LP_BLOCK_BYTES};
	struct lp_ino ino = make_file(&rig);
	struct lp_ino other = make_file(&rig);
	(void)lp_sim_rule_add(lp_sim_of(rig.bdev), &full);
	uint64_t cnt = 0;
	int err = 0;
	for (; err == 0; cnt += err == 0)
		err = lpi_hand_write(&rig.hand, ino, cnt * LP_BLOCK_BYTES, content((uint32_t)cnt),
				     LP_BLOCK_BYTES - 1);
	lp_test_err(-ENOSPC, err);
	/* And what came before the first was refused. */
	assert_in_range(cnt, 16, shard->start_versions * 5 / 4);
	assert_true(shard->start_versions * 5 / 4 < lp_shard_defer_max(shard));
	for (uint64_t i = 0; i < cnt; i += 16)
		lp_test_ok(lpi_hand_write(&rig.hand, ino, i * LP_BLOCK_BYTES, content((uint32_t)i),
					  LP_BLOCK_BYTES / 2));
	lp_test_err(-ENOSPC, lpi_hand_write(&rig.hand, other, 0, content(1), LP_BLOCK_BYTES - 1));
	/* In the middle of a block. */
	const struct lp_change cut = {.type = LP_CHANGE_TRUNCATE,
				      .ino = ino,
				      .data = {.offset = 8 * LP_BLOCK_BYTES + 100}};
	lp_test_ok(lpi_hand_change(&rig.hand, cut));
	lp_sim_rules_clear(lp_sim_of(rig.bdev));
	reopen(&rig, true);
	for (uint64_t i = 0; i <= 8; i++)
		expect_bytes(&rig, ino, i, i < 8 ? LP_BLOCK_BYTES - 1 : 100);
	rig_fini(&rig);
}

#define FAR UINT64_C(100000) /* more than one record sets aside */

/* Room for one record of the highest number is set aside (rule N5): numbers far apart, made by one
 * transaction, may not put one each. */
static void test_numbers_far_apart(void **state)
{
	(void)state;
	struct rig rig;
	struct lp_attrs attrs = {.nlink = 1, .type = LP_INODE_TYPE_FIFO};
	struct lp_change changes[LP_STORE_TOUCHED_MAX];
	rig_init(&rig, KIND_EMPTY, LP_ALLOC_EXTENT);
	const struct lp_commit *commit = lpi_block_of(rig.hand.store)->commit;
	for (uint64_t i = 0; i < LP_ARRAY_SIZE(changes); i++)
		changes[i] = (struct lp_change){.type = LP_CHANGE_CREATE,
						.ino = {(i + 1) * FAR},
						.inode = {.attrs = &attrs}};
	uint64_t before = lp_commit_stats(commit)->puts;
	lp_test_ok(lpi_hand_txn(&rig.hand, changes, LP_ARRAY_SIZE(changes)));
	assert_in_range(lp_commit_stats(commit)->puts - before, LP_ARRAY_SIZE(changes) + 1,
			LP_ARRAY_SIZE(changes) + 2); /* and what the policy has learned */
	reopen(&rig, true);
	assert_true(lp_store_new_ino(rig.hand.store).nr > LP_ARRAY_SIZE(changes) * FAR);
	rig_fini(&rig);
}

static void test_mixed(void **state)
{
	(void)state;
	run(KIND_MIXED, LP_ALLOC_BITMAP, ROUNDS);
	run(KIND_MIXED, LP_ALLOC_EXTENT, ROUNDS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_large),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_omap),
		cmocka_unit_test(test_inline),
		cmocka_unit_test(test_slow_compactions),
		cmocka_unit_test(test_much_to_replay),
		cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_numbers_far_apart),
		cmocka_unit_test(test_slow_device),
		cmocka_unit_test(test_many_writers_of_one),
		cmocka_unit_test(test_promises),
		cmocka_unit_test(test_stopped_index),
		cmocka_unit_test(test_small_writes_on_a_full_host),
	};
	struct lp_prng prng;
	lp_prng_init(&prng, 99);
	for (uint64_t i = 0; i < sizeof(pattern); i++)
		pattern[i] = (uint8_t)lp_prng_u64(&prng);
	return lp_test_main(tests, "store/block/write/full");
}
