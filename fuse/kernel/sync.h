/* SPDX-License-Identifier: Apache-2.0 */
/* fsync of the mount: which syncs it waits for, and its result after a device has failed.
 *
 * Threads: the channel's; the table is for all.
 * Blocking: none.
 * Memory: allocated in init.
 * Limits: LPI_FUSE_SYNC_ROUNDS under way on a channel. The table of handles has a fixed size;
 *   handles that are very many opens apart may put each other out.
 *
 *   - A sync of the namespace makes all changes durable that were ordered before it (rule M1). A
 * channel has as many under way as a log has frames in flight. Later fsyncs share the next one. So
 * an fsync waits for the end of one round and its own at most, whatever others write.
 *   - When a device has failed, ordered data may be lost. Each open file says so once, at its next
 *     fsync, as Linux has it (rule L7). So does a file that was opened after the failure, as long
 *     as no file had been told. A handle is the number of an open and what had been told by then. A
 *     handle that was put out of the table is told again.
 *   - A failed direct write is noted by its handle, because the kernel may take it back. If the
 *     write was beyond the end that the kernel remembers, it sets the size to this end, by the same
 *     handle, without any other change of size between. A note that is put out by another is lost.
 */
#ifndef LP_FUSE_KERNEL_SYNC_H
#define LP_FUSE_KERNEL_SYNC_H

#include "fuse/request.h"

#define LPI_FUSE_SYNC_ROUNDS 2u

struct lpi_fuse_told;

/* One sync of the namespace. */
struct lpi_fuse_round {
	struct lp_ns_op op;
	struct lp_fuse_channel *channel;
	struct lpi_fuse_list requests; /* that share it; empty: it is not under way */
};

struct lpi_fuse_syncs {
	struct lpi_fuse_round rounds[LPI_FUSE_SYNC_ROUNDS];
	struct lpi_fuse_list waiting; /* for the next one */
	uint64_t handle_cnt;
	struct lpi_fuse_told *told; /* the table of the mount's first channel counts */
};

int lpi_fuse_syncs_init(struct lp_fuse_channel *channel) LP_MUST_CHECK;
/* Also after an init that failed, on a channel that was cleared. */
void lpi_fuse_syncs_fini(struct lp_fuse_channel *channel);

/* Calls next() when all changes that were ordered before are durable, or op.result says why they
 * are not. op.sync.failed_cnt is the one of the namespace's operation. */
void lpi_fuse_sync(struct lpi_fuse_request *request, lpi_fuse_step_fn *next);

/* Bit of a handle whose writes the kernel passes on as they are (FOPEN_DIRECT_IO). */
#define LPI_FUSE_HANDLE_DIRECT (UINT64_C(1) << 63)
/* Bit of a handle whose changes are durable when they are answered (O_DSYNC, O_SYNC). No fcntl
 * changes that. */
#define LPI_FUSE_HANDLE_DSYNC (UINT64_C(1) << 61)
/* A handle for a file that is opened with these flags. It never equals an earlier one. It counts as
 * a handle by which the file may be mapped, and by which it is written with its pages or without.
 * If lpi_fuse_run() was called for it, it also counts as run. */
uint64_t lpi_fuse_handle_new(const struct lpi_fuse_request *request, struct lp_ino ino,
			     uint32_t flags);
/* The file was not opened, or has been closed. */
void lpi_fuse_handle_drop(const struct lp_fuse_channel *channel, struct lp_ino ino,
			  uint64_t handle);
/* The kernel may revert data that was written by this handle. */
void lpi_fuse_note_failed(const struct lpi_fuse_request *request, uint64_t handle);
/* Whether a change of size by the handle may be such a revert. Takes the note away. */
bool lpi_fuse_take_failed(const struct lpi_fuse_request *request, uint64_t handle);
/* The answer of an fsync by this handle: the sync's result, but a failed device is reported only
 * once. */
int lpi_fuse_sync_verdict(const struct lpi_fuse_request *request, uint64_t handle);

#endif
