/* SPDX-License-Identifier: Apache-2.0 */
/* A block device in memory, for the comparison store and for tests that want no faults.
 *
 * The device is cut into chunks, which are mapped when first written; what was never written
 * reads as zeros. Operations are carried out by a task of their reactor, blocking calls at once.
 * Chunks appear under a lock but are found without: a chunk, once there, stays until the device is
 * closed. Two operations on the same bytes at the same time are the caller's race, as on a real
 * device. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>
#include <sys/mman.h>

#include "base/error.h"
#include "store/device/bdev_driver.h"

#define CHUNK_BYTES (UINT64_C(1) << 20)
#define PAGE_BYTES  4096u /* at least; MADV_DONTNEED refuses what is not a page */

struct mem {
	struct lp_bdev base;
	pthread_mutex_t lock; /* held while a chunk is made */
	uint64_t chunk_cnt;
	_Atomic(unsigned char *) chunks[];
};

static struct mem *mem_of(struct lp_bdev *bdev)
{
	return LP_CONTAINER_OF(bdev, struct mem, base);
}

/* NULL: zeros. */
static unsigned char *find_chunk(struct mem *mem, uint64_t chunk_idx)
{
	LP_ASSERT(chunk_idx < mem->chunk_cnt);
	return atomic_load_explicit(&mem->chunks[chunk_idx], memory_order_acquire);
}

/* NULL: out of memory. */
static unsigned char *make_chunk(struct mem *mem, uint64_t chunk_idx)
{
	int err = pthread_mutex_lock(&mem->lock);
	LP_ASSERT(err == 0);
	unsigned char *chunk = find_chunk(mem, chunk_idx);
	if (chunk == NULL) {
		void *map = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE,
				 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		chunk = map == MAP_FAILED ? NULL : map;
		atomic_store_explicit(&mem->chunks[chunk_idx], chunk, memory_order_release);
	}
	err = pthread_mutex_unlock(&mem->lock);
	LP_ASSERT(err == 0);
	return chunk;
}

/* One chunk's part of an operation; buf is NULL for a discard. */
struct part {
	uint64_t chunk_idx;
	uint64_t skip_bytes;
	uint64_t len_bytes;
};

static struct part part_at(uint64_t offset_bytes, uint64_t left_bytes)
{
	struct part part = {.chunk_idx = offset_bytes / CHUNK_BYTES,
			    .skip_bytes = offset_bytes % CHUNK_BYTES};
	part.len_bytes = LP_MIN(left_bytes, CHUNK_BYTES - part.skip_bytes);
	return part;
}

static void read_range(struct mem *mem, unsigned char *buf, uint64_t length_bytes,
		       uint64_t offset_bytes)
{
	for (uint64_t done = 0; done < length_bytes;) {
		struct part part = part_at(offset_bytes + done, length_bytes - done);
		const unsigned char *chunk = find_chunk(mem, part.chunk_idx);
		if (chunk != NULL)
			memcpy(buf + done, chunk + part.skip_bytes, part.len_bytes);
		else
			memset(buf + done, 0, part.len_bytes);
		done += part.len_bytes;
	}
}

static int write_range(struct mem *mem, const unsigned char *buf, uint64_t length_bytes,
		       uint64_t offset_bytes)
{
	for (uint64_t done = 0; done < length_bytes;) {
		struct part part = part_at(offset_bytes + done, length_bytes - done);
		unsigned char *chunk = find_chunk(mem, part.chunk_idx);
		if (chunk == NULL)
			chunk = make_chunk(mem, part.chunk_idx);
		if (chunk == NULL)
			return -ENOMEM;
		memcpy(chunk + part.skip_bytes, buf + done, part.len_bytes);
		done += part.len_bytes;
	}
	return 0;
}

/* Whole pages go back to the system and read as zeros; the rest is wiped. */
static void discard_part(unsigned char *from, uint64_t len_bytes)
{
	if (lp_is_aligned((uintptr_t)from | len_bytes, PAGE_BYTES) &&
	    madvise(from, len_bytes, MADV_DONTNEED) == 0)
		return;
	memset(from, 0, len_bytes);
}

static void discard_range(struct mem *mem, uint64_t length_bytes, uint64_t offset_bytes)
{
	for (uint64_t done = 0; done < length_bytes;) {
		struct part part = part_at(offset_bytes + done, length_bytes - done);
		unsigned char *chunk = find_chunk(mem, part.chunk_idx);
		if (chunk != NULL)
			discard_part(chunk + part.skip_bytes, part.len_bytes);
		done += part.len_bytes;
	}
}

static int mem_sync(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		    uint64_t length_bytes, uint64_t offset_bytes)
{
	struct mem *mem = mem_of(bdev);
	switch (opcode) {
	case LP_BDEV_READ:
		read_range(mem, buf, length_bytes, offset_bytes);
		return 0;
	case LP_BDEV_WRITE:
	case LP_BDEV_WRITE_THROUGH:
		return write_range(mem, buf, length_bytes, offset_bytes);
	case LP_BDEV_DISCARD:
		discard_range(mem, length_bytes, offset_bytes);
		return 0;
	case LP_BDEV_FLUSH:
		return 0;
	case LP_BDEV_OPCODE_CNT:
		break;
	}
	LP_UNREACHABLE();
}

static void run_op(struct lp_task *task)
{
	struct lp_bdev_op *op = LP_CONTAINER_OF(task, struct lp_bdev_op, task);
	struct lp_bdev *bdev = op->chan->bdev;
	int err = 0;
	if (op->opcode == LP_BDEV_FLUSH || op->opcode == LP_BDEV_DISCARD) {
		err = mem_sync(bdev, op->opcode, NULL, op->length_bytes, op->offset_bytes);
		lpi_bdev_complete(op, err);
		return;
	}
	uint64_t at = op->offset_bytes;
	for (uint32_t i = 0; i < op->iov_cnt && err == 0; i++) {
		err = mem_sync(bdev, op->opcode, op->iov[i].iov_base, op->iov[i].iov_len, at);
		at += op->iov[i].iov_len;
	}
	lpi_bdev_complete(op, err);
}

static void mem_submit(struct lp_bdev_chan *chan, struct lp_bdev_op *op)
{
	op->task = (struct lp_task){.run = run_op};
	lp_task_queue(chan->reactor, &op->task);
}

static int mem_attach(struct lp_bdev *bdev, struct lp_reactor *reactor,
		      struct lp_bdev_chan **ret_chan)
{
	(void)bdev;
	(void)reactor;
	struct lp_bdev_chan *chan = calloc(1, sizeof(*chan));
	if (chan == NULL)
		return -ENOMEM;
	*ret_chan = chan;
	return 0;
}

static void mem_detach(struct lp_bdev_chan *chan)
{
	free(chan);
}

static int mem_refresh_size(struct lp_bdev *bdev)
{
	(void)bdev;
	return 0;
}

static void mem_close(struct lp_bdev *bdev)
{
	struct mem *mem = mem_of(bdev);
	for (uint64_t i = 0; i < mem->chunk_cnt; i++) {
		unsigned char *chunk = find_chunk(mem, i);
		if (chunk == NULL)
			continue;
		int err = munmap(chunk, CHUNK_BYTES);
		LP_ASSERT(err == 0);
	}
	int err = pthread_mutex_destroy(&mem->lock);
	LP_ASSERT(err == 0);
	free(mem);
}

static const struct lp_bdev_kind mem_kind = {
	.name = "mem",
	.close = mem_close,
	.refresh_size = mem_refresh_size,
	.attach = mem_attach,
	.detach = mem_detach,
	.submit = mem_submit,
	.sync = mem_sync,
};

int lp_bdev_open_mem(uint64_t size_bytes, uint32_t block_bytes, struct lp_bdev **ret_bdev)
{
	if ((block_bytes != 512 && block_bytes != 4096) || size_bytes == 0 ||
	    !lp_is_aligned(size_bytes, block_bytes))
		return -EINVAL;
	uint64_t chunk_cnt = size_bytes / CHUNK_BYTES + (size_bytes % CHUNK_BYTES != 0);
	struct mem *mem = calloc(1, sizeof(*mem) + chunk_cnt * sizeof(mem->chunks[0]));
	if (mem == NULL)
		return -ENOMEM;
	int err = pthread_mutex_init(&mem->lock, NULL);
	LP_ASSERT(err == 0);
	mem->chunk_cnt = chunk_cnt;
	lpi_bdev_init(&mem->base, &mem_kind, "mem");
	mem->base.caps = (struct lp_bdev_caps){.size_bytes = size_bytes,
					       .block_bytes = block_bytes,
					       .physical_bytes = block_bytes,
					       .atomic_write_bytes = block_bytes,
					       .can_discard = true};
	*ret_bdev = &mem->base;
	return 0;
}
