#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: lapis salvage as a person meets it: what it refuses, what it takes out of a store over three
# devices beside data (links, attributes, times, modes, an empty directory), what it does with an
# object that is damaged; and that a daemon with --degraded says which shard does not open.
# Method: a store that is stopped, a byte of an object's data overwritten, a journal of files zeroed.
set -u
. "$LP_TEST_SRC/tests/lib.sh"
trap end_daemon EXIT
export LAPIS_ADDRESS="unix:$PWD/s"

expect 0 '^usage: lapis salvage' salvage --help
expect 2 'one DEVICE and one DIR' salvage a.img
expect 2 'one DEVICE and one DIR' salvage a b c
expect 2 'unknown option' salvage --bogus a b
expect 1 'No such file' salvage nowhere.img taken
[ ! -e taken ] || say "a directory was made for nothing"
truncate -s 64M zeros.img
expect 1 'no Lapis store is on it' salvage zeros.img taken

truncate -s 64M db.img
truncate -s 64M wal.img
expect 0 'store' mkfs --size 128M --shards 2 --db db.img --wal wal.img data.img
serve --memory 128M --listen "$LAPIS_ADDRESS" data.img
mkdir -p source/dir/empty
head -c 300000 /dev/urandom >source/dir/large
head -c 100 /dev/urandom >source/dir/small
ln -s small source/dir/link
chmod 640 source/dir/small
touch -d '2020-02-02 02:02:02 UTC' source/dir/large
"$lapis" sync source bucket || say "sync source bucket"
"$lapis" xattr set bucket/dir/small user.colour blue || say "xattr set"
"$lapis" put source/dir/small bucket/removed || say "put source/dir/small bucket/removed"
"$lapis" rm bucket/removed || say "rm bucket/removed"
expect 1 'busy|in use' salvage data.img taken
end_daemon TERM

mkdir there
expect 1 'there: exists already' salvage data.img there
expect 0 '3 objects .* 0 without a name; 0 damaged, 0 lost$' salvage data.img taken
diff -r --no-dereference source taken/objects/bucket || say "other objects than there were"
[ "$(stat -c %a taken/objects/bucket/dir/small)" = 640 ] || say "the mode is not 640"
[ "$(stat -c %Y taken/objects/bucket/dir/large)" = "$(stat -c %Y source/dir/large)" ] ||
	say "the time of large"
if command -v getfattr >/dev/null && setfattr -n user.try -v 1 source 2>/dev/null; then
	getfattr --only-values -n user.colour taken/objects/bucket/dir/small 2>/dev/null |
		grep -q blue || say "the attribute is gone"
fi
[ "$(ls -A taken)" = objects ] || say "more than objects: $(ls -A taken)"

# A byte of an object: what is whole of it is there, but not among what is whole.
python3 - <<'PYTHON' || say "no block of the object was found"
data = open("data.img", "rb").read()
at = data.index(open("source/dir/large", "rb").read()[8192:12288])
with open("data.img", "r+b") as file:
    file.seek(at)
    file.write(bytes([data[at] ^ 1, data[at + 1] ^ 1]))
PYTHON
expect 1 '1 damaged, 0 lost$' salvage data.img damaged
grep -q '^objects/bucket/dir/large: 4096 bytes at 8192 are not what their checksum says$' out ||
	say "no line for the damage: $(cat out)"
[ ! -e damaged/objects/bucket/dir/large ] || say "a damaged object is among the whole ones"
cmp -s <(head -c 8192 source/dir/large) <(head -c 8192 damaged/damaged/bucket/dir/large) ||
	say "what is whole of it is not there"
cmp -s <(tail -c +12289 source/dir/large) <(tail -c +12289 damaged/damaged/bucket/dir/large) ||
	say "what is whole behind the damage is not there"

# A shard without its journal of files: refused in one line that says what to do.
python3 - <<'PYTHON' || say "the journal was not found"
import struct
label = open("db.img", "rb").read(4096)
region = struct.unpack_from("<64Q", label, 688)[1]
log, files = struct.unpack_from("<64I", label, 1200)[1], struct.unpack_from("<64I", label, 1456)[1]
with open("db.img", "r+b") as file:
    file.seek((region + log) * 4096)
    file.write(bytes(files * 4096))
PYTHON
cp --sparse=always data.img before.img
"$LP_TEST_BUILD/bin/lapisd" --memory 128M --listen "$LAPIS_ADDRESS" data.img >d.out 2>d.err &&
	say "a daemon serves without a shard"
grep -q '^lapisd: shard 1 cannot be opened: .*lapis salvage.*--degraded on' d.err ||
	say "no advice: $(cat d.err)"
cp --sparse=always before.img data.img
serve --memory 128M --listen "$LAPIS_ADDRESS" --degraded on data.img
expect 0 '^failed since .*: shard 1 can neither be changed nor read' status
expect 1 'Read-only file system|Input/output error' mb other
end_daemon TERM
cmp data.img before.img || say "--degraded has written to the device"
expect 1 'shard 1: both superblocks of its files are damaged' salvage data.img rest
[ -n "$(find rest -type f)" ] || say "nothing is left: $(cat out)"

finish
