/* SPDX-License-Identifier: Apache-2.0 */
/* An array of at most 65 runs, searched by halves and shifted by memmove. */
#include "store/extmap/runs.h"

#include <string.h>

/* The number of the first run that ends beyond idx; cnt when none does. */
static uint32_t find(const struct lpi_runs *runs, uint32_t idx)
{
	const struct lpi_run *items = lpi_runs_list(runs);
	uint32_t low = 0;
	uint32_t high = runs->cnt;
	while (low < high) {
		uint32_t mid = (low + high) / 2;
		if (lpi_run_end(items[mid]) <= idx)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

const struct lpi_run *lpi_runs_next(const struct lpi_runs *runs, uint32_t idx)
{
	uint32_t at = find(runs, idx);
	return at == runs->cnt ? NULL : &lpi_runs_list(runs)[at];
}

bool lpi_runs_has(const struct lpi_runs *runs, uint32_t idx)
{
	const struct lpi_run *run = lpi_runs_next(runs, idx);
	return run != NULL && run->first <= idx;
}

static void insert(struct lpi_runs *runs, uint32_t at, struct lpi_run run)
{
	struct lpi_run *items = lpi_runs_items(runs);
	LP_ASSERT(runs->cnt < runs->max);
	memmove(&items[at + 1], &items[at], (runs->cnt - at) * sizeof(items[0]));
	items[at] = run;
	runs->cnt++;
}

static void erase(struct lpi_runs *runs, uint32_t at)
{
	struct lpi_run *items = lpi_runs_items(runs);
	LP_ASSERT(at < runs->cnt);
	memmove(&items[at], &items[at + 1], (runs->cnt - at - 1) * sizeof(items[0]));
	runs->cnt--;
}

bool lpi_runs_add(struct lpi_runs *runs, uint32_t idx)
{
	struct lpi_run *items = lpi_runs_items(runs);
	uint32_t at = find(runs, idx);
	if (at < runs->cnt && items[at].first <= idx)
		return false;
	bool after = at > 0 && lpi_run_end(items[at - 1]) == idx;
	bool before = at < runs->cnt && items[at].first == idx + 1;
	if (!after && !before && runs->cnt == runs->max)
		return false;
	runs->sum++;
	if (after && before) {
		items[at - 1].cnt += 1 + items[at].cnt;
		erase(runs, at);
	} else if (after) {
		items[at - 1].cnt++;
	} else if (before) {
		items[at].first--;
		items[at].cnt++;
	} else {
		insert(runs, at, (struct lpi_run){idx, 1});
	}
	return true;
}

bool lpi_runs_remove(struct lpi_runs *runs, uint32_t idx)
{
	struct lpi_run *items = lpi_runs_items(runs);
	uint32_t at = find(runs, idx);
	if (at == runs->cnt || items[at].first > idx)
		return false;
	struct lpi_run old = items[at];
	runs->sum--;
	if (old.cnt == 1) {
		erase(runs, at);
		return true;
	}
	if (old.first == idx) {
		items[at].first++;
		items[at].cnt--;
		return true;
	}
	items[at].cnt = idx - old.first;
	if (idx + 1 < lpi_run_end(old))
		insert(runs, at + 1, (struct lpi_run){idx + 1, lpi_run_end(old) - idx - 1});
	return true;
}

struct lpi_run lpi_runs_drop(struct lpi_runs *runs, uint32_t keep)
{
	const struct lpi_run *items = lpi_runs_list(runs);
	uint32_t kept = find(runs, keep);
	uint32_t shortest = kept == 0 ? 1 : 0;
	if (runs->cnt <= LPI_RUNS_MAX)
		return (struct lpi_run){0, 0};
	for (uint32_t i = 0; i < runs->cnt; i++) {
		if (i != kept && items[i].cnt < items[shortest].cnt)
			shortest = i;
	}
	struct lpi_run dropped = items[shortest];
	runs->sum -= dropped.cnt;
	erase(runs, shortest);
	return dropped;
}

bool lpi_runs_are_sound(const struct lpi_runs *runs, uint64_t limit)
{
	const struct lpi_run *items = lpi_runs_list(runs);
	uint64_t end = 0;
	uint64_t sum = 0;
	if (runs->cnt > runs->max)
		return false;
	for (uint32_t i = 0; i < runs->cnt; i++) {
		bool has_gap = i == 0 || items[i].first > end;
		if (!has_gap || items[i].cnt == 0)
			return false;
		if (lp_range_outside(items[i].first, items[i].cnt, limit))
			return false;
		end = lpi_run_end(items[i]);
		sum += items[i].cnt;
	}
	return sum == runs->sum;
}
