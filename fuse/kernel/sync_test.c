/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: an fsync waits for changes ordered before it and for little else; many share a commit; it
 * asks no shard that has no work for it; and data lost with a device is reported once to each open
 * file (rules M1, L7).
 * Method: a machine with two channels on a simulated device, whose writes fail when told to, or
 * whose power is cut. */
#include <errno.h>
#include <linux/falloc.h>

#include "fuse/model/machine_test.h"

#define THREADS 16u
#define ROUNDS  20u

static struct lpi_machine *machine_new(uint64_t seed)
{
	return lpi_machine_boot(lpi_ns_sim_mkfs(seed));
}

static int fsync_by(struct lpi_machine *machine, uint32_t kernel_idx, struct lpi_opened file)
{
	return lpi_kernel_fsync(&machine->kernels[kernel_idx], FUSE_FSYNC, file.node, file.fh);
}

static int write_to(struct lpi_machine *machine, struct lpi_opened file)
{
	return lpi_kernel_write(&machine->kernels[0], file.node, 0, "some bytes", 10);
}

static struct lpi_opened open_by(struct lpi_machine *machine, uint32_t kernel_idx, uint64_t node)
{
	return (struct lpi_opened){node,
				   lpi_kernel_open(&machine->kernels[kernel_idx], FUSE_OPEN, node)};
}

/* A directory on each shard, and a file in it. */
static struct lpi_opened make_file(struct lpi_machine *machine, const char *dir_name)
{
	uint64_t dir = lpi_kernel_mkdir(&machine->kernels[0], 1, dir_name);
	return lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, dir, "file");
}

/* --- Reports of failures ---------------------------------------------------------------------- */

static void break_log(struct lpi_machine *machine, uint64_t node)
{
	lpi_ns_sim_break_log(machine->sim, lp_ino_shard((struct lp_ino){node}));
}

/* A write is accepted, and then lost. */
static void lose_write(struct lpi_machine *machine, struct lpi_opened file)
{
	break_log(machine, file.node);
	lp_test_ok(write_to(machine, file));
	lpi_machine_idle(machine, LP_NS_PER_S);
	assert_int_equal(write_to(machine, file), -EROFS);
}

/* Rule L7: reported once to each handle that was open, on any channel; also to a file opened before
 * the first report. */
static void test_told_once(void **state)
{
	struct lpi_machine *machine = machine_new(1);
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	struct lpi_opened other = make_file(machine, "b");
	struct lpi_opened again = open_by(machine, 1, file.node);
	uint64_t root = lpi_kernel_open(&machine->kernels[0], FUSE_OPENDIR, 1);
	lp_test_ok(write_to(machine, file));
	lp_test_ok(fsync_by(machine, 0, file));
	lose_write(machine, file);
	struct lpi_opened early = open_by(machine, 0, other.node);
	assert_int_equal(fsync_by(machine, 0, file), -EIO);
	struct lpi_opened late = open_by(machine, 1, file.node);
	lp_test_ok(fsync_by(machine, 0, file));
	lp_test_ok(fsync_by(machine, 1, file));
	const struct lpi_opened untold[] = {again, other, early};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(untold); i++) {
		assert_int_equal(fsync_by(machine, 1, untold[i]), -EIO);
		lp_test_ok(fsync_by(machine, i % 2, untold[i]));
	}
	lp_test_ok(fsync_by(machine, 0, file));
	assert_int_equal(lpi_kernel_fsync(&machine->kernels[0], FUSE_FSYNCDIR, 1, root), -EIO);
	/* For a directory, each time. */
	assert_int_equal(lpi_kernel_fsync(&machine->kernels[0], FUSE_FSYNCDIR, 1, root), -EIO);
	lp_test_ok(fsync_by(machine, 0, late));
	/* The other shard goes on. When it fails as well, all handles are told of it. */
	lp_test_ok(write_to(machine, other));
	lp_test_ok(fsync_by(machine, 0, other));
	lose_write(machine, other);
	assert_int_equal(fsync_by(machine, 1, late), -EIO);
	assert_int_equal(fsync_by(machine, 0, other), -EIO);
	lp_test_ok(fsync_by(machine, 1, other));
	lp_test_ok(fsync_by(machine, 1, late));
	lp_sim_rules_clear(lpi_machine_device(machine));
	assert_true(lpi_machine_stop(machine) < 0);
	lpi_machine_free(machine);
}

/* An fsync that waits when the device fails says so, too. */
static void test_told_while_waiting(void **state)
{
	struct lpi_machine *machine = machine_new(2);
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	lp_test_ok(fsync_by(machine, 0, file));
	break_log(machine, file.node);
	lp_test_ok(write_to(machine, file));
	assert_int_equal(fsync_by(machine, 1, file), -EIO);
	lp_test_ok(fsync_by(machine, 0, file));
	lp_sim_rules_clear(lpi_machine_device(machine));
	assert_true(lpi_machine_stop(machine) < 0);
	lpi_machine_free(machine);
}

/* Each durable write reports its own failure, also beside another one by the same handle. */
static void test_writes_told(void **state)
{
	struct lpi_machine *machine = machine_new(7);
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct fuse_out_header header;
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	lp_test_ok(fsync_by(machine, 0, file));
	break_log(machine, file.node);
	for (uint32_t i = 0; i < 2; i++) {
		const struct fuse_write_in in = {.fh = file.fh,
						 .offset = UINT64_C(4096) * i,
						 .size = 10,
						 .flags = O_DIRECT | O_DSYNC};
		lpi_kernel_begin_write_as(kernel, file.node, &in, "some bytes");
		lpi_kernel_send(kernel);
	}
	for (uint32_t i = 0; i < 2; i++) {
		while (!lpi_kernel_take(kernel, &header))
			kernel->turn(kernel->arg);
		assert_true(header.error == -EIO || header.error == -EROFS);
	}
	lp_sim_rules_clear(lpi_machine_device(machine));
	assert_true(lpi_machine_stop(machine) < 0);
	lpi_machine_free(machine);
}

/* --- Reverts of writes ------------------------------------------------------------------------ */

static uint64_t size_of(struct lpi_machine *machine, struct lpi_opened file)
{
	return lpi_machine_attrs(machine, file.node).size_bytes;
}

static int cut_by(struct lpi_machine *machine, struct lpi_opened file, uint64_t size)
{
	const struct fuse_setattr_in in = {
		.valid = FATTR_SIZE | FATTR_FH | FATTR_LOCKOWNER, .fh = file.fh, .size = size};
	struct lpi_kernel *kernel = &machine->kernels[0];
	lpi_kernel_begin(kernel, FUSE_SETATTR, file.node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

static void is_cut(struct lpi_machine *machine, struct lpi_opened file, uint64_t size)
{
	lp_test_ok(cut_by(machine, file, size));
	assert_int_equal(size_of(machine, file), size);
}

/* The size does not change, and the answer says so, for a program that wants it. */
static void is_not_cut(struct lpi_machine *machine, struct lpi_opened file, uint64_t size)
{
	uint64_t before = size_of(machine, file);
	assert_int_equal(cut_by(machine, file, size), -EINTR);
	assert_int_equal(size_of(machine, file), before);
}

/* A write that is too large fails as one without space does. */
static void fail_write(struct lpi_machine *machine, struct lpi_opened file, uint32_t flags)
{
	assert_true(lpi_kernel_write_as(&machine->kernels[0], file, flags, LP_STORE_FILE_MAX,
					"some bytes", 10) < 0);
}

/* The kernel reverts a direct write that failed beyond the end by setting the size that it
 * remembers: 10, while others have made it 15 without its notice. Their data stays (mount F8). Any
 * other new size is a program's. */
static void test_taken_back(void **state)
{
	/* The kernel may cache: otherwise it reverts no writes. */
	struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(9), 0, LP_NS_PER_S);
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	struct lpi_opened again = open_by(machine, 1, file.node);
	lp_test_ok(lpi_kernel_write(&machine->kernels[0], file.node, 0, "0123456789ABCDE", 15));
	fail_write(machine, file, O_DIRECT);
	is_not_cut(machine, file, 10);
	is_cut(machine, file, 14);
	/* Another handle's size is not a revert, nor is one after a write that did not fail. */
	fail_write(machine, file, O_DIRECT);
	is_cut(machine, again, 13);
	is_not_cut(machine, file, 10);
	lp_test_ok(lpi_kernel_write_as(&machine->kernels[0], file, O_DIRECT, 0, "0123456789", 10));
	is_cut(machine, file, 10);
	/* The kernel does not revert a failed write without O_DIRECT. */
	fail_write(machine, file, 0);
	is_cut(machine, file, 5);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* By the other door. */
static void resize(struct lpi_machine *machine, struct lpi_opened file, uint64_t size)
{
	struct lp_change change = {.type = LP_CHANGE_TRUNCATE, .ino = {file.node}};
	struct lp_ns_op op = {.opcode = LP_NS_STORE};
	change.data.offset = size;
	op.store.ino.nr = file.node;
	op.store.op.opcode = LP_STORE_TXN;
	op.store.op.txn.changes = &change;
	op.store.op.txn.change_cnt = 1;
	lp_test_ok(lpi_ns_sim_do(machine->sim, &op));
	assert_int_equal(size_of(machine, file), size);
}

/* A write that the device fails: its data is large enough to go there at once. */
static void fail_write_at(struct lpi_machine *machine, struct lpi_opened file, uint64_t offset)
{
	static uint8_t bytes[UINT32_C(128) << 10];
	const struct lp_disk_label *label = &machine->sim->devices.label[LP_ROLE_DATA];
	struct lp_extent log = lp_label_log_area(label, machine->sim->shard_cnt - 1);
	const struct lp_sim_rule rule = {.fault = LP_SIM_EIO,
					 .opcode_mask = LP_SIM_OP(LP_BDEV_WRITE) |
							LP_SIM_OP(LP_BDEV_WRITE_THROUGH),
					 .offset_bytes = (log.block + log.cnt) * LP_BLOCK_BYTES};
	(void)lp_sim_rule_add(lpi_machine_device(machine), &rule);
	assert_int_equal(lpi_kernel_write_as(&machine->kernels[0], file, O_DIRECT, offset, bytes,
					     sizeof(bytes)),
			 -EIO);
	lp_sim_rules_clear(lpi_machine_device(machine));
}

/* If others have made the file longer, a write that failed within it is still beyond the end that
 * the kernel remembers, and is reverted. If they have made it shorter, one beyond its end is not. A
 * new size is then a program's, which is told to ask once more. */
static void test_taken_back_elsewhere(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(17), 0, LP_NS_PER_S);
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	lp_test_ok(lpi_kernel_write(&machine->kernels[0], file.node, 0, "0123456789", 10));
	resize(machine, file, UINT64_C(1) << 20);
	fail_write_at(machine, file, 8192);
	is_not_cut(machine, file, 10);
	is_cut(machine, file, UINT64_C(1) << 19);
	resize(machine, file, 100000);
	fail_write(machine, file, O_DIRECT);
	is_not_cut(machine, file, 50000);
	is_cut(machine, file, 50000);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* --- Appends ---------------------------------------------------------------------------------- */

/* Two requests of one append, the later first, to a file of 10 bytes. */
static void append_back_to_front(struct lpi_machine *machine, struct lpi_opened file,
				 uint32_t flags, const char *wanted)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	struct lpi_kernel *kernel = &machine->kernels[0];
	lp_test_ok(lpi_kernel_truncate(kernel, file.node, 0));
	lp_test_ok(lpi_kernel_write(kernel, file.node, 0, "0123456789", 10));
	lp_test_ok(lpi_kernel_write_as(kernel, file, O_APPEND | flags, 13, "def", 3));
	lp_test_ok(lpi_kernel_write_as(kernel, file, O_APPEND | flags, 10, "abc", 3));
	uint32_t len = lpi_kernel_read(kernel, FUSE_READ, file.node, 0, bytes);
	assert_int_equal(len, strlen(wanted));
	assert_memory_equal(bytes, wanted, len);
}

/* Appends to the end that the store knows come in order (mount F6). Direct ones do not, nor those
 * by FOPEN_DIRECT_IO after the kernel could no longer be told of changes. */
static void test_append(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(10), 0, LP_NS_PER_S);
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	assert_int_equal(file.fh & LPI_FUSE_HANDLE_DIRECT, 0);
	append_back_to_front(machine, file, 0, "0123456789defabc");
	append_back_to_front(machine, file, O_DIRECT, "0123456789abcdef");
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		atomic_store(&machine->channels[i]->is_mute, true);
	struct lpi_opened mute = open_by(machine, 0, file.node);
	assert_int_not_equal(mute.fh & LPI_FUSE_HANDLE_DIRECT, 0);
	append_back_to_front(machine, mute, 0, "0123456789abcdef");
	append_back_to_front(machine, file, 0, "0123456789defabc");
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
	/* With FOPEN_DIRECT_IO from the start on, the kernel waits for each. */
	machine = machine_new(11);
	file = make_file(machine, "a");
	assert_int_not_equal(file.fh & LPI_FUSE_HANDLE_DIRECT, 0);
	append_back_to_front(machine, file, 0, "0123456789defabc");
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* --- Costs ------------------------------------------------------------------------------------ */

static uint64_t log_writes(struct lpi_machine *machine)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++) {
		struct lp_store_stats stats;
		lp_store_read_stats(machine->sim->hand[i].store, &stats);
		cnt += stats.log_writes;
	}
	return cnt;
}

static uint64_t remote_calls(struct lpi_machine *machine)
{
	uint64_t cnt = 0;
	for (uint32_t i = 0; i < LPI_NS_SIM_SHARDS; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(machine->sim->ns[i], &stats);
		cnt += stats.remote_calls;
	}
	return cnt;
}

/* One program: one write of the log for each change. A shard without changes is not asked. */
static void test_alone(void **state)
{
	struct lpi_machine *machine = machine_new(3);
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	lp_test_ok(fsync_by(machine, 0, file));
	uint64_t writes = log_writes(machine);
	uint64_t calls = remote_calls(machine);
	for (uint32_t i = 0; i < ROUNDS; i++) {
		lp_test_ok(write_to(machine, file));
		lp_test_ok(fsync_by(machine, 0, file));
	}
	assert_int_equal(log_writes(machine) - writes, ROUNDS);
	assert_int_equal(lp_ino_shard((struct lp_ino){file.node}), 0);
	assert_int_equal(remote_calls(machine) - calls, 0);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* A write that is durable when it is answered: one write of the log, and the sync after it has no
 * work. */
static void test_durable_write(void **state)
{
	static const uint32_t flags[] = {O_DSYNC, O_SYNC, O_DIRECT | O_DSYNC};
	struct lpi_machine *machine = machine_new(8);
	(void)state;
	struct lpi_opened file = make_file(machine, "a");
	lp_test_ok(fsync_by(machine, 0, file));
	for (uint32_t i = 0; i < ROUNDS; i++) {
		uint64_t writes = log_writes(machine);
		lp_test_ok(lpi_kernel_write_as(&machine->kernels[0], file,
					       flags[i % LP_ARRAY_SIZE(flags)], 0, "some bytes",
					       10));
		assert_int_equal(log_writes(machine) - writes, 1);
		lp_test_ok(fsync_by(machine, 0, file));
		assert_int_equal(log_writes(machine) - writes, 1);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* Programs that write and fsync, each its own file; all ask one kernel. */
struct crowd {
	struct lpi_machine *machine;
	struct lpi_opened files[THREADS];
	uint64_t unique[THREADS];
	bool is_syncing[THREADS];
	uint32_t synced_cnt;
};

static void crowd_send(struct crowd *crowd, uint32_t i)
{
	struct lpi_kernel *kernel = &crowd->machine->kernels[0];
	const struct lpi_opened *file = &crowd->files[i];
	if (crowd->is_syncing[i])
		lpi_kernel_begin_fsync(kernel, FUSE_FSYNC, file->node, file->fh);
	else
		lpi_kernel_begin_write(kernel, file->node, crowd->synced_cnt * UINT64_C(10),
				       "some bytes", 10);
	crowd->unique[i] = kernel->unique;
	lpi_kernel_send(kernel);
}

static struct crowd *crowd_new(uint64_t seed)
{
	static const char *const names[] = {"a", "b", "c"};
	struct crowd *crowd = calloc(1, sizeof(*crowd));
	assert_non_null(crowd);
	crowd->machine = machine_new(seed);
	struct lpi_kernel *kernel = &crowd->machine->kernels[0];
	for (uint32_t i = 0; i < THREADS; i++) {
		char name[8];
		uint64_t dir = lpi_kernel_lookup(kernel, 1, names[i % 3]);
		if (dir == 0)
			dir = lpi_kernel_mkdir(kernel, 1, names[i % 3]);
		(void)snprintf(name, sizeof(name), "%u", i);
		crowd->files[i] = lpi_kernel_create(kernel, FUSE_CREATE, dir, name);
	}
	lp_test_ok(fsync_by(crowd->machine, 0, crowd->files[0]));
	return crowd;
}

static void crowd_free(struct crowd *crowd)
{
	lp_test_ok(lpi_machine_stop(crowd->machine));
	lpi_machine_free(crowd->machine);
	free(crowd);
}

/* The next answer: the index of its program. */
static uint32_t crowd_take(struct crowd *crowd)
{
	struct lpi_kernel *kernel = &crowd->machine->kernels[0];
	struct fuse_out_header header;
	uint32_t i = 0;
	while (!lpi_kernel_take(kernel, &header))
		kernel->turn(kernel->arg);
	lp_test_ok(header.error);
	while (crowd->unique[i] != header.unique)
		assert_true(++i < THREADS);
	crowd->unique[i] = 0;
	return i;
}

/* Many share the writes of the log: there are three logs, and 16 programs. */
static void test_shared(void **state)
{
	struct crowd *crowd = crowd_new(4);
	uint32_t under_way = THREADS;
	(void)state;
	uint64_t writes = log_writes(crowd->machine);
	for (uint32_t i = 0; i < THREADS; i++)
		crowd_send(crowd, i);
	while (under_way > 0) {
		uint32_t i = crowd_take(crowd);
		crowd->synced_cnt += crowd->is_syncing[i] ? 1 : 0;
		crowd->is_syncing[i] = !crowd->is_syncing[i];
		if (crowd->synced_cnt < THREADS * ROUNDS)
			crowd_send(crowd, i);
		else
			under_way--;
	}
	writes = log_writes(crowd->machine) - writes;
	print_message("%u fsyncs of %u programs: %llu writes of 3 logs\n", crowd->synced_cnt,
		      THREADS, (unsigned long long)writes);
	assert_true(2 * writes <= crowd->synced_cnt);
	crowd_free(crowd);
}

/* A program that waits for an fsync waits for two rounds at most, while all others write without
 * end. A round waits for the frames that the log has in flight, and for the frame that collects. */
static void test_not_starved(void **state)
{
	struct crowd *crowd = crowd_new(5);
	uint64_t most = 0;
	(void)state;
	for (uint32_t i = 0; i < THREADS; i++)
		crowd_send(crowd, i);
	for (uint32_t round = 0; round < ROUNDS;) {
		uint32_t i = crowd_take(crowd);
		if (i != 0) {
			crowd_send(crowd, i);
			continue;
		}
		uint64_t now = log_writes(crowd->machine);
		if (crowd->is_syncing[0]) {
			most = LP_MAX(most, now - crowd->synced_cnt);
			round++;
		}
		crowd->is_syncing[0] = !crowd->is_syncing[0];
		crowd->synced_cnt = (uint32_t)now;
		crowd_send(crowd, 0);
	}
	for (uint32_t i = 0; i < THREADS; i++)
		(void)crowd_take(crowd);
	print_message("at most %llu writes of 3 logs beside one fsync\n", (unsigned long long)most);
	assert_in_range(most, 1, LPI_NS_SIM_SHARDS * 8);
	crowd_free(crowd);
}

/* --- Writes under way ------------------------------------------------------------------------- */

/* A sync that ran beside a write does not cover one after it. Some turns after the write was sent,
 * another file is synced, then this one, and the power fails. */
static void sync_beside(uint32_t turns)
{
	struct lpi_machine *machine = machine_new(6);
	struct lpi_kernel *kernel = &machine->kernels[0];
	static uint8_t bytes[LPI_KERNEL_BYTES];
	struct fuse_out_header header;
	struct lpi_opened file = make_file(machine, "a");
	struct lpi_opened other = make_file(machine, "b");
	lp_test_ok(fsync_by(machine, 0, file));
	memset(bytes, 'x', 70000);
	lpi_kernel_begin_write(kernel, file.node, 0, bytes, 70000);
	lpi_kernel_send(kernel);
	for (uint32_t i = 0; i < turns; i++)
		kernel->turn(kernel->arg);
	lp_test_ok(fsync_by(machine, 1, other));
	while (!lpi_kernel_take(kernel, &header))
		kernel->turn(kernel->arg);
	lp_test_ok(header.error);
	lp_test_ok(fsync_by(machine, 1, file));
	struct lp_sim *sim = lpi_machine_device(machine);
	struct lp_bdev *left = NULL;
	lp_test_ok(lp_sim_image_at(sim, lp_sim_event_count(sim) - 1, NULL, turns, &left));
	struct lpi_machine *found = lpi_machine_boot(left);
	assert_int_equal(lpi_kernel_read(&found->kernels[0], FUSE_READ, file.node, 0, bytes),
			 70000);
	lp_test_ok(lpi_machine_stop(found));
	lpi_machine_free(found);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* Rule M1. */
static void test_beside(void **state)
{
	(void)state;
	for (uint32_t turns = 0; turns < (LP_ASSERT_SLOW_ON ? 6 : 16); turns++)
		sync_beside(turns);
}

/* --- Durable by the descriptor's flags -------------------------------------------------------- */

#define COPY_BYTES (UINT64_C(64) << 10)
#define FAR_BYTES  (UINT64_C(24) << 20) /* more than one step of fallocate is */

/* A file with durable content. */
static struct lpi_opened make_source(struct lpi_machine *machine, const char *dir_name)
{
	static uint8_t bytes[COPY_BYTES];
	struct lpi_opened file = make_file(machine, dir_name);
	memset(bytes, 'x', sizeof(bytes));
	lp_test_ok(lpi_kernel_write(&machine->kernels[0], file.node, 0, bytes, sizeof(bytes)));
	lp_test_ok(fsync_by(machine, 0, file));
	return file;
}

static int copy_to(struct lpi_machine *machine, struct lpi_opened from, struct lpi_opened to)
{
	const struct fuse_copy_file_range_in in = {
		.fh_in = from.fh, .nodeid_out = to.node, .fh_out = to.fh, .len = COPY_BYTES};
	struct lpi_kernel *kernel = &machine->kernels[0];
	lpi_kernel_begin(kernel, FUSE_COPY_FILE_RANGE, from.node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

static int allocate(struct lpi_machine *machine, struct lpi_opened file, uint32_t mode,
		    uint64_t offset, uint64_t length)
{
	const struct fuse_fallocate_in in = {
		.fh = file.fh, .offset = offset, .length = length, .mode = mode};
	struct lpi_kernel *kernel = &machine->kernels[0];
	lpi_kernel_begin(kernel, FUSE_FALLOCATE, file.node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

/* The power fails. Returns the machine that boots with the data that is left. */
static struct lpi_machine *cut_power(struct lpi_machine *machine, uint64_t seed)
{
	struct lp_sim *sim = lpi_machine_device(machine);
	struct lp_bdev *left = NULL;
	lp_test_ok(lp_sim_image_at(sim, lp_sim_event_count(sim) - 1, NULL, seed, &left));
	return lpi_machine_boot(left);
}

static void end_both(struct lpi_machine *machine, struct lpi_machine *found)
{
	lp_test_ok(lpi_machine_stop(found));
	lpi_machine_free(found);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* Makes a file in the directory of that name. Only its answers are durable. */
static struct lpi_opened make_durable(struct lpi_machine *machine, const char *dir_name)
{
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lpi_opened file = make_file(machine, dir_name);
	file.fh = lpi_kernel_open_as(kernel, FUSE_OPEN, file.node, O_WRONLY | O_DSYNC);
	return file;
}

/* The file's attributes; fails if its name has gone. */
static struct lp_attrs left_of(struct lpi_machine *found, const char *dir_name)
{
	uint64_t dir = lpi_kernel_lookup(&found->kernels[0], 1, dir_name);
	assert_int_not_equal(dir, 0);
	uint64_t node = lpi_kernel_lookup(&found->kernels[0], dir, "file");
	assert_int_not_equal(node, 0);
	return lpi_machine_attrs(found, node);
}

/* A copy by reference, on one shard, and one of data, between two. */
static void test_durable_copy(void **state)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	(void)state;
	for (uint64_t seed = 0; seed < 2; seed++) {
		struct lpi_machine *machine = machine_new(12);
		struct lpi_opened from = make_source(machine, "a");
		struct lpi_opened to = make_durable(machine, "b");
		if (seed == 1) {
			uint64_t dir = lpi_kernel_lookup(&machine->kernels[0], 1, "a");
			to = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, dir, "to");
			to.fh = lpi_kernel_open_as(&machine->kernels[0], FUSE_OPEN, to.node,
						   O_WRONLY | O_SYNC);
		}
		assert_int_equal(lp_ino_shard((struct lp_ino){from.node}) ==
					 lp_ino_shard((struct lp_ino){to.node}),
				 seed == 1);
		lp_test_ok(copy_to(machine, from, to));
		struct lpi_machine *found = cut_power(machine, seed);
		uint32_t len = lpi_kernel_read(&found->kernels[0], FUSE_READ, to.node, 0, bytes);
		assert_true(len > 0);
		assert_int_equal(bytes[len - 1], 'x');
		end_both(machine, found);
	}
}

/* The steps of a range, with each kind of last step: the file is longer, it has space, it has none.
 */
static void test_durable_range(void **state)
{
	static uint8_t bytes[LPI_KERNEL_BYTES];
	(void)state;
	struct lpi_machine *machine = machine_new(13);
	struct lpi_opened longer = make_durable(machine, "a");
	lp_test_ok(allocate(machine, longer, 0, 0, FAR_BYTES));
	struct lpi_machine *found = cut_power(machine, 1);
	assert_int_equal(left_of(found, "a").size_bytes, FAR_BYTES);
	end_both(machine, found);
	machine = machine_new(14);
	struct lpi_opened kept = make_durable(machine, "a");
	lp_test_ok(allocate(machine, kept, FALLOC_FL_KEEP_SIZE, 0, FAR_BYTES));
	found = cut_power(machine, 2);
	assert_int_equal(left_of(found, "a").blocks, FAR_BYTES / 4096);
	end_both(machine, found);
	machine = machine_new(15);
	struct lpi_opened punched = make_source(machine, "a");
	punched.fh = lpi_kernel_open_as(&machine->kernels[0], FUSE_OPEN, punched.node,
					O_WRONLY | O_DSYNC);
	lp_test_ok(allocate(machine, punched, FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE, 0,
			    COPY_BYTES));
	found = cut_power(machine, 3);
	assert_int_equal(lpi_kernel_read(&found->kernels[0], FUSE_READ, punched.node, 0, bytes),
			 COPY_BYTES);
	assert_int_equal(bytes[0], 0);
	assert_int_equal(left_of(found, "a").blocks, 0);
	end_both(machine, found);
}

/* A durable change that is lost is reported once to each handle that has the file open and asks. */
static void test_ranges_told(void **state)
{
	(void)state;
	struct lpi_machine *machine = machine_new(16);
	struct lpi_opened from = make_source(machine, "a");
	struct lpi_opened to = make_durable(machine, "b");
	struct lpi_opened range = make_durable(machine, "c");
	lp_test_ok(fsync_by(machine, 0, to));
	break_log(machine, to.node);
	assert_true(copy_to(machine, from, to) < 0);
	assert_true(copy_to(machine, from, to) < 0);
	break_log(machine, range.node);
	assert_true(allocate(machine, range, 0, 0, COPY_BYTES) < 0);
	lp_sim_rules_clear(lpi_machine_device(machine));
	assert_true(lpi_machine_stop(machine) < 0);
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told_once),     cmocka_unit_test(test_told_while_waiting),
		cmocka_unit_test(test_writes_told),   cmocka_unit_test(test_taken_back),
		cmocka_unit_test(test_durable_write), cmocka_unit_test(test_alone),
		cmocka_unit_test(test_shared),        cmocka_unit_test(test_not_starved),
		cmocka_unit_test(test_beside),        cmocka_unit_test(test_append),
		cmocka_unit_test(test_durable_copy),  cmocka_unit_test(test_durable_range),
		cmocka_unit_test(test_ranges_told),   cmocka_unit_test(test_taken_back_elsewhere),
	};
	return lp_test_main(tests, "fuse/kernel/sync");
}
