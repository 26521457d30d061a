#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: a connection that does nothing costs less than 16 KiB; one that reads nothing, stops half-way or
claims 4 GiB costs others nothing and takes no memory beyond what the daemon was given (promises P5,
P7). Method: the daemon's own memory before and after, by number of connections; another client's
requests alone and beside each of them, in turns. Times are bounded generously, memory exactly."""

import contextlib
import json
import resource
import statistics
import sys
import time

import lapis_wire as wire
import rig

IDLE = 1000
IDLE_BYTES_MAX = 16 << 10
MEMORY = 192 << 20
# Beyond --memory: program, libraries, stacks, pools of the doors.
BESIDE_BYTES_MAX = 96 << 20
IS_SANITIZED = "san" in rig.BUILD.name
OPTIONS = ["--memory", str(MEMORY), "--send-timeout", "600", "--connections-max", "1024"]
# Of others: how many times as long, at the median, with a floor for what the machine does; and none
# waits until those who hold what it needs are closed, which takes two seconds.
SLOWER_MAX = 10
FLOOR_S = 0.2 if IS_SANITIZED else 0.02
LONGEST_S = 60 if IS_SANITIZED else 1.5


def heap_and_rss(daemon):
    with daemon.connect() as lapis:
        told = json.loads(lapis(wire.heap("release")))
        return told["used_bytes"], told["rss_bytes"]


def test_idle_connections(daemon):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * IDLE + 100), hard))
    with contextlib.ExitStack() as stack:
        # What is made once is made before.
        for number in range(20):
            stack.enter_context(daemon.connect(shard=number % 2))(wire.ping())
        used, rss = heap_and_rss(daemon)
        for number in range(IDLE):
            idle = stack.enter_context(daemon.connect(shard=number % 2))
            idle(wire.ping())
        used_after, rss_after = heap_and_rss(daemon)
        with daemon.connect() as lapis:
            there = json.loads(lapis(wire.status()))["connections"]
        assert there >= IDLE, there
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    each, each_rss = (used_after - used) / IDLE, (rss_after - rss) / IDLE
    print(f"     {each:.0f} bytes of the heap each, {each_rss:.0f} of the process")
    if not IS_SANITIZED:  # whose allocator keeps what is freed, and more beside each
        assert 0 < each < IDLE_BYTES_MAX, each
        assert each_rss < IDLE_BYTES_MAX, each_rss


def never_reads(daemon, stack):
    """Asks for much and reads nothing."""
    for number in range(16):
        lapis = stack.enter_context(daemon.connect(shard=number % 2))
        lapis.sock.setblocking(False)
        get = wire.get("other/big").meta
        raw = b"".join(wire.message("get", n, get) for n in range(1, 300))
        with contextlib.suppress(BlockingIOError):
            while raw:
                raw = raw[lapis.sock.send(raw) :]


def half_a_header(daemon, stack):
    """Sends 40 bytes of 64, and nothing more."""
    for number in range(100):
        lapis = stack.enter_context(daemon.connect(shard=number % 2))
        lapis.send(wire.message("ping", 7)[:40])


def half_of_the_data(daemon, stack):
    """Begins as many puts of 4 MiB as there are, and ends none."""
    whole = wire.message("put", 1, wire.put("other/half", b"").meta, bytes(4 << 20))
    for number in range(64):
        lapis = stack.enter_context(daemon.connect(shard=number % 2))
        lapis.sock.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            lapis.sock.send(whole[:5000])


def claims_much(daemon, stack):
    """Says that 4 GiB of data, or of meta, will come; most of it never does."""
    for number in range(100):
        lapis = stack.enter_context(daemon.connect(shard=number % 2))
        field = ("data_bytes", "meta_bytes", "crc_cnt")[number % 3]
        lapis.send(wire.message("put", 1, **{field: 0xFFFFFFFF}) + bytes(1000))


def round_trip_s(clients, data):
    begin = time.monotonic()
    for number, lapis in enumerate(clients):
        lapis(wire.put(f"other/{number}", data))
        assert lapis(wire.get(f"other/{number}")).data == data
    return time.monotonic() - begin


def check_others(daemon, hostile):
    data = wire.random_bytes(20000, "others")
    with contextlib.ExitStack() as stack:
        # Without sums over data, which cost this client more than anything here.
        clients = [
            stack.enter_context(daemon.connect(shard=shard, crc=wire.CRC_HEADER)) for shard in (0, 1)
        ]
        clients[0](wire.put("other/big", bytes(4 << 20)))
        alone, beside = [], []
        for _ in range(3):  # in turns, for the machine has its moods
            alone += [round_trip_s(clients, data) for _ in range(10)]
            with contextlib.ExitStack() as guests:
                hostile(daemon, guests)
                beside += [round_trip_s(clients, data) for _ in range(10)]
                rss = daemon.rss_kib() << 10
                assert IS_SANITIZED or rss < MEMORY + BESIDE_BYTES_MAX, rss
        usual, then = statistics.median(alone), statistics.median(beside)
    print(f"     {hostile.__name__}: {usual * 1000:.1f} ms alone, {then * 1000:.1f} beside, "
          f"at most {max(beside) * 1000:.1f}; {rss >> 20} MiB")  # fmt: skip
    assert then < max(FLOOR_S, usual * SLOWER_MAX), (usual, then)
    assert max(beside) < LONGEST_S, max(beside)


def test_never_reads(daemon):
    check_others(daemon, never_reads)


def test_half_a_header(daemon):
    check_others(daemon, half_a_header)


def test_half_of_the_data(daemon):
    check_others(daemon, half_of_the_data)


def test_claims_much(daemon):
    check_others(daemon, claims_much)


if __name__ == "__main__":
    sys.exit(rig.main(globals()))
