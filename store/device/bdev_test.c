/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: every kind of block device keeps the contract of store/device/bdev.h: what is written is
 * read back, each operation completes once and later, blocking calls and channels see one device.
 * Method: the same tests for each kind: memory, an image file through io_uring, with and without
 * registered memory, the simulated one without faults, and the first two delayed. A kind the
 * machine cannot do is skipped and says why.
 */
#include "base/testing/test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/loop/reactor.h"
#include "base/prng.h"
#include "base/testing/test_death.h"
#include "store/device/bdev_delay.h"
#include "store/device/bdev_driver.h"
#include "store/device/sim/bdev_sim.h"
#include "store/volume/devices.h"

#define MIB        (UINT64_C(1) << 20)
#define SIZE       (64 * MIB)
#define LONGEST    (8 * MIB)
#define FLIGHT_CNT UINT64_C(64)

struct kind {
	const char *name;
	bool ring;
	bool simulated;
	bool registered; /* the rig's memory is, with its reactor */
	int (*open)(const char *path, struct lp_bdev **ret_bdev);
};

struct rig {
	const struct kind *kind;
	char path[32]; /* "" for none */
	struct lp_clock_sim clock;
	struct lp_reactor *reactor;
	struct lp_bdev *bdev;
	struct lp_bdev_chan *chan;
	uint32_t block;
	unsigned char *out; /* two buffers of LONGEST bytes */
	unsigned char *in;
	struct lp_prng prng;
};

struct flight {
	struct lp_bdev_op op;
	int completed_cnt;
};

/* --- The kinds ---------------------------------------------------------------------------------
 */

static int open_mem(const char *path, struct lp_bdev **ret_bdev)
{
	(void)path;
	return lp_bdev_open_mem(SIZE, 512, ret_bdev);
}

static int open_sim(const char *path, struct lp_bdev **ret_bdev)
{
	struct lp_sim_options options = {
		.profile = lp_sim_preset(LP_SIM_CONSUMER), .size_bytes = SIZE, .seed = 1};
	(void)path;
	return lp_bdev_open_sim(&options, ret_bdev);
}

static int open_uring(const char *path, struct lp_bdev **ret_bdev)
{
	struct lp_bdev_open_options options = {.exclusive = true};
	return lp_bdev_open_uring(path, &options, ret_bdev);
}

static int delay(struct lp_bdev *inner, struct lp_bdev **ret_bdev)
{
	struct lp_bdev_delay_options options = {
		.write_ns = 3000, .flush_ns = 5000, .write_ns_per_kib = 10, .queue_depth = 8};
	int err = lp_bdev_open_delay(&inner, &options, ret_bdev);
	lp_bdev_close(inner);
	return err;
}

static int open_delayed_mem(const char *path, struct lp_bdev **ret_bdev)
{
	struct lp_bdev *inner = NULL;
	int err = open_mem(path, &inner);
	return err < 0 ? err : delay(inner, ret_bdev);
}

static int open_delayed_uring(const char *path, struct lp_bdev **ret_bdev)
{
	struct lp_bdev *inner = NULL;
	int err = open_uring(path, &inner);
	return err < 0 ? err : delay(inner, ret_bdev);
}

static const struct kind kinds[] = {
	{"mem", false, false, false, open_mem},
	{"sim", false, true, false, open_sim},
	{"uring", true, false, false, open_uring},
	{"registered_uring", true, false, true, open_uring},
	{"delayed_mem", false, false, false, open_delayed_mem},
	{"delayed_uring", true, false, false, open_delayed_uring},
};

static void make_image(struct rig *rig)
{
	/* The runner gives each test a directory of its own. */
	(void)snprintf(rig->path, sizeof(rig->path), "bdev-test-XXXXXX");
	int fd = mkstemp(rig->path);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)SIZE), 0);
	(void)close(fd);
}

static int start_reactor(struct rig *rig)
{
	struct lp_reactor_options options = {
		.name = "bdev-test", .ring = rig->kind->ring, .buffers_max = 2};
	lp_clock_sim_init(&rig->clock, 0, 0);
	if (rig->kind->simulated)
		options.sim = &rig->clock;
	int err = lp_reactor_new(&options, &rig->reactor);
	return err < 0 ? err : lp_reactor_start(rig->reactor);
}

static int setup(void **state)
{
	struct rig *rig = calloc(1, sizeof(*rig));
	assert_non_null(rig);
	rig->kind = *state;
	*state = rig;
	lp_prng_init(&rig->prng, 1);
	rig->out = aligned_alloc(4096, LONGEST);
	rig->in = aligned_alloc(4096, LONGEST);
	assert_non_null(rig->out);
	assert_non_null(rig->in);
	if (rig->kind->ring)
		make_image(rig);
	int err = start_reactor(rig);
	if (err == 0 && rig->kind->registered) {
		lp_test_ok(lp_reactor_buffer_add(rig->reactor, rig->out, LONGEST));
		lp_test_ok(lp_reactor_buffer_add(rig->reactor, rig->in, LONGEST));
	}
	if (err == 0)
		err = rig->kind->open(rig->path, &rig->bdev);
	if (err < 0 && rig->kind->ring) {
		print_message("skip: no io_uring or O_DIRECT here (%s)\n", lp_strerror(err));
		return 0;
	}
	lp_test_ok(err);
	lp_test_ok(lp_bdev_attach(rig->bdev, rig->reactor, &rig->chan));
	rig->block = lp_bdev_caps(rig->bdev)->block_bytes;
	return 0;
}

static int teardown(void **state)
{
	struct rig *rig = *state;
	lp_bdev_detach(rig->chan);
	lp_bdev_close(rig->bdev);
	lp_reactor_free(rig->reactor);
	if (rig->path[0] != '\0')
		(void)unlink(rig->path);
	free(rig->out);
	free(rig->in);
	free(rig);
	return 0;
}

static struct rig *rig_of(void **state)
{
	struct rig *rig = *state;
	if (rig->chan == NULL)
		skip();
	return rig;
}

/* --- Doing things ------------------------------------------------------------------------------
 */

static void complete(struct lp_bdev_op *op)
{
	struct flight *flight = LP_CONTAINER_OF(op, struct flight, op);
	flight->completed_cnt++;
}

static void submit(struct rig *rig, struct flight *flight)
{
	int before = flight->completed_cnt;
	flight->op.complete = complete;
	lp_bdev_submit(rig->chan, &flight->op);
	/* Never inside the submit. */
	assert_int_equal(flight->completed_cnt, before);
}

static void wait_all(struct rig *rig)
{
	while (lp_bdev_inflight(rig->chan) > 0)
		(void)lp_reactor_turn(rig->reactor, true); /* counts are looked at instead */
}

static int run_op(struct rig *rig, enum lp_bdev_opcode opcode, void *buf, uint64_t length_bytes,
		  uint64_t offset_bytes)
{
	struct flight flight = {0};
	lp_bdev_op_prep(&flight.op, opcode, buf, length_bytes, offset_bytes);
	submit(rig, &flight);
	wait_all(rig);
	assert_int_equal(flight.completed_cnt, 1);
	return flight.op.result;
}

static void assert_zeros(const unsigned char *buf, uint64_t len)
{
	for (uint64_t i = 0; i < len; i++)
		if (buf[i] != 0)
			fail_msg("byte %llu is %u", (unsigned long long)i, buf[i]);
}

/* --- The contract ------------------------------------------------------------------------------
 */

static void test_caps(void **state)
{
	struct rig *rig = rig_of(state);
	const struct lp_bdev_caps *caps = lp_bdev_caps(rig->bdev);
	assert_int_equal(caps->size_bytes, SIZE);
	assert_true(caps->block_bytes == 512 || caps->block_bytes == 4096);
	assert_true(caps->physical_bytes >= caps->block_bytes);
	assert_true(caps->atomic_write_bytes >= caps->block_bytes);
	assert_int_not_equal(lp_bdev_name(rig->bdev)[0], '\0');
	lp_test_ok(lp_bdev_refresh_size(rig->bdev));
	assert_int_equal(lp_bdev_caps(rig->bdev)->size_bytes, SIZE);
	assert_ptr_equal(lp_bdev_of(rig->chan), rig->bdev);
	assert_string_equal(lp_bdev_opcode_name(LP_BDEV_WRITE_THROUGH), "write-through");
}

static void test_new_space_is_zero(void **state)
{
	struct rig *rig = rig_of(state);
	memset(rig->in, 1, LONGEST);
	lp_test_ok(run_op(rig, LP_BDEV_READ, rig->in, LONGEST, SIZE - LONGEST));
	assert_zeros(rig->in, LONGEST);
	memset(rig->in, 1, LONGEST);
	lp_test_ok(lp_bdev_read_sync(rig->bdev, rig->in, LONGEST, 0));
	assert_zeros(rig->in, LONGEST);
}

/* One write and what is around it: a block before and one after stay zero. */
static void write_and_read(struct rig *rig, enum lp_bdev_opcode opcode, uint64_t len, uint64_t at)
{
	unsigned char *edge = rig->in;
	lp_prng_fill(&rig->prng, rig->out, LP_MIN(len, 4096u));
	for (uint64_t done = 4096; done < len; done += 4096)
		memcpy(rig->out + done, &done, sizeof(done));
	lp_test_ok(run_op(rig, opcode, rig->out, len, at));
	memset(rig->in, 0x5a, len);
	lp_test_ok(run_op(rig, LP_BDEV_READ, rig->in, len, at));
	assert_memory_equal(rig->in, rig->out, len);
	lp_test_ok(run_op(rig, LP_BDEV_READ, edge, rig->block, at - rig->block));
	assert_zeros(edge, rig->block);
	lp_test_ok(run_op(rig, LP_BDEV_READ, edge, rig->block, at + len));
	assert_zeros(edge, rig->block);
}

static void test_sizes(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t block = rig->block;
	const uint64_t sizes[] = {block, 2 * block,   3 * block, 65536,  MIB - block,
				  MIB,   MIB + block, 4 * MIB,   LONGEST};
	uint64_t at = block;
	memset(rig->out, 0xc3, LONGEST);
	for (size_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		enum lp_bdev_opcode opcode = i % 2 == 0 ? LP_BDEV_WRITE : LP_BDEV_WRITE_THROUGH;
		write_and_read(rig, opcode, sizes[i], at);
		at += sizes[i] + 2 * block;
	}
	/* The very last block. */
	lp_test_ok(run_op(rig, LP_BDEV_WRITE, rig->out, block, SIZE - block));
	lp_test_ok(run_op(rig, LP_BDEV_READ, rig->in, block, SIZE - block));
	assert_memory_equal(rig->in, rig->out, block);
	lp_test_ok(run_op(rig, LP_BDEV_FLUSH, NULL, 0, 0));
	lp_test_ok(lp_bdev_read_sync(rig->bdev, rig->in, block, SIZE - block));
	assert_memory_equal(rig->in, rig->out, block);
}

static void test_overwrite(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t block = rig->block;
	for (int n = 1; n < 20; n++) {
		enum lp_bdev_opcode opcode = n % 3 == 0 ? LP_BDEV_WRITE_THROUGH : LP_BDEV_WRITE;
		memset(rig->out, n, 3 * block);
		lp_test_ok(run_op(rig, opcode, rig->out, 3 * block, 5 * block));
		lp_test_ok(run_op(rig, LP_BDEV_READ, rig->in, 3 * block, 5 * block));
		assert_memory_equal(rig->in, rig->out, 3 * block);
	}
}

static void test_discard(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t block = rig->block;
	if (!lp_bdev_caps(rig->bdev)->can_discard) {
		print_message("skip: this device cannot discard\n");
		skip();
	}
	memset(rig->out, 7, 4 * MIB);
	lp_test_ok(run_op(rig, LP_BDEV_WRITE, rig->out, 4 * MIB, 0));
	lp_test_ok(run_op(rig, LP_BDEV_DISCARD, NULL, MIB, MIB));
	lp_test_ok(run_op(rig, LP_BDEV_DISCARD, NULL, block, 3 * MIB + block));
	lp_test_ok(lp_bdev_discard_sync(rig->bdev, MIB - block, 2 * MIB));
	lp_test_ok(run_op(rig, LP_BDEV_READ, rig->in, 4 * MIB, 0));
	for (uint64_t at = 0; at < 4 * MIB; at += block) {
		bool discarded = (at >= MIB && at < 3 * MIB - block) || at == 3 * MIB + block;
		if (discarded && rig->in[at] == 0)
			assert_zeros(rig->in + at, block);
		else
			assert_memory_equal(rig->in + at, rig->out, block);
	}
	memset(rig->out, 8, MIB);
	lp_test_ok(run_op(rig, LP_BDEV_WRITE, rig->out, MIB, MIB));
	lp_test_ok(run_op(rig, LP_BDEV_READ, rig->in, MIB, MIB));
	assert_memory_equal(rig->in, rig->out, MIB);
}

/* Cuts len bytes at buf into iov_cnt pieces of random block multiples. */
static void cut_up(struct rig *rig, unsigned char *buf, uint64_t len, struct iovec *iov,
		   uint32_t iov_cnt)
{
	uint64_t left = len / rig->block;
	for (uint32_t i = 0; i < iov_cnt; i++) {
		uint64_t most = left - (iov_cnt - i - 1);
		uint64_t part =
			i + 1 == iov_cnt ? left : lp_prng_between(&rig->prng, 1, LP_MIN(most, 4u));
		iov[i] = (struct iovec){.iov_base = buf, .iov_len = part * rig->block};
		buf += part * rig->block;
		left -= part;
	}
}

static int run_vector(struct rig *rig, enum lp_bdev_opcode opcode, unsigned char *buf, uint64_t len,
		      uint32_t iov_cnt)
{
	static struct iovec iov[LP_BDEV_IOV_MAX];
	struct flight flight = {0};
	cut_up(rig, buf, len, iov, iov_cnt);
	flight.op.opcode = opcode;
	flight.op.offset_bytes = 3 * (uint64_t)rig->block;
	flight.op.length_bytes = len;
	flight.op.iov = iov;
	flight.op.iov_cnt = iov_cnt;
	submit(rig, &flight);
	wait_all(rig);
	assert_int_equal(flight.completed_cnt, 1);
	return flight.op.result;
}

/* Pieces from the back to the front, of one buffer or with each third from other memory. */
static void gather(struct rig *rig, unsigned char *other, struct iovec *iov, uint32_t cnt)
{
	for (uint32_t i = 0; i < cnt; i++) {
		uint64_t at = (uint64_t)(cnt - 1 - i) * 2 * rig->block;
		unsigned char *base = other != NULL && i % 3 == 1 ? other : rig->out;
		iov[i] = (struct iovec){.iov_base = base + at, .iov_len = rig->block};
	}
}

static void write_and_compare(struct rig *rig, struct iovec *iov, uint32_t cnt)
{
	struct iovec kept[8];
	struct flight flight = {0};
	uint64_t len = (uint64_t)cnt * rig->block;
	LP_ASSERT(cnt <= LP_ARRAY_SIZE(kept));
	memcpy(kept, iov, cnt * sizeof(*iov)); /* short transfers change it */
	lp_bdev_op_prep(&flight.op, LP_BDEV_WRITE_THROUGH, NULL, len, MIB);
	flight.op.iov = iov;
	flight.op.iov_cnt = cnt;
	submit(rig, &flight);
	wait_all(rig);
	lp_test_ok(flight.op.result);
	lp_test_ok(lp_bdev_read_sync(rig->bdev, rig->in, len, MIB));
	for (uint32_t i = 0; i < cnt; i++)
		assert_memory_equal(rig->in + (uint64_t)i * rig->block, kept[i].iov_base,
				    rig->block);
}

/* Registered memory is used where a vector lies in one region; wherever it lies, the right bytes
 * must arrive. */
static void test_scattered(void **state)
{
	struct rig *rig = rig_of(state);
	struct iovec iov[8];
	unsigned char *other = aligned_alloc(4096, MIB);
	assert_non_null(other);
	lp_prng_fill(&rig->prng, rig->out, MIB);
	lp_prng_fill(&rig->prng, other, MIB);
	lp_prng_fill(&rig->prng, rig->in + 4 * MIB, MIB);
	gather(rig, NULL, iov, 8);
	write_and_compare(rig, iov, 8);
	gather(rig, rig->in + 4 * MIB, iov, 7);
	write_and_compare(rig, iov, 7);
	gather(rig, other, iov, 8);
	write_and_compare(rig, iov, 8);
	free(other);
}

/* What comes short is gone on with: so behind the end of a file that shrank nothing is taken for
 * read, and what is in front of it is not lost. */
static void test_short(void **state)
{
	struct rig *rig = rig_of(state);
	uint64_t len = 64 * (uint64_t)rig->block;
	if (!rig->kind->ring)
		return; /* there is no file that could shrink */
	lp_prng_fill(&rig->prng, rig->out, len);
	lp_test_ok(run_vector(rig, LP_BDEV_WRITE_THROUGH, rig->out, len, 3));
	/* It begins at the third block. */
	assert_int_equal(truncate(rig->path, (off_t)(3 + 32) * rig->block), 0);
	memset(rig->in, 0, len);
	assert_int_equal(run_vector(rig, LP_BDEV_READ, rig->in, len, 3), -EIO);
	lp_test_ok(run_vector(rig, LP_BDEV_READ, rig->in, len / 2, 3));
	assert_memory_equal(rig->in, rig->out, len / 2);
	assert_int_equal(truncate(rig->path, (off_t)SIZE), 0);
}

static void test_vectors(void **state)
{
	struct rig *rig = rig_of(state);
	static const uint32_t cnts[] = {2, 3, 17, 300, LP_BDEV_IOV_MAX};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cnts); i++) {
		uint64_t len = LP_MIN(UINT64_C(5) * cnts[i] * rig->block, LONGEST);
		lp_prng_fill(&rig->prng, rig->out, len);
		lp_test_ok(run_vector(rig, LP_BDEV_WRITE, rig->out, len, cnts[i]));
		memset(rig->in, 0, len);
		/* Cut up otherwise than it was written. */
		lp_test_ok(run_vector(rig, LP_BDEV_READ, rig->in, len, cnts[i]));
		assert_memory_equal(rig->in, rig->out, len);
		lp_test_ok(lp_bdev_read_sync(rig->bdev, rig->in, len, 3 * (uint64_t)rig->block));
		assert_memory_equal(rig->in, rig->out, len);
	}
}

static void fly(struct rig *rig, enum lp_bdev_opcode opcode, unsigned char *bufs,
		struct flight *flights)
{
	for (uint64_t i = 0; i < FLIGHT_CNT; i++) {
		uint64_t slot = (i * 29) % FLIGHT_CNT; /* in no order of the device */
		flights[i] = (struct flight){0};
		lp_bdev_op_prep(&flights[i].op, opcode, bufs + slot * 16384, 16384, slot * 32768);
		submit(rig, &flights[i]);
	}
	assert_int_equal(lp_bdev_inflight(rig->chan), FLIGHT_CNT);
	wait_all(rig);
	for (uint32_t i = 0; i < FLIGHT_CNT; i++) {
		assert_int_equal(flights[i].completed_cnt, 1);
		assert_int_equal(flights[i].op.result, 0);
	}
}

static void test_many_in_flight(void **state)
{
	struct rig *rig = rig_of(state);
	static struct flight flights[FLIGHT_CNT];
	for (int round = 0; round < 8; round++) {
		lp_prng_fill(&rig->prng, rig->out, FLIGHT_CNT * 16384);
		fly(rig, LP_BDEV_WRITE, rig->out, flights);
		memset(rig->in, 0, FLIGHT_CNT * 16384);
		fly(rig, LP_BDEV_READ, rig->in, flights);
		assert_memory_equal(rig->in, rig->out, FLIGHT_CNT * 16384);
	}
	const struct lp_bdev_stats *stats = lp_bdev_stats(rig->chan);
	assert_int_equal(stats->ops[LP_BDEV_WRITE], 8 * FLIGHT_CNT);
	assert_int_equal(stats->bytes[LP_BDEV_READ], 8 * FLIGHT_CNT * 16384);
	assert_int_equal(stats->errors, 0);
}

/* --- Other threads -----------------------------------------------------------------------------
 */

/* What a channel did is known after it is gone, and does not become less with the next one. */
static void test_past_channels_count(void **state)
{
	struct rig *rig = rig_of(state);
	struct lp_bdev_stats past;
	uint64_t block = rig->block;
	for (uint64_t n = 0; n < 3; n++) {
		lp_bdev_past_stats(rig->bdev, &past);
		assert_int_equal(past.ops[LP_BDEV_WRITE], n);
		lp_test_ok(run_op(rig, LP_BDEV_WRITE, rig->out, 3 * block, 0));
		lp_test_ok(run_op(rig, LP_BDEV_FLUSH, NULL, 0, 0));
		lp_bdev_past_stats(rig->bdev, &past);
		assert_int_equal(past.ops[LP_BDEV_WRITE], n);
		lp_bdev_detach(rig->chan);
		lp_test_ok(lp_bdev_attach(rig->bdev, rig->reactor, &rig->chan));
	}
	lp_bdev_past_stats(rig->bdev, &past);
	assert_int_equal(past.bytes[LP_BDEV_WRITE], 9 * block);
	assert_int_equal(past.ops[LP_BDEV_FLUSH], 3);
	assert_int_equal(past.ops[LP_BDEV_READ] + past.errors, 0);
}

struct other {
	struct rig *rig;
	unsigned char *buf;
	int err;
	_Atomic bool done;
};

/* Works in the upper half of the device. */
static void *other_thread(void *arg)
{
	struct other *other = arg;
	struct lp_bdev *bdev = other->rig->bdev;
	int err = 0;
	for (uint64_t n = 0; n < 40 && err == 0; n++) {
		uint64_t at = SIZE / 2 + n * 3 * 65536;
		memset(other->buf, (int)n, 65536);
		err = lp_bdev_write_sync(bdev, other->buf, 65536, at, n % 2 == 0);
		if (err == 0)
			err = lp_bdev_flush_sync(bdev);
		memset(other->buf, 0xff, 65536);
		if (err == 0)
			err = lp_bdev_read_sync(bdev, other->buf, 65536, at);
		for (size_t i = 0; i < 65536 && err == 0; i++)
			err = other->buf[i] == n ? 0 : -EILSEQ;
	}
	other->err = err;
	other->done = true;
	return NULL;
}

static void test_blocking_calls_beside(void **state)
{
	struct rig *rig = rig_of(state);
	static struct flight flights[FLIGHT_CNT];
	struct other other = {.rig = rig, .buf = aligned_alloc(4096, 65536)};
	pthread_t thread;
	assert_non_null(other.buf);
	assert_int_equal(pthread_create(&thread, NULL, other_thread, &other), 0);
	do {
		lp_prng_fill(&rig->prng, rig->out, FLIGHT_CNT * 16384);
		fly(rig, LP_BDEV_WRITE, rig->out, flights);
		fly(rig, LP_BDEV_READ, rig->in, flights);
		assert_memory_equal(rig->in, rig->out, FLIGHT_CNT * 16384);
	} while (!other.done);
	assert_int_equal(pthread_join(thread, NULL), 0);
	lp_test_ok(other.err);
	/* Both ways see the same device. */
	lp_test_ok(run_op(rig, LP_BDEV_READ, rig->in, 65536, SIZE / 2 + 39 * UINT64_C(3) * 65536));
	assert_int_equal(rig->in[0], 39);
	lp_test_ok(lp_bdev_read_sync(rig->bdev, rig->in, 16384, 0));
	assert_memory_equal(rig->in, rig->out, 16384);
	struct lp_bdev_stats stats;
	lp_bdev_sync_stats(rig->bdev, &stats);
	assert_int_equal(stats.ops[LP_BDEV_WRITE], 20);
	assert_int_equal(stats.ops[LP_BDEV_WRITE_THROUGH], 20);
	assert_int_equal(stats.ops[LP_BDEV_FLUSH], 40);
	assert_int_equal(stats.bytes[LP_BDEV_READ], 40 * 65536 + 16384);
	assert_int_equal(stats.errors, 0);
	free(other.buf);
}

/* --- Breaches of the contract abort ------------------------------------------------------------
 */

enum breach {
	BREACH_NONE,
	BREACH_OFFSET,
	BREACH_LENGTH,
	BREACH_EMPTY,
	BREACH_BEYOND,
	BREACH_BUFFER,
	BREACH_SUM,
	BREACH_NO_IOV,
	BREACH_OPCODE,
	BREACH_DETACH,
	BREACH_CLOSE,
	BREACH_CNT
};

struct breaker {
	struct rig *rig;
	enum breach breach;
};

static void commit_breach(void *arg)
{
	const struct breaker *breaker = arg;
	struct rig *rig = breaker->rig;
	struct flight flight = {.op = {.complete = complete}};
	uint64_t block = rig->block;
	lp_bdev_op_prep(&flight.op, LP_BDEV_READ, rig->in, block, 0);
	switch (breaker->breach) {
	case BREACH_NONE:
	case BREACH_DETACH:
	case BREACH_CNT:
		break;
	case BREACH_OFFSET:
		flight.op.offset_bytes = 1;
		break;
	case BREACH_LENGTH:
		lp_bdev_op_prep(&flight.op, LP_BDEV_READ, rig->in, block - 1, 0);
		break;
	case BREACH_EMPTY:
		lp_bdev_op_prep(&flight.op, LP_BDEV_READ, rig->in, 0, 0);
		break;
	case BREACH_BEYOND:
		flight.op.offset_bytes = SIZE;
		break;
	case BREACH_BUFFER:
		flight.op.one.iov_base = rig->in + 1;
		break;
	case BREACH_SUM:
		flight.op.length_bytes = 2 * block;
		break;
	case BREACH_NO_IOV:
		flight.op.iov_cnt = 0;
		break;
	case BREACH_OPCODE:
		flight.op.opcode = LP_BDEV_OPCODE_CNT;
		break;
	case BREACH_CLOSE:
		lp_bdev_close(rig->bdev);
		return;
	}
	lp_bdev_submit(rig->chan, &flight.op);
	if (breaker->breach == BREACH_DETACH)
		lp_bdev_detach(rig->chan);
	_exit(0);
}

static void test_breaches(void **state)
{
	struct rig *rig = rig_of(state);
	for (int i = 0; i < BREACH_CNT; i++) {
		struct breaker breaker = {rig, (enum breach)i};
		assert_int_equal(lp_test_aborts(commit_breach, &breaker), i != BREACH_NONE);
	}
}

/* --- An image under a quota --------------------------------------------------------------------
 */

struct quota {
	struct lp_bdev bdev; /* first */
	struct lp_bdev_chan chan;
	int flush_result;
};

static struct quota *quota_of(struct lp_bdev *bdev)
{
	return LP_CONTAINER_OF(bdev, struct quota, bdev);
}

static int quota_result(struct lp_bdev *bdev, enum lp_bdev_opcode opcode)
{
	return opcode == LP_BDEV_FLUSH ? quota_of(bdev)->flush_result : -EDQUOT;
}

static void quota_close(struct lp_bdev *bdev)
{
	(void)bdev;
}

static int quota_attach(struct lp_bdev *bdev, struct lp_reactor *reactor,
			struct lp_bdev_chan **ret_chan)
{
	(void)reactor;
	*ret_chan = &quota_of(bdev)->chan;
	return 0;
}

static void quota_detach(struct lp_bdev_chan *chan)
{
	(void)chan;
}

static void quota_run(struct lp_task *task)
{
	struct lp_bdev_op *op = LP_CONTAINER_OF(task, struct lp_bdev_op, task);
	lpi_bdev_complete(op, quota_result(op->chan->bdev, op->opcode));
}

static void quota_submit(struct lp_bdev_chan *chan, struct lp_bdev_op *op)
{
	op->task = (struct lp_task){.run = quota_run};
	lp_task_queue(chan->reactor, &op->task);
}

static int quota_sync(struct lp_bdev *bdev, enum lp_bdev_opcode opcode, void *buf,
		      uint64_t length_bytes, uint64_t offset_bytes)
{
	(void)buf;
	(void)length_bytes;
	(void)offset_bytes;
	return quota_result(bdev, opcode);
}

static const struct lp_bdev_kind quota_kind = {.name = "quota",
					       .close = quota_close,
					       .attach = quota_attach,
					       .detach = quota_detach,
					       .submit = quota_submit,
					       .sync = quota_sync};

static const struct lp_bdev_caps quota_caps = {.size_bytes = SIZE,
					       .block_bytes = 4096,
					       .physical_bytes = 4096,
					       .atomic_write_bytes = 4096,
					       .volatile_cache = true,
					       .through_flushes = true,
					       .is_file = true};

static void check_quota(struct rig *rig)
{
	struct lp_bdev_failure failure;
	const enum lp_bdev_opcode writes[] = {LP_BDEV_WRITE, LP_BDEV_WRITE_THROUGH};
	for (size_t i = 0; i < LP_ARRAY_SIZE(writes); i++) {
		assert_int_equal(run_op(rig, writes[i], rig->out, 4096, 0), -ENOSPC);
		bool through = writes[i] == LP_BDEV_WRITE_THROUGH;
		assert_int_equal(lp_bdev_write_sync(rig->bdev, rig->out, 4096, 0, through),
				 -ENOSPC);
		assert_true(lp_bdev_last_failure(rig->bdev, &failure));
		assert_int_equal(failure.result, -ENOSPC);
		/* No flush has failed: the next frame of any shard is believed. */
		lp_test_ok(run_op(rig, LP_BDEV_FLUSH, NULL, 0, 0));
		lp_test_ok(lp_bdev_flush_sync(rig->bdev));
	}
	/* One that says so has failed as any other (rule L7). */
	quota_of(rig->bdev)->flush_result = -EDQUOT;
	assert_int_equal(run_op(rig, LP_BDEV_FLUSH, NULL, 0, 0), -EDQUOT);
	quota_of(rig->bdev)->flush_result = 0;
	assert_int_equal(run_op(rig, LP_BDEV_FLUSH, NULL, 0, 0), -EIO);
}

/* A quota of the host is the end of its space as well, and fails nothing (P6, rule S7). */
static void test_quota(void **state)
{
	(void)state;
	static const struct kind kind = {.name = "quota", .simulated = true};
	_Alignas(4096) static unsigned char block[4096];
	struct quota quota = {.flush_result = 0};
	struct rig rig = {.kind = &kind, .bdev = &quota.bdev, .block = 4096, .out = block};
	lpi_bdev_init(rig.bdev, &quota_kind, "quota");
	quota.bdev.caps = quota_caps;
	lp_test_ok(start_reactor(&rig));
	lp_test_ok(lp_bdev_attach(rig.bdev, rig.reactor, &rig.chan));
	check_quota(&rig);
	lp_bdev_detach(rig.chan);
	lp_bdev_close(rig.bdev);
	lp_reactor_free(rig.reactor);
}

/* --- Units ------------------------------------------------------------------------------------ */

/* A label is one block, and so is much else: a device that takes only more at a time is refused
 * when it is opened, with a reason, and not found out about by an assertion. */
static void test_units(void **state)
{
	(void)state;
	static const struct {
		uint32_t block_bytes;
		bool can_be;
	} cases[] = {{512, true},  {1024, true},  {4096, true},   {0, false},
		     {520, false}, {8192, false}, {16384, false}, {65536, false}};
	for (size_t i = 0; i < LP_ARRAY_SIZE(cases); i++)
		assert_int_equal(lpi_bdev_can_be(cases[i].block_bytes), cases[i].can_be);
	assert_non_null(strstr(lp_devices_advice(-ENOTSUP), "more than 4096 bytes"));
}

/* --- All tests for all kinds -------------------------------------------------------------------
 */

static const struct {
	const char *name;
	CMUnitTestFunction run;
} bodies[] = {
	{"caps", test_caps},
	{"new_space_is_zero", test_new_space_is_zero},
	{"sizes", test_sizes},
	{"overwrite", test_overwrite},
	{"discard", test_discard},
	{"short", test_short},
	{"vectors", test_vectors},
	{"scattered", test_scattered},
	{"many_in_flight", test_many_in_flight},
	{"past_channels_count", test_past_channels_count},
	{"blocking_calls_beside", test_blocking_calls_beside},
	{"breaches", test_breaches},
};

#define TEST_CNT (LP_ARRAY_SIZE(kinds) * LP_ARRAY_SIZE(bodies) + 2)

int main(void)
{
	static char names[TEST_CNT][64];
	static struct CMUnitTest tests[TEST_CNT];
	size_t cnt = 0;
	for (size_t k = 0; k < LP_ARRAY_SIZE(kinds); k++)
		for (size_t b = 0; b < LP_ARRAY_SIZE(bodies); b++, cnt++) {
			(void)snprintf(names[cnt], sizeof(names[cnt]), "test_%s_%s", kinds[k].name,
				       bodies[b].name);
			/* cmocka's type drops the const; setup() only reads it. */
			tests[cnt] = (struct CMUnitTest){names[cnt], bodies[b].run, setup, teardown,
							 (void *)(uintptr_t)&kinds[k]};
		}
	tests[cnt++] = (struct CMUnitTest)cmocka_unit_test(test_quota);
	tests[cnt++] = (struct CMUnitTest)cmocka_unit_test(test_units);
	LP_ASSERT(cnt == TEST_CNT);
	return lp_test_main(tests, "store/device/bdev");
}
