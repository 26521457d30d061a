# SPDX-License-Identifier: Apache-2.0
"""open: its flags, what they make, and what they refuse."""

import errno
import fcntl
import os
import resource
import signal
import stat

import posix_call as call
from posix_rig import (
    as_user, case, check, exists, fails, get, long_case, mode_of, needs, opened, put, refused, same,
)

NEW = os.O_CREAT | os.O_RDWR
OPEN_AT_ONCE = 100_000


@case
def missing():
    fails(errno.ENOENT, os.open, "f", os.O_RDONLY)
    fails(errno.ENOENT, os.open, "d/f", NEW)


@case
def empty_path():
    fails(errno.ENOENT, os.open, "", os.O_RDONLY)
    fails(errno.ENOENT, os.open, "", NEW)


@case
def creates():
    with opened("f", NEW, 0o640) as fd:
        found = os.fstat(fd)
        same(stat.S_IFMT(found.st_mode), stat.S_IFREG, "the type")
        same(found.st_mode & 0o7777, 0o640, "the mode")
        same((found.st_size, found.st_nlink, found.st_blocks), (0, 1, 0), "size, links, blocks")
        same((found.st_uid, found.st_gid), (0, 0), "the owner")


@case
def creates_as_user():
    os.chmod(".", 0o777)
    as_user(put, "f")
    same((os.stat("f").st_uid, os.stat("f").st_gid), (65534, 65534), "the owner")


@case
def umask_applies():
    os.umask(0o027)
    put("f", mode=0o666)
    same(mode_of("f"), 0o640, "the mode")


@case
def mode_bits_at_creation():
    os.umask(0)
    put("f", mode=0o6777)
    same(mode_of("f"), 0o6777, "the mode")
    put("g", mode=0o1644)
    same(mode_of("g"), 0o1644, "the mode")


@case
def creates_with_mode_0():
    with opened("f", NEW, 0) as fd:
        os.write(fd, b"x")
        same(os.pread(fd, 10, 0), b"x", "what the first descriptor reads")
    same(mode_of("f"), 0, "the mode")


@case
def create_for_reading_only():
    with opened("f", os.O_CREAT | os.O_RDONLY) as fd:
        fails(errno.EBADF, os.write, fd, b"x")


@case
def read_only_mode_writes_through_creator():
    os.chmod(".", 0o777)

    def write():
        with opened("f", NEW, 0o400) as fd:
            os.write(fd, b"abc")

    as_user(write)
    same(get("f"), b"abc", "the content")


@case
def existing_keeps_mode_and_content():
    put("f", b"abc", 0o600)
    with opened("f", NEW, 0o777):
        pass
    same((mode_of("f"), get("f")), (0o600, b"abc"), "mode and content")


@case
def excl_existing():
    put("f")
    fails(errno.EEXIST, os.open, "f", NEW | os.O_EXCL)


@case
def excl_new():
    with opened("f", NEW | os.O_EXCL):
        check(exists("f"), "the file is there")


@case
def excl_directory():
    os.mkdir("d")
    fails(errno.EEXIST, os.open, "d", NEW | os.O_EXCL)


@case
def excl_symlink():
    os.symlink("nowhere", "l")
    fails(errno.EEXIST, os.open, "l", NEW | os.O_EXCL)
    check(not exists("nowhere"), "the target was not made")


@case
def create_through_dangling_symlink():
    os.symlink("target", "l")
    put("l", b"abc")
    same(get("target"), b"abc", "the target's content")


@case
def trunc():
    put("f", b"abc" * 5000)
    with opened("f", os.O_WRONLY | os.O_TRUNC) as fd:
        same(os.fstat(fd).st_size, 0, "the size")
    same(get("f"), b"", "the content")


@case
def trunc_read_only():
    put("f", b"abc")
    os.close(os.open("f", os.O_RDONLY | os.O_TRUNC))
    same(os.stat("f").st_size, 0, "the size (Linux truncates)")


@case
def trunc_needs_write_permission():
    put("f", b"abc", 0o444)
    refused(errno.EACCES, os.open, "f", os.O_RDONLY | os.O_TRUNC)
    same(get("f"), b"abc", "the content")


@case
def trunc_while_open():
    put("f", b"abc")
    with opened("f") as fd:
        os.close(os.open("f", os.O_WRONLY | os.O_TRUNC))
        same(os.pread(fd, 10, 0), b"", "what the older descriptor reads")


@case
def access_modes():
    put("f", b"abc")
    with opened("f", os.O_WRONLY) as fd:
        fails(errno.EBADF, os.read, fd, 1)
    with opened("f", os.O_RDONLY) as fd:
        fails(errno.EBADF, os.write, fd, b"x")
        fails(errno.EINVAL, os.ftruncate, fd, 0)


@case
def directory_for_writing():
    os.mkdir("d")
    fails(errno.EISDIR, os.open, "d", os.O_WRONLY)
    fails(errno.EISDIR, os.open, "d", os.O_RDWR)
    fails(errno.EISDIR, os.open, "d", os.O_RDONLY | os.O_CREAT)
    fails(errno.EISDIR, os.open, "d", os.O_RDONLY | os.O_TRUNC)


@case
def directory_flag():
    put("f")
    os.mkdir("d")
    os.symlink("d", "l")
    fails(errno.ENOTDIR, os.open, "f", os.O_RDONLY | os.O_DIRECTORY)
    os.close(os.open("d", os.O_RDONLY | os.O_DIRECTORY))
    os.close(os.open("l", os.O_RDONLY | os.O_DIRECTORY))
    fails(errno.ENOTDIR, os.open, "l", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)


@case
def directory_flag_with_creat():
    fails(errno.EINVAL, os.open, "new", os.O_CREAT | os.O_DIRECTORY | os.O_RDWR)
    check(not exists("new"), "nothing was made")


@case
def directory_cannot_be_read():
    os.mkdir("d")
    with opened("d", os.O_RDONLY) as fd:
        fails(errno.EISDIR, os.read, fd, 10)
        fails(errno.EISDIR, os.pread, fd, 10, 0)
        fails(errno.EINVAL, os.ftruncate, fd, 0)


@case
def trailing_slash():
    put("f")
    fails(errno.ENOTDIR, os.open, "f/", os.O_RDONLY)
    fails(errno.EISDIR, os.open, "new/", NEW)
    fails(errno.ENOTDIR, os.stat, "f/")


@case
def file_in_the_middle():
    put("f")
    fails(errno.ENOTDIR, os.open, "f/g", os.O_RDONLY)
    fails(errno.ENOTDIR, os.open, "f/g", NEW)
    fails(errno.ENOTDIR, os.stat, "f/..")


@case
def nofollow():
    put("f")
    os.symlink("f", "l")
    os.mkdir("d")
    os.symlink("d", "dl")
    put("d/f")
    fails(errno.ELOOP, os.open, "l", os.O_RDONLY | os.O_NOFOLLOW)
    fails(errno.ELOOP, os.open, "l", NEW | os.O_NOFOLLOW)
    os.close(os.open("dl/f", os.O_RDONLY | os.O_NOFOLLOW))
    os.close(os.open("f", os.O_RDONLY | os.O_NOFOLLOW))


@case
def path_only():
    put("f", b"abc", 0o640)
    with opened("f", os.O_PATH) as fd:
        fails(errno.EBADF, os.read, fd, 1)
        fails(errno.EBADF, os.fchmod, fd, 0o600)
        fails(errno.EBADF, os.fsync, fd)
        same(os.fstat(fd).st_size, 3, "the size")
        os.close(os.open(f"/proc/self/fd/{fd}", os.O_RDWR))


@case
def path_only_after_unlink():
    put("f", b"abc")
    with opened("f", os.O_PATH) as fd:
        os.unlink("f")
        same(os.fstat(fd).st_nlink, 0, "links")


@case
def path_only_without_permission():
    put("f", b"abc", 0)

    def look():
        with opened("f", os.O_PATH) as fd:
            return os.fstat(fd).st_size

    same(as_user(look), 3, "the size")


@case
def path_only_of_symlink():
    os.symlink("target", "l")
    with opened("l", os.O_PATH | os.O_NOFOLLOW) as fd:
        check(stat.S_ISLNK(os.fstat(fd).st_mode), "it is the symlink")
        same(os.readlink("", dir_fd=fd), "target", "readlinkat of it")


@case
def path_only_of_directory():
    os.mkdir("d")
    put("d/f", b"abc")
    with opened("d", os.O_PATH | os.O_DIRECTORY) as fd:
        os.close(os.open("f", os.O_RDONLY, dir_fd=fd))
        fails(errno.EBADF, os.listdir, fd)
        os.mkdir("sub", dir_fd=fd)
    check(exists("d/sub"), "mkdirat worked")


@case
def tmpfile_has_no_name():
    with opened(".", os.O_TMPFILE | os.O_RDWR, 0o600) as fd:
        os.write(fd, b"abc")
        same(os.fstat(fd).st_nlink, 0, "links")
        same(os.listdir("."), [], "names")
        same(os.pread(fd, 10, 0), b"abc", "content")
        same(os.fstat(fd).st_mode & 0o777, 0o600, "mode")


@case
def tmpfile_gets_a_name():
    with opened(".", os.O_TMPFILE | os.O_RDWR, 0o640) as fd:
        os.write(fd, b"abc")
        call.link_fd(fd, "f")
        same(os.fstat(fd).st_nlink, 1, "links")
    same((get("f"), mode_of("f")), (b"abc", 0o640), "content and mode")


@case
def tmpfile_over_existing():
    put("f")
    with opened(".", os.O_TMPFILE | os.O_RDWR) as fd:
        fails(errno.EEXIST, call.link_fd, fd, "f")


@case
def tmpfile_excl_gets_no_name():
    with opened(".", os.O_TMPFILE | os.O_RDWR | os.O_EXCL) as fd:
        fails(errno.ENOENT, call.link_fd, fd, "f")


@case
def tmpfile_refusals():
    put("f")
    fails(errno.EINVAL, os.open, ".", os.O_TMPFILE | os.O_RDONLY)
    fails(errno.ENOTDIR, os.open, "f", os.O_TMPFILE | os.O_RDWR)
    fails(errno.ENOENT, os.open, "missing", os.O_TMPFILE | os.O_RDWR)
    refused(errno.EACCES, os.open, ".", os.O_TMPFILE | os.O_RDWR)


@case
def tmpfile_many_linked():
    for number in range(20):
        with opened(".", os.O_TMPFILE | os.O_RDWR) as fd:
            os.write(fd, b"%d" % number)
            call.link_fd(fd, f"f{number}")
    same([get(f"f{n}") for n in range(20)], [b"%d" % n for n in range(20)], "the contents")


@case
def append_flag():
    put("f", b"abc")
    with opened("f", os.O_RDWR | os.O_APPEND) as fd:
        os.lseek(fd, 0, os.SEEK_SET)
        os.write(fd, b"def")
        same(os.lseek(fd, 0, os.SEEK_CUR), 6, "the position")
        os.pwrite(fd, b"ghi", 0)
    same(get("f"), b"abcdefghi", "the content (pwrite appends, too, on Linux)")


@case
def append_after_growth_elsewhere():
    put("f", b"abc")
    with opened("f", os.O_WRONLY | os.O_APPEND) as appending, opened("f") as other:
        os.pwrite(other, b"d" * 5000, 3)
        os.write(appending, b"end")
        os.ftruncate(other, 10)
        os.write(appending, b"END")
    same(get("f"), b"abc" + b"d" * 7 + b"END", "the content")


@case
def append_set_by_fcntl():
    put("f", b"abc")
    with opened("f") as fd:
        fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
        os.write(fd, b"def")
        same(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND, os.O_APPEND, "F_GETFL")
    same(get("f"), b"abcdef", "the content")


@case
def two_descriptors_have_two_positions():
    put("f", b"abcdef")
    with opened("f") as one, opened("f") as two:
        same(os.read(one, 3), b"abc", "the first")
        same(os.read(two, 2), b"ab", "the second")
        again = os.dup(one)
        same(os.read(again, 3), b"def", "a duplicate goes on")
        os.close(again)


@case
def open_by_proc_after_unlink():
    put("f", b"abc")
    with opened("f") as fd:
        os.unlink("f")
        with opened(f"/proc/self/fd/{fd}", os.O_RDWR) as again:
            os.write(again, b"x")
        same(os.pread(fd, 10, 0), b"xbc", "the content")


@case
def noatime_only_for_the_owner():
    put("f", b"abc")
    os.close(os.open("f", os.O_RDONLY | os.O_NOATIME))
    refused(errno.EPERM, os.open, "f", os.O_RDONLY | os.O_NOATIME)


@case
def busy_text():
    with open("/bin/true", "rb") as program:
        put("prog", program.read(), 0o755)
    with opened("prog", os.O_RDWR):
        fails(errno.ETXTBSY, os.execv, "./prog", ["prog"])
    same(os.spawnv(os.P_WAIT, "./prog", ["prog"]), 0, "its exit status")


@case
def write_to_running_program():
    with open("/bin/sleep", "rb") as program:
        put("prog", program.read(), 0o755)
    pid = os.spawnv(os.P_NOWAIT, "./prog", ["prog", "30"])
    try:
        while os.readlink(f"/proc/{pid}/exe") != os.path.realpath("prog"):
            pass
        fails(errno.ETXTBSY, os.open, "prog", os.O_WRONLY)
        fails(errno.ETXTBSY, os.truncate, "prog", 0)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


@case
def script_runs():
    put("s", b"#!/bin/sh\nexit 7\n", 0o755)
    same(os.spawnv(os.P_WAIT, "./s", ["s"]), 7, "its exit status")


@case
def execute_needs_permission():
    put("s", b"#!/bin/sh\nexit 7\n", 0o644)
    fails(errno.EACCES, os.execv, "./s", ["s"])
    os.mkdir("d")
    fails(errno.EACCES, os.execv, "./d", ["d"])


@case
def openat2_beneath():
    os.mkdir("d")
    put("f")
    os.symlink("../f", "d/l")
    no_escape = 0x08
    with opened("d", os.O_PATH) as fd:
        os.fchdir(fd)
    fails(errno.EXDEV, call.openat2, "../f", os.O_RDONLY, 0, no_escape)
    fails(errno.EXDEV, call.openat2, "l", os.O_RDONLY, 0, no_escape)
    put("g")
    os.close(call.openat2("g", os.O_RDONLY, 0, no_escape))


@case
def openat2_no_symlinks():
    put("f")
    os.symlink("f", "l")
    fails(errno.ELOOP, call.openat2, "l", os.O_RDONLY, 0, 0x04)
    fails(errno.EINVAL, call.openat2, "f", os.O_RDONLY, 0o644, 0)


@case
def many_open_files():
    put("f", b"abc")
    fds = [os.open("f", os.O_RDONLY) for _ in range(500)]
    same({os.pread(fd, 3, 0) for fd in fds}, {b"abc"}, "what they read")
    for fd in fds:
        os.close(fd)


@long_case
def very_many_at_once():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    number = OPEN_AT_ONCE
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (number + 100, max(number + 100, limit[1])))
    except (OSError, ValueError):
        number = limit[0] - 100
    for index in range(100):
        put(f"f{index}", b"%d" % index)
    fds = [os.open(f"f{index % 100}", os.O_RDWR) for index in range(number)]
    for index in range(100):
        os.unlink(f"f{index}")
    for index in range(0, number, 997):
        same(os.pread(fds[index], 10, 0), b"%d" % (index % 100), "the content")
    for fd in fds:
        os.close(fd)
    same(os.listdir("."), [], "names at the end")


@case
def file_handle():
    put("f", b"abc")
    handle, _ = needs(call.name_to_handle, "f")
    with opened(".", os.O_RDONLY) as here:
        fd = call.open_by_handle(here, handle, os.O_RDWR)
        same(os.pread(fd, 3, 0), b"abc", "the content")
        same(os.fstat(fd).st_ino, os.stat("f").st_ino, "the inode")
        os.close(fd)
        os.unlink("f")
        os.sync()
        fails(errno.ESTALE, call.open_by_handle, here, handle, os.O_RDWR)


@case
def read_only_descriptor_survives_chmod():
    put("f", b"abc")
    with opened("f") as fd:
        os.chmod("f", 0)
        os.write(fd, b"x")
        same(os.pread(fd, 3, 0), b"xbc", "the content")


@case
def lease():
    put("f", b"abc")
    signal.signal(signal.SIGIO, signal.SIG_IGN)
    with opened("f", os.O_RDONLY) as fd:
        needs(fcntl.fcntl, fd, fcntl.F_SETLEASE, fcntl.F_RDLCK, without=(errno.EINVAL,))
        same(fcntl.fcntl(fd, fcntl.F_GETLEASE), fcntl.F_RDLCK, "the lease")
        fails(errno.EAGAIN, os.open, "f", os.O_WRONLY | os.O_NONBLOCK)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
