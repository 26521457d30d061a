# SPDX-License-Identifier: Apache-2.0
"""mount_attrs.py DIR: what the kernel believes of a file is what the file system says of it.

Each kind of change is made to a file, or directory, whose attributes the kernel has just been told.
Then it is asked for one attribute, in the way of stat(2), which lets it answer from memory. The
answer must be the one that it gives when it has to ask (AT_STATX_FORCE_SYNC). It is root's, and
lets user 1001 do what takes privileges away. A line for each attribute that is wrong; exit status 1
if there was one.
"""

import ctypes
import errno
import mmap
import os
import shutil
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)
AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_STATX_FORCE_SYNC = 0x2000
BASIC = 0x7FF
OTHER = 1001
PAGE = 4096
OLD = (1_000_000_000, 1_000_000_000)  # long ago, so that the next read counts (relatime)

# Name, bit of the mask, where it is in struct statx, how it is packed.
FIELDS = (
    ("mode", 0x2, 28, "<H"),
    ("nlink", 0x4, 16, "<I"),
    ("uid", 0x8, 20, "<I"),
    ("gid", 0x10, 24, "<I"),
    ("atime", 0x20, 64, "<qI"),
    ("mtime", 0x40, 112, "<qI"),
    ("ctime", 0x80, 96, "<qI"),
    ("size", 0x200, 40, "<Q"),
    ("blocks", 0x400, 48, "<Q"),
)


def statx(path, mask, flags=0):
    buf = ctypes.create_string_buffer(256)
    if LIBC.statx(AT_FDCWD, os.fsencode(path), flags | AT_SYMLINK_NOFOLLOW, mask, buf) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return buf.raw


def look(path, field):
    """What is believed, and then what is so; None: it is not there any more."""
    _, mask, at, fmt = field
    # Nothing else may ask for it before: not even whether it is there.
    try:
        believed = struct.unpack_from(fmt, statx(path, mask), at)
    except FileNotFoundError:
        return None, None
    return believed, struct.unpack_from(fmt, statx(path, BASIC, AT_STATX_FORCE_SYNC), at)


class Place:
    """A file with content and privileges, beside which there is what the changes need."""

    def __init__(self, name):
        self.dir = name
        os.mkdir(self.dir)
        os.chmod(self.dir, 0o777)
        self.file = os.path.join(self.dir, "file")
        self.beside = os.path.join(self.dir, "beside")
        self.link = os.path.join(self.dir, "link")
        self.sub = os.path.join(self.dir, "sub")
        self.more = os.path.join(self.sub, "more")
        with open(self.file, "wb") as file:
            file.write(b"x" * (96 * 1024))
        with open(self.beside, "wb") as file:
            file.write(b"y" * (32 * 1024))
        os.symlink("file", self.link)
        os.mkdir(self.sub)
        os.link(self.beside, self.more)
        os.setxattr(self.file, "user.is", b"there")
        os.chmod(self.file, 0o6777)
        for path in (self.beside, self.file, self.dir, self.sub):
            os.utime(path, OLD)
        os.utime(self.link, OLD, follow_symlinks=False)

    def remember(self):
        for path in self.paths():
            statx(path, BASIC, AT_STATX_FORCE_SYNC)

    def paths(self):
        return (self.dir, self.file, self.beside, self.link, self.sub, self.more)

    def remember(self):
        for path in self.paths():
            statx(path, BASIC, AT_STATX_FORCE_SYNC)


def opened(path, flags):
    class Closing:
        def __enter__(self):
            self.fd = os.open(path, flags)
            return self.fd

        def __exit__(self, *_):
            os.close(self.fd)

    return Closing()


def fallocate(path, mode, offset, length):
    with opened(path, os.O_RDWR) as fd:
        args = (ctypes.c_int(mode), ctypes.c_long(offset), ctypes.c_long(length))
        if LIBC.fallocate(fd, *args) < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)


def buffered(place):
    with opened(place.file, os.O_WRONLY) as fd:
        os.pwrite(fd, b"evil", 5)


def appended(place):
    with opened(place.file, os.O_WRONLY | os.O_APPEND) as fd:
        os.write(fd, b"evil")


def direct(place):
    page = mmap.mmap(-1, PAGE)
    with opened(place.file, os.O_WRONLY | os.O_DIRECT) as fd:
        os.pwritev(fd, [page], PAGE)


def spliced(place):
    ends = os.pipe()
    os.write(ends[1], b"evil")
    with opened(place.file, os.O_WRONLY) as fd:
        os.splice(ends[0], fd, 4, offset_dst=0)
    for end in ends:
        os.close(end)


def cut(place):
    os.truncate(place.file, 100)


def cut_open(place):
    with opened(place.file, os.O_RDWR) as fd:
        os.ftruncate(fd, 300)


def opened_empty(place):
    with opened(place.file, os.O_WRONLY | os.O_TRUNC):
        pass


def copied(place):
    with opened(place.beside, os.O_RDONLY) as source, opened(place.file, os.O_WRONLY) as target:
        os.copy_file_range(source, target, 5000, 100, 3)


def cloned(place):
    with opened(place.beside, os.O_RDONLY) as source, opened(place.file, os.O_WRONLY) as target:
        os.copy_file_range(source, target, 4 * PAGE, 0, 0)


def mapped(place):
    with opened(place.file, os.O_RDWR) as fd, mmap.mmap(fd, PAGE) as view:
        view[0:4] = b"evil"
        view.flush()


def read(place):
    with opened(place.file, os.O_RDONLY) as fd:
        os.pread(fd, 100, 0)


def read_direct(place):
    page = mmap.mmap(-1, PAGE)
    with opened(place.file, os.O_RDONLY | os.O_DIRECT) as fd:
        os.preadv(fd, [page], 0)


def sent(place):
    ends = os.pipe()
    with opened(place.file, os.O_RDONLY) as fd:
        os.splice(fd, ends[1], 4, offset_src=0)
    for end in ends:
        os.close(end)


def own_list(place):
    # u::rw- u:1000:rwx g::r-- m::rw- o::---
    entries = ((1, 6, 0xFFFFFFFF), (2, 7, 1000), (4, 4, 0xFFFFFFFF))
    entries += ((16, 6, 0xFFFFFFFF), (32, 0, 0xFFFFFFFF))
    value = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(place.file, "system.posix_acl_access", value)


def failed_range(place):
    """Steps that were made stand: there is no space for all of it."""
    free = os.statvfs(place.dir)
    try:
        fallocate(place.file, 0, 0, (free.f_bavail + 100_000) * free.f_frsize)
    except OSError as err:
        if err.errno != errno.ENOSPC:
            raise
        return
    raise AssertionError("there was space for more than there is")


def made_and_removed(place):
    path = os.path.join(place.dir, "new")
    os.mkdir(path)
    place.remember()
    os.rmdir(path)


# Name, what is done, whether it is somebody else's doing.
CHANGES = (
    ("write", buffered, True),
    ("append", appended, True),
    ("direct write", direct, True),
    ("splice", spliced, True),
    ("truncate", cut, True),
    ("ftruncate", cut_open, True),
    ("O_TRUNC", opened_empty, True),
    ("fallocate", lambda place: fallocate(place.file, 0, 0, 192 * 1024), True),
    ("fallocate, size kept", lambda place: fallocate(place.file, 1, 0, 192 * 1024), True),
    ("punch", lambda place: fallocate(place.file, 3, PAGE, 8 * PAGE), True),
    ("zero", lambda place: fallocate(place.file, 16, PAGE, 8 * PAGE), True),
    ("fallocate without space", failed_range, True),
    ("copy", copied, True),
    ("copy by reference", cloned, True),
    ("mapping", mapped, True),
    ("read", read, False),
    ("direct read", read_direct, False),
    ("splice out", sent, False),
    ("read of a directory", lambda place: os.listdir(place.dir), False),
    ("read of a link", lambda place: os.readlink(place.link), False),
    ("chown", lambda place: os.chown(place.file, OTHER, OTHER), False),
    ("chown to nobody else", lambda place: os.chown(place.file, -1, -1), False),
    ("chmod", lambda place: os.chmod(place.file, 0o640), False),
    ("utime", lambda place: os.utime(place.file, OLD), False),
    ("setxattr", lambda place: os.setxattr(place.file, "user.x", b"y"), False),
    ("removexattr", lambda place: os.removexattr(place.file, "user.is"), False),
    ("access list", own_list, False),
    ("link", lambda place: os.link(place.file, os.path.join(place.sub, "new")), False),
    ("unlink", lambda place: os.unlink(place.beside), False),
    ("rename", lambda place: os.rename(place.file, os.path.join(place.sub, "new")), False),
    ("rename over", lambda place: os.rename(place.file, place.more), False),
    ("rename of a directory", lambda place: os.rename(place.sub, place.sub + "2"), False),
    ("create", lambda place: open(os.path.join(place.dir, "new"), "w").close(), False),
    ("mkdir", lambda place: os.mkdir(os.path.join(place.dir, "new")), False),
    ("mknod", lambda place: os.mkfifo(os.path.join(place.dir, "new")), False),
    ("symlink", lambda place: os.symlink("to", os.path.join(place.dir, "new")), False),
    ("mkdir and rmdir", made_and_removed, False),
)


def change(places, what, is_others):
    """By another user, if it is his doing."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            if is_others:
                os.setgroups([])
                os.setresgid(OTHER, OTHER, OTHER)
                os.setresuid(OTHER, OTHER, OTHER)
            for place in places:
                what(place)
            status = 0
        except (OSError, AssertionError) as err:
            print(f"FAIL: {err}", flush=True)
        os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


def try_one(name, what, is_others):
    """How many attributes were believed wrongly. Each is asked for in a place of its own, for asking
    for one may bring the others."""
    places = [Place(field[0]) for field in FIELDS]
    wrong = 0
    for place in places:
        place.remember()
    if not change(places, what, is_others):
        print(f"FAIL: {name}: it cannot be done")
        return 1
    for place, field in zip(places, FIELDS):
        for path in place.paths():
            believed, is_so = look(path, field)
            if believed != is_so:
                where = f"{os.path.basename(path)}: {field[0]}"
                print(f"FAIL: {name}: {where} is believed to be {believed}, and is {is_so}")
                wrong += 1
        shutil.rmtree(place.dir)
    return wrong


def main():
    # The other user may not come here by the whole path.
    os.chdir(sys.argv[1])
    wrong = sum(try_one(*one) for one in CHANGES)
    print(f"{len(CHANGES)} kinds of changes, {wrong} attributes believed wrongly")
    raise SystemExit(1 if wrong else 0)


main()
