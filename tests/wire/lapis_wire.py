#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A client of the native protocol in plain Python, written from docs/format/wire.md alone.

It is the test of that page: what is not there is not here. page.py holds the tables below against
those of the page, so neither can change without the other.

    with Connection("unix:/run/lapis/lapis.sock", crc=CRC_ALL) as lapis:
        lapis(put("photos/a.jpg", picture))             # one request, its answer
        calls = [lapis.start(stat(key)) for key in keys]     # many under way
        answers = [lapis.wait(call) for call in calls]       # in any order

A request that fails raises Refused, which has the error number. An answer that breaks the rules of
the page (a checksum, a length, a request that nobody made) raises BadReply, always: the client
verifies all that the agreed mode lets it verify. One Connection belongs to one thread.
"""

import collections
import errno
import hashlib
import mmap
import os
import select
import socket
import struct
import time

from sums import BLOCK_BYTES, checksums, crc32c, pieces

MAGIC = 0x5257504C
VERSION = 1
META_MAX = 65536
LONG_META_MAX = 73728
DATA_MAX = 4194304
PIECE_MAX = 1048576
HEADER_BYTES = 64

KIND = {"request": 1, "reply": 2, "notice": 3}
FLAG = {"more": 0x1, "ordered": 0x2, "shared": 0x4}
FEATURE = {"long_meta": 0x1, "goes_on": 0x2}
CRC = {"off": 0, "header": 1, "all": 2}
ATTR_FLAG = {"made_by_put": 0x1, "spread": 0x2, "immutable": 0x8, "append": 0x10}
SET = {
    "mode": 0x1, "uid": 0x2, "gid": 0x4, "atime": 0x10, "mtime": 0x20, "ctime": 0x40, "btime": 0x80,
    "flags": 0x100, "atime_now": 0x10000, "mtime_now": 0x20000,
}  # fmt: skip
IF = {"any": 0, "absent": 1, "exists": 2, "version": 3}
PATH = {"auto": 0, "inline": 1, "deferred": 2, "direct": 3}
RENAME = {"noreplace": 0x1, "exchange": 0x2}
OP = {
    "hello": 1, "auth": 2, "ping": 3, "share": 4, "release": 5, "stat": 16, "get": 17, "put": 18, "upload": 19, "write": 20,
    "commit": 21, "abort": 22, "delete": 23, "list": 24, "copy": 25, "move": 26, "open": 27,
    "close": 28, "truncate": 29, "punch": 30, "prealloc": 31, "seek": 32, "clone": 33, "set": 34,
    "xattr_get": 40, "xattr_set": 41, "xattr_remove": 42, "xattr_list": 43, "omap_get": 44,
    "omap_set": 45, "omap_remove": 46, "omap_list": 47, "compound": 48, "make": 56, "remove": 57,
    "link": 58, "rename": 59, "readdir": 60, "readlink": 61, "sync": 62, "status": 80, "stats": 81,
    "slow": 82, "config_get": 83, "config_set": 84, "explain": 85, "alloc": 86, "heap": 87,
    "scrub": 88, "check": 89,
}  # fmt: skip
CHANGE_KIND = {
    "guard_version": 1, "guard_xattr": 2, "guard_no_xattr": 3, "write": 16, "truncate": 17,
    "punch": 18, "xattr_set": 19, "xattr_remove": 20, "omap_set": 21, "omap_remove": 22,
}  # fmt: skip
FILE, DIRECTORY, SYMLINK, FIFO, SOCKET, CHAR_DEVICE, BLOCK_DEVICE = range(1, 8)

CRC_OFF, CRC_HEADER, CRC_ALL = 0, 1, 2
ANY_SHARD = 0xFFFFFFFF
CLIENTS_OWN = 0xFFFFFFFF
TO_THE_END = 0xFFFFFFFFFFFFFFFF


class BadReply(Exception):
    """The daemon broke a rule of the page."""


class Closed(Exception):
    """The daemon closed the connection."""


class Refused(Exception):
    """An answer with an error. errno: its number; text: for people; reply: all of it."""

    def __init__(self, reply, what):
        self.errno = reply.status
        self.text = reply.meta.decode("utf-8", "replace")
        self.reply = reply
        name = errno.errorcode.get(self.errno, str(self.errno))
        super().__init__(f"{what}: {name}: {self.text}")


# --------------------------------------------------------------------------------------------
# Structs


class Layout:
    """A struct of the page: its fields as pairs of a format letter of `struct` and a name."""

    def __init__(self, text):
        words = text.split()
        self.codes, self.names = words[0::2], words[1::2]
        self.struct = struct.Struct("<" + "".join(self.codes))
        self.tuple = collections.namedtuple("Fields", self.names)
        self.size = self.struct.size

    def pack(self, **fields):
        values = []
        for code, name in zip(self.codes, self.names):
            nothing = bytes(int(code[:-1])) if code.endswith("s") else 0
            values.append(fields.pop(name, nothing))
        assert not fields, fields
        return self.struct.pack(*values)

    def unpack(self, raw, offset=0):
        if offset + self.size > len(raw):
            raise BadReply(f"{len(raw)} bytes of meta hold no struct of {self.size} at {offset}")
        fields = self.tuple(*self.struct.unpack_from(raw, offset))
        for name in self.names:
            if name.startswith("reserved") and getattr(fields, name) != 0:
                raise BadReply(f"{name} is not zero: {fields}")
        return fields


HEADER = Layout(
    "I magic B version B kind H opcode Q request_id I flags I status I shard I meta_bytes"
    " I data_bytes I crc_cnt Q offset I meta_crc I reserved I reserved_b I header_crc"
)
REF = Layout("Q ino H path_bytes H reserved I reserved_b")
ATTRS = Layout(
    "Q ino Q size_bytes Q blocks Q version_nr q atime_ns q mtime_ns q ctime_ns q btime_ns"
    " Q parent_ino Q entries_cnt I uid I gid I nlink I flags I rdev H mode B type B reserved"
    " Q reserved_b"
)
HELLO = Layout(
    "I version_min I version_max Q features I crc_mode I credits I shard I auth Q reserved"
    " H name_bytes H reserved_b I reserved_c"
)
WELCOME = Layout(
    "I version I crc_mode Q features I credits I credit_bytes I shard_cnt I shard Q uuid_low"
    " Q uuid_high H server_bytes H reserved I reserved_b Q reserved_c"
)
SHARE = Layout("Q bytes")
SHARED = Layout("I offset I bytes")
GET = Layout("16s ref Q offset Q length Q version_nr")
GOT = Layout("Q size_bytes Q version_nr")
PUT = Layout(
    "16s ref Q version_nr q mtime_ns I condition I uid I gid H mode B write_path B reserved"
    " H xattr_cnt H reserved_b I reserved_c"
)
COMMIT = Layout("56s put Q ino")
WRITE = Layout("16s ref B write_path B append H reserved I reserved_b")
WRITTEN = Layout("Q offset Q version_nr I failed_idx B write_path B reserved H reserved_b")
SPACE = Layout("16s ref Q offset Q length")
SEEK = Layout("16s ref Q offset I hole I reserved")
FOUND = Layout("Q offset")
CLONE = Layout("16s ref Q src_ino Q src_offset Q offset Q length")
SET_ATTRS = Layout("16s ref 112s attrs I mask I reserved")
DELETE = Layout("16s ref Q version_nr I condition I or_dir")
TWO = Layout("16s ref 16s to Q version_nr I condition I reserved")
MAKE = Layout(
    "16s ref I uid I gid I rdev H mode B type B spread B or_open B open H target_bytes I reserved"
)
REMOVE = Layout("16s ref I is_dir I reserved")
NAMED = Layout("16s ref H name_bytes H reserved I value_bytes I condition I reserved_b")
VALUE = Layout("I value_bytes I reserved")
TEXT = Layout("I text_bytes I reserved")
PAIR = Layout("H name_bytes H reserved I value_bytes")
RANGE = Layout("16s ref H after_bytes H prefix_bytes I items_max I with_values I reserved")
LIST = Layout(
    "H prefix_bytes H after_bytes I items_max I delimit I with_attrs Q reserved Q reserved_b"
)
LISTED = Layout("I item_cnt I more")
ITEM = Layout("Q ino Q cookie Q reserved H name_bytes B type B has_attrs I reserved_b")
READDIR = Layout(
    "16s ref Q cookie I items_max I with_attrs H after_bytes B by_name B reserved I reserved_b"
)
COMPOUND = Layout("16s ref I change_cnt I reserved")
CHANGE = Layout("I kind H name_bytes H reserved I value_bytes I reserved_b Q offset Q length")

STRUCTS = {
    "wire_header": HEADER, "wire_ref": REF, "wire_attrs": ATTRS, "wire_hello": HELLO,
    "wire_welcome": WELCOME, "wire_get": GET, "wire_got": GOT, "wire_put": PUT,
    "wire_commit": COMMIT, "wire_write": WRITE, "wire_written": WRITTEN, "wire_space": SPACE,
    "wire_seek": SEEK, "wire_found": FOUND, "wire_clone": CLONE, "wire_set": SET_ATTRS,
    "wire_delete": DELETE, "wire_two": TWO, "wire_make": MAKE, "wire_remove": REMOVE,
    "wire_named": NAMED, "wire_value": VALUE, "wire_text": TEXT, "wire_pair": PAIR,
    "wire_range": RANGE, "wire_list": LIST, "wire_listed": LISTED, "wire_item": ITEM,
    "wire_readdir": READDIR, "wire_compound": COMPOUND, "wire_change": CHANGE,
    "wire_share": SHARE, "wire_shared": SHARED,
}  # fmt: skip
CONSTANTS = {
    "WIRE_KIND": KIND, "WIRE_FLAG": FLAG, "WIRE_CRC": CRC, "WIRE_FEATURE": FEATURE, "WIRE_ATTR_FLAG": ATTR_FLAG,
    "WIRE_SET": SET, "WIRE_IF": IF, "WIRE_PATH": PATH, "WIRE_RENAME": RENAME, "WIRE_OP": OP,
    "WIRE_CHANGE_KIND": CHANGE_KIND,
    "WIRE": {
        "version": VERSION, "meta_max": META_MAX, "long_meta_max": LONG_META_MAX, "data_max": DATA_MAX, "piece_max": PIECE_MAX,
        "block_bytes": BLOCK_BYTES,
    },
}  # fmt: skip


def as_bytes(text):
    return text.encode() if isinstance(text, str) else bytes(text)


class Meta:
    """Reads the meta of a reply from front to back; all of it must be used up."""

    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def struct(self, layout):
        fields = layout.unpack(self.raw, self.at)
        self.at += layout.size
        return fields

    def string(self, length):
        if self.at + length > len(self.raw):
            raise BadReply(f"a string of {length} bytes at {self.at} of {len(self.raw)}")
        self.at += length
        return self.raw[self.at - length : self.at]

    def end(self):
        if self.at != len(self.raw):
            raise BadReply(f"{len(self.raw) - self.at} bytes of meta too many")


# --------------------------------------------------------------------------------------------
# What an object is called: a path from the root, the number of an inode, or (ino, name).


def _target(where):
    """Returns the struct lp_wire_ref and the path that follows the fixed part."""
    ino, path = 0, b""
    if isinstance(where, tuple):
        ino, path = where[0], as_bytes(where[1])
    elif isinstance(where, int):
        ino = where
    else:
        path = as_bytes(where)
    return REF.pack(ino=ino, path_bytes=len(path)), path


# --------------------------------------------------------------------------------------------
# Requests: each function makes one, from which Connection.start() makes a message.


class Request:
    def __init__(self, op, meta=b"", answer=None, data=b"", offset=0, flags=0):
        self.op, self.meta, self.data, self.offset, self.flags = op, meta, data, offset, flags
        self.answer = answer or _nothing

    def ordered(self):
        """The same, but it may be answered before it is durable."""
        self.flags |= FLAG["ordered"]
        return self


def _one(reply):
    if len(reply.parts) != 1:
        raise BadReply(f"{len(reply.parts)} replies where one is expected")
    return Meta(reply.meta)


def _only(layout):
    def answer(reply):
        meta = _one(reply)
        fields = meta.struct(layout)
        meta.end()
        return fields

    return answer


def _nothing(reply):
    _one(reply).end()


_attrs, _written = _only(ATTRS), _only(WRITTEN)


def _value(reply):
    parts = []
    for part in reply.parts:
        meta = Meta(part.meta)
        parts.append(meta.string(meta.struct(VALUE).value_bytes))
        meta.end()
    return b"".join(parts)


Got = collections.namedtuple("Got", "data size_bytes version_nr")


def ping():
    return Request("ping")


def stat(where):
    ref, path = _target(where)
    return Request("stat", ref + path, _attrs)


def share(size):
    """Memory that is shared: how much. Connection.share() does all of it."""
    return Request("share", SHARE.pack(bytes=size), _only(SHARE))


def get(where, offset=0, length=TO_THE_END, version=0):
    ref, path = _target(where)

    def answer(reply):
        at, data, first = offset, [], None
        for part in reply.parts:
            meta = Meta(part.meta[: GOT.size])  # behind it is where shared data was
            got = meta.struct(GOT)
            meta.end()
            first = first or got
            if part.data and part.offset != at:
                raise BadReply(f"a piece at {part.offset}, not {at}")
            at += len(part.data)
            data.append(part.data)
        if at - offset != max(0, min(length, first.size_bytes - offset)):
            raise BadReply(f"{at - offset} bytes of {first.size_bytes} from {offset}")
        return Got(b"".join(data), first.size_bytes, first.version_nr)

    fixed = GET.pack(ref=ref, offset=offset, length=length, version_nr=version)
    return Request("get", fixed + path, answer)


def _pairs(xattrs):
    raw = b""
    for name, value in (xattrs or {}).items():
        name, value = as_bytes(name), as_bytes(value)
        raw += PAIR.pack(name_bytes=len(name), value_bytes=len(value)) + name + value
    return raw


def _put_meta(where, condition, version, mtime_ns, uid, gid, mode, write_path, xattrs):
    ref, path = _target(where)
    fixed = PUT.pack(
        ref=ref,
        version_nr=version,
        mtime_ns=mtime_ns,
        condition=IF[condition],
        uid=uid,
        gid=gid,
        mode=mode,
        write_path=PATH[write_path],
        xattr_cnt=len(xattrs or {}),
    )
    return fixed, path + _pairs(xattrs)


def put(where, data=b"", condition="any", version=0, mtime_ns=0, uid=CLIENTS_OWN, gid=CLIENTS_OWN,
        mode=0xFFFF, write_path="auto", xattrs=None):  # fmt: skip
    meta = _put_meta(where, condition, version, mtime_ns, uid, gid, mode, write_path, xattrs)
    return Request("put", meta[0] + meta[1], _attrs, as_bytes(data))


def upload(where):
    ref, path = _target(where)
    return Request("upload", ref + path, _attrs)


def write(where, data, offset=0, append=False, write_path="auto"):
    ref, path = _target(where)
    fixed = WRITE.pack(ref=ref, write_path=PATH[write_path], append=int(append))
    return Request("write", fixed + path, _written, as_bytes(data), offset)


def commit(ino, where, condition="any", version=0, mtime_ns=0, uid=CLIENTS_OWN, gid=CLIENTS_OWN,
           mode=0xFFFF, write_path="auto", xattrs=None):  # fmt: skip
    meta = _put_meta(where, condition, version, mtime_ns, uid, gid, mode, write_path, xattrs)
    return Request("commit", COMMIT.pack(put=meta[0], ino=ino) + meta[1], _attrs)


def abort(ino):
    return Request("abort", _target(ino)[0])


def delete(where, condition="any", version=0, or_dir=False):
    ref, path = _target(where)
    fixed = DELETE.pack(ref=ref, version_nr=version, condition=IF[condition], or_dir=int(or_dir))
    return Request("delete", fixed + path)


Listing = collections.namedtuple("Listing", "items more")
Item = collections.namedtuple("Item", "name ino type cookie attrs")


def _items(reply):
    meta, items = _one(reply), []
    listed = meta.struct(LISTED)
    for _ in range(listed.item_cnt):
        item = meta.struct(ITEM)
        name = meta.string(item.name_bytes)
        attrs = meta.struct(ATTRS) if item.has_attrs else None
        items.append(Item(name, item.ino, item.type, item.cookie, attrs))
    meta.end()
    return Listing(items, bool(listed.more))


def list_keys(prefix="", after="", delimit=False, items_max=0, with_attrs=False):
    prefix, after = as_bytes(prefix), as_bytes(after)
    fixed = LIST.pack(
        prefix_bytes=len(prefix),
        after_bytes=len(after),
        items_max=items_max,
        delimit=int(delimit),
        with_attrs=int(with_attrs),
    )
    return Request("list", fixed + prefix + after, _items)


def _two(op, answer, there, new, condition=0, version=0):
    (ref, path), (to, to_path) = _target(there), _target(new)
    fixed = TWO.pack(ref=ref, to=to, version_nr=version, condition=condition)
    return Request(op, fixed + path + to_path, answer)


def copy(there, new, condition="any", version=0):
    return _two("copy", _attrs, there, new, IF[condition], version)


def move(there, new, condition="any", version=0):
    return _two("move", _attrs, there, new, IF[condition], version)


def link(there, new):
    return _two("link", _attrs, there, new)


def rename(there, new, *flags):
    return _two("rename", None, there, new, sum(RENAME[flag] for flag in flags))


def open_(where):
    ref, path = _target(where)
    return Request("open", ref + path, _attrs)


def close(ino):
    return Request("close", _target(ino)[0])


def _space(op, where, offset, length):
    ref, path = _target(where)
    return Request(op, SPACE.pack(ref=ref, offset=offset, length=length) + path, _written)


def truncate(where, size):
    return _space("truncate", where, size, 0)


def punch(where, offset, length):
    return _space("punch", where, offset, length)


def prealloc(where, offset, length):
    return _space("prealloc", where, offset, length)


def seek(where, offset, hole=False):
    ref, path = _target(where)
    fixed = SEEK.pack(ref=ref, offset=offset, hole=int(hole))
    return Request("seek", fixed + path, lambda reply: _only(FOUND)(reply).offset)


def clone(where, src_ino, src_offset, offset, length):
    ref, path = _target(where)
    fixed = CLONE.pack(
        ref=ref, src_ino=src_ino, src_offset=src_offset, offset=offset, length=length
    )
    return Request("clone", fixed + path, _written)


def set_attrs(where, *now, **attrs):
    """set_attrs("a", "mtime_now", mode=0o600, atime_ns=5)"""
    ref, path = _target(where)
    mask = sum(SET[name] for name in now) + sum(SET[name.removesuffix("_ns")] for name in attrs)
    return Request("set", SET_ATTRS.pack(ref=ref, attrs=ATTRS.pack(**attrs), mask=mask) + path, _attrs)


def _named(op, where, name, value=b"", condition="any", answer=None):
    (ref, path), name, value = _target(where), as_bytes(name), as_bytes(value)
    fixed = NAMED.pack(
        ref=ref, name_bytes=len(name), value_bytes=len(value), condition=IF[condition]
    )
    return Request(op, fixed + path + name + value, answer)


def xattr_get(where, name):
    return _named("xattr_get", where, name, answer=_value)


def xattr_set(where, name, value, condition="any"):
    return _named("xattr_set", where, name, value, condition)


def xattr_remove(where, name):
    return _named("xattr_remove", where, name)


def omap_get(where, name):
    return _named("omap_get", where, name, answer=_value)


def omap_set(where, name, value):
    return _named("omap_set", where, name, value)


def omap_remove(where, name):
    return _named("omap_remove", where, name)


def _pairs_answer(reply):
    meta, pairs = _one(reply), []
    listed = meta.struct(LISTED)
    for _ in range(listed.item_cnt):
        pair = meta.struct(PAIR)
        name = meta.string(pair.name_bytes)
        pairs.append((name, meta.string(pair.value_bytes)))
    meta.end()
    return Listing(pairs, bool(listed.more))


def _range(op, where, after, prefix, items_max, with_values):
    (ref, path), after, prefix = _target(where), as_bytes(after), as_bytes(prefix)
    fixed = RANGE.pack(
        ref=ref,
        after_bytes=len(after),
        prefix_bytes=len(prefix),
        items_max=items_max,
        with_values=int(with_values),
    )
    return Request(op, fixed + path + after + prefix, _pairs_answer)


def xattr_list(where, after="", prefix="", items_max=0, with_values=True):
    return _range("xattr_list", where, after, prefix, items_max, with_values)


def omap_list(where, after="", prefix="", items_max=0, with_values=True):
    return _range("omap_list", where, after, prefix, items_max, with_values)


def change(kind, name="", value=b"", offset=0, length=0):
    name, value = as_bytes(name), as_bytes(value)
    fixed = CHANGE.pack(
        kind=CHANGE_KIND[kind],
        name_bytes=len(name),
        value_bytes=len(value),
        offset=offset,
        length=length,
    )
    return fixed + name + value


def compound(where, *changes, data=b"", offset=0):
    ref, path = _target(where)
    fixed = COMPOUND.pack(ref=ref, change_cnt=len(changes))
    return Request("compound", fixed + path + b"".join(changes), _written, as_bytes(data), offset)


def make(where, type, mode=0o755, target="", spread=False, or_open=False, open=False, rdev=0,
         uid=CLIENTS_OWN, gid=CLIENTS_OWN):  # fmt: skip
    (ref, path), target = _target(where), as_bytes(target)
    fixed = MAKE.pack(
        ref=ref,
        uid=uid,
        gid=gid,
        rdev=rdev,
        mode=mode,
        type=type,
        spread=int(spread),
        or_open=int(or_open),
        open=int(open),
        target_bytes=len(target),
    )
    return Request("make", fixed + path + target, _attrs)


def remove(where, is_dir=False):
    ref, path = _target(where)
    return Request("remove", REMOVE.pack(ref=ref, is_dir=int(is_dir)) + path)


def readdir(where, cookie=0, items_max=0, with_attrs=False, by_name=False, after=b""):
    ref, path = _target(where)
    fixed = READDIR.pack(
        ref=ref, cookie=cookie, items_max=items_max, with_attrs=int(with_attrs),
        by_name=int(by_name), after_bytes=len(as_bytes(after)),
    )  # fmt: skip
    return Request("readdir", fixed + path + as_bytes(after), _items)


def readlink(where):
    ref, path = _target(where)
    return Request("readlink", ref + path, _value)


def sync():
    return Request("sync")


def _admin(op, text):
    raw = as_bytes(text)
    return Request(op, TEXT.pack(text_bytes=len(raw)) + raw, _value)


def status():
    return Request("status", b"", _value)


def stats(form="json"):
    return _admin("stats", form)


def slow():
    return Request("slow", b"", _value)


def config_get(name=""):
    return _admin("config_get", name)


def config_set(text):
    return _admin("config_set", text)


def explain(where):
    ref, path = _target(where)
    return Request("explain", ref + path, _value)


def alloc(what="score"):
    return _admin("alloc", what)


def heap(what="stats"):
    return _admin("heap", what)


def scrub(what="status"):
    return _admin("scrub", what)


def check(what="status"):
    return _admin("check", what)


# --------------------------------------------------------------------------------------------
# Messages


def message(op, request_id, meta=b"", data=b"", offset=0, flags=0, crc=CRC_ALL, **other):
    """The bytes of one request. `other` overrides fields of the header after everything, but the
    checksums, has been computed: a hostile client's way to be wrong in one thing."""
    sums = checksums(offset, data) if crc == CRC_ALL else []
    raw_sums = struct.pack(f"<{len(sums)}I", *sums)
    behind = meta + raw_sums
    fields = {
        "magic": MAGIC,
        "version": VERSION,
        "kind": KIND["request"],
        "opcode": OP[op] if isinstance(op, str) else op,
        "request_id": request_id,
        "flags": flags,
        "meta_bytes": len(meta),
        "data_bytes": len(data),
        "crc_cnt": len(sums),
        "offset": offset,
        "meta_crc": crc32c(behind) if behind and crc != CRC_OFF else 0,
    }
    fields.update(other)
    header = HEADER.pack(**fields)
    if crc != CRC_OFF and "header_crc" not in other:
        header = header[:-4] + struct.pack("<I", crc32c(header[:-4]))
    return header + behind + data


Part = collections.namedtuple("Part", "meta data offset")


class Reply:
    """An answer: of several parts, where its data or its value came in several messages."""

    def __init__(self, header):
        self.opcode, self.status, self.shard = header.opcode, header.status, header.shard
        self.parts = []
        self.done = False

    @property
    def meta(self):
        return self.parts[0].meta


class Call:
    """A request under way. reply: what there is of its answer; handler: None, or called with it."""

    def __init__(self, request_id, request, message_data_bytes):
        self.request_id, self.request, self.data_bytes = request_id, request, message_data_bytes
        self.reply = None


def connect(address, timeout_s=30.0):
    """A connected socket. address: unix:PATH or tcp:HOST:PORT."""
    scheme, _, rest = address.partition(":")
    if scheme == "unix":
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        sock.settimeout(timeout_s)
        sock.connect(rest)
    elif scheme == "tcp":
        host, _, port = rest.rpartition(":")
        sock = socket.create_connection((host.strip("[]"), int(port)), timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    else:
        raise ValueError(f"{address}: neither unix:PATH nor tcp:HOST:PORT")
    return sock


class Connection:
    """One connection. After hello: welcome (its fields), server (name and version), crc."""

    def __init__(self, address, crc=CRC_ALL, shard=ANY_SHARD, credits=0, name="lapis_wire.py",
                 timeout_s=30.0, hello=True, features=FEATURE["long_meta"]):  # fmt: skip
        self.sock = connect(address, timeout_s)
        self.timeout_s = timeout_s
        self.calls = {}  # request_id -> Call, without a (last) reply
        self.next_id = 1
        self.crc = CRC_ALL  # hello carries its checksums whatever the mode
        self.credits, self.credit_bytes = 1, DATA_MAX
        self.meta_max = META_MAX
        self.in_bytes = bytearray()
        self.descriptors = []  # that came, and nobody has taken yet
        self.shared = None  # memory, once it is shared
        self.shared_replies = 0  # that had their data there; none of it is released by itself
        self.welcome = None
        self.server = ""
        if hello:
            try:
                self.hello(crc, shard, credits, name, features=features)
            except BaseException:
                self.sock.close()
                raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.descriptors = []

    def share(self, size):
        """Asks for shared memory; returns its descriptor, which is the caller's."""
        given = self(share(size)).bytes
        if given == 0 or given % (1 << 20) or len(self.descriptors) != 1:
            raise BadReply(f"{given} bytes are shared, with {len(self.descriptors)} descriptors")
        self.shared = mmap.mmap(self.descriptors[0], given, prot=mmap.PROT_READ)
        return self.descriptors.pop()

    def release(self, count=None):
        """Is done with so many of the replies that had shared data, or with all."""
        count = self.shared_replies if count is None else count
        self.send(message("release", 0, kind=KIND["notice"], crc=self.crc, offset=count))

    def hello(self, crc=CRC_ALL, shard=ANY_SHARD, credits=0, name="lapis_wire.py",
              version_min=VERSION, version_max=VERSION, features=FEATURE["long_meta"], auth=0):  # fmt: skip
        raw = as_bytes(name)
        fixed = HELLO.pack(
            version_min=version_min,
            version_max=version_max,
            features=features,
            crc_mode=crc,
            credits=credits,
            shard=shard,
            auth=auth,
            name_bytes=len(raw),
        )

        def answer(reply):
            meta = _one(reply)
            welcome = meta.struct(WELCOME)
            self.server = meta.string(welcome.server_bytes).decode()
            meta.end()
            return welcome

        welcome = self(Request("hello", fixed + raw, answer))
        if welcome.version != VERSION or welcome.crc_mode < crc or welcome.crc_mode > CRC_ALL:
            raise BadReply(f"not what was wanted: {welcome}")
        if welcome.credits == 0 or welcome.shard >= welcome.shard_cnt:
            raise BadReply(f"of no use: {welcome}")
        if welcome.features & ~features:
            raise BadReply(f"features that were not wanted: {welcome}")
        self.crc, self.welcome = welcome.crc_mode, welcome
        self.meta_max = LONG_META_MAX if welcome.features & FEATURE["long_meta"] else META_MAX
        self.credits, self.credit_bytes = welcome.credits, welcome.credit_bytes
        return welcome

    # -- requests

    def __call__(self, request):
        return self.wait(self.start(request))

    def start(self, request):
        """Sends a request, within the credits: else it takes replies until there is room."""
        under_way = lambda: sum(call.data_bytes for call in self.calls.values())
        while self.calls and (
            len(self.calls) >= self.credits
            or under_way() + len(request.data) > max(self.credit_bytes, len(request.data))
        ):
            self._take_some()
        call = Call(self.next_id, request, len(request.data))
        self.next_id += 1
        self.calls[call.request_id] = call
        self.send(
            message(
                request.op,
                call.request_id,
                request.meta,
                request.data,
                request.offset,
                request.flags,
                self.crc,
            )
        )
        return call

    def wait_reply(self, call):
        """The whole reply to a request, good or bad."""
        while call.reply is None or not call.reply.done:
            self._take_some()
        return call.reply

    def wait(self, call):
        reply = self.wait_reply(call)
        if reply.status != 0:
            raise Refused(reply, call.request.op)
        return call.request.answer(reply)

    def wait_any(self):
        """The first of the calls under way that has its whole reply."""
        before = dict(self.calls)
        while len(self.calls) == len(before):
            self._take_some()
        return [call for request_id, call in before.items() if request_id not in self.calls]

    # -- bytes

    def send(self, raw):
        """Sends, and takes replies meanwhile, so that neither side waits for the other."""
        view = memoryview(raw)
        deadline = time.monotonic() + self.timeout_s
        while view:
            # Not select(): its descriptors end at 1024.
            poll = select.poll()
            poll.register(self.sock, select.POLLIN | select.POLLOUT)
            events = dict(poll.poll(1000)).get(self.sock.fileno(), 0)
            if events & ~select.POLLOUT:
                self._receive()
            if events & select.POLLOUT:
                try:
                    view = view[self.sock.send(view, socket.MSG_DONTWAIT) :]
                except BlockingIOError:
                    pass
                except (BrokenPipeError, ConnectionResetError) as error:
                    raise Closed(str(error)) from error
            if time.monotonic() > deadline:
                raise TimeoutError("nothing can be sent")

    def _receive(self):
        try:
            raw, came, _, _ = socket.recv_fds(self.sock, 1 << 20, 4)
            self.descriptors += came
        except ConnectionResetError as error:
            raise Closed(str(error)) from error
        if not raw:
            raise Closed("the daemon closed the connection")
        self.in_bytes += raw

    def next_message(self):
        """The next message, verified: header, meta, data."""
        header, whole = None, HEADER_BYTES
        while len(self.in_bytes) < whole or header is None:
            if header is None and len(self.in_bytes) >= HEADER_BYTES:
                header = self._check_header(bytes(self.in_bytes[:HEADER_BYTES]))
                is_shared = header.flags & FLAG["shared"]
                whole += header.meta_bytes + 4 * header.crc_cnt
                whole += 0 if is_shared else header.data_bytes
                continue
            self._receive()
        sums_at = HEADER_BYTES + header.meta_bytes
        data_at = sums_at + 4 * header.crc_cnt
        meta = bytes(self.in_bytes[HEADER_BYTES:sums_at])
        sums = bytes(self.in_bytes[sums_at:data_at])
        data = bytes(self.in_bytes[data_at:whole])
        if header.flags & FLAG["shared"]:
            data = self._shared_data(header, meta)
        del self.in_bytes[:whole]
        self._check_sums(header, meta, sums, data)
        return header, meta, data

    def _shared_data(self, header, meta):
        if self.shared is None or header.opcode != OP["get"] or len(meta) <= GOT.size:
            raise BadReply(f"shared data that cannot be: {header}")
        parts = [SHARED.unpack(meta, at) for at in range(GOT.size, len(meta), SHARED.size)]
        self.shared_replies += 1
        data = b"".join(self.shared[part.offset : part.offset + part.bytes] for part in parts)
        if len(parts) > 16 or not all(part.bytes for part in parts) or len(data) != header.data_bytes:
            raise BadReply(f"parts that are not {header.data_bytes} bytes: {parts}")
        return data

    def _check_header(self, raw):
        header = HEADER.unpack(raw)
        if header.magic != MAGIC or header.version != VERSION or header.kind != KIND["reply"]:
            raise BadReply(f"no reply: {header}")
        wanted = crc32c(raw[:-4]) if self.crc != CRC_OFF else 0
        if header.header_crc != wanted:
            raise BadReply(f"header_crc {header.header_crc:#x}, not {wanted:#x}: {header}")
        if header.meta_bytes > self.meta_max or header.data_bytes > PIECE_MAX:
            raise BadReply(f"too long: {header}")
        if header.flags & ~(FLAG["more"] | FLAG["shared"]) or (header.data_bytes == 0 and header.offset != 0):
            raise BadReply(f"flags or offset: {header}")
        return header

    def _check_sums(self, header, meta, sums, data):
        wanted = crc32c(meta + sums) if self.crc != CRC_OFF and meta + sums else 0
        if header.meta_crc != wanted:
            raise BadReply(f"meta_crc {header.meta_crc:#x}, not {wanted:#x}: {header}")
        expected = checksums(header.offset, data) if self.crc == CRC_ALL else []
        if struct.pack(f"<{len(expected)}I", *expected) != sums:
            raise BadReply(f"the data's checksums do not fit: {header}")

    def _take_some(self):
        header, meta, data = self.next_message()
        call = self.calls.get(header.request_id)
        if call is None:
            if header.request_id == 0 and header.opcode == 0 and header.status != 0:
                reply = Reply(header)
                reply.parts.append(Part(meta, data, 0))
                raise Refused(reply, "the stream")
            raise BadReply(f"a reply to no request: {header}")
        op = call.request.op
        if header.opcode != (OP[op] if isinstance(op, str) else op):
            raise BadReply(f"another opcode: {header}")
        if header.status != 0 and (header.flags or data):
            raise BadReply(f"an error with more: {header}")
        if call.reply is None or header.status != 0:
            call.reply = Reply(header)
        call.reply.parts.append(Part(meta, data, header.offset))
        if not header.flags & FLAG["more"]:
            call.reply.done = True
            del self.calls[header.request_id]


def random_bytes(length, seed=0):
    """Bytes that compress badly, differ by seed, and are made quickly."""
    return hashlib.shake_128(f"{seed}".encode()).digest(length)
