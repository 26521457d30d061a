/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a shard: its directory is made when it is not there, the journal last, so that a shard
 * with a journal has all the rest. Then the index is opened, and the journal replayed:
 *
 *  - of each frame that the index lacks, the batch;
 *  - of each payload that no later frame has outdated, the block to its file. Where a later frame
 *    says that a place was written directly, or that an inode was removed, what is there now is
 *    newer, or nobody's (rule S3);
 *  - of each inode that a frame says is freed, its files are unlinked once more, for that may not
 *    have been durable.
 *
 * Until the journal is judged sound all of this stays in memory (rule L1). Then it is done, made
 * durable, and trimmed, before anybody is served. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/error.h"
#include "store/commit/owed_records.h"
#include "store/filestore/filestore_impl.h"

#define JOURNAL       "journal"
#define JOURNAL_NEW   "journal.new"
#define JOURNAL_BYTES (UINT64_C(64) << 20)
#define DIR_MODE      0700
#define FILE_MODE     0600
#define PATH_BYTES    64u
#define MEMORY_BYTES  (UINT64_C(256) << 20)
#define BUFFER_MIN    (UINT64_C(1) << 20)
#define BUFFER_MAX    (UINT64_C(64) << 20)
#define RECORDS_MAX   (UINT32_C(1) << 19)
/* The kernel gives back what a killed process had in its rings a while after it is gone, and what
 * this one had when its ring is turned. Until then a write may be under way. */
#define BUSY_TRIES   400u
#define BUSY_WAIT_NS (5 * LP_NS_PER_MS)

static uint64_t now_ns(const struct lpi_fstore_store *store)
{
	return lp_clock_mono_ns(lp_reactor_clock(store->reactor));
}

/* A group has at most 256 KiB of records, and one transaction on top; and 160 blocks, and those of
 * a write of 512 KiB. */
static struct lp_log_limits journal_limits(void)
{
	return (struct lp_log_limits){.flight_frames = 2,
				      .flight_blocks = 2 * LP_LOG_FRAME_BLOCKS_MAX,
				      .frame_blocks = LP_LOG_FRAME_BLOCKS_MAX,
				      .meta_blocks = 700,
				      .records_max = RECORDS_MAX};
}

/* --- The shard's directory -------------------------------------------------------------------- */

static int open_dir(int parent, const char *name, int *ret_fd)
{
	if (mkdirat(parent, name, DIR_MODE) < 0 && errno != EEXIST)
		return -errno;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int sync_fd(int fd)
{
	return fsync(fd) < 0 ? -errno : 0;
}

static int make_file(int dir_fd, const char *name, uint64_t bytes)
{
	int fd = openat(dir_fd, name, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, FILE_MODE);
	if (fd < 0)
		return -errno;
	int err = -posix_fallocate(fd, 0, (off_t)bytes);
	if (err == 0)
		err = sync_fd(fd);
	if (close(fd) < 0 && err == 0)
		err = -errno;
	return err;
}

/* By way of /proc, so that the directory may be moved while the store is open. */
static int open_bdev(const struct lpi_fstore_store *store, const char *name,
		     struct lp_bdev **ret_bdev)
{
	const struct lp_bdev_open_options options = {.exclusive = true};
	char path[PATH_BYTES];
	int err = -EBUSY;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", store->shard_fd, name);
	for (uint32_t i = 0; i < BUSY_TRIES && err == -EBUSY; i++) {
		const struct timespec pause = {.tv_nsec = (long)BUSY_WAIT_NS};
		if (i > 0) {
			(void)nanosleep(&pause, NULL); /* a shorter one only asks once more */
			(void)lp_reactor_turn(store->reactor, false);
		}
		err = lp_bdev_open_uring(path, &options, ret_bdev);
	}
	return err;
}

static void fill_area(const struct lpi_fstore_store *store, const struct lp_bdev *bdev,
		      const uint8_t *uuid, struct lp_log_area *ret_area)
{
	uint64_t blocks = lp_bdev_caps(bdev)->size_bytes >> LP_BLOCK_SHIFT;
	*ret_area = (struct lp_log_area){.shard = store->options.shard_idx};
	ret_area->ring_blocks = blocks > LP_LOG_SLOT_CNT ? blocks - LP_LOG_SLOT_CNT : 0;
	memcpy(ret_area->store_uuid, uuid, sizeof(ret_area->store_uuid));
}

static int make_journal(struct lpi_fstore_store *store, const struct lp_store_file_options *file)
{
	const struct lp_log_limits limits = journal_limits();
	uint64_t bytes = file->journal_bytes != 0 ? file->journal_bytes : JOURNAL_BYTES;
	struct lp_bdev *bdev = NULL;
	struct lp_log_area area;
	uint64_t salt = 0;
	if (getrandom(&salt, sizeof(salt), 0) != (ssize_t)sizeof(salt))
		return -EIO;
	int err = make_file(store->shard_fd, JOURNAL_NEW, lp_align_down(bytes, LP_BLOCK_BYTES));
	if (err == 0)
		err = open_bdev(store, JOURNAL_NEW, &bdev);
	if (err < 0)
		return err;
	fill_area(store, bdev, file->dir->uuid, &area);
	err = lp_log_check_limits(&area, &limits);
	if (err == 0)
		err = lp_log_format(bdev, &area, &limits, salt);
	lp_bdev_close(bdev);
	if (err == 0 && renameat(store->shard_fd, JOURNAL_NEW, store->shard_fd, JOURNAL) < 0)
		err = -errno;
	return err < 0 ? err : sync_fd(store->shard_fd);
}

static int open_dirs(struct lpi_fstore_store *store, const struct lp_store_file_options *file)
{
	char name[PATH_BYTES];
	struct stat st;
	(void)snprintf(name, sizeof(name), "shard-%02u", store->options.shard_idx);
	int err = open_dir(file->dir->fd, name, &store->shard_fd);
	if (err == 0)
		err = open_dir(store->shard_fd, "index", &store->index_fd);
	if (err == 0)
		err = lpi_objects_open(&store->objects, store->shard_fd);
	if (err == 0)
		err = sync_fd(store->shard_fd);
	if (err == 0)
		err = sync_fd(file->dir->fd);
	if (err == 0 && fstatat(store->shard_fd, JOURNAL, &st, 0) < 0)
		err = errno == ENOENT ? make_journal(store, file) : -errno;
	return err;
}

/* --- The index -------------------------------------------------------------------------------- */

static int read_number(struct lpi_fstore_store *store, const char *name, uint64_t *ret_number)
{
	struct lp_kv_value value;
	struct lp_key key;
	uint64_t ignored = 0;
	lp_key_of_store(&key, name);
	int err = lp_kv_get(store->kv, lpi_kv_bytes_of(&key), &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	/* A number alone is what both are. */
	err = lp_applied_decode(value.bytes, ret_number, &ignored);
	lp_kv_value_release(&value);
	return err;
}

static int open_index(struct lpi_fstore_store *store, bool is_new)
{
	uint64_t memory = store->options.memory_bytes;
	uint64_t buffer = LP_MIN(LP_MAX(memory / 16, BUFFER_MIN), BUFFER_MAX);
	struct lp_kv_options options = {.fs = &store->kvfs.kvfs,
					.cache_bytes = memory / 4,
					.write_buffer_bytes = store->options.index_buffer_bytes,
					.create = is_new};
	if (options.write_buffer_bytes == 0)
		options.write_buffer_bytes = buffer;
	lp_kvfs_posix_init(&store->kvfs, store->index_fd);
	int err = lp_kv_open(&options, &store->kv);
	if (err == -ENOENT)
		return LP_CORRUPT(LP_OFFSET_NONE, "shard %u: its index is lost",
				  store->options.shard_idx);
	return err;
}

/* --- Replay ----------------------------------------------------------------------------------- */

/* A payload that is to go to its place. */
struct landing {
	struct lp_tree_node node;
	struct lpi_object_place place;
	uint64_t log_block;
	uint32_t crc;
};

static bool landing_less(const struct landing *a, const struct landing *b)
{
	if (a->place.ino.nr != b->place.ino.nr)
		return a->place.ino.nr < b->place.ino.nr;
	if (a->place.block != b->place.block)
		return a->place.block < b->place.block;
	return a->place.side < b->place.side;
}

LP_TREE_DEFINE(landings, struct landing, node, landing_less);

/* The batch of a frame that the index lacks. */
struct batch_copy {
	struct batch_copy *next;
	size_t len;
	uint8_t bytes[];
};

/* An inode whose files are gone, unless its number was used again. */
struct gone {
	struct lp_tree_node node;
	uint64_t ino;
};

static bool gone_less(const struct gone *a, const struct gone *b)
{
	return a->ino < b->ino;
}

LP_TREE_DEFINE(gones, struct gone, node, gone_less);

struct replay {
	struct lp_log_recovery recovery;
	struct lp_kv_batch_visitor visitor;
	struct lpi_fstore_store *store;
	struct landings landings;
	struct batch_copy *batches; /* in their order */
	struct batch_copy **batches_end;
	struct gones gones;
	uint64_t seq; /* the last that the index has, when all is done */
	bool has_begun;
	bool is_done;
};

static void drop_landings(struct replay *replay, const struct lpi_object_place *from,
			  const struct lpi_object_place *to, bool any_side)
{
	const struct landing key = {.place = *from};
	struct landing *at = landings_find_ge(&replay->landings, &key);
	while (at != NULL && at->place.ino.nr == from->ino.nr && at->place.block < to->block) {
		struct landing *next = landings_next(at);
		if (any_side || at->place.side == to->side) {
			landings_remove(&replay->landings, at);
			free(at);
		}
		at = next;
	}
}

static struct gone *find_gone(const struct replay *replay, uint64_t ino)
{
	const struct gone key = {.ino = ino};
	struct gone *gone = gones_find_ge(&replay->gones, &key);
	return gone != NULL && gone->ino == ino ? gone : NULL;
}

static void forget_gone(struct replay *replay, uint64_t ino)
{
	struct gone *gone = find_gone(replay, ino);
	if (gone == NULL)
		return;
	gones_remove(&replay->gones, gone);
	free(gone);
}

static int replay_changes(struct replay *replay, const struct lp_log_view *view)
{
	uint64_t ino = 0;
	for (uint32_t i = 0; i < view->head.change_cnt; i++) {
		struct lp_log_change change;
		lp_log_view_change(view, i, &change);
		if (change.op == LP_FILE_CHANGE_INO) {
			ino = change.block;
			forget_gone(replay, ino);
			continue;
		}
		if (change.op != LP_FILE_CHANGE_SIDE_0 && change.op != LP_FILE_CHANGE_SIDE_1)
			return LP_CORRUPT(LP_OFFSET_NONE,
					  "journal: frame %llu has a change of kind %u",
					  (unsigned long long)view->head.seq, change.op);
		uint32_t side = change.op - LP_FILE_CHANGE_SIDE_0;
		const struct lpi_object_place from = {{ino}, change.block, 0};
		const struct lpi_object_place to = {{ino}, change.block + change.cnt, side};
		drop_landings(replay, &from, &to, false);
	}
	return 0;
}

static int replay_payloads(struct replay *replay, const struct lp_log_view *view)
{
	for (uint32_t i = 0; i < view->head.payload_cnt; i++) {
		struct lp_log_payload about;
		(void)lp_log_view_payload(view, i, &about);
		struct landing *landing = calloc(1, sizeof(*landing));
		if (landing == NULL)
			return -ENOMEM;
		landing->place = (struct lpi_object_place){
			{about.ino}, about.file_block, (uint32_t)about.device_block};
		landing->crc = about.crc;
		landing->log_block = lp_log_payload_block(replay->store->log, view, i);
		if (about.device_block >= LPI_SIDE_CNT || about.ino == 0 ||
		    about.file_block >= LP_KEY_MAP_BLOCKS_MAX) {
			free(landing);
			return LP_CORRUPT(LP_OFFSET_NONE,
					  "journal: frame %llu has a payload for nowhere",
					  (unsigned long long)view->head.seq);
		}
		struct landing *old = landings_find_ge(&replay->landings, landing);
		if (old != NULL && !landing_less(landing, old)) {
			landings_remove(&replay->landings, old);
			free(old);
		}
		landings_insert(&replay->landings, landing);
	}
	return 0;
}

/* Whether the key is the record of what was removed, and of whom. */
static bool is_gone_key(struct lp_kv_bytes key, uint64_t *ret_ino)
{
	static const char name[] = "Sgone"; /* with its NUL */
	if (key.len != sizeof(name) + sizeof(uint64_t) || memcmp(key.data, name, sizeof(name)) != 0)
		return false;
	*ret_ino = lp_get_be64((const uint8_t *)key.data + sizeof(name));
	return true;
}

static int visit_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		     struct lp_kv_bytes value)
{
	struct replay *replay = LP_CONTAINER_OF(visitor, struct replay, visitor);
	uint64_t ino = 0;
	(void)value; /* is empty */
	if (is_gone_key(key, &ino)) {
		const struct lpi_object_place from = {{ino}, 0, 0};
		const struct lpi_object_place to = {{ino}, LP_KEY_MAP_BLOCKS_MAX, 0};
		drop_landings(replay, &from, &to, true);
	}
	return 0;
}

static int visit_del(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	struct replay *replay = LP_CONTAINER_OF(visitor, struct replay, visitor);
	uint64_t ino = 0;
	if (!is_gone_key(key, &ino) || find_gone(replay, ino) != NULL)
		return 0;
	struct gone *gone = calloc(1, sizeof(*gone));
	if (gone == NULL)
		return -ENOMEM;
	gone->ino = ino;
	gones_insert(&replay->gones, gone);
	return 0;
}

static int keep_batch(struct replay *replay, const struct lp_log_view *view)
{
	struct batch_copy *copy = malloc(sizeof(*copy) + view->head.batch_bytes);
	if (copy == NULL)
		return -ENOMEM;
	copy->next = NULL;
	copy->len = view->head.batch_bytes;
	memcpy(copy->bytes, view->batch, copy->len);
	*replay->batches_end = copy;
	replay->batches_end = &copy->next;
	return 0;
}

static int replay_frame(struct lp_log_recovery *recovery, const struct lp_log_view *view)
{
	struct replay *replay = LP_CONTAINER_OF(recovery, struct replay, recovery);
	if (!replay->has_begun && view->head.seq > recovery->applied + 1)
		return LP_CORRUPT(
			LP_OFFSET_NONE, "journal: starts at frame %llu, but the index has %llu",
			(unsigned long long)view->head.seq, (unsigned long long)recovery->applied);
	replay->has_begun = true;
	if (view->head.batch_bytes == 0)
		return 0;
	const struct lp_kv_bytes batch = {view->batch, view->head.batch_bytes};
	int err = lp_kv_walk(batch, &replay->visitor);
	if (err == 0)
		err = replay_changes(replay, view);
	if (err == 0)
		err = replay_payloads(replay, view);
	if (err == 0 && view->head.seq > recovery->applied)
		err = keep_batch(replay, view);
	replay->seq = LP_MAX(replay->seq, view->head.seq);
	recovery->record_cnt = 0;
	return err;
}

static void replay_complete(struct lp_log_recovery *recovery)
{
	LP_CONTAINER_OF(recovery, struct replay, recovery)->is_done = true;
}

static int land_batches(struct replay *replay)
{
	struct lpi_fstore_store *store = replay->store;
	struct lp_kv_batch *batch = store->groups[0].batch;
	int err = 0;
	for (const struct batch_copy *copy = replay->batches; copy != NULL && err == 0;
	     copy = copy->next) {
		err = lp_kv_batch_load(batch, (struct lp_kv_bytes){copy->bytes, copy->len});
		if (err == 0)
			err = lpi_fstore_write_batch(store->kv, batch);
		store->start_frames++;
	}
	return err;
}

static int land_payloads(struct replay *replay)
{
	struct lpi_fstore_store *store = replay->store;
	uint8_t *block = store->eval->bounce;
	struct landing *at = landings_first(&replay->landings);
	int err = 0;
	for (; at != NULL && err == 0; at = landings_next(at)) {
		struct iovec iov = {.iov_base = block, .iov_len = LP_BLOCK_BYTES};
		err = lp_bdev_read_sync(store->bdev, block, LP_BLOCK_BYTES,
					at->log_block << LP_BLOCK_SHIFT);
		if (err == 0)
			err = lp_csum_verify(block, at->crc, at->log_block);
		if (err == 0)
			err = lpi_objects_write(&store->objects, &at->place, &iov, 1);
		store->start_payloads++;
	}
	return err;
}

/* The map that named them has gone. */
static int unlink_parts(struct lpi_objects *objects, struct lp_ino ino)
{
	int err = 0;
	for (uint64_t block = 0; block < LP_KEY_MAP_BLOCKS_MAX && err == 0;
	     block += UINT64_C(1) << LPI_PART_SHIFT)
		err = lpi_objects_unlink(objects, ino, block);
	return err;
}

static int land_gone(struct replay *replay)
{
	const struct gone *gone = gones_first(&replay->gones);
	int err = 0;
	for (; gone != NULL && err == 0; gone = gones_next(gone))
		err = unlink_parts(&replay->store->objects, (struct lp_ino){gone->ino});
	return err;
}

static void replay_free(struct replay *replay)
{
	struct landing *landing;
	while ((landing = landings_first(&replay->landings)) != NULL) {
		landings_remove(&replay->landings, landing);
		free(landing);
	}
	while (replay->batches != NULL) {
		struct batch_copy *next = replay->batches->next;
		free(replay->batches);
		replay->batches = next;
	}
	struct gone *gone;
	while ((gone = gones_first(&replay->gones)) != NULL) {
		gones_remove(&replay->gones, gone);
		free(gone);
	}
}

static void turn(struct lpi_fstore_store *store)
{
	(void)lp_reactor_turn(store->reactor, true); /* how much it did does not matter */
}

static int recover(struct lpi_fstore_store *store)
{
	struct replay replay = {.recovery = {.frame = replay_frame, .complete = replay_complete},
				.visitor = {.put = visit_put, .del = visit_del},
				.store = store};
	landings_init(&replay.landings);
	gones_init(&replay.gones);
	replay.batches_end = &replay.batches;
	int err = read_number(store, "applied", &replay.recovery.applied);
	if (err < 0)
		return err;
	replay.seq = replay.recovery.applied;
	lp_log_recover(store->log, &replay.recovery);
	while (!replay.is_done)
		turn(store);
	err = replay.recovery.result;
	/* Files of those that were freed first: a number may have been used again since. */
	if (err == 0)
		err = land_gone(&replay);
	if (err == 0)
		err = land_payloads(&replay);
	if (err == 0)
		err = land_batches(&replay);
	if (err == 0 && replay.has_begun)
		err = lpi_fstore_checkpoint(store);
	if (err == 0) {
		/* Not behind frames that only trimmed: the index knows nothing of these. */
		store->applied_seq = replay.seq;
		store->trimmed_seq = replay.seq;
		lp_log_trim(store->log, replay.seq + 1);
		lp_log_advance(store->log);
	}
	replay_free(&replay);
	return err;
}

/* --- What goes on ----------------------------------------------------------------------------- */

/* Removals and cuts that had not ended. */
static int find_unfinished(struct lpi_fstore_store *store)
{
	const struct lpi_fstore_view view = {.layer_cnt = 0, .kv = store->kv};
	struct lp_key_range range;
	struct lp_key_view at;
	struct lp_key key;
	lp_key_range_of_store(&range, "gone");
	int err = lpi_fstore_next(&view, &range.first, &range.end, &key);
	store->eval->gone_is_left = err == 0;
	if (err < 0 && err != -ENOENT)
		return err;
	lp_key_range_of_store(&range, "trim");
	err = lpi_fstore_next(&view, &range.first, &range.end, &key);
	if (err == 0)
		err = lp_key_parse(key.bytes, key.len, &at);
	if (err == 0)
		store->eval->trim_ino = at.number;
	if (err < 0 && err != -ENOENT)
		return err;
	store->is_freeing = store->eval->gone_is_left || store->eval->trim_ino != 0;
	store->needs_quiet = store->eval->trim_ino != 0;
	return 0;
}

static int open_numbers(struct lpi_fstore_store *store)
{
	uint64_t bound = 0;
	int err = read_number(store, "inodes", &bound);
	if (err < 0)
		return err;
	bound = LP_MAX(bound, LP_INO_FIRST);
	if (bound >= LP_INO_COUNTER_END)
		return LP_CORRUPT(LP_OFFSET_NONE, "the record \"inodes\" says %llu",
				  (unsigned long long)bound);
	store->eval->ino_bound = bound > LP_INO_FIRST ? bound : 0;
	store->eval->ino_top = bound;
	store->next_ino = lp_ino_make(store->options.shard_idx, bound).nr;
	return 0;
}

static int open_log(struct lpi_fstore_store *store, const struct lp_store_file_options *file,
		    bool *ret_new)
{
	struct lp_log_options options = {.reactor = store->reactor, .limits = journal_limits()};
	int err = open_bdev(store, JOURNAL, &store->bdev);
	if (err < 0)
		return err;
	fill_area(store, store->bdev, file->dir->uuid, &options.area);
	err = lp_log_check_limits(&options.area, &options.limits);
	if (err == 0)
		err = lp_log_is_new(store->bdev, &options.area, ret_new);
	if (err == 0)
		err = lp_bdev_attach(store->bdev, store->reactor, &store->chan);
	if (err < 0)
		return err;
	options.chan = store->chan;
	return lp_log_new(&options, &store->log);
}

/* Also of what is only half open. */
static void free_store(struct lpi_fstore_store *store)
{
	while (store->log != NULL && !lp_log_is_idle(store->log))
		turn(store);
	lpi_fstore_calls_fini(store);
	lp_log_free(store->log);
	lp_bdev_detach(store->chan);
	lp_bdev_close(store->bdev);
	int ignored = lp_kv_close(store->kv); /* what it has not flushed is in the journal */
	(void)ignored;
	lpi_objects_close(&store->objects);
	if (store->index_fd >= 0)
		(void)close(store->index_fd); /* nothing was written through it */
	if (store->shard_fd >= 0)
		(void)close(store->shard_fd); /* the same */
	free(store);
}

int lp_store_open_file(const struct lp_store_options *options,
		       const struct lp_store_file_options *file, struct lp_store **ret_store)
{
	LP_ASSERT(options->shard_idx < file->dir->shard_cnt);
	if (options->read_only)
		return -EROFS;
	struct lpi_fstore_store *store = calloc(1, sizeof(*store));
	bool is_new = false;
	if (store == NULL)
		return -ENOMEM;
	store->options = *options;
	if (store->options.memory_bytes == 0)
		store->options.memory_bytes = MEMORY_BYTES;
	store->reactor = options->reactor;
	store->write_path = options->write_path;
	store->shard_cnt = file->dir->shard_cnt;
	store->shard_fd = -1;
	store->index_fd = -1;
	store->objects.fd = -1;
	uint64_t start_ns = now_ns(store);
	int err = lpi_fstore_calls_init(store);
	if (err == 0)
		err = open_dirs(store, file);
	if (err == 0)
		err = open_log(store, file, &is_new);
	if (err == 0)
		err = open_index(store, is_new);
	if (err == 0)
		err = recover(store);
	if (err == 0)
		err = open_numbers(store);
	if (err == 0)
		err = find_unfinished(store);
	if (err < 0) {
		free_store(store);
		return err;
	}
	lpi_fstore_read_room(store);
	store->stats.free_blocks = store->eval->free_blocks;
	store->stats.used_blocks = store->eval->used_blocks;
	store->start_ns = now_ns(store) - start_ns;
	if (store->is_freeing)
		lpi_fstore_step_soon(store);
	*ret_store = &store->base;
	return 0;
}

/* --- Closing ---------------------------------------------------------------------------------- */

static void closing_complete(struct lp_log_closing *closing)
{
	closing->log = NULL; /* it has completed */
}

static int close_log(struct lpi_fstore_store *store)
{
	struct lp_log_closing closing = {.complete = closing_complete};
	lp_log_close(store->log, &closing);
	while (closing.log != NULL)
		turn(store);
	return closing.result;
}

int lpi_fstore_close(struct lp_store *base, bool abandon)
{
	struct lpi_fstore_store *store = lpi_fstore_store_of(base);
	int err = 0;
	LP_ASSERT(store->reads_cnt == 0);
	store->is_closing = true; /* what is to be freed is found by the next opening */
	if (abandon)
		lpi_fstore_abandon(store);
	while (!lpi_fstore_is_idle(store)) {
		if (!abandon)
			lpi_fstore_want_all(store);
		turn(store);
	}
	if (!abandon)
		err = store->error;
	if (!abandon && err == 0)
		err = lpi_fstore_checkpoint(store);
	/* So that the next start has nothing to do. */
	if (!abandon && err == 0) {
		lp_log_trim(store->log, store->applied_seq + 1);
		lpi_fstore_trim(store);
	}
	while (store->is_trimming)
		turn(store);
	if (!abandon && err == 0)
		err = store->error;
	if (!abandon && err == 0)
		lp_log_advance(store->log);
	while (!lp_log_is_idle(store->log))
		turn(store);
	if (!abandon && err == 0)
		err = close_log(store);
	free_store(store);
	return err;
}
