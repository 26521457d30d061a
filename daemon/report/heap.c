/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the functions of the linked allocator by name. */
#include "daemon/report/heap.h"

#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"

extern const char lp_allocator_name[];

/* jemalloc's, tcmalloc's, mimalloc's. */
typedef int mallctl_fn(const char *name, void *old, size_t *old_len, void *fresh, size_t fresh_len);
typedef int tcmalloc_number_fn(const char *name, size_t *value);
typedef void tcmalloc_release_fn(void);
typedef void mimalloc_collect_fn(bool force);
typedef void jemalloc_print_fn(void (*print)(void *arg, const char *text), void *arg,
			       const char *what);
typedef void tcmalloc_print_fn(char *buf, int len);
typedef void mimalloc_print_fn(void (*print)(const char *text, void *arg), void *arg);

static struct {
	mallctl_fn *mallctl;
	tcmalloc_number_fn *tcmalloc_number;
	tcmalloc_release_fn *tcmalloc_release;
	mimalloc_collect_fn *mimalloc_collect;
	jemalloc_print_fn *jemalloc_print;
	tcmalloc_print_fn *tcmalloc_print;
	mimalloc_print_fn *mimalloc_print;
} calls;

static void find_call(const char *name, void *ret_call)
{
	void *found = dlsym(RTLD_DEFAULT, name);
	memcpy(ret_call, &found, sizeof(found));
}

static void find_them(void)
{
	find_call("mallctl", &calls.mallctl);
	find_call("MallocExtension_GetNumericProperty", &calls.tcmalloc_number);
	find_call("MallocExtension_ReleaseFreeMemory", &calls.tcmalloc_release);
	find_call("mi_collect", &calls.mimalloc_collect);
	find_call("malloc_stats_print", &calls.jemalloc_print);
	find_call("MallocExtension_GetStats", &calls.tcmalloc_print);
	find_call("mi_stats_print_out", &calls.mimalloc_print);
}

static void find_calls(void)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	int err = pthread_once(&once, find_them);
	LP_ASSERT(err == 0);
}

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
	return calls.mallctl(name, &value, &len, NULL, 0) == 0 ? value : 0;
}

static uint64_t tcmalloc_number(const char *name)
{
	size_t value = 0;
	return calls.tcmalloc_number(name, &value) != 0 ? value : 0;
}

/* Reads the resident pages, and the number of them that belong to files. */
static void read_statm(struct lpi_heap_stats *stats)
{
	char line[128] = "";
	char *end = line;
	FILE *file = fopen("/proc/self/statm", "re");
	if (file == NULL)
		return;
	char *got = fgets(line, sizeof(line), file);
	(void)fclose(file); /* it was only read */
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE);
	if (got == NULL)
		return;
	(void)strtoull(line, &end, 10); /* number of addresses, not used */
	stats->rss_bytes = strtoull(end, &end, 10) * page_bytes;
	stats->file_bytes = strtoull(end, &end, 10) * page_bytes;
}

uint64_t lpi_heap_rss_bytes(void)
{
	struct lpi_heap_stats stats = {0};
	read_statm(&stats);
	return stats.rss_bytes;
}

void lpi_heap_read_stats(struct lpi_heap_stats *ret_stats)
{
	*ret_stats = (struct lpi_heap_stats){0};
	read_statm(ret_stats);
	find_calls();
	if (calls.mallctl != NULL) {
		uint64_t epoch = 1;
		size_t len = sizeof(epoch);
		(void)calls.mallctl("epoch", &epoch, &len, &epoch, len); /* old numbers will do */
		ret_stats->used_bytes = jemalloc_number("stats.allocated");
		ret_stats->held_bytes = jemalloc_number("stats.resident");
	} else if (calls.tcmalloc_number != NULL) {
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
	find_calls();
	if (calls.mallctl != NULL)
		/* 4096 is MALLCTL_ARENAS_ALL. */
		return calls.mallctl("arena.4096.purge", NULL, NULL, NULL, 0) == 0;
	if (calls.tcmalloc_release != NULL)
		calls.tcmalloc_release();
	else if (calls.mimalloc_collect != NULL)
		calls.mimalloc_collect(true);
	else if (is_glibc())
		(void)malloc_trim(0); /* its result says whether there was memory to give back */
	else
		return false;
	return true;
}

/* --- All of it -------------------------------------------------------------------------------- */

static void take_jemalloc(void *arg, const char *words)
{
	lpi_text_printf(arg, "%s", words);
}

static void take_mimalloc(const char *words, void *arg)
{
	lpi_text_printf(arg, "%s", words);
}

static void dump_glibc(struct lpi_text *text)
{
	char *bytes = NULL;
	size_t len = 0;
	FILE *file = open_memstream(&bytes, &len);
	if (file == NULL)
		return;
	int err = malloc_info(0, file);
	if (fclose(file) == 0 && err == 0)
		lpi_text_printf(text, "%s", bytes);
	free(bytes);
}

void lpi_heap_dump(struct lpi_text *text)
{
	char words[8192] = "";
	find_calls();
	if (calls.jemalloc_print != NULL) {
		/* As JSON, of all arenas together. */
		calls.jemalloc_print(take_jemalloc, text, "Jmda");
	} else if (calls.tcmalloc_print != NULL) {
		calls.tcmalloc_print(words, (int)sizeof(words));
		lpi_text_printf(text, "%s", words);
	} else if (calls.mimalloc_print != NULL) {
		calls.mimalloc_print(take_mimalloc, text);
	} else if (is_glibc()) {
		dump_glibc(text);
	}
}
