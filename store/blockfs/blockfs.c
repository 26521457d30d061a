/* SPDX-License-Identifier: Apache-2.0 */
/* Open, close, names and numbers of a blockfs. Each change of a name is one journal record, made
 * durable under `meta` and then applied under `lock`; blocks are given back after that, when no
 * lock is held (rule S1). */
#include "store/blockfs/blockfs.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/error.h"
#include "store/blockfs/impl.h"

#define LOCKED_NAMES_MAX 64u
#define VERIFY_BYTES     (UINT64_C(1) << 20)

void lpi_blockfs_lock(pthread_mutex_t *mutex)
{
	int err = pthread_mutex_lock(mutex);
	LP_ASSERT(err == 0);
}

void lpi_unlock(pthread_mutex_t *mutex)
{
	int err = pthread_mutex_unlock(mutex);
	LP_ASSERT(err == 0);
}

void lpi_count(_Atomic uint64_t *counter, uint64_t value)
{
	atomic_fetch_add_explicit(counter, value, memory_order_relaxed);
}

int lpi_usable(struct lp_blockfs *fs)
{
	if (fs->read_only)
		return -EROFS;
	return atomic_load(&fs->failed) ? -EIO : 0;
}

bool lpi_name_is_valid(const char *name)
{
	size_t len = strnlen(name, LP_BLOCKFS_NAME_MAX + 1);
	return len >= 1 && len <= LP_BLOCKFS_NAME_MAX;
}

/* --- Open and close -------------------------------------------------------------------------- */

int lp_blockfs_format(const struct lp_blockfs_options *options)
{
	return lpi_journal_format(options);
}

static int mark_map(struct lpi_space *space, const struct lpi_map *map)
{
	int err = 0;
	for (size_t i = 0; i < map->cnt && err == 0; i++)
		err = lpi_space_mark(space, map->runs[i]);
	return err;
}

static int mark_files(struct lp_blockfs *fs)
{
	int err = 0;
	for (size_t i = 0; i < fs->table.by_id.cnt && err == 0; i++) {
		err = mark_map(&fs->space, &fs->table.by_id.files[i]->map);
		if (err == 0)
			err = mark_map(&fs->space, &fs->table.by_id.files[i]->table_map);
	}
	return err;
}

static struct lp_blockfs *fs_new(const struct lp_blockfs_options *options)
{
	struct lp_blockfs *fs = calloc(1, sizeof(*fs));
	if (fs == NULL)
		return NULL;
	fs->clock = options->clock != NULL ? options->clock : lp_clock_system();
	fs->read_only = options->read_only;
	lpi_table_init(&fs->table);
	lpi_writer_list_init(&fs->writers);
	if (pthread_mutex_init(&fs->meta, NULL) != 0) {
		free(fs);
		return NULL;
	}
	if (pthread_mutex_init(&fs->lock, NULL) != 0) {
		(void)pthread_mutex_destroy(&fs->meta); /* nobody holds it */
		free(fs);
		return NULL;
	}
	return fs;
}

static void fs_free(struct lp_blockfs *fs)
{
	lpi_journal_fini(&fs->journal);
	lpi_table_fini(&fs->table);
	for (size_t i = 0; i < fs->locked_cnt; i++)
		free(fs->locked_names[i]);
	free((void *)fs->locked_names);
	(void)pthread_mutex_destroy(&fs->lock); /* these fail only when held: our bug */
	(void)pthread_mutex_destroy(&fs->meta);
	free(fs);
}

int lp_blockfs_open(const struct lp_blockfs_options *options, struct lp_blockfs **ret_fs)
{
	LP_ASSERT(options->data.bdev != NULL && options->journal_bdev != NULL);
	LP_ASSERT(options->shard_idx < LP_SHARDS_MAX);
	struct lp_blockfs *fs = fs_new(options);
	if (fs == NULL)
		return -ENOMEM;
	int err = lpi_space_init(&fs->space, options);
	if (err < 0) {
		fs_free(fs);
		return err;
	}
	for (uint32_t i = 0; i < fs->space.tier_cnt; i++)
		fs->roles[i] = fs->space.tiers[i].role;
	err = lpi_journal_open(fs, options);
	if (err == 0)
		err = mark_files(fs);
	if (err < 0) {
		lpi_space_fini(&fs->space);
		fs_free(fs);
		return err;
	}
	atomic_store(&fs->live_bytes, fs->table.live_bytes);
	lpi_space_settle(&fs->space);
	*ret_fs = fs;
	return 0;
}

void lp_blockfs_close(struct lp_blockfs *fs)
{
	if (fs == NULL)
		return;
	LP_ASSERT(lpi_writer_list_is_empty(&fs->writers));
	LP_ASSERT(lpi_file_list_is_empty(&fs->table.unlinked));
	lpi_space_fini(&fs->space);
	fs_free(fs);
}

void lp_blockfs_set_manifest_barrier(struct lp_blockfs *fs, int (*wait)(void *arg), void *arg)
{
	fs->barrier = wait;
	fs->barrier_arg = arg;
}

/* --- Files that go --------------------------------------------------------------------------- */

bool lpi_file_is_dead(struct lpi_file *file)
{
	if (file == NULL || file->named || file->ref_cnt != 0)
		return false;
	lpi_file_list_remove(file);
	return true;
}

void lpi_file_destroy(struct lp_blockfs *fs, struct lpi_file *file)
{
	lpi_space_free_map(&fs->space, &file->map);
	lpi_space_free_map(&fs->space, &file->table_map);
	lpi_file_free(file);
}

void lpi_file_put(struct lp_blockfs *fs, struct lpi_file *file)
{
	lpi_blockfs_lock(&fs->lock);
	LP_ASSERT(file->ref_cnt != 0);
	file->ref_cnt--;
	if (file->ref_cnt == 0) {
		free(file->table_crcs);
		file->table_crcs = NULL;
	}
	bool dead = lpi_file_is_dead(file);
	lpi_unlock(&fs->lock);
	if (dead)
		lpi_file_destroy(fs, file);
}

/* --- Create ---------------------------------------------------------------------------------- */

static bool is_manifest(const char *name)
{
	const char *slash = strrchr(name, '/');
	return strncmp(slash == NULL ? name : slash + 1, "MANIFEST", 8) == 0;
}

static struct lp_blockfs_writer *writer_new(struct lp_blockfs *fs, const char *name)
{
	struct lp_blockfs_writer *writer = calloc(1, sizeof(*writer));
	if (writer == NULL)
		return NULL;
	writer->fs = fs;
	writer->is_manifest = is_manifest(name);
	writer->buf = aligned_alloc(LP_BLOCK_BYTES, LPI_BUF_BYTES);
	if (writer->buf == NULL) {
		free(writer);
		return NULL;
	}
	return writer;
}

/* Under meta. */
static int create_record(struct lp_blockfs *fs, const struct lpi_file *file)
{
	struct lp_writer out;
	size_t len = lpi_record_name_bytes(file->name);
	lpi_blockfs_lock(&fs->lock);
	int err = lpi_table_reserve(&fs->table);
	lpi_unlock(&fs->lock);
	/* What a snapshot takes for it is more than this one record. */
	if (err == 0 && fs->table.live_bytes + lpi_record_file_bytes(file) > fs->live_max_bytes)
		err = -ENOSPC;
	if (err == 0)
		err = lpi_journal_begin(fs, len, true, &out);
	if (err < 0)
		return err;
	lpi_record_put_name(&out, LP_BLOCKFS_TYPE_CREATE, file->id, file->mtime_ns, file->name);
	LP_ASSERT(lp_writer_remaining(&out) == 0 && !lp_writer_overflowed(&out));
	return lpi_journal_commit(fs, len);
}

/* Under meta. *ret_dead: a file that it replaced and nobody has open, or NULL. */
static int create_locked(struct lp_blockfs *fs, const char *name, bool exclusive,
			 struct lp_blockfs_writer *writer, struct lpi_file **ret_dead)
{
	int err = lpi_usable(fs);
	if (err < 0)
		return err;
	if (exclusive && lpi_table_find(&fs->table, name) != NULL)
		return -EEXIST;
	struct lpi_file *file =
		lpi_file_new(fs->table.next_file_id, name, lp_clock_wall_ns(fs->clock));
	if (file == NULL)
		return -ENOMEM;
	err = create_record(fs, file);
	if (err < 0) {
		lpi_file_free(file);
		return err;
	}
	lpi_blockfs_lock(&fs->lock);
	struct lpi_file *old = lpi_table_insert(&fs->table, file);
	*ret_dead = lpi_file_is_dead(old) ? old : NULL;
	file->ref_cnt = 1;
	writer->file = file;
	lpi_writer_list_push_back(&fs->writers, writer);
	lpi_unlock(&fs->lock);
	return 0;
}

int lp_blockfs_create(struct lp_blockfs *fs, const char *name, bool exclusive,
		      struct lp_blockfs_writer **ret_writer)
{
	struct lpi_file *dead = NULL;
	if (!lpi_name_is_valid(name))
		return -EINVAL;
	struct lp_blockfs_writer *writer = writer_new(fs, name);
	if (writer == NULL)
		return -ENOMEM;
	lpi_blockfs_lock(&fs->meta);
	int err = create_locked(fs, name, exclusive, writer, &dead);
	lpi_unlock(&fs->meta);
	if (dead != NULL)
		lpi_file_destroy(fs, dead);
	if (err < 0) {
		free(writer->buf);
		free(writer);
		return err;
	}
	*ret_writer = writer;
	return 0;
}

/* --- Delete and rename ----------------------------------------------------------------------- */

/* Under meta. */
static int delete_locked(struct lp_blockfs *fs, const char *name, struct lpi_file **ret_dead)
{
	struct lp_writer out;
	int err = lpi_usable(fs);
	if (err < 0)
		return err;
	struct lpi_file *file = lpi_table_find(&fs->table, name);
	if (file == NULL)
		return -ENOENT;
	err = lpi_journal_begin(fs, LPI_RECORD_DELETE_BYTES, false, &out);
	if (err < 0)
		return err;
	lpi_record_put_delete(&out, file->id);
	err = lpi_journal_commit(fs, LPI_RECORD_DELETE_BYTES);
	if (err < 0)
		return err;
	lpi_blockfs_lock(&fs->lock);
	lpi_table_unlink(&fs->table, file);
	*ret_dead = lpi_file_is_dead(file) ? file : NULL;
	lpi_unlock(&fs->lock);
	return 0;
}

int lp_blockfs_delete(struct lp_blockfs *fs, const char *name)
{
	struct lpi_file *dead = NULL;
	lpi_blockfs_lock(&fs->meta);
	int err = delete_locked(fs, name, &dead);
	lpi_unlock(&fs->meta);
	if (dead != NULL)
		lpi_file_destroy(fs, dead);
	return err;
}

/* Under meta. take_to: a copy of the name. */
static int rename_locked(struct lp_blockfs *fs, const char *from, char **take_to,
			 struct lpi_file **ret_dead)
{
	struct lp_writer out;
	int err = lpi_usable(fs);
	if (err < 0)
		return err;
	struct lpi_file *file = lpi_table_find(&fs->table, from);
	if (file == NULL)
		return -ENOENT;
	if (strcmp(from, *take_to) == 0)
		return 0;
	size_t len = lpi_record_name_bytes(*take_to);
	err = lpi_journal_begin(fs, len, strlen(*take_to) > strlen(from), &out);
	if (err < 0)
		return err;
	lpi_record_put_name(&out, LP_BLOCKFS_TYPE_RENAME, file->id, file->mtime_ns, *take_to);
	LP_ASSERT(lp_writer_remaining(&out) == 0 && !lp_writer_overflowed(&out));
	err = lpi_journal_commit(fs, len);
	if (err < 0)
		return err;
	lpi_blockfs_lock(&fs->lock);
	struct lpi_file *old = lpi_table_rename(&fs->table, file, take_to);
	*ret_dead = lpi_file_is_dead(old) ? old : NULL;
	lpi_unlock(&fs->lock);
	return 0;
}

int lp_blockfs_rename(struct lp_blockfs *fs, const char *from, const char *to)
{
	struct lpi_file *dead = NULL;
	if (!lpi_name_is_valid(to))
		return -EINVAL;
	char *copy = strdup(to);
	if (copy == NULL)
		return -ENOMEM;
	lpi_blockfs_lock(&fs->meta);
	int err = rename_locked(fs, from, &copy, &dead);
	lpi_unlock(&fs->meta);
	if (dead != NULL)
		lpi_file_destroy(fs, dead);
	free(copy);
	return err;
}

/* --- Looking --------------------------------------------------------------------------------- */

int lp_blockfs_stat(struct lp_blockfs *fs, const char *name, uint64_t *ret_size_bytes,
		    int64_t *ret_mtime_ns)
{
	lpi_blockfs_lock(&fs->lock);
	const struct lpi_file *file = lpi_table_find(&fs->table, name);
	if (file != NULL && ret_size_bytes != NULL)
		*ret_size_bytes = file->size_bytes;
	if (file != NULL && ret_mtime_ns != NULL)
		*ret_mtime_ns = file->mtime_ns;
	lpi_unlock(&fs->lock);
	return file == NULL ? -ENOENT : 0;
}

int lp_blockfs_list(struct lp_blockfs *fs, const char *prefix,
		    int (*each)(const char *rest, void *arg), void *arg)
{
	size_t len = strlen(prefix);
	int result = 0;
	lpi_blockfs_lock(&fs->lock);
	const struct lpi_index *names = &fs->table.by_name;
	for (size_t i = lpi_table_lower(&fs->table, prefix); i < names->cnt && result == 0; i++) {
		if (strncmp(names->files[i]->name, prefix, len) != 0)
			break;
		result = each(names->files[i]->name + len, arg);
	}
	lpi_unlock(&fs->lock);
	return result;
}

/* --- Lock files ------------------------------------------------------------------------------ */

static size_t locked_find(const struct lp_blockfs *fs, const char *name)
{
	size_t pos = 0;
	while (pos < fs->locked_cnt && strcmp(fs->locked_names[pos], name) != 0)
		pos++;
	return pos;
}

static int lock_locked(struct lp_blockfs *fs, const char *name)
{
	if (locked_find(fs, name) != fs->locked_cnt)
		return -EAGAIN;
	if (fs->locked_names == NULL)
		fs->locked_names = (char **)calloc(LOCKED_NAMES_MAX, sizeof(char *));
	if (fs->locked_names == NULL || fs->locked_cnt == LOCKED_NAMES_MAX)
		return -ENOMEM;
	char *copy = strdup(name);
	if (copy == NULL)
		return -ENOMEM;
	fs->locked_names[fs->locked_cnt++] = copy;
	return 0;
}

int lp_blockfs_lock(struct lp_blockfs *fs, const char *name)
{
	lpi_blockfs_lock(&fs->lock);
	int err = lock_locked(fs, name);
	lpi_unlock(&fs->lock);
	return err;
}

int lp_blockfs_unlock(struct lp_blockfs *fs, const char *name)
{
	lpi_blockfs_lock(&fs->lock);
	size_t pos = locked_find(fs, name);
	bool found = pos != fs->locked_cnt;
	if (found) {
		free(fs->locked_names[pos]);
		fs->locked_names[pos] = fs->locked_names[--fs->locked_cnt];
	}
	lpi_unlock(&fs->lock);
	return found ? 0 : -ENOENT;
}

/* --- Watching -------------------------------------------------------------------------------- */

static enum lp_blockfs_kind kind_of(const char *name)
{
	size_t len = strlen(name);
	if (is_manifest(name))
		return LP_BLOCKFS_MANIFEST;
	if (len >= 4 && strcmp(name + len - 4, ".sst") == 0)
		return LP_BLOCKFS_SST;
	return len >= 4 && strcmp(name + len - 4, ".log") == 0 ? LP_BLOCKFS_LOG : LP_BLOCKFS_OTHER;
}

/* Takes no lock: the shard's thread asks, and must not wait for a device. */
static void space_stats(const struct lpi_space *space, struct lp_blockfs_stats *stats)
{
	stats->used_bytes = atomic_load(&space->used_blocks) * LP_BLOCK_BYTES;
	stats->free_bytes = atomic_load(&space->free_blocks) * LP_BLOCK_BYTES;
	stats->spilled_bytes = atomic_load(&space->spilled_blocks) * LP_BLOCK_BYTES;
	stats->reserve_bytes = space->reserve_blocks * LP_BLOCK_BYTES;
	stats->spill_cnt = atomic_load(&space->told_spill_cnt);
}

/* From three quarters of what the journal may hold on, the room shrinks to nothing. */
static uint64_t journal_room(const struct lp_blockfs *fs)
{
	uint64_t live = atomic_load(&fs->live_bytes);
	uint64_t max = fs->live_max_bytes;
	uint64_t left = live < max ? max - live : 0;
	if (left >= max / 4)
		return UINT64_MAX;
	return fs->space.reserve_blocks * LP_BLOCK_BYTES / 64 * (left * 64 / (max / 4 + 1));
}

uint64_t lp_blockfs_room_bytes(const struct lp_blockfs *fs)
{
	uint64_t blocks = atomic_load(&fs->space.free_blocks);
	for (uint32_t i = 0; i < fs->space.tier_cnt; i++) {
		const struct lp_chunks *chunks = fs->space.tiers[i].chunks;
		blocks += (uint64_t)lp_chunks_free_cnt(chunks) * lp_chunks_chunk_blocks(chunks);
	}
	return LP_MIN(blocks * LP_BLOCK_BYTES, journal_room(fs));
}

void lp_blockfs_settle(struct lp_blockfs *fs)
{
	if (!atomic_load(&fs->failed))
		lpi_space_settle(&fs->space);
}

void lp_blockfs_stats(struct lp_blockfs *fs, struct lp_blockfs_stats *ret_stats)
{
	struct lp_blockfs_stats stats = {.read_cnt = atomic_load(&fs->read_cnt),
					 .read_bytes = atomic_load(&fs->read_bytes),
					 .write_cnt = atomic_load(&fs->write_cnt),
					 .write_bytes = atomic_load(&fs->write_bytes),
					 .flush_cnt = atomic_load(&fs->flush_cnt),
					 .frame_cnt = atomic_load(&fs->frame_cnt),
					 .journal_bytes = atomic_load(&fs->journal_bytes),
					 .snapshot_cnt = atomic_load(&fs->snapshot_cnt),
					 .failed = atomic_load(&fs->failed)};
	lpi_blockfs_lock(&fs->lock);
	stats.file_cnt = fs->table.by_name.cnt;
	for (size_t i = 0; i < fs->table.by_name.cnt; i++) {
		const struct lpi_file *file = fs->table.by_name.files[i];
		stats.bytes[kind_of(file->name)] += file->size_bytes;
	}
	stats.journal_live_bytes = fs->table.live_bytes;
	lpi_unlock(&fs->lock);
	stats.journal_live_max_bytes = fs->live_max_bytes;
	space_stats(&fs->space, &stats);
	*ret_stats = stats;
}

static uint64_t file_blocks(const struct lpi_file *file)
{
	LP_ASSERT(lpi_map_blocks(&file->map) == file->block_cnt);
	return lpi_map_blocks(&file->map) + lpi_map_blocks(&file->table_map);
}

int lp_blockfs_check(struct lp_blockfs *fs)
{
	uint64_t blocks = 0;
	uint64_t live_bytes = LPI_RECORD_STATE_BYTES;
	const struct lpi_file *file;
	const struct lp_blockfs_writer *writer;
	struct lp_blockfs_stats stats = {.used_bytes = 0};
	lpi_blockfs_lock(&fs->lock);
	for (size_t i = 0; i < fs->table.by_id.cnt; i++) {
		blocks += file_blocks(fs->table.by_id.files[i]);
		live_bytes += lpi_record_file_bytes(fs->table.by_id.files[i]);
	}
	LP_LIST_FOREACH (lpi_file_list, &fs->table.unlinked, file)
		blocks += file_blocks(file);
	LP_LIST_FOREACH (lpi_writer_list, &fs->writers, writer)
		blocks += lpi_map_blocks(&writer->pending) + writer->spare.cnt;
	bool live_is_right = live_bytes == fs->table.live_bytes;
	lpi_unlock(&fs->lock);
	space_stats(&fs->space, &stats);
	if (stats.used_bytes != blocks * LP_BLOCK_BYTES)
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "blockfs: %llu blocks are allocated, files have %llu",
				  (unsigned long long)(stats.used_bytes / LP_BLOCK_BYTES),
				  (unsigned long long)blocks);
	if (!live_is_right)
		return LP_CORRUPT(LP_OFFSET_NONE, "blockfs: live bytes of the journal");
	return 0;
}

int lp_blockfs_verify(struct lp_blockfs *fs, const char *name)
{
	struct lp_blockfs_reader *reader = NULL;
	uint64_t offset = 0;
	uint64_t got = VERIFY_BYTES;
	uint8_t *buf = aligned_alloc(LP_BLOCK_BYTES, VERIFY_BYTES);
	if (buf == NULL)
		return -ENOMEM;
	int err = lp_blockfs_open_reader(fs, name, &reader);
	while (err == 0 && got == VERIFY_BYTES) {
		err = lp_blockfs_pread(reader, buf, VERIFY_BYTES, offset, &got);
		offset += got;
	}
	lp_blockfs_close_reader(reader);
	free(buf);
	return err;
}
