#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# variants: release
"""Goal: docs/format/disk.md and log.md are enough to read labels, chunk tables and logs.
Method: a reader that takes every offset from the tables of these pages and the rest from their
sentences, and nothing from our code, reads the golden images; the log must end where the store
said it ends. (Not checked: a frame's tag beyond being the same in all frames, for Python's own
library has no XXH3.)"""

import os
import pathlib
import re
import subprocess
import sys

SRC = pathlib.Path(os.environ["LP_TEST_SRC"])
BLOCK = 4096
CRC_TABLE = []
for start in range(256):
    for _ in range(8):
        start = (start >> 1) ^ (0x82F63B78 if start & 1 else 0)
    CRC_TABLE.append(start)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def crc_without(data, offset):
    """With the field of the crc itself zero."""
    return crc32c(data[:offset] + bytes(4) + data[offset + 4 :])


def read_page(name):
    """{struct: {field: (offset, size, items)}, (constants, name): value}"""
    found, fields, group = {}, None, None
    for line in (SRC / "docs" / "format" / name).read_text().splitlines():
        if intro := re.match(r"Struct: (\w+) size", line):
            fields, group = found.setdefault(intro[1], {}), None
        elif intro := re.match(r"(?:Constants|Flags): (\w+)", line):
            fields, group = None, intro[1]
        if not line.startswith("|"):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if fields is not None and cells[0].isdigit():
            items = re.search(r"\[(\d+)\]", cells[2])
            fields[cells[3]] = (int(cells[0]), int(cells[1]), int(items[1]) if items else 1)
        elif group and re.match(r"\d|0x", cells[0]):
            found[group, cells[1]] = int(cells[0], 0)
    return found


FORMAT = read_page("disk.md") | read_page("log.md") | read_page("space.md")


def decode(struct, data):
    """Numbers, lists of numbers, and bytes where the items are bytes."""
    values = {}
    for name, (offset, size, items) in FORMAT[struct].items():
        width = size // items
        raw = data[offset : offset + size]
        parts = [raw[i : i + width] for i in range(0, size, width)]
        numbers = [int.from_bytes(part, "little") for part in parts]
        values[name] = raw if items > 1 and width == 1 else numbers if items > 1 else numbers[0]
        if name.startswith("reserved"):
            assert not any(raw), f"{struct}.{name}"
    return values


def raw_bits(body):
    return {8 * i + bit for i, byte in enumerate(body) for bit in range(8) if byte >> bit & 1}


def varints(body):
    number, shift = 0, 0
    for byte in body:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number, shift = 0, 0
    assert shift == 0


def run_bits(body):
    numbers, at, found = list(varints(body)), 0, set()
    for gap, cnt in zip(numbers[::2], numbers[1::2], strict=True):
        at += gap + cnt
        found.update(range(at - cnt, at))
    return found


class Device:
    def __init__(self, path):
        self.data = path.read_bytes()
        self.label = self.read_label()

    def blocks(self, first, cnt):
        return self.data[first * BLOCK : (first + cnt) * BLOCK]

    def read_label(self):
        labels = []
        for block in (0, len(self.data) // BLOCK - 1):
            data = self.blocks(block, 1)
            label = decode("lp_disk_label", data)
            assert label["magic"] == b"LAPISDEV" and label["version"] == 1
            assert label["crc"] == crc_without(data, FORMAT["lp_disk_label"]["crc"][0])
            assert label["copy_block"] == block and label["block_bytes"] == BLOCK
            labels.append(label)
        assert labels[0]["device_uuid"] == labels[1]["device_uuid"]
        for name in ("region_block", "log_blocks", "files_blocks"):
            assert not any(labels[0][name][labels[0]["shard_cnt"] :])
        return max(labels, key=lambda label: label["sequence"])

    def check_splits(self, head, chunks, data):
        """Each names blocks that no other one does, of a chunk that another shard leased."""
        at, last, named = 0, (-1, -1), {}
        for _ in range(head["split_cnt"]):
            split = decode("lp_disk_split", data[at : at + 8])
            body = data[at + 8 : at + 8 + split["body_bytes"]]
            raw = split["encoding"] == FORMAT["LP_SPACE_ENCODING", "raw"]
            blocks = raw_bits(body) if raw else run_bits(body)
            assert blocks and max(blocks) < head["block_cnt"] == self.label["chunk_blocks"]
            chunk = chunks[split["chunk"]]
            assert chunk["use"] == FORMAT["LP_CHUNK_USE", "objects"]
            assert chunk["shard"] != split["shard"] < self.label["shard_cnt"]
            assert last < (split["chunk"], split["shard"])
            assert not blocks & named.get(split["chunk"], set())
            named.setdefault(split["chunk"], set()).update(blocks)
            last, at = (split["chunk"], split["shard"]), at + 8 + split["body_bytes"]
        assert at == head["split_bytes"]

    def check_chunks(self):
        """How many chunks of the objects there are."""
        label, used, sequences = self.label, [], []
        if label["chunk_cnt"] == 0:
            assert label["role"] == FORMAT["LP_DISK_ROLE", "wal"]
            return 0
        for slot in (0, 1):
            blocks = label["table_slot_blocks"]
            data = self.blocks(label["table_block"] + slot * blocks, blocks)
            end = 64 + 2 * label["chunk_cnt"]
            head = decode("lp_disk_chunks", data)
            assert head["magic"] == 0x4B43504C and head["slot"] == slot
            assert head["version"] == (2 if head["split_cnt"] else 1)
            all_of_it = data[: end + head["split_bytes"]]
            assert head["crc"] == crc_without(data[:end], FORMAT["lp_disk_chunks"]["crc"][0])
            assert head["split_crc"] == crc32c(all_of_it[end:])
            assert head["chunk_cnt"] == label["chunk_cnt"]
            assert head["device_uuid"] == label["device_uuid"]
            sequences.append(head["sequence"])
            used.append([decode("lp_disk_chunk", data[i : i + 2]) for i in range(64, end, 2)])
            self.check_splits(head, used[-1], all_of_it[end:])
        assert sequences[0] != sequences[1] or used[0] == used[1]
        for chunk in used[0]:
            assert chunk["shard"] < label["shard_cnt"]
            assert chunk["use"] != FORMAT["LP_CHUNK_USE", "free"] or chunk["shard"] == 0
        return sum(chunk["use"] == FORMAT["LP_CHUNK_USE", "objects"] for chunk in used[0])


def read_super(device, shard):
    area = device.label["region_block"][shard]
    believed = []
    for slot in (0, 1):
        data = device.blocks(area + slot, 1)
        found = decode("lp_log_super", data)
        assert found["magic"] == FORMAT["LP_LOG_MAGIC", "super"]
        assert found["crc"] == crc_without(data, FORMAT["lp_log_super"]["crc"][0])
        assert found["area_block"] == area and found["slot_seq"] % 2 == slot
        assert found["shard"] == shard and found["store_uuid"] == device.label["store_uuid"]
        assert found["ring_blocks"] + 2 == device.label["log_blocks"][shard]
        assert not any(data[128:])
        believed.append(found)
    return max(believed, key=lambda found: found["slot_seq"])


def read_frame(device, sup, at):
    """The frame that stands there, whole, or None."""
    ring = sup["area_block"] + 2
    data = device.blocks(ring + at, 1)
    head = decode("lp_log_head", data) if data[:4] == b"LPLF" else None
    if head is None or head["version"] != 1 or head["ring_block"] != at:
        return None
    sizes = 96 + 32 * head["payload_cnt"] + 16 * head["change_cnt"] + head["batch_bytes"]
    meta_blocks = -(-sizes // BLOCK)
    meta = device.blocks(ring + at, meta_blocks)
    if head["total_blocks"] != meta_blocks + head["payload_cnt"]:
        return None
    if head["total_blocks"] > sup["frame_blocks_max"] or head["crc"] != crc_without(meta, 4):
        return None
    assert head["shard"] == sup["shard"] and not any(meta[sizes:])
    assert head["acked_seq"] < head["seq"] and 1 <= head["oldest_needed"] <= head["seq"]
    for i in range(head["payload_cnt"]):
        about = decode("lp_log_payload", meta[96 + 32 * i : 128 + 32 * i])
        payload = device.blocks(ring + at + meta_blocks + i, 1)
        assert about["crc"] == crc32c(payload), "a payload"
    return head


def read_log(device, shard):
    """(number of the last frame, frames, payloads) from the superblock's start on."""
    sup = read_super(device, shard)
    at, seq, chain = sup["start_block"], sup["start_seq"], sup["start_chain"]
    frames, payloads, tags = 0, 0, set()
    while True:
        head = read_frame(device, sup, at) if at < sup["ring_blocks"] else None
        if head is None and at > 0:
            head, at = read_frame(device, sup, 0), 0
        if head is None or head["seq"] != seq or head["chain"] != chain:
            break
        assert head["incarnation"] <= sup["incarnation"]
        at, seq, chain = at + head["total_blocks"], seq + 1, head["crc"]
        frames, payloads = frames + 1, payloads + head["payload_cnt"]
        tags.add(head["tag"])
    assert len(tags) <= 1
    assert seq > sup["acked_seq"]
    if sup["flags"] & FORMAT["LP_LOG_SUPER_FLAG", "clean"]:
        assert sup["acked_seq"] == seq - 1
    return seq - 1, frames, payloads


def check(name):
    image = pathlib.Path(f"{name}.img")
    devices = [Device(path) for path in sorted(image.parent.glob(f"{image.name}*"))]
    assert len({device.label["store_uuid"] for device in devices}) == 1
    assert sum(device.check_chunks() for device in devices) > 0
    logs = next(device for device in reversed(devices) if any(device.label["log_blocks"]))
    said = (SRC / "tests" / "golden" / f"{name}.records").read_text()
    for shard in range(logs.label["shard_cnt"]):
        last, frames, payloads = read_log(logs, shard)
        want = int(re.search(rf"^shard {shard} last (\d+)", said, re.M)[1])
        assert last == want, f"{name}: shard {shard}: the log ends at {last}, not {want}"
        print(f"{name}: shard {shard}: {frames} frames up to {last}, {payloads} payloads")
    return payloads


def main():
    unpack = [str(SRC / "tests" / "golden" / "images"), "--unpack", "."]
    names = subprocess.run(unpack, check=True, stdout=subprocess.PIPE).stdout.decode().split()
    assert sum(check(name) for name in names) > 0, "no payload was checked"
    return 0


sys.exit(main())
