# SPDX-License-Identifier: Apache-2.0
"""mkdir, rmdir, reading directories; names and paths at their limits."""

import errno
import os
import stat

import posix_call as call
from posix_call import Directory, getdents
from posix_rig import (
    as_user, case, check, exists, fails, get, long_case, mode_of, opened, put, refused, same,
)

MANY = 20_000


@case
def mkdir_attributes():
    os.umask(0o027)
    os.mkdir("d", 0o777)
    found = os.stat("d")
    check(stat.S_ISDIR(found.st_mode), "it is a directory")
    same(mode_of("d"), 0o750, "the mode")
    check(found.st_nlink in (1, 2), "links of an empty directory")


@case
def mkdir_sticky_and_special_bits():
    os.umask(0)
    os.mkdir("d", 0o1777)
    same(mode_of("d"), 0o1777, "the mode")
    os.mkdir("e", 0o6755)
    same(mode_of("e") & 0o777, 0o755, "the mode without the special bits")


@case
def mkdir_errors():
    put("f")
    os.mkdir("d")
    os.symlink("nowhere", "l")
    fails(errno.EEXIST, os.mkdir, "d")
    fails(errno.EEXIST, os.mkdir, "f")
    fails(errno.EEXIST, os.mkdir, "l")
    fails(errno.EEXIST, os.mkdir, ".")
    fails(errno.EEXIST, os.mkdir, "d/..")
    fails(errno.ENOENT, os.mkdir, "missing/d")
    fails(errno.ENOTDIR, os.mkdir, "f/d")
    fails(errno.ENOENT, os.mkdir, "")
    refused(errno.EACCES, os.mkdir, "new")


@case
def mkdir_with_slash():
    os.mkdir("d/")
    check(exists("d"), "it is there")
    os.rmdir("d/")


@case
def link_counts():
    before = os.stat(".").st_nlink
    os.mkdir("a")
    os.mkdir("b")
    if before == 1:
        return
    same(os.stat(".").st_nlink, before + 2, "links after two mkdirs")
    put("f")
    same(os.stat(".").st_nlink, before + 2, "a file does not count")
    os.rmdir("a")
    same(os.stat(".").st_nlink, before + 1, "links after a rmdir")


@case
def rmdir_errors():
    os.makedirs("d/sub")
    put("f")
    os.symlink("d", "l")
    fails((errno.ENOTEMPTY, errno.EEXIST), os.rmdir, "d")
    fails(errno.ENOTDIR, os.rmdir, "f")
    fails(errno.ENOTDIR, os.rmdir, "l")
    fails(errno.ENOENT, os.rmdir, "missing")
    fails(errno.EINVAL, os.rmdir, "d/.")
    fails((errno.ENOTEMPTY, errno.EBUSY), os.rmdir, "d/sub/..")
    refused(errno.EACCES, os.rmdir, "d/sub")


@case
def rmdir_while_open():
    os.mkdir("d")
    with opened("d", os.O_RDONLY) as fd:
        os.rmdir("d")
        same(os.fstat(fd).st_nlink, 0, "links")
        same(os.listdir(fd), [], "names")
        fails(errno.ENOENT, os.open, "f", os.O_CREAT | os.O_RDWR, dir_fd=fd)
        fails(errno.ENOENT, os.mkdir, "sub", dir_fd=fd)
        fails(errno.ENOENT, os.symlink, "t", "l", dir_fd=fd)
        os.mkdir("d")
        put("d/f")
        same(os.listdir(fd), [], "names in the removed one, when there is a new one")


@case
def rmdir_of_current_directory():
    os.mkdir("d")
    os.chdir("d")
    os.rmdir("../d")
    fails(errno.ENOENT, os.getcwd)
    fails(errno.ENOENT, os.mkdir, "x")
    fails(errno.ENOENT, os.open, "f", os.O_CREAT | os.O_RDWR)
    same(os.listdir("."), [], "names")


@case
def rmdir_after_the_last_name_went():
    os.mkdir("d")
    for number in range(100):
        put(f"d/f{number}")
    for number in range(100):
        fails(errno.ENOTEMPTY, os.rmdir, "d")
        os.unlink(f"d/f{number}")
    os.rmdir("d")


@case
def dot_entries():
    os.mkdir("d")
    with Directory("d") as directory:
        found = {}
        while entry := directory.read():
            found[entry[0]] = entry
    same(set(found), {b".", b".."}, "names")
    same(found[b"."][1], os.stat("d").st_ino, "the inode of .")
    same(found[b".."][1], os.stat(".").st_ino, "the inode of ..")
    same((found[b"."][2], found[b".."][2]), (4, 4), "the types")


@case
def entry_types_and_inodes():
    put("file")
    os.mkdir("dir")
    os.symlink("t", "link")
    os.mkfifo("fifo")
    os.mknod("char", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    os.mknod("block", stat.S_IFBLK | 0o600, os.makedev(7, 0))
    os.mknod("socket", stat.S_IFSOCK | 0o600)
    expected = {b"file": 8, b"dir": 4, b"link": 10, b"fifo": 1, b"char": 2, b"block": 6, b"socket": 12}
    with Directory(".") as directory:
        while entry := directory.read():
            name, ino, kind = entry
            if name in (b".", b".."):
                continue
            check(kind in (0, expected.pop(name)), f"the type of {name} ({kind})")
            same(ino, os.lstat(name).st_ino, f"the inode of {name}")
    same(expected, {}, "what was not listed")


@case
def opendir_errors():
    put("f")
    fails(errno.ENOENT, Directory, "missing")
    fails(errno.ENOTDIR, Directory, "f")
    os.mkdir("d", 0o300)
    refused(errno.EACCES, Directory, "d")
    fails(errno.ENOENT, Directory, "")


@case
def getdents_needs_room():
    put("x" * 255)
    with opened(".", os.O_RDONLY) as fd:
        fails(errno.EINVAL, getdents, fd, 8)
    put("f")
    with opened("f", os.O_RDONLY) as fd:
        fails(errno.ENOTDIR, getdents, fd, 4096)


@case
def getdents_in_small_pieces():
    expected = {b"name%d" % number for number in range(100)}
    for name in expected:
        put(name)
    with opened(".", os.O_RDONLY) as fd:
        found = []
        while entries := getdents(fd, 80):
            found += [entry[0] for entry in entries]
    same(len(found), 102, "entries")
    same(set(found) - {b".", b".."}, expected, "names")


@case
def rewind_sees_changes():
    put("a")
    with Directory(".") as directory:
        same(directory.names(), [b"a"], "names")
        put("b")
        os.unlink("a")
        directory.rewind()
        same(directory.names(), [b"b"], "names after rewinddir")
        same(directory.names(), [], "names at the end")


@case
def seek_to_told_positions():
    for number in range(300):
        put(f"f{number}")
    with Directory(".") as directory:
        places = []
        while True:
            place = directory.tell()
            entry = directory.read()
            if not entry:
                break
            places.append((place, entry[0]))
        same(len(places), 302, "entries")
        for place, name in places[::-7]:
            directory.seek(place)
            same(directory.read()[0], name, "the entry at a told position")


@case
def lseek_to_told_positions():
    for number in range(300):
        put(f"f{number}")
    with opened(".", os.O_RDONLY) as fd:
        entries = []
        while part := getdents(fd, 1000):
            entries += part
        for index in (0, 1, 2, 50, 150, 300):
            os.lseek(fd, entries[index][3], os.SEEK_SET)
            following = getdents(fd, 1000)
            same(following[0][0], entries[index + 1][0], f"what follows entry {index}")
        os.lseek(fd, entries[-1][3], os.SEEK_SET)
        same(getdents(fd, 1000), [], "what follows the last")


@case
def positions_survive_removal():
    for number in range(400):
        put(f"f{number}")
    with opened(".", os.O_RDONLY) as fd:
        first = getdents(fd, 2000)
        place = first[-1][3]
        rest = set()
        while part := getdents(fd, 2000):
            rest |= {entry[0] for entry in part}
        for entry in first:
            if entry[0] not in (b".", b".."):
                os.unlink(entry[0])
        os.lseek(fd, place, os.SEEK_SET)
        again = set()
        while part := getdents(fd, 2000):
            again |= {entry[0] for entry in part}
        same(again - {b".", b".."}, rest - {b".", b".."}, "what follows a position")


@long_case
def removing_while_reading():
    for number in range(2000):
        put(f"f{number}")
    seen = []
    with opened(".", os.O_RDONLY) as fd:
        while part := getdents(fd, 4096):
            for name, *_ in part:
                if name not in (b".", b".."):
                    seen.append(name)
                    os.unlink(name)
    same((len(seen), len(set(seen))), (2000, 2000), "names, each once")
    same(os.listdir("."), [], "names left")


@case
def adding_while_reading():
    stay = {b"stay%d" % number for number in range(1000)}
    for name in stay:
        put(name)
    with opened(".", os.O_RDONLY) as fd:
        seen = []
        round_no = 0
        while part := getdents(fd, 2048):
            seen += [entry[0] for entry in part]
            if round_no < 100:
                for number in range(5):
                    put(f"new{round_no}_{number}")
                if round_no > 0:
                    os.unlink(f"new{round_no - 1}_0")
            round_no += 1
    same(len(seen), len(set(seen)), "no name twice")
    check(stay <= set(seen), "each name that was there all the time is found")


@case
def renaming_while_reading():
    stay = {b"stay%d" % number for number in range(500)}
    for name in stay:
        put(name)
    put("move0")
    with opened(".", os.O_RDONLY) as fd:
        seen = []
        moves = 0
        while part := getdents(fd, 1024):
            seen += [entry[0] for entry in part]
            os.rename(f"move{moves}", f"move{moves + 1}")
            moves += 1
            check(moves < 500, "reading comes to an end while a name moves")
    found = [name for name in seen if name in stay]
    same((len(found), set(found)), (500, stay), "each name that stayed, once")


@long_case
def many_entries():
    os.mkdir("d")
    with opened("d", os.O_RDONLY) as fd:
        for number in range(MANY):
            os.close(os.open(f"f{number}", os.O_CREAT | os.O_WRONLY | os.O_EXCL, dir_fd=fd))
        names = os.listdir("d")
        same(len(names), MANY, "names")
        same(len(set(names)), MANY, "different names")
        same(os.stat(f"f{MANY // 2}", dir_fd=fd).st_size, 0, "one of them")
        fails(errno.ENOENT, os.stat, f"f{MANY}", dir_fd=fd)
        fails(errno.ENOTEMPTY, os.rmdir, "d")
        for number in range(MANY):
            os.unlink(f"f{number}", dir_fd=fd)
        same(os.listdir("d"), [], "names at the end")
    os.rmdir("d")


@long_case
def many_directories():
    os.mkdir("d")
    before = os.stat("d").st_nlink
    for number in range(1000):
        os.mkdir(f"d/{number}")
    if before > 1:
        same(os.stat("d").st_nlink, before + 1000, "links")
    for number in range(1000):
        os.rmdir(f"d/{number}")
    same(os.stat("d").st_nlink, before, "links at the end")


@long_case
def same_name_made_and_removed():
    for number in range(300):
        put("f", b"%d" % number)
        same(get("f"), b"%d" % number, "the content")
        os.unlink("f")
        fails(errno.ENOENT, os.stat, "f")
        os.mkdir("f")
        os.rmdir("f")


@case
def seen_by_a_reader_at_once():
    with opened(".", os.O_RDONLY) as fd:
        for number in range(50):
            put(f"f{number}")
            os.lseek(fd, 0, os.SEEK_SET)
            same(len(os.listdir(fd)), number + 1, "names")


# Names and paths


@case
def longest_name():
    for name in ("x" * 255, "ü" * 127 + "x", "€" * 85):
        put(name, b"abc")
        same((os.listdir("."), get(name)), ([name], b"abc"), "name and content")
        os.unlink(name)
        os.mkdir(name)
        os.rmdir(name)


@case
def too_long_name():
    put("f")
    name = "x" * 256
    for function, *args in (
        (os.open, os.O_CREAT | os.O_RDWR),
        (os.open, os.O_RDONLY),
        (os.mkdir,),
        (os.rmdir,),
        (os.unlink,),
        (os.stat,),
        (os.mkfifo,),
        (os.readlink,),
        (os.truncate, 0),
        (os.chmod, 0o600),
    ):
        fails(errno.ENAMETOOLONG, function, name, *args)
    fails(errno.ENAMETOOLONG, os.link, "f", name)
    fails(errno.ENAMETOOLONG, os.symlink, "t", name)
    fails(errno.ENAMETOOLONG, os.stat, name + "/x")


@case
def longest_path():
    here = os.getcwd()
    for _ in range(20):
        os.mkdir("a" * 200)
        os.chdir("a" * 200)
    os.chdir(here)
    deep = "/".join(["a" * 200] * 20)
    name = "f" * (4095 - len(deep) - 1)
    put(f"{deep}/{name}", b"abc")
    same(get(f"{deep}/{name}"), b"abc", "the content at 4095 bytes")
    fails(errno.ENAMETOOLONG, os.stat, f"{deep}/{name}x")
    fails(errno.ENAMETOOLONG, os.stat, "./" * 2048)


@case
def deeper_than_a_path():
    fd = os.open(".", os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 250, dir_fd=fd)
        below = os.open("d" * 250, os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(os.open("f", os.O_CREAT | os.O_RDWR, dir_fd=fd))
    for _ in range(30):
        above = os.open("..", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = above
    same(os.fstat(fd).st_ino, os.stat(".").st_ino, "where all the .. lead")
    os.close(fd)


@long_case
def deep_tree():
    deep = "/".join(["d"] * 200)
    os.makedirs(deep)
    put(f"{deep}/f", b"abc")
    same(get(f"{deep}/f"), b"abc", "the content")
    os.chdir(deep)
    os.unlink("f")
    for _ in range(200):
        same(os.listdir("."), [], "names")
        os.chdir("..")
        os.rmdir("d")
    same(os.listdir("."), [], "names")


@long_case
def thousand_levels():
    top = os.getcwd()
    for level in range(1000):
        os.mkdir("d")
        os.chdir("d")
        if level % 100 == 0:
            put(f"f{level}")
    same(os.listdir("."), [], "names at the bottom")
    for level in reversed(range(1000)):
        if level % 100 == 0:
            os.unlink(f"f{level}")
        os.chdir("..")
        os.rmdir("d")
    same(os.getcwd(), top, "where all the .. lead")
    same(os.listdir("."), [], "names at the end")


@case
def names_that_move_ahead():
    for number in range(200):
        put(f"stay{number}")
    put("a")
    with opened(".", os.O_RDONLY) as fd:
        name = "a"
        found = []
        while part := getdents(fd, 512):
            found += [entry[0] for entry in part]
            for _ in range(3):
                target = name + "z" if len(name) < 200 else "b"
                os.rename(name, target)
                name = target
            check(len(found) < 1000, "reading comes to an end while a name moves")
    stayed = [entry for entry in found if entry.startswith(b"stay")]
    same((len(stayed), len(set(stayed))), (200, 200), "each name that stayed, once")


@case
def odd_names():
    names = {bytes([value]) for value in range(1, 256)} - {b"/", b"."}
    names |= {b"...", b".hidden", b"a b", b"-rf", b"\xff\xfe", b"\xc3\x28", b"line\nbreak", b"%s%n"}
    names |= {"\u00e4".encode(), "a\u0308".encode(), "日本".encode(), b"con", b"Con", b"CON"}
    for name in names:
        with opened(name, os.O_CREAT | os.O_EXCL | os.O_RDWR) as fd:
            os.write(fd, name)
    same(set(os.listdir(b".")), names, "names")
    for name in names:
        same(get(name), name, "the content")
        os.unlink(name)


@case
def upper_and_lower_case_differ():
    put("name", b"lower")
    put("NAME", b"upper")
    same((get("name"), get("NAME")), (b"lower", b"upper"), "the contents")


@case
def dots_and_slashes_in_paths():
    os.makedirs("a/b")
    put("a/b/f", b"abc")
    for path in ("a//b///f", "./a/./b/./f", "a/b/../b/f", "a/../a/b/f", f"{os.getcwd()}/a/b/f"):
        same(get(path), b"abc", path)
    fails(errno.ENOENT, os.stat, "a/missing/../b")


@case
def search_permission():
    os.mkdir("d", 0o700)
    put("d/f")
    for function in (os.stat, os.unlink, os.readlink, os.rmdir):
        refused(errno.EACCES, function, "d/f")
    os.chmod("d", 0o711)
    as_user(os.stat, "d/f")
    refused(errno.EACCES, os.listdir, "d")
    os.chmod("d", 0o744)
    same(as_user(os.listdir, "d"), ["f"], "names, without search permission")
    refused(errno.EACCES, os.stat, "d/f")


@case
def directory_size_and_times_exist():
    os.mkdir("d")
    found = call.statx("d")
    check(found.size >= 0 and found.mtime[0] > 0, "size and time")
    put("d/f")
    check(os.stat("d").st_mtime_ns >= found.mtime[0] * 10**9, "the time went on")


@case
def current_directory():
    os.makedirs("a/b")
    top = os.getcwd()
    os.chdir("a/b")
    same(os.getcwd(), f"{top}/a/b", "getcwd")
    os.chdir("..")
    same(os.getcwd(), f"{top}/a", "getcwd")
    with opened("b", os.O_RDONLY) as fd:
        os.fchdir(fd)
    same(os.getcwd(), f"{top}/a/b", "getcwd")
    put("f")
    fails(errno.ENOTDIR, os.chdir, "f")
    os.mkdir("x", 0o600)
    refused(errno.EACCES, os.chdir, "x")
