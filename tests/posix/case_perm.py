# SPDX-License-Identifier: Apache-2.0
"""Permissions: chmod, chown, set-id bits, sticky directories, what other users may."""

import errno
import os
import stat

import posix_call as call
from posix_rig import (
    OTHER, USER, Child, as_user, case, check, exists, fails, get, mode_of, opened, put, refused, same,
)


def owned(name, uid=USER, gid=USER, mode=0o644, data=b"abc"):
    put(name, data)
    os.chown(name, uid, gid)
    os.chmod(name, mode)


@case
def chmod_all_bits():
    put("f")
    for mode in (0, 0o7777, 0o4755, 0o2755, 0o1644, 0o644):
        os.chmod("f", mode)
        same(mode_of("f"), mode, "the mode")
    with opened("f") as fd:
        os.fchmod(fd, 0o600)
    same(mode_of("f"), 0o600, "after fchmod")


@case
def chmod_of_directory():
    os.mkdir("d")
    for mode in (0o700, 0o3777, 0):
        os.chmod("d", mode)
        same(mode_of("d"), mode, "the mode")


@case
def chmod_errors():
    put("f")
    fails(errno.ENOENT, os.chmod, "missing", 0o600)
    fails(errno.ENOTDIR, os.chmod, "f/g", 0o600)
    refused(errno.EPERM, os.chmod, "f", 0o777)
    same(mode_of("f"), 0o644, "the mode")


@case
def chmod_by_the_owner():
    owned("f")
    as_user(os.chmod, "f", 0o4711)
    same(mode_of("f"), 0o4711, "the mode")
    refused(errno.EPERM, os.chmod, "f", 0o600, uid=OTHER, gid=USER)


@case
def chmod_through_symlink():
    put("f")
    os.symlink("f", "l")
    os.chmod("l", 0o600)
    same(mode_of("f"), 0o600, "the target's mode")


@case
def chmod_setgid_of_foreign_group():
    owned("f", gid=OTHER)
    as_user(os.chmod, "f", 0o2755)
    same(mode_of("f"), 0o755, "the setgid bit is not set")
    as_user(os.chmod, "f", 0o2755, groups=(OTHER,))
    same(mode_of("f"), 0o2755, "by a member of the group")


@case
def chown_by_root():
    put("f")
    os.chown("f", 1000, 2000)
    same((os.stat("f").st_uid, os.stat("f").st_gid), (1000, 2000), "the owner")
    os.chown("f", -1, 3000)
    same((os.stat("f").st_uid, os.stat("f").st_gid), (1000, 3000), "the group alone")
    os.chown("f", 4_000_000_000, -1)
    same((os.stat("f").st_uid, os.stat("f").st_gid), (4_000_000_000, 3000), "the user alone")


@case
def chown_by_the_owner():
    owned("f")
    refused(errno.EPERM, os.chown, "f", OTHER, -1)
    refused(errno.EPERM, os.chown, "f", -1, OTHER)
    as_user(os.chown, "f", -1, OTHER, groups=(OTHER,))
    same(os.stat("f").st_gid, OTHER, "the group")
    as_user(os.chown, "f", USER, USER)


@case
def chown_by_others():
    owned("f")
    refused(errno.EPERM, os.chown, "f", OTHER, OTHER, uid=OTHER, gid=OTHER)
    refused(errno.EPERM, os.chown, "f", -1, OTHER, uid=OTHER, gid=OTHER)


@case
def chown_errors():
    put("f")
    fails(errno.ENOENT, os.chown, "missing", 1, 1)
    fails(errno.ENOTDIR, os.chown, "f/g", 1, 1)


@case
def chown_through_symlink():
    put("f")
    os.symlink("f", "l")
    os.chown("l", 5, 6)
    same((os.stat("f").st_uid, os.lstat("l").st_uid), (5, 0), "target and link")


@case
def chown_clears_set_ids_as_root():
    put("f")
    os.chmod("f", 0o6755)
    os.chown("f", 5, 5)
    same(mode_of("f"), 0o755, "the mode")


@case
def chown_clears_set_ids_as_owner():
    owned("f", mode=0o6755)
    as_user(os.chown, "f", -1, USER)
    same(mode_of("f"), 0o755, "the mode")


@case
def chown_keeps_setgid_without_group_execution():
    put("f")
    os.chmod("f", 0o2644)
    os.chown("f", 5, 5)
    same(mode_of("f"), 0o2644, "the mode")


@case
def chown_of_directory_keeps_set_ids():
    os.mkdir("d")
    os.chmod("d", 0o6755)
    os.chown("d", 5, 5)
    same(mode_of("d"), 0o6755, "the mode")


def write_to(name):
    with opened(name, os.O_WRONLY) as fd:
        os.write(fd, b"x")


@case
def write_clears_set_ids():
    owned("f", mode=0o6777)
    as_user(write_to, "f", uid=OTHER, gid=OTHER)
    same(mode_of("f"), 0o777, "the mode")


@case
def write_by_owner_clears_set_ids():
    owned("f", mode=0o6755)
    as_user(write_to, "f")
    same(mode_of("f"), 0o755, "the mode")


@case
def write_by_root_keeps_set_ids():
    put("f")
    os.chmod("f", 0o6755)
    write_to("f")
    same(mode_of("f"), 0o6755, "the mode")


@case
def second_write_clears_set_ids_again():
    owned("f", mode=0o6777)

    def write():
        with opened("f", os.O_WRONLY) as fd:
            os.write(fd, b"x")
            os.chmod("f", 0o6777)
            os.write(fd, b"y")
            return os.fstat(fd).st_mode & 0o7777

    same(as_user(write), 0o777, "the mode")


@case
def truncate_clears_set_ids():
    owned("f", mode=0o6777)
    as_user(os.truncate, "f", 1, uid=OTHER, gid=OTHER)
    same(mode_of("f"), 0o777, "the mode")


@case
def open_with_trunc_clears_set_ids():
    owned("f", mode=0o6777)
    as_user(lambda: os.close(os.open("f", os.O_WRONLY | os.O_TRUNC)), uid=OTHER, gid=OTHER)
    same(mode_of("f"), 0o777, "the mode")


@case
def fallocate_clears_set_ids():
    owned("f", mode=0o6777)

    def allocate():
        with opened("f", os.O_WRONLY) as fd:
            call.fallocate(fd, 0, 0, 10_000)

    as_user(allocate, uid=OTHER, gid=OTHER)
    same(mode_of("f"), 0o777, "the mode")


@case
def copy_range_clears_set_ids():
    put("from", b"abcdef")
    owned("f", mode=0o6777)

    def copy():
        with opened("from", os.O_RDONLY) as source, opened("f", os.O_WRONLY) as target:
            os.copy_file_range(source, target, 6)

    as_user(copy, uid=OTHER, gid=OTHER)
    same(mode_of("f"), 0o777, "the mode")


@case
def write_keeps_setgid_without_group_execution():
    owned("f", mode=0o2666)
    as_user(write_to, "f")
    same(mode_of("f"), 0o2666, "the mode")


@case
def setuid_program_runs_as_its_owner():
    with open("/usr/bin/id", "rb") as program:
        owned("id", data=program.read(), mode=0o4755)
    read, write = os.pipe()

    def run():
        os.dup2(write, 1)
        os.execv("./id", ["id", "-u"])

    pid = os.fork()
    if pid == 0:
        run()
    os.waitpid(pid, 0)
    found = os.read(read, 100).strip()
    point = os.statvfs(".").f_flag
    same(found, b"0" if point & os.ST_NOSUID else str(USER).encode(), "its user")


# Who may what


@case
def owner_group_others():
    owned("f", mode=0o640)
    same(as_user(get, "f"), b"abc", "the owner reads")
    same(as_user(get, "f", uid=OTHER, gid=USER), b"abc", "the group reads")
    same(as_user(get, "f", uid=OTHER, gid=OTHER, groups=(USER,)), b"abc", "another group of the user's reads")
    refused(errno.EACCES, get, "f", uid=OTHER, gid=OTHER)
    refused(errno.EACCES, os.open, "f", os.O_WRONLY, uid=OTHER, gid=USER)


@case
def owner_is_bound_by_the_owner_bits():
    owned("f", mode=0o077)
    refused(errno.EACCES, os.open, "f", os.O_RDONLY)
    owned("g", mode=0o707)
    refused(errno.EACCES, os.open, "g", os.O_RDONLY, uid=OTHER, gid=USER)


@case
def root_passes():
    owned("f", mode=0)
    same(get("f"), b"abc", "root reads")
    write_to("f")
    fails(errno.EACCES, os.execv, "./f", ["f"])


@case
def access_call():
    owned("f", mode=0o640)

    def rights():
        return [os.access("f", how) for how in (os.R_OK, os.W_OK, os.X_OK, os.F_OK)]

    same(as_user(rights), [True, True, False, True], "the owner")
    same(as_user(rights, uid=OTHER, gid=USER), [True, False, False, True], "the group")
    same(as_user(rights, uid=OTHER, gid=OTHER), [False, False, False, True], "others")
    same(rights(), [True, True, False, True], "root")


@case
def create_in_foreign_directory():
    os.mkdir("d", 0o755)
    refused(errno.EACCES, put, "d/f")
    refused(errno.EACCES, os.mkdir, "d/e")
    refused(errno.EACCES, os.mkfifo, "d/p")
    refused(errno.EACCES, os.symlink, "t", "d/l")
    os.chmod("d", 0o733)
    as_user(put, "d/f")
    refused(errno.EACCES, os.listdir, "d")


@case
def directory_without_search():
    os.mkdir("d")
    put("d/f")
    os.chmod("d", 0o766)
    refused(errno.EACCES, put, "d/g")
    refused(errno.EACCES, os.stat, "d/f")
    refused(errno.EACCES, os.unlink, "d/f")


@case
def permissions_count_when_opened():
    owned("f", mode=0o600)
    read, write = os.pipe()

    def hold():
        with opened("f") as fd:
            os.write(write, b"x")
            while mode_of("f"):
                pass
            return os.pread(fd, 10, 0)

    child = Child(hold, ids=(USER, USER, ()))
    os.read(read, 1)
    os.chmod("f", 0)
    same(child.result(), b"abc", "what the open file reads")
    refused(errno.EACCES, os.open, "f", os.O_RDONLY)


@case
def chmod_takes_effect_at_once():
    owned("f", uid=0, gid=0, mode=0o600)
    os.mkdir("d")
    put("d/f")
    for _ in range(5):
        refused(errno.EACCES, get, "f")
        os.chmod("f", 0o644)
        as_user(get, "f")
        os.chmod("f", 0o600)
        os.chmod("d", 0o700)
        refused(errno.EACCES, os.stat, "d/f")
        os.chmod("d", 0o755)
        as_user(os.stat, "d/f")


# Sticky directories


def sticky():
    os.mkdir("s")
    os.chmod("s", 0o1777)
    owned("s/f")


@case
def sticky_unlink():
    sticky()
    refused(errno.EPERM, os.unlink, "s/f", uid=OTHER, gid=OTHER)
    as_user(os.unlink, "s/f")


@case
def sticky_rename():
    sticky()
    owned("s/g", uid=OTHER, gid=OTHER)
    refused(errno.EPERM, os.rename, "s/f", "s/h", uid=OTHER, gid=OTHER)
    refused(errno.EPERM, os.rename, "s/g", "s/f", uid=OTHER, gid=OTHER)
    as_user(os.rename, "s/f", "s/h")


@case
def sticky_exchange():
    sticky()
    owned("s/g", uid=OTHER, gid=OTHER)
    refused(errno.EPERM, call.renameat2, "s/g", "s/f", call.RENAME_EXCHANGE, uid=OTHER, gid=OTHER)


@case
def sticky_directories():
    sticky()
    os.mkdir("s/d")
    refused(errno.EPERM, os.rmdir, "s/d")
    os.chown("s/d", USER, USER)
    as_user(os.rmdir, "s/d")


@case
def sticky_owner_of_the_directory():
    sticky()
    os.chown("s", OTHER, OTHER)
    as_user(os.unlink, "s/f", uid=OTHER, gid=OTHER)


@case
def not_sticky():
    os.mkdir("d")
    os.chmod("d", 0o777)
    owned("d/f")
    as_user(os.unlink, "d/f", uid=OTHER, gid=OTHER)
    check(not exists("d/f"), "it is gone")


# Directories with the setgid bit


def group_directory():
    os.mkdir("g")
    os.chown("g", 0, 4242)
    os.chmod("g", 0o2777)


@case
def setgid_directory_gives_its_group():
    group_directory()
    as_user(put, "g/f")
    as_user(os.mkdir, "g/d")
    as_user(os.symlink, "t", "g/l")
    same([os.lstat(f"g/{n}").st_gid for n in "fdl"], [4242] * 3, "groups")
    check(mode_of("g/d") & stat.S_ISGID, "a new directory has the bit, too")
    check(not mode_of("g/f") & stat.S_ISGID, "a new file has not")


@case
def setgid_directory_and_setgid_file():
    group_directory()

    def make():
        os.umask(0)
        put("g/f", mode=0o2775)

    as_user(make)
    same(mode_of("g/f"), 0o775, "made by no member of the group")
    os.unlink("g/f")
    as_user(make, groups=(4242,))
    same(mode_of("g/f"), 0o2775, "made by a member")


@case
def group_without_the_bit():
    os.mkdir("d")
    os.chown("d", 0, 4242)
    os.chmod("d", 0o777)
    as_user(put, "d/f")
    same(os.stat("d/f").st_gid, USER, "the group")


@case
def tmpfile_in_setgid_directory():
    group_directory()

    def make():
        with opened("g", os.O_TMPFILE | os.O_RDWR) as fd:
            return os.fstat(fd).st_gid

    same(as_user(make), 4242, "the group")
