# SPDX-License-Identifier: Apache-2.0
"""Hard links, symbolic links, unlink, special files."""

import errno
import os
import select
import socket
import stat

import posix_call as call
from posix_rig import (
    Child, as_user, case, check, exists, fails, get, get_fd, long_case, mode_of, opened, put, refused,
    same,
)

LINKS_TRIED = 66_000  # ext4 has 65,000


@case
def link_makes_another_name():
    put("f", b"abc")
    os.link("f", "g")
    same(os.stat("f").st_ino, os.stat("g").st_ino, "the inode")
    same((os.stat("f").st_nlink, os.stat("g").st_nlink), (2, 2), "links")
    put("g", b"new")
    same(get("f"), b"new", "the content")


@case
def link_counts_down():
    put("f", b"abc")
    os.link("f", "g")
    os.unlink("f")
    same(os.stat("g").st_nlink, 1, "links")
    same(get("g"), b"abc", "the content")


@case
def link_errors():
    put("f")
    put("g")
    os.mkdir("d")
    fails(errno.EEXIST, os.link, "f", "g")
    fails(errno.EEXIST, os.link, "f", "d")
    fails(errno.ENOENT, os.link, "missing", "h")
    fails(errno.ENOENT, os.link, "f", "missing/h")
    fails(errno.ENOTDIR, os.link, "f", "g/h")
    fails(errno.ENOTDIR, os.link, "f/x", "h")
    fails(errno.EPERM, os.link, "d", "h")
    fails((errno.ENOENT, errno.ENOTDIR), os.link, "f", "h/")
    fails(errno.ENOENT, os.link, "f", "")


@case
def link_to_itself():
    put("f")
    fails(errno.EEXIST, os.link, "f", "f")


@case
def link_to_elsewhere():
    put("f")
    fails(errno.EXDEV, os.link, "f", "/dev/shm/posix_case_link")
    fails(errno.EXDEV, os.link, "/proc/self/status", "g")


@case
def link_of_symlink():
    put("f", b"abc")
    os.symlink("f", "l")
    call.linkat(call.AT_FDCWD, "l", call.AT_FDCWD, "m", 0)
    check(stat.S_ISLNK(os.lstat("m").st_mode), "the symlink itself has two names")
    same(os.lstat("l").st_nlink, 2, "links")
    call.linkat(call.AT_FDCWD, "l", call.AT_FDCWD, "n", call.AT_SYMLINK_FOLLOW)
    same(os.lstat("n").st_ino, os.stat("f").st_ino, "with AT_SYMLINK_FOLLOW: the target")


@case
def link_needs_write_permission_of_directory():
    put("f")
    os.chmod("f", 0o666)
    refused(errno.EACCES, os.link, "f", "g")


@case
def link_while_unlinked_but_open():
    put("f")
    with opened("f") as fd:
        os.unlink("f")
        fails(errno.ENOENT, call.link_fd, fd, "g")


@long_case
def link_limit():
    put("f")
    made = 1
    try:
        for number in range(LINKS_TRIED):
            os.link("f", f"l{number}")
            made += 1
    except OSError as error:
        same(error.errno, errno.EMLINK, "the error at the limit")
    same(os.stat("f").st_nlink, made, "links")
    check(made >= 1000, "at least 1000 links")
    if made <= LINKS_TRIED:
        os.unlink("l0")
        os.link("f", "l0")


@case
def unlink_errors():
    put("f")
    os.mkdir("d")
    fails(errno.ENOENT, os.unlink, "missing")
    fails(errno.ENOTDIR, os.unlink, "f/g")
    fails(errno.EISDIR, os.unlink, "d")
    fails(errno.ENOTDIR, os.unlink, "f/")
    fails(errno.ENOENT, os.unlink, "")
    refused(errno.EACCES, os.unlink, "f")


@case
def unlink_of_symlink_leaves_the_target():
    put("f")
    os.symlink("f", "l")
    os.unlink("l")
    check(exists("f") and not exists("l"), "only the link is gone")


@case
def unlink_of_read_only_file():
    os.chmod(".", 0o777)
    put("f", mode=0o444)
    as_user(os.unlink, "f")
    check(not exists("f"), "it is gone")


@case
def symlink_reads_back():
    for target in ("f", "/absolute/path", "../up", "a" * 255, "x/" * 2047 + "x", "\udcff\udc80", " "):
        os.symlink(target, "l")
        same(os.readlink("l"), target, "the target")
        same(os.lstat("l").st_size, len(os.fsencode(target)), "the size")
        os.unlink("l")


@case
def symlink_attributes():
    os.umask(0o077)
    os.symlink("target", "l")
    found = os.lstat("l")
    check(stat.S_ISLNK(found.st_mode), "it is a symlink")
    same(found.st_mode & 0o777, 0o777, "the mode")
    same(found.st_nlink, 1, "links")


@case
def symlink_long_targets():
    os.symlink("t" * 4095, "l")
    same(os.readlink("l"), "t" * 4095, "the target")
    fails(errno.ENAMETOOLONG, os.symlink, "t" * 4096, "m")
    fails(errno.ENAMETOOLONG, os.stat, "l")


@case
def symlink_errors():
    put("f")
    os.symlink("x", "l")
    fails(errno.EEXIST, os.symlink, "t", "f")
    fails(errno.EEXIST, os.symlink, "t", "l")
    fails(errno.ENOENT, os.symlink, "t", "missing/l")
    fails(errno.ENOTDIR, os.symlink, "t", "f/l")
    fails(errno.ENOENT, os.symlink, "", "m")
    fails(errno.ENOENT, os.symlink, "t", "")
    fails(errno.ENOENT, os.symlink, "t", "m/")
    refused(errno.EACCES, os.symlink, "t", "m")


@case
def symlink_loops():
    os.symlink("b", "a")
    os.symlink("a", "b")
    os.symlink("self", "self")
    for name in ("a", "self", "a/x"):
        fails(errno.ELOOP, os.stat, name)
        fails(errno.ELOOP, os.open, name, os.O_RDONLY)
    fails(errno.ELOOP, os.mkdir, "a/x")
    same(os.readlink("self"), "self", "the target")


@case
def symlink_chain():
    put("f0", b"abc")
    for number in range(1, 41):
        os.symlink(f"f{number - 1}", f"f{number}")
    same(get("f40"), b"abc", "through 40 links")
    os.symlink("f40", "f41")
    fails(errno.ELOOP, os.stat, "f41")


@case
def symlink_dangling():
    os.symlink("nowhere", "l")
    fails(errno.ENOENT, os.stat, "l")
    fails(errno.ENOENT, os.open, "l", os.O_RDONLY)
    fails(errno.ENOENT, os.chmod, "l", 0o600)
    check(stat.S_ISLNK(os.lstat("l").st_mode), "lstat finds it")


@case
def symlink_to_directory():
    os.mkdir("d")
    put("d/f", b"abc")
    os.symlink("d", "l")
    same(get("l/f"), b"abc", "through the link")
    same(os.listdir("l"), ["f"], "names")
    fails(errno.ENOTDIR, os.rmdir, "l")
    check(stat.S_ISDIR(os.lstat("l/").st_mode), "with a slash it is the directory")


@case
def readlink_errors():
    put("f")
    os.mkdir("d")
    fails(errno.EINVAL, os.readlink, "f")
    fails(errno.EINVAL, os.readlink, "d")
    fails(errno.ENOENT, os.readlink, "missing")
    fails(errno.ENOTDIR, os.readlink, "f/g")


@case
def readlink_with_a_small_buffer():
    import ctypes

    os.symlink("0123456789", "l")
    buffer = ctypes.create_string_buffer(20)
    same(call.libc_call("readlink", b"l", buffer, 4), 4, "the length")
    same(buffer.raw[:5], b"0123\0", "what was read")


@case
def symlink_owner():
    os.chmod(".", 0o777)
    as_user(os.symlink, "t", "l")
    same(os.lstat("l").st_uid, 65534, "the owner")
    os.lchown("l", 5, 6)
    same((os.lstat("l").st_uid, os.lstat("l").st_gid), (5, 6), "after lchown")


@case
def symlink_mode_cannot_change():
    os.symlink("t", "l")
    with opened("l", os.O_PATH | os.O_NOFOLLOW) as fd:
        fails(errno.EOPNOTSUPP, os.chmod, f"/proc/self/fd/{fd}", 0o600)


@case
def symlink_replaced():
    put("f", b"f")
    put("g", b"g")
    os.symlink("f", "l")
    same(get("l"), b"f", "before")
    os.symlink("g", "m")
    os.rename("m", "l")
    same((os.readlink("l"), get("l")), ("g", b"g"), "after")


@case
def fifo():
    os.mkfifo("p", 0o640)
    check(stat.S_ISFIFO(os.stat("p").st_mode), "it is a fifo")
    same(mode_of("p"), 0o640, "the mode")
    fails(errno.ENXIO, os.open, "p", os.O_WRONLY | os.O_NONBLOCK)
    reader = os.open("p", os.O_RDONLY | os.O_NONBLOCK)

    def write():
        with opened("p", os.O_WRONLY) as fd:
            os.write(fd, b"hello")

    child = Child(write)
    select.select([reader], [], [], 10)
    same(os.read(reader, 100), b"hello", "what went through")
    child.result()
    fails(errno.EEXIST, os.mkfifo, "p")


@case
def fifo_cannot_be_sought():
    os.mkfifo("p")
    with opened("p", os.O_RDWR) as fd:
        fails(errno.ESPIPE, os.lseek, fd, 0, os.SEEK_SET)
        fails(errno.EINVAL, os.ftruncate, fd, 0)
        fails(errno.EINVAL, os.fsync, fd)


@case
def unix_socket():
    server = socket.socket(socket.AF_UNIX)
    server.bind("s")
    server.listen()
    check(stat.S_ISSOCK(os.stat("s").st_mode), "it is a socket")
    client = socket.socket(socket.AF_UNIX)
    client.connect("s")
    peer, _ = server.accept()
    client.send(b"hello")
    same(peer.recv(10), b"hello", "what went through")
    fails(errno.ENXIO, os.open, "s", os.O_RDONLY)
    fails(errno.EADDRINUSE, socket.socket(socket.AF_UNIX).bind, "s")
    server.close()
    fails(errno.ECONNREFUSED, socket.socket(socket.AF_UNIX).connect, "s")


@case
def unix_socket_needs_write_permission():
    server = socket.socket(socket.AF_UNIX)
    server.bind("s")
    server.listen()
    os.chmod("s", 0o600)
    refused(errno.EACCES, lambda: socket.socket(socket.AF_UNIX).connect("s"))
    os.chmod("s", 0o666)
    as_user(lambda: socket.socket(socket.AF_UNIX).connect("s"))


@case
def device_nodes():
    for kind, check_kind in ((stat.S_IFCHR, stat.S_ISCHR), (stat.S_IFBLK, stat.S_ISBLK)):
        os.mknod("n", kind | 0o600, os.makedev(1, 3))
        found = os.stat("n")
        check(check_kind(found.st_mode), "the kind")
        same(found.st_rdev, os.makedev(1, 3), "the number")
        os.unlink("n")


@case
def device_numbers_are_large():
    os.mknod("n", stat.S_IFCHR | 0o600, os.makedev(4095, 1_048_575))
    same(os.stat("n").st_rdev, os.makedev(4095, 1_048_575), "the number")


@case
def device_nodes_only_for_root():
    os.chmod(".", 0o777)
    refused(errno.EPERM, os.mknod, "n", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    as_user(os.mknod, "p", stat.S_IFIFO | 0o600)


@case
def mknod_of_a_file():
    os.umask(0o027)
    os.mknod("f", stat.S_IFREG | 0o666)
    check(stat.S_ISREG(os.stat("f").st_mode), "it is a file")
    same(mode_of("f"), 0o640, "the mode")
    os.mknod("g", 0o600)
    check(stat.S_ISREG(os.stat("g").st_mode), "without a type it is a file")


@case
def mknod_errors():
    put("f")
    fails(errno.EEXIST, os.mknod, "f", stat.S_IFIFO | 0o600)
    fails(errno.EPERM, os.mknod, "d", stat.S_IFDIR | 0o700)
    fails(errno.EINVAL, os.mknod, "l", stat.S_IFLNK | 0o700)
    fails(errno.ENOENT, os.mknod, "missing/f", stat.S_IFREG | 0o600)
    fails(errno.ENOTDIR, os.mknod, "f/g", stat.S_IFREG | 0o600)


@case
def special_files_are_linked_and_renamed():
    os.mkfifo("p")
    os.link("p", "q")
    os.rename("p", "r")
    same(os.stat("q").st_nlink, 2, "links")
    check(stat.S_ISFIFO(os.stat("r").st_mode), "it is a fifo")


@case
def last_link_goes_while_open_elsewhere():
    put("f", b"abc")

    def hold(started, go):
        with opened("f") as fd:
            os.write(started, b"x")
            os.read(go, 1)
            return get_fd(fd)

    started_r, started_w = os.pipe()
    go_r, go_w = os.pipe()
    child = Child(hold, started_w, go_r)
    os.read(started_r, 1)
    os.unlink("f")
    put("f", b"new")
    os.write(go_w, b"x")
    same(child.result(), b"abc", "what the other process reads")
