/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: a write that finds no space is tried in smaller parts, and no refused size is tried again.
 * On a full store each try takes its time, and all writers of a file wait for it. Method: a store
 * that refuses each write over a limit, or of one range, and notes all writes. Writes and copies of
 * many sizes, with all limits. */
#include "fuse/model/machine_test.h"

#include "store/store_kinds.h"

#define PAGE      4096u
#define FILE_MAX  (150u << 10) /* what a message of the test's kernel has room for */
#define NOTES_MAX 256u
#define NO_OFFSET UINT64_MAX

struct note {
	uint64_t offset;
	uint64_t length;
	bool is_refused;
};

/* In front of all stores. */
static struct {
	const struct lpi_store_calls *real;
	struct lpi_store_calls calls;
	struct lp_reactor *reactor;
	struct lp_task task;
	struct lp_store_op *refused; /* completed by the task */
	uint64_t limit;              /* longer writes are refused; 0: no limit */
	uint64_t from;               /* writes that begin here or later are refused, too */
	struct note notes[NOTES_MAX];
	uint32_t note_cnt;
} gate;

static void complete_refused(struct lp_task *task)
{
	struct lp_store_op *op = gate.refused;
	(void)task;
	gate.refused = NULL;
	op->result = -ENOSPC;
	op->complete(op);
}

static const struct lp_change *write_of(const struct lp_store_op *op)
{
	for (uint32_t i = 0; op->opcode == LP_STORE_TXN && i < op->txn.change_cnt; i++) {
		if (op->txn.changes[i].type == LP_CHANGE_WRITE)
			return &op->txn.changes[i];
	}
	return NULL;
}

static void submit(struct lp_store *store, struct lp_store_op *op)
{
	const struct lp_change *write = write_of(op);
	if (gate.limit == 0 || write == NULL) {
		gate.real->submit(store, op);
		return;
	}
	struct note note = {.offset = write->data.offset, .length = write->data.length};
	note.is_refused = note.length > gate.limit || note.offset >= gate.from;
	assert_true(gate.note_cnt < NOTES_MAX);
	gate.notes[gate.note_cnt++] = note;
	if (!note.is_refused) {
		gate.real->submit(store, op);
		return;
	}
	assert_null(gate.refused);
	gate.refused = op;
	lp_task_queue(gate.reactor, &gate.task);
}

static struct lpi_machine *machine_new(void)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(3));
	memset(&gate, 0, sizeof(gate));
	gate.reactor = machine->sim->reactor;
	gate.task.run = complete_refused;
	gate.real = machine->sim->hand[0].store->calls;
	gate.calls = *gate.real;
	gate.calls.submit = submit;
	for (uint32_t i = 0; i < machine->sim->shard_cnt; i++)
		machine->sim->hand[i].store->calls = &gate.calls;
	return machine;
}

static void machine_free(struct lpi_machine *machine)
{
	for (uint32_t i = 0; i < machine->sim->shard_cnt; i++)
		machine->sim->hand[i].store->calls = gate.real;
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

static void close_gate(uint64_t limit, uint64_t from)
{
	gate.limit = limit;
	gate.from = from;
	gate.note_cnt = 0;
}

/* The next try after a refusal begins at the same place, and is smaller. */
static void expect_smaller(void)
{
	for (uint32_t i = 1; i < gate.note_cnt; i++) {
		const struct note *before = &gate.notes[i - 1];
		if (!before->is_refused)
			continue;
		assert_int_equal(gate.notes[i].offset, before->offset);
		assert_true(gate.notes[i].length < before->length);
	}
}

static uint8_t content[FILE_MAX];
static uint8_t found[LPI_KERNEL_BYTES];

static void expect_content(struct lpi_kernel *kernel, uint64_t node, uint64_t offset, uint32_t size)
{
	gate.limit = 0;
	uint32_t len = lpi_kernel_read(kernel, FUSE_READ, node, offset, found);
	assert_true(len >= size);
	assert_memory_equal(found, content, size);
}

/* So much is taken at once; all of it comes to be written. */
static void write_below(struct lpi_kernel *kernel, uint64_t node, uint32_t offset, uint32_t size,
			uint64_t limit)
{
	struct lp_prng prng;
	struct fuse_write_out out;
	lp_prng_init(&prng, offset + size + limit);
	lp_prng_fill(&prng, content, size);
	close_gate(limit, NO_OFFSET);
	lp_test_ok(lpi_kernel_write(kernel, node, offset, content, size));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	assert_int_equal(out.size, size);
	expect_smaller();
	expect_content(kernel, node, offset, size);
}

static const uint32_t sizes[] = {
	LP_STORE_KEPT_MAX + 1, 5 * PAGE,  17 * PAGE,       20 * PAGE + 700,    64 << 10,
	(64 << 10) + 1,        128 << 10, (128 << 10) + 9, FILE_MAX - 2 * PAGE};
static const uint32_t offsets[] = {0, PAGE, 100, PAGE + 4095};

static void test_parts(void **state)
{
	static const uint64_t limits[] = {LP_STORE_KEPT_MAX, 17 << 10, 64 << 10};
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "a").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		for (uint32_t k = 0; k < LP_ARRAY_SIZE(offsets); k++) {
			for (uint32_t m = 0; m < LP_ARRAY_SIZE(limits); m++)
				write_below(kernel, node, offsets[k], sizes[i], limits[m]);
		}
	}
	lpi_kernel_release(kernel, FUSE_RELEASE, node);
	machine_free(machine);
}

/* All writes are refused: three tries, of all sizes that there are. */
static void test_no_space(void **state)
{
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "a").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		for (uint32_t k = 0; k < LP_ARRAY_SIZE(offsets); k++) {
			close_gate(1, 0);
			lp_test_err(-ENOSPC,
				    lpi_kernel_write(kernel, node, offsets[k], content, sizes[i]));
			assert_in_range(gate.note_cnt, 2, 3);
			expect_smaller();
		}
	}
	/* So little is not tried again. */
	close_gate(1, 0);
	lp_test_err(-ENOSPC, lpi_kernel_write(kernel, node, 0, content, LP_STORE_KEPT_MAX));
	assert_int_equal(gate.note_cnt, 1);
	lpi_kernel_release(kernel, FUSE_RELEASE, node);
	machine_free(machine);
}

/* The last part is shorter than others. If it is refused, it is not tried again under a smaller
 * size. The data before it has been written, and the program gets its length. */
static void test_last_part(void **state)
{
	static const uint32_t lasts[] = {PAGE, 3 * PAGE, 10 * PAGE};
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct fuse_write_out out;
	(void)state;
	uint64_t node = lpi_kernel_create(kernel, FUSE_CREATE, 1, "a").node;
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(lasts); i++) {
		uint32_t size = (64u << 10) + lasts[i];
		close_gate(64 << 10, 64 << 10);
		lp_test_ok(lpi_kernel_write(kernel, node, 0, content, size));
		memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
		assert_int_equal(out.size, 64 << 10);
		expect_smaller();
		expect_content(kernel, node, 0, out.size);
	}
	lpi_kernel_release(kernel, FUSE_RELEASE, node);
	machine_free(machine);
}

static int copy(struct lpi_kernel *kernel, uint64_t from, uint64_t to, uint64_t off_out,
		uint64_t length)
{
	const struct fuse_copy_file_range_in in = {
		.off_in = 0, .nodeid_out = to, .off_out = off_out, .len = length};
	lpi_kernel_begin(kernel, FUSE_COPY_FILE_RANGE, from);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

/* A copy answers its length, and the kernel asks for the rest. It ends where the source does,
 * wherever it was to end. */
static void copy_below(struct lpi_kernel *kernel, const uint64_t *nodes, uint32_t size,
		       uint64_t length)
{
	struct fuse_write_out out;
	close_gate(LP_STORE_KEPT_MAX, NO_OFFSET);
	lp_test_ok(copy(kernel, nodes[0], nodes[1], 100, length));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	assert_in_range(out.size, 1, LP_STORE_KEPT_MAX);
	assert_true(gate.note_cnt > 0 && gate.notes[0].length <= size);
	expect_smaller();
	expect_content(kernel, nodes[1], 100, out.size);
	close_gate(1, 0);
	lp_test_err(-ENOSPC, copy(kernel, nodes[0], nodes[1], 100, length));
	assert_in_range(gate.note_cnt, 2, 3);
	expect_smaller();
	gate.limit = 0;
}

static void test_copies(void **state)
{
	struct lpi_machine *machine = machine_new();
	struct lpi_kernel *kernel = &machine->kernels[0];
	struct lp_prng prng;
	(void)state;
	lp_prng_init(&prng, 5);
	lp_prng_fill(&prng, content, sizeof(content));
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(sizes); i++) {
		uint64_t nodes[2];
		for (uint32_t k = 0; k < 2; k++) {
			const char name[] = {(char)('a' + i), (char)('a' + k), 0};
			nodes[k] = lpi_kernel_create(kernel, FUSE_CREATE, 1, name).node;
		}
		lp_test_ok(lpi_kernel_write(kernel, nodes[0], 0, content, sizes[i]));
		copy_below(kernel, nodes, sizes[i], sizes[i]);
		copy_below(kernel, nodes, sizes[i], UINT64_C(1) << 30);
		for (uint32_t k = 0; k < 2; k++)
			lpi_kernel_release(kernel, FUSE_RELEASE, nodes[k]);
	}
	machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_no_space),
		cmocka_unit_test(test_last_part),
		cmocka_unit_test(test_copies),
	};
	return lp_test_main(tests, "fuse/ops/ops_data");
}
