# SPDX-License-Identifier: Apache-2.0
"""Calls of `lapis store-bench` and what they are compared with, for the benchmarks of the store."""
import contextlib
import json
import os
import subprocess
import sys

SKIPPED = 77
MIB = 1 << 20


def quiet(call):
    """What a command printed; what it said on standard error is shown when it fails."""
    try:
        done = subprocess.run(call, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        sys.exit(f"{call[0]} is not there: `make all tools` builds it")
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        sys.exit(f"{' '.join(call)}: exit status {done.returncode}")
    return done.stdout


def mkfs(build, device, log_size=None):
    """A new store of one shard, whatever was on the device."""
    call = [f"{build}/bin/lapis", "mkfs", "--force", "--shards", "1"]
    if log_size:
        call += ["--log-size", log_size]
    quiet([*call, device])


def store(build, device, *options):
    """One run of store-bench; what it reports."""
    return json.loads(quiet([f"{build}/bin/lapis", "store-bench", "--json", *options, device]))


def write_counts(path, name, ops, counted):
    """What store-counts or daemon-counts found, for bench/regress."""
    with open(path, "w", encoding="utf-8") as out:
        json.dump({"name": name, "ops": ops, "cases": counted}, out, indent=1)


def seconds_of(seconds):
    return str(int(seconds)) if seconds == int(seconds) else str(seconds)


def fio(device, rw, size, depth, seconds, span, sync):
    """Operations per second of fio on the raw device, and its CPU time for each in microseconds;
    sync: each write durable."""
    call = ["fio", "--name=raw", "--ioengine=io_uring", "--direct=1", f"--bs={size}", f"--rw={rw}",
            f"--iodepth={depth}", f"--filename={device}", f"--size={span}", "--time_based",
            f"--runtime={seconds_of(seconds)}", "--norandommap", "--randrepeat=0", "--output-format=json"]
    if sync:
        call.append("--sync=dsync")
    text = quiet(call)
    # fio may print warnings before the JSON.
    job = json.loads(text[text.index("{"):])["jobs"][0]
    done = job["read" if rw.endswith("read") else "write"]
    cpu_us = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] * 1000
    return done["iops"], cpu_us / max(1, done["total_ios"])


def fio_latency(device, size, depth, rate, seconds, span):
    """Median and p99.9 in microseconds of durable random writes to the raw device at a fixed rate."""
    text = quiet(["fio", "--name=raw", "--ioengine=io_uring", "--direct=1", f"--bs={size}", "--rw=randwrite",
                  f"--iodepth={depth}", f"--filename={device}", f"--size={span}", "--time_based",
                  f"--runtime={seconds_of(seconds)}", "--norandommap", "--randrepeat=0", "--sync=dsync",
                  f"--rate_iops={rate:.0f}", "--lat_percentiles=1", "--percentile_list=50:99.9",
                  "--output-format=json"])
    found = json.loads(text[text.index("{"):])["jobs"][0]["write"]["lat_ns"]["percentile"]
    return found["50.000000"] / 1000, found["99.900000"] / 1000


def bdev(build, device, rw, size, depth, seconds, sync, delay, *more):
    """The same by our own tool, which can delay as store-bench does."""
    op = "read" if rw.endswith("read") else "write-through" if sync else "write"
    text = quiet([f"{build}/tools/bdev_bench", "--op", op, "--size", str(size), "--depth", str(depth),
                  "--seconds", seconds_of(seconds), "--spin-us", "100", "--delay", delay, *more, device])
    done = json.loads(text)
    return done["iops"], done["cpu_us_per_op"]


def full_file(path, size_bytes):
    """A file of which every block was written: no figure contains the allocation of blocks."""
    if os.path.exists(path):
        sys.exit(f"{path} exists: remove it, or choose another place")
    chunk = os.urandom(MIB)
    with open(path, "wb") as out:
        for _ in range(size_bytes // MIB):
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())


@contextlib.contextmanager
def two_files(path, size_bytes):
    names = [f"{path}.ours", f"{path}.raw"]
    try:
        for name in names:
            full_file(name, size_bytes)
        yield names
    finally:
        for name in names:
            if os.path.exists(name):
                os.unlink(name)
