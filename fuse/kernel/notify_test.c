/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the kernel is told of changes by others than the mount, in its own protocol, before those
 * changes are answered (rule M2). No thread that serves requests does that (rule M3: here, without
 * threads, between two turns). What the kernel may cache follows from that.
 * Method: a machine with two channels, and operations of its namespaces beside them. */
#include <errno.h>
#include <signal.h>

#include "base/crc32c.h"
#include "fuse/model/machine_test.h"

#define DAY_S 86400u

/* An operation as the other door submits it. */
struct native {
	struct lpi_machine *machine;
	struct lp_ns_op op;
	bool is_done;
};

static void done(struct lp_ns_op *op)
{
	LP_CONTAINER_OF(op, struct native, op)->is_done = true;
}

static void submit(struct lpi_machine *machine, struct native *native)
{
	native->machine = machine;
	native->op.complete = done;
	native->is_done = false;
	lp_ns_submit(machine->sim->ns[0], &native->op);
}

static void wait_for(struct native *native)
{
	for (uint32_t i = 0; !native->is_done; i++) {
		assert_true(i < LPI_NS_SIM_TURNS_MAX);
		(void)lpi_ns_sim_turn(native->machine->sim);
	}
	lp_test_ok(native->op.result);
}

static void act(struct lpi_machine *machine, struct native *native)
{
	submit(machine, native);
	wait_for(native);
}

static struct native make_of(uint64_t dir, const char *name)
{
	struct native native = {.op = {.opcode = LP_NS_MAKE}};
	native.op.make.dir.nr = dir;
	native.op.make.name = (struct lp_bytes){name, (uint32_t)strlen(name)};
	native.op.make.type = LP_INODE_TYPE_FILE;
	native.op.make.mode = 0644;
	return native;
}

static struct native chmod_of(uint64_t node)
{
	struct native native = {.op = {.opcode = LP_NS_SET}};
	native.op.set.ino.nr = node;
	native.op.set.attrs.mode = 0600;
	native.op.set.mask = LP_ATTR_MODE;
	return native;
}

/* --- Messages to the kernel ------------------------------------------------------------------- */

static void expect_code(struct lpi_kernel *kernel, int code)
{
	struct fuse_out_header header;
	assert_true(lpi_kernel_take(kernel, &header));
	assert_int_equal(header.unique, 0);
	assert_int_equal(header.error, code);
}

static void expect_name(struct lpi_kernel *kernel, uint64_t dir, const char *name)
{
	struct fuse_notify_inval_entry_out out;
	size_t len = strlen(name);
	expect_code(kernel, FUSE_NOTIFY_INVAL_ENTRY);
	const uint8_t *said = lpi_kernel_answer(kernel, sizeof(out) + len + 1);
	memcpy(&out, said, sizeof(out));
	assert_int_equal(lpi_kernel_answer_len(kernel), sizeof(out) + len + 1);
	assert_int_equal(out.parent, dir);
	assert_int_equal(out.namelen, len);
	assert_memory_equal(said + sizeof(out), name, len + 1);
}

static void expect_inode(struct lpi_kernel *kernel, uint64_t node, int64_t offset, int64_t length)
{
	struct fuse_notify_inval_inode_out out;
	expect_code(kernel, FUSE_NOTIFY_INVAL_INODE);
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	assert_int_equal(lpi_kernel_answer_len(kernel), sizeof(out));
	assert_int_equal(out.ino, node);
	assert_int_equal(out.off, offset);
	assert_int_equal(out.len, length);
}

static void expect_silence(struct lpi_kernel *kernel)
{
	struct fuse_out_header header;
	assert_false(lpi_kernel_take(kernel, &header));
}

static void end(struct lpi_machine *machine)
{
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static void write_native(struct lpi_machine *machine, uint64_t node, uint64_t offset)
{
	struct lp_buf *buf = lp_buf_new(machine->sim->bufs, 100);
	assert_non_null(buf);
	memset(buf->data, 'x', 100);
	const struct lp_seg seg = {.buf = buf, .len = 100};
	uint32_t crc = lp_crc32c(0, buf->data, 100);
	struct lp_change change = {.type = LP_CHANGE_WRITE, .ino = {node}};
	change.data.offset = offset;
	change.data.length = 100;
	change.data.payload =
		(struct lp_payload){.segs = &seg, .crcs = &crc, .seg_cnt = 1, .crc_cnt = 1};
	struct native native = {.op = {.opcode = LP_NS_STORE}};
	native.op.store.ino.nr = node;
	native.op.store.op.opcode = LP_STORE_TXN;
	native.op.store.op.txn.changes = &change;
	native.op.store.op.txn.change_cnt = 1;
	act(machine, &native);
	lp_buf_put(buf);
}

/* All notices come before the answer. */
static void test_said(void **state)
{
	struct lpi_machine *machine =
		lpi_machine_boot_as(lpi_ns_sim_mkfs(1), 0, DAY_S * LP_NS_PER_S);
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, dir, "file");
	/* The mount's own changes are not told. */
	lp_test_ok(lpi_kernel_write(kernel, file.node, 0, "some bytes", 10));
	lp_test_ok(lpi_kernel_rename(kernel, dir, "file", dir, "renamed"));
	expect_silence(kernel);
	struct native native = make_of(dir, "made");
	act(machine, &native);
	expect_name(kernel, dir, "made");
	expect_inode(kernel, dir, -1, 0);
	expect_silence(kernel);
	native = chmod_of(file.node);
	act(machine, &native);
	expect_inode(kernel, file.node, -1, 0);
	write_native(machine, file.node, 5000);
	expect_inode(kernel, file.node, 5000, 100);
	expect_silence(kernel);
	end(machine);
}

/* The kernel is told of changes to everything that it may cache, and of nothing else. Where it may
 * cache nothing, it bypasses its cache, and is told only of data, which it may have mapped. */
static void test_believed(void **state)
{
	(void)state;
	for (uint64_t day = 0; day < 2; day++) {
		struct lpi_machine *machine =
			lpi_machine_boot_as(lpi_ns_sim_mkfs(2), 0, day * DAY_S * LP_NS_PER_S);
		struct lpi_kernel *kernel = &machine->kernels[0];
		const struct fuse_open_in in = {.flags = O_RDONLY};
		struct fuse_open_out open;
		struct fuse_entry_out entry;
		struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file");
		lpi_kernel_begin(kernel, FUSE_OPEN, file.node);
		lpi_kernel_add(kernel, &in, sizeof(in));
		lp_test_ok(lpi_kernel_ask(kernel));
		memcpy(&open, lpi_kernel_answer(kernel, sizeof(open)), sizeof(open));
		assert_int_equal(open.open_flags, day == 1 ? FOPEN_KEEP_CACHE : FOPEN_DIRECT_IO);
		lpi_kernel_begin(kernel, FUSE_LOOKUP, 1);
		lpi_kernel_add_name(kernel, "none");
		assert_int_equal(lpi_kernel_ask(kernel), day == 1 ? 0 : -ENOENT);
		if (day == 1) {
			memcpy(&entry, lpi_kernel_answer(kernel, sizeof(entry)), sizeof(entry));
			assert_int_equal(entry.nodeid, 0);
			assert_int_equal(entry.entry_valid, DAY_S);
		}
		struct native native = chmod_of(file.node);
		act(machine, &native);
		if (day == 1)
			expect_inode(kernel, file.node, -1, 0);
		expect_silence(kernel);
		struct native made = make_of(1, "made");
		act(machine, &made);
		if (day == 1) {
			expect_name(kernel, 1, "made");
			expect_inode(kernel, 1, -1, 0);
		}
		expect_silence(kernel);
		write_native(machine, file.node, 5000);
		expect_inode(kernel, file.node, 5000, 100);
		expect_silence(kernel);
		end(machine);
	}
}

/* Attributes that the kernel takes for the newest, whatever it was told meanwhile, may not be
 * cached. */
static void test_taken_unseen(void **state)
{
	struct lpi_machine *machine =
		lpi_machine_boot_as(lpi_ns_sim_mkfs(5), 0, DAY_S * LP_NS_PER_S);
	struct lpi_kernel *kernel = &machine->kernels[0];
	const struct fuse_setattr_in set = {.valid = FATTR_MODE, .mode = S_IFREG | 0600};
	const struct fuse_getattr_in get = {.getattr_flags = 0};
	struct fuse_attr_out attr;
	struct fuse_entry_out entry;
	(void)state;
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file");
	(void)lpi_kernel_mkdir(kernel, 1, "dir");
	memcpy(&entry, lpi_kernel_answer(kernel, sizeof(entry)), sizeof(entry));
	assert_int_equal(entry.entry_valid, DAY_S);
	assert_int_equal(entry.attr_valid, 0);
	assert_int_equal(entry.attr_valid_nsec, 10 * LP_NS_PER_MS);
	lpi_kernel_begin(kernel, FUSE_SETATTR, file.node);
	lpi_kernel_add(kernel, &set, sizeof(set));
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&attr, lpi_kernel_answer(kernel, sizeof(attr)), sizeof(attr));
	assert_int_equal(attr.attr_valid + attr.attr_valid_nsec, 0);
	lp_test_ok(lpi_kernel_link(kernel, file.node, 1, "link"));
	memcpy(&entry, lpi_kernel_answer(kernel, sizeof(entry)), sizeof(entry));
	assert_int_equal(entry.entry_valid, DAY_S);
	assert_int_equal(entry.attr_valid + entry.attr_valid_nsec, 0);
	lpi_kernel_begin(kernel, FUSE_GETATTR, file.node);
	lpi_kernel_add(kernel, &get, sizeof(get));
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&attr, lpi_kernel_answer(kernel, sizeof(attr)), sizeof(attr));
	assert_int_equal(attr.attr_valid, DAY_S);
	end(machine);
}

/* --- Answers of the kernel -------------------------------------------------------------------- */

static void test_results(void **state)
{
	(void)state;
	assert_int_equal(lpi_fuse_told_result(true, 0), 0);
	assert_int_equal(lpi_fuse_told_result(true, -ENOENT), 0);
	assert_int_equal(lpi_fuse_told_result(true, -ENOTDIR), 0);
	assert_int_equal(lpi_fuse_told_result(false, 0), 0);
	/* The kernel may get to know the inode. */
	assert_int_equal(lpi_fuse_told_result(false, -ENOENT), -EAGAIN);
	assert_int_equal(lpi_fuse_told_result(true, -ENOMEM), -EAGAIN);
	assert_int_equal(lpi_fuse_told_result(false, -EBADF), -EAGAIN);
	assert_int_equal(lpi_fuse_told_result(false, -ENOTCONN), 0);
	assert_int_equal(lpi_fuse_told_result(false, -ENOSYS), -ENOSYS);
}

/* Looks up known names; the answers may not be cached. */
static void expect_no_belief(struct lpi_kernel *kernel, const char *name, uint64_t node)
{
	struct fuse_entry_out out;
	lpi_kernel_begin(kernel, FUSE_LOOKUP, 1);
	lpi_kernel_add_name(kernel, name);
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	assert_int_equal(out.nodeid, node);
	assert_int_equal(out.entry_valid + out.attr_valid, 0);
	assert_int_equal(out.entry_valid_nsec + out.attr_valid_nsec, 0);
}

/* After the kernel could not be told of a change, it may cache nothing any more, on any channel. */
static void test_mute(void **state)
{
	struct lpi_machine *machine =
		lpi_machine_boot_as(lpi_ns_sim_mkfs(3), 0, DAY_S * LP_NS_PER_S);
	struct lpi_kernel *kernels = machine->kernels;
	(void)state;
	struct lpi_opened file = lpi_kernel_create(&kernels[0], FUSE_CREATE, 1, "file");
	assert_int_equal(shutdown(kernels[0].fd, SHUT_RD), 0);
	struct native native = chmod_of(file.node);
	act(machine, &native);
	expect_no_belief(&kernels[1], "file", file.node);
	end(machine);
}

/* The same if memory lacks to tell it. */
static void test_untold(void **state)
{
	static void *taken[LPI_NOTICES_LIMIT_MAX + 1];
	struct lpi_machine *machine =
		lpi_machine_boot_as(lpi_ns_sim_mkfs(7), 0, DAY_S * LP_NS_PER_S);
	struct lpi_kernel *kernels = machine->kernels;
	struct lp_ns *ns = machine->sim->ns[0];
	struct lp_ns_stats stats;
	uint32_t cnt = 0;
	(void)state;
	struct lpi_opened file = lpi_kernel_create(&kernels[0], FUSE_CREATE, 1, "file");
	lp_test_ok(lp_pool_resize(ns->notices, LPI_NOTICES_LIMIT_MAX));
	while ((taken[cnt] = lp_pool_get(ns->notices)) != NULL)
		assert_true(++cnt < LP_ARRAY_SIZE(taken));
	struct native native = chmod_of(file.node);
	act(machine, &native);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		expect_silence(&kernels[i]);
		expect_no_belief(&kernels[i], "file", file.node);
	}
	lp_ns_read_stats(ns, &stats);
	assert_int_equal(stats.untold, 1);
	while (cnt > 0)
		lp_pool_put(ns->notices, taken[--cnt]);
	end(machine);
}

/* Another process has unmounted: the kernel is not told any more, and changes do not wait for it.
 */
static void test_gone(void **state)
{
	struct lpi_machine *machine =
		lpi_machine_boot_as(lpi_ns_sim_mkfs(6), 0, DAY_S * LP_NS_PER_S);
	struct lpi_kernel *kernels = machine->kernels;
	(void)state;
	struct lpi_opened file = lpi_kernel_create(&kernels[0], FUSE_CREATE, 1, "file");
	lpi_fuse_channel_gone(machine->channels[0]);
	uint64_t from_ns = machine->sim->clock.now_ns;
	struct native natives[] = {make_of(1, "made"), chmod_of(file.node), chmod_of(1)};
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(natives); i++)
		act(machine, &natives[i]);
	assert_true(machine->sim->clock.now_ns - from_ns < LP_NS_PER_S);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		expect_silence(&kernels[i]);
	end(machine);
}

/* The mount ends while a change waits for its notice. The change is answered, and later ones do not
 * wait. */
static void test_stopped(void **state)
{
	struct lpi_machine *machine =
		lpi_machine_boot_as(lpi_ns_sim_mkfs(4), 0, DAY_S * LP_NS_PER_S);
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	struct native early = make_of(dir, "early");
	struct native late = make_of(dir, "late");
	submit(machine, &early);
	while (machine->channels[0]->notice_cnt == 0)
		(void)lpi_ns_sim_turn(machine->sim);
	assert_false(early.is_done);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		lp_fuse_channel_stop(machine->channels[i], lpi_machine_stopped, machine);
	submit(machine, &late);
	while (machine->stopped_cnt < LPI_MACHINE_CHANNELS)
		(void)lpi_ns_sim_turn(machine->sim);
	wait_for(&early);
	wait_for(&late);
	expect_name(kernel, dir, "early");
	expect_inode(kernel, dir, -1, 0);
	expect_silence(kernel);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		lp_fuse_channel_free(machine->channels[i]);
		assert_int_equal(close(machine->kernels[i].fd), 0);
	}
	lpi_ns_sim_stop(machine->sim);
	lp_test_ok(lpi_ns_sim_close(machine->sim, false));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_said),         cmocka_unit_test(test_believed),
		cmocka_unit_test(test_taken_unseen), cmocka_unit_test(test_results),
		cmocka_unit_test(test_mute),         cmocka_unit_test(test_untold),
		cmocka_unit_test(test_gone),         cmocka_unit_test(test_stopped)};
	(void)signal(SIGPIPE, SIG_IGN);
	return lp_test_main(tests, "fuse/kernel/notify");
}
