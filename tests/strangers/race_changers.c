/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to change a file. Those of blocks change a few neighbours somewhere in their own part of
 * the file. Those of the end cut the file off at some block, make it longer again where that is
 * what they are about, and write it anew: all blocks from there on are in the same state at any
 * time. */
#include <errno.h>
#include <fcntl.h>
#include <libaio.h>
#include <liburing.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lapis.h"
#include "tests/strangers/race.h"

#define PATH_MAX_BYTES 512u
#define APPENDED_FIRST (LPI_BLOCKS / 2) /* blocks before it are never cut off */

static off_t place_of(unsigned block)
{
	return (off_t)block * LPI_BLOCK_BYTES;
}

static size_t bytes_of(unsigned cnt)
{
	return (size_t)cnt * LPI_BLOCK_BYTES;
}

static unsigned draw(struct lpi_actor *actor, unsigned *ret_cnt)
{
	*ret_cnt = (unsigned)lp_prng_between(&actor->prng, 1, LPI_RUN_MAX);
	return actor->first_block +
	       (unsigned)lp_prng_below(&actor->prng, actor->blocks_cnt - *ret_cnt + 1);
}

/* What a call gave: all of len. */
static void all_of(const struct lpi_actor *actor, const char *what, ssize_t got, size_t len)
{
	if (got == (ssize_t)len)
		return;
	if (got < 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
		lpi_race_unsupported(actor, errno);
	lpi_race_fail(actor, what, got < 0 ? errno : EIO);
}

static void none(const struct lpi_actor *actor, const char *what, int result)
{
	all_of(actor, what, result, 0);
}

static void none_of_lapis(const struct lpi_actor *actor, int err)
{
	if (err < 0)
		lpi_race_fail(actor, lapis_error_text(), -err);
}

/* Who reads at the other door sees what is in the kernel's cache only when it was synced. */
static void settle(const struct lpi_actor *actor)
{
	if (actor->is_synced)
		none(actor, "fdatasync", fdatasync(actor->fd));
}

static void write_blocks(struct lpi_actor *actor, unsigned block, unsigned cnt)
{
	lpi_race_begin(actor, block, cnt);
	lpi_race_fill(actor, actor->buf, block, cnt);
	all_of(actor, "pwrite", pwrite(actor->fd, actor->buf, bytes_of(cnt), place_of(block)),
	       bytes_of(cnt));
	settle(actor);
	lpi_race_ack(actor, block, cnt);
}

static void by_pwrite(struct lpi_actor *actor)
{
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	write_blocks(actor, block, cnt);
}

/* --- AIO and io_uring: each block a request, acknowledged as it comes --- */

static void by_aio(struct lpi_actor *actor)
{
	struct iocb controls[LPI_RUN_MAX];
	struct iocb *list[LPI_RUN_MAX];
	struct io_event event;
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	lpi_race_begin(actor, block, cnt);
	lpi_race_fill(actor, actor->buf, block, cnt);
	for (unsigned i = 0; i < cnt; i++) {
		io_prep_pwrite(&controls[i], actor->fd, actor->buf + bytes_of(i), LPI_BLOCK_BYTES,
			       place_of(block + i));
		list[i] = &controls[i];
	}
	int submitted = io_submit(actor->ring, cnt, list);
	if (submitted != (int)cnt)
		lpi_race_fail(actor, "io_submit", submitted < 0 ? -submitted : EIO);
	for (unsigned i = 0; i < cnt; i++) {
		if (io_getevents(actor->ring, 1, 1, &event, NULL) != 1 ||
		    event.res != LPI_BLOCK_BYTES)
			lpi_race_fail(actor, "a write by AIO", EIO);
		lpi_race_ack(actor, block + (unsigned)(event.obj - controls), 1);
	}
}

static void by_ring(struct lpi_actor *actor)
{
	struct io_uring *ring = actor->ring;
	struct io_uring_cqe *cqe;
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	lpi_race_begin(actor, block, cnt);
	lpi_race_fill(actor, actor->buf, block, cnt);
	for (unsigned i = 0; i < cnt; i++) {
		struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
		if (sqe == NULL)
			lpi_race_fail(actor, "io_uring_get_sqe", EAGAIN);
		io_uring_prep_write(sqe, actor->fd, actor->buf + bytes_of(i), LPI_BLOCK_BYTES,
				    (uint64_t)place_of(block + i));
		io_uring_sqe_set_data64(sqe, i);
	}
	if (io_uring_submit(ring) != (int)cnt)
		lpi_race_fail(actor, "io_uring_submit", EIO);
	for (unsigned i = 0; i < cnt; i++) {
		int err = io_uring_wait_cqe(ring, &cqe);
		if (err < 0 || cqe->res != (int)LPI_BLOCK_BYTES)
			lpi_race_fail(actor, "a write by io_uring", err < 0 ? -err : EIO);
		unsigned done = (unsigned)io_uring_cqe_get_data64(cqe);
		io_uring_cqe_seen(ring, cqe);
		settle(actor);
		lpi_race_ack(actor, block + done, 1);
	}
}

static void by_map(struct lpi_actor *actor)
{
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	lpi_race_begin(actor, block, cnt);
	lpi_race_fill(actor, actor->buf, block, cnt);
	memcpy(actor->map + place_of(block), actor->buf, bytes_of(cnt));
	atomic_thread_fence(memory_order_seq_cst);
	if (actor->is_synced)
		none(actor, "msync", msync(actor->map + place_of(block), bytes_of(cnt), MS_SYNC));
	lpi_race_ack(actor, block, cnt);
}

/* --- Zeros, and data again --- */

static void zero_blocks(struct lpi_actor *actor, int mode)
{
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	lpi_race_begin(actor, block, cnt);
	none(actor, "fallocate",
	     fallocate(actor->fd, mode | FALLOC_FL_KEEP_SIZE, place_of(block),
		       (off_t)bytes_of(cnt)));
	lpi_race_ack(actor, block, cnt);
	write_blocks(actor, block, cnt);
}

static void by_punch(struct lpi_actor *actor)
{
	zero_blocks(actor, FALLOC_FL_PUNCH_HOLE);
}

static void by_zero_range(struct lpi_actor *actor)
{
	zero_blocks(actor, FALLOC_FL_ZERO_RANGE);
}

/* --- A copy into it --- */

static void start_copy(struct lpi_actor *actor)
{
	char path[PATH_MAX_BYTES];
	(void)snprintf(path, sizeof(path), "%s.from.%d", actor->path, (int)getpid());
	actor->other_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (actor->other_fd < 0)
		lpi_race_fail(actor, path, errno);
	(void)unlink(path);
}

static void by_copy(struct lpi_actor *actor)
{
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	loff_t from = place_of(block);
	loff_t to = from;
	lpi_race_begin(actor, block, cnt);
	lpi_race_fill(actor, actor->buf, block, cnt);
	all_of(actor, "pwrite", pwrite(actor->other_fd, actor->buf, bytes_of(cnt), from),
	       bytes_of(cnt));
	for (size_t left = bytes_of(cnt); left > 0;) {
		ssize_t moved = copy_file_range(actor->other_fd, &from, actor->fd, &to, left, 0);
		if (moved <= 0)
			all_of(actor, "copy_file_range", moved, left);
		left -= (size_t)moved;
	}
	settle(actor);
	lpi_race_ack(actor, block, cnt);
}

/* --- The end --- */

static unsigned draw_end(struct lpi_actor *actor)
{
	return (unsigned)lp_prng_between(&actor->prng, APPENDED_FIRST, LPI_BLOCKS - 1);
}

static void write_to_the_end(struct lpi_actor *actor, unsigned block)
{
	while (block < LPI_BLOCKS) {
		unsigned left = LPI_BLOCKS - block;
		unsigned cnt = left < LPI_RUN_MAX ? left : LPI_RUN_MAX;
		write_blocks(actor, block, cnt);
		block += cnt;
	}
}

static unsigned cut_off(struct lpi_actor *actor)
{
	unsigned block = draw_end(actor);
	lpi_race_begin(actor, block, LPI_BLOCKS - block);
	none(actor, "ftruncate", ftruncate(actor->fd, place_of(block)));
	lpi_race_ack(actor, block, LPI_BLOCKS - block);
	return block;
}

/* O_APPEND: pwrite goes to the end, wherever it is said to go. */
static void by_append(struct lpi_actor *actor)
{
	write_to_the_end(actor, cut_off(actor));
}

static void by_truncate(struct lpi_actor *actor)
{
	unsigned block = cut_off(actor);
	lpi_race_begin(actor, block, LPI_BLOCKS - block);
	none(actor, "ftruncate", ftruncate(actor->fd, (off_t)LPI_FILE_BYTES));
	lpi_race_ack(actor, block, LPI_BLOCKS - block);
	write_to_the_end(actor, block);
}

static void by_fallocate(struct lpi_actor *actor)
{
	unsigned block = cut_off(actor);
	lpi_race_begin(actor, block, LPI_BLOCKS - block);
	none(actor, "fallocate",
	     fallocate(actor->fd, 0, place_of(block), (off_t)bytes_of(LPI_BLOCKS - block)));
	lpi_race_ack(actor, block, LPI_BLOCKS - block);
	write_to_the_end(actor, block);
}

/* --- At the other door --- */

static void write_by_socket(struct lpi_actor *actor, unsigned block, unsigned cnt, uint32_t flags)
{
	lpi_race_begin(actor, block, cnt);
	lpi_race_fill(actor, actor->buf, block, cnt);
	none_of_lapis(actor, lapis_pwrite(actor->file, actor->buf, bytes_of(cnt),
					  (uint64_t)place_of(block), flags));
	lpi_race_ack(actor, block, cnt);
}

static void by_socket(struct lpi_actor *actor)
{
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	bool is_ordered = lp_prng_chance(&actor->prng, 1, 2);
	write_by_socket(actor, block, cnt, is_ordered ? LAPIS_ORDERED : 0);
}

static void by_socket_punch(struct lpi_actor *actor)
{
	unsigned cnt;
	unsigned block = draw(actor, &cnt);
	lpi_race_begin(actor, block, cnt);
	none_of_lapis(actor, lapis_punch(actor->file, (uint64_t)place_of(block), bytes_of(cnt)));
	lpi_race_ack(actor, block, cnt);
	write_by_socket(actor, block, cnt, LAPIS_ORDERED);
}

static void by_socket_truncate(struct lpi_actor *actor)
{
	unsigned block = draw_end(actor);
	lpi_race_begin(actor, block, LPI_BLOCKS - block);
	none_of_lapis(actor, lapis_truncate(actor->file, (uint64_t)place_of(block)));
	lpi_race_ack(actor, block, LPI_BLOCKS - block);
	lpi_race_begin(actor, block, LPI_BLOCKS - block);
	none_of_lapis(actor, lapis_truncate(actor->file, LPI_FILE_BYTES));
	lpi_race_ack(actor, block, LPI_BLOCKS - block);
	while (block < LPI_BLOCKS) {
		unsigned left = LPI_BLOCKS - block;
		unsigned cnt = left < LPI_RUN_MAX ? left : LPI_RUN_MAX;
		write_by_socket(actor, block, cnt, LAPIS_ORDERED);
		block += cnt;
	}
}

#define DATA_ONLY      .period = 1, .states = {LPI_DATA}
#define ZEROS_BETWEEN  .period = 2, .states = {LPI_DATA, LPI_ZEROS}
#define GONE_BETWEEN   .period = 2, .states = {LPI_DATA, LPI_GONE}, .is_one = true
#define GONE_AND_ZEROS .period = 3, .states = {LPI_DATA, LPI_GONE, LPI_ZEROS}, .is_one = true
#define BY_SOCKET      .is_socket = true, .start = lpi_race_open_socket

/* clang-format off */
const struct lpi_changer lpi_changers[] = {
	{.name = "pwrite", DATA_ONLY, .change = by_pwrite},
	{.name = "append", GONE_BETWEEN, .flags = O_APPEND, .change = by_append},
	{.name = "direct", DATA_ONLY, .flags = O_DIRECT, .change = by_pwrite},
	{.name = "aio", DATA_ONLY, .flags = O_DIRECT, .start = lpi_race_start_aio, .change = by_aio},
	{.name = "io_uring", DATA_ONLY, .start = lpi_race_start_ring, .change = by_ring},
	{.name = "io_uring-direct", DATA_ONLY, .flags = O_DIRECT, .start = lpi_race_start_ring, .change = by_ring},
	{.name = "mmap", DATA_ONLY, .change = by_map},
	{.name = "truncate", GONE_AND_ZEROS, .change = by_truncate},
	{.name = "fallocate", GONE_AND_ZEROS, .change = by_fallocate},
	{.name = "punch", ZEROS_BETWEEN, .change = by_punch},
	{.name = "zero_range", ZEROS_BETWEEN, .change = by_zero_range},
	{.name = "copy_file_range", DATA_ONLY, .start = start_copy, .change = by_copy},
	{.name = "socket", DATA_ONLY, BY_SOCKET, .change = by_socket},
	{.name = "socket-punch", ZEROS_BETWEEN, BY_SOCKET, .change = by_socket_punch},
	{.name = "socket-truncate", GONE_AND_ZEROS, BY_SOCKET, .is_end_late = true, .change = by_socket_truncate},
	{.name = NULL},
};
/* clang-format on */
