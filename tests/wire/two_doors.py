#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Changes through a socket, and a mount that sees them at once; and the reverse (rule M2).

two_doors.py ADDRESS DIR [SECONDS | nothing]. First one thing after the other: the mount looks, so that its kernel
remembers; the socket changes; the mount looks again, and must see it. Then both at once: writers
that count what was acknowledged, and readers at the other door that must never see less than that: a
few hundred changes of each, or as many as there are in so many seconds. With `nothing` the mount is one
whose kernel is to believe nothing: then what it has of data is looked at.
"""

import errno
import json
import mmap
import os
import sys
import threading
import time

import lapis_wire as wire

ROUNDS = 300
address, top = sys.argv[1], sys.argv[2]
BELIEVES_NOTHING = sys.argv[3:] == ["nothing"]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 and not BELIEVES_NOTHING else 0
# From this kernel on it maps what it reads without its cache.
READS_DIRECTLY = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2])) >= (6, 6)
failures = []


def check(is_true, what):
    if not is_true:
        failures.append(what)


def eventually(is_true, what):
    """What the kernel is told when it has been answered."""
    for _ in range(200):
        if is_true():
            return
        time.sleep(0.01)
    check(False, what)


def path_of(key):
    return os.path.join(top, key)


def exists(key):
    try:
        os.stat(path_of(key))
        return True
    except FileNotFoundError:
        return False


def content(key):
    with open(path_of(key), "rb") as file:
        return file.read()


def requests(lapis, *names):
    ops = json.loads(lapis(wire.stats()))["mount"]["ops"]
    return sum(ops[name]["count"] for name in names if name in ops)


def remembers(lapis):
    """What was looked at is not asked for again: names, names that are not there, data."""
    lapis(wire.put("bucket/kept", b"k" * 10000))
    exists("bucket/kept"), exists("bucket/none"), content("bucket/kept"), content("bucket/kept")
    before = requests(lapis, "lookup", "getattr", "statx", "read")
    for _ in range(100):
        exists("bucket/kept"), exists("bucket/none"), content("bucket/kept")
    count = requests(lapis, "lookup", "getattr", "statx", "read") - before
    check(count < 20, f"100 looks at what was seen before made {count} requests")


def names(lapis):
    check(not exists("bucket/a"), "a name that was never there")
    lapis(wire.put("bucket/a", b"first"))
    check(content("bucket/a") == b"first", "a put of what was known to be absent")
    lapis(wire.put("bucket/a", b"second, and longer"))
    check(content("bucket/a") == b"second, and longer", "a put over what was read")
    check(not exists("bucket/b"), "the other name")
    lapis(wire.move("bucket/a", "bucket/b"))
    check(not exists("bucket/a") and content("bucket/b") == b"second, and longer", "a move")
    lapis(wire.put("bucket/a", b"third"))
    check(content("bucket/a") == b"third", "a put after the move")
    lapis(wire.rename("bucket/a", "bucket/b", "exchange"))
    check(content("bucket/b") == b"third", "an exchange")
    lapis(wire.copy("bucket/b", "bucket/c"))
    check(content("bucket/c") == b"third", "a copy")
    lapis(wire.link("bucket/c", "bucket/d"))
    check(os.stat(path_of("bucket/c")).st_nlink == 2, "a second name")
    lapis(wire.delete("bucket/d"))
    check(not exists("bucket/d"), "a delete")
    check(os.stat(path_of("bucket/c")).st_nlink == 1, "a name less")
    with open(path_of("bucket/c"), "rb") as file:
        lapis(wire.delete("bucket/c"))
        check(os.fstat(file.fileno()).st_nlink == 0, "no name left of an open file")
        check(file.read() == b"third", "what is open is read to its end")


def directories(lapis):
    check(not exists("bucket/x/y/z"), "a deep name")
    lapis(wire.put("bucket/x/y/z", b"deep"))
    check(content("bucket/x/y/z") == b"deep", "a put that makes directories")
    old = os.stat(path_of("bucket/x/y"))
    check(os.listdir(path_of("bucket/x/y")) == ["z"], "what is in it")
    lapis(wire.put("bucket/x/y/w", b"beside"))
    new = os.stat(path_of("bucket/x/y"))
    check(new.st_mtime_ns > old.st_mtime_ns and new.st_size > old.st_size, "its times and size")
    check(sorted(os.listdir(path_of("bucket/x/y"))) == ["w", "z"], "what is in it now")
    lapis(wire.delete("bucket/x/y/w"))
    lapis(wire.delete("bucket/x/y/z"))
    check(not exists("bucket/x"), "directories that went with what was in them")
    os.mkdir(path_of("plain"))
    before = os.stat(path_of("plain")).st_nlink
    lapis(wire.make("plain/sub", wire.DIRECTORY))
    check(os.stat(path_of("plain")).st_nlink == before + 1, "a directory's links")
    check(os.listdir(path_of("plain/sub")) == [], "a new directory")
    lapis(wire.put("plain/sub/file", b"moves along"))
    check(content("plain/sub/file") == b"moves along", "a put into it")
    lapis(wire.rename("plain/sub", "plain/other"))
    check(not exists("plain/sub/file"), "the old path of a directory that was renamed")
    check(content("plain/other/file") == b"moves along", "its new path")
    lapis(wire.delete("plain/other/file"))
    lapis(wire.remove("plain/other", is_dir=True))
    check(not exists("plain/other"), "a directory that was removed")
    check(os.stat(path_of("plain")).st_nlink == before, "its links again")


def attributes(lapis):
    lapis(wire.put("bucket/f", b"content"))
    check(os.stat(path_of("bucket/f")).st_mode & 0o7777 == 0o644, "the mode of a put")
    lapis(wire.set_attrs("bucket/f", mode=0o600, mtime_ns=5_000_000_007))
    now = os.stat(path_of("bucket/f"))
    check(now.st_mode & 0o7777 == 0o600 and now.st_mtime_ns == 5_000_000_007, "mode and time")
    lapis(wire.xattr_set("bucket/f", "user.a", b"one"))
    check(os.getxattr(path_of("bucket/f"), "user.a") == b"one", "an xattr")
    lapis(wire.xattr_set("bucket/f", "user.a", b"two"))
    check(os.getxattr(path_of("bucket/f"), "user.a") == b"two", "an xattr again")
    # What one door takes the other gives back.
    os.setxattr(path_of("bucket/f"), "user.a", b"x" * 65536)
    check(lapis(wire.xattr_get("bucket/f", "user.a")) == b"x" * 65536, "the longest xattr")
    lapis(wire.xattr_set("bucket/f", "user.a", b"y" * 65536))
    check(os.getxattr(path_of("bucket/f"), "user.a") == b"y" * 65536, "the longest xattr back")
    # Flags hold at both doors, whichever sets them.
    lapis(wire.set_attrs("bucket/f", flags=wire.ATTR_FLAG["immutable"]))
    for change in (lambda: os.unlink(path_of("bucket/f")), lambda: open(path_of("bucket/f"), "ab")):
        try:
            change()
            check(False, "a change of what is immutable")
        except PermissionError as error:
            check(error.errno == errno.EPERM, f"a change of what is immutable: {error}")
    lapis(wire.set_attrs("bucket/f", flags=0))
    # An access list decides who may read: the kernel remembers it, and asks nobody.
    acl = lambda mask: bytes.fromhex(
        "02000000"
        "01000600ffffffff"
        "02000400e8030000"
        "04000000ffffffff"
        f"1000{mask:02x}00ffffffff"
        "20000000ffffffff"
    )
    os.chmod(top, 0o755)
    lapis(wire.set_attrs("bucket/f", mode=0o640))
    for mask in (4, 0, 4):
        lapis(wire.xattr_set("bucket/f", "system.posix_acl_access", acl(mask)))
        child = os.fork()
        if child == 0:
            os.chdir(top)
            os.setgroups([])
            os.setgid(1000)
            os.setuid(1000)
            try:
                os.close(os.open("bucket/f", os.O_RDONLY))
                os._exit(4)
            except PermissionError:
                os._exit(0)
        got = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        check(got == mask, f"an access list of {mask}: {got}")
        check(os.stat(path_of("bucket/f")).st_mode & 0o777 == 0o600 | mask << 3, f"the mode of {mask}")
    # Nor does it ask for the list that a mode changes.
    lapis(wire.set_attrs("bucket/f", mode=0o620))
    check(os.getxattr(path_of("bucket/f"), "system.posix_acl_access") == acl(2), "the list of a mode")
    lapis(wire.xattr_remove("bucket/f", "system.posix_acl_access"))
    lapis(wire.set_attrs("bucket/f", mode=0o640))


def data(lapis):
    lapis(wire.put("bucket/g", b"a" * 20000))
    with open(path_of("bucket/g"), "rb", buffering=0) as file:
        check(file.read() == b"a" * 20000, "what was put")
        lapis(wire.write("bucket/g", b"b" * 100, offset=8000))
        wanted = b"a" * 8000 + b"b" * 100 + b"a" * 11900
        check(os.pread(file.fileno(), 30000, 0) == wanted, "what was written in between")
        lapis(wire.write("bucket/g", b"c" * 3000, append=True))
        wanted += b"c" * 3000
        check(os.fstat(file.fileno()).st_size == 23000, "the size after what was appended")
        check(os.pread(file.fileno(), 30000, 0) == wanted, "what was appended")
        # Who appends by a descriptor that is open: the kernel has not asked for the size since.
        with open(path_of("bucket/g"), "ab", buffering=0) as end:
            lapis(wire.write("bucket/g", b"d" * 3000, append=True))
            end.write(b"e" * 5000)
            lapis(wire.truncate("bucket/g", 24000))
            end.write(b"f" * 500)
        wanted += b"d" * 1000 + b"f" * 500
        check(lapis(wire.get("bucket/g")).data == wanted, "what both doors appended, natively")
        eventually(lambda: os.pread(file.fileno(), 30000, 0) == wanted, "what both doors appended")
        lapis(wire.punch("bucket/g", 4096, 4096))
        wanted = wanted[:4096] + bytes(4096) + wanted[8192:]
        check(os.pread(file.fileno(), 30000, 0) == wanted, "a hole")
        lapis(wire.truncate("bucket/g", 5000))
        check(os.pread(file.fileno(), 30000, 0) == wanted[:5000], "the data that is left")
        lapis(wire.truncate("bucket/g", 9000))
        check(os.pread(file.fileno(), 30000, 0) == wanted[:5000] + bytes(4000), "longer again")
        check(content("bucket/g") == wanted[:5000] + bytes(4000), "the same, opened again")


def open_data(lapis):
    """What is read by a descriptor, and through a mapping, that were there before."""
    lapis(wire.put("bucket/m", b"a" * 12288))
    path = path_of("bucket/m")
    with open(path, "rb", buffering=0) as file, mmap.mmap(file.fileno(), 12288, prot=mmap.PROT_READ) as memory:
        check(os.pread(file.fileno(), 20000, 0) == memory[:] == b"a" * 12288, "what was put")
        lapis(wire.write("bucket/m", b"b" * 100, offset=4096))
        check(memory[4090:4200] == b"a" * 6 + b"b" * 100 + b"a" * 4, "a mapping of what was written")
        check(os.pread(file.fileno(), 2, 4095) == b"ab", "what was written, after a mapping")
        # A look at the times does not show this one.
        before = os.fstat(file.fileno()).st_mtime_ns
        lapis(wire.write("bucket/m", b"c" * 100, offset=4096))
        lapis(wire.set_attrs("bucket/m", mtime_ns=before))
        check(os.pread(file.fileno(), 2, 4095) == b"ac", "what was written as if long ago")
        check(memory[4095:4097] == b"ac", "a mapping of what was written as if long ago")
        check(content("bucket/m")[4095:4097] == b"ac", "what was written as if long ago, opened")
        with open(path, "r+b", buffering=0) as writer, mmap.mmap(writer.fileno(), 12288) as shared:
            shared[0:5] = b"first"
            shared.flush()
            check(lapis(wire.get("bucket/m", length=5)).data == b"first", "a mapping that was synced")
            check(os.pread(file.fileno(), 5, 0) == b"first", "a mapping that was synced, by another")
            os.pwrite(writer.fileno(), b"later", 0)
            check(shared[0:5] == memory[0:5] == b"later", "a mapping of what was written beside it")
            lapis(wire.write("bucket/m", b"other", offset=0))
            check(shared[0:5] == memory[0:5] == b"other", "a mapping that can be written to")
        lapis(wire.put("bucket/m", b"new"))
        check(os.pread(file.fileno(), 5, 0) == memory[0:5] == b"other", "what was replaced")
        check(content("bucket/m") == b"new", "what was put over it")


def append_race():
    """Who reads at the end, by a descriptor that was open before, finds all that was acknowledged,
    whatever else is asked of the file meanwhile."""
    with wire.Connection(address) as lapis:
        lapis(wire.put("race/end", b""))
    path, race = path_of("race/end"), Race()
    opened = os.open(path, os.O_RDONLY)

    def append_end(lapis, _):
        lapis(wire.write("race/end", b"x", append=True))

    def look(_):
        return len(os.pread(opened, 1 << 20, 0)) - 1

    def disturb(act):
        while not race.is_done:
            act()

    threads = [threading.Thread(target=race.write, args=(append_end,))]
    threads += [threading.Thread(target=race.read, args=(look, "an end")) for _ in range(2)]
    for act in (lambda: os.chmod(path, 0o644), lambda: os.close(os.open(path, os.O_RDONLY))):
        threads.append(threading.Thread(target=disturb, args=(act,)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(opened)
    print(f"an end: {race.acknowledged + 1} changes, {race.looks} looks")


# --- Both at once ------------------------------------------------------------------------------


class Race:
    """A writer that counts, and a reader beside it, each with a connection of its own, which one of
    them uses."""

    until = time.monotonic()

    def __init__(self):
        self.acknowledged = -1
        self.is_done = False
        self.looks = 0
        self.began = time.monotonic()

    def write(self, change):
        count = 0
        try:
            with wire.Connection(address) as lapis:
                while count < ROUNDS or time.monotonic() < Race.until or self.is_unseen():
                    change(lapis, count)
                    self.acknowledged = count
                    count += 1
        except Exception as error:
            failures.append(f"{change.__name__}: {error!r}")
        self.is_done = True

    def is_unseen(self):
        """Nobody has looked yet, and there is time for it."""
        return self.looks == 0 and time.monotonic() < self.began + 30

    def read(self, look, what):
        try:
            with wire.Connection(address) as lapis:
                while not self.is_done:
                    least = self.acknowledged
                    got = look(lapis)
                    self.looks += 1
                    if got < least:
                        failures.append(f"{what}: {got} was seen after {least} had been acknowledged")
                        return
        except Exception as error:
            failures.append(f"{what}: {error!r}")


def replace(lapis, count):
    lapis(wire.put("race/replaced", b"%8d" % count))


def overwrite(lapis, count):
    lapis(wire.write("race/overwritten", b"%8d" % count))


def append(lapis, count):
    lapis(wire.write("race/appended", b"x", append=True))


def come_and_go(lapis, count):
    """There with an even count, else gone; so who sees it must find the count of its content."""
    if count % 2 == 0:
        lapis(wire.put("race/comes", b"%8d" % count))
    else:
        lapis(wire.delete("race/comes"))


def turn(lapis, count):
    lapis(wire.set_attrs("race/mode", mtime_ns=1_000_000_000 + count))


def fill(lapis, count):
    lapis(wire.put(f"race/full/{count}", b""))


def listed(name):
    return [entry for entry in os.listdir(path_of(name)) if not entry.startswith(".mount")]


# The reverse: what a program has closed, or synced, is seen through a socket.


def write_anew(_, count):
    with open(path_of("race/mine/written"), "r+b") as file:
        file.write(b"%8d" % count)


def replace_file(_, count):
    with open(path_of("race/mine/.new"), "wb") as file:
        file.write(b"%8d" % count)
    os.rename(path_of("race/mine/.new"), path_of("race/mine/renamed"))


def append_synced(_, count):
    with open(path_of("race/mine/appended"), "ab", buffering=0) as file:
        file.write(b"x")
        os.fsync(file.fileno())


def set_time(_, count):
    os.utime(path_of("race/mine/time"), ns=(0, 1_000_000_000 + count))


def make_directory(_, count):
    """The size of a directory is that of its names."""
    os.mkdir(path_of(f"race/mine/made/{count:08}"))


def mapped():
    """Changes a file through a mapping, and counts what was synced."""
    fd = os.open(path_of("race/mine/mapped"), os.O_RDWR)
    memory = mmap.mmap(fd, 4096)
    os.close(fd)

    def change(_, count):
        memory[100:108] = b"%8d" % count
        memory.flush()
        time.sleep(0.001)  # flush() keeps Python's lock: the others have their turn here

    return change


def reverse_pairs():
    def number(key, offset=0):
        return lambda lapis: int(lapis(wire.get(key, offset=offset, length=8)).data)

    def attrs(key):
        return lambda lapis: lapis(wire.stat(key))

    size, mtime, made = (attrs(f"race/mine/{name}") for name in ("appended", "time", "made"))
    return [
        (Race(), write_anew, number("race/mine/written"), "a file that was closed"),
        (Race(), replace_file, number("race/mine/renamed"), "a file that was renamed"),
        (Race(), append_synced, lambda lapis: size(lapis).size_bytes - 1, "a file that was synced"),
        (Race(), set_time, lambda lapis: mtime(lapis).mtime_ns - 1_000_000_000, "a time"),
        (Race(), make_directory, lambda lapis: made(lapis).size_bytes // 8 - 1, "directories"),
        (Race(), mapped(), number("race/mine/mapped", 100), "a mapping that was synced"),
    ]


def churn(name, pairs):
    one, other = path_of(f"{name}/.mount"), path_of(f"{name}/.mount too")
    while not all(race.is_done for race, *_ in pairs):
        with open(one, "w") as file:
            file.write("content")
        os.rename(one, other)
        os.unlink(other)


def races():
    with wire.Connection(address) as lapis:
        for name in ("replaced", "overwritten"):
            lapis(wire.put(f"race/{name}", b"%8d" % 0))
        for name in ("appended", "mode", "full/first"):
            lapis(wire.put(f"race/{name}", b""))
        turn(lapis, 0)
        for name in ("written", "renamed"):
            lapis(wire.put(f"race/mine/{name}", b"%8d" % -1))
        lapis(wire.put("race/mine/mapped", b" " * 100 + b"%8d" % -1 + b" " * 3988))
        for name in ("appended", "time"):
            lapis(wire.put(f"race/mine/{name}", b""))
        lapis(wire.make("race/mine/made", wire.DIRECTORY, spread=True))
        lapis(wire.set_attrs("race/mine/time", mtime_ns=1_000_000_000))
    opened = os.open(path_of("race/overwritten"), os.O_RDONLY)
    coming = Race()

    def seen_coming(_):
        """A count that is as new as what is seen."""
        before = coming.acknowledged
        try:
            return int(content("race/comes"))
        except FileNotFoundError:
            # Gone is right after each odd count, and before the first; a put that was acknowledged
            # before, and no delete begun since, is not to be missed.
            after = coming.acknowledged
            return -2 if before % 2 == 0 and after == before and not coming.deleting else before

    coming.deleting = False

    def come(lapis, count):
        coming.deleting = count % 2 == 1
        come_and_go(lapis, count)

    pairs = [
        (Race(), replace, lambda _: int(content("race/replaced")), "a replaced file"),
        (Race(), overwrite, lambda _: int(os.pread(opened, 8, 0)), "an overwritten file"),
        (Race(), append, lambda _: os.stat(path_of("race/appended")).st_size - 1, "a size"),
        (Race(), turn, lambda _: os.stat(path_of("race/mode")).st_mtime_ns - 1_000_000_000, "a time"),
        (Race(), fill, lambda _: len(listed("race/full")) - 2, "a directory"),
        (coming, come, seen_coming, "a name that comes and goes"),
    ] + reverse_pairs()
    threads = []
    Race.until = time.monotonic() + SECONDS
    for race, change, look, what in pairs:
        threads.append(threading.Thread(target=race.write, args=(change,)))
        threads.append(threading.Thread(target=race.read, args=(look, what)))
    # The mount changes the same directories, and holds their locks for it (rule M3).
    churners = [threading.Thread(target=churn, args=(name, pairs)) for name in ("race", "race/full")]
    threads += churners
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(opened)
    for race, _, _, what in pairs:
        check(race.looks > 0, f"{what}: nobody has looked")
        print(f"{what}: {race.acknowledged + 1} changes, {race.looks} looks")


def first_looks():
    """Answers about files that the kernel does not know yet, on their way to it beside a change: it
    must not believe those that are older than what was acknowledged. Nor those to a chmod, which it
    takes as they are."""
    current = [None]

    def look():
        while current[0] != "":
            try:
                os.stat(current[0] or top)
            except FileNotFoundError:
                pass

    def change():
        while current[0] != "":
            try:
                os.chmod(current[0] or top, 0o755)
            except FileNotFoundError:
                pass

    lookers = [threading.Thread(target=target) for target in (look, look, change)]
    for looker in lookers:
        looker.start()
    with wire.Connection(address) as lapis:
        for count in range(ROUNDS):
            key = f"race/first/{count}"
            lapis(wire.put(key, b""))
            current[0] = path_of(key)
            lapis(wire.set_attrs(key, mtime_ns=1_000_000_000 + count))
            got = os.stat(path_of(key)).st_mtime_ns - 1_000_000_000
            check(got == count, f"a time that was set while the file was first seen: {got}")
            current[0] = path_of(f"race/first/{count + 1}")
            time.sleep(0)
    current[0] = ""
    for looker in lookers:
        looker.join()


def slow(lapis):
    """What takes long through either door is shown, with the door's name."""
    lapis(wire.config_set("slow-ms=0"))
    with open(path_of("bucket/slow"), "wb", buffering=0) as file:
        node = os.fstat(file.fileno()).st_ino
        # One that comes so late that all is durable by itself takes no time, and has had no work.
        for _ in range(20):
            file.write(b"slow")
            os.fsync(file.fileno())
    lapis(wire.put("bucket/slower", b"slower"))
    shown = [((item["door"], item["operation"], item["object"]), item) for item in json.loads(lapis(wire.slow()))]
    lapis(wire.config_set("slow-ms=1000"))
    check(("native", "put", "bucket/slower") in [name for name, _ in shown], "a put that was slow")
    syncs = [item for name, item in shown if name == ("mount", "fsync", f"inode {node}")]
    check(all(sync["result"] == "ok" for sync in syncs), f"an fsync that failed: {syncs}")
    check(
        any(step["state"] == "WORK" for sync in syncs for step in sync["timeline"]),
        f"no fsync that was slow: {syncs or shown}",
    )


with wire.Connection(address) as door:
    if BELIEVES_NOTHING:
        door(wire.delete("bucket/f"))
    else:
        door(wire.make("bucket", wire.DIRECTORY, spread=True))
    known = (attributes, data, open_data)
    for part in known if BELIEVES_NOTHING else (slow, remembers, names, directories, *known):
        part(door)
if not BELIEVES_NOTHING:
    races()
    first_looks()
elif READS_DIRECTLY:
    append_race()
print("\n".join(failures[:10]))
sys.exit(len(failures) > 0)
