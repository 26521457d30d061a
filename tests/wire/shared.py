#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what is read by shared memory is what was put, and the client can do nothing with that memory
but read it, keeps nothing of it, and keeps nobody waiting. Method: objects of all shapes are read
through the socket and by shared memory; then a client releases nothing, or what it was never shown,
tries to write, ends in the middle, asks for too much."""

import errno
import mmap
import os
import sys
import time

import lapis_wire as wire
import rig

MIB = 1 << 20
OPTIONS = ["--memory", "256M"]


def large(daemon, key, size, seed=0):
    """An object made of writes, which is longer than a message."""
    data = b"".join(wire.random_bytes(min(MIB, size - at), f"{seed}{at}") for at in range(0, size, MIB))
    with daemon.connect() as lapis:
        ino = lapis(wire.upload(key)).ino
        for at in range(0, size, wire.DATA_MAX):
            lapis(wire.write(ino, data[at : at + wire.DATA_MAX], at))
        lapis(wire.commit(ino, key))
    return data


def share_when_there_is(daemon, key, size):
    """A connection, and its memory, when others have given back theirs."""
    until = time.monotonic() + rig.PATIENCE_S
    while True:
        lapis = at_home(daemon, key)
        try:
            return lapis, lapis.share(size)
        except wire.Refused as refused:
            lapis.close()
            assert refused.errno == errno.ENOMEM and time.monotonic() < until, refused
        time.sleep(0.01)


def at_home(daemon, key):
    """A connection to the shard that has it: only there it is read into shared memory."""
    with daemon.connect() as lapis:
        lapis(wire.stat(key))
        call = lapis.start(wire.get(key, 0, 1))
        shard = lapis.wait_reply(call).shard
    return daemon.connect(shard=shard)


def test_is_the_same(daemon):
    size = 9 * MIB + 12345
    data = large(daemon, "same/a", size)
    with at_home(daemon, "same/a") as lapis:
        descriptor = lapis.share(16 * MIB)
        for offset, length in ((0, size), (1, MIB), (5000, 3 * MIB), (4096, 300000), (size - MIB, MIB),
                               (size - 70000, 70000), (0, 4096), (100, 65536), (size, 5)):  # fmt: skip
            before = lapis.shared_replies
            assert lapis(wire.get("same/a", offset, length)).data == data[offset : offset + length]
            lapis.release()
            if length >= MIB:
                assert lapis.shared_replies > before, f"{length} bytes at {offset} came through the socket"
            if length <= 65536:
                assert lapis.shared_replies == before, f"{length} bytes at {offset} are shared"
        # Holes, and what waits for its place, come through the socket, or are read around.
        lapis(wire.punch("same/a", 2 * MIB, MIB))
        lapis(wire.write("same/a", b"z" * 5000, MIB + 77))
        holed = bytearray(data)
        holed[2 * MIB : 3 * MIB] = bytes(MIB)
        holed[MIB + 77 : MIB + 5077] = b"z" * 5000
        assert lapis(wire.get("same/a")).data == holed
        os.close(descriptor)


def test_who_releases_nothing(daemon):
    """is served, by the socket; and again by memory when he does."""
    size = 12 * MIB
    data = large(daemon, "greedy/a", size, 1)
    with at_home(daemon, "greedy/a") as lapis:
        os.close(lapis.share(4 * MIB))
        for _ in range(3):
            assert lapis(wire.get("greedy/a")).data == data
        held = lapis.shared_replies
        assert 2 <= held <= len(lapis.shared) // 65536, f"{held} replies are held"
        lapis.release(held - 1)
        lapis.release()
        assert lapis(wire.get("greedy/a", 0, MIB)).data == data[:MIB]
        assert lapis.shared_replies == held + 1, "nothing is shared after a release"


def test_only_to_be_read(daemon):
    with daemon.connect() as lapis:
        descriptor = lapis.share(2 * MIB)
        for attempt in (
            lambda: os.write(descriptor, b"x"),
            lambda: os.ftruncate(descriptor, 0),
            lambda: mmap.mmap(descriptor, 2 * MIB, prot=mmap.PROT_READ | mmap.PROT_WRITE),
            lambda: os.posix_fallocate(descriptor, 0, 4 * MIB),
        ):
            try:
                attempt()
            except OSError:
                continue
            raise AssertionError("shared memory can be changed")
        if os.geteuid() != 0:
            assert not os.access(f"/proc/self/fd/{descriptor}", os.W_OK)
        os.close(descriptor)


def test_nothing_is_kept(daemon):
    """When a connection ends its memory is empty, whoever has it mapped."""
    data = large(daemon, "kept/a", 2 * MIB, 2)
    lapis = at_home(daemon, "kept/a")
    descriptor = lapis.share(4 * MIB)
    assert lapis(wire.get("kept/a")).data == data
    assert lapis.shared_replies > 0 and any(lapis.shared[:: 4096])
    lapis.close()
    until = time.monotonic() + rig.PATIENCE_S
    while os.fstat(descriptor).st_blocks and time.monotonic() < until:
        time.sleep(0.01)
    assert os.fstat(descriptor).st_blocks == 0 and not any(lapis.shared[:: 4096])
    os.close(descriptor)


def test_ends_in_the_middle(daemon):
    """Reads that are at work when their client goes, and what it was shown and never released."""
    large(daemon, "middle/a", 8 * MIB, 3)
    before = daemon.rss_kib()
    for number in range(60):
        lapis, descriptor = share_when_there_is(daemon, "middle/a", 8 * MIB)
        os.close(descriptor)
        for _ in range(4):
            lapis.start(wire.get("middle/a"))
        if number % 2:
            lapis.next_message()
        lapis.close()
    until = time.monotonic() + rig.PATIENCE_S
    while daemon.rss_kib() - before > 64 << 10 and time.monotonic() < until:
        time.sleep(0.1)
    assert daemon.rss_kib() - before < 64 << 10, f"grown by {daemon.rss_kib() - before} KiB"


def test_refused(daemon):
    with daemon.connect() as lapis:
        rig.refused(lapis, wire.share(0), "EINVAL")
        rig.refused(lapis, wire.Request("share", b""), "EINVAL")
        os.close(lapis.share(3 * MIB))
        rig.refused(lapis, wire.share(MIB), "EALREADY")
    for crc in (wire.CRC_OFF, wire.CRC_HEADER):
        with daemon.connect(crc=crc) as lapis:
            rig.refused(lapis, wire.share(4 * MIB), "EOPNOTSUPP")


def test_no_end_of_it(daemon):
    """There is an end: of one, and of all together; those who came too late read all the same."""
    data = large(daemon, "end/a", 2 * MIB, 4)
    given, clients = 0, []
    for _ in range(200):
        lapis = at_home(daemon, "end/a")
        clients.append(lapis)
        try:
            os.close(lapis.share(1 << 40))
        except wire.Refused as refused:
            assert refused.errno == errno.ENOMEM, refused
            break
        assert 2 * MIB <= len(lapis.shared) <= 16 * MIB
        given += len(lapis.shared)
    assert 2 * MIB <= given <= 8 * MIB, f"{given} bytes are given away"
    assert clients[-1](wire.get("end/a")).data == data
    for lapis in clients:
        lapis.close()
    lapis, descriptor = share_when_there_is(daemon, "end/a", 4 * MIB)  # what they had is there again
    os.close(descriptor)
    lapis.close()


def notice(lapis, **fields):
    fields = {"kind": wire.KIND["notice"], "crc": lapis.crc, **fields}
    meta, data = fields.pop("meta", b""), fields.pop("data", b"")
    lapis.send(wire.message(fields.pop("op", "release"), 0, meta, data, **fields))


def test_notices_that_cannot_be(daemon):
    data = large(daemon, "notice/a", MIB, 5)
    for wrong in ({"offset": 2}, {"offset": 1 << 63}, {"op": "ping"}, {"op": 77}, {"flags": 2}, {"meta": b"x" * 8},
                  {"data": b"x" * 10}, {"offset": 1, "status": 1}, {"back": True}, {"unshared": True}):  # fmt: skip
        with at_home(daemon, "notice/a") as lapis:
            if not wrong.pop("unshared", False):
                os.close(lapis.share(2 * MIB))
                assert lapis(wire.get("notice/a")).data == data
                assert lapis.shared_replies == 1
            if wrong.pop("back", False):
                lapis.release(1)
                wrong = {"offset": 0}
            notice(lapis, **wrong)
            header, meta, _ = lapis.next_message()
            assert (header.opcode, header.request_id, header.status) == (0, 0, errno.EPROTO), (wrong, header, meta)
            try:
                lapis.next_message()
                raise AssertionError(f"the connection goes on: {wrong}")
            except wire.Closed:
                pass


if __name__ == "__main__":
    sys.exit(rig.main(globals()))
