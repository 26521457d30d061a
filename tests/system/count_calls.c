/* SPDX-License-Identifier: Apache-2.0 */
/* Counts, for each thread, how often the program itself (not a library) allocates memory or takes a
 * mutex: preloaded into a daemon by daemon_counts.sh, which compiles it.
 *
 * A call is the program's own when it returns into the program's code. What a library does on its
 * behalf (a RocksDB write, an operator new) returns into the library, and is not counted.
 *
 * The counts are in the file that LP_COUNT_FILE names, mapped and shared: THREADS_MAX records of
 * four u64: thread, allocations, releases, mutexes. A thread takes a record when it has
 * something to count for the first time.
 *
 * The functions of the C library are reached by its second names for them, for dlsym() may
 * allocate. */
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define THREADS_MAX 64u
#define EXPORT      __attribute__((visibility("default")))

enum what { ALLOCATIONS, RELEASES, MUTEXES, WHAT_CNT };

struct record {
	uint64_t tid;
	uint64_t counts[WHAT_CNT];
};

/* The C library's own names for what is counted here, and the names under which it is called. */
void *lpi_real_malloc(size_t bytes) __asm__("__libc_malloc");
void *lpi_real_calloc(size_t cnt, size_t bytes) __asm__("__libc_calloc");
void *lpi_real_realloc(void *old, size_t bytes) __asm__("__libc_realloc");
void *lpi_real_memalign(size_t align, size_t bytes) __asm__("__libc_memalign");
void lpi_real_free(void *memory) __asm__("__libc_free");
EXPORT void *lpi_malloc(size_t bytes) __asm__("malloc");
EXPORT void *lpi_calloc(size_t cnt, size_t bytes) __asm__("calloc");
EXPORT void *lpi_realloc(void *old, size_t bytes) __asm__("realloc");
EXPORT void *lpi_aligned_alloc(size_t align, size_t bytes) __asm__("aligned_alloc");
EXPORT void lpi_free(void *memory) __asm__("free");
EXPORT int lpi_mutex_lock(pthread_mutex_t *mutex) __asm__("pthread_mutex_lock");

static struct record *records;
static uint32_t record_cnt;
static uintptr_t code_from;
static uintptr_t code_to;
static __thread struct record *mine;

static void count(enum what what, const void *caller)
{
	if ((uintptr_t)caller < code_from || (uintptr_t)caller >= code_to)
		return;
	if (mine == NULL) {
		uint32_t idx = __atomic_fetch_add(&record_cnt, 1, __ATOMIC_RELAXED);
		mine = &records[idx % THREADS_MAX];
		mine->tid = (uint64_t)syscall(SYS_gettid);
	}
	mine->counts[what]++;
}

/* The first is the program itself. */
static int note_code(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *part = &info->dlpi_phdr[i];
		if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0)
			continue;
		code_from = info->dlpi_addr + part->p_vaddr;
		code_to = code_from + part->p_memsz;
	}
	return 1;
}

__attribute__((constructor)) static void begin(void)
{
	const char *name = getenv("LP_COUNT_FILE"); /* NOLINT(concurrency-mt-unsafe): no threads */
	int fd = name == NULL ? -1 : open(name, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	size_t bytes = THREADS_MAX * sizeof(struct record);
	if (fd < 0 || ftruncate(fd, (off_t)bytes) < 0)
		return;
	records = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (records != MAP_FAILED)
		dl_iterate_phdr(note_code, NULL);
}

void *lpi_malloc(size_t bytes)
{
	count(ALLOCATIONS, __builtin_return_address(0));
	return lpi_real_malloc(bytes);
}

void *lpi_calloc(size_t cnt, size_t bytes)
{
	count(ALLOCATIONS, __builtin_return_address(0));
	return lpi_real_calloc(cnt, bytes);
}

void *lpi_realloc(void *old, size_t bytes)
{
	count(ALLOCATIONS, __builtin_return_address(0));
	return lpi_real_realloc(old, bytes);
}

void *lpi_aligned_alloc(size_t align, size_t bytes)
{
	count(ALLOCATIONS, __builtin_return_address(0));
	return lpi_real_memalign(align, bytes);
}

void lpi_free(void *memory)
{
	count(RELEASES, __builtin_return_address(0));
	lpi_real_free(memory);
}

int lpi_mutex_lock(pthread_mutex_t *mutex)
{
	static int (*lock)(pthread_mutex_t * mutex);
	count(MUTEXES, __builtin_return_address(0));
	if (lock == NULL)
		*(void **)&lock = dlsym(RTLD_NEXT, "pthread_mutex_lock");
	return lock(mutex);
}
