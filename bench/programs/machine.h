/* SPDX-License-Identifier: Apache-2.0 */
/* One shard's store on a device or in a directory, as programs drive it that need more than lapis
 * store-bench offers: reactor, helpers, buffers, device, store. They are no tests and no product:
 * whatever fails ends the process with a sentence.
 *
 * Threads: the caller's, which becomes the reactor's. Blocking: opening and closing turn the
 * reactor.
 */
#ifndef LP_BENCH_PROGRAMS_MACHINE_H
#define LP_BENCH_PROGRAMS_MACHINE_H

#include <stdio.h>
#include <unistd.h>

#include "base/error.h"
#include "base/loop/workers.h"
#include "store/filestore/filestore.h"
#include "store/store.h"
#include "store/volume/devices.h"

/* _exit(), not exit(): threads of the store run. */
#define LPI_MACHINE_CHECK(cond)                                                                    \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			(void)fprintf(stderr, "%s: line %d: %s\n", __FILE__, __LINE__, #cond);     \
			_exit(1);                                                                  \
		}                                                                                  \
	} while (0)

struct lpi_machine;

struct lpi_machine_options {
	const char *path;
	const struct lpi_machine
		*beside; /* its thread, helpers and buffers are used; outlives this */
	uint64_t bufs_bytes;
	uint64_t memory_bytes; /* 0: the store's default */
	uint64_t spin_ns;
	enum lp_alloc_kind alloc_kind;
	enum lp_write_path write_path;
};

struct lpi_machine {
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev;
	struct lp_devices devices;
	struct lp_file_dir dir; /* of a store in files, for a path that is a directory */
	bool is_file;
	struct lp_store *store;
	bool is_guest;    /* beside another */
	uint64_t open_ns; /* what opening the store took */
};

void lpi_machine_open(struct lpi_machine *rig, const struct lpi_machine_options *options);
void lpi_machine_close(struct lpi_machine *rig, bool abandon);
/* Submits one operation and turns until it completes; returns its result. */
int lpi_machine_do(struct lpi_machine *rig, struct lp_store_op *op);

#endif
