/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the file store does what the face says, and what it acknowledged is there when it is opened
 * again: after a close, after a process that ended in the middle, and with a journal whose end is
 * torn (P1 to P4, rules L1, L3, L7, N5, S3, W2). What is damaged is said, and never returned.
 * Method: random operations on it, in a directory, and on the store in memory, all answers
 * compared; openings in between. What a process leaves that ends without a close is what an
 * abandoned store leaves. Files and journal are cut and changed by hand. */
#include "store/model/crash_test.h"
#include "store/model/model_test.h"

#include <fcntl.h>
#include <ftw.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "base/sanitize.h"
#include "store/filestore/filestore_impl.h"

#if LP_SAN_THREAD
/* RocksDB frees tables and files on threads of its own, ordered by means that ThreadSanitizer does
 * not see, for Debian's library is not instrumented. */
__attribute__((visibility("default"))) /* libtsan looks for it */
const char *
__tsan_default_suppressions(void);            /* NOLINT(bugprone-reserved-identifier) */
const char *__tsan_default_suppressions(void) /* NOLINT(bugprone-reserved-identifier) */
{
	return "race:librocksdb.so\n";
}
#endif

#define SHARD         0
#define BUFS_BYTES    (UINT64_C(64) << 20)
#define JOURNAL_BYTES (UINT64_C(34) << 20)
#define ROOM_BYTES    (UINT64_C(1) << 30)
#define SEEDS         (LP_ASSERT_SLOW_ON ? 2u : 6u)

struct rig {
	struct lp_file_dir dir;
	struct lp_workers *workers;
	struct lpi_hand hand;
	uint32_t hold_ms;
	char path[64];
};

/* --- The rig ---------------------------------------------------------------------------------- */

static int rig_try_open(struct rig *rig)
{
	const struct lp_store_options options = {.reactor = rig->hand.reactor,
						 .workers = rig->workers,
						 .bufs = rig->hand.bufs,
						 .shard_idx = SHARD,
						 .hold_ns = rig->hold_ms * LP_NS_PER_MS,
						 .index_buffer_bytes = 1 << 20};
	const struct lp_store_file_options file = {.dir = &rig->dir,
						   .journal_bytes = JOURNAL_BYTES};
	return lp_store_open_file(&options, &file, &rig->hand.store);
}

static void rig_open_dir(struct rig *rig)
{
	const struct lp_file_dir_options options = {.path = rig->path, .default_shard_cnt = 1};
	char why[LP_FILE_DIR_WHY_MAX];
	lp_test_ok(lp_file_dir_open(&options, &rig->dir, why));
}

/* The model also turns when nothing is under way: it must not sleep until something happens. */
static void rig_turn(const struct lpi_hand *hand)
{
	const struct timespec pause = {.tv_nsec = 20000};
	if (lp_reactor_turn(hand->reactor, false) == 0)
		(void)nanosleep(&pause, NULL); /* a shorter one is as good */
}

/* On a disk the thousands of syncs of these tests wait for it, in memory for nothing. What is asked
 * of the store, and what its files hold, is the same; a loss of power is not played here. */
static bool has_memory(void)
{
	struct statvfs room;
	struct statfs kind;
	return statfs("/dev/shm", &kind) == 0 && kind.f_type == TMPFS_MAGIC &&
	       statvfs("/dev/shm", &room) == 0 && room.f_bavail * room.f_frsize > ROOM_BYTES;
}

static void rig_init(struct rig *rig)
{
	const struct lp_reactor_options options = {.name = "file", .ring = true, .files_max = 8};
	*rig = (struct rig){.path = "/dev/shm/lp-file_store_XXXXXX"};
	if (!has_memory() || mkdtemp(rig->path) == NULL) {
		(void)snprintf(rig->path, sizeof(rig->path), "file_store_XXXXXX");
		assert_non_null(mkdtemp(rig->path));
	}
	rig->hand.turn = rig_turn;
	lp_test_ok(lp_reactor_new(&options, &rig->hand.reactor));
	lp_test_ok(lp_reactor_start(rig->hand.reactor));
	lp_test_ok(lp_bufs_new(BUFS_BYTES, &rig->hand.bufs));
	lp_test_ok(lp_workers_new(3, &rig->workers));
	rig_open_dir(rig);
	lp_test_ok(rig_try_open(rig));
}

static void rig_close(struct rig *rig, bool abandon)
{
	lp_test_ok(lp_store_close(rig->hand.store, abandon));
	rig->hand.store = NULL;
}

static void rig_reopen(struct rig *rig, bool abandon)
{
	rig_close(rig, abandon);
	lp_test_ok(rig_try_open(rig));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void rig_fini(struct rig *rig)
{
	if (rig->hand.store != NULL)
		rig_close(rig, false);
	lp_file_dir_close(&rig->dir);
	lp_workers_free(rig->workers);
	lp_bufs_free(rig->hand.bufs);
	lp_reactor_free(rig->hand.reactor);
	/* Nobody else is in it. NOLINTNEXTLINE(concurrency-mt-unsafe) */
	assert_int_equal(nftw(rig->path, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static struct lp_ino ino_of(uint64_t counter)
{
	return lp_ino_make(SHARD, counter);
}

static int create(struct rig *rig, struct lp_ino ino)
{
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0644, .nlink = 1};
	return lpi_hand_change(&rig->hand, (struct lp_change){.type = LP_CHANGE_CREATE,
							      .ino = ino,
							      .inode = {.attrs = &attrs}});
}

static void fill(uint8_t *bytes, uint64_t length, uint64_t seed)
{
	struct lp_prng prng;
	lp_prng_init(&prng, seed);
	for (uint64_t i = 0; i < length; i++)
		bytes[i] = (uint8_t)lp_prng_below(&prng, 256);
}

static void write_seed(struct rig *rig, struct lp_ino ino, uint64_t offset, uint64_t length,
		       uint64_t seed)
{
	uint8_t *bytes = malloc(length);
	assert_non_null(bytes);
	fill(bytes, length, seed);
	lp_test_ok(lpi_hand_write(&rig->hand, ino, offset, bytes, length));
	free(bytes);
}

/* At most LP_STORE_READ_MAX. */
static void check_seed(struct rig *rig, struct lp_ino ino, uint64_t offset, uint64_t length,
		       uint64_t seed)
{
	uint8_t *want = malloc(length);
	uint8_t *have = malloc(length);
	assert_non_null(want);
	assert_non_null(have);
	fill(want, length, seed);
	assert_int_equal(lpi_hand_read(&rig->hand, ino, offset, length, have), length);
	assert_memory_equal(want, have, length);
	free(want);
	free(have);
}

static void path_of(const struct rig *rig, const char *name, char *ret_path, size_t len)
{
	assert_true((size_t)snprintf(ret_path, len, "%s/shard-00/%s", rig->path, name) < len);
}

static void object_path(const struct rig *rig, struct lp_ino ino, uint32_t side, char *ret_path,
			size_t len)
{
	char name[64];
	(void)snprintf(name, sizeof(name), "objects/%02x/%016llx.0.%u", (unsigned)(ino.nr % 256),
		       (unsigned long long)ino.nr, side);
	path_of(rig, name, ret_path, len);
}

static bool has_object(const struct rig *rig, struct lp_ino ino)
{
	char path[160];
	struct stat st;
	for (uint32_t side = 0; side < LPI_SIDE_CNT; side++) {
		object_path(rig, ino, side, path, sizeof(path));
		if (stat(path, &st) == 0)
			return true;
	}
	return false;
}

/* A byte of a file becomes another one. */
static void spoil(const char *path, uint64_t offset)
{
	uint8_t byte = 0;
	int fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(pread(fd, &byte, 1, (off_t)offset), 1);
	byte ^= 0x5a;
	assert_int_equal(pwrite(fd, &byte, 1, (off_t)offset), 1);
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(close(fd), 0);
}

/* --- The model -------------------------------------------------------------------------------- */

static struct lpi_model *new_model(struct rig *rig, uint64_t seed, uint32_t depth)
{
	const struct lpi_model_options options = {.gen = {.seed = seed,
							  .shard_idx = SHARD,
							  .data_bytes_max = UINT64_C(8) << 20,
							  .ordered = seed % 2 == 1},
						  .depth = depth};
	struct lpi_model *model = lpi_model_new(&options);
	lpi_model_attach(model, &rig->hand);
	return model;
}

static void run(struct lpi_model *model, unsigned steps)
{
	for (unsigned i = 0; i < steps && lpi_model_step(model); i++)
		continue;
	lpi_model_ok(model);
}

static void test_same_as_memory(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct rig rig;
		rig_init(&rig);
		struct lpi_model *model = new_model(&rig, seed, seed % 2 == 0 ? 16 : 1);
		for (unsigned i = 0; i < 3; i++) {
			lp_store_set_write_path(rig.hand.store,
						i == 1 ? LP_PATH_DIRECT : LP_PATH_AUTO);
			run(model, 150);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
			rig_reopen(&rig, false);
			lpi_model_attach(model, &rig.hand);
			(void)lpi_model_check_all(model);
			lpi_model_ok(model);
		}
		lpi_model_free(model);
		rig_fini(&rig);
	}
}

/* A process that ends: what was acknowledged as durable is there, what was only ordered may be. */
static void test_ends_in_the_middle(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct rig rig;
		rig_init(&rig);
		rig.hold_ms = seed % 3 == 0 ? 1000 : 0;
		rig_reopen(&rig, false);
		struct lpi_model *model = new_model(&rig, 100 + seed, seed % 2 == 0 ? 8 : 1);
		for (unsigned i = 0; i < 4; i++) {
			lp_store_set_write_path(rig.hand.store,
						i % 2 == 1 ? LP_PATH_DIRECT : LP_PATH_AUTO);
			run(model, 100);
			(void)lpi_model_drain(model);
			lpi_model_ok(model);
			rig_reopen(&rig, true);
			(void)lpi_model_crash_check(model, &rig.hand, lpi_model_now(model), true,
						    NULL);
			lpi_model_ok(model);
		}
		lpi_model_free(model);
		rig_fini(&rig);
	}
}

/* --- The journal ------------------------------------------------------------------------------ */

enum { OBJECTS = 12 };

static uint64_t used_blocks(const struct rig *rig)
{
	struct lp_store_usage usage;
	lp_store_read_usage(rig->hand.store, &usage);
	return usage.log_needed_blocks;
}

/* Objects, each with its own frames; *ret_ends: blocks of the journal that are used after each. */
static void make_objects(struct rig *rig, uint64_t *ret_ends)
{
	for (uint64_t i = 0; i < OBJECTS; i++) {
		struct lp_ino ino = ino_of(100 + i);
		lp_test_ok(create(rig, ino));
		write_seed(rig, ino, 0, 6000, i);
		ret_ends[i] = used_blocks(rig);
	}
}

/* Where in the journal's file the frames begin, which is where the first of a new one is. */
static uint64_t first_frame(const struct rig *rig, const char *path)
{
	uint8_t block[LP_BLOCK_BYTES];
	int fd = open(path, O_RDONLY);
	uint64_t at = LP_LOG_SLOT_CNT;
	(void)rig;
	assert_true(fd >= 0);
	while (pread(fd, block, sizeof(block), (off_t)(at << LP_BLOCK_SHIFT)) == sizeof(block) &&
	       lp_get_le32(block) != LP_LOG_MAGIC_FRAME)
		at++;
	assert_int_equal(close(fd), 0);
	return at;
}

static void zero_from(const char *path, uint64_t block, uint64_t cnt)
{
	static const uint8_t zeros[LP_BLOCK_BYTES];
	int fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	for (uint64_t i = 0; i < cnt; i++)
		assert_int_equal(
			pwrite(fd, zeros, sizeof(zeros), (off_t)((block + i) << LP_BLOCK_SHIFT)),
			sizeof(zeros));
	assert_int_equal(fsync(fd), 0);
	assert_int_equal(close(fd), 0);
}

/* Rules L1 and L2: a tail that is torn, anywhere, is an end: all before it is there, nothing of
 * what comes behind it. The store has not flushed its index, so the journal is all there is. */
static void test_torn_tail(void **state)
{
	(void)state;
	for (uint64_t torn = 1; torn < OBJECTS; torn += 3) {
		uint64_t ends[OBJECTS];
		char path[160];
		struct rig rig;
		rig_init(&rig);
		make_objects(&rig, ends);
		rig_close(&rig, true);
		path_of(&rig, "journal", path, sizeof(path));
		uint64_t first = first_frame(&rig, path);
		uint64_t cut = first + ends[torn - 1];
		zero_from(path, cut, ends[OBJECTS - 1] - ends[torn - 1]);
		lp_test_ok(rig_try_open(&rig));
		for (uint64_t i = 0; i < OBJECTS; i++) {
			struct lp_attrs attrs;
			if (i < torn)
				check_seed(&rig, ino_of(100 + i), 0, 6000, i);
			else
				lp_test_err(-ENOENT,
					    lpi_hand_stat(&rig.hand, ino_of(100 + i), &attrs));
		}
		/* It can be written again, at the same place. */
		lp_test_ok(create(&rig, ino_of(300)));
		write_seed(&rig, ino_of(300), 0, 9000, 300);
		rig_reopen(&rig, true);
		check_seed(&rig, ino_of(300), 0, 9000, 300);
		rig_fini(&rig);
	}
}

/* Rule L1: a frame in the middle that was acknowledged is no end, and nothing is dropped. */
static void test_rot_in_the_middle(void **state)
{
	(void)state;
	uint64_t ends[OBJECTS];
	char path[160];
	struct rig rig;
	rig_init(&rig);
	make_objects(&rig, ends);
	rig_close(&rig, true);
	path_of(&rig, "journal", path, sizeof(path));
	uint64_t at = (first_frame(&rig, path) + ends[2]) * LP_BLOCK_BYTES + 50;
	spoil(path, at);
	int err = rig_try_open(&rig);
	assert_true(err == -EBADMSG || err == -EUCLEAN);
	spoil(path, at);
	lp_test_ok(rig_try_open(&rig));
	for (uint64_t i = 0; i < OBJECTS; i++)
		check_seed(&rig, ino_of(100 + i), 0, 6000, i);
	rig_fini(&rig);
}

/* Rule S3: what was written directly is newer than what an older frame has for the same place. The
 * block goes through the journal to one side, directly to the other, and to the first again. */
static void test_replay_keeps_what_is_newer(void **state)
{
	(void)state;
	struct lp_ino ino = ino_of(50);
	struct rig rig;
	rig_init(&rig);
	lp_test_ok(create(&rig, ino));
	lp_store_set_write_path(rig.hand.store, LP_PATH_DEFERRED);
	write_seed(&rig, ino, 0, 4096, 1);
	lp_store_set_write_path(rig.hand.store, LP_PATH_DIRECT);
	write_seed(&rig, ino, 0, 4096, 2);
	write_seed(&rig, ino, 0, 4096, 3);
	rig_reopen(&rig, true);
	check_seed(&rig, ino, 0, 4096, 3);
	rig_fini(&rig);
}

/* The journal is used over and over; what it forgets stays. */
static void test_journal_goes_round(void **state)
{
	(void)state;
	enum { WRITES = 400, BYTES = 300000 };
	struct rig rig;
	rig_init(&rig);
	lp_store_set_write_path(rig.hand.store, LP_PATH_DEFERRED);
	lp_test_ok(create(&rig, ino_of(40)));
	for (uint64_t i = 0; i < WRITES; i++)
		write_seed(&rig, ino_of(40), (i % 3) * BYTES, BYTES, i);
	for (uint64_t i = WRITES - 3; i < WRITES; i++)
		check_seed(&rig, ino_of(40), (i % 3) * BYTES, BYTES, i);
	struct lp_store_stats stats;
	lp_store_read_stats(rig.hand.store, &stats);
	assert_true(stats.flushes > 1);
	assert_true(stats.log_bytes > 2 * JOURNAL_BYTES);
	rig_reopen(&rig, true);
	for (uint64_t i = WRITES - 3; i < WRITES; i++)
		check_seed(&rig, ino_of(40), (i % 3) * BYTES, BYTES, i);
	rig_fini(&rig);
}

/* --- Files ------------------------------------------------------------------------------------ */

/* P4: a damaged block is an error, also where only a part of it is asked for or overwritten; its
 * neighbours are as before. */
static void test_damaged_file(void **state)
{
	(void)state;
	struct lp_ino ino = ino_of(60);
	uint8_t bytes[4 * LP_BLOCK_BYTES];
	char path[160];
	struct rig rig;
	rig_init(&rig);
	lp_test_ok(create(&rig, ino));
	write_seed(&rig, ino, 0, sizeof(bytes), 7);
	rig_close(&rig, false);
	object_path(&rig, ino, 0, path, sizeof(path));
	spoil(path, LP_BLOCK_BYTES + 100);
	lp_test_ok(rig_try_open(&rig));
	assert_int_equal(lpi_hand_read(&rig.hand, ino, 0, sizeof(bytes), bytes), -EBADMSG);
	assert_int_equal(lpi_hand_read(&rig.hand, ino, LP_BLOCK_BYTES + 2000, 10, bytes), -EBADMSG);
	lp_test_err(-EBADMSG, lpi_hand_write(&rig.hand, ino, LP_BLOCK_BYTES + 5, bytes, 10));
	assert_int_equal(lpi_hand_read(&rig.hand, ino, 0, LP_BLOCK_BYTES, bytes), LP_BLOCK_BYTES);
	/* A lost file is damage too, not zeros. */
	assert_int_equal(unlink(path), 0);
	rig_reopen(&rig, false);
	assert_int_equal(lpi_hand_read(&rig.hand, ino, 0, LP_BLOCK_BYTES, bytes), -EBADMSG);
	/* What is written whole is good again. */
	write_seed(&rig, ino, 0, LP_BLOCK_BYTES, 8);
	check_seed(&rig, ino, 0, LP_BLOCK_BYTES, 8);
	rig_fini(&rig);
}

static void remove_ino(struct rig *rig, struct lp_ino ino)
{
	lp_test_ok(lpi_hand_change(&rig->hand,
				   (struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino}));
}

/* Files and records go, also when the process ended in between; and a number may be used again. */
static void test_removed_is_freed(void **state)
{
	(void)state;
	struct lp_ino ino = ino_of(70);
	struct rig rig;
	rig_init(&rig);
	lp_test_ok(create(&rig, ino));
	write_seed(&rig, ino, 0, 200000, 1);
	write_seed(&rig, ino, 0, 5000, 2);
	assert_true(has_object(&rig, ino));
	remove_ino(&rig, ino);
	rig_reopen(&rig, true);
	while (lp_store_is_freeing(rig.hand.store, NULL))
		lpi_hand_turn(&rig.hand);
	assert_false(has_object(&rig, ino));
	lp_test_ok(create(&rig, ino));
	write_seed(&rig, ino, 0, 100000, 3);
	remove_ino(&rig, ino);
	lp_test_ok(create(&rig, ino));
	struct lp_attrs attrs;
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	assert_int_equal(attrs.size_bytes, 0);
	assert_int_equal(attrs.blocks, 0);
	write_seed(&rig, ino, 0, 100000, 4);
	rig_reopen(&rig, true);
	check_seed(&rig, ino, 0, 100000, 4);
	rig_fini(&rig);
}

/* A number of records, of long names. */
static void add_records(struct rig *rig, struct lp_ino ino, uint32_t cnt)
{
	enum { TOGETHER = 8 };
	static uint8_t names[TOGETHER][LP_KEY_OMAP_MAX];
	struct lp_change changes[TOGETHER];
	for (uint32_t i = 0; i < cnt; i++) {
		uint32_t at = i % TOGETHER;
		memcpy(names[at], &i, sizeof(i));
		changes[at] = (struct lp_change){
			.type = LP_CHANGE_OMAP_SET,
			.ino = ino,
			.named = {.name = {names[at], sizeof(names[at])}, .value = {names[at], 1}}};
		if (at + 1 == TOGETHER || i + 1 == cnt)
			lp_test_ok(lpi_hand_txn(&rig->hand, changes, at + 1));
	}
}

/* Rule S6: of all that was removed together only as many records go at a time as a frame holds,
 * also where that is what a start goes on with. */
static void test_many_records_are_freed(void **state)
{
	(void)state;
	enum { INODES = 4, RECORDS = 1000 };
	struct lp_change removals[INODES];
	struct rig rig;
	for (int is_cut = 0; is_cut < 2; is_cut++) {
		rig_init(&rig);
		for (uint32_t i = 0; i < INODES; i++) {
			lp_test_ok(create(&rig, ino_of(75 + i)));
			add_records(&rig, ino_of(75 + i), RECORDS);
			removals[i] =
				(struct lp_change){.type = LP_CHANGE_REMOVE, .ino = ino_of(75 + i)};
		}
		lp_test_ok(lpi_hand_txn(&rig.hand, removals, INODES));
		if (is_cut)
			rig_reopen(&rig, true);
		while (lp_store_is_freeing(rig.hand.store, NULL))
			lpi_hand_turn(&rig.hand);
		assert_int_equal(lp_store_error(rig.hand.store), 0);
		lp_test_ok(create(&rig, ino_of(75)));
		rig_fini(&rig);
	}
}

/* With more leaves than are cut at once; the cut is acknowledged, and not at its end. */
static void cut_large_file(struct rig *rig, struct lp_ino ino)
{
	enum { LEAVES = 5000 };
	uint8_t byte = 1;
	lp_test_ok(create(rig, ino));
	for (uint64_t i = 0; i < LEAVES; i++)
		lp_test_ok(lpi_hand_change(
			&rig->hand,
			(struct lp_change){.type = LP_CHANGE_PREALLOC,
					   .ino = ino,
					   .data = {.offset = i * LPI_LEAF_BLOCKS * LP_BLOCK_BYTES,
						    .length = 1}}));
	lp_test_ok(lpi_hand_write(&rig->hand, ino, 5, &byte, 1));
	const struct lp_change cut = {
		.type = LP_CHANGE_TRUNCATE, .ino = ino, .data = {.offset = 3}};
	lp_test_ok(lpi_hand_change(&rig->hand, cut));
}

/* Rule S6. */
static void test_large_truncation(void **state)
{
	(void)state;
	struct lp_ino ino = ino_of(80);
	struct lp_attrs attrs;
	struct rig rig;
	rig_init(&rig);
	cut_large_file(&rig, ino);
	rig_reopen(&rig, true);
	/* Asked after what the start went on with. */
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	assert_int_equal(attrs.size_bytes, 3);
	assert_int_equal(attrs.blocks, 1);
	rig_fini(&rig);
}

/* --- Failures --------------------------------------------------------------------------------- */

/* A second one is refused, another number of shards, and what is no store. */
static void test_directory(void **state)
{
	(void)state;
	struct rig rig;
	struct lp_file_dir other;
	char why[LP_FILE_DIR_WHY_MAX];
	rig_init(&rig);
	const struct lp_file_dir_options same = {.path = rig.path, .default_shard_cnt = 4};
	const struct lp_file_dir_options more = {
		.path = rig.path, .shard_cnt = 2, .default_shard_cnt = 4};
	const struct lp_file_dir_options alien = {.path = "alien", .default_shard_cnt = 1};
	lp_test_err(-EBUSY, lp_file_dir_open(&same, &other, why));
	rig_close(&rig, false);
	lp_file_dir_close(&rig.dir);
	lp_test_err(-EINVAL, lp_file_dir_open(&more, &other, why));
	assert_int_equal(mkdir("alien", 0700), 0);
	assert_int_equal(mkdir("alien/something", 0700), 0);
	lp_test_err(-ENOTEMPTY, lp_file_dir_open(&alien, &other, why));
	assert_int_equal(rmdir("alien/something"), 0);
	assert_int_equal(rmdir("alien"), 0);
	assert_non_null(strstr(why, "not empty"));
	char identity[96];
	(void)snprintf(identity, sizeof(identity), "%s/lapis-file-store", rig.path);
	for (uint64_t at = 0; at < 20; at += 7) {
		spoil(identity, at);
		int err = lp_file_dir_open(&same, &other, why);
		assert_true(err == -EUCLEAN || err == -ENOTSUP);
		spoil(identity, at);
	}
	rig_open_dir(&rig);
	assert_int_equal(rig.dir.shard_cnt, 1);
	lp_test_ok(rig_try_open(&rig));
	rig_fini(&rig);
}

/* Writes behind this many bytes of any file fail. */
static void limit_files(uint64_t bytes)
{
	struct rlimit limit;
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = bytes == 0 ? limit.rlim_max : bytes;
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static enum lp_store_state state_of(const struct rig *rig)
{
	struct lp_store_health health;
	lp_store_read_health(rig->hand.store, &health);
	assert_true((health.error == 0) == (health.reason[0] == '\0'));
	return health.state;
}

/* Rule L7: the journal cannot be written. Nothing is taken in any more, what is durable is read, a
 * sync says so; and whoever opens it again has all that was acknowledged. */
static void test_journal_fails(void **state)
{
	(void)state;
	enum { WRITES_MAX = 1000, BYTES = 20000 };
	struct lp_store_op sync = {.opcode = LP_STORE_SYNC};
	struct lp_ino ino = ino_of(90);
	uint8_t *bytes = calloc(1, BYTES);
	struct rig rig;
	uint64_t cnt = 0;
	int err = 0;
	assert_non_null(bytes);
	rig_init(&rig);
	lp_test_ok(create(&rig, ino));
	limit_files(UINT64_C(4) << 20);
	for (; err == 0 && cnt < WRITES_MAX; cnt++) {
		fill(bytes, BYTES, cnt);
		err = lpi_hand_write(&rig.hand, ino, (cnt % 4) * BYTES, bytes, BYTES);
	}
	assert_int_equal(err, -EIO);
	assert_true(cnt > 10);
	assert_int_equal(state_of(&rig), LP_STORE_READ_ONLY);
	lp_test_err(-EROFS, create(&rig, ino_of(91)));
	lp_test_err(-EIO, lpi_hand_do(&rig.hand, &sync));
	for (uint64_t i = cnt - 4; i < cnt - 1; i++)
		check_seed(&rig, ino, (i % 4) * BYTES, BYTES, i);
	limit_files(0);
	rig_reopen(&rig, true);
	assert_int_equal(state_of(&rig), LP_STORE_OK);
	for (uint64_t i = cnt - 4; i < cnt - 1; i++)
		check_seed(&rig, ino, (i % 4) * BYTES, BYTES, i);
	lp_test_ok(create(&rig, ino_of(91)));
	free(bytes);
	rig_fini(&rig);
}

/* One that is not waited for. */
struct flight {
	struct lp_store_op op;
	bool is_done;
};

static void landed(struct lp_store_op *op)
{
	LP_CONTAINER_OF(op, struct flight, op)->is_done = true;
}

static void take_off(struct rig *rig, struct flight *flight, struct lp_store_op op)
{
	*flight = (struct flight){.op = op};
	flight->op.complete = landed;
	lp_store_submit(rig->hand.store, &flight->op);
}

/* Rule L7, P7: a question is being answered while the frame fails that it would wait for. */
static void test_journal_fails_under_questions(void **state)
{
	(void)state;
	enum { ROUNDS = 8, WRITES_MAX = 1000, BYTES = 20000 };
	static uint8_t bytes[BYTES];
	for (uint64_t round = 0; round < ROUNDS; round++) {
		struct lp_ino ino = ino_of(90);
		struct rig rig;
		rig_init(&rig);
		const struct lpi_fstore_store *store = lpi_fstore_store_of(rig.hand.store);
		lp_test_ok(create(&rig, ino));
		limit_files(UINT64_C(4) << 20);
		for (uint64_t i = 0; i < WRITES_MAX && store->error == 0; i++) {
			struct lpi_pay pay;
			struct flight write;
			struct flight stat;
			assert_true(
				lpi_pay_make(&pay, rig.hand.bufs, bytes, 0, BYTES, LP_BUF_SMALL));
			const struct lp_change change = lpi_write_change(ino, 0, BYTES, &pay);
			take_off(&rig, &write, lpi_txn_op(&change, 1));
			while (!store->is_evaluating && !write.is_done)
				lpi_hand_turn(&rig.hand);
			take_off(&rig, &stat,
				 (struct lp_store_op){.opcode = LP_STORE_STAT,
						      .stat = {.ino = ino}});
			while (!write.is_done || !stat.is_done)
				lpi_hand_turn(&rig.hand);
			assert_true(stat.op.result == 0 || stat.op.result == -EIO);
			lpi_pay_drop(&pay);
		}
		assert_int_equal(state_of(&rig), LP_STORE_READ_ONLY);
		limit_files(0);
		rig_reopen(&rig, true);
		rig_fini(&rig);
	}
}

/* Rule L7: after a failure in the middle of a cut questions are answered, and it goes on when the
 * store is opened again. */
static void test_journal_fails_in_truncation(void **state)
{
	(void)state;
	struct lp_ino ino = ino_of(91);
	struct lp_attrs attrs;
	struct rig rig;
	rig_init(&rig);
	cut_large_file(&rig, ino);
	limit_files(UINT64_C(64) << 10); /* the journal is beyond that now, the object is not */
	while (state_of(&rig) == LP_STORE_OK)
		lpi_hand_turn(&rig.hand);
	assert_int_equal(state_of(&rig), LP_STORE_READ_ONLY);
	assert_true(lpi_fstore_store_of(rig.hand.store)->eval->trim_ino != 0);
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	assert_int_equal(attrs.size_bytes, 3);
	limit_files(0);
	rig_reopen(&rig, true);
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	assert_int_equal(attrs.blocks, 1);
	rig_fini(&rig);
}

/* P6: what others have taken, and give back, is waited for. */
static void test_files_run_short(void **state)
{
	(void)state;
	enum { TURNS = 4000 };
	struct lp_ino ino = ino_of(92);
	struct rlimit limit;
	struct rig rig;
	rig_init(&rig);
	lp_test_ok(create(&rig, ino));
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	const struct rlimit none = {.rlim_cur = 3, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	write_seed(&rig, ino, 0, 5000, 1);
	for (int i = 0; i < TURNS; i++)
		lpi_hand_turn(&rig.hand);
	assert_false(has_object(&rig, ino));
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	assert_int_equal(state_of(&rig), LP_STORE_OK);
	check_seed(&rig, ino, 0, 5000, 1);
	assert_true(has_object(&rig, ino));
	rig_fini(&rig);
}

/* What was acknowledged cannot be taken to its file: nothing is read that might be older. When the
 * cause is gone it is there. */
static void test_file_cannot_be_written(void **state)
{
	(void)state;
	uint64_t at = UINT64_C(100) << 20;
	struct lp_ino ino = ino_of(92);
	uint8_t byte;
	struct rig rig;
	rig_init(&rig);
	lp_test_ok(create(&rig, ino));
	write_seed(&rig, ino, 0, 5000, 1);
	limit_files(UINT64_C(60) << 20);
	write_seed(&rig, ino, at, 5000, 2);
	assert_int_equal(lpi_hand_read(&rig.hand, ino, 0, 1, &byte), -EIO);
	assert_int_equal(state_of(&rig), LP_STORE_DEAD);
	lp_test_err(-EROFS, create(&rig, ino_of(93)));
	limit_files(0);
	rig_reopen(&rig, true);
	check_seed(&rig, ino, 0, 5000, 1);
	check_seed(&rig, ino, at, 5000, 2);
	rig_fini(&rig);
}

/* A direct write that fails is that transaction's alone. */
static void test_direct_write_fails(void **state)
{
	(void)state;
	uint64_t at = UINT64_C(100) << 20;
	struct lp_ino ino = ino_of(94);
	uint8_t *bytes = calloc(1, 200000);
	struct lp_attrs attrs;
	struct rig rig;
	assert_non_null(bytes);
	rig_init(&rig);
	lp_test_ok(create(&rig, ino));
	write_seed(&rig, ino, 0, 100000, 1);
	limit_files(UINT64_C(60) << 20);
	assert_true(lpi_hand_write(&rig.hand, ino, at, bytes, 200000) < 0);
	limit_files(0);
	assert_int_equal(state_of(&rig), LP_STORE_OK);
	lp_test_ok(lpi_hand_stat(&rig.hand, ino, &attrs));
	assert_int_equal(attrs.size_bytes, 100000);
	write_seed(&rig, ino, at, 100000, 2);
	rig_reopen(&rig, true);
	check_seed(&rig, ino, 0, 100000, 1);
	check_seed(&rig, ino, at, 100000, 2);
	free(bytes);
	rig_fini(&rig);
}

/* --- A host that fails -------------------------------------------------------------------------
 */

static atomic_bool is_sync_held; /* it fails when it is let go */
static atomic_bool has_sync_failed;

/* Names that the linker gives (--wrap). NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_syncfs(int fd);
int __wrap_syncfs(int fd);

int __wrap_syncfs(int fd)
{
	const struct timespec pause = {.tv_nsec = 100000};
	if (!atomic_load(&is_sync_held))
		return __real_syncfs(fd);
	while (atomic_load(&is_sync_held))
		(void)nanosleep(&pause, NULL); /* a shorter one only asks once more */
	atomic_store(&has_sync_failed, true);
	errno = EIO;
	return -1;
}
/* NOLINTEND(bugprone-reserved-identifier) */

/* First nothing can be made durable any more, then what is durable cannot be taken to its file:
 * that nothing is read from now on is said, too. */
static void test_worse(void **state)
{
	(void)state;
	uint64_t at = UINT64_C(100) << 20;
	struct lp_ino ino = ino_of(96);
	const uint8_t bytes[LP_BLOCK_BYTES] = {1};
	struct flight write;
	struct lpi_pay pay;
	struct rig rig;
	rig_init(&rig);
	const struct lpi_fstore_store *store = lpi_fstore_store_of(rig.hand.store);
	lp_test_ok(create(&rig, ino));
	atomic_store(&is_sync_held, true);
	for (uint64_t i = 0; !store->is_checkpointing; i++)
		write_seed(&rig, ino, (i % 8) * 60000, 60000, i);
	limit_files(UINT64_C(60) << 20);
	assert_true(lpi_pay_make(&pay, rig.hand.bufs, bytes, at, sizeof(bytes), LP_BUF_SMALL));
	const struct lp_change change = lpi_write_change(ino, at, sizeof(bytes), &pay);
	take_off(&rig, &write, lpi_txn_op(&change, 1));
	while (!store->is_writing || store->open->is_used)
		lpi_hand_turn(&rig.hand);
	/* Both become known in one turn. */
	const struct timespec pause = {.tv_nsec = 50 * (long)LP_NS_PER_MS};
	atomic_store(&is_sync_held, false);
	while (!atomic_load(&has_sync_failed))
		(void)nanosleep(&pause, NULL);
	(void)nanosleep(&pause, NULL);
	while (!write.is_done || state_of(&rig) == LP_STORE_OK)
		lpi_hand_turn(&rig.hand);
	lp_test_ok(write.op.result);
	assert_int_equal(state_of(&rig), LP_STORE_READ_ONLY);
	while (!store->is_dead)
		lpi_hand_turn(&rig.hand);
	assert_int_equal(state_of(&rig), LP_STORE_DEAD);
	limit_files(0);
	rig_reopen(&rig, true);
	assert_int_equal(state_of(&rig), LP_STORE_OK);
	lpi_pay_drop(&pay);
	rig_fini(&rig);
}

/* --- A full host ------------------------------------------------------------------------------ */

static uint64_t room_taken_blocks; /* of what the host says is free */

/* Names that the linker gives (--wrap). NOLINTBEGIN(bugprone-reserved-identifier) */
int __real_fstatvfs(int fd, struct statvfs *st);
int __wrap_fstatvfs(int fd, struct statvfs *st);

int __wrap_fstatvfs(int fd, struct statvfs *st)
{
	int r = __real_fstatvfs(fd, st);
	if (r == 0)
		st->f_bavail -= LP_MIN(st->f_bavail, room_taken_blocks);
	return r;
}
/* NOLINTEND(bugprone-reserved-identifier) */

static int promise(struct rig *rig, enum lp_store_room room, bool ends)
{
	static const uint8_t key[] = {LP_KEY_SPACE_TXN, 0, 0, 0, 0, 0, 0, 0, 7};
	const struct lp_change change = {
		.type = LP_CHANGE_RECORD,
		.named = {.name = {key, sizeof(key)}, .value = {ends ? NULL : key, ends ? 0 : 8}}};
	struct lp_store_op op = lpi_txn_op(&change, 1);
	op.txn.room = room;
	return lpi_hand_do(&rig->hand, &op);
}

/* Rule L8: who promises to grow is refused as who grows; what was promised ends. */
static void test_full_host(void **state)
{
	(void)state;
	const struct lp_attrs attrs = {.type = LP_INODE_TYPE_FILE, .mode = 0640, .nlink = 1};
	const struct lp_change make = {
		.type = LP_CHANGE_CREATE, .ino = ino_of(95), .inode = {.attrs = &attrs}};
	struct lp_store_op end = lpi_txn_op(&make, 1);
	struct rig rig;
	rig_init(&rig);
	room_taken_blocks = UINT64_MAX;
	lp_test_err(-ENOSPC, create(&rig, ino_of(95)));
	lp_test_err(-ENOSPC, promise(&rig, LP_ROOM_GROWS, false));
	lp_test_ok(promise(&rig, LP_ROOM_FREES, false));
	end.txn.room = LP_ROOM_ENDS;
	lp_test_ok(lpi_hand_do(&rig.hand, &end));
	lp_test_ok(promise(&rig, LP_ROOM_ENDS, true));
	room_taken_blocks = 0;
	lp_test_ok(promise(&rig, LP_ROOM_GROWS, false));
	rig_fini(&rig);
}

int main(void)
{
	(void)signal(SIGXFSZ, SIG_IGN); /* there is no former handler */
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_same_as_memory),
		cmocka_unit_test(test_ends_in_the_middle),
		cmocka_unit_test(test_torn_tail),
		cmocka_unit_test(test_rot_in_the_middle),
		cmocka_unit_test(test_replay_keeps_what_is_newer),
		cmocka_unit_test(test_journal_goes_round),
		cmocka_unit_test(test_damaged_file),
		cmocka_unit_test(test_removed_is_freed),
		cmocka_unit_test(test_many_records_are_freed),
		cmocka_unit_test(test_large_truncation),
		cmocka_unit_test(test_directory),
		cmocka_unit_test(test_journal_fails),
		cmocka_unit_test(test_journal_fails_under_questions),
		cmocka_unit_test(test_journal_fails_in_truncation),
		cmocka_unit_test(test_files_run_short),
		cmocka_unit_test(test_file_cannot_be_written),
		cmocka_unit_test(test_worse),
		cmocka_unit_test(test_full_host),
		cmocka_unit_test(test_direct_write_fails),
	};
	return lp_test_main(tests, "store/filestore/filestore");
}
