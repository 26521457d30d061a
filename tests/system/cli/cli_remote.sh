#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A first session with a daemon, as a user has it: buckets, objects in and out, names of all kinds, a
# source tree there and back; and what is said when a call is wrong. Rules W3 (a put is a whole), N2,
# N6 (keys that are refused) and N7 (cp), as they are met from the command line. Images and sockets are
# in the scratch directory; no device of the machine is used.
# timeout: 300
set -u
PATH="$LP_TEST_BUILD/bin:$PATH"
export LAPIS_ADDRESS=unix:$PWD/sock
. "$LP_TEST_SRC/tests/lib.sh"

start_daemon()
{
	serve --memory 256M --listen "$LAPIS_ADDRESS" a.img
}

# expect STATUS PATTERN ARG...: exit status, and that the output of both streams matches. An error is
# one line that says who speaks; what succeeds says nothing on standard error.
expect()
{
	local status=$1 pattern=$2
	shift 2
	lapis "$@" >out 2>err <"${input:-/dev/null}"
	local got=$?
	[ "$got" = "$status" ] || say "lapis $*: exit status $got, not $status: $(cat err)"
	[ -z "$pattern" ] || cat out err | grep -Eq -- "$pattern" || say "lapis $*: no '$pattern' in: $(cat out err)"
	if [ "$status" = 0 ]; then
		[ ! -s err ] || say "lapis $*: noise on standard error: $(cat err)"
	else
		[ "$(wc -l <err)" = 1 ] || say "lapis $*: not one line: $(cat err)"
		grep -q '^lapis: ' err || say "lapis $*: does not say who speaks: $(cat err)"
	fi
}

# Wrong calls need no daemon to be told.
expect 1 'is lapisd running' ls
expect 2 'needs an ADDRESS' -s
expect 2 'is not an address' -s nowhere ls
expect 2 'no address' -s tcp:1.2.3.4 ls
expect 2 'at most 107 bytes' -s "unix:/$(printf 'n%.0s' $(seq 120))" ls
expect 2 'too few arguments: lapis put' put f
expect 2 'several files need a KEY that ends in /' put a b c
expect 2 'standard input has no name' put - b/
expect 2 'unknown option' ls --bogus
expect 2 'unknown option -x' rm -x b/k
expect 2 'needs a value' get --range
expect 2 'is not a range' get --range 9-1 b/k -
expect 2 'is not a key' stat /b/k
expect 2 'is not a key' stat b//k
expect 2 'more than 256 names' stat "b$(printf '/x%.0s' {1..256})"
expect 2 'is not a key' stat b/../k
expect 2 'a key cannot contain //' ls b//k
expect 2 'is not a key' put d.out b/.
expect 2 'more than 255 bytes' stat "b/$(printf 'n%.0s' $(seq 256))"
expect 2 "a bucket's name has no /" mb a/b
expect 2 'wrong arguments for' xattr frobnicate b/k
expect 2 'is not immutable' chattr immutable,frobnicated b/k
expect 2 'is not a key' chattr none b//k
expect 2 'numbers up to 4294967294' chown 4294967295 b/k
expect 2 'numbers up to 4294967294' chown : b/k
expect 2 'is not a key' chown 0 b//k
expect 2 'octal digits' chmod 0888 b/k
expect 2 'octal digits' chmod 10000 b/k
expect 2 'octal digits' chmod ' 755' b/k
expect 2 'is not a key' put d.out /
expect 2 'is not a key' put d.out b//
expect 2 'is not a key' cp b/k b//k
expect 2 'is not a key' mv b/k b/../
expect 2 'at least one byte' xattr set b/k '' value
expect 2 'at least one byte' omap rm b/k name ''
expect 2 'is neither score nor dump' alloc x
expect 2 'which one is the local directory' sync nowhere neither
for command in mb rb bucket ls put get cat rm cp mv stat chattr chown chmod du xattr omap sync status stats top slow explain \
	config alloc heap scrub bench mkfs info fsck salvage grow store-bench; do
	expect 0 "^usage: lapis $command" $command --help
done

lapis mkfs --size 1G --shards 2 a.img >out || say "mkfs: $(cat out)"
start_daemon

# Buckets.
expect 0 '' mb photos docs
expect 1 'photos: File exists' mb photos more
expect 0 '' rb more
expect 0 '^docs/$' ls
expect 0 'spread +yes' bucket get photos
expect 0 '' bucket set photos mode 0750
expect 0 '^0750$' bucket get photos mode
expect 2 'not one of spread' bucket get photos colour
expect 1 'nowhere: No such' ls nowhere
expect 1 'nowhere: No such' rb nowhere

# An object in and out, ranges, and a put that replaces.
echo 'first content' >one
expect 0 '' put one photos/2026/a.jpg
expect 0 'first content' cat photos/2026/a.jpg
expect 0 '^photos/2026/$' ls photos
expect 0 '^photos/2026/a.jpg$' ls -r photos
expect 0 '^-rw.* 14 .*photos/2026/a.jpg$' ls -l photos/2026/
expect 0 '^first$' get --range 0-4 photos/2026/a.jpg -
expect 0 '^content$' get --range 6- photos/2026/a.jpg -
expect 0 '' get photos/2026/a.jpg back
cmp one back || say "what came back is something else"
expect 1 'exists' put --if-absent one photos/2026/a.jpg
echo 'second' >two
expect 0 '' put two photos/2026/a.jpg
expect 0 '^second$' cat photos/2026/a.jpg
expect 1 'one/: Not a directory|one: Not a directory' get photos/2026/a.jpg one/x
echo 'through a pipe' | lapis put - photos/piped || say "put -"
[ "$(lapis cat photos/piped)" = 'through a pipe' ] || say "put - stored something else"
: >empty
expect 0 '' put --times one two empty docs/
expect 0 '"size_bytes": 0' stat --json docs/empty
[ "$(lapis stat --json docs/one | python3 -c 'import json, sys; print(json.load(sys.stdin)["mtime_ns"])')" = \
	"$(python3 -c 'import os; print(os.stat("one").st_mtime_ns)')" ] || say "put --times"
expect 0 '' get docs/empty empty.back
if [ ! -e empty.back ] || [ -s empty.back ]; then
	say "an empty object is no empty file"
fi
# What was private stays so, and a symlink is replaced, not followed.
echo private >private
chmod 640 private
expect 0 '' get docs/one private
cmp one private || say "a get over a private file"
[ "$(stat -c %a private)" = 640 ] || say "a file of mode 640 has $(stat -c %a private) after a get"
ln -s private link
expect 0 '' get docs/two link
[ ! -L link ] || say "a get over a symlink goes where it leads"
cmp two link || say "a get over a symlink"
cmp one private || say "a get has followed a symlink"
mkdir same.name
# An object may be called so: without FILE it is no standard output.
expect 0 '' put one docs/-
(cd same.name && expect 0 '' get docs/- && cmp ../one ./-) || say "get of an object that is called -"
[ ! -s same.name/out ] || say "get of an object that is called - prints it"
expect 0 '' rm docs/-
lapis get docs/one /dev/null || say "get to a device"
[ -c /dev/null ] || say "get replaced /dev/null"
head -c 9000001 /dev/urandom >large
expect 0 '' put large docs/large
# That a disk here is full is not what growing the store helps against.
expect 1 '^lapis: /dev/full: No space left on device$' get docs/one /dev/full
(exec >/dev/full 2>err && lapis cat docs/one) && say "cat to a full device succeeded"
grep -q '^lapis: standard output: No space left on device$' err || say "cat to a full device: $(cat err)"
mkdir -p full
# shellcheck disable=SC2016 # in the other shell
in_full='mount -t tmpfs -o size=1m none full || exit 77; "$@"'
if unshare -m bash -c "$in_full" bash true 2>/dev/null; then
	unshare -m bash -c "$in_full" bash lapis get docs/large full/large 2>err && say "get to a full disk succeeded"
	grep -q '^lapis: large: No space left on device$' err || say "get to a full disk: $(cat err)"
	unshare -m bash -c "$in_full" bash lapis sync docs ./full 2>err && say "sync to a full disk succeeded"
	grep -q '^lapis: large: No space left on device$' err || say "sync to a full disk: $(cat err)"
	grep -q 'the rest was left out' err || say "sync to a full disk goes on: $(cat err)"
fi
expect 0 '' get docs/large large.back
cmp large large.back || say "a large object came back different"
lapis cat docs/large | cmp - large || say "cat of a large object"
lapis put missing docs/x 2>err && say "put of no file succeeded"
grep -q 'there is no such local file' err || say "put of no file: $(cat err)"
expect 1 'a directory .lapis sync' put . docs/x
expect 1 'docs/nothing: No such' get docs/nothing
expect 1 'docs/nothing: No such' stat docs/nothing
expect 1 'docs: a directory' get docs
[ ! -e docs ] || say "a failed get left something"
expect 1 'docs/one/x: Not a directory' put one docs/one/x

# Copies, moves, removals; directories that puts made go with what was in them.
expect 0 '' cp docs/one photos/2026/copy
expect 0 'first content' cat photos/2026/copy
expect 0 '' mv photos/2026/copy photos/2025/moved
expect 1 'No such' stat photos/2026/copy
expect 1 'exists' mv --if-absent docs/one docs/two
expect 0 '' cp docs/one docs/two photos/more/
expect 0 '' cp -r photos docs/all
expect 0 'first content' cat docs/all/2025/moved
expect 0 'in 5 objects' du docs/all
expect 0 '"objects": 5' du --json docs/all
expect 0 '' rm photos/2025/moved
lapis ls photos | grep -q 2025 && say "a directory that a put made stays empty"
expect 1 'docs/all: .*-r' rm docs/all
expect 1 'docs/all: .*-r' cp docs/all docs/more
expect 1 'docs: is a directory .write docs/' put one docs
expect 1 'docs: is a directory .write docs/' cp photos/2026/a.jpg docs
expect 1 'docs: is a directory .write docs/' mv photos/2026/a.jpg docs
expect 1 'docs/all/x is inside it' mv docs/all docs/all/x
expect 1 'docs/all/x is inside it' cp -r docs/all docs/all/x
expect 1 'docs: .*rm -r' rb docs
expect 0 '' rm -r docs/all
expect 1 'No such' stat docs/all
expect 1 'No such' rm docs/nothing
expect 0 '' rm -f docs/nothing

# Attributes and maps.
# What may not change does not, for whoever it is.
expect 0 '' put one docs/kept
expect 0 '"immutable": false, "append_only": false' stat --json docs/kept
if [ "$(id -u)" = 0 ]; then
	expect 0 '' chattr immutable,append-only docs/kept
	expect 0 '"immutable": true, "append_only": true' stat --json docs/kept
	expect 0 'flags    immutable, append-only' stat docs/kept
	expect 1 'docs/kept: it is immutable or append-only' rm docs/kept
	expect 1 'immutable or append-only' put one docs/kept
	expect 1 'immutable or append-only' mv docs/kept docs/other
	expect 1 'immutable or append-only' xattr set docs/kept user.a 1
	expect 0 '' cp docs/kept docs/copied
	expect 0 '"immutable": false' stat --json docs/copied
	expect 0 '' chattr immutable docs
	expect 1 'immutable or append-only' put one docs/new
	expect 1 'immutable or append-only' rm docs/copied
	expect 0 '' chattr none docs docs/kept
	expect 0 '' rm docs/copied
fi
expect 0 '' rm docs/kept
# Owners and modes, of whole trees, and of the root.
if [ "$(id -u)" = 0 ]; then
	expect 0 '' put one docs/mine/deep/a
	expect 0 '' put one docs/mine/b
	expect 0 '' chmod 6755 docs/mine/b
	expect 0 '' chown -r 1234:nogroup docs/mine/
	for key in docs/mine docs/mine/deep docs/mine/deep/a docs/mine/b; do
		expect 0 '"uid": 1234, "gid": 65534' stat --json "$key"
	done
	expect 0 'mode .*[(]0755[)]' stat docs/mine/b
	expect 0 '' chown :7 docs/mine/b
	expect 0 '"uid": 1234, "gid": 7' stat --json docs/mine/b
	expect 0 '' chmod -r 0700 docs/mine
	expect 0 'mode .*[(]0700[)]' stat docs/mine/deep/a
	expect 0 'mode .*[(]0700[)]' stat docs/mine/deep
	expect 0 '' chmod 1777 /
	expect 0 '' chown root:root /
	expect 0 '' chmod 0755 /
	expect 1 'docs/nowhere: No such' chown root docs/nowhere
	expect 0 '' rm -r docs/mine
fi
# As long as the kernel has them.
head -c 65536 /dev/urandom >longest
input=longest expect 0 '' xattr set docs/one user.longest -
lapis xattr get docs/one user.longest | cmp - longest || say "the longest xattr is another one"
head -c 65537 /dev/zero >longer
input=longer expect 1 'more than 65536 bytes' xattr set docs/one user.longest -
expect 0 '' xattr rm docs/one user.longest
expect 0 '' xattr set docs/one user.a 1 user.b 'b c'
expect 0 '^1$' xattr get docs/one user.a
expect 0 'user.b = b c' xattr ls -l docs/one
expect 0 '' xattr rm docs/one user.a
expect 1 'docs/one: attribute user.a: there is no such' xattr get docs/one user.a
input=one expect 0 '' xattr set docs/one user.in -
expect 0 'first content' xattr get docs/one user.in
# What cannot be read is not an empty value.
input=/tmp expect 1 'standard input: .*directory' xattr set docs/one user.in -
input=/tmp expect 1 'standard input: .*directory' omap set docs/one k0 -
expect 0 'first content' xattr get docs/one user.in
expect 0 '' xattr rm docs/one user.in
expect 0 '' omap set docs/one k2 v2 k1 v1
expect 0 '^v1$' omap get docs/one k1
[ "$(lapis omap ls docs/one | tr '\n' ' ')" = 'k1 k2 ' ] || say "omap ls: $(lapis omap ls docs/one)"
lapis omap ls --json docs/one | python3 -c 'import json, sys
assert [p["value"] for p in json.load(sys.stdin)] == ["v1", "v2"]' || say "omap ls --json"
expect 0 '' omap rm docs/one k1 k2
expect 0 '' omap ls docs/one
# Bytes of all kinds, NULs too, in values and in the names of entries.
printf 'a\0b\n' | lapis xattr set docs/one user.nul - || say "xattr set of a NUL"
expect 0 '^user\.nul = a\\x00b\\x0a$' xattr ls -l docs/one
expect 0 '' xattr rm docs/one user.nul
PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B - "$LAPIS_ADDRESS" <<'CODE' || say "a NUL in a name"
import sys
import lapis_wire as wire

with wire.Connection(sys.argv[1]) as lapis:
    lapis(wire.omap_set("docs/one", b"k\0x", b"v\0"))
CODE
expect 0 '^k\\x00x = v\\x00$' omap ls -l docs/one
lapis omap ls docs/one | cmp - <(printf 'k\0x\n') || say "omap ls of a NUL: $(lapis omap ls docs/one | od -c)"
lapis omap ls --json docs/one | python3 -c 'import json, sys
assert json.load(sys.stdin) == [{"name": "k\0x", "value": "v\0", "value_bytes": 2}]' || say "omap ls --json of a NUL"
expect 0 '' put one docs/one
expect 0 '' put --xattr user.k=v two docs/two
expect 0 '^v$' xattr get docs/two user.k

# Odd names.
long=$(printf 'n%.0s' $(seq 255))
newline=$'new\nline'
for name in 'with space' 'äöü €' "$newline" "$long" $'\xff\xfe' '-dash' '*?[' "quote'\"" '\back' 'tab	x'; do
	echo "$name" >content
	lapis put content -- "odd/$name" || say "put odd/$name"
	lapis cat -- "odd/$name" | cmp -s - content || say "odd/$name came back different"
	[ "$(lapis ls -0 odd/ | tr '\0\n' '\n ' | grep -Fxc "odd/${name//$'\n'/ }")" = 1 ] ||
		say "ls -0 does not show odd/$name"
done
lapis ls --json odd/ | python3 -c 'import json, sys
keys = [item["key"] for item in json.load(sys.stdin)]
assert len(keys) == 10 and "odd/new\nline" in keys and "odd/äöü €" in keys, keys' || say "ls --json of odd names"
lapis stat $'odd/no\nsuch' 2>err
[ "$(wc -l <err)" = 1 ] || say "an error about an odd name has more than a line"
# Completion of bash, asked as bash asks: words are cut at each colon.
# shellcheck source=/dev/null
. "$LP_TEST_SRC/cli/completions/lapis.bash"
# shellcheck disable=SC2034 # what the function of the completion reads
completed()
{
	COMP_WORDS=(lapis "$@")
	COMP_CWORD=$#
	_lapis 2>/dev/null
	printf '<%s>' "${COMPREPLY[@]}"
}
echo x | lapis put - "odd/a:b c" || say "put of a name with a colon"
[ "$(completed cat 'odd/with\ s')" = '<odd/with space>' ] || say "completion of a blank: $(completed cat 'odd/with\ s')"
[ "$(completed cat odd/a : b)" = '<b c>' ] || say "completion behind a colon: $(completed cat odd/a : b)"
[ "$(completed cat od)" = '<odd/>' ] || say "completion of a bucket: $(completed cat od)"
[ "$(completed rm odd/ne)" = "<odd/$newline>" ] || say "completion of a newline: $(completed rm odd/ne)"
[ "$(completed -s unix : "${LAPIS_ADDRESS#unix:}" stat -- odd/-d)" = '<odd/-dash>' ] ||
	say "completion behind -s: $(completed -s unix : "${LAPIS_ADDRESS#unix:}" stat -- odd/-d)"
[ "$(completed ls --js)" = '<--json>' ] || say "completion of an option: $(completed ls --js)"
[ "$(completed expl)" = '<explain>' ] || say "completion of a command: $(completed expl)"
expect 0 '' rm -r odd

# A tree there and back.
mkdir -p "tree/sp ace/deep/er" tree/nothing
cp -r "$LP_TEST_SRC/base" "$LP_TEST_SRC/cli" tree/
: >tree/empty
echo x >"tree/sp ace/äöü"
echo y >"tree/sp ace/$newline"
echo z >"tree/sp ace/deep/er/$long"
ln -s empty tree/link
ln -s 'no where' tree/dangling
touch -d @0 tree/empty
chmod 600 tree/cli/README.md
cp large tree/large
digests() { (cd "$1" && find . -printf '%p %y %m %l\n' | LC_ALL=C sort && find . -type f -printf '%p %T@\n' |
	LC_ALL=C sort && find . -type f -print0 | LC_ALL=C sort -z | xargs -0 sha256sum); }
expect 0 '' sync ./tree docs/tree
expect 0 '' sync docs/tree ./tree.back
digests tree >list.here
digests tree.back >list.back
cmp list.here list.back || say "the trees differ: $(diff list.here list.back | head -5)"
[ -z "$(lapis sync -n ./tree docs/tree)" ] || say "a second sync has work: $(lapis sync -n ./tree docs/tree | head -3)"
[ -z "$(lapis sync -n docs/tree ./tree.back)" ] || say "a second sync back has work"
echo changed >tree/cli/README.md
rm -r tree/base
[ "$(lapis sync -n --delete ./tree docs/tree | LC_ALL=C sort | tr '\n' ' ')" = \
	'put     cli/README.md remove  docs/tree/base ' ] || say "sync -n: $(lapis sync -n --delete ./tree docs/tree)"
expect 0 '' sync --delete ./tree docs/tree
expect 0 '' sync --delete --checksum docs/tree ./tree.back
digests tree >list.here
digests tree.back >list.back
cmp list.here list.back || say "the trees differ after changes: $(diff list.here list.back | head -5)"
expect 1 'is not a directory' sync docs/one ./x
expect 0 '' rm -r docs/tree

# Same size, same time, other content: only --checksum sees it.
mkdir same
echo 1 >same/f
expect 0 '' sync ./same docs/same
touch -r same/f stamp
echo 2 >same/f
touch -r stamp same/f
[ -z "$(lapis sync -n ./same docs/same)" ] || say "sync without --checksum reads contents"
[ -n "$(lapis sync -n --checksum ./same docs/same)" ] || say "sync --checksum does not see the change"

# Sparse, there and back, in less than it would take to send it.
truncate -s 20G sparse
printf tail | dd of=sparse bs=1 seek=$((15 * 1024 * 1024 * 1024)) conv=notrunc status=none
expect 0 '' put sparse docs/sparse
expect 0 '"size_bytes": 21474836480' stat --json docs/sparse
expect 0 '' get docs/sparse sparse.back
[ "$(stat -c %s sparse.back)" = 21474836480 ] || say "the size of the sparse file: $(stat -c %s sparse.back)"
[ "$(stat -c %b sparse.back)" -lt 1000 ] || say "holes were filled: $(stat -c %b sparse.back) blocks"
[ "$(dd if=sparse.back bs=1 skip=$((15 * 1024 * 1024 * 1024)) count=4 status=none)" = tail ] ||
	say "the data of the sparse file is gone"

# All of it is of one version also while it is written to in place: each number is first in front, then behind.
PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B - "$LAPIS_ADDRESS" "$LP_TEST_BUILD/bin/lapis" <<'CODE' || say "a sparse object that is written to"
import subprocess, sys, threading
import lapis_wire as wire

BEHIND = 20 * 2**30 - 8
with wire.Connection(sys.argv[1]) as lapis:
    for at in range(100):
        lapis(wire.write("docs/sparse", b"x" * 65536, at * 2**20 + 65536))
    for at in (0, BEHIND):
        lapis(wire.write("docs/sparse", bytes(8), at))
    ended = threading.Event()

    def write():
        number = 0
        while not ended.is_set():
            number += 1
            for at in (0, BEHIND):
                lapis(wire.write("docs/sparse", number.to_bytes(8, "little"), at))

    def get():
        said = subprocess.run([sys.argv[2], "get", "docs/sparse", "sparse.back"], capture_output=True, text=True)
        with open("sparse.back", "rb") as got:
            first = int.from_bytes(got.read(8), "little")
            got.seek(BEHIND)
            behind = int.from_bytes(got.read(8), "little")
        assert said.returncode == 0 or "written to all the time" in said.stderr, said.stderr
        assert behind <= first <= behind + 1 or said.returncode, (first, behind)
        return said.returncode == 0

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(5):
            get()
    finally:
        ended.set()
        writer.join()
    assert get()
CODE
expect 0 '' rm docs/sparse

# Zeros take no space, holes or not; what is between them comes back.
{
	head -c 3000000 /dev/zero
	head -c 700001 /dev/urandom
	head -c 5000000 /dev/zero
	echo end
} >zeros
expect 0 '' put zeros docs/zeros
lapis put - docs/zeros.piped <zeros || say "put - of a file with zeros"
# shellcheck disable=SC2002 # a pipe is what is tested
cat zeros | lapis put - docs/zeros.piped2 || say "put - of zeros from a pipe"
for key in docs/zeros docs/zeros.piped docs/zeros.piped2; do
	lapis cat $key | cmp - zeros || say "$key came back different"
	[ "$(lapis stat --json $key | python3 -c 'import json, sys; print(json.load(sys.stdin)["allocated_bytes"])')" \
		-lt 6000000 ] || say "zeros of $key take space"
done
expect 0 '' rm docs/zeros docs/zeros.piped docs/zeros.piped2

# Many objects: listed in pages, in order.
mkdir many
(cd many && seq -f 'object-%05.0f' 1000 | xargs touch)
expect 0 '' sync ./many photos/many
lapis ls -r photos/many/ >listed
seq -f 'photos/many/object-%05.0f' 1000 | cmp - listed || say "a list of many objects: $(wc -l <listed)"
[ "$(lapis ls photos/many/object-0099 | wc -l)" = 10 ] || say "ls of a prefix"
expect 0 ' in 1000 objects' du photos/many
[ -z "$(lapis sync -n ./many photos/many)" ] || say "a second sync of many has work"
expect 1 'photos/many/object-00001: a file, no directory' sync ./many photos/many/object-00001
# Readdir would walk through all of a directory again for each reply.
lapis stats --json | python3 -c 'import json, sys
assert "readdir" not in json.load(sys.stdin)["ops"]' || say "a walk through a tree uses readdir"

# The daemon's own words.
expect 0 '"state": "ok"' status --json
lapis stats --json | python3 -m json.tool >out || say "stats --json is no JSON"
expect 0 '^lapis_up|^# (HELP|TYPE)' stats --prometheus
lapis slow --json | python3 -m json.tool >out || say "slow --json is no JSON"
expect 0 'write_4k' explain docs/one
expect 0 '^auto$' config get write-path
expect 0 '^direct$' config set write-path direct
expect 1 'no such option' config set frobnicate 1
expect 0 'score' alloc score
expect 0 'released' heap release
expect 0 'operation.*per second' top --count 1

# What lies so deep that no key reaches it, as a mount or numbers of inodes can make it, is not passed
# over in silence: a copy of the rest is made, and said not to be all.
PYTHONPATH=$LP_TEST_SRC/tests/wire python3 -B - "$LAPIS_ADDRESS" <<'CODE' || say "deep directories"
import sys
import lapis_wire as wire

with wire.Connection(sys.argv[1]) as lapis:
    ino = lapis(wire.make("deep", wire.DIRECTORY, spread=True)).ino
    for _ in range(256):
        lapis(wire.make((ino, "f"), wire.FILE))
        ino = lapis(wire.make((ino, "d"), wire.DIRECTORY)).ino
CODE
expect 1 'No such' stat "b$(printf '/x%.0s' {1..255})"
expect 1 'more than 256 names' cp -r deep copy
expect 1 'more than 256 names' rm -r deep
lapis sync deep ./deep >out 2>&1 && say "sync says nothing of what it has left out"
grep -q 'more than 256 names' out || say "sync: $(cut -c 1-200 out)"
expect 0 '' mv "deep$(printf '/d%.0s' {1..200})" deep/again
expect 0 '' rm -r deep copy

# What was acknowledged is there after a kill.
echo kept >kept
expect 0 '' put kept docs/kept
end_daemon KILL
expect 1 'is lapisd running|closed the connection' cat docs/kept
start_daemon
expect 0 '^kept$' cat docs/kept
expect 0 '' rm -r docs photos
end_daemon TERM
lapis fsck a.img >out || say "fsck: $(cat out)"

finish
