/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a RocksDB batch, as the log holds them: the input is one.
 *
 * A batch that is accepted gives back the bytes it was loaded from; its records, put into a new
 * batch, read the same there. After a refusal the batch is empty, and can be used. */
#include "store/index/kv.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/repair.h"

/* What the records of a batch add up to, and a copy of them if there is a batch for it. */
struct walk {
	struct lp_kv_batch_visitor visitor;
	struct lp_kv_batch *copy;
	uint32_t cnt;
	uint32_t crc;
};

static void must(int result)
{
	LP_ASSERT(result == 0);
}

static void add_bytes(struct walk *walk, char tag, struct lp_kv_bytes bytes)
{
	uint8_t head[sizeof(uint64_t)];
	lp_put_le64(head, bytes.len);
	walk->crc = lp_crc32c(walk->crc, &tag, sizeof(tag));
	walk->crc = lp_crc32c(walk->crc, head, sizeof(head));
	walk->crc = lp_crc32c(walk->crc, bytes.data, bytes.len);
}

static int on_put(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key,
		  struct lp_kv_bytes value)
{
	struct walk *walk = LP_CONTAINER_OF(visitor, struct walk, visitor);
	add_bytes(walk, 'k', key);
	add_bytes(walk, 'v', value);
	walk->cnt++;
	return walk->copy == NULL ? 0 : lp_kv_batch_put(walk->copy, key, value);
}

static int on_del(struct lp_kv_batch_visitor *visitor, struct lp_kv_bytes key)
{
	struct walk *walk = LP_CONTAINER_OF(visitor, struct walk, visitor);
	add_bytes(walk, 'd', key);
	walk->cnt++;
	return walk->copy == NULL ? 0 : lp_kv_batch_delete(walk->copy, key);
}

static struct walk walk_of(struct lp_kv_bytes data, struct lp_kv_batch *copy)
{
	struct walk walk = {.visitor = {.put = on_put, .del = on_del}, .copy = copy};
	must(lp_kv_walk(data, &walk.visitor));
	return walk;
}

static void check_accepted(const struct lp_kv_batch *batch, struct lp_kv_bytes data)
{
	struct lp_kv_batch *copy = NULL;
	struct lp_kv_bytes held = lp_kv_batch_data(batch);
	LP_ASSERT(held.len == data.len && memcmp(held.data, data.data, data.len) == 0);
	must(lp_kv_batch_new(0, &copy));
	struct walk first = walk_of(data, copy);
	LP_ASSERT(first.cnt == lp_kv_batch_cnt(batch));
	struct walk second = walk_of(lp_kv_batch_data(copy), NULL);
	LP_ASSERT(first.cnt == second.cnt && first.crc == second.crc);
	/* Varints have one form here, so only RocksDB's own number may differ. */
	struct lp_kv_bytes again = lp_kv_batch_data(copy);
	LP_ASSERT(again.len == data.len);
	LP_ASSERT(memcmp((const uint8_t *)again.data + 8, (const uint8_t *)data.data + 8,
			 data.len - 8) == 0);
	lp_kv_batch_free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
	struct lp_kv_batch *batch = NULL;
	uint8_t *exact = lpi_fuzz_copy(bytes, len);
	struct lp_kv_bytes data = {exact, len};
	must(lp_kv_batch_new(0, &batch));
	must(lp_kv_batch_delete(batch, (struct lp_kv_bytes){"old", 3}));
	if (lp_kv_batch_load(batch, data) == 0) {
		check_accepted(batch, data);
	} else {
		LP_ASSERT(lp_kv_batch_cnt(batch) == 0);
		must(lp_kv_walk(lp_kv_batch_data(batch), NULL));
	}
	lp_kv_batch_free(batch);
	free(exact);
	return 0;
}
