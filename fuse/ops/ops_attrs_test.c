/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: the available space in df leaves out the blocks kept for the index and for cuts of shared
 * blocks, because objects cannot have them (P6). The kernel may believe a file's number of blocks
 * only when it changes no more by itself. It may not believe the mode (rule M5) while another
 * user's write may take bits of it. Method: a machine with two channels, whose stores and device
 * tell what they keep, and free cut-off blocks step by step. */
#include "fuse/model/machine_test.h"

#define PAGE        UINT64_C(4096)
#define LEAF_BYTES  (UINT64_C(256) << 10) /* what one record of the map tells of */
#define CUT_PAGES   UINT64_C(2000)
#define BELIEVED_NS (86400 * LP_NS_PER_S)
#define ASKS_MAX    100000u

static struct fuse_kstatfs statfs_by(struct lpi_machine *machine, uint32_t kernel_idx)
{
	struct lpi_kernel *kernel = &machine->kernels[kernel_idx];
	struct fuse_statfs_out out;
	lpi_kernel_begin(kernel, FUSE_STATFS, 1);
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.st;
}

static void test_available(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lp_chunks *chunks = machine->sim->devices.chunks[LP_ROLE_DATA];
	uint64_t free_blocks = 0;
	uint64_t kept_blocks = 0;
	(void)state;
	lp_chunks_set_files_reserve(chunks, 1);
	uint64_t dir = lpi_kernel_mkdir(&machine->kernels[0], 1, "dir");
	uint64_t node = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, dir, "file").node;
	lp_test_ok(lpi_kernel_write(&machine->kernels[0], node, 0, "some bytes", 10));
	/* Each channel has one of the stores. */
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		struct lp_store_stats stats;
		lp_store_read_stats(machine->sim->hand[i].store, &stats);
		free_blocks += stats.free_blocks;
		kept_blocks += stats.kept_blocks;
	}
	uint64_t chunk_blocks = lp_chunks_chunk_blocks(chunks);
	uint64_t free_cnt = lp_chunks_free_cnt(chunks);
	assert_true(kept_blocks > 0 && kept_blocks < free_blocks);
	assert_true(free_cnt > 1);
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		struct fuse_kstatfs st = statfs_by(machine, i);
		assert_int_equal(st.bfree, free_blocks + free_cnt * chunk_blocks);
		assert_int_equal(st.bavail, st.bfree - kept_blocks - chunk_blocks);
		assert_true(st.blocks >= st.bfree);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* --- Frees under way -------------------------------------------------------------------------- */

/* The only file of a directory. */
struct cut_file {
	struct lpi_kernel *kernel;
	uint64_t dir;
	uint64_t dir_fh;
	uint64_t node;
};

/* The file's blocks in an answer, and whether the kernel may believe them. */
struct said {
	uint64_t blocks;
	bool is_believed;
};

static struct said take_attrs(struct lpi_kernel *kernel)
{
	struct fuse_attr_out out;
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return (struct said){out.attr.blocks, out.attr_valid > 0 || out.attr_valid_nsec > 0};
}

static struct said said_by(const struct fuse_entry_out *out)
{
	return (struct said){out->attr.blocks, out->attr_valid > 0 || out->attr_valid_nsec > 0};
}

static struct said take_entry(struct lpi_kernel *kernel)
{
	struct fuse_entry_out out;
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return said_by(&out);
}

static struct said by_getattr(const struct cut_file *file)
{
	const struct fuse_getattr_in in = {.getattr_flags = 0};
	lpi_kernel_begin(file->kernel, FUSE_GETATTR, file->node);
	lpi_kernel_add(file->kernel, &in, sizeof(in));
	return take_attrs(file->kernel);
}

static struct said set_attrs(const struct cut_file *file, const struct fuse_setattr_in *in)
{
	lpi_kernel_begin(file->kernel, FUSE_SETATTR, file->node);
	lpi_kernel_add(file->kernel, in, sizeof(*in));
	return take_attrs(file->kernel);
}

static struct said by_setattr(const struct cut_file *file)
{
	return set_attrs(file, &(struct fuse_setattr_in){.valid = FATTR_MTIME, .mtime = 5});
}

static struct said by_lookup(const struct cut_file *file)
{
	lpi_kernel_begin(file->kernel, FUSE_LOOKUP, file->dir);
	lpi_kernel_add_name(file->kernel, "file");
	return take_entry(file->kernel);
}

static struct said by_link(const struct cut_file *file)
{
	const struct fuse_link_in in = {.oldnodeid = file->node};
	lpi_kernel_begin(file->kernel, FUSE_LINK, file->dir);
	lpi_kernel_add(file->kernel, &in, sizeof(in));
	lpi_kernel_add_name(file->kernel, "link");
	struct said said = take_entry(file->kernel);
	lp_test_ok(lpi_kernel_remove(file->kernel, FUSE_UNLINK, file->dir, "link"));
	return said;
}

/* As the kernel from 6.6 on asks. */
static struct said by_statx(const struct cut_file *file)
{
	const struct lp_fuse_statx_in in = {.fh = 0};
	struct {
		uint64_t attr_valid;
		uint32_t attr_valid_nsec;
		uint32_t flags;
		uint64_t spare[2];
		struct statx stat;
	} out;
	lpi_kernel_begin(file->kernel, LP_FUSE_STATX, file->node);
	lpi_kernel_add(file->kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(file->kernel));
	memcpy(&out, lpi_kernel_answer(file->kernel, sizeof(out)), sizeof(out));
	return (struct said){out.stat.stx_blocks, out.attr_valid > 0 || out.attr_valid_nsec > 0};
}

static struct said by_readdirplus(const struct cut_file *file)
{
	const struct fuse_read_in in = {.fh = file->dir_fh, .size = 4096};
	struct fuse_direntplus out;
	lpi_kernel_begin(file->kernel, FUSE_READDIRPLUS, file->dir);
	lpi_kernel_add(file->kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(file->kernel));
	const uint8_t *answer = lpi_kernel_answer(file->kernel, sizeof(out));
	uint32_t at = 0;
	do {
		assert_true(at + sizeof(out) <= lpi_kernel_answer_len(file->kernel));
		memcpy(&out, answer + at, sizeof(out));
		at += (uint32_t)FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + out.dirent.namelen);
	} while (out.dirent.namelen != strlen("file")); /* behind "." and ".." */
	return said_by(&out.entry_out);
}

/* Asks in one way until all blocks are freed; no answer before may be believed. */
static void cut_and_ask(struct lpi_machine *machine, const struct cut_file *file,
			struct said (*ask)(const struct cut_file *file))
{
	uint32_t early_cnt = 0;
	for (uint64_t i = 0; i < CUT_PAGES; i++) {
		const struct fuse_fallocate_in in = {.offset = i * LEAF_BYTES, .length = PAGE};
		lpi_kernel_begin(file->kernel, FUSE_FALLOCATE, file->node);
		lpi_kernel_add(file->kernel, &in, sizeof(in));
		lp_test_ok(lpi_kernel_ask(file->kernel));
	}
	struct said said = by_getattr(file);
	assert_int_equal(said.blocks, CUT_PAGES * PAGE / 512);
	assert_true(said.is_believed);
	said = set_attrs(file, &(struct fuse_setattr_in){.valid = FATTR_SIZE, .size = 0});
	for (uint32_t i = 0; said.blocks > 0; i++) {
		assert_true(i < ASKS_MAX);
		assert_false(said.is_believed);
		said = ask(file);
		early_cnt += said.blocks > 0 ? 1 : 0;
		lpi_machine_idle(machine, LP_NS_PER_MS / 10);
	}
	assert_true(early_cnt > 0);
}

/* For all kinds of answers. */
static void test_freed_later(void **state)
{
	static struct said (*const ways[])(const struct cut_file *file) = {
		by_getattr, by_setattr, by_lookup, by_link, by_statx, by_readdirplus};
	struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(2), 0, BELIEVED_NS);
	struct cut_file file = {.kernel = &machine->kernels[0]};
	(void)state;
	/* As if there were no sockets: attributes would otherwise be believed, too. */
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		machine->channels[i]->options.behaviour.is_only_door = true;
	file.dir = lpi_kernel_mkdir(file.kernel, 1, "dir");
	file.node = lpi_kernel_create(file.kernel, FUSE_CREATE, file.dir, "file").node;
	file.dir_fh = lpi_kernel_open(file.kernel, FUSE_OPENDIR, file.dir);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(ways); i++) {
		cut_and_ask(machine, &file, ways[i]);
		/* The free has ended within this second. */
		lpi_machine_idle(machine, LP_NS_PER_S);
		assert_true(ways[i](&file).is_believed);
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* --- Modes that may lose bits ----------------------------------------------------------------- */

/* A mode from the file's creation, or a later one. A write takes bits of some modes, and the kernel
 * does not notice. */
static void test_privileges(void **state)
{
	static const struct {
		uint16_t mode;
		bool is_believed;
	} modes[] = {{0644, true},   {04644, false}, {02755, false}, {06711, false},
		     {02745, false}, {02764, false}, {01777, true},  {0755, true}};
	static struct said (*const ways[])(const struct cut_file *file) = {
		by_getattr, by_setattr, by_lookup, by_link, by_statx, by_readdirplus};
	struct lpi_machine *machine = lpi_machine_boot_as(lpi_ns_sim_mkfs(3), 0, BELIEVED_NS);
	struct cut_file file = {.kernel = &machine->kernels[0]};
	(void)state;
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++)
		machine->channels[i]->options.behaviour.is_only_door = true;
	file.dir = lpi_kernel_mkdir(file.kernel, 1, "dir");
	file.node = lpi_kernel_create(file.kernel, FUSE_CREATE, file.dir, "file").node;
	file.dir_fh = lpi_kernel_open(file.kernel, FUSE_OPENDIR, file.dir);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(modes) * LP_ARRAY_SIZE(ways); i++) {
		uint32_t mode_idx = i / LP_ARRAY_SIZE(ways);
		lpi_machine_chmod(machine, file.node, modes[mode_idx].mode);
		assert_int_equal(ways[i % LP_ARRAY_SIZE(ways)](&file).is_believed,
				 modes[mode_idx].is_believed);
	}
	/* No write takes a directory's bits. */
	lpi_machine_chmod(machine, file.dir, 06777);
	file.node = file.dir;
	assert_true(by_getattr(&file).is_believed);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* --- A directory from which files are removed ---------------------------------------------------
 */

#define FILES 32u

static struct fuse_attr attrs_of(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_getattr_in in = {.getattr_flags = 0};
	struct fuse_attr_out out;
	lpi_kernel_begin(kernel, FUSE_GETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	lp_test_ok(lpi_kernel_ask(kernel));
	memcpy(&out, lpi_kernel_answer(kernel, sizeof(out)), sizeof(out));
	return out.attr;
}

static uint64_t make_spread(struct lpi_machine *machine)
{
	struct lp_ns_op op = {.opcode = LP_NS_MAKE};
	op.make.dir = LP_INO_ROOT;
	op.make.name = (struct lp_bytes){"spread", 6};
	op.make.type = LP_INODE_TYPE_DIR;
	op.make.mode = 0755;
	op.make.spread = true;
	lp_test_ok(lpi_ns_sim_do(machine->sim, &op));
	return lpi_kernel_lookup(&machine->kernels[0], 1, "spread");
}

static uint64_t remote_calls(struct lpi_machine *machine)
{
	uint64_t calls = 0;
	for (uint32_t i = 0; i < LPI_MACHINE_CHANNELS; i++) {
		struct lp_ns_stats stats;
		lp_ns_read_stats(machine->sim->ns[i], &stats);
		calls += stats.remote_calls;
	}
	return calls;
}

static void name_of(uint32_t i, char name[16])
{
	(void)snprintf(name, 16, "file%02u", i);
}

/* After each removal the kernel asks for the attributes of the directory, which is spread over all
 * shards. The answers are current. After the first few they are known without asking other shards.
 * Fails if each takes a message. */
static void test_spread_dir(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(1));
	struct lpi_kernel *kernel = &machine->kernels[0];
	char name[16];
	(void)state;
	uint64_t dir = make_spread(machine);
	for (uint32_t i = 0; i < FILES; i++) {
		name_of(i, name);
		(void)lpi_kernel_create(kernel, FUSE_CREATE, dir, name);
	}
	uint64_t asked = 0;
	struct fuse_attr before = attrs_of(kernel, dir);
	assert_int_equal(before.size, FILES * strlen("file00"));
	for (uint32_t i = 0; i < FILES; i++) {
		name_of(i, name);
		lpi_machine_idle(machine, LP_NS_PER_MS);
		lp_test_ok(lpi_kernel_remove(kernel, FUSE_UNLINK, dir, name));
		uint64_t calls = remote_calls(machine);
		struct fuse_attr now = attrs_of(kernel, dir);
		asked += remote_calls(machine) - calls;
		assert_int_equal(now.size, (FILES - 1 - i) * strlen("file00"));
		assert_true(now.mtime > before.mtime ||
			    (now.mtime == before.mtime && now.mtimensec > before.mtimensec));
		before = now;
	}
	assert_true(asked <= FILES / 4);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_available),
		cmocka_unit_test(test_freed_later),
		cmocka_unit_test(test_privileges),
		cmocka_unit_test(test_spread_dir),
	};
	return lp_test_main(tests, "fuse/ops/ops_attrs");
}
