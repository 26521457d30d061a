# SPDX-License-Identifier: Apache-2.0
"""System calls that Python's library does not have, with its ways: an OSError for an error."""

import ctypes
import fcntl
import mmap
import os
import platform
import struct

libc = ctypes.CDLL(None, use_errno=True)

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_SYMLINK_FOLLOW = 0x400
AT_EMPTY_PATH = 0x1000

RENAME_NOREPLACE, RENAME_EXCHANGE, RENAME_WHITEOUT = 1, 2, 4

FALLOC_KEEP_SIZE, FALLOC_PUNCH_HOLE, FALLOC_COLLAPSE = 1, 2, 8
FALLOC_ZERO_RANGE, FALLOC_INSERT, FALLOC_UNSHARE = 16, 32, 64

UTIME_NOW, UTIME_OMIT = (1 << 30) - 1, (1 << 30) - 2

FICLONE, FICLONERANGE, FIDEDUPERANGE = 0x40049409, 0x4020940D, 0xC0189436
FS_IOC_GETFLAGS, FS_IOC_SETFLAGS = 0x80086601, 0x40086602
FS_IOC_FSGETXATTR, FS_IOC_FSSETXATTR = 0x801C581F, 0x401C5820
FS_IOC_FIEMAP = 0xC020660B
FS_IMMUTABLE, FS_APPEND = 0x10, 0x20

F_OFD_GETLK, F_OFD_SETLK, F_OFD_SETLKW = 36, 37, 38
F_ADD_SEALS, F_SEAL_WRITE = 1033, 8

SYSCALL = {
    "x86_64": {"statx": 332, "renameat2": 316, "getdents64": 217, "openat2": 437},
    "aarch64": {"statx": 291, "renameat2": 276, "getdents64": 61, "openat2": 437},
}[platform.machine()]


def text(path):
    return os.fsencode(path) if path is not None else None


def raise_errno(what):
    number = ctypes.get_errno()
    raise OSError(number, os.strerror(number), what)


def libc_call(name, *args):
    """A function of the C library that returns an int, -1 for an error."""
    ctypes.set_errno(0)
    result = getattr(libc, name)(*args)
    if result == -1:
        raise_errno(name)
    return result


def raw(name, *args):
    libc.syscall.restype = ctypes.c_long
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(SYSCALL[name]), *args)
    if result == -1:
        raise_errno(name)
    return result


def renameat2(old, new, flags):
    cwd = ctypes.c_int(AT_FDCWD)
    return raw("renameat2", cwd, text(old), cwd, text(new), ctypes.c_uint(flags))


def linkat(old_fd, old, new_fd, new, flags):
    return libc_call("linkat", old_fd, text(old), new_fd, text(new), flags)


def link_fd(fd, new):
    """Gives a name to an open file, as O_TMPFILE is used."""
    return linkat(AT_FDCWD, f"/proc/self/fd/{fd}", AT_FDCWD, new, AT_SYMLINK_FOLLOW)


def openat2(path, flags, mode=0, resolve=0):
    how = struct.pack("<QQQ", flags, mode, resolve)
    return raw("openat2", ctypes.c_int(AT_FDCWD), text(path), how, ctypes.c_size_t(len(how)))


def fallocate(fd, mode, offset, length):
    return libc_call("fallocate", fd, mode, ctypes.c_int64(offset), ctypes.c_int64(length))


def syncfs(fd):
    return libc_call("syncfs", fd)


def sync_file_range(fd, offset, length, flags):
    return libc_call(
        "sync_file_range", fd, ctypes.c_int64(offset), ctypes.c_int64(length), ctypes.c_uint(flags)
    )


def utimensat(path, atime, mtime, flags=0, dir_fd=AT_FDCWD):
    """Times are (seconds, nanoseconds); None for both is now."""
    times = struct.pack("<qqqq", *atime, *mtime) if atime is not None else None
    return libc_call("utimensat", dir_fd, text(path), times, flags)


def fchmodat(path, mode):
    return libc_call("fchmodat", AT_FDCWD, text(path), mode, 0)


def name_to_handle(path):
    """(type, bytes) of the file handle, and the mount's id"""
    buffer = ctypes.create_string_buffer(8 + 128)
    struct.pack_into("<Ii", buffer, 0, 128, 0)
    mount = ctypes.c_int()
    libc_call("name_to_handle_at", AT_FDCWD, text(path), buffer, ctypes.byref(mount), 0)
    length, _ = struct.unpack_from("<Ii", buffer, 0)
    return buffer.raw[: 8 + length], mount.value


def open_by_handle(mount_fd, handle, flags):
    buffer = ctypes.create_string_buffer(handle, len(handle))
    return libc_call("open_by_handle_at", mount_fd, buffer, flags)


class Statx:
    """The fields of struct statx that are looked at."""

    def __init__(self, data):
        (self.mask, self.blksize, self.attributes, self.nlink, self.uid, self.gid, self.mode) = (
            struct.unpack_from("<IIQIIIH", data, 0)
        )
        self.ino, self.size, self.blocks, self.attributes_mask = struct.unpack_from("<4Q", data, 32)
        times = [struct.unpack_from("<qI", data, 64 + 16 * at) for at in range(4)]
        self.atime, self.btime, self.ctime, self.mtime = times
        self.rdev_major, self.rdev_minor, self.dev_major, self.dev_minor, self.mount_id = (
            struct.unpack_from("<IIIIQ", data, 128)
        )
        self.dio_mem_align, self.dio_offset_align = struct.unpack_from("<II", data, 152)


STATX_BASIC, STATX_BTIME, STATX_MNT_ID, STATX_DIOALIGN = 0x7FF, 0x800, 0x1000, 0x2000


def statx(path, flags=0, mask=STATX_BASIC | STATX_BTIME, dir_fd=AT_FDCWD):
    buffer = ctypes.create_string_buffer(256)
    raw("statx", ctypes.c_int(dir_fd), text(path), ctypes.c_int(flags), ctypes.c_uint(mask), buffer)
    return Statx(buffer.raw)


def flags_of(fd):
    return struct.unpack("<i", fcntl.ioctl(fd, FS_IOC_GETFLAGS, bytes(8))[:4])[0]


def set_flags(fd, flags):
    fcntl.ioctl(fd, FS_IOC_SETFLAGS, struct.pack("<q", flags))


def clone(to_fd, from_fd):
    fcntl.ioctl(to_fd, FICLONE, from_fd)


def clone_range(to_fd, from_fd, from_offset, length, to_offset):
    packed = struct.pack("<qQQQ", from_fd, from_offset, length, to_offset)
    fcntl.ioctl(to_fd, FICLONERANGE, packed)


def dedupe(from_fd, offset, length, to_fd, to_offset):
    """(bytes shared, status)"""
    packed = struct.pack("<QQHHIqQQiI", offset, length, 1, 0, 0, to_fd, to_offset, 0, 0, 0)
    answer = fcntl.ioctl(from_fd, FIDEDUPERANGE, packed)
    return struct.unpack_from("<Qi", answer, 40)


# Record locks


def lock(fd, kind, start=0, length=0, command=fcntl.F_SETLK, whence=os.SEEK_SET):
    """kind is F_RDLCK, F_WRLCK or F_UNLCK; gives back (kind, start, length, pid) for the GETLKs."""
    packed = struct.pack("<hhxxxxqqixxxx", kind, whence, start, length, 0)
    answer = fcntl.fcntl(fd, command, packed)
    kind, _, start, length, pid = struct.unpack("<hhxxxxqqixxxx", answer)
    return kind, start, length, pid


# Directories, one entry at a time


class Dirent(ctypes.Structure):
    _fields_ = [
        ("ino", ctypes.c_uint64),
        ("off", ctypes.c_int64),
        ("reclen", ctypes.c_uint16),
        ("type", ctypes.c_uint8),
        ("name", ctypes.c_char * 256),
    ]


libc.opendir.restype = ctypes.c_void_p
libc.fdopendir.restype = ctypes.c_void_p
libc.readdir.restype = ctypes.POINTER(Dirent)
libc.readdir.argtypes = [ctypes.c_void_p]
libc.telldir.restype = ctypes.c_long
libc.telldir.argtypes = [ctypes.c_void_p]
libc.seekdir.argtypes = [ctypes.c_void_p, ctypes.c_long]
libc.rewinddir.argtypes = [ctypes.c_void_p]
libc.closedir.argtypes = [ctypes.c_void_p]


class Directory:
    """opendir, readdir and what goes with them"""

    def __init__(self, path):
        ctypes.set_errno(0)
        self.stream = libc.opendir(text(path))
        if not self.stream:
            raise_errno("opendir")

    def read(self):
        """(name, inode number, type), or None at the end"""
        ctypes.set_errno(0)
        entry = libc.readdir(self.stream)
        if not entry:
            if ctypes.get_errno():
                raise_errno("readdir")
            return None
        return entry.contents.name, entry.contents.ino, entry.contents.type

    def names(self):
        """All that follow, without . and .."""
        found = []
        while entry := self.read():
            if entry[0] not in (b".", b".."):
                found.append(entry[0])
        return found

    def tell(self):
        return libc.telldir(self.stream)

    def seek(self, position):
        libc.seekdir(self.stream, position)

    def rewind(self):
        libc.rewinddir(self.stream)

    def close(self):
        libc.closedir(self.stream)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def getdents(fd, length):
    """[(name, inode number, type, position after it)] of one call"""
    buffer = ctypes.create_string_buffer(length)
    filled = raw("getdents64", ctypes.c_int(fd), buffer, ctypes.c_size_t(length))
    entries = []
    at = 0
    while at < filled:
        ino, off, reclen, kind = struct.unpack_from("<QqHB", buffer, at)
        name = buffer.raw[at + 19 : at + reclen].split(b"\0", 1)[0]
        entries.append((name, ino, kind, off))
        at += reclen
    return entries


# Memory for direct I/O


def aligned(data=b"", length=None):
    """A page-aligned buffer that starts with the data."""
    buffer = mmap.mmap(-1, max(length or len(data), 1))
    buffer[: len(data)] = data
    return buffer


def pread_into(fd, length, offset):
    buffer = aligned(length=length)
    got = os.preadv(fd, [memoryview(buffer)[:length]], offset)
    return buffer[:got]


def pwrite_from(fd, data, offset):
    return os.pwritev(fd, [memoryview(aligned(data))[: len(data)]], offset)
