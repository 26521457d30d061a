/* SPDX-License-Identifier: Apache-2.0 */
#include "base/struct/slow.h"

#include <stdlib.h>
#include <string.h>

void lp_slow_add(struct lp_slow *slow, const struct lp_slow_request *request)
{
	struct lp_slow_request *least = &slow->requests[0];
	uint64_t min_ns = UINT64_MAX;
	for (uint32_t i = 1; i < LP_SLOW_MAX; i++) {
		if (slow->requests[i].took_ns < least->took_ns)
			least = &slow->requests[i];
	}
	*least = *request;
	for (uint32_t i = 0; i < LP_SLOW_MAX; i++)
		min_ns = LP_MIN(min_ns, slow->requests[i].took_ns);
	slow->min_ns = min_ns;
}

void lp_slow_forget(struct lp_slow *slow, uint64_t wall_ns)
{
	for (uint32_t i = 0; i < LP_SLOW_MAX; i++) {
		struct lp_slow_request *request = &slow->requests[i];
		if (request->took_ns > 0 && request->began_ns + LP_SLOW_KEEP_NS < wall_ns) {
			request->took_ns = 0;
			slow->min_ns = 0;
		}
	}
}

static int slowest_first(const void *a, const void *b)
{
	const struct lp_slow_request *one = a;
	const struct lp_slow_request *other = b;
	return one->took_ns < other->took_ns ? 1 : -(one->took_ns > other->took_ns);
}

uint32_t lp_slow_read(const struct lp_slow *slow, struct lp_slow_request *ret, uint32_t max)
{
	struct lp_slow_request all[LP_SLOW_MAX];
	uint32_t cnt = 0;
	memcpy(all, slow->requests, sizeof(all));
	qsort(all, LP_SLOW_MAX, sizeof(all[0]), slowest_first);
	while (cnt < LP_MIN(max, LP_SLOW_MAX) && all[cnt].took_ns > 0) {
		ret[cnt] = all[cnt];
		cnt++;
	}
	return cnt;
}
