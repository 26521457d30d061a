#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: each opcode of docs/format/wire.md does what the page says, and refuses as it says.
Method: a real daemon, the client that was written from the page, each test in a bucket of its own."""

import errno
import json
import sys

import lapis_wire as wire
import rig
from lapis_wire import CRC_ALL, CRC_HEADER, CRC_OFF, DIRECTORY, FIFO, FILE, SYMLINK
from rig import refused


def test_hello(daemon):
    for crc in (CRC_OFF, CRC_HEADER, CRC_ALL):
        for shard in (0, 1, wire.ANY_SHARD):
            with daemon.connect(crc=crc, shard=shard) as lapis:
                assert lapis.welcome.crc_mode == crc
                assert lapis.welcome.shard_cnt == 2
                assert shard in (lapis.welcome.shard, wire.ANY_SHARD)
                assert "lapis" in lapis.server.lower(), lapis.server
                lapis(wire.ping())
                lapis(wire.put("hello/x", b"abc" * 3000))
                assert lapis(wire.get("hello/x")).data == b"abc" * 3000
                refused(lapis, wire.Request("auth"), "ENOSYS")
    with daemon.connect(credits=3) as lapis:
        assert 1 <= lapis.welcome.credits <= 3
    with daemon.connect() as one, daemon.connect() as other:
        assert one.welcome.uuid_low == other.welcome.uuid_low
        assert one.welcome.uuid_high == other.welcome.uuid_high


def test_hello_refused(daemon):
    for wrong in ({"version_min": 2, "version_max": 9}, {"shard": 2}, {"crc": 3}):
        try:
            with daemon.connect(hello=False) as lapis:
                lapis.hello(**wrong)
        except wire.Refused:
            continue
        raise AssertionError(f"a hello with {wrong} was welcome")


def test_put_get_stat(daemon):
    with daemon.connect() as lapis:
        for size in (0, 1, 2048, 2049, 4095, 4096, 4097, 65536, 70001, 1 << 20, wire.DATA_MAX):
            data = wire.random_bytes(size, size)
            attrs = lapis(wire.put(f"psg/deep/er/{size}", data, mode=0o640, mtime_ns=12345))
            assert (attrs.size_bytes, attrs.type, attrs.mode) == (size, FILE, 0o640)
            assert (attrs.mtime_ns, attrs.nlink) == (12345, 1)
            assert lapis(wire.stat(f"psg/deep/er/{size}")) == attrs
            assert lapis(wire.stat(attrs.ino)).ino == attrs.ino
            got = lapis(wire.get(f"psg/deep/er/{size}"))
            assert got == (data, size, attrs.version_nr)
            assert lapis(wire.get(attrs.ino)).data == data
            for at, length in ((0, 1), (1, 5000), (4095, 2), (size - 1, 10), (size, 1), (size + 9, 4)):
                if at >= 0:
                    got = lapis(wire.get(f"psg/deep/er/{size}", at, length))
                    assert got.data == data[at : at + length], (size, at, length)
        parent = lapis(wire.stat("psg/deep"))
        assert parent.type == DIRECTORY and parent.entries_cnt == 1
        assert parent.flags & wire.ATTR_FLAG["made_by_put"]
        assert lapis(wire.stat((parent.ino, "er"))).type == DIRECTORY
        assert lapis(wire.stat("")).type == DIRECTORY

        refused(lapis, wire.stat("psg/nothing"), "ENOENT")
        refused(lapis, wire.get("psg/nothing"), "ENOENT")
        refused(lapis, wire.get("psg/deep"), "EISDIR")
        refused(lapis, wire.put("psg/deep", b"x"), "EISDIR")
        refused(lapis, wire.put("psg/deep/er/1/below", b"x"), "ENOTDIR")
        refused(lapis, wire.stat("psg/deep/er/1/below"), "ENOTDIR")
        refused(lapis, wire.get(attrs.ino, version=attrs.version_nr + 1), "ECANCELED")
        refused(lapis, wire.stat(1 << 60 | 12345), "ESTALE")


def test_paths(daemon):
    with daemon.connect() as lapis:
        for bad in ("/a", "a/", "a//b", ".", "..", "a/./b", "a/../b", "a\0b", "/"):
            refused(lapis, wire.put(bad, b"x"), "EINVAL")
            refused(lapis, wire.stat(bad), "EINVAL")
        lapis(wire.put("paths/" + "n" * 255, b"x"))
        refused(lapis, wire.put("paths/" + "n" * 256, b"x"), "ENAMETOOLONG")
        long = "/".join(["d" * 240] * 17)
        assert len(long) == 4096
        lapis(wire.put(long, b"deep"))
        assert lapis(wire.get(long)).data == b"deep"
        refused(lapis, wire.put(long + "e", b"x"), "ENAMETOOLONG")
        lapis(wire.delete(long))
        refused(lapis, wire.stat("d" * 240), "ENOENT")
        for odd in (b"paths/\xff\xfe", b"paths/ ", b"paths/\n", b"paths/...", b"paths/\x01\\"):
            lapis(wire.put(odd, odd))
            assert lapis(wire.get(odd)).data == odd
        refused(lapis, wire.put("", b"x"), "EINVAL")
        ino = lapis(wire.stat("paths")).ino
        refused(lapis, wire.stat((ino, "a/b")), "EINVAL")


def test_put_conditions(daemon):
    with daemon.connect() as lapis:
        refused(lapis, wire.put("cond/a", b"1", "exists"), "ENOENT")
        refused(lapis, wire.put("cond/a", b"1", "version", 7), "ENOENT")
        first = lapis(wire.put("cond/a", b"1", "absent", mode=0o600, uid=5, gid=6))
        refused(lapis, wire.put("cond/a", b"2", "absent"), "EEXIST")
        refused(lapis, wire.put("cond/a", b"2", "version", first.version_nr + 1), "ECANCELED")
        assert lapis(wire.get("cond/a")).data == b"1"
        second = lapis(wire.put("cond/a", b"2", "version", first.version_nr))
        assert second.ino != first.ino  # rule W3
        assert (second.mode, second.uid, second.gid) == (0o600, 5, 6)
        lapis(wire.put("cond/a", b"3", "exists"))
        assert lapis(wire.get("cond/a")).data == b"3"
        refused(lapis, wire.stat(first.ino), "ESTALE")
        refused(lapis, wire.Request("put", b"".join(_with_condition(9))), "EINVAL")

        now = lapis(wire.stat("cond/a"))
        refused(lapis, wire.delete("cond/a", "version", now.version_nr + 1), "ECANCELED")
        refused(lapis, wire.delete("cond/nothing"), "ENOENT")
        lapis(wire.delete("cond/a", "version", now.version_nr))
        refused(lapis, wire.stat("cond"), "ENOENT")  # made by a put, and empty


def _with_condition(number):
    meta = wire.put("cond/x").meta
    at = wire.PUT.size
    fixed = wire.PUT.unpack(meta)._replace(condition=number)
    return wire.PUT.struct.pack(*fixed), meta[at:]


def test_put_xattrs_and_links(daemon):
    with daemon.connect() as lapis:
        lapis(wire.put("px/a", b"1", xattrs={"user.one": b"1", "user.two": b"2" * 3000}))
        listing = lapis(wire.xattr_list("px/a"))
        assert dict(listing.items) == {b"user.one": b"1", b"user.two": b"2" * 3000}
        lapis(wire.link("px/a", "px/b"))
        lapis(wire.put("px/a", b"2"))
        assert lapis(wire.get("px/b")).data == b"1"  # rule W3: other hard links keep the old data
        assert lapis(wire.xattr_list("px/a")).items == []
        sixteen = {f"user.{i:02}": str(i) for i in range(16)}
        lapis(wire.put("px/c", b"", xattrs=sixteen))
        assert len(lapis(wire.xattr_list("px/c")).items) == 16
        sixteen["user.16"] = b"x"
        refused(lapis, wire.put("px/c", b"", xattrs=sixteen), "E2BIG")


def test_write_paths(daemon):
    with daemon.connect() as lapis:
        for path in wire.PATH:
            data = wire.random_bytes(9000, path)
            lapis(wire.put(f"wp/{path}", data, write_path=path))
            patch = wire.random_bytes(5000, path + "2")
            written = lapis(wire.write(f"wp/{path}", patch, 1500, write_path=path))
            assert written.write_path in wire.PATH.values()
            assert lapis(wire.get(f"wp/{path}")).data == data[:1500] + patch + data[6500:]


def test_write(daemon):
    with daemon.connect() as lapis:
        lapis(wire.put("write/a", b""))
        model = bytearray()
        before = 0
        for round_nr in range(40):
            at = (round_nr * 7919) % 60000
            data = wire.random_bytes(1 + (round_nr * 3571) % 20000, round_nr)
            written = lapis(wire.write("write/a", data, at))
            assert written.offset == at and written.version_nr > before
            before = written.version_nr
            model.extend(bytes(max(0, at + len(data) - len(model))))
            model[at : at + len(data)] = data
        assert lapis(wire.get("write/a")).data == bytes(model)
        for size in (1, 5000, 4096):
            data = wire.random_bytes(size, size)
            written = lapis(wire.write("write/a", data, append=True))
            assert written.offset == len(model)
            model += data
        assert lapis(wire.get("write/a")).data == bytes(model)
        assert lapis(wire.stat("write/a")).size_bytes == len(model)
        lapis(wire.write("write/a", b"later", 1 << 20).ordered())
        lapis(wire.sync())
        assert lapis(wire.get("write/a", 1 << 20)).data == b"later"
        assert lapis(wire.get("write/a", 500000, 1000)).data == bytes(1000)
        refused(lapis, wire.write("write/nothing", b"x"), "ENOENT")
        refused(lapis, wire.write("write", b"x"), "EISDIR")
        refused(lapis, wire.write("write/a", b"x", (1 << 64) - 5000), "EFBIG")


def test_get_streams(daemon):
    with daemon.connect() as lapis:
        up = lapis(wire.upload("stream/large"))
        data = wire.random_bytes(9 << 20, "large")
        for at in range(0, len(data), 3 << 20):
            lapis(wire.write(up.ino, data[at : at + (3 << 20)], at).ordered())
        lapis(wire.commit(up.ino, "stream/large"))
        call = lapis.start(wire.get("stream/large"))
        pings = [lapis.start(wire.ping()) for _ in range(10)]
        assert lapis.wait(call).data == data
        assert len(call.reply.parts) >= 9
        for ping in pings:
            lapis.wait(ping)
        # The object that had the name when the first piece was read.
        call = lapis.start(wire.get("stream/large"))
        with daemon.connect() as other:
            while call.reply is None:
                lapis._take_some()
            other(wire.put("stream/large", b"small"))
        assert lapis.wait(call).data == data
        assert lapis(wire.get("stream/large")).data == b"small"


def test_upload(daemon):
    with daemon.connect() as lapis:
        up = lapis(wire.upload("up/a"))
        refused(lapis, wire.stat("up/a"), "ENOENT")
        lapis(wire.write(up.ino, b"x" * 10000, 0))
        lapis(wire.write(up.ino, b"y" * 10000, 5000))
        attrs = lapis(wire.commit(up.ino, "up/a", "absent", mtime_ns=77, xattrs={"user.k": b"v"}))
        assert (attrs.size_bytes, attrs.ino, attrs.mtime_ns, attrs.nlink) == (15000, up.ino, 77, 1)
        assert lapis(wire.get("up/a")).data == b"x" * 5000 + b"y" * 10000
        assert lapis(wire.xattr_get("up/a", "user.k")) == b"v"
        refused(lapis, wire.commit(up.ino, "up/b"), "EBADF")

        up = lapis(wire.upload("up/a"))
        lapis(wire.write(up.ino, b"z" * 5000, 0))
        refused(lapis, wire.commit(up.ino, "up/a", "absent"), "EEXIST")
        assert lapis(wire.get("up/a")).size_bytes == 15000
        lapis(wire.commit(up.ino, "up/a"))
        assert lapis(wire.get("up/a")).data == b"z" * 5000

        for number in range(4):  # on either shard
            up = lapis(wire.upload("up/a"))
            lapis(wire.write(up.ino, b"elsewhere", 0))
            lapis(wire.commit(up.ino, f"up/other/{number}"))
            assert lapis(wire.get(f"up/other/{number}")).data == b"elsewhere"

        up = lapis(wire.upload("up/c"))
        lapis(wire.write(up.ino, b"z" * 50000, 0))
        lapis(wire.abort(up.ino))
        _until_gone(lapis, up.ino)
        refused(lapis, wire.abort(up.ino), "EBADF")
        refused(lapis, wire.write(up.ino, b"z"), "ESTALE")
        refused(lapis, wire.stat("up/c"), "ENOENT")


def _until_gone(lapis, ino):
    for _ in range(2000):
        try:
            lapis(wire.stat(ino))
        except wire.Refused as refusal:
            assert refusal.errno == errno.ESTALE, refusal
            return
    raise AssertionError(f"inode {ino} is still there")


def test_drop_aborts_and_closes(daemon):
    with daemon.connect() as lapis:
        with daemon.connect() as other:
            up = other(wire.upload("drop/a"))
            other(wire.write(up.ino, b"x" * 100000, 0))
            other(wire.put("drop/b", b"open"))
            opened = other(wire.open_("drop/b"))
            other(wire.delete("drop/b"))
            assert other(wire.get(opened.ino)).data == b"open"
            assert lapis(wire.get(opened.ino)).data == b"open"
            assert other(wire.stat(opened.ino)).nlink == 0
        _until_gone(lapis, up.ino)
        _until_gone(lapis, opened.ino)


def test_open_close(daemon):
    with daemon.connect() as lapis:
        lapis(wire.put("open/a", b"abc"))
        one = lapis(wire.open_("open/a"))
        lapis(wire.open_("open/a"))
        lapis(wire.put("open/a", b"new"))
        assert lapis(wire.get(one.ino)).data == b"abc"
        lapis(wire.close(one.ino))
        assert lapis(wire.get(one.ino)).data == b"abc"
        lapis(wire.write(one.ino, b"D", 3))
        assert lapis(wire.get(one.ino)).data == b"abcD"
        lapis(wire.close(one.ino))
        _until_gone(lapis, one.ino)
        refused(lapis, wire.close(one.ino), "EBADF")
        refused(lapis, wire.open_("open/nothing"), "ENOENT")


def test_space(daemon):
    with daemon.connect() as lapis:
        data = wire.random_bytes(300000)
        lapis(wire.put("space/a", data))
        lapis(wire.truncate("space/a", 200001))
        assert lapis(wire.get("space/a")).data == data[:200001]
        lapis(wire.truncate("space/a", 250000))
        model = bytearray(data[:200001] + bytes(49999))
        assert lapis(wire.get("space/a")).data == model
        for at, length in ((8192, 65536), (1, 5000), (200000, 1), (249000, 5000)):
            lapis(wire.punch("space/a", at, length))
            end = min(at + length, len(model))
            model[at:end] = bytes(end - at)
            assert lapis(wire.get("space/a")).data == model, (at, length)
        lapis(wire.put("space/holes", b""))
        lapis(wire.truncate("space/holes", 1 << 30))
        lapis(wire.write("space/holes", b"x" * 8192, 1 << 20))
        assert lapis(wire.seek("space/holes", 0)) == 1 << 20
        assert lapis(wire.seek("space/holes", 0, hole=True)) == 0
        assert lapis(wire.seek("space/holes", 1 << 20, hole=True)) == (1 << 20) + 8192
        refused(lapis, wire.seek("space/holes", (1 << 20) + 8192), "ENXIO")
        refused(lapis, wire.seek("space/holes", 1 << 30, hole=True), "ENXIO")
        lapis(wire.prealloc("space/holes", 0, 1 << 20))
        assert lapis(wire.get("space/holes", 0, 5000)).data == bytes(5000)
        assert lapis(wire.stat("space/holes")).blocks >= 258 or daemon.kind == "mem"
        refused(lapis, wire.punch("space/a", 0, (16 << 20) + 1), "EINVAL")
        refused(lapis, wire.truncate("space/a", 1 << 63), "EFBIG")
        refused(lapis, wire.truncate("space", 0), "EISDIR")
        refused(lapis, wire.punch("space/a", 0, 0), "EINVAL")
        refused(lapis, wire.write("space/a", b""), "EINVAL")


def test_clone_and_copy(daemon):
    with daemon.connect() as lapis:
        data = wire.random_bytes(1 << 20, "clone")
        src = lapis(wire.put("clone/src", data))
        made = 0
        for number in range(20):
            dst = lapis(wire.put(f"clone/dst{number}", b""))
            try:
                lapis(wire.clone(dst.ino, src.ino, 4096, 8192, 65536))
            except wire.Refused as refusal:
                assert refusal.errno == errno.EXDEV, refusal
                continue
            made += 1
            assert lapis(wire.get(dst.ino)).data == bytes(8192) + data[4096 : 4096 + 65536]
        assert 0 < made < 20  # the directory is spread over two shards
        refused(lapis, wire.clone("clone/src", src.ino, 1, 0, 4096), "EINVAL")
        lapis(wire.xattr_set("clone/src", "user.k", b"v"))
        for number in range(4):
            attrs = lapis(wire.copy("clone/src", f"clone/new/copy{number}"))
            assert attrs.ino != src.ino and attrs.size_bytes == len(data)
        lapis(wire.write("clone/src", b"changed", 5))
        for number in range(4):
            assert lapis(wire.get(f"clone/new/copy{number}")).data == data
        refused(lapis, wire.copy("clone/src", "clone/new/copy0", "absent"), "EEXIST")
        refused(lapis, wire.copy("clone/nothing", "clone/x"), "ENOENT")
        refused(lapis, wire.copy("clone/new", "clone/x"), "EISDIR")
        assert lapis(wire.xattr_get("clone/new/copy3", "user.k")) == b"v"


def test_move_rename_link(daemon):
    with daemon.connect() as lapis:
        for number in range(8):  # on both shards
            lapis(wire.put(f"mv/a{number}", str(number)))
            attrs = lapis(wire.move(f"mv/a{number}", f"mv/made/b{number}"))
            assert lapis(wire.get(attrs.ino)).data == str(number).encode()
            refused(lapis, wire.stat(f"mv/a{number}"), "ENOENT")
            lapis(wire.link(f"mv/made/b{number}", f"mv/c{number}"))
            assert lapis(wire.stat(f"mv/c{number}")).nlink == 2
            lapis(wire.rename(f"mv/c{number}", f"mv/d{number}"))
            refused(lapis, wire.stat(f"mv/c{number}"), "ENOENT")
        refused(lapis, wire.move("mv/d0", "mv/d1", "absent"), "EEXIST")
        refused(lapis, wire.move("mv/nothing", "mv/x"), "ENOENT")
        refused(lapis, wire.link("mv/d0", "mv/d1"), "EEXIST")
        refused(lapis, wire.link("mv/made", "mv/hard"), "EPERM")
        refused(lapis, wire.rename("mv/d0", "mv/d1", "noreplace"), "EEXIST")
        refused(lapis, wire.rename("mv/d0", "mv/nodir/x"), "ENOENT")
        refused(lapis, wire.rename("mv/nothing", "mv/x"), "ENOENT")
        refused(lapis, wire.rename("mv/d0", "mv/nothing", "exchange"), "ENOENT")
        lapis(wire.rename("mv/d2", "mv/d3", "exchange"))
        assert lapis(wire.get("mv/d2")).data == b"3" and lapis(wire.get("mv/d3")).data == b"2"
        lapis(wire.rename("mv/d2", "mv/d3"))
        assert lapis(wire.get("mv/d3")).data == b"3"
        refused(lapis, wire.rename("mv/made", "mv/made/loop"), "EINVAL")
        refused(lapis, wire.rename("mv/d0", "mv/made"), "EISDIR")
        lapis(wire.rename("mv/made", "mv/moved"))
        assert lapis(wire.get("mv/moved/b5")).data == b"5"


def test_link_of_what_is_replaced(daemon):
    """The name is there all the time, whatever object it leads to."""
    with daemon.connect() as lapis:
        for key in ("replaced/a", "replaced/b"):
            lapis(wire.put(key, b"x"))
            calls = []
            for number in range(150):
                calls.append(lapis.start(wire.link(key, f"{key}-{number}")))
                calls.append(lapis.start(wire.put(key, str(number))))
            for call in calls:
                lapis.wait(call)


def test_make_remove(daemon):
    with daemon.connect() as lapis:
        top = lapis(wire.make("mk", DIRECTORY, 0o750))
        assert (top.type, top.mode, top.entries_cnt, top.parent_ino) == (
            DIRECTORY, 0o750, 0, lapis(wire.stat("")).ino,
        )  # fmt: skip
        assert not top.flags & wire.ATTR_FLAG["made_by_put"]
        assert lapis(wire.make((top.ino, "spread"), DIRECTORY, spread=True)).flags & 2
        lapis(wire.make("mk/link", SYMLINK, 0o777, target="../some/where"))
        assert lapis(wire.readlink("mk/link")) == b"../some/where"
        assert lapis(wire.stat("mk/link")).size_bytes == len("../some/where")
        lapis(wire.make("mk/fifo", FIFO, 0o600))
        assert lapis(wire.make("mk/dev", wire.CHAR_DEVICE, rdev=0x103)).rdev == 0x103
        one = lapis(wire.make("mk/file", FILE, 0o644, uid=1, gid=2))
        assert (one.uid, one.gid, one.size_bytes) == (1, 2, 0)
        refused(lapis, wire.make("mk/file", FILE), "EEXIST")
        assert lapis(wire.make("mk/file", FILE, or_open=True, open=True)).ino == one.ino
        lapis(wire.close(one.ino))
        refused(lapis, wire.make("mk/no/dir", FILE), "ENOENT")
        refused(lapis, wire.make("mk/file/x", FILE), "ENOTDIR")
        refused(lapis, wire.make("mk/odd", 0), "EINVAL")
        refused(lapis, wire.make("mk/odd", 8), "EINVAL")
        refused(lapis, wire.readlink("mk/file"), "EINVAL")
        refused(lapis, wire.get("mk/link"), "EINVAL")
        refused(lapis, wire.stat("mk/link/x"), "ENOTDIR")
        refused(lapis, wire.remove("mk"), "EISDIR")
        refused(lapis, wire.remove("mk", is_dir=True), "ENOTEMPTY")
        refused(lapis, wire.remove("mk/file", is_dir=True), "ENOTDIR")
        refused(lapis, wire.remove("mk/nothing"), "ENOENT")
        refused(lapis, wire.delete("mk", or_dir=True), "ENOTEMPTY")
        refused(lapis, wire.delete("mk/spread"), "EISDIR")
        lapis(wire.delete("mk/spread", or_dir=True))
        for name in ("link", "fifo", "dev", "file"):
            lapis(wire.remove(f"mk/{name}"))
        lapis(wire.stat("mk"))  # made by mkdir: does not vanish
        lapis(wire.remove("mk", is_dir=True))
        refused(lapis, wire.stat("mk"), "ENOENT")


def test_set(daemon):
    with daemon.connect() as lapis:
        before = lapis(wire.put("set/a", b"abc"))
        now = lapis(wire.set_attrs("set/a", mode=0o4755, uid=9, gid=8, mtime_ns=-5, atime_ns=6))
        assert (now.mode, now.uid, now.gid, now.mtime_ns, now.atime_ns) == (0o4755, 9, 8, -5, 6)
        assert now.size_bytes == 3 and now.version_nr > before.version_nr
        assert now.ctime_ns >= before.ctime_ns
        assert lapis(wire.set_attrs("set/a", "mtime_now")).mtime_ns >= before.mtime_ns
        assert lapis(wire.set_attrs("set/a", btime_ns=1)).btime_ns == 1
        refused(lapis, wire.set_attrs("set/nothing", mode=0), "ENOENT")
        for flag in ("immutable", "append"):
            bit = wire.ATTR_FLAG[flag]
            assert lapis(wire.set_attrs("set/a", flags=bit)).flags == bit
            refused(lapis, wire.set_attrs("set/a", mode=0o600), "EPERM")
            refused(lapis, wire.delete("set/a"), "EPERM")
            refused(lapis, wire.put("set/a", b"other"), "EPERM")
            refused(lapis, wire.move("set/a", "set/b"), "EPERM")
            refused(lapis, wire.write("set/a", b"x", 0), "EPERM")
            refused(lapis, wire.omap_set("set/a", "k", b"x"), "EPERM")
            refused(lapis, wire.compound("set/a", wire.change("xattr_set", "user.x", b"x")), "EPERM")
        appended = lapis(wire.stat("set/a")).size_bytes
        lapis(wire.write("set/a", b"more", append=True))
        assert lapis(wire.stat("set/a")).size_bytes == appended + 4
        lapis(wire.set_attrs("set", flags=wire.ATTR_FLAG["immutable"]))
        refused(lapis, wire.put("set/new", b"x"), "EPERM")
        refused(lapis, wire.put("set/new/below", b"x"), "EPERM")
        lapis(wire.set_attrs("set", flags=0))
        assert lapis(wire.set_attrs("set/a", flags=0)).flags == 0
        unknown = wire.set_attrs("set/a", mode=0)
        unknown.meta = unknown.meta[:128] + b"\0\0\0\x80" + unknown.meta[132:]
        refused(lapis, unknown, "EINVAL")


def test_xattrs(daemon):
    with daemon.connect() as lapis:
        lapis(wire.put("xa/a", b"abc"))
        _small_map(lapis, "xattr", "xa/a", "user.", 255)
        refused(lapis, wire.xattr_set("xa/a", "user.k000", b"x", "absent"), "EEXIST")
        refused(lapis, wire.xattr_set("xa/a", "user.nothing", b"x", "exists"), "ENODATA")
        lapis(wire.xattr_set("xa/a", "user.k000", b"new", "exists"))
        assert lapis(wire.xattr_get("xa/a", "user.k000")) == b"new"


def test_access_lists(daemon):
    """What a mount could not read is refused, however it comes."""
    entries = ("01000600ffffffff", "04000400ffffffff", "20000000ffffffff")
    good = bytes.fromhex("02000000" + "".join(entries))
    with daemon.connect() as lapis:
        lapis(wire.put("al/a", b"abc"))
        for name in ("system.posix_acl_access", "system.posix_acl_default"):
            for bad in (b"", b"garbage", good[:-1], good[:-8], b"\1" + good[1:]):
                refused(lapis, wire.xattr_set("al/a", name, bad), "EINVAL")
                refused(lapis, wire.put("al/b", b"", xattrs={name: bad}), "EINVAL")
                refused(lapis, wire.compound("al/a", wire.change("xattr_set", name, bad)), "EINVAL")
            assert lapis(wire.xattr_list("al/a")).items == []
            lapis(wire.xattr_set("al/a", name, good))
            lapis(wire.compound("al/a", wire.change("xattr_set", name, good)))
            lapis(wire.put("al/b", b"", xattrs={name: good}))
            assert lapis(wire.xattr_get("al/b", name)) == good
            lapis(wire.xattr_remove("al/a", name))


def access_list(mask):
    return bytes.fromhex(
        "02000000"
        "01000600ffffffff"
        "02000400e8030000"
        "04000000ffffffff"
        f"1000{mask:02x}00ffffffff"
        "20000000ffffffff"
    )


def mode_and_mask(lapis, key):
    """The mode, and the mask of the access list, which is a part of it."""
    mode = lapis(wire.stat(key)).mode
    mask = lapis(wire.xattr_get(key, "system.posix_acl_access"))[30]
    return mode, mask


def test_list_and_mode(daemon):
    """Mode and access list are one thing, whichever of them is set: also by two at once."""
    name, change = "system.posix_acl_access", wire.change
    with daemon.connect() as lapis, daemon.connect() as other:
        lapis(wire.put("lm/a", b"abc"))
        lapis(wire.set_attrs("lm/a", mode=0o4755))
        lapis(wire.xattr_set("lm/a", name, access_list(2)))
        assert mode_and_mask(lapis, "lm/a") == (0o4620, 2)
        lapis(wire.set_attrs("lm/a", mode=0o2670))
        assert mode_and_mask(lapis, "lm/a") == (0o2670, 7)
        lapis(wire.xattr_set("lm/a", name, access_list(1), "exists"))
        assert mode_and_mask(lapis, "lm/a") == (0o2610, 1)
        refused(lapis, wire.xattr_set("lm/a", name, access_list(3), "absent"), "EEXIST")
        assert mode_and_mask(lapis, "lm/a") == (0o2610, 1)
        version = lapis(wire.stat("lm/a")).version_nr
        lapis(
            wire.compound(
                "lm/a",
                change("guard_version", offset=version),
                change("guard_xattr", name),
                change("xattr_set", "user.a", b"1"),
                change("xattr_set", name, access_list(4)),
                change("truncate", offset=1),
            )
        )
        assert mode_and_mask(lapis, "lm/a") == (0o2640, 4)
        # Which of a compound's guards and changes fails is told as the client counts them.
        for index, error, changes in (
            (0, "ECANCELED", [change("guard_version", offset=version)]),
            (1, "EEXIST", [change("guard_xattr", name), change("guard_no_xattr", "user.a")]),
            (1, "ENODATA", [change("xattr_set", "user.b"), change("xattr_remove", "user.none")]),
        ):
            changes = [*changes, change("xattr_set", name, access_list(7))]
            refusal = refused(lapis, wire.compound("lm/a", *changes), error)
            failed = wire.WRITTEN.unpack(refusal.reply.meta).failed_idx
            assert failed == index, (failed, index, error)
        assert mode_and_mask(lapis, "lm/a") == (0o2640, 4)
        # A put carries both over; one with a list of its own has the mode of that.
        lapis(wire.put("lm/a", b"new"))
        assert mode_and_mask(lapis, "lm/a") == (0o2640, 4)
        lapis(wire.put("lm/a", b"new", xattrs={name: access_list(5)}))
        assert mode_and_mask(lapis, "lm/a") == (0o2650, 5)
        for i in range(50):
            modes = [other.start(wire.set_attrs("lm/a", mode=0o600 | (i + k) % 8 << 3)) for k in range(3)]
            lists = [lapis.start(wire.xattr_set("lm/a", name, access_list((3 * i + k) % 8))) for k in range(3)]
            for sent in lists:
                lapis.wait(sent)
            for sent in modes:
                other.wait(sent)
            mode, mask = mode_and_mask(lapis, "lm/a")
            assert mode == 0o600 | mask << 3, (i, oct(mode), mask)


def test_longest_values(daemon):
    """One limit, however a value comes: what was set can be read."""
    with daemon.connect() as lapis:
        lapis(wire.put("lv/a", b"abc"))
        most = wire.random_bytes(65536)
        for request in (
            lambda value: wire.put("lv/b", b"", xattrs={"user.v": value}),
            lambda value: wire.xattr_set("lv/b", "user.v", value),
            lambda value: wire.compound("lv/b", wire.change("xattr_set", "user.v", value)),
        ):
            lapis(request(most))
            assert lapis(wire.xattr_get("lv/b", "user.v")) == most
            refused(lapis, request(most + b"x"), "E2BIG")
        lapis(wire.compound("lv/a", wire.change("omap_set", "k", most)))
        assert lapis(wire.omap_get("lv/a", "k")) == most
        refused(lapis, wire.compound("lv/a", wire.change("omap_set", "k", most + b"x")), "E2BIG")
        for name in ("user.u", "user.w"):
            lapis(wire.xattr_set("lv/b", name, most))
        found, after = [], b""
        while True:
            page = lapis(wire.xattr_list("lv/b", after))
            found += page.items
            if not page.more:
                break
            after = page.items[-1][0]
        assert found == [(name, most) for name in (b"user.u", b"user.v", b"user.w")]
    # Whose messages are shorter is told, and goes on.
    with daemon.connect(features=0) as lapis:
        assert lapis.welcome.features == 0
        refused(lapis, wire.xattr_get("lv/b", "user.v"), "EMSGSIZE")
        refused(lapis, wire.xattr_list("lv/b", b""), "EMSGSIZE")
        refused(lapis, wire.omap_get("lv/a", "k"), "EMSGSIZE")
        names = lapis(wire.xattr_list("lv/b", b"", with_values=False))
        assert [name for name, _ in names.items] == [b"user.u", b"user.v", b"user.w"]
        lapis(wire.xattr_set("lv/b", "user.v", most[:65000]))
        assert lapis(wire.xattr_get("lv/b", "user.v")) == most[:65000]
    with daemon.connect(features=0xFFFFFFFFFFFFFFFF) as lapis:
        assert lapis.welcome.features == sum(wire.FEATURE.values())


def test_omap(daemon):
    with daemon.connect() as lapis:
        lapis(wire.put("om/a", b"abc"))
        _small_map(lapis, "omap", "om/a", "", 1024)
        lapis(wire.omap_set("om/a", b"\0\xff/", b"odd"))
        assert lapis(wire.omap_get("om/a", b"\0\xff/")) == b"odd"


def _small_map(lapis, kind, where, stem, name_max):
    """What xattrs and omap have in common."""
    get, put = getattr(wire, kind + "_get"), getattr(wire, kind + "_set")
    remove, listing = getattr(wire, kind + "_remove"), getattr(wire, kind + "_list")
    model = {f"{stem}k{i:03}".encode(): wire.random_bytes(i * 20, i) for i in range(60)}
    model[(stem + "l" * (name_max - len(stem))).encode()] = b"long name"
    for name, value in model.items():
        lapis(put(where, name, value))
    for name, value in model.items():
        assert lapis(get(where, name)) == value
    found, after, rounds = [], b"", 0
    while True:
        page = lapis(listing(where, after, items_max=7))
        found += page.items
        rounds += 1
        if not page.more:
            break
        after = page.items[-1][0]
    assert found == sorted(model.items()) and rounds == 9, rounds
    page = lapis(listing(where, f"{stem}k033", f"{stem}k03", with_values=False))
    assert page == ([(f"{stem}k03{i}".encode(), b"") for i in range(4, 10)], False)
    big = wire.random_bytes(65536)
    lapis(put(where, stem + "big", big))
    assert lapis(get(where, stem + "big")) == big
    refused(lapis, put(where, stem + "big", big + b"x"), "E2BIG")
    refused(lapis, put(where, "n" * (name_max + 1), b""), "ENAMETOOLONG")
    refused(lapis, put(where, "", b""), "EINVAL")
    lapis(remove(where, stem + "big"))
    refused(lapis, get(where, stem + "big"), "ENODATA")
    if kind == "xattr":
        refused(lapis, remove(where, stem + "nothing"), "ENODATA")
    else:
        lapis(remove(where, stem + "nothing"))
    refused(lapis, get(where + "nothing", stem + "k"), "ENOENT")


def test_compound(daemon):
    with daemon.connect() as lapis:
        now = lapis(wire.put("comp/a", b"a" * 10000, xattrs={"user.x": b"1"}))
        change = wire.change
        done = lapis(
            wire.compound(
                "comp/a",
                change("guard_version", offset=now.version_nr),
                change("guard_xattr", "user.x", b"1"),
                change("guard_no_xattr", "user.y"),
                change("write", offset=100, length=5000),
                change("xattr_set", "user.y", b"2"),
                change("xattr_remove", "user.x"),
                change("omap_set", "key", b"value"),
                data=b"b" * 5000,
                offset=100,
            )
        )
        assert done.version_nr > now.version_nr
        expected = b"a" * 100 + b"b" * 5000 + b"a" * 4900
        assert lapis(wire.get("comp/a")).data == expected
        assert lapis(wire.xattr_list("comp/a")).items == [(b"user.y", b"2")]
        assert lapis(wire.omap_get("comp/a", "key")) == b"value"
        for index, error, changes in (
            (0, "ECANCELED", [change("guard_version", offset=now.version_nr)]),
            (1, "ENODATA", [change("guard_xattr", "user.y"), change("guard_xattr", "user.x")]),
            (0, "ECANCELED", [change("guard_xattr", "user.y", b"other")]),
            (0, "EEXIST", [change("guard_no_xattr", "user.y")]),
            (1, "ENODATA", [change("xattr_set", "user.z"), change("xattr_remove", "user.none")]),
        ):
            refusal = refused(
                lapis, wire.compound("comp/a", *changes, change("truncate", offset=5)), error
            )
            failed = wire.WRITTEN.unpack(refusal.reply.meta).failed_idx
            assert failed == index, (failed, index, error)
        refused(lapis, wire.xattr_get("comp/a", "user.z"), "ENODATA")
        assert lapis(wire.get("comp/a")).data == expected
        lapis(wire.compound("comp/a", change("truncate", offset=5), change("omap_remove", "key")))
        assert lapis(wire.get("comp/a")).data == b"aaaaa"
        refused(lapis, wire.omap_get("comp/a", "key"), "ENODATA")
        many = [change("omap_set", f"k{i}", b"v") for i in range(31)]
        lapis(wire.compound("comp/a", *many[:15]))
        refused(lapis, wire.compound("comp/a", *many[:16]), "E2BIG")  # of different names
        lapis(wire.compound("comp/a", *many[:15], *many[:15]))
        refused(lapis, wire.compound("comp/a", *many[:15], *many[:16]), "EINVAL")
        late = [change("omap_set", "k", b"v"), change("guard_no_xattr", "user.q")]
        refused(lapis, wire.compound("comp/a", *late), "EINVAL")
        refused(lapis, wire.compound("comp/a", change("write", length=5), data=b"four"), "EINVAL")
        refused(
            lapis, wire.compound("comp/a", change("write", length=4), data=b"four", offset=1), "EINVAL"
        )


def test_admin(daemon):
    with daemon.connect() as lapis:
        lapis(wire.put("admin/a", b"x" * 9000))
        for request in (
            wire.status(), wire.stats("json"), wire.slow(), wire.config_get(),
            wire.config_get("slow-ms"), wire.explain("admin/a"), wire.alloc("score"),
            wire.heap("stats"), wire.heap("release"), wire.scrub(), wire.scrub("stop"),
            wire.check(), wire.check("stop"),
            wire.config_set("slow-ms=500"), wire.config_set("slow-ms=1000"),
        ):  # fmt: skip
            json.loads(lapis(request))
        assert b"lapis" in lapis(wire.stats("prometheus"))
        dump = json.loads(lapis(wire.alloc("dump")))
        assert [shard["shard"] for shard in dump["shards"]] == [0, 1], dump
        assert all(0 <= shard["score"] <= 1 for shard in dump["shards"]), dump
        assert dump["heap"]["rss_bytes"] > 0 and dump["heap"]["allocator"], dump["heap"]
        # A sanitizer's allocator tells nothing.
        assert len(dump["heap"]["dump"]) > 100 or "san" in rig.BUILD.name, dump["heap"]
        refused(lapis, wire.stats("xml"), "EINVAL")
        refused(lapis, wire.config_get("no-such-thing"), "ENOENT", "EINVAL")
        refused(lapis, wire.config_set("no-such-thing=1"), "ENOENT", "EINVAL")
        refused(lapis, wire.config_set("slow-ms=many"), "EINVAL", "ERANGE")
        refused(lapis, wire.config_set("slow-ms"), "EINVAL")
        refused(lapis, wire.explain("admin/nothing"), "ENOENT")
        refused(lapis, wire.alloc("frobnicate"), "EOPNOTSUPP")
        refused(lapis, wire.heap("frobnicate"), "EINVAL")
        refused(lapis, wire.scrub("frobnicate"), "EINVAL")
        refused(lapis, wire.check("frobnicate"), "EINVAL")


def test_two_shards(daemon):
    with daemon.connect(shard=0) as zero, daemon.connect(shard=1) as one:
        assert (zero.welcome.shard, one.welcome.shard) == (0, 1)
        best = set()
        for number in range(64):
            key = f"two/{number}"
            writer, reader = (zero, one) if number % 2 else (one, zero)
            call = writer.start(wire.put(key, key))
            writer.wait(call)
            best.add(call.reply.shard)
            assert reader(wire.get(key)).data == key.encode()
        assert best == {0, 1}
        calls = []
        for number in range(64):  # each says which shard answers it best
            for lapis in (zero, one):
                calls.append((lapis, number, lapis.start(wire.get(f"two/{number}"))))
        for lapis, number, call in calls:
            assert lapis.wait(call).data == f"two/{number}".encode()
            assert call.reply.shard < 2


def test_flags_and_opcodes(daemon):
    with daemon.connect() as lapis:
        for op in (5, 6, 15, 49, 63, 79, 90, 1000, 65535):
            refused(lapis, wire.Request(op), "ENOSYS")
            refused(lapis, wire.Request(op, b"meta", data=b"data" * 3000), "ENOSYS")
        for bit in (1, 2, *range(3, 32)):
            if 1 << bit != wire.FLAG["ordered"]:
                refused(lapis, wire.Request("ping", flags=1 << bit), "EOPNOTSUPP")
        lapis(wire.ping())


def test_meta_does_not_fit(daemon):
    short_of = {
        "stat": wire.REF, "get": wire.GET, "put": wire.PUT, "upload": wire.REF,
        "write": wire.WRITE, "commit": wire.COMMIT, "abort": wire.REF, "delete": wire.DELETE,
        "list": wire.LIST, "copy": wire.TWO, "move": wire.TWO, "open": wire.REF,
        "close": wire.REF, "truncate": wire.SPACE, "punch": wire.SPACE, "prealloc": wire.SPACE,
        "seek": wire.SEEK, "clone": wire.CLONE, "set": wire.SET_ATTRS, "xattr_get": wire.NAMED,
        "xattr_set": wire.NAMED, "xattr_remove": wire.NAMED, "xattr_list": wire.RANGE,
        "omap_get": wire.NAMED, "omap_set": wire.NAMED, "omap_remove": wire.NAMED,
        "omap_list": wire.RANGE, "compound": wire.COMPOUND, "make": wire.MAKE,
        "remove": wire.REMOVE, "link": wire.TWO, "rename": wire.TWO, "readdir": wire.READDIR,
        "readlink": wire.REF, "stats": wire.TEXT, "config_get": wire.TEXT,
        "config_set": wire.TEXT, "explain": wire.REF, "alloc": wire.TEXT, "heap": wire.TEXT,
        "scrub": wire.TEXT, "check": wire.TEXT,
    }  # fmt: skip
    with daemon.connect() as lapis:
        for op, layout in short_of.items():
            for length in (0, 1, 8, layout.size - 1, layout.size + 1, layout.size + 3000):
                if length != layout.size:
                    refused(lapis, wire.Request(op, bytes(length)), "EINVAL")
            # A path that is said to be longer than what follows.
            raw = wire.REF.pack(path_bytes=9)
            if layout not in (wire.LIST, wire.TEXT):
                meta = raw + bytes(layout.size - len(raw)) + b"abc"
                refused(lapis, wire.Request(op, meta), "EINVAL")
        for op in ("ping", "sync", "status", "slow"):
            refused(lapis, wire.Request(op, b"x"), "EINVAL")
        lapis(wire.ping())


def test_wrong_data_sum(daemon):
    """Data whose checksum does not fit is not stored (EBADMSG)."""
    with daemon.connect() as lapis:
        lapis(wire.put("sum/a", b"good" * 5000))
        request = wire.put("sum/a", b"evil" * 5000)
        raw = bytearray(wire.message("put", 999, request.meta, request.data))
        raw[-1] ^= 1
        lapis.calls[999] = call = wire.Call(999, request, len(request.data))
        lapis.send(bytes(raw))
        reply = lapis.wait_reply(call)
        assert reply.status == errno.EBADMSG, reply.status
        assert lapis(wire.get("sum/a")).data == b"good" * 5000


def test_replies_in_flight(daemon):
    """Many requests under way, within and beyond the credits."""
    with daemon.connect(crc=CRC_ALL) as lapis:
        lapis.credits = 1 << 30  # the daemon has to keep its limit itself
        data = wire.random_bytes(3000)
        calls = [lapis.start(wire.put(f"flight/{i}", data)) for i in range(1000)]
        for call in calls:
            lapis.wait(call)
        calls = [lapis.start(wire.get(f"flight/{i}")) for i in range(1000)]
        for call in reversed(calls):
            assert lapis.wait(call).data == data
        # Requests on one object take effect in the order in which they arrive.
        calls = [lapis.start(wire.put("flight/same", str(i))) for i in range(100)]
        read = lapis.start(wire.get("flight/same"))
        assert lapis.wait(read).data == b"99"
        for call in calls:
            lapis.wait(call)


if __name__ == "__main__":
    sys.exit(rig.main(globals()))
