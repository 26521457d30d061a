#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A tree with all that a backup must keep, and lists of trees.

    tree.py make DIR        makes DIR and fills it; needs setfacl, and the rights of root
    tree.py change DIR      changes some of it, as between two backups
    tree.py list [--no-holes] DIR
                            one line for each thing in it, with all there is to know of it but ctime,
                            atime and the number of its inode: two trees are alike if their lists are.
                            A file that has holes says where, unless --no-holes."""

import hashlib
import os
import random
import stat
import subprocess
import sys

BLOCK = 4096
LONG_NAME = "n" * 255
LONG_TARGET = "t/" * 1000
OLD_NS = 946684799_123456789


def put(path, data, mode=0o644):
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, mode)


def sparse(path, pieces, size):
    """A file with data only at these (offset, length)."""
    chance = random.Random(path[-5:])
    with open(path, "wb") as file:
        for offset, length in pieces:
            file.seek(offset)
            file.write(chance.randbytes(length))
        file.truncate(size)


def setfacl(*args):
    subprocess.run(["setfacl", *args], check=True)


def make_files(top, chance):
    sizes = [0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 65536, 1048577, 3000001]
    for number, size in enumerate(sizes):
        put(f"{top}/size{size}", chance.randbytes(size), 0o600 + number)
    os.makedirs(f"{top}/many")
    for number in range(300):
        put(f"{top}/many/file{number}", b"%d\n" % number * number)
    deep = top
    for number in range(30):
        deep += f"/d{number}"
        os.mkdir(deep, 0o700 + number)
        put(f"{deep}/f", b"deep")
    put(f"{top}/{LONG_NAME}", b"long name")
    put(os.fsencode(top) + b"/bytes \n\xff\x01'\"\\ here", b"odd name")
    put(f"{top}/zwölf \N{SNOWMAN}", b"unicode")


def make_sparse(top):
    sparse(f"{top}/sparse", [(0, BLOCK), (1 << 20, 3 * BLOCK), (5 << 20, 100)], 8 << 20)
    sparse(f"{top}/all_hole", [], 3 << 20)
    sparse(f"{top}/hole_first", [((32 << 20) - BLOCK, BLOCK)], 32 << 20)
    sparse(f"{top}/odd_end", [(BLOCK, 5000)], 100_001)


def make_links(top):
    os.mkdir(f"{top}/links")
    put(f"{top}/links/one", b"linked")
    for number in range(5):
        os.link(f"{top}/links/one", f"{top}/links/again{number}")
    os.link(f"{top}/sparse", f"{top}/links/sparse")
    os.symlink("one", f"{top}/links/symbolic")
    os.symlink("nowhere", f"{top}/links/dangling")
    os.symlink(LONG_TARGET, f"{top}/links/long")
    os.link(f"{top}/links/symbolic", f"{top}/links/symbolic2", follow_symlinks=False)
    os.mkfifo(f"{top}/links/fifo", 0o622)
    os.mknod(f"{top}/links/char", stat.S_IFCHR | 0o644, os.makedev(1, 3))
    os.mknod(f"{top}/links/block", stat.S_IFBLK | 0o600, os.makedev(259, 70000))


def make_rights(top):
    os.mkdir(f"{top}/rights")
    for name, mode in (("suid", 0o4755), ("sgid", 0o2755), ("none", 0), ("all", 0o777)):
        put(f"{top}/rights/{name}", b"rights", mode)
        os.chown(f"{top}/rights/{name}", 1000 + mode, 2_000_000_000)
        os.chmod(f"{top}/rights/{name}", mode)
    os.mkdir(f"{top}/rights/dir")
    os.chmod(f"{top}/rights/dir", 0o2775)
    # Without a list: rsync 3.2.7 takes the group's rights from the list of a sticky one, anywhere.
    os.mkdir(f"{top}/rights/sticky")
    os.chmod(f"{top}/rights/sticky", 0o3777)
    os.symlink("x", f"{top}/rights/link")
    os.lchown(f"{top}/rights/link", 5, 6)
    setfacl("-m", "u:1234:rw,g:99:r,m::rx", f"{top}/rights/all")
    setfacl("-m", "u:7:-", f"{top}/rights/none")
    setfacl("-d", "-m", "u:1234:rwx,g:99:rx,o::-", f"{top}/rights/dir")
    setfacl("-m", "u:4:x", f"{top}/rights/dir")
    put(f"{top}/rights/dir/heir", b"inherits")
    os.mkdir(f"{top}/rights/dir/sub")


def make_xattrs(top, chance):
    put(f"{top}/attributes", b"")
    os.setxattr(f"{top}/attributes", "user.empty", b"")
    os.setxattr(f"{top}/attributes", "user.bytes", bytes(range(256)))
    os.setxattr(f"{top}/attributes", "user.large", chance.randbytes(2000))
    os.setxattr(f"{top}/attributes", "trusted.t", b"trusted")
    os.setxattr(f"{top}/attributes", "security.s", b"security")
    capability = bytes.fromhex("0100000200040000000000000000000000000000")
    os.setxattr(f"{top}/size4097", "security.capability", capability)
    os.setxattr(f"{top}/many", "user.of_a_directory", b"yes")


def make_times(top):
    """Last: nothing may change what stands here, and the directories' own are the deepest first."""
    for number, (path, _, names) in enumerate(sorted(os.walk(top), reverse=True)):
        for name in names:
            stamp = OLD_NS + number * 1_000_000_007
            os.utime(os.path.join(path, name), ns=(stamp, stamp), follow_symlinks=False)
        os.utime(path, ns=(OLD_NS, OLD_NS + number))
    os.utime(f"{top}/size0", ns=(0, 4_000_000_000_999_999_999))
    os.utime(f"{top}/size1", ns=(0, -1_000_000_000))


def make(top):
    chance = random.Random(1)
    os.mkdir(top, 0o755)
    make_files(top, chance)
    make_sparse(top)
    make_links(top)
    make_rights(top)
    make_xattrs(top, chance)
    make_times(top)


def change(top):
    """A few of each kind."""
    chance = random.Random(2)
    with open(f"{top}/size3000001", "r+b") as file:
        file.seek(1_234_567)
        file.write(chance.randbytes(5000))
    with open(f"{top}/sparse", "r+b") as file:
        file.seek(6 << 20)
        file.write(chance.randbytes(BLOCK))
    os.truncate(f"{top}/size1048577", 500_000)
    for number in range(0, 300, 7):
        os.unlink(f"{top}/many/file{number}")
    os.rename(f"{top}/links/again0", f"{top}/many/moved")
    os.unlink(f"{top}/links/symbolic")
    os.symlink("size0", f"{top}/links/symbolic")
    setfacl("-m", "u:4321:rwx", f"{top}/rights/all")
    setfacl("-b", f"{top}/rights/none")
    os.setxattr(f"{top}/attributes", "user.large", chance.randbytes(1000))
    os.removexattr(f"{top}/attributes", "user.bytes")
    put(f"{top}/d0/d1/new", b"new")


def pieces(fd, size):
    """Where data is, as a file system of blocks may say it."""
    found = []
    at = 0
    while at < size:
        try:
            start = os.lseek(fd, at, os.SEEK_DATA)
        except OSError:
            break
        at = os.lseek(fd, start, os.SEEK_HOLE)
        found.append(f"{start}-{min(at, size)}")
    return ",".join(found) or "none"


def content(path, info, shows_holes):
    fd = os.open(path, os.O_RDONLY)
    try:
        digest = hashlib.sha256()
        while part := os.read(fd, 1 << 20):
            digest.update(part)
        text = digest.hexdigest()[:20]
        if shows_holes:
            text += " data " + pieces(fd, info.st_size)
        return text
    finally:
        os.close(fd)


def attributes(path):
    names = sorted(os.listxattr(path, follow_symlinks=False))
    return [f"{n}={os.getxattr(path, n, follow_symlinks=False).hex()}" for n in names]


def describe(path, shown, groups, shows_holes):
    info = os.lstat(path)
    parts = [ascii(shown), f"{info.st_mode:o} {info.st_uid}:{info.st_gid} {info.st_mtime_ns}"]
    if not stat.S_ISDIR(info.st_mode):
        first = groups.setdefault(info.st_ino, shown)
        parts.append(f"{info.st_nlink} links, first {ascii(first)}, {info.st_size} bytes")
    if stat.S_ISREG(info.st_mode):
        parts.append(content(path, info, shows_holes))
    elif stat.S_ISLNK(info.st_mode):
        parts.append(ascii(os.readlink(path)))
    elif stat.S_ISCHR(info.st_mode) or stat.S_ISBLK(info.st_mode):
        parts.append(f"device {os.major(info.st_rdev)}:{os.minor(info.st_rdev)}")
    return " | ".join(parts + attributes(path))


def list_tree(top, shows_holes):
    top = os.fsencode(top)
    names = [b"."]
    for path, dirs, files in os.walk(top):
        names += [os.path.relpath(os.path.join(path, name), top) for name in dirs + files]
    groups = {}
    for name in sorted(names):
        print(describe(os.path.join(top, name), name, groups, shows_holes))


def main():
    args = sys.argv[1:]
    shows_holes = "--no-holes" not in args
    args = [arg for arg in args if arg != "--no-holes"]
    command, top = args if len(args) == 2 else ("", "")
    if command == "make":
        make(top)
    elif command == "change":
        change(top)
    elif command == "list":
        list_tree(top, shows_holes)
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
