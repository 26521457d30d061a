# SPDX-License-Identifier: Apache-2.0
"""mount_set_ids.py DIR: what is left of set-user-ID and set-group-ID after each kind of change.

A file gets each of some modes, and is changed in each way by each kind of caller. A line says which
bits there are then, or what the error was. So two file systems can be compared. It is root's, and
becomes the other users in processes of its own. The numbers of users and groups need not exist.
"""

import ctypes
import errno
import mmap
import os
import stat
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
KEEP_SIZE = 1
PUNCH_HOLE = 2
ZERO_RANGE = 16
PAGE = 4096
OWNER, GROUP, OTHER, OTHER_GROUP = 1000, 2000, 1001, 1002
MODES = (0o2666, 0o2676, 0o2767, 0o4666, 0o4777, 0o6666, 0o6676, 0o6766, 0o6777)

# Name, user, group, and the groups that he is in besides.
CALLERS = (
    ("root", 0, 0, ()),
    ("stranger", OTHER, OTHER, ()),
    ("member", OTHER, GROUP, ()),
    ("member-besides", OTHER, OTHER, (OTHER_GROUP, GROUP)),
    ("owner", OWNER, OWNER, (OTHER_GROUP,)),
    ("owner-member", OWNER, OWNER, (OTHER_GROUP, GROUP)),
)


def fallocate(fd, mode, offset, length):
    args = (ctypes.c_int(mode), ctypes.c_long(offset), ctypes.c_long(length))
    if LIBC.fallocate(fd, *args) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def write(fd):
    os.pwrite(fd, b"evil", 5)


def write_nothing(fd):
    os.pwrite(fd, b"", 5)


def write_direct(_):
    fd = os.open("file", os.O_WRONLY | os.O_DIRECT)
    os.pwritev(fd, [mmap.mmap(-1, PAGE)], PAGE)
    os.close(fd)


def splice(fd):
    ends = os.pipe()
    os.write(ends[1], b"evil")
    os.splice(ends[0], fd, 4, offset_dst=0)


def cut(fd):
    os.ftruncate(fd, 10)


def lengthen(fd):
    os.ftruncate(fd, 10 * PAGE)


def open_empty(_):
    os.close(os.open("file", os.O_WRONLY | os.O_TRUNC))


def allocate(fd):
    fallocate(fd, 0, 0, 6 * PAGE)


def allocate_beyond(fd):
    fallocate(fd, KEEP_SIZE, 6 * PAGE, PAGE)


def punch(fd):
    fallocate(fd, PUNCH_HOLE | KEEP_SIZE, PAGE, PAGE)


def zero(fd):
    try:
        fallocate(fd, ZERO_RANGE, PAGE, PAGE)
    except OSError as failure:
        if failure.errno != errno.EOPNOTSUPP:
            raise
        punch(fd)  # tmpfs has no other way


def copy(fd):
    source = os.open("source", os.O_RDONLY)
    os.copy_file_range(source, fd, 100, 0, 0)


def change_group(_):
    os.chown("file", -1, OTHER_GROUP)


def change_owner(_):
    os.chown("file", OTHER, -1)


WAYS = (write, write_nothing, write_direct, splice, cut, lengthen, open_empty, allocate, allocate_beyond, punch, zero,
        copy, change_group, change_owner)  # fmt: skip


def make(mode):
    fd = os.open("file", os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    os.write(fd, b"x" * (4 * PAGE))
    os.close(fd)
    os.chown("file", OWNER, GROUP)
    os.chmod("file", mode)


def change(way, user, group, groups):
    """In a process of its own; returns what is said of it."""
    ends = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "done"
        try:
            os.setgroups(groups)
            os.setresgid(group, group, group)
            os.setresuid(user, user, user)
            way(os.open("file", os.O_RDWR))
        except OSError as failure:
            said = errno.errorcode[failure.errno]
        os.write(ends[1], said.encode())
        os._exit(0)
    os.waitpid(pid, 0)
    said = os.read(ends[0], 100).decode()
    for end in ends:
        os.close(end)
    return said


def main():
    os.chdir(sys.argv[1])
    os.chmod(".", 0o777)
    with open("source", "wb") as file:
        file.write(b"y" * PAGE)
    os.chmod("source", 0o644)
    for way in WAYS:
        for name, user, group, groups in CALLERS:
            for mode in MODES:
                make(mode)
                said = change(way, user, group, groups)
                left = stat.S_IMODE(os.stat("file").st_mode)
                print(f"{way.__name__} {name} {mode:o} {left:o} {said}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
