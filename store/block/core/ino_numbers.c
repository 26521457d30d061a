/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers of inodes: given, used, never used again (rule N5).
 *
 * `S inodes` is a bound: below it any number may be in use after a crash. The frame with the first
 * number beyond the bound raises it, by many at once. A store gives numbers from the bound on when
 * it is opened. So the index has no record of a number given since then until a create uses it.
 * Without this knowledge a create would look in every table of the index for a record that cannot
 * be there. Therefore the last numbers given have a bit each, in a ring.
 *
 * A caller may also use a number that it was not given. Then the next number given is beyond it. */
#include <string.h>

#include "base/endian.h"
#include "store/block/core/block.h"

#define INO_STEP UINT64_C(65536) /* numbers that one record reserves */

static uint64_t counter_of(struct lp_ino ino)
{
	return ino.nr & (LP_INO_COUNTER_END - 1);
}

static uint64_t *word_of(struct lpi_block *block, uint64_t counter)
{
	return &block->inos.fresh[counter % LPI_FRESH_INOS / 64];
}

static uint64_t bit_of(uint64_t counter)
{
	return UINT64_C(1) << counter % 64;
}

bool lpi_ino_is_fresh(const struct lpi_block *block, struct lp_ino ino)
{
	uint64_t counter = counter_of(ino);
	if (lp_ino_shard(ino) != block->options.shard_idx || counter >= block->inos.next ||
	    block->inos.next - counter > LPI_FRESH_INOS)
		return false;
	return (block->inos.fresh[counter % LPI_FRESH_INOS / 64] & bit_of(counter)) != 0;
}

struct lp_ino lpi_ino_new(struct lpi_block *block)
{
	uint64_t counter = block->inos.next++;
	*word_of(block, counter) |= bit_of(counter);
	return lp_ino_make(block->options.shard_idx, counter);
}

/* Advances the ring to `next`: skipped numbers were not given. */
static void skip_to(struct lpi_block *block, uint64_t next)
{
	if (next - block->inos.next >= LPI_FRESH_INOS)
		memset(block->inos.fresh, 0, sizeof(block->inos.fresh));
	else
		for (uint64_t at = block->inos.next; at < next; at++)
			*word_of(block, at) &= ~bit_of(at);
	block->inos.next = next;
}

void lpi_ino_set_aside(struct lpi_block *block, struct lp_ino ino)
{
	uint64_t counter = counter_of(ino);
	struct lp_key key;
	uint8_t value[8];
	if (counter < block->inos.bound)
		return;
	block->inos.bound = counter + INO_STEP;
	lp_key_of_store(&key, "inodes");
	lp_put_le64(value, block->inos.bound);
	lp_commit_put(block->commit, (struct lp_kv_bytes){key.bytes, key.len},
		      (struct lp_kv_bytes){value, sizeof(value)});
}

void lpi_ino_use(struct lpi_block *block, struct lp_ino ino)
{
	uint64_t counter = counter_of(ino);
	if (counter >= block->inos.next)
		skip_to(block, counter + 1);
	else if (block->inos.next - counter <= LPI_FRESH_INOS)
		*word_of(block, counter) &= ~bit_of(counter);
}

int lpi_ino_open(struct lpi_block *block)
{
	struct lp_kv_value value;
	struct lp_key key;
	lp_key_of_store(&key, "inodes");
	int err = lp_kv_get(block->kv, (struct lp_kv_bytes){key.bytes, key.len}, &value);
	block->inos.next = LP_INO_FIRST;
	if (err == -ENOENT)
		return 0;
	if (err < 0)
		return err;
	if (value.bytes.len == 8)
		block->inos.bound = lp_get_le64(value.bytes.data);
	else
		err = LP_CORRUPT(LP_OFFSET_NONE, "the index's record \"inodes\" has %zu bytes",
				 value.bytes.len);
	lp_kv_value_release(&value);
	block->inos.next = LP_MAX(block->inos.next, block->inos.bound);
	return err;
}
