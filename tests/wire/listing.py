#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: list, readdir: each key once, in order, no other, with any prefix, delimiter, place to begin
and page size. Method: the same question is answered from a sorted list of the keys that were put."""

import errno
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


def test_readdir(daemon):
    with daemon.connect() as lapis:
        for spread in (False, True):
            top = f"readdir{int(spread)}"
            lapis(wire.make(top, DIRECTORY, spread=spread))
            names = {f"{'n' * 60}{i}".encode() for i in range(300)}
            calls = [lapis.start(wire.put(f"{top}/{name.decode()}", b"")) for name in names]
            for call in calls:
                lapis.wait(call)
            for items_max in (0, 1, 7, 299, 300, 1000):
                found, cookie = [], 0
                while True:
                    page = lapis(
                        wire.readdir(top, cookie, items_max, with_attrs=items_max == 7)
                    )
                    found += [item.name for item in page.items]
                    assert items_max == 0 or len(page.items) <= items_max
                    for item in page.items:
                        assert item.type == FILE
                        assert item.attrs is None or item.attrs.ino == item.ino
                    if not page.more:
                        break
                    cookie = page.items[-1].cookie
                assert len(found) == 300 and set(found) == names
            # While it changes, what stays is found exactly once (rule N4).
            found, cookie = [], 0
            while True:
                page = lapis(wire.readdir(top, cookie, 10))
                found += [item.name for item in page.items]
                for item in page.items[:5]:
                    lapis(wire.remove(f"{top}/{item.name.decode()}"))
                lapis(wire.put(f"{top}/new{len(found)}", b""))
                if not page.more:
                    break
                cookie = page.items[-1].cookie
            old = [name for name in found if not name.startswith(b"new")]
            assert len(old) == len(set(old)) and set(old) == names
            assert len(found) == len(set(found))
            rig.refused(lapis, wire.readdir(f"{top}/{found[9].decode()}"), "ENOTDIR")
            rig.refused(lapis, wire.readdir("nothing"), "ENOENT")


if __name__ == "__main__":
    sys.exit(rig.main(globals()))
