# SPDX-License-Identifier: Apache-2.0
"""Looks at a running process again and again: CPU by group of threads, memory, faults, and, when it is
a daemon, what it says of its devices and index.

What /proc says costs next to nothing; the daemon is asked at most once a second, for its answer takes it some
milliseconds.
"""
import contextlib
import os
import threading
import time

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
MIB = 1 << 20
STATS_S = 1.0
# The name a thread begins with, and what it is called here.
GROUPS = (("lapisd-", "shards"), ("lapisd", "control"), ("lapis", "shards"), ("lp-", "helpers"), ("rocksdb", "index"))
ACCOUNTED = ("nodes_bytes", "index_cache_bytes", "memtable_bytes", "index_filter_bytes", "pools_bytes",
             "space_bytes", "data_cache_bytes")


# What RocksDB says of itself.
INDEX = ("index_stalls", "index_stops", "index_stalled_ns", "index_refused", "index_flushes", "index_compactions",
         "index_flushes_waiting", "index_flushing", "index_compacting", "index_debt_bytes", "index_level0_files")


def group_of(name):
    for head, group in GROUPS:
        if name.startswith(head):
            return group
    return "other"


def cpu_by_thread(pid):
    """{thread: (group, microseconds)}"""
    used = {}
    for tid in os.listdir(f"/proc/{pid}/task"):
        # One may end meanwhile.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            base = f"/proc/{pid}/task/{tid}"
            with open(f"{base}/comm", encoding="utf-8") as name, open(f"{base}/schedstat", encoding="utf-8") as stat:
                used[tid] = (group_of(name.read().strip()), int(stat.read().split()[0]) / 1000)
    return used


def cpu_between(before, after):
    """Microseconds by group of threads."""
    spent = {}
    for tid, (group, us) in after.items():
        spent[group] = spent.get(group, 0) + us - before.get(tid, (group, 0))[1]
    return spent


def memory_of(pid):
    """Resident bytes, and page faults so far: without and with I/O."""
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        rss = int(file.read().split()[1]) * PAGE_BYTES
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return rss, int(fields[7]), int(fields[9])


def of_stats(stats):
    """The sums that are looked at, over all shards and devices."""
    shards = [shard["store"] for shard in stats["shards"]]
    found = {name: sum(shard[name] for shard in shards)
             for name in ("log_writes", "log_bytes", "data_writes", "data_bytes", "data_reads", "data_read_bytes", "index_reads",
                          "flushes", "index_waits", "space_waits", "pending_bytes", "commits", *INDEX)}
    found["index_writes"] = sum(device["index_writes"] for device in stats["devices"])
    found["calls"] = (sum(thread["reactor"]["enters"] + thread["reactor"]["wakes_sent"] for thread in stats["threads"]) +
                      sum(shard["connections"]["receives"] for shard in stats["shards"]))
    found["door_sends"] = sum(shard["connections"]["sends"] for shard in stats["shards"])
    found["door_receives"] = sum(shard["connections"]["receives"] for shard in stats["shards"])
    found["accounted_bytes"] = (sum(shard.get(name, 0) for shard in shards for name in ACCOUNTED) +
                                # All of it: the kernel holds the pages of registered buffers.
                                sum(thread["buffers"]["region_bytes"] for thread in stats["threads"]))
    found["heap_used_bytes"] = stats["process"]["heap_used_bytes"]
    found["heap_held_bytes"] = stats["process"]["heap_held_bytes"]
    found["ops"] = sum(op["count"] for name, op in stats["ops"].items() if name not in ("hello", "stats", "admin"))
    return found


class Sampler:
    """A thread of ours that looks every `seconds`, from start() to stop()."""

    def __init__(self, pid, seconds, stats=None):
        self.pid = pid
        self.seconds = seconds
        self.stats = stats
        self.rows = []
        self.end = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)

    def start(self):
        self.began = time.monotonic()
        self.asked = self.began - STATS_S
        self.thread.start()
        return self

    def run(self):
        while True:
            # The process may end before it is told that we look no more.
            with contextlib.suppress(OSError, IndexError):
                self.rows.append(self.look())
            if self.end.wait(self.seconds):
                return

    def look(self):
        now = time.monotonic()
        cpu = {}
        for group, us in cpu_by_thread(self.pid).values():
            cpu[group] = cpu.get(group, 0) + us
        rss, minor, major = memory_of(self.pid)
        row = {"t": now - self.began, "cpu": cpu, "rss": rss, "minor": minor, "major": major}
        if self.stats is not None and now - self.asked >= STATS_S:
            self.asked = now
            # A daemon that is being killed answers as it likes.
            with contextlib.suppress(Exception, SystemExit):
                row["stats"] = of_stats(self.stats())
        return row

    def stop(self):
        """What was seen, as columns; rates are those since the row before."""
        self.end.set()
        self.thread.join()
        return columns(self.rows)


def columns(rows):
    found = {"t_s": [], "rss_mib": [], "minor_faults_per_s": [], "major_faults_per_s": []}
    groups = sorted({group for row in rows for group in row["cpu"]})
    for group in groups:
        found[f"cpu_{group}"] = []
    for before, row in zip(rows, rows[1:]):
        took = max(1e-6, row["t"] - before["t"])
        found["t_s"].append(round(row["t"], 3))
        found["rss_mib"].append(round(row["rss"] / MIB, 2))
        found["minor_faults_per_s"].append(round((row["minor"] - before["minor"]) / took, 1))
        found["major_faults_per_s"].append(round((row["major"] - before["major"]) / took, 1))
        for group in groups:
            spent = row["cpu"].get(group, 0) - before["cpu"].get(group, 0)
            found[f"cpu_{group}"].append(round(max(0.0, spent) / took / 1e6, 4))
    return {**found, "daemon": of_daemon([row for row in rows if "stats" in row])}


def of_daemon(rows):
    if len(rows) < 2:
        return {}
    found = {"t_s": [], "ops_per_s": [], "device_writes_per_s": [], "device_reads_per_s": [], "flushes_per_s": [],
             "written_mib_per_s": [], "index_waits_per_s": [], "index_stalled": [],
             "index_stalls_per_s": [], "index_stops_per_s": [], "index_refused_per_s": [], "index_flushes_waiting": [],
             "index_compacting": [], "index_debt_mib": [], "index_level0_files": [], "pending_mib": [], "accounted_mib": [],
             "heap_used_mib": [], "heap_held_mib": []}
    for before, row in zip(rows, rows[1:]):
        took = max(1e-6, row["t"] - before["t"])
        old, new = before["stats"], row["stats"]

        def rate(*names, by=1.0):
            return round(sum(new[name] - old[name] for name in names) / took / by, 3)

        found["t_s"].append(round(row["t"], 3))
        found["ops_per_s"].append(rate("ops"))
        found["device_writes_per_s"].append(rate("log_writes", "data_writes", "index_writes"))
        found["device_reads_per_s"].append(rate("data_reads", "index_reads"))
        found["flushes_per_s"].append(rate("flushes"))
        found["written_mib_per_s"].append(rate("log_bytes", "data_bytes", by=MIB))
        found["index_waits_per_s"].append(rate("index_waits"))
        found["index_stalled"].append(rate("index_stalled_ns", by=1e9))
        for name in ("stalls", "stops", "refused"):
            found[f"index_{name}_per_s"].append(rate(f"index_{name}"))
        for name in ("flushes_waiting", "compacting", "level0_files"):
            found[f"index_{name}"].append(new[f"index_{name}"])
        found["index_debt_mib"].append(round(new["index_debt_bytes"] / MIB, 2))
        for name in ("pending", "accounted", "heap_used", "heap_held"):
            found[f"{name}_mib"].append(round(new[f"{name}_bytes"] / MIB, 2))
    return found
