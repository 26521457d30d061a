#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lapis fsck and grow as a person meets them: what they print and exit with, on a store that is in
# order, on copies of labels and tables that are damaged, on a shard that is, over three devices, and
# on an image that was enlarged. Images are in the scratch directory.
set -u
. "$LP_TEST_SRC/tests/lib.sh"

json()
{
	python3 -c '
import json, sys
found = json.load(open("out"))
assert eval(sys.argv[1], {}, found), (sys.argv[1], found)' "$1" || say "json: $1"
}

zero()
{
	dd if=/dev/zero of="$1" bs=4096 seek="$2" count="$3" conv=notrunc status=none
}

expect 0 '^usage: lapis fsck' fsck --help
expect 0 '^usage: lapis grow' grow --help
expect 2 'exactly one DEVICE' fsck
expect 2 'exactly one DEVICE' grow a b
expect 2 'unknown option' fsck --bogus x
expect 2 'unknown option' grow --bogus x
expect 2 'needs a value' fsck --db
expect 1 'No such file' fsck nowhere.img
expect 1 'No such file' grow nowhere.img
truncate -s 64M zeros.img
expect 1 'no Lapis store is on it' fsck zeros.img
expect 1 'no Lapis store is on it' grow zeros.img

# A store in order, twice: what a check writes leaves it so.
"$lapis" mkfs --size 256M --shards 2 a.img >/dev/null || say "mkfs"
expect 0 '^a.img: 0 inodes, 0 entries, 0 blocks: clean$' fsck a.img
expect 0 '^a.img: 0 inodes, .* 0 of them read: clean$' fsck --deep --repair a.img
expect 0 'findings' fsck --json a.img
json 'clean and complete and problems == 0 and shards == 2 and findings == []'

# In use: busy.
exec 9<a.img
flock 9
expect 1 'busy.*stop that first' fsck a.img
expect 1 'busy.*stop that first' grow a.img
exec 9<&-

# One copy of each is enough, and is copied back.
zero a.img 65535 1
zero a.img 1 1
expect 0 'repaired: chunk-slot: store: slot 0 of the data device' fsck --repair a.img
grep -Eq '^repaired: label-copy: store: the last copy' out || say "label: $(cat out)"
grep -Eq '0 problems remain, 2 repaired, 0 warnings$' out || say "summary: $(cat out)"
expect 0 'clean' fsck a.img

# A shard whose log is gone: an error, and nothing about the other one.
cp --sparse=always a.img dead.img
block=$(python3 -c '
import struct
label = open("dead.img", "rb").read(4096)
print(struct.unpack_from("<Q", label, 688 + 8)[0])')
zero dead.img "$block" 16
expect 1 '^error: shard: shard 1: cannot be opened: .*lapis salvage takes out what is whole' fsck dead.img
grep -q '^error: super-copy: shard 1: both superblocks of its log are damaged, on dead.img$' out ||
	say "which structure: $(cat out)"
expect 1 'findings' fsck --json --repair dead.img
json 'not clean and problems == 2 and [f["kind"] for f in findings] == ["super-copy", "shard"]'
json 'all(f["shard"] == 1 for f in findings)'

# Both tables of chunks, or both labels, by a bit each: which structure it is, and what to do next.
flip() { # image, byte
	python3 - "$1" "$2" <<'PYTHON'
import sys
with open(sys.argv[1], "r+b") as file:
    file.seek(int(sys.argv[2]))
    byte = file.read(1)[0]
    file.seek(-1, 1)
    file.write(bytes([byte ^ 1]))
PYTHON
}
table=$(python3 -c '
import struct
label = open("a.img", "rb").read(4096)
block, blocks = struct.unpack_from("<QI", label, 128)
print(block * 4096 + 70, (block + blocks) * 4096 + 70)')
cp --sparse=always a.img gone.img
for byte in $table; do flip gone.img "$byte"; done
words='both copies of the chunk table on the data device are damaged .lapis salvage takes out'
expect 1 "$words" fsck --repair gone.img
"$LP_TEST_BUILD/bin/lapisd" --listen "unix:$PWD/s" gone.img >out 2>&1 && say "lapisd starts"
grep -q "^lapisd: gone.img: $words" out || say "lapisd does not say it: $(cat out)"
cp --sparse=always a.img gone.img
flip gone.img 150
flip gone.img $((65535 * 4096 + 150))
words='neither copy of its label can be read, in the first and in the last block'
expect 1 "$words" fsck --repair gone.img
"$LP_TEST_BUILD/bin/lapisd" --listen "unix:$PWD/s" gone.img >out 2>&1 && say "lapisd starts"
grep -q "^lapisd: gone.img: $words" out || say "lapisd does not say it: $(cat out)"

# One superblock of a log: told, and mended.
region=$(python3 -c '
import struct
label = open("a.img", "rb").read(4096)
print(struct.unpack_from("<Q", label, 688)[0])')
zero a.img "$region" 1
expect 1 '^error: super-copy: shard 0: superblock 0 of its log is damaged' fsck a.img
expect 0 '^repaired: super-copy: shard 0: superblock 0 of its log is damaged' fsck --repair a.img
expect 0 'clean' fsck a.img
flip a.img $((region * 4096 + 50))
expect 0 '^repaired: flipped-bit: shard 0: one bit has flipped in a superblock of its log' fsck --repair a.img
expect 0 'clean' fsck a.img

# Both labels: no store any more.
cp --sparse=always a.img gone.img
zero gone.img 0 1
zero gone.img 65535 1
expect 1 'no Lapis store' fsck gone.img

# The other devices are found by their last path, or where they are said to be.
truncate -s 256M db.img wal.img
"$lapis" mkfs --size 256M --shards 2 --db db.img --wal wal.img data.img >/dev/null || say "mkfs 3"
expect 0 'clean' fsck data.img
mv db.img moved.img
expect 1 'db.img: No such file' fsck data.img
expect 0 'clean' fsck --db moved.img data.img
expect 1 'data device|db device|another' fsck --db moved.img --wal moved.img data.img

# Growing.
expect 0 'a.img: uses all of its 256 MiB already' grow a.img
truncate -s 1G a.img
expect 0 'clean' fsck a.img
expect 0 'a.img: grown from 256 MiB to 1 GiB' grow a.img
expect 0 'clean' fsck --deep a.img
expect 0 '^size +1 GiB' info a.img
expect 0 '"free": [789][0-9]{2}|"free": 10[0-9]{2}' info --json a.img
truncate -s 20G a.img
expect 0 'stay unused: a store grows to 16 times' grow a.img
truncate -s 30G a.img
expect 1 'and no further' grow a.img
expect 0 'clean' fsck a.img
truncate -s 512M wal.img moved.img
expect 0 'wal.img: grown from 256 MiB to 512 MiB' grow wal.img
expect 0 'moved.img: grown from 256 MiB to 512 MiB' grow moved.img
expect 0 'clean' fsck --db moved.img data.img

finish
