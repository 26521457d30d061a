/* SPDX-License-Identifier: Apache-2.0 */
/* Calls go to whatever kind of store it is. A list is packed into its buffer record by record: a
 * head of fixed size, then name and value; only entries have more than those two. */
#include "store/store_kinds.h"

#include "base/crc32c.h"
#include "base/endian.h"
#include "base/error.h"
#include "store/view.h"

void lpi_note_index(const struct lp_kv_stats *kv, struct lp_store_stats *stats)
{
	stats->index_stalls = kv->stall_cnt;
	stats->index_stops = kv->stop_cnt;
	stats->index_stalled_ns = kv->stalled_ns;
	stats->index_refused = kv->refused_cnt;
	stats->index_flushes = kv->flush_cnt;
	stats->index_compactions = kv->compact_cnt;
	stats->index_flushes_waiting = kv->waiting_cnt;
	stats->index_flushing = kv->flushing;
	stats->index_compacting = kv->compacting;
	stats->index_debt_bytes = kv->debt_bytes;
	stats->index_level0_files = kv->l0_files;
}

/* --- Dispatch --------------------------------------------------------------------------------- */

void lp_store_submit(struct lp_store *store, struct lp_store_op *op)
{
	LP_ASSERT(op->complete != NULL);
	LP_ASSERT(!lp_list_node_is_linked(&op->node));
	store->calls->submit(store, op);
}

void lp_store_end(struct lp_store *store, struct lp_store_op *op)
{
	LP_ASSERT(op->opcode == LP_STORE_READ);
	LP_ASSERT(op->result >= 0);
	store->calls->end(store, op);
}

struct lp_ino lp_store_new_ino(struct lp_store *store)
{
	return store->calls->new_ino(store);
}

int lp_store_close(struct lp_store *store, bool abandon)
{
	return store == NULL ? 0 : store->calls->close(store, abandon);
}

void lp_store_read_health(const struct lp_store *store, struct lp_store_health *ret_health)
{
	*ret_health = (struct lp_store_health){.state = LP_STORE_OK};
	store->calls->read_health(store, ret_health);
}

int lp_store_pause(struct lp_store *store, struct lp_pause *pause)
{
	return store->calls->pause != NULL ? store->calls->pause(store, pause) : -ENOTSUP;
}

void lp_store_resume(struct lp_store *store, struct lp_pause *pause)
{
	store->calls->resume(store, pause);
}

int lp_store_view_take(struct lp_store *store, struct lp_view **ret_view)
{
	return store->calls->view_take(store, ret_view);
}

void lp_store_view_end(struct lp_store *store, struct lp_view *view)
{
	store->calls->view_end(store, view);
}

void lp_store_read_bad(const struct lp_store *store, struct lp_bad_blocks *ret_bad)
{
	*ret_bad = (struct lp_bad_blocks){.cnt = 0};
	if (store->calls->read_bad != NULL)
		store->calls->read_bad(store, ret_bad);
}

const char *lp_store_state_name(enum lp_store_state state)
{
	static const char *const names[LP_STORE_STATE_CNT] = {
		[LP_STORE_OK] = "ok",
		[LP_STORE_DEGRADED] = "degraded",
		[LP_STORE_REOPENING] = "reopening",
		[LP_STORE_READ_ONLY] = "read-only",
		[LP_STORE_DEAD] = "dead",
	};
	LP_ASSERT(state < LP_STORE_STATE_CNT);
	return names[state];
}

int lp_store_error(const struct lp_store *store)
{
	return store->calls->error(store);
}

bool lp_store_is_settled(const struct lp_store *store)
{
	return store->calls->is_settled(store);
}

bool lp_store_is_freeing(const struct lp_store *store, struct lp_store_freeing *since)
{
	struct lp_store_freeing now = {0};
	return store->calls->is_freeing(store, since == NULL ? &now : since);
}

void lp_store_set_write_path(struct lp_store *store, enum lp_write_path path)
{
	LP_ASSERT(path < LP_PATH_CNT);
	store->calls->set_write_path(store, path);
}

void lp_store_set_deferred_store(struct lp_store *store, enum lp_deferred_store kind)
{
	LP_ASSERT((int)kind < LP_DEFERRED_STORE_CNT);
	store->calls->set_deferred_store(store, kind);
}

void lp_store_set_lost_bytes(struct lp_store *store, uint64_t bytes)
{
	if (store->calls->set_lost_bytes != NULL)
		store->calls->set_lost_bytes(store, bytes);
}

bool lp_store_rest(struct lp_store *store)
{
	return store->calls->rest != NULL && store->calls->rest(store);
}

void lp_store_read_stats(struct lp_store *store, struct lp_store_stats *ret_stats)
{
	store->calls->read_stats(store, ret_stats);
}

void lp_store_read_usage(struct lp_store *store, struct lp_store_usage *ret_usage)
{
	store->calls->read_usage(store, ret_usage);
}

int lp_store_explain(const struct lp_store *store, uint64_t bytes, char *buf, size_t len)
{
	return store->calls->explain(store, bytes, buf, len);
}

double lp_store_alloc_score(const struct lp_store *store)
{
	return store->calls->alloc_score(store);
}

void lp_store_under_way(struct lp_store *store, struct lp_under_way_list *list)
{
	if (store->calls->under_way != NULL)
		store->calls->under_way(store, list);
}

size_t lp_store_read_times(const struct lp_store *store, struct lp_store_time *ret_rows, size_t max)
{
	LP_ASSERT(ret_rows != NULL || max == 0);
	return store->calls->read_times(store, ret_rows, max);
}

bool lp_store_sim_run_one(struct lp_store *store)
{
	return store->calls->sim_run_one(store);
}

/* --- The payload of a write ------------------------------------------------------------------- */

const uint8_t *lpi_seg_cursor_next(struct lpi_seg_cursor *cursor, uint32_t max, uint32_t *ret_len)
{
	LP_ASSERT(max > 0);
	const struct lp_seg *seg = cursor->seg;
	LP_ASSERT(cursor->offset < seg->len);
	const uint8_t *at = seg->buf->data + seg->offset + cursor->offset;
	uint32_t len = LP_MIN(max, seg->len - cursor->offset);
	cursor->offset += len;
	if (cursor->offset == seg->len)
		*cursor = (struct lpi_seg_cursor){.seg = seg + 1};
	*ret_len = len;
	return at;
}

void lpi_seg_cursor_copy(struct lpi_seg_cursor *cursor, void *to, uint32_t len)
{
	uint8_t *at = to;
	while (len > 0) {
		uint32_t part = 0;
		const uint8_t *from = lpi_seg_cursor_next(cursor, len, &part);
		memcpy(at, from, part);
		at += part;
		len -= part;
	}
}

void lpi_payload_sum(const struct lp_store_op *op)
{
	for (uint32_t i = 0; op->opcode == LP_STORE_TXN && i < op->txn.change_cnt; i++) {
		const struct lp_change *change = &op->txn.changes[i];
		if (change->type == LP_CHANGE_WRITE && change->data.payload.sum != NULL)
			change->data.payload.sum(change->data.payload.sum_arg);
	}
}

static uint32_t crc_of_next(struct lpi_seg_cursor *cursor, uint32_t len)
{
	uint32_t crc = 0;
	while (len > 0) {
		uint32_t part = 0;
		const uint8_t *from = lpi_seg_cursor_next(cursor, len, &part);
		crc = lp_crc32c(crc, from, part);
		len -= part;
	}
	return crc;
}

int lpi_payload_recut(const struct lp_payload *payload, uint64_t offset, uint64_t length,
		      uint32_t *ret_crcs)
{
	struct lpi_seg_cursor cursor = lpi_seg_cursor_at(payload);
	uint32_t in_block = (uint32_t)(offset & (LP_BLOCK_BYTES - 1));
	uint32_t idx = 0; /* of the piece that the grid cuts */
	uint32_t crc = 0; /* of what it has so far */
	uint64_t left = length;
	LP_ASSERT(payload->crc_cnt == lpi_piece_cnt(0, length));
	if (in_block == 0) {
		memcpy(ret_crcs, payload->crcs, payload->crc_cnt * sizeof(*ret_crcs));
		return 0;
	}
	/* Each given piece has a head, which fills the block it begins in, and perhaps a tail. */
	for (uint32_t i = 0; i < payload->crc_cnt; i++) {
		uint32_t len = (uint32_t)LP_MIN(left, LP_BLOCK_BYTES);
		uint32_t head_len = LP_MIN(len, (uint32_t)LP_BLOCK_BYTES - in_block);
		uint32_t head = crc_of_next(&cursor, head_len);
		uint32_t tail = crc_of_next(&cursor, len - head_len);
		if (lp_crc32c_combine(head, tail, len - head_len) != payload->crcs[i])
			return LP_CORRUPT_CRC(length - left, "payload of an append: wrong crc");
		ret_crcs[idx++] = lp_crc32c_combine(crc, head, head_len);
		crc = tail;
		left -= len;
		if (left == 0 && len > head_len)
			ret_crcs[idx++] = tail;
	}
	LP_ASSERT(idx == lpi_piece_cnt(offset, length));
	return 0;
}

/* --- Lists ------------------------------------------------------------------------------------ */

#define ITEM_HEAD_BYTES  (sizeof(uint16_t) + sizeof(uint32_t))
#define ENTRY_HEAD_BYTES (ITEM_HEAD_BYTES + 2 * sizeof(uint64_t) + sizeof(uint8_t))
#define VALUE_ABSENT     UINT32_MAX

static uint32_t head_bytes(const struct lp_store_op *op)
{
	return op->list.space == LP_STORE_ENTRIES ? ENTRY_HEAD_BYTES : ITEM_HEAD_BYTES;
}

static uint8_t *put_bytes(uint8_t *at, struct lp_bytes bytes)
{
	LP_ASSERT(bytes.data != NULL || bytes.len == 0);
	if (bytes.len > 0)
		memcpy(at, bytes.data, bytes.len);
	return at + bytes.len;
}

int lpi_list_put(struct lp_store_op *op, const struct lp_list_item *item)
{
	struct lp_bytes value = op->list.with_values ? item->value : (struct lp_bytes){NULL, 0};
	uint64_t need = (uint64_t)head_bytes(op) + item->name.len + value.len;
	bool is_full = op->list.items_max != 0 && op->list.items == op->list.items_max;
	LP_ASSERT(op->opcode == LP_STORE_LIST);
	LP_ASSERT(item->name.len > 0 && item->name.len <= UINT16_MAX);
	if (is_full || need > op->list.buf_len - op->list.used) {
		op->list.more = true;
		return -ENOBUFS;
	}
	uint8_t *at = (uint8_t *)op->list.buf + op->list.used;
	lp_put_le16(at, (uint16_t)item->name.len);
	lp_put_le32(at + 2, value.data == NULL ? VALUE_ABSENT : value.len);
	if (op->list.space == LP_STORE_ENTRIES) {
		lp_put_le64(at + 6, item->ino.nr);
		lp_put_le64(at + 14, item->insertion);
		at[22] = item->type;
	}
	put_bytes(put_bytes(at + head_bytes(op), item->name), value);
	op->list.used += (uint32_t)need;
	op->list.items++;
	return 0;
}

int lpi_list_end(struct lp_store_op *op)
{
	return op->list.more && op->list.items == 0 ? -ERANGE : 0;
}

bool lp_store_list_next(const struct lp_store_op *op, uint32_t *pos, struct lp_list_item *ret)
{
	LP_ASSERT(op->opcode == LP_STORE_LIST);
	LP_ASSERT(*pos <= op->list.used);
	if (*pos == op->list.used)
		return false;
	const uint8_t *at = (const uint8_t *)op->list.buf + *pos;
	struct lp_list_item item = {.name = {at + head_bytes(op), lp_get_le16(at)}};
	uint32_t value_len = lp_get_le32(at + 2);
	if (value_len != VALUE_ABSENT)
		item.value = (struct lp_bytes){at + head_bytes(op) + item.name.len, value_len};
	if (op->list.space == LP_STORE_ENTRIES) {
		item.ino.nr = lp_get_le64(at + 6);
		item.insertion = lp_get_le64(at + 14);
		item.type = at[22];
	}
	*pos += head_bytes(op) + item.name.len + item.value.len;
	LP_ASSERT(*pos <= op->list.used);
	*ret = item;
	return true;
}
