/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: after a write that may have left wrong data in the kernel's cache, the kernel is told to
 * drop its pages, and the write is answered after that. It is answered early enough that the
 * request that the kernel waits for can come. Where no data is cached the kernel is not told.
 * Method: a machine with two channels and kernels that cache. The threads that tell the kernel run
 * between two turns; where they must be stuck there is a real one, which waits for the test. */
#include "fuse/kernel/drop.h"

#include <errno.h>
#include <semaphore.h>

#include "base/crc32c.h"
#include "fuse/model/machine_test.h"

#define DAY_NS (86400 * LP_NS_PER_S)
#define PAGE   UINT64_C(4096)
#define THERE  (8 * PAGE)

struct bench {
	struct lpi_machine *machine;
	struct lp_fuse_channel *channel; /* of the file's thread, and */
	struct lpi_kernel *kernel;       /* the other end */
	uint64_t node;
	/* The kernel's messages since the last write was sent, and whether that was answered by
	 * then. */
	struct fuse_notify_inval_inode_out told;
	uint32_t told_cnt;
	bool is_answered;
	bool was_told_first;
	int error;
	/* A thread that is stuck. */
	struct lp_workers *stuck;
	struct lp_work work;
	sem_t begun;
	sem_t go;
};

static void release(struct bench *bench, uint64_t handle)
{
	const struct fuse_release_in in = {.fh = handle};
	lpi_kernel_begin(bench->kernel, FUSE_RELEASE, bench->node);
	lpi_kernel_add(bench->kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(bench->kernel));
}

static uint64_t open_as(struct bench *bench, uint32_t flags)
{
	return lpi_kernel_open_as(bench->kernel, FUSE_OPEN, bench->node, flags);
}

/* A file without handles, on the thread of the kernel that asks; its pages may be cached. */
static struct bench *bench_new(uint64_t seed, uint32_t queue_cnt)
{
	struct bench *bench = calloc(1, sizeof(*bench));
	static const uint8_t bytes[THERE];
	assert_non_null(bench);
	bench->machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(seed), queue_cnt, DAY_NS);
	struct lpi_kernel *kernel = &bench->machine->kernels[0];
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file");
	uint32_t idx = lp_ino_shard((struct lp_ino){file.node}) % LPI_MACHINE_CHANNELS;
	bench->node = file.node;
	bench->channel = bench->machine->channels[idx];
	bench->kernel = &bench->machine->kernels[idx];
	lp_test_ok(lpi_kernel_write(bench->kernel, file.node, 0, bytes, THERE));
	release(bench, file.fh);
	return bench;
}

static void bench_free(struct bench *bench)
{
	lp_test_ok(lpi_machine_stop(bench->machine));
	lpi_machine_free(bench->machine);
	free(bench);
}

/* --- Calls of programs ------------------------------------------------------------------------ */

static void send_write(struct bench *bench, const struct fuse_write_in *in)
{
	static const uint8_t bytes[THERE] = {1};
	bench->told_cnt = 0;
	bench->is_answered = false;
	bench->was_told_first = false;
	lpi_kernel_begin_write_as(bench->kernel, bench->node, in, bytes);
	lpi_kernel_send(bench->kernel);
}

static void note_told(struct bench *bench, const uint8_t *bytes)
{
	memcpy(&bench->told, bytes, sizeof(bench->told));
	assert_int_equal(bench->told.ino, bench->node);
	bench->told_cnt++;
	bench->was_told_first = !bench->is_answered;
}

/* With io_uring the notices still come by the descriptor. */
static bool take_told(struct bench *bench)
{
	uint8_t bytes[256];
	ssize_t len = recv(bench->kernel->fd, bytes, sizeof(bytes), 0);
	if (!bench->kernel->has_ring || len <= 0)
		return false;
	note_told(bench, bytes + sizeof(struct fuse_out_header));
	return true;
}

static void take(struct bench *bench)
{
	struct fuse_out_header header;
	while (bench->kernel->has_ring && take_told(bench))
		continue;
	if (!lpi_kernel_take(bench->kernel, &header))
		return;
	if (header.unique == 0) {
		assert_int_equal(header.error, FUSE_NOTIFY_INVAL_INODE);
		note_told(bench, lpi_kernel_answer(bench->kernel, sizeof(bench->told)));
		return;
	}
	assert_int_equal(header.unique, bench->kernel->unique);
	bench->is_answered = true;
	bench->error = header.error;
}

/* The write is answered, and all notices have been sent. */
static void settle(struct bench *bench)
{
	for (uint32_t i = 0; !bench->is_answered || lpi_fuse_is_dropping(bench->channel); i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		take(bench);
		bench->kernel->turn(bench->kernel->arg);
	}
	take(bench);
	lp_test_ok(bench->error);
}

static void write_direct(struct bench *bench, uint64_t handle, uint64_t offset, uint32_t size)
{
	const struct fuse_write_in in = {.fh = handle,
					 .offset = offset,
					 .size = size,
					 .write_flags = FUSE_WRITE_LOCKOWNER,
					 .flags = O_RDWR | O_DIRECT};
	send_write(bench, &in);
}

static void write_through(struct bench *bench, uint64_t handle, uint64_t offset, uint32_t size)
{
	const struct fuse_write_in in = {
		.fh = handle, .offset = offset, .size = size, .flags = O_RDWR};
	send_write(bench, &in);
}

static void read_as(struct bench *bench, uint64_t handle, uint32_t read_flags)
{
	const struct fuse_read_in in = {
		.fh = handle, .size = PAGE, .read_flags = read_flags, .flags = O_RDWR | O_DIRECT};
	lpi_kernel_begin(bench->kernel, FUSE_READ, bench->node);
	lpi_kernel_add(bench->kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(bench->kernel));
}

static void expect_told(const struct bench *bench, uint64_t offset, uint64_t length)
{
	assert_int_equal(bench->told_cnt, 1);
	assert_true(bench->was_told_first);
	assert_int_equal(bench->told.off, offset);
	assert_int_equal(bench->told.len, length);
}

/* --- Direct writes ---------------------------------------------------------------------------- */

/* No handle uses the cache: nothing is dropped, whatever was cached before. */
static void test_direct_alone(void **state)
{
	struct bench *bench = bench_new(1, 0);
	(void)state;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	for (uint32_t i = 0; i < 3; i++) {
		write_direct(bench, handle, PAGE, PAGE);
		settle(bench);
		assert_int_equal(bench->told_cnt, 0);
		read_as(bench, handle, FUSE_READ_LOCKOWNER);
	}
	assert_int_equal(bench->channel->stats.dropped, 0);
	bench_free(bench);
}

/* A program reads through the cache: each write is answered when its range has been dropped. After
 * it has closed, all pages are dropped once, and after that nothing is dropped any more. */
static void test_beside_readers(void **state)
{
	struct bench *bench = bench_new(2, 0);
	(void)state;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	uint64_t reader = open_as(bench, O_RDONLY);
	write_direct(bench, handle, PAGE, PAGE);
	settle(bench);
	assert_int_equal(bench->told_cnt, 0); /* it has not read yet */
	read_as(bench, reader, 0);
	for (uint32_t i = 0; i < 3; i++) {
		write_direct(bench, handle, i * PAGE, 2 * PAGE);
		settle(bench);
		expect_told(bench, i * PAGE, 2 * PAGE);
		lpi_machine_idle(bench->machine, LPI_FUSE_PAGES_IDLE_NS);
	}
	release(bench, reader);
	write_direct(bench, handle, PAGE, 512);
	settle(bench);
	expect_told(bench, 0, 0);
	write_direct(bench, handle, PAGE, 512);
	settle(bench);
	assert_int_equal(bench->told_cnt, 0);
	bench_free(bench);
}

/* Data that was read just before the close may still be on its way to the cache. */
static void test_reader_gone(void **state)
{
	struct bench *bench = bench_new(3, 0);
	(void)state;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	uint64_t reader = open_as(bench, O_RDONLY);
	read_as(bench, reader, 0);
	release(bench, reader);
	write_direct(bench, handle, PAGE, PAGE);
	settle(bench);
	expect_told(bench, PAGE, PAGE);
	bench_free(bench);
}

/* A mapping reads by a descriptor with O_DIRECT, too, and a program may turn that off and on. */
static void test_unexpected_handles(void **state)
{
	struct bench *bench = bench_new(4, 0);
	(void)state;
	uint64_t mapped = open_as(bench, O_RDWR | O_DIRECT);
	read_as(bench, mapped, 0);
	write_direct(bench, mapped, PAGE, PAGE);
	settle(bench);
	expect_told(bench, PAGE, PAGE);
	release(bench, mapped);
	uint64_t turned = open_as(bench, O_RDWR);
	write_direct(bench, turned, PAGE, PAGE);
	settle(bench);
	expect_told(bench, PAGE, PAGE);
	bench_free(bench);
}

/* Writes through the cache fill it, and so does data that the kernel writes back. */
static void test_beside_writers(void **state)
{
	struct bench *bench = bench_new(5, 0);
	(void)state;
	for (uint32_t back = 0; back < 2; back++) {
		uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
		uint64_t writer = open_as(bench, O_RDWR);
		const struct fuse_write_in in = {.fh = writer,
						 .size = PAGE,
						 .write_flags = back ? FUSE_WRITE_CACHE : 0,
						 .flags = O_RDWR};
		send_write(bench, &in);
		settle(bench);
		assert_int_equal(bench->told_cnt, 0);
		write_direct(bench, handle, 0, PAGE);
		settle(bench);
		expect_told(bench, 0, PAGE);
		release(bench, writer);
		release(bench, handle);
		lpi_machine_idle(bench->machine, 2 * LP_NS_PER_S);
		/* The noted pages have not been dropped; the next write finds this. */
		handle = open_as(bench, O_RDWR | O_DIRECT);
		write_direct(bench, handle, 0, PAGE);
		settle(bench);
		expect_told(bench, 0, 0);
		release(bench, handle);
		/* And the write through the cache may have lost its page by that. */
		writer = open_as(bench, O_RDWR);
		write_through(bench, writer, 0, PAGE);
		settle(bench);
		release(bench, writer);
	}
	bench_free(bench);
}

/* --- Writes through the cache ----------------------------------------------------------------- */

static void native_done(struct lp_ns_op *op)
{
	lp_test_ok(op->result);
}

/* Another client writes, through a socket. */
static void write_native(struct bench *bench, uint64_t offset)
{
	struct lp_buf *buf = lp_buf_new(bench->machine->sim->bufs, 100);
	assert_non_null(buf);
	memset(buf->data, 'x', 100);
	const struct lp_seg seg = {.buf = buf, .len = 100};
	uint32_t crc = lp_crc32c(0, buf->data, 100);
	struct lp_change change = {.type = LP_CHANGE_WRITE, .ino = {bench->node}};
	change.data.offset = offset;
	change.data.length = 100;
	change.data.payload =
		(struct lp_payload){.segs = &seg, .crcs = &crc, .seg_cnt = 1, .crc_cnt = 1};
	struct lp_ns_op op = {.opcode = LP_NS_STORE, .complete = native_done};
	op.store.ino.nr = bench->node;
	op.store.op.opcode = LP_STORE_TXN;
	op.store.op.txn.changes = &change;
	op.store.op.txn.change_cnt = 1;
	lp_test_ok(lpi_ns_sim_do(bench->machine->sim, &op));
	lp_buf_put(buf);
	/* The notice to the kernel of that. */
	bench->told_cnt = 0;
	take(bench);
	assert_int_equal(bench->told_cnt, 1);
}

/* The page may have been dropped, and read back, while the write was on its way: it is dropped once
 * more after the write. One write is enough. */
static void test_dropped_meanwhile(void **state)
{
	struct bench *bench = bench_new(6, 0);
	(void)state;
	uint64_t writer = open_as(bench, O_RDWR);
	for (uint32_t i = 0; i < 2; i++) {
		write_native(bench, PAGE + 1000);
		write_through(bench, writer, PAGE, PAGE);
		settle(bench);
		expect_told(bench, PAGE, PAGE);
		write_through(bench, writer, PAGE, PAGE);
		settle(bench);
		assert_int_equal(bench->told_cnt, 0);
	}
	/* Data that is written back is locked meanwhile. */
	write_native(bench, PAGE + 1000);
	const struct fuse_write_in back = {
		.offset = PAGE, .size = PAGE, .write_flags = FUSE_WRITE_CACHE};
	send_write(bench, &back);
	settle(bench);
	assert_int_equal(bench->told_cnt, 0);
	bench_free(bench);
}

/* A direct write has the kernel drop pages, too. */
static void test_dropped_by_direct(void **state)
{
	struct bench *bench = bench_new(7, 0);
	(void)state;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	uint64_t writer = open_as(bench, O_RDWR);
	read_as(bench, writer, 0);
	write_direct(bench, handle, 0, PAGE);
	settle(bench);
	write_through(bench, writer, 0, 2 * PAGE);
	settle(bench);
	expect_told(bench, 0, 2 * PAGE);
	bench_free(bench);
}

/* Without FOPEN_KEEP_CACHE the kernel drops the file's pages by itself, when it has the answer. */
static void test_dropped_by_open(void **state)
{
	struct bench *bench = bench_new(8, 0);
	struct fuse_open_out out;
	const struct fuse_setattr_in old = {.valid = FATTR_ATIME, .atime = 1000};
	(void)state;
	uint64_t writer = open_as(bench, O_RDWR);
	lpi_kernel_begin(bench->kernel, FUSE_SETATTR, bench->node);
	lpi_kernel_add(bench->kernel, &old, sizeof(old));
	lp_test_ok(lpi_kernel_ask(bench->kernel));
	(void)open_as(bench, O_RDONLY);
	memcpy(&out, lpi_kernel_answer(bench->kernel, sizeof(out)), sizeof(out));
	assert_int_equal(out.open_flags, 0);
	for (uint32_t i = 0; i < 2; i++) {
		write_through(bench, writer, 0, PAGE);
		settle(bench);
		expect_told(bench, 0, PAGE);
	}
	lpi_machine_idle(bench->machine, 2 * LP_NS_PER_S);
	write_through(bench, writer, 0, PAGE);
	settle(bench);
	assert_int_equal(bench->told_cnt, 0);
	bench_free(bench);
}

/* --- Long waits ------------------------------------------------------------------------------- */

static void be_stuck(struct lp_work *work)
{
	struct bench *bench = LP_CONTAINER_OF(work, struct bench, work);
	(void)sem_post(&bench->begun);
	while (sem_wait(&bench->go) < 0)
		assert_int_equal(errno, EINTR);
}

static void was_stuck(struct lp_work *work)
{
	(void)work;
}

static void stick(struct bench *bench)
{
	assert_int_equal(sem_init(&bench->begun, 0, 0), 0);
	assert_int_equal(sem_init(&bench->go, 0, 0), 0);
	lp_test_ok(lp_workers_new(1, &bench->stuck));
	bench->work = (struct lp_work){.run = be_stuck, .done = was_stuck};
	lp_workers_submit(bench->stuck, bench->machine->sim->reactor, &bench->work);
	while (sem_wait(&bench->begun) < 0)
		assert_int_equal(errno, EINTR);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		bench->machine->channels[i]->options.dropper = bench->stuck;
}

/* In real time: a turn might pass the limit. */
static void unstick(struct bench *bench)
{
	struct lp_workers_stats stats = {.ran = 0};
	(void)sem_post(&bench->go);
	for (; stats.ran == 0 || stats.ran < stats.submitted; (void)usleep(100))
		lp_workers_read_stats(bench->stuck, &stats);
	settle(bench);
	while (!lp_work_is_idle(&bench->work))
		bench->kernel->turn(bench->kernel->arg);
	lp_workers_free(bench->stuck);
	assert_int_equal(sem_destroy(&bench->begun), 0);
	assert_int_equal(sem_destroy(&bench->go), 0);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		bench->machine->channels[i]->options.dropper = bench->machine->sim->workers;
}

static bool is_answered_within(struct bench *bench, uint64_t ns)
{
	lpi_machine_idle(bench->machine, ns);
	take(bench);
	return bench->is_answered;
}

/* A waiting write has given back its buffers and its request, and it does not wait for ever. */
static void test_stuck(void **state)
{
	struct bench *bench = bench_new(9, 0);
	(void)state;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	uint64_t reader = open_as(bench, O_RDWR);
	read_as(bench, reader, 0);
	stick(bench);
	write_direct(bench, handle, PAGE, PAGE);
	assert_false(is_answered_within(bench, LP_NS_PER_S));
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		assert_int_equal(bench->machine->channels[i]->stats.under_way, 0);
		assert_int_equal(bench->machine->channels[i]->bytes_out, 0);
	}
	assert_true(is_answered_within(bench, LPI_FUSE_DROP_LIMIT_NS));
	assert_int_equal(bench->told_cnt, 0);
	assert_int_equal(bench->channel->stats.dropped_late, 1);
	unstick(bench);
	assert_int_equal(bench->told_cnt, 1);
	bench_free(bench);
}

/* The next write's drop: the object that came back last to the pool goes out first. */
static struct lpi_fuse_drop *next_drop(const struct bench *bench)
{
	struct lp_pool *pool = bench->channel->drops.pool;
	struct lpi_fuse_drop *next = lp_pool_get(pool);
	assert_non_null(next);
	lp_pool_put(pool, next);
	return next;
}

/* The kernel may keep the last page locked until the answer, and wait for it. */
static void test_locked_page(void **state)
{
	static const struct {
		uint64_t offset;
		uint32_t size;
		bool may_lock;
	} cases[] = {
		{0, PAGE, false},    {0, 2 * PAGE, false},           {100, 2 * PAGE - 100, false},
		{0, PAGE + 1, true}, {PAGE + 100, PAGE - 100, true}, {100, 10, true}};
	struct bench *bench = bench_new(10, 0);
	(void)state;
	uint64_t writer = open_as(bench, O_RDWR);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		write_native(bench, 0);
		stick(bench);
		struct lpi_fuse_drop *drop = next_drop(bench);
		write_through(bench, writer, cases[i].offset, cases[i].size);
		/* Until all but that page have been dropped it waits as any other. */
		assert_false(is_answered_within(bench, LP_NS_PER_S));
		atomic_store(&drop->is_at_last, true);
		bool is_answered = is_answered_within(bench, 3 * LPI_FUSE_DROP_LOOK_NS);
		assert_int_equal(is_answered, cases[i].may_lock);
		unstick(bench);
		/* Of the last page by itself, if there are others. */
		bool is_split = cases[i].may_lock && cases[i].offset + cases[i].size > PAGE &&
				cases[i].offset < PAGE;
		assert_int_equal(bench->told_cnt, is_split ? 2 : 1);
		/* A program that was answered first may have begun another write when the page was
		 * dropped. */
		write_through(bench, writer, 0, PAGE);
		settle(bench);
		assert_int_equal(bench->told_cnt, cases[i].may_lock);
	}
	bench_free(bench);
}

/* If most of the kernel's requests at a time wait, it may wait for one more that it cannot send. */
static void test_crowd(void **state)
{
	struct bench *bench = bench_new(11, 0);
	(void)state;
	_Atomic uint32_t *held_cnt = &bench->channel->peers[0]->drops.held_cnt;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	uint64_t reader = open_as(bench, O_RDWR);
	read_as(bench, reader, 0);
	for (uint32_t crowd = 0; crowd < 2; crowd++) {
		atomic_fetch_add(held_cnt, LPI_FUSE_DROPS_HURRY_AT - 2 + crowd);
		stick(bench);
		struct lpi_fuse_drop *drop = next_drop(bench);
		write_direct(bench, handle, PAGE, PAGE);
		/* Sooner than all threads would count as stuck. */
		assert_false(is_answered_within(bench, LPI_FUSE_DROP_LOOK_NS / 2));
		atomic_store(&drop->is_at_last, true);
		assert_int_equal(is_answered_within(bench, 3 * LPI_FUSE_DROP_LOOK_NS), crowd);
		unstick(bench);
		atomic_fetch_sub(held_cnt, LPI_FUSE_DROPS_HURRY_AT - 2 + crowd);
		assert_int_equal(atomic_load(held_cnt), 0);
	}
	bench_free(bench);
}

/* Without a place in the pool a write waits, and keeps its buffers. */
static void test_no_place(void **state)
{
	struct bench *bench = bench_new(12, 0);
	void *taken[LPI_FUSE_DROPS_MAX];
	uint32_t cnt = 0;
	(void)state;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	uint64_t reader = open_as(bench, O_RDWR);
	read_as(bench, reader, 0);
	while (cnt < LPI_FUSE_DROPS_MAX - 1)
		taken[cnt++] = lp_pool_get(bench->channel->drops.pool);
	write_direct(bench, handle, 0, PAGE);
	lpi_kernel_send(bench->kernel); /* the same once more */
	for (uint32_t answers = 0, i = 0; answers < 2; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		bench->is_answered = false;
		take(bench);
		answers += bench->is_answered;
		bench->kernel->turn(bench->kernel->arg);
	}
	assert_int_equal(bench->told_cnt, 2);
	while (cnt > 0)
		lp_pool_put(bench->channel->drops.pool, taken[--cnt]);
	bench_free(bench);
}

/* --- By io_uring ------------------------------------------------------------------------------ */

/* The entry waits with the request. Of a queue's entries, not all do so for long. */
static void test_ring(void **state)
{
	struct bench *bench = bench_new(13, LPI_MACHINE_CHANNELS);
	(void)state;
	_Atomic uint32_t *held_cnts = bench->machine->ring->held_cnts;
	uint32_t depth = bench->machine->ring->depth;
	uint64_t handle = open_as(bench, O_RDWR | O_DIRECT);
	uint64_t reader = open_as(bench, O_RDWR);
	read_as(bench, reader, 0);
	write_direct(bench, handle, PAGE, PAGE);
	settle(bench);
	expect_told(bench, PAGE, PAGE);
	for (uint32_t i = 0; i < bench->machine->ring->queue_cnt; i++)
		assert_int_equal(atomic_load(&held_cnts[i]), 0);
	for (uint32_t crowd = 0; crowd < 2; crowd++) {
		for (uint32_t i = 0; i < bench->machine->ring->queue_cnt; i++)
			atomic_store(&held_cnts[i], depth - 3 + crowd);
		stick(bench);
		write_direct(bench, handle, PAGE, PAGE);
		assert_false(is_answered_within(bench, 3 * LPI_FUSE_DROP_LOOK_NS));
		assert_int_equal(bench->channel->bytes_out, 0);
		/* All threads are stuck. */
		assert_int_equal(is_answered_within(bench, 2 * LPI_FUSE_DROP_STUCK_NS), crowd);
		unstick(bench);
		assert_int_equal(bench->told_cnt, 1);
		for (uint32_t i = 0; i < bench->machine->ring->queue_cnt; i++)
			assert_int_equal(atomic_load(&held_cnts[i]), depth - 3 + crowd);
	}
	bench_free(bench);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_direct_alone),
		cmocka_unit_test(test_beside_readers),
		cmocka_unit_test(test_reader_gone),
		cmocka_unit_test(test_unexpected_handles),
		cmocka_unit_test(test_beside_writers),
		cmocka_unit_test(test_dropped_meanwhile),
		cmocka_unit_test(test_dropped_by_direct),
		cmocka_unit_test(test_dropped_by_open),
		cmocka_unit_test(test_stuck),
		cmocka_unit_test(test_locked_page),
		cmocka_unit_test(test_crowd),
		cmocka_unit_test(test_no_place),
		cmocka_unit_test(test_ring),
	};
	return lp_test_main(tests, "fuse/kernel/drop");
}
