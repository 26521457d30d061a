#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Goal: a store that is full says so, to objects of any size and in a bounded time, has all that it
# acknowledged, tells how much that is, and has room again when something was removed (P6): on a
# device and in memory. Method: it is filled with large objects, then smaller ones, until none fits.
# variants: release asan
# timeout: 240
set -u
. "$LP_TEST_SRC/tests/lib.sh"
export LAPIS_ADDRESS=unix:$PWD/sock

# bounded ARG...: a client that waits for ever fails the test, not the machine.
bounded()
{
	timeout 60 "$lapis" "$@"
}

# bytes WHICH: used or available.
bytes()
{
	bounded status --json | grep -Eo "\"$1_bytes\": ?[0-9]+" | grep -Eo '[0-9]+$'
}

# put_until_full SIZE: more of that size than fit.
put_until_full()
{
	local status=0
	bounded put "$1"/* "b/$1/" >put.out 2>put.err || status=$?
	[ "$status" = 1 ] || say "$1: exit status $status: $(tail -n 1 put.err)"
	grep -v 'No space left on device' put.err && say "$1: refused for other reasons"
	bounded ls -r "b/$1" >"ls.$1" || say "$1: cannot be listed"
	while read -r key; do
		bounded get "$key" - | cmp -s - "${key#b/}" || say "$key: is not what was put"
	done <"ls.$1"
}

fill_and_empty()
{
	local room
	bounded mb b >/dev/null || say "no bucket"
	room=$(bytes available)
	bounded sync kept b/kept || say "an empty store takes no tree"
	local size
	for size in 4194304 65536 4096; do
		put_until_full "$size"
	done
	for size in 4194304 65536; do
		[ -s "ls.$size" ] || say "of $size bytes nothing fits"
	done
	# A tree that does not fit is not tried to its end.
	mkdir -p 65536/dir
	bounded sync 65536 b/sync 2>sync.err && say "a tree of more than there is room for was stored"
	grep -q 'sync: the rest was left out' sync.err || say "sync of a tree that does not fit: $(tail -n 1 sync.err)"
	[ "$(grep -c 'No space' sync.err)" -lt 100 ] || say "sync goes on though nothing fits"
	grep -v 'No space\|the rest was left out' sync.err && say "sync to a full store: other errors"
	rmdir 65536/dir
	# Nor does one that is ended early remove what it has not looked at: it is here as there.
	cp 65536/aaa[a-h] kept/
	for ((i = 0; i < 5; i++)); do
		bounded sync --delete kept b/kept 2>sync.err && say "what does not fit was stored"
		[ "$(bounded ls -r b/kept/z | wc -l)" = 3 ] || say "sync --delete to a full store has removed what is here"
	done
	rm kept/aaa*
	local key full empty=
	full=$(bytes used)
	[ "$full" -ge $(($(wc -l <ls.4194304) * 4194304 + $(wc -l <ls.65536) * 65536)) ] ||
		say "only $full bytes are in use"
	[ "$full" -le $((room + 4194304)) ] || say "$full bytes are in use of $room that were available"
	[ "$(bytes available)" -lt 1048576 ] || say "$(bytes available) bytes are available on a full store"
	key=$(head -n 1 ls.4194304)
	bounded rm "$key" || say "a full store does not remove"
	# What was removed is freed step by step.
	for ((i = 0; i < 100; i++)); do
		bounded put "${key#b/}" b/again 2>put.err && break
		sleep 0.1
	done
	bounded get b/again - | cmp - "${key#b/}" || say "no room after a removal: $(cat put.err)"
	bounded rm -r b || say "not all can be removed"
	for ((i = 0; i < 100; i++)); do
		empty=$(bytes used)
		[ "$empty" -lt $((full / 10)) ] && break
		sleep 0.1
	done
	[ "$empty" -lt $((full / 10)) ] || say "$empty of $full bytes are in use without objects"
}

# size count
while read -r size count; do
	mkdir "$size"
	head -c $((size * count)) /dev/urandom | split -a 4 -b "$size" - "$size/"
done <<END
4194304 20
65536 400
4096 1500
END

mkdir -p kept/z
for i in 1 2 3; do
	echo "$i" >"kept/z/$i"
done
"$lapis" mkfs --size 64M --shards 2 a.img >/dev/null || exit 1
serve --listen "$LAPIS_ADDRESS" --memory 128M a.img
fill_and_empty
end_daemon TERM
"$lapis" fsck --deep a.img >fsck.out || say "fsck: $(cat fsck.out)"

serve --listen "$LAPIS_ADDRESS" --store mem --shards 1 --memory 128M
fill_and_empty
end_daemon TERM
finish
