/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a change of data, or of the owner, takes the privileges away and changes nothing else:
 * neither a mode that is set through the other door at that moment, nor the data. The privileges go
 * together with the change or not at all. Method: a machine with two channels; the namespace gets
 * another operation at each turn of the change. */
#include "fuse/ops/change.h"

#include "fuse/model/machine_test.h"

#define TURNS 40u

static void set_capability(struct lpi_machine *machine, uint64_t node)
{
	struct lp_change change = {.type = LP_CHANGE_XATTR_SET, .ino = {node}};
	struct lp_ns_op op = {.opcode = LP_NS_STORE};
	change.named.name = lpi_ns_sim_bytes(LPI_FUSE_CAPABILITY);
	change.named.value = lpi_ns_sim_bytes("all");
	op.store.ino.nr = node;
	op.store.op.opcode = LP_STORE_TXN;
	op.store.op.txn.changes = &change;
	op.store.op.txn.change_cnt = 1;
	lp_test_ok(lpi_ns_sim_do(machine->sim, &op));
}

static bool has_capability(struct lpi_machine *machine, uint64_t node)
{
	struct lp_ns_op op = {.opcode = LP_NS_STORE};
	uint8_t value[8];
	op.store.ino.nr = node;
	op.store.op.opcode = LP_STORE_GET;
	op.store.op.get.space = LP_STORE_XATTRS;
	op.store.op.get.ino.nr = node;
	op.store.op.get.name = lpi_ns_sim_bytes(LPI_FUSE_CAPABILITY);
	op.store.op.get.buf = value;
	op.store.op.get.buf_len = sizeof(value);
	int r = lpi_ns_sim_do(machine->sim, &op);
	assert_true(r == -ENODATA || r >= 0);
	return r >= 0;
}

static void begin_write(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_write_in in = {.size = 10, .write_flags = FUSE_WRITE_KILL_SUIDGID};
	lpi_kernel_begin_write_as(kernel, node, &in, "some bytes");
}

static void begin_cut(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_setattr_in in = {.valid = FATTR_SIZE | FATTR_KILL_SUIDGID};
	lpi_kernel_begin(kernel, FUSE_SETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
}

static void begin_chown(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_setattr_in in = {
		.valid = FATTR_UID | FATTR_GID | FATTR_KILL_SUIDGID, .uid = 5, .gid = 0};
	lpi_kernel_begin(kernel, FUSE_SETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
}

typedef void begin_fn(struct lpi_kernel *kernel, uint64_t node);

static begin_fn *const ways[] = {begin_write, begin_cut, begin_chown};

static void test_killed(void **state)
{
	static const struct {
		uint16_t before;
		uint16_t after;
	} modes[] = {{0644, 0644}, {04755, 0755}, {06755, 0755}, {02755, 0755}, {07645, 03645}};
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ways) * LP_ARRAY_SIZE(modes); i++) {
		uint32_t mode_idx = i / LP_ARRAY_SIZE(ways);
		lpi_machine_chmod(machine, node, modes[mode_idx].before);
		set_capability(machine, node);
		ways[i % LP_ARRAY_SIZE(ways)](kernel, node);
		lp_test_ok(lpi_kernel_ask(kernel));
		assert_false(has_capability(machine, node));
		assert_int_equal(lpi_machine_attrs(machine, node).mode, modes[mode_idx].after);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* Sets the caller of the request. */
static void begun_by(struct lpi_kernel *kernel, uint32_t uid, uint32_t gid)
{
	struct fuse_in_header header;
	memcpy(&header, kernel->out, sizeof(header));
	header.uid = uid;
	header.gid = gid;
	memcpy(kernel->out, &header, sizeof(header));
}

static void begin_fallocate(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_fallocate_in in = {.length = 10};
	lpi_kernel_begin(kernel, FUSE_FALLOCATE, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
}

/* If the group may not execute the file, a stranger's change takes the group's bit as well. A
 * caller in the file's group, which is 0, does not, nor does root with a new owner. */
static void test_stranger(void **state)
{
	static const struct {
		begin_fn *begin;
		uint32_t uid;
		uint32_t gid;
		uint16_t before;
		uint16_t after;
	} cases[] = {
		{begin_write, 7, 7, 06666, 0666},      {begin_write, 7, 7, 02767, 0767},
		{begin_write, 7, 0, 06666, 02666},     {begin_write, 7, 0, 06676, 0676},
		{begin_cut, 7, 7, 02666, 0666},        {begin_cut, 7, 0, 02666, 02666},
		{begin_fallocate, 7, 7, 06666, 0666},  {begin_fallocate, 7, 0, 06666, 02666},
		{begin_fallocate, 0, 7, 06666, 06666}, {begin_chown, 7, 7, 06666, 0666},
		{begin_chown, 7, 0, 06666, 02666},     {begin_chown, 0, 7, 06666, 02666},
		{begin_chown, 0, 7, 06676, 0676},
	};
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(5));
	struct lpi_kernel *kernel = &machine->kernels[0];
	char name[16];
	(void)state;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(cases); i++) {
		(void)snprintf(name, sizeof(name), "file%u", i);
		uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, name).node;
		lpi_machine_chmod(machine, node, cases[i].before);
		cases[i].begin(kernel, node);
		begun_by(kernel, cases[i].uid, cases[i].gid);
		lp_test_ok(lpi_kernel_ask(kernel));
		assert_int_equal(lpi_machine_attrs(machine, node).mode, cases[i].after);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* The change runs, and another mode is set some turns later, or earlier. */
static void change_beside(struct lpi_machine *machine, uint64_t node, uint32_t turns, bool is_first)
{
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lpi_ns_sim_asked native = {.op = lpi_machine_chmod_op(node, 0604)};
	struct fuse_out_header header;
	native.op.complete = lpi_ns_sim_answered;
	if (is_first)
		lpi_kernel_send(kernel);
	else
		lp_ns_submit(machine->sim->ns[0], &native.op);
	for (uint32_t i = 0; i < turns; i++)
		kernel->turn(kernel->arg);
	if (is_first)
		lp_ns_submit(machine->sim->ns[0], &native.op);
	else
		lpi_kernel_send(kernel);
	while (!lpi_kernel_take(kernel, &header))
		kernel->turn(kernel->arg);
	while (!native.is_done)
		kernel->turn(kernel->arg);
	lp_test_ok(header.error);
	lp_test_ok(native.op.result);
}

/* Whenever the other mode is set, before or after the change, it is the file's mode in the end. */
static void test_mode_beside(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	(void)state;
	uint64_t node = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, "file").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ways) * 2 * TURNS; i++) {
		uint32_t round = i / LP_ARRAY_SIZE(ways);
		lpi_machine_chmod(machine, node, 04755);
		ways[i % LP_ARRAY_SIZE(ways)](&machine->kernels[0], node);
		change_beside(machine, node, round / 2, round % 2 == 0);
		assert_int_equal(lpi_machine_attrs(machine, node).mode, 0604);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* The power fails at each event of a chown: a file without the capability has the new owner. */
static void test_capability_and_owner(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(3));
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lp_sim *sim = lpi_machine_device(machine);
	uint32_t lost_cnt = 0;
	(void)state;
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file");
	set_capability(machine, file.node);
	lp_test_ok(lpi_kernel_fsync(kernel, FUSE_FSYNC, file.node, file.fh));
	uint64_t first = lp_sim_event_count(sim);
	begin_chown(kernel, file.node);
	lp_test_ok(lpi_kernel_ask(kernel));
	lp_test_ok(lpi_kernel_fsync(kernel, FUSE_FSYNC, file.node, file.fh));
	uint64_t end = lp_sim_event_count(sim);
	assert_true(end > first);
	for (uint64_t event = first; event < end; event++) {
		struct lp_bdev *left = NULL;
		lp_test_ok(lp_sim_image_at(sim, event, NULL, event, &left));
		struct lpi_machine *found = lpi_machine_boot(left);
		bool is_lost = !has_capability(found, file.node);
		assert_int_equal(lpi_machine_attrs(found, file.node).uid, is_lost ? 5 : 0);
		lost_cnt += is_lost ? 1 : 0;
		lp_test_ok(lpi_machine_stop(found));
		lpi_machine_free(found);
	}
	assert_true(lost_cnt > 0);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* --- Longer ----------------------------------------------------------------------------------- */

#define WRITERS 12u

struct writer {
	struct lpi_ns_sim_asked asked;
	struct lp_change change;
};

static void write_natively(struct lpi_machine *machine, struct writer *writer, uint64_t node)
{
	writer->change = (struct lp_change){.type = LP_CHANGE_XATTR_SET, .ino = {node}};
	writer->change.named.name = lpi_ns_sim_bytes("user.a");
	writer->change.named.value = lpi_ns_sim_bytes("1");
	writer->asked = (struct lpi_ns_sim_asked){.op = {.opcode = LP_NS_STORE}};
	struct lp_ns_op *op = &writer->asked.op;
	op->ack = LP_ACK_ORDERED;
	op->complete = lpi_ns_sim_answered;
	op->store.ino.nr = node;
	op->store.op.opcode = LP_STORE_TXN;
	op->store.op.txn.changes = &writer->change;
	op->store.op.txn.change_cnt = 1;
	op->store.op.txn.ack = LP_ACK_ORDERED;
	lp_ns_submit(machine->sim->ns[0], op);
}

/* A fallocate ends, and makes the file longer, although others change it without end. */
static void test_longer(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(4));
	struct lpi_kernel *kernel = &machine->kernels[0];
	const struct fuse_fallocate_in in = {.length = 10000};
	static struct writer writers[WRITERS];
	struct fuse_out_header header;
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file").node;
	lpi_kernel_begin(kernel, FUSE_FALLOCATE, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lpi_kernel_send(kernel);
	for (uint32_t i = 0; i < WRITERS; i++)
		write_natively(machine, &writers[i], node);
	while (!lpi_kernel_take(kernel, &header)) {
		for (uint32_t i = 0; i < WRITERS; i++) {
			if (writers[i].asked.is_done)
				write_natively(machine, &writers[i], node);
		}
		kernel->turn(kernel->arg);
	}
	lp_test_ok(header.error);
	assert_int_equal(lpi_machine_attrs(machine, node).size_bytes, 10000);
	for (uint32_t i = 0; i < WRITERS; i++) {
		while (!writers[i].asked.is_done)
			kernel->turn(kernel->arg);
	}
	/* The longer size stays. */
	lp_test_ok(lpi_kernel_truncate(kernel, node, 20000));
	lpi_kernel_begin(kernel, FUSE_FALLOCATE, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
	assert_int_equal(lpi_machine_attrs(machine, node).size_bytes, 20000);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_killed),      cmocka_unit_test(test_stranger),
		cmocka_unit_test(test_mode_beside), cmocka_unit_test(test_capability_and_owner),
		cmocka_unit_test(test_longer),
	};
	return lp_test_main(tests, "fuse/ops/change");
}
