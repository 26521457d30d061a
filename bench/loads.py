# SPDX-License-Identifier: Apache-2.0
"""The kinds of load an experiment can have, one class each.

A kind says which options its variants and its load may have (`variant_options`, `load_options`), which
figures are shown when the experiment does not say (`metrics`), and run() does one run on a fresh store: it
returns one Outcome, or several from a program that measures several cells at once (`own_factors`).
"""
import contextlib
import math
import os
import shutil
import tempfile
import threading
import time

import daemonbench
from experiment import size_bytes
from rig import Failed, Skipped, call, call_json
from sampler import Sampler, cpu_between, cpu_by_thread, of_stats

MIB = 1 << 20
SAMPLE_S = 1.0
SAMPLES_LEAST = 8
PERCENTILES = (("p50", 50.0), ("p95", 95.0), ("p99", 99.0), ("p999", 99.9), ("max", 100.0))
CURVE = (1, 10, 25, 50, 75, 90, 95, 98, 99, 99.5, 99.8, 99.9, 99.95, 99.98, 99.99, 100)
# What a raw device does that has the same to do; None: nothing comparable.
RAW = {"overwrite": "write-through", "create": "write-through", "write": "write-through", "seqwrite": "write-through",
       "randwrite": "write-through", "put": "write-through", "read": "read", "seqread": "read", "randread": "read",
       "get": "read"}


class Outcome:
    """What one run says of one cell."""

    def __init__(self, metrics, **more):
        self.metrics = {name: value for name, value in metrics.items() if value is not None and math.isfinite(value)}
        self.factors = more.get("factors", {})
        self.percentiles = more.get("percentiles", [])
        self.series = more.get("series", {})
        self.report = more.get("report", {})


def sample_seconds(seconds):
    return min(SAMPLE_S, seconds / SAMPLES_LEAST)


def flags(options, *left_out):
    """--name value, for all but those that are no option of the program."""
    found = []
    for name, value in options.items():
        if name not in left_out:
            found += [f"--{name}", str(value)]
    return found


def percentiles_of(report):
    """Points (percent, microseconds): of the histogram where there is one, else the usual five."""
    buckets = report.get("histogram_ns")
    if buckets:
        return curve_of(buckets)
    return [[percent, report["latency_us"][name]] for name, percent in PERCENTILES]


def curve_of(buckets):
    """Of buckets (from, to, how many), ascending: the upper end of the one in which each share of all lies."""
    total = sum(bucket[2] for bucket in buckets)
    wanted, points, seen = list(CURVE), [], 0
    for _, upper, cnt in buckets:
        seen += cnt
        while wanted and seen >= total * wanted[0] / 100:
            points.append([wanted.pop(0), upper / 1000])
    return points


def latency_of(report):
    return {f"{name}_us": report["latency_us"][name] for name in ("mean", "p50", "p99", "p999")}


class Kind:
    name = ""
    variant_options = ()
    load_options = ()
    metrics = ()
    own_factors = ()
    settings = ()
    has_raw = False
    has_seconds = True  # else it takes as long as it takes
    needs_twins = False  # it uses two devices, of one size

    def run(self, rig, cell, seconds, seed):
        raise NotImplementedError

    def raw_of(self, cell):
        """What the raw device must do that this is measured against, as limits.raw() wants it, or None."""
        op = RAW.get(str(cell.load.get("op", "")))
        if not self.has_raw or op is None or cell.variant.get("store") == "mem":
            return None
        connections = int(cell.load.get("connections", 1))
        depth = int(cell.load.get("depth", 1)) * connections
        span = size_bytes(cell.load.get("object-size", 0)) * int(cell.load.get("objects", 1)) * connections
        return (op, cell.load.get("size", "4K"), depth, str(cell.variant.get("delay", "none")), cell.variant.get("device"),
                None if cell.load["op"] == "create" else span)

    @staticmethod
    def device(rig, cell):
        return rig.device(0, cell.variant.get("device"))


def environment(cell):
    return {name: str(value) for name, value in cell.variant.get("env", {}).items()}


# --- The store, without a daemon --------------------------------------------------------------------------------


class Store(Kind):
    """`lapis store-bench`: one shard, one thread."""

    name = "store"
    variant_options = ("malloc", "env", "device", "log-size", "write-path", "deferred-store", "allocator", "store", "delay",
                       "memory", "data-cache", "spin-us")
    load_options = ("op", "size", "depth", "objects", "object-size", "ops")
    metrics = ("iops", "p50_us", "p99_us", "thread_us", "cpu_us", "device_writes", "settled_bytes")
    settings = ("warm-up",)
    has_raw = True

    def run(self, rig, cell, seconds, seed):
        in_memory = cell.variant.get("store") == "mem"
        build = rig.build_of(cell.variant.get("malloc", "glibc"))
        command = [f"{build}/bin/lapis", "store-bench", "--json", "--seed", str(seed),
                   *flags(cell.variant, "malloc", "env", "device", "log-size"), *flags(cell.load)]
        if "ops" not in cell.load:
            command += ["--seconds", f"{seconds:g}"]
            if "warm-up" in rig.part.settings:
                command += ["--warmup", f"{seconds * float(rig.part.settings['warm-up']):g}"]
        if not in_memory:
            rig.mkfs(self.device(rig, cell), log_size=cell.variant.get("log-size"))
            command.append(self.device(rig, cell))
        report = call_json(command, environment(cell))
        if report["errors"] or not report["ops"]:
            raise Failed(f"{report['errors']} errors in {report['ops']} operations")
        return [Outcome(self.figures(report), percentiles=percentiles_of(report), report=report)]

    @staticmethod
    def figures(report):
        ops, per_op, device = report["ops"], report["per_op"], report["device"]
        payload = report["size"] if report["writes"] else None
        paths = sum(report["paths"].values())
        found = {
            "iops": report["iops"], "mb_per_s": report["bytes_per_s"] / 1e6, **latency_of(report),
            "thread_us": report["cpu_us_per_op"]["thread"], "cpu_us": report["cpu_us_per_op"]["process"],
            "log_writes": per_op["log_writes"], "data_writes": per_op["data_writes"],
            "index_writes": per_op["background_writes"], "device_reads": per_op["data_reads"],
            "device_writes": per_op["log_writes"] + per_op["data_writes"] + per_op["background_writes"],
            "flushes": (device["flushes"] + device["background_flushes"]) / ops, "calls": per_op["enters"],
            "index_waits": report["index_waits"] / ops * 1000, "score": report["free_score"],
        }
        if payload:
            found["written_bytes"] = per_op["written_bytes"] / payload
        if payload and per_op["settled_bytes"]:
            found["settled_bytes"] = per_op["settled_bytes"] / payload
        if "settled_iops" in report:
            found["settled_iops"] = report["settled_iops"]
        if device["late_ops"]:
            found["late"] = device["late_ops"] / device["ops"]
        elif report["delay"] != "none":
            found["late"] = 0
        if paths:
            found["shared_direct"] = report["paths"]["direct"] / paths
        return found


# --- The daemon -------------------------------------------------------------------------------------------------


class Daemon(Kind):
    """lapisd, and load by daemon_load through a socket."""

    name = "daemon"
    variant_options = ("malloc", "env", "device", "log-size", "write-path", "deferred-store", "allocator", "store", "memory",
                       "threads", "shards", "crc", "requests-max", "request-memory", "replies", "spin-us", "workers",
                       "credits", "transport", "client-crc", "spread", "tcp-nodelay", "socket-buffer")
    load_options = ("op", "size", "depth", "connections", "object-size", "rate", "order", "sends", "nodelay", "quickack",
                    "socket-buffer")
    metrics = ("iops", "p50_us", "p99_us", "thread_us", "cpu_us", "client_us", "rss_max_mib", "device_writes")
    settings = ("warm-up",)
    has_raw = True
    not_for_lapisd = ("malloc", "env", "device", "log-size", "shards", "store", "memory", "transport", "client-crc", "spread",
                      "threads")

    def run(self, rig, cell, seconds, seed):
        with self.started(rig, cell) as one:
            if "spread" in cell.variant:
                spread = [] if cell.variant["spread"] == "yes" else ["--no-spread"]
                call([f"{rig.build}/bin/lapis", "-s", one.unix, "mb", *spread, "load"])
            warm = seconds * float(rig.part.settings.get("warm-up", 0.25))
            self.drive(rig, cell, one, warm, seed + 1000000)
            return [self.measured(rig, cell, one, seconds, seed)]

    @contextlib.contextmanager
    def started(self, rig, cell):
        """A daemon on a fresh store."""
        variant = cell.variant
        store = variant.get("store", "block")
        shards = int(variant.get("shards", 1))
        build = rig.build_of(variant.get("malloc", "glibc"))
        options = ["--threads", str(variant.get("threads", shards)), *flags(variant, *self.not_for_lapisd)]
        if store == "block":
            rig.mkfs(self.device(rig, cell), shards, variant.get("log-size"))
        else:
            options += ["--shards", str(shards)]
        with tempfile.TemporaryDirectory(prefix="d", dir=rig.where) as where, self.kept(rig, cell, store) as device:
            one = daemonbench.Daemon(build, where, device, str(variant.get("memory", "1G")), options, environment(cell), store)
            try:
                one.wait_ready()
                yield one
            except SystemExit as ended:
                raise Failed(str(ended)) from None
            finally:
                stop(one)

    @contextlib.contextmanager
    def kept(self, rig, cell, store):
        """What lapisd is given: the device, nothing, or a directory of an ext4 on the same device."""
        if store == "mem":
            yield None
        elif store == "file":
            with rig.ext4(self.device(rig, cell)) as where:
                os.mkdir(os.path.join(where, "store"))  # not what has lost+found in it
                yield os.path.join(where, "store")
        else:
            yield self.device(rig, cell)

    def measured(self, rig, cell, one, seconds, seed):
        before, begin = one.stats(), cpu_by_thread(one.process.pid)
        sampler = Sampler(one.process.pid, sample_seconds(seconds), one.stats if seconds >= 3 else None).start()
        report = self.drive(rig, cell, one, seconds, seed)
        if "bytes_per_s" not in report and cell.load.get("op") != "ping":  # daemon_load does not say so
            report["bytes_per_s"] = report["iops"] * size_bytes(cell.load.get("size", 4096))
        spent = cpu_between(begin, cpu_by_thread(one.process.pid))
        series = sampler.stop()
        after = one.stats()
        percentiles = percentiles_of(report) if "latency_us" in report else []
        return Outcome(self.figures(report, spent, of_stats(before), of_stats(after), series, after),
                       percentiles=percentiles, series=series, report={"load": report, "cpu_us": spent, "stats": after})

    def command(self, rig, cell, one, seconds, seed, op):
        address = one.tcp if cell.variant.get("transport") == "tcp" else one.unix
        more = ["--crc", str(cell.variant["client-crc"])] if "client-crc" in cell.variant else []
        return [rig.tool("daemon_load"), "--address", address, "--seconds", f"{seconds:g}", "--seed", str(seed),
                "--op", op, *more, *flags(cell.load, "op")]

    def drive(self, rig, cell, one, seconds, seed):
        """The generator's report. `mixed` is a reader and a writer at once, each with half of the depth."""
        op = str(cell.load.get("op", "write"))
        if op != "mixed":
            report = call_json(self.command(rig, cell, one, seconds, seed, op))
            return checked(report)
        reports = {}
        half = str(max(1, int(cell.load.get("depth", 2)) // 2))
        threads = []
        for number, side in enumerate(("read", "write")):
            # Files of their own: each makes what it needs, at the same time.
            command = [*self.command(rig, cell, one, seconds, seed + number, side), "--depth", half, "--object", f"load-{side}"]
            threads.append(threading.Thread(target=keep, args=(reports, side, command)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return both(reports)

    @staticmethod
    def figures(report, spent, before, after, series, stats):
        ops = max(1, report["ops"])
        each = {name: (after[name] - before[name]) / ops for name in after}
        rss = stats["process"]["rss_bytes"] / MIB
        found = {
            "iops": report["iops"], "client_us": report.get("cpu_us_per_op"),
            "thread_us": spent.get("shards", 0) / ops, "cpu_us": sum(spent.values()) / ops,
            "rss_mib": rss, "rss_max_mib": max([rss, *series["rss_mib"]]),
            "accounted_mib": after["accounted_bytes"] / MIB,
            "log_writes": each["log_writes"], "data_writes": each["data_writes"], "index_writes": each["index_writes"],
            "device_writes": each["log_writes"] + each["data_writes"] + each["index_writes"],
            "device_reads": each["data_reads"], "flushes": each["flushes"], "calls": each["calls"],
            "index_waits": each["index_waits"] * 1000,
            "stalls": float(after["index_stalls"] - before["index_stalls"]),
            "stalled_share": (after["index_stalled_ns"] - before["index_stalled_ns"]) / 1e9 / report["seconds"],
            "door_sends": each["door_sends"], "door_receives": each["door_receives"],
        }
        for name in ("sends", "receives"):
            if name in report:
                found[f"client_{name}"] = report[name] / ops
        if after["accounted_bytes"]:
            found["rss_over_accounted"] = stats["process"]["rss_bytes"] / after["accounted_bytes"]
        if series["minor_faults_per_s"]:
            mean = sum(series["minor_faults_per_s"]) / len(series["minor_faults_per_s"])
            found["minor_faults"] = mean * report["seconds"] / ops
        if "latency_us" in report:
            found.update(latency_of(report))
        if "bytes_per_s" in report:
            found["mb_per_s"] = report["bytes_per_s"] / 1e6
        return found


class Bench(Daemon):
    """lapisd, and load by `lapis bench`. What it needs is made before it is measured, and not looked for then: but for
    files, of which there are few, looking is not among the figures."""

    name = "bench"
    load_options = ("op", "size", "depth", "connections", "objects", "object-size", "rate", "reads", "dist", "items")
    has_raw = False  # sizes may be many, and which objects are taken is another matter than places of a device
    of_files = ("read", "write", "randread", "randwrite", "mixed")

    def run(self, rig, cell, seconds, seed):
        op = str(cell.load["op"])
        with self.started(rig, cell) as one:
            warm = ["--warmup", f"{seconds * float(rig.part.settings.get('warm-up', 0.25)):g}"]
            if self.has_objects(cell):
                call([*self.command(rig, cell, one, seconds, seed, op), "--prepare-only"])
            if op != "delete":  # which would leave nothing to be measured
                call_json([*self.command(rig, cell, one, seconds / 4, seed + 1000000, op), *self.ready(cell), *warm])
            return [self.measured(rig, cell, one, seconds, seed)]

    def has_objects(self, cell):
        op = str(cell.load["op"])
        return op != "ping" and (op != "put" or "objects" in cell.load)

    def ready(self, cell):
        return ["--ready"] if self.has_objects(cell) and str(cell.load["op"]) not in self.of_files else []

    def command(self, rig, cell, one, seconds, seed, op):
        address = one.tcp if cell.variant.get("transport") == "tcp" else one.unix
        more = ["--crc", str(cell.variant["client-crc"])] if "client-crc" in cell.variant else []
        return [f"{rig.build}/bin/lapis", "-s", address, "bench", "--json", "--bucket", "load", "--keep", "--warmup", "0",
                "--seconds", f"{seconds:g}", "--seed", str(seed), "--op", op, *more, *flags(cell.load, "op")]

    def drive(self, rig, cell, one, seconds, seed):
        command = [*self.command(rig, cell, one, seconds, seed, str(cell.load["op"])), *self.ready(cell)]
        report = checked(call_json(command))
        report.setdefault("cpu_us_per_op", report.get("client", {}).get("cpu_us_per_op"))
        return report


def stop(one):
    """Ends a daemon that may have been killed."""
    if one.process.poll() is None:
        try:
            one.stop()
        except SystemExit as ended:
            raise Failed(str(ended)) from None
    one.log.close()


def checked(report):
    if report["errors"] or not report["ops"]:
        raise Failed(f"{report['errors']} errors in {report['ops']} operations")
    return report


def keep(reports, name, command):
    try:
        reports[name] = call_json(command)
    except Failed as failed:
        reports[name] = failed


def both(reports):
    """Of two generators at once: rates add up, a latency would be of neither."""
    for report in reports.values():
        if isinstance(report, Failed):
            raise report
        checked(report)
    ops = sum(report["ops"] for report in reports.values())
    return {"ops": ops, "errors": 0, "seconds": max(report["seconds"] for report in reports.values()),
            "iops": sum(report["iops"] for report in reports.values()),
            "cpu_us_per_op": sum(report["cpu_us_per_op"] * report["ops"] for report in reports.values()) / ops,
            "parts": reports}


class Recovery(Daemon):
    """lapisd is killed while it is written to with a large backlog, started again, and written to at once."""

    name = "recovery"
    metrics = ("ready_s", "before_kill_mib", "replay_rss_mib", "catchup_rss_mib", "after_rss_mib", "backlog_mib", "iops")
    has_raw = False
    LOOK_S = 0.05

    def run(self, rig, cell, seconds, seed):
        op = str(cell.load.get("op", "write"))
        with self.started(rig, cell) as one:
            if op != "create":  # what is overwritten is there before the backlog grows
                self.drive(rig, cell, one, 0.1, seed + 1000000)
            sampler = Sampler(one.process.pid, self.LOOK_S).start()
            # A child of ours, not a thread: the daemon dies under it, and it says so with its exit status.
            command = self.command(rig, cell, one, seconds * 4, seed, op)
            loading = threading.Thread(target=keep, args=({}, "killed", command))
            loading.start()
            time.sleep(seconds)
            backlog = of_stats(one.stats())["pending_bytes"] / MIB
            one.process.kill()
            one.process.wait()
            loading.join()
            before = sampler.stop()
        return [self.started_again(rig, cell, seconds, seed, before, backlog)]

    def started_again(self, rig, cell, seconds, seed, before, backlog):
        watch = Watch()
        with watch, self.started_watched(rig, cell, watch) as one:
            report = self.drive(rig, cell, one, seconds, seed + 1)
            one.settle()
            after = one.stats()
            series = watch.sampler.stop()
        at_ready = [mib for t, mib in zip(series["t_s"], series["rss_mib"]) if t <= watch.ready_s]
        behind = [mib for t, mib in zip(series["t_s"], series["rss_mib"]) if t > watch.ready_s]
        found = {"ready_s": watch.ready_s, "before_kill_mib": max(before["rss_mib"], default=None),
                 "replay_rss_mib": max(at_ready, default=None), "catchup_rss_mib": max(behind, default=None),
                 "after_rss_mib": after["process"]["rss_bytes"] / MIB, "backlog_mib": backlog, "iops": report["iops"],
                 "accounted_mib": of_stats(after)["accounted_bytes"] / MIB}
        return Outcome({name: value for name, value in found.items() if value is not None},
                       percentiles=percentiles_of(report), series=series,
                       report={"load": report, "before": before, "stats": after})

    @contextlib.contextmanager
    def started_watched(self, rig, cell, watch):
        variant = cell.variant
        build = rig.build_of(variant.get("malloc", "glibc"))
        options = ["--threads", str(variant.get("threads", 1)), *flags(variant, *self.not_for_lapisd)]
        with tempfile.TemporaryDirectory(prefix="d", dir=rig.where) as where:
            began = time.monotonic()
            one = daemonbench.Daemon(build, where, self.device(rig, cell), str(variant.get("memory", "1G")), options,
                                     environment(cell))
            try:
                watch.begin(Sampler(one.process.pid, self.LOOK_S))
                one.wait_ready()
                watch.ready_s = time.monotonic() - began
                yield one
            except SystemExit as ended:
                raise Failed(str(ended)) from None
            finally:
                stop(one)


class Watch:
    """A sampler that is stopped whatever happens."""

    def __init__(self):
        self.sampler = None
        self.ready_s = 0.0

    def begin(self, sampler):
        self.sampler = sampler.start()

    def __enter__(self):
        return self

    def __exit__(self, *why):
        if self.sampler is not None:
            self.sampler.end.set()
        return False


# --- A mount ----------------------------------------------------------------------------------------------------

# Where bonnie++ 1.98's line has a figure, and by what it is divided.
BONNIE = {"write_mb_per_s": (11, 1e6 / 1024), "rewrite_mb_per_s": (13, 1e6 / 1024), "read_mb_per_s": (17, 1e6 / 1024),
          "seeks_per_s": (19, 1), "create_per_s": (26, 1), "stat_per_s": (28, 1), "delete_per_s": (30, 1),
          "random_create_per_s": (32, 1), "random_stat_per_s": (34, 1), "random_delete_per_s": (36, 1)}


class Bonnie(Daemon):
    """bonnie++ in the mount of lapisd, or in an ext4 on the same device."""

    name = "bonnie"
    variant_options = ("files", "memory", "device", "spin-us", "mount-options")
    load_options = ("file-mib", "small-files", "direct")
    metrics = tuple(BONNIE)
    has_raw = False
    has_seconds = False
    MOUNTED_S = 30
    not_for_lapisd = (*Daemon.not_for_lapisd, "files")

    def run(self, rig, cell, seconds, seed):
        if shutil.which("bonnie++") is None or os.geteuid() != 0:
            raise Skipped("bonnie++ is not installed, or this is not root, who may mount")
        if cell.variant["files"] == "ext4":
            with rig.ext4(self.device(rig, cell)) as where:
                return [self.measured_in(cell, where)]
        with tempfile.TemporaryDirectory(prefix="mount-", dir=rig.where) as where:
            mounted = Mounted(cell, {"mount": where})
            try:
                with self.started(rig, mounted):
                    self.wait_mounted(where)
                    return [self.measured_in(cell, where)]
            finally:
                # What a daemon left that was killed: it cannot be looked at, so whether it is there is not asked.
                call(["umount", "-l", where], good=(0, 32))

    def wait_mounted(self, where):
        until = time.monotonic() + self.MOUNTED_S
        while not os.path.ismount(where):
            if time.monotonic() > until:
                raise Failed("lapisd did not mount")
            time.sleep(0.02)

    @staticmethod
    def measured_in(cell, where):
        load = cell.load
        line = call(["bonnie++", "-d", where, "-s", str(load["file-mib"]), "-r", str(int(load["file-mib"]) // 2), "-n",
                     f"{load.get('small-files', 0)}:1024:1024:1", "-f", "-q", "-m", "x", "-u", "root",
                     *(["-D"] if str(load.get("direct", "no")) == "yes" else [])]).strip().splitlines()[-1]
        fields = line.split(",")
        if fields[0] != "1.98":
            raise Failed(f"a line of bonnie++ that is not known here: {line}")
        found = {}
        for name, (at, by) in BONNIE.items():
            # It says +++++ of what took less than half a second.
            if at < len(fields) and fields[at].replace(".", "", 1).isdigit():
                found[name] = float(fields[at]) / by
        if not found:
            raise Failed(f"all was over too soon to be measured: {line}")
        return Outcome(found, report={"line": line})


class Mounted:
    """A cell with more options of its variant."""

    def __init__(self, cell, more):
        self.variant = {**cell.variant, **more}
        self.load = cell.load


# --- Programs that measure one part by itself -------------------------------------------------------------------


class Allocate(Kind):
    """alloc_bench: taking and giving back blocks, in memory alone."""

    name = "allocate"
    variant_options = ("allocator",)
    load_options = ("device-gib", "fill")
    has_seconds = False
    metrics = ("take_ns", "aged_take_ns", "release_ns", "aged_release_ns", "churn_ns", "pieces", "score", "runs", "memory_mib")
    settings = ("turnovers",)

    def run(self, rig, cell, seconds, seed):
        report = call_json([rig.tool("alloc_bench"), "--json", "--seed", str(seed), "--turnovers",
                            str(rig.part.settings.get("turnovers", 10)), "--kind", str(cell.variant.get("allocator", "hybrid")), *flags(cell.load)])
        found, = report["results"]
        return [Outcome({
            "take_ns": found["fresh_ns"]["take"], "aged_take_ns": found["aged_ns"]["take"],
            "release_ns": found["fresh_ns"]["release"], "aged_release_ns": found["aged_ns"]["release"],
            "churn_ns": found["churn_ns"], "pieces": found["pieces"], "score": found["score"], "runs": found["runs"],
            "memory_mib": found["memory_bytes"] / MIB}, report=report)]


class Age(Kind):
    """store_age: a store whose content was replaced several times, beside one that was only filled."""

    name = "age"
    variant_options = ("allocator",)
    load_options = ("fill",)
    has_seconds = False
    needs_twins = True
    metrics = ("aged_ratio", "aged_mb_per_s", "fresh_mb_per_s", "aged_cpu_us_per_mib", "aged_reads", "aged_writes",
               "score", "largest_run_kib")
    settings = ("turnovers",)

    def run(self, rig, cell, seconds, seed):
        devices = [rig.device(0), rig.device(1)]
        for device in devices:
            rig.mkfs(device)
        report = call_json([rig.tool("store_age"), *devices, str(cell.variant.get("allocator", "hybrid")),
                            str(rig.part.settings.get("turnovers", 10)), str(cell.load.get("fill", 95)), str(seed)])
        aged, fresh = report["aged"], report["fresh"]
        return [Outcome({
            "aged_ratio": report["ratio"], "aged_mb_per_s": aged["mb_per_s"], "fresh_mb_per_s": fresh["mb_per_s"],
            "aged_cpu_us_per_mib": aged["cpu_us_per_mib"], "aged_reads": aged["reads_per_object"],
            "aged_writes": aged["writes_per_object"], "score": aged["score"],
            "largest_run_kib": aged["largest_run_kib"]}, report=report)]


class Counters(Kind):
    """counter_bench: one update of a counter that threads share; all its cells in one run, in turn."""

    name = "counters"
    has_seconds = False
    metrics = ("update_cpu_ns", "update_wall_ns")
    own_factors = ("technique", "threads")
    settings = ("updates",)

    def run(self, rig, cell, seconds, seed):
        # 1: its target was missed, which is for bench/all to say.
        report = call_json([rig.tool("counter_bench"), "--json", "--updates",
                            str(rig.part.settings.get("updates", 4000000))], good=(0, 1))
        found = []
        for row in report["results"]:
            for one in row["techniques"]:
                found.append(Outcome({"update_cpu_ns": one["cpu_ns"], "update_wall_ns": one["wall_ns"]},
                                     factors={"technique": one["name"], "threads": str(row["threads"])}))
        found[0].report = report
        return found


KINDS = {kind.name: kind for kind in (Store, Daemon, Bench, Recovery, Bonnie, Allocate, Age, Counters)}
