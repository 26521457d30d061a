/* SPDX-License-Identifier: Apache-2.0 */
/* A header for each 4 KiB of the region: the buffer at an address is found by division, and
 * headers lie apart from the data. A slab is free, or cut into buffers of one class; its free
 * buffers are on its own list, and a slab with free buffers is on its class's list. New buffers
 * come from the front, and a slab that was full comes to the front when it has one again: so the
 * fullest are filled, those behind them only become emptier until they are whole again, and what
 * was given back last, which the caches still have, is what is had next. */
#include "base/buf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/huge.h"
#include "base/sanitize.h"

#define SLAB_BYTES     LP_BUF_LARGE
#define REGION_ALIGN   LP_HUGE_BYTES
#define HEADS_PER_SLAB (SLAB_BYTES / LP_BUF_SMALL)
#define CLASS_CNT      3

LP_LIST_DEFINE(buf_list, struct lp_buf, node);

struct slab {
	struct lp_list_node node; /* of its class's list, or of the list of whole slabs */
	struct buf_list free;
	uint32_t class_bytes; /* 0 while whole */
	uint32_t used_cnt;
};

LP_LIST_DEFINE(slab_list, struct slab, node);

struct lp_bufs {
	uint8_t *region;
	bool is_shared; /* others may read the region */
	uint32_t slab_cnt;
	struct slab *slabs;
	struct lp_buf *heads;
	struct slab_list whole;
	struct slab_list partial[CLASS_CNT];
	struct lp_bufs_stats stats;
};

static const uint32_t class_sizes[CLASS_CNT] = {LP_BUF_SMALL, LP_BUF_MEDIUM, LP_BUF_LARGE};

static unsigned class_of(uint32_t bytes)
{
	unsigned idx = 0;
	while (idx < CLASS_CNT - 1 && class_sizes[idx] < bytes)
		idx++;
	LP_ASSERT(class_sizes[idx] >= bytes);
	return idx;
}

static struct slab *slab_of(const struct lp_bufs *bufs, const struct lp_buf *buf)
{
	return &bufs->slabs[(size_t)(buf - bufs->heads) / HEADS_PER_SLAB];
}

/* NULL: no memory. */
static uint8_t *region_map(size_t bytes, int fd)
{
	/* More than needed, so that it can begin on its own alignment. */
	void *map = mmap(NULL, bytes + REGION_ALIGN, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (map == MAP_FAILED)
		return NULL;
	size_t lead = (size_t)lp_align_up((uintptr_t)map, REGION_ALIGN) - (uintptr_t)map;
	uint8_t *region = (uint8_t *)map + lead;
	if (lead > 0)
		(void)munmap(map, lead);
	if (lead < REGION_ALIGN)
		(void)munmap(region + bytes, REGION_ALIGN - lead);
	if (fd >= 0) {
		map = mmap(region, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
		if (map == MAP_FAILED)
			(void)munmap(region, bytes);
		return map == MAP_FAILED ? NULL : region;
	}
	/* Huge pages where the system has them: a checksum over memory that is in no cache took two
	 * thirds of the time with them (each small page costs a walk of the tables, in a virtual
	 * machine a long one), and a device gets few long pieces instead of many short ones.
	 * Without them everything works as well. */
	(void)lp_huge_advise(region, bytes);
	return region;
}

static int new_region(uint64_t region_bytes, int fd, struct lp_bufs **ret_bufs)
{
	LP_ASSERT(region_bytes >= SLAB_BYTES && region_bytes / SLAB_BYTES < UINT32_MAX);
	struct lp_bufs *bufs = calloc(1, sizeof(*bufs));
	if (bufs == NULL)
		return -ENOMEM;
	bufs->slab_cnt = (uint32_t)(region_bytes / SLAB_BYTES);
	size_t bytes = (size_t)bufs->slab_cnt * SLAB_BYTES;
	bufs->slabs = calloc(bufs->slab_cnt, sizeof(*bufs->slabs));
	bufs->heads = calloc((size_t)bufs->slab_cnt * HEADS_PER_SLAB, sizeof(*bufs->heads));
	bufs->region = region_map(bytes, fd);
	if (bufs->slabs == NULL || bufs->heads == NULL || bufs->region == NULL) {
		if (bufs->region != NULL)
			(void)munmap(bufs->region, bytes); /* just mapped: cannot fail */
		free(bufs->slabs);
		free(bufs->heads);
		free(bufs);
		return -ENOMEM;
	}
	bufs->is_shared = fd >= 0;
	bufs->stats.region_bytes = bytes;
	slab_list_init(&bufs->whole);
	for (unsigned i = 0; i < CLASS_CNT; i++)
		slab_list_init(&bufs->partial[i]);
	for (uint32_t i = 0; i < bufs->slab_cnt; i++)
		slab_list_push_back(&bufs->whole, &bufs->slabs[i]);
	lp_san_poison(bufs->region, bytes);
	*ret_bufs = bufs;
	return 0;
}

int lp_bufs_new(uint64_t region_bytes, struct lp_bufs **ret_bufs)
{
	return new_region(region_bytes, -1, ret_bufs);
}

/* A file in memory that keeps its size, and that only its owner may open again. */
static int new_file(uint64_t bytes)
{
	int fd = memfd_create("lapis", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0 || fchmod(fd, S_IRUSR) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
		int err = -errno;
		(void)close(fd);
		return err;
	}
	return fd;
}

/* Another description of the same file, which is for reading. */
static int open_for_reading(int fd)
{
	char path[32];
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	int reading = open(path, O_RDONLY | O_CLOEXEC);
	return reading < 0 ? -errno : reading;
}

int lp_bufs_new_shared(uint64_t region_bytes, struct lp_bufs **ret_bufs, int *ret_fd)
{
	int fd = new_file(region_bytes / SLAB_BYTES * SLAB_BYTES);
	if (fd < 0)
		return fd;
	int reading = open_for_reading(fd);
	int err = reading < 0 ? reading : new_region(region_bytes, fd, ret_bufs);
	if (err < 0) {
		if (reading >= 0)
			(void)close(reading);
	} else {
		*ret_fd = reading;
	}
	(void)close(fd); /* a mapping is left of it */
	return err;
}

void lp_bufs_free(struct lp_bufs *bufs)
{
	if (bufs == NULL)
		return;
	LP_ASSERT(bufs->stats.used_bytes == 0);
	lp_san_unpoison(bufs->region, bufs->stats.region_bytes);
	/* Whoever else has it mapped keeps none of it. */
	if (bufs->is_shared)
		(void)madvise(bufs->region, bufs->stats.region_bytes, MADV_REMOVE);
	(void)munmap(bufs->region, bufs->stats.region_bytes); /* our own mapping: cannot fail */
	free(bufs->slabs);
	free(bufs->heads);
	free(bufs);
}

void *lp_bufs_region(const struct lp_bufs *bufs, uint64_t *ret_bytes)
{
	*ret_bytes = bufs->stats.region_bytes;
	return bufs->region;
}

static void slab_cut(struct lp_bufs *bufs, struct slab *slab, unsigned class_idx)
{
	slab->class_bytes = class_sizes[class_idx];
	slab->used_cnt = 0;
	buf_list_init(&slab->free);
	size_t slab_idx = (size_t)(slab - bufs->slabs);
	for (uint32_t at = 0; at < SLAB_BYTES; at += slab->class_bytes) {
		struct lp_buf *buf = &bufs->heads[slab_idx * HEADS_PER_SLAB + at / LP_BUF_SMALL];
		*buf = (struct lp_buf){.data = bufs->region + slab_idx * SLAB_BYTES + at,
				       .home = bufs};
		buf_list_push_back(&slab->free, buf);
	}
	slab_list_push_front(&bufs->partial[class_idx], slab);
}

struct lp_buf *lp_buf_new(struct lp_bufs *bufs, uint32_t bytes)
{
	LP_ASSERT(bytes > 0 && bytes <= LP_BUF_LARGE);
	unsigned class_idx = class_of(bytes);
	struct slab *slab = slab_list_first(&bufs->partial[class_idx]);
	if (slab == NULL) {
		slab = slab_list_pop_front(&bufs->whole);
		if (slab == NULL) {
			bufs->stats.failed_cnt++;
			return NULL;
		}
		slab_cut(bufs, slab, class_idx);
	}
	struct lp_buf *buf = buf_list_pop_front(&slab->free);
	slab->used_cnt++;
	if (buf_list_is_empty(&slab->free))
		slab_list_remove(slab);
	buf->bytes = slab->class_bytes;
	buf->refs = 1;
	bufs->stats.used_bytes += buf->bytes;
	bufs->stats.used_max_bytes = LP_MAX(bufs->stats.used_max_bytes, bufs->stats.used_bytes);
	lp_san_unpoison(buf->data, buf->bytes);
	return buf;
}

struct lp_buf *lp_buf_get(struct lp_buf *buf)
{
	LP_ASSERT(buf->refs > 0 && buf->refs < UINT32_MAX);
	buf->refs++;
	return buf;
}

void lp_buf_put(struct lp_buf *buf)
{
	if (buf == NULL)
		return;
	LP_ASSERT(buf->refs > 0);
	if (--buf->refs > 0)
		return;
	struct lp_bufs *bufs = buf->home;
	struct slab *slab = slab_of(bufs, buf);
	LP_ASSERT(slab->class_bytes == buf->bytes && slab->used_cnt > 0);
	lp_san_poison(buf->data, buf->bytes);
	bufs->stats.used_bytes -= buf->bytes;
	buf->bytes = 0;
	bool was_full = buf_list_is_empty(&slab->free);
	buf_list_push_front(&slab->free, buf);
	slab->used_cnt--;
	if (slab->used_cnt == 0) {
		if (!was_full)
			slab_list_remove(slab);
		slab->class_bytes = 0;
		slab_list_push_front(&bufs->whole, slab);
	} else if (was_full) {
		slab_list_push_front(&bufs->partial[class_of(slab->class_bytes)], slab);
	}
}

void lp_bufs_read_stats(const struct lp_bufs *bufs, struct lp_bufs_stats *ret_stats)
{
	*ret_stats = bufs->stats;
}
