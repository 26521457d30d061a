/* SPDX-License-Identifier: Apache-2.0 */
/* One shard's store as a command drives it without a daemon: reactor, helpers, buffers, devices;
 * the store on them may be closed and opened again.
 *
 * Threads: the main thread; opening and closing turn the reactor. Errors: said on standard error
 * before they are returned.
 */
#ifndef LP_CLI_STORE_SESSION_H
#define LP_CLI_STORE_SESSION_H

#include "base/loop/workers.h"
#include "store/device/bdev_delay.h"
#include "store/filestore/filestore.h"
#include "store/volume/devices.h"

struct lpi_session_options {
	const char *path[LP_ROLES];                /* all NULL: a store in memory */
	bool is_file;                              /* the first is a directory */
	const struct lp_bdev_delay_options *delay; /* NULL: none */
	uint64_t bufs_bytes; /* for the caller's own use; the store's needs are added */
	uint64_t spin_ns;
	uint64_t memory_bytes; /* and the following: of struct lp_store_options */
	uint64_t data_cache_bytes;
	uint32_t shard_idx;
	enum lp_write_path write_path;
	enum lp_deferred_store deferred_store;
	enum lp_alloc_kind alloc_kind;
};

struct lpi_session {
	struct lpi_session_options options;
	struct lp_reactor *reactor;
	struct lp_workers *workers;
	struct lp_bufs *bufs;
	struct lp_bdev *bdev[LP_ROLES];
	struct lp_devices devices;
	struct lp_file_dir dir; /* fd -1: none */
	struct lp_store *store; /* NULL while closed */
	uint64_t open_ns;       /* what the last opening took */
};

/* On failure nothing is left to be stopped. */
int lpi_session_start(const struct lpi_session_options *options,
		      struct lpi_session *ret_session) LP_MUST_CHECK;
/* The store is closed. */
void lpi_session_stop(struct lpi_session *session);

int lpi_session_open(struct lpi_session *session) LP_MUST_CHECK;
int lpi_session_close(struct lpi_session *session, bool abandon) LP_MUST_CHECK;

bool lpi_session_is_mem(const struct lpi_session *session);
/* "block", "mem" or "file". */
const char *lpi_session_kind(const struct lpi_session_options *options);
/* What the blocking calls of all devices did, and all channels that are detached. */
void lpi_session_sync_stats(const struct lpi_session *session, struct lp_bdev_stats *ret_stats);
void lpi_session_past_stats(const struct lpi_session *session, struct lp_bdev_stats *ret_stats);

#endif
