# SPDX-License-Identifier: Apache-2.0
"""Time stamps: what each call changes, and setting them. Under relatime, as mounts are."""

import errno
import fcntl
import mmap
import os
import time

import posix_call as call
from posix_call import UTIME_NOW, UTIME_OMIT
from posix_rig import Skipped, as_user, case, check, fails, needs, opened, put, refused, same, tick

ANCIENT = 10**9  # 2001, in seconds


def stamps(name):
    found = os.lstat(name) if isinstance(name, str) else os.fstat(name)
    return {"atime": found.st_atime_ns, "mtime": found.st_mtime_ns, "ctime": found.st_ctime_ns}


class changes:
    """with changes({"f": "mtime ctime", ".": ""}): what the body does changes these, no others.
    A stamp that changes goes forward. "?atime": it may change or not."""

    def __init__(self, expected):
        self.expected = expected

    def __enter__(self):
        self.before = {name: stamps(name) for name in self.expected}
        tick()

    def __exit__(self, kind, *_):
        if kind:
            return
        for name, words in self.expected.items():
            after = stamps(name)
            for which in ("atime", "mtime", "ctime"):
                if f"?{which}" in words.split():
                    continue
                changed = after[which] != self.before[name][which]
                same(changed, which in words.split(), f"{which} of {name} changed")
                check(after[which] >= self.before[name][which], f"{which} of {name} went forward")


BOTH = "mtime ctime"


@case
def new_file():
    before = time.time_ns() - 20_000_000
    with changes({".": BOTH}):
        put("f")
    found = stamps("f")
    for which, value in found.items():
        check(before <= value <= time.time_ns() + 20_000_000, f"{which} is now")
    same((found["mtime"], found["atime"]), (found["ctime"],) * 2, "they are all the same")


@case
def open_of_existing():
    put("f", b"abc")
    with changes({"f": "", ".": ""}):
        os.close(os.open("f", os.O_RDWR | os.O_CREAT))


@case
def open_with_trunc():
    put("f", b"abc")
    with changes({"f": BOTH, ".": ""}):
        os.close(os.open("f", os.O_RDWR | os.O_TRUNC))


@case
def open_with_trunc_of_empty():
    put("f")
    with changes({"f": BOTH, ".": ""}):
        os.close(os.open("f", os.O_RDWR | os.O_TRUNC))


@case
def write():
    put("f", b"abc")
    with opened("f") as fd, changes({"f": BOTH, ".": ""}):
        os.write(fd, b"x")


@case
def write_seen_by_descriptor():
    put("f", b"abc")
    with opened("f") as fd, changes({fd: BOTH}):
        os.write(fd, b"x")


@case
def write_nothing():
    put("f", b"abc")
    with opened("f") as fd, changes({"f": ""}):
        os.write(fd, b"")


@case
def write_is_still_there_after_fsync():
    put("f", b"abc")
    with opened("f") as fd:
        os.write(fd, b"x")
        before = stamps("f")
        tick()
        os.fsync(fd)
        same(stamps("f"), before, "time stamps after fsync")
    same(stamps("f"), before, "time stamps after close")


@case
def write_direct():
    put("f", bytes(4096))
    fd = needs(os.open, "f", os.O_RDWR | os.O_DIRECT, without=(errno.EINVAL,))
    with changes({"f": BOTH}):
        call.pwrite_from(fd, bytes(4096), 0)


@case
def read_after_a_write():
    put("f", b"abc")
    tick()
    with opened("f") as fd:
        os.write(fd, b"x")
        with changes({"f": "atime"}):
            os.pread(fd, 1, 0)


@case
def read_again():
    put("f", b"abc")
    with opened("f") as fd:
        tick()
        os.write(fd, b"x")
        tick()
        os.pread(fd, 1, 0)
        with changes({"f": ""}):
            os.pread(fd, 1, 0)


@case
def read_after_a_day():
    put("f", b"abc")
    day_ago = int(time.time()) - 86_500
    call.utimensat("f", (day_ago, 0), (day_ago - 10, 0))
    with opened("f") as fd, changes({"f": "atime"}):
        os.pread(fd, 1, 0)


@case
def read_after_a_day_what_was_cached():
    put("f", bytes(4096))
    day_ago = int(time.time()) - 86_500
    call.utimensat("f", (day_ago, 0), (day_ago - 10, 0))
    with opened("f") as fd, changes({"f": "atime"}):
        os.pread(fd, 1, 0)


@case
def read_with_noatime():
    put("f", b"abc")
    with opened("f", os.O_RDONLY | os.O_NOATIME) as fd, changes({"f": ""}):
        os.pread(fd, 1, 0)


@case
def readdir():
    os.mkdir("d")
    tick()
    put("d/f")
    with changes({"d": "atime"}):
        os.listdir("d")


@case
def readlink():
    os.symlink("t", "l")
    call.utimensat("l", (ANCIENT, 0), (ANCIENT, 0), call.AT_SYMLINK_NOFOLLOW)
    with changes({"l": "atime"}):
        os.readlink("l")


@case
def ftruncate_same_size():
    put("f", b"abc")
    with opened("f") as fd, changes({"f": BOTH}):
        os.ftruncate(fd, 3)


@case
def truncate_down():
    put("f", b"abc")
    with changes({"f": BOTH, ".": ""}):
        os.truncate("f", 1)


@case
def truncate_up():
    put("f", b"abc")
    with changes({"f": BOTH}):
        os.truncate("f", 100_000)


@case
def fallocate():
    put("f", b"abc")
    with opened("f") as fd, changes({"f": BOTH}):
        call.fallocate(fd, 0, 0, 10_000)


@case
def punch_hole():
    put("f", bytes(100_000))
    with opened("f") as fd, changes({"f": BOTH}):
        mode = call.FALLOC_PUNCH_HOLE | call.FALLOC_KEEP_SIZE
        call.fallocate(fd, mode, 4096, 8192)


@case
def copy_range():
    put("from", bytes(10_000))
    put("to")
    with opened("from") as source, opened("to") as target, changes({"to": BOTH, "from": "?atime"}):
        os.copy_file_range(source, target, 10_000)


@case
def mapped_write():
    put("f", bytes(4096))
    with opened("f") as fd, mmap.mmap(fd, 4096) as mapped, changes({"f": BOTH + " ?atime"}):
        mapped[0] = 1
        mapped.flush()


@case
def chmod():
    put("f")
    with changes({"f": "ctime", ".": ""}):
        os.chmod("f", 0o600)


@case
def fchmod():
    put("f")
    with opened("f") as fd, changes({"f": "ctime", ".": ""}):
        os.fchmod(fd, 0o600)


@case
def chown():
    put("f")
    with changes({"f": "ctime", ".": ""}):
        os.chown("f", 5, 5)


@case
def chown_of_nothing():
    put("f")
    with changes({"f": "?ctime", ".": ""}):
        os.chown("f", -1, -1)


@case
def failed_calls_change_nothing():
    put("f")
    put("g")
    os.mkdir("d")
    with changes({"f": "", "g": "", "d": "", ".": ""}):
        refused(errno.EPERM, os.chmod, "f", 0o600)
        refused(errno.EPERM, os.chown, "f", 5, 5)
        refused(errno.EACCES, os.truncate, "f", 0)
        fails(errno.EEXIST, os.link, "f", "g")
        fails(errno.EEXIST, os.mkdir, "d")
        fails(errno.ENOTDIR, os.rename, "d", "f")
        fails(errno.EISDIR, os.unlink, "d")


@case
def link():
    put("f")
    with changes({"f": "ctime", ".": BOTH}):
        os.link("f", "g")


@case
def unlink_one_of_two():
    put("f")
    os.link("f", "g")
    with changes({"f": "ctime", ".": BOTH}):
        os.unlink("g")


@case
def unlink_of_an_open_file():
    put("f")
    with opened("f") as fd, changes({fd: "ctime", ".": BOTH}):
        os.unlink("f")


@case
def rename_within_a_directory():
    put("f")
    with changes({".": BOTH}):
        os.rename("f", "g")


@case
def rename_changes_ctime():
    put("f")
    with opened("f") as fd, changes({fd: "ctime"}):
        os.rename("f", "g")


@case
def rename_between_directories():
    os.mkdir("a")
    os.mkdir("b")
    put("a/f")
    with changes({"a": BOTH, "b": BOTH, ".": ""}):
        os.rename("a/f", "b/f")


@case
def rename_over():
    put("f")
    put("g")
    with opened("g") as fd, changes({fd: "ctime", ".": BOTH}):
        os.rename("f", "g")


@case
def rename_to_itself():
    put("f")
    with changes({"f": "", ".": ""}):
        os.rename("f", "f")


@case
def exchange():
    put("f")
    put("g")
    with opened("f") as one, opened("g") as two:
        with changes({one: "ctime", two: "ctime", ".": BOTH}):
            call.renameat2("f", "g", call.RENAME_EXCHANGE)


@case
def mkdir_and_rmdir():
    os.mkdir("d")
    with changes({"d": BOTH, ".": ""}):
        os.mkdir("d/e")
    with changes({"d": BOTH, ".": ""}):
        os.rmdir("d/e")


@case
def symlink_and_mknod():
    for make in (lambda: os.symlink("t", "l"), lambda: os.mkfifo("p"), lambda: os.unlink("p")):
        with changes({".": BOTH}):
            make()


@case
def tmpfile():
    with changes({".": ""}):
        fd = os.open(".", os.O_TMPFILE | os.O_RDWR)
    with changes({fd: "ctime", ".": BOTH}):
        call.link_fd(fd, "f")


@case
def setxattr():
    put("f")
    with changes({"f": "ctime", ".": ""}):
        os.setxattr("f", "user.a", b"x")
    with changes({"f": ""}):
        os.getxattr("f", "user.a")
        os.listxattr("f")
    with changes({"f": "ctime"}):
        os.removexattr("f", "user.a")


@case
def locks_and_seeks():
    put("f", b"abc")
    with opened("f") as fd, changes({"f": ""}):
        os.lseek(fd, 2, os.SEEK_SET)
        fcntl.flock(fd, fcntl.LOCK_EX)
        os.fsync(fd)


# Setting them


@case
def utimensat_sets_nanoseconds():
    put("f")
    call.utimensat("f", (ANCIENT, 123_456_789), (ANCIENT + 5, 987_654_321))
    found = os.stat("f")
    same(found.st_atime_ns, ANCIENT * 10**9 + 123_456_789, "atime")
    same(found.st_mtime_ns, (ANCIENT + 5) * 10**9 + 987_654_321, "mtime")


@case
def utimensat_changes_ctime():
    put("f")
    before = stamps("f")["ctime"]
    tick()
    call.utimensat("f", (ANCIENT, 0), (ANCIENT, 0))
    check(stamps("f")["ctime"] > before, "ctime went forward")


@case
def utimensat_survives_what_follows():
    put("f", b"abc")
    with opened("f") as fd:
        os.write(fd, b"x" * 10_000)
        call.utimensat("f", (ANCIENT, 1), (ANCIENT, 2))
        os.fsync(fd)
    found = stamps("f")
    same(found["mtime"], ANCIENT * 10**9 + 2, "mtime, after fsync and close")


@case
def utimensat_now():
    put("f")
    call.utimensat("f", (ANCIENT, 0), (ANCIENT, 0))
    with changes({"f": "atime mtime ctime"}):
        call.utimensat("f", (0, UTIME_NOW), (0, UTIME_NOW))
    check(abs(os.stat("f").st_mtime_ns - time.time_ns()) < 5 * 10**9, "mtime is now")
    with changes({"f": "atime mtime ctime"}):
        call.utimensat("f", None, None)


@case
def utimensat_omit():
    put("f")
    with changes({"f": ""}):
        call.utimensat("f", (0, UTIME_OMIT), (0, UTIME_OMIT))
    with changes({"f": "?mtime ctime"}):
        call.utimensat("f", (0, UTIME_OMIT), (ANCIENT * 4, 5))
    same(os.stat("f").st_mtime_ns, ANCIENT * 4 * 10**9 + 5, "mtime")
    with changes({"f": "atime ctime"}):
        call.utimensat("f", (ANCIENT * 4, 6), (0, UTIME_OMIT))
    same(os.stat("f").st_atime_ns, ANCIENT * 4 * 10**9 + 6, "atime")


@case
def utimensat_errors():
    put("f")
    fails(errno.EINVAL, call.utimensat, "f", (0, 10**9), (0, 0))
    fails(errno.EINVAL, call.utimensat, "f", (0, 0), (0, -1))
    fails(errno.ENOENT, call.utimensat, "missing", (0, 0), (0, 0))
    fails(errno.EINVAL, call.utimensat, "f", (0, 0), (0, 0), 0x8000)


@case
def utimensat_of_a_symlink():
    put("f")
    os.symlink("f", "l")
    target = stamps("f")
    call.utimensat("l", (ANCIENT, 1), (ANCIENT, 2), call.AT_SYMLINK_NOFOLLOW)
    same(stamps("l")["mtime"], ANCIENT * 10**9 + 2, "mtime of the link")
    same(stamps("f"), target, "the target's time stamps")
    call.utimensat("l", (ANCIENT, 3), (ANCIENT, 4))
    same(stamps("f")["mtime"], ANCIENT * 10**9 + 4, "mtime of the target")


@case
def utimensat_of_a_directory():
    os.mkdir("d")
    call.utimensat("d", (ANCIENT, 1), (ANCIENT, 2))
    same((stamps("d")["atime"], stamps("d")["mtime"]), (ANCIENT * 10**9 + 1, ANCIENT * 10**9 + 2), "times")


@case
def utimensat_by_descriptor():
    put("f")
    with opened("f", os.O_RDONLY) as fd:
        os.utime(fd, ns=(111, 222))
        same((os.fstat(fd).st_atime_ns, os.fstat(fd).st_mtime_ns), (111, 222), "times")


@case
def permission_to_set():
    put("f")
    os.chmod("f", 0o666)
    refused(errno.EPERM, call.utimensat, "f", (1, 0), (1, 0))
    as_user(call.utimensat, "f", None, None)
    as_user(call.utimensat, "f", (0, UTIME_NOW), (0, UTIME_NOW))
    refused(errno.EPERM, call.utimensat, "f", (0, UTIME_NOW), (0, UTIME_OMIT))
    os.chmod("f", 0o644)
    refused(errno.EACCES, call.utimensat, "f", None, None)
    os.chown("f", 65534, 0)
    os.chmod("f", 0o400)
    as_user(call.utimensat, "f", (1, 0), (1, 0))


@case
def before_1970():
    put("f")
    call.utimensat("f", (-1, 999_999_999), (-(2**31), 0))
    found = os.stat("f")
    same((found.st_atime_ns, found.st_mtime_ns), (-1, -(2**31) * 10**9), "times")


@case
def after_2038():
    put("f")
    call.utimensat("f", (2**31, 5), (2**32 + 2**31, 6))
    found = os.stat("f")
    same(found.st_atime_ns, 2**31 * 10**9 + 5, "atime")
    same(found.st_mtime_ns, (2**32 + 2**31) * 10**9 + 6, "mtime")


@case
def far_in_the_future():
    put("f")
    seconds = 13_569_465_600  # 2400
    call.utimensat("f", (seconds, 1), (seconds, 2))
    same(os.stat("f").st_mtime_ns, seconds * 10**9 + 2, "mtime")


@case
def beyond_what_can_be_kept():
    put("f")
    for seconds in (2**33, 2**38, 2**55):
        call.utimensat("f", (-seconds, 5), (seconds, 5))
        found = os.stat("f")
        check(2**31 < found.st_mtime_ns // 10**9 <= seconds, f"mtime is as near as can be to {seconds}")
        check(-seconds <= found.st_atime_ns // 10**9 <= -(2**31), f"so is atime to {-seconds}")


@case
def times_survive_eviction():
    put("f", b"abc")
    call.utimensat("f", (ANCIENT, 123_456_789), (-5, 987_654_321))
    os.sync()
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("2\n")
    except OSError:
        raise Skipped("caches cannot be dropped") from None
    found = os.stat("f")
    same(found.st_atime_ns, ANCIENT * 10**9 + 123_456_789, "atime")
    same(found.st_mtime_ns, -5 * 10**9 + 987_654_321, "mtime")


# statx


@case
def statx_agrees_with_stat():
    put("f", b"abc" * 5000, 0o640)
    os.chown("f", 7, 8)
    found, expected = call.statx("f"), os.stat("f")
    same(found.mask & call.STATX_BASIC, call.STATX_BASIC, "the mask")
    same((found.size, found.nlink, found.mode), (expected.st_size, 1, expected.st_mode), "size, links, mode")
    same((found.uid, found.gid, found.ino), (7, 8, expected.st_ino), "owner and inode")
    same(found.mtime[0] * 10**9 + found.mtime[1], expected.st_mtime_ns, "mtime")
    same((found.dev_major, found.dev_minor), (os.major(expected.st_dev), os.minor(expected.st_dev)), "device")


@case
def statx_birth():
    put("f")
    first = call.statx("f")
    if not first.mask & call.STATX_BTIME:
        raise Skipped("no time of birth")
    check(abs(first.btime[0] - time.time()) < 5, "it is now")
    tick()
    put("f", b"abc")
    os.rename("f", "g")
    call.utimensat("g", (5, 0), (5, 0))
    same(call.statx("g").btime, first.btime, "time of birth, later")


@case
def statx_of_descriptor_and_symlink():
    put("f", b"abc")
    os.symlink("f", "l")
    with opened("f") as fd:
        same(call.statx("", call.AT_EMPTY_PATH, dir_fd=fd).size, 3, "size by descriptor")
    same(call.statx("l", call.AT_SYMLINK_NOFOLLOW).size, 1, "size of the symlink")
    same(call.statx("l").size, 3, "size of its target")
    fails(errno.ENOENT, call.statx, "missing")
    fails(errno.EINVAL, call.statx, "f", 0x10000)


@case
def statx_sync_flags():
    put("f", b"abc")
    same(call.statx("f", 0x2000).size, 3, "AT_STATX_FORCE_SYNC")
    same(call.statx("f", 0x4000).size, 3, "AT_STATX_DONT_SYNC")


@case
def stat_of_many_kinds():
    put("f")
    os.mkdir("d")
    os.symlink("f", "l")
    devices = {os.lstat(name).st_dev for name in ("f", "d", "l", ".")}
    same(len(devices), 1, "devices of one file system")
    inodes = {os.lstat(name).st_ino for name in ("f", "d", "l", ".")}
    same(len(inodes), 4, "different inodes")
    check(os.stat("f").st_blksize >= 512, "a block size")
