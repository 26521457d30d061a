#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: when the file system that holds an image has no space, health, log and error name it, nothing is
# said to be available that it cannot give, and removals go on, all of them (rules L8, S7); so it is after
# a start, too, and where small writes wait in the log. When it has space again the store goes on by
# itself and says so. Method: an image on a small tmpfs that another file fills to the last block; thousands
# of objects are removed then. It needs root.
# variants: release release-nolto debug asan
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock
host=$PWD/host
fuse=()

[ "$(id -u)" = 0 ] || {
	echo "only root mounts a file system"
	exit 77
}
mkdir -p host mnt
mount -t tmpfs -o size=180M tmpfs "$host" 2>err || {
	echo "no tmpfs: $(cat err)"
	exit 77
}
[ ! -c /dev/fuse ] || fuse=(--mount "$PWD/mnt")
end_all()
{
	umount -l mnt 2>/dev/null
	end_daemon
	umount -l "$host" 2>/dev/null
}
trap end_all EXIT
trap 'exit 1' TERM INT

fill()
{
	dd if=/dev/zero of="$host/filler" bs=64K oflag=append conv=notrunc 2>/dev/null
	[ "$(stat -f -c %f "$host")" = 0 ] || say "the host is not full"
}

# becomes PATTERN: within 20 seconds that is what the status says.
becomes()
{
	local i
	for ((i = 0; i < 200; i++)); do
		"$lapis" status >said 2>&1
		head -n 1 said | grep -Eq -- "$1" && return
		sleep 0.1
	done
	say "the status does not become $1: $(head -n 1 said)"
}

# available: bytes that the status says.
available()
{
	"$lapis" status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["available_bytes"])'
}

# refused FILE KEY: a put, for want of space, which names the host and nothing that is of no use.
refused()
{
	"$lapis" put "$1" "$2" 2>err && say "put of $1 where the host is full"
	grep -q 'the file system that holds the image has no space (make room there' err || say "put: $(cat err)"
	grep -q grow err && say "put: $(cat err)"
}

begin()
{
	serve --memory 192M --listen "$LAPIS_ADDRESS" "${fuse[@]}" "$host/a.img"
}

expect 0 'shards' mkfs --size 320M --shards 2 "$host/a.img"
begin
becomes '^ok since'
# What is available is what the host can give, and not what the image could hold.
[ "$(available)" -le $(($(stat -f -c '%f * %S' "$host"))) ] || say "$(available) bytes available, on a host with less"

mkdir small
for ((i = 0; i < 6000; i++)); do
	echo "$i" >"small/f$i"
done
"$lapis" sync -j 64 ./small b/small || say "sync"
head -c 30000000 /dev/urandom >large
"$lapis" put large b/large || say "put"
fill
head -c 20000000 large >second
refused second b/more
becomes "^degraded since .*$host/a.img: the file system that holds the image has no space \\(make room there"
grep -q 'error: health: degraded: .*the file system that holds the image has no space' d.err || say "log: $(tail -n 3 d.err)"
[ "$(available)" -lt 4194304 ] || say "$(available) bytes available, and a put was refused"
if [ "${#fuse[@]}" -gt 0 ]; then
	[ "$(stat -f -c '%a' mnt)" -lt 1024 ] || say "df of the mount: $(stat -f -c '%a' mnt) blocks available"
	dd if=second of=mnt/b/more bs=1M 2>err && say "the mount takes what the host cannot give"
	rm -f mnt/b/more
fi

# What there is can be read; half of it is removed, one by one and as a tree.
"$lapis" cat b/large | cmp - large || say "b/large is another thing"
for ((i = 0; i < 400; i++)); do
	echo "b/small/f$i"
done | xargs -n 40 "$lapis" rm || say "rm"
fill
# A stop and a start change nothing of that: all that is left is removed.
end_daemon TERM
fill
begin
becomes '^degraded since .*the file system that holds the image has no space'
"$lapis" cat b/large | cmp - large || say "b/large is another thing after a start"
timeout 100 "$lapis" rm -r b/small || say "rm -r"
[ -z "$("$lapis" ls -r b/small 2>/dev/null)" ] || say "something is left in b/small"

# It has space again: the store goes on by itself, and says so.
rm "$host/filler"
becomes '^ok since'
grep -q 'notice: .*a.img: the file system that holds the image has space again' d.err || say "log: $(tail -n 3 d.err)"
"$lapis" put second b/more || say "put, with space again"
"$lapis" cat b/more | cmp - second || say "b/more is another thing"
end_daemon TERM
expect 0 'clean' fsck --deep "$host/a.img"
finish
