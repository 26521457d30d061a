/* SPDX-License-Identifier: Apache-2.0 */
/* What store/shard.c (running) and store/shard_open.c (opening and closing) share. */
#ifndef LP_STORE_SHARD_IMPL_H
#define LP_STORE_SHARD_IMPL_H

#include <stdatomic.h>

#include "store/kvfs_blockfs.h"
#include "store/shard.h"

#define LPI_SHARD_PINS 64u /* runs of write-back in flight, at most */

struct lpi_shard_pin {
	struct lp_space_pin pin;
	struct lp_list_node node; /* of the free ones, or of those in use */
};

LP_LIST_DEFINE(lpi_pin_list, struct lpi_shard_pin, node);
LP_LIST_DEFINE(lpi_space_waiters, struct lp_commit_waiter, node);

struct lp_shard {
	struct lp_shard_options options;
	struct lp_log_limits limits;
	struct lp_bdev_chan *data;
	struct lp_bdev_chan *log_chan; /* the same, or of the wal device */
	struct lp_blockfs *files;
	struct lp_kvfs_blockfs kvfs;
	struct lp_kv *kv;
	struct lp_overlay *overlay;
	struct lp_space *space;
	struct lp_pending *pending;
	struct lp_log *log;
	struct lp_writeback *writeback;
	struct lp_commit *commit;
	_Atomic(struct lp_commit *) barrier_commit; /* the same, for RocksDB's threads */
	struct lp_chunks *chunks;

	struct lp_commit_events commit_events;
	struct lp_writeback_events writeback_events;
	struct lpi_shard_pin pins[LPI_SHARD_PINS];
	struct lpi_pin_list pins_free;
	struct lpi_pin_list pins_used;

	/* The index tells from its threads; one message at a time brings it here. */
	struct lp_kv_events kv_events;
	struct lp_msg kv_msg;
	_Atomic bool kv_msg_sent;
	_Atomic uint64_t kv_persisted; /* `applied` as of the last flush */
	_Atomic int kv_error;
	_Atomic bool kv_error_final;
	struct lp_timer resume_timer;
	struct lp_work resume_work;
	int resume_result;
	uint32_t resume_failures; /* in a row, for other reasons than a full device */
	struct lp_work flush_work;
	int flush_result;

	struct lp_work lease_work;
	int lease_result;
	uint32_t lease_chunk;
	uint32_t lease_hint;
	bool lease_exhausted;
	struct lp_timer lease_timer;
	struct lpi_space_waiters space_waiters;

	uint64_t persisted_seq; /* the shard thread's copy of kv_persisted */
	uint64_t trimmed_seq;
	uint64_t record_seq;       /* the newest frame with a checkpoint record */
	uint64_t flush_wanted_seq; /* the index was asked to flush up to here */
	uint8_t *record;           /* room for one checkpoint record */
	uint8_t *change_bytes;     /* room for the changes of one frame */
	int error;
	bool closing;
	struct lp_shard_recovery recovery;
};

void lpi_shard_init_running(struct lp_shard *shard);
/* Everything stands: begins what a shard does by itself. */
void lpi_shard_begin(struct lp_shard *shard);
/* The log may forget what is durable elsewhere. */
void lpi_shard_trim(struct lp_shard *shard);
/* Some records of the chunks whose changes have been in the log for the longest go into the group
 * that collects. False when there are no more. */
bool lpi_shard_checkpoint_some(struct lp_shard *shard);
/* Nothing of the shard's own is under way. */
bool lpi_shard_is_quiet(const struct lp_shard *shard);
/* Also tells those who wait for space. */
void lpi_shard_stop_timers(struct lp_shard *shard);

#endif
