/* SPDX-License-Identifier: Apache-2.0 */
/* Notes of which pages in the kernel's cache may be wrong.
 *
 * Threads: any; the table of the mount's first channel counts.
 * Blocking: none.
 * Memory: allocated in init.
 * Limits: a table of LPI_FUSE_PAGE_SLOTS places. Several inodes may share a place; then more
 *   pages are dropped than necessary.
 *
 * The kernel fills its cache with data that it reads from us, and with data that programs write
 * through it. It drops pages when it is told to. Two things can leave wrong data in a page:
 *   - A direct write (O_DIRECT). The kernel drops the pages of its range before it sends the write.
 *     Behind the write it does so again only if the program waits in the call; for AIO and io_uring
 *     it does not. A page that is read in between has the old data. So while files are open with
 *     O_DIRECT, it is noted whether their inodes are read or written through the cache. If they
 *     are, the range of each direct write is dropped once more.
 *   - A write through the cache. The kernel copies the data to the page and then sends the write.
 *     If the page is dropped before the write is done, the old data may be read back. So it is
 *     noted which inodes have lost pages. The next write through the cache to such an inode drops
 *     its pages once more when it is done. There is one such write to an inode at a time, and the
 *     kernel copies nothing for the next one before it has the answer, so one is enough.
 */
#ifndef LP_FUSE_KERNEL_PAGES_H
#define LP_FUSE_KERNEL_PAGES_H

#include <stdatomic.h>

#include "namespace/ns.h"

#define LPI_FUSE_PAGE_SLOTS (1u << 14)

/* Bit of a file's handle: it was opened with O_DIRECT. No fcntl changes that. */
#define LPI_FUSE_HANDLE_UNCACHED (UINT64_C(1) << 60)

/* When no read or write has filled pages for this time and no handle is open that uses the cache,
 * all pages are dropped at once. After that there is nothing left to drop. */
#define LPI_FUSE_PAGES_IDLE_NS LP_NS_PER_S

struct lp_fuse_channel;

struct lpi_fuse_page_slot {
	/* The number of open handles with O_DIRECT, and their inode: see pages.c. 0: none. */
	_Atomic uint64_t directs;
	_Atomic uint32_t cached_cnt; /* other handles that are open */
	_Atomic uint32_t fills;      /* reads and writes through the cache, while there are
					directs */
	_Atomic uint32_t
		dropped_upto;      /* value of fills when all pages of the inode had been dropped */
	_Atomic uint32_t drop_cnt; /* drops that the kernel works on now */
	_Atomic uint64_t filled_ns;
	_Atomic uint64_t dropped;  /* an inode that has lost pages; 0: none */
	_Atomic uint64_t until_ns; /* until then any of the inodes may have lost pages */
};

struct lpi_fuse_pages {
	struct lpi_fuse_page_slot *slots;
};

enum lpi_fuse_pages_wrong {
	LPI_FUSE_PAGES_NONE,
	LPI_FUSE_PAGES_RANGE, /* pages of the written range may be wrong */
	LPI_FUSE_PAGES_ALL    /* the same, and it is cheaper to drop all of the inode's */
};

int lpi_fuse_pages_init(struct lpi_fuse_pages *pages) LP_MUST_CHECK;
void lpi_fuse_pages_fini(struct lpi_fuse_pages *pages);

/* A file is about to be opened with these flags. Returns the handle's bits. */
uint64_t lpi_fuse_pages_open(const struct lp_fuse_channel *channel, struct lp_ino ino,
			     uint32_t flags);
/* The file was not opened, or has been closed. */
void lpi_fuse_pages_close(const struct lp_fuse_channel *channel, struct lp_ino ino,
			  uint64_t handle);

/* A read or write that came through the cache is about to be done. */
void lpi_fuse_pages_fill(const struct lp_fuse_channel *channel, struct lp_ino ino);
/* Which pages a direct write by this handle may have left wrong; it has been done. ret_fills is for
 * lpi_fuse_pages_all_dropped(). */
enum lpi_fuse_pages_wrong lpi_fuse_pages_behind(const struct lp_fuse_channel *channel,
						struct lp_ino ino, uint64_t handle,
						uint32_t *ret_fills);
/* The kernel has dropped all of the inode's pages since that call. */
void lpi_fuse_pages_all_dropped(const struct lp_fuse_channel *channel, struct lp_ino ino,
				uint32_t fills);

/* Called before the kernel is told to drop pages, and after it has. is_noted: a write through the
 * cache may have been under way at that time. */
void lpi_fuse_pages_begin_drop(const struct lp_fuse_channel *channel, struct lp_ino ino);
void lpi_fuse_pages_end_drop(const struct lp_fuse_channel *channel, struct lp_ino ino,
			     bool is_noted);
/* The kernel will drop all of the inode's pages by itself, in an open without FOPEN_KEEP_CACHE. */
void lpi_fuse_pages_expect_drop(const struct lp_fuse_channel *channel, struct lp_ino ino);
/* A write through the cache has been done. Returns whether pages may have been dropped since it
 * began. Takes the note away, because the caller has them dropped once more. */
bool lpi_fuse_pages_take_dropped(const struct lp_fuse_channel *channel, struct lp_ino ino);

#endif
