# SPDX-License-Identifier: Apache-2.0
"""Where the structures of a store are in its image: for tests that flip bits in them. It follows
docs/format/disk.md, log.md and blockfs.md, and the footer of the tables of the index. Nothing is
checked here: the image is one that a daemon has written, undamaged."""

import struct

BLOCK = 4096
DATA, DB = 1, 2
KINDS = {"fullfilter": "filter", "filter": "filter", "rocksdb.properties": "properties"}


def varint(data, at):
    number, shift = 0, 0
    while True:
        number |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            return number, at


class File:
    def __init__(self, name):
        self.name, self.blocks, self.tail, self.size = name, [], None, 0

    def place(self, offset):
        """The offset in the image of a byte of the file."""
        if offset // BLOCK < len(self.blocks):
            return self.blocks[offset // BLOCK] * BLOCK + offset % BLOCK
        return self.tail + offset - len(self.blocks) * BLOCK


class Image:
    def __init__(self, path):
        self.data = path.read_bytes()
        label = self.data[:BLOCK]
        self.shards = struct.unpack_from("<I", label, 140)[0]
        self.uuid = label[48:64]
        self.table, self.table_blocks = struct.unpack_from("<QI", label, 128)
        self.region = struct.unpack_from("<64Q", label, 688)
        self.log_blocks = struct.unpack_from("<64I", label, 1200)
        self.files = [self.read_files(shard) for shard in range(self.shards)]

    def last_block(self):
        return len(self.data) // BLOCK - 1

    # --- The log

    def log_frames(self, shard):
        """Offsets of the frames from the start of the newer superblock on."""
        area = self.region[shard] * BLOCK
        slots = [self.data[area + i * BLOCK : area + i * BLOCK + 128] for i in (0, 1)]
        newest = max(slots, key=lambda slot: struct.unpack_from("<Q", slot, 32)[0])
        seq, at = struct.unpack_from("<QQ", newest, 80)
        ring, found = area + 2 * BLOCK, []
        while True:
            head = self.data[ring + at * BLOCK : ring + at * BLOCK + 96]
            if head[:4] != b"LPLF" or struct.unpack_from("<Q", head, 32)[0] != seq:
                return found
            found.append(ring + at * BLOCK)
            at, seq = at + struct.unpack_from("<I", head, 76)[0], seq + 1

    def waiting_blocks(self, shard):
        """Offsets of the payloads of all frames but the last."""
        for frame in self.log_frames(shard)[:-1]:
            blocks, payloads = (
                struct.unpack_from("<I", self.data, frame + at)[0] for at in (76, 88)
            )
            for i in range(payloads):
                yield frame + (blocks - payloads + i) * BLOCK

    # --- The journal of the files

    def journal(self, shard):
        return (self.region[shard] + self.log_blocks[shard]) * BLOCK

    def journal_super(self, shard):
        """half, generation, blocks of a half, of the newer one"""
        at = self.journal(shard)
        slots = [self.data[at + i * BLOCK : at + i * BLOCK + 128] for i in (0, 1)]
        newest = max(slots, key=lambda slot: struct.unpack_from("<Q", slot, 16)[0])
        half, generation = struct.unpack_from("<IQ", newest, 44)
        return half, generation, struct.unpack_from("<I", newest, 80)[0]

    def journal_frames(self, shard):
        half, generation, half_blocks = self.journal_super(shard)
        at = self.journal(shard) + (2 + half * half_blocks) * BLOCK
        found = []
        while self.data[at : at + 4] == b"LBFJ":
            if struct.unpack_from("<Q", self.data, at + 24)[0] != generation:
                break
            found.append(at)
            length = struct.unpack_from("<I", self.data, at + 8)[0]
            at += -(-(64 + length) // BLOCK) * BLOCK
        return found

    def read_files(self, shard):
        files = {}
        for frame in self.journal_frames(shard):
            at = frame + 64
            end = at + struct.unpack_from("<I", self.data, frame + 8)[0]
            while at < end:
                kind, length = struct.unpack_from("<HxxI", self.data, at)
                self.apply(files, kind, at + 8)
                at += 8 + length
        return sorted(files.values(), key=lambda file: file.name)

    def apply(self, files, kind, at):
        number = struct.unpack_from("<Q", self.data, at)[0]
        if kind in (2, 5):
            length = struct.unpack_from("<H", self.data, at + 16)[0]
            name = self.data[at + 24 : at + 24 + length].decode()
            for other in [key for key, file in files.items() if file.name == name]:
                del files[other]
            file = files.setdefault(number, File(name))
            file.name = name
        elif kind == 3:
            self.publish(files[number], at)
        elif kind == 4:
            del files[number]

    def publish(self, file, at):
        file.size = struct.unpack_from("<Q", self.data, at + 8)[0]
        extents, tables, _, crcs, _ = struct.unpack_from("<5I", self.data, at + 28)
        for i in range(extents):
            block, cnt = struct.unpack_from("<QI", self.data, at + 48 + 16 * i)
            file.blocks += range(block, block + cnt)
        file.tail = at + 48 + 16 * (extents + tables) + 4 * crcs

    # --- Tables of the index

    def bytes_of(self, file):
        found = b"".join(self.data[block * BLOCK : (block + 1) * BLOCK] for block in file.blocks)
        return (found + self.data[file.tail : file.tail + BLOCK])[: file.size]

    def table_parts(self, file):
        """{part: offset in the file}, in the middle of each"""
        data = self.bytes_of(file)
        footer = len(data) - 53
        meta, at = varint(data, footer + 1)
        meta_len, at = varint(data, at)
        index, at = varint(data, at)
        index_len, at = varint(data, at)
        parts = {"footer": footer + 3, "list of its parts": meta + meta_len // 2}
        parts["index block"] = index + index_len // 2
        parts["data block"] = 600
        at, end = meta, meta + meta_len
        while at < end - 8:
            _, at = varint(data, at)
            key_len, at = varint(data, at)
            value_len, at = varint(data, at)
            key = data[at : at + key_len].decode(errors="replace").split(".rocksdb.Built")[0]
            start, after = varint(data, at + key_len)
            length, _ = varint(data, after)
            if key in KINDS:
                parts[KINDS[key]] = start + length // 2
            at += key_len + value_len
        return parts
