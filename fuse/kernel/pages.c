/* SPDX-License-Identifier: Apache-2.0 */
/* The word `directs` has three parts: how many handles of O_DIRECT are open on the inodes that
 * share the place; whether these were ever of more than one inode, since there were none; and a
 * hash of that inode. While it is 0 a read looks at it, and does nothing else here.
 *
 * Pages that were filled before a handle of O_DIRECT was open cannot be wrong because of it, so
 * they need not be noted. A direct write drops those of its range when it begins.
 *
 * A fill counts in `fills` before the store is asked. A direct write compares the count when the
 * store has done it. So it sees each read that began before it was done.
 *
 * Drops of pages are noted while the kernel works on them (drop_cnt) and afterwards (dropped). One
 * inode is noted by its number. If that puts another one out, all inodes of the place count as
 * noted for a minute: the kernel does not take that long to hand over a write that it has begun. */
#include "fuse/kernel/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "base/hash.h"
#include "fuse/channel_state.h"

#define PUT_OUT_NS (60 * LP_NS_PER_S)
/* From the answer to an open until the kernel has dropped the pages: the rest of one system call.
 */
#define OPENED_NS LP_NS_PER_S

#define COUNT_SHIFT 48u
#define ONE         (UINT64_C(1) << COUNT_SHIFT)
#define SEVERAL     (UINT64_C(1) << 47)
#define HASH_MASK   (SEVERAL - 1)
#define DIRECTS_MAX (UINT64_C(0xffff) << COUNT_SHIFT)

static_assert(sizeof(struct lpi_fuse_page_slot) == 48, "no more than need be");

int lpi_fuse_pages_init(struct lpi_fuse_pages *pages)
{
	/* Zeros take no memory until a place is used. */
	pages->slots = calloc(LPI_FUSE_PAGE_SLOTS, sizeof(*pages->slots));
	return pages->slots == NULL ? -ENOMEM : 0;
}

void lpi_fuse_pages_fini(struct lpi_fuse_pages *pages)
{
	free(pages->slots);
	pages->slots = NULL;
}

static uint64_t hash_of(struct lp_ino ino)
{
	return lp_hash_u64(&ino.nr, sizeof(ino.nr), 0);
}

static struct lpi_fuse_page_slot *slot_of(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	const struct lpi_fuse_pages *pages = &channel->peers[0]->pages;
	return &pages->slots[(hash_of(ino) >> 48) % LPI_FUSE_PAGE_SLOTS];
}

static uint64_t now_of(const struct lp_fuse_channel *channel)
{
	return lp_clock_mono_ns(lp_reactor_clock(channel->options.reactor));
}

/* --- Handles ---------------------------------------------------------------------------------- */

static uint64_t one_more(uint64_t directs, uint64_t hash)
{
	if (directs == 0)
		return ONE | hash;
	/* So many will never be counted down to none again: no harm. */
	if (directs >= DIRECTS_MAX)
		return directs;
	return (directs + ONE) | ((directs & HASH_MASK) == hash ? 0 : SEVERAL);
}

/* The kernel names the handle that it gives back, so the count must not be asserted. */
static uint64_t one_less(uint64_t directs)
{
	if (directs >= DIRECTS_MAX)
		return directs;
	return directs < 2 * ONE ? 0 : directs - ONE;
}

uint64_t lpi_fuse_pages_open(const struct lp_fuse_channel *channel, struct lp_ino ino,
			     uint32_t flags)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	uint64_t hash = hash_of(ino) & HASH_MASK;
	if ((flags & O_DIRECT) == 0) {
		atomic_fetch_add(&slot->cached_cnt, 1);
		return 0;
	}
	uint64_t directs = atomic_load(&slot->directs);
	while (!atomic_compare_exchange_weak(&slot->directs, &directs, one_more(directs, hash)))
		continue;
	return LPI_FUSE_HANDLE_UNCACHED;
}

void lpi_fuse_pages_close(const struct lp_fuse_channel *channel, struct lp_ino ino, uint64_t handle)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	if ((handle & LPI_FUSE_HANDLE_UNCACHED) == 0) {
		atomic_fetch_sub(&slot->cached_cnt, 1);
		return;
	}
	uint64_t directs = atomic_load(&slot->directs);
	while (!atomic_compare_exchange_weak(&slot->directs, &directs, one_less(directs)))
		continue;
}

/* --- Behind direct writes --------------------------------------------------------------------- */

void lpi_fuse_pages_fill(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	if (atomic_load(&slot->directs) == 0)
		return;
	atomic_store_explicit(&slot->filled_ns, now_of(channel), memory_order_relaxed);
	atomic_fetch_add(&slot->fills, 1);
}

/* Whether all pages of the place are those of one inode, and no handle uses it through the cache.
 */
static bool is_idle(const struct lp_fuse_channel *channel, struct lpi_fuse_page_slot *slot)
{
	uint64_t filled_ns = atomic_load_explicit(&slot->filled_ns, memory_order_relaxed);
	uint64_t now_ns = now_of(channel);
	return (atomic_load(&slot->directs) & SEVERAL) == 0 &&
	       atomic_load(&slot->cached_cnt) == 0 &&
	       now_ns - LP_MIN(filled_ns, now_ns) > LPI_FUSE_PAGES_IDLE_NS;
}

enum lpi_fuse_pages_wrong lpi_fuse_pages_behind(const struct lp_fuse_channel *channel,
						struct lp_ino ino, uint64_t handle,
						uint32_t *ret_fills)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	/* O_DIRECT was set by fcntl, so fills were not counted. */
	if ((handle & LPI_FUSE_HANDLE_UNCACHED) == 0)
		return LPI_FUSE_PAGES_RANGE;
	*ret_fills = atomic_load(&slot->fills);
	if (*ret_fills == atomic_load(&slot->dropped_upto))
		return LPI_FUSE_PAGES_NONE;
	return is_idle(channel, slot) ? LPI_FUSE_PAGES_ALL : LPI_FUSE_PAGES_RANGE;
}

void lpi_fuse_pages_all_dropped(const struct lp_fuse_channel *channel, struct lp_ino ino,
				uint32_t fills)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	/* Another inode may have come to the place, and have been filled before. */
	if ((atomic_load(&slot->directs) & ~DIRECTS_MAX) == (hash_of(ino) & HASH_MASK))
		atomic_store(&slot->dropped_upto, fills);
}

/* --- Behind writes through the cache ---------------------------------------------------------- */

/* Notes the inode. There is room for one; if it replaces another, all inodes of the place count
 * until until_ns. */
static void note(struct lpi_fuse_page_slot *slot, struct lp_ino ino, uint64_t until_ns)
{
	uint64_t dropped = 0;
	if (atomic_compare_exchange_strong(&slot->dropped, &dropped, ino.nr) || dropped == ino.nr)
		return;
	atomic_store(&slot->until_ns, until_ns);
}

void lpi_fuse_pages_begin_drop(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	atomic_fetch_add(&slot_of(channel, ino)->drop_cnt, 1);
}

void lpi_fuse_pages_end_drop(const struct lp_fuse_channel *channel, struct lp_ino ino,
			     bool is_noted)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	if (is_noted)
		note(slot, ino, now_of(channel) + PUT_OUT_NS);
	uint32_t cnt = atomic_fetch_sub(&slot->drop_cnt, 1);
	LP_ASSERT(cnt > 0);
}

void lpi_fuse_pages_expect_drop(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	uint64_t until_ns = now_of(channel) + OPENED_NS;
	if (atomic_load(&slot->until_ns) < until_ns)
		atomic_store(&slot->until_ns, until_ns);
}

bool lpi_fuse_pages_take_dropped(const struct lp_fuse_channel *channel, struct lp_ino ino)
{
	struct lpi_fuse_page_slot *slot = slot_of(channel, ino);
	/* In this order, because a drop is noted before it ends. */
	bool is_at_it = atomic_load(&slot->drop_cnt) > 0;
	uint64_t dropped = atomic_load(&slot->dropped);
	if (dropped == ino.nr && atomic_compare_exchange_strong(&slot->dropped, &dropped, 0))
		return true;
	if (is_at_it)
		return true;
	uint64_t until_ns = atomic_load(&slot->until_ns);
	return until_ns != 0 && now_of(channel) < until_ns;
}
