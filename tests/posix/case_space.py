# SPDX-License-Identifier: Apache-2.0
"""fallocate, copies within the kernel, clones, statfs."""

import errno
import fcntl
import os
import socket
import struct
import time

import posix_call as call
from posix_rig import (
    Skipped, as_user, case, check, fails, get, get_fd, long_case, needs, opened, pattern, put, same,
)

BLOCK = 4096


def allocated(fd):
    os.fsync(fd)
    return os.fstat(fd).st_blocks * 512


@case
def allocate():
    put("f")
    with opened("f") as fd:
        call.fallocate(fd, 0, 0, 1 << 20)
        same(os.fstat(fd).st_size, 1 << 20, "the size")
        check(allocated(fd) >= 1 << 20, "it is allocated")
        same(get_fd(fd), bytes(1 << 20), "the content")


@case
def allocate_over_data():
    put("f", pattern(10_000))
    with opened("f") as fd:
        call.fallocate(fd, 0, 5000, 20_000)
        same(get_fd(fd), pattern(10_000) + bytes(15_000), "the content")


@case
def allocate_inside_leaves_the_size():
    put("f", pattern(10_000))
    with opened("f") as fd:
        call.fallocate(fd, 0, 0, 5000)
        same(get_fd(fd), pattern(10_000), "the content")


@case
def allocate_keeping_the_size():
    put("f", b"abc")
    with opened("f") as fd:
        call.fallocate(fd, call.FALLOC_KEEP_SIZE, 0, 1 << 20)
        same(os.fstat(fd).st_size, 3, "the size")
        check(allocated(fd) >= 1 << 20, "it is allocated")
        os.pwrite(fd, b"x", 500_000)
        same(os.pread(fd, 10, 100), bytes(10), "what lies between")


@case
def punch():
    put("f", pattern(20 * BLOCK))
    with opened("f") as fd:
        before = allocated(fd)
        mode = call.FALLOC_PUNCH_HOLE | call.FALLOC_KEEP_SIZE
        call.fallocate(fd, mode, 4 * BLOCK, 8 * BLOCK)
        data = pattern(20 * BLOCK)
        expected = data[: 4 * BLOCK] + bytes(8 * BLOCK) + data[12 * BLOCK :]
        same(get_fd(fd), expected, "the content")
        same(before - allocated(fd), 8 * BLOCK, "bytes that were given back")
        same(os.lseek(fd, 0, os.SEEK_HOLE), 4 * BLOCK, "where the hole begins")
        same(os.lseek(fd, 4 * BLOCK, os.SEEK_DATA), 12 * BLOCK, "where it ends")


@case
def punch_parts_of_blocks():
    put("f", pattern(5 * BLOCK))
    with opened("f") as fd:
        mode = call.FALLOC_PUNCH_HOLE | call.FALLOC_KEEP_SIZE
        call.fallocate(fd, mode, 100, 3 * BLOCK)
        data = pattern(5 * BLOCK)
        same(get_fd(fd), data[:100] + bytes(3 * BLOCK) + data[100 + 3 * BLOCK :], "the content")
        call.fallocate(fd, mode, 4 * BLOCK + 10, 20)
        same(os.pread(fd, 20, 4 * BLOCK + 10), bytes(20), "a few bytes")


@case
def punch_across_the_end():
    put("f", pattern(10_000))
    with opened("f") as fd:
        mode = call.FALLOC_PUNCH_HOLE | call.FALLOC_KEEP_SIZE
        call.fallocate(fd, mode, 5000, 100_000)
        same(get_fd(fd), pattern(10_000)[:5000] + bytes(5000), "the content")
        call.fallocate(fd, mode, 200_000, 5000)
        same(os.fstat(fd).st_size, 10_000, "the size")


@case
def punch_needs_keep_size():
    put("f", pattern(10_000))
    with opened("f") as fd:
        fails((errno.EOPNOTSUPP, errno.EINVAL), call.fallocate, fd, call.FALLOC_PUNCH_HOLE, 0, BLOCK)
        same(get_fd(fd), pattern(10_000), "the content")


@case
def zero_range():
    put("f", pattern(10 * BLOCK))
    with opened("f") as fd:
        call.fallocate(fd, call.FALLOC_ZERO_RANGE, 1000, 5 * BLOCK)
        data = pattern(10 * BLOCK)
        expected = data[:1000] + bytes(5 * BLOCK) + data[1000 + 5 * BLOCK :]
        same(get_fd(fd), expected, "the content")


@case
def zero_range_grows():
    put("f", pattern(10_000))
    with opened("f") as fd:
        call.fallocate(fd, call.FALLOC_ZERO_RANGE, 8000, 20_000)
        same(get_fd(fd), pattern(10_000)[:8000] + bytes(20_000), "the content")


@case
def zero_range_keeping_the_size():
    put("f", pattern(10_000))
    with opened("f") as fd:
        mode = call.FALLOC_ZERO_RANGE | call.FALLOC_KEEP_SIZE
        call.fallocate(fd, mode, 8000, 20_000)
        same(get_fd(fd), pattern(10_000)[:8000] + bytes(2000), "the content")


@case
def collapse_range():
    put("f", pattern(10 * BLOCK))
    with opened("f") as fd:
        needs(call.fallocate, fd, call.FALLOC_COLLAPSE, 2 * BLOCK, 3 * BLOCK)
        data = pattern(10 * BLOCK)
        same(get_fd(fd), data[: 2 * BLOCK] + data[5 * BLOCK :], "the content")
        fails(errno.EINVAL, call.fallocate, fd, call.FALLOC_COLLAPSE, 100, BLOCK)


@case
def insert_range():
    put("f", pattern(10 * BLOCK))
    with opened("f") as fd:
        needs(call.fallocate, fd, call.FALLOC_INSERT, 2 * BLOCK, 3 * BLOCK)
        data = pattern(10 * BLOCK)
        same(get_fd(fd), data[: 2 * BLOCK] + bytes(3 * BLOCK) + data[2 * BLOCK :], "the content")


@case
def fallocate_errors():
    put("f")
    with opened("f") as fd:
        fails(errno.EINVAL, call.fallocate, fd, 0, 0, 0)
        fails(errno.EINVAL, call.fallocate, fd, 0, -1, 10)
        fails(errno.EINVAL, call.fallocate, fd, 0, 0, -1)
        fails(errno.EFBIG, call.fallocate, fd, 0, (1 << 63) - 100, 100)
        fails(errno.EOPNOTSUPP, call.fallocate, fd, 0x4000, 0, 10)
    with opened("f", os.O_RDONLY) as fd:
        fails(errno.EBADF, call.fallocate, fd, 0, 0, 10)
    with opened(".", os.O_RDONLY) as fd:
        fails(errno.EBADF, call.fallocate, fd, 0, 0, 10)
    reader, writer = os.pipe()
    fails(errno.ESPIPE, call.fallocate, writer, 0, 0, 10)
    os.close(reader)


@case
def fallocate_append_only_descriptor():
    put("f", b"abc")
    with opened("f", os.O_WRONLY | os.O_APPEND) as fd:
        call.fallocate(fd, 0, 0, 100)
        os.write(fd, b"x")
        same(os.fstat(fd).st_size, 101, "the size")


def free_bytes():
    there = os.statvfs(".")
    return there.f_bavail * there.f_frsize


def ask_for_too_much(fd):
    there = os.statvfs(".")
    size = there.f_blocks * there.f_frsize
    if size > 1 << 43:
        raise Skipped("there is too much space to ask for more")
    fails(errno.ENOSPC, call.fallocate, fd, 0, 0, size + (64 << 20))
    return there.f_bavail * there.f_frsize


@long_case
def fallocate_more_than_there_is():
    put("f")
    with opened("f") as fd:
        ask_for_too_much(fd)
        os.unlink("f")
    put("g", b"abc")
    with opened("g") as fd:
        os.fsync(fd)


@case
def refused_allocation_is_undone_by_truncate():
    put("f")
    with opened("f") as fd:
        try:
            before = ask_for_too_much(fd)
            os.ftruncate(fd, 0)
            os.fsync(fd)
            deadline = time.monotonic() + 10
            while (lost := before - free_bytes()) >= before // 4:
                fine = time.monotonic() < deadline
                check(fine, f"the space is free again ({lost} of {before} bytes are lost)")
                time.sleep(0.01)
        finally:
            os.unlink("f")


@case
def posix_fallocate():
    put("f", b"abc")
    with opened("f") as fd:
        os.posix_fallocate(fd, 100, 10_000)
        same(get_fd(fd), b"abc" + bytes(10_097), "the content")


@case
def allocated_space_reads_zero_after_partial_write():
    put("f")
    with opened("f") as fd:
        call.fallocate(fd, 0, 0, 10 * BLOCK)
        os.pwrite(fd, b"abc", 5 * BLOCK + 7)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        expected = bytes(5 * BLOCK + 7) + b"abc" + bytes(5 * BLOCK - 10)
        same(get_fd(fd), expected, "the content")


@case
def copy_range():
    put("from", pattern(300_000))
    put("to", b"abc")
    with opened("from") as source, opened("to") as target:
        same(os.copy_file_range(source, target, 300_000), 300_000, "bytes copied")
        same(os.lseek(source, 0, os.SEEK_CUR), 300_000, "the source's position")
        same(os.lseek(target, 0, os.SEEK_CUR), 300_000, "the target's position")
        same(os.copy_file_range(source, target, 10), 0, "at the end")
    same(get("to"), pattern(300_000), "the content")


@case
def copy_range_with_offsets():
    put("from", pattern(100_000))
    put("to", pattern(50_000, seed=2))
    with opened("from") as source, opened("to") as target:
        same(os.copy_file_range(source, target, 10_000, 1001, 2003), 10_000, "bytes copied")
        expected = bytearray(pattern(50_000, seed=2))
        expected[2003:12_003] = pattern(100_000)[1001:11_001]
        same(get_fd(target), bytes(expected), "the content")
        same(os.lseek(target, 0, os.SEEK_CUR), 0, "the position")
        same(os.copy_file_range(source, target, 1000, 99_500, 60_000), 500, "across the end")
        same(os.fstat(target).st_size, 60_500, "the size")


@case
def copy_range_is_independent():
    put("from", pattern(100_000))
    put("to")
    with opened("from") as source, opened("to") as target:
        os.copy_file_range(source, target, 100_000)
        os.pwrite(source, b"X" * 10_000, 20_000)
        same(get_fd(target), pattern(100_000), "the copy, after the source changed")
        os.pwrite(target, b"Y" * 10_000, 50_000)
        same(os.pread(source, 10_000, 50_000), pattern(100_000)[50_000:60_000], "the source")


@case
def copy_range_of_unsynced_data():
    put("to")
    put("from", pattern(70_000))
    with opened("from") as source, opened("to") as target:
        os.pwrite(source, b"X" * 5000, 3000)
        os.copy_file_range(source, target, 70_000)
        same(get_fd(target), get_fd(source), "the copy")


@case
def copy_range_within_a_file():
    put("f", pattern(100_000))
    with opened("f") as fd:
        same(os.copy_file_range(fd, fd, 10_000, 0, 50_000), 10_000, "bytes copied")
        same(os.pread(fd, 10_000, 50_000), pattern(10_000), "what was copied")
        fails(errno.EINVAL, os.copy_file_range, fd, fd, 10_000, 0, 5000)


@case
def copy_range_errors():
    put("from", b"abc")
    put("to")
    with opened("from") as source, opened("to") as target:
        with opened("from", os.O_WRONLY) as write_only:
            fails(errno.EBADF, os.copy_file_range, write_only, target, 3)
        with opened("to", os.O_RDONLY) as read_only:
            fails(errno.EBADF, os.copy_file_range, source, read_only, 3)
        with opened("to", os.O_WRONLY | os.O_APPEND) as append:
            fails(errno.EBADF, os.copy_file_range, source, append, 3)
        with opened(".", os.O_RDONLY) as directory:
            fails(errno.EISDIR, os.copy_file_range, directory, target, 3)
        same(os.copy_file_range(source, target, 0), 0, "0 bytes")


@case
def copy_range_of_a_hole():
    put("from")
    put("to", b"x" * 100_000)
    with opened("from") as source, opened("to") as target:
        os.ftruncate(source, 100_000)
        same(os.copy_file_range(source, target, 100_000), 100_000, "bytes copied")
        same(get_fd(target), bytes(100_000), "the content")


@case
def sendfile_to_file():
    put("from", pattern(200_000))
    put("to")
    with opened("from") as source, opened("to") as target:
        sent = 0
        while part := os.sendfile(target, source, sent, 200_000 - sent):
            sent += part
        same(sent, 200_000, "bytes sent")
        same(os.lseek(source, 0, os.SEEK_CUR), 0, "the source's position")
    same(get("to"), pattern(200_000), "the content")


@case
def sendfile_to_socket():
    put("from", pattern(30_000))
    one, two = socket.socketpair()
    with opened("from") as source:
        same(os.sendfile(one.fileno(), source, 1000, 29_000), 29_000, "bytes sent")
    one.close()
    data = b""
    while part := two.recv(65536):
        data += part
    same(data, pattern(30_000)[1000:], "what arrived")


@case
def splice_through_a_pipe():
    put("from", pattern(50_000))
    put("to")
    reader, writer = os.pipe()
    with opened("from") as source, opened("to") as target:
        done = 0
        while got := os.splice(source, writer, 50_000, offset_src=done):
            while got:
                moved = os.splice(reader, target, got, offset_dst=done)
                done, got = done + moved, got - moved
    same(get("to"), pattern(50_000), "the content")


@case
def clone_whole_file():
    put("from", pattern(300_001))
    put("to", b"x" * 5000)
    with opened("from") as source, opened("to") as target:
        needs(call.clone, target, source)
        same(get_fd(target), pattern(300_001), "the clone")
        os.pwrite(source, b"X", 5000)
        same(os.pread(target, 1, 5000), pattern(300_001)[5000:5001], "it is apart")


@case
def clone_a_range():
    put("from", pattern(64 * BLOCK))
    put("to", pattern(64 * BLOCK, seed=3))
    with opened("from") as source, opened("to") as target:
        needs(call.clone_range, target, source, 8 * BLOCK, 16 * BLOCK, 32 * BLOCK)
        expected = bytearray(pattern(64 * BLOCK, seed=3))
        expected[32 * BLOCK : 48 * BLOCK] = pattern(64 * BLOCK)[8 * BLOCK : 24 * BLOCK]
        same(get_fd(target), bytes(expected), "the content")
        fails(errno.EINVAL, call.clone_range, target, source, 100, BLOCK, 0)
        fails(errno.EINVAL, call.clone_range, target, source, 0, BLOCK, 100 * BLOCK + 1)


@case
def clone_errors():
    put("from", pattern(BLOCK))
    put("to")
    with opened("from") as source, opened("to") as target:
        needs(call.clone, target, source)
        with opened("to", os.O_RDONLY) as read_only:
            fails(errno.EBADF, call.clone, read_only, source)
        with opened("/proc/self/status", os.O_RDONLY) as elsewhere:
            fails((errno.EXDEV, errno.EINVAL), call.clone, target, elsewhere)
        with opened(".", os.O_RDONLY) as directory:
            fails((errno.EISDIR, errno.EBADF), call.clone, target, directory)


@case
def dedupe_alike_and_different():
    put("one", pattern(16 * BLOCK))
    put("two", pattern(16 * BLOCK))
    put("three", pattern(16 * BLOCK, seed=9))
    with opened("one") as one, opened("two") as two, opened("three") as three:
        os.fsync(one)
        os.fsync(two)
        same(needs(call.dedupe, one, 0, 16 * BLOCK, two, 0), (16 * BLOCK, 0), "of what is alike")
        same(call.dedupe(one, 0, 16 * BLOCK, three, 0)[1], 1, "the status of what differs")
        same(get_fd(three), pattern(16 * BLOCK, seed=9), "it is as it was")


@case
def fiemap():
    put("f", pattern(16 * BLOCK))
    with opened("f") as fd:
        os.fsync(fd)
        head = struct.pack("<QQIIII", 0, (1 << 64) - 1, 1, 0, 8, 0)
        answer = needs(fcntl.ioctl, fd, call.FS_IOC_FIEMAP, head + bytes(8 * 56))
        extents = struct.unpack_from("<I", answer, 20)[0]
        check(1 <= extents <= 8, "it has some extents")


@case
def statfs_is_sane():
    there = os.statvfs(".")
    check(there.f_blocks >= there.f_bfree >= there.f_bavail >= 0, "blocks >= free >= available")
    check(there.f_files >= there.f_ffree >= 0, "files >= free files")
    same(there.f_namemax, 255, "the longest name")
    check(there.f_bsize >= 512 and there.f_frsize >= 512, "block sizes")


def settled():
    """statvfs, when space of earlier cases is no longer coming back; or after ten seconds."""
    found = os.statvfs(".")
    for _ in range(50):
        time.sleep(0.2)
        before, found = found, os.statvfs(".")
        if before.f_bfree == found.f_bfree:
            break
    return found


@case
def statfs_counts_what_is_written():
    before = settled()
    put("f", pattern(8 << 20))
    with opened("f") as fd:
        os.fsync(fd)
        after = os.statvfs(".")
        used = (before.f_bfree - after.f_bfree) * after.f_frsize
        check(4 << 20 <= used <= 32 << 20, f"8 MiB written take about as much ({used} bytes)")
        same(os.fstatvfs(fd).f_blocks, after.f_blocks, "fstatvfs: blocks")


@case
def statfs_gets_space_back():
    put("f", pattern(8 << 20))
    with opened("f") as fd:
        os.fsync(fd)
    full = os.statvfs(".").f_bfree
    os.unlink("f")
    with opened(".", os.O_RDONLY) as here:
        os.fsync(here)
        call.syncfs(here)
    deadline = time.monotonic() + 10
    frsize = os.statvfs(".").f_frsize
    while (os.statvfs(".").f_bfree - full) * frsize < 4 << 20:
        check(time.monotonic() < deadline, "the space of a removed file is free again")
        time.sleep(0.05)


@case
def statfs_as_user():
    same(as_user(os.statvfs, ".").f_blocks, os.statvfs(".").f_blocks, "blocks")


@case
def statfs_errors():
    put("f")
    fails(errno.ENOENT, os.statvfs, "missing")
    fails(errno.ENOTDIR, os.statvfs, "f/g")


@case
def pathconf_names():
    same(os.pathconf(".", "PC_NAME_MAX"), 255, "PC_NAME_MAX")
    same(os.pathconf(".", "PC_PATH_MAX"), 4096, "PC_PATH_MAX")
    same(os.pathconf(".", "PC_NO_TRUNC"), 1, "PC_NO_TRUNC")
    same(os.pathconf(".", "PC_CHOWN_RESTRICTED"), 1, "PC_CHOWN_RESTRICTED")
