#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# lapis mkfs and info as a person meets them: what works, what is refused and in which words, and
# the exit status of each. Images are in the scratch directory; no device of the machine is used.
set -u
. "$LP_TEST_SRC/tests/lib.sh"

expect 0 '^usage: lapis .-s ADDRESS. COMMAND' --help
expect 0 '^lapis [0-9.]+ \(' --version
expect 2 'no command given'
expect 2 'frobnicate: no such command' frobnicate
expect 0 '^usage: lapis mkfs' mkfs --help
expect 0 '^usage: lapis info' info --help
expect 2 'exactly one DEVICE' mkfs
expect 2 'unknown option' mkfs --bogus x
expect 2 '65 is out of range' mkfs --shards 65 x
expect 2 '10Q is not a size' mkfs --size 10Q x
expect 2 'needs a value' mkfs --size

# A missing file without a size, one that is too small, one that exists.
expect 1 'give --size to create' mkfs missing.img
expect 1 'too small|at least' mkfs --size 1M --shards 1 small.img
[ ! -e small.img ] || say "a failed mkfs left its image file behind"
expect 0 'store [0-9a-f-]{36} on a.img: 256 MiB, 2 shards' mkfs --size 256M --shards 2 a.img
expect 1 'exists already' mkfs --size 256M a.img
expect 1 'holds a Lapis store .*--force' mkfs a.img
expect 0 'on a.img: 256 MiB, 1 shard$' mkfs --force --shards 1 a.img

expect 0 '^shards +1$' info a.img
expect 0 '"role": "data".*"shards": 1' info --json a.img
python3 -c 'import json; json.load(open("out"))' || say "info --json is not JSON"
expect 1 'No such file' info nowhere.img
truncate -s 64M zeros.img
expect 1 'no Lapis store is on it' info zeros.img
expect 1 'block device or an image' info /

# Three devices; the data device names the others.
truncate -s 256M db.img
truncate -s 256M wal.img
expect 0 'store' mkfs --size 256M --shards 2 --db db.img --wal wal.img data.img
expect 0 "db device +$PWD/db.img$" info data.img
expect 0 'role +wal' info wal.img

# An image of which a part is missing is told from a damaged one.
expect 0 'store' mkfs --size 256M --shards 2 part.img
truncate -s 100M part.img
expect 1 'has 256 MiB, and the device only 100: it was cut off' info part.img
expect 1 'it was cut off' fsck part.img

# A device that is set read-only is not opened for writing, which the kernel would allow.
if loop=$(losetup -r -f --show a.img 2>/dev/null); then
	expect 1 'set read-only' fsck --repair "$loop"
	expect 1 'set read-only' mkfs --force "$loop"
	expect 0 'clean' fsck "$loop"
	losetup -d "$loop"
fi

# What others own is left alone.
if command -v mkfs.ext4 >/dev/null; then
	truncate -s 64M ext4.img
	mkfs.ext4 -q ext4.img
	expect 1 'holds data already: ext4' mkfs --shards 1 ext4.img
fi

# One at a time: while somebody holds the image, it is busy.
exec 9<a.img
flock 9
expect 1 'busy.*stop that first' info a.img
exec 9<&-

# A damaged label is repaired from the other copy, two damaged ones are an error, never a crash.
dd if=/dev/urandom of=a.img bs=4096 count=1 conv=notrunc status=none
expect 0 '^shards +1$' info a.img
dd if=/dev/urandom of=a.img bs=4096 count=1 seek=65535 conv=notrunc status=none
expect 1 'a.img' info a.img

finish
