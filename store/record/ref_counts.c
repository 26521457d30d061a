/* SPDX-License-Identifier: Apache-2.0 */
/* In memory a count per block, which is simple to change; in the record runs of equal counts,
 * because neighbours are cloned and released together. A state has exactly one form as bytes. */
#include "store/record/ref_counts.h"

#include <string.h>

#include "base/assert.h"
#include "base/endian.h"
#include "store/record/value_head.h"

static_assert(LP_REFS_HEAD_CRC_OFF == LPI_VALUE_CRC_OFF, "values begin alike");
static_assert(LP_REFS_HEAD_SIZE == LPI_VALUE_HEAD_SIZE, "values begin alike");

static void assert_range(const struct lp_refs *refs, uint32_t first, uint32_t cnt)
{
	LP_ASSERT(refs->group < LP_REFS_GROUPS);
	LP_ASSERT(cnt > 0 && cnt <= LP_REFS_BLOCKS);
	LP_ASSERT(first <= LP_REFS_BLOCKS - cnt);
}

void lp_refs_init(struct lp_refs *refs, uint64_t group)
{
	LP_ASSERT(group < LP_REFS_GROUPS);
	memset(refs, 0, sizeof(*refs));
	refs->group = group;
}

void lp_refs_key(struct lp_key *ret, uint64_t group)
{
	LP_ASSERT(group < LP_REFS_GROUPS);
	lp_key_of_number(ret, LP_KEY_SPACE_REFS, group);
}

/* What is wrong with a run, by the name of the field. Blocks below `end` are in earlier runs, the
 * last of which has this count. */
static const char *run_fault(const struct lp_refs_run *run, uint32_t end, uint32_t last_refs)
{
	if (!lp_refs_run_reserved_is_zero(run))
		return "reserved";
	if (run->first < end || run->first >= LP_REFS_BLOCKS)
		return "first";
	if (run->cnt == 0 || run->cnt > LP_REFS_BLOCKS - run->first)
		return "cnt";
	if (run->refs == 0)
		return "refs";
	return run->first == end && run->refs == last_refs ? "a run that continues another" : NULL;
}

static const char *read_runs(const uint8_t *bytes, size_t len, struct lp_refs *refs)
{
	uint32_t end = 0;
	uint32_t last_refs = 0;
	for (size_t at = LP_REFS_HEAD_SIZE; at < len; at += LP_REFS_RUN_SIZE) {
		struct lp_refs_run run;
		lp_refs_run_decode(bytes + at, &run);
		const char *fault = run_fault(&run, end, last_refs);
		if (fault != NULL)
			return fault;
		end = (uint32_t)run.first + run.cnt;
		last_refs = run.refs;
		for (uint32_t block = run.first; block < end; block++)
			refs->cnt[block] = run.refs;
	}
	return NULL;
}

static bool is_length(size_t len)
{
	return len > LP_REFS_HEAD_SIZE && len <= LP_REFS_BYTES_MAX &&
	       (len - LP_REFS_HEAD_SIZE) % LP_REFS_RUN_SIZE == 0;
}

int lp_refs_decode(const void *bytes, size_t len, const struct lp_key *key, struct lp_refs *ret)
{
	struct lp_refs refs;
	struct lp_refs_head head;
	if (!is_length(len))
		return lpi_value_bad(key, "length");
	int err = lpi_value_check(bytes, len, key, LP_KEY_SPACE_REFS);
	if (err != 0)
		return err;
	LP_ASSERT(key->len == 1 + sizeof(uint64_t));
	uint64_t group = lp_get_be64(key->bytes + 1);
	if (group >= LP_REFS_GROUPS)
		return lpi_value_bad(key, "number of the key");
	lp_refs_head_decode(bytes, &head);
	if (!lp_refs_head_reserved_is_zero(&head))
		return lpi_value_bad(key, "reserved");
	lp_refs_init(&refs, group);
	const char *fault = read_runs(bytes, len, &refs);
	if (fault != NULL)
		return lpi_value_bad(key, fault);
	*ret = refs;
	return 0;
}

/* Where the run ends that begins at a block. */
static uint32_t run_end(const struct lp_refs *refs, uint32_t first)
{
	uint32_t end = first + 1;
	while (end < LP_REFS_BLOCKS && refs->cnt[end] == refs->cnt[first])
		end++;
	return end;
}

size_t lp_refs_encode(const struct lp_refs *refs, uint8_t *buf)
{
	struct lp_key key;
	struct lp_refs_head head = {.version = LP_VALUE_VERSION};
	size_t len = LP_REFS_HEAD_SIZE;
	uint32_t end;
	LP_ASSERT(refs->group < LP_REFS_GROUPS);
	for (uint32_t block = 0; block < LP_REFS_BLOCKS; block = end) {
		end = run_end(refs, block);
		if (refs->cnt[block] == 0)
			continue;
		struct lp_refs_run run = {.first = (uint8_t)block,
					  .cnt = (uint8_t)(end - block),
					  .refs = refs->cnt[block]};
		lp_refs_run_encode(&run, buf + len);
		len += LP_REFS_RUN_SIZE;
	}
	if (len == LP_REFS_HEAD_SIZE)
		return 0;
	LP_ASSERT(len <= LP_REFS_BYTES_MAX);
	lp_refs_head_encode(&head, buf);
	lp_refs_key(&key, refs->group);
	lpi_value_seal(buf, len, &key, LP_KEY_SPACE_REFS);
	return len;
}

uint32_t lp_refs_max(const struct lp_refs *refs, uint32_t first, uint32_t cnt)
{
	uint32_t max = 0;
	assert_range(refs, first, cnt);
	for (uint32_t block = first; block < first + cnt; block++)
		max = LP_MAX(max, refs->cnt[block]);
	return max;
}

int lp_refs_check(const struct lp_refs *refs, uint32_t first, uint32_t cnt, bool is_shared)
{
	assert_range(refs, first, cnt);
	for (uint32_t block = first; block < first + cnt; block++) {
		if ((refs->cnt[block] > 0) != is_shared)
			return LP_CORRUPT(
				LP_OFFSET_NONE, "block %llu, of %s extent, has %u references",
				(unsigned long long)(refs->group << LP_REFS_SHIFT) + block,
				is_shared ? "a shared" : "an unshared", refs->cnt[block]);
	}
	return 0;
}

int lp_refs_share(struct lp_refs *refs, uint32_t first, uint32_t cnt, bool already_shared)
{
	const uint32_t more = already_shared ? 1 : 2;
	assert_range(refs, first, cnt);
	int err = already_shared ? lp_refs_check(refs, first, cnt, true) : 0;
	if (err != 0)
		return err;
	LP_ASSERT(lp_refs_max(refs, first, cnt) <= LP_REFS_MAX - more);
	for (uint32_t block = first; block < first + cnt; block++)
		refs->cnt[block] += more;
	return 0;
}

int lp_refs_release(struct lp_refs *refs, uint32_t first, uint32_t cnt, uint64_t *ret_freed)
{
	uint64_t freed = 0;
	int err = lp_refs_check(refs, first, cnt, true);
	if (err != 0)
		return err;
	for (uint32_t block = first; block < first + cnt; block++) {
		refs->cnt[block]--;
		if (refs->cnt[block] == 0)
			freed |= UINT64_C(1) << block;
	}
	*ret_freed = freed;
	return 0;
}
