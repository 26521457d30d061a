# SPDX-License-Identifier: Apache-2.0
"""A daemon and its load, for the benchmarks and counts of the daemon."""
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time

import storebench

SETTLE_S = 3
READY_S = 60


class Daemon:
    """A daemon that was started here, and what it has used so far."""

    def __init__(self, build, where, device, memory, options, environment=None, store=None):
        self.build = build
        self.unix = f"unix:{where}/sock"
        self.tcp = None
        self.log = open(os.path.join(where, "log"), "a+", encoding="utf-8")
        call = [f"{build}/bin/lapisd", "--listen", self.unix, "--listen", "tcp:127.0.0.1:0",
                "--memory", memory, *options, "--store", store or ("block" if device else "mem"), *([device] if device else [])]
        self.process = subprocess.Popen(call, stdout=self.log, stderr=self.log,
                                        env={**os.environ, **(environment or {})})

    def wait_ready(self):
        until = time.monotonic() + READY_S
        while time.monotonic() < until and self.process.poll() is None:
            self.log.seek(0)
            text = self.log.read()
            if "lapisd: ready" in text:
                self.tcp = "tcp:" + text.rsplit("listening on tcp:", 1)[1].split()[0]
                return
            time.sleep(0.02)
        sys.exit(f"the daemon did not get ready: {text}")

    def stop(self):
        self.process.terminate()
        try:
            status = self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self.log.close()
        if status != 0:
            sys.exit(f"the daemon ended with status {status}")

    def cpu_us(self):
        """Of each thread."""
        used = {}
        for tid in os.listdir(f"/proc/{self.process.pid}/task"):
            # One may end meanwhile.
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                base = f"/proc/{self.process.pid}/task/{tid}"
                with open(f"{base}/comm", encoding="utf-8") as name, \
                        open(f"{base}/schedstat", encoding="utf-8") as stat:
                    used[tid] = (name.read().strip(), int(stat.read().split()[0]) / 1000)
        return used

    def stats(self):
        return json.loads(storebench.quiet([f"{self.build}/bin/lapis", "-s", self.unix, "stats", "--json"]))

    def settle(self):
        """Until what was deferred is in its place, or no more of it goes there."""
        before = None
        for _ in range(int(SETTLE_S / 0.25)):
            pending = sum(shard["store"]["pending_bytes"] for shard in self.stats()["shards"])
            if pending in (0, before):
                return
            before = pending
            time.sleep(0.25)

    def load(self, *options, address=None, seconds):
        """One run of the load generator: its report, with the daemon's CPU and counts beside it."""
        counts, before = self.stats(), self.cpu_us()
        done = load(self.build, "--address", address or self.unix, "--seconds", str(seconds), *options)
        # First of all, for asking costs time, too.
        after, end = self.cpu_us(), self.stats()
        spent = {tid: us - before.get(tid, (name, 0))[1] for tid, (name, us) in after.items()}
        ops = max(1, done["ops"])
        done["shard_us"] = sum(us for tid, us in spent.items() if after[tid][0].startswith("lapisd-")) / ops
        done["all_us"] = sum(spent.values()) / ops
        done["counts"] = {name: (total(end)[name] - total(counts)[name]) / ops for name in total(end)}
        done["rss_bytes"] = end["process"]["rss_bytes"]
        return done


def total(stats):
    """What all shards and devices counted."""
    sums = {name: sum(shard["store"][field] for shard in stats["shards"])
            for name, field in (("log", "log_writes"), ("data", "data_writes"), ("read", "data_reads"))}
    sums["index"] = sum(device["index_writes"] for device in stats["devices"])
    # What the shards' threads ask of the kernel: their rings, receives, wakes of others.
    sums["calls"] = (sum(thread["reactor"]["enters"] + thread["reactor"]["wakes_sent"] for thread in stats["threads"]) +
                     sum(shard["connections"]["receives"] for shard in stats["shards"]))
    return sums


def load(build, *options):
    return json.loads(storebench.quiet([f"{build}/tools/daemon_load", *options]))


@contextlib.contextmanager
def daemon(build, device, memory, options, environment=None):
    """A daemon that is ready; without a device its store is in memory."""
    with tempfile.TemporaryDirectory(prefix="lapis-daemon-") as where:
        one = Daemon(build, where, device, memory, options, environment)
        try:
            one.wait_ready()
            yield one
        finally:
            one.stop()
