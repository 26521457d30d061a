# SPDX-License-Identifier: Apache-2.0
"""rename and renameat2."""

import errno
import os
import stat

import posix_call as call
from posix_call import RENAME_EXCHANGE, RENAME_NOREPLACE, RENAME_WHITEOUT, renameat2
from posix_rig import as_user, case, check, exists, fails, get, get_fd, needs, opened, put, refused, same


@case
def file_to_new_name():
    put("f", b"abc")
    inode = os.stat("f").st_ino
    os.rename("f", "g")
    check(not exists("f"), "the old name is gone")
    same((get("g"), os.stat("g").st_ino), (b"abc", inode), "content and inode")


@case
def file_over_file():
    put("f", b"new")
    put("g", b"old")
    os.rename("f", "g")
    same((get("g"), os.listdir(".")), (b"new", ["g"]), "what is left")


@case
def over_an_open_file():
    put("f", b"new")
    put("g", b"old")
    with opened("g") as fd:
        os.rename("f", "g")
        same(get_fd(fd), b"old", "what the open file reads")
        same(os.fstat(fd).st_nlink, 0, "its links")
        os.write(fd, b"OLD")
        os.fsync(fd)
    same(get("g"), b"new", "the content")


@case
def of_an_open_file():
    put("f", b"abc")
    with opened("f") as fd:
        os.rename("f", "g")
        os.write(fd, b"x")
    same(get("g"), b"xbc", "the content")


@case
def of_an_open_file_keeps_unwritten_data():
    with opened("f", os.O_CREAT | os.O_RDWR) as fd:
        os.write(fd, b"abc" * 10_000)
        os.rename("f", "g")
        same(os.stat("g").st_size, 30_000, "the size by name")
    same(get("g"), b"abc" * 10_000, "the content")


@case
def to_itself():
    put("f", b"abc")
    os.rename("f", "f")
    same(get("f"), b"abc", "the content")
    os.mkdir("d")
    os.rename("d", "d")


@case
def to_another_link_of_the_same():
    put("f", b"abc")
    os.link("f", "g")
    os.rename("f", "g")
    same(sorted(os.listdir(".")), ["f", "g"], "both names stay")
    same(os.stat("f").st_nlink, 2, "links")


@case
def over_one_of_two_links():
    put("f", b"new")
    put("g", b"old")
    os.link("g", "h")
    os.rename("f", "g")
    same((os.stat("h").st_nlink, get("h")), (1, b"old"), "what is left of the old one")


@case
def between_directories():
    os.mkdir("a")
    os.mkdir("b")
    put("a/f", b"abc")
    os.rename("a/f", "b/g")
    same((os.listdir("a"), os.listdir("b"), get("b/g")), ([], ["g"], b"abc"), "names and content")


@case
def directory_moves():
    os.makedirs("a/d/sub")
    os.mkdir("b")
    put("a/d/f", b"abc")
    before = (os.stat("a").st_nlink, os.stat("b").st_nlink)
    os.rename("a/d", "b/e")
    same(get("b/e/f"), b"abc", "what is in it")
    same(os.stat("b/e/..").st_ino, os.stat("b").st_ino, "its parent")
    after = (os.stat("a").st_nlink, os.stat("b").st_nlink)
    if before[0] > 1:
        same(after, (before[0] - 1, before[1] + 1), "the parents' links")


@case
def directory_over_empty_directory():
    os.makedirs("a/sub")
    os.mkdir("b")
    links = os.stat(".").st_nlink
    with opened("b", os.O_RDONLY) as fd:
        os.rename("a", "b")
        same(os.fstat(fd).st_nlink, 0, "links of what was replaced")
        same(os.listdir(fd), [], "names in what was replaced")
    same(os.listdir("b"), ["sub"], "names")
    if links > 1:
        same(os.stat(".").st_nlink, links - 1, "links of the parent")


@case
def directory_over_full_directory():
    os.mkdir("a")
    os.makedirs("b/sub")
    fails((errno.ENOTEMPTY, errno.EEXIST), os.rename, "a", "b")


@case
def directory_over_file():
    os.mkdir("d")
    put("f")
    fails(errno.ENOTDIR, os.rename, "d", "f")


@case
def file_over_directory():
    os.mkdir("d")
    put("f")
    fails(errno.EISDIR, os.rename, "f", "d")


@case
def into_own_child():
    os.makedirs("a/b/c")
    fails(errno.EINVAL, os.rename, "a", "a/x")
    fails(errno.EINVAL, os.rename, "a", "a/b/c/x")
    fails(errno.EINVAL, os.rename, "a", "a/b")


@case
def over_own_parent():
    os.makedirs("a/b/c")
    fails(errno.ENOTEMPTY, os.rename, "a/b", "a")
    put("a/f")
    fails((errno.ENOTEMPTY, errno.EISDIR), os.rename, "a/f", "a")


@case
def of_dot():
    os.mkdir("d")
    fails((errno.EBUSY, errno.EINVAL), os.rename, "d/.", "e")
    fails((errno.EBUSY, errno.EINVAL), os.rename, "d/..", "e")
    fails((errno.EBUSY, errno.EINVAL), os.rename, "d", "d/.")


@case
def missing():
    put("f")
    fails(errno.ENOENT, os.rename, "missing", "g")
    fails(errno.ENOENT, os.rename, "f", "missing/g")
    fails(errno.ENOENT, os.rename, "missing/f", "g")
    fails(errno.ENOENT, os.rename, "f", "")
    fails(errno.ENOENT, os.rename, "", "g")


@case
def through_a_file():
    put("f")
    put("g")
    fails(errno.ENOTDIR, os.rename, "f", "g/h")
    fails(errno.ENOTDIR, os.rename, "g/h", "f")


@case
def with_slashes():
    put("f")
    os.mkdir("d")
    fails(errno.ENOTDIR, os.rename, "f", "g/")
    fails(errno.ENOTDIR, os.rename, "f/", "g")
    os.rename("d", "e/")
    os.rename("e/", "d")
    check(exists("d"), "a directory moves with slashes")


@case
def to_elsewhere():
    put("f")
    fails(errno.EXDEV, os.rename, "f", "/dev/shm/posix_case_rename")


@case
def name_too_long():
    put("f")
    fails(errno.ENAMETOOLONG, os.rename, "f", "x" * 256)
    fails(errno.ENAMETOOLONG, os.rename, "x" * 256, "f")
    os.rename("f", "x" * 255)


@case
def of_symlink():
    put("f", b"abc")
    os.symlink("f", "l")
    os.rename("l", "m")
    same(os.readlink("m"), "f", "the link itself moves")


@case
def over_symlink():
    put("f", b"new")
    put("t", b"target")
    os.symlink("t", "l")
    os.rename("f", "l")
    check(stat.S_ISREG(os.lstat("l").st_mode), "the link is replaced")
    same(get("t"), b"target", "its target is as it was")


@case
def needs_write_permission():
    os.mkdir("a")
    os.mkdir("b", 0o777)
    put("a/f")
    os.chmod("b", 0o777)
    refused(errno.EACCES, os.rename, "a/f", "b/f")
    os.chmod("a", 0o777)
    as_user(os.rename, "a/f", "b/f")


@case
def of_foreign_directory_changes_its_parent():
    os.chmod(".", 0o777)
    os.mkdir("a")
    os.chown("a", 65534, 65534)
    os.mkdir("a/d")
    refused(errno.EACCES, os.rename, "a/d", "d")
    as_user(os.rename, "a/d", "a/e")


@case
def noreplace():
    put("f", b"f")
    put("g", b"g")
    os.mkdir("d")
    fails(errno.EEXIST, renameat2, "f", "g", RENAME_NOREPLACE)
    fails(errno.EEXIST, renameat2, "f", "d", RENAME_NOREPLACE)
    fails(errno.EEXIST, renameat2, "f", "f", RENAME_NOREPLACE)
    renameat2("f", "h", RENAME_NOREPLACE)
    same((get("h"), get("g")), (b"f", b"g"), "the contents")


@case
def exchange_files():
    put("f", b"f")
    put("g", b"g")
    renameat2("f", "g", RENAME_EXCHANGE)
    same((get("f"), get("g")), (b"g", b"f"), "the contents")


@case
def exchange_file_and_directory():
    os.makedirs("a/d/sub")
    os.mkdir("b")
    put("b/f", b"abc")
    before = (os.stat("a").st_nlink, os.stat("b").st_nlink)
    renameat2("a/d", "b/f", RENAME_EXCHANGE)
    same((get("a/d"), os.listdir("b/f")), (b"abc", ["sub"]), "what is where")
    same(os.stat("b/f/..").st_ino, os.stat("b").st_ino, "the directory's parent")
    if before[0] > 1:
        after = (os.stat("a").st_nlink, os.stat("b").st_nlink)
        same(after, (before[0] - 1, before[1] + 1), "the parents' links")


@case
def exchange_errors():
    put("f")
    os.makedirs("a/b")
    fails(errno.ENOENT, renameat2, "f", "missing", RENAME_EXCHANGE)
    fails(errno.ENOENT, renameat2, "missing", "f", RENAME_EXCHANGE)
    fails(errno.EINVAL, renameat2, "a", "a/b", RENAME_EXCHANGE)
    fails(errno.EINVAL, renameat2, "a/b", "a", RENAME_EXCHANGE)
    fails(errno.EINVAL, renameat2, "f", "a", RENAME_EXCHANGE | RENAME_NOREPLACE)
    fails(errno.EINVAL, renameat2, "f", "a", 64)


@case
def exchange_with_full_directories():
    os.makedirs("a/x")
    os.makedirs("b/y")
    renameat2("a", "b", RENAME_EXCHANGE)
    same((os.listdir("a"), os.listdir("b")), (["y"], ["x"]), "what is where")


@case
def exchange_with_itself():
    put("f", b"abc")
    renameat2("f", "f", RENAME_EXCHANGE)
    same(get("f"), b"abc", "the content")


@case
def whiteout():
    put("f", b"abc")
    needs(renameat2, "f", "g", RENAME_WHITEOUT, without=(errno.EINVAL,))
    found = os.lstat("f")
    check(stat.S_ISCHR(found.st_mode), "a whiteout is left")
    same((found.st_rdev, get("g")), (0, b"abc"), "its number, and the content")


@case
def current_directory_moves():
    os.makedirs("a/b")
    os.chdir("a")
    os.rename("../a", "../c")
    check(os.getcwd().endswith("/c"), "getcwd follows")
    os.mkdir("new")
    same(sorted(os.listdir("../c")), ["b", "new"], "names")


@case
def into_removed_directory():
    os.mkdir("d")
    put("f")
    with opened("d", os.O_RDONLY) as fd:
        os.rmdir("d")
        fails(errno.ENOENT, os.rename, "f", "g", dst_dir_fd=fd)
    check(exists("f"), "the file is where it was")


@case
def chain_of_renames():
    put("f0", b"abc")
    for number in range(300):
        os.rename(f"f{number}", f"f{number + 1}")
    same((os.listdir("."), get("f300")), (["f300"], b"abc"), "what is left")


@case
def replaces_by_temporary_name():
    for number in range(100):
        put("f.tmp", b"%d" % number)
        with opened("f.tmp") as fd:
            if number % 10 == 0:
                os.fsync(fd)
        os.rename("f.tmp", "f")
        same(get("f"), b"%d" % number, "the content")
    same(os.listdir("."), ["f"], "names")


@case
def deep_directory_moves():
    deep = "/".join(["d"] * 100)
    os.makedirs("top/" + deep)
    put(f"top/{deep}/f", b"abc")
    os.rename("top", "other")
    same(get(f"other/{deep}/f"), b"abc", "what is deep in it")
    fails(errno.EINVAL, os.rename, "other", f"other/{deep}/x")
    call.renameat2("other/d", "d", 0)
    same(get(f"{deep}/f"), b"abc", "what is deep in it")
