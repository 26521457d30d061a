/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/report/counters.h"

#include <string.h>

#include "base/log.h"
#include "base/loop/workers.h"
#include "daemon/report/damage.h"
#include "fuse/channel.h"
#include "native/conn.h"
#include "store/check/scrub.h"

/* metric: the name for Prometheus, and its unit, where they differ from the struct's. */
#define ITEM(type, field, text, ...)                                                               \
	{                                                                                          \
		.name = #field, .offset = offsetof(struct type, field), .help = (text),            \
		__VA_ARGS__                                                                        \
	}
#define COUNTER(type, field, text)      ITEM(type, field, text, .is_gauge = false)
#define GAUGE(type, field, text)        ITEM(type, field, text, .is_gauge = true)
#define NARROW(type, field, text)       ITEM(type, field, text, .is_narrow = true)
#define NARROW_GAUGE(type, field, text) ITEM(type, field, text, .is_gauge = true, .is_narrow = true)
#define COUNTER_AS(type, field, shown, of_unit, text)                                              \
	ITEM(type, field, text, .metric = (shown), .unit = (of_unit))
#define GAUGE_AS(type, field, shown, of_unit, text)                                                \
	ITEM(type, field, text, .is_gauge = true, .metric = (shown), .unit = (of_unit))
/* One family for all limits: they follow one another. */
#define LIMIT(field, which)                                                                        \
	ITEM(lp_door_stats, field, "Times that a limit of all users or of one was met.",           \
	     .metric = "limits", .label = "limit", .label_value = (which))

static const struct lpi_counter store_items[] = {
	COUNTER(lp_store_stats, written_bytes, "Bytes of objects that operations have written."),
	COUNTER(lp_store_stats, read_bytes, "Bytes of objects that operations have read."),
	COUNTER(lp_store_stats, inode_hits, "Inodes that were found in memory."),
	COUNTER(lp_store_stats, inode_misses, "Inodes that were read from the index."),
	COUNTER(lp_store_stats, index_waits, "Operations that waited for a read of the index."),
	COUNTER(lp_store_stats, space_waits, "Operations that waited for free space."),
	COUNTER(lp_store_stats, bad_marks,
		"Records of used space that could not be read or used when the store was opened."),
	COUNTER(lp_store_stats, commits, "Groups of changes that the log has committed."),
	GAUGE_AS(lp_store_stats, free_blocks, "free_bytes", LPI_UNIT_BLOCKS,
		 "Bytes that are free in the space that the shard has leased."),
	GAUGE_AS(lp_store_stats, kept_blocks, "kept_bytes", LPI_UNIT_BLOCKS,
		 "Bytes of the free ones that are kept for cuts of shared data."),
	GAUGE_AS(lp_store_stats, used_blocks, "used_bytes", LPI_UNIT_BLOCKS,
		 "Bytes that are in use in the space that the shard has leased."),
	GAUGE(lp_store_stats, budget_bytes, "Memory that this shard's store may take."),
	GAUGE(lp_store_stats, nodes_bytes, "Memory of cached inodes and maps."),
	GAUGE(lp_store_stats, nodes_limit_bytes, "Limit of the memory of cached inodes and maps."),
	GAUGE(lp_store_stats, index_cache_bytes, "Memory of the index's block cache."),
	GAUGE(lp_store_stats, index_cache_limit_bytes,
	      "Limit of the memory of the index's block cache."),
	GAUGE(lp_store_stats, memtable_bytes, "Memory of the index's memtables."),
	GAUGE(lp_store_stats, index_filter_bytes,
	      "Memory of the index's filters and tables of contents."),
	GAUGE(lp_store_stats, pools_bytes, "Memory of the pools of operations."),
	GAUGE(lp_store_stats, space_bytes, "Memory that describes the free space."),
	GAUGE(lp_store_stats, data_cache_bytes,
	      "Memory of cached data blocks, those on their way included."),
	GAUGE(lp_store_stats, data_cache_limit_bytes, "Limit of the memory of cached data blocks."),
	COUNTER(lp_store_stats, index_stalls, "Times that the index began to refuse writes."),
	COUNTER(lp_store_stats, index_stops,
		"Times that the index refused writes because nothing more would fit."),
	COUNTER_AS(lp_store_stats, index_stalled_ns, "index_stalled_seconds", LPI_UNIT_NS,
		   "Time in which the index refused writes."),
	COUNTER(lp_store_stats, index_refused,
		"Batches that the index refused, and that had to come again."),
	COUNTER(lp_store_stats, index_flushes, "Memtables that the index has written as tables."),
	COUNTER(lp_store_stats, index_compactions, "Compactions of the index that are done."),
	GAUGE(lp_store_stats, index_flushes_waiting,
	      "Full memtables that are not written as tables yet."),
	GAUGE(lp_store_stats, index_flushing, "Memtables that are being written as tables."),
	GAUGE(lp_store_stats, index_compacting, "Compactions of the index that are at work."),
	GAUGE(lp_store_stats, index_debt_bytes,
	      "Bytes that compactions of the index have still to rewrite."),
	GAUGE(lp_store_stats, index_level0_files, "Tables in the first level of the index."),
	COUNTER(lp_store_stats, deferred_records,
		"Payloads that were put into the index and not into the log."),
	GAUGE(lp_store_stats, bad_blocks,
	      "Blocks that cannot be written, and are held out of use."),
	GAUGE(lp_store_stats, pending_bytes,
	      "Payloads in memory that wait to be written to their place."),
	COUNTER(lp_store_stats, log_writes, "Writes of the log to the device."),
	COUNTER(lp_store_stats, log_bytes, "Bytes that the log has written to the device."),
	COUNTER(lp_store_stats, data_writes,
		"Writes of objects' data to the device, outside of the log."),
	COUNTER(lp_store_stats, data_bytes,
		"Bytes of objects' data written to the device, outside of the log."),
	COUNTER(lp_store_stats, data_reads, "Reads of objects' data from the device."),
	COUNTER(lp_store_stats, data_read_bytes, "Bytes of objects' data read from the device."),
	COUNTER(lp_store_stats, index_reads,
		"Reads of the index from the device by the shard's own thread."),
	COUNTER(lp_store_stats, index_read_bytes,
		"Bytes of the index read from the device by the shard's own thread."),
	COUNTER(lp_store_stats, flushes, "Flushes of the device by the shard's own thread."),
	COUNTER(lp_store_stats, data_hits, "Data blocks that were found in memory."),
	COUNTER(lp_store_stats, data_misses, "Data blocks that were read from the device."),
	COUNTER(lp_store_stats, ahead_reads,
		"Reads of the device for data that nobody had asked for yet."),
	COUNTER_AS(lp_store_stats, ahead_blocks, "ahead_bytes", LPI_UNIT_BLOCKS,
		   "Bytes read ahead of being asked for."),
	COUNTER_AS(lp_store_stats, ahead_used, "ahead_used_blocks", LPI_UNIT_ONE,
		   "Blocks read ahead that were asked for later."),
	COUNTER_AS(lp_store_stats, ahead_wasted, "ahead_wasted_blocks", LPI_UNIT_ONE,
		   "Blocks read ahead that were dropped before anybody asked for them."),
	COUNTER(lp_store_stats, ahead_waits,
		"Reads that waited for data that was being read ahead."),
};
const struct lpi_counter_table lpi_store_counters = {store_items, LP_ARRAY_SIZE(store_items)};

static const struct lpi_counter ns_items[] = {
	COUNTER(lp_ns_stats, remote_calls, "Calls that this shard has made to other shards."),
	COUNTER(lp_ns_stats, local_txns, "Transactions on this shard alone."),
	COUNTER(lp_ns_stats, shared_txns, "Transactions over several shards."),
	COUNTER(lp_ns_stats, finish_retries,
		"Times that the end of a shared transaction found no space and was tried again."),
	COUNTER(lp_ns_stats, freeing_waits,
		"Operations that found no space and waited for space that was being freed."),
	GAUGE(lp_ns_stats, stuck,
	      "Shared transactions that only the next start of the daemon can end."),
	COUNTER(lp_ns_stats, lock_waits, "Operations that waited for a lock of another one."),
	GAUGE(lp_ns_stats, opens, "Inodes that are open."),
	GAUGE(lp_ns_stats, orphans, "Inodes without a name that are still open."),
	GAUGE(lp_ns_stats, held, "Inodes that the mount's kernel knows of."),
	GAUGE(lp_ns_stats, held_bytes, "Memory for the inodes that the mount's kernel knows of."),
	COUNTER(lp_ns_stats, held_uncounted,
		"Inodes told to the kernel that could not be counted for want of memory."),
	COUNTER(lp_ns_stats, held_unbalanced,
		"Inodes that the kernel has forgotten more often than it was told of them."),
	GAUGE(lp_ns_stats, queued, "Operations that wait for others to end."),
	COUNTER(lp_ns_stats, told, "Changes that the mount's kernel was told of."),
	COUNTER(lp_ns_stats, told_late,
		"Operations whose answer did not wait for the kernel, after 2 seconds."),
	COUNTER(lp_ns_stats, untold, "Changes that the mount's kernel could not be told of."),
	COUNTER(lp_ns_stats, cache_hits, "Names that were found in memory."),
	COUNTER(lp_ns_stats, cache_misses, "Names that were looked up in the store."),
};
const struct lpi_counter_table lpi_ns_counters = {ns_items, LP_ARRAY_SIZE(ns_items)};

static const struct lpi_counter door_items[] = {
	GAUGE_AS(lp_door_stats, conns, "open", LPI_UNIT_ONE, "Connections that are open."),
	COUNTER_AS(lp_door_stats, conns_total, "accepted", LPI_UNIT_ONE,
		   "Connections that were accepted."),
	COUNTER_AS(lp_door_stats, conns_refused, "refused", LPI_UNIT_ONE,
		   "Connections that were refused."),
	COUNTER(lp_door_stats, received_bytes, "Bytes received from clients."),
	COUNTER(lp_door_stats, sent_bytes, "Bytes sent to clients."),
	COUNTER(lp_door_stats, receives, "Receives of sockets."),
	COUNTER(lp_door_stats, sends, "Sends on sockets."),
	GAUGE(lp_door_stats, requests_under_way,
	      "Requests that have come and are not answered yet."),
	COUNTER(lp_door_stats, throttled,
		"Times that a socket was not read for want of requests or credits."),
	COUNTER(lp_door_stats, bad_messages, "Messages that broke the protocol."),
	COUNTER(lp_door_stats, timeouts,
		"Connections that ended because the client was silent for too long."),
	COUNTER(lp_door_stats, shared_replies,
		"Replies whose data was handed over in shared memory."),
	COUNTER(lp_door_stats, shared_bytes,
		"Bytes handed over in shared memory. They are not in the sent ones."),
	GAUGE(lp_door_stats, share_bytes, "Memory that is shared with clients."),
	COUNTER_AS(lp_door_stats, conns_gave_way, "gave_way", LPI_UNIT_ONE,
		   "Idle connections that were closed to make place for others."),
	GAUGE(lp_door_stats, users, "Users that have connections."),
	LIMIT(limits_conns, "conns"),
	LIMIT(limits_requests, "requests"),
	LIMIT(limits_pieces, "pieces"),
	LIMIT(limits_opens, "opens"),
	LIMIT(limits_coming, "coming"),
	LIMIT(limits_going, "going"),
	LIMIT(limits_meta, "meta"),
	LIMIT(limits_shared, "shared"),
	LIMIT(limits_stash, "stash"),
};
const struct lpi_counter_table lpi_door_counters = {door_items, LP_ARRAY_SIZE(door_items)};

static const struct lpi_counter reactor_items[] = {
	COUNTER(lp_reactor_stats, turns, "Turns of the event loop."),
	COUNTER(lp_reactor_stats, enters, "System calls of the event loop on its ring."),
	COUNTER(lp_reactor_stats, sleeps,
		"System calls of the event loop that were allowed to sleep."),
	COUNTER(lp_reactor_stats, spins_won,
		"Times that something came while the event loop looked for it without sleeping."),
	COUNTER(lp_reactor_stats, spins_lost,
		"Times that nothing came while the event loop looked for it without sleeping."),
	COUNTER(lp_reactor_stats, ios, "Completions of input and output."),
	COUNTER(lp_reactor_stats, msgs, "Messages from other threads."),
	COUNTER(lp_reactor_stats, wakes_sent, "Times that this thread has woken another one."),
	COUNTER(lp_reactor_stats, absences, "Turns of the event loop that took too long."),
	COUNTER(lp_reactor_stats, absences_preempted,
		"Turns that took too long and in which the scheduler took the CPU away."),
	COUNTER(lp_reactor_stats, absences_blocked,
		"Turns that took too long and in which a system call blocked."),
	GAUGE_AS(lp_reactor_stats, absence_max_ns, "absence_max_seconds", LPI_UNIT_NS,
		 "Longest turn of the event loop."),
	GAUGE_AS(lp_reactor_stats, absence_own_max_ns, "absence_own_max_seconds", LPI_UNIT_NS,
		 "Most CPU time of one turn of the event loop that took too long."),
};
const struct lpi_counter_table lpi_reactor_counters = {reactor_items, LP_ARRAY_SIZE(reactor_items)};

static const struct lpi_counter bufs_items[] = {
	GAUGE(lp_bufs_stats, region_bytes, "Memory for input and output buffers."),
	GAUGE(lp_bufs_stats, used_bytes, "Memory of the buffers that are in use."),
	GAUGE(lp_bufs_stats, used_max_bytes, "Most memory of buffers that was in use at a time."),
	COUNTER_AS(lp_bufs_stats, failed_cnt, "failed", LPI_UNIT_ONE,
		   "Times that no buffer could be had."),
};
const struct lpi_counter_table lpi_bufs_counters = {bufs_items, LP_ARRAY_SIZE(bufs_items)};

static const struct lpi_counter workers_items[] = {
	COUNTER(lp_workers_stats, submitted, "Jobs given to the helper threads."),
	COUNTER(lp_workers_stats, ran, "Jobs that helper threads have done."),
	NARROW_GAUGE(lp_workers_stats, queued, "Jobs that wait for a helper thread."),
	NARROW_GAUGE(lp_workers_stats, running, "Jobs that helper threads are doing."),
	NARROW_GAUGE(lp_workers_stats, queued_max,
		     "Most jobs that have waited for a helper thread at a time."),
	NARROW(lp_workers_stats, wakes, "Times that a sleeping helper thread was woken."),
};
const struct lpi_counter_table lpi_workers_counters = {workers_items, LP_ARRAY_SIZE(workers_items)};

static const struct lpi_counter log_items[] = {
	COUNTER(lp_log_stats, lines, "Lines written to the daemon's log."),
	COUNTER(lp_log_stats, suppressed,
		"Lines that the rate limit has kept from the daemon's log."),
	COUNTER(lp_log_stats, dropped,
		"Lines of the daemon's log that were lost for want of room or by an error."),
};
const struct lpi_counter_table lpi_log_counters = {log_items, LP_ARRAY_SIZE(log_items)};

static const struct lpi_counter scrub_items[] = {
	COUNTER(lp_scrub_sum, passes, "Passes over all data that the scrubber has ended."),
	COUNTER(lp_scrub_sum, objects, "Objects that the scrubber has read."),
	COUNTER(lp_scrub_sum, bytes, "Bytes that the scrubber has read."),
	COUNTER(lp_scrub_sum, damaged, "Times that the scrubber has found damage."),
};
static const struct lpi_counter damage_items[] = {
	GAUGE(lpi_damage_stats, objects, "Objects that are known to be damaged."),
	COUNTER(lpi_damage_stats, found, "Objects that were found to be damaged."),
	COUNTER(lpi_damage_stats, beyond,
		"Times that a damaged object found no room in the list of them."),
};

const struct lpi_counter_table lpi_damage_counters = {damage_items, LP_ARRAY_SIZE(damage_items)};

const struct lpi_counter_table lpi_scrub_counters = {scrub_items, LP_ARRAY_SIZE(scrub_items)};

static const struct lpi_counter mount_items[] = {
	NARROW_GAUGE(lp_fuse_channel_stats, under_way,
		     "Requests of the mount's kernel that are not answered yet."),
	COUNTER(lp_fuse_channel_stats, refused,
		"Requests of the mount's kernel that broke the protocol."),
	COUNTER(lp_fuse_channel_stats, reads,
		"System calls that read requests of the mount's kernel."),
	COUNTER(lp_fuse_channel_stats, throttled,
		"Times that the mount waited for buffers or requests."),
	COUNTER(lp_fuse_channel_stats, roomless,
		"Times that a request of the mount waited for room for its answer."),
	COUNTER(lp_fuse_channel_stats, dropped,
		"Writes behind which the kernel was made to drop pages."),
	COUNTER(lp_fuse_channel_stats, dropped_late,
		"Writes that were answered before the kernel had dropped pages."),
	COUNTER(lp_fuse_channel_stats, read_bytes, "Bytes read through the mount."),
	COUNTER(lp_fuse_channel_stats, written_bytes, "Bytes written through the mount."),
	COUNTER(lp_fuse_channel_stats, ring_requests, "Requests that came by io_uring."),
	COUNTER(lp_fuse_channel_stats, handed_over,
		"Requests read by one thread and done by another."),
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
