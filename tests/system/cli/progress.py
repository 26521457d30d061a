#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# variants: release release-nolto debug
"""Goal: what takes longer than a second says how far it is, on a terminal: put, get, cp, sync, mkfs, fsck
and scrub. The line is gone at the end; without a terminal, with --no-progress, and for what is quick
there is none.
Method: a terminal of Python's pty as standard error. No machine is slow enough by itself, so the daemon is
stopped for a while, or the program by a call that strace delays."""

import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

LAPIS = str(pathlib.Path(os.environ["LP_TEST_BUILD"], "bin", "lapis"))
LAPISD = str(pathlib.Path(os.environ["LP_TEST_BUILD"], "bin", "lapisd"))
PATIENCE_S = 60
HOLD_S = 1.5
MIB = 1 << 20


def run(argv, held=None):
    """What it has said on a terminal that is its standard error; held: a process that is stopped for
    the first HOLD_S. It has to succeed."""
    master, slave = pty.openpty()
    if held:
        os.kill(held, signal.SIGSTOP)
    begin, shown, is_held = time.monotonic(), b"", bool(held)
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave) as program:
        os.close(slave)
        while True:
            if is_held and time.monotonic() - begin >= HOLD_S:
                os.kill(held, signal.SIGCONT)
                is_held = False
            assert time.monotonic() - begin < PATIENCE_S, (argv, shown)
            if not select.select([master], [], [], 0.1)[0]:
                continue
            try:
                got = os.read(master, 65536)
            except OSError:  # the last one has closed it
                break
            if not got:
                break
            shown += got
    os.close(master)
    if is_held:
        os.kill(held, signal.SIGCONT)
    text = shown.decode("utf-8", "replace")
    assert program.returncode == 0, (argv, program.returncode, text)
    return text


def screen(text):
    """What is left on the last line: each \\r goes to its begin, and ESC [ K takes the rest away."""
    assert "\n" not in text, text
    line = ""
    for part in text.split("\r")[1:]:
        line = part + line[len(part):] if "\033[K" not in part else part.split("\033[K", 1)[0]
    return line


def check_shown(name, text, pattern):
    assert re.search(pattern, text), f"{name}: no progress: {text!r}"
    assert screen(text) == "", f"{name}: it is left there: {text!r}"
    print(f"{name}: {text.split(chr(13))[1]!r}")


def serve():
    daemon = subprocess.Popen(
        [LAPISD, "--memory", "128M", "--listen", os.environ["LAPIS_ADDRESS"], "img"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    line = daemon.stdout.readline()
    assert line == b"lapisd: ready\n", line
    return daemon


def transfers(daemon):
    """put, get, cp both ways and sync: while the daemon is stopped nothing moves."""
    pathlib.Path("tree").mkdir()
    data = os.urandom(8 * MIB)
    for name in ("big", "tree/one", "tree/two"):
        pathlib.Path(name).write_bytes(data)
    bytes_of = r"[0-9.]+ ([KMG]i)?B.*/s"
    calls = {
        "put": ["put", "big", "b/big"],
        "get": ["get", "b/big", "back"],
        "cp": ["cp", "./big", "b/copy"],
        "cp back": ["cp", "b/copy", "./copy"],
        "cp -r": ["cp", "-r", "./tree", "b/copied"],
        "sync": ["sync", "./tree", "b/tree"],
        "sync back": ["sync", "b/tree", "./again"],
    }
    for name, call in calls.items():
        quiet = [LAPIS, call[0], "--no-progress", *call[1:]]
        check_shown(name, run([LAPIS, *call], daemon.pid), bytes_of)
        for back in ("back", "copy"):
            pathlib.Path(back).unlink(missing_ok=True)
        shutil.rmtree("again", ignore_errors=True)
        if name in ("put", "cp back"):
            assert run(quiet, daemon.pid) == "", name
    # What is quick says nothing.
    pathlib.Path("small").write_bytes(b"small")
    assert run([LAPIS, "put", "small", "b/small"]) == ""
    # Nor does what has no terminal.
    os.kill(daemon.pid, signal.SIGSTOP)
    with subprocess.Popen([LAPIS, "put", "big", "b/big"], stderr=subprocess.PIPE) as program:
        time.sleep(HOLD_S)
        os.kill(daemon.pid, signal.SIGCONT)
        assert program.stderr.read() == b"" and program.wait() == 0


def scrub():
    subprocess.run([LAPIS, "config", "set", "scrub-rate", "4M"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([LAPIS, "scrub", "start"], check=True, stdout=subprocess.DEVNULL)
    check_shown("scrub", run([LAPIS, "scrub", "wait"]), r"[0-9]+ objects, [0-9.]+ ?[KMG]?i?B?")


def delayed(call, number):
    return ["strace", "-f", "-o", "trace", "-e", f"trace={call}", "-e",
            f"inject={call}:delay_enter=1600000:when={number}"]  # fmt: skip


def mkfs():
    """It has a flush that takes long."""
    call = [LAPIS, "mkfs", "--size", "512M", "--shards", "1"]
    check_shown("mkfs", run([*delayed("fdatasync", 1), *call, "img"]), r"making the store: 1 s")
    assert run([*delayed("fdatasync", 1), *call, "--no-progress", "img2"]) == ""


def fsck():
    """One of its first reads takes long; what it goes on with is said then."""
    slow = delayed("preadv2", 10)
    check_shown("fsck", run([*slow, LAPIS, "fsck", "img"]), r"[0-9]+ done")
    check_shown("fsck --deep", run([*slow, LAPIS, "fsck", "--deep", "img"]), r"[0-9]+ done")
    assert run([*slow, LAPIS, "fsck", "--no-progress", "img"]) == ""


def main():
    if not shutil.which("strace"):
        print("no strace: scripts/deps --dev")
        return 77
    os.chdir(os.environ["LP_TEST_SCRATCH"])
    os.environ["LAPIS_ADDRESS"] = f"unix:{os.getcwd()}/s"
    mkfs()
    daemon = serve()
    try:
        subprocess.run([LAPIS, "mb", "b"], check=True)
        transfers(daemon)
        scrub()
        daemon.terminate()
        assert daemon.wait(PATIENCE_S) == 0
    finally:
        daemon.kill()
        daemon.wait()
    fsck()
    return 0


if __name__ == "__main__":
    sys.exit(main())
