#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: what one door takes the other one can live with: owners, times, modes, names, targets, sizes
and device numbers. Method: values at and beyond each limit go in through the socket, by `set` and by
all that makes something. Each is refused, or root can use the result on the mount in every way. The
same values go in through the mount, and are looked at through the socket.
values.py ADDRESS MOUNT"""

import errno
import os
import stat
import sys

import lapis_wire as wire

NOBODY = 0xFFFFFFFF
S_MAX = (2**63 - 1) // 10**9 - 1
NS_MAX, NS_MIN = S_MAX * 10**9 + 999_999_999, -S_MAX * 10**9
TIMES = [0, 1, -1, 999_999_999, -(10**9), 10**18 + 999_999_999, NS_MAX, NS_MIN]
WRONG_TIMES = [NS_MAX + 1, NS_MIN - 1, 2**63 - 1, -(2**63)]
FILE, DIR, SYMLINK, FIFO, SOCKET, CHARDEV, BLOCKDEV = 1, 2, 3, 4, 5, 6, 7

lapis = wire.Connection(sys.argv[1])
mount = sys.argv[2]
taken = 0
refusals = 0


def refused(request, what, *names):
    """The daemon says no with one of these errors."""
    global refusals
    try:
        answer = lapis(request)
    except wire.Refused as refusal:
        wanted = [getattr(errno, name) for name in names or ("EINVAL",)]
        assert refusal.errno in wanted, f"{what}: {refusal}, not {names}"
        refusals += 1
        return
    raise AssertionError(f"{what}: taken: {answer}")


def took(request, what):
    global taken
    try:
        answer = lapis(request)
    except wire.Refused as refusal:
        raise AssertionError(f"{what}: refused: {refusal}") from refusal
    taken += 1
    return answer


def usable(key, what):
    """Root can do on the mount what one does: look, change owner, mode and times, open, remove."""
    path = os.path.join(os.fsencode(mount), key.encode("utf-8"))
    try:
        seen = os.lstat(path)
        os.chown(path, 1, 1, follow_symlinks=False)
        os.utime(path, ns=(5, 5), follow_symlinks=False)
        if stat.S_ISREG(seen.st_mode):
            os.chmod(path, 0o600)
            with open(path, "r+b") as file:
                file.write(b"new")
        elif stat.S_ISDIR(seen.st_mode):
            os.mkdir(path + b"/inner")
            os.rmdir(path + b"/inner")
        elif stat.S_ISLNK(seen.st_mode):
            os.readlink(path)
        (os.rmdir if stat.S_ISDIR(seen.st_mode) else os.unlink)(path)
    except OSError as error:
        raise AssertionError(f"{what}: on the mount: {error}") from error
    return seen


def owners():
    for key in ("", "v/dir", "v/file"):
        for fields in ({"uid": NOBODY}, {"gid": NOBODY}, {"uid": NOBODY, "gid": NOBODY}):
            refused(wire.set_attrs(key, **fields), f"set {fields} of {key!r}")
            # By number as well, and in one message with what may be set.
            ino = lapis(wire.stat(key)).ino
            refused(wire.set_attrs(ino, mode=0o700, **fields), f"set {fields} of inode {ino}")
        assert (os.stat(os.path.join(mount, key)).st_mode & 0o7777) != 0o700, "half of it was set"
    for number, uid in enumerate((0, 1, 65534, 2**31, NOBODY - 1)):
        key = f"v/owner{number}"
        took(wire.put(key, b"x", uid=uid, gid=uid), f"put of {uid}")
        assert usable(key, f"uid {uid}").st_uid == uid
        took(wire.make(key, DIR, uid=uid, gid=uid), f"make of {uid}")
        took(wire.set_attrs(key, uid=uid, gid=uid), f"set to {uid}")
        usable(key, f"directory of {uid}")
    # Who does not say whose it is to be is himself its owner.
    took(wire.put("v/own", b"x", uid=NOBODY, gid=NOBODY), "put")
    assert usable("v/own", "put").st_uid == os.getuid()


def times():
    for ns in TIMES:
        for name in ("atime_ns", "mtime_ns", "ctime_ns", "btime_ns"):
            took(wire.put("v/t", b"x"), "put")
            took(wire.set_attrs("v/t", **{name: ns}), f"{name} {ns}")
            seen = usable("v/t", f"{name} {ns}")
            if name != "btime_ns":
                assert getattr(seen, f"st_{name}") == ns, f"{name} {ns}: {seen}"
        took(wire.put("v/t", b"x", mtime_ns=ns), f"put with {ns}")
        assert usable("v/t", f"put with {ns}").st_mtime_ns == ns or ns == 0
    for ns in WRONG_TIMES:
        for key in ("", "v/dir", "v/file"):
            for name in ("atime_ns", "mtime_ns", "ctime_ns", "btime_ns"):
                refused(wire.set_attrs(key, **{name: ns}), f"{name} {ns} of {key!r}")
        refused(wire.put("v/t", b"x", mtime_ns=ns), f"put with {ns}")
        ino = lapis(wire.upload("v/t")).ino
        refused(wire.commit(ino, "v/t", mtime_ns=ns), f"commit with {ns}")
        lapis(wire.abort(ino))
        assert not os.path.exists(os.path.join(mount, "v/t"))


def modes():
    for mode in (0, 0o777, 0o7777, 0o4000):
        took(wire.make("v/m", DIR, mode=mode), f"mode {mode:o}")
        usable("v/m", f"mode {mode:o}")
        took(wire.put("v/m", b"", mode=mode), f"put with mode {mode:o}")
        took(wire.set_attrs("v/m", mode=mode), f"mode {mode:o}")
        assert stat.S_IMODE(usable("v/m", f"mode {mode:o}").st_mode) == mode
    for mode in (0o10000, 0o100644, 0o40755, 0xFFFE):
        refused(wire.put("v/m", b"", mode=mode), f"put with mode {mode:o}")
        refused(wire.make("v/m", FILE, mode=mode), f"make with mode {mode:o}")
        refused(wire.set_attrs("v/file", mode=mode), f"mode {mode:o}")


def kinds():
    for type, target, rdev in ((FIFO, "", 0), (SOCKET, "", 0), (CHARDEV, "", 0x103),
                               (BLOCKDEV, "", 0xFFFFFFFF), (CHARDEV, "", 0xFFF00000),
                               (SYMLINK, "x" * 4095, 0), (SYMLINK, "\x01", 0)):  # fmt: skip
        what = f"type {type} {rdev:x}"
        took(wire.make("v/k", type, target=target, rdev=rdev), what)
        seen = usable("v/k", what)
        want = os.makedev((rdev >> 8) & 0xFFF, (rdev & 0xFF) | ((rdev >> 12) & 0xFFF00))
        assert seen.st_rdev == want, f"{what}: {seen.st_rdev:x}"
    for type, target, rdev in ((0, "", 0), (8, "", 0), (255, "", 0), (FILE, "", 1), (DIR, "", 1),
                               (FIFO, "", 5), (SYMLINK, "", 0), (FILE, "x", 0),
                               (SYMLINK, "a\0b", 0), (SYMLINK, "x", 7)):  # fmt: skip
        refused(wire.make("v/k", type, target=target, rdev=rdev), f"{type} {target!r} {rdev}")
    refused(wire.make("v/k", SYMLINK, target="x" * 4096), "target", "ENAMETOOLONG", "EINVAL", "E2BIG")


def names():
    parent = lapis(wire.stat("v")).ino
    for name in ("n" * 255, "\u00e4" * 127, "-", "...", ".hidden", "\x01\n", " ", "\\"):
        took(wire.make((parent, name), FILE), f"name {name!r}")
        usable("v/" + name, f"name {name!r}")
        took(wire.put("v/" + name, b"x"), f"put of {name!r}")
        usable("v/" + name, f"put of {name!r}")
    for name in ("", ".", "..", "a/b", "/", "a\0", "\0", "n" * 256):
        errors = ("EINVAL", "ENAMETOOLONG")
        refused(wire.make((parent, name), FILE), f"name {name!r}", *errors)
        refused(wire.link("v/file", (parent, name)), f"link {name!r}", *errors)
        refused(wire.rename("v/file", (parent, name)), f"rename {name!r}", *errors)
        if name not in ("", "a/b"):
            refused(wire.put("v/" + name, b"x"), f"put of {name!r}", *errors, "EISDIR")
            refused(wire.move("v/file", "v/" + name), f"move to {name!r}", *errors, "EISDIR", "EEXIST")
            refused(wire.copy("v/file", "v/" + name), f"copy to {name!r}", *errors, "EISDIR")


def sizes():
    largest = 16 << 40
    took(wire.put("v/s", b""), "put")
    took(wire.truncate("v/s", largest), "the largest size")
    assert usable("v/s", "the largest size").st_size == largest
    for size in (largest + 1, 2**63 - 1, 2**63, 2**64 - 1):
        refused(wire.truncate("v/file", size), f"size {size}", "EFBIG", "EINVAL")
        refused(wire.write("v/file", b"x", offset=size), f"write at {size}", "EFBIG", "EINVAL")
        refused(wire.prealloc("v/file", size, 1), f"space at {size}", "EFBIG", "EINVAL")


def from_the_mount():
    """What the kernel lets in, the socket shows as it is or as the nearest that there is."""
    path = os.path.join(mount, "v/other")
    for uid in (0, 65534, NOBODY - 1):
        with open(path, "wb"):
            os.chown(path, uid, uid)
        assert (lapis(wire.stat("v/other")).uid, lapis(wire.stat("v/other")).gid) == (uid, uid)
        took(wire.set_attrs("v/other", uid=uid, gid=uid), "the same again")
    for ns in [*TIMES, 2**63 - 1, -(2**63), 10**20, -(10**19)]:
        os.utime(path, ns=(ns, ns))
        seen = lapis(wire.stat("v/other"))
        nearest = max(NS_MIN, min(ns, NS_MAX))
        assert abs(seen.mtime_ns - nearest) < 10**9, f"{ns}: {seen.mtime_ns}"
        took(wire.set_attrs("v/other", mtime_ns=seen.mtime_ns, atime_ns=seen.atime_ns), f"{ns} again")
    os.unlink(path)
    for rdev in (os.makedev(4095, 1048575), os.makedev(1, 3)):
        os.mknod(path, stat.S_IFCHR | 0o600, rdev)
        assert os.stat(path).st_rdev == rdev
        shown = lapis(wire.stat("v/other")).rdev
        os.unlink(path)
        took(wire.make("v/other", CHARDEV, rdev=shown), f"device {rdev:x} again")
        assert usable("v/other", f"device {rdev:x}").st_rdev == rdev


took(wire.make("v", DIR), "v")
took(wire.make("v/dir", DIR), "v/dir")
took(wire.put("v/file", b"data"), "v/file")
for part in (owners, times, modes, kinds, names, sizes, from_the_mount):
    part()
assert os.stat(mount).st_uid == 0 and os.stat(os.path.join(mount, "v/file")).st_size == 4
print(f"{taken} values taken, {refusals} refused")
