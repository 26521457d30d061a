/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/programs/machine.h"

#include <sys/stat.h>

#define WORKERS 2u

static void open_store(struct lpi_machine *rig, const struct lpi_machine_options *options)
{
	const struct lp_clock *clock = lp_reactor_clock(rig->reactor);
	const struct lp_devices_options devices = {.bdev = {rig->bdev}};
	const struct lp_store_file_options file = {.dir = &rig->dir};
	struct lp_label_why why;
	uint64_t start_ns = lp_clock_mono_ns(clock);
	LPI_MACHINE_CHECK(rig->is_file || lp_devices_open(&devices, &rig->devices, &why) == 0);
	const struct lp_store_options store = {.reactor = rig->reactor,
					       .workers = rig->workers,
					       .devices = &rig->devices,
					       .bufs = rig->bufs,
					       .alloc_kind = options->alloc_kind,
					       .write_path = options->write_path,
					       .memory_bytes = options->memory_bytes};
	int err = rig->is_file ? lp_store_open_file(&store, &file, &rig->store)
			       : lp_store_open(&store, &rig->store);
	if (err < 0)
		(void)fprintf(stderr, "%s: cannot open the store: %s\n", options->path,
			      lp_strerror(err));
	LPI_MACHINE_CHECK(err == 0);
	rig->open_ns = lp_clock_mono_ns(clock) - start_ns;
}

static void start(struct lpi_machine *rig, const struct lpi_machine_options *options)
{
	const struct lp_reactor_options reactor = {.name = "bench",
						   .ring = true,
						   .files_max = 8,
						   .buffers_max = 1,
						   .spin_max_ns = options->spin_ns};
	LPI_MACHINE_CHECK(lp_reactor_new(&reactor, &rig->reactor) == 0);
	LPI_MACHINE_CHECK(lp_reactor_start(rig->reactor) == 0);
	LPI_MACHINE_CHECK(lp_workers_new(WORKERS, &rig->workers) == 0);
	LPI_MACHINE_CHECK(lp_bufs_new(options->bufs_bytes, &rig->bufs) == 0);
}

static bool is_dir(const char *path)
{
	struct stat st;
	return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static void open_dir(struct lpi_machine *rig, const char *path)
{
	const struct lp_file_dir_options options = {.path = path, .default_shard_cnt = 1};
	char why[LP_FILE_DIR_WHY_MAX];
	LPI_MACHINE_CHECK(lp_file_dir_open(&options, &rig->dir, why) == 0);
}

void lpi_machine_open(struct lpi_machine *rig, const struct lpi_machine_options *options)
{
	const struct lp_bdev_open_options device = {.read_only = false};
	const struct lpi_machine *beside = options->beside;
	*rig = (struct lpi_machine){.is_guest = beside != NULL};
	if (beside == NULL) {
		start(rig, options);
	} else {
		rig->reactor = beside->reactor;
		rig->workers = beside->workers;
		rig->bufs = beside->bufs;
	}
	rig->is_file = is_dir(options->path);
	if (rig->is_file)
		open_dir(rig, options->path);
	else
		LPI_MACHINE_CHECK(lp_bdev_open_uring(options->path, &device, &rig->bdev) == 0);
	open_store(rig, options);
}

void lpi_machine_close(struct lpi_machine *rig, bool abandon)
{
	LPI_MACHINE_CHECK(lp_store_close(rig->store, abandon) == 0 || abandon);
	if (rig->is_file)
		lp_file_dir_close(&rig->dir);
	else
		lp_devices_close(&rig->devices);
	lp_bdev_close(rig->bdev);
	if (rig->is_guest)
		return;
	lp_workers_free(rig->workers);
	lp_bufs_free(rig->bufs);
	lp_reactor_free(rig->reactor);
}

/* One at a time: only the caller's own thread is here. */
static bool is_done;

static void done(struct lp_store_op *op)
{
	(void)op;
	is_done = true;
}

int lpi_machine_do(struct lpi_machine *rig, struct lp_store_op *op)
{
	op->complete = done;
	is_done = false;
	lp_store_submit(rig->store, op);
	while (!is_done)
		(void)lp_reactor_turn(rig->reactor, true);
	return op->result;
}
