/* SPDX-License-Identifier: Apache-2.0 */
/* One allocation holds the struct, the plain slots and the atomic ones. CPU numbers may have gaps,
 * so the highest possible number, not the number of CPUs, decides how many slots there are. A CPU
 * number beyond that (there is none, but the kernel is input) wraps for the atomic slots and is
 * refused for the plain ones. */
#include "base/struct/percpu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* More CPUs than this share slots, atomically. */
#define CPUS_MAX 8192u

/* The highest number in a list such as "0-3,8-11", plus one; 0 when there is none. */
static unsigned cpus_of_list(const char *list)
{
	unsigned long most = 0;
	bool is_empty = true;
	while (*list >= '0' && *list <= '9') {
		char *end = NULL;
		unsigned long cpu = strtoul(list, &end, 10);
		most = LP_MAX(most, cpu);
		is_empty = false;
		list = *end == '-' || *end == ',' ? end + 1 : end;
	}
	return is_empty ? 0 : (unsigned)LP_MIN(most + 1, (unsigned long)CPUS_MAX);
}

static unsigned possible_cpus(void)
{
	char list[512] = "";
	int fd = open("/sys/devices/system/cpu/possible", O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		ssize_t got = read(fd, list, sizeof(list) - 1);
		list[got > 0 ? got : 0] = '\0';
		(void)close(fd); /* nothing was written */
	}
	unsigned cpus = cpus_of_list(list);
	if (cpus > 0)
		return cpus;
	/* Without /sys: the count may be lower than the highest number, which costs sharing only.
	 */
	long conf = sysconf(_SC_NPROCESSORS_CONF);
	return conf > 0 ? (unsigned)LP_MIN(conf, (long)CPUS_MAX) : 1;
}

struct lp_percpu *lp_percpu_new(uint32_t nr_counters)
{
	LP_ASSERT(nr_counters > 0 && nr_counters <= LP_PERCPU_COUNTERS_MAX);
	unsigned cpus = possible_cpus();
	size_t stride = lp_align_up(nr_counters * sizeof(int64_t), LP_CACHE_LINE);
	size_t head = lp_align_up(sizeof(struct lp_percpu), LP_CACHE_LINE);
	size_t bytes = head + cpus * stride * 2;
	struct lp_percpu *percpu = aligned_alloc(LP_CACHE_LINE, bytes);
	if (percpu == NULL)
		return NULL;
	memset(percpu, 0, bytes);
	percpu->plain = (char *)percpu + head;
	percpu->safe = (void *)(percpu->plain + cpus * stride);
	percpu->stride = stride;
	percpu->cpus = cpus;
	percpu->counters = nr_counters;
#if LP_PERCPU_RSEQ
	/* Size 0: glibc was told not to register, and there may be no area at the offset. */
	percpu->plain_cpus = __rseq_size != 0 ? cpus : 0;
#endif
	return percpu;
}

void lp_percpu_free(struct lp_percpu *percpu)
{
	free(percpu);
}

static _Atomic int64_t *safe_at(const struct lp_percpu *percpu, unsigned cpu, uint32_t idx)
{
	return percpu->safe + cpu * (percpu->stride / sizeof(int64_t)) + idx;
}

void lpi_percpu_add_safe(struct lp_percpu *percpu, uint32_t idx, int64_t delta)
{
	unsigned cpu = lp_percpu_cpu();
	LP_ASSERT(percpu->cpus > 0);
	if (LP_UNLIKELY(cpu >= percpu->cpus))
		cpu %= percpu->cpus;
	atomic_fetch_add_explicit(safe_at(percpu, cpu, idx), delta, memory_order_relaxed);
}

static int64_t plain_at(const struct lp_percpu *percpu, unsigned cpu, uint32_t idx)
{
	const char *counter = percpu->plain + cpu * percpu->stride + idx * sizeof(int64_t);
	return __atomic_load_n((const int64_t *)(const void *)counter, __ATOMIC_RELAXED);
}

int64_t lp_percpu_sum(const struct lp_percpu *percpu, uint32_t idx)
{
	LP_ASSERT(idx < percpu->counters);
	/* Unsigned, because a sum of halves may exceed the limits on its way. */
	uint64_t sum = 0;
	for (unsigned cpu = 0; cpu < percpu->cpus; cpu++) {
		sum += (uint64_t)plain_at(percpu, cpu, idx);
		sum += (uint64_t)atomic_load_explicit(safe_at(percpu, cpu, idx),
						      memory_order_relaxed);
	}
	return (int64_t)sum;
}
