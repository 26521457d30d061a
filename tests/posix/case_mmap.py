# SPDX-License-Identifier: Apache-2.0
"""Mappings of files, and direct and synchronous I/O, next to read and write."""

import errno
import fcntl
import mmap
import os
import signal

import posix_call as call
from posix_rig import Child, as_user, case, check, death_of, fails, get, get_fd, in_child, needs, opened, pattern, put, same

PAGE = 4096


@case
def shared_sees_what_is_written():
    put("f", pattern(3 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 3 * PAGE) as mapped:
        same(mapped[:], pattern(3 * PAGE), "what is mapped")
        os.pwrite(fd, b"XYZ", PAGE - 1)
        same(mapped[PAGE - 1 : PAGE + 2], b"XYZ", "after a write")


@case
def written_through_shared():
    put("f", pattern(3 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 3 * PAGE) as mapped:
        mapped[PAGE - 1 : PAGE + 2] = b"XYZ"
        same(os.pread(fd, 3, PAGE - 1), b"XYZ", "what read finds")
        mapped.flush()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        same(os.pread(fd, 3, PAGE - 1), b"XYZ", "after msync")
    same(get("f")[PAGE - 1 : PAGE + 2], b"XYZ", "after it was unmapped")


@case
def shared_outlives_close_and_unlink():
    put("f", pattern(PAGE))
    fd = os.open("f", os.O_RDWR)
    mapped = mmap.mmap(fd, PAGE)
    os.close(fd)
    os.unlink("f")
    mapped[0:3] = b"abc"
    mapped.flush()
    same(mapped[:4], b"abc" + pattern(PAGE)[3:4], "what is mapped")
    mapped.close()


@case
def seek_finds_what_another_has_mapped():
    """As cp asks for what is data, while a page of it is still in the writer's mapping."""
    fd = os.open("f", os.O_RDWR | os.O_CREAT, 0o644)
    os.ftruncate(fd, 64 * PAGE)
    os.close(fd)
    ready, done = os.pipe(), os.pipe()

    def write():
        with opened("f") as fd, mmap.mmap(fd, 64 * PAGE) as mapped:
            mapped[40 * PAGE + 5 : 40 * PAGE + 10] = b"hello"
            os.write(ready[1], b"x")
            os.read(done[0], 1)

    child = Child(write)
    os.read(ready[0], 1)
    try:
        with opened("f", os.O_RDONLY) as fd:
            found = os.lseek(fd, 0, os.SEEK_DATA)
            check(found <= 40 * PAGE, f"the first data is at {found}")
            check(os.lseek(fd, 40 * PAGE, os.SEEK_HOLE) > 40 * PAGE, "the page is a hole")
            same(os.pread(fd, 5, 40 * PAGE + 5), b"hello", "what is read")
    finally:
        os.write(done[1], b"x")
        child.result()
        for end in ready + done:
            os.close(end)


@case
def shared_between_processes():
    put("f", bytes(PAGE))

    def write():
        with opened("f") as fd, mmap.mmap(fd, PAGE) as mapped:
            mapped[100:105] = b"hello"

    with opened("f") as fd, mmap.mmap(fd, PAGE) as mapped:
        in_child(write)
        same(mapped[100:105], b"hello", "what another process wrote")


@case
def private_stays_private():
    put("f", pattern(2 * PAGE))
    with opened("f", os.O_RDONLY) as fd:
        with mmap.mmap(fd, 2 * PAGE, access=mmap.ACCESS_COPY) as mapped:
            mapped[10:13] = b"XYZ"
            same(mapped[10:13], b"XYZ", "in the mapping")
            same(os.pread(fd, 3, 10), pattern(2 * PAGE)[10:13], "in the file")


@case
def private_sees_the_file():
    put("f", pattern(2 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 2 * PAGE, access=mmap.ACCESS_COPY) as mapped:
        same(mapped[:], pattern(2 * PAGE), "what is mapped")


@case
def mapping_needs_the_right_descriptor():
    put("f", pattern(PAGE))
    with opened("f", os.O_RDONLY) as fd:
        fails(errno.EACCES, mmap.mmap, fd, PAGE)
    with opened("f", os.O_WRONLY) as fd:
        fails(errno.EACCES, mmap.mmap, fd, PAGE, access=mmap.ACCESS_READ)
    with opened(".", os.O_RDONLY) as fd:
        fails(errno.ENODEV, mmap.mmap, fd, PAGE, access=mmap.ACCESS_READ)


@case
def tail_of_the_last_page_is_zero():
    put("f", b"x" * 100)
    with opened("f") as fd, mmap.mmap(fd, 100) as mapped:
        mapped[50] = 65
        os.ftruncate(fd, 200)
    same(get("f"), b"x" * 50 + b"A" + b"x" * 49 + bytes(100), "the content")


@case
def beyond_the_end_is_sigbus():
    put("f", bytes(4 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 4 * PAGE) as mapped:
        os.ftruncate(fd, PAGE + 1)
        same(death_of(lambda: mapped[2 * PAGE - 1]), 0, "in the last page")
        same(death_of(lambda: mapped[2 * PAGE]), signal.SIGBUS, "beyond it")


@case
def truncate_and_grow_under_a_mapping():
    put("f", b"x" * (3 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 3 * PAGE) as mapped:
        mapped[PAGE + 5] = 65
        os.ftruncate(fd, PAGE + 3)
        os.ftruncate(fd, 3 * PAGE)
        same(mapped[PAGE : PAGE + 8], b"xxx" + bytes(5), "around the cut")
        same(mapped[2 * PAGE], 0, "beyond it")


@case
def punch_under_a_mapping():
    put("f", b"x" * (4 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 4 * PAGE) as mapped:
        same(mapped[PAGE], 120, "before")
        mode = call.FALLOC_PUNCH_HOLE | call.FALLOC_KEEP_SIZE
        call.fallocate(fd, mode, PAGE, PAGE)
        same(mapped[PAGE - 1 : PAGE + 1], b"x\0", "after")


@case
def copy_range_under_a_mapping():
    put("from", pattern(4 * PAGE))
    put("to", bytes(4 * PAGE))
    with opened("from") as source, opened("to") as target, mmap.mmap(target, 4 * PAGE) as mapped:
        same(mapped[0], 0, "before")
        os.copy_file_range(source, target, 4 * PAGE)
        same(mapped[:], pattern(4 * PAGE), "after")


@case
def mapped_changes_are_copied():
    put("from", bytes(4 * PAGE))
    put("to")
    with opened("from") as source, opened("to") as target, mmap.mmap(source, 4 * PAGE) as mapped:
        mapped[:] = pattern(4 * PAGE)
        os.copy_file_range(source, target, 4 * PAGE)
        same(get_fd(target), pattern(4 * PAGE), "the copy")


@case
def sparse_mapping_is_filled():
    put("f")
    with opened("f") as fd:
        os.ftruncate(fd, 64 * PAGE)
        with mmap.mmap(fd, 64 * PAGE) as mapped:
            for page in range(0, 64, 8):
                mapped[page * PAGE] = page + 1
            mapped.flush()
        os.fsync(fd)
        same([os.pread(fd, 1, p * PAGE)[0] for p in range(0, 64, 8)], list(range(1, 65, 8)), "pages")
        same(os.pread(fd, PAGE, PAGE), bytes(PAGE), "a page between")


@case
def mapping_with_offset():
    put("f", pattern(10 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 2 * PAGE, offset=5 * PAGE) as mapped:
        same(mapped[:], pattern(10 * PAGE)[5 * PAGE : 7 * PAGE], "what is mapped")


@case
def mapping_as_user():
    put("f", pattern(PAGE), 0o644)

    def look():
        with opened("f", os.O_RDONLY) as fd:
            with mmap.mmap(fd, PAGE, access=mmap.ACCESS_READ) as mapped:
                return mapped[:]

    same(as_user(look), pattern(PAGE), "what is mapped")


@case
def executable_mapping():
    with open("/bin/true", "rb") as program:
        data = program.read()
    put("prog", data, 0o755)
    with opened("prog", os.O_RDONLY) as fd:
        with mmap.mmap(fd, len(data), mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC) as mapped:
            same(mapped[:4], b"\x7fELF", "what is mapped")


@case
def madvise_dontneed_shows_the_file():
    put("f", pattern(2 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 2 * PAGE) as mapped:
        mapped[0:3] = b"abc"
        mapped.madvise(mmap.MADV_DONTNEED)
        same(mapped[0:3], b"abc", "what is mapped")


@case
def madvise_remove_punches():
    put("f", b"x" * (4 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 4 * PAGE) as mapped:
        mapped.madvise(mmap.MADV_REMOVE, PAGE, PAGE)
        same(os.pread(fd, 2, PAGE - 1), b"x\0", "what read finds")


@case
def read_into_own_mapping():
    put("f", pattern(8 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 8 * PAGE) as mapped:
        view = memoryview(mapped)
        same(os.preadv(fd, [view[4 * PAGE : 5 * PAGE]], 0), PAGE, "bytes read")
        view.release()
        same(mapped[4 * PAGE : 5 * PAGE], pattern(PAGE), "what is mapped")


# Direct I/O


DIRECT = os.O_RDWR | os.O_DIRECT


def direct(name="f", flags=0):
    return needs(os.open, name, DIRECT | flags, 0o644, without=(errno.EINVAL,))


@case
def direct_write_and_read():
    data = pattern(64 * PAGE)
    fd = direct(flags=os.O_CREAT)
    same(call.pwrite_from(fd, data, 0), len(data), "bytes written")
    same(call.pread_into(fd, len(data), 0), data, "what direct reads find")
    same(get("f"), data, "what buffered reads find")


@case
def direct_after_buffered_write():
    put("f", pattern(8 * PAGE))
    fd = direct()
    with opened("f") as buffered:
        os.pwrite(buffered, b"X" * PAGE, PAGE)
        same(call.pread_into(fd, PAGE, PAGE), b"X" * PAGE, "what a direct read finds")


@case
def buffered_after_direct_write():
    put("f", pattern(8 * PAGE))
    fd = direct()
    with opened("f") as buffered:
        same(get_fd(buffered), pattern(8 * PAGE), "before")
        call.pwrite_from(fd, b"Y" * PAGE, 2 * PAGE)
        same(os.pread(buffered, PAGE, 2 * PAGE), b"Y" * PAGE, "what a buffered read finds")


@case
def direct_over_dirty_pages():
    put("f", pattern(8 * PAGE))
    fd = direct()
    with opened("f") as buffered:
        os.pwrite(buffered, b"X" * (4 * PAGE), 0)
        call.pwrite_from(fd, b"Y" * PAGE, PAGE)
        os.fsync(buffered)
        expected = b"X" * PAGE + b"Y" * PAGE + b"X" * (2 * PAGE)
        same(os.pread(buffered, 4 * PAGE, 0), expected, "buffered")
        same(call.pread_into(fd, 4 * PAGE, 0), expected, "direct")


@case
def mapping_after_direct_write():
    put("f", bytes(4 * PAGE))
    fd = direct()
    with opened("f") as buffered, mmap.mmap(buffered, 4 * PAGE) as mapped:
        same(mapped[PAGE], 0, "before")
        call.pwrite_from(fd, b"Z" * PAGE, PAGE)
        same(mapped[PAGE : PAGE + 3], b"ZZZ", "after")


@case
def direct_read_after_mapped_write():
    put("f", bytes(4 * PAGE))
    fd = direct()
    with opened("f") as buffered, mmap.mmap(buffered, 4 * PAGE) as mapped:
        mapped[PAGE : PAGE + 3] = b"abc"
        same(call.pread_into(fd, PAGE, PAGE)[:3], b"abc", "what a direct read finds")


@case
def direct_across_the_end():
    put("f", pattern(PAGE + 1000))
    fd = direct()
    same(call.pread_into(fd, 2 * PAGE, 0), pattern(PAGE + 1000), "across the end")
    same(call.pread_into(fd, PAGE, 2 * PAGE), b"", "beyond")


@case
def direct_grows_the_file():
    put("f", b"abc")
    fd = direct()
    call.pwrite_from(fd, pattern(2 * PAGE), 4 * PAGE)
    same(get("f"), b"abc" + bytes(4 * PAGE - 3) + pattern(2 * PAGE), "the content")


@case
def direct_appends():
    put("f", pattern(PAGE))
    fd = direct(flags=os.O_APPEND)
    call.pwrite_from(fd, pattern(PAGE, seed=2), 0)
    same(get("f"), pattern(PAGE) + pattern(PAGE, seed=2), "the content")


@case
def direct_unaligned():
    put("f", pattern(4 * PAGE))
    fd = direct()
    data = bytearray(pattern(4 * PAGE))
    try:
        same(call.pread_into(fd, 100, 1), bytes(data[1:101]), "what is read, if it may be")
        same(call.pwrite_from(fd, b"x" * 100, 1), 100, "bytes written, if it may be")
        data[1:101] = b"x" * 100
    except OSError as error:
        same(error.errno, errno.EINVAL, "the error otherwise")
    same(get("f"), bytes(data), "the content")


@case
def direct_set_by_fcntl():
    put("f", pattern(4 * PAGE))
    with opened("f") as fd:
        needs(fcntl.fcntl, fd, fcntl.F_SETFL, os.O_DIRECT, without=(errno.EINVAL,))
        same(call.pread_into(fd, PAGE, PAGE), pattern(4 * PAGE)[PAGE : 2 * PAGE], "what is read")


@case
def direct_into_a_hole():
    fd = direct(flags=os.O_CREAT)
    os.ftruncate(fd, 16 * PAGE)
    same(call.pread_into(fd, PAGE, PAGE), bytes(PAGE), "a hole")
    call.pwrite_from(fd, b"Y" * PAGE, 8 * PAGE)
    same(call.pread_into(fd, 3 * PAGE, 7 * PAGE), bytes(PAGE) + b"Y" * PAGE + bytes(PAGE), "around")


@case
def direct_truncate_and_grow():
    put("f", b"x" * (4 * PAGE))
    fd = direct()
    os.ftruncate(fd, PAGE + 512)
    os.ftruncate(fd, 4 * PAGE)
    expected = b"x" * (PAGE + 512) + bytes(3 * PAGE - 512)
    same(call.pread_into(fd, 4 * PAGE, 0), expected, "the content")


@case
def direct_large():
    data = pattern(5 << 20)
    fd = direct(flags=os.O_CREAT)
    same(call.pwrite_from(fd, data, 0), len(data), "bytes written")
    same(call.pread_into(fd, len(data), 0), data, "what is read")


# Synchronous


@case
def sync_flags():
    for flag in (os.O_SYNC, os.O_DSYNC, os.O_SYNC | os.O_APPEND):
        with opened("f", os.O_CREAT | os.O_RDWR | flag) as fd:
            os.write(fd, pattern(10_000))
        os.unlink("f")
    with opened("f", os.O_CREAT | os.O_RDWR | os.O_SYNC) as fd:
        os.write(fd, b"abc")
    same(get("f"), b"abc", "the content")


@case
def fsync_of_all_kinds():
    put("f", b"abc")
    os.mkdir("d")
    with opened("f") as fd:
        os.fsync(fd)
        os.fdatasync(fd)
        call.syncfs(fd)
        call.sync_file_range(fd, 0, 0, 7)
    with opened("f", os.O_RDONLY) as fd:
        os.fsync(fd)
    with opened("d", os.O_RDONLY) as fd:
        os.fsync(fd)
        os.fdatasync(fd)
        call.syncfs(fd)


@case
def fsync_of_removed():
    put("f", b"abc")
    os.mkdir("d")
    with opened("f") as fd, opened("d", os.O_RDONLY) as directory:
        os.unlink("f")
        os.rmdir("d")
        os.write(fd, b"x")
        os.fsync(fd)
        os.fsync(directory)


@case
def msync_flags():
    put("f", pattern(2 * PAGE))
    with opened("f") as fd, mmap.mmap(fd, 2 * PAGE) as mapped:
        mapped[0] = 1
        mapped.flush(0, PAGE)
        mapped[PAGE] = 2
        mapped.flush()
    check(get("f")[PAGE] == 2, "it is in the file")
