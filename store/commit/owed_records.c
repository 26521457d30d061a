/* SPDX-License-Identifier: Apache-2.0 */
#include "store/commit/owed_records.h"

#include "base/assert.h"
#include "base/endian.h"
#include "base/error.h"
#include "store/record/keys.h"

#define BATCH_RESERVE (64u << 10)

int lp_payments_init(struct lp_payments *payments, uint64_t whole_seq)
{
	*payments = (struct lp_payments){.paid_seq = whole_seq, .whole_seq = whole_seq};
	return lp_kv_batch_new(BATCH_RESERVE, &payments->batch);
}

void lp_payments_fini(struct lp_payments *payments)
{
	lp_kv_batch_free(payments->batch);
	*payments = (struct lp_payments){0};
}

void lp_payments_want(struct lp_payments *payments)
{
	bool is_on_its_way = payments->is_running || payments->paid_seq > payments->whole_seq;
	payments->is_wanted |= payments->owed != NULL && !is_on_its_way;
}

bool lp_payments_are_busy(const struct lp_payments *payments)
{
	return payments->is_wanted || payments->is_running || payments->is_built;
}

uint64_t lp_payments_seal(struct lp_payments *payments, uint64_t seq)
{
	if (payments->owed == NULL || payments->owed->cnt == 0)
		payments->paid_seq = LP_MAX(payments->paid_seq, seq);
	return payments->paid_seq;
}

void lp_payments_group_inserted(struct lp_payments *payments, uint64_t whole_seq)
{
	LP_ASSERT(whole_seq >= payments->whole_seq);
	payments->whole_seq = whole_seq;
}

static void put_applied(struct lp_payments *payments, uint64_t seq)
{
	struct lp_key key;
	uint8_t value[LP_APPLIED_BYTES_MAX];
	payments->declares_seq = lp_payments_seal(payments, seq);
	lp_key_of_store(&key, "applied");
	size_t len = lp_applied_encode(seq, payments->declares_seq, value);
	lp_payments_put(payments, (struct lp_kv_bytes){key.bytes, key.len},
			(struct lp_kv_bytes){value, len});
}

int lp_payments_build(struct lp_payments *payments, uint64_t inserted_seq, bool is_idle)
{
	LP_ASSERT(!payments->is_built && lp_kv_batch_cnt(payments->batch) == 0);
	if (payments->is_wanted && !payments->is_running) {
		payments->is_wanted = false;
		payments->is_running = true;
		payments->upto_seq = inserted_seq;
		payments->owed->begin(payments->owed);
	}
	if (payments->is_running && payments->owed->pay(payments->owed, payments)) {
		payments->is_running = false;
		payments->paid_seq = LP_MAX(payments->paid_seq, payments->upto_seq);
	}
	if (!payments->is_running && is_idle && payments->whole_seq < payments->paid_seq)
		put_applied(payments, inserted_seq);
	payments->is_built = lp_kv_batch_cnt(payments->batch) > 0;
	return payments->error;
}

void lp_payments_put(struct lp_payments *payments, struct lp_kv_bytes key, struct lp_kv_bytes value)
{
	int err = lp_kv_batch_put(payments->batch, key, value);
	if (err < 0)
		payments->error = err;
	payments->put_cnt++;
}

int lp_payments_write(struct lp_payments *payments, struct lp_kv *kv)
{
	LP_ASSERT(payments->is_built);
	int err = lp_kv_write(kv, payments->batch);
	if (err < 0)
		return err;
	payments->is_built = false;
	lp_kv_batch_clear(payments->batch);
	if (payments->declares_seq != 0)
		lp_payments_group_inserted(payments, payments->declares_seq);
	payments->declares_seq = 0;
	return 0;
}

size_t lp_applied_encode(uint64_t seq, uint64_t whole_seq, uint8_t *buf)
{
	LP_ASSERT(whole_seq <= seq);
	lp_put_le64(buf, seq);
	if (whole_seq == seq)
		return 8;
	lp_put_le64(buf + 8, whole_seq);
	return LP_APPLIED_BYTES_MAX;
}

int lp_applied_decode(struct lp_kv_bytes value, uint64_t *ret_seq, uint64_t *ret_whole_seq)
{
	const uint8_t *bytes = value.data;
	if (value.len != 8 && value.len != LP_APPLIED_BYTES_MAX)
		return LP_CORRUPT(LP_OFFSET_NONE, "the index's record \"applied\" has %zu bytes",
				  value.len);
	uint64_t seq = lp_get_le64(bytes);
	uint64_t whole_seq = value.len == 8 ? seq : lp_get_le64(bytes + 8);
	if (whole_seq > seq)
		return LP_CORRUPT(LP_OFFSET_NONE,
				  "the index is at frame %llu, and whole up to %llu",
				  (unsigned long long)seq, (unsigned long long)whole_seq);
	*ret_seq = seq;
	*ret_whole_seq = whole_seq;
	return 0;
}

bool lp_key_may_be_owed(struct lp_kv_bytes key)
{
	const uint8_t *bytes = key.data;
	return key.len > 0 && (bytes[0] == LP_KEY_SPACE_INODE || bytes[0] == LP_KEY_SPACE_MAP ||
			       bytes[0] == LP_KEY_SPACE_FRAGMENT || bytes[0] == LP_KEY_SPACE_REFS);
}
