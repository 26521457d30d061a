# SPDX-License-Identifier: Apache-2.0
"""The figures that runs report: what each is called, its unit, and whether more of it is better."""


class Metric:
    def __init__(self, label, unit, better, is_count=False, is_speed=True):
        self.label = label
        self.unit = unit
        self.better = better  # 1: more, -1: less, 0: neither
        self.is_count = is_count  # exact, where one operation is made after the other
        # A quicker machine changes it. Counts are among these: how many operations share a write depends on how
        # quick it is, and so does the memory that a backlog takes that was written for so many seconds.
        self.is_speed = is_speed

    @property
    def heading(self):
        return f"{self.label} ({self.unit})" if self.unit else self.label


METRICS = {
    "iops": Metric("rate", "operations/s", 1),
    "settled_iops": Metric("rate, with the time until all is in its place", "operations/s", 1),
    "mb_per_s": Metric("throughput", "MB/s", 1),
    "raw_ratio": Metric("rate against the raw device", "ratio", 1, is_speed=False),
    "mean_us": Metric("mean latency", "µs", -1),
    "p50_us": Metric("median latency", "µs", -1),
    "p99_us": Metric("latency, 99 %", "µs", -1),
    "p999_us": Metric("latency, 99.9 %", "µs", -1),
    "thread_us": Metric("CPU of the shards' threads", "µs/operation", -1),
    "cpu_us": Metric("CPU of the whole process", "µs/operation", -1),
    "client_us": Metric("CPU of the client", "µs/operation", -1),
    "rss_mib": Metric("resident memory at the end", "MiB", -1, is_speed=False),
    "rss_max_mib": Metric("resident memory at most", "MiB", -1, is_speed=False),
    "accounted_mib": Metric("memory that the daemon accounts for", "MiB", 0, is_speed=False),
    "rss_over_accounted": Metric("resident against accounted memory", "ratio", -1, is_speed=False),
    "minor_faults": Metric("page faults", "per operation", -1),
    "log_writes": Metric("writes of the log", "per operation", -1, True),
    "data_writes": Metric("writes of data to their place", "per operation", -1, True),
    "index_writes": Metric("writes of the index", "per operation", -1, True),
    "device_writes": Metric("writes of the device", "per operation", -1, True),
    "device_reads": Metric("reads of the device", "per operation", -1, True),
    "flushes": Metric("flushes of the device", "per operation", -1, True),
    "written_bytes": Metric("bytes written for each byte of payload", "ratio", -1, True),
    "settled_bytes": Metric("bytes written for each byte, until all is in its place", "ratio", -1, True),
    "calls": Metric("system calls of the shards' threads", "per operation", -1, True),
    "index_waits": Metric("waits for the index", "per 1000 operations", -1, True),
    "stalled_share": Metric("time in which RocksDB refused writes", "share", -1),
    "stalls": Metric("times that RocksDB began to refuse writes", "per run", -1),
    "client_sends": Metric("sends of the client", "per operation", -1, True),
    "client_receives": Metric("receives of the client", "per operation", -1, True),
    "door_sends": Metric("sends of the daemon", "per operation", -1, True),
    "door_receives": Metric("receives of the daemon", "per operation", -1, True),
    "write_mb_per_s": Metric("sequential writing by blocks", "MB/s", 1),
    "rewrite_mb_per_s": Metric("reading and writing again, by blocks", "MB/s", 1),
    "read_mb_per_s": Metric("sequential reading by blocks", "MB/s", 1),
    "seeks_per_s": Metric("random seeks, some with a write", "1/s", 1),
    "create_per_s": Metric("files made, in order", "1/s", 1),
    "stat_per_s": Metric("files looked at, in order", "1/s", 1),
    "delete_per_s": Metric("files removed, in order", "1/s", 1),
    "random_create_per_s": Metric("files made, at random", "1/s", 1),
    "random_stat_per_s": Metric("files looked at, at random", "1/s", 1),
    "random_delete_per_s": Metric("files removed, at random", "1/s", 1),
    "shared_direct": Metric("writes that took the direct path", "share", 0, True),
    "late": Metric("operations for which the device was slower than the delay", "share", -1),
    "take_ns": Metric("taking a block, fresh device", "ns", -1),
    "aged_take_ns": Metric("taking a block, aged device", "ns", -1),
    "release_ns": Metric("giving back a block, fresh device", "ns", -1),
    "aged_release_ns": Metric("giving back a block, aged device", "ns", -1),
    "churn_ns": Metric("removing objects and making others", "ns for 1 MiB", -1),
    "pieces": Metric("extents of an object that was made", "", -1, True),
    "score": Metric("fragmentation of the free space", "0 to 1", -1, True),
    "runs": Metric("runs of free blocks", "", -1, True),
    "memory_mib": Metric("memory of the allocator", "MiB", -1, True),
    "aged_ratio": Metric("throughput of the aged store against a fresh one", "ratio", 1, is_speed=False),
    "aged_mb_per_s": Metric("throughput of the aged store", "MB/s", 1),
    "fresh_mb_per_s": Metric("throughput of the fresh store", "MB/s", 1),
    "aged_cpu_us_per_mib": Metric("CPU of the aged store's thread", "µs/MiB", -1),
    "aged_reads": Metric("reads of the device, aged store", "per object", -1, True),
    "aged_writes": Metric("writes of the device, aged store", "per object", -1, True),
    "largest_run_kib": Metric("longest free run", "KiB", 1, True),
    "update_cpu_ns": Metric("CPU of one update", "ns", -1),
    "update_wall_ns": Metric("time between two updates, of all threads together", "ns", -1),
    "ready_s": Metric("time from start to ready", "s", -1),
    "before_kill_mib": Metric("resident memory before the kill", "MiB", -1),
    "replay_rss_mib": Metric("resident memory at most until ready", "MiB", -1),
    "catchup_rss_mib": Metric("resident memory at most afterwards", "MiB", -1),
    "after_rss_mib": Metric("resident memory at the end", "MiB", -1),
    "backlog_mib": Metric("deferred data waiting at the kill", "MiB", 0),
}

# Of the time lines, which have no cell's figure.
SERIES = {
    "rss_mib": ("resident memory", "MiB"),
    "minor_faults_per_s": ("page faults without I/O", "1/s"),
    "major_faults_per_s": ("page faults with I/O", "1/s"),
    "cpu_shards": ("CPU of the shards' threads", "cores"),
    "cpu_control": ("CPU of the main thread", "cores"),
    "cpu_helpers": ("CPU of the helper threads", "cores"),
    "cpu_index": ("CPU of the index's threads", "cores"),
    "cpu_other": ("CPU of other threads", "cores"),
    "daemon.ops_per_s": ("operations", "1/s"),
    "daemon.device_writes_per_s": ("writes of the device", "1/s"),
    "daemon.device_reads_per_s": ("reads of the device", "1/s"),
    "daemon.flushes_per_s": ("flushes", "1/s"),
    "daemon.written_mib_per_s": ("written by the store", "MiB/s"),
    "daemon.index_waits_per_s": ("operations that waited for the index", "1/s"),
    "daemon.index_stalled": ("time in which RocksDB refused writes", "share"),
    "daemon.index_stalls_per_s": ("times that RocksDB began to refuse writes", "1/s"),
    "daemon.index_stops_per_s": ("times that RocksDB would take none at all", "1/s"),
    "daemon.index_refused_per_s": ("batches that RocksDB refused", "1/s"),
    "daemon.index_flushes_waiting": ("memtables waiting for their flush", "number"),
    "daemon.index_compacting": ("compactions at work", "number"),
    "daemon.index_debt_mib": ("what compactions have still to rewrite", "MiB"),
    "daemon.index_level0_files": ("tables in level 0", "number"),
    "daemon.pending_mib": ("deferred data not yet in its place", "MiB"),
    "daemon.accounted_mib": ("memory that the daemon accounts for", "MiB"),
    "daemon.heap_used_mib": ("heap in use", "MiB"),
    "daemon.heap_held_mib": ("heap held", "MiB"),
}
