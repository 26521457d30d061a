# SPDX-License-Identifier: Apache-2.0
"""Extended attributes."""

import ctypes
import errno
import os

import posix_call as call
from posix_rig import (
    as_user, case, check, fails, get, long_case, opened, pattern, put, refused, same,
)

NONE = errno.ENODATA


@case
def set_get_list_remove():
    put("f")
    os.setxattr("f", "user.one", b"1")
    os.setxattr("f", "user.two", b"22")
    same((os.getxattr("f", "user.one"), os.getxattr("f", "user.two")), (b"1", b"22"), "values")
    same(sorted(os.listxattr("f")), ["user.one", "user.two"], "names")
    os.removexattr("f", "user.one")
    same(os.listxattr("f"), ["user.two"], "names")
    fails(NONE, os.getxattr, "f", "user.one")


@case
def replaced():
    put("f")
    for value in (b"abc", b"x" * 1000, b"", b"y" * 10):
        os.setxattr("f", "user.a", value)
        same(os.getxattr("f", "user.a"), value, "the value")
    same(os.listxattr("f"), ["user.a"], "names")


@case
def empty_value():
    put("f")
    os.setxattr("f", "user.a", b"")
    same(os.getxattr("f", "user.a"), b"", "the value")
    same(os.listxattr("f"), ["user.a"], "names")


@case
def create_flag():
    put("f")
    os.setxattr("f", "user.a", b"1", os.XATTR_CREATE)
    fails(errno.EEXIST, os.setxattr, "f", "user.a", b"2", os.XATTR_CREATE)
    same(os.getxattr("f", "user.a"), b"1", "the value")


@case
def replace_flag():
    put("f")
    fails(NONE, os.setxattr, "f", "user.a", b"1", os.XATTR_REPLACE)
    same(os.listxattr("f"), [], "names")
    os.setxattr("f", "user.a", b"1")
    os.setxattr("f", "user.a", b"2", os.XATTR_REPLACE)
    same(os.getxattr("f", "user.a"), b"2", "the value")


@case
def bad_flags():
    put("f")
    fails(errno.EINVAL, os.setxattr, "f", "user.a", b"1", 8)
    same(os.listxattr("f"), [], "names")


@case
def missing_ones():
    put("f")
    fails(NONE, os.getxattr, "f", "user.a")
    fails(NONE, os.removexattr, "f", "user.a")
    fails(errno.ENOENT, os.getxattr, "missing", "user.a")
    fails(errno.ENOENT, os.setxattr, "missing", "user.a", b"1")
    fails(errno.ENOENT, os.listxattr, "missing")


@case
def bad_names():
    put("f")
    fails(errno.EOPNOTSUPP, os.setxattr, "f", "nothing.a", b"1")
    fails(errno.EOPNOTSUPP, os.setxattr, "f", "a", b"1")
    fails(errno.EOPNOTSUPP, os.getxattr, "f", "nothing.a")
    for kind in ("user.", "trusted.", "security."):
        fails(errno.EINVAL, os.setxattr, "f", kind, b"1")
        fails(errno.EINVAL, os.getxattr, "f", kind)
        fails(errno.EINVAL, os.removexattr, "f", kind)
    fails(errno.ERANGE, os.setxattr, "f", "", b"1")
    fails(errno.ERANGE, os.setxattr, "f", "user." + "x" * 251, b"1")


@case
def longest_name():
    put("f")
    name = "user." + "x" * 250
    os.setxattr("f", name, b"1")
    same((os.getxattr("f", name), os.listxattr("f")), (b"1", [name]), "value and names")


@case
def too_large():
    put("f")
    fails(errno.E2BIG, os.setxattr, "f", "user.a", bytes(65537))
    same(os.listxattr("f"), [], "names")


@case
def a_block_of_them():
    put("f")
    for number in range(20):
        os.setxattr("f", f"user.name{number}", pattern(100, number + 1))
    for number in range(20):
        same(os.getxattr("f", f"user.name{number}"), pattern(100, number + 1), f"value {number}")
    same(len(os.listxattr("f")), 20, "names")
    for number in range(0, 20, 2):
        os.removexattr("f", f"user.name{number}")
    same(sorted(os.listxattr("f")), sorted(f"user.name{n}" for n in range(1, 20, 2)), "names")


@case
def value_of_3000_bytes():
    put("f")
    os.setxattr("f", "user.a", pattern(3000))
    same(os.getxattr("f", "user.a"), pattern(3000), "the value")


@case
def largest_value():
    put("f")
    largest = 0
    for length in (1000, 2000, 3900, 8000, 16_000, 32_000, 65_536):
        try:
            os.setxattr("f", "user.a", pattern(length))
        except OSError as error:
            check(error.errno in (errno.ENOSPC, errno.E2BIG), "ENOSPC or E2BIG says that it is too large")
            break
        largest = length
    check(largest >= 2000, "2000 bytes fit")
    same(os.getxattr("f", "user.a"), pattern(largest), "the value after one that was refused")


@long_case
def until_it_is_full():
    put("f")
    made = 0
    try:
        for number in range(2000):
            os.setxattr("f", f"user.{number}", pattern(500, number + 1))
            made += 1
    except OSError as error:
        check(error.errno in (errno.ENOSPC, errno.E2BIG, errno.EDQUOT), f"an error that says full ({error})")
    check(made >= 5, "some fit")
    names = sorted(f"user.{n}" for n in range(made))
    try:
        same(sorted(os.listxattr("f")), names, "names")
    except OSError as error:
        same(error.errno, errno.E2BIG, "the error of a list that is too long")
    for number in range(made):
        same(os.getxattr("f", f"user.{number}"), pattern(500, number + 1), f"value {number}")


@case
def sizes_are_asked():
    put("f")
    os.setxattr("f", "user.abc", b"12345")
    name = b"user.abc"
    same(call.libc_call("getxattr", b"f", name, None, 0), 5, "the value's length")
    same(call.libc_call("listxattr", b"f", None, 0), 9, "the list's length")
    small = ctypes.create_string_buffer(4)
    fails(errno.ERANGE, call.libc_call, "getxattr", b"f", name, small, 4)
    fails(errno.ERANGE, call.libc_call, "listxattr", b"f", small, 4)
    exact = ctypes.create_string_buffer(5)
    same(call.libc_call("getxattr", b"f", name, exact, 5), 5, "an exact buffer")
    same(exact.raw, b"12345", "the value")


@case
def by_descriptor():
    put("f")
    with opened("f", os.O_RDONLY) as fd:
        os.setxattr(fd, "user.a", b"1")
        same(os.getxattr(fd, "user.a"), b"1", "the value")
        same(os.listxattr(fd), ["user.a"], "names")
        os.unlink("f")
        os.setxattr(fd, "user.b", b"2")
        same(os.getxattr(fd, "user.b"), b"2", "after unlink")


@case
def of_directories():
    os.mkdir("d")
    os.setxattr("d", "user.a", b"1")
    os.rename("d", "e")
    same(os.getxattr("e", "user.a"), b"1", "the value")


@case
def of_symlinks():
    put("f")
    os.symlink("f", "l")
    os.setxattr("l", "user.a", b"1")
    same(os.getxattr("f", "user.a"), b"1", "it is the target's")
    fails(errno.EPERM, os.setxattr, "l", "user.a", b"1", follow_symlinks=False)
    os.setxattr("l", "trusted.a", b"2", follow_symlinks=False)
    same(os.getxattr("l", "trusted.a", follow_symlinks=False), b"2", "trusted ones may be the link's")


@case
def user_ones_only_of_files_and_directories():
    os.mkfifo("p")
    fails(errno.EPERM, os.setxattr, "p", "user.a", b"1")
    os.setxattr("p", "trusted.a", b"1")


@case
def permissions():
    put("f")
    os.setxattr("f", "user.a", b"1")
    same(as_user(os.getxattr, "f", "user.a"), b"1", "others read it")
    refused(errno.EACCES, os.setxattr, "f", "user.a", b"2")
    refused(errno.EACCES, os.removexattr, "f", "user.a")
    os.chmod("f", 0o606)
    as_user(os.setxattr, "f", "user.a", b"2")
    os.chmod("f", 0o602)
    refused(errno.EACCES, os.getxattr, "f", "user.a")


@case
def trusted_only_for_root():
    put("f")
    os.chmod("f", 0o666)
    os.setxattr("f", "trusted.a", b"1")
    same(os.getxattr("f", "trusted.a"), b"1", "the value")
    check("trusted.a" in os.listxattr("f"), "root sees its name")
    refused(errno.EPERM, os.setxattr, "f", "trusted.a", b"2")
    refused(NONE, os.getxattr, "f", "trusted.a")


@case
def trusted_are_not_listed_for_others():
    put("f")
    os.setxattr("f", "trusted.a", b"1")
    os.setxattr("f", "user.a", b"1")
    same(as_user(os.listxattr, "f"), ["user.a"], "names")


@case
def security():
    put("f")
    os.setxattr("f", "security.lapis_test", b"1")
    same(as_user(os.getxattr, "f", "security.lapis_test"), b"1", "the value")
    refused(errno.EPERM, os.setxattr, "f", "security.lapis_test", b"2")


@case
def capability_of_a_file():
    put("f", mode=0o755)
    value = bytes.fromhex("0100000200040000000000000000000000000000")
    os.setxattr("f", "security.capability", value)
    same(os.getxattr("f", "security.capability"), value, "the value")
    with opened("f") as fd:
        os.write(fd, b"x")
    fails(NONE, os.getxattr, "f", "security.capability")


@case
def capability_goes_with_chown():
    put("f", mode=0o755)
    value = bytes.fromhex("0100000200040000000000000000000000000000")
    os.setxattr("f", "security.capability", value)
    os.chown("f", 5, 5)
    fails(NONE, os.getxattr, "f", "security.capability")


@case
def same_name_in_each_space():
    put("f")
    for space in ("user", "trusted", "security"):
        os.setxattr("f", f"{space}.same", space.encode())
    for space in ("user", "trusted", "security"):
        same(os.getxattr("f", f"{space}.same"), space.encode(), "the value")


@case
def shared_by_links():
    put("f")
    os.link("f", "g")
    os.setxattr("f", "user.a", b"1")
    same(os.getxattr("g", "user.a"), b"1", "the value")


@case
def not_carried_over_by_replacing():
    put("f")
    os.setxattr("f", "user.a", b"1")
    put("g")
    os.rename("g", "f")
    same(os.listxattr("f"), [], "names")


@case
def kept_when_the_content_changes():
    put("f", b"abc")
    os.setxattr("f", "user.a", b"1")
    put("f", b"new content")
    os.truncate("f", 3)
    same((os.getxattr("f", "user.a"), get("f")), (b"1", b"new"), "value and content")


@case
def odd_names_and_values():
    put("f")
    for name in ("user.with space", "user.ä", "user.a.b.c", "user..", "user.\x01"):
        os.setxattr("f", name, bytes(range(256)))
        same(os.getxattr("f", name), bytes(range(256)), f"the value of {name!r}")
    same(len(os.listxattr("f")), 5, "names")
