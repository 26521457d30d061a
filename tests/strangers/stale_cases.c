/* SPDX-License-Identifier: Apache-2.0 */
/* The cases. Whoever changes a block fills it, or his half of it, with the version's number, and
 * says in shared memory that it has been acknowledged when the call has returned. What is seen
 * behind that must not be older. */
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/lapis.h"
#include "tests/strangers/stale.h"

#define BLOCK ((size_t)LPI_STALE_BLOCK)
#define HALF  (BLOCK / 2)
#define FEW   4u /* blocks that are fought for */

static uint64_t word_at(const volatile void *map, uint64_t offset)
{
	const volatile uint64_t *words = map;
	return words[offset / sizeof(*words)];
}

static uint64_t read_word(int fd, uint64_t offset)
{
	uint64_t word = 0;
	if (pread(fd, &word, sizeof(word), (off_t)offset) != (ssize_t)sizeof(word))
		lpi_stale_fail("pread");
	return word;
}

static void look(struct lpi_stale_run *run, const char *how, uint64_t block, uint64_t seen,
		 uint64_t acked)
{
	atomic_fetch_add(&run->shared->looks, 1);
	if (seen < acked)
		lpi_stale_found(run, how, block, seen, acked);
}

static void lay_out(struct lpi_stale_run *run)
{
	int fd = lpi_stale_open(run, O_RDWR);
	size_t bytes = (size_t)LPI_STALE_BLOCKS * BLOCK;
	void *buf = lpi_stale_buf(bytes);
	lpi_stale_write(fd, buf, bytes, 0);
	free(buf);
	if (fsync(fd) < 0)
		lpi_stale_fail("fsync");
	(void)close(fd); /* it was synced */
}

/* --- Who keeps the pages coming and going ----------------------------------------------------- */

static void read_few(struct lpi_stale_run *run, void *arg)
{
	int fd = lpi_stale_open(run, O_RDONLY);
	(void)arg;
	while (!lpi_stale_is_over(run))
		(void)read_word(fd, lpi_stale_below(FEW) * BLOCK);
}

/* Times and attributes of the file change. */
static void write_elsewhere(struct lpi_stale_run *run, void *arg)
{
	int fd = lpi_stale_open(run, O_RDWR);
	uint64_t block = (uint64_t)(uintptr_t)arg;
	void *buf = lpi_stale_buf((size_t)FEW * BLOCK);
	while (!lpi_stale_is_over(run))
		lpi_stale_write(fd, buf, (size_t)FEW * BLOCK, block * BLOCK);
}

static void help_to_read(struct lpi_stale_run *run, unsigned cnt)
{
	for (unsigned i = 0; i < cnt; i++)
		lpi_stale_help(run, read_few, NULL);
}

/* --- Writes, and a mapping -------------------------------------------------------------------- */

static void run_mapped(struct lpi_stale_run *run)
{
	uint64_t *buf = lpi_stale_buf((size_t)FEW * BLOCK);
	lay_out(run);
	int fd = lpi_stale_open(run, O_RDWR);
	void *map = lpi_stale_map(fd, (size_t)FEW * BLOCK);
	lpi_stale_help(run, write_elsewhere, (void *)(uintptr_t)16);
	lpi_stale_help(run, write_elsewhere, (void *)(uintptr_t)32);
	help_to_read(run, 4);
	for (uint64_t version = 1; !lpi_stale_is_over(run); version++) {
		lpi_stale_fill(buf, version, (size_t)FEW * BLOCK);
		lpi_stale_write(fd, buf, (size_t)FEW * BLOCK, 0);
		for (unsigned block = 0; block < FEW; block++)
			look(run, "mapping", block, word_at(map, (uint64_t)block * BLOCK), version);
	}
}

/* --- Direct writes, and readers of all kinds -------------------------------------------------- */

struct writer {
	struct lpi_stale_run *run;
	uint64_t blocks[LPI_STALE_DEPTH];
	uint64_t version;
};

static void acked(void *arg, unsigned idx)
{
	struct writer *writer = arg;
	atomic_store(&writer->run->shared->acked[writer->blocks[idx]], writer->version);
}

struct direct {
	enum lpi_stale_engine engine;
	unsigned first; /* of so many blocks that are the writer's */
	unsigned cnt;
};

/* A batch has a block only once. */
static void write_direct(struct lpi_stale_run *run, void *arg)
{
	const struct direct *direct = arg;
	struct writer writer = {.run = run};
	struct lpi_stale_piece pieces[LPI_STALE_DEPTH];
	char *buf = lpi_stale_buf(LPI_STALE_DEPTH * BLOCK);
	int fd = lpi_stale_open(run, O_RDWR | O_DIRECT);
	unsigned each = direct->cnt / LPI_STALE_DEPTH;
	for (writer.version = 1; !lpi_stale_is_over(run); writer.version++) {
		for (unsigned i = 0; i < LPI_STALE_DEPTH; i++) {
			writer.blocks[i] = direct->first + i * each + lpi_stale_below(each);
			lpi_stale_fill(buf + i * BLOCK, writer.version, BLOCK);
			pieces[i] = (struct lpi_stale_piece){buf + i * BLOCK, BLOCK,
							     writer.blocks[i] * BLOCK};
		}
		lpi_stale_submit(direct->engine, fd, pieces, LPI_STALE_DEPTH, acked, &writer);
	}
}

static void look_by_pread(struct lpi_stale_run *run, void *arg)
{
	int fd = lpi_stale_open(run, O_RDONLY);
	(void)arg;
	while (!lpi_stale_is_over(run)) {
		uint64_t block = lpi_stale_below(LPI_STALE_BLOCKS);
		uint64_t version = atomic_load(&run->shared->acked[block]);
		look(run, "pread", block, read_word(fd, block * BLOCK), version);
	}
}

static void look_by_map(struct lpi_stale_run *run, void *arg)
{
	int fd = lpi_stale_open(run, O_RDONLY | (arg != NULL ? O_DIRECT : 0));
	void *map = lpi_stale_map(fd, (size_t)LPI_STALE_BLOCKS * BLOCK);
	while (!lpi_stale_is_over(run)) {
		uint64_t block = lpi_stale_below(LPI_STALE_BLOCKS);
		uint64_t version = atomic_load(&run->shared->acked[block]);
		look(run, "mapping", block, word_at(map, block * BLOCK), version);
	}
}

/* Opens and closes it each time: the pages stay. */
static void look_by_open(struct lpi_stale_run *run, void *arg)
{
	(void)arg;
	while (!lpi_stale_is_over(run)) {
		uint64_t block = lpi_stale_below(LPI_STALE_BLOCKS);
		uint64_t version = atomic_load(&run->shared->acked[block]);
		int fd = lpi_stale_open(run, O_RDONLY);
		look(run, "open and pread", block, read_word(fd, block * BLOCK), version);
		(void)close(fd); /* it was only read */
	}
}

static void look_at_rest(struct lpi_stale_run *run)
{
	int fd = lpi_stale_open(run, O_RDONLY);
	for (unsigned block = 0; block < LPI_STALE_BLOCKS; block++)
		look(run, "at rest", block, read_word(fd, (uint64_t)block * BLOCK),
		     atomic_load(&run->shared->acked[block]));
	(void)close(fd); /* it was only read */
}

static void run_direct(struct lpi_stale_run *run, enum lpi_stale_engine engine,
		       void (*looker)(struct lpi_stale_run *run, void *arg), void *arg)
{
	struct direct halves[] = {{engine, 0, LPI_STALE_BLOCKS / 2},
				  {engine, LPI_STALE_BLOCKS / 2, LPI_STALE_BLOCKS / 2}};
	lay_out(run);
	for (unsigned i = 0; i < 2; i++) {
		lpi_stale_help(run, write_direct, &halves[i]);
		lpi_stale_help(run, looker, arg);
		lpi_stale_help(run, looker, arg);
	}
	while (!lpi_stale_is_over(run))
		(void)usleep(1000);
	lpi_stale_end(run);
	look_at_rest(run);
}

static void run_aio(struct lpi_stale_run *run)
{
	run_direct(run, LPI_STALE_AIO, look_by_pread, NULL);
}

static void run_aio_mapped(struct lpi_stale_run *run)
{
	run_direct(run, LPI_STALE_AIO, look_by_map, NULL);
}

static void run_aio_mapped_direct(struct lpi_stale_run *run)
{
	run_direct(run, LPI_STALE_AIO, look_by_map, run);
}

static void run_aio_opened(struct lpi_stale_run *run)
{
	run_direct(run, LPI_STALE_AIO, look_by_open, NULL);
}

static void run_uring(struct lpi_stale_run *run)
{
	run_direct(run, LPI_STALE_URING, look_by_pread, NULL);
}

/* One block, which everybody wants. */
static void run_one(struct lpi_stale_run *run)
{
	struct writer writer = {.run = run};
	void *buf = lpi_stale_buf(BLOCK);
	lay_out(run);
	help_to_read(run, 4);
	int direct = lpi_stale_open(run, O_RDWR | O_DIRECT);
	int fd = lpi_stale_open(run, O_RDONLY);
	const struct lpi_stale_piece piece = {buf, BLOCK, 0};
	for (writer.version = 1; !lpi_stale_is_over(run); writer.version++) {
		lpi_stale_fill(buf, writer.version, BLOCK);
		lpi_stale_submit(LPI_STALE_AIO, direct, &piece, 1, acked, &writer);
		look(run, "pread", 0, read_word(fd, 0), writer.version);
	}
}

/* --- A file that grows ------------------------------------------------------------------------ */

#define END_MAX (UINT64_C(4) << 20)

enum grower { BY_WRITE, BY_EXTENDING, BY_DIRECT, BY_AIO };

static uint64_t grown_word(uint64_t offset, uint64_t round)
{
	return offset / 8 << 8 | ((round & 0x7f) + 1);
}

static sigjmp_buf bus_jump;

static void bus(int signal)
{
	(void)signal;
	siglongjmp(bus_jump, 1);
}

/* 0: beyond the end, as far as the kernel knows. */
static uint64_t map_word(const void *map, uint64_t offset)
{
	if (sigsetjmp(bus_jump, 1) != 0)
		return 0;
	return word_at(map, offset);
}

static uint64_t direct_word(int fd, void *buf, uint64_t offset)
{
	uint64_t from = offset & ~(uint64_t)(BLOCK - 1);
	ssize_t len = pread(fd, buf, BLOCK, (off_t)from);
	if (len < 0)
		lpi_stale_fail("a direct read");
	return (uint64_t)len >= offset - from + 8 ? word_at(buf, offset - from) : 0;
}

static void look_below(struct lpi_stale_run *run, void *arg)
{
	static const char *const hows[] = {"pread", "direct read", "mapping"};
	struct lpi_stale *shared = run->shared;
	int fd = lpi_stale_open(run, O_RDONLY);
	int direct = lpi_stale_open(run, O_RDONLY | O_DIRECT);
	void *map = lpi_stale_map(fd, END_MAX);
	void *buf = lpi_stale_buf(BLOCK);
	(void)arg;
	(void)signal(SIGBUS, bus);
	while (!lpi_stale_is_over(run)) {
		uint64_t round = atomic_load(&shared->round);
		uint64_t end = atomic_load(&shared->end);
		uint64_t seen = 0;
		if (round % 2 != 0 || end < BLOCK)
			continue;
		uint64_t offset = end - 8 - 8 * lpi_stale_below(BLOCK / 8);
		uint64_t how = lpi_stale_below(3);
		if (how == 0)
			seen = pread(fd, &seen, 8, (off_t)offset) == 8 ? seen : 0;
		else
			seen = how == 1 ? direct_word(direct, buf, offset) : map_word(map, offset);
		if (atomic_load(&shared->round) != round)
			continue;
		atomic_fetch_add(&shared->looks, 1);
		if (seen != grown_word(offset, round))
			lpi_stale_found(run, hows[how], offset, seen, grown_word(offset, round));
	}
}

static void nothing(void *arg, unsigned idx)
{
	(void)arg;
	(void)idx;
}

static void grow(enum grower grower, int fd, int direct, const struct lpi_stale_piece *piece)
{
	uint64_t end = piece->offset + piece->bytes;
	if (grower == BY_EXTENDING) {
		int err = lpi_stale_below(2) == 0
				  ? ftruncate(fd, (off_t)end)
				  : fallocate(fd, 0, (off_t)piece->offset, (off_t)piece->bytes);
		if (err < 0)
			lpi_stale_fail("making it longer");
	}
	if (grower == BY_AIO)
		lpi_stale_submit(LPI_STALE_AIO, direct, piece, 1, nothing, NULL);
	else
		lpi_stale_write(grower == BY_DIRECT ? direct : fd, piece->from, piece->bytes,
				piece->offset);
}

/* All that have looked below the end have seen that there is none. */
static void cut_off(struct lpi_stale *shared, int fd)
{
	atomic_store(&shared->end, 0);
	atomic_fetch_add(&shared->round, 1);
	(void)usleep(20000);
	if (ftruncate(fd, 0) < 0)
		lpi_stale_fail("ftruncate");
	atomic_fetch_add(&shared->round, 1);
}

static void run_grown(struct lpi_stale_run *run, enum grower grower)
{
	struct lpi_stale *shared = run->shared;
	int fd = lpi_stale_open(run, O_RDWR);
	int direct = lpi_stale_open(run, O_RDWR | O_DIRECT);
	bool is_direct = grower == BY_DIRECT || grower == BY_AIO;
	char *buf = lpi_stale_buf(8 * BLOCK);
	for (unsigned i = 0; i < 6; i++)
		lpi_stale_help(run, look_below, NULL);
	while (!lpi_stale_is_over(run)) {
		size_t bytes = is_direct ? 512 * (1 + lpi_stale_below(64))
					 : 8 * (1 + lpi_stale_below(400));
		if (atomic_load(&shared->end) + bytes > END_MAX)
			cut_off(shared, fd);
		uint64_t end = atomic_load(&shared->end);
		for (size_t i = 0; i < bytes; i += 8)
			lpi_stale_fill(buf + i, grown_word(end + i, atomic_load(&shared->round)),
				       8);
		grow(grower, fd, direct, &(struct lpi_stale_piece){buf, bytes, end});
		atomic_store(&shared->end, end + bytes);
	}
}

static void run_appended(struct lpi_stale_run *run)
{
	run_grown(run, BY_WRITE);
}

static void run_extended(struct lpi_stale_run *run)
{
	run_grown(run, BY_EXTENDING);
}

static void run_appended_direct(struct lpi_stale_run *run)
{
	run_grown(run, BY_DIRECT);
}

static void run_appended_aio(struct lpi_stale_run *run)
{
	run_grown(run, BY_AIO);
}

/* --- Two writers of one block ----------------------------------------------------------------- */

/* One writes through the cache, from the middle of the first block to the middle of the last. The
 * other writes the first half of the first block and the second half of the last one, and has the
 * kernel drop these pages. A write of this length takes a while, so that happens in the middle. */
#define MANY        64u /* blocks */
#define MANY_BYTES  ((size_t)MANY * BLOCK)
#define INNER_BYTES (MANY_BYTES - BLOCK)

static void read_ends(struct lpi_stale_run *run, void *arg)
{
	int fd = lpi_stale_open(run, O_RDONLY);
	(void)arg;
	while (!lpi_stale_is_over(run))
		(void)read_word(fd, lpi_stale_below(2) == 0 ? 0 : MANY_BYTES - 8);
}

static void write_inner(struct lpi_stale_run *run)
{
	void *buf = lpi_stale_buf(MANY_BYTES);
	int fd = lpi_stale_open(run, O_RDWR);
	void *map = lpi_stale_map(fd, MANY_BYTES);
	for (unsigned i = 0; i < 3; i++)
		lpi_stale_help(run, read_ends, NULL);
	for (uint64_t version = 1; !lpi_stale_is_over(run); version++) {
		lpi_stale_fill(buf, version, INNER_BYTES);
		lpi_stale_write(fd, buf, INNER_BYTES, HALF);
		look(run, "mapping, inner", 0, word_at(map, HALF), version);
		look(run, "mapping, inner", MANY - 1, word_at(map, HALF + INNER_BYTES - 8),
		     version);
		look(run, "pread, inner", MANY - 1, read_word(fd, HALF + INNER_BYTES - 8), version);
	}
}

/* What the other writer writes this time. */
static uint64_t outer_offset(void)
{
	return lpi_stale_below(2) == 0 ? 0 : MANY_BYTES - HALF;
}

static void outer_direct(struct lpi_stale_run *run, void *arg)
{
	struct writer writer = {.run = run};
	void *buf = lpi_stale_buf(BLOCK);
	int fd = lpi_stale_open(run, O_RDWR | O_DIRECT);
	void *map = lpi_stale_map(lpi_stale_open(run, O_RDONLY), MANY_BYTES);
	(void)arg;
	for (writer.version = 1; !lpi_stale_is_over(run); writer.version++) {
		const struct lpi_stale_piece piece = {buf, HALF, outer_offset()};
		lpi_stale_fill(buf, writer.version, HALF);
		lpi_stale_submit(LPI_STALE_AIO, fd, &piece, 1, acked, &writer);
		look(run, "mapping, outer", piece.offset / BLOCK, word_at(map, piece.offset),
		     writer.version);
	}
}

static struct lapis_file *open_socket(struct lpi_stale_run *run)
{
	const struct lapis_options options = {.size = sizeof(options), .address = run->address};
	struct lapis *lapis = NULL;
	struct lapis_file *file = NULL;
	if (lapis_open(&options, &lapis) < 0 || lapis_open_file(lapis, run->key, &file) < 0)
		lpi_stale_fail("the socket");
	return file;
}

static void outer_native(struct lpi_stale_run *run, void *arg)
{
	void *buf = lpi_stale_buf(BLOCK);
	struct lapis_file *file = open_socket(run);
	void *map = lpi_stale_map(lpi_stale_open(run, O_RDONLY), MANY_BYTES);
	(void)arg;
	for (uint64_t version = 1; !lpi_stale_is_over(run); version++) {
		uint64_t offset = outer_offset();
		lpi_stale_fill(buf, version, HALF);
		if (lapis_pwrite(file, buf, HALF, offset, LAPIS_ORDERED) < 0)
			lpi_stale_fail("a write through the socket");
		look(run, "mapping, outer", offset / BLOCK, word_at(map, offset), version);
	}
}

static void run_beside_direct(struct lpi_stale_run *run)
{
	lay_out(run);
	lpi_stale_help(run, outer_direct, NULL);
	write_inner(run);
}

static void run_beside_native(struct lpi_stale_run *run)
{
	lay_out(run);
	lpi_stale_help(run, outer_native, NULL);
	write_inner(run);
}

/* --- Changes of all kinds through the socket -------------------------------------------------- */

#define SOURCE (2 * FEW) /* a block that is cloned */

/* Returns what the block's words are now; what is behind it may have changed with it. */
static uint64_t change(struct lapis_file *file, void *buf, uint64_t block, uint64_t version,
		       bool *ret_is_cut)
{
	uint64_t offset = block * BLOCK;
	int err = 0;
	*ret_is_cut = false;
	lpi_stale_fill(buf, version, BLOCK);
	switch (lpi_stale_below(4)) {
	case 0:
		err = lapis_pwrite(file, buf, BLOCK, offset, LAPIS_ORDERED);
		break;
	case 1:
		err = lapis_punch(file, offset, BLOCK);
		version = 0;
		break;
	case 2:
		err = lapis_truncate(file, offset);
		if (err == 0)
			err = lapis_truncate(file, (uint64_t)LPI_STALE_BLOCKS * BLOCK);
		*ret_is_cut = true;
		version = 0;
		break;
	default:
		err = lapis_pwrite(file, buf, BLOCK, (uint64_t)SOURCE * BLOCK, LAPIS_ORDERED);
		if (err == 0)
			err = lapis_clone(file, (uint64_t)SOURCE * BLOCK, file, offset, BLOCK);
		break;
	}
	if (err < 0)
		lpi_stale_fail("a change through the socket");
	return version;
}

/* The kernel may know an older end for a while, which it says so (SIGBUS, a short read): it asks
 * when somebody looks at the size. What it then has to show is what is there. (What it knows
 * without that is run_native_end's.) */
static bool see(int fd, const void *map, uint64_t offset, uint64_t *ret_words)
{
	struct stat st;
	for (unsigned tries = 0; tries < 1000; tries++) {
		if (fstat(fd, &st) < 0)
			lpi_stale_fail("fstat");
		if (sigsetjmp(bus_jump, 1) == 0) {
			ret_words[0] = word_at(map, offset);
			if (pread(fd, &ret_words[1], 8, (off_t)offset) == 8)
				return true;
		}
		(void)usleep(1000);
	}
	return false;
}

static void look_native(struct lpi_stale_run *run, int fd, const void *map, const uint64_t *words)
{
	uint64_t seen[2] = {0};
	for (uint64_t block = 0; block < FEW; block++) {
		atomic_fetch_add(&run->shared->looks, 1);
		if (!see(fd, map, block * BLOCK, seen))
			lpi_stale_found(run, "an old end", block, 0, words[block]);
		else if (seen[0] != words[block])
			lpi_stale_found(run, "mapping", block, seen[0], words[block]);
		else if (seen[1] != words[block])
			lpi_stale_found(run, "pread", block, seen[1], words[block]);
	}
}

static void run_native(struct lpi_stale_run *run)
{
	uint64_t words[FEW] = {0};
	void *buf = lpi_stale_buf(BLOCK);
	lay_out(run);
	int fd = lpi_stale_open(run, O_RDONLY);
	void *map = lpi_stale_map(fd, (size_t)FEW * BLOCK);
	(void)signal(SIGBUS, bus);
	lpi_stale_help(run, write_elsewhere, (void *)(uintptr_t)(LPI_STALE_BLOCKS - FEW));
	struct lapis_file *file = open_socket(run);
	for (uint64_t version = 1; !lpi_stale_is_over(run); version++) {
		uint64_t changed = lpi_stale_below(FEW);
		bool is_cut = false;
		words[changed] = change(file, buf, changed, version, &is_cut);
		for (uint64_t block = changed; is_cut && block < FEW; block++)
			words[block] = 0;
		look_native(run, fd, map, words);
	}
}

/* --- Ends that a socket moves ----------------------------------------------------------------- */

#define END_BLOCKS 16u /* the most that there are */

/* Whoever has the file open looks behind the answer, and asks for no size: at the last block, and
 * at what is behind it. */
static void look_at_end(struct lpi_stale_run *run, int fd, const void *map, uint64_t blocks,
			uint64_t version)
{
	uint64_t last = blocks - 1;
	uint64_t word = 0;
	uint64_t seen = map_word(map, last * BLOCK);
	atomic_fetch_add(&run->shared->looks, 3);
	if (seen != version)
		lpi_stale_found(run, "mapping, the last", last, seen, version);
	seen = pread(fd, &word, sizeof(word), (off_t)(last * BLOCK)) == 8 ? word : 0;
	if (seen != version)
		lpi_stale_found(run, "pread, the last", last, seen, version);
	if (pread(fd, &word, sizeof(word), (off_t)(blocks * BLOCK)) != 0)
		lpi_stale_found(run, "pread, behind the end", blocks, word, 0);
}

/* The blocks that all have in common are written through the mount meanwhile: the kernel believes
 * no size that it has asked for before such a write. */
static void run_native_end(struct lpi_stale_run *run)
{
	uint64_t words[END_BLOCKS] = {0};
	uint64_t blocks = FEW + 1;
	void *buf = lpi_stale_buf(BLOCK);
	int fd = lpi_stale_open(run, O_RDWR);
	if (ftruncate(fd, 0) < 0 || ftruncate(fd, (off_t)(blocks * BLOCK)) < 0)
		lpi_stale_fail("ftruncate");
	void *map = lpi_stale_map(fd, (size_t)END_BLOCKS * BLOCK);
	(void)signal(SIGBUS, bus);
	lpi_stale_help(run, write_elsewhere, NULL);
	struct lapis_file *file = open_socket(run);
	for (uint64_t version = 1; !lpi_stale_is_over(run); version++) {
		uint64_t at = 0;
		int err = 0;
		if (blocks == END_BLOCKS || (blocks > FEW + 1 && lpi_stale_below(3) == 0)) {
			blocks = FEW + 1 + lpi_stale_below(blocks - FEW - 1);
			err = lapis_truncate(file, blocks * BLOCK);
		} else {
			lpi_stale_fill(buf, version, BLOCK);
			err = lapis_append(file, buf, BLOCK, &at);
			words[blocks++] = version;
		}
		if (err < 0)
			lpi_stale_fail("an end through the socket");
		look_at_end(run, fd, map, blocks, words[blocks - 1]);
	}
}

const struct lpi_stale_case lpi_stale_cases[] = {
	{.name = "mapped", .run = run_mapped},
	{.name = "aio", .run = run_aio},
	{.name = "aio-mapped", .run = run_aio_mapped},
	{.name = "aio-mapped-direct", .run = run_aio_mapped_direct},
	{.name = "aio-opened", .run = run_aio_opened},
	{.name = "uring", .run = run_uring},
	{.name = "one", .run = run_one},
	{.name = "appended", .run = run_appended},
	{.name = "extended", .run = run_extended},
	{.name = "appended-direct", .run = run_appended_direct},
	{.name = "appended-aio", .run = run_appended_aio},
	{.name = "beside-direct", .run = run_beside_direct, .is_for_one_kernel = true},
	{.name = "beside-native",
	 .run = run_beside_native,
	 .needs_socket = true,
	 .is_for_one_kernel = true},
	{.name = "native", .run = run_native, .needs_socket = true},
	{.name = "native-end", .run = run_native_end, .needs_socket = true},
};
const unsigned lpi_stale_case_cnt = sizeof(lpi_stale_cases) / sizeof(lpi_stale_cases[0]);
