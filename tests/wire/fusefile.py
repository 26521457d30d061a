#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A file that misbehaves when it is told to: a FUSE file system with one file, `disk`, which has what
a file elsewhere has. While CONTROL/hang exists no read or write is answered; while CONTROL/fail
exists writes and flushes get EIO; with CONTROL/dead also reads. Writes that begin with the bytes in
CONTROL/spoil get EIO, as those to a place that is broken do. It speaks to the kernel directly
(linux/fuse.h) and is mounted by fusermount3, as root or not.

    python3 fusefile.py FILE MOUNTPOINT CONTROL     serves until it is unmounted or killed
"""

import errno
import os
import pathlib
import select
import socket
import stat
import struct
import subprocess
import sys
import time

LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE, STATFS, RELEASE, FSYNC = (
    1, 2, 3, 4, 14, 15, 16, 17, 18, 20)  # fmt: skip
FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, INTERRUPT, DESTROY, BATCH_FORGET = (
    25, 26, 27, 28, 29, 36, 38, 42)  # fmt: skip
IN_HEADER = struct.Struct("<IIQQIIII")
# Without the second, writes to one file wait for each other in the kernel, in whoever submits them.
DIRECT_IO, PARALLEL_WRITES = 1 << 0, 1 << 6
MAX_WRITE = 1 << 20
ROOT, DISK = 1, 2


def available():
    """Why it cannot be used here, or None."""
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse"
    try:
        subprocess.run(["fusermount3", "--version"], stdout=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "no fusermount3"
    return None


def mount(mountpoint):
    """Returns the descriptor on which the kernel asks."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        subprocess.run(
            ["fusermount3", "-o", "rw,nosuid,nodev,fsname=fusefile", "--", str(mountpoint)],
            env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
            pass_fds=[theirs.fileno()],
            check=True,
        )
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    return fds[0]


class Server:
    def __init__(self, file, fd, control):
        self.file = os.open(file, os.O_RDWR)
        self.size = os.fstat(self.file).st_size
        self.fd = fd
        self.control = pathlib.Path(control)
        self.waiting = []

    def is_told(self, word):
        return (self.control / word).exists()

    def attributes(self, node):
        is_disk = node == DISK
        mode = stat.S_IFREG | 0o600 if is_disk else stat.S_IFDIR | 0o700
        size = self.size if is_disk else 0
        return struct.pack(
            "<QQQQQQIIIIIIIIII", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, os.getuid(),
            os.getgid(), 0, 4096, 0,
        )  # fmt: skip

    def answer(self, unique, body=b"", error=0):
        os.write(self.fd, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def read(self, unique, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        if self.is_told("dead"):
            self.answer(unique, error=errno.EIO)
        else:
            self.answer(unique, os.pread(self.file, size, offset))

    def is_spoiled(self, data):
        """The file may be gone by now; and who writes it makes an empty one first, with which all writes begin."""
        try:
            mark = (self.control / "spoil").read_bytes()
        except FileNotFoundError:
            return False
        return bool(mark) and data.startswith(mark)

    def write(self, unique, body):
        _, offset, size = struct.unpack_from("<QQI", body)
        if self.is_spoiled(body[40:]) or self.is_told("fail") or self.is_told("dead"):
            self.answer(unique, error=errno.EIO)
            return
        done = os.pwrite(self.file, body[40 : 40 + size], offset)
        self.answer(unique, struct.pack("<II", done, 0))

    def flush(self, unique, _):
        self.answer(unique, error=errno.EIO if self.is_told("fail") or self.is_told("dead") else 0)

    def look(self, opcode, unique, node, body):
        if opcode == INIT:
            flags = 1 << 0 | 1 << 5 | 1 << 15 | 1 << 22  # async reads and O_DIRECT, long messages
            self.answer(
                unique,
                struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, flags, 64, 48, MAX_WRITE, 1,
                            MAX_WRITE >> 12, 0, 0, *[0] * 7),
            )  # fmt: skip
        elif opcode == LOOKUP and body.rstrip(b"\0") == b"disk":
            self.answer(unique, struct.pack("<QQQQII", DISK, 0, 9, 9, 0, 0) + self.attributes(DISK))
        elif opcode == LOOKUP:
            self.answer(unique, error=errno.ENOENT)
        elif opcode in (GETATTR, SETATTR):
            self.answer(unique, struct.pack("<QII", 9, 0, 0) + self.attributes(node))
        elif opcode in (OPEN, OPENDIR):
            self.answer(unique, struct.pack("<QII", 0, DIRECT_IO | PARALLEL_WRITES, 0))
        elif opcode == STATFS:
            self.answer(unique, struct.pack("<QQQQQIIII6I", 1, 0, 0, 1, 0, 4096, 255, 4096, 0,
                                            *[0] * 6))  # fmt: skip
        elif opcode in (READDIR, RELEASE, RELEASEDIR, FLUSH):
            self.answer(unique)
        else:
            self.answer(unique, error=errno.ENOSYS)

    def one(self, raw):
        _, opcode, unique, node, *_ = IN_HEADER.unpack_from(raw)
        body = raw[IN_HEADER.size :]
        slow = {READ: self.read, WRITE: self.write, FSYNC: self.flush}.get(opcode)
        if opcode in (FORGET, BATCH_FORGET, INTERRUPT, DESTROY):
            return
        if slow is None:
            self.look(opcode, unique, node, body)
        elif self.is_told("hang"):
            self.waiting.append((slow, unique, body))
        else:
            slow(unique, body)

    def serve(self):
        poll = select.poll()
        poll.register(self.fd, select.POLLIN)
        while True:
            if self.waiting and not self.is_told("hang"):
                waiting, self.waiting = self.waiting, []
                for slow, unique, body in waiting:
                    slow(unique, body)
            if not poll.poll(20 if self.waiting else None):
                continue
            try:
                self.one(os.read(self.fd, MAX_WRITE + 8192))
            except OSError as error:
                if error.errno == errno.ENODEV:
                    return
                if error.errno not in (errno.EINTR, errno.ENOENT, errno.EAGAIN):
                    raise


class FuseFile:
    """One that serves in a process of its own, for a test."""

    def __init__(self, file, directory):
        self.directory = pathlib.Path(directory)
        self.mountpoint, self.control = self.directory / "mnt", self.directory / "control"
        for path in (self.mountpoint, self.control):
            path.mkdir(parents=True)
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(file), str(self.mountpoint), str(self.control)]
        )
        end = time.monotonic() + 60
        self.disk = self.mountpoint / "disk"
        while not self.disk.exists():
            if self.process.poll() is not None or time.monotonic() > end:
                self.end()
                raise RuntimeError("the file cannot be served by FUSE")
            time.sleep(0.02)

    def tell(self, word):
        (self.control / word).touch()

    def untell(self, word):
        (self.control / word).unlink(missing_ok=True)

    def end(self):
        subprocess.run(["fusermount3", "-u", "-z", str(self.mountpoint)], check=False,
                       stderr=subprocess.DEVNULL)  # fmt: skip
        self.process.kill()
        self.process.wait()


if __name__ == "__main__":
    Server(sys.argv[1], mount(sys.argv[2]), sys.argv[3]).serve()
