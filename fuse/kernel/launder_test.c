/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: before a search for data and holes, dirty mmap pages are written, if there may be any, and
 * only then. Pages that may not have been written are reported as data. Method: a machine with two
 * channels, whose thread that tells the kernel runs between two turns. It cannot tell the kernel
 * when its descriptor is taken away. */
#include "fuse/kernel/launder.h"

#include <errno.h>

#include "fuse/model/machine_test.h"

#define PAGE       UINT64_C(4096)
#define DATA_AT    (40 * PAGE)
#define SIZE_BYTES (64 * PAGE)

struct bench {
	struct lpi_machine *machine;
	struct lpi_opened file;
	struct lp_fuse_channel *channel; /* of its thread, and */
	struct lpi_kernel *kernel;       /* the other end */
	uint32_t told_cnt;
	uint32_t answer_cnt;
	uint64_t told_offset;
	uint64_t found[2 * LPI_FUSE_LAUNDERS];
	int error;
};

static struct bench bench_new(uint64_t seed)
{
	struct bench bench = {.machine = lpi_machine_boot(lpi_ns_sim_mkfs(seed))};
	struct lpi_kernel *kernel = &bench.machine->kernels[0];
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	bench.file = lpi_kernel_create(kernel, FUSE_CREATE, dir, "file");
	uint32_t idx = lp_ino_shard((struct lp_ino){bench.file.node}) % LPI_MACHINE_CHANNELS;
	bench.channel = bench.machine->channels[idx];
	bench.kernel = &bench.machine->kernels[idx];
	lp_test_ok(lpi_kernel_truncate(kernel, bench.file.node, SIZE_BYTES));
	lp_test_ok(lpi_kernel_write(kernel, bench.file.node, DATA_AT, "some bytes", 10));
	return bench;
}

static void bench_free(struct bench *bench)
{
	lp_test_ok(lpi_machine_stop(bench->machine));
	lpi_machine_free(bench->machine);
}

static uint64_t open_as(struct bench *bench, uint32_t flags)
{
	const struct fuse_open_in in = {.flags = flags};
	struct fuse_open_out out;
	lpi_kernel_begin(bench->kernel, FUSE_OPEN, bench->file.node);
	lpi_kernel_add(bench->kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(bench->kernel));
	memcpy(&out, lpi_kernel_answer(bench->kernel, sizeof(out)), sizeof(out));
	return out.fh;
}

static void release(struct bench *bench, uint64_t handle)
{
	const struct fuse_release_in in = {.fh = handle};
	lpi_kernel_begin(bench->kernel, FUSE_RELEASE, bench->file.node);
	lpi_kernel_add(bench->kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(bench->kernel));
}

/* Whether a message came: a notice about the file, or the answer of a search. */
static bool take(struct bench *bench)
{
	struct fuse_out_header header;
	struct fuse_notify_inval_inode_out told;
	struct fuse_lseek_out found;
	if (!lpi_kernel_take(bench->kernel, &header))
		return false;
	if (header.unique == 0) {
		assert_int_equal(header.error, FUSE_NOTIFY_INVAL_INODE);
		memcpy(&told, lpi_kernel_answer(bench->kernel, sizeof(told)), sizeof(told));
		assert_int_equal(told.ino, bench->file.node);
		assert_int_equal(told.len, 0); /* to the end */
		bench->told_offset = (uint64_t)told.off;
		bench->told_cnt++;
		return true;
	}
	bench->error = header.error;
	if (header.error == 0) {
		memcpy(&found, lpi_kernel_answer(bench->kernel, sizeof(found)), sizeof(found));
		bench->found[bench->answer_cnt] = found.offset;
	}
	bench->answer_cnt++;
	return true;
}

static void send_seek(struct bench *bench, uint64_t offset, uint32_t whence)
{
	const struct fuse_lseek_in in = {.fh = bench->file.fh, .offset = offset, .whence = whence};
	lpi_kernel_begin(bench->kernel, FUSE_LSEEK, bench->file.node);
	lpi_kernel_add(bench->kernel, &in, sizeof(in));
	lpi_kernel_send(bench->kernel);
}

static void await_answers(struct bench *bench, uint32_t cnt)
{
	for (uint32_t i = 0; bench->answer_cnt < cnt; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		if (!take(bench))
			bench->kernel->turn(bench->kernel->arg);
	}
}

static uint64_t answer(struct bench *bench)
{
	await_answers(bench, 1);
	lp_test_ok(bench->error);
	return bench->found[0];
}

static void begin_seek(struct bench *bench, uint64_t offset, uint32_t whence)
{
	bench->told_cnt = 0;
	bench->answer_cnt = 0;
	send_seek(bench, offset, whence);
}

/* Returns the answer. Notices before it are in told_cnt, told_offset. */
static uint64_t seek(struct bench *bench, uint64_t offset, uint32_t whence)
{
	begin_seek(bench, offset, whence);
	return answer(bench);
}

/* If the file may be mapped and written, the kernel is told before the store is asked. */
static void test_told_first(void **state)
{
	struct bench bench = bench_new(1);
	(void)state;
	assert_int_equal(seek(&bench, PAGE, SEEK_DATA), DATA_AT);
	assert_int_equal(bench.told_cnt, 1);
	assert_int_equal(bench.told_offset, PAGE);
	assert_int_equal(seek(&bench, DATA_AT, SEEK_HOLE), DATA_AT + PAGE);
	assert_int_equal(bench.told_cnt, 1);
	assert_int_equal(bench.told_offset, DATA_AT);
	assert_false(lpi_fuse_is_laundering(bench.channel));
	bench_free(&bench);
}

/* A handle for reading and writing counts, whichever call made it. */
static void test_mappers(void **state)
{
	struct bench bench = bench_new(2);
	(void)state;
	release(&bench, bench.file.fh);
	assert_int_equal(seek(&bench, 0, SEEK_DATA), DATA_AT);
	assert_int_equal(bench.told_cnt, 0);
	static const uint32_t unmapped[] = {O_RDONLY, O_WRONLY, O_WRONLY | O_APPEND};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(unmapped); i++) {
		uint64_t handle = open_as(&bench, unmapped[i]);
		(void)seek(&bench, 0, SEEK_DATA);
		assert_int_equal(bench.told_cnt, 0);
		release(&bench, handle);
	}
	uint64_t first = open_as(&bench, O_RDWR);
	uint64_t second = open_as(&bench, O_RDWR | O_APPEND);
	for (uint32_t left = 2; left-- > 0;) {
		(void)seek(&bench, 0, SEEK_DATA);
		assert_int_equal(bench.told_cnt, 1);
		release(&bench, left == 1 ? first : second);
	}
	assert_int_equal(seek(&bench, 0, SEEK_DATA), DATA_AT);
	assert_int_equal(bench.told_cnt, 0);
	bench_free(&bench);
}

/* A directory's handle does not count, whatever its bits. Here its generation has reached the bits
 * of a handle by which a file may be mapped. */
static void test_no_mapper(void **state)
{
	struct bench bench = bench_new(6);
	(void)state;
	uint64_t dir = lpi_kernel_lookup(bench.kernel, 1, "dir");
	assert_int_not_equal(dir, 0);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		atomic_store(&bench.machine->channels[i]->readings.slots[0].state,
			     ((UINT64_C(1) << 30) - 1) << 2);
	uint64_t handle = lpi_kernel_open(bench.kernel, FUSE_OPENDIR, dir);
	assert_int_not_equal(handle & LPI_FUSE_HANDLE_MAPS, 0);
	/* The file has the directory's place in the table. */
	_Atomic uint32_t *mappers = bench.channel->peers[0]->launders.mappers;
	for (uint32_t i = 0; i < LPI_FUSE_MAPPERS; i++)
		atomic_store(&mappers[i], 1);
	const struct fuse_release_in in = {.fh = handle};
	lpi_kernel_begin(bench.kernel, FUSE_RELEASEDIR, dir);
	lpi_kernel_add(bench.kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(bench.kernel));
	for (uint32_t i = 0; i < LPI_FUSE_MAPPERS; i++)
		assert_int_equal(atomic_load(&mappers[i]), 1);
	assert_true(lpi_fuse_may_be_mapped(bench.channel, (struct lp_ino){bench.file.node}));
	bench_free(&bench);
}

/* The thread finds no descriptor. */
static void begin_untold(struct bench *bench, uint64_t offset, uint32_t whence)
{
	struct lpi_fuse_launder *launder = &bench->channel->launders.items[0];
	begin_seek(bench, offset, whence);
	for (uint32_t i = 0; launder->request == NULL; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		bench->kernel->turn(bench->kernel->arg);
	}
	launder->fd = -1;
}

/* The kernel cannot be told: any range may be data, up to the end. */
static void test_untold(void **state)
{
	struct bench bench = bench_new(3);
	(void)state;
	begin_untold(&bench, PAGE + 1, SEEK_DATA);
	assert_int_equal(answer(&bench), PAGE + 1);
	begin_untold(&bench, PAGE + 1, SEEK_HOLE);
	assert_int_equal(answer(&bench), SIZE_BYTES);
	begin_untold(&bench, SIZE_BYTES, SEEK_DATA);
	await_answers(&bench, 1);
	assert_int_equal(bench.error, -ENXIO);
	assert_int_equal(seek(&bench, PAGE, SEEK_DATA), DATA_AT);
	bench_free(&bench);
}

/* More searches than may wait for the kernel: the rest are answered at once, and none is lost. */
static void test_crowd(void **state)
{
	struct bench bench = bench_new(4);
	enum { CNT = LPI_FUSE_LAUNDERS + 3 };
	(void)state;
	for (uint32_t round = 0; round < 2; round++) {
		bench.told_cnt = 0;
		bench.answer_cnt = 0;
		for (uint32_t i = 0; i < CNT; i++)
			send_seek(&bench, PAGE, SEEK_DATA);
		await_answers(&bench, CNT);
		assert_int_equal(bench.told_cnt, LPI_FUSE_LAUNDERS);
		uint32_t all_data_cnt = 0;
		for (uint32_t i = 0; i < CNT; i++) {
			assert_true(bench.found[i] == PAGE || bench.found[i] == DATA_AT);
			all_data_cnt += bench.found[i] == PAGE;
		}
		assert_int_equal(all_data_cnt, CNT - LPI_FUSE_LAUNDERS);
		assert_false(lpi_fuse_is_laundering(bench.channel));
	}
	bench_free(&bench);
}

/* Changes by the first steps of a range stay when a later one finds no space. The kernel takes an
 * error to mean that nothing changed, so it is told before the answer. */
static void test_range_that_fails(void **state)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	static const uint8_t zeros[10];
	struct bench bench = bench_new(5);
	const struct fuse_fallocate_in in = {.fh = bench.file.fh,
					     .offset = PAGE,
					     .length = 2 * LPI_NS_SIM_BYTES,
					     .mode = FALLOC_FL_ZERO_RANGE};
	(void)state;
	lpi_kernel_begin(bench.kernel, FUSE_FALLOCATE, bench.file.node);
	lpi_kernel_add(bench.kernel, &in, sizeof(in));
	lpi_kernel_send(bench.kernel);
	await_answers(&bench, 1);
	assert_int_equal(bench.error, -ENOSPC);
	assert_int_equal(bench.told_cnt, 1);
	assert_int_equal(bench.told_offset, PAGE);
	(void)lpi_kernel_read(bench.kernel, FUSE_READ, bench.file.node, DATA_AT, bytes);
	assert_memory_equal(bytes, zeros, sizeof(zeros));
	bench_free(&bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told_first),       cmocka_unit_test(test_mappers),
		cmocka_unit_test(test_untold),           cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_range_that_fails), cmocka_unit_test(test_no_mapper),
	};
	return lp_test_main(tests, "fuse/kernel/launder");
}
