# SPDX-License-Identifier: Apache-2.0
"""POSIX access lists: in system.posix_acl_access and _default, built here by hand."""

import errno
import os
import struct

import posix_call as call
from posix_rig import OTHER, USER, as_user, case, check, fails, get, mode_of, opened, put, refused, same, tick

ACCESS, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS = {"u": 0x01, "user": 0x02, "g": 0x04, "group": 0x08, "m": 0x10, "o": 0x20}
NAMES = {tag: name for name, tag in TAGS.items()}
NO_ID = 0xFFFFFFFF


def packed(text):
    """"u:7 user:5:4 g:5 m:5 o:0" as the kernel wants it"""
    data = struct.pack("<I", 2)
    for entry in text.split():
        tag, *ids, rights = entry.split(":")
        data += struct.pack("<HHI", TAGS[tag], int(rights), int(ids[0]) if ids else NO_ID)
    return data


def unpacked(data):
    entries = []
    for tag, rights, owner in struct.iter_unpack("<HHI", data[4:]):
        entries.append(f"{NAMES[tag]}:{rights}" if owner == NO_ID else f"{NAMES[tag]}:{owner}:{rights}")
    return " ".join(entries)


def set_acl(name, text, which=ACCESS):
    os.setxattr(name, which, packed(text))


def acl(name, which=ACCESS):
    return unpacked(os.getxattr(name, which))


@case
def none_at_first():
    put("f")
    os.mkdir("d")
    fails(errno.ENODATA, os.getxattr, "f", ACCESS)
    fails(errno.ENODATA, os.getxattr, "d", DEFAULT)
    same(os.listxattr("f"), [], "names")


@case
def reads_back():
    put("f")
    text = f"u:6 user:{OTHER}:4 user:{USER}:6 g:4 group:{OTHER}:7 m:7 o:0"
    set_acl("f", text)
    same(acl("f"), text, "the list")
    check(ACCESS in os.listxattr("f"), "it is in the list of attributes")


@case
def named_in_any_order():
    put("f")
    for text in (
        f"u:6 user:{OTHER}:4 user:{USER}:6 g:4 m:7 o:0",
        f"u:6 user:{USER}:6 user:{OTHER}:4 g:4 m:7 o:0",
        f"u:6 user:{USER}:4 user:{USER}:6 g:4 group:9:1 group:8:1 group:9:3 m:7 o:0",
    ):
        set_acl("f", text)
        same(acl("f"), text, "the list")


@case
def mode_shows_the_mask():
    put("f")
    set_acl("f", f"u:6 user:{USER}:7 g:4 m:6 o:1")
    same(mode_of("f"), 0o661, "the mode")


@case
def chmod_changes_the_mask():
    put("f")
    set_acl("f", f"u:6 user:{USER}:7 g:5 m:7 o:0")
    os.chmod("f", 0o641)
    same(acl("f"), f"u:6 user:{USER}:7 g:5 m:4 o:1", "the list")
    same(mode_of("f"), 0o641, "the mode")


@case
def minimal_list_becomes_the_mode():
    put("f")
    set_acl("f", "u:7 g:5 o:1")
    same(mode_of("f"), 0o751, "the mode")
    fails(errno.ENODATA, os.getxattr, "f", ACCESS)


@case
def user_entry_grants():
    put("f", b"abc", 0o600)
    refused(errno.EACCES, get, "f")
    set_acl("f", f"u:6 user:{USER}:4 g:0 m:4 o:0")
    same(as_user(get, "f"), b"abc", "what the user reads")
    refused(errno.EACCES, os.open, "f", os.O_WRONLY)
    refused(errno.EACCES, get, "f", uid=OTHER, gid=OTHER)


@case
def user_entry_denies():
    put("f", b"abc", 0o644)
    set_acl("f", f"u:6 user:{USER}:0 g:4 m:4 o:4")
    refused(errno.EACCES, get, "f")
    same(as_user(get, "f", uid=OTHER, gid=OTHER), b"abc", "what another user reads")


@case
def group_entries_grant():
    put("f", b"abc", 0o600)
    set_acl("f", f"u:6 g:0 group:{OTHER}:6 m:6 o:0")
    same(as_user(get, "f", groups=(OTHER,)), b"abc", "what a member reads")
    as_user(put, "f", b"new", groups=(OTHER,))
    refused(errno.EACCES, get, "f")


@case
def group_entry_denies_what_others_may():
    put("f", b"abc", 0o644)
    set_acl("f", f"u:6 g:4 group:{USER}:0 m:4 o:4")
    refused(errno.EACCES, get, "f")


@case
def mask_limits():
    put("f", b"abc", 0o600)
    set_acl("f", f"u:6 user:{USER}:6 g:6 m:4 o:0")
    same(as_user(get, "f"), b"abc", "reading")
    refused(errno.EACCES, os.open, "f", os.O_WRONLY)


@case
def mask_does_not_limit_the_owner():
    put("f", b"abc")
    os.chown("f", USER, USER)
    set_acl("f", f"u:6 user:{OTHER}:6 g:6 m:0 o:0")
    same(as_user(get, "f"), b"abc", "what the owner reads")
    refused(errno.EACCES, get, "f", uid=OTHER, gid=OTHER)


@case
def access_call_goes_by_it():
    put("f", b"abc", 0o600)
    set_acl("f", f"u:6 user:{USER}:5 g:0 m:7 o:0")
    same([as_user(os.access, "f", how) for how in (4, 2, 1)], [True, False, True], "access")


@case
def directory_goes_by_it():
    os.mkdir("d", 0o700)
    put("d/f", b"abc")
    refused(errno.EACCES, os.stat, "d/f")
    set_acl("d", f"u:7 user:{USER}:7 g:0 m:7 o:0")
    as_user(put, "d/g")
    same(as_user(os.listdir, "d") != [], True, "the user lists it")
    refused(errno.EACCES, os.stat, "d/f", uid=OTHER, gid=OTHER)


@case
def takes_effect_at_once():
    put("f", b"abc", 0o600)
    for _ in range(5):
        refused(errno.EACCES, get, "f")
        set_acl("f", f"u:6 user:{USER}:4 g:0 m:4 o:0")
        as_user(get, "f")
        os.removexattr("f", ACCESS)
        os.chmod("f", 0o600)


@case
def removed():
    put("f")
    set_acl("f", f"u:6 user:{USER}:6 g:4 m:6 o:4")
    os.removexattr("f", ACCESS)
    fails(errno.ENODATA, os.getxattr, "f", ACCESS)
    same(mode_of("f"), 0o664, "the mode keeps the mask")
    os.mkdir("d")
    set_acl("d", f"u:7 user:{USER}:6 g:4 m:6 o:4", DEFAULT)
    os.removexattr("d", DEFAULT)
    fails(errno.ENODATA, os.getxattr, "d", DEFAULT)


@case
def removed_where_there_is_none():
    put("f")
    os.mkdir("d")
    os.removexattr("f", ACCESS)
    os.removexattr("d", ACCESS)
    os.removexattr("d", DEFAULT)
    set_acl("d", "u:7 g:5 o:5", DEFAULT)
    os.setxattr("d", DEFAULT, struct.pack("<I", 2))
    fails(errno.ENODATA, os.getxattr, "d", DEFAULT)
    same(mode_of("f"), 0o644, "the mode")


@case
def only_the_owner_sets_it():
    put("f")
    refused(errno.EPERM, set_acl, "f", "u:7 g:7 o:7")
    refused(errno.EPERM, os.removexattr, "f", ACCESS)
    os.chown("f", USER, USER)
    as_user(set_acl, "f", f"u:7 user:{OTHER}:7 g:7 m:7 o:7")
    check(as_user(acl, "f", uid=OTHER, gid=OTHER), "others read it")


@case
def bad_lists():
    put("f")
    for text in (
        "u:7 g:5",
        f"u:7 user:{USER}:7 g:5 o:1",
        "u:7 u:7 g:5 o:1",
        "o:1 g:5 u:7",
        "u:8 g:5 o:1",
        f"u:7 g:5 user:{USER}:7 m:5 o:1",
        f"u:7 g:5 m:5 group:{USER}:7 o:1",
        f"u:7 user:{NO_ID}:7 g:5 m:5 o:1",
    ):
        fails(errno.EINVAL, set_acl, "f", text)
    fails((errno.EINVAL, errno.EOPNOTSUPP), os.setxattr, "f", ACCESS, struct.pack("<I", 1) + packed("u:7 g:5 o:1")[4:])
    fails(errno.EINVAL, os.setxattr, "f", ACCESS, b"xyz")
    same(mode_of("f"), 0o644, "the mode")


@case
def default_only_for_directories():
    put("f")
    os.symlink("f", "l")
    fails(errno.EACCES, set_acl, "f", "u:7 g:5 o:1", DEFAULT)
    fails((errno.EOPNOTSUPP, errno.EPERM), os.setxattr, "l", ACCESS, packed("u:7 g:5 o:1"), follow_symlinks=False)


@case
def default_does_not_change_the_directory():
    os.mkdir("d", 0o700)
    set_acl("d", f"u:7 user:{USER}:7 g:7 m:7 o:7", DEFAULT)
    same(mode_of("d"), 0o700, "the mode")
    refused(errno.EACCES, os.listdir, "d")


@case
def default_is_inherited_by_files():
    os.mkdir("d")
    set_acl("d", f"u:7 user:{USER}:7 g:5 m:7 o:0", DEFAULT)
    put("d/f", mode=0o666)
    same(acl("d/f"), f"u:6 user:{USER}:7 g:5 m:6 o:0", "the file's list")
    same(mode_of("d/f"), 0o660, "its mode")
    fails((errno.ENODATA, errno.EACCES), os.getxattr, "d/f", DEFAULT)


@case
def default_is_inherited_by_directories():
    os.mkdir("d")
    text = f"u:7 user:{USER}:7 g:5 m:7 o:0"
    set_acl("d", text, DEFAULT)
    os.mkdir("d/e", 0o755)
    same(acl("d/e", DEFAULT), text, "its default list")
    same(acl("d/e"), f"u:7 user:{USER}:7 g:5 m:5 o:0", "its list")
    os.makedirs("d/e/x/y")
    same(acl("d/e/x/y", DEFAULT), text, "further down")


@case
def default_takes_the_place_of_umask():
    os.mkdir("d")
    os.umask(0o077)
    set_acl("d", "u:7 g:7 o:7", DEFAULT)
    put("d/f", mode=0o666)
    same(mode_of("d/f"), 0o666, "the mode of a file")
    os.mkdir("d/e", 0o777)
    same(mode_of("d/e"), 0o777, "the mode of a directory")
    put("f", mode=0o666)
    same(mode_of("f"), 0o600, "elsewhere the umask counts")


@case
def default_and_a_small_mode():
    os.mkdir("d")
    set_acl("d", f"u:7 user:{USER}:7 g:7 m:7 o:7", DEFAULT)
    put("d/f", mode=0o400)
    same(mode_of("d/f"), 0o400, "the mode")
    same(acl("d/f"), f"u:4 user:{USER}:7 g:7 m:0 o:0", "the list")


@case
def default_is_inherited_by_other_kinds():
    os.mkdir("d")
    set_acl("d", f"u:7 user:{USER}:6 g:5 m:7 o:0", DEFAULT)
    os.mkfifo("d/p", 0o666)
    same(acl("d/p"), f"u:6 user:{USER}:6 g:5 m:6 o:0", "the fifo's list")
    os.symlink("t", "d/l")
    same(os.lstat("d/l").st_mode & 0o777, 0o777, "the mode of a symlink")


@case
def default_is_inherited_by_tmpfile():
    os.mkdir("d")
    set_acl("d", f"u:7 user:{USER}:6 g:5 m:7 o:0", DEFAULT)
    with opened("d", os.O_TMPFILE | os.O_RDWR, 0o666) as fd:
        call.link_fd(fd, "d/f")
    same(acl("d/f"), f"u:6 user:{USER}:6 g:5 m:6 o:0", "the list")


@case
def default_not_inherited_by_links_and_renames():
    os.mkdir("d")
    set_acl("d", f"u:7 user:{USER}:6 g:5 m:7 o:0", DEFAULT)
    put("f")
    put("g")
    os.rename("f", "d/f")
    os.link("g", "d/g")
    for name in ("d/f", "d/g"):
        fails(errno.ENODATA, os.getxattr, name, ACCESS)
        same(mode_of(name), 0o644, "the mode")


@case
def list_moves_with_the_file():
    put("f")
    text = f"u:6 user:{USER}:6 g:5 m:7 o:0"
    set_acl("f", text)
    os.rename("f", "g")
    os.link("g", "h")
    same((acl("g"), acl("h")), (text, text), "the list")
    os.chown("g", 5, 5)
    same(acl("g"), text, "after chown")


@case
def setgid_is_cleared_by_a_stranger_to_the_group():
    put("f")
    os.chown("f", USER, OTHER)
    os.chmod("f", 0o2755)
    as_user(set_acl, "f", f"u:7 user:{OTHER}:5 g:5 m:5 o:5")
    same(mode_of("f"), 0o755, "the mode")


@case
def many_entries():
    put("f")
    users = " ".join(f"user:{number}:4" for number in range(1000, 1100))
    text = f"u:6 {users} g:4 m:4 o:0"
    set_acl("f", text)
    same(acl("f"), text, "the list")


@case
def survives_eviction():
    put("f")
    text = f"u:6 user:{USER}:6 g:5 m:7 o:0"
    set_acl("f", text)
    with opened("f") as fd:
        os.fsync(fd)
    try:
        with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
            file.write("2\n")
    except OSError:
        pass
    same(acl("f"), text, "the list")


@case
def times_of_a_change():
    put("f")
    before = os.stat("f")
    tick()
    set_acl("f", f"u:6 user:{USER}:6 g:5 m:7 o:0")
    after = os.stat("f")
    check(after.st_ctime_ns > before.st_ctime_ns, "ctime went forward")
    same(after.st_mtime_ns, before.st_mtime_ns, "mtime")
