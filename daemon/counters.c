/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/counters.h"

#include <string.h>

#include "base/log.h"
#include "base/workers.h"
#include "daemon/conn.h"
#include "daemon/damage.h"
#include "fuse/channel.h"
#include "store/scrub.h"

#define COUNTER(type, field)                                                                       \
	{                                                                                          \
		.name = #field, .offset = offsetof(struct type, field)                             \
	}
#define GAUGE(type, field)                                                                         \
	{                                                                                          \
		.name = #field, .offset = offsetof(struct type, field), .is_gauge = true           \
	}
#define NARROW(type, field)                                                                        \
	{                                                                                          \
		.name = #field, .offset = offsetof(struct type, field), .is_narrow = true          \
	}
#define NARROW_GAUGE(type, field)                                                                  \
	{                                                                                          \
		.name = #field, .offset = offsetof(struct type, field), .is_gauge = true,          \
		.is_narrow = true                                                                  \
	}

static const struct lpi_counter store_items[] = {
	COUNTER(lp_store_stats, written_bytes),
	COUNTER(lp_store_stats, read_bytes),
	COUNTER(lp_store_stats, inode_hits),
	COUNTER(lp_store_stats, inode_misses),
	COUNTER(lp_store_stats, index_waits),
	COUNTER(lp_store_stats, space_waits),
	COUNTER(lp_store_stats, bad_marks),
	COUNTER(lp_store_stats, commits),
	GAUGE(lp_store_stats, free_blocks),
	GAUGE(lp_store_stats, kept_blocks),
	GAUGE(lp_store_stats, used_blocks),
	GAUGE(lp_store_stats, budget_bytes),
	GAUGE(lp_store_stats, nodes_bytes),
	GAUGE(lp_store_stats, nodes_limit_bytes),
	GAUGE(lp_store_stats, index_cache_bytes),
	GAUGE(lp_store_stats, index_cache_limit_bytes),
	GAUGE(lp_store_stats, memtable_bytes),
	GAUGE(lp_store_stats, index_filter_bytes),
	GAUGE(lp_store_stats, pools_bytes),
	GAUGE(lp_store_stats, space_bytes),
	GAUGE(lp_store_stats, data_cache_bytes),
	GAUGE(lp_store_stats, data_cache_limit_bytes),
	COUNTER(lp_store_stats, index_stalls),
	COUNTER(lp_store_stats, index_stops),
	COUNTER(lp_store_stats, index_stalled_ns),
	COUNTER(lp_store_stats, index_refused),
	COUNTER(lp_store_stats, index_flushes),
	COUNTER(lp_store_stats, index_compactions),
	GAUGE(lp_store_stats, index_flushes_waiting),
	GAUGE(lp_store_stats, index_flushing),
	GAUGE(lp_store_stats, index_compacting),
	GAUGE(lp_store_stats, index_debt_bytes),
	GAUGE(lp_store_stats, index_level0_files),
	COUNTER(lp_store_stats, deferred_records),
	GAUGE(lp_store_stats, bad_blocks),
	GAUGE(lp_store_stats, pending_bytes),
	COUNTER(lp_store_stats, log_writes),
	COUNTER(lp_store_stats, log_bytes),
	COUNTER(lp_store_stats, data_writes),
	COUNTER(lp_store_stats, data_bytes),
	COUNTER(lp_store_stats, data_reads),
	COUNTER(lp_store_stats, data_read_bytes),
	COUNTER(lp_store_stats, index_reads),
	COUNTER(lp_store_stats, index_read_bytes),
	COUNTER(lp_store_stats, flushes),
	COUNTER(lp_store_stats, data_hits),
	COUNTER(lp_store_stats, data_misses),
	COUNTER(lp_store_stats, ahead_reads),
	COUNTER(lp_store_stats, ahead_blocks),
	COUNTER(lp_store_stats, ahead_used),
	COUNTER(lp_store_stats, ahead_wasted),
	COUNTER(lp_store_stats, ahead_waits),
};
const struct lpi_counter_table lpi_store_counters = {store_items, LP_ARRAY_SIZE(store_items)};

static const struct lpi_counter ns_items[] = {
	COUNTER(lp_ns_stats, remote_calls),
	COUNTER(lp_ns_stats, local_txns),
	COUNTER(lp_ns_stats, shared_txns),
	COUNTER(lp_ns_stats, finish_retries),
	COUNTER(lp_ns_stats, freeing_waits),
	GAUGE(lp_ns_stats, stuck),
	COUNTER(lp_ns_stats, lock_waits),
	GAUGE(lp_ns_stats, opens),
	GAUGE(lp_ns_stats, orphans),
	GAUGE(lp_ns_stats, held),
	GAUGE(lp_ns_stats, held_bytes),
	COUNTER(lp_ns_stats, held_uncounted),
	COUNTER(lp_ns_stats, held_unbalanced),
	GAUGE(lp_ns_stats, queued),
	COUNTER(lp_ns_stats, told),
	COUNTER(lp_ns_stats, told_late),
	COUNTER(lp_ns_stats, untold),
	COUNTER(lp_ns_stats, cache_hits),
	COUNTER(lp_ns_stats, cache_misses),
};
const struct lpi_counter_table lpi_ns_counters = {ns_items, LP_ARRAY_SIZE(ns_items)};

static const struct lpi_counter door_items[] = {
	GAUGE(lp_door_stats, conns),
	COUNTER(lp_door_stats, conns_total),
	COUNTER(lp_door_stats, conns_refused),
	COUNTER(lp_door_stats, received_bytes),
	COUNTER(lp_door_stats, sent_bytes),
	COUNTER(lp_door_stats, receives),
	COUNTER(lp_door_stats, sends),
	GAUGE(lp_door_stats, requests_under_way),
	COUNTER(lp_door_stats, throttled),
	COUNTER(lp_door_stats, bad_messages),
	COUNTER(lp_door_stats, timeouts),
	COUNTER(lp_door_stats, shared_replies),
	COUNTER(lp_door_stats, shared_bytes),
	GAUGE(lp_door_stats, share_bytes),
	COUNTER(lp_door_stats, conns_gave_way),
	GAUGE(lp_door_stats, users),
	COUNTER(lp_door_stats, limits_conns),
	COUNTER(lp_door_stats, limits_requests),
	COUNTER(lp_door_stats, limits_pieces),
	COUNTER(lp_door_stats, limits_opens),
	COUNTER(lp_door_stats, limits_coming),
	COUNTER(lp_door_stats, limits_going),
	COUNTER(lp_door_stats, limits_meta),
	COUNTER(lp_door_stats, limits_shared),
	COUNTER(lp_door_stats, limits_stash),
};
const struct lpi_counter_table lpi_door_counters = {door_items, LP_ARRAY_SIZE(door_items)};

static const struct lpi_counter reactor_items[] = {
	COUNTER(lp_reactor_stats, turns),
	COUNTER(lp_reactor_stats, enters),
	COUNTER(lp_reactor_stats, sleeps),
	COUNTER(lp_reactor_stats, spins_won),
	COUNTER(lp_reactor_stats, spins_lost),
	COUNTER(lp_reactor_stats, ios),
	COUNTER(lp_reactor_stats, msgs),
	COUNTER(lp_reactor_stats, wakes_sent),
	COUNTER(lp_reactor_stats, absences),
	COUNTER(lp_reactor_stats, absences_preempted),
	COUNTER(lp_reactor_stats, absences_blocked),
	GAUGE(lp_reactor_stats, absence_max_ns),
	GAUGE(lp_reactor_stats, absence_own_max_ns),
};
const struct lpi_counter_table lpi_reactor_counters = {reactor_items, LP_ARRAY_SIZE(reactor_items)};

static const struct lpi_counter bufs_items[] = {
	GAUGE(lp_bufs_stats, region_bytes),
	GAUGE(lp_bufs_stats, used_bytes),
	GAUGE(lp_bufs_stats, used_max_bytes),
	COUNTER(lp_bufs_stats, failed_cnt),
};
const struct lpi_counter_table lpi_bufs_counters = {bufs_items, LP_ARRAY_SIZE(bufs_items)};

static const struct lpi_counter workers_items[] = {
	COUNTER(lp_workers_stats, submitted),       COUNTER(lp_workers_stats, ran),
	NARROW_GAUGE(lp_workers_stats, queued),     NARROW_GAUGE(lp_workers_stats, running),
	NARROW_GAUGE(lp_workers_stats, queued_max), NARROW(lp_workers_stats, wakes),
};
const struct lpi_counter_table lpi_workers_counters = {workers_items, LP_ARRAY_SIZE(workers_items)};

static const struct lpi_counter log_items[] = {
	COUNTER(lp_log_stats, lines),
	COUNTER(lp_log_stats, suppressed),
	COUNTER(lp_log_stats, dropped),
};
const struct lpi_counter_table lpi_log_counters = {log_items, LP_ARRAY_SIZE(log_items)};

static const struct lpi_counter scrub_items[] = {
	COUNTER(lp_scrub_sum, passes),
	COUNTER(lp_scrub_sum, objects),
	COUNTER(lp_scrub_sum, bytes),
	COUNTER(lp_scrub_sum, damaged),
};
static const struct lpi_counter damage_items[] = {
	GAUGE(lpi_damage_stats, objects),
	COUNTER(lpi_damage_stats, found),
	COUNTER(lpi_damage_stats, beyond),
};

const struct lpi_counter_table lpi_damage_counters = {damage_items, LP_ARRAY_SIZE(damage_items)};

const struct lpi_counter_table lpi_scrub_counters = {scrub_items, LP_ARRAY_SIZE(scrub_items)};

static const struct lpi_counter mount_items[] = {
	NARROW_GAUGE(lp_fuse_channel_stats, under_way),
	COUNTER(lp_fuse_channel_stats, refused),
	COUNTER(lp_fuse_channel_stats, reads),
	COUNTER(lp_fuse_channel_stats, throttled),
	COUNTER(lp_fuse_channel_stats, roomless),
	COUNTER(lp_fuse_channel_stats, dropped),
	COUNTER(lp_fuse_channel_stats, dropped_late),
	COUNTER(lp_fuse_channel_stats, read_bytes),
	COUNTER(lp_fuse_channel_stats, written_bytes),
	COUNTER(lp_fuse_channel_stats, ring_requests),
	COUNTER(lp_fuse_channel_stats, handed_over),
};
const struct lpi_counter_table lpi_mount_counters = {mount_items, LP_ARRAY_SIZE(mount_items)};

uint64_t lpi_counter_read(const void *stats, const struct lpi_counter *counter)
{
	const char *at = (const char *)stats + counter->offset;
	uint64_t value = 0;
	uint32_t narrow = 0;
	if (!counter->is_narrow) {
		memcpy(&value, at, sizeof(value));
		return value;
	}
	memcpy(&narrow, at, sizeof(narrow));
	return narrow;
}

const char *lpi_store_op_name(uint32_t opcode)
{
	static const char *const names[LP_STORE_OPCODE_CNT] = {
		[LP_STORE_TXN] = "txn",       [LP_STORE_READ] = "read", [LP_STORE_STAT] = "stat",
		[LP_STORE_LOOKUP] = "lookup", [LP_STORE_GET] = "get",   [LP_STORE_LIST] = "list",
		[LP_STORE_SEEK] = "seek",     [LP_STORE_DIR] = "dir",   [LP_STORE_SYNC] = "sync"};
	return names[opcode];
}

const char *lpi_ns_op_name(uint32_t opcode)
{
	static const char *const names[LP_NS_OPCODE_CNT] = {
		[LP_NS_STORE] = "store",   [LP_NS_STAT] = "stat",     [LP_NS_SET] = "set",
		[LP_NS_OPEN] = "open",     [LP_NS_CLOSE] = "close",   [LP_NS_SYNC] = "sync",
		[LP_NS_LOOKUP] = "lookup", [LP_NS_MAKE] = "make",     [LP_NS_REMOVE] = "remove",
		[LP_NS_LINK] = "link",     [LP_NS_RENAME] = "rename", [LP_NS_READDIR] = "readdir",
		[LP_NS_WALK] = "walk",     [LP_NS_PUT] = "put",       [LP_NS_UPLOAD] = "upload",
		[LP_NS_COMMIT] = "commit", [LP_NS_DELETE] = "delete", [LP_NS_COPY] = "copy",
		[LP_NS_MOVE] = "move",     [LP_NS_LIST] = "list",     [LP_NS_FORGET] = "forget",
	};
	return names[opcode];
}
