# SPDX-License-Identifier: Apache-2.0
"""inotify, poll, asynchronous I/O: what the kernel builds on a file system."""

import ctypes
import errno
import mmap
import os
import platform
import select
import struct

import posix_call as call
from posix_rig import Skipped, case, check, fails, get, opened, pattern, put, same

MODIFY, CLOSE_WRITE, MOVED_FROM, MOVED_TO, CREATE, DELETE = 0x2, 0x8, 0x40, 0x80, 0x100, 0x200
ATTRIB, DELETE_SELF = 0x4, 0x400
# io_setup, io_submit, io_getevents
SETUP, SUBMIT, GETEVENTS = {"x86_64": (206, 209, 208), "aarch64": (0, 2, 4)}[platform.machine()]


class Watch:
    def __init__(self, path, mask):
        self.fd = call.libc_call("inotify_init1", os.O_NONBLOCK)
        call.libc_call("inotify_add_watch", self.fd, path.encode(), mask)

    def events(self):
        """[(mask, name)] that are there"""
        found = []
        if not select.select([self.fd], [], [], 1)[0]:
            return found
        data = os.read(self.fd, 65536)
        at = 0
        while at < len(data):
            _, mask, _, length = struct.unpack_from("<iIII", data, at)
            name = data[at + 16 : at + 16 + length].rstrip(b"\0").decode()
            found.append((mask & 0xFFF, name))
            at += 16 + length
        return found


@case
def inotify_of_names():
    watch = Watch(".", CREATE | DELETE | MOVED_FROM | MOVED_TO)
    put("f")
    os.rename("f", "g")
    os.unlink("g")
    expected = [(CREATE, "f"), (MOVED_FROM, "f"), (MOVED_TO, "g"), (DELETE, "g")]
    same(watch.events(), expected, "events")


@case
def inotify_of_content():
    put("f")
    watch = Watch("f", MODIFY | CLOSE_WRITE | ATTRIB)
    with opened("f") as fd:
        os.write(fd, b"x")
    os.chmod("f", 0o600)
    same(watch.events(), [(MODIFY, ""), (CLOSE_WRITE, ""), (ATTRIB, "")], "events")


@case
def inotify_of_removal():
    put("f")
    watch = Watch("f", DELETE_SELF)
    os.unlink("f")
    same(watch.events()[0], (DELETE_SELF, ""), "the event")


@case
def files_are_always_ready():
    put("f", b"abc")
    with opened("f") as fd:
        poll = select.poll()
        poll.register(fd, select.POLLIN | select.POLLOUT)
        same(poll.poll(0), [(fd, select.POLLIN | select.POLLOUT)], "what poll says")
        fails(errno.EPERM, select.epoll().register, fd)


class NativeAio:
    """io_setup and what goes with it"""

    READ, WRITE, FSYNC = 0, 1, 2

    def __init__(self):
        self.context = ctypes.c_ulong(0)
        self._call(SETUP, ctypes.c_uint(32), ctypes.byref(self.context))

    @staticmethod
    def _call(number, *args):
        ctypes.set_errno(0)
        result = call.libc.syscall(ctypes.c_long(number), *args)
        if result < 0:
            call.raise_errno("aio")
        return result

    def submit(self, operations):
        """[(what, fd, buffer, length, offset)]"""
        blocks = []
        for index, (what, fd, buffer, length, offset) in enumerate(operations):
            address = ctypes.addressof(ctypes.c_char.from_buffer(buffer)) if buffer else 0
            packed = struct.pack("<QIIHhIQQqQII", index, 0, 0, what, 0, fd, address, length, offset, 0, 0, 0)
            blocks.append(ctypes.create_string_buffer(packed, 64))
        pointers = (ctypes.c_void_p * len(blocks))(*[ctypes.addressof(block) for block in blocks])
        same(self._call(SUBMIT, self.context, len(blocks), pointers), len(blocks), "submitted")
        return self._results(len(blocks))

    def _results(self, count):
        events = ctypes.create_string_buffer(32 * count)
        got = self._call(GETEVENTS, self.context, count, count, events, None)
        same(got, count, "events")
        found = {}
        for at in range(count):
            index, _, result, _ = struct.unpack_from("<QQqq", events.raw, at * 32)
            found[index] = result
        return [found[index] for index in range(count)]


@case
def native_aio():
    put("f")
    aio = NativeAio()
    with opened("f") as fd:
        writes = [(aio.WRITE, fd, call.aligned(pattern(4096, n + 1)), 4096, n * 4096) for n in range(8)]
        same(aio.submit(writes), [4096] * 8, "results of the writes")
        same(aio.submit([(aio.FSYNC, fd, None, 0, 0)]), [0], "result of the fsync")
        buffers = [call.aligned(length=4096) for _ in range(8)]
        reads = [(aio.READ, fd, buffer, 4096, n * 4096) for n, buffer in enumerate(buffers)]
        same(aio.submit(reads), [4096] * 8, "results of the reads")
        same([buffer[:] for buffer in buffers], [pattern(4096, n + 1) for n in range(8)], "what they read")


@case
def native_aio_direct():
    put("f", bytes(8 * 4096))
    aio = NativeAio()
    with opened("f", os.O_RDWR | os.O_DIRECT) as fd:
        writes = [(aio.WRITE, fd, call.aligned(pattern(4096, n + 1)), 4096, n * 4096) for n in range(16)]
        same(aio.submit(writes), [4096] * 16, "results of the writes")
        buffer = call.aligned(length=8192)
        same(aio.submit([(aio.READ, fd, buffer, 8192, 15 * 4096)]), [4096], "result across the end")
        check(buffer[:4096] == pattern(4096, 16), "what it read")
    same(get("f"), b"".join(pattern(4096, n + 1) for n in range(16)), "the content")


# io_uring, with one entry at a time


class Ring:
    OPEN, ENTER = 425, 426
    FSYNC, READ, WRITE = 3, 22, 23

    def __init__(self):
        params = ctypes.create_string_buffer(120)
        ctypes.set_errno(0)
        self.fd = call.libc.syscall(ctypes.c_long(self.OPEN), ctypes.c_uint(32), params)
        if self.fd < 0:
            raise Skipped(f"no io_uring: {os.strerror(ctypes.get_errno())}")
        self.sq_entries, cq_entries = struct.unpack_from("<II", params.raw, 0)
        sq = struct.unpack_from("<8I", params.raw, 40)
        cq = struct.unpack_from("<8I", params.raw, 80)
        self.sq_tail, self.sq_mask, self.sq_array = sq[1], sq[2], sq[6]
        self.cq_head, self.cq_tail, self.cq_mask, self.cqes = cq[0], cq[1], cq[2], cq[5]
        self.sq = mmap.mmap(self.fd, self.sq_array + 4 * self.sq_entries)
        self.cq = mmap.mmap(self.fd, self.cqes + 16 * cq_entries, offset=0x8000000)
        self.sqes = mmap.mmap(self.fd, 64 * self.sq_entries, offset=0x10000000)

    @staticmethod
    def word(area, at):
        return struct.unpack_from("<I", area, at)[0]

    def run(self, operations):
        """Results of [(what, fd, address or 0, length, offset)], all under way at once."""
        for index, (what, fd, address, length, offset) in enumerate(operations):
            struct.pack_into("<BBHiQQIIQ24x", self.sqes, 64 * index, what, 0, 0, fd, offset, address, length, 0, index)
            tail = self.word(self.sq, self.sq_tail)
            slot = tail & self.word(self.sq, self.sq_mask)
            struct.pack_into("<I", self.sq, self.sq_array + 4 * slot, index)
            struct.pack_into("<I", self.sq, self.sq_tail, tail + 1)
        count = len(operations)
        done = call.libc.syscall(
            ctypes.c_long(self.ENTER), self.fd, ctypes.c_uint(count), ctypes.c_uint(count), ctypes.c_uint(1), None, 0
        )
        same(done, count, "submitted")
        found = {}
        for _ in range(count):
            head = self.word(self.cq, self.cq_head)
            slot = head & self.word(self.cq, self.cq_mask)
            index, result, _ = struct.unpack_from("<QiI", self.cq, self.cqes + 16 * slot)
            found[index] = result
            struct.pack_into("<I", self.cq, self.cq_head, head + 1)
        return [found[index] for index in range(count)]


def address_of(buffer):
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


@case
def uring_buffered():
    put("f")
    ring = Ring()
    with opened("f") as fd:
        buffers = [call.aligned(pattern(5000, n + 1)) for n in range(8)]
        writes = [(ring.WRITE, fd, address_of(b), 5000, n * 5000) for n, b in enumerate(buffers)]
        same(ring.run(writes), [5000] * 8, "results of the writes")
        same(ring.run([(ring.FSYNC, fd, 0, 0, 0)]), [0], "result of the fsync")
        buffer = call.aligned(length=50_000)
        same(ring.run([(ring.READ, fd, address_of(buffer), 50_000, 0)]), [40_000], "result of the read")
        same(buffer[:40_000], b"".join(pattern(5000, n + 1) for n in range(8)), "what it read")


@case
def uring_direct():
    put("f", bytes(16 * 4096))
    ring = Ring()
    with opened("f", os.O_RDWR | os.O_DIRECT) as fd:
        buffers = [call.aligned(pattern(4096, n + 1)) for n in range(16)]
        writes = [(ring.WRITE, fd, address_of(b), 4096, n * 4096) for n, b in enumerate(buffers)]
        same(ring.run(writes), [4096] * 16, "results of the writes")
        targets = [call.aligned(length=4096) for _ in range(16)]
        reads = [(ring.READ, fd, address_of(b), 4096, n * 4096) for n, b in enumerate(targets)]
        same(ring.run(reads), [4096] * 16, "results of the reads")
        same([t[:] for t in targets], [pattern(4096, n + 1) for n in range(16)], "what they read")


@case
def uring_errors():
    put("f", b"abc")
    ring = Ring()
    buffer = call.aligned(length=4096)
    with opened("f", os.O_RDONLY) as fd:
        same(ring.run([(ring.WRITE, fd, address_of(buffer), 10, 0)]), [-errno.EBADF], "a write")
        same(ring.run([(ring.READ, fd, address_of(buffer), 10, 3)]), [0], "a read at the end")
        same(ring.run([(ring.READ, fd, address_of(buffer), 10, 0)]), [3], "a read")
