#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Goal: lapis_wire.py and docs/format/wire.md say the same. Method: every table of the page is
parsed and held against the client's constants and structs, names, offsets and sizes, and the other
way round; then what the page's prose promises of checksums, by known values and its own example."""

import os
import pathlib
import re
import struct
import sys

import lapis_wire as wire

ROOT = pathlib.Path(os.environ.get("LP_TEST_SRC", pathlib.Path(__file__).parent.parent.parent))
HEAD = re.compile(r"^(Struct|Constants|Flags): (?:lp_|LP_)(\w+)(?: size (\d+))?$")


def tables(text):
    """kind, name, size, rows of each table."""
    found = None
    for line in text.splitlines():
        if head := HEAD.match(line):
            if found:
                yield found
            found = (head[1], head[2], int(head[3] or 0), [])
        elif found and line.startswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if re.match(r"^(0x)?[0-9a-f]+$", cells[0]):
                found[3].append(cells)
        elif found and found[3]:
            yield found
            found = None
    if found:
        yield found


def check_struct(name, size, rows):
    layout = wire.STRUCTS[name]
    assert layout.size == size, (name, layout.size, size)
    at = 0
    assert len(rows) == len(layout.names), (name, layout.names)
    for row, code, field in zip(rows, layout.codes, layout.names):
        length = struct.calcsize("<" + code)
        assert (int(row[0]), int(row[1]), row[3]) == (at, length, field), (name, row, field)
        assert row[2].startswith("i") == (code == "q"), (name, row)
        at += length
    assert at == size, name


def main():
    seen = set()
    page = (ROOT / "docs/format/wire.md").read_text(encoding="utf-8")
    for kind, name, size, rows in tables(page):
        seen.add(name)
        if kind == "Struct":
            check_struct(name, size, rows)
        else:
            values = {row[1]: int(row[0], 0) for row in rows}
            assert values == wire.CONSTANTS[name], (name, values)
    missing = (set(wire.STRUCTS) | set(wire.CONSTANTS)) ^ seen
    assert not missing, missing
    assert f"0x{wire.MAGIC:x}" in page

    assert wire.crc32c(b"123456789") == 0xE3069283
    assert wire.crc32c(b"") == 0
    assert wire.crc32c(bytes(32)) == 0x8A9136AA
    assert wire.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert wire.crc32c(bytes(range(31)) + b"x") == wire.crc32c(bytearray(range(31)) + b"x")
    assert [len(p) for p in wire.pieces(4000, bytes(5000))] == [96, 4096, 808]
    assert wire.checksums(0, b"") == []
    for offset, length in ((0, 65536), (4095, 65538), (100, 40000), (4096, 32769), (1, 2)):
        data = wire.random_bytes(length)
        one_by_one = [wire.crc32c(piece) for piece in wire.pieces(offset, data)]
        assert wire.checksums(offset, data) == one_by_one, (offset, length)
    print(f"{len(seen)} tables agree")


if __name__ == "__main__":
    sys.exit(main())
