/* SPDX-License-Identifier: Apache-2.0 */
/* Goal: flags that forbid changes are read and set by both pairs of ioctls, set by root only, and
 * hold for new and for existing handles. Method: a machine with two channels, asked as the kernel
 * asks. */
#include <errno.h>
#include <linux/falloc.h>
#include <linux/fiemap.h>
#include <linux/fs.h>

#include "fuse/model/machine_test.h"

#define USER 1000u

static int ask_ioctl(struct lpi_kernel *kernel, uint64_t node, uint32_t uid,
		     const struct fuse_ioctl_in *in, const void *bytes)
{
	struct fuse_in_header header;
	lpi_kernel_begin(kernel, FUSE_IOCTL, node);
	memcpy(&header, kernel->out, sizeof(header));
	header.uid = uid;
	memcpy(kernel->out, &header, sizeof(header));
	lpi_kernel_add(kernel, in, sizeof(*in));
	lpi_kernel_add(kernel, bytes, in->in_size);
	return lpi_kernel_ask(kernel);
}

static int set_as(struct lpi_kernel *kernel, uint64_t node, uint32_t uid, uint32_t flags)
{
	return ask_ioctl(kernel, node, uid,
			 &(struct fuse_ioctl_in){
				 .cmd = FS_IOC_SETFLAGS, .in_size = sizeof(flags), .out_size = 0},
			 &flags);
}

static int set_flags(struct lpi_kernel *kernel, uint64_t node, uint32_t flags)
{
	return set_as(kernel, node, 0, flags);
}

static uint32_t get_flags(struct lpi_kernel *kernel, uint64_t node)
{
	struct {
		struct fuse_ioctl_out out;
		uint32_t flags;
	} answer;
	lp_test_ok(ask_ioctl(kernel, node, USER,
			     &(struct fuse_ioctl_in){.cmd = FS_IOC_GETFLAGS,
						     .in_size = 0,
						     .out_size = sizeof(uint32_t)},
			     NULL));
	assert_int_equal(lpi_kernel_answer_len(kernel), sizeof(answer));
	memcpy(&answer, lpi_kernel_answer(kernel, sizeof(answer)), sizeof(answer));
	assert_int_equal(answer.out.result, 0);
	assert_int_equal(answer.out.flags, 0);
	return answer.flags;
}

static struct fsxattr get_xattr(struct lpi_kernel *kernel, uint64_t node)
{
	struct {
		struct fuse_ioctl_out out;
		struct fsxattr xattr;
	} answer;
	lp_test_ok(ask_ioctl(kernel, node, USER,
			     &(struct fuse_ioctl_in){.cmd = FS_IOC_FSGETXATTR,
						     .in_size = 0,
						     .out_size = sizeof(struct fsxattr)},
			     NULL));
	assert_int_equal(lpi_kernel_answer_len(kernel), sizeof(answer));
	memcpy(&answer, lpi_kernel_answer(kernel, sizeof(answer)), sizeof(answer));
	return answer.xattr;
}

static int set_xattr(struct lpi_kernel *kernel, uint64_t node, struct fsxattr xattr)
{
	return ask_ioctl(kernel, node, 0,
			 &(struct fuse_ioctl_in){
				 .cmd = FS_IOC_FSSETXATTR, .in_size = sizeof(xattr), .out_size = 0},
			 &xattr);
}

static int try_open(struct lpi_kernel *kernel, uint64_t node, uint32_t flags)
{
	const struct fuse_open_in in = {.flags = flags};
	lpi_kernel_begin(kernel, FUSE_OPEN, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	int r = lpi_kernel_ask(kernel);
	if (r == 0)
		lpi_kernel_release(kernel, FUSE_RELEASE, node);
	return r;
}

static int set_attrs(struct lpi_kernel *kernel, uint64_t node, uint32_t valid)
{
	const struct fuse_setattr_in in = {.valid = valid, .mode = 0600, .mtime = 5, .size = 0};
	lpi_kernel_begin(kernel, FUSE_SETATTR, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

static int allocate(struct lpi_kernel *kernel, uint64_t node, uint64_t length, uint32_t mode)
{
	const struct fuse_fallocate_in in = {.length = length, .mode = mode};
	lpi_kernel_begin(kernel, FUSE_FALLOCATE, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

/* --- Told and set ----------------------------------------------------------------------------- */

static void check_told(struct lpi_kernel *kernel, uint64_t node)
{
	static const uint32_t flags[] = {FS_IMMUTABLE_FL, FS_APPEND_FL,
					 FS_IMMUTABLE_FL | FS_APPEND_FL, 0};
	static const uint32_t xflags[] = {FS_XFLAG_IMMUTABLE, FS_XFLAG_APPEND,
					  FS_XFLAG_IMMUTABLE | FS_XFLAG_APPEND, 0};
	assert_int_equal(get_flags(kernel, node), 0);
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(flags); i++) {
		lp_test_ok(set_flags(kernel, node, flags[i]));
		assert_int_equal(get_flags(kernel, node), flags[i]);
		assert_int_equal(get_xattr(kernel, node).fsx_xflags, xflags[i]);
		lp_test_ok(set_flags(kernel, node, 0));
		lp_test_ok(set_xattr(kernel, node, (struct fsxattr){.fsx_xflags = xflags[i]}));
		assert_int_equal(get_flags(kernel, node), flags[i]);
		/* Unchanged flags may be set by any caller that the kernel allows. */
		lp_test_ok(set_as(kernel, node, USER, flags[i]));
		lp_test_err(-EPERM, set_as(kernel, node, USER, flags[i] ^ FS_APPEND_FL));
		lp_test_err(-EPERM, set_as(kernel, node, USER, flags[i] ^ FS_IMMUTABLE_FL));
		assert_int_equal(get_flags(kernel, node), flags[i]);
		lp_test_ok(set_flags(kernel, node, 0));
	}
}

static void check_refused(struct lpi_kernel *kernel, uint64_t node)
{
	uint32_t flags = FS_NODUMP_FL;
	lp_test_err(-EOPNOTSUPP, set_flags(kernel, node, FS_NODUMP_FL));
	lp_test_err(-EOPNOTSUPP, set_flags(kernel, node, FS_NODUMP_FL | FS_IMMUTABLE_FL));
	lp_test_err(-EOPNOTSUPP,
		    set_xattr(kernel, node, (struct fsxattr){.fsx_xflags = FS_XFLAG_NODUMP}));
	lp_test_err(-EOPNOTSUPP, set_xattr(kernel, node, (struct fsxattr){.fsx_projid = 7}));
	lp_test_err(-EOPNOTSUPP, set_xattr(kernel, node, (struct fsxattr){.fsx_extsize = 4096}));
	lp_test_err(-EINVAL, ask_ioctl(kernel, node, 0,
				       &(struct fuse_ioctl_in){
					       .cmd = FS_IOC_SETFLAGS, .in_size = 3, .out_size = 0},
				       &flags));
	lp_test_err(-EINVAL, ask_ioctl(kernel, node, 0,
				       &(struct fuse_ioctl_in){
					       .cmd = FS_IOC_SETFLAGS, .in_size = 0, .out_size = 0},
				       NULL));
	lp_test_err(-EINVAL,
		    ask_ioctl(kernel, node, 0,
			      &(struct fuse_ioctl_in){
				      .cmd = FS_IOC_FSSETXATTR, .in_size = 4, .out_size = 0},
			      &flags));
	lp_test_err(-EINVAL, ask_ioctl(kernel, node, 0,
				       &(struct fuse_ioctl_in){
					       .cmd = FS_IOC_GETFLAGS, .in_size = 0, .out_size = 3},
				       NULL));
	lp_test_err(-EINVAL,
		    ask_ioctl(kernel, node, 0,
			      &(struct fuse_ioctl_in){
				      .cmd = FS_IOC_FSGETXATTR, .in_size = 0, .out_size = 27},
			      NULL));
	lp_test_err(-ENOTTY, ask_ioctl(kernel, node, 0,
				       &(struct fuse_ioctl_in){
					       .cmd = FS_IOC_FIEMAP, .in_size = 0, .out_size = 4},
				       NULL));
	lp_test_err(-ESTALE, set_flags(kernel, 99999, FS_IMMUTABLE_FL));
	lp_test_err(-ESTALE, ask_ioctl(kernel, 99999, 0,
				       &(struct fuse_ioctl_in){
					       .cmd = FS_IOC_GETFLAGS, .in_size = 0, .out_size = 4},
				       NULL));
	assert_int_equal(get_flags(kernel, node), 0);
}

static void test_told(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	uint64_t file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file").node;
	uint64_t dir = lpi_kernel_mkdir(kernel, 1, "dir");
	check_told(kernel, file);
	check_told(kernel, dir);
	check_told(&machine->kernels[1], dir);
	check_told(kernel, 1);
	check_refused(kernel, file);
	check_refused(&machine->kernels[1], dir);
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* --- Held ------------------------------------------------------------------------------------- */

static void check_names(struct lpi_kernel *kernel, uint64_t node)
{
	lp_test_err(-EPERM, lpi_kernel_remove(kernel, FUSE_UNLINK, 1, "file"));
	lp_test_err(-EPERM, lpi_kernel_link(kernel, node, 1, "link"));
	lp_test_err(-EPERM, lpi_kernel_rename(kernel, 1, "file", 1, "other"));
	lp_test_err(-EPERM, lpi_kernel_set_xattr(kernel, node, "x", 1));
	lp_test_err(-EPERM, set_attrs(kernel, node, FATTR_MODE));
	lp_test_err(-EPERM, set_attrs(kernel, node, FATTR_MTIME));
	lp_test_err(-EPERM, set_attrs(kernel, node, FATTR_UID | FATTR_KILL_SUIDGID));
	lp_test_err(-EPERM, set_attrs(kernel, node, FATTR_SIZE));
	lp_test_err(-EPERM, lpi_kernel_truncate(kernel, node, 100000));
	lp_test_err(-EPERM, allocate(kernel, node, 10, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE));
	lp_test_err(-EPERM, allocate(kernel, node, 10, FALLOC_FL_ZERO_RANGE));
	lp_test_err(-EPERM, lpi_kernel_write(kernel, node, 0, "x", 1));
	lp_test_err(-EPERM, try_open(kernel, node, O_WRONLY));
	lp_test_err(-EPERM, try_open(kernel, node, O_RDWR));
	lp_test_err(-EPERM, try_open(kernel, node, O_RDONLY | O_TRUNC));
	lp_test_err(-EPERM, try_open(kernel, node, O_WRONLY | O_APPEND | O_TRUNC));
	lp_test_ok(try_open(kernel, node, O_RDONLY));
}

static void check_appending(struct lpi_kernel *kernel, struct lpi_opened file, int want)
{
	const uint32_t touch = FATTR_ATIME | FATTR_ATIME_NOW | FATTR_MTIME | FATTR_MTIME_NOW;
	assert_int_equal(try_open(kernel, file.node, O_WRONLY | O_APPEND), want);
	assert_int_equal(try_open(kernel, file.node, O_RDWR | O_APPEND), want);
	assert_int_equal(lpi_kernel_write_as(kernel, file, O_WRONLY | O_APPEND, 0, "more", 4),
			 want);
	assert_int_equal(allocate(kernel, file.node, 50, FALLOC_FL_KEEP_SIZE), want);
	assert_int_equal(set_attrs(kernel, file.node, touch), want);
}

static int release_again(struct lpi_kernel *kernel, uint64_t node)
{
	const struct fuse_release_in in = {.fh = 0};
	lpi_kernel_begin(kernel, FUSE_RELEASE, node);
	lpi_kernel_add(kernel, &in, sizeof(in));
	return lpi_kernel_ask(kernel);
}

static void test_held(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	struct lpi_kernel *kernel = &machine->kernels[0];
	(void)state;
	struct lpi_opened file = lpi_kernel_create(kernel, FUSE_CREATE, 1, "file");
	lp_test_ok(lpi_kernel_write(kernel, file.node, 0, "content", 7));
	lp_test_ok(set_flags(kernel, file.node, FS_IMMUTABLE_FL));
	check_names(kernel, file.node);
	check_appending(kernel, file, -EPERM);
	lp_test_err(-EPERM, allocate(kernel, file.node, 100, 0));
	assert_int_equal(lpi_machine_attrs(machine, file.node).size_bytes, 7);
	lp_test_ok(set_flags(kernel, file.node, FS_APPEND_FL));
	check_names(kernel, file.node);
	check_appending(kernel, file, 0);
	assert_int_equal(lpi_machine_attrs(machine, file.node).size_bytes, 11);
	lp_test_ok(allocate(kernel, file.node, 100, 0));
	assert_int_equal(lpi_machine_attrs(machine, file.node).size_bytes, 100);
	lp_test_ok(set_flags(kernel, file.node, 0));
	lp_test_ok(lpi_kernel_truncate(kernel, file.node, 3));
	/* The refused caller has no handle: the file goes with the last handle. */
	lpi_kernel_release(kernel, FUSE_RELEASE, file.node);
	lp_test_err(-EINVAL, release_again(kernel, file.node));
	lp_test_ok(lpi_kernel_remove(kernel, FUSE_UNLINK, 1, "file"));
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* In a directory with a flag no entry can be removed, and this is reported before "not empty". */
static void test_full(void **state)
{
	static const uint32_t flags[] = {FS_IMMUTABLE_FL, FS_APPEND_FL};
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	(void)state;
	uint64_t dir = lpi_kernel_mkdir(&machine->kernels[0], 1, "dir");
	uint64_t full = lpi_kernel_mkdir(&machine->kernels[0], dir, "full");
	(void)lpi_kernel_mkdir(&machine->kernels[0], full, "sub");
	(void)lpi_kernel_mkdir(&machine->kernels[0], 1, "other");
	for (uint32_t i = 0; i < LP_ARRAY_SIZE(flags) * LPI_MACHINE_CHANNELS; i++) {
		struct lpi_kernel *kernel = &machine->kernels[i % LPI_MACHINE_CHANNELS];
		lp_test_ok(set_flags(kernel, dir, flags[i / LPI_MACHINE_CHANNELS]));
		lp_test_err(-EPERM, lpi_kernel_remove(kernel, FUSE_RMDIR, dir, "full"));
		lp_test_err(-EPERM, lpi_kernel_rename(kernel, 1, "other", dir, "full"));
		lp_test_ok(set_flags(kernel, dir, 0));
		lp_test_err(-ENOTEMPTY, lpi_kernel_remove(kernel, FUSE_RMDIR, dir, "full"));
		lp_test_err(-ENOTEMPTY, lpi_kernel_rename(kernel, 1, "other", dir, "full"));
	}
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

/* A flag protects from the answer on, also if the power fails then. */
static void test_durable(void **state)
{
	struct lpi_machine *machine = lpi_machine_boot(lpi_ns_sim_mkfs(2));
	(void)state;
	uint64_t node = lpi_kernel_create(&machine->kernels[0], FUSE_CREATE, 1, "file").node;
	lp_test_ok(set_flags(&machine->kernels[0], node, FS_IMMUTABLE_FL));
	struct lp_sim *sim = lpi_machine_device(machine);
	struct lp_bdev *left = NULL;
	lp_test_ok(lp_sim_image_at(sim, lp_sim_event_count(sim) - 1, NULL, 1, &left));
	(void)lpi_machine_stop(machine);
	lpi_machine_free(machine);
	machine = lpi_machine_boot(left);
	assert_int_equal(get_flags(&machine->kernels[0], node), FS_IMMUTABLE_FL);
	lp_test_err(-EPERM, lpi_kernel_remove(&machine->kernels[0], FUSE_UNLINK, 1, "file"));
	lp_test_ok(lpi_machine_stop(machine));
	lpi_machine_free(machine);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_durable),
	};
	return lp_test_main(tests, "fuse/ops/ops_flags");
}
