/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of how many extents name each of 64 device blocks: `R` records (rule S4).
 *
 * Threads: one per struct.
 * Blocking: none.
 * Memory: none is allocated.
 * Errors: counts come from a device. Where they contradict the extent map the result is -EUCLEAN
 * by lp_corrupt(), and nothing has changed.
 *
 * docs/format/values.md has the bytes. A block whose count is 0 is not shared: it has one owner,
 * or none. A block that becomes shared has two. When one of them lets go, the extent of the other
 * stays marked as shared, with a count of 1. The grid is fixed, so a point read finds the count
 * of any block.
 */
#ifndef LP_STORE_RECORD_REF_COUNTS_H
#define LP_STORE_RECORD_REF_COUNTS_H

#include "format/values.h"
#include "store/record/keys.h"

#define LP_REFS_BLOCKS    64u
#define LP_REFS_SHIFT     6u
#define LP_REFS_GROUPS    (UINT64_C(1) << 42) /* numbers of groups are below */
#define LP_REFS_MAX       UINT32_MAX          /* of a block: no more clones then */
#define LP_REFS_BYTES_MAX (LP_REFS_HEAD_SIZE + (size_t)LP_REFS_BLOCKS * LP_REFS_RUN_SIZE)

struct lp_refs {
	uint64_t group; /* device block >> LP_REFS_SHIFT, the number of the key */
	uint32_t cnt[LP_REFS_BLOCKS];
};

/* A group without a record: nothing is shared. */
void lp_refs_init(struct lp_refs *refs, uint64_t group);
void lp_refs_key(struct lp_key *ret, uint64_t group);

/* Bytes that may be anything, under an R key. -EBADMSG, -EUCLEAN, and *ret untouched. */
int lp_refs_decode(const void *bytes, size_t len, const struct lp_key *key,
		   struct lp_refs *ret) LP_MUST_CHECK;
/* Writes at most LP_REFS_BYTES_MAX and returns how many. 0: nothing is shared any more, and the
 * record is to be deleted. */
size_t lp_refs_encode(const struct lp_refs *refs, uint8_t *buf) LP_MUST_CHECK;

/* The highest count in a range of the group's blocks. */
uint32_t lp_refs_max(const struct lp_refs *refs, uint32_t first, uint32_t cnt) LP_MUST_CHECK;

/* Blocks of a shared extent have counts, and those of any other have none: -EUCLEAN when a count
 * says otherwise. */
int lp_refs_check(const struct lp_refs *refs, uint32_t first, uint32_t cnt,
		  bool is_shared) LP_MUST_CHECK;

/* One more extent names these blocks. The extent it was cloned from was shared already: counts
 * grow by 1, and -EUCLEAN when there was none. Or it becomes shared by this, and is counted, too:
 * by 2, also where a count says that others name the block, which is damage, but counted rightly
 * then. The caller has seen to it that lp_refs_max() stays within LP_REFS_MAX. */
int lp_refs_share(struct lp_refs *refs, uint32_t first, uint32_t cnt,
		  bool already_shared) LP_MUST_CHECK;

/* An extent marked shared lets go of these blocks. *ret_freed gets a bit, 1 << block of the group,
 * for each that nobody names now. -EUCLEAN when one had no count. */
int lp_refs_release(struct lp_refs *refs, uint32_t first, uint32_t cnt,
		    uint64_t *ret_freed) LP_MUST_CHECK;

#endif
