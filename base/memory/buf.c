/* SPDX-License-Identifier: Apache-2.0 */
/* A header for each 4 KiB of the region: the buffer at an address is found by division, and headers
 * lie apart from the data. A slab is whole, or open for one rank, and then cut into pieces whose
 * sizes are powers of two. Free pieces are on a list for each rank and size. A piece that is too
 * large is halved until the size is right, and each unused half goes to the lists. A piece that is
 * given back joins its other half if that is free too. The piece that was given back last goes out
 * first, because the caches still have it.
 *
 * A rank may use pieces of slabs that lower ranks have opened, but not those of higher ones. So a
 * slab that was opened for a rank holds buffers of that rank and of higher ones only, and is whole
 * again when these have given back. Slabs that are set aside and not open stay whole for their
 * rank: if only such slabs are left, a lower rank opens none.
 *
 * The lowest whole slab is opened first; a bitmap finds it. So used slabs keep together at the
 * region's beginning, in few huge pages. Slabs above them were not used for long, and their memory
 * can be given back. (A stack of whole slabs would let each of them be used in turn.) */
#include "base/memory/buf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory/huge.h"
#include "base/sanitize.h"
#include "base/struct/bitmap.h"

#define SLAB_BYTES     LP_BUF_LARGE
#define REGION_ALIGN   LP_HUGE_BYTES
#define HEADS_PER_SLAB (SLAB_BYTES / LP_BUF_SMALL)
#define ORDER_CNT      9 /* sizes: 4 KiB << order */
#define ORDER_NONE     UINT8_MAX

LP_LIST_DEFINE(buf_list, struct lp_buf, node);

struct slab {
	enum lp_buf_rank rank; /* the rank for which it was opened */
};

struct lp_bufs {
	uint8_t *region;
	bool is_shared; /* other processes may read the region */
	uint32_t slab_cnt;
	struct slab *slabs;
	struct lp_buf *heads;
	uint8_t *free_orders; /* of the free piece that begins at a header, or ORDER_NONE */
	uint32_t whole_cnt;
	uint32_t whole_from; /* no word of whole before this one has a bit set */
	uint64_t *whole;     /* a bit for each slab */
	uint32_t reached;    /* one past the last slab that was open since lp_bufs_reach() */
	uint32_t touched;    /* one past the last slab that may have memory */
	uint32_t reserve[LP_BUF_RANKS]; /* slabs set aside */
	uint32_t open[LP_BUF_RANKS];    /* slabs opened */
	uint32_t masks[LP_BUF_RANKS];   /* bit k: there is a free piece of order k */
	struct buf_list free[LP_BUF_RANKS][ORDER_CNT];
	struct lp_bufs_stats stats;
};

static unsigned order_of(uint32_t size)
{
	return (unsigned)__builtin_ctz(size / LP_BUF_SMALL);
}

static struct slab *slab_of(const struct lp_bufs *bufs, const struct lp_buf *buf)
{
	return &bufs->slabs[(size_t)(buf - bufs->heads) / HEADS_PER_SLAB];
}

static struct lp_bitmap whole_slabs(const struct lp_bufs *bufs)
{
	return (struct lp_bitmap){.words = bufs->whole, .bit_cnt = bufs->slab_cnt};
}

/* NULL: no memory. */
static uint8_t *region_map(size_t bytes, int fd)
{
	/* Maps more than needed, so that the region can begin on its own alignment. */
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
	/* Huge pages if the system has them. With them, a checksum over memory that is in no cache
	 * took two thirds of the time, because each small page costs a walk of the tables, which is
	 * long in a virtual machine. And a device gets few long pieces instead of many short ones.
	 * Huge pages are optional. */
	(void)lp_huge_advise(region, bytes);
	return region;
}

static void free_tables(struct lp_bufs *bufs)
{
	free(bufs->free_orders);
	free(bufs->slabs);
	free(bufs->whole);
	free(bufs->heads);
	free(bufs);
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
	bufs->whole = calloc(lp_bitmap_word_cnt(bufs->slab_cnt), sizeof(*bufs->whole));
	bufs->heads = calloc((size_t)bufs->slab_cnt * HEADS_PER_SLAB, sizeof(*bufs->heads));
	bufs->free_orders = malloc((size_t)bufs->slab_cnt * HEADS_PER_SLAB);
	bufs->region = region_map(bytes, fd);
	if (bufs->slabs == NULL || bufs->whole == NULL || bufs->heads == NULL ||
	    bufs->free_orders == NULL || bufs->region == NULL) {
		if (bufs->region != NULL)
			(void)munmap(bufs->region, bytes); /* just mapped: cannot fail */
		free_tables(bufs);
		return -ENOMEM;
	}
	memset(bufs->free_orders, ORDER_NONE, (size_t)bufs->slab_cnt * HEADS_PER_SLAB);
	bufs->is_shared = fd >= 0;
	bufs->stats.region_bytes = bytes;
	struct lp_bitmap whole = whole_slabs(bufs);
	lp_bitmap_set(&whole, 0, bufs->slab_cnt);
	for (unsigned rank = 0; rank < LP_BUF_RANKS; rank++) {
		for (unsigned order = 0; order < ORDER_CNT; order++)
			buf_list_init(&bufs->free[rank][order]);
	}
	bufs->whole_cnt = bufs->slab_cnt;
	lp_san_poison(bufs->region, bytes);
	*ret_bufs = bufs;
	return 0;
}

int lp_bufs_new(uint64_t region_bytes, struct lp_bufs **ret_bufs)
{
	return new_region(region_bytes, -1, ret_bufs);
}

/* A file in memory whose size cannot change, and that only its owner may open again. */
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

/* Opens the same file once more, for reading. */
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
	(void)close(fd); /* the mapping stays */
	return err;
}

void lp_bufs_free(struct lp_bufs *bufs)
{
	if (bufs == NULL)
		return;
	LP_ASSERT(bufs->stats.used_bytes == 0);
	lp_san_unpoison(bufs->region, bufs->stats.region_bytes);
	/* Other processes that have it mapped lose the memory. */
	if (bufs->is_shared)
		(void)madvise(bufs->region, bufs->stats.region_bytes, MADV_REMOVE);
	(void)munmap(bufs->region, bufs->stats.region_bytes); /* our own mapping: cannot fail */
	free_tables(bufs);
}

void *lp_bufs_region(const struct lp_bufs *bufs, uint64_t *ret_bytes)
{
	*ret_bytes = bufs->stats.region_bytes;
	return bufs->region;
}

void lp_bufs_reserve(struct lp_bufs *bufs, enum lp_buf_rank rank, uint32_t slabs)
{
	uint32_t all = 0;
	LP_ASSERT(rank > LP_BUF_REQUEST && rank < LP_BUF_RANKS);
	bufs->reserve[rank] = slabs;
	for (unsigned i = 0; i < LP_BUF_RANKS; i++)
		all += bufs->reserve[i];
	LP_ASSERT(all < bufs->slab_cnt);
	bufs->stats.reserved_bytes = (uint64_t)all * SLAB_BYTES;
}

/* --- Free pieces ------------------------------------------------------------------------------ */

static void add_piece(struct lp_bufs *bufs, enum lp_buf_rank rank, size_t head, unsigned order)
{
	struct lp_buf *piece = &bufs->heads[head];
	bufs->free_orders[head] = (uint8_t)order;
	bufs->masks[rank] |= UINT32_C(1) << order;
	buf_list_push_front(&bufs->free[rank][order], piece);
}

static void remove_piece(struct lp_bufs *bufs, enum lp_buf_rank rank, struct lp_buf *piece)
{
	size_t head = (size_t)(piece - bufs->heads);
	unsigned order = bufs->free_orders[head];
	bufs->free_orders[head] = ORDER_NONE;
	buf_list_remove(piece);
	if (buf_list_is_empty(&bufs->free[rank][order]))
		bufs->masks[rank] &= ~(UINT32_C(1) << order);
}

/* A piece of at least this order that the rank may use; NULL: there is none. */
static struct lp_buf *find_piece(struct lp_bufs *bufs, enum lp_buf_rank rank, unsigned order)
{
	for (unsigned i = 0; i <= (unsigned)rank; i++) {
		uint32_t fitting = bufs->masks[i] >> order;
		if (fitting != 0)
			return buf_list_first(
				&bufs->free[i][order + (unsigned)__builtin_ctz(fitting)]);
	}
	return NULL;
}

/* Whole slabs that are set aside for ranks above this one. */
static uint32_t kept_cnt(const struct lp_bufs *bufs, enum lp_buf_rank rank)
{
	uint32_t kept = 0;
	for (unsigned i = (unsigned)rank + 1; i < LP_BUF_RANKS; i++)
		kept += bufs->reserve[i] - LP_MIN(bufs->reserve[i], bufs->open[i]);
	return kept;
}

/* The caller knows that there is one. It is no longer counted as whole. */
static uint32_t lowest_whole(struct lp_bufs *bufs)
{
	uint32_t word = bufs->whole_from;
	while (bufs->whole[word] == 0)
		word++;
	bufs->whole_from = word;
	return word * LP_BITMAP_WORD_BITS + (uint32_t)__builtin_ctzll(bufs->whole[word]);
}

/* Opens a whole slab for the rank; NULL: there is none left for it. */
static struct lp_buf *open_slab(struct lp_bufs *bufs, enum lp_buf_rank rank)
{
	if (bufs->whole_cnt <= kept_cnt(bufs, rank))
		return NULL;
	uint32_t slab_idx = lowest_whole(bufs);
	LP_ASSERT(slab_idx < bufs->slab_cnt);
	bufs->whole[slab_idx / LP_BITMAP_WORD_BITS] &=
		bufs->whole[slab_idx / LP_BITMAP_WORD_BITS] - 1;
	bufs->slabs[slab_idx].rank = rank;
	bufs->reached = LP_MAX(bufs->reached, slab_idx + 1);
	bufs->whole_cnt--;
	bufs->open[rank]++;
	size_t head = (size_t)slab_idx * HEADS_PER_SLAB;
	add_piece(bufs, rank, head, ORDER_CNT - 1);
	return &bufs->heads[head];
}

static void close_slab(struct lp_bufs *bufs, struct slab *slab)
{
	uint32_t slab_idx = (uint32_t)(slab - bufs->slabs);
	uint32_t word = slab_idx / LP_BITMAP_WORD_BITS;
	LP_ASSERT(bufs->open[slab->rank] > 0);
	bufs->open[slab->rank]--;
	bufs->whole_cnt++;
	bufs->whole[word] |= UINT64_C(1) << (slab_idx % LP_BITMAP_WORD_BITS);
	bufs->whole_from = LP_MIN(bufs->whole_from, word);
}

/* --- Buffers ---------------------------------------------------------------------------------- */

struct lp_buf *lp_buf_new_ranked(struct lp_bufs *bufs, uint32_t bytes, enum lp_buf_rank rank)
{
	LP_ASSERT(rank < LP_BUF_RANKS);
	unsigned order = order_of(lp_buf_size(bytes));
	struct lp_buf *buf = find_piece(bufs, rank, order);
	if (buf == NULL)
		buf = open_slab(bufs, rank);
	if (buf == NULL) {
		bufs->stats.failed_cnt++;
		return NULL;
	}
	size_t head = (size_t)(buf - bufs->heads);
	enum lp_buf_rank owner = slab_of(bufs, buf)->rank;
	unsigned has = bufs->free_orders[head];
	remove_piece(bufs, owner, buf);
	while (has > order) {
		has--;
		add_piece(bufs, owner, head + ((size_t)1 << has), has);
	}
	*buf = (struct lp_buf){.data = bufs->region + head * LP_BUF_SMALL,
			       .bytes = LP_BUF_SMALL << order,
			       .refs = 1,
			       .home = bufs};
	bufs->stats.used_bytes += buf->bytes;
	bufs->stats.used_max_bytes = LP_MAX(bufs->stats.used_max_bytes, bufs->stats.used_bytes);
	lp_san_unpoison(buf->data, buf->bytes);
	return buf;
}

static void give_back(struct lp_seg *segs, uint32_t cnt)
{
	while (cnt > 0)
		lp_buf_put(segs[--cnt].buf);
}

/* The next buffer for so many bytes. It has half the size if the whole size would waste more than
 * an eighth. If there is none, it is smaller, unless it is the last that may be taken. */
static struct lp_buf *take_next(struct lp_bufs *bufs, uint32_t want, enum lp_buf_rank rank,
				bool is_last)
{
	uint32_t size = lp_buf_size(LP_MIN(want, LP_BUF_LARGE));
	if (is_last)
		return want <= size ? lp_buf_new_ranked(bufs, size, rank) : NULL;
	uint32_t blocks_bytes = (uint32_t)lp_align_up(want, LP_BUF_SMALL);
	if (size > blocks_bytes && size - blocks_bytes > size / 8)
		size /= 2;
	struct lp_buf *buf = lp_buf_new_ranked(bufs, size, rank);
	while (buf == NULL && size > LP_BUF_SMALL) {
		size /= 2;
		buf = lp_buf_new_ranked(bufs, size, rank);
	}
	return buf;
}

uint32_t lp_bufs_take(struct lp_bufs *bufs, uint32_t bytes, uint32_t skip, enum lp_buf_rank rank,
		      struct lp_seg *segs, uint32_t max)
{
	uint32_t cnt = 0;
	LP_ASSERT(bytes > 0 && max > 0 && skip < LP_BUF_SMALL);
	while (bytes > 0) {
		struct lp_buf *buf = NULL;
		if (cnt < max)
			buf = take_next(bufs, bytes + skip, rank, cnt + 1 == max);
		if (buf == NULL) {
			give_back(segs, cnt);
			return 0;
		}
		uint32_t len = LP_MIN(bytes, buf->bytes - skip);
		segs[cnt++] = (struct lp_seg){.buf = buf, .offset = skip, .len = len};
		bytes -= len;
		skip = 0;
	}
	return cnt;
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
	size_t head = (size_t)(buf - bufs->heads);
	unsigned order = order_of(buf->bytes);
	LP_ASSERT(bufs->free_orders[head] == ORDER_NONE);
	lp_san_poison(buf->data, buf->bytes);
	bufs->stats.used_bytes -= buf->bytes;
	buf->bytes = 0;
	while (order < ORDER_CNT - 1 && bufs->free_orders[head ^ ((size_t)1 << order)] == order) {
		remove_piece(bufs, slab->rank, &bufs->heads[head ^ ((size_t)1 << order)]);
		head &= ~((size_t)1 << order);
		order++;
	}
	if (order == ORDER_CNT - 1)
		close_slab(bufs, slab);
	else
		add_piece(bufs, slab->rank, head, order);
}

/* --- Giving back ------------------------------------------------------------------------------ */

uint64_t lp_bufs_reach(struct lp_bufs *bufs)
{
	struct lp_bitmap whole = whole_slabs(bufs);
	uint64_t reached = bufs->reached;
	uint64_t open_end = bufs->slab_cnt;
	bufs->touched = LP_MAX(bufs->touched, bufs->reached);
	while (open_end > 0 && lp_bitmap_test(&whole, open_end - 1))
		open_end--;
	bufs->reached = (uint32_t)open_end;
	return reached * SLAB_BYTES;
}

/* Both slabs of a huge page, or the last one alone. */
static void give_back_slabs(struct lp_bufs *bufs, uint64_t from, uint64_t to)
{
	uint8_t *memory = bufs->region + from * SLAB_BYTES;
	/* Only advice: if it fails the memory stays. */
	(void)madvise(memory, (to - from) * SLAB_BYTES,
		      bufs->is_shared ? MADV_REMOVE : MADV_DONTNEED);
}

void lp_bufs_trim(struct lp_bufs *bufs, uint64_t keep_bytes)
{
	struct lp_bitmap whole = whole_slabs(bufs);
	uint64_t slabs_per_page = REGION_ALIGN / SLAB_BYTES;
	uint64_t from = lp_align_up(keep_bytes, REGION_ALIGN) / SLAB_BYTES;
	uint64_t end = LP_MIN(lp_align_up(LP_MAX(bufs->touched, bufs->reached), slabs_per_page),
			      (uint64_t)bufs->slab_cnt);
	uint64_t touched = LP_MIN(from, end);
	while (from < end) {
		uint64_t to = from;
		while (to < end && lp_bitmap_is_set(&whole, to, LP_MIN(to + slabs_per_page, end)))
			to = LP_MIN(to + slabs_per_page, end);
		if (to > from)
			give_back_slabs(bufs, from, to);
		else
			touched = to = LP_MIN(from + slabs_per_page, end);
		from = to;
	}
	bufs->touched = (uint32_t)touched;
}

uint64_t lp_bufs_resident_bytes(const struct lp_bufs *bufs)
{
	return (uint64_t)LP_MAX(bufs->touched, bufs->reached) * SLAB_BYTES;
}

void lp_bufs_read_stats(const struct lp_bufs *bufs, struct lp_bufs_stats *ret_stats)
{
	*ret_stats = bufs->stats;
}
