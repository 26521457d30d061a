/* SPDX-License-Identifier: Apache-2.0 */
/* Memory runs out: each allocation that our code makes fails once, each in a life of its own, from
 * mkfs to a clean stop. Whatever comes of it, nothing dies or hangs, an error is an error and no
 * damage, and the next life finds all that was acknowledged, in a store without a fault (P1, P5).
 */
#include "base/testing/scarce_test.h"

#include "base/crc32c.h"
#include "base/loop/workers.h"
#include "base/sanitize.h"
#include "namespace/ns.h"
#include "store/check/fsck.h"
#include "store/setup/mkfs.h"
#include "store/shard/shard.h"
#include "store/view.h"

#define SHARDS       2u
#define DEVICE_BYTES (UINT64_C(64) << 20)
#define BUFS_BYTES   (UINT64_C(16) << 20)
#define TURNS_MAX    200000u
#define DATA_BYTES   (UINT32_C(300) << 10)
#define DATA_BLOCKS  (DATA_BYTES / LP_BLOCK_BYTES)
/* Of the first, up to where all is open, a third is tried, of the others half, in each run the
 * same. In the environment LP_MEMORY_ALL: each; LP_MEMORY_FROM: from this one on, for a debugger
 * (break lp_scarce_refuse). */
#define OPEN_AT 400u
/* A life takes some seventeen times as long where threads are watched, and has only one: there a
 * fifth of these are tried. */
#define FEWER (LP_SAN_THREAD ? 5 : 1)

static long failing; /* which allocation it is */

/* --- A life ------------------------------------------------------------------------------------
 */

struct life {
	struct lp_bdev *bdev;
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_devices devices;
	bool has_devices;
	struct lp_store *store[SHARDS];
	struct lp_ns *ns[SHARDS];
	bool serves; /* all namespaces do */
	uint32_t ready_cnt;
	int ready_result;
	uint32_t stopped_cnt;
	struct lp_buf *data;
	struct lp_seg seg;
	uint32_t crcs[DATA_BLOCKS];
};

static void turn(struct life *life)
{
	for (uint32_t i = 0; i < SHARDS; i++) {
		if (life->store[i] != NULL)
			(void)lp_store_sim_run_one(life->store[i]);
	}
	(void)lp_reactor_turn(life->reactor, true);
}

/* While something is waited for. */
static void turn_once_more(struct life *life, uint32_t turns)
{
	if (turns == TURNS_MAX)
		fail_msg("allocation %ld: it hangs", failing);
	turn(life);
}

static int open_store(struct life *life, uint32_t shard_idx)
{
	const struct lp_store_options options = {.reactor = life->reactor,
						 .workers = life->workers,
						 .devices = &life->devices,
						 .bufs = life->bufs,
						 .shard_idx = shard_idx,
						 .sim_clock = &life->clock.clock,
						 .memory_bytes = UINT64_C(8) << 20,
						 .data_cache_bytes = UINT64_C(1) << 20,
						 .index_buffer_bytes = UINT64_C(1) << 16,
						 .deferred_blocks_max = 64,
						 .files_reserve_bytes = UINT64_C(1) << 20,
						 .ops_max = 8};
	return lp_store_open(&options, &life->store[shard_idx]);
}

static int open_names(struct life *life, uint32_t shard_idx)
{
	const struct lp_ns_options options = {.reactor = life->reactor,
					      .store = life->store[shard_idx],
					      .bufs = life->bufs,
					      .shard_idx = shard_idx,
					      .shard_cnt = SHARDS,
					      .cache_bytes = UINT64_C(1) << 16,
					      .ops_max = 16};
	return lp_ns_open(&options, &life->ns[shard_idx]);
}

static int set_up(struct life *life)
{
	const struct lp_reactor_options reactor = {
		.name = "sim", .clock = &life->clock.clock, .sim = &life->clock};
	lp_clock_sim_init(&life->clock, LP_NS_PER_S, INT64_C(1700000000) * (int64_t)LP_NS_PER_S);
	int err = lp_reactor_new(&reactor, &life->reactor);
	if (err == 0)
		err = lp_reactor_start(life->reactor);
	if (err == 0)
		err = lp_workers_new(0, &life->workers);
	if (err == 0)
		err = lp_bufs_new(BUFS_BYTES, &life->bufs);
	return err;
}

static int open_stores(struct life *life)
{
	const struct lp_devices_options devices = {.bdev = {life->bdev}};
	struct lp_label_why why;
	int err = lp_devices_open(&devices, &life->devices, &why);
	life->has_devices = err == 0;
	for (uint32_t i = 0; i < SHARDS && err == 0; i++)
		err = open_store(life, i);
	for (uint32_t i = 0; i < SHARDS && err == 0; i++)
		err = open_names(life, i);
	return err;
}

static void ready(struct lp_ns *ns, int result, void *arg)
{
	struct life *life = arg;
	(void)ns;
	life->ready_cnt++;
	life->ready_result = LP_MIN(life->ready_result, result);
}

static int serve(struct life *life)
{
	for (uint32_t i = 0; i < SHARDS; i++)
		lp_ns_start(life->ns[i], life->ns, ready, life);
	for (uint32_t i = 0; life->ready_cnt < SHARDS; i++) {
		turn_once_more(life, i);
	}
	life->serves = life->ready_result == 0;
	return life->ready_result;
}

/* What is written; of the test, and so it does not fail. */
static void make_data(struct life *life)
{
	long kept = lp_scarce_pause();
	life->data = lp_buf_new(life->bufs, LP_BUF_LARGE);
	assert_non_null(life->data);
	for (uint32_t i = 0; i < DATA_BYTES; i++)
		life->data->data[i] = (uint8_t)(i * 31 + i / 4096);
	for (uint32_t i = 0; i < DATA_BLOCKS; i++)
		life->crcs[i] =
			lp_crc32c(0, life->data->data + (size_t)i * LP_BLOCK_BYTES, LP_BLOCK_BYTES);
	lp_scarce_again(kept);
}

static int begin(struct life *life, struct lp_bdev *bdev)
{
	*life = (struct life){.bdev = bdev};
	int err = set_up(life);
	if (err == 0)
		make_data(life);
	if (err == 0)
		err = open_stores(life);
	return err == 0 ? serve(life) : err;
}

static void stopped(struct lp_ns *ns, void *arg)
{
	struct life *life = arg;
	(void)ns;
	life->stopped_cnt++;
}

/* As the daemon does: what did not serve is abandoned. */
static int end(struct life *life)
{
	int result = 0;
	for (uint32_t i = 0; i < SHARDS && life->serves; i++)
		lp_ns_stop(life->ns[i], stopped, life);
	for (uint32_t i = 0; life->serves && life->stopped_cnt < SHARDS; i++) {
		turn_once_more(life, i);
	}
	for (uint32_t i = 0; i < SHARDS; i++)
		lp_ns_close(life->ns[i]);
	for (uint32_t i = 0; i < SHARDS; i++) {
		int err = lp_store_close(life->store[i], !life->serves);
		life->store[i] = NULL;
		result = result == 0 ? err : result;
	}
	if (life->has_devices)
		lp_devices_close(&life->devices);
	if (life->data != NULL)
		lp_buf_put(life->data);
	lp_bufs_free(life->bufs);
	lp_workers_free(life->workers);
	lp_reactor_free(life->reactor);
	return result;
}

/* --- What is done in it ------------------------------------------------------------------------
 */

enum what { PUT, COPY, MOVE, DELETE, READ, LOOK, WHATS };

struct deed {
	enum what what;
	const char *path;
	const char *to_path;
	uint32_t bytes;
};

/* Inline, deferred and direct data; names on both shards; what is replaced, shared and removed. */
static const struct deed deeds[] = {
	{PUT, "b/a", NULL, 100},       {PUT, "b/b", NULL, 4096},
	{PUT, "b/d/c", NULL, 40960},   {PUT, "b/d/d", NULL, DATA_BYTES},
	{PUT, "b/a", NULL, 8192},      {COPY, "b/d/d", "b/e/copy", 0},
	{MOVE, "b/b", "b/f/moved", 0}, {READ, "b/d/c", NULL, 40960},
	{PUT, "b/d/d", NULL, 4096},    {LOOK, NULL, NULL, 0},
	{DELETE, "b/d/c", NULL, 0},    {PUT, "c/x", NULL, 12288},
	{MOVE, "c/x", "b/x", 0},       {DELETE, "b/e/copy", NULL, 0},
	{PUT, "c/y", NULL, 65536},     {COPY, "c/y", "c/z", 0},
	{READ, "c/y", NULL, 65536},
};

#define PATHS 10u

/* What is known of a path. */
struct known {
	const char *path;
	uint32_t bytes; /* 0: nothing is there */
	bool is_sure;
};

struct book {
	struct known known[PATHS];
	uint32_t cnt;
};

static struct known *known_of(struct book *book, const char *path)
{
	for (uint32_t i = 0; i < book->cnt; i++) {
		if (strcmp(book->known[i].path, path) == 0)
			return &book->known[i];
	}
	assert_true(book->cnt < PATHS);
	book->known[book->cnt] = (struct known){.path = path, .is_sure = true};
	return &book->known[book->cnt++];
}

static void note(struct book *book, const struct deed *deed, bool is_done)
{
	struct known *from = known_of(book, deed->path);
	struct known *to = deed->to_path != NULL ? known_of(book, deed->to_path) : from;
	bool is_sure = is_done && (deed->to_path == NULL || from->is_sure);
	uint32_t bytes = from->bytes;
	if (deed->what == MOVE || deed->what == DELETE) {
		from->is_sure = is_done;
		from->bytes = 0;
	}
	if (deed->what == DELETE)
		return;
	to->is_sure = is_sure;
	to->bytes = deed->what == PUT ? deed->bytes : bytes;
}

struct asked {
	struct lp_ns_op op;
	bool is_done;
};

static void answered(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct asked, op)->is_done = true;
}

static int ask(struct life *life, struct asked *asked)
{
	asked->is_done = false;
	asked->op.complete = answered;
	lp_ns_submit(life->ns[0], &asked->op);
	for (uint32_t i = 0; !asked->is_done; i++) {
		turn_once_more(life, i);
	}
	return asked->op.result;
}

static struct lp_bytes bytes_of(const char *text)
{
	return (struct lp_bytes){text, (uint32_t)strlen(text)};
}

static uint32_t crcs_of(struct life *life, uint32_t bytes, uint32_t *crcs)
{
	uint32_t cnt = 0;
	for (uint32_t at = 0; at < bytes; at += LP_BLOCK_BYTES) {
		uint32_t part = LP_MIN(bytes - at, (uint32_t)LP_BLOCK_BYTES);
		crcs[cnt++] = lp_crc32c(0, life->data->data + at, part);
	}
	return cnt;
}

static int put(struct life *life, const struct deed *deed)
{
	struct asked asked = {.op.opcode = LP_NS_PUT};
	uint32_t crcs[DATA_BLOCKS];
	life->seg = (struct lp_seg){.buf = life->data, .len = deed->bytes};
	asked.op.put.path = bytes_of(deed->path);
	asked.op.put.mode = 0644;
	asked.op.put.length = deed->bytes;
	asked.op.put.payload = (struct lp_payload){.segs = &life->seg,
						   .crcs = crcs,
						   .seg_cnt = 1,
						   .crc_cnt = crcs_of(life, deed->bytes, crcs)};
	return ask(life, &asked);
}

/* 0: all of it is as it was written; else an error, but no damage. */
static int read_back(struct life *life, const char *path, uint32_t bytes)
{
	struct asked walk = {.op = {.opcode = LP_NS_WALK, .walk.path = bytes_of(path)}};
	int err = ask(life, &walk);
	if (err < 0)
		return err;
	struct lp_ino ino = walk.op.walk.found.ino;
	assert_int_equal(walk.op.walk.found.attrs.size_bytes, bytes);
	struct asked asked = {.op.opcode = LP_NS_STORE};
	asked.op.store.ino = ino;
	asked.op.store.op = (struct lp_store_op){.opcode = LP_STORE_READ,
						 .read = {.ino = ino, .length = bytes}};
	err = ask(life, &asked);
	if (err < 0)
		return err;
	const struct lp_store_op *op = &asked.op.store.op;
	assert_int_equal(op->read.bytes, bytes);
	uint32_t at = 0;
	for (uint32_t i = 0; i < op->read.seg_cnt && at < bytes; i++) {
		const struct lp_seg *seg = &op->read.segs[i];
		uint32_t part = LP_MIN(seg->len, bytes - at);
		assert_memory_equal(seg->buf->data + seg->offset, life->data->data + at, part);
		at += part;
	}
	lp_ns_end(life->ns[0], &asked.op);
	return 0;
}

struct look {
	struct lp_pause pause;
	bool is_over;
	int result;
};

static void rested(struct lp_pause *pause, int result)
{
	struct look *look = LP_CONTAINER_OF(pause, struct look, pause);
	look->is_over = true;
	look->result = result;
}

static void found(struct lp_fsck_events *events, const struct lp_fsck_finding *finding)
{
	(void)events;
	fail_msg("allocation %ld: fsck: %s: %s: %s", failing, lp_fsck_kind_name(finding->kind),
		 finding->object, finding->text);
}

/* Of one shard after the other: nothing else is under way. */
static int look(struct life *life)
{
	struct lp_fsck_events events = {.found = found};
	struct lp_view *views[SHARDS] = {NULL};
	struct lp_fsck_report report;
	const struct lp_fsck_look options = {
		.views = views, .view_cnt = SHARDS, .events = &events, .refs_groups_max = 64};
	int err = 0;
	for (uint32_t i = 0; i < SHARDS && err == 0; i++) {
		struct look one = {.pause.rested = rested};
		err = lp_store_pause(life->store[i], &one.pause);
		for (uint32_t n = 0; err == 0 && !one.is_over; n++) {
			turn_once_more(life, n);
		}
		if (err == 0)
			err = one.result;
		if (err < 0)
			break;
		err = lp_store_view_take(life->store[i], &views[i]);
		lp_store_resume(life->store[i], &one.pause);
	}
	if (err == 0)
		err = lp_fsck_look(&options, &report);
	for (uint32_t i = 0; i < SHARDS; i++) {
		if (views[i] != NULL)
			lp_store_view_end(life->store[i], views[i]);
	}
	return err;
}

static int do_deed(struct life *life, const struct deed *deed)
{
	struct asked asked = {.op.opcode = LP_NS_DELETE};
	switch (deed->what) {
	case PUT:
		return put(life, deed);
	case READ:
		return read_back(life, deed->path, deed->bytes);
	case LOOK:
		return look(life);
	case DELETE:
		asked.op.delete.path = bytes_of(deed->path);
		return ask(life, &asked);
	default:
		asked.op.opcode = deed->what == COPY ? LP_NS_COPY : LP_NS_MOVE;
		asked.op.copy.path = bytes_of(deed->path);
		asked.op.copy.to_path = bytes_of(deed->to_path);
		return ask(life, &asked);
	}
}

static void do_all(struct life *life, struct book *book)
{
	for (size_t i = 0; i < LP_ARRAY_SIZE(deeds); i++) {
		const struct deed *deed = &deeds[i];
		int result = do_deed(life, deed);
		/* What a former one did not do is not there; and a store that could not go on is
		 * read-only, and no more. */
		assert_true(result == 0 || result == -ENOMEM || result == -ENOENT ||
			    result == -EIO || result == -EROFS || result == -EAGAIN);
		if (deed->what != READ && deed->what != LOOK)
			note(book, deed, result == 0);
	}
}

/* --- Afterwards --------------------------------------------------------------------------------
 */

static int make_store(struct lp_bdev *bdev)
{
	struct lp_mkfs_options mkfs = {
		.bdev = {bdev}, .shard_cnt = SHARDS, .log_bytes = UINT64_C(1) << 20};
	struct lp_disk_label label;
	struct lp_label_why why;
	for (size_t i = 0; i < sizeof(mkfs.seed); i++)
		mkfs.seed[i] = (uint8_t)(i * 7 + 1);
	return lp_store_mkfs(&mkfs, &label, &why);
}

static void check_store(struct lp_bdev *bdev)
{
	struct life life = {.bdev = bdev};
	struct lp_fsck_events events = {.found = found};
	struct lp_fsck_report report;
	struct lp_label_why why;
	lp_test_ok(set_up(&life));
	const struct lp_fsck_options options = {.reactor = life.reactor,
						.workers = life.workers,
						.bufs = life.bufs,
						.bdev = {bdev},
						.events = &events,
						.sim_clock = &life.clock.clock,
						.index_buffer_bytes = UINT64_C(1) << 16,
						.files_reserve_bytes = UINT64_C(1) << 20,
						.deep = true};
	lp_test_ok(lp_fsck_run(&options, &report, &why));
	lp_test_ok(end(&life));
}

/* All that is sure, in a new life; what is left half done it ends. */
static void check_known(struct lp_bdev *bdev, const struct book *book)
{
	struct life life;
	lp_test_ok(begin(&life, bdev));
	for (uint32_t i = 0; i < book->cnt; i++) {
		const struct known *known = &book->known[i];
		if (known->is_sure && known->bytes > 0)
			lp_test_ok(read_back(&life, known->path, known->bytes));
		else if (known->is_sure)
			lp_test_err(-ENOENT, read_back(&life, known->path, 0));
	}
	lp_test_ok(end(&life));
}

/* --- Tests -------------------------------------------------------------------------------------
 */

/* False: there are fewer allocations than this. */
static bool fail_at(long idx)
{
	struct lp_bdev *bdev = NULL;
	struct life life;
	struct book book = {.cnt = 0};
	lp_test_ok(lp_bdev_open_mem(DEVICE_BYTES, 4096, &bdev));
	atomic_store(&lp_scarce_made, 0);
	lp_scarce_again(idx);
	failing = idx;
	int err = make_store(bdev);
	bool is_made = err == 0;
	if (is_made) {
		err = begin(&life, bdev);
		if (err == 0)
			do_all(&life, &book);
		int end_err = end(&life);
		err = err == 0 ? end_err : err;
	}
	bool was_hit = lp_scarce_pause() < 0;
	if (err != 0 && err != -ENOMEM && err != -EIO && err != -EROFS)
		fail_msg("allocation %ld: %s", idx, lp_strerror(err));
	assert_true(was_hit || err == 0);
	if (!is_made)
		lp_test_ok(make_store(bdev)); /* over what there is of the first */
	check_known(bdev, &book);
	check_store(bdev);
	lp_bdev_close(bdev);
	return was_hit;
}

static void test_each_fails_once(void **state)
{
	/* No test changes its environment. NOLINTBEGIN(concurrency-mt-unsafe) */
	bool is_all = getenv("LP_MEMORY_ALL") != NULL;
	const char *from = getenv("LP_MEMORY_FROM");
	/* NOLINTEND(concurrency-mt-unsafe) */
	long idx = from != NULL ? strtol(from, NULL, 10) : 0;
	(void)state;
	while (fail_at(idx)) {
		if (is_all)
			idx++;
		else
			idx += (idx < OPEN_AT ? 3L : 2L) * FEWER;
	}
	print_message("%ld allocations in a life\n", atomic_load(&lp_scarce_made));
	assert_true(idx > OPEN_AT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_fails_once)};
	return lp_test_main(tests, "memory");
}
