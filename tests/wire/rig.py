#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the tests here share: a daemon of their own, started and stopped, and a runner."""

import contextlib
import errno
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback

import lapis_wire as wire

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
BUILD = pathlib.Path(os.environ.get("LP_TEST_BUILD", ROOT / "build" / "release"))
START_S = 60
# Under a sanitizer on a machine that others use everything takes long; nothing here may depend on it.
PATIENCE_S = 60.0


class Daemon:
    """lapisd in a directory of its own. kind: "mem", "block" on an image file, or "file", 2 shards."""

    def __init__(self, directory, kind, *options, size="512M"):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.kind, self.process = kind, None
        self.image = self.directory / "store.img"
        # Relative and short: the path of a unix socket has little room.
        self.address = "unix:" + os.path.relpath(self.directory / "s")
        where = [str(self.image)] if kind == "block" else ["--store", kind, "--shards", "2"]
        if kind == "file":
            (self.directory / "files").mkdir(exist_ok=True)
            where.append(str(self.directory / "files"))
        self.argv = [str(BUILD / "bin" / "lapisd"), "--listen", self.address, *options, *where]
        self.log = self.directory / "log"
        if kind == "block" and not self.image.exists():
            self.lapis("mkfs", "--shards", "2", "--size", size, str(self.image))

    def lapis(self, *args):
        return subprocess.run(
            [str(BUILD / "bin" / "lapis"), *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=True,
            encoding="utf-8",
        ).stdout

    def start(self):
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.argv, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL
            )
        line = self.process.stdout.readline()
        if line != b"lapisd: ready\n":
            self.process.kill()
            self.process.wait()
            raise RuntimeError(f"not ready but {line}: {self.log_tail()}")
        return self

    def log_tail(self):
        return self.log.read_text("utf-8", "replace")[-3000:]

    def alive(self):
        return self.process is not None and self.process.poll() is None

    def stop(self):
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise RuntimeError(f"SIGTERM does not stop it: {self.log_tail()}") from None
        finally:
            process.stdout.close()
        if status != 0:
            raise RuntimeError(f"exit status {status}: {self.log_tail()}")

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.process = None

    def fsck(self):
        """lapis fsck --deep of the stopped store; anything but clean raises."""
        done = subprocess.run(
            [str(BUILD / "bin" / "lapis"), "fsck", "--deep", str(self.image)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            encoding="utf-8",
        )
        if done.returncode != 0:
            raise AssertionError(f"fsck: status {done.returncode}: {done.stdout[-3000:]}")
        return done.stdout

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise RuntimeError("no VmRSS")

    def connect(self, **options):
        options.setdefault("timeout_s", PATIENCE_S)
        return wire.Connection(self.address, **options)


@contextlib.contextmanager
def running(directory, kind, *options, **more):
    daemon = Daemon(directory, kind, *options, **more)
    daemon.start()
    try:
        yield daemon
    except BaseException:
        if daemon.process is not None:
            daemon.kill()
        raise
    daemon.stop()


def refused(connection, request, *errors):
    """The request is refused with one of these errors (names); returns it."""
    try:
        answer = connection(request)
    except wire.Refused as refusal:
        numbers = [getattr(errno, error) for error in errors]
        assert refusal.errno in numbers, f"{refusal}, not {errors}"
        assert len(refusal.reply.meta) <= 255 or request.op == "compound", refusal.reply.meta
        return refusal
    raise AssertionError(f"{request.op}: not {errors}, but {answer}")


def run(tests, daemon):
    """Runs each test on the daemon; a failure does not keep the others from running."""
    failures = 0
    for test in tests:
        begin = time.monotonic()
        try:
            if not daemon.alive():
                raise RuntimeError("the daemon is gone: " + daemon.log_tail())
            test(daemon)
            word = "ok  "
        except Exception:
            traceback.print_exc(file=sys.stdout)
            failures += 1
            word = "FAIL"
            if not daemon.alive():
                print(daemon.log_tail())
        name = getattr(test, "func", test).__name__
        print(f"{word} {daemon.kind} {name} {time.monotonic() - begin:.2f} s", flush=True)
        if not daemon.alive():
            with contextlib.suppress(Exception):
                daemon.kill()
            daemon.start()
    return failures


def tests_of(module_globals, only=""):
    return [
        value
        for name, value in module_globals.items()
        if name.startswith("test_") and callable(value) and only in name
    ]


def main(module_globals):
    """python3 FILE [mem|block|file|both] [PART-OF-A-NAME]; both: mem and block"""
    asked = (sys.argv[1:] or ["both"])[0]
    kinds = [asked] if asked in ("mem", "block", "file") else ["mem", "block"]
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    failures = 0
    for kind in kinds:
        options = module_globals.get("OPTIONS", [])
        directory = pathlib.Path(os.environ.get("TMPDIR", ".")) / f"{kind}{os.getpid()}"
        with running(directory, kind, *options) as daemon:
            failures += run(tests_of(module_globals, only), daemon)
        if kind == "block":
            daemon.fsck()
    print(f"{failures} failures")
    return 1 if failures else 0
