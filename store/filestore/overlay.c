/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction changes an overlay of its own, which goes over that of its group when it has
 * succeeded; a group's goes into the index when it is durable. What an overlay says of a key,
 * also that there is nothing, hides what is below it. Blocks of data are kept in the same way,
 * under keys that no index has: so they are replaced and taken back with the records that name
 * them. */
#include <stdlib.h>
#include <string.h>

#include "store/filestore/filestore_impl.h"
#include "store/record/value_head.h"

static_assert(LPI_LEAF_BLOCKS == LP_FILE_LEAF_BLOCKS, "as the format says");
static_assert(LP_FILE_LEAF_HEAD_CRC_OFF == LPI_VALUE_CRC_OFF, "values begin alike");

/* --- Overlays --------------------------------------------------------------------------------- */

static bool is_payload(const struct lpi_fstore_rec *rec)
{
	return rec->key[0] == LPI_PAYLOAD_SPACE;
}

static void count(struct lpi_fstore_overlay *overlay, const struct lpi_fstore_rec *rec, int sign)
{
	if (!is_payload(rec))
		overlay->batch_bytes +=
			(uint64_t)(int64_t)(sign * (int)(rec->key_len + rec->value_len + 16));
	else if (rec->value != NULL)
		overlay->payload_cnt += (uint32_t)sign;
}

static void rec_free(struct lpi_fstore_rec *rec)
{
	free(rec->value);
	free(rec);
}

/* value NULL: a record that there is none. */
static struct lpi_fstore_rec *rec_new(const struct lp_key *key, const void *value,
				      uint32_t value_len)
{
	struct lpi_fstore_rec *rec = calloc(1, sizeof(*rec) + key->len);
	if (rec == NULL)
		return NULL;
	rec->key_len = (uint32_t)key->len;
	memcpy(rec + 1, key->bytes, key->len);
	rec->key = (const uint8_t *)(rec + 1);
	if (value == NULL)
		return rec;
	/* An empty value has memory too: it is there. */
	rec->value = is_payload(rec) ? aligned_alloc(LP_BLOCK_BYTES, LP_BLOCK_BYTES)
				     : malloc(LP_MAX(value_len, 1u));
	if (rec->value == NULL) {
		free(rec);
		return NULL;
	}
	rec->value_len = value_len;
	memcpy(rec->value, value, value_len);
	return rec;
}

static struct lpi_fstore_rec *find(const struct lpi_fstore_overlay *overlay,
				   const struct lpi_fstore_rec *key)
{
	struct lpi_fstore_rec *rec = lpi_fstore_recs_find_ge(&overlay->recs, key);
	return rec == NULL || lpi_fstore_rec_less(key, rec) ? NULL : rec;
}

static void insert(struct lpi_fstore_overlay *overlay, struct lpi_fstore_rec *rec)
{
	struct lpi_fstore_rec *old = find(overlay, rec);
	if (old != NULL) {
		lpi_fstore_recs_remove(&overlay->recs, old);
		count(overlay, old, -1);
		rec_free(old);
	}
	lpi_fstore_recs_insert(&overlay->recs, rec);
	count(overlay, rec, 1);
}

void lpi_fstore_overlay_init(struct lpi_fstore_overlay *overlay)
{
	*overlay = (struct lpi_fstore_overlay){.batch_bytes = 0};
	lpi_fstore_recs_init(&overlay->recs);
}

void lpi_fstore_overlay_clear(struct lpi_fstore_overlay *overlay)
{
	struct lpi_fstore_rec *rec;
	while ((rec = lpi_fstore_recs_first(&overlay->recs)) != NULL) {
		lpi_fstore_recs_remove(&overlay->recs, rec);
		rec_free(rec);
	}
	overlay->batch_bytes = 0;
	overlay->payload_cnt = 0;
}

int lpi_fstore_overlay_put(struct lpi_fstore_overlay *overlay, const struct lp_key *key,
			   const void *value, uint32_t value_len)
{
	LP_ASSERT(value != NULL);
	LP_ASSERT(key->bytes[0] != LPI_PAYLOAD_SPACE || value_len == LP_BLOCK_BYTES);
	struct lpi_fstore_rec *rec = rec_new(key, value, value_len);
	if (rec == NULL)
		return -ENOMEM;
	insert(overlay, rec);
	return 0;
}

int lpi_fstore_overlay_delete(struct lpi_fstore_overlay *overlay, const struct lp_key *key)
{
	struct lpi_fstore_rec *rec = rec_new(key, NULL, 0);
	if (rec == NULL)
		return -ENOMEM;
	insert(overlay, rec);
	return 0;
}

/* The key of a search has the form of a record. */
static struct lpi_fstore_rec search_of(const struct lp_key *key)
{
	return (struct lpi_fstore_rec){.key = key->bytes, .key_len = (uint32_t)key->len};
}

const struct lpi_fstore_rec *lpi_fstore_overlay_find(const struct lpi_fstore_overlay *overlay,
						     const struct lp_key *key)
{
	const struct lpi_fstore_rec search = search_of(key);
	return find(overlay, &search);
}

void lpi_fstore_overlay_merge(struct lpi_fstore_overlay *to, struct lpi_fstore_overlay *from)
{
	struct lpi_fstore_rec *rec;
	while ((rec = lpi_fstore_recs_first(&from->recs)) != NULL) {
		lpi_fstore_recs_remove(&from->recs, rec);
		insert(to, rec);
	}
	from->batch_bytes = 0;
	from->payload_cnt = 0;
}

/* --- Views ------------------------------------------------------------------------------------ */

int lpi_fstore_get(const struct lpi_fstore_view *view, const struct lp_key *key,
		   struct lpi_fstore_value *ret_value)
{
	for (uint32_t i = 0; i < view->layer_cnt; i++) {
		const struct lpi_fstore_rec *rec = lpi_fstore_overlay_find(view->layers[i], key);
		if (rec == NULL)
			continue;
		if (rec->value == NULL)
			return -ENOENT;
		ret_value->bytes = (struct lp_kv_bytes){rec->value, rec->value_len};
		ret_value->is_pinned = false;
		return 0;
	}
	if (key->bytes[0] == LPI_PAYLOAD_SPACE || view->kv == NULL)
		return -ENOENT;
	int err = lp_kv_get(view->kv, lpi_kv_bytes_of(key), &ret_value->pin);
	if (err < 0)
		return err;
	ret_value->bytes = ret_value->pin.bytes;
	ret_value->is_pinned = true;
	return 0;
}

void lpi_fstore_value_release(struct lpi_fstore_value *value)
{
	if (value->is_pinned)
		lp_kv_value_release(&value->pin);
}

/* The least key from `from` on that any layer or the index says anything about. */
static int next_said(const struct lpi_fstore_view *view, const struct lp_key *from,
		     const struct lp_key *end, struct lp_key *ret_key)
{
	struct lp_kv_iter *iter = NULL;
	int err = lp_kv_iter_open(view->kv, lpi_kv_bytes_of(from), lpi_kv_bytes_of(end), false,
				  &iter);
	if (err < 0)
		return err;
	err = lp_kv_iter_seek_first(iter);
	*ret_key = *end;
	if (err == 0) {
		struct lp_kv_bytes key = lp_kv_iter_key(iter);
		memcpy(ret_key->bytes, key.data, key.len);
		ret_key->len = key.len;
	}
	lp_kv_iter_close(iter);
	if (err < 0 && err != -ENOENT)
		return err;
	const struct lpi_fstore_rec search = search_of(from);
	for (uint32_t i = 0; i < view->layer_cnt; i++) {
		const struct lpi_fstore_rec *rec =
			lpi_fstore_recs_find_ge(&view->layers[i]->recs, &search);
		if (rec == NULL ||
		    lp_key_compare(rec->key, rec->key_len, ret_key->bytes, ret_key->len) >= 0)
			continue;
		memcpy(ret_key->bytes, rec->key, rec->key_len);
		ret_key->len = rec->key_len;
	}
	return lp_key_compare(ret_key->bytes, ret_key->len, end->bytes, end->len) >= 0 ? -ENOENT
										       : 0;
}

int lpi_fstore_next(const struct lpi_fstore_view *view, const struct lp_key *from,
		    const struct lp_key *end, struct lp_key *ret_key)
{
	struct lp_key at = *from;
	for (;;) {
		struct lpi_fstore_value value;
		int err = next_said(view, &at, end, ret_key);
		if (err < 0)
			return err;
		err = lpi_fstore_get(view, ret_key, &value);
		if (err == 0)
			lpi_fstore_value_release(&value);
		if (err != -ENOENT)
			return err;
		at = *ret_key;
		at.bytes[at.len++] = 0; /* the least key above it; a bound may be a byte longer */
	}
}

/* --- Payloads --------------------------------------------------------------------------------- */

void lpi_payload_key(struct lp_key *ret, const struct lpi_object_place *place)
{
	ret->bytes[0] = LPI_PAYLOAD_SPACE;
	lp_put_be64(ret->bytes + 1, place->ino.nr);
	lp_put_be64(ret->bytes + 9, place->block);
	ret->bytes[17] = (uint8_t)place->side;
	ret->len = 18;
}

void lpi_payload_place(const struct lpi_fstore_rec *rec, struct lpi_object_place *ret_place)
{
	LP_ASSERT(is_payload(rec) && rec->key_len == 18);
	*ret_place = (struct lpi_object_place){.ino = {lp_get_be64(rec->key + 1)},
					       .block = lp_get_be64(rec->key + 9),
					       .side = rec->key[17]};
}

const struct lpi_fstore_rec *lpi_fstore_overlay_payloads(const struct lpi_fstore_overlay *overlay)
{
	const struct lp_key key = {.len = 1, .bytes = {LPI_PAYLOAD_SPACE}};
	const struct lpi_fstore_rec search = search_of(&key);
	return lpi_fstore_recs_find_ge(&overlay->recs, &search);
}

bool lpi_fstore_next_payload(const struct lpi_fstore_overlay *overlay,
			     struct lpi_object_place *place)
{
	struct lp_key key;
	uint64_t ino = place->ino.nr;
	lpi_payload_key(&key, place);
	const struct lpi_fstore_rec search = search_of(&key);
	const struct lpi_fstore_rec *rec = lpi_fstore_recs_find_ge(&overlay->recs, &search);
	while (rec != NULL && is_payload(rec) && rec->value == NULL)
		rec = lpi_fstore_recs_next(rec);
	if (rec == NULL || !is_payload(rec))
		return false;
	lpi_payload_place(rec, place);
	return place->ino.nr == ino;
}

/* --- Maps ------------------------------------------------------------------------------------- */

#define LEAF_BYTES_MAX (LP_FILE_LEAF_HEAD_SIZE + sizeof(uint32_t) * LPI_LEAF_BLOCKS)

void lpi_mapleaf_key(struct lp_key *ret, struct lp_ino ino, uint64_t block)
{
	lp_key_of_map(ret, ino, lp_align_down(block, LPI_LEAF_BLOCKS));
}

int lpi_mapleaf_decode(const struct lp_key *key, struct lp_kv_bytes bytes,
		       struct lpi_mapleaf *ret_leaf)
{
	struct lp_file_leaf_head head;
	struct lpi_mapleaf leaf = {.data = 0};
	if (bytes.len < LP_FILE_LEAF_HEAD_SIZE || bytes.len > LEAF_BYTES_MAX)
		return lpi_value_bad(key, "length");
	int err = lpi_value_check(bytes.data, bytes.len, key, LP_KEY_SPACE_MAP);
	if (err < 0)
		return err;
	lp_file_leaf_head_decode(bytes.data, &head);
	size_t cnt = (size_t)__builtin_popcountll(head.data);
	if (!lp_file_leaf_head_reserved_is_zero(&head) ||
	    bytes.len != LP_FILE_LEAF_HEAD_SIZE + cnt * sizeof(uint32_t))
		return lpi_value_bad(key, "length");
	if ((head.side & ~head.data) != 0 || (head.unwritten & head.data) != 0)
		return lpi_value_bad(key, "blocks");
	const uint8_t *at = (const uint8_t *)bytes.data + LP_FILE_LEAF_HEAD_SIZE;
	leaf.data = head.data;
	leaf.unwritten = head.unwritten;
	leaf.side = head.side;
	for (uint32_t i = 0; i < LPI_LEAF_BLOCKS; i++) {
		if ((head.data & UINT64_C(1) << i) == 0)
			continue;
		leaf.crcs[i] = lp_get_le32(at);
		at += sizeof(uint32_t);
	}
	*ret_leaf = leaf;
	return 0;
}

int lpi_mapleaf_get(const struct lpi_fstore_view *view, struct lp_ino ino, uint64_t block,
		    struct lpi_mapleaf *ret_leaf)
{
	struct lpi_fstore_value value;
	struct lp_key key;
	lpi_mapleaf_key(&key, ino, block);
	int err = lpi_fstore_get(view, &key, &value);
	if (err == -ENOENT) {
		*ret_leaf = (struct lpi_mapleaf){.data = 0};
		return 0;
	}
	if (err < 0)
		return err;
	err = lpi_mapleaf_decode(&key, value.bytes, ret_leaf);
	lpi_fstore_value_release(&value);
	return err;
}

int lpi_mapleaf_put(struct lpi_fstore_overlay *overlay, struct lp_ino ino, uint64_t block,
		    const struct lpi_mapleaf *leaf)
{
	uint8_t bytes[LEAF_BYTES_MAX];
	size_t len = LP_FILE_LEAF_HEAD_SIZE;
	struct lp_key key;
	lpi_mapleaf_key(&key, ino, block);
	if ((leaf->data | leaf->unwritten) == 0)
		return lpi_fstore_overlay_delete(overlay, &key);
	LP_ASSERT((leaf->side & ~leaf->data) == 0 && (leaf->unwritten & leaf->data) == 0);
	const struct lp_file_leaf_head head = {.version = LP_FILE_LEAF_VERSION,
					       .data = leaf->data,
					       .unwritten = leaf->unwritten,
					       .side = leaf->side};
	lp_file_leaf_head_encode(&head, bytes);
	for (uint32_t i = 0; i < LPI_LEAF_BLOCKS; i++) {
		if ((leaf->data & UINT64_C(1) << i) == 0)
			continue;
		lp_put_le32(bytes + len, leaf->crcs[i]);
		len += sizeof(uint32_t);
	}
	lpi_value_seal(bytes, len, &key, LP_KEY_SPACE_MAP);
	return lpi_fstore_overlay_put(overlay, &key, bytes, (uint32_t)len);
}
