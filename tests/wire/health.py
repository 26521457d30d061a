#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: an operator sees at once, in one line each, what a device does to the daemon, and what is
durable can be read all the while (rule L7; promise P5). Method: an image file served by fusefile.py,
which hangs or fails when told to; status and log of the daemon on it."""

import contextlib
import errno
import functools
import json
import os
import pathlib
import re
import shutil
import sys
import threading
import time

import fusefile
import lapis_wire as wire
import rig

TIMEOUT_S = 1


class Scene:
    """A daemon on an image file that misbehaves."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.daemon = rig.Daemon(
            self.directory, "block", "--memory", "192M", "--device-timeout", str(TIMEOUT_S),
            size="256M",
        )  # fmt: skip
        self.disk = fusefile.FuseFile(self.daemon.image, self.directory / "fuse")
        self.daemon.argv[-1] = str(self.disk.disk)

    def __enter__(self):
        self.daemon.start()
        return self

    def __exit__(self, *_):
        # Whoever waits for the device is let go: a process that does cannot be killed.
        for word in ("hang", "fail", "dead"):
            self.disk.untell(word)
        if self.daemon.process is not None:
            self.daemon.kill()
        self.disk.end()
        shutil.rmtree(self.directory, ignore_errors=True)

    def status(self):
        with self.daemon.connect() as lapis:
            return json.loads(lapis(wire.status()))

    def await_state(self, state, reason=""):
        """Returns how long it took, and the status."""
        begin = time.monotonic()
        while True:
            status = self.status()
            if status["state"] == state and re.search(reason, status["reason"]):
                return time.monotonic() - begin, status
            assert time.monotonic() - begin < rig.PATIENCE_S, f"not {state} {reason!r} but {status}"
            time.sleep(0.02)

    def said(self, pattern):
        """The lines of the log that tell of health, and match."""
        lines = self.daemon.log.read_text("utf-8", "replace").splitlines()
        return [line for line in lines if "health: " in line and re.search(pattern, line)]


def put(lapis, key, data):
    """0, or the number of the error."""
    try:
        lapis(wire.put(key, data))
    except wire.Refused as refusal:
        return refusal.errno
    return 0


def test_a_device_that_hangs(scene, _):
    """It is said after its time, once; what waited for it goes on when it answers again."""
    outcome = []
    with scene.daemon.connect() as lapis:
        assert put(lapis, "hang/a", b"a" * 9000) == 0
        scene.disk.tell("hang")
        waiting = threading.Thread(
            target=lambda: outcome.append(put(lapis, "hang/b", b"b" * 9000))
        )
        waiting.start()
        took_s, status = scene.await_state("degraded", "disk: the device does not answer")
        assert status["devices"][0]["silent"] is True, status
        time.sleep(2.5)  # It is looked at twice more: no more is said.
        assert not outcome, outcome
        scene.disk.untell("hang")
        scene.await_state("ok", "^$")
        waiting.join()
        assert outcome == [0], outcome
        assert lapis(wire.get("hang/b")).data == b"b" * 9000
    assert len(scene.said("degraded: .*disk: the device does not answer$")) == 1, scene.said("")
    assert len(scene.said("ok again$")) == 1, scene.said("")
    assert len(scene.said("")) == 2, scene.said("")
    print(f"     seen after {took_s:.2f} s")


def test_a_check_while_a_device_hangs(scene, _):
    """A check of the structure that finds no moment of rest gives up, says so, and holds up nobody."""

    def checked(lapis, what):
        begin = time.monotonic()
        lapis(wire.check("start"))
        while (found := json.loads(lapis(wire.check())))["state"] == "running":
            assert time.monotonic() - begin < rig.PATIENCE_S, found
            time.sleep(0.02)
        assert found["state"] == what, found
        return found

    outcome = []
    with scene.daemon.connect() as lapis, scene.daemon.connect() as other:
        scene.disk.tell("hang")
        # On both shards, so that each has something under way.
        waiting = [
            threading.Thread(target=lambda i=i: outcome.append(put(scene.daemon.connect(), f"check/b{i}", b"b" * 9000)))
            for i in range(8)
        ]
        for thread in waiting:
            thread.start()
        scene.await_state("degraded", "the device does not answer")
        found = checked(other, "failed")
        assert "did not come to rest" in found["error"], found
        assert not outcome, outcome
        scene.disk.untell("hang")
        scene.await_state("ok", "^$")
        for thread in waiting:
            thread.join()
        assert outcome == [0] * len(waiting), outcome
        assert checked(other, "done")["problems"] == 0
        assert put(lapis, "check/c", b"c") == 0


def test_a_device_that_fails(scene, _):
    """Its writes fail: read-only, with what, where and why; what was acknowledged can be read."""
    lapis = scene.daemon.connect(shard=0)
    assert put(lapis, "fail/a", b"a" * 200000) == 0
    lapis(wire.sync())
    scene.disk.tell("fail")
    # Data that does not get to its place fails its put only; a frame of the log all of them.
    for data in (b"b" * 200000, b"c"):
        error = put(lapis, "fail/b", data)
        assert error in (errno.EIO, errno.EROFS), errno.errorcode.get(error)
    took_s, status = scene.await_state("read-only", "durable data can be read")
    assert re.search("Input/output error", status["reason"]), status
    for number in range(20):
        assert put(lapis, f"fail/c{number}", b"c") != 0
    assert lapis(wire.get("fail/a")).data == b"a" * 200000
    lapis.close()
    # Two shards at most, each on its way and once there; nothing is said twice.
    lines = [line.split("health: ", 1)[1] for line in scene.said("shard [01] cannot be changed")]
    assert 2 <= len(lines) <= 4 and len(set(lines)) == len(lines), lines
    assert not scene.said("ok again")
    assert len(scene.said("degraded")) <= 1, scene.said("degraded")
    print(f"     seen after {took_s:.3f} s: {status['reason']}")
    scene.disk.untell("fail")
    with contextlib.suppress(RuntimeError):
        scene.daemon.stop()  # not cleanly: it may say so
    scene.daemon.start()
    with scene.daemon.connect() as again:
        assert again(wire.get("fail/a")).data == b"a" * 200000
        assert put(again, "fail/b", b"b") == 0
    assert scene.status()["state"] == "ok"
    scene.daemon.stop()
    scene.daemon.fsck()


def test_a_block_that_cannot_be_written(scene, _):
    """Rule L6: its content is kept, and the operator is told which one it is, and since when."""
    mark = b"a block that cannot be written: "
    data = mark * (4096 // len(mark))
    with scene.daemon.connect() as lapis:
        scene.disk.tell("spoil")  # as it is for a moment when it is being written: no write begins with nothing
        lapis(wire.put("bad/other", b"small"))
        (scene.disk.control / "spoil").write_bytes(mark)
        assert "bad_blocks" in scene.status() and scene.status()["bad_blocks"] == {"count": 0}
        lapis(wire.put("bad/a", data, write_path="deferred"))
        begin = time.monotonic()
        while scene.status()["bad_blocks"]["count"] == 0:
            assert time.monotonic() - begin < rig.PATIENCE_S, scene.status()
            time.sleep(0.05)
        status = scene.status()
        assert status["state"] == "ok", status
        bad = status["bad_blocks"]
        assert bad["count"] == 1 and len(bad["places"]) == 1, bad
        assert abs(time.time() - bad["since"]) < 2 * rig.PATIENCE_S, bad
        place = bad["places"][0]
        assert lapis(wire.get("bad/a")).data == data
        numbers = lapis(wire.stats("prometheus")).decode()
    shown = scene.daemon.lapis("-s", scene.daemon.address, "status")
    assert re.search(rf"^bad +1 block that cannot be written, since .*: {place['block']}$",
                     shown, re.MULTILINE), shown  # fmt: skip
    series = f'lapis_store_bad_block_timestamp_seconds{{shard="{place["shard"]}",block="{place["block"]}"}}'
    assert f"{series} {bad['since']}\n" in numbers, series
    scene.daemon.stop()
    scene.daemon.start()
    assert scene.status()["bad_blocks"]["places"] == [place], scene.status()
    with scene.daemon.connect() as lapis:
        assert lapis(wire.get("bad/a")).data == data
    scene.daemon.stop()
    found = scene.daemon.fsck()
    assert f"block {place['block']} could not be written" in found, found
    scene.disk.untell("spoil")
    scene.daemon.start()
    assert scene.status()["bad_blocks"] == {"count": 0}, scene.status()
    scene.daemon.stop()
    assert "clean" in scene.daemon.fsck()


def main():
    reason = fusefile.available()
    if reason is not None:
        print(f"a file that fails is not to be had: {reason}")
        return 77
    failures = 0
    for number, test in enumerate(rig.tests_of(globals())):
        directory = pathlib.Path(os.environ.get("TMPDIR", ".")) / f"health{os.getpid()}.{number}"
        with Scene(directory) as scene:
            failures += rig.run([functools.partial(test, scene)], scene.daemon)
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
