/* SPDX-License-Identifier: Apache-2.0 */
/* The files of a file system in memory, found by name and by id in two sorted arrays (some
 * thousands of pointers: moving them costs less than a tree's misses), and the records that
 * describe them. Whatever a change needs in memory is reserved before its record is written, so
 * that applying a durable record cannot fail. */
#include "store/blockfs/impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/cursor.h"
#include "base/error.h"

/* --- Indices --------------------------------------------------------------------------------- */

static int index_reserve(struct lpi_index *index)
{
	if (index->cnt < index->room)
		return 0;
	size_t room = LP_MAX(64, index->room * 2);
	struct lpi_file **files = reallocarray((void *)index->files, room, sizeof(void *));
	if (files == NULL)
		return -ENOMEM;
	index->files = files;
	index->room = room;
	return 0;
}

static void index_insert(struct lpi_index *index, size_t pos, struct lpi_file *file)
{
	LP_ASSERT(index->cnt < index->room);
	LP_ASSERT(pos <= index->cnt);
	memmove((void *)(index->files + pos + 1), (void *)(index->files + pos),
		(index->cnt - pos) * sizeof(void *));
	index->files[pos] = file;
	index->cnt++;
}

static void index_remove(struct lpi_index *index, size_t pos)
{
	LP_ASSERT(pos < index->cnt);
	index->cnt--;
	memmove((void *)(index->files + pos), (void *)(index->files + pos + 1),
		(index->cnt - pos) * sizeof(void *));
}

size_t lpi_table_lower(const struct lpi_table *table, const char *name)
{
	size_t low = 0;
	size_t high = table->by_name.cnt;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (strcmp(table->by_name.files[mid]->name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static size_t id_lower(const struct lpi_table *table, uint64_t file_id)
{
	size_t low = 0;
	size_t high = table->by_id.cnt;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (table->by_id.files[mid]->id < file_id)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

struct lpi_file *lpi_table_find(const struct lpi_table *table, const char *name)
{
	size_t pos = lpi_table_lower(table, name);
	if (pos == table->by_name.cnt || strcmp(table->by_name.files[pos]->name, name) != 0)
		return NULL;
	return table->by_name.files[pos];
}

struct lpi_file *lpi_table_find_id(const struct lpi_table *table, uint64_t file_id)
{
	size_t pos = id_lower(table, file_id);
	if (pos == table->by_id.cnt || table->by_id.files[pos]->id != file_id)
		return NULL;
	return table->by_id.files[pos];
}

/* --- The table ------------------------------------------------------------------------------- */

void lpi_table_init(struct lpi_table *table)
{
	*table = (struct lpi_table){.next_file_id = 1};
	table->live_bytes = LPI_RECORD_STATE_BYTES;
	lpi_file_list_init(&table->unlinked);
}

void lpi_table_fini(struct lpi_table *table)
{
	LP_ASSERT(lpi_file_list_is_empty(&table->unlinked));
	for (size_t i = 0; i < table->by_id.cnt; i++)
		lpi_file_free(table->by_id.files[i]);
	free((void *)table->by_id.files);
	free((void *)table->by_name.files);
}

int lpi_table_reserve(struct lpi_table *table)
{
	int err = index_reserve(&table->by_name);
	return err < 0 ? err : index_reserve(&table->by_id);
}

void lpi_table_unlink(struct lpi_table *table, struct lpi_file *file)
{
	LP_ASSERT(file->named);
	size_t name_pos = lpi_table_lower(table, file->name);
	size_t id_pos = id_lower(table, file->id);
	LP_ASSERT(table->by_name.files[name_pos] == file);
	LP_ASSERT(table->by_id.files[id_pos] == file);
	table->live_bytes -= lpi_record_file_bytes(file);
	index_remove(&table->by_name, name_pos);
	index_remove(&table->by_id, id_pos);
	file->named = false;
	lpi_file_list_push_back(&table->unlinked, file);
}

struct lpi_file *lpi_table_insert(struct lpi_table *table, struct lpi_file *file)
{
	LP_ASSERT(!file->named && file->id >= 1);
	struct lpi_file *old = lpi_table_find(table, file->name);
	if (old != NULL)
		lpi_table_unlink(table, old);
	index_insert(&table->by_name, lpi_table_lower(table, file->name), file);
	index_insert(&table->by_id, id_lower(table, file->id), file);
	file->named = true;
	table->next_file_id = LP_MAX(table->next_file_id, file->id + 1);
	table->live_bytes += lpi_record_file_bytes(file);
	return old;
}

struct lpi_file *lpi_table_rename(struct lpi_table *table, struct lpi_file *file, char **take_name)
{
	LP_ASSERT(file->named);
	struct lpi_file *old = lpi_table_find(table, *take_name);
	LP_ASSERT(old != file);
	if (old != NULL)
		lpi_table_unlink(table, old);
	table->live_bytes -= lpi_record_file_bytes(file);
	index_remove(&table->by_name, lpi_table_lower(table, file->name));
	free(file->name);
	file->name = *take_name;
	*take_name = NULL;
	index_insert(&table->by_name, lpi_table_lower(table, file->name), file);
	table->live_bytes += lpi_record_file_bytes(file);
	return old;
}

/* --- One file -------------------------------------------------------------------------------- */

struct lpi_file *lpi_file_new(uint64_t file_id, const char *name, int64_t mtime_ns)
{
	struct lpi_file *file = calloc(1, sizeof(*file));
	if (file == NULL)
		return NULL;
	file->name = strdup(name);
	if (file->name == NULL) {
		free(file);
		return NULL;
	}
	file->id = file_id;
	file->mtime_ns = mtime_ns;
	return file;
}

void lpi_file_free(struct lpi_file *file)
{
	if (file == NULL)
		return;
	LP_ASSERT(file->ref_cnt == 0);
	lpi_map_fini(&file->map);
	lpi_map_fini(&file->table_map);
	free(file->crcs);
	free(file->table_crcs);
	free(file->tail);
	free(file->name);
	free(file);
}

static size_t inline_crcs(const struct lpi_file *file)
{
	return (size_t)(file->block_cnt - file->table_blocks);
}

int lpi_file_reserve(struct lpi_file *file, const struct lpi_publish *publish)
{
	int err = lpi_map_reserve(&file->map, publish->added.cnt);
	if (err < 0)
		return err;
	size_t need = inline_crcs(file) + publish->crc_cnt;
	if (file->crc_room < need) {
		size_t room = LP_MAX(need, 2 * file->crc_room);
		uint32_t *crcs = reallocarray(file->crcs, room, sizeof(crcs[0]));
		if (crcs == NULL)
			return -ENOMEM;
		file->crcs = crcs;
		file->crc_room = room;
	}
	if (publish->tail_bytes != 0 && file->tail == NULL) {
		file->tail = malloc(LP_BLOCK_BYTES);
		if (file->tail == NULL)
			return -ENOMEM;
	}
	return 0;
}

void lpi_file_publish(struct lpi_table *table, struct lpi_file *file,
		      const struct lpi_publish *publish, struct lpi_map *ret_old_table)
{
	LP_ASSERT(!file->finished);
	table->live_bytes -= lpi_record_file_bytes(file);
	*ret_old_table = (struct lpi_map){.runs = NULL};
	size_t kept = publish->has_table ? 0 : inline_crcs(file);
	for (size_t i = 0; i < publish->added.cnt; i++)
		lpi_map_append(&file->map, publish->added.runs[i]);
	file->block_cnt += lpi_map_blocks(&publish->added);
	if (publish->has_table) {
		*ret_old_table = file->table_map;
		file->table_map = publish->table_map;
		file->table_blocks = file->block_cnt - publish->crc_cnt;
		file->table_crc = publish->table_crc;
	}
	LP_ASSERT(publish->crc_cnt == 0 || publish->crcs != NULL);
	if (publish->crc_cnt != 0)
		memcpy(file->crcs + kept, publish->crcs, publish->crc_cnt * sizeof(uint32_t));
	if (publish->tail_bytes != 0)
		memcpy(file->tail, publish->tail, publish->tail_bytes);
	file->tail_bytes = publish->tail_bytes;
	file->size_bytes = publish->size_bytes;
	file->mtime_ns = publish->mtime_ns;
	file->finished = publish->finished;
	table->live_bytes += lpi_record_file_bytes(file);
}

/* --- Records, out ---------------------------------------------------------------------------- */

static void put_head(struct lp_writer *out, enum lp_blockfs_type type, size_t record_bytes)
{
	struct lp_blockfs_record record = {
		.type = (uint16_t)type,
		.length_bytes = (uint32_t)(record_bytes - LP_BLOCKFS_RECORD_SIZE)};
	uint8_t *bytes = lp_writer_reserve(out, LP_BLOCKFS_RECORD_SIZE);
	LP_ASSERT(bytes != NULL);
	lp_blockfs_record_encode(&record, bytes);
}

size_t lpi_record_name_bytes(const char *name)
{
	return LP_BLOCKFS_RECORD_SIZE + LP_BLOCKFS_NAME_SIZE + strlen(name);
}

void lpi_record_put_name(struct lp_writer *out, enum lp_blockfs_type type, uint64_t file_id,
			 int64_t mtime_ns, const char *name)
{
	struct lp_blockfs_name body = {
		.file_id = file_id, .mtime_ns = mtime_ns, .name_bytes = (uint16_t)strlen(name)};
	put_head(out, type, lpi_record_name_bytes(name));
	uint8_t *bytes = lp_writer_reserve(out, LP_BLOCKFS_NAME_SIZE);
	LP_ASSERT(bytes != NULL);
	lp_blockfs_name_encode(&body, bytes);
	lp_writer_bytes(out, name, body.name_bytes);
}

void lpi_record_put_delete(struct lp_writer *out, uint64_t file_id)
{
	put_head(out, LP_BLOCKFS_TYPE_DELETE, LPI_RECORD_DELETE_BYTES);
	lp_writer_u64(out, file_id);
}

void lpi_record_put_state(struct lp_writer *out, uint64_t next_file_id)
{
	put_head(out, LP_BLOCKFS_TYPE_STATE, LPI_RECORD_STATE_BYTES);
	lp_writer_u64(out, next_file_id);
	lp_writer_u64(out, 0);
}

size_t lpi_record_publish_bytes(const struct lpi_publish *publish)
{
	return LP_BLOCKFS_RECORD_SIZE + LP_BLOCKFS_PUBLISH_SIZE +
	       (publish->added.cnt + publish->table_map.cnt) * LP_BLOCKFS_EXTENT_SIZE +
	       publish->crc_cnt * sizeof(uint32_t) + publish->tail_bytes;
}

static void put_map(struct lp_writer *out, const uint8_t *roles, const struct lpi_map *map)
{
	for (size_t i = 0; i < map->cnt; i++) {
		struct lp_blockfs_extent extent = {.block = map->runs[i].block,
						   .block_cnt = map->runs[i].cnt,
						   .role = roles[map->runs[i].tier]};
		uint8_t *bytes = lp_writer_reserve(out, LP_BLOCKFS_EXTENT_SIZE);
		LP_ASSERT(bytes != NULL);
		lp_blockfs_extent_encode(&extent, bytes);
	}
}

void lpi_record_put_publish(struct lp_writer *out, const uint8_t *roles, uint64_t file_id,
			    const struct lpi_publish *publish)
{
	struct lp_blockfs_publish body = {
		.file_id = file_id,
		.size_bytes = publish->size_bytes,
		.mtime_ns = publish->mtime_ns,
		.flags = (publish->finished ? LP_BLOCKFS_FLAG_FINISHED : 0) |
			 (publish->has_table ? LP_BLOCKFS_FLAG_TABLE : 0),
		.extent_cnt = (uint32_t)publish->added.cnt,
		.table_extent_cnt = (uint32_t)publish->table_map.cnt,
		.table_crc = publish->table_crc,
		.crc_cnt = (uint32_t)publish->crc_cnt,
		.tail_bytes = publish->tail_bytes};
	put_head(out, LP_BLOCKFS_TYPE_PUBLISH, lpi_record_publish_bytes(publish));
	uint8_t *bytes = lp_writer_reserve(out, LP_BLOCKFS_PUBLISH_SIZE);
	LP_ASSERT(bytes != NULL);
	lp_blockfs_publish_encode(&body, bytes);
	put_map(out, roles, &publish->added);
	put_map(out, roles, &publish->table_map);
	for (size_t i = 0; i < publish->crc_cnt; i++)
		lp_writer_u32(out, publish->crcs[i]);
	if (publish->tail_bytes != 0)
		lp_writer_bytes(out, publish->tail, publish->tail_bytes);
}

/* A whole file as one publish to an empty one. */
static struct lpi_publish publish_of(const struct lpi_file *file)
{
	return (struct lpi_publish){.size_bytes = file->size_bytes,
				    .mtime_ns = file->mtime_ns,
				    .finished = file->finished,
				    .has_table = file->table_blocks != 0,
				    .table_crc = file->table_crc,
				    .added = file->map,
				    .table_map = file->table_map,
				    .crcs = file->crcs,
				    .crc_cnt = inline_crcs(file),
				    .tail = file->tail,
				    .tail_bytes = file->tail_bytes};
}

size_t lpi_record_file_bytes(const struct lpi_file *file)
{
	struct lpi_publish publish = publish_of(file);
	return lpi_record_name_bytes(file->name) + lpi_record_publish_bytes(&publish);
}

void lpi_record_put_file(struct lp_writer *out, const uint8_t *roles, const struct lpi_file *file)
{
	struct lpi_publish publish = publish_of(file);
	lpi_record_put_name(out, LP_BLOCKFS_TYPE_CREATE, file->id, file->mtime_ns, file->name);
	lpi_record_put_publish(out, roles, file->id, &publish);
}

/* --- Records, in ----------------------------------------------------------------------------- */

struct apply {
	struct lpi_table *table;
	const uint8_t *tier_of; /* by role */
	uint64_t offset_bytes;  /* of the frame, for messages */
};

static int broken(const struct apply *apply, const char *what)
{
	return LP_CORRUPT(apply->offset_bytes, "blockfs journal: %s", what);
}

/* In a replay nobody has a file open. */
static void drop(struct lpi_file *file)
{
	if (file == NULL)
		return;
	lpi_file_list_remove(file);
	lpi_file_free(file);
}

static int apply_state(struct apply *apply, struct lp_reader *in)
{
	uint64_t next_file_id = lp_reader_u64(in);
	uint64_t reserved = lp_reader_u64(in);
	if (!lp_reader_finish(in) || reserved != 0 || next_file_id == 0)
		return broken(apply, "a bad state record");
	apply->table->next_file_id = LP_MAX(apply->table->next_file_id, next_file_id);
	return 0;
}

static int read_name(struct apply *apply, struct lp_reader *in, struct lp_blockfs_name *ret_body,
		     char *ret_name)
{
	const uint8_t *bytes = lp_reader_bytes(in, LP_BLOCKFS_NAME_SIZE);
	if (bytes == NULL)
		return broken(apply, "a short name record");
	lp_blockfs_name_decode(bytes, ret_body);
	const uint8_t *name = lp_reader_bytes(in, ret_body->name_bytes);
	if (!lp_reader_finish(in) || !lp_blockfs_name_reserved_is_zero(ret_body) ||
	    ret_body->name_bytes == 0 || ret_body->name_bytes > LP_BLOCKFS_NAME_MAX ||
	    memchr(name, 0, ret_body->name_bytes) != NULL)
		return broken(apply, "a bad name record");
	memcpy(ret_name, name, ret_body->name_bytes);
	ret_name[ret_body->name_bytes] = 0;
	return 0;
}

static int apply_create(struct apply *apply, struct lp_reader *in)
{
	struct lp_blockfs_name body = {.file_id = 0};
	char name[LP_BLOCKFS_NAME_MAX + 1];
	int err = read_name(apply, in, &body, name);
	if (err < 0)
		return err;
	if (body.file_id == 0 || body.file_id == UINT64_MAX ||
	    lpi_table_find_id(apply->table, body.file_id) != NULL)
		return broken(apply, "a file is created with an id that is taken");
	struct lpi_file *file = lpi_file_new(body.file_id, name, body.mtime_ns);
	if (file == NULL)
		return -ENOMEM;
	err = lpi_table_reserve(apply->table);
	if (err < 0) {
		lpi_file_free(file);
		return err;
	}
	drop(lpi_table_insert(apply->table, file));
	return 0;
}

static int apply_rename(struct apply *apply, struct lp_reader *in)
{
	struct lp_blockfs_name body = {.file_id = 0};
	char name[LP_BLOCKFS_NAME_MAX + 1];
	int err = read_name(apply, in, &body, name);
	if (err < 0)
		return err;
	struct lpi_file *file = lpi_table_find_id(apply->table, body.file_id);
	if (file == NULL)
		return broken(apply, "a file is renamed that does not exist");
	if (strcmp(file->name, name) == 0)
		return broken(apply, "a file is renamed to its own name");
	char *copy = strdup(name);
	if (copy == NULL)
		return -ENOMEM;
	drop(lpi_table_rename(apply->table, file, &copy));
	return 0;
}

static int apply_delete(struct apply *apply, struct lp_reader *in)
{
	uint64_t file_id = lp_reader_u64(in);
	if (!lp_reader_finish(in))
		return broken(apply, "a bad delete record");
	struct lpi_file *file = lpi_table_find_id(apply->table, file_id);
	if (file == NULL)
		return broken(apply, "a file is deleted that does not exist");
	lpi_table_unlink(apply->table, file);
	drop(file);
	return 0;
}

static int read_map(struct apply *apply, struct lp_reader *in, uint32_t cnt,
		    struct lpi_map *ret_map)
{
	if (!lp_reader_expect(in, cnt, LP_BLOCKFS_EXTENT_SIZE))
		return broken(apply, "a publish record is too short for its extents");
	int err = cnt == 0 ? 0 : lpi_map_reserve(ret_map, cnt);
	for (uint32_t i = 0; i < cnt && err == 0; i++) {
		struct lp_blockfs_extent extent;
		const uint8_t *bytes = lp_reader_bytes(in, LP_BLOCKFS_EXTENT_SIZE);
		LP_ASSERT(bytes != NULL);
		lp_blockfs_extent_decode(bytes, &extent);
		if (!lp_blockfs_extent_reserved_is_zero(&extent) || extent.block_cnt == 0 ||
		    extent.block >= UINT64_MAX / LP_BLOCK_BYTES - extent.block_cnt ||
		    extent.role > LP_DISK_ROLE_WAL || apply->tier_of[extent.role] == LPI_TIER_MAX)
			return broken(apply, "a bad extent");
		lpi_map_append(ret_map, (struct lpi_run){.block = extent.block,
							 .cnt = extent.block_cnt,
							 .tier = apply->tier_of[extent.role]});
	}
	return err;
}

/* Whether the parts of a publish add up with what the file has. */
static bool adds_up(const struct lpi_file *file, const struct lpi_publish *publish)
{
	uint64_t added = lpi_map_blocks(&publish->added);
	uint64_t blocks = file->block_cnt + added;
	uint64_t bytes = blocks * LP_BLOCK_BYTES;
	if (file->finished || blocks >= UINT64_MAX / LP_BLOCK_BYTES || publish->crc_cnt > added)
		return false;
	uint64_t table_blocks = publish->has_table ? blocks - publish->crc_cnt : file->table_blocks;
	uint64_t table_need = lp_bytes_to_blocks_up(table_blocks * sizeof(uint32_t));
	if (publish->has_table) {
		if (table_blocks == 0 || lpi_map_blocks(&publish->table_map) != table_need)
			return false;
	} else if (publish->crc_cnt != added || publish->table_map.cnt != 0) {
		return false;
	}
	if (publish->size_bytes < file->size_bytes)
		return false;
	if (publish->tail_bytes != 0 || !publish->finished || bytes == 0)
		return publish->size_bytes == bytes + publish->tail_bytes;
	return publish->size_bytes <= bytes && publish->size_bytes > bytes - LP_BLOCK_BYTES;
}

static int read_publish(struct apply *apply, struct lp_reader *in, struct lpi_publish *publish,
			uint32_t **ret_crcs, uint64_t *ret_file_id)
{
	struct lp_blockfs_publish body;
	const uint8_t *bytes = lp_reader_bytes(in, LP_BLOCKFS_PUBLISH_SIZE);
	if (bytes == NULL)
		return broken(apply, "a short publish record");
	lp_blockfs_publish_decode(bytes, &body);
	if ((body.flags & ~LP_BLOCKFS_FLAG_ALL) != 0 || body.tail_bytes >= LP_BLOCK_BYTES)
		return broken(apply, "unknown flags or a long tail in a publish record");
	publish->size_bytes = body.size_bytes;
	publish->mtime_ns = body.mtime_ns;
	publish->finished = (body.flags & LP_BLOCKFS_FLAG_FINISHED) != 0;
	publish->has_table = (body.flags & LP_BLOCKFS_FLAG_TABLE) != 0;
	publish->table_crc = body.table_crc;
	publish->tail_bytes = body.tail_bytes;
	publish->crc_cnt = body.crc_cnt;
	int err = read_map(apply, in, body.extent_cnt, &publish->added);
	if (err == 0)
		err = read_map(apply, in, body.table_extent_cnt, &publish->table_map);
	if (err < 0)
		return err;
	if (!lp_reader_expect(in, body.crc_cnt, sizeof(uint32_t)))
		return broken(apply, "a publish record is too short for its crcs");
	if (body.crc_cnt != 0) {
		*ret_crcs = reallocarray(NULL, body.crc_cnt, sizeof(uint32_t));
		if (*ret_crcs == NULL)
			return -ENOMEM;
	}
	for (uint32_t i = 0; i < body.crc_cnt; i++)
		(*ret_crcs)[i] = lp_reader_u32(in);
	publish->crcs = *ret_crcs;
	publish->tail = lp_reader_bytes(in, body.tail_bytes);
	*ret_file_id = body.file_id;
	return lp_reader_finish(in) ? 0 : broken(apply, "a publish record of a wrong length");
}

/* Takes publish->table_map. */
static int publish_to(struct apply *apply, struct lpi_file *file, struct lpi_publish *publish)
{
	struct lpi_map old_table = {.runs = NULL};
	if (file == NULL)
		return broken(apply, "a file is published that does not exist");
	if (!adds_up(file, publish))
		return broken(apply, "a publish record does not add up");
	int err = lpi_file_reserve(file, publish);
	if (err < 0)
		return err;
	lpi_file_publish(apply->table, file, publish, &old_table);
	lpi_map_fini(&old_table);
	publish->table_map = (struct lpi_map){.runs = NULL};
	return 0;
}

static int apply_publish(struct apply *apply, struct lp_reader *in)
{
	uint64_t file_id = 0;
	uint32_t *crcs = NULL;
	struct lpi_publish publish = {.size_bytes = 0};
	int err = read_publish(apply, in, &publish, &crcs, &file_id);
	if (err == 0)
		err = publish_to(apply, lpi_table_find_id(apply->table, file_id), &publish);
	lpi_map_fini(&publish.added);
	lpi_map_fini(&publish.table_map);
	free(crcs);
	return err;
}

static int apply_record(struct apply *apply, uint16_t type, struct lp_reader *in)
{
	switch (type) {
	case LP_BLOCKFS_TYPE_STATE:
		return apply_state(apply, in);
	case LP_BLOCKFS_TYPE_CREATE:
		return apply_create(apply, in);
	case LP_BLOCKFS_TYPE_PUBLISH:
		return apply_publish(apply, in);
	case LP_BLOCKFS_TYPE_DELETE:
		return apply_delete(apply, in);
	case LP_BLOCKFS_TYPE_RENAME:
		return apply_rename(apply, in);
	default:
		return broken(apply, "a record of an unknown type");
	}
}

int lpi_records_apply(struct lpi_table *table, const uint8_t *tier_of, const void *bytes,
		      size_t len, uint64_t offset_bytes)
{
	struct apply apply = {.table = table, .tier_of = tier_of, .offset_bytes = offset_bytes};
	struct lp_reader in;
	lp_reader_init(&in, bytes, len);
	while (lp_reader_remaining(&in) != 0) {
		struct lp_blockfs_record record;
		struct lp_reader body;
		const uint8_t *head = lp_reader_bytes(&in, LP_BLOCKFS_RECORD_SIZE);
		if (head == NULL)
			return broken(&apply, "a short record");
		lp_blockfs_record_decode(head, &record);
		const uint8_t *body_bytes = lp_reader_bytes(&in, record.length_bytes);
		if (body_bytes == NULL || record.reserved != 0)
			return broken(&apply, "a record beyond its frame");
		lp_reader_init(&body, body_bytes, record.length_bytes);
		int err = apply_record(&apply, record.type, &body);
		if (err < 0)
			return err;
	}
	return 0;
}
