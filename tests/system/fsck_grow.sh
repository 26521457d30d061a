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
expect 1 '^error: shard: shard 1: cannot be opened' fsck dead.img
expect 1 'findings' fsck --json --repair dead.img
json 'not clean and problems == 1 and findings[0]["kind"] == "shard" and findings[0]["shard"] == 1'

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
