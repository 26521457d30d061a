/* SPDX-License-Identifier: Apache-2.0 */
/* Two periods are watched, not each second. So memory is unused for at least one whole period
 * before it goes, and for two at most.
 *
 * Memory goes back only after it is unregistered. Otherwise the device would write to the page that
 * the kernel has pinned while the process already has another page in its place. Buffers beyond the
 * remaining memory are free, so no I/O with them is under way. */
#include "daemon/resident.h"

#include "base/memory/huge.h"

void lpi_resident_init(struct lpi_resident *resident, struct lp_reactor *reactor,
		       struct lp_bufs *bufs, bool registers, unsigned thread_idx)
{
	*resident = (struct lpi_resident){.reactor = reactor,
					  .bufs = bufs,
					  .registers = registers,
					  .period_began_ns = lp_reactor_now_ns(reactor),
					  .moved_ns = lp_reactor_now_ns(reactor)};
	lp_account_init(&resident->memory, "buffers", thread_idx);
	lp_account_init(&resident->pinned, "buffers registered", thread_idx);
}

static void account(struct lp_account *one, uint64_t bytes)
{
	lp_account_sub(one, lp_account_bytes(one), 0);
	lp_account_add(one, bytes, 0);
}

static void account_all(struct lpi_resident *resident)
{
	uint64_t region_bytes;
	uint64_t bytes = lp_bufs_resident_bytes(resident->bufs);
	(void)lp_bufs_region(resident->bufs, &region_bytes);
	account(&resident->memory, LP_MIN(lp_align_up(bytes, LP_HUGE_BYTES), region_bytes));
	account(&resident->pinned, resident->registered_bytes);
}

static void register_them(struct lpi_resident *resident, uint64_t bytes)
{
	uint64_t region_bytes;
	void *region = lp_bufs_region(resident->bufs, &region_bytes);
	bytes = LP_MIN(lp_align_up(bytes, LP_HUGE_BYTES), region_bytes);
	if (!resident->registers || bytes == resident->registered_bytes)
		return;
	bool shrinks = bytes < resident->registered_bytes;
	if (!shrinks && resident->refused_bytes > 0 && bytes >= resident->refused_bytes)
		return;
	int err = lp_reactor_buffer_resize(resident->reactor, region, bytes);
	/* This is the limit of locked memory: more than this is not tried again. */
	if (err < 0 && !shrinks)
		resident->refused_bytes = bytes;
	resident->registered_bytes = bytes;
}

void lpi_resident_fini(struct lpi_resident *resident)
{
	if (resident->bufs == NULL)
		return;
	register_them(resident, 0);
	account(&resident->memory, 0);
	account(&resident->pinned, 0);
	lp_account_fini(&resident->memory);
	lp_account_fini(&resident->pinned);
	*resident = (struct lpi_resident){.bufs = NULL};
}

static void end_period(struct lpi_resident *resident, uint64_t now_ns)
{
	uint64_t keep_bytes = LP_MAX(resident->reached_bytes, resident->before_bytes);
	resident->period_began_ns = now_ns;
	resident->before_bytes = resident->reached_bytes;
	resident->reached_bytes = 0;
	if (keep_bytes < resident->registered_bytes)
		register_them(resident, keep_bytes);
	if (lp_align_up(keep_bytes, LP_HUGE_BYTES) < lp_bufs_resident_bytes(resident->bufs))
		lp_bufs_trim(resident->bufs, keep_bytes);
}

bool lpi_resident_look(struct lpi_resident *resident, const struct lpi_resident_look *look)
{
	uint64_t now_ns = lp_reactor_now_ns(resident->reactor);
	uint64_t reach_bytes = lp_bufs_reach(resident->bufs);
	resident->reached_bytes = LP_MAX(resident->reached_bytes, reach_bytes);
	if (reach_bytes > resident->registered_bytes)
		register_them(resident, reach_bytes);
	if (look->moved != resident->moved || look->under_way > 0)
		resident->moved_ns = now_ns;
	resident->moved = look->moved;
	uint64_t period_ns = look->idle_ns > 0 ? look->idle_ns : UINT64_MAX;
	if (look->is_short)
		period_ns = LP_MIN(period_ns, LPI_RESIDENT_SHORT_NS);
	if (now_ns - resident->period_began_ns >= period_ns)
		end_period(resident, now_ns);
	account_all(resident);
	return look->idle_ns > 0 && now_ns - resident->moved_ns >= look->idle_ns;
}
