# SPDX-License-Identifier: Apache-2.0
"""What this machine can do at most, measured among the runs of every part of an experiment: the raw device by our
own loop and by fio, the socket by an echo, FUSE by a server of which every answer is there at once.

Two experiments of different days are only comparable as far as these are the same. All but fio are built from the
tree that is measured (the raw device's loop is our reactor, the echo our wire format, the null server our FUSE
session): what they lose may be lost by a change of the code, so that only fio tells what the machine lost
(results.is_foreign).
"""
import json
import os
import shutil
import signal
import subprocess
import time

import storebench
from experiment import Map, Part, size_bytes
from loads import Kind, Outcome
from rig import Failed, Skipped, call, call_json

READY_S = 10
NULL_BYTES = 64 << 20
SPIN_US = 100  # as lapisd and store-bench look before they sleep
SECONDS_MAX = 3
SHORT_SECONDS_MAX = 0.5  # a kind that takes as long as it takes would have the usual three

# name: what measures it, operation, bytes, depth
LIMITS = {
    "raw device, 4K write-through, depth 1": ("raw", "write-through", 4096, 1),
    "raw device, 4K write-through, depth 128": ("raw", "write-through", 4096, 128),
    "raw device, 4K read, depth 128": ("raw", "read", 4096, 128),
    "fio, 4K write-through, depth 1": ("fio", "write-through", 4096, 1),
    "fio, 4K write-through, depth 128": ("fio", "write-through", 4096, 128),
    "fio, 4K read, depth 128": ("fio", "read", 4096, 128),
    "socket echo, 4K write, depth 128": ("echo", "write", 4096, 128),
    "null FUSE, 4K direct read, depth 1": ("null", "randread", 4096, 1),
    "null FUSE, 4K direct read, depth 32": ("null", "randread", 4096, 32),
}


def raw(rig, seconds, op, size, depth, delay="none", device=None, span=None):
    """The raw device, equal to the store's, as slow as that was made, over as many bytes."""
    size = size_bytes(size)
    command = [rig.tool("bdev_bench"), "--op", op, "--size", str(max(4096, size)), "--depth", str(depth), "--seconds",
               f"{seconds:g}", "--spin-us", str(SPIN_US), *(["--span", str(span)] if span else [])]
    return call_json([*command, *(["--delay", delay] if delay != "none" else []), rig.device(1, device)])


def by_fio(rig, op, size, depth, seconds):
    if shutil.which("fio") is None:
        raise Skipped("fio is not installed")
    rw = "randread" if op == "read" else "randwrite"
    try:
        rate, cpu_us = storebench.fio(rig.device(1), rw, size, depth, max(1, round(seconds)), rig.twin_bytes(),
                                      op != "read")
    except SystemExit as ended:
        raise Failed(str(ended)) from None
    return {"iops": rate, "cpu_us_per_op": cpu_us}


def echo(rig, op, size, depth, seconds):
    return call_json([rig.tool("daemon_load"), "--echo", op, "--size", str(size), "--depth", str(depth), "--seconds",
                      f"{seconds:g}"])


def null_fuse(rig, rw, size, depth, seconds):
    if os.geteuid() != 0 or not os.path.exists("/dev/fuse"):
        raise Skipped("a mount needs root and /dev/fuse")
    if shutil.which("fio") is None:
        raise Skipped("fio is not installed")
    where = os.path.join(rig.where, "null")
    os.mkdir(where)
    server = subprocess.Popen([rig.tool("null_fuse"), "--threads", str(os.cpu_count()), where],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        wait_mounted(server, where)
        text = call(["fio", "--name=null", "--ioengine=io_uring", "--direct=1", f"--bs={size}", f"--rw={rw}",
                     f"--iodepth={depth}", f"--directory={where}", f"--size={NULL_BYTES}", "--time_based",
                     f"--runtime={max(1, round(seconds))}", "--norandommap", "--output-format=json"])
        job = json.loads(text[text.index("{"):])["jobs"][0]["read"]
        return {"iops": job["iops"]}
    finally:
        unmount(server, where)


def wait_mounted(server, where):
    until = time.monotonic() + READY_S
    while not os.path.ismount(where):
        if server.poll() is not None or time.monotonic() > until:
            raise Skipped("the null FUSE server did not mount")
        time.sleep(0.02)


def unmount(server, where):
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(READY_S)
    except subprocess.TimeoutExpired:
        subprocess.run(["umount", "-l", where], check=False, capture_output=True)
        server.kill()
        server.wait()
    server.stdout.close()
    if os.path.ismount(where):
        subprocess.run(["umount", "-l", where], check=False, capture_output=True)
    os.rmdir(where)


class Limit(Kind):
    name = "limit"
    load_options = ("limit",)
    metrics = ("iops", "cpu_us")

    def run(self, rig, cell, seconds, seed):
        how, op, size, depth = LIMITS[cell.load["limit"]]
        if how == "raw":
            report = raw(rig, seconds, op, size, depth)
        else:
            report = {"fio": by_fio, "echo": echo, "null": null_fuse}[how](rig, op, size, depth, seconds)
        return [Outcome({"iops": report["iops"], "cpu_us": report.get("cpu_us_per_op")}, report=report)]


class LimitsPart(Part):
    """The limits as a part of their own, which takes its turns in some of the rounds of another."""

    def __init__(self, part, rounds, seconds_max):
        table = Map("limits", 0)
        load = Map("limits", 0)
        load["limit"] = list(LIMITS)
        load.lines["limit"] = 0
        table.update(name=f"limits of {part.name}", kind="limit", load=load, repetitions=part.repetitions,
                     seconds=min(part.seconds, seconds_max))
        super().__init__(table, {"limit": Limit}, False)
        self.of = part.name
        self.rounds = rounds
        self.device_kind, self.device_size, self.device_path = part.device_kind, part.device_size, part.device_path

    def plan(self, seed):
        return [one for one in super().plan(seed) if one[0] in self.rounds]


def rounds_of(part, is_first, is_short):
    """The rounds of a part in which the limits are measured: all of them where much is held against these; else three,
    for with two on each side one comparison in three looks like a drift by chance."""
    last = part.repetitions
    if is_short:
        return {1, last}
    return set(range(1, last + 1)) if is_first or part.limits else {1, (last + 1) // 2, last}


def part_of_limits(part, is_first, is_short):
    return LimitsPart(part, rounds_of(part, is_first, is_short), SHORT_SECONDS_MAX if is_short else SECONDS_MAX)
