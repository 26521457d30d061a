# SPDX-License-Identifier: Apache-2.0
"""read, write and their relatives; sizes, holes, seeking; limits of sizes."""

import ctypes
import errno
import mmap
import os
import resource
import signal

import posix_call as call
from posix_rig import (
    Skipped, case, check, fails, get, get_fd, in_child, opened, pattern, put, same, write_all,
)

BLOCK = 4096
OFFSET_MAX = (1 << 63) - 1


def allocated(fd):
    """Bytes, once everything is on disk."""
    os.fsync(fd)
    return os.fstat(fd).st_blocks * 512


@case
def write_and_read_back():
    for length in (1, 511, 512, 513, 4095, 4096, 4097, 65536, 1 << 20, (1 << 20) + 1):
        data = pattern(length)
        put("f", data)
        same(get("f"), data, f"{length} bytes")
        same(os.stat("f").st_size, length, "the size")


@case
def write_and_read_back_after_fsync():
    data = pattern(300_001)
    put("f", data)
    with opened("f") as fd:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        same(get_fd(fd), data, "the content")


@case
def read_nothing():
    put("f", b"abc")
    with opened("f") as fd:
        same(os.read(fd, 0), b"", "0 bytes")
        same(os.lseek(fd, 0, os.SEEK_CUR), 0, "the position")


@case
def write_nothing():
    put("f", b"abc")
    with opened("f") as fd:
        same(os.pwrite(fd, b"", 1000), 0, "bytes written")
        same(os.fstat(fd).st_size, 3, "the size")


@case
def read_at_and_beyond_the_end():
    put("f", b"abc")
    with opened("f") as fd:
        same(os.pread(fd, 10, 2), b"c", "across the end")
        same(os.pread(fd, 10, 3), b"", "at the end")
        same(os.pread(fd, 10, 1 << 40), b"", "far beyond")
        same(os.lseek(fd, 100, os.SEEK_SET), 100, "a position beyond the end")
        same(os.read(fd, 10), b"", "read from there")
        same(os.fstat(fd).st_size, 3, "the size")


@case
def write_beyond_the_end():
    put("f", b"abc")
    with opened("f") as fd:
        os.lseek(fd, 10_000, os.SEEK_SET)
        os.write(fd, b"def")
    same(get("f"), b"abc" + bytes(9997) + b"def", "the content")


@case
def negative_offset():
    put("f", b"abc")
    with opened("f") as fd:
        fails(errno.EINVAL, os.pread, fd, 1, -1)
        fails(errno.EINVAL, os.pwrite, fd, b"x", -1)
        fails(errno.EINVAL, os.lseek, fd, -1, os.SEEK_SET)
        fails(errno.EINVAL, os.lseek, fd, -4, os.SEEK_END)


@case
def pread_leaves_the_position():
    put("f", b"abcdef")
    with opened("f") as fd:
        os.pread(fd, 2, 3)
        os.pwrite(fd, b"XX", 4)
        same(os.lseek(fd, 0, os.SEEK_CUR), 0, "the position")
    same(get("f"), b"abcdXX", "the content")


@case
def seek_from_everywhere():
    put("f", b"abcdef")
    with opened("f") as fd:
        same(os.lseek(fd, 2, os.SEEK_SET), 2, "SEEK_SET")
        same(os.lseek(fd, 2, os.SEEK_CUR), 4, "SEEK_CUR")
        same(os.lseek(fd, -1, os.SEEK_END), 5, "SEEK_END")
        same(os.lseek(fd, 1 << 40, os.SEEK_END), (1 << 40) + 6, "far beyond")
        fails(errno.EINVAL, os.lseek, fd, 0, 99)


@case
def seek_end_follows_the_size():
    put("f", b"abc")
    with opened("f") as one, opened("f") as two:
        os.pwrite(two, b"x" * 10, 3)
        same(os.lseek(one, 0, os.SEEK_END), 13, "after a write elsewhere")
        os.ftruncate(two, 5)
        same(os.lseek(one, 0, os.SEEK_END), 5, "after a truncate elsewhere")


@case
def overwrite_in_pieces():
    data = bytearray(pattern(100_000))
    put("f", data)
    with opened("f") as fd:
        for offset, length in ((0, 1), (4095, 2), (4096, 4096), (8000, 9000), (99_999, 1), (50, 60_000)):
            piece = pattern(length, seed=offset + 7)
            os.pwrite(fd, piece, offset)
            data[offset : offset + length] = piece
        same(get_fd(fd), bytes(data), "the content")


@case
def vectors():
    put("f")
    with opened("f") as fd:
        same(os.writev(fd, [b"ab", b"", b"cde", b"x" * 5000]), 5005, "writev")
        os.lseek(fd, 0, os.SEEK_SET)
        parts = [bytearray(1), bytearray(3), bytearray(10)]
        same(os.readv(fd, parts), 14, "readv")
        same(bytes(b"".join(parts)), b"abcde" + b"x" * 9, "what it read")
        same(os.pwritev(fd, [b"12", b"34"], 3), 4, "pwritev")
        short = [bytearray(4000), bytearray(4000)]
        same(os.preadv(fd, short, 0), 5005, "preadv")
        same(bytes(short[0][:8]), b"abc1234x", "what it read")


@case
def vectors_of_1024():
    put("f")
    with opened("f") as fd:
        same(os.writev(fd, [b"abc"] * 1024), 3072, "writev")
        fails(errno.EINVAL, os.writev, fd, [b"abc"] * 1025)
    same(get("f"), b"abc" * 1024, "the content")


@case
def vectors_of_nothing():
    put("f", b"abc")
    with opened("f") as fd:
        same(os.writev(fd, [b"", b""]), 0, "writev")
        same(os.readv(fd, [bytearray(0)]), 0, "readv")


@case
def flags_of_pwritev2():
    put("f", b"abc")
    with opened("f") as fd:
        same(os.pwritev(fd, [b"def"], 0, os.RWF_APPEND), 3, "RWF_APPEND")
        same(os.pwritev(fd, [b"X"], 0, os.RWF_DSYNC), 1, "RWF_DSYNC")
        same(os.pwritev(fd, [b"Y"], 1, os.RWF_SYNC), 1, "RWF_SYNC")
        fails((errno.EOPNOTSUPP, errno.EINVAL), os.pwritev, fd, [b"Y"], 1, 0x40000000)
    same(get("f"), b"XYcdef", "the content")


@case
def large_single_write():
    data = pattern(9 << 20)
    put("f")
    with opened("f") as fd:
        same(os.write(fd, data), len(data), "bytes written")
        os.lseek(fd, 0, os.SEEK_SET)
        same(os.read(fd, 10 << 20), data, "one read")


@case
def truncate_down_and_up():
    put("f", b"a" * 10_000)
    os.truncate("f", 5000)
    same(get("f"), b"a" * 5000, "after it shrank")
    os.truncate("f", 9000)
    same(get("f"), b"a" * 5000 + bytes(4000), "after it grew")


@case
def truncate_within_a_block_zeroes():
    put("f", b"a" * BLOCK)
    with opened("f") as fd:
        os.fsync(fd)
        os.ftruncate(fd, 100)
        os.fsync(fd)
        os.ftruncate(fd, BLOCK)
        same(get_fd(fd), b"a" * 100 + bytes(BLOCK - 100), "the content")


@case
def write_after_a_cut_block():
    put("f", b"a" * BLOCK)
    os.truncate("f", 100)
    with opened("f") as fd:
        os.pwrite(fd, b"b", 2000)
        same(get_fd(fd), b"a" * 100 + bytes(1900) + b"b", "the content")


@case
def truncate_to_nothing():
    put("f", b"a" * 100_000)
    with opened("f") as fd:
        os.ftruncate(fd, 0)
        same(os.fstat(fd).st_size, 0, "the size")
        same(allocated(fd), 0, "bytes allocated")
        os.ftruncate(fd, 100_000)
        same(get_fd(fd), bytes(100_000), "the content")


@case
def truncate_errors():
    os.mkdir("d")
    put("f", b"abc", 0o444)
    fails(errno.ENOENT, os.truncate, "missing", 0)
    fails(errno.EISDIR, os.truncate, "d", 0)
    fails(errno.EINVAL, os.truncate, "f", -1)
    fails(errno.ENOTDIR, os.truncate, "f/g", 0)


@case
def truncate_through_symlink():
    put("f", b"abc")
    os.symlink("f", "l")
    os.truncate("l", 1)
    same(get("f"), b"a", "the content")


@case
def truncate_gives_space_back():
    put("f", b"a" * (1 << 20))
    with opened("f") as fd:
        check(allocated(fd) >= 1 << 20, "a MiB is allocated")
        os.ftruncate(fd, BLOCK)
        check(allocated(fd) <= 16 * BLOCK, "no more than some blocks are left")


@case
def sparse_takes_no_space():
    put("f")
    with opened("f") as fd:
        os.ftruncate(fd, 1 << 40)
        same(os.fstat(fd).st_size, 1 << 40, "the size")
        same(allocated(fd), 0, "bytes allocated")
        same(os.pread(fd, 8192, 1 << 39), bytes(8192), "in the middle")
        os.pwrite(fd, b"x", 1 << 39)
        check(allocated(fd) <= 1 << 18, "a block is allocated, and what leads to it")


@case
def sparse_islands():
    put("f")
    with opened("f") as fd:
        for place in range(1, 30):
            os.pwrite(fd, b"%d" % place, place << 30)
        os.fsync(fd)
        for place in range(1, 30):
            expected = b"%d" % place
            same(os.pread(fd, len(expected), place << 30), expected, f"at {place} GiB")
            same(os.pread(fd, 100, (place << 30) - 100), bytes(100), f"before {place} GiB")


@case
def data_and_holes():
    put("f")
    mib = 1 << 20
    with opened("f") as fd:
        os.pwrite(fd, b"x" * 65536, mib)
        os.ftruncate(fd, 4 * mib)
        same(os.lseek(fd, 0, os.SEEK_DATA), mib, "the first data")
        same(os.lseek(fd, 0, os.SEEK_HOLE), 0, "the first hole")
        same(os.lseek(fd, mib, os.SEEK_HOLE), mib + 65536, "the hole after the data")
        same(os.lseek(fd, mib + 10, os.SEEK_DATA), mib + 10, "data from within data")
        fails(errno.ENXIO, os.lseek, fd, 2 * mib, os.SEEK_DATA)
        same(os.lseek(fd, 3 * mib + 5, os.SEEK_HOLE), 3 * mib + 5, "a hole from within a hole")
        fails(errno.ENXIO, os.lseek, fd, 4 * mib, os.SEEK_HOLE)
        fails(errno.ENXIO, os.lseek, fd, 4 * mib, os.SEEK_DATA)


@case
def data_and_holes_after_fsync():
    put("f")
    mib = 1 << 20
    with opened("f") as fd:
        os.pwrite(fd, b"x" * 65536, mib)
        os.ftruncate(fd, 4 * mib)
        os.fsync(fd)
        same(os.lseek(fd, 0, os.SEEK_DATA), mib, "the first data")
        same(os.lseek(fd, mib, os.SEEK_HOLE), mib + 65536, "the hole after the data")


@case
def hole_at_the_end_of_data():
    put("f", b"x" * 10_000)
    with opened("f") as fd:
        same(os.lseek(fd, 0, os.SEEK_HOLE), 10_000, "the end counts as a hole")
        fails(errno.ENXIO, os.lseek, fd, 10_000, os.SEEK_HOLE)


@case
def holes_of_an_empty_file():
    put("f")
    with opened("f") as fd:
        fails(errno.ENXIO, os.lseek, fd, 0, os.SEEK_DATA)
        fails(errno.ENXIO, os.lseek, fd, 0, os.SEEK_HOLE)
        fails(errno.ENXIO, os.lseek, fd, -1, os.SEEK_DATA)


def size_limit(fd):
    """The largest size that ftruncate takes."""
    low, high = 0, OFFSET_MAX
    while low < high:
        middle = (low + high + 1) // 2
        try:
            os.ftruncate(fd, middle)
            low = middle
        except OSError as error:
            same(error.errno, errno.EFBIG, "the error of a size that is too large")
            high = middle - 1
    os.ftruncate(fd, 0)
    return low


@case
def size_limit_is_large():
    put("f")
    with opened("f") as fd:
        check(size_limit(fd) >= 8 << 40, "8 TiB at least")


@case
def write_at_the_size_limit():
    put("f")
    with opened("f") as fd:
        limit = size_limit(fd)
        os.ftruncate(fd, limit)
        same(os.fstat(fd).st_size, limit, "the size")
        same(os.pread(fd, 10, limit - 15), bytes(10), "what is read there")
        same(os.pwrite(fd, b"a", limit - 1), 1, "bytes written below the limit")
        same(os.pread(fd, 1, limit - 1), b"a", "the last byte")
        os.fsync(fd)


@case
def write_beyond_the_size_limit():
    put("f")
    with opened("f") as fd:
        limit = size_limit(fd)
        if limit == OFFSET_MAX:
            raise Skipped("the limit is that of offsets")
        os.ftruncate(fd, limit)
        fails(errno.EFBIG, os.pwrite, fd, b"x", limit)
        fails(errno.EFBIG, os.pwrite, fd, b"x", limit + 100)
        fails(errno.EFBIG, os.ftruncate, fd, limit + 1)
        same(os.pwrite(fd, b"abc", limit - 1), 1, "bytes written across the limit")
        same(os.pread(fd, 10, limit - 1), b"a", "the last byte")
        same(os.lseek(fd, limit, os.SEEK_SET), limit, "a position at the limit")
        fails(errno.EFBIG, os.write, fd, b"x")
        same(os.fstat(fd).st_size, limit, "the size")


@case
def sizes_beyond_offsets():
    put("f", b"abc")
    with opened("f") as fd:
        fails((errno.EFBIG, errno.EINVAL), os.pwrite, fd, b"xy", OFFSET_MAX)
        fails((errno.EOVERFLOW, errno.EINVAL), os.lseek, fd, OFFSET_MAX, os.SEEK_END)
    same(get("f"), b"abc", "the content")


def limited(limit, work):
    def run():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        work()

    in_child(run)


@case
def rlimit_write():
    put("f")

    def work():
        with opened("f") as fd:
            same(os.write(fd, b"x" * 8000), 5000, "bytes up to the limit")
            fails(errno.EFBIG, os.write, fd, b"x")
            same(os.pwrite(fd, b"yy", 0), 2, "bytes below the limit")

    limited(5000, work)
    same(os.stat("f").st_size, 5000, "the size")


@case
def rlimit_truncate():
    put("f", b"x" * 6000)

    def work():
        fails(errno.EFBIG, os.truncate, "f", 6001)
        os.truncate("f", 4000)

    limited(5000, work)
    same(os.stat("f").st_size, 4000, "the size")


@case
def rlimit_fallocate():
    put("f")

    def work():
        with opened("f") as fd:
            fails(errno.EFBIG, os.posix_fallocate, fd, 0, 6000)

    limited(5000, work)


@case
def rlimit_signal():
    put("f", b"x" * 100)

    def work():
        got = []
        signal.signal(signal.SIGXFSZ, lambda *_: got.append(1))
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        with opened("f") as fd:
            fails(errno.EFBIG, os.pwrite, fd, b"x", 100)
        same(got, [1], "SIGXFSZ")

    in_child(work)


@case
def bad_address():
    put("f", b"abc" * 100)
    with opened("f") as fd:
        fails(errno.EFAULT, call.libc_call, "write", fd, ctypes.c_void_p(8), 10)
        fails(errno.EFAULT, call.libc_call, "read", fd, ctypes.c_void_p(8), 10)
    same(get("f"), b"abc" * 100, "the content")


@case
def closed_descriptor():
    put("f")
    fd = os.open("f", os.O_RDWR)
    os.close(fd)
    for function, *args in ((os.read, 1), (os.write, b"x"), (os.fstat,), (os.ftruncate, 0), (os.fsync,)):
        fails(errno.EBADF, function, fd, *args)


@case
def unlinked_while_open():
    put("f", b"abc")
    with opened("f") as fd:
        os.unlink("f")
        same(os.fstat(fd).st_nlink, 0, "links")
        os.write(fd, pattern(100_000))
        os.fsync(fd)
        same(get_fd(fd), pattern(100_000), "the content")
        os.ftruncate(fd, 10)
        os.fchmod(fd, 0o600)
        same((os.fstat(fd).st_size, os.fstat(fd).st_mode & 0o777), (10, 0o600), "size and mode")


@case
def unlinked_and_made_again():
    put("f", b"old")
    with opened("f") as old:
        os.unlink("f")
        put("f", b"new")
        with opened("f") as new:
            same((get_fd(old), get_fd(new)), (b"old", b"new"), "the contents")
            check(os.fstat(old).st_ino != os.fstat(new).st_ino, "the inodes differ")


@case
def many_small_writes():
    put("f")
    with opened("f", os.O_WRONLY) as fd:
        for number in range(3000):
            os.write(fd, b"%07d" % number)
    same(get("f"), b"".join(b"%07d" % n for n in range(3000)), "the content")


@case
def backwards_writes():
    put("f")
    with opened("f") as fd:
        for number in reversed(range(200)):
            os.pwrite(fd, b"%03d" % number * 100, number * 300)
        same(get_fd(fd), b"".join(b"%03d" % n * 100 for n in range(200)), "the content")


@case
def fadvise():
    put("f", pattern(100_000))
    with opened("f") as fd:
        for advice in range(6):
            os.posix_fadvise(fd, 0, 0, advice)
        fails(errno.EINVAL, os.posix_fadvise, fd, 0, 0, 99)
        same(get_fd(fd), pattern(100_000), "the content")


@case
def stdio_appends_and_reads():
    with open("f", "w+", encoding="ascii") as file:
        for number in range(5000):
            file.write(f"{number}\n")
        file.seek(0)
        same([int(line) for line in file], list(range(5000)), "the lines")


@case
def blocks_count():
    put("f", b"x" * 65536)
    with opened("f") as fd:
        check(65536 <= allocated(fd) <= 2 * 65536, "64 KiB are allocated, not much more")


@case
def write_from_own_mapping():
    put("f", pattern(20_000))
    with opened("f") as fd, mmap.mmap(fd, 20_000) as mapped:
        view = memoryview(mapped)
        write_all(fd, view[8192:16384])
        view.release()
        same(os.pread(fd, 8192, 0), pattern(20_000)[8192:16384], "the content")
