# SPDX-License-Identifier: Apache-2.0
"""Flags of inodes, as chattr sets them: immutable, and append-only."""

import errno
import fcntl
import mmap
import os
import struct

import posix_call as call
from posix_rig import (
    USER, Skipped, as_user, case, check, fails, get, get_fd, needs, opened, put, refused, same, tick,
    write_all,
)  # fmt: skip

BOTH = call.FS_IMMUTABLE | call.FS_APPEND


def change(fd, flags):
    """Both, and none of the others that there are."""
    call.set_flags(fd, call.flags_of(fd) & ~BOTH | flags)


def set_flags(name, flags):
    with opened(name, os.O_RDONLY) as fd:
        change(fd, flags)


def flags_of(name):
    with opened(name, os.O_RDONLY) as fd:
        return call.flags_of(fd) & BOTH


def with_flag(name, flag, work):
    """Sets an inode flag, works, and takes it away again."""
    with opened(name, os.O_RDONLY) as fd:
        before = needs(call.flags_of, fd)
        try:
            needs(call.set_flags, fd, before | flag)
        except PermissionError:
            raise Skipped("inode flags are not allowed here") from None
        try:
            work()
        finally:
            call.set_flags(fd, before)


def denied(function, *args, **options):
    fails(errno.EPERM, function, *args, **options)


def append(name, data):
    with opened(name, os.O_WRONLY | os.O_APPEND) as fd:
        write_all(fd, data)


# What they are


@case
def told_and_taken_away():
    put("f")
    os.mkdir("d")

    def check_told():
        for name in ("f", "d"):
            for flag in (call.FS_IMMUTABLE, call.FS_APPEND, BOTH, 0):
                set_flags(name, flag)
                same(flags_of(name), flag, f"the flags of {name}")

    with_flag("f", 0, lambda: with_flag("d", 0, check_told))


@case
def told_by_the_other_pair():
    put("f")

    def work():
        with opened("f", os.O_RDONLY) as fd:
            for flag, xflag in ((call.FS_IMMUTABLE, 0x8), (call.FS_APPEND, 0x10)):
                change(fd, flag)
                told = bytearray(needs(fcntl.ioctl, fd, call.FS_IOC_FSGETXATTR, bytes(28)))
                same(struct.unpack("<I", told[:4])[0] & 0x18, xflag, "fsx_xflags")
                change(fd, 0)
                fcntl.ioctl(fd, call.FS_IOC_FSSETXATTR, bytes(told))
                same(call.flags_of(fd) & BOTH, flag, "the flags")

    with_flag("f", 0, work)


@case
def a_change_of_status():
    put("f", b"x")

    def work():
        before = os.stat("f")
        tick()
        set_flags("f", call.FS_IMMUTABLE)
        after = os.stat("f")
        check(after.st_ctime_ns > before.st_ctime_ns, "ctime is older")
        same(after.st_mtime_ns, before.st_mtime_ns, "mtime")

    with_flag("f", 0, work)


@case
def only_root_sets_them():
    put("f")
    os.chown("f", USER, USER)

    def work():
        for flag in (call.FS_IMMUTABLE, call.FS_APPEND):
            refused(errno.EPERM, set_flags, "f", flag)
            same(flags_of("f"), 0, "the flags")
            set_flags("f", flag)
            refused(errno.EPERM, set_flags, "f", 0)
            same(flags_of("f"), flag, "the flags")
            same(as_user(flags_of, "f"), flag, "the flags, for the owner")
            set_flags("f", 0)

    with_flag("f", 0, work)


@case
def not_of_somebody_else():
    put("f")
    with_flag("f", 0, lambda: refused(errno.EPERM, set_flags, "f", 0))


@case
def unknown_ones():
    put("f")
    with_flag("f", 0, lambda: fails(errno.EOPNOTSUPP, set_flags, "f", 0x40000000))


@case
def are_not_copied():
    put("f", b"abc")

    def work():
        put("g")
        with opened("f", os.O_RDONLY) as src, opened("g", os.O_WRONLY) as dst:
            os.copy_file_range(src, dst, 3)
        same(flags_of("g"), 0, "the flags of the copy")
        os.unlink("g")

    with_flag("f", BOTH, work)


# Immutable


@case
def immutable_file():
    put("f", b"abc")

    def work():
        denied(os.open, "f", os.O_WRONLY)
        denied(os.open, "f", os.O_RDWR | os.O_APPEND)
        denied(os.open, "f", os.O_RDONLY | os.O_TRUNC)
        denied(os.unlink, "f")
        denied(os.rename, "f", "g")
        denied(os.link, "f", "g")
        denied(os.chmod, "f", 0o600)
        denied(os.chown, "f", 1, 1)
        denied(os.truncate, "f", 0)
        denied(os.truncate, "f", 100)
        denied(os.utime, "f")
        denied(os.utime, "f", ns=(1, 1))
        denied(os.setxattr, "f", "user.a", b"x")
        same(get("f"), b"abc", "the content")
        same(os.stat("f").st_nlink, 1, "links")

    with_flag("f", call.FS_IMMUTABLE, work)
    os.unlink("f")


@case
def immutable_file_is_no_target():
    put("f", b"abc")
    put("g", b"other")

    def work():
        denied(os.rename, "g", "f")
        denied(call.renameat2, "g", "f", call.RENAME_EXCHANGE)
        denied(call.renameat2, "f", "g", call.RENAME_EXCHANGE)
        same((get("f"), get("g")), (b"abc", b"other"), "the contents")

    with_flag("f", call.FS_IMMUTABLE, work)


@case
def immutable_while_open():
    put("f", b"abc")

    def work():
        for flags in (os.O_RDWR, os.O_RDWR | os.O_APPEND):
            set_flags("f", 0)
            with opened("f", flags) as fd:
                set_flags("f", call.FS_IMMUTABLE)
                denied(os.write, fd, b"x")
                denied(os.pwrite, fd, b"x", 0)
                denied(os.ftruncate, fd, 1)
                denied(os.fchmod, fd, 0o600)
                denied(os.setxattr, fd, "user.a", b"x")
                denied(call.fallocate, fd, 0, 0, 100)
                denied(call.fallocate, fd, call.FALLOC_PUNCH_HOLE | call.FALLOC_KEEP_SIZE, 0, 2)
                same(get_fd(fd), b"abc", "the content")
                os.fsync(fd)

    with_flag("f", 0, work)
    same(get("f"), b"abc", "the content")


@case
def immutable_takes_no_copy():
    put("f", b"abc")
    put("src", b"other")

    def work():
        with opened("f", os.O_RDWR) as fd, opened("src", os.O_RDONLY) as src:
            set_flags("f", call.FS_IMMUTABLE)
            denied(os.copy_file_range, src, fd, 5)
        same(get("f"), b"abc", "the content")

    with_flag("f", 0, work)


@case
def immutable_shows_what_was_mapped():
    """What was changed in a mapping before is there, though nothing was synced."""
    put("f", b"a" * 8192)

    def work():
        with opened("f", os.O_RDWR) as fd, mmap.mmap(fd, 8192) as mapped:
            mapped[4096:4100] = b"bcde"
            set_flags("f", call.FS_IMMUTABLE)
        with opened("f", os.O_RDONLY | os.O_DIRECT) as fd, mmap.mmap(-1, 8192) as buf:
            os.preadv(fd, [buf], 0)
            same(buf[4095:4101], b"abcdea", "the content")

    with_flag("f", 0, work)
    same(get("f")[4095:4101], b"abcdea", "the content")


@case
def immutable_directory():
    os.mkdir("d")
    put("d/f")
    os.mkdir("d/sub")
    put("g")
    os.mkdir("e")

    def work():
        denied(put, "d/new")
        denied(os.mkdir, "d/new")
        denied(os.symlink, "x", "d/new")
        denied(os.mkfifo, "d/new")
        denied(os.link, "g", "d/new")
        denied(os.rename, "g", "d/new")
        denied(os.rename, "e", "d/new")
        denied(os.unlink, "d/f")
        denied(os.rmdir, "d/sub")
        denied(os.rename, "d/f", "h")
        denied(os.rename, "d/f", "d/h")
        denied(os.rename, "g", "d/f")
        denied(os.rename, "e", "d/sub")
        denied(os.rmdir, "d")
        denied(os.rename, "d", "d2")
        denied(os.rename, "e", "d")
        denied(os.chmod, "d", 0o700)
        denied(os.utime, "d")
        denied(os.setxattr, "d", "user.a", b"x")
        put("d/f", b"abc")
        put("d/sub/new")
        os.chmod("d/sub", 0o700)
        same(sorted(os.listdir("d")), ["f", "sub"], "names")

    with_flag("d", call.FS_IMMUTABLE, work)
    os.rename("d/f", "h")
    put("d/new")


@case
def removed_and_then_immutable():
    """What has no name any more goes when it is closed."""
    put("f", b"abc")

    def work():
        with opened("f", os.O_RDWR) as fd:
            os.unlink("f")
            change(fd, call.FS_IMMUTABLE)
            denied(os.write, fd, b"x")
            same(get_fd(fd), b"abc", "the content")
        put("f")

    with_flag("f", 0, work)


# Append-only


@case
def append_only_file():
    put("f", b"abc")

    def work():
        denied(os.open, "f", os.O_WRONLY)
        denied(os.open, "f", os.O_RDWR)
        denied(os.open, "f", os.O_WRONLY | os.O_APPEND | os.O_TRUNC)
        denied(os.open, "f", os.O_RDONLY | os.O_TRUNC)
        denied(os.unlink, "f")
        denied(os.rename, "f", "g")
        denied(os.link, "f", "g")
        denied(os.truncate, "f", 0)
        denied(os.truncate, "f", 100)
        denied(os.chmod, "f", 0o600)
        denied(os.chown, "f", 1, 1)
        denied(os.setxattr, "f", "user.a", b"x")
        denied(os.utime, "f", ns=(1, 1))
        os.utime("f")
        append("f", b"x")
        append("f", b"yz")

    with_flag("f", call.FS_APPEND, work)
    same(get("f"), b"abcxyz", "the content")
    os.unlink("f")


@case
def append_only_grows():
    """Also by pages, and while somebody reads it."""
    put("f", b"a" * 5000)

    def work():
        with opened("f", os.O_RDONLY) as reader:
            for at in range(10):
                append("f", bytes([at]) * 3000)
                same(len(get_fd(reader)), 8000 + 3000 * at, "bytes")
        with opened("f", os.O_WRONLY | os.O_APPEND) as fd:
            denied(os.ftruncate, fd, 10)
            denied(os.ftruncate, fd, 100000)
            call.fallocate(fd, call.FALLOC_KEEP_SIZE, 0, 65536)
            call.fallocate(fd, 0, 0, 40000)
            os.fsync(fd)

    with_flag("f", call.FS_APPEND, work)
    want = b"a" * 5000 + b"".join(bytes([at]) * 3000 for at in range(10)) + bytes(5000)
    same(get("f"), want, "the content")


@case
def append_only_shows_what_was_mapped():
    put("f", b"a" * 8192)

    def work():
        with opened("f", os.O_RDWR) as fd, mmap.mmap(fd, 8192) as mapped:
            mapped[4096:4100] = b"bcde"
            set_flags("f", call.FS_APPEND)
            append("f", b"end")
        same(get("f")[4095:4101] + get("f")[8192:], b"abcdeaend", "the content")

    with_flag("f", 0, work)


@case
def append_only_directory():
    os.mkdir("d")
    put("d/f")
    put("g")
    put("h")
    os.mkdir("d/sub")

    def work():
        put("d/new", b"abc")
        os.mkdir("d/newdir")
        os.link("g", "d/link")
        os.rename("h", "d/moved")
        denied(os.unlink, "d/f")
        denied(os.unlink, "d/new")
        denied(os.rmdir, "d/sub")
        denied(os.rename, "d/f", "d/f2")
        denied(os.rename, "d/f", "f2")
        denied(os.rename, "g", "d/f")
        denied(call.renameat2, "g", "d/f", call.RENAME_EXCHANGE)
        denied(os.rmdir, "d")
        denied(os.rename, "d", "d2")
        denied(os.chmod, "d", 0o700)
        put("d/f", b"changed")

    with_flag("d", call.FS_APPEND, work)
    same(sorted(os.listdir("d")), ["f", "link", "moved", "new", "newdir", "sub"], "names")
    same(get("d/f"), b"changed", "the content")


@case
def both_is_no_more_than_immutable():
    put("f", b"abc")
    with_flag("f", BOTH, lambda: denied(append, "f", b"x"))
    same(get("f"), b"abc", "the content")


# What still goes


@case
def reading_is_no_change():
    put("f", b"abc")
    os.mkdir("d")
    put("d/f")

    def work():
        for name in ("f", "d"):
            set_flags(name, call.FS_IMMUTABLE)
        same(get("f"), b"abc", "the content")
        same(os.listdir("d"), ["f"], "names")
        with opened("f", os.O_RDONLY) as fd:
            same(os.listxattr(fd), [], "attributes")
            os.fsync(fd)
        for name in ("f", "d"):
            set_flags(name, 0)

    with_flag("f", 0, work)
