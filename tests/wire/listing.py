#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: list, readdir: each key once, in order, no other, with any prefix, delimiter, place to begin
and page size. Method: the same question is answered from a sorted list of the keys that were put."""

import contextlib
import errno
import itertools
import os
import random
import sys

import lapis_wire as wire
import rig
from lapis_wire import DIRECTORY, FILE

SEED = int(os.environ.get("LP_TEST_SEED", "1"))
# '-' and '.' are before '/', '0' is behind it: the order of keys is not that of directories.
WORDS = ["a", "a-", "a.b", "a0", "ab", "b", "\u00e9", "z", "zz", "Z"]


def model(keys, prefix=b"", after=b"", delimit=False):
    """What list must show, in order: whole keys, and common prefixes, which end in a slash."""
    found = []
    for key in sorted(keys):
        if not key.startswith(prefix):
            continue
        name = key
        if delimit and b"/" in key[len(prefix) :]:
            name = key[: key.index(b"/", len(prefix)) + 1]
        if name > after and (not found or found[-1] != name):
            found.append(name)
    return found


def ask(lapis, items_max=0, after=b"", **more):
    """All pages."""
    found = []
    while True:
        page = lapis(wire.list_keys(after=after, items_max=items_max, **more))
        assert page.items or not page.more
        assert items_max == 0 or len(page.items) <= items_max
        for item in page.items:
            assert item.cookie == 0
            is_prefix = item.name.endswith(b"/")
            assert (item.ino == 0, item.type == 0) == (is_prefix, is_prefix), item
        found += [item.name for item in page.items]
        if not page.more:
            return found
        after = found[-1]


def fill(lapis, dice, top, count):
    keys = set()
    while len(keys) < count:
        parts = [dice.choice(WORDS) for _ in range(dice.randint(1, 4))]
        key = "/".join([top, *parts])
        try:
            lapis(wire.put(key, key))
            keys.add(key.encode())
        except wire.Refused as refusal:
            assert refusal.errno in (errno.EISDIR, errno.ENOTDIR), refusal
    return keys


def test_list(daemon):
    dice = random.Random(SEED)
    print(f"     seed {SEED}")
    with daemon.connect() as lapis:
        keys = fill(lapis, dice, "list", 150)
        assert ask(lapis, prefix=b"list/") == model(keys)
        assert model(keys) == sorted(keys)
        beginnings = sorted({key[:cut] for key in keys for cut in range(4, len(key) + 1)})
        for _ in range(400):
            prefix = dice.choice(beginnings)
            after = dice.choice([b"", b"", dice.choice(beginnings), prefix + b"-", b"zzzz"])
            delimit = dice.random() < 0.5
            items_max = dice.choice([0, 1, 2, 3, 7, 1000])
            wanted = model(keys, prefix, after, delimit)
            found = ask(lapis, items_max, after, prefix=prefix, delimit=delimit)
            assert found == wanted, (prefix, after, delimit, items_max, found, wanted)
        for key in sorted(keys)[::2]:
            lapis(wire.delete(key))
            keys.remove(key)
        assert ask(lapis, 10, prefix=b"list/") == model(keys)


def test_list_long(daemon):
    """More than one reply holds, with attributes."""
    with daemon.connect() as lapis:
        keys = {f"long/{'k' * 100}{i:04}".encode() for i in range(700)}
        calls = [lapis.start(wire.put(key, b"x" * 7)) for key in keys]
        for call in calls:
            lapis.wait(call)
        assert ask(lapis, prefix=b"long") == sorted(keys)
        page = lapis(wire.list_keys("long/", with_attrs=True))
        assert page.more and len(page.items) > 100
        for item in page.items:
            assert (item.type, item.attrs.type, item.attrs.size_bytes) == (FILE, FILE, 7)
            assert item.attrs.ino == item.ino
        assert b"long/" in ask(lapis, delimit=True)
        assert ask(lapis, prefix=b"long", after=b"long/", delimit=True) == []
        assert ask(lapis, prefix=b"nothing/here") == []
        lapis(wire.make("empty", DIRECTORY))
        assert b"empty/" in ask(lapis, delimit=True)
        assert ask(lapis, prefix=b"empty") == []


def pages(lapis, top, by_name, items_max, with_attrs=False):
    """All pages of a directory, one after the other."""
    cookie, after = 0, b""
    while True:
        page = lapis(wire.readdir(top, cookie, items_max, with_attrs, by_name, after))
        yield page.items
        if not page.more:
            return
        cookie, after = page.items[-1].cookie, page.items[-1].name if by_name else b""


def test_readdir(daemon):
    with daemon.connect() as lapis:
        for spread, by_name in itertools.product((False, True), (False, True)):
            top = f"readdir{int(spread)}{int(by_name)}"
            lapis(wire.make(top, DIRECTORY, spread=spread))
            names = {f"{'n' * 60}{i}".encode() for i in range(300)}
            calls = [lapis.start(wire.put(f"{top}/{name.decode()}", b"")) for name in names]
            for call in calls:
                lapis.wait(call)
            for items_max in (0, 1, 7, 299, 300, 1000):
                found = []
                for items in pages(lapis, top, by_name, items_max, items_max == 7):
                    found += [item.name for item in items]
                    assert items_max == 0 or len(items) <= items_max
                    for item in items:
                        assert item.type == FILE
                        assert item.attrs is None or item.attrs.ino == item.ino
                assert len(found) == 300 and set(found) == names
                assert spread or not by_name or found == sorted(found)
            # While it changes, what stays is found exactly once (rule N4); so is the last of a
            # page that goes before the next is asked for.
            found = []
            for items in pages(lapis, top, by_name, 10):
                found += [item.name for item in items]
                for item in [*items[:5], *items[-1:]]:
                    with contextlib.suppress(wire.Refused):
                        lapis(wire.remove(f"{top}/{item.name.decode()}"))
                lapis(wire.put(f"{top}/new{len(found)}", b""))
            old = [name for name in found if not name.startswith(b"new")]
            assert len(old) == len(set(old)) and set(old) == names
            assert len(found) == len(set(found))
            rig.refused(lapis, wire.readdir(f"{top}/{found[8].decode()}"), "ENOTDIR")
            rig.refused(lapis, wire.readdir("nothing"), "ENOENT")


def test_readdir_by_name(daemon):
    """What goes with a cookie, and what does not."""
    with daemon.connect() as lapis:
        lapis(wire.make("byname", DIRECTORY, spread=True))
        for number in range(40):
            lapis(wire.put(f"byname/{number}", b""))
        items = [item for page in pages(lapis, "byname", True, 0) for item in page]
        at = items[20]
        rest = [item.name for item in items[21:]]
        for after in (at.name, b""):
            page = lapis(wire.readdir("byname", at.cookie, by_name=True, after=after))
            assert [item.name for item in page.items] == rest, after
        # What was not read with it is refused, if that can be seen: some of these are elsewhere.
        refused = 0
        for other in items:
            try:
                lapis(wire.readdir("byname", at.cookie, by_name=True, after=other.name))
            except wire.Refused as refusal:
                assert refusal.errno == errno.EINVAL, refusal
                refused += 1
        assert 0 < refused < len(items), refused
        for cookie, after in ((0, at.name), (at.cookie, b"a/b")):
            rig.refused(lapis, wire.readdir("byname", cookie, by_name=True, after=after), "EINVAL")
        rig.refused(lapis, wire.readdir("byname", at.cookie, after=at.name), "EINVAL")
        lapis(wire.remove(f"byname/{at.name.decode()}"))
        page = lapis(wire.readdir("byname", at.cookie, by_name=True, after=at.name))
        assert [item.name for item in page.items] == rest
        rig.refused(lapis, wire.readdir("byname", at.cookie, by_name=True), "ENOENT")


if __name__ == "__main__":
    sys.exit(rig.main(globals()))
