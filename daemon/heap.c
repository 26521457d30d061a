/* SPDX-License-Identifier: Apache-2.0 */
/* The allocators' own functions are weak: those of the one that is linked are there. */
#include "daemon/heap.h"

#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

extern const char lp_allocator_name[];

/* jemalloc's, tcmalloc's, mimalloc's. */
extern int mallctl(const char *name, void *old, size_t *old_len, void *fresh, size_t fresh_len)
	__attribute__((weak));
extern int MallocExtension_GetNumericProperty(const char *name, size_t *value)
	__attribute__((weak));
extern void MallocExtension_ReleaseFreeMemory(void) __attribute__((weak));
extern void mi_collect(bool force) __attribute__((weak));

const char *lpi_heap_name(void)
{
	return lp_allocator_name;
}

static bool is_glibc(void)
{
	return strcmp(lp_allocator_name, "glibc") == 0;
}

static uint64_t jemalloc_number(const char *name)
{
	size_t value = 0;
	size_t len = sizeof(value);
	return mallctl(name, &value, &len, NULL, 0) == 0 ? value : 0;
}

static uint64_t tcmalloc_number(const char *name)
{
	size_t value = 0;
	return MallocExtension_GetNumericProperty(name, &value) != 0 ? value : 0;
}

static uint64_t read_rss(void)
{
	unsigned long long size = 0;
	unsigned long long resident = 0;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file == NULL)
		return 0;
	if (fscanf(file, "%llu %llu", &size, &resident) != 2)
		resident = 0;
	(void)fclose(file); /* it was only read */
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

void lpi_heap_read_stats(struct lpi_heap_stats *ret_stats)
{
	*ret_stats = (struct lpi_heap_stats){.rss_bytes = read_rss()};
	if (mallctl != NULL) {
		uint64_t epoch = 1;
		size_t len = sizeof(epoch);
		(void)mallctl("epoch", &epoch, &len, &epoch, len); /* old numbers will do */
		ret_stats->used_bytes = jemalloc_number("stats.allocated");
		ret_stats->held_bytes = jemalloc_number("stats.resident");
	} else if (MallocExtension_GetNumericProperty != NULL) {
		ret_stats->used_bytes = tcmalloc_number("generic.current_allocated_bytes");
		ret_stats->held_bytes = tcmalloc_number("generic.heap_size");
	} else if (is_glibc()) {
		struct mallinfo2 info = mallinfo2();
		ret_stats->used_bytes = info.uordblks + info.hblkhd;
		ret_stats->held_bytes = info.arena + info.hblkhd;
	}
}

bool lpi_heap_release(void)
{
	if (mallctl != NULL)
		/* 4096 is MALLCTL_ARENAS_ALL. */
		return mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0;
	if (MallocExtension_ReleaseFreeMemory != NULL)
		MallocExtension_ReleaseFreeMemory();
	else if (mi_collect != NULL)
		mi_collect(true);
	else if (is_glibc())
		(void)malloc_trim(0); /* says whether there was something to give back */
	else
		return false;
	return true;
}
