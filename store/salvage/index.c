/* SPDX-License-Identifier: Apache-2.0 */
/* Each value is stored behind 10 bytes: its order, the shard it is from, and whether it is a
 * deletion. Orders of one shard can be compared. Of two shards a record that is there counts more
 * than one that is deleted: a name may have moved from one to the other.
 */
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/endian.h"
#include "store/commit/owed_records.h"
#include "store/record/values.h"
#include "store/salvage/record_check.h"
#include "store/salvage/salvage_impl.h"

#define HEAD_BYTES    10u
#define PAYLOAD_BYTES 13u
#define STALL_US      1000u

/* The offset of one on the device; a whole block is one itself. */
#define PAYLOAD_OFFSET_BYTES 8u

struct origin {
	uint64_t order;
	uint8_t shard_idx;
	bool is_deletion;
};

static void put_origin(uint8_t *bytes, const struct origin *origin)
{
	lp_put_le64(bytes, origin->order);
	bytes[8] = origin->shard_idx;
	bytes[9] = origin->is_deletion;
}

static struct origin get_origin(const uint8_t *bytes)
{
	return (struct origin){lp_get_le64(bytes), bytes[8], bytes[9] != 0};
}

struct lp_kv_bytes lpi_salvage_strip(struct lp_kv_bytes stored)
{
	LP_ASSERT(stored.len >= HEAD_BYTES);
	const uint8_t *bytes = stored.data;
	if (get_origin(bytes).is_deletion)
		return (struct lp_kv_bytes){NULL, 0};
	return (struct lp_kv_bytes){bytes + HEAD_BYTES, stored.len - HEAD_BYTES};
}

int lpi_salvage_put(struct lp_salvage *salvage, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	lp_kv_batch_clear(salvage->batch);
	int err = lp_kv_batch_put(salvage->batch, key, value);
	while (err == 0) {
		err = lp_kv_write(salvage->kv, salvage->batch);
		if (err != -EAGAIN)
			break;
		(void)usleep(STALL_US); /* the flush that is waited for runs on other threads */
		err = 0;
	}
	return err;
}

/* --- Which records are believed --------------------------------------------------------------- */

/* What says how far the index or the space is written down is of that index alone. */
static bool is_of_one_index(const struct lp_key_view *view)
{
	static const char *const names[] = {"applied", "alloc"};
	for (unsigned i = 0; i < LP_ARRAY_SIZE(names); i++) {
		if (view->name_len == strlen(names[i]) &&
		    memcmp(view->name, names[i], view->name_len) == 0)
			return true;
	}
	return false;
}

static bool is_wanted(const struct lp_salvage *salvage, const struct lp_key_view *view)
{
	switch (view->space) {
	case LP_KEY_SPACE_INODE:
	case LP_KEY_SPACE_DIRENT:
	case LP_KEY_SPACE_MAP:
	case LP_KEY_SPACE_UNFINISHED:
	case LP_KEY_SPACE_XATTR:
	case LP_KEY_SPACE_OMAP:
		return true;
	case LP_KEY_SPACE_FRAGMENT:
	case LP_KEY_SPACE_REFS:
	case LP_KEY_SPACE_TXN:
		return salvage->options.for_index;
	case LP_KEY_SPACE_STORE:
		return salvage->options.for_index && !is_of_one_index(view);
	case LP_KEY_SPACE_DEFERRED:
		break;
	}
	return false;
}

static bool is_newer(const struct origin *one, const struct origin *than)
{
	if (one->shard_idx == than->shard_idx)
		return one->order >= than->order;
	return than->is_deletion && !one->is_deletion;
}

static int put_if_newer(struct lp_salvage *salvage, struct lp_kv_bytes key,
			struct lp_kv_bytes value, const struct origin *origin)
{
	struct lp_kv_value old;
	int err = lp_kv_get(salvage->kv, key, &old);
	if (err == 0) {
		const struct origin of_old = get_origin(old.bytes.data);
		bool is_old = !is_newer(origin, &of_old);
		lp_kv_value_release(&old);
		if (is_old)
			return 0;
	} else if (err != -ENOENT) {
		return err;
	}
	put_origin(salvage->value, origin);
	if (value.len > 0)
		memcpy(salvage->value + HEAD_BYTES, value.data, value.len);
	return lpi_salvage_put(salvage, key,
			       (struct lp_kv_bytes){salvage->value, HEAD_BYTES + value.len});
}

/* --- Payloads --------------------------------------------------------------------------------- */

static struct lp_kv_bytes payload_key(uint8_t *bytes, uint64_t device_block, uint32_t crc)
{
	bytes[0] = LPI_SALVAGE_PAYLOAD;
	lp_put_le64(bytes + 1, device_block);
	lp_put_le32(bytes + 9, crc);
	return (struct lp_kv_bytes){bytes, PAYLOAD_BYTES};
}

int lpi_salvage_add_payload(struct lp_salvage *salvage, uint64_t device_block, uint32_t crc,
			    uint64_t offset_bytes)
{
	uint8_t key[PAYLOAD_BYTES];
	uint8_t value[PAYLOAD_OFFSET_BYTES];
	lp_put_le64(value, offset_bytes);
	return lpi_salvage_put(salvage, payload_key(key, device_block, crc),
			       (struct lp_kv_bytes){value, sizeof(value)});
}

static int add_deferred(struct lp_salvage *salvage, const struct lp_key *key,
			struct lp_kv_bytes value)
{
	uint8_t bytes[PAYLOAD_BYTES];
	struct lp_deferred_value head;
	if (lp_deferred_read(value.data, value.len, key, &head) < 0) {
		salvage->report.bad_records++;
		return 0;
	}
	const uint8_t *block = (const uint8_t *)value.data + LP_DEFERRED_VALUE_SIZE;
	return lpi_salvage_put(salvage, payload_key(bytes, head.device_block, head.block_crc),
			       (struct lp_kv_bytes){block, LP_BLOCK_BYTES});
}

int lpi_salvage_find_payload(struct lp_salvage *salvage, uint64_t device_block, uint32_t crc,
			     uint8_t *buf)
{
	uint8_t key[PAYLOAD_BYTES];
	struct lp_kv_value value;
	int err = lp_kv_get(salvage->kv, payload_key(key, device_block, crc), &value);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	if (value.bytes.len == LP_BLOCK_BYTES)
		memcpy(buf, value.bytes.data, LP_BLOCK_BYTES);
	else
		lpi_salvage_read_blocks(salvage->log_bdev, buf,
					lp_get_le64(value.bytes.data) / LP_BLOCK_BYTES, 1);
	lp_kv_value_release(&value);
	return lp_crc32c(0, buf, LP_BLOCK_BYTES) == crc;
}

/* --- Records ---------------------------------------------------------------------------------- */

static void note_applied(struct lp_salvage *salvage, const struct lp_key_view *view,
			 struct lp_kv_bytes value, uint64_t order)
{
	static const char name[] = "applied";
	uint64_t applied = 0;
	uint64_t whole = 0;
	if (view->has_number || view->name_len != sizeof(name) - 1 ||
	    memcmp(view->name, name, sizeof(name) - 1) != 0 || order < salvage->applied_order)
		return;
	if (lp_applied_decode(value, &applied, &whole) < 0)
		return;
	salvage->applied_order = order;
	salvage->whole_seq = whole;
}

int lpi_salvage_add(struct lp_salvage *salvage, struct lp_kv_bytes key, struct lp_kv_bytes value,
		    uint64_t order)
{
	const struct origin origin = {order, (uint8_t)salvage->shard_idx, value.data == NULL};
	struct lp_key_view view;
	struct lp_key copy;
	if (key.len > sizeof(copy.bytes) || lp_key_parse(key.data, key.len, &view) < 0)
		return 0;
	copy.len = key.len;
	memcpy(copy.bytes, key.data, key.len);
	salvage->report.changes_under_way += view.space == LP_KEY_SPACE_TXN && !origin.is_deletion;
	if (view.space == LP_KEY_SPACE_STORE && !origin.is_deletion)
		note_applied(salvage, &view, value, order);
	if (view.space == LP_KEY_SPACE_DEFERRED && !origin.is_deletion)
		return add_deferred(salvage, &copy, value);
	if (!is_wanted(salvage, &view))
		return 0;
	if (!origin.is_deletion && !lpi_record_is_right(key, value)) {
		salvage->report.bad_records++;
		return 0;
	}
	return put_if_newer(salvage, key, value, &origin);
}

int lpi_salvage_get(struct lp_salvage *salvage, const struct lp_key *key,
		    struct lp_kv_value *ret_value, struct lp_kv_bytes *ret_bytes)
{
	int err = lp_kv_get(salvage->kv, (struct lp_kv_bytes){key->bytes, key->len}, ret_value);
	if (err < 0)
		return err;
	*ret_bytes = lpi_salvage_strip(ret_value->bytes);
	if (ret_bytes->data != NULL)
		return 0;
	lp_kv_value_release(ret_value);
	return -ENOENT;
}

/* --- For an index ----------------------------------------------------------------------------- */

int lp_salvage_each_record(struct lp_salvage *salvage,
			   int (*each)(void *arg, struct lp_kv_bytes key, struct lp_kv_bytes value),
			   void *arg)
{
	const struct lp_kv_bytes open_end = {NULL, 0};
	struct lp_kv_iter *iter = NULL;
	int result = 0;
	int err = lp_kv_iter_open(salvage->kv, open_end, open_end, false, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0 && result >= 0;
	     err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		uint8_t space = *(const uint8_t *)key.data;
		if (space == LPI_SALVAGE_PAYLOAD || space == LPI_SALVAGE_VISITED)
			continue;
		struct lp_kv_bytes value = lpi_salvage_strip(lp_kv_iter_value(iter));
		if (value.data != NULL)
			result = each(arg, key, value);
	}
	lp_kv_iter_close(iter);
	if (result < 0)
		return result;
	return err == -ENOENT ? 0 : err;
}

int lp_salvage_each_payload(struct lp_salvage *salvage, int (*each)(void *arg, uint64_t block),
			    void *arg)
{
	const uint8_t first = LPI_SALVAGE_PAYLOAD;
	const uint8_t end = LPI_SALVAGE_PAYLOAD + 1;
	struct lp_kv_iter *iter = NULL;
	int result = 0;
	int err = lp_kv_iter_open(salvage->kv, (struct lp_kv_bytes){&first, 1},
				  (struct lp_kv_bytes){&end, 1}, false, &iter);
	if (err < 0)
		return err;
	for (err = lp_kv_iter_seek_first(iter); err == 0 && result >= 0;
	     err = lp_kv_iter_next(iter)) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		LP_ASSERT(key.len == PAYLOAD_BYTES);
		result = each(arg, lp_get_le64((const uint8_t *)key.data + 1));
	}
	lp_kv_iter_close(iter);
	if (result < 0)
		return result;
	return err == -ENOENT ? 0 : err;
}

int lp_salvage_find_payload(struct lp_salvage *salvage, uint64_t block, uint32_t crc, uint8_t *buf)
{
	return lpi_salvage_find_payload(salvage, block, crc, buf);
}
